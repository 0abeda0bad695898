//! Which of two ways of doing one short thing is the quicker, learnt from a few of many times.
//!
//! Two ways that do the same may differ by 3 x on one processor and the other way round on the next, and by what the
//! caches hold: so nothing about them is known beforehand. To time everything would cost as much as the thing itself.
//! So there are trials: a few times in a row the one way, then as often the other, close enough together that a machine
//! whose pace changes treats both alike; and of each way the least time counts, because what disturbs a measurement
//! makes it longer. A way that is clearly quicker is taken from then on. Trials in vain become rare.

use core::num::NonZeroU64;

/// One of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rival {
    /// The one which is taken as long as nothing is known.
    First,
    /// The other one.
    Second,
}

impl Rival {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// How to do it this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Go {
    /// By which of the two.
    pub rival: Rival,
    /// Whether [`Rivals::took`] wants to know how long it takes.
    pub timed: bool,
}

/// Times in a row that a trial gives each way. The first of them is not timed: it finds the caches as the other way has
/// left them.
const TRY: u16 = 4;

/// Times between two trials: after one that has changed something, and at most.
const SOON: u16 = 64;
const LATE: u16 = 4096;

/// One class for each power of two of the length, from 1 KiB and less to 32 MiB and more.
const CLASSES: usize = 16;
const FIRST_CLASS_LOG2: u32 = 10;

/// What is known of things of about one length.
#[derive(Debug, Clone, Copy)]
struct Class {
    taken: Rival,
    /// How often still until the next trial, and how often between the last two.
    left: u16,
    every: u16,
    /// How far the present trial has come.
    tried: u16,
    /// The least time in it, in picoseconds a byte, by way.
    least: [u64; 2],
}

impl Class {
    const NEW: Self = Self { taken: Rival::First, left: 0, every: SOON, tried: 0, least: [u64::MAX; 2] };

    fn settle(&mut self, clearly: u64) {
        let [this, other] = [self.taken, self.taken.other()].map(|rival| self.least[rival as usize]);
        if other != u64::MAX && other < this - this / clearly {
            (self.taken, self.every) = (self.taken.other(), SOON);
        } else {
            self.every = self.every.saturating_mul(2).min(LATE);
        }
        (self.left, self.tried, self.least) = (self.every, 0, [u64::MAX; 2]);
    }
}

/// Chooses between two ways, for each power of two of the length apart.
#[derive(Debug, Clone)]
pub struct Rivals {
    clearly: u64,
    classes: [Class; CLASSES],
}

fn class(bytes: u64) -> usize {
    let log2 = bytes.max(1).ilog2().saturating_sub(FIRST_CLASS_LOG2);
    (log2 as usize).min(CLASSES - 1)
}

impl Rivals {
    /// Two of which nothing is known. A way has to be quicker by one part in `clearly` of what the other one takes:
    /// less may be chance.
    #[must_use]
    pub const fn new(clearly: NonZeroU64) -> Self {
        Self { clearly: clearly.get(), classes: [Class::NEW; CLASSES] }
    }

    /// The way that is believed to be the quicker one for `bytes` bytes.
    #[must_use]
    #[inline]
    pub fn quicker(&self, bytes: u64) -> Rival {
        self.classes[class(bytes)].taken
    }

    /// How to do it with `bytes` bytes now.
    #[inline]
    pub fn next(&mut self, bytes: u64) -> Go {
        let class = &mut self.classes[class(bytes)];
        if class.left > 0 {
            class.left -= 1;
            return Go { rival: class.taken, timed: false };
        }
        if class.tried == 2 * TRY {
            class.settle(self.clearly);
            return Go { rival: class.taken, timed: false };
        }
        let rival = if class.tried < TRY { class.taken.other() } else { class.taken };
        let timed = !class.tried.is_multiple_of(TRY);
        class.tried += 1;
        Go { rival, timed }
    }

    /// Learns that it took `ns` nanoseconds with `bytes` bytes, by this way.
    pub fn took(&mut self, bytes: u64, rival: Rival, ns: u64) {
        let cost = ns.saturating_mul(1000) / bytes.max(1);
        let least = &mut self.classes[class(bytes)].least[rival as usize];
        *least = cost.min(*least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rivals() -> Rivals {
        Rivals::new(NonZeroU64::new(8).unwrap())
    }

    /// Does it `times` times with `bytes` bytes, where the ways take so long: how often by the second one.
    fn run(rivals: &mut Rivals, bytes: u64, times: u32, mut ns: impl FnMut(u32, Rival) -> u64) -> u32 {
        let mut second = 0;
        for time in 0..times {
            let Go { rival, timed } = rivals.next(bytes);
            if timed {
                rivals.took(bytes, rival, ns(time, rival));
            }
            second += u32::from(rival == Rival::Second);
        }
        second
    }

    fn takes(first: u64, second: u64) -> impl Fn(u32, Rival) -> u64 {
        move |_, rival| if rival == Rival::First { first } else { second }
    }

    #[test]
    fn the_quicker_way_is_taken_all_but_a_few_times() {
        let mut rivals = rivals();
        assert!(run(&mut rivals, 8192, 10_000, takes(400, 250)) > 9_900);
        assert!(run(&mut rivals, 65_536, 10_000, takes(1_000, 2_000)) < 50);
        assert_eq!((rivals.quicker(8192), rivals.quicker(65_536)), (Rival::Second, Rival::First));
    }

    #[test]
    fn few_are_timed_and_ever_fewer() {
        let mut rivals = rivals();
        let mut timed = [0, 0];
        for (part, times) in [1_000, 100_000].into_iter().enumerate() {
            run(&mut rivals, 8192, times, |_, _| {
                timed[part] += 1;
                100
            });
        }
        assert!(timed[0] <= 6 * 4 && timed[1] <= 6 * 26, "{timed:?}");
    }

    #[test]
    fn what_is_hardly_quicker_changes_nothing() {
        let mut rivals = rivals();
        assert!(run(&mut rivals, 8192, 10_000, takes(400, 360)) < 50);
    }

    #[test]
    fn a_disturbed_measurement_does_no_harm() {
        let mut rivals = rivals();
        // Two times of three the processor is away.
        let disturbed =
            |time: u32, rival| takes(400, 250)(time, rival) + if time.is_multiple_of(3) { 0 } else { 50_000 };
        assert!(run(&mut rivals, 8192, 100_000, disturbed) > 90_000);
    }

    #[test]
    fn a_change_is_followed() {
        let mut rivals = rivals();
        run(&mut rivals, 8192, 100_000, takes(400, 250));
        run(&mut rivals, 8192, u32::from(LATE) + 9, takes(250, 400));
        assert!(run(&mut rivals, 8192, 10_000, takes(250, 400)) < 100);
    }

    #[test]
    fn a_trial_that_nobody_times_ends() {
        let mut rivals = rivals();
        let second = (0..1_000).filter(|_| rivals.next(8192).rival == Rival::Second).count();
        assert!(second <= 4 * usize::from(TRY), "{second}");
        assert_eq!(rivals.quicker(8192), Rival::First);
    }

    #[test]
    fn any_length_and_any_time_has_a_class() {
        let mut rivals = rivals();
        for bytes in [0, 1, 1023, 1024, u64::MAX] {
            for ns in [0, 1, u64::MAX] {
                run(&mut rivals, bytes, 100, |_, _| ns);
            }
        }
    }
}
