//! Many who send to one, over a network without faults: how long it takes, by how many payloads are asked for at a
//! time.
//!
//! Each host has a link of its own to a switch, and all that goes to one host waits at the switch's port to that host.
//! What arrives lies in the host's socket until the host, which does one thing after the other, has received it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::inbox::ReadyPayload;
use cutthrough_engine::net::trains::{TRAIN_BYTES, Trains};
use cutthrough_engine::net::{Net, NetEvent, Settings};
use cutthrough_engine::time::Instant;

use super::guard::Doorkeeper;
use super::memory::{Cargo, Host};
use super::network::Frame;
use super::random::Random;
use super::{Summary, address, node_of, receive};

/// Nanoseconds from a host to the switch, and from there to a host.
const HOP_NS: u64 = 1_000;
/// Bytes in 8 nanoseconds on a link: 25 Gbit/s.
const LINK: u64 = 25;
/// What a call of the kernel costs, and bytes that it copies in a nanosecond.
const CALL_NS: u64 = 2_000;
const COPY: u64 = 5;
/// Bytes that the port of the switch holds at most.
const PORT_BYTES: u64 = 2 << 20;
/// Bytes of a frame's body: those of an MTU of 9,000.
const BODY: u16 = 8_908;
/// Bytes around a frame on a link.
const AROUND: u64 = 66;

/// Messages of one sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// How many messages.
    pub messages: u64,
    /// Bytes of each.
    pub bytes: usize,
    /// Messages that are under way at a time; or, if `every_ns` is not 0, any number.
    pub ahead: u64,
    /// Nanoseconds between two messages, on average; 0 if one follows the other.
    pub every_ns: u64,
}

/// What many send to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// What each of the senders sends.
    pub senders: Vec<Stream>,
    /// Bytes that the receiver's socket holds. A quarter may come unasked, and three eighths are asked for at a time,
    /// as over UDP.
    pub buffer: u64,
    /// Payloads that are asked for at a time.
    pub admitted: usize,
    /// Of all chances.
    pub seed: u64,
}

/// What came of it, in virtual time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Nanoseconds until the last message had arrived.
    pub whole_ns: u64,
    /// Of each message, by the number of its sender: nanoseconds from its sending to its arrival.
    pub took_ns: Vec<(usize, u64)>,
    /// Most bytes that waited at the switch's port to the receiver.
    pub port_bytes: u64,
    /// Most bytes that waited in its socket.
    pub socket_bytes: u64,
    /// Frames for which there was no room there.
    pub dropped: u64,
}

impl Outcome {
    /// Of the messages of these senders, sorted by how long they took: the one at so many per cent.
    #[must_use]
    pub fn percentile(&self, senders: impl Fn(usize) -> bool, per_cent: usize) -> u64 {
        let mut took: Vec<u64> = self.took_ns.iter().filter(|took| senders(took.0)).map(|took| took.1).collect();
        took.sort_unstable();
        took.get(((took.len() * per_cent).div_ceil(100)).saturating_sub(1)).copied().unwrap_or_default()
    }
}

/// What happens at a moment.
#[derive(Debug)]
enum Happens {
    /// A frame reaches the switch, or its host.
    Switch(Frame),
    Host(Frame),
    /// A host looks.
    Look(usize),
}

struct Node {
    net: Net<Host>,
    trains: Trains,
    queue: VecDeque<Frame>,
    queued: u64,
    /// Until when it works on something; when its link, and the port to it, are free.
    busy: u64,
    link: u64,
    port: u64,
    looks: u64,
    /// The channel to the receiver, the messages sent, when, and when the next is due.
    channel: Option<usize>,
    sent: u64,
    since: VecDeque<u64>,
    due: u64,
}

struct World {
    case: Case,
    random: Random,
    nodes: Vec<Node>,
    /// What happens when: by a number that tells events of one moment apart.
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    events: std::collections::BTreeMap<u64, Happens>,
    count: u64,
    outcome: Outcome,
    /// The sender of each of the receiver's channels.
    senders: Vec<usize>,
    batch: Batch,
}

/// Runs a case to its end.
///
/// # Panics
/// If it does not come to its end.
#[must_use]
pub fn run(case: &Case) -> Outcome {
    let mut world = World::new(case.clone());
    let all: u64 = case.senders.iter().map(|stream| stream.messages).sum();
    while (world.outcome.took_ns.len() as u64) < all {
        let Reverse((now, number)) = world.heap.pop().expect("something happens until all has arrived");
        let Some(event) = world.events.remove(&number) else { continue };
        world.happens(now, event);
    }
    world.outcome
}

impl World {
    fn new(case: Case) -> Self {
        let mut random = Random::new(case.seed);
        let count = case.senders.len() + 1;
        let node = |number: usize| {
            let settings = Settings {
                slots: 1024,
                unasked: case.buffer / 4,
                granted: u32::try_from(case.buffer / 8 * 3).unwrap_or(u32::MAX).min(4 << 20),
                silence_ns: 60_000_000_000,
                deadline_ns: 60_000_000_000,
                channels: count + 1,
                body: BODY,
                life: random.next() | 1,
                process: 0,
                user: 0,
            };
            let guard = Doorkeeper::new(Random::new(random.next()));
            let mut net = Net::new(settings, Host::new(1 << 20, false, usize::MAX), Box::new(guard));
            net.admit(case.admitted);
            net.listen(number == 0);
            let channel = (number > 0).then(|| net.call(Instant::from_nanos(1), address(0), BODY)).flatten();
            Node {
                net,
                trains: Trains::default(),
                queue: VecDeque::new(),
                queued: 0,
                busy: 0,
                link: 0,
                port: 0,
                looks: u64::MAX,
                channel,
                sent: 0,
                since: VecDeque::new(),
                due: 0,
            }
        };
        let nodes = (0..count).map(node).collect();
        let mut world = Self {
            random: Random::new(case.seed),
            case,
            nodes,
            heap: BinaryHeap::new(),
            events: std::collections::BTreeMap::new(),
            count: 0,
            outcome: Outcome::default(),
            senders: Vec::new(),
            batch: Batch::default(),
        };
        (1..count).for_each(|sender| world.look(sender, 1));
        world
    }

    fn at(&mut self, when: u64, what: Happens) {
        self.count += 1;
        self.heap.push(Reverse((when, self.count)));
        self.events.insert(self.count, what);
    }

    /// A host looks then, or when it has done what it is at.
    fn look(&mut self, index: usize, when: u64) {
        let node = &mut self.nodes[index];
        let when = when.max(node.busy);
        if when < node.looks {
            node.looks = when;
            self.at(when, Happens::Look(index));
        }
    }

    fn happens(&mut self, now: u64, what: Happens) {
        match what {
            Happens::Switch(frame) => {
                let node = &mut self.nodes[frame.to];
                let waiting = node.port.saturating_sub(now) * LINK / 8;
                if waiting > PORT_BYTES {
                    self.outcome.dropped += 1;
                    return;
                }
                node.port = node.port.max(now) + (frame.bytes.len() as u64 + AROUND) * 8 / LINK;
                if frame.to == 0 {
                    self.outcome.port_bytes = self.outcome.port_bytes.max(waiting);
                }
                let when = node.port + HOP_NS;
                self.at(when, Happens::Host(frame));
            }
            Happens::Host(frame) => {
                let (index, bytes) = (frame.to, frame.bytes.len() as u64);
                let node = &mut self.nodes[index];
                if node.queued + bytes > self.case.buffer {
                    self.outcome.dropped += 1;
                    return;
                }
                node.queued += bytes;
                if index == 0 {
                    self.outcome.socket_bytes = self.outcome.socket_bytes.max(node.queued);
                }
                node.queue.push_back(frame);
                self.look(index, now);
            }
            Happens::Look(index) if self.nodes[index].looks == now => {
                self.nodes[index].looks = u64::MAX;
                self.poll(index, now);
            }
            Happens::Look(_) => {}
        }
    }

    /// A host receives one train, does what follows from it, and sends what there is to send.
    fn poll(&mut self, index: usize, now: u64) {
        let at = Instant::from_nanos(now);
        let node = &mut self.nodes[index];
        let mut done = now;
        if !node.queue.is_empty() {
            let trains = (&mut node.net, &mut node.trains, &mut receive::Given::default());
            let received = receive::receive(trains, at, &mut node.queue, None, &mut Summary::default());
            received.expect("room for a train");
            let left: u64 = node.queue.iter().map(|frame| frame.bytes.len() as u64).sum();
            done += CALL_NS + (node.queued - left) / COPY;
            node.queued = left;
        }
        if node.queue.is_empty() {
            node.net.looked(at);
        } else {
            node.net.grant(at);
        }
        node.net.tick(at);
        self.take(index, now);
        if index > 0 {
            self.send(index, now);
        }
        let node = &mut self.nodes[index];
        let mut leaving = Vec::new();
        while let Some((to, bytes)) = node.net.greeting() {
            leaving.push((done, Frame { from: index, to: node_of(to), way: 0, bytes }));
        }
        while let Some((channel, to)) = node.net.batch(at, &mut self.batch, TRAIN_BYTES) {
            done += CALL_NS + self.batch.bytes() as u64 / COPY;
            node.net.took(self.batch.bytes(), CALL_NS + self.batch.bytes() as u64 / COPY);
            for bytes in receive::frames(&node.net, channel, &self.batch) {
                leaving.push((done, Frame { from: index, to: node_of(to), way: 0, bytes }));
            }
        }
        node.busy = done;
        for (when, frame) in leaving {
            let node = &mut self.nodes[index];
            node.link = node.link.max(when) + (frame.bytes.len() as u64 + AROUND) * 8 / LINK;
            let when = node.link + HOP_NS;
            self.at(when, Happens::Switch(frame));
        }
        let node = &self.nodes[index];
        let timer = node.net.timer().map(|timer| timer.as_nanos().max(now + 1));
        let due = (node.due > now).then_some(node.due);
        let more = (!node.queue.is_empty()).then_some(done);
        if let Some(when) = timer.into_iter().chain(due).chain(more).min() {
            self.look(index, when);
        }
    }

    /// What has happened is taken as it comes.
    fn take(&mut self, index: usize, now: u64) {
        while let Some(event) = self.nodes[index].net.next_event() {
            match event {
                NetEvent::Opened(channel) => {
                    let (from, ..) = self.nodes[index].net.peer(channel).expect("a channel that has just been opened");
                    self.senders.resize(self.senders.len().max(channel + 1), 0);
                    self.senders[channel] = node_of(from);
                }
                NetEvent::Message(channel, message) => {
                    let ReadyPayload::Landed(_, story) = message.payload else { panic!("{:?}", message.payload) };
                    let sender = self.senders[channel];
                    assert_eq!(story.bytes as usize, self.case.senders[sender - 1].bytes);
                    let since = self.nodes[sender].since.pop_front().expect("a message that was sent");
                    self.outcome.took_ns.push((sender - 1, now - since));
                    self.outcome.whole_ns = now;
                    self.look(sender, now + 2 * HOP_NS);
                }
                NetEvent::Connected(_) | NetEvent::Completed(..) => {}
                NetEvent::Failed(..) | NetEvent::Closed(..) => panic!("{event:?}"),
            }
        }
    }

    /// A sender sends what is due.
    fn send(&mut self, index: usize, now: u64) {
        let stream = self.case.senders[index - 1];
        let node = &mut self.nodes[index];
        let Some(channel) = node.channel else { return };
        while node.sent < stream.messages && now >= node.due {
            if stream.every_ns == 0 && node.since.len() as u64 >= stream.ahead {
                return;
            }
            let _counts = node.net.memory.cargoes.clone();
            let load = Cargo { bytes: vec![0; stream.bytes], page: 1 << 20, _counts };
            let cargo = cutthrough_engine::net::Cargo { load, token: None, pages: true, cookie: None };
            if node.net.send(channel, &[], Some(cargo)).is_err() {
                // The call has not been answered yet, or too many are under way.
                return;
            }
            node.sent += 1;
            node.since.push_back(now);
            if stream.every_ns > 0 {
                node.due = now + 1 + self.random.below(2 * stream.every_ns);
            }
        }
    }
}
