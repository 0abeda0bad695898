//! The one place where time is read.

use cutthrough_engine::time::Instant;
use rustix::time::{ClockId, clock_gettime};

/// The time now, in nanoseconds since the machine started: the same for all processes of a machine, so that stages of
/// one message can be compared across them. Some tens of nanoseconds; never called on the path of a control message.
#[must_use]
#[inline]
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant::from_nanos(seconds * 1_000_000_000 + nanos)
}

/// Longest payload, in bytes, whose moving is not timed: to read the clock twice may take as long as to move it.
const UNTIMED: u64 = 8192;

/// The time now, or zero if so few bytes are to be moved that it is not worth asking.
#[must_use]
#[inline]
pub fn timed(bytes: u64) -> Instant {
    if bytes > UNTIMED { now() } else { Instant::default() }
}
