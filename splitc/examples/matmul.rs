//! Blocked matrix multiply: `matmul [BLOCKS [SIDE]]`, BLOCKS x BLOCKS blocks of SIDE x SIDE doubles (U-Net's were 4 and
//! 128). Each rank has every so-manieth block of each matrix, and computes its blocks of the product. While it
//! multiplies two blocks, the next two are on their way.

mod common;

use common::{End, alone, argument, helped, multiply_row, random, report, timed};
use cutthrough_splitc::{Coming, Error, Global, Spread, World};

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
enum Factor {
    Here(Global<f64>),
    Coming(Coming<f64>),
}

impl Factor {
    /// Asks for a block of another rank. One of its own a rank has.
    fn fetch(world: &mut World, from: Global<f64>, area: usize) -> Result<Self, Error> {
        if from.rank() == world.rank() { Ok(Self::Here(from)) } else { world.get_bulk(from, area).map(Self::Coming) }
    }

    fn wait(&self, world: &mut World) -> Result<(), Error> {
        if let Self::Coming(coming) = self { world.wait_for(coming) } else { Ok(()) }
    }

    /// The block, where it lies.
    fn values<'a>(&self, world: &'a World, area: usize) -> Result<&'a [f64], Error> {
        match self {
            Self::Here(at) => world.in_place(*at, area),
            Self::Coming(coming) => Ok(world.arrived(coming).unwrap_or_default()),
        }
    }

    fn release(self, world: &mut World) -> Result<(), Error> {
        if let Self::Coming(coming) = self { world.release(coming) } else { Ok(()) }
    }
}

fn product(world: &mut World, blocks: usize, side: usize, [a, b, c]: &[Spread<f64>; 3]) -> Result<(), Error> {
    let area = side * side;
    let mine: Vec<usize> = (world.rank() as usize..blocks * blocks).step_by(world.size() as usize).collect();
    let pairs: Vec<(usize, usize, usize)> = mine
        .iter()
        .flat_map(|&to| (0..blocks).map(move |k| (to, to / blocks * blocks + k, k * blocks + to % blocks)))
        .collect();
    let fetch = |world: &mut World, pair: Option<&(usize, usize, usize)>| match pair {
        Some((_, left, right)) => {
            let left = Factor::fetch(world, block(a, *left), area)?;
            Ok(Some((left, Factor::fetch(world, block(b, *right), area)?)))
        }
        None => Ok(None),
    };
    let mut sum = vec![0.0; area];
    let mut coming = fetch(world, pairs.first())?;
    for (number, (to, ..)) in pairs.iter().enumerate() {
        let Some((left, right)) = coming else { break };
        left.wait(world)?;
        right.wait(world)?;
        coming = fetch(world, pairs.get(number + 1))?;
        for (row, into) in sum.chunks_exact_mut(side).enumerate() {
            multiply_row(&left.values(world, area)?[row * side..][..side], right.values(world, area)?, into);
            // The others want this rank's blocks while it multiplies.
            world.poll()?;
        }
        left.release(world)?;
        right.release(world)?;
        if (number + 1) % blocks == 0 {
            world.set_local(block(c, *to), &sum)?;
            sum.fill(0.0);
        }
    }
    Ok(())
}

fn serial(blocks: usize, side: usize, [a, b]: &[Vec<f64>; 2]) -> Vec<f64> {
    let area = side * side;
    let mut c = vec![0.0; blocks * blocks * area];
    for (to, c) in c.chunks_exact_mut(area).enumerate() {
        for k in 0..blocks {
            let (left, right) = (to / blocks * blocks + k, k * blocks + to % blocks);
            let (a, b) = (&a[left * area..][..area], &b[right * area..][..area]);
            multiply(side, a, b, c);
        }
    }
    c
}

fn main() -> End {
    if helped("Multiplies matrices of BLOCKS x BLOCKS blocks of SIDE x SIDE doubles.", "matmul [BLOCKS [SIDE]]") {
        return Ok(());
    }
    let (blocks, side) = (argument(1, "BLOCKS", 4)?, argument(2, "SIDE", 128)?);
    if blocks == 0 || side == 0 {
        return Err("BLOCKS and SIDE are at least 1".into());
    }
    let mut world = World::from_environment()?;
    let area = side * side;
    let all = blocks * blocks;
    let mut matrices = Vec::new();
    for matrix in 0..3 {
        let spread = world.spread::<f64>(all * area, area)?;
        for number in (world.rank() as usize..all).step_by(world.size() as usize).filter(|_| matrix < 2) {
            let values: Vec<f64> = (number * area..(number + 1) * area).map(|index| element(matrix, index)).collect();
            world.set_local(block(&spread, number), &values)?;
        }
        matrices.push(spread);
    }
    let matrices = [matrices[0], matrices[1], matrices[2]];
    let ((), together) = timed(&mut world, |world| product(world, blocks, side, &matrices))?;
    if world.rank() == 0 {
        // All of the two matrices, made before the time is taken, as they were for the ranks.
        let whole = [0, 1].map(|matrix| (0..all * area).map(|index| element(matrix, index)).collect::<Vec<_>>());
        let (expected, time) = alone(|| serial(blocks, side, &whole));
        let mut right = true;
        for (number, expected) in expected.chunks_exact(area).enumerate() {
            let mut values = vec![0.0; area];
            world.read_bulk(block(&matrices[2], number), &mut values)?;
            right &= values == expected;
        }
        report(&world, "matrix multiply", together, time, right)?;
    }
    Ok(world.finish()?)
}
