//! How many calls of a client may wait to be made, and with how many bytes: each that does has a permit.
//!
//! A call that can be made at once needs none. Who wants to know before whether one may be made takes a permit then,
//! and gives it to the call, which gives it back when it is made. Those for whom there is none wait in their order: who
//! has waited longest gets the next one, which nobody who comes later can take meanwhile.
//!
//! Who takes one before there is a call cannot say how long that will be. So such a permit needs no more than one byte
//! of room, and those who wait for one are given one at a time while others keep bytes: the next when it is known what
//! the last has brought, or when somebody has left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::am::upcall;

/// The permits of a client.
#[derive(Debug)]
pub(crate) struct Permits {
    most: usize,
    most_bytes: usize,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    /// How many are taken: those that were given to who has waited, too.
    taken: usize,
    /// Bytes of those that are taken.
    bytes: usize,
    /// Who waits for one, in the order in which they came.
    waiting: BTreeMap<u64, Waker>,
    /// Who has waited for one, and has not come for it yet.
    given: BTreeSet<u64>,
    #[cfg(feature = "tower")]
    numbers: u64,
}

/// The right to wait, with so many bytes. Dropped, it is somebody else's.
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Arc<Permits>,
    bytes: usize,
}

impl Permit {
    /// It is for a call of so many bytes, however few there is room for.
    pub(super) fn carry(&mut self, bytes: usize) {
        if bytes != self.bytes {
            self.permits.change(|inside| inside.bytes = inside.bytes - self.bytes + bytes);
            self.bytes = bytes;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.give_back(self.bytes);
    }
}

impl Permits {
    pub(super) fn new(most: usize, most_bytes: usize) -> Arc<Self> {
        Arc::new(Self { most, most_bytes, inside: Mutex::default() })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(self: &Arc<Self>, bytes: usize) -> Permit {
        Permit { permits: Arc::clone(self), bytes }
    }

    /// One for so many bytes, if there is one, and nobody waits for it. One that is too long for all of them may wait
    /// where no other byte does.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Option<Permit> {
        let mut inside = self.inside();
        let has_room = bytes == 0 || inside.bytes == 0 || bytes <= self.most_bytes.saturating_sub(inside.bytes);
        let is_free = inside.taken < self.most && has_room && inside.waiting.is_empty();
        is_free.then(|| {
            inside.taken += 1;
            inside.bytes += bytes;
            self.of(bytes)
        })
    }

    /// One more than there are, perhaps: for what has had one, and goes on.
    pub(super) fn take_another(self: &Arc<Self>, bytes: usize) -> Permit {
        let mut inside = self.inside();
        inside.taken += 1;
        inside.bytes += bytes;
        drop(inside);
        self.of(bytes)
    }

    fn give_back(&self, bytes: usize) {
        self.change(|inside| {
            inside.taken -= 1;
            inside.bytes -= bytes;
        });
    }

    /// Changes what is taken, and gives what is free then to who waits.
    fn change(&self, change: impl FnOnce(&mut Inside)) {
        let mut inside = self.inside();
        change(&mut inside);
        let mut woken = Vec::new();
        while inside.taken < self.most
            && inside.bytes < self.most_bytes
            && (woken.is_empty() || inside.bytes == 0)
            && let Some((number, waker)) = inside.waiting.pop_first()
        {
            inside.given.insert(number);
            inside.taken += 1;
            woken.push(waker);
        }
        drop(inside);
        for waker in woken {
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

    /// A permit for no bytes so far, if it is this one's turn; else `waker` is woken when it is.
    pub(super) fn poll(&mut self, permits: &Arc<Permits>, waker: &Waker) -> Option<Permit> {
        // To copy a waker, and to drop one, may run anything.
        let waker = waker.clone();
        let mut inside = permits.inside();
        let has_room = inside.taken < permits.most && inside.bytes < permits.most_bytes;
        let before = match &self.0 {
            Some((_, number)) if inside.given.remove(number) => {
                self.0 = None;
                return Some(permits.of(0));
            }
            Some((_, number)) => inside.waiting.insert(*number, waker),
            None if has_room && inside.waiting.is_empty() => {
                inside.taken += 1;
                return Some(permits.of(0));
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
            permits.give_back(0);
        }
    }
}
