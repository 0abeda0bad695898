//! Radix sort: `radix_sort [small|bulk [KEYS]]`, keys of 24 bits, by digits of 8 bits from the lowest. A scan over the
//! ranks' counts says where each key goes; it goes there in a message of its own, or with its neighbours in bulk.

mod common;

use common::{End, alone, argument, bulk, helped, random, report, timed};
use cutthrough_splitc::{Error, Op, Spread, World};

const KEY_BITS: u32 = 24;
const DIGIT_BITS: u32 = 8;
const DIGITS: usize = 1 << DIGIT_BITS;

#[allow(clippy::cast_possible_truncation, reason = "24 bits of it")]
fn key(index: usize) -> u32 {
    random(index as u64) as u32 & ((1 << KEY_BITS) - 1)
}

const fn digit(key: u32, shift: u32) -> usize {
    (key >> shift) as usize % DIGITS
}

/// How often each digit occurs.
fn count(keys: &[u32], shift: u32) -> Vec<u64> {
    let mut counts = vec![0; DIGITS];
    for key in keys {
        counts[digit(*key, shift)] += 1;
    }
    counts
}

/// Sorts a run of an array that has a block at each rank.
fn sort(world: &mut World, keys: &Spread<u32>, bulk: bool) -> Result<(), Error> {
    let mut mine = vec![0; keys.count(world.rank())];
    for shift in (0..KEY_BITS).step_by(DIGIT_BITS as usize) {
        world.local(keys.part_of(world.rank()), &mut mine)?;
        let own = count(&mine, shift);
        let (mut upto, mut all) = (own.clone(), own.clone());
        world.scan_bulk(Op::Sum, &mut upto)?;
        // Nobody gets past this before all have taken their keys out.
        world.reduce_bulk(Op::Sum, &mut all)?;
        let mut next = vec![0; DIGITS];
        let mut lower = 0;
        for at in 0..DIGITS {
            next[at] = usize::try_from(lower + upto[at] - own[at]).unwrap_or(usize::MAX);
            lower += all[at];
        }
        if bulk {
            send_runs(world, keys, &mine, shift, &own, &next)?;
        } else {
            for key in &mine {
                let at = &mut next[digit(*key, shift)];
                world.store(keys.place(*at), *key)?;
                *at += 1;
            }
        }
        world.all_store_sync()?;
    }
    Ok(())
}

/// Puts the keys of each digit side by side, and sends them as one, cut where another rank's block begins.
fn send_runs(
    world: &mut World,
    keys: &Spread<u32>,
    mine: &[u32],
    shift: u32,
    own: &[u64],
    next: &[usize],
) -> Result<(), Error> {
    let mut begins = Vec::with_capacity(DIGITS + 1);
    begins.push(0);
    for count in own {
        begins.push(begins[begins.len() - 1] + usize::try_from(*count).unwrap_or(usize::MAX));
    }
    let mut ordered = vec![0; mine.len()];
    let mut fill = begins.clone();
    for key in mine {
        let at = &mut fill[digit(*key, shift)];
        ordered[*at] = *key;
        *at += 1;
    }
    for at in 0..DIGITS {
        let (mut run, mut to) = (&ordered[begins[at]..begins[at + 1]], next[at]);
        while !run.is_empty() {
            let here = run.len().min(keys.block() - to % keys.block());
            world.store_bulk(keys.place(to), &run[..here])?;
            (run, to) = (&run[here..], to + here);
        }
    }
    Ok(())
}

/// The same on one processor.
fn serial(mut keys: Vec<u32>) -> Vec<u32> {
    for shift in (0..KEY_BITS).step_by(DIGIT_BITS as usize) {
        let mut next = Vec::with_capacity(DIGITS);
        let mut lower = 0;
        for count in count(&keys, shift) {
            next.push(lower);
            lower += usize::try_from(count).unwrap_or(usize::MAX);
        }
        let mut sorted = vec![0; keys.len()];
        for key in keys {
            let at = &mut next[digit(key, shift)];
            sorted[*at] = key;
            *at += 1;
        }
        keys = sorted;
    }
    keys
}

fn main() -> End {
    if helped(
        "Sorts random keys of 24 bits by their digits, in small or bulk messages.",
        "radix_sort [small|bulk [KEYS]]",
    ) {
        return Ok(());
    }
    let (bulk, total) = (bulk()?, argument(2, "KEYS", 1_usize << 18)?);
    let mut world = World::from_environment()?;
    let block = total.div_ceil(world.size() as usize).max(1);
    let keys = world.spread::<u32>(total, block)?;
    let mine: Vec<u32> = keys.runs(world.rank()).flat_map(|(first, count)| (first..first + count).map(key)).collect();
    world.set_local(keys.part_of(world.rank()), &mine)?;
    let ((), together) = timed(&mut world, |world| sort(world, &keys, bulk))?;
    if world.rank() == 0 {
        let all: Vec<u32> = (0..total).map(key).collect();
        let mut expected = all.clone();
        expected.sort_unstable();
        let (sorted, time) = alone(|| serial(all));
        let mut came = Vec::new();
        for rank in 0..world.size() {
            let mut part = vec![0; keys.count(rank)];
            world.read_bulk(keys.part_of(rank), &mut part)?;
            came.extend(part);
        }
        let what = format!("radix sort, {}", if bulk { "bulk" } else { "short messages" });
        report(&world, &what, together, time, came == expected && sorted == expected)?;
    }
    Ok(world.finish()?)
}
