//! Runs of landing pages that are posted, for whatever comes and names no place; and taken back.

use cutthrough_engine::net::memory::Place as _;
use cutthrough_segment::page::Page;

use super::door::Udp;
use super::memory::{Spot, Store};
use crate::clock;
use crate::shm::link::CloseReason;

/// Most runs that may be posted on a channel.
const POSTED: usize = 4096;

/// A run that was posted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Posted {
    first: u32,
    count: u32,
    /// Whether it is not posted again when its payload is released.
    recalled: bool,
}

impl Posted {
    fn of(page: &Page) -> Self {
        let (first, count) = page.run();
        Self { first, count, recalled: false }
    }
}

impl Store {
    /// Posts a run of landing pages of so many bytes, rounded up to whole pages.
    pub(super) fn post(&mut self, bytes: usize) -> bool {
        let whole = bytes.max(1).next_multiple_of(self.page_bytes());
        if self.unused.is_empty() && self.posted.len() >= POSTED {
            return false;
        }
        let Some(run) = self.landing(whole) else { return false };
        let id = self.unused.pop().unwrap_or_else(|| {
            self.posted.push(None);
            u16::try_from(self.posted.len() - 1).unwrap_or(u16::MAX)
        });
        self.posted[usize::from(id)] = Some(Posted::of(&run));
        self.free.push_back(Spot::Posted(vec![(0, id, run)]));
        true
    }

    /// Runs posted and not filled.
    pub(super) fn waiting(&self) -> u64 {
        self.free.len() as u64
    }

    /// Landing pages of runs that are posted, or will be again.
    pub(super) fn pages_posted_again(&self) -> u64 {
        self.posted.iter().flatten().filter(|run| !run.recalled).map(|run| u64::from(run.count)).sum()
    }

    /// Takes back what is posted and waits; what has been filled, or is being filled, is not posted again.
    fn recall(&mut self) {
        self.post_no_more();
        for spot in self.free.drain(..) {
            let Spot::Posted(runs) = spot else { continue };
            for (_, id, run) in runs {
                self.posted[usize::from(id)] = None;
                self.unused.push(id);
                // Dropped, its pages are free.
                drop(run);
            }
        }
        self.tidy();
    }

    /// Nothing that is posted is posted again once its payload is released.
    fn post_no_more(&mut self) {
        self.posted.iter_mut().flatten().for_each(|run| run.recalled = true);
    }

    /// Posts a run again whose payload was released, unless it was recalled. Whether landing pages came back.
    pub(super) fn repost(&mut self, id: u16) -> bool {
        let (Some(place), Some((landing, _))) = (self.posted.get_mut(usize::from(id)), &mut self.landing) else {
            return false;
        };
        if let Some(run) = place.take_if(|run| run.recalled) {
            landing.give(run.first, run.count);
            self.unused.push(id);
            return true;
        }
        let Some(run) = place else { return false };
        landing.give(run.first, run.count);
        // As a rule the same pages: those given back last are taken first.
        let Some(page) = landing.take(run.count as usize * self.page_bytes as usize) else { return false };
        *run = Posted::of(&page);
        self.free.push_back(Spot::Posted(vec![(0, id, page)]));
        true
    }

    /// Posted runs for a payload of so many bytes, if there are enough.
    pub(super) fn take_posted(&mut self, bytes: usize) -> Option<Spot> {
        if self.free.front().is_some_and(|run| run.len() >= bytes) {
            return self.free.pop_front();
        }
        if self.free.is_empty() || self.free.iter().map(Spot::len).sum::<usize>() < bytes {
            return None;
        }
        let (mut runs, mut have) = (Vec::new(), 0);
        while have < bytes {
            let Some(Spot::Posted(next)) = self.free.pop_front() else { break };
            for (_, id, run) in next {
                let begin = have;
                have += run.len();
                runs.push((begin, id, run));
            }
        }
        Some(Spot::Posted(runs))
    }
}

impl Udp {
    /// Takes back what is posted on a channel: how many runs are still out, since frames may land there at this moment.
    ///
    /// # Errors
    /// Why the channel has ended.
    pub fn recall(&self, index: usize) -> Result<u32, CloseReason> {
        let mut core = self.enter();
        let Some(held) = core.net.memory.get(index).map(|store| store.held) else {
            return Err(Self::closed(&core, index));
        };
        let settled = !held || core.settle();
        let Some(store) = core.net.memory.get(index) else { return Err(Self::closed(&core, index)) };
        if !settled {
            store.post_no_more();
            return Ok(u32::try_from(store.waiting()).unwrap_or(u32::MAX));
        }
        store.recall();
        core.net.memory_came_back(clock::now());
        Ok(0)
    }
}
