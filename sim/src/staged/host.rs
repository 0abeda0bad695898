//! The hosts: what their programs do with messages, one thing at a time.

use std::collections::VecDeque;

use crate::time::{Span, Time};

use super::machine::{Machine, Notice, share};

/// What a host's program does.
#[derive(Debug, Clone, Default)]
pub(super) struct Program {
    /// Messages that it sends by itself.
    pub(super) sends: Option<Sends>,
    /// Length of the payload with which it answers every message that it takes.
    pub(super) reply: Option<u64>,
}

/// Messages to send.
#[derive(Debug, Clone)]
pub(super) struct Sends {
    /// To whom.
    pub(super) to: To,
    /// How long they are.
    pub(super) lens: Lens,
    /// How many there are.
    pub(super) count: u64,
    /// How many may be unanswered at the same time; `u64::MAX` if no answers come.
    pub(super) window: u64,
}

/// Receivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum To {
    /// This host.
    One(u32),
    /// Every other host in turn, beginning with the next one.
    Others,
}

/// Lengths of payloads.
#[derive(Debug, Clone)]
pub enum Lens {
    /// All the same.
    Same(u64),
    /// One after the other.
    List(Vec<u64>),
}

/// A message that the adapter has laid ready for its host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ready {
    pub(super) number: u64,
    pub(super) from: u32,
    pub(super) len: u64,
    pub(super) at: Time,
}

/// What a host's processor does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    Post { to: u32, len: u64 },
    Take(Ready),
}

/// A host.
#[derive(Debug)]
pub(super) struct Host {
    program: Program,
    notice: Notice,
    /// Whether messages are copied on their way between the program's memory and the adapter's.
    copies: bool,
    pub(super) busy: Option<(Op, Time)>,
    /// When an idle host will look, if it has been told that there is something.
    pub(super) wake: Option<Time>,
    /// Since when it has looked and found nothing.
    idle_since: Time,
    pub(super) ready: VecDeque<Ready>,
    replies: VecDeque<(u32, u64)>,
    posted: u64,
    unanswered: u64,
    /// Slots of the send ring that are in use.
    pub(super) slots: u64,
}

impl Host {
    pub(super) fn new(program: Program, notice: Notice, copies: bool) -> Self {
        Self {
            program,
            notice,
            copies,
            busy: None,
            wake: None,
            idle_since: Time::START,
            ready: VecDeque::new(),
            replies: VecDeque::new(),
            posted: 0,
            unanswered: 0,
            slots: 0,
        }
    }

    /// Chooses what to do at `now`, and begins it: how much of the bus that takes.
    pub(super) fn choose(&mut self, now: Time, me: u32, hosts: u32, machine: &Machine, woken: bool) -> u64 {
        let op = self.next_op(now, me, hosts, machine);
        let Some(op) = op else {
            self.busy = None;
            if !woken {
                self.idle_since = now;
            }
            return if self.notice == Notice::Poll { machine.poll_share() } else { 0 };
        };
        let (work, [pio, taken]) = match op {
            Op::Post { len, .. } => (machine.host.post + self.copy(len, machine), machine.write_control()),
            Op::Take(Ready { len, .. }) => {
                let looked = woken || self.notice == Notice::Interrupt;
                let look = if looked { Span::ZERO } else { machine.host.poll };
                (look + machine.host.take + self.copy(len, machine), machine.read_control())
            }
        };
        let span = work + pio;
        self.busy = Some((op, now + span));
        self.wake = None;
        share(taken, span)
    }

    /// Whether it takes messages: a host that cannot get rid of its answers takes no more questions.
    fn takes(&self, machine: &Machine) -> bool {
        (self.replies.len() as u64) < machine.sram.slots
    }

    /// When the next message that it will take lies ready, if there is one.
    pub(super) fn expects(&self, machine: &Machine) -> Option<Time> {
        self.ready.front().filter(|_| self.takes(machine)).map(|ready| ready.at)
    }

    fn next_op(&mut self, now: Time, me: u32, hosts: u32, machine: &Machine) -> Option<Op> {
        if self.takes(machine) && self.ready.front().is_some_and(|ready| ready.at <= now) {
            return self.ready.pop_front().map(Op::Take);
        }
        if self.slots == machine.sram.slots {
            return None;
        }
        let post = self.replies.pop_front().or_else(|| self.next_message(me, hosts))?;
        self.slots += 1;
        Some(Op::Post { to: post.0, len: post.1 })
    }

    fn next_message(&mut self, me: u32, hosts: u32) -> Option<(u32, u64)> {
        let Sends { to, lens, count, window } = self.program.sends.as_ref()?;
        if self.posted == *count || self.unanswered >= *window {
            return None;
        }
        let to = match to {
            To::One(host) => *host,
            To::Others => {
                let step = 1 + self.posted % u64::from(hosts - 1).max(1);
                u32::try_from((u64::from(me) + step) % u64::from(hosts)).unwrap_or(0)
            }
        };
        let len = match lens {
            Lens::Same(len) => *len,
            Lens::List(list) => usize::try_from(self.posted).ok().and_then(|at| list.get(at)).copied().unwrap_or(0),
        };
        self.posted += 1;
        self.unanswered += u64::from(*window != u64::MAX);
        Some((to, len))
    }

    /// A message has been taken: it is answered, or it answers one.
    pub(super) fn taken(&mut self, from: u32) {
        match self.program.reply {
            Some(len) => self.replies.push_back((from, len)),
            None => self.unanswered = self.unanswered.saturating_sub(1),
        }
    }

    /// Tells an idle host that there is something from `at` on: when it looks, if that is sooner than it would.
    pub(super) fn tell(&mut self, now: Time, at: Time, machine: &Machine, notice: Notice) -> Option<Time> {
        if self.busy.is_some() {
            return None;
        }
        let at = at.max(now);
        let sees = match notice {
            Notice::Interrupt => at + machine.host.interrupt,
            Notice::Poll => {
                let poll = machine.host.poll;
                let looks = (at - self.idle_since).as_ps().div_ceil(poll.as_ps().max(1));
                self.idle_since + poll * (looks + 1)
            }
        };
        let sooner = self.wake.is_none_or(|wake| sees < wake);
        if sooner {
            self.wake = Some(sees);
        }
        sooner.then_some(sees)
    }

    pub(super) fn notice(&self) -> Notice {
        self.notice
    }

    fn copy(&self, len: u64, machine: &Machine) -> Span {
        if self.copies { machine.host.copy.span(len) } else { Span::ZERO }
    }
}
