//! Pools of channels that lie in the memory of a ring: their pages are sent from where they lie.
//!
//! The kernel locks the memory of a ring, all of it from the beginning: 64 MiB, as long as a pool is by itself, take it
//! tens of milliseconds. So there is room for as many channels' pools as 16 MiB hold, up to 16 of them, and none if one
//! is longer: a channel gets its part when it asks for its first page. Others have memory of their own, and their pages
//! are copied into the ring, as are those of a channel whose ring is gone: a ring that was opened again has other
//! memory, for channels that come then.
//!
//! A page is somebody else's again when the peer has it and the kernel has no part of it
//! ([`Flights`]): the engine keeps it until then ([`Net::release`](cutthrough_engine::net::Net::release)). A channel's
//! part of the memory goes to another one when nobody holds a page of it and the kernel has none. If the ring is closed
//! before the kernel has said so of all, it has a second for what it has taken.

use std::io;
use std::sync::{Arc, Weak};

use cutthrough_engine::receipt::Adapter;
use cutthrough_engine::time::Instant;
use cutthrough_segment::map::Mapping;
use cutthrough_segment::page::Ground;
use cutthrough_segment::sync::{Ordering, fence};

use super::super::door::Core;
use super::{ADAPTERS, Lanes, RINGS};
use crate::clock;
use crate::config::Config;
use crate::raw::Ring;
use crate::raw::xdp::{Flights, PAGES_ALIGN, Site, XdpRing};
use crate::sys::xdp::{Mode, XdpError};

/// Most bytes of pools that are locked, and most pools.
const POOL_BYTES: u64 = 16 << 20;
const POOLS: u64 = 16;
/// Nanoseconds after which the kernel has nothing more of a ring that was closed.
const CLOSED_NS: u64 = 1_000_000_000;
/// Nanoseconds after which completions are looked at again that somebody waits for: none of them wakes anybody.
const LOOK_NS: u64 = 1_000_000;

/// How much memory a ring has for pools.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Size {
    lot_bytes: u64,
    lots: u64,
}

impl Size {
    /// As the settings of an endpoint have it.
    pub(super) fn of(config: &Config) -> Self {
        let page_bytes = u64::from(config.page_size.bytes());
        // Longer pages could not lie in the memory of a ring, and no page is sent in place in zero-copy mode.
        if page_bytes > PAGES_ALIGN || config.xdp_mode == Some(Mode::ZeroCopy) {
            return Self { lot_bytes: PAGES_ALIGN, lots: 0 };
        }
        let lot_bytes = config.pool_bytes.max(1).next_multiple_of(PAGES_ALIGN);
        Self { lot_bytes, lots: (POOL_BYTES / lot_bytes).min(POOLS) }
    }

    /// Opens a ring with `landing` bytes of pages for other use and, behind them, those for pools; without the latter
    /// if so much memory cannot be locked.
    pub(super) fn open(
        self,
        landing: u64,
        open: impl Fn(u64) -> Result<XdpRing, XdpError>,
    ) -> Result<XdpRing, XdpError> {
        match open(landing + self.lots * self.lot_bytes) {
            Err(XdpError::Locked { .. }) if self.lots > 0 => open(landing),
            opened => opened,
        }
    }
}

/// The pools in the memory of one ring.
#[derive(Debug)]
pub(super) struct Pools {
    site: Site,
    lot_bytes: u64,
    lots: Vec<Weak<Ground>>,
}

impl Pools {
    /// Those behind the first `landing` bytes of pages of a ring, if there are any.
    pub(super) fn of(ring: &dyn Ring, landing: u64, size: Size) -> Option<Self> {
        let site = ring.site()?;
        let begin = site.begin + landing;
        let count = site.end.checked_sub(begin)? / size.lot_bytes;
        let lots = std::iter::repeat_with(Weak::new).take(usize::try_from(count).ok()?).collect();
        (count > 0).then_some(Self { site: Site { begin, ..site }, lot_bytes: size.lot_bytes, lots })
    }

    /// Memory for the pool of one channel, if there is any left: `ground` makes of it what its pages lie on.
    fn lot(&mut self, ground: impl FnOnce((Arc<Mapping>, u64)) -> Arc<Ground>) -> Option<Pooled> {
        let at = |lot: usize| self.site.begin + lot as u64 * self.lot_bytes;
        let flights = &self.site.flights;
        let is_free = |lot: usize| self.lots[lot].strong_count() == 0 && flights.is_idle(at(lot), self.lot_bytes);
        let free = (0..self.lots.len()).find(|lot| is_free(*lot))?;
        // SYNC POINT lot: whoever dropped the last handle has used the memory before. To drop it is the release.
        fence(Ordering::Acquire);
        let ground = ground((Arc::clone(&self.site.mapping), at(free)));
        let flights = Arc::clone(flights);
        self.lots[free] = Arc::downgrade(&ground);
        Some(Pooled { ground, flights })
    }
}

/// Where the pages of a channel's pool lie that are sent without a copy, and what of them the kernel has.
#[derive(Debug)]
pub(in super::super) struct Pooled {
    pub(in super::super) ground: Arc<Ground>,
    pub(in super::super) flights: Arc<Flights>,
}

/// What rings have left that were closed: when the kernel has none of it any more.
#[derive(Debug, Default)]
pub(super) struct Closed(Vec<(Instant, Arc<Flights>)>);

impl Closed {
    /// What is left of a ring that is closed now. Those before it may be over: nobody looks as long as no pages are in
    /// use.
    fn push(&mut self, now: Instant, flights: Arc<Flights>) {
        self.tidy(now);
        if flights.all() > 0 {
            self.0.push((now.after(CLOSED_NS), flights));
        }
    }

    /// Forgets those of which the kernel has none any more by now.
    fn tidy(&mut self, now: Instant) {
        for (_, flights) in self.0.extract_if(.., |(at, _)| *at <= now) {
            flights.over();
        }
    }
}

impl Lanes {
    /// A ring was opened: channels that ask for pages from now on have them in its memory.
    pub(super) fn pool_in(&mut self, ring: &dyn Ring, landing: u64) {
        if let Some(pools) = Pools::of(ring, landing, self.pool_size) {
            self.pools = Some(pools);
        }
    }

    /// The ring of this way was closed.
    pub(super) fn pools_are_gone(&mut self, way: u8) {
        if ADAPTERS.get(usize::from(way)) != Some(&Adapter::Xdp) {
            return;
        }
        if let Some(pools) = self.pools.take() {
            self.closed.push(clock::now(), pools.site.flights);
        }
    }

    /// Whether pages of which these parts are counted are sent by this way from where they lie.
    pub(in super::super) fn sends_in_place(&self, way: u8, flights: &Arc<Flights>) -> bool {
        ADAPTERS.get(usize::from(way)) == Some(&Adapter::Xdp)
            && self.pools.as_ref().is_some_and(|pools| Arc::ptr_eq(&pools.site.flights, flights))
    }

    /// Whether the kernel has left frames in a ring with which it goes on only when it is told to.
    fn have_left(&self) -> bool {
        self.rings.iter().flatten().any(|ring| ring.leaves())
    }

    /// Takes in what the kernel says of pages that it has sent, and has it go on with what it has left. An error names
    /// the way of a ring that is of no use any more.
    fn look_after_sent(&mut self) -> Result<(), (u8, io::Error)> {
        self.closed.tidy(clock::now());
        for way in (1..).take(RINGS) {
            if let Some(ring) = &mut self.rings[usize::from(way) - 1] {
                ring.look_after_sent().map_err(|error| (way, error))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
impl Lanes {
    /// How many rings have something left that were closed, or may have.
    pub(in super::super) const fn closed(&self) -> usize {
        self.closed.0.len()
    }
}

impl Core {
    /// Gives the channel the memory for its pool, if it has none yet and a ring has some.
    pub(in super::super) fn find_pool(&mut self, channel: usize) {
        let Some(store) = self.net.memory.get(channel).filter(|store| !store.has_pool()) else { return };
        if let Some(pools) = self.lanes.as_mut().and_then(|lanes| lanes.pools.as_mut())
            && let Some(pooled) = pools.lot(|memory| store.ground_of_pool(memory))
        {
            store.pool_in(pooled);
        }
    }

    /// Gives pages back that have arrived, as far as no ring has a part of them any more, and has rings go on with what
    /// the kernel has left in them.
    pub(in super::super) fn release_pages(&mut self) {
        if !self.looks_after_sent() {
            return;
        }
        if let Some(lanes) = &mut self.lanes
            && let Err((way, why)) = lanes.look_after_sent()
        {
            self.give_up(way, &why);
        }
        self.net.release();
    }

    fn looks_after_sent(&self) -> bool {
        self.net.has_in_use() || self.lanes.as_ref().is_some_and(|lanes| lanes.have_left())
    }

    /// When to look again, if there are pages that have arrived and that a ring may have parts of, or frames that the
    /// kernel has left in one.
    pub(in super::super) fn releases_at(&self) -> Option<Instant> {
        self.looks_after_sent().then(|| clock::now().after(LOOK_NS))
    }
}

#[cfg(test)]
mod tests {
    use cutthrough_segment::map::Writers;

    use super::*;
    use crate::sys::xdp::socket::pages_of;

    /// A pool is given away again when nobody has a page of it and the kernel no part of it; not when one of them has.
    #[test]
    fn a_pool_is_free_when_neither_its_channel_nor_the_kernel_has_any_of_it() {
        let (lot_bytes, begin) = (PAGES_ALIGN, PAGES_ALIGN);
        let (mapping, _file) = Mapping::create("test", 4 * lot_bytes, lot_bytes, Writers::Maker).unwrap();
        let flights = Arc::new(Flights::new(begin, begin + 2 * lot_bytes));
        let site = Site { mapping, begin, end: begin + 2 * lot_bytes, flights: Arc::clone(&flights) };
        let mut pools = Pools { site, lot_bytes, lots: vec![Weak::new(), Weak::new()] };
        let mut lot = || pools.lot(|memory| Ground::new(memory, 4096, Arc::default()));
        let (first, second) = (lot().unwrap(), lot().unwrap());
        assert!(lot().is_none());
        let page = pages_of(first.ground, 16).take(4096).unwrap();
        let at = page.place().offset();
        flights.begin(at + 100);
        assert!(lot().is_none(), "a page of it is left");
        drop(page);
        assert!(lot().is_none(), "the kernel has a part of it");
        flights.end(at + 100);
        let again = pages_of(lot().unwrap().ground, 16).take(4096).unwrap();
        assert_eq!(again.place().offset(), at);
        assert!(lot().is_none());
        drop(second);
        assert!(lot().is_some());
    }

    /// A ring is lost again and again, with parts of pages that the kernel has not sent, or without: what is left of it
    /// is remembered for as long as the kernel may have it.
    #[test]
    fn what_lost_rings_have_left_is_forgotten() {
        let mut closed = Closed::default();
        let mut before: Option<Arc<Flights>> = None;
        for turn in 1..10 {
            let now = Instant::from_nanos(turn * CLOSED_NS);
            let flights = Arc::new(Flights::new(0, 4096));
            flights.begin(0);
            closed.push(now, Arc::clone(&flights));
            assert!(closed.0.len() == 1 && before.is_none_or(|before| before.is_idle(0, 4096)));
            assert!(!flights.is_idle(0, 4096));
            closed.push(now, Arc::new(Flights::new(0, 4096)));
            assert_eq!(closed.0.len(), 1, "of this one the kernel has nothing");
            before = Some(flights);
        }
    }

    /// Several pools have room where they are short, and long ones none: nobody has asked for so much to be locked.
    #[test]
    fn as_many_pools_have_room_as_may_be_locked() {
        let sized = |pool_bytes| Size::of(&Config { pool_bytes, ..Config::default() });
        for (pool_bytes, lots) in [(1, 16), (1 << 20, 16), (3 << 20, 5), (16 << 20, 1), (17 << 20, 0), (64 << 20, 0)] {
            let size = sized(pool_bytes);
            assert_eq!(size.lots, lots, "{pool_bytes} bytes");
            assert!(size.lot_bytes >= pool_bytes && size.lot_bytes.is_multiple_of(PAGES_ALIGN));
        }
        assert_eq!(Size::of(&Config { xdp_mode: Some(Mode::ZeroCopy), ..Config::default() }).lots, 0);
        // Without the right to lock so much, a ring is opened that copies.
        let locked = |pages| Err(XdpError::Locked { bytes: pages });
        let mut asked = std::cell::RefCell::new(Vec::new());
        let refused = sized(1 << 20).open(4096, |pages| {
            asked.borrow_mut().push(pages);
            locked(pages)
        });
        assert!(matches!(refused, Err(XdpError::Locked { bytes: 4096 })));
        assert_eq!(*asked.get_mut(), [4096 + (16 << 20), 4096]);
    }
}
