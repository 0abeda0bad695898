//! What lies where: the parts of all ranks, and letters that were not read yet.

use std::collections::BTreeMap;
use std::ops::Range;

use cutthrough_space::{Element, Global};

use super::RankError;

/// Bytes at which arrays begin, and of a word: as the ranks of `cutthrough-splitc` have them.
const ALIGN: usize = 64;
const WORD: usize = size_of::<u64>();

/// Bytes, aligned for any element.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    words: Vec<u64>,
    len: usize,
}

impl Bytes {
    pub(super) fn zeros(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(WORD)], len }
    }

    pub(super) fn all(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }

    pub(super) fn all_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.len]
    }

    /// The same as elements.
    pub(super) fn elements<T: Element>(&self) -> &[T] {
        bytemuck::cast_slice(self.all())
    }
}

/// The memory of all ranks. Who runs has it.
#[derive(Debug, Default)]
pub(super) struct Memory {
    parts: Vec<Bytes>,
    /// Letters, by their number, who has written them, and to whom.
    mail: BTreeMap<(u64, u32, u32), Bytes>,
}

impl Memory {
    pub(super) fn of(ranks: u32) -> Self {
        Self { parts: (0..ranks).map(|_| Bytes::default()).collect(), mail: BTreeMap::new() }
    }

    /// Adds zeros to a rank's part: where they lie. `None` if nothing is as long.
    pub(super) fn grow(&mut self, rank: u32, bytes: usize) -> Option<Range<u64>> {
        let part = self.parts.get_mut(rank as usize)?;
        let at = part.len.checked_next_multiple_of(ALIGN)?;
        let end = at.checked_add(bytes)?;
        let words = end.div_ceil(WORD);
        part.words.try_reserve(words.saturating_sub(part.words.len())).ok()?;
        part.words.resize(words, 0);
        part.len = end;
        Some(at as u64..end as u64)
    }

    /// Where so many elements lie in their rank's part.
    fn range<T: Element>(&self, place: Global<T>, count: usize) -> Result<Range<usize>, RankError> {
        let len = count.saturating_mul(T::BYTES);
        let part = self.parts.get(place.rank() as usize).map_or(0, |part| part.len);
        let range = usize::try_from(place.offset()).ok().and_then(|start| Some(start..start.checked_add(len)?));
        let outside = RankError::Outside { rank: place.rank(), offset: place.offset(), len: len as u64 };
        range.filter(|range| range.end <= part).ok_or(outside)
    }

    pub(super) fn bytes<T: Element>(&self, place: Global<T>, count: usize) -> Result<&[u8], RankError> {
        let range = self.range(place, count)?;
        Ok(self.parts.get(place.rank() as usize).map_or(&[], |part| &part.all()[range]))
    }

    pub(super) fn bytes_mut<T: Element>(&mut self, place: Global<T>, count: usize) -> Result<&mut [u8], RankError> {
        let range = self.range(place, count)?;
        Ok(self.parts.get_mut(place.rank() as usize).map_or(&mut [], |part| &mut part.all_mut()[range]))
    }

    /// A rank writes to another within an operation.
    pub(super) fn post(&mut self, number: u64, from: u32, to: u32, letter: Bytes) {
        self.mail.insert((number, from, to), letter);
    }

    pub(super) fn collect(&mut self, number: u64, from: u32, to: u32) -> Option<Bytes> {
        self.mail.remove(&(number, from, to))
    }
}
