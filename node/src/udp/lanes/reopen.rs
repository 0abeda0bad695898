//! Rings that were given up are opened again.
//!
//! A ring is given up when the kernel refuses to send by it, or says that its socket has failed: its interface is down,
//! is gone, or was made anew; or that its XDP program was taken off the interface. Frames go by the socket from then
//! on. The attendant opens the ring again: its thread stays in the network namespace in which the endpoint was opened,
//! wherever the application's threads are. It does so without the lock, because the kernel takes its time; first after
//! 50 ms, then after twice as long each time, 5 s at most, for as long as the endpoint lives. Whoever has the lock then
//! takes the ring in: a call that reads has it for as long as it waits, and the frames that it waits for may go by that
//! ring already. A payload is copied out of a ring that has come back, though the one before it may have placed
//! payloads: channels may have their memory from that one.
//!
//! In the same way a ring from which payloads are copied is exchanged for one that can cut their headers off, where
//! that shall be tried. There is one socket at a queue and one program at an interface, and the kernel takes some tens
//! of milliseconds to close a socket: meanwhile frames go by the UDP socket, as if the ring had been given up.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cutthrough_engine::net::placing::Means;
use cutthrough_engine::receipt::Adapter;
use cutthrough_engine::time::Instant;
use rustix::event::epoll;

use super::super::door::{Core, Shared};
use super::lane::Lane;
use super::lots::{Lots, Wanted};
use super::pools::Size;
use super::{ADAPTERS, Lanes, NO_WAIT, PLACING, RINGS, plain_ring, ring_of};
use crate::clock;
use crate::raw::Ring;
use crate::raw::route::{Interface, Routes};
use crate::sys::xdp::{Mode, XdpError};

/// Nanoseconds after which a ring is opened again at first, and at the longest. One that has lasted for the latter is
/// opened after the former again.
const PAUSE_NS: (u64, u64) = (50_000_000, 5_000_000_000);
/// Nanoseconds after which the kernel is asked again whether rings have failed.
const CHECK_NS: u64 = 20_000_000;
/// How long it is waited for where another ring has just been, unless that was the one that is exchanged. Nobody
/// answers for an application that computes meanwhile, and nobody shall take it for dead.
const PATIENCE: Duration = Duration::from_millis(250);
/// Nothing is due.
const NEVER: u64 = u64::MAX;

/// When a ring is to be opened again: told under the lock, and read by the attendant without it. And one that it has
/// opened, the other way round.
#[derive(Debug)]
pub(in super::super) struct Due {
    at: AtomicU64,
    /// Ends the attendant's nap.
    kick: OwnedFd,
    opened: Mutex<Option<(Adapter, Opened)>>,
    /// Whether there is one.
    is_opened: AtomicBool,
}

impl Due {
    pub(in super::super) const fn new(kick: OwnedFd) -> Self {
        Self { at: AtomicU64::new(NEVER), kick, opened: Mutex::new(None), is_opened: AtomicBool::new(false) }
    }

    fn bring(&self, adapter: Adapter, opened: Opened) {
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some((adapter, opened));
        self.is_opened.store(true, Ordering::Release);
    }

    #[cold]
    fn take(&self) -> Option<(Adapter, Opened)> {
        self.is_opened.store(false, Ordering::Relaxed);
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, at: Option<Instant>) {
        let at = at.map_or(NEVER, Instant::as_nanos);
        if self.at.swap(at, Ordering::AcqRel) > at {
            // The counter of an eventfd that is full wakes as well.
            let _ = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
        }
    }

    /// Nanoseconds until something is due.
    pub(in super::super) fn left(&self) -> u64 {
        match self.at.load(Ordering::Acquire) {
            NEVER => NEVER,
            at => at.saturating_sub(clock::now().as_nanos()),
        }
    }
}

/// A ring that is gone.
#[derive(Debug)]
pub(super) struct Gone {
    /// Why it was given up.
    why: String,
    /// When it is opened again, which is never while the attendant does that; and nanoseconds after which it is tried
    /// the next time.
    at: Instant,
    pause: u64,
    /// Whether it was lost. If not, it is exchanged for another one, and here until it is closed.
    lost: bool,
    exchanged: Option<Box<dyn Ring>>,
}

/// A ring that is to be opened.
#[derive(Debug)]
struct Order {
    adapter: Adapter,
    local: SocketAddrV4,
    sockets: Vec<OwnedFd>,
    /// Queue and mode of a ring of AF_XDP, and the pools in its memory.
    at: ((u32, Option<Mode>), Size),
    /// The ring that is to be closed before, and what the one needs that takes its place.
    exchanged: Option<(Box<dyn Ring>, Option<Wanted>)>,
}

/// A ring that was opened.
#[derive(Debug)]
struct Back {
    interface: Interface,
    ring: Box<dyn Ring>,
    /// Why it does not place payloads, if it should.
    copies: Option<String>,
}

/// A ring, or why there is none.
type Opened = Result<Back, String>;

impl Order {
    /// Opens it in the network namespace of the calling thread, at the interface that has the address by now.
    fn open(self) -> Opened {
        let mut routes = Routes::open().map_err(|error| error.to_string())?;
        let interface = routes.home(*self.local.ip()).map_err(|error| error.to_string())?;
        let mut copies = None;
        if let Some((ring, wanted)) = self.exchanged {
            drop(ring);
            let found = crate::sys::xdp::Interface::numbered(interface.index);
            let none = || XdpError::Refused { what: "landing memory for a ring", errno: rustix::io::Errno::NOMEM };
            let opened = wanted.ok_or_else(none).and_then(|wanted| wanted.open(&found?, self.local, self.at.0));
            match opened {
                Ok(ring) => return Ok(Back { interface, ring: Box::new(ring), copies }),
                Err(error) => copies = Some(error.to_string()),
            }
        }
        let ring = plain_ring(self.adapter, self.sockets, self.local, &interface, self.at, PATIENCE)?;
        Ok(Back { interface, ring, copies })
    }
}

/// The same sockets once more.
pub(super) fn again(sockets: &[OwnedFd]) -> io::Result<Vec<OwnedFd>> {
    sockets.iter().map(OwnedFd::try_clone).collect()
}

/// Opens what is due. Called by the attendant.
pub(in super::super) fn reopen(shared: &Shared) {
    while shared.due.left() == 0 {
        let order = shared.lock().lanes.as_mut().and_then(|lanes| lanes.order(clock::now()));
        let Some(order) = order else { return };
        shared.due.bring(order.adapter, order.open());
        shared.lock().take_ring_in();
    }
}

impl Lanes {
    /// A ring is of no use any more, and opened again later. False if nobody can say when the kernel writes to its
    /// memory no more: from now on no payloads land there.
    pub(in super::super) fn drop_ring(&mut self, way: u8, why: &io::Error) -> bool {
        let Some(at) = usize::from(way).checked_sub(1).filter(|at| *at < RINGS) else { return true };
        let Some(mut ring) = self.rings[at].take() else { return true };
        let quiet = ring.retire();
        if !quiet {
            self.always_copies(NO_WAIT);
        }
        self.past.add(ring.counts());
        let _ = epoll::delete(&self.watch, ring.watched());
        drop(ring);
        self.pools_are_gone(way);
        self.lost += 1;
        self.places &= way != PLACING;
        self.decline(ADAPTERS[usize::from(way)], Some(&why.to_string()));
        self.ask_anew();
        if !self.mends {
            return quiet;
        }
        let (now, (opened, before)) = (clock::now(), self.opened[at]);
        let lasted = now.saturating_since(opened) > PAUSE_NS.1;
        let pause = if lasted { PAUSE_NS.0 } else { (2 * before).clamp(PAUSE_NS.0, PAUSE_NS.1) };
        self.gone[at] = Some(Gone { why: why.to_string(), at: now.after(pause), pause, lost: true, exchanged: None });
        self.tell_due();
        quiet
    }

    /// Whether these bytes lie where a ring that is wanted could have payloads land.
    pub(in super::super) fn could_place(&self, bytes: &[u8]) -> bool {
        self.means() == Means::Later && self.lots.as_ref().is_some_and(|lots| lots.holds(bytes))
    }

    /// Has the kernel take no more frames to the ring of this way.
    pub(in super::super) fn stop(&self, way: u8) {
        let ring = usize::from(way).checked_sub(1).and_then(|at| self.rings.get(at));
        ring.into_iter().flatten().for_each(|ring| ring.stop());
    }

    /// Has the ring of AF_XDP exchanged for one that places payloads. There is none until then.
    pub(in super::super) fn exchange(&mut self) {
        let at = usize::from(PLACING) - 1;
        let Some(mut ring) = self.rings[at].take() else { return };
        self.pools_are_gone(PLACING);
        self.past.add(ring.counts());
        let _ = epoll::delete(&self.watch, ring.watched());
        let why = "it was exchanged for one that places payloads".to_owned();
        let (at_once, pause) = (clock::now(), PAUSE_NS.0);
        self.gone[at] = Some(Gone { why, at: at_once, pause, lost: false, exchanged: Some(ring) });
        self.ask_anew();
        self.tell_due();
    }

    fn decline(&mut self, adapter: Adapter, why: Option<&str>) {
        for offer in self.offers.iter_mut().filter(|offer| offer.adapter == adapter) {
            offer.declined = why.map(str::to_owned);
        }
    }

    /// Has the ways of all channels asked for again.
    fn ask_anew(&mut self) {
        self.lanes.iter_mut().flatten().for_each(Lane::forget);
        self.asks_at = Instant::default();
    }

    /// Gives rings up of which the kernel says that they have failed, though nobody sends by them. False as
    /// [`Lanes::drop_ring`] is.
    pub(in super::super) fn give_up_failed(&mut self, now: Instant) -> bool {
        if now < self.checks_at {
            return true;
        }
        let mut quiet = true;
        self.checks_at = now.after(CHECK_NS);
        // While rings are exchanged, what will be locked is not known here.
        if let Some(lots) = self.lots.as_mut().filter(|_| self.rings[usize::from(PLACING) - 1].is_some()) {
            lots.tidy(self.places);
        }
        for way in (1..).take(RINGS) {
            let ring = self.rings[usize::from(way) - 1].as_ref();
            if let Some(why) = ring.and_then(|ring| ring.failed()) {
                quiet &= self.drop_ring(way, &why);
            }
        }
        quiet
    }

    fn tell_due(&self) {
        self.due.set(self.gone.iter().flatten().map(|gone| gone.at).min());
    }

    /// What to open again now, if anything is due.
    fn order(&mut self, now: Instant) -> Option<Order> {
        let at = self.gone.iter().position(|gone| gone.as_ref().is_some_and(|gone| gone.at <= now))?;
        let adapter = ADAPTERS[at + 1];
        let gone = self.gone[at].as_mut()?;
        gone.at = Instant::from_nanos(NEVER);
        let ring = gone.exchanged.take();
        self.tell_due();
        let exchanged = ring.map(|ring| (ring, self.lots.as_ref().and_then(Lots::wanted)));
        match again(&self.sockets) {
            Ok(sockets) => {
                Some(Order { adapter, local: self.local, sockets, at: (self.at, self.pool_size), exchanged })
            }
            Err(error) => {
                self.put_back(now, adapter, Err(error.to_string()));
                None
            }
        }
    }

    /// A ring was opened again, or could not be, and is tried later. Whether it is there.
    fn put_back(&mut self, now: Instant, adapter: Adapter, opened: Opened) -> bool {
        let Some(at) = ring_of(adapter) else { return false };
        let put = opened.and_then(|Back { interface, mut ring, copies }| {
            let places = ring.placing().is_some();
            self.put_in(adapter, ring).map_err(|error| error.to_string())?;
            self.places |= places;
            Ok((interface, copies))
        });
        match put {
            Ok((interface, copies)) => {
                self.interface = interface;
                let gone = self.gone[at].take();
                self.reopened += u64::from(gone.as_ref().is_some_and(|gone| gone.lost));
                self.opened[at].1 = gone.filter(|gone| gone.lost).map_or(0, |gone| gone.pause);
                self.decline(adapter, None);
                copies.iter().for_each(|why| self.always_copies(why));
                self.ask_anew();
            }
            Err(refused) => {
                if let Some(gone) = &mut self.gone[at] {
                    self.lost += u64::from(!std::mem::replace(&mut gone.lost, true));
                    gone.pause = (2 * gone.pause).min(PAUSE_NS.1);
                    gone.at = now.after(gone.pause);
                    let why = format!("{}; it is tried again, the last time: {refused}", gone.why);
                    self.decline(adapter, Some(&why));
                }
            }
        }
        self.tell_due();
        self.rings[at].is_some()
    }
}

impl Core {
    /// Takes a ring in that the attendant has opened, or why it could not, if it has done either.
    #[inline]
    pub(in super::super) fn take_ring_in(&mut self) {
        if self.lanes.as_ref().is_some_and(|lanes| lanes.due.is_opened.load(Ordering::Acquire)) {
            self.ring_is_back();
        }
    }

    fn ring_is_back(&mut self) {
        let now = clock::now();
        let Some(lanes) = self.lanes.as_mut() else { return };
        let Some((adapter, opened)) = lanes.due.take() else { return };
        if lanes.put_back(now, adapter, opened) {
            for (way, most) in lanes.limits() {
                self.net.limit_way(way, most);
            }
            self.tend_lanes(now);
        }
    }
}
