//! Where frames for an IPv4 address go: by which interface, and to which neighbour's hardware address.
//!
//! The kernel knows all of it, because the socket beside the ring sends the same way: [`Routes`] asks it. A neighbour
//! is known once something was sent to it by the socket; until then, and after a long silence, it is
//! [`RouteError::Unresolved`].
//!
//! Frames of a ring do not show the kernel that a neighbour is still where it was, nor do they make it ask. Who sends
//! by a ring alone sends something by the socket every some seconds, and then asks here again.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use rustix::io::Errno;

use super::{Hop, Mac};
use crate::clock;
use crate::sys::netlink::{Answer, Netlink, USABLE};

/// Why no frames can be sent to an address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RouteError {
    /// No way leads there.
    #[error("no way leads to {0}: see 'ip route get {0}'")]
    NoRoute(Ipv4Addr),
    /// The way leads to this machine itself.
    #[error("frames to {0} stay on this machine's loopback, which has no hardware addresses; use udp: or shm: there")]
    Loopback(Ipv4Addr),
    /// No interface of this machine has it.
    #[error("{0} is no address of this machine; 'ip address' lists them")]
    NotOurs(Ipv4Addr),
    /// A group, or everybody.
    #[error("{0} is not the address of one machine; use that of one interface of one machine")]
    Many(Ipv4Addr),
    /// A tunnel, a modem, or the like.
    #[error("the interface {0} is not an Ethernet adapter, so that its frames have another form; use udp: there")]
    NotEthernet(String),
    /// It is not switched on.
    #[error("the interface {0} is down; 'ip link set {0} up' switches it on")]
    Down(String),
    /// The hardware address of the next hop is not known yet.
    #[error("the hardware address of {0} is not known yet; send something by the socket first, then ask again")]
    Unresolved(Ipv4Addr),
    /// The kernel's answer lacks something.
    #[error("the kernel's answer about {0} is not understood; use udp: there")]
    Strange(Ipv4Addr),
    /// Anything else that the kernel says.
    #[error("the kernel does not tell the way to {to}: {errno}; use udp: there")]
    System {
        /// Where to.
        to: Ipv4Addr,
        /// What it says.
        errno: Errno,
    },
}

/// An Ethernet adapter of this machine, or what looks like one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Its number in this network namespace.
    pub(crate) index: u32,
    /// Its name.
    pub(crate) name: String,
    /// Its hardware address.
    pub(crate) mac: Mac,
    /// Bytes of the longest IP datagram, headers included.
    pub(crate) mtu: u32,
}

/// The way to an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    /// By which interface.
    pub(crate) interface: Interface,
    /// From which address the kernel would send.
    pub(crate) source: Ipv4Addr,
    /// To which neighbour: the address itself, or a router.
    pub(crate) next: Ipv4Addr,
}

/// Asks the kernel for ways. It belongs to the network namespace of the thread that has opened it.
#[derive(Debug)]
pub(crate) struct Routes {
    netlink: Netlink,
    /// The host of a network that is not there, whose ways these are.
    #[cfg(feature = "simulated")]
    host: Option<crate::simulated::Host>,
}

// Kinds of requests and attributes: rtnetlink(7).
const GET_LINK: u16 = 18;
const GET_ROUTE: u16 = 26;
const GET_NEIGHBOUR: u16 = 30;
/// Bytes of the fixed part of what is asked and answered.
const LINK_BYTES: usize = 16;
const ROUTE_BYTES: usize = 12;
const NEIGHBOUR_BYTES: usize = 12;
const LINK_MAC: u16 = 1;
const LINK_NAME: u16 = 3;
const LINK_MTU: u16 = 4;
const ROUTE_TO: u16 = 1;
const ROUTE_FROM: u16 = 2;
const ROUTE_INTERFACE: u16 = 4;
const ROUTE_GATEWAY: u16 = 5;
const ROUTE_SOURCE: u16 = 7;
const ROUTE_VIA: u16 = 18;
const NEIGHBOUR_ADDRESS: u16 = 1;
const NEIGHBOUR_MAC: u16 = 2;
/// A flag: the kernel answers with the entry of its table, not with what it makes of it.
const FIB_MATCH: u32 = 0x2000;
/// Kinds of routes.
const UNICAST: u8 = 1;
const LOCAL: u8 = 2;
/// Kind of the hardware, and a flag.
const ETHERNET: u16 = 1;
const UP: u32 = 1;

impl Routes {
    /// Opens the way to the kernel. No right is needed.
    ///
    /// # Errors
    /// As the kernel says.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self {
            netlink: Netlink::open()?,
            #[cfg(feature = "simulated")]
            host: None,
        })
    }

    /// Of a host that is not there. All others are its neighbours.
    ///
    /// # Errors
    /// As the kernel says.
    #[cfg(feature = "simulated")]
    pub(crate) fn simulated(host: &crate::simulated::Host) -> io::Result<Self> {
        Ok(Self { host: Some(host.clone()), ..Self::open()? })
    }

    /// The host that is not there whose ways these are, if there is one.
    #[cfg(feature = "simulated")]
    pub(crate) const fn host(&self) -> Option<&crate::simulated::Host> {
        self.host.as_ref()
    }

    /// The way to `to`, from `from` if that is given.
    ///
    /// # Errors
    /// [`RouteError`], but not [`RouteError::Unresolved`].
    pub(crate) fn route(&mut self, from: Option<Ipv4Addr>, to: Ipv4Addr) -> Result<Route, RouteError> {
        let from = from.filter(|from| !from.is_unspecified());
        let mut fixed = [0; ROUTE_BYTES];
        // Family, and how many bits of both addresses count.
        fixed[..3].copy_from_slice(&[INET, 32, if from.is_some() { 32 } else { 0 }]);
        let mut attributes = vec![(ROUTE_TO, to.octets())];
        attributes.extend(from.map(|from| (ROUTE_FROM, from.octets())));
        let answer = self.netlink.ask(GET_ROUTE, &fixed, &attributes).map_err(|errno| match errno {
            Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS | Errno::INVAL => RouteError::NoRoute(to),
            errno => RouteError::System { to, errno },
        })?;
        let found = Found::read(&answer, from, to)?;
        let interface = self.interface(found.interface, to)?;
        Ok(Route { interface, source: found.source, next: found.next })
    }

    /// The interface that has this address of this machine.
    ///
    /// # Errors
    /// [`RouteError`]; [`RouteError::NotOurs`] if no interface has it.
    pub(crate) fn home(&mut self, local: Ipv4Addr) -> Result<Interface, RouteError> {
        #[cfg(feature = "simulated")]
        if let Some(host) = &self.host {
            return Ok(Interface::simulated(host, local));
        }
        let mut fixed = [0; ROUTE_BYTES];
        fixed[..2].copy_from_slice(&[INET, 32]);
        fixed[8..12].copy_from_slice(&FIB_MATCH.to_ne_bytes());
        let attributes = [(ROUTE_TO, local.octets())];
        let answer = self.netlink.ask(GET_ROUTE, &fixed, &attributes);
        let answer = answer.map_err(|errno| match errno {
            // No way at all leads there.
            Errno::NETUNREACH | Errno::HOSTUNREACH => RouteError::NotOurs(local),
            errno => RouteError::System { to: local, errno },
        })?;
        let [kind] = answer.fixed(7);
        let index = answer.attribute(ROUTE_BYTES, ROUTE_INTERFACE).and_then(|value| value.first_chunk::<4>().copied());
        match index {
            Some(index) if kind == LOCAL => self.interface(u32::from_ne_bytes(index), local),
            _ => Err(RouteError::NotOurs(local)),
        }
    }

    /// The way of all frames from `local` to `remote`, and the interface by which they leave. If `local` has no address
    /// the kernel chooses it.
    ///
    /// # Errors
    /// [`RouteError`].
    pub(crate) fn hop(&mut self, local: SocketAddrV4, remote: SocketAddrV4) -> Result<(Interface, Hop), RouteError> {
        #[cfg(feature = "simulated")]
        if let Some(host) = &self.host {
            let (interface, mac) = (Interface::simulated(host, *local.ip()), crate::simulated::Host::mac(*remote.ip()));
            let hop = Hop::new((local, interface.mac), (remote, mac), interface.index, clock::now());
            return Ok((interface, hop));
        }
        let Route { interface, source, next } = self.route(Some(*local.ip()), *remote.ip())?;
        let mac = self.neighbour(&interface, next)?;
        let local = SocketAddrV4::new(source, local.port());
        let hop = Hop::new((local, interface.mac), (remote, mac), interface.index, clock::now());
        Ok((interface, hop))
    }

    /// How many questions the kernel was asked.
    #[cfg(test)]
    pub(crate) const fn asked(&self) -> u32 {
        self.netlink.asked()
    }

    /// What the interface of this index is; `to` is for whom it is asked.
    fn interface(&mut self, index: u32, to: Ipv4Addr) -> Result<Interface, RouteError> {
        let mut fixed = [0; LINK_BYTES];
        fixed[4..8].copy_from_slice(&index.to_ne_bytes());
        let system = |errno| RouteError::System { to, errno };
        let answer = self.netlink.ask(GET_LINK, &fixed, &[]).map_err(system)?;
        Interface::read(&answer, to)
    }

    /// The hardware address of a neighbour.
    fn neighbour(&mut self, interface: &Interface, next: Ipv4Addr) -> Result<Mac, RouteError> {
        let mut fixed = [0; NEIGHBOUR_BYTES];
        fixed[0] = INET;
        fixed[4..8].copy_from_slice(&interface.index.to_ne_bytes());
        match self.netlink.ask(GET_NEIGHBOUR, &fixed, &[(NEIGHBOUR_ADDRESS, next.octets())]) {
            Ok(answer) => usable(&answer).ok_or(RouteError::Unresolved(next)),
            Err(Errno::NOENT) => Err(RouteError::Unresolved(next)),
            Err(errno) => Err(RouteError::System { to: next, errno }),
        }
    }
}

/// The family of IPv4.
#[expect(clippy::cast_possible_truncation, reason = "it is 2")]
const INET: u8 = libc::AF_INET as u8;

/// What an answer about a way says.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    interface: u32,
    source: Ipv4Addr,
    next: Ipv4Addr,
}

impl Found {
    fn read(answer: &Answer<'_>, from: Option<Ipv4Addr>, to: Ipv4Addr) -> Result<Self, RouteError> {
        let [kind] = answer.fixed(7);
        match kind {
            UNICAST => {}
            LOCAL => return Err(RouteError::Loopback(to)),
            _ if to.is_multicast() || to.is_broadcast() => return Err(RouteError::Many(to)),
            3 => return Err(RouteError::Many(to)),
            _ => return Err(RouteError::NoRoute(to)),
        }
        let word = |kind| answer.attribute(ROUTE_BYTES, kind).and_then(|value| value.first_chunk::<4>().copied());
        // A router may have an address of the other family only.
        if answer.attribute(ROUTE_BYTES, ROUTE_VIA).is_some() {
            return Err(RouteError::Strange(to));
        }
        let interface = word(ROUTE_INTERFACE).map(u32::from_ne_bytes).ok_or(RouteError::Strange(to))?;
        let source = from.or(word(ROUTE_SOURCE).map(Ipv4Addr::from)).ok_or(RouteError::Strange(to))?;
        Ok(Self { interface, source, next: word(ROUTE_GATEWAY).map_or(to, Ipv4Addr::from) })
    }
}

impl Interface {
    /// That of a host that is not there.
    #[cfg(feature = "simulated")]
    fn simulated(host: &crate::simulated::Host, address: Ipv4Addr) -> Self {
        let crate::sys::xdp::Interface { index, name, mtu, .. } = crate::sys::xdp::Interface::simulated(host);
        Self { index, name, mac: crate::simulated::Host::mac(address), mtu }
    }

    fn read(answer: &Answer<'_>, to: Ipv4Addr) -> Result<Self, RouteError> {
        let attribute = |kind| answer.attribute(LINK_BYTES, kind).ok_or(RouteError::Strange(to));
        let name = attribute(LINK_NAME)?.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        match u16::from_ne_bytes(answer.fixed(2)) {
            ETHERNET => {}
            libc::ARPHRD_LOOPBACK => return Err(RouteError::Loopback(to)),
            _ => return Err(RouteError::NotEthernet(name)),
        }
        if u32::from_ne_bytes(answer.fixed(8)) & UP == 0 {
            return Err(RouteError::Down(name));
        }
        let mtu = attribute(LINK_MTU)?.first_chunk().copied().map(u32::from_ne_bytes);
        let mac: Option<Mac> = attribute(LINK_MAC)?.try_into().ok();
        let (Some(mtu), Some(mac)) = (mtu, mac) else { return Err(RouteError::Strange(to)) };
        Ok(Self { index: u32::from_ne_bytes(answer.fixed(4)), name, mac, mtu })
    }
}

/// The hardware address in an answer about a neighbour, if it is to be used.
fn usable(answer: &Answer<'_>) -> Option<Mac> {
    let state = u16::from_ne_bytes(answer.fixed(8));
    let mac = answer.attribute(NEIGHBOUR_BYTES, NEIGHBOUR_MAC)?.try_into().ok();
    mac.filter(|_| state & USABLE != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_named() {
        let mut routes = Routes::open().unwrap();
        let here = Ipv4Addr::LOCALHOST;
        if matches!(routes.route(None, here), Err(RouteError::NoRoute(_))) {
            crate::skipped("the loopback interface is down in this network namespace");
            return;
        }
        for from in [None, Some(Ipv4Addr::UNSPECIFIED), Some(here)] {
            let error = routes.route(from, here).unwrap_err();
            assert!(matches!(error, RouteError::Loopback(to) if to == here), "{error}");
        }
        let end = SocketAddrV4::new(here, 7);
        let error = routes.hop(end, end).unwrap_err();
        assert!(error.to_string().contains("loopback, which has no hardware addresses"), "{error}");
    }

    #[test]
    fn groups_and_everybody_are_no_machine() {
        let mut routes = Routes::open().unwrap();
        for to in [Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 0, 1)] {
            let error = routes.route(None, to).unwrap_err();
            // Without any way out the kernel does not get as far as that.
            assert!(matches!(error, RouteError::Many(_) | RouteError::NoRoute(_)), "{error}");
        }
    }
}
