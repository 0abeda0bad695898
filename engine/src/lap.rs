//! How long a lap round the staging ring is, measured while it runs.
//!
//! Bytes that go round in a short lap stay in the sender's cache until the receiver fetches them from there; in a long
//! lap they have left it for a cache that both share, and the lines that are written next are free of the receiver.
//! Which of the two is quicker depends on the machine, on where the cores are, and on what else is in their caches: on
//! some a lap of 2 MiB carries two and a half times as much as one of 256 KiB, on others a third less. So there is no
//! length to choose: a [survey](crate::survey) finds the quickest one, by the time per byte.

use crate::survey::{Favour, Survey};
use crate::time::Instant;

/// The shortest lap, bytes: shorter ones were quicker nowhere.
const SHORTEST: u64 = 256 << 10;

/// Bytes between two looks at the clock.
const CHUNK: u64 = 1 << 20;

/// Chunks from one survey to the next at last. One in which all other laps are half as quick costs one part in a
/// hundred.
const REST: u32 = 2048;

/// Finds the length of a lap.
#[derive(Debug, Clone)]
pub struct Laps {
    least: u64,
    survey: Survey,
}

impl Laps {
    /// For a ring of `ring` bytes, of which a lap shall have `least` at least. Both are powers of two.
    #[must_use]
    pub fn new(ring: u64, least: u64) -> Self {
        let least = least.max(SHORTEST).min(ring);
        let longer = ring.trailing_zeros() - least.trailing_zeros();
        Self { least, survey: Survey::new(longer as usize + 1, CHUNK, Favour::Home, REST) }
    }

    /// The length of a lap that the next payload shall have, if it can.
    #[must_use]
    #[inline]
    pub const fn lap(&self) -> u64 {
        self.least << self.survey.way()
    }

    /// A payload of so many bytes has passed in a lap of this length. Whether the time is wanted now, by
    /// [`Laps::look`].
    #[inline]
    pub const fn pass(&mut self, bytes: u64, lap: u64) -> bool {
        let way = lap.trailing_zeros().wrapping_sub(self.least.trailing_zeros());
        self.survey.pass(bytes, way as usize)
    }

    /// The lap between surveys.
    #[cfg(test)]
    const fn home(&self) -> u64 {
        self.least << self.survey.home()
    }

    /// The time at the end of a chunk.
    #[cold]
    pub fn look(&mut self, now: Instant) {
        let least = self.least;
        // The ring has to be as full, or as empty, as it will be.
        self.survey.look(now, |way| least << way);
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
        assert_eq!(far.laps.home(), MOST);
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
        assert_eq!(machine.laps.home(), 256 << 10);
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
        assert_eq!(machine.laps.home(), MOST);
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
