//! How long an operation has stood still.

use std::time::Duration;

use cutthrough_engine::time::Instant;

/// Between two looks no more of the deadline is over than one of so many parts, however long that was.
const PARTS: u32 = 4;

/// One operation, from its last progress on. Time in which this process was stopped counts for little: its peer may
/// have been stopped with it, or what has come meanwhile waits to be looked at.
#[derive(Debug)]
pub struct Stall {
    deadline: Duration,
    moved: Instant,
    looked: Instant,
    stood: Duration,
}

impl Stall {
    /// It has moved at this time.
    pub(crate) const fn new(deadline: Duration, moved: Instant) -> Self {
        Self { deadline, moved, looked: moved, stood: Duration::ZERO }
    }

    /// When it has moved last.
    pub(crate) const fn moved(&self) -> Instant {
        self.moved
    }

    /// It has moved at this time, too.
    pub fn moves(&mut self, moved: Instant) {
        if moved > self.moved {
            *self = Self::new(self.deadline, moved);
        }
    }

    /// For how long it may be waited for before the next look; `None` if it has stood still for all of the deadline.
    pub(crate) fn left(&mut self, now: Instant) -> Option<Duration> {
        let part = self.deadline / PARTS;
        let passed = Duration::from_nanos(now.saturating_since(self.looked));
        self.stood = self.stood.saturating_add(passed.min(part));
        self.looked = self.looked.max(now);
        let left = self.deadline.checked_sub(self.stood).filter(|left| !left.is_zero())?;
        // A part of a few nanoseconds may be none.
        Some(left.min(part.max(Duration::from_nanos(1))))
    }

    /// By when it is to be looked at again; `None` if it has stood still for all of the deadline.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Instant> {
        let left = self.left(now)?;
        Some(now.after(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(8);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn what_stands_still_ends_by_its_deadline() {
        let mut stall = Stall::new(DEADLINE, at(100));
        assert_eq!(stall.left(at(101)), Some(DEADLINE / PARTS));
        for second in 102..107 {
            assert!(stall.left(at(second)).is_some(), "after {second}");
        }
        assert_eq!(stall.left(at(107)), Some(Duration::from_secs(1)));
        assert_eq!(stall.left(at(108)), None);
    }

    #[test]
    fn what_moves_has_all_of_it_again() {
        let mut stall = Stall::new(DEADLINE, at(100));
        (101..108).for_each(|second| assert!(stall.left(at(second)).is_some()));
        stall.moves(at(99));
        assert_eq!(stall.moved(), at(100));
        stall.moves(at(107));
        (108..115).for_each(|second| assert!(stall.left(at(second)).is_some()));
        assert_eq!(stall.left(at(115)), None);
    }

    #[test]
    fn who_was_stopped_looks_again() {
        let mut stall = Stall::new(DEADLINE, at(100));
        assert_eq!(stall.left(at(1000)), Some(DEADLINE / PARTS));
        assert_eq!(stall.left(at(1001)), Some(DEADLINE / PARTS));
        for second in [1003, 1005] {
            assert!(stall.left(at(second)).is_some());
        }
        assert_eq!(stall.left(at(1006)), None);
    }

    #[test]
    fn a_deadline_of_nothing_is_over_at_once() {
        assert_eq!(Stall::new(Duration::ZERO, at(1)).left(at(1)), None);
        let mut short = Stall::new(Duration::from_nanos(3), at(1));
        assert!(short.left(at(1)).is_some());
    }
}
