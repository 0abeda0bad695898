//! Landing memory: pages of a channel that both of its sides write.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::copy::Copying;
use crate::map::{MapError, Mapping, Writers};
use crate::page::{Ground, Place, Shelf};
use crate::sync::AtomicU64;

/// Landing memory of one side of a channel. Either side may write any of it at any time, so nobody has a slice of it:
/// bytes are copied in and out.
#[derive(Debug, Clone)]
pub struct LandingMemory(Arc<Mapping>);

impl LandingMemory {
    /// Makes `bytes` of it, aligned to `align`, and the file to pass to the peer.
    ///
    /// # Errors
    /// As of [`Mapping::create`].
    pub fn create(name: &str, bytes: u64, align: u64) -> Result<(Self, OwnedFd), MapError> {
        let (mapping, file) = Mapping::create(name, bytes, align, Writers::Both)?;
        Ok((Self(mapping), file))
    }

    /// Maps what a peer has made.
    ///
    /// # Errors
    /// As of [`Mapping::open`].
    pub fn open(file: BorrowedFd<'_>, bytes: u64, align: u64) -> Result<Self, MapError> {
        Ok(Self(Mapping::open(file, bytes, align, true)?))
    }

    /// All of it as pages of `page_bytes` bytes for payloads to land in; what is dropped goes to `shelf`.
    #[must_use]
    pub fn ground(&self, page_bytes: u32, shelf: Arc<Shelf>) -> Arc<Ground> {
        Ground::new((Arc::clone(&self.0), 0), page_bytes, shelf)
    }

    /// The word at `offset`.
    ///
    /// # Panics
    /// If it is not aligned or not within the memory.
    #[must_use]
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        self.0.word(offset)
    }

    /// Copies `bytes` to `offset`; see [`Mapping::copy_in`].
    ///
    /// # Panics
    /// If they would not lie within the memory.
    #[inline]
    pub fn copy_in(&self, offset: u64, bytes: &[u8], copying: Copying) {
        self.0.copy_in(offset, bytes, copying);
    }

    /// Asks for the lines of `bytes` bytes at `offset` to be owned by this core soon: they will be written.
    ///
    /// # Panics
    /// If they do not lie within the memory.
    #[inline]
    pub fn prefetch_write(&self, offset: u64, bytes: usize) {
        self.0.prefetch_write(offset, bytes);
    }

    /// Copies bytes out from `offset` on.
    ///
    /// # Panics
    /// If they do not lie within the memory.
    #[inline]
    pub fn copy_out(&self, offset: u64, bytes: &mut [u8], copying: Copying) {
        self.0.copy_out(offset, bytes, copying);
    }

    /// Copies `bytes` bytes to `offset`: those from `start` on behind the beginning of `from`.
    ///
    /// # Panics
    /// If they do not lie within their memory, or would not within this one.
    pub fn copy_from(&self, offset: u64, from: &Place, start: u64, bytes: usize) {
        self.copy_across(offset, &from.mapping, from.offset + start, bytes);
    }

    /// The same from any mapping.
    pub(crate) fn copy_across(&self, offset: u64, from: &Mapping, from_offset: u64, bytes: usize) {
        Mapping::copy_across(from, from_offset, &self.0, offset, bytes);
    }
}
