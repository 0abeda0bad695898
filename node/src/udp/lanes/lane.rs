//! The way to each peer by the rings.
//!
//! The kernel is asked for it, and asked again: every few seconds where one is known, since neighbours change their
//! hardware addresses; where none is known first after 5 ms, then after twice as long each time. Somebody who never is
//! beyond a ring's interface costs next to nothing so. While there are such peers, the kernel's own notices of changes
//! are looked at ten times a second, and after one of them all of those are asked for again.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, SocketAddrV4};

use cutthrough_engine::time::Instant;

use super::super::address::Ways;
use super::Lanes;
use crate::clock;
use crate::raw::Hop;
use crate::raw::route::RouteError;
use crate::sys::netlink::Notices;

/// Nanoseconds after which the way to a peer is asked for again: because it was not known, at first; and because it may
/// have changed, or was not known for long.
const UNKNOWN_NS: u64 = 5_000_000;
const KNOWN_NS: u64 = 5_000_000_000;
/// Nanoseconds between two looks at whether anything has changed.
const NOTICES_NS: u64 = 100_000_000;
/// Nanoseconds after which a ring without room, of which the kernel has taken nothing meanwhile, is taken to lead
/// nowhere: nobody is at the other end of the wire, perhaps.
const BLOCKED_NS: u64 = 5_000_000;

/// The way to one peer, by the rings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lane {
    peer: SocketAddrV4,
    pub(super) hop: Option<Hop>,
    /// Whether it leads by the rings' interface, though the neighbour's hardware address may not be known.
    here: bool,
    asked: Instant,
    /// Nanoseconds after which it is asked for again, if it is not known.
    pause: u64,
}

impl Lane {
    fn to(peer: SocketAddrV4) -> Self {
        Self { peer, hop: None, here: false, asked: Instant::default(), pause: 0 }
    }

    /// When to ask for it again.
    fn asks_at(&self) -> Instant {
        self.asked.after(if self.hop.is_some() { KNOWN_NS } else { self.pause })
    }

    /// The kernel was asked for it.
    fn answered(&mut self, now: Instant, hop: Option<Hop>, here: bool) {
        self.pause = if hop.is_some() { 0 } else { (2 * self.pause).clamp(UNKNOWN_NS, KNOWN_NS) };
        (self.hop, self.here, self.asked) = (hop, here, now);
    }

    /// Has it asked for at once, and soon again. The interface may be another one, and what the kernel knew of its
    /// neighbours is gone with it.
    pub(super) fn forget(&mut self) {
        *self = Self::to(self.peer);
    }
}

/// Why a batch was not sent by a ring.
#[derive(Debug)]
pub(in super::super) enum Unsent {
    /// No way leads to this peer by that ring, as far as is known now, or this batch does not fit there.
    Elsewhere,
    /// Its frames are longer than the ring takes.
    TooLong,
    /// The ring has had no room for long.
    Blocked,
    /// The ring is of no use any more.
    Failed(io::Error),
}

impl Unsent {
    /// What an error of a ring means: invalid input, without a number of the kernel's, is about the batch alone.
    fn of(error: io::Error, too_long: bool) -> Self {
        let ours = error.raw_os_error().is_none() && error.kind() == io::ErrorKind::InvalidInput;
        match (ours, too_long) {
            (true, true) => Self::TooLong,
            (true, false) => Self::Elsewhere,
            (false, _) => Self::Failed(error),
        }
    }
}

impl Lanes {
    /// A channel to `peer` has been opened, or its way has failed: which ways lead there, a bit for each.
    pub(in super::super) fn join(&mut self, channel: usize, peer: SocketAddr) -> u8 {
        if self.lanes.len() <= channel {
            self.lanes.resize(channel + 1, None);
        }
        let SocketAddr::V4(peer) = peer else {
            self.lanes[channel] = None;
            return 1;
        };
        let lane = self.lanes[channel].filter(|lane| lane.peer == peer).unwrap_or_else(|| Lane::to(peer));
        self.lanes[channel] = Some(self.ask(lane));
        self.usable(channel)
    }

    fn ask(&mut self, mut lane: Lane) -> Lane {
        let (hop, here) = match self.routes.hop(self.local, lane.peer) {
            Ok((interface, hop)) if interface.index == self.interface.index => (Some(hop), true),
            // Of another interface the rings know nothing.
            Ok(_) => (None, false),
            Err(error) => (None, matches!(error, RouteError::Unresolved(_))),
        };
        lane.answered(clock::now(), hop, here);
        self.asks_at = self.asks_at.min(lane.asks_at());
        lane
    }

    /// The ways that lead to the peer of a channel, a bit for each: where a ring is a must, no others.
    fn usable(&self, channel: usize) -> u8 {
        if self.lanes.get(channel).copied().flatten().is_none_or(|lane| lane.hop.is_none()) {
            return 1;
        }
        let rings = (1..).zip(&self.rings).filter(|(_, ring)| ring.is_some());
        let rings = rings.fold(0, |bits, (way, _)| bits | 1 << way);
        if self.ways == Ways::All || rings == 0 { rings | 1 } else { rings }
    }

    /// Whether a channel goes the ways that its endpoint's address asks for.
    pub(in super::super) fn is_as_asked(&self, channel: usize) -> bool {
        self.ways == Ways::All || self.usable(channel) != 1
    }

    /// Forgets a channel.
    pub(in super::super) fn leave(&mut self, channel: usize) {
        if let Some(lane) = self.lanes.get_mut(channel) {
            *lane = None;
        }
    }

    /// Forgets channels that are over, before they are asked for again: nobody is told of the end of one that was
    /// closed here, or of a call that has failed.
    pub(super) fn leave_all_but(&mut self, now: Instant, mut is_there: impl FnMut(usize) -> bool) {
        if now < self.asks_at {
            return;
        }
        for (channel, lane) in self.lanes.iter_mut().enumerate() {
            lane.take_if(|_| !is_there(channel));
        }
    }

    /// Asks again for ways that are not known, or have been for long. `each` gets the number of a channel whose ways
    /// may have changed, and a peer to which the socket should send something, so that the kernel looks after its
    /// address.
    pub(super) fn look_after(&mut self, now: Instant, mut each: impl FnMut(usize, u8, Option<SocketAddr>)) {
        if now < self.asks_at {
            return;
        }
        let changed = self.notices.as_mut().is_some_and(Notices::any);
        self.asks_at = Instant::from_nanos(u64::MAX);
        let mut unknown = false;
        for channel in 0..self.lanes.len() {
            let Some(mut lane) = self.lanes[channel] else { continue };
            if now >= lane.asks_at() || changed && lane.hop.is_none() {
                lane = self.ask(lane);
                self.lanes[channel] = Some(lane);
                each(channel, self.usable(channel), lane.here.then_some(lane.peer.into()));
            }
            self.asks_at = self.asks_at.min(lane.asks_at());
            unknown |= lane.hop.is_none();
        }
        if !unknown {
            self.notices = None;
            return;
        }
        // Without them it takes longer.
        if self.notices.is_none() {
            self.notices = Notices::open().ok();
        }
        self.asks_at = self.asks_at.min(now.after(NOTICES_NS));
    }

    /// Sends a batch by a ring. False if there is no room now. `borrowed` is there if some of its parts are pages that
    /// may be sent from where they lie: it is memory that may not.
    pub(in super::super) fn send(
        &mut self,
        channel: usize,
        way: u8,
        (parts, segment): (&[IoSlice<'_>], usize),
        borrowed: Option<&[u8]>,
    ) -> Result<bool, Unsent> {
        let hop = self.lanes.get(channel).copied().flatten().and_then(|lane| lane.hop);
        let at = usize::from(way).wrapping_sub(1);
        let ring = self.rings.get_mut(at).and_then(Option::as_mut);
        let (Some(hop), Some(ring)) = (hop, ring) else { return Err(Unsent::Elsewhere) };
        let sent = match borrowed {
            Some(borrowed) => ring.send_pages(&hop, parts, segment, borrowed),
            None => ring.send(&hop, parts, segment),
        };
        let sent = sent.map_err(|error| Unsent::of(error, segment > ring.body_max()))?;
        if sent {
            self.full[at] = None;
            return Ok(true);
        }
        let (now, room) = (clock::now(), ring.room());
        let full = self.full[at].filter(|(_, before)| *before == room).unwrap_or((now, room));
        self.full[at] = Some(full);
        if now.saturating_since(full.0) > BLOCKED_NS { Err(Unsent::Blocked) } else { Ok(false) }
    }
}

#[cfg(test)]
impl Lanes {
    /// How often the kernel was asked.
    pub(in super::super) const fn asked(&self) -> u32 {
        self.routes.asked()
    }

    /// See [`Lanes::usable`].
    pub(in super::super) fn ways_of(&self, channel: usize) -> u8 {
        self.usable(channel)
    }

    /// As if the kernel had no way to the peer of a channel any more.
    pub(in super::super) fn lose_way(&mut self, channel: usize) {
        self.lanes[channel].iter_mut().for_each(Lane::forget);
    }
}
