//! Payloads that were handed over before they were there: what their reader does with them.

use alloc::vec::Vec;

use cutthrough_wire::token::Token;

use super::super::memory::Place;
use super::super::placing::Choice;
use super::arrival::Target;
use super::books::Entry;
use super::{Coming, Inbox, Reading, Story, copy};
use crate::time::Instant;

/// A payload that was handed over, was here whole when its channel ended, and has not been read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Number of its message.
    pub message: u64,
    /// How much of it was read.
    pub from: usize,
    /// The rest of it.
    pub bytes: Vec<u8>,
    /// What is known of it; the copy to its reader is among those that are counted.
    pub story: Story,
}

impl<P: Place> Inbox<P> {
    /// Copies what is new of a payload that is handed over into the reader's memory, which holds `valid` bytes of it by
    /// now, all that were read before: how many are valid then, and whether that is all. With `lend`, what comes from
    /// now on goes there directly.
    pub(in crate::net) fn read(
        &mut self,
        now: Instant,
        reading: &mut Reading<'_>,
        valid: usize,
        lend: bool,
    ) -> Option<(usize, bool)> {
        let at = self.handed(reading.message)?;
        let arrival = self.arriving.get_mut(at)?;
        let payload = arrival.opening.as_ref()?.payload;
        let (mut freed, mut given_up, mut brought) = (None, 0, 0);
        if let Target::Aside(aside) = &mut arrival.target {
            if lend {
                for (begin, end) in arrival.have.iter() {
                    let (begin, end) = ((begin as usize).max(aside.begin()), end as usize);
                    if begin < end {
                        copy(&mut reading.into[begin..end], aside.get(begin, end));
                    }
                }
                brought = arrival.have.bytes();
                freed = arrival.target.redirect(Target::Reader);
                self.lent = Some(reading.message);
            } else {
                (arrival.sought, arrival.read) = (true, now);
                let front = arrival.have.front() as usize;
                let new = valid.clamp(aside.begin(), front)..front;
                copy(&mut reading.into[new.clone()], aside.get(new.start, new.end));
                given_up = aside.give_up(front);
                brought = u32::try_from(new.len()).unwrap_or(u32::MAX);
            }
            arrival.brought(brought);
        }
        let front = arrival.have.front();
        self.mended += u64::from(brought);
        self.aside -= given_up as u64;
        self.free_aside(freed);
        self.book(reading.message);
        Some((front as usize, front >= payload))
    }

    /// Whether a payload that was handed over may still be read.
    pub(in crate::net) fn is_read(&self) -> bool {
        self.arriving.iter().any(|arrival| !matches!(arrival.target, Target::Away))
    }

    /// Takes the payloads out that were handed over, are here whole, and have not been read.
    pub(in crate::net) fn take_left(&mut self) -> Vec<Left> {
        let left = core::mem::take(&mut self.arriving).into_iter().filter_map(|arrival| {
            let (story, front) = (arrival.story(), arrival.have.front());
            let times = story.times.max(arrival.laid + 1);
            let Target::Aside(aside) = arrival.target else { return None };
            let (from, bytes) = aside.into_parts();
            let story = Story { copied: story.bytes, times, choice: Choice::default(), ..story };
            (front >= story.bytes).then_some(Left { message: arrival.number, from, bytes, story })
        });
        left.collect()
    }

    /// Takes the places out that tokens have named, and whose messages cannot be handed over any more: with their
    /// tokens.
    pub(in crate::net) fn take_begun(&mut self) -> Vec<(Token, P)> {
        let begun = core::mem::take(&mut self.window).into_iter().filter_map(|coming| {
            let Coming::Loaded(arrival) = coming else { return None };
            let (Target::Place(place), Some(opening)) = (arrival.target, arrival.opening) else { return None };
            opening.token.map(|token| (token, place))
        });
        begun.collect()
    }

    /// A payload has been read, or will not be: forgets it.
    pub(in crate::net) fn forget(&mut self, number: u64) -> Option<Story> {
        let position = self.handed(number)?;
        let arrival = &mut self.arriving[position];
        let story = arrival.story();
        let already = matches!(arrival.target, Target::Away);
        if !already {
            self.released += arrival.opening.as_ref().map_or(0, |opening| u64::from(opening.unasked));
            self.payload_bytes += u64::from(arrival.have.front());
        }
        let whole = arrival.have.front() >= story.bytes;
        let left = arrival.target.redirect(Target::Away);
        if !whole && !arrival.wants_no_more {
            // It stays known until the sender has heard of it: see `bury`.
            arrival.wants_no_more = true;
            self.unwanted.push(number);
        }
        let entry = arrival.entry;
        self.free_aside(left);
        if whole {
            self.arriving.remove(position);
            self.books.change(number, entry, Entry::default());
        } else {
            self.book(number);
        }
        if already || !whole {
            self.count_away();
        }
        Some(story)
    }

    /// Nobody takes anything any more: throws away what has come, and lets the sender know of payloads that were asked
    /// for or wait to be. It could never end the channel else, and would hold a place among those that are admitted.
    pub(in crate::net) fn throw_away(&mut self) {
        self.closed = true;
        let unread: Vec<u64> = self.handed_over().map(|arrival| arrival.number).collect();
        for number in unread {
            self.forget(number);
        }
        let coming = self.window.iter_mut().filter_map(Coming::loaded_mut);
        for arrival in coming.filter(|arrival| !matches!(arrival.target, Target::Away)) {
            let Some(opening) = &arrival.opening else { continue };
            arrival.later = false;
            if let Some(aside) = arrival.target.redirect(Target::Away) {
                self.aside -= aside.len() as u64;
            }
            if arrival.have.front() < opening.payload && !arrival.wants_no_more {
                arrival.wants_no_more = true;
                self.unwanted.push(arrival.number);
            }
        }
        for number in self.next..self.next + self.window.len() as u64 {
            self.book(number);
        }
        self.advance();
    }

    /// The sender has heard what was told in frame `note`: that less may come unasked; and forgets payloads that were
    /// thrown away and told there.
    pub(in crate::net) fn bury(&mut self, note: u64) {
        self.heard_less(note);
        if !self.told_early.is_empty() {
            let mut early = core::mem::take(&mut self.told_early);
            early.retain(|number| {
                let Some(arrival) = self.known(*number).filter(|arrival| !arrival.heard) else { return false };
                arrival.heard = arrival.told == Some(note);
                !arrival.heard && *number >= self.next
            });
            self.told_early = early;
        }
        if self.away == 0 {
            return;
        }
        // Of what is thrown away the books say nothing.
        self.arriving.retain(|arrival| !matches!(arrival.target, Target::Away) || arrival.told != Some(note));
        self.count_away();
    }

    fn count_away(&mut self) {
        self.away = self.handed_over().filter(|arrival| matches!(arrival.target, Target::Away)).count() as u64;
    }
}
