//! What a program asks for.

use std::time::Duration;

use crate::{Element, Global, Op, Spread};

/// Operations on a rank's own memory, with the loads and stores that belong to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// On whole numbers.
    pub integer: u64,
    /// On doubles.
    pub float: u64,
}

impl Work {
    /// So many operations on whole numbers.
    #[must_use]
    pub const fn integer(integer: u64) -> Self {
        Self { integer, float: 0 }
    }

    /// So many operations on doubles.
    #[must_use]
    pub const fn float(float: u64) -> Self {
        Self { integer: 0, float }
    }
}

/// A rank, and what a program can do there: the operations of `cutthrough_splitc::World` that the [programs] use. What
/// each of them promises is said there.
///
/// What one rank writes and another reads has to be ordered by both: by [`Space::all_store_sync`], a barrier, or an
/// operation of all ranks. Where it is not, what is read is the old or the new; a simulated rank may read what a real
/// one would not yet.
///
/// [programs]: crate::programs
#[allow(clippy::missing_errors_doc, reason = "each says what its kind of rank says")]
pub trait Space {
    /// What goes wrong.
    type Error: std::error::Error + Send + 'static;
    /// Something that was asked for.
    type Coming<T: Element>;

    /// The number of this rank, from 0.
    fn rank(&self) -> u32;

    /// How many ranks there are.
    fn size(&self) -> u32;

    /// The time since this rank began: of the machine that it runs on.
    fn time(&mut self) -> Result<Duration, Self::Error>;

    /// Says what this rank computes now. Where its processor does that itself, this does nothing.
    fn computes(&mut self, work: Work);

    /// Makes room for `count` elements in every rank's part, all at the same place. They are 0.
    fn alloc<T: Element>(&mut self, count: usize) -> Result<Global<T>, Self::Error>;

    /// Makes an array of `len` elements, dealt out to the ranks in blocks of `block`, which is not 0. They are 0.
    fn spread<T: Element>(&mut self, len: usize, block: usize) -> Result<Spread<T>, Self::Error> {
        let ranks = self.size();
        let base = self.alloc(Spread::<T>::part(ranks, len, block))?;
        Ok(Spread::lay_out(base, ranks, len, block))
    }

    /// Reads elements of this rank's own part.
    fn local<T: Element>(&mut self, from: Global<T>, into: &mut [T]) -> Result<(), Self::Error>;

    /// Writes elements of this rank's own part.
    fn set_local<T: Element>(&mut self, to: Global<T>, values: &[T]) -> Result<(), Self::Error>;

    /// Elements of this rank's own part where they lie.
    fn in_place<T: Element>(&self, from: Global<T>, count: usize) -> Result<&[T], Self::Error>;

    /// The same, to be changed.
    fn in_place_mut<T: Element>(&mut self, from: Global<T>, count: usize) -> Result<&mut [T], Self::Error>;

    /// Asks for an element. Does not wait for it.
    fn get<T: Element>(&mut self, from: Global<T>) -> Result<Self::Coming<T>, Self::Error> {
        self.get_bulk(from, 1)
    }

    /// Asks for elements that lie one behind the other. Does not wait for them.
    fn get_bulk<T: Element>(&mut self, from: Global<T>, count: usize) -> Result<Self::Coming<T>, Self::Error>;

    /// Waits for what was asked for.
    fn wait_for<T: Element>(&mut self, coming: &Self::Coming<T>) -> Result<(), Self::Error>;

    /// What has come, where it lies, if all of it has.
    fn arrived<'a, T: Element>(&'a self, coming: &Self::Coming<T>) -> Option<&'a [T]>;

    /// An element that was asked for; waits for it.
    fn take<T: Element>(&mut self, coming: Self::Coming<T>) -> Result<T, Self::Error> {
        let mut value = [T::default()];
        self.take_bulk(coming, &mut value)?;
        Ok(value[0])
    }

    /// Elements that were asked for, as many as `into` has room for; waits for them.
    fn take_bulk<T: Element>(&mut self, coming: Self::Coming<T>, into: &mut [T]) -> Result<(), Self::Error>;

    /// Gives the memory of what has come back.
    fn release<T: Element>(&mut self, coming: Self::Coming<T>) -> Result<(), Self::Error> {
        self.take_bulk(coming, &mut [])
    }

    /// Reads an element, and waits for it.
    fn read<T: Element>(&mut self, from: Global<T>) -> Result<T, Self::Error> {
        let coming = self.get(from)?;
        self.take(coming)
    }

    /// Reads elements, and waits for them.
    fn read_bulk<T: Element>(&mut self, from: Global<T>, into: &mut [T]) -> Result<(), Self::Error> {
        let coming = self.get_bulk(from, into.len())?;
        self.take_bulk(coming, into)
    }

    /// Writes elements that lie one behind the other.
    fn put_bulk<T: Element>(&mut self, to: Global<T>, values: &[T]) -> Result<(), Self::Error>;

    /// Writes an element, of whose arrival the rank that has it learns.
    fn store<T: Element>(&mut self, to: Global<T>, value: T) -> Result<(), Self::Error> {
        self.store_bulk(to, &[value])
    }

    /// The same of elements that lie one behind the other.
    fn store_bulk<T: Element>(&mut self, to: Global<T>, values: &[T]) -> Result<(), Self::Error>;

    /// Waits until all that this rank has asked for has come, and all that it has written has arrived.
    fn sync(&mut self) -> Result<(), Self::Error>;

    /// Waits until every rank has come here.
    fn barrier(&mut self) -> Result<(), Self::Error>;

    /// Waits until every rank has come here, and all that any rank has written has arrived.
    fn all_store_sync(&mut self) -> Result<(), Self::Error> {
        self.sync()?;
        self.barrier()
    }

    /// Serves what others have asked for.
    fn poll(&mut self) -> Result<(), Self::Error>;

    /// The values of rank `root`, at every rank.
    fn broadcast_bulk<T: Element>(&mut self, root: u32, values: &mut [T]) -> Result<(), Self::Error>;

    /// The values of all ranks as one, at every rank.
    fn reduce<T: Element>(&mut self, op: Op, value: T) -> Result<T, Self::Error> {
        let mut values = [value];
        self.reduce_bulk(op, &mut values)?;
        Ok(values[0])
    }

    /// The same of each of some values.
    fn reduce_bulk<T: Element>(&mut self, op: Op, values: &mut [T]) -> Result<(), Self::Error>;

    /// Each of some values of this rank and of all ranks before it as one.
    fn scan_bulk<T: Element>(&mut self, op: Op, values: &mut [T]) -> Result<(), Self::Error>;
}
