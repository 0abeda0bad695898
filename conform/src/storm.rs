//! Endpoints that send each other whatever there is to send: control messages, private memory, pages and lists of
//! pages, with and without tokens, of lengths from nothing to a few MiB; that take what comes at once, later or not at
//! all; grant, revoke, post, and close.
//!
//! A [`Node`] fails if a message is lost, doubled, out of order or wrong in one byte, if a payload is dropped whose
//! token was not revoked, if a peer is said to have broken a rule, or if an operation takes too long. In the end all
//! come to [rest](Node::rests): then every page of every channel has to be there again, and every completion told.
//!
//! The example `storm` has them as processes that are killed and stopped, over shared memory and UDP, in earnest. A
//! [`world`] has them on simulated hosts, on one thread and in simulated time, all of it from a seed; [`ringed`] on
//! such hosts with rings of AF_XDP, which place payloads where they belong.

mod node;
mod rest;
mod streams;
mod world;

use std::time::Duration;

pub use node::{Chance, Node};
pub use rest::REST_TIME;
pub use world::{Summary, ringed, world};

/// How long one may say nothing, and a call may take. One that is stopped meanwhile has the more time.
pub const SILENCE: Duration = Duration::from_secs(8);
