//! Who calls: from any thread, blocking or awaited.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use cutthrough_node::incoming::Channel;
use cutthrough_node::node::ConnectError;
use cutthrough_node::udp::address::numbers;

use super::opening::{close, open};
use super::pending::{FOR_EVER, Pending, SPIN, SPIN_ASYNC, Unpark};
use super::{INLINE, Message, Method, RpcError};
use crate::Endpoint;
use crate::am::{Body, Call, CallError, Failed, Failure, Node, Reply, RequestError, Service};

/// How long one try to open another channel may take.
pub(super) const RECONNECT: Duration = Duration::from_millis(500);
/// How long after one that has failed there is none.
const REST: Duration = Duration::from_millis(1);

/// A channel to a server. Clones share it, and may be used on any thread. With the last of them, and of their calls
/// under way, the channel is closed.
#[derive(Debug, Clone)]
pub struct Client {
    pub(super) inside: Arc<Inside>,
    within: Duration,
}

#[derive(Debug)]
pub(super) struct Inside {
    pub(super) service: Arc<Service>,
    line: Mutex<Line>,
}

/// The channel, and what is done about its end.
#[derive(Debug)]
struct Line {
    address: String,
    channel: Channel,
    /// Whether another channel is being opened.
    opening: bool,
    /// How often that has failed, and when it is tried again.
    failed: u64,
    again: Instant,
}

impl Client {
    /// Opens a channel to the server at `address`, and waits up to `timeout` for its answer. The service's thread opens
    /// it, and others use the node meanwhile. In a handler or a continuation, where the node is in use, this waits in
    /// vain.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(service: Arc<Service>, address: &str, timeout: Duration) -> Result<Self, ConnectError> {
        let channel = open(&service, address, timeout)?;
        let line = Line { address: address.to_owned(), channel, opening: false, failed: 0, again: Instant::now() };
        let inside = Inside { service, line: Mutex::new(line) };
        Ok(Self { inside: Arc::new(inside), within: Duration::from_secs(10) })
    }

    /// The same client, whose calls have to be answered within this time. The server is told how much of it is left, so
    /// that it need not serve a call that nobody waits for.
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Self { inside: Arc::clone(&self.inside), within: timeout }
    }

    /// Calls a method and waits for its result.
    ///
    /// # Errors
    /// [`RpcError`].
    pub fn call<Q: Message, R: Message>(&self, method: Method<Q, R>, asked: &Q) -> Result<R, RpcError> {
        let waker = Arc::new(Unpark(std::thread::current()));
        let waker = Waker::from(waker);
        let mut context = Context::from_waker(&waker);
        let mut pending = std::pin::pin!(self.start(method, asked));
        pending.spin = SPIN;
        loop {
            match pending.as_mut().poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => std::thread::park_timeout(Duration::from_millis(1)),
            }
        }
    }

    /// Calls a method: a future that needs no particular executor. The call is made when it is polled: by the first
    /// poll that finds room, and the node in use by no other thread. Dropped before it is done, the call is cancelled.
    pub fn start<Q: Message, R: Message>(&self, method: Method<Q, R>, asked: &Q) -> Pending<R> {
        let mut bytes = Vec::new();
        asked.encode(&mut bytes);
        // What nobody lives to see is no time of the clock's.
        let now = Instant::now();
        let until = now.checked_add(self.within).unwrap_or_else(|| now + FOR_EVER);
        Pending {
            client: self.clone(),
            number: method.number,
            idempotent: method.idempotent,
            asked: bytes,
            until,
            slot: Arc::default(),
            call: None,
            before: None,
            failed: None,
            spin: SPIN_ASYNC,
            over: false,
            decode: decode::<R>,
        }
    }

    /// Calls a method and goes on: `then` gets the result, on the thread that polls the node when it comes. It must not
    /// use the service, which is in use just then. Until then the channel stays open, and the service alive.
    ///
    /// Such a call is made once: `then` hears itself that the server is busy, or that the channel has ended, also where
    /// the method is idempotent.
    ///
    /// # Errors
    /// [`RequestError`]: the call was not made, and `then` is dropped. With [`RequestError::Closed`] another channel is
    /// being opened: a later call finds it, once there is a server.
    pub fn call_then<Q: Message, R: Message>(
        &self,
        method: Method<Q, R>,
        asked: &Q,
        then: impl FnOnce(Result<R, RpcError>) + Send + 'static,
    ) -> Result<(), RequestError> {
        let mut bytes = Vec::new();
        asked.encode(&mut bytes);
        let keeps = Arc::clone(&self.inside);
        let take = move |_: &mut Endpoint, reply: Result<Reply, Failed>| {
            then(taken(reply).and_then(|bytes| decode::<R>(&bytes)));
            drop(keeps);
        };
        let channel = self.inside.channel();
        let asked = self.inside.service.with(|node| ask(node, channel, method.number, &bytes, self.within, take));
        if matches!(asked, Err(RequestError::Closed)) {
            self.inside.reconnect(channel, self.within.min(RECONNECT));
        }
        asked.map(drop)
    }
}

impl Inside {
    pub(super) fn channel(&self) -> Channel {
        self.line().channel
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has another channel opened in place of one that has ended, unless that is under way: how often it has failed so
    /// far. The service's thread begins it, since a name may have to be looked up; nobody waits for what becomes of it.
    pub(super) fn reconnect(self: &Arc<Self>, ended: Channel, timeout: Duration) -> u64 {
        let mut line = self.line();
        if line.channel == ended && !line.opening && line.again <= Instant::now() {
            line.opening = true;
            let (its, service) = (Arc::downgrade(self), Arc::downgrade(&self.service));
            let name = line.address.clone();
            self.service.leave_to_thread(move |node| {
                if its.strong_count() == 0 {
                    return;
                }
                let opens = Weak::clone(&its);
                let opened = move |outcome: Result<Channel, ConnectError>| match (opens.upgrade(), outcome.ok()) {
                    (Some(inside), channel) => inside.line().opened(channel),
                    // The last client has gone meanwhile.
                    (None, Some(channel)) => {
                        if let Some(service) = service.upgrade() {
                            close(&service, channel);
                        }
                    }
                    (None, None) => {}
                };
                let begun = numbers(&name).is_ok_and(|address| {
                    let mut node = node.lock().unwrap_or_else(PoisonError::into_inner);
                    node.connect_then(&address, timeout, opened).is_ok()
                });
                if !begun && let Some(inside) = its.upgrade() {
                    inside.line().opened(None);
                }
            });
        }
        line.failed
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let channel = self.channel();
        close(&self.service, channel);
    }
}

impl Line {
    /// There is another channel, or there was none to be had.
    fn opened(&mut self, channel: Option<Channel>) {
        self.opening = false;
        match channel {
            Some(channel) => self.channel = channel,
            None => {
                self.failed += 1;
                self.again = Instant::now() + REST;
            }
        }
    }
}

/// Asks for a call. What does not go at once is not asked.
pub(super) fn ask(
    node: &mut Node,
    channel: Channel,
    number: u16,
    bytes: &[u8],
    within: Duration,
    take: impl FnOnce(&mut Endpoint, Result<Reply, Failed>) + Send + 'static,
) -> Result<Call, RequestError> {
    let asking = node.ask(channel, number).within(within).impatient();
    let asking = if bytes.len() <= INLINE { asking.args(bytes) } else { asking.body(Body::Copy(bytes)) };
    asking.send_then(take)
}

/// The bytes of a reply: its arguments, or its payload.
pub(super) fn taken(reply: Result<Reply, Failed>) -> Result<Vec<u8>, RpcError> {
    match reply {
        Ok(reply) if reply.payload_len() == 0 => Ok(reply.args().to_vec()),
        Ok(mut reply) => Ok(super::bytes(reply.take_payload())),
        Err(failed) if failed.error == CallError::Failed(Failure::Refused) => {
            Err(RpcError::Refused(String::from_utf8_lossy(&failed.args).into_owned()))
        }
        Err(failed) => Err(failed.error.into()),
    }
}

fn decode<R: Message>(bytes: &[u8]) -> Result<R, RpcError> {
    R::decode(bytes).ok_or(RpcError::Type)
}
