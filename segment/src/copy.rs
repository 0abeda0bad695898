//! How bytes are copied between private memory and memory that another core reads or writes.

use crate::sync::{copied, for_lines, prefetch_write};

/// A way of copying. All bring the same bytes to the same place; which is the quickest is for the processor to say, see
/// [`Mapping::copy_in`](crate::map::Mapping::copy_in).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Copying {
    /// Loads and stores, 256 bytes at a time. A line that the other core has read has to be brought here before
    /// the first byte of it is stored, so it is asked for in advance.
    #[default]
    Pieces,
    /// One string instruction. It says at once how much will be written, so a processor can take lines over whole,
    /// without reading what they held. On Zen 5 that takes a third to two thirds of the time where the other core has
    /// read the lines; on others it starts slowly, or crawls where the two ranges lie badly to each other. Where the
    /// processor has no such instruction it is the same as pieces.
    ///
    /// Others may see what it writes in any order, but all of it before whatever is stored after it (Intel, Software
    /// Developer's Manual, volume 3, "Memory-Ordering Model for String Operations"; the C library's copies and the
    /// kernel's rest on the same): a counter that is published afterwards says the truth.
    String,
}

/// Bytes whose lines are asked for together: few enough that they are still there when the copy comes to them.
const BLOCK: usize = 2048;

/// Bytes copied by one call.
///
/// Up to 256 bytes glibc loads all before it stores any. With more the copy depends on how the two lie within their
/// pages: where the destination lies as far into its own as the source does, or a little further, a loop from the front
/// would take its loads for such that depend on its stores, so glibc goes from the back. From a line that another core
/// has just written nothing is slower: no prefetcher sees it coming, and what the other core writes next is asked for
/// first. And from a few KiB on it takes a string instruction, which crawls from such a place on some processors (Zen
/// 3: 1.5 to 3 GB/s instead of 45). Payloads of whole pages lie at the beginnings of pages, and private memory begins
/// with a page or 16 bytes into it, behind the allocator's head: that is the rule, not the exception.
const PIECE: usize = 256;

/// Copies to where another core reads.
///
/// # Safety
/// As for `copy_nonoverlapping`, but that another process may write or read either range meanwhile.
pub(crate) unsafe fn copy_there(from: *const u8, to: *mut u8, bytes: usize, copying: Copying) {
    if copying == Copying::String {
        // SAFETY: the caller's word.
        return unsafe { copy_string(from, to, bytes) };
    }
    let mut block = 0;
    while block < bytes {
        let len = BLOCK.min(bytes - block);
        for_lines(to.wrapping_add(block), len, prefetch_write);
        // SAFETY: a part of both ranges, by the caller's word.
        unsafe { copy_pieces(from.add(block), to.add(block), len) };
        block += BLOCK;
    }
}

/// Copies from where another core has written.
///
/// # Safety
/// As for `copy_nonoverlapping`, but that another process may write or read either range meanwhile.
#[inline]
pub(crate) unsafe fn copy_here(from: *const u8, to: *mut u8, bytes: usize, copying: Copying) {
    // SAFETY: the caller's word.
    unsafe {
        match copying {
            Copying::Pieces => copy_pieces(from, to, bytes),
            Copying::String => copy_string(from, to, bytes),
        }
    }
    copied();
}

/// # Safety
/// As for [`copy_here`].
#[inline]
unsafe fn copy_pieces(from: *const u8, to: *mut u8, bytes: usize) {
    let mut done = 0;
    while done < bytes {
        // SAFETY: a part of both ranges, by the caller's word.
        unsafe { std::ptr::copy_nonoverlapping(from.add(done), to.add(done), PIECE.min(bytes - done)) };
        done += PIECE;
    }
}

/// # Safety
/// As for [`copy_here`].
#[inline]
unsafe fn copy_string(from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads `bytes` bytes from `from` on and writes as many from `to` on, which is the caller's word; the
    // direction flag is clear between functions, by the calling convention.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's word.
    unsafe {
        copy_pieces(from, to, bytes);
    }
}
