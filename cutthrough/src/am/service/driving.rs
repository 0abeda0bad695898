//! Who drives the node of a service in place of its thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Shared;
use crate::am::{Crowd, Node};

/// Most events that who makes way for others takes in before.
const TAKEN_IN: u32 = 256;

/// Somebody drives the node in place of the thread.
pub(crate) struct Driving<'a> {
    shared: &'a Shared,
    /// Whether it waits for nothing more.
    is_content: bool,
}

impl<'a> Driving<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        shared.drivers.fetch_add(1, Ordering::SeqCst);
        Self { shared, is_content: false }
    }

    /// Uses the node, unless somebody else does just now.
    pub(crate) fn try_with<R>(&self, work: impl FnOnce(&mut Node) -> R) -> Option<R> {
        self.shared.node.try_lock().map(|mut node| work(&mut node))
    }

    /// The same as soon as it is free, if that is so soon.
    pub(crate) fn with_in<R>(&self, time: Duration, work: impl FnOnce(&mut Node) -> R) -> Option<R> {
        self.shared.node.lock_for(time).map(|mut node| work(&mut node))
    }

    /// The same, or not at all where this thread uses the node already: for a task, which may be polled anywhere.
    pub(crate) fn with_elsewhere_in<R>(&self, time: Duration, work: impl FnOnce(&mut Node) -> R) -> Option<R> {
        self.shared.node.lock_elsewhere_for(time).map(|mut node| work(&mut node))
    }

    /// The tasks that wait for calls and are about to run.
    pub(crate) fn crowd(&self) -> &Arc<Crowd> {
        &self.shared.crowd
    }

    /// Whether nobody else is in want of the node just now. Two loads.
    pub(crate) fn is_alone(&self) -> bool {
        self.shared.drivers.load(Ordering::Relaxed) == 1 && !self.shared.node.is_wanted()
    }

    /// Polls so often on behalf of the thread, until it is `done`; what happened is kept for it.
    pub(crate) fn drive(&self, looks: u32, done: impl Fn() -> bool) {
        self.try_with(|node| {
            for _ in 0..looks {
                if node.drive(false) && done() {
                    break;
                }
            }
        });
    }

    /// Takes in what has come, and sends what waits, on behalf of the thread: answers to others.
    pub(crate) fn take_in(&self) {
        self.try_with(|node| (0..TAKEN_IN).all(|_| node.drive(false)));
    }

    /// Leaves the node. `is_content`: whether it waits for nothing more; otherwise it relies on the thread from now on.
    pub(crate) fn leave(mut self, is_content: bool) {
        self.is_content = is_content;
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.shared.note_driven(self.is_content);
    }
}
