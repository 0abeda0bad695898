//! How many calls of a client may wait to be made: each that does has a permit.
//!
//! A call that can be made at once needs none. Who wants to know before whether one may be made takes a permit then,
//! and gives it to the call, which gives it back when it is made. Those for whom there is none wait in their order: who
//! has waited longest gets the next one, which nobody who comes later can take meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::am::upcall;

/// The permits of a client.
#[derive(Debug)]
pub(crate) struct Permits {
    most: usize,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    /// How many are taken: those that were given to who has waited, too.
    taken: usize,
    /// Who waits for one, in the order in which they came.
    waiting: BTreeMap<u64, Waker>,
    /// Who has waited for one, and has not come for it yet.
    given: BTreeSet<u64>,
    #[cfg(feature = "tower")]
    numbers: u64,
}

/// The right to wait. Dropped, it is somebody else's.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Permits>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

impl Permits {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, inside: Mutex::default() })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One, if there is one, and nobody waits for it.
    pub(super) fn take(self: &Arc<Self>) -> Option<Permit> {
        let mut inside = self.inside();
        let is_free = inside.taken < self.most && inside.waiting.is_empty();
        is_free.then(|| {
            inside.taken += 1;
            Permit(Arc::clone(self))
        })
    }

    /// One more than there are, perhaps: for what has had one, and goes on.
    pub(super) fn take_another(self: &Arc<Self>) -> Permit {
        self.inside().taken += 1;
        Permit(Arc::clone(self))
    }

    fn give_back(&self) {
        let mut inside = self.inside();
        let next = if inside.taken <= self.most { inside.waiting.pop_first() } else { None };
        let woken = match next {
            Some((number, waker)) => {
                inside.given.insert(number);
                Some(waker)
            }
            None => {
                inside.taken -= 1;
                None
            }
        };
        drop(inside);
        if let Some(waker) = woken {
            upcall(|| waker.wake());
        }
    }
}

/// Who waits for a permit, and where he stands. Dropped, he leaves what he was given to the next one.
#[cfg(feature = "tower")]
#[derive(Debug, Default)]
pub(super) struct Waits(Option<(Arc<Permits>, u64)>);

#[cfg(feature = "tower")]
impl Waits {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    /// A permit, if it is this one's turn; else `waker` is woken when it is.
    pub(super) fn poll(&mut self, permits: &Arc<Permits>, waker: &Waker) -> Option<Permit> {
        // To copy a waker, and to drop one, may run anything.
        let waker = waker.clone();
        let mut inside = permits.inside();
        let before = match &self.0 {
            Some((_, number)) if inside.given.remove(number) => {
                self.0 = None;
                return Some(Permit(Arc::clone(permits)));
            }
            Some((_, number)) => inside.waiting.insert(*number, waker),
            None if inside.taken < permits.most && inside.waiting.is_empty() => {
                inside.taken += 1;
                return Some(Permit(Arc::clone(permits)));
            }
            None => {
                inside.numbers += 1;
                let number = inside.numbers;
                self.0 = Some((Arc::clone(permits), number));
                inside.waiting.insert(number, waker)
            }
        };
        drop(inside);
        drop(before);
        None
    }
}

#[cfg(feature = "tower")]
impl Drop for Waits {
    fn drop(&mut self) {
        let Some((permits, number)) = self.0.take() else { return };
        let mut inside = permits.inside();
        let waker = inside.waiting.remove(&number);
        let was_given = inside.given.remove(&number);
        drop(inside);
        drop(waker);
        if was_given {
            permits.give_back();
        }
    }
}
