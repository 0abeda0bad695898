//! What one call costs, on one core.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::{Measured, percentiles};
use crate::clock::batches;

/// Calls in one sample, so that reading the clock hardly shows.
const BATCH: u32 = 64;

/// The cheapest system call: who is my parent.
///
/// # Errors
/// If nothing was measured.
pub fn null_syscall(duration: Duration) -> Measured {
    each(duration, || {
        black_box(rustix::process::getppid());
    })
}

/// Yielding the core while nobody else wants it.
///
/// # Errors
/// If nothing was measured.
pub fn sched_yield(duration: Duration) -> Measured {
    each(duration, rustix::thread::sched_yield)
}

/// Reading the clock once.
///
/// # Errors
/// If nothing was measured.
pub fn clock_read(duration: Duration) -> Measured {
    each(duration, || {
        black_box(Instant::now());
    })
}

fn each(duration: Duration, call: impl FnMut()) -> Measured {
    percentiles(&batches(duration, BATCH, call), f64::from(BATCH))
}
