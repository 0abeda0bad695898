//! The world: hosts with adapters, fibres, and perhaps a switch, and what happens in it, one event after another.
//!
//! Host 0 receives; the others send to it, and it may answer. A cell goes from the sender's output FIFO over the fibre
//! (one at a time), through the switch (which adds its latency and lets one cell at a time out towards a host), into
//! the receiver's input FIFO. A cell that finds that FIFO full is lost, and counted.

use std::collections::VecDeque;

use crate::heap::Heap;
use crate::point::StageTime;
use crate::time::{Span, Time};

use super::firmware::Firmware;
use super::host::Cpu;
use super::layer::{Flow, Job, Layer};
use super::parts::{BusCost, Nic, Wire};

/// Number of a message that is under way.
pub(crate) type Id = usize;

/// Number of a host.
pub(crate) type HostId = usize;

/// The host that receives.
pub(crate) const RECEIVER: HostId = 0;

/// What happens.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// The host's processor is through with what it did.
    Cpu(HostId),
    /// The fibre has carried the cell at the head of the host's output FIFO.
    Fibre(HostId),
    /// A cell has reached the host's adapter.
    Arrive(HostId, Cell),
    /// The firmware begins a turn.
    Turn(HostId),
    /// The firmware has pushed a pulse into the output FIFO.
    Pushed(HostId),
    /// The firmware has written the descriptor of a message that is all there.
    Announce(HostId, Id),
    /// A message is in the host's receive queue.
    Notify(HostId, Id),
}

/// A cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) message: Id,
    /// Whether its header says that it is the last of its message.
    pub(crate) last: bool,
}

/// A message that is under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message {
    pub(crate) from: HostId,
    pub(crate) to: HostId,
    /// Bytes that the application gave; nothing in an acknowledgement.
    pub(crate) payload: u64,
    /// Bytes that the adapter sees, without trailer and padding.
    pub(crate) bytes: u64,
    pub(crate) cells: u64,
    /// Its number among those of its flow; none in an acknowledgement.
    pub(crate) number: Option<u64>,
    /// What it acknowledges: all messages below this.
    pub(crate) acknowledges: u64,
    /// Whether it ends a block.
    pub(crate) ends: bool,
    /// Its cells that have come out of the input FIFO.
    pub(crate) arrived: u64,
}

/// A host and its adapter.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) cpu: Cpu,
    pub(crate) firmware: Firmware,
    pub(crate) bus: Bus,
    pub(crate) output: VecDeque<Cell>,
    pub(crate) input: VecDeque<Cell>,
    /// When the last cell towards this host has left the switch.
    port_free: Time,
    pub(crate) flows: Vec<Flow>,
    pub(crate) jobs: VecDeque<Job>,
    /// Peers that must be told what has come.
    pub(crate) due: VecDeque<HostId>,
    /// Bytes of the answer to each block, if blocks are answered.
    pub(crate) answer: Option<u64>,
    /// Blocks that this host still asks for an answer to, one after the other, and their bytes.
    pub(crate) rounds: u64,
    pub(crate) question: u64,
}

/// A bus: one transfer at a time, first come, first served.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bus {
    free_at: Time,
}

impl Bus {
    /// Gives the bus to a transfer of `bytes` bytes that wants it now. Returns its start and its end.
    pub(crate) fn transfer(&mut self, now: Time, bytes: u64, cost: &BusCost) -> (Time, Time) {
        self.hold(now, cost.span(bytes))
    }

    /// Gives the bus away for `span`.
    pub(crate) fn hold(&mut self, now: Time, span: Span) -> (Time, Time) {
        let start = self.free_at.max(now);
        self.free_at = start + span;
        (start, self.free_at)
    }
}

/// When a stage was at work on what goes to the receiver.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Meter {
    first: Option<Time>,
    last: Time,
    busy: Span,
    pulses: u64,
}

impl Meter {
    pub(crate) fn note(&mut self, start: Time, end: Time) {
        self.first.get_or_insert(start);
        self.last = self.last.max(end);
        self.busy += end - start;
        self.pulses += 1;
    }
}

/// Stages in the order of travel.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Station {
    SenderHost,
    HostToAdapter,
    AdapterToLink,
    Fibre,
    Switch,
    AdapterToHost,
    ReceiverHost,
}

const STATIONS: [&str; 7] = [
    "sender's processor",
    "host to adapter",
    "adapter to link",
    "fibre",
    "switch",
    "adapter to host",
    "receiver's processor",
];

/// What was delivered.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Delivered {
    /// When the first block was whole at the receiver, what had been delivered then, and when the latest came.
    pub(crate) first: Option<Time>,
    pub(crate) until_first: u64,
    pub(crate) last: Time,
    /// Payload and messages that receivers' layers have taken in.
    pub(crate) bytes: u64,
    pub(crate) messages: u64,
    /// Cells lost to full input FIFOs (or to firmware that lost count), and messages out of order.
    pub(crate) lost: u64,
    pub(crate) disordered: u64,
    /// When the latest answer was whole at the host that asked.
    pub(crate) answered: Time,
}

/// The world.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) heap: Heap<Event>,
    pub(crate) nic: Nic,
    wire: Wire,
    pub(crate) layer: Layer,
    /// Bytes of the blocks that are sent to the receiver.
    pub(crate) block: u64,
    pub(crate) hosts: Vec<Host>,
    messages: Vec<Message>,
    unused: Vec<Id>,
    pub(crate) delivered: Delivered,
    pub(crate) meters: [Meter; STATIONS.len()],
}

impl World {
    /// A receiver and `senders` senders, all idle.
    pub(crate) fn new(nic: Nic, wire: Wire, layer: Layer, senders: usize, firmware: &Firmware) -> Self {
        let host = |flows| Host {
            cpu: Cpu::default(),
            firmware: firmware.clone(),
            bus: Bus::default(),
            output: VecDeque::new(),
            input: VecDeque::new(),
            port_free: Time::START,
            flows: vec![Flow::default(); flows],
            jobs: VecDeque::new(),
            due: VecDeque::new(),
            answer: None,
            rounds: 0,
            question: 0,
        };
        Self {
            heap: Heap::new(),
            nic,
            wire,
            layer,
            block: 0,
            hosts: std::iter::once(host(senders)).chain((0..senders).map(|_| host(1))).collect(),
            messages: Vec::new(),
            unused: Vec::new(),
            delivered: Delivered::default(),
            meters: Default::default(),
        }
    }

    /// Runs until nothing happens any more, or until a cell is lost: nothing is sent again here.
    pub(crate) fn run(&mut self) {
        for host in 0..self.hosts.len() {
            self.go_on(host);
        }
        while self.delivered.lost == 0
            && let Some(event) = self.heap.take()
        {
            match event {
                Event::Cpu(host) => self.go_on(host),
                Event::Fibre(host) => self.carried(host),
                Event::Arrive(host, cell) => self.arrived(host, cell),
                Event::Turn(host) => self.turn(host),
                Event::Pushed(host) => self.pushed(host),
                Event::Announce(host, message) => self.announce(host, message),
                Event::Notify(host, message) => self.notify(host, message),
            }
        }
    }

    /// Puts a cell into the host's output FIFO, which has room.
    pub(crate) fn put_out(&mut self, host: HostId, cell: Cell) {
        self.hosts[host].output.push_back(cell);
        if self.hosts[host].output.len() == 1 {
            self.heap.after(self.wire.cell, Event::Fibre(host));
        }
    }

    /// Cells that the host's output FIFO can take.
    pub(crate) fn output_room(&self, host: HostId) -> usize {
        self.wire.output.saturating_sub(self.hosts[host].output.len())
    }

    /// Cells that an input FIFO holds.
    pub(crate) fn input_capacity(&self) -> usize {
        self.wire.input
    }

    /// The fibre has carried a cell: it goes to the switch or the other adapter, and the next one follows.
    fn carried(&mut self, host: HostId) {
        let now = self.heap.now();
        let Some(cell) = self.hosts[host].output.pop_front() else { return };
        let to = self.messages[cell.message].to;
        let start = Time::from_ps(now.as_ps() - self.wire.cell.as_ps());
        self.note(cell.message, Station::Fibre, start, now);
        let there = match self.wire.switch {
            None => now,
            Some(latency) => (now + latency).max(self.hosts[to].port_free + self.wire.cell),
        };
        if self.wire.switch.is_some() {
            self.hosts[to].port_free = there;
            let start = Time::from_ps(there.as_ps() - self.wire.cell.as_ps());
            self.note(cell.message, Station::Switch, start, there);
        }
        self.heap.at(there, Event::Arrive(to, cell));
        if !self.hosts[host].output.is_empty() {
            self.heap.after(self.wire.cell, Event::Fibre(host));
        }
        self.room_again(host);
    }

    fn arrived(&mut self, host: HostId, cell: Cell) {
        let taken = match self.nic {
            Nic::Fifo(_) => {
                let room = self.hosts[host].input.len() < self.wire.input;
                if room {
                    self.hosts[host].input.push_back(cell);
                    self.look_up(host);
                }
                room
            }
            Nic::Coprocessor(_) => self.cell_in(host, cell),
        };
        self.delivered.lost += u64::from(!taken);
    }

    /// Gives a message a number under which it travels.
    pub(crate) fn register(&mut self, message: Message) -> Id {
        if let Some(id) = self.unused.pop() {
            self.messages[id] = message;
            return id;
        }
        self.messages.push(message);
        self.messages.len() - 1
    }

    /// Counts a cell that has come out of the input FIFO. Returns whether it ends a message of which nothing is lost.
    pub(crate) fn is_whole(&mut self, cell: Cell) -> bool {
        let message = &mut self.messages[cell.message];
        message.arrived += 1;
        cell.last && message.arrived == message.cells
    }

    /// The message has been taken in; its number is free again.
    pub(crate) fn retire(&mut self, id: Id) {
        self.unused.push(id);
    }

    pub(crate) fn message(&self, id: Id) -> Message {
        self.messages[id]
    }

    /// Notes that a stage was at work on a message, if the message goes to the receiver.
    pub(crate) fn note(&mut self, message: Id, station: Station, start: Time, end: Time) {
        let Message { to, number, .. } = self.messages[message];
        if to == RECEIVER && number.is_some() {
            self.meters[station as usize].note(start, end);
        }
    }

    /// The flow of `host` to and from `peer`.
    pub(crate) fn flow(&mut self, host: HostId, peer: HostId) -> &mut Flow {
        let index = if host == RECEIVER { peer - 1 } else { 0 };
        &mut self.hosts[host].flows[index]
    }

    /// The stages that were at work, in the order of travel.
    pub(crate) fn stages(&self) -> Vec<StageTime> {
        let used = STATIONS.iter().zip(&self.meters).filter_map(|(stage, meter)| Some((stage, meter, meter.first?)));
        used.map(|(stage, meter, first)| StageTime {
            stage: (*stage).to_owned(),
            first_us: first.as_us(),
            last_us: meter.last.as_us(),
            busy_us: meter.busy.as_us(),
            pulses: meter.pulses,
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Bus;
    use crate::atm::parts::BusCost;
    use crate::time::{Rate, Span, Time};

    #[test]
    fn a_bus_carries_one_transfer_at_a_time() {
        let cost = BusCost { rate: Rate::from_bytes_per_s(100_000_000).unwrap(), burst: 32, setup: Span::from_ns(200) };
        assert_eq!(cost.span(48), Span::from_ns(880));
        let mut bus = Bus::default();
        let mut last = Time::START;
        for (asked_ns, bytes) in [(0, 48), (100, 16), (5000, 4096), (5000, 1), (90_000, 32)] {
            let now = Time::START + Span::from_ns(asked_ns);
            let (start, end) = bus.transfer(now, bytes, &cost);
            assert!(start >= now && start >= last);
            assert_eq!(end - start, cost.span(bytes));
            last = end;
        }
    }
}
