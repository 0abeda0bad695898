//! Runs of bytes of a region.

/// Bytes of a run in a list.
pub(super) const EXTENT_BYTES: usize = 16;

/// A run of bytes of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins.
    pub offset: u64,
    /// Bytes of it.
    pub len: u32,
}

impl Extent {
    /// `count` runs of `len` bytes, each `stride` bytes after the one before.
    pub fn strided(offset: u64, len: u32, stride: u64, count: u32) -> impl Iterator<Item = Self> {
        (0..u64::from(count)).map(move |i| Self { offset: offset.saturating_add(i.saturating_mul(stride)), len })
    }

    pub(super) fn to_bytes(self) -> [u8; EXTENT_BYTES] {
        let mut bytes = [0; EXTENT_BYTES];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }
}

/// The runs that a list names. Bytes beyond the last whole one are ignored.
pub(super) fn decode(bytes: &[u8]) -> Vec<Extent> {
    let (whole, _) = bytes.as_chunks::<EXTENT_BYTES>();
    let extent = |[a, b, c, d, e, f, g, h, i, j, k, l, ..]: &[u8; EXTENT_BYTES]| Extent {
        offset: u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]),
        len: u32::from_le_bytes([*i, *j, *k, *l]),
    };
    whole.iter().map(extent).collect()
}

/// Bytes of all runs together, if that is a number.
pub(super) fn total(list: &[Extent]) -> Option<usize> {
    list.iter().try_fold(0_usize, |sum, extent| sum.checked_add(extent.len as usize))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lists_survive(list in proptest::collection::vec((any::<u64>(), any::<u32>()), 0..20), rest in 0_usize..16) {
            let list: Vec<Extent> = list.into_iter().map(|(offset, len)| Extent { offset, len }).collect();
            let mut bytes: Vec<u8> = list.iter().flat_map(|extent| extent.to_bytes()).collect();
            bytes.extend(std::iter::repeat_n(9, rest));
            prop_assert_eq!(decode(&bytes), list);
        }
    }
}
