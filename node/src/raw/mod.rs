//! Raw frames: rings beside the UDP socket of an endpoint, which carry the very same datagrams.
//!
//! | step | file |
//! |---|---|
//! | where to: interface, next hop, hardware addresses | `route` |
//! | Ethernet, IPv4 and UDP around a frame, and off again | `envelope` |
//! | which frames the ring takes, and which stay with the socket | `filter` |
//! | the ring of an ordinary adapter, shared with the kernel | `packet` |
//!
//! A ring sends and receives Ethernet frames with IPv4 and UDP in them, with the addresses and ports of the endpoint's
//! own socket. So a peer without rings understands them, and so do routers; nothing is negotiated. The receiver alone
//! decides what it takes from its ring: what a ring has sent, by its mark; the rest stays with the socket.
//!
//! A ring takes frames before the machine's own packet filter (`nft`) sees them. Rules there that drop a peer's frames
//! do not hold for them, and rules that rewrite the addresses of arriving frames (DNAT), or IPsec between the adapter
//! and the socket, lose frames: such endpoints stay with the adapter `udp`.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::BorrowedFd;

use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::frame_len;
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;

use self::envelope::Envelope;

pub mod bare;
mod cursor;
pub(crate) mod envelope;
mod filter;
pub(crate) mod packet;
pub(crate) mod route;
#[cfg(test)]
mod veth;
pub mod xdp;

/// Address of an Ethernet adapter.
pub(crate) type Mac = [u8; 6];

/// Frames that a ring has refused or lost, counted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingCounts {
    /// Frames that came and are no datagram for this endpoint.
    pub(crate) strays: u64,
    /// Frames that were lost because the ring was full.
    pub(crate) overflows: u64,
    /// Frames that could not be sent, and are lost.
    pub(crate) refused: u64,
}

impl RingCounts {
    /// Adds those of another ring.
    pub(crate) const fn add(&mut self, other: Self) {
        self.strays += other.strays;
        self.overflows += other.overflows;
        self.refused += other.refused;
    }
}

/// How many bytes of a datagram are sent that begins so: not what follows a frame of ours, if that is left out.
fn unpadded(begin: &[u8], bytes: usize, leave: bool) -> usize {
    let frame = if leave { frame_len(begin) } else { None };
    frame.map_or(bytes, |frame| frame.min(bytes))
}

/// A pair of rings shared with the kernel: frames in, frames out.
pub(crate) trait Ring: std::fmt::Debug + Send {
    /// Bytes of the longest UDP body that one frame of this ring carries.
    fn body_max(&self) -> usize;

    /// How many frames of the longest kind may lie in it before they are received.
    fn holds(&self) -> usize;

    /// Takes frames in that have come, at most `most`; each is the UDP body, to be changed in place if need be
    /// (unsealing). How many.
    fn receive(&mut self, most: usize, each: &mut dyn FnMut(SocketAddr, &mut [u8])) -> usize;

    /// Whether anything has come: a look at shared memory, no call.
    fn has_frames(&self) -> bool;

    /// Sends `parts`, in the order of travel, cut into frames of `segment` bytes, the last of which may be shorter: all
    /// of them, or `false` and none, if there is no room now.
    ///
    /// # Errors
    /// Invalid input, without a number of the kernel's, if a frame is longer than [`Ring::body_max`], there are more of
    /// them than the ring has slots, or `hop` leaves by another interface: nothing was sent, and the ring is as good as
    /// before. Others if the ring is of no use any more (its interface is gone or down, for example): the frames are
    /// lost.
    fn send(&mut self, hop: &Hop, parts: &[IoSlice<'_>], segment: usize) -> io::Result<bool>;

    /// From now on what follows a frame of ours in a datagram of [`Ring::send`] is left out, but for the last one: it
    /// makes all of them as long as a socket wants them that sends them at once.
    fn leave_padding(&mut self);

    /// As [`Ring::send`], but parts that lie among the pages of the ring's own memory are sent from there, if it can do
    /// that ([`Ring::site`]): they are not changed while its [`Flights`](xdp::Flights) has any of them. Parts of
    /// `borrowed` are copied wherever they lie.
    ///
    /// # Errors
    /// As [`Ring::send`].
    fn send_pages(&mut self, hop: &Hop, parts: &[IoSlice<'_>], segment: usize, borrowed: &[u8]) -> io::Result<bool> {
        let _ = borrowed;
        self.send(hop, parts, segment)
    }

    /// Where pages lie that are sent without a copy, if there are any.
    fn site(&self) -> Option<xdp::Site> {
        None
    }

    /// Whether the kernel has left frames in the ring with which it goes on when it is told to
    /// ([`Ring::look_after_sent`]), or at the next send.
    fn leaves(&self) -> bool {
        false
    }

    /// Takes in what the kernel says of pages that it has sent, and has it go on with what it has left.
    ///
    /// # Errors
    /// If the ring is of no use any more.
    fn look_after_sent(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Most frames of one send, if all of them are as long as may be and none is under way. Shorter ones may be more.
    fn slots(&self) -> usize;

    /// Most frames of one send now, if all of them are as long as may be.
    fn room(&mut self) -> usize;

    /// Readable when frames have come.
    fn watched(&self) -> BorrowedFd<'_>;

    /// What was refused or lost so far.
    fn counts(&mut self) -> RingCounts;

    /// The ring, if payloads land where they belong: then frames are taken from it in another way.
    fn placing(&mut self) -> Option<&mut xdp::XdpRing> {
        None
    }

    /// Whether the driver itself writes what comes to the memory of the ring.
    fn is_zero_copy(&self) -> bool {
        false
    }

    /// Has the kernel take no more frames to the ring: they go to the UDP socket. What has come can still be taken in.
    fn stop(&self) {}

    /// Why no frames come to it any more, as far as the kernel says so when it is asked: by its socket, since it was
    /// asked last, or what it has said to a call that nobody has heard of, that its interface went down, for example.
    /// As long as nobody asks, whoever waits on the socket is woken by it again and again.
    fn failed(&self) -> Option<io::Error> {
        socket_failed(self.watched()).map(io::Error::from)
    }

    /// Why it is of no use any more, if that shows without a send.
    fn broken(&self) -> Option<String> {
        None
    }

    /// It is given up. Whether the kernel writes to no memory of it any more that anybody else has.
    fn retire(&mut self) -> bool {
        true
    }
}

/// What the kernel has said of a socket since it was asked last.
fn socket_failed(socket: BorrowedFd<'_>) -> Option<Errno> {
    socket_error(socket).ok().and_then(Result::err)
}

/// Where frames of this endpoint leave, and how they are addressed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hop {
    local: SocketAddrV4,
    remote: SocketAddrV4,
    interface: u32,
    resolved: Instant,
    envelope: Envelope,
}

impl Hop {
    /// From `local` to `remote`, by the interface of this index, whose hardware address is `from`, to the neighbour
    /// whose hardware address is `to`, as was found out at `resolved`.
    pub(crate) const fn new(
        (local, from): (SocketAddrV4, Mac),
        (remote, to): (SocketAddrV4, Mac),
        interface: u32,
        resolved: Instant,
    ) -> Self {
        Self { local, remote, interface, resolved, envelope: Envelope::new((local, from), (remote, to)) }
    }

    /// Who sends.
    pub(crate) const fn local(&self) -> SocketAddrV4 {
        self.local
    }

    /// Who shall receive.
    pub(crate) const fn remote(&self) -> SocketAddrV4 {
        self.remote
    }

    /// Index of the interface.
    pub(crate) const fn interface(&self) -> u32 {
        self.interface
    }

    /// When the way was asked for. Neighbours change their hardware addresses; who keeps this asks again after some
    /// seconds.
    pub(crate) const fn resolved(&self) -> Instant {
        self.resolved
    }
}
