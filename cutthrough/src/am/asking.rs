//! A request that carries more than words: how it is put together and made.

use std::fmt;
use std::time::Duration;

use cutthrough_engine::am::Ask;
use cutthrough_engine::am::budget::Budget;
use cutthrough_engine::am::calls::UNDATED;
use cutthrough_engine::am::message::Arguments;
use cutthrough_engine::token::Token;
use cutthrough_node::clock;
use cutthrough_node::incoming::Channel;
use cutthrough_node::shm::grant::Landing;

use super::continuing::Continuing;
use super::event::{Call, Failed, Reply, RequestError};
use super::serve::nanos;
use super::way::{Body, Straight};
use super::{Continuation, Node, Then, Wanted};

/// A request to be made: what it carries, where its reply goes, and how long it may take.
#[derive(Debug)]
#[must_use = "a request is made by `send`"]
pub struct Asking<'n, 'a> {
    pub(super) node: &'n mut Node,
    pub(super) channel: Channel,
    pub(super) ask: Ask<'a>,
    pub(super) body: Body<'a>,
    pub(super) landing: Option<Landing>,
    pub(super) within: Option<Duration>,
    pub(super) then: Then,
    /// Whether a long payload may wait for the peer.
    pub(super) patient: bool,
}

impl<'a> Asking<'_, 'a> {
    /// The arguments: up to 64 bytes.
    #[inline]
    pub const fn args(mut self, args: &'a [u8]) -> Self {
        self.ask.args = Arguments::Bytes(args);
        self
    }

    /// The payload.
    #[inline]
    pub fn body(mut self, body: Body<'a>) -> Self {
        self.body = body;
        self
    }

    /// Where the payload shall land: a token that the peer has granted.
    #[inline]
    pub const fn to(mut self, token: Token) -> Self {
        self.ask.to = Some(token);
        self
    }

    /// Grants a place for the reply's payload.
    #[inline]
    pub fn reply_into(mut self, landing: Landing) -> Self {
        self.landing = Some(landing);
        self
    }

    /// How long the reply may take; the peer is told.
    #[inline]
    pub const fn within(mut self, timeout: Duration) -> Self {
        self.within = Some(timeout);
        self
    }

    /// Gives the answer to a reply handler ([`Node::on_reply`]).
    #[inline]
    pub fn then(mut self, handler: u16) -> Self {
        self.then = Then::Handler(handler);
        self
    }

    /// Makes the request, and gives its answer to `continuation`, which runs when the node is polled, and has of it no
    /// more than [`Continuing`]. If the request is not made, it is dropped.
    ///
    /// # Errors
    /// As [`Asking::send`].
    pub fn send_then(
        self,
        continuation: impl FnOnce(&mut Continuing<'_>, Result<Reply, Failed>) + Send + 'static,
    ) -> Result<Call, RequestError> {
        self.try_send_then(continuation).map_err(|unsent| unsent.error)
    }

    /// [`Asking::send_then`]; of what was not sent comes back what can be used again, but for the continuation.
    ///
    /// # Errors
    /// As [`Asking::try_send`].
    pub fn try_send_then(
        self,
        continuation: impl FnOnce(&mut Continuing<'_>, Result<Reply, Failed>) + Send + 'static,
    ) -> Result<Call, Unsent<'a>> {
        self.try_send_to(Continuation::Run(Box::new(continuation)))
    }

    /// The same for whatever takes the answer.
    pub(crate) fn try_send_to(mut self, continuation: Continuation) -> Result<Call, Unsent<'a>> {
        let slot = self.node.keep_continuation(continuation);
        self.then = Then::Continue(slot);
        let Self { node, channel, ask, body, landing, within, then, patient } = self;
        let again = Asking { node: &mut *node, channel, ask, body, landing, within, then, patient };
        let sent = again.try_send();
        if sent.is_err() {
            node.take_continuation(slot);
        }
        sent
    }

    /// Makes a request for whoever looks for its answer at once ([`Node::seek`]), and gives it a deadline if that does
    /// not come ([`Node::entrust`]). The peer is told how long it may take.
    pub(crate) fn try_send_to_seek(mut self, within: Duration) -> Result<Call, Unsent<'a>> {
        self.ask.budget = Some(Budget::at(clock::coarse(), nanos(within)));
        self.then = Then::Seek;
        self.try_send()
    }

    /// A long payload waits for nobody: where it would, there is no room for the request.
    pub(crate) const fn impatient(mut self) -> Self {
        self.patient = false;
        self
    }

    /// Counts the answer.
    pub(crate) fn tally(mut self, tally: u32) -> Self {
        self.then = Then::Tally(tally);
        self
    }

    /// Makes the request.
    ///
    /// # Errors
    /// [`RequestError`]; then nothing has happened, but perhaps with [`RequestError::Lost`]. What was handed over is
    /// dropped: pages of the payload are back in their pool, and a buffer for the reply's payload goes back to the
    /// system. Where it shall be used again, make the request by [`Asking::try_send`]. To find out before whether there
    /// is room, ask [`Node::room`].
    pub fn send(self) -> Result<Call, RequestError> {
        self.try_send().map_err(|unsent| unsent.error)
    }

    /// [`Asking::send`]; of what was not sent comes back what can be used again.
    ///
    /// # Errors
    /// [`Unsent`]: why, and what was handed over.
    pub fn try_send(self) -> Result<Call, Unsent<'a>> {
        let Self { node, channel, mut ask, body, landing, within, then, patient } = self;
        let body = if body.is_empty() { Body::None } else { body };
        if let Then::Handler(handler) = then
            && node.replies.get(usize::from(handler)).is_none_or(Option::is_none)
        {
            // A mistake of the caller's, found before anything is sent.
            return Err(Unsent { error: RequestError::NoHandler, body, landing });
        }
        let inside = &mut node.inside;
        let row = channel.index();
        if inside.door(row) != Some(channel) {
            return Err(Unsent { error: RequestError::Closed, body, landing });
        }
        let deadline = match within {
            None => UNDATED,
            Some(within) => {
                let nanos = nanos(within);
                let now = clock::now();
                ask.budget = Some(Budget::at(now, nanos));
                // Whoever polls slowly from now on shall hear in time that it is late.
                node.pace.restart(node.empty, now);
                now.after(nanos)
            }
        };
        let mut place = None;
        if let Some(landing) = landing {
            match inside.endpoint.grant_or_return(channel, landing) {
                Ok(token) => {
                    ask.token = Some(token);
                    place = Some((row, token));
                }
                Err((why, landing)) => return Err(Unsent { error: why.into(), body, landing: Some(landing) }),
            }
        }
        let plain = matches!(then, Then::Tell | Then::Seek) && place.is_none();
        let context = if plain { None } else { Some(boxed(&mut node.spare, Wanted { then, token: place })) };
        let made = match body {
            Body::None => {
                let mut way = Straight { endpoint: &mut inside.endpoint, door: channel };
                let made = inside.core.request(&mut way, row, &ask, (), deadline, context);
                made.map_err(|(why, ())| (why, Body::None))
            }
            body => {
                let (mut way, core) = inside.split();
                way.patient = patient;
                core.request(&mut way, row, &ask, body, deadline, context)
            }
        };
        made.map(Call).map_err(|(why, body)| Unsent { error: why.into(), body, landing: inside.kill(place) })
    }
}

impl Node {
    /// Makes a short request: up to 16 words. Allocates nothing, takes no lock, and makes no system call unless the
    /// peer sleeps. Its answer comes as [`Event::Replied`](super::Event::Replied) or
    /// [`Event::Failed`](super::Event::Failed).
    ///
    /// # Errors
    /// [`RequestError`]; then nothing has happened.
    #[inline]
    pub fn request(&mut self, channel: Channel, handler: u16, words: &[u32]) -> Result<Call, RequestError> {
        let args = Arguments::Words(words);
        self.request_plain(channel, &Ask { handler, args, ..Ask::default() })
    }

    /// [`Node::request`] with up to 64 bytes.
    ///
    /// # Errors
    /// As [`Node::request`].
    #[inline]
    pub fn request_bytes(&mut self, channel: Channel, handler: u16, args: &[u8]) -> Result<Call, RequestError> {
        let args = Arguments::Bytes(args);
        self.request_plain(channel, &Ask { handler, args, ..Ask::default() })
    }

    /// The same for whoever looks for the answer at once ([`Node::seek`]), and gives the call a deadline if that does
    /// not come ([`Node::entrust`]). The peer is told how long it may take.
    #[inline]
    pub(crate) fn request_to_seek(
        &mut self,
        channel: Channel,
        handler: u16,
        args: &[u8],
        within: Duration,
    ) -> Result<Call, RequestError> {
        let (args, budget) = (Arguments::Bytes(args), Some(Budget::at(clock::coarse(), nanos(within))));
        self.request_plain(channel, &Ask { handler, args, budget, ..Ask::default() })
    }

    /// A request that goes nowhere but to its handler, and for whose reply nothing is granted.
    #[inline(always)]
    fn request_plain(&mut self, channel: Channel, ask: &Ask<'_>) -> Result<Call, RequestError> {
        let row = channel.index();
        if self.inside.door(row) != Some(channel) {
            return Err(RequestError::Closed);
        }
        let mut way = Straight { endpoint: &mut self.inside.endpoint, door: channel };
        match self.inside.core.request(&mut way, row, ask, (), UNDATED, None) {
            Ok(call) => Ok(Call(call)),
            Err((why, ())) => Err(why.into()),
        }
    }

    /// A request with a payload, a place for the reply's payload, a deadline, or a reply handler.
    #[inline]
    pub fn ask<'a>(&mut self, channel: Channel, handler: u16) -> Asking<'_, 'a> {
        let ask = Ask { handler, ..Ask::default() };
        let (body, then) = (Body::None, Then::Tell);
        Asking { node: self, channel, ask, body, landing: None, within: None, then, patient: true }
    }

    /// Keeps what takes the answer to a call: where.
    pub(super) fn keep_continuation(&mut self, continuation: Continuation) -> u32 {
        if let Some(slot) = self.free_continuations.pop() {
            self.continuations[slot as usize] = Some(continuation);
            return slot;
        }
        self.continuations.push(Some(continuation));
        u32::try_from(self.continuations.len() - 1).unwrap_or(u32::MAX)
    }
}

/// What shall happen with an answer, in a box that was in use before, if there is one.
#[allow(clippy::vec_box, reason = "the boxes are what is kept")]
pub(super) fn boxed(spare: &mut Vec<Box<Wanted>>, wanted: Wanted) -> Box<Wanted> {
    match spare.pop() {
        Some(mut place) => {
            *place = wanted;
            place
        }
        None => Box::new(wanted),
    }
}

/// A request that was not sent, and what of it can be used again.
#[derive(Debug)]
#[non_exhaustive]
pub struct Unsent<'a> {
    /// Why.
    pub error: RequestError,
    /// Its payload, unless that was why it was refused.
    pub body: Body<'a>,
    /// The place for the reply's payload, for which no token is good any more.
    pub landing: Option<Landing>,
}

impl fmt::Display for Unsent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Unsent<'_> {}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::{Body, RequestError, Unsent};

    #[test]
    fn a_request_that_was_not_sent_says_why() {
        let unsent = Unsent { error: RequestError::Closed, body: Body::None, landing: None };
        assert_eq!(unsent.to_string(), RequestError::Closed.to_string());
        assert!(unsent.source().is_none(), "it has said so");
    }
}
