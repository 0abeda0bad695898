//! Batches as pulses: how what finds the way free is divided.
//!
//! While anything is in flight the sink is busy, and what waits goes in as few batches as hold it. Where nothing is,
//! the sink idles until the first batch is there: what goes then goes in as many as are best by the measured cost of
//! one (see [`crate::tune`]), so that it works on each while the next is made. Either way they are of like length: a
//! long one and its crumbs cost as much as two halves, and the first half is there sooner.

use alloc::boxed::Box;

use crate::pulse::Policy;
use crate::tune::Tuner;

/// Cost of a batch before the first was measured: nanoseconds for each, and bytes in a microsecond.
const PRIOR: (u64, u64) = (2_000, 5_000);

/// What is worth a batch of its own.
#[derive(Debug)]
pub(super) enum Worth {
    /// As many bytes as the measured cost of batches makes best.
    Measured(Box<Tuner>),
    /// So many bytes.
    Named(u64),
}

impl Worth {
    /// As the policy says; `None` if it divides nothing.
    pub(super) fn new(policy: Policy) -> Option<Self> {
        match policy {
            Policy::Adaptive { minpulse: None } => {
                let tuner = Tuner::with_prior(PRIOR.0, PRIOR.1).after_short_ones();
                Some(Self::Measured(Box::new(tuner)))
            }
            Policy::Adaptive { minpulse: Some(bytes) } => Some(Self::Named(bytes.get())),
            Policy::StoreAndForward | Policy::Fixed(_) => None,
        }
    }

    /// A batch of so many bytes took so many nanoseconds.
    pub(super) fn observe(&mut self, bytes: u64, ns: u64) {
        if let Self::Measured(tuner) = self {
            tuner.observe(bytes, ns);
        }
    }

    fn minpulse(&self, ahead: u64) -> u64 {
        match self {
            Self::Measured(tuner) => tuner.minpulse(ahead),
            Self::Named(bytes) => *bytes,
        }
    }
}

/// What divides the batches of a channel.
#[derive(Debug, Default)]
pub(super) struct Pulses {
    /// Batches that were planned when the way was free, and are still to go.
    left: u64,
}

impl Pulses {
    /// The way is free, and `ahead` bytes wait for it.
    pub(super) fn begin(&mut self, ahead: u64, worth: &Worth) {
        let minpulse = worth.minpulse(ahead).max(1);
        self.left = ahead.saturating_add(minpulse / 2) / minpulse;
    }

    /// Nothing waits any more: what comes next finds the sink busy.
    pub(super) fn end(&mut self) {
        self.left = 0;
    }

    /// Bytes of the next batch at most, of `most`: an even part of `ahead` bytes in frames of `full` bytes with bodies
    /// of `body`. A batch that is planned is taken as gone.
    pub(super) fn next(&mut self, ahead: u64, (body, full): (usize, usize), most: usize) -> usize {
        let frames = ahead.div_ceil(body.max(1) as u64).max(1);
        let longest = (most / full.max(1)).max(1) as u64;
        let batches = frames.div_ceil(longest).max(self.left);
        self.left = self.left.saturating_sub(1);
        let bytes = frames.div_ceil(batches).saturating_mul(full as u64);
        usize::try_from(bytes).unwrap_or(usize::MAX).min(most)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const BODY: usize = 1_400;

    /// Frames of the batches that so many bytes go in.
    fn batches(pulses: &mut Pulses, mut ahead: u64, most: usize) -> Vec<usize> {
        let mut all = Vec::new();
        while ahead > 0 {
            let frames = pulses.next(ahead, (BODY, BODY + 48), most * (BODY + 48)) / (BODY + 48);
            ahead = ahead.saturating_sub((frames * BODY) as u64);
            all.push(frames);
        }
        all
    }

    #[test]
    fn what_finds_the_way_free_goes_in_as_many_parts_as_are_worth_it() {
        // 2.5 us a batch and 5 bytes a nanosecond.
        let worth = Worth::Measured(Box::new(Tuner::with_prior(2_500, 5_000)));
        let lengths = |ahead| {
            let mut pulses = Pulses::default();
            pulses.begin(ahead, &worth);
            batches(&mut pulses, ahead, 45)
        };
        assert_eq!([64, 8 << 10].map(lengths), [[1], [6]], "one batch");
        assert_eq!(lengths(64 << 10), [24, 23], "two");
        assert_eq!(lengths(1 << 20).len(), 17, "no batch is long enough");
    }

    #[test]
    fn a_busy_sink_gets_few_batches_of_like_length() {
        let mut pulses = Pulses::default();
        assert_eq!(batches(&mut pulses, 46 * 1_400, 45), [23, 23], "not 45, and one alone");
        assert_eq!(batches(&mut pulses, 45 * 1_400, 45), [45]);
        pulses.begin(46 * 1_400, &Worth::Named(1_400));
        pulses.end();
        assert_eq!(batches(&mut pulses, 46 * 1_400, 45), [23, 23], "the plan is over");
    }

    #[test]
    fn the_policy_says_what_is_divided() {
        let worth = |policy: &str| Worth::new(policy.parse().unwrap());
        assert!(worth("store-and-forward").is_none() && worth("fixed:4096").is_none());
        assert_eq!(worth("adaptive:4096").unwrap().minpulse(1 << 20), 4096);
        let mut measured = worth("adaptive").unwrap();
        let before = measured.minpulse(1 << 20);
        for bytes in [64, 65_000] {
            measured.observe(bytes, 20_000 + bytes / 10);
        }
        assert!(measured.minpulse(1 << 20) > before, "the dearer a batch, the longer");
    }

    #[test]
    fn any_numbers_leave_room_for_something() {
        for ahead in [0, 1, u64::MAX] {
            for (body, full, most) in [(0, 0, 1), (1, 49, 49), (usize::MAX, usize::MAX, 65_000)] {
                let mut pulses = Pulses::default();
                pulses.begin(ahead, &Worth::Named(1));
                let bytes = pulses.next(ahead, (body, full), most);
                assert!(bytes <= most && (bytes > 0 || full == 0), "{ahead} {body} {full} {most}");
            }
        }
    }
}
