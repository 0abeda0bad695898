//! The lock of a node that threads share. Whoever comes by takes it if it is free, which is the quickest; but whoever
//! has waited for it gets it now and then whatever others do.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cutthrough_node::clock;
use parking_lot::{Mutex, MutexGuard};

use super::Node;

/// Of so many times that the node becomes free while others wait for it, one is for who has waited the longest.
const TURN: u32 = 4;

/// A node, which one thread has at a time.
pub(crate) struct NodeLock {
    node: Mutex<Node>,
    /// How many wait until it is free.
    waiting: AtomicU32,
    /// How often it has become free while others waited.
    left: AtomicU32,
}

impl NodeLock {
    pub(super) const fn new(node: Node) -> Self {
        Self { node: Mutex::new(node), waiting: AtomicU32::new(0), left: AtomicU32::new(0) }
    }

    pub(super) fn into_inner(self) -> Node {
        self.node.into_inner()
    }

    /// The node, if it is free.
    #[inline]
    pub(super) fn try_lock(&self) -> Option<Held<'_>> {
        self.node.try_lock().map(|node| Held { node: Some(node), lock: self })
    }

    /// The node as soon as it is free.
    pub(crate) fn lock(&self) -> Held<'_> {
        self.try_lock().unwrap_or_else(|| {
            let _waits = Waits::new(self);
            Held { node: Some(self.node.lock()), lock: self }
        })
    }

    /// The node as soon as it is free, if that is so soon. Where time is simulated, whoever has it is this thread.
    pub(super) fn lock_for(&self, time: Duration) -> Option<Held<'_>> {
        self.try_lock().or_else(|| {
            if clock::is_simulated() {
                return None;
            }
            let _waits = Waits::new(self);
            self.node.try_lock_for(time).map(|node| Held { node: Some(node), lock: self })
        })
    }

    /// Whether somebody waits for it.
    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

/// Somebody waits for the node.
struct Waits<'a>(&'a NodeLock);

impl<'a> Waits<'a> {
    fn new(lock: &'a NodeLock) -> Self {
        lock.waiting.fetch_add(1, Ordering::Relaxed);
        Self(lock)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The node in hand.
pub(crate) struct Held<'a> {
    /// `None` once it was passed on.
    node: Option<MutexGuard<'a, Node>>,
    lock: &'a NodeLock,
}

impl Held<'_> {
    /// Leaves the node, where others wait for it: now and then to who has waited the longest.
    #[cold]
    fn pass_on(&mut self) {
        let left = self.lock.left.load(Ordering::Relaxed).wrapping_add(1);
        self.lock.left.store(left, Ordering::Relaxed);
        if left.is_multiple_of(TURN)
            && let Some(node) = self.node.take()
        {
            MutexGuard::unlock_fair(node);
        }
    }
}

impl Deref for Held<'_> {
    type Target = Node;

    #[inline]
    fn deref(&self) -> &Node {
        self.node.as_ref().expect("passed on when dropped, and not before")
    }
}

impl DerefMut for Held<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Node {
        self.node.as_mut().expect("passed on when dropped, and not before")
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.is_wanted() {
            self.pass_on();
        }
    }
}
