//! What the sender is told of payloads on their way: up to where they are granted, or that nothing more is wanted.

use alloc::vec::Vec;

use cutthrough_wire::frame::WANTS_NO_MORE;

use super::super::grants::{Due, Wanting};
use super::super::held::is_placed;
use super::super::memory::Place;
use super::arrival::{Arrival, Target};
use super::books::read_upto;
use super::{Coming, Inbox};
use crate::time::Instant;

/// Payloads among which it is chosen who is asked for more, of each kind.
const LOOKED: usize = 16;

/// How many times as long a payload that is read piece by piece waits until its reader goes on.
const READ_PATIENCE: u64 = 50;

impl<P> Arrival<P> {
    /// When it makes way, if nothing has come of it then for `still_ns` nanoseconds; nor was read, for much longer.
    fn relieves_at(&self, still_ns: u64) -> Instant {
        let still = self.ended.after(still_ns);
        if self.sought { still.max(self.read.after(still_ns.saturating_mul(READ_PATIENCE))) } else { still }
    }

    /// What is to come of it, if it was asked for more than its opening has said.
    fn due(&self) -> Option<Due> {
        let opening = self.opening.as_ref().filter(|_| !self.wants_no_more)?;
        let came = self.have.bytes();
        let missing = self.granted.saturating_sub(came).min(self.granted.saturating_sub(opening.unasked));
        (missing > 0).then_some(Due { came, missing })
    }
}

impl<P: Place> Inbox<P> {
    /// Payloads of which more is wanted than was granted, in their order: the first of those that have memory, or are
    /// read from where they lie, and, if there is room for them, the first of the others.
    pub(in crate::net) fn wanting(&self) -> impl Iterator<Item = Wanting> + '_ {
        #[cfg(debug_assertions)]
        debug_assert!(self.are_booked(), "the books are out of date");
        let room = self.room();
        let mut placed = self.books.placed.iter().take(LOOKED).peekable();
        let mut aside = self.books.aside.iter().take(if room > 0 { LOOKED } else { 0 }).peekable();
        let numbers = core::iter::from_fn(move || match (placed.peek(), aside.peek()) {
            (Some(first), Some(second)) if first < second => placed.next(),
            (Some(_), None) => placed.next(),
            _ => aside.next(),
        });
        // Whose reader waits is among them, however many have memory beside it.
        let lent = self.lent.filter(|lent| matches!(self.books.placed.binary_search(lent), Ok(LOOKED..)));
        numbers.copied().chain(lent).filter_map(move |number| {
            let arrival = self.known_now(number)?;
            let payload = arrival.opening.as_ref()?.payload;
            let most = match &arrival.target {
                Target::Place(_) | Target::Reader => payload,
                Target::Aside(_) if arrival.relieved => payload,
                Target::Aside(aside) if arrival.sought => payload.min(read_upto(aside, self.window())),
                Target::Aside(_) | Target::Away => payload.min(arrival.granted.saturating_add(room)),
            };
            let Arrival { number: message, begun, granted, sought, .. } = *arrival;
            let read = matches!(arrival.target, Target::Reader);
            Some(Wanting { message, begun, have: arrival.have.front(), granted, most, payload, sought, read })
        })
    }

    /// This side waits until others have taken what it sends, and they may wait for it in the same way: payloads that
    /// nobody reads come aside, whole, as far as there is `room` for them, which they take. Those that would make way
    /// later only ([`Arrival::relieves_at`]) are left alone: their readers may be about to come.
    pub(in crate::net) fn relieve(&mut self, now: Instant, still_ns: u64, room: &mut u64) {
        let is_still = |arrival: &&Arrival<P>| arrival.relieves_at(still_ns) <= now;
        let numbers: Vec<u64> = self.unread().filter(is_still).map(|arrival| arrival.number).collect();
        for number in numbers {
            let Some(arrival) = self.known(number) else { continue };
            let bytes = arrival.opening.as_ref().map_or(0, |opening| u64::from(opening.payload));
            if let Some(rest) = room.checked_sub(bytes) {
                *room = rest;
                arrival.relieved = true;
                self.book(number);
            }
        }
    }

    /// Bytes of payloads that make way.
    pub(in crate::net) const fn relieved(&self) -> u64 {
        self.books.relieved
    }

    /// Whether payloads may wait for a reader.
    pub(in crate::net) const fn has_unread(&self) -> bool {
        self.books.unread > 0
    }

    /// Payloads that may wait for a reader.
    fn unread(&self) -> impl Iterator<Item = &Arrival<P>> {
        let all = self.handed_over().chain(self.window.iter().filter_map(Coming::loaded));
        all.filter(|arrival| arrival.entry.unread()).take(self.books.unread)
    }

    /// When each payload that may wait for a reader makes way, if nothing comes of it before.
    pub(in crate::net) fn relieves_at(&self, still_ns: u64) -> impl Iterator<Item = Instant> + '_ {
        self.unread().map(move |arrival| arrival.relieves_at(still_ns))
    }

    /// Whether there are any, with or without room.
    pub(in crate::net) fn wants_more(&self) -> bool {
        !self.books.placed.is_empty() || !self.books.aside.is_empty()
    }

    /// What is to come of a payload that was asked for; none if nothing is.
    pub(in crate::net) fn due(&self, number: u64) -> Option<Due> {
        self.known_now(number)?.due()
    }

    /// Bytes that were asked for, of all payloads, and have not come.
    pub(in crate::net) fn asked(&self) -> u64 {
        let all = self.window.iter().filter_map(Coming::loaded).chain(self.handed_over());
        all.filter_map(Arrival::due).map(|due| u64::from(due.missing)).sum()
    }

    /// Places that payloads have got and that were not taken.
    pub(in crate::net) fn places(&self) -> usize {
        let all = self.window.iter().filter_map(Coming::loaded).chain(self.handed_over());
        let placed = all.filter(|arrival| matches!(arrival.target, Target::Place(_)));
        placed.count() + self.ready.iter().filter(|ready| is_placed(ready)).count()
    }

    /// Bytes that may still be asked for to come aside.
    fn room(&self) -> u32 {
        let room = (self.allowance * self.stretch.0).saturating_sub(self.books.asked);
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// Up to where a payload may be granted that was to be up to `upto`: others that were chosen beside it may have
    /// taken the room; and what is not all of it ends with a full frame, if one fits. `None` if that is no more than
    /// it was.
    pub(in crate::net) fn may_be_granted(&self, number: u64, upto: u32) -> Option<u32> {
        let arrival = self.known_now(number)?;
        let takes_room = matches!(arrival.target, Target::Aside(_)) && !arrival.relieved && !arrival.sought;
        let most = if takes_room { arrival.granted.saturating_add(self.room()) } else { u32::MAX };
        let (upto, full) = (upto.min(most), u32::try_from(self.sender_full).unwrap_or(0));
        let more = upto.checked_sub(arrival.granted).filter(|more| *more > 0)?;
        let all = arrival.opening.as_ref().is_some_and(|opening| upto >= opening.payload);
        let whole = more.checked_div(full).map_or(0, |frames| frames * full);
        Some(if all || whole == 0 { upto } else { arrival.granted + whole })
    }

    /// Remembers a grant.
    pub(in crate::net) fn granted(&mut self, number: u64, upto: u32) {
        if let Some(arrival) = self.known(number) {
            arrival.granted = arrival.granted.max(upto);
            self.book(number);
        }
    }

    /// Grants that are not used up, and payloads of which nothing more is wanted.
    pub(in crate::net) fn outstanding(&self) -> Vec<(u64, u32)> {
        let coming = self.window.iter().filter_map(Coming::loaded);
        let told = |arrival: &Arrival<P>| {
            let opening = arrival.opening.as_ref()?;
            if arrival.wants_no_more {
                return Some((arrival.number, WANTS_NO_MORE));
            }
            let open = arrival.granted > opening.unasked && arrival.have.front() < arrival.granted;
            open.then_some((arrival.number, arrival.granted))
        };
        coming.chain(self.handed_over()).filter_map(told).collect()
    }

    /// Numbers of payloads of which nothing more is wanted.
    pub(in crate::net) fn take_unwanted(&mut self) -> Vec<u64> {
        core::mem::take(&mut self.unwanted)
    }

    /// The sender is told in frame `note` that nothing more is wanted of a payload.
    pub(in crate::net) fn tells(&mut self, message: u64, note: u64) {
        let early = message >= self.next;
        let Some(arrival) = self.known(message) else { return };
        arrival.told = Some(note);
        if early && !self.told_early.contains(&message) {
            self.told_early.push(message);
        }
    }

    pub(in crate::net) fn tells_unwanted(&self) -> bool {
        !self.unwanted.is_empty()
    }
}
