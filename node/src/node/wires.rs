//! Channels to other machines, as the node knows them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::time::Duration;

use cutthrough_engine::check::Breach;
use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::net::Tally;
use cutthrough_engine::net::inbox::{Ready, ReadyPayload};
use cutthrough_engine::receipt::{Path, Receipt};
use cutthrough_seal::PublicKey;
use cutthrough_segment::ring::Control;

use super::left::Kept;
use super::others::Others;
use super::{ConnectError, NET, Node, Seat};
use crate::clock;
use crate::incoming::{Channel, Completion, Event, Incoming, Payload};
use crate::parcel::Parcel;
use crate::shm::link::{CloseReason, Link, SendError};
use crate::shm::receive::ReadError;
use crate::stat::{Cell, Stat};
use crate::udp::address::{self, UdpAddressError, Ways};
use crate::udp::lanes::{self, Offer};
use crate::udp::line::{reason, receipt};
use crate::udp::{Happened, Leaves, Names, Stores, Told, Troubles, Udp};

/// Events that are taken from the network side at a time.
const EVENTS: usize = 64;

impl Node {
    /// The network side, bound to `address`.
    fn open_net(&mut self, (ways, address): (Ways, SocketAddr)) -> Result<(), UdpAddressError> {
        if self.config.keys.is_none() && !self.config.insecure {
            return Err(UdpAddressError::NoKey);
        }
        let refused = |error| UdpAddressError::Socket { address, error };
        let udp = Udp::open((ways, address), &self.config, self.generation, &self.waker)?;
        udp.tells(self.sleepers.as_fd(), NET).map_err(refused)?;
        udp.has_others(self.seats.len() - self.free_seats.len());
        self.net = Some(Box::new(udp));
        Ok(())
    }

    /// A seat for a channel of this machine. The network side has one less to give away, and knows how many it has
    /// given to callers of whom nobody here knows yet.
    pub(super) fn take_seat_here(&mut self) -> Option<u32> {
        if self.net.as_ref().is_some_and(|net| !net.take_other()) {
            return None;
        }
        let seat = self.take_seat();
        if let (None, Some(net)) = (seat, &self.net) {
            net.free_other();
        }
        seat
    }

    /// The seat of a channel of this machine is free again.
    pub(super) fn free_seat_here(&mut self, seat: u32) {
        self.free_seats.push(seat);
        if let Some(net) = &self.net {
            net.free_other();
        }
    }

    /// Lets peers in at `udp:HOST:PORT`, or at an address of other adapters.
    pub(super) fn listen_net(&mut self, address: &str) -> Result<(), UdpAddressError> {
        let (ways, socket) = address::parse_own(address)?;
        // Any port is the one that it has.
        let is_there = |net: &Udp| {
            let local = net.local();
            net.ways() == ways && (local == socket || (local.ip(), 0) == (socket.ip(), socket.port()))
        };
        if !self.net.as_ref().is_some_and(|net| is_there(net)) {
            let has_channels = |net: &Udp| !net.is_idle() || self.seats.iter().any(|seat| seat.net.is_some());
            if let Some(net) = self.net.as_ref().filter(|net| has_channels(net)) {
                return Err(UdpAddressError::Bound(net.local()));
            }
            // If there is no other, the one before stays.
            self.show_net();
            self.open_net((ways, socket))?;
            self.net_shown = [0; SHOWN];
        }
        if let Some(net) = &self.net {
            net.listen().map_err(|error| UdpAddressError::Socket { address: socket, error })?;
        }
        // Where the kernel has chosen the port, that one is the name by which others find it.
        let chosen = self.net_address().filter(|_| socket.port() == 0).map(|local| local.port());
        match (address.strip_suffix(":0"), chosen) {
            (Some(host), Some(port)) => self.stat.set_name(&format!("{host}:{port}")),
            _ => self.stat.set_name(address),
        }
        Ok(())
    }

    /// Where this node can be reached over a network, once it listens there or has connected.
    #[must_use]
    pub fn net_address(&self) -> Option<SocketAddr> {
        self.net.as_ref().map(|net| net.local())
    }

    /// Which adapters beside the socket the network side has been asked for: whether each is there, and if not, why.
    #[must_use]
    pub fn net_offers(&self) -> Vec<Offer> {
        self.net.as_ref().map(|net| net.offers()).unwrap_or_default()
    }

    pub(super) fn connect_net(&mut self, address: &str, timeout: Duration) -> Result<Channel, ConnectError> {
        let address = address::all_numbers(address)?.from(self.net_address());
        let (net, socket, peer) = self.net_to(&address)?;
        let index = net.call(socket, peer, timeout)?;
        self.seat_net(index).ok_or(ConnectError::Channels(self.config.channels))
    }

    /// Begins to open a channel over a network: its number there.
    pub(super) fn begin_connect_net(&mut self, address: &str) -> Result<usize, ConnectError> {
        let (net, socket, peer) = self.net_to(address)?;
        Ok(net.begin_call(socket, peer)?)
    }

    /// The network side, opened if need be, for a call of `address`; and whom that names.
    fn net_to(&mut self, address: &str) -> Result<(&Udp, SocketAddr, Option<PublicKey>), UdpAddressError> {
        let (address, peer) = address::named(address)?;
        let (ways, socket) = address::parse_peer(address)?;
        match &self.net {
            Some(net) if net.ways() != ways => return Err(UdpAddressError::OtherWays(net.ways().scheme())),
            Some(_) => {}
            None => {
                let any = match socket {
                    // Rings belong to the address of one interface.
                    SocketAddr::V4(to) if ways != Ways::Udp => (lanes::source(*to.ip(), ways)?, 0).into(),
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                self.open_net((ways, any))?;
            }
        }
        let net = self.net.as_deref().expect("it was opened");
        Ok((net, address::as_reached(socket, net.local()), peer))
    }

    /// A seat for a channel of the network side.
    pub(super) fn seat_net(&mut self, index: usize) -> Option<Channel> {
        let Some(seat) = self.take_seat() else {
            if let Some(net) = &self.net {
                net.close(index);
            }
            return None;
        };
        let channel = Channel::name(seat);
        let place = &mut self.seats[seat as usize];
        place.life = channel.life;
        (place.net, place.ended) = (Some(index), None);
        self.names.set(index, Some(channel));
        let row = seat as usize;
        self.stat.clear(row);
        if let Some(identity) = self.net.as_ref().and_then(|net| net.identity(index)) {
            self.stat.set(row, Cell::Peer, u64::from(identity.process));
            self.stat.set(row, Cell::User, u64::from(identity.user));
        }
        self.stat.set(row, Cell::Opened, clock::now().as_nanos() / 1_000_000);
        self.stat.set(row, Cell::Open, 1);
        self.stat.add(Counter::ChannelsOpened, 1);
        Some(channel)
    }

    /// The network side and a channel's number there, if it is one of those.
    #[inline]
    pub fn wire(&self, channel: Channel) -> Option<(&Udp, usize)> {
        let seat = self.seats.get(channel.index as usize)?;
        match (seat.net, &self.net) {
            (Some(index), Some(net)) if seat.life == channel.life => Some((net, index)),
            _ => None,
        }
    }

    /// As [`Node::wire`], for operations that may wait in the middle; with the channels over shared memory, which such
    /// a wait looks after.
    pub fn wire_to_wait(&mut self, channel: Channel) -> Option<(&Udp, usize, Others<'_>, &Stat)> {
        let seat = self.seats.get(channel.index as usize)?;
        match (seat.net, &self.net) {
            (Some(index), Some(net)) if seat.life == channel.life => {
                let others = Others::new((&mut self.seats, &mut []), &mut self.awake, None);
                Some((net, index, others, &self.stat))
            }
            _ => None,
        }
    }

    /// Counts a send that was refused.
    pub fn refused(&self, error: SendError) {
        if error == SendError::Full {
            self.stat.add(Counter::Full, 1);
        }
    }

    /// Sends what waits for company on its way to other machines.
    pub fn flush(&self) {
        if let Some(net) = &self.net {
            net.flush();
        }
    }

    /// Forgets the channel of a seat.
    pub(super) fn remove_net(&mut self, seat: u32, reason: CloseReason) {
        let Some(place) = self.seats.get_mut(seat as usize) else { return };
        let Some(index) = place.net.take() else { return };
        place.ended = Some(reason);
        if let Some(net) = &self.net {
            net.retire(index);
        }
        self.names.set(index, None);
        self.stat.set(seat as usize, Cell::Open, 0);
        self.stat.add(Counter::ChannelsClosed, 1);
        self.free_seats.push(seat);
    }

    /// Looks at the network: what has happened there is put where [`Node::poll`] takes events from.
    pub(super) fn turn_net(&mut self) -> Option<Event> {
        // One that comes alone does not go through the queue.
        let mut first = None;
        loop {
            let net = self.net.as_ref()?;
            let (names, stat, events) = (&self.names, &self.stat, &mut self.events);
            let other = net.turn(EVENTS, |stores, told| {
                let is_first = first.is_none() && events.is_empty();
                match told {
                    // Where many come, most are of this kind. Each is written at once to where it is taken from: what
                    // was written in parts elsewhere cannot be moved at once.
                    Told::Message(index, message) if !is_first && matches!(message.payload, ReadyPayload::None) => {
                        if let Some(channel) = names.get(index) {
                            events.push_back(Event::Message(plain(channel, message, net.is_sealed())));
                        }
                    }
                    told => {
                        let event = told_of(told, stores, names, stat, net.is_sealed());
                        if is_first {
                            first = event;
                        } else {
                            events.extend(event);
                        }
                    }
                }
            });
            let Some(other) = other else { break };
            let event = self.came(*other);
            self.events.extend(event);
        }
        self.alternation.looked(self.polls, self.events.len());
        if first.is_none() {
            return self.next_told();
        }
        if let Some(net) = &self.net {
            net.leaves(!self.events.is_empty());
        }
        first
    }

    /// The next of the events that were told together.
    pub(super) fn next_told(&mut self) -> Option<Event> {
        if let Some(net) = &self.net {
            net.leaves(self.events.len() > 1);
        }
        // At last, so that it is moved once, from where it lies to who asks.
        self.events.pop_front()
    }

    /// A channel has begun, or ended.
    fn came(&mut self, event: Happened) -> Option<Event> {
        match event {
            Happened::Opened(index) => self.seat_net(index).map(Event::Opened),
            Happened::Answered(index, answer) => self.net_answered(index, answer),
            Happened::Closed(index, ending, leaves) => {
                let (channel, why) = (self.names.get(index)?, reason(ending));
                if let Some(Leaves { shelf, payloads, grants }) = leaves {
                    let sealed = self.net.as_ref().is_some_and(|net| net.is_sealed());
                    let payloads = payloads.into_iter().map(|left| Kept::of_net(left, sealed)).collect();
                    self.left.keep(channel, shelf, payloads);
                    self.left.keep_grants(channel, grants);
                }
                match why {
                    CloseReason::Breach(breach) => self.stat.add(breach.counter(), 1),
                    CloseReason::Died => self.stat.add(Counter::PeersDied, 1),
                    CloseReason::Here | CloseReason::Peer | CloseReason::Stalled => {}
                }
                self.remove_net(channel.index, why);
                Some(Event::Closed(channel, why))
            }
            // Told by the turn, where they lie.
            Happened::Message(..) | Happened::Completed(..) => None,
        }
    }

    /// [`Node::read`] of a payload that comes over a network.
    pub(super) fn read_net(&self, message: &mut Incoming, into: &mut [u8]) -> Result<Receipt, ReadError> {
        let channel = message.channel();
        let Some((net, index)) = self.wire(channel) else { return Err(ReadError::Closed(self.ending_of(channel))) };
        let sealed = net.is_sealed();
        let Some(arrived) = message.cargo_mut() else { return Err(ReadError::Nothing) };
        let Payload::Arriving(arriving) = &mut arrived.payload else { return Err(ReadError::Nothing) };
        let story = net.read(index, arriving.ticket, into)?;
        arriving.shelf = None;
        arrived.payload = Payload::None;
        arrived.receipt = receipt(&story, Path::Wire, sealed, clock::again());
        Ok(arrived.receipt)
    }

    /// [`Node::read_some`] of a payload that comes over a network.
    pub(super) fn read_some_net(&self, message: &mut Incoming, into: &mut [u8]) -> Result<usize, ReadError> {
        let channel = message.channel();
        let Some((net, index)) = self.wire(channel) else { return Err(ReadError::Closed(self.ending_of(channel))) };
        let sealed = net.is_sealed();
        let Some(arrived) = message.cargo_mut() else { return Err(ReadError::Nothing) };
        let Payload::Arriving(arriving) = &mut arrived.payload else { return Err(ReadError::Nothing) };
        let bytes = arriving.bytes as usize;
        let into = into.get_mut(..bytes).ok_or(ReadError::TooSmall(bytes))?;
        let (valid, story) = net.read_some(index, arriving.ticket, into, arriving.valid)?;
        arriving.valid = valid;
        if let Some(story) = story {
            arriving.shelf = None;
            arrived.payload = Payload::None;
            arrived.receipt = receipt(&story, Path::Wire, sealed, clock::again());
        }
        Ok(valid)
    }

    fn ending_of(&self, channel: Channel) -> CloseReason {
        let seat = self.seats.get(channel.index as usize).filter(|seat| seat.life == channel.life);
        seat.and_then(|seat| seat.ended).unwrap_or(CloseReason::Here)
    }

    /// Shows channels and counters of the network side.
    pub(super) fn show_net(&mut self) {
        let Some(net) = &self.net else { return };
        net.tidy();
        for (row, Seat { net: index, .. }) in self.seats.iter().enumerate() {
            let Some(counts) = index.and_then(|index| net.counts(index)) else { continue };
            let cells = [
                Cell::Sent,
                Cell::Acknowledged,
                Cell::Received,
                Cell::PayloadSent,
                Cell::PayloadReceived,
                Cell::Posted,
            ];
            for (cell, value) in cells.into_iter().zip(counts) {
                self.stat.set(row, cell, value);
            }
        }
        let (tally, troubles) = net.tally();
        let now = shown(&tally, &troubles);
        for ((counter, value), before) in now.iter().zip(&mut self.net_shown) {
            self.stat.add(*counter, value - *before);
            *before = *value;
        }
    }
}

/// A message without a payload, as the user gets it.
#[inline(always)]
fn plain<P>(channel: Channel, message: &Ready<P>, sealed: bool) -> Incoming {
    let by = (lanes::adapter_of(message.way), sealed);
    Incoming::by_wire(channel, message.control_len, Control::from_bytes(&message.control), by)
}

/// A message, or a completion, as the user gets it.
#[inline]
fn told_of(told: Told<'_>, stores: &mut Stores, names: &Names, stat: &Stat, sealed: bool) -> Option<Event> {
    match told {
        Told::Message(index, message) => {
            let channel = names.get(index)?;
            if matches!(message.payload, ReadyPayload::None) {
                return Some(Event::Message(plain(channel, message, sealed)));
            }
            let payload = std::mem::replace(&mut message.payload, ReadyPayload::None);
            let Some(arrived) = stores.hand_over(index, payload, sealed) else {
                return Some(Event::Message(plain(channel, message, sealed)));
            };
            let control = Control::from_bytes(&message.control);
            stat.add(Counter::PayloadBytesReceived, arrived.receipt.bytes);
            if let Payload::Dropped(refused) = &arrived.payload {
                Link::count_refused(stat, *refused);
            }
            Some(Event::Message(Incoming::loaded(
                channel,
                message.control_len,
                control,
                Parcel::fill(Parcel::memory(), arrived),
            )))
        }
        Told::Completed(index, cookie) => Some(Event::Completed(Completion { channel: names.get(index)?, cookie })),
    }
}

/// How many counters of the network side are shown.
pub(super) const SHOWN: usize = 33;

const fn shown(tally: &Tally, troubles: &Troubles) -> [(Counter, u64); SHOWN] {
    [
        (Counter::CallsRefused, troubles.refused_calls),
        (Counter::TrainsCut, troubles.cut_trains),
        (Counter::TrainsDivided, troubles.divided_trains),
        (Counter::SocketOverruns, troubles.overruns),
        (Counter::RingStrays, troubles.rings.strays),
        (Counter::RingOverflows, troubles.rings.overflows),
        (Counter::RingRefused, troubles.rings.refused),
        (Counter::RingsLost, troubles.rings_lost),
        (Counter::RingsReopened, troubles.rings_reopened),
        (Counter::SocketsJoined, troubles.joins.made),
        (Counter::JoinsRefused, troubles.joins.refused),
        (Counter::TrainsSpliced, troubles.joins.spliced),
        (Counter::HellosRefused, tally.refused),
        (Counter::FramesSent, tally.frames_sent),
        (Counter::NotesSent, tally.notes_sent),
        (Counter::FramesReceived, tally.frames_received),
        (Counter::FramesLost, tally.frames_lost),
        (Counter::FramesLate, tally.frames_late),
        (Counter::Timeouts, tally.timeouts),
        (Counter::FramesRepeated, tally.duplicates),
        (Counter::FramesForged, tally.forged),
        (Counter::FramesStale, tally.stale),
        (Counter::FramesUnplaced, tally.unplaced),
        (Counter::PlacedFrames, tally.hits),
        (Counter::MendedFrames, tally.misses),
        (Counter::PlacedBytes, tally.placed_bytes),
        (Counter::MendedBytes, tally.mended_bytes),
        (Counter::MessagesSent, tally.messages_sent),
        (Counter::MessagesReceived, tally.messages_received),
        (Counter::PayloadBytesSent, tally.payload_sent),
        // Of the others the application is told. No rule about pages or progress is one of the network's.
        (Counter::BreachIndex, tally.untold[Breach::Index as usize]),
        (Counter::BreachDescriptor, tally.untold[Breach::Descriptor as usize]),
        (Counter::BreachLength, tally.untold[Breach::Length as usize]),
    ]
}
