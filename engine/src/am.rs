//! Active messages: requests that run a handler, replies that acknowledge them (Generic Active Messages 1.1; SSAM, Hot
//! Interconnects 1994; U-Net, SOSP 1995).
//!
//! [`Core`] is everything of it that decides: who may send how many requests, which call an answer belongs to, what is
//! late, who has the larger window. It reads no clock and sends through a [`Transport`], so that an endpoint and a
//! simulator drive the same code. Channels are known here by their **row**, a small number that is used again once the
//! channel has ended.
//!
//! | file | what it decides |
//! |---|---|
//! | [`message`] | what the bytes of a control message mean |
//! | [`calls`] | which calls wait for an answer, and until when |
//! | [`budget`] | how much time is left of what a requester has given, when its request has lain somewhere |
//! | [`peer`] | windows: how many requests are under way in each direction, and who has the larger window |
//! | `delegate` | who replies to a request that was handed over |
//! | [`terms`] | the words between this and who drives it |
//! | this one | what follows from a message that has come, and what is sent |
//!
//! # Why requests and replies cannot deadlock
//!
//! 1. A requester has at most a window of requests under way on a channel. Its call table keeps a place for each answer
//!    before the request goes.
//! 2. Who serves keeps room for one answer for each request under way: an answer that the transport has no room for
//!    waits in a queue that is never longer than the peer's window, plus one word for each call of its own. So serving
//!    a request never waits. A request whose answer waits is still under way, for its requester has not seen that: who
//!    sends more than a window without taking answers in has broken a rule.
//! 3. Taking in an answer sends nothing. Handlers of requests can send nothing but their answer.
//! 4. By 2 and 3, whoever polls takes in everything that has come, however full the way back is. So every ring empties,
//!    there is room in it some time later, and what waits in the queues goes. Only a new request is ever refused for
//!    want of room, and the requester can poll.
//!
//! # The larger window
//!
//! A window for everybody that is large enough for bulk would need memory for every peer's bulk at the same time. SSAM
//! proposed to lend a larger window to one sender at a time. A requester that finds its window full says so with its
//! next request. The server lends [`LARGE`] to the first that asks, in an answer. The borrower gives it back when it
//! has nothing under way, or after [`LOAN`] requests, so that others have their turn.

pub mod budget;
pub mod calls;
mod delegate;
mod ends;
pub mod message;
pub mod peer;
pub mod terms;

use alloc::boxed::Box;
use alloc::vec::Vec;

use cutthrough_wire::slot::CONTROL_MAX;
use cutthrough_wire::token::Token;

use crate::time::Instant;
use calls::{Answered, Calls};
use message::{ARGS_MAX, Arguments, CallId, Head, Kind, Malformed, Message, Origin, Short, is_reply};
use peer::{Kept, Peer};
pub use terms::{Ask, Failure, Got, Keep, Plain, ReplyTo, Transport, Unasked, Unsent};

/// Requests under way on a channel, unless its requester has the larger window. With 64 a stream of short requests
/// waits for the answers' way back; with 256 it does not, and 16 KiB of replies may wait for a peer.
pub const WINDOW: u32 = 256;
/// The larger window.
pub const LARGE: u32 = 2048;
/// Requests that a borrower of the larger window may send before it gives it back.
pub const LOAN: u32 = 4 * LARGE;
/// Bytes of loads that are kept for a peer, unless one alone has more: a window of answers of any length would be as
/// much memory as a peer likes that takes nothing in.
pub const KEPT_BYTES: usize = 32 << 20;

/// The state of all channels. `K` is what shall happen with an answer, `L` a load that is kept.
#[derive(Debug)]
pub struct Core<K, L> {
    peers: Vec<Peer<L>>,
    calls: Calls<K>,
    /// Rows with kept messages.
    backlog: Vec<u32>,
    /// Who has our larger window.
    borrower: Option<u32>,
    /// Requests that this side may have under way on a channel; at most [`WINDOW`].
    window: u32,
    /// Replies that were thrown away.
    thrown: u64,
}

impl<K, L> Core<K, L> {
    /// Without channels; at most `window` requests under way on each, and never more than [`WINDOW`].
    #[must_use]
    pub fn new(window: u32) -> Self {
        Self::naming_from(window, 1)
    }

    /// The same, whose calls have names from this nonce on: where each has one of its own, no two have the same names.
    #[must_use]
    pub fn naming_from(window: u32, nonce: u32) -> Self {
        let window = window.clamp(1, WINDOW);
        let calls = Calls::beginning_at(nonce);
        Self { peers: Vec::new(), calls, backlog: Vec::new(), borrower: None, window, thrown: 0 }
    }

    /// The calls of this side.
    #[must_use]
    pub const fn calls(&self) -> &Calls<K> {
        &self.calls
    }

    /// Whether anything waits for room on a row: then no request can be made there.
    #[must_use]
    pub fn is_behind(&self, row: u32) -> bool {
        self.peers.get(row as usize).is_some_and(|peer| !peer.kept.is_empty())
    }

    /// Answers and notices that wait for room.
    #[must_use]
    pub fn waiting_to_go(&self) -> usize {
        self.backlog.iter().map(|row| self.peers[*row as usize].kept.len()).sum()
    }

    /// How many replies were thrown away since this was asked last: too much waited for their requesters, they could
    /// not be sent at all, or the channel had ended. To be asked after a reply that did not go at once, and after
    /// [`Core::flush`] and [`Core::closed`].
    #[must_use]
    pub const fn take_thrown(&mut self) -> u64 {
        core::mem::replace(&mut self.thrown, 0)
    }

    /// Requests under way on a row, and how many may be.
    #[must_use]
    pub fn under_way(&self, row: u32) -> (u32, u32) {
        let peer = self.peers.get(row as usize).filter(|peer| peer.open);
        peer.map_or((0, 0), |peer| (peer.outstanding, peer.limit(self.window)))
    }

    /// Whether the other side has lent its larger window to this one.
    #[must_use]
    pub fn has_loan(&self, row: u32) -> bool {
        self.peers.get(row as usize).is_some_and(|peer| peer.lent)
    }

    /// A channel has opened, to an endpoint of this generation.
    pub fn opened(&mut self, row: u32, generation: u64) {
        while self.peers.len() <= row as usize {
            self.peers.push(Peer::default());
        }
        let life = self.peers[row as usize].life.wrapping_add(1);
        self.peers[row as usize] = Peer { open: true, life, generation, ..Peer::default() };
    }

    /// A channel has ended. [`Core::lost`] says what ends with it.
    pub fn closed(&mut self, row: u32) {
        if let Some(peer) = self.peers.get_mut(row as usize) {
            peer.open = false;
            self.thrown += peer.kept.drain(..).filter(|kept| is_reply(&kept.control[..kept.len])).count() as u64;
            (peer.answers, peer.direct, peer.bytes) = (0, 0, 0);
        }
        self.backlog.retain(|other| *other != row);
        if self.borrower == Some(row) {
            self.borrower = None;
        }
    }

    /// The row of an open channel to the endpoint of this generation.
    #[must_use]
    pub fn row_of(&self, generation: u64) -> Option<u32> {
        (0..).zip(&self.peers).find(|(_, peer)| peer.open && peer.generation == generation).map(|(row, _)| row)
    }

    /// Makes a request. The answer shall come before `deadline`, and `context` says what shall happen with it.
    ///
    /// # Errors
    /// [`Unasked`], and the load.
    #[inline(always)]
    pub fn request<B>(
        &mut self,
        transport: &mut impl Transport<B>,
        row: u32,
        ask: &Ask<'_>,
        load: B,
        deadline: Instant,
        context: K,
    ) -> Result<CallId, (Unasked, B)> {
        self.request_for(transport, row, ask, None, load, deadline, context)
    }

    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "two callers, which name each of them")]
    fn request_for<B>(
        &mut self,
        transport: &mut impl Transport<B>,
        row: u32,
        ask: &Ask<'_>,
        origin: Option<Origin>,
        load: B,
        deadline: Instant,
        context: K,
    ) -> Result<CallId, (Unasked, B)> {
        let Some(peer) = self.peers.get_mut(row as usize).filter(|peer| peer.open) else {
            return Err((Unasked::Closed, load));
        };
        if peer.outstanding >= peer.limit(self.window) {
            // Who has chosen a smaller window wants no larger one.
            peer.wants = self.window == WINDOW;
            return Err((Unasked::Full, load));
        }
        if !peer.kept.is_empty() {
            return Err((Unasked::Full, load));
        }
        let call = self.calls.begin(row, deadline, context);
        let bare = ask.token.is_none() && origin.is_none();
        if bare
            && !peer.wants
            && let Some(message) = Short::new(Kind::Request, ask.handler, call, ask.args, ask.budget)
        {
            return match transport.send_short(row, message, ask.to, load) {
                Ok(()) => {
                    peer.sent();
                    Ok(call)
                }
                Err((unsent, load)) => Err((self.unasked(call, unsent), load)),
            };
        }
        let mut packed = [0; ARGS_MAX];
        let Some(args) = ask.args.as_bytes(&mut packed) else {
            self.calls.undo(call);
            return Err((Unasked::TooLong, load));
        };
        let message = Message {
            window: peer.wants,
            handler: ask.handler,
            args,
            token: ask.token,
            budget: ask.budget,
            origin,
            ..Message::new(Kind::Request, call)
        };
        let mut control = [0; CONTROL_MAX];
        let Some(len) = message.encode(&mut control) else {
            self.calls.undo(call);
            return Err((Unasked::TooLong, load));
        };
        match transport.send(row, &control[..len], ask.to, load) {
            Ok(()) => {
                peer.sent();
                Ok(call)
            }
            Err((unsent, load)) => Err((self.unasked(call, unsent), load)),
        }
    }

    /// A call could not be made after all.
    #[cold]
    fn unasked(&mut self, call: CallId, unsent: Unsent) -> Unasked {
        self.calls.undo(call);
        match unsent {
            Unsent::Full => Unasked::Full,
            Unsent::Closed => Unasked::Closed,
            Unsent::Lost => Unasked::Lost,
            Unsent::Refused => Unasked::Refused,
        }
    }

    /// What a control message of a row means, if it is a request with nothing beside but perhaps its budget, or a reply
    /// with nothing beside: the common case.
    /// Otherwise nothing has happened, and [`Core::accept`] knows.
    #[inline(always)]
    pub fn accept_plain(&mut self, row: u32, control: &[u8]) -> Plain<K> {
        let Some((head, call)) = Head::read_plain(control) else { return Plain::Other };
        let Some(peer) = self.peers.get_mut(row as usize).filter(|peer| peer.open) else { return Plain::Other };
        if head.kind == Kind::Request as u8 && peer.serving + peer.answers < WINDOW {
            peer.serving += 1;
            let to = ReplyTo { row, life: peer.life, call, by: None };
            return Plain::Request(head.handler, head.len, head.budget(control), to);
        }
        if head.kind == Kind::Reply as u8
            && head.flags == 0
            && !peer.lent
            && let Some(context) = self.calls.answer_plain(call, row)
        {
            peer.outstanding -= 1;
            return Plain::Reply(call, context, head.len);
        }
        Plain::Other
    }

    /// What a control message of a row means. Answers are counted here, and sent by nobody: taking one in needs no
    /// room anywhere.
    ///
    /// # Errors
    /// [`Malformed`]: the channel is to be closed.
    #[inline]
    pub fn accept<'a>(&mut self, row: u32, control: &'a [u8]) -> Result<Got<'a, K>, Malformed> {
        let message = Message::decode(control)?;
        let Some(peer) = self.peers.get_mut(row as usize).filter(|peer| peer.open) else {
            return Err(Malformed::Unexpected);
        };
        match message.kind {
            Kind::Request => {
                if !peer.may_ask() {
                    return Err(Malformed::Unexpected);
                }
                peer.serving += 1;
                if message.window && self.borrower.is_none() {
                    self.borrower = Some(row);
                    (peer.borrower, peer.tell) = (true, true);
                }
                let life = peer.life;
                let here = ReplyTo { row, life, call: message.call, by: None };
                let Some(origin) = message.origin else { return Ok(Got::Request(message, here)) };
                let first = self.row_of(origin.generation);
                // Without a channel to who asked first, there is nobody to reply to: the caller finds that out when it
                // replies, and the answer to who has handed it over says so.
                let row_of_first = first.unwrap_or(u32::MAX);
                let life_of_first = first.map_or(0, |row| self.peers[row as usize].life);
                let by = Some(Box::new((row, life, message.call)));
                Ok(Got::Request(message, ReplyTo { row: row_of_first, life: life_of_first, call: origin.call, by }))
            }
            Kind::Reply | Kind::Failed | Kind::Handed => self.accept_answer(row, &message),
            _ => self.accept_notice(row, &message),
        }
    }

    #[inline]
    fn accept_answer<'a>(&mut self, row: u32, message: &Message<'a>) -> Result<Got<'a, K>, Malformed> {
        let call = message.call;
        let answered = self.calls.answer(call, row, message.kind == Kind::Handed).ok_or(Malformed::Unexpected)?;
        let peer = &mut self.peers[row as usize];
        peer.answered(message.window);
        if peer.lent && peer.gives_back() {
            peer.give_back();
            self.keep(row, Message::new(Kind::Back, call));
        }
        Ok(match answered {
            Answered::Later => Got::Nothing,
            Answered::Now(context) if message.kind == Kind::Reply => Got::Reply(call, context, message.args),
            Answered::Now(context) => Got::Failed(call, context, Failure::of(message.code), message.args),
        })
    }

    fn accept_notice<'a>(&mut self, row: u32, message: &Message<'a>) -> Result<Got<'a, K>, Malformed> {
        let call = message.call;
        let generation = self.peers[row as usize].generation;
        match (message.kind, message.origin) {
            (Kind::Cancel, None) => {
                self.peers[row as usize].waits.given_up();
                Ok(Got::Cancelled(call))
            }
            (Kind::Back, None) => {
                let peer = &mut self.peers[row as usize];
                if !peer.borrower || peer.serving + peer.answers > WINDOW {
                    return Err(Malformed::Unexpected);
                }
                (peer.borrower, peer.tell) = (false, false);
                self.borrower = None;
                Ok(Got::Nothing)
            }
            (Kind::HandOver, Some(origin)) => {
                if !self.calls.hand_over(call, row, origin.generation) {
                    return Err(Malformed::Unexpected);
                }
                if self.row_of(origin.generation).is_some() {
                    return Ok(Got::Announced(call));
                }
                Ok(match self.calls.forget(call) {
                    Some(ended) => Got::Failed(call, ended.context, Failure::NoRoute, &[]),
                    None => Got::Nothing,
                })
            }
            (Kind::Direct, None) => Ok(match self.calls.direct(call, generation) {
                Some(Answered::Now(context)) if message.code == 0 => Got::Reply(call, context, message.args),
                Some(Answered::Now(context)) => Got::Failed(call, context, Failure::of(message.code), message.args),
                Some(Answered::Later) => Got::Nothing,
                // A reply to a call that has ended meanwhile; or one that its notice has not overtaken yet.
                None if self.calls.may_be_announced(call) => Got::Early(call),
                None => Got::Nothing,
            }),
            _ => Err(Malformed::Kind),
        }
    }

    /// Replies to a request with nothing but arguments, if that can be done at once, and needs nothing else said. Then
    /// the right to answer is used up; otherwise nothing has happened, and [`Core::reply`] knows what to do.
    #[inline(always)]
    pub fn reply_now(&mut self, transport: &mut impl Transport<()>, to: &ReplyTo, args: Arguments<'_>) -> bool {
        let peer = self.peers.get_mut(to.row as usize).filter(|peer| peer.answers_plainly(to.life));
        let Some(peer) = peer.filter(|_| to.by.is_none()) else { return false };
        let Some(message) = Short::new(Kind::Reply, 0, to.call, args, None) else { return false };
        let sent = transport.send_short(to.row, message, None, ());
        let done = matches!(sent, Ok(()) | Err((Unsent::Lost, ())));
        if done {
            peer.answers_one();
        }
        done
    }

    /// Replies to a request, now or as soon as there is room. True if it went now. There are at most [`ARGS_MAX`] bytes
    /// of arguments: without that, they are left away.
    #[inline(always)]
    #[allow(clippy::needless_pass_by_value, reason = "an answer uses its right up")]
    pub fn reply<B: Keep<L>>(
        &mut self,
        transport: &mut impl Transport<B>,
        to: ReplyTo,
        args: Arguments<'_>,
        token: Option<Token>,
        load: B,
    ) -> bool {
        let peer = self.peers.get_mut(to.row as usize);
        let Some(peer) = peer.filter(|peer| peer.answers_plainly(to.life) && to.by.is_none()) else {
            return self.answer(transport, to, None, args, token, load);
        };
        let Some(message) = Short::new(Kind::Reply, 0, to.call, args, None) else {
            return self.answer(transport, to, None, args, token, load);
        };
        peer.answers_one();
        match transport.send_short(to.row, message, token, load) {
            Ok(()) | Err((Unsent::Lost, _)) => true,
            Err((unsent, load)) => self.answer_later(&to, unsent, args, token, load),
        }
    }

    /// Says that a request was not served, and why.
    pub fn fail<B: Keep<L>>(
        &mut self,
        transport: &mut impl Transport<B>,
        to: ReplyTo,
        why: Failure,
        args: &[u8],
        nothing: B,
    ) -> bool {
        self.answer(transport, to, Some(why), Arguments::Bytes(args), None, nothing)
    }

    #[allow(clippy::needless_pass_by_value, reason = "an answer uses its right up")]
    fn answer<B: Keep<L>>(
        &mut self,
        transport: &mut impl Transport<B>,
        to: ReplyTo,
        failure: Option<Failure>,
        args: Arguments<'_>,
        token: Option<Token>,
        load: B,
    ) -> bool {
        if let Some(by) = to.by.as_deref() {
            let mut packed = [0; ARGS_MAX];
            let args = args.as_bytes(&mut packed).unwrap_or(&[]);
            return self.answer_directly(transport, &to, *by, failure, args, load);
        }
        let Some(peer) = self.peers.get_mut(to.row as usize).filter(|peer| peer.open && peer.life == to.life) else {
            self.thrown += u64::from(failure.is_none());
            return false;
        };
        peer.answers_one();
        let kind = if failure.is_some() { Kind::Failed } else { Kind::Reply };
        let window = core::mem::take(&mut peer.tell);
        let code = failure.map_or(0, |failure| failure as u8);
        let mut packed = [0; ARGS_MAX];
        let args = args.as_bytes(&mut packed).unwrap_or(&[]);
        let message = Message { window, code, args, ..Message::new(kind, to.call) };
        self.send_or_keep(transport, to.row, message, token, load)
    }

    /// A reply that could not be sent now waits for room; one that never can be is an error.
    #[cold]
    fn answer_later<B: Keep<L>>(
        &mut self,
        to: &ReplyTo,
        unsent: Unsent,
        args: Arguments<'_>,
        token: Option<Token>,
        load: B,
    ) -> bool {
        let mut packed = [0; ARGS_MAX];
        match unsent {
            Unsent::Full => {
                let args = args.as_bytes(&mut packed).unwrap_or(&[]);
                self.keep_with(to.row, Message { args, ..Message::new(Kind::Reply, to.call) }, token, load);
            }
            Unsent::Refused => {
                self.thrown += 1;
                let code = Failure::TooLong as u8;
                self.keep(to.row, Message { code, ..Message::new(Kind::Failed, to.call) });
            }
            Unsent::Closed | Unsent::Lost => self.thrown += 1,
        }
        false
    }

    #[inline]
    fn send_or_keep<B: Keep<L>>(
        &mut self,
        transport: &mut impl Transport<B>,
        row: u32,
        message: Message<'_>,
        token: Option<Token>,
        load: B,
    ) -> bool {
        let mut control = [0; CONTROL_MAX];
        // What does not fit is the caller's mistake, who is told before it comes here.
        let Some(len) = message.encode(&mut control) else { return true };
        if !self.peers[row as usize].kept.is_empty() {
            self.keep_with(row, message, token, load);
            return false;
        }
        match transport.send(row, &control[..len], token, load) {
            Err((Unsent::Full, load)) => {
                self.keep_with(row, message, token, load);
                false
            }
            // A payload that cannot be sent: the answer says so without it.
            Err((Unsent::Refused, _)) => {
                self.thrown += 1;
                self.keep(row, message.instead(Failure::TooLong));
                false
            }
            Err((Unsent::Closed, _)) => {
                self.thrown += u64::from(is_reply(&control[..len]));
                false
            }
            Ok(()) | Err((Unsent::Lost, _)) => true,
        }
    }

    /// Keeps an answer and its load, unless too much is kept for this peer: then it says that the answer was thrown
    /// away, and not that this side is busy, for the request was served.
    fn keep_with<B: Keep<L>>(&mut self, row: u32, message: Message<'_>, token: Option<Token>, load: B) {
        let before = self.peers[row as usize].bytes;
        // Those in front may wait for the very pages that this one lies in, and so for ever.
        let load = if before > 0 { load.in_own_memory(KEPT_BYTES.saturating_sub(before)) } else { load };
        let bytes = load.bytes();
        if bytes > 0 && before > 0 && before + bytes > KEPT_BYTES {
            self.thrown += 1;
            return self.keep(row, message.instead(Failure::Abandoned));
        }
        self.put(row, message, token, load.keep(), bytes);
    }

    /// Keeps a message that has no load.
    fn keep(&mut self, row: u32, message: Message<'_>) {
        self.put(row, message, None, None, 0);
    }

    /// Puts a message behind those of its row that wait for room.
    fn put(&mut self, row: u32, message: Message<'_>, token: Option<Token>, load: Option<L>, bytes: usize) {
        let mut control = [0; CONTROL_MAX];
        let Some(len) = message.encode(&mut control) else { return };
        let peer = &mut self.peers[row as usize];
        if peer.kept.is_empty() {
            self.backlog.push(row);
        }
        peer.push(Kept { kind: message.kind, control, len, token, load, bytes });
    }

    /// Whether anything waits for room.
    #[inline]
    #[must_use]
    pub fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Sends what waits, as far as there is room. True if nothing waits any more.
    pub fn flush(&mut self, transport: &mut impl Transport<Option<L>>) -> bool {
        let Self { backlog, peers, thrown, .. } = self;
        backlog.retain(|row| {
            let peer = &mut peers[*row as usize];
            while let Some(kept) = peer.kept.pop_front() {
                match transport.send(*row, &kept.control[..kept.len], kept.token, kept.load) {
                    Ok(()) | Err((Unsent::Lost, _)) => peer.gone(kept.kind, kept.bytes),
                    Err((Unsent::Closed, _)) => {
                        *thrown += u64::from(is_reply(&kept.control[..kept.len]));
                        peer.gone(kept.kind, kept.bytes);
                    }
                    Err((Unsent::Full, load)) => {
                        peer.kept.push_front(Kept { load, ..kept });
                        return true;
                    }
                    Err((Unsent::Refused, _)) => {
                        *thrown += 1;
                        peer.gone(kept.kind, kept.bytes);
                        if let Ok(message) = Message::decode(&kept.control[..kept.len]) {
                            let failed = message.instead(Failure::TooLong);
                            let mut control = [0; CONTROL_MAX];
                            let len = failed.encode(&mut control).unwrap_or(0);
                            let kind = failed.kind;
                            peer.push_front(Kept { kind, control, len, token: None, load: None, bytes: 0 });
                        }
                    }
                }
            }
            false
        });
        backlog.is_empty()
    }
}

#[cfg(test)]
mod tests;
