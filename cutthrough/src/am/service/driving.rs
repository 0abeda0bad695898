//! Who drives the node of a service in place of its thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Shared;
use crate::am::lock::Held;
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

    /// Who else wants the node.
    pub(crate) const fn others(&self) -> Others<'a> {
        Others { shared: self.shared, own: 1 }
    }

    /// Polls so often on behalf of the thread, until it is `done`; what happened is kept for it.
    pub(crate) fn drive(&self, looks: u32, done: impl Fn() -> bool) {
        if let Some(mut node) = self.shared.node.try_lock() {
            for _ in 0..looks {
                if node.drive(false) && done() {
                    break;
                }
            }
        }
    }

    /// Takes in what has come, and sends what waits, on behalf of the thread: answers to others.
    pub(crate) fn take_in(&self) {
        if let Some(mut node) = self.shared.node.try_lock() {
            let _ = (0..TAKEN_IN).all(|_| node.drive(false));
        }
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

/// Somebody has found the node free, and has it in hand until it is through with it: most calls, which have their
/// answer by then. Nobody else can use the node meanwhile; so what is noted for the thread, which looks for that with
/// the node in hand, takes no exchange with other cores.
pub(crate) struct Passing<'a> {
    shared: &'a Shared,
    node: Held<'a, Node>,
    /// What becomes of it when it leaves.
    next: Next,
}

#[derive(Clone, Copy)]
enum Next {
    /// It relies on the thread, as after a panic.
    Relies,
    /// It waits for nothing more.
    Content,
    /// It drives the node.
    Drives,
}

impl<'a> Passing<'a> {
    #[inline]
    pub(super) fn new(shared: &'a Shared) -> Option<Self> {
        shared.node.try_lock().map(|node| Self { shared, node, next: Next::Relies })
    }

    pub(crate) fn node(&mut self) -> &mut Node {
        &mut self.node
    }

    /// Who else wants the node.
    pub(crate) const fn others(&self) -> Others<'a> {
        Others { shared: self.shared, own: 0 }
    }

    /// Leaves the node, and waits for nothing more.
    #[inline]
    pub(crate) fn leave(mut self) {
        self.next = Next::Content;
    }

    /// Goes on to drive the node, as others may from now on.
    pub(crate) fn stay(mut self) -> Driving<'a> {
        let driving = Driving::new(self.shared);
        self.next = Next::Drives;
        driving
    }
}

impl Drop for Passing<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.next {
            Next::Drives => {}
            Next::Content => self.shared.note_passed(true),
            Next::Relies => self.shared.note_passed(false),
        }
    }
}

impl Shared {
    /// As [`Shared::note_use`], for who has driven. Where nobody relies on the thread and it looks again by itself, it
    /// is left alone: whoever has got its answer is likely to come again.
    fn note_driven(&self, is_content: bool) {
        self.used.fetch_add(1, Ordering::SeqCst);
        if !is_content {
            self.summons.relied.store(true, Ordering::SeqCst);
        }
        let last = self.drivers.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && (self.summons.relied.load(Ordering::SeqCst) || !self.summons.patrols.load(Ordering::SeqCst)) {
            self.ring();
        }
    }

    /// The same for who has the node in hand, and has not driven. The thread counts uses, and says that it patrols,
    /// with the node in hand, too. Others count theirs without it: of those one may be lost here, but not this one.
    #[inline]
    fn note_passed(&self, is_content: bool) {
        self.used.store(self.used.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        if !is_content {
            self.summons.relied.store(true, Ordering::SeqCst);
        }
        let is_last = self.drivers.load(Ordering::SeqCst) == 0;
        if is_last && (self.summons.relied.load(Ordering::SeqCst) || !self.summons.patrols.load(Ordering::SeqCst)) {
            self.ring();
        }
    }
}

/// Who else wants a node.
#[derive(Clone, Copy)]
pub(crate) struct Others<'a> {
    shared: &'a Shared,
    /// How many drivers whoever asks is.
    own: u32,
}

impl<'a> Others<'a> {
    /// Whether nobody is in want of the node just now. Two loads.
    pub(crate) fn are_none(self) -> bool {
        self.shared.drivers.load(Ordering::Relaxed) == self.own && !self.shared.node.is_wanted()
    }

    /// The tasks that wait for calls and are about to run.
    pub(crate) fn crowd(self) -> &'a Arc<Crowd> {
        &self.shared.crowd
    }
}
