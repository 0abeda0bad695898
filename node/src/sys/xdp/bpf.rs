//! The system call `bpf(2)`: maps, programs, and the link by which a program stays at an interface.
//!
//! Nothing is pinned: all three are file descriptors, and gone with the last process that has them, however it ended.

use std::ffi::{c_long, c_void};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{Mode, PATIENCE, XdpError};

mod twin;

const MAP_CREATE: u32 = 0;
const MAP_LOOKUP: u32 = 1;
const MAP_UPDATE: u32 = 2;
const MAP_DELETE: u32 = 3;
const PROG_LOAD: u32 = 5;
const MAP_BY_ID: u32 = 14;
const INFO: u32 = 15;
const LINK_CREATE: u32 = 28;

const MAP_ARRAY: u32 = 2;
const MAP_PROGRAMS: u32 = 3;
const MAP_XSK: u32 = 17;
const MAPPABLE: u32 = 1 << 10;
const READ_ONLY: u32 = 1 << 3;
const PROGRAM_XDP: u32 = 6;
const HAS_FRAGS: u32 = 1 << 5;
const ATTACH_XDP: u32 = 37;

const FLAG_GENERIC: u32 = 1 << 1;
const FLAG_NATIVE: u32 = 1 << 2;

/// How many processors this machine may have: a program may run on each of them at the same time.
#[must_use]
pub fn processors() -> u32 {
    // SAFETY: asks for a number.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    u32::try_from(count).unwrap_or_default()
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct MapChange {
    map: u32,
    _unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    count: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach: u32,
}

#[repr(C)]
#[derive(Default)]
struct Link {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct ById {
    id: u32,
    /// Written by the kernel when it is asked for what comes after `id`.
    next: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct Ask {
    of: u32,
    bytes: u32,
    into: u64,
}

/// What the kernel says of a map, up to what is used here.
#[repr(C)]
#[derive(Default)]
struct MapInfo {
    kind: u32,
    id: u32,
}

/// Calls `bpf(2)`.
///
/// # Safety
/// `T` must be the beginning of the kernel's `union bpf_attr` for `command`, as far as that uses it, and every address
/// in it must name memory that is alive, as long as the command reads or writes.
unsafe fn bpf<T>(command: u32, attributes: &mut T) -> Result<c_long, Errno> {
    // SAFETY: the attributes are alive and borrowed by nobody else; their length is told; the rest is the caller's.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, (&raw mut *attributes).cast::<c_void>(), size_of::<T>()) };
    if result >= 0 {
        return Ok(result);
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// The same for a command that makes a descriptor.
///
/// # Safety
/// As of [`bpf`], and `command` is of those that make a descriptor and return it.
unsafe fn make<T>(command: u32, attributes: &mut T) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller's word.
    let result = unsafe { bpf(command, attributes) }?;
    let fd = RawFd::try_from(result).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel has made this descriptor for us alone; nobody else closes it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Has the kernel fill in what it knows of a program or a link.
///
/// # Safety
/// `T` is the beginning of what the kernel has to say of what `of` is, made of numbers, and an address in it names
/// memory that the kernel may write as far as `T` says.
unsafe fn inform<T>(of: BorrowedFd<'_>, info: &mut T) -> Result<(), Errno> {
    let bytes = u32::try_from(size_of::<T>()).unwrap_or(0);
    let into = (&raw mut *info).expose_provenance() as u64;
    let mut ask = Ask { of: number(of), bytes, into };
    // SAFETY: the information is alive and borrowed by nobody else; its length is told; the rest is the caller's word.
    unsafe { bpf(INFO, &mut ask) }.map(drop)
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    u32::try_from(fd.as_raw_fd()).unwrap_or(u32::MAX)
}

fn pointer<T>(to: &[T]) -> u64 {
    to.as_ptr().expose_provenance() as u64
}

/// A map whose keys and values are numbers of 32 bits, with room for so many.
fn map_of(kind: u32, entries: u32) -> Result<OwnedFd, Errno> {
    let mut create = MapCreate { kind, key_bytes: 4, value_bytes: 4, entries, flags: 0 };
    // SAFETY: the command reads no more than these five numbers, and makes a map.
    unsafe { make(MAP_CREATE, &mut create) }
}

/// Puts what has this descriptor into such a map.
fn put(map: BorrowedFd<'_>, key: u32, value: BorrowedFd<'_>) -> Result<(), Errno> {
    let (key, value) = ([key], [number(value)]);
    let mut change = MapChange { map: number(map), key: pointer(&key), value: pointer(&value), ..MapChange::default() };
    // SAFETY: key and value are alive during the call and have the 4 bytes each that the map was made with.
    unsafe { bpf(MAP_UPDATE, &mut change) }.map(drop)
}

/// Takes out of such a map what is there.
fn take_out(map: BorrowedFd<'_>, key: u32) -> Result<(), Errno> {
    let key = [key];
    let mut change = MapChange { map: number(map), key: pointer(&key), ..MapChange::default() };
    // SAFETY: the key is alive during the call and has the 4 bytes that the map was made with.
    unsafe { bpf(MAP_DELETE, &mut change) }.map(drop)
}

/// The map of rings: which socket takes the frames of which queue.
#[derive(Debug)]
pub struct Rings(OwnedFd);

impl Rings {
    /// A map for the queues below `queues`.
    ///
    /// # Errors
    /// [`XdpError`]: no privilege, no support.
    pub fn new(queues: u32) -> Result<Self, XdpError> {
        map_of(MAP_XSK, queues).map(Self).map_err(|errno| XdpError::of_bpf("a map of rings (XSKMAP)", errno))
    }

    /// Frames of `queue` go to this socket from now on; they are the kernel's again when it is closed.
    ///
    /// # Errors
    /// [`XdpError::Refused`], as the kernel says.
    pub fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), XdpError> {
        put(self.0.as_fd(), queue, socket)
            .map_err(|errno| XdpError::Refused { what: "the socket in the map of rings", errno })
    }

    /// Frames of `queue` go to the kernel from now on.
    ///
    /// # Errors
    /// [`XdpError::Refused`], as the kernel says.
    pub fn clear(&self, queue: u32) -> Result<(), XdpError> {
        take_out(self.0.as_fd(), queue)
            .map_err(|errno| XdpError::Refused { what: "an empty place in the map of rings", errno })
    }

    /// Its descriptor, as programs name it.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// The map of programs: which one runs for the frames of which queue.
///
/// The kernel empties it when the last process has closed it, though other programs still use it.
#[derive(Debug)]
pub struct Programs(OwnedFd);

impl Programs {
    /// A map for the queues below `queues`.
    ///
    /// # Errors
    /// [`XdpError`]: no privilege, no support.
    pub fn new(queues: u32) -> Result<Self, XdpError> {
        let made = map_of(MAP_PROGRAMS, queues);
        made.map(Self).map_err(|errno| XdpError::of_bpf("a map of programs (PROG_ARRAY)", errno))
    }

    /// One that another process has passed to this one.
    #[must_use]
    pub const fn passed(map: OwnedFd) -> Self {
        Self(map)
    }

    /// Frames of `queue` go to this program from now on.
    ///
    /// # Errors
    /// [`XdpError::Refused`], as the kernel says.
    pub fn set(&self, queue: u32, program: &Program) -> Result<(), XdpError> {
        put(self.0.as_fd(), queue, program.0.as_fd())
            .map_err(|errno| XdpError::Refused { what: "the program in the map of programs", errno })
    }

    /// Frames of `queue` go to no program from now on.
    ///
    /// # Errors
    /// [`XdpError::Refused`], as the kernel says.
    pub fn clear(&self, queue: u32) -> Result<(), XdpError> {
        take_out(self.0.as_fd(), queue)
            .map_err(|errno| XdpError::Refused { what: "an empty place in the map of programs", errno })
    }

    /// Whether frames of `queue` go to a program.
    #[must_use]
    pub fn has(&self, queue: u32) -> bool {
        let (key, mut value) = ([queue], [0_u32]);
        let into = value.as_mut_ptr().expose_provenance() as u64;
        let mut asked =
            MapChange { map: number(self.0.as_fd()), key: pointer(&key), value: into, ..MapChange::default() };
        // SAFETY: key and value are alive during the call, have the 4 bytes each that the map was made with, and the
        // value may be written.
        unsafe { bpf(MAP_LOOKUP, &mut asked) }.is_ok()
    }

    /// Its descriptor, as programs name it.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Nobody may change it from now on.
    #[cfg(test)]
    pub(super) fn freeze(&self) -> Result<(), Errno> {
        const MAP_FREEZE: u32 = 22;
        let mut map = ById { id: number(self.0.as_fd()), ..ById::default() };
        // SAFETY: the command reads one number, a descriptor.
        unsafe { bpf(MAP_FREEZE, &mut map) }.map(drop)
    }

    /// A descriptor for somebody who shall keep it, and may not change it. It takes `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    /// [`XdpError`]: no privilege, no more descriptors.
    pub fn to_keep(&self) -> Result<OwnedFd, XdpError> {
        let what = "a map of programs to be passed on";
        let refused = |errno| match errno {
            Errno::PERM => XdpError::Privilege { what, right: "CAP_SYS_ADMIN" },
            errno => XdpError::of_bpf(what, errno),
        };
        let mut info = MapInfo::default();
        // SAFETY: this is the beginning of what the kernel says of maps; no address is in it.
        unsafe { inform(self.0.as_fd(), &mut info) }.map_err(refused)?;
        let mut asked = ById { id: info.id, flags: READ_ONLY, ..ById::default() };
        // SAFETY: the command reads no more than these numbers, and makes a descriptor.
        unsafe { make(MAP_BY_ID, &mut asked) }.map_err(refused)
    }
}

/// Memory that a program shares with this process.
#[derive(Debug)]
pub struct SharedMemory {
    file: OwnedFd,
    base: NonNull<AtomicU64>,
    bytes: usize,
}

// SAFETY: plain memory that is reached through atomics, or through `&mut`.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// `bytes` zero bytes, a multiple of 8.
    ///
    /// # Errors
    /// [`XdpError`]: no privilege, no support, no memory.
    pub fn new(bytes: usize) -> Result<Self, XdpError> {
        let refused = |errno| XdpError::of_bpf("memory shared with a program (ARRAY, mappable)", errno);
        let value_bytes = u32::try_from(bytes.next_multiple_of(8)).map_err(|_| refused(Errno::NOMEM))?;
        let mut create = MapCreate { kind: MAP_ARRAY, key_bytes: 4, value_bytes, entries: 1, flags: MAPPABLE };
        // SAFETY: the command reads no more than these five numbers, and makes a map.
        let file = unsafe { make(MAP_CREATE, &mut create) }.map_err(refused)?;
        Self::map(file, bytes).map_err(refused)
    }

    fn map(file: OwnedFd, bytes: usize) -> Result<Self, Errno> {
        let bytes = bytes.next_multiple_of(4096);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice; a map of this size has whole pages.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { file, base, bytes })
    }

    /// A memory file of so many bytes or more in place of a map.
    ///
    /// # Errors
    /// [`XdpError`]: no memory.
    #[cfg(feature = "simulated")]
    pub(super) fn over(file: OwnedFd, bytes: usize) -> Result<Self, XdpError> {
        Self::map(file, bytes).map_err(|errno| XdpError::Refused { what: "a simulated map", errno })
    }

    /// All of it, as the program has it that is run on it now.
    #[cfg(feature = "simulated")]
    pub(super) fn all(&mut self) -> &mut [u8] {
        // SAFETY: inside of the mapping, which is the program's own: the endpoint has another one of the same file, on
        // the same thread, which is not in any call of its own meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.base.cast::<u8>().as_ptr(), self.bytes) }
    }

    /// The 64 bits at `offset`.
    ///
    /// # Panics
    /// If they are not aligned, or not inside.
    #[must_use]
    pub fn double(&self, offset: u64) -> &AtomicU64 {
        let index = self.index(offset, 8);
        // SAFETY: inside of the mapping, which lives as long as we do, and aligned; reached by atomics only.
        unsafe { self.base.add(index).as_ref() }
    }

    /// The 32 bits at `offset`.
    ///
    /// # Panics
    /// If they are not aligned, or not inside.
    #[must_use]
    pub fn word(&self, offset: u64) -> &AtomicU32 {
        let index = self.index(offset, 4);
        // SAFETY: as in `double`. No place is reached by both widths: counters and announcements are words, headers are
        // doubles (see `program::shared`).
        unsafe { self.base.cast::<AtomicU32>().add(index).as_ref() }
    }

    /// `bytes` bytes from `offset` on, to be read and changed. They are such as the program has finished with, and does
    /// not write before user space has given it room there again.
    ///
    /// # Panics
    /// If they are not inside.
    #[must_use]
    pub fn bytes(&mut self, offset: u64, bytes: usize) -> &mut [u8] {
        let inside =
            usize::try_from(offset).ok().filter(|at| at.checked_add(bytes).is_some_and(|end| end <= self.bytes));
        let at = inside.expect("bytes inside of the memory");
        // SAFETY: inside of the mapping, which lives as long as we do; `&mut self` is exclusive in this process, and
        // nobody else has the map but the program. That one writes where user space has given it room, and says when it
        // has finished; that the bytes are none of a room is the caller's word, which no type can ask for.
        unsafe { std::slice::from_raw_parts_mut(self.base.cast::<u8>().add(at).as_ptr(), bytes) }
    }

    fn index(&self, offset: u64, width: usize) -> usize {
        #[cfg(feature = "simulated")]
        crate::simulated::kernel::meanwhile();
        // The memory is whole pages: a place that is aligned and begins inside ends inside.
        let index = usize::try_from(offset).ok().filter(|at| at.is_multiple_of(width) && *at < self.bytes);
        index.expect("an aligned offset inside of the memory") / width
    }

    /// Its descriptor, as programs name it.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with these bytes; no reference outlives us.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A program that the kernel has checked.
#[derive(Debug)]
pub struct Program(OwnedFd);

impl Program {
    /// Has the kernel check this program, which [`Code::finish`](super::code::Code::finish) has made.
    ///
    /// # Errors
    /// [`XdpError`]: no privilege, no support.
    pub fn load(code: &[u8]) -> Result<Self, XdpError> {
        Self::load_as(code, *b"cutthrough\0\0\0\0\0\0")
    }

    /// As [`Program::load`], under a name, which is shown to whoever lists programs; zero bytes end it.
    ///
    /// # Errors
    /// As [`Program::load`].
    pub fn load_as(code: &[u8], name: [u8; 16]) -> Result<Self, XdpError> {
        let mut log = vec![0_u8; if cfg!(test) { 1 << 20 } else { 0 }];
        let mut load = Load {
            kind: PROGRAM_XDP,
            count: u32::try_from(code.len() / 8).unwrap_or(u32::MAX),
            code: pointer(code),
            license: c"MIT OR Apache-2.0".as_ptr().expose_provenance() as u64,
            log_level: u32::from(!log.is_empty()),
            log_bytes: u32::try_from(log.len()).unwrap_or(0),
            log: if log.is_empty() { 0 } else { log.as_mut_ptr().expose_provenance() as u64 },
            flags: HAS_FRAGS,
            name,
            attach: ATTACH_XDP,
            ..Load::default()
        };
        // SAFETY: code, license, and the room for the log are alive during the call, with the lengths that are told;
        // the command makes a program.
        let made = unsafe { make(PROG_LOAD, &mut load) };
        if cfg!(test) && made.is_err() {
            eprintln!("{}", String::from_utf8_lossy(&log).trim_end_matches('\0'));
        }
        made.map(Self).map_err(|errno| XdpError::of_bpf("an XDP program", errno))
    }

    /// Puts it at the interface of this index, for as long as the value that this returns lives. A program of an
    /// endpoint that has just ended is waited for, up to 2 s.
    ///
    /// # Errors
    /// [`XdpError`]: no privilege or support, another program is there, the MTU is too long for this mode.
    pub fn attach(&self, interface: u32, mode: Mode) -> Result<Attached, XdpError> {
        self.attach_within(interface, mode, PATIENCE)
    }

    /// As [`Program::attach`], with so much patience.
    ///
    /// # Errors
    /// As [`Program::attach`].
    pub fn attach_within(&self, interface: u32, mode: Mode, patience: Duration) -> Result<Attached, XdpError> {
        let begun = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            match self.try_attach(interface, mode) {
                Err(Errno::BUSY | Errno::EXIST) if begun.elapsed() < patience => rest(&mut pause),
                tried => return tried.map_err(|errno| XdpError::of_attach(interface, mode, errno)),
            }
        }
    }

    /// Puts it at the interface of this index now, or says what the kernel says.
    pub(super) fn try_attach(&self, interface: u32, mode: Mode) -> Result<Attached, Errno> {
        let flags = if mode == Mode::Generic { FLAG_GENERIC } else { FLAG_NATIVE };
        let mut link = Link { program: number(self.0.as_fd()), interface, attach: ATTACH_XDP, flags };
        // SAFETY: the command reads no more than these four numbers, and makes a link.
        unsafe { make(LINK_CREATE, &mut link) }.map(Attached)
    }
}

/// How long it is rested at first where something is to go away.
pub(super) const FIRST_PAUSE: Duration = Duration::from_micros(500);

/// Rests for so long, and twice as long the next time, up to 20 ms.
pub(super) fn rest(pause: &mut Duration) {
    std::thread::sleep(*pause);
    *pause = (*pause * 2).min(Duration::from_millis(20));
}

/// A program at an interface. It goes with this value, or with the process, however that ends.
#[derive(Debug)]
pub struct Attached(OwnedFd);

impl Attached {
    /// A link that another process has passed to this one: the program stays as long as one of them has it.
    #[must_use]
    pub const fn passed(link: OwnedFd) -> Self {
        Self(link)
    }
}

impl AsFd for Attached {
    /// The link, to be passed on.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The order that what a program has written is read in.
pub const READ: Ordering = Ordering::Acquire;
