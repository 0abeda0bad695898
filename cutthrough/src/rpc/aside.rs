//! Calls of tasks that would keep others of their executor waiting: a body that is longer than the pool goes only as
//! fast as the server takes it, so a thread of its own sends it. That waits in the line of those that want the node,
//! and has it, as a thread does that makes such a call and waits for it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use cutthrough_engine::time::Instant;
use cutthrough_node::clock;
use cutthrough_node::incoming::Channel;

use super::raw::Raw;
use crate::am::{Call, Continuation, Node, RequestError, Service, Taker};

/// What has come of a call that another thread was to make: not that it was made, if the node was not free in time.
type Made = Option<Result<Call, RequestError>>;

/// How far that is.
#[derive(Debug)]
enum State {
    /// The thread has not begun.
    Given(Box<Raw<'static>>),
    /// It sends.
    Taken,
    /// It has tried, and gives the call back.
    Tried(Made, Box<Raw<'static>>),
    /// Nobody waits for it any more.
    GivenUp,
}

/// A call that another thread makes.
#[derive(Debug)]
pub(super) struct Aside {
    channel: Channel,
    inside: Mutex<(State, Option<Waker>)>,
    /// Told when the thread has tried, or nobody waits any more.
    over: Condvar,
}

impl Aside {
    /// Has a thread of its own make this call, and leave the answer where it says. The call comes back where the system
    /// gives no thread just now.
    #[allow(clippy::result_large_err, reason = "the error gives the call back")]
    pub(super) fn send<'a>(
        service: &Arc<Service>,
        raw: Raw<'a>,
        taker: Arc<dyn Taker>,
        (channel, until): (Channel, Instant),
        waker: &Waker,
    ) -> Result<Arc<Self>, Raw<'a>> {
        // To copy a waker may run anything.
        let state = (State::Given(Box::new(raw.into_owned())), Some(waker.clone()));
        let aside = Arc::new(Self { channel, inside: Mutex::new(state), over: Condvar::new() });
        let (its, uses) = (Arc::clone(&aside), Arc::clone(service));
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        // The service's thread would wait for the node, as long as the other has it.
        let times = Arc::clone(&aside);
        let timer = named("cutthrough-time").spawn(move || times.watch(until));
        let sender = timer.and_then(|_| named("cutthrough-long").spawn(move || its.run(&uses, taker, until)));
        match sender {
            Ok(_) => Ok(aside),
            Err(_) => match aside.give_up() {
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

    fn run(&self, service: &Service, taker: Arc<dyn Taker>, until: Instant) {
        let left = || Duration::from_nanos(until.saturating_since(clock::now()));
        let driving = service.driving();
        let made = driving.with_in(left(), |node| self.make(node, taker, left()));
        driving.leave(false);
        if made.is_none() {
            // Others had the node all the time.
            let mut inside = self.lock();
            inside.0 = match std::mem::replace(&mut inside.0, State::GivenUp) {
                State::Given(raw) => State::Tried(None, raw),
                state => state,
            };
        }
        self.wake_task();
    }

    /// Makes the call, unless nobody waits for it any more.
    fn make(&self, node: &mut Node, taker: Arc<dyn Taker>, left: Duration) {
        let mut inside = self.lock();
        let mut raw = match std::mem::replace(&mut inside.0, State::Taken) {
            State::Given(raw) => raw,
            // What was given up stays so: its timer ends by that.
            state => {
                inside.0 = state;
                return;
            }
        };
        drop(inside);
        let made = raw.ask(node, self.channel, left, Some(Continuation::Leave(taker)));
        let mut inside = self.lock();
        if !matches!(inside.0, State::GivenUp) {
            inside.0 = State::Tried(Some(made), raw);
            return;
        }
        drop(inside);
        if let Ok(call) = made {
            node.give_up(call, false);
        }
    }

    /// What has come of it, and the call. Else `waker` is woken when that is known, and when its time is over.
    pub(super) fn take(&self, waker: &Waker) -> Option<(Made, Raw<'static>)> {
        let waker = waker.clone();
        let mut inside = self.lock();
        if !matches!(inside.0, State::Tried(..)) {
            let before = inside.1.replace(waker);
            drop(inside);
            // To drop one may run anything, too.
            drop(before);
            return None;
        }
        drop(inside);
        self.give_up()
    }

    /// Nobody waits for it any more. What has come of it, and the call, if that is known. Else the thread gives it up.
    pub(super) fn give_up(&self) -> Option<(Made, Raw<'static>)> {
        let mut inside = self.lock();
        let (state, waker) = (std::mem::replace(&mut inside.0, State::GivenUp), inside.1.take());
        drop(inside);
        self.over.notify_all();
        drop(waker);
        match state {
            State::Given(raw) => Some((None, *raw)),
            State::Tried(made, raw) => Some((made, *raw)),
            State::Taken | State::GivenUp => None,
        }
    }

    /// Wakes the task when its time is over, unless that has an end before.
    fn watch(&self, until: Instant) {
        let left = Duration::from_nanos(until.saturating_since(clock::now()));
        let waits = |inside: &mut (State, _)| matches!(inside.0, State::Given(_) | State::Taken);
        drop(self.over.wait_timeout_while(self.lock(), left, waits));
        self.wake_task();
    }

    fn wake_task(&self) {
        self.over.notify_all();
        let waker = self.lock().1.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
