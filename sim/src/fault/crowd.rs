//! One endpoint with many peers, over a network without faults: what it keeps for each that has spoken and is quiet.

use std::collections::{BTreeSet, VecDeque};

use cutthrough_engine::net::NetEvent;
use cutthrough_engine::net::inbox::ReadyPayload;
use cutthrough_engine::pulse::Policy;
use cutthrough_engine::time::Instant;

use super::address;
use super::calm::{BODY, Node, SILENCE_NS};
use super::memory::{Cargo, Pages};
use super::network::Frame;

/// Nanoseconds of a frame's way.
const WAY_NS: u64 = 10_000;
/// Nanoseconds between two peers' calls.
const CALLS_NS: u64 = 1_000_000;
/// Control messages of each peer before its payload, and the bytes of that.
const WORDS: usize = 40;
const BYTES: usize = 20_000;

/// An endpoint and its peers.
pub struct Crowd {
    /// The endpoint, then the peers.
    nodes: Vec<Node>,
    wire: VecDeque<(u64, Frame)>,
    /// Who does something when, and the same for each.
    wakes: BTreeSet<(u64, usize)>,
    wakes_at: Vec<u64>,
    now: u64,
    answered: usize,
}

impl Crowd {
    /// So many peers have called one after the other; each has sent messages and a payload, and has got that back.
    ///
    /// # Panics
    /// If one of them does not.
    #[must_use]
    pub fn new(peers: usize) -> Self {
        let node = |index| Node::new(index, if index == 0 { peers } else { 1 }, Policy::default(), false);
        let mut crowd = Self {
            nodes: (0..=peers).map(node).collect(),
            wire: VecDeque::new(),
            wakes: BTreeSet::new(),
            wakes_at: vec![u64::MAX; peers + 1],
            now: 1,
            answered: 0,
        };
        for index in 1..=peers {
            let at = Instant::from_nanos(crowd.now);
            crowd.nodes[index].net.call(at, address(0), BODY).expect("room to call");
            crowd.act(index);
            crowd.rest(CALLS_NS);
        }
        assert_eq!(crowd.answered, peers, "each has its payload back");
        crowd
    }

    /// Lets so many nanoseconds pass, in which nobody says anything but what there is to say already.
    pub fn rest(&mut self, nanos: u64) {
        let end = self.now + nanos;
        loop {
            let wake = self.wakes.first().map_or(u64::MAX, |(at, _)| *at);
            if let Some((at, frame)) = self.wire.pop_front_if(|(at, _)| *at <= wake.min(end)) {
                self.now = at.max(self.now);
                let to = frame.to;
                self.nodes[to].queue.push_back(frame);
                self.act(to);
            } else if wake <= end
                && let Some((at, index)) = self.wakes.pop_first()
            {
                self.now = at.max(self.now);
                self.wakes_at[index] = u64::MAX;
                self.act(index);
            } else {
                break;
            }
        }
        self.now = end;
    }

    /// Lets time pass until every channel has been quiet for as long as it takes to be told dead.
    pub fn calm_down(&mut self) {
        self.rest(2 * SILENCE_NS);
    }

    /// Channels of the endpoint.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.nodes.first().map_or(0, |endpoint| endpoint.net.channels())
    }

    /// Takes the endpoint away, with all that it keeps; the peers stay.
    ///
    /// # Panics
    /// If it was taken away before.
    #[must_use]
    pub fn endpoint(&mut self) -> impl Sized + use<> {
        self.nodes.remove(0).net
    }

    /// A node does what there is to do.
    fn act(&mut self, index: usize) {
        let now = self.now;
        let node = &mut self.nodes[index];
        node.receive(Instant::from_nanos(now));
        while let Some(event) = node.net.next_event() {
            self.answered += usize::from(answer(node, index, event));
        }
        node.transmit(now, index, |frame| self.wire.push_back((now + WAY_NS, frame)));
        let next = node.net.timer().map_or(u64::MAX, |timer| timer.as_nanos().max(now + 1));
        let before = std::mem::replace(&mut self.wakes_at[index], next);
        self.wakes.remove(&(before, index));
        if next < u64::MAX {
            self.wakes.insert((next, index));
        }
    }
}

/// What a node says to an event. Whether a peer has its payload back.
fn answer(node: &mut Node, index: usize, event: NetEvent<Pages>) -> bool {
    match event {
        NetEvent::Opened(_) => false,
        NetEvent::Connected(channel) => {
            for _ in 0..WORDS {
                node.net.send(channel, &[7; 64], None).expect("room");
            }
            say(node, channel, vec![9; BYTES]);
            false
        }
        NetEvent::Message(channel, message) => {
            let ReadyPayload::Landed(place, story) = message.payload else { return false };
            let bytes = place.bytes[..story.bytes as usize].to_vec();
            assert_eq!(bytes, [9; BYTES]);
            if index == 0 {
                say(node, channel, bytes);
            }
            index > 0
        }
        other => panic!("without faults: {other:?}"),
    }
}

/// Sends a payload that lies in pages.
fn say(node: &mut Node, channel: usize, bytes: Vec<u8>) {
    let _counts = node.net.memory.cargoes.clone();
    let load = Cargo { bytes, page: 4096, _counts };
    let cargo = cutthrough_engine::net::Cargo { load, token: None, pages: true, cookie: None };
    node.net.send(channel, b"payload", Some(cargo)).expect("room");
}
