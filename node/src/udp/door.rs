//! Batches out and trains in: one socket for all channels of an endpoint, under one lock.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::placing::{Means, Placing};
use cutthrough_engine::net::trains::Trains;
use cutthrough_engine::net::{Net, Settings};
use cutthrough_engine::pulse::Policy;
use cutthrough_engine::time::Instant;
use cutthrough_seal::Keys;
use cutthrough_segment::page::{Filled, Waker};
use cutthrough_wire::frame::HEADER_BYTES;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::address::{UdpAddressError, Ways};
use super::attendant::{self, NextLook};
use super::calls::Call;
use super::carried::{Carried, Spare};
use super::glances::Glances;
use super::guard::{Callees, Doorkeeper};
use super::joined::Joined;
use super::lanes::reopen::Due;
use super::lanes::{Beside, Lanes, Offer, PLACING, Troubles};
use super::line::UNREAD_NS;
use super::memory::Stores;
use super::overruns::Overruns;
use super::placed::Aiming;
use super::sink::Sink;
use super::sources::Sources;
use super::told::{Happened, Told};
use super::watch::Watch;
use crate::clock;
use crate::config::Config;
use crate::process::Process;
use crate::raw::xdp::lease;
use crate::sys::datagram::{Datagrams, TRAIN_BYTES};

/// Longest body of a frame: what one datagram carries.
pub(super) const BODY_MAX: usize = TRAIN_BYTES - HEADER_BYTES;
/// Nanoseconds after which a batch is sent again that the socket has not taken.
pub(super) const STUCK_NS: u64 = 100_000;
/// What an application that sleeps is woken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaits {
    /// Whatever happens.
    News,
    /// The answers to its calls, and nothing else.
    Answers,
    /// More of the payload that it has looked at last, and nothing else.
    Payload,
    /// Room for a message of this channel, or whatever happens.
    NewsOrRoom(usize),
    /// Room for a message of this channel, and nothing else.
    Room(usize),
}

/// Everything behind the lock.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) net: Net<Stores>,
    pub(super) socket: Datagrams,
    /// What that is bound to.
    pub(super) bound: SocketAddr,
    /// Another one for one peer, where there are no rings beside it.
    pub(super) joined: Option<Box<Joined>>,
    /// By which address of this machine channels were opened, where the socket is bound to all of them.
    pub(super) sources: Option<Sources>,
    /// Rings beside it.
    pub(super) lanes: Option<Box<Lanes>>,
    /// What looks at the socket came to.
    pub(super) glances: Glances,
    /// What it had no room for.
    pub(super) overruns: Overruns,
    /// Whether the joined socket was passed over, because the other one had enough to tell.
    pub(super) joined_first: bool,
    /// How the register of a ring that places payloads follows what comes.
    pub(super) aiming: Aiming,
    /// Whether the kernel tells anybody of what comes.
    pub(super) watch: Watch,
    pub(super) trains: Trains,
    pub(super) batch: Batch,
    /// The channel of a batch that the socket has not taken, and since when it waits.
    pub(super) stuck: Option<(usize, SocketAddr, Instant)>,
    /// Whether the socket has not taken one for so long that those by it count as lost: others wait behind them.
    pub(super) blocked: bool,
    /// Frames of the batch that have gone alone, because the system takes no trains.
    pub(super) went: usize,
    /// To whom the kernel has said last that there is no way, and why.
    pub(super) unreachable: Option<(SocketAddr, Errno)>,
    /// Channels that are being opened.
    pub(super) calls: Vec<Call>,
    pub(super) most: usize,
    pub(super) sink: Sink,
    pub(super) looks: u32,
    /// Channels of which something was dropped; and memory for their numbers.
    pub(super) filled: Arc<Filled>,
    pub(super) tidied: Vec<usize>,
    /// What the application sleeps for.
    pub(super) awaits: Awaits,
    /// The channels of whose room it is to be told.
    pub(super) asked: Vec<usize>,
    /// The channel of which a payload was looked at last, and how often anything had come there by then.
    pub(super) looked_at: (usize, u64),
    /// Whether something has come of which only the application has been told so far.
    pub(super) owed: bool,
    /// When the application was last told of several things at once.
    pub(super) told_at: Instant,
    pub(super) troubles: Troubles,
    /// Of the payload that a caller lends while its call lasts.
    pub(super) carried: Carried,
    pub(super) spare: Spare,
    /// What has happened here, and not in the engine.
    pub(super) events: std::collections::VecDeque<Happened>,
    pub(super) waker: Arc<Waker>,
    pub(super) config: Config,
    /// The process whose channels these are: a child which that forks has their keys, too, and would seal other frames
    /// with numbers that its parent uses.
    pub(super) process: Process,
}

/// What the application and its attendant share.
#[derive(Debug)]
pub(super) struct Shared {
    core: Mutex<Core>,
    /// How often the application has looked.
    pub(super) turns: AtomicU64,
    /// Whether the application sleeps, and is woken by the socket.
    pub(super) asleep: AtomicBool,
    /// Whether it does so in a call of ours that looks after the times.
    pub(super) waits: AtomicBool,
    /// Whether the attendant sleeps until it is kicked, because there has been such a call for long.
    pub(super) dormant: AtomicBool,
    /// Whether the attendant does the application's work, and naps until there is some.
    pub(super) serving: AtomicBool,
    pub(super) stop: AtomicBool,
    /// Whether the application has been told of more than it has looked at.
    pub(super) more: AtomicBool,
    /// When the attendant wakes next, in nanoseconds; and when it has to, at the latest, because the application sleeps
    /// outside of our calls, and somebody has to look after its times.
    pub(super) wakes_at: AtomicU64,
    pub(super) due_at: AtomicU64,
    pub(super) next_look: NextLook,
    pub(super) kick: OwnedFd,
    /// When a ring is to be opened again.
    pub(super) due: Arc<Due>,
    pub(super) waker: Arc<Waker>,
    /// The socket and the rings, for waiting on them without the lock.
    pub(super) watched: Vec<OwnedFd>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the attendant's nap.
    pub(super) fn kick(&self) {
        let _ = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
    }
}

/// The socket of an endpoint: the kernel's, or that of a host which is not there.
fn bind(config: &Config, ways: Ways, address: SocketAddr) -> Result<Datagrams, UdpAddressError> {
    #[cfg(feature = "simulated")]
    if let Some(host) = &config.host {
        let rings = ways == Ways::Xdp && clock::is_simulated() && address.is_ipv4();
        if ways != Ways::Udp && !rings {
            let why = "a simulated network has no such rings; use udp:, or xdp: in simulated time".into();
            return Err(UdpAddressError::Way { scheme: ways.scheme(), why });
        }
        return Datagrams::simulated(host, address).map_err(|error| UdpAddressError::Socket { address, error });
    }
    let _ = (config, ways);
    Datagrams::bind(address).map_err(|error| UdpAddressError::Socket { address, error })
}

/// The network side of a node.
#[derive(Debug)]
pub struct Udp {
    pub(super) shared: Arc<Shared>,
    attendant: Option<JoinHandle<()>>,
    /// The process whose thread that is: a child which that forks has no such thread.
    process: Process,
    pub(super) local: SocketAddr,
    ways: Ways,
    /// Why there are no rings, where they were asked for.
    declined: Vec<Offer>,
    pub(super) deadline: Duration,
    pub(super) keys: Option<Arc<Keys>>,
    /// Whom the guard calls.
    pub(super) callees: Callees,
    pub(super) staging: usize,
}

impl Udp {
    /// Binds a socket, and opens what rings `ways` asks for.
    pub(crate) fn open(
        (ways, address): (Ways, SocketAddr),
        config: &Config,
        life: u64,
        waker: &Arc<Waker>,
    ) -> Result<Self, UdpAddressError> {
        let refused = |error| UdpAddressError::Socket { address, error };
        let (socket, ring) = match config.lease().filter(|_| ways == Ways::Xdp) {
            Some(helper) => {
                let (socket, ring) = lease::take(&helper, address).map_err(Box::new)?;
                (socket, Some(ring))
            }
            None => (bind(config, ways, address)?, None),
        };
        let local = socket.local().map_err(refused)?;
        // Where all goes by a ring there is nothing for it to do.
        let joins = matches!(ways, Ways::Udp | Ways::All) && !config.is_simulated();
        let joined = joins.then(|| Joined::new(local)).transpose().map_err(refused)?.map(Box::new);
        let sockets = || std::iter::once(socket.as_fd()).chain(joined.iter().map(|joined| joined.as_fd()));
        let beside = sockets().map(|fd| fd.try_clone_to_owned()).collect::<io::Result<_>>().map_err(refused)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let kick = eventfd(0, flags).map_err(|errno| refused(errno.into()))?;
        let due = Arc::new(Due::new(kick.try_clone().map_err(refused)?));
        let (lanes, declined) = match Lanes::open(ways, local, (beside, ring), config, &due)? {
            Beside::Rings(lanes) => (Some(lanes), Vec::new()),
            Beside::Nothing(declined) => (None, declined),
        };
        let buffer = match &lanes {
            // Everything comes by the ring, and by the socket nothing but who cannot be reached by it.
            Some(lanes) if matches!(ways, Ways::Packet | Ways::Xdp) => lanes.holds().min(socket.receive_bytes()),
            _ => socket.receive_bytes(),
        } as u64;
        let settings = Settings {
            slots: u64::from(config.slots),
            // What is unasked and what is granted have to fit into the buffer together, with the kernel's own share.
            unasked: buffer / 4,
            granted: u32::try_from(buffer / 8 * 3).unwrap_or(u32::MAX).min(4 << 20),
            silence_ns: u64::try_from(config.silence.as_nanos()).unwrap_or(u64::MAX),
            deadline_ns: u64::try_from(config.deadline.max(config.silence).as_nanos()).unwrap_or(u64::MAX),
            channels: config.channels as usize,
            body: u16::try_from(BODY_MAX).unwrap_or(u16::MAX),
            life,
            // Else a run would be another one each time.
            process: if clock::is_simulated() { 1 } else { std::process::id() },
            user: rustix::process::getuid().as_raw(),
        };
        let callees = Callees::default();
        let guard = Doorkeeper::new(config.keys.clone(), callees.clone());
        let mut net = Net::new(settings, Stores::default(), Box::new(guard));
        for (way, most) in lanes.iter().flat_map(|lanes| lanes.limits()) {
            net.limit_way(way, most);
        }
        net.divide(config.policy);
        net.placing = Placing::new(lanes.as_ref().map_or(Means::None, |lanes| lanes.means()), PLACING);
        let rings = lanes.iter().map(|lanes| lanes.watched());
        let watched = sockets().chain(rings).map(|fd| fd.try_clone_to_owned());
        let watched = watched.collect::<io::Result<Vec<_>>>().map_err(refused)?;
        let most = match config.policy {
            Policy::Fixed(bytes) => usize::try_from(bytes.get()).unwrap_or(TRAIN_BYTES).min(TRAIN_BYTES),
            Policy::StoreAndForward | Policy::Adaptive { .. } => TRAIN_BYTES,
        };
        let core = Core {
            net,
            socket,
            bound: local,
            joined,
            sources: None,
            lanes,
            glances: Glances::default(),
            overruns: Overruns::default(),
            joined_first: false,
            aiming: Aiming::default(),
            watch: Watch::default(),
            trains: Trains::default(),
            batch: Batch::default(),
            stuck: None,
            blocked: false,
            went: 0,
            unreachable: None,
            calls: Vec::new(),
            most,
            sink: Sink::default(),
            looks: 0,
            filled: Arc::default(),
            tidied: Vec::new(),
            awaits: Awaits::News,
            asked: Vec::new(),
            looked_at: (0, 0),
            owed: false,
            told_at: Instant::default(),
            troubles: Troubles::default(),
            carried: Carried::default(),
            spare: Spare::default(),
            events: std::collections::VecDeque::new(),
            waker: Arc::clone(waker),
            config: config.clone(),
            process: Process::this(),
        };
        let shared = Arc::new(Shared {
            core: Mutex::new(core),
            turns: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            dormant: AtomicBool::new(false),
            serving: AtomicBool::new(false),
            more: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            wakes_at: AtomicU64::new(0),
            due_at: AtomicU64::new(u64::MAX),
            next_look: NextLook::new().map_err(|errno| refused(errno.into()))?,
            kick,
            due,
            waker: Arc::clone(waker),
            watched,
        });
        // Where time passes only when it is told to, nobody is away without saying so.
        let attends = !clock::is_simulated();
        let attendant = attends.then(|| attendant::start(Arc::clone(&shared))).transpose().map_err(refused)?;
        let staging = config.staging_bytes as usize;
        Ok(Self {
            shared,
            attendant,
            process: Process::this(),
            local,
            ways,
            declined,
            deadline: config.deadline,
            staging,
            keys: config.keys.clone(),
            callees,
        })
    }

    /// Where the socket is bound.
    pub(crate) const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Which adapters its address has asked for.
    pub(crate) const fn ways(&self) -> Ways {
        self.ways
    }

    /// Which adapters beside the socket there are, and why others are not.
    pub(crate) fn offers(&self) -> Vec<Offer> {
        self.shared.lock().lanes.as_ref().map_or_else(|| self.declined.clone(), |lanes| lanes.offers().to_vec())
    }

    /// Has whoever sleeps on `sleepers` (epoll) woken by what comes, as `number`.
    ///
    /// # Errors
    /// As the kernel says.
    pub(crate) fn tells(&self, sleepers: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        self.shared.lock().tells(sleepers, number)
    }

    /// The sockets and the rings, to be waited for in a call of ours.
    pub(super) fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.shared.watched.iter().map(AsFd::as_fd)
    }

    /// Whether it has no channels, is asked for none and asks for none, and has nothing to tell.
    pub(crate) fn is_idle(&self) -> bool {
        let core = self.shared.lock();
        core.net.channels() == 0 && core.calls.is_empty() && core.events.is_empty() && !core.net.has_event()
    }

    /// Lets nobody in from now on: who calls is told so.
    pub(crate) fn stop_listening(&self) {
        self.shared.lock().net.listen(false);
    }

    /// So many of the channels that the settings allow are of this machine.
    pub(crate) fn has_others(&self, channels: usize) {
        self.shared.lock().net.has_others(channels);
    }

    /// Leaves one of the channels that the settings allow to this machine; false if there is none left.
    pub(crate) fn take_other(&self) -> bool {
        self.shared.lock().net.take_other(clock::now())
    }

    /// Takes that back.
    pub(crate) fn free_other(&self) {
        self.shared.lock().net.free_other();
    }

    /// Lets peers in from now on.
    ///
    /// # Errors
    /// As the kernel says.
    pub(crate) fn listen(&self) -> io::Result<()> {
        let mut core = self.shared.lock();
        if core.socket.tell_local()? {
            core.sources.get_or_insert_default();
        }
        core.net.listen(true);
        Ok(())
    }

    /// Looks once at everything, and tells `each` up to `most` times what has come; up to what a channel begins or ends
    /// with, which is returned.
    pub(crate) fn turn(&self, most: usize, mut each: impl FnMut(&mut Stores, Told<'_>)) -> Option<Box<Happened>> {
        let mut core = self.enter();
        if !core.has_news() {
            core.net.let_go();
            core.glance();
        }
        // Also while there is enough else to tell.
        core.look_after_calls();
        let mut told = 0_usize;
        let other = core.tell(most, |stores, what| {
            told += 1;
            each(stores, what);
        });
        // Who takes messages makes room for others, and says so; but not before it has them.
        core.owed |= core.net.has_work();
        // What is answered to one alone waits for nothing.
        if told > 1 {
            core.told_at = clock::now();
        }
        other
    }

    /// Sends what waits for company, though the sink is busy.
    pub(crate) fn flush(&self) {
        self.enter().transmit(clock::now(), true);
    }

    /// Says whether the application has been told of more than it has looked at. While it has, short messages that it
    /// sends wait for one another.
    #[inline]
    pub(crate) fn leaves(&self, more: bool) {
        self.shared.more.store(more, Ordering::Relaxed);
    }

    /// Says that the application looks after itself again.
    pub(crate) fn here(&self) {
        // Nobody else writes it.
        let turns = self.shared.turns.load(Ordering::Relaxed).wrapping_add(1);
        self.shared.turns.store(turns, Ordering::Relaxed);
        self.shared.next_look.has_looked(turns);
        if self.shared.asleep.load(Ordering::Relaxed) {
            self.shared.asleep.store(false, Ordering::Relaxed);
            self.shared.due_at.store(u64::MAX, Ordering::Relaxed);
        }
        if self.shared.serving.load(Ordering::Relaxed) && self.shared.serving.swap(false, Ordering::Relaxed) {
            self.shared.kick();
        }
    }

    /// What is behind the lock, for a call of the application's: what that changes may be due at once, and an attendant
    /// that naps knows nothing of it.
    pub(super) fn enter(&self) -> MutexGuard<'_, Core> {
        self.here();
        self.shared.lock()
    }

    /// As [`Udp::here`], for a call that may last.
    pub(super) fn stay(&self) -> Stay<'_> {
        self.here();
        Stay(self)
    }

    /// See [`Net::strides`].
    pub(crate) fn strides(&self) -> u64 {
        self.shared.lock().net.strides()
    }

    /// The application comes back from a call of ours in which it may have slept: the attendant has to look after it
    /// again.
    pub(crate) fn has_waited(&self) {
        if self.shared.waits.load(Ordering::Relaxed) {
            // Either the attendant sees that nobody waits, or its sleep is seen here.
            self.shared.waits.store(false, Ordering::SeqCst);
            if self.shared.dormant.load(Ordering::SeqCst) {
                self.shared.kick();
            }
        }
    }

    /// The kernel has said that something has come by a socket, and does not say so again.
    pub(crate) fn rung(&self) {
        self.shared.lock().rung();
    }

    /// Sends what waits for company and says when to look again, because the application goes to sleep. `None` if there
    /// is something to look at now.
    pub(crate) fn before_sleep(&self, outside: bool) -> Option<Instant> {
        self.go_to_sleep(outside, Awaits::News)
    }

    /// The same for who sleeps outside of our calls until there is something in [`Udp::answers`]: messages that wait
    /// are slept over. False if there is something to look at now.
    pub(crate) fn before_answers(&self) -> bool {
        self.go_to_sleep(true, Awaits::Answers).is_some()
    }

    /// The same for who waits for more than the last [`Udp::read_some`] has found.
    pub(crate) fn before_reading(&self) -> bool {
        self.go_to_sleep(true, Awaits::Payload).is_some()
    }

    /// The same for who waits for room for a message of a channel, or whatever happens; or, `alone`, for that and
    /// nothing else: messages that wait are slept over.
    pub(crate) fn before_room(&self, index: usize, outside: bool, alone: bool) -> Option<Instant> {
        self.go_to_sleep(outside, if alone { Awaits::Room(index) } else { Awaits::NewsOrRoom(index) })
    }

    fn go_to_sleep(&self, outside: bool, awaits: Awaits) -> Option<Instant> {
        let mut core = self.shared.lock();
        core.awaits = awaits;
        let frames = core.lanes.as_ref().is_some_and(|lanes| lanes.has_frames());
        if frames || core.is_unlooked() || core.has_awaited() {
            return None;
        }
        let now = clock::now();
        core.tidy(now);
        core.look_after_calls();
        core.net.grant(now);
        core.net.relieve(now, UNREAD_NS);
        core.owed = false;
        core.net.hurry();
        core.transmit(now, true);
        if core.has_awaited() || !core.doze() {
            return None;
        }
        let relieves = core.net.relieves_at(now, UNREAD_NS);
        let next = core.timer().into_iter().chain(relieves).min().unwrap_or(Instant::from_nanos(u64::MAX));
        core.rung();
        self.shared.asleep.store(true, Ordering::Relaxed);
        // Who sleeps in a call of ours looks after its times; for others the attendant does.
        self.shared.waits.store(!outside, Ordering::Relaxed);
        if outside {
            attendant::keep(&self.shared, next);
        }
        Some(next)
    }
}

/// The application stays in a call of ours, for so long perhaps that the attendant takes over meanwhile. That has to
/// look again when the call ends: it does not know what was left to be done.
pub(super) struct Stay<'a>(&'a Udp);

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        self.0.here();
    }
}

impl Drop for Udp {
    fn drop(&mut self) {
        if !self.process.is_this() {
            return;
        }
        self.shared.stop.store(true, Ordering::Release);
        self.shared.kick();
        match self.attendant.take() {
            Some(attendant) => drop(attendant.join()),
            None => attendant::part(&self.shared),
        }
    }
}
