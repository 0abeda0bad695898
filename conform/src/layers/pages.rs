//! Operations on regions of others, and what has to be true of them afterwards.

use std::collections::HashMap;
use std::time::Duration;

use cutthrough::rma::{Extent, Region, Remote};
use cutthrough::{Channel, now};

use super::life::Life;
use super::watch::{Life as Name, Owned, Shared};
use crate::bytes::pattern;
use crate::random::Random;

/// Bytes of a slot.
pub(super) const PAGE: usize = 4096;
/// Pages that a life has in each region.
const MANY: usize = 8;
/// Lives that have parts of their own: what one has asked for may be done after its end.
const LIVES: usize = 5 * 4;
/// Slots of a region: a cell, and for each of those a slot of bytes and some of pages.
pub(super) const SLOTS: usize = 1 + LIVES * (1 + MANY);
/// How much longer an operation may take than its time, in nanoseconds: until whoever sleeps looks at the clock again.
const GRACE_NS: u64 = 5_000_000;

/// What a host knows of its part of another's region.
#[derive(Debug)]
struct Part {
    bytes: Vec<u8>,
    /// Something may have been written there, or may be later.
    is_wild: bool,
    /// Of each slot what page lies there; 0 for none.
    pages: [u64; MANY],
    are_wild: [bool; MANY],
}

/// What a host has for its operations.
#[derive(Debug)]
pub(super) struct Own {
    from: Region,
    into: Region,
    number: u64,
    parts: HashMap<Name, Part>,
}

impl Own {
    pub(super) fn new() -> Self {
        let region = || Region::new(MANY * PAGE, u32::try_from(PAGE).unwrap_or_default());
        Self { from: region(), into: region(), number: 0, parts: HashMap::new() }
    }
}

fn slot_bytes(region: &Region, slot: usize) -> Vec<u8> {
    region.lock()[slot * PAGE..(slot + 1) * PAGE].to_vec()
}

#[expect(clippy::cast_possible_truncation, reason = "below a small number")]
const fn below(random: &mut Random, end: usize) -> usize {
    random.below(end as u64) as usize
}

impl Life {
    /// Does something to the region of another life: whether it was done.
    pub(super) fn operate(
        &mut self,
        random: &mut Random,
        (to, channel, owned): (Name, Channel, &Owned),
        timeout: Duration,
        watch: &Shared,
    ) -> Result<bool, String> {
        let me = self.name;
        let Some(life) = usize::try_from(me.1 - 1).ok().filter(|life| *life < 4) else { return Ok(true) };
        let life = 5 * life + me.0;
        let row = 1 + life;
        let begun = now();
        let kind = random.below(5);
        let Own { from, into, number, parts } = &mut self.own;
        let fresh = || Part { bytes: vec![0; PAGE], is_wild: false, pages: [0; MANY], are_wild: [false; MANY] };
        let part = parts.entry(to).or_insert_with(fresh);
        *number += 1;
        let seed = ((me.0 as u64) << 56) | (me.1 << 40) | (*number << 8);
        let done = match kind {
            0 => {
                let sum = self.service.with(|node| Remote::new(node, channel, owned.key, timeout).fetch_add(0, 1));
                let mut watch = watch.lock();
                let its = watch.sums.entry(to).or_default();
                match sum {
                    Ok(before) if !its.before.insert(before) => {
                        return Err(format!("{me:?} and somebody else have both found {before} in the cell of {to:?}"));
                    }
                    Ok(_) => its.done += 1,
                    Err(_) => its.maybe += 1,
                }
                sum.is_ok()
            }
            1 | 2 => {
                let len = 1 + below(random, PAGE / 4);
                let many = 1 + below(random, 3);
                let stride = len + below(random, 64);
                let offset = below(random, PAGE - stride * (many - 1) - len + 1);
                let at = (row * PAGE + offset) as u64;
                let [len32, many32] = [len, many].map(|number| u32::try_from(number).unwrap_or_default());
                let runs: Vec<Extent> = Extent::strided(at, len32, stride as u64, many32).collect();
                let mut bytes = if kind == 1 { pattern(seed, len * many) } else { vec![0; len * many] };
                let outcome = self.service.with(|node| {
                    let mut remote = Remote::new(node, channel, owned.key, timeout);
                    match (kind, many) {
                        (1, 1) => remote.put(at, &bytes),
                        (1, _) => remote.put_list(&runs, &bytes),
                        (_, 1) => remote.get(at, &mut bytes),
                        _ => remote.get_list(&runs, &mut bytes),
                    }
                });
                for run in 0..many {
                    let (there, here) = (offset + run * stride, run * len);
                    let (there, here) = (there..there + len, here..here + len);
                    match (kind, outcome.is_ok()) {
                        (1, _) => part.bytes[there].copy_from_slice(&bytes[here]),
                        (_, true) if !part.is_wild && part.bytes[there] != bytes[here] => {
                            return Err(format!("{me:?} gets other bytes of {to:?} than it has put there"));
                        }
                        _ => {}
                    }
                }
                part.is_wild |= kind == 1 && outcome.is_err();
                outcome.is_ok()
            }
            kind => {
                // Each of these slots at most once.
                let first = below(random, MANY);
                let many = 1 + below(random, MANY);
                let moves: Vec<(usize, usize)> = (0..many).map(|i| (i, (first + i) % MANY)).collect();
                let there = |slot: usize| 1 + LIVES + MANY * life + slot;
                let pair = |a: usize, b: usize| {
                    let [a, b] = [a, b].map(|slot| u32::try_from(slot).unwrap_or_default());
                    (a, b)
                };
                let stores = kind == 3;
                let outcome = if stores {
                    for (i, page) in (0..many).zip(1..) {
                        from.lock()[i * PAGE..(i + 1) * PAGE].copy_from_slice(&pattern(seed + page, PAGE));
                    }
                    let moves: Vec<_> = moves.iter().map(|(i, slot)| pair(*i, there(*slot))).collect();
                    self.service.with(|node| Remote::new(node, channel, owned.key, timeout).store_pages(from, &moves))
                } else {
                    let moves: Vec<_> = moves.iter().map(|(i, slot)| pair(there(*slot), *i)).collect();
                    self.service.with(|node| Remote::new(node, channel, owned.key, timeout).fetch_pages(into, &moves))
                };
                let valid = match &outcome {
                    Ok(()) => vec![Some(true); many],
                    Err(error) => error.valid.clone(),
                };
                for (((i, slot), valid), page) in moves.iter().zip(valid).zip(seed + 1..) {
                    if stores {
                        let lies = slot_bytes(&owned.region, there(*slot)) == pattern(page, PAGE);
                        if !part.are_wild[*slot] && valid.is_some_and(|valid| valid != lies) {
                            return Err(format!(
                                "{me:?} is told that a page of {to:?} lies there: {valid:?}; it: {lies}"
                            ));
                        }
                        match valid {
                            Some(true) => part.pages[*slot] = page,
                            Some(false) => {}
                            None => part.are_wild[*slot] = true,
                        }
                    } else {
                        let Some(valid) = valid else { return Err("nobody knows of a page that was fetched".into()) };
                        let is_known = !part.are_wild[*slot] && part.pages[*slot] > 0;
                        if valid && is_known && slot_bytes(into, *i) != pattern(part.pages[*slot], PAGE) {
                            return Err(format!("{me:?} has fetched another page of {to:?} than it had stored"));
                        }
                    }
                }
                outcome.is_ok()
            }
        };
        let took = now().saturating_since(begun);
        let most = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX).saturating_add(GRACE_NS);
        if took > most {
            return Err(format!("operation {kind} of {me:?} on {to:?} has taken {took} ns of {timeout:?}"));
        }
        Ok(done)
    }
}

/// Whether the cell of an owner holds what was added there.
pub(super) fn check_sum(name: Name, owned: &Owned, done: u64, maybe: u64) -> Result<(), String> {
    let bytes = slot_bytes(&owned.region, 0);
    let sum = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    if (done..=done + maybe).contains(&sum) {
        return Ok(());
    }
    Err(format!("the cell of {name:?} holds {sum}, where {done} were added and perhaps {maybe} more"))
}
