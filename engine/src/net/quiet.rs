//! An endpoint's part in quiet moments, as receiver: see [`flow::quiet`](crate::flow::quiet).

use super::Net;
use super::memory::Memory;
use crate::time::Instant;

/// Nanoseconds for which a peer is taken to send still.
const LATELY_NS: u64 = 1_000_000_000;

impl<M: Memory> Net<M> {
    /// A peer asks for one by so much, whose round trips take so long as far as is known here. Peers that were heard of
    /// late hear of it at once: who heard of it when it is nearly over would find the queue of the others. The rest are
    /// told with what is sent to them next.
    pub(super) fn asked_for_quiet(&mut self, (asks, round_ns): (u8, u64), now: Instant) {
        let Some(number) = self.calls.asked(now, asks, round_ns) else { return };
        for index in 0..self.seats.len() {
            let Some(channel) = self.channel(index) else { continue };
            channel.calls = number;
            if now.saturating_since(channel.heard) < LATELY_NS {
                channel.tell_calls();
                self.touch(index);
            }
        }
    }
}
