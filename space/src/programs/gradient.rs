//! Conjugate gradients for the five-point matrix of a square grid. Each rank has some rows, and puts its outermost into
//! its neighbours' memory in each iteration.

use std::convert::Infallible;
use std::ops::Range;

use super::kernels::{add, apply, product, random};
use super::{Done, Serial, Values, gather, share, share_of, timed};
use crate::{Global, Op, Space, Work};

/// Operations for each point: five multiplications and four additions with the five indices and one bound of the row;
/// a sum of products; a vector that another is added to.
const ROW: Work = Work { integer: 6, float: 9 };
const PRODUCT: u64 = 2;
const ADD: u64 = 2;

/// The right-hand side.
#[allow(clippy::cast_precision_loss, reason = "random numbers, whatever they are")]
fn load(points: Range<usize>) -> Vec<f64> {
    points.map(|point| random(point as u64) as f64 / u64::MAX as f64).collect()
}

/// What some rows know of the others.
trait Others {
    type Error;

    /// Fills the rows before and after those of a vector.
    fn rims(&mut self, vector: &mut [f64]) -> Result<(), Self::Error>;

    /// A sum over all rows of a sum over these.
    fn sum(&mut self, part: f64) -> Result<f64, Self::Error>;

    fn computes(&mut self, work: Work);
}

/// There are none.
struct Nobody;

impl Others for Nobody {
    type Error = Infallible;

    fn rims(&mut self, _: &mut [f64]) -> Result<(), Infallible> {
        Ok(())
    }

    fn sum(&mut self, part: f64) -> Result<f64, Infallible> {
        Ok(part)
    }

    fn computes(&mut self, _: Work) {}
}

/// They are at other ranks, which put theirs into `rims`.
struct Ranks<'a, S> {
    space: &'a mut S,
    side: usize,
    rims: Global<f64>,
}

impl<S: Space> Others for Ranks<'_, S> {
    type Error = S::Error;

    fn rims(&mut self, vector: &mut [f64]) -> Result<(), S::Error> {
        let (side, rims, rank) = (self.side, self.rims, self.space.rank());
        let count = vector.len() - 2 * side;
        if rank > 0 {
            self.space.put_bulk(rims.on(rank - 1).at(side), &vector[side..2 * side])?;
        }
        if rank + 1 < self.space.size() {
            self.space.put_bulk(rims.on(rank + 1), &vector[count..count + side])?;
        }
        // When all have put, the neighbours' rows are here. They are written anew after two sums from now.
        self.space.all_store_sync()?;
        self.space.local(rims, &mut vector[..side])?;
        self.space.local(rims.at(side), &mut vector[side + count..])
    }

    fn sum(&mut self, part: f64) -> Result<f64, S::Error> {
        self.space.reduce(Op::Sum, part)
    }

    fn computes(&mut self, work: Work) {
        self.space.computes(work);
    }
}

/// Solves for the rows of one rank, or for all.
fn solve<O: Others>(side: usize, iterations: usize, right: &[f64], others: &mut O) -> Result<Vec<f64>, O::Error> {
    let count = right.len();
    let points = count as u64;
    let mut solution = vec![0.0; count];
    let mut residual = right.to_vec();
    let mut direction = vec![0.0; count + 2 * side];
    direction[side..side + count].copy_from_slice(right);
    let mut image = vec![0.0; count];
    others.computes(Work::float(PRODUCT * points));
    let mut square = others.sum(product(&residual, &residual))?;
    for _ in 0..iterations {
        others.rims(&mut direction)?;
        apply(side, &direction, &mut image);
        let inner = &mut direction[side..side + count];
        others.computes(Work { integer: ROW.integer * points, float: (ROW.float + PRODUCT) * points });
        let length = square / others.sum(product(inner, &image))?;
        add(&mut solution, length, inner);
        add(&mut residual, -length, &image);
        others.computes(Work::float((2 * ADD + PRODUCT) * points));
        let next = others.sum(product(&residual, &residual))?;
        let keep = next / square;
        inner.iter_mut().zip(&residual).for_each(|(p, r)| *p = r + keep * *p);
        others.computes(Work::float(ADD * points));
        square = next;
    }
    Ok(solution)
}

pub(super) fn run<S: Space>(space: &mut S, side: usize, iterations: usize) -> Result<Done, S::Error> {
    let size = space.size();
    let rims = space.alloc::<f64>(2 * side)?;
    let solution = space.alloc::<f64>(side.div_ceil(size as usize) * side)?;
    let (mine, time) = timed(space, |space| {
        let rows = share(space, side);
        let right = load(rows.start * side..rows.end * side);
        solve(side, iterations, &right, &mut Ranks { space, side, rims })
    })?;
    space.set_local(solution, &mine)?;
    space.barrier()?;
    let count = |_: &mut S, rank| Ok(share_of(rank, size, side).len() * side);
    let values = gather(space, solution, count)?.map(Values::Doubles);
    Ok(Done { time, values })
}

pub(super) fn serial(side: usize, iterations: usize) -> Serial {
    let right = load(0..side * side);
    Box::new(move || {
        let Ok(solution) = solve(side, iterations, &right, &mut Nobody);
        Values::Doubles(solution)
    })
}

/// Whether two solutions are the same but for the order in which sums were added.
pub(super) fn near(came: &[f64], expected: &[f64]) -> bool {
    let most = expected.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    came.len() == expected.len() && came.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-9 * most)
}
