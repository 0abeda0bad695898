//! Memory that a caller lends for the time of one call.

use std::ptr::NonNull;
use std::sync::Arc;

use cutthrough_segment::sync::{Ordering, fence};

/// A slice without its lifetime; see [`lend`].
#[derive(Debug)]
pub(crate) struct Lent {
    bytes: NonNull<[u8]>,
    /// One for each value that can still read the bytes.
    _alive: Arc<()>,
}

// SAFETY: the slice is only read, and nobody writes it while it is borrowed, which is for as long as this value lives.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Lent {
    /// The bytes.
    pub(crate) const fn bytes(&self) -> &[u8] {
        // SAFETY: `lend` borrows them for longer than this value lives, or ends the process.
        unsafe { self.bytes.as_ref() }
    }
}

/// Ends the process if a loan outlives the call that it was made for: nothing less would be sound.
struct Return(Arc<()>);

impl Drop for Return {
    fn drop(&mut self) {
        if Arc::strong_count(&self.0) > 1 {
            std::process::abort();
        }
        // SYNC POINT loan: whoever dropped the last of them, on whichever thread, has read its bytes before, and from
        // now on they may be written. To drop a handle is the release.
        fence(Ordering::Acquire);
    }
}

/// Lends `bytes` to `user`, which must have dropped what it gets when it returns, or panics: else the process ends.
pub(crate) fn lend<R>(bytes: &[u8], user: impl FnOnce(Lent) -> R) -> R {
    let back = Return(Arc::new(()));
    user(Lent { bytes: NonNull::from_ref(bytes), _alive: Arc::clone(&back.0) })
}
