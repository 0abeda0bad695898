//! What a receive call brings: frames that came together, as a train, and all that the kernel knows of them.
//!
//! Where they land, and how they are taken in, is decided by the same code as over sockets
//! ([`cutthrough_engine::net::trains`]). Here is what stands for the socket.

use std::collections::VecDeque;
use std::net::SocketAddr;

use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::channel::Body;
use cutthrough_engine::net::inbox::Reading;
use cutthrough_engine::net::trains::{Came, Line, TRAIN_BYTES, Train, Trains};
use cutthrough_engine::net::{Net, Tally};
use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::{HEADER_BYTES, Header};

use super::memory::Host;
use super::network::Frame;
use super::{Summary, address};

/// Frames that come together at most, as in Linux.
const TOGETHER: usize = 64;

/// A payload that a user is reading, and the memory that is lent for it.
#[derive(Debug)]
pub(super) struct Lent<'a> {
    pub(super) channel: usize,
    pub(super) message: u64,
    pub(super) into: &'a mut [u8],
}

/// Frames that an endpoint was given: each has to be counted, as taken in or as why not. Of those of a handshake only
/// some are.
#[derive(Debug, Default)]
pub(super) struct Given {
    greetings: u64,
    others: u64,
}

impl Given {
    pub(super) fn add(&mut self, frame: &[u8]) {
        let head = frame.first_chunk::<HEADER_BYTES>();
        let greets = head.is_some_and(|head| Header::from_bytes(head).is_ok_and(|header| header.kind.greets()));
        *(if greets { &mut self.greetings } else { &mut self.others }) += 1;
    }

    /// Whether they are; each of so many may have ended a channel instead, of a peer that broke a rule.
    pub(super) fn are_counted(&self, tally: &Tally, breaches: u64) -> Result<(), String> {
        let counted = tally.frames_received + tally.duplicates + tally.forged + tally.stale + tally.unplaced;
        if (self.others.saturating_sub(breaches)..=self.others + self.greetings).contains(&counted) {
            return Ok(());
        }
        Err(format!("{counted} frames are counted, of {self:?}: {tally:?}"))
    }
}

/// The frames that have come to a socket.
struct Socket<'a> {
    queue: &'a mut VecDeque<Frame>,
    given: &'a mut Given,
    at: Instant,
    /// Frames of the train that was received last.
    frames: usize,
}

impl Line for Socket<'_> {
    type Part<'a> = &'a mut [u8];

    fn part(bytes: &mut [u8]) -> &mut [u8] {
        bytes
    }

    fn peek(&mut self, head: &mut [u8; HEADER_BYTES]) -> Option<usize> {
        let first = &self.queue.front()?.bytes;
        let bytes = first.len().min(head.len());
        head[..bytes].copy_from_slice(&first[..bytes]);
        Some(bytes)
    }

    /// Frames of one sender are a train if they are of one length, but for the last, which may be shorter.
    fn receive(&mut self, parts: &mut [&mut [u8]]) -> Option<Train> {
        let first = self.queue.pop_front()?;
        let (from, segment) = (first.from, first.bytes.len());
        let (mut bytes, mut last) = (first.bytes, segment);
        self.given.add(&bytes);
        self.frames = 1;
        while self.frames < TOGETHER
            && last == segment
            && segment > 0
            && let Some(next) = self.queue.pop_front_if(|next| {
                next.from == from && next.bytes.len() <= segment && bytes.len() + next.bytes.len() <= TRAIN_BYTES
            })
        {
            // An empty one at the end of a train is nothing.
            if !next.bytes.is_empty() {
                self.given.add(&next.bytes);
            }
            last = next.bytes.len();
            bytes.extend_from_slice(&next.bytes);
            self.frames += 1;
        }
        let mut rest = &bytes[..];
        for part in parts {
            let (now, later) = rest.split_at(rest.len().min(part.len()));
            part[..now.len()].copy_from_slice(now);
            rest = later;
        }
        let cut = !rest.is_empty();
        Some(Train { at: self.at, from: address(from), bytes: bytes.len(), segment, cut })
    }
}

/// Receives the frames at the head of the queue that came together.
pub(super) fn receive(
    (net, trains, given): (&mut Net<Host>, &mut Trains, &mut Given),
    now: Instant,
    queue: &mut VecDeque<Frame>,
    lent: Option<Lent<'_>>,
    summary: &mut Summary,
) -> Result<(), String> {
    let mut socket = Socket { queue, given, at: now, frames: 0 };
    let (hits, misses) = (net.tally().hits, net.tally().misses);
    let mut reading = lent.map(|lent| (lent.channel, Reading { message: lent.message, into: lent.into }));
    let reading = reading.as_mut().map(|(channel, reading)| (*channel, reading));
    if trains.receive(net, &mut socket, reading) == Came::Cut {
        return Err(format!("there was no room for a train of {} frames", socket.frames));
    }
    let landed = &mut summary.landed;
    landed.trains += u64::from(socket.frames > 1);
    landed.hits += net.tally().hits - hits;
    landed.misses += net.tally().misses - misses;
    Ok(())
}

pub(super) fn bring(
    net: &mut Net<Host>,
    now: Instant,
    from: SocketAddr,
    frame: &mut [u8],
    lent: &mut Option<Lent<'_>>,
) -> bool {
    let Some((head, body)) = frame.split_first_chunk_mut() else {
        net.frame_in_one_piece(now, from, frame, None);
        return true;
    };
    let mut reading = lent.as_mut().map(|lent| (lent.channel, Reading { message: lent.message, into: lent.into }));
    let reading = reading.as_mut().map(|(channel, reading)| (*channel, reading));
    net.frame(now, from, head, Body::Aside(body), reading)
}

/// The frames of a batch.
pub(super) fn frames(net: &Net<Host>, channel: usize, batch: &Batch) -> Vec<Vec<u8>> {
    use cutthrough_engine::net::batch::Piece;
    use cutthrough_engine::net::memory::Load as _;
    let mut bytes = Vec::with_capacity(batch.bytes());
    for piece in batch.pieces() {
        match *piece {
            Piece::Own { at, len } => bytes.extend_from_slice(&batch.own()[at..at + len]),
            Piece::Payload { message, offset, len } => {
                if let Some(load) = net.load(channel, message) {
                    bytes.extend_from_slice(load.piece(offset, len));
                }
            }
        }
    }
    bytes.chunks(batch.segment().max(1)).map(<[u8]>::to_vec).collect()
}
