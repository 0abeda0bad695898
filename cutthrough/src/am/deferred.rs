//! Requests that were put off, and the answers to them: given or thrown away on any thread, sent by the node.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use cutthrough_engine::am::{Failure, ReplyTo};
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::Token;
use cutthrough_node::clock;
use cutthrough_node::node::WaitError;
use cutthrough_node::shm::link::Identity;
use cutthrough_segment::page::Waker;

use super::service::Summons;
use super::way::Body;
use super::{Inside, Node};

/// A request whose answer was put off. Dropped unanswered, on any thread, the requester gets [`Failure::Abandoned`], or
/// [`Failure::Panicked`] if that thread panics.
#[derive(Debug)]
pub struct Deferred {
    /// Gone with the node.
    shelf: Weak<Shelf>,
    over: Arc<AtomicBool>,
    token: Option<Token>,
    deadline: Option<Instant>,
    peer: Option<Identity>,
    to: Option<ReplyTo>,
}

impl Deferred {
    pub(super) const fn new(
        shelf: Weak<Shelf>,
        over: Arc<AtomicBool>,
        (token, deadline): (Option<Token>, Option<Instant>),
        peer: Option<Identity>,
        to: Option<ReplyTo>,
    ) -> Self {
        Self { shelf, over, token, deadline, peer, to }
    }

    /// Who was on the other side of the request's channel when its answer was put off:
    /// [`Request::peer`](super::Request::peer).
    #[must_use]
    pub const fn peer(&self) -> Option<Identity> {
        self.peer
    }

    /// Whether nobody waits for the answer any more: the requester has cancelled, its deadline has passed, or one of
    /// both endpoints has gone. The right has to be dropped or used all the same.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
            || self.shelf.strong_count() == 0
            || self.deadline.is_some_and(|deadline| deadline <= clock::now())
    }

    /// Time that is left, as in [`Request::remaining`](super::Request::remaining).
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| Duration::from_nanos(deadline.saturating_since(clock::now())))
    }

    /// Whether the node that this shelf is of has put it off.
    fn is_of(&self, shelf: &Arc<Shelf>) -> bool {
        std::ptr::eq(self.shelf.as_ptr(), Arc::as_ptr(shelf))
    }

    /// Leaves the answer to the node, which is woken, if there is one still. For any thread.
    pub(crate) fn leave(mut self, answer: Answered) {
        self.put(answer);
    }

    fn put(&mut self, answer: Answered) {
        if let (Some(to), Some(shelf)) = (self.to.take(), self.shelf.upgrade()) {
            shelf.put(Left { to, over: Arc::clone(&self.over), token: self.token, answer });
        }
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        let why = if std::thread::panicking() { Failure::Panicked } else { Failure::Abandoned };
        self.put(Answered::Failed(why, Vec::new()));
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) enum Answered {
    /// Arguments and a payload.
    Reply(Vec<u8>, Vec<u8>),
    /// The request was not served; words.
    Failed(Failure, Vec<u8>),
}

/// An answer that is to be sent, and the right to do so.
#[derive(Debug)]
struct Left {
    to: ReplyTo,
    over: Arc<AtomicBool>,
    token: Option<Token>,
    answer: Answered,
}

/// Where other threads leave answers.
#[derive(Debug)]
pub(super) struct Shelf {
    any: AtomicBool,
    inside: Mutex<Lying>,
    waker: Arc<Waker>,
}

#[derive(Debug, Default)]
struct Lying {
    left: Vec<Left>,
    /// The thread that drives the node, if one does.
    thread: Option<Arc<Summons>>,
}

impl Shelf {
    /// An empty shelf of the node whose endpoint this wakes.
    pub(super) fn new(waker: Arc<Waker>) -> Self {
        Self { any: AtomicBool::new(false), inside: Mutex::default(), waker }
    }

    /// The thread of a service drives the node, or nobody's does any more.
    pub(super) fn served_by(&self, thread: Option<Arc<Summons>>) {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner).thread = thread;
    }

    fn put(&self, left: Left) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.left.push(left);
        let thread = inside.thread.clone();
        drop(inside);
        // SYNC POINT shelf: see `Waker::sleep`. Whoever is woken, or stays awake, sees what was done before.
        self.any.store(true, Ordering::Relaxed);
        self.waker.wake();
        if let Some(thread) = thread {
            thread.note_left();
        }
    }

    /// Whether anything lies here. One load.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    fn take(&self) -> Vec<Left> {
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut self.inside.lock().unwrap_or_else(PoisonError::into_inner).left)
    }
}

impl Inside {
    /// What has happened next, unless an answer was left by another thread, or the time is over.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> Result<crate::Event, WaitError> {
        let shelf = &self.shelf;
        self.endpoint.wait_unless(timeout, false, || shelf.any())
    }

    /// The same, unless the endpoint's waker ends it.
    pub(super) fn wait_or_wake(&mut self, timeout: Option<Duration>) -> Result<crate::Event, WaitError> {
        let shelf = &self.shelf;
        self.endpoint.wait_unless(timeout, true, || shelf.any())
    }

    /// Sends the answers that were left by other threads.
    pub(super) fn send_left(&mut self) {
        for Left { to, over, token, answer } in self.shelf.take() {
            self.settle(&over);
            match answer {
                Answered::Reply(args, payload) => self.reply_with(to, &args, token, Body::Owned(payload)),
                Answered::Failed(why, words) => self.fail(to, why, &words),
            }
        }
    }

    /// A request that was put off is about to be answered.
    fn settle(&mut self, over: &Arc<AtomicBool>) {
        let found = self.deferred.iter().position(|put_off| Arc::ptr_eq(&put_off.over, over));
        if let Some(found) = found {
            self.deferred.swap_remove(found);
        }
    }
}

impl Node {
    /// Answers a request that was put off. Call it from the thread that has the node. If another node of this process
    /// has put it off, that one sends the answer, with a copy of its payload, as soon as it is polled.
    pub fn answer(&mut self, mut deferred: Deferred, args: &[u8], body: Body<'_>) {
        // What says where the answer goes means something else here.
        if !deferred.is_of(&self.inside.shelf) {
            return deferred.leave(Answered::Reply(args.to_vec(), body.into_bytes()));
        }
        if let Some(to) = deferred.to.take() {
            let token = deferred.token;
            self.inside.settle(&deferred.over);
            self.inside.reply_with(to, args, token, body);
        }
    }

    /// Says that a request that was put off is not served; otherwise as [`Node::answer`].
    pub fn refuse(&mut self, mut deferred: Deferred, why: Failure, args: &[u8]) {
        if !deferred.is_of(&self.inside.shelf) {
            return deferred.leave(Answered::Failed(why, args.to_vec()));
        }
        if let Some(to) = deferred.to.take() {
            self.inside.settle(&deferred.over);
            self.inside.fail(to, why, args);
        }
    }
}
