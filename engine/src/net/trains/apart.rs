//! Frames of a train that do not lie as guessed: each in one piece, one behind the other.

use alloc::vec::Vec;
use core::net::SocketAddr;

use cutthrough_wire::frame::{HEADER_BYTES, Kind};

use super::super::Net;
use super::super::channel::{Bodies, Body};
use super::super::inbox::Reading;
use super::super::memory::Memory;
use super::Train;
use crate::time::Instant;

/// Brings frames of a train in that lie one behind the other, of which the first is the `k`-th, each in one piece: how
/// many messages they open or go on with. What goes on with one is brought in together, where that can be.
pub(super) fn bring_in_apart<M: Memory>(
    net: &mut Net<M>,
    train: &Train,
    (first, frames): (usize, &mut [u8]),
    heads: &mut Vec<[u8; HEADER_BYTES]>,
    mut reading: Option<(usize, &mut Reading<'_>)>,
) -> usize {
    let segment = train.segment.max(1);
    heads.clear();
    heads.extend(frames.chunks(segment).map_while(|frame| frame.first_chunk().copied()));
    let (mut messages, mut together, mut k) = (0, true, 0);
    while k * segment < frames.len() {
        let mut reading = reading.as_mut().map(|(channel, reading)| (*channel, &mut **reading));
        let rest = &mut frames[k * segment..];
        let kind = heads.get(k).map(|head| head[1]);
        let opens = kind == Some(Kind::Open as u8);
        messages += usize::from(opens || first + k == 0);
        together |= opens;
        if together && kind == Some(Kind::Data as u8) {
            let reading = reading.as_mut().map(|(channel, reading)| (*channel, &mut **reading));
            let taken = net.run(train.at, train.from, (&heads[k..], Bodies::Aside(rest, segment)), reading);
            // What cannot be taken in together is not tried again, up to the next message.
            together = taken > 0;
            k += taken;
            if together {
                continue;
            }
        }
        let frame = rest.len().min(segment);
        bring(net, train, &mut rest[..frame], reading);
        k += 1;
    }
    messages
}

/// Brings a frame in that lies in one piece.
pub(super) fn bring<M: Memory>(
    net: &mut Net<M>,
    train: &Train,
    frame: &mut [u8],
    reading: Option<(usize, &mut Reading<'_>)>,
) {
    net.frame_in_one_piece(train.at, train.from, frame, reading);
}

impl<M: Memory> Net<M> {
    /// As [`Net::frame`], for a frame whose header and body lie one behind the other. What is shorter than a header
    /// belongs to nobody.
    pub fn frame_in_one_piece(
        &mut self,
        now: Instant,
        from: SocketAddr,
        frame: &mut [u8],
        reading: Option<(usize, &mut Reading<'_>)>,
    ) {
        match frame.split_first_chunk_mut::<HEADER_BYTES>() {
            Some((head, body)) => {
                self.frame(now, from, head, Body::Aside(body), reading);
            }
            None => self.tally.stale += 1,
        }
    }
}
