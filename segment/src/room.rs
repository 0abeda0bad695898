//! How many of this process's addresses the memory of others may take.
//!
//! A file of memory that nobody has touched costs its maker nothing, however long it is, and whoever maps it as many
//! addresses. There are 128 TiB of them; a process that has none left can allocate nothing.

use crate::sync::{AtomicU64, Ordering};

/// Bytes for the memory of all peers of this process: 4096 of them with default settings take a thirtieth of it.
const ROOM: u64 = 16 << 40;
/// One piece takes at most such a part of what is left, so that those who want much leave something to those who want
/// little.
const PART: u64 = 8;

/// Bytes that are left.
static LEFT: AtomicU64 = AtomicU64::new(ROOM);

/// Addresses for one piece of memory, given back when dropped.
#[derive(Debug)]
pub(crate) struct Room {
    bytes: u64,
    left: &'static AtomicU64,
}

impl Room {
    /// Room for so many bytes, if there is enough.
    pub(crate) fn take(bytes: u64) -> Option<Self> {
        Self::take_of(&LEFT, bytes)
    }

    fn take_of(left: &'static AtomicU64, bytes: u64) -> Option<Self> {
        let rest = |left: u64| left.checked_sub(bytes).filter(|_| bytes <= left / PART);
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).ok()?;
        Some(Self { bytes, left })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_much_leaves_something_to_who_wants_little() {
        static LEFT: AtomicU64 = AtomicU64::new(ROOM);
        let (much, little) = (65 << 30, 130 << 20);
        let liars: Vec<_> = std::iter::from_fn(|| Room::take_of(&LEFT, much)).collect();
        assert!((100..250).contains(&liars.len()), "{}", liars.len());
        // Two pieces for each of as many channels as an endpoint has by default would be 8192.
        let honest: Vec<_> = (0..3500).map_while(|_| Room::take_of(&LEFT, little)).collect();
        assert_eq!(honest.len(), 3500);
        drop((liars, honest));
        assert_eq!(LEFT.load(Ordering::Relaxed), ROOM);
        assert!(Room::take_of(&LEFT, u64::MAX).is_none());
    }
}
