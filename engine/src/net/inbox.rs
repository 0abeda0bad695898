//! The receiving side of a channel: messages in their order, once, each when its payload allows it.
//!
//! A payload goes straight to its place as soon as its opening says which that is. Bytes that come before, and payloads
//! that wait for a reader, lie aside: never more than this side has allowed to be sent unasked, or has granted.

mod arrival;
mod aside;
mod asked;
pub(super) mod books;
mod bytes;
mod handing;
mod landing;
mod limits;
mod reader;
mod taking;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use cutthrough_wire::frame::{Limits, OPENING_BYTES, Opening, low};
use cutthrough_wire::slot::{CONTROL_MAX, PAYLOAD_MAX};

pub use self::arrival::Story;
use self::arrival::{Arrival, Coming, Target};
use self::aside::{Aside, Spare};
use self::books::{Books, Entry};
pub(super) use self::bytes::Bytes;
pub use self::reader::Left;
use super::memory::{Memory, Place, Placing, Want};
use super::placing::Choice;
use super::spans::Spans;
use crate::check::Breach;
use crate::time::Instant;
use crate::token::Refused;

/// A message to be handed over.
#[derive(Debug)]
pub struct Ready<P> {
    /// Bytes of the control message.
    pub control_len: u8,
    /// The control message.
    pub control: [u8; CONTROL_MAX],
    /// By which way it came; of one with a payload, its story says more.
    pub way: u8,
    /// Its payload.
    pub payload: ReadyPayload<P>,
}

/// The payload of a message that is handed over.
#[derive(Debug)]
pub enum ReadyPayload<P> {
    /// There is none.
    None,
    /// All of it lies here.
    Landed(P, Story),
    /// It is on its way: ask for it by this number.
    Arriving(u64, Story),
    /// It was dropped.
    Refused(Refused, Story),
}

/// Memory lent by a reader, and the message that it is for.
#[derive(Debug)]
pub struct Reading<'a> {
    /// Number of the message.
    pub message: u64,
    /// As long as its payload.
    pub into: &'a mut [u8],
}

/// The receiving side of a channel.
#[derive(Debug)]
pub(super) struct Inbox<P> {
    /// The next message to be handed over.
    next: u64,
    window: VecDeque<Coming<P>>,
    ready: VecDeque<Ready<P>>,
    /// Messages handed over whose payload is on its way or unread.
    arriving: Vec<Box<Arrival<P>>>,
    books: Books,
    /// Messages that the user has taken, and how many more may be on their way.
    taken: u64,
    slots: u64,
    /// Messages below this number may come: it has been told, and is never taken back.
    upto: u64,
    /// Messages whose payload is thrown away while its sender has not heard of that yet.
    away: u64,
    /// Unasked bytes whose memory is free again, and how many may be on their way or aside.
    released: u64,
    allowance: u64,
    /// The most that it has been so far.
    widest: u64,
    /// How many times as much may be asked for to come aside, since the way is long, and the most that it has been.
    stretch: (u64, u64),
    /// Up to where bytes may come unasked: as it was last told, as it may still be believed, and as it ever was.
    credit: u64,
    believed: u64,
    granted_once: u64,
    /// The frame that has told of less than was believed before, once there is one.
    lowers: Option<Option<u64>>,
    /// Unasked bytes of all openings so far: what the sender has used up.
    used: u64,
    /// Bytes aside, and memory for more of them.
    aside: u64,
    spare: Spare,
    /// Limits as they were last told in a frame that is acknowledged, or found lost.
    told: Limits,
    /// The message for which a reader has lent its memory last.
    lent: Option<u64>,
    pub(super) payload_bytes: u64,
    /// Bytes copied to where they belong, since somebody has asked.
    mended: u64,
    /// When bytes of a payload have come last that had not come before.
    pub(super) came: Instant,
    /// When all channels were looked at, at the last time that this one was found to be active, or became so since.
    active: Option<Instant>,
    /// By which way the frame comes that is taken in, and how often it was copied before.
    pub(super) by: u8,
    pub(super) before: u32,
    /// How payloads are placed that begin now, and those that have come whole since somebody has asked.
    pub(super) choice: Choice,
    pub(super) whole: Vec<Story>,
    /// Bytes of the body of a full frame, behind which its payload goes on; 0 if none has come. And of the last one of
    /// which it did.
    pub(super) full: usize,
    measured: usize,
    /// The same, by the last frame with an opening behind which more came unasked.
    sender_full: usize,
    /// Bytes of the last payload that was opened, and whether those of the one before were as many.
    last: (u32, bool),
    /// The message of which bytes have come last.
    latest: u64,
    /// Numbers of payloads of which nothing more is wanted, to be told; and of those that were told and are not handed
    /// over yet.
    unwanted: Vec<u64>,
    told_early: Vec<u64>,
    /// Whether nobody takes anything any more.
    closed: bool,
    /// Whether payloads are handed over with bytes missing.
    #[cfg(feature = "planted")]
    hasty: bool,
    /// Whether parts are taken that lie beyond their payload.
    #[cfg(feature = "planted")]
    boundless: bool,
}

impl<P: Place> Inbox<P> {
    /// Messages are numbered from `begin` on, and unasked bytes counted from there.
    pub(super) fn new(slots: u64, allowance: u64, begin: u64) -> Self {
        let limits = Limits { messages: low(begin + slots), unasked: low(begin + allowance) };
        Self {
            next: begin,
            window: VecDeque::new(),
            ready: VecDeque::new(),
            arriving: Vec::new(),
            books: Books::default(),
            taken: begin,
            slots,
            upto: begin + slots,
            away: 0,
            released: begin,
            allowance,
            widest: allowance,
            stretch: (1, 1),
            credit: begin + allowance,
            believed: begin + allowance,
            granted_once: begin + allowance,
            lowers: None,
            used: begin,
            aside: 0,
            spare: Spare::default(),
            told: limits,
            lent: None,
            payload_bytes: 0,
            mended: 0,
            came: Instant::default(),
            active: None,
            by: 0,
            before: 0,
            choice: Choice::default(),
            whole: Vec::new(),
            full: 0,
            measured: 0,
            sender_full: 0,
            last: (0, false),
            latest: begin,
            unwanted: Vec::new(),
            told_early: Vec::new(),
            closed: false,
            #[cfg(feature = "planted")]
            hasty: false,
            #[cfg(feature = "planted")]
            boundless: false,
        }
    }

    #[cfg(feature = "planted")]
    pub(super) fn plant(&mut self, bug: Option<super::Planted>) {
        self.hasty = bug == Some(super::Planted::Unwritten);
        self.boundless = bug == Some(super::Planted::Unbounded);
    }

    /// Messages received in order so far, handed over or not.
    pub(super) const fn received(&self) -> u64 {
        self.next
    }

    /// Whether everything before message `end` has been handed over to the queue of ready messages.
    pub(super) const fn is_complete(&self, end: u64) -> bool {
        self.next >= end
    }

    /// Bytes that were copied to where they belong since this was asked last, as stories say of each payload.
    pub(super) fn take_mended(&mut self) -> u64 {
        core::mem::take(&mut self.mended)
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether a frame with messages from `first` on, `count` of them, may be believed.
    fn bounds(&self, first: u64, count: u32) -> Result<(), Breach> {
        if first + u64::from(count) > self.upto { Err(Breach::Index) } else { Ok(()) }
    }

    fn slot(&mut self, number: u64) -> Option<&mut Coming<P>> {
        let index = usize::try_from(number.checked_sub(self.next)?).ok()?;
        while self.window.len() <= index {
            self.window.push_back(Coming::Nothing);
        }
        self.window.get_mut(index)
    }

    /// Control messages have come.
    #[inline]
    pub(super) fn records<'a>(
        &mut self,
        first: u64,
        count: u32,
        records: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), Breach> {
        self.bounds(first, count)?;
        let way = self.by;
        for (number, control) in (first..).zip(records) {
            let control_len = u8::try_from(control.len()).unwrap_or(0);
            if number == self.next && self.window.is_empty() {
                self.next += 1;
                let ready = Ready { control_len, control: [0; CONTROL_MAX], way, payload: ReadyPayload::None };
                self.ready.push_back(ready);
                // Copied once, to where it stays: what was just copied cannot be copied on at once.
                if let Some(ready) = self.ready.back_mut() {
                    ready.control[..control.len()].copy_from_slice(control);
                }
                continue;
            }
            if let Some(slot) = self.slot(number)
                && matches!(slot, Coming::Nothing)
            {
                let mut copied = [0; CONTROL_MAX];
                copied[..control.len()].copy_from_slice(control);
                *slot = Coming::Control(control_len, way, copied);
            }
        }
        self.advance();
        Ok(())
    }

    /// The arrival of a message that is on its way; a new one, if nothing was heard of it.
    fn arrival(&mut self, number: u64, now: Instant) -> Option<&mut Arrival<P>> {
        if number < self.next {
            let at = self.handed(number)?;
            return self.arriving.get_mut(at).map(|boxed| &mut **boxed);
        }
        let choice = self.choice;
        let slot = self.slot(number)?;
        if matches!(slot, Coming::Nothing) {
            *slot = Coming::Loaded(Box::new(Arrival {
                number,
                opening: None,
                target: Target::Aside(Aside::default()),
                sought: false,
                read: now,
                relieved: false,
                have: Spans::default(),
                last: 0,
                granted: 0,
                copied: 0,
                times: 0,
                laid: 0,
                frames: 0,
                way: 0,
                choice,
                begun: now,
                ended: now,
                refused: None,
                later: false,
                wants_no_more: false,
                told: None,
                heard: false,
                entry: Entry::default(),
            }));
        }
        match slot {
            Coming::Loaded(arrival) => Some(arrival),
            Coming::Nothing | Coming::Control(..) => None,
        }
    }

    /// A message's opening has come: asks for the place. Says whether the place is the guessed one.
    pub(super) fn open<M: Memory<Place = P>>(
        &mut self,
        number: u64,
        opening: Box<Opening>,
        channel: usize,
        memory: &mut M,
        now: Instant,
    ) -> Result<bool, Breach> {
        self.bounds(number, 1)?;
        // Who has not heard that it is less by now keeps the rules.
        let (credit, unasked) = (self.granted_once, u64::from(opening.unasked));
        let used = self.used;
        let Some(arrival) = self.arrival(number, now) else { return Ok(false) };
        if arrival.opening.is_some() {
            return Ok(false);
        }
        // Nothing can have been asked for before this.
        let most = opening.payload.min(opening.unasked);
        if used + unasked > credit || arrival.have.iter().last().is_some_and(|span| span.1 > most) {
            return Err(Breach::Length);
        }
        arrival.granted = arrival.granted.max(opening.unasked);
        let payload = opening.payload;
        let named = opening.token.is_some();
        arrival.opening = Some(opening);
        self.used += unasked;
        self.last = (payload, payload == self.last.0);
        // What is posted goes to the messages in their order: one whose opening was overtaken comes first.
        if !named && self.is_preceded(number) {
            if let Some(arrival) = self.arrival(number, now) {
                arrival.later = true;
            }
            self.book(number);
            return Ok(false);
        }
        Ok(self.ask(number, channel, memory))
    }

    /// Whether a message before this one may still ask for a place that nobody has named.
    fn is_preceded(&self, number: u64) -> bool {
        let before = usize::try_from(number.saturating_sub(self.next)).unwrap_or(usize::MAX);
        self.window.iter().take(before).any(Coming::may_ask)
    }

    /// Places that messages behind this one have got: by their tokens, for which nobody waits.
    fn places_behind(&self, number: u64) -> impl Iterator<Item = &P> {
        let first = usize::try_from((number + 1).saturating_sub(self.next)).unwrap_or(usize::MAX);
        self.window.iter().skip(first).filter_map(Coming::loaded).filter_map(|arrival| match &arrival.target {
            Target::Place(place) => Some(place),
            Target::Aside(_) | Target::Reader | Target::Away => None,
        })
    }

    /// Asks for the place of a message whose opening is there. True if it is the guessed one.
    fn ask<M: Memory<Place = P>>(&mut self, number: u64, channel: usize, memory: &mut M) -> bool {
        let (mut freed, mut brought, closed) = (None, 0, self.closed);
        let Some(arrival) = self.arrival(number, Instant::default()) else { return false };
        let Some(opening) = &arrival.opening else { return false };
        let is_bare = matches!(&arrival.target, Target::Aside(aside) if aside.is_bare());
        let want = Want { bytes: opening.payload, token: opening.token, pages: opening.pages };
        let placing = match closed {
            true => Placing::Refused(Refused::Wrong),
            false => memory.place(channel, &want, self.places_behind(number)),
        };
        let aside = if is_bare && matches!(placing, Placing::Reader | Placing::Later) {
            self.spare.aside(want.bytes)
        } else {
            Aside::default()
        };
        let Some(arrival) = self.arrival(number, Instant::default()) else { return false };
        arrival.later = false;
        let (placed, guessed) = match placing {
            Placing::Here(place) => (Some(place), false),
            Placing::Guessed(place) => (Some(place), true),
            Placing::Reader => (None, false),
            Placing::Later => {
                (arrival.later, arrival.choice) = (true, arrival.choice.unmeasured());
                (None, false)
            }
            Placing::Refused(refused) => {
                arrival.refused = Some(refused);
                (None, false)
            }
        };
        if let Some(mut place) = placed {
            if let Target::Aside(aside) = &mut arrival.target {
                for (begin, end) in arrival.have.iter() {
                    copy_in(&mut place, begin as usize, aside.get(begin as usize, end as usize));
                }
                brought = arrival.have.bytes();
                arrival.brought(brought);
            }
            freed = arrival.target.redirect(Target::Place(place));
        } else if arrival.refused.is_some() {
            freed = arrival.target.redirect(Target::Away);
            let more = arrival.granted < want.bytes || arrival.have.bytes() < arrival.granted;
            if more && !arrival.wants_no_more {
                arrival.wants_no_more = true;
                self.unwanted.push(number);
            }
        } else if is_bare {
            arrival.target = Target::Aside(aside);
        }
        self.mended += u64::from(brought);
        self.free_aside(freed);
        self.book(number);
        guessed
    }

    /// Takes bytes of a payload in. False if there is no memory for them now: then the frame must count as lost.
    pub(super) fn data(
        &mut self,
        number: u64,
        offset: u32,
        bytes: &Bytes<'_>,
        reading: Option<&mut Reading<'_>>,
        now: Instant,
    ) -> Result<bool, Breach> {
        self.bounds(number, 1)?;
        let end = offset.checked_add(bytes.len()).filter(|end| u64::from(*end) <= PAYLOAD_MAX).ok_or(Breach::Length)?;
        let (aside_now, aside_max, by, was) = (self.books.lies, self.early_max(), self.by, self.before);
        #[cfg(feature = "planted")]
        let boundless = self.boundless;
        let Some(arrival) = self.arrival(number, now) else { return Ok(true) };
        match &arrival.opening {
            #[cfg(feature = "planted")]
            Some(_) if boundless => {}
            Some(opening) if end > opening.payload || end > arrival.granted => return Err(Breach::Length),
            None if u64::from(end) > aside_max => return Err(Breach::Length),
            _ => {}
        }
        if arrival.have.has(offset, end) {
            // An empty payload is there with its opening, and a frame without bytes brings nothing.
            self.advance();
            return Ok(true);
        }
        let (mut grown, mut copies, before) = (0, false, arrival.have.bytes());
        match (&mut arrival.target, bytes) {
            (Target::Away, _) | (Target::Place(_) | Target::Reader, Bytes::There { .. }) => {}
            (Target::Aside(aside), Bytes::Here(_) | Bytes::Apart { .. }) => {
                if aside.end() < end as usize {
                    grown = end as usize - aside.end();
                    if arrival.opening.is_none() && aside_now + grown as u64 > aside_max {
                        return Ok(false);
                    }
                }
                if !aside.make_room(end as usize, arrival.granted as usize) {
                    return Ok(false);
                }
                bytes.lay(offset, &arrival.have, |at, part| aside.lay(at, part));
            }
            (Target::Place(place), Bytes::Here(_) | Bytes::Apart { .. }) => {
                bytes.lay(offset, &arrival.have, |at, part| copy_in(place, at, part));
                copies = true;
            }
            (Target::Reader, Bytes::Here(_) | Bytes::Apart { .. }) => {
                let Some(reading) = reading.filter(|reading| reading.message == number) else { return Ok(false) };
                let into = &mut reading.into[..end as usize];
                bytes.lay(offset, &arrival.have, |at, part| into[at..at + part.len()].copy_from_slice(part));
                copies = true;
            }
            // The place was taken away from under a guess: the bytes are gone and have to come again.
            (Target::Aside(_), Bytes::There { .. }) => return Ok(false),
        }
        let goes_on = arrival.opening.as_ref().is_some_and(|opening| end < opening.payload);
        let opens_full = offset == 0 && arrival.opening.as_ref().is_some_and(|opening| end < opening.unasked);
        let kept = arrival.have.insert(offset, end);
        let grew = arrival.have.bytes() - before;
        arrival.took(grew, copies, was);
        let (frames, full) = bytes.frames();
        (arrival.frames, arrival.way, arrival.last, arrival.ended) = (arrival.frames + frames, by, end, now);
        if grew > 0 {
            self.mended += if copies { u64::from(grew) } else { 0 };
            (self.came, self.latest) = (now, number);
        }
        if grown > 0 {
            self.aside += grown as u64;
            self.book(number);
        }
        if offset == 0 {
            // A first frame may be shorter than a full one: what is unasked has its end.
            let first = end as usize + OPENING_BYTES;
            self.full = self.full.max(if goes_on { first } else { 0 });
            self.sender_full = if opens_full { first } else { self.sender_full };
        } else {
            (1..frames.min(3)).for_each(|_| self.measure(full as usize));
            if goes_on {
                self.measure((bytes.len() - (frames - 1) * full) as usize);
            }
        }
        self.advance();
        Ok(kept)
    }

    /// A frame has come behind which its payload goes on. It is a full one, unless it is shorter than those before and
    /// alone with that: then what could be sent had its end there.
    const fn measure(&mut self, bytes: usize) {
        if bytes >= self.full || bytes == self.measured {
            self.full = bytes;
        }
        self.measured = bytes;
    }

    /// Asks again for places that could not be given, in the order of the messages: where nobody has named a place, the
    /// first that gets none, or whose opening has not come, keeps those behind it waiting.
    pub(super) fn ask_again<M: Memory<Place = P>>(&mut self, channel: usize, memory: &mut M) {
        let mut preceded = false;
        for at in 0..self.window.len() {
            let Some(coming) = self.window.get(at) else { break };
            let waits = match coming {
                Coming::Loaded(arrival) if arrival.later => arrival
                    .opening
                    .as_ref()
                    .filter(|opening| !preceded || opening.token.is_some())
                    .map(|_| arrival.number),
                _ => None,
            };
            if let Some(number) = waits {
                self.ask(number, channel, memory);
            }
            preceded |= self.window.get(at).is_some_and(Coming::may_ask);
            if preceded && self.books.named == 0 {
                break;
            }
        }
        self.advance();
    }

    /// Whether a place could not be given.
    pub(super) const fn awaits_place(&self) -> bool {
        self.books.later > 0
    }
}

/// Bytes that are copied by one call: so many are all loaded before any is stored.
const PIECE: usize = 256;

/// Copies as many bytes from one memory to another. How long a copy of more bytes by one call takes hangs on how the
/// two lie within their pages (see docs/experiments.md).
///
/// # Panics
/// If one is longer than the other.
pub(super) fn copy(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "as many bytes");
    let ((pieces, rest), (from_pieces, from_rest)) = (to.as_chunks_mut::<PIECE>(), from.as_chunks::<PIECE>());
    pieces.iter_mut().zip(from_pieces).for_each(|(piece, from)| *piece = *from);
    rest.copy_from_slice(from_rest);
}

/// Copies bytes to their place, piece by piece.
pub(super) fn copy_in<P: Place>(place: &mut P, offset: usize, bytes: &[u8]) {
    let mut done = 0;
    while done < bytes.len() {
        let piece = place.piece(offset + done, bytes.len() - done);
        let len = piece.len();
        if len == 0 {
            return;
        }
        copy(piece, &bytes[done..done + len]);
        done += len;
    }
}
