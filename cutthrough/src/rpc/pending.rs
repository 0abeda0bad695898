//! A call under way: made, waited for, made again where that may be, and cancelled.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use cutthrough_node::shm::grant::{Landing, NoMemory};

use super::client::{Client, Inside, RECONNECT};
use super::raw::{Raw, RawError};
use super::slot::{Lent, waker};
use super::{Message, RpcError, result};
use crate::am::{Call, CallError, Continuation, Driving, Failed, Failure, Reply, RequestError};

/// How long a call is looked for before its thread or task sleeps: as long as an endpoint looks.
const SPIN: Duration = Duration::from_micros(50);
/// How long a task is kept for that: others of its executor wait meanwhile.
const SPIN_ASYNC: Duration = Duration::from_micros(10);
/// How long a caller waits before it asks a busy server, or a full window, again.
const AGAIN: Duration = Duration::from_micros(100);
/// A hundred years.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A raw call under way: a future that needs no particular executor. Dropped before it is done, it is cancelled: its
/// reply is thrown away when it comes, its token is dead, and its server is told. To drop it waits for nobody, and may
/// happen anywhere; where another thread uses the node just then, the thread of the service does the rest later. Either
/// way nothing is written to the place that it has granted once that is used for anything else.
#[derive(Debug)]
#[must_use = "a call is made when it is awaited"]
pub struct RawPending<'a> {
    client: Client,
    calling: Calling<'a>,
    /// Whether its answer was given.
    over: bool,
}

/// The call, and how far it has come.
#[derive(Debug)]
struct Calling<'a> {
    raw: Raw<'a>,
    within: Duration,
    until: Instant,
    slot: Lent,
    call: Option<Call>,
    /// Why it was not answered, or not sent, when that was tried before.
    before: Option<CallError>,
    /// How often another channel could not be opened, when this call first found that its channel had ended.
    failed: Option<u64>,
    spin: Duration,
}

impl<'a> RawPending<'a> {
    /// A call that is made now, and has to be answered within this time.
    pub(super) fn new(client: Client, raw: Raw<'a>, within: Duration, now: Instant) -> Self {
        // What nobody lives to see is no time of the clock's.
        let until = now.checked_add(within).unwrap_or_else(|| now + FOR_EVER);
        let (slot, call, before, failed) = (Lent::new(), None, None, None);
        let calling = Calling { raw, within, until, slot, call, before, failed, spin: SPIN_ASYNC };
        Self { client, calling, over: false }
    }

    /// Cancels the call, as dropping it does, and gives back the place that it has granted: see [`RawError::landing`].
    /// `None`, too, if the reply's payload has come there.
    #[must_use = "to give nothing back, drop the call"]
    pub fn cancel(mut self) -> Option<Landing> {
        self.calling.stop(&self.client.inside, false)
    }

    /// Waits for the call on this thread.
    pub(super) fn wait(mut self, mut now: Instant) -> Result<Reply, RawError> {
        let waker = waker();
        let context = Context::from_waker(&waker);
        self.calling.spin = SPIN;
        loop {
            match self.calling.advance(&self.client.inside, now, &context) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => std::thread::park_timeout(Duration::from_millis(1)),
            }
            now = Instant::now();
        }
    }
}

impl Calling<'_> {
    /// Makes the call: how long until that is to be tried again, or why it cannot be made.
    fn make(
        &mut self,
        inside: &Arc<Inside>,
        driving: &Driving<'_>,
        now: Instant,
    ) -> Result<Option<Duration>, RawError> {
        let left = self.until.saturating_duration_since(now);
        let no_room = CallError::NotSent(RequestError::TimedOut(self.within));
        if left.is_zero() {
            return Err(self.ended(inside, self.before.unwrap_or(no_room)));
        }
        let channel = inside.channel();
        let take = Continuation::Leave(self.slot.taker());
        match driving.try_with(|node| self.raw.ask(node, channel, left, take)) {
            Some(Ok(call)) => {
                self.call = Some(call);
                Ok(None)
            }
            // Somebody else uses the node just now, as the service's thread does for a moment where it was woken.
            None => Ok(Some(Duration::ZERO)),
            // Calls under way have all that there is of something.
            Some(Err(RequestError::Full | RequestError::NoMemory(NoMemory::NoTokens))) => {
                self.note(no_room);
                Ok(Some(AGAIN))
            }
            // Nothing was sent, so another channel does no harm. A call that may be made twice waits for a server.
            Some(Err(RequestError::Closed)) => {
                let failed = inside.reconnect(channel, left.min(RECONNECT));
                let tried = failed > *self.failed.get_or_insert(failed);
                self.note(RequestError::Closed.into());
                if tried && !self.raw.idempotent {
                    return Err(self.ended(inside, RequestError::Closed.into()));
                }
                Ok(Some(AGAIN))
            }
            // It may have been served.
            Some(Err(RequestError::Lost)) if self.raw.idempotent => {
                self.note(RequestError::Lost.into());
                Ok(Some(AGAIN))
            }
            Some(Err(error)) => Err(self.ended(inside, error.into())),
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
        let mut failed = match answer {
            Ok(reply) => return Some(Ok(reply)),
            Err(failed) => RawError::from(failed),
        };
        let again = match failed.error {
            // A busy server has not run it.
            CallError::Failed(Failure::Busy) => Instant::now() + AGAIN < self.until,
            CallError::Closed(_) => self.raw.idempotent,
            _ => false,
        };
        if again {
            match self.raw.renew(failed.landing.take()) {
                Ok(()) => {
                    self.note(failed.error);
                    return None;
                }
                Err(landing) => failed.landing = landing,
            }
        }
        Some(Err(failed))
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
                node.lock().unwrap_or_else(PoisonError::into_inner).give_up(call, late);
            }),
        }
        // Its answer may have come before.
        match self.slot.take(None)? {
            Ok(mut reply) => reply.take_landing(),
            Err(failed) => failed.landing,
        }
    }

    fn advance(
        &mut self,
        inside: &Arc<Inside>,
        begun: Instant,
        context: &Context<'_>,
    ) -> Poll<Result<Reply, RawError>> {
        let mut again = begun;
        // Who was woken for its answer has no need of the node.
        if let Some(answer) = self.slot.take(None) {
            match self.judge(answer) {
                Some(outcome) => return Poll::Ready(outcome),
                None => again += AGAIN,
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
        loop {
            if self.call.is_none() && again <= now {
                match self.make(inside, driving, now) {
                    Ok(wait) => again = now + wait.unwrap_or_default(),
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            for _ in 0..16 {
                driving.drive(|| self.slot.is_done());
                if let Some(answer) = self.slot.take(None) {
                    match self.judge(answer) {
                        Some(outcome) => return Poll::Ready(outcome),
                        None => again = Instant::now() + AGAIN,
                    }
                }
            }
            now = Instant::now();
            // The node says so, too, but only to who can use it.
            if self.call.is_some() && now >= self.until {
                let landing = self.stop(inside, true);
                return Poll::Ready(Err(RawError::new(CallError::Late, landing)));
            }
            if now - begun < self.spin {
                continue;
            }
            if self.call.is_none() {
                inside.service.wake_at(again.max(begun + AGAIN), context.waker().clone());
                return Poll::Pending;
            }
            match self.slot.take(Some(context.waker())) {
                None => return Poll::Pending,
                Some(answer) => match self.judge(answer) {
                    Some(outcome) => return Poll::Ready(outcome),
                    None => again = Instant::now() + AGAIN,
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
        assert!(!self.over, "a call was polled after its answer was given");
        let Self { client, calling, over } = &mut *self;
        let answer = calling.advance(&client.inside, Instant::now(), context);
        *over = answer.is_ready();
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
