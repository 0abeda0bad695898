//! Radix sort of keys of 24 bits, by digits of 8 bits from the lowest. A scan over the ranks' counts says where each
//! key goes; it goes there in a message of its own, or with its neighbours in bulk.

use super::kernels::random;
use super::{DIGIT, Done, MOVE, Serial, Values, gather, timed};
use crate::{Op, Space, Spread, Work};

const KEY_BITS: u32 = 24;
const DIGIT_BITS: u32 = 8;
const DIGITS: usize = 1 << DIGIT_BITS;

/// To begin a digit: two counts and a place are loaded, added and stored. To send a run: as much.
const RUN: u64 = 8;

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
fn sort<S: Space>(space: &mut S, keys: &Spread<u32>, bulk: bool) -> Result<(), S::Error> {
    let mut mine = vec![0; keys.count(space.rank())];
    for shift in (0..KEY_BITS).step_by(DIGIT_BITS as usize) {
        space.local(keys.part_of(space.rank()), &mut mine)?;
        let own = count(&mine, shift);
        space.computes(Work::integer(DIGIT * mine.len() as u64));
        let (mut upto, mut all) = (own.clone(), own.clone());
        space.scan_bulk(Op::Sum, &mut upto)?;
        // Nobody gets past this before all have taken their keys out.
        space.reduce_bulk(Op::Sum, &mut all)?;
        let mut next = vec![0; DIGITS];
        let mut lower = 0;
        for at in 0..DIGITS {
            next[at] = usize::try_from(lower + upto[at] - own[at]).unwrap_or(usize::MAX);
            lower += all[at];
        }
        space.computes(Work::integer(RUN * DIGITS as u64));
        if bulk {
            send_runs(space, keys, &mine, shift, &own, &next)?;
        } else {
            for key in &mine {
                let at = &mut next[digit(*key, shift)];
                space.computes(Work::integer(DIGIT));
                space.store(keys.place(*at), *key)?;
                *at += 1;
            }
        }
        space.all_store_sync()?;
    }
    Ok(())
}

/// Puts the keys of each digit side by side, and sends them as one, cut where another rank's block begins.
fn send_runs<S: Space>(
    space: &mut S,
    keys: &Spread<u32>,
    mine: &[u32],
    shift: u32,
    own: &[u64],
    next: &[usize],
) -> Result<(), S::Error> {
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
    // Each key's digit is looked at once more, and its place is where it goes.
    space.computes(Work::integer((DIGIT + 1) * mine.len() as u64 + MOVE * DIGITS as u64));
    for at in 0..DIGITS {
        let (mut run, mut to) = (&ordered[begins[at]..begins[at + 1]], next[at]);
        while !run.is_empty() {
            let here = run.len().min(keys.block() - to % keys.block());
            space.computes(Work::integer(RUN));
            space.store_bulk(keys.place(to), &run[..here])?;
            (run, to) = (&run[here..], to + here);
        }
    }
    Ok(())
}

pub(super) fn run<S: Space>(space: &mut S, bulk: bool, total: usize) -> Result<Done, S::Error> {
    let block = total.div_ceil(space.size() as usize).max(1);
    let keys = space.spread::<u32>(total, block)?;
    let mine: Vec<u32> = keys.runs(space.rank()).flat_map(|(first, count)| (first..first + count).map(key)).collect();
    space.set_local(keys.part_of(space.rank()), &mine)?;
    let ((), time) = timed(space, |space| sort(space, &keys, bulk))?;
    let values = gather(space, keys.part_of(0), |_, rank| Ok(keys.count(rank)))?.map(Values::Keys);
    Ok(Done { time, values })
}

pub(super) fn serial(total: usize) -> Serial {
    let mut keys: Vec<u32> = (0..total).map(key).collect();
    Box::new(move || {
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
        Values::Keys(keys)
    })
}
