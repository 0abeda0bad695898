//! Where the answer to a call is left for whoever waits: kept for the next call, which allocates nothing then.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread::Thread;

use crate::am::{Crowd, Failed, Reply, Taker};

/// Most places that a thread keeps for its calls to come.
const MOST: usize = 64;

thread_local! {
    static KEPT: RefCell<Vec<Arc<Slot>>> = const { RefCell::new(Vec::new()) };
    static WAKER: Waker = Waker::from(Arc::new(Unpark(std::thread::current())));
}

/// Wakes a thread that waits for a call.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// What wakes this thread: one for all its calls.
pub(super) fn waker() -> Waker {
    let waker = WAKER.try_with(Waker::clone);
    // A thread that ends has none any more.
    waker.unwrap_or_else(|_| Waker::from(Arc::new(Unpark(std::thread::current()))))
}

/// Where the answer to a call is left.
#[derive(Debug, Default)]
pub(super) struct Slot {
    done: AtomicBool,
    inside: Mutex<Left>,
}

#[derive(Debug, Default)]
struct Left {
    answer: Option<Result<Reply, Failed>>,
    waker: Option<Waker>,
    /// Where it counts that a task has its answer, and has not come for it.
    crowd: Option<Arc<Crowd>>,
    /// Nobody waits any more: what is left here is thrown away.
    over: bool,
}

impl Left {
    /// The answer, if it has come: whoever waits for it is here.
    fn take(&mut self) -> Option<Result<Reply, Failed>> {
        let answer = self.answer.take();
        if answer.is_some()
            && let Some(crowd) = &self.crowd
        {
            crowd.goes();
        }
        answer
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Left> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody waits here again.
    fn renew(&mut self, crowd: &Arc<Crowd>) {
        *self.done.get_mut() = false;
        let left = self.inside.get_mut().unwrap_or_else(PoisonError::into_inner);
        left.over = false;
        if left.crowd.as_ref().is_none_or(|before| !Arc::ptr_eq(before, crowd)) {
            left.crowd = Some(Arc::clone(crowd));
        }
    }

    /// Whether an answer has come.
    pub(super) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// The answer, if it has come; else `waker` is woken when it does.
    pub(super) fn take(&self, waker: Option<&Waker>) -> Option<Result<Reply, Failed>> {
        if waker.is_none() && !self.is_done() {
            return None;
        }
        // To copy a waker, and to drop one, may run anything, which may wait for who leaves an answer here.
        let mut other = waker.cloned();
        let mut left = self.lock();
        self.done.store(false, Ordering::Relaxed);
        let answer = left.take();
        if answer.is_none() {
            std::mem::swap(&mut left.waker, &mut other);
        }
        drop(left);
        drop(other);
        answer
    }
}

impl Taker for Slot {
    fn leave(&self, answer: Result<Reply, Failed>) {
        let mut left = self.lock();
        if left.over {
            // To drop an answer may take a while.
            drop(left);
            return drop(answer);
        }
        left.answer = Some(answer);
        if let Some(crowd) = &left.crowd {
            crowd.comes();
        }
        self.done.store(true, Ordering::Release);
        let waker = left.waker.take();
        // Whoever is woken may look here at once.
        drop(left);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A place for the answer to one call.
#[derive(Debug)]
pub(super) struct Lent(Arc<Slot>);

impl Lent {
    /// A place that was in use before, if this thread has one that nobody else has hold of: whoever has left an answer
    /// there may have for a moment.
    pub(super) fn new(crowd: &Arc<Crowd>) -> Self {
        let free = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            let at = kept.iter_mut().rposition(|slot| Arc::get_mut(slot).is_some())?;
            Some(kept.swap_remove(at))
        });
        let mut slot: Arc<Slot> = free.ok().flatten().unwrap_or_default();
        if let Some(slot) = Arc::get_mut(&mut slot) {
            slot.renew(crowd);
        }
        Self(slot)
    }

    /// What the answer is given to.
    pub(super) fn taker(&self) -> Arc<dyn Taker> {
        Arc::<Slot>::clone(&self.0)
    }
}

impl Deref for Lent {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut left = self.0.lock();
        left.over = true;
        let (answer, waker) = (left.take(), left.waker.take());
        drop(left);
        // To drop these may run anything, which may make calls and drop them.
        drop((answer, waker));
        let slot = Arc::clone(&self.0);
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < MOST {
                kept.push(slot);
            }
        });
    }
}
