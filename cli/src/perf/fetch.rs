//! `perf fetch`: from the request for a page until the page is there.

use std::ops::Range;
use std::time::Instant;

use super::answer::{Request, place};
use super::ask::{Job, LAST, MORE};
use super::cargo::Tally;
use super::case::{Case, Slice};
use super::lane::{Lane, LaneError, on_core};
use super::peer::Peer;
use super::room::{NoRoom, filled};
use crate::args::Memory;
use crate::clock::{Length, Pace, Phase};
use crate::failure::Failure;
use crate::stats::{Samples, nanoseconds};

/// Bytes of the region whose pages are asked for in random order, or one page if that is more: they stay in a cache, so
/// that the fetch is measured and not the memory.
const REGION_BYTES: u32 = 1 << 20;

/// How often each page is asked for before the other end begins anew.
const ROUNDS: u32 = 64;

/// What even a short page takes of a pool.
const LEAST_BYTES: u32 = 4 << 10;

/// Pages of the region that pages of so many bytes are fetched from. All of them together are a small part of a pool:
/// by reference the next stock is filled while the last page of the one before is still on its way back.
#[must_use]
pub fn pages_of(bytes: u32) -> u32 {
    (REGION_BYTES / bytes.max(LEAST_BYTES)).max(1)
}

/// Measures fetches of random pages of a region of the other end.
///
/// # Errors
/// If the other end goes away.
pub fn measure(peer: &mut Peer, lane: &mut Lane, core: usize, case: &Case, length: Length) -> Result<Slice, Failure> {
    let count = pages_of(case.shape.bytes);
    let mut fetcher = Fetcher::new(case, count, length)?;
    let mut random = fastrand::Rng::with_seed(case.seed);
    while fetcher.pace.phase() != Phase::Over {
        let pages: Vec<u32> = (0..ROUNDS).flat_map(|_| shuffled(0..count, &mut random)).collect();
        peer.begin(lane, Job::Pages { shape: case.shape, count })?;
        on_core(core, || fetcher.fetch(lane, &pages))?;
    }
    let count = fetcher.samples.quantiles(1.0).map_or(0, |quantiles| quantiles.count);
    Ok(Slice { samples: Some(fetcher.samples), count, msgs_per_s: None, tally: fetcher.tally })
}

/// Fetches pages of one region of the other end into a region of our own.
struct Fetcher {
    memory: Memory,
    page_bytes: usize,
    /// Where each page has its place, if it is private memory.
    region: Vec<u8>,
    samples: Samples,
    pace: Pace,
    tally: Tally,
}

impl Fetcher {
    fn new(case: &Case, count: u32, length: Length) -> Result<Self, NoRoom> {
        let page_bytes = case.shape.bytes as usize;
        let private = case.shape.memory == Memory::Private;
        Ok(Self {
            memory: case.shape.memory,
            page_bytes,
            region: filled(if private { page_bytes * count as usize } else { 0 }, 0xa5)?,
            samples: Samples::new(),
            pace: Pace::new(length, Instant::now()),
            tally: Tally::default(),
        })
    }

    /// Fetches these pages one after the other, and records how long each took; fewer of them if that is enough.
    ///
    /// The clock is read, and the sample stored, while the next request travels; only after the last page there is
    /// none.
    fn fetch(&mut self, lane: &mut Lane, pages: &[u32]) -> Result<(), LaneError> {
        let mut last: Option<Instant> = None;
        for (index, &page) in pages.iter().enumerate() {
            let is_last = index + 1 == pages.len() || self.pace.phase() == Phase::Over;
            self.ask(lane, if is_last { LAST } else { MORE }, page)?;
            last = self.record(last);
            self.take(lane, page)?;
            if is_last {
                break;
            }
        }
        self.record(last);
        Ok(())
    }

    /// Records the time since the last request, and returns the time now.
    #[inline]
    fn record(&mut self, last: Option<Instant>) -> Option<Instant> {
        let now = Instant::now();
        if let Some(last) = last
            && self.pace.tick(now, 1) == Phase::Measure
        {
            self.samples.record(nanoseconds(now - last));
        }
        Some(now)
    }

    /// Asks for a page.
    #[inline]
    fn ask(&self, lane: &mut Lane, op: u8, page: u32) -> Result<(), LaneError> {
        if self.memory == Memory::Pool {
            let token = place(lane, self.page_bytes)?;
            lane.tell(&Request::to(token, op, page))
        } else {
            lane.tell(&Request::plain(op, page))
        }
    }

    /// Takes the page that comes next, which is `page`. A private one is read into its place.
    #[inline]
    fn take(&mut self, lane: &mut Lane, page: u32) -> Result<(), LaneError> {
        let mut message = lane.hear()?;
        if message.control() != page.to_le_bytes() || message.payload_len() != self.page_bytes {
            return Err(LaneError::Unexpected);
        }
        let receipt = if self.memory == Memory::Private {
            let begin = page as usize * self.page_bytes;
            lane.endpoint.read(&mut message, &mut self.region[begin..begin + self.page_bytes])?
        } else {
            message.receipt()
        };
        self.tally.read(&receipt);
        lane.endpoint.release(message);
        Ok(())
    }
}

/// Pages of a range in random order.
fn shuffled(pages: Range<u32>, random: &mut fastrand::Rng) -> Vec<u32> {
    let mut pages: Vec<u32> = pages.collect();
    random.shuffle(&mut pages);
    pages
}
