//! Who serves: at once, later, or with the request in hand.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use cutthrough_node::shm::link::Identity;

use super::{INLINE, LONGEST, Message, Method, bytes};
use crate::am::{Answered, Args, Body, Deferred, Failure, Node, Request};

/// Why a server does not serve a call: in words, up to 64 bytes of which the caller gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);

impl<T: Into<String>> From<T> for Refusal {
    fn from(words: T) -> Self {
        Self(words.into())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// The words that are sent, cut at a letter.
    fn bytes(&self) -> &[u8] {
        &self.0.as_bytes()[..self.0.floor_char_boundary(64)]
    }
}

/// Registers what serves a method. It runs on the thread that polls the node, so it should not wait for anything: one
/// that has to answers later ([`serve_later`]). It gets what was asked and nothing else: one that has to know who calls
/// is served by [`serve_later`], too, whose [`Answer::peer`] says so.
///
/// # Panics
/// If the method's number is [`RESERVED`](crate::am::RESERVED) or above, or has a handler already.
pub fn serve<Q: Message, R: Message>(
    node: &mut Node,
    method: Method<Q, R>,
    mut run: impl FnMut(Q) -> Result<R, Refusal> + Send + 'static,
) {
    let mut bytes = Vec::new();
    serve_asked(node, method, move |asked, request| answer(run(asked), request, &mut bytes));
}

/// As [`serve`], with the node's state ([`Node::with_state`]).
///
/// # Panics
/// As [`serve`], and if the state is no `T`.
pub fn serve_with<T: Any, Q: Message, R: Message>(
    node: &mut Node,
    method: Method<Q, R>,
    mut run: impl FnMut(&mut T, Q) -> Result<R, Refusal> + Send + 'static,
) {
    let (mut bytes, number, most) = (Vec::new(), method.number, method.most);
    node.whole_with(number, Args::Any, most, move |state: &mut T, request| {
        if let Some((asked, request)) = asked(most, request) {
            answer(run(state, asked), request, &mut bytes);
        }
    });
}

/// Answers at once. `bytes` is memory that was used before.
fn answer<R: Message>(result: Result<R, Refusal>, request: Request<'_>, bytes: &mut Vec<u8>) {
    match result {
        Ok(result) => {
            bytes.clear();
            result.encode(bytes);
            if bytes.len() <= INLINE {
                request.reply_bytes(bytes);
            } else {
                request.reply_with(&[], Body::Copy(bytes));
            }
        }
        Err(refusal) => request.refuse(refusal.bytes()),
    }
}

/// Bounds how many calls of a method may be in service at a time, of those that are answered later ([`serve_later`]).
/// While there are so many, others of that method are not run, and get [`Failure::HandlerBusy`]; their clients try
/// again until their deadline, and make calls of other methods meanwhile. So a slow method does not shut out a fast
/// one, as where all meet the bound of the node ([`serve`](crate::am::Settings::serve)). For methods of raw calls, and
/// any other handler: [`Node::limit_concurrency`].
///
/// ```
/// # use std::sync::mpsc;
/// # use cutthrough::am::{Node, Settings};
/// # use cutthrough::rpc::{self, Answer, Method};
/// # use cutthrough::{Config, Endpoint};
/// const SEARCH: Method<String, Vec<u64>> = Method::new(1);
/// const COUNT: Method<String, u64> = Method::new(2);
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut node = Node::new(Endpoint::open(Config::default())?, Settings::default());
/// # let (searches, _searchers) = mpsc::channel::<(String, Answer<Vec<u64>>)>();
/// rpc::serve_later(&mut node, SEARCH, move |text, answer| drop(searches.send((text, answer))));
/// rpc::serve(&mut node, COUNT, |text| Ok(text.len() as u64));
/// // As many as there are threads that search, and some for them to go on with.
/// rpc::limit_concurrency(&mut node, SEARCH, 16);
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// If nothing serves the method yet, or `most` is 0.
pub fn limit_concurrency<Q, R>(node: &mut Node, method: Method<Q, R>, most: usize) {
    node.limit_concurrency(method.number, most);
}

/// Bounds the same for each caller: one that has many calls under way does not keep others from the method. While there
/// are so many of one, its other calls of that method get [`Failure::HandlerBusy`], and wait at its own client.
///
/// ```
/// # use std::sync::mpsc;
/// # use cutthrough::am::{Node, Settings};
/// # use cutthrough::rpc::{self, Answer, Method};
/// # use cutthrough::{Config, Endpoint};
/// const SEARCH: Method<String, Vec<u64>> = Method::new(1);
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut node = Node::new(Endpoint::open(Config::default())?, Settings::default());
/// # let (searches, _searchers) = mpsc::channel::<(String, Answer<Vec<u64>>)>();
/// rpc::serve_later(&mut node, SEARCH, move |text, answer| drop(searches.send((text, answer))));
/// // Sixteen searches at a time, and no more than four of one caller.
/// rpc::limit_concurrency(&mut node, SEARCH, 16);
/// rpc::limit_per_caller(&mut node, SEARCH, 4);
/// # Ok(())
/// # }
/// ```
///
/// A caller is a channel: see [`Node::limit_per_caller`].
///
/// # Panics
/// If nothing serves the method yet, or `most` is 0.
pub fn limit_per_caller<Q, R>(node: &mut Node, method: Method<Q, R>, most: usize) {
    node.limit_per_caller(method.number, most);
}

/// Registers what serves a method and answers later, on whatever thread. Until a call is answered it counts against the
/// node's [`serve`](crate::am::Settings::serve) limit; while as many are put off, others get [`Failure::Busy`], which
/// their callers try again until their deadline. [`limit_concurrency`] gives the method a limit of its own,
/// and [`limit_per_caller`] each of its callers.
///
/// ```
/// # use std::sync::{Arc, mpsc};
/// # use std::time::Duration;
/// use cutthrough::am::{Node, Service, Settings};
/// use cutthrough::rpc::{self, Answer, Client, Method};
/// # use cutthrough::{Config, Endpoint};
///
/// const SQUARE: Method<u64, u64> = Method::new(7);
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let address = format!("shm:rpc-later-doc-{}", std::process::id());
/// let (work, worker) = mpsc::channel::<(u64, Answer<u64>)>();
/// std::thread::spawn(move || {
///     for (number, answer) in worker {
///         answer.give(Ok(number * number));
///     }
/// });
/// // No more than 100 of them wait for the worker.
/// let settings = Settings { serve: 100, ..Settings::default() };
/// let mut node = Node::new(Endpoint::open(Config::default())?, settings);
/// rpc::serve_later(&mut node, SQUARE, move |number, answer| drop(work.send((number, answer))));
/// node.listen(&address)?;
/// let server = Service::spawn(node, |_| ())?;
/// # let node = Node::new(Endpoint::open(Config::default())?, Settings::default());
/// # let client = Client::connect(Arc::new(Service::spawn(node, |_| ())?), &address, Duration::from_secs(1))?;
/// # assert_eq!(client.call(SQUARE, &12)?, 144);
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// If the method's number is [`RESERVED`](crate::am::RESERVED) or above, or has a handler already.
pub fn serve_later<Q: Message, R: Message>(
    node: &mut Node,
    method: Method<Q, R>,
    mut run: impl FnMut(Q, Answer<R>) + Send + 'static,
) {
    serve_asked(node, method, move |asked, request| {
        run(asked, Answer { deferred: request.defer(), gives: PhantomData });
    });
}

/// As [`serve_later`], with the node's state ([`Node::with_state`]).
///
/// # Panics
/// As [`serve_later`], and if the state is no `T`.
pub fn serve_later_with<T: Any, Q: Message, R: Message>(
    node: &mut Node,
    method: Method<Q, R>,
    mut run: impl FnMut(&mut T, Q, Answer<R>) + Send + 'static,
) {
    let (number, most) = (method.number, method.most);
    node.whole_with(number, Args::Any, most, move |state: &mut T, request| {
        if let Some((asked, request)) = asked(most, request) {
            run(state, asked, Answer { deferred: request.defer(), gives: PhantomData });
        }
    });
}

/// Registers what serves raw calls of this number, with the request in hand, all of whose payload has come: it can
/// reply with a payload straight from its own pages ([`Request::page`]) or from where that lies, put the answer off
/// ([`Request::defer`]), and hand the call over to somebody else ([`Request::hand_over`]). [`Node::long`] and
/// [`Node::whole`] do the same with limits of what a call may carry.
///
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// use cutthrough::am::{Body, Failure, Node, Service, Settings};
/// use cutthrough::rpc::{self, Client, Raw};
/// # use cutthrough::{Config, Endpoint};
/// use cutthrough::{Landing, Payload};
///
/// const BLOCK: u16 = 7;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let address = format!("shm:rpc-raw-doc-{}", std::process::id());
/// let mut node = Node::new(Endpoint::open(Config::default())?, Settings::default());
/// rpc::serve_raw(&mut node, BLOCK, |mut request| {
///     let number = request.word(0);
///     // Without a place of the caller's, the page itself goes to the caller.
///     let Ok(mut page) = request.page(4096) else { return request.fail(Failure::Busy) };
///     page.fill(number as u8);
///     request.reply_with(&number.to_le_bytes(), Body::Page(page));
/// });
/// node.listen(&address)?;
/// let server = Service::spawn(node, |_| ())?;
/// # let node = Node::new(Endpoint::open(Config::default())?, Settings::default());
/// # let client = Client::connect(Arc::new(Service::spawn(node, |_| ())?), &address, Duration::from_secs(1))?;
/// let mut reply = client.call_raw(Raw::new(BLOCK).args(&3_u32.to_le_bytes()))?;
/// assert_eq!((reply.word(0), reply.receipt().copies), (3, 0));
/// // A place of the caller's: memory that it may use again.
/// let place = Landing::Buffer(vec![0; 4096]);
/// let mut reply = client.call_raw(Raw::new(BLOCK).args(&5_u32.to_le_bytes()).reply_into(place))?;
/// assert!(matches!(reply.take_payload(), Payload::Buffer(bytes) if bytes == [5; 4096]));
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// If the number is [`RESERVED`](crate::am::RESERVED) or above, or has a handler already.
pub fn serve_raw(node: &mut Node, number: u16, run: impl FnMut(Request<'_>) + Send + 'static) {
    node.whole(number, Args::Any, LONGEST, run);
}

/// As [`serve_raw`], with the node's state ([`Node::with_state`]).
///
/// # Panics
/// As [`serve_raw`], and if the state is no `T`.
pub fn serve_raw_with<T: Any>(node: &mut Node, number: u16, run: impl FnMut(&mut T, Request<'_>) + Send + 'static) {
    node.whole_with(number, Args::Any, LONGEST, run);
}

/// A raw method whose calls carry a value: in the arguments or, if it is long, in the payload. A payload that is too
/// long is refused before any of it has come.
fn serve_asked<Q: Message, R>(
    node: &mut Node,
    Method { number, most, .. }: Method<Q, R>,
    mut run: impl FnMut(Q, Request<'_>) + Send + 'static,
) {
    node.whole(number, Args::Any, most, move |request| {
        if let Some((asked, request)) = asked(most, request) {
            run(asked, request);
        }
    });
}

/// What a call asks for, and the call; if that cannot be told, the call has ended.
fn asked<Q: Message>(most: usize, mut request: Request<'_>) -> Option<(Q, Request<'_>)> {
    if request.args().len() > most {
        request.fail(Failure::TooLong);
        return None;
    }
    let asked = if request.payload_len() == 0 {
        Q::decode(request.args())
    } else {
        bytes(request.take_payload()).and_then(Q::decode_owned)
    };
    match asked {
        Some(asked) => Some((asked, request)),
        None => {
            request.fail(Failure::Arguments);
            None
        }
    }
}

/// The right to answer a call later, on any thread. Dropped without an answer, it ends the call as
/// [`Failure::Abandoned`], or as [`Failure::Panicked`] if the thread panics.
#[must_use = "dropped, it ends the call without an answer"]
pub struct Answer<R> {
    deferred: Deferred,
    gives: PhantomData<fn(R)>,
}

impl<R> fmt::Debug for Answer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Answer").field(&self.deferred).finish()
    }
}

impl<R: Message> Answer<R> {
    /// Answers. Waits for nobody: whoever polls the node sends the answer, and is woken for it. A
    /// [`Service`](crate::am::Service) that ends sends what was given before. What is given to a node that is dropped
    /// before it is polled goes nowhere: the call ends with its channel.
    pub fn give(self, result: Result<R, Refusal>) {
        self.deferred.leave(match result {
            Ok(result) => {
                let mut bytes = Vec::new();
                result.encode(&mut bytes);
                let short = bytes.len() <= INLINE;
                if short { Answered::Reply(bytes, Vec::new()) } else { Answered::Reply(Vec::new(), bytes) }
            }
            Err(refusal) => Answered::Failed(Failure::Refused, refusal.bytes().to_vec()),
        });
    }
}

impl<R> Answer<R> {
    /// Who has called: whoever was on the other side of the channel when the call came
    /// ([`Request::peer`]).
    #[must_use]
    pub const fn peer(&self) -> Option<Identity> {
        self.deferred.peer()
    }

    /// Whether nobody waits for the answer any more: the caller has cancelled, its deadline has passed, or one of both
    /// endpoints has gone.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.deferred.is_over()
    }

    /// Time that is left until the caller does not wait any more; `None` if it said nothing.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.deferred.remaining()
    }
}
