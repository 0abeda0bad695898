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
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::{Command, Stdio};

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

    /// This test once more, in a name space of processes that does not know the first one's.
    #[test]
    fn a_process_that_has_no_number_here_is_known_by_its_user() {
        const AT: &str = "CUTTHROUGH_PEER_AT";
        if let Some(path) = std::env::var_os(AT) {
            let (process, user) = of_peer(&UnixStream::connect(path).unwrap()).unwrap();
            // Its user may have no number either, if it has to have a name space of users for that of processes.
            println!("\nPEER {process} {user}");
            return;
        }
        let path = std::env::temp_dir().join(format!("cutthrough-peer-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let mut command = Command::new("unshare");
        command.args(["-U", "-r", "-p", "--fork"]).arg(std::env::current_exe().unwrap()).env(AT, &path);
        command.args(["--exact", "sys::credentials::tests::a_process_that_has_no_number_here_is_known_by_its_user"]);
        let child = command.arg("--nocapture").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let output = child.and_then(std::process::Child::wait_with_output);
        std::fs::remove_file(&path).unwrap();
        let said = output.map_or_else(
            |error| error.to_string(),
            |output| [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat(),
        );
        let Some(peer) = said.lines().find_map(|line| line.strip_prefix("PEER ")) else {
            assert!(!said.contains("panicked"), "{said}");
            return crate::skipped(format_args!("no name space of processes: {}", said.lines().next().unwrap_or("")));
        };
        assert!(peer.starts_with("0 "), "{peer}");
        drop(listener);
    }
}
