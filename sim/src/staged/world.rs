//! Hosts with their adapters around one switch, and what happens to them, event by event.

use std::collections::BTreeSet;

use crate::heap::Heap;
use crate::model::flow::Flow;
use crate::time::{Rate, Time};

use super::adapter::{Adapter, Rules};
use super::host::{Host, Op, Program, Ready};
use super::machine::{Machine, Notice};
use super::message::{Incoming, Net};
use super::watch::{Mover, Watch};

/// What happens.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// An adapter's processor begins a turn of its loop; the number tells turns that were put off from valid ones.
    Turn { node: u32, generation: u32 },
    /// A host is done with something, or looks.
    Host { node: u32 },
    /// A control message for this receiver is about to leave.
    Head { to: u32 },
    /// The tail of a message has left the path to this receiver.
    Tail { to: u32 },
}

/// The path from the switch to a receiver. A message holds it from its control message to its tail.
#[derive(Debug, Default)]
struct Path {
    holder: Option<u32>,
    /// Senders by the times since when they wait.
    waiting: BTreeSet<(Time, u32)>,
    /// Slots of the receive ring that are in use.
    slots: u64,
}

/// A host with its adapter and the path to it.
#[derive(Debug)]
struct Node {
    machine: usize,
    host: Host,
    adapter: Adapter,
    path: Path,
}

/// How the firmware's loop goes round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loop {
    /// Turns that cannot find anything are left out.
    Parked,
    /// Every turn is taken: slow, and the oracle for the other.
    Spinning,
}

/// What a host is given at the start.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    /// Which machine it is.
    pub(super) machine: usize,
    /// What its program does.
    pub(super) program: Program,
}

/// How all of them work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    pub(super) rules: Rules,
    pub(super) notice: Notice,
    /// Whether the hosts copy messages on their way to and from adapters.
    pub(super) copies: bool,
    pub(super) turns: Loop,
}

/// Hosts with their adapters around one switch.
#[derive(Debug)]
pub(super) struct World {
    heap: Heap<Event>,
    machines: Vec<Machine>,
    nodes: Vec<Node>,
    turns: Loop,
    pub(super) watch: Watch,
}

impl World {
    /// Puts the hosts in their places; `watch` says what to take note of.
    pub(super) fn new(machines: Vec<Machine>, settings: Vec<Setting>, manner: Manner, watch: Watch) -> Self {
        let node = |Setting { machine, program }: Setting| Node {
            machine,
            host: Host::new(program, manner.notice, manner.copies),
            adapter: Adapter::new(&machines[machine], manner.rules),
            path: Path::default(),
        };
        let nodes: Vec<Node> = settings.into_iter().map(node).collect();
        let mut world = Self { heap: Heap::new(), machines, nodes, turns: manner.turns, watch };
        for node in 0..world.hosts() {
            world.host_chooses(node, false);
            if manner.turns == Loop::Spinning {
                world.plan(node);
            }
        }
        world
    }

    /// Lets time go on until `goal` messages have been taken by their hosts: whether they have.
    pub(super) fn run(&mut self, goal: u64) -> bool {
        while self.watch.taken() < goal {
            match self.heap.take() {
                Some(Event::Turn { node, generation }) => self.turn(node, generation),
                Some(Event::Host { node }) => self.host(node),
                Some(Event::Head { to }) => self.grant(to),
                Some(Event::Tail { to }) => {
                    self.nodes[to as usize].path.holder = None;
                    self.grant(to);
                }
                None => return false,
            }
        }
        true
    }

    /// Events handled so far.
    pub(super) fn events(&self) -> u64 {
        self.heap.taken()
    }

    /// The most events that have waited at a time.
    pub(super) fn longest_queue(&self) -> usize {
        self.heap.longest()
    }

    fn hosts(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)
    }

    /// A turn of the firmware's loop: what is over is settled, then the loop looks.
    fn turn(&mut self, node: u32, generation: u32) {
        let now = self.heap.now();
        let Node { adapter, machine, .. } = &mut self.nodes[node as usize];
        if adapter.generation != generation {
            return;
        }
        adapter.turn_at = None;
        if let Some((done, number)) = adapter.settle_read(now) {
            self.watch.moved(Mover::HostTx, node, number, done.started, done.ended, done.len);
        }
        let number = adapter.out.front().map_or(0, |head| head.number);
        if let Some((len, started, ended)) = adapter.settle_net(now) {
            self.watch.moved(Mover::NetTx, node, number, started, ended, len);
        }
        let drained = adapter.settle_write(now);
        let asked = adapter.turn(now, &self.machines[*machine]);
        if let Some((done, number)) = drained {
            self.watch.moved(Mover::HostRcv, node, number, done.started, done.ended, done.len);
            self.give_room(node);
        }
        if let Some(begin) = asked.control {
            let to = self.nodes[node as usize].adapter.out[0].to;
            self.nodes[to as usize].path.waiting.insert((begin, node));
            self.heap.at(begin, Event::Head { to });
        }
        if let Some((begin, len)) = asked.pulse {
            self.pulse(node, begin, len);
        }
        if asked.left > 0 {
            self.free_slots(node, asked.left);
        }
        for ready in asked.ready {
            self.ready(node, ready);
        }
        self.plan(node);
    }

    /// Puts the next turn of `node` on the heap, unless one that is as soon is there already.
    fn plan(&mut self, node: u32) {
        let Node { adapter, machine, .. } = &mut self.nodes[node as usize];
        let at = match self.turns {
            Loop::Parked => adapter.plan(&self.machines[*machine]),
            Loop::Spinning => Some(adapter.anchor()),
        };
        if let Some(at) = at.filter(|&at| adapter.turn_at.is_none_or(|planned| at < planned)) {
            adapter.turn_at = Some(at);
            adapter.generation = adapter.generation.wrapping_add(1);
            self.heap.at(at, Event::Turn { node, generation: adapter.generation });
        }
    }

    /// A host is done with something, or looks: what it did has its effect, and it goes on.
    fn host(&mut self, node: u32) {
        let now = self.heap.now();
        let Node { host, adapter, path, .. } = &mut self.nodes[node as usize];
        match host.busy {
            Some((op, until)) if until == now => {
                host.busy = None;
                match op {
                    Op::Post { to, len } => {
                        let number = adapter.post(now, to, len);
                        self.watch.posted(node, number, now);
                        self.plan(node);
                    }
                    Op::Take(Ready { number, from, len, .. }) => {
                        path.slots -= 1;
                        host.taken(from);
                        self.watch.taken_by(node, from, number, len, now);
                        self.grant(node);
                    }
                }
                self.host_chooses(node, false);
            }
            None if host.wake == Some(now) => {
                host.wake = None;
                self.host_chooses(node, true);
            }
            _ => {}
        }
    }

    fn host_chooses(&mut self, node: u32, woken: bool) {
        let (now, hosts) = (self.heap.now(), self.hosts());
        let Node { host, adapter, machine, .. } = &mut self.nodes[node as usize];
        let machine = &self.machines[*machine];
        let share = host.choose(now, node, hosts, machine, woken);
        adapter.bus.set_share(now, share);
        let next = match host.busy {
            Some((op, until)) => {
                if let Op::Post { .. } = op {
                    self.watch.begun(now);
                }
                Some(until)
            }
            None => host.expects(machine).and_then(|at| host.tell(now, at, machine, host.notice())),
        };
        if let Some(at) = next {
            self.heap.at(at, Event::Host { node });
        }
        // The bus may have become faster for a transfer under way.
        self.plan(node);
    }

    /// A message lies ready for the host of `node`.
    fn ready(&mut self, node: u32, ready: Ready) {
        let now = self.heap.now();
        let Node { host, machine, .. } = &mut self.nodes[node as usize];
        self.watch.ready(ready.from, ready.number, ready.at);
        host.ready.push_back(ready);
        let machine = &self.machines[*machine];
        if let Some(at) = host.expects(machine).and_then(|at| host.tell(now, at, machine, host.notice())) {
            self.heap.at(at, Event::Host { node });
        }
    }

    /// Slots of the send ring have become free.
    fn free_slots(&mut self, node: u32, slots: u64) {
        let now = self.heap.now();
        let Node { host, adapter, machine, .. } = &mut self.nodes[node as usize];
        let machine = &self.machines[*machine];
        let waited = host.slots == machine.sram.slots;
        host.slots -= slots;
        if waited && let Some(at) = host.tell(now, adapter.anchor(), machine, Notice::Poll) {
            self.heap.at(at, Event::Host { node });
        }
    }

    /// Bytes per second between two hosts: the slower of their links.
    fn rate(&self, from: u32, to: u32) -> Rate {
        let rate = |node: u32| self.machines[self.nodes[node as usize].machine].link.rate;
        rate(from).min(rate(to))
    }

    /// Gives the path to receiver `to` to the sender that has waited longest, if it is free and a slot is.
    fn grant(&mut self, to: u32) {
        let now = self.heap.now();
        let slots = self.machines[self.nodes[to as usize].machine].sram.slots;
        let path = &mut self.nodes[to as usize].path;
        if path.holder.is_some() || path.slots == slots {
            return;
        }
        // Those that asked at the same time are served by their numbers, in whatever order they are handled.
        let Some(&(begin, from)) = path.waiting.first().filter(|(begin, _)| *begin <= now) else {
            return;
        };
        path.waiting.remove(&(begin, from));
        path.holder = Some(from);
        path.slots += 1;
        let rate = self.rate(from, to);
        let sender = &mut self.nodes[from as usize];
        let machine = &self.machines[sender.machine];
        let (Net::Blocked, Some(head)) = (sender.adapter.net, sender.adapter.out.front()) else {
            debug_assert!(false, "only a blocked control message waits for a path");
            return;
        };
        let flow = Flow::new(now, 0, machine.control, rate);
        sender.adapter.net = Net::Control { flow };
        let (number, len, delay) = (head.number, head.len, machine.delay(machine.control));
        let control_at = flow.end() + delay;
        self.watch.moved(Mover::NetRcv, to, number, flow.begun() + delay, control_at, machine.control);
        let message = Incoming::new(number, from, len, control_at);
        if len == 0 {
            self.heap.at(flow.end(), Event::Tail { to });
        }
        let receiver = &mut self.nodes[to as usize];
        receiver.adapter.expect(message, &self.machines[receiver.machine]);
        self.plan(from);
        self.plan(to);
    }

    /// The first message of `from` sends a pulse of `len` bytes from `begin` on, as far as the receiver has room.
    fn pulse(&mut self, from: u32, begin: Time, len: u64) {
        let head = &self.nodes[from as usize].adapter.out[0];
        let (to, sent) = (head.to, head.sent);
        let receiver = &self.nodes[to as usize];
        let memory = self.machines[receiver.machine].sram.recv;
        let granted = len.min(memory - receiver.adapter.coming_taken);
        let rate = self.rate(from, to);
        let flow = Flow::new(begin, sent, sent + granted, rate);
        let delay = self.machines[self.nodes[from as usize].machine].delay(len);
        self.nodes[from as usize].adapter.net = Net::Payload { flow, started: begin, want: sent + len, delay };
        self.arrive(to, granted, Some(Flow::new(begin + delay, sent, sent + granted, rate)));
        self.watch_tail(from, to);
        self.plan(to);
    }

    /// The receiver `to` has made room: a pulse that waits for it goes on.
    fn give_room(&mut self, to: u32) {
        let now = self.heap.now();
        let receiver = &self.nodes[to as usize];
        let room = self.machines[receiver.machine].sram.recv - receiver.adapter.coming_taken;
        let Some(from) = receiver.path.holder else {
            return;
        };
        let Net::Payload { flow, want, delay, .. } = &mut self.nodes[from as usize].adapter.net else {
            return;
        };
        let more = room.min(*want - flow.limit());
        if more == 0 {
            return;
        }
        let stopped = flow.extend(now, more);
        let again = stopped.then(|| flow.later(*delay));
        self.arrive(to, more, again);
        self.watch_tail(from, to);
        self.plan(from);
    }

    /// `more` bytes of the message that holds the path are on their way to `to`, in a new flow or behind the last one.
    fn arrive(&mut self, to: u32, more: u64, flow: Option<Flow>) {
        let now = self.heap.now();
        let adapter = &mut self.nodes[to as usize].adapter;
        adapter.coming_taken += more;
        if let Some(message) = adapter.coming.back_mut() {
            message.reserved += more;
            match flow {
                Some(flow) => message.arrivals.push(now, flow),
                None => message.arrivals.extend(more),
            }
        }
    }

    /// Once it is known when a pulse will have left: it is seen to arrive, and the last one of a message gives back the
    /// path.
    fn watch_tail(&mut self, from: u32, to: u32) {
        let adapter = &self.nodes[from as usize].adapter;
        let (Net::Payload { flow, started, want, delay }, Some(head)) = (adapter.net, adapter.out.front()) else {
            return;
        };
        if flow.limit() < want {
            return;
        }
        self.watch.moved(Mover::NetRcv, to, head.number, started + delay, flow.end() + delay, want - head.sent);
        if want == head.len {
            self.heap.at(flow.end(), Event::Tail { to });
        }
    }
}
