//! Conjugate gradients for the five-point matrix of a square grid: `gradient [SIDE [ITERATIONS]]`. Each rank has some
//! rows, and puts its outermost into its neighbours' memory in each iteration.

mod common;

use common::{End, add, alone, apply, argument, helped, product, random, report, share, timed};
use cutthrough_splitc::{Error, Global, Op, World};

/// The right-hand side.
#[allow(clippy::cast_precision_loss, reason = "random numbers, whatever they are")]
fn load(points: std::ops::Range<usize>) -> Vec<f64> {
    points.map(|point| random(point as u64) as f64 / u64::MAX as f64).collect()
}

/// Solves for the rows of one rank, or for all. `share` makes a sum over all of its part, `rim` fills the rows beyond.
fn solve(
    side: usize,
    iterations: usize,
    right: &[f64],
    mut step: impl FnMut(&mut [f64]) -> Result<(), Error>,
    mut sum: impl FnMut(f64) -> Result<f64, Error>,
) -> Result<Vec<f64>, Error> {
    let count = right.len();
    let mut solution = vec![0.0; count];
    let mut residual = right.to_vec();
    let mut direction = vec![0.0; count + 2 * side];
    direction[side..side + count].copy_from_slice(right);
    let mut image = vec![0.0; count];
    let mut square = sum(product(&residual, &residual))?;
    for _ in 0..iterations {
        step(&mut direction)?;
        apply(side, &direction, &mut image);
        let inner = &mut direction[side..side + count];
        let length = square / sum(product(inner, &image))?;
        add(&mut solution, length, inner);
        add(&mut residual, -length, &image);
        let next = sum(product(&residual, &residual))?;
        let keep = next / square;
        inner.iter_mut().zip(&residual).for_each(|(p, r)| *p = r + keep * *p);
        square = next;
    }
    Ok(solution)
}

fn together(world: &mut World, side: usize, iterations: usize, rims: Global<f64>) -> Result<Vec<f64>, Error> {
    let rows = share(world, side);
    let right = load(rows.start * side..rows.end * side);
    let (rank, size) = (world.rank(), world.size());
    let world = std::cell::RefCell::new(world);
    solve(
        side,
        iterations,
        &right,
        |vector| {
            let mut world = world.borrow_mut();
            let count = vector.len() - 2 * side;
            if rank > 0 {
                world.put_bulk(rims.on(rank - 1).at(side), &vector[side..2 * side])?;
            }
            if rank + 1 < size {
                world.put_bulk(rims.on(rank + 1), &vector[count..count + side])?;
            }
            // When all have put, the neighbours' rows are here. They are written anew after two sums from now.
            world.all_store_sync()?;
            world.local(rims, &mut vector[..side])?;
            world.local(rims.at(side), &mut vector[side + count..])
        },
        |part| world.borrow_mut().reduce(Op::Sum, part),
    )
}

fn main() -> End {
    if helped("Solves a grid of SIDE x SIDE points by conjugate gradients.", "gradient [SIDE [ITERATIONS]]") {
        return Ok(());
    }
    let (side, iterations) = (argument(1, "SIDE", 256)?, argument(2, "ITERATIONS", 50)?);
    let mut world = World::from_environment()?;
    if side < world.size() as usize {
        return Err("SIDE has to be at least the number of ranks".into());
    }
    let rims = world.alloc::<f64>(2 * side)?;
    let solution = world.alloc::<f64>(side.div_ceil(world.size() as usize) * side)?;
    let (mine, time) = timed(&mut world, |world| together(world, side, iterations, rims))?;
    world.set_local(solution, &mine)?;
    world.barrier()?;
    if world.rank() == 0 {
        let right = load(0..side * side);
        let (expected, alone) = alone(|| solve(side, iterations, &right, |_| Ok(()), Ok));
        let expected = expected?;
        let mut came = Vec::new();
        for rank in 0..world.size() as usize {
            let rows = (rank + 1) * side / world.size() as usize - rank * side / world.size() as usize;
            let mut part = vec![0.0; rows * side];
            world.read_bulk(solution.on(u32::try_from(rank)?), &mut part)?;
            came.extend(part);
        }
        // Sums were added in another order.
        let most = expected.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        let near =
            came.len() == expected.len() && came.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-9 * most);
        report(&world, "conjugate gradient", time, alone, near)?;
    }
    Ok(world.finish()?)
}
