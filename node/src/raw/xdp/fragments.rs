//! Pages as the payload of one datagram each, in the fragments of IP that every kernel makes of it: the frames of
//! Speculative Defragmentation (HPDC 2000).
//!
//! Out: `XdpRing::send_fragments` gathers headers and slices of a page that lies in the ring's memory; nothing is
//! copied in this process, and any kernel's socket takes the datagram. In: a [`Fragments`] has the fragments of
//! announced datagrams land in pages, each of them where it belongs, whoever has made them. Of a page of 4096 bytes and
//! frames of 1500 there are three, of 1472, 1480 and 1144 bytes of it. The UDP header lands in the 8 bytes before it.
//!
//! What is not announced, comes in another order, twice, or from elsewhere, goes to the kernel and its sockets (see
//! [`crate::sys::xdp::fragments`]). A datagram of which the ring has some fragments and the kernel the others is lost,
//! as datagrams are; who waits for it gives it up, and its places cost the next pages copies until the shift has ended.
//!
//! **What vouches for the bytes.** The only sum over them is that of the datagram (RFC 768). The kernel that sends
//! fragments computes it itself, since no adapter could; it is compared when a page is complete, in user space, because
//! nobody else does. A sum of 0 says that there is none, and then nothing vouches for them but the wire. The sum does
//! not see fragments of the same length that have changed places. So places and headers are kept together by other
//! means: one processor takes the fragments, and the last one is shorter than the others, so that a header which has
//! met the wrong fragment is found out at the end of each page.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use super::super::envelope::{BODY_MAX, UDP_BYTES, datagram_sum};
use super::pages::{BUFFER, ENTRIES, Layout, PIECE, Pages};
use super::place::{Complete, Counts, Key, Shape, Told};
use crate::sys::xdp::fragments::{
    ANNOUNCED, ANY, FRESH, Fragmented, HEADERS, LEAST, OVER, UDP_BYTES as UDP, fragments, shared,
};
use crate::sys::xdp::program::LINK_BYTES;
use crate::sys::xdp::{Interface, Mode, XdpError};

mod send;

pub use send::Outgoing;

/// Datagrams that are over, whose fragments are no beginning of others.
const REMEMBERED: usize = 64;

/// Bytes of IP payload of each fragment but the last one, as kernels make them.
const fn slice(mtu: u32) -> u32 {
    let payload = mtu.saturating_sub(HEADERS - LINK_BYTES) & !7;
    if payload == 0 { 8 } else { payload }
}

/// How fragments get to where they belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placing {
    /// They are copied.
    Copy,
    /// The last one comes first, and each overwrites the headers of the one before it.
    Reverse,
    /// Their headers are cut off.
    Cut,
}

/// Which datagrams are placed, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paging {
    /// Bytes of a page: of the payload of a datagram.
    pub page: u32,
    /// How.
    pub placing: Placing,
    /// Whether only announced fragments are taken; see [`Fragmented::strict`].
    pub strict: bool,
    /// How many pages can be expected at a time; at most 63.
    pub window: u32,
}

impl Paging {
    /// The shape of a datagram in frames of an interface of this MTU: the page, and the UDP header before it.
    fn shape(self, mtu: u32) -> Option<Shape> {
        let bytes = self.page.checked_add(UDP).filter(|bytes| *bytes as usize <= BODY_MAX)?;
        let before = if self.placing == Placing::Cut { 0 } else { HEADERS };
        let shape = Shape { page: bytes, slice: slice(mtu), before, backwards: self.placing == Placing::Reverse };
        let last = bytes % shape.slice;
        let sound = self.window > 0
            && self.window < ANNOUNCED
            && self.window * shape.parts() <= ENTRIES / 2
            && shape.slice >= LEAST
            && shape.slice + HEADERS <= PIECE
            && shape.parts() > 1
            && shape.parts() <= super::place::PARTS_MAX;
        // The last fragment is shorter than the others, and as long as no adapter makes it longer.
        (sound && last >= LEAST).then_some(shape)
    }
}

/// A page that is complete. It belongs to the caller until [`Fragments::release`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole {
    /// What [`Fragments::expect`] has called it.
    pub number: u32,
    /// Who has sent it.
    pub source: SocketAddrV4,
    /// Where it lies.
    pub at: u64,
    /// How many of its fragments were copied.
    pub copies: u32,
    /// Whether it had a checksum, which was right; otherwise it had none.
    pub vouched: bool,
}

/// A page that is expected: its number, its sender, and the identification of its datagram, if that is known here.
#[derive(Debug)]
struct Expected {
    number: u32,
    source: SocketAddrV4,
    ident: Option<u16>,
}

/// What the program has written down of a fragment.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Number of the announcement.
    number: u32,
    source: Ipv4Addr,
    ident: u16,
    /// Bytes of the IP payload, and where in the datagram it begins.
    bytes: u32,
    offset: u32,
}

/// A socket whose buffers are parts of pages, for datagrams in fragments.
#[derive(Debug)]
pub struct Fragments {
    pages: Pages,
    paging: Paging,
    shape: Shape,
    register: Fragmented,
    local: SocketAddrV4,
    expected: Vec<Expected>,
    /// Datagrams that are complete or given up; without the register, their fragments may still come.
    over: VecDeque<(Ipv4Addr, u16)>,
    /// How many fragments were taken of announcements that are forgotten.
    claimed: u32,
    /// Whether headers and fragments have ever parted: then the processor stays the one that it is.
    distrust: bool,
    damaged: u64,
}

impl Fragments {
    /// Takes announced datagrams for `local` whose fragments come on `queue` of an interface.
    ///
    /// # Errors
    /// [`XdpError`]; [`XdpError::Refused`] with "invalid argument" if pages cannot be placed so: they come in one
    /// frame, in more than 64, in frames of more than 3840 bytes, or the last fragment is of fewer than 26 bytes or as
    /// long as the others.
    pub fn open(
        interface: &Interface,
        local: SocketAddrV4,
        (queue, mode): (u32, Mode),
        paging: Paging,
    ) -> Result<Self, XdpError> {
        let refused = XdpError::Refused { what: "pages in fragments of IP", errno: rustix::io::Errno::INVAL };
        let shape = paging.shape(interface.mtu).ok_or(refused)?;
        let Paging { placing, strict, window, .. } = paging;
        // UDP headers lie in the 8 bytes before a page of the machine. A frame of any length that is taken may come to
        // any place without touching another page.
        let layout = Layout {
            shape,
            first: u64::from(2 * BUFFER - UDP),
            stride: shape.stride(false),
            window,
            loose: u64::from((window + 1) * shape.parts() + ANNOUNCED),
            copied: placing == Placing::Copy,
        };
        let register = Fragmented {
            queue,
            bytes: shape.page,
            slice: shape.slice,
            cut: placing == Placing::Cut,
            backwards: shape.backwards,
            strict,
        };
        let pages = Pages::open(interface, (queue, mode), layout, shared::BYTES, |rings, memory| {
            memory.word(shared::PROCESSOR).store(ANY, Ordering::Relaxed);
            memory.word(shared::LAST).store(u32::MAX, Ordering::Relaxed);
            fragments(local, &register, rings.number(), memory.number())
        })?;
        Ok(Self {
            pages,
            paging,
            shape,
            register,
            local,
            expected: Vec::new(),
            over: VecDeque::new(),
            claimed: 0,
            distrust: false,
            damaged: 0,
        })
    }

    /// Expects a page from `source`, after those that are expected already: its number, or none if there is no room;
    /// then it comes by the kernel's socket. Without the register, only the address of the source counts.
    ///
    /// # Errors
    /// [`XdpError::Broken`].
    pub fn expect(&mut self, source: SocketAddrV4) -> Result<Option<u32>, XdpError> {
        self.skip();
        self.settle();
        let number = self.pages.next();
        let [high, low] = source.port().to_be_bytes();
        let words = [FRESH, u32::from_ne_bytes(source.ip().octets()), u32::from(u16::from_ne_bytes([high, low]))];
        if !self.pages.expect(key(number), self.paging.strict.then_some(&words))? {
            return Ok(None);
        }
        self.expected.push(Expected { number, source, ident: None });
        Ok(Some(number))
    }

    /// Expects a page no longer: it comes by the kernel's socket, or is lost.
    pub fn give_up(&mut self, number: u32) {
        self.forget(number);
        let register = &self.register;
        self.pages.give_up(key(number), |shared, at| {
            let state = shared.word(at).swap(OVER, Ordering::AcqRel);
            (state != OVER).then(|| register.taken(state))
        });
        self.skip();
    }

    /// A page is expected no more: it was given up, or has come.
    fn forget(&mut self, number: u32) -> Option<Expected> {
        let index = self.expected.iter().position(|one| one.number == number)?;
        let one = self.expected.remove(index);
        if let Some(ident) = one.ident {
            self.over.truncate(REMEMBERED - 1);
            self.over.push_front((*one.source.ip(), ident));
        }
        Some(one)
    }

    fn skip(&mut self) {
        let (claimed, parts) = (&mut self.claimed, self.register.parts());
        self.pages.skip(|taken| *claimed = claimed.wrapping_add(taken.unwrap_or(parts)));
    }

    /// While nothing is announced, and all that was taken has been seen, another processor may take the next fragments;
    /// and headers and fragments that have parted meet again.
    fn settle(&mut self) {
        if !self.paging.strict || !self.pages.nothing_is_announced() {
            return;
        }
        if self.pages.parted && !self.pages.xsk.has_frames() {
            (self.pages.seen, self.pages.parted) = (self.taken(), false);
        }
        if self.pages.seen == self.claimed && !self.distrust {
            self.pages.shared.word(shared::PROCESSOR).store(ANY, Ordering::Release);
        }
    }

    /// Whether anything has come: a look at shared memory.
    #[must_use]
    #[inline]
    pub fn has_frames(&self) -> bool {
        self.pages.xsk.has_frames()
    }

    /// Takes in what has come, and hands up pages that are complete and whose checksums are right.
    ///
    /// # Errors
    /// [`XdpError::Broken`].
    pub fn receive(&mut self, each: &mut dyn FnMut(Whole)) -> Result<(), XdpError> {
        let arrived = self.pages.xsk.arrived()?;
        if !self.paging.strict {
            self.pages.look_for_drops(arrived);
        }
        let mut entry = None;
        let mut begins = true;
        for _ in 0..arrived {
            let Some(part) = self.pages.xsk.take() else { break };
            if begins {
                entry = Some(self.entry());
            }
            let bytes = part.bytes.saturating_sub(self.shape.before);
            // A fragment of several pieces is none of ours.
            let known = entry.take().filter(|_| begins && !part.more && !self.pages.parted);
            let told = known.and_then(|entry| self.told(&entry, bytes));
            begins = !part.more;
            let (_, complete) = self.pages.landed(part.at, told);
            if let Some(whole) = complete.and_then(|complete| self.finish(complete)) {
                each(whole);
            }
        }
        self.pages.done()?;
        self.skip();
        Ok(())
    }

    /// Which fragment of which page this is; none if its header says another length.
    fn told(&mut self, entry: &Entry, bytes: u32) -> Option<Told> {
        if entry.bytes != bytes {
            (self.pages.parted, self.distrust) = (true, true);
            return None;
        }
        let number = if self.paging.strict { entry.number } else { self.guess(entry)? };
        let Key { tag, generation, message, .. } = key(number);
        Some(Told { tag, generation, message, offset: entry.offset, bytes })
    }

    /// Without the register: the page whose datagram this is, or the first one that waits for one of this source.
    fn guess(&mut self, entry: &Entry) -> Option<u32> {
        let (source, ident) = (entry.source, entry.ident);
        let from = |one: &&mut Expected| *one.source.ip() == source;
        if let Some(one) = self.expected.iter_mut().filter(from).find(|one| one.ident == Some(ident)) {
            return Some(one.number);
        }
        if self.over.contains(&(source, ident)) {
            return None;
        }
        let one = self.expected.iter_mut().filter(from).find(|one| one.ident.is_none())?;
        one.ident = Some(ident);
        Some(one.number)
    }

    /// A page is complete: whether it is what its header says. If not, it is lost.
    fn finish(&mut self, complete: Complete) -> Option<Whole> {
        let expected = self.forget(complete.key.message)?;
        let bytes = self.shape.page as usize;
        let datagram = self.pages.memory.frame(complete.at, bytes);
        let found = datagram.split_first_chunk::<UDP_BYTES>().and_then(|(head, body)| {
            let field = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
            let source = SocketAddrV4::new(*expected.source.ip(), field(0));
            let vouched = field(6) != 0;
            let length = usize::from(field(4)) == bytes;
            let ours = field(2) == self.local.port() && length;
            let ends = (*source.ip(), *self.local.ip());
            let right = !vouched || datagram_sum(ends, field(4), head, body) == u16::MAX;
            (ours && right && (source == expected.source || !self.paging.strict)).then_some((source, vouched))
        });
        let Some((source, vouched)) = found else {
            self.damaged += 1;
            self.pages.release(complete.at);
            return None;
        };
        let at = complete.at + u64::from(UDP);
        Some(Whole { number: expected.number, source, at, copies: complete.copies, vouched })
    }

    /// What belongs to the next frame of the ring.
    fn entry(&mut self) -> Entry {
        let at = self.pages.next_entry(shared::LOG_BYTES);
        let [number, head, ends] = [0, 8, 16].map(|place| self.pages.shared.double(at + place).load(Ordering::Relaxed));
        let ([.., a, b, c, d, e, f], [g, h, i, j, ..]) = (head.to_ne_bytes(), ends.to_ne_bytes());
        Entry {
            number: u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX),
            source: Ipv4Addr::new(g, h, i, j),
            ident: u16::from_be_bytes([c, d]),
            bytes: u32::from(u16::from_be_bytes([a, b])).saturating_sub(HEADERS - LINK_BYTES),
            offset: u32::from(u16::from_be_bytes([e, f]) & 0x1fff) * 8,
        }
    }

    /// Bytes of a page that is complete.
    ///
    /// # Panics
    /// If there is no page.
    pub fn page(&mut self, at: u64) -> &mut [u8] {
        self.pages.memory.frame(at, self.paging.page as usize)
    }

    /// Gives a page that was complete back.
    pub fn release(&mut self, page: Whole) {
        self.pages.release(page.at - u64::from(UDP));
    }

    /// What has happened to fragments so far.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        self.pages.counts()
    }

    /// Pages that were complete and lost: their checksum was wrong, or they were not what was announced.
    #[must_use]
    pub const fn damaged(&self) -> u64 {
        self.damaged
    }

    /// How many fragments the program has taken.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.pages.taken()
    }

    /// How many fragments for this address it has left to the kernel.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.pages.shared.word(shared::ASIDE).load(Ordering::Acquire)
    }

    /// Frames that the kernel found no place for.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.pages.dropped()
    }
}

impl AsFd for Fragments {
    /// Readable when frames have come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pages.as_fd()
    }
}

const fn key(number: u32) -> Key {
    Key { tag: 0, generation: 0, message: number, first: 0 }
}

#[cfg(test)]
mod tests;
