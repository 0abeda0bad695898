//! What follows from all payloads on their way together, kept up with each of them, so that nobody looks at a thousand
//! that wait to find the one that moves.

use alloc::collections::VecDeque;

use super::super::memory::Place;
use super::Inbox;
use super::arrival::{Arrival, Target};
use super::aside::Aside;

/// Bytes of a payload that is read from where it lies aside which may be there beyond what was read: as many as this
/// side may be sent unasked, within these bounds; on a long way as many more as there are ways of 10 ms in it. It has
/// them to itself, or it would wait for what nobody reads; their reader has memory for all of them.
const WINDOW: (u64, u64) = (64 << 10, 1 << 20);

/// What one payload adds to the books.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Entry {
    /// Bytes of it that were asked for and lie aside, or may come there.
    asked: u64,
    /// Bytes of it that lie aside and came unasked, unless they have memory of their own there.
    lies: u64,
    /// Bytes that it may have aside because it makes way for who waits.
    relieved: u64,
    /// Whether more of it is wanted than was granted; and where that goes.
    wants: Option<Wants>,
    /// Whether it waits for a place, and whether that is named by a token.
    later: Option<bool>,
    /// Whether it may wait for a reader: it has no place, and not all of it was asked for.
    unread: bool,
}

impl Entry {
    /// Whether it may wait for a reader.
    pub(super) const fn unread(self) -> bool {
        self.unread
    }
}

/// Where more of a payload goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wants {
    /// To memory that it has, or aside for a reader that takes it from there.
    Placed,
    /// Aside, as far as there is room.
    Aside,
}

/// The sums, and who is meant.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// Bytes that were asked for and lie aside, or may come there, but for payloads that have memory of their own
    /// there: they are read from there, or make way. What came unasked is not among them, for it may be of later
    /// payloads: the one that is to be read next would wait until it is read to be asked for.
    pub(super) asked: u64,
    /// Bytes that lie aside and came unasked, but for the same.
    pub(super) lies: u64,
    /// Bytes of payloads that make way.
    pub(super) relieved: u64,
    /// Messages of which more is wanted, by rising number: those that have memory or are read, and the others.
    pub(super) placed: VecDeque<u64>,
    pub(super) aside: VecDeque<u64>,
    /// How many wait for a place, and how many of those for one that is named.
    pub(super) later: usize,
    pub(super) named: usize,
    /// How many may wait for a reader.
    pub(super) unread: usize,
}

impl Books {
    /// What message `number` adds is `now`, and was `before`.
    pub(super) fn change(&mut self, number: u64, before: Entry, now: Entry) {
        self.asked = self.asked + now.asked - before.asked;
        self.lies = self.lies + now.lies - before.lies;
        self.relieved = self.relieved + now.relieved - before.relieved;
        if now.wants != before.wants {
            self.list(before.wants).into_iter().for_each(|list| strike(list, number));
            self.list(now.wants).into_iter().for_each(|list| enter(list, number));
        }
        let (was, is) = (before.later, now.later);
        self.later = self.later + usize::from(is.is_some()) - usize::from(was.is_some());
        self.named = self.named + usize::from(is == Some(true)) - usize::from(was == Some(true));
        self.unread = self.unread + usize::from(now.unread) - usize::from(before.unread);
    }

    /// Lets go of memory in which nothing lies.
    pub(super) fn settle_down(&mut self) {
        self.placed.shrink_to_fit();
        self.aside.shrink_to_fit();
    }

    const fn list(&mut self, wants: Option<Wants>) -> Option<&mut VecDeque<u64>> {
        match wants {
            None => None,
            Some(Wants::Placed) => Some(&mut self.placed),
            Some(Wants::Aside) => Some(&mut self.aside),
        }
    }
}

/// Puts a number where it belongs in a rising list: as a rule at its end.
pub(in crate::net) fn enter(list: &mut VecDeque<u64>, number: u64) {
    if list.back().is_none_or(|last| *last < number) {
        list.push_back(number);
    } else if let Err(at) = list.binary_search(&number) {
        list.insert(at, number);
    }
}

/// Takes a number out of a rising list: as a rule from its beginning.
pub(in crate::net) fn strike(list: &mut VecDeque<u64>, number: u64) {
    if list.front() == Some(&number) {
        list.pop_front();
    } else if let Ok(at) = list.binary_search(&number) {
        list.remove(at);
    }
    if list.is_empty() && list.capacity() > 64 {
        *list = VecDeque::new();
    }
}

impl<P> Arrival<P> {
    /// What it adds to the books, if so many bytes may lie aside for a reader.
    fn state(&self, window: u32) -> Entry {
        let lies = match &self.target {
            Target::Aside(aside) if !self.sought && !self.relieved => aside.len() as u64,
            Target::Aside(_) | Target::Place(_) | Target::Reader | Target::Away => 0,
        };
        let is_own = !matches!(self.target, Target::Aside(_)) || self.sought || self.relieved;
        let Some(opening) = &self.opening else { return Entry { lies, ..Entry::default() } };
        let asked = if is_own { 0 } else { u64::from(self.granted.saturating_sub(opening.unasked)) };
        let lies = lies.min(opening.unasked.into());
        let makes_way = self.relieved && matches!(self.target, Target::Aside(_));
        let relieved = if makes_way { u64::from(opening.payload) } else { 0 };
        let wants = match &self.target {
            _ if self.granted >= opening.payload || self.wants_no_more => None,
            Target::Place(_) | Target::Reader => Some(Wants::Placed),
            Target::Aside(_) if self.relieved => Some(Wants::Placed),
            Target::Aside(aside) if self.sought => {
                let most = read_upto(aside, window);
                let worth = most >= opening.payload || most.saturating_sub(self.granted) >= window / 2;
                worth.then_some(Wants::Placed)
            }
            Target::Aside(_) if !self.later => Some(Wants::Aside),
            Target::Aside(_) | Target::Away => None,
        };
        let more = self.granted < opening.payload && !self.wants_no_more;
        // What does not come from pages may be read from anywhere, whatever it waits for.
        let no_place = matches!(self.target, Target::Aside(_)) && (!self.later || !opening.pages);
        let unread = more && no_place && !self.relieved;
        Entry { asked, lies, relieved, wants, later: self.later.then_some(opening.token.is_some()), unread }
    }
}

/// Up to where bytes of a payload that is read from where it lies may come, if so many may lie there.
pub(super) fn read_upto(aside: &Aside, window: u32) -> u32 {
    u32::try_from(aside.begin()).unwrap_or(u32::MAX).saturating_add(window)
}

impl<P: Place> Inbox<P> {
    /// How many bytes of a payload may lie aside for a reader that takes them from there.
    pub(super) fn window(&self) -> u32 {
        u32::try_from(self.allowance.clamp(WINDOW.0, WINDOW.1) * self.stretch.0).unwrap_or(u32::MAX)
    }

    /// Brings the books up to date with a message that has changed.
    pub(super) fn book(&mut self, number: u64) {
        let window = self.window();
        let Some(arrival) = self.known(number) else { return };
        let now = arrival.state(window);
        let before = core::mem::replace(&mut arrival.entry, now);
        if now != before {
            self.books.change(number, before, now);
        }
    }

    /// Whether the books say what all payloads add to them.
    #[cfg(debug_assertions)]
    pub(super) fn are_booked(&self) -> bool {
        let all = || self.handed_over().chain(self.window.iter().filter_map(super::Coming::loaded));
        let mut books = Books::default();
        all().for_each(|arrival| books.change(arrival.number, Entry::default(), arrival.state(self.window())));
        let sums = |of: &Books| (of.asked, of.lies, of.relieved, of.later, of.named, of.unread);
        (sums(&books), &books.placed, &books.aside) == (sums(&self.books), &self.books.placed, &self.books.aside)
    }
}
