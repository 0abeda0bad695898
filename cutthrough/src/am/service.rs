//! A node that several threads share, with a thread of its own that serves requests while nobody else does.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::serve::upcall;
use super::{Event, Node};

/// Why a service could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The system gives no thread, or no socket.
    #[error("no thread or socket for the service: {0} (too many? raise `ulimit -u` and `ulimit -n`)")]
    System(#[from] std::io::Error),
}

/// How long the thread sleeps while others drive the node.
const PATROL: Duration = Duration::from_millis(1);

/// What the thread does for somebody who cannot wait for it. It is not in the way of those who use the node but for
/// while it uses it itself.
type Errand = Box<dyn FnOnce(&Mutex<Node>) + Send>;

struct Shared {
    node: Mutex<Node>,
    errands: Mutex<VecDeque<Errand>>,
    /// Whom the thread wakes, and when.
    sleepers: Mutex<Vec<(Instant, Waker)>>,
    /// Wakes the thread.
    bell: UnixStream,
    over: AtomicBool,
    /// Whether somebody has used the node since the thread last looked.
    used: AtomicBool,
    /// Whether the thread looks again soon, without being woken.
    patrols: AtomicBool,
}

/// A node on a progress thread: handlers and reply handlers run there as messages come (upcalls), and other threads use
/// the node through [`Service::with`] meanwhile. The thread sleeps while nothing happens.
pub struct Service {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

impl Service {
    /// Starts the thread. Events that no handler takes go to `event`, on that thread. If it panics, or a reply handler,
    /// a continuation or a [`Waker`] does, the thread goes on.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub fn spawn(node: Node, event: impl FnMut(Event) + Send + 'static) -> Result<Self, ServiceError> {
        // Kept for good: later the process may have no descriptors left.
        let sleepers = node.inside.endpoint.as_fd().try_clone_to_owned()?;
        let (bell, heard) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            node: Mutex::new(node),
            errands: Mutex::default(),
            sleepers: Mutex::default(),
            bell,
            over: AtomicBool::new(false),
            used: AtomicBool::new(false),
            patrols: AtomicBool::new(false),
        });
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("cutthrough-am".into())
            .spawn(move || its.run(&heard, &sleepers, event))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Uses the node, while its thread does not. Handlers may run meanwhile on this thread, if it polls or waits.
    pub fn with<R>(&self, work: impl FnOnce(&mut Node) -> R) -> R {
        let _uses = Uses(&self.shared);
        let mut node = self.shared.lock();
        work(&mut node)
    }

    /// As [`Service::with`], unless somebody else uses the node just now: waits for nobody.
    pub(crate) fn try_with<R>(&self, work: impl FnOnce(&mut Node) -> R) -> Option<R> {
        let free = match self.shared.node.try_lock() {
            Ok(node) => node,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let _uses = Uses(&self.shared);
        let mut node = free;
        Some(work(&mut node))
    }

    /// Has the thread do something that may take a while.
    pub(crate) fn leave_to_thread(&self, errand: impl FnOnce(&Mutex<Node>) + Send + 'static) {
        self.shared.errands.lock().unwrap_or_else(PoisonError::into_inner).push_back(Box::new(errand));
        self.shared.ring();
    }

    /// Has the thread wake a task when this time has come.
    pub(crate) fn wake_at(&self, due: Instant, waker: Waker) {
        self.shared.sleepers.lock().unwrap_or_else(PoisonError::into_inner).push((due, waker));
        self.shared.ring();
    }

    /// Polls on behalf of the thread; what happened is kept for it.
    pub(crate) fn drive(&self) {
        self.try_with(|node| {
            for _ in 0..8 {
                node.drive(false);
            }
        });
    }

    /// Ends the thread and gives the node back, unless somebody else still shares it.
    #[must_use]
    pub fn stop(mut self) -> Option<Node> {
        self.end();
        let shared = Arc::clone(&self.shared);
        drop(self);
        Arc::into_inner(shared).map(|shared| shared.node.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn end(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        self.shared.ring();
        // A continuation may be the last to hold what holds the service; its thread cannot wait for itself.
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end();
    }
}

/// Somebody uses the node: that is noted once the node is free again, whatever becomes of whoever has used it.
struct Uses<'a>(&'a Shared);

impl Drop for Uses<'_> {
    fn drop(&mut self) {
        self.0.note_use();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Node> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever has polled may have taken the bell off a door: the thread puts it back when nobody uses the node any
    /// more. It looks again by itself while it patrols.
    fn note_use(&self) {
        self.used.store(true, Ordering::SeqCst);
        if !self.patrols.load(Ordering::SeqCst) {
            self.ring();
        }
    }

    fn ring(&self) {
        // A full socket has rung already.
        let _ = (&self.bell).write(&[1]);
    }

    fn run_errands(&self) {
        loop {
            let errand = self.errands.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(errand) = errand else { return };
            upcall(|| errand(&self.node));
        }
    }

    /// Wakes those whose time has come: how long it is until the next one's.
    fn wake_sleepers(&self) -> Option<Duration> {
        let now = Instant::now();
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        let due: Vec<Waker> = sleepers.extract_if(.., |(due, _)| *due <= now).map(|(_, waker)| waker).collect();
        let next = sleepers.iter().map(|(due, _)| *due).min();
        // Whoever is woken may want to be woken again.
        drop(sleepers);
        due.into_iter().for_each(|waker| upcall(|| waker.wake()));
        next.map(|due| due.saturating_duration_since(now))
    }

    fn run(&self, heard: &UnixStream, sleepers: &OwnedFd, mut event: impl FnMut(Event)) {
        while !self.over.load(Ordering::Acquire) {
            self.run_errands();
            let until_sleeper = self.wake_sleepers();
            let mut node = self.lock();
            while let Some(happened) = node.poll() {
                upcall(|| event(happened));
            }
            let now = node.look(true);
            // SYNC POINT patrol: both sides store, then load; at least one sees the other.
            self.patrols.store(true, Ordering::SeqCst);
            let used = self.used.swap(false, Ordering::SeqCst);
            if !used {
                self.patrols.store(false, Ordering::SeqCst);
                if self.used.load(Ordering::SeqCst) || !node.ready.is_empty() || !node.inside.endpoint.arm() {
                    continue;
                }
            }
            let nap = node.nap(now);
            drop(node);
            let nap = if used { Some(nap.map_or(PATROL, |nap| nap.min(PATROL))) } else { nap };
            let nap = [nap, until_sleeper].into_iter().flatten().min();
            let timeout = nap.map(|nap| Timespec {
                tv_sec: i64::try_from(nap.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(nap.subsec_nanos()),
            });
            let mut fds = [PollFd::new(heard, PollFlags::IN), PollFd::new(sleepers, PollFlags::IN)];
            // While others drive, the endpoint is not armed, and only the bell says something.
            let fds = if used { &mut fds[..1] } else { &mut fds[..] };
            let _ = poll(fds, timeout.as_ref());
            let mut rings = [0; 64];
            while matches!((&*heard).read(&mut rings), Ok(64)) {}
        }
        // Whoever gets the node finds nothing left to be done.
        self.run_errands();
    }
}
