//! Addresses of the form `udp:HOST:PORT`, and with other schemes the same for other adapters. Who calls a peer that has
//! a key pair may name its public key: `udp:HOST:PORT#HEX`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use cutthrough_seal::{KeyFault, PublicKey};

use crate::raw::xdp::lease::LeaseError;
use crate::shm::rendezvous::cure_of;

/// The first port that needs no right.
const FREE_PORT: u16 = 1024;

/// Which adapters an address asks for. All of them speak to each other: a peer's address may begin with another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ways {
    /// `udp:`: the socket alone. It needs no right.
    Udp,
    /// `packet:`: frames by a ring of AF_PACKET, and no other way.
    Packet,
    /// `xdp:`: frames by a ring of AF_XDP, and no other way.
    Xdp,
    /// `net:`: the socket, and rings where there can be some; each batch goes the way that has cost the least.
    All,
}

impl Ways {
    /// Every one of them.
    pub const EACH: [Self; 4] = [Self::Udp, Self::Packet, Self::Xdp, Self::All];

    /// What the addresses begin with, without the colon.
    #[must_use]
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Packet => "packet",
            Self::Xdp => "xdp",
            Self::All => "net",
        }
    }

    /// What an address asks for, and the rest of it; `None` if it is of no network.
    #[must_use]
    pub fn of(address: &str) -> Option<(Self, &str)> {
        let (scheme, rest) = address.split_once(':')?;
        Self::EACH.into_iter().find(|ways| ways.scheme() == scheme).map(|ways| (ways, rest))
    }
}

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UdpAddressError {
    /// It is not of the form.
    #[error("'{0}' is no address: say udp:HOST:PORT, for example udp:127.0.0.1:7000 or net:[::1]:7000")]
    Malformed(String),
    /// It stands for all addresses of a machine, for those of many, or for any port.
    #[error("{0} is where nobody is: name one host, as 127.0.0.1 for this one, and the port where it listens")]
    Nowhere(SocketAddr),
    /// The host has no address.
    #[error("'{host}': {error}")]
    Host {
        /// Host and port.
        host: String,
        /// What the resolver said.
        error: io::Error,
    },
    /// What stands behind the address is no public key.
    #[error("{address}#: {fault}")]
    Peer {
        /// The address before it.
        address: String,
        /// What is wrong.
        fault: KeyFault,
    },
    /// Neither a key nor the permission to go without.
    #[error("no key is configured: set Config::keys, or ask for plain text by name (Config::insecure)")]
    NoKey,
    /// An adapter that is a must is not to be had.
    #[error("{scheme}: {why}")]
    Way {
        /// The address began with this.
        scheme: &'static str,
        /// Why, and what to do.
        why: String,
    },
    /// The ring that a helper leases is not to be had.
    #[error("xdp: {0}")]
    Lease(Box<LeaseError>),
    /// The endpoint has its socket already, for other adapters.
    #[error("this endpoint uses {0}: already; open another one for other adapters")]
    OtherWays(&'static str),
    /// The endpoint has its socket already, and channels by it.
    #[error("this endpoint has channels by {0} already: listen before the first call, or open another one")]
    Bound(SocketAddr),
    /// The system does not give the socket.
    #[error("{address}: {error}{remedy}", remedy = remedy_of(*address, error))]
    Socket {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
}

impl From<Box<LeaseError>> for UdpAddressError {
    fn from(error: Box<LeaseError>) -> Self {
        Self::Lease(error)
    }
}

/// What to do about a socket that is refused, behind a semicolon. Nothing where that is not known.
fn remedy_of(address: SocketAddr, error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; choose another port, or end the process that has it",
        io::ErrorKind::AddrNotAvailable => "; use an address of this machine; 'ip address' lists them",
        io::ErrorKind::PermissionDenied if address.port() < FREE_PORT => {
            "; choose a port from 1024 on, or run it as root"
        }
        io::ErrorKind::InvalidInput if lacks_its_link(address) => "; name its interface, as in [fe80::1%eth0]:7000",
        _ => cure_of(error),
    }
}

/// An address, and the public key behind it, if there is one: `udp:HOST:PORT#HEX` is whoever has that key.
///
/// # Errors
/// [`UdpAddressError::Peer`].
pub fn named(address: &str) -> Result<(&str, Option<PublicKey>), UdpAddressError> {
    let Some((rest, key)) = address.split_once('#') else { return Ok((address, None)) };
    let key = PublicKey::from_hex(key).map_err(|fault| UdpAddressError::Peer { address: rest.to_owned(), fault })?;
    Ok((rest, Some(key)))
}

/// The adapters and the socket address that an address names; the best one, if the host has several.
///
/// # Errors
/// [`UdpAddressError`].
pub fn parse(address: &str) -> Result<(Ways, SocketAddr), UdpAddressError> {
    let (ways, found) = parse_all(address)?;
    let first = found.into_iter().next().ok_or_else(|| UdpAddressError::Malformed(address.to_owned()))?;
    Ok((ways, first))
}

/// The adapters and all socket addresses that an address names, in the order of the resolver; where all goes by rings,
/// which carry IPv4 alone, those of IPv4 come first.
fn parse_all(address: &str) -> Result<(Ways, Vec<SocketAddr>), UdpAddressError> {
    let malformed = || UdpAddressError::Malformed(address.to_owned());
    let (ways, host) = Ways::of(address).filter(|(_, host)| !host.is_empty()).ok_or_else(malformed)?;
    if let Ok(numbers) = host.parse() {
        return Ok((ways, vec![as_told(numbers)]));
    }
    if host.rsplit_once(':').is_none_or(|(name, port)| name.is_empty() || port.parse::<u16>().is_err()) {
        return Err(malformed());
    }
    let refused = |error| UdpAddressError::Host { host: host.to_owned(), error };
    let mut found: Vec<SocketAddr> = look_up(host).map_err(refused)?.map(as_told).collect();
    if matches!(ways, Ways::Packet | Ways::Xdp) {
        found.sort_by_key(SocketAddr::is_ipv6);
    }
    Ok((ways, found))
}

/// What the resolver says of a host and a port. It alone knows an address of one link whose interface is named, as in
/// `[fe80::1%eth0]:7000`; it wants that without brackets.
fn look_up(host: &str) -> io::Result<std::vec::IntoIter<SocketAddr>> {
    let scoped = host.strip_prefix('[').and_then(|rest| rest.rsplit_once("]:")).filter(|(bare, _)| bare.contains('%'));
    match scoped.and_then(|(bare, port)| Some((bare, port.parse::<u16>().ok()?))) {
        Some(scoped) => scoped.to_socket_addrs(),
        None => host.to_socket_addrs(),
    }
}

/// Whether it is an address of one link, and does not say of which.
fn lacks_its_link(address: SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(at) if at.ip().is_unicast_link_local() && at.scope_id() == 0)
}

/// An address as the kernel names who has sent something: with an interface only if it is of one link.
fn as_told(mut address: SocketAddr) -> SocketAddr {
    if let SocketAddr::V6(six) = &mut address
        && !six.ip().is_unicast_link_local()
    {
        six.set_scope_id(0);
    }
    address
}

/// The same of an address to listen at: that of many machines is nobody's.
///
/// # Errors
/// [`UdpAddressError`].
pub(crate) fn parse_own(address: &str) -> Result<(Ways, SocketAddr), UdpAddressError> {
    let (ways, own) = parse(address)?;
    let of_many = own.ip().is_multicast() || own.ip() == IpAddr::V4(Ipv4Addr::BROADCAST);
    if of_many { Err(UdpAddressError::Nowhere(own)) } else { Ok((ways, own)) }
}

/// The address of a peer as a socket at this local one names it: where that is of all IPv6 addresses, those of IPv4 are
/// among them.
pub(crate) fn as_reached(peer: SocketAddr, local: SocketAddr) -> SocketAddr {
    match (peer.ip(), local) {
        (IpAddr::V4(peer_ip), SocketAddr::V6(local)) if local.ip().is_unspecified() => {
            (peer_ip.to_ipv6_mapped(), peer.port()).into()
        }
        _ => peer,
    }
}

/// The same of somebody to be called.
///
/// # Errors
/// [`UdpAddressError`].
pub fn parse_peer(address: &str) -> Result<(Ways, SocketAddr), UdpAddressError> {
    let (ways, peer) = parse(address)?;
    if peer.ip().is_unspecified() || peer.port() == 0 {
        return Err(UdpAddressError::Nowhere(peer));
    }
    Ok((ways, peer))
}

/// Whether nothing is to be looked up for [`numbers`] of an address.
#[must_use]
pub fn is_number(address: &str) -> bool {
    let host = address.split('#').next().unwrap_or_default();
    Ways::of(host).is_none_or(|(_, host)| host.parse::<SocketAddr>().is_ok())
}

/// The same address with the host's number in place of its name, which may take a while to be looked up: the best one,
/// if it has several. Addresses of this machine's own processes stay as they are.
///
/// # Errors
/// [`UdpAddressError`].
pub fn numbers(address: &str) -> Result<String, UdpAddressError> {
    Ok(all_numbers(address)?.from(None))
}

/// As [`numbers`], for a caller that is bound to an address of which one does not know yet.
///
/// # Errors
/// [`UdpAddressError`].
pub fn all_numbers(address: &str) -> Result<Numbers, UdpAddressError> {
    if Ways::of(address).is_none() {
        return Ok(Numbers { before: String::new(), found: Vec::new(), behind: address.to_owned() });
    }
    let host = address.split('#').next().unwrap_or_default();
    let (ways, found) = parse_all(host)?;
    if found.is_empty() {
        return Err(UdpAddressError::Malformed(host.to_owned()));
    }
    Ok(Numbers { before: format!("{}:", ways.scheme()), found, behind: address[host.len()..].to_owned() })
}

/// An address with all numbers that its host has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbers {
    before: String,
    found: Vec<SocketAddr>,
    behind: String,
}

impl Numbers {
    /// The address with the first number that can be called by who is bound to `local`, if anything; with the first of
    /// all, if none can.
    #[must_use]
    pub fn from(&self, local: Option<SocketAddr>) -> String {
        let is_reached =
            |to: &&SocketAddr| local.is_none_or(|local| as_reached(**to, local).is_ipv4() == local.is_ipv4());
        let Self { before, found, behind } = self;
        match found.iter().find(is_reached).or(found.first()) {
            Some(number) => format!("{before}{number}{behind}"),
            None => behind.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_numbers() {
        for same in ["shm:name", "udp:10.0.0.1:7", "net:[::1]:7#00ff"] {
            assert!(is_number(same));
            assert_eq!(numbers(same).unwrap(), same);
        }
        assert!(!is_number("udp:localhost:7#00ff") && !is_number("net:7"));
        let found = numbers("udp:localhost:7#00ff").unwrap();
        assert!(["udp:127.0.0.1:7#00ff", "udp:[::1]:7#00ff"].contains(&found.as_str()), "{found}");
        assert!(numbers("udp:7").is_err());
    }

    /// An endpoint that is bound to an address of one family calls none of the other one.
    #[test]
    fn who_has_several_numbers_is_called_by_one_that_can_be_reached() {
        let [six, four] = ["[2001:db8::1]:7", "10.0.0.1:7"].map(|at| at.parse().unwrap());
        let several = Numbers { before: "udp:".into(), found: vec![six, four], behind: "#00ff".into() };
        let from = |local: Option<&str>| several.from(local.map(|at| at.parse().unwrap()));
        for six_first in [None, Some("[::]:9"), Some("[::1]:9")] {
            assert_eq!(from(six_first), "udp:[2001:db8::1]:7#00ff");
        }
        assert_eq!([from(Some("0.0.0.0:9")), from(Some("127.0.0.1:9"))], ["udp:10.0.0.1:7#00ff"; 2]);
        let only = |found| Numbers { found: vec![found], ..several.clone() };
        assert_eq!(only(four).from("[::]:9".parse().ok()), "udp:10.0.0.1:7#00ff", "it can be reached from there");
        assert_eq!(only(six).from("0.0.0.0:9".parse().ok()), "udp:[2001:db8::1]:7#00ff", "an error will say so");
        assert_eq!(all_numbers("shm:name").unwrap().from("0.0.0.0:9".parse().ok()), "shm:name");
    }

    #[test]
    fn numbers_are_taken_as_they_are() {
        assert_eq!(parse("udp:10.0.0.1:7").unwrap(), (Ways::Udp, SocketAddr::from(([10, 0, 0, 1], 7))));
        assert!(parse("net:[::1]:7").unwrap().1.is_ipv6());
        for ways in Ways::EACH {
            assert_eq!(parse(&format!("{}:10.0.0.1:7", ways.scheme())).unwrap().0, ways);
        }
    }

    /// The kernel names an interface with such addresses alone, and nobody else's frames would be the peer's.
    #[test]
    fn an_interface_is_a_part_of_addresses_of_one_link() {
        let scope = |address: &str| match parse(address).unwrap().1 {
            SocketAddr::V6(found) => found.scope_id(),
            SocketAddr::V4(found) => panic!("{found}"),
        };
        assert_eq!((scope("udp:[fe80::1%7]:9"), scope("udp:[fe80::1]:9")), (7, 0));
        assert_eq!((scope("udp:[::1%7]:9"), scope("net:[2001:db8::1%7]:9"), scope("udp:[::%7]:9")), (0, 0, 0));
        assert_eq!(numbers("udp:[::1%7]:9#00ff").unwrap(), "udp:[::1]:9#00ff");
    }

    #[test]
    fn nobody_listens_at_an_address_of_many() {
        for many in ["udp:224.0.0.1:7", "udp:255.255.255.255:7", "udp:[ff02::1]:7"] {
            assert!(matches!(parse_own(many), Err(UdpAddressError::Nowhere(_))), "{many}");
        }
        assert!(parse_own("udp:0.0.0.0:0").is_ok() && parse_own("udp:[::]:7").is_ok());
    }

    #[test]
    fn an_interface_may_be_named() {
        let found = |address: &str| match parse(address) {
            Ok((_, SocketAddr::V6(found))) => (found.ip().to_string(), found.scope_id(), found.port()),
            other => panic!("{address}: {other:?}"),
        };
        let numbered = found("udp:[fe80::1%1]:7");
        assert_eq!(numbered, ("fe80::1".into(), 1, 7));
        assert_eq!(found("udp:[fe80::1%lo]:7"), numbered, "lo is the first interface everywhere");
        assert_eq!(numbers("net:[fe80::1%lo]:7#00").unwrap(), "net:[fe80::1%1]:7#00");
        assert!(matches!(parse("udp:[fe80::1%no-such-one]:7"), Err(UdpAddressError::Host { .. })));
        let refused = UdpAddressError::Socket {
            address: "[fe80::1]:7".parse().unwrap(),
            error: io::ErrorKind::InvalidInput.into(),
        };
        assert!(refused.to_string().ends_with("; name its interface, as in [fe80::1%eth0]:7000"), "{refused}");
    }

    #[test]
    fn who_is_called_is_at_one_address() {
        assert_eq!(parse_peer("udp:10.0.0.1:7").unwrap(), parse("udp:10.0.0.1:7").unwrap());
        for nowhere in ["udp:0.0.0.0:7", "net:[::]:7", "udp:10.0.0.1:0"] {
            assert!(parse(nowhere).is_ok(), "one may listen there");
            assert!(matches!(parse_peer(nowhere), Err(UdpAddressError::Nowhere(_))), "{nowhere}");
        }
    }

    #[test]
    fn a_public_key_may_stand_behind_an_address() {
        let key = PublicKey::from_bytes([0xab; 32]);
        assert_eq!(named(&format!("udp:host:7#{key}")).unwrap(), ("udp:host:7", Some(key)));
        assert_eq!(named("udp:host:7").unwrap(), ("udp:host:7", None));
        for wrong in ["", "abc", "0x"] {
            let error = named(&format!("udp:host:7#{wrong}")).unwrap_err();
            assert!(error.to_string().starts_with("udp:host:7#: a key has 64 hexadecimal digits"), "{error}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_an_example() {
        for address in ["udp:", "udp:host", "udp::7", "udp:host:99999", "shm:x"] {
            let error = parse(address).unwrap_err();
            assert!(matches!(error, UdpAddressError::Malformed(_)), "{address}: {error}");
        }
    }
}
