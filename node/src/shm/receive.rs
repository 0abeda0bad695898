//! Receiving: take, check, find the payload, deliver.
//!
//! A payload in pages is there when its message is. A payload in the staging ring is still arriving: it waits for the
//! reader to say where it shall go ([`Link::read`]), or goes where its token says. Only the payload at the front of the
//! ring can be taken out; if the next one has to come past it, the front is set aside in memory of its own.

mod last;
mod staged;

use std::collections::VecDeque;
use std::hint::spin_loop;
use std::sync::Arc;

use cutthrough_engine::check::{self, Breach};
use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::receipt::{Path, Receipt};
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::{Refused, Token};
use cutthrough_engine::trail::{self, Manner};
use cutthrough_engine::transfer::Transfer;
use cutthrough_segment::half::Peer;
use cutthrough_segment::map::Array;
use cutthrough_segment::page::{Landed, Release, Releases, Runs, Shelf};
use cutthrough_segment::record::Reader;
use cutthrough_segment::ring::{Control, Impossible, Peek, Taken};
use cutthrough_segment::stage::Staging;
use cutthrough_segment::sync::{AtomicU64, Eviction};
use cutthrough_wire::layout::Line;
use cutthrough_wire::run::Run;
use cutthrough_wire::slot::{Header, Kind};

use super::copier::Copier;
use super::link::{CloseReason, Link};
use super::pages::{List, Place};
use super::share::Share;
use crate::clock;
use crate::incoming::{Arrived, Incoming, Payload};
use crate::stat::Stat;

/// Most messages that are taken out of the peer's way while this side waits for it.
const QUEUE: usize = 1024;

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
}

/// A payload that was set aside: its ticket, the first byte that its reader has not got yet, the bytes from there.
pub type Aside = (u64, usize, Vec<u8>);

/// The receiving side of a channel's payloads.
#[derive(Debug)]
pub(super) struct Inbox {
    staging: Staging,
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
    /// The front's way through the ring, once it has been asked for; not needed for a payload that is taken at once.
    transfer: Option<Transfer>,
    /// How many went that way, of which some are timed.
    transfers: u32,
    /// Whether the front was taken in two halves, without that.
    halved: bool,
    /// A message with a staged payload that waits until the front is out of its way.
    held: Option<(Control, Header)>,
    queue: VecDeque<Incoming>,
    aside: Vec<Aside>,
    pub(super) unread: Vec<u64>,
    tickets: u64,
    /// The way back to the shelf, out of the last payload that was read: to make another takes a locked instruction.
    spare: Option<Arc<Shelf>>,
    pub(super) payload_bytes: u64,
    /// Payloads received since what their predecessors left on the shelf was given back.
    untidied: u32,
    /// Whether anything must be looked at before the ring.
    stuck: bool,
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
            copier: Copier::here(),
            eviction: None,
            staged: 0,
            drained: 0,
            told: 0,
            next_base: 0,
            runs,
            front: None,
            transfer: None,
            transfers: 0,
            halved: false,
            held: None,
            queue: VecDeque::new(),
            aside: Vec::new(),
            unread: Vec::new(),
            tickets: 0,
            spare: None,
            payload_bytes: 0,
            untidied: 0,
            stuck: false,
        }
    }

    /// Whether something can be done now without a new message: the last look before sleeping.
    pub(super) fn busy(&self, peer: &Peer) -> bool {
        !self.queue.is_empty() || self.bytes_wait(peer) || self.holds_sender(peer)
    }

    /// Whether a payload that nobody reads fills the ring so far that its sender waits for room, or soon will.
    fn holds_sender(&self, peer: &Peer) -> bool {
        let ring = self.staging.lap();
        let held = |front: &Front| {
            let longer = front.len - front.moved > ring;
            longer && peer.get(Line::Staged).wrapping_sub(front.base + front.moved) > ring / 2
        };
        self.waits_for_reader() && self.front.as_ref().is_some_and(held)
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

    /// Whether the sender does not know how far its bytes have been taken out.
    pub(super) const fn untold(&self) -> bool {
        self.told != self.drained
    }

    /// Nothing is taken out of the ring any more.
    pub(super) const fn stop(&mut self) {
        self.stuck = true;
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
        let goes_by_itself = self.front.as_ref().is_some_and(|front| !matches!(front.goes, Goes::Reader));
        self.stuck = goes_by_itself || self.held.is_some() || !self.queue.is_empty();
    }
}

impl Link {
    /// Bytes of the next message, if one is there, has no payload and nothing has to be looked at before it: the common
    /// case, which [`Link::take_control`] finishes without moving the message twice. A channel that is `alone` may have
    /// nothing looked at for a while.
    #[inline]
    pub(crate) fn peek_control(&mut self, alone: impl FnOnce() -> bool, stat: &Stat) -> Option<u8> {
        if self.inbox.stuck {
            return None;
        }
        match self.consumer.peek_control() {
            Peek::Control(len) => Some(len),
            Peek::Nothing(run) if run >= self.lingers_after && self.linger > 0 && alone() => self.linger(stat),
            Peek::Nothing(_) | Peek::Loaded => None,
        }
    }

    /// Leaves the sender alone for as long as is worth it, since it is in the middle of many messages; then there will
    /// be some.
    #[cold]
    fn linger(&mut self, stat: &Stat) -> Option<u8> {
        stat.add(Counter::Lingers, 1);
        let since = clock::now();
        while clock::now().saturating_since(since) < self.linger {
            spin_loop();
        }
        (self.linger, self.lingers_after) = (self.trail.manner().linger, trail::STREAM);
        None
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
            let messages = taken.wrapping_sub(self.reported);
            self.reported = taken;
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

    fn receive_payload(&mut self, header: [u64; 3], control: Control, stat: &Stat) -> Result<Option<Incoming>, Breach> {
        let header = check::header(header)?;
        self.inbox.untidied += 1;
        if self.inbox.untidied >= TIDY_EVERY && self.traffic.untidy() {
            // Not only when nothing waits: a receiver that is never idle has to give pages back, too.
            self.inbox.untidied = 0;
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
        Ok(Some(self.arrival(control, &header, payload, Instant::default(), stat)))
    }

    /// A message whose payload is where it belongs, or began to come when it says. Inlined: to put all of it together
    /// and to move it then takes longer than to write each part to its place.
    #[inline(always)]
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
        let (copies, movers) = match path {
            Path::None | Path::Reference | Path::Wire | Path::Dropped => (0, 0),
            Path::Put | Path::Get => (1, 1),
            Path::Shared => (1, 2),
            Path::CutThrough => (2, 2),
        };
        let bytes = if path == Path::Dropped { 0 } else { u64::from(header.payload_len) };
        stat.add(Counter::PayloadBytesReceived, bytes);
        self.inbox.payload_bytes += bytes;
        let receipt = Receipt { path, copies, movers, bytes, started: began, finished: began, ..Receipt::default() };
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

    /// Checks runs of the peer's pool, and that they hold the payload; they are lent until they are returned.
    fn pool_runs(&mut self, list: List, header: &Header) -> Result<Runs, Breach> {
        let pages = list
            .as_slice()
            .iter()
            .try_fold(0, |pages, run| Ok(pages + u64::from(check::run(*run, self.peer_sizes.pool_pages)?.count)))?;
        check::covered(header.payload_len, pages, self.peer_sizes.page_bytes)?;
        self.traffic.borrow()?;
        Ok(match list {
            List::One(run) => Runs::One(run.first, run.count),
            List::Many(runs) => Runs::Many(runs.into_iter().map(|run| (run.first, run.count)).collect()),
        })
    }

    fn referred(&mut self, header: &Header) -> Result<Payload, Breach> {
        let list = self.list(header)?;
        let runs = self.pool_runs(list, header)?;
        let release = Releases::One(Release::Lend { number: header.name });
        let ground = self.traffic.peer_ground.take();
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
        let ground = self.traffic.landing_ground.take();
        Ok(Payload::Landed(Landed::new(ground, runs, header.payload_len as usize, release)))
    }

    fn filled_by_token(&mut self, header: &Header) -> Result<Payload, Breach> {
        let token = token(header.detail, header.name);
        match self.traffic.tokens.redeem(token) {
            Ok(Place::Pages { first, count, .. }) => {
                self.own.clear_token(token.index);
                check::covered(header.payload_len, u64::from(count), self.sizes.page_bytes)?;
                let ground = self.traffic.landing_ground.take();
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
        let ground = self.traffic.peer_ground.take();
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
                let ground = self.traffic.landing_ground.take();
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
    /// A token that is good here and was not there had been revoked for a moment ([`RevokeError::InFlight`]).
    ///
    /// [`RevokeError::InFlight`]: super::grant::RevokeError::InFlight
    fn dropped(&self, header: &Header) -> Payload {
        let too_long = header.detail >> 32 & 1 == 1;
        match self.traffic.tokens.look(token(header.detail, header.name)) {
            Ok(_) if too_long => Payload::Dropped(Refused::TooLong),
            Ok(_) => Payload::Dropped(Refused::Revoked),
            Err(refused) => Payload::Dropped(refused),
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
