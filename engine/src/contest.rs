//! Which of two ways of doing something costs less, learnt from what it costs each time, by medians.
//!
//! Where one way is quick now and then, and slower as a rule, its least cost says nothing ([`rivals`](crate::rivals)
//! goes by that, where the least is what a thing takes undisturbed). Here costs come by themselves, and there are
//! trials: a few times the one way, then the other, and both once more, so that a machine whose pace changes treats
//! both alike. The median of each counts. A way that costs clearly less is taken from then on. Trials in vain become
//! rare.
//!
//! Things are not done as they are asked for at once: what was begun in one way ends in it. So a bout goes on until the
//! way that is wanted was seen often enough.
//!
//! Nor does the first time in a way cost what every further one does: a way whose memory takes turns costs what it will
//! once each part of that has had its turn, and lies in the caches where it will. Whoever begins a contest says after
//! how many times that is, and those before are not counted.

use crate::rivals::Rival;

/// Bouts of a trial: the other way, the one that is taken, and both again.
const BOUTS: usize = 4;
/// Times of a bout that do not count in any case, since they find caches and queues as the other way has left them, and
/// that do.
const UNCOUNTED: usize = 4;
const COUNTED: usize = 12;
/// Times that the way which is not wanted may be seen in a bout: if it is so often, the other one cannot be had.
const IN_VAIN: usize = 64;

/// Times before the first trial; between two, after one that has changed something; and at most.
const FIRST: u32 = 16;
const SOON: u32 = 256;
const LATE: u32 = 16_384;

/// A way has to cost less by one part in this many: less may be chance.
const CLEARLY: u64 = 12;

/// Chooses between two ways.
#[derive(Debug, Clone)]
pub struct Contest {
    taken: Rival,
    /// How often still until the next trial, and how often between the last two.
    left: u32,
    every: u32,
    /// The bout of the present trial; how often the way that is wanted was seen in it, and the other one.
    bout: usize,
    seen: usize,
    vain: usize,
    /// Times of a bout that do not count.
    uncounted: usize,
    /// Whether a trial has ended, of what this is about now.
    decided: bool,
    costs: [Costs; 2],
}

/// What one way has cost in a trial.
#[derive(Debug, Clone, Copy)]
struct Costs {
    costs: [u64; BOUTS / 2 * COUNTED],
    count: usize,
}

impl Costs {
    const NONE: Self = Self { costs: [0; BOUTS / 2 * COUNTED], count: 0 };

    fn add(&mut self, cost: u64) {
        if let Some(place) = self.costs.get_mut(self.count) {
            (*place, self.count) = (cost, self.count + 1);
        }
    }

    fn median(&mut self) -> u64 {
        let costs = &mut self.costs[..self.count];
        costs.sort_unstable();
        costs.get(costs.len() / 2).copied().unwrap_or(u64::MAX)
    }
}

impl Contest {
    /// A contest of two ways, of which one costs what it will when it has been taken `turns` times in a row.
    #[must_use]
    pub const fn new(turns: usize) -> Self {
        let uncounted = turns + UNCOUNTED;
        Self {
            taken: Rival::First,
            left: FIRST,
            every: SOON,
            bout: 0,
            seen: 0,
            vain: 0,
            uncounted,
            decided: false,
            costs: [Costs::NONE; 2],
        }
    }

    /// How to begin it now: by the way that is believed to cost less, or by the one that is being tried.
    #[must_use]
    pub const fn now(&self) -> Rival {
        if self.left == 0 && self.bout.is_multiple_of(2) { self.taken.other() } else { self.taken }
    }

    /// It is about something else from now on, perhaps: a trial is not far.
    pub fn again(&mut self) {
        if self.left > 0 {
            self.left = self.left.min(FIRST);
        }
        (self.every, self.decided) = (SOON, false);
    }

    /// Whether a trial is going on, or none has ended yet: what is done meanwhile is not done as it will be.
    pub const fn is_open(&self) -> bool {
        self.left == 0 || !self.decided
    }

    /// Learns that it was done this way, and what that cost.
    pub fn took(&mut self, way: Rival, cost: u64) {
        if self.left > 0 {
            self.left -= 1;
            return;
        }
        if way != self.now() {
            self.vain += 1;
            if self.vain == IN_VAIN {
                self.rest(false);
            }
            return;
        }
        self.seen += 1;
        if self.seen > self.uncounted {
            self.costs[way as usize].add(cost);
        }
        if self.seen == self.uncounted + COUNTED {
            (self.bout, self.seen, self.vain) = (self.bout + 1, 0, 0);
        }
        if self.bout == BOUTS {
            let [this, other] = [self.taken, self.taken.other()].map(|way| self.costs[way as usize].median());
            self.rest(other < this - this / CLEARLY);
        }
    }

    /// The end of a trial.
    fn rest(&mut self, changes: bool) {
        if changes {
            (self.taken, self.every) = (self.taken.other(), SOON);
        } else {
            self.every = self.every.saturating_mul(2).min(LATE);
        }
        (self.left, self.bout, self.seen, self.vain, self.decided) = (self.every, 0, 0, 0, true);
        self.costs = [Costs::NONE; 2];
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;

    use super::*;

    /// After so many times a way costs what it will.
    const TURNS: usize = 32;

    /// Does it `times` times, `late` times behind what is wanted: how often by the second way.
    fn run(contest: &mut Contest, times: usize, late: usize, mut cost: impl FnMut(usize, Rival) -> u64) -> usize {
        let mut under_way: VecDeque<Rival> = (0..late).map(|_| contest.now()).collect();
        let mut second = 0;
        for time in 0..times {
            under_way.push_back(contest.now());
            let way = under_way.pop_front().expect("it was just begun");
            contest.took(way, cost(time, way));
            second += usize::from(way == Rival::Second);
        }
        second
    }

    fn costs(first: u64, second: u64) -> impl Fn(usize, Rival) -> u64 {
        move |_, way| if way == Rival::First { first } else { second }
    }

    #[test]
    fn the_way_that_costs_less_is_taken_all_but_a_few_times() {
        for late in [0, 1, 16, 40] {
            let mut contest = Contest::new(TURNS);
            let second = run(&mut contest, 100_000, late, costs(149, 125));
            assert!(second > 98_000, "{second} of 100,000, {late} late");
            let second = run(&mut Contest::new(TURNS), 100_000, late, costs(100, 149));
            assert!(second < 2_000, "{second} of 100,000, {late} late");
        }
    }

    /// Whoever measures something else meanwhile has to know.
    #[test]
    fn it_is_open_until_it_is_decided_and_again_in_each_trial() {
        let mut contest = Contest::new(TURNS);
        let open = |contest: &mut Contest, times: usize| {
            let mut open = 0;
            for _ in 0..times {
                contest.took(contest.now(), 100);
                open += usize::from(contest.is_open());
            }
            open
        };
        let trial = BOUTS * (TURNS + UNCOUNTED + COUNTED);
        assert_eq!(open(&mut contest, FIRST as usize + 2 * trial), FIRST as usize + trial - 1, "the first one");
        assert_eq!(open(&mut contest, 2 * SOON as usize), trial, "the second one");
        contest.again();
        assert!(contest.is_open());
    }

    /// As measured: the dearer way is the cheaper one now and then, and the machine stands still now and then.
    #[test]
    fn what_is_cheap_now_and_then_does_not_win_nor_does_chance() {
        let rare = |time: usize, way| match (way, time % 20) {
            (Rival::First, 0) => 100,
            (Rival::Second, 7) => 3000,
            (Rival::First, _) => 149,
            (Rival::Second, _) => 125,
        };
        assert!(run(&mut Contest::new(TURNS), 100_000, 3, rare) > 98_000);
        assert!(run(&mut Contest::new(TURNS), 100_000, 3, costs(130, 125)) < 2_000);
    }

    /// As measured: memory that takes turns is in no cache when the other way was taken before.
    #[test]
    fn what_costs_less_once_it_goes_on_is_taken() {
        for late in [0, 1, 16] {
            let (mut contest, mut row) = (Contest::new(TURNS), 0);
            let second = run(&mut contest, 100_000, late, |_, way| {
                row = if way == Rival::First { row + 1 } else { 0 };
                match way {
                    Rival::First if row <= TURNS => 300,
                    Rival::First => 195,
                    Rival::Second => 241,
                }
            });
            assert!(second < 2_000, "{second} of 100,000, {late} late");
        }
    }

    #[test]
    fn a_change_is_followed() {
        let mut contest = Contest::new(TURNS);
        run(&mut contest, 100_000, 5, costs(149, 125));
        run(&mut contest, LATE as usize + 250, 5, costs(100, 125));
        assert!(run(&mut contest, 10_000, 5, costs(100, 125)) < 700);
        contest.again();
        run(&mut contest, 250, 5, costs(149, 125));
        assert!(run(&mut contest, 10_000, 5, costs(149, 125)) > 9_300, "after {FIRST}, when it may be another one");
    }

    /// The other way cannot be had: whatever is wanted, it is this one.
    #[test]
    fn what_cannot_be_had_is_not_wanted_for_long() {
        let (mut contest, mut wanted) = (Contest::new(TURNS), 0);
        for _ in 0..100_000 {
            wanted += u32::from(contest.now() == Rival::Second);
            contest.took(Rival::First, 100);
        }
        assert!(wanted < 1_500, "{wanted}");
    }
}
