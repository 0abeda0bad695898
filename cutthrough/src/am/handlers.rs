//! Handlers: what they take, and how a request comes to its own.

use std::any::Any;

use cutthrough_engine::am::message::ARGS_MAX;
use cutthrough_engine::am::{Failure, ReplyTo};
use cutthrough_engine::time::Instant;
use cutthrough_node::incoming::{Incoming, Payload};

use super::deferred::{Limit, PutOffs};
use super::event::HEAD;
use super::gather::{Part, is_arriving, unread};
use super::request::{More, Request, Serving};
use super::serve::{Taken, upcall};
use super::{Args, Inside, Node, RESERVED};

/// A handler, and what it takes.
pub(super) struct Registered {
    args: Args,
    /// Most bytes of a payload.
    payload: usize,
    takes: Takes,
    /// Whether it has a limit of its own.
    limited: bool,
    /// Which requests it takes, where that can be said before their payload has come.
    admits: Option<Admits>,
    run: Run,
}

/// What runs: with the node's state.
type Run = Box<dyn FnMut(&mut (dyn Any + Send), Request<'_>) + Send>;

/// A handler that has no use for the state.
fn stateless(mut run: impl FnMut(Request<'_>) + Send + 'static) -> Run {
    Box::new(move |_, request| run(request))
}

/// How a handler gets a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// As it is: perhaps some of it is still on its way.
    AsItIs,
    /// Once all of it has come.
    Whole,
    /// The same, copied.
    Copied,
}

/// Says why a request of these arguments and so many bytes of payload is not served: the failure, and words.
pub(crate) type Admits = Box<dyn FnMut(&[u8], usize) -> Result<(), (Failure, &'static [u8])> + Send>;

impl Args {
    /// Whether a request can have such.
    const fn can_come(self) -> bool {
        match self {
            Self::Any => true,
            Self::Words(words) => words as usize * 4 <= ARGS_MAX,
            Self::AtLeast(bytes) => bytes as usize <= ARGS_MAX,
        }
    }

    const fn takes(self, len: usize) -> bool {
        match self {
            Self::Any => true,
            Self::Words(words) => len == words as usize * 4,
            Self::AtLeast(bytes) => len >= bytes as usize,
        }
    }
}

/// A request, taken apart.
#[derive(Debug)]
pub(super) struct Coming {
    pub(super) handler: u16,
    pub(super) args: u8,
    /// Whether nobody waits for the answer any more.
    pub(super) late: bool,
    /// What only some requests say.
    pub(super) more: Option<More>,
    pub(super) to: ReplyTo,
}

impl Coming {
    /// When nobody waits for the answer any more.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.more.as_ref().and_then(More::deadline)
    }
}

impl Node {
    /// Registers a handler of short requests. Its number is taken from then on: handlers of all kinds share one table,
    /// the methods of [`rpc`](crate::rpc) among them.
    ///
    /// # Panics
    /// If the number is [`RESERVED`] or above, or has a handler already, or no request can have such arguments.
    pub fn short(&mut self, handler: u16, args: Args, run: impl FnMut(Request<'_>) + Send + 'static) {
        let (takes, run) = (Takes::AsItIs, stateless(run));
        self.register(handler, Registered { args, payload: 0, takes, limited: false, admits: None, run });
    }

    /// As [`Node::short`], with the node's state ([`Node::with_state`]).
    ///
    /// # Panics
    /// As [`Node::short`], and if the state is no `T`.
    pub fn short_with<T: Any>(
        &mut self,
        handler: u16,
        args: Args,
        run: impl FnMut(&mut T, Request<'_>) + Send + 'static,
    ) {
        self.long_with(handler, args, 0, run);
    }

    /// Registers a handler of medium requests: payloads of up to a page, copied ([`Request::medium`]).
    ///
    /// # Panics
    /// If the number is [`RESERVED`] or above, or has a handler already, or no request can have such arguments.
    pub fn medium(&mut self, handler: u16, args: Args, run: impl FnMut(Request<'_>) + Send + 'static) {
        let payload = self.inside.endpoint.page_bytes() as usize;
        let takes = Takes::Copied;
        self.register(handler, Registered { args, payload, takes, limited: false, admits: None, run: stateless(run) });
    }

    /// As [`Node::medium`], with the node's state ([`Node::with_state`]).
    ///
    /// # Panics
    /// As [`Node::medium`], and if the state is no `T`.
    pub fn medium_with<T: Any>(
        &mut self,
        handler: u16,
        args: Args,
        run: impl FnMut(&mut T, Request<'_>) + Send + 'static,
    ) {
        let most = self.inside.endpoint.page_bytes() as usize;
        self.register_with(handler, (args, most, Takes::Copied), run);
    }

    /// Registers a handler of long requests with payloads of up to `most` bytes. A payload has no place of its own
    /// until the handler reads it ([`Request::read`]), unless a token has named one. The handler may run while the
    /// payload still comes in; then reading it waits for the rest, and so does the node: at most for
    /// [`Config::deadline`](crate::Config::deadline) without progress. [`Node::whole`] waits for nobody.
    ///
    /// # Panics
    /// If the number is [`RESERVED`] or above, or has a handler already, or no request can have such arguments.
    pub fn long(&mut self, handler: u16, args: Args, most: usize, run: impl FnMut(Request<'_>) + Send + 'static) {
        let takes = Takes::AsItIs;
        self.register(
            handler,
            Registered { args, payload: most, takes, limited: false, admits: None, run: stateless(run) },
        );
    }

    /// As [`Node::long`], with the node's state ([`Node::with_state`]).
    ///
    /// # Panics
    /// As [`Node::short`], and if the state is no `T`.
    pub fn long_with<T: Any>(
        &mut self,
        handler: u16,
        args: Args,
        most: usize,
        run: impl FnMut(&mut T, Request<'_>) + Send + 'static,
    ) {
        self.register_with(handler, (args, most, Takes::AsItIs), run);
    }

    /// Registers a handler that has use for the state.
    fn register_with<T: Any>(
        &mut self,
        handler: u16,
        (args, payload, takes): (Args, usize, Takes),
        mut run: impl FnMut(&mut T, Request<'_>) + Send + 'static,
    ) {
        assert!(self.state.is::<T>(), "the state of the node is of another type");
        let run: Run = Box::new(move |state, request| {
            if let Some(state) = state.downcast_mut() {
                run(state, request);
            }
        });
        self.register(handler, Registered { args, payload, takes, limited: false, admits: None, run });
    }

    /// As [`Node::long`], but the handler runs when all of the payload has come; requests of other channels are served
    /// meanwhile. A payload that had no place when its request came lies in a buffer then ([`Payload::Buffer`]).
    ///
    /// # Panics
    /// If the number is [`RESERVED`] or above, or has a handler already, or no request can have such arguments.
    pub fn whole(&mut self, handler: u16, args: Args, most: usize, run: impl FnMut(Request<'_>) + Send + 'static) {
        let takes = Takes::Whole;
        self.register(
            handler,
            Registered { args, payload: most, takes, limited: false, admits: None, run: stateless(run) },
        );
    }

    /// As [`Node::whole`], with the node's state ([`Node::with_state`]).
    ///
    /// # Panics
    /// As [`Node::whole`], and if the state is no `T`.
    pub fn whole_with<T: Any>(
        &mut self,
        handler: u16,
        args: Args,
        most: usize,
        run: impl FnMut(&mut T, Request<'_>) + Send + 'static,
    ) {
        self.register_with(handler, (args, most, Takes::Whole), run);
    }

    fn register(&mut self, handler: u16, registered: Registered) {
        assert!(handler < RESERVED, "handlers from {RESERVED} on are the library's own");
        assert!(registered.args.can_come(), "{:?}: a request has at most {ARGS_MAX} bytes of them", registered.args);
        let index = usize::from(handler);
        if self.handlers.len() <= index {
            self.handlers.resize_with(index + 1, || None);
        }
        let place = &mut self.handlers[index];
        assert!(place.is_none(), "handler {handler} is there already; methods of rpc have numbers among them, too");
        *place = Some(registered);
    }

    /// Bounds how many requests of a handler may be in service at a time: put off ([`Request::defer`]), and neither
    /// answered nor thrown away. While there are so many, others of that handler get [`Failure::HandlerBusy`], and it
    /// does not run; those of other handlers are served as ever, as far as
    /// [`Settings::serve`](super::Settings::serve) allows. Said again, the new bound counts.
    ///
    /// # Panics
    /// If no handler has that number, or `most` is 0.
    pub fn limit_concurrency(&mut self, handler: u16, most: usize) {
        self.limit(handler, most, Limit::All(most));
    }

    /// Bounds how many requests of a handler may be in service at a time for one caller, as
    /// [`Node::limit_concurrency`] does for all of them: so one that has many under way leaves places to others. While
    /// there are so many, others of that caller get [`Failure::HandlerBusy`]; those of other callers are served. With
    /// both limits, and this one the lower, no caller takes all places of a handler.
    ///
    /// A caller is a channel, that to which the reply goes: who opens several has as many more. What was asked on a
    /// channel that has ended counts among all of the handler's, until it is answered or thrown away, and as no
    /// caller's.
    ///
    /// # Panics
    /// If no handler has that number, or `most` is 0.
    pub fn limit_per_caller(&mut self, handler: u16, most: usize) {
        self.limit(handler, most, Limit::Each(most));
    }

    fn limit(&mut self, handler: u16, most: usize, limit: Limit) {
        assert!(most > 0, "a limit of {most}: each request would find handler {handler} busy");
        let registered = self.handlers.get_mut(usize::from(handler)).and_then(Option::as_mut);
        registered.unwrap_or_else(|| panic!("no handler has the number {handler}: register it first")).limited = true;
        self.inside.deferred.limit(handler, limit);
    }

    /// Registers a handler of the library's own, as [`Node::whole`]. `admits` is asked before a payload has come.
    ///
    /// # Panics
    /// If the number is not one of the first eight that are reserved.
    pub(crate) fn register_own(
        &mut self,
        handler: u16,
        args: Args,
        admits: Admits,
        run: impl FnMut(Request<'_>) + Send + 'static,
    ) {
        let payload = cutthrough_wire::slot::PAYLOAD_MAX;
        let payload = usize::try_from(payload).unwrap_or(usize::MAX);
        let (takes, admits) = (Takes::Whole, Some(admits));
        let registered = Registered { args, payload, takes, limited: false, admits, run: stateless(run) };
        self.own[usize::from(handler - RESERVED)] = Some(registered);
    }

    /// Whether the answers to as many requests were put off as may be.
    #[inline]
    fn has_enough(&self) -> bool {
        self.inside.deferred.len() >= self.settings.serve
    }

    /// The same without those that wait for the bytes of a region, and for which nobody waits any more.
    #[cold]
    fn stays_busy(&mut self) -> bool {
        if let Some(owner) = &self.owner {
            owner.throw_away();
            self.inside.send_left();
        }
        self.has_enough()
    }

    /// Finds the handler of a request and runs it, or says why not.
    #[inline(always)]
    pub(super) fn serve(&mut self, incoming: &mut Incoming, coming: Coming) -> Taken {
        let busy = self.has_enough() && self.stays_busy();
        let found = find(&mut self.handlers, &mut self.own, coming.handler);
        let registered = match admit(found, incoming, &coming, (busy, &self.inside.deferred)) {
            Ok(registered) => registered,
            Err((why, words)) => {
                self.inside.refuse_coming(coming, why, words);
                return Taken::Done;
            }
        };
        if !self.gathering.is_empty() && self.gathering.holds_requests(incoming.channel()) {
            return Taken::Aside(coming, Part::default());
        }
        if registered.takes != Takes::AsItIs && is_arriving(incoming) {
            let mut part = Part::default();
            match part.is_whole(&mut self.inside.endpoint, incoming) {
                Ok(true) => {}
                Ok(false) => return Taken::Aside(coming, part),
                Err(error) => {
                    self.inside.fail(coming.to, unread(error), &[]);
                    return Taken::Done;
                }
            }
        }
        run(registered, &mut *self.state, &mut self.inside, &mut self.medium, incoming, coming);
        Taken::Done
    }

    /// The same for a request that was put aside, and whose payload has come.
    pub(super) fn serve_whole(&mut self, incoming: &mut Incoming, coming: Coming) {
        let busy = self.has_enough() && self.stays_busy();
        let found = find(&mut self.handlers, &mut self.own, coming.handler);
        match admit(found, incoming, &coming, (busy, &self.inside.deferred)) {
            Ok(registered) => {
                run(registered, &mut *self.state, &mut self.inside, &mut self.medium, incoming, coming);
            }
            Err((why, words)) => self.inside.refuse_coming(coming, why, words),
        }
    }
}

impl Inside {
    /// Says why a request is not served; of a handler with a limit, which one it is, and how many it serves.
    #[cold]
    fn refuse_coming(&mut self, coming: Coming, why: Failure, words: &[u8]) {
        let reached = self.deferred.limit_reached(coming.handler, coming.to.row());
        let Some(limit) = reached.filter(|_| why == Failure::HandlerBusy) else {
            return self.fail(coming.to, why, words);
        };
        let words = match limit {
            Limit::All(most) => format!("handler {} serves {most}", coming.handler),
            Limit::Each(most) => format!("handler {} serves {most} of each caller", coming.handler),
        };
        self.fail(coming.to, why, words.as_bytes());
    }
}

/// The handler of this number.
#[inline]
fn find<'h>(
    handlers: &'h mut [Option<Registered>],
    own: &'h mut [Option<Registered>],
    handler: u16,
) -> Option<&'h mut Registered> {
    let index = usize::from(handler);
    let found = if handler < RESERVED { handlers.get_mut(index) } else { own.get_mut(index - usize::from(RESERVED)) };
    found.and_then(Option::as_mut)
}

/// The handler, if it takes this request; else why not, and words.
#[inline]
fn admit<'h>(
    found: Option<&'h mut Registered>,
    incoming: &Incoming,
    coming: &Coming,
    (busy, put_off): (bool, &PutOffs),
) -> Result<&'h mut Registered, (Failure, &'static [u8])> {
    let registered = found.ok_or((Failure::Unknown, &[][..]))?;
    let refused = if !registered.args.takes(usize::from(coming.args)) {
        Some(Failure::Arguments)
    } else if incoming.is_loaded() && matches!(incoming.payload(), Payload::Dropped(_)) {
        Some(Failure::Token)
    } else if incoming.is_loaded() && incoming.payload_len() > registered.payload {
        Some(Failure::TooLong)
    } else if coming.late {
        Some(Failure::Late)
    } else if busy {
        Some(Failure::Busy)
    } else if registered.limited && put_off.limit_reached(coming.handler, coming.to.row()).is_some() {
        Some(Failure::HandlerBusy)
    } else {
        None
    };
    if let Some(why) = refused {
        return Err((why, &[]));
    }
    if let Some(admits) = &mut registered.admits {
        let args = incoming.control().get(HEAD..HEAD + usize::from(coming.args)).unwrap_or(&[]);
        admits(args, incoming.payload_len())?;
    }
    Ok(registered)
}

/// Runs a handler.
#[inline(always)]
fn run(
    registered: &mut Registered,
    state: &mut (dyn Any + Send),
    inside: &mut Inside,
    buffer: &mut Vec<u8>,
    incoming: &mut Incoming,
    coming: Coming,
) {
    let mut medium: &[u8] = &[];
    if registered.takes == Takes::Copied && incoming.is_loaded() {
        buffer.clear();
        buffer.resize(incoming.payload_len(), 0);
        if inside.endpoint.read(incoming, buffer).is_err() {
            // The channel is ending; its end tells the rest.
            return inside.fail(coming.to, Failure::Abandoned, &[]);
        }
        medium = buffer;
    }
    let Coming { handler, args, more, to, .. } = coming;
    let unwinding = std::thread::panicking();
    let mut right = Some(to);
    let (its, came, to) = (&mut *inside, &mut *incoming, &mut right);
    let mut serving = Serving { inside: its, incoming: came, medium, args, handler, more, to, unwinding };
    let (run, request) = (&mut registered.run, Request::new(&mut serving));
    // The node's own state is whole at every point where a handler can panic. The request itself tells the requester.
    upcall(move || run(state, request));
    if right.is_some() {
        // It was forgotten (`std::mem::forget`), or lies where nothing drops it: the requester waits all the same.
        inside.reply_bytes(incoming.channel(), &mut right, &[]);
    }
}
