//! The ring of any Ethernet adapter: frames that the kernel copies from and to memory that it shares with us.
//!
//! It needs the right `CAP_NET_RAW`, and Linux 6.2 or newer, the first whose taps say how a train of datagrams is cut.
//! Frames that the ring takes still climb up to the UDP socket, where a filter drops them.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cutthrough_engine::net::batch;
use cutthrough_engine::time::Instant;
use rustix::io::Errno;

use super::cursor::Cursor;
use super::envelope::{ENVELOPE_BYTES, ETHERNET_BYTES, Envelope, IP_BYTES, UDP_BYTES, parse};
use super::filter::{self, Rule};
use super::route::Interface;
use super::{Hop, Ring, RingCounts, socket_failed, unpadded};
use crate::clock;
use crate::sys::packet::{Packets, Size, attach, detach};

/// Bytes of memory for frames that come, and for those that go.
const MEMORY: (usize, usize) = (4 << 20, 1 << 20);
/// Slots that either has at least, so that a batch of as many frames as there may be has room, and the next one beside
/// it. Where frames may be long that takes more memory: some 9 MiB each at the longest MTU.
const SLOTS: usize = 2 * batch::FRAMES;

/// Nanoseconds for which an interface may drop a frame before it is lost, if shorter ones wait behind it.
const DROPPED_NS: u64 = 20_000_000;

/// Why there is no ring.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PacketError {
    /// The process may not.
    #[error(
        "raw frames need the right CAP_NET_RAW in this network namespace: run as root, give the program the right by \
         'setcap cap_net_raw+ep', or try 'unshare -Urn'; plain UDP (adapter udp) needs none"
    )]
    Right,
    /// The kernel cannot.
    #[error("raw frames need Linux 6.2 or newer with CONFIG_PACKET, and this is {0}; use plain UDP (adapter udp)")]
    Kernel(String),
    /// The endpoint's own address is not known.
    #[error("raw frames need the endpoint's own address and port, not {0}; bind it to an address of one interface")]
    Anywhere(SocketAddrV4),
    /// It is not switched on, or has gone.
    #[error("the interface {0} is down or gone; 'ip link set {0} up' switches it on")]
    Interface(String),
    /// The kernel has no memory for the rings.
    #[error("the kernel has no memory for the rings ({} KiB); use plain UDP (adapter udp)", .0 >> 10)]
    Memory(usize),
    /// Anything else that the kernel says.
    #[error("no raw frames on {interface}: {errno}; use plain UDP (adapter udp)")]
    System {
        /// The name of the interface.
        interface: String,
        /// What it says.
        errno: Errno,
    },
}

/// Rings on one interface, beside the UDP sockets of an endpoint.
#[derive(Debug)]
pub(crate) struct PacketRing {
    packets: Packets,
    /// Those that drop what the ring takes.
    sockets: Vec<OwnedFd>,
    local: SocketAddrV4,
    interface: u32,
    body_max: usize,
    /// Datagrams of the train that came first that were shown already.
    shown: usize,
    /// Frames in the ring that the kernel has not been told of with success, or not all of which it has taken.
    unkicked: usize,
    /// Whether some of them wait only for others to leave the adapter: the socket may have no more under way.
    waits: bool,
    /// The slot of a frame that the interface has dropped, and since when it has: it stands before all others.
    dropped: Option<(usize, Instant)>,
    /// Why nothing goes any more. The kernel says that once, to whoever calls it next.
    failed: Option<Errno>,
    counts: RingCounts,
    leaves_padding: bool,
}

impl PacketRing {
    /// Opens rings on `interface` beside `sockets`, which are bound to `local` or to its port, or will be. From then on
    /// the short frames for `local` that rings have sent and that come by this interface come to the ring alone, and
    /// after this value's end to a socket again. A frame that comes while this is done may come twice.
    ///
    /// # Errors
    /// [`PacketError`]; then nothing has changed.
    pub(crate) fn open(sockets: Vec<OwnedFd>, local: SocketAddrV4, interface: &Interface) -> Result<Self, PacketError> {
        Self::open_for(sockets, local, interface, true)
    }

    /// With `of_rings`, only what a ring has sent comes to the ring.
    fn open_for(
        sockets: Vec<OwnedFd>,
        local: SocketAddrV4,
        interface: &Interface,
        of_rings: bool,
    ) -> Result<Self, PacketError> {
        if local.ip().is_unspecified() || local.port() == 0 {
            return Err(PacketError::Anywhere(local));
        }
        let release = release();
        is_new_enough(&release)?;
        let total_max = u16::try_from(interface.mtu).unwrap_or(u16::MAX);
        let rule = Rule { to: local, interface: interface.index, total_max, of_rings };
        let size = Size { longest: ETHERNET_BYTES + usize::from(total_max), bytes: MEMORY, least: SLOTS };
        let name = || interface.name.clone();
        let refused = |error| match error {
            Errno::PERM | Errno::ACCESS => PacketError::Right,
            Errno::AFNOSUPPORT | Errno::NOPROTOOPT => PacketError::Kernel(release.clone()),
            Errno::NODEV | Errno::NXIO | Errno::NETDOWN => PacketError::Interface(name()),
            Errno::NOMEM | Errno::NOBUFS => PacketError::Memory(size.all()),
            errno => PacketError::System { interface: name(), errno },
        };
        let packets = Packets::open(interface.index, &filter::tap(&rule), size).map_err(refused)?;
        let ring = Self {
            packets,
            sockets,
            local,
            interface: interface.index,
            body_max: usize::from(total_max).saturating_sub(IP_BYTES + UDP_BYTES),
            shown: 0,
            unkicked: 0,
            waits: false,
            dropped: None,
            failed: None,
            counts: RingCounts::default(),
            leaves_padding: false,
        };
        let drops = filter::socket(&rule);
        ring.sockets.iter().try_for_each(|socket| attach(socket.as_fd(), &drops)).map_err(refused)?;
        Ok(ring)
    }

    /// Tells the kernel of the frames in the ring. What it does not take now stays there.
    fn kick(&mut self) -> io::Result<()> {
        let mut kicked = self.packets.kick();
        if kicked == Err(Errno::NOBUFS) && self.is_stuck() {
            self.counts.refused += self.packets.pass_over_longer();
            kicked = self.packets.kick();
        }
        self.waits = match kicked {
            Ok(()) => self.packets.has_unsent(),
            // What is passed over soon shall not keep shorter ones until somebody sends again.
            Err(error) => error == Errno::AGAIN || error == Errno::NOBUFS && self.packets.keeps_shorter(),
        };
        match kicked {
            Ok(()) if self.waits => {}
            Ok(()) => (self.unkicked, self.dropped) = (0, None),
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {}
            Err(error) => {
                self.counts.refused += std::mem::take(&mut self.unkicked) as u64;
                self.failed = Some(error);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Whether the interface has dropped the frame that stands before all others for long. It may be longer than the
    /// other end takes by now, and would never go; one that is shorter may.
    #[cold]
    fn is_stuck(&mut self) -> bool {
        let (now, head) = (clock::now(), self.packets.head());
        let since = self.dropped.filter(|(slot, _)| Some(*slot) == head).map_or(now, |(_, since)| since);
        self.dropped = head.map(|slot| (slot, since));
        now.saturating_since(since) >= DROPPED_NS
    }

    /// Slots that are free, and if there are few, those that a further call frees.
    fn free(&mut self, wanted: usize) -> usize {
        let free = self.packets.free();
        if free >= wanted || self.unkicked == 0 {
            return free;
        }
        // Who sends next sees the error, or who asks whether the ring has failed.
        let _ = self.kick();
        self.packets.free()
    }
}

impl Ring for PacketRing {
    fn body_max(&self) -> usize {
        self.body_max
    }

    fn holds(&self) -> usize {
        self.packets.holds()
    }

    fn receive(&mut self, most: usize, each: &mut dyn FnMut(SocketAddr, &mut [u8])) -> usize {
        if self.unkicked > 0 {
            let _ = self.kick();
        }
        let mut received = 0;
        while received < most {
            let (local, skip, room) = (self.local, &mut self.shown, most - received);
            let strays = &mut self.counts.strays;
            let came = self.packets.take(|train, frame| {
                let Some((from, _, body)) = parse(frame).filter(|(_, to, _)| *to == local) else {
                    *strays += 1;
                    return true;
                };
                if train == 0 {
                    each(from.into(), body);
                    received += 1;
                    return true;
                }
                let mut rest = body.chunks_mut(usize::from(train)).skip(*skip);
                let shown = rest.by_ref().take(room).map(|body| each(from.into(), body)).count();
                received += shown;
                let done = rest.next().is_none();
                *skip = if done { 0 } else { *skip + shown };
                done
            });
            if !came {
                break;
            }
        }
        received
    }

    #[inline]
    fn has_frames(&self) -> bool {
        self.packets.has_frame()
    }

    fn send(&mut self, hop: &Hop, parts: &[IoSlice<'_>], segment: usize) -> io::Result<bool> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let longest = segment.min(bytes);
        // An empty datagram is a datagram too.
        let frames = bytes.div_ceil(segment.max(1)).max(1);
        let fits = segment > 0 && longest <= self.body_max && frames <= self.packets.slots();
        if !fits || hop.interface() != self.interface {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let free = self.free(frames);
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        if free < frames {
            return Ok(false);
        }
        let mut cursor = Cursor::new(parts);
        let mut left = bytes;
        for number in 0..frames {
            let whole = left.min(segment);
            let body = unpadded(cursor.next_part(), whole, self.leaves_padding && number + 1 < frames);
            let head = Envelope::write(hop, body);
            self.packets.put(ENVELOPE_BYTES + body, |frame| {
                let (envelope, room) = frame.split_at_mut(ENVELOPE_BYTES);
                envelope.copy_from_slice(&head);
                cursor.copy_to(room);
            });
            cursor.skip(whole - body);
            left -= whole;
        }
        self.unkicked += frames;
        self.kick()?;
        Ok(true)
    }

    fn leave_padding(&mut self) {
        self.leaves_padding = true;
    }

    fn leaves(&self) -> bool {
        self.waits
    }

    fn look_after_sent(&mut self) -> io::Result<()> {
        if self.waits { self.kick() } else { Ok(()) }
    }

    fn slots(&self) -> usize {
        self.packets.slots()
    }

    fn room(&mut self) -> usize {
        let all = self.packets.slots();
        self.free(all)
    }

    fn watched(&self) -> BorrowedFd<'_> {
        self.packets.as_fd()
    }

    fn failed(&self) -> Option<io::Error> {
        self.failed.or_else(|| socket_failed(self.watched())).map(io::Error::from)
    }

    fn counts(&mut self) -> RingCounts {
        self.counts.overflows += self.packets.lost();
        self.counts
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // First the sockets take everything again, then the tap ends: rather twice than never.
        for socket in &self.sockets {
            let _ = detach(socket.as_fd());
        }
    }
}

/// Whether the kernel that runs here is new enough; also to be told before anything is opened.
pub(crate) fn has_kernel() -> Result<(), PacketError> {
    is_new_enough(&release())
}

/// The release of the kernel that runs here.
fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

fn is_new_enough(release: &str) -> Result<(), PacketError> {
    let is_old = version(release).is_some_and(|version| version < (6, 2));
    if is_old { Err(PacketError::Kernel(release.to_owned())) } else { Ok(()) }
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|digit: char| !digit.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod figures;
#[cfg(test)]
mod tests;
