//! Makes shared memory, passes it, maps it.
//!
//! All memory is a sealed memory file: it cannot shrink under a reader (which would end it with SIGBUS), it has no name
//! in any file system, and it is gone when the last process that maps it is gone, however that process ended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{
    MemfdFlags, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fcntl_getfl, fstat, fstatfs, ftruncate,
    memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::process::{Resource, getrlimit};

use crate::copy::{Copying, copy_here, copy_there};
use crate::private::aligned;
use crate::record::Words;
use crate::ring::{PeerSlot, Slots, Sole};
use crate::room::Room;
use crate::sync::{AtomicU64, Eviction, Ordering, Slot, for_lines, prefetch_read, prefetch_write};

/// Why memory could not be made or mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The kernel gave no memory file.
    #[error("no shared memory: {0}{cure}", cure = cure(*.0))]
    Create(Errno),
    /// The file would be longer than this process may make one.
    #[error("no shared memory: {bytes} bytes are more than files may have here ({most}); raise `ulimit -f`")]
    TooLong {
        /// How much was asked for.
        bytes: u64,
        /// The limit.
        most: u64,
    },
    /// The kernel did not map it.
    #[error("shared memory of {bytes} bytes cannot be mapped: {errno}; raise `ulimit -v`, or choose smaller pools")]
    Map {
        /// How much was asked for.
        bytes: u64,
        /// What the kernel said.
        errno: Errno,
    },
    /// It would take too many of this process's addresses, beside what its peers' memory takes already.
    #[error("no addresses for {bytes} bytes of a peer's memory; close channels, or have peers choose smaller pools")]
    Room {
        /// Bytes of the peer's memory.
        bytes: u64,
    },
    /// The peer's file is smaller than its hello says.
    #[error("the peer's memory has {have} bytes and needs {need}")]
    TooSmall {
        /// Bytes of the file.
        have: u64,
        /// Bytes that the hello's sizes need.
        need: u64,
    },
    /// The peer's file could still shrink or be sealed further, or is of a kind whose pages can be taken away.
    #[error("the peer's memory is not an ordinary memory file sealed against shrinking and further seals")]
    NotSealed,
    /// The peer's file is to be written here, and cannot be.
    #[error("the peer's memory is sealed against writing, or was passed for reading only")]
    NotWritable,
    /// The peer's file cannot be read here.
    #[error("the peer's memory was passed for writing only")]
    NotReadable,
}

/// What to do where a limit is the cause of what the kernel said: the end of a message, behind a semicolon. Nothing
/// where it is none.
#[must_use]
pub const fn cure(errno: Errno) -> &'static str {
    match errno {
        Errno::MFILE => "; raise the limit of open files (ulimit -n)",
        Errno::NFILE => "; close files of other programs, or raise the machine's limit (sysctl fs.file-max)",
        Errno::NOMEM => "; free memory, or raise the limit of the container or of this process (ulimit -v)",
        _ => "",
    }
}

/// Bytes of a page, and of a huge one.
pub(crate) const SMALL: usize = 4096;
pub(crate) const HUGE: usize = 2 << 20;

/// Type of the file system that ordinary memory files lie in.
pub const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// Who may write a memory file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// The maker alone: whoever gets the file can only map it for reading.
    Maker,
    /// Whoever gets the file.
    Both,
}

/// A stretch of memory that other processes map too. Unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    writable: bool,
    /// What memory that a peer has made takes of this process's addresses.
    _room: Option<Room>,
}

// SAFETY: the mapping is plain memory that belongs to no thread.
unsafe impl Send for Mapping {}
// SAFETY: words are reached through atomics. `copy_in`, `copy_out` and `copy_across` use raw pointers and make no
// reference: whoever copies what another thread or process writes at the same time gets, or leaves, some mixture of the
// bytes, just as between processes, which is what all users of shared memory expect and check for. References to plain
// bytes come from `slice` and `slice_mut` alone, whose contracts ask that nobody copies there meanwhile.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Makes `bytes` of zeroed shared memory, aligned to `align`, and the file to pass to the peer. Pages cost memory
    /// only once they are touched. `name` shows in `/proc/PID/maps`.
    ///
    /// # Errors
    /// [`MapError::Create`], [`MapError::TooLong`] or [`MapError::Map`].
    pub fn create(name: &str, bytes: u64, align: u64, writers: Writers) -> Result<(Arc<Self>, OwnedFd), MapError> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(MapError::Create)?;
        // Beyond the limit the kernel does not only say no: it sends a signal, which ends the process.
        if let Some(most) = getrlimit(Resource::Fsize).current.filter(|most| bytes > *most) {
            return Err(MapError::TooLong { bytes, most });
        }
        ftruncate(&file, bytes).map_err(MapError::Create)?;
        let mapping = Self::map(file.as_fd(), bytes, align, true, None)?;
        let mut seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        if writers == Writers::Maker {
            seals |= SealFlags::FUTURE_WRITE;
        }
        fcntl_add_seals(&file, seals).map_err(MapError::Create)?;
        Ok((mapping, file))
    }

    /// Maps memory that a peer has made: for reading, or, where it may, for writing too.
    ///
    /// # Errors
    /// Any [`MapError`]; the peer's file is checked for its size, its seals and how it may be used first.
    pub fn open(file: BorrowedFd<'_>, bytes: u64, align: u64, writable: bool) -> Result<Arc<Self>, MapError> {
        let seals = fcntl_get_seals(file).map_err(|_| MapError::NotSealed)?;
        // A file of huge pages can be sealed too, but a hole punched into it may end its readers with SIGBUS.
        let ordinary = fstatfs(file).is_ok_and(|system| system.f_type == TMPFS);
        // Without the seal on seals the peer could set others between this look and the mapping.
        if !ordinary || !seals.contains(SealFlags::SHRINK | SealFlags::SEAL) {
            return Err(MapError::NotSealed);
        }
        // What cannot be mapped would take addresses all the same, see `map`.
        let access = fcntl_getfl(file).map_or(OFlags::WRONLY, |flags| flags & OFlags::ACCMODE);
        if access == OFlags::WRONLY {
            return Err(MapError::NotReadable);
        }
        if writable && (seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) || access != OFlags::RDWR) {
            return Err(MapError::NotWritable);
        }
        let have = fstat(file).map_err(MapError::Create)?.st_size;
        let have = u64::try_from(have).unwrap_or(0);
        if have < bytes {
            return Err(MapError::TooSmall { have, need: bytes });
        }
        let room = Room::take(bytes).ok_or(MapError::Room { bytes })?;
        Self::map(file, bytes, align, writable, Some(room))
    }

    fn map(
        file: BorrowedFd<'_>,
        bytes: u64,
        align: u64,
        writable: bool,
        room: Option<Room>,
    ) -> Result<Arc<Self>, MapError> {
        let failed = move |errno| MapError::Map { bytes, errno };
        let bytes = usize::try_from(bytes).map_err(|_| failed(Errno::NOMEM))?;
        let length = mapped_length(bytes);
        let align = usize::try_from(align).map_err(|_| failed(Errno::NOMEM))?;
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // Reserved where it is aligned, then the file is mapped over it.
        let reserved = aligned(length, align.max(SMALL), ProtFlags::empty()).map_err(failed)?;
        // SAFETY: all of the reservation just made, which nobody else knows of.
        let mapped =
            unsafe { mmap(reserved.as_ptr().cast(), length, protection, MapFlags::SHARED | MapFlags::FIXED, file, 0) };
        if let Err(errno) = mapped {
            // Before Linux 6.12 the reservation is gone by now for some reasons, and another thread may have mapped
            // something there: so it is left as it is. It costs addresses alone, and no peer can bring it about, since
            // what `open` maps has been looked at.
            return Err(failed(errno));
        }
        let base = reserved;
        if align >= HUGE {
            // SAFETY: advice about our own mapping; whether huge pages come is up to the kernel.
            let _ = unsafe { madvise(base.as_ptr().cast(), length, Advice::LinuxHugepage) };
        }
        Ok(Arc::new(Self { base, bytes, writable, _room: room }))
    }

    /// Address of `bytes` bytes at `offset`.
    ///
    /// # Panics
    /// If they do not lie within the mapping.
    #[inline]
    fn at(&self, offset: u64, bytes: usize) -> *mut u8 {
        let inside =
            usize::try_from(offset).ok().filter(|start| start.checked_add(bytes).is_some_and(|end| end <= self.bytes));
        let start = inside.expect("an offset within the mapping");
        self.base.as_ptr().wrapping_add(start)
    }

    /// The word at `offset`, to be stored too.
    ///
    /// # Panics
    /// If it is not aligned or not within the mapping, or that is mapped for reading only: a store would end the
    /// process.
    #[inline]
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(self.writable, "mapped for reading only");
        self.shown(offset)
    }

    /// What the word at `offset` holds.
    ///
    /// # Panics
    /// If it is not aligned or not within the mapping.
    #[inline]
    #[must_use]
    pub fn load(&self, offset: u64, order: Ordering) -> u64 {
        self.shown(offset).load(order)
    }

    /// The word at `offset`, to be loaded; a load from a page that is mapped for reading only is allowed.
    #[inline]
    fn shown(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "a word is aligned");
        // SAFETY: within the mapping (checked by `at`), aligned, and reached through atomics only.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    /// Copies `bytes` into the mapping, where another core may have read the lines that are written: each then costs a
    /// transfer, and all ways of copying let these overlap, as far as they can.
    ///
    /// # Panics
    /// If the bytes would not lie within the mapping, or it is mapped for reading only.
    #[inline]
    pub fn copy_in(&self, offset: u64, bytes: &[u8], copying: Copying) {
        assert!(self.writable, "mapped for reading only");
        let to = self.at(offset, bytes.len());
        // SAFETY: source is a slice, destination lies within the mapping (checked above). They do not overlap, and no
        // reference to the destination exists here: who has a slice of the mapping has promised that nobody writes
        // there. The other process may read or write these bytes meanwhile: it sees, or leaves, some mixture.
        unsafe { copy_there(bytes.as_ptr(), to, bytes.len(), copying) };
    }

    /// Copies bytes out of the mapping.
    ///
    /// # Panics
    /// If they do not lie within the mapping.
    #[inline]
    pub fn copy_out(&self, offset: u64, bytes: &mut [u8], copying: Copying) {
        let from = self.at(offset, bytes.len());
        // SAFETY: as in `copy_in`, the other way round: what comes out is some bytes, whatever the other side does.
        unsafe { copy_here(from, bytes.as_mut_ptr(), bytes.len(), copying) };
    }

    /// Copies between two mappings, which may be the same one.
    ///
    /// # Panics
    /// If either range is not within its mapping, or the destination is mapped for reading only.
    pub fn copy_across(from: &Self, from_offset: u64, to: &Self, to_offset: u64, bytes: usize) {
        assert!(to.writable, "mapped for reading only");
        let source = from.at(from_offset, bytes);
        let target = to.at(to_offset, bytes);
        if source.addr().abs_diff(target.addr()) >= bytes {
            // SAFETY: both ranges lie within their mappings and do not overlap; see `copy_in` for other writers.
            unsafe { copy_here(source, target, bytes, Copying::Pieces) };
        } else {
            // SAFETY: as above, but that they may overlap, which `copy` allows.
            unsafe { std::ptr::copy(source, target, bytes) };
        }
    }

    /// Bytes that only this process writes, and nobody at present, as a slice.
    ///
    /// # Safety
    /// No other process can write the range while the slice lives: none has the file, or it was made for one writer
    /// ([`Writers::Maker`]), or those that have it, the kernel among them, are trusted not to. And nobody in this
    /// process writes it meanwhile, by copies and atomics neither.
    ///
    /// # Panics
    /// If the range is not within the mapping.
    #[must_use]
    pub unsafe fn slice(&self, offset: u64, bytes: usize) -> &[u8] {
        // SAFETY: within the mapping; written by nobody, by the caller's word.
        unsafe { std::slice::from_raw_parts(self.at(offset, bytes), bytes) }
    }

    /// Bytes that only this process writes, as a slice to write.
    ///
    /// # Safety
    /// No other process can write the range while the slice lives, as for [`Mapping::slice`], and nobody else in this
    /// process reads or writes it meanwhile, by copies and atomics neither.
    ///
    /// # Panics
    /// If the range is not within the mapping, or it is mapped for reading only.
    #[allow(clippy::mut_from_ref, reason = "the contract asks for exclusive use of the range")]
    pub unsafe fn slice_mut(&self, offset: u64, bytes: usize) -> &mut [u8] {
        assert!(self.writable, "mapped for reading only");
        // SAFETY: within the mapping; exclusive, by the caller's word.
        unsafe { std::slice::from_raw_parts_mut(self.at(offset, bytes), bytes) }
    }

    /// Address of a byte, for those who must hand it to a system call or to foreign code.
    ///
    /// # Panics
    /// If the range is not within the mapping.
    #[must_use]
    pub fn address(&self, offset: u64, bytes: usize) -> *const u8 {
        self.at(offset, bytes)
    }

    /// Asks for the lines of `bytes` bytes at `offset` to be read soon.
    ///
    /// # Panics
    /// If they do not lie within the mapping.
    #[inline]
    pub fn prefetch_read(&self, offset: u64, bytes: usize) {
        for_lines(self.at(offset, bytes), bytes, prefetch_read);
    }

    /// Asks for the lines of `bytes` bytes at `offset` to be owned by this core soon: they will be written.
    ///
    /// # Panics
    /// If they do not lie within the mapping.
    #[inline]
    pub fn prefetch_write(&self, offset: u64, bytes: usize) {
        for_lines(self.at(offset, bytes), bytes, prefetch_write);
    }

    /// Sends the lines of `bytes` bytes at `offset` from the caches to memory.
    ///
    /// # Panics
    /// If they do not lie within the mapping.
    #[inline]
    pub fn evict(&self, offset: u64, bytes: usize, eviction: Eviction) {
        // SAFETY: the bytes lie within the mapping, all of which can be read.
        for_lines(self.at(offset, bytes), bytes, |line| unsafe { eviction.evict(line) });
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map`, and with the last owner gone no reference into it is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), mapped_length(self.bytes)) };
    }
}

/// Bytes of address space that `bytes` of memory take: whole small pages, at least one.
const fn mapped_length(bytes: usize) -> usize {
    (if bytes == 0 { 1 } else { bytes }).next_multiple_of(SMALL)
}

/// An array in a mapping: slots or words. Keeps the mapping alive.
#[derive(Debug)]
pub struct Array<T> {
    start: NonNull<T>,
    count: usize,
    _mapping: Arc<Mapping>,
}

// SAFETY: an array of atomics in a mapping that is itself Send and Sync.
unsafe impl<T: Sync> Send for Array<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Array<T> {}

/// What may lie in an [`Array`]: types made of atomics alone, valid with any bytes.
///
/// # Safety
/// Every bit pattern is a valid value, and all of it may change behind a shared reference: no byte lies outside of an
/// atomic.
pub unsafe trait Shared: Sync {}
// SAFETY: a 64-bit atomic.
unsafe impl Shared for AtomicU64 {}
// SAFETY: an array of 64-bit atomics, as long as the type. The control message is also read and written as plain bytes:
// read as memory that another process may write (`copy_out` in `ring`), written by the sole way to it (`Sole`).
unsafe impl Shared for Slot {}

impl<T: Shared> Array<T> {
    /// `count` values at `offset`.
    ///
    /// # Panics
    /// If they are not aligned or not within the mapping.
    #[must_use]
    pub fn new(mapping: &Arc<Mapping>, offset: u64, count: usize) -> Self {
        let bytes = count.checked_mul(size_of::<T>()).expect("no more values than there are addresses");
        let start = mapping.at(offset, bytes).cast::<T>();
        assert!(start.is_aligned(), "an array is aligned");
        let start = NonNull::new(start).expect("a mapping is never at address zero");
        Self { start, count, _mapping: Arc::clone(mapping) }
    }

    #[inline]
    fn slice(&self) -> &[T] {
        // SAFETY: within the mapping and aligned (checked when made), alive as long as the mapping that we keep, and
        // any bytes are valid values of `T: Shared`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl Array<AtomicU64> {
    /// All words; to be loaded only, they may lie in memory that is mapped for reading.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.slice()
    }

    /// The word with this index, with everything that was written before it.
    ///
    /// # Panics
    /// If there is no such word.
    #[inline]
    #[must_use]
    pub fn load_acquire(&self, index: usize) -> u64 {
        self.slice()[index].load(Ordering::Acquire)
    }
}

/// An array in memory of our own, to be written.
#[derive(Debug)]
pub struct OwnArray<T>(Array<T>);

impl<T: Shared> OwnArray<T> {
    /// Wraps an array of a mapping that this process made.
    ///
    /// # Safety
    /// No other process can write the mapping ([`Writers::Maker`]). If these are slots, nothing else in this process
    /// reaches them as long as this value lives: a ring has one of them as plain bytes; see [`Sole`].
    ///
    /// # Panics
    /// If it is mapped for reading only.
    #[must_use]
    pub(crate) unsafe fn new(mapping: &Arc<Mapping>, offset: u64, count: usize) -> Self {
        assert!(mapping.writable, "mapped for reading only");
        Self(Array::new(mapping, offset, count))
    }
}

impl OwnArray<AtomicU64> {
    /// Makes `count` words of memory of their own, all zero, and the file by which others can map it for reading. The
    /// name is as in [`Mapping::create`].
    ///
    /// # Errors
    /// As of [`Mapping::create`].
    pub fn create(name: &str, count: usize) -> Result<(Self, OwnedFd), MapError> {
        let (mapping, file) = Mapping::create(name, count as u64 * 8, 4096, Writers::Maker)?;
        // SAFETY: only this process can write it.
        Ok((unsafe { Self::new(&mapping, 0, count) }, file))
    }
}

// SAFETY: who has made the array has promised that nothing else reaches its slots.
unsafe impl Sole for OwnArray<Slot> {}

impl<T: Shared> std::ops::Deref for OwnArray<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        self.0.slice()
    }
}

impl Slots for Array<Slot> {
    #[inline]
    fn count(&self) -> usize {
        self.count
    }
    #[inline]
    fn slot(&self, index: usize) -> PeerSlot<'_> {
        PeerSlot::new(&self.slice()[index])
    }
}

impl Words for Array<AtomicU64> {
    #[inline]
    fn count(&self) -> usize {
        self.count
    }
    #[inline]
    fn load(&self, index: usize) -> u64 {
        self.slice()[index].load(Ordering::Relaxed)
    }
}
