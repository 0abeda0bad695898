//! How much may come: messages, bytes unasked, bytes that lie aside.

use cutthrough_wire::frame::{Limits, low};

use super::super::memory::Place;
use super::Inbox;
use crate::time::Instant;

impl<P: Place> Inbox<P> {
    /// How far the other side may go now. If it is said in a frame that is acknowledged, or found lost (`heard`), it
    /// counts as told.
    pub(in crate::net) fn limits(&mut self, heard: bool) -> Limits {
        self.upto = self.messages();
        self.credit = self.unasked_upto();
        self.believed = self.believed.max(self.credit);
        self.granted_once = self.granted_once.max(self.credit);
        let limits = Limits { messages: low(self.upto), unasked: low(self.credit) };
        self.told = if heard { limits } else { self.told };
        limits
    }

    /// Up to which number messages may come. What is kept of payloads that were thrown away counts as messages that
    /// were not taken: who never hears of it cannot make this side keep more and more.
    fn messages(&self) -> u64 {
        self.upto.max((self.taken + self.slots).saturating_sub(self.away))
    }

    /// What is kept of payloads that were thrown away.
    pub(in crate::net) const fn thrown_away(&self) -> u64 {
        self.away
    }

    /// Up to where bytes may come unasked, as is told next. What was told once is not taken back, but by
    /// [`Inbox::withdraw`].
    fn unasked_upto(&self) -> u64 {
        self.credit.max(self.released + self.allowance)
    }

    /// Bytes that may be on their way unasked, or lie here: also those that were taken back, as long as the other side
    /// may not have heard of that.
    pub(in crate::net) fn unasked(&self) -> u64 {
        self.unasked_upto().max(self.believed) - self.released
    }

    /// Takes back what may come unasked beyond so many bytes. Only where all has come and been taken that was sent, as
    /// far as is known: what is on its way all the same is taken in. Whether there is anything to take back, and the
    /// other side is to be told.
    pub(in crate::net) fn withdraw(&mut self, allowance: u64) -> bool {
        let upto = self.released + allowance;
        if self.used != self.released || upto >= self.credit {
            return false;
        }
        self.allow(allowance);
        self.credit = upto;
        self.lowers = Some(None);
        true
    }

    /// Counts this channel among the active ones. False if it was counted already, since all were looked at.
    pub(in crate::net) fn joins_active(&mut self, looked: Instant) -> bool {
        self.active.replace(looked) != Some(looked)
    }

    /// Bytes that were taken back, and that a peer which breaks the rules might still send.
    pub(in crate::net) fn withdrawn(&self) -> u64 {
        self.granted_once - self.granted_once.min(self.unasked_upto())
    }

    /// The frame `note` tells of the limits as they are.
    pub(in crate::net) fn tells_less(&mut self, note: u64) {
        self.lowers = self.lowers.map(|by| Some(by.unwrap_or(note)));
    }

    /// The other side has heard what the frame `note` has told.
    pub(super) fn heard_less(&mut self, note: u64) {
        if self.lowers.flatten().is_some_and(|first| note >= first) {
            (self.lowers, self.believed) = (None, self.credit);
        }
    }

    /// Lets so many bytes be on their way unasked, or lie here, from now on; once what was allowed before is used up,
    /// if that was more.
    pub(in crate::net) fn allow(&mut self, allowance: u64) {
        let window = self.window();
        (self.allowance, self.widest) = (allowance, self.widest.max(allowance));
        self.book_anew(window);
    }

    /// The way is so many times as long as one that is filled by what may lie here unasked: so many times as much may
    /// be asked for to come aside.
    pub(in crate::net) fn stretch(&mut self, times: u64) {
        let window = self.window();
        self.stretch = (times, self.stretch.1.max(times));
        self.book_anew(window);
    }

    /// How many times as much it has been at most.
    pub(in crate::net) const fn stretched(&self) -> u64 {
        self.stretch.1
    }

    /// What one payload adds to the books depends on the window, and on nothing else here, if that is another one now.
    fn book_anew(&mut self, window: u32) {
        if self.window() == window {
            return;
        }
        for at in 0..self.arriving.len() {
            if self.arriving[at].sought {
                self.book(self.arriving[at].number);
            }
        }
    }

    /// Whether the other side should hear of new limits: an eighth of the messages that it knows of has been taken, as
    /// over shared memory, or half of the bytes are free again.
    pub(in crate::net) fn limits_are_old(&self) -> bool {
        let messages = low(self.messages()).wrapping_sub(self.told.messages);
        let unasked = low(self.unasked_upto()).wrapping_sub(self.told.unasked);
        u64::from(messages) >= (self.slots / 8).max(1) || u64::from(unasked) >= (self.allowance / 2).max(1)
    }

    /// Bytes of a payload that may come before its opening: those that may be sent unasked, twice over.
    pub(super) const fn early_max(&self) -> u64 {
        self.widest.saturating_mul(2)
    }

    /// Bytes that lie aside, and how many may at most: those that may be sent unasked, twice over for what came before
    /// its opening, and what was asked for of payloads without a place; and for each that is read from there what may
    /// be there beyond that, and as much again until it is given up; and all of those that make way.
    pub(in crate::net) fn aside(&self) -> (u64, u64) {
        let sought = self.handed_over().filter(|arrival| arrival.sought).count() as u64;
        let window = u64::from(self.window()) / self.stretch.0 * self.stretch.1;
        let asked = self.widest.saturating_mul(self.stretch.1);
        (self.aside, self.early_max() + asked + 2 * sought * window + self.books.relieved)
    }
}
