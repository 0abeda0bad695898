//! Whom the thread of a service wakes when their time has come, also while it waits for the node itself.

use std::sync::{MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use cutthrough_engine::time::Instant;
use cutthrough_node::clock;

use super::Shared;
use crate::am::lock::Held;
use crate::am::{Node, upcall};

/// The node, for what the thread does for others.
pub(crate) struct Access<'a>(&'a Shared);

impl Access<'_> {
    /// It, as soon as it is free.
    pub(crate) fn lock(&self) -> Held<'_, Node> {
        self.0.lock_awake()
    }
}

impl Shared {
    pub(super) const fn access(&self) -> Access<'_> {
        Access(self)
    }

    fn sleepers(&self) -> MutexGuard<'_, Vec<(Instant, Waker)>> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread wake a task when this time has come.
    pub(super) fn wake_at(&self, due: Instant, waker: Waker) {
        self.sleepers().push((due, waker));
        self.ring();
    }

    /// Wakes those whose time has come: how long it is until the next one's.
    pub(super) fn wake_sleepers(&self) -> Option<Duration> {
        let now = clock::now();
        let mut sleepers = self.sleepers();
        let due: Vec<Waker> = sleepers.extract_if(.., |(due, _)| *due <= now).map(|(_, waker)| waker).collect();
        let next = sleepers.iter().map(|(due, _)| *due).min();
        // Whoever is woken may want to be woken again.
        drop(sleepers);
        due.into_iter().for_each(|waker| upcall(|| waker.wake()));
        next.map(|due| Duration::from_nanos(due.saturating_since(now)))
    }

    /// The node, as soon as it is free, on the thread. Others may have it for long: whoever is due meanwhile is woken.
    pub(super) fn lock_awake(&self) -> Held<'_, Node> {
        let mut place = None;
        loop {
            let wakes = || {
                let now = clock::now();
                self.sleepers().iter().any(|(due, _)| *due <= now)
            };
            // Not in the queue: whoever is woken may want the node himself, and it would be kept for this one.
            if let Some(held) = self.node.lock_unless(&mut place, wakes) {
                return held;
            }
            self.wake_sleepers();
        }
    }
}
