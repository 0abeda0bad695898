//! Landing pages that are laid out before payloads come for them: from pages, naming no place, where none is posted.
//!
//! Such a payload gets its pages when its opening has come, and its first frames with it, which are all of a short one.
//! When two had as many, pages for those that one train may bring are taken before they come, and guessed at as if
//! they were posted. Nobody has asked for these, so they are the first to go when landing pages run short. Pages in the
//! memory of a ring are not laid out: there they would be held as long as frames may land in them, and it is no faster.

use std::collections::VecDeque;

use cutthrough_engine::net::memory::Place as _;

use super::memory::{Spot, Store};

/// Bytes that one train may bring, about. Of what comes behind the first train of a longer payload it is known where it
/// goes.
const TRAIN: usize = 64 << 10;
/// Payloads of which it may bring all, at most, for which pages are laid out.
const MOST: usize = 64;

/// Pages that are laid out.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Runs of `run` bytes, the next one first.
    pub(super) runs: VecDeque<Spot>,
    /// Bytes of the pages that the next payload takes, and how many such a train may bring; none if that is not known.
    run: usize,
    most: usize,
    /// Bytes of those that the last one took.
    last: usize,
    /// Whether there were no more of them, and none have come back since.
    short: bool,
}

impl Ahead {
    /// Landing pages have come back.
    pub(super) const fn came_back(&mut self) {
        self.short = false;
    }

    /// Gives those away that are not what the next payload takes. Not while a train is taken in: parts of it may have
    /// landed there, and be copied from there.
    pub(super) fn turn_over(&mut self) {
        self.runs.retain(|run| run.len() == self.run);
    }

    /// Gives all of them away, for others. Whether there were any.
    pub(super) fn give_way(&mut self) -> bool {
        !std::mem::take(&mut self.runs).is_empty()
    }

    /// There are no more of them than somebody has asked for.
    pub(super) const fn ran_short(&mut self) {
        self.short = true;
    }
}

impl Store {
    /// A payload of so many bytes has come from pages, and has named no place; or another one that has none (`None`).
    pub(super) fn expect_pages(&mut self, bytes: Option<usize>) {
        let run = bytes.map_or(0, |bytes| bytes.max(1).next_multiple_of(self.page_bytes()));
        let again = run == std::mem::replace(&mut self.ahead.last, run) && (1..=TRAIN).contains(&run) && !self.in_ring;
        self.ahead.run = if again { run } else { 0 };
        self.ahead.most = bytes.filter(|_| again).map_or(0, |bytes| (TRAIN / bytes.max(1)).min(MOST));
    }

    /// Lays out as many as one train may bring, once no others are laid out.
    pub(super) fn lay_out(&mut self) {
        let Ahead { runs, run, most, short, .. } = &mut self.ahead;
        if runs.front().is_some_and(|next| next.len() != *run) {
            return;
        }
        while runs.len() < *most && !*short {
            let page = self.landing.as_mut().and_then(|(landing, _)| landing.take(*run));
            *short = page.is_none();
            runs.extend(page.map(|page| Spot::Pages(page, *run)));
        }
    }

    /// The next of them, if it is what a payload of so many bytes takes; and what was guessed.
    pub(super) fn take_ahead(&mut self, bytes: usize) -> Option<Spot> {
        let run = bytes.max(1).next_multiple_of(self.page_bytes());
        let is_guessed = self.granted.is_empty() && self.free.is_empty();
        self.ahead.runs.pop_front_if(|next| is_guessed && next.len() == run)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cutthrough_engine::net::memory::{Memory as _, Placing, Want};
    use cutthrough_segment::page::{Filled, Waker};

    use super::super::memory::Stores;
    use super::*;
    use crate::config::Config;

    /// The memory of one channel, with so many landing pages of 4 KiB.
    fn stores(pages: u64) -> Stores {
        let config = Config { landing_bytes: pages * 4096, ..Config::default() };
        let (waker, filled) = (Arc::new(Waker::new().unwrap()), Arc::new(Filled::default()));
        Stores(vec![Some(Store::new(&config, &waker, (&filled, 0), 1))])
    }

    /// Where a payload goes that names no place, and whether that is what was guessed before.
    fn place(stores: &mut Stores, bytes: u32, pages: bool) -> Option<(Spot, bool)> {
        let guess = stores.guess(0).map(|spot| spot.piece(0, 1).as_ptr());
        match stores.place(0, &Want { bytes, token: None, pages }, std::iter::empty()) {
            Placing::Guessed(mut spot) => {
                assert_eq!(Some(spot.piece(0, 1).as_ptr()), guess);
                Some((spot, true))
            }
            Placing::Here(spot) => Some((spot, false)),
            Placing::Reader | Placing::Later | Placing::Refused(_) => None,
        }
    }

    /// Whether payloads of so many bytes land where it was guessed, of which each comes in a train of its own.
    fn are_guessed<const N: usize>(stores: &mut Stores, lens: [u32; N]) -> [bool; N] {
        lens.map(|bytes| {
            stores.get(0).expect("a channel").ahead.turn_over();
            place(stores, bytes, true).expect("a page").1
        })
    }

    /// Two that take as many pages are followed by others, whatever they have in those.
    #[test]
    fn pages_of_the_next_payload_are_guessed_when_two_were_alike() {
        let mut stores = stores(1000);
        let guessed = are_guessed(&mut stores, [100, 4096, 3000, 1, 4097, 8000, 8192]);
        assert_eq!(guessed, [false, false, true, true, false, false, true]);
        assert!(stores.guesses(0).count() > 5, "as many as a train may bring");
        // One from private memory, or one that is longer than a train.
        assert!(place(&mut stores, 8192, false).is_none());
        let guessed = are_guessed(&mut stores, [8192, 8192, 8192, 65_537, 65_537, 65_537]);
        assert_eq!(guessed, [false, false, true, false, false, false]);
        assert!(stores.guess(0).is_none());
    }

    /// What has landed in pages that its message does not get is copied from there: they stay until the train is over.
    #[test]
    fn what_was_guessed_stays_while_a_train_is_taken_in() {
        let mut stores = stores(1000);
        are_guessed(&mut stores, [4096; 3]);
        let guess = |stores: &mut Stores| stores.guess(0).map(|spot| spot.piece(0, 1).as_ptr());
        let before = guess(&mut stores);
        for (bytes, pages) in [(8192, true), (8192, true), (100, false)] {
            place(&mut stores, bytes, pages);
            assert_eq!((guess(&mut stores), before.is_some()), (before, true));
        }
        assert!(place(&mut stores, 4096, true).expect("a page").1, "one that it is for");
        stores.get(0).expect("a channel").ahead.turn_over();
        assert_eq!(guess(&mut stores), None);
    }

    /// What is laid out keeps nobody waiting: all landing pages can be had, by payloads and by whoever posts.
    #[test]
    fn what_is_laid_out_gives_way() {
        let mut stores = stores(8);
        let mut taken: Vec<Spot> = (0..3).map(|_| place(&mut stores, 4096, true).expect("a page").0).collect();
        assert_eq!(stores.guesses(0).count(), 5, "all that are left");
        taken.extend(place(&mut stores, 3 * 4096, true).map(|(spot, _)| spot));
        assert_eq!(taken.len(), 4, "three in a row");
        let store = stores.get(0).expect("a channel");
        assert!(store.post(2 * 4096) && !store.post(1), "all are taken");
        assert_eq!(stores.guesses(0).count(), 1, "what is posted");
    }
}
