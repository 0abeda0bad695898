//! A host's processor: what the application, the layer and the driver have it do, one thing after another.
//!
//! Nothing interrupts it. It takes in what has come, says what it owes, sends what it may, and otherwise polls. Polling
//! that finds nothing costs no events: a processor that sleeps is woken at the time at which its next look would have
//! found the arrival.

use std::collections::VecDeque;

use crate::time::{Span, Time};

use super::layer::{Job, Part};
use super::parts::{Access, Nic};
use super::world::{Cell, Event, HostId, Id, Message, RECEIVER, Station, World};

/// Descriptors that a send queue holds.
const SEND_QUEUE: usize = 32;

/// Double words of a descriptor without data: destination, offset and length of a buffer, flags.
const DESCRIPTOR_STORES: u64 = 4;
/// Double words of a descriptor that holds the 40 bytes of a single-cell message as well.
pub(crate) const INLINE_STORES: u64 = 7;

/// One thing to do.
#[derive(Debug, Clone, Copy)]
enum Op {
    /// Computes.
    Spend(Span),
    /// Stores into the adapter, over the bus.
    Store(u64),
    /// Reads how many cells wait.
    Look,
    /// Has moved one cell from the input FIFO to memory.
    Pull,
    /// Puts a cell into the output FIFO.
    Push(Cell),
    /// Puts a descriptor into the send queue.
    Post(Id),
    /// Hands a message to the layer.
    Take(Id),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Working,
    /// Polls without finding anything, since then.
    Polling(Time),
    /// Waits for room in the output FIFO.
    Blocked,
}

/// A processor.
#[derive(Debug, Default)]
pub(crate) struct Cpu {
    ops: VecDeque<Op>,
    state: State,
    /// The receive queue.
    queue: VecDeque<Id>,
}

impl World {
    /// The processor has time: it does what takes none and begins what takes some.
    pub(crate) fn go_on(&mut self, host: HostId) {
        self.hosts[host].cpu.state = State::Working;
        loop {
            let Some(op) = self.hosts[host].cpu.ops.pop_front() else {
                if self.plan(host) {
                    continue;
                }
                self.hosts[host].cpu.state = State::Polling(self.heap.now());
                return;
            };
            match op {
                Op::Spend(Span::ZERO) => {}
                Op::Spend(span) => {
                    let now = self.heap.now();
                    return self.busy_until(host, now + span);
                }
                Op::Store(words) => {
                    if let Nic::Coprocessor(cost) = self.nic {
                        let (_, end) = self.hosts[host].bus.hold(self.heap.now(), cost.pio * words);
                        return self.busy_until(host, end);
                    }
                }
                Op::Look => self.look(host),
                Op::Pull => self.pull(host),
                Op::Push(cell) if self.output_room(host) == 0 => {
                    self.hosts[host].cpu.ops.push_front(Op::Push(cell));
                    self.hosts[host].cpu.state = State::Blocked;
                    return;
                }
                Op::Push(cell) => self.put_out(host, cell),
                Op::Post(message) => self.post(host, message),
                Op::Take(message) => self.take(host, message),
            }
        }
    }

    fn busy_until(&mut self, host: HostId, end: Time) {
        let station = if host == RECEIVER { Station::ReceiverHost } else { Station::SenderHost };
        self.meters[station as usize].note(self.heap.now(), end);
        self.heap.at(end, Event::Cpu(host));
    }

    /// Finds something to do; `false` if there is nothing.
    fn plan(&mut self, host: HostId) -> bool {
        if let Some(message) = self.hosts[host].cpu.queue.pop_front() {
            self.plan_take(host, message);
            return true;
        }
        if self.may_post(host) && (self.plan_ack(host) || self.plan_send(host)) {
            return true;
        }
        if let Nic::Fifo(access) = self.nic
            && !self.hosts[host].input.is_empty()
        {
            self.hosts[host].cpu.ops.extend([Op::Spend(access.look), Op::Look]);
            return true;
        }
        false
    }

    /// Whether a descriptor would find room in the send queue.
    fn may_post(&self, host: HostId) -> bool {
        match self.nic {
            Nic::Fifo(_) => true,
            Nic::Coprocessor(_) => self.hosts[host].firmware.queued() < SEND_QUEUE,
        }
    }

    /// Sends an acknowledgement that is due and has not gone with another message in the meantime.
    fn plan_ack(&mut self, host: HostId) -> bool {
        let Some(acks) = self.layer.acks else { return false };
        while let Some(peer) = self.hosts[host].due.pop_front() {
            let layer = self.layer;
            if !self.flow(host, peer).is_due(&layer) {
                continue;
            }
            let acknowledges = self.flow(host, peer).acknowledge();
            let cells = layer.cells(acks.bytes);
            let message = Message {
                from: host,
                to: peer,
                payload: 0,
                bytes: acks.bytes,
                cells,
                number: None,
                acknowledges,
                ends: false,
                arrived: 0,
            };
            self.plan_message(host, acks.send, message, false);
            return true;
        }
        false
    }

    /// Sends the next part of the first job, if its window is open.
    fn plan_send(&mut self, host: HostId) -> bool {
        let layer = self.layer;
        let Some(job) = self.hosts[host].jobs.front() else { return false };
        let (part, to) = (job.next(&layer), job.to);
        let flow = self.flow(host, to);
        if !flow.is_open(part.bytes, &layer) {
            return false;
        }
        let number = Some(flow.send(part.bytes, &layer));
        let acknowledges = flow.acknowledge();
        let jobs = &mut self.hosts[host].jobs;
        if let Some(job) = jobs.front_mut() {
            job.advance(part);
            if job.is_done() {
                jobs.pop_front();
            }
        }
        let bytes = part.bytes + layer.header;
        let cells = layer.cells(bytes);
        let Part { bytes: payload, ends, writes } = part;
        let message = Message { from: host, to, payload, bytes, cells, number, acknowledges, ends, arrived: 0 };
        let cost = layer.send.of(payload) + layer.write * writes;
        self.plan_message(host, cost, message, layer.polls && host != RECEIVER);
        true
    }

    /// Has the processor spend `cost` on a message and hand it to the adapter.
    fn plan_message(&mut self, host: HostId, cost: Span, message: Message, polls: bool) {
        let id = self.register(message);
        let ops = &mut self.hosts[host].cpu.ops;
        ops.push_back(Op::Spend(cost));
        match self.nic {
            Nic::Fifo(access) => {
                for number in 1..=message.cells {
                    let cell = Cell { message: id, last: number == message.cells };
                    ops.extend([Op::Spend(access.crc + access.write), Op::Push(cell)]);
                }
                if polls && let Some(saves) = access.saves {
                    ops.extend([Op::Spend(access.look - saves), Op::Look]);
                }
            }
            Nic::Coprocessor(cost) => {
                let words = if message.bytes <= cost.inline { INLINE_STORES } else { DESCRIPTOR_STORES };
                ops.extend([Op::Store(words), Op::Post(id)]);
            }
        }
    }

    /// Has the processor hand a message to the layer.
    fn plan_take(&mut self, host: HostId, id: Id) {
        let message = self.message(id);
        let cost = match (message.number, self.layer.acks) {
            (None, Some(acks)) => acks.receive,
            _ => self.layer.receive.of(message.payload),
        };
        self.hosts[host].cpu.ops.extend([Op::Spend(cost), Op::Take(id)]);
    }

    /// The processor knows how many cells wait, and fetches them.
    fn look(&mut self, host: HostId) {
        let Nic::Fifo(Access { rest, cell, batch, .. }) = self.nic else { return };
        let Self { hosts, .. } = self;
        let waiting = hosts[host].input.len().min(batch);
        let ops = &mut hosts[host].cpu.ops;
        ops.push_back(Op::Spend(rest));
        for _ in 0..waiting {
            ops.extend([Op::Spend(cell), Op::Pull]);
        }
    }

    /// A cell is in memory; what its layer does with it comes after the other cells of the batch.
    fn pull(&mut self, host: HostId) {
        let Nic::Fifo(Access { crc, .. }) = self.nic else { return };
        let Some(cell) = self.hosts[host].input.pop_front() else { return };
        self.hosts[host].cpu.ops.push_back(Op::Spend(crc));
        if self.is_whole(cell) {
            self.plan_take(host, cell.message);
        }
    }

    /// The layer has a message: it settles the window, and hands the payload to the application.
    fn take(&mut self, host: HostId, id: Id) {
        let Message { from, payload, number, acknowledges, ends, .. } = self.message(id);
        self.retire(id);
        let layer = self.layer;
        let flow = self.flow(host, from);
        flow.acknowledged(acknowledges);
        let Some(number) = number else { return };
        if !flow.receive(number) {
            self.delivered.disordered += 1;
            return;
        }
        flow.delivered += payload;
        flow.blocks += u64::from(ends);
        let due = flow.is_due(&layer);
        let answers = self.deliver(host, from, payload, ends);
        if due && !answers {
            self.hosts[host].due.push_back(from);
        }
    }

    /// The application has more bytes, and perhaps a whole block: it answers, or asks again. Returns whether it does:
    /// then its message acknowledges as well.
    fn deliver(&mut self, host: HostId, from: HostId, payload: u64, ends: bool) -> bool {
        let now = self.heap.now();
        self.delivered.messages += 1;
        self.delivered.bytes += payload;
        if host != RECEIVER {
            self.delivered.answered = now;
            let asker = &mut self.hosts[host];
            let asks = ends && asker.rounds > 0;
            if asks {
                asker.rounds -= 1;
                asker.jobs.push_back(Job::new(RECEIVER, asker.question, 1));
            }
            return asks;
        }
        self.delivered.last = now;
        if self.delivered.first.is_none() && self.flow(host, from).delivered >= self.block {
            self.delivered.first = Some(now);
            self.delivered.until_first = self.delivered.bytes;
        }
        let Some(bytes) = self.hosts[host].answer.filter(|_| ends) else { return false };
        self.hosts[host].jobs.push_back(Job::new(from, bytes, 1));
        true
    }

    /// A message is in the receive queue.
    pub(crate) fn notify(&mut self, host: HostId, message: Id) {
        self.hosts[host].cpu.queue.push_back(message);
        self.look_up(host);
    }

    /// Something has come or has become possible: a processor that polls finds it at its next look.
    pub(crate) fn look_up(&mut self, host: HostId) {
        let State::Polling(since) = self.hosts[host].cpu.state else { return };
        let now = self.heap.now();
        self.hosts[host].cpu.state = State::Working;
        match self.nic {
            Nic::Coprocessor(_) => self.heap.at(now, Event::Cpu(host)),
            Nic::Fifo(access) => {
                let period = (access.look + access.rest).as_ps();
                let first = since + access.look;
                let looks = (now - first).as_ps().div_ceil(period);
                self.hosts[host].cpu.ops.push_back(Op::Look);
                self.heap.at(first + Span::from_ps(period * looks), Event::Cpu(host));
            }
        }
    }

    /// The output FIFO has room again.
    pub(crate) fn room_again(&mut self, host: HostId) {
        if self.hosts[host].cpu.state == State::Blocked {
            self.hosts[host].cpu.state = State::Working;
            self.heap.at(self.heap.now(), Event::Cpu(host));
        }
    }
}
