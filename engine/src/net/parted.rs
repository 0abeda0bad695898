//! What is left of a channel that its peer has closed: enough to acknowledge that once more.
//!
//! Whoever closes repeats that until it is acknowledged, and this side is through with the channel as soon as it has
//! acknowledged it. If that acknowledgement is lost, nobody would be left to answer, and the peer would wait until it
//! took this side for dead. TCP waits for the same reason, at the other side (TIME-WAIT; RFC 9293, section 3.6.1).

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind, Limits, Note, SEALED_BYTES, low};

use super::Net;
use super::channel::Channel;
use super::memory::Memory;
use super::outbox::widen;
use crate::flow::seen::Seen;
use crate::seal::BoxedSeal;
use crate::time::Instant;

/// Closes of so many channels are acknowledged once more: of those that ended last.
pub const PARTED_MAX: usize = 1024;

/// After so many probe time-outs a peer that hears nothing has closed four times: each wait is twice the one before.
const WAITS: u64 = 16;

/// Longest time, in ns, after which a peer is taken to have heard.
const WAIT_MAX: u64 = 200_000_000;

/// One channel that has ended.
pub(super) struct Parted {
    from: SocketAddr,
    /// What its frames name.
    tag: u32,
    generation: u32,
    /// What is named by those that go there.
    peer: [u32; 2],
    number: u64,
    limits: Limits,
    seen: Seen,
    seal: BoxedSeal,
    /// When the peer has heard it, most likely; and when it has given this side up otherwise.
    waits_until: Instant,
    until: Instant,
}

/// The channels that ended last, the oldest first.
#[derive(Default)]
pub(super) struct Partings(VecDeque<Parted>);

impl Partings {
    /// A channel has ended that its peer has closed.
    pub(super) fn add(&mut self, parted: Parted) {
        if self.0.len() >= PARTED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(parted);
    }

    /// Forgets those whose peers have given this side up by now.
    pub(super) fn forget(&mut self, now: Instant) {
        while self.0.front().is_some_and(|first| first.until <= now) {
            self.0.pop_front();
        }
    }

    /// When [`Partings::forget`] has something to do next.
    pub(super) fn timer(&self) -> Option<Instant> {
        self.0.front().map(|first| first.until)
    }
}

impl<M: Memory> Net<M> {
    /// A frame has come for a channel that there is not, or not any more: if it closes one that has ended so, that is
    /// acknowledged.
    pub(super) fn closed_again(
        &mut self,
        header: &Header,
        head: &[u8; HEADER_BYTES],
        body: &mut [u8],
        from: SocketAddr,
    ) {
        let named = |parted: &&mut Parted| {
            (parted.tag, parted.generation, parted.from) == (header.tag, header.generation, from)
        };
        if header.kind == Kind::Close
            && let Some(parted) = self.partings.0.iter_mut().rev().find(named)
            && parted.hears(header, head, body)
        {
            self.greetings.push_back((from, parted.note(), Some(parted.tag as usize)));
        }
    }

    /// This side goes, and will answer nobody: acknowledges the closes of a moment ago twice more, since the peer would
    /// wait until it took this side for dead if all it is told were lost.
    pub fn part(&mut self, now: Instant) {
        for parted in self.partings.0.iter_mut().filter(|parted| parted.waits_until > now) {
            let (to, index) = (parted.from, Some(parted.tag as usize));
            self.greetings.extend([(to, parted.note(), index), (to, parted.note(), index)]);
        }
    }
}

impl Parted {
    /// What is left of the channel of this number and generation.
    pub(super) fn new<M: Memory>((index, generation): (usize, u32), mut channel: Channel<M>, silence_ns: u64) -> Self {
        let wait = channel.probe_ns().saturating_mul(WAITS).min(WAIT_MAX);
        Self {
            from: channel.peer.address,
            tag: low(index as u64),
            generation,
            peer: [channel.peer.tag, channel.peer.generation],
            number: channel.number,
            limits: channel.inbox.limits(true),
            waits_until: channel.heard.after(wait),
            until: channel.heard.after(silence_ns),
            seen: channel.seen,
            seal: channel.seal,
        }
    }

    /// Takes in a frame. False if it was not sent by the peer, or is here already: that is sent again under another
    /// number.
    fn hears(&mut self, header: &Header, head: &[u8; HEADER_BYTES], body: &mut [u8]) -> bool {
        let (protected, seal) = head.split_at(SEALED_BYTES);
        let opens = self.seen.is_new(header.number)
            && seal.first_chunk().is_some_and(|seal| self.seal.open(header.number, protected, seal, body));
        if opens {
            self.seen.insert_run(header.number, 1);
            self.seen.forget_below(widen(header.awaited, header.number).min(header.number));
        }
        opens
    }

    /// An acknowledgement, as a frame.
    fn note(&mut self) -> Vec<u8> {
        let body = Note::head(self.limits, 0, 0);
        let ([tag, generation], number, ack) = (self.peer, self.number, self.seen.ack());
        self.number += 1;
        let header = Header {
            kind: Kind::Note,
            body: u16::try_from(body.len()).unwrap_or(u16::MAX),
            tag,
            generation,
            awaited: low(number),
            number,
            below: low(ack.below),
            held: 0,
            waits: false,
            calls: 0,
            asks: 0,
            bits: ack.bits,
            words: [0, 0],
        };
        let mut frame = header.to_bytes().to_vec();
        frame.extend_from_slice(&body);
        let (head, body) = frame.split_at_mut(HEADER_BYTES);
        let (protected, place) = head.split_at_mut(SEALED_BYTES);
        place.copy_from_slice(&self.seal.seal(number, protected, body));
        frame
    }
}
