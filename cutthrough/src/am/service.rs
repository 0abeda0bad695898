//! A node that several threads share, with a thread of its own that serves requests while nobody else does.

mod driving;
mod long;
mod sleepers;

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;

use cutthrough_engine::time::Instant;
use cutthrough_node::clock;
use cutthrough_node::process::Process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use driving::Passing;
pub(crate) use driving::{Driving, Others};
use long::Line;
pub(crate) use long::{Long, Place};
pub(crate) use sleepers::Access;

use super::lock::{Held, NodeLock};
use super::serve::{nanos, upcall};
use super::watch::{Lately, PATROL, Watch};
use super::{Crowd, Event, Node, ServiceError, Settings};

/// The same while somebody does so for once: longer than any caller looks for its answer.
const MOMENT: Duration = Duration::from_micros(100);
/// The same where it finds that somebody drives the node just then, and nobody relies on it: to wait for the node takes
/// the processor from that driver twice.
const DRIVEN: Duration = Duration::from_millis(4);
/// How long it does so before it looks all the same. Events that no handler takes wait so long at most.
const LEFT: Duration = Duration::from_millis(16);
/// Looks of the thread in one hold of the node, as long as nobody else wants it.
const LOOKS: u32 = 128;

/// What the thread does for somebody who cannot wait for it. It is not in the way of those who use the node but for
/// while it uses it itself.
type Errand = Box<dyn FnOnce(&Access<'_>) + Send>;

/// Who is told of events that no handler takes.
type Told = Box<dyn FnMut(&mut Node, Event) + Send>;

struct Shared {
    node: NodeLock,
    /// [`Settings::deadline`](super::Settings::deadline) of the node.
    deadline: Duration,
    /// [`Settings::max_pending`](super::Settings::max_pending).
    max_pending: usize,
    /// [`Settings::max_pending_bytes`](super::Settings::max_pending_bytes).
    max_pending_bytes: usize,
    /// Bytes of the pool of each of its channels.
    pool_bytes: u64,
    errands: Mutex<VecDeque<Errand>>,
    /// Whom the thread wakes, and when.
    sleepers: Mutex<Vec<(Instant, Waker)>>,
    /// What may keep the node for long.
    line: Arc<Line>,
    summons: Arc<Summons>,
    /// The tasks that wait for calls and are about to run.
    crowd: Arc<Crowd>,
    over: AtomicBool,
    /// How many drive the node.
    drivers: AtomicU32,
    /// How often somebody has used the node since the thread last looked.
    used: AtomicU32,
    /// Who is told of events where there is no thread, because time is simulated.
    by_hand: Mutex<Option<Told>>,
}

/// What calls the thread to its node.
#[derive(Debug)]
pub(super) struct Summons {
    /// Wakes the thread.
    bell: UnixStream,
    /// Whether it does already.
    rung: AtomicBool,
    /// Whether somebody relies on the thread from now on to notice at once what comes.
    relied: AtomicBool,
    /// Whether the thread looks again soon, without being woken.
    patrols: AtomicBool,
}

impl Summons {
    fn ring(&self) {
        // SYNC POINT rung: both sides exchange it, so that the thread knows of all that was done before.
        if !self.rung.swap(true, Ordering::AcqRel) {
            let _ = (&self.bell).write(&[1]);
        }
    }

    /// Somebody has left an answer, and has woken the endpoint. While the thread patrols, that is not what it sleeps
    /// on; if it does not yet, it sees that it is relied on (SYNC POINT patrol).
    pub(super) fn note_left(&self) {
        self.relied.store(true, Ordering::SeqCst);
        if self.patrols.load(Ordering::SeqCst) {
            self.ring();
        }
    }
}

/// A node on a progress thread: handlers and reply handlers run there as messages come (upcalls), and other threads use
/// the node through [`Service::with`] meanwhile. The thread sleeps while nothing happens.
pub struct Service {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The process whose thread that is: a child which that forks has no such thread.
    process: Process,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

impl Service {
    /// Starts the thread. Events that no handler takes go to `event`, on that thread. If it panics, or a reply handler,
    /// a continuation or a [`Waker`] does, the thread goes on. The node is in use just then, as in a handler: `event`
    /// cannot use the service, but has the node where it is started by [`Service::spawn_with`].
    ///
    /// # Errors
    /// [`ServiceError`].
    pub fn spawn(node: Node, mut event: impl FnMut(Event) + Send + 'static) -> Result<Self, ServiceError> {
        Self::spawn_with(node, move |_, happened| event(happened))
    }

    /// The same with the node in hand: to make requests, to answer those that were put off, and for its
    /// [state](Node::with_state), as when a channel ends of which something is kept there. While it runs, nobody else
    /// uses the node, so it should wait for nothing. It must leave the node where it is, as in [`Service::with`].
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use cutthrough::Channel;
    /// use cutthrough::am::{Args, Event, Node, Service, ServiceError, Settings};
    /// # use cutthrough::{Config, Endpoint};
    ///
    /// /// How often each peer has asked.
    /// type Asked = HashMap<Channel, u32>;
    ///
    /// const COUNT: u16 = 1;
    ///
    /// fn start(mut node: Node) -> Result<Service, ServiceError> {
    ///     node.short_with(COUNT, Args::Words(0), |asked: &mut Asked, request| {
    ///         let count = asked.entry(request.channel()).or_default();
    ///         *count += 1;
    ///         request.reply(&[*count]);
    ///     });
    ///     Service::spawn_with(node, |node, event| {
    ///         if let (Event::Closed(channel, _), Some(asked)) = (event, node.state_mut::<Asked>()) {
    ///             asked.remove(&channel);
    ///         }
    ///     })
    /// }
    /// # let endpoint = Endpoint::open(Config::default()).expect("an endpoint");
    /// # start(Node::with_state(endpoint, Settings::default(), Asked::new())).expect("a thread");
    /// ```
    ///
    /// # Errors
    /// [`ServiceError`].
    pub fn spawn_with(
        mut node: Node,
        event: impl FnMut(&mut Node, Event) + Send + 'static,
    ) -> Result<Self, ServiceError> {
        // Kept for good: later the process may have no descriptors left.
        let sleepers = node.inside.endpoint.as_fd().try_clone_to_owned()?;
        let (bell, heard) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        let Settings { deadline, max_pending, max_pending_bytes, .. } = node.settings;
        let pool_bytes = node.inside.endpoint.pool_bytes();
        let [rung, relied, patrols] = [(); 3].map(|()| AtomicBool::new(false));
        let summons = Arc::new(Summons { bell, rung, relied, patrols });
        node.inside.shelf.served_by(Some(Arc::clone(&summons)));
        // Whoever polls has the lock: he makes way without it.
        node.inside.endpoint.set_yields(false);
        let shared = Arc::new(Shared {
            node: NodeLock::new(node),
            deadline,
            max_pending,
            max_pending_bytes,
            pool_bytes,
            errands: Mutex::default(),
            sleepers: Mutex::default(),
            line: Arc::default(),
            summons,
            crowd: Arc::default(),
            over: AtomicBool::new(false),
            drivers: AtomicU32::new(0),
            used: AtomicU32::new(0),
            by_hand: Mutex::default(),
        });
        if clock::is_simulated() {
            *shared.by_hand.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(event));
            return Ok(Self { shared, thread: None, process: Process::this() });
        }
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("cutthrough-am".into())
            .spawn(move || its.run(&heard, &sleepers, event))?;
        Ok(Self { shared, thread: Some(thread), process: Process::this() })
    }

    /// Does what the thread would do just now, where there is none: time is simulated, and whoever has the service has
    /// it take its turn. Not while the node is in use.
    #[cfg(feature = "simulated")]
    pub fn turn(&self) {
        self.shared.turn();
    }

    /// Lets the calling thread rest for so long at most, because it waits for something that the service does.
    pub(crate) fn rest(&self, longest: Duration) {
        if clock::is_simulated() {
            self.shared.turn();
            let _ = clock::sleeps(Some(nanos(longest)));
        } else {
            std::thread::park_timeout(longest);
        }
    }

    /// Uses the node, while its thread does not. Handlers may run meanwhile on this thread, if it polls or waits. The
    /// thread is woken afterwards, unless calls of [`rpc`](crate::rpc) drive the node just then.
    ///
    /// It waits until nobody else uses the node. While `work` runs, all who call by this node wait, and no request is
    /// served unless it polls. It must leave the node where it is: the thread looks after that one, and not after what
    /// is put in its place ([`Service::stop`] gives the node back).
    ///
    /// # Panics
    /// In a handler, a reply handler or a continuation of this node, and within another `with`: it would wait for ever.
    pub fn with<R>(&self, work: impl FnOnce(&mut Node) -> R) -> R {
        let _uses = Uses(&self.shared);
        work(&mut self.shared.node.lock())
    }

    /// Has the service's thread do something when it is through with what it does, and the node is free: for handlers,
    /// reply handlers and continuations, which run while the node is in use, and so can neither use it nor make calls
    /// by it. What is done so may: use the node by [`Service::with`], make requests, and begin further calls, each with
    /// a continuation of its own. While it runs nothing else is served on that thread, so it should wait for nothing.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::mpsc::Sender;
    /// use cutthrough::am::Service;
    /// use cutthrough::rpc::{Client, Method};
    ///
    /// const LOOK_UP: Method<String, u32> = Method::new(1);
    /// const FETCH: Method<u32, Vec<u8>> = Method::new(2);
    ///
    /// /// Looks a name up, and fetches what it names, while this thread does something else.
    /// fn fetch(service: &Arc<Service>, client: &Client, name: &str, done: Sender<Option<Vec<u8>>>) {
    ///     let (client_then, its) = (client.clone(), Arc::clone(service));
    ///     let begun = client.call_then(LOOK_UP, &name.to_owned(), move |number| match number {
    ///         Ok(number) => its.post(move || {
    ///             // If it cannot be begun, `done` is dropped, and whoever waits there hears so.
    ///             let _ = client_then.call_then(FETCH, &number, move |value| drop(done.send(value.ok())));
    ///         }),
    ///         Err(_) => drop(done.send(None)),
    ///     });
    ///     if let Err(error) = begun {
    ///         eprintln!("not called: {error}");
    ///     }
    /// }
    /// ```
    ///
    /// If it panics, the thread goes on. What was posted before the service ends is done; in a child that forks, where
    /// the thread is its parent's, nothing is.
    pub fn post(&self, work: impl FnOnce() + Send + 'static) {
        self.leave_to_thread(move |_| work());
    }

    /// As [`Service::with`], unless somebody else uses the node just now: waits for nobody.
    /// In a child that forks, where the node is its parent's, it uses none.
    pub(crate) fn try_with<R>(&self, work: impl FnOnce(&mut Node) -> R) -> Option<R> {
        if !self.process.is_this() {
            return None;
        }
        let free = self.shared.node.try_lock()?;
        let _uses = Uses(&self.shared);
        let mut node = free;
        Some(work(&mut node))
    }

    /// Somebody is about to wait for what its thread does.
    ///
    /// # Panics
    /// As [`Service::with`].
    pub(crate) fn assert_elsewhere(&self) {
        self.shared.node.assert_elsewhere();
    }

    /// How long a reply may take where the call says nothing else.
    pub(crate) fn deadline(&self) -> Duration {
        self.shared.deadline
    }

    /// How many calls of a client may wait to be made, and with how many bytes.
    pub(crate) fn max_pending(&self) -> (usize, usize) {
        (self.shared.max_pending, self.shared.max_pending_bytes)
    }

    /// Bytes of the pool of a channel.
    pub(crate) fn pool_bytes(&self) -> u64 {
        self.shared.pool_bytes
    }

    /// The tasks that wait for calls and are about to run.
    pub(crate) fn crowd(&self) -> &Arc<Crowd> {
        &self.shared.crowd
    }

    /// Has the thread do something that may take a while. A child that forks has no such thread.
    pub(crate) fn leave_to_thread(&self, errand: impl FnOnce(&Access<'_>) + Send + 'static) {
        if !self.process.is_this() {
            return;
        }
        self.shared.errands.lock().unwrap_or_else(PoisonError::into_inner).push_back(Box::new(errand));
        self.shared.ring();
    }

    /// Has the thread wake a task when this time has come.
    pub(crate) fn wake_at(&self, due: Instant, waker: Waker) {
        self.shared.wake_at(due, waker);
    }

    /// Has something done, until then, that may keep the node for long, by a thread that nobody else waits for: where
    /// it stands. `None` where there is no such thread: the system gives none just now, or this is a child that forks.
    pub(crate) fn do_long(&self, until: Instant, long: Arc<dyn Long>) -> Option<Place> {
        if self.process.is_this() { self.shared.do_long(until, long) } else { None }
    }

    /// Nobody waits any more for what stands there.
    pub(crate) fn leave_long(&self, place: Place) {
        self.shared.leave_long(place);
    }

    /// The node in hand, unless somebody else uses it just now: for who is likely to be through with it at once.
    #[inline]
    pub(crate) fn pass(&self) -> Option<Passing<'_>> {
        Passing::new(&self.shared)
    }

    /// Takes the thread's place for a moment: until this is dropped, what comes is noticed by who has it.
    pub(crate) fn driving(&self) -> Driving<'_> {
        Driving::new(&self.shared)
    }

    /// Ends the thread and gives the node back, unless somebody else still shares it. Answers that were given before
    /// are sent first, as far as there is room for them; the same where a service is dropped. Waits for what is just
    /// sent for an awaited call of [`rpc`](crate::rpc), as dropping it does not.
    #[must_use]
    pub fn stop(mut self) -> Option<Node> {
        self.end(true);
        let shared = Arc::clone(&self.shared);
        drop(self);
        let mut node = Arc::into_inner(shared)?.node.into_inner();
        node.inside.shelf.served_by(None);
        node.inside.endpoint.set_yields(true);
        Some(node)
    }

    /// Ends the thread. `waits`: also for what keeps the node for long; else both end by themselves later.
    fn end(&mut self, waits: bool) {
        if !self.process.is_this() {
            return;
        }
        let is_left = self.shared.line.end(waits && !self.shared.node.is_this_threads());
        self.shared.over.store(true, Ordering::Release);
        self.shared.ring();
        // A continuation may be the last to hold what holds the service; its thread cannot wait for itself.
        let ends = |thread: &JoinHandle<()>| !is_left && thread.thread().id() != std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(ends) {
            let _ = thread.join();
        } else if clock::is_simulated() {
            self.shared.finish_errands();
            if let Some(mut node) = self.shared.node.try_lock() {
                node.tend();
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end(false);
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
    /// Whoever has polled may have taken the bell off a door: the thread puts it back when nobody uses the node any
    /// more. While others drive, the last of them sees to that.
    fn note_use(&self) {
        self.used.fetch_add(1, Ordering::SeqCst);
        self.summons.relied.store(true, Ordering::SeqCst);
        if self.drivers.load(Ordering::SeqCst) == 0 {
            self.ring();
        }
    }

    /// How long the thread leaves the node to others before it looks again; or, if what comes has to wake it, whether
    /// anybody relies on that. Asked with the node in hand, so that what was done with it before is known. `waits`:
    /// whether calls are under way, whose answers are noticed at once when nobody looks for them.
    fn patrol(&self, lately: &mut Lately, watch: &mut Watch, now: Instant, waits: bool) -> Result<Duration, bool> {
        // SYNC POINT patrol: both sides store, then load; at least one sees the other. Those who use the node note that
        // first, then whether they rely on the thread, then that they leave; it looks for that in the same order.
        self.summons.patrols.store(true, Ordering::SeqCst);
        let uses = self.used.swap(0, Ordering::SeqCst);
        let often = lately.is_often(uses, now);
        if self.drivers.load(Ordering::SeqCst) > 0 {
            // Whoever relies on the thread does so until the last of them leaves.
            return Ok(if often { PATROL } else { MOMENT });
        }
        let relied = self.summons.relied.swap(false, Ordering::SeqCst);
        if relied && uses > 0 {
            watch.begin(now);
        }
        if !relied && !waits && often {
            return Ok(PATROL);
        }
        self.summons.patrols.store(false, Ordering::SeqCst);
        Err(relied)
    }

    fn ring(&self) {
        self.summons.ring();
    }

    /// Runs those that are there: how many. What they leave comes after what else there is to do: its bell has rung.
    fn run_errands(&self) -> usize {
        let errands = || self.errands.lock().unwrap_or_else(PoisonError::into_inner);
        let many = errands().len();
        for _ in 0..many {
            let Some(errand) = errands().pop_front() else { break };
            upcall(|| errand(&self.access()));
        }
        many
    }

    /// At the end, those that are there and what they leave: nobody has the service any more who could post.
    fn finish_errands(&self) {
        while self.run_errands() > 0 {}
    }

    /// One round of the thread, where there is none.
    fn turn(&self) {
        let Ok(mut by_hand) = self.by_hand.try_lock() else { return };
        let Some(event) = by_hand.as_mut() else { return };
        // Who has the node in hand turns it himself.
        if self.node.try_lock().is_none() {
            return;
        }
        self.run_errands();
        self.wake_sleepers();
        if let Some(mut node) = self.node.try_lock() {
            Self::take_in(&mut node, event);
            node.look(true);
        }
        self.run_errands();
    }

    /// Whether the thread, which looks again by itself, leaves the node to who drives it just now.
    fn is_driven(&self) -> bool {
        let is_used = self.drivers.load(Ordering::SeqCst) > 0 || self.node.is_held();
        is_used && !self.summons.relied.load(Ordering::SeqCst)
    }

    /// Takes in what has come: whether anything has.
    fn take_in(node: &mut Node, event: &mut impl FnMut(&mut Node, Event)) -> bool {
        let before = node.came;
        while let Some(happened) = node.poll() {
            upcall(|| event(node, happened));
        }
        node.came != before
    }

    /// Looks for what comes next as long as nobody else wants the node, but not long. Leaves it before the thread makes
    /// way for others that want the core.
    fn look_on(&self, mut node: Held<'_, Node>, event: &mut impl FnMut(&mut Node, Event), watch: &mut Watch) {
        let (mut came, mut makes_way) = (false, watch.is_over);
        watch.rests = watch.is_over;
        for _ in 0..LOOKS {
            let others = self.drivers.load(Ordering::Relaxed) > 0 || self.node.is_wanted();
            if others || makes_way || self.summons.rung.load(Ordering::Relaxed) {
                break;
            }
            if Self::take_in(&mut node, event) {
                came = true;
                watch.idle.found();
            } else {
                makes_way = watch.idle.look();
            }
            std::hint::spin_loop();
        }
        drop(node);
        if came {
            watch.begin(clock::now());
        }
        if makes_way {
            watch.idle.let_others_run();
        }
        self.heed();
    }

    /// Has the thread sleep for so long at most, or until it is woken.
    fn sleep(&self, heard: &UnixStream, fds: &mut [PollFd<'_>], nap: Option<Duration>) {
        let timeout = nap.map(|nap| Timespec {
            tv_sec: i64::try_from(nap.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(nap.subsec_nanos()),
        });
        let _ = poll(fds, timeout.as_ref());
        let mut rings = [0; 64];
        while matches!((&*heard).read(&mut rings), Ok(64)) {}
        // After that: whoever finds that it was rung is looked for in the next round.
        self.heed();
    }

    /// The thread begins another round, in which it finds what it was rung for.
    fn heed(&self) {
        self.summons.rung.swap(false, Ordering::AcqRel);
    }

    fn run(&self, heard: &UnixStream, sleepers: &OwnedFd, mut event: impl FnMut(&mut Node, Event)) {
        let mut lately = Lately::default();
        let mut watch = Watch::new(clock::now());
        let mut fds = [PollFd::new(heard, PollFlags::IN), PollFd::new(sleepers, PollFlags::IN)];
        // Until when it may sleep on before it looks: not at all, unless it looks again by itself.
        let mut due = clock::now();
        let mut found_stuck = due;
        while !self.over.load(Ordering::Acquire) {
            self.run_errands();
            let until_sleeper = self.wake_sleepers();
            let now = clock::now();
            if now.saturating_since(found_stuck) >= nanos(PATROL) {
                found_stuck = now;
                self.crowd.find_stuck();
            }
            if self.is_driven() {
                let left = Duration::from_nanos(due.saturating_since(now));
                if !left.is_zero() {
                    let nap = until_sleeper.map_or(DRIVEN, |until| until.min(DRIVEN)).min(left);
                    self.sleep(heard, &mut fds[..1], Some(nap));
                    continue;
                }
            }
            let mut node = self.lock_awake();
            let came = Self::take_in(&mut node, &mut event);
            let now = node.look(true);
            if came {
                watch.begin(now);
            } else {
                watch.go_on(now);
            }
            let patrol = self.patrol(&mut lately, &mut watch, now, node.inside.core.calls().waiting() > 0);
            if let Err(relied) = patrol {
                let quiet = self.used.load(Ordering::SeqCst) == 0 && node.ready.is_empty();
                if !quiet || !watch.rests || !node.inside.endpoint.arm() {
                    // It would notice nothing yet.
                    self.summons.relied.fetch_or(relied, Ordering::SeqCst);
                    if quiet && !watch.rests {
                        self.look_on(node, &mut event, &mut watch);
                    }
                    continue;
                }
            }
            let patrol = patrol.ok();
            let nap = node.nap(now);
            drop(node);
            due = if patrol.is_some() { now.after(nanos(nap.map_or(LEFT, |nap| nap.min(LEFT)))) } else { now };
            let nap = [nap, patrol, until_sleeper].into_iter().flatten().min();
            // While others drive, the endpoint is not armed, and only the bell says something.
            let fds = if patrol.is_some() { &mut fds[..1] } else { &mut fds[..] };
            self.sleep(heard, fds, nap);
        }
        // Whoever gets the node finds nothing left to be done; and who has been answered by now hears so.
        self.finish_errands();
        let free = if self.line.was_left() { Some(self.lock_awake()) } else { self.node.try_lock() };
        if let Some(mut node) = free {
            upcall(|| {
                node.tend();
            });
        }
    }
}
