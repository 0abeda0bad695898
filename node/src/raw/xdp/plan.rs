//! How the memory of a ring is divided: places that take frames in, places to send from, pages of the user.

use cutthrough_engine::net::batch;

use crate::sys::xdp::program::LINK_BYTES;
use crate::sys::xdp::socket::HEADROOM;

/// Entries of each ring, and buffers that wait for frames: enough for what a peer sends in a millisecond or two.
pub(super) const ENTRIES: u32 = 1024;
/// Places to send from at least, so that a batch of as many frames as there may be has room, and the next one beside
/// it: frames that are short take one entry each, however long they might be.
const SEND_SLOTS: usize = 2 * batch::FRAMES;
/// The two sizes of buffers that every kernel takes.
const SMALL: u32 = 2048;
const LARGE: u32 = 4096;
/// Where the user's pages may begin: pages of up to so many bytes can lie there.
pub(crate) const PAGES_ALIGN: u64 = 64 << 10;

/// Where the user's pages begin in the memory of a ring at an interface with this MTU, and how much memory it is with
/// `pages` bytes of them.
pub(crate) fn pages_at(mtu: u32, pages: u64) -> (u64, u64) {
    let plan = Plan::of(mtu + LINK_BYTES, pages);
    (plan.pages, plan.end)
}

/// How the memory of a ring is divided, in bytes from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// Bytes of the kernel's buffers.
    pub(super) buffer: u32,
    /// Whether a frame may need more than one.
    pub(super) scattered: bool,
    /// From one place that is offered to the next.
    pub(super) stride: u64,
    /// Where the places to send from begin, and how far apart they are.
    pub(super) send_base: u64,
    pub(super) send_stride: u64,
    /// How many places there are to send from.
    pub(super) send_slots: u32,
    /// Where memory begins that is the user's, where that ends, and where all of it does.
    pub(super) pages: u64,
    pub(super) pages_end: u64,
    pub(super) end: u64,
}

impl Plan {
    /// For an interface with frames of at most `frame_max` bytes, and `pages` bytes for the user.
    pub(super) fn of(frame_max: u32, pages: u64) -> Self {
        let room = |buffer: u32| buffer - u32::try_from(HEADROOM).unwrap_or(0);
        let buffer = if frame_max <= room(SMALL) { SMALL } else { LARGE };
        let scattered = frame_max > room(buffer);
        let parts = frame_max.div_ceil(buffer);
        // Scattered buffers overlap by their headroom, which the kernel does not write: what it writes is one run.
        let stride = u64::from(if scattered { room(buffer) } else { buffer });
        let send_base = (u64::from(ENTRIES) * stride + HEADROOM).next_multiple_of(u64::from(LARGE));
        let send_stride = u64::from(parts * buffer);
        let send_slots = (ENTRIES / parts).max(u32::try_from(SEND_SLOTS).unwrap_or(ENTRIES));
        let pages_base = (send_base + u64::from(send_slots) * send_stride).next_multiple_of(PAGES_ALIGN);
        let pages_end = pages_base + pages.next_multiple_of(u64::from(LARGE));
        // The kernel wants a whole buffer to lie inside from the beginning of the last place on.
        let end = pages_end + u64::from(LARGE);
        Self { buffer, scattered, stride, send_base, send_stride, send_slots, pages: pages_base, pages_end, end }
    }

    /// How many of the longest frames the entries of a ring are enough for, at once.
    pub(super) fn longest_at_once(&self) -> u32 {
        let parts = self.send_stride / u64::from(self.buffer);
        u32::try_from(u64::from(ENTRIES) / parts).unwrap_or(ENTRIES)
    }

    /// Which place a part lies in.
    pub(super) fn slot_of(&self, at: u64) -> Option<u32> {
        let slot = at.checked_sub(HEADROOM)? / self.stride;
        u32::try_from(slot).ok().filter(|slot| *slot < ENTRIES)
    }

    pub(super) fn place_of(&self, slot: u32) -> u64 {
        u64::from(slot) * self.stride
    }

    /// Which place to send from this is, if it is one.
    pub(super) fn send_slot_of(&self, at: u64) -> Option<u32> {
        let slot = at.checked_sub(self.send_base)? / self.send_stride;
        u32::try_from(slot).ok().filter(|slot| *slot < self.send_slots)
    }
}
