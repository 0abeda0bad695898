//! Numbers that look random, and come again with the same seed.

/// The generator SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), from this state on.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A number below `end`.
    ///
    /// # Panics
    /// If that is 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }
}
