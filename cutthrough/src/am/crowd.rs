//! Tasks that will run soon, as far as a node knows.
//!
//! A task that looks for the answer to its call keeps its executor from others, whose requests could travel meanwhile
//! and whose answers may be here already. So it looks only where none is known that is about to run. Those are known
//! whose answer has come, and those that have let others run. The last of them looks for all.

use std::sync::atomic::{AtomicU32, Ordering};

/// Polls in a row of tasks that leave all looking to others: one that is known to be about to run may not run soon.
const PASSES: u32 = 32;

/// How many tasks are about to run: a hint, for which no order matters.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    ready: AtomicU32,
    passes: AtomicU32,
}

impl Crowd {
    /// A task is about to run.
    pub(crate) fn comes(&self) {
        self.ready.fetch_add(1, Ordering::Relaxed);
    }

    /// It runs, or is no more.
    pub(crate) fn goes(&self) {
        self.ready.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether there is any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.ready.load(Ordering::Relaxed) > 0
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
}
