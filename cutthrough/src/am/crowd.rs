//! Tasks that will run soon, as far as a node knows.
//!
//! A task that looks for the answer to its call keeps its executor from others, whose requests could travel meanwhile
//! and whose answers may be here already. So it looks only where none is known that is about to run. Those are known
//! whose answer has come, and those that have let others run. The last of them looks for all.
//!
//! Some of them may be polled no more, or much later: a future that lost a `select!` and is kept. So those do not count
//! that have been there all the time of late.

use std::sync::atomic::{AtomicU32, Ordering};

/// Polls in a row of tasks that leave all looking to others: one that is known to be about to run may not run soon.
const PASSES: u32 = 32;

/// How many tasks are about to run: a hint, for which no order matters.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    ready: AtomicU32,
    passes: AtomicU32,
    /// The fewest that there were since it was last asked who is stuck.
    fewest: AtomicU32,
    /// So many of them do not run.
    stuck: AtomicU32,
}

impl Crowd {
    /// A task is about to run.
    pub(crate) fn comes(&self) {
        self.ready.fetch_add(1, Ordering::Relaxed);
    }

    /// It runs, or is no more.
    pub(crate) fn goes(&self) {
        let left = self.ready.fetch_sub(1, Ordering::Relaxed).saturating_sub(1);
        for most in [&self.fewest, &self.stuck] {
            if left < most.load(Ordering::Relaxed) {
                most.store(left, Ordering::Relaxed);
            }
        }
    }

    /// Whether there is any, of those that run.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.ready.load(Ordering::Relaxed) > self.stuck.load(Ordering::Relaxed)
    }

    /// A while is over, in which most of those that are about to run have run: those that were there all the time are
    /// stuck.
    pub(crate) fn find_stuck(&self) {
        let ready = self.ready.load(Ordering::Relaxed);
        let fewest = self.fewest.swap(ready, Ordering::Relaxed);
        self.stuck.store(fewest.min(ready), Ordering::Relaxed);
    }

    /// Whether a task leaves it to others to look for what has come: not too often in a row.
    #[inline]
    pub(crate) fn others_look(&self) -> bool {
        if !self.any() {
            return false;
        }
        let leaves = self.passes.fetch_add(1, Ordering::Relaxed) < PASSES;
        if !leaves {
            self.passes.store(0, Ordering::Relaxed);
        }
        leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_looks_however_many_are_about_to_run() {
        let crowd = Crowd::default();
        assert!(!crowd.others_look(), "there is nobody else");
        crowd.comes();
        let looks = |polls: u32| (0..polls).filter(|_| !crowd.others_look()).count();
        assert_eq!(looks(PASSES), 0);
        assert_eq!(looks(10 * (PASSES + 1)), 10);
        crowd.goes();
        assert!(!crowd.any() && !crowd.others_look());
    }

    #[test]
    fn who_does_not_run_does_not_count() {
        let crowd = Crowd::default();
        crowd.comes();
        crowd.find_stuck();
        assert!(crowd.any(), "it may have come just now");
        crowd.find_stuck();
        assert!(!crowd.any());
        // Others come and go beside it, and count.
        for _ in 0..3 {
            crowd.comes();
            assert!(crowd.any());
            crowd.goes();
            assert!(!crowd.any());
            crowd.find_stuck();
        }
        crowd.goes();
        crowd.comes();
        assert!(crowd.any(), "nobody is stuck any more");
    }
}
