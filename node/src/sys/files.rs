//! Files that come beside the bytes of a socket.

use std::os::fd::BorrowedFd;

use super::datagram::set;

/// Whether a socket takes them: Linux 6.16 and later.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Has a socket take none from now on: who sends one is told so. Else it would be closed by whoever receives what it
/// came with, in whose place a socket that lingers has the kernel wait, for as long as its sender likes. Earlier
/// kernels know no such option.
pub(crate) fn take_none(socket: BorrowedFd<'_>) {
    let _ = set(socket, libc::SOL_SOCKET, SO_PASSRIGHTS, 0);
}
