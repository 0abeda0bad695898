//! From alleged to checked: the one place where a descriptor that the other side wrote becomes something to act upon.
//!
//! U-Net's rule, on plain memory: a descriptor is copied out first (so that it cannot change between the look and the
//! use), then every field is held against what this side knows itself. What comes out names memory that exists, in
//! the right place, of the right size. What does not is a [`Breach`], which closes that channel alone and is counted by
//! its reason (design contract 2).

use cutthrough_wire::run::Run;
use cutthrough_wire::slot::{Header, Kind, Lap, Malformed};

use crate::count::Counter;

/// Bytes of the shortest staging ring, and so of the shortest lap.
const SHORTEST_RING: u64 = 64 << 10;

/// Why a channel is closed: what the other side wrote cannot be true (rules P1 to P6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// A ring's counter ran backwards, or further than the ring is long.
    #[error("an impossible ring counter")]
    Index,
    /// A kind without meaning, or fields that contradict the kind.
    #[error("a malformed descriptor")]
    Descriptor,
    /// A control message or payload longer than allowed, or longer than its pages.
    #[error("an impossible length")]
    Length,
    /// Pages that do not exist, or that were not given.
    #[error("pages that were not given")]
    Page,
    /// A returned lend that is not lent, or more lends than there are pages.
    #[error("a lend or a return of pages that cannot be")]
    Lend,
    /// A progress counter that ran backwards, or beyond the staging ring.
    #[error("impossible progress")]
    Progress,
}

impl Breach {
    /// All of them, each at its own number.
    pub const ALL: [Self; 6] = [Self::Index, Self::Descriptor, Self::Length, Self::Page, Self::Lend, Self::Progress];

    /// The counter of this reason.
    #[must_use]
    pub const fn counter(self) -> Counter {
        match self {
            Self::Index => Counter::BreachIndex,
            Self::Descriptor => Counter::BreachDescriptor,
            Self::Length => Counter::BreachLength,
            Self::Page | Self::Lend => Counter::BreachPage,
            Self::Progress => Counter::BreachProgress,
        }
    }
}

/// Checks the header of a message: form, and that the fields fit the kind.
///
/// # Errors
/// [`Breach::Descriptor`] or [`Breach::Length`].
#[inline]
pub fn header(words: [u64; 3]) -> Result<Header, Breach> {
    let header = Header::from_words(words).map_err(|malformed| match malformed {
        Malformed::Kind => Breach::Descriptor,
        Malformed::ControlLength | Malformed::PayloadLength => Breach::Length,
    })?;
    let fits = match header.kind {
        Kind::Control => header.payload_len == 0 && header.runs == 0,
        Kind::Reference | Kind::Put | Kind::GetToken => header.runs > 0,
        Kind::Share => header.runs == 1,
        Kind::PutToken | Kind::Dropped => header.runs == 0,
        // The lap, which is held against the ring by [`lap`].
        Kind::Staged | Kind::StagedToken => true,
    };
    if fits { Ok(header) } else { Err(Breach::Descriptor) }
}

/// Checks that a run names pages that exist in a pool of `pages` pages.
///
/// # Errors
/// [`Breach::Page`], also for a run of no pages.
#[inline]
pub fn run(run: Run, pages: u32) -> Result<Run, Breach> {
    let end = u64::from(run.first) + u64::from(run.count);
    if run.count > 0 && end <= u64::from(pages) { Ok(run) } else { Err(Breach::Page) }
}

/// Checks that `pages` pages hold a payload of `len` bytes.
///
/// # Errors
/// [`Breach::Length`].
#[inline]
pub fn covered(len: u32, pages: u64, page_bytes: u32) -> Result<(), Breach> {
    if pages * u64::from(page_bytes) >= u64::from(len) { Ok(()) } else { Err(Breach::Length) }
}

/// Checks the lap that a staged payload has: without a length it is the whole ring, else it is as long as the shortest
/// ring at least, and no longer than this one.
///
/// # Errors
/// [`Breach::Descriptor`].
#[inline]
pub fn lap(word: u16, ring_bytes: u64) -> Result<Lap, Breach> {
    let evict = word & Lap::EVICT != 0;
    let power = word & !Lap::EVICT;
    let bytes = if power == 0 { ring_bytes } else { 1_u64.checked_shl(u32::from(power)).unwrap_or(0) };
    if (SHORTEST_RING..=ring_bytes).contains(&bytes) { Ok(Lap { bytes, evict }) } else { Err(Breach::Descriptor) }
}

/// Checks how far the other side says it has filled the staging ring: not less than before, and not more than the ring
/// holds beyond what was drained.
///
/// # Errors
/// [`Breach::Progress`].
#[inline]
pub fn staged(before: u64, alleged: u64, drained: u64, ring_bytes: u64) -> Result<u64, Breach> {
    let fresh = alleged.wrapping_sub(before);
    let held = alleged.wrapping_sub(drained);
    if fresh <= ring_bytes && held <= ring_bytes { Ok(alleged) } else { Err(Breach::Progress) }
}

/// Checks how far the other side says it has drained the staging ring: not less than before, and not more than was put
/// in.
///
/// # Errors
/// [`Breach::Progress`].
#[inline]
pub fn drained(before: u64, alleged: u64, staged: u64) -> Result<u64, Breach> {
    if alleged.wrapping_sub(before) <= staged.wrapping_sub(before) { Ok(alleged) } else { Err(Breach::Progress) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(kind: Kind, runs: u16, payload_len: u32) -> [u64; 3] {
        Header { control_len: 8, kind, runs, payload_len, detail: 0, name: 0 }.to_words()
    }

    #[test]
    fn a_control_message_has_no_payload() {
        assert!(header(words(Kind::Control, 0, 0)).is_ok());
        assert_eq!(header(words(Kind::Control, 0, 1)), Err(Breach::Descriptor));
        assert_eq!(header(words(Kind::Control, 1, 0)), Err(Breach::Descriptor));
    }

    #[test]
    fn a_lap_lies_within_its_ring() {
        let ring = 1 << 20;
        assert_eq!(lap(0, ring), Ok(Lap { bytes: ring, evict: false }));
        assert_eq!(lap(Lap::EVICT, ring), Ok(Lap { bytes: ring, evict: true }));
        for bytes in [64 << 10, 128 << 10, ring] {
            for evict in [false, true] {
                assert_eq!(lap(Lap { bytes, evict }.to_word(), ring), Ok(Lap { bytes, evict }));
            }
        }
        for word in [1, 15, 21, 30, 63, 64, 128, 512, 512 | 16, u16::MAX] {
            assert_eq!(lap(word, ring), Err(Breach::Descriptor), "{word}");
            assert_eq!(lap(word | Lap::EVICT, ring), Err(Breach::Descriptor), "{word}, evicted");
        }
    }

    #[test]
    fn payload_in_pages_has_runs() {
        assert!(header(words(Kind::Reference, 1, 9)).is_ok());
        assert_eq!(header(words(Kind::Reference, 0, 9)), Err(Breach::Descriptor));
    }

    #[test]
    fn a_run_stays_within_its_pool() {
        let of = |first, count| run(Run { first, count, id: 0 }, 16);
        assert!(of(0, 16).is_ok() && of(15, 1).is_ok());
        assert_eq!(of(15, 2), Err(Breach::Page));
        assert_eq!(of(16, 1), Err(Breach::Page));
        assert_eq!(of(3, 0), Err(Breach::Page));
        assert_eq!(of(u32::MAX, u32::MAX), Err(Breach::Page));
    }

    #[test]
    fn progress_is_checked_at_every_edge() {
        assert_eq!(staged(10, 74, 10, 64), Ok(74));
        assert_eq!(staged(10, 75, 10, 64), Err(Breach::Progress));
        assert_eq!(staged(10, 9, 5, 64), Err(Breach::Progress));
        assert_eq!(staged(u64::MAX, 3, u64::MAX, 64), Ok(3));
        assert_eq!(drained(5, 9, 9), Ok(9));
        assert_eq!(drained(5, 10, 9), Err(Breach::Progress));
        assert_eq!(drained(5, 4, 9), Err(Breach::Progress));
    }
}
