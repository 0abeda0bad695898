//! What the kernel has dropped before anybody could receive it.

use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, c_void, socklen_t};

use super::{Datagrams, length_of};

/// The numbers that the kernel tells of a socket's memory, and which of them says what was dropped
/// (`linux/sock_diag.h`).
const NUMBERS: usize = 9;
const DROPS: usize = 8;

impl Datagrams {
    /// How many datagrams, or trains that the kernel had joined, were dropped since the socket was made, because it had
    /// no room or their check sum was wrong; past 2^32 it begins again. Nothing if the kernel does not say (before
    /// Linux 4.12), and while a filter is attached, because it counts what that leaves out as well.
    #[must_use]
    pub fn dropped(&self) -> Option<u32> {
        #[cfg(feature = "simulated")]
        if let Some(port) = &self.port {
            return Some(port.dropped());
        }
        if self.is_filtered() {
            return None;
        }
        let mut numbers = [0_u32; NUMBERS];
        let told = self.option(libc::SO_MEMINFO, &mut numbers)?;
        (told as usize >= size_of_val(&numbers)).then_some(numbers[DROPS])
    }

    /// Whether a filter is attached, or it is not known.
    fn is_filtered(&self) -> bool {
        // Without room the kernel says how many instructions there are.
        self.option(libc::SO_GET_FILTER, &mut []) != Some(0)
    }

    /// Reads an option of the socket into `room`: how much the kernel says that there is of it.
    fn option<const N: usize>(&self, option: c_int, room: &mut [u32; N]) -> Option<socklen_t> {
        let mut length = length_of::<[u32; N]>();
        let (socket, into) = (self.as_fd().as_raw_fd(), room.as_mut_ptr().cast::<c_void>());
        // SAFETY: the room is borrowed for writing during the call and is so long, and any bytes are numbers; so is
        // the length.
        let done = unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, option, into, &raw mut length) };
        (done == 0).then_some(length)
    }
}
