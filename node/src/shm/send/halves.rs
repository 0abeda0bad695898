//! Short payloads by halves, where that is quicker.

use std::num::NonZeroU64;

use cutthrough_engine::rivals::{Go, Rival, Rivals};
use cutthrough_engine::time::Instant;

use crate::clock;

/// Bytes from which a short payload may go by halves: below, the second look at the counter takes longer than half of
/// it.
const LEAST: usize = 1024;

/// One way is taken if it saves a twentieth of a whole round trip, of which it is a part.
const CLEARLY: NonZeroU64 = NonZeroU64::new(20).unwrap();

/// Whether a payload that somebody waits for shall be seen by halves: then its first half is taken out while the second
/// one is copied in, but another cache line has to change hands. Where cores are near to each other that is quicker
/// for all of them; where they are far it depends on the length, and on how this processor copies. So both are tried,
/// and what counts is how long it takes until the next such payload, with an answer in between.
#[derive(Debug)]
pub(in crate::shm) struct Halves {
    rivals: Rivals,
    /// The last payload, if it belongs to a trial.
    tried: Option<(usize, Rival, Instant)>,
}

impl Default for Halves {
    fn default() -> Self {
        Self { rivals: Rivals::new(CLEARLY), tried: None }
    }
}

impl Halves {
    /// How much of a payload of `bytes` bytes, before which an answer has come, is to be seen at first.
    #[inline]
    pub(super) fn first(&mut self, bytes: usize) -> usize {
        let tried = self.tried.take();
        if bytes < LEAST {
            // What was tried before has lasted until now, and another payload belongs to it.
            return bytes;
        }
        let Go { rival, timed } = self.rivals.next(bytes as u64);
        if timed || tried.is_some() {
            self.time(tried, timed.then_some((bytes, rival)));
        }
        match rival {
            Rival::First => bytes.div_ceil(2),
            Rival::Second => bytes,
        }
    }

    #[cold]
    fn time(&mut self, before: Option<(usize, Rival, Instant)>, now: Option<(usize, Rival)>) {
        let time = clock::now();
        if let Some((bytes, rival, since)) = before {
            self.rivals.took(bytes as u64, rival, time.saturating_since(since));
        }
        self.tried = now.map(|(bytes, rival)| (bytes, rival, time));
    }

    /// Nothing has come since the last payload: how long that took says nothing.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.tried = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_seen_whole_or_by_halves_and_both_are_tried() {
        let mut halves = Halves::default();
        let seen: Vec<usize> = (0..1000).map(|_| halves.first(4097)).collect();
        assert!(seen.iter().all(|seen| [2049, 4097].contains(seen)));
        assert!([2049, 4097].iter().all(|way| seen.contains(way)));
        assert!((0..1000).all(|_| halves.first(LEAST - 1) == LEAST - 1));
    }

    #[test]
    fn what_comes_in_between_belongs_to_no_trial() {
        let mut halves = Halves::default();
        let mut in_trial = |between: fn(&mut Halves)| {
            while halves.tried.is_none() {
                halves.first(4096);
            }
            between(&mut halves);
            assert!(halves.tried.is_none());
        };
        in_trial(|halves| assert_eq!(halves.first(10), 10));
        in_trial(Halves::forget);
    }
}
