//! How messages leave the inbox: taken, or shown where they lie.

use alloc::collections::VecDeque;

use super::{Inbox, Ready};
use crate::net::memory::Place;
use crate::time::Instant;

impl<P: Place> Inbox<P> {
    /// Takes a message for the user.
    #[inline]
    pub(in crate::net) fn take(&mut self) -> Option<Ready<P>> {
        let ready = self.ready.pop_front()?;
        self.took(1);
        Some(ready)
    }

    /// Shows up to `most` messages to the user, where they lie, and takes them out: how many.
    #[inline]
    pub(in crate::net) fn show(&mut self, most: usize, mut each: impl FnMut(&mut Ready<P>)) -> usize {
        let mut count = 0;
        while count < most
            && let Some(ready) = self.ready.front_mut()
        {
            each(ready);
            self.ready.pop_front();
            count += 1;
        }
        self.took(count as u64);
        count
    }

    /// Lets go of memory that is kept for what comes aside, if none of it was used for a while.
    pub(in crate::net) fn rest(&mut self, now: Instant) {
        self.spare.rest(now);
    }

    /// Lets go of memory in which nothing lies.
    pub(in crate::net) fn settle_down(&mut self) {
        self.window.shrink_to_fit();
        self.ready.shrink_to_fit();
        self.arriving.shrink_to_fit();
        self.whole.shrink_to_fit();
        self.unwanted.shrink_to_fit();
        self.told_early.shrink_to_fit();
        self.books.settle_down();
    }

    fn took(&mut self, count: u64) {
        self.taken += count;
        if self.ready.is_empty() && self.ready.capacity() > 64 && self.window.is_empty() && self.taken == self.next {
            self.ready = VecDeque::new();
        }
    }
}
