//! Calls as bytes: what they carry, and what becomes of it when they fail.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cutthrough_engine::am::message::ARGS_MAX;
use cutthrough_node::incoming::Channel;
use cutthrough_node::node::ConnectError;
use cutthrough_node::shm::grant::{Landing, NoMemory};
use cutthrough_wire::slot::PAYLOAD_MAX;

use super::{INLINE, Message, Method, RpcError};
use crate::am::{Body, Call, CallError, Continuation, Failed, Failure, Node, RequestError, with_words};

thread_local! {
    /// Where values are written that are short: memory in use costs no allocation.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A call without types, to be made by a [`Client`](super::Client): arguments, and if you like a payload, and a place
/// where the reply's payload shall land.
///
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// use cutthrough::am::{Body, Node, Service, Settings};
/// use cutthrough::rpc::{self, Client, Raw};
/// # use cutthrough::{Config, Endpoint};
/// use cutthrough::{Landing, Payload};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let address = format!("shm:rpc-raw-call-doc-{}", std::process::id());
/// # let mut node = Node::new(Endpoint::open(Config::default())?, Settings::default());
/// # rpc::serve_raw(&mut node, 7, |mut request| {
/// #     let mut bytes = vec![0; request.payload_len()];
/// #     request.read(&mut bytes).expect("all of it has come");
/// #     bytes.reverse();
/// #     request.reply_with(&[], Body::Copy(&bytes));
/// # });
/// # node.listen(&address)?;
/// # let server = Service::spawn(node, |_| ())?;
/// # let node = Node::new(Endpoint::open(Config::default())?, Settings::default());
/// # let client = Client::connect(Arc::new(Service::spawn(node, |_| ())?), &address, Duration::from_secs(1))?;
/// // A page that is filled in place goes to the server by reference; what it answers lands in pages of this side.
/// let mut page = client.page(8)?;
/// page.copy_from_slice(b"straight");
/// let raw = Raw::new(7).body(Body::Page(page)).reply_into(Landing::Pages(4096));
/// let mut reply = client.call_raw(raw)?;
/// assert_eq!(reply.receipt().copies, 1);
/// let Payload::Landed(landed) = reply.take_payload() else { return Err("no pages".into()) };
/// assert_eq!(landed.to_vec(), b"thgiarts");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a call is made by a client"]
pub struct Raw<'a> {
    number: u16,
    pub(super) idempotent: bool,
    args: Inline,
    body: Body<'a>,
    landing: Option<Landing>,
    /// Whether its payload was sent in pages, or its place was granted in memory that has not come back: then it cannot
    /// be made again.
    spent: Spent,
}

/// The arguments, in the call itself: it allocates nothing for them.
#[derive(Debug, Clone, Copy)]
struct Inline {
    bytes: [u8; ARGS_MAX],
    /// How many there are; more than fit, if they cannot be sent.
    len: usize,
}

impl Inline {
    const NONE: Self = Self { bytes: [0; ARGS_MAX], len: 0 };

    fn of(args: &[u8]) -> Self {
        let mut its = Self { len: args.len(), ..Self::NONE };
        if let Some(place) = its.bytes.get_mut(..args.len()) {
            place.copy_from_slice(args);
        }
        its
    }

    fn get(&self) -> Option<&[u8]> {
        self.bytes.get(..self.len)
    }
}

/// What of a call that was made there is no more.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    body: bool,
    buffer: bool,
}

impl<'a> Raw<'a> {
    /// A call of the method with this number, without arguments.
    pub const fn new(number: u16) -> Self {
        let spent = Spent { body: false, buffer: false };
        Self { number, idempotent: false, args: Inline::NONE, body: Body::None, landing: None, spent }
    }

    /// The number of its method.
    pub(super) const fn number(&self) -> u16 {
        self.number
    }

    /// The call may be run twice: it is made again if its channel ends before the reply.
    pub const fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// The arguments: up to 64 bytes, or 58 if the call may be handed over.
    pub fn args(mut self, args: &[u8]) -> Self {
        self.args = Inline::of(args);
        self
    }

    /// The payload. Pages ([`Client::page`](super::Client::page)) go once: a call with such a payload ends in
    /// [`Failure::Busy`] or [`CallError::Closed`] where another would be made again.
    pub fn body(mut self, body: Body<'a>) -> Self {
        self.body = body;
        self
    }

    /// Where the reply's payload shall land. A reply that has none, and a call that fails, give the place back.
    pub fn reply_into(mut self, landing: Landing) -> Self {
        self.landing = Some(landing);
        self
    }

    /// The call of a method that takes `asked`.
    pub(super) fn of<Q: Message, R>(method: Method<Q, R>, asked: &Q) -> Self {
        let mut raw = Self::new(method.number);
        raw.idempotent = method.idempotent;
        let mut bytes = SCRATCH.try_with(Cell::take).unwrap_or_default();
        bytes.clear();
        asked.encode(&mut bytes);
        if bytes.len() <= INLINE {
            raw.args = Inline::of(&bytes);
            // A thread that ends has it no more.
            let _ = SCRATCH.try_with(|scratch| scratch.set(bytes));
        } else {
            raw.body = Body::Owned(bytes);
        }
        raw
    }

    /// Asks for the call: its answer is taken so, or sought by who has the node. What does not go at once is not asked,
    /// and as it was.
    pub(super) fn ask(
        &mut self,
        node: &mut Node,
        channel: Channel,
        within: Duration,
        take: Option<Continuation>,
    ) -> Result<Call, RequestError> {
        let args = self.args.get().ok_or(RequestError::TooLong)?;
        if take.is_none() && self.landing.is_none() && self.body.is_empty() {
            self.spent = Spent { body: false, buffer: false };
            return node.request_to_seek(channel, self.number, args, within);
        }
        let (body, in_pages) = match &mut self.body {
            Body::None => (Body::None, false),
            Body::Copy(bytes) => (Body::Copy(bytes), false),
            Body::Owned(bytes) => (Body::Copy(bytes), false),
            Body::Landed(landed) => (Body::Landed(Arc::clone(landed)), false),
            pages => (std::mem::take(pages), true),
        };
        let asking = node.ask(channel, self.number).args(args).body(body).impatient();
        // Of pages only the number of bytes is said.
        let (asking, buffer) = match self.landing.take() {
            None => (asking, false),
            Some(Landing::Pages(bytes)) => {
                self.landing = Some(Landing::Pages(bytes));
                (asking.reply_into(Landing::Pages(bytes)), false)
            }
            Some(buffer) => (asking.reply_into(buffer), true),
        };
        let asked = match take {
            Some(take) => asking.within(within).try_send_to(take),
            None => asking.try_send_to_seek(within),
        };
        let unsent = match asked {
            Ok(call) => {
                self.spent = Spent { body: in_pages, buffer };
                return Ok(call);
            }
            Err(unsent) => unsent,
        };
        self.landing = unsent.landing.or(self.landing.take());
        let error = unsent.error;
        let back = pages_of(unsent.body);
        let is_lost = in_pages && back.is_none();
        if let Some(pages) = back {
            self.body = pages;
        }
        Err(match error {
            // The channel ended when the message was made, and the pages are gone: without them it is another call.
            RequestError::Closed | RequestError::Full if is_lost => RequestError::Payload,
            // The endpoint knows that the channel has ended, and has not told the node yet.
            RequestError::NoMemory(NoMemory::Closed(_)) => RequestError::Closed,
            error => error,
        })
    }

    /// Whether it has a payload that is there still.
    pub(super) fn has_body(&self) -> bool {
        !self.body.is_empty()
    }

    /// Bytes that it keeps while it waits: its payload, and private memory for that of its reply.
    pub(super) fn kept(&self) -> usize {
        let place = if let Some(Landing::Buffer(bytes)) = &self.landing { bytes.len() } else { 0 };
        self.body.len() + place
    }

    /// Whether a task would keep others waiting while it makes the call: its body goes only as fast as the server takes
    /// it, for the pool is too short for a copy.
    pub(super) fn waits(&self, node: &mut Node, channel: Channel) -> bool {
        let endpoint = &mut node.inside.endpoint;
        let is_private = match &self.body {
            Body::Copy(_) | Body::Owned(_) => true,
            Body::Landed(_) => !endpoint.crosses_net(channel),
            Body::None | Body::Page(_) | Body::Pages(_) => false,
        };
        let bytes = self.body.len();
        let is_long = (endpoint.pool_bytes() + 1..=PAYLOAD_MAX).contains(&(bytes as u64));
        is_private && is_long && endpoint.would_wait(channel, bytes, None)
    }

    /// The same call, of which nothing is borrowed.
    pub(super) fn into_owned(self) -> Raw<'static> {
        let Self { number, idempotent, args, body, landing, spent } = self;
        let body = match body {
            Body::None => Body::None,
            Body::Copy(bytes) => Body::Owned(bytes.to_vec()),
            Body::Owned(bytes) => Body::Owned(bytes),
            Body::Page(page) => Body::Page(page),
            Body::Pages(pages) => Body::Pages(pages),
            Body::Landed(landed) => Body::Landed(landed),
        };
        Raw { number, idempotent, args, body, landing, spent }
    }

    /// What stands for this call while another thread has it.
    pub(super) fn stand_in(&self) -> Self {
        Self { idempotent: self.idempotent, ..Self::new(self.number) }
    }

    /// Makes the call ready to be made again, after a failure that gave back this place. Where that cannot be, it is
    /// the place.
    pub(super) fn renew(&mut self, landing: Option<Landing>) -> Result<(), Option<Landing>> {
        if self.spent.body || (self.spent.buffer && landing.is_none()) {
            return Err(landing);
        }
        if let Some(landing) = landing {
            self.landing = Some(landing);
        }
        Ok(())
    }

    /// The place, if it is not granted.
    pub(super) fn take_landing(&mut self) -> Option<Landing> {
        self.landing.take()
    }
}

/// The payload, if it lies in pages.
fn pages_of<'a>(body: Body<'_>) -> Option<Body<'a>> {
    match body {
        Body::Page(page) => Some(Body::Page(page)),
        Body::Pages(pages) => Some(Body::Pages(pages)),
        Body::Landed(landed) => Some(Body::Landed(landed)),
        Body::None | Body::Copy(_) | Body::Owned(_) => None,
    }
}

/// Why a raw call has no reply, and the place that it has granted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub struct RawError {
    /// Why.
    pub error: CallError,
    /// Why there is no channel to the server, where the call was not sent for want of one
    /// ([`RequestError::Closed`]); `None` if another one is just being opened.
    pub unopened: Option<Arc<ConnectError>>,
    /// The server's own words, if it has refused.
    pub args: Vec<u8>,
    /// The place for the reply's payload. Its token is dead, so nothing can be written there any more.
    ///
    /// `None` if the payload is on its way, or if the peer has ended the channel, with which its memory goes; and if
    /// the call was late or cancelled while another thread used the node. Then that thread of the service makes the
    /// token dead later, and the memory is given back to the system, or to the endpoint whose pages they are, after
    /// that and not before.
    pub landing: Option<Landing>,
}

impl fmt::Display for RawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.no_channel() {
            Some(why) => RpcError::NoChannel(why).fmt(f),
            None => with_words(f, self.error, &self.args),
        }
    }
}

impl RawError {
    /// What keeps the call from being sent, in words, if that is the want of a channel.
    fn no_channel(&self) -> Option<String> {
        let unsent = self.error == CallError::NotSent(RequestError::Closed);
        unsent.then(|| match &self.unopened {
            Some(error) => format!("no other one could be opened: {error}"),
            None => "another one is being opened: call again".into(),
        })
    }

    /// A call that has ended for a reason of this side's.
    pub(super) const fn new(error: CallError, landing: Option<Landing>) -> Self {
        Self { error, unopened: None, args: Vec::new(), landing }
    }
}

impl From<Failed> for RawError {
    fn from(failed: Failed) -> Self {
        let Failed { error, args, landing, .. } = failed;
        Self { error, unopened: None, args, landing }
    }
}

impl From<RawError> for RpcError {
    fn from(failed: RawError) -> Self {
        if failed.error == CallError::Failed(Failure::Refused) {
            return Self::Refused(String::from_utf8_lossy(&failed.args).into_owned());
        }
        failed.no_channel().map_or(Self::Call(failed.error), Self::NoChannel)
    }
}
