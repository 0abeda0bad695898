//! How long a lap round the staging ring is, measured while it runs.
//!
//! Bytes that go round in a short lap stay in the sender's cache until the receiver fetches them from there; in a long
//! lap they have left it for a cache that both share, and the lines that are written next are free of the receiver.
//! Which of the two is quicker depends on the machine, on where the cores are, and on what else is in their caches: on
//! some a lap of 2 MiB carries two and a half times as much as one of 256 KiB, on others a third less. So there is no
//! length to choose. Now and then the time per byte is measured with each lap in turn, and the quickest one stays.
//!
//! What is measured is the time between two payloads and not that of one: a lap has to be good for what the application
//! does, be it a stream or a ping-pong. Where the application is the slow one, all laps are alike, and nothing changes.

use crate::time::Instant;

/// The shortest lap, bytes: shorter ones were quicker nowhere.
const SHORTEST: u64 = 256 << 10;

/// Bytes between two looks at the clock.
const CHUNK: u64 = 1 << 20;

/// Chunks that make a measurement. Their median counts: a core that is taken away for a while says nothing of laps.
const CHUNKS: usize = 8;

/// So many suffice where payloads are longer than a chunk, and together as long as that many chunks; or to give up a
/// lap of which none was nearly as quick as the best, by a quarter of it.
const ENOUGH: usize = 3;

/// Chunks from one survey of all laps to the next, at first and at last. At last a survey in which all other laps are
/// half as quick costs one part in a hundred.
const REST: (u32, u32) = (64, 2048);

/// A lap has to be quicker by one part in this many to be taken: less is noise.
const WORTH: u64 = 12;

/// Finds the length of a lap.
#[derive(Debug, Clone)]
pub struct Laps {
    least: u64,
    most: u64,
    /// The lap that is wanted now; in a survey the one that is measured.
    lap: u64,
    /// In a survey, the best lap so far and its picoseconds a byte.
    best: Option<(u64, u64)>,
    /// The lap between surveys.
    home: u64,
    /// Chunks left to rest, and how many that are from one survey to the next.
    resting: u32,
    rest: u32,
    /// Bytes to pass before anything that is measured now is true of this lap.
    settling: u64,
    /// Bytes since the last look at the clock, and when that was.
    passed: u64,
    since: Option<Instant>,
    costs: [u64; CHUNKS],
    measured: usize,
    measured_bytes: u64,
}

impl Laps {
    /// For a ring of `ring` bytes, of which a lap shall have `least` at least. Both are powers of two.
    #[must_use]
    pub fn new(ring: u64, least: u64) -> Self {
        let least = least.max(SHORTEST).min(ring);
        Self {
            least,
            most: ring,
            lap: least,
            best: None,
            home: least,
            resting: 1,
            rest: REST.0,
            settling: 0,
            passed: 0,
            since: None,
            costs: [0; CHUNKS],
            measured: 0,
            measured_bytes: 0,
        }
    }

    /// The length of a lap that the next payload shall have, if it can.
    #[must_use]
    #[inline]
    pub const fn lap(&self) -> u64 {
        self.lap
    }

    /// A payload of so many bytes has passed in a lap of this length. Whether the time is wanted now, by
    /// [`Laps::look`].
    #[inline]
    pub const fn pass(&mut self, bytes: u64, lap: u64) -> bool {
        self.passed += bytes;
        self.passed >= CHUNK && self.least < self.most && lap == self.lap
    }

    /// The time at the end of a chunk.
    #[cold]
    pub fn look(&mut self, now: Instant) {
        let bytes = core::mem::take(&mut self.passed);
        if self.resting > 0 {
            self.resting -= 1;
            return;
        }
        let since = self.since.replace(now);
        if self.settling > 0 {
            self.settling = self.settling.saturating_sub(bytes);
            return;
        }
        let Some(since) = since else { return };
        self.costs[self.measured] = now.saturating_since(since).saturating_mul(1000) / bytes.max(1);
        self.measured += 1;
        self.measured_bytes += bytes;
        let costs = &mut self.costs[..self.measured];
        let hopeless = |best: u64| costs.iter().all(|cost| *cost > best + best / 4);
        let long = self.measured_bytes >= CHUNKS as u64 * CHUNK;
        let suffices = costs.len() >= ENOUGH && (long || self.best.is_some_and(|(_, best)| hopeless(best)));
        if costs.len() == CHUNKS || suffices {
            costs.sort_unstable();
            let median = costs[costs.len() / 2];
            (self.measured, self.measured_bytes) = (0, 0);
            self.compare(median);
        }
    }

    /// A lap has been measured: goes on to the next one, or home to the best.
    fn compare(&mut self, cost: u64) {
        match self.best {
            Some((_, best)) if cost.saturating_add(best / WORTH) >= best => {}
            _ => self.best = Some((self.lap, cost)),
        }
        // The one that is home comes first: another has to be better than that.
        let after = if self.lap == self.home { self.least } else { self.lap * 2 };
        let next = if after == self.home { after * 2 } else { after };
        self.since = None;
        if next <= self.most {
            self.lap = next;
            // The ring has to be as full, or as empty, as it will be.
            self.settling = next + CHUNK;
            return;
        }
        let home = self.best.take().map_or(self.home, |(lap, _)| lap);
        self.rest = if home == self.home { (self.rest * 4).min(REST.1) } else { REST.0 };
        (self.home, self.lap, self.resting) = (home, home, self.rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 2 << 20;

    /// A machine on which a byte takes so many picoseconds, by lap.
    struct Machine<C> {
        laps: Laps,
        ps: u64,
        cost: C,
    }

    impl<C: Fn(u64) -> u64> Machine<C> {
        fn new(cost: C) -> Self {
            Self { laps: Laps::new(MOST, 0), ps: 0, cost }
        }

        /// Sends payloads of `len` bytes until `bytes` have passed; the mean picoseconds of a byte.
        fn send(&mut self, len: u64, bytes: u64) -> u64 {
            let begun = self.ps;
            for _ in 0..bytes / len {
                let lap = self.laps.lap();
                self.ps += len * (self.cost)(lap);
                if self.laps.pass(len, lap) {
                    self.laps.look(Instant::from_nanos(self.ps / 1000));
                }
            }
            (self.ps - begun) / bytes
        }
    }

    const FOUND: u64 = 128 << 20;
    const LONG: u64 = 8 << 30;

    #[test]
    fn the_longest_lap_is_found_where_it_is_the_quickest_and_the_shortest_where_that_is() {
        let mut far = Machine::new(|lap| if lap >= MOST { 65 } else { 150 - lap / (64 << 10) });
        far.send(64 << 10, FOUND);
        assert_eq!(far.laps.home, MOST);
        assert!(far.send(64 << 10, LONG) <= 67, "trials cost little");
        let mut near = Machine::new(|lap| 50 + lap / (32 << 10));
        near.send(64 << 10, FOUND);
        assert!(near.send(64 << 10, LONG) <= 59, "trials cost little");
    }

    #[test]
    fn one_in_between_is_found() {
        let mut machine = Machine::new(|lap| {
            if lap == 1 << 20 {
                40
            } else if lap == 512 << 10 {
                50
            } else {
                60
            }
        });
        machine.send(1 << 20, FOUND);
        assert!(machine.send(1 << 20, LONG) <= 41);
    }

    #[test]
    fn laps_that_are_alike_are_left_alone() {
        let mut machine = Machine::new(|lap| if lap == 256 << 10 { 100 } else { 97 });
        machine.send(4 << 20, LONG);
        assert_eq!(machine.laps.home, 256 << 10);
    }

    #[test]
    fn a_machine_that_changes_is_followed() {
        let quick_long = core::cell::Cell::new(true);
        let mut machine = Machine::new(|lap| if (lap == MOST) == quick_long.get() { 40 } else { 80 });
        machine.send(1 << 20, LONG);
        assert!(machine.send(1 << 20, LONG) <= 41);
        quick_long.set(false);
        machine.send(1 << 20, LONG);
        assert!(machine.send(1 << 20, LONG) <= 41);
    }

    #[test]
    fn a_measurement_may_be_disturbed_now_and_then() {
        let chunk = core::cell::Cell::new(0_u64);
        let mut machine = Machine::new(|lap| {
            chunk.set(chunk.get() + 1);
            // Every fifth payload finds its core taken away.
            if chunk.get().is_multiple_of(5) { 5000 } else { 40 + MOST / lap * 10 }
        });
        machine.send(1 << 20, FOUND);
        assert_eq!(machine.laps.home, MOST);
    }

    #[test]
    fn a_ring_of_one_lap_never_wants_the_time() {
        for (ring, least) in [(64 << 10, 0), (256 << 10, 0), (MOST, MOST)] {
            let mut laps = Laps::new(ring, least);
            assert_eq!(laps.lap(), ring);
            assert!(!(0..100).any(|_| laps.pass(1 << 20, ring)));
        }
    }

    #[test]
    fn what_passes_in_another_lap_than_is_wanted_says_nothing() {
        let mut laps = Laps::new(MOST, 0);
        assert!(!laps.pass(CHUNK, MOST));
        assert!(laps.pass(0, laps.lap()));
    }
}
