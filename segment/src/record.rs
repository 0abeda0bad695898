//! Rings of single words: runs of pages posted, lends returned. The writer publishes a count in its own memory; the
//! reader says how many it has taken in its own.

use core::ops::Deref;

use crate::ring::{Impossible, check_counter};
use crate::sync::{AtomicU64, Ordering};

/// Memory that a reader can load words from. The other side may write it at any instant.
pub trait Words {
    /// Number of words.
    fn count(&self) -> usize;
    /// The word with this index.
    ///
    /// # Panics
    /// If there is no such word.
    fn load(&self, index: usize) -> u64;
}

/// The writing end.
#[derive(Debug)]
pub struct Writer<W> {
    words: W,
    written: u64,
    taken: u64,
}

impl<W: Deref<Target = [AtomicU64]>> Writer<W> {
    /// A ring over fresh memory; the number of words is a power of two.
    ///
    /// # Panics
    /// If it is not.
    pub fn new(words: W) -> Self {
        assert!(words.len().is_power_of_two(), "a ring has a power of two of words");
        Self { words, written: 0, taken: 0 }
    }

    /// How many words were written: what the writer publishes, with release, after [`Writer::push`].
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// How many words the reader was last known to have taken.
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// How many words are on their way.
    pub const fn pending(&self) -> u64 {
        self.written.wrapping_sub(self.taken)
    }

    /// Room for more words.
    pub fn room(&self) -> u64 {
        self.words.len() as u64 - self.pending()
    }

    /// Takes the reader's counter into account.
    ///
    /// # Errors
    /// [`Impossible`], if it cannot be true.
    pub fn refresh(&mut self, alleged: u64) -> Result<(), Impossible> {
        self.taken = check_counter(self.taken, alleged, self.written)?;
        Ok(())
    }

    /// Writes a word; false if the ring is full.
    #[allow(clippy::cast_possible_truncation, reason = "masked to the number of words, which is a usize")]
    pub fn push(&mut self, word: u64) -> bool {
        if self.room() == 0 {
            return false;
        }
        let index = (self.written & (self.words.len() as u64 - 1)) as usize;
        self.words[index].store(word, Ordering::Relaxed);
        self.written = self.written.wrapping_add(1);
        true
    }
}

/// The reading end.
#[derive(Debug)]
pub struct Reader<W> {
    words: W,
    taken: u64,
    written: u64,
}

impl<W: Words> Reader<W> {
    /// A ring over the peer's fresh memory; the number of words is a power of two.
    ///
    /// # Panics
    /// If it is not.
    pub fn new(words: W) -> Self {
        assert!(words.count().is_power_of_two(), "a ring has a power of two of words");
        Self { words, taken: 0, written: 0 }
    }

    /// How many words were taken: what the reader publishes.
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes the writer's counter (loaded with acquire) into account.
    ///
    /// # Errors
    /// [`Impossible`], if it cannot be true: it ran backwards, or further ahead than the ring is long.
    pub fn refresh(&mut self, alleged: u64) -> Result<(), Impossible> {
        let limit = self.taken.wrapping_add(self.words.count() as u64);
        self.written = check_counter(self.written, alleged, limit)?;
        Ok(())
    }

    /// The next word, if one is known to be there.
    #[allow(clippy::cast_possible_truncation, reason = "masked to the number of words, which is a usize")]
    pub fn pop(&mut self) -> Option<u64> {
        if self.taken == self.written {
            return None;
        }
        let word = self.words.load((self.taken & (self.words.count() as u64 - 1)) as usize);
        self.taken = self.taken.wrapping_add(1);
        Some(word)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
