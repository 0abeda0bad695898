//! What a message between two cores costs at least: the cache lines that carry it.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Measured, one_way, turns, two_cores};

/// The sequence number that ends the answering side.
const STOP: u64 = u64::MAX;

/// A message of `WORDS` times 8 bytes, the last of which is a sequence number written after the rest. It has its
/// cache lines, and the neighbours that a prefetcher takes with them, for itself.
#[repr(align(128))]
struct Message<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> Message<WORDS> {
    fn new() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }

    fn write(&self, sequence: u64) {
        if let [data @ .., flag] = &self.0[..] {
            data.iter().for_each(|word| word.store(sequence, Ordering::Relaxed));
            flag.store(sequence, Ordering::Release);
        }
    }

    /// Spins until a message later than `seen` is there, reads all of it, and returns its sequence number.
    ///
    /// It spins without a pause instruction: one pause can last as long as a whole message takes.
    fn read(&self, seen: u64) -> u64 {
        let [data @ .., flag] = &self.0[..] else {
            return STOP;
        };
        loop {
            let sequence = flag.load(Ordering::Acquire);
            if sequence > seen {
                data.iter().for_each(|word| {
                    black_box(word.load(Ordering::Relaxed));
                });
                return sequence;
            }
        }
    }
}

/// One way of an 8-byte flag with a cache line for each direction, both spinning.
///
/// So is every queue: the sender must first take its line back from the receiver that watches it. A message cannot be
/// faster than this, so this is what `perf lat` is held against.
///
/// # Errors
/// If this process may use only one core.
pub fn cacheline_pingpong(duration: Duration) -> Measured {
    pingpong(&Message::<1>::new(), &Message::new(), duration)
}

/// One way of an 8-byte flag between two cores that both write the same cache line, both spinning.
///
/// The line moves once per message, because each side answers in the line that it has just been given. A queue cannot
/// do so: its next message may not overwrite the last one. Where the processor takes a watched line back in two steps,
/// this is about half of [`cacheline_pingpong`].
///
/// # Errors
/// As [`cacheline_pingpong`].
pub fn cacheline_shared(duration: Duration) -> Measured {
    let line = Message::<1>::new();
    pingpong(&line, &line, duration)
}

/// One way of 64 bytes, flag included, with a cache line for each direction.
///
/// # Errors
/// As [`cacheline_pingpong`].
pub fn cacheline_pingpong_64(duration: Duration) -> Measured {
    pingpong(&Message::<8>::new(), &Message::new(), duration)
}

/// One way of 128 bytes, flag included, with two cache lines for each direction.
///
/// # Errors
/// As [`cacheline_pingpong`].
pub fn cacheline_pingpong_128(duration: Duration) -> Measured {
    pingpong(&Message::<16>::new(), &Message::new(), duration)
}

/// Messages go through `ping`, their answers through `pong`; both may be the same.
fn pingpong<const WORDS: usize>(ping: &Message<WORDS>, pong: &Message<WORDS>, duration: Duration) -> Measured {
    let ask = || {
        let sequence = Cell::new(0);
        let samples = turns(
            duration,
            || {
                sequence.set(sequence.get() + 1);
                ping.write(sequence.get());
                Ok(())
            },
            || {
                sequence.set(pong.read(sequence.get()));
                Ok(())
            },
        );
        ping.write(STOP);
        samples
    };
    let answer = || {
        let mut sequence = 0;
        loop {
            sequence = ping.read(sequence);
            if sequence == STOP {
                return Ok(());
            }
            sequence += 1;
            pong.write(sequence);
        }
    };
    one_way(two_cores()?.run(ask, answer))
}
