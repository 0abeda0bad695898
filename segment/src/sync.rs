//! Atomics and cache hints, from one place, so that loom can stand in for the former.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::Mutex;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::Mutex;

use cutthrough_wire::slot::SLOT_WORDS;

/// The memory of one slot.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Slot(pub [AtomicU64; SLOT_WORDS]);

impl Slot {
    /// A slot of zeroes.
    #[must_use]
    pub fn zeroed() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// Asks for the cache line at `address` in a state that can be written, without waiting for it.
///
/// A store to a line that the other core has read costs a whole transfer, and stores retire in order: asked for four
/// slots ahead, the transfers overlap, which takes a stream of 64-byte messages from 14 to over 60 million a second.
#[inline]
pub fn prefetch_write(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: a prefetch is a hint that faults on no address and changes no value; processors without it do nothing.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(loom)))]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// Asks for the cache line at `address` to be read soon, without waiting for it.
#[inline]
pub fn prefetch_read(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    // SAFETY: as in `prefetch_write`.
    unsafe {
        core::arch::asm!("prefetcht0 [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(loom)))]
    // SAFETY: as in `prefetch_write`.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
