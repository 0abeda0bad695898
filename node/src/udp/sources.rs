//! From which address of this machine frames go, where its socket is bound to all of them.
//!
//! A caller hears only who answers from the address that it has called, and the kernel would choose the one that
//! leads to the caller. So what answers a hello goes from where the hello has come to, and so does all that its channel
//! sends.

use std::io::IoSlice;
use std::net::IpAddr;

use cutthrough_wire::frame::{Greeting, HEADER_BYTES, Kind};

use rustix::io::Errno;

use super::door::Core;

/// The address by which each channel was opened, by its number; none for those that this side has called.
#[derive(Debug, Default)]
pub(super) struct Sources(Vec<Option<IpAddr>>);

impl Sources {
    pub(super) fn get(&self, channel: usize) -> Option<IpAddr> {
        self.0.get(channel).copied().flatten()
    }

    pub(super) fn set(&mut self, channel: usize, address: Option<IpAddr>) {
        if self.0.len() <= channel {
            self.0.resize(channel + 1, None);
        }
        self.0[channel] = address;
    }

    /// A frame of a handshake goes from there: if it lets somebody in, all frames of that channel will.
    fn note(&mut self, frame: &[u8], address: IpAddr) {
        let Some((head, body)) = frame.split_at_checked(HEADER_BYTES) else { return };
        if head[1] == Kind::Welcome as u8
            && let Ok((greeting, _)) = Greeting::from_bytes(body)
        {
            self.set(greeting.tag as usize, Some(address));
        }
    }
}

impl Core {
    /// Sends the frames of handshakes that wait, from whatever address the kernel chooses; and what is said of channels
    /// that have ended, from where those were opened.
    pub(super) fn greet(&mut self) {
        while let Some((to, frame, ended)) = self.net.greeting_of() {
            let from = self.sources.as_ref().zip(ended).and_then(|(sources, channel)| sources.get(channel));
            let sent = self.socket.send_from(from, Some(to), &[IoSlice::new(&frame)], None);
            // Others may pass: there is no room now, or the next one is shorter.
            if let Err(
                why @ (Errno::NETUNREACH
                | Errno::HOSTUNREACH
                | Errno::NETDOWN
                | Errno::ADDRNOTAVAIL
                | Errno::INVAL
                | Errno::ACCESS),
            ) = sent
            {
                self.unreachable = Some((to, why));
            }
        }
    }

    /// Sends the answers to what has come to this address, if it is known, from there.
    pub(super) fn greet_from(&mut self, local: Option<IpAddr>) {
        let (Some(sources), Some(local)) = (&mut self.sources, local) else { return };
        while let Some((to, frame)) = self.net.greeting() {
            sources.note(&frame, local);
            let _ = self.socket.send_from(Some(local), Some(to), &[IoSlice::new(&frame)], None);
        }
    }
}
