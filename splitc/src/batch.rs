//! Short reads and writes that go together, in one request.
//!
//! One goes at once if its rank has answered all that went there before. While that rank is behind, what else is
//! read or written there gathers; it goes when the rank has caught up, when there is a page of it, before anything
//! else goes to that rank, and before this one waits. So a lone one is as quick as a request, and many cost a
//! request for a page of them: the rule of pulses once more.

use crate::part::{GET, GET_BATCH, GET_INLINE, PIECES, PUT_BATCH, PUT_INLINE, STORE, STORE_BATCH};
use crate::waiting::Patience;
use crate::world::World;
use crate::{Element, Error, Global};

/// Bytes that gather at most: a page.
const PAGE: usize = 4096;
/// Bytes of a place in front of what is written there.
const PLACE: usize = 8;
/// Bytes of a batch that fit beside the length of its writes in a request without a payload; and, for reads, beside
/// that and a ticket.
const INLINE: usize = 60;
const INLINE_GETS: usize = 56;

/// Reads or writes of one kind and one length at one rank, in the order in which they were made.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    handler: u16,
    /// Bytes that each of them reads or writes.
    len: usize,
    /// Of each the place, and, if it is a write, then the bytes.
    bytes: Vec<u8>,
    /// Of each read, where what it brings shall lie.
    slots: Vec<u32>,
}

impl Batch {
    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether something gathers here, and this one is like it.
    const fn holds(&self, handler: u16, len: usize) -> bool {
        !self.is_empty() && self.handler == handler && self.len == len
    }

    /// Whether another one would make more than a page of it, or of the answer.
    const fn is_full(&self) -> bool {
        let one = if self.handler == GET { PLACE } else { PLACE + self.len };
        self.bytes.len() + one > PAGE || (self.slots.len() + 1) * self.len > PAGE
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
        self.batches[rank as usize].push(to.offset(), values);
        self.gathered_one(rank)
    }

    /// Reads few bytes of another rank into a place: now, or with those that follow.
    #[inline]
    pub(crate) fn read_short(&mut self, rank: u32, offset: u64, len: usize, slot: u32) -> Result<(), Error> {
        if !self.batches[rank as usize].holds(GET, len) && !self.opens(rank, GET, len)? {
            return self.get_piece(rank, offset, (slot, 0, len));
        }
        self.gets.expect(slot);
        let batch = &mut self.batches[rank as usize];
        batch.bytes.extend_from_slice(&offset.to_le_bytes());
        batch.slots.push(slot);
        self.gathered_one(rank)
    }

    /// Sends what has gathered for a rank if there is enough of it; and, now and then, what has gathered for those that
    /// have caught up.
    #[inline]
    fn gathered_one(&mut self, rank: u32) -> Result<(), Error> {
        if self.batches[rank as usize].is_full() {
            self.hand_over(rank)?;
        }
        if self.is_due() {
            self.pump();
            self.hand_over_to_idle()?;
        }
        Ok(())
    }

    /// Begins to gather for a rank, if it is behind even when it is looked at once more.
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
        let sent = match batch.handler {
            GET => {
                let slots = std::mem::take(&mut batch.slots);
                self.send_gets(rank, &bytes, len, slots)
            }
            handler => self.send_writes(rank, handler, &bytes, len),
        };
        bytes.clear();
        let batch = &mut self.batches[rank as usize];
        if batch.is_empty() {
            batch.bytes = bytes;
        }
        sent
    }

    #[allow(clippy::cast_possible_truncation, reason = "a short write")]
    fn send_writes(&mut self, rank: u32, handler: u16, bytes: &[u8], len: usize) -> Result<(), Error> {
        let handler = if handler == STORE { STORE_BATCH } else { PUT_BATCH };
        let mut args = [0; 4 + INLINE];
        args[..4].copy_from_slice(&(len as u32).to_le_bytes());
        if bytes.len() <= INLINE {
            args[4..4 + bytes.len()].copy_from_slice(bytes);
            self.request_now(rank, handler, &args[..4 + bytes.len()]).map(drop)
        } else {
            self.send_now(rank, handler, &args[..4], bytes).map(drop)
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "a short read")]
    fn send_gets(&mut self, rank: u32, places: &[u8], len: usize, slots: Vec<u32>) -> Result<(), Error> {
        let long = slots.len() * len > GET_INLINE;
        let mut patience = Patience::new();
        while long && self.pieces[rank as usize] >= PIECES {
            self.rest(&mut patience, rank, u64::from(self.pieces[rank as usize]))?;
        }
        let ticket = self.gets.ticket_for_all(slots, len);
        let mut args = [0; 8 + INLINE_GETS];
        args[..4].copy_from_slice(&(len as u32).to_le_bytes());
        args[4..8].copy_from_slice(&ticket.to_le_bytes());
        let call = if places.len() <= INLINE_GETS {
            args[8..8 + places.len()].copy_from_slice(places);
            self.request_now(rank, GET_BATCH, &args[..8 + places.len()])?
        } else {
            self.send_now(rank, GET_BATCH, &args[..8], places)?
        };
        self.gets.made(ticket, call);
        self.pieces[rank as usize] += u32::from(long);
        Ok(())
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

    #[test]
    fn what_is_read_from_a_rank_that_is_behind_is_asked_for_by_the_page() {
        let asked = AtomicU64::new(0);
        World::threads(2, |world| {
            let here = world.alloc::<u64>(MANY)?;
            let values: Vec<u64> = (0..MANY as u64).map(|at| at * 7).collect();
            world.set_local(here, &values)?;
            world.barrier()?;
            world.sync()?;
            if world.rank() == 0 {
                let coming: Vec<_> = (0..MANY).map(|at| world.get(here.on(1).at(at))).collect::<Result<_, _>>()?;
                world.hand_over_all()?;
                let pages = (MANY * PLACE).div_ceil(PAGE) as u64;
                assert!(world.at(1) <= pages + 1, "{} requests", world.at(1));
                asked.store(1, Ordering::Release);
                for (coming, expected) in coming.into_iter().zip(values) {
                    assert_eq!(world.take(coming)?, expected);
                }
            } else {
                until(&asked, 1);
            }
            world.barrier()
        })
        .expect("no rank fails");
    }

    #[test]
    fn a_read_sees_the_writes_before_it_and_none_behind_it() {
        let seen = AtomicU64::new(0);
        World::threads(2, |world| {
            let here = world.alloc::<u32>(2)?;
            if world.rank() == 0 {
                let mut coming = Vec::new();
                for round in 0..100_u32 {
                    // Of the other rank, which looks away: a write and a read of each round gather one after the other.
                    world.put(here.on(1), round)?;
                    coming.push(world.get(here.on(1))?);
                    world.put(here.on(1), 1000)?;
                }
                seen.store(1, Ordering::Release);
                for (coming, round) in coming.into_iter().zip(0..) {
                    assert_eq!(world.take(coming)?, round);
                }
            } else {
                until(&seen, 1);
            }
            world.barrier()
        })
        .expect("no rank fails");
    }
}
