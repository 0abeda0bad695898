//! Links of every kind between machines without faults: how the engine's network side fares where ways are long, slow,
//! crowded or uneven, and where that changes.
//!
//! A frame goes by the links of its path, one after the other. In front of each it waits in a queue, unless that is
//! full; it leaves as fast as the link carries, and is at the other end after the link's delay. What has come to a
//! machine lies in its socket until the machine, which does one thing after the other, has received it.

pub mod cases;
mod link;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;

use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::inbox::{Reading, Ready, ReadyPayload};
use cutthrough_engine::net::trains::{TRAIN_BYTES, Trains};
use cutthrough_engine::net::{Net, NetEvent, Settings};
use cutthrough_engine::time::Instant;

use self::link::Going;
pub use self::link::{Link, Passed};
use super::guard::Doorkeeper;
use super::memory::{Cargo, Host, Pages};
use super::network::Frame;
use super::random::Random;
use super::{Summary, address, node_of, receive};

/// What a call of the kernel costs, in nanoseconds, and bytes that it copies in one.
const CALL_NS: u64 = 2_000;
const COPY: u64 = 5;
/// Nanoseconds after which a machine looks again that waits for what was asked for.
const WANTING_NS: u64 = 5_000;

/// A machine.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Bytes that its socket holds. A quarter may come unasked, and three eighths are asked for at a time, as over UDP.
    pub buffer: u64,
    /// Bytes of a frame's body.
    pub body: u16,
    /// Payloads that it asks for at a time.
    pub admitted: usize,
    /// From when to when it stands still, in nanoseconds.
    pub pauses: Vec<(u64, u64)>,
}

impl Default for Machine {
    /// With 4 MiB, for an MTU of 1,500.
    fn default() -> Self {
        Self { buffer: 4 << 20, body: 1_408, admitted: 2, pauses: Vec::new() }
    }
}

/// Messages of one machine to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// From which machine, and to which.
    pub between: (usize, usize),
    /// When it begins, in nanoseconds.
    pub begins: u64,
    /// How many messages.
    pub messages: u64,
    /// Bytes of each.
    pub bytes: usize,
    /// Messages that are under way at a time; or, if `every_ns` is not 0, any number.
    pub ahead: u64,
    /// Nanoseconds between two messages, on average; 0 if one follows the other.
    pub every_ns: u64,
    /// Whether a payload comes from pages, and lands in others; else its receiver reads it into private memory, one
    /// after the other.
    pub pages: bool,
}

impl Flow {
    /// Payloads of 64 KiB without end, of which so many are under way at a time.
    #[must_use]
    pub const fn stream(between: (usize, usize), ahead: u64) -> Self {
        Self { between, begins: 0, messages: u64::MAX, bytes: 64 << 10, ahead, every_ns: 0, pages: true }
    }
}

/// What has become of a flow.
#[derive(Debug, Default)]
struct Course {
    sent: u64,
    due: u64,
    /// When its messages were sent and when they arrived, as they arrived.
    arrived: Vec<(u64, u64)>,
}

#[derive(Debug)]
enum Happens {
    /// A frame is at the end of a link, or at the beginning of its path.
    Comes(Going),
    /// The first frame of a link's queue has left it.
    Leaves(usize),
    /// A flow of a machine begins.
    Begins(usize),
    /// A machine looks.
    Look(usize),
}

struct Node {
    machine: Machine,
    net: Net<Host>,
    trains: Trains,
    queue: VecDeque<Frame>,
    queued: u64,
    /// Most bytes that have waited in its socket, and frames for which there was no room.
    most: u64,
    dropped: u64,
    /// Until when it works on something, and when it looks next.
    busy: u64,
    looks: u64,
    /// Its channels by their other end, and whether they are open.
    channels: BTreeMap<usize, (usize, bool)>,
    /// Payloads that it reads, one after the other.
    reads: VecDeque<Read>,
}

/// A payload that is read.
struct Read {
    channel: usize,
    message: u64,
    into: Vec<u8>,
    valid: usize,
    /// Of which flow it is, and when it was sent.
    flow: usize,
    sent: u64,
}

/// The links between two machines, in one direction: frames take each of these ways in turn.
#[derive(Debug)]
struct Path {
    ways: Vec<Rc<[usize]>>,
    turn: usize,
}

/// Machines, links and flows, in virtual time.
pub struct World {
    now: u64,
    random: Random,
    nodes: Vec<Node>,
    links: Vec<Link>,
    paths: BTreeMap<(usize, usize), Path>,
    flows: Vec<(Flow, Course)>,
    /// What happens when: by a number that tells events of one moment apart.
    events: BTreeMap<(u64, u64), Happens>,
    count: u64,
    batch: Batch,
}

impl fmt::Debug for World {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("World").field("now", &self.now).field("links", &self.links).finish_non_exhaustive()
    }
}

impl World {
    /// Machines and links, of which [`World::path`] says where they lead; `seed` is of all chances.
    #[must_use]
    pub fn new(machines: Vec<Machine>, links: Vec<Link>, flows: &[Flow], seed: u64) -> Self {
        let mut random = Random::new(seed);
        let channels = machines.len() + 1;
        let nodes = machines.into_iter().map(|machine| Node::new(machine, channels, &mut random)).collect();
        let mut world = Self {
            now: 1,
            random,
            nodes,
            links,
            paths: BTreeMap::new(),
            flows: flows.iter().map(|flow| (*flow, Course::default())).collect(),
            events: BTreeMap::new(),
            count: 0,
            batch: Batch::default(),
        };
        flows.iter().for_each(|flow| world.at(flow.begins.max(1), Happens::Begins(flow.between.0)));
        world
    }

    /// Two machines and a link each way; the first sends to the second.
    #[must_use]
    pub fn pair(machine: Machine, [there, back]: [Link; 2], flows: &[Flow]) -> Self {
        let mut world = Self::new(vec![machine.clone(), machine], vec![there, back], flows, 1);
        world.path((0, 1), &[&[0]]);
        world.path((1, 0), &[&[1]]);
        world
    }

    /// By which links frames go from one machine to another: by each of the ways in turn.
    pub fn path(&mut self, between: (usize, usize), ways: &[&[usize]]) {
        let ways = ways.iter().map(|way| Rc::from(*way)).collect();
        self.paths.insert(between, Path { ways, turn: 0 });
    }

    /// Lets happen what happens until then.
    ///
    /// # Panics
    /// If a channel ends, a message is not what was sent, or there is no path.
    pub fn run_until(&mut self, until: u64) {
        while let Some(event) = self.events.first_entry().filter(|event| event.key().0 <= until) {
            self.now = event.key().0;
            let what = event.remove();
            self.happens(self.now, what);
        }
        self.now = until;
    }

    /// Lets happen what happens until all messages have arrived: when the last one has.
    ///
    /// # Panics
    /// As [`World::run_until`], and if nothing happens any more before.
    pub fn run_out(&mut self) -> u64 {
        while self.flows.iter().any(|(flow, course)| (course.arrived.len() as u64) < flow.messages) {
            let ((now, _), what) = self.events.pop_first().expect("something happens until all has arrived");
            self.now = now;
            self.happens(now, what);
        }
        self.now
    }

    /// When the messages of a flow were sent, and when they arrived.
    #[must_use]
    pub fn arrived(&self, flow: usize) -> &[(u64, u64)] {
        &self.flows[flow].1.arrived
    }

    /// Bits that a flow has carried in each microsecond, Mbit/s, from one time to another.
    #[must_use]
    pub fn rate(&self, flow: usize, from: u64, until: u64) -> f64 {
        let arrived = self.arrived(flow).iter().filter(|(_, at)| (from..until).contains(at)).count();
        (arrived * self.flows[flow].0.bytes) as f64 * 8e3 / (until - from) as f64
    }

    /// How long messages of a flow took that were sent between these times: the one at so many per cent, in
    /// nanoseconds; 0 if there was none.
    #[must_use]
    pub fn percentile(&self, flow: usize, from: u64, until: u64, per_cent: usize) -> u64 {
        let sent = self.arrived(flow).iter().filter(|(sent, _)| (from..until).contains(sent));
        let mut took: Vec<u64> = sent.map(|(sent, at)| at - sent).collect();
        took.sort_unstable();
        took.get((took.len() * per_cent).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default()
    }

    /// When the next message of a flow arrives after this time: nanoseconds from then on.
    #[must_use]
    pub fn first_after(&self, flow: usize, time: u64) -> Option<u64> {
        self.arrived(flow).iter().find_map(|(_, at)| at.checked_sub(time).filter(|after| *after > 0))
    }

    /// What a link has seen until now.
    #[must_use]
    pub fn link(&self, link: usize) -> Passed {
        self.links[link].passed(self.now)
    }

    /// Most bytes that have waited in a machine's socket, and frames for which there was no room.
    #[must_use]
    pub fn socket(&self, machine: usize) -> (u64, u64) {
        (self.nodes[machine].most, self.nodes[machine].dropped)
    }

    fn at(&mut self, when: u64, what: Happens) {
        self.count += 1;
        self.events.insert((when, self.count), what);
    }

    /// A machine looks then, or when it has done what it is at.
    fn look(&mut self, index: usize, when: u64) {
        let node = &mut self.nodes[index];
        let when =
            node.machine.pauses.iter().fold(when.max(node.busy), |when, &(from, until)| {
                if (from..until).contains(&when) { until } else { when }
            });
        if when < node.looks {
            node.looks = when;
            self.at(when, Happens::Look(index));
        }
    }

    fn happens(&mut self, now: u64, what: Happens) {
        match what {
            Happens::Comes(Going { frame, path, behind }) if behind == path.len() => self.comes(now, frame),
            Happens::Comes(going) => {
                let (link, draw) = (going.path[going.behind], self.random.next());
                if self.links[link].enters(now, draw, going) {
                    self.goes(now, link);
                }
            }
            Happens::Leaves(link) => {
                let draw = self.random.next();
                if let Some((arrives, going)) = self.links[link].leaves(now, draw) {
                    self.at(arrives, Happens::Comes(going));
                }
                self.goes(now, link);
            }
            Happens::Begins(index) => self.look(index, now),
            Happens::Look(index) if self.nodes[index].looks == now => {
                self.nodes[index].looks = u64::MAX;
                self.poll(index, now);
            }
            Happens::Look(_) => {}
        }
    }

    /// The first frame of a link's queue begins to leave it.
    fn goes(&mut self, now: u64, link: usize) {
        let draw = self.random.next();
        if let Some(leaves) = self.links[link].leaves_at(now, draw) {
            self.at(leaves, Happens::Leaves(link));
        }
    }

    /// A frame has come to a machine.
    fn comes(&mut self, now: u64, frame: Frame) {
        let (index, bytes) = (frame.to, frame.bytes.len() as u64);
        let node = &mut self.nodes[index];
        if node.queued + bytes > node.machine.buffer {
            node.dropped += 1;
            return;
        }
        node.queued += bytes;
        node.most = node.most.max(node.queued);
        node.queue.push_back(frame);
        self.look(index, now);
    }

    /// A machine receives one train, does what follows from it, and sends what there is to send.
    fn poll(&mut self, index: usize, now: u64) {
        let at = Instant::from_nanos(now);
        let node = &mut self.nodes[index];
        let mut done = now;
        if !node.queue.is_empty() {
            let trains = (&mut node.net, &mut node.trains, &mut receive::Given::default());
            let lent = node.reads.front_mut().map(|read| receive::Lent {
                channel: read.channel,
                message: read.message,
                into: &mut read.into,
            });
            let received = receive::receive(trains, at, &mut node.queue, lent, &mut Summary::default());
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
        // Nothing is given up while something lies here that may acknowledge it.
        if node.queue.is_empty() || !node.net.doubts(at) {
            node.net.tick(at);
        }
        self.take(index, now);
        self.read(index, now);
        (0..self.flows.len()).for_each(|flow| self.send(index, flow, now));
        let node = &mut self.nodes[index];
        let mut leaving = Vec::new();
        while let Some((to, bytes)) = node.net.greeting() {
            leaving.push((done, Frame { from: index, to: node_of(to), way: 0, bytes }));
        }
        while let Some((channel, to)) = node.net.batch(at, &mut self.batch, TRAIN_BYTES) {
            let took = CALL_NS + self.batch.bytes() as u64 / COPY;
            done += took;
            node.net.took(self.batch.bytes(), took);
            for bytes in receive::frames(&node.net, channel, &self.batch) {
                leaving.push((done, Frame { from: index, to: node_of(to), way: 0, bytes }));
            }
        }
        node.busy = done;
        let timer = node.net.timer().map(|timer| timer.as_nanos().max(now + 1));
        let more = (!node.queue.is_empty()).then_some(done);
        let wants = node.net.is_wanting().then_some(done + WANTING_NS);
        let mine = self.flows.iter().filter(|(flow, course)| flow.between.0 == index && course.due > now);
        let due = mine.map(|(_, course)| course.due).min();
        for (when, frame) in leaving {
            let path = self.paths.get_mut(&(frame.from, frame.to)).expect("a path between them");
            path.turn += 1;
            let going = Going { path: Rc::clone(&path.ways[path.turn % path.ways.len()]), frame, behind: 0 };
            self.at(when, Happens::Comes(going));
        }
        if let Some(when) = timer.into_iter().chain(due).chain(more).chain(wants).min() {
            self.look(index, when);
        }
    }

    /// What has happened is taken as it comes.
    fn take(&mut self, index: usize, now: u64) {
        while let Some(event) = self.nodes[index].net.next_event() {
            match event {
                NetEvent::Message(channel, message) => self.arrives(index, channel, &message, now),
                NetEvent::Connected(connected) => {
                    let mut mine = self.nodes[index].channels.values_mut();
                    mine.find(|(channel, _)| *channel == connected)
                        .into_iter()
                        .for_each(|(_, is_open)| *is_open = true);
                }
                NetEvent::Opened(_) | NetEvent::Completed(..) => {}
                NetEvent::Failed(..) | NetEvent::Closed(..) => panic!("{event:?}"),
            }
        }
    }

    /// A message has come: it has arrived, or is read from now on.
    fn arrives(&mut self, index: usize, channel: usize, ready: &Ready<Pages>, now: u64) {
        let number = |at: usize| ready.control[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let (flow, sent) = (usize::try_from(number(0)).expect("the number of a flow"), number(8));
        let bytes = self.flows[flow].0.bytes;
        match &ready.payload {
            ReadyPayload::Landed(_, story) => assert_eq!(story.bytes as usize, bytes),
            ReadyPayload::None => assert_eq!(bytes, 0),
            ReadyPayload::Arriving(message, _) => {
                let read = Read { channel, message: *message, into: vec![0; bytes], valid: 0, flow, sent };
                return self.nodes[index].reads.push_back(read);
            }
            other @ ReadyPayload::Refused(..) => panic!("{other:?}"),
        }
        self.has_arrived(flow, sent, now);
    }

    /// A message has arrived. Its sender hears of that at once, for the next one.
    fn has_arrived(&mut self, flow: usize, sent: u64, now: u64) {
        let (flow, course) = &mut self.flows[flow];
        course.arrived.push((sent, now));
        let sender = flow.between.0;
        self.look(sender, now + 1);
    }

    /// A machine reads what has come of the payload that it reads, and goes on to the next one if that is all of it.
    fn read(&mut self, index: usize, now: u64) {
        loop {
            let Node { net, reads, .. } = &mut self.nodes[index];
            let Some(read) = reads.front_mut() else { return };
            let mut reading = Reading { message: read.message, into: &mut read.into };
            let come = net.read(Instant::from_nanos(now), read.channel, &mut reading, read.valid, true);
            let (valid, whole) = come.expect("a channel that does not end");
            read.valid = valid;
            if !whole {
                return;
            }
            net.forget(read.channel, read.message);
            let Read { flow, sent, .. } = reads.pop_front().expect("it was there");
            self.has_arrived(flow, sent, now);
        }
    }

    /// A machine sends what is due of a flow.
    fn send(&mut self, index: usize, number: usize, now: u64) {
        let (flow, course) = &mut self.flows[number];
        let node = &mut self.nodes[index];
        if flow.between.0 != index || now < flow.begins {
            return;
        }
        let to = flow.between.1;
        let body = node.machine.body;
        let call = || (node.net.call(Instant::from_nanos(now), address(to), body).expect("a seat"), false);
        let (channel, true) = *node.channels.entry(to).or_insert_with(call) else { return };
        while course.sent < flow.messages && now >= course.due {
            if flow.every_ns == 0 && course.sent - course.arrived.len() as u64 >= flow.ahead {
                return;
            }
            let control: Vec<u8> = [number as u64, now].iter().flat_map(|word| word.to_le_bytes()).collect();
            let cargo = (flow.bytes > 0).then(|| {
                let load =
                    Cargo { bytes: vec![0; flow.bytes], page: 1 << 20, _counts: node.net.memory.cargoes.clone() };
                cutthrough_engine::net::Cargo { load, token: None, pages: flow.pages, cookie: None }
            });
            if node.net.send(channel, &control, cargo).is_err() {
                // Too many are under way.
                return;
            }
            course.sent += 1;
            if flow.every_ns > 0 {
                course.due = now + 1 + self.random.below(2 * flow.every_ns);
            }
        }
    }
}

impl Node {
    fn new(machine: Machine, channels: usize, random: &mut Random) -> Self {
        let settings = Settings {
            slots: 1024,
            unasked: machine.buffer / 4,
            granted: u32::try_from(machine.buffer / 8 * 3).unwrap_or(u32::MAX).min(4 << 20),
            silence_ns: 60_000_000_000,
            deadline_ns: 60_000_000_000,
            channels,
            body: machine.body,
            life: random.next() | 1,
            process: 0,
            user: 0,
        };
        let guard = Doorkeeper::new(Random::new(random.next()));
        let mut net = Net::new(settings, Host::new(1 << 20, false, usize::MAX), Box::new(guard));
        net.admit(machine.admitted);
        net.listen(true);
        Self {
            machine,
            net,
            trains: Trains::default(),
            queue: VecDeque::new(),
            queued: 0,
            most: 0,
            dropped: 0,
            busy: 0,
            looks: u64::MAX,
            channels: BTreeMap::new(),
            reads: VecDeque::new(),
        }
    }
}
