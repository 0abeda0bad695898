//! The one place where time is read.

use cutthrough_engine::time::Instant;
use rustix::time::{ClockId, clock_gettime};

use crate::sys::counter;

/// The time now, in nanoseconds since the machine started: the same for all processes of a machine, so that stages of
/// one message can be compared across them. Some tens of nanoseconds; never called on the path of a control message.
#[must_use]
#[inline]
pub fn now() -> Instant {
    #[cfg(feature = "simulated")]
    if let Some(now) = crate::simulated::time::now() {
        return now;
    }
    read(ClockId::Monotonic)
}

/// The time now, for who asks again and again: in a few nanoseconds, by the processor's counter, where this thread was
/// told by the kernel some microseconds ago. It may be ahead of [`now`] by less than a microsecond.
#[must_use]
#[inline]
pub fn again() -> Instant {
    #[cfg(feature = "simulated")]
    if let Some(now) = crate::simulated::time::now() {
        return now;
    }
    Instant::from_nanos(counter::now(|| read(ClockId::Monotonic).as_nanos()))
}

/// The time of the last tick: some milliseconds ago at most, as a rule, and read in a few nanoseconds.
#[must_use]
#[inline]
pub fn coarse() -> Instant {
    #[cfg(feature = "simulated")]
    if let Some(now) = crate::simulated::time::now_at_no_cost() {
        return now;
    }
    read(ClockId::MonotonicCoarse)
}

#[inline]
fn read(clock: ClockId) -> Instant {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant::from_nanos(seconds * 1_000_000_000 + nanos)
}

/// Longest payload, in bytes, whose moving is not timed: to read the clock twice may take as long as to move it.
pub(crate) const UNTIMED: u64 = 8192;

/// The time now, or zero if so few bytes are to be moved that it is not worth asking.
#[must_use]
#[inline]
pub fn timed(bytes: u64) -> Instant {
    if bytes > UNTIMED { now() } else { Instant::default() }
}

/// Lets simulated time pass while an operation waits: so many nanoseconds, or until something comes. False where time
/// passes by itself: then it has to be waited for.
#[inline]
#[must_use]
pub fn sleeps(_most: Option<u64>) -> bool {
    #[cfg(feature = "simulated")]
    return crate::simulated::time::sleep(_most);
    #[cfg(not(feature = "simulated"))]
    false
}

/// Whether this thread's time passes only when it is told to.
#[inline]
#[must_use]
pub fn is_simulated() -> bool {
    #[cfg(feature = "simulated")]
    return crate::simulated::time::is_simulated();
    #[cfg(not(feature = "simulated"))]
    false
}
