//! What a user does with a payload that was handed over before it was there.

use super::inbox::{Reading, Story};
use super::memory::Memory;
use super::{Net, State};
use crate::time::Instant;

impl<M: Memory> Net<M> {
    /// Copies what has come of a payload that was handed over as `Arriving`: see [`Reading`]. With `lend`, more of it
    /// is asked for and goes straight to the reader's memory, as long as that is passed to [`Net::frame`]. Says how
    /// many bytes are valid from the first on, and whether that is all; `None` if there is no such payload.
    pub fn read(
        &mut self,
        now: Instant,
        index: usize,
        reading: &mut Reading<'_>,
        valid: usize,
        lend: bool,
    ) -> Option<(usize, bool)> {
        let channel = self.channel(index)?;
        let (front, whole) = channel.inbox.read(now, reading, valid, lend)?;
        let wants = !whole || channel.inbox.wants_more() || channel.inbox.awaits_place();
        let mended = channel.inbox.take_mended();
        self.tally.mended_bytes += mended;
        match self.wants.iter().position(|other| *other == index) {
            Some(at) if !wants => {
                self.wants.remove(at);
            }
            None if wants => self.wants.push(index),
            _ => {}
        }
        // A payload that is here is its reader's first. What else follows from it has time, unless others wait for it.
        if self.is_wanting() {
            self.grant(now);
        }
        self.touch(index);
        Some((front, whole))
    }

    /// Whether the other side of a channel is to hear something that messages do not say by the way: of more that it
    /// may send, above all.
    #[must_use]
    pub fn tells(&self, index: usize) -> bool {
        let state = self.seats.get(index).map(|seat| &seat.state);
        matches!(state, Some(State::Open(channel)) if channel.has_to_tell())
    }

    /// A payload has been read, or will not be.
    pub fn forget(&mut self, index: usize, message: u64) -> Option<Story> {
        let channel = self.channel(index)?;
        let story = channel.inbox.forget(message);
        self.touch(index);
        story
    }
}
