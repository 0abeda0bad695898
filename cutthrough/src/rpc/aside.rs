//! Calls of tasks that would keep others of their executor waiting: a body that is longer than the pool goes only as
//! fast as the server takes it, so another thread sends it. A service has one for all such calls, which takes them in
//! the order in which they came. It waits in the line of those that want the node, and has it, as a thread does that
//! makes such a call and waits for it.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use cutthrough_engine::time::Instant;
use cutthrough_node::clock;
use cutthrough_node::incoming::Channel;

use super::raw::Raw;
use crate::am::{Call, Continuation, Long, Node, Place, RequestError, Service, Taker, upcall};

/// What has come of a call that another thread was to make, and when that began: not that it was made, if the node was
/// not free in time.
type Made = Option<(Instant, Result<Call, RequestError>)>;

/// How far that is.
enum State {
    /// It stands in line: what it is, and where its answer is left.
    Given(Box<Raw<'static>>, Arc<dyn Taker>),
    /// The thread sends.
    Taken,
    /// It was tried, or its time was over before, and is given back.
    Tried(Made, Box<Raw<'static>>),
    /// To send it has panicked, with this.
    Panicked(Box<dyn Any + Send>),
    /// Nobody waits for it any more.
    GivenUp,
}

/// A call that another thread makes.
pub(super) struct Aside {
    channel: Channel,
    /// When its time is over.
    until: Instant,
    /// Where it stands in line.
    place: OnceLock<Place>,
    inside: Mutex<(State, Option<Waker>)>,
}

impl fmt::Debug for Aside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aside").field("channel", &self.channel).finish_non_exhaustive()
    }
}

impl Aside {
    /// Has another thread make this call, and leave the answer where it says. The call comes back where the system
    /// gives no thread just now.
    #[allow(clippy::result_large_err, reason = "the error gives the call back")]
    pub(super) fn send<'a>(
        service: &Service,
        raw: Raw<'a>,
        taker: Arc<dyn Taker>,
        (channel, until): (Channel, Instant),
        waker: &Waker,
    ) -> Result<Arc<Self>, Raw<'a>> {
        // To copy a waker may run anything.
        let state = (State::Given(Box::new(raw.into_owned()), taker), Some(waker.clone()));
        let aside = Arc::new(Self { channel, until, place: OnceLock::new(), inside: Mutex::new(state) });
        let long: Arc<dyn Long> = Arc::<Self>::clone(&aside);
        match service.do_long(until, long) {
            Some(place) => {
                let _ = aside.place.set(place);
                Ok(aside)
            }
            None => match aside.give_up(service) {
                Some((_, raw)) => Err(raw),
                None => unreachable!("no thread has taken it"),
            },
        }
    }

    fn lock(&self) -> MutexGuard<'_, (State, Option<Waker>)> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The channel that the call is made on.
    pub(super) const fn channel(&self) -> Channel {
        self.channel
    }

    /// When its time is over.
    pub(super) const fn until(&self) -> Instant {
        self.until
    }

    /// What has come of it, and the call. Else `waker` is woken when that is known, and when its time is over.
    ///
    /// # Panics
    /// As to send it has, on the other thread.
    pub(super) fn take(&self, waker: &Waker) -> Option<(Made, Raw<'static>)> {
        let waker = waker.clone();
        let mut inside = self.lock();
        let state = std::mem::replace(&mut inside.0, State::GivenUp);
        let (before, tried) = match state {
            State::Tried(made, raw) => (inside.1.take(), Some((made, *raw))),
            State::Panicked(with) => {
                drop(inside);
                resume_unwind(with)
            }
            State::GivenUp => {
                drop(inside);
                panic!("a call was polled after it had panicked")
            }
            waits => {
                inside.0 = waits;
                (inside.1.replace(waker), None)
            }
        };
        drop(inside);
        // To drop one may run anything, too.
        drop(before);
        tried
    }

    /// Nobody waits for it any more. What has come of it, and the call, if that is known. Else the thread gives it up.
    pub(super) fn give_up(&self, service: &Service) -> Option<(Made, Raw<'static>)> {
        if let Some(place) = self.place.get() {
            service.leave_long(*place);
        }
        let mut inside = self.lock();
        let (state, waker) = (std::mem::replace(&mut inside.0, State::GivenUp), inside.1.take());
        drop(inside);
        drop(waker);
        match state {
            State::Given(raw, _) => Some((None, *raw)),
            State::Tried(made, raw) => Some((made, *raw)),
            State::Panicked(with) => {
                upcall(|| drop(with));
                None
            }
            State::Taken | State::GivenUp => None,
        }
    }

    fn wake_task(&self) {
        let waker = self.lock().1.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Long for Aside {
    /// Makes the call, unless nobody waits for it any more.
    fn run(&self, node: &mut Node) {
        let mut inside = self.lock();
        let (mut raw, taker) = match std::mem::replace(&mut inside.0, State::Taken) {
            State::Given(raw, taker) => (raw, taker),
            // What was given up, or is late, stays so.
            state => {
                inside.0 = state;
                return;
            }
        };
        drop(inside);
        let begun = clock::now();
        let left = Duration::from_nanos(self.until.saturating_since(begun));
        // Whoever waits for it hears of a panic, as if it had made the call itself.
        let asks = AssertUnwindSafe(|| raw.ask(node, self.channel, left, Some(Continuation::Leave(taker))));
        let made = catch_unwind(asks);
        let mut inside = self.lock();
        if !matches!(inside.0, State::GivenUp) {
            inside.0 = match made {
                Ok(made) => State::Tried(Some((begun, made)), raw),
                Err(with) => State::Panicked(with),
            };
            return;
        }
        drop(inside);
        match made {
            Ok(Ok(call)) => drop(node.give_up(call, false)),
            Ok(Err(_)) => {}
            Err(with) => upcall(|| drop(with)),
        }
    }

    fn is_over(&self) {
        self.wake_task();
    }

    fn is_late(&self) {
        let mut inside = self.lock();
        let (state, taker) = match std::mem::replace(&mut inside.0, State::GivenUp) {
            State::Given(raw, taker) => (State::Tried(None, raw), Some(taker)),
            state => (state, None),
        };
        inside.0 = state;
        drop(inside);
        drop(taker);
        self.wake_task();
    }
}
