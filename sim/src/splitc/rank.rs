//! A rank of a program, on a node that is simulated.
//!
//! The program computes for real, and its bytes lie in memory; what it asks of others becomes steps of its node. It
//! runs on until it has to wait; then the node goes through those steps, and the program goes on at the time at which
//! the node has done them. What a rank writes lies at its place at once, and what it asks for was read at once: a
//! program that orders what it writes and reads, as Split-C asks for, cannot tell.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use cutthrough_space::together::{self, LETTERS_PER_BARRIER, Letters};
use cutthrough_space::{Element, Global, Op, Space, Work};

use crate::time::Time;

use super::memory::{Bytes, Memory};
use super::world::{Step, Ticket};

/// Steps that a node is told at once at most: a program that never waits does not fill the memory.
const MOST_STEPS: usize = 1 << 12;

/// Operations to copy a word within a node's memory: load, store. Bytes of a word.
const COPY: u64 = 2;
const WORD: usize = 8;

/// Why an operation of a simulated rank has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// A pointer leads outside of a rank's part.
    #[error("{len} bytes from {offset:#x} on do not lie in the part of rank {rank}: check the pointer and the count")]
    Outside {
        /// Whose part.
        rank: u32,
        /// Where the bytes begin.
        offset: u64,
        /// How many there are.
        len: u64,
    },
    /// Elements cannot be had where they lie, because of where that is.
    #[error("elements of {bytes} bytes cannot be had in place at {offset:#x}, which is no multiple of that")]
    Unaligned {
        /// Where they begin.
        offset: u64,
        /// Bytes of one.
        bytes: usize,
    },
    /// There is no such rank.
    #[error("there is no rank {rank} among {size}")]
    NoRank {
        /// The number.
        rank: u32,
        /// How many ranks there are.
        size: u32,
    },
    /// The ranks have asked for arrays of different sizes, or have not told each other as much as they expect.
    #[error("the ranks have not asked for the same: every rank has to make the same arrays in the same order")]
    Uneven,
    /// Another rank has failed, or waits for ever; this one ends.
    #[error("the run is over")]
    Over,
}

/// A rank's turn: everybody's memory, and the time.
#[derive(Debug)]
pub(super) struct Baton {
    pub(super) memory: Memory,
    pub(super) now: Time,
}

/// What a rank does with its turn.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) memory: Memory,
    pub(super) steps: Vec<Step>,
    /// Whether the program has ended, and all is well.
    pub(super) is_last: bool,
}

/// Something that a [`Rank`] has asked for.
#[derive(Debug)]
#[must_use = "what comes is had by `take`"]
pub struct Coming<T> {
    ticket: Ticket,
    kind: PhantomData<fn() -> T>,
}

/// What has been read for a [`Coming`], and whether the simulated node has it by now.
#[derive(Debug)]
struct Read {
    bytes: Bytes,
    has_come: bool,
}

/// A rank of a program that [`play`](super::play) runs on simulated nodes.
#[derive(Debug)]
pub struct Rank {
    rank: u32,
    size: u32,
    turns: Receiver<Baton>,
    back: Sender<Turn>,
    memory: Memory,
    now: Time,
    /// What the node has to do before this rank goes on.
    steps: Vec<Step>,
    reads: BTreeMap<Ticket, Read>,
    next: Ticket,
    /// Bytes of every rank's part: all make the same arrays.
    reach: u64,
    /// Operations so far that are made of letters.
    number: u64,
    is_over: bool,
}

impl Rank {
    /// Waits for the first turn.
    pub(super) fn new((rank, size): (u32, u32), turns: Receiver<Baton>, back: Sender<Turn>) -> Result<Self, RankError> {
        let mut rank = Self {
            rank,
            size,
            turns,
            back,
            memory: Memory::default(),
            now: Time::START,
            steps: Vec::new(),
            reads: BTreeMap::new(),
            next: 0,
            reach: 0,
            number: 0,
            is_over: false,
        };
        rank.wait_for_turn().map(|()| rank)
    }

    /// The program has ended, and all is well.
    pub(super) fn leave(mut self) {
        self.give_back(true);
    }

    fn give_back(&mut self, is_last: bool) {
        let (memory, steps) = (std::mem::take(&mut self.memory), std::mem::take(&mut self.steps));
        // If nobody is there any more, the next turn says so.
        let _ = self.back.send(Turn { memory, steps, is_last });
    }

    fn wait_for_turn(&mut self) -> Result<(), RankError> {
        let Ok(Baton { memory, now }) = self.turns.recv() else {
            self.is_over = true;
            return Err(RankError::Over);
        };
        (self.memory, self.now) = (memory, now);
        Ok(())
    }

    /// Lets the node do what it has to do, and the others what they do meanwhile.
    fn wait(&mut self, step: Step) -> Result<(), RankError> {
        self.going()?;
        self.steps.push(step);
        self.give_back(false);
        self.wait_for_turn()
    }

    /// The node does this when it has done what was before.
    fn then(&mut self, step: Step) -> Result<(), RankError> {
        if self.steps.len() >= MOST_STEPS {
            return self.wait(step);
        }
        self.steps.push(step);
        Ok(())
    }

    const fn going(&self) -> Result<(), RankError> {
        if self.is_over { Err(RankError::Over) } else { Ok(()) }
    }

    fn copies(&mut self, bytes: usize) {
        self.computes(Work::integer(COPY * bytes.div_ceil(WORD) as u64));
    }

    /// The bytes of so many elements from a place on, if they lie in a part: every part is as long as this rank's.
    fn checked<T: Element>(&self, place: Global<T>, count: usize) -> Result<usize, RankError> {
        self.going()?;
        if place.rank() >= self.size {
            return Err(RankError::NoRank { rank: place.rank(), size: self.size });
        }
        let len = count.saturating_mul(T::BYTES);
        let end = place.offset().checked_add(len as u64).filter(|end| *end <= self.reach);
        end.map(|_| len).ok_or(RankError::Outside { rank: place.rank(), offset: place.offset(), len: len as u64 })
    }

    /// That of this rank's own part.
    fn own<T: Element>(&self, place: Global<T>, count: usize) -> Result<usize, RankError> {
        self.going()?;
        let len = count.saturating_mul(T::BYTES);
        let outside = RankError::Outside { rank: place.rank(), offset: place.offset(), len: len as u64 };
        if place.rank() == self.rank { Ok(len) } else { Err(outside) }
    }

    fn write<T: Element>(&mut self, to: Global<T>, values: &[T]) -> Result<(), RankError> {
        let len = self.checked(to, values.len())?;
        T::write_all(values, self.memory.bytes_mut(to, values.len())?);
        if to.rank() == self.rank {
            self.copies(len);
            return Ok(());
        }
        self.then(Step::Put { to: to.rank() as usize, bytes: len as u64 })
    }

    /// The next operation that is made of letters.
    fn operation(&mut self) -> Result<Operation<'_>, RankError> {
        self.number += 1;
        if self.number.is_multiple_of(LETTERS_PER_BARRIER) {
            self.barrier()?;
        }
        Ok(Operation { rank: self })
    }
}

impl Space for Rank {
    type Error = RankError;
    type Coming<T: Element> = Coming<T>;

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn time(&mut self) -> Result<Duration, RankError> {
        self.wait(Step::Clock)?;
        Ok(Duration::from_nanos(self.now.as_ps() / 1000))
    }

    fn computes(&mut self, work: Work) {
        if let Some(Step::Compute(before)) = self.steps.last_mut() {
            before.integer = before.integer.saturating_add(work.integer);
            before.float = before.float.saturating_add(work.float);
        } else {
            // That the run is over says the next operation.
            let _ = self.then(Step::Compute(work));
        }
    }

    fn alloc<T: Element>(&mut self, count: usize) -> Result<Global<T>, RankError> {
        self.going()?;
        let grown = count.checked_mul(T::BYTES).and_then(|bytes| self.memory.grow(self.rank, bytes));
        let end = grown.as_ref().map_or(u64::MAX, |grown| grown.end);
        // The greatest end, and the least, in one go.
        let mut ends = [end, u64::MAX - end];
        self.reduce_bulk(Op::Max, &mut ends)?;
        let grown = grown.filter(|_| ends[0] == u64::MAX - ends[1]).ok_or(RankError::Uneven)?;
        self.reach = grown.end;
        Ok(Global::new(self.rank, grown.start))
    }

    fn local<T: Element>(&mut self, from: Global<T>, into: &mut [T]) -> Result<(), RankError> {
        let len = self.own(from, into.len())?;
        T::read_all(self.memory.bytes(from, into.len())?, into);
        self.copies(len);
        Ok(())
    }

    fn set_local<T: Element>(&mut self, to: Global<T>, values: &[T]) -> Result<(), RankError> {
        let len = self.own(to, values.len())?;
        T::write_all(values, self.memory.bytes_mut(to, values.len())?);
        self.copies(len);
        Ok(())
    }

    fn in_place<T: Element>(&self, from: Global<T>, count: usize) -> Result<&[T], RankError> {
        self.own(from, count)?;
        bytemuck::try_cast_slice(self.memory.bytes(from, count)?).map_err(|_| unaligned(from))
    }

    fn in_place_mut<T: Element>(&mut self, from: Global<T>, count: usize) -> Result<&mut [T], RankError> {
        self.own(from, count)?;
        bytemuck::try_cast_slice_mut(self.memory.bytes_mut(from, count)?).map_err(|_| unaligned(from))
    }

    fn get_bulk<T: Element>(&mut self, from: Global<T>, count: usize) -> Result<Coming<T>, RankError> {
        let len = self.checked(from, count)?;
        let mut bytes = Bytes::zeros(len);
        bytes.all_mut().copy_from_slice(self.memory.bytes(from, count)?);
        let (ticket, is_own) = (self.next, from.rank() == self.rank);
        self.next = self.next.wrapping_add(1);
        self.reads.insert(ticket, Read { bytes, has_come: is_own });
        if is_own {
            self.copies(len);
        } else {
            self.then(Step::Get { from: from.rank() as usize, bytes: len as u64, ticket })?;
        }
        Ok(Coming { ticket, kind: PhantomData })
    }

    fn wait_for<T: Element>(&mut self, coming: &Coming<T>) -> Result<(), RankError> {
        let ticket = coming.ticket;
        if self.reads.get(&ticket).is_some_and(|read| !read.has_come) {
            self.wait(Step::Wait { ticket })?;
            self.reads.entry(ticket).and_modify(|read| read.has_come = true);
        }
        self.going()
    }

    fn arrived<'a, T: Element>(&'a self, coming: &Coming<T>) -> Option<&'a [T]> {
        self.reads.get(&coming.ticket).filter(|read| read.has_come).map(|read| read.bytes.elements())
    }

    /// # Panics
    /// If `into` is longer than what was asked for, or another rank has asked for it.
    #[allow(clippy::needless_pass_by_value, reason = "it can be taken once")]
    fn take_bulk<T: Element>(&mut self, coming: Coming<T>, into: &mut [T]) -> Result<(), RankError> {
        self.wait_for(&coming)?;
        let read = self.reads.remove(&coming.ticket).expect("what comes was asked for by this rank");
        T::read_all(read.bytes.all(), into);
        self.copies(into.len() * T::BYTES);
        Ok(())
    }

    fn put_bulk<T: Element>(&mut self, to: Global<T>, values: &[T]) -> Result<(), RankError> {
        self.write(to, values)
    }

    fn store_bulk<T: Element>(&mut self, to: Global<T>, values: &[T]) -> Result<(), RankError> {
        self.write(to, values)
    }

    fn sync(&mut self) -> Result<(), RankError> {
        self.wait(Step::Sync)?;
        self.reads.values_mut().for_each(|read| read.has_come = true);
        Ok(())
    }

    fn barrier(&mut self) -> Result<(), RankError> {
        self.wait(Step::Barrier)
    }

    fn poll(&mut self) -> Result<(), RankError> {
        self.going()?;
        self.then(Step::Poll)
    }

    fn broadcast_bulk<T: Element>(&mut self, root: u32, values: &mut [T]) -> Result<(), RankError> {
        if root >= self.size {
            return Err(RankError::NoRank { rank: root, size: self.size });
        }
        together::broadcast(&mut self.operation()?, root, values)
    }

    fn reduce_bulk<T: Element>(&mut self, op: Op, values: &mut [T]) -> Result<(), RankError> {
        together::reduce(&mut self.operation()?, op, values)
    }

    fn scan_bulk<T: Element>(&mut self, op: Op, values: &mut [T]) -> Result<(), RankError> {
        together::scan(&mut self.operation()?, op, values)
    }
}

/// An operation that is made of letters.
struct Operation<'a> {
    rank: &'a mut Rank,
}

impl Letters for Operation<'_> {
    type Error = RankError;

    fn place(&self) -> (u32, u32) {
        (self.rank.rank, self.rank.size)
    }

    fn post<T: Element>(&mut self, to: u32, values: &[T]) -> Result<(), RankError> {
        let rank = &mut *self.rank;
        rank.going()?;
        let mut letter = Bytes::zeros(values.len() * T::BYTES);
        T::write_all(values, letter.all_mut());
        let bytes = letter.all().len() as u64;
        rank.memory.post(rank.number, rank.rank, to, letter);
        rank.then(Step::Tell { to: to as usize, bytes, number: rank.number })
    }

    fn collect<T: Element>(&mut self, from: u32, into: &mut [T]) -> Result<(), RankError> {
        let rank = &mut *self.rank;
        rank.wait(Step::Hear { from: from as usize, number: rank.number })?;
        let letter = rank.memory.collect(rank.number, from, rank.rank).ok_or(RankError::Uneven)?;
        if letter.all().len() != into.len() * T::BYTES {
            return Err(RankError::Uneven);
        }
        T::read_all(letter.all(), into);
        rank.copies(into.len() * T::BYTES);
        Ok(())
    }
}

fn unaligned<T: Element>(place: Global<T>) -> RankError {
    RankError::Unaligned { offset: place.offset(), bytes: T::BYTES }
}
