//! Blocked matrix multiply: `matmul [BLOCKS [SIDE]]`, BLOCKS x BLOCKS blocks of SIDE x SIDE doubles (U-Net's were 4 and
//! 128). Each rank has every so-manieth block of each matrix, and computes its blocks of the product. While it
//! multiplies two blocks, the next two are on their way.

mod common;

use common::{End, alone, argument, random, report, timed};
use cutthrough_splitc::{Coming, Error, Global, Spread, World};

/// Adds the product of two blocks to a third; between two rows, `rest` is called.
fn multiply(
    side: usize,
    a: &[f64],
    b: &[f64],
    c: &mut [f64],
    mut rest: impl FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    for (a, c) in a.chunks_exact(side).zip(c.chunks_exact_mut(side)) {
        for (a, b) in a.iter().zip(b.chunks_exact(side)) {
            for (c, b) in c.iter_mut().zip(b) {
                *c += a * b;
            }
        }
        rest()?;
    }
    Ok(())
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

fn product(world: &mut World, blocks: usize, side: usize, [a, b, c]: &[Spread<f64>; 3]) -> Result<(), Error> {
    let area = side * side;
    let mine: Vec<usize> = (world.rank() as usize..blocks * blocks).step_by(world.size() as usize).collect();
    let pairs: Vec<(usize, usize, usize)> = mine
        .iter()
        .flat_map(|&to| (0..blocks).map(move |k| (to, to / blocks * blocks + k, k * blocks + to % blocks)))
        .collect();
    // Blocks of other ranks are asked for; those of its own a rank has.
    let fetch = |world: &mut World, pair: Option<&(usize, usize, usize)>| -> Result<Vec<Factor>, Error> {
        let Some((_, left, right)) = pair else { return Ok(Vec::new()) };
        let factor = |from: Global<f64>| match from.rank() == world.rank() {
            true => Ok(Factor::Here(from)),
            false => world.get_bulk(from, area).map(Factor::Coming),
        };
        [block(a, *left), block(b, *right)].into_iter().map(factor).collect()
    };
    let (mut left, mut right, mut sum) = (vec![0.0; area], vec![0.0; area], vec![0.0; area]);
    let mut coming = fetch(world, pairs.first())?;
    for (number, (to, ..)) in pairs.iter().enumerate() {
        for (factor, into) in coming.into_iter().zip([&mut left, &mut right]) {
            match factor {
                Factor::Here(from) => world.local(from, into)?,
                Factor::Coming(coming) => world.take_bulk(coming, into)?,
            }
        }
        coming = fetch(world, pairs.get(number + 1))?;
        // The others want this rank's blocks while it multiplies.
        multiply(side, &left, &right, &mut sum, || world.poll())?;
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
            // Nothing rests here, so nothing fails.
            let _ = multiply(side, a, b, c, || Ok(()));
        }
    }
    c
}

fn main() -> End {
    let (blocks, side) = (argument(1, "BLOCKS", 4)?, argument(2, "SIDE", 128)?);
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
