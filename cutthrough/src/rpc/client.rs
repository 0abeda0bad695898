//! Who calls: from any thread, blocking, awaited, or with a continuation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Wake;
use std::time::Duration;

use cutthrough_engine::time::Instant;
use cutthrough_node::clock;
use cutthrough_node::incoming::{Channel, CurrentChannel};
use cutthrough_node::node::ConnectError;
use cutthrough_node::shm::grant::NoMemory;
use cutthrough_node::shm::link::Identity;
use cutthrough_node::udp::address::{Numbers, Ways};
use cutthrough_segment::page::Page;

use super::methods::Methods;
use super::opening::{close, look_up, open, opened};
use super::pending::{self, Pending, RawPending};
use super::permits::{Permit, Permits};
use super::queue::{AGAIN, Queue};
use super::raw::{Raw, RawError};
use super::{Message, Method, RpcError, result};
use crate::am::{Continuation, Continuing, Failed, Reply, RequestError, Service, nanos};

/// How long one try to open another channel may take.
const RECONNECT: Duration = Duration::from_millis(500);
/// How long after one that has failed there is none.
const REST: Duration = Duration::from_millis(1);
/// The same where the server's name was not found, at most: each time that it is not, twice as long as before.
const REST_UNKNOWN: Duration = Duration::from_millis(256);

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
    /// Calls that wait to be made.
    pub(super) queue: Queue,
    /// Those of methods that are busy.
    pub(super) methods: Methods,
    /// How many of them there may be, and with how many bytes.
    pub(super) permits: Arc<Permits>,
    /// Whether the server is reached over a network.
    is_wire: bool,
    /// The channel that it has at the moment: exchanged with the line in hand.
    channel: CurrentChannel,
    line: Mutex<Line>,
}

/// What is done about the channel's end.
#[derive(Debug)]
struct Line {
    address: String,
    /// Whether another channel is being opened.
    opening: bool,
    /// How often that has failed, why it has the last time, and when it is tried again.
    failed: u64,
    error: Option<Arc<ConnectError>>,
    again: Instant,
    /// How long there is no try once the server's name was not found.
    rest: Duration,
}

impl Client {
    /// Opens a channel to the server at `address`, and waits up to `timeout` for its answer. The service's thread opens
    /// it, and others use the node meanwhile.
    ///
    /// # Panics
    /// As [`Service::with`]: in a handler or a continuation, which has the node, it would wait in vain.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(service: Arc<Service>, address: &str, timeout: Duration) -> Result<Self, ConnectError> {
        let channel = open(&service, address, timeout)?;
        Ok(Self::over(service, address.to_owned(), channel))
    }

    /// The same as a future that needs no particular executor, and keeps no other task waiting. The channel is begun to
    /// be opened when the future is polled; dropped before it is done, it is given up. A server's name is looked up
    /// before, on a thread of its own, and `timeout` does not count how long that takes.
    ///
    /// # Errors
    /// [`ConnectError`]. That there was no answer in time is told by the service's thread: later, where others keep the
    /// node in use.
    pub async fn start_connect(
        service: Arc<Service>,
        address: impl Into<String>,
        timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let address = address.into();
        let channel = opened(&service, address.clone(), timeout).await?;
        Ok(Self::over(service, address, channel))
    }

    fn over(service: Arc<Service>, address: String, channel: Channel) -> Self {
        let again = clock::now();
        let is_wire = Ways::of(&address).is_some();
        let line = Line { address, opening: false, failed: 0, error: None, again, rest: REST };
        let within = service.deadline();
        let queue = Queue::new(Arc::clone(service.crowd()));
        let (most, most_bytes) = service.max_pending();
        let permits = Permits::new(most, most_bytes);
        let (methods, channel, line) = (Methods::default(), CurrentChannel::new(channel), Mutex::new(line));
        let inside = Inside { service, queue, methods, permits, is_wire, channel, line };
        Self { inside: Arc::new(inside), within }
    }

    /// Why another channel could not be opened, the last time that this was tried; `None` once there is one. A client
    /// whose channel has ended tries it whenever it has a call to make.
    #[must_use]
    pub fn last_error(&self) -> Option<Arc<ConnectError>> {
        self.inside.last_error()
    }

    /// Who is on the other side of the channel that this client has at the moment, with the key that it has proven, if
    /// any: as [`Node::peer`](crate::am::Node::peer). `None` where that channel has ended. Another one may be to
    /// somebody else. Waits while another thread uses the node.
    ///
    /// # Panics
    /// As [`Service::with`]: in a handler or a continuation, which has the node.
    #[must_use]
    pub fn peer(&self) -> Option<Identity> {
        let channel = self.inside.channel();
        self.inside.service.with(|node| node.peer(channel))
    }

    /// The same client, whose calls have to be answered within this time, and not within
    /// [`Settings::deadline`](crate::am::Settings::deadline). The server is told how much of it is left, so
    /// that it need not serve a call that nobody waits for.
    ///
    /// A call for which a thread waits, and whose body of private memory is longer than the pool
    /// ([`Config::pool_bytes`](crate::Config::pool_bytes)), may take longer: it goes through the staging ring, and
    /// waits for the server as long as that takes any of it within [`Config::deadline`](crate::Config::deadline). One
    /// that is awaited ends in time.
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Self { inside: Arc::clone(&self.inside), within: timeout }
    }

    /// Calls a method and waits for its result.
    ///
    /// # Panics
    /// As [`Service::with`]: in a handler or a continuation, which has the node, it would wait in vain. A method that
    /// has to call others by its own node answers later ([`serve_later`](super::serve_later)), and calls on another
    /// thread.
    ///
    /// # Errors
    /// [`RpcError`].
    pub fn call<Q: Message, R: Message>(&self, method: Method<Q, R>, asked: &Q) -> Result<R, RpcError> {
        result(self.call_raw(Raw::of(method, asked)))
    }

    /// Makes a raw call and waits for its reply, all of which has come then.
    ///
    /// # Panics
    /// As [`Client::call`].
    ///
    /// # Errors
    /// [`RawError`], and the place that was granted, if it can be given back.
    pub fn call_raw(&self, raw: Raw<'_>) -> Result<Reply, RawError> {
        pending::call(&self.inside, raw, self.within)
    }

    /// Calls a method: a future that needs no particular executor. The call is made when it is polled: by the first
    /// poll that finds room, and the node in use by no other thread. Dropped before it is done, the call is cancelled.
    ///
    /// A poll waits for nobody. What is asked, where it is longer than the pool
    /// ([`Config::pool_bytes`](crate::Config::pool_bytes)), goes only as fast as the server takes it: another thread
    /// sends it, one for all such calls of the service, in the order in which they came. It has the node until the
    /// server has taken all of it, or takes nothing of it within [`Config::deadline`](crate::Config::deadline). Other
    /// calls of the node wait meanwhile. The call ends with its time, or when it is dropped, all the same: with
    /// [`RequestError::TimedOut`] if it has only waited for others, and was not sent. If the service is dropped
    /// meanwhile, it ends when that is over; [`Service::stop`] waits for it. In simulated time, where there are no
    /// threads, the poll waits itself.
    pub fn start<Q: Message, R: Message>(&self, method: Method<Q, R>, asked: &Q) -> Pending<R> {
        Pending::new(self.start_raw(Raw::of(method, asked)))
    }

    /// The same for a raw call. Its future gives the reply, all of which has come then.
    ///
    /// Where all tokens of the channel are granted, it waits for one, as for room in the window. But where there are no
    /// pages for the place, it ends ([`NoMemory::NoPages`]): replies that the program holds may have them.
    pub fn start_raw<'a>(&self, raw: Raw<'a>) -> RawPending<'a> {
        RawPending::new(self.clone(), raw, self.within)
    }

    /// Calls a method and goes on: `then` gets the result, on the thread that polls the node when it comes. It must not
    /// use the service, which is in use just then. Until then the channel stays open, and the service alive.
    ///
    /// # Panics
    /// As [`Service::with`]: in a handler or a continuation, which has the node.
    ///
    /// Such a call is made once: `then` hears itself that the server is busy, or that the channel has ended, also where
    /// the method is idempotent.
    ///
    /// # Errors
    /// [`RequestError`]: `then` is dropped, and the call was not made, but perhaps with [`RequestError::Lost`]. With
    /// that and with [`RequestError::Closed`] another channel is being opened: a later call finds it, once there is a
    /// server ([`Client::last_error`] says why not).
    pub fn call_then<Q: Message, R: Message>(
        &self,
        method: Method<Q, R>,
        asked: &Q,
        then: impl FnOnce(Result<R, RpcError>) + Send + 'static,
    ) -> Result<(), RequestError> {
        let raw = Raw::of(method, asked);
        self.call_raw_then(raw, |outcome| then(result(outcome))).map_err(|(why, _)| why)
    }

    /// The same for a raw call.
    ///
    /// # Errors
    /// As [`Client::call_then`], and the call: it can be made again later, unless its payload was why it was not.
    #[allow(clippy::result_large_err, reason = "the error gives the call back")]
    pub fn call_raw_then<'a>(
        &self,
        mut raw: Raw<'a>,
        then: impl FnOnce(Result<Reply, RawError>) + Send + 'static,
    ) -> Result<(), (RequestError, Raw<'a>)> {
        let keeps = Arc::clone(&self.inside);
        let take = move |_: &mut Continuing<'_>, reply: Result<Reply, Failed>| {
            then(reply.map_err(RawError::from));
            drop(keeps);
        };
        let channel = self.inside.channel();
        let take = Continuation::Run(Box::new(take));
        let asked = self.inside.service.with(|node| raw.ask(node, channel, self.within, Some(take)));
        asked.map(drop).map_err(|why| {
            if matches!(why, RequestError::Closed | RequestError::Lost) {
                self.inside.reconnect(channel);
            }
            (why, raw)
        })
    }

    /// Pages for the payload of a raw call, to be filled in place: they go by reference, without a copy. They are good
    /// on the channel that this client has at the moment: where that ends meanwhile, the call ends in
    /// [`RequestError::Payload`]. Waits while another thread uses the node.
    ///
    /// # Panics
    /// As [`Service::with`]: in a handler or a continuation, which has the node.
    ///
    /// # Errors
    /// [`NoMemory`]. With [`NoMemory::Closed`] another channel is being opened.
    pub fn page(&self, bytes: usize) -> Result<Page, NoMemory> {
        let channel = self.inside.channel();
        let page = self.inside.service.with(|node| node.page(channel, bytes));
        if matches!(page, Err(NoMemory::Closed(_))) {
            self.inside.reconnect(channel);
        }
        page
    }

    /// How long its calls may take.
    pub(crate) const fn limit(&self) -> Duration {
        self.within
    }

    /// The right to have this call wait, if there is one; and another one for what goes on with such.
    pub(crate) fn permit(&self, raw: &Raw<'_>) -> Result<Permit, RequestError> {
        self.inside.permits.take(raw.kept()).ok_or(RequestError::Overloaded)
    }

    pub(crate) fn another_permit(&self, raw: &Raw<'_>) -> Permit {
        self.inside.permits.take_another(raw.kept())
    }

    /// Bytes of the pool of a channel.
    pub(crate) fn pool_bytes(&self) -> usize {
        usize::try_from(self.inside.service.pool_bytes()).unwrap_or(usize::MAX)
    }

    /// Whether the server is reached over a network.
    pub(crate) fn is_wire(&self) -> bool {
        self.inside.is_wire
    }

    /// Waits on this thread for what is made of awaited calls.
    ///
    /// # Panics
    /// As [`Client::call`].
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        pending::wait(&self.inside, future)
    }
}

impl Inside {
    /// Whether a call of this method may be made before those that wait.
    #[inline]
    pub(super) fn may_try(&self, method: u16) -> bool {
        self.queue.may_try(None) && self.methods.may_try(method)
    }

    /// A call of this method was answered, by a server that was not busy: there is room for another.
    #[inline]
    pub(super) fn answered(&self, method: u16) {
        self.queue.answered(clock::now);
        self.methods.answered(method, clock::now);
    }

    pub(super) fn channel(&self) -> Channel {
        self.channel.get()
    }

    /// Why another channel could not be opened.
    pub(super) fn last_error(&self) -> Option<Arc<ConnectError>> {
        self.line().error.clone()
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has another channel opened in place of one that has ended, unless that is under way: how often it has failed so
    /// far. Nobody waits for what becomes of it. A name is looked up on a thread of its own: it may take a while, and
    /// the service's thread serves others.
    pub(super) fn reconnect(self: &Arc<Self>, ended: Channel) -> u64 {
        let mut line = self.line();
        if self.channel() == ended && !line.opening && line.again <= clock::now() {
            line.opening = true;
            let its = Arc::downgrade(self);
            let begun = look_up(line.address.clone(), move |found| {
                let Some(inside) = its.upgrade() else { return };
                match found {
                    Ok(address) => inside.open(address),
                    // On a thread of its own: the line is not held there.
                    Err(error) => inside.unserved(|line| line.unknown(error.into())),
                }
            });
            if let Err(error) = begun {
                drop(line);
                self.unserved(|line| line.unknown(error));
                line = self.line();
            }
        }
        line.failed
    }

    /// How often another channel could not be opened.
    pub(super) fn failed(&self) -> u64 {
        self.line().failed
    }

    /// Another channel could not be opened: those calls end that do not wait for a server.
    fn unserved(&self, note: impl FnOnce(&mut Line)) {
        note(&mut self.line());
        self.queue.unserved();
        self.methods.all().iter().for_each(|queue| queue.unserved());
    }

    /// There is another channel, or there was none to be had.
    fn opened(&self, outcome: Result<Channel, ConnectError>) {
        match outcome {
            Ok(channel) => {
                let mut line = self.line();
                self.channel.set(channel);
                line.opened();
                drop(line);
                self.queue.answered(clock::now);
                self.methods.all().iter().for_each(|queue| queue.answered(clock::now));
            }
            Err(error) => self.unserved(|line| line.refused(error)),
        }
    }

    /// Has the service's thread open another channel.
    fn open(self: &Arc<Self>, address: Numbers) {
        let (its, service) = (Arc::downgrade(self), Arc::downgrade(&self.service));
        self.service.leave_to_thread(move |node| {
            if its.strong_count() == 0 {
                return;
            }
            let opens = Weak::clone(&its);
            let opened = move |outcome: Result<Channel, ConnectError>| match (opens.upgrade(), outcome) {
                (Some(inside), outcome) => inside.opened(outcome),
                // The last client has gone meanwhile.
                (None, Ok(channel)) => {
                    if let Some(service) = service.upgrade() {
                        close(&service, channel);
                    }
                }
                (None, Err(_)) => {}
            };
            let mut node = node.lock();
            let address = address.from(node.inside.endpoint.net_address());
            let begun = node.connect_then(&address, RECONNECT, opened);
            drop(node);
            if let (Err(error), Some(inside)) = (begun, its.upgrade()) {
                inside.opened(Err(error));
            }
        });
    }
}

/// Looks after the calls of a client that wait to be made.
struct Tends {
    inside: Weak<Inside>,
    /// If they are those of a method that is busy.
    method: Option<Arc<Queue>>,
}

impl Wake for Tends {
    fn wake(self: Arc<Self>) {
        let Some(inside) = self.inside.upgrade() else { return };
        let now = clock::now();
        if let Some(again) = self.method.as_deref().unwrap_or(&inside.queue).tend(now) {
            inside.service.wake_at(now.after(nanos(again)), self.into());
        }
    }
}

impl Inside {
    /// Has the service's thread look after the calls that wait to be made, every so often.
    pub(super) fn tend(self: &Arc<Self>, method: Option<&Arc<Queue>>, now: Instant) {
        let tends = Arc::new(Tends { inside: Arc::downgrade(self), method: method.cloned() });
        self.service.wake_at(now.after(nanos(AGAIN)), tends.into());
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let channel = self.channel();
        close(&self.service, channel);
    }
}

impl Line {
    /// There is another channel.
    fn opened(&mut self) {
        (self.opening, self.error, self.rest) = (false, None, REST);
    }

    /// There was none to be had.
    fn refused(&mut self, error: ConnectError) {
        self.rest = REST;
        self.failed(error, REST);
    }

    /// Nobody knows the server's name, or what it stands for now.
    fn unknown(&mut self, error: ConnectError) {
        self.rest = (self.rest * 2).min(REST_UNKNOWN);
        self.failed(error, self.rest);
    }

    /// There is no channel, and none is tried for so long.
    fn failed(&mut self, error: ConnectError, rest: Duration) {
        self.opening = false;
        self.failed += 1;
        self.error = Some(Arc::new(error));
        self.again = clock::now().after(nanos(rest));
    }
}
