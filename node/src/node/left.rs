//! What a channel leaves behind: payloads that had arrived when their sender went, and that nobody has read yet; and
//! memory that was granted to the peer.

use std::sync::Arc;

use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::net::inbox;
use cutthrough_engine::receipt::{Path, Receipt};
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::Token;
use cutthrough_segment::page::{Release, Shelf};

use crate::incoming::{Arriving, Channel};
use crate::shm::receive::Aside;
use crate::stat::Stat;
use crate::udp::line::receipt;

/// The payloads of channels that have ended, until they are read or dropped.
#[derive(Debug, Default)]
pub(super) struct Left {
    channels: Vec<OfChannel>,
    /// Room for what lies on a shelf.
    dropped: Vec<Release>,
    grants: Vec<Granted>,
}

/// Private memory that a token named, and since when whoever granted it may know of the channel's end.
#[derive(Debug)]
struct Granted {
    channel: Channel,
    token: Token,
    buffer: Vec<u8>,
    since: Option<Instant>,
}

/// For how long granted memory is kept: whoever wants it back asks when it hears of the end.
const KEPT_NS: u64 = 200_000_000;

/// The payloads of one of them.
#[derive(Debug)]
struct OfChannel {
    channel: Channel,
    /// Where it is said which of them were dropped.
    shelf: Arc<Shelf>,
    payloads: Vec<Kept>,
}

/// One payload, of which the bytes before `from` were read.
#[derive(Debug)]
pub(super) struct Kept {
    ticket: u64,
    from: usize,
    bytes: Vec<u8>,
    told: Told,
}

/// What its reader is told of one of them.
#[derive(Debug)]
enum Told {
    /// Pulses in which it came out of a staging ring.
    Pulses(u32),
    /// All of one that came over a network.
    Receipt(Receipt),
}

impl From<(u64, Aside)> for Kept {
    fn from((ticket, Aside { from, bytes, pulses }): (u64, Aside)) -> Self {
        Self { ticket, from, bytes, told: Told::Pulses(pulses) }
    }
}

impl Kept {
    /// One that came over a network.
    pub(super) fn of_net(inbox::Left { message, from, bytes, story }: inbox::Left, sealed: bool) -> Self {
        Self { ticket: message, from, bytes, told: Told::Receipt(receipt(&story, Path::Wire, sealed, story.ended)) }
    }
}

impl Left {
    /// Keeps what a channel leaves.
    pub(super) fn keep(&mut self, channel: Channel, shelf: Arc<Shelf>, payloads: Vec<Kept>) {
        if !payloads.is_empty() {
            self.channels.push(OfChannel { channel, shelf, payloads });
        }
    }

    /// Reads all of a payload, if it is one of these: whether it is.
    pub(super) fn read(
        &mut self,
        (channel, arriving): (Channel, &mut Arriving),
        into: &mut [u8],
        receipt: &mut Receipt,
        stat: &Stat,
    ) -> bool {
        let Some(place) = self.channels.iter().position(|of| of.channel == channel) else { return false };
        let payloads = &mut self.channels[place].payloads;
        let Some(at) = payloads.iter().position(|kept| kept.ticket == arriving.ticket) else { return false };
        let Kept { from, bytes, told, .. } = payloads.swap_remove(at);
        if payloads.is_empty() {
            self.channels.swap_remove(place);
        }
        into[from..from + bytes.len()].copy_from_slice(&bytes);
        arriving.shelf = None;
        *receipt = match told {
            Told::Pulses(pulses) => Receipt { pulses, copies: receipt.copies.saturating_add(1), ..*receipt },
            Told::Receipt(told) => told,
        };
        stat.add(Counter::Copies, 1);
        stat.add(Counter::CopiedBytes, bytes.len() as u64);
        true
    }

    /// Keeps what a channel's peer had been granted.
    pub(super) fn keep_grants(&mut self, channel: Channel, grants: Vec<(Token, Vec<u8>)>) {
        let kept = grants.into_iter().map(|(token, buffer)| Granted { channel, token, buffer, since: None });
        self.grants.extend(kept);
    }

    /// Gives back what a token named.
    pub(super) fn take_grant(&mut self, channel: Channel, token: Token) -> Option<Vec<u8>> {
        let place = self.grants.iter().position(|kept| kept.channel == channel && kept.token == token)?;
        Some(self.grants.swap_remove(place).buffer)
    }

    /// Forgets what nobody has asked for in time. All ends were told by now.
    pub(super) fn age_grants(&mut self, now: Instant) {
        let in_time = |kept: &mut Granted| now.saturating_since(*kept.since.get_or_insert(now)) < KEPT_NS;
        self.grants.retain_mut(in_time);
    }

    /// Forgets those that were dropped.
    pub(super) fn tidy(&mut self) {
        for of in &mut self.channels {
            if of.shelf.filled() {
                of.shelf.clear(&mut self.dropped);
                of.payloads.retain(|payload| !self.dropped.contains(&Release::Unread { ticket: payload.ticket }));
                self.dropped.clear();
            }
        }
        self.channels.retain(|of| !of.payloads.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const CHANNEL: Channel = Channel { index: 3, life: 7 };

    fn left() -> (Left, Arc<Shelf>) {
        let (mut left, shelf) = (Left::default(), Arc::new(Shelf::default()));
        let asides =
            [(0, vec![1; 10], 1), (4, vec![2; 6], 3)].map(|(from, bytes, pulses)| Aside { from, bytes, pulses });
        let payloads = (1..).zip(asides).map(Kept::from).collect();
        left.keep(CHANNEL, Arc::clone(&shelf), payloads);
        (left, shelf)
    }

    fn arriving(ticket: u64, shelf: &Arc<Shelf>) -> Arriving {
        Arriving { ticket, bytes: 10, valid: 0, shelf: Some(Arc::clone(shelf)) }
    }

    #[test]
    fn what_is_left_is_read_once() {
        let (mut left, shelf) = left();
        let stat = Stat::create(Config::default().channels, 0).expect("counters");
        let (mut into, mut receipt) = ([9; 10], Receipt { copies: 1, ..Receipt::default() });
        let later = Channel { life: 8, ..CHANNEL };
        assert!(!left.read((later, &mut arriving(1, &shelf)), &mut into, &mut receipt, &stat));
        assert!(!left.read((CHANNEL, &mut arriving(3, &shelf)), &mut into, &mut receipt, &stat));
        let mut second = arriving(2, &shelf);
        assert!(left.read((CHANNEL, &mut second), &mut into, &mut receipt, &stat));
        assert_eq!((into, receipt.copies, receipt.pulses), ([9, 9, 9, 9, 2, 2, 2, 2, 2, 2], 2, 3));
        assert!(!left.read((CHANNEL, &mut second), &mut into, &mut receipt, &stat));
        assert!(left.read((CHANNEL, &mut arriving(1, &shelf)), &mut into, &mut receipt, &stat));
        assert!(left.channels.is_empty());
    }

    #[test]
    fn what_is_dropped_is_forgotten() {
        let (mut left, shelf) = left();
        let (first, second) = (arriving(1, &shelf), arriving(2, &shelf));
        drop(second);
        left.tidy();
        assert_eq!(left.channels[0].payloads.len(), 1);
        drop(first);
        left.tidy();
        assert!(left.channels.is_empty());
    }
}
