//! What all ranks do together, as letters from one to another: the same for ranks and for simulated nodes.

use crate::{Element, Op};

/// After so many operations that are made of letters all ranks meet, so that nobody's letters pile up at a rank that is
/// behind: none is further ahead of it.
pub const LETTERS_PER_BARRIER: u64 = 16;

/// What the ranks say to each other within one operation.
#[allow(clippy::missing_errors_doc, reason = "each says what its kind of rank says")]
pub trait Letters {
    /// What goes wrong.
    type Error;

    /// The number of this rank, and how many there are.
    fn place(&self) -> (u32, u32);

    /// Sends values to a rank.
    fn post<T: Element>(&mut self, to: u32, values: &[T]) -> Result<(), Self::Error>;

    /// Waits for what a rank sends to this one.
    fn collect<T: Element>(&mut self, from: u32, into: &mut [T]) -> Result<(), Self::Error>;
}

/// The root's values to all, by a binomial tree: whoever has them hands them on to the ranks 1, 2, 4, ... further
/// on that nobody else serves.
///
/// # Errors
/// That of a letter.
pub fn broadcast<T: Element, L: Letters>(letters: &mut L, root: u32, values: &mut [T]) -> Result<(), L::Error> {
    let (rank, size) = letters.place();
    let place = (rank + size - root) % size;
    let rank_at = |place: u32| (place + root) % size;
    let lowest = if place == 0 { size.next_power_of_two() } else { 1 << place.trailing_zeros() };
    if place > 0 {
        letters.collect(rank_at(place - lowest), values)?;
    }
    let mut step = lowest / 2;
    while step > 0 {
        if place + step < size {
            letters.post(rank_at(place + step), values)?;
        }
        step /= 2;
    }
    Ok(())
}

/// All ranks' values as one, by a binomial tree to rank 0, and back to all.
///
/// # Errors
/// That of a letter.
pub fn reduce<T: Element, L: Letters>(letters: &mut L, op: Op, values: &mut [T]) -> Result<(), L::Error> {
    let (rank, size) = letters.place();
    let mut theirs = vec![T::default(); values.len()];
    for step in steps(size) {
        if rank & step != 0 {
            letters.post(rank - step, values)?;
            break;
        }
        if rank + step < size {
            letters.collect(rank + step, &mut theirs)?;
            apply(op, values, &theirs);
        }
    }
    broadcast(letters, 0, values)
}

/// The values of this rank and all ranks before it as one: each takes in what the one 1, 2, 4, ... before it has by
/// then.
///
/// # Errors
/// That of a letter.
pub fn scan<T: Element, L: Letters>(letters: &mut L, op: Op, values: &mut [T]) -> Result<(), L::Error> {
    let (rank, size) = letters.place();
    let mut before = vec![T::default(); values.len()];
    for step in steps(size) {
        if rank + step < size {
            letters.post(rank + step, values)?;
        }
        if rank >= step {
            letters.collect(rank - step, &mut before)?;
            apply(op, &mut before, values);
            values.copy_from_slice(&before);
        }
    }
    Ok(())
}

/// 1, 2, 4, ... as long as it is less than `size`: how far on a rank tells another in each round of a barrier.
pub fn steps(size: u32) -> impl Iterator<Item = u32> {
    (0..32).map(|power| 1 << power).take_while(move |step| *step < size)
}

/// Each of `into` with that of `other`, which comes after it.
fn apply<T: Element>(op: Op, into: &mut [T], other: &[T]) {
    for (a, b) in into.iter_mut().zip(other) {
        *a = op.apply(*a, *b);
    }
}
