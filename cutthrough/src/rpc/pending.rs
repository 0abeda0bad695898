//! A call under way: made, waited for, made again where that may be, and cancelled.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use cutthrough_node::shm::grant::{Landing, NoMemory};

use super::client::{Client, RECONNECT};
use super::raw::{Raw, RawError};
use super::{Message, RpcError, result};
use crate::am::{Call, CallError, Continuing, Driving, Failed, Failure, Reply, RequestError};

/// How long a call is looked for before its thread or task sleeps: as long as an endpoint looks.
const SPIN: Duration = Duration::from_micros(50);
/// How long a task is kept for that: others of its executor wait meanwhile.
const SPIN_ASYNC: Duration = Duration::from_micros(10);
/// How long a caller waits before it asks a busy server, or a full window, again.
const AGAIN: Duration = Duration::from_micros(100);
/// A hundred years.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Wakes a thread that waits for a call.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Where the answer to a call is left for whoever waits.
#[derive(Debug, Default)]
struct Slot {
    done: AtomicBool,
    inside: Mutex<Left>,
}

#[derive(Debug, Default)]
struct Left {
    answer: Option<Result<Reply, Failed>>,
    waker: Option<Waker>,
}

impl Slot {
    fn leave(&self, answer: Result<Reply, Failed>) {
        let mut left = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        left.answer = Some(answer);
        self.done.store(true, Ordering::Release);
        let waker = left.waker.take();
        // Whoever is woken may look here at once.
        drop(left);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The answer, if it has come; else `waker` is woken when it does.
    fn take(&self, waker: Option<&Waker>) -> Option<Result<Reply, Failed>> {
        if waker.is_none() && !self.done.load(Ordering::Acquire) {
            return None;
        }
        let mut left = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        self.done.store(false, Ordering::Relaxed);
        let answer = left.answer.take();
        if answer.is_none() {
            left.waker = waker.cloned();
        }
        answer
    }
}

/// A raw call under way: a future that needs no particular executor. Dropped before it is done, it is cancelled: its
/// reply is thrown away when it comes, its token is dead, and its server is told. To drop it waits for nobody, and may
/// happen anywhere; where another thread uses the node just then, the thread of the service does the rest later. Either
/// way nothing is written to the place that it has granted once that is used for anything else.
#[derive(Debug)]
#[must_use = "a call is made when it is awaited"]
pub struct RawPending<'a> {
    client: Client,
    raw: Raw<'a>,
    until: Instant,
    slot: Arc<Slot>,
    call: Option<Call>,
    /// Why it was not answered when it was made before.
    before: Option<CallError>,
    /// How often another channel could not be opened, when this call first found that its channel had ended.
    failed: Option<u64>,
    spin: Duration,
    /// Whether its answer was given.
    over: bool,
}

impl<'a> RawPending<'a> {
    pub(super) fn new(client: Client, raw: Raw<'a>, within: Duration) -> Self {
        // What nobody lives to see is no time of the clock's.
        let now = Instant::now();
        let until = now.checked_add(within).unwrap_or_else(|| now + FOR_EVER);
        let (call, before, failed) = (None, None, None);
        Self { client, raw, until, slot: Arc::default(), call, before, failed, spin: SPIN_ASYNC, over: false }
    }

    /// Cancels the call, as dropping it does, and gives back the place that it has granted: see [`RawError::landing`].
    /// `None`, too, if the reply's payload has come there.
    #[must_use = "to give nothing back, drop the call"]
    pub fn cancel(mut self) -> Option<Landing> {
        self.stop(false)
    }

    /// Waits for the call on this thread.
    pub(super) fn wait(mut self) -> Result<Reply, RawError> {
        let waker = Arc::new(Unpark(std::thread::current()));
        let waker = Waker::from(waker);
        let mut context = Context::from_waker(&waker);
        self.spin = SPIN;
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => std::thread::park_timeout(Duration::from_millis(1)),
            }
        }
    }

    /// Makes the call: how long until that is to be tried again, or why it cannot be made.
    fn make(&mut self, driving: &Driving<'_>) -> Result<Option<Duration>, RawError> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.ended(self.before.unwrap_or(CallError::Late)));
        }
        let slot = Arc::clone(&self.slot);
        let inside = Arc::clone(&self.client.inside);
        let channel = inside.channel();
        let take = move |_: &mut Continuing<'_>, reply| slot.leave(reply);
        match driving.try_with(|node| self.raw.ask(node, channel, left, take)) {
            Some(Ok(call)) => {
                self.call = Some(call);
                Ok(None)
            }
            // Somebody else uses the node just now, as the service's thread does for a moment where it was woken.
            None => Ok(Some(Duration::ZERO)),
            // Calls under way have all that there is of something.
            Some(Err(RequestError::Full | RequestError::NoMemory(NoMemory::NoTokens))) => Ok(Some(AGAIN)),
            // Nothing was sent, so another channel does no harm. A call that may be made twice waits for a server.
            Some(Err(RequestError::Closed)) => {
                let failed = inside.reconnect(channel, left.min(RECONNECT));
                let tried = failed > *self.failed.get_or_insert(failed);
                if tried && !self.raw.idempotent {
                    return Err(self.ended(RequestError::Closed.into()));
                }
                Ok(Some(AGAIN))
            }
            // It may have been served.
            Some(Err(RequestError::Lost)) if self.raw.idempotent => Ok(Some(AGAIN)),
            Some(Err(error)) => Err(self.ended(error.into())),
        }
    }

    /// The end of a call that is not under way.
    fn ended(&mut self, error: CallError) -> RawError {
        RawError::new(error, self.raw.take_landing())
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
                    let closed = matches!(failed.error, CallError::Closed(_));
                    self.before = if closed { Some(failed.error) } else { self.before };
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
    fn stop(&mut self, late: bool) -> Option<Landing> {
        let Some(call) = self.call.take() else { return self.raw.take_landing() };
        let service = &self.client.inside.service;
        match service.try_with(|node| node.give_up(call, late)) {
            Some(None) => {}
            Some(landing) => return landing,
            None => service.leave_to_thread(move |node| {
                node.lock().unwrap_or_else(PoisonError::into_inner).give_up(call, late);
            }),
        }
        // Its answer may have come before.
        match self.slot.take(None)? {
            Ok(mut reply) => reply.take_landing(),
            Err(failed) => failed.landing,
        }
    }

    fn advance(&mut self, context: &Context<'_>) -> Poll<Result<Reply, RawError>> {
        let begun = Instant::now();
        let mut again = begun;
        // Who was woken for its answer has no need of the node.
        if let Some(answer) = self.slot.take(None) {
            match self.judge(answer) {
                Some(outcome) => return Poll::Ready(outcome),
                None => again += AGAIN,
            }
        }
        let inside = Arc::clone(&self.client.inside);
        let driving = inside.service.driving();
        let answer = self.drive(&driving, (begun, again), context);
        driving.leave(answer.is_ready());
        answer
    }

    /// Makes the call, not before `again`, and drives the node itself for a while: that is sooner than to wake the
    /// service's thread and be woken.
    fn drive(
        &mut self,
        driving: &Driving<'_>,
        (begun, mut again): (Instant, Instant),
        context: &Context<'_>,
    ) -> Poll<Result<Reply, RawError>> {
        loop {
            if self.call.is_none() && again <= Instant::now() {
                match self.make(driving) {
                    Ok(wait) => again = Instant::now() + wait.unwrap_or_default(),
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            for _ in 0..16 {
                driving.drive();
                if let Some(answer) = self.slot.take(None) {
                    match self.judge(answer) {
                        Some(outcome) => return Poll::Ready(outcome),
                        None => again = Instant::now() + AGAIN,
                    }
                }
            }
            let now = Instant::now();
            // The node says so, too, but only to who can use it.
            if self.call.is_some() && now >= self.until {
                let landing = self.stop(true);
                return Poll::Ready(Err(RawError::new(CallError::Late, landing)));
            }
            if now - begun < self.spin {
                continue;
            }
            if self.call.is_none() {
                self.client.inside.service.wake_at(again.max(begun + AGAIN), context.waker().clone());
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
        let answer = self.advance(context);
        self.over = answer.is_ready();
        answer
    }
}

impl Drop for RawPending<'_> {
    fn drop(&mut self) {
        drop(self.stop(false));
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
