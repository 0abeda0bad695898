//! Times of seats: what is due, and those among them that mean nothing any more.

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

    /// When [`Net::tick`] has to be called next, at the latest.
    #[must_use]
    pub fn timer(&self) -> Option<Instant> {
        // Of what has changed nothing is known yet.
        if !self.changed.is_empty() {
            return Some(self.looked);
        }
        let turn = self.turns.next_end(self.looked).filter(|_| self.is_wanting());
        let forgets = self.partings.timer();
        self.timers.peek().map(|Reverse((at, _))| *at).into_iter().chain(turn).chain(forgets).min()
    }

    /// Whether the next [`Net::tick`] may give up frames that nothing has acknowledged so far. Whoever calls it has
    /// read the clock since it last looked at what comes, and may have stood still before or after that: what lies
    /// there by now would have to be sent again in vain. So it is worth another look. Asked of what is due first: what
    /// is due behind a call that has to be repeated is not doubted.
    #[must_use]
    pub fn doubts(&mut self, now: Instant) -> bool {
        while let Some(Reverse((at, index))) = self.timers.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            match self.seats.get(index).map(|seat| &seat.state) {
                Some(State::Open(channel)) if channel.timer_set == Some(at) => return channel.doubts(now),
                Some(State::Calling(call)) if call.is_due_at(at) => return false,
                // It means nothing any more, and what does may be behind it.
                _ => self.timers.pop(),
            };
        }
        false
    }

    /// Looks after what is due.
    pub fn tick(&mut self, now: Instant) {
        self.settle(now);
        self.partings.forget(now);
        while let Some(Reverse((at, index))) = self.timers.peek().copied() {
            if at > now {
                return;
            }
            self.timers.pop();
            self.tick_seat(index, at, now);
        }
    }

    fn tick_seat(&mut self, index: usize, at: Instant, now: Instant) {
        let (settings, looked) = (self.settings, self.looked);
        self.heed(index);
        match self.seats.get_mut(index).map(|seat| &mut seat.state) {
            Some(State::Open(channel)) => {
                if channel.timer_set != Some(at) {
                    return;
                }
                channel.timer_set = None;
                let ended = channel.tick((at, now, looked), &settings, &mut self.tally);
                if let Some(ending) = ended {
                    return self.end(index, ending);
                }
                self.touch(index);
            }
            Some(State::Calling(_)) => self.call_is_due(index, at, now),
            _ => {}
        }
    }
}
