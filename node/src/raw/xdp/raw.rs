//! One ring and one peer, for measurements: what an endpoint does with a ring, without the endpoint.

use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use super::super::route::{RouteError, Routes};
use super::super::{Hop, Ring};
use super::XdpRing;
use super::fragments::Outgoing;
use crate::sys::xdp::{Interface, Mode};

/// How long the kernel has to find the hardware address of a neighbour.
const PATIENCE: Duration = Duration::from_secs(1);

/// A ring that sends to one peer.
#[derive(Debug)]
pub struct Raw {
    ring: XdpRing,
    hop: Hop,
}

impl Raw {
    /// At queue 0 of the interface that leads from `local` to `remote`, with `pages` bytes to send from.
    ///
    /// # Errors
    /// If no way leads there, or there is no ring; the text says why.
    pub fn open(local: SocketAddrV4, remote: SocketAddrV4, mode: Option<Mode>, pages: u64) -> io::Result<Self> {
        let mut routes = Routes::open()?;
        let begun = Instant::now();
        let (interface, hop) = loop {
            match routes.hop(local, remote) {
                // Sending something makes the kernel ask for the address.
                Err(RouteError::Unresolved(_)) if begun.elapsed() < PATIENCE => {
                    UdpSocket::bind((*local.ip(), 0))?.send_to(&[0], remote)?;
                    std::thread::sleep(Duration::from_millis(1));
                }
                found => break found.map_err(io::Error::other)?,
            }
        };
        let interface = Interface::numbered(interface.index)?;
        let ring = XdpRing::open_to_all(&interface, local, mode, pages)?;
        Ok(Self { ring, hop })
    }

    /// Where its program runs.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.ring.mode()
    }

    /// Which better modes it was tried in, and why they are not used.
    #[must_use]
    pub fn declined(&self) -> Vec<(Mode, String)> {
        self.ring.declined().iter().map(|(mode, error)| (*mode, error.to_string())).collect()
    }

    /// `bytes` bytes of its memory from `at` on, counted from the first page to send from.
    ///
    /// # Panics
    /// If they are not inside.
    pub fn page(&mut self, at: u64, bytes: usize) -> &mut [u8] {
        let (memory, base) = self.ring.pages();
        memory.frame(base + at, bytes)
    }

    /// Sends a header and payload from such a place, which are not copied in this process. Whether there was room.
    ///
    /// # Errors
    /// As the kernel says; or the place is not inside, or the frame too long.
    pub fn send(&mut self, header: &[u8], at: u64, bytes: usize) -> io::Result<bool> {
        let base = self.ring.pages().1;
        self.ring.send_in_place(&self.hop, header, base + at, bytes)
    }

    /// Prepares a datagram whose payload are `bytes` bytes at such a place, which are not changed until it is sent, to
    /// be sent in fragments of IP. `vouched` says that it shall have a checksum.
    ///
    /// # Errors
    /// The place is not inside, or there is no such datagram.
    pub fn datagram(&mut self, at: u64, bytes: usize, vouched: bool) -> io::Result<Outgoing> {
        let base = self.ring.pages().1;
        self.ring.datagram(&self.hop, base + at, bytes, vouched)
    }

    /// Sends one fragment of a datagram, of which nothing is copied in this process. Whether there was room.
    ///
    /// # Errors
    /// As the kernel says; or there is no such fragment.
    pub fn send_fragment(&mut self, of: &Outgoing, part: usize) -> io::Result<bool> {
        self.ring.send_fragment(&self.hop, of, part)
    }

    /// Sends all fragments of a datagram, the last one first if told so, or none if there is no room.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn send_fragments(&mut self, of: &Outgoing, backwards: bool) -> io::Result<bool> {
        self.ring.send_fragments(&self.hop, of, backwards)
    }

    /// Hands up the bodies of what has come.
    pub fn receive(&mut self, each: &mut dyn FnMut(&mut [u8])) {
        self.ring.receive(usize::MAX, &mut |_, body| each(body));
    }
}
