//! What all ranks do together: every rank calls these in the same order, or another rank waits until its deadline.
//!
//! | operation | how | steps for n ranks |
//! |---|---|---|
//! | barrier | each rank tells the one 1, 2, 4, ... further on (Hensgen, Finkel, Manber 1988) | log n |
//! | broadcast | a binomial tree | log n |
//! | reduce | a binomial tree to rank 0; the result goes back by broadcast, the same bits to all | 2 log n |
//! | scan | each rank takes in what the one 1, 2, 4, ... before it has by then (Hillis, Steele 1986) | log n |

use cutthrough_space::together::{self, LETTERS_PER_BARRIER, Letters, steps};

use crate::part::{ARRIVE, BYE, LETTER, LETTER_INLINE, PIECE, part, part_mut};
use crate::waiting::Patience;
use crate::world::World;
use crate::{Element, Error, Global, Op, Spread};

/// How long a rank that has finished waits for those that have finished, too, to hear of it.
const PARTING: std::time::Duration = std::time::Duration::from_millis(500);

impl World {
    /// Waits until every rank has come here.
    ///
    /// # Errors
    /// [`Error`], naming a rank that has not come.
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.hand_over_all()?;
        self.epoch += 1;
        let (rank, size) = (self.rank, self.size);
        for (round, step) in steps(size).enumerate() {
            let word = u32::try_from(round).unwrap_or(u32::MAX);
            self.request((rank + step) % size, ARRIVE, &word.to_le_bytes())?;
            let mut patience = Patience::new();
            while part(&self.node).arrived(round) < self.epoch {
                self.rest(&mut patience, (rank + size - step) % size, 0)?;
            }
        }
        Ok(())
    }

    /// Waits until every rank has come here, and everything that any rank has stored or put has arrived.
    ///
    /// # Errors
    /// As [`World::barrier`].
    pub fn all_store_sync(&mut self) -> Result<(), Error> {
        self.sync()?;
        self.barrier()
    }

    /// The value of rank `root`, at every rank.
    ///
    /// # Errors
    /// [`Error`].
    pub fn broadcast<T: Element>(&mut self, root: u32, value: T) -> Result<T, Error> {
        let mut values = [value];
        self.broadcast_bulk(root, &mut values)?;
        Ok(values[0])
    }

    /// The values of rank `root`, at every rank; as many as all ranks say.
    ///
    /// # Errors
    /// [`Error`]; [`Error::Uneven`] if the root has another number of values.
    pub fn broadcast_bulk<T: Element>(&mut self, root: u32, values: &mut [T]) -> Result<(), Error> {
        if root >= self.size {
            return Err(Error::NoRank { rank: root, size: self.size });
        }
        together::broadcast(&mut self.operation()?, root, values)
    }

    /// The values of all ranks as one, at every rank. Sums of floating-point numbers are added in an order that depends
    /// on the number of ranks alone.
    ///
    /// # Errors
    /// [`Error`].
    pub fn reduce<T: Element>(&mut self, op: Op, value: T) -> Result<T, Error> {
        let mut values = [value];
        self.reduce_bulk(op, &mut values)?;
        Ok(values[0])
    }

    /// [`World::reduce`] of each of some values; as many at every rank.
    ///
    /// # Errors
    /// [`Error`]; [`Error::Uneven`] if a rank has another number of values.
    pub fn reduce_bulk<T: Element>(&mut self, op: Op, values: &mut [T]) -> Result<(), Error> {
        together::reduce(&mut self.operation()?, op, values)
    }

    /// The values of this rank and all ranks before it as one.
    ///
    /// # Errors
    /// [`Error`].
    pub fn scan<T: Element>(&mut self, op: Op, value: T) -> Result<T, Error> {
        let mut values = [value];
        self.scan_bulk(op, &mut values)?;
        Ok(values[0])
    }

    /// [`World::scan`] of each of some values; as many at every rank.
    ///
    /// # Errors
    /// As [`World::reduce_bulk`].
    pub fn scan_bulk<T: Element>(&mut self, op: Op, values: &mut [T]) -> Result<(), Error> {
        together::scan(&mut self.operation()?, op, values)
    }

    /// Makes room for `count` elements in every rank's part, all at the same place: the pointer to this rank's. They
    /// are 0. Memory is given back when the world ends.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if there is no memory for them; [`Error::Uneven`] if another rank asks for another number of
    /// bytes, or has no memory for them.
    pub fn alloc<T: Element>(&mut self, count: usize) -> Result<Global<T>, Error> {
        let grown = count.checked_mul(T::BYTES).and_then(|bytes| part_mut(&mut self.node).grow(bytes));
        let end = grown.as_ref().map_or(u64::MAX, |grown| grown.end);
        // The greatest end, and the least, in one go. Whoever has no memory takes part, so that nobody waits for it.
        let mut ends = [end, u64::MAX - end];
        self.reduce_bulk(Op::Max, &mut ends)?;
        let even = ends[0] == u64::MAX - ends[1];
        match grown {
            Some(grown) if even => {
                self.reach = grown.end;
                Ok(Global::new(self.rank, grown.start))
            }
            Some(_) => Err(self.fail(Error::Uneven)),
            None => {
                let error = Error::TooLarge { count, bytes: T::BYTES };
                Err(if even { error } else { self.fail(error) })
            }
        }
    }

    /// Makes an array of `len` elements, dealt out to the ranks in blocks of `block`. They are 0.
    ///
    /// # Errors
    /// As [`World::alloc`].
    ///
    /// # Panics
    /// If `block` is 0.
    pub fn spread<T: Element>(&mut self, len: usize, block: usize) -> Result<Spread<T>, Error> {
        assert!(block > 0, "a block has at least one element");
        let base = self.alloc(Spread::<T>::part(self.size, len, block))?;
        Ok(Spread::lay_out(base, self.size, len, block))
    }

    /// Waits until every rank has come here, and ends this rank's part in it. A rank that ends otherwise is taken for
    /// dead by the others.
    ///
    /// # Errors
    /// [`Error`], naming a rank that does not come or does not finish.
    pub fn finish(mut self) -> Result<(), Error> {
        self.all_store_sync()?;
        for far in 1..self.size {
            let rank = (self.rank + far) % self.size;
            // Whoever has gone meanwhile has said so before.
            match self.request(rank, BYE, &[]) {
                Ok(_) | Err(Error::Left { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let mut patience = Patience::new();
        loop {
            let part = part(&self.node);
            let finished = part.finished();
            let missing = (0..self.size).find(|rank| *rank != self.rank && !part.has_left(*rank));
            let Some(missing) = missing else { break };
            self.rest(&mut patience, missing, u64::from(finished))?;
        }
        let begun = std::time::Instant::now();
        let mut patience = Patience::new();
        while self.all_under_way > 0 && begun.elapsed() < PARTING {
            match self.rest(&mut patience, self.rank, self.all_under_way) {
                // All have finished: nobody fails because another does not hear of it.
                Err(Error::Late { .. }) => break,
                rested => rested?,
            }
        }
        Ok(())
    }

    /// The next operation that is made of letters.
    fn operation(&mut self) -> Result<Operation<'_>, Error> {
        self.number += 1;
        part_mut(&mut self.node).begin(self.number);
        if self.number.is_multiple_of(LETTERS_PER_BARRIER) {
            self.barrier()?;
        }
        Ok(Operation { number: self.number, world: self })
    }

    /// Sends values to a rank, within an operation.
    fn post<T: Element>(&mut self, number: u64, to: u32, values: &[T]) -> Result<(), Error> {
        let len = values.len() * T::BYTES;
        let mut args = [0; 16 + LETTER_INLINE];
        args[..8].copy_from_slice(&number.to_le_bytes());
        args[8..16].copy_from_slice(&(len as u64).to_le_bytes());
        if len <= LETTER_INLINE {
            T::write_all(values, &mut args[16..]);
            return self.request(to, LETTER, &args[..16 + len]).map(drop);
        }
        for values in values.chunks(PIECE / T::BYTES) {
            self.send(to, LETTER, &args[..16], values)?;
        }
        Ok(())
    }

    /// Waits for what a rank sends to this one, within an operation.
    fn collect<T: Element>(&mut self, number: u64, from: u32, into: &mut [T]) -> Result<(), Error> {
        let mut patience = Patience::new();
        let bytes = loop {
            let letter = part_mut(&mut self.node).take_letter(number, from);
            match letter {
                Ok(bytes) => break bytes,
                Err(come) => self.rest(&mut patience, from, come)?,
            }
        };
        if bytes.len() != into.len() * T::BYTES {
            return Err(self.fail(Error::Uneven));
        }
        T::read_all(&bytes, into);
        Ok(())
    }
}

/// An operation that is made of letters.
struct Operation<'a> {
    number: u64,
    world: &'a mut World,
}

impl Letters for Operation<'_> {
    type Error = Error;

    fn place(&self) -> (u32, u32) {
        (self.world.rank, self.world.size)
    }

    fn post<T: Element>(&mut self, to: u32, values: &[T]) -> Result<(), Error> {
        self.world.post(self.number, to, values)
    }

    fn collect<T: Element>(&mut self, from: u32, into: &mut [T]) -> Result<(), Error> {
        self.world.collect(self.number, from, into)
    }
}
