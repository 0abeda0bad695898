//! What a requester hears: replies, failures, and what goes wrong with channels.

use std::fmt;
use std::time::Duration;

use cutthrough_engine::am::message::{CallId, Malformed};
use cutthrough_engine::am::{Failure, Unasked};
use cutthrough_engine::receipt::Receipt;
use cutthrough_engine::time::Instant;
use cutthrough_node::incoming::{Bytes, Channel, Connecting, Incoming, Payload};
use cutthrough_node::node::ConnectError;
use cutthrough_node::shm::grant::{Landing, NoMemory};
use cutthrough_node::shm::link::CloseReason;
use cutthrough_node::shm::receive::ReadError;

use super::continuing::Continuing;
use super::words;

/// Bytes of a control message before the arguments.
pub(super) const HEAD: usize = 16;
/// Where it says how long they are.
const LEN: usize = 2;

/// A request under way, as its requester knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Call(pub(super) CallId);

/// Which call a message is about: its requester's number.
#[inline]
pub(super) fn call_of(incoming: &Incoming) -> CallId {
    let word = incoming.control().get(8..).and_then(|rest| rest.first_chunk());
    CallId::from_word(word.map_or(0, |word| u64::from_le_bytes(*word)))
}

/// The reply to a request. Its payload, if there is one, is held until this is dropped.
///
/// It has no more than 128 bytes, so that it is moved in pieces that are no wider than those it was written in: wider
/// ones would wait until what was written has left for the cache.
pub struct Reply {
    /// Whose control message was found to be a reply: head, call, arguments.
    pub(super) incoming: Incoming,
    /// What only some replies have.
    pub(super) beside: Option<Box<Beside>>,
}

/// What only some replies have.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// What was granted for a payload that did not come.
    pub(super) landing: Option<Landing>,
    /// When a payload has to be there that is still on its way.
    pub(super) until: Option<Instant>,
}

const _: () = assert!(size_of::<Reply>() <= 128 && size_of::<Option<Event>>() <= 128);

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Reply");
        shown.field("call", &self.call()).field("channel", &self.channel()).field("args", &Bytes(self.args()));
        if self.incoming.is_loaded() {
            shown.field("payload", self.payload());
        }
        shown.finish_non_exhaustive()
    }
}

impl Reply {
    /// Which request it answers.
    #[must_use]
    #[inline]
    pub fn call(&self) -> Call {
        Call(call_of(&self.incoming))
    }

    /// The channel that it came on: another than the request went on, if that was handed over.
    #[must_use]
    pub const fn channel(&self) -> Channel {
        self.incoming.channel()
    }

    /// The arguments as bytes.
    #[inline]
    #[must_use]
    pub fn args(&self) -> &[u8] {
        let control = self.incoming.control();
        let len = control.get(LEN).map_or(0, |len| usize::from(*len));
        control.get(HEAD..HEAD + len).unwrap_or(&[])
    }

    /// A word of the arguments; 0 beyond their end.
    #[inline]
    #[must_use]
    pub fn word(&self, index: usize) -> u32 {
        words::at(self.args(), index)
    }

    /// The first words of the arguments; 0 beyond their end.
    #[inline]
    #[must_use]
    pub fn words<const N: usize>(&self) -> [u32; N] {
        words::first(self.args())
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &Payload {
        self.incoming.payload()
    }

    /// Bytes of the payload.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.incoming.payload_len()
    }

    /// Takes the payload out: pages are kept beyond the reply.
    #[must_use]
    pub fn take_payload(&mut self) -> Payload {
        self.incoming.take_payload()
    }

    /// When the rest of the payload has to be there.
    pub(super) fn until(&self) -> Option<Instant> {
        self.beside.as_ref().and_then(|beside| beside.until)
    }

    /// Copies the payload into memory. For continuations, whose payload has come; others call
    /// [`Node::read`](super::Node::read).
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(&mut self, inside: &mut Continuing<'_>, into: &mut [u8]) -> Result<(), ReadError> {
        inside.read(self, into)
    }

    /// How the payload came: path and copies.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        self.incoming.receipt()
    }

    /// The place that was granted for a payload, if the reply has none: it is the requester's again.
    pub fn take_landing(&mut self) -> Option<Landing> {
        self.beside.as_mut().and_then(|beside| beside.landing.take())
    }
}

/// Something that has happened at a node.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly every event is a reply, and none may cost an allocation")]
#[non_exhaustive]
pub enum Event {
    /// A reply has come to a request that has no reply handler.
    Replied(Reply),
    /// A request has ended without a reply.
    Failed(Failed),
    /// A peer has opened a channel.
    Opened(Channel),
    /// What has become of a channel that we began to open ([`Node::begin_connect`](super::Node::begin_connect)).
    Connected(Connecting, Result<Channel, ConnectError>),
    /// A channel has ended. Every call on it has ended before.
    Closed(Channel, Ended),
}

/// A request that has ended without a reply.
#[derive(Debug)]
pub struct Failed {
    /// Which one.
    pub call: Call,
    /// Why.
    pub error: CallError,
    /// The handler's own words, if it has refused.
    pub args: Vec<u8>,
    /// The place that was granted for the reply's payload. The token is dead, so nothing can be written there any more.
    /// `None` if its payload is on its way, or if the peer has ended the channel, with which its memory goes.
    pub landing: Option<Landing>,
    /// Whether whoever it was handed to says so: then the handler of whoever was asked has run.
    pub(crate) was_handed: bool,
}

/// Why a request that was waited for ([`Node::call`](super::Node::call), [`Node::wait_for`](super::Node::wait_for)) has
/// no reply. Its text has the handler's own words, if it has refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct Unanswered {
    /// Why.
    pub error: CallError,
    /// The handler's own words, if it has refused.
    pub args: Vec<u8>,
    /// The place that was granted for the reply's payload, as in [`Failed::landing`].
    pub landing: Option<Landing>,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_words(f, self.error, &self.args)
    }
}

impl From<Failed> for Unanswered {
    fn from(failed: Failed) -> Self {
        let Failed { error, args, landing, .. } = failed;
        Self { error, args, landing }
    }
}

impl From<CallError> for Unanswered {
    fn from(error: CallError) -> Self {
        Self { error, args: Vec::new(), landing: None }
    }
}

impl From<RequestError> for Unanswered {
    fn from(error: RequestError) -> Self {
        CallError::from(error).into()
    }
}

/// Without the handler's words.
impl From<Unanswered> for CallError {
    fn from(unanswered: Unanswered) -> Self {
        unanswered.error
    }
}

/// An error, and the words of whoever has refused.
pub(crate) fn with_words(f: &mut fmt::Formatter<'_>, error: CallError, args: &[u8]) -> fmt::Result {
    fmt::Display::fmt(&error, f)?;
    let has_words = matches!(error, CallError::Failed(Failure::Refused | Failure::HandlerBusy));
    if has_words && !args.is_empty() {
        write!(f, ": {}", String::from_utf8_lossy(args))?;
    }
    Ok(())
}

/// Why a channel has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// The endpoint says why.
    #[error(transparent)]
    Closed(#[from] CloseReason),
    /// The peer has sent what is no active message; the channel was closed.
    #[error("the peer broke a rule, the channel was closed: {0}")]
    Broken(Malformed),
}

impl From<Malformed> for Ended {
    fn from(why: Malformed) -> Self {
        Self::Broken(why)
    }
}

/// Why a service could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The system gives no thread, or no socket.
    #[error("no thread or socket for the service: {0} (too many? raise `ulimit -u` and `ulimit -n`)")]
    System(std::io::Error),
}

impl From<std::io::Error> for ServiceError {
    fn from(error: std::io::Error) -> Self {
        Self::System(error)
    }
}

/// Why a request was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The window is full, or the ring is, or that of the lists of pages that are on their way. Poll, then try again.
    #[error("the window is full: poll, so that replies come in, then try again")]
    Full,
    /// The channel has ended.
    #[error("the channel has ended: connect again, or, with a client of rpc, which does that itself, call again")]
    Closed,
    /// The channel has ended while the payload was on its way. Whether the request was served is not known.
    #[error("the channel has ended while the request was sent, which may have been served: connect again")]
    Lost,
    /// Too many arguments.
    #[error("too many arguments: at most 64 bytes, or 58 to hand over a request with a deadline; use a payload")]
    TooLong,
    /// The payload cannot be sent.
    #[error(
        "the payload cannot be sent: at most 1 GiB, by pages no more than the pool has, and these of this channel, all \
         full but the last"
    )]
    Payload,
    /// There is no memory for the reply.
    #[error("no place for the reply: {0}")]
    NoMemory(NoMemory),
    /// There was no room in time, or, for a call of a client of `rpc`, no moment at which nobody else used the node.
    #[error("not sent within {0:?}: the peer makes no room, or others keep the node in use")]
    TimedOut(Duration),
    /// As many calls of the client of `rpc` wait to be made as may ([`Settings::max_pending`]), or with as many bytes
    /// ([`Settings::max_pending_bytes`]).
    ///
    /// [`Settings::max_pending`]: super::Settings::max_pending
    /// [`Settings::max_pending_bytes`]: super::Settings::max_pending_bytes
    #[error(
        "not sent: as many calls of this client wait to be made, or with as many bytes, as may \
         (Settings::max_pending, max_pending_bytes); try again later"
    )]
    Overloaded,
    /// The system refused to wait for room.
    #[error("waiting for room failed: the system refused to wait")]
    Wait,
    /// The request names a reply handler that there is not.
    #[error("no reply handler has that number: register it with Node::on_reply")]
    NoHandler,
}

impl RequestError {
    /// Whether the request may have been served all the same: see [`CallError::may_have_run`].
    #[must_use]
    pub const fn may_have_run(self) -> bool {
        matches!(self, Self::Lost)
    }
}

impl From<NoMemory> for RequestError {
    fn from(why: NoMemory) -> Self {
        match why {
            // The endpoint knows that the channel has ended, and has not told the node yet.
            NoMemory::Closed(_) => Self::Closed,
            why => Self::NoMemory(why),
        }
    }
}

impl From<Unasked> for RequestError {
    fn from(why: Unasked) -> Self {
        match why {
            Unasked::Full => Self::Full,
            Unasked::Closed => Self::Closed,
            Unasked::Lost => Self::Lost,
            Unasked::TooLong => Self::TooLong,
            Unasked::Refused => Self::Payload,
        }
    }
}

/// Why a request has no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The peer is gone. Whether the request was served is not known.
    #[error("the channel has ended before the reply came: {0}")]
    Closed(Ended),
    /// The peer says why there is no reply.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The deadline has passed. Whether the request was or will be served is not known.
    #[error("no reply before the deadline")]
    Late,
    /// The request was not sent, or, as [`RequestError::Lost`], not all of it.
    #[error(transparent)]
    NotSent(#[from] RequestError),
    /// The reply's payload could not be read.
    #[error("the reply's payload did not arrive: {0}")]
    Payload(ReadError),
    /// The system refused to wait for the reply. Whether the request was or will be served is not known.
    #[error("waiting for the reply failed: the system refused to wait")]
    Wait,
}

impl CallError {
    /// Whether a handler may have begun to serve the request. If not, it does no harm to make it again, whatever it
    /// asks for. A handler that hands requests over has served one whose taker was busy, unknown, or takes other
    /// arguments; that is not known here.
    ///
    /// ```
    /// use cutthrough::am::{CallError, Failure, RequestError};
    ///
    /// assert!(CallError::Late.may_have_run());
    /// assert!(!CallError::Failed(Failure::Busy).may_have_run());
    /// assert!(!CallError::NotSent(RequestError::Closed).may_have_run());
    /// assert!(CallError::NotSent(RequestError::Lost).may_have_run());
    /// ```
    #[must_use]
    pub const fn may_have_run(self) -> bool {
        match self {
            Self::Failed(why) => {
                !matches!(why, Failure::Busy | Failure::HandlerBusy | Failure::Unknown | Failure::Arguments)
            }
            Self::NotSent(why) => why.may_have_run(),
            Self::Closed(_) | Self::Late | Self::Payload(_) | Self::Wait => true,
        }
    }
}

impl From<ReadError> for CallError {
    fn from(why: ReadError) -> Self {
        match why {
            ReadError::Closed(reason) => Self::Closed(reason.into()),
            why => Self::Payload(why),
        }
    }
}
