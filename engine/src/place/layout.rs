//! How a page travels: the frames that it is cut into.

use alloc::vec::Vec;

/// Most frames that a page may be cut into.
pub const FRAGMENTS_MAX: usize = 64;

/// A run of bytes in a page: the payload of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Part {
    /// First byte, counted from the start of the page.
    pub offset: u32,
    /// Bytes; never 0.
    pub len: u32,
}

/// Why lengths make no layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// There is no fragment.
    #[error("a page travels in at least one frame")]
    None,
    /// There are more than [`FRAGMENTS_MAX`].
    #[error("a page travels in at most {FRAGMENTS_MAX} frames")]
    TooMany,
    /// A fragment has no bytes.
    #[error("a frame carries at least one byte of a page")]
    Empty,
    /// The page would be longer than 4 GiB.
    #[error("a page is shorter than 4 GiB")]
    TooLong,
}

/// The parts of a page in the order in which its frames travel. Sender and receiver must use the same layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    parts: Vec<Part>,
}

impl Layout {
    /// Fragments of these lengths, the first byte of the page first. The adapter must put headers aside: a header that
    /// stood before its payload would overwrite the payload before.
    ///
    /// # Errors
    /// [`LayoutError`], by reason.
    pub fn first_first(lengths: &[u32]) -> Result<Self, LayoutError> {
        if lengths.is_empty() {
            return Err(LayoutError::None);
        }
        if lengths.len() > FRAGMENTS_MAX {
            return Err(LayoutError::TooMany);
        }
        let mut offset = 0u32;
        let mut parts = Vec::with_capacity(lengths.len());
        for &len in lengths {
            if len == 0 {
                return Err(LayoutError::Empty);
            }
            parts.push(Part { offset, len });
            offset = offset.checked_add(len).ok_or(LayoutError::TooLong)?;
        }
        Ok(Self { parts })
    }

    /// Fragments of these lengths (still counted from the start of the page), but the last one travels first. Then an
    /// adapter that cannot put headers aside may let each header land right before its payload: the next frame's
    /// payload covers it. The header must not be longer than the fragment before, and the page needs as many spare
    /// bytes in front.
    ///
    /// # Errors
    /// [`LayoutError`], by reason.
    pub fn last_first(lengths: &[u32]) -> Result<Self, LayoutError> {
        let mut layout = Self::first_first(lengths)?;
        layout.parts.reverse();
        Ok(layout)
    }

    /// The parts, in the order of travel.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_len(&self) -> u32 {
        self.parts.iter().map(|part| part.len).sum()
    }

    /// Which frame of a page carries exactly this part, counted in the order of travel.
    #[must_use]
    pub fn find(&self, part: Part) -> Option<usize> {
        self.parts.iter().position(|&known| known == part)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;

    use super::*;

    #[test]
    fn the_fragments_of_an_ethernet_page_lie_one_behind_the_other() {
        let layout = Layout::first_first(&[1460, 1480, 1156]).unwrap();
        let offsets: vec::Vec<_> = layout.parts().iter().map(|part| part.offset).collect();
        assert_eq!((offsets, layout.page_len()), (vec![0, 1460, 2940], 4096));
        assert_eq!(layout.find(Part { offset: 1460, len: 1480 }), Some(1));
        assert_eq!(layout.find(Part { offset: 1460, len: 1479 }), None);
        let reversed = Layout::last_first(&[1460, 1480, 1156]).unwrap();
        assert_eq!(reversed.parts()[0], Part { offset: 2940, len: 1156 });
        assert_eq!(reversed.page_len(), 4096);
    }

    #[test]
    fn what_is_no_layout_is_refused_by_reason() {
        assert_eq!(Layout::first_first(&[]), Err(LayoutError::None));
        assert_eq!(Layout::last_first(&[5, 0]), Err(LayoutError::Empty));
        assert_eq!(Layout::first_first(&[1; FRAGMENTS_MAX + 1]), Err(LayoutError::TooMany));
        assert_eq!(Layout::first_first(&[u32::MAX, 1]), Err(LayoutError::TooLong));
    }
}
