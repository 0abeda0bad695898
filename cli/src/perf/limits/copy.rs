//! What copying memory costs at least.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Measured, Unavailable, percentiles, rate, two_cores};
use crate::clock::{batches, reading_cost};
use crate::cpu::{self, Pair};
use crate::perf::room::{NoRoom, filled};
use crate::stats::{Samples, nanoseconds};
use crate::units::Size;

/// Buffers begin on a page, as payloads do.
const PAGE: usize = 4096;

/// A sample takes at least this many bytes, so that reading the clock hardly shows.
const BYTES_PER_SAMPLE: u64 = 64 << 10;

/// Memory of this process alone that begins on a page.
struct Buffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    /// A buffer of `size` bytes, each of them `fill`; all of its pages are there.
    fn new(size: Size, fill: u8) -> Result<Self, NoRoom> {
        let memory = filled(size.bytes() + PAGE, fill)?;
        let start = memory.as_ptr().align_offset(PAGE);
        Ok(Self { memory, start, length: size.bytes() })
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

/// A source and a destination of one core.
struct Copy {
    from: Buffer,
    to: Buffer,
}

impl Copy {
    fn new(size: Size) -> Result<Self, NoRoom> {
        Ok(Self { from: Buffer::new(size, 1)?, to: Buffer::new(size, 2)? })
    }

    fn once(&mut self) {
        let from = black_box(self.from.bytes());
        self.to.bytes_mut().copy_from_slice(from);
        black_box(self.to.bytes());
    }

    fn measure(&mut self, duration: Duration) -> Measured {
        let batch = per_sample(self.from.length);
        let samples = batches(duration, batch, || self.once());
        percentiles(&samples, f64::from(batch))
    }
}

/// How often something of so many bytes is done in one sample.
pub(super) fn per_sample(length: usize) -> u32 {
    let times = BYTES_PER_SAMPLE / (length as u64).max(1);
    u32::try_from(times.max(1)).unwrap_or(u32::MAX)
}

/// One core copies `size` bytes between two private buffers that are as hot as their size allows.
///
/// # Errors
/// If the thread cannot be pinned.
pub fn memcpy_1core(size: Size, duration: Duration) -> Measured {
    cpu::on(Pair::together().first, || Copy::new(size)?.measure(duration))?
}

/// Two cores copy at once, each `size` bytes between its own private buffers: bytes per second of both together.
///
/// # Errors
/// If this process may use only one core.
pub fn memcpy_2core(size: Size, duration: Duration) -> Result<f64, Unavailable> {
    let copy = || Copy::new(size)?.measure(duration);
    let (first, second) = two_cores()?.run(copy, copy)?;
    Ok(rate(size, first?.p50_ns) + rate(size, second?.p50_ns))
}

/// One core copies `size` bytes that the other core has just written, out to a private buffer: what a receiver pays
/// at least.
///
/// # Errors
/// If this process may use only one core.
pub fn memcpy_cross(size: Size, duration: Duration) -> Measured {
    const WRITTEN: u64 = 1;
    const COPIED: u64 = 0;
    const STOP: u64 = 2;
    let pair = two_cores()?;
    let (shared, mut to) = (Mutex::new(Buffer::new(size, 1)?), Buffer::new(size, 2)?);
    let turn = AtomicU64::new(COPIED);
    // The turn alone decides who uses the buffer, so the lock is never waited for, and it is not timed.
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let copy = || {
        let mut samples = Samples::new();
        let cost = reading_cost();
        let end = Instant::now() + duration;
        loop {
            while turn.load(Ordering::Acquire) != WRITTEN {}
            let from = lock();
            let start = Instant::now();
            to.bytes_mut().copy_from_slice(black_box(from.bytes()));
            black_box(to.bytes());
            let now = Instant::now();
            samples.record(nanoseconds(now - start).saturating_sub(cost));
            drop(from);
            if now >= end {
                break;
            }
            turn.store(COPIED, Ordering::Release);
        }
        turn.store(STOP, Ordering::Release);
        samples
    };
    let write = || {
        for fill in (0..=u8::MAX).cycle() {
            lock().bytes_mut().fill(fill);
            turn.store(WRITTEN, Ordering::Release);
            while turn.load(Ordering::Acquire) == WRITTEN {}
            if turn.load(Ordering::Acquire) == STOP {
                return;
            }
        }
    };
    let (samples, ()) = pair.run(copy, write)?;
    percentiles(&samples, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_on_a_page_and_have_their_size() {
        for size in [1, 64, 4096, 5000] {
            let mut buffer = Buffer::new(Size(size), 7).unwrap();
            assert_eq!(buffer.bytes().as_ptr().align_offset(PAGE), 0);
            assert_eq!(buffer.bytes_mut().len(), Size(size).bytes());
        }
    }

    #[test]
    fn a_copy_copies() {
        let mut copy = Copy::new(Size(5000)).unwrap();
        copy.once();
        assert_eq!(copy.from.bytes(), copy.to.bytes());
    }

    #[test]
    fn small_copies_share_a_sample() {
        assert_eq!(per_sample(64), 1024);
        assert_eq!(per_sample(1 << 20), 1);
    }
}
