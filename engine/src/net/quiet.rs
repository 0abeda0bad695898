//! An endpoint's part in quiet moments, as receiver: see [`flow::quiet`](crate::flow::quiet).

use super::memory::Memory;
use super::{Net, State};
use crate::time::Instant;

/// Nanoseconds for which a peer is taken to send still.
const LATELY_NS: u64 = 1_000_000_000;

impl<M: Memory> Net<M> {
    /// A peer asks for one by so much, whose round trips take so long as far as is known here. Peers that were heard of
    /// late are called, and told at once: who heard of it when it is nearly over would find the queue of the others.
    /// The rest are not.
    pub(super) fn asked_for_quiet(&mut self, (asks, round_ns): (u8, u64), now: Instant) {
        if !self.calls.asked(now, asks, round_ns) {
            return;
        }
        for index in 0..self.seats.len() {
            let Some(State::Open(channel)) = self.seats.get_mut(index).map(|seat| &mut seat.state) else { continue };
            if now.saturating_since(channel.heard) < LATELY_NS {
                channel.call(&mut self.calls);
                self.touch(index);
            }
        }
    }
}
