//! Short writes that go together, in one request.
//!
//! A write goes at once if its rank has answered all that went there before. While that rank is behind, what is written
//! there gathers; it goes when the rank has caught up, when there is a page of it, before anything else goes to that
//! rank, and before this one waits. So a lone write is as quick as a request, and many cost a request for a page of
//! them: the rule of pulses once more.

use crate::part::{PUT_BATCH, PUT_INLINE, STORE, STORE_BATCH};
use crate::world::World;
use crate::{Element, Error, Global};

/// Bytes that gather at most: a page.
const PAGE: usize = 4096;
/// Bytes of a place in front of what is written there.
const PLACE: usize = 8;
/// Bytes of a batch that fit beside the length of its writes in a request without a payload.
const INLINE: usize = 60;

/// Writes of one kind and one length to one rank, in the order in which they were made: each a place, then the bytes.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    handler: u16,
    /// Bytes that each of them writes.
    len: usize,
    bytes: Vec<u8>,
}

impl Batch {
    const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether writes gather here, and this one is like them.
    const fn holds(&self, handler: u16, len: usize) -> bool {
        !self.is_empty() && self.handler == handler && self.len == len
    }

    const fn is_full(&self) -> bool {
        self.bytes.len() + PLACE + self.len > PAGE
    }

    #[inline]
    fn push<T: Element>(&mut self, offset: u64, values: &[T]) {
        self.bytes.extend_from_slice(&offset.to_le_bytes());
        for value in values {
            let mut bytes = [0; 8];
            value.write(&mut bytes[..T::BYTES]);
            self.bytes.extend_from_slice(&bytes[..T::BYTES]);
        }
    }
}

impl World {
    /// Writes few bytes at another rank: now, or with those that follow.
    #[inline]
    pub(crate) fn write_short<T: Element>(&mut self, to: Global<T>, values: &[T], handler: u16) -> Result<(), Error> {
        let (rank, len) = (to.rank(), values.len() * T::BYTES);
        if !self.batches[rank as usize].holds(handler, len) && !self.opens(rank, handler, len)? {
            let mut args = [0; PLACE + PUT_INLINE];
            args[..PLACE].copy_from_slice(&to.offset().to_le_bytes());
            T::write_all(values, &mut args[PLACE..]);
            return self.request(rank, handler, &args[..PLACE + len]).map(drop);
        }
        let batch = &mut self.batches[rank as usize];
        batch.push(to.offset(), values);
        if batch.is_full() {
            self.hand_over(rank)?;
        }
        if self.is_due() {
            self.pump();
            self.hand_over_to_idle()?;
        }
        Ok(())
    }

    /// Begins to gather writes to a rank, if it is behind even when it is looked at once more.
    fn opens(&mut self, rank: u32, handler: u16, len: usize) -> Result<bool, Error> {
        self.hand_over(rank)?;
        if self.at(rank) > 0 {
            self.pump();
        }
        if self.at(rank) == 0 {
            return Ok(false);
        }
        let batch = &mut self.batches[rank as usize];
        (batch.handler, batch.len) = (handler, len);
        batch.bytes.reserve(PAGE);
        self.gathered += 1;
        Ok(true)
    }

    /// Sends what has gathered for a rank.
    pub(crate) fn hand_over(&mut self, rank: u32) -> Result<(), Error> {
        let batch = &mut self.batches[rank as usize];
        if batch.is_empty() {
            return Ok(());
        }
        self.gathered -= 1;
        let (mut bytes, len) = (std::mem::take(&mut batch.bytes), batch.len);
        let handler = if batch.handler == STORE { STORE_BATCH } else { PUT_BATCH };
        let mut args = [0; 4 + INLINE];
        #[allow(clippy::cast_possible_truncation, reason = "a short write")]
        args[..4].copy_from_slice(&(len as u32).to_le_bytes());
        let sent = if bytes.len() <= INLINE {
            args[4..4 + bytes.len()].copy_from_slice(&bytes);
            self.request_now(rank, handler, &args[..4 + bytes.len()]).map(drop)
        } else {
            self.send_now(rank, handler, &args[..4], &bytes)
        };
        bytes.clear();
        let batch = &mut self.batches[rank as usize];
        if batch.is_empty() {
            batch.bytes = bytes;
        }
        sent
    }

    /// Sends what has gathered for any rank. What is sent may have to wait for room; then this does nothing within
    /// itself.
    pub(crate) fn hand_over_all(&mut self) -> Result<(), Error> {
        if self.gathered == 0 || self.handing_over {
            return Ok(());
        }
        self.handing_over = true;
        let done = (0..self.size).try_for_each(|rank| self.hand_over(rank));
        self.handing_over = false;
        done
    }

    /// Sends what has gathered for ranks that have caught up.
    fn hand_over_to_idle(&mut self) -> Result<(), Error> {
        (0..self.size).try_for_each(|rank| if self.at(rank) == 0 { self.hand_over(rank) } else { Ok(()) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const MANY: usize = 10_000;

    /// Waits for another rank's thread without serving it.
    fn until(seen: &AtomicU64, round: u64) {
        let begun = std::time::Instant::now();
        while seen.load(Ordering::Acquire) < round {
            assert!(begun.elapsed() < std::time::Duration::from_secs(30), "nothing came");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_is_written_to_a_rank_that_is_behind_goes_by_the_page() {
        let written = AtomicU64::new(0);
        World::threads(2, |world| {
            let here = world.alloc::<u64>(MANY)?;
            if world.rank() == 0 {
                for at in 0..MANY {
                    world.store(here.on(1).at(at), at as u64 + 1)?;
                }
                world.hand_over_all()?;
                let pages = (MANY * (PLACE + 8)).div_ceil(PAGE) as u64;
                assert!(world.at(1) <= pages + 1, "{} requests", world.at(1));
                written.store(1, Ordering::Release);
            } else {
                until(&written, 1);
                world.store_sync(8 * MANY as u64)?;
                let mut values = vec![0; MANY];
                world.local(here, &mut values)?;
                assert!(values.iter().zip(1..).all(|(value, expected)| *value == expected));
            }
            world.barrier()
        })
        .expect("no rank fails");
    }

    #[test]
    fn a_lone_write_goes_at_once() {
        let seen = AtomicU64::new(0);
        World::threads(2, |world| {
            let here = world.alloc::<u32>(1)?;
            world.sync()?;
            for round in 1..=20_u64 {
                if world.rank() == 0 {
                    world.store(here.on(1), 7_u32)?;
                    // Nothing but the write itself can have sent it.
                    until(&seen, round);
                } else {
                    world.store_sync(4 * round)?;
                    world.poll()?;
                    seen.store(round, Ordering::Release);
                }
            }
            world.barrier()
        })
        .expect("no rank fails");
    }

    #[test]
    fn a_poll_sends_what_has_gathered() {
        let written = AtomicU64::new(0);
        let seen = AtomicU64::new(0);
        World::threads(2, |world| {
            let here = world.alloc::<u16>(3)?;
            world.sync()?;
            if world.rank() == 0 {
                for at in 0..3 {
                    world.store(here.on(1).at(at), 9_u16)?;
                }
                assert_eq!(world.at(1), 1, "two wait for company");
                world.poll()?;
                written.store(1, Ordering::Release);
                until(&seen, 1);
            } else {
                until(&written, 1);
                world.store_sync(6)?;
                seen.store(1, Ordering::Release);
            }
            world.barrier()
        })
        .expect("no rank fails");
    }
}
