//! When a task whose call is under way, or was answered at once, lets the other tasks of its thread run.
//!
//! A call that is answered while it is polled gives its executor no moment for others: a task that makes one after the
//! other would keep its thread. And a task that looks for its answer keeps those from making their calls that could
//! travel at the same time. But where there are no others, letting them run takes a tenth of a microsecond for nothing.

use std::cell::Cell;
use std::task::Waker;

use cutthrough_node::clock;

use crate::am::Crowd;

/// Calls that are answered by their first poll before one lets others run: each takes a microsecond or less over shared
/// memory, and some thirty at most, over a network.
const TURN: u32 = 8;
/// Most calls that look for their answer at once, after others were let run and there were none.
const MOST_ALONE: u32 = 8;

/// What a thread knows of its tasks.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// Calls that were answered by their first poll since others have run.
    answered: u32,
    /// Polls of calls so far.
    polls: u32,
    /// Calls to come that let no others run, and how many there were after the last one that did so in vain.
    alone: u32,
    before: u32,
}

thread_local! {
    static KNOWN: Cell<Known> = const { Cell::new(Known { answered: 0, polls: 0, alone: 0, before: 0 }) };
}

/// A thread that ends knows nothing, and learns nothing; nor does one whose time is simulated, since what was on it
/// before changes nothing there.
fn with<R>(nothing: R, work: impl FnOnce(&mut Known) -> R) -> R {
    if clock::is_simulated() {
        return nothing;
    }
    let known = KNOWN.try_with(|cell| {
        let mut known = cell.get();
        let result = work(&mut known);
        cell.set(known);
        result
    });
    known.unwrap_or(nothing)
}

/// Whether a call that was never polled lets others run first. Then another turn begins.
pub(super) fn is_over() -> bool {
    with(false, |known| {
        let over = known.answered >= TURN;
        if over {
            known.answered = 0;
        }
        over
    })
}

/// A poll has answered a call; or others have a turn, since it has not.
pub(super) fn polled(is_answered: bool) {
    with((), |known| known.answered = if is_answered { known.answered.saturating_add(1) } else { 0 });
}

/// Whether other tasks of this thread call, too, as far as is known: those of other threads may be kept from running.
pub(super) fn has_others() -> bool {
    with(true, |known| known.before == 0)
}

/// What a call that is polled owes to the other tasks of its thread.
#[derive(Debug)]
pub(super) struct Turn {
    /// Polls of calls on its thread, with its own, this time.
    polls: u32,
    /// Whether it lets others run once it is under way, if that is decided.
    first: Option<bool>,
    /// Whether it lets others run just now: polls until then.
    makes_way: Option<u32>,
}

impl Turn {
    pub(super) const fn new() -> Self {
        Self { polls: 0, first: None, makes_way: None }
    }

    /// It is polled.
    pub(super) fn begin(&mut self) {
        self.polls = with(0, |known| {
            known.polls = known.polls.wrapping_add(1);
            known.polls
        });
    }

    /// Whether it lets others run once it is under way, before it looks for its answer: once, but not where there were
    /// none of late.
    pub(super) fn lets_others_run(&mut self) -> bool {
        *self.first.get_or_insert_with(|| {
            with(true, |known| {
                let first = known.alone == 0;
                known.alone = known.alone.saturating_sub(1);
                first
            })
        })
    }

    /// It lets others run, and is polled again after them.
    pub(super) fn make_way(&mut self, crowd: &Crowd, waker: &Waker) {
        self.first = Some(false);
        if self.makes_way.replace(self.polls).is_none() {
            crowd.comes();
        }
        waker.wake_by_ref();
    }

    /// Whether it lets others run just now.
    pub(super) const fn makes_way(&self) -> bool {
        self.makes_way.is_some()
    }

    /// It is polled, perhaps after others.
    pub(super) fn come_back(&mut self, crowd: &Crowd) {
        let Some(before) = self.makes_way.take() else { return };
        crowd.goes();
        let alone = self.polls == before.wrapping_add(1);
        with((), |known| {
            known.before = if alone { MOST_ALONE.min((2 * known.before).max(1)) } else { 0 };
            known.alone = known.before;
        });
    }

    /// It is polled no more.
    pub(super) fn end(&mut self, crowd: &Crowd) {
        if self.makes_way.take().is_some() {
            crowd.goes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One task makes a call while there are others: whether it lets them run.
    fn calls(others: u32) -> bool {
        let (crowd, mut turn) = (Crowd::default(), Turn::new());
        turn.begin();
        let first = turn.lets_others_run();
        if first {
            turn.make_way(&crowd, Waker::noop());
            assert!(crowd.any() && !turn.lets_others_run());
            (0..others).for_each(|_| Turn::new().begin());
            turn.begin();
            turn.come_back(&crowd);
        }
        assert!(!crowd.any());
        first
    }

    #[test]
    fn who_is_alone_lets_others_run_now_and_then() {
        assert_eq!((0..20).filter(|_| calls(0)).count(), 5, "after none, 1, 2, 4 and 8 calls");
        assert_eq!((0..90).filter(|_| calls(0)).count(), 10, "one of nine");
        // Where there are others, soon all do.
        let at = (0..9).find(|_| calls(3));
        assert!(at.is_some());
        assert!((0..10).all(|_| calls(3)));
    }

    #[test]
    fn a_turn_has_an_end() {
        for _ in 0..TURN {
            assert!(!is_over());
            polled(true);
        }
        assert!(is_over() && !is_over());
        polled(true);
        polled(false);
        assert!((1..TURN).all(|_| !is_over()));
    }
}
