//! Which of a few ways is the quickest, found by trying them while they are used.
//!
//! Some choices have no answer that holds everywhere: how much of a ring to use, what to do with a cache line that was
//! read. A survey tries all ways in turn, now and then, by the time that a unit of work takes, and stays with the
//! quickest. What a unit is, and what the ways are, its owner knows: bytes and laps ([`lap`](crate::lap)), messages and
//! manners ([`trail`](crate::trail)).
//!
//! What is measured is the time from one unit to the next and not that of one: a way has to be good for what the
//! application does, be it a stream or a ping-pong. Where the application is the slow one, all ways are alike.
//!
//! Surveys are seldom where they find nothing. But a host may move the cores of a virtual machine apart from one moment
//! to the next, and what was the quickest way is then among the slowest: where one chunk after the other takes twice as
//! long as before, or half as long, a survey is taken at once. That may be the application, which has changed its pace
//! or its sizes; so one that was taken in vain is not taken again until the next one is due.

use crate::time::Instant;

/// Chunks that make a measurement. Their median counts: a core that is taken away for a while says nothing of ways.
const CHUNKS: usize = 8;

/// So many suffice where pieces are longer than a chunk, and together as long as that many chunks; or to give up a way
/// of which none was nearly as quick as the best, by a quarter of it.
const ENOUGH: usize = 3;

/// A single piece as long as a whole measurement says enough where it took so many times as long as the best: what is
/// tried is then a large part of what goes that way. If it was taken away from its core, the next survey will see.
const FAR_WORSE: u64 = 2;

/// Chunks from one survey to the next, at first, and whenever a survey has found something much better.
const SHORT_REST: u32 = 64;

/// How much better that is: by one part in this many.
const MUCH: u64 = 4;

/// A survey is believed if the way that is home takes as long at its end as at its beginning, give or take so much.
const ALIKE: (u64, u64) = (3, 2);

/// Chunks after a survey before another one is taken because the machine seems to be another one, and by which factor
/// as many chunks in a row as make a measurement must then have taken longer or shorter than the survey says.
const EARLY_REST: u32 = 256;
const UNLIKE: u64 = 2;

/// Chunks that pass in other ways before one that is wanted is given up: it cannot be had now.
const IN_VAIN: u64 = 64;

/// A way has to be quicker by one part in this many to be taken: less is noise.
const WORTH: u64 = 12;

/// Which way stays where several are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Favour {
    /// The one that is used now.
    Home,
    /// The one with the lowest number: the others have a price that is not measured.
    First,
}

/// Tries ways, numbered from 0, and says which one to use now.
#[derive(Debug, Clone)]
pub struct Survey {
    /// How many ways there are.
    ways: usize,
    /// Units of work between two looks at the clock.
    chunk: u64,
    favour: Favour,
    /// The way that is wanted now; in a survey the one that is measured.
    way: usize,
    /// In a survey, the best way so far and its picoseconds a unit.
    best: Option<(usize, u64)>,
    /// The way between surveys.
    home: usize,
    /// Ways of this survey that have been measured.
    done: usize,
    /// What the way that is home took in this survey, at its beginning and at its end; and what is usual since.
    home_cost: u64,
    home_again: Option<u64>,
    usual: u64,
    /// Surveys in a row that were not believed.
    disturbed: u32,
    /// Chunks in a row that have taken much longer or shorter than is usual, and much longer.
    unlike: usize,
    slow: u32,
    /// Whether a way is used from now on that is to be measured.
    begins: bool,
    /// Whether that is reason enough for a survey: not after one that was taken for it in vain, until one was due.
    early: bool,
    /// Chunks left to rest and rested since the last survey, and how many that are from one survey to the next, now and
    /// at last.
    resting: u32,
    rested: u32,
    rest: u32,
    long_rest: u32,
    /// Units to pass before anything that is measured now is true of this way.
    settling: u64,
    /// Units since the last look at the clock, and when that was.
    passed: u64,
    since: Option<Instant>,
    costs: [u64; CHUNKS],
    measured: usize,
    measured_units: u64,
}

impl Survey {
    /// Over so many ways, of which the first is used at first. The clock is looked at every `chunk` units, and from one
    /// survey to the next pass `long_rest` chunks at last.
    #[must_use]
    pub const fn new(ways: usize, chunk: u64, favour: Favour, long_rest: u32) -> Self {
        Self {
            ways,
            chunk,
            favour,
            way: 0,
            best: None,
            home: 0,
            done: 0,
            home_cost: 0,
            home_again: None,
            usual: 0,
            disturbed: 0,
            unlike: 0,
            slow: 0,
            begins: false,
            early: false,
            resting: 1,
            rested: 0,
            rest: SHORT_REST,
            long_rest,
            settling: 0,
            passed: 0,
            since: None,
            costs: [0; CHUNKS],
            measured: 0,
            measured_units: 0,
        }
    }

    /// The way to use now.
    #[must_use]
    #[inline]
    pub const fn way(&self) -> usize {
        self.way
    }

    /// The way between surveys.
    #[cfg(test)]
    pub(crate) const fn home(&self) -> usize {
        self.home
    }

    /// Chunks from one survey to the next, now.
    #[cfg(test)]
    pub(crate) const fn rests(&self) -> u32 {
        self.rest
    }

    /// So many units have passed, this way. Whether the time is wanted now, by [`Survey::look`].
    #[inline]
    pub const fn pass(&mut self, units: u64, way: usize) -> bool {
        self.passed += units;
        self.passed >= self.chunk && self.ways > 1 && (way == self.way || self.passed >= self.chunk * IN_VAIN)
    }

    /// Whether a way is used from now on, or on, that is to be measured.
    #[must_use]
    pub const fn begins(&self) -> bool {
        self.begins
    }

    /// Chunks in a row between surveys that have taken twice as long as is usual.
    #[must_use]
    pub const fn slow(&self) -> u32 {
        self.slow
    }

    /// The time at the end of a chunk, the last of which passed this way. `settle` says how many units have to pass
    /// in a way before the world is as it will be while that way is used.
    #[cold]
    pub fn look(&mut self, now: Instant, way: usize, settle: impl Fn(usize) -> u64) {
        let units = core::mem::take(&mut self.passed);
        self.begins = false;
        if self.resting > 0 {
            self.rest_on(now, units, way);
            return;
        }
        if way != self.way {
            self.go_on(settle);
            return;
        }
        let since = self.since.replace(now);
        if self.settling > 0 {
            self.settling = self.settling.saturating_sub(units);
            return;
        }
        let Some(since) = since else { return };
        self.costs[self.measured] = cost(since, now, units);
        self.measured += 1;
        self.measured_units += units;
        let costs = &mut self.costs[..self.measured];
        let all_above = |cost: u64| costs.iter().all(|measured| *measured > cost);
        let hopeless = self.best.is_some_and(|(_, best)| all_above(best + best / 4));
        let far_worse = self.best.is_some_and(|(_, best)| all_above(best.saturating_mul(FAR_WORSE)));
        let is_other = self.done > 0 && self.done < self.ways;
        let measurement = CHUNKS as u64 * self.chunk;
        let suffices = costs.len() >= ENOUGH && (self.measured_units >= measurement || hopeless);
        if costs.len() == CHUNKS || suffices || (is_other && far_worse && units >= measurement) {
            costs.sort_unstable();
            let median = costs[costs.len() / 2];
            self.compare(median);
            self.go_on(settle);
        }
    }

    /// A chunk has passed between surveys.
    fn rest_on(&mut self, now: Instant, units: u64, way: usize) {
        (self.resting, self.rested) = (self.resting - 1, self.rested + 1);
        self.early |= self.resting == 0;
        let since = if way == self.way { self.since.replace(now) } else { self.since.take() };
        let Some(since) = since.filter(|_| way == self.way) else { return };
        let cost = cost(since, now, units);
        let slow = cost > self.usual * UNLIKE;
        self.slow = if slow { self.slow + 1 } else { 0 };
        self.unlike = if slow || cost * UNLIKE < self.usual { self.unlike + 1 } else { 0 };
        if self.early && self.unlike >= CHUNKS && self.rested > EARLY_REST {
            (self.resting, self.early) = (0, false);
        }
        self.begins = self.resting == 0;
    }

    /// A way has been measured.
    fn compare(&mut self, cost: u64) {
        if self.done == self.ways {
            self.home_again = Some(cost);
            return;
        }
        let better = self.best.is_none_or(|(way, best)| match self.favour {
            Favour::First if self.way < way => cost <= best.saturating_add(best / WORTH),
            Favour::First | Favour::Home => cost.saturating_add(best / WORTH) < best,
        });
        if better {
            self.best = Some((self.way, cost));
        }
        if self.done == 0 {
            self.home_cost = cost;
        }
    }

    /// On to the next way, or home to the best.
    fn go_on(&mut self, settle: impl Fn(usize) -> u64) {
        (self.measured, self.measured_units, self.since) = (0, 0, None);
        self.done += 1;
        if self.done <= self.ways {
            self.way = self.turn(self.done);
            self.settling = settle(self.way) + self.chunk;
            self.begins = true;
            return;
        }
        let home_again = self.home_again.take().unwrap_or(self.home_cost);
        let [less, more] = [self.home_cost.min(home_again), self.home_cost.max(home_again)];
        let (home, cost) = self.best.take().filter(|(way, _)| *way != self.home).unwrap_or((self.home, home_again));
        (self.unlike, self.slow, self.rested, self.done) = (0, 0, 0, 0);
        if more * ALIKE.1 > less * ALIKE.0 {
            // Something else has changed meanwhile. What was measured before that says nothing of what came after it.
            self.resting = (SHORT_REST << (2 * self.disturbed)).min(self.long_rest);
            (self.way, self.usual, self.disturbed) = (self.home, home_again, (self.disturbed + 1).min(8));
            return;
        }
        let much = cost.saturating_add(self.home_cost / MUCH) < self.home_cost;
        self.early |= much;
        self.rest = if much { SHORT_REST } else { (self.rest * 4).min(self.long_rest) };
        (self.home, self.way, self.resting, self.usual, self.disturbed) = (home, home, self.rest, cost, 0);
    }

    /// The way that is measured at this place of a survey: home, then the others, and home again.
    const fn turn(&self, place: usize) -> usize {
        if place == 0 || place == self.ways {
            self.home
        } else if place <= self.home {
            place - 1
        } else {
            place
        }
    }
}

/// Picoseconds that each of so many units took.
fn cost(since: Instant, now: Instant, units: u64) -> u64 {
    now.saturating_since(since).saturating_mul(1000) / units.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 1000;
    const LONG: u32 = 8192;

    /// A machine on which a unit takes so many nanoseconds, by way, and how many chunks were part of a survey.
    struct Machine {
        survey: Survey,
        now: u64,
        surveyed: u64,
    }

    impl Machine {
        /// A machine that has found its way, and rests from now on.
        fn settled(costs: [u64; 4]) -> Self {
            let mut machine = Self { survey: Survey::new(4, CHUNK, Favour::Home, LONG), now: 0, surveyed: 0 };
            while machine.survey.resting < LONG {
                machine.run(1, costs);
            }
            machine.surveyed = 0;
            machine
        }

        fn run(&mut self, chunks: u64, costs: [u64; 4]) {
            for _ in 0..chunks {
                let way = self.survey.way();
                self.now += CHUNK * costs[way];
                self.surveyed += u64::from(self.survey.resting == 0);
                assert!(self.survey.pass(CHUNK, way));
                self.survey.look(Instant::from_nanos(self.now), way, |_| 2 * CHUNK);
            }
        }
    }

    const NEAR: [u64; 4] = [10, 20, 60, 40];
    const FAR: [u64; 4] = [80, 40, 20, 60];

    #[test]
    fn a_machine_that_becomes_another_is_surveyed_at_once() {
        let mut machine = Machine::settled(NEAR);
        assert_eq!(machine.survey.home(), 0);
        for (costs, home) in [(FAR, 2), (NEAR, 0), (FAR, 2)] {
            machine.run(u64::from(EARLY_REST) + 64, costs);
            assert_eq!(machine.survey.home(), home);
            machine.run(u64::from(EARLY_REST) * 4, costs);
            assert_eq!(machine.survey.home(), home);
        }
    }

    #[test]
    fn a_machine_that_changes_all_the_time_is_not_surveyed_all_the_time() {
        let mut machine = Machine::settled(NEAR);
        for _ in 0..500 {
            machine.run(150, FAR);
            machine.run(150, NEAR);
        }
        assert!(machine.surveyed < 500 * 300 / 5, "{} chunks", machine.surveyed);
    }

    #[test]
    fn a_user_who_changes_pace_is_surveyed_as_seldom_as_another() {
        let mut machine = Machine::settled(NEAR);
        for _ in 0..500 {
            machine.run(100, NEAR);
            // All ways are alike for somebody who is slow himself.
            machine.run(100, [500; 4]);
        }
        assert!(machine.surveyed < 500 * 200 / 50, "{} chunks", machine.surveyed);
        assert_eq!(machine.survey.home(), 0);
    }

    #[test]
    fn chunks_that_take_long_now_and_then_are_no_other_machine() {
        let mut machine = Machine::settled(NEAR);
        for _ in 0..1000 {
            machine.run(1, [1000; 4]);
            machine.run(6, NEAR);
        }
        assert_eq!(machine.surveyed, 0);
    }
}
