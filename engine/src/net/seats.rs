//! Seats: how many channels there may be, of which kinds.
//!
//! The settings say how many channels an endpoint may have, and some of those may be of another kind that is none of
//! ours. A channel that its user has closed is none of them any more, but has its seat until the other side has heard
//! of the end; so that many more seats are there for such as that.

use alloc::vec::Vec;

use super::memory::Memory;
use super::{Net, Seat, State};
use crate::time::Instant;

impl<M: Memory> Net<M> {
    /// So many channels of another kind are open, and count as ours do.
    pub const fn has_others(&mut self, channels: usize) {
        self.others = channels;
    }

    /// One more channel of another kind is to be opened: false if there are as many as the settings allow. A caller
    /// that was let in, and has not been heard of for a while, gives way.
    pub fn take_other(&mut self, now: Instant) -> bool {
        if self.is_full()
            && let Some(index) = self.late_caller(now)
        {
            self.free_seat(index, false);
        }
        let takes = !self.is_full();
        self.others += usize::from(takes);
        takes
    }

    /// One of those is not there any more.
    pub const fn free_other(&mut self) {
        self.others = self.others.saturating_sub(1);
    }

    /// Whether there are as many channels as the settings allow, those to be and those of which the user knows no end
    /// among them.
    const fn is_full(&self) -> bool {
        let seated = self.seats.len() - self.free.len();
        seated.saturating_sub(self.closing) + self.others >= self.settings.channels
    }

    /// Whether there is a seat for one more channel.
    pub(super) fn has_seat(&self) -> bool {
        let most = self.settings.channels.saturating_mul(2);
        !self.is_full() && (!self.free.is_empty() || self.seats.len() < most)
    }

    /// Takes a free seat: its number and generation.
    pub(super) fn seat(&mut self) -> Option<(usize, u32)> {
        if !self.has_seat() {
            return None;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            let (left, begun) = (Vec::new(), Vec::new());
            self.seats.push(Seat { generation: 0, ended: None, left, begun, state: State::Free });
            self.seats.len() - 1
        });
        let generation = self.draw();
        let seat = &mut self.seats[index];
        (seat.generation, seat.left, seat.begun) = (generation, Vec::new(), Vec::new());
        Some((index, generation))
    }
}
