//! Where the next frames will probably land, so that a payload is received where it belongs.
//!
//! This is the guess of Speculative Defragmentation (HPDC 2000) for an adapter that takes many frames in one call and
//! scatters them: the frames of a payload come in order and uninterrupted, behind the first one of a new message or
//! where the last one ended. What is wrong is copied from where it landed to where it belongs, and counted.

use super::memory::Memory;
use super::{Guess, Net};

impl<M: Memory> Net<M> {
    /// Where the next frames will probably land, and how long a full frame is there. With a reader, in its memory.
    pub fn guess(&mut self, reading: Option<(usize, u64)>) -> Option<(Guess, usize)> {
        if let Some((index, message)) = reading {
            let channel = self.channel(index)?;
            let full = channel.full();
            let (begin, end) = channel.inbox.reader_gap(message)?;
            return Some((Guess::Rest { channel: index, message, begin, end }, full));
        }
        let index = self.last_loaded?;
        let channel = self.channel(index)?;
        let full = channel.full();
        if let Some(message) = channel.inbox.expected() {
            let (_, begin, end) = channel.inbox.gap(message)?;
            return Some((Guess::Rest { channel: index, message, begin, end }, full));
        }
        self.memory.guess(index)?;
        Some((Guess::Fresh { channel: index }, full))
    }

    /// The place that a guess speaks of, and the first byte that is meant; not for a reader's.
    pub fn guessed(&mut self, guess: Guess) -> Option<(&mut M::Place, usize)> {
        match guess {
            Guess::Fresh { channel } => self.memory.guess(channel).map(|place| (place, 0)),
            Guess::Rest { channel, message, begin, .. } => {
                let place = self.channel(channel)?.inbox.landing(message)?;
                Some((place, begin as usize))
            }
        }
    }

    /// Says which channel the next payload will probably come on: a token was granted there, or memory posted.
    pub const fn expect(&mut self, index: usize) {
        self.last_loaded = Some(index);
    }
}
