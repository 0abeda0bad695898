//! UDP with many segments in one call, gathered from and scattered to memory of the caller.
//!
//! A train is what one call sends or receives: segments of equal size, each of which is a datagram on the wire; only
//! the last may be shorter. `UDP_SEGMENT` cuts a train on its way out and `UDP_GRO` joins it again (udp(7)); on a path
//! inside one machine it travels uncut. The scatter lists decide where its bytes lie on both sides, so that headers go
//! aside and payloads land where they belong.
//!
//! The calls go to the kernel directly: those of the C library are points at which a thread may be cancelled, and their
//! bookkeeping costs a tenth of a look that finds nothing. One datagram in one piece goes by the call that takes no
//! lists, which is 0.15 us shorter.

mod drops;

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

pub use cutthrough_engine::net::trains::TRAIN_BYTES;
use libc::{c_int, c_void, socklen_t};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

/// Most parts of a scatter list in one call (`UIO_MAXIOV` of Linux).
pub const PARTS: usize = 1024;

/// Bytes of buffer that are asked for in each direction. The kernel takes memory only for what is under way.
const BUFFER_BYTES: usize = 32 << 20;

/// What [`Datagrams::receive_bytes`] says where the kernel has given all that it was asked for: it counts twice that.
pub const RECEIVE_BYTES: usize = 2 * BUFFER_BYTES;

/// What the kernel calls a bound UDP socket: it never blocks and never fragments, and it takes whole trains.
#[derive(Debug)]
pub struct Datagrams {
    fd: OwnedFd,
    /// What stands for it on a network that is not there.
    #[cfg(feature = "simulated")]
    port: Option<crate::simulated::Port>,
}

/// What one call has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes that arrived in this train, including those for which there was no room.
    pub bytes: usize,
    /// Bytes of each segment but the last, which may be shorter; as much as `bytes` if there is only one. Never 0
    /// unless `bytes` is.
    pub segment: u16,
    /// Who has sent it.
    pub from: SocketAddr,
    /// To which address of this machine, if [`Datagrams::tell_local`] has asked for that.
    pub local: Option<IpAddr>,
    /// Whether the end of it is lost, because it did not fit into the scatter list.
    pub truncated: bool,
}

impl Datagrams {
    /// Binds to `address`; port 0 is any free port. IPv4 or IPv6, as the address is; at `[::]` both.
    ///
    /// It asks for the largest buffers that it may have, and for datagrams that are never fragmented, whatever the path
    /// is believed to carry (`IP_PMTUDISC_PROBE`, so that the caller finds out by RFC 8899).
    ///
    /// # Errors
    /// As the kernel says: the address is in use, or not of this machine, or `UDP_GRO` is unknown (before Linux 5.0).
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = Self::unbound(address)?;
        rustix::net::bind(&socket.fd, &address)?;
        Ok(socket)
    }

    /// As [`Datagrams::bind`] makes them for addresses like this one, but bound to none: nothing comes.
    ///
    /// # Errors
    /// As of [`Datagrams::bind`].
    pub fn unbound(like: SocketAddr) -> io::Result<Self> {
        let fd = open(like)?;
        set(fd.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1)?;
        set(fd.as_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
        if like.is_ipv6() {
            sockopt::set_ipv6_v6only(&fd, !like.ip().is_unspecified())?;
            set(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
        }
        // Only who may administer the network gets more than the machine's usual limit.
        sockopt::set_socket_recv_buffer_size_force(&fd, BUFFER_BYTES)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&fd, BUFFER_BYTES))?;
        set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, saturating(BUFFER_BYTES))
            .or_else(|_| set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, saturating(BUFFER_BYTES)))?;
        Ok(Self::passed(fd))
    }

    /// Binds this one, which is bound to none, to an address with a port that `other` has already. From then on both
    /// hear what comes to it until one is joined to a peer; no third one can have it.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn bind_beside(&self, other: &Self, address: SocketAddr) -> io::Result<()> {
        sockopt::set_socket_reuseport(&self.fd, true)?;
        sockopt::set_socket_reuseport(&other.fd, true)?;
        let bound = rustix::net::bind(&self.fd, &address);
        // Only while it is bound: another process of this user could have the port, too.
        sockopt::set_socket_reuseport(&self.fd, false)?;
        sockopt::set_socket_reuseport(&other.fd, false)?;
        Ok(bound?)
    }

    /// A socket that [`Datagrams::bind`] has made in another process, which has passed it to this one.
    #[must_use]
    pub const fn passed(fd: OwnedFd) -> Self {
        Self {
            fd,
            #[cfg(feature = "simulated")]
            port: None,
        }
    }

    /// As [`Datagrams::bind`], on a host that is not there. It has no peer that it is joined to, and tells no address.
    ///
    /// # Errors
    /// The address is in use, or is not the host's.
    #[cfg(feature = "simulated")]
    pub fn simulated(host: &crate::simulated::Host, address: SocketAddr) -> io::Result<Self> {
        let (port, fd) = host.bind(address)?;
        Ok(Self { fd, port: Some(port) })
    }

    /// The address that it is bound to, with the port that it was given.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn local(&self) -> io::Result<SocketAddr> {
        #[cfg(feature = "simulated")]
        if let Some(port) = &self.port {
            return Ok(port.local());
        }
        let address = rustix::net::getsockname(&self.fd)?;
        Ok(SocketAddr::try_from(address)?)
    }

    /// Bytes that the kernel keeps for this receiver at most, counted with all that it needs around them; what comes
    /// while they are taken is lost. 0 if the kernel does not say.
    #[must_use]
    pub fn receive_bytes(&self) -> usize {
        #[cfg(feature = "simulated")]
        if let Some(port) = &self.port {
            return port.receive_bytes();
        }
        sockopt::socket_recv_buffer_size(&self.fd).unwrap_or_default()
    }

    /// Whether half of what the kernel keeps of what was sent is on its way to the wire. False if it does not say.
    pub(crate) fn is_half_full(&self) -> bool {
        let (mut bytes, Ok(room)) = (0, sockopt::socket_send_buffer_size(&self.fd)) else { return false };
        // SAFETY: the kernel writes one number, and there is room for it.
        let told = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } == 0;
        told && usize::try_from(bytes).is_ok_and(|bytes: usize| bytes > room / 2)
    }

    /// Joins it to one peer: only that one is heard from then on, and whatever is sent without an address goes there.
    ///
    /// # Errors
    /// As the kernel says: no way leads there, or the peer's address is of the other family.
    pub fn connect(&self, to: SocketAddr) -> io::Result<()> {
        Ok(rustix::net::connect(&self.fd, &to)?)
    }

    /// Joins it to nobody. The kernel forgets the address that it has chosen for the one before, if it was bound to
    /// all.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn part(&self) -> io::Result<()> {
        Ok(rustix::net::connect_unspec(&self.fd)?)
    }

    /// Asks the kernel to say to which address of this machine each train has come, if the socket is bound to all of
    /// them: whether it is.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn tell_local(&self) -> io::Result<bool> {
        match self.local()?.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => set(self.as_fd(), libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?,
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => set(self.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// As [`Datagrams::route_mtu`], for what this socket sends.
    ///
    /// # Errors
    /// As of that.
    pub fn mtu(&self, to: SocketAddr) -> io::Result<u32> {
        #[cfg(feature = "simulated")]
        if let Some(port) = &self.port {
            return Ok(port.mtu(to));
        }
        Self::route_mtu(to)
    }

    /// The longest IP datagram, in bytes with its headers, that the way to `to` is believed to carry now.
    ///
    /// # Errors
    /// As the kernel says: no way leads there.
    pub fn route_mtu(to: SocketAddr) -> io::Result<u32> {
        let fd = open(to)?;
        rustix::net::connect(&fd, &to)?;
        let bytes = match to {
            SocketAddr::V4(_) => get(fd.as_fd(), libc::IPPROTO_IP, libc::IP_MTU)?,
            SocketAddr::V6(_) => get(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_MTU)?,
        };
        Ok(u32::try_from(bytes).unwrap_or_default())
    }

    /// Sends `parts`, one after the other, in one call that never waits: as one datagram, or cut every `segment` bytes
    /// if that is given. Goes to `to`, or to whom it is joined to.
    ///
    /// Returns the bytes that went: all of them.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if there is no room now. [`Errno::MSGSIZE`] if a datagram is longer than the way out carries,
    /// or there are more than [`TRAIN_BYTES`] or [`PARTS`]. [`Errno::INVAL`] if there are more segments than the kernel
    /// takes (64 before Linux 6.9, then 128), or, on older kernels, if one is longer than the way out carries.
    /// [`Errno::CONNREFUSED`] if the one that it is joined to did not listen earlier; this was not sent then. Others as
    /// the kernel says.
    pub fn send(&self, to: Option<SocketAddr>, parts: &[IoSlice<'_>], segment: Option<u16>) -> Result<usize, Errno> {
        self.send_from(None, to, parts, segment)
    }

    /// As [`Datagrams::send`], from this address of the machine; the kernel chooses one if none is named.
    ///
    /// # Errors
    /// As of [`Datagrams::send`]; [`Errno::INVAL`] if it is no address of this machine.
    pub fn send_from(
        &self,
        from: Option<IpAddr>,
        to: Option<SocketAddr>,
        parts: &[IoSlice<'_>],
        segment: Option<u16>,
    ) -> Result<usize, Errno> {
        #[cfg(feature = "simulated")]
        if let Some(port) = &self.port {
            return port.send(to, parts, segment);
        }
        if let ([part], None, None) = (parts, from, segment) {
            return match to {
                Some(to) => rustix::net::sendto(&self.fd, part, SendFlags::DONTWAIT, &to),
                None => rustix::net::send(&self.fd, part, SendFlags::DONTWAIT),
            };
        }
        let mut name = to.map(Name::from);
        let mut control = Control::default();
        let mut message = empty();
        if let Some(name) = &mut name {
            message.msg_namelen = name.bytes();
            message.msg_name = (&raw mut *name).cast();
        }
        // The kernel only reads what this list names; the type knows lists for both ways alone.
        message.msg_iov = parts.as_ptr().cast::<libc::iovec>().cast_mut();
        message.msg_iovlen = parts.len();
        if let Some(segment) = segment {
            control.add(&mut message, (libc::SOL_UDP, libc::UDP_SEGMENT), segment);
        }
        match from {
            Some(IpAddr::V4(from)) => {
                let from = libc::in_addr { s_addr: u32::from_ne_bytes(from.octets()) };
                let any = libc::in_addr { s_addr: 0 };
                let source = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: from, ipi_addr: any };
                control.add(&mut message, (libc::IPPROTO_IP, libc::IP_PKTINFO), source);
            }
            Some(IpAddr::V6(from)) => {
                let from = libc::in6_addr { s6_addr: from.octets() };
                let source = libc::in6_pktinfo { ipi6_addr: from, ipi6_ifindex: 0 };
                control.add(&mut message, (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO), source);
            }
            None => {}
        }
        // SAFETY: `message` names the address, the list and the control messages, with their true lengths; all of them
        // are alive and nobody writes them until the call returns. An `IoSlice` is an `iovec`, as its documentation
        // promises.
        let sent =
            unsafe { libc::syscall(libc::SYS_sendmsg, self.fd.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) };
        usize::try_from(sent).map_err(|_| last_error())
    }

    /// Shows the first bytes of what [`Datagrams::receive`] would receive now: how many.
    ///
    /// # Errors
    /// As of [`Datagrams::receive`].
    pub fn peek(&self, into: &mut [u8]) -> Result<usize, Errno> {
        #[cfg(feature = "simulated")]
        if let Some(port) = &self.port {
            return port.peek(into);
        }
        Ok(rustix::net::recv(&self.fd, into, RecvFlags::PEEK | RecvFlags::DONTWAIT)?.0)
    }

    /// Whether datagrams of one sender that come together are joined to trains, as they are from the beginning.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn set_trains(&self, joined: bool) -> io::Result<()> {
        set(self.as_fd(), libc::SOL_UDP, libc::UDP_GRO, joined.into())
    }

    /// Cuts what is sent into segments of so many bytes wherever a call does not say otherwise; not at all with 0, as
    /// from the beginning.
    ///
    /// # Errors
    /// As the kernel says.
    pub(crate) fn set_cut(&self, segment: u16) -> io::Result<()> {
        set(self.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, segment.into())
    }

    /// Sends what the kernel still holds of a train of which only a part was taken.
    ///
    /// # Errors
    /// As the kernel says.
    pub(crate) fn push_out(&self) -> io::Result<()> {
        set(self.as_fd(), libc::SOL_UDP, libc::UDP_CORK, 0)
    }

    /// Receives one datagram in one call that never waits: its bytes, including those for which there was no room.
    /// Takes 0.2 microseconds less than [`Datagrams::receive`], and says nothing else: only for a socket that is joined
    /// to a peer, and takes no trains.
    ///
    /// # Errors
    /// As of [`Datagrams::receive`].
    #[inline]
    pub fn receive_lone(&self, into: &mut [u8]) -> Result<usize, Errno> {
        Ok(rustix::net::recv(&self.fd, into, RecvFlags::DONTWAIT.union(RecvFlags::TRUNC))?.1)
    }

    /// Receives one train into `parts`, one after the other, in one call that never waits.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if nothing is there. [`Errno::CONNREFUSED`] if the one that it is joined to did not listen
    /// earlier. Others as the kernel says.
    #[inline]
    pub fn receive(&self, parts: &mut [IoSliceMut<'_>]) -> Result<Received, Errno> {
        const FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        #[cfg(feature = "simulated")]
        if let Some(port) = &self.port {
            return port.receive(parts);
        }
        let mut name = Name::default();
        let mut control = Control::default();
        let mut message = empty();
        message.msg_name = (&raw mut name).cast();
        message.msg_namelen = length_of::<Name>();
        message.msg_iov = parts.as_mut_ptr().cast();
        message.msg_iovlen = parts.len();
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<Control>();
        // SAFETY: `message` names the address, the list and the room for control messages, with their true lengths;
        // all of them are alive and borrowed by nobody else until the call returns. An `IoSliceMut` is an `iovec`, as
        // its documentation promises, and names memory that is borrowed for writing.
        let received = unsafe { libc::syscall(libc::SYS_recvmsg, self.fd.as_raw_fd(), &raw mut message, FLAGS) };
        let bytes = usize::try_from(received).map_err(|_| last_error())?;
        let whole = u16::try_from(bytes).unwrap_or(u16::MAX);
        let (segment, local) = Control::told(&message);
        Ok(Received {
            bytes,
            segment: segment.unwrap_or(whole).min(whole),
            local,
            from: name.address().ok_or(Errno::AFNOSUPPORT)?,
            truncated: message.msg_flags & libc::MSG_TRUNC != 0,
        })
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
impl Datagrams {
    /// Has the kernel refuse trains, as it does where a device computes no check sums.
    pub(crate) fn refuse_trains(&self) {
        set(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).expect("an option of every socket");
    }

    /// Takes so many bytes for anybody, as before a device that stands still; returns who would have to read.
    pub(crate) fn stand_still(&mut self, bytes: usize) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (from, to) = pair.expect("a pair");
        let mut parts = (0..=bytes).step_by(512);
        while parts.next().is_some() && rustix::net::send(&from, &[0; 512], rustix::net::SendFlags::empty()).is_ok() {}
        self.fd = from;
        to
    }
}

/// A fresh file descriptor for addresses like this one.
fn open(like: SocketAddr) -> io::Result<OwnedFd> {
    let family = if like.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?)
}

/// Sets an option whose value is a C `int`.
pub(super) fn set(fd: BorrowedFd<'_>, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    let length = length_of::<c_int>();
    // SAFETY: the value is alive during the call, and its length is right.
    let done = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast::<c_void>(), length) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option whose value is a C `int`.
fn get(fd: BorrowedFd<'_>, level: c_int, option: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut length = length_of::<c_int>();
    let room = (&raw mut value).cast::<c_void>();
    // SAFETY: the room for the value is alive during the call, and its length is right; so is that of the length.
    let done = unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, room, &raw mut length) };
    if done == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

#[expect(clippy::cast_possible_truncation, reason = "nothing here has more than a few bytes")]
const fn length_of<T>() -> socklen_t {
    size_of::<T>() as socklen_t
}

fn saturating(bytes: usize) -> c_int {
    c_int::try_from(bytes).unwrap_or(c_int::MAX)
}

#[cold]
fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// A message that names nothing yet.
fn empty() -> libc::msghdr {
    // SAFETY: all fields are numbers or pointers that may be null; zero is a value of each.
    unsafe { zeroed() }
}

/// An address as the kernel writes it; both kinds begin with the family, by which they are told apart.
#[repr(C)]
union Name {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

const V4: libc::sa_family_t = family_of(libc::AF_INET);
const V6: libc::sa_family_t = family_of(libc::AF_INET6);

#[expect(clippy::cast_possible_truncation, reason = "the kernel keeps these two small numbers in two types")]
const fn family_of(family: c_int) -> libc::sa_family_t {
    family as libc::sa_family_t
}

impl Default for Name {
    fn default() -> Self {
        // SAFETY: every field of every kind is a number or an array of numbers; zero is a value of each.
        unsafe { zeroed() }
    }
}

impl From<SocketAddr> for Name {
    fn from(address: SocketAddr) -> Self {
        let mut name = Self::default();
        match address {
            SocketAddr::V4(address) => {
                name.v4 = libc::sockaddr_in {
                    sin_family: V4,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                    sin_zero: [0; 8],
                };
            }
            SocketAddr::V6(address) => {
                name.v6 = libc::sockaddr_in6 {
                    sin6_family: V6,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
            }
        }
        name
    }
}

impl Name {
    fn family(&self) -> libc::sa_family_t {
        // SAFETY: all bytes of a name are written when it is made, and any of them are a number.
        unsafe { self.family }
    }

    /// Bytes that the kernel has to read.
    fn bytes(&self) -> socklen_t {
        if self.family() == V4 { length_of::<libc::sockaddr_in>() } else { length_of::<libc::sockaddr_in6>() }
    }

    /// The address; none if it is of no kind that is known here.
    fn address(&self) -> Option<SocketAddr> {
        match self.family() {
            V4 => {
                // SAFETY: as in `family`: all bytes are written, and any of them are numbers.
                let v4 = unsafe { self.v4 };
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            V6 => {
                // SAFETY: as in `family`: all bytes are written, and any of them are numbers.
                let v6 = unsafe { self.v6 };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                Some(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// Room for control messages, aligned as their heads ask: how long segments are, and an address of this machine.
#[derive(Default)]
#[repr(C, align(8))]
struct Control([u64; 8]);

impl Control {
    /// Adds one of this level and type to `message`, behind those that it has.
    fn add<T: Copy>(&mut self, message: &mut libc::msghdr, (level, kind): (c_int, c_int), value: T) {
        let bytes = length_of::<T>();
        let begin = message.msg_controllen;
        // SAFETY: this only computes lengths.
        let (space, length) = unsafe { (libc::CMSG_SPACE(bytes), libc::CMSG_LEN(bytes)) };
        assert!(begin + space as usize <= size_of::<Self>(), "room for two of them");
        // One pointer for both, and the last that is made here: the kernel reads by it.
        let room = (&raw mut self.0).cast::<u64>();
        message.msg_control = room.cast();
        message.msg_controllen = begin + space as usize;
        // SAFETY: this room has `space` bytes from `begin` on, as was just seen; that is a multiple of a head's
        // alignment, as all lengths with which others were added are.
        unsafe {
            let head = room.add(begin / size_of::<u64>()).cast::<libc::cmsghdr>();
            (*head).cmsg_level = level;
            (*head).cmsg_type = kind;
            (*head).cmsg_len = length as usize;
            libc::CMSG_DATA(head).cast::<T>().write_unaligned(value);
        }
    }

    /// Bytes of each segment, where the kernel says that it has joined some; and the address of this machine to which
    /// they have come, where it was asked for that.
    fn told(message: &libc::msghdr) -> (Option<u16>, Option<IpAddr>) {
        let (mut segment, mut local) = (None, None);
        // SAFETY: `message` names a room whose first `msg_controllen` bytes the kernel has filled with control
        // messages; the steps below stay inside of them by the lengths that the kernel wrote, and each is read as what
        // its level and type say that it is, any bytes of which are numbers.
        unsafe {
            let mut head = libc::CMSG_FIRSTHDR(message);
            while let Some(at) = head.as_ref() {
                match (at.cmsg_level, at.cmsg_type) {
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        let value = Self::value::<c_int>(head);
                        segment = value.and_then(|value| u16::try_from(value).ok()).filter(|bytes| *bytes > 0);
                    }
                    (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                        let info = Self::value::<libc::in_pktinfo>(head);
                        local = info.map(|info| Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes()).into());
                    }
                    (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                        let info = Self::value::<libc::in6_pktinfo>(head);
                        local = info.map(|info| Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                    }
                    _ => {}
                }
                head = libc::CMSG_NXTHDR(message, head);
            }
        }
        (segment, local)
    }

    /// What a control message says; nothing if it has been cut short, for want of room.
    ///
    /// # Safety
    /// The head and as many bytes as it says can be read, and any bytes are a `T`.
    unsafe fn value<T>(head: *const libc::cmsghdr) -> Option<T> {
        // SAFETY: the head can be read, and all of a `T` behind it, if its length says so.
        unsafe {
            let whole = (*head).cmsg_len >= libc::CMSG_LEN(length_of::<T>()) as usize;
            whole.then(|| libc::CMSG_DATA(head).cast::<T>().read_unaligned())
        }
    }
}

#[cfg(test)]
mod tests;
