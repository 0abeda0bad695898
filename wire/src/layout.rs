//! Where everything lies in the memory that an endpoint shares with one peer (rules L1 to L4).
//!
//! Each side of a channel owns two pieces of memory. Its *out* memory only it can write; the peer maps it read-only.
//! Its *landing* memory both can write; nothing but pages for payloads lies there.
//!
//! ```text
//!  out:  lines of counters | slots | run ring | free ring | return ring | tokens | claims | staging ring | pool pages
//!  landing:  pages
//! ```

use crate::{run::PAGES_MAX, slot::SLOT_BYTES, token::TOKENS};

/// Bytes that no two writers or readers of different purpose share: a pair of cache lines, fetched together.
pub const LINE_BYTES: u64 = 128;

/// The counters at the start of the out memory, one per [`LINE_BYTES`], each a 64-bit word at the line's start. All are
/// written by the memory's owner alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Line {
    /// How many of the peer's messages the owner has taken.
    Consumed = 1,
    /// How many bytes the owner has put into its staging ring.
    Staged = 2,
    /// How many bytes of the peer's staging ring the owner has drained; the next word holds the owner's minpulse.
    Drained = 3,
    /// Not zero while the owner sleeps and wants to be woken; bit 63 says that it waits for room as well.
    Armed = 4,
    /// How many runs the owner has posted into its free ring.
    Posted = 5,
    /// How many runs of the peer's free ring the owner has taken.
    Taken = 6,
    /// How many lends the owner has put into its return ring.
    Returned = 7,
    /// How many entries of the peer's return ring the owner has taken back.
    Reclaimed = 8,
    /// Not zero once the owner has left in good order.
    Left = 9,
    /// A payload that both sides copy, as its sender goes: number of the message + 1; in the next words the first byte
    /// that it has begun to copy, and the first byte from which on it has copied everything.
    ShareSent = 10,
    /// The same payload, as its receiver goes: number of the message + 1, and in the next word the end of what it has
    /// begun to copy.
    ShareTaken = 11,
    /// How many of the runs that the owner has posted it wants back, as far as they are not filled.
    Recalled = 12,
}

impl Line {
    /// Byte offset of the line in the out memory.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self as u64 * LINE_BYTES
    }
}

/// Entries of the run ring: the longest list of pages of one message.
pub const RUNS: u32 = 4096;
/// Entries of the free ring and of the return ring.
pub const RECORDS: u32 = 4096;

/// What an endpoint chooses for its side of a channel; said in the hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Slots of the ring, a power of two.
    pub slots: u32,
    /// Bytes of a page, a power of two.
    pub page_bytes: u32,
    /// Bytes of the staging ring, a power of two.
    pub staging_bytes: u32,
    /// Pages of the pool that the owner sends from by reference.
    pub pool_pages: u32,
    /// Pages of the landing memory.
    pub landing_pages: u32,
}

/// Which of the [`Sizes`] is out of its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeError {
    /// Slots: a power of two from 16 to 65,536.
    Slots,
    /// Page: a power of two from 4 KiB to 2 MiB.
    Page,
    /// Staging ring: a power of two from 64 KiB to 1 GiB.
    Staging,
    /// Pool: at most 2^20 pages, and at most 64 GiB.
    Pool,
    /// Landing memory: at most 2^20 pages, and at most 64 GiB.
    Landing,
}

/// Byte offsets in the out memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Slots of the ring.
    pub slots: u64,
    /// Ring of runs, for payloads of several runs.
    pub runs: u64,
    /// Ring of posted runs.
    pub free: u64,
    /// Ring of returned lends.
    pub returns: u64,
    /// Table of tokens: key and place, 16 bytes each.
    pub tokens: u64,
    /// The owner's claims on the peer's tokens: key, 8 bytes each.
    pub claims: u64,
    /// Staging ring.
    pub staging: u64,
    /// Pool pages.
    pub pool: u64,
    /// Bytes of the whole out memory.
    pub out_bytes: u64,
    /// Bytes of the whole landing memory.
    pub landing_bytes: u64,
}

impl Sizes {
    /// Checks every size against its bounds and lays the memory out.
    ///
    /// # Errors
    /// The first size that is out of its bounds (rule L2).
    pub const fn layout(&self) -> Result<Layout, SizeError> {
        if !between(self.slots, 16, 1 << 16) {
            return Err(SizeError::Slots);
        }
        if !between(self.page_bytes, 4 << 10, 2 << 20) {
            return Err(SizeError::Page);
        }
        if !between(self.staging_bytes, 64 << 10, 1 << 30) {
            return Err(SizeError::Staging);
        }
        let page = self.page_bytes as u64;
        if self.pool_pages > PAGES_MAX || self.pool_pages as u64 * page > 64 << 30 {
            return Err(SizeError::Pool);
        }
        if self.landing_pages > PAGES_MAX || self.landing_pages as u64 * page > 64 << 30 {
            return Err(SizeError::Landing);
        }
        let slots = 4096;
        let runs = slots + self.slots as u64 * SLOT_BYTES as u64;
        let free = runs + RUNS as u64 * 8;
        let returns = free + RECORDS as u64 * 8;
        let tokens = returns + RECORDS as u64 * 8;
        let claims = tokens + TOKENS as u64 * 16;
        let staging = align(claims + TOKENS as u64 * 8, 4096);
        let pool = align(staging + self.staging_bytes as u64, page);
        Ok(Layout {
            slots,
            runs,
            free,
            returns,
            tokens,
            claims,
            staging,
            pool,
            out_bytes: pool + self.pool_pages as u64 * page,
            landing_bytes: self.landing_pages as u64 * page,
        })
    }
}

/// Whether `value` is a power of two within the bounds.
const fn between(value: u32, low: u32, high: u32) -> bool {
    value.is_power_of_two() && value >= low && value <= high
}

/// `value` rounded up to a multiple of the power of two `to`.
const fn align(value: u64, to: u64) -> u64 {
    (value + to - 1) & !(to - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes =
        Sizes { slots: 1024, page_bytes: 4096, staging_bytes: 1 << 18, pool_pages: 16, landing_pages: 4 };

    #[test]
    fn parts_follow_each_other_without_overlap() {
        let layout = SIZES.layout().unwrap();
        let starts = [
            Line::Recalled.offset() + LINE_BYTES,
            layout.slots,
            layout.runs,
            layout.free,
            layout.returns,
            layout.tokens,
            layout.claims,
            layout.staging,
            layout.pool,
            layout.out_bytes,
        ];
        assert!(starts.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(layout.pool % 4096, 0);
        assert_eq!(layout.out_bytes - layout.pool, 16 * 4096);
    }

    #[test]
    fn every_size_has_its_bounds() {
        assert_eq!(Sizes { slots: 1000, ..SIZES }.layout(), Err(SizeError::Slots));
        assert_eq!(Sizes { slots: 8, ..SIZES }.layout(), Err(SizeError::Slots));
        assert_eq!(Sizes { page_bytes: 4 << 20, ..SIZES }.layout(), Err(SizeError::Page));
        assert_eq!(Sizes { staging_bytes: 0, ..SIZES }.layout(), Err(SizeError::Staging));
        assert_eq!(Sizes { pool_pages: u32::MAX, ..SIZES }.layout(), Err(SizeError::Pool));
        assert_eq!(Sizes { landing_pages: PAGES_MAX + 1, ..SIZES }.layout(), Err(SizeError::Landing));
    }
}
