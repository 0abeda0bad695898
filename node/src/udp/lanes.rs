//! Other ways to the same peers: rings of raw frames beside the socket.
//!
//! Which ways there are is said by the address (`udp:`, `packet:`, `xdp:`, `net:`); which of them a batch goes is
//! decided by [`cutthrough_engine::net::ways`]. A peer needs none of them: whatever way a frame goes, it arrives as a
//! datagram that its socket takes. This side's rings take in what a peer's rings have sent; what its socket has sent
//! comes by the socket (rule N16).

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use cutthrough_engine::net::inbox::Reading;
use cutthrough_engine::net::placing::Means;
use cutthrough_engine::receipt::Adapter;
use cutthrough_engine::time::Instant;
use cutthrough_segment::map::Mapping;
use cutthrough_segment::page::Ground;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::address::{UdpAddressError, Ways};
use super::door::Core;
use super::joined::Joins;
use super::watch;
use crate::clock;
use crate::config::{Config, Placement};
use crate::raw::packet::{PacketRing, has_kernel};
use crate::raw::route::{Interface, RouteError, Routes};
use crate::raw::xdp::cut::can_wait;
use crate::raw::xdp::{PAGES_ALIGN, XdpRing};
use crate::raw::{Ring, RingCounts};
use crate::sys::netlink::Notices;
use crate::sys::xdp::bpf::{Program, Rings};
use crate::sys::xdp::program::{Ours, redirect};
use crate::sys::xdp::{Mode, PATIENCE, XdpError};

mod lane;
mod lots;
pub(super) mod pools;
pub(super) mod reopen;
mod simulated;

use self::lane::Lane;
pub(super) use self::lane::Unsent;
use self::lots::Lots;
use self::pools::{Closed, Pools, Size};
use self::reopen::{Due, Gone};

/// Number of the way whose ring may place payloads.
pub(super) const PLACING: u8 = 2;
/// Frames that are taken from a ring before anything else is looked at.
const FRAMES: usize = 64;
/// Part of a ring that one batch fills at most, so that the next can be written while this one is sent.
const SHARE: usize = 2;

/// The adapters that lead to peers on other machines, by their number as a way.
const ADAPTERS: [Adapter; 3] = [Adapter::Udp, Adapter::Packet, Adapter::Xdp];

/// The adapter of a way.
pub(crate) fn adapter_of(way: u8) -> Adapter {
    ADAPTERS.get(usize::from(way)).copied().unwrap_or_default()
}

/// Why a ring of AF_XDP is not there, where it may be had.
const NOT_ASKED: &str = "net: has it only if it is asked for (Config::net_xdp), because its XDP program concerns all \
    traffic of the interface";

/// Why payloads are copied, where a ring that has them land where they belong could not be given up.
const NO_WAIT: &str =
    "the kernel does not let this process wait until it writes to a ring no more (membarrier, global)";

/// How many of them are rings.
const RINGS: usize = ADAPTERS.len() - 1;

/// An adapter that an endpoint has asked for: whether it is there, and if not, why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The adapter.
    pub adapter: Adapter,
    /// Why it is not used; nothing if it is.
    pub declined: Option<String>,
    /// Why payloads are always copied out of it, where [`Placement::Auto`] would find out what is cheaper; nothing if
    /// they are not, or shall not be.
    pub copies: Option<String>,
}

/// What an endpoint has beside its socket.
#[derive(Debug)]
pub(super) enum Beside {
    /// Rings, or some of them.
    Rings(Box<Lanes>),
    /// Nothing; of each ring that was asked for it says why it is not there.
    Nothing(Vec<Offer>),
}

/// What has gone wrong below the engine.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Troubles {
    /// Calls that the system refused.
    pub(crate) refused_calls: u64,
    /// Trains that were longer than the memory for them.
    pub(crate) cut_trains: u64,
    /// Trains that the system did not take as one, and whose frames went one by one.
    pub(crate) divided_trains: u64,
    /// What the rings have refused or lost.
    pub(crate) rings: RingCounts,
    /// Rings that were given up, and those that were opened again.
    pub(crate) rings_lost: u64,
    pub(crate) rings_reopened: u64,
    /// How often a second socket was joined to a peer.
    pub(crate) joins: Joins,
    /// Datagrams that the sockets had no room for, as far as that is known.
    pub(crate) overruns: u64,
}

/// How a ring tells of frames.
const OF_FRAMES: (u64, epoll::EventFlags) = (0, epoll::EventFlags::IN);

/// The rings of an endpoint.
#[derive(Debug)]
pub(super) struct Lanes {
    ways: Ways,
    routes: Routes,
    local: SocketAddrV4,
    interface: Interface,
    /// The rings, by the number of their way less one.
    rings: [Option<Box<dyn Ring>>; RINGS],
    /// Since when each of them has had no room, and how much that is.
    full: [Option<(Instant, usize)>; RINGS],
    /// Those that were given up; when each was opened last, and the pause before that.
    gone: [Option<Gone>; RINGS],
    opened: [(Instant, u64); RINGS],
    /// What rings had refused or lost that are gone, how many those are, and how many were opened again.
    past: RingCounts,
    lost: u64,
    reopened: u64,
    /// Readable when frames have come, by whatever rings there are, while it tells.
    watch: OwnedFd,
    tells: bool,
    /// The sockets beside the rings.
    sockets: Vec<OwnedFd>,
    /// Whether rings can be opened again here: one that a helper has passed cannot.
    mends: bool,
    /// When the kernel is asked next whether they are of any use.
    checks_at: Instant,
    /// Tells the attendant of rings that are to be opened again.
    due: Arc<Due>,
    lanes: Vec<Option<Lane>>,
    /// When the first of them is to be asked for again, and what the kernel says of changes while one is not known.
    asks_at: Instant,
    notices: Option<Notices>,
    offers: Vec<Offer>,
    placement: Placement,
    /// Whether a ring of AF_XDP is wanted beside others.
    with_xdp: bool,
    /// The queue of such a ring, and how the program at the interface shall run; the best way if nothing is said.
    at: (u32, Option<Mode>),
    /// Whether there is a ring whose payloads land where they belong.
    pub(super) places: bool,
    /// The memory in which they land, and bytes of each channel's part of it.
    lots: Option<Lots>,
    lot_bytes: u64,
    /// Pools in the memory of a ring, those of rings that are gone, and how long they are.
    pools: Option<Pools>,
    closed: Closed,
    pool_size: Size,
}

/// The address of this machine that leads to a peer.
pub(crate) fn source(to: Ipv4Addr, ways: Ways) -> Result<Ipv4Addr, UdpAddressError> {
    let found = Routes::open().map_err(|error| system(to, &error)).and_then(|mut routes| routes.route(None, to));
    match found {
        Ok(route) => Ok(route.source),
        Err(_) if ways == Ways::All => Ok(Ipv4Addr::UNSPECIFIED),
        Err(error) => Err(UdpAddressError::Way { scheme: ways.scheme(), why: error.to_string() }),
    }
}

/// An endpoint's own address, the kernel's word on ways, and the interface that has the address; or why no ring can be
/// there.
fn home(local: SocketAddr, config: &Config) -> Result<(SocketAddrV4, Routes, Interface), String> {
    let SocketAddr::V4(local) = local else { return Err("rings carry IPv4 only, so far".into()) };
    let mut routes = simulated::routes(config).map_err(|error| system(*local.ip(), &error).to_string())?;
    let interface = routes.home(*local.ip()).map_err(|error| error.to_string())?;
    Ok((local, routes, interface))
}

fn system(to: Ipv4Addr, error: &io::Error) -> RouteError {
    let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
    RouteError::System { to, errno }
}

impl Lanes {
    /// Opens the rings that `ways` asks for beside `sockets`, but takes the one that a helper has passed. If one of
    /// them is a must, there is an error without it; else [`Lanes::offers`] says why it is not there.
    pub(super) fn open(
        ways: Ways,
        local: SocketAddr,
        (sockets, passed): (Vec<OwnedFd>, Option<XdpRing>),
        config: &Config,
        due: &Arc<Due>,
    ) -> Result<Beside, UdpAddressError> {
        if ways == Ways::Udp {
            return Ok(Beside::Nothing(Vec::new()));
        }
        let declined = |why: String| UdpAddressError::Way { scheme: ways.scheme(), why };
        let (local, routes, interface) = match home(local, config) {
            Ok(found) => found,
            Err(why) if ways == Ways::All => {
                let offer = |adapter| Offer { adapter, declined: Some(why.clone()), copies: None };
                return Ok(Beside::Nothing([Adapter::Packet, Adapter::Xdp].map(offer).into()));
            }
            Err(why) => return Err(declined(why)),
        };
        let page_bytes = u64::from(config.page_size.bytes());
        let simulated = config.is_simulated();
        let copies = why_copies(ways, passed.is_some(), page_bytes, || simulated || can_wait());
        // Nobody opens another ring while time stands still.
        let copies = copies.or((simulated && config.placement == Placement::Auto).then_some("it is simulated"));
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|errno| declined(errno.to_string()))?;
        let mut lanes = Self {
            ways,
            routes,
            local,
            interface,
            rings: [const { None }; RINGS],
            full: [None; RINGS],
            gone: [const { None }; RINGS],
            opened: [(Instant::default(), 0); RINGS],
            past: RingCounts::default(),
            lost: 0,
            reopened: 0,
            watch,
            tells: true,
            sockets,
            mends: passed.is_none() && !simulated,
            checks_at: Instant::default(),
            due: Arc::clone(due),
            lanes: Vec::new(),
            asks_at: Instant::default(),
            notices: None,
            offers: Vec::new(),
            placement: if copies.is_some() { Placement::Copy } else { config.placement },
            with_xdp: config.net_xdp,
            at: (config.xdp_queue, config.xdp_mode),
            lot_bytes: config.landing_bytes.max(1).next_multiple_of(page_bytes.max(PAGES_ALIGN)),
            lots: None,
            pools: None,
            closed: Closed::default(),
            pool_size: Size::of(config),
            places: false,
        };
        lanes.open_rings(passed).map_err(declined)?;
        if let Some(why) = copies.filter(|_| config.placement != Placement::Copy) {
            lanes.always_copies(why);
        }
        Ok(Beside::Rings(Box::new(lanes)))
    }

    fn open_rings(&mut self, passed: Option<XdpRing>) -> Result<(), String> {
        if let Some(ring) = passed {
            if ring.interface() != self.interface.index {
                return Err(
                    "the leased ring is of another network namespace; start this process in its helper's".into()
                );
            }
            return self.keep(Adapter::Xdp, Ok(Box::new(ring)));
        }
        if matches!(self.ways, Ways::Packet | Ways::All) {
            self.open_plain(Adapter::Packet)?;
        }
        if self.ways == Ways::All && self.with_xdp {
            self.open_plain(Adapter::Xdp)?;
        } else if self.ways == Ways::All {
            self.keep(Adapter::Xdp, Err(NOT_ASKED.into()))?;
        }
        match (self.ways, self.placement) {
            (Ways::Xdp, Placement::HeaderCut) => self.open_placing(),
            (Ways::Xdp, _) => {
                self.open_plain(Adapter::Xdp)?;
                if self.placement == Placement::Auto {
                    self.make_ready();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Opens a ring that has payloads land where they belong.
    fn open_placing(&mut self) -> Result<(), String> {
        let bytes = Lots::bytes_for(self.lot_bytes);
        let opened = match self.open_simulated(true, bytes) {
            Some(opened) => opened,
            None => crate::sys::xdp::Interface::numbered(self.interface.index).and_then(|interface| {
                let open = |pages| XdpRing::open_placing(&interface, self.local, self.at.0, self.at.1, pages);
                self.pool_size.open(bytes, open)
            }),
        };
        let opened = opened.map(|mut ring| {
            self.lots = Some(Lots::of(&mut ring, self.lot_bytes));
            Box::new(ring) as _
        });
        self.places = opened.is_ok();
        self.keep(Adapter::Xdp, opened.map_err(|error| error.to_string()))
    }

    /// Sees to it that the ring can be exchanged later for one that has payloads land where they belong, or says why it
    /// cannot.
    fn make_ready(&mut self) {
        if self.rings.iter().flatten().any(|ring| ring.is_zero_copy()) {
            return self.always_copies("the driver itself writes what comes to the ring (zero-copy mode)");
        }
        let interface = crate::sys::xdp::Interface::numbered(self.interface.index);
        match interface.and_then(|interface| Lots::reserve(&interface, self.lot_bytes)) {
            Ok(lots) => self.lots = Some(lots),
            Err(why) => self.always_copies(&why.to_string()),
        }
    }

    /// By which means payloads of the ring of AF_XDP can be placed.
    pub(super) fn means(&self) -> Means {
        match &self.lots {
            Some(lots) if lots.has_reserve() => [Means::Later, Means::Here][usize::from(self.places)],
            Some(_) if self.places => Means::Always,
            _ => Means::None,
        }
    }

    fn always_copies(&mut self, why: &str) {
        self.lots = None;
        for offer in self.offers.iter_mut().filter(|offer| offer.adapter == Adapter::Xdp) {
            offer.copies = Some(why.to_owned());
        }
    }

    /// Opens a ring from which payloads are copied.
    fn open_plain(&mut self, adapter: Adapter) -> Result<(), String> {
        if let Some(opened) = self.open_simulated(false, 0) {
            let opened = opened.map(|ring| Box::new(ring) as _).map_err(|error| error.to_string());
            return self.keep(adapter, opened);
        }
        let sockets = reopen::again(&self.sockets).map_err(|error| error.to_string())?;
        let opened = plain_ring(adapter, sockets, self.local, &self.interface, (self.at, self.pool_size), PATIENCE);
        self.keep(adapter, opened)
    }

    fn keep(&mut self, adapter: Adapter, opened: Result<Box<dyn Ring>, String>) -> Result<(), String> {
        let declined = match opened {
            Ok(ring) => self.put_in(adapter, ring).err().map(|error| error.to_string()),
            Err(why) => Some(why),
        };
        if let Some(why) = declined.as_ref().filter(|_| self.ways != Ways::All) {
            return Err(why.clone());
        }
        self.offers.push(Offer { adapter, declined, copies: None });
        Ok(())
    }

    /// Has frames of this ring taken in from now on, and what it carries sent by it.
    fn put_in(&mut self, adapter: Adapter, mut ring: Box<dyn Ring>) -> io::Result<()> {
        let Some(at) = ring_of(adapter) else { return Ok(()) };
        if self.tells {
            watch::tell(&self.watch, ring.watched(), OF_FRAMES, true)?;
        }
        ring.leave_padding();
        let landing = match &self.lots {
            _ if ring.placing().is_none() => Some(0),
            // Behind what it has locked of them there are more.
            Some(lots) if lots.has_reserve() => None,
            _ => Some(Lots::bytes_for(self.lot_bytes)),
        };
        landing.into_iter().for_each(|landing| self.pool_in(&*ring, landing));
        (self.rings[at], self.full[at]) = (Some(ring), None);
        self.opened[at].0 = clock::now();
        Ok(())
    }

    /// The ring whose payloads land where they belong, if there is one.
    #[inline]
    pub(super) fn placing(&mut self) -> Option<&mut XdpRing> {
        if !self.places {
            return None;
        }
        self.rings.iter_mut().flatten().find_map(|ring| ring.placing())
    }

    /// Why the ring that was asked for is of no use any more.
    pub(super) fn broken(&self) -> Option<String> {
        self.rings.iter().flatten().find_map(|ring| ring.broken())
    }

    /// Memory in which payloads land where they belong, as the landing memory of one channel, if there is any left:
    /// `grounds` makes of it what the channel holds, and all that lands there.
    pub(super) fn lot(
        &mut self,
        grounds: impl FnOnce((Arc<Mapping>, u64)) -> [Arc<Ground>; 2],
    ) -> Option<[Arc<Ground>; 2]> {
        let usable = self.places || self.lots.as_ref().is_some_and(Lots::has_reserve);
        self.lots.as_mut().filter(|_| usable)?.take(grounds)
    }

    /// Which adapters there are, and why others are not.
    pub(super) fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// Bytes of a batch at most, for each way.
    pub(super) fn limits(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let rings = (1..).zip(&self.rings);
        rings.filter_map(|(way, ring)| {
            let ring = ring.as_ref()?;
            Some((way, ring.slots() / SHARE * ring.body_max()))
        })
    }

    /// Bytes that may lie in the rings before they are received.
    pub(super) fn holds(&self) -> usize {
        self.rings.iter().flatten().map(|ring| ring.holds() * ring.body_max()).sum()
    }

    /// Whether [`Lanes::watched`] tells of frames from now on; those that have come before are frames.
    ///
    /// # Errors
    /// As the kernel says.
    pub(super) fn tell(&mut self, on: bool) -> Result<(), Errno> {
        self.tells = false;
        for ring in self.rings.iter().flatten() {
            watch::tell(&self.watch, ring.watched(), OF_FRAMES, on)?;
        }
        self.tells = on;
        Ok(())
    }

    /// Readable when frames have come, while it tells of them.
    pub(super) fn watched(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Whether there are any.
    pub(super) fn has_rings(&self) -> bool {
        self.rings.iter().any(Option::is_some)
    }

    /// Whether frames have come.
    #[inline]
    pub(super) fn has_frames(&self) -> bool {
        self.rings.iter().flatten().any(|ring| ring.has_frames())
    }

    /// What the rings have refused or lost, those that are gone too.
    pub(super) fn counts(&mut self) -> RingCounts {
        let mut all = self.past;
        self.rings.iter_mut().flatten().for_each(|ring| all.add(ring.counts()));
        all
    }

    /// How many rings were given up, and how many were opened again.
    pub(super) const fn turnover(&self) -> (u64, u64) {
        (self.lost, self.reopened)
    }
}

/// Why payloads are always copied out of the ring of AF_XDP that an endpoint may have, if they are: a ring that a
/// helper has passed, or one with pages of so many bytes. `can_wait` says whether such a ring could be given up.
fn why_copies(ways: Ways, passed: bool, page_bytes: u64, can_wait: impl FnOnce() -> bool) -> Option<&'static str> {
    match ways {
        _ if passed => Some("a leased ring is opened for copies"),
        // Longer pages could not lie in the memory of a ring.
        _ if page_bytes > PAGES_ALIGN => Some("pages of 2 MiB do not lie in the memory of a ring"),
        Ways::All => Some("net: has its ring of AF_XDP for short messages"),
        Ways::Xdp if !can_wait() => Some(NO_WAIT),
        _ => None,
    }
}

/// The place of a ring among the rings.
fn ring_of(adapter: Adapter) -> Option<usize> {
    ADAPTERS.iter().position(|known| *known == adapter).and_then(|way| way.checked_sub(1))
}

/// Opens a ring of this adapter beside `sockets`, from which payloads are copied, in the network namespace of the
/// calling thread; one of AF_XDP with memory for pools of this size, and `patience` where another one has just been.
pub(super) fn plain_ring(
    adapter: Adapter,
    sockets: Vec<OwnedFd>,
    local: SocketAddrV4,
    interface: &Interface,
    (at, pools): ((u32, Option<Mode>), Size),
    patience: Duration,
) -> Result<Box<dyn Ring>, String> {
    if adapter == Adapter::Packet {
        let opened = PacketRing::open(sockets, local, interface);
        return opened.map(|ring| Box::new(ring) as _).map_err(|error| error.to_string());
    }
    let found = crate::sys::xdp::Interface::numbered(interface.index);
    let opened =
        found.and_then(|interface| pools.open(0, |pages| XdpRing::open_within(&interface, local, at, pages, patience)));
    opened.map(|ring| Box::new(ring) as _).map_err(|error| error.to_string())
}

impl Core {
    /// Takes frames in that have come by rings. True if any have.
    pub(super) fn take_rings(&mut self, reading: Option<(usize, &mut Reading<'_>)>) -> bool {
        let Some(lanes) = self.lanes.as_mut().filter(|lanes| lanes.has_frames()) else { return false };
        let (now, net) = (clock::again(), &mut self.net);
        let mut reading = reading;
        let mut taken = 0;
        for (way, ring) in (1_u8..).zip(&mut lanes.rings) {
            let Some(ring) = ring else { continue };
            if ring.placing().is_some() {
                continue;
            }
            net.came_by(way);
            taken += ring.receive(FRAMES, &mut |from, datagram| {
                let reading = reading.as_mut().map(|(channel, reading)| (*channel, &mut **reading));
                net.frame_in_one_piece(now, from, datagram, reading);
            });
        }
        net.came_by(0);
        taken += self.take_placed(reading, FRAMES);
        if self.net.placing.has_landed() {
            self.net.placing.judge(clock::now());
        }
        taken > 0
    }

    /// The rest of what the rings need from time to time.
    pub(super) fn tend_lanes(&mut self, now: Instant) {
        let Some(lanes) = &mut self.lanes else { return };
        let quiet = lanes.give_up_failed(now);
        self.ring_is_gone(quiet);
        let Some(lanes) = &mut self.lanes else { return };
        let (net, socket) = (&mut self.net, &self.socket);
        lanes.leave_all_but(now, |channel| net.peer(channel).is_some());
        lanes.look_after(now, |channel, usable, peer| {
            net.set_ways(channel, usable);
            // Frames of rings do not show the kernel that a neighbour is there; a datagram without bytes does.
            let _ = peer.map(|peer| socket.send(Some(peer), &[], None));
        });
    }
}

/// What the kernel lets this process do towards an adapter: each thing tried, and what it said.
#[must_use]
pub fn probe(adapter: Adapter) -> Vec<(&'static str, Result<(), String>)> {
    let socket = |family| {
        let flags = SocketFlags::CLOEXEC;
        let opened = socket_with(family, SocketType::RAW, flags, None).map(drop);
        opened.map_err(|errno| match errno {
            Errno::PERM | Errno::ACCESS if family == AddressFamily::XDP => {
                XdpError::Privilege { what: "a ring", right: "CAP_NET_RAW" }.to_string()
            }
            Errno::PERM | Errno::ACCESS => {
                "needs the right CAP_NET_RAW in this network namespace: be root, or try 'unshare -Urn'".to_owned()
            }
            errno => errno.to_string(),
        })
    };
    let program = || {
        let rings = Rings::new(1)?;
        let nowhere = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9);
        Program::load(&redirect(&Ours { local: nowhere, frame_max: 1514, of_rings: true }, rings.number())).map(drop)
    };
    match adapter {
        Adapter::Packet => vec![
            ("kernel for raw frames", has_kernel().map_err(|error| error.to_string())),
            ("AF_PACKET socket", socket(AddressFamily::PACKET)),
        ],
        Adapter::Xdp => vec![
            ("AF_XDP socket", socket(AddressFamily::XDP)),
            ("XDP program", program().map_err(|error: XdpError| error.to_string())),
        ],
        Adapter::Shm | Adapter::Udp => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_could_not_be_given_up_copies() {
        let why = |ways, can_wait| why_copies(ways, false, PAGES_ALIGN, || can_wait);
        assert_eq!((why(Ways::Xdp, true), why(Ways::Xdp, false)), (None, Some(NO_WAIT)));
        assert_eq!(why(Ways::Packet, false), None);
        assert_ne!(why_copies(Ways::Xdp, true, PAGES_ALIGN, || false), Some(NO_WAIT));
        assert_ne!(why_copies(Ways::Xdp, false, 2 * PAGES_ALIGN, || false), Some(NO_WAIT));
    }
}
