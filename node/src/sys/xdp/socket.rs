//! A socket of AF_XDP: memory that frames come into and go out of, and four rings that say where they lie.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cutthrough_segment::map::{Mapping, Writers};
use cutthrough_segment::page::{Ground, Pages};
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpMmapOffsets, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::ring::{Consumer, Producer};
use super::{Interface, Mode, PATIENCE, XdpError};

/// Bytes that the kernel leaves free before every frame that it writes.
pub const HEADROOM: u64 = 256;

/// Where the memory begins, so that pages of up to so many bytes can lie in it.
const ALIGN: u64 = 64 << 10;

/// Memory for frames: one file, which others may map for reading.
///
/// Two things about it no type can see, and those who use it hold to them. One: of several that have the same bytes
/// ([`Memory::first`]) one alone is asked for frames. Two: the kernel writes wherever a ring's user has offered it a
/// place ([`Xsk::offer`]), so nobody has a slice of a place that is offered, nor offers one that somebody has a slice
/// of.
#[derive(Debug)]
pub struct Memory {
    mapping: Arc<Mapping>,
    file: OwnedFd,
    bytes: u64,
}

impl Memory {
    /// Makes `bytes` zero bytes, rounded up to whole pages. `writers` is [`Writers::Maker`] but for a helper that gives
    /// the memory to another process and does not use it itself.
    ///
    /// # Errors
    /// [`XdpError::Memory`].
    pub fn new(bytes: u64, writers: Writers) -> Result<Self, XdpError> {
        let bytes = bytes.next_multiple_of(4096);
        let (mapping, file) = Mapping::create("cutthrough-xdp", bytes, ALIGN, writers)?;
        Ok(Self { mapping, file, bytes })
    }

    /// Maps memory that a privileged helper has made, all of it. The helper is trusted as the kernel is.
    ///
    /// # Errors
    /// [`XdpError::Memory`]: it is no sealed memory file.
    pub fn open(file: OwnedFd) -> Result<Self, XdpError> {
        let bytes = rustix::fs::fstat(&file).map_err(|errno| XdpError::Refused { what: "the memory file", errno })?;
        let bytes = u64::try_from(bytes.st_size).unwrap_or(0) & !4095;
        let mapping = Mapping::open(file.as_fd(), bytes, 4096, true)?;
        Ok(Self { mapping, file, bytes })
    }

    /// The first `bytes` bytes of it, rounded up to whole pages, for a ring that uses no more. Only one of those that
    /// have these bytes may ask for frames of them; see [`Memory`].
    ///
    /// # Errors
    /// [`XdpError::Refused`] if it is not as much, or there are no more descriptors.
    pub fn first(&self, bytes: u64) -> Result<Self, XdpError> {
        let refused = |errno| XdpError::Refused { what: "a part of the memory", errno };
        let bytes = bytes.next_multiple_of(4096);
        if bytes > self.bytes {
            return Err(refused(Errno::INVAL));
        }
        let file = rustix::io::fcntl_dupfd_cloexec(&self.file, 0).map_err(refused)?;
        Ok(Self { mapping: Arc::clone(&self.mapping), file, bytes })
    }

    /// Gives whole pages back to the system that nobody uses and no ring has locked: they are zero bytes again, also
    /// to those who have them as slices. Memory of which only the maker may write keeps them.
    pub fn let_go(&mut self, at: u64, bytes: u64) {
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        // A system that refuses that keeps them as long as the memory lives.
        let _ = rustix::fs::fallocate(&self.file, flags, at, bytes);
    }

    /// The file, to be passed to those who shall map it.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// How much it is.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The mapping of this process.
    #[must_use]
    pub const fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Whether these bytes lie inside.
    #[must_use]
    pub fn holds(&self, at: u64, bytes: u64) -> bool {
        at.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }

    /// Bytes of a frame that has come, to be read and changed: see [`Memory`] for what its users hold to.
    ///
    /// # Panics
    /// If they are not inside.
    #[must_use]
    pub fn frame(&mut self, at: u64, bytes: usize) -> &mut [u8] {
        // SAFETY: nobody else in this process has a reference to these bytes: they are made here alone, and this one
        // borrows the memory for writing. Where part of the memory is made pages of (`pages_of`), a part of that
        // is asked for here only between its frame's landing and the end of its being copied, by the endpoint that has
        // the page and uses no reference of its own to it meanwhile; pages of a channel's pool never are. Other
        // processes map it for reading only (`Writers::Maker`), do not have its file (`first`), or are trusted as the
        // kernel is (`open`), which writes only to places in the fill ring. Who has put such a place there and looks at
        // it meanwhile sees a mixture of bytes: a frame that nobody vouches for before its seal is checked.
        unsafe { self.mapping.slice_mut(at, bytes) }
    }
}

/// Pages on ground that lies in the memory of a ring.
///
/// What a socket reaches is for its users to settle, not for types: they name places of its memory to the kernel, which
/// writes there at any time. So this is safe to call for want of a type that says so, and its callers see to it that
/// these pages are for one pool alone as long as that or a page of it lives (`Lots` and `Pools` give each part of the
/// memory to one channel, and to another when nobody has a handle of it any more), and that the kernel is never offered
/// a place in a page that somebody has as a slice (see [`Memory::frame`]).
pub(crate) fn pages_of(ground: Arc<Ground>, pages: u32) -> Pages {
    // SAFETY: the callers' word, as above.
    unsafe { Pages::new(ground, pages) }
}

/// What a socket shall be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Which queue of the interface.
    pub queue: u32,
    /// Where the program runs, and whether the driver moves frames.
    pub mode: Mode,
    /// Bytes of the kernel's buffers: 2048 or 4096; any number in between if `unaligned`.
    pub buffer_bytes: u32,
    /// Whether buffers may begin anywhere.
    pub unaligned: bool,
    /// Whether a frame may be made of several buffers (Linux 6.6).
    pub scatter: bool,
    /// Entries of each ring: a power of two.
    pub entries: u32,
}

/// Part of a frame, as a ring has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// Where it begins, in bytes from the beginning of the memory.
    pub at: u64,
    /// How many bytes.
    pub bytes: u32,
    /// Whether the next part belongs to the same frame.
    pub more: bool,
}

impl Descriptor {
    /// Takes an entry of a ring apart. Unaligned places have what has been added to them in the top 16 bits.
    pub(super) fn from_entry([place, rest]: [u64; 2], unaligned: bool) -> Self {
        const LOW: u64 = (1 << 48) - 1;
        let at = if unaligned { (place & LOW) + (place >> 48) } else { place };
        let [a, b, c, d, e, f, g, h] = rest.to_ne_bytes();
        let options = u32::from_ne_bytes([e, f, g, h]);
        Self { at, bytes: u32::from_ne_bytes([a, b, c, d]), more: options & libc::XDP_PKT_CONTD != 0 }
    }

    pub(super) fn to_entry(self) -> [u64; 2] {
        let [a, b, c, d] = self.bytes.to_ne_bytes();
        let [e, f, g, h] = if self.more { libc::XDP_PKT_CONTD } else { 0 }.to_ne_bytes();
        [self.at, u64::from_ne_bytes([a, b, c, d, e, f, g, h])]
    }
}

/// What the kernel has lost, counted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Losses {
    /// Frames for which there was no buffer or no room in the receive ring.
    pub overflows: u64,
    /// Entries of ours that were none.
    pub invalid: u64,
}

/// An open socket. Closed when dropped; its queue is free a little later.
#[derive(Debug)]
pub struct Xsk {
    fd: OwnedFd,
    settings: Settings,
    bytes: u64,
    fill: Producer<1>,
    completed: Consumer<1>,
    received: Consumer<2>,
    send: Producer<2>,
    /// Whether the kernel has left something in the send ring when it was told of it last.
    leaves: bool,
    /// What stands for the kernel on a network that is not there.
    #[cfg(feature = "simulated")]
    kernel: Option<crate::simulated::kernel::Handle>,
}

impl Xsk {
    /// Opens a socket at a queue of an interface. A queue whose last holder has just gone is waited for, up to 2 s.
    ///
    /// # Errors
    /// [`XdpError`]: no privilege or support, no such queue, the queue is in use, memory cannot be locked, nothing
    /// would come in this mode.
    pub fn open(interface: &Interface, memory: &Memory, settings: Settings) -> Result<Self, XdpError> {
        Self::open_within(interface, memory, settings, PATIENCE)
    }

    /// As [`Xsk::open`], with so much patience.
    ///
    /// # Errors
    /// As [`Xsk::open`].
    pub fn open_within(
        interface: &Interface,
        memory: &Memory,
        settings: Settings,
        patience: Duration,
    ) -> Result<Self, XdpError> {
        interface.check(settings.mode)?;
        let flags = bind_flags(settings);
        let address = SocketAddrXdp::new(flags, interface.index, settings.queue);
        let fd = Self::prepare(settings)?;
        Self::register(&fd, memory, settings)?;
        retry(patience, || rustix::net::bind(&fd, &address))
            .map_err(|errno| Self::not_bound(interface, settings, memory, errno))?;
        Self::from_parts(fd, memory, settings)
    }

    /// Opens one more socket over the memory of another one, at another queue of the interface, with rings of its own.
    ///
    /// # Errors
    /// As [`Xsk::open`].
    pub fn beside(&self, interface: &Interface, memory: &Memory, settings: Settings) -> Result<Self, XdpError> {
        // Mode and scatter lists are those of the first one; the kernel wants no other word on it.
        let addr = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, interface.index, settings.queue);
        let fd = Self::prepare(settings)?;
        let address = SocketAddrXdpWithSharedUmem { addr, shared_umem_fd: self.fd.as_fd() };
        retry(PATIENCE, || rustix::net::bind(&fd, &address))
            .map_err(|errno| Self::not_bound(interface, settings, memory, errno))?;
        Self::from_parts(fd, memory, settings)
    }

    /// Takes a socket that has been opened, with the memory that it was opened with and the settings: by a privileged
    /// helper, for example, that has passed both to this process, which needs no privilege then. Nobody else is on the
    /// path of its frames. The helper is trusted as the kernel is; the program at the interface goes with the helper,
    /// unless that has passed it on too.
    ///
    /// # Errors
    /// [`XdpError::Refused`] if it is no such socket.
    pub fn from_parts(fd: OwnedFd, memory: &Memory, settings: Settings) -> Result<Self, XdpError> {
        let at = sockopt::xdp_mmap_offsets(&fd)
            .map_err(|errno| XdpError::Refused { what: "the rings of the socket", errno })?;
        let send = u64::try_from(libc::XDP_PGOFF_TX_RING).unwrap_or_default();
        let places = [libc::XDP_UMEM_PGOFF_FILL_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING, 0, send];
        Self::map(fd, memory, settings, places, at)
    }

    /// Maps the rings that `fd` has at these places: fill, completion, receive, send.
    pub(super) fn map(
        fd: OwnedFd,
        memory: &Memory,
        settings: Settings,
        [fill, completed, received, send]: [u64; 4],
        at: XdpMmapOffsets,
    ) -> Result<Self, XdpError> {
        let refused = |errno| XdpError::Refused { what: "the rings of the socket", errno };
        let entries = settings.entries;
        let fill = Producer::map("fill", &fd, fill, at.fr, entries).map_err(refused)?;
        let completed = Consumer::map("completion", &fd, completed, at.cr, entries).map_err(refused)?;
        let received = Consumer::map("receive", &fd, received, at.rx, entries).map_err(refused)?;
        let send = Producer::map("send", &fd, send, at.tx, entries).map_err(refused)?;
        Ok(Self {
            fd,
            settings,
            bytes: memory.bytes,
            fill,
            completed,
            received,
            send,
            leaves: false,
            #[cfg(feature = "simulated")]
            kernel: None,
        })
    }

    /// A socket with its rings, not yet bound.
    fn prepare(settings: Settings) -> Result<OwnedFd, XdpError> {
        let what = "a socket of AF_XDP";
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, flags, None).map_err(
            |errno| match errno {
                Errno::PERM | Errno::ACCESS => XdpError::Privilege { what, right: "CAP_NET_RAW" },
                Errno::AFNOSUPPORT => XdpError::Unsupported { what, errno },
                errno => XdpError::Refused { what, errno },
            },
        )?;
        let sized = [
            sockopt::set_xdp_umem_fill_ring_size,
            sockopt::set_xdp_umem_completion_ring_size,
            sockopt::set_xdp_rx_ring_size,
            sockopt::set_xdp_tx_ring_size,
        ]
        .into_iter()
        .try_for_each(|set| set(fd.as_fd(), settings.entries));
        sized.map_err(|errno| XdpError::Refused { what: "the sizes of the rings", errno })?;
        Ok(fd)
    }

    fn register(fd: &OwnedFd, memory: &Memory, settings: Settings) -> Result<(), XdpError> {
        let length = usize::try_from(memory.bytes).unwrap_or(usize::MAX);
        let region = XdpUmemReg {
            addr: memory.mapping.address(0, length).expose_provenance() as u64,
            len: memory.bytes,
            chunk_size: settings.buffer_bytes,
            headroom: 0,
            flags: if settings.unaligned {
                XdpUmemRegFlags::XDP_UMEM_UNALIGNED_CHUNK_FLAG
            } else {
                XdpUmemRegFlags::empty()
            },
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(fd, region).map_err(|errno| match errno {
            Errno::NOBUFS | Errno::NOMEM => XdpError::Locked { bytes: memory.bytes },
            errno => XdpError::Refused { what: "the memory of the rings", errno },
        })
    }

    fn not_bound(interface: &Interface, settings: Settings, memory: &Memory, errno: Errno) -> XdpError {
        let (name, queue) = (interface.name.clone(), settings.queue);
        match errno {
            Errno::BUSY => XdpError::QueueTaken { interface: name, queue },
            Errno::INVAL if queue >= interface.queues => {
                XdpError::NoQueue { interface: name, queue, queues: interface.queues }
            }
            Errno::NODEV => XdpError::NoInterface(name),
            Errno::PERM => XdpError::Privilege { what: "a queue of the interface", right: "CAP_NET_RAW" },
            Errno::NOBUFS | Errno::NOMEM => XdpError::Locked { bytes: memory.bytes },
            Errno::OPNOTSUPP => XdpError::Unsupported { what: "this kind of ring at this interface", errno },
            errno => XdpError::Refused { what: "the ring at the queue", errno },
        }
    }

    /// What it was opened with.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Offers a place to the kernel for what comes next, seen by it after [`Xsk::post`]. A frame lands [`HEADROOM`]
    /// bytes after it, at any time until it is taken: nobody has a slice of that place meanwhile (see [`Memory`]).
    /// Whether there was room.
    ///
    /// # Errors
    /// [`XdpError::Broken`].
    #[inline]
    pub fn offer(&mut self, at: u64) -> Result<bool, XdpError> {
        Ok(self.fill.put([at])?)
    }

    /// Offers a place instead of the one that was offered `back` places before the next one. The caller knows that no
    /// frame comes meanwhile.
    ///
    /// # Panics
    /// If the ring has not so many places.
    #[inline]
    pub fn offer_instead(&mut self, back: u32, at: u64) {
        self.fill.put_instead(back, [at]);
    }

    /// Shows the kernel what has been offered.
    #[inline]
    pub fn post(&self) {
        self.fill.publish();
        if self.settings.mode == Mode::ZeroCopy && self.fill.wants_wakeup() {
            // SAFETY: no memory is named; the driver looks at the ring. It looks again at the next call if this fails.
            unsafe {
                let fd = self.fd.as_raw_fd();
                let none = std::ptr::null_mut();
                libc::recvfrom(fd, none, 0, libc::MSG_DONTWAIT, std::ptr::null_mut(), std::ptr::null_mut());
            }
        }
    }

    /// Places that have been offered and not been used yet.
    ///
    /// # Errors
    /// [`XdpError::Broken`].
    pub fn offered(&mut self) -> Result<u32, XdpError> {
        Ok(self.fill.pending()?)
    }

    /// Whether something has come: a look at shared memory.
    #[must_use]
    #[inline]
    pub fn has_frames(&self) -> bool {
        self.received.has_some()
    }

    /// How many parts have come and not been taken.
    ///
    /// # Errors
    /// [`XdpError::Broken`].
    #[inline]
    pub fn arrived(&mut self) -> Result<u32, XdpError> {
        Ok(self.received.available()?)
    }

    /// The part that is `ahead` of the next one, if it had come when [`Xsk::arrived`] looked. Its place lies inside of
    /// the memory; one that does not is none, 0 bytes at 0.
    #[must_use]
    #[inline]
    pub fn peek(&self, ahead: u32) -> Option<Descriptor> {
        let part = Descriptor::from_entry(self.received.peek(ahead)?, self.settings.unaligned);
        let inside = part.at.checked_add(u64::from(part.bytes)).is_some_and(|end| end <= self.bytes);
        Some(if inside { part } else { Descriptor { at: 0, bytes: 0, more: part.more } })
    }

    /// Takes the next part; as [`Xsk::peek`].
    #[inline]
    pub fn take(&mut self) -> Option<Descriptor> {
        let part = self.peek(0)?;
        self.received.take()?;
        Some(part)
    }

    /// Gives the kernel the room of all that has been taken.
    #[inline]
    pub fn release(&self) {
        self.received.release();
    }

    /// How many parts can be sent now.
    ///
    /// # Errors
    /// [`XdpError::Broken`].
    #[inline]
    pub fn room(&mut self) -> Result<u32, XdpError> {
        Ok(self.send.room()?)
    }

    /// Puts one part into the send ring, seen after [`Xsk::kick`]. Whether there was room.
    ///
    /// # Errors
    /// [`XdpError::Broken`].
    #[inline]
    pub fn put(&mut self, part: Descriptor) -> Result<bool, XdpError> {
        Ok(self.send.put(part.to_entry())?)
    }

    /// Takes back what has been put since the last kick.
    pub fn take_back(&mut self) {
        self.send.forget();
    }

    /// Has the kernel send what is in the ring, as much as it takes. What it leaves there goes with the next kick.
    ///
    /// # Errors
    /// [`XdpError`]: the interface is down, or gone, or a ring is broken.
    pub fn kick(&mut self) -> Result<(), XdpError> {
        self.send.publish();
        let mut before = self.send.pending()?;
        while before > 0 && self.send.wants_wakeup() {
            if self.call() < 0 {
                match Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO) {
                    // It sends a few at a time, or has no room for more now.
                    Errno::AGAIN | Errno::NOBUFS | Errno::BUSY | Errno::INTR => {}
                    errno => return Err(XdpError::Refused { what: "sending frames", errno }),
                }
            }
            let left = self.send.pending()?;
            if left >= before {
                break;
            }
            before = left;
        }
        self.leaves = before > 0;
        Ok(())
    }

    /// Has the kernel look at the send ring: what it returns, less than 0 if it says why not.
    fn call(&self) -> isize {
        #[cfg(feature = "simulated")]
        if let Some(kernel) = &self.kernel {
            kernel.sends();
            return 0;
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: no memory is named; the kernel reads the ring.
        unsafe { libc::sendto(self.fd.as_raw_fd(), std::ptr::null(), 0, flags, std::ptr::null(), 0) }
    }

    /// Whether the last kick has left something in the ring, with which the kernel may go on at the next one only.
    #[must_use]
    #[inline]
    pub const fn leaves(&self) -> bool {
        self.leaves
    }

    /// Parts in the send ring that the kernel has not taken.
    ///
    /// # Errors
    /// [`XdpError::Broken`].
    pub fn unsent(&mut self) -> Result<u32, XdpError> {
        Ok(self.send.pending()?)
    }

    /// Where a part began that has been sent and may be written again, if there is one.
    ///
    /// # Errors
    /// [`XdpError::Broken`].
    #[inline]
    pub fn completed(&mut self) -> Result<Option<u64>, XdpError> {
        if let Some([at]) = self.completed.take() {
            return Ok(Some(at));
        }
        self.completed.release();
        self.completed.available()?;
        Ok(self.completed.take().map(|[at]| at))
    }

    /// What has been lost so far.
    #[must_use]
    pub fn losses(&self) -> Losses {
        sockopt::xdp_statistics(&self.fd).map_or_else(
            |_| Losses::default(),
            |counted| Losses {
                // A frame that a copying driver finds no buffer for is counted under both of the first names.
                overflows: counted.rx_dropped.max(counted.rx_fill_ring_empty_descs.unwrap_or(0))
                    + counted.rx_ring_full.unwrap_or(0),
                invalid: counted.rx_invalid_descs + counted.tx_invalid_descs,
            },
        )
    }
}

#[cfg(feature = "simulated")]
impl Xsk {
    /// `bell` is readable when frames have come: its rings are in another file.
    pub(super) fn called_by(self, bell: OwnedFd) -> Self {
        Self { fd: bell, ..self }
    }

    /// This stands for the kernel.
    pub(crate) fn at(self, kernel: crate::simulated::kernel::Handle) -> Self {
        Self { kernel: Some(kernel), ..self }
    }
}

#[cfg(test)]
impl Xsk {
    /// Has `other` called in place of the socket, which is given back.
    pub(crate) const fn exchange(&mut self, other: OwnedFd) -> OwnedFd {
        std::mem::replace(&mut self.fd, other)
    }
}

impl AsFd for Xsk {
    /// Readable when frames have come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn bind_flags(settings: Settings) -> SocketAddrXdpFlags {
    let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    flags |= match settings.mode {
        Mode::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
        Mode::Generic | Mode::Native => SocketAddrXdpFlags::XDP_COPY,
    };
    if settings.scatter {
        flags |= SocketAddrXdpFlags::XDP_USE_SG;
    }
    flags
}

/// Tries until it is not busy any more, with growing pauses, for so long.
fn retry(patience: Duration, mut attempt: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    let begun = Instant::now();
    let mut pause = Duration::from_micros(500);
    loop {
        match attempt() {
            Err(Errno::BUSY) if begun.elapsed() < patience => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}
