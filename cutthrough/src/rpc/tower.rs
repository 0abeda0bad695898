//! A method of a server as a `tower_service::Service`.

use std::fmt;
use std::task::{Context, Poll};

use super::permits::{Permit, Waits};
use super::raw::Raw;
use super::{Client, Message, Method, Pending, RpcError};

/// One method of a [`Client`]'s server, for stacks of `tower` layers.
///
/// It is ready while fewer calls of the client wait to be made than may, with fewer bytes
/// ([`Settings::max_pending`](crate::am::Settings::max_pending), and
/// [`max_pending_bytes`](crate::am::Settings::max_pending_bytes)), and has the place of one of them then: a call that
/// follows has that until it is made, so it never ends as [`Overloaded`](crate::am::RequestError::Overloaded). How long
/// that will be is not known before: so each that is ready may bring one call that is longer than what was left. Those
/// that are not ready are woken in the order in which they asked, one for each place that is free, and nobody who comes
/// later gets that before them; where bytes are short, the next one when the call of the last has come. One that is
/// dropped gives its place back; a clone has none. A call by one that is not ready is as [`Client::start`]. All clones,
/// services of other methods, and whoever else calls by that client have the same places.
///
/// A layer that sheds load, or goes by readiness, so sees that calls wait: because the window is full, or the server is
/// busy or gone. Set `max_pending` to as many as shall wait: with 1, load is shed while one waits. To bound the calls
/// that are under way, too, put a layer around this that counts them (`tower::limit::ConcurrencyLimit`).
pub struct Tower<Q, R> {
    client: Client,
    method: Method<Q, R>,
    waits: Waits,
    permit: Option<Permit>,
}

impl<Q, R> Clone for Tower<Q, R> {
    fn clone(&self) -> Self {
        Self::new(self.client.clone(), self.method)
    }
}

impl<Q, R> fmt::Debug for Tower<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, method, waits: _, permit } = self;
        let mut shown = f.debug_struct("Tower");
        shown.field("client", client).field("method", method).field("is_ready", &permit.is_some());
        shown.finish_non_exhaustive()
    }
}

impl<Q, R> Tower<Q, R> {
    /// The service of this method.
    #[must_use]
    pub const fn new(client: Client, method: Method<Q, R>) -> Self {
        Self { client, method, waits: Waits::new(), permit: None }
    }
}

impl<Q: Message, R: Message> tower_service::Service<Q> for Tower<Q, R> {
    type Response = R;
    type Error = RpcError;
    type Future = Pending<R>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RpcError>> {
        if self.permit.is_none() {
            self.permit = self.waits.poll(&self.client.inside.permits, context.waker());
        }
        if self.permit.is_some() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn call(&mut self, asked: Q) -> Pending<R> {
        let call = self.client.start_raw(Raw::of(self.method, &asked));
        Pending::new(match self.permit.take() {
            Some(permit) => call.permitted(permit),
            None => call,
        })
    }
}
