//! Trains in, by the socket: where their frames land, and what is made of them, is decided by
//! [`cutthrough_engine::net::trains`].

use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr};

use cutthrough_engine::net::inbox::Reading;
use cutthrough_engine::net::trains::{Came, Line, Train};
use cutthrough_wire::frame::HEADER_BYTES;
use rustix::io::Errno;

use super::door::Core;
use crate::clock;
use crate::sys::datagram::Datagrams;

/// Frames of trains are longer, but for the last of each.
const SHORT: usize = 1024;

/// A socket.
struct Socket<'a> {
    datagrams: &'a Datagrams,
    /// Who alone can be heard by it, if datagrams come one by one.
    peer: Option<SocketAddr>,
    /// To which address of this machine the last train has come, if that is known.
    local: Option<IpAddr>,
    /// Whether that was one frame, and a short one.
    lone: bool,
}

impl<'a> Socket<'a> {
    const fn of_all(datagrams: &'a Datagrams) -> Self {
        Self { datagrams, peer: None, local: None, lone: false }
    }
}

/// What has come, though the kernel says first what it has heard of a datagram that went before: that tells of one, and
/// nothing wakes us again for what lies behind it.
#[inline]
fn past_an_error<T>(mut receive: impl FnMut() -> Result<T, Errno>) -> Option<T> {
    for _ in 0..2 {
        match receive() {
            Ok(came) => return Some(came),
            Err(Errno::AGAIN) => return None,
            Err(_) => {}
        }
    }
    None
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
        if let (Some(from), [part]) = (self.peer, &mut *parts) {
            let room = part.len();
            let bytes = past_an_error(|| self.datagrams.receive_lone(part))?;
            self.lone = bytes < SHORT;
            return Some(Train { at: clock::again(), from, bytes, segment: bytes, cut: bytes > room });
        }
        let received = past_an_error(|| self.datagrams.receive(parts))?;
        self.local = received.local.or(self.local);
        self.lone = usize::from(received.segment) >= received.bytes && received.bytes < SHORT;
        Some(Train {
            at: clock::again(),
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
                Some(datagrams) => {
                    let local = joined.local().filter(|_| self.sources.is_some());
                    Socket { local, peer: joined.comes_alone(), ..Socket::of_all(datagrams) }
                }
                None => return false,
            },
            None => Socket::of_all(&self.socket),
        };
        let (came, local, lone) = if placing {
            let fetched = self.trains.fetch(&mut socket);
            let Socket { local, lone, .. } = socket;
            let came = match fetched {
                Ok(train) if self.may_bring_in(&train) => self.trains.bring_in(&mut self.net, &train, reading),
                Ok(_) => Came::Cut,
                Err(came) => came,
            };
            (came, local, lone)
        } else {
            let came = self.trains.receive(&mut self.net, &mut socket, reading);
            (came, socket.local, socket.lone)
        };
        if let Some(joined) = self.joined.as_mut().filter(|_| joined) {
            joined.looked((came != Came::Nothing).then_some(lone));
        }
        match came {
            Came::Nothing => return false,
            Came::Cut => self.troubles.cut_trains += 1,
            Came::Train => self.greet_from(local),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_behind_an_error_is_found_at_the_same_look() {
        let look = |said: &[Result<u8, Errno>]| {
            let mut said = said.iter().copied();
            past_an_error(|| said.next().expect("no more calls than it takes"))
        };
        assert_eq!(look(&[Ok(1)]), Some(1));
        assert_eq!(look(&[Err(Errno::AGAIN)]), None);
        assert_eq!(look(&[Err(Errno::CONNREFUSED), Ok(2)]), Some(2));
        assert_eq!(look(&[Err(Errno::CONNREFUSED), Err(Errno::AGAIN)]), None);
    }
}
