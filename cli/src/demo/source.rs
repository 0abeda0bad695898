//! Where the pages of a file lie in it.

use std::ops::Range;

/// Bytes of a page; the last page of a file may have fewer.
pub const PAGE: usize = 4096;

/// How many pages so many bytes have.
#[must_use]
pub fn pages(bytes: usize) -> usize {
    bytes.div_ceil(PAGE)
}

/// Where the `index`th piece of `piece` bytes lies in `bytes` bytes; the last one is shorter if there are not enough.
#[must_use]
pub fn piece(index: usize, piece: usize, bytes: usize) -> Range<usize> {
    let from = (index * piece).min(bytes);
    from..(from + piece).min(bytes)
}

/// Where a page lies in `bytes` bytes.
#[must_use]
pub fn page(index: usize, bytes: usize) -> Range<usize> {
    piece(index, PAGE, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_page_has_what_is_left() {
        assert_eq!(pages(1), 1);
        assert_eq!(pages(PAGE), 1);
        assert_eq!(pages(PAGE + 1), 2);
        assert_eq!(page(0, 10_000), 0..4096);
        assert_eq!(page(2, 10_000), 8192..10_000);
        assert_eq!(page(3, 10_000), 10_000..10_000);
    }
}
