//! An allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

/// Bytes that this process holds on the heap.
static HELD: AtomicI64 = AtomicI64::new(0);

thread_local! {
    /// Allocations of this thread.
    static MADE: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: everything is passed on to the system's allocator; beside that there are only counters.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MADE.set(MADE.get() + 1);
        HELD.fetch_add(bytes(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(bytes(layout.size()), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// A size as a signed number; none is longer than half the address space.
const fn bytes(size: usize) -> i64 {
    size.cast_signed() as i64
}

/// How many allocations this thread makes meanwhile.
pub(crate) fn count(work: impl FnOnce()) -> u64 {
    let before = MADE.get();
    work();
    MADE.get() - before
}

/// Bytes that this process holds on the heap.
pub(crate) fn held() -> i64 {
    HELD.load(Ordering::Relaxed)
}
