//! Receiving: take, check, find the payload, deliver.
//!
//! A payload in pages is there when its message is. A payload in the staging ring is still arriving: it waits for the
//! reader to say where it shall go ([`Link::read`]), or goes where its token says. Only the payload at the front of the
//! ring can be taken out; if the next one has to come past it, the front is set aside in memory of its own.

mod asides;
mod last;
mod others;
mod staged;
mod still;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::hint::spin_loop;
use std::sync::Arc;

use cutthrough_engine::check::{self, Breach};
use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::receipt::{Path, Receipt};
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::Token;
use cutthrough_engine::trail::{self, Manner};
use cutthrough_engine::transfer::Transfer;
use cutthrough_segment::half::Peer;
use cutthrough_segment::map::Array;
use cutthrough_segment::page::{Landed, Release, Releases, Runs, Shelf};
use cutthrough_segment::record::Reader;
use cutthrough_segment::ring::{Control, Peek};
use cutthrough_segment::stage::Staging;
use cutthrough_segment::sync::{AtomicU64, Eviction};
use cutthrough_wire::layout::Line;
use cutthrough_wire::run::Run;
use cutthrough_wire::slot::{Header, Kind};

pub use self::asides::Aside;
use self::asides::Asides;
use self::still::Still;
use super::copier::Copier;
use super::link::{CloseReason, Link};
use super::pages::Place;
use super::send::STAGE_ALIGN;
use crate::clock;
use crate::incoming::{Arrived, Incoming, Payload};
use crate::parcel::Parcel;
use crate::stat::Stat;

/// Most messages that are taken out of a peer's way while this side waits for somebody. As much as one side may send
/// before it waits, too: then both have to make way for each other.
const QUEUE: usize = 16 << 10;
/// Those that may not have been received yet when this side begins to wait.
const UNRECEIVED: usize = QUEUE / 16;

/// Payloads that may come one behind the other before pages are given back in between. A receiver that finds nothing
/// gives them back at once.
const TIDY_EVERY: u32 = 16;

/// Bytes that may lie aside before no further payload is set aside: as much as the longest payload.
const ASIDE_MAX: u64 = cutthrough_wire::slot::PAYLOAD_MAX;

/// Why a payload could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The memory is shorter than the payload.
    #[error("the memory is shorter than the payload of {0} bytes")]
    TooSmall(usize),
    /// There is no payload, it was dropped, or it has been read. To read no bytes of no payload is no error.
    #[error("there is no payload to read")]
    Nothing,
    /// The channel ended before all of it had arrived.
    #[error("the channel has ended: {0}")]
    Closed(CloseReason),
    /// A node was to gather it, and there is no memory.
    #[error("there is no memory for the payload of {0} bytes; free some, or raise the limit (ulimit -v)")]
    NoMemory(usize),
}

/// What a read came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// Bytes at the start of the memory that are valid.
    pub valid: usize,
    /// Whether that is all of the payload.
    pub done: bool,
    /// Pulses that this side has made.
    pub pulses: u32,
    /// Copies beyond the two of a cut-through payload.
    pub extra_copies: u32,
}

/// Where the payload at the front of the staging ring goes.
#[derive(Debug)]
enum Goes {
    /// To the reader, when it says where.
    Reader,
    /// To the memory that a token named; the message is delivered when all of it is there.
    Buffer(Box<Expected>),
    /// Aside, from this byte on, because another message has to come past it.
    Aside(usize, Vec<u8>),
    /// Nowhere.
    Away,
}

/// A message that waits for its payload to be in the memory that its token named.
#[derive(Debug)]
struct Expected {
    buffer: Vec<u8>,
    /// How long it was when it was granted.
    granted: usize,
    control: Control,
    header: Header,
}

/// The payload at the front of the staging ring.
#[derive(Debug)]
struct Front {
    ticket: u64,
    base: u64,
    len: u64,
    moved: u64,
    started: Instant,
    goes: Goes,
    /// Whether there was no memory to set it aside in: it stays until its reader comes.
    stays: bool,
}

/// The receiving side of a channel's payloads.
#[derive(Debug)]
pub(super) struct Inbox {
    staging: Staging,
    /// What the last slot said of how its payload goes round it.
    lap: u16,
    /// How to copy out of it.
    copier: Copier,
    /// How what was read of the payload at the front is evicted, if its sender asks for that.
    eviction: Option<Eviction>,
    staged: u64,
    drained: u64,
    /// How far the sender was told that we are.
    told: u64,
    next_base: u64,
    runs: Reader<Array<AtomicU64>>,
    front: Option<Front>,
    /// How far its sender was when the front, which goes to its place by itself, was last moved on.
    tried: Option<u64>,
    /// For how long that sender has stood still, if it was looked at.
    still: Option<Still>,
    /// The front's way through the ring, once it has been asked for; not needed for a payload that is taken at once.
    transfer: Option<Transfer>,
    /// How many went that way, of which some are timed.
    transfers: u32,
    /// Whether the front was taken in two halves, without that.
    halved: bool,
    /// A message with a staged payload that waits until the front is out of its way.
    held: Option<(Control, Header)>,
    queue: VecDeque<Incoming>,
    aside: Asides,
    pub(super) unread: Vec<u64>,
    tickets: u64,
    /// The way back to the shelf, out of the last payload that was read: to make another takes a locked instruction.
    spare: Option<Arc<Shelf>>,
    pub(super) payload_bytes: u64,
    /// Payloads received since what their predecessors left on the shelf was given back.
    untidied: u32,
    /// Whether anything must be looked at before the ring.
    stuck: bool,
    /// Whether nothing is taken out of the ring any more.
    stopped: bool,
    /// How many messages may still be taken out of the ring of a peer that has stood still.
    rest: Option<u32>,
}

impl Inbox {
    /// Copies bytes out of the staging ring.
    #[inline]
    fn take(&mut self, position: u64, to: &mut [u8]) {
        let Self { staging, copier, .. } = self;
        copier.copy(to.len(), |copying| staging.copy_out(position, to, copying));
    }

    pub(super) fn new(staging: Staging, runs: Reader<Array<AtomicU64>>) -> Self {
        Self {
            staging,
            lap: 0,
            copier: Copier::here(),
            eviction: None,
            staged: 0,
            drained: 0,
            told: 0,
            next_base: 0,
            runs,
            front: None,
            tried: None,
            still: None,
            transfer: None,
            transfers: 0,
            halved: false,
            held: None,
            queue: VecDeque::new(),
            aside: Asides::default(),
            unread: Vec::new(),
            tickets: 0,
            spare: None,
            payload_bytes: 0,
            untidied: 0,
            stuck: false,
            stopped: false,
            rest: None,
        }
    }

    /// Whether something can be done now without a new message: the last look before sleeping.
    pub(super) fn busy(&self, peer: &Peer) -> bool {
        let free = self.held.is_some() && self.front.is_none();
        !self.queue.is_empty() || free || self.bytes_wait(peer) || self.holds_sender(peer)
    }

    /// Whether a poll takes nothing out of the ring before a payload has gone to its place.
    pub(super) fn waits_for_payload(&self) -> bool {
        self.held.is_some() || self.goes_by_itself()
    }

    /// Whether a payload is on its way through the ring.
    pub(super) const fn has_front(&self) -> bool {
        self.front.is_some()
    }

    /// Whether the payload at the front goes to its place by itself.
    fn goes_by_itself(&self) -> bool {
        self.front.as_ref().is_some_and(|front| !matches!(front.goes, Goes::Reader))
    }

    /// Whether a payload that nobody reads fills the ring so far that its sender waits for room, or soon will, and can
    /// be set aside: else nothing helps but its reader.
    fn holds_sender(&self, peer: &Peer) -> bool {
        let ring = self.staging.lap();
        let held = |front: &Front| {
            // Either it is longer than the ring itself, or the next one has to begin where there is no room.
            let (drained, next) = (front.base + front.moved, (front.base + front.len).next_multiple_of(STAGE_ALIGN));
            next >= drained + ring && peer.get(Line::Staged).wrapping_sub(drained) > ring / 2
        };
        self.is_filled() && self.front.as_ref().is_some_and(held)
    }

    /// Whether a payload lies in the ring that waits for its reader, and can be set aside.
    pub(super) fn is_filled(&self) -> bool {
        let stays = self.front.as_ref().is_some_and(|front| front.stays);
        self.waits_for_reader() && !stays && self.aside.bytes() < ASIDE_MAX
    }

    /// Whether bytes have come of a payload that goes to its place by itself, since it was last moved on. Fewer than
    /// are worth a pulse stay where they are: nothing can be done for them before there are more.
    pub(super) fn bytes_wait(&self, peer: &Peer) -> bool {
        self.goes_by_itself() && self.tried.is_none_or(|tried| tried != peer.get(Line::Staged))
    }

    /// Whether messages can be taken out of the peer's way.
    pub(super) fn takes_more(&self) -> bool {
        !self.blocked() && self.queue.len() < QUEUE
    }

    /// Whether so many messages were taken out of the peer's way that some have to be received before this side waits
    /// again.
    pub(super) fn is_behind(&self) -> bool {
        self.queue.len() >= UNRECEIVED
    }

    /// Whether the next message of the ring has to wait for one before it.
    fn blocked(&self) -> bool {
        self.held.is_some() || self.front.as_ref().is_some_and(|front| matches!(front.goes, Goes::Buffer(..)))
    }

    /// Whether anything must be looked at before the ring.
    pub(super) const fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Whether the sender does not know how far its bytes have been taken out.
    pub(super) const fn untold(&self) -> bool {
        self.told != self.drained
    }

    /// Nothing is taken out of the ring any more.
    pub(super) const fn stop(&mut self) {
        (self.stuck, self.stopped) = (true, true);
    }

    /// The peer has stood still, and the channel ends once all is taken that may lie in its ring of so many slots by
    /// now. It may go on at any time: what it sends then is not waited for.
    pub(super) fn finish(&mut self, slots: u32) {
        self.stuck = true;
        self.rest.get_or_insert(slots);
    }

    /// Pulses made for a payload of which `moved` bytes have been moved: one if it was taken at once, and two if its
    /// second half came later than the first.
    fn pulses(&self, moved: u64) -> u32 {
        self.transfer.as_ref().map_or(u32::from(moved > 0) + u32::from(self.halved), Transfer::pulses)
    }

    /// Whether a payload is in the ring whose reader has not said yet where it shall go.
    pub(super) const fn waits_for_reader(&self) -> bool {
        matches!(self.front, Some(Front { goes: Goes::Reader, .. }))
    }

    fn mark(&mut self) {
        self.stuck = self.stopped || self.rest.is_some() || self.waits_for_payload() || !self.queue.is_empty();
    }
}

impl Link {
    /// The memory of a token whose payload has begun and will not come, as long as it was.
    pub(in crate::shm) fn take_expected(&mut self) -> Option<(Token, Vec<u8>)> {
        match self.inbox.front.take()?.goes {
            Goes::Buffer(expected) => {
                let Expected { mut buffer, granted, header, .. } = *expected;
                buffer.resize(granted, 0);
                Some((token(header.detail >> 32, header.name), buffer))
            }
            Goes::Reader | Goes::Away | Goes::Aside(..) => None,
        }
    }

    /// The next message, if one is there and nothing has to be looked at before it: [`Link::take_control`] takes one
    /// without a payload, [`Link::unload`] and [`Link::take_loaded`] another, and neither moves it twice. A channel
    /// that is `alone` may have nothing looked at for a while.
    #[inline]
    pub(crate) fn peek(&mut self, alone: impl FnOnce() -> bool, stat: &Stat) -> Peek {
        if self.inbox.stuck {
            return Peek::Nothing(0);
        }
        let peek = self.consumer.peek();
        if matches!(peek, Peek::Nothing(run) if run >= self.lingers_after && self.linger > 0 && alone()) {
            self.linger(stat);
        }
        peek
    }

    /// Leaves the sender alone for as long as is worth it, since it is in the middle of many messages; then there will
    /// be some.
    #[cold]
    fn linger(&mut self, stat: &Stat) {
        stat.add(Counter::Lingers, 1);
        let since = clock::now();
        while clock::now().saturating_since(since) < self.linger {
            spin_loop();
        }
        (self.linger, self.lingers_after) = (self.trail.manner().linger, trail::STREAM);
    }

    /// Takes the message of `len` bytes without payload that [`Link::peek`] has seen.
    #[inline(always)]
    pub(crate) fn take_control(&mut self, len: u8) -> Incoming {
        self.took();
        Incoming::new(self.channel, len, self.consumer.take_control())
    }

    /// Takes the message that [`Link::peek`] has seen, with the payload that [`Link::unload`] has found.
    #[inline(always)]
    pub(crate) fn take_loaded(&mut self, [word1, ..]: [u64; 3], cargo: Parcel) -> Incoming {
        self.took();
        let [len, ..] = word1.to_le_bytes();
        Incoming::loaded(self.channel, len, self.consumer.take_control(), cargo)
    }

    /// The next message, if there is one.
    ///
    /// # Errors
    /// The [`Breach`] of the peer; the channel is to be closed.
    #[inline]
    pub fn receive(&mut self, stat: &Stat) -> Result<Option<Incoming>, Breach> {
        if self.inbox.stuck {
            return self.receive_stuck(stat);
        }
        self.take(stat)
    }

    /// The next message of the ring, if it has one that need not wait for its payload.
    #[inline]
    fn take(&mut self, stat: &Stat) -> Result<Option<Incoming>, Breach> {
        match self.consumer.peek() {
            Peek::Nothing(_) => Ok(None),
            Peek::Control(len) => Ok(Some(self.take_control(len))),
            Peek::Loaded(words) => match self.unload(words, stat)? {
                Some(cargo) => Ok(Some(self.take_loaded(words, cargo))),
                None => self.take_other(words, stat),
            },
        }
    }

    /// Tells the sender how far we are, now and then: called before or after a message is copied out, it speaks only of
    /// those that were copied out before.
    #[inline]
    fn took(&mut self) {
        let taken = self.consumer.taken();
        if taken.wrapping_sub(self.reported) >= self.report_every {
            self.report();
            let messages = taken.wrapping_sub(std::mem::replace(&mut self.reported, taken));
            if self.trail.pass(messages) {
                self.look_at_trail();
            }
        }
    }

    /// Finds out how to follow the sender.
    #[cold]
    fn look_at_trail(&mut self) {
        let only_receives = self.producer.next() == self.sent_before;
        self.sent_before = self.producer.next();
        let once = self.trail.look(clock::now(), only_receives);
        let Manner { evict, linger } = self.trail.manner();
        self.consumer.set_eviction(self.eviction.filter(|_| evict));
        (self.linger, self.lingers_after) = if once { (trail::ONCE, 0) } else { (linger, trail::STREAM) };
    }

    /// What has to be looked at before the ring: messages taken out of the way, a payload that goes to its token's
    /// place, a message that waits behind another's payload.
    #[cold]
    fn receive_stuck(&mut self, stat: &Stat) -> Result<Option<Incoming>, Breach> {
        if self.disbelieved() {
            return Ok(None);
        }
        let arrival = match self.inbox.queue.pop_front() {
            Some(arrival) => Some(arrival),
            None => self.unstick(stat)?,
        };
        self.inbox.mark();
        // What was in the way is gone: the ring is next, or the end of the channel would overtake what lies in it.
        match arrival {
            None if !self.inbox.stuck => self.receive(stat),
            None => self.take_rest(stat),
            Some(_) => Ok(arrival),
        }
    }

    /// The next message of a peer that has stood still, if it may have been in its ring then.
    fn take_rest(&mut self, stat: &Stat) -> Result<Option<Incoming>, Breach> {
        let inbox = &self.inbox;
        let Some(rest) = inbox.rest.filter(|rest| *rest > 0 && !inbox.stopped && !inbox.waits_for_payload()) else {
            return Ok(None);
        };
        let before = self.consumer.taken();
        let arrival = self.take(stat)?;
        self.inbox.rest = Some(if self.consumer.taken() == before { 0 } else { rest - 1 });
        Ok(arrival)
    }

    fn unstick(&mut self, stat: &Stat) -> Result<Option<Incoming>, Breach> {
        let arrival = self.pump(stat)?;
        if arrival.is_some() || self.inbox.front.is_some() {
            return Ok(arrival);
        }
        match self.inbox.held.take() {
            Some((control, header)) => self.begin(control, header, stat),
            None => Ok(None),
        }
    }

    /// The payload of the message with these words, if it is one run that is where it belongs, or comes through the
    /// staging ring to its reader: what most of them do. `None` if it is another, of which nothing was touched:
    /// [`Link::take_other`] takes those.
    ///
    /// What a processor has stored in narrow pieces it cannot load in wide ones before all of them have left its store
    /// buffer, and values that are moved are loaded so. Here everything is written where it stays: nothing that may
    /// panic, which would have to drop the payload, comes between its parts and its place.
    ///
    /// # Errors
    /// The [`Breach`] of the peer.
    #[inline(always)]
    pub(crate) fn unload(&mut self, words: [u64; 3], stat: &Stat) -> Result<Option<Parcel>, Breach> {
        let header = check::header(words)?;
        // Where nothing is ever untidy it is not reset.
        self.inbox.untidied = self.inbox.untidied.saturating_add(1);
        if self.inbox.untidied >= TIDY_EVERY && self.traffic.untidy() {
            // Not only when nothing waits: a receiver that is never idle has to give pages back, too.
            self.inbox.untidied = 0;
            self.tidy(stat)?;
        }
        let bytes = header.payload_len as usize;
        match (header.kind, header.runs) {
            (Kind::Reference, 1) => {
                let run = check::run(Run::from_word(header.detail), self.peer_sizes.pool_pages)?;
                check::covered(header.payload_len, u64::from(run.count), self.peer_sizes.page_bytes)?;
                self.traffic.borrow()?;
                let (cargo, receipt) = self.cargo(Path::Reference, header.payload_len, stat);
                let ground = self.traffic.peer_ground.take();
                ground.prefetch_read(run.first, bytes);
                let release = Releases::One(Release::Lend { number: header.name });
                let landed = Landed::new(ground, Runs::One(run.first, run.count), bytes, release);
                Ok(Some(Parcel::fill(cargo, Arrived { payload: Payload::Landed(landed), receipt })))
            }
            (Kind::Put, 1) => {
                let run = Run::from_word(header.detail);
                let (first, count) = self.traffic.fill(run)?;
                check::covered(header.payload_len, u64::from(count), self.sizes.page_bytes)?;
                let (cargo, receipt) = self.cargo(Path::Put, header.payload_len, stat);
                let ground = self.traffic.landing_ground.take();
                ground.prefetch_read(first, bytes);
                let release = Releases::One(Release::Posted { id: run.id });
                let landed = Landed::new(ground, Runs::One(first, count), bytes, release);
                Ok(Some(Parcel::fill(cargo, Arrived { payload: Payload::Landed(landed), receipt })))
            }
            (Kind::PutToken, _) => {
                let token = token(header.detail, header.name);
                let Ok(&Place::Pages { first, count, .. }) = self.traffic.tokens.look(token) else { return Ok(None) };
                self.traffic.tokens.redeem(token).map_err(|_| Breach::Descriptor)?;
                self.own.clear_token(token.index);
                check::covered(header.payload_len, u64::from(count), self.sizes.page_bytes)?;
                let (cargo, receipt) = self.cargo(Path::Put, header.payload_len, stat);
                let ground = self.traffic.landing_ground.take();
                ground.prefetch_read(first, bytes);
                let release = Releases::One(Release::Landing { first, count });
                let landed = Landed::new(ground, Runs::One(first, count), bytes, release);
                Ok(Some(Parcel::fill(cargo, Arrived { payload: Payload::Landed(landed), receipt })))
            }
            (Kind::Staged, _) if self.inbox.front.is_none() => {
                let began = self.enter(&header, Goes::Reader)?;
                let (cargo, receipt) = self.cargo(Path::CutThrough, header.payload_len, stat);
                let receipt = Receipt { started: began, finished: began, ..receipt };
                let payload = Payload::Arriving(self.arriving(header.payload_len));
                Ok(Some(Parcel::fill(cargo, Arrived { payload, receipt })))
            }
            _ => Ok(None),
        }
    }

    /// A place for a payload that has come this way, and its receipt.
    #[inline(always)]
    fn cargo(&mut self, path: Path, bytes: u32, stat: &Stat) -> (Box<Arrived>, Receipt) {
        let bytes = if path == Path::Dropped { 0 } else { u64::from(bytes) };
        stat.add(Counter::PayloadBytesReceived, bytes);
        self.inbox.payload_bytes += bytes;
        (Parcel::memory(), Receipt::moved(path, bytes))
    }

    /// A message whose payload is where it belongs, or began to come when it says.
    fn arrival(
        &mut self,
        control: Control,
        header: &Header,
        payload: Payload,
        began: Instant,
        stat: &Stat,
    ) -> Incoming {
        let path = match (&payload, header.kind) {
            (Payload::None, _) => Path::None,
            (Payload::Dropped(refused), _) => {
                Self::count_refused(stat, *refused);
                Path::Dropped
            }
            (_, Kind::Reference) => Path::Reference,
            (_, Kind::GetToken) => Path::Get,
            (_, Kind::Share) => Path::Shared,
            (_, Kind::Put | Kind::PutToken) => Path::Put,
            _ => Path::CutThrough,
        };
        let (cargo, receipt) = self.cargo(path, header.payload_len, stat);
        let receipt = Receipt { started: began, finished: began, ..receipt };
        let cargo = Parcel::fill(cargo, Arrived { payload, receipt });
        Incoming::loaded(self.channel, header.control_len, control, cargo)
    }

    /// While this side waits for the peer to take what it sends, takes what the peer sends out of its way: messages
    /// into a queue, the front payload aside.
    pub(crate) fn relieve(&mut self, stat: &Stat) -> Result<(), Breach> {
        if let Some(arrival) = self.pump(stat)? {
            self.inbox.queue.push_back(arrival);
        }
        while self.inbox.takes_more() {
            match self.take(stat)? {
                Some(arrival) => self.inbox.queue.push_back(arrival),
                None => break,
            }
        }
        self.set_aside();
        if self.inbox.front.is_none()
            && let Some((control, header)) = self.inbox.held.take()
        {
            let arrival = self.begin(control, header, stat)?;
            self.inbox.queue.extend(arrival);
        }
        self.inbox.mark();
        Ok(())
    }
}

/// A token out of two words.
fn token(index: u64, key: u64) -> Token {
    Token { index: u16::try_from(index & 0xffff).unwrap_or(u16::MAX), key }
}
