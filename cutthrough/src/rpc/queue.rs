//! Calls of a client that wait to be made: for room, for another channel, for a server that is busy.
//!
//! They wait in the order in which they came, and none that comes later is made before them. One tries when it is
//! called: the first of them now and then, and the next when one was made, or was answered. So however many wait, what
//! they do for it is little. A busy server is asked by one of them at a time, and by two more for each call that it
//! has answered. Where it has refused a payload, which has come all the way then, it is left alone for as long as that
//! took: so no more than half of the time, and of the way, is spent in vain.
//!
//! A task that is called may not come: its executor is free to poll it never. Then others are called in its place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use cutthrough_engine::am::calls::NEVER;
use cutthrough_engine::time::Instant;

use crate::am::{Crowd, nanos, upcall};

/// How long after a call could not be made it is tried again, if nothing tells that it can be.
pub(super) const AGAIN: Duration = Duration::from_micros(100);
/// The same at most, where calls wait for long; and how long one that was called is waited for.
const SELDOM: Duration = Duration::from_millis(1);

/// Where a call stands: it keeps its place while it is tried.
pub(super) type Ticket = u64;

/// A call that waits.
#[derive(Debug)]
struct Place {
    waker: Option<Waker>,
    /// When its time is over.
    until: Instant,
    /// Whether it ends where there is no server.
    hasty: bool,
}

#[derive(Debug)]
struct Inside {
    waiting: BTreeMap<Ticket, Place>,
    /// Those that may try, and since when.
    called: BTreeMap<Ticket, (Instant, Place)>,
    /// Those that were called and have not come. They may try, too.
    absent: BTreeMap<Ticket, Place>,
    tickets: Ticket,
    /// Whether the server was busy when somebody asked it last.
    busy: bool,
    /// Until when it is left alone then, unless it answers one.
    rests: Instant,
    /// How long after the last time the queue is tended again, if it is.
    tended: Option<Duration>,
    /// No call that waits is late before.
    due: Instant,
    /// Where it counts that those that were called are about to run.
    crowd: Arc<Crowd>,
}

/// The calls of a client that wait to be made.
#[derive(Debug)]
pub(super) struct Queue {
    /// How many there are that others wait behind.
    len: AtomicUsize,
    inside: Mutex<Inside>,
}

impl Queue {
    pub(super) const fn new(crowd: Arc<Crowd>) -> Self {
        let inside = Inside {
            waiting: BTreeMap::new(),
            called: BTreeMap::new(),
            absent: BTreeMap::new(),
            tickets: 0,
            busy: false,
            rests: Instant::from_nanos(0),
            tended: None,
            due: NEVER,
            crowd,
        };
        Self { len: AtomicUsize::new(0), inside: Mutex::new(inside) }
    }

    /// Whether a call that stands there, or nowhere yet, may be made before those that wait.
    #[inline]
    pub(super) fn may_try(&self, ticket: Option<Ticket>) -> bool {
        self.len.load(Ordering::Relaxed) == 0 || self.is_called(ticket)
    }

    #[cold]
    fn is_called(&self, ticket: Option<Ticket>) -> bool {
        let inside = self.inside();
        ticket.map_or(inside.len() == 0, |ticket| !inside.waiting.contains_key(&ticket))
    }

    /// A call waits, behind those that came before it: until when, and whether it ends where there is no server. True
    /// if nobody [tends](Queue::tend) the queue: then that is to begin.
    pub(super) fn wait(&self, ticket: &mut Option<Ticket>, until: Instant, hasty: bool, waker: &Waker) -> bool {
        // To copy a waker, and to drop one, may run anything.
        let place = Place { waker: Some(waker.clone()), until, hasty };
        let mut inside = self.inside();
        let ticket = *ticket.get_or_insert_with(|| {
            inside.tickets += 1;
            inside.tickets
        });
        let before = inside.remove(ticket);
        inside.waiting.insert(ticket, place);
        inside.due = inside.due.min(until);
        let begins = inside.tended.is_none();
        inside.tended.get_or_insert(AGAIN);
        self.leave_inside(inside);
        drop(before);
        begins
    }

    /// A call waits no more, whatever has become of it. If it was called, the next one is. Where it waits again, it
    /// stands where it has stood.
    pub(super) fn leave(&self, ticket: Option<Ticket>, now: impl FnOnce() -> Instant) {
        let Some(ticket) = ticket else { return };
        let mut inside = self.inside();
        let was_called = inside.called.contains_key(&ticket);
        let before = inside.remove(ticket);
        let woken = if was_called && !inside.busy { inside.call(1, now()) } else { Vec::new() };
        self.leave_inside(inside);
        drop(before);
        wake(woken);
    }

    /// A call waits because the server was busy, and is left alone until then.
    pub(super) fn refused(&self, rests: Instant) {
        let mut inside = self.inside();
        // What another call was refused counts as long as any has waited since.
        let before = Some(inside.rests).filter(|_| inside.busy);
        (inside.busy, inside.rests) = (true, before.map_or(rests, |before| before.max(rests)));
    }

    /// Whether the calls that wait do so for a busy server.
    pub(super) fn is_busy(&self) -> bool {
        self.inside().busy
    }

    /// A call was answered, by a server that was not busy: there is room for another.
    #[inline]
    pub(super) fn answered(&self, now: impl FnOnce() -> Instant) {
        if self.len.load(Ordering::Relaxed) > 0 {
            self.call_next(now());
        }
    }

    #[cold]
    fn call_next(&self, now: Instant) {
        let mut inside = self.inside();
        let count = if inside.busy { 2 } else { 1 };
        let woken = inside.call(count, now);
        drop(inside);
        wake(woken);
    }

    /// There is no server: calls that end then are woken.
    pub(super) fn unserved(&self) {
        let mut inside = self.inside();
        let hasty = inside.waiting.values_mut().filter(|place| place.hasty);
        let woken = hasty.filter_map(|place| place.waker.take()).collect();
        drop(inside);
        wake(woken);
    }

    /// Wakes calls whose time is over, and calls one if none is called: how long until that is to be done again. `None`
    /// if nobody waits any more. It is to be done for the first time after [`AGAIN`].
    pub(super) fn tend(&self, now: Instant) -> Option<Duration> {
        let mut inside = self.inside();
        let mut woken = inside.take_late(now);
        let missed = inside.miss(now);
        if inside.called.is_empty() && (!inside.busy || inside.rests <= now) {
            // Where one has not come, the next ones may not either.
            woken.extend(inside.call(1.max(2 * missed), now));
        }
        // Whoever was called and never came begins that anew, if it comes.
        let any = inside.len() > 0;
        inside.tended = inside.tended.filter(|_| any).map(|before| SELDOM.min(before * 2));
        let again = inside.tended;
        self.leave_inside(inside);
        wake(woken);
        again
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Others see from now on how many wait.
    fn leave_inside(&self, mut inside: MutexGuard<'_, Inside>) {
        let len = inside.len();
        inside.busy &= len > 0;
        self.len.store(len, Ordering::Relaxed);
    }
}

impl Inside {
    /// Calls that others wait behind.
    fn len(&self) -> usize {
        self.waiting.len() + self.called.len()
    }

    /// Lets the next ones try: whom to wake.
    fn call(&mut self, count: usize, now: Instant) -> Vec<Waker> {
        let mut woken = Vec::new();
        for _ in 0..count {
            let Some((ticket, mut place)) = self.waiting.pop_first() else { break };
            woken.extend(place.waker.take());
            self.crowd.comes();
            self.called.insert(ticket, (now, place));
        }
        woken
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Place> {
        let waits = self.waiting.remove(&ticket);
        let called = || {
            let (_, place) = self.called.remove(&ticket)?;
            self.crowd.goes();
            Some(place)
        };
        waits.or_else(called).or_else(|| self.absent.remove(&ticket))
    }

    /// Nobody waits any more behind those that were called long ago: how many there are.
    fn miss(&mut self, now: Instant) -> usize {
        let before = self.called.len();
        let missed = self.called.extract_if(.., |_, (since, _)| since.after(nanos(SELDOM)) <= now);
        for (ticket, (_, place)) in missed {
            self.crowd.goes();
            self.absent.insert(ticket, place);
        }
        before - self.called.len()
    }

    /// Whom to wake because its time is over. Those that were called are awake.
    fn take_late(&mut self, now: Instant) -> Vec<Waker> {
        if now < self.due {
            return Vec::new();
        }
        self.due = NEVER;
        let mut woken = Vec::new();
        for place in self.waiting.values_mut() {
            if place.until <= now {
                woken.extend(place.waker.take());
            } else {
                self.due = self.due.min(place.until);
            }
        }
        woken
    }
}

/// Wakes them. A panic of one keeps no other asleep.
fn wake(woken: Vec<Waker>) {
    woken.into_iter().for_each(|waker| upcall(|| waker.wake()));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    use super::*;

    /// Counts how often somebody was woken.
    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A call that waits, until 1 s.
    struct Call {
        ticket: Option<Ticket>,
        woken: Arc<Woken>,
    }

    impl Call {
        fn new(queue: &Queue, hasty: bool) -> Self {
            let mut call = Self { ticket: None, woken: Arc::default() };
            call.waits(queue, hasty);
            call
        }

        fn waits(&mut self, queue: &Queue, hasty: bool) -> bool {
            let waker = Arc::clone(&self.woken).into();
            queue.wait(&mut self.ticket, at(1_000_000), hasty, &waker)
        }

        fn times(&self) -> u32 {
            self.woken.0.load(Ordering::Relaxed)
        }

        fn may_try(&self, queue: &Queue) -> bool {
            queue.may_try(self.ticket)
        }
    }

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    fn queue() -> (Queue, Arc<Crowd>) {
        let crowd = Arc::<Crowd>::default();
        (Queue::new(Arc::clone(&crowd)), crowd)
    }

    fn may_try(queue: &Queue, calls: &[Call]) -> Vec<usize> {
        (0..calls.len()).filter(|which| calls[*which].may_try(queue)).collect()
    }

    #[test]
    fn each_is_called_when_the_one_before_was_made() {
        let (queue, crowd) = queue();
        assert!(queue.may_try(None));
        let mut calls: Vec<_> = (0..4).map(|_| Call::new(&queue, false)).collect();
        assert!(!queue.may_try(None), "who comes later goes before");
        assert!(may_try(&queue, &calls).is_empty() && !crowd.any());
        assert_eq!(queue.tend(at(100)), Some(AGAIN * 2));
        while !calls.is_empty() {
            assert_eq!(may_try(&queue, &calls), [0]);
            assert!(crowd.any(), "it is about to run");
            // In vain: it keeps its place.
            assert!(!calls[0].waits(&queue, false), "it is tended");
            assert!(may_try(&queue, &calls).is_empty() && !crowd.any());
            queue.answered(|| at(150));
            assert_eq!(may_try(&queue, &calls), [0]);
            queue.leave(calls[0].ticket, || at(200));
            assert_eq!(calls.remove(0).times(), 2);
        }
        assert!(queue.may_try(None) && !crowd.any());
        assert_eq!(queue.tend(at(300)), None);
    }

    #[test]
    fn who_does_not_come_keeps_nobody_waiting() {
        let (queue, crowd) = queue();
        let calls: Vec<_> = (0..8).map(|_| Call::new(&queue, false)).collect();
        queue.tend(at(0));
        queue.tend(at(999));
        assert_eq!(may_try(&queue, &calls), [0]);
        // Twice as many each time that none comes.
        queue.tend(at(1000));
        assert_eq!(may_try(&queue, &calls), [0, 1, 2]);
        queue.tend(at(2000));
        assert_eq!(may_try(&queue, &calls), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(queue.tend(at(3000)), Some(SELDOM));
        assert!(calls.iter().all(|call| call.times() == 1 && call.may_try(&queue)), "also those that have not come");
        assert!(!queue.may_try(None), "the last one has its turn before");
        assert_eq!(queue.tend(at(4000)), None, "nor looked after");
        assert!(queue.may_try(None) && !crowd.any(), "nobody is waited for for ever");
        for call in calls {
            queue.leave(call.ticket, || at(5000));
        }
        assert_eq!(queue.tend(at(5000)), None);
    }

    #[test]
    fn a_busy_server_is_asked_by_one_and_by_two_more_for_each_answer() {
        let (queue, _) = queue();
        let mut calls: Vec<_> = (0..8).map(|_| Call::new(&queue, false)).collect();
        queue.refused(at(0));
        assert!(queue.is_busy());
        queue.tend(at(100));
        queue.leave(calls[0].ticket, || at(200));
        assert!(may_try(&queue, &calls[1..]).is_empty(), "one was made, and may be refused");
        // It is, and stands before the others again.
        calls[0].waits(&queue, false);
        queue.tend(at(300));
        assert_eq!(may_try(&queue, &calls), [0]);
        queue.leave(calls.remove(0).ticket, || at(400));
        queue.answered(|| at(500));
        assert_eq!(may_try(&queue, &calls), [0, 1]);
        for call in calls {
            queue.leave(call.ticket, || at(400));
        }
        assert!(!queue.is_busy(), "nobody waits for it");
    }

    #[test]
    fn a_busy_server_is_left_alone_until_it_answers() {
        let (queue, _) = queue();
        let calls: Vec<_> = (0..4).map(|_| Call::new(&queue, false)).collect();
        queue.refused(at(5000));
        for micros in [100, 2000, 4999] {
            queue.tend(at(micros));
            assert!(may_try(&queue, &calls).is_empty(), "after {micros} us");
        }
        queue.tend(at(5000));
        assert_eq!(may_try(&queue, &calls), [0]);
        queue.refused(at(20_000));
        queue.answered(|| at(6000));
        assert_eq!(may_try(&queue, &calls), [0, 1, 2], "two more: one of those under way was answered");
        for call in calls {
            queue.leave(call.ticket, || at(7000));
        }
    }

    /// One that is made anew would be sent at once, too.
    #[test]
    fn a_busy_server_is_left_alone_for_nobody_who_waits_no_more() {
        let (queue, _) = queue();
        let gone = Call::new(&queue, false);
        queue.refused(at(50_000));
        queue.leave(gone.ticket, || at(100));
        let next = [Call::new(&queue, false)];
        queue.refused(at(200));
        queue.tend(at(300));
        assert_eq!(may_try(&queue, &next), [0]);
        queue.leave(next[0].ticket, || at(400));
    }

    #[test]
    fn those_are_woken_that_end() {
        let (queue, crowd) = queue();
        let calls = [false, true, false].map(|hasty| Call::new(&queue, hasty));
        let times = || calls.iter().map(Call::times).collect::<Vec<_>>();
        queue.unserved();
        assert_eq!(times(), [0, 1, 0]);
        assert!(may_try(&queue, &calls).is_empty(), "it is not made for that");
        // The first is called, the second was woken and has not come.
        queue.tend(at(999_999));
        assert_eq!(times(), [1, 1, 0]);
        queue.tend(at(1_000_000));
        assert_eq!(times(), [1, 1, 1]);
        for call in calls {
            queue.leave(call.ticket, || at(1_000_000));
        }
        assert!(!crowd.any());
    }
}
