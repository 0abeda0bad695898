//! Who calls: from any thread, blocking or awaited.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use cutthrough_node::incoming::Channel;
use cutthrough_node::node::ConnectError;
use cutthrough_node::udp::address::numbers;

use super::opening::{close, open};
use super::{INLINE, Message, Method, RpcError};
use crate::Endpoint;
use crate::am::{Body, Call, CallError, Failed, Failure, Node, Reply, RequestError, Service};

/// How long a call is looked for before its thread or task sleeps: as long as an endpoint looks.
const SPIN: Duration = Duration::from_micros(50);
/// How long a task is kept for that: others of its executor wait meanwhile.
const SPIN_ASYNC: Duration = Duration::from_micros(10);
/// How long a caller waits before it asks a busy server, or a full window, again.
const AGAIN: Duration = Duration::from_micros(100);
/// A hundred years.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// How long one try to open another channel may take.
const RECONNECT: Duration = Duration::from_millis(500);
/// How long after one that has failed there is none.
const REST: Duration = Duration::from_millis(1);

/// A channel to a server. Clones share it, and may be used on any thread. With the last of them, and of their calls
/// under way, the channel is closed.
#[derive(Debug, Clone)]
pub struct Client {
    inside: Arc<Inside>,
    within: Duration,
}

#[derive(Debug)]
struct Inside {
    service: Arc<Service>,
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

    fn channel(&self) -> Channel {
        self.inside.line().channel
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
        let channel = self.channel();
        let asked = self.inside.service.with(|node| ask(node, channel, method.number, &bytes, self.within, take));
        if matches!(asked, Err(RequestError::Closed)) {
            self.inside.reconnect(channel, self.within.min(RECONNECT));
        }
        asked.map(drop)
    }
}

impl Inside {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has another channel opened in place of one that has ended, unless that is under way: how often it has failed so
    /// far. The service's thread begins it, since a name may have to be looked up; nobody waits for what becomes of it.
    fn reconnect(self: &Arc<Self>, ended: Channel, timeout: Duration) -> u64 {
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
        let channel = self.line().channel;
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
fn ask(
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
    client: Client,
    number: u16,
    idempotent: bool,
    asked: Vec<u8>,
    until: Instant,
    slot: Arc<Slot>,
    call: Option<Call>,
    /// Why it was not answered when it was made before.
    before: Option<RpcError>,
    /// How often another channel could not be opened, when this call first found that its channel had ended.
    failed: Option<u64>,
    spin: Duration,
    /// Whether its answer was given.
    over: bool,
    decode: fn(&[u8]) -> Result<R, RpcError>,
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
        let channel = inside.line().channel;
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

/// The bytes of a reply: its arguments, or its payload.
fn taken(reply: Result<Reply, Failed>) -> Result<Vec<u8>, RpcError> {
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
