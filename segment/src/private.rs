//! Memory of this process alone, in huge pages.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap_fixed, munmap};

use crate::map::{HUGE, MapError, SMALL};

/// Zeroed bytes that no other process maps, at the beginning of a page; huge pages (2 MiB) from that length on, where
/// the kernel gives them. They cost memory once they are touched; then the kernel is waited for once in 2 MiB and not
/// 512 times (2 us each on a virtual machine: as long as it takes to copy 64 KiB), and bytes that are used in no
/// order keep their addresses in the processor's tables. Given back when dropped.
pub struct PrivateMemory {
    /// Dangling if there are no bytes.
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory of which this is the only owner.
unsafe impl Send for PrivateMemory {}
// SAFETY: as a slice; it is written through `&mut` alone.
unsafe impl Sync for PrivateMemory {}

impl PrivateMemory {
    /// `bytes` zeros.
    ///
    /// # Errors
    /// [`MapError::Map`].
    pub fn zeroed(bytes: usize) -> Result<Self, MapError> {
        if bytes == 0 {
            return Ok(Self::default());
        }
        let failed = |errno| MapError::Map { bytes: bytes as u64, errno };
        let length = Self::length(bytes).ok_or(failed(Errno::NOMEM))?;
        let align = if length >= HUGE { HUGE } else { SMALL };
        let base = aligned(length, align, ProtFlags::READ | ProtFlags::WRITE).map_err(failed)?;
        let memory = Self { base, bytes };
        memory.advise(length);
        Ok(memory)
    }

    /// Makes it `bytes` long, of which those behind the present ones are zeros. Nothing is copied, nor touched: what
    /// costs no memory yet costs none afterwards.
    ///
    /// # Errors
    /// [`MapError::Map`]; then it is as it was.
    pub fn grow(&mut self, bytes: usize) -> Result<(), MapError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let failed = |errno| MapError::Map { bytes: bytes as u64, errno };
        let (Some(before), Some(length)) = (Self::length(self.bytes), Self::length(bytes)) else {
            return Err(failed(Errno::NOMEM));
        };
        if before == 0 {
            *self = Self::zeroed(bytes)?;
            return Ok(());
        }
        if length > before {
            let align = if length >= HUGE { HUGE } else { SMALL };
            let there = aligned(length, align, ProtFlags::empty()).map_err(failed)?.as_ptr().cast();
            let here = self.base.as_ptr().cast();
            // SAFETY: the pages of this memory, which nobody else borrows, move to addresses that were just mapped and
            // that nobody else knows of. If they do not, those addresses are left alone: what lies there now may be
            // another thread's.
            let moved = unsafe { mremap_fixed(here, before, length, MremapFlags::MAYMOVE, there) }.map_err(failed)?;
            self.base = NonNull::new(moved.cast()).ok_or(failed(Errno::NOMEM))?;
            self.advise(length);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Asks for huge pages where it has room for one.
    fn advise(&self, length: usize) {
        if length >= HUGE {
            // SAFETY: advice about this memory, which is mapped; whether huge pages come is up to the kernel.
            let _ = unsafe { madvise(self.base.as_ptr().cast(), length, Advice::LinuxHugepage) };
        }
    }

    /// Bytes of address space: whole pages, huge ones from one of them on.
    fn length(bytes: usize) -> Option<usize> {
        bytes.checked_next_multiple_of(if bytes >= HUGE { HUGE } else { SMALL })
    }
}

/// Maps fresh memory that begins at a multiple of `align`, itself a multiple of the page length, as `length` is.
pub(crate) fn aligned(length: usize, align: usize, protection: ProtFlags) -> Result<NonNull<u8>, Errno> {
    // More than needed, so that an aligned stretch lies within; the rest goes back.
    let all = length.checked_add(align).ok_or(Errno::NOMEM)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nobody's memory.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), all, protection, flags) }?;
    let before = start.addr().next_multiple_of(align) - start.addr();
    let base = start.wrapping_byte_add(before);
    for (unused, len) in [(start, before), (base.wrapping_byte_add(length), align - before)] {
        if len > 0 {
            // SAFETY: the unused head and tail of the mapping just made, which nobody else knows of.
            let _ = unsafe { munmap(unused, len) };
        }
    }
    NonNull::new(base.cast()).ok_or(Errno::NOMEM)
}

impl Default for PrivateMemory {
    fn default() -> Self {
        Self { base: NonNull::dangling(), bytes: 0 }
    }
}

impl fmt::Debug for PrivateMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateMemory({} bytes)", self.bytes)
    }
}

impl Deref for PrivateMemory {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped for reading and writing as long as this lives, zeros at first, borrowed as `self` is; of no
        // bytes if it dangles.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }
}

impl DerefMut for PrivateMemory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for PrivateMemory {
    fn drop(&mut self) {
        if let Some(length) = Self::length(self.bytes).filter(|length| *length > 0) {
            // SAFETY: mapped by `zeroed` or `grow` with this length, and nobody borrows it any more.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), length) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn it_is_zeros_that_begin_with_a_page_and_go_back() {
        for bytes in [0, 1, 4096, 4097, HUGE - 1, HUGE, 5 * HUGE + 1] {
            let mut memory = PrivateMemory::zeroed(bytes).expect("memory");
            assert_eq!((memory.len(), memory.iter().all(|byte| *byte == 0)), (bytes, true));
            let page = if bytes >= HUGE { HUGE } else { SMALL };
            assert!(bytes == 0 || memory.as_ptr().addr().is_multiple_of(page));
            memory.fill(7);
            assert!(memory.iter().all(|byte| *byte == 7));
        }
    }

    /// What was touched was copied, and what was not was touched.
    #[test]
    fn it_grows_by_zeros_and_touches_nothing() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/smaps_rollup").expect("the kernel's numbers");
            let anonymous = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("a number");
            anonymous.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
        };
        let mut memory = PrivateMemory::default();
        let before = resident();
        let mut marked = Vec::new();
        for bytes in [1, 4096, 4097, 60_000, HUGE - 1, HUGE, 3 * HUGE + 5, 100 * HUGE, 300 * HUGE + 1] {
            let old = memory.len();
            memory.grow(bytes).expect("memory");
            memory.grow(old).expect("it is longer by now");
            assert_eq!(memory.len(), bytes);
            let behind = &memory[old..bytes.min(old + HUGE)];
            assert!(behind.iter().all(|byte| *byte == 0), "{bytes}");
            memory[bytes - 1] = 7;
            marked.push(bytes - 1);
            assert!(marked.iter().all(|at| memory[*at] == 7), "{bytes}");
            let page = if bytes >= HUGE { HUGE } else { SMALL };
            assert!(memory.as_ptr().addr().is_multiple_of(page));
        }
        // Each mark, and each look behind it, may cost huge pages.
        assert!(resident() < before + 40 * HUGE, "{} bytes more", resident() - before);
        assert!(memory.grow(usize::MAX).is_err() && memory.grow(isize::MAX as usize).is_err());
        assert!(marked.iter().all(|at| memory[*at] == 7));
    }

    #[test]
    fn its_addresses_come_back() {
        // More than a process can have, one after the other.
        for _ in 0..200 {
            let Ok(mut memory) = PrivateMemory::zeroed(1 << 40) else {
                // `eprintln` would go where the harness keeps the output of tests that pass.
                let why = "SKIPPED its_addresses_come_back: the addresses of this process are limited";
                let _ = writeln!(std::io::stderr(), "{why}");
                return;
            };
            memory[(1 << 40) - 1] = 1;
        }
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        for bytes in [usize::MAX, usize::MAX / 2, isize::MAX as usize] {
            assert!(matches!(PrivateMemory::zeroed(bytes), Err(MapError::Map { .. })), "{bytes}");
        }
    }
}
