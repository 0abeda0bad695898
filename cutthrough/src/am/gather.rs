//! Messages whose payload is still on its way: they are put aside until all of it has come, so that nobody but who
//! sends it waits for it.
//!
//! Messages of a channel are put aside in the order in which they came, and the first of them is read: what comes
//! behind a request that was put aside is served after it. There are never more than may be under way, for a request
//! counts against its sender's window until it is answered. Memory for a payload grows as its bytes come: the system
//! gives pages only to what is written.

use std::collections::VecDeque;

use cutthrough_engine::am::calls::NEVER;
use cutthrough_engine::am::message::CallId;
use cutthrough_engine::am::{Failure, ReplyTo};
use cutthrough_engine::count::Counter;
use cutthrough_engine::time::Instant;
use cutthrough_node::clock;
use cutthrough_node::incoming::{Channel, Incoming, Payload, zeros};
use cutthrough_node::shm::receive::ReadError;

use super::event::{CallError, Ended, Reply, call_of};
use super::handlers::Coming;
use super::serve::nanos;
use super::{Context, Node};
use crate::Endpoint;

/// Nanoseconds for which more of a payload is looked for before a node sleeps in between: as long as an endpoint looks.
const SPIN_NS: u64 = 50_000;
/// Looks for more of a payload before others have their turn.
const LOOKS: u32 = 64;
/// Looks in vain before the node sleeps in between.
const LOOKS_AWAKE: u32 = 4096;

/// What a message is that was put aside.
#[derive(Debug)]
pub(super) enum Of {
    Request(Coming),
    Reply(CallId, Context),
}

/// What has come of a payload.
#[derive(Debug, Default)]
pub(super) struct Part {
    bytes: Vec<u8>,
    valid: usize,
}

/// What reading on has come to.
enum Step {
    /// All is there, and held by the message.
    Whole,
    /// There is more to come; whether anything has.
    More(bool),
}

impl Part {
    /// Reads on, without waiting. Whether all is there: then the message holds it.
    ///
    /// # Errors
    /// [`ReadError`], if the rest will never come.
    pub(super) fn is_whole(&mut self, endpoint: &mut Endpoint, incoming: &mut Incoming) -> Result<bool, ReadError> {
        self.read(endpoint, incoming).map(|step| matches!(step, Step::Whole))
    }

    fn read(&mut self, endpoint: &mut Endpoint, incoming: &mut Incoming) -> Result<Step, ReadError> {
        if !is_arriving(incoming) {
            return Ok(Step::Whole);
        }
        if self.bytes.is_empty() {
            let bytes = incoming.payload_len();
            self.bytes = zeros(bytes).ok_or(ReadError::NoMemory(bytes))?;
        }
        let valid = endpoint.read_some(incoming, &mut self.bytes)?;
        if is_arriving(incoming) {
            let grown = valid > self.valid;
            self.valid = valid;
            return Ok(Step::More(grown));
        }
        incoming.hold(std::mem::take(&mut self.bytes));
        Ok(Step::Whole)
    }
}

/// What a request ends as whose payload was not read.
pub(super) const fn unread(error: ReadError) -> Failure {
    match error {
        ReadError::NoMemory(_) => Failure::Busy,
        // The channel is ending; its end tells the rest.
        ReadError::TooSmall(_) | ReadError::Nothing | ReadError::Closed(_) => Failure::Abandoned,
    }
}

pub(super) fn is_arriving(incoming: &Incoming) -> bool {
    matches!(incoming.payload(), Payload::Arriving(_))
}

/// A message that was put aside.
#[derive(Debug)]
struct Waiting {
    incoming: Incoming,
    part: Part,
    of: Of,
    /// When nobody waits for it any more.
    deadline: Instant,
}

/// All messages that were put aside.
#[derive(Debug)]
pub(super) struct Gathering {
    channels: Vec<(Channel, VecDeque<Waiting>)>,
    /// No deadline is earlier than this.
    due: Instant,
    /// When anything has come.
    moved: Instant,
}

impl Default for Gathering {
    fn default() -> Self {
        Self { channels: Vec::new(), due: NEVER, moved: Instant::default() }
    }
}

impl Gathering {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// Whether a request of this channel was put aside: then others wait behind it.
    #[inline]
    pub(super) fn holds_requests(&self, channel: Channel) -> bool {
        let its = self.channels.iter().find(|(its, _)| *its == channel);
        its.is_some_and(|(_, waiting)| waiting.iter().any(|waiting| matches!(waiting.of, Of::Request(_))))
    }

    /// When the first of the deadlines may have passed.
    pub(super) const fn due(&self) -> Instant {
        self.due
    }

    /// Whether more is likely to come at once.
    pub(super) fn is_moving(&self, now: Instant) -> bool {
        !self.is_empty() && now.saturating_since(self.moved) < SPIN_NS
    }

    fn push(&mut self, waiting: Waiting) {
        let channel = waiting.incoming.channel();
        self.due = self.due.min(waiting.deadline);
        match self.channels.iter_mut().find(|(its, _)| *its == channel) {
            Some((_, its)) => its.push_back(waiting),
            None => self.channels.push((channel, VecDeque::from([waiting]))),
        }
    }

    /// Takes out what is as `which` says. Payloads that are on their way are thrown away when they come.
    fn take(&mut self, mut which: impl FnMut(&Waiting) -> bool) -> Vec<Waiting> {
        let mut taken = Vec::new();
        for (_, waiting) in &mut self.channels {
            let mut at = 0;
            while at < waiting.len() {
                if which(&waiting[at]) { taken.extend(waiting.remove(at)) } else { at += 1 }
            }
        }
        self.channels.retain(|(_, waiting)| !waiting.is_empty());
        taken
    }

    /// Whoever has made this call on a row does not wait for it any more: the right to say so, if it was put aside.
    pub(super) fn take_request(&mut self, row: u32, call: CallId) -> Option<ReplyTo> {
        let its = |waiting: &Waiting| {
            let Waiting { incoming, of, .. } = waiting;
            matches!(of, Of::Request(_)) && incoming.channel().index() == row && call_of(incoming) == call
        };
        self.take(its).pop().and_then(|waiting| match waiting.of {
            Of::Request(coming) => Some(coming.to),
            Of::Reply(..) => None,
        })
    }

    /// Gives the reply to a call, if it was put aside, a deadline: what is to become of it.
    pub(super) fn date(&mut self, call: CallId, deadline: Instant) -> Option<&mut Context> {
        let mut all = self.channels.iter_mut().flat_map(|(_, waiting)| waiting);
        let its = all.find(|waiting| matches!(&waiting.of, Of::Reply(its, _) if *its == call))?;
        self.due = self.due.min(deadline);
        its.deadline = deadline;
        match &mut its.of {
            Of::Request(_) => None,
            Of::Reply(_, context) => Some(context),
        }
    }

    /// What was to become of a reply that was put aside.
    pub(super) fn take_reply(&mut self, call: CallId) -> Option<Context> {
        let its = |waiting: &Waiting| matches!(&waiting.of, Of::Reply(its, _) if *its == call);
        self.take(its).pop().and_then(|waiting| match waiting.of {
            Of::Request(_) => None,
            Of::Reply(_, context) => Some(context),
        })
    }
}

impl Node {
    /// Puts a message aside of whose payload this much has come.
    #[cold]
    pub(super) fn put_aside(&mut self, incoming: Incoming, part: Part, of: Of) {
        let now = clock::now();
        let deadline = match &of {
            Of::Request(coming) => coming.deadline().unwrap_or(NEVER),
            Of::Reply(call, _) => self.due(*call),
        };
        self.gathering.moved = now;
        self.gathering.push(Waiting { incoming, part, of, deadline });
    }

    /// When the payload of a reply has to be there.
    pub(super) fn due(&self, call: CallId) -> Instant {
        let deadline = self.inside.core.calls().deadline(call);
        deadline.unwrap_or_else(|| clock::now().after(nanos(self.settings.deadline)))
    }

    /// Reads on in what was put aside, and serves what has come. True if anything has.
    #[cold]
    pub(super) fn gather(&mut self) -> bool {
        let (mut at, mut moved) = (0, false);
        while at < self.gathering.channels.len() {
            moved |= self.gather_from(at);
            if self.gathering.channels[at].1.is_empty() {
                self.gathering.channels.swap_remove(at);
            } else {
                at += 1;
            }
        }
        if moved {
            self.gathering.moved = clock::now();
        }
        moved
    }

    /// The same for the messages of one channel.
    fn gather_from(&mut self, at: usize) -> bool {
        let mut moved = false;
        loop {
            let Some(first) = self.gathering.channels[at].1.front_mut() else { return moved };
            let step = match first.part.read(&mut self.inside.endpoint, &mut first.incoming) {
                Ok(Step::More(grown)) => return moved | grown,
                Ok(Step::Whole) => Ok(()),
                Err(error) => Err(error),
            };
            moved = true;
            if let Some(waiting) = self.gathering.channels[at].1.pop_front() {
                self.has_come(waiting, step);
            }
        }
    }

    /// All of a payload has come, or the rest never will.
    fn has_come(&mut self, waiting: Waiting, step: Result<(), ReadError>) {
        let Waiting { mut incoming, of, deadline, .. } = waiting;
        match (of, step) {
            (Of::Request(mut coming), Ok(())) => {
                coming.late = deadline <= clock::now();
                self.serve_whole(&mut incoming, coming);
            }
            (Of::Request(coming), Err(error)) => self.inside.fail(coming.to, unread(error), &[]),
            (Of::Reply(call, context), Ok(())) => {
                let event = self.replied(incoming, call, context);
                self.ready.extend(event);
            }
            (Of::Reply(call, context), Err(error)) => self.failed(call, context, error.into(), &[]),
        }
    }

    /// Nobody waits any more for what was put aside and is late.
    pub(super) fn expire_gathered(&mut self, now: Instant) {
        if now < self.gathering.due {
            return;
        }
        let mut due = NEVER;
        let late = self.gathering.take(|waiting| {
            let late = waiting.deadline <= now;
            due = if late { due } else { due.min(waiting.deadline) };
            late
        });
        self.gathering.due = due;
        for waiting in late {
            match waiting.of {
                Of::Request(coming) => self.inside.fail(coming.to, Failure::Late, &[]),
                Of::Reply(call, context) => self.failed(call, context, CallError::Late, &[]),
            }
        }
    }

    /// A channel has ended: what has come of it as a whole is served, and the rest will never come.
    pub(super) fn end_gathering(&mut self, channel: Channel, why: Ended) {
        let Some(at) = self.gathering.channels.iter().position(|(its, _)| *its == channel) else { return };
        self.gather_from(at);
        let (_, left) = self.gathering.channels.swap_remove(at);
        for waiting in left {
            match waiting.of {
                Of::Request(coming) => self.inside.fail(coming.to, Failure::Abandoned, &[]),
                Of::Reply(call, context) => self.failed(call, context, CallError::Closed(why), &[]),
            }
        }
    }

    /// Gives back what a reply still holds, as dropping it does, but without locked instructions.
    pub fn release(&mut self, reply: Reply) {
        self.inside.endpoint.release(reply.incoming);
    }

    /// Copies a reply's payload into memory while the rest of it still comes in, but no longer than its call may take.
    /// Serves requests meanwhile, and keeps events for later polls.
    ///
    /// # Errors
    /// [`CallError::Late`], if it does not come in time: then it is thrown away. [`CallError::Closed`], if the channel
    /// has ended before. [`CallError::Payload`].
    pub fn read(&mut self, reply: &mut Reply, into: &mut [u8]) -> Result<(), CallError> {
        let Some(until) = reply.until() else {
            self.inside.endpoint.read(&mut reply.incoming, into)?;
            return Ok(());
        };
        let (mut looks, mut in_vain, mut before) = (0_u32, 0_u32, 0);
        loop {
            let valid = self.inside.endpoint.read_some(&mut reply.incoming, into)?;
            if !is_arriving(&reply.incoming) {
                return Ok(());
            }
            in_vain = if valid > before { 0 } else { in_vain + 1 };
            before = valid;
            looks = looks.wrapping_add(1);
            if !looks.is_multiple_of(LOOKS) {
                std::hint::spin_loop();
                continue;
            }
            if clock::now() >= until {
                drop(reply.take_payload());
                self.inside.endpoint.count(Counter::CallsLate, 1);
                return Err(CallError::Late);
            }
            if in_vain >= LOOKS {
                self.drive(in_vain > LOOKS_AWAKE);
            }
        }
    }
}
