//! Tells a process from its copies: a page that a child finds empty.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// Bytes of the page, or of a part of one where pages are longer: the kernel rounds up.
const BYTES: usize = 4096;

/// Memory that is empty in every child at first (`MADV_WIPEONFORK`), however it was forked; none if the kernel gives
/// none (before Linux 4.14).
fn wiped() -> Option<&'static AtomicU32> {
    static PAGE: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();
    *PAGE.get_or_init(|| {
        // SAFETY: new memory, where the kernel likes.
        let page = unsafe { mmap_anonymous(null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        let page: NonNull<c_void> = NonNull::new(page.ok()?)?;
        // SAFETY: it is the page that was mapped, and nobody else has it.
        unsafe { madvise(page.as_ptr(), BYTES, Advice::LinuxWipeOnFork) }.ok()?;
        // SAFETY: it is aligned, all of it is 0, it stays mapped as long as the process lives, and is used in this way
        // alone.
        Some(unsafe { page.cast::<AtomicU32>().as_ref() })
    })
}

/// A number that a process has for as long as it lives, and that no child of it has which was forked after it was first
/// asked for. It costs no call of the kernel, but the first time.
#[inline]
pub(crate) fn own_number() -> u32 {
    let Some(wiped) = wiped() else { return std::process::id() };
    match wiped.load(Ordering::Relaxed) {
        0 => {
            // Other threads write the same.
            wiped.store(std::process::id(), Ordering::Relaxed);
            std::process::id()
        }
        number => number,
    }
}
