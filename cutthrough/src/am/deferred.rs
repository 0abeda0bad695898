//! Requests that were put off, and the answers to them: given or thrown away on any thread, sent by the node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use cutthrough_engine::am::message::CallId;
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

/// The row of a channel that has ended.
const NOBODY: u32 = u32::MAX;

/// A request whose answer was put off, to be given on any thread. Dropped unanswered, on any thread, the requester gets
/// [`Failure::Abandoned`], or [`Failure::Panicked`] if that thread panics.
#[derive(Debug)]
pub struct Deferred {
    /// Gone with the node.
    shelf: Weak<Shelf>,
    /// Its number among those of the node.
    number: u64,
    over: Arc<AtomicBool>,
    token: Option<Token>,
    deadline: Option<Instant>,
    peer: Option<Identity>,
    /// Whether it was neither answered nor thrown away.
    is_open: bool,
}

impl Deferred {
    pub(super) fn new(
        shelf: Weak<Shelf>,
        (number, over): (u64, Arc<AtomicBool>),
        (token, deadline): (Option<Token>, Option<Instant>),
        peer: Option<Identity>,
        is_open: bool,
    ) -> Self {
        Self { shelf, number, over, token, deadline, peer, is_open }
    }

    /// Who was on the other side of the request's channel when its answer was put off:
    /// [`Request::peer`](super::Request::peer).
    #[must_use]
    pub const fn peer(&self) -> Option<Identity> {
        self.peer
    }

    /// Whether nobody waits for the answer any more: the requester has cancelled, its deadline has passed, or one of
    /// both endpoints has gone. The right has to be dropped or used all the same: until then the request counts among
    /// those in service ([`Settings::serve`](super::Settings::serve)). Whoever has cancelled is not kept waiting by it.
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

    /// Answers, with up to 64 bytes of arguments (with more the requester gets [`Failure::TooLong`]) and a payload,
    /// which goes to where the requester has said. On any thread, and without the node, as [`Answer::give`]: waits for
    /// nobody; whoever polls the node sends the answer, and is woken for it. [`Node::answer`] sends pages, too.
    ///
    /// ```
    /// use std::sync::mpsc::Sender;
    /// use cutthrough::am::{Args, Deferred, Node};
    ///
    /// /// Has a thread read blocks.
    /// fn serve(node: &mut Node, reader: Sender<(u32, Deferred)>) {
    ///     node.short(1, Args::Words(1), move |request| {
    ///         let block = request.word(0);
    ///         drop(reader.send((block, request.defer())));
    ///     });
    /// }
    ///
    /// /// On that thread.
    /// fn read(block: u32, asked: Deferred) {
    ///     asked.reply(&block.to_le_bytes(), vec![0; 4096]);
    /// }
    /// ```
    ///
    /// [`Answer::give`]: crate::rpc::Answer::give
    pub fn reply(self, args: &[u8], payload: Vec<u8>) {
        self.leave(Answered::Reply(args.to_vec(), payload));
    }

    /// Says that the request is not served, in up to 64 bytes of words; otherwise as [`Deferred::reply`].
    pub fn fail(self, why: Failure, args: &[u8]) {
        self.leave(Answered::Failed(why, args.to_vec()));
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
        if std::mem::take(&mut self.is_open)
            && let Some(shelf) = self.shelf.upgrade()
        {
            shelf.put(Left { number: self.number, token: self.token, answer });
        }
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        let why = if std::thread::panicking() { Failure::Panicked } else { Failure::Abandoned };
        self.put(Answered::Failed(why, Vec::new()));
    }
}

/// A request whose answer was put off, as its node knows it.
#[derive(Debug)]
struct PutOff<R> {
    /// The row that it came on, and its number there, by which it is cancelled.
    by: (u32, CallId),
    handler: u16,
    /// The row that the answer goes to: another, if the request was handed over.
    to: u32,
    /// The right to answer, until it is used or the request is cancelled.
    right: Option<R>,
    /// Whether nobody waits for the answer any more.
    over: Arc<AtomicBool>,
}

/// The requests whose answers were put off, until they are answered or thrown away.
#[derive(Debug)]
pub(super) struct PutOffs<R = ReplyTo> {
    by_number: BTreeMap<u64, PutOff<R>>,
    /// The same by how they are cancelled. A peer that lies has several of one number.
    by_call: BTreeSet<(u32, CallId, u64)>,
    numbers: u64,
    /// Of the handlers that have one.
    limits: BTreeMap<u16, Limits>,
}

/// How many requests of a handler may be put off, and how many are.
#[derive(Debug)]
struct Limits {
    most: usize,
    /// Of one caller.
    most_each: usize,
    now: usize,
    /// The same by the row that the answer goes to: where it is above 0.
    by_row: BTreeMap<u32, usize>,
}

/// A limit of a handler, which as many as may have reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// Of all requests.
    All(usize),
    /// Of those of one caller.
    Each(usize),
}

impl Limits {
    const NONE: Self = Self { most: usize::MAX, most_each: usize::MAX, now: 0, by_row: BTreeMap::new() };

    fn add(&mut self, row: u32) {
        self.now += 1;
        *self.by_row.entry(row).or_default() += 1;
    }

    fn remove(&mut self, row: u32) {
        self.now -= 1;
        self.leave(row);
    }

    /// One is no caller's any more.
    fn leave(&mut self, row: u32) {
        if let Some(its) = self.by_row.get_mut(&row) {
            *its -= 1;
            if *its == 0 {
                self.by_row.remove(&row);
            }
        }
    }
}

impl<R> Default for PutOffs<R> {
    fn default() -> Self {
        Self { by_number: BTreeMap::new(), by_call: BTreeSet::new(), numbers: 0, limits: BTreeMap::new() }
    }
}

impl<R> PutOffs<R> {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// No more than so many of this handler's shall be put off, of all callers or of each one.
    pub(super) fn limit(&mut self, handler: u16, limit: Limit) {
        let by_number = &self.by_number;
        let limits = self.limits.entry(handler).or_insert_with(|| {
            let mut limits = Limits::NONE;
            let its = by_number.values().filter(|put_off| put_off.handler == handler);
            its.for_each(|put_off| limits.add(put_off.to));
            limits.by_row.remove(&NOBODY);
            limits
        });
        match limit {
            Limit::All(most) => limits.most = most,
            Limit::Each(most) => limits.most_each = most,
        }
    }

    /// As many as may of this handler are put off, or of those of them whose answers go to this row.
    pub(super) fn limit_reached(&self, handler: u16, row: u32) -> Option<Limit> {
        let Limits { most, most_each, now, by_row } = self.limits.get(&handler)?;
        if now >= most {
            return Some(Limit::All(*most));
        }
        by_row.get(&row).filter(|its| *its >= most_each).map(|_| Limit::Each(*most_each))
    }

    /// One is put off that came on this row with this number, and whose answer goes to that row, by this right: its
    /// number here, and what says whether nobody waits for the answer any more.
    pub(super) fn put(&mut self, by: (u32, CallId), handler: u16, (to, right): (u32, R)) -> (u64, Arc<AtomicBool>) {
        self.numbers += 1;
        let (number, over) = (self.numbers, Arc::default());
        self.by_call.insert((by.0, by.1, number));
        self.by_number.insert(number, PutOff { by, handler, to, right: Some(right), over: Arc::clone(&over) });
        if let Some(limits) = self.limits.get_mut(&handler) {
            limits.add(to);
        }
        (number, over)
    }

    /// One is about to be answered, by this right if it was not cancelled.
    fn settle(&mut self, number: u64) -> Option<R> {
        let PutOff { by: (row, call), handler, to, right, .. } = self.by_number.remove(&number)?;
        self.by_call.remove(&(row, call, number));
        if let Some(limits) = self.limits.get_mut(&handler) {
            limits.remove(to);
        }
        right
    }

    /// Who has asked waits no more, and shall hear so at once, by these rights: it may have no room for other requests
    /// before. They count until they are answered or thrown away all the same.
    #[must_use]
    pub(super) fn cancel(&mut self, row: u32, call: CallId) -> Vec<R> {
        let mut rights = Vec::new();
        for (_, _, number) in self.by_call.range((row, call, 0)..=(row, call, u64::MAX)) {
            if let Some(put_off) = self.by_number.get_mut(number) {
                put_off.over.store(true, Ordering::Relaxed);
                rights.extend(put_off.right.take());
            }
        }
        rights
    }

    /// A channel has ended. They count until they are answered or thrown away: who comes again has no more of them in
    /// service. But nobody can cancel them, and they are no caller's any more: another one may have the row.
    pub(super) fn end(&mut self, row: u32) {
        for (number, put_off) in &mut self.by_number {
            if put_off.by.0 == row || put_off.to == row {
                put_off.over.store(true, Ordering::Relaxed);
                self.by_call.remove(&(put_off.by.0, put_off.by.1, *number));
                if let Some(limits) = self.limits.get_mut(&put_off.handler) {
                    limits.leave(put_off.to);
                }
                (put_off.by.0, put_off.to) = (NOBODY, NOBODY);
            }
        }
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

/// An answer that is to be sent.
#[derive(Debug)]
struct Left {
    number: u64,
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
        for Left { number, token, answer } in self.shelf.take() {
            let Some(to) = self.deferred.settle(number) else { continue };
            match answer {
                Answered::Reply(args, payload) => self.reply_with(to, &args, token, Body::Owned(payload)),
                Answered::Failed(why, words) => self.fail(to, why, &words),
            }
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
        if let Some(to) = self.settle(&mut deferred) {
            self.inside.reply_with(to, args, deferred.token, body);
        }
    }

    /// Says that a request that was put off is not served; otherwise as [`Node::answer`].
    pub fn refuse(&mut self, mut deferred: Deferred, why: Failure, args: &[u8]) {
        if !deferred.is_of(&self.inside.shelf) {
            return deferred.leave(Answered::Failed(why, args.to_vec()));
        }
        if let Some(to) = self.settle(&mut deferred) {
            self.inside.fail(to, why, args);
        }
    }

    /// One is answered: by which right, if it was not cancelled.
    fn settle(&mut self, deferred: &mut Deferred) -> Option<ReplyTo> {
        if std::mem::take(&mut deferred.is_open) { self.inside.deferred.settle(deferred.number) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What happens to requests that were put off.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        /// One is, on this row with this number of its requester's, to be answered on that row.
        Put(u32, u32, u32),
        /// One of those so far is settled, perhaps once more.
        Settle(usize),
        Cancel(u32, u32),
        End(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let row = || 0_u32..3;
        let step = prop_oneof![
            4 => (row(), 0_u32..3, row()).prop_map(|(row, call, to)| Step::Put(row, call, to)),
            2 => (0_usize..40).prop_map(Step::Settle),
            2 => (row(), 0_u32..3).prop_map(|(row, call)| Step::Cancel(row, call)),
            1 => row().prop_map(Step::End),
        ];
        prop::collection::vec(step, 0..40)
    }

    fn call(nonce: u32) -> CallId {
        CallId::new(7, nonce)
    }

    proptest! {
        /// Against a list of all that was ever put off.
        #[test]
        fn those_are_over_that_nobody_waits_for(steps in steps()) {
            let mut put_offs = PutOffs::<u64>::default();
            // Of the handlers, whose numbers are those of the requests, one has a limit, one has one for each caller,
            // and a third gets both later.
            put_offs.limit(1, Limit::All(2));
            put_offs.limit(0, Limit::Each(2));
            // Number, how it can be cancelled, where its answer goes, whether it counts, whether it is over.
            let mut list = Vec::<(u64, Option<(u32, u32)>, Option<u32>, bool, bool)>::new();
            let (mut flags, mut rights, mut handlers, mut is_limited) = (Vec::new(), Vec::new(), Vec::new(), false);
            for step in steps {
                match step {
                    Step::Put(row, nonce, to) => {
                        let right = flags.len() as u64;
                        let handler = u16::try_from(nonce).expect("a small number");
                        let (number, over) = put_offs.put((row, call(nonce)), handler, (to, right));
                        handlers.push(nonce);
                        list.push((number, Some((row, nonce)), Some(to), true, false));
                        flags.push(over);
                        rights.push(Some(right));
                    }
                    Step::Settle(which) => {
                        if let Some(which) = which.checked_rem(list.len()) {
                            let right = put_offs.settle(list[which].0);
                            prop_assert_eq!(right, rights[which].take());
                            list[which].3 = false;
                        }
                    }
                    Step::Cancel(row, nonce) => {
                        let used = put_offs.cancel(row, call(nonce));
                        let its = (0..list.len()).filter(|at| list[*at].3 && list[*at].1 == Some((row, nonce)));
                        let its: Vec<_> = its.collect();
                        prop_assert_eq!(used, its.iter().filter_map(|at| rights[*at].take()).collect::<Vec<_>>());
                        its.into_iter().for_each(|at| list[at].4 = true);
                    }
                    Step::End(row) => {
                        put_offs.end(row);
                        for its in list.iter_mut().filter(|its| its.3) {
                            if its.2 == Some(row) || its.1.is_some_and(|by| by.0 == row) {
                                (its.1, its.2, its.4) = (None, None, true);
                            }
                        }
                    }
                }
                prop_assert_eq!(put_offs.len(), list.iter().filter(|its| its.3).count());
                let over: Vec<_> = flags.iter().map(|over| over.load(Ordering::Relaxed)).collect();
                prop_assert_eq!(over, list.iter().map(|its| its.4).collect::<Vec<_>>());
                prop_assert!(put_offs.by_call.len() <= put_offs.len());
                let (all, handlers) = (&list, &handlers);
                let its = |handler: u32| (0..all.len()).filter(move |at| all[*at].3 && handlers[*at] == handler);
                let of = |handler| its(handler).count();
                let of_row = |handler, row| its(handler).filter(|at| all[*at].2 == Some(row)).count();
                if list.len() == 3 && !is_limited {
                    put_offs.limit(2, Limit::Each(1));
                    put_offs.limit(2, Limit::All(3));
                    is_limited = true;
                }
                for row in 0..3 {
                    let of_all = |handler, most| Some(Limit::All(most)).filter(|_| of(handler) >= most);
                    let of_each = |handler, most| Some(Limit::Each(most)).filter(|_| of_row(handler, row) >= most);
                    prop_assert_eq!(put_offs.limit_reached(1, row), of_all(1, 2));
                    prop_assert_eq!(put_offs.limit_reached(0, row), of_each(0, 2));
                    let both = of_all(2, 3).or(of_each(2, 1));
                    prop_assert_eq!(put_offs.limit_reached(2, row), both.filter(|_| is_limited));
                }
                let counted = put_offs.limits.values().map(|limits| limits.by_row.len()).sum::<usize>();
                prop_assert!(counted <= put_offs.len());
            }
        }
    }
}
