//! An adapter: its memory, its movers, and what each turn of its firmware loop does with them.
//!
//! A turn is the loop of HPDC 1997, Figure 3: is the host DMA engine idle, then let it fetch or drain, whichever it did
//! not do last; is the mover onto the link idle, then let it send a control message first, else payload. What a mover
//! does with a payload is decided by the engine, one [`Transfer`] for each message in adapter memory.

use std::collections::VecDeque;

use cutthrough_engine::adapter::Stage;
use cutthrough_engine::pulse::Policy;
use cutthrough_engine::transfer::{Step, Transfer};
use cutthrough_engine::tune::Tuner;

use crate::model::bus::{Bus, Done, Way};
use crate::model::turns::first_turn_after;
use crate::time::{Span, Time};

use super::host::Ready;
use super::machine::Machine;
use super::message::{Control, Incoming, Net, Outgoing, RecvDoor, SendDoor, Turn, awaited};

/// How an adapter's firmware treats messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) send: Policy,
    pub(super) recv: Policy,
    /// Whether a control message leaves before its payload has come into the adapter.
    pub(super) early: bool,
    /// Whether the adapter fetches a message only when the one before it has left.
    pub(super) one_by_one: bool,
}

/// An adapter.
#[derive(Debug)]
pub(super) struct Adapter {
    rules: Rules,
    pub(super) bus: Bus,
    pub(super) out: VecDeque<Outgoing>,
    /// The engine's view of those messages of `out` that it has looked at: the first ones.
    out_transfers: VecDeque<Transfer>,
    /// Position in `out` of the first message that has not been fetched.
    next: usize,
    /// Position of the message whose fetching has ended since the last turn.
    fetched: Option<usize>,
    out_taken: u64,
    pub(super) net: Net,
    pub(super) coming: VecDeque<Incoming>,
    coming_transfers: VecDeque<Transfer>,
    pub(super) coming_taken: u64,
    tuners: [Tuner; Stage::COUNT],
    drain_first: bool,
    looked: Time,
    /// When its next turn may begin.
    anchor: Time,
    /// When its next turn does begin, and which of the turns that were ever put on the heap that is.
    pub(super) turn_at: Option<Time>,
    pub(super) generation: u32,
    posted: u64,
}

/// What a turn asks of the world around the adapter.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// A control message for this receiver wants to leave.
    pub(super) control: Option<Time>,
    /// A pulse of the first message wants to leave: when, and its length.
    pub(super) pulse: Option<(Time, u64)>,
    /// How many messages have left for good.
    pub(super) left: u64,
    /// Messages that lie ready for the host.
    pub(super) ready: Vec<Ready>,
}

impl Adapter {
    pub(super) fn new(machine: &Machine, rules: Rules) -> Self {
        Self {
            rules,
            bus: Bus::new(machine.bus),
            out: VecDeque::new(),
            out_transfers: VecDeque::new(),
            next: 0,
            fetched: None,
            out_taken: 0,
            net: Net::Idle,
            coming: VecDeque::new(),
            coming_transfers: VecDeque::new(),
            coming_taken: 0,
            tuners: machine.tuners(),
            drain_first: false,
            looked: Time::START,
            anchor: Time::START,
            turn_at: None,
            generation: 0,
            posted: 0,
        }
    }

    /// The host has written a slot of the send ring.
    pub(super) fn post(&mut self, now: Time, to: u32, len: u64) -> u64 {
        let number = self.posted;
        self.posted += 1;
        self.out.push_back(Outgoing {
            number,
            to,
            len,
            posted: now,
            control: Control::Waiting,
            fetched: 0,
            reserved: 0,
            sent: 0,
            minpulse: None,
        });
        number
    }

    /// A control message is on its way here.
    pub(super) fn expect(&mut self, message: Incoming, machine: &Machine) {
        self.coming_transfers.push_back(transfer(message.len, self.rules.recv, machine.sram.recv));
        self.coming.push_back(message);
    }

    /// Takes note of the transfer out of host memory that was over before `at`.
    pub(super) fn settle_read(&mut self, at: Time) -> Option<(Done, u64)> {
        let done = self.bus.settle(Way::Read, at)?;
        let message = &mut self.out[self.next];
        message.fetched += done.len;
        let number = message.number;
        self.fetched = Some(self.next);
        self.skip_fetched();
        Some((done, number))
    }

    /// Takes note of the transfer into host memory that was over before `at`: it has made room, unless it carried a
    /// control message.
    pub(super) fn settle_write(&mut self, at: Time) -> Option<(Done, u64)> {
        let done = self.bus.settle(Way::Write, at)?;
        let message = self.coming.front_mut()?;
        if message.control == Control::Moving {
            message.control = Control::Moved;
        } else {
            message.drained += done.len;
            self.coming_taken -= done.len;
        }
        Some((done, message.number))
    }

    /// Takes note of what has left for the link before `at`: bytes, since when, until when.
    pub(super) fn settle_net(&mut self, at: Time) -> Option<(u64, Time, Time)> {
        let head = self.out.front_mut()?;
        let left = match self.net {
            Net::Control { flow } if flow.end() < at => {
                head.control = Control::Moved;
                (flow.limit(), flow.begun(), flow.end())
            }
            Net::Payload { flow, started, want, .. } if flow.limit() == want && flow.end() < at => {
                let len = want - head.sent;
                head.sent = want;
                self.out_taken -= len;
                (len, started, flow.end())
            }
            _ => return None,
        };
        self.net = Net::Idle;
        Some(left)
    }

    /// One turn of the firmware loop at `at`, once what was over has been settled.
    pub(super) fn turn(&mut self, at: Time, machine: &Machine) -> Asked {
        let mut turn = Turn { at, cost: machine.turn, decision: machine.decision, spent: Span::ZERO };
        let mut asked = Asked::default();
        if self.drain_first {
            self.receive(&mut turn, machine, &mut asked);
            self.send(&mut turn, machine, &mut asked);
        } else {
            self.send(&mut turn, machine, &mut asked);
            self.receive(&mut turn, machine, &mut asked);
        }
        self.looked = at;
        self.anchor = turn.end();
        asked
    }

    fn send(&mut self, turn: &mut Turn, machine: &Machine, asked: &mut Asked) {
        while self.out.front().is_some_and(|head| head.posted < turn.at) {
            let head = &self.out[0];
            // A message that does not fit leaves when half of the memory is full of it.
            let whole = if head.len <= machine.sram.send { head.len } else { machine.sram.send / 2 };
            let may = self.rules.early || head.fetched >= whole;
            if head.control == Control::Waiting && may && matches!(self.net, Net::Idle) {
                turn.spend(machine.message);
                let begin = turn.decide();
                self.out[0].control = Control::Moving;
                self.net = Net::Blocked;
                asked.control = Some(begin);
            }
            let done = self.poll_out(0, turn, machine, asked) == Step::Done;
            if !done || self.out[0].control != Control::Moved {
                break;
            }
            self.out.pop_front();
            self.out_transfers.pop_front();
            self.next = self.next.saturating_sub(1);
            self.fetched = self.fetched.and_then(|fetched| fetched.checked_sub(1));
            self.skip_fetched();
            asked.left += 1;
        }
        if let Some(fetched) = self.fetched.take().filter(|&fetched| fetched > 0 && fetched < self.next) {
            self.poll_out(fetched, turn, machine, asked);
        }
        let next = self.out.get(self.next).is_some_and(|message| message.posted < turn.at);
        if next && self.next > 0 && !self.rules.one_by_one {
            self.poll_out(self.next, turn, machine, asked);
        }
    }

    fn poll_out(&mut self, position: usize, turn: &mut Turn, machine: &Machine, asked: &mut Asked) -> Step {
        let before = self.bus.free(Way::Read);
        let minpulse = self.minpulse(self.rules.send, Stage::AdapterToLink, self.out[position].len, machine.sram.send);
        while self.out_transfers.len() <= position {
            let len = self.out[self.out_transfers.len()].len;
            self.out_transfers.push_back(transfer(len, self.rules.send, machine.sram.send));
        }
        let now = turn.at.instant();
        let mut door = SendDoor {
            turn,
            message: &mut self.out[position],
            bus: &mut self.bus,
            net: self.net,
            first: position == 0,
            next: position == self.next,
            memory: machine.sram.send,
            taken: &mut self.out_taken,
            minpulse,
            pulse: None,
        };
        let step = self.out_transfers[position].poll(now, &mut door, &mut self.tuners, &mut ());
        debug_assert!(!matches!(step, Step::Misreported { .. }), "{step:?}");
        asked.pulse = asked.pulse.or(door.pulse);
        self.drain_first |= before && !self.bus.free(Way::Read);
        step
    }

    fn receive(&mut self, turn: &mut Turn, machine: &Machine, asked: &mut Asked) {
        while self.coming.front().is_some_and(|message| message.control_at < turn.at) {
            let front = &mut self.coming[0];
            if front.control == Control::Waiting && !machine.control_by_dma {
                turn.spend(machine.message);
                front.control = Control::Moved;
            } else if front.control == Control::Waiting && self.bus.free(Way::Write) {
                turn.spend(machine.message);
                front.control = Control::Moving;
                self.bus.start(Way::Write, turn.decide(), machine.control);
                self.drain_first = false;
            }
            let len = front.len;
            let minpulse = self.minpulse(self.rules.recv, Stage::AdapterToHost, len, machine.sram.recv);
            let now = turn.at.instant();
            let mut door = RecvDoor {
                turn,
                message: &mut self.coming[0],
                bus: &mut self.bus,
                memory: machine.sram.recv,
                taken: self.coming_taken,
                minpulse,
                started: false,
            };
            let step = self.coming_transfers[0].poll(now, &mut door, &mut self.tuners, &mut ());
            debug_assert!(!matches!(step, Step::Misreported { .. }), "{step:?}");
            self.drain_first &= !door.started;
            if step != Step::Done || self.coming[0].control != Control::Moved {
                break;
            }
            self.coming_transfers.pop_front();
            if let Some(Incoming { number, from, drained, .. }) = self.coming.pop_front() {
                // The host's look at the adapter pushes what the bridge still holds into memory.
                let at = turn.decide().max(self.bus.drained_at());
                asked.ready.push(Ready { number, from, len: drained, at });
            }
        }
    }

    /// What the engine would find worth a pulse, if it were to measure that now.
    fn minpulse(&self, policy: Policy, stage: Stage, len: u64, memory: u64) -> u64 {
        match policy {
            Policy::Adaptive { minpulse: None } => self.tuners[stage.index()].minpulse(len).min(memory / 2),
            _ => 0,
        }
    }

    /// When the next turn that can find something new begins; `None` if only others can bring that about.
    pub(super) fn plan(&self, machine: &Machine) -> Option<Time> {
        let mut event: Option<Time> = None;
        let mut consider = |at: Option<Time>| {
            if let Some(at) = at {
                event = Some(event.map_or(at, |event| event.min(at)));
            }
        };
        consider(self.bus.end(Way::Read));
        consider(self.bus.end(Way::Write));
        match self.net {
            Net::Control { flow } => consider(Some(flow.end())),
            Net::Payload { flow, want, .. } if flow.limit() == want => consider(Some(flow.end())),
            _ => {}
        }
        for position in [0, self.next] {
            let unseen = self.out.get(position).filter(|message| message.posted >= self.looked);
            consider(unseen.map(|message| message.posted));
        }
        let unseen = self.coming.front().filter(|message| message.control_at >= self.looked);
        consider(unseen.map(|message| message.control_at));
        consider(self.worth_fetching(machine).map(just_before));
        consider(self.worth_sending(machine).map(just_before));
        consider(self.worth_draining(machine).map(just_before));
        event.map(|event| first_turn_after(self.anchor, machine.turn, event))
    }

    /// When so much of a message that is longer than the adapter's memory will have left that the engine fetches on,
    /// although the memory that is free would not be worth it alone (see [`cutthrough_engine::pulse::offered_room`]).
    fn worth_fetching(&self, machine: &Machine) -> Option<Time> {
        let fetching = self.next == 0 && self.bus.free(Way::Read);
        let head = self.out.front().filter(|head| fetching && head.fetched < head.len)?;
        let Net::Payload { flow, .. } = self.net else {
            return None;
        };
        let room = head.room(head.fetched, machine.sram.send, self.out_taken);
        if room == 0 {
            return None;
        }
        flow.reaches(head.fetched.saturating_sub(room + 1)).filter(|&at| at >= self.looked)
    }

    /// When enough of the first message will have been fetched for a pulse onto the idle link.
    fn worth_sending(&self, machine: &Machine) -> Option<Time> {
        let head = self.out.front()?;
        let idle = head.control == Control::Moved && matches!(self.net, Net::Idle);
        if !idle || head.sent == head.len || self.next > 0 {
            return None;
        }
        let came = head.fetched_at(self.looked, &self.bus, true);
        let room = head.room(came, machine.sram.send, self.out_taken);
        let minpulse = self.minpulse(self.rules.send, Stage::AdapterToLink, head.len, machine.sram.send);
        let minpulse = head.minpulse.unwrap_or(minpulse);
        let target = awaited(self.rules.send, minpulse, head.len, head.sent, room, came);
        self.bus.reaches(Way::Read, target.saturating_sub(head.fetched))
    }

    /// When enough of the oldest message will have arrived for a transfer into host memory.
    fn worth_draining(&self, machine: &Machine) -> Option<Time> {
        let front = self.coming.front()?;
        if front.control != Control::Moved || front.drained == front.len || !self.bus.free(Way::Write) {
            return None;
        }
        let came = front.arrivals.arrived(self.looked);
        let room = front.room(came, machine.sram.recv, self.coming_taken);
        let minpulse = self.minpulse(self.rules.recv, Stage::AdapterToHost, front.len, machine.sram.recv);
        let minpulse = front.minpulse.unwrap_or(minpulse);
        front.arrivals.reaches(awaited(self.rules.recv, minpulse, front.len, front.drained, room, came))
    }

    /// When the next turn of a loop that never rests begins.
    pub(super) fn anchor(&self) -> Time {
        self.anchor
    }

    fn skip_fetched(&mut self) {
        while self.out.get(self.next).is_some_and(|message| message.fetched == message.len) {
            self.next += 1;
        }
    }
}

fn transfer(len: u64, policy: Policy, memory: u64) -> Transfer {
    let mut transfer = Transfer::new(len, policy);
    transfer.set_minpulse_max(memory / 2);
    transfer
}

/// The last moment before `at`: progress that is complete at a turn is seen by it, unlike an event.
fn just_before(at: Time) -> Time {
    Time::from_ps(at.as_ps().saturating_sub(1))
}
