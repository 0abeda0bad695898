//! Bytes of a payload that lie aside: until its place is known, or its reader takes them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::time::Instant;

/// Bytes for which there is room at once where the first ones of a payload lie aside, at most.
const ROOM_BYTES: usize = 64 << 10;
/// Bytes of memory that is kept for what comes aside next, at most.
const SPARE_BYTES: usize = 4 << 20;
/// Nanoseconds after which that is given back, if none of it was used.
const UNUSED_NS: u64 = 1_000_000_000;

/// The bytes of a payload from one on that have come, with gaps; those before it are its reader's by now.
#[derive(Debug, Default)]
pub(super) struct Aside {
    begin: usize,
    bytes: Vec<u8>,
}

impl Aside {
    /// The first byte of the payload that lies here.
    pub(super) const fn begin(&self) -> usize {
        self.begin
    }

    /// Where the last one ends.
    pub(super) const fn end(&self) -> usize {
        self.begin + self.bytes.len()
    }

    /// Bytes of memory.
    pub(super) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// These bytes of the payload, which lie here.
    pub(super) fn get(&self, begin: usize, end: usize) -> &[u8] {
        &self.bytes[begin - self.begin..end - self.begin]
    }

    /// Whether there is no memory yet.
    pub(super) const fn is_bare(&self) -> bool {
        self.bytes.capacity() == 0
    }

    /// Has room for the bytes of the payload before `end`, of which so many may come before more is asked for. False if
    /// there is no memory: how much that is, their sender says, and memory that cannot be had would end the process.
    #[must_use]
    pub(super) fn make_room(&mut self, end: usize, granted: usize) -> bool {
        let (has, needed) = (self.bytes.capacity(), end.saturating_sub(self.begin));
        if needed <= has {
            return true;
        }
        // More than is needed, so that it need not be moved often, unless there is no more.
        let room = (2 * has).max(ROOM_BYTES).min(granted.saturating_sub(self.begin)).max(needed);
        let lies = self.bytes.len();
        self.bytes.try_reserve_exact(room - lies).is_ok() || self.bytes.try_reserve_exact(needed - lies).is_ok()
    }

    /// Copies bytes of the payload here, but for those that its reader has. [`make_room`](Self::make_room) comes first.
    pub(super) fn lay(&mut self, offset: usize, bytes: &[u8]) {
        let known = self.begin.saturating_sub(offset).min(bytes.len());
        let bytes = &bytes[known..];
        if bytes.is_empty() {
            return;
        }
        let at = offset + known - self.begin;
        if at > self.bytes.len() {
            self.bytes.resize(at, 0);
        }
        let over = bytes.len().min(self.bytes.len() - at);
        self.bytes[at..at + over].copy_from_slice(&bytes[..over]);
        self.bytes.extend_from_slice(&bytes[over..]);
    }

    /// Their reader has the bytes before `end`: gives their memory back, once that is no less than what has to be moved
    /// for it. Says how much.
    pub(super) fn give_up(&mut self, end: usize) -> usize {
        let read = end - self.begin;
        if read == 0 || read < self.bytes.len() - read {
            return 0;
        }
        self.bytes.drain(..read);
        self.begin = end;
        read
    }

    /// The bytes, and the number of those before them.
    pub(super) fn into_parts(self) -> (usize, Vec<u8>) {
        (self.begin, self.bytes)
    }
}

/// Memory in which bytes have lain aside, for those that come next: memory that is new each time costs a page fault for
/// every page, more than to copy what lies there. One pointer where there is none.
#[derive(Debug, Default)]
pub(super) struct Spare(Option<Box<Pieces>>);

#[derive(Debug, Default)]
struct Pieces {
    memory: Vec<Vec<u8>>,
    bytes: usize,
    /// Whether any was used since that was last asked, and when it was last seen to be.
    used: bool,
    seen: Instant,
}

impl Spare {
    /// Where a payload of so many bytes may lie, without memory if there is none to spare, or none is worth it.
    pub(super) fn aside(&mut self, payload: u32) -> Aside {
        let pieces = self.0.as_mut().filter(|_| payload as usize >= ROOM_BYTES);
        Aside { begin: 0, bytes: pieces.and_then(|pieces| pieces.take()).unwrap_or_default() }
    }

    /// Nothing lies there any more: keeps the memory, as far as that is no more than `most` bytes in all.
    pub(super) fn keep(&mut self, aside: Aside, most: u64) {
        let (bytes, most) = (aside.bytes, usize::try_from(most).unwrap_or(SPARE_BYTES).min(SPARE_BYTES));
        if bytes.capacity() >= ROOM_BYTES && self.bytes() + bytes.capacity() <= most {
            self.0.get_or_insert_default().put(bytes);
        }
    }

    /// Bytes of it.
    pub(super) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |pieces| pieces.bytes)
    }

    /// Gives all of it back, if none was used for a while.
    pub(super) fn rest(&mut self, now: Instant) {
        self.0.take_if(|pieces| pieces.rests(now));
    }
}

impl Pieces {
    fn take(&mut self) -> Option<Vec<u8>> {
        let bytes = self.memory.pop()?;
        (self.bytes, self.used) = (self.bytes - bytes.capacity(), true);
        Some(bytes)
    }

    fn put(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        (self.bytes, self.used) = (self.bytes + bytes.capacity(), true);
        self.memory.push(bytes);
    }

    /// Whether none of it was used for a while.
    fn rests(&mut self, now: Instant) -> bool {
        if core::mem::take(&mut self.used) {
            self.seen = now;
        }
        now.saturating_since(self.seen) >= UNUSED_NS
    }
}
