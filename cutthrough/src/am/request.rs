//! A request in its handler's hands.

use std::fmt;
use std::panic::UnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cutthrough_engine::am::budget::Budget;
use cutthrough_engine::am::calls::UNDATED;
use cutthrough_engine::am::message::Arguments;
use cutthrough_engine::am::{Ask, Failure, ReplyTo};
use cutthrough_engine::receipt::Receipt;
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::Token;
use cutthrough_node::clock;
use cutthrough_node::incoming::{Bytes, Channel, Incoming, Payload};
use cutthrough_node::shm::grant::NoMemory;
use cutthrough_node::shm::link::Identity;
use cutthrough_node::shm::receive::ReadError;
use cutthrough_segment::page::Page;

use super::deferred::Deferred;
use super::event::{HEAD, call_of};
use super::way::Body;
use super::words;
use super::{Inside, RequestError, Then, Wanted};

/// A request, in the hands of its handler. It can be answered once; dropped or forgotten unanswered, an empty reply
/// goes back, or, if the handler panics, [`Failure::Panicked`]. Nothing here polls, so a handler is never entered
/// twice.
///
/// ```
/// use cutthrough::am::Request;
///
/// fn serve(request: Request<'_>) {
///     request.reply(&[1]);
/// }
/// ```
///
/// The answer uses the right to answer up:
///
/// ```compile_fail,E0382
/// use cutthrough::am::Request;
///
/// fn serve(request: Request<'_>) {
///     request.reply(&[1]);
///     request.reply(&[1]);
/// }
/// ```
///
/// And there is nothing to poll by:
///
/// ```compile_fail,E0599
/// use cutthrough::am::Request;
///
/// fn serve(request: Request<'_>) {
///     request.poll();
///     request.reply(&[1]);
/// }
/// ```
pub struct Request<'a> {
    serving: &'a mut Serving<'a>,
}

/// A request that is being served. It stays where it is put together: what has just been written in pieces cannot be
/// moved as a whole without a wait.
pub(super) struct Serving<'a> {
    pub(super) inside: &'a mut Inside,
    pub(super) incoming: &'a mut Incoming,
    /// The payload of a medium request.
    pub(super) medium: &'a [u8],
    pub(super) args: u8,
    pub(super) handler: u16,
    /// What only some requests say.
    pub(super) more: Option<More>,
    /// The right to answer, until it is used.
    pub(super) to: &'a mut Option<ReplyTo>,
    /// Whether its thread was unwinding before: somebody who polls for what he waits for as he is dropped.
    pub(super) unwinding: bool,
}

impl Serving<'_> {
    fn place(&self) -> Option<Token> {
        self.more.as_ref().and_then(|more| more.token)
    }

    fn deadline(&self) -> Option<Instant> {
        self.more.as_ref().and_then(More::deadline)
    }
}

/// What only some requests say.
#[derive(Debug)]
pub(super) struct More {
    /// Where the reply's payload shall land.
    pub(super) token: Option<Token>,
    /// Nanoseconds that the answer may take from when the request was taken in.
    budget: Option<u64>,
    /// When its time is over: known once somebody has asked for it.
    deadline: OnceLock<Instant>,
}

impl More {
    pub(super) const fn new(token: Option<Token>, budget: Option<u64>) -> Self {
        Self { token, budget, deadline: OnceLock::new() }
    }

    /// When nobody waits for the answer any more. The time runs from when this is asked first: most requests are
    /// answered without anybody's asking, and so without a look at the clock.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let budget = self.budget?;
        Some(*self.deadline.get_or_init(|| clock::now().after(budget)))
    }
}

impl UnwindSafe for Request<'_> {}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Request");
        shown
            .field("channel", &self.channel())
            .field("handler", &self.serving.handler)
            .field("args", &Bytes(self.args()));
        if self.serving.incoming.is_loaded() {
            shown.field("payload", self.serving.incoming.payload());
        }
        shown.finish_non_exhaustive()
    }
}

impl<'a> Request<'a> {
    #[inline(always)]
    pub(super) const fn new(serving: &'a mut Serving<'a>) -> Self {
        Self { serving }
    }

    /// The payload of a medium request. It stays while the request is answered.
    #[must_use]
    pub const fn medium(&self) -> &'a [u8] {
        self.serving.medium
    }
}

impl Request<'_> {
    /// The channel that it came on.
    #[must_use]
    pub const fn channel(&self) -> Channel {
        self.serving.incoming.channel()
    }

    /// Who is on the other side of that channel ([`Endpoint::peer`](crate::Endpoint::peer)): of a request that was
    /// [handed over](Request::is_handed_over) that is who has handed it over, not who has asked first. `None` if the
    /// channel has ended meanwhile.
    #[must_use]
    pub fn peer(&self) -> Option<Identity> {
        self.serving.inside.endpoint.peer(self.channel())
    }

    /// The number by which the handler was called.
    #[must_use]
    pub const fn handler(&self) -> u16 {
        self.serving.handler
    }

    /// The arguments as bytes.
    #[inline]
    #[must_use]
    pub fn args(&self) -> &[u8] {
        self.serving.incoming.control().get(HEAD..HEAD + usize::from(self.serving.args)).unwrap_or(&[])
    }

    /// A word of the arguments; 0 beyond their end.
    #[inline]
    #[must_use]
    pub fn word(&self, index: usize) -> u32 {
        words::at(self.args(), index)
    }

    /// The first words of the arguments; 0 beyond their end.
    ///
    /// ```
    /// use cutthrough::am::Request;
    ///
    /// fn add(request: Request<'_>) {
    ///     let [one, other] = request.words();
    ///     request.reply(&[one.wrapping_add(other)]);
    /// }
    /// ```
    #[inline]
    #[must_use]
    pub fn words<const N: usize>(&self) -> [u32; N] {
        words::first(self.args())
    }

    /// Bytes of the payload.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.serving.incoming.payload_len()
    }

    /// How the payload came so far: path and copies.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        self.serving.incoming.receipt()
    }

    /// Copies the payload of a long request to where it shall lie, while the rest of it still comes in.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(&mut self, into: &mut [u8]) -> Result<(), ReadError> {
        self.serving.inside.endpoint.read(self.serving.incoming, into).map(drop)
    }

    /// Takes the payload of a long request out: pages that both sides see, or memory that this side has granted.
    #[must_use]
    pub fn take_payload(&mut self) -> Payload {
        self.serving.incoming.take_payload()
    }

    /// Time that is left until the requester does not wait any more, as it said; `None` if it said nothing. What the
    /// request has lain before it was taken in is taken off, as far as that is known; then it runs from when the
    /// handler first asks, or puts the request off, or hands it over; of a request whose payload was waited for from
    /// when that began.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let deadline = self.serving.deadline()?;
        Some(Duration::from_nanos(deadline.saturating_since(clock::now())))
    }

    /// Where the requester wants the reply's payload. [`Request::reply_with`] sends it there by itself.
    #[must_use]
    pub fn place(&self) -> Option<Token> {
        self.serving.place()
    }

    /// Whether another endpoint has handed this request over: the reply goes to who asked first.
    #[must_use]
    pub fn is_handed_over(&self) -> bool {
        self.serving.to.as_ref().is_some_and(ReplyTo::is_handed_over)
    }

    /// Pages for the payload of a reply, to be filled in place: they go by reference, without a copy.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn page(&mut self, bytes: usize) -> Result<Page, NoMemory> {
        let row = self.serving.to.as_ref().map_or(u32::MAX, ReplyTo::row);
        let door =
            self.serving.inside.door(row).ok_or(NoMemory::Closed(cutthrough_node::shm::link::CloseReason::Peer))?;
        self.serving.inside.endpoint.page(door, bytes)
    }

    /// Replies with up to 16 words. With more the requester gets [`Failure::TooLong`].
    #[inline]
    pub fn reply(self, words: &[u32]) {
        let Serving { inside, incoming, to, .. } = &mut *self.serving;
        inside.reply_words(incoming.channel(), to, words);
    }

    /// Replies with up to 64 bytes. With more the requester gets [`Failure::TooLong`].
    #[inline]
    pub fn reply_bytes(self, args: &[u8]) {
        let Serving { inside, incoming, to, .. } = &mut *self.serving;
        inside.reply_bytes(incoming.channel(), to, args);
    }

    /// Replies with arguments and a payload, which goes straight to where the requester has said. Returns when the
    /// payload's memory may be used again.
    pub fn reply_with(self, args: &[u8], body: Body<'_>) {
        let token = self.place();
        if let Some(to) = self.serving.to.take() {
            self.serving.inside.reply_with(to, args, token, body);
        }
    }

    /// Refuses the request, in the handler's own words.
    pub fn refuse(self, args: &[u8]) {
        self.fail_with(Failure::Refused, args);
    }

    /// Says that the request was not served.
    pub fn fail(self, why: Failure) {
        self.fail_with(why, &[]);
    }

    fn fail_with(self, why: Failure, args: &[u8]) {
        if let Some(to) = self.serving.to.take() {
            self.serving.inside.fail(to, why, args);
        }
    }

    /// Puts the answer off: it can be given later, by whoever has the node. Until then the request counts against the
    /// node's [`serve`](super::Settings::serve) limit, and against
    /// [those of its handler](super::Node::limit_concurrency).
    #[must_use]
    pub fn defer(self) -> Deferred {
        let by = (self.serving.incoming.channel().index(), call_of(self.serving.incoming));
        let to = self.serving.to.take();
        let is_open = to.is_some();
        let handler = self.serving.handler;
        let known = to.map(|to| self.serving.inside.deferred.put(by, handler, (to.row(), to))).unwrap_or_default();
        let shelf = Arc::downgrade(&self.serving.inside.shelf);
        let (token, deadline) = (self.place(), self.serving.deadline());
        let peer = self.peer();
        Deferred::new(shelf, known, (token, deadline), peer, is_open)
    }

    /// Hands the request over to the endpoint on another channel, with other arguments: up to 64 bytes, or 58 if the
    /// requester has said how long it waits. Its handler replies straight to who asked, which needs a channel to it.
    /// The reply's payload goes by reference, for tokens are good on one channel only. Whoever takes it has as long as
    /// the requester has said, or else as a call of this node's own: [`Settings::deadline`](super::Settings::deadline).
    /// Then the requester gets [`Failure::Late`], unless the reply has come.
    ///
    /// # Errors
    /// [`RequestError`], and the request: answer it otherwise.
    #[allow(clippy::result_large_err, reason = "the error gives the request back; handing over is no short path")]
    pub fn hand_over(
        self,
        channel: Channel,
        handler: u16,
        args: &[u8],
        body: Body<'_>,
    ) -> Result<(), (RequestError, Self)> {
        let Some(to) = self.serving.to.take() else { return Ok(()) };
        let deadline = self.serving.deadline();
        let budget = deadline.map(|deadline| {
            let now = clock::now();
            Budget::at(now, deadline.saturating_since(now))
        });
        let ask = Ask { handler, args: Arguments::Bytes(args), budget, ..Ask::default() };
        if self.serving.inside.door(channel.index()) != Some(channel) {
            *self.serving.to = Some(to);
            return Err((RequestError::Closed, self));
        }
        let (mut way, core) = self.serving.inside.split();
        let context = |to| Some(Box::new(Wanted { then: Then::Passed(to), token: None }));
        match core.hand_over(&mut way, to, channel.index(), &ask, body, deadline.unwrap_or(UNDATED), context) {
            Ok(_) => Ok(()),
            Err((why, _, to)) => {
                *self.serving.to = Some(to);
                Err((why.into(), self))
            }
        }
    }
}

impl Drop for Request<'_> {
    #[inline]
    fn drop(&mut self) {
        let Serving { inside, incoming, to, unwinding, .. } = &mut *self.serving;
        if to.is_none() {
            return;
        }
        if !*unwinding && std::thread::panicking() {
            to.take().into_iter().for_each(|to| inside.fail(to, Failure::Panicked, &[]));
        } else {
            inside.reply_bytes(incoming.channel(), to, &[]);
        }
    }
}
