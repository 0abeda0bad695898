//! A copy that both sides make at the same time: [`cutthrough_segment::share`] says who copies what.

use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::time::Instant;
use cutthrough_segment::half::{Own, Peer};
use cutthrough_segment::landing::LandingMemory;
use cutthrough_segment::page::Place;
use cutthrough_segment::share::Part;
use cutthrough_wire::layout::Line;

use crate::clock;
use crate::stat::Stat;

/// Bytes that a side takes at a time: so few that neither waits long for the other at the end, so many that saying so
/// costs nothing beside the copy.
const CHUNK: u64 = 16 << 10;

/// How long the receiver waits for the sender's last chunk before it copies it itself, in nanoseconds: some times what
/// a chunk takes.
const PATIENCE_NS: u64 = 20_000;

/// The two places of a payload.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) from: Place,
    pub(super) to: LandingMemory,
    pub(super) to_offset: u64,
    pub(super) len: u64,
}

/// Counts what this side has copied of a payload.
pub(super) fn count(copied: u64, stat: &Stat) {
    stat.add(Counter::Copies, u64::from(copied > 0));
    stat.add(Counter::CopiedBytes, copied);
}

impl Share {
    /// Copies a part.
    pub(super) fn copy(&self, start: u64, end: u64) {
        let bytes = usize::try_from(end - start).unwrap_or(0);
        self.to.copy_from(self.to_offset + start, &self.from, start, bytes);
    }

    /// The sender's part of message `number` - 1: from the back until it meets the receiver. [`Line::ShareSent`] has
    /// been begun before the message was published. How many bytes it has copied.
    pub(super) fn send(&self, number: u64, own: &Own, peer: &Peer) -> u64 {
        let (own, peer) = (own.share(Line::ShareSent), peer.share(Line::ShareTaken));
        Part { number, len: self.len, chunk: CHUNK, own, peer }.send(|start, end| self.copy(start, end))
    }

    /// The receiver's part: from the front until it meets the sender. How many bytes it has copied.
    pub(super) fn receive(&self, number: u64, own: &Own, peer: &Peer) -> u64 {
        let (own, peer) = (own.share(Line::ShareTaken), peer.share(Line::ShareSent));
        let mut waiting: Option<Instant> = None;
        let wait = || {
            let since = *waiting.get_or_insert_with(clock::now);
            std::hint::spin_loop();
            clock::now().saturating_since(since) <= PATIENCE_NS
        };
        Part { number, len: self.len, chunk: CHUNK, own, peer }.receive(|start, end| self.copy(start, end), wait)
    }
}
