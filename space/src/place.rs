//! Where something lies: global pointers, and arrays that are spread over all ranks.

use std::marker::PhantomData;

use crate::Element;

/// A global pointer: a rank, and a place in that rank's part of the address space.
///
/// Arithmetic stays within the rank's part, as that of Split-C's global pointers does. Who wants the same place of
/// another rank says [`Global::on`].
pub struct Global<T> {
    rank: u32,
    offset: u64,
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for Global<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Global<T> {}

impl<T> PartialEq for Global<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.rank, self.offset) == (other.rank, other.offset)
    }
}

impl<T> Eq for Global<T> {}

impl<T> std::fmt::Debug for Global<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{:#x}", self.rank, self.offset)
    }
}

impl<T: Element> Global<T> {
    /// The pointer to the byte `offset` of a rank's part. Whether anything lies there is found out when the pointer is
    /// used.
    #[must_use]
    pub const fn new(rank: u32, offset: u64) -> Self {
        Self { rank, offset, kind: PhantomData }
    }

    /// Whose part it points into.
    #[must_use]
    pub const fn rank(self) -> u32 {
        self.rank
    }

    /// Bytes from the beginning of that part.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// `count` elements further on, of the same rank.
    #[must_use]
    pub const fn at(self, count: usize) -> Self {
        Self::new(self.rank, self.offset.saturating_add((count as u64).saturating_mul(T::BYTES as u64)))
    }

    /// The same place in another rank's part.
    #[must_use]
    pub const fn on(self, rank: u32) -> Self {
        Self::new(rank, self.offset)
    }
}

/// An array of `len` elements that is dealt out to all ranks in blocks: block 0 to rank 0, block 1 to rank 1, and so on
/// and round again (Split-C: `A[n]::[block]`). Made by [`Space::spread`](crate::Space::spread).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread<T> {
    base: Global<T>,
    ranks: u32,
    len: usize,
    block: usize,
}

impl<T: Element> Spread<T> {
    /// An array of `len` elements for so many ranks, whose parts begin where `base` points to.
    ///
    /// # Panics
    /// If `ranks` or `block` is 0.
    #[must_use]
    pub const fn lay_out(base: Global<T>, ranks: u32, len: usize, block: usize) -> Self {
        assert!(ranks > 0 && block > 0, "there is at least one rank, and a block has at least one element");
        Self { base, ranks, len, block }
    }

    /// Elements of each rank's part, those included that lie beyond the end of the array; more than any memory holds if
    /// they cannot be counted.
    ///
    /// # Panics
    /// If `ranks` or `block` is 0.
    #[must_use]
    pub fn part(ranks: u32, len: usize, block: usize) -> usize {
        len.div_ceil(block).div_ceil(ranks as usize).saturating_mul(block)
    }

    /// Elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Elements of a block.
    #[must_use]
    pub const fn block(&self) -> usize {
        self.block
    }

    /// Where element `index` lies. The elements of a block lie one behind the other, and so do the blocks of a rank.
    ///
    /// # Panics
    /// If there is no such element.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "less than the number of ranks")]
    pub fn place(&self, index: usize) -> Global<T> {
        assert!(index < self.len, "element {index} of an array of {}", self.len);
        let (block, within) = (index / self.block, index % self.block);
        let ranks = self.ranks as usize;
        self.base.on((block % ranks) as u32).at(block / ranks * self.block + within)
    }

    /// Which elements lie at a rank, in the order of their places there, as runs: the first index and how many.
    pub fn runs(&self, rank: u32) -> impl Iterator<Item = (usize, usize)> + use<T> {
        let Self { ranks, len, block, .. } = *self;
        let first = (rank as usize).saturating_mul(block);
        (first..len).step_by(block.saturating_mul(ranks as usize).max(1)).map(move |at| (at, block.min(len - at)))
    }

    /// The first place of a rank's part of the array.
    #[must_use]
    pub const fn part_of(&self, rank: u32) -> Global<T> {
        self.base.on(rank)
    }

    /// How many elements lie at a rank.
    #[must_use]
    pub fn count(&self, rank: u32) -> usize {
        self.runs(rank).map(|(_, count)| count).sum()
    }
}
