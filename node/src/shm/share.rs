//! A copy that both sides make at the same time.
//!
//! The payload lies in the sender's pages and shall land in pages of the receiver: both see both. The receiver copies
//! from the front and the sender from the back, chunk by chunk. Each says in its own memory how far it has *begun*
//! before it copies a chunk, and how far it is *done* after it, and stops where the other has begun. No word has two
//! writers, no lock is held, and nobody depends on the other: a chunk that both take is copied twice, which does no
//! harm, and a side whose peer does not come (asleep, slow, dead or lying) copies everything alone.

use std::sync::Arc;

use cutthrough_engine::time::Instant;
use cutthrough_segment::half::{Own, Peer};
use cutthrough_segment::map::Mapping;
use cutthrough_wire::layout::Line;

use crate::clock;

/// Bytes that a side takes at a time: so few that neither waits long for the other at the end, so many that saying so
/// costs nothing beside the copy.
const CHUNK: u64 = 16 << 10;

/// How long the receiver waits for the sender's last chunk before it copies it itself, in nanoseconds: some times what
/// a chunk takes.
const PATIENCE_NS: u64 = 20_000;

/// The two places of a payload.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) from: Arc<Mapping>,
    pub(super) from_offset: u64,
    pub(super) to: Arc<Mapping>,
    pub(super) to_offset: u64,
    pub(super) len: u64,
}

impl Share {
    /// Copies a part.
    pub(super) fn copy(&self, start: u64, end: u64) {
        let bytes = usize::try_from(end - start).unwrap_or(0);
        Mapping::copy_across(&self.from, self.from_offset + start, &self.to, self.to_offset + start, bytes);
    }

    /// The sender's part of message `number` - 1: from the back until it meets the receiver. [`Line::ShareSent`] has
    /// been begun before the message was published. True if the receiver took a part.
    pub(super) fn send(&self, number: u64, own: &Own, peer: &Peer) -> bool {
        let mut end = self.len;
        loop {
            let (taken, begun, _) = peer.share(Line::ShareTaken);
            let met = match taken.wrapping_sub(number).cast_signed() {
                0 => begun.min(self.len),
                // Not there yet, or past it already.
                before if before < 0 => 0,
                _ => self.len,
            };
            if end <= met {
                return met > 0;
            }
            let start = (end - 1) / CHUNK * CHUNK;
            own.set_share(Line::ShareSent, start, end);
            self.copy(start, end);
            own.set_share(Line::ShareSent, start, start);
            end = start;
        }
    }

    /// The receiver's part: from the front until it meets the sender. True if the sender took a part.
    pub(super) fn receive(&self, number: u64, own: &Own, peer: &Peer) -> bool {
        own.begin_share(Line::ShareTaken, number, 0, 0);
        let mut start = 0;
        let mut waiting: Option<Instant> = None;
        loop {
            let (sent, begun, done) = peer.share(Line::ShareSent);
            // A sender that has gone on to another message has left nothing of this one behind.
            if start >= self.len || sent != number || done <= start {
                return start < self.len;
            }
            let alone = waiting.is_some_and(|since| clock::now().saturating_since(since) > PATIENCE_NS);
            if begun <= start && !alone {
                waiting.get_or_insert_with(clock::now);
                std::hint::spin_loop();
                continue;
            }
            let end = (start + CHUNK).min(self.len);
            own.set_share(Line::ShareTaken, end, start);
            self.copy(start, end);
            start = end;
        }
    }
}
