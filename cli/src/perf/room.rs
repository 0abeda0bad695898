//! Memory for measurements: what there is of it, and what a client may have.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ask::MEMORY_MAX;
use crate::failure::Failure;
use crate::units::Size;

/// There is not so much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no memory for {0}; use smaller sizes, or raise 'ulimit -v'")]
pub struct NoRoom(pub Size);

impl From<NoRoom> for Failure {
    fn from(error: NoRoom) -> Self {
        Self::from_error(&error, "use smaller sizes")
    }
}

/// Whether there is room for so many bytes: asked where what takes them would panic.
///
/// # Errors
/// [`NoRoom`].
pub fn possible(bytes: usize) -> Result<(), NoRoom> {
    let mut memory = Vec::<u8>::new();
    memory.try_reserve_exact(bytes).map_err(|_| NoRoom(Size(bytes as u64)))?;
    // Without this the compiler may leave out to ask.
    black_box(memory.as_ptr());
    Ok(())
}

/// So many bytes, each of them `fill`: all of their memory is there.
///
/// # Errors
/// [`NoRoom`], where a vector would end the process.
pub fn filled(bytes: usize, fill: u8) -> Result<Vec<u8>, NoRoom> {
    let mut memory = Vec::new();
    refill(&mut memory, bytes, fill).map(|()| memory)
}

/// Lengthens memory to so many bytes, if it is shorter.
///
/// # Errors
/// [`NoRoom`]; then it is what it was.
pub fn refill(memory: &mut Vec<u8>, bytes: usize, fill: u8) -> Result<(), NoRoom> {
    let more = bytes.saturating_sub(memory.len());
    memory.try_reserve_exact(more).map_err(|_| NoRoom(Size(bytes as u64)))?;
    if more > 0 {
        memory.resize(bytes, fill);
    }
    Ok(())
}

/// What one client may have the other end keep: [`MEMORY_MAX`] bytes for all of its jobs, stocks and regions together.
#[derive(Clone, Debug)]
pub struct Budget {
    taken: Arc<AtomicU64>,
    most: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::of(MEMORY_MAX)
    }
}

impl Budget {
    /// One of so many bytes.
    #[must_use]
    pub fn of(most: u64) -> Self {
        Self { taken: Arc::default(), most }
    }

    /// A share of nothing, which may grow.
    #[must_use]
    pub fn nothing(&self) -> Share {
        Share { budget: self.clone(), bytes: 0 }
    }

    /// A share of so many bytes, as long as it is kept; none if that is more than is left.
    #[must_use]
    pub fn share(&self, bytes: u64) -> Option<Share> {
        let more = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= self.most);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Share { budget: self.clone(), bytes })
    }
}

/// A part of a [`Budget`]; goes back when it is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    bytes: u64,
}

impl Share {
    /// Makes it one of so many bytes, if it is less. Whether there is so much.
    #[must_use]
    pub fn grow(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let Some(mut further) = self.budget.share(more) else { return false };
        self.bytes += std::mem::take(&mut further.bytes);
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shares_together_are_no_more_than_the_budget() {
        let budget = Budget::default();
        let mut half = budget.share(MEMORY_MAX / 2).expect("half of it");
        assert!(budget.share(MEMORY_MAX / 2 + 1).is_none());
        assert!(budget.share(u64::MAX).is_none());
        assert!(half.grow(MEMORY_MAX) && half.grow(1) && !half.grow(MEMORY_MAX + 1));
        assert!(budget.share(1).is_none());
        drop(half);
        assert!(budget.share(MEMORY_MAX).is_some());
    }

    #[test]
    fn memory_that_is_not_there_is_said() {
        // More than addresses reach.
        let said = filled(1 << 62, 0).expect_err("4 EiB").to_string();
        assert_eq!(said, "there is no memory for 4294967296 GiB; use smaller sizes, or raise 'ulimit -v'");
        let mut memory = filled(3, 7).expect("3 bytes");
        refill(&mut memory, 5, 8).expect("5 bytes");
        refill(&mut memory, 1, 9).expect("no fewer");
        assert_eq!(memory, [7, 7, 7, 8, 8]);
    }
}
