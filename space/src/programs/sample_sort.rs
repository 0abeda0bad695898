//! Sample sort. Samples of all ranks say which range of keys each rank gets; the keys go there, two in a short message
//! or all in bulk, and are sorted there.

use super::kernels::random;
use super::{COMPARE, Done, MOVE, Serial, Values, gather, levels, share, sorting, timed};
use crate::{Global, Op, Space, Work};

/// Keys that each rank offers as samples.
const SAMPLES: usize = 64;

/// Stores keys one behind the other, in bulk or two at a time.
fn store<S: Space>(space: &mut S, to: Global<u64>, keys: &[u64], bulk: bool) -> Result<(), S::Error> {
    for (pair, at) in keys.chunks(if bulk { keys.len().max(1) } else { 2 }).zip((0..).step_by(2)) {
        space.store_bulk(to.at(at), pair)?;
    }
    Ok(())
}

/// Sorts all ranks' keys. The keys of this rank's range, where they lie, and how many there are.
fn sort<S: Space>(space: &mut S, keys: &[u64], bulk: bool) -> Result<(Global<u64>, usize), S::Error> {
    let (rank, size) = (space.rank(), space.size());
    let ranks = size as usize;
    let samples = space.alloc::<u64>(ranks * SAMPLES)?;
    let counts = space.alloc::<u64>(ranks)?;
    let starts = space.alloc::<u64>(ranks)?;
    let offered: Vec<u64> = (0..SAMPLES).map(|i| keys.get(i * keys.len() / SAMPLES).copied().unwrap_or(0)).collect();
    space.computes(Work::integer(MOVE * SAMPLES as u64));
    store(space, samples.on(0).at(rank as usize * SAMPLES), &offered, bulk)?;
    space.all_store_sync()?;
    let mut ends = vec![0; ranks - 1];
    if rank == 0 {
        let mut all = vec![0; ranks * SAMPLES];
        space.local(samples, &mut all)?;
        all.sort_unstable();
        space.computes(sorting(all.len()));
        ends = (1..ranks).map(|at| all[at * SAMPLES]).collect();
    }
    space.broadcast_bulk(0, &mut ends)?;

    // How many keys go from each rank to each, and where they begin there.
    let mut ranges = vec![Vec::with_capacity(keys.len() / ranks * 2); ranks];
    for key in keys {
        ranges[ends.partition_point(|end| end <= key)].push(*key);
    }
    space.computes(Work::integer((COMPARE * levels(ranks) + MOVE) * keys.len() as u64));
    for (to, range) in (0..).zip(&ranges) {
        space.store(counts.on(to).at(rank as usize), range.len() as u64)?;
    }
    space.all_store_sync()?;
    let mut theirs = vec![0; ranks];
    space.local(counts, &mut theirs)?;
    let mut total = 0;
    for (from, count) in (0..).zip(theirs) {
        space.store(starts.on(from).at(rank as usize), total)?;
        total += count;
    }
    let most = space.reduce(Op::Max, total)?;
    let place = space.alloc::<u64>(usize::try_from(most).unwrap_or(usize::MAX))?;
    space.all_store_sync()?;
    let mut begins = vec![0; ranks];
    space.local(starts, &mut begins)?;
    for far in 0..size {
        // Not all to the same rank at the same time.
        let to = (rank + far) % size;
        let begin = usize::try_from(begins[to as usize]).unwrap_or(usize::MAX);
        store(space, place.on(to).at(begin), &ranges[to as usize], bulk)?;
    }
    space.all_store_sync()?;
    let total = usize::try_from(total).unwrap_or(usize::MAX);
    space.in_place_mut(place, total)?.sort_unstable();
    space.computes(sorting(total));
    Ok((place, total))
}

pub(super) fn run<S: Space>(space: &mut S, bulk: bool, total: usize) -> Result<Done, S::Error> {
    let keys: Vec<u64> = share(space, total).map(|i| random(i as u64)).collect();
    let ((place, count), time) = timed(space, |space| sort(space, &keys, bulk))?;
    let counts = space.alloc::<u64>(1)?;
    space.set_local(counts, &[count as u64])?;
    space.barrier()?;
    let count = |space: &mut S, rank| {
        let count = space.read(counts.on(rank))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    };
    let values = gather(space, place, count)?.map(Values::Words);
    Ok(Done { time, values })
}

pub(super) fn serial(total: usize) -> Serial {
    let mut keys: Vec<u64> = (0..total).map(|i| random(i as u64)).collect();
    Box::new(move || {
        keys.sort_unstable();
        Values::Words(keys)
    })
}
