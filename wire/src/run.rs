//! A run of pages, packed into one word of a ring (rule R1).

/// Pages that lie one behind the other, with a number that the owner gave to this use of them.
///
/// ```text
///  bits 0..28 first page | 28..48 number of pages | 48..64 number of this use
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Index of the first page.
    pub first: u32,
    /// Number of pages.
    pub count: u32,
    /// The owner's number for this use: the place in its table of posted runs.
    pub id: u16,
}

/// Most pages that a pool may have, so that every index fits into a run.
pub const PAGES_MAX: u32 = 1 << 20;

impl Run {
    /// Packs the run; `first` and `count` are cut to 28 and 20 bits.
    #[must_use]
    #[inline]
    pub const fn to_word(self) -> u64 {
        (self.first as u64 & 0x0fff_ffff) | (self.count as u64 & 0xf_ffff) << 28 | (self.id as u64) << 48
    }

    /// Takes a word apart. Every word is some run; whether it is one that exists, the engine checks.
    #[must_use]
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        let [.., id_low, id_high] = word.to_le_bytes();
        Self {
            first: low32(word & 0x0fff_ffff),
            count: low32(word >> 28 & 0xf_ffff),
            id: u16::from_le_bytes([id_low, id_high]),
        }
    }
}

/// The low half of a word.
const fn low32(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_survives_the_word() {
        for run in [
            Run { first: 0, count: 0, id: 0 },
            Run { first: PAGES_MAX - 1, count: PAGES_MAX - 1, id: u16::MAX },
            Run { first: 77, count: 1024, id: 3 },
        ] {
            assert_eq!(Run::from_word(run.to_word()), run);
        }
    }
}
