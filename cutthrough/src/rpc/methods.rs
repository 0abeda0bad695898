//! Methods that their server does not serve just now, though it serves others.
//!
//! Their calls wait in queues of their own, one for each such method, so that they keep no call of another method
//! waiting. A queue is there while a call stands in it, or has been sent from it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cutthrough_engine::time::Instant;

use super::queue::Queue;
use crate::am::Crowd;

type Queues = BTreeMap<u16, Arc<Queue>>;

/// The queues of methods.
#[derive(Debug, Default)]
pub(super) struct Methods {
    /// Whether there are any.
    any: AtomicBool,
    queues: Mutex<Queues>,
}

impl Methods {
    #[inline]
    fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a call of this method may be made before those that wait for it.
    #[inline]
    pub(super) fn may_try(&self, method: u16) -> bool {
        !self.any() || self.find(method).is_none_or(|queue| queue.may_try(None))
    }

    /// The queue of a method, if it has one.
    #[inline]
    pub(super) fn find(&self, method: u16) -> Option<Arc<Queue>> {
        if self.any() { self.look_up(method) } else { None }
    }

    #[cold]
    fn look_up(&self, method: u16) -> Option<Arc<Queue>> {
        let mut queues = self.queues();
        // Nobody stands there, nor may come back.
        queues.retain(|_, queue| Arc::strong_count(queue) > 1);
        self.any.store(!queues.is_empty(), Ordering::Relaxed);
        queues.get(&method).cloned()
    }

    /// The queue of a method, which has one from now on.
    pub(super) fn queue(&self, method: u16, crowd: &Arc<Crowd>) -> Arc<Queue> {
        let mut queues = self.queues();
        self.any.store(true, Ordering::Relaxed);
        Arc::clone(queues.entry(method).or_insert_with(|| Arc::new(Queue::new(Arc::clone(crowd)))))
    }

    /// A call of this method was answered, by a server that was not busy.
    #[inline]
    pub(super) fn answered(&self, method: u16, now: impl FnOnce() -> Instant) {
        if let Some(queue) = self.find(method) {
            queue.answered(now);
        }
    }

    /// All queues that there are.
    pub(super) fn all(&self) -> Vec<Arc<Queue>> {
        if self.any() { self.queues().values().cloned().collect() } else { Vec::new() }
    }
}
