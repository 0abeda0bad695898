//! The processor's time-stamp counter: read in a third of the time that the kernel's clock takes.
//!
//! It says how long it is since this thread has asked the kernel, and that for some microseconds at most: so it matters
//! little what a tick is worth exactly, and nothing that a machine may be stopped, or go on as another one. What a tick
//! is worth is found out from two readings of both, and again every second. Who was interrupted between the counter and
//! the clock asks the kernel the next time, too.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// Ticks after which the kernel is asked again: 8 to 25 microseconds.
const TICKS: u64 = 50_000;
/// Ticks that it takes to read both at most, for them to count as the same moment: a microsecond or less.
const TOGETHER: u64 = 2_000;
/// Nanoseconds between such readings: at least for the first time, and later.
const FIRST_NS: u64 = 10_000_000;
const LATER_NS: u64 = 1_000_000_000;

/// Nanoseconds of a tick, in parts of 2^32; 0 while nobody knows.
static WORTH: AtomicU64 = AtomicU64::new(0);
/// A reading of the counter and of the clock.
static BEFORE: Mutex<Option<(u64, u64)>> = Mutex::new(None);

thread_local! {
    /// What both said when the kernel was asked last; and the time that nothing from then on is to be before.
    static LAST: Cell<(u64, u64, u64)> = const { Cell::new((0, 0, 0)) };
}

/// The time in nanoseconds, by the counter if the kernel was asked a moment ago; `ask` asks it.
#[inline]
pub(crate) fn now(ask: impl Fn() -> u64) -> u64 {
    let (ticks, ns, _) = LAST.get();
    let (worth, since) = (WORTH.load(Ordering::Relaxed), read().wrapping_sub(ticks));
    if since < TICKS && worth > 0 { ns + ((since * worth) >> 32) } else { asked(ask) }
}

/// Asks the kernel.
#[cold]
fn asked(ask: impl Fn() -> u64) -> u64 {
    let ticks = read();
    // What the counter has said is not taken back, be it some nanoseconds ahead.
    let ns = ask().max(LAST.get().2);
    if is_steady() && read().wrapping_sub(ticks) < TOGETHER {
        compare(ticks, ns);
        LAST.set((ticks, ns, ns + ((TICKS * WORTH.load(Ordering::Relaxed)) >> 32)));
    } else {
        LAST.set((ticks.wrapping_sub(TICKS), ns, ns));
    }
    ns
}

/// Finds out what a tick is worth, if that is due.
fn compare(ticks: u64, ns: u64) {
    let Ok(mut before) = BEFORE.try_lock() else { return };
    let Some((ticks_before, ns_before)) = *before else {
        *before = Some((ticks, ns));
        return;
    };
    let due = if WORTH.load(Ordering::Relaxed) == 0 { FIRST_NS } else { LATER_NS };
    let (ticks_since, ns_since) = (ticks.wrapping_sub(ticks_before), ns.saturating_sub(ns_before));
    if ns_since >= due {
        *before = Some((ticks, ns));
        WORTH.store(worth(ticks_since, ns_since), Ordering::Relaxed);
    }
}

/// What a tick is worth, if so many took so many nanoseconds; 0 for a counter that is slower than any, or runs
/// backwards.
fn worth(ticks: u64, ns: u64) -> u64 {
    let worth = (u128::from(ns) << 32).checked_div(u128::from(ticks)).unwrap_or(0);
    u64::try_from(worth).ok().filter(|worth| *worth <= 4 << 32).unwrap_or(0)
}

/// Whether the kernel trusts the counter itself: that of all processors runs on alike, whatever they do.
fn is_steady() -> bool {
    static STEADY: OnceLock<bool> = OnceLock::new();
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    *STEADY.get_or_init(|| {
        cfg!(target_arch = "x86_64") && std::fs::read(SOURCE).is_ok_and(|source| source.trim_ascii() == b"tsc")
    })
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn read() -> u64 {
    // SAFETY: every processor of this kind has the counter, and Linux lets everybody read it, but for who has asked for
    // the opposite (PR_SET_TSC), whose clock it is as well.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn read() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::clock;

    /// As long as it takes to find out what a tick is worth, and a while longer.
    #[test]
    fn the_counter_says_what_the_clock_says_and_never_goes_back() {
        let (begun, mut last) = (clock::now(), clock::again());
        while clock::now().saturating_since(begun) < 50_000_000 {
            let before = clock::now();
            let now = clock::again();
            let after = clock::now();
            assert!(now >= last, "{now:?} after {last:?}");
            assert!(before.saturating_since(now) < 2_000, "{now:?} is behind {before:?}");
            assert!(now.saturating_since(after) < 2_000, "{now:?} is ahead of {after:?}");
            last = now;
        }
    }

    #[test]
    fn the_kernel_is_asked_now_and_then() {
        let begun = clock::now();
        while clock::now().saturating_since(begun) < 50_000_000 {
            let _ = clock::again();
        }
        let asked = Cell::new(0);
        let ask = || {
            asked.set(asked.get() + 1);
            clock::now().as_nanos()
        };
        let begun = clock::now();
        let mut looks = 0;
        while clock::now().saturating_since(begun) < 10_000_000 {
            now(ask);
            looks += 1;
        }
        if is_steady() {
            assert!((1..looks).contains(&asked.get()), "{} of {looks}", asked.get());
        } else {
            assert_eq!(asked.get(), looks);
        }
    }

    #[test]
    fn a_tick_of_no_known_worth_is_worth_nothing() {
        assert_eq!(worth(26_000_000, 10_000_000), (10 << 32) / 26);
        assert_eq!([worth(0, 1), worth(1, 5), worth(u64::MAX, 10_000_000)], [0; 3]);
    }
}
