//! A ring without an endpoint, for measurements: what the rings alone can do.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use cutthrough_engine::receipt::Adapter;

use super::packet::PacketRing;
use super::route::{RouteError, Routes};
use super::xdp::XdpRing;
use super::{Hop, Ring};
use crate::sys::xdp::{Interface, Mode};

/// How long the kernel has to find the hardware address of a neighbour.
const PATIENCE: Duration = Duration::from_secs(1);
/// Frames taken at a time.
const FRAMES: usize = 64;

/// A ring that sends to one peer.
#[derive(Debug)]
pub struct Bare {
    ring: Box<dyn Ring>,
    hop: Hop,
    /// Its port stays taken as long as the ring is there.
    _socket: UdpSocket,
}

impl Bare {
    /// The ring of `adapter` beside `socket`, which is bound to an address of one interface, towards `remote`;
    /// of AF_XDP in this mode, or the best that there is.
    ///
    /// # Errors
    /// If no way leads there, or there is no ring; the text says why.
    pub fn open(adapter: Adapter, socket: UdpSocket, remote: SocketAddrV4, mode: Option<Mode>) -> io::Result<Self> {
        let SocketAddr::V4(local) = socket.local_addr()? else { return Err(io::ErrorKind::Unsupported.into()) };
        let mut routes = Routes::open()?;
        let begun = Instant::now();
        let (interface, hop) = loop {
            match routes.hop(local, remote) {
                // Sending something makes the kernel ask for the address.
                Err(RouteError::Unresolved(_)) if begun.elapsed() < PATIENCE => {
                    socket.send_to(&[], remote)?;
                    std::thread::sleep(Duration::from_millis(1));
                }
                found => break found.map_err(io::Error::other)?,
            }
        };
        let ring: Box<dyn Ring> = match adapter {
            Adapter::Packet => {
                let beside = OwnedFd::from(socket.try_clone()?);
                Box::new(PacketRing::open(vec![beside], local, &interface).map_err(io::Error::other)?)
            }
            Adapter::Xdp => {
                let interface = Interface::numbered(interface.index).map_err(io::Error::other)?;
                Box::new(XdpRing::open(&interface, local, 0, mode, 0).map_err(io::Error::other)?)
            }
            Adapter::Shm | Adapter::Udp => return Err(io::Error::other(format!("{adapter} has no ring"))),
        };
        Ok(Self { ring, hop, _socket: socket })
    }

    /// Bytes of the longest frame.
    #[must_use]
    pub fn frame_max(&self) -> usize {
        self.ring.body_max()
    }

    /// Sends `bytes`, cut into frames of at most `frame` bytes: all of them, or none if there is no room now.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn send(&mut self, bytes: &[u8], frame: usize) -> io::Result<bool> {
        self.ring.send(&self.hop, &[IoSlice::new(bytes)], frame)
    }

    /// Readable when frames have come: what to sleep on.
    #[must_use]
    pub fn watched(&self) -> BorrowedFd<'_> {
        self.ring.watched()
    }

    /// Hands up what has come. How many frames.
    pub fn receive(&mut self, mut each: impl FnMut(&[u8])) -> usize {
        if !self.ring.has_frames() {
            return 0;
        }
        self.ring.receive(FRAMES, &mut |_, frame| each(frame))
    }
}
