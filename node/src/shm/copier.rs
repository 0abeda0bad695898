//! Copies by whichever way this processor is quicker at, here and now.

use std::num::NonZeroU64;

use cutthrough_engine::rivals::{Go, Rival, Rivals};
use cutthrough_segment::copy::Copying;

use crate::clock;

/// A way of copying is taken if it saves an eighth.
const CLEARLY: NonZeroU64 = NonZeroU64::new(8).unwrap();

/// One kind of copies: from the same kind of memory to the same.
#[derive(Debug)]
pub(super) struct Copier {
    least: usize,
    rivals: Rivals,
}

impl Copier {
    /// Copies to where another core reads. Below 1 KiB the ways do not differ, and to choose would take as long as to
    /// copy.
    pub(super) fn there() -> Self {
        Self { least: 1 << 10, rivals: Rivals::new(CLEARLY) }
    }

    /// Copies from where another core has written. What a string instruction has written does not lie as close to this
    /// core as what stores have, which costs whoever uses it next more than it saves here unless it is much.
    pub(super) fn here() -> Self {
        Self { least: 8 << 10, rivals: Rivals::new(CLEARLY) }
    }

    /// Makes a copy of `bytes` bytes.
    #[inline]
    pub(super) fn copy(&mut self, bytes: usize, copy: impl FnOnce(Copying)) {
        if bytes < self.least {
            return copy(Copying::Pieces);
        }
        let Go { rival, timed } = self.rivals.next(bytes as u64);
        if !timed {
            return copy(way(rival));
        }
        let since = clock::now();
        copy(way(rival));
        self.rivals.took(bytes as u64, rival, clock::now().saturating_since(since));
    }

    /// The way that most copies of `bytes` bytes are made.
    #[inline]
    pub(super) fn usual(&self, bytes: usize) -> Copying {
        if bytes < self.least { Copying::Pieces } else { way(self.rivals.quicker(bytes as u64)) }
    }
}

const fn way(rival: Rival) -> Copying {
    match rival {
        Rival::First => Copying::Pieces,
        Rival::Second => Copying::String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each way was taken in so many copies.
    fn taken(copier: &mut Copier, bytes: usize, copies: usize) -> [usize; 2] {
        let mut taken = [0, 0];
        for _ in 0..copies {
            copier.copy(bytes, |copying| taken[usize::from(copying == Copying::String)] += 1);
        }
        taken
    }

    #[test]
    fn short_copies_go_by_pieces_and_of_others_both_ways_are_tried() {
        for mut copier in [Copier::there(), Copier::here()] {
            let least = copier.least;
            assert_eq!(taken(&mut copier, least - 1, 1000), [1000, 0]);
            assert_eq!(copier.usual(least - 1), Copying::Pieces);
            let [pieces, string] = taken(&mut copier, least, 1000);
            assert!(pieces > 0 && string > 0 && pieces + string == 1000, "{pieces} and {string}");
        }
    }
}
