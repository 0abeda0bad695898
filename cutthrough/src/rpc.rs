//! Remote procedure calls on active messages: typed and raw, blocking, awaited, or with a continuation, and handed over
//! (the kinds of Trapeze's NetRPC, USENIX 1998).
//!
//! A [`Method`] is a number with the types of its request and its reply. A server gives it a function with [`serve`],
//! or with [`serve_later`] if that cannot answer at once. A [`Client`] calls it, from any thread, through a
//! [`Service`](crate::am::Service) that drives the node while nobody else does.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use cutthrough::am::{Node, Service, Settings};
//! use cutthrough::rpc::{self, Client, Method};
//! use cutthrough::{Config, Endpoint};
//!
//! const LENGTH: Method<String, u64> = Method::new(7).idempotent();
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let address = format!("shm:rpc-doc-{}", std::process::id());
//! let mut node = Node::new(Endpoint::open(Config::default())?, Settings::default());
//! rpc::serve(&mut node, LENGTH, |text| Ok(text.len() as u64));
//! node.listen(&address)?;
//! let server = Service::spawn(node, |_| ())?;
//!
//! let node = Node::new(Endpoint::open(Config::default())?, Settings::default());
//! let service = Arc::new(Service::spawn(node, |_| ())?);
//! let client = Client::connect(service, &address, Duration::from_secs(1))?;
//! assert_eq!(client.call(LENGTH, &"hello".to_owned())?, 5);
//! # Ok(())
//! # }
//! ```
//!
//! # Types
//!
//! What a method takes and gives is a [`Message`]: numbers, `String`, `Option`, `Vec`, maps, tuples and more are, and
//! a type of one's own is once it says how it becomes bytes, for which [`Message`] has an example. Both sides have to
//! have the same definition of the method; a call or a reply of another type ends in an error.
//!
//! A server that cannot do what it is asked says so in words, which are those of the error at the caller:
//!
//! ```
//! # use std::sync::Arc;
//! # use std::time::Duration;
//! # use cutthrough::am::{Node, Service, Settings};
//! # use cutthrough::rpc::{self, Client, Method, RpcError};
//! # use cutthrough::{Config, Endpoint};
//! const DIVIDE: Method<(i64, i64), i64> = Method::new(8);
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let address = format!("shm:rpc-refuses-doc-{}", std::process::id());
//! # let mut node = Node::new(Endpoint::open(Config::default())?, Settings::default());
//! rpc::serve(&mut node, DIVIDE, |(a, b)| a.checked_div(b).ok_or("no number is that".into()));
//! # node.listen(&address)?;
//! # let server = Service::spawn(node, |_| ())?;
//! # let node = Node::new(Endpoint::open(Config::default())?, Settings::default());
//! # let client = Client::connect(Arc::new(Service::spawn(node, |_| ())?), &address, Duration::from_secs(1))?;
//! assert_eq!(client.call(DIVIDE, &(84, 2))?, 42);
//! assert_eq!(client.call(DIVIDE, &(84, 0)), Err(RpcError::Refused("no number is that".into())));
//! # Ok(())
//! # }
//! ```
//!
//! # Raw calls
//!
//! A [`Raw`] call has bytes: arguments, a payload in memory or in pages, and a place where the reply's payload shall
//! land. Its outcome is the [`Reply`] itself, whose payload stays where it lies. Typed calls are raw calls whose values
//! are written to bytes and read from them.
//!
//! | kind | typed | raw |
//! |---|---|---|
//! | blocking | [`Client::call`] | [`Client::call_raw`] |
//! | a future, for any executor | [`Client::start`] | [`Client::start_raw`] |
//! | with a continuation | [`Client::call_then`] | [`Client::call_raw_then`] |
//! | served at once | [`serve`] | [`serve_raw`]: [`Request::reply_with`](crate::am::Request::reply_with) |
//! | served later | [`serve_later`] | [`serve_raw`]: [`Request::defer`](crate::am::Request::defer) |
//! | handed over | | [`serve_raw`]: [`Request::hand_over`](crate::am::Request::hand_over) |
//!
//! Over shared memory, a reply's payload from a page of the server's comes by reference, without a copy; one to a place
//! in the caller's pages comes there with one copy, wherever the server has it. [`Reply::receipt`] says so.
//!
//! # How often a call runs
//!
//! At most once, whatever happens. A call that failed may have run, unless the error says otherwise. A server that is
//! [`Busy`](crate::am::Failure::Busy) has not run it, nor has one whose method is
//! [`HandlerBusy`](crate::am::Failure::HandlerBusy), so that is tried again until the deadline (one that has only
//! waited behind such calls until its own ends with the same error, and was not sent); but where that is one
//! that the call was handed to, whoever was asked has run it, and only an [`idempotent`](Method::idempotent) method is
//! called again. Where the channel has ended, only such a one is called again, too, on a new channel, as soon as a
//! server listens again and until the deadline. A call with a continuation ([`Client::call_then`]) is made once, and
//! its continuation hears all of that itself. A call whose payload lies in pages is sent once, too: they go with it.
//!
//! A call that finds its channel ended before anything was sent has another one opened. If there is no server just
//! then, it ends at once ([`RpcError::NoChannel`]), but that of an idempotent method waits for one until its deadline.
//! So nothing has to be built again after a server has come back. What it told before, such as the key of a region of
//! [`rma`](crate::rma), is good no more.
//!
//! # In an async runtime
//!
//! [`Client::start_connect`] and calls by [`Client::start`] and [`Client::start_raw`] keep no other task waiting, nor
//! does dropping them. A body of private memory that is longer than the [pool](crate::Config::pool_bytes) goes only as
//! fast as the server takes it: another thread sends it, and other calls of the node wait meanwhile. A service has one
//! thread for all such bodies, which it sends one after the other; there is none while there is nothing to send.
//! Borrowed memory is copied for that thread; give it away ([`Body::Owned`](crate::am::Body::Owned)) where that is too
//! much.
//!
//! These may keep others waiting: [`Client::connect`], for the server's
//! answer, [`Client::call`] and [`Client::call_raw`], [`Client::page`] and [`Service::with`](crate::am::Service::with),
//! for who uses the node, and dropping a service, for a handler that runs and, over a network, for what was sent to
//! arrive. Give them a thread, such as that of `tokio::task::spawn_blocking`. Many calls are answered by their first
//! poll: after 8 of them in a row on a thread, one lets its other tasks run first. Calls of many tasks are under way at
//! the same time; those for which there is no room wait in the order in which they came, and one that is not polled any
//! more keeps none of the others waiting. No more wait than [`Settings::max_pending`](crate::am::Settings::max_pending)
//! says, nor with more bytes than [`max_pending_bytes`](crate::am::Settings::max_pending_bytes): one more ends as
//! [`Overloaded`](crate::am::RequestError::Overloaded). With the feature `tower`, a `Tower` is
//! ready while a call may wait, and its task is woken in its turn when it is.

mod aside;
mod calling;
mod client;
mod idle;
mod message;
mod methods;
mod opening;
mod pending;
mod permits;
mod queue;
mod raw;
mod serve;
mod slot;
#[cfg(feature = "tower")]
mod tower;
mod turn;
mod values;

use std::fmt;
use std::marker::PhantomData;

pub use client::Client;
pub use message::Message;
pub use pending::{Pending, RawPending};
pub use raw::{Raw, RawError};
pub use serve::{
    Answer, Refusal, limit_concurrency, limit_per_caller, serve, serve_later, serve_later_with, serve_raw,
    serve_raw_with, serve_with,
};
#[cfg(feature = "tower")]
pub use tower::Tower;

use cutthrough_node::incoming::Payload;

use crate::am::{CallError, Reply};

/// Bytes of a request or a reply that travel in the control message. Longer ones travel as a payload.
const INLINE: usize = 58;
/// Longest request and reply of a method.
const LONGEST: usize = 1 << 30;

/// A procedure of a server: its number, and the types of its request and its reply.
pub struct Method<Q, R> {
    number: u16,
    idempotent: bool,
    /// Most bytes of what is asked.
    most: usize,
    types: PhantomData<fn(Q) -> R>,
}

impl<Q, R> Clone for Method<Q, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q, R> Copy for Method<Q, R> {}

impl<Q, R> fmt::Debug for Method<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, idempotent, most, types: _ } = self;
        let mut shown = f.debug_struct("Method");
        shown.field("number", number).field("idempotent", idempotent).field("at_most", most);
        shown.finish_non_exhaustive()
    }
}

impl<Q, R> Method<Q, R> {
    /// The method of this number, below [`RESERVED`](crate::am::RESERVED).
    #[must_use]
    pub const fn new(number: u16) -> Self {
        Self { number, idempotent: false, most: LONGEST, types: PhantomData }
    }

    /// The same method, which may be run twice: a call is made again if its channel ends before the reply.
    #[must_use]
    pub const fn idempotent(self) -> Self {
        Self { idempotent: true, ..self }
    }

    /// The same method, of which a server serves no call that is longer than so many bytes: it gets
    /// [`Failure::TooLong`](crate::am::Failure::TooLong) before any of it is taken in. Without this a call may have
    /// 1 GiB, the memory for which is taken as it comes. What a value takes is what [`Message::encode`] makes of it.
    ///
    /// Of a reply this says nothing: it is asked for by who trusts the server. Who does not makes a [`Raw`] call with a
    /// place as long as the reply may be.
    #[must_use]
    pub const fn at_most(self, bytes: usize) -> Self {
        Self { most: if bytes < LONGEST { bytes } else { LONGEST }, ..self }
    }

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// The server refuses, in its own words.
    #[error("the server refused the call: {0}")]
    Refused(String),
    /// The reply is not of the method's type.
    #[error("the reply is not of the method's type: do both sides have the same definition of it?")]
    Type,
    /// The call was not sent: its channel has ended, and there is no other one to the server yet. Why not, in words;
    /// [`Client::last_error`] has the error itself.
    #[error("the call was not sent: its channel has ended, and {0}")]
    NoChannel(String),
    /// The call was not answered, or not sent for another reason.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl RpcError {
    /// Whether the method may have begun to run. If not, it does no harm to call again, whatever it does:
    /// [`CallError::may_have_run`].
    #[must_use]
    pub const fn may_have_run(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Type => true,
            Self::NoChannel(_) => false,
            Self::Call(why) => why.may_have_run(),
        }
    }
}

/// What a raw call of a method has come to: the reply lies in its arguments or, if it is long, in its payload.
fn result<R: Message>(outcome: Result<Reply, RawError>) -> Result<R, RpcError> {
    let mut reply = outcome?;
    let value = if reply.payload_len() == 0 {
        R::decode(reply.args())
    } else {
        bytes(reply.take_payload()).and_then(R::decode_owned)
    };
    value.ok_or(RpcError::Type)
}

/// The bytes of a payload all of which has come. What lies in pages is copied before it is looked at, for the peer may
/// still write there. `None` if it has not come.
fn bytes(payload: Payload) -> Option<Vec<u8>> {
    match payload {
        Payload::Buffer(bytes) => Some(bytes),
        Payload::Landed(landed) => Some(landed.to_vec()),
        _ => None,
    }
}
