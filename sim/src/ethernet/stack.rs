//! The five ways through a host that the papers' bars compare, as costs of the processor.
//!
//! | way | sending side | receiving side |
//! |---|---|---|
//! | standard | copy out of the process into frames of 1460 bytes | frames go up one by one; copy into the process |
//! | copying driver | pages change hands; the driver copies them into frames | the driver copies frames into pages |
//! | copying socket | copy out of the process into pages | frames land in pages by guess; copy into the process |
//! | remapping | pages change hands | frames land in pages by guess; pages change hands |
//! | fbufs | pages are shared | frames land in pages by guess; pages are shared |
//!
//! All but the standard way cut a page of 4096 bytes into three IP fragments in the driver; the stack sees one segment.
//! A standard receiver lets its stack put fragments together, which takes a copy.
//!
//! The paper's bars are grouped by copies: two, one, none. Linux 2.2 copies a frame of TCP once in each host, between
//! process and kernel, and that is what the standard way does here.

use super::cpu::{Cost, Part};
use super::frame::{self, Length, MSS, PAGE};
use super::parts::Parts;

/// A way through a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// Linux 2.2 as it was.
    Standard,
    /// Page remapping at the socket, a driver that copies.
    CopyingDriver,
    /// A socket that copies, Speculative Defragmentation in the driver.
    CopyingSocket,
    /// Page remapping at the socket, Speculative Defragmentation in the driver.
    Remapping,
    /// Fbufs between process and kernel, Speculative Defragmentation in the driver.
    Fbufs,
}

impl Method {
    /// All of them, in the order of the papers' bars.
    pub(crate) const ALL: [Self; 5] =
        [Self::Standard, Self::CopyingSocket, Self::CopyingDriver, Self::Remapping, Self::Fbufs];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::CopyingDriver => "remapping, copying driver",
            Self::CopyingSocket => "speculative defragmentation, copying socket",
            Self::Remapping => "speculative defragmentation, remapping",
            Self::Fbufs => "speculative defragmentation, fbufs",
        }
    }

    /// Whether receive descriptors point into pages, by guess.
    pub(crate) const fn guesses(self) -> bool {
        matches!(self, Self::CopyingSocket | Self::Remapping | Self::Fbufs)
    }

    /// Whether whole pages travel as one segment in three fragments.
    pub(crate) const fn sends_pages(self) -> bool {
        !matches!(self, Self::Standard)
    }

    /// Bytes of the next segment of a message with `left` bytes to go.
    pub(crate) const fn segment(self, left: u64) -> u64 {
        if self.sends_pages() && left >= PAGE {
            PAGE
        } else if left < MSS {
            left
        } else {
            MSS
        }
    }

    /// Descriptors of each frame that is sent: a header in one buffer and a payload in another, or both in one.
    pub(crate) const fn send_descriptors(self) -> u64 {
        if self.guesses() { 2 } else { 1 }
    }

    /// The sending process's work for one segment of TCP.
    pub(crate) fn send(self, parts: &Parts, bytes: u64) -> Cost {
        let frames = frame::fragments(frame::TCP, bytes).len() as u64;
        let passing = match self {
            Self::Standard | Self::CopyingSocket => Cost::of(Part::Copy, parts.copy(bytes, false)),
            Self::CopyingDriver => {
                Cost::of(Part::Copy, parts.copy(bytes, false)).and(Part::Remap, parts.remap * whole_pages(bytes))
            }
            Self::Remapping => Cost::of(Part::Remap, parts.remap * whole_pages(bytes)),
            Self::Fbufs => Cost::default(),
        };
        passing.and(Part::Stack, parts.stack).and(Part::Driver, parts.driver * (frames * self.send_descriptors()))
    }

    /// The receiving process's work for one segment, which the processor has copied before if it is `cached`.
    pub(crate) fn read(self, parts: &Parts, bytes: u64, cached: bool) -> Cost {
        match self {
            Self::Remapping | Self::CopyingDriver if bytes == PAGE => Cost::of(Part::Remap, parts.remap),
            Self::Fbufs if bytes == PAGE => Cost::default(),
            _ => Cost::of(Part::Copy, parts.copy(bytes, cached)),
        }
    }

    /// The driver's work for a frame in an ordinary buffer. A copying driver copies fragments of pages into pages.
    pub(crate) fn take(self, parts: &Parts, length: Length, of_page: bool) -> Cost {
        let driver = Cost::of(Part::Driver, parts.driver);
        if self.joins(of_page) { driver.and(Part::Copy, parts.copy(length.payload, false)) } else { driver }
    }

    /// Whether the driver puts the fragments of a page together, so that the stack sees one segment.
    pub(crate) const fn joins(self, of_page: bool) -> bool {
        of_page && matches!(self, Self::CopyingDriver)
    }
}

/// Pages that change hands; what is less than a page is copied into the frame's header buffer.
const fn whole_pages(bytes: u64) -> u64 {
    bytes / PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_into_pages_and_a_tail() {
        let cut = |method: Method, mut left: u64| {
            let mut segments = Vec::new();
            while left > 0 {
                segments.push(method.segment(left));
                left -= method.segment(left);
            }
            segments
        };
        assert_eq!(cut(Method::Fbufs, 10_000), [4096, 4096, 1460, 348]);
        assert_eq!(cut(Method::Standard, 4096), [1460, 1460, 1176]);
    }
}
