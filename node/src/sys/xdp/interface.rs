//! What is to be known of a network interface before a ring is opened at it.

use std::ffi::{c_char, c_ulong, c_void};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice};

use super::{Mode, XdpError};

/// Drivers that have programs run at the interfaces below theirs: those that a bond is made of, and the hardware that
/// may come to a guest's interface of Hyper-V at any time. Others that are above some (VLANs, bridges) have no mode but
/// the generic one.
const PASSING_DOWN: [&[u8]; 2] = [b"bonding", b"hv_netvsc"];

const GET_DRIVER: u32 = 0x03;
const GET_CHANNELS: u32 = 0x3c;

/// A network interface of the namespace that the calling thread is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Which network namespace that is a number of, as the kernel numbers them; none before Linux 5.14.
    pub namespace: Option<u64>,
    /// Its name.
    pub name: String,
    /// The longest IP datagram that it carries in one frame, in bytes.
    pub mtu: u32,
    /// How many queues it has to receive.
    pub queues: u32,
    /// Whether its driver is software: pairs, bridges and the like, to which native mode only adds a copy.
    pub is_virtual: bool,
    /// Whether its driver has programs run at other interfaces below it, as a bond has. What comes there is of the
    /// queues of those, and the kernel gives none of it to a ring at a queue of this one.
    pub passes_down: bool,
}

/// What the kernel calls `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    send: u32,
    other: u32,
    both: u32,
}

/// What the kernel calls `struct ethtool_drvinfo`.
#[repr(C)]
struct Driver {
    command: u32,
    name: [u8; 32],
    _rest: [u8; 160],
}

impl Interface {
    /// The one of this name.
    ///
    /// # Errors
    /// [`XdpError::NoInterface`], or as the kernel says.
    pub fn named(name: &str) -> Result<Self, XdpError> {
        let socket = socket()?;
        let missing = |_| XdpError::NoInterface(name.to_owned());
        let index = netdevice::name_to_index(&socket, name).map_err(missing)?;
        Self::read(&socket, index, name.to_owned())
    }

    /// The one of this number.
    ///
    /// # Errors
    /// [`XdpError::NoInterface`], or as the kernel says.
    pub fn numbered(index: u32) -> Result<Self, XdpError> {
        let socket = socket()?;
        let missing = |_| XdpError::NoInterface(index.to_string());
        let name = netdevice::index_to_name(&socket, index).map_err(missing)?;
        Self::read(&socket, index, name)
    }

    fn read(socket: &OwnedFd, index: u32, name: String) -> Result<Self, XdpError> {
        let refused = |errno| XdpError::Refused { what: "the interface's settings", errno };
        let mut request = Request::new(&name).ok_or_else(|| XdpError::NoInterface(name.clone()))?;
        let mtu = request.mtu(socket).map_err(refused)?;
        let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
        // An interface that knows nothing of queues has one.
        // SAFETY: the command fills in a `struct ethtool_channels`, which is all numbers.
        let asked = unsafe { request.ethtool(socket, &mut channels) };
        let queues = asked.map_or(1, |()| channels.receive + channels.both).max(1);
        let mut driver = Driver { command: GET_DRIVER, name: [0; 32], _rest: [0; 160] };
        // SAFETY: the command fills in a `struct ethtool_drvinfo`, which is all numbers.
        let known = unsafe { request.ethtool(socket, &mut driver) }.is_ok();
        let driver = driver.name.split(|byte| *byte == 0).next().filter(|_| known);
        let is_virtual = driver.is_none_or(|driver| driver == b"veth");
        let passes_down = driver.is_some_and(|driver| PASSING_DOWN.contains(&driver));
        Ok(Self { index, namespace: namespace(socket), name, mtu, queues, is_virtual, passes_down })
    }

    /// For tests: one that is nowhere.
    #[cfg(test)]
    pub(crate) fn made_up() -> Self {
        let name = "nowhere".into();
        Self { index: 0, namespace: None, name, mtu: 1500, queues: 1, is_virtual: true, passes_down: false }
    }

    /// That of a host that is not there.
    #[cfg(feature = "simulated")]
    pub(crate) fn simulated(host: &crate::simulated::Host) -> Self {
        let (name, mtu) = ("simulated".into(), host.mtu());
        Self { index: 1, namespace: None, name, mtu, queues: 1, is_virtual: true, passes_down: false }
    }

    /// Whether frames reach a ring at this interface whose program runs in this mode.
    pub(super) fn check(&self, mode: Mode) -> Result<(), XdpError> {
        if self.passes_down && mode != Mode::Generic {
            return Err(XdpError::Below { interface: self.name.clone(), mode });
        }
        Ok(())
    }
}

/// The number of the namespace that a socket is of.
fn namespace(socket: &OwnedFd) -> Option<u64> {
    let mut cookie = 0_u64;
    let mut bytes = libc::socklen_t::try_from(size_of::<u64>()).ok()?;
    let into = (&raw mut cookie).cast::<c_void>();
    // SAFETY: the kernel writes at most the 8 bytes that it is told, which are borrowed by nobody else, and how many.
    let told =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, into, &raw mut bytes) };
    (told == 0).then_some(cookie)
}

/// A socket to ask the kernel by.
fn socket() -> Result<OwnedFd, XdpError> {
    rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| XdpError::Refused { what: "a socket", errno })
}

/// What the kernel calls `struct ifreq`.
struct Request(libc::ifreq);

impl Request {
    /// Names an interface. None if no interface can have that name.
    fn new(name: &str) -> Option<Self> {
        if name.len() >= libc::IFNAMSIZ || name.contains('\0') {
            return None;
        }
        let mut letters = [0; libc::IFNAMSIZ];
        for (to, from) in letters.iter_mut().zip(name.bytes()) {
            *to = c_char::from_ne_bytes([from]);
        }
        let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_mtu: 0 };
        Some(Self(libc::ifreq { ifr_name: letters, ifr_ifru }))
    }

    fn mtu(&mut self, socket: &OwnedFd) -> Result<u32, Errno> {
        // SAFETY: the kernel writes the field that is read below, and asks for none but the name.
        unsafe { self.call(socket, libc::SIOCGIFMTU) }?;
        // SAFETY: the kernel has written this field; any bytes are a number.
        let mtu = unsafe { self.0.ifr_ifru.ifru_mtu };
        Ok(u32::try_from(mtu).unwrap_or(0))
    }

    /// Has the driver fill in what its first number, a command, asks for.
    ///
    /// # Safety
    /// `T` begins with the command, is what the kernel fills in for it, and is a value with any bytes.
    unsafe fn ethtool<T>(&mut self, socket: &OwnedFd, asked: &mut T) -> Result<(), Errno> {
        self.0.ifr_ifru.ifru_data = (&raw mut *asked).cast::<c_char>();
        // SAFETY: the request names what is asked, which is borrowed for writing and, by the caller's word, as long as
        // the command says.
        unsafe { self.call(socket, libc::SIOCETHTOOL) }
    }

    /// # Safety
    /// What `request` reads of this one has been set, and an address in it names memory that the kernel may write as
    /// far as `request` does.
    unsafe fn call(&mut self, socket: &OwnedFd, request: c_ulong) -> Result<(), Errno> {
        let argument = (&raw mut self.0).cast::<c_void>();
        // SAFETY: the request is alive and borrowed by nobody else; what it names is the caller's word.
        let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), request, argument) };
        if result < 0 {
            Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known_and_others_are_named_in_the_error() {
        let loopback = Interface::named("lo").unwrap();
        assert!(loopback.mtu >= 1280 && loopback.queues >= 1 && loopback.is_virtual, "{loopback:?}");
        assert_eq!(Interface::numbered(loopback.index).unwrap(), loopback);
        for wrong in ["nowhere", "", "a-name-that-is-too-long-for-linux", "lo\0"] {
            let error = Interface::named(wrong).unwrap_err();
            assert!(matches!(&error, XdpError::NoInterface(name) if name == wrong), "{error}");
        }
    }
}
