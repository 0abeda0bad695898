//! Connected components of a square mesh of which some edges are missing: `components [SIDE [PERCENT]]`. Each rank
//! joins what is within its strip of rows; then all fetch the labels beyond their borders, a short message each, until
//! no label changes anywhere.

mod common;

use common::{End, Mesh, alone, argument, helped, report, share, timed};
use cutthrough_splitc::{Error, Global, Op, World};

/// The labels of this rank's points, in `labels` of its part. `borders` has room for those of its first and last row.
fn components(world: &mut World, mesh: Mesh, labels: Global<u64>, borders: Global<u64>) -> Result<(), Error> {
    let side = mesh.side;
    let rows = share(world, side);
    let first = rows.start * side;
    let roots = mesh.join(rows.clone());
    let mut label: Vec<u64> = (0..roots.len() as u64).map(|point| first as u64 + point).collect();
    let last = roots.len().saturating_sub(side);
    let (above, below) = (rows.start > 0, rows.end < side);
    // For each edge across a border: the point here, and where the other's label is.
    let mut across = Vec::new();
    for x in 0..side {
        if above && mesh.has(first - side + x, true) {
            across.push((x, borders.on(world.rank() - 1).at(side + x)));
        }
        if below && mesh.has(first + last + x, true) {
            across.push((last + x, borders.on(world.rank() + 1).at(x)));
        }
    }
    loop {
        let of = |point: usize| label[roots[point] - first];
        let rim: Vec<u64> = (0..side).map(of).chain((last..last + side).map(of)).collect();
        world.set_local(borders, &rim)?;
        world.barrier()?;
        let coming: Vec<_> = across.iter().map(|(_, at)| world.get(*at)).collect::<Result<_, _>>()?;
        world.sync()?;
        let mut changed = 0_u32;
        for ((point, _), coming) in across.iter().zip(coming) {
            let theirs = world.take(coming)?;
            let mine = &mut label[roots[*point] - first];
            if theirs < *mine {
                *mine = theirs;
                changed = 1;
            }
        }
        // Nobody writes its rim anew before all have read it.
        if world.reduce(Op::Max, changed)? == 0 {
            break;
        }
    }
    for (into, root) in world.in_place_mut(labels, roots.len())?.iter_mut().zip(&roots) {
        *into = label[root - first];
    }
    Ok(())
}

fn main() -> End {
    if helped("Finds the connected parts of a mesh that has PERCENT of its edges.", "components [SIDE [PERCENT]]") {
        return Ok(());
    }
    let mesh = Mesh { side: argument(1, "SIDE", 512)?, percent: argument(2, "PERCENT", 60)? };
    let mut world = World::from_environment()?;
    if mesh.side < world.size() as usize {
        return Err("SIDE has to be at least the number of ranks".into());
    }
    let rows = mesh.side.div_ceil(world.size() as usize);
    let labels = world.alloc::<u64>(rows * mesh.side)?;
    let borders = world.alloc::<u64>(2 * mesh.side)?;
    let ((), together) = timed(&mut world, |world| components(world, mesh, labels, borders))?;
    if world.rank() == 0 {
        let (expected, time) = alone(|| mesh.join(0..mesh.side));
        let mut came = Vec::new();
        for rank in 0..world.size() as usize {
            let rows = (rank + 1) * mesh.side / world.size() as usize - rank * mesh.side / world.size() as usize;
            let mut part = vec![0; rows * mesh.side];
            world.read_bulk(labels.on(u32::try_from(rank)?), &mut part)?;
            came.extend(part);
        }
        let right = came.iter().map(|label| usize::try_from(*label)).eq(expected.into_iter().map(Ok));
        report(&world, "connected components", together, time, right)?;
    }
    Ok(world.finish()?)
}
