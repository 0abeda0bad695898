//! The staging ring: private payloads are pulsed through it, bytes in the order of their messages.
//!
//! Positions count bytes since the channel began. The writer says how far it has put bytes in (`staged`), the reader
//! how far it has taken them out (`drained`); the ring holds what lies between. Positions may go round in a part of the
//! ring only, its first bytes: a lap.

use std::sync::Arc;

use crate::copy::Copying;
use crate::map::Mapping;
use crate::sync::Eviction;

/// A ring of bytes in a mapping.
#[derive(Debug)]
pub struct Staging {
    mapping: Arc<Mapping>,
    start: u64,
    ring: u64,
    lap: u64,
}

impl Staging {
    /// The ring of `bytes` (a power of two) at `start`.
    ///
    /// # Panics
    /// If `bytes` is not a power of two.
    #[must_use]
    pub fn new((mapping, start): (Arc<Mapping>, u64), bytes: u64) -> Self {
        assert!(bytes.is_power_of_two(), "a ring has a power of two of bytes");
        Self { mapping, start, ring: bytes, lap: bytes }
    }

    /// Bytes of the ring.
    #[must_use]
    pub const fn ring(&self) -> u64 {
        self.ring
    }

    /// Bytes in which positions go round: those of the ring, or fewer.
    #[must_use]
    #[inline]
    pub const fn lap(&self) -> u64 {
        self.lap
    }

    /// From now on positions go round in the first `bytes` bytes of the ring. What lies in it lies elsewhere then: both
    /// sides do this where nothing does.
    ///
    /// # Panics
    /// If that is no power of two, or more than the ring has.
    pub fn set_lap(&mut self, bytes: u64) {
        assert!(bytes.is_power_of_two() && bytes <= self.ring, "a lap is a power of two, and lies within the ring");
        self.lap = bytes;
    }

    /// The part of `len` bytes at `position` that lies in one piece: where it starts, and how long it is.
    #[inline]
    fn piece(&self, position: u64, len: usize) -> (u64, usize) {
        let offset = position & (self.lap - 1);
        let piece = usize::try_from(self.lap - offset).unwrap_or(usize::MAX);
        (self.start + offset, len.min(piece))
    }

    /// Calls `each` with both pieces of `len` bytes at `position`, at most a lap: where they are, and how long.
    #[inline]
    fn pieces(&self, position: u64, len: u64, each: impl Fn(u64, usize)) {
        let len = usize::try_from(len.min(self.lap)).unwrap_or(usize::MAX);
        let (offset, piece) = self.piece(position, len);
        each(offset, piece);
        if piece < len {
            each(self.start, len - piece);
        }
    }

    /// Asks for `len` bytes at `position` to be read soon.
    #[inline]
    pub fn prefetch(&self, position: u64, len: u64) {
        self.pieces(position, len, |offset, bytes| self.mapping.prefetch_read(offset, bytes));
    }

    /// Asks for `len` bytes at `position` to be owned by this core soon: they will be written.
    #[inline]
    pub fn prefetch_write(&self, position: u64, len: u64) {
        self.pieces(position, len, |offset, bytes| self.mapping.prefetch_write(offset, bytes));
    }

    /// Sends the lines of `len` bytes at `position` from the caches to memory: they have been read.
    pub fn evict(&self, position: u64, len: u64, eviction: Eviction) {
        self.pieces(position, len, |offset, bytes| self.mapping.evict(offset, bytes, eviction));
    }

    /// Copies bytes into the ring at `position`.
    ///
    /// # Panics
    /// If they are more than the ring holds.
    #[inline]
    pub fn copy_in(&self, position: u64, bytes: &[u8], copying: Copying) {
        let (offset, piece) = self.piece(position, bytes.len());
        if piece == bytes.len() {
            return self.mapping.copy_in(offset, bytes, copying);
        }
        assert!(bytes.len() as u64 <= self.lap, "more than the ring holds");
        let (head, tail) = bytes.split_at(piece);
        self.mapping.copy_in(offset, head, copying);
        self.mapping.copy_in(self.start, tail, copying);
    }

    /// Copies bytes out of the ring at `position`.
    ///
    /// # Panics
    /// If they are more than the ring holds.
    #[inline]
    pub fn copy_out(&self, position: u64, bytes: &mut [u8], copying: Copying) {
        let (offset, piece) = self.piece(position, bytes.len());
        if piece == bytes.len() {
            return self.mapping.copy_out(offset, bytes, copying);
        }
        assert!(bytes.len() as u64 <= self.lap, "more than the ring holds");
        let (head, tail) = bytes.split_at_mut(piece);
        self.mapping.copy_out(offset, head, copying);
        self.mapping.copy_out(self.start, tail, copying);
    }
}
