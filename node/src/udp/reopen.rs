//! Rings that were given up are opened again.
//!
//! A ring is given up when the kernel refuses to send by it: its interface is down, is gone, or was made anew. Frames
//! go by the socket from then on. The attendant opens the ring again: its thread stays in the network namespace in
//! which the endpoint was opened, wherever the application's threads are. It does so without the lock, because the
//! kernel takes its time; first after 50 ms, then after twice as long each time, 5 s at most, for as long as the
//! endpoint lives. A payload is copied out of a ring that has come back, though the one before it may have placed
//! payloads: channels have their memory from that one.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use cutthrough_engine::receipt::Adapter;
use cutthrough_engine::time::Instant;

use super::door::{Core, Shared};
use super::lanes::plain_ring;
use crate::clock;
use crate::raw::Ring;
use crate::raw::route::{Interface, Routes};
use crate::sys::xdp::Mode;

/// Nanoseconds after which a ring is opened again at first, and at the longest. One that has lasted for the latter is
/// opened after the former again.
pub(super) const PAUSE_NS: (u64, u64) = (50_000_000, 5_000_000_000);
/// Nothing is due.
const NEVER: u64 = u64::MAX;

/// When a ring is to be opened again: told under the lock, and read by the attendant without it.
#[derive(Debug)]
pub(super) struct Due {
    at: AtomicU64,
    /// Ends the attendant's nap.
    kick: OwnedFd,
}

impl Due {
    pub(super) const fn new(kick: OwnedFd) -> Self {
        Self { at: AtomicU64::new(NEVER), kick }
    }

    pub(super) fn set(&self, at: Option<Instant>) {
        let at = at.map_or(NEVER, Instant::as_nanos);
        if self.at.swap(at, Ordering::AcqRel) > at {
            // The counter of an eventfd that is full wakes as well.
            let _ = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
        }
    }

    /// Nanoseconds until something is due.
    pub(super) fn left(&self) -> u64 {
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
    pub(super) why: String,
    /// When it is opened again, and nanoseconds after which it is tried the next time.
    pub(super) at: Instant,
    pub(super) pause: u64,
}

/// A ring that is to be opened.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) adapter: Adapter,
    pub(super) local: SocketAddrV4,
    pub(super) socket: OwnedFd,
    /// Queue and mode of a ring of AF_XDP.
    pub(super) at: (u32, Option<Mode>),
}

/// A ring and its interface, or why there is none.
pub(super) type Opened = Result<(Interface, Box<dyn Ring>), String>;

impl Order {
    /// Opens it in the network namespace of the calling thread, at the interface that has the address by now.
    fn open(self) -> Opened {
        let mut routes = Routes::open().map_err(|error| error.to_string())?;
        let interface = routes.home(*self.local.ip()).map_err(|error| error.to_string())?;
        let ring = plain_ring(self.adapter, self.socket, self.local, &interface, self.at)?;
        Ok((interface, ring))
    }
}

/// Opens what is due. Called by the attendant.
pub(super) fn reopen(shared: &Shared) {
    while shared.due.left() == 0 {
        let order = shared.lock().lanes.as_mut().and_then(|lanes| lanes.order(clock::now()));
        let Some(order) = order else { return };
        let adapter = order.adapter;
        let opened = order.open();
        shared.lock().ring_is_back(adapter, opened);
    }
}

impl Core {
    /// A ring was opened again, or could not be.
    fn ring_is_back(&mut self, adapter: Adapter, opened: Opened) {
        let now = clock::now();
        let Some(lanes) = self.lanes.as_mut() else { return };
        if lanes.put_back(now, adapter, opened) {
            for (way, most) in lanes.limits() {
                self.net.limit_way(way, most);
            }
            self.tend_lanes(now);
        }
    }
}
