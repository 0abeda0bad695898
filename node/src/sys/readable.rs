//! A file descriptor that tokio watches.

use std::os::fd::{BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits in a tokio runtime until a file descriptor is readable.
#[derive(Debug)]
pub struct Readable {
    file: AsyncFd<OwnedFd>,
}

impl Readable {
    /// Watches a duplicate of `file`.
    ///
    /// # Errors
    /// An I/O error of the system or of the runtime.
    ///
    /// # Panics
    /// Outside a runtime with I/O enabled.
    pub fn watch(file: BorrowedFd<'_>) -> std::io::Result<Self> {
        let own = file.try_clone_to_owned()?;
        // SAFETY: asked is that the object's file descriptor stays open and the same as long as it is registered. An
        // `OwnedFd` names one descriptor for its whole life, and nobody can take it out of here before it is
        // deregistered by the drop of the `AsyncFd`.
        let file = unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) }?;
        Ok(Self { file })
    }

    /// Waits until it is readable.
    ///
    /// # Errors
    /// An I/O error of the runtime.
    pub async fn readable(&mut self) -> std::io::Result<()> {
        self.file.readable_mut().await?.clear_ready();
        Ok(())
    }
}
