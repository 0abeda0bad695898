//! What to do with a look that found nothing: look again, let others run, or sleep.
//!
//! Spinning is right while the peer runs on another core, and wrong while it waits for this one. Nobody tells which it
//! is, but a yield does: if it comes back at once, nobody was waiting, and yields become rarer; if it takes long,
//! somebody else ran, perhaps the peer, and from then on a few looks are enough before the next yield.

use cutthrough_engine::time::Instant;

/// Looks between yields while the core seems to be ours.
const RARE: u32 = 1 << 16;
/// Looks between yields at first.
const FIRST: u32 = 1 << 10;
/// Looks between yields while others want the core.
const OFTEN: u32 = 16;
/// A yield that takes longer than this, in nanoseconds, has let somebody else run.
const OTHERS_RAN_NS: u64 = 3_000;

/// Counts looks that found nothing, and says when to yield. A plain function of numbers: the caller yields and reads
/// the clock.
#[derive(Debug, Clone)]
pub struct Idle {
    looks: u32,
    interval: u32,
}

impl Default for Idle {
    fn default() -> Self {
        Self { looks: 0, interval: FIRST }
    }
}

impl Idle {
    /// Something was found.
    #[inline]
    pub const fn found(&mut self) {
        self.looks = 0;
    }

    /// Nothing was found: whether to yield now.
    #[inline]
    pub const fn look(&mut self) -> bool {
        self.looks += 1;
        if self.looks < self.interval {
            return false;
        }
        self.looks = 0;
        true
    }

    /// A yield lasted from `before` to `after`.
    pub const fn yielded(&mut self, before: Instant, after: Instant) {
        self.interval = if after.saturating_since(before) > OTHERS_RAN_NS {
            OFTEN
        } else if self.interval >= RARE / 2 {
            RARE
        } else {
            self.interval * 2
        };
    }

    /// Whether the last yield let somebody else run.
    #[must_use]
    pub const fn crowded(&self) -> bool {
        self.interval <= OFTEN
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
            idle.yielded(Instant::from_nanos(0), Instant::from_nanos(500));
        }
        assert!(looks_until_yield(&mut idle) > 16 * first);
        assert!(!idle.crowded());
    }

    #[test]
    fn yields_become_frequent_on_a_shared_core_and_rare_again() {
        let mut idle = Idle::default();
        idle.yielded(Instant::from_nanos(0), Instant::from_nanos(50_000));
        assert!(idle.crowded());
        assert_eq!(looks_until_yield(&mut idle), OFTEN);
        idle.yielded(Instant::from_nanos(0), Instant::from_nanos(500));
        assert_eq!(looks_until_yield(&mut idle), OFTEN * 2);
    }
}
