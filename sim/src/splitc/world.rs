//! What happens: nodes that go through their steps, ports that carry one message at a time, and arrivals that wait
//! until a processor looks for them.

use std::collections::{BTreeMap, VecDeque};

use cutthrough_space::Work;

use crate::heap::Heap;
use crate::time::{Span, Time};

use super::parts::{BULK, Machine, SHORT};

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
    /// for, as the window lets them, whenever the processor looks for arrivals. No two of a node have one ticket.
    Get { from: Node, bytes: u64, ticket: Ticket },
    /// Waits until a read has brought all of its bytes.
    Wait { ticket: Ticket },
    /// A letter: a write that the node waits for to which it goes. No two of a node to another have one number.
    Tell { to: Node, bytes: u64, number: u64 },
    /// Waits for a letter.
    Hear { from: Node, number: u64 },
    /// Waits until every request has been answered.
    Sync,
    /// Waits until every node is here: log2 of the nodes rounds of one message each.
    Barrier,
    /// Notes the time, and how long the node has computed by now.
    Clock,
}

/// Names a read of a node.
pub(crate) type Ticket = u32;

/// Where the steps of nodes come from.
pub(crate) trait Course {
    /// What a node does next that has done all that it was told before: at least one step, or none for ever.
    fn next(&mut self, node: Node, now: Time) -> Vec<Step>;
}

/// The steps of each node, known from the beginning.
impl Course for Vec<Vec<Step>> {
    fn next(&mut self, node: Node, _: Time) -> Vec<Step> {
        std::mem::take(&mut self[node])
    }
}

/// What a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Asks for an answer of so many bytes; an answer of none acknowledges. It has a place in the window of its lane.
    Request { answer: u64, lane: usize, what: What },
    /// Gives a place in the window back.
    Answer { lane: usize, what: What },
    /// Says that its sender has reached a round of a barrier.
    Token { round: u32 },
}

/// What a request is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Write,
    Read {
        ticket: Ticket,
    },
    /// Of so many requests.
    Letter {
        number: u64,
        parts: u64,
    },
}

#[derive(Debug, Clone, Copy)]
struct Message {
    from: Node,
    to: Node,
    bytes: u64,
    kind: Kind,
}

/// Asks for so many bytes.
const fn get(bytes: u64, lane: usize, ticket: Ticket) -> Kind {
    Kind::Request { answer: bytes, lane, what: What::Read { ticket } }
}

/// Payload of a barrier's message.
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

impl Went {
    const fn on_if(done: bool) -> Self {
        if done { Self::On } else { Self::Nowhere }
    }
}

#[derive(Debug)]
struct State {
    steps: Vec<Step>,
    at: usize,
    /// Whether no more steps come.
    is_last: bool,
    /// Bytes of the present put that have been sent.
    progress: u64,
    /// Bulk reads that have chunks to ask for: whom, and how many bytes.
    wanted: VecDeque<(Node, u64, Ticket)>,
    /// Reads that have not come yet: how many answers are missing.
    missing: BTreeMap<Ticket, u64>,
    /// Letters of which something has come: how many requests are missing.
    letters: BTreeMap<(Node, u64), u64>,
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
    marks: Vec<Mark>,
    finished: Option<Time>,
}

impl State {
    fn new(nodes: usize) -> Self {
        Self {
            steps: Vec::new(),
            at: 0,
            is_last: false,
            progress: 0,
            wanted: VecDeque::new(),
            missing: BTreeMap::new(),
            letters: BTreeMap::new(),
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
            marks: Vec::new(),
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
    fn next_wanted(&mut self, machine: &Machine) -> Option<(Node, u64, Ticket)> {
        let &(from, left, ticket) = self.wanted.front()?;
        if !self.is_open(from, BULK, machine) {
            return None;
        }
        let part = left.min(machine.chunk_of(BULK));
        self.wanted.pop_front();
        if left > part {
            self.wanted.push_front((from, left - part, ticket));
        }
        Some((from, part, ticket))
    }
}

/// A node has come to a [`Step::Clock`]: when, and how long it had computed by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) at: Time,
    pub(crate) computing: Span,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Run {
    /// Until the last node is done.
    pub(crate) time: Span,
    /// Time in which each node computed.
    pub(crate) computing: Vec<Span>,
    /// The marks of each node.
    pub(crate) marks: Vec<Vec<Mark>>,
    /// Messages that entered the network, and that a processor took in.
    pub(crate) sent: u64,
    pub(crate) handled: u64,
    /// Payload of both.
    pub(crate) sent_bytes: u64,
    pub(crate) handled_bytes: u64,
    /// When the first request had been taken in, and the last.
    pub(crate) first: Option<Time>,
    pub(crate) last: Time,
    /// Nodes that came to the end of their steps, and those that did not.
    pub(crate) finished: usize,
    pub(crate) stuck: Vec<Node>,
    pub(crate) events: u64,
}

struct World<'a, C> {
    machine: Machine,
    course: &'a mut C,
    heap: Heap<Event>,
    nodes: Vec<State>,
    run: Run,
}

/// Lets each node go through its steps.
pub(crate) fn run(machine: &Machine, mut steps: Vec<Vec<Step>>) -> Run {
    let count = steps.len();
    follow(machine, count, &mut steps)
}

/// Lets each of so many nodes go through its steps, which it is told when it has done those before.
pub(crate) fn follow<C: Course>(machine: &Machine, count: usize, course: &mut C) -> Run {
    let nodes: Vec<State> = std::iter::repeat_with(|| State::new(count)).take(count).collect();
    let run = Run {
        time: Span::ZERO,
        computing: Vec::new(),
        marks: Vec::new(),
        sent: 0,
        handled: 0,
        sent_bytes: 0,
        handled_bytes: 0,
        first: None,
        last: Time::START,
        finished: 0,
        stuck: Vec::new(),
        events: 0,
    };
    let mut world = World { machine: *machine, course, heap: Heap::new(), nodes, run };
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
        stuck: (0..count).filter(|node| world.nodes[*node].finished.is_none()).collect(),
        computing: world.nodes.iter().map(|node| node.computing).collect(),
        marks: world.nodes.iter_mut().map(|node| std::mem::take(&mut node.marks)).collect(),
        events: world.heap.taken(),
        ..world.run
    }
}

impl<C: Course> World<'_, C> {
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
            if state.at == state.steps.len() && !state.is_last {
                state.steps = self.course.next(node, self.heap.now());
                (state.at, state.is_last) = (0, state.steps.is_empty());
            }
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
            if let Some((from, bytes, ticket)) = state.next_wanted(&self.machine) {
                let kind = get(bytes, BULK, ticket);
                return self.request(node, BULK, Message { from: node, to: from, bytes: 0, kind });
            }
            let went = match step {
                None => {
                    let now = self.heap.now();
                    state.finished.get_or_insert(now);
                    Went::Nowhere
                }
                Some(Step::Compute(_) | Step::Poll) => Went::On,
                Some(Step::Put { to, bytes }) => self.put(node, to, bytes, What::Write),
                Some(Step::Tell { to, bytes, number }) => {
                    let parts = self.machine.parts(bytes);
                    self.put(node, to, bytes, What::Letter { number, parts })
                }
                Some(Step::Get { from, bytes, ticket }) => self.get(node, from, bytes, ticket),
                Some(Step::Wait { ticket }) => Went::on_if(!state.missing.contains_key(&ticket)),
                Some(Step::Hear { from, number }) => {
                    let all = state.letters.get(&(from, number)) == Some(&0);
                    if all {
                        state.letters.remove(&(from, number));
                    }
                    Went::on_if(all)
                }
                Some(Step::Sync) => Went::on_if(state.has_all()),
                Some(Step::Barrier) => self.barrier(node),
                Some(Step::Clock) => {
                    state.marks.push(Mark { at: self.heap.now(), computing: state.computing });
                    Went::On
                }
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

    /// Sends the next part of a put or a letter, if the window is open.
    fn put(&mut self, node: Node, to: Node, bytes: u64, what: What) -> Went {
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
        let kind = Kind::Request { answer: 0, lane, what };
        self.request(node, lane, Message { from: node, to, bytes: part, kind });
        Went::Busy
    }

    /// Asks for a few bytes, if the window is open; notes that many are wanted.
    fn get(&mut self, node: Node, from: Node, bytes: u64, ticket: Ticket) -> Went {
        let machine = self.machine;
        let state = &mut self.nodes[node];
        state.missing.insert(ticket, machine.parts(bytes));
        if machine.lane(bytes) == BULK {
            state.wanted.push_back((from, bytes, ticket));
            return Went::On;
        }
        if !state.is_open(from, SHORT, &machine) {
            return Went::Nowhere;
        }
        state.advance();
        self.request(node, SHORT, Message { from: node, to: from, bytes: 0, kind: get(bytes, SHORT, ticket) });
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
            Kind::Request { answer: bytes, lane, what } => {
                if let What::Letter { number, parts } = what {
                    *self.nodes[node].letters.entry((message.from, number)).or_insert(parts) -= 1;
                }
                let done = self.heap.now() + span;
                self.run.first = self.run.first.or(Some(done));
                self.run.last = self.run.last.max(done);
                span += self.machine.send_cost(bytes);
                outgoing = Some(Message { from: node, to: message.from, bytes, kind: Kind::Answer { lane, what } });
            }
            Kind::Answer { lane, what } => {
                let state = &mut self.nodes[node];
                state.open[message.from][lane] -= 1;
                if let What::Read { ticket } = what
                    && let Some(missing) = state.missing.get_mut(&ticket)
                {
                    *missing -= 1;
                    if *missing == 0 {
                        state.missing.remove(&ticket);
                    }
                }
            }
            Kind::Token { round } => self.nodes[node].tokens[round as usize] += 1,
        }
        self.occupy(node, span, outgoing);
    }
}
