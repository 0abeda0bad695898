//! A batch of pages between random slots of two regions, and the same pages as raw messages and as plain copies.

use std::time::{Duration, Instant};

use cutthrough::SendError;
use cutthrough::rma::{Key, Region, Remote};

use super::ground::{self, Side};
use super::station::REGION;
use super::turns::{Common, Figure, Turns};
use crate::args::Memory;
use crate::failure::Failure;
use crate::perf::answer::Request;
use crate::perf::ask;
use crate::perf::ask::{Answer, Job, LAST, MORE};
use crate::perf::case::Test;
use crate::perf::lane::{Lane, LaneError, PATIENCE, on_core};
use crate::perf::others::Others;
use crate::perf::room::{filled, possible};
use crate::stats::median;

/// Pages of a batch, unless `--count` or a short `--seconds` says fewer, and bytes of each.
const PAGES: u32 = 20_000;
/// A batch of fewer would be one of nothing: they are under way together.
const FEWEST: u32 = 200;
const BYTES: u32 = 16 << 10;
/// Rounds of each way.
const ROUNDS: u32 = 5;

/// Measures batches of pages, and prints a row for each way.
///
/// # Errors
/// If the other end goes away, or there is no memory.
pub fn run(turns: &mut Turns<'_>) -> Result<(), Failure> {
    if turns.way.is_narrow() {
        return Err(ground::two_endpoints("pages"));
    }
    let count = pages(turns.options);
    let case = ground::raw(&turns.raw, Test::Bw, u64::from(BYTES), Memory::Private)?;
    let mut random = fastrand::Rng::with_seed(case.seed);
    let [mut from, mut to] = [(0..count).collect::<Vec<u32>>(), (0..count).collect()];
    random.shuffle(&mut from);
    random.shuffle(&mut to);
    let moves: Vec<(u32, u32)> = from.into_iter().zip(to).collect();
    let bytes = count as usize * BYTES as usize;
    possible(bytes)?;
    let here = Region::new(bytes, BYTES);
    here.lock().fill(0xa5);
    let mut lane = turns.peer.lane(&case.setup())?;
    let mut side = turns.ground().station(u64::from(BYTES))?;
    let key = turns.ground().attended(&mut side, |side| {
        let reply = side.call(REGION, &[count, BYTES])?;
        Ok(Key(u64::from(reply.word(0)) | u64::from(reply.word(1)) << 32))
    })?;
    let mut aside = filled(bytes, 0xa5)?;
    let [mut raw, mut copy, mut store, mut fetch] = [const { Vec::new() }; 4];
    let others = Others::watch(&mut turns.peer)?;
    for _ in 0..ROUNDS {
        turns.peer.begin(&mut lane, Job::Slots { bytes: BYTES, count })?;
        raw.push(on_core(turns.core, || send(&mut lane, &here, &moves))?);
        copy.push(on_core(turns.core, || Ok(copied(&here, &mut aside, &moves)))?);
        store.push(
            turns
                .ground()
                .attended(&mut side, |side| batch(side, key, &moves, |remote| remote.store_pages(&here, &moves)))?,
        );
        fetch.push(
            turns
                .ground()
                .attended(&mut side, |side| batch(side, key, &moves, |remote| remote.fetch_pages(&here, &moves)))?,
        );
    }
    turns.peer.close(lane)?;
    turns.ground().close(side)?;
    let others = others.share(&mut turns.peer)?;
    let limit = median(&raw);
    for (what, times, held) in [
        ("pages_store", &store, true),
        ("pages_fetch", &fetch, true),
        ("pages_raw", &raw, false),
        ("pages_copy", &copy, false),
    ] {
        let ratios: Vec<f64> = times.iter().zip(&raw).map(|(own, raw)| own / raw).collect();
        let held = limit.zip(median(&ratios)).filter(|_| held);
        turns.print(&Figure {
            what,
            size: u64::from(BYTES),
            count: u64::from(count) * u64::from(ROUNDS),
            quantiles: None,
            per_s: None,
            copies: None,
            held: held.map(|(ns, ratio)| ("pages_raw".to_owned(), ns, ratio)),
            mean_ns: median(times),
            others,
        })?;
    }
    Ok(())
}

/// Pages of a batch. All ways and rounds of so many take some seconds together, and more where a machine is busy: who
/// asks for less than one gets as much less of them.
fn pages(options: &Common) -> u32 {
    match (options.count, options.seconds) {
        (Some(count), _) => u32::try_from(count).map_or(PAGES, |count| count.min(PAGES)),
        (None, Some(seconds)) => {
            let milliseconds = Duration::from_secs_f64(seconds).as_millis();
            u32::try_from(u128::from(PAGES) * milliseconds / 1000).unwrap_or(PAGES).clamp(FEWEST, PAGES)
        }
        (None, None) => PAGES,
    }
}

/// Nanoseconds of a page since `begun`.
fn each(begun: Instant, moves: &[(u32, u32)]) -> f64 {
    begun.elapsed().as_nanos() as f64 / moves.len() as f64
}

/// One call for all pages.
fn batch(
    side: &mut Side,
    key: Key,
    moves: &[(u32, u32)],
    run: impl FnOnce(&mut Remote<'_>) -> Result<(), cutthrough::rma::MoveError>,
) -> Result<f64, LaneError> {
    let mut remote = Remote::new(&mut side.node, side.channel, key, PATIENCE);
    let begun = Instant::now();
    run(&mut remote)?;
    Ok(each(begun, moves))
}

/// A message for each page, until the other end has read the last of them.
fn send(lane: &mut Lane, here: &Region, moves: &[(u32, u32)]) -> Result<f64, LaneError> {
    let bytes = here.lock();
    let begun = Instant::now();
    for (index, (from, to)) in moves.iter().enumerate() {
        let op = if index + 1 == moves.len() { LAST } else { MORE };
        let start = *from as usize * BYTES as usize;
        let page = &bytes[start..start + BYTES as usize];
        let control = Request::plain(op, *to);
        loop {
            let message = lane.endpoint.outgoing(lane.channel).map(|message| message.write(&control));
            match message.and_then(|message| message.attach_copy(page).send()) {
                Ok(_) => break,
                // The other end is behind. It says nothing before the last page.
                Err(SendError::Full) => {
                    if lane.look()?.is_some() {
                        return Err(LaneError::Unexpected);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    match ask::read(lane.hear()?.control()) {
        Some(Answer::Taken(count)) if count == moves.len() as u64 => Ok(each(begun, moves)),
        _ => Err(LaneError::Unexpected),
    }
}

/// Plain copies within this process.
fn copied(here: &Region, aside: &mut [u8], moves: &[(u32, u32)]) -> f64 {
    let bytes = here.lock();
    let begun = Instant::now();
    for (from, to) in moves {
        let [from, to] = [from, to].map(|slot| *slot as usize * BYTES as usize);
        aside[to..to + BYTES as usize].copy_from_slice(&bytes[from..from + BYTES as usize]);
    }
    std::hint::black_box(&mut *aside);
    each(begun, moves)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_measurement_moves_fewer_pages() {
        let pages = |seconds, count| pages(&Common { seconds, count, ..Common::default() });
        assert_eq!(pages(None, None), 20_000);
        assert_eq!([1.0, 60.0].map(|seconds| pages(Some(seconds), None)), [20_000; 2]);
        assert_eq!([0.5, 0.1, 0.0001].map(|seconds| pages(Some(seconds), None)), [10_000, 2_000, 200]);
        assert_eq!([1, 40, 1 << 40].map(|count| pages(None, Some(count))), [1, 40, 20_000]);
    }
}
