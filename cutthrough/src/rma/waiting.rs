//! Operations of peers that find a region's bytes locked: they wait for them, and their node does not.
//!
//! ```text
//! a node's thread                               whoever has the bytes
//! nothing waits, and the bytes are free?        lets go of them: does what waits, in its order,
//!   then the operation is done here               and frees the bytes in the moment when nothing does
//! else it is put off, and waits behind others
//! ```
//!
//! So an operation is done as soon as the bytes are free, however often they are locked again, and those of a channel
//! stay in their order. A node waits for whoever does what was waiting, if it is asked for that region meanwhile: so
//! that is bounded. What is put off counts among the requests in service, of which a node has a limited number.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cutthrough_node::incoming::zeros;

use super::operations::{Done, Failed};
use super::{Bytes, Locked, Owner, Region};
use crate::am::{Answered, Deferred, Failure, Request};

/// Bytes that operations on one region may wait with: those of their payloads, and of their answers. More have to come
/// again.
const KEPT: usize = 32 << 20;
/// How many operations may wait for one region: a part of the requests that a node serves by default.
const MOST: usize = 256;

/// What waits for the bytes of a region.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Told when nobody does any more what was waiting; and where threads want the bytes, when those are free.
    served: Condvar,
    wanted: AtomicU32,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Bytes that they wait with.
    kept: usize,
    /// Whether somebody does what was waiting. Nothing joins it then: it comes to an end.
    serving: bool,
}

impl State {
    fn throw_away(&mut self) {
        let Self { waiting, kept, .. } = self;
        waiting.retain(|waiting| {
            let stays = !waiting.deferred.is_over();
            *kept -= if stays { 0 } else { waiting.bytes };
            stays
        });
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.served.wait_while(state, |state| state.serving).unwrap_or_else(PoisonError::into_inner)
    }

    /// The region's bytes, if they are free and nothing waits for them.
    pub(super) fn enter<'r>(&self, region: &'r Region) -> Option<Locked<'r>> {
        let state = self.state();
        if state.waiting.is_empty() { region.try_lock() } else { None }
    }

    /// The region's bytes, once they are free, if that is within this time. For a thread that has to do something else
    /// by then.
    pub(super) fn wait<'r>(&self, region: &'r Region, time: Duration) -> Option<Locked<'r>> {
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Who lets go of them has the state by then, or will.
        let mut locked = region.try_lock();
        if locked.is_none() {
            drop(self.served.wait_timeout(state, time));
            locked = region.try_lock();
        } else {
            drop(state);
        }
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        locked
    }

    /// Whether one more operation may wait, with so many bytes; what nobody waits for any more makes room. Only those
    /// of other nodes may take that room meanwhile.
    fn has_room(&self, bytes: usize) -> bool {
        let mut state = self.state();
        state.throw_away();
        state.waiting.len() < MOST && state.kept.saturating_add(bytes) <= KEPT
    }

    /// Throws away what nobody waits for any more: whether anything else waits.
    pub(super) fn throw_away(&self) -> bool {
        let mut state = self.state();
        state.throw_away();
        !state.waiting.is_empty()
    }

    /// An operation joins those that wait. If the bytes have become free meanwhile, it is done now.
    pub(super) fn join(&self, region: &Region, waiting: Waiting) {
        let mut state = self.state();
        state.kept += waiting.bytes;
        state.waiting.push_back(waiting);
        let locked = region.try_lock();
        drop(state);
        drop(locked);
    }

    /// Who has the bytes lets go of them: does what waits, by `serve`, and frees them before anything can wait for them
    /// again. If this thread panics, what waits is not done.
    pub(super) fn leave(&self, bytes: Bytes<'_>, mut serve: impl FnMut(Waiting, &mut [u8])) {
        /// Somebody does what was waiting, until this is dropped, be it by a panic.
        struct Serving<'q>(&'q Queue);
        impl Drop for Serving<'_> {
            fn drop(&mut self) {
                self.0.state.lock().unwrap_or_else(PoisonError::into_inner).serving = false;
                self.0.served.notify_all();
            }
        }
        let mut state = self.state();
        if state.waiting.is_empty() {
            // Before anything can join.
            drop(bytes);
            if self.wanted.load(Ordering::Relaxed) > 0 {
                self.served.notify_all();
            }
            return;
        }
        let State { waiting, .. } = std::mem::replace(&mut *state, State { serving: true, ..State::default() });
        drop(state);
        // In this order, if that panics: the bytes are free before anything can join.
        let serving = Serving(self);
        let mut bytes = bytes;
        if !std::thread::panicking() {
            waiting.into_iter().for_each(|waiting| serve(waiting, &mut bytes));
        }
        drop(bytes);
        drop(serving);
    }
}

/// An operation that was put off.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Knows whether its key is good still.
    owner: Owner,
    handler: u16,
    args: Vec<u8>,
    /// A copy: the pages that it came in are free for others.
    payload: Vec<u8>,
    /// How many those are, and those of the answer.
    bytes: usize,
    deferred: Deferred,
}

impl Waiting {
    /// Puts a request off. None if its payload does not come, and where no more may wait; then it is answered.
    pub(super) fn new(owner: &Owner, handler: u16, mut request: Request<'_>, queue: &Queue) -> Option<Self> {
        let len = request.payload_len();
        if !queue.has_room(len) {
            request.fail(Failure::Busy);
            return None;
        }
        let (args, memory) = (request.args().to_vec(), zeros(len));
        let Some(mut payload) = memory else {
            request.fail(Failure::Busy);
            return None;
        };
        if len > 0 && request.read(&mut payload).is_err() {
            request.fail(Failure::Abandoned);
            return None;
        }
        let bytes = len.saturating_add(Region::answered(handler, &args, &payload));
        if !queue.has_room(bytes) {
            request.fail(Failure::Busy);
            return None;
        }
        Some(Self { owner: owner.clone(), handler, args, payload, bytes, deferred: request.defer() })
    }

    /// Does it, unless nobody waits for it any more, and leaves the answer to the node.
    pub(super) fn serve(self, region: &Region, bytes: &mut [u8]) {
        let Self { owner, handler, args, payload, deferred, .. } = self;
        if deferred.is_over() {
            return;
        }
        let done = if owner.has(&args, region) {
            region.apply(handler, &args, &payload, bytes)
        } else {
            Err(Failed::NO_REGION)
        };
        deferred.leave(match done {
            Ok(Done { args, payload }) => Answered::Reply(args, payload),
            Err(Failed(why, words)) => Answered::Failed(why, words.to_vec()),
        });
    }
}
