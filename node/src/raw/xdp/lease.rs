//! A ring for a process without privileges: a helper that has them opens it, passes it on, and is gone.
//!
//! This is the direct access of U-Net (SOSP 1995): what has rights sets an endpoint up, and nobody but its owner is on
//! the path afterwards. Over a Unix socket:
//!
//! | step | helper ([`Lease::pass`]) | process (`Config::lease`) |
//! |---|---|---|
//! | 1 | refuses all but one user, as the kernel says | believes root, and its own user |
//! | 2 | says what the ring is | says yes, if that is the address that it wants |
//! | 3 | passes five files, closes its own, and ends | maps the ring, and is the only one that has it |
//!
//! Anybody may come, and bring files that take long to be closed: the helper takes none, and waits for nobody who sends
//! some all the same.
//!
//! The files are the UDP socket of the port, the socket of AF_XDP, the memory of its frames, the link by which the
//! interface's dispatcher is there, and the map by which that finds the program of the queue. So the program goes with
//! the process that has the ring, however that ends, and the helper need not live. Ways and neighbours need no right:
//! everybody may ask the kernel for them.
//!
//! **What the process may do.** It receives what the program takes from the queue: datagrams for this address and port.
//! It may send any frame by this interface, whatever addresses stand in it, as who has `CAP_NET_RAW`. It may take the
//! programs of all rings at the interface away: their frames come by their sockets then, more slowly. It can neither
//! change a program, nor put another one there, nor change by what the programs of others are found.
//!
//! That it receives nothing else holds in generic and in native mode, where frames are copied into its memory when the
//! program has chosen them. In zero-copy mode the hardware writes all frames of the queue there, and the program looks
//! at them later: the process can read and change what comes by that queue for anybody. So a lease is in that mode only
//! if it is asked for, for a queue to which the adapter sends nothing else.
//!
//! **What the process trusts.** The helper as the kernel: it has made the memory, and could have kept it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cutthrough_segment::map::MapError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, FlockOperation, Mode as FileMode, OFlags, chmod, flock, fstat, open};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, recvmsg, sendmsg,
    socket_with,
};

use super::{ENTRIES, Plan, XdpRing};
use crate::raw::route::Routes;
use crate::shm::strangers::{self, Stranger};
use crate::sys::credentials;
use crate::sys::datagram::Datagrams;
use crate::sys::files::take_none;
use crate::sys::xdp::dispatcher::Seat;
use crate::sys::xdp::program::LINK_BYTES;
use crate::sys::xdp::{Interface, Memory, Mode, Settings, XdpError, Xsk};
use crate::udp::address::{self, UdpAddressError, Ways};

/// What a helper's words begin with: the name and the version of what is said.
const MAGIC: [u8; 8] = *b"CTlease2";
/// Bytes of what a ring is, and of a refusal at most.
const TERMS_BYTES: usize = 36;
const WORDS_BYTES: usize = 512;
/// Files that are passed: port, ring, memory, and what keeps the program.
const FILES: usize = 5;
/// How long the other side may take for each step.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long until it is looked again whether files that were brought are closed.
const CLOSING: Duration = Duration::from_millis(20);
/// How long until a helper is called again at whose socket too many stand.
const CROWDED: Duration = Duration::from_millis(1);
/// How long a helper waits for others that begin in the same folder.
const BEGINNING: Duration = Duration::from_secs(1);
/// The longest IP datagram.
const MTU_MAX: u32 = 65_535;

/// Why there is no leased ring. One line each, which says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// What shall be leased is no address of the adapter `xdp`.
    #[error("{0} cannot be leased; say xdp:HOST:PORT, with an IPv4 address of this machine")]
    Address(String),
    /// It is no address at all, or its host is not known.
    #[error(transparent)]
    Malformed(#[from] UdpAddressError),
    /// No interface that has rings has this address; the text says why.
    #[error("{0}")]
    Interface(String),
    /// The port is not to be had.
    #[error("{address}: {error}; choose a free port of an address of this machine")]
    Port {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
    /// There is no ring.
    #[error(transparent)]
    Ring(#[from] XdpError),
    /// The place where the two meet is taken.
    #[error("{0:?} is there already; end the helper that listens there, or choose another path")]
    Taken(PathBuf),
    /// The place where the two meet cannot be used.
    #[error("{path:?}: {errno}; choose a path in a folder that both the helper and its user may enter")]
    Path {
        /// The path.
        path: PathBuf,
        /// What the system said.
        errno: Errno,
    },
    /// No helper is there.
    #[error("no helper listens at {0:?}; start 'cutthrough lease' there first, with the rights of root")]
    Nobody(PathBuf),
    /// Somebody else than root or this user listens there.
    #[error("{path:?} belongs to user {user}, who is neither root nor you; take a ring from a helper that you trust")]
    Stranger {
        /// The path.
        path: PathBuf,
        /// Who listens.
        user: u32,
    },
    /// The helper says no, in its own words.
    #[error("{0}")]
    Refused(String),
    /// The other side did not do its part in time, or has gone.
    #[error("the other side at {0:?} has gone or does not answer; start the helper again, then the process")]
    Silent(PathBuf),
    /// The ring is for another address.
    #[error("the leased ring is for xdp:{leased}, not for xdp:{wanted}; use that address, or lease another ring")]
    Elsewhere {
        /// What it is for.
        leased: SocketAddrV4,
        /// What was wanted.
        wanted: SocketAddr,
    },
    /// What came is not what was said.
    #[error("what came from {path:?} is not a ring ({what}); use the same release at both ends")]
    Strange {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
}

/// A process at the other end of a Unix socket, as the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenant {
    /// Its process number, as this process sees it; 0 if it has none there, as from within a container.
    pub process: u32,
    /// Its user.
    pub user: u32,
}

impl Tenant {
    fn of(socket: &impl AsFd) -> Result<Self, Errno> {
        let (process, user) = credentials::of_peer(socket)?;
        Ok(Self { process, user })
    }
}

/// What a ring is, as the helper says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Terms {
    local: SocketAddrV4,
    interface: u32,
    queue: u32,
    mtu: u32,
    mode: Mode,
    scatter: bool,
}

const MODES: [Mode; 3] = [Mode::Generic, Mode::Native, Mode::ZeroCopy];

impl Terms {
    fn to_bytes(self) -> [u8; TERMS_BYTES] {
        let mut bytes = [0; TERMS_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.local.ip().octets());
        bytes[12..14].copy_from_slice(&self.local.port().to_be_bytes());
        bytes[14] = MODES.iter().zip(0..).find(|(mode, _)| **mode == self.mode).map_or(0, |(_, number)| number);
        bytes[15] = u8::from(self.scatter);
        for (place, word) in bytes[16..28].chunks_mut(4).zip([self.interface, self.queue, self.mtu]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// None if these are no terms: a refusal, or another release.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; TERMS_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let ip = Ipv4Addr::new(bytes[8], bytes[9], bytes[10], bytes[11]);
        let terms = Self {
            local: SocketAddrV4::new(ip, u16::from_be_bytes([bytes[12], bytes[13]])),
            interface: word(16),
            queue: word(20),
            mtu: word(24),
            mode: *MODES.get(usize::from(bytes[14]))?,
            scatter: bytes[15] == 1,
        };
        (bytes[..8] == MAGIC && terms.to_bytes() == *bytes && (1..=MTU_MAX).contains(&terms.mtu)).then_some(terms)
    }
}

/// A port and a ring for it, opened for a process that may open neither.
#[derive(Debug)]
pub struct Lease {
    port: Datagrams,
    ring: XdpRing,
    /// The map by which its program is found, for whom it is passed to.
    programs: OwnedFd,
    terms: Terms,
    place: Place,
}

impl Lease {
    /// Opens the UDP port and the ring of `address`, which is `xdp:HOST:PORT`, at this queue of the interface that has
    /// the address. Port 0 is any free one. In this mode, or in native mode, or in generic mode where there is no
    /// other. It waits for its process at the Unix socket `path`, which is made here and removed at the end; what a
    /// killed helper has left there is replaced. Needs `CAP_NET_RAW`, `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`.
    ///
    /// **In zero-copy mode the process can read and change all that comes on this queue**, also what is for others.
    ///
    /// Datagrams for the port that come on other queues come by the UDP socket, more slowly. So have the adapter send
    /// them to this queue (`ethtool -N`).
    ///
    /// # Errors
    /// [`LeaseError`].
    pub fn open(address: &str, queue: u32, mode: Option<Mode>, path: &Path) -> Result<Self, LeaseError> {
        let (Ways::Xdp, SocketAddr::V4(wanted)) = address::parse(address)? else {
            return Err(LeaseError::Address(address.to_owned()));
        };
        let refused = |error| LeaseError::Port { address: wanted.into(), error };
        let mut routes = Routes::open().map_err(refused)?;
        let home = routes.home(*wanted.ip()).map_err(|error| LeaseError::Interface(error.to_string()))?;
        let port = Datagrams::bind(wanted.into()).map_err(refused)?;
        let SocketAddr::V4(local) = port.local().map_err(refused)? else {
            return Err(LeaseError::Address(address.to_owned()));
        };
        let interface = Interface::numbered(home.index)?;
        let ring = XdpRing::open_lent(&interface, local, queue, mode)?;
        let scatter = ring.xsk.settings().scatter;
        let terms = Terms { local, interface: interface.index, queue, mtu: interface.mtu, mode: ring.mode(), scatter };
        let programs = ring.seat.programs_to_keep()?;
        Ok(Self { port, ring, programs, terms, place: Place::open(path)? })
    }

    /// What it is for.
    #[must_use]
    pub const fn local(&self) -> SocketAddrV4 {
        self.terms.local
    }

    /// Name of the interface.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.ring.interface.name
    }

    /// Where the program runs.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.terms.mode
    }

    /// Waits for a process of `user`, passes port and ring on, and keeps nothing of them. `refused` hears of those who
    /// came and are of another user: they are told so. Who goes before it has the ring is waited for again.
    ///
    /// # Errors
    /// [`LeaseError::Path`], if nobody can come any more.
    pub fn pass(mut self, user: u32, mut refused: impl FnMut(Tenant)) -> Result<Tenant, LeaseError> {
        loop {
            let socket = self.place.accept()?;
            let Ok(tenant) = Tenant::of(&socket) else { continue };
            if tenant.user != user {
                let no = format!(
                    "the ring of xdp:{} is for user {user}, and you are user {}; have one leased to you",
                    self.terms.local, tenant.user
                );
                // Whether it hears that does not matter.
                let _ = say(&socket, no.as_bytes(), &[]);
                refused(tenant);
                continue;
            }
            if self.hand_over(&socket).is_some() {
                self.ring.seat.leave();
                return Ok(tenant);
            }
        }
    }

    /// Removes the socket that a killed helper has left at `path`: whether there was one. What somebody listens at
    /// stays, and so does what is no socket. [`Lease::open`] does that by itself; this is for whoever outlives the
    /// helper, as the program's guard does.
    #[must_use]
    pub fn sweep(path: &Path) -> bool {
        let Ok(name) = SocketAddrUnix::new(path) else { return false };
        let alone = alone_beside(path);
        alone.is_some() && is_dead(path, &name) && std::fs::remove_file(path).is_ok()
    }

    /// The helper's part with one process. None if that has not said yes.
    fn hand_over(&self, socket: &Stranger) -> Option<()> {
        say(socket, &self.terms.to_bytes(), &[]).ok()?;
        wait(socket)?;
        if strangers::brings_files(socket) {
            return None;
        }
        let (yes, _) = hear(socket)?;
        (yes == MAGIC).then_some(())?;
        let files = [
            self.port.as_fd(),
            self.ring.xsk.as_fd(),
            self.ring.memory.file(),
            self.ring.seat.link(),
            self.programs.as_fd(),
        ];
        say(socket, &MAGIC, &files).ok()
    }
}

/// Takes the port and the ring that a helper at `path` leases, if they are for `wanted`; port 0 is any.
///
/// # Errors
/// [`LeaseError`].
pub(crate) fn take(path: &Path, wanted: SocketAddr) -> Result<(Datagrams, XdpRing), LeaseError> {
    let strange = |what| LeaseError::Strange { path: path.to_owned(), what };
    let silent = || LeaseError::Silent(path.to_owned());
    let socket = reach(path)?;
    let helper = Tenant::of(&socket).map_err(|_| silent())?;
    if helper.user != 0 && helper.user != rustix::process::geteuid().as_raw() {
        return Err(LeaseError::Stranger { path: path.to_owned(), user: helper.user });
    }
    let (words, _) = hear(&socket).ok_or_else(silent)?;
    let Some(terms) = Terms::from_bytes(&words) else {
        let known = String::from_utf8(words).ok().filter(|text| !text.is_empty() && !text.contains(char::is_control));
        return Err(known.map_or_else(|| strange("its terms are of another release"), LeaseError::Refused));
    };
    let leased = terms.local;
    if wanted.ip() != *leased.ip() || wanted.port() != 0 && wanted.port() != leased.port() {
        return Err(LeaseError::Elsewhere { leased, wanted });
    }
    say(&socket, &MAGIC, &[]).map_err(|_| silent())?;
    let (_, files) = hear(&socket).ok_or_else(silent)?;
    let [port, ring, memory, link, programs]: [OwnedFd; FILES] =
        files.try_into().map_err(|_| strange("files are missing"))?;
    let port = Datagrams::passed(port);
    if port.local().ok() != Some(leased.into()) {
        return Err(strange("its port is another one"));
    }
    let ring = XdpRing::passed(&terms, ring, memory, [link, programs])?;
    Ok((port, ring))
}

impl XdpRing {
    /// The ring that a helper has opened by `open_lent`, with its memory and what keeps its program.
    fn passed(terms: &Terms, xsk: OwnedFd, memory: OwnedFd, seat: [OwnedFd; 2]) -> Result<Self, XdpError> {
        let Terms { local, queue, mtu, mode, scatter, .. } = *terms;
        // Its name is for people; what it carries is what the ring was made for.
        let interface = Interface { mtu, ..Interface::numbered(terms.interface)? };
        let plan = Plan::of(mtu + LINK_BYTES, 0);
        let memory = Memory::open(memory)?;
        if memory.bytes() < plan.end {
            return Err(MapError::TooSmall { have: memory.bytes(), need: plan.end }.into());
        }
        let (buffer_bytes, unaligned) = (plan.buffer, plan.scattered);
        let settings = Settings { queue, mode, buffer_bytes, unaligned, scatter, entries: ENTRIES };
        let xsk = Xsk::from_parts(xsk, &memory, settings)?;
        Ok(Self::over((xsk, memory, plan), Seat::passed(seat, queue), &interface, mode, local))
    }

    /// Number of the interface whose frames it takes.
    pub(crate) const fn interface(&self) -> u32 {
        self.interface.index
    }
}

/// The Unix socket where helper and process meet. Its file goes with it.
#[derive(Debug)]
struct Place {
    socket: OwnedFd,
    path: PathBuf,
}

impl Place {
    fn open(path: &Path) -> Result<Self, LeaseError> {
        let refused = |errno| LeaseError::Path { path: path.to_owned(), errno };
        let name = SocketAddrUnix::new(path).map_err(refused)?;
        let socket = unix(SocketType::SEQPACKET, SocketFlags::empty()).map_err(refused)?;
        // A socket at which nobody listens yet looks like one that a killed helper has left.
        let _alone = alone_beside(path);
        match bind(&socket, &name) {
            Err(Errno::ADDRINUSE) if is_dead(path, &name) => {
                std::fs::remove_file(path).map_err(|error| refused(errno(&error)))?;
                bind(&socket, &name).map_err(refused)?;
            }
            Err(Errno::ADDRINUSE) => return Err(LeaseError::Taken(path.to_owned())),
            bound => bound.map_err(refused)?,
        }
        let place = Self { socket, path: path.to_owned() };
        open_to_all(path).map_err(refused)?;
        // Whoever comes has this from it.
        take_none(place.socket.as_fd());
        listen(&place.socket, 16).map_err(refused)?;
        Ok(place)
    }

    fn accept(&self) -> Result<Stranger, LeaseError> {
        loop {
            // Of files that were brought, few may wait to be closed.
            while !strangers::has_room() {
                std::thread::sleep(CLOSING);
            }
            match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(LeaseError::Path { path: self.path.clone(), errno }),
                Ok(socket) => return Ok(Stranger::new(socket)),
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Lets anybody come to the socket that was bound here, and be told who may have what it offers. Whoever owns the
/// folder may have put something else in its place: its mode is left as it is.
fn open_to_all(path: &Path) -> rustix::io::Result<()> {
    let file = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, FileMode::empty())?;
    let stat = fstat(&file)?;
    let is_ours = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_nlink == 1;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket || !is_ours {
        return Err(Errno::PERM);
    }
    // By the file that was looked at, not by a name.
    chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), FileMode::from_raw_mode(0o666))
}

/// Locks the folder of a path: while it is, no other helper makes a socket there, or removes a dead one. The lock is a
/// process's, and goes with it. None where somebody keeps it for longer than a helper would, or the folder can be
/// entered and no more: anybody who may read a folder may lock it, and shall keep no helper from its place by that.
fn alone_beside(path: &Path) -> Option<OwnedFd> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, FileMode::empty()).ok()?;
    let begun = Instant::now();
    loop {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(folder),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if begun.elapsed() < BEGINNING => std::thread::sleep(CROWDED),
            Err(_) => return None,
        }
    }
}

/// Whether a killed helper has left its socket here. Who listens for records refuses a stream by another word than a
/// socket that nobody has, and does not hear of it.
fn is_dead(path: &Path, name: &SocketAddrUnix) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    is_socket
        && unix(SocketType::STREAM, SocketFlags::empty()).and_then(|socket| connect(&socket, name))
            == Err(Errno::CONNREFUSED)
}

fn reach(path: &Path) -> Result<OwnedFd, LeaseError> {
    let refused = |errno| LeaseError::Path { path: path.to_owned(), errno };
    let socket = unix(SocketType::SEQPACKET, SocketFlags::NONBLOCK).map_err(refused)?;
    let name = SocketAddrUnix::new(path).map_err(refused)?;
    let begun = Instant::now();
    loop {
        match retry_on_intr(|| connect(&socket, &name)) {
            Ok(()) => return Ok(socket),
            Err(Errno::NOENT | Errno::CONNREFUSED) => return Err(LeaseError::Nobody(path.to_owned())),
            // Anybody may stand outside; the helper sends them away one by one.
            Err(Errno::AGAIN) if begun.elapsed() < PATIENCE => std::thread::sleep(CROWDED),
            Err(Errno::AGAIN) => return Err(LeaseError::Silent(path.to_owned())),
            Err(errno) => return Err(refused(errno)),
        }
    }
}

fn unix(kind: SocketType, flags: SocketFlags) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC | flags, None)
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Sends one record, with these files.
fn say(socket: &impl AsFd, words: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(files));
    }
    sendmsg(socket, &[IoSlice::new(words)], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}

/// Waits for the next record, or for the other side's end. None if that takes too long.
fn wait(socket: &impl AsFd) -> Option<()> {
    let mut watched = [PollFd::new(socket, PollFlags::IN)];
    let patience = Timespec::try_from(PATIENCE).ok()?;
    let ready = retry_on_intr(|| poll(&mut watched, Some(&patience))).ok()?;
    (ready > 0).then_some(())
}

/// The next record, and the files that came with it. None if the other side has gone, or takes too long.
fn hear(socket: &impl AsFd) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    wait(socket)?;
    let mut words = vec![0; WORDS_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut words)], &mut ancillary, flags).ok()?;
    let files = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files = files.flatten().collect();
    words.truncate(received.bytes);
    (received.bytes > 0).then_some((words, files))
}

#[cfg(test)]
mod tests;
