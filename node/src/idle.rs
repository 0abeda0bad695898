//! What to do with a look that found nothing: look again, let others run, or sleep.
//!
//! Spinning is right while the peer runs on another core, and wrong while it waits for this one. The kernel counts how
//! often a thread has made way for another: as long as that stands still nobody waits for the core, and yields become
//! rarer; if somebody else has run, perhaps the peer, a few looks are enough from then on before the next yield. How
//! long a yield took does not tell: with a peer that answers within a microsecond it is hardly longer than in vain.

/// Looks between yields while the core seems to be ours.
const RARE: u32 = 1 << 16;
/// Looks between yields at first.
const FIRST: u32 = 1 << 10;
/// Looks between yields while others want the core.
const OFTEN: u32 = 16;

/// Counts looks that found nothing, and says when to yield. A plain function of numbers: the caller yields, and asks
/// the kernel.
#[derive(Debug, Clone)]
pub struct Idle {
    looks: u32,
    interval: u32,
    /// How often this thread had made way when it was last asked.
    made_way: Option<u64>,
}

impl Default for Idle {
    fn default() -> Self {
        Self { looks: 0, interval: FIRST, made_way: None }
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

    /// There was a yield, and this thread has made way for others so often in its life.
    pub fn yielded(&mut self, made_way: u64) {
        let before = self.made_way.replace(made_way);
        self.interval =
            if before.is_some_and(|before| before != made_way) { OFTEN } else { RARE.min(self.interval * 2) };
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
            idle.yielded(7);
        }
        assert_eq!(looks_until_yield(&mut idle), RARE);
        assert!(RARE > 16 * first);
    }

    #[test]
    fn yields_become_frequent_on_a_shared_core_and_rare_again() {
        let mut idle = Idle::default();
        idle.yielded(7);
        idle.yielded(8);
        assert_eq!(looks_until_yield(&mut idle), OFTEN);
        idle.yielded(9);
        assert_eq!(looks_until_yield(&mut idle), OFTEN);
        idle.yielded(9);
        assert_eq!(looks_until_yield(&mut idle), OFTEN * 2);
    }
}
