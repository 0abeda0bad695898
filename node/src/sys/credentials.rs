//! Who is at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_void, socklen_t, ucred};
use rustix::io::Errno;

/// Process number and user of whoever has connected a socket, or listens at it. The number is as this process counts:
/// 0 for one that it cannot see, because that is of another name space. `rustix` has process numbers that are never 0,
/// and makes one of whatever the kernel says.
pub(crate) fn of_peer(socket: &impl AsFd) -> Result<(u32, u32), Errno> {
    let mut credentials = ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = socklen_t::try_from(size_of::<ucred>()).map_err(|_| Errno::INVAL)?;
    let (socket, room) = (socket.as_fd().as_raw_fd(), (&raw mut credentials).cast::<c_void>());
    // SAFETY: the room for the value is alive during the call, and its length is right; so is that of the length.
    let done = unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, room, &raw mut length) };
    if done != 0 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    }
    Ok((u32::try_from(credentials.pid).unwrap_or(0), credentials.uid))
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::process::geteuid;

    use super::*;

    #[test]
    fn whoever_has_made_a_socket_is_named() {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("two sockets");
        for end in [&one, &other] {
            assert_eq!(of_peer(end), Ok((std::process::id(), geteuid().as_raw())));
        }
        let (pipe, _end) = rustix::pipe::pipe().expect("a pipe");
        assert_eq!(of_peer(&pipe), Err(Errno::NOTSOCK));
    }
}
