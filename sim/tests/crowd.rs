//! What an endpoint keeps for a thousand peers that are quiet.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use cutthrough_sim::fault::crowd::Crowd;

/// Peers.
const PEERS: usize = 1000;

thread_local! {
    /// Bytes that this thread has taken from the heap, less those that it has given back.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: everything is passed on to the system's allocator; beside that there is only a counter.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.set(HELD.get() + layout.size().cast_signed() as i64);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.set(HELD.get() - layout.size().cast_signed() as i64);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[test]
fn a_thousand_idle_channels_have_little_memory() {
    let mut crowd = Crowd::new(PEERS);
    crowd.calm_down();
    assert_eq!(crowd.channels(), PEERS, "nobody was taken for dead");
    let endpoint = crowd.endpoint();
    let held = HELD.get();
    drop(endpoint);
    let each = (held - HELD.get()) / i64::try_from(PEERS).expect("a few");
    eprintln!("an idle channel: {each} bytes");
    assert!((1000..=4096).contains(&each), "{each} bytes for each of {PEERS} idle channels");
}
