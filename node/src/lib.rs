//! Adapters and the poll loop: where the engine meets the operating system.
//!
//! In the order in which a channel lives: [`config`] says what an endpoint wants, [`rendezvous`](shm::rendezvous) finds
//! the peer, [`handshake`](shm::handshake) passes memory both ways, [`link`](shm::link) sends and receives, [`node`]
//! polls all links, sleeps and keeps house, [`stat`] shows counters to whoever may look. [`idle`], [`pace`] and
//! [`clock`] are the small things that they need.
//!
//! Nearly all unsafe code is in the crate below (`segment`); what is needed here lies in `sys`.
#![deny(unsafe_code)]

pub mod clock;
pub mod config;
pub mod entropy;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
pub mod idle;
pub mod incoming;
pub mod key_file;
pub mod node;
pub mod pace;
mod parcel;
pub mod process;
#[cfg_attr(not(test), expect(dead_code, reason = "no door takes rings in yet"))]
pub mod raw;
pub mod shm;
#[cfg(feature = "simulated")]
pub mod simulated;
/// Without the feature `simulated` there is no simulated network, and these types have no value. They are there, so
/// that settings have the same fields with the feature and without it.
#[cfg(not(feature = "simulated"))]
pub mod simulated {
    use std::net::IpAddr;

    /// A simulated network. Without the feature `simulated` there is none.
    #[derive(Debug, Clone)]
    pub enum Network {}

    impl Network {
        /// The host with this address.
        #[must_use]
        pub fn host(&self, _address: impl Into<IpAddr>) -> Host {
            match *self {}
        }
    }

    /// A host of such a network, for [`Config::host`](crate::config::Config::host).
    #[derive(Debug, Clone)]
    pub enum Host {}
}
pub mod stall;
pub mod stat;
pub mod sys;
pub mod udp;

/// Says that a test, or a part of one, is skipped, and why: where it is seen even if the test passes.
#[cfg(test)]
pub(crate) fn skipped(why: impl std::fmt::Display) {
    use std::io::Write as _;
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    // `eprintln` would go where the harness keeps the output of tests that pass.
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {why}");
}
