//! Batches as they leave: of whatever there is to send, or, while the sink is busy, of what fills a whole train.

use core::net::SocketAddr;

use super::batch::Batch;
use super::memory::Memory;
use super::pulses::Worth;
use super::ways::Most;
use super::{Net, State};
use crate::pulse::Policy;
use crate::time::Instant;

/// Nanoseconds for which what fills no batch waits for others to do so.
const WAITS_NS: u64 = 20_000;

impl<M: Memory> Net<M> {
    /// Fills `batch`, of up to `most` bytes, with frames of one channel that has something to send: the channel, and
    /// where they go. `None` if there is nothing to send.
    pub fn batch(&mut self, now: Instant, batch: &mut Batch, most: usize) -> Option<(usize, SocketAddr)> {
        self.fill(now, batch, most, false)
    }

    /// As [`Net::batch`], but only of a channel that can fill a batch with parts of messages, or has waited for long.
    /// What does not is left to wait for company.
    pub fn train(&mut self, now: Instant, batch: &mut Batch, most: usize) -> Option<(usize, SocketAddr)> {
        self.fill(now, batch, most, true)
    }

    /// Whether any channel can fill a batch of `most` bytes, or has waited for long.
    pub fn has_train(&mut self, now: Instant, most: usize) -> bool {
        self.full(now, most).is_some()
    }

    fn fill(&mut self, now: Instant, batch: &mut Batch, most: usize, whole: bool) -> Option<(usize, SocketAddr)> {
        loop {
            while let Some(index) = self.next_at_work(now, most, whole) {
                let Some(State::Open(channel)) = self.seats.get_mut(index).map(|seat| &mut seat.state) else {
                    continue;
                };
                (channel.listed, channel.waits_since) = (false, None);
                let to = channel.peer.address;
                batch.clear();
                if !channel.fill_alone(batch, now, &mut self.tally) {
                    self.fill_whole(index, batch, (now, most, whole));
                }
                self.touch(index);
                if !batch.is_empty() {
                    return Some((index, to));
                }
            }
            if self.changed.is_empty() {
                return None;
            }
            self.settle(now);
        }
    }

    /// Fills a batch with whatever a channel has to send.
    fn fill_whole(&mut self, index: usize, batch: &mut Batch, (now, most, whole): (Instant, usize, bool)) {
        self.heed(index);
        let bounds = (&self.most_bytes(most), self.worth.as_ref());
        if let Some(State::Open(channel)) = self.seats.get_mut(index).map(|seat| &mut seat.state) {
            channel.fill(batch, bounds, (now, whole), &mut self.tally);
        }
    }

    /// The next channel that has something to send; with `whole`, enough to fill a batch.
    fn next_at_work(&mut self, now: Instant, most: usize, whole: bool) -> Option<usize> {
        if !whole {
            return self.work.pop_front();
        }
        self.full(now, most).and_then(|at| self.work.remove(at))
    }

    /// Where the first channel is listed that can fill a batch, or has waited for long: a stream to one peer would keep
    /// all others waiting else.
    fn full(&mut self, now: Instant, most: usize) -> Option<usize> {
        let most = self.most_bytes(most);
        (0..self.work.len()).find(|&at| {
            let seat = self.work.get(at).and_then(|&index| self.seats.get_mut(index));
            let Some(State::Open(channel)) = seat.map(|seat| &mut seat.state) else { return false };
            channel.fills(&most, now) || now.saturating_since(*channel.waits_since.get_or_insert(now)) >= WAITS_NS
        })
    }

    /// Bytes of a batch at most, for each way.
    fn most_bytes(&self, most: usize) -> Most {
        self.most.map(|way| way.min(most))
    }

    /// Says how batches of the first way are divided; before that, they are not.
    pub fn divide(&mut self, policy: Policy) {
        self.worth = Worth::new(policy);
    }

    /// It took `ns` nanoseconds to make and to send a batch of the first way.
    pub fn took(&mut self, bytes: usize, ns: u64) {
        if let Some(worth) = &mut self.worth {
            worth.observe(bytes as u64, ns);
        }
    }

    /// The last batch of this channel was made in a way that is being compared with another: how long it is under way
    /// says little of what such batches cost as a rule.
    pub fn says_little(&mut self, index: usize) {
        if let Some(State::Open(channel)) = self.seats.get_mut(index).map(|seat| &mut seat.state) {
            channel.ways.iter_mut().for_each(|ways| ways.says_little());
        }
    }
}
