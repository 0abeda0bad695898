//! Sending: check, choose the path, move the payload, publish the slot, wake the peer.
//!
//! The path chooses itself. A payload that lies in pages which the peer can see goes by reference, or is copied by the
//! receiver to where a token says. A private payload is put straight into pages that a token or the free queue names,
//! and goes through the staging ring in pulses if there are none.

mod halves;
mod landed;
mod private;
mod staged;

pub(in crate::shm) use halves::Halves;
pub(in crate::shm) use staged::{LEAST_SHARE, MINPULSE_OF, STAGE_ALIGN, least_lap, listens, longest_minpulse, traced};

use std::sync::Arc;

use cutthrough_engine::check::{self, Breach};
use cutthrough_engine::choose::Way;
use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::receipt::{Path, Receipt};
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::Token;
use cutthrough_engine::transfer::Trace;
use cutthrough_segment::page::{Landed, Page, Pages};
use cutthrough_segment::ring::Impossible;
use cutthrough_wire::layout::Line;
use cutthrough_wire::run::Run;
use cutthrough_wire::slot::{CONTROL_MAX, Header, Kind, PAYLOAD_MAX};
use cutthrough_wire::token::Place;

use super::link::{CloseReason, LIST_MAX, Link, SendError};
use super::meanwhile::Meanwhile;
use super::pages::FROZEN_MAX;
use super::share::{self, Share};
use crate::clock;
use crate::stat::Stat;

/// The payload of a message.
#[derive(Debug)]
pub enum Load<'a> {
    /// None.
    None,
    /// Borrowed private memory: copied before the send returns.
    Copy(&'a [u8]),
    /// Pages of this channel's pool.
    Pages(Sheaf),
    /// A payload that was received, on whatever channel: held until it is needed no more.
    Landed(Arc<Landed>),
}

/// Pages of one payload: one, or several in this order.
#[derive(Debug)]
pub enum Sheaf {
    /// One run of pages.
    One(Page),
    /// Several; all but the last are full.
    Many(Vec<Page>),
}

impl Sheaf {
    const fn as_slice(&self) -> &[Page] {
        match self {
            Self::One(page) => std::slice::from_ref(page),
            Self::Many(pages) => pages.as_slice(),
        }
    }

    /// The runs of its pages, which are the caller's to give back, and those that are views of frozen ones.
    fn take_apart(self, pool: &mut Pages) -> (Vec<(u32, u32)>, Vec<Page>) {
        let pages = match self {
            Self::One(page) => vec![page],
            Self::Many(pages) => pages,
        };
        let (views, mut own): (Vec<_>, Vec<_>) = pages.into_iter().partition(Page::is_view);
        (own.iter_mut().map(|page| pool.part(page)).collect(), views)
    }
}

/// The control message of a message to be sent.
#[derive(Debug, Clone, Copy)]
pub enum Control<'a> {
    /// So many bytes of it are in the next slot already ([`Link::control_mut`]).
    InPlace(u8),
    /// These bytes, at most 96.
    Borrowed(&'a [u8]),
}

/// What goes with a message besides its control message.
#[derive(Debug)]
pub struct Cargo<'a> {
    /// The payload.
    pub load: Load<'a>,
    /// Where it shall land.
    pub token: Option<Token>,
    /// To be told when its pages may be used again.
    pub cookie: Option<u64>,
}

impl Link {
    /// Whether a message can be sent now; looks at the peer's counter if the ring seems full.
    ///
    /// # Errors
    /// [`SendError::Full`] or [`SendError::Closed`].
    #[inline]
    pub fn check_room(&mut self, stat: &Stat) -> Result<(), SendError> {
        if self.producer.has_room() && self.ending.is_none() { Ok(()) } else { self.make_room(stat) }
    }

    #[cold]
    fn make_room(&mut self, stat: &Stat) -> Result<(), SendError> {
        self.look_for_room().inspect_err(|error| stat.add(Counter::Full, u64::from(*error == SendError::Full)))
    }

    /// As [`Link::check_room`], for who wants to know and has nothing to send yet: nothing was refused.
    ///
    /// # Errors
    /// As [`Link::check_room`].
    pub fn look_for_room(&mut self) -> Result<(), SendError> {
        if let Some(reason) = self.ending {
            return Err(SendError::Closed(reason));
        }
        if self.producer.refresh(self.peer.get(Line::Consumed)) == Err(Impossible) {
            return Err(self.broken(Breach::Index));
        }
        if self.producer.has_room() { Ok(()) } else { Err(SendError::Full) }
    }

    fn broken(&mut self, breach: Breach) -> SendError {
        self.end(CloseReason::Breach(breach));
        SendError::Closed(CloseReason::Breach(breach))
    }

    /// Sends a control message without payload. No system call (unless the peer sleeps), lock or allocation.
    ///
    /// # Errors
    /// [`SendError`].
    #[inline]
    pub fn send_control(&mut self, control: &[u8], stat: &Stat) -> Result<(), SendError> {
        if control.len() > CONTROL_MAX {
            return Err(SendError::TooLong);
        }
        self.check_room(stat)?;
        self.producer.write_control(control);
        self.send_in_place(control.len(), stat);
        Ok(())
    }

    /// The control message of the next slot, to be written in place; [`Link::check_room`] comes first.
    #[inline]
    pub fn control_mut(&mut self) -> &mut [u8; CONTROL_MAX] {
        self.producer.control_mut()
    }

    /// Sends a control message without payload, of which so many bytes were written in place.
    #[inline(always)]
    pub fn send_in_place(&mut self, len: usize, stat: &Stat) {
        self.producer.publish_control(len.min(CONTROL_MAX) as u64);
        self.wake_peer(stat);
    }

    /// Asks for the next slot's lines: soon they will be written.
    #[inline]
    pub fn expect_send(&self) {
        self.producer.prefetch();
    }

    /// Puts the control message into the next slot: its length. From the first byte on, the slot's lines are on their
    /// way to this core, and until they are there the processor can neither execute a locked instruction nor read a
    /// value in another width than it was written; so this comes when everything else is in place.
    #[inline(always)]
    pub(super) fn place(&mut self, control: Control<'_>) -> u8 {
        match control {
            Control::InPlace(len) => len,
            Control::Borrowed(bytes) => {
                self.producer.write_control(bytes);
                u8::try_from(bytes.len().min(CONTROL_MAX)).unwrap_or(0)
            }
        }
    }

    /// Sends a message with its cargo. Inlined, and taken apart at once: what of it does not go with the message is
    /// never put together then (see `Link::unload`).
    ///
    /// # Errors
    /// [`SendError`]. If the channel ends while the payload moves, the message is lost with it.
    #[inline(always)]
    pub fn send(
        &mut self,
        control: Control<'_>,
        cargo: Cargo<'_>,
        trace: &mut impl Trace,
        (others, stat): (&mut impl Meanwhile, &Stat),
    ) -> Result<Receipt, SendError> {
        let Cargo { load, token, cookie } = cargo;
        match load {
            Load::None => self.send_bare(control, cookie, stat),
            Load::Copy(payload) => self.send_private(control, payload, token, cookie, trace, (others, stat)),
            Load::Pages(Sheaf::One(page)) if token.is_none() && page.is_view() => {
                self.send_view(control, page, cookie, stat)
            }
            Load::Pages(Sheaf::One(mut page)) if token.is_none() => self.send_page(control, &mut page, cookie, stat),
            // A list of no pages is no payload.
            Load::Pages(Sheaf::Many(pages)) if pages.is_empty() => self.send_bare(control, cookie, stat),
            Load::Pages(pages) => self.send_pages(control, pages, token, cookie, stat),
            Load::Landed(landed) => self.send_landed(control, &landed, token, cookie, trace, (others, stat)),
        }
    }

    /// No payload.
    fn send_bare(&mut self, control: Control<'_>, cookie: Option<u64>, stat: &Stat) -> Result<Receipt, SendError> {
        self.check_room(stat)?;
        let control_len = self.place(control);
        if let Some(cookie) = cookie {
            self.traffic.completed.push_back(cookie);
        }
        self.send_in_place(usize::from(control_len), stat);
        Ok(Receipt::default())
    }

    /// One run of pages by reference.
    fn send_page(
        &mut self,
        control: Control<'_>,
        page: &mut Page,
        cookie: Option<u64>,
        stat: &Stat,
    ) -> Result<Receipt, SendError> {
        self.check_room(stat)?;
        let bytes = self.check_pages(std::slice::from_ref(page))?;
        let name = self.traffic.lends.lend(page.run(), Vec::new(), cookie);
        let detail = word(page);
        let control_len = self.place(control);
        let header = Header { control_len, kind: Kind::Reference, runs: 1, payload_len: bytes, detail, name };
        self.producer.publish(header.to_words());
        let receipt = self.sent(Path::Reference, 0, bytes, Instant::default(), stat);
        // Only now: to let go of the page may take a locked instruction, which waits for everything stored before.
        self.traffic.pages.part(page);
        Ok(receipt)
    }

    /// A frozen page by reference: the peer reads it where others may read it, too.
    fn send_view(
        &mut self,
        control: Control<'_>,
        view: Page,
        cookie: Option<u64>,
        stat: &Stat,
    ) -> Result<Receipt, SendError> {
        self.check_room(stat)?;
        let bytes = self.check_pages(std::slice::from_ref(&view))?;
        self.room_for_list(1, stat)?;
        let detail = word(&view);
        let name = self.traffic.lends.lend_view(view, cookie);
        let control_len = self.place(control);
        let header = Header { control_len, kind: Kind::Reference, runs: 1, payload_len: bytes, detail, name };
        self.producer.publish(header.to_words());
        Ok(self.sent(Path::Reference, 0, bytes, Instant::default(), stat))
    }

    /// Wakes the peer for what was published, and puts the receipt together.
    #[inline(always)]
    fn sent(&mut self, path: Path, pulses: u32, bytes: u32, started: Instant, stat: &Stat) -> Receipt {
        self.wake_peer(stat);
        let finished = if started == Instant::default() { started } else { clock::now() };
        let receipt = Receipt { pulses, started, finished, ..Receipt::moved(path, u64::from(bytes)) };
        count(&receipt, stat);
        self.outbox.payload_bytes += if path == Path::Dropped { 0 } else { u64::from(bytes) };
        receipt
    }

    /// By reference, or to be fetched by the receiver to where the token says.
    fn send_pages(
        &mut self,
        control: Control<'_>,
        pages: Sheaf,
        token: Option<Token>,
        cookie: Option<u64>,
        stat: &Stat,
    ) -> Result<Receipt, SendError> {
        self.check_room(stat)?;
        let bytes = self.check_pages(pages.as_slice())?;
        let control_len = self.place(control);
        let count = list_len(pages.as_slice().len()).ok_or(SendError::ListTooLong)?;
        if count > 1 || token.is_some() || pages.as_slice().iter().any(Page::is_view) {
            self.room_for_list(count, stat)?;
        }
        let share = match token {
            Some(token) => self.share(&pages, token, bytes)?,
            None => None,
        };
        let way = self.chooser.choose(u64::from(bytes));
        if let (Some(share), Some(token), Way::Alone) = (&share, token, way) {
            let started = self.copy_alone(share, control_len, token);
            if let Some(cookie) = cookie {
                self.traffic.completed.push_back(cookie);
            }
            return Ok(self.sent(Path::Put, 0, bytes, started, stat));
        }
        let started = clock::now();
        let words = pages.as_slice().iter().map(word);
        let detail = self.write_list(count, words, token);
        let (runs, views) = pages.take_apart(&mut self.traffic.pages);
        let lend = self.traffic.lends.lend_list(runs, views, cookie);
        let (kind, path) = match (token, &share) {
            (None, _) => (Kind::Reference, Path::Reference),
            (Some(_), None) => (Kind::GetToken, Path::Get),
            (Some(_), Some(_)) => (Kind::Share, Path::Shared),
        };
        let header = Header { control_len, kind, runs: count, payload_len: bytes, detail, name: lend };
        let number = self.producer.next().wrapping_add(1);
        if share.is_some() {
            self.own.begin_share(Line::ShareSent, number, u64::from(bytes), u64::from(bytes));
        }
        self.producer.publish(header.to_words());
        let (Some(share), Some(token)) = (share, token) else {
            token.into_iter().for_each(|token| self.fetched(token, bytes));
            return Ok(self.sent(path, 0, bytes, Instant::default(), stat));
        };
        self.wake_peer(stat);
        let copied = share.send(number, &self.own, &self.peer);
        self.own.set_claim(token.index, 0);
        self.chooser.observe(share.len, way, clock::now().saturating_since(started));
        let path = if copied == share.len { Path::Put } else { Path::Shared };
        if path == Path::Shared {
            share::count(copied, stat);
        }
        Ok(self.sent(path, 0, bytes, started, stat))
    }

    /// The receiver will fetch a payload to where this token says, unless it is too long for that, and nothing else may
    /// be written there from now on. Private memory is not written by this side.
    fn fetched(&mut self, token: Token, bytes: u32) {
        let keeps = match self.unused(token) {
            Some(Place::Pages { count, .. }) => {
                check::covered(bytes, u64::from(count), self.peer_sizes.page_bytes).is_err()
            }
            // One that is not known, or not any more, is not remembered: another may be, which has its index.
            Some(Place::Private { .. }) | None => true,
        };
        if !keeps {
            self.outbox.use_up(token);
        }
    }

    /// Copies a payload from our pages to where a token says without the receiver's help; the token has been claimed.
    /// Returns when it began.
    fn copy_alone(&mut self, share: &Share, control_len: u8, token: Token) -> Instant {
        let started = clock::now();
        share.copy(0, share.len);
        let payload_len = u32::try_from(share.len).unwrap_or(0);
        let (detail, name) = (u64::from(token.index), token.key);
        let header = Header { control_len, kind: Kind::PutToken, runs: 0, payload_len, detail, name };
        self.producer.publish(header.to_words());
        self.own.set_claim(token.index, 0);
        self.chooser.observe(share.len, Way::Alone, clock::now().saturating_since(started));
        started
    }

    /// Both places of a payload that lies in contiguous pages here and shall land in pages there. The token is
    /// claimed, as in [`Link::put_token`]. `None` if it is not good for that: then the receiver looks at it, and
    /// copies alone.
    fn share(&mut self, pages: &Sheaf, token: Token, bytes: u32) -> Result<Option<Share>, SendError> {
        let (Sheaf::One(page), Some(Place::Pages { first, count })) = (pages, self.unused(token)) else {
            return Ok(None);
        };
        let run = check::run(Run { first, count, id: 0 }, self.peer_sizes.landing_pages);
        let run = run.map_err(|breach| self.broken(breach))?;
        let page_bytes = self.peer_sizes.page_bytes;
        if bytes == 0 || check::covered(bytes, u64::from(run.count), page_bytes).is_err() {
            return Ok(None);
        }
        self.own.set_claim(token.index, token.key);
        if self.peer.token(token.index, token.key).is_none() {
            self.own.set_claim(token.index, 0);
            return Ok(None);
        }
        self.outbox.use_up(token);
        let (from, to) = (page.place(), self.peer.landing().clone());
        let to_offset = u64::from(run.first) * u64::from(page_bytes);
        Ok(Some(Share { from, to, to_offset, len: u64::from(bytes) }))
    }

    /// Checks that pages are this channel's, and that all but the last are full: the payload is what lies in them, one
    /// behind the other.
    fn check_pages(&self, pages: &[Page]) -> Result<u32, SendError> {
        if !pages.iter().all(|page| page.belongs_to(&self.traffic.shelf)) {
            return Err(SendError::ForeignPage);
        }
        if pages.split_last().is_some_and(|(_, rest)| !rest.iter().all(Page::is_full)) {
            return Err(SendError::PartialPage);
        }
        let total: u64 = pages.iter().map(|page| page.len() as u64).sum();
        u32::try_from(total).ok().filter(|_| total <= PAYLOAD_MAX).ok_or(SendError::TooLong)
    }

    /// Whether there is room for a list of so many runs. One that no room suffices for has it: it is refused.
    pub fn has_room_for_list(&mut self, runs: usize, stat: &Stat) -> bool {
        list_len(runs).is_none_or(|runs| self.find_room_for_list(runs, stat) != Err(SendError::TooManyRuns))
    }

    /// Makes sure that a list of `runs` runs (plus a token's words) fits into the run ring.
    fn room_for_list(&mut self, runs: u16, stat: &Stat) -> Result<(), SendError> {
        self.find_room_for_list(runs, stat)
            .inspect_err(|error| stat.add(Counter::Full, u64::from(*error == SendError::TooManyRuns)))
    }

    fn find_room_for_list(&mut self, runs: u16, stat: &Stat) -> Result<(), SendError> {
        if self.traffic.lends.frozen() >= FROZEN_MAX {
            if let Err(breach) = self.tidy(stat) {
                return Err(self.broken(breach));
            }
            if self.traffic.lends.frozen() >= FROZEN_MAX {
                return Err(SendError::TooManyRuns);
            }
        }
        let need = u64::from(runs) + 2;
        if self.outbox.runs.room() >= need {
            return Ok(());
        }
        if self.producer.refresh(self.peer.get(Line::Consumed)) == Err(Impossible) {
            return Err(self.broken(Breach::Index));
        }
        let consumed = self.producer.consumed();
        while let Some((message, written)) = self.outbox.lists.front().copied() {
            if consumed <= message {
                break;
            }
            self.outbox.lists.pop_front();
            let _ = self.outbox.runs.refresh(written);
        }
        if self.outbox.runs.room() >= need { Ok(()) } else { Err(SendError::TooManyRuns) }
    }

    /// Writes a list of runs: one goes into the slot, several go into the run ring, a token before them.
    fn write_list(&mut self, runs: u16, mut words: impl Iterator<Item = u64>, token: Option<Token>) -> u64 {
        if runs == 1 && token.is_none() {
            return words.next().unwrap_or(0);
        }
        if let Some(token) = token {
            self.outbox.runs.push(u64::from(token.index));
            self.outbox.runs.push(token.key);
        }
        for word in words {
            self.outbox.runs.push(word);
        }
        self.outbox.lists.push_back((self.producer.next(), self.outbox.runs.written()));
        0
    }

    /// Where a payload with this token shall land, if the receiver has granted it and this side has not yet used it.
    /// The receiver cannot tell before the first payload is delivered, and the second must not overwrite it.
    fn unused(&self, token: Token) -> Option<Place> {
        let used = self.outbox.used.get(usize::from(token.index)) == Some(&token.key);
        if used { None } else { self.peer.token(token.index, token.key) }
    }
}

/// Where a page lies in its pool, as the peer is told.
#[inline]
fn word(page: &Page) -> u64 {
    let (first, count) = page.run();
    Run { first, count, id: 0 }.to_word()
}

/// The length of a list of runs, if it can be sent.
fn list_len(runs: usize) -> Option<u16> {
    u16::try_from(runs).ok().filter(|runs| usize::from(*runs) <= LIST_MAX)
}

fn payload_len(bytes: usize) -> Result<u32, SendError> {
    u32::try_from(bytes).ok().filter(|len| u64::from(*len) <= PAYLOAD_MAX).ok_or(SendError::TooLong)
}

/// Counts what a send came to.
#[inline]
fn count(receipt: &Receipt, stat: &Stat) {
    let Receipt { path, bytes, pulses, .. } = *receipt;
    let (counter, copies) = match path {
        Path::None | Path::Wire | Path::Dropped => return,
        Path::Reference => (Counter::ByReference, 0),
        Path::Put => (Counter::Put, 1),
        // The receiver makes this copy, or a part of it: each counts its own.
        Path::Get => (Counter::Get, 0),
        Path::Shared => (Counter::Shared, 0),
        Path::CutThrough => (Counter::CutThrough, 1),
    };
    stat.add(counter, 1);
    stat.add(Counter::PayloadBytesSent, bytes);
    stat.add(Counter::Copies, copies);
    stat.add(Counter::CopiedBytes, bytes * copies);
    stat.add(Counter::Pulses, u64::from(pulses));
}
