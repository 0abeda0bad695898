//! Sleeping and waking: what the kernel has to say, and when it makes sense to ask.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::time::Instant;
use cutthrough_segment::bell::{self, Fence, NAP_MS};
use cutthrough_segment::page::Waker as Bell;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

use super::{ALARM, HEARD, HELLO, LISTENER, NAP, NET, Node, SPIN_NS, WAKER};
use crate::clock;
use crate::incoming::Event;
use crate::shm::link::CloseReason;

/// Looks between two at the clock.
const LOOKS: u32 = 32;
/// The same for who was woken and may have been woken for nothing.
const LOOKS_WOKEN: u32 = 2;

/// Why waiting ended without an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The time is over.
    #[error("nothing happened in time")]
    TimedOut,
    /// A [`Waker`] has ended it.
    #[error("woken before anything happened")]
    Woken,
    /// The system refused to wait.
    #[error("waiting failed: {0}")]
    System(Errno),
}

/// Ends an endpoint's wait, from any thread: to have it stop, or look at what other threads have left for it. May
/// outlive the endpoint, and does nothing then.
#[derive(Debug, Clone)]
pub struct Waker {
    woken: Arc<AtomicBool>,
    bell: Arc<Bell>,
}

impl Waker {
    pub(super) fn new(bell: Arc<Bell>) -> Self {
        Self { woken: Arc::default(), bell }
    }

    /// Ends the wait that is under way, or else the next one, with [`WaitError::Woken`]; what has happened stays to be
    /// waited or polled for. Several of these before that end one wait. Whoever is woken sees what this thread did
    /// before. Who sleeps on the endpoint's file descriptor is woken, too.
    pub fn wake(&self) {
        // SYNC POINT shelf: see the segment's `Waker::sleep`. Whoever is woken, or stays awake, sees this.
        self.woken.store(true, Ordering::Release);
        self.bell.wake();
    }

    /// Whether it was used since this was last asked.
    pub(super) fn take(&self) -> bool {
        self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::Acquire)
    }
}

/// What has ended a sleep: of several, the one that comes last here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Woken {
    /// The time.
    Nothing,
    /// The end of a nap, after which nothing was found.
    Nap,
    /// The network side alone.
    Net,
    /// Something else too.
    Else,
}

impl Node {
    /// Takes in what the kernel has to say: rings, deaths, callers. Waits up to `timeout_ms` (-1: for ever) for it.
    pub(super) fn hear(&mut self, timeout_ms: i32) -> Result<(), Errno> {
        let whole = u64::try_from(timeout_ms).ok().map(|ms| ms * 1_000_000);
        self.hear_for(whole).map(drop)
    }

    /// As [`Node::hear`], for so many nanoseconds; `None` for ever. Takes in all that there is: who is woken by the
    /// edge of the node's file descriptor is not woken for the rest.
    fn hear_for(&mut self, timeout_ns: Option<u64>) -> Result<Woken, Errno> {
        let (mut woken, mut many) = self.hear_some(timeout_ns)?;
        // Each door has its turn, and nobody rings so fast that this has no end.
        for _ in 0..self.seats.len() / HEARD + 1 {
            if !many {
                break;
            }
            let (by, more) = self.hear_some(Some(0))?;
            (woken, many) = (woken.max(by), more);
        }
        Ok(woken)
    }

    /// Takes in some of it: who has woken this side, and whether there may be more.
    fn hear_some(&mut self, timeout_ns: Option<u64>) -> Result<(Woken, bool), Errno> {
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); HEARD];
        let timeout_ns = if timeout_ns != Some(0) && clock::sleeps(timeout_ns) { Some(0) } else { timeout_ns };
        let part = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        let timeout =
            timeout_ns.map(|ns| Timespec { tv_sec: part(ns / 1_000_000_000), tv_nsec: part(ns % 1_000_000_000) });
        let events = match epoll::wait(&self.sleepers, &mut space, timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok((Woken::Nothing, false)),
            Err(errno) => return Err(errno),
        };
        let many = events.len() == HEARD;
        if clock::is_simulated() {
            self.look_at_late_calls();
        }
        let mut woken = Woken::Nothing;
        for event in events {
            let (flags, data) = (event.flags, event.data);
            let gone = flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR);
            let by = match data.u64() {
                NET => Woken::Net,
                NAP if !self.look_everywhere() => Woken::Nap,
                ALARM if !self.go_off() => Woken::Nap,
                _ => Woken::Else,
            };
            woken = woken.max(by);
            match data.u64() {
                LISTENER => self.let_in(),
                WAKER => self.look_at_shelves(),
                // It may be long before it is looked at, and others may be told of first.
                NET => self.net.iter().for_each(|net| net.rung()),
                NAP | ALARM => {}
                number if number >= HELLO => {
                    self.answer(number);
                    self.look_at_call(number);
                }
                index => self.rung(index, gone),
            }
        }
        Ok((woken, many))
    }

    /// Something was dropped while nobody looked: the channels that it belongs to are looked at next.
    pub(super) fn look_at_shelves(&mut self) {
        self.left.tidy();
        for (index, seat) in self.seats.iter_mut().enumerate() {
            let Some(link) = seat.link.as_mut().filter(|link| link.shelf_filled()) else { continue };
            if link.disarm() {
                self.awake.push(index);
            }
            self.turn.warm(index);
        }
    }

    /// Peers may have overlooked that they are to ring: the channels where something waits are looked at next. True if
    /// there are any.
    fn look_everywhere(&mut self) -> bool {
        let mut found = false;
        for (index, seat) in self.seats.iter_mut().enumerate() {
            let Some(link) = seat.link.as_mut().filter(|link| link.ready()) else { continue };
            if link.disarm() {
                self.awake.push(index);
            }
            self.turn.warm(index);
            found = true;
        }
        found
    }

    /// A channel's socket has something to say: a ring, or the end.
    pub(super) fn rung(&mut self, index: u64, gone: bool) {
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

    /// What happens next: looks for a while, then sleeps until something does. `None` waits for ever.
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Event, WaitError> {
        self.wait_unless(timeout, true, || false)
    }

    /// The same, but the time is over, too, once `over` says so: whoever has it say so rings this node then
    /// ([`Node::bell`]). With `heeds`, its [`Waker`] ends it; else that ends a later wait.
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn wait_unless(
        &mut self,
        timeout: Option<Duration>,
        heeds: bool,
        over: impl Fn() -> bool,
    ) -> Result<Event, WaitError> {
        let event = self.look_and_sleep(timeout, heeds, over);
        if let Some(net) = &self.net {
            net.has_waited();
        }
        event
    }

    fn look_and_sleep(
        &mut self,
        timeout: Option<Duration>,
        heeds: bool,
        over: impl Fn() -> bool,
    ) -> Result<Event, WaitError> {
        let begun = clock::now();
        let mut looking_since = begun;
        // After it was woken: what the network side had seen before.
        let mut woken = None;
        // Beside somebody who has work for the core.
        let mut rests = self.idle.rests();
        loop {
            // Before the events: they may have no end.
            if heeds && self.woken.take() {
                return Err(WaitError::Woken);
            }
            for _ in 0..if woken.is_some() { LOOKS_WOKEN } else { LOOKS } {
                if let Some(event) = self.poll() {
                    return Ok(event);
                }
                std::hint::spin_loop();
            }
            if over() {
                return Err(WaitError::TimedOut);
            }
            let now = clock::now();
            let left = left_of(timeout, begun, now)?;
            // Of a sign of life nothing follows; behind a part of a message there is more.
            if woken.take().is_some_and(|strides| strides != self.strides()) {
                looking_since = now;
            }
            if !rests {
                if now.saturating_since(looking_since) < SPIN_NS {
                    continue;
                }
                // Perhaps the peer waits for this core.
                self.let_others_run();
                if let Some(event) = self.poll() {
                    return Ok(event);
                }
            }
            rests = self.idle.rests();
            let strides = self.strides();
            let by = if self.arm_for(false) { self.sleep(left)? } else { Woken::Nothing };
            match by {
                // Who woke because a nap is over, or the network side had to do something, does it and sleeps on.
                Woken::Nap | Woken::Net => woken = Some(strides),
                Woken::Nothing if self.net.is_some() => woken = Some(strides),
                Woken::Nothing | Woken::Else => looking_since = clock::now(),
            }
        }
    }

    /// How often the network side has got anything that brings messages on.
    fn strides(&self) -> u64 {
        self.net.as_ref().map_or(0, |net| net.strides())
    }

    /// Sleeps until the kernel has something to say, or something is due.
    pub(super) fn sleep(&mut self, left: Option<Duration>) -> Result<Woken, WaitError> {
        self.stat.add(Counter::Sleeps, 1);
        let whole = left.map_or(-1, |left| i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX));
        let longest = if self.callers.is_empty() { whole } else { at_most(whole, 1000) };
        let longest = if self.orphans.is_empty() { longest } else { at_most(longest, 20) };
        let whole = u64::try_from(longest).ok().map(|ms| ms * 1_000_000);
        let now = clock::now();
        let until_timer = self.net_timer.map(|timer| timer.saturating_since(now));
        let longest = whole.into_iter().chain(until_timer).min();
        // A call with a time of its own would stop its timer before it comes back.
        let end = longest.map(|longest| now.after(longest));
        let by_alarm = longest != Some(0) && !clock::is_simulated() && self.alarm.ends_sleep(end, now);
        let woken = self.hear_for(longest.filter(|_| !by_alarm)).map_err(WaitError::System)?;
        // The kernel was heard: the next poll need not ask it again before it looks. But for who was left at the door.
        if !self.crowded {
            self.is_up();
        }
        Ok(woken)
    }

    /// Arms every channel, so that peers ring when they publish, and looks once more: true if there was nothing, so
    /// that the caller may sleep on the node's file descriptor; false if there is something to poll for.
    pub fn arm(&mut self) -> bool {
        self.arm_for(true)
    }

    /// Sets the timer that ends a nap, where a peer may overlook that this side is armed. False if it cannot be set.
    pub(super) fn nap(&self) -> bool {
        if self.fence != Fence::None || !self.seats.iter().any(|seat| seat.link.is_some()) {
            return true;
        }
        let Some(timer) = &self.napper else { return false };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let soon = Timespec { tv_nsec: i64::from(NAP_MS) * 1_000_000, ..never };
        let nap = Itimerspec { it_interval: never, it_value: soon };
        timerfd_settime(timer, TimerfdTimerFlags::empty(), &nap).is_ok()
    }

    /// Makes peers see what is armed. Where the kernel does not do that any more, because this process has shut itself
    /// in meanwhile, this node naps from now on.
    pub(super) fn fence_off(&mut self) {
        if !bell::heavy_fence(self.fence) && self.fence != Fence::None {
            self.fence = Fence::None;
            self.napper = napper(self.fence, &self.sleepers).unwrap_or_default();
        }
    }

    /// As [`Node::arm`]; says whether the caller sleeps outside of a call of ours.
    pub(super) fn arm_for(&mut self, outside: bool) -> bool {
        self.armed = true;
        self.pace.sleeps();
        if let Some(net) = &self.net {
            let wanting = self.wanting.and_then(|channel| self.wire(channel));
            self.net_timer = match wanting {
                Some((net, index)) => net.before_room(index, outside, false),
                None => net.before_sleep(outside),
            };
            if self.net_timer.is_none() {
                return false;
            }
        }
        let (fresh, wanting) = (std::mem::take(&mut self.awake), self.wanting);
        for index in &fresh {
            if let Some(link) = self.seats[*index].link.as_mut() {
                let channel = link.channel();
                link.arm(wanting == Some(channel) || self.asked.contains(&channel));
            }
        }
        if !fresh.is_empty() {
            self.fence_off();
        }
        let mut found = false;
        for index in fresh {
            let Some(link) = self.seats[index].link.as_mut() else { continue };
            if link.is_midway() {
                let now = clock::now();
                link.look_after_payload(now).into_iter().for_each(|due| self.alarm.set(due, now));
            }
            // Whoever looks from outside while this side sleeps, which may be for ever, sees how far it is.
            link.show(&self.stat);
            if !link.ready() {
                continue;
            }
            found = true;
            // Most polls do not ask for what the peer has returned, and nobody rings for it again.
            if let Err(breach) = link.tidy(&self.stat) {
                link.end(CloseReason::Breach(breach));
            }
            // It is looked at first by the next poll, and again before the next sleep.
            if link.disarm() {
                self.awake.push(index);
            }
            self.turn.warm(index);
        }
        let has_room =
            wanting.is_some_and(|channel| self.link(channel).is_ok_and(|(link, _)| link.look_for_room().is_ok()));
        let has_room = has_room || self.has_asked_room();
        if found || has_room || self.crowded || !self.events.is_empty() {
            return false;
        }
        if self.waker.sleep() {
            self.rest.begun = true;
            return self.nap();
        }
        self.look_at_shelves();
        false
    }

    /// The first poll after somebody may have slept outside of a call of ours.
    pub(super) fn wakes(&mut self) {
        self.is_up();
        let _ = self.hear(0);
    }

    /// This side does not sleep any more.
    fn is_up(&mut self) {
        (self.armed, self.crowded) = (false, false);
        if std::mem::take(&mut self.rest.begun) {
            self.rest.over = clock::coarse();
        }
        self.waker.awake();
        if let Some(net) = &self.net {
            // Whatever has woken it, and whether the network is looked at now or not.
            net.here();
        }
    }

    /// When this side has last woken from a sleep that began when there was nothing to poll for. Until then nothing has
    /// lain here: what comes wakes it.
    #[must_use]
    pub const fn rested(&self) -> Instant {
        self.rest.over
    }
}

/// A sleep that began when there was nothing to poll for.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// Whether one has begun since the last poll.
    begun: bool,
    /// When the last one was over.
    over: Instant,
}

/// The timer that ends naps, among the things that wake a sleeper: only where there is no fence to be had.
pub(super) fn napper(fence: Fence, sleepers: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    if fence != Fence::None {
        return Ok(None);
    }
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
    epoll::add(sleepers, &timer, epoll::EventData::new_u64(NAP), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
    Ok(Some(timer))
}

/// What is left by now of a time to wait that has begun then; of one without an end, `None`.
///
/// # Errors
/// [`WaitError::TimedOut`] when it is over.
pub fn left_of(timeout: Option<Duration>, begun: Instant, now: Instant) -> Result<Option<Duration>, WaitError> {
    let Some(timeout) = timeout else { return Ok(None) };
    let passed = Duration::from_nanos(now.saturating_since(begun));
    timeout.checked_sub(passed).filter(|left| !left.is_zero()).map(Some).ok_or(WaitError::TimedOut)
}

/// The smaller of two timeouts, of which -1 is the longest.
const fn at_most(timeout: i32, most: i32) -> i32 {
    if timeout < 0 || timeout > most { most } else { timeout }
}
