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

    /// True so often, of 1.
    pub(super) fn chance(&mut self, chance: f64) -> bool {
        // Where there is no chance, no number is used up: so a wire that loses nothing is no matter of chance at all.
        chance > 0.0 && ((self.next() >> 11) as f64) < chance * (1_u64 << 53) as f64
    }
}

/// Spreads a number over all 64 bits.
pub(super) const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
