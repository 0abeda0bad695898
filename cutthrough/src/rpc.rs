//! Remote procedure calls on active messages: typed and raw, blocking, awaited, or with a continuation (the kinds of
//! Trapeze's NetRPC, USENIX 1998; its third kind, the delegated call, is [`Request::hand_over`](crate::am::Request)).
//!
//! A [`Method`] is a number with the types of its request and its reply. A server gives it a function with [`serve`]. A
//! [`Client`] calls it, from any thread, through a [`Service`](crate::am::Service) that drives the node while nobody
//! else does.
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
//! # How often a call runs
//!
//! At most once, whatever happens. A call that failed may have run, unless the error says otherwise. A server that is
//! [`Busy`](Failure::Busy) has not run it, so that is tried again until the deadline. Where the channel has ended, only
//! an [`idempotent`](Method::idempotent) method is called again, on a new channel, as soon as a server listens again
//! and until the deadline. A call with a continuation ([`Client::call_then`]) is made once, and its continuation hears
//! all of that itself.

mod client;
mod message;
mod opening;
mod pending;
#[cfg(feature = "tower")]
mod tower;

use std::marker::PhantomData;

pub use client::Client;
pub use message::Message;
pub use pending::Pending;
#[cfg(feature = "tower")]
pub use tower::Tower;

use cutthrough_node::incoming::Payload;

use crate::am::{Args, Body, CallError, Failure, Node, Request};

/// Bytes of a request or a reply that travel in the control message. Longer ones travel as a payload.
const INLINE: usize = 58;
/// Longest request and reply of a typed method.
const LONGEST: usize = 1 << 30;

/// A procedure of a server: its number, and the types of its request and its reply.
#[derive(Debug)]
pub struct Method<Q, R> {
    number: u16,
    idempotent: bool,
    types: PhantomData<fn(Q) -> R>,
}

impl<Q, R> Clone for Method<Q, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q, R> Copy for Method<Q, R> {}

impl<Q, R> Method<Q, R> {
    /// The method of this number, below [`RESERVED`](crate::am::RESERVED).
    #[must_use]
    pub const fn new(number: u16) -> Self {
        Self { number, idempotent: false, types: PhantomData }
    }

    /// The same method, which may be run twice: a call is made again if its channel ends before the reply.
    #[must_use]
    pub const fn idempotent(self) -> Self {
        Self { idempotent: true, ..self }
    }

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// The server refuses, in its own words.
    #[error("the server refused the call: {0}")]
    Refused(String),
    /// The reply is not of the method's type.
    #[error("the reply is not of the method's type: do both sides have the same definition of it?")]
    Type,
    /// The call was not answered.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Why a server does not serve a call: in words, up to 64 bytes of which the caller gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);

impl<T: Into<String>> From<T> for Refusal {
    fn from(words: T) -> Self {
        Self(words.into())
    }
}

/// Registers what serves a method. It runs on the thread that polls the node, so it should not wait for anything; one
/// that has to is a handler of its own ([`Node::long`]) that puts its answer off.
pub fn serve<Q: Message, R: Message>(
    node: &mut Node,
    method: Method<Q, R>,
    mut run: impl FnMut(Q) -> Result<R, Refusal> + Send + 'static,
) {
    let mut bytes = Vec::new();
    node.whole(method.number, Args::Any, LONGEST, move |mut request| {
        let Some(asked) = decode::<Q>(&mut request) else { return request.fail(Failure::Arguments) };
        match run(asked) {
            Ok(result) => {
                bytes.clear();
                result.encode(&mut bytes);
                reply(request, &bytes);
            }
            Err(Refusal(words)) => request.refuse(&words.as_bytes()[..words.floor_char_boundary(64)]),
        }
    });
}

/// The request, which lies in the arguments or, if it is long, in the payload.
fn decode<Q: Message>(request: &mut Request<'_>) -> Option<Q> {
    if request.payload_len() == 0 { Q::decode(request.args()) } else { Q::decode(&bytes(request.take_payload())) }
}

/// The bytes of a payload all of which has come.
fn bytes(payload: Payload) -> Vec<u8> {
    match payload {
        Payload::Buffer(bytes) => bytes,
        Payload::Landed(landed) => {
            let mut bytes = vec![0; landed.len()];
            landed.read_at(0, &mut bytes);
            bytes
        }
        Payload::None | Payload::Arriving(_) | Payload::Dropped(_) => Vec::new(),
    }
}

fn reply(request: Request<'_>, bytes: &[u8]) {
    if bytes.len() <= INLINE {
        request.reply_bytes(bytes);
    } else {
        request.reply_with(&[], Body::Copy(bytes));
    }
}
