//! Connected components of a square mesh of which some edges are missing. Each rank joins what is within its strip of
//! rows; then all fetch the labels beyond their borders, a short message each, until no label changes anywhere.

use super::kernels::Mesh;
use super::{Done, Serial, Values, gather, share, share_of, timed};
use crate::{Global, Op, Space, Work};

/// Operations for an edge within a rank: two finds of a few loads, a compare, a store. For a point: load its root's
/// label and store it. For an edge between ranks: load both labels, compare, store.
const EDGE: u64 = 12;
const POINT: u64 = 3;
const BORDER: u64 = 6;

/// To join what is within some rows, of whose edges `percent` in a hundred are there.
const fn joining(mesh: Mesh, rows: usize) -> Work {
    let edges = rows * mesh.side.saturating_sub(1) + rows.saturating_sub(1) * mesh.side;
    Work::integer(EDGE * edges as u64 * mesh.percent / 100 + POINT * (rows * mesh.side) as u64)
}

/// The labels of this rank's points, in `labels` of its part. `borders` has room for those of its first and last row.
fn components<S: Space>(space: &mut S, mesh: Mesh, labels: Global<u64>, borders: Global<u64>) -> Result<(), S::Error> {
    let side = mesh.side;
    let rows = share(space, side);
    let first = rows.start * side;
    let roots = mesh.join(rows.clone());
    space.computes(joining(mesh, rows.len()));
    let mut label: Vec<u64> = (0..roots.len() as u64).map(|point| first as u64 + point).collect();
    let last = roots.len().saturating_sub(side);
    let (above, below) = (rows.start > 0, rows.end < side);
    // For each edge across a border: the point here, and where the other's label is.
    let mut across = Vec::new();
    for x in 0..side {
        if above && mesh.has(first - side + x, true) {
            across.push((x, borders.on(space.rank() - 1).at(side + x)));
        }
        if below && mesh.has(first + last + x, true) {
            across.push((last + x, borders.on(space.rank() + 1).at(x)));
        }
    }
    loop {
        let of = |point: usize| label[roots[point] - first];
        let rim: Vec<u64> = (0..side).map(of).chain((last..last + side).map(of)).collect();
        space.computes(Work::integer(POINT * rim.len() as u64));
        space.set_local(borders, &rim)?;
        space.barrier()?;
        let coming: Vec<_> = across.iter().map(|(_, at)| space.get(*at)).collect::<Result<_, _>>()?;
        space.sync()?;
        let mut changed = 0_u32;
        for ((point, _), coming) in across.iter().zip(coming) {
            let theirs = space.take(coming)?;
            let mine = &mut label[roots[*point] - first];
            if theirs < *mine {
                *mine = theirs;
                changed = 1;
            }
        }
        space.computes(Work::integer(BORDER * across.len() as u64));
        // Nobody writes its rim anew before all have read it.
        if space.reduce(Op::Max, changed)? == 0 {
            break;
        }
    }
    for (into, root) in space.in_place_mut(labels, roots.len())?.iter_mut().zip(&roots) {
        *into = label[root - first];
    }
    space.computes(Work::integer(POINT * roots.len() as u64));
    Ok(())
}

pub(super) fn run<S: Space>(space: &mut S, mesh: Mesh) -> Result<Done, S::Error> {
    let size = space.size();
    let labels = space.alloc::<u64>(mesh.side.div_ceil(size as usize) * mesh.side)?;
    let borders = space.alloc::<u64>(2 * mesh.side)?;
    let ((), time) = timed(space, |space| components(space, mesh, labels, borders))?;
    let count = |_: &mut S, rank| Ok(share_of(rank, size, mesh.side).len() * mesh.side);
    let values = gather(space, labels, count)?.map(Values::Words);
    Ok(Done { time, values })
}

pub(super) fn serial(mesh: Mesh) -> Serial {
    Box::new(move || Values::Words(mesh.join(0..mesh.side).into_iter().map(|point| point as u64).collect()))
}
