//! A call under way: made, waited for, made again where that may be, and cancelled.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::RpcError;
use super::client::{Client, RECONNECT, ask, taken};
use crate::Endpoint;
use crate::am::{Call, CallError, Failure, RequestError};

/// How long a call is looked for before its thread or task sleeps: as long as an endpoint looks.
pub(super) const SPIN: Duration = Duration::from_micros(50);
/// How long a task is kept for that: others of its executor wait meanwhile.
pub(super) const SPIN_ASYNC: Duration = Duration::from_micros(10);
/// How long a caller waits before it asks a busy server, or a full window, again.
const AGAIN: Duration = Duration::from_micros(100);
/// A hundred years.
pub(super) const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// Wakes a thread that waits for a call.
pub(super) struct Unpark(pub(super) Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Where the answer to a call is left for whoever waits.
#[derive(Debug, Default)]
pub(super) struct Slot {
    done: AtomicBool,
    inside: Mutex<Left>,
}

#[derive(Debug, Default)]
struct Left {
    answer: Option<Result<Vec<u8>, RpcError>>,
    waker: Option<Waker>,
}

impl Slot {
    fn leave(&self, answer: Result<Vec<u8>, RpcError>) {
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
}

/// A call under way. Dropped before it is done, it is cancelled: its reply is thrown away when it comes, and its server
/// is told. To drop it waits for nobody, and may happen anywhere.
#[derive(Debug)]
#[must_use = "a call is made when it is awaited"]
pub struct Pending<R> {
    pub(super) client: Client,
    pub(super) number: u16,
    pub(super) idempotent: bool,
    pub(super) asked: Vec<u8>,
    pub(super) until: Instant,
    pub(super) slot: Arc<Slot>,
    pub(super) call: Option<Call>,
    /// Why it was not answered when it was made before.
    pub(super) before: Option<RpcError>,
    /// How often another channel could not be opened, when this call first found that its channel had ended.
    pub(super) failed: Option<u64>,
    pub(super) spin: Duration,
    /// Whether its answer was given.
    pub(super) over: bool,
    pub(super) decode: fn(&[u8]) -> Result<R, RpcError>,
}

impl<R> Unpin for Pending<R> {}

impl<R> Pending<R> {
    /// Makes the call, if it was not made. Why not; `None` if it is to be tried again.
    fn make(&mut self) -> Result<bool, RpcError> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.before.take().unwrap_or(CallError::Late.into()));
        }
        let slot = Arc::clone(&self.slot);
        let inside = &self.client.inside;
        let channel = inside.channel();
        let take = move |_: &mut Endpoint, reply| slot.leave(taken(reply));
        let asked = inside.service.try_with(|node| ask(node, channel, self.number, &self.asked, left, take));
        match asked {
            Some(Ok(call)) => {
                self.call = Some(call);
                Ok(true)
            }
            // Somebody else uses the node just now.
            None | Some(Err(RequestError::Full)) => Ok(false),
            // Nothing was sent, so another channel does no harm. A call that may be made twice waits for a server.
            Some(Err(RequestError::Closed)) => {
                let failed = inside.reconnect(channel, left.min(RECONNECT));
                let tried = failed > *self.failed.get_or_insert(failed);
                if tried && !self.idempotent {
                    return Err(CallError::NotSent(RequestError::Closed).into());
                }
                Ok(false)
            }
            Some(Err(error)) => Err(CallError::NotSent(error).into()),
        }
    }

    /// What the answer means: `None` if the call is to be made again.
    fn judge(&mut self, answer: Result<Vec<u8>, RpcError>) -> Option<Result<R, RpcError>> {
        self.call = None;
        match answer {
            Ok(bytes) => Some((self.decode)(&bytes)),
            // A busy server has not run it.
            Err(RpcError::Call(CallError::Failed(Failure::Busy))) if Instant::now() + AGAIN < self.until => None,
            Err(error @ RpcError::Call(CallError::Closed(_))) if self.idempotent => {
                self.before = Some(error);
                None
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Stops waiting for the call, if it was made. Where somebody uses the node just now, the service's thread does the
    /// rest: this may run on a thread that has the node, and wakes a task.
    fn cancel(&mut self) {
        if let Some(call) = self.call.take() {
            let service = &self.client.inside.service;
            if service.try_with(|node| node.cancel(call)).is_none() {
                service.leave_to_thread(move |node| {
                    node.lock().unwrap_or_else(PoisonError::into_inner).cancel(call);
                });
            }
        }
    }

    fn take(&self, waker: Option<&Waker>) -> Option<Result<Vec<u8>, RpcError>> {
        if waker.is_none() && !self.slot.done.load(Ordering::Acquire) {
            return None;
        }
        let mut left = self.slot.inside.lock().unwrap_or_else(PoisonError::into_inner);
        self.slot.done.store(false, Ordering::Relaxed);
        let answer = left.answer.take();
        if answer.is_none() {
            left.waker = waker.cloned();
        }
        answer
    }
}

impl<R> Pending<R> {
    fn advance(&mut self, context: &Context<'_>) -> Poll<Result<R, RpcError>> {
        let begun = Instant::now();
        let mut again = begun;
        loop {
            if self.call.is_none() && again <= Instant::now() {
                match self.make() {
                    Ok(true) => {}
                    Ok(false) => again = Instant::now() + AGAIN,
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            // Drives the node itself for a while: that is sooner than to wake the service's thread and be woken.
            for _ in 0..16 {
                self.client.inside.service.drive();
                if let Some(answer) = self.take(None) {
                    match self.judge(answer) {
                        Some(result) => return Poll::Ready(result),
                        None => again = Instant::now() + AGAIN,
                    }
                }
            }
            let now = Instant::now();
            // The node says so, too, but only to who can use it.
            if self.call.is_some() && now >= self.until {
                self.cancel();
                return Poll::Ready(Err(CallError::Late.into()));
            }
            if now - begun < self.spin {
                continue;
            }
            if self.call.is_none() {
                self.client.inside.service.wake_at(again.max(begun + AGAIN), context.waker().clone());
                return Poll::Pending;
            }
            match self.take(Some(context.waker())) {
                None => return Poll::Pending,
                Some(answer) => match self.judge(answer) {
                    Some(result) => return Poll::Ready(result),
                    None => again = Instant::now() + AGAIN,
                },
            }
        }
    }
}

impl<R> Future for Pending<R> {
    type Output = Result<R, RpcError>;

    /// # Panics
    /// If it is polled after its answer was given: to make the call again is not what anybody wants.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(!self.over, "a call was polled after its answer was given");
        let answer = self.advance(context);
        self.over = answer.is_ready();
        answer
    }
}

impl<R> Drop for Pending<R> {
    fn drop(&mut self) {
        self.cancel();
    }
}
