//! Which of two ways is the faster for a payload of this length, learnt by going both.
//!
//! Two processors that share a copy halve its time where memory is the limit, and lengthen it where the payload would
//! have stayed in one processor's cache. Where the border lies depends on the machine, on what else it does, and on
//! what the caches hold: so there is no threshold. For each power of two of the length the smoothed time of each way
//! is kept, the faster way is taken, and now and then the other one is tried: several times in a row, because the
//! first payload that goes another way finds the caches as the last way has left them, and says nothing.

/// The two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The sender moves all of the payload.
    Alone,
    /// Both sides move a part of it.
    Together,
}

/// Payloads of a class from one try of the way that is believed to be the slower one to the next.
const TRY_EVERY: u32 = 256;

/// Payloads in a row that such a try takes.
const TRY: u32 = 4;

/// Payloads of a class at first, in which both ways are tried in turn.
const FIRST: u32 = 4 * TRY;

/// One class for each power of two, up to 2 GiB.
const CLASSES: usize = 32;

/// What is known of the payloads of one class.
#[derive(Debug, Clone, Copy)]
struct Class {
    seen: u32,
    last: Way,
    /// Smoothed time in picoseconds per byte, by way; 0 while unknown.
    cost: [u64; 2],
}

impl Class {
    const NEW: Self = Self { seen: 0, last: Way::Alone, cost: [0; 2] };

    const fn faster(&self) -> Way {
        let [alone, together] = self.cost;
        if together != 0 && (alone == 0 || together < alone) { Way::Together } else { Way::Alone }
    }
}

/// Chooses between two ways.
#[derive(Debug, Clone)]
pub struct Chooser {
    classes: [Class; CLASSES],
}

impl Default for Chooser {
    fn default() -> Self {
        Self { classes: [Class::NEW; CLASSES] }
    }
}

/// The class of a length.
const fn class(bytes: u64) -> usize {
    let log2 = bytes.checked_ilog2();
    match log2 {
        Some(log2) if (log2 as usize) < CLASSES => log2 as usize,
        Some(_) => CLASSES - 1,
        None => 0,
    }
}

impl Chooser {
    /// The way that a payload of `bytes` bytes shall take.
    #[must_use]
    pub const fn choose(&self, bytes: u64) -> Way {
        let class = &self.classes[class(bytes)];
        if class.seen < FIRST {
            return if (class.seen / TRY).is_multiple_of(2) { Way::Alone } else { Way::Together };
        }
        match (class.faster(), class.seen % TRY_EVERY < TRY) {
            (Way::Alone, false) | (Way::Together, true) => Way::Alone,
            (Way::Together, false) | (Way::Alone, true) => Way::Together,
        }
    }

    /// Learns that a payload of `bytes` bytes took `ns` nanoseconds on this way.
    pub const fn observe(&mut self, bytes: u64, way: Way, ns: u64) {
        let class = &mut self.classes[class(bytes)];
        class.seen = class.seen.wrapping_add(1);
        let warm = class.last as u8 == way as u8;
        class.last = way;
        if !warm {
            return;
        }
        let bytes = if bytes == 0 { 1 } else { bytes };
        let now = ns.saturating_mul(1000) / bytes;
        let smoothed = &mut class.cost[way as usize];
        *smoothed = if *smoothed == 0 {
            now
        } else {
            // A quarter of the news; and news of a processor that was taken away counts four times at most.
            let bounded = if now > smoothed.saturating_mul(4) { smoothed.saturating_mul(4) } else { now };
            *smoothed - *smoothed / 4 + bounded / 4
        };
        if *smoothed == 0 {
            *smoothed = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `count` payloads of `bytes` bytes on a machine where the ways take so long: how many went together.
    fn run(chooser: &mut Chooser, bytes: u64, count: u32, alone: u64, together: u64) -> u32 {
        (0..count)
            .filter(|_| {
                let way = chooser.choose(bytes);
                chooser.observe(bytes, way, if way == Way::Alone { alone } else { together });
                way == Way::Together
            })
            .count()
            .try_into()
            .unwrap_or(u32::MAX)
    }

    #[test]
    fn the_faster_way_is_taken_all_but_a_few_times() {
        let mut chooser = Chooser::default();
        assert!(run(&mut chooser, 1 << 20, 1000, 40_000, 20_000) > 960);
        assert!(run(&mut chooser, 1 << 13, 1000, 500, 1000) < 40);
    }

    #[test]
    fn classes_do_not_disturb_each_other() {
        let mut chooser = Chooser::default();
        run(&mut chooser, 1 << 20, 100, 40_000, 20_000);
        assert!(run(&mut chooser, 1 << 12, 1000, 300, 900) < 40);
        assert!(run(&mut chooser, 1 << 20, 1000, 40_000, 20_000) > 960);
    }

    #[test]
    fn a_change_is_followed() {
        let mut chooser = Chooser::default();
        run(&mut chooser, 1 << 20, 1000, 40_000, 20_000);
        run(&mut chooser, 1 << 20, 32, 40_000, 80_000);
        assert!(run(&mut chooser, 1 << 20, 1000, 40_000, 80_000) < 40);
        run(&mut chooser, 1 << 20, 2 * TRY_EVERY, 40_000, 20_000);
        assert!(run(&mut chooser, 1 << 20, 1000, 40_000, 20_000) > 960);
    }

    #[test]
    fn what_the_caches_were_left_in_does_not_count() {
        // The first payload after a change of way takes ten times as long, whichever way it is.
        let mut chooser = Chooser::default();
        let mut last = Way::Alone;
        let mut together = 0;
        for _ in 0..2000 {
            let way = chooser.choose(1 << 16);
            let ns = if way == Way::Alone { 2000 } else { 3000 } * if way == last { 1 } else { 10 };
            chooser.observe(1 << 16, way, ns);
            together += u32::from(way == Way::Together);
            last = way;
        }
        assert!(together < 60, "{together}");
    }

    #[test]
    fn every_length_has_a_class() {
        let mut chooser = Chooser::default();
        for bytes in [0, 1, 2, u64::MAX] {
            chooser.observe(bytes, Way::Alone, u64::MAX);
            let _ = chooser.choose(bytes);
        }
    }
}
