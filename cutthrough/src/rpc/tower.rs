//! A method of a server as a `tower_service::Service`.

use std::fmt;
use std::task::{Context, Poll};

use super::{Client, Message, Method, Pending, RpcError};

/// One method of a [`Client`]'s server, for stacks of `tower` layers.
///
/// It is always ready: a call for which there is no room waits itself, behind those that came before it, until its
/// deadline. So layers that go by readiness see no back-pressure here: one that sheds load never does, and however many
/// calls are made, all of them wait. A layer that counts calls under way (`tower::limit::ConcurrencyLimit`), put
/// directly around this, is what bounds them and is not ready; all clones of a service have to share its count. With as
/// many as a window has ([`Settings::window`](crate::am::Settings::window)), no call waits for room in the window, if
/// nobody else calls by that client.
pub struct Tower<Q, R> {
    client: Client,
    method: Method<Q, R>,
}

impl<Q, R> Clone for Tower<Q, R> {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), method: self.method }
    }
}

impl<Q, R> fmt::Debug for Tower<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tower").field("client", &self.client).field("method", &self.method).finish()
    }
}

impl<Q, R> Tower<Q, R> {
    /// The service of this method.
    #[must_use]
    pub const fn new(client: Client, method: Method<Q, R>) -> Self {
        Self { client, method }
    }
}

impl<Q: Message, R: Message> tower_service::Service<Q> for Tower<Q, R> {
    type Response = R;
    type Error = RpcError;
    type Future = Pending<R>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), RpcError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, asked: Q) -> Pending<R> {
        self.client.start(self.method, &asked)
    }
}
