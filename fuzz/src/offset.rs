//! Where runs of bytes lie in memory that somebody owns, as a peer names it.

use std::ops::Range;

use arbitrary::Arbitrary;

/// A place in the memory, or near its end, or anywhere.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Offset {
    /// In the memory.
    Inside(u16),
    /// So far from its end.
    End(i8),
    /// Anywhere.
    Any(u64),
}

impl Offset {
    /// The place in memory of `bytes` bytes.
    pub(crate) fn of(self, bytes: usize) -> u64 {
        match self {
            Self::Inside(at) => u64::from(at) % bytes as u64,
            Self::End(by) => (bytes as u64).wrapping_add_signed(by.into()),
            Self::Any(at) => at,
        }
    }
}

/// What a run is of, if it lies in memory of `bytes` bytes.
pub(crate) fn range(at: u64, len: usize, bytes: usize) -> Option<Range<usize>> {
    let at = usize::try_from(at).ok()?;
    Some(at..at.checked_add(len)?).filter(|range| range.end <= bytes)
}
