//! A socket of a simulated host: what [`Datagrams`](crate::sys::datagram::Datagrams) needs of one.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::Carrier;
use super::paths::{Datagram, SOCKET_BYTES};
use crate::clock;
use crate::sys::datagram::{Received, TRAIN_BYTES};

/// Most segments of a train, as the kernel has it since Linux 6.9.
const SEGMENTS: usize = 128;

/// A socket. It is closed when it is dropped.
#[derive(Debug)]
pub(crate) struct Port {
    carrier: Arc<Carrier>,
    local: SocketAddr,
    /// Its place among the network's.
    place: usize,
}

impl Port {
    pub(super) fn bind(carrier: &Arc<Carrier>, host: IpAddr, wanted: SocketAddr) -> io::Result<(Self, OwnedFd)> {
        if !wanted.ip().is_unspecified() && wanted.ip() != host {
            return Err(io::Error::new(ErrorKind::AddrNotAvailable, format!("this is the simulated host {host}")));
        }
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let ours = bell.try_clone()?;
        let bound = carrier.shared.lock().bind((host, wanted.port()).into(), ours);
        let (local, place) = bound.ok_or_else(|| io::Error::from(Errno::ADDRINUSE))?;
        Ok((Self { carrier: Arc::clone(carrier), local, place }, bell))
    }

    pub(crate) const fn local(&self) -> SocketAddr {
        self.local
    }

    pub(crate) const fn receive_bytes(&self) -> usize {
        SOCKET_BYTES
    }

    /// Datagrams that it had no room for.
    pub(crate) fn dropped(&self) -> u32 {
        self.carrier.shared.lock().socket(self.place).map_or(0, |socket| socket.overrun)
    }

    /// The longest IP datagram that the way there carries.
    pub(crate) fn mtu(&self, to: SocketAddr) -> u32 {
        self.carrier.shared.lock().wire((self.local.ip(), to.ip())).mtu
    }

    /// See [`Datagrams::send`](crate::sys::datagram::Datagrams::send).
    pub(crate) fn send(
        &self,
        to: Option<SocketAddr>,
        parts: &[IoSlice<'_>],
        segment: Option<u16>,
    ) -> Result<usize, Errno> {
        let to = to.ok_or(Errno::DESTADDRREQ)?;
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let segment = segment.map_or(bytes.len(), usize::from).max(1);
        let shared = &self.carrier.shared;
        let mut paths = shared.lock();
        if bytes.len() > TRAIN_BYTES || segment.min(bytes.len()) > paths.longest(self.local.ip(), to.ip()) {
            return Err(Errno::MSGSIZE);
        }
        if bytes.len().div_ceil(segment) > SEGMENTS {
            return Err(Errno::INVAL);
        }
        let before = paths.next();
        match bytes.len() {
            // A datagram without bytes is one, too.
            0 => paths.send(clock::now().as_nanos(), (self.local, to), std::iter::once(&bytes[..])),
            _ => paths.send(clock::now().as_nanos(), (self.local, to), bytes.chunks(segment)),
        }
        if paths.next() != before {
            shared.sooner.notify_one();
        }
        Ok(bytes.len())
    }

    /// See [`Datagrams::peek`](crate::sys::datagram::Datagrams::peek).
    pub(crate) fn peek(&self, into: &mut [u8]) -> Result<usize, Errno> {
        let mut paths = self.carrier.shared.lock();
        paths.carry(clock::now().as_nanos());
        let socket = paths.socket(self.place).ok_or(Errno::BADF)?;
        let Some(datagram) = socket.queue.front() else {
            socket.hush();
            return Err(Errno::AGAIN);
        };
        let bytes = datagram.bytes.len().min(into.len());
        into[..bytes].copy_from_slice(&datagram.bytes[..bytes]);
        Ok(bytes)
    }

    /// See [`Datagrams::receive`](crate::sys::datagram::Datagrams::receive): datagrams of one sender that lie behind
    /// one another are one train, as the kernel makes them.
    pub(crate) fn receive(&self, parts: &mut [IoSliceMut<'_>]) -> Result<Received, Errno> {
        let mut paths = self.carrier.shared.lock();
        paths.carry(clock::now().as_nanos());
        let socket = paths.socket(self.place).ok_or(Errno::BADF)?;
        let Some(first) = socket.take() else {
            socket.hush();
            return Err(Errno::AGAIN);
        };
        let (from, segment) = (first.from, first.bytes.len());
        let mut train = first.bytes;
        let mut last = segment;
        let mut segments = 1;
        let joins = |next: &Datagram, last: usize, bytes: usize| {
            let same = next.from == from && !next.bytes.is_empty() && next.bytes.len() <= segment;
            same && last == segment && bytes + next.bytes.len() <= TRAIN_BYTES
        };
        while segments < SEGMENTS
            && socket.queue.front().is_some_and(|next| joins(next, last, train.len()))
            && let Some(next) = socket.take()
        {
            last = next.bytes.len();
            train.extend_from_slice(&next.bytes);
            segments += 1;
        }
        drop(paths);
        let mut rest = &train[..];
        for part in parts.iter_mut() {
            let (now, later) = rest.split_at(rest.len().min(part.len()));
            part[..now.len()].copy_from_slice(now);
            rest = later;
        }
        let segment = u16::try_from(segment).unwrap_or(u16::MAX);
        Ok(Received { bytes: train.len(), segment, from, local: None, truncated: !rest.is_empty() })
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.carrier.shared.lock().close(self.local);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::super::{Network, Wire};
    use super::*;

    const A: [u8; 4] = [10, 0, 0, 1];
    const B: [u8; 4] = [10, 0, 0, 2];

    fn at(host: [u8; 4], port: u16) -> SocketAddr {
        (host, port).into()
    }

    fn two(network: &Network) -> [(Port, OwnedFd); 2] {
        [A, B].map(|host| network.host(host).bind(at(host, 7)).expect("a free port"))
    }

    /// Whether something has come within so long.
    fn rings(bell: &OwnedFd, longest: Duration) -> bool {
        let longest = Timespec::try_from(longest).expect("a short time");
        poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&longest)) == Ok(1)
    }

    #[test]
    fn a_train_arrives_as_one_and_rings_once() {
        let network = Network::new(1, Wire { latency: Duration::from_millis(200), ..Wire::default() });
        let [(a, _), (b, bell)] = two(&network);
        let sent: Vec<u8> = (0..250_u8).collect();
        let (head, tail) = sent.split_at(30);
        let parts = [IoSlice::new(head), IoSlice::new(tail)];
        assert_eq!(a.send(Some(at(B, 7)), &parts, Some(100)), Ok(250));
        assert_eq!(a.send(Some(at(B, 7)), &[IoSlice::new(b"alone")], None), Ok(5));
        assert!(!rings(&bell, Duration::ZERO), "nothing has come yet");
        assert!(rings(&bell, Duration::from_secs(10)));
        while network.counts().arrived < 4 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut seen = [0; 4];
        assert_eq!((b.peek(&mut seen), seen), (Ok(4), [0, 1, 2, 3]));
        let (mut one, mut other) = ([0; 120], [0; 130]);
        let mut into = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut other)];
        let received = b.receive(&mut into).expect("a train");
        assert_eq!((received.bytes, received.segment, received.from), (250, 100, at(A, 7)));
        assert!(!received.truncated && [&one[..], &other[..]].concat() == sent);
        let received = b.receive(&mut [IoSliceMut::new(&mut one[..3])]).expect("the last one is shorter: a new train");
        assert!(received.bytes == 5 && received.truncated && one[..3] == *b"alo");
        assert!(b.receive(&mut [IoSliceMut::new(&mut one)]) == Err(Errno::AGAIN) && !rings(&bell, Duration::ZERO));
    }

    #[test]
    fn what_no_wire_carries_is_refused_as_the_kernel_does() {
        let network = Network::new(1, Wire::default());
        let [(a, _), (b, _)] = two(&network);
        let (long, to) = (vec![0; 2000], Some(at(B, 7)));
        assert_eq!(a.send(to, &[IoSlice::new(&long)], None), Err(Errno::MSGSIZE));
        assert_eq!(a.send(to, &[IoSlice::new(&long)], Some(10)), Err(Errno::INVAL));
        assert_eq!((a.send(to, &[IoSlice::new(&long)], Some(1000)), a.mtu(at(B, 7))), (Ok(2000), 1500));
        assert_eq!(a.send(None, &[], None), Err(Errno::DESTADDRREQ));
        let again = network.host(A).bind(at(A, 7)).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AddrInUse);
        assert_eq!(network.host(A).bind(at(B, 8)).unwrap_err().kind(), ErrorKind::AddrNotAvailable);
        drop(a);
        network.host(A).bind(at(A, 7)).expect("it is free again");
        drop(b);
    }
}
