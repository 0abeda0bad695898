//! What may keep the node of a service for long, as a body does that goes only as fast as the other side takes it, for
//! those that cannot wait. One thread does it: one after the other, in the order in which they came. It is there only
//! while there is something to do, and for a moment after. The service's own thread tells those whose time is over.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Wake;
use std::time::Duration;

use cutthrough_engine::time::Instant;
use cutthrough_node::clock;

use super::{Driving, Shared};
use crate::am::{Node, upcall};

/// How long the thread waits for more before it ends: those that follow each other need none made anew.
const IDLE: Duration = Duration::from_millis(100);

/// Where something stands that is to be done.
pub(crate) type Place = u64;

/// What may keep the node for long.
pub(crate) trait Long: Send + Sync {
    /// Does it, on the thread that is there for it.
    fn run(&self, node: &mut Node);

    /// It was done, and the node is left.
    fn is_over(&self);

    /// Its time has come, on the service's thread: it is not begun any more. If it runs, it goes on.
    fn is_late(&self);
}

/// Until when it has time, and what it is.
type Dated = (Instant, Arc<dyn Long>);

#[derive(Default)]
struct Inside {
    waiting: BTreeMap<Place, Dated>,
    /// What the thread does.
    current: Option<(Place, Dated)>,
    /// Those that are to be told when their time is over.
    due: BTreeSet<(Instant, Place)>,
    /// When the service's thread looks for those.
    looks: Option<Instant>,
    places: Place,
    /// Whether there is a thread.
    has_thread: bool,
    /// Whether it has hold of the service.
    is_busy: bool,
    /// Whether the service has ended; and whether the thread had hold of it then.
    over: bool,
    left: bool,
}

/// What is to be done, in order.
#[derive(Default)]
pub(super) struct Line {
    inside: Mutex<Inside>,
    /// Told when there is more to do, or the service ends.
    more: Condvar,
    /// Told when the thread has let go of the service.
    free: Condvar,
}

impl Line {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what there is, as long as there is the service.
    fn serve(&self, service: &Weak<Shared>) {
        while let Some(shared) = self.begin(service) {
            let done = shared.do_next();
            drop(shared);
            self.finish();
            // Whoever is woken may be the last to have the service.
            if let Some(done) = done {
                upcall(|| done.is_over());
            }
        }
    }

    /// Waits for something to do: the service. `None` if the thread is to end.
    fn begin(&self, service: &Weak<Shared>) -> Option<Arc<Shared>> {
        let waits = |inside: &mut Inside| inside.waiting.is_empty() && !inside.over;
        let waited = self.more.wait_timeout_while(self.inside(), IDLE, waits);
        let (mut inside, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let shared = if inside.over || inside.waiting.is_empty() { None } else { service.upgrade() };
        inside.is_busy = shared.is_some();
        inside.has_thread = shared.is_some();
        shared
    }

    fn take(&self) -> Option<Arc<dyn Long>> {
        let mut inside = self.inside();
        let (place, (until, long)) = inside.waiting.pop_first()?;
        inside.current = Some((place, (until, Arc::clone(&long))));
        Some(long)
    }

    fn finish(&self) {
        let mut inside = self.inside();
        let done = inside.current.take();
        if let Some((place, (until, _))) = &done {
            inside.due.remove(&(*until, *place));
        }
        inside.is_busy = false;
        drop(inside);
        self.free.notify_all();
        drop(done);
    }

    /// Nobody waits any more for what stands there. What was begun goes on.
    fn leave(&self, place: Place) {
        let mut inside = self.inside();
        let left = inside.waiting.remove(&place);
        let current = inside.current.as_ref().filter(|(current, _)| *current == place).map(|(_, (until, _))| *until);
        if let Some(until) = left.as_ref().map(|(until, _)| *until).or(current) {
            inside.due.remove(&(until, place));
        }
        drop(inside);
        drop(left);
    }

    /// Those whose time is over, and when to look again, if nobody does by then.
    fn take_late(&self, now: Instant) -> (Vec<Arc<dyn Long>>, Option<Instant>) {
        let mut inside = self.inside();
        let mut late = Vec::new();
        while inside.due.first().is_some_and(|(until, _)| *until <= now)
            && let Some((_, place)) = inside.due.pop_first()
        {
            let waits = inside.waiting.remove(&place).map(|(_, long)| long);
            let current = inside.current.as_ref().filter(|(current, _)| *current == place);
            late.extend(waits.or_else(|| current.map(|(_, (_, long))| Arc::clone(long))));
        }
        inside.looks = inside.looks.filter(|looks| *looks > now);
        let next = inside.due.first().map(|(until, _)| *until);
        let next = next.filter(|next| inside.looks.is_none_or(|looks| *next < looks));
        inside.looks = next.or(inside.looks);
        (late, next)
    }

    /// The service ends. Whether the thread has hold of it still, also where that is waited for, if it is.
    pub(super) fn end(&self, waits: bool) -> bool {
        let mut inside = self.inside();
        inside.over = true;
        self.more.notify_all();
        if waits {
            inside = self.free.wait_while(inside, |inside| inside.is_busy).unwrap_or_else(PoisonError::into_inner);
        }
        inside.left = inside.is_busy;
        inside.left
    }

    /// Whether the service has ended while the thread had hold of it: nobody waits for either of them.
    pub(super) fn was_left(&self) -> bool {
        self.inside().left
    }
}

/// Has those told whose time is over.
struct Looks(Weak<Shared>);

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        let Some(shared) = self.0.upgrade() else { return };
        let (late, next) = shared.line.take_late(clock::now());
        late.into_iter().for_each(|long| upcall(|| long.is_late()));
        if let Some(next) = next {
            shared.wake_at(next, self.into());
        }
    }
}

impl Shared {
    /// Has it done, and until when: where it stands. `None` where the system gives no thread just now.
    pub(super) fn do_long(self: &Arc<Self>, until: Instant, long: Arc<dyn Long>) -> Option<Place> {
        let mut inside = self.line.inside();
        if !inside.has_thread {
            let (line, service) = (Arc::clone(&self.line), Arc::downgrade(self));
            let named = std::thread::Builder::new().name("cutthrough-long".into());
            named.spawn(move || line.serve(&service)).ok()?;
            inside.has_thread = true;
        }
        inside.places += 1;
        let place = inside.places;
        inside.waiting.insert(place, (until, long));
        inside.due.insert((until, place));
        let is_first = inside.looks.is_none_or(|looks| until < looks);
        if is_first {
            inside.looks = Some(until);
        }
        drop(inside);
        self.line.more.notify_one();
        if is_first {
            self.wake_at(until, Arc::new(Looks(Arc::downgrade(self))).into());
        }
        Some(place)
    }

    pub(super) fn leave_long(&self, place: Place) {
        self.line.leave(place);
    }

    /// Does what is first in line, once it has the node: what it was, if there is any by then.
    fn do_next(&self) -> Option<Arc<dyn Long>> {
        let _driving = Driving::new(self);
        let mut node = self.node.lock();
        let long = self.line.take()?;
        upcall(|| long.run(&mut node));
        Some(long)
    }
}
