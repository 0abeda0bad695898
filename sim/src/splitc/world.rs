//! What happens: nodes that go through their steps, ports that carry one message at a time, and arrivals that wait
//! until a processor looks for them.

use std::collections::VecDeque;

use crate::heap::Heap;
use crate::time::{Span, Time};

use super::parts::{BULK, Machine, SHORT, Work};

/// Number of a node, from 0.
pub(crate) type Node = usize;

/// What a node does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Operations on the node's own memory. The processor looks for no arrivals until it is done.
    Compute(Work),
    /// Takes in what has come.
    Poll,
    /// Split-phase write: the step is over when the last request has been sent.
    Put { to: Node, bytes: u64 },
    /// Split-phase read. A short one is over when its request has been sent; a bulk one at once: its chunks are asked
    /// for, as the window lets them, whenever the processor looks for arrivals.
    Get { from: Node, bytes: u64 },
    /// Waits until every request has been answered.
    Sync,
    /// Waits until every node is here: log2 of the nodes rounds of one message each, which can carry a sum as well.
    Barrier,
}

/// What a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Asks for an answer of so many bytes; an answer of none acknowledges. It has a place in the window of its lane.
    Request { answer: u64, lane: usize },
    /// Gives a place in the window back.
    Answer { lane: usize },
    /// Says that its sender has reached a round of a barrier.
    Token { round: u32 },
}

#[derive(Debug, Clone, Copy)]
struct Message {
    from: Node,
    to: Node,
    bytes: u64,
    kind: Kind,
}

/// Asks for so many bytes.
const fn get(bytes: u64, lane: usize) -> Kind {
    Kind::Request { answer: bytes, lane }
}

/// Payload of a barrier's message: one sum.
const TOKEN: u64 = 8;

#[derive(Debug, Clone, Copy)]
enum Event {
    /// The processor is done with what it did.
    Ready(Node),
    /// The first byte is at the receiver's port.
    Head(Message),
    /// The last byte is there.
    Arrived(Message),
}

/// Whether a step came to its end, keeps the processor, or cannot go on until something arrives.
enum Went {
    On,
    Busy,
    Nowhere,
}

#[derive(Debug)]
struct State {
    steps: Vec<Step>,
    at: usize,
    /// Bytes of the present put that have been sent.
    progress: u64,
    /// Bulk reads that have chunks to ask for: whom, and how many bytes.
    wanted: VecDeque<(Node, u64)>,
    /// Arrivals that nobody has looked at.
    inbox: VecDeque<Message>,
    /// What goes out once the processor is done.
    outgoing: Option<Message>,
    is_idle: bool,
    /// Requests without an answer, to each node: short ones and bulk ones.
    open: Vec<[u64; 2]>,
    /// Round of the present barrier, whether its message is out, and messages that came for each.
    round: u32,
    has_told: bool,
    tokens: Vec<u64>,
    out_free: Time,
    in_free: Time,
    computing: Span,
    finished: Option<Time>,
}

impl State {
    fn new(steps: Vec<Step>, nodes: usize) -> Self {
        Self {
            steps,
            at: 0,
            progress: 0,
            wanted: VecDeque::new(),
            inbox: VecDeque::new(),
            outgoing: None,
            is_idle: false,
            open: vec![[0; 2]; nodes],
            round: 0,
            has_told: false,
            tokens: vec![0; usize::BITS as usize],
            out_free: Time::START,
            in_free: Time::START,
            computing: Span::ZERO,
            finished: None,
        }
    }

    fn advance(&mut self) {
        self.at += 1;
        self.progress = 0;
    }

    fn is_open(&self, peer: Node, lane: usize, machine: &Machine) -> bool {
        self.open[peer][lane] < machine.window[lane]
    }

    /// Whether nothing is under way or wanted.
    fn has_all(&self) -> bool {
        self.wanted.is_empty() && self.open.iter().all(|open| *open == [0; 2])
    }

    /// The next chunk of the oldest bulk read that is not asked for in full, if the window is open.
    fn next_wanted(&mut self, machine: &Machine) -> Option<(Node, u64)> {
        let &(from, left) = self.wanted.front()?;
        if !self.is_open(from, BULK, machine) {
            return None;
        }
        let part = left.min(machine.chunk_of(BULK));
        self.wanted.pop_front();
        if left > part {
            self.wanted.push_front((from, left - part));
        }
        Some((from, part))
    }
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Run {
    /// Until the last node is done.
    pub(crate) time: Span,
    /// Time in which each node computed.
    pub(crate) computing: Vec<Span>,
    /// Messages that entered the network, and that a processor took in.
    pub(crate) sent: u64,
    pub(crate) handled: u64,
    /// Payload of both.
    pub(crate) sent_bytes: u64,
    pub(crate) handled_bytes: u64,
    /// When the first request had been taken in, and the last.
    pub(crate) first: Option<Time>,
    pub(crate) last: Time,
    /// Nodes that came to the end of their steps.
    pub(crate) finished: usize,
    pub(crate) events: u64,
}

impl Run {
    /// Mean time that a node computed.
    pub(crate) fn mean_computing(&self) -> Span {
        let sum: Span = self.computing.iter().copied().sum();
        Span::from_ps(sum.as_ps() / self.computing.len().max(1) as u64)
    }
}

struct World {
    machine: Machine,
    heap: Heap<Event>,
    nodes: Vec<State>,
    run: Run,
}

/// Lets each node go through its steps.
pub(crate) fn run(machine: &Machine, steps: Vec<Vec<Step>>) -> Run {
    let count = steps.len();
    let nodes: Vec<State> = steps.into_iter().map(|steps| State::new(steps, count)).collect();
    let run = Run {
        time: Span::ZERO,
        computing: Vec::new(),
        sent: 0,
        handled: 0,
        sent_bytes: 0,
        handled_bytes: 0,
        first: None,
        last: Time::START,
        finished: 0,
        events: 0,
    };
    let mut world = World { machine: *machine, heap: Heap::new(), nodes, run };
    for node in 0..count {
        world.heap.at(Time::START, Event::Ready(node));
    }
    while let Some(event) = world.heap.take() {
        world.happens(event);
    }
    let finished = world.nodes.iter().filter_map(|node| node.finished);
    Run {
        time: finished.clone().max().unwrap_or_default() - Time::START,
        finished: finished.count(),
        computing: world.nodes.iter().map(|node| node.computing).collect(),
        events: world.heap.taken(),
        ..world.run
    }
}

impl World {
    fn happens(&mut self, event: Event) {
        match event {
            Event::Ready(node) => {
                if let Some(message) = self.nodes[node].outgoing.take() {
                    self.launch(message);
                }
                self.turn(node);
            }
            Event::Head(message) => {
                let port = &mut self.nodes[message.to].in_free;
                *port = (*port).max(self.heap.now()) + self.machine.on_port(message.bytes);
                let at = *port;
                self.heap.at(at, Event::Arrived(message));
            }
            Event::Arrived(message) => {
                let node = &mut self.nodes[message.to];
                node.inbox.push_back(message);
                if std::mem::take(&mut node.is_idle) {
                    self.turn(message.to);
                }
            }
        }
    }

    /// A message enters the network through its sender's port, which may be at work on an earlier one. Its head
    /// travels on while its tail still leaves.
    fn launch(&mut self, message: Message) {
        self.run.sent += 1;
        self.run.sent_bytes += message.bytes;
        let port = &mut self.nodes[message.from].out_free;
        let start = (*port).max(self.heap.now());
        *port = start + self.machine.on_port(message.bytes);
        self.heap.at(start + self.machine.travel(message.bytes), Event::Head(message));
    }

    /// The processor of `node` has nothing to do: it goes on until it has, or until it must wait.
    fn turn(&mut self, node: Node) {
        loop {
            let state = &mut self.nodes[node];
            let step = state.steps.get(state.at).copied();
            if let Some(Step::Compute(work)) = step {
                let span = self.machine.time_of(work);
                state.computing += span;
                state.advance();
                return self.occupy(node, span, None);
            }
            if let Some(message) = state.inbox.pop_front() {
                return self.handle(node, message);
            }
            if let Some((from, bytes)) = state.next_wanted(&self.machine) {
                return self.request(node, BULK, Message { from: node, to: from, bytes: 0, kind: get(bytes, BULK) });
            }
            let went = match step {
                None => {
                    let now = self.heap.now();
                    state.finished.get_or_insert(now);
                    Went::Nowhere
                }
                Some(Step::Compute(_) | Step::Poll) => Went::On,
                Some(Step::Put { to, bytes }) => self.put(node, to, bytes),
                Some(Step::Get { from, bytes }) => self.get(node, from, bytes),
                Some(Step::Sync) if state.has_all() => Went::On,
                Some(Step::Sync) => Went::Nowhere,
                Some(Step::Barrier) => self.barrier(node),
            };
            match went {
                Went::On => self.nodes[node].advance(),
                Went::Busy => return,
                Went::Nowhere => {
                    self.nodes[node].is_idle = true;
                    return;
                }
            }
        }
    }

    /// The processor is busy for `span`; then `outgoing` leaves.
    fn occupy(&mut self, node: Node, span: Span, outgoing: Option<Message>) {
        self.nodes[node].outgoing = outgoing;
        self.heap.after(span, Event::Ready(node));
    }

    /// A request leaves, and takes a place in the window.
    fn request(&mut self, node: Node, lane: usize, message: Message) {
        self.nodes[node].open[message.to][lane] += 1;
        self.occupy(node, self.machine.send_cost(message.bytes), Some(message));
    }

    /// Sends the next part of a put, if the window is open.
    fn put(&mut self, node: Node, to: Node, bytes: u64) -> Went {
        let machine = self.machine;
        let lane = machine.lane(bytes);
        let state = &mut self.nodes[node];
        if !state.is_open(to, lane, &machine) {
            return Went::Nowhere;
        }
        let part = (bytes - state.progress).min(machine.chunk_of(lane));
        state.progress += part;
        if state.progress == bytes {
            state.advance();
        }
        let kind = Kind::Request { answer: 0, lane };
        self.request(node, lane, Message { from: node, to, bytes: part, kind });
        Went::Busy
    }

    /// Asks for a few bytes, if the window is open; notes that many are wanted.
    fn get(&mut self, node: Node, from: Node, bytes: u64) -> Went {
        let machine = self.machine;
        let state = &mut self.nodes[node];
        if machine.lane(bytes) == BULK {
            state.wanted.push_back((from, bytes));
            return Went::On;
        }
        if !state.is_open(from, SHORT, &machine) {
            return Went::Nowhere;
        }
        state.advance();
        self.request(node, SHORT, Message { from: node, to: from, bytes: 0, kind: get(bytes, SHORT) });
        Went::Busy
    }

    /// One round of a barrier after the other: tell the node that is 2^round on, hear from the one that is as far back.
    fn barrier(&mut self, node: Node) -> Went {
        let nodes = self.nodes.len();
        let state = &mut self.nodes[node];
        loop {
            let Some(far) = 1usize.checked_shl(state.round).filter(|far| *far < nodes) else {
                state.round = 0;
                return Went::On;
            };
            if !state.has_told {
                state.has_told = true;
                let kind = Kind::Token { round: state.round };
                let message = Message { from: node, to: (node + far) % nodes, bytes: TOKEN, kind };
                let cost = self.machine.send_cost(TOKEN);
                self.occupy(node, cost, Some(message));
                return Went::Busy;
            }
            let tokens = &mut state.tokens[state.round as usize];
            if *tokens == 0 {
                return Went::Nowhere;
            }
            *tokens -= 1;
            state.round += 1;
            state.has_told = false;
        }
    }

    /// The processor takes a message in, and answers a request.
    fn handle(&mut self, node: Node, message: Message) {
        self.run.handled += 1;
        self.run.handled_bytes += message.bytes;
        let mut span = self.machine.handle_cost(message.bytes);
        let mut outgoing = None;
        match message.kind {
            Kind::Request { answer: bytes, lane } => {
                let done = self.heap.now() + span;
                self.run.first = self.run.first.or(Some(done));
                self.run.last = self.run.last.max(done);
                span += self.machine.send_cost(bytes);
                outgoing = Some(Message { from: node, to: message.from, bytes, kind: Kind::Answer { lane } });
            }
            Kind::Answer { lane } => self.nodes[node].open[message.from][lane] -= 1,
            Kind::Token { round } => self.nodes[node].tokens[round as usize] += 1,
        }
        self.occupy(node, span, outgoing);
    }
}
