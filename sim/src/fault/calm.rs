//! An endpoint for networks without faults.

use std::collections::VecDeque;
use std::sync::Arc;

use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::trains::{TRAIN_BYTES, Trains};
use cutthrough_engine::net::{Net, Settings};
use cutthrough_engine::pulse::Policy;
use cutthrough_engine::time::Instant;

use super::guard::Doorkeeper;
use super::memory::Host;
use super::network::Frame;
use super::options::Locks;
use super::random::Random;
use super::{Summary, node_of, receive};

/// Bytes of a frame's body.
pub(super) const BODY: u16 = 1408;
/// Nanoseconds that a batch takes.
const BATCH_NS: u64 = 2_000;
/// After how many nanoseconds a peer of which nothing is heard is dead.
pub(super) const SILENCE_NS: u64 = 1_000_000_000;

/// An endpoint, what has come for it and was not received yet, and what it sends.
pub(super) struct Node {
    pub(super) net: Net<Host>,
    trains: Trains,
    pub(super) queue: VecDeque<Frame>,
    batch: Batch,
}

impl Node {
    /// Endpoint `index`, with room for so many channels; others may call the first one.
    pub(super) fn new(index: usize, channels: usize, policy: Policy, sealed: bool) -> Self {
        let settings = Settings {
            slots: 64,
            unasked: 64_000,
            granted: 256_000,
            silence_ns: SILENCE_NS,
            deadline_ns: 10_000_000_000,
            channels,
            body: BODY,
            life: index as u64 * 2 + 1,
            process: 0,
            user: 0,
        };
        let mut guard = Doorkeeper::new(Random::new(index as u64));
        if sealed {
            guard = guard.with_keys(index, Locks::default(), &Arc::default());
        }
        let mut net = Net::new(settings, Host::new(4096, true, usize::MAX), Box::new(guard));
        net.listen(index == 0);
        net.divide(policy);
        Self { net, trains: Trains::default(), queue: VecDeque::new(), batch: Batch::default() }
    }

    /// Takes in what has come, and does what is due.
    pub(super) fn receive(&mut self, at: Instant) {
        while !self.queue.is_empty() {
            let trains = (&mut self.net, &mut self.trains, &mut receive::Given::default());
            let received = receive::receive(trains, at, &mut self.queue, None, &mut Summary::default());
            received.expect("room for a train");
        }
        self.net.looked(at);
        self.net.tick(at);
    }

    /// Sends all that there is to send.
    pub(super) fn transmit(&mut self, now: u64, index: usize, mut leaves: impl FnMut(Frame)) {
        while let Some((to, bytes)) = self.net.greeting() {
            leaves(Frame { from: index, to: node_of(to), way: 0, bytes });
        }
        while let Some((channel, to)) = self.net.batch(Instant::from_nanos(now), &mut self.batch, TRAIN_BYTES) {
            self.net.took(self.batch.bytes(), BATCH_NS);
            for bytes in receive::frames(&self.net, channel, &self.batch) {
                leaves(Frame { from: index, to: node_of(to), way: 0, bytes });
            }
        }
    }
}
