//! Times of seats, and those among them that mean nothing any more.

use core::cmp::Reverse;

use super::memory::Memory;
use super::{Net, State};
use crate::time::Instant;

/// Times for which there is room always.
const KEPT: usize = 64;

impl<M: Memory> Net<M> {
    /// A seat has to be looked at by then. The time that was set before stays and means nothing, so before there is
    /// more memory for times, those of that kind are taken out: one for each seat is left at most.
    pub(super) fn set_timer(&mut self, at: Instant, index: usize) {
        if self.timers.len() >= KEPT && self.timers.len() == self.timers.capacity() {
            let seats = &self.seats;
            self.timers.retain(|Reverse((at, index))| match seats.get(*index).map(|seat| &seat.state) {
                Some(State::Open(channel)) => channel.timer_set == Some(*at),
                Some(State::Calling(call)) => call.is_due_at(*at),
                Some(State::Free) | None => false,
            });
            if self.timers.len() > self.timers.capacity() / 2 {
                self.timers.reserve(self.timers.capacity());
            }
        }
        self.timers.push(Reverse((at, index)));
    }
}
