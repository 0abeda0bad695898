//! One engine over its channels, polled: whose turn it is, what has arrived, who has come and gone, when to sleep.

mod alarm;
mod alternation;
mod calls;
mod doors;
mod errors;
mod house;
mod left;
pub mod others;
mod reading;
pub mod room;
mod sleep;
#[cfg(test)]
mod tests;
mod wires;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::Token;
use cutthrough_engine::turn::Turn;
use cutthrough_segment::bell::{self, Fence};
use cutthrough_segment::page::Waker as Bell;
use cutthrough_segment::ring::Peek;
use cutthrough_wire::layout::Sizes;
use cutthrough_wire::slot::CONTROL_MAX;
use rustix::event::epoll;

use crate::clock;
use crate::config::Config;
use crate::entropy;
use crate::idle::Idle;
use crate::incoming::{Channel, Completion, Event};
use crate::pace::Pace;
use crate::process::Process;
use crate::shm::link::{CloseReason, Identity, Link, SendError};
use crate::shm::rendezvous::Listener;
use crate::shm::strangers::Stranger;
use crate::shm::unmap;
use crate::stat::{Cell, Stat};
use crate::udp::{Names, Udp};

use self::alarm::Alarm;
use self::alternation::Alternation;
use self::calls::Call;
pub use self::errors::{ConnectError, ListenError, OpenError};
use self::left::{Kept, Left};
use self::others::Others;
pub use self::sleep::{WaitError, Waker, left_of};
use self::wires::SHOWN;

/// Nanoseconds for which the name of a peer that has ended is looked after.
const ORPHAN_NS: u64 = 1_000_000_000;
/// Peers that may be saying hello at a time.
const HELLOS: usize = 64;
/// Nanoseconds of looking before going to sleep: see [`crate::shm`]'s patience.
pub const SPIN_NS: u64 = 50_000;

/// Most things that are heard of the kernel at a time.
const HEARD: usize = 64;

/// Number of the listening socket among the things that wake a sleeper; hellos follow above it, channels lie below.
const LISTENER: u64 = 1 << 32;
/// Number of the waker.
const WAKER: u64 = LISTENER + 1;
/// Number of the network's socket.
const NET: u64 = LISTENER + 2;
/// Number of the timer that ends naps.
const NAP: u64 = LISTENER + 3;
/// Number of the alarm.
const ALARM: u64 = LISTENER + 4;
/// First number of a hello in progress.
const HELLO: u64 = LISTENER + 5;

/// A peer that has connected and not yet said hello.
#[derive(Debug)]
struct Caller {
    socket: Stranger,
    number: u64,
    since: Instant,
}

/// One seat for a channel.
#[derive(Debug, Default)]
struct Seat {
    life: u32,
    link: Option<Box<Link>>,
    /// The channel's number on the network side, if it is one to another machine.
    net: Option<usize>,
    /// Why the last channel of this seat ended.
    ended: Option<CloseReason>,
}

/// One engine over its channels.
pub struct Node {
    turn: Turn,
    seats: Vec<Seat>,
    events: VecDeque<Event>,
    idle: Idle,
    /// Whether polls in vain let others have the core.
    yields: bool,
    polls: u32,
    alternation: Alternation,
    pace: Pace,
    housed: Instant,
    /// Whether somebody may have slept since the kernel was last asked what it has to say.
    armed: bool,
    rest: sleep::Rest,
    /// Channels that are not armed.
    awake: Vec<usize>,
    /// The channel in which somebody waits for room.
    wanting: Option<Channel>,
    /// Those of whose room the application is to be told.
    asked: Vec<Channel>,
    stat: Stat,
    free_seats: Vec<u32>,
    config: Config,
    sizes: Sizes,
    generation: u64,
    fence: Fence,
    /// Ends naps, where no fence lets this node sleep longer.
    napper: Option<OwnedFd>,
    alarm: Alarm,
    waker: Arc<Bell>,
    /// Ends waits, from outside.
    woken: Waker,
    sleepers: OwnedFd,
    listener: Option<Listener>,
    /// Whether more callers wait than were looked at.
    crowded: bool,
    callers: Vec<Caller>,
    calls: Vec<Call>,
    reached: Vec<(Channel, PathBuf)>,
    /// Names of peers that have ended, and since when.
    orphans: Vec<(PathBuf, Instant)>,
    /// The network side, once it was asked for.
    net: Option<Box<Udp>>,
    /// When the network side has to be looked at next, while this node sleeps.
    net_timer: Option<Instant>,
    /// What the network side had counted when it was last shown.
    net_shown: [u64; SHOWN],
    names: Names,
    left: Left,
    /// The process that has opened it: a child which that forks has nothing to say to the peers.
    process: Process,
}

impl Node {
    /// A node without channels.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(config: Config) -> Result<Self, OpenError> {
        let sizes = config.sizes().map_err(|which| OpenError::Sizes { which, given: config.given(which) })?;
        config.check().map_err(OpenError::Setting)?;
        let system = |what| move |errno| OpenError::System { what, errno };
        let sleepers = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("epoll"))?;
        let waker = Arc::new(Bell::new().map_err(system("eventfd"))?);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&sleepers, waker.event(), epoll::EventData::new_u64(WAKER), flags).map_err(system("epoll"))?;
        let fence = bell::register();
        let napper = sleep::napper(fence, &sleepers).map_err(system("timer"))?;
        let alarm = Alarm::new(&sleepers).map_err(system("timer"))?;
        let generation = entropy::number().map_err(system("random numbers"))?;
        Ok(Self {
            turn: Turn::new(),
            seats: Vec::new(),
            events: VecDeque::new(),
            idle: Idle::default(),
            yields: true,
            polls: 0,
            alternation: Alternation::default(),
            pace: Pace::new(clock::now()),
            housed: clock::now(),
            armed: false,
            rest: sleep::Rest::default(),
            awake: Vec::new(),
            wanting: None,
            asked: Vec::new(),
            stat: Stat::create(config.channels, generation)?,
            free_seats: Vec::new(),
            config,
            sizes,
            generation,
            fence,
            napper,
            alarm,
            woken: Waker::new(Arc::clone(&waker)),
            waker,
            sleepers,
            listener: None,
            crowded: false,
            callers: Vec::new(),
            calls: Vec::new(),
            reached: Vec::new(),
            orphans: Vec::new(),
            net: None,
            net_timer: None,
            net_shown: [0; SHOWN],
            names: Names::default(),
            left: Left::default(),
            process: Process::this(),
        })
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// What wakes this node while it sleeps, from any thread: it looks, and sleeps on.
    #[must_use]
    pub const fn bell(&self) -> &Arc<Bell> {
        &self.waker
    }

    /// What ends this node's waits, from any thread.
    #[must_use]
    pub const fn waker(&self) -> &Waker {
        &self.woken
    }

    /// What tells this endpoint from all others, and from those that had its address before: a random number, which its
    /// peers are told.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
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
            .filter(|(seat, _)| seat.link.is_some() || seat.net.is_some())
            .map(|(seat, index)| Channel { index, life: seat.life })
    }

    /// Whether a channel's seat is one of the network side.
    #[must_use]
    #[inline]
    pub fn is_wire(&self, channel: Channel) -> bool {
        self.seats.get(channel.index as usize).is_some_and(|seat| seat.net.is_some())
    }

    /// Who is on the other side of a channel; `None` if it has ended.
    #[must_use]
    pub fn identity(&self, channel: Channel) -> Option<Identity> {
        if let Some((net, index)) = self.wire(channel) {
            return net.identity(index);
        }
        let seat = self.seats.get(channel.index as usize).filter(|seat| seat.life == channel.life)?;
        seat.link.as_ref().map(|link| link.identity())
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

    /// The control message of a channel's next slot, to be written in place; [`Link::check_room`] comes first.
    #[inline]
    pub fn control_mut(&mut self, channel: Channel) -> Option<&mut [u8; CONTROL_MAX]> {
        self.link(channel).ok().map(|(link, _)| link.control_mut())
    }

    /// Takes the private memory back that a token named, of a channel that has ended not long ago.
    pub fn take_grant(&mut self, channel: Channel, token: Token) -> Option<Vec<u8>> {
        self.left.take_grant(channel, token)
    }

    /// As [`Node::link`], for operations that may wait for the peer in the middle: such a wait takes the channel's
    /// rings off its socket, so the channel is not armed afterwards and has to be looked at before the next sleep. With
    /// the other channels, which such a wait looks after.
    ///
    /// # Errors
    /// As [`Node::link`].
    #[inline]
    pub fn link_to_wait(&mut self, channel: Channel) -> Result<(&mut Link, Others<'_>, &Stat), SendError> {
        let index = channel.index as usize;
        let Some((before, [seat, after @ ..])) = self.seats.split_at_mut_checked(index) else {
            return Err(SendError::Closed(CloseReason::Here));
        };
        let link = match seat {
            Seat { life, link: Some(link), .. } if *life == channel.life => link,
            Seat { life, ended: Some(reason), .. } if *life == channel.life => {
                return Err(SendError::Closed(*reason));
            }
            _ => return Err(SendError::Closed(CloseReason::Here)),
        };
        if link.disarm() {
            self.awake.push(index);
        }
        Ok((link, Others::new((before, after), &mut self.awake, self.net.as_deref()), &self.stat))
    }

    /// Looks at a channel first in the next poll: an operation on it has found that it is ending.
    pub fn warm(&mut self, channel: Channel) {
        self.turn.warm(channel.index as usize);
    }

    /// Closes a channel. What has arrived and was not polled for is thrown away.
    pub fn close(&mut self, channel: Channel) {
        // What the network tells together waits here until it is polled for.
        self.events.retain(|event| event.channel() != Some(channel));
        if let Some((net, index)) = self.wire(channel) {
            net.close(index);
            self.remove_net(channel.index, CloseReason::Here);
        } else if self.link(channel).is_ok() {
            self.remove(channel.index, CloseReason::Here);
        }
    }

    fn remove(&mut self, index: u32, reason: CloseReason) {
        let Some(mut link) = self.seats[index as usize].link.take() else { return };
        self.seats[index as usize].ended = Some(reason);
        link.show(&self.stat);
        link.leave();
        self.ignore(link.socket());
        self.stat.set(index as usize, Cell::Open, 0);
        self.stat.add(Counter::ChannelsClosed, 1);
        self.turn.remove(index as usize);
        self.awake.retain(|awake| *awake != index as usize);
        self.free_seat_here(index);
        let channel = link.channel();
        if let Some(place) = self.reached.iter().position(|(reached, _)| *reached == channel) {
            let (_, path) = self.reached.swap_remove(place);
            self.look_after(path);
        }
        link.part();
    }

    /// What has happened next, if anything has. Never waits for it, but may linger (`Link::linger`). For a control
    /// message there is no system call, lock or allocation; every 20 ms a poll looks after who has come and gone.
    #[inline]
    pub fn poll(&mut self) -> Option<Event> {
        self.polls = self.polls.wrapping_add(1);
        if !self.pace.due(self.polls)
            && !self.net_is_due()
            && !self.armed
            && self.events.is_empty()
            && let Some(index) = self.turn.current()
            && let Some(link) = self.seats[index].link.as_mut()
        {
            match link.peek(|| self.net.is_none() && self.turn.alone(), &self.stat) {
                Peek::Control(len) => {
                    if link.disarm() {
                        self.awake.push(index);
                    }
                    self.turn.found();
                    self.idle.found();
                    return Some(Event::Message(link.take_control(len)));
                }
                Peek::Loaded(words) => return self.poll_loaded(index, words),
                // Nothing else is to be looked at: who waits for one message sees it the sooner.
                Peek::Nothing(_) if self.net.is_none() && self.turn.alone() && link.is_quiet(self.polls) => {
                    self.turn.empty();
                    self.nothing();
                    return None;
                }
                Peek::Nothing(_) => {}
            }
        }
        self.poll_all()
    }

    /// A poll that has seen a message with a payload, whose slot has these words.
    fn poll_loaded(&mut self, index: usize, words: [u64; 3]) -> Option<Event> {
        let link = self.seats[index].link.as_mut()?;
        let other = match link.unload(words, &self.stat) {
            Ok(Some(cargo)) => {
                if link.disarm() {
                    self.awake.push(index);
                }
                self.turn.found();
                self.idle.found();
                return Some(Event::Message(link.take_loaded(words, cargo)));
            }
            Ok(None) => link.take_other(words, &self.stat),
            Err(breach) => Err(breach),
        };
        match other {
            Ok(Some(message)) => {
                self.found(index);
                Some(Event::Message(message))
            }
            Ok(None) => self.poll_all(),
            Err(breach) => {
                link.end(CloseReason::Breach(breach));
                self.look_closer(index)
            }
        }
    }

    /// Whether the network is looked at in this poll, however much the other channels have.
    #[inline]
    const fn net_is_due(&self) -> bool {
        self.net.is_some() && self.alternation.is_due(self.polls)
    }

    /// A channel has a message.
    #[inline]
    fn found(&mut self, index: usize) {
        if self.seats[index].link.as_mut().is_some_and(|link| link.disarm()) {
            self.awake.push(index);
        }
        self.turn.found();
        self.idle.found();
    }

    /// The whole of a poll: the clock, what the kernel has to say, every channel whose turn it is.
    fn poll_all(&mut self) -> Option<Event> {
        let due = self.pace.due(self.polls);
        if due {
            self.look_at_clock();
        }
        if self.armed {
            self.wakes();
        }
        if !self.asked.is_empty() {
            self.tell_of_room();
        }
        if !self.events.is_empty() {
            return self.next_told();
        }
        if self.net_is_due()
            && let Some(event) = self.turn_net()
        {
            self.idle.found();
            return Some(event);
        }
        for _ in 0..self.turn.looks_per_turn() {
            let Some(index) = self.turn.current() else { break };
            let Some(link) = self.seats[index].link.as_mut() else { break };
            match link.receive(&self.stat) {
                Ok(Some(message)) => {
                    self.found(index);
                    if due {
                        self.tell_completions(index);
                    }
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
        if self.net.is_some()
            && let Some(event) = self.turn_net()
        {
            self.idle.found();
            return Some(event);
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
        // Before the next sleep the alarm is set for it.
        if link.is_midway() && link.disarm() {
            self.awake.push(index);
        }
        if let Some(cookie) = link.completed() {
            return Some(Event::Completed(Completion { channel, cookie }));
        }
        let reason = link.ending()?;
        if let Ok(Some(message)) = link.settle(&self.stat) {
            return Some(Event::Message(message));
        }
        let (shelf, payloads) = (Arc::clone(link.shelf()), link.take_aside().into_iter().map(Kept::from).collect());
        match reason {
            CloseReason::Breach(breach) => self.stat.add(breach.counter(), 1),
            CloseReason::Died => self.stat.add(Counter::PeersDied, 1),
            CloseReason::Here | CloseReason::Peer | CloseReason::Stalled => {}
        }
        let grants = link.take_grants();
        self.left.keep(channel, shelf, payloads);
        self.left.keep_grants(channel, grants);
        self.remove(channel.index, reason);
        Some(Event::Closed(channel, reason))
    }

    /// What has completed on a channel is told next, though its messages may have no end.
    fn tell_completions(&mut self, index: usize) {
        let Some(link) = self.seats[index].link.as_mut().filter(|link| link.ending().is_none()) else { return };
        if let Err(breach) = link.tidy(&self.stat) {
            return link.end(CloseReason::Breach(breach));
        }
        let channel = link.channel();
        while let Some(cookie) = link.completed() {
            self.events.push_back(Event::Completed(Completion { channel, cookie }));
        }
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
        let after = if self.yields {
            self.stat.add(Counter::Yields, 1);
            self.idle.let_others_run()
        } else {
            clock::now()
        };
        // On a crowded core the next look at the clock may be seconds away, and with it the news of a death.
        if after.saturating_since(self.housed) >= self.house_ns() {
            self.keep_house();
            self.housed = after;
        }
    }

    /// Whether polls in vain let others have the core now and then, as they do at first. Not where others want a lock
    /// that whoever polls has: he makes way himself ([`Idle`]), when he has left it.
    pub const fn set_yields(&mut self, yields: bool) {
        self.yields = yields;
    }

    #[cold]
    fn look_at_clock(&mut self) {
        let now = clock::now();
        self.pace.look(self.polls, now);
        if now.saturating_since(self.housed) >= self.house_ns() {
            self.keep_house();
            self.housed = now;
        }
    }
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sleepers.as_fd()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !self.process.is_this() {
            return;
        }
        for seat in &self.seats {
            if let Some(link) = &seat.link {
                link.leave();
            }
        }
        self.calls.iter().for_each(Call::hang_up);
        unmap::finish();
    }
}
