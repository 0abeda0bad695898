//! What it costs to wake a thread that sleeps, or to hand the core to one that waits for it.
//!
//! Two threads wake each other in turn, so each sample holds two wake-ups; the figure is half of it. Only where one of
//! them rests first, a sample is one wake-up.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::futex;

use super::wire::LOST;
use super::{Measured, one_way, percentiles, turns, two_cores};
use crate::cpu::Pair;
use crate::stats::Samples;

/// Whose turn it is, in one word that both threads look at.
struct Turn(AtomicU32);

const ASKS: u32 = 0;
const ANSWERS: u32 = 1;
const STOP: u32 = 2;

impl Turn {
    fn new() -> Self {
        Self(AtomicU32::new(ASKS))
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    fn give(&self, to: u32) {
        self.0.store(to, Ordering::Release);
    }

    /// Gives the turn and wakes the one who sleeps for it. The futex is a shared one, as between two processes.
    fn give_and_wake(&self, to: u32) -> io::Result<()> {
        self.give(to);
        futex::wake(&self.0, futex::Flags::empty(), 1)?;
        Ok(())
    }

    /// Sleeps while it is still the turn of `other`, and returns whose it is then.
    fn sleep_while(&self, other: u32) -> io::Result<u32> {
        loop {
            let now = self.get();
            if now != other {
                return Ok(now);
            }
            match futex::wait(&self.0, futex::Flags::empty(), other, None) {
                Ok(()) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Yields while it is still the turn of `other`, and returns whose it is then.
    fn yield_while(&self, other: u32) -> u32 {
        loop {
            let now = self.get();
            if now != other {
                return now;
            }
            rustix::thread::sched_yield();
        }
    }
}

/// Waking a thread that sleeps on a futex, on another core.
///
/// # Errors
/// If this process may use only one core.
pub fn futex_wake(duration: Duration) -> Measured {
    futex_turns(two_cores()?, duration)
}

/// Waking a thread that sleeps on a futex, on the same core.
///
/// # Errors
/// If the thread cannot be pinned.
pub fn futex_wake_same_core(duration: Duration) -> Measured {
    futex_turns(Pair::together(), duration)
}

fn futex_turns(pair: Pair, duration: Duration) -> Measured {
    let turn = Turn::new();
    let ask = || {
        let samples = turns(duration, || turn.give_and_wake(ANSWERS), || turn.sleep_while(ANSWERS).map(drop));
        turn.give_and_wake(STOP)?;
        samples
    };
    let answer = || {
        while turn.sleep_while(ASKS)? == ANSWERS {
            turn.give_and_wake(ASKS)?;
        }
        Ok(())
    };
    one_way(pair.run(ask, answer))
}

/// Passes the time awake until one who waits has certainly gone to sleep, as a sender does that has other work.
pub fn rest() {
    /// Longer than anything here looks before it sleeps.
    const REST: Duration = Duration::from_micros(250);
    let begun = Instant::now();
    while begun.elapsed() < REST {
        std::hint::spin_loop();
    }
}

/// Waking a thread that has slept on a futex for a while, on another core, by one that was awake meanwhile: until it
/// runs. The longer a core is idle, the longer it takes to wake.
///
/// # Errors
/// As [`futex_wake`].
pub fn futex_wake_rested(duration: Duration) -> Measured {
    let turn = Turn::new();
    let woken = Mutex::new(Instant::now());
    let begin = Instant::now();
    let ask = || {
        let mut samples = Samples::new();
        while begin.elapsed() < duration {
            rest();
            let asked = Instant::now();
            turn.give_and_wake(ANSWERS)?;
            while turn.get() == ANSWERS {}
            let woken = *woken.lock().unwrap_or_else(PoisonError::into_inner);
            samples.record_duration(woken.saturating_duration_since(asked));
        }
        turn.give_and_wake(STOP)?;
        Ok(samples)
    };
    let answer = || -> io::Result<()> {
        while turn.sleep_while(ASKS)? == ANSWERS {
            *woken.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            turn.give(ASKS);
        }
        Ok(())
    };
    let (samples, answered): (io::Result<Samples>, _) = two_cores()?.run(ask, answer)?;
    answered?;
    percentiles(&samples?, 1.0)
}

/// Waking a thread that has slept until a message comes, on another core, by one that was awake meanwhile: from the
/// sending until it has the message. `sleep` says how many have come, if any, to who woke up.
///
/// # Errors
/// If this process may use only one core; what `send` and `sleep` say, or that a message was lost.
pub(super) fn message_wake_rested(
    duration: Duration,
    mut send: impl FnMut() -> io::Result<()> + Send,
    mut sleep: impl FnMut() -> io::Result<u64> + Send,
) -> Measured {
    let (taken, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let woken = Mutex::new(Instant::now());
    let mut wake = |count: u64| {
        rest();
        let sent = Instant::now();
        send()?;
        while taken.load(Ordering::Acquire) < count {
            if sent.elapsed() > LOST {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "a message was lost, or nobody was woken by it"));
            }
        }
        let woken = *woken.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(woken.saturating_duration_since(sent))
    };
    let waking = || {
        let (mut samples, begun, mut count) = (Samples::new(), Instant::now(), 0);
        let mut waked = Ok(());
        while waked.is_ok() && begun.elapsed() < duration {
            count += 1;
            // The first one finds what is not in a cache yet.
            waked = wake(count).map(|took| {
                if count > 1 {
                    samples.record_duration(took);
                }
            });
        }
        done.store(true, Ordering::Release);
        // Who sleeps still has to hear of it.
        waked.and(wake(0)).map(|_| samples)
    };
    let sleeping = || -> io::Result<()> {
        while !done.load(Ordering::Acquire) {
            let came = sleep()?;
            if came > 0 {
                *woken.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                taken.fetch_add(came, Ordering::Release);
            }
        }
        Ok(())
    };
    let (samples, slept): (io::Result<Samples>, _) = two_cores()?.run(waking, sleeping)?;
    let samples = samples?;
    slept?;
    percentiles(&samples, 1.0)
}

/// Waking a thread that sleeps on an eventfd, on another core.
///
/// # Errors
/// If this process may use only one core, or has no file descriptor left.
pub fn eventfd_wake(duration: Duration) -> Measured {
    eventfd_turns(two_cores()?, duration)
}

/// Waking a thread that sleeps on an eventfd, on the same core.
///
/// # Errors
/// If this process has no file descriptor left.
pub fn eventfd_wake_same_core(duration: Duration) -> Measured {
    eventfd_turns(Pair::together(), duration)
}

fn eventfd_turns(pair: Pair, duration: Duration) -> Measured {
    let ping = eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from)?;
    let pong = eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from)?;
    let ask = || {
        let samples = turns(duration, || signal(&ping, ANSWERS), || sleep_for_signal(&pong).map(drop));
        signal(&ping, STOP)?;
        samples
    };
    let answer = || {
        while sleep_for_signal(&ping)? == u64::from(ANSWERS) {
            signal(&pong, ANSWERS)?;
        }
        Ok(())
    };
    one_way(pair.run(ask, answer))
}

fn signal(fd: &OwnedFd, value: u32) -> io::Result<()> {
    rustix::io::write(fd.as_fd(), &u64::from(value).to_ne_bytes())?;
    Ok(())
}

fn sleep_for_signal(fd: &OwnedFd) -> io::Result<u64> {
    let mut value = [0; 8];
    rustix::io::retry_on_intr(|| rustix::io::read(fd.as_fd(), &mut value))?;
    Ok(u64::from_ne_bytes(value))
}

/// Two spinning threads on one core that yield it to each other: what is left of spinning when there is one core.
///
/// # Errors
/// If the thread cannot be pinned.
pub fn sched_yield_pingpong(duration: Duration) -> Measured {
    let turn = Turn::new();
    let ask = || {
        let samples = turns(
            duration,
            || {
                turn.give(ANSWERS);
                Ok(())
            },
            || {
                turn.yield_while(ANSWERS);
                Ok(())
            },
        );
        turn.give(STOP);
        samples
    };
    let answer = || {
        while turn.yield_while(ASKS) == ANSWERS {
            turn.give(ASKS);
        }
        Ok(())
    };
    one_way(Pair::together().run(ask, answer))
}
