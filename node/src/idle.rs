//! What to do with a look that found nothing: look again, let others run, or sleep.
//!
//! Spinning is right while the peer runs on another core, and wrong while it waits for this one. The kernel counts how
//! often a thread has made way for another: as long as that stands still nobody waits for the core, and yields become
//! rarer; if somebody else has run, perhaps the peer, a few looks are enough from then on before the next yield. How
//! long a yield took does not tell that: with a peer that answers within a microsecond it is hardly longer than in
//! vain.
//!
//! But one that took long tells of somebody who has work for the core, and is not waited for here. Beside such a one to
//! spin and to yield is wrong: whoever sleeps is woken at once, whoever has yielded waits for the end of its turn.

use cutthrough_engine::time::Instant;

use crate::clock;
use crate::sys::made_way::made_way;

/// Looks between yields while the core seems to be ours.
const RARE: u32 = 1 << 16;
/// Looks between yields at first.
const FIRST: u32 = 1 << 10;
/// Looks between yields while others want the core.
const OFTEN: u32 = 16;
/// Nanoseconds of a yield that nobody takes who only answers.
const LONG_NS: u64 = 100_000;
/// Most waits without a look after one such yield.
const RESTS: u32 = 1 << 8;

/// Counts looks that found nothing, and says when to yield. A plain function of numbers: the caller yields, and asks
/// the kernel.
#[derive(Debug, Clone)]
pub struct Idle {
    looks: u32,
    interval: u32,
    /// How often this thread had made way when it was last asked.
    made_way: Option<u64>,
    /// Waits to come in which there is no point in looking, and how many there will be after the next long yield.
    rests: u32,
    next: u32,
    /// Whether this is such a wait: then there is no yield either.
    resting: bool,
}

impl Default for Idle {
    fn default() -> Self {
        Self::new()
    }
}

impl Idle {
    /// Nothing is known yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { looks: 0, interval: FIRST, made_way: None, rests: 0, next: 1, resting: false }
    }

    /// Something was found.
    #[inline]
    pub const fn found(&mut self) {
        self.looks = 0;
    }

    /// Nothing was found: whether to yield now.
    #[inline]
    pub const fn look(&mut self) -> bool {
        self.look_often(1)
    }

    /// The same for so many looks.
    #[inline]
    pub const fn look_often(&mut self, looks: u32) -> bool {
        self.looks = self.looks.saturating_add(looks);
        if self.looks < self.interval || self.resting && self.looks < RARE {
            return false;
        }
        (self.looks, self.resting) = (0, false);
        true
    }

    /// Whether whoever waits had better sleep at once. Asked once for each time that it waits. Then looks are followed
    /// by no yield until this is asked again, or there were so many that nobody can have slept.
    #[inline]
    pub const fn rests(&mut self) -> bool {
        self.resting = self.rests > 0;
        self.rests = self.rests.saturating_sub(1);
        self.resting
    }

    /// There was a yield that took so many nanoseconds, and this thread has made way for others so often in its life.
    pub fn yielded(&mut self, made_way: u64, took_ns: u64) {
        let before = self.made_way.replace(made_way);
        let others = before.is_some_and(|before| before != made_way);
        self.interval = if others { OFTEN } else { RARE.min(self.interval * 2) };
        (self.rests, self.next) = match (others, took_ns >= LONG_NS) {
            (true, true) => (self.next, RESTS.min(self.next * 2)),
            // Who works may be there all the same, beside who answers, or may have had enough of the core.
            _ => (0, (self.next - self.next / 4).max(1)),
        };
    }

    /// Lets others run, and learns from it: what time it is then. Where time is simulated, how busy this machine is
    /// changes nothing.
    #[cold]
    pub fn let_others_run(&mut self) -> Instant {
        if clock::is_simulated() {
            self.yielded(0, 0);
            return clock::now();
        }
        let before = clock::now();
        std::thread::yield_now();
        let after = clock::now();
        self.yielded(made_way(), after.saturating_since(before));
        after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks_until_yield(idle: &mut Idle) -> u32 {
        (1..).find(|_| idle.look()).unwrap_or(0)
    }

    #[test]
    fn yields_become_rare_on_a_core_of_our_own() {
        let mut idle = Idle::default();
        let first = looks_until_yield(&mut idle);
        for _ in 0..20 {
            idle.yielded(7, 1000);
        }
        assert_eq!(looks_until_yield(&mut idle), RARE);
        assert!(RARE > 16 * first);
    }

    #[test]
    fn yields_become_frequent_on_a_shared_core_and_rare_again() {
        let mut idle = Idle::default();
        idle.yielded(7, 1000);
        idle.yielded(8, 1000);
        assert_eq!(looks_until_yield(&mut idle), OFTEN);
        idle.yielded(9, 1000);
        assert_eq!(looks_until_yield(&mut idle), OFTEN);
        idle.yielded(9, 1000);
        assert_eq!(looks_until_yield(&mut idle), OFTEN * 2);
    }

    #[test]
    fn beside_somebody_with_work_it_sleeps_at_once_and_looks_now_and_then() {
        let mut idle = Idle::default();
        idle.yielded(7, LONG_NS);
        assert!(!idle.rests(), "nobody else has run");
        for time in 0..10_u64 {
            idle.yielded(8 + time, LONG_NS);
            let rests = (0..).find(|_| !idle.rests()).unwrap_or(0);
            assert_eq!(rests, RESTS.min(1 << time));
        }
        idle.yielded(30, LONG_NS);
        idle.yielded(31, LONG_NS - 1);
        assert!(!idle.rests(), "a peer that answers is looked for");
        idle.yielded(32, LONG_NS);
        assert!(idle.rests());
        idle.yielded(32, LONG_NS);
        assert!(!idle.rests(), "the core is ours again");
    }

    #[test]
    fn who_only_looks_rests_no_more() {
        let mut idle = Idle::default();
        for time in 0..9 {
            idle.yielded(time, LONG_NS);
        }
        assert!(idle.rests());
        assert_eq!(looks_until_yield(&mut idle), RARE);
        assert_eq!(looks_until_yield(&mut idle), OFTEN);
    }
}
