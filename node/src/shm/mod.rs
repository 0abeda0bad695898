//! The adapter for processes on one machine: memory that both map, and a Unix socket that says hello and tells of
//! death.

mod copier;
pub mod grant;
pub mod handshake;
mod lends;
pub mod link;
pub mod meanwhile;
mod pages;
mod patience;
pub mod receive;
pub mod rendezvous;
pub mod send;
mod share;
pub mod strangers;
pub(crate) mod unmap;
