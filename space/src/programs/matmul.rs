//! Blocked matrix multiply. Each rank has every so-manieth block of each matrix, and computes its blocks of the
//! product. While it multiplies two blocks, the next two are on their way.

use super::kernels::{multiply_row, random};
use super::{Done, Serial, Values, timed};
use crate::{Global, Space, Spread, Work};

/// Adds the product of two blocks to a third.
fn multiply(side: usize, left: &[f64], right: &[f64], sum: &mut [f64]) {
    for (row, into) in left.chunks_exact(side).zip(sum.chunks_exact_mut(side)) {
        multiply_row(row, right, into);
    }
}

#[allow(clippy::cast_precision_loss, reason = "random numbers, whatever they are")]
fn element(matrix: u64, index: usize) -> f64 {
    random(matrix << 40 | index as u64) as f64 / u64::MAX as f64 - 0.5
}

/// The place of block `number`.
fn block(matrix: &Spread<f64>, number: usize) -> Global<f64> {
    matrix.place(number * matrix.block())
}

/// A block that is to be multiplied.
enum Factor<S: Space> {
    Here(Global<f64>),
    Coming(S::Coming<f64>),
}

impl<S: Space> Factor<S> {
    /// Asks for a block of another rank. One of its own a rank has.
    fn fetch(space: &mut S, from: Global<f64>, area: usize) -> Result<Self, S::Error> {
        if from.rank() == space.rank() { Ok(Self::Here(from)) } else { space.get_bulk(from, area).map(Self::Coming) }
    }

    fn wait(&self, space: &mut S) -> Result<(), S::Error> {
        if let Self::Coming(coming) = self { space.wait_for(coming) } else { Ok(()) }
    }

    /// The block, where it lies.
    fn values<'a>(&self, space: &'a S, area: usize) -> Result<&'a [f64], S::Error> {
        match self {
            Self::Here(at) => space.in_place(*at, area),
            Self::Coming(coming) => Ok(space.arrived(coming).unwrap_or_default()),
        }
    }

    fn release(self, space: &mut S) -> Result<(), S::Error> {
        if let Self::Coming(coming) = self { space.release(coming) } else { Ok(()) }
    }
}

fn product<S: Space>(space: &mut S, blocks: usize, side: usize, [a, b, c]: &[Spread<f64>; 3]) -> Result<(), S::Error> {
    let area = side * side;
    let mine: Vec<usize> = (space.rank() as usize..blocks * blocks).step_by(space.size() as usize).collect();
    let pairs: Vec<(usize, usize, usize)> = mine
        .iter()
        .flat_map(|&to| (0..blocks).map(move |k| (to, to / blocks * blocks + k, k * blocks + to % blocks)))
        .collect();
    let fetch = |space: &mut S, pair: Option<&(usize, usize, usize)>| match pair {
        Some((_, left, right)) => {
            let left = Factor::fetch(space, block(a, *left), area)?;
            Ok(Some((left, Factor::fetch(space, block(b, *right), area)?)))
        }
        None => Ok(None),
    };
    let mut sum = vec![0.0; area];
    let mut coming = fetch(space, pairs.first())?;
    for (number, (to, ..)) in pairs.iter().enumerate() {
        let Some((left, right)) = coming else { break };
        left.wait(space)?;
        right.wait(space)?;
        coming = fetch(space, pairs.get(number + 1))?;
        for (row, into) in sum.chunks_exact_mut(side).enumerate() {
            multiply_row(&left.values(space, area)?[row * side..][..side], right.values(space, area)?, into);
            // A multiplication and an addition for each element of the block.
            space.computes(Work::float(2 * area as u64));
            // The others want this rank's blocks while it multiplies.
            space.poll()?;
        }
        left.release(space)?;
        right.release(space)?;
        if (number + 1) % blocks == 0 {
            space.set_local(block(c, *to), &sum)?;
            sum.fill(0.0);
        }
    }
    Ok(())
}

pub(super) fn run<S: Space>(space: &mut S, blocks: usize, side: usize) -> Result<Done, S::Error> {
    let (area, all) = (side * side, blocks * blocks);
    let mut matrices = Vec::new();
    for matrix in 0..3 {
        let spread = space.spread::<f64>(all * area, area)?;
        for number in (space.rank() as usize..all).step_by(space.size() as usize).filter(|_| matrix < 2) {
            let values: Vec<f64> = (number * area..(number + 1) * area).map(|index| element(matrix, index)).collect();
            space.set_local(block(&spread, number), &values)?;
        }
        matrices.push(spread);
    }
    let matrices = [matrices[0], matrices[1], matrices[2]];
    let ((), time) = timed(space, |space| product(space, blocks, side, &matrices))?;
    let mut values = None;
    if space.rank() == 0 {
        let mut whole = vec![0.0; all * area];
        for (number, values) in whole.chunks_exact_mut(area).enumerate() {
            space.read_bulk(block(&matrices[2], number), values)?;
        }
        values = Some(Values::Doubles(whole));
    }
    Ok(Done { time, values })
}

pub(super) fn serial(blocks: usize, side: usize) -> Serial {
    let (area, all) = (side * side, blocks * blocks);
    let [a, b] = [0, 1].map(|matrix| (0..all * area).map(|index| element(matrix, index)).collect::<Vec<_>>());
    Box::new(move || {
        let mut c = vec![0.0; all * area];
        for (to, c) in c.chunks_exact_mut(area).enumerate() {
            for k in 0..blocks {
                let (left, right) = (to / blocks * blocks + k, k * blocks + to % blocks);
                multiply(side, &a[left * area..][..area], &b[right * area..][..area], c);
            }
        }
        Values::Doubles(c)
    })
}
