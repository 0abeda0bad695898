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
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use cutthrough_segment::map::Writers;

use super::super::Hop;
use super::super::envelope::{BODY_MAX, UDP_BYTES, datagram_sum, fragment, udp};
use super::XdpRing;
use super::place::{Complete, Counts, Key, Move, Placer, Shape, Told};
use super::stream::{mend, offer};
use crate::sys::xdp::bpf::{Attached, Program, Rings, SharedMemory};
use crate::sys::xdp::fragments::{
    ANNOUNCED, ANY, FRESH, Fragmented, HEADERS, LEAST, LOGGED, OVER, UDP_BYTES as UDP, fragments, shared,
};
use crate::sys::xdp::program::LINK_BYTES;
use crate::sys::xdp::socket::HEADROOM;
use crate::sys::xdp::{Interface, Memory, Mode, Settings, XdpError, Xsk};

const ENTRIES: u32 = 1024;
const BUFFER: u32 = 4096;
/// Most bytes of a frame that the kernel writes to one place.
const PIECE: u32 = BUFFER - 256;
/// Datagrams that are over, whose fragments are no beginning of others.
const REMEMBERED: usize = 64;

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
        self.ident = self.ident.wrapping_add(1);
        let ident = self.ident;
        let slice = slice(self.interface.mtu) as usize;
        let head = udp(hop, self.memory.frame(at, bytes), vouched).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Outgoing { at, bytes, slice, ident, head })
    }

    /// Sends one fragment of a datagram. `false` if there is no room now.
    ///
    /// # Errors
    /// As [`XdpRing::send_in_place`]; invalid input if there is no such fragment.
    pub(crate) fn send_fragment(&mut self, hop: &Hop, of: &Outgoing, part: usize) -> io::Result<bool> {
        self.check(hop, 0)?;
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
        self.check(hop, 0)?;
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

/// An announcement that the program may still look at.
#[derive(Debug)]
struct Announced {
    number: u32,
    /// How many of its fragments had been taken when it was given up.
    given_up: Option<u32>,
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
    xsk: Xsk,
    memory: Memory,
    shared: SharedMemory,
    _rings: Rings,
    _attached: Attached,
    placer: Placer,
    paging: Paging,
    shape: Shape,
    register: Fragmented,
    local: SocketAddrV4,
    expected: Vec<Expected>,
    announced: VecDeque<Announced>,
    /// Datagrams that are complete or given up; without the register, their fragments may still come.
    over: VecDeque<(Ipv4Addr, u16)>,
    /// Number of the next announcement.
    end: u32,
    /// How many fragments have been read from the log and the ring, and how many were taken of announcements that are
    /// forgotten.
    seen: u32,
    claimed: u32,
    /// Frames that the kernel had dropped when we looked; whether headers and fragments may have parted since.
    dropped: u64,
    parted: bool,
    /// Whether they ever have: then the processor stays the one that it is.
    distrust: bool,
    damaged: u64,
    moves: Vec<Move>,
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
        // Pages, whose UDP headers lie in the 8 bytes before a page of the machine; loose buffers; and the length of a
        // buffer, which the kernel wants to lie inside from the beginning of the last place on. A frame of any length
        // that is taken may come to any place without touching another page.
        let stride = shape.stride(false);
        let first = u64::from(2 * BUFFER - UDP);
        let pages: Vec<u64> = (0..u64::from(window) * 2 + 1).map(|page| first + page * stride).collect();
        let base = u64::from(2 * BUFFER) + pages.len() as u64 * stride;
        let loose = u64::from((window + 1) * shape.parts() + ANNOUNCED);
        let buffers = (0..loose).map(|buffer| base + buffer * u64::from(BUFFER) + HEADROOM).collect();
        let memory = Memory::new(base + (loose + 1) * u64::from(BUFFER), Writers::Maker)?;
        let settings = Settings { queue, mode, buffer_bytes: BUFFER, unaligned: true, scatter: true, entries: ENTRIES };
        let xsk = Xsk::open(interface, &memory, settings)?;
        let rings = Rings::new(interface.queues)?;
        let shared = SharedMemory::new(usize::try_from(shared::BYTES).unwrap_or(usize::MAX))?;
        shared.word(shared::PROCESSOR).store(ANY, Ordering::Relaxed);
        shared.word(shared::LAST).store(u32::MAX, Ordering::Relaxed);
        let register = Fragmented {
            queue,
            bytes: shape.page,
            slice: shape.slice,
            cut: placing == Placing::Cut,
            backwards: shape.backwards,
            strict,
        };
        let program = Program::load(&fragments(local, &register, rings.number(), shared.number()))?;
        let attached = program.attach(interface.index, mode)?;
        rings.set(queue, xsk.as_fd())?;
        let placer = if placing == Placing::Copy { Placer::copying } else { Placer::new };
        Ok(Self {
            xsk,
            memory,
            shared,
            _rings: rings,
            _attached: attached,
            placer: placer(shape, pages, buffers),
            paging,
            shape,
            register,
            local,
            expected: Vec::new(),
            announced: VecDeque::new(),
            over: VecDeque::new(),
            end: 0,
            seen: 0,
            claimed: 0,
            dropped: 0,
            parted: false,
            distrust: false,
            damaged: 0,
            moves: Vec::new(),
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
        let (window, number) = (self.paging.window as usize, self.end);
        if self.announced.len() >= window || self.placer.expected() >= window || !self.placer.expect(key(number)) {
            return Ok(None);
        }
        offer(&mut self.placer, &mut self.xsk)?;
        self.expected.push(Expected { number, source, ident: None });
        self.end = number.wrapping_add(1);
        if !self.paging.strict {
            return Ok(Some(number));
        }
        // The places are there before the program lets the first fragment through.
        let at = announcement(number);
        let [high, low] = source.port().to_be_bytes();
        let words = [FRESH, u32::from_ne_bytes(source.ip().octets()), u32::from(u16::from_ne_bytes([high, low]))];
        for (place, word) in words.into_iter().enumerate() {
            self.shared.word(at + 4 * place as u64).store(word, Ordering::Relaxed);
        }
        self.announced.push_back(Announced { number, given_up: None });
        self.shared.word(shared::END).store(self.end, Ordering::Release);
        Ok(Some(number))
    }

    /// Expects a page no longer: it comes by the kernel's socket, or is lost.
    pub fn give_up(&mut self, number: u32) {
        self.placer.give_up(key(number));
        self.forget(number);
        if let Some(one) = self.announced.iter_mut().find(|one| one.number == number && one.given_up.is_none()) {
            let state = self.shared.word(announcement(number)).swap(OVER, Ordering::AcqRel);
            // If the program was faster, it goes on itself.
            one.given_up = (state != OVER).then(|| self.register.taken(state));
        }
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

    /// Forgets announcements that the program has done with, and takes it over those that were given up.
    fn skip(&mut self) {
        let current = self.shared.word(shared::CURRENT);
        while let Some(Announced { number, given_up }) = self.announced.front() {
            let at = current.load(Ordering::Acquire);
            if at == *number {
                if given_up.is_none() {
                    break;
                }
                // Nobody else goes over one that was given up.
                let _ = current.compare_exchange(at, at.wrapping_add(1), Ordering::AcqRel, Ordering::Relaxed);
            } else if number.wrapping_sub(at) < u32::MAX / 2 {
                break;
            }
            self.claimed = self.claimed.wrapping_add(given_up.unwrap_or(self.register.parts()));
            self.announced.pop_front();
        }
    }

    /// While nothing is announced, and all that was taken has been seen, another processor may take the next fragments;
    /// and headers and fragments that have parted meet again.
    fn settle(&mut self) {
        if !self.paging.strict || !self.announced.is_empty() {
            return;
        }
        if self.parted && !self.xsk.has_frames() {
            self.seen = self.taken();
            self.parted = false;
        }
        if self.seen == self.claimed && !self.distrust {
            self.shared.word(shared::PROCESSOR).store(ANY, Ordering::Release);
        }
    }

    /// Whether anything has come: a look at shared memory.
    #[must_use]
    #[inline]
    pub fn has_frames(&self) -> bool {
        self.xsk.has_frames()
    }

    /// Takes in what has come, and hands up pages that are complete and whose checksums are right.
    ///
    /// # Errors
    /// [`XdpError::Broken`].
    pub fn receive(&mut self, each: &mut dyn FnMut(Whole)) -> Result<(), XdpError> {
        let arrived = self.xsk.arrived()?;
        if !self.paging.strict {
            self.look_for_drops(arrived);
        }
        let mut entry = None;
        let mut begins = true;
        for _ in 0..arrived {
            let Some(part) = self.xsk.take() else { break };
            if begins {
                entry = Some(self.entry());
            }
            let bytes = part.bytes.saturating_sub(self.shape.before);
            // A fragment of several pieces is none of ours.
            let known = entry.take().filter(|_| begins && !part.more && !self.parted);
            let told = known.and_then(|entry| self.told(&entry, bytes));
            begins = !part.more;
            let (_, complete) = self.placer.landed(part.at, told, &mut self.moves);
            mend(&self.memory, &mut self.moves);
            if let Some(whole) = complete.and_then(|complete| self.finish(complete)) {
                each(whole);
            }
        }
        self.xsk.release();
        self.placer.make_up();
        offer(&mut self.placer, &mut self.xsk)?;
        self.skip();
        Ok(())
    }

    /// Which fragment of which page this is; none if its header says another length.
    fn told(&mut self, entry: &Entry, bytes: u32) -> Option<Told> {
        if entry.bytes != bytes {
            (self.parted, self.distrust) = (true, true);
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
        let datagram = self.memory.frame(complete.at, bytes);
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
            self.placer.release(complete.at);
            return None;
        };
        let at = complete.at + u64::from(UDP);
        Some(Whole { number: expected.number, source, at, copies: complete.copies, vouched })
    }

    /// What belongs to the next frame of the ring.
    fn entry(&mut self) -> Entry {
        let at = shared::LOG + u64::from(self.seen % LOGGED) * shared::LOG_BYTES;
        self.seen = self.seen.wrapping_add(1);
        let [number, head, ends] = [0, 8, 16].map(|place| self.shared.double(at + place).load(Ordering::Relaxed));
        let ([.., a, b, c, d, e, f], [g, h, i, j, ..]) = (head.to_ne_bytes(), ends.to_ne_bytes());
        Entry {
            number: u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX),
            source: Ipv4Addr::new(g, h, i, j),
            ident: u16::from_be_bytes([c, d]),
            bytes: u32::from(u16::from_be_bytes([a, b])).saturating_sub(HEADERS - LINK_BYTES),
            offset: u32::from(u16::from_be_bytes([e, f]) & 0x1fff) * 8,
        }
    }

    /// Without the register, strangers' frames can find no place. Then nothing is believed until the ring is empty.
    fn look_for_drops(&mut self, arrived: u32) {
        let taken = self.taken();
        let dropped = self.dropped();
        if dropped != self.dropped || taken.wrapping_sub(self.seen) > LOGGED {
            self.dropped = dropped;
            self.parted = true;
        } else if self.parted && arrived == 0 {
            (self.seen, self.parted) = (taken, false);
        }
    }

    /// Bytes of a page that is complete.
    ///
    /// # Panics
    /// If there is no page.
    pub fn page(&mut self, at: u64) -> &mut [u8] {
        self.memory.frame(at, self.paging.page as usize)
    }

    /// Gives a page that was complete back.
    pub fn release(&mut self, page: Whole) {
        self.placer.release(page.at - u64::from(UDP));
    }

    /// What has happened to fragments so far.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        self.placer.counts()
    }

    /// Pages that were complete and lost: their checksum was wrong, or they were not what was announced.
    #[must_use]
    pub const fn damaged(&self) -> u64 {
        self.damaged
    }

    /// How many fragments the program has taken.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.shared.word(shared::TAKEN).load(Ordering::Acquire)
    }

    /// How many fragments for this address it has left to the kernel.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.shared.word(shared::ASIDE).load(Ordering::Acquire)
    }

    /// Frames that the kernel found no place for.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.xsk.losses().overflows
    }
}

impl AsFd for Fragments {
    /// Readable when frames have come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.xsk.as_fd()
    }
}

const fn key(number: u32) -> Key {
    Key { tag: 0, generation: 0, message: number, first: 0 }
}

/// Where announcement `number` lies.
fn announcement(number: u32) -> u64 {
    shared::ANNOUNCEMENTS + u64::from(number % ANNOUNCED) * shared::ANNOUNCEMENT_BYTES
}

#[cfg(test)]
mod tests;
