//! Requests that were put off, and the answers to them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cutthrough_engine::am::{Failure, ReplyTo};
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::Token;
use cutthrough_node::clock;

use super::way::Body;
use super::{Inside, Node};

/// Rights to answer that were thrown away, on any thread.
#[derive(Debug, Default)]
pub(super) struct Thrown {
    any: AtomicBool,
    rights: Mutex<Vec<(ReplyTo, Arc<AtomicBool>)>>,
}

impl Thrown {
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    pub(super) fn take(&self) -> Vec<(ReplyTo, Arc<AtomicBool>)> {
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut self.rights.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A request whose answer was put off. Dropped unanswered, the requester gets [`Failure::Abandoned`] at the node's next
/// poll.
#[derive(Debug)]
pub struct Deferred {
    pub(super) shelf: Arc<Thrown>,
    pub(super) over: Arc<AtomicBool>,
    pub(super) token: Option<Token>,
    pub(super) deadline: Option<Instant>,
    pub(super) to: Option<ReplyTo>,
}

impl Deferred {
    /// Whether nobody waits for the answer any more: the requester has cancelled, or its deadline has passed. The right
    /// has to be dropped or used all the same.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed) || self.deadline.is_some_and(|deadline| deadline <= clock::now())
    }

    /// Time that is left, as in [`Request::remaining`](super::Request::remaining).
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| Duration::from_nanos(deadline.saturating_since(clock::now())))
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            self.shelf.rights.lock().unwrap_or_else(PoisonError::into_inner).push((to, Arc::clone(&self.over)));
            self.shelf.any.store(true, Ordering::Relaxed);
        }
    }
}

impl Inside {
    /// A request that was put off is about to be answered.
    pub(super) fn settle(&mut self, over: &Arc<AtomicBool>) {
        let found = self.deferred.iter().position(|put_off| Arc::ptr_eq(&put_off.over, over));
        if let Some(found) = found {
            self.deferred.swap_remove(found);
        }
    }
}

impl Node {
    /// Answers a request that was put off. Call it from the thread that has the node.
    pub fn answer(&mut self, mut deferred: Deferred, args: &[u8], body: Body<'_>) {
        if let Some(to) = deferred.to.take() {
            let token = deferred.token;
            self.inside.settle(&deferred.over);
            self.inside.reply_with(to, args, token, body);
        }
    }

    /// Says that a request that was put off is not served.
    pub fn refuse(&mut self, mut deferred: Deferred, why: Failure, args: &[u8]) {
        if let Some(to) = deferred.to.take() {
            self.inside.settle(&deferred.over);
            self.inside.fail(to, why, args);
        }
    }
}
