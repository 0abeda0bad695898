//! One message with a payload, on its way.

use alloc::boxed::Box;

use cutthrough_wire::frame::Opening;
use cutthrough_wire::slot::CONTROL_MAX;

use super::super::memory::Place;
use super::super::placing::Choice;
use super::super::spans::Spans;
use super::Inbox;
use super::aside::Aside;
use super::books::Entry;
use crate::time::Instant;
use crate::token::Refused;

/// Where a payload's bytes go.
#[derive(Debug)]
pub(super) enum Target<P> {
    /// Aside.
    Aside(Aside),
    /// To their place.
    Place(P),
    /// Into memory that is lent by a reader for the time of a call.
    Reader,
    /// Nowhere.
    Away,
}

impl<P> Target<P> {
    /// Bytes go there from now on: what lay aside before, which its owner is [to count](Inbox::free_aside).
    pub(super) fn redirect(&mut self, to: Self) -> Option<Aside> {
        match core::mem::replace(self, to) {
            Self::Aside(aside) => Some(aside),
            Self::Place(_) | Self::Reader | Self::Away => None,
        }
    }
}

/// What is known of a message that has not been handed over.
#[derive(Debug)]
pub(super) enum Coming<P> {
    Nothing,
    /// Its length, the way that it came by, and its bytes.
    Control(u8, u8, [u8; CONTROL_MAX]),
    Loaded(Box<Arrival<P>>),
}

impl<P> Coming<P> {
    /// Whether it may still ask for a place that nobody has named.
    pub(super) fn may_ask(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Control(..) => false,
            Self::Loaded(arrival) => match &arrival.opening {
                None => true,
                Some(opening) => arrival.later && opening.token.is_none(),
            },
        }
    }

    pub(super) const fn loaded_mut(&mut self) -> Option<&mut Box<Arrival<P>>> {
        match self {
            Self::Loaded(arrival) => Some(arrival),
            Self::Nothing | Self::Control(..) => None,
        }
    }

    pub(super) const fn loaded(&self) -> Option<&Arrival<P>> {
        match self {
            Self::Loaded(arrival) => Some(arrival),
            Self::Nothing | Self::Control(..) => None,
        }
    }
}

/// What is known of a message's payload when it is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Story {
    /// Bytes of the payload.
    pub bytes: u32,
    /// Frames that carried it so far.
    pub frames: u32,
    /// Bytes that were copied after they had arrived, because their place was not guessed.
    pub copied: u32,
    /// How often a byte of it was copied since it had arrived, at most.
    pub times: u32,
    /// When its first frame came.
    pub begun: Instant,
    /// When the last one came so far.
    pub ended: Instant,
    /// By which way its last frame came.
    pub way: u8,
    /// How payloads were placed that came by a ring when its first frame came.
    pub choice: Choice,
}

/// A message with a payload, on its way.
#[derive(Debug)]
pub(super) struct Arrival<P> {
    pub(super) number: u64,
    pub(super) opening: Option<Box<Opening>>,
    pub(super) target: Target<P>,
    /// Whether somebody has read what was there of it, and lay aside: more is asked for as that goes on.
    pub(super) sought: bool,
    /// When that was last.
    pub(super) read: Instant,
    /// Whether all of it comes aside, read or not, because somebody waits until it has come.
    pub(super) relieved: bool,
    pub(super) have: Spans,
    /// Where the frame ended that came last.
    pub(super) last: u32,
    /// Up to where bytes were allowed: unasked, then granted.
    pub(super) granted: u32,
    /// Bytes that were copied after they had arrived, as opposed to received where they belong.
    pub(super) copied: u32,
    /// How often bytes were that are where they belong, and those that lie aside, at most.
    pub(super) times: u32,
    pub(super) laid: u32,
    pub(super) frames: u32,
    pub(super) way: u8,
    pub(super) choice: Choice,
    pub(super) begun: Instant,
    pub(super) ended: Instant,
    pub(super) refused: Option<Refused>,
    /// Whether the place has to be asked for again.
    pub(super) later: bool,
    pub(super) wants_no_more: bool,
    /// The frame in which the sender was last told so, and whether it has heard of it.
    pub(super) told: Option<u64>,
    pub(super) heard: bool,
    /// What the books say of it.
    pub(super) entry: Entry,
}

impl<P> Arrival<P> {
    pub(super) fn story(&self) -> Story {
        let bytes = self.opening.as_ref().map_or(0, |opening| opening.payload);
        let Self { frames, copied, times, begun, ended, way, choice, .. } = *self;
        Story { bytes, frames, copied, times, begun, ended, way, choice }
    }

    /// So many bytes are here now, to be counted as copied if they were `copied` to where they belong; so often they
    /// had been copied before.
    pub(super) fn took(&mut self, bytes: u32, copied: bool, before: u32) {
        if bytes > 0 && copied {
            self.copied += bytes;
            self.times = self.times.max(before + 1);
        } else if matches!(self.target, Target::Aside(_)) {
            self.laid = self.laid.max(before + 1);
        }
    }

    /// So many bytes that lay aside are copied to where they belong.
    pub(super) fn brought(&mut self, bytes: u32) {
        if bytes > 0 {
            self.copied += bytes;
            self.times = self.times.max(self.laid + 1);
        }
    }

    /// The first gap behind the frame that came last, among the bytes that were allowed: there the next one continues,
    /// whatever was lost before it.
    pub(super) fn ahead(&self) -> Option<(u32, u32)> {
        let payload = self.opening.as_ref()?.payload;
        let (begin, end) = self.have.gap_from(self.last);
        (begin < payload && begin < self.granted).then(|| (begin, end.unwrap_or(payload)))
    }
}

impl<P: Place> Inbox<P> {
    pub(super) fn handed_over(&self) -> impl Iterator<Item = &Arrival<P>> {
        self.arriving.iter().map(|arrival| &**arrival)
    }

    /// As [`Inbox::known`], to look at.
    pub(super) fn known_now(&self, number: u64) -> Option<&Arrival<P>> {
        if number < self.next {
            return self.arriving.get(self.handed(number)?).map(|boxed| &**boxed);
        }
        let index = usize::try_from(number - self.next).ok()?;
        self.window.get(index).and_then(Coming::loaded)
    }

    /// Where a message is among those handed over: by rising number they are, and as a rule it is the first.
    pub(super) fn handed(&self, number: u64) -> Option<usize> {
        match self.arriving.first() {
            Some(first) if first.number == number => Some(0),
            _ => self.arriving.binary_search_by_key(&number, |arrival| arrival.number).ok(),
        }
    }

    /// Whether bytes of a message that lie aside can be taken in for sure, with its reader there or not.
    pub(in crate::net) fn takes(&self, number: u64, reading: bool) -> bool {
        let arrival = self.known_now(number).filter(|arrival| arrival.opening.is_some());
        arrival.is_some_and(|arrival| reading || !matches!(arrival.target, Target::Reader))
    }

    pub(super) fn known(&mut self, number: u64) -> Option<&mut Arrival<P>> {
        if number < self.next {
            let at = self.handed(number)?;
            return self.arriving.get_mut(at).map(|boxed| &mut **boxed);
        }
        let index = usize::try_from(number - self.next).ok()?;
        match self.window.get_mut(index) {
            Some(Coming::Loaded(arrival)) => Some(arrival),
            _ => None,
        }
    }

    /// These bytes lie aside no more: the next ones may lie where they did.
    pub(super) fn free_aside(&mut self, aside: Option<Aside>) {
        let Some(aside) = aside else { return };
        self.aside -= aside.len() as u64;
        // So much may come unasked, and as much again that was asked for.
        self.spare.keep(aside, 2 * self.allowance);
    }
}
