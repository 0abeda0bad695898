//! A call: made, waited for, made again where that may be, and cancelled.

#[cfg(test)]
mod tests;
mod waiting;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cutthrough_engine::time::Instant;
use cutthrough_node::clock;
use cutthrough_node::incoming::Channel;
use cutthrough_node::node::SPIN_NS;
use cutthrough_node::shm::grant::{Landing, NoMemory};

use super::aside::Aside;
use super::client::Inside;
use super::idle;
use super::permits::Permit;
use super::queue::{AGAIN, Queue, Ticket};
use super::raw::{Raw, RawError};
use super::slot::Lent;
use super::turn::{self, Turn};
use crate::am::{Call, CallError, Continuation, Driving, Failed, Failure, Node, Others, Reply, RequestError, nanos};
use waiting::is_busy;

/// Nanoseconds for which a task looks for its answer before it sleeps, where a thread does so as long as an endpoint
/// that waits: others of its executor wait meanwhile, if they do not call, too.
const SPIN_TASK_NS: u64 = 10_000;
/// The same over a network: most answers take longer to come than it takes to be woken, but not much longer.
const SPIN_FAR_NS: u64 = 32_000;
/// Looks in one hold of the node.
const LOOKS: u32 = 8;
/// How long a task that found the node in use waits for it when it comes again, and others of its executor with it.
const QUEUES: Duration = Duration::from_micros(200);

/// The call, and how far it has come.
#[derive(Debug)]
pub(super) struct Calling<'a> {
    raw: Raw<'a>,
    within: Duration,
    /// When its time is over: not known before the clock was read, and a call that is over at once needs no clock.
    until: Option<Instant>,
    /// Where its answer is left, if it was not over at once.
    slot: Option<Lent>,
    call: Option<Call>,
    /// The call, while another thread makes it.
    aside: Option<Arc<Aside>>,
    /// Where it waits to be made, if its method is busy: apart from calls of others.
    method: Option<Arc<Queue>>,
    /// Whether it has had its turn there, and waits with all others since: there was no room.
    had_turn: bool,
    /// Where it stands, or has stood, among those that wait to be made.
    ticket: Option<Ticket>,
    /// The right to stand there, until it is made.
    permit: Option<Permit>,
    /// Whether it failed, and is to be made again.
    comes_again: bool,
    /// Why it was not answered, or not sent, when that was tried before.
    before: Option<CallError>,
    /// When it was made last, if a clock was read then; if a busy server was sent its payload for nothing, how long
    /// that took.
    tried: Option<Instant>,
    took: Duration,
    /// How often another channel could not be opened, when this call first found that its channel had ended.
    failed: Option<u64>,
    /// Whether a thread waits for it; else it is a task, and others of its executor wait meanwhile.
    blocks: bool,
    /// Whether its server is reached over a network.
    is_far: bool,
    pub(super) turn: Turn,
}

/// Makes a call, which may take so long, and looks for its answer for a moment. If that does not come, it is left in
/// the slot later, and this is the call.
#[inline]
pub(super) fn make(
    node: &mut Node,
    others: Others<'_>,
    raw: &mut Raw<'_>,
    (slot, answer): (&mut Option<Lent>, &mut Option<Result<Reply, Failed>>),
    channel: Channel,
    (within, leaves): (Duration, bool),
) -> Result<Call, RequestError> {
    let call = raw.ask(node, channel, within, None)?;
    if leaves || !node.seek(call, answer, || others.are_none()) {
        let taker = slot.get_or_insert_with(|| Lent::new(others.crowd())).taker();
        node.entrust(call, within, Continuation::Leave(taker));
    }
    Ok(call)
}

/// How far a call has come that was to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// It is under way.
    Yes,
    /// It waits for others, and is woken when it may be made.
    Waits,
    /// Another thread makes it.
    Aside,
    /// Somebody else has the node just now.
    No,
}

/// What has become of a try to make a call.
pub(super) struct Tried {
    pub(super) channel: Channel,
    /// `None`, if somebody else used the node just then, as the service's thread does for a moment where it was woken.
    pub(super) made: Option<Result<Call, RequestError>>,
    pub(super) answer: Option<Result<Reply, Failed>>,
}

/// When this time is over.
pub(super) fn after(now: Instant, within: Duration) -> Instant {
    now.after(nanos(within))
}

impl<'a> Calling<'a> {
    /// A call that a thread waits for, which may take so long from when the clock is read on.
    pub(super) const fn blocking(raw: Raw<'a>, within: Duration, slot: Option<Lent>) -> Self {
        Self::new(raw, (within, None), slot, true)
    }

    /// A call that a task waits for, which may take so long, until then.
    pub(super) const fn awaited(raw: Raw<'a>, within: Duration, until: Instant) -> Self {
        Self::new(raw, (within, Some(until)), None, false)
    }

    const fn new(raw: Raw<'a>, (within, until): (Duration, Option<Instant>), slot: Option<Lent>, blocks: bool) -> Self {
        Self {
            raw,
            within,
            until,
            slot,
            call: None,
            aside: None,
            method: None,
            had_turn: false,
            ticket: None,
            permit: None,
            comes_again: false,
            before: None,
            tried: None,
            took: Duration::ZERO,
            failed: None,
            blocks,
            is_far: false,
            turn: Turn::new(),
        }
    }

    /// It has the right to wait already, however long it is.
    pub(super) fn permit(&mut self, mut permit: Permit) {
        permit.carry(self.raw.kept());
        self.permit = Some(permit);
    }

    /// When its time is over, and how much of it is left.
    fn until(&mut self, now: Instant) -> (Instant, Duration) {
        let until = *self.until.get_or_insert_with(|| after(now, self.within));
        (until, Duration::from_nanos(until.saturating_since(now)))
    }

    /// Makes the call: whether it is under way now, or its outcome.
    fn make(
        &mut self,
        inside: &Arc<Inside>,
        driving: &Driving<'_>,
        now: Instant,
        waker: &Waker,
    ) -> ControlFlow<Result<Reply, RawError>, Made> {
        let (_, left) = self.until(now);
        self.tried = Some(now);
        let channel = inside.channel();
        let (mut answer, mut waits) = (None, false);
        let (raw, places) = (&mut self.raw, (&mut self.slot, &mut answer));
        let made = if self.blocks {
            // Others have the node again and again: this thread waits for its turn.
            let (begun, tried) = (clock::now(), &mut self.tried);
            driving.with_in(left, |node| {
                let now = *tried.insert(clock::now());
                let left = left.saturating_sub(Duration::from_nanos(now.saturating_since(begun)));
                make(node, driving.others(), raw, places, channel, (left, false))
            })
        } else {
            let (is_far, turn) = (&mut self.is_far, &mut self.turn);
            // Where threads use the node all the time, one waits for it in their line, and never finds it free.
            let queues = if self.ticket.is_some() { QUEUES } else { Duration::ZERO };
            driving.with_elsewhere_in(queues, |node| {
                *is_far = !node.answers_soon(channel);
                waits = !clock::is_simulated() && raw.waits(node, channel);
                if waits {
                    return Err(RequestError::Full);
                }
                // No answer comes from afar before others could run.
                let others = || turn::has_others() && driving.crowd().others_look();
                let leaves = *is_far && (others() || turn.lets_others_run());
                make(node, driving.others(), raw, places, channel, (left, leaves))
            })
        };
        if waits {
            self.may_wait(inside)?;
            if self.set_aside(inside, channel, now, waker) {
                return ControlFlow::Continue(Made::Aside);
            }
        }
        self.made(inside, Tried { channel, made, answer }, now, waker)
    }

    /// Has another thread make the call: whether there is one.
    fn set_aside(&mut self, inside: &Inside, channel: Channel, now: Instant, waker: &Waker) -> bool {
        let (until, _) = self.until(now);
        let taker = self.slot.get_or_insert_with(|| Lent::new(inside.service.crowd())).taker();
        let stands_in = self.raw.stand_in();
        let raw = std::mem::replace(&mut self.raw, stands_in);
        match Aside::send(&inside.service, raw, taker, (channel, until), waker) {
            Ok(aside) => {
                self.aside = Some(aside);
                // Nobody waits behind it: the node is in use, as with any call that is made.
                self.queue(inside).leave(self.ticket, || now);
                true
            }
            Err(raw) => {
                self.raw = raw;
                false
            }
        }
    }

    /// Goes on with a call that another thread makes, or has made.
    fn look_aside(&mut self, inside: &Arc<Inside>, context: &Context<'_>) -> Poll<Result<Reply, RawError>> {
        let Some(aside) = self.aside.clone() else { return Poll::Pending };
        let is_over = clock::now() >= aside.until();
        let tried = match aside.take(context.waker()) {
            // What has only waited until now ends as one for which the node was not free in time.
            None if is_over => aside.give_up(&inside.service),
            tried => tried,
        };
        if let Some((made, raw)) = tried {
            let (begun, made) = made.unzip();
            // Until then it has waited for others.
            (self.aside, self.raw, self.tried) = (None, raw, begun.or(self.tried));
            let driving = inside.service.driving();
            let tried = Tried { channel: aside.channel(), made, answer: None };
            let outcome = self.go_on(inside, &driving, tried, context);
            driving.leave(outcome.is_ready());
            return outcome;
        }
        if !is_over {
            return Poll::Pending;
        }
        // The other thread has it still, and gives it up, and its place with it.
        let landing = self.stop(inside, true);
        Poll::Ready(Err(RawError::new(CallError::Late, landing)))
    }

    /// The same once that was tried.
    fn made(
        &mut self,
        inside: &Arc<Inside>,
        Tried { channel, made, answer }: Tried,
        now: Instant,
        waker: &Waker,
    ) -> ControlFlow<Result<Reply, RawError>, Made> {
        if let Some(answer) = answer {
            self.leave(inside, || now);
            return match self.judge(inside, answer) {
                Some(outcome) => ControlFlow::Break(outcome),
                None => ControlFlow::Continue(Made::No),
            };
        }
        let Some(made) = made else { return ControlFlow::Continue(Made::No) };
        match made {
            Ok(call) => {
                self.call = Some(call);
                self.tried.get_or_insert(now);
                self.leave(inside, || now);
                return ControlFlow::Continue(Made::Yes);
            }
            // Calls under way have all that there is of something.
            Err(RequestError::Full | RequestError::NoMemory(NoMemory::NoTokens)) => {
                self.note(CallError::NotSent(RequestError::TimedOut(self.within)));
                self.stand_with_all(now);
            }
            // Nothing was sent, so another channel does no harm. A call that may be made twice waits for a server.
            Err(RequestError::Closed) => {
                let failed = inside.reconnect(channel);
                let tried = failed > *self.failed.get_or_insert(failed);
                self.note(RequestError::Closed.into());
                if tried && !self.raw.idempotent {
                    return ControlFlow::Break(Err(self.ended(inside, RequestError::Closed.into())));
                }
            }
            // It may have been served.
            Err(RequestError::Lost) if self.raw.idempotent => self.note(RequestError::Lost.into()),
            Err(error) => return ControlFlow::Break(Err(self.ended(inside, error.into()))),
        }
        self.wait(inside, now, waker)?;
        ControlFlow::Continue(Made::Waits)
    }

    /// Goes on with a call that was tried to be made for the first time.
    pub(super) fn go_on(
        &mut self,
        inside: &Arc<Inside>,
        driving: &Driving<'_>,
        tried: Tried,
        context: &Context<'_>,
    ) -> Poll<Result<Reply, RawError>> {
        let now = clock::now();
        match self.made(inside, tried, now, context.waker()) {
            ControlFlow::Continue(_) => self.drive(inside, driving, now, context),
            ControlFlow::Break(outcome) => Poll::Ready(outcome),
        }
    }

    /// Why the call has not come further. Once it may have been served, that is what counts.
    fn note(&mut self, why: CallError) {
        if !matches!(self.before, Some(CallError::Closed(_) | CallError::NotSent(RequestError::Lost))) {
            self.before = Some(why);
        }
    }

    /// The end of a call that is not under way.
    fn ended(&mut self, inside: &Inside, error: CallError) -> RawError {
        self.leave(inside, clock::now);
        let no_channel = error == CallError::NotSent(RequestError::Closed);
        let unopened = if no_channel { inside.last_error() } else { None };
        RawError { unopened, ..RawError::new(error, self.raw.take_landing()) }
    }

    /// What the answer means: `None` if the call is to be made again.
    fn judge(&mut self, inside: &Inside, answer: Result<Reply, Failed>) -> Option<Result<Reply, RawError>> {
        self.call = None;
        match answer {
            Ok(reply) => {
                inside.answered(self.raw.number());
                Some(Ok(reply))
            }
            Err(failed) => {
                match failed.error {
                    CallError::Failed(Failure::Busy) => {}
                    // Others are served.
                    CallError::Failed(Failure::HandlerBusy) => inside.queue.answered(clock::now),
                    _ => inside.answered(self.raw.number()),
                }
                self.judge_failure(inside, failed).map(Err)
            }
        }
    }

    fn judge_failure(&mut self, inside: &Inside, failed: Failed) -> Option<RawError> {
        let again = match failed.error {
            // A busy server has not run it, but whoever has handed it over to that one has.
            CallError::Failed(Failure::Busy | Failure::HandlerBusy) => !failed.was_handed || self.raw.idempotent,
            CallError::Closed(_) => self.raw.idempotent,
            _ => false,
        };
        let (mut failed, now) = (RawError::from(failed), clock::now());
        let is_vain = is_busy(failed.error) && self.raw.has_body();
        let tried = self.tried.filter(|_| is_vain).unwrap_or(now);
        self.took = Duration::from_nanos(now.saturating_since(tried));
        if again && after(now, AGAIN.max(self.took)) < self.until(now).0 {
            match self.raw.renew(failed.landing.take()) {
                Ok(()) => {
                    self.note(failed.error);
                    self.comes_again = true;
                    if failed.error == CallError::Failed(Failure::HandlerBusy) {
                        self.stand_apart(inside);
                    }
                    return None;
                }
                Err(landing) => failed.landing = landing,
            }
        }
        Some(failed)
    }

    /// The answer, if it was left; else `waker` is woken when it is.
    fn take(&self, waker: Option<&Waker>) -> Option<Result<Reply, Failed>> {
        self.slot.as_ref()?.take(waker)
    }

    /// Stops waiting for the call, if it was made, because it is `late` or for whatever reason: the place that it has
    /// granted, or would have. Where somebody uses the node just now, the service's thread does the rest: this may run
    /// on a thread that has the node, and wakes a task.
    pub(super) fn stop(&mut self, inside: &Inside, late: bool) -> Option<Landing> {
        self.turn.end(inside.service.crowd());
        self.leave(inside, clock::now);
        if let Some(aside) = self.aside.take() {
            // Where the other thread has it still, that gives it up, and its place with it.
            let (made, raw) = aside.give_up(&inside.service)?;
            (self.raw, self.call) = (raw, made.and_then(|(_, made)| made.ok()));
        }
        let Some(call) = self.call.take() else { return self.raw.take_landing() };
        match inside.service.try_with(|node| node.give_up(call, late)) {
            Some(None) => {}
            Some(landing) => return landing,
            None => inside.service.leave_to_thread(move |node| {
                node.lock().give_up(call, late);
            }),
        }
        // Its answer may have come before.
        match self.take(None)? {
            Ok(mut reply) => reply.take_landing(),
            Err(failed) => failed.landing,
        }
    }

    pub(super) fn advance(&mut self, inside: &Arc<Inside>, context: &Context<'_>) -> Poll<Result<Reply, RawError>> {
        self.turn.come_back(inside.service.crowd());
        if self.aside.is_some() {
            return self.look_aside(inside, context);
        }
        // Who was woken for its answer has no need of the node.
        if let Some(outcome) = self.take(None).and_then(|answer| self.judge(inside, answer)) {
            return Poll::Ready(outcome);
        }
        let now = clock::now();
        if self.call.is_none() && !self.blocks {
            match self.line_up(inside, now, context.waker()) {
                ControlFlow::Continue(true) if turn::has_others() && inside.service.crowd().others_look() => {
                    return Poll::Pending;
                }
                ControlFlow::Continue(_) => {}
                ControlFlow::Break(outcome) => return Poll::Ready(outcome),
            }
        }
        let driving = inside.service.driving();
        let answer = self.drive(inside, &driving, now, context);
        let comes_back = self.turn.makes_way() || (!self.blocks && turn::has_others() && driving.crowd().any());
        driving.leave(answer.is_ready() || comes_back);
        answer
    }

    /// Makes the call, as soon as it may be made, and drives the node itself for a while: that is sooner than to wake
    /// the service's thread and be woken. But a task that is not alone leaves that to those that are about to run.
    fn drive(
        &mut self,
        inside: &Arc<Inside>,
        driving: &Driving<'_>,
        begun: Instant,
        context: &Context<'_>,
    ) -> Poll<Result<Reply, RawError>> {
        // Looked at once for many polls: most calls are over before the second time.
        let mut now = begun;
        let (rests, mut made_way) = (idle::rests(), false);
        let (crowd, has_others) = (driving.crowd(), !self.blocks && turn::has_others());
        loop {
            let made = match self.call {
                Some(_) => Made::Yes,
                None => {
                    let lined_up = self.line_up(inside, now, context.waker());
                    let made = match lined_up {
                        ControlFlow::Continue(false) => self.make(inside, driving, now, context.waker()),
                        waits => waits.map_continue(|_| Made::Waits),
                    };
                    match made {
                        ControlFlow::Continue(Made::Aside) => return Poll::Pending,
                        ControlFlow::Continue(made) => made,
                        ControlFlow::Break(outcome) => return Poll::Ready(outcome),
                    }
                }
            };
            let mut leaves = match made {
                _ if self.blocks => false,
                Made::Yes if self.turn.lets_others_run() => {
                    self.turn.make_way(crowd, context.waker());
                    true
                }
                Made::Yes | Made::Waits => has_others && crowd.others_look(),
                Made::No | Made::Aside => false,
            };
            for _ in 0..16 {
                if leaves {
                    break;
                }
                let is_done = || self.slot.as_ref().is_some_and(|slot| slot.is_done());
                driving.drive(LOOKS, || is_done() || (has_others && crowd.any()));
                if let Some(outcome) = self.take(None).and_then(|answer| self.judge(inside, answer)) {
                    return Poll::Ready(outcome);
                }
                if has_others && made != Made::No && crowd.any() {
                    driving.take_in();
                    leaves = true;
                }
                idle::looked(LOOKS);
            }
            now = clock::now();
            // The node says so, too, but only to who can use it.
            if self.call.is_some() && now >= self.until(now).0 {
                let landing = self.stop(inside, true);
                return Poll::Ready(Err(RawError::new(CallError::Late, landing)));
            }
            if !leaves && !rests && now.saturating_since(begun) < self.spins() {
                continue;
            }
            if !leaves && !rests && !made_way {
                idle::make_way();
                made_way = true;
                continue;
            }
            if self.call.is_none() {
                if made != Made::Waits {
                    // Others have the node.
                    if let ControlFlow::Break(outcome) = self.wait(inside, now, context.waker()) {
                        return Poll::Ready(outcome);
                    }
                }
                return Poll::Pending;
            }
            let answer = self.take(Some(context.waker()));
            if answer.is_none() {
                return Poll::Pending;
            }
            if let Some(outcome) = answer.and_then(|answer| self.judge(inside, answer)) {
                return Poll::Ready(outcome);
            }
        }
    }

    /// Nanoseconds for which it looks for its answer before it sleeps.
    const fn spins(&self) -> u64 {
        match (self.blocks, self.is_far) {
            (true, _) => SPIN_NS,
            (false, true) => SPIN_FAR_NS,
            (false, false) => SPIN_TASK_NS,
        }
    }
}
