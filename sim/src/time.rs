//! Simulated time, in whole picoseconds, and rates that turn bytes into time without rounding on the way.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};

use cutthrough_engine::time::Instant;

/// Picoseconds in a second.
const PER_SECOND: u128 = 1_000_000_000_000;

/// A point in simulated time: picoseconds since the start of the run. The range is 213 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A length of simulated time in picoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

/// Bytes per second; never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Time {
    /// The start of the run.
    pub const START: Self = Self(0);

    /// The point `ps` picoseconds after the start.
    #[must_use]
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Picoseconds since the start.
    #[must_use]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Microseconds since the start.
    #[must_use]
    pub fn as_us(self) -> f64 {
        Span(self.0).as_us()
    }

    /// The same point as the engine knows it: whole nanoseconds, rounded down.
    #[must_use]
    pub const fn instant(self) -> Instant {
        Instant::from_nanos(self.0 / 1000)
    }

    /// Time from `earlier` to this point; nothing if `earlier` is in fact later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// `ps` picoseconds.
    #[must_use]
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// `ns` nanoseconds.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns * 1000)
    }

    /// Picoseconds.
    #[must_use]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Microseconds.
    #[must_use]
    pub fn as_us(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Seconds.
    #[must_use]
    pub fn as_s(self) -> f64 {
        self.0 as f64 / 1e12
    }

    /// The longer of the two.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Ord::max(self, other)
    }
}

impl Rate {
    /// `bytes` bytes in each second; `None` if that is 0.
    #[must_use]
    pub const fn from_bytes_per_s(bytes: u64) -> Option<Self> {
        if bytes == 0 { None } else { Some(Self(bytes)) }
    }

    /// Bytes per second.
    #[must_use]
    pub const fn bytes_per_s(self) -> u64 {
        self.0
    }

    /// Time that `bytes` bytes take, rounded up to the next picosecond.
    #[must_use]
    pub fn span(self, bytes: u64) -> Span {
        let ps = (u128::from(bytes) * PER_SECOND).div_ceil(u128::from(self.0));
        Span(u64::try_from(ps).unwrap_or(u64::MAX))
    }

    /// Whole bytes that pass within `span`.
    #[must_use]
    pub fn bytes(self, span: Span) -> u64 {
        let bytes = u128::from(span.0) * u128::from(self.0) / PER_SECOND;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl Add<Span> for Time {
    type Output = Self;

    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub for Time {
    type Output = Span;

    /// Saturates at no time.
    fn sub(self, earlier: Self) -> Span {
        self.saturating_since(earlier)
    }
}

impl Add for Span {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Self;

    /// Saturates at no time.
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Span {
    type Output = Self;

    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl std::iter::Sum for Span {
    fn sum<I: Iterator<Item = Self>>(spans: I) -> Self {
        spans.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} us", self.as_us())
    }
}

#[cfg(test)]
mod tests {
    use super::{Rate, Span, Time};

    #[test]
    fn a_rate_gives_the_time_of_bytes_and_the_bytes_of_time() {
        let rate = Rate::from_bytes_per_s(128_000_000).unwrap();
        assert_eq!(rate.span(8192), Span::from_ns(64_000));
        assert_eq!(rate.bytes(Span::from_ns(64_000)), 8192);
        assert_eq!(rate.bytes(Span::from_ps(Span::from_ns(64_000).as_ps() - 1)), 8191);
        for bytes in [1, 3, 53, 1460, 8192, 1 << 20] {
            let odd = Rate::from_bytes_per_s(15_200_001).unwrap();
            assert_eq!(odd.bytes(odd.span(bytes)), bytes);
        }
    }

    #[test]
    fn the_engine_sees_whole_nanoseconds_rounded_down() {
        assert_eq!(Time::from_ps(5_120).instant().as_nanos(), 5);
        assert_eq!((Time::START + Span::from_ns(7)) - Time::START, Span::from_ps(7000));
    }
}
