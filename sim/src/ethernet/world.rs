//! Hosts, their adapters, and the switch between them: what happens next, and to whom.
//!
//! ```text
//!  process > stack > driver > ring > bus > adapter > link > switch
//!                                                             |
//!  process < stack < driver < ring < bus < adapter < link < port
//! ```
//!
//! Links have flow control: a frame leaves only if the next place has room for it, so none is lost. All links have the
//! same rate, so a switch may forward a frame whose end it does not have yet.

use std::collections::{BTreeMap, VecDeque};

use super::connection::Connection;
use super::cpu::{Appointment, Cost, Cpu, Level};
use super::parts::Parts;
use super::random::Random;
use super::receiver::{Control, Guessing, Receiver};
use super::stack::Method;
use super::wire::{Bus, Frame, Port, Sender, Way};
use crate::heap::Heap;
use crate::time::{Span, Time};

/// What happens.
#[derive(Debug)]
pub(crate) enum Event {
    /// The job of this ticket is done on a host's processor.
    Processor(usize, u64),
    /// A host's adapter is ready to move a frame over the bus.
    Mover(usize, Way),
    /// A transfer over a host's bus is over.
    Bus(usize),
    /// A frame has left a host.
    Uplink(usize),
    /// A frame is ready at a port of the switch.
    Switched(Frame),
    /// A frame has arrived at a host.
    Downlink(usize),
    /// A connection begins to send, or a process to ask for its next page.
    Begin(usize),
}

/// A segment that is ready to be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub connection: usize,
    pub bytes: u64,
    /// Whether the processor has copied it before.
    pub cached: bool,
    pub last: bool,
}

/// What a frame is to the stack.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Up {
    /// A segment, or the datagram that the driver has put together.
    Segment(Segment),
    /// A fragment; the last one to come completes a segment, which the stack copies together. Whether the fragments
    /// have been copied before is said beside it.
    Fragment(Option<(Segment, bool)>),
    Ack(usize, u64),
    Request(usize),
}

/// What is done once the processor has spent the time for it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Then {
    /// The handler has been entered: look for frames.
    Handle,
    /// The driver has done with a frame.
    Handled(Option<Up>),
    /// The stack has done with it.
    Risen(Up),
    /// The process has sent a segment or datagram of so many bytes.
    Sent(usize, u64),
    /// A small frame is ready.
    Post(Frame),
    /// The reading process is awake.
    Awake(usize),
    /// It has read a segment.
    Read(Segment),
}

/// A host with its adapter.
#[derive(Debug)]
pub(crate) struct Host {
    pub method: Method,
    pub cpu: Cpu<Then>,
    pub bus: Bus,
    pub sender: Sender,
    pub receiver: Receiver,
    /// Fragments that the stack (or a copying driver) holds: how many of which segment.
    pub held: BTreeMap<(usize, u64), usize>,
    /// Bytes of the admitted burst that have not come yet.
    pub burst: u64,
    /// Bursts that were asked for, by connection.
    pub asked: BTreeMap<usize, u64>,
    /// Frames of pages that came, and those of them that needed no copy.
    pub page_frames: u64,
    pub placed: u64,
}

/// A set of hosts around a switch.
#[derive(Debug)]
pub(crate) struct World<'p> {
    pub parts: &'p Parts,
    pub heap: Heap<Event>,
    pub hosts: Vec<Host>,
    pub ports: Vec<Port>,
    pub connections: Vec<Connection>,
    /// Connections by the host that sends.
    pub outgoing: Vec<Vec<usize>>,
    /// What each host's fetching process does next: after how long, and over which connection.
    pub plans: Vec<VecDeque<(Span, usize)>>,
    /// If there, the work of processes varies by up to [`VARIES`] either way.
    pub varies: Option<Random>,
}

/// By how many thousandths the work of processes may vary.
const VARIES: u64 = 200;

impl Host {
    fn new(parts: &Parts, method: Method, control: Control, peers: usize) -> Self {
        let guessing = if method.guesses() { Guessing::new(parts.ring, peers, control) } else { None };
        Self {
            method,
            cpu: Cpu::new(),
            bus: Bus::default(),
            sender: Sender::default(),
            receiver: Receiver::new(parts.ring, guessing),
            held: BTreeMap::new(),
            burst: 0,
            asked: BTreeMap::new(),
            page_frames: 0,
            placed: 0,
        }
    }
}

impl<'p> World<'p> {
    /// Hosts with these ways through them; `control` is that of every host.
    pub(crate) fn new(parts: &'p Parts, methods: &[Method], control: Control) -> Self {
        Self {
            parts,
            heap: Heap::new(),
            hosts: methods.iter().map(|&method| Host::new(parts, method, control, methods.len())).collect(),
            ports: methods.iter().map(|_| Port::default()).collect(),
            connections: Vec::new(),
            outgoing: vec![Vec::new(); methods.len()],
            plans: vec![VecDeque::new(); methods.len()],
            varies: None,
        }
    }

    /// Joins two hosts, and begins at `at`. Returns the connection's number.
    pub(crate) fn join(&mut self, connection: Connection, at: Time) -> usize {
        let number = self.connections.len();
        self.outgoing[connection.from].push(number);
        self.connections.push(connection);
        self.heap.at(at, Event::Begin(number));
        number
    }

    /// Lets everything happen.
    pub(crate) fn run(&mut self) {
        while let Some(event) = self.heap.take() {
            match event {
                Event::Processor(host, ticket) => self.job_done(host, ticket),
                Event::Mover(host, way) => self.want_bus(host, way),
                Event::Bus(host) => self.bus_done(host),
                Event::Uplink(host) => self.uplink_done(host),
                Event::Switched(frame) => {
                    self.ports[frame.to].queue.push_back(frame);
                    self.start_downlink(frame.to);
                }
                Event::Downlink(host) => self.downlink_done(host),
                Event::Begin(connection) => self.begin(connection),
            }
        }
    }

    /// Gives a host's processor a job.
    pub(crate) fn submit(&mut self, host: usize, level: Level, cost: Cost, then: Then) {
        let now = self.heap.now();
        let cost = match self.varies.as_mut().filter(|_| level == Level::Process) {
            Some(random) => cost.scaled(1000 - VARIES + random.below(2 * VARIES + 1)),
            None => cost,
        };
        let appointment = self.hosts[host].cpu.submit(now, level, cost, then);
        self.appoint(host, appointment);
    }

    fn appoint(&mut self, host: usize, appointment: Option<Appointment>) {
        if let Some((end, ticket)) = appointment {
            self.heap.at(end, Event::Processor(host, ticket));
        }
    }

    fn job_done(&mut self, host: usize, ticket: u64) {
        let now = self.heap.now();
        let Some((then, next)) = self.hosts[host].cpu.done(now, ticket) else { return };
        self.appoint(host, next);
        self.act(host, then);
    }
}

/// From the sender's ring to the switch.
impl World<'_> {
    /// The driver posts a frame to send.
    pub(crate) fn post(&mut self, host: usize, frame: Frame) {
        self.hosts[host].sender.ring.push_back(frame);
        self.start_fetching(host);
    }

    fn start_fetching(&mut self, host: usize) {
        let sender = &mut self.hosts[host].sender;
        let room = |frame: &Frame| sender.fifo_bytes + frame.length.bytes() <= self.parts.fifo;
        if sender.fetching.is_some() || !sender.ring.front().is_some_and(room) {
            return;
        }
        sender.fetching = sender.ring.pop_front();
        if let Some(frame) = sender.fetching {
            sender.fifo_bytes += frame.length.bytes();
            self.heap.after(self.parts.setup * frame.descriptors, Event::Mover(host, Way::Out));
        }
    }

    fn want_bus(&mut self, host: usize, way: Way) {
        let host_state = &mut self.hosts[host];
        let frame = match way {
            Way::Out => host_state.sender.fetching,
            Way::In => host_state.receiver.putting.map(|landed| landed.frame),
        };
        let span = self.parts.bus.span(frame.map_or(0, |frame| frame.length.bytes()));
        if let Some(end) = host_state.bus.want(way, span) {
            self.heap.after(end, Event::Bus(host));
        }
    }

    fn bus_done(&mut self, host: usize) {
        let Some((way, next)) = self.hosts[host].bus.done(self.heap.now()) else { return };
        if let Some(end) = next {
            self.heap.after(end, Event::Bus(host));
        }
        match way {
            Way::Out => {
                let sender = &mut self.hosts[host].sender;
                sender.fifo.extend(sender.fetching.take());
                self.start_uplink(host);
                self.start_fetching(host);
                self.advance_all(host);
            }
            Way::In => {
                let receiver = &mut self.hosts[host].receiver;
                if let Some(landed) = receiver.putting.take() {
                    receiver.fifo_bytes -= landed.frame.length.bytes();
                    receiver.landed.push_back(landed);
                }
                self.start_putting(host);
                self.start_downlink(host);
                self.interrupt(host);
            }
        }
    }

    fn start_uplink(&mut self, host: usize) {
        let sender = &mut self.hosts[host].sender;
        let Some(&frame) = sender.fifo.front().filter(|_| sender.link.is_none() && !sender.held) else { return };
        let port = &mut self.ports[frame.to];
        if port.bytes + frame.length.bytes() <= self.parts.port {
            port.bytes += frame.length.bytes();
            sender.link = sender.fifo.pop_front();
            self.heap.after(self.parts.link.span(frame.length.wire()), Event::Uplink(host));
            let before_it_forwards = self.parts.header.unwrap_or(u64::MAX).min(frame.length.wire());
            self.heap.after(self.parts.link.span(before_it_forwards) + self.parts.switch, Event::Switched(frame));
        } else {
            sender.held = true;
            port.holds.push_back(host);
        }
    }

    /// Room has fallen free at a port: the link that was held longest goes on.
    fn release_uplink(&mut self, port: usize) {
        if let Some(host) = self.ports[port].holds.pop_front() {
            self.hosts[host].sender.held = false;
            self.start_uplink(host);
        }
    }

    fn uplink_done(&mut self, host: usize) {
        let sender = &mut self.hosts[host].sender;
        if let Some(frame) = sender.link.take() {
            sender.meter.worked(self.heap.now(), self.parts.link.span(frame.length.wire()));
            sender.fifo_bytes -= frame.length.bytes();
        }
        self.start_uplink(host);
        self.start_fetching(host);
    }
}

/// From the switch to the receiver's memory.
impl World<'_> {
    fn start_downlink(&mut self, host: usize) {
        let (port, receiver) = (&mut self.ports[host], &mut self.hosts[host].receiver);
        let Some(&frame) = port.queue.front().filter(|_| port.link.is_none()) else { return };
        if receiver.fifo_bytes + frame.length.bytes() <= self.parts.fifo {
            receiver.fifo_bytes += frame.length.bytes();
            port.link = port.queue.pop_front();
            self.heap.after(self.parts.link.span(frame.length.wire()), Event::Downlink(host));
        }
    }

    fn downlink_done(&mut self, host: usize) {
        let port = &mut self.ports[host];
        if let Some(frame) = port.link.take() {
            port.meter.worked(self.heap.now(), self.parts.link.span(frame.length.wire()));
            port.bytes -= frame.length.bytes();
            self.hosts[host].receiver.fifo.push_back(frame);
            self.start_putting(host);
        }
        self.start_downlink(host);
        self.release_uplink(host);
    }

    pub(crate) fn start_putting(&mut self, host: usize) {
        if let Some(descriptors) = self.hosts[host].receiver.put_next() {
            self.heap.after(self.parts.setup * descriptors, Event::Mover(host, Way::In));
        }
    }
}
