//! The lock of a node that threads share.
//!
//! Whoever finds the node free takes it. Whoever does not looks again for a moment, then queues, and sleeps: it never
//! yields, since beside other work for its core it would get that back milliseconds later. Whoever leaves the node
//! while others are queued hands it to the first of them, and nobody else gets it before: so each has its turn.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::Node;

/// Looks of who waits, before it queues: as long as most have the node.
const LOOKS: u32 = 100;
/// How long who is queued sleeps at most. Whoever leaves the node looks for others without a barrier, which every call
/// would pay for: where a processor lets it overlook somebody, that is how late he is.
const NAP: Duration = Duration::from_millis(1);

thread_local! {
    static THIS: u8 = const { 0 };
}

/// A number that no other living thread has; 0 for one that is ending.
#[inline]
fn this_thread() -> usize {
    THIS.try_with(|this| std::ptr::from_ref(this).addr()).unwrap_or(0)
}

/// What one thread has at a time.
pub(crate) struct Lock<T> {
    inside: Mutex<T>,
    /// Which thread has it.
    owner: AtomicUsize,
    /// How many wait until it is free, and how many of them have queued.
    waiting: AtomicU32,
    queued: AtomicU32,
    queue: Mutex<VecDeque<Arc<Queued>>>,
    /// Whether it is kept for somebody who was called.
    is_kept: AtomicBool,
}

/// The lock of a node.
pub(crate) type NodeLock = Lock<Node>;

/// Somebody who sleeps until it is his turn.
struct Queued {
    thread: Thread,
    is_called: AtomicBool,
}

impl<T> Lock<T> {
    pub(super) const fn new(inside: T) -> Self {
        Self {
            inside: Mutex::new(inside),
            owner: AtomicUsize::new(0),
            waiting: AtomicU32::new(0),
            queued: AtomicU32::new(0),
            queue: Mutex::new(VecDeque::new()),
            is_kept: AtomicBool::new(false),
        }
    }

    pub(super) fn into_inner(self) -> T {
        self.inside.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// It, if it is free.
    #[inline]
    pub(super) fn try_lock(&self) -> Option<Held<'_, T>> {
        if self.is_kept.load(Ordering::Relaxed) {
            return None;
        }
        // Whoever had it until now may have left it to somebody meanwhile, who waits no longer than this look takes.
        self.try_inside().filter(|_| !self.is_kept.load(Ordering::Relaxed))
    }

    #[inline]
    fn try_inside(&self) -> Option<Held<'_, T>> {
        match self.inside.try_lock() {
            Ok(inside) => Some(self.held(inside)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.held(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[inline]
    fn held<'a>(&'a self, inside: MutexGuard<'a, T>) -> Held<'a, T> {
        self.owner.store(this_thread(), Ordering::Relaxed);
        Held { inside: Some(inside), lock: self }
    }

    /// It, as soon as it is free.
    ///
    /// # Panics
    /// If this thread has it: that would be for ever.
    pub(crate) fn lock(&self) -> Held<'_, T> {
        loop {
            if let Some(held) = self.try_lock() {
                return held;
            }
            if let Some(held) = self.wait(Duration::MAX) {
                return held;
            }
        }
    }

    /// It can be waited for here.
    ///
    /// # Panics
    /// If this thread has it: that would be for ever.
    pub(super) fn assert_elsewhere(&self) {
        assert!(!self.is_this_threads(), "whoever has the node of a service, as its handlers do, asks for it again");
    }

    /// It, as soon as it is free, if that is so soon; and not at all if this thread has it. Without any time nobody is
    /// waited for.
    pub(super) fn lock_elsewhere_for(&self, time: Duration) -> Option<Held<'_, T>> {
        self.try_lock().or_else(|| {
            if time.is_zero() || self.is_this_threads() {
                return None;
            }
            let held = self.wait(time);
            // What its executor sleeps on may have told meanwhile that another of its calls goes on: it is told again.
            std::thread::current().unpark();
            held
        })
    }

    /// Whether this thread has it. What it reads of another thread's is never this one's number.
    pub(super) fn is_this_threads(&self) -> bool {
        let this = this_thread();
        this != 0 && self.owner.load(Ordering::Relaxed) == this
    }

    /// Whether somebody has it just now.
    pub(super) fn is_held(&self) -> bool {
        self.owner.load(Ordering::Relaxed) != 0
    }

    /// It, as soon as it is free, if that is so soon.
    ///
    /// # Panics
    /// If this thread has it.
    pub(crate) fn lock_for(&self, time: Duration) -> Option<Held<'_, T>> {
        self.try_lock().or_else(|| self.wait(time))
    }

    /// It, as soon as it is free, unless it is to be waited for no more: looked for every so often. What is asked again
    /// then stands in the queue where it has stood, which `place` says.
    ///
    /// # Panics
    /// If this thread has it.
    pub(super) fn lock_unless(&self, place: &mut Option<usize>, stops: impl Fn() -> bool) -> Option<Held<'_, T>> {
        self.try_lock().or_else(|| self.wait_at(place, Duration::MAX, stops))
    }

    #[cold]
    fn wait(&self, time: Duration) -> Option<Held<'_, T>> {
        self.wait_at(&mut None, time, || false)
    }

    fn wait_at(&self, place: &mut Option<usize>, time: Duration, stops: impl Fn() -> bool) -> Option<Held<'_, T>> {
        self.assert_elsewhere();
        let _waits = Waits::new(self);
        for _ in 0..LOOKS {
            std::hint::spin_loop();
            if let Some(held) = self.try_lock() {
                return Some(held);
            }
        }
        let until = Instant::now().checked_add(time);
        let this = Arc::new(Queued { thread: std::thread::current(), is_called: AtomicBool::new(false) });
        let mut queue = self.queue();
        let at = place.map_or(queue.len(), |place| place.min(queue.len()));
        queue.insert(at, Arc::clone(&this));
        drop(queue);
        self.queued.fetch_add(1, Ordering::SeqCst);
        loop {
            if this.is_called.load(Ordering::Acquire) {
                return Some(self.take_kept());
            }
            // Whoever has left it meanwhile may have overlooked this one.
            if let Some(held) = self.try_lock() {
                return Some(if self.leave_queue(&this).is_some() { held } else { self.held_kept(held) });
            }
            let left = until.map_or(NAP, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() || stops() {
                *place = self.leave_queue(&this);
                return if place.is_some() { None } else { Some(self.take_kept()) };
            }
            std::thread::park_timeout(left.min(NAP));
        }
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Arc<Queued>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the queue: where it stood, unless it was called already.
    fn leave_queue(&self, this: &Arc<Queued>) -> Option<usize> {
        let mut queue = self.queue();
        let place = queue.iter().position(|queued| Arc::ptr_eq(queued, this))?;
        queue.remove(place);
        self.queued.fetch_sub(1, Ordering::SeqCst);
        Some(place)
    }

    /// Takes what is kept for this thread. Whoever has kept it, or has just looked for it, may have it for a moment.
    fn take_kept(&self) -> Held<'_, T> {
        let inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        self.held_kept(self.held(inside))
    }

    /// It is not kept any more: this thread, for which it was, has it.
    fn held_kept<'a>(&self, held: Held<'a, T>) -> Held<'a, T> {
        self.is_kept.store(false, Ordering::Release);
        held
    }

    /// Calls who has been queued the longest, unless somebody was called who has not come yet.
    #[cold]
    fn call_next(&self) {
        if self.is_kept.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(next) = self.queue().pop_front() else {
            self.is_kept.store(false, Ordering::Release);
            return;
        };
        self.queued.fetch_sub(1, Ordering::SeqCst);
        next.is_called.store(true, Ordering::Release);
        next.thread.unpark();
    }

    /// Whether somebody waits for it.
    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

/// Somebody waits.
struct Waits<'a, T>(&'a Lock<T>);

impl<'a, T> Waits<'a, T> {
    fn new(lock: &'a Lock<T>) -> Self {
        lock.waiting.fetch_add(1, Ordering::Relaxed);
        Self(lock)
    }
}

impl<T> Drop for Waits<'_, T> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// It, in hand.
pub(crate) struct Held<'a, T> {
    /// `None` only while this is dropped.
    inside: Option<MutexGuard<'a, T>>,
    lock: &'a Lock<T>,
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.inside.as_ref().expect("given back when dropped, and not before")
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.inside.as_mut().expect("given back when dropped, and not before")
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.owner.store(0, Ordering::Relaxed);
        // Before it is free: nobody gets it in between, who may have it for long.
        let is_left = self.lock.queued.load(Ordering::SeqCst) > 0;
        if is_left {
            self.lock.call_next();
        }
        self.inside = None;
        // Somebody may have queued in between, and have found it in use. Only who has it leaves it to others.
        if !is_left && self.lock.queued.load(Ordering::SeqCst) > 0 {
            drop(self.lock.try_lock());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However soon others have it again, whoever has queued is next.
    #[test]
    fn each_has_its_turn() {
        let (lock, taken, over) = (Lock::new(()), AtomicU32::new(0), AtomicBool::new(false));
        let mut before = Vec::new();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let held = lock.lock();
                        taken.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_micros(200));
                        drop(held);
                    }
                });
            }
            while before.len() < 50 {
                if lock.try_lock().is_some() {
                    continue;
                }
                let since = taken.load(Ordering::Relaxed);
                if lock.lock_for(Duration::from_secs(10)).is_none() {
                    break;
                }
                before.push(taken.load(Ordering::Relaxed) - since);
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(before.len(), 50, "the next one was forgotten");
        before.sort_unstable();
        // Most times, since this thread may have lost its core before it queued.
        assert!(before[25] <= 4, "{before:?} went before");
    }

    /// Whoever does something else for a moment is before those that have come later.
    #[test]
    fn who_stops_waiting_and_goes_on_keeps_its_place() {
        let (lock, order) = (Lock::new(()), Mutex::new(Vec::new()));
        let [stops, stopped] = [(); 2].map(|()| AtomicBool::new(false));
        let queued = |count| {
            while lock.queued.load(Ordering::SeqCst) != count {
                std::thread::yield_now();
            }
        };
        let held = lock.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut place = None;
                assert!(lock.lock_unless(&mut place, || stops.load(Ordering::SeqCst)).is_none());
                assert_eq!(place, Some(0));
                stopped.store(true, Ordering::SeqCst);
                let held = lock.lock_unless(&mut place, || false).expect("it is free");
                order.lock().expect("no panic").push(1);
                drop(held);
            });
            queued(1);
            scope.spawn(|| {
                let held = lock.lock();
                order.lock().expect("no panic").push(2);
                drop(held);
            });
            queued(2);
            stops.store(true, Ordering::SeqCst);
            while !stopped.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            queued(2);
            drop(held);
        });
        assert_eq!(order.into_inner().expect("no panic"), [1, 2]);
    }

    /// Nor does anybody get it in between who looks for it all the time.
    #[test]
    fn nobody_gets_it_before_who_has_queued() {
        for _ in 0..200 {
            let (lock, had) = (Lock::new(()), AtomicBool::new(false));
            let held = lock.lock();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let held = lock.lock_for(Duration::from_secs(10));
                    had.store(true, Ordering::SeqCst);
                    drop(held.expect("it is its turn"));
                });
                while lock.queued.load(Ordering::SeqCst) == 0 {
                    std::hint::spin_loop();
                }
                scope.spawn(|| {
                    let held = std::iter::repeat_with(|| lock.try_lock()).find_map(|held| held);
                    assert!(held.is_some() && had.load(Ordering::SeqCst), "it came later");
                });
                // Until the other one looks.
                std::thread::sleep(Duration::from_micros(50));
                drop(held);
            });
        }
    }

    /// Many threads, some of which give up: nothing is lost, and nobody is left waiting.
    #[test]
    fn nobody_is_forgotten() {
        let lock = Lock::new(0_u64);
        let taken = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8_u64 {
                let (lock, taken) = (&lock, &taken);
                scope.spawn(move || {
                    let mut random = 0x9e37_79b9_u64.wrapping_mul(thread + 1);
                    for _ in 0..5_000 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let held = match random >> 61 {
                            0 => lock.try_lock(),
                            1 => lock.lock_for(Duration::ZERO),
                            2 => lock.lock_for(Duration::from_micros(random >> 40 & 63)),
                            _ => Some(lock.lock()),
                        };
                        if let Some(mut held) = held {
                            *held += 1;
                            taken.fetch_add(1, Ordering::Relaxed);
                            for _ in 0..random >> 56 {
                                std::hint::spin_loop();
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), u64::from(taken.load(Ordering::Relaxed)));
        assert!(!lock.is_wanted() && lock.queue().is_empty() && lock.queued.load(Ordering::Relaxed) == 0);
        assert!(!lock.is_kept.load(Ordering::Relaxed));
    }

    #[test]
    fn who_gives_up_leaves_nothing() {
        let lock = Lock::new(());
        let held = lock.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(lock.lock_for(Duration::from_millis(5)).is_none());
                assert!(lock.lock_for(Duration::ZERO).is_none());
            });
        });
        drop(held);
        assert!(lock.try_lock().is_some() && !lock.is_wanted());
    }

    /// A task slept on, whose waker had unparked its thread while that waited here.
    #[test]
    fn who_was_unparked_meanwhile_is_awake_afterwards() {
        let lock = Lock::new(());
        let held = lock.lock();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                std::thread::current().unpark();
                assert!(lock.lock_elsewhere_for(Duration::from_millis(5)).is_none());
                let since = Instant::now();
                std::thread::park_timeout(Duration::from_secs(10));
                since.elapsed()
            });
            let slept = waits.join().expect("no panic");
            assert!(slept < Duration::from_secs(5), "{slept:?}");
        });
        drop(held);
    }

    #[test]
    fn who_has_it_does_not_wait_for_it() {
        let lock = Lock::new(());
        let held = lock.lock();
        let panics = |work: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err();
        assert!(panics(&|| drop(lock.lock())));
        assert!(panics(&|| drop(lock.lock_for(Duration::from_millis(1)))));
        // Others wait for it.
        let had = std::thread::scope(|scope| scope.spawn(|| lock.lock_for(Duration::from_millis(1)).is_some()).join());
        assert!(!had.expect("it does not have it"));
        drop(held);
        drop(lock.lock());
    }

    #[test]
    fn a_panic_lets_go_of_it() {
        let lock = Lock::new(1);
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = lock.lock();
            panic!("as it shall");
        }));
        assert!(panics.is_err());
        assert_eq!(*lock.lock(), 1);
    }
}
