//! Time as the engine knows it: nanoseconds that somebody else has read.
//!
//! The engine never asks for the time (`docs/architecture.md`, "same code"): a node passes what its clock says, a
//! simulator what its event heap says, rounded down from picoseconds.

use core::ops::Add;
use core::time::Duration;

/// A point in time, in nanoseconds since an origin that the caller chooses and keeps.
///
/// Instants of different origins must not be mixed. The range is 584 years; every operation saturates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The instant `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to this instant; 0 if `earlier` is in fact later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The instant `nanos` nanoseconds after this one, or the last representable one.
    #[must_use]
    pub const fn after(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}

/// The instant so much later, or the last representable one.
impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        self.after(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::Instant;

    #[test]
    fn differences_never_wrap() {
        let early = Instant::from_nanos(10);
        let late = early.after(32);
        assert_eq!(late.as_nanos(), 42);
        assert_eq!(late.saturating_since(early), 32);
        assert_eq!(early.saturating_since(late), 0);
        assert_eq!(late.after(u64::MAX), Instant::from_nanos(u64::MAX));
    }

    #[test]
    fn a_duration_is_added_and_never_wraps() {
        let early = Instant::from_nanos(10);
        assert_eq!(early + Duration::new(1, 5), Instant::from_nanos(1_000_000_015));
        assert_eq!(early + Duration::ZERO, early);
        // Up to the last instant, beyond it by one, and by more nanoseconds than 64 bits have.
        assert_eq!(early + Duration::from_nanos(u64::MAX - 10), Instant::from_nanos(u64::MAX));
        assert_eq!(early + Duration::from_nanos(u64::MAX - 9), Instant::from_nanos(u64::MAX));
        assert_eq!(early + Duration::MAX, Instant::from_nanos(u64::MAX));
    }
}
