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
pub enum OpenError {
    /// A setting is out of its bounds.
    #[error(
        "setting out of bounds: {0:?} (slots: power of two 16..65536; page: 4K, 8K, 64K or 2M; \
         staging: power of two 64K..1G; pool and landing: at most 64G)"
    )]
    Sizes(SizeError),
    /// A setting with which nothing could be done.
    #[error("setting out of bounds: {0}")]
    Setting(&'static str),
    /// No shared memory.
    #[error(transparent)]
    Memory(#[from] MapError),
    /// The system refused something else.
    #[error("{what}: {source}{cure}", cure = cure(*.source))]
    System {
        /// What was asked for.
        what: &'static str,
        /// What the system said.
        source: Errno,
    },
}

/// Why an endpoint does not listen.
#[derive(Debug, thiserror::Error)]
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
