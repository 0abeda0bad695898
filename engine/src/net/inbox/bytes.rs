//! What a frame brings of a payload, and where it lies until it is taken in.

use cutthrough_wire::frame::{HEADER_BYTES, low};

use super::super::spans::Spans;

/// Where the bytes of a frame lie before they are taken in.
pub(in crate::net) enum Bytes<'a> {
    /// Where they belong already: so many, which came in so many frames, of which all but the last carry so many each.
    There { len: u32, frames: u32, full: u32 },
    /// Here.
    Here(&'a [u8]),
    /// Here, so many bytes in parts of `full` bytes, each of them a header's length into `segment` bytes.
    Apart { frames: &'a [u8], segment: usize, len: u32, full: u32 },
}

impl Bytes<'_> {
    pub(super) const fn len(&self) -> u32 {
        match self {
            Self::There { len, .. } | Self::Apart { len, .. } => *len,
            #[allow(clippy::cast_possible_truncation, reason = "a frame has at most 64 KiB")]
            Self::Here(bytes) => bytes.len() as u32,
        }
    }

    /// In how many frames they came, and what all of those but the last carry.
    pub(super) const fn frames(&self) -> (u32, u32) {
        match self {
            Self::There { frames, full, .. } => (*frames, *full),
            Self::Here(_) => (1, self.len()),
            Self::Apart { len, full, .. } => (len.div_ceil(*full), *full),
        }
    }

    /// The parts that lie here, and how far into the whole each begins.
    fn parts(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let (frames, segment, len, full) = match self {
            Self::There { .. } => (&[][..], 1, 0, 1),
            Self::Here(bytes) => (*bytes, bytes.len().max(1), bytes.len(), bytes.len().max(1)),
            Self::Apart { frames, segment, len, full } => (*frames, *segment, *len as usize, *full as usize),
        };
        let head = if matches!(self, Self::Apart { .. }) { HEADER_BYTES } else { 0 };
        let parts = frames.chunks(segment).zip((0..len).step_by(full));
        parts.map(move |(frame, begin)| (begin, &frame[head..head + full.min(len - begin)]))
    }

    /// Lays the parts that lie here where they belong in a payload, `offset` bytes into it: but for bytes that are
    /// there already. Who says others in their place lies, and those have been shown, perhaps.
    #[inline]
    pub(super) fn lay(&self, offset: u32, have: &Spans, mut lay: impl FnMut(usize, &[u8])) {
        let begin = offset as usize;
        if !have.has_some(offset, offset.saturating_add(self.len())) {
            return self.parts().for_each(|(at, part)| lay(begin + at, part));
        }
        for (at, part) in self.parts() {
            let (first, last) = (begin + at, begin + at + part.len());
            let (mut gap, mut until) = have.gap_from(low(first as u64));
            while (gap as usize) < last {
                let end = until.map_or(last, |until| last.min(until as usize));
                lay(gap as usize, &part[gap as usize - first..end - first]);
                (gap, until) = have.gap_from(low(end as u64));
                if end == last {
                    break;
                }
            }
        }
    }
}
