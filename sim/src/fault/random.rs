//! Chance, from a seed.

/// Numbers that look random: the generator SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number from 0 to `end - 1`; 0 if `end` is 0.
    pub(super) const fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.next() % end }
    }

    /// A number from `least` to `most`.
    pub(super) const fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// An index into something of length `len`.
    #[allow(clippy::cast_possible_truncation, reason = "below a length")]
    pub(super) const fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True so often in 1,000 times.
    pub(super) const fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// One of these.
    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        core::array::from_fn(|_| self.next().to_le_bytes()[0])
    }
}

/// Spreads a number over all 64 bits.
pub(super) const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Adds bytes to a hash.
pub(super) fn hash(before: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let word = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let mut hash = word(before, bytes.len() as u64);
    for bytes in words {
        hash = word(hash, u64::from_le_bytes(*bytes));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(word(hash, u64::from_le_bytes(last)))
}
