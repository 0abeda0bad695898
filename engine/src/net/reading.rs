//! What a user does with a payload that was handed over before it was there.

use super::Net;
use super::inbox::{Reading, Story};
use super::memory::Memory;
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
        let read = channel.inbox.read(now, reading, valid, lend)?;
        if !self.wants.contains(&index) {
            self.wants.push(index);
        }
        self.grant(now);
        self.touch(index);
        Some(read)
    }

    /// A payload has been read, or will not be.
    pub fn forget(&mut self, index: usize, message: u64) -> Option<Story> {
        let channel = self.channel(index)?;
        let story = channel.inbox.forget(message);
        self.touch(index);
        story
    }
}
