//! While the application looks away: a thread that answers, repeats and grants, so that nobody takes us for dead and
//! no peer waits for an application that computes.
//!
//! It does nothing while the application polls or sleeps in a call of ours; it looks every few milliseconds whether
//! that is so. An application that polls all the time puts that look off before it is due: it would take a core from it
//! for as long as several messages take. Once it does the application's work it naps until there is some, and the
//! application ends that nap when it comes back. Beside an application that has slept for a second it sleeps itself,
//! until that returns. It also opens rings again that were given up.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use cutthrough_engine::time::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

use super::door::{Core, Shared};
use super::lanes::reopen::reopen;
use super::line::UNREAD_NS;
use crate::clock;
use crate::stall::Stall;

/// Nanoseconds between two looks at whether the application has looked.
const LOOK_NS: u64 = 5_000_000;
/// Turns of the application after which it sees whether that is to be put off. Who takes as many in less than half the
/// time between two looks is not looked at.
const TURNS: u64 = 64;
/// Longest nap while the application's work is done, in nanoseconds.
const SERVING_NS: u64 = 1_000_000_000;
/// Nanoseconds between two looks while the application sleeps.
const SLEEP_NS: u64 = 50_000_000;
/// Nanoseconds of sleep in calls of ours after which nobody looks whether the application is still there.
const DORMANT_NS: u64 = 1_000_000_000;
/// How long an endpoint that goes waits for callers that were let in and not heard of since.
const UNHEARD: Duration = Duration::from_millis(50);
/// Shortest nap.
const NAP_NS: u64 = 50_000;
/// So long that it has no end: an hour.
const FOREVER_NS: u64 = 3_600_000_000_000;
/// How often frames are taken in that come before a nap.
const LOOKS: u32 = 64;
/// For how long an endpoint that is dropped waits until what it has sent has arrived, while none of it gets on: as long
/// as a peer may be silent, within these bounds. While some of it does, up to the second of them in all. So `drop`
/// comes back though a peer that has gone counts as alive for hours, or takes what it is sent drop by drop.
const LINGER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// When the attendant looks next at an application that has looked at its last look, which puts that off.
#[derive(Debug)]
pub(super) struct NextLook {
    timer: OwnedFd,
    /// Whether the attendant sleeps until the timer goes off: then it is never later than one time between two looks.
    sleeps: AtomicBool,
    /// When the timer was set last, in nanoseconds.
    set_at: AtomicU64,
}

impl NextLook {
    pub(super) fn new() -> Result<Self, Errno> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Self { timer, sleeps: AtomicBool::new(false), set_at: AtomicU64::new(0) })
    }

    /// The application has looked, so often by now.
    #[inline]
    pub(super) fn has_looked(&self, turns: u64) {
        if turns.is_multiple_of(TURNS) && self.sleeps.load(Ordering::Relaxed) {
            self.put_off();
        }
    }

    #[cold]
    fn put_off(&self) {
        let now = clock::now();
        // A thread that was held up since it has seen the attendant sleep puts nothing off by more than that time.
        if now.as_nanos().saturating_sub(self.set_at.load(Ordering::Relaxed)) >= LOOK_NS / 2 {
            self.set(now);
        }
    }

    /// Has it go off when it is time for the next look. False if the kernel refuses.
    fn set(&self, now: Instant) -> bool {
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec { tv_sec: 0, tv_nsec: LOOK_NS.cast_signed() };
        self.set_at.store(now.as_nanos(), Ordering::Relaxed);
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value }).is_ok()
    }
}

pub(super) fn start(shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("cutthrough-net".into()).stack_size(256 << 10).spawn(move || attend(&shared))
}

fn attend(shared: &Shared) {
    let mut seen = 0;
    // None beside an application that has looked since the last look.
    let mut nap = None;
    let mut serving = false;
    let mut waits_since = None;
    while !shared.stop.load(Ordering::Acquire) {
        match nap {
            Some(nap) => sleep(shared, shared.due.left().min(nap), serving),
            None => sleep_beside(shared),
        }
        reopen(shared);
        if shared.waits.load(Ordering::Relaxed) {
            let now = clock::now();
            if now.saturating_since(*waits_since.get_or_insert(now)) > DORMANT_NS {
                hibernate(shared);
                (waits_since, nap) = (None, None);
                continue;
            }
        } else {
            waits_since = None;
        }
        let Some(mut core) = unattended(shared, seen) else {
            (seen, serving, nap) = (shared.turns.load(Ordering::Relaxed), false, None);
            continue;
        };
        // Who goes to sleep says so under the lock. Its times are looked after below.
        let asleep = shared.asleep.load(Ordering::Relaxed);
        shared.due_at.store(u64::MAX, Ordering::Relaxed);
        let now = clock::now();
        let due = core.stuck.is_some() || core.net.has_in_use() || core.net.timer().is_some_and(|timer| timer <= now);
        if !asleep || due {
            core.last_turn();
        }
        core.tend_lanes(now);
        // Where frames of a ring wake nobody by themselves, they go to the socket meanwhile.
        let quiet = (0..LOOKS).any(|_| {
            let quiet = core.doze();
            if !quiet {
                core.last_turn();
            }
            quiet
        });
        core.look_after_calls();
        // Who computes may be about to read.
        let mut relieves = None;
        if asleep {
            core.relieve(UNREAD_NS);
            relieves = core.net.relieves_at(now, UNREAD_NS);
        }
        if asleep && core.has_awaited() {
            shared.waker.wake();
        }
        // Either the application's return is seen here, or it sees that somebody serves for it; but for one that
        // returns at this very moment, whose store may be seen late. So at first the nap is short.
        let begins = !asleep && !serving;
        serving = !asleep;
        shared.serving.swap(serving, Ordering::SeqCst);
        if serving && shared.turns.load(Ordering::SeqCst) != seen {
            // The application has come back meanwhile, and could not see that.
            shared.serving.store(false, Ordering::Relaxed);
            (seen, serving, nap) = (shared.turns.load(Ordering::Relaxed), false, None);
            continue;
        }
        let timer = core.timer().into_iter().chain(relieves).min();
        let timer = timer.map_or(u64::MAX, |timer| timer.saturating_since(clock::now()));
        // Who does the application's work hears the socket, and that the application is back; but not that another
        // thread has dropped pages.
        let longest = match serving {
            true if begins => LOOK_NS,
            true if !core.net.is_wanting() => SERVING_NS,
            _ => SLEEP_NS,
        };
        nap = Some(if quiet { timer.clamp(NAP_NS, longest) } else { NAP_NS });
    }
    linger(shared);
}

/// Has the attendant look after the times of an application that goes to sleep: at this one at the latest.
pub(super) fn keep(shared: &Shared, next: Instant) {
    // Either the attendant sees this before it sleeps, or its sleep is seen here.
    shared.due_at.store(next.as_nanos(), Ordering::SeqCst);
    let wakes_at = match shared.next_look.sleeps.load(Ordering::SeqCst) {
        true => clock::now().after(LOOK_NS).as_nanos(),
        false => shared.wakes_at.load(Ordering::SeqCst),
    };
    if next.as_nanos() < wakes_at {
        shared.kick();
    }
}

/// What is behind the lock, if the application has not looked since it had looked so often; nor while the lock was
/// waited for, which it may have had in order to look and go to sleep.
fn unattended(shared: &Shared, seen: u64) -> Option<MutexGuard<'_, Core>> {
    let is_away = || shared.turns.load(Ordering::Relaxed) == seen;
    is_away().then(|| shared.lock()).filter(|_| is_away())
}

/// Sleeps until the application returns from the call in which it waits.
fn hibernate(shared: &Shared) {
    shared.dormant.store(true, Ordering::SeqCst);
    while shared.waits.load(Ordering::SeqCst) && !shared.stop.load(Ordering::Acquire) {
        sleep(shared, FOREVER_NS.min(shared.due.left()), false);
        reopen(shared);
    }
    shared.dormant.store(false, Ordering::Relaxed);
}

/// Naps until the application kicks, or, if it is away, until something comes.
fn sleep(shared: &Shared, nap: u64, serving: bool) {
    let now = clock::now();
    shared.wakes_at.store(now.after(nap).as_nanos(), Ordering::SeqCst);
    sleep_for(shared, now, nap, shared.watched.iter().filter(|_| serving));
}

/// Naps until the application kicks, or until it is time to look whether it has looked.
fn sleep_beside(shared: &Shared) {
    let now = clock::now();
    if !shared.next_look.set(now) {
        return sleep(shared, shared.due.left().min(LOOK_NS), false);
    }
    shared.wakes_at.store(now.after(LOOK_NS).as_nanos(), Ordering::SeqCst);
    shared.next_look.sleeps.store(true, Ordering::SeqCst);
    sleep_for(shared, now, shared.due.left().min(SLEEP_NS), [&shared.next_look.timer]);
    shared.next_look.sleeps.store(false, Ordering::SeqCst);
}

/// Sleeps until the application kicks or something comes by one of these, but no longer than `nap` from `now` on, nor
/// than the application's times allow.
fn sleep_for<'f>(shared: &'f Shared, now: Instant, nap: u64, others: impl IntoIterator<Item = &'f OwnedFd>) {
    let nap = nap.min(shared.due_at.load(Ordering::SeqCst).saturating_sub(now.as_nanos()));
    let mut watched = vec![PollFd::new(&shared.kick, PollFlags::IN)];
    watched.extend(others.into_iter().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)));
    let seconds = i64::try_from(nap / 1_000_000_000).unwrap_or(i64::MAX);
    let timeout = Timespec { tv_sec: seconds, tv_nsec: i64::try_from(nap % 1_000_000_000).unwrap_or(0) };
    let _ = poll(&mut watched, Some(&timeout));
    if watched[0].revents().contains(PollFlags::IN) {
        let _ = rustix::io::read(&shared.kick, &mut [0; 8]);
    }
}

/// The endpoint is gone, and there is nobody who could wait: closes its channels and says goodbye, once.
pub(super) fn part(shared: &Shared) {
    let mut core = shared.lock();
    core.net.listen(false);
    core.net.close_all();
    core.last_turn();
    core.net.part(clock::now());
    core.last_turn();
}

/// How long is waited for what was sent to arrive. Time in which this process was stopped counts for little.
struct Linger {
    /// Since something got on, or came from the other side.
    stall: Stall,
    all: Stall,
    strides: u64,
}

impl Linger {
    fn new(silence: Duration, begun: Instant, strides: u64) -> Self {
        let stall = Stall::new(silence.clamp(LINGER.0, LINGER.1), begun);
        Self { stall, all: Stall::new(LINGER.1, begun), strides }
    }

    /// Whether that is over, with as many strides by now (see [`Net::strides`](cutthrough_engine::net::Net::strides)).
    fn is_over(&mut self, now: Instant, strides: u64) -> bool {
        if self.strides != strides {
            self.strides = strides;
            self.stall.moves(now);
        }
        // Each has to know of every look.
        self.stall.left(now).is_none() | self.all.left(now).is_none()
    }
}

/// The endpoint is gone: closes its channels once everything has arrived that they have sent.
fn linger(shared: &Shared) {
    let begun = clock::now();
    let mut core = shared.lock();
    shared.due_at.store(u64::MAX, Ordering::Relaxed);
    let mut patience = Linger::new(core.config.silence, begun, core.net.strides());
    core.net.listen(false);
    core.net.close_all();
    // If the rings tell nobody, the naps below are as long as they may be.
    core.listens();
    loop {
        core.last_turn();
        while core.next_event().is_some() {}
        let now = clock::now();
        let waited = Duration::from_nanos(now.saturating_since(begun));
        // Who was let in and has said nothing may have given up; who has not says something soon.
        let unheard = core.net.channels() == core.net.unheard() && waited > UNHEARD;
        if core.net.channels() == 0 || unheard || patience.is_over(now, core.net.strides()) {
            core.net.part(now);
            core.last_turn();
            return;
        }
        let timer = core.timer().map_or(u64::MAX, |timer| timer.saturating_since(now));
        drop(core);
        sleep(shared, timer.clamp(NAP_NS, LOOK_NS), true);
        core = shared.lock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds after which who looks every 100 of them waits no longer, where something gets on every so often.
    fn waits(silence: Duration, every: u64) -> u64 {
        let at = |milliseconds: u64| Instant::from_nanos(milliseconds * 1_000_000);
        let mut linger = Linger::new(silence, at(0), 7);
        let is_over = |look: &u64| linger.is_over(at(*look), 7 + look / every);
        (0..).step_by(100).find(is_over).expect("it ends")
    }

    #[test]
    fn who_goes_waits_longer_while_something_gets_on() {
        let [short, long, never] = [900, 2_000, 3_600_000].map(Duration::from_millis);
        assert_eq!([short, long, never].map(|silence| waits(silence, u64::MAX)), [1_000, 2_000, 5_000]);
        assert_eq!([waits(short, 900), waits(long, 1_900)], [5_000; 2], "but not for ever");
        assert_eq!(waits(short, 1_500), 1_000, "that was too late");
    }

    #[test]
    fn time_in_which_nobody_looked_counts_for_little() {
        let second = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let mut linger = Linger::new(Duration::from_millis(900), second(0), 0);
        assert!(!linger.is_over(second(3600), 0), "a quarter of it is over");
        assert!((0..3).any(|hour| linger.is_over(second(3601 + hour), 0)));
    }
}
