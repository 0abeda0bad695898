//! How many polls lie between two looks at the clock.
//!
//! A look at the clock costs several polls, so an endpoint that is polled all the time looks rarely. One that is polled
//! now and then looks at each poll, or it would hear late of who has come and gone.

use cutthrough_engine::time::Instant;

/// Most polls of an endpoint between two looks: few enough that one which is suddenly polled slowly notices it soon.
const MOST: u32 = 1 << 7;
/// Nanoseconds that may lie between two looks.
const APART_NS: u64 = 5_000_000;

/// When the next look is due. A plain function of numbers: the caller reads the clock.
#[derive(Debug, Clone)]
pub struct Pace {
    polls: u32,
    /// So many at most.
    most: u32,
    due: u32,
    looked: Instant,
    slept: bool,
}

impl Pace {
    /// Looks at the first poll.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self::with_most(now, MOST)
    }

    /// The same, with at most so many polls between two looks.
    #[must_use]
    pub const fn with_most(now: Instant, most: u32) -> Self {
        Self { polls: 1, most, due: 1, looked: now, slept: false }
    }

    /// Somebody has looked at the clock after the poll of this number, and wants to know soon how slow polls are: the
    /// next one looks.
    pub const fn restart(&mut self, poll: u32, now: Instant) {
        (self.polls, self.looked) = (1, now);
        self.due = poll.wrapping_add(1);
    }

    /// Whether the poll of this number has to look at the clock. One comparison.
    #[inline]
    #[must_use]
    pub const fn due(&self, poll: u32) -> bool {
        poll == self.due
    }

    /// Somebody sleeps between two polls, and the kernel is asked afterwards: this says nothing about the pace.
    pub const fn sleeps(&mut self) {
        self.slept = true;
    }

    /// The poll of this number looks at the clock.
    pub fn look(&mut self, poll: u32, now: Instant) {
        let passed = now.saturating_since(self.looked);
        if self.slept {
            self.slept = false;
        } else if passed > APART_NS {
            // Fewer than there were, so they fit.
            self.polls = u32::try_from(u64::from(self.polls) * APART_NS / passed).map_or(1, |polls| polls.max(1));
        } else if self.polls < self.most {
            self.polls *= 2;
        }
        self.looked = now;
        self.due = poll.wrapping_add(self.polls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls with so much time between two polls: nanoseconds between the last two looks of so many polls.
    fn poll(pace: &mut Pace, at: &mut (u32, u64), polls: u32, each_ns: u64) -> u64 {
        let mut apart = 0;
        let mut last = at.1;
        for _ in 0..polls {
            *at = (at.0.wrapping_add(1), at.1 + each_ns);
            if pace.due(at.0) {
                pace.look(at.0, Instant::from_nanos(at.1));
                (apart, last) = (at.1 - last, at.1);
            }
        }
        apart
    }

    #[test]
    fn looks_are_rare_while_polls_are_quick() {
        let mut pace = Pace::new(Instant::from_nanos(0));
        assert_eq!(poll(&mut pace, &mut (0, 0), 10_000, 20), u64::from(MOST) * 20);
    }

    #[test]
    fn looks_are_never_far_apart_however_slow_the_polls() {
        for each_us in [1, 10, 100, 1000, 3000, 5000, 20_000, 100_000] {
            let each_ns = each_us * 1000;
            let mut pace = Pace::new(Instant::from_nanos(0));
            let apart = poll(&mut pace, &mut (0, 0), 10_000, each_ns);
            assert!(apart <= (2 * APART_NS).max(each_ns), "{each_us} us: {apart} ns");
        }
    }

    #[test]
    fn a_change_of_pace_is_noticed_soon() {
        let (mut pace, mut at) = (Pace::new(Instant::from_nanos(0)), (u32::MAX - 5000, 0));
        pace.look(at.0, Instant::from_nanos(0));
        poll(&mut pace, &mut at, 10_000, 20);
        poll(&mut pace, &mut at, MOST, 5_000_000);
        assert!(poll(&mut pace, &mut at, 10, 5_000_000) <= 2 * APART_NS);
        assert_eq!(poll(&mut pace, &mut at, 10_000, 20), u64::from(MOST) * 20);
    }

    #[test]
    fn a_look_in_between_makes_slow_polls_known_at_once() {
        let (mut pace, mut at) = (Pace::with_most(Instant::from_nanos(0), 32), (0, 0));
        assert_eq!(poll(&mut pace, &mut at, 10_000, 20), 32 * 20);
        pace.restart(at.0, Instant::from_nanos(at.1));
        for _ in 0..10 {
            assert_eq!(poll(&mut pace, &mut at, 1, 10_000_000), 10_000_000, "each poll looks");
        }
    }

    #[test]
    fn sleeping_is_not_polling_slowly() {
        let (mut pace, mut at) = (Pace::new(Instant::from_nanos(0)), (0, 0));
        poll(&mut pace, &mut at, 10_000, 20);
        pace.sleeps();
        at.1 += 1_000_000_000;
        assert_eq!(poll(&mut pace, &mut at, 2 * MOST, 20), u64::from(MOST) * 20);
    }
}
