//! What a node does with what comes: a request, the reply to a call, the end of a channel.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use cutthrough_engine::am::budget::Budget;
use cutthrough_engine::am::message::{ARGS_MAX, Arguments, CallId, is_direct};
use cutthrough_engine::am::{Failure, Got, Plain, ReplyTo};
use cutthrough_engine::count::Counter;
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::Token;
use cutthrough_node::clock;
use cutthrough_node::incoming::{Channel, Connecting, Incoming, Payload};
use cutthrough_node::node::ConnectError;

use super::continuing::Continuing;
use super::event::{Beside, Call, CallError, Ended, Event, Failed, Reply, Unanswered};
use super::gather::{Of, Part, is_arriving};
use super::handlers::Coming;
use super::request::More;
use super::way::{Body, Kept, Straight};
use super::{Context, Continuation, DATE_NS, Inside, NAP, Node, POLLS_PER_LOOK, Tally, Then, WINDOW, Wanted};

/// Most boxes that are kept for calls to come: as many as may be under way on a channel before its window grows.
const SPARE: usize = WINDOW as usize;

/// What a message was.
pub(super) enum Taken {
    /// Nothing that is left to be done.
    Done,
    /// What has happened is told by the next event.
    Ready,
    /// The reply to a call.
    Reply(CallId, Context),
    /// A direct reply that nobody has announced yet.
    Early(CallId),
    /// A request that waits until all of its payload has come, or behind one that does.
    Aside(Coming, Part),
    /// No message.
    Other,
}

impl Inside {
    pub(super) fn reply_with(&mut self, to: ReplyTo, args: &[u8], token: Option<Token>, body: Body<'_>) {
        if args.len() > ARGS_MAX {
            return self.fail(to, Failure::TooLong, &[]);
        }
        let body = if body.is_empty() { Body::None } else { body };
        let args = Arguments::Bytes(args);
        let (mut way, core) = self.split();
        let went = match body {
            Body::None => core.reply(&mut way, to, args, token, ()),
            body => core.reply(&mut way, to, args, token, body),
        };
        if !went {
            self.count_thrown();
        }
    }

    /// A reply with nothing but words to a request that has come on this channel, by whoever has the right to it, and
    /// has not used it up.
    pub(super) fn reply_words(&mut self, channel: Channel, to: &mut Option<ReplyTo>, words: &[u32]) {
        self.reply_plain(channel, to, Arguments::Words(words));
    }

    /// The same with bytes.
    pub(super) fn reply_bytes(&mut self, channel: Channel, to: &mut Option<ReplyTo>, args: &[u8]) {
        self.reply_plain(channel, to, Arguments::Bytes(args));
    }

    /// The right is used up where it lies, and nothing is passed in memory: to move what was just written in pieces
    /// takes as long as all the rest.
    #[inline(always)]
    fn reply_plain(&mut self, channel: Channel, to: &mut Option<ReplyTo>, args: Arguments<'_>) {
        let mut way = Straight { endpoint: &mut self.endpoint, door: channel };
        if let Some(there) = to
            && there.row() == channel.index()
            && self.core.reply_now(&mut way, there, args)
        {
            *to = None;
        } else if let Some(there) = to.take() {
            self.reply_later(there, args);
        }
    }

    /// The same for one that says more, or has to wait, or is too long.
    #[cold]
    fn reply_later(&mut self, to: ReplyTo, args: Arguments<'_>) {
        if args.len() > ARGS_MAX {
            return self.fail(to, Failure::TooLong, &[]);
        }
        let (mut way, core) = self.split();
        if !core.reply(&mut way, to, args, None, ()) {
            self.count_thrown();
        }
    }

    /// Sends what waits for room, as far as there is some.
    pub(super) fn flush(&mut self) {
        if self.core.has_backlog() {
            let (mut way, core) = self.split();
            cutthrough_engine::am::Core::<Context, Kept>::flush(core, &mut way);
            self.count_thrown();
        }
    }

    /// Counts the replies that were thrown away.
    #[cold]
    fn count_thrown(&mut self) {
        let thrown = self.core.take_thrown();
        self.endpoint.count(Counter::RepliesAbandoned, thrown);
    }

    pub(super) fn fail(&mut self, to: ReplyTo, why: Failure, args: &[u8]) {
        match why {
            // Whoever has asked knows.
            Failure::Cancelled => {}
            Failure::Busy => self.endpoint.count(Counter::RequestsBusy, 1),
            Failure::HandlerBusy => self.endpoint.count(Counter::HandlersBusy, 1),
            Failure::Abandoned => self.endpoint.count(Counter::RepliesAbandoned, 1),
            _ => self.endpoint.count(Counter::RequestsRefused, 1),
        }
        let args = &args[..args.len().min(ARGS_MAX)];
        let (mut way, core) = self.split();
        core.fail(&mut way, to, why, args, ());
    }

    /// Who has made a request does not wait for it any more: nor does this node, if it has handed it over.
    fn cancel_handed(&mut self, row: u32, call: CallId) {
        if let Some(Some(wanted)) = self.core.cancel_handed(row, call)
            && let Then::Passed(to) = wanted.then
        {
            self.core.handed(&to, Some(Failure::Cancelled));
        }
    }
}

impl Node {
    /// A channel is the node's.
    pub(super) fn open(&mut self, channel: Channel) {
        let row = channel.index() as usize;
        if let Some(before) = self.inside.door(channel.index()).filter(|before| *before != channel) {
            self.end(before, cutthrough_node::shm::link::CloseReason::Here.into());
        }
        if self.inside.doors.len() <= row {
            self.inside.doors.resize(row + 1, None);
        }
        let generation = self.inside.endpoint.peer(channel).map_or(0, |peer| peer.generation);
        self.inside.doors[row] = Some(channel);
        self.inside.core.opened(channel.index(), generation);
    }

    /// A channel has ended: so have its calls. Where the endpoint has it still, it is to be closed behind this: until
    /// then what was granted can be taken back.
    pub(super) fn end(&mut self, channel: Channel, why: Ended) {
        let row = channel.index();
        if self.inside.door(row) != Some(channel) {
            return;
        }
        self.end_gathering(channel, why);
        self.inside.core.closed(row);
        self.inside.count_thrown();
        while let Some(ended) = self.inside.core.lost(row) {
            // Who was to answer is gone, and perhaps not who was asked.
            let error = if ended.row == row { CallError::Closed(why) } else { Failure::Gone.into() };
            self.failed(ended.call, ended.context, error, &[]);
        }
        self.inside.doors[row as usize] = None;
        self.inside.deferred.end(row);
        // With a channel ends whoever should have announced a direct reply, too.
        self.early.end(channel, self.inside.core.calls());
        self.ready.push_back(Event::Closed(channel, why));
    }

    /// What has happened, if it is the user's matter.
    pub(super) fn take(&mut self, mut event: crate::Event) -> Option<Event> {
        let taken = match &mut event {
            crate::Event::Message(incoming) => self.take_message(incoming),
            _ => Taken::Other,
        };
        self.finish(taken, event)
    }

    /// What has happened, once it was looked at.
    pub(super) fn finish(&mut self, taken: Taken, event: crate::Event) -> Option<Event> {
        match (taken, event) {
            (Taken::Reply(call, context), crate::Event::Message(incoming)) => {
                return self.replied(incoming, call, context);
            }
            (Taken::Early(call), crate::Event::Message(incoming)) => {
                let lost = self.early.put(call, incoming, self.inside.core.calls());
                self.inside.endpoint.count(Counter::RepliesAbandoned, u64::from(lost));
            }
            (Taken::Aside(coming, part), crate::Event::Message(incoming)) => {
                self.put_aside(incoming, part, Of::Request(coming));
            }
            (Taken::Ready, _) => return self.ready.pop_front(),
            (_, crate::Event::Opened(channel)) => {
                self.open(channel);
                self.ready.push_back(Event::Opened(channel));
                return self.ready.pop_front();
            }
            (_, crate::Event::Connected(connecting, outcome)) => {
                self.connected(connecting, outcome);
                return self.ready.pop_front();
            }
            (_, crate::Event::Closed(channel, reason)) => {
                self.end(channel, reason.into());
                return self.ready.pop_front();
            }
            _ => {}
        }
        None
    }

    /// What has become of a channel that was being opened is known.
    fn connected(&mut self, connecting: Connecting, outcome: Result<Channel, ConnectError>) {
        if let Ok(channel) = outcome {
            self.open(channel);
        }
        match self.callers.iter().position(|(of, _)| *of == connecting) {
            Some(place) => {
                let (_, then) = self.callers.swap_remove(place);
                upcall(|| then(outcome));
            }
            None => self.ready.push_back(Event::Connected(connecting, outcome)),
        }
    }

    /// A call was handed over, so its reply may have come already. The core knows which one to believe.
    fn announced(&mut self, call: CallId) {
        for mut aside in self.early.take(call) {
            let Taken::Reply(call, context) = self.take_message(&mut aside.incoming) else { continue };
            if aside.lost {
                self.failed(call, context, Failure::Abandoned.into(), &[]);
                continue;
            }
            let event = self.replied(aside.incoming, call, context);
            self.ready.extend(event);
        }
    }

    /// Looks at a message where it is.
    #[inline(always)]
    pub(super) fn take_message(&mut self, incoming: &mut Incoming) -> Taken {
        let channel = incoming.channel();
        let row = channel.index();
        if self.inside.door(row) != Some(channel) {
            return Taken::Done;
        }
        match self.inside.core.accept_plain(row, incoming.control()) {
            Plain::Request(handler, args, budget, to) => {
                let left = budget.map(|budget| self.left(row, budget));
                let more = left.map(|left| More::new(None, Some(left)));
                self.serve(incoming, Coming { handler, args, late: left == Some(0), more, to })
            }
            Plain::Reply(call, context, _) => Taken::Reply(call, context),
            Plain::Other => self.take_other(incoming),
        }
    }

    /// What is left of the time that the answer to a request may take, which is taken in now.
    #[inline(always)]
    fn left(&mut self, row: u32, budget: Budget) -> u64 {
        // The last tick tells whether the clock is worth a look.
        let usual = self.inside.core.has_not_waited(row, budget, clock::coarse());
        if usual { budget.nanos() } else { self.left_of_waiting(row, budget) }
    }

    /// The same for one that may have lain somewhere: in a ring, a socket, or a queue on its way.
    #[cold]
    fn left_of_waiting(&mut self, row: u32, budget: Budget) -> u64 {
        let idle = self.idle.max(self.inside.endpoint.rested());
        self.inside.core.left(row, budget, clock::now(), idle)
    }

    /// A message that is no plain request or reply.
    #[inline(never)]
    #[allow(clippy::cast_possible_truncation, reason = "at most 64 bytes of arguments")]
    fn take_other(&mut self, incoming: &mut Incoming) -> Taken {
        let channel = incoming.channel();
        let row = channel.index();
        match self.inside.core.accept(row, incoming.control()) {
            Ok(Got::Request(message, to)) => {
                let (handler, args, token) = (message.handler, message.args.len() as u8, message.token);
                let left = message.budget.map(|budget| self.left(row, budget));
                let (late, more) = (left == Some(0), Some(More::new(token, left)));
                self.serve(incoming, Coming { handler, args, late, more, to })
            }
            Ok(Got::Reply(call, context, _)) => Taken::Reply(call, context),
            Ok(Got::Failed(call, context, why, args)) => {
                let (args, was_handed) = (args.to_vec(), is_direct(incoming.control()));
                self.failed_by(was_handed, call, context, why.into(), &args);
                Taken::Ready
            }
            Ok(Got::Early(call)) => Taken::Early(call),
            Ok(Got::Announced(call)) => {
                self.announced(call);
                Taken::Ready
            }
            Ok(Got::Cancelled(call)) => {
                let put_off = self.inside.deferred.cancel(row, call);
                self.inside.cancel_handed(row, call);
                for to in put_off.into_iter().chain(self.gathering.take_request(row, call)) {
                    // Who has handed it over gives up when its deadline has passed, and says the same.
                    let why = if to.is_handed_over() { Failure::Late } else { Failure::Cancelled };
                    self.inside.fail(to, why, &[]);
                }
                Taken::Done
            }
            Ok(Got::Nothing) => Taken::Done,
            Err(malformed) => {
                self.inside.endpoint.count(Counter::BreachMessage, 1);
                self.end(channel, malformed.into());
                self.inside.endpoint.close(channel);
                Taken::Ready
            }
        }
    }

    /// A reply has come.
    #[inline]
    pub(super) fn replied(&mut self, incoming: Incoming, call: CallId, context: Context) -> Option<Event> {
        if matches!(incoming.payload(), Payload::Dropped(_)) {
            self.failed(call, context, Failure::Token.into(), &[]);
            return self.ready.pop_front();
        }
        let arriving = is_arriving(&incoming);
        let then = context.as_ref().map_or(&Then::Tell, |wanted| &wanted.then);
        if arriving && matches!(then, Then::Seek | Then::Handler(_) | Then::Continue(_) | Then::Tally(_)) {
            return self.gather_reply(incoming, call, context);
        }
        // Who is told reads the rest of the payload, as long as the call may take.
        let until = arriving.then(|| self.due(call));
        let Some(wanted) = context else {
            let beside = until.map(|_| Box::new(Beside { landing: None, until }));
            return Some(Event::Replied(Reply { incoming, beside }));
        };
        // Whatever came, the token is dead from now on; where it was not used, its place is free again.
        let Wanted { then, token } = self.unbox(wanted);
        let landing = self.inside.kill(token);
        let is_plain = landing.is_none() && until.is_none();
        let beside = if is_plain { None } else { Some(Box::new(Beside { landing, until })) };
        let reply = Reply { incoming, beside };
        match then {
            Then::Tell | Then::Seek => return Some(Event::Replied(reply)),
            Then::Handler(handler) => {
                if let Some(take) = self.replies.get_mut(usize::from(handler)).and_then(Option::as_mut) {
                    upcall(|| take(Ok(reply)));
                }
            }
            Then::Continue(slot) => {
                if let Some(run) = self.take_continuation(slot) {
                    let mut inside = Continuing { endpoint: &mut self.inside.endpoint };
                    upcall(|| run.run(&mut inside, Ok(reply)));
                }
            }
            Then::Passed(to) => self.inside.core.handed(&to, None),
            Then::Tally(tally) => self.count(tally, Call(call), Ok(reply)),
        }
        None
    }

    /// A reply that nobody shall have before all of its payload has come.
    #[cold]
    pub(super) fn gather_reply(&mut self, mut incoming: Incoming, call: CallId, context: Context) -> Option<Event> {
        let mut part = Part::default();
        match part.is_whole(&mut self.inside.endpoint, &mut incoming) {
            Ok(true) => self.replied(incoming, call, context),
            Ok(false) => {
                self.put_aside(incoming, part, Of::Reply(call, context));
                None
            }
            Err(error) => {
                self.failed(call, context, error.into(), &[]);
                None
            }
        }
    }

    /// A call has ended without a reply: whoever waits for it is told, now or by an event.
    pub(super) fn failed(&mut self, call: CallId, context: Context, error: CallError, args: &[u8]) {
        self.failed_by(false, call, context, error, args);
    }

    /// The same; `was_handed` if whoever it was handed to says so.
    fn failed_by(&mut self, was_handed: bool, call: CallId, context: Context, error: CallError, args: &[u8]) {
        if error == CallError::Late {
            self.inside.endpoint.count(Counter::CallsLate, 1);
        }
        let nothing = Wanted { then: Then::Tell, token: None };
        let Wanted { then, token } = context.map_or(nothing, |wanted| self.unbox(wanted));
        let landing = self.inside.kill(token);
        let call = Call(call);
        match then {
            Then::Tell | Then::Seek => {
                let args = args.to_vec();
                self.ready.push_back(Event::Failed(Failed { call, error, args, landing, was_handed }));
            }
            Then::Handler(handler) => {
                if let Some(take) = self.replies.get_mut(usize::from(handler)).and_then(Option::as_mut) {
                    let args = args.to_vec();
                    upcall(|| take(Err(Failed { call, error, args, landing, was_handed })));
                }
            }
            Then::Continue(slot) => {
                if let Some(run) = self.take_continuation(slot) {
                    let failed = Failed { call, error, args: args.to_vec(), landing, was_handed };
                    let mut inside = Continuing { endpoint: &mut self.inside.endpoint };
                    upcall(|| run.run(&mut inside, Err(failed)));
                }
            }
            Then::Passed(to) => {
                let why = match error {
                    CallError::Failed(why) => why,
                    CallError::Late => Failure::Late,
                    _ => Failure::Gone,
                };
                self.inside.core.handed(&to, Some(why));
            }
            Then::Tally(tally) => {
                self.count(tally, call, Err(Unanswered { error, args: args.to_vec(), landing }));
            }
        }
    }

    /// What shall happen with an answer. Its box is kept for another call.
    pub(super) fn unbox(&mut self, mut wanted: Box<Wanted>) -> Wanted {
        let its = std::mem::replace(&mut *wanted, Wanted { then: Then::Tell, token: None });
        // Calls that hand a request over bring boxes of their own.
        if self.spare.len() < SPARE {
            self.spare.push(wanted);
        }
        its
    }

    pub(super) fn take_continuation(&mut self, slot: u32) -> Option<Continuation> {
        let taken = self.continuations.get_mut(slot as usize)?.take()?;
        self.free_continuations.push(slot);
        Some(taken)
    }

    /// Takes in one event for somebody who waits for calls of his own; what else happens is kept for later polls. True
    /// if there was one, or anything has come of what was put aside. `sleep`: waits for it a while.
    pub(crate) fn drive(&mut self, sleep: bool) -> bool {
        self.polls = self.polls.wrapping_add(1);
        let moved = self.has_chores() && self.tend();
        if sleep || self.polls.is_multiple_of(POLLS_PER_LOOK) {
            self.look(false);
        }
        let nap = if self.gathering.is_empty() { NAP } else { NAP / 10 };
        let sleeps = sleep && !moved;
        let event = if sleeps { self.inside.wait(Some(nap)).ok() } else { self.inside.endpoint.poll() };
        let Some(event) = event else { return moved };
        let kept = std::mem::take(&mut self.ready);
        let event = self.take(event);
        let fresh = std::mem::replace(&mut self.ready, kept);
        self.ready.extend(event.into_iter().chain(fresh));
        true
    }

    /// Gives a call this deadline, unless it was made with one.
    pub(crate) fn date_one(&mut self, call: Call, deadline: Instant) {
        self.inside.core.date_one(call.0, deadline);
    }

    /// Begins to count calls.
    pub(crate) fn begin_tally(&mut self) -> u32 {
        self.tallies.push(Tally::default());
        u32::try_from(self.tallies.len() - 1).unwrap_or(u32::MAX)
    }

    /// What was counted.
    pub(crate) fn tally(&mut self, tally: u32) -> &mut Tally {
        &mut self.tallies[tally as usize]
    }

    /// Ends the counting that was begun last.
    pub(crate) fn end_tally(&mut self, tally: u32) {
        self.tallies.truncate(tally as usize);
    }

    fn count(&mut self, tally: u32, call: Call, result: Result<Reply, Unanswered>) {
        if let Some(tally) = self.tallies.get_mut(tally as usize) {
            tally.ended.push((call, result));
        }
    }

    /// Whether there is anything to be done beside taking in what comes.
    #[inline]
    pub(super) fn has_chores(&self) -> bool {
        self.inside.core.has_backlog() || self.inside.shelf.any() || !self.gathering.is_empty()
    }

    /// Sends what waits for room, and answers that other threads have left, and reads on in what was put aside. True if
    /// anything has come of that.
    #[cold]
    pub(super) fn tend(&mut self) -> bool {
        if self.inside.shelf.any() {
            self.inside.send_left();
        }
        self.inside.flush();
        !self.gathering.is_empty() && self.gather()
    }

    /// Looks at the clock: which calls are late. `closely` before a sleep.
    #[cold]
    pub(super) fn look(&mut self, closely: bool) -> Instant {
        let now = clock::now();
        let stale = now.saturating_since(self.dated) > DATE_NS;
        if self.inside.core.calls().has_undated() && (stale || closely) {
            self.inside.core.date(now.after(nanos(self.settings.deadline)));
        }
        if stale {
            self.dated = now;
        }
        if now >= self.inside.core.calls().due() {
            while let Some((call, _, context)) = self.inside.core.expire(now) {
                self.failed(call, context, CallError::Late, &[]);
            }
            self.tend();
        }
        self.expire_gathered(now);
        now
    }

    /// A poll has served requests: whether the system's clock has ticked since one has asked last, which takes two
    /// nanoseconds. Who `looks` then sees what is late.
    #[cold]
    #[inline(never)]
    pub(super) fn has_ticked(&mut self, looks: bool) -> bool {
        let tick = clock::coarse();
        let has_ticked = std::mem::replace(&mut self.tick, tick) != tick;
        if has_ticked && looks {
            self.look(false);
        }
        has_ticked
    }
}

/// Runs what somebody has given. A panic ends there: whoever polls goes on, be it the only thread that does.
#[inline(always)]
pub(crate) fn upcall(run: impl FnOnce()) {
    // What it shares with the rest of the program is its own matter; the node's own state is whole.
    if let Err(with) = catch_unwind(AssertUnwindSafe(run)) {
        let_go(with);
    }
}

/// Drops what somebody has panicked with, which may panic, too.
#[cold]
fn let_go(with: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(with))) {
        std::mem::forget(again);
    }
}

/// A duration in nanoseconds.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
