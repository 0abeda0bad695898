//! A copy that both sides make at the same time: who copies which chunk, and when all of it is there.
//!
//! The payload lies in the sender's pages and shall land in pages of the receiver: both see both. The receiver copies
//! from the front and the sender from the back, chunk by chunk. Each says in its own memory how far it has *begun*
//! before it copies a chunk, and how far it is *done* after it, and stops where the other has begun. No word has two
//! writers, no lock is held, and nobody depends on the other: a chunk that both take is copied twice, which does no
//! harm, and a side whose peer does not come (asleep, slow, dead or lying) copies everything alone.

use crate::sync::{AtomicU64, Ordering};

/// What a side says of the copy: the message's number + 1, how far it has begun, how far it is done. In its own memory.
#[derive(Debug, Clone, Copy)]
pub struct Says<'a>(&'a [AtomicU64; 3]);

impl<'a> Says<'a> {
    /// These words of our own.
    #[must_use]
    pub const fn new(words: &'a [AtomicU64; 3]) -> Self {
        Self(words)
    }

    /// Begins with a message. What is said of it is there before its number is.
    ///
    /// SYNC POINT share: who sees the number sees all that this side has copied of the messages before it.
    #[inline]
    pub fn begin(&self, number: u64, begun: u64, done: u64) {
        self.far(begun, done);
        self.0[0].store(number, Ordering::Release);
    }

    /// SYNC POINT share: who sees how far this side is done sees what it has copied.
    #[inline]
    fn far(&self, begun: u64, done: u64) {
        self.0[1].store(begun, Ordering::Release);
        self.0[2].store(done, Ordering::Release);
    }
}

/// What the other side says of the copy: alleged.
#[derive(Debug, Clone, Copy)]
pub struct Hears<'a>(&'a [AtomicU64; 3]);

impl<'a> Hears<'a> {
    /// These words of the other side's, which are only ever loaded.
    #[must_use]
    pub const fn new(words: &'a [AtomicU64; 3]) -> Self {
        Self(words)
    }

    /// Number, begun, done.
    #[inline]
    fn far(&self) -> (u64, u64, u64) {
        let number = self.0[0].load(Ordering::Acquire);
        (number, self.0[1].load(Ordering::Acquire), self.0[2].load(Ordering::Acquire))
    }
}

/// One side's part of a copy.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The message's number + 1.
    pub number: u64,
    /// Bytes of the payload.
    pub len: u64,
    /// Bytes that a side takes at a time.
    pub chunk: u64,
    /// What this side says.
    pub own: Says<'a>,
    /// What the other side says.
    pub peer: Hears<'a>,
}

impl Part<'_> {
    /// The sender's part: from the back until it meets the receiver. Before it has published the message it has begun
    /// with `len` for both. `copy` copies from one byte up to another. How many bytes it has copied.
    #[inline]
    pub fn send(&self, copy: impl Fn(u64, u64)) -> u64 {
        let mut end = self.len;
        loop {
            let (taken, begun, _) = self.peer.far();
            let met = match taken.wrapping_sub(self.number).cast_signed() {
                0 => begun.min(self.len),
                // Not there yet, or past it already.
                before if before < 0 => 0,
                _ => self.len,
            };
            if end <= met {
                return self.len - end;
            }
            let start = (end - 1) / self.chunk * self.chunk;
            self.own.far(start, end);
            copy(start, end);
            self.own.far(start, start);
            end = start;
        }
    }

    /// The receiver's part: from the front until it meets the sender. Where the sender is busy with the rest, `wait`
    /// passes some time, and says whether to look again; if not, the rest is copied here. How many bytes this side has
    /// copied.
    #[inline]
    pub fn receive(&self, copy: impl Fn(u64, u64), mut wait: impl FnMut() -> bool) -> u64 {
        self.own.begin(self.number, 0, 0);
        let mut start = 0;
        loop {
            let (sent, begun, done) = self.peer.far();
            // A sender that has gone on to another message has left nothing of this one behind.
            if start >= self.len || sent != self.number || done <= start {
                return start;
            }
            if begun <= start && wait() {
                continue;
            }
            let end = (start + self.chunk).min(self.len);
            self.own.far(end, start);
            copy(start, end);
            start = end;
        }
    }
}
