//! A call that waits to be made: where, behind whom, and whether it may.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::Waker;

use cutthrough_engine::time::Instant;

use super::{Calling, after};
use crate::am::{CallError, Failure, Reply, RequestError};
use crate::rpc::client::Inside;
use crate::rpc::queue::Queue;
use crate::rpc::raw::RawError;

/// Whether this says that the server, or the method, serves as many as it may.
pub(super) const fn is_busy(error: CallError) -> bool {
    matches!(error, CallError::Failed(Failure::Busy | Failure::HandlerBusy))
}

impl Calling<'_> {
    /// Where it waits.
    pub(super) fn queue<'i>(&'i self, inside: &'i Inside) -> &'i Queue {
        self.method.as_deref().unwrap_or(&inside.queue)
    }

    /// Its method is busy, and others are not: it waits apart from their calls from now on.
    pub(super) fn stand_apart(&mut self, inside: &Inside) {
        if self.method.is_none() {
            self.method = Some(inside.methods.queue(self.raw.number(), inside.service.crowd()));
            self.ticket = None;
        }
        self.had_turn = false;
    }

    /// There is no room in the window: where it has waited for its method, it waits with all others from now on.
    pub(super) fn stand_with_all(&mut self, now: Instant) {
        if let Some(queue) = self.method.take() {
            queue.leave(self.ticket.take(), || now);
            self.had_turn = true;
        }
    }

    /// Whether it may be made before those that wait. Where others wait for its method, it stands behind them, and
    /// keeps no call of another method waiting.
    fn may_try(&mut self, inside: &Inside, now: Instant) -> bool {
        if self.method.is_none()
            && !self.had_turn
            && let Some(queue) = inside.methods.find(self.raw.number())
            && !queue.may_try(None)
        {
            inside.queue.leave(self.ticket.take(), || now);
            self.method = Some(queue);
        }
        self.queue(inside).may_try(self.ticket)
    }

    /// Waits for those that came before, if there are any: whether it does; or that it ends.
    pub(super) fn line_up(
        &mut self,
        inside: &Arc<Inside>,
        now: Instant,
        waker: &Waker,
    ) -> ControlFlow<Result<Reply, RawError>, bool> {
        if self.until(now).1.is_zero() {
            let why = self.before.unwrap_or_else(|| self.waited_for(inside));
            return ControlFlow::Break(Err(self.ended(inside, why)));
        }
        // What failed stands again where it stood before.
        let comes_again = std::mem::take(&mut self.comes_again);
        if !comes_again && self.may_try(inside, now) {
            return ControlFlow::Continue(false);
        }
        if !self.raw.idempotent && self.is_unserved(inside) {
            return ControlFlow::Break(Err(self.ended(inside, RequestError::Closed.into())));
        }
        self.wait(inside, now, waker)?;
        if comes_again && self.before.is_some_and(is_busy) {
            self.queue(inside).refused(after(now, self.took));
        }
        ControlFlow::Continue(true)
    }

    /// Whether another channel could not be opened since it waits.
    pub(super) fn is_unserved(&self, inside: &Inside) -> bool {
        self.failed.is_some_and(|failed| inside.failed() > failed)
    }

    /// What those have waited for that it has waited behind.
    pub(super) fn waited_for(&self, inside: &Inside) -> CallError {
        if self.queue(inside).is_busy() {
            CallError::Failed(if self.method.is_some() { Failure::HandlerBusy } else { Failure::Busy })
        } else if self.is_unserved(inside) {
            RequestError::Closed.into()
        } else {
            RequestError::TimedOut(self.within).into()
        }
    }

    /// Has the right to wait, or ends: as many others wait as may, or with as many bytes. What was sent before, and
    /// comes again, goes on.
    pub(super) fn may_wait(&mut self, inside: &Inside) -> ControlFlow<Result<Reply, RawError>> {
        if self.permit.is_none() {
            let was_sent = match self.before {
                Some(CallError::NotSent(why)) => why.may_have_run(),
                before => before.is_some(),
            };
            let (permits, bytes) = (&inside.permits, self.raw.kept());
            self.permit = if was_sent { Some(permits.take_another(bytes)) } else { permits.take(bytes) };
        }
        if self.permit.is_none() {
            return ControlFlow::Break(Err(self.ended(inside, RequestError::Overloaded.into())));
        }
        ControlFlow::Continue(())
    }

    /// Waits no more to be made.
    pub(super) fn leave(&mut self, inside: &Inside, now: impl FnOnce() -> Instant) {
        self.queue(inside).leave(self.ticket, now);
        self.permit = None;
    }

    /// Waits until it may be made, where it stood before, or behind all others.
    pub(super) fn wait(
        &mut self,
        inside: &Arc<Inside>,
        now: Instant,
        waker: &Waker,
    ) -> ControlFlow<Result<Reply, RawError>> {
        self.may_wait(inside)?;
        self.failed.get_or_insert_with(|| inside.failed());
        let (until, _) = self.until(now);
        let queue = self.method.as_deref().unwrap_or(&inside.queue);
        if queue.wait(&mut self.ticket, until, !self.raw.idempotent, waker) {
            inside.tend(self.method.as_ref(), now);
        }
        ControlFlow::Continue(())
    }
}
