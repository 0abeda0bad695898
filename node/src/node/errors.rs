//! Why there is no node, no name, or no channel.

use std::time::Duration;

use cutthrough_segment::map::{MapError, cure};
use cutthrough_wire::layout::SizeError;
use rustix::io::Errno;

use crate::shm::handshake::HandshakeError;
use crate::shm::rendezvous::AddressError;
use crate::udp::address::UdpAddressError;
use crate::udp::calls::UdpCallError;

/// Why a node could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A setting is out of its bounds.
    #[error("setting out of bounds: {}, and is {given}", bounds(*.which))]
    Sizes {
        /// Which one.
        which: SizeError,
        /// What was given.
        given: u64,
    },
    /// A setting with which nothing could be done.
    #[error("setting out of bounds: {0}")]
    Setting(&'static str),
    /// No shared memory.
    #[error(transparent)]
    Memory(#[from] MapError),
    /// The system refused something else.
    #[error("{what}: {errno}{cure}", cure = cure(*.errno))]
    System {
        /// What was asked for.
        what: &'static str,
        /// What the system said.
        errno: Errno,
    },
}

/// The setting, and what it has to be.
const fn bounds(which: SizeError) -> &'static str {
    match which {
        SizeError::Slots => "Config::slots has to be a power of two from 16 to 65536",
        SizeError::Page => "Config::page_size has to be 4 KiB, 8 KiB, 64 KiB or 2 MiB",
        SizeError::Staging => "Config::staging_bytes has to be a power of two from 64 KiB to 1 GiB",
        SizeError::Pool => "Config::pool_bytes has to be 1048576 pages and 64 GiB at most",
        SizeError::Landing => "Config::landing_bytes has to be 1048576 pages and 64 GiB at most",
    }
}

/// Why an endpoint does not listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address, on this machine.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The address, over a network.
    #[error(transparent)]
    Net(#[from] UdpAddressError),
}

/// Why there is no channel to a peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The handshake.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The address, over a network.
    #[error(transparent)]
    NetAddress(#[from] UdpAddressError),
    /// The call, over a network.
    #[error(transparent)]
    Net(#[from] UdpCallError),
    /// The peer did not answer in time.
    #[error("no answer within {0:?}; the listening side has to poll or wait")]
    Timeout(Duration),
    /// This endpoint has as many channels as its settings allow.
    #[error("this endpoint has all {0} channels that its settings allow")]
    Channels(u32),
    /// The system refused something else.
    #[error("{0}{cure}", cure = cure(*.0))]
    System(Errno),
}
