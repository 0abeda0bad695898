//! AF_XDP: frames between an interface and the memory of this process, with the kernel's stack left out.
//!
//! In the order in which an endpoint gets there: [`interface`] says what there is, [`program`] is written as [`code`]
//! and goes through [`bpf`] to the interface, where a [`dispatcher`] has it run, [`socket`] has the memory and the four
//! [`ring`]s. Nothing here leaves anything behind: program, map and link are file descriptors, and the kernel takes
//! them away with their last holder.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

pub mod bpf;
pub mod code;
pub mod dispatcher;
pub mod fragments;
#[cfg(test)]
mod fragments_tests;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
pub mod fuzz;
pub mod interface;
pub mod loss;
#[cfg(any(test, feature = "fuzz", feature = "simulated"))]
mod machine;
pub mod placing;
#[cfg(test)]
mod placing_tests;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod plain;
pub mod program;
#[cfg(test)]
mod program_tests;
pub mod ring;
#[cfg(feature = "simulated")]
pub(crate) mod simulated;
pub mod socket;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod wire;

pub use interface::Interface;
pub use socket::{Descriptor, Memory, Settings, Xsk};

/// How long a queue is waited for whose socket has just been closed, and an interface whose program has just gone: the
/// kernel takes them away at its leisure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Where the program runs, and who moves the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// After the kernel has made a buffer of its own for the frame; with every interface.
    Generic,
    /// In the driver, which copies frames into our memory.
    Native,
    /// In the driver, whose hardware writes our memory itself.
    ZeroCopy,
}

impl Mode {
    /// Its name, as people write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::Native => "native",
            Self::ZeroCopy => "zero-copy",
        }
    }
}

/// Why there is no ring. One line each, which says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XdpError {
    /// This process lacks a privilege.
    #[error(
        "{what} needs {}; use {} instead, run as root, or have root run 'cutthrough lease' for you",
        lacking(right),
        others(has_packets())
    )]
    Privilege {
        /// What was refused.
        what: &'static str,
        /// The capability that was missed first. The text names all that a ring needs and this thread lacks.
        right: &'static str,
    },
    /// The kernel, or the driver in this mode, does not have it.
    #[error("{what}: not supported ({errno}); use generic mode, or the adapter 'packet' or 'udp'")]
    Unsupported {
        /// What was refused.
        what: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
    /// Another program is at the interface.
    #[error("another XDP program is at {interface}; end its holder, or 'ip link set {interface} xdp off'")]
    Occupied {
        /// The interface.
        interface: String,
    },
    /// Another program is at the interface, and this process may not see whose that is.
    #[error(
        "an XDP program is at {interface}; with CAP_SYS_ADMIN a ring joins it if it is one of Cutthrough's; otherwise \
         end its holder, or use the adapter 'packet' or 'udp'"
    )]
    Hidden {
        /// The interface.
        interface: String,
    },
    /// The rings that are at the interface have their programs run in another mode.
    #[error(
        "rings at {interface} run in {} mode, and all rings of an interface run in one; use that, or end their holders",
        .there.name()
    )]
    OtherMode {
        /// The interface.
        interface: String,
        /// Their mode: native stands for zero copy too.
        there: Mode,
    },
    /// In this mode a program runs at other interfaces than the one at which the ring is.
    #[error(
        "{interface} has a program in {} mode run at the adapters below it, whose frames reach no ring at {interface}; \
         use generic mode, or the adapter 'packet' or 'udp'", .mode.name()
    )]
    Below {
        /// The interface.
        interface: String,
        /// Which mode.
        mode: Mode,
    },
    /// There is no such interface in this network namespace.
    #[error("there is no interface {0}; 'ip link' lists them")]
    NoInterface(String),
    /// The interface has not so many queues.
    #[error("{interface} has no queue {queue}: it has {queues}, counted from 0; choose one of them")]
    NoQueue {
        /// The interface.
        interface: String,
        /// Which queue was wanted.
        queue: u32,
        /// How many there are.
        queues: u32,
    },
    /// Another socket has the queue.
    #[error("queue {queue} of {interface} is in use by another AF_XDP socket; choose another queue, or end its holder")]
    QueueTaken {
        /// The interface.
        interface: String,
        /// Which queue.
        queue: u32,
    },
    /// The interface's frames are too long for this mode.
    #[error("MTU {mtu} of {interface} is too long for {} mode; lower it, or use generic mode", .mode.name())]
    Mtu {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
        /// Which mode.
        mode: Mode,
    },
    /// The memory of the rings may not be locked.
    #[error("{bytes} bytes of ring memory cannot be locked; raise 'ulimit -l', or run with CAP_IPC_LOCK")]
    Locked {
        /// How many.
        bytes: u64,
    },
    /// The memory could not be made.
    #[error(transparent)]
    Memory(#[from] cutthrough_segment::map::MapError),
    /// A ring can no longer be trusted.
    #[error(transparent)]
    Broken(#[from] ring::Broken),
    /// Something else was refused.
    #[error("{what}: {errno}; see whether the interface is up, and use the adapter 'packet' or 'udp' meanwhile")]
    Refused {
        /// What was refused.
        what: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
}

/// What a ring of the adapter `xdp` needs that this thread does not have. What it has may be refused all the same, if
/// it has that in a user namespace alone.
fn lacking(right: &str) -> String {
    use rustix::thread::{CapabilitySet, capabilities};
    let have = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    named(have).unwrap_or_else(|| format!("{right} outside of all user namespaces"))
}

/// Whether this process may open a socket of AF_PACKET in its network namespace.
fn has_packets() -> bool {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None).is_ok()
}

/// The adapters that ask for less, and would be refused nothing.
const fn others(packets: bool) -> &'static str {
    if packets { "packet: or udp:" } else { "udp:" }
}

/// The names of all rights that a ring needs beside these; none if it needs no others.
fn named(have: rustix::thread::CapabilitySet) -> Option<String> {
    use rustix::thread::CapabilitySet as Set;
    let bpf = if have.contains(Set::SYS_ADMIN) { Set::empty() } else { Set::BPF };
    let needed = [("CAP_NET_RAW", Set::NET_RAW), ("CAP_NET_ADMIN", Set::NET_ADMIN), ("CAP_BPF", bpf)];
    let lacks: Vec<&str> =
        needed.into_iter().filter(|(_, right)| !have.contains(*right)).map(|(name, _)| name).collect();
    let (last, others) = lacks.split_last()?;
    Some(if others.is_empty() { (*last).to_owned() } else { format!("{} and {last}", others.join(", ")) })
}

impl XdpError {
    fn of_bpf(what: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::PERM | Errno::ACCESS => Self::Privilege { what, right: "CAP_BPF and CAP_NET_ADMIN" },
            Errno::NOSYS | Errno::OPNOTSUPP => Self::Unsupported { what, errno },
            errno => Self::Refused { what, errno },
        }
    }

    fn of_attach(index: u32, mode: Mode, errno: Errno) -> Self {
        let what = "an XDP program at the interface";
        let found = Interface::numbered(index);
        let interface = found.as_ref().map_or_else(|_| format!("interface {index}"), |found| found.name.clone());
        match (errno, found) {
            (Errno::PERM, _) => Self::Privilege { what, right: "CAP_NET_ADMIN" },
            (Errno::BUSY | Errno::EXIST, _) => Self::Occupied { interface },
            (Errno::RANGE | Errno::MSGSIZE, Ok(found)) => Self::Mtu { interface, mtu: found.mtu, mode },
            (Errno::OPNOTSUPP, _) => Self::Unsupported { what, errno },
            (Errno::NODEV, _) | (_, Err(_)) => Self::NoInterface(interface),
            (errno, _) => Self::Refused { what, errno },
        }
    }
}

impl From<XdpError> for io::Error {
    fn from(error: XdpError) -> Self {
        let kind = match &error {
            XdpError::Privilege { .. } => io::ErrorKind::PermissionDenied,
            XdpError::Unsupported { .. } | XdpError::Below { .. } => io::ErrorKind::Unsupported,
            XdpError::Occupied { .. }
            | XdpError::Hidden { .. }
            | XdpError::OtherMode { .. }
            | XdpError::QueueTaken { .. } => io::ErrorKind::AddrInUse,
            XdpError::NoInterface(_) | XdpError::NoQueue { .. } => io::ErrorKind::NotFound,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod texts {
    use rustix::thread::CapabilitySet as Set;

    use super::*;

    #[test]
    fn all_rights_that_are_missing_are_named_at_once() {
        let said = |have| named(have).unwrap_or_default();
        assert_eq!(said(Set::empty()), "CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF");
        assert_eq!(said(Set::SYS_ADMIN), "CAP_NET_RAW and CAP_NET_ADMIN");
        assert_eq!(said(Set::NET_RAW | Set::NET_ADMIN), "CAP_BPF");
        assert_eq!(named(Set::NET_RAW | Set::NET_ADMIN | Set::BPF), None);
        let error = XdpError::Privilege { what: "a map", right: "CAP_BPF and CAP_NET_ADMIN" }.to_string();
        assert!(error.lines().count() == 1 && error.contains("udp: instead"), "{error}");
        assert_eq!(error.contains("packet:"), has_packets(), "{error}");
        assert_eq!([false, true].map(others), ["udp:", "packet: or udp:"]);
    }

    /// What a driver says whose buffers are shorter than the frames of its interface.
    #[test]
    fn frames_that_are_too_long_for_the_mode_are_said() {
        for errno in [Errno::RANGE, Errno::MSGSIZE] {
            let loopback = Interface::named("lo").expect("every namespace has one");
            let error = XdpError::of_attach(loopback.index, Mode::Native, errno).to_string();
            let says = format!("MTU {} of lo is too long for native mode; lower it, or use generic mode", loopback.mtu);
            assert_eq!(error, says);
        }
    }
}
