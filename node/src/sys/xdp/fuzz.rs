//! What fuzz targets are shown of the programs and the rings.

use std::os::fd::OwnedFd;

use rustix::net::xdp::{XdpMmapOffsets, XdpRingOffset};

use super::machine::{BEYOND, MEMORY, Machine, REDIRECT, RINGS};
use super::{Memory, Settings, XdpError, Xsk};

pub use super::machine::{set_word, word};
pub use super::plain::{Aim, announce, list, payload};

/// What a program has done with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ran {
    /// What it says, by its number in the kernel.
    pub verdict: u64,
    /// Bytes that it has cut off.
    pub cut: usize,
}

impl Ran {
    /// The verdict of a frame that goes to a ring.
    pub const REDIRECT: u64 = REDIRECT;
    /// What bytes are in a copy that cannot be read.
    pub const BEYOND: u8 = BEYOND;
    /// What a program has to name the map of rings.
    pub const RINGS: i32 = RINGS;
    /// What it has to name the memory.
    pub const MEMORY: i32 = MEMORY;
}

/// Runs a program on a frame of which it can read the first part, and `beyond` bytes more cannot be read. It has come
/// on a queue, and to a processor; these `rings` are there.
///
/// # Panics
/// If the program reaches out of bounds, uses what a call has destroyed, or does not end.
pub fn run(program: &[u8], linear: &[u8], beyond: usize, place: (u32, u32), rings: &[u32], memory: &mut [u8]) -> Ran {
    let (queue, processor) = place;
    let mut machine = Machine { linear, beyond, queue, processor, rings, memory, cut: 0 };
    let verdict = machine.run(program);
    Ran { verdict, cut: machine.cut }
}

/// Rings over any file, as if it were a socket of AF_XDP: one after the other, 4096 bytes each, in the order fill,
/// completion, receive, send; in each the producer's index at 0, the consumer's at 64, flags at 128, entries from 192.
///
/// # Errors
/// As [`Xsk::from_parts`].
pub fn socket(file: OwnedFd, memory: &Memory, settings: Settings) -> Result<Xsk, XdpError> {
    let at = || XdpRingOffset { producer: 0, consumer: 64, desc: 192, flags: Some(128) };
    let at = XdpMmapOffsets { rx: at(), tx: at(), fr: at(), cr: at() };
    Xsk::map(file, memory, settings, [0, 1, 2, 3].map(|ring| ring * 4096), at)
}
