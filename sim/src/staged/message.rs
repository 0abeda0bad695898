//! A message in adapter memory, seen from either end, and the door through which the engine moves it.

use cutthrough_engine::adapter::{Adapter, Capability, Pulse, Stage};
use cutthrough_engine::pulse::{Policy, least};
use cutthrough_engine::time::Instant;

use crate::model::bus::{Bus, Way};
use crate::model::flow::{Arrivals, Flow};
use crate::time::{Span, Time};

/// How far the control message of a message has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    Waiting,
    Moving,
    Moved,
}

/// A message in the sending adapter.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) number: u64,
    pub(super) to: u32,
    pub(super) len: u64,
    /// When the host had written its slot.
    pub(super) posted: Time,
    pub(super) control: Control,
    /// Bytes which transfers that are over have brought into adapter memory.
    pub(super) fetched: u64,
    /// The same with the transfer under way.
    pub(super) reserved: u64,
    /// Bytes which pulses that are over have put onto the link.
    pub(super) sent: u64,
    /// What the engine found worth a pulse onto the link, once it has asked.
    pub(super) minpulse: Option<u64>,
}

/// A message in the receiving adapter.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) number: u64,
    pub(super) from: u32,
    pub(super) len: u64,
    /// When its control message is there.
    pub(super) control_at: Time,
    pub(super) control: Control,
    pub(super) arrivals: Arrivals,
    /// Bytes of adapter memory that it was ever given.
    pub(super) reserved: u64,
    /// Bytes which transfers that are over have brought into host memory.
    pub(super) drained: u64,
    /// What the engine found worth a transfer, once it has asked.
    pub(super) minpulse: Option<u64>,
}

/// What moves bytes from an adapter onto its link.
#[derive(Debug, Clone, Copy)]
pub(super) enum Net {
    Idle,
    /// A control message waits for the path to the receiver.
    Blocked,
    Control {
        flow: Flow,
    },
    /// A pulse which ends when `want` bytes of the message have left, and goes as far as the receiver has room. It
    /// arrives `delay` later.
    Payload {
        flow: Flow,
        started: Time,
        want: u64,
        delay: Span,
    },
}

/// One turn of a firmware loop: when it looked, and what it has started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) at: Time,
    pub(super) cost: Span,
    pub(super) decision: Span,
    /// Time that its decisions so far take.
    pub(super) spent: Span,
}

impl Turn {
    /// Takes a decision: when it is carried out.
    pub(super) fn decide(&mut self) -> Time {
        self.spend(self.decision);
        self.end()
    }

    /// Does something else.
    pub(super) fn spend(&mut self, span: Span) {
        self.spent += span;
    }

    /// When the turn is over.
    pub(super) fn end(&self) -> Time {
        self.at + self.cost + self.spent
    }
}

/// The sending adapter as the engine sees it for one message.
pub(super) struct SendDoor<'a> {
    pub(super) turn: &'a mut Turn,
    pub(super) message: &'a mut Outgoing,
    pub(super) bus: &'a mut Bus,
    pub(super) net: Net,
    /// Whether every message before it has left, and whether every one before it has been fetched.
    pub(super) first: bool,
    pub(super) next: bool,
    /// Adapter memory, and how much of it is taken by all messages.
    pub(super) memory: u64,
    pub(super) taken: &'a mut u64,
    /// What the engine finds worth a pulse onto the link, should it ask now.
    pub(super) minpulse: u64,
    /// A pulse onto the link that the engine has started: when, and its length.
    pub(super) pulse: Option<(Time, u64)>,
}

impl Outgoing {
    /// Bytes that have come into adapter memory at `at`, if `fetching` says that the bus carries this message.
    pub(super) fn fetched_at(&self, at: Time, bus: &Bus, fetching: bool) -> u64 {
        self.fetched + if fetching { bus.moved(Way::Read, at) } else { 0 }
    }

    /// Adapter memory left beside what this message has in it.
    pub(super) fn room(&self, fetched: u64, memory: u64, taken: u64) -> u64 {
        let others = taken - (self.reserved - self.sent);
        memory.saturating_sub(others + (fetched - self.sent))
    }
}

impl Adapter for SendDoor<'_> {
    fn capability(&self, stage: Stage) -> Capability {
        match stage {
            Stage::HostToAdapter | Stage::AdapterToLink => Capability::DRIVEN,
            Stage::LinkToAdapter | Stage::AdapterToHost => Capability::ABSENT,
        }
    }

    fn idle(&mut self, _: Instant, stage: Stage) -> bool {
        if stage == Stage::HostToAdapter {
            return self.message.fetched == self.message.len || (self.next && self.bus.free(Way::Read));
        }
        let idle = self.first && self.message.control == Control::Moved && matches!(self.net, Net::Idle);
        if idle && self.message.sent < self.message.len {
            self.message.minpulse.get_or_insert(self.minpulse);
        }
        idle
    }

    fn moved(&mut self, _: Instant, stage: Stage) -> u64 {
        match (stage, self.net) {
            (Stage::HostToAdapter, _) => self.message.fetched_at(self.turn.at, self.bus, self.next),
            (_, Net::Payload { flow, .. }) if self.first => flow.passed(self.turn.at),
            _ => self.message.sent,
        }
    }

    fn room(&mut self, now: Instant, stage: Stage) -> u64 {
        if stage == Stage::AdapterToLink {
            return u64::MAX;
        }
        let fetched = self.moved(now, stage);
        self.message.room(fetched, self.memory, *self.taken)
    }

    fn start(&mut self, _: Instant, stage: Stage, pulse: Pulse) {
        let begin = self.turn.decide();
        if stage == Stage::HostToAdapter {
            self.bus.start(Way::Read, begin, pulse.len);
            self.message.reserved += pulse.len;
            *self.taken += pulse.len;
        } else {
            self.pulse = Some((begin, pulse.len));
        }
    }
}

/// The receiving adapter as the engine sees it for its oldest message.
pub(super) struct RecvDoor<'a> {
    pub(super) turn: &'a mut Turn,
    pub(super) message: &'a mut Incoming,
    pub(super) bus: &'a mut Bus,
    pub(super) memory: u64,
    pub(super) taken: u64,
    pub(super) minpulse: u64,
    pub(super) started: bool,
}

impl Incoming {
    pub(super) fn new(number: u64, from: u32, len: u64, control_at: Time) -> Self {
        Self {
            number,
            from,
            len,
            control_at,
            control: Control::Waiting,
            arrivals: Arrivals::default(),
            reserved: 0,
            drained: 0,
            minpulse: None,
        }
    }

    /// Adapter memory left beside what this message has in it.
    pub(super) fn room(&self, arrived: u64, memory: u64, taken: u64) -> u64 {
        let others = taken - (self.reserved - self.drained);
        memory.saturating_sub(others + (arrived - self.drained))
    }
}

impl Adapter for RecvDoor<'_> {
    fn capability(&self, stage: Stage) -> Capability {
        match stage {
            Stage::HostToAdapter | Stage::AdapterToLink => Capability::ABSENT,
            Stage::LinkToAdapter => Capability::OBSERVED,
            Stage::AdapterToHost => Capability::DRIVEN,
        }
    }

    fn idle(&mut self, _: Instant, _: Stage) -> bool {
        let done = self.message.drained == self.message.len;
        let idle = self.message.control == Control::Moved && (done || self.bus.free(Way::Write));
        if idle && !done {
            self.message.minpulse.get_or_insert(self.minpulse);
        }
        idle
    }

    fn moved(&mut self, _: Instant, stage: Stage) -> u64 {
        if stage == Stage::LinkToAdapter {
            return self.message.arrivals.arrived(self.turn.at);
        }
        let moving = self.message.control == Control::Moved;
        self.message.drained + if moving { self.bus.moved(Way::Write, self.turn.at) } else { 0 }
    }

    fn room(&mut self, now: Instant, stage: Stage) -> u64 {
        if stage == Stage::AdapterToHost {
            return u64::MAX;
        }
        let arrived = self.moved(now, stage);
        self.message.room(arrived, self.memory, self.taken)
    }

    fn start(&mut self, _: Instant, _: Stage, pulse: Pulse) {
        let begin = self.turn.decide();
        self.bus.start(Way::Write, begin, pulse.len);
        self.started = true;
    }
}

/// How many bytes of a message of `len` must have come into a buffer before its next stage, which has moved `moved` of
/// them, starts a pulse: never more than the engine waits for. `room` and `came` are as the engine sees them.
pub(super) fn awaited(policy: Policy, minpulse: u64, len: u64, moved: u64, room: u64, came: u64) -> u64 {
    let (remaining, buffered) = (len - moved, came.saturating_sub(moved));
    let worth = least(policy, minpulse, remaining).min(remaining);
    let capacity = room.saturating_add(buffered);
    let worth = if remaining > capacity { worth.min(capacity / 2) } else { worth };
    moved + worth.max(1)
}
