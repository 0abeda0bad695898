//! Bytes of a payload that lie aside: until its place is known, or its reader takes them.

use alloc::vec::Vec;

/// Bytes for which there is room at once where the first ones of a payload lie aside, at most.
const ROOM_BYTES: usize = 64 << 10;

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

    /// Has room for the bytes of the payload before `end`, of which so many may come before more is asked for. False if
    /// there is no memory: how much that is, their sender says, and memory that cannot be had would end the process.
    #[must_use]
    pub(super) fn make_room(&mut self, end: usize, granted: usize) -> bool {
        let more = end.saturating_sub(self.end());
        if more <= self.bytes.capacity() - self.bytes.len() {
            return true;
        }
        if self.bytes.capacity() == 0 {
            let most = granted.saturating_sub(self.begin).min(ROOM_BYTES);
            return self.bytes.try_reserve_exact(most.max(more)).is_ok();
        }
        // More than is needed, so that it need not be moved often, unless there is no more.
        self.bytes.try_reserve(more).is_ok() || self.bytes.try_reserve_exact(more).is_ok()
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
