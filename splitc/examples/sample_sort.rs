//! Sample sort: `sample_sort [small|bulk [KEYS]]`. Samples of all ranks say which range of keys each rank gets; the
//! keys go there, two in a short message or all in bulk, and are sorted there.

mod common;

use common::{End, alone, argument, bulk, helped, random, report, share, timed};
use cutthrough_splitc::{Error, Global, Op, World};

/// Keys that each rank offers as samples.
const SAMPLES: usize = 64;

/// Stores keys one behind the other, in bulk or two at a time.
fn store(world: &mut World, to: Global<u64>, keys: &[u64], bulk: bool) -> Result<(), Error> {
    for (pair, at) in keys.chunks(if bulk { keys.len().max(1) } else { 2 }).zip((0..).step_by(2)) {
        world.store_bulk(to.at(at), pair)?;
    }
    Ok(())
}

/// Sorts all ranks' keys. The keys of this rank's range, where they lie, and how many there are.
fn sort(world: &mut World, keys: &[u64], bulk: bool) -> Result<(Global<u64>, usize), Error> {
    let (rank, size) = (world.rank(), world.size());
    let ranks = size as usize;
    let samples = world.alloc::<u64>(ranks * SAMPLES)?;
    let counts = world.alloc::<u64>(ranks)?;
    let starts = world.alloc::<u64>(ranks)?;
    let offered: Vec<u64> = (0..SAMPLES).map(|i| keys.get(i * keys.len() / SAMPLES).copied().unwrap_or(0)).collect();
    store(world, samples.on(0).at(rank as usize * SAMPLES), &offered, bulk)?;
    world.all_store_sync()?;
    let mut ends = vec![0; ranks - 1];
    if rank == 0 {
        let mut all = vec![0; ranks * SAMPLES];
        world.local(samples, &mut all)?;
        all.sort_unstable();
        ends = (1..ranks).map(|at| all[at * SAMPLES]).collect();
    }
    world.broadcast_bulk(0, &mut ends)?;

    // How many keys go from each rank to each, and where they begin there.
    let mut ranges = vec![Vec::with_capacity(keys.len() / ranks * 2); ranks];
    for key in keys {
        ranges[ends.partition_point(|end| end <= key)].push(*key);
    }
    for (to, range) in (0..).zip(&ranges) {
        world.store(counts.on(to).at(rank as usize), range.len() as u64)?;
    }
    world.all_store_sync()?;
    let mut theirs = vec![0; ranks];
    world.local(counts, &mut theirs)?;
    let mut total = 0;
    for (from, count) in (0..).zip(theirs) {
        world.store(starts.on(from).at(rank as usize), total)?;
        total += count;
    }
    let most = world.reduce(Op::Max, total)?;
    let place = world.alloc::<u64>(usize::try_from(most).unwrap_or(usize::MAX))?;
    world.all_store_sync()?;
    let mut begins = vec![0; ranks];
    world.local(starts, &mut begins)?;
    for far in 0..size {
        // Not all to the same rank at the same time.
        let to = (rank + far) % size;
        let begin = usize::try_from(begins[to as usize]).unwrap_or(usize::MAX);
        store(world, place.on(to).at(begin), &ranges[to as usize], bulk)?;
    }
    world.all_store_sync()?;
    let total = usize::try_from(total).unwrap_or(usize::MAX);
    world.in_place_mut(place, total)?.sort_unstable();
    Ok((place, total))
}

fn main() -> End {
    if helped("Sorts random keys by samples, in small or bulk messages.", "sample_sort [small|bulk [KEYS]]") {
        return Ok(());
    }
    let (bulk, total) = (bulk()?, argument(2, "KEYS", 1_usize << 18)?);
    let mut world = World::from_environment()?;
    let keys: Vec<u64> = share(&world, total).map(|i| random(i as u64)).collect();
    let ((place, count), together) = timed(&mut world, |world| sort(world, &keys, bulk))?;
    let counts = world.alloc::<u64>(1)?;
    world.set_local(counts, &[count as u64])?;
    world.barrier()?;
    if world.rank() == 0 {
        let mut expected: Vec<u64> = (0..total).map(|i| random(i as u64)).collect();
        let ((), time) = alone(|| expected.sort_unstable());
        let mut sorted = Vec::new();
        for rank in 0..world.size() {
            let count = world.read(counts.on(rank))?;
            let mut part = vec![0; usize::try_from(count)?];
            world.read_bulk(place.on(rank), &mut part)?;
            sorted.extend(part);
        }
        let what = format!("sample sort, {}", if bulk { "bulk" } else { "short messages" });
        report(&world, &what, together, time, sorted == expected)?;
    }
    Ok(world.finish()?)
}
