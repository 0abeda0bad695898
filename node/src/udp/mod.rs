//! The adapter for processes on different machines: UDP, which every Linux has and nobody needs a privilege for.
//!
//! | step | file |
//! |---|---|
//! | where to | [`address`] |
//! | with which key | [`guard`] |
//! | a channel is opened | [`calls`] |
//! | a channel, as its endpoint uses it | [`mod@line`] |
//! | a message goes out | `send` |
//! | what lies where on its way out, and what is kept to go again | `outgoing` |
//! | memory of batches that carried it, which the kernel copies or sends from | `carried` |
//! | batches out | `batches` |
//! | which messages go together | `sink` |
//! | from which address | `sources` |
//! | by a socket of its own, for the peer with which there is most to do | `joined` |
//! | which of its trains the kernel sends from where they lie | `splices` |
//! | what all of it shares, under one lock | `door` |
//! | what has come, and what follows from it | `turn` |
//! | other ways to the same peers: rings | `lanes` |
//! | rings that were given up are opened again | `lanes::reopen` |
//! | payloads that a ring has placed | `placed` |
//! | how often a socket is looked at | `glances` |
//! | who is told of what comes | `watch` |
//! | what it had no room for | `overruns` |
//! | trains in, scattered to where they belong | `trains` |
//! | where payloads land | `memory` |
//! | what the application is told | `told` |
//! | while the application looks away | `attendant` |
//!
//! What is sent again, acknowledged, granted and guessed is decided by [`cutthrough_engine::net`]; here is the memory,
//! the socket, the clock and the lock.

pub mod address;
mod ahead;
mod attendant;
mod batches;
pub mod calls;
mod carried;
mod door;
mod glances;
pub mod guard;
mod joined;
pub(crate) mod lanes;
pub mod line;
mod memory;
mod outgoing;
mod overruns;
mod placed;
mod posted;
mod send;
mod sink;
mod sources;
mod splices;
#[cfg(test)]
mod tests;
mod told;
mod trains;
mod turn;
mod watch;

pub use door::Udp;
pub(crate) use lanes::Troubles;
pub use lanes::{Offer, probe};
pub(crate) use memory::Stores;
pub(crate) use told::{Happened, Leaves, Names, Told};
