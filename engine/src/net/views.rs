//! What a caller may know of a channel, and change while it lives.

use core::net::SocketAddr;

use cutthrough_wire::frame::{HEADER_BYTES, OPENING_BYTES};

use super::channel::{self, Ending};
use super::memory::Memory;
use super::outbox::frame_bytes;
use super::ways::{WAYS, Way};
use super::{Net, Seat, State};
use crate::time::Instant;

impl<M: Memory> Net<M> {
    /// Messages of a channel that were sent, acknowledged, and received; payload bytes sent and received.
    pub fn counts(&mut self, index: usize) -> Option<[u64; 5]> {
        let channel = self.channel(index)?;
        Some([
            channel.outbox.next(),
            channel.outbox.acknowledged(),
            channel.inbox.received(),
            channel.outbox.payload_bytes,
            channel.inbox.payload_bytes,
        ])
    }

    /// Each channel: bytes of payloads that lie aside, and how many may at most.
    pub fn aside(&self) -> impl Iterator<Item = (usize, u64, u64)> + '_ {
        self.open_channels().map(|(index, channel)| {
            let (aside, most) = channel.inbox.aside();
            (index, aside, most)
        })
    }

    /// Each channel: how many times as much it has been asked for at most as may come while nobody looks, because its
    /// way is long ([`Distance`](super::grants::Distance)).
    pub fn stretched(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.open_channels().map(|(index, channel)| (index, channel.inbox.stretched()))
    }

    /// Payload bytes that may be on their way unasked, or lie here, on all channels together.
    #[must_use]
    pub fn unasked(&self) -> u64 {
        let of = |seat: &Seat<M>| match &seat.state {
            State::Open(channel) => channel.inbox.unasked(),
            State::Calling(call) => call.unasked(self.begin),
            State::Free => 0,
        };
        self.seats.iter().map(of).sum()
    }

    /// Payloads that were thrown away, on all channels, and whose senders have not heard of that: each counts as a
    /// message that was not taken.
    #[must_use]
    pub fn thrown_away(&self) -> u64 {
        self.open_channels().map(|(_, channel)| channel.inbox.thrown_away()).sum()
    }

    /// Process, user and life of a channel's peer, as it says; and its address.
    pub fn peer(&mut self, index: usize) -> Option<(SocketAddr, u32, u32, u64)> {
        let peer = self.channel(index)?.peer;
        Some((peer.address, peer.process, peer.user, peer.life))
    }

    /// Number and generation of a channel's two ends, the one here first: so its frames name them.
    pub fn ends(&mut self, index: usize) -> Option<[(u32, u32); 2]> {
        let there = self.channel(index).map(|channel| (channel.peer.tag, channel.peer.generation))?;
        let here = self.seats.get(index).map(|seat| seat.generation)?;
        Some([(u32::try_from(index).ok()?, here), there])
    }

    /// Whether a channel's payloads travel as they are, and are not sealed.
    pub fn is_bare(&mut self, index: usize) -> bool {
        self.channel(index).is_some_and(|channel| channel.seal.is_bare())
    }

    /// The public key that a channel's peer has proved to hold, if it has one.
    pub fn peer_key(&mut self, index: usize) -> Option<[u8; 32]> {
        self.channel(index)?.seal.peer()
    }

    /// Payload bytes that peers were asked for, on all channels, and that have not come.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.open_channels().map(|(_, channel)| channel.inbox.asked()).sum()
    }

    /// Messages of a channel that have not been sent even once.
    pub fn unsent(&mut self, index: usize) -> u64 {
        self.channel(index).map_or(0, |channel| channel.outbox.unsent())
    }

    /// Whether a payload of so many bytes goes in one frame with its message.
    pub fn is_one_frame(&mut self, index: usize, bytes: usize) -> bool {
        self.channel(index).is_some_and(|channel| frame_bytes(OPENING_BYTES + bytes) <= channel.full())
    }

    /// Messages of a channel of which a part has not been sent even once: it waits for company, for room, or to be
    /// asked for.
    pub fn behind(&mut self, index: usize) -> u64 {
        self.channel(index).map_or(0, |channel| channel.outbox.behind())
    }

    /// Callers that were let in and not heard of since; they count as channels.
    #[must_use]
    pub fn unheard(&self) -> usize {
        self.welcomed.len()
    }

    /// How often anything has come that brings messages on, on any channel: their frames, acknowledgements of them,
    /// grants. Signs of life alone are none.
    #[must_use]
    pub const fn strides(&self) -> u64 {
        self.strides
    }

    /// The same of one channel.
    pub fn strides_of(&mut self, index: usize) -> u64 {
        self.channel(index).map_or(0, |channel| channel.strides)
    }

    /// When any payload of a channel has got on last: when bytes of one have come, and when the other side has said
    /// that it has got some. Who waits for one waits behind others.
    pub fn got_on(&mut self, index: usize) -> (Instant, Instant) {
        self.channel(index).map_or_else(Default::default, |channel| (channel.inbox.came, channel.taken))
    }

    /// About how many bytes of a channel have been sent and not acknowledged, or could be sent next; of more than
    /// `enough`, some number above that.
    pub fn outstanding(&mut self, index: usize, enough: u64) -> u64 {
        self.channel(index).map_or(0, |channel| channel.outstanding(enough))
    }

    /// How many bytes of a channel's frames are on their way.
    pub fn in_flight(&mut self, index: usize) -> u64 {
        self.channel(index).map_or(0, |channel| channel.in_flight())
    }

    /// Whether the other side has all of a message.
    pub fn is_done(&mut self, index: usize, message: u64) -> bool {
        self.channel(index).is_none_or(|channel| channel.outbox.load(message).is_none())
    }

    /// How many more messages of a channel may be on their way; `None` if it has ended.
    pub fn room(&mut self, index: usize) -> Option<u64> {
        let slots = self.settings.slots;
        let channel = self.channel(index).filter(|channel| channel.end == channel::End::None)?;
        Some(slots.saturating_sub(channel.outbox.waiting() as u64).min(channel.outbox.room()))
    }

    /// Bytes of a message's payload that have not been sent even once, and how many of them a frame carries at most.
    pub fn left(&mut self, index: usize, message: u64) -> (usize, usize) {
        self.channel(index).map_or((0, 0), |channel| (channel.outbox.left(message), channel.full() - HEADER_BYTES))
    }

    /// Bytes of a message's payload that the other side has, and need not be kept for it.
    pub fn acknowledged(&mut self, index: usize, message: u64) -> usize {
        self.channel(index).map_or(0, |channel| channel.outbox.acknowledged_bytes(message))
    }

    /// Where the bytes of a message's payload begin and end that have to be kept for the other side, gap by gap.
    pub fn lacks(&mut self, index: usize, message: u64, each: impl FnMut(usize, usize)) {
        if let Some(channel) = self.channel(index) {
            channel.outbox.lacks(message, each);
        }
    }

    /// Takes a message's payload from other memory with the same bytes from now on.
    pub fn replace(&mut self, index: usize, message: u64, load: M::Load) {
        if let Some(channel) = self.channel(index) {
            channel.outbox.replace(message, load);
        }
    }

    /// The payload of a message of a channel that is being sent.
    #[must_use]
    pub fn load(&self, index: usize, message: u64) -> Option<&M::Load> {
        match self.seats.get(index).map(|seat| &seat.state) {
            Some(State::Open(channel)) => channel.outbox.load(message),
            _ => None,
        }
    }

    /// Why the last channel of this number has ended.
    #[must_use]
    pub fn ended(&self, index: usize) -> Option<Ending> {
        self.seats.get(index).and_then(|seat| seat.ended)
    }

    /// Bytes of a batch at most on way `way`, whatever the caller of [`Net::batch`] says.
    pub const fn limit_way(&mut self, way: usize, most: usize) {
        if way < WAYS {
            self.most[way] = most;
        }
    }

    /// Says by which way the frames come that are brought in from now on. By which way they came before.
    pub const fn came_by(&mut self, way: u8) -> u8 {
        core::mem::replace(&mut self.by, way)
    }

    /// Says how often frames were copied that are brought in from now on, before they are: receipts tell of it. How
    /// often those were until now.
    pub const fn were_copied(&mut self, times: u32) -> u32 {
        core::mem::replace(&mut self.before, times)
    }

    /// Says which ways lead to the peer of a channel, a bit for each. From the beginning it is the first one alone.
    pub fn set_ways(&mut self, index: usize, usable: u8) {
        let Some(channel) = self.channel(index) else { return };
        if usable > 1 || channel.ways.is_some() {
            channel.ways.get_or_insert_default().set_usable(usable);
        }
    }

    /// The system refuses frames of so many bytes to the peer of a channel: from now on they are shorter, until a probe
    /// comes through. What has not gone is found lost, and goes again.
    pub fn too_long(&mut self, now: Instant, index: usize, bytes: usize) {
        if let Some(channel) = self.channel(index) {
            channel.too_long(now, bytes);
            self.touch(index);
        }
    }

    /// The way that a channel's last batch went, and why.
    pub fn way(&mut self, index: usize) -> Way {
        self.channel(index).and_then(|channel| channel.ways.as_ref()).map_or(Way::default(), |ways| ways.now())
    }
}
