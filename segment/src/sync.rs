//! Atomics and cache hints, from one place, so that loom can stand in for the former.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
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

/// Says to the compiler that memory which another process may write has been copied out and may be another now: what
/// was copied is not fetched from there a second time, after it has been checked. No instruction.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn copied() {
    // SAFETY: nothing is done.
    unsafe { core::arch::asm!("", options(nostack, preserves_flags)) }
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

/// Calls `each` with every 64th address of `bytes` bytes from `address` on: one in every line, if they begin with one.
#[cfg(not(loom))]
#[inline]
pub(crate) fn for_lines(address: *const u8, bytes: usize, each: impl Fn(*const u8)) {
    let mut line = 0;
    while line < bytes {
        each(address.wrapping_add(line));
        line += 64;
    }
}

/// That this processor can send a cache line to memory from wherever it is cached.
#[derive(Debug, Clone, Copy)]
pub struct Eviction(());

impl Eviction {
    /// Asks the processor. On a virtual machine that takes microseconds.
    #[must_use]
    pub fn of_this_processor() -> Option<Self> {
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        {
            use core::arch::x86_64::{__cpuid, __cpuid_count};
            // Structured extended features, EBX bit 23: CLFLUSHOPT.
            let can = __cpuid(0).eax >= 7 && (__cpuid_count(7, 0).ebx >> 23) & 1 == 1;
            can.then_some(Self(()))
        }
        #[cfg(any(loom, not(target_arch = "x86_64")))]
        None
    }

    /// Sends the line at this address to memory, without waiting for it.
    ///
    /// # Safety
    /// The address can be read.
    #[inline]
    pub(crate) unsafe fn evict(self, address: *const u8) {
        #[cfg(all(target_arch = "x86_64", not(loom)))]
        // SAFETY: that there is a `self` shows that the processor has the instruction; it asks for an address that can
        // be read, and changes no value.
        unsafe {
            core::arch::asm!("clflushopt [{}]", in(reg) address, options(nostack, preserves_flags));
        }
        #[cfg(any(loom, not(target_arch = "x86_64")))]
        let _ = address;
    }

    /// Sends both lines of a slot to memory.
    #[inline]
    pub fn evict_slot(self, slot: &Slot) {
        let first = core::ptr::from_ref(slot).cast::<u8>();
        // SAFETY: a slot is two lines, which a reference to it lets be read.
        unsafe {
            self.evict(first);
            self.evict(first.wrapping_add(64));
        }
    }
}
