//! What is taken note of while a world runs: counts always, times of single messages and pulses if asked for.

use crate::outcome::Stripe;
use crate::point::StageTime;
use crate::time::{Span, Time};

/// What moves bytes, in the order of travel; named as in "Network I/O with Trapeze" (Hot Interconnects 1999).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mover {
    /// From host memory into the sending adapter.
    HostTx,
    /// From the sending adapter onto the link.
    NetTx,
    /// From the link into the receiving adapter.
    NetRcv,
    /// From the receiving adapter into host memory.
    HostRcv,
}

/// Names of the movers.
pub const MOVERS: [&str; 4] = ["hostTx", "netTx", "netRcv", "hostRcv"];

/// When one message came where, for the first messages of each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Milestones {
    /// Its host had written its slot.
    pub posted: Time,
    /// It lay ready for the receiving host.
    pub ready: Time,
    /// The receiving host had taken it.
    pub taken: Time,
}

/// What a mover has done.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    first: Option<Time>,
    last: Time,
    busy: Span,
    pulses: u64,
}

/// A message that a host has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Who sent it.
    pub from: u32,
    /// Its number among those of its sender, from 0.
    pub number: u64,
    /// Bytes of its payload.
    pub len: u64,
}

/// One message, of which alone the pulses count; their times are those since it was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Only {
    /// Its sender and its receiver.
    pub(super) hosts: [u32; 2],
    /// Its number among those of its sender.
    pub(super) number: u64,
    /// Messages that have been taken before it is sent.
    pub(super) after: u64,
    /// When it was sent.
    pub(super) sent: Option<Time>,
}

/// What has been seen.
#[derive(Debug, Default)]
pub struct Watch {
    /// The one message that counts, if not all do.
    pub(super) only: Option<Only>,
    begun: Option<Time>,
    taken: u64,
    bytes: u64,
    first_taken: Time,
    last_taken: Time,
    work: [Work; 4],
    /// Pulses from this host to that one, if they are wanted.
    pub stripes: Option<(u32, u32, Vec<Stripe>)>,
    /// Milestones of the first message of each host, if they are wanted.
    pub milestones: Option<Vec<Milestones>>,
    /// What this host takes, if it is wanted.
    pub deliveries: Option<(u32, Vec<Taken>)>,
}

impl Watch {
    pub(super) fn moved(&mut self, mover: Mover, node: u32, number: u64, started: Time, ended: Time, bytes: u64) {
        let Some(sent) = self.counts_since(mover, node, number) else { return };
        let (started, ended) = (Time::START + started.saturating_since(sent), Time::START + (ended - sent));
        let work = &mut self.work[mover as usize];
        work.first.get_or_insert(started);
        work.last = work.last.max(ended);
        work.busy += ended - started;
        work.pulses += 1;
        if let Some((sender, receiver, stripes)) = &mut self.stripes {
            let here = match mover {
                Mover::HostTx | Mover::NetTx => *sender,
                Mover::NetRcv | Mover::HostRcv => *receiver,
            };
            if here == node {
                let (start_us, end_us) = (started.as_us(), ended.as_us());
                stripes.push(Stripe { row: mover as usize, message: number, start_us, end_us, bytes });
            }
        }
    }

    /// From when the times of a pulse count, if it counts.
    fn counts_since(&self, mover: Mover, node: u32, number: u64) -> Option<Time> {
        let Some(only) = self.only else { return Some(Time::START) };
        let [sender, receiver] = only.hosts;
        let host = match mover {
            Mover::HostTx | Mover::NetTx => sender,
            Mover::NetRcv | Mover::HostRcv => receiver,
        };
        only.sent.filter(|_| (node, number) == (host, only.number))
    }

    pub(super) fn begun(&mut self, now: Time) {
        self.begun.get_or_insert(now);
        if let Some(only) = self.only.as_mut().filter(|only| only.after == self.taken) {
            only.sent.get_or_insert(now);
        }
    }

    pub(super) fn posted(&mut self, node: u32, number: u64, now: Time) {
        self.milestone(node, number, |milestones| milestones.posted = now);
    }

    pub(super) fn ready(&mut self, from: u32, number: u64, at: Time) {
        self.milestone(from, number, |milestones| milestones.ready = at);
    }

    pub(super) fn taken_by(&mut self, node: u32, from: u32, number: u64, len: u64, now: Time) {
        if self.taken == 0 {
            self.first_taken = now;
        }
        self.taken += 1;
        self.bytes += len;
        self.last_taken = now;
        self.milestone(from, number, |milestones| milestones.taken = now);
        if let Some((receiver, list)) = &mut self.deliveries
            && *receiver == node
        {
            list.push(Taken { from, number, len });
        }
    }

    fn milestone(&mut self, from: u32, number: u64, reached: impl FnOnce(&mut Milestones)) {
        let list = self.milestones.as_mut().filter(|_| number == 0);
        if let Some(milestones) = list.and_then(|list| list.get_mut(from as usize)) {
            reached(milestones);
        }
    }

    /// Messages that hosts have taken.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Payload bytes of those messages.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// From the first message's send until its receiver had it.
    #[must_use]
    pub fn first(&self) -> Span {
        self.first_taken - self.begun.unwrap_or_default()
    }

    /// From the first message's send until the last message was taken.
    #[must_use]
    pub fn all(&self) -> Span {
        self.last_taken - self.begun.unwrap_or_default()
    }

    /// When the movers were at work, all adapters together.
    #[must_use]
    pub fn stages(&self) -> Vec<StageTime> {
        let stage = |(name, work): (&str, &Work)| StageTime {
            stage: name.to_owned(),
            first_us: work.first.unwrap_or_default().as_us(),
            last_us: work.last.as_us(),
            busy_us: work.busy.as_us(),
            pulses: work.pulses,
        };
        MOVERS.into_iter().zip(&self.work).map(stage).collect()
    }
}
