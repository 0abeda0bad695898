//! One engine over its channels, polled: whose turn it is, what has arrived, who has come and gone, when to sleep.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::hello::Refusal;
use cutthrough_engine::receipt::Receipt;
use cutthrough_engine::time::Instant;
use cutthrough_engine::transfer::Trace;
use cutthrough_engine::turn::Turn;
use cutthrough_segment::bell::{self, Fence, NAP_MS};
use cutthrough_segment::map::MapError;
use cutthrough_segment::page::Waker;
use cutthrough_wire::layout::{SizeError, Sizes};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::clock;
use crate::config::Config;
use crate::idle::Idle;
use crate::incoming::{Channel, Completion, Event, Incoming, Payload};
use crate::shm::handshake::{self, HandshakeError, Heard, Offer};
use crate::shm::link::{CloseReason, Identity, Link, SendError, Terms};
use crate::shm::receive::ReadError;
use crate::shm::rendezvous::{self, AddressError, Listener};
use crate::stat::{Cell, Stat};

/// Polls between two looks at the clock.
const POLLS_PER_LOOK: u32 = 1 << 10;
/// Nanoseconds between two rounds of housekeeping while polling: who has come, who has gone. Sleepers hear of it at
/// once.
const HOUSE_NS: u64 = 20_000_000;
/// Nanoseconds that a peer may take to say hello.
const HELLO_NS: u64 = 1_000_000_000;
/// Nanoseconds for which the name of a peer that has ended is looked after.
const ORPHAN_NS: u64 = 1_000_000_000;
/// Peers that may be saying hello at a time.
const HELLOS: usize = 64;
/// Nanoseconds of looking before going to sleep: see [`crate::shm`]'s patience.
const SPIN_NS: u64 = 50_000;

/// Most things that are heard of the kernel at a time.
const HEARD: usize = 64;

/// Number of the listening socket among the things that wake a sleeper; hellos follow above it, channels lie below.
const LISTENER: u64 = 1 << 32;
/// Number of the waker.
const WAKER: u64 = LISTENER + 1;
/// First number of a hello in progress.
const HELLO: u64 = LISTENER + 2;

/// Why a node could not be made.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A setting is out of its bounds.
    #[error(
        "setting out of bounds: {0:?} (slots: power of two 16..65536; page 4K, 8K, 64K or 2M; staging: power of two 64K..1G; pool and landing at most 64G)"
    )]
    Sizes(SizeError),
    /// No shared memory.
    #[error(transparent)]
    Memory(#[from] MapError),
    /// The system refused something else.
    #[error("{what}: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What the system said.
        source: Errno,
    },
}

/// Why there is no channel to a peer.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The handshake.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The peer did not answer in time.
    #[error("no answer within {0:?}; the listening side has to poll or wait")]
    Timeout(Duration),
    /// This endpoint has as many channels as its settings allow.
    #[error("this endpoint has all {0} channels that its settings allow")]
    Channels(u32),
    /// The system refused something else.
    #[error("{0} (too many open files? raise `ulimit -n`)")]
    System(Errno),
}

/// Why waiting ended without an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The time is over.
    #[error("nothing happened in time")]
    TimedOut,
    /// The system refused to wait.
    #[error("waiting failed: {0}")]
    System(Errno),
}

/// A peer that has connected and not yet said hello.
#[derive(Debug)]
struct Caller {
    socket: OwnedFd,
    number: u64,
    since: Instant,
}

/// One seat for a channel.
#[derive(Debug, Default)]
struct Seat {
    life: u32,
    link: Option<Box<Link>>,
    /// Why the last channel of this seat ended.
    ended: Option<CloseReason>,
}

/// One engine over its channels.
#[derive(Debug)]
pub struct Node {
    turn: Turn,
    seats: Vec<Seat>,
    events: VecDeque<Event>,
    idle: Idle,
    polls: u32,
    housed: Instant,
    /// Whether somebody may have slept since the kernel was last asked what it has to say.
    armed: bool,
    /// Channels that are not armed.
    awake: Vec<usize>,
    stat: Stat,
    free_seats: Vec<u32>,
    config: Config,
    sizes: Sizes,
    generation: u64,
    fence: Fence,
    waker: Arc<Waker>,
    sleepers: OwnedFd,
    listener: Option<Listener>,
    callers: Vec<Caller>,
    callers_seen: u64,
    reached: Vec<(Channel, PathBuf)>,
    /// Names of peers that have ended, and since when.
    orphans: Vec<(PathBuf, Instant)>,
}

impl Node {
    /// A node without channels.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(config: Config) -> Result<Self, OpenError> {
        let sizes = config.sizes().map_err(OpenError::Sizes)?;
        let system = |what| move |source| OpenError::System { what, source };
        let sleepers = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("epoll"))?;
        let waker = Arc::new(Waker::new().map_err(system("eventfd"))?);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&sleepers, waker.event(), epoll::EventData::new_u64(WAKER), flags).map_err(system("epoll"))?;
        let generation = random().map_err(system("random numbers"))?;
        Ok(Self {
            turn: Turn::new(),
            seats: Vec::new(),
            events: VecDeque::new(),
            idle: Idle::default(),
            polls: 0,
            housed: clock::now(),
            armed: false,
            awake: Vec::new(),
            stat: Stat::create(config.channels, generation)?,
            free_seats: Vec::new(),
            config,
            sizes,
            generation,
            fence: bell::register(),
            waker,
            sleepers,
            listener: None,
            callers: Vec::new(),
            callers_seen: 0,
            reached: Vec::new(),
            orphans: Vec::new(),
        })
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The counters.
    #[must_use]
    pub const fn stat(&self) -> &Stat {
        &self.stat
    }

    /// How this kernel lets a sleeper be woken without a fence on the sender's path.
    #[must_use]
    pub const fn fence(&self) -> Fence {
        self.fence
    }

    /// Open channels.
    pub fn channels(&self) -> impl Iterator<Item = Channel> + '_ {
        self.seats
            .iter()
            .zip(0..)
            .filter(|(seat, _)| seat.link.is_some())
            .map(|(seat, index)| Channel { index, life: seat.life })
    }

    /// Takes a name and listens under it, instead of any name before.
    ///
    /// # Errors
    /// [`AddressError`].
    pub fn listen(&mut self, address: &str) -> Result<(), AddressError> {
        let listener = Listener::open(address)?;
        let flags = epoll::EventFlags::IN;
        epoll::add(&self.sleepers, listener.socket(), epoll::EventData::new_u64(LISTENER), flags)
            .map_err(|errno| AddressError::System { path: listener.path().to_owned(), source: errno.into() })?;
        self.stat.set_name(address);
        self.listener = Some(listener);
        Ok(())
    }

    /// Opens a channel to whoever listens at `address`. Peers of our own are let in meanwhile, so that two nodes, or a
    /// node with itself, can connect from one thread.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&mut self, address: &str, timeout: Duration) -> Result<Channel, ConnectError> {
        let path = rendezvous::socket_path(address)?;
        let socket = self.reach(&path, timeout)?;
        let seat = self.take_seat().ok_or(ConnectError::Channels(self.config.channels))?;
        match self.greet(socket, seat, timeout) {
            Ok(channel) => {
                self.reached.push((channel, path));
                Ok(channel)
            }
            Err(error) => {
                self.free_seats.push(seat);
                Err(error)
            }
        }
    }

    /// A connection to whoever listens at `path`; waits while too many others wait there.
    fn reach(&mut self, path: &Path, timeout: Duration) -> Result<OwnedFd, AddressError> {
        let begun = clock::now();
        loop {
            match rendezvous::reach(path) {
                Err(AddressError::Busy(_)) if Duration::from_nanos(clock::now().saturating_since(begun)) < timeout => {
                    self.keep_house();
                    std::thread::sleep(Duration::from_millis(1));
                }
                reached => return reached,
            }
        }
    }

    fn greet(&mut self, socket: OwnedFd, seat: u32, timeout: Duration) -> Result<Channel, ConnectError> {
        let offer = Offer::make(self.generation, &self.sizes)?;
        offer.say(&socket)?;
        let begun = clock::now();
        loop {
            if let Some(heard) = handshake::listen(&socket)? {
                return self.join(socket, offer, heard, seat).map_err(ConnectError::System);
            }
            if Duration::from_nanos(clock::now().saturating_since(begun)) > timeout {
                return Err(ConnectError::Timeout(timeout));
            }
            self.keep_house();
            let mut polled = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::IN)];
            let nap = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            let _ = rustix::event::poll(&mut polled, Some(&nap));
        }
    }

    /// Makes a channel of a finished handshake.
    fn join(&mut self, socket: OwnedFd, offer: Offer, heard: Heard, seat: u32) -> Result<Channel, Errno> {
        let credentials = rustix::net::sockopt::socket_peercred(&socket)?;
        let identity = Identity {
            process: u32::try_from(credentials.pid.as_raw_nonzero().get()).unwrap_or(0),
            user: credentials.uid.as_raw(),
            generation: heard.greeting.generation,
        };
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&self.sleepers, &socket, epoll::EventData::new_u64(u64::from(seat)), flags)?;
        let place = &mut self.seats[seat as usize];
        place.life = place.life.wrapping_add(1);
        let channel = Channel { index: seat, life: place.life };
        let terms = Terms {
            sizes: self.sizes,
            policy: self.config.policy,
            deadline: self.config.deadline,
            fence: self.fence,
            waker: Arc::clone(&self.waker),
            seed: random()?,
            channel,
        };
        let link = Link::new(socket, offer, heard, identity, &terms);
        link.show_open(&self.stat);
        self.seats[seat as usize].link = Some(Box::new(link));
        self.turn.add(seat as usize);
        self.stat.add(Counter::ChannelsOpened, 1);
        self.awake.push(seat as usize);
        Ok(channel)
    }

    fn take_seat(&mut self) -> Option<u32> {
        if let Some(seat) = self.free_seats.pop() {
            return Some(seat);
        }
        let seat = u32::try_from(self.seats.len()).ok().filter(|seat| *seat < self.config.channels)?;
        self.seats.push(Seat::default());
        Some(seat)
    }

    /// The channel's link and the counters.
    ///
    /// # Errors
    /// [`SendError::Closed`], if the channel has ended.
    #[inline]
    pub fn link(&mut self, channel: Channel) -> Result<(&mut Link, &Stat), SendError> {
        match self.seats.get_mut(channel.index as usize) {
            Some(Seat { life, link: Some(link), .. }) if *life == channel.life => Ok((link, &self.stat)),
            Some(Seat { life, ended: Some(reason), .. }) if *life == channel.life => Err(SendError::Closed(*reason)),
            _ => Err(SendError::Closed(CloseReason::Here)),
        }
    }

    /// Copies a message's payload into private memory, which must be at least as long: [`Link::read`] if it is still
    /// arriving.
    ///
    /// # Errors
    /// [`ReadError`]; then what `into` holds is of no use.
    pub fn read(
        &mut self,
        message: &mut Incoming,
        into: &mut [u8],
        trace: &mut impl Trace,
    ) -> Result<Receipt, ReadError> {
        let channel = message.channel();
        let arrived = message.cargo_mut().ok_or(ReadError::Nothing)?;
        let len = usize::try_from(arrived.receipt.bytes).unwrap_or(usize::MAX);
        let into = into.get_mut(..len).ok_or(ReadError::TooSmall(len))?;
        let receipt = &mut arrived.receipt;
        match &mut arrived.payload {
            Payload::None | Payload::Dropped(_) => return Err(ReadError::Nothing),
            Payload::Landed(landed) => {
                landed.read_at(0, into);
                receipt.copies += 1;
            }
            Payload::Buffer(buffer) => {
                into.copy_from_slice(buffer);
                receipt.copies += 1;
            }
            Payload::Arriving(arriving) => {
                let (link, stat) = self.link_to_wait(channel).map_err(unreadable)?;
                let read = link.read(arriving, into, trace, stat);
                let read = read.inspect_err(|_| self.warm(channel))?;
                receipt.pulses = read.pulses;
                receipt.copies += read.extra_copies;
                arrived.payload = Payload::None;
            }
        }
        receipt.finished = clock::now();
        Ok(*receipt)
    }

    /// Reads what has arrived of a payload, without waiting: how many bytes at the start of `into` are valid by now.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_some(&mut self, message: &mut Incoming, into: &mut [u8]) -> Result<usize, ReadError> {
        let channel = message.channel();
        let arrived = message.cargo_mut().ok_or(ReadError::Nothing)?;
        let Payload::Arriving(arriving) = &mut arrived.payload else {
            return self.read(message, into, &mut ()).map(|_| message.payload_len());
        };
        let (link, stat) = self.link(channel).map_err(unreadable)?;
        let read = link.read_some(arriving, into, &mut (), stat);
        let read = read.inspect_err(|_| self.warm(channel))?;
        arrived.receipt.pulses = read.pulses;
        if read.done {
            arrived.receipt.finished = clock::now();
            arrived.payload = Payload::None;
        }
        Ok(read.valid)
    }

    /// As [`Node::link`], for operations that may wait for the peer in the middle: such a wait takes the channel's
    /// rings off its socket, so the channel is not armed afterwards and has to be looked at before the next sleep.
    ///
    /// # Errors
    /// As [`Node::link`].
    #[inline]
    pub fn link_to_wait(&mut self, channel: Channel) -> Result<(&mut Link, &Stat), SendError> {
        let (link, stat) = match self.seats.get_mut(channel.index as usize) {
            Some(Seat { life, link: Some(link), .. }) if *life == channel.life => (link, &self.stat),
            Some(Seat { life, ended: Some(reason), .. }) if *life == channel.life => {
                return Err(SendError::Closed(*reason));
            }
            _ => return Err(SendError::Closed(CloseReason::Here)),
        };
        if link.disarm() {
            self.awake.push(channel.index as usize);
        }
        Ok((link, stat))
    }

    /// Looks at a channel first in the next poll: an operation on it has found that it is ending.
    pub fn warm(&mut self, channel: Channel) {
        self.turn.warm(channel.index as usize);
    }

    /// Closes a channel. What has arrived and was not polled for is thrown away.
    pub fn close(&mut self, channel: Channel) {
        if self.link(channel).is_ok() {
            self.remove(channel.index, CloseReason::Here);
        }
    }

    fn remove(&mut self, index: u32, reason: CloseReason) {
        let Some(mut link) = self.seats[index as usize].link.take() else { return };
        self.seats[index as usize].ended = Some(reason);
        link.show(&self.stat);
        link.leave();
        let _ = epoll::delete(&self.sleepers, link.socket());
        self.stat.set(index as usize, Cell::Open, 0);
        self.stat.add(Counter::ChannelsClosed, 1);
        self.turn.remove(index as usize);
        self.free_seats.push(index);
        let channel = link.channel();
        if let Some(place) = self.reached.iter().position(|(reached, _)| *reached == channel) {
            let (_, path) = self.reached.swap_remove(place);
            self.orphans.push((path, clock::now()));
            self.sweep();
        }
    }

    /// What has happened next, if anything has. Never waits. On the path of a control message there is no system call,
    /// lock or allocation; every 20 ms a poll also looks after who has come and gone.
    #[inline]
    pub fn poll(&mut self) -> Option<Event> {
        self.polls = self.polls.wrapping_add(1);
        if !self.polls.is_multiple_of(POLLS_PER_LOOK)
            && !self.armed
            && self.events.is_empty()
            && let Some(index) = self.turn.current()
            && let Some(link) = self.seats[index].link.as_mut()
            && let Some(len) = link.peek_control()
        {
            if link.disarm() {
                self.awake.push(index);
            }
            self.turn.found();
            self.idle.found();
            return Some(Event::Message(link.take_control(len)));
        }
        self.poll_all()
    }

    /// The whole of a poll: the clock, what the kernel has to say, every channel whose turn it is.
    fn poll_all(&mut self) -> Option<Event> {
        if self.polls.is_multiple_of(POLLS_PER_LOOK) {
            self.look_at_clock();
        }
        if self.armed {
            self.armed = false;
            self.waker.awake();
            let _ = self.hear(0);
        }
        if !self.events.is_empty() {
            return self.events.pop_front();
        }
        for _ in 0..self.turn.looks_per_turn() {
            let Some(index) = self.turn.current() else { break };
            let Some(link) = self.seats[index].link.as_mut() else { break };
            match link.receive(&self.stat) {
                Ok(Some(message)) => {
                    if link.disarm() {
                        self.awake.push(index);
                    }
                    self.turn.found();
                    self.idle.found();
                    return Some(Event::Message(message));
                }
                Ok(None) if link.untidy(self.polls) || link.ending().is_some() => {
                    if let Some(event) = self.look_closer(index) {
                        return Some(event);
                    }
                    self.turn.empty();
                }
                Ok(None) => self.turn.empty(),
                Err(breach) => {
                    link.end(CloseReason::Breach(breach));
                    return self.look_closer(index);
                }
            }
        }
        self.nothing();
        None
    }

    /// A channel on which no message waits: pages to take back, completions, its end.
    #[cold]
    fn look_closer(&mut self, index: usize) -> Option<Event> {
        let link = self.seats[index].link.as_mut()?;
        let channel = link.channel();
        if let Err(breach) = link.tidy(&self.stat) {
            link.end(CloseReason::Breach(breach));
        }
        if let Some(cookie) = link.completed() {
            return Some(Event::Completed(Completion { channel, cookie }));
        }
        let reason = link.ending()?;
        match reason {
            CloseReason::Breach(breach) => self.stat.add(breach.counter(), 1),
            CloseReason::Died => self.stat.add(Counter::PeersDied, 1),
            CloseReason::Here | CloseReason::Peer | CloseReason::Stalled => {}
        }
        self.remove(channel.index, reason);
        Some(Event::Closed(channel, reason))
    }

    /// A poll has found nothing: whether to let others run.
    #[inline]
    fn nothing(&mut self) {
        if self.idle.look() {
            self.let_others_run();
        }
    }

    #[cold]
    fn let_others_run(&mut self) {
        let before = clock::now();
        std::thread::yield_now();
        self.idle.yielded(before, clock::now());
        self.stat.add(Counter::Yields, 1);
    }

    #[cold]
    fn look_at_clock(&mut self) {
        let now = clock::now();
        if now.saturating_since(self.housed) >= HOUSE_NS {
            self.keep_house();
            self.housed = now;
        }
    }

    /// Removes what peers that have ended left of their names, as soon as they are dead for certain.
    fn sweep(&mut self) {
        let now = clock::now();
        self.orphans.retain(|(path, since)| !rendezvous::sweep_name(path) && now.saturating_since(*since) < ORPHAN_NS);
    }

    /// Looks after who has come and gone, and shows the state of the channels.
    fn keep_house(&mut self) {
        self.stat.add(Counter::Housekeeping, 1);
        let _ = self.hear(0);
        for index in 0..self.seats.len() {
            if let Some(link) = self.seats[index].link.as_mut() {
                if link.untidy(0)
                    && let Err(breach) = link.tidy(&self.stat)
                {
                    link.end(CloseReason::Breach(breach));
                }
                link.show(&self.stat);
            }
        }
        let now = clock::now();
        self.callers.retain(|caller| now.saturating_since(caller.since) < HELLO_NS);
        self.sweep();
    }

    /// Takes in what the kernel has to say: rings, deaths, callers. Waits up to `timeout_ms` (-1: for ever) for it.
    fn hear(&mut self, timeout_ms: i32) -> Result<(), Errno> {
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); HEARD];
        let timeout = (timeout_ms >= 0).then(|| Timespec {
            tv_sec: i64::from(timeout_ms / 1000),
            tv_nsec: i64::from(timeout_ms % 1000) * 1_000_000,
        });
        let events = match epoll::wait(&self.sleepers, &mut space, timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        for event in events {
            let (flags, data) = (event.flags, event.data);
            let gone = flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR);
            match data.u64() {
                LISTENER => self.let_in(),
                WAKER => self.look_at_shelves(),
                number if number >= HELLO => self.answer(number),
                index => self.rung(index, gone),
            }
        }
        Ok(())
    }

    /// Something was dropped while nobody looked: the channels that it belongs to are looked at next.
    fn look_at_shelves(&mut self) {
        for (index, seat) in self.seats.iter_mut().enumerate() {
            let Some(link) = seat.link.as_mut().filter(|link| link.shelf_filled()) else { continue };
            if link.disarm() {
                self.awake.push(index);
            }
            self.turn.warm(index);
        }
    }

    /// A channel's socket has something to say: a ring, or the end.
    fn rung(&mut self, index: u64, gone: bool) {
        let Ok(index) = usize::try_from(index) else { return };
        let Some(link) = self.seats.get_mut(index).and_then(|seat| seat.link.as_mut()) else { return };
        if link.disarm() {
            self.awake.push(index);
        }
        if gone {
            link.peer_gone();
        }
        self.turn.warm(index);
    }

    /// Lets callers in.
    fn let_in(&mut self) {
        let Some(listener) = &self.listener else { return };
        while let Ok(socket) = accept_with(listener.socket(), SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            if self.callers.len() >= HELLOS {
                self.stat.add(Counter::HellosRefused, 1);
                handshake::refuse(&socket, Refusal::Channels);
                continue;
            }
            let number = HELLO + self.callers_seen;
            self.callers_seen += 1;
            let data = epoll::EventData::new_u64(number);
            if epoll::add(&self.sleepers, &socket, data, epoll::EventFlags::IN | epoll::EventFlags::RDHUP).is_ok() {
                self.callers.push(Caller { socket, number, since: clock::now() });
            }
        }
    }

    /// A caller has said something: a channel comes of it, or a refusal.
    fn answer(&mut self, number: u64) {
        let Some(place) = self.callers.iter().position(|caller| caller.number == number) else { return };
        let heard = match handshake::listen(&self.callers[place].socket) {
            Ok(None) => return,
            Ok(Some(heard)) => Ok(heard),
            Err(error) => Err(error),
        };
        let Caller { socket, .. } = self.callers.swap_remove(place);
        let _ = epoll::delete(&self.sleepers, &socket);
        let refusal = match heard {
            Ok(heard) => match self.welcome(socket, heard) {
                Ok(channel) => return self.events.push_back(Event::Opened(channel)),
                Err(refusal) => refusal,
            },
            Err(HandshakeError::NoChannel(no)) => no.answer().map(|refusal| (socket, refusal)),
            Err(HandshakeError::Memory(_)) => Some((socket, Refusal::Memory)),
            Err(HandshakeError::Sizes(_) | HandshakeError::Socket(_)) => None,
        };
        self.stat.add(Counter::HellosRefused, 1);
        if let Some((socket, refusal)) = refusal {
            handshake::refuse(&socket, refusal);
        }
    }

    /// Makes our side of a channel, answers, and joins; else what to refuse with, if anybody is left to hear it.
    fn welcome(&mut self, socket: OwnedFd, heard: Heard) -> Result<Channel, Option<(OwnedFd, Refusal)>> {
        let Ok(offer) = Offer::make(self.generation, &self.sizes) else { return Err(Some((socket, Refusal::Memory))) };
        let Some(seat) = self.take_seat() else { return Err(Some((socket, Refusal::Channels))) };
        let joined = match offer.say(&socket) {
            Ok(()) => self.join(socket, offer, heard, seat).ok(),
            Err(_) => None,
        };
        joined.ok_or_else(|| {
            self.free_seats.push(seat);
            None
        })
    }

    /// What happens next: looks for a while, then sleeps until something does. `None` waits for ever.
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Event, WaitError> {
        let begun = clock::now();
        let mut looking_since = begun;
        loop {
            for _ in 0..32 {
                if let Some(event) = self.poll() {
                    return Ok(event);
                }
                std::hint::spin_loop();
            }
            let now = clock::now();
            let passed = Duration::from_nanos(now.saturating_since(begun));
            let left = match timeout {
                Some(timeout) => {
                    Some(timeout.checked_sub(passed).filter(|left| !left.is_zero()).ok_or(WaitError::TimedOut)?)
                }
                None => None,
            };
            if now.saturating_since(looking_since) < SPIN_NS {
                continue;
            }
            if self.arm() {
                self.sleep(left)?;
            }
            looking_since = clock::now();
        }
    }

    fn sleep(&mut self, left: Option<Duration>) -> Result<(), WaitError> {
        self.stat.add(Counter::Sleeps, 1);
        let whole = left.map_or(-1, |left| i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX));
        let longest = if self.fence == Fence::None && !self.seats.is_empty() { NAP_MS } else { whole };
        let longest = if self.callers.is_empty() { longest } else { at_most(longest, 1000) };
        let longest = if self.orphans.is_empty() { longest } else { at_most(longest, 20) };
        self.hear(longest).map_err(WaitError::System)
    }

    /// Arms every channel, so that peers ring when they publish, and looks once more: true if there was nothing, so
    /// that the caller may sleep on the node's file descriptor; false if there is something to poll for.
    pub fn arm(&mut self) -> bool {
        self.armed = true;
        let fresh = std::mem::take(&mut self.awake);
        for index in &fresh {
            if let Some(link) = self.seats[*index].link.as_mut() {
                link.arm();
            }
        }
        if !fresh.is_empty() {
            bell::heavy_fence(self.fence);
        }
        let ready = |index: &usize| self.seats[*index].link.as_ref().is_some_and(|link| link.ready());
        if !fresh.iter().any(ready) && self.events.is_empty() {
            if self.waker.sleep() {
                return true;
            }
            self.look_at_shelves();
            return false;
        }
        // Those that are ready are looked at first by the next poll.
        for index in fresh {
            if ready(&index) {
                self.turn.warm(index);
            }
        }
        false
    }
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sleepers.as_fd()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for seat in &self.seats {
            if let Some(link) = &seat.link {
                link.leave();
            }
        }
    }
}

/// The smaller of two timeouts, of which -1 is the longest.
const fn at_most(timeout: i32, most: i32) -> i32 {
    if timeout < 0 || timeout > most { most } else { timeout }
}

fn unreadable(error: SendError) -> ReadError {
    ReadError::Closed(if let SendError::Closed(reason) = error { reason } else { CloseReason::Here })
}

/// A random number from the kernel.
fn random() -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}
