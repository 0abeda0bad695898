//! Calls under way: waited for by a thread, and awaited.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use cutthrough_node::clock;
use cutthrough_node::shm::grant::Landing;

use super::calling::{Calling, Tried, after, make};
use super::client::{Client, Inside};
use super::permits::Permit;
use super::raw::{Raw, RawError};
use super::slot::waker;
use super::{Message, RpcError, result, turn};
use crate::am::Reply;

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
    let (mut slot, mut answer, channel) = (None, None, inside.channel());
    let may_try = !within.is_zero() && inside.may_try(raw.number());
    if !may_try {
        // Whoever has the node in hand would keep those from it that it waits for.
        inside.service.assert_elsewhere();
    }
    let (made, driving) = match if may_try { inside.service.pass() } else { None } {
        None => (None, inside.service.driving()),
        Some(mut passing) => {
            let (others, places) = (passing.others(), (&mut slot, &mut answer));
            let made = make(passing.node(), others, &mut raw, places, channel, (within, false));
            // Most calls are over by now: without a look at the clock.
            if let Some(Ok(reply)) = answer {
                passing.leave();
                inside.answered(raw.number());
                return Ok(reply);
            }
            (Some(made), passing.stay())
        }
    };
    let mut waited = Waited { inside, calling: Calling::blocking(raw, within, slot) };
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

/// Waits on this thread for what is made of awaited calls.
pub(super) fn wait<T>(inside: &Inside, future: impl Future<Output = T>) -> T {
    inside.service.assert_elsewhere();
    let (mut future, waker) = (pin!(future), waker());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        inside.service.rest(Duration::from_millis(1));
    }
}

impl<'a> RawPending<'a> {
    /// A call that is made when it is polled, and has to be answered within this time from now on.
    pub(super) fn new(client: Client, raw: Raw<'a>, within: Duration) -> Self {
        let calling = Calling::awaited(raw, within, after(clock::now(), within));
        Self { client, calling, stage: Stage::New }
    }

    /// The same call, which has the right to wait already.
    pub(crate) fn permitted(mut self, permit: Permit) -> Self {
        self.calling.permit(permit);
        self
    }

    /// Cancels the call, as dropping it does, and gives back the place that it has granted: see [`RawError::landing`].
    /// `None`, too, if the reply's payload has come there.
    #[must_use = "to give nothing back, drop the call"]
    pub fn cancel(mut self) -> Option<Landing> {
        self.calling.stop(&self.client.inside, false)
    }
}

impl Future for RawPending<'_> {
    type Output = Result<Reply, RawError>;

    /// # Panics
    /// If it is polled after its answer was given: to make the call again is not what anybody wants.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { client, calling, stage } = &mut *self;
        assert!(*stage != Stage::Over, "a call was polled after its answer was given");
        calling.turn.begin();
        if std::mem::replace(stage, Stage::Polled) == Stage::New && turn::is_over() {
            calling.turn.make_way(client.inside.service.crowd(), context.waker());
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
#[must_use = "a call is made when it is awaited"]
pub struct Pending<R> {
    raw: RawPending<'static>,
    result: fn(Result<Reply, RawError>) -> Result<R, RpcError>,
}

impl<R> fmt::Debug for Pending<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("raw", &self.raw).finish_non_exhaustive()
    }
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
