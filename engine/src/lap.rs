//! How long a lap round the staging ring is, measured while it runs.
//!
//! Bytes that go round in a short lap stay in the sender's cache until the receiver fetches them from there; in a
//! long lap they have left it for a cache that both share, and the lines that are written next are free of the
//! receiver. Which of the two is quicker depends on the machine, on where the cores are, and on what else is in their
//! caches: on some a lap of 2 MiB carries two and a half times as much as one of 256 KiB, on others a third less. And
//! where the two cores share no cache, lines that the receiver *evicts* to memory as soon as it has read them may
//! carry five times as much as any other, because the sender need not take them out of the receiver's cache. So there
//! is no length to choose: a [survey](crate::survey) finds the quickest one, by the time per byte.

use cutthrough_wire::slot::Lap;

use crate::survey::{Favour, Survey};
use crate::time::Instant;

/// The shortest lap, bytes: shorter ones were quicker nowhere.
const SHORTEST: u64 = 256 << 10;

/// Bytes between two looks at the clock: as few as a lap has at the least. A survey of chunks four times as long took
/// 25 to 50 milliseconds where the cores share no cache, and an application that does another thing every 20
/// milliseconds never saw the end of one.
const CHUNK: u64 = SHORTEST;

/// Chunks from one survey to the next at last. One in which all other laps are a fifth as quick costs two parts in a
/// hundred.
const REST: u32 = 8192;

/// Finds the length of a lap.
#[derive(Debug, Clone)]
pub struct Laps {
    least: u64,
    /// How many lengths there are, each twice as long as the one before. One way more is the longest, evicted.
    lengths: usize,
    survey: Survey,
}

impl Laps {
    /// For a ring of `ring` bytes, of which a lap shall have `least` at least. Both are powers of two. Where lines
    /// cannot be evicted, that is not tried; where they are, the length of a lap makes no difference.
    #[must_use]
    pub fn new(ring: u64, least: u64, can_evict: bool) -> Self {
        let least = least.max(SHORTEST).min(ring);
        let lengths = (ring.trailing_zeros() - least.trailing_zeros()) as usize + 1;
        let ways = lengths + usize::from(can_evict);
        Self { least, lengths, survey: Survey::new(ways, CHUNK, Favour::Home, REST) }
    }

    /// The lap that the next payload shall have, if it can.
    #[must_use]
    #[inline]
    pub const fn lap(&self) -> Lap {
        self.lap_of(self.survey.way())
    }

    const fn lap_of(&self, way: usize) -> Lap {
        let evict = way == self.lengths;
        Lap { bytes: self.least << (way - evict as usize), evict }
    }

    /// The way that is wanted, if this lap is the one; else none.
    const fn way(&self, lap: u64) -> usize {
        if lap == self.lap().bytes { self.survey.way() } else { usize::MAX }
    }

    /// A payload of so many bytes has passed in a lap of this length. Whether the time is wanted now, by
    /// [`Laps::look`].
    #[inline]
    pub const fn pass(&mut self, bytes: u64, lap: u64) -> bool {
        let way = self.way(lap);
        self.survey.pass(bytes, way)
    }

    /// The time at the end of a chunk, the last of which passed in a lap of this length.
    #[cold]
    pub fn look(&mut self, now: Instant, lap: u64) {
        let (least, lengths, way) = (self.least, self.lengths, self.way(lap));
        // The ring has to be as full, or as empty, as it will be.
        self.survey.look(now, way, |way| least << way.min(lengths - 1));
    }

    /// The lap between surveys.
    #[cfg(test)]
    const fn home(&self) -> Lap {
        self.lap_of(self.survey.home())
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

    impl<C: Fn(Lap) -> u64> Machine<C> {
        fn new(cost: C) -> Self {
            Self { laps: Laps::new(MOST, 0, true), ps: 0, cost }
        }

        /// Sends payloads of `len` bytes until `bytes` have passed; the mean picoseconds of a byte.
        fn send(&mut self, len: u64, bytes: u64) -> u64 {
            let begun = self.ps;
            for _ in 0..bytes / len {
                let lap = self.laps.lap();
                self.ps += len * (self.cost)(lap);
                if self.laps.pass(len, lap.bytes) {
                    self.laps.look(Instant::from_nanos(self.ps / 1000), lap.bytes);
                }
            }
            (self.ps - begun) / bytes
        }
    }

    /// A machine on which it never pays to evict.
    fn kept(cost: impl Fn(u64) -> u64) -> Machine<impl Fn(Lap) -> u64> {
        Machine::new(move |lap| if lap.evict { 200 } else { cost(lap.bytes) })
    }

    const FOUND: u64 = 128 << 20;
    const LONG: u64 = 8 << 30;

    #[test]
    fn the_longest_lap_is_found_where_it_is_the_quickest_and_the_shortest_where_that_is() {
        let mut far = kept(|lap| if lap >= MOST { 65 } else { 150 - lap / (64 << 10) });
        far.send(64 << 10, FOUND);
        assert_eq!(far.laps.home().bytes, MOST);
        assert!(far.send(64 << 10, LONG) <= 67, "trials cost little");
        let mut near = kept(|lap| 50 + lap / (32 << 10));
        near.send(64 << 10, FOUND);
        assert!(near.send(64 << 10, LONG) <= 59, "trials cost little");
    }

    #[test]
    fn one_in_between_is_found() {
        let mut machine = kept(|lap| {
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
    fn lines_are_evicted_where_that_is_quicker() {
        let mut machine = Machine::new(|lap| match lap {
            Lap { evict: true, .. } => 100,
            Lap { bytes: MOST, .. } => 400,
            Lap { .. } => 500,
        });
        machine.send(64 << 10, FOUND);
        assert_eq!(machine.laps.home(), Lap { bytes: MOST, evict: true });
        assert!(machine.send(64 << 10, LONG) <= 104, "trials cost little");
    }

    #[test]
    fn trials_of_long_payloads_are_short() {
        // As measured of a stream of 4 MiB while both cores share a cache, the shortest lap first.
        let mut machine = Machine::new(|lap| match lap {
            Lap { evict: true, .. } => 65,
            Lap { bytes, .. } => [122, 97, 40, 29][(bytes / SHORTEST).ilog2() as usize],
        });
        machine.send(4 << 20, FOUND);
        assert_eq!(machine.laps.home().bytes, MOST);
        let mean = machine.send(4 << 20, 2 << 30);
        assert!(mean <= 30, "{mean} ps a byte");
    }

    #[test]
    fn laps_that_are_alike_are_left_alone() {
        let mut machine = kept(|lap| if lap == 256 << 10 { 100 } else { 97 });
        machine.send(4 << 20, LONG);
        assert_eq!(machine.laps.home().bytes, 256 << 10);
    }

    #[test]
    fn a_machine_that_changes_is_followed() {
        let quick_long = core::cell::Cell::new(true);
        let mut machine = kept(|lap| if (lap == MOST) == quick_long.get() { 40 } else { 80 });
        machine.send(1 << 20, LONG);
        assert!(machine.send(1 << 20, LONG) <= 41);
        quick_long.set(false);
        machine.send(1 << 20, LONG);
        assert!(machine.send(1 << 20, LONG) <= 41);
    }

    #[test]
    fn an_application_that_turns_to_another_thing_every_so_often_is_surveyed_nevertheless() {
        // A stream and a ping-pong of 4 KiB, as they were measured on cores that share no cache, 15 to 30 ms of each.
        for phase in (15..30).map(|ms| ms * 1_000_000_000) {
            let now = core::cell::Cell::new(0);
            let mut machine = Machine::new(|lap| {
                let stream = now.get() / phase % 2 == 1;
                let costs = if stream { [500, 140] } else { [975, 560] };
                let cost = costs[usize::from(lap.evict || lap.bytes == MOST)];
                now.set(now.get() + cost * 4096);
                cost
            });
            let round = (phase / 500 + phase / 975) / 4096 * 4096;
            machine.send(4096, round * 5);
            assert_ne!(machine.laps.home().bytes, SHORTEST, "after five rounds of {phase} ps");
        }
    }

    #[test]
    fn a_measurement_may_be_disturbed_now_and_then() {
        let chunk = core::cell::Cell::new(0_u64);
        let mut machine = kept(|lap| {
            chunk.set(chunk.get() + 1);
            // Every fifth payload finds its core taken away.
            if chunk.get().is_multiple_of(5) { 5000 } else { 40 + MOST / lap * 10 }
        });
        machine.send(1 << 20, FOUND);
        assert_eq!(machine.laps.home().bytes, MOST);
    }

    #[test]
    fn a_ring_of_one_lap_never_wants_the_time() {
        for (ring, least) in [(64 << 10, 0), (256 << 10, 0), (MOST, MOST)] {
            let mut laps = Laps::new(ring, least, false);
            assert_eq!(laps.lap().bytes, ring);
            assert!(!(0..100).any(|_| laps.pass(1 << 20, ring)));
        }
    }

    #[test]
    fn a_lap_that_cannot_be_had_is_given_up() {
        let mut laps = Laps::new(MOST, 0, true);
        let mut lap = laps.lap();
        for payload in 1..1000 {
            // Shorter laps than the payloads are never taken once a longer one was.
            lap = if laps.lap().bytes >= lap.bytes { laps.lap() } else { lap };
            if laps.pass(1 << 20, lap.bytes) {
                laps.look(Instant::from_nanos(payload * 100_000), lap.bytes);
            }
        }
        assert!(laps.survey.rests() >= 256, "surveys came to their ends, and found all alike");
    }

    #[test]
    fn what_passes_in_another_lap_than_is_wanted_says_nothing() {
        let mut laps = Laps::new(MOST, 0, false);
        assert!(!laps.pass(CHUNK, MOST));
        assert!(laps.pass(0, laps.lap().bytes));
        assert!(laps.pass(63 * CHUNK, MOST), "but for long enough that it cannot be had");
    }
}
