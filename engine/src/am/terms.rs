//! The words between the core and who drives it: what it is asked, and what it says.

use alloc::boxed::Box;

use cutthrough_wire::slot::CONTROL_MAX;
use cutthrough_wire::token::Token;

use super::budget::Budget;
use super::message::{Arguments, CallId, Message, Short};

/// Sends control messages, each with a load. `B` is the load: nothing, borrowed bytes, pages.
pub trait Transport<B> {
    /// Sends on the channel of a row, to the place that `token` names.
    ///
    /// # Errors
    /// [`Unsent`], and the load.
    fn send(&mut self, row: u32, control: &[u8], token: Option<Token>, load: B) -> Result<(), (Unsent, B)>;

    /// The same for a short message, which may be written to where it leaves from.
    ///
    /// # Errors
    /// As [`Transport::send`].
    #[inline]
    fn send_short(&mut self, row: u32, message: Short<'_>, token: Option<Token>, load: B) -> Result<(), (Unsent, B)> {
        let mut control = [0; CONTROL_MAX];
        let len = message.write(&mut control);
        self.send(row, &control[..len], token, load)
    }
}

/// A load that can be kept until there is room for it.
pub trait Keep<L> {
    /// The load, for as long as it takes; `None` if there is none.
    fn keep(self) -> Option<L>;

    /// Bytes of memory that keeping it takes, beyond what holds it already.
    fn bytes(&self) -> usize {
        0
    }

    /// The load in memory of its own, if that takes no more than `most` bytes; as it was otherwise. What has held it
    /// until then is free for those that wait in front of it.
    #[must_use]
    fn in_own_memory(self, most: usize) -> Self
    where
        Self: Sized,
    {
        let _ = most;
        self
    }
}

/// Why a message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsent {
    /// There is no room now.
    Full,
    /// The channel has ended.
    Closed,
    /// The channel has ended while the load was on its way: the message may have come.
    Lost,
    /// This load can never be sent.
    Refused,
}

/// Why a request has no reply. The number is its code in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Failure {
    /// No handler has that number.
    #[error("the peer has no handler of that number: register it before requests come")]
    Unknown = 1,
    /// The handler takes another number of arguments, or those of a typed method are of other types.
    #[error("the handler takes other arguments: do both sides have the same definition of it?")]
    Arguments = 2,
    /// The handler takes no payload, or none so long; or it has run, and its reply has more than can be sent.
    #[error("the payload is longer than the handler takes, or the reply longer than can be sent")]
    TooLong = 3,
    /// The handler has panicked.
    #[error("the handler has panicked; the peer's endpoint lives")]
    Panicked = 4,
    /// The server serves as many requests as it may. No handler has run.
    #[error("the peer is busy: it serves as many requests at a time as it may; the request was not served, try again")]
    Busy = 5,
    /// The request came too late to be served, or was handed to somebody who has not answered in time.
    #[error("the deadline had passed before the request was served, or before whom it was handed to has answered")]
    Late = 6,
    /// The requester had cancelled it.
    #[error("the request was cancelled")]
    Cancelled = 7,
    /// It was put off, and then nobody replied; or the handler has replied, and the reply was thrown away, for too much
    /// waits for the requester already.
    #[error("the peer has thrown the request away, or its reply")]
    Abandoned = 8,
    /// Two endpoints that should have talked to each other have no channel.
    #[error("a request was handed over to an endpoint without a channel to this one")]
    NoRoute = 9,
    /// Whom it was handed to is gone.
    #[error("the endpoint that the request was handed to is gone")]
    Gone = 10,
    /// The place for the payload of the reply, or of the request, was not good, or too short.
    #[error("the payload was dropped: its token was not good, or its place is too short")]
    Token = 11,
    /// The handler says no, in its own words: they are in the answer's arguments.
    #[error("the handler refused the request")]
    Refused = 12,
    /// This handler serves as many requests as it may, or as many of this caller; others may be served. It has not run:
    /// which one it is, and how many it serves, is in the answer's arguments, in words.
    #[error("the handler is busy: it serves as many requests at a time as it may; this one was not served, try again")]
    HandlerBusy = 13,
}

impl Failure {
    /// The failure with this code. A code that is not known is a refusal.
    #[must_use]
    pub const fn of(code: u8) -> Self {
        match code {
            1 => Self::Unknown,
            2 => Self::Arguments,
            3 => Self::TooLong,
            4 => Self::Panicked,
            5 => Self::Busy,
            6 => Self::Late,
            7 => Self::Cancelled,
            8 => Self::Abandoned,
            9 => Self::NoRoute,
            10 => Self::Gone,
            11 => Self::Token,
            13 => Self::HandlerBusy,
            _ => Self::Refused,
        }
    }
}

/// Why a request was not sent; nothing has happened then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unasked {
    /// The window is full, or the transport is.
    Full,
    /// The channel has ended.
    Closed,
    /// The channel has ended while the load was on its way: the request may have been served.
    Lost,
    /// The arguments are too long, beside the token, the budget and the origin.
    TooLong,
    /// The transport cannot send this load at all.
    Refused,
}

/// A request to be made.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ask<'a> {
    /// The handler.
    pub handler: u16,
    /// At most [`ARGS_MAX`](super::message::ARGS_MAX) bytes.
    pub args: Arguments<'a>,
    /// Where the reply's payload shall land.
    pub token: Option<Token>,
    /// Where the request's payload shall land.
    pub to: Option<Token>,
    /// How long the answer may take, as the server shall know it.
    pub budget: Option<Budget>,
}

/// Where the answer to a request goes. There must be exactly one.
#[derive(Debug, PartialEq, Eq)]
pub struct ReplyTo {
    pub(super) row: u32,
    pub(super) life: u32,
    pub(super) call: CallId,
    /// Where the answer goes to whoever has handed the request over, once the reply has gone: row, life, call.
    pub(super) by: Option<Box<(u32, u32, CallId)>>,
}

impl ReplyTo {
    /// The row of the channel that the reply goes to.
    #[must_use]
    pub const fn row(&self) -> u32 {
        self.row
    }

    /// The requester's number.
    #[must_use]
    pub const fn call(&self) -> CallId {
        self.call
    }

    /// Whether the request was handed over: then its reply's payload has no token.
    #[must_use]
    pub const fn is_handed_over(&self) -> bool {
        self.by.is_some()
    }
}

/// What a message means.
#[derive(Debug)]
pub enum Got<'a, K> {
    /// A request: find its handler, and answer.
    Request(Message<'a>, ReplyTo),
    /// The reply to a call.
    Reply(CallId, K, &'a [u8]),
    /// A call was not served; the handler's own words.
    Failed(CallId, K, Failure, &'a [u8]),
    /// A direct reply that nobody has announced yet: set it aside, and show it again after a [`Got::Announced`] of the
    /// same call. One of each call and row is enough, for as long as the call [may be announced]: an honest peer sends
    /// no other.
    ///
    /// [may be announced]: super::calls::Calls::may_be_announced
    Early(CallId),
    /// This call was handed over: a direct reply may have come already.
    Announced(CallId),
    /// A requester does not wait for this call any more; [`Core::cancel_handed`](super::Core::cancel_handed), if it may
    /// have been handed over.
    Cancelled(CallId),
    /// Nothing to be done.
    Nothing,
}

/// What a message without anything beside its arguments means.
#[derive(Debug)]
pub enum Plain<K> {
    /// A request to this handler, with so many bytes of arguments, whose answer may take so long.
    Request(u16, u8, Option<Budget>, ReplyTo),
    /// A reply with so many bytes of arguments.
    Reply(CallId, K, u8),
    /// Something else.
    Other,
}
