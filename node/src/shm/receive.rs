//! Receiving: take, check, find the payload, deliver.
//!
//! A payload in pages is there when its message is. A payload in the staging ring is still arriving: it waits for the
//! reader to say where it shall go ([`Link::read`]), or goes where its token says. Only the payload at the front of the
//! ring can be taken out; if the next one has to come past it, the front is set aside in memory of its own.

use std::collections::VecDeque;
use std::sync::Arc;

use cutthrough_engine::adapter::{Adapter, Capability, Pulse, Stage};
use cutthrough_engine::check::{self, Breach};
use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::receipt::{Path, Receipt};
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::{Refused, Token};
use cutthrough_engine::transfer::{Step, Trace, Transfer};
use cutthrough_segment::half::{Own, Peer};
use cutthrough_segment::map::Array;
use cutthrough_segment::page::{Landed, Release, Releases, Runs};
use cutthrough_segment::record::Reader;
use cutthrough_segment::ring::{Control, Impossible, Taken};
use cutthrough_segment::stage::Staging;
use cutthrough_segment::sync::AtomicU64;
use cutthrough_wire::layout::Line;
use cutthrough_wire::run::Run;
use cutthrough_wire::slot::{Header, Kind};
use rustix::fd::OwnedFd;

use super::link::{CloseReason, Link};
use super::pages::{List, Place};
use super::patience::{self, Patience};
use super::send::{MINPULSE_OF, STAGE_ALIGN, longest_minpulse};
use super::share::Share;
use crate::clock;
use crate::incoming::{Arrived, Arriving, Incoming, Payload};
use crate::stat::Stat;

/// Most messages that are taken out of the peer's way while this side waits for it.
const QUEUE: usize = 1024;

/// Bytes that may lie aside before no further payload is set aside: as much as the longest payload.
const ASIDE_MAX: u64 = cutthrough_wire::slot::PAYLOAD_MAX;

/// Why a payload could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The memory is shorter than the payload.
    #[error("the memory is shorter than the payload of {0} bytes")]
    TooSmall(usize),
    /// There is no payload, it was dropped, or it has been read.
    #[error("there is no payload to read")]
    Nothing,
    /// The channel ended before all of it had arrived.
    #[error("the channel has ended: {0}")]
    Closed(CloseReason),
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
    pub extra_copies: u8,
}

/// Where the payload at the front of the staging ring goes.
#[derive(Debug)]
enum Goes {
    /// To the reader, when it says where.
    Reader,
    /// To the memory that a token named; the message is delivered when all of it is there.
    Buffer(Vec<u8>, Control, Header),
    /// Aside, from this byte on, because another message has to come past it.
    Aside(usize, Vec<u8>),
    /// Nowhere.
    Away,
}

/// The payload at the front of the staging ring.
#[derive(Debug)]
struct Front {
    ticket: u64,
    base: u64,
    len: u64,
    moved: u64,
    started: Instant,
    transfer: Transfer,
    goes: Goes,
}

/// The receiving side of a channel's payloads.
#[derive(Debug)]
pub(super) struct Inbox {
    staging: Staging,
    staged: u64,
    drained: u64,
    next_base: u64,
    runs: Reader<Array<AtomicU64>>,
    front: Option<Front>,
    /// A message with a staged payload that waits until the front is out of its way.
    held: Option<(Control, Header)>,
    queue: VecDeque<Incoming>,
    /// Payloads set aside: ticket, first byte, bytes from there.
    aside: Vec<(u64, usize, Vec<u8>)>,
    pub(super) unread: Vec<u64>,
    tickets: u64,
    pub(super) payload_bytes: u64,
    /// Whether anything must be looked at before the ring.
    stuck: bool,
}

impl Inbox {
    pub(super) fn new(staging: Staging, runs: Reader<Array<AtomicU64>>) -> Self {
        Self {
            staging,
            staged: 0,
            drained: 0,
            next_base: 0,
            runs,
            front: None,
            held: None,
            queue: VecDeque::new(),
            aside: Vec::new(),
            unread: Vec::new(),
            tickets: 0,
            payload_bytes: 0,
            stuck: false,
        }
    }

    /// Whether something can be done now without a new message: the last look before sleeping.
    pub(super) fn busy(&self, peer: &Peer) -> bool {
        !self.queue.is_empty() || self.bytes_wait(peer)
    }

    /// Whether bytes have come of a payload that goes to its place by itself.
    pub(super) fn bytes_wait(&self, peer: &Peer) -> bool {
        self.front.as_ref().is_some_and(|front| {
            !matches!(front.goes, Goes::Reader) && peer.get(Line::Staged) > front.base + front.moved
        })
    }

    /// Whether the next message of the ring has to wait for one before it.
    fn blocked(&self) -> bool {
        self.held.is_some() || self.front.as_ref().is_some_and(|front| matches!(front.goes, Goes::Buffer(..)))
    }

    /// Nothing is taken out of the ring any more.
    pub(super) const fn stop(&mut self) {
        self.stuck = true;
    }

    /// Whether a payload is in the ring whose reader has not said yet where it shall go.
    pub(super) const fn waits_for_reader(&self) -> bool {
        matches!(self.front, Some(Front { goes: Goes::Reader, .. }))
    }

    fn mark(&mut self) {
        let goes_by_itself = self.front.as_ref().is_some_and(|front| !matches!(front.goes, Goes::Reader));
        self.stuck = goes_by_itself || self.held.is_some() || !self.queue.is_empty();
    }
}

impl Link {
    /// Bytes of the next message, if one is there, has no payload and nothing has to be looked at before it: the common
    /// case, which [`Link::take_control`] finishes without moving the message twice.
    #[inline]
    pub(crate) fn peek_control(&mut self) -> Option<u8> {
        if self.inbox.stuck { None } else { self.consumer.peek_control() }
    }

    /// Takes the message of `len` bytes that [`Link::peek_control`] has seen.
    #[inline(always)]
    pub(crate) fn take_control(&mut self, len: u8) -> Incoming {
        self.took();
        Incoming::new(self.channel, len, self.consumer.take_control())
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
        let Some(taken) = self.consumer.take() else { return Ok(None) };
        self.took();
        match taken {
            Taken::Control(len, control) => Ok(Some(Incoming::new(self.channel, len, control))),
            Taken::Loaded(header, control) => self.receive_payload(header, control, stat),
        }
    }

    /// Tells the sender how far we are, now and then: called before or after a message is copied out, it speaks only of
    /// those that were copied out before.
    #[inline]
    fn took(&mut self) {
        let taken = self.consumer.taken();
        if taken.wrapping_sub(self.reported) >= self.report_every {
            self.own.set(Line::Consumed, taken);
            self.reported = taken;
        }
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
        if arrival.is_none() && !self.inbox.stuck { self.receive(stat) } else { Ok(arrival) }
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

    #[cold]
    fn receive_payload(&mut self, header: [u64; 3], control: Control, stat: &Stat) -> Result<Option<Incoming>, Breach> {
        let header = check::header(header)?;
        if self.traffic.shelf.filled() {
            // Not only when nothing waits: a receiver that is never idle has to give pages back, too.
            self.tidy(stat)?;
        }
        let payload = match header.kind {
            Kind::Control => Payload::None,
            Kind::Reference => self.referred(&header)?,
            Kind::Put => self.filled(&header)?,
            Kind::PutToken => self.filled_by_token(&header)?,
            Kind::GetToken | Kind::Share => self.fetch(&header, stat)?,
            Kind::Dropped => self.dropped(&header),
            Kind::Staged | Kind::StagedToken => {
                let arrival = self.begin(control, header, stat);
                self.inbox.mark();
                return arrival;
            }
        };
        Ok(Some(self.arrival(control, &header, payload, stat)))
    }

    /// A message whose payload is where it belongs.
    fn arrival(&mut self, control: Control, header: &Header, payload: Payload, stat: &Stat) -> Incoming {
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
        let (copies, movers) = match path {
            Path::None | Path::Reference | Path::Dropped => (0, 0),
            Path::Put | Path::Get => (1, 1),
            Path::Shared => (1, 2),
            Path::CutThrough => (2, 2),
        };
        let now = if path == Path::CutThrough { clock::now() } else { Instant::default() };
        let bytes = if path == Path::Dropped { 0 } else { u64::from(header.payload_len) };
        stat.add(Counter::PayloadBytesReceived, bytes);
        self.inbox.payload_bytes += bytes;
        let receipt = Receipt { path, copies, movers, pulses: 0, bytes, started: now, finished: now };
        Incoming::loaded(self.channel, header.control_len, control, Arrived { payload, receipt })
    }

    /// The runs of a payload: one in the slot, or a list in the run ring.
    fn list(&mut self, header: &Header) -> Result<List, Breach> {
        if header.runs == 1 && !matches!(header.kind, Kind::GetToken | Kind::Share) {
            return Ok(List::One(Run::from_word(header.detail)));
        }
        let words = self.words(u64::from(header.runs))?;
        Ok(List::Many(words.into_iter().map(Run::from_word).collect()))
    }

    /// The next words of the run ring, which the slot has announced.
    fn words(&mut self, count: u64) -> Result<Vec<u64>, Breach> {
        let runs = &mut self.inbox.runs;
        runs.refresh(runs.taken().wrapping_add(count)).map_err(|Impossible| Breach::Index)?;
        let words = std::iter::from_fn(|| runs.pop()).collect();
        // The sender learns of room in the run ring by this counter alone, and lists fill that ring long before their
        // messages fill the ring of slots.
        self.reported = self.consumer.taken();
        self.own.set(Line::Consumed, self.reported);
        Ok(words)
    }

    /// Checks runs of the peer's pool, and that they hold the payload.
    fn pool_runs(&self, list: List, header: &Header) -> Result<Runs, Breach> {
        let pages = list
            .as_slice()
            .iter()
            .try_fold(0, |pages, run| Ok(pages + u64::from(check::run(*run, self.peer_sizes.pool_pages)?.count)))?;
        check::covered(header.payload_len, pages, self.peer_sizes.page_bytes)?;
        Ok(match list {
            List::One(run) => Runs::One(run.first, run.count),
            List::Many(runs) => Runs::Many(runs.into_iter().map(|run| (run.first, run.count)).collect()),
        })
    }

    fn referred(&mut self, header: &Header) -> Result<Payload, Breach> {
        let list = self.list(header)?;
        let runs = self.pool_runs(list, header)?;
        let release = Releases::One(Release::Lend { number: header.name });
        let ground = Arc::clone(&self.traffic.peer_ground);
        Ok(Payload::Landed(Landed::new(ground, runs, header.payload_len as usize, release)))
    }

    fn filled(&mut self, header: &Header) -> Result<Payload, Breach> {
        let (runs, release, pages) = match self.list(header)? {
            List::One(run) => {
                let (first, count) = self.traffic.fill(run)?;
                (Runs::One(first, count), Releases::One(Release::Posted { id: run.id }), u64::from(count))
            }
            List::Many(list) => {
                let mut runs = Vec::with_capacity(list.len());
                for run in &list {
                    runs.push(self.traffic.fill(*run)?);
                }
                let pages = runs.iter().map(|run| u64::from(run.1)).sum();
                let release = list.into_iter().map(|run| Release::Posted { id: run.id }).collect();
                (Runs::Many(runs), Releases::Many(release), pages)
            }
        };
        check::covered(header.payload_len, pages, self.sizes.page_bytes)?;
        let ground = Arc::clone(&self.traffic.landing_ground);
        Ok(Payload::Landed(Landed::new(ground, runs, header.payload_len as usize, release)))
    }

    fn filled_by_token(&mut self, header: &Header) -> Result<Payload, Breach> {
        let token = token(header.detail, header.name);
        match self.traffic.tokens.redeem(token) {
            Ok(Place::Pages { first, count, .. }) => {
                self.own.clear_token(token.index);
                check::covered(header.payload_len, u64::from(count), self.sizes.page_bytes)?;
                let ground = Arc::clone(&self.traffic.landing_ground);
                let release = Releases::One(Release::Landing { first, count });
                let runs = Runs::One(first, count);
                Ok(Payload::Landed(Landed::new(ground, runs, header.payload_len as usize, release)))
            }
            Ok(Place::Buffer(_)) => Err(Breach::Descriptor),
            Err(refused) => Ok(Payload::Dropped(refused)),
        }
    }

    /// Fetches a payload from the peer's pages to where the token says, and gives the pages back.
    fn fetch(&mut self, header: &Header, stat: &Stat) -> Result<Payload, Breach> {
        let words = self.words(u64::from(header.runs) + 2)?;
        let token = token(words[0], words[1]);
        let list = List::Many(words[2..].iter().map(|word| Run::from_word(*word)).collect());
        let runs = self.pool_runs(list, header)?;
        let release = Releases::One(Release::Lend { number: header.name });
        let ground = Arc::clone(&self.traffic.peer_ground);
        let source = Landed::new(ground, runs, header.payload_len as usize, release);
        let len = source.len();
        let page_bytes = self.sizes.page_bytes as usize;
        let fits = self.traffic.tokens.look(token).map(|place| match place {
            Place::Pages { count, .. } => len <= *count as usize * page_bytes,
            Place::Buffer(buffer) => len <= buffer.len(),
        });
        match fits {
            Err(refused) => return Ok(Payload::Dropped(refused)),
            Ok(false) => return Ok(Payload::Dropped(Refused::TooLong)),
            Ok(true) => {}
        }
        self.own.clear_token(token.index);
        stat.add(Counter::Copies, 1);
        stat.add(Counter::CopiedBytes, len as u64);
        match self.traffic.tokens.redeem(token) {
            Ok(Place::Buffer(mut buffer)) => {
                buffer.truncate(len);
                source.read_at(0, &mut buffer);
                Ok(Payload::Buffer(buffer))
            }
            Ok(Place::Pages { first, count, .. }) => {
                let ground = Arc::clone(&self.traffic.landing_ground);
                let to_offset = u64::from(first) * u64::from(self.sizes.page_bytes);
                if header.kind == Kind::Share {
                    let (from, from_offset) = source.place();
                    let to = Arc::clone(&self.traffic.landing_map);
                    let share = Share { from, from_offset, to, to_offset, len: u64::from(header.payload_len) };
                    share.receive(self.consumer.taken(), &self.own, &self.peer);
                } else {
                    source.copy_to(&self.traffic.landing_map, to_offset);
                }
                let release = Releases::One(Release::Landing { first, count });
                Ok(Payload::Landed(Landed::new(ground, Runs::One(first, count), len, release)))
            }
            Err(refused) => Ok(Payload::Dropped(refused)),
        }
    }

    /// The sender dropped the payload itself, because the token was not good when it looked. Our own table knows why.
    fn dropped(&self, header: &Header) -> Payload {
        match self.traffic.tokens.look(token(header.detail, header.name)) {
            Ok(_) => Payload::Dropped(Refused::TooLong),
            Err(refused) => Payload::Dropped(refused),
        }
    }

    /// A payload starts to come through the staging ring.
    fn begin(&mut self, control: Control, header: Header, stat: &Stat) -> Result<Option<Incoming>, Breach> {
        if self.inbox.front.is_some() {
            self.set_aside();
            self.pump(stat)?;
            if self.inbox.front.is_some() {
                self.inbox.held = Some((control, header));
                return Ok(None);
            }
        }
        let len = u64::from(header.payload_len);
        let base = self.inbox.next_base.next_multiple_of(STAGE_ALIGN);
        let ready = header.detail & 0xffff_ffff;
        if ready > len || ready > self.inbox.staging.bytes() {
            return Err(Breach::Progress);
        }
        self.inbox.next_base = base + len;
        self.inbox.staged = self.inbox.staged.max(base + ready);
        self.inbox.drained = base;
        self.inbox.tickets += 1;
        let ticket = self.inbox.tickets;
        let mut transfer = Transfer::new(len, self.policy);
        transfer.set_minpulse_max(longest_minpulse(len, self.inbox.staging.bytes()));
        let front = |goes| Front { ticket, base, len, moved: 0, started: clock::now(), transfer, goes };
        if header.kind == Kind::Staged {
            self.inbox.front = Some(front(Goes::Reader));
            let shelf = Some(Arc::clone(&self.traffic.shelf));
            let payload = Payload::Arriving(Arriving { ticket, bytes: header.payload_len, shelf });
            return Ok(Some(self.arrival(control, &header, payload, stat)));
        }
        match self.token_buffer(token(header.detail >> 32, header.name), header.payload_len)? {
            Ok(buffer) => {
                self.inbox.front = Some(front(Goes::Buffer(buffer, control, header)));
                self.pump(stat)
            }
            Err(refused) => {
                self.inbox.front = Some(front(Goes::Away));
                Ok(Some(self.arrival(control, &header, Payload::Dropped(refused), stat)))
            }
        }
    }

    /// The memory that a token names, cut to the payload: checked before a byte of it moves.
    fn token_buffer(&mut self, token: Token, len: u32) -> Result<Result<Vec<u8>, Refused>, Breach> {
        match self.traffic.tokens.look(token) {
            Ok(Place::Buffer(buffer)) if buffer.len() < len as usize => return Ok(Err(Refused::TooLong)),
            Ok(Place::Pages { .. }) => return Err(Breach::Descriptor),
            Ok(Place::Buffer(_)) => {}
            Err(refused) => return Ok(Err(refused)),
        }
        self.own.clear_token(token.index);
        match self.traffic.tokens.redeem(token) {
            Ok(Place::Buffer(mut buffer)) => {
                buffer.truncate(len as usize);
                Ok(Ok(buffer))
            }
            _ => Err(Breach::Descriptor),
        }
    }

    /// From now on the front goes aside, if it was waiting for its reader and not too much lies aside already.
    fn set_aside(&mut self) {
        let aside: usize = self.inbox.aside.iter().map(|aside| aside.2.len()).sum();
        if aside as u64 >= ASIDE_MAX {
            return;
        }
        if let Some(front) = self.inbox.front.as_mut()
            && matches!(front.goes, Goes::Reader)
        {
            let from = usize::try_from(front.moved).unwrap_or(0);
            let rest = usize::try_from(front.len - front.moved).unwrap_or(0);
            front.goes = Goes::Aside(from, vec![0; rest]);
        }
    }

    /// Sets the front aside if its reader looks for other things while the sender waits for room in the ring: a sender
    /// may be held by a full queue, but not by a reader that has the payload in its hands and does not read it.
    pub(super) fn release_sender(&mut self, stat: &Stat) -> Result<(), Breach> {
        let ring = self.inbox.staging.bytes();
        let staged = self.peer.get(Line::Staged);
        let held =
            |front: &Front| front.len - front.moved > ring && staged.wrapping_sub(front.base + front.moved) > ring / 2;
        if self.inbox.waits_for_reader() && self.inbox.front.as_ref().is_some_and(held) {
            self.set_aside();
            self.pump(stat)?;
            self.inbox.mark();
        }
        Ok(())
    }

    /// Throws payloads away whose right was dropped.
    pub(super) fn discard_unread(&mut self, stat: &Stat) -> Result<(), Breach> {
        while let Some(ticket) = self.inbox.unread.pop() {
            self.inbox.aside.retain(|aside| aside.0 != ticket);
            match self.inbox.front.as_mut() {
                Some(front) if front.ticket == ticket => front.goes = Goes::Away,
                _ => {}
            }
        }
        if self.inbox.front.as_ref().is_some_and(|front| matches!(front.goes, Goes::Away)) {
            self.pump(stat)?;
            self.inbox.mark();
        }
        Ok(())
    }

    /// Moves what has arrived of the front to where it goes by itself; delivers its message, if that waited for it.
    fn pump(&mut self, stat: &Stat) -> Result<Option<Incoming>, Breach> {
        let Some(mut front) = self.inbox.front.take() else { return Ok(None) };
        let done = match &mut front.goes {
            Goes::Reader => false,
            Goes::Away => self.advance_away(&mut front.moved, front.base, front.len)?,
            Goes::Buffer(buffer, ..) => {
                let to = buffer.as_mut_slice();
                self.advance(&mut front.transfer, &mut front.moved, front.base, (0, to), &mut ())? == Step::Done
            }
            Goes::Aside(from, bytes) => {
                let to = (*from, bytes.as_mut_slice());
                self.advance(&mut front.transfer, &mut front.moved, front.base, to, &mut ())? == Step::Done
            }
        };
        if !done {
            self.inbox.front = Some(front);
            return Ok(None);
        }
        let copied = front.len * u64::from(!matches!(front.goes, Goes::Away));
        stat.add(Counter::Copies, u64::from(copied > 0));
        stat.add(Counter::CopiedBytes, copied);
        stat.add(Counter::Pulses, u64::from(front.transfer.pulses()));
        match front.goes {
            Goes::Buffer(buffer, control, header) => {
                let mut arrival = self.arrival(control, &header, Payload::Buffer(buffer), stat);
                if let Some(arrived) = arrival.cargo_mut() {
                    arrived.receipt.started = front.started;
                    arrived.receipt.pulses = front.transfer.pulses();
                }
                Ok(Some(arrival))
            }
            Goes::Aside(from, bytes) => {
                self.inbox.aside.push((front.ticket, from, bytes));
                Ok(None)
            }
            Goes::Away | Goes::Reader => Ok(None),
        }
    }

    /// One turn of the engine over the receiving stage: into `to`, whose first byte is byte `first` of the payload.
    fn advance(
        &mut self,
        transfer: &mut Transfer,
        moved: &mut u64,
        base: u64,
        (first, to): (usize, &mut [u8]),
        trace: &mut impl Trace,
    ) -> Result<Step, Breach> {
        loop {
            let before = *moved;
            let mut mover = Inbound {
                to: (first, &mut *to),
                base,
                len: transfer.len(),
                moved: *moved,
                staged: self.inbox.staged,
                staging: &self.inbox.staging,
                own: &self.own,
                peer: &self.peer,
                socket: &self.socket,
                misreport: None,
            };
            let step = transfer.poll(clock::now(), &mut mover, &mut self.tuners, trace);
            let misreport = mover.misreport;
            *moved = mover.moved;
            self.inbox.staged = mover.staged;
            self.inbox.drained = base + *moved;
            if let Some(breach) = misreport {
                return Err(breach);
            }
            match step {
                Step::Misreported { .. } => return Err(Breach::Progress),
                Step::Done => {
                    self.own.set_minpulse(self.tuners[Stage::AdapterToHost.index()].minpulse(MINPULSE_OF));
                    return Ok(Step::Done);
                }
                Step::Waiting if *moved == before => return Ok(Step::Waiting),
                Step::Waiting | Step::Moving => {}
            }
        }
    }

    /// Lets the front go by without looking at it.
    fn advance_away(&mut self, moved: &mut u64, base: u64, len: u64) -> Result<bool, Breach> {
        let inbox = &mut self.inbox;
        inbox.staged = check::staged(inbox.staged, self.peer.get(Line::Staged), inbox.drained, inbox.staging.bytes())?;
        *moved = inbox.staged.saturating_sub(base).clamp(*moved, len);
        inbox.drained = base + *moved;
        self.own.set(Line::Drained, inbox.drained);
        patience::wake(&self.peer, &self.socket);
        Ok(*moved == len)
    }

    /// Reads what has arrived of a payload, without waiting: how many bytes at the start of `into` are valid now. The
    /// early notice; the same memory has to be passed each time.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_some(
        &mut self,
        arriving: &mut Arriving,
        into: &mut [u8],
        trace: &mut impl Trace,
        stat: &Stat,
    ) -> Result<Read, ReadError> {
        let len = arriving.bytes as usize;
        let into = into.get_mut(..len).ok_or(ReadError::TooSmall(len))?;
        if let Some(place) = self.inbox.aside.iter().position(|aside| aside.0 == arriving.ticket) {
            let (_, from, bytes) = self.inbox.aside.swap_remove(place);
            into[from..].copy_from_slice(&bytes);
            stat.add(Counter::Copies, 1);
            stat.add(Counter::CopiedBytes, bytes.len() as u64);
            arriving.shelf = None;
            return Ok(Read { valid: len, done: true, pulses: 0, extra_copies: 1 });
        }
        let Some(mut front) = self.inbox.front.take_if(|front| front.ticket == arriving.ticket) else {
            return Err(self.ending.map_or(ReadError::Nothing, ReadError::Closed));
        };
        if let Goes::Aside(valid, _) = front.goes {
            self.inbox.front = Some(front);
            self.pump(stat).map_err(|breach| self.unreadable(breach))?;
            self.inbox.mark();
            return Ok(Read { valid, done: false, pulses: 0, extra_copies: 0 });
        }
        let step = self.advance(&mut front.transfer, &mut front.moved, front.base, (0, into), trace);
        let done = step.map_err(|breach| self.unreadable(breach))? == Step::Done;
        let pulses = front.transfer.pulses();
        let valid = usize::try_from(front.moved).unwrap_or(0);
        if done {
            arriving.shelf = None;
            stat.add(Counter::Copies, 1);
            stat.add(Counter::CopiedBytes, front.len);
            stat.add(Counter::Pulses, u64::from(pulses));
        } else {
            self.inbox.front = Some(front);
        }
        Ok(Read { valid, done, pulses, extra_copies: 0 })
    }

    fn unreadable(&mut self, breach: Breach) -> ReadError {
        self.end(CloseReason::Breach(breach));
        ReadError::Closed(CloseReason::Breach(breach))
    }

    /// Reads a payload into private memory while it arrives, and waits for the rest of it.
    ///
    /// # Errors
    /// [`ReadError`]; then what `into` holds is of no use.
    pub fn read(
        &mut self,
        arriving: &mut Arriving,
        into: &mut [u8],
        trace: &mut impl Trace,
        stat: &Stat,
    ) -> Result<Read, ReadError> {
        let mut patience = Patience::new(self.deadline);
        let mut drained = self.inbox.drained;
        loop {
            let read = self.read_some(arriving, into, trace, stat)?;
            if read.done {
                return Ok(read);
            }
            if self.inbox.drained != drained {
                drained = self.inbox.drained;
                patience.progress();
                continue;
            }
            let (peer, staged) = (&self.peer, self.inbox.staged);
            let waited = patience.pass(&self.socket, &self.own, self.fence, || peer.get(Line::Staged) != staged);
            let last_bytes = self.peer.get(Line::Staged) != staged;
            match self.waited(waited) {
                Err(reason) if !last_bytes => return Err(ReadError::Closed(reason)),
                _ => {}
            }
        }
    }

    /// While this side waits for the peer to take what it sends, takes what the peer sends out of its way: messages
    /// into a queue, the front payload aside.
    pub(super) fn relieve(&mut self, stat: &Stat) -> Result<(), Breach> {
        if let Some(arrival) = self.pump(stat)? {
            self.inbox.queue.push_back(arrival);
        }
        while !self.inbox.blocked() && self.inbox.queue.len() < QUEUE {
            let Some(taken) = self.consumer.take() else { break };
            self.took();
            let arrival = match taken {
                Taken::Control(len, control) => Some(Incoming::new(self.channel, len, control)),
                Taken::Loaded(header, control) => self.receive_payload(header, control, stat)?,
            };
            match arrival {
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

/// The last stage of a cut-through copy: out of the staging ring into private memory, while the sender still fills it.
struct Inbound<'a> {
    to: (usize, &'a mut [u8]),
    base: u64,
    len: u64,
    moved: u64,
    staged: u64,
    staging: &'a Staging,
    own: &'a Own,
    peer: &'a Peer,
    socket: &'a OwnedFd,
    misreport: Option<Breach>,
}

impl Adapter for Inbound<'_> {
    fn capability(&self, stage: Stage) -> Capability {
        match stage {
            Stage::HostToAdapter => Capability::OBSERVED,
            Stage::AdapterToLink | Stage::LinkToAdapter => Capability::ABSENT,
            Stage::AdapterToHost => Capability::DRIVEN,
        }
    }

    fn idle(&mut self, _now: Instant, _stage: Stage) -> bool {
        true
    }

    fn moved(&mut self, _now: Instant, stage: Stage) -> u64 {
        if stage == Stage::AdapterToHost {
            return self.moved;
        }
        if self.staged < self.base + self.len {
            let drained = self.base + self.moved;
            match check::staged(self.staged, self.peer.get(Line::Staged), drained, self.staging.bytes()) {
                Ok(staged) => self.staged = staged,
                Err(breach) => self.misreport = Some(breach),
            }
        }
        self.staged.saturating_sub(self.base).min(self.len)
    }

    fn room(&mut self, _now: Instant, stage: Stage) -> u64 {
        match stage {
            Stage::AdapterToHost => self.len - self.moved,
            _ => (self.base + self.moved + self.staging.bytes()).saturating_sub(self.staged.max(self.base)),
        }
    }

    fn start(&mut self, _now: Instant, _stage: Stage, pulse: Pulse) {
        let Ok(len) = usize::try_from(pulse.len) else { return };
        let Ok(offset) = usize::try_from(pulse.offset) else { return };
        let place = offset - self.to.0;
        self.staging.copy_out(self.base + self.moved, &mut self.to.1[place..place + len]);
        self.moved += pulse.len;
        self.own.set(Line::Drained, self.base + self.moved);
        patience::wake(self.peer, self.socket);
    }
}
