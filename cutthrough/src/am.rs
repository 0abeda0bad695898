//! Active messages: requests that run a handler at the peer, and replies that acknowledge them (Generic Active Messages
//! 1.1, as SSAM and U-Net had them).
//!
//! A [`Node`] owns an [`Endpoint`] and a table of handlers. A request names a handler and carries up to 16 words, and,
//! if you like, a payload. The handler replies once; if it does not, an empty reply goes back by itself, so every
//! request is answered, or ends in an error that says why.
//!
//! | request | payload | the handler gets it |
//! |---|---|---|
//! | [`short`](Node::short) | none | |
//! | [`medium`](Node::medium) | up to a page, copied | as a slice |
//! | [`long`](Node::long) | up to 1 GiB | to read to where it shall lie, or in the place that a token named |
//! | [`whole`](Node::whole) | up to 1 GiB | the same, once all of it has come |
//!
//! ```
//! use std::time::Duration;
//! use cutthrough::am::{Args, Node, Settings};
//! use cutthrough::{Config, Endpoint};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let address = format!("shm:am-doc-{}", std::process::id());
//! const ADD: u16 = 1;
//! let mut server = Node::new(Endpoint::open(Config::default())?, Settings::default());
//! server.short(ADD, Args::Words(2), |request| {
//!     let sum = request.word(0) + request.word(1);
//!     request.reply(&[sum]);
//! });
//! server.listen(&address)?;
//! let server = std::thread::spawn(move || while server.wait(Some(Duration::from_millis(300))).is_ok() {});
//!
//! let mut node = Node::new(Endpoint::open(Config::default())?, Settings::default());
//! let channel = node.connect(&address, Duration::from_secs(1))?;
//! let reply = node.call(channel, ADD, &[20, 22], Duration::from_secs(1))?;
//! assert_eq!(reply.word(0), 42);
//! # drop(node);
//! # server.join().ok();
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//!
//! A handler runs at most once for each request. Requests of a channel are served in the order in which they were made.
//! However full the queues are, requests and replies do not deadlock; the reasons are those of
//! [`cutthrough_engine::am`]: each request reserves room for its reply on both sides, and taking a reply in sends
//! nothing. A handler cannot poll, nor can what takes a reply, so neither is entered twice. A call ends by its
//! deadline, with the payload of its reply; what its token named can be written by nobody from then on. What a peer
//! sends that is no active message closes that channel alone.

mod asking;
mod continuing;
mod crowd;
mod deferred;
mod early;
mod event;
mod gather;
mod handlers;
mod lock;
mod request;
mod serve;
mod service;
mod wait;
mod watch;
mod way;
mod words;

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use cutthrough_engine::am::{Core, ReplyTo};
use cutthrough_engine::count::Counter;
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::Token;
use cutthrough_node::clock;
use cutthrough_node::incoming::{Channel, Connecting};
use cutthrough_node::node::{ConnectError, ListenError};
use cutthrough_node::pace::Pace;
use cutthrough_node::shm::grant::{Landing, NoMemory, RevokeError};
use cutthrough_node::shm::link::Identity;
use cutthrough_segment::page::Page;

pub use asking::{Asking, Unsent};
pub use continuing::Continuing;
pub(crate) use continuing::{Continuation, Taker};
pub(crate) use crowd::Crowd;
pub use cutthrough_engine::am::message::Malformed;
pub use cutthrough_engine::am::{Failure, LARGE, WINDOW};
pub(crate) use deferred::Answered;
pub use deferred::Deferred;
pub(crate) use event::with_words;
pub use event::{Call, CallError, Ended, Event, Failed, Reply, RequestError, ServiceError, Unanswered};
pub use request::Request;
pub(crate) use serve::{nanos, upcall};
pub use service::Service;
pub(crate) use service::{Driving, Long, Others, Place};
pub use way::Body;

use crate::Endpoint;
use crate::rma::Owner;
use deferred::{PutOffs, Shelf};
use early::Early;
use gather::Gathering;
use handlers::Registered;
use serve::Taken;
use way::{Kept, Way};

/// Numbers of handlers from here on are the library's own.
pub const RESERVED: u16 = 0xff00;
/// Events taken in by one poll before its caller has its turn.
const BUDGET: u32 = 64;
/// Polls between two looks at the clock, where each finds something.
const POLLS_PER_LOOK: u32 = 256;
/// The same where they find nothing, at most: so many take far longer than a look.
const EMPTY_PER_LOOK: u32 = 32;
/// What comes between two looks at whether the system's clock has ticked, where polls tell of none of it.
const COMES_PER_TICK: u32 = 16;
/// Nanoseconds after which calls that were made without a look at the clock get their deadline.
const DATE_NS: u64 = 50_000_000;
/// Longest sleep while something waits for room.
const NAP: Duration = Duration::from_millis(1);

/// How a node behaves. Settings may be added: write those that shall be others, and `..Settings::default()`.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Requests that this node may have under way on a channel: 1 to [`WINDOW`], which is the default. Only with the
    /// default does it ask for the larger window of [`LARGE`] when it needs one.
    pub window: u32,
    /// How long a reply may take where the call says nothing else: of a client of [`rpc`](crate::rpc), too. Default:
    /// 10 s.
    pub deadline: Duration,
    /// Requests whose answer was put off ([`Request::defer`]) at a time, at least 1; while there are so many, others
    /// get [`Failure::Busy`] before their handler runs. Default: 1024.
    pub serve: usize,
    /// Calls of each client of [`rpc`](crate::rpc) by this node that may wait to be made, at least 1: for room in the
    /// window, a busy server, another channel, or who uses the node. While there are so many, a call that would wait
    /// ends as [`RequestError::Overloaded`]; `rpc::Tower` is not ready. Default: 16384.
    pub max_pending: usize,
    /// Bytes of the payloads of those calls, and of private memory for those of their replies, at least 1. A call with
    /// more than is left of them is refused in the same way, but for one that would wait without another such call.
    /// What a call that is under way keeps does not count: there the window is the bound. Default: 256 MiB.
    pub max_pending_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        let (max_pending, max_pending_bytes) = (16_384, 256 << 20);
        Self { window: WINDOW, deadline: Duration::from_secs(10), serve: 1024, max_pending, max_pending_bytes }
    }
}

/// How many arguments a handler takes. A request with others gets [`Failure::Arguments`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Args {
    /// Any number of bytes, up to 64.
    Any,
    /// So many words: 16 at most.
    Words(u8),
    /// So many bytes, or more: 64 at most.
    AtLeast(u8),
}

/// What shall happen with the answer to a request.
#[derive(Debug)]
pub(crate) enum Then {
    /// It is an [`Event`].
    Tell,
    /// The same, once all of its payload has come: see [`Node::seek`].
    Seek,
    /// A reply handler takes it.
    Handler(u16),
    /// It is passed on to who asked first.
    Passed(ReplyTo),
    /// A continuation takes it.
    Continue(u32),
    /// It is counted: see [`Node::tally`].
    Tally(u32),
}

/// What a pending call stands for; `None` for a call of which an event shall tell, and for whose reply nothing was
/// granted. The others need one of [`Node::spare`].
pub(crate) type Context = Option<Box<Wanted>>;

/// What shall happen with the answer to a call.
#[derive(Debug)]
pub(crate) struct Wanted {
    then: Then,
    /// The place that was granted for the reply's payload, and the row of its channel.
    token: Option<(u32, Token)>,
}

type ReplyHandler = Box<dyn FnMut(Result<Reply, Failed>) + Send>;

/// The part of a node that handlers can reach.
pub(crate) struct Inside {
    pub(crate) endpoint: Endpoint,
    core: Core<Context, Kept>,
    doors: Vec<Option<Channel>>,
    deferred: PutOffs,
    shelf: Arc<Shelf>,
}

impl std::fmt::Debug for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inside").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Inside {
    #[inline]
    fn split(&mut self) -> (Way<'_>, &mut Core<Context, Kept>) {
        (Way { endpoint: &mut self.endpoint, doors: &self.doors, patient: false }, &mut self.core)
    }

    #[inline]
    fn door(&self, row: u32) -> Option<Channel> {
        self.doors.get(row as usize).copied().flatten()
    }

    /// Kills a token: what it named, unless its payload is on its way. Then it is dropped when it comes.
    fn kill(&mut self, place: Option<(u32, Token)>) -> Option<Landing> {
        let (row, token) = place?;
        let door = self.door(row)?;
        self.endpoint.revoke(door, token).ok()
    }
}

/// What gets a channel that was being opened.
type Caller = Box<dyn FnOnce(Result<Channel, ConnectError>) + Send>;

/// An endpoint with handlers. One thread uses it at a time; [`Service`] shares it between threads.
pub struct Node {
    pub(crate) inside: Inside,
    settings: Settings,
    /// What handlers share with whoever has the node.
    state: Box<dyn Any + Send>,
    handlers: Vec<Option<Registered>>,
    own: [Option<Registered>; 8],
    replies: Vec<Option<ReplyHandler>>,
    continuations: Vec<Option<Continuation>>,
    free_continuations: Vec<u32>,
    /// For calls to come: a box in use costs no allocation.
    #[allow(clippy::vec_box, reason = "the boxes are what is kept")]
    spare: Vec<Box<Wanted>>,
    /// Who waits for channels that are being opened.
    callers: Vec<(Connecting, Caller)>,
    /// What happened and was not told yet.
    ready: VecDeque<Event>,
    /// Direct replies that nobody has announced yet.
    early: Early,
    /// Messages whose payload is still on its way.
    gathering: Gathering,
    medium: Vec<u8>,
    tallies: Vec<Tally>,
    /// The regions that peers may use.
    pub(crate) owner: Option<Owner>,
    polls: u32,
    /// How much has come.
    came: u32,
    /// The last tick of the system's clock after which a poll that serves has looked what is late.
    tick: Instant,
    /// Polls that have found nothing, and when one of them looks at the clock.
    empty: u32,
    pace: Pace,
    dated: Instant,
    /// When a poll has found nothing, as far as one has looked at the clock then.
    idle: Instant,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("inside", &self.inside).field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Calls of one operation that is made of many.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Calls that have ended, in order: which one, and why it failed if it has.
    pub(crate) ended: Vec<(Call, Result<Reply, Unanswered>)>,
}

impl Node {
    /// A node over an endpoint. Channels that the endpoint has already are not the node's.
    ///
    /// # Panics
    /// If one of the numbers of the [`Settings`] is out of its bounds.
    #[must_use]
    pub fn new(endpoint: Endpoint, settings: Settings) -> Self {
        Self::with_state(endpoint, settings, ())
    }

    /// The same with a state that handlers share with whoever has the node ([`Node::short_with`] and its like of the
    /// other kinds, [`rpc::serve_with`](crate::rpc::serve_with)). It needs no lock: one thread at a time uses the node,
    /// and with it the state.
    ///
    /// # Panics
    /// If one of the numbers of the [`Settings`] is out of its bounds.
    #[must_use]
    pub fn with_state(endpoint: Endpoint, settings: Settings, state: impl Any + Send) -> Self {
        assert!((1..=WINDOW).contains(&settings.window), "Settings::window is {}: 1 to {WINDOW}", settings.window);
        assert!(settings.serve > 0, "Settings::serve is {}: each request would find the node busy", settings.serve);
        assert!(settings.max_pending > 0, "Settings::max_pending is {}: no call could wait", settings.max_pending);
        assert!(settings.max_pending_bytes > 0, "Settings::max_pending_bytes is 0: no tower would ever be ready");
        // A call that is passed to another node is none of its calls.
        let core = Core::naming_from(settings.window, endpoint.first_nonce());
        let shelf = Arc::new(Shelf::new(endpoint.bell()));
        let now = clock::now();
        Self {
            inside: Inside { endpoint, core, doors: Vec::new(), deferred: PutOffs::default(), shelf },
            settings,
            state: Box::new(state),
            handlers: Vec::new(),
            own: Default::default(),
            replies: Vec::new(),
            continuations: Vec::new(),
            free_continuations: Vec::new(),
            spare: Vec::new(),
            callers: Vec::new(),
            ready: VecDeque::new(),
            early: Early::default(),
            gathering: Gathering::default(),
            medium: Vec::new(),
            tallies: Vec::new(),
            owner: None,
            polls: 0,
            came: 0,
            tick: now,
            empty: 0,
            pace: Pace::with_most(now, EMPTY_PER_LOOK),
            dated: now,
            idle: now,
        }
    }

    /// The state, if it is a `T`.
    #[inline]
    #[must_use]
    pub fn state<T: Any>(&self) -> Option<&T> {
        self.state.downcast_ref()
    }

    /// The same, to be changed.
    #[inline]
    #[must_use]
    pub fn state_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.state.downcast_mut()
    }

    /// The endpoint, for its counters, its address, its [`Waker`](crate::Waker), and its file descriptor, which is
    /// slept on after [`Node::arm`].
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.inside.endpoint
    }

    /// The endpoint alone, with its channels, and its name if it listens. Answers that were left are sent before, as
    /// far as there is room. What else was under way is dropped as with the node: nobody hears of its calls, nor
    /// answers the requests that were put off.
    #[must_use]
    pub fn into_endpoint(mut self) -> Endpoint {
        self.tend();
        self.inside.endpoint
    }

    /// Lets no more peers in: [`Endpoint::stop_listening`].
    pub fn stop_listening(&mut self) {
        self.inside.endpoint.stop_listening();
    }

    /// Takes an address and lets peers in: [`Endpoint::listen`].
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&mut self, address: &str) -> Result<(), ListenError> {
        self.inside.endpoint.listen(address)
    }

    /// Opens a channel: [`Endpoint::connect`].
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&mut self, address: &str, timeout: Duration) -> Result<Channel, ConnectError> {
        let channel = self.inside.endpoint.connect(address, timeout)?;
        self.open(channel);
        Ok(channel)
    }

    /// Begins to open a channel, and goes on: [`Event::Connected`] says what has become of it
    /// ([`Endpoint::begin_connect`]).
    ///
    /// # Errors
    /// [`ConnectError`], if it has failed already: then there is no event.
    pub fn begin_connect(&mut self, address: &str, timeout: Duration) -> Result<Connecting, ConnectError> {
        self.inside.endpoint.begin_connect(address, timeout)
    }

    /// The same; `then` gets what has become of it, in place of an event, on the thread that polls the node when that
    /// is known.
    ///
    /// # Errors
    /// [`ConnectError`], if it has failed already: then `then` is dropped.
    pub fn connect_then(
        &mut self,
        address: &str,
        timeout: Duration,
        then: impl FnOnce(Result<Channel, ConnectError>) + Send + 'static,
    ) -> Result<Connecting, ConnectError> {
        let connecting = self.begin_connect(address, timeout)?;
        self.callers.push((connecting, Box::new(then)));
        Ok(connecting)
    }

    /// Gives up opening a channel: nothing will be told of it. False if that was told already.
    pub fn cancel_connect(&mut self, connecting: Connecting) -> bool {
        self.callers.retain(|(of, _)| *of != connecting);
        self.inside.endpoint.cancel_connect(connecting) || self.untell_connected(connecting)
    }

    /// Closes a channel. Its calls end with an error, and what they granted for replies is given back.
    pub fn close(&mut self, channel: Channel) {
        if self.inside.door(channel.index()) == Some(channel) {
            self.end(channel, cutthrough_node::shm::link::CloseReason::Here.into());
            self.inside.endpoint.close(channel);
        }
    }

    /// Who is on the other side of a channel: [`Endpoint::peer`].
    #[must_use]
    pub fn peer(&self, channel: Channel) -> Option<Identity> {
        self.inside.endpoint.peer(channel)
    }

    /// Open channels.
    pub fn channels(&self) -> impl Iterator<Item = Channel> + '_ {
        self.inside.doors.iter().copied().flatten()
    }

    /// How many requests can be made on a channel before its window is full.
    #[must_use]
    pub fn room(&self, channel: Channel) -> u32 {
        let (under_way, window) = self.inside.core.under_way(channel.index());
        if self.inside.door(channel.index()) == Some(channel) { window.saturating_sub(under_way) } else { 0 }
    }

    /// Registers what takes the replies of requests that name it ([`Asking::then`]), and their failures, in place of
    /// what had this number before. If it panics, that ends there.
    pub fn on_reply(&mut self, handler: u16, take: impl FnMut(Result<Reply, Failed>) + Send + 'static) {
        let index = usize::from(handler);
        if self.replies.len() <= index {
            self.replies.resize_with(index + 1, || None);
        }
        self.replies[index] = Some(Box::new(take));
    }

    /// Stops waiting for a call: no event will tell of it, even if its answer has come. Its token is dead when this
    /// returns, and what it named is given back, unless its payload has come or is on its way; then it is dropped. The
    /// peer is told, if it has not answered. The call's unit of the window is free again when it has.
    pub fn cancel(&mut self, call: Call) -> Option<Landing> {
        self.give_up(call, false)
    }

    /// The same; `late` if that is for its deadline's sake.
    pub(crate) fn give_up(&mut self, call: Call, late: bool) -> Option<Landing> {
        let taken = self.inside.core.cancel(call.0).or_else(|| self.gathering.take_reply(call.0));
        // The peer is told at once: until it is, no request can be made on that channel.
        self.inside.flush();
        let Some(context) = taken else { return self.untell(call) };
        self.inside.endpoint.count(Counter::CallsLate, u64::from(late));
        let Wanted { then, token } = self.unbox(context?);
        let landing = self.inside.kill(token);
        // Last: to drop it may panic.
        if let Then::Continue(slot) = then {
            drop(self.take_continuation(slot));
        }
        landing
    }

    /// Pages of a channel's pool for a payload, to be filled in place: [`Endpoint::page`].
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn page(&mut self, channel: Channel, bytes: usize) -> Result<Page, NoMemory> {
        self.inside.endpoint.page(channel, bytes)
    }

    /// Grants a place for the payload of a coming long request. Tell the peer the token.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn grant(&mut self, channel: Channel, landing: Landing) -> Result<Token, NoMemory> {
        self.inside.endpoint.grant(channel, landing)
    }

    /// The same; where it cannot be granted the landing is given back: [`Endpoint::grant_or_return`].
    ///
    /// # Errors
    /// [`NoMemory`], and the landing.
    pub fn grant_or_return(&mut self, channel: Channel, landing: Landing) -> Result<Token, (NoMemory, Landing)> {
        self.inside.endpoint.grant_or_return(channel, landing)
    }

    /// Takes a token back that [`Node::grant`] has given, and that no request has used: [`Endpoint::revoke`].
    ///
    /// # Errors
    /// [`RevokeError`].
    pub fn revoke(&mut self, channel: Channel, token: Token) -> Result<Landing, RevokeError> {
        self.inside.endpoint.revoke(channel, token)
    }

    /// What has happened next; serves requests on the way. Never waits. Where nothing has come, it says
    /// which calls are late: of those made [within](Asking::within) a time at the next poll after that, if polls were
    /// slow since the request, and of others some tens of polls later at most.
    #[inline]
    pub fn poll(&mut self) -> Option<Event> {
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(POLLS_PER_LOOK) {
            self.look(false);
        }
        self.take_in::<true>()
    }

    /// What has happened next. Where nothing has, who `IDLES` may look at the clock.
    #[inline(always)]
    fn take_in<const IDLES: bool>(&mut self) -> Option<Event> {
        if self.has_chores() || !self.ready.is_empty() {
            self.tend();
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
        }
        for _ in 0..BUDGET {
            // Looked at where it is: to move a message that has just been copied out of the ring costs more than to
            // find its handler.
            let mut event = self.inside.endpoint.poll();
            let taken = match &mut event {
                None if IDLES => return self.nothing(),
                None => return None,
                Some(crate::Event::Message(incoming)) => self.take_message(incoming),
                Some(_) => Taken::Other,
            };
            self.came = self.came.wrapping_add(1);
            match taken {
                Taken::Done => {
                    if let Some(crate::Event::Message(incoming)) = event
                        && incoming.is_loaded()
                    {
                        self.inside.endpoint.release(incoming);
                    }
                }
                // Most replies: moved once, to where they are wanted.
                Taken::Reply(_, None) if matches!(&event, Some(crate::Event::Message(reply)) if !reply.is_loaded()) => {
                    let Some(crate::Event::Message(incoming)) = event else { return None };
                    return Some(Event::Replied(Reply { incoming, beside: None }));
                }
                Taken::Reply(call, context) => {
                    let Some(crate::Event::Message(incoming)) = event else { return None };
                    if let Some(event) = self.replied(incoming, call, context) {
                        return Some(event);
                    }
                }
                taken => {
                    if let Some(event) = event.and_then(|event| self.finish(taken, event)) {
                        return Some(event);
                    }
                }
            }
            // However much others ask, what waits here ends in its time.
            if self.came.is_multiple_of(COMES_PER_TICK) && self.has_ticked(IDLES) {
                return self.ready.pop_front();
            }
        }
        None
    }

    /// A poll has found nothing but what is late. Who polls all the time looks at the clock now and then, who does so
    /// now and then looks each time.
    #[inline]
    fn nothing(&mut self) -> Option<Event> {
        self.empty = self.empty.wrapping_add(1);
        if self.pace.due(self.empty) { self.look_when_idle() } else { None }
    }

    #[cold]
    fn look_when_idle(&mut self) -> Option<Event> {
        let now = self.look(false);
        self.idle = now;
        self.pace.look(self.empty, now);
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests;
