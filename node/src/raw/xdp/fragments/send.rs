//! Datagrams that leave in fragments of IP, out of the ring's memory.

use std::io;

use super::super::super::Hop;
use super::super::super::envelope::{BODY_MAX, UDP_BYTES, fragment, udp};
use super::super::XdpRing;
use super::slice;

/// A datagram that is sent in fragments: where its payload lies, and what is the same in all of them.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing {
    at: u64,
    bytes: usize,
    slice: usize,
    ident: u16,
    head: [u8; UDP_BYTES],
}

impl Outgoing {
    /// How many fragments it has.
    #[must_use]
    pub const fn parts(&self) -> usize {
        (self.bytes + UDP_BYTES).div_ceil(self.slice)
    }
}

impl XdpRing {
    /// Prepares a datagram of `bytes` bytes that lie at `at` of the memory, among the user's pages. They must not be
    /// changed from now on until [`XdpRing::in_place`] says that the kernel has none of them. `vouched` says that it
    /// shall have a checksum, for which all of them are read; otherwise it has none (0).
    ///
    /// Datagrams are numbered by 16 bits for all that this ring sends; the kernel numbers its own, so that a kernel
    /// which sends fragments to the same address at the same time could confuse the receiver (RFC 791).
    ///
    /// # Errors
    /// Invalid input if they do not lie there, or there is no such datagram.
    pub(crate) fn datagram(&mut self, hop: &Hop, at: u64, bytes: usize, vouched: bool) -> io::Result<Outgoing> {
        let inside = at.checked_add(bytes as u64).is_some_and(|end| end <= self.plan.pages_end);
        if at < self.plan.pages || !inside || bytes == 0 || bytes > BODY_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.fragmented = self.fragmented.wrapping_add(1);
        let ident = self.fragmented;
        let slice = slice(self.interface.mtu) as usize;
        let head = udp(hop, self.memory.frame(at, bytes), vouched).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Outgoing { at, bytes, slice, ident, head })
    }

    /// Sends one fragment of a datagram. `false` if there is no room now.
    ///
    /// # Errors
    /// As [`XdpRing::send_in_place`]; invalid input if there is no such fragment.
    pub(crate) fn send_fragment(&mut self, hop: &Hop, of: &Outgoing, part: usize) -> io::Result<bool> {
        self.check(hop, (0, 1))?;
        self.reclaim()?;
        let put = self.put_fragment(hop, of, part)?;
        if put {
            self.xsk.kick()?;
        }
        Ok(put)
    }

    /// Sends all fragments of a datagram, the last one first if told so. `false`, and none of them, if there is no room
    /// now.
    ///
    /// # Errors
    /// As [`XdpRing::send_fragment`].
    pub(crate) fn send_fragments(&mut self, hop: &Hop, of: &Outgoing, backwards: bool) -> io::Result<bool> {
        self.check(hop, (0, 1))?;
        self.reclaim()?;
        let parts = of.parts();
        if self.free.len() < parts || (self.xsk.room()? as usize) < parts * self.parts_in_place(of.slice) {
            // What the kernel has left in the ring goes first.
            self.xsk.kick()?;
            return Ok(false);
        }
        for turn in 0..parts {
            let part = if backwards { parts - 1 - turn } else { turn };
            self.put_fragment(hop, of, part)?;
        }
        self.xsk.kick()?;
        Ok(true)
    }

    fn put_fragment(&mut self, hop: &Hop, of: &Outgoing, part: usize) -> io::Result<bool> {
        let (offset, total) = (part * of.slice, of.bytes + UDP_BYTES);
        let bytes = of.slice.min(total.saturating_sub(offset));
        let header = fragment(hop, of.ident, (offset, bytes, offset + bytes < total)).filter(|_| bytes > 0);
        let header = header.ok_or(io::ErrorKind::InvalidInput)?;
        if part == 0 {
            return self.gather([&header, &of.head], of.at, bytes - UDP_BYTES);
        }
        self.gather([&header, &[]], of.at + (offset - UDP_BYTES) as u64, bytes)
    }
}
