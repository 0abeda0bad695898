//! A call under way: made, waited for, made again where that may be, and cancelled.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cutthrough_engine::time::Instant;
use cutthrough_node::clock;
use cutthrough_node::incoming::Channel;
use cutthrough_node::node::SPIN_NS;
use cutthrough_node::shm::grant::{Landing, NoMemory};

use super::client::{Client, Inside};
use super::idle;
use super::raw::{Raw, RawError};
use super::slot::{Lent, waker};
use super::{Message, RpcError, result, turn};
use crate::am::{Call, CallError, Continuation, Driving, Failed, Failure, Node, Reply, RequestError, nanos};

/// Nanoseconds for which a task looks for its answer before it sleeps, where a thread does so as long as an endpoint
/// that waits: others of its executor wait meanwhile.
const SPIN_ASYNC_NS: u64 = 10_000;
/// Looks in one hold of the node.
const LOOKS: u32 = 8;
/// How long a caller waits before it asks a busy server, or a full window, again.
const AGAIN: Duration = Duration::from_micros(100);

/// A raw call under way: a future that needs no particular executor. Dropped before it is done, it is cancelled: its
/// reply is thrown away when it comes, its token is dead, and its server is told. To drop it waits for nobody, and may
/// happen anywhere; where another thread uses the node just then, the thread of the service does the rest later. Either
/// way nothing is written to the place that it has granted once that is used for anything else.
#[derive(Debug)]
#[must_use = "a call is made when it is awaited"]
pub struct RawPending<'a> {
    client: Client,
    calling: Calling<'a>,
    stage: Stage,
}

/// How far a future has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nobody has polled it.
    New,
    Polled,
    /// Its answer was given.
    Over,
}

/// The call, and how far it has come.
#[derive(Debug)]
struct Calling<'a> {
    raw: Raw<'a>,
    within: Duration,
    /// When its time is over: not known before the clock was read, and a call that is over at once needs no clock.
    until: Option<Instant>,
    /// Where its answer is left, if it was not over at once.
    slot: Option<Lent>,
    call: Option<Call>,
    /// Why it was not answered, or not sent, when that was tried before.
    before: Option<CallError>,
    /// How often another channel could not be opened, when this call first found that its channel had ended.
    failed: Option<u64>,
    /// Whether a thread waits for it; else it is a task, and others of its executor wait meanwhile.
    blocks: bool,
}

/// Makes a call, which may take so long, and looks for its answer for a moment. If that does not come, it is left in
/// the slot later, and this is the call.
#[inline]
fn make(
    node: &mut Node,
    driving: &Driving<'_>,
    raw: &mut Raw<'_>,
    (slot, answer): (&mut Option<Lent>, &mut Option<Result<Reply, Failed>>),
    channel: Channel,
    within: Duration,
) -> Result<Call, RequestError> {
    let call = raw.ask(node, channel, within, None)?;
    if !node.seek(call, answer, || driving.is_alone()) {
        let taker = slot.get_or_insert_with(Lent::new).taker();
        node.entrust(call, within, Continuation::Leave(taker));
    }
    Ok(call)
}

/// What has become of a try to make a call.
struct Tried {
    channel: Channel,
    /// `None`, if somebody else used the node just then, as the service's thread does for a moment where it was woken.
    made: Option<Result<Call, RequestError>>,
    answer: Option<Result<Reply, Failed>>,
}

/// A call that a thread waits for.
struct Waited<'c, 'a> {
    inside: &'c Arc<Inside>,
    calling: Calling<'a>,
}

impl Drop for Waited<'_, '_> {
    fn drop(&mut self) {
        drop(self.calling.stop(self.inside, false));
    }
}

/// Makes a call, which has to be answered within this time, and waits for it on this thread.
pub(super) fn call(inside: &Arc<Inside>, mut raw: Raw<'_>, within: Duration) -> Result<Reply, RawError> {
    let driving = inside.service.driving();
    let (mut slot, mut answer, channel) = (None, None, inside.channel());
    let places = (&mut slot, &mut answer);
    let made = if within.is_zero() {
        None
    } else {
        driving.try_with(|node| make(node, &driving, &mut raw, places, channel, within))
    };
    // Most calls are over by now: without a look at the clock.
    if let Some(Ok(reply)) = answer {
        driving.leave(true);
        return Ok(reply);
    }
    let mut waited = Waited { inside, calling: Calling { slot, ..Calling::new(raw, within, true) } };
    let waker = waker();
    let context = Context::from_waker(&waker);
    let mut outcome = waited.calling.go_on(inside, &driving, Tried { channel, made, answer }, &context);
    driving.leave(outcome.is_ready());
    loop {
        match outcome {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => inside.service.rest(Duration::from_millis(1)),
        }
        outcome = waited.calling.advance(inside, &context);
    }
}

/// When this time is over.
fn after(now: Instant, within: Duration) -> Instant {
    now.after(nanos(within))
}

impl<'a> RawPending<'a> {
    /// A call that is made when it is polled, and has to be answered within this time from now on.
    pub(super) fn new(client: Client, raw: Raw<'a>, within: Duration) -> Self {
        let until = Some(after(clock::now(), within));
        let calling = Calling { until, ..Calling::new(raw, within, false) };
        Self { client, calling, stage: Stage::New }
    }

    /// Cancels the call, as dropping it does, and gives back the place that it has granted: see [`RawError::landing`].
    /// `None`, too, if the reply's payload has come there.
    #[must_use = "to give nothing back, drop the call"]
    pub fn cancel(mut self) -> Option<Landing> {
        self.calling.stop(&self.client.inside, false)
    }
}

impl<'a> Calling<'a> {
    const fn new(raw: Raw<'a>, within: Duration, blocks: bool) -> Self {
        Self { raw, within, until: None, slot: None, call: None, before: None, failed: None, blocks }
    }

    /// When its time is over, and how much of it is left.
    fn until(&mut self, now: Instant) -> (Instant, Duration) {
        let until = *self.until.get_or_insert_with(|| after(now, self.within));
        (until, Duration::from_nanos(until.saturating_since(now)))
    }

    /// Makes the call: how long until it is to be made again, if it is not under way, or its outcome.
    fn make(
        &mut self,
        inside: &Arc<Inside>,
        driving: &Driving<'_>,
        left: Duration,
    ) -> ControlFlow<Result<Reply, RawError>, Duration> {
        if left.is_zero() {
            let no_room = CallError::NotSent(RequestError::TimedOut(self.within));
            return ControlFlow::Break(Err(self.ended(inside, self.before.unwrap_or(no_room))));
        }
        let channel = inside.channel();
        let mut answer = None;
        let (raw, places) = (&mut self.raw, (&mut self.slot, &mut answer));
        let made = if self.blocks {
            // Others have the node again and again: this thread waits for its turn.
            let begun = clock::now();
            driving.with_in(left, |node| {
                let left = left.saturating_sub(Duration::from_nanos(clock::now().saturating_since(begun)));
                make(node, driving, raw, places, channel, left)
            })
        } else {
            driving.try_with(|node| make(node, driving, raw, places, channel, left))
        };
        self.made(inside, Tried { channel, made, answer })
    }

    /// The same once that was tried.
    fn made(
        &mut self,
        inside: &Arc<Inside>,
        Tried { channel, made, answer }: Tried,
    ) -> ControlFlow<Result<Reply, RawError>, Duration> {
        if let Some(answer) = answer {
            return self.judge(answer).map_or(ControlFlow::Continue(AGAIN), ControlFlow::Break);
        }
        match made {
            Some(Ok(call)) => {
                self.call = Some(call);
                ControlFlow::Continue(Duration::ZERO)
            }
            None => ControlFlow::Continue(Duration::ZERO),
            // Calls under way have all that there is of something.
            Some(Err(RequestError::Full | RequestError::NoMemory(NoMemory::NoTokens))) => {
                self.note(CallError::NotSent(RequestError::TimedOut(self.within)));
                ControlFlow::Continue(AGAIN)
            }
            // Nothing was sent, so another channel does no harm. A call that may be made twice waits for a server.
            Some(Err(RequestError::Closed)) => {
                let failed = inside.reconnect(channel);
                let tried = failed > *self.failed.get_or_insert(failed);
                self.note(RequestError::Closed.into());
                if tried && !self.raw.idempotent {
                    return ControlFlow::Break(Err(self.ended(inside, RequestError::Closed.into())));
                }
                ControlFlow::Continue(AGAIN)
            }
            // It may have been served.
            Some(Err(RequestError::Lost)) if self.raw.idempotent => {
                self.note(RequestError::Lost.into());
                ControlFlow::Continue(AGAIN)
            }
            Some(Err(error)) => ControlFlow::Break(Err(self.ended(inside, error.into()))),
        }
    }

    /// Goes on with a call that was tried to be made for the first time.
    fn go_on(
        &mut self,
        inside: &Arc<Inside>,
        driving: &Driving<'_>,
        tried: Tried,
        context: &Context<'_>,
    ) -> Poll<Result<Reply, RawError>> {
        match self.made(inside, tried) {
            ControlFlow::Continue(again) => {
                let begun = clock::now();
                self.drive(inside, driving, (begun, after(begun, again)), context)
            }
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
        let no_channel = error == CallError::NotSent(RequestError::Closed);
        let unopened = if no_channel { inside.last_error() } else { None };
        RawError { unopened, ..RawError::new(error, self.raw.take_landing()) }
    }

    /// What the answer means: `None` if the call is to be made again.
    fn judge(&mut self, answer: Result<Reply, Failed>) -> Option<Result<Reply, RawError>> {
        self.call = None;
        match answer {
            Ok(reply) => Some(Ok(reply)),
            Err(failed) => self.judge_failure(failed).map(Err),
        }
    }

    fn judge_failure(&mut self, failed: Failed) -> Option<RawError> {
        let again = match failed.error {
            // A busy server has not run it, but whoever has handed it over to that one has.
            CallError::Failed(Failure::Busy) => !failed.was_handed || self.raw.idempotent,
            CallError::Closed(_) => self.raw.idempotent,
            _ => false,
        };
        let (mut failed, now) = (RawError::from(failed), clock::now());
        if again && after(now, AGAIN) < self.until(now).0 {
            match self.raw.renew(failed.landing.take()) {
                Ok(()) => {
                    self.note(failed.error);
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
    fn stop(&mut self, inside: &Inside, late: bool) -> Option<Landing> {
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

    fn advance(&mut self, inside: &Arc<Inside>, context: &Context<'_>) -> Poll<Result<Reply, RawError>> {
        let begun = clock::now();
        let mut again = begun;
        // Who was woken for its answer has no need of the node.
        if let Some(answer) = self.take(None) {
            match self.judge(answer) {
                Some(outcome) => return Poll::Ready(outcome),
                None => again = after(begun, AGAIN),
            }
        }
        let driving = inside.service.driving();
        let answer = self.drive(inside, &driving, (begun, again), context);
        driving.leave(answer.is_ready());
        answer
    }

    /// Makes the call, not before `again`, and drives the node itself for a while: that is sooner than to wake the
    /// service's thread and be woken.
    fn drive(
        &mut self,
        inside: &Arc<Inside>,
        driving: &Driving<'_>,
        (begun, mut again): (Instant, Instant),
        context: &Context<'_>,
    ) -> Poll<Result<Reply, RawError>> {
        // Looked at once for many polls: most calls are over before the second time.
        let mut now = begun;
        let (rests, mut made_way) = (idle::rests(), false);
        let spin = if self.blocks { SPIN_NS } else { SPIN_ASYNC_NS };
        loop {
            if self.call.is_none() && again <= now {
                let (_, left) = self.until(now);
                match self.make(inside, driving, left) {
                    ControlFlow::Continue(wait) => again = after(now, wait),
                    ControlFlow::Break(outcome) => return Poll::Ready(outcome),
                }
            }
            for _ in 0..16 {
                driving.drive(LOOKS, || self.slot.as_ref().is_some_and(|slot| slot.is_done()));
                if let Some(answer) = self.take(None) {
                    match self.judge(answer) {
                        Some(outcome) => return Poll::Ready(outcome),
                        None => again = after(clock::now(), AGAIN),
                    }
                }
                idle::looked(LOOKS);
            }
            now = clock::now();
            // The node says so, too, but only to who can use it.
            if self.call.is_some() && now >= self.until(now).0 {
                let landing = self.stop(inside, true);
                return Poll::Ready(Err(RawError::new(CallError::Late, landing)));
            }
            if !rests && now.saturating_since(begun) < spin {
                continue;
            }
            if !rests && !made_way {
                idle::make_way();
                made_way = true;
                continue;
            }
            if self.call.is_none() {
                inside.service.wake_at(again.max(after(begun, AGAIN)), context.waker().clone());
                return Poll::Pending;
            }
            match self.take(Some(context.waker())) {
                None => return Poll::Pending,
                Some(answer) => match self.judge(answer) {
                    Some(outcome) => return Poll::Ready(outcome),
                    None => again = after(clock::now(), AGAIN),
                },
            }
        }
    }
}

impl Future for RawPending<'_> {
    type Output = Result<Reply, RawError>;

    /// # Panics
    /// If it is polled after its answer was given: to make the call again is not what anybody wants.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { client, calling, stage } = &mut *self;
        assert!(*stage != Stage::Over, "a call was polled after its answer was given");
        if std::mem::replace(stage, Stage::Polled) == Stage::New && turn::is_over() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let answer = calling.advance(&client.inside, context);
        turn::polled(answer.is_ready());
        if answer.is_ready() {
            *stage = Stage::Over;
        }
        answer
    }
}

impl Drop for RawPending<'_> {
    fn drop(&mut self) {
        drop(self.calling.stop(&self.client.inside, false));
    }
}

/// A call of a method under way. Dropped before it is done, it is cancelled: its reply is thrown away when it comes,
/// and its server is told. To drop it waits for nobody, and may happen anywhere.
#[derive(Debug)]
#[must_use = "a call is made when it is awaited"]
pub struct Pending<R> {
    raw: RawPending<'static>,
    result: fn(Result<Reply, RawError>) -> Result<R, RpcError>,
}

impl<R: Message> Pending<R> {
    pub(super) fn new(raw: RawPending<'static>) -> Self {
        Self { raw, result }
    }
}

impl<R> Future for Pending<R> {
    type Output = Result<R, RpcError>;

    /// # Panics
    /// If it is polled after its answer was given.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.raw).poll(context).map(self.result)
    }
}
