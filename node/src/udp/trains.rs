//! Trains in, by the socket: where their frames land, and what is made of them, is decided by
//! [`cutthrough_engine::net::trains`].

use std::io::IoSliceMut;
use std::net::IpAddr;

use cutthrough_engine::net::inbox::Reading;
use cutthrough_engine::net::trains::{Came, Line, Train};
use cutthrough_wire::frame::HEADER_BYTES;
use rustix::io::Errno;

use super::door::Core;
use crate::clock;
use crate::sys::datagram::Datagrams;

/// The socket, and to which address of this machine the last train has come, if that is known.
struct Socket<'a> {
    datagrams: &'a Datagrams,
    local: Option<IpAddr>,
}

impl Line for Socket<'_> {
    type Part<'a> = IoSliceMut<'a>;

    #[inline]
    fn part(bytes: &mut [u8]) -> IoSliceMut<'_> {
        IoSliceMut::new(bytes)
    }

    fn peek(&mut self, head: &mut [u8; HEADER_BYTES]) -> Option<usize> {
        match self.datagrams.peek(head) {
            Ok(bytes) => Some(bytes),
            Err(Errno::AGAIN) => None,
            // The call that receives says it again.
            Err(_) => Some(0),
        }
    }

    #[inline]
    fn receive(&mut self, parts: &mut [IoSliceMut<'_>]) -> Option<Train> {
        let received = match self.datagrams.receive(parts) {
            Ok(received) => received,
            Err(Errno::AGAIN) => return None,
            // What the kernel has heard of a datagram that went before: what has come lies behind that.
            Err(_) => self.datagrams.receive(parts).ok()?,
        };
        self.local = received.local.or(self.local);
        Some(Train {
            at: clock::now(),
            from: received.from,
            bytes: received.bytes,
            segment: received.segment.into(),
            cut: received.truncated,
        })
    }
}

impl Core {
    /// Takes one train in, by the joined socket or by the one that all may send to. False if there was none.
    pub(super) fn receive(&mut self, joined: bool, reading: Option<(usize, &mut Reading<'_>)>) -> bool {
        // Where a ring places payloads, its register alone has the guess.
        let placing = self.is_placing();
        let mut socket = match self.joined.as_ref().filter(|_| joined) {
            Some(joined) => match joined.hears() {
                Some(datagrams) => Socket { datagrams, local: joined.local().filter(|_| self.sources.is_some()) },
                None => return false,
            },
            None => Socket { datagrams: &self.socket, local: None },
        };
        let (came, local) = if placing {
            let fetched = self.trains.fetch(&mut socket);
            let local = socket.local;
            let came = match fetched {
                Ok(train) if self.may_bring_in(&train) => self.trains.bring_in(&mut self.net, &train, reading),
                Ok(_) => Came::Cut,
                Err(came) => came,
            };
            (came, local)
        } else {
            let came = self.trains.receive(&mut self.net, &mut socket, reading);
            (came, socket.local)
        };
        match came {
            Came::Nothing => return false,
            Came::Cut => self.troubles.cut_trains += 1,
            Came::Train => self.greet_from(local),
        }
        true
    }
}
