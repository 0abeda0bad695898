//! Which of a few ways is the quickest, found by trying them while they are used.
//!
//! Some choices have no answer that holds everywhere: how much of a ring to use, what to do with a cache line that was
//! read. A survey tries all ways in turn, now and then, by the time that a unit of work takes, and stays with the
//! quickest. What a unit is, and what the ways are, its owner knows: bytes and laps ([`lap`](crate::lap)), messages and
//! manners ([`trail`](crate::trail)).
//!
//! What is measured is the time from one unit to the next and not that of one: a way has to be good for what the
//! application does, be it a stream or a ping-pong. Where the application is the slow one, all ways are alike.

use crate::time::Instant;

/// Chunks that make a measurement. Their median counts: a core that is taken away for a while says nothing of ways.
const CHUNKS: usize = 8;

/// So many suffice where pieces are longer than a chunk, and together as long as that many chunks; or to give up a way
/// of which none was nearly as quick as the best, by a quarter of it.
const ENOUGH: usize = 3;

/// Chunks from one survey to the next, at first, and whenever a survey has found something much better.
const SHORT_REST: u32 = 64;

/// How much better that is: by one part in this many.
const MUCH: u64 = 4;

/// Chunks that pass in other ways before one that is wanted is given up: it cannot be had now.
const IN_VAIN: u64 = 16;

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
    /// What the way that is home took in this survey.
    home_cost: u64,
    /// Chunks left to rest, and how many that are from one survey to the next, now and at last.
    resting: u32,
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
            resting: 1,
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

    /// The time at the end of a chunk, the last of which passed this way. `settle` says how many units have to pass
    /// in a way before the world is as it will be while that way is used.
    #[cold]
    pub fn look(&mut self, now: Instant, way: usize, settle: impl Fn(usize) -> u64) {
        let units = core::mem::take(&mut self.passed);
        if self.resting > 0 {
            self.resting -= 1;
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
        self.costs[self.measured] = now.saturating_since(since).saturating_mul(1000) / units.max(1);
        self.measured += 1;
        self.measured_units += units;
        let costs = &mut self.costs[..self.measured];
        let hopeless = |best: u64| costs.iter().all(|cost| *cost > best + best / 4);
        let long = self.measured_units >= CHUNKS as u64 * self.chunk;
        let suffices = costs.len() >= ENOUGH && (long || self.best.is_some_and(|(_, best)| hopeless(best)));
        if costs.len() == CHUNKS || suffices {
            costs.sort_unstable();
            let median = costs[costs.len() / 2];
            self.compare(median);
            self.go_on(settle);
        }
    }

    /// A way has been measured.
    fn compare(&mut self, cost: u64) {
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
        if self.done < self.ways {
            self.way = self.turn(self.done);
            self.settling = settle(self.way) + self.chunk;
            return;
        }
        let (home, cost) = self.best.take().unwrap_or((self.home, self.home_cost));
        let much = cost.saturating_add(self.home_cost / MUCH) < self.home_cost;
        self.rest = if much { SHORT_REST } else { (self.rest * 4).min(self.long_rest) };
        (self.home, self.way, self.resting, self.done) = (home, home, self.rest, 0);
    }

    /// The way that is measured at this place of a survey: home, then the others.
    const fn turn(&self, place: usize) -> usize {
        if place == 0 {
            self.home
        } else if place <= self.home {
            place - 1
        } else {
            place
        }
    }
}
