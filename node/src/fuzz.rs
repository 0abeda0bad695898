//! What fuzz targets are shown of this crate. No part of what it promises.

use std::net::SocketAddrV4;

use cutthrough_engine::time::Instant;

use crate::raw::Hop;
use crate::raw::envelope::{self, ENVELOPE_BYTES, Envelope};
#[cfg(all(feature = "fuzz", feature = "simulated"))]
pub use crate::simulated::kernel::Deed;
pub use crate::sys::xdp::fuzz::{Aim, Ran, announce, list, payload, run, set_word, socket, word};

/// Writes the headers before a body of so many bytes, from one address and hardware address to another.
#[must_use]
pub fn envelope(from: (SocketAddrV4, [u8; 6]), to: (SocketAddrV4, [u8; 6]), body: usize) -> [u8; ENVELOPE_BYTES] {
    Envelope::write(&Hop::new(from, to, 1, Instant::default()), body)
}

/// Takes a frame apart: sender, receiver and body.
pub fn parse(frame: &mut [u8]) -> Option<(SocketAddrV4, SocketAddrV4, &mut [u8])> {
    envelope::parse(frame)
}
