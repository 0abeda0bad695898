//! Pages of one stream, placed where they belong by the fill ring.
//!
//! The socket of a [`Stream`] takes fragments of announced pages only; the program at the interface is the register
//! that knows them. Everything else (control messages, fragments of others, what comes out of order) passes on to the
//! endpoint's UDP socket, as if there were no ring. Two sockets at one queue have one fill ring between them (the
//! kernel takes a frame to a socket of its own queue only), so an ordinary ring has to be at another queue.
//!
//! Headers go another way than their fragments: the program logs them, in the order in which it lets frames through,
//! which is the order of the ring. With a place and an entry for every fragment that is announced, the kernel drops
//! none in between. If it does, a header meets the wrong fragment: its length or its seal says so, as of any frame that
//! was damaged.

use std::collections::VecDeque;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use cutthrough_segment::map::{Mapping, Writers};
use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind};

use super::super::envelope::ENVELOPE_BYTES;
use super::place::{Complete, Counts, Key, Landing, Move, Placer, Shape, Told};
use crate::sys::xdp::bpf::{Attached, Program, Rings, SharedMemory};
use crate::sys::xdp::program::{ANNOUNCED, LINK_BYTES, LOGGED, Matching, Ours, matching, shared};
use crate::sys::xdp::socket::HEADROOM;
use crate::sys::xdp::{Interface, Memory, Mode, Settings, XdpError, Xsk};

const ENTRIES: u32 = 1024;
const BUFFER: u32 = 4096;
/// Most bytes of a frame that the kernel writes to one place.
const PIECE: u32 = BUFFER - 256;
/// Buffers for what was not guessed.
const LOOSE: u64 = 64;

/// How pages are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Bytes of a page.
    pub page: u32,
    /// Bytes of payload of a frame: all fragments of a page but the last one have as many.
    pub slice: u32,
    /// Whether headers are cut off, and fragments come in order; otherwise the last one comes first.
    pub cut: bool,
    /// Whether only announced fragments are taken; see [`Matching::strict`].
    pub strict: bool,
    /// How many pages can be expected at a time; at most 63.
    pub window: u32,
}

impl Placement {
    /// Shape of the pages, as the kernel's places have it: a frame that is longer than one of its buffers needs several
    /// places.
    fn shape(self) -> Option<Shape> {
        if self.page == 0 || self.slice == 0 {
            return None;
        }
        let before = if self.cut { 0 } else { u32::try_from(ENVELOPE_BYTES + HEADER_BYTES).unwrap_or(0) };
        let one_piece = self.slice.min(self.page) + before <= PIECE;
        // Several places for a frame work if there is one frame to a page, with nothing before it.
        let pieces = self.cut && self.slice >= self.page;
        let slice = if one_piece { self.slice.min(self.page) } else { PIECE };
        let shape = Shape { page: self.page, slice, before, backwards: !self.cut };
        let last = self.page % self.slice;
        // The kernel leaves no frame shorter than an Ethernet header.
        let long_enough = !self.cut || last == 0 || last >= LINK_BYTES;
        let sound = self.window > 0 && self.window < ANNOUNCED;
        (sound && (one_piece || pieces) && long_enough && shape.parts() <= super::place::PARTS_MAX).then_some(shape)
    }
}

/// What a stream hands up.
#[derive(Debug)]
pub enum Arrived<'a> {
    /// A page is complete.
    Page(Complete),
    /// A frame that was not expected: its header, which nobody has checked, and its payload.
    Stray(&'a [u8; HEADER_BYTES], &'a mut [u8]),
}

/// A socket whose buffers are parts of pages.
#[derive(Debug)]
pub struct Stream {
    xsk: Xsk,
    memory: Memory,
    shared: SharedMemory,
    rings: Rings,
    _attached: Attached,
    placer: Placer,
    placement: Placement,
    shape: Shape,
    /// Announcements that the program may still look at: their numbers, and whether they are given up.
    announced: VecDeque<(u32, Key, bool)>,
    /// Number of the next announcement.
    end: u32,
    /// How many headers have been read from the log.
    seen: u32,
    /// How many frames the kernel had dropped when we looked; whether headers and fragments may have parted since.
    dropped: u64,
    parted: bool,
    moves: Vec<Move>,
}

impl Stream {
    /// Takes fragments for `local` that come on `queue` of an interface.
    ///
    /// # Errors
    /// [`XdpError`]; [`XdpError::Refused`] with "invalid argument" if pages cannot be placed so.
    pub fn open(
        interface: &Interface,
        local: SocketAddrV4,
        (queue, mode): (u32, Mode),
        placement: Placement,
    ) -> Result<Self, XdpError> {
        let refused = XdpError::Refused { what: "pages in such fragments", errno: rustix::io::Errno::INVAL };
        let shape = placement.shape().ok_or(refused)?;
        // Pages, with room before the first one; loose buffers; and the length of a buffer, which the kernel wants to
        // lie inside from the beginning of the last place on.
        let stride = shape.stride(placement.strict);
        let first = u64::from(BUFFER);
        let pages: Vec<u64> = (0..u64::from(placement.window) * 2 + 1).map(|page| first + page * stride).collect();
        let base = first + pages.len() as u64 * stride;
        let loose = (0..LOOSE).map(|buffer| base + buffer * u64::from(BUFFER) + HEADROOM).collect();
        let memory = Memory::new(base + (LOOSE + 1) * u64::from(BUFFER), Writers::Maker)?;
        let settings = Settings { queue, mode, buffer_bytes: BUFFER, unaligned: true, scatter: true, entries: ENTRIES };
        let xsk = Xsk::open(interface, &memory, settings)?;
        let rings = Rings::new(interface.queues)?;
        let shared = SharedMemory::new(usize::try_from(shared::BYTES).unwrap_or(usize::MAX))?;
        let ours = Ours { local, frame_max: interface.mtu + LINK_BYTES };
        let Placement { slice, cut, strict, .. } = placement;
        let register = Matching { queue, slice, cut, backwards: !cut, strict };
        let program = Program::load(&matching(&ours, &register, rings.number(), shared.number()))?;
        let attached = program.attach(interface.index, mode)?;
        rings.set(queue, xsk.as_fd())?;
        Ok(Self {
            xsk,
            memory,
            shared,
            rings,
            _attached: attached,
            placer: Placer::new(shape, pages, loose),
            placement,
            shape,
            announced: VecDeque::new(),
            end: 0,
            seen: 0,
            dropped: 0,
            parted: false,
            moves: Vec::new(),
        })
    }

    /// The map of rings, for an ordinary ring at another queue of this interface.
    #[must_use]
    pub const fn rings(&self) -> &Rings {
        &self.rings
    }

    /// Expects a page, after those that are expected already. Whether there was room; if not, it comes by the socket.
    ///
    /// # Errors
    /// [`XdpError::Broken`].
    pub fn expect(&mut self, key: Key) -> Result<bool, XdpError> {
        self.skip();
        let window = self.placement.window as usize;
        if self.announced.len() >= window || self.placer.expected() >= window || !self.placer.expect(key) {
            return Ok(false);
        }
        self.offer()?;
        if !self.placement.strict {
            return Ok(true);
        }
        // The places are there before the program lets the first fragment through.
        let last = (self.placement.page - 1) / self.placement.slice * self.placement.slice;
        let next = key.first + if self.placement.cut { 0 } else { last };
        let at = announcement(self.end);
        let words = [key.tag, key.generation, key.message, next, key.first, self.placement.page];
        for (place, word) in words.into_iter().enumerate() {
            self.shared.word(at + 4 * place as u64).store(word, Ordering::Relaxed);
        }
        self.announced.push_back((self.end, key, false));
        self.end = self.end.wrapping_add(1);
        self.shared.word(shared::END).store(self.end, Ordering::Release);
        Ok(true)
    }

    /// Expects a page no longer: it comes by the socket, or not at all.
    pub fn give_up(&mut self, key: Key) {
        self.placer.give_up(key);
        if let Some((number, _, given_up)) = self.announced.iter_mut().find(|(_, of, _)| *of == key) {
            // The program matches no fragment with this offset. If it says that itself, it goes on itself too.
            let next = self.shared.word(announcement(*number) + 12);
            *given_up |= next.swap(u32::MAX, Ordering::AcqRel) != u32::MAX;
        }
        self.skip();
    }

    /// Forgets announcements that the program has done with, and takes it over those that were given up.
    fn skip(&mut self) {
        let current = self.shared.word(shared::CURRENT);
        while let Some((number, _, given_up)) = self.announced.front() {
            let at = current.load(Ordering::Acquire);
            if at == *number {
                if !given_up {
                    break;
                }
                // If the program was faster, it has gone on itself.
                let _ = current.compare_exchange(at, at.wrapping_add(1), Ordering::AcqRel, Ordering::Relaxed);
            } else if number.wrapping_sub(at) < u32::MAX / 2 {
                break;
            }
            self.announced.pop_front();
        }
    }

    fn offer(&mut self) -> Result<(), XdpError> {
        offer(&mut self.placer, &mut self.xsk)
    }

    /// Whether anything has come: a look at shared memory.
    #[must_use]
    #[inline]
    pub fn has_frames(&self) -> bool {
        self.xsk.has_frames()
    }

    /// Takes in what has come.
    ///
    /// # Errors
    /// [`XdpError::Broken`].
    pub fn receive(&mut self, each: &mut dyn FnMut(Arrived<'_>)) -> Result<(), XdpError> {
        let mut arrived = self.xsk.arrived()?;
        if !self.placement.strict {
            self.look_for_drops(arrived);
        }
        while arrived > 0 {
            let parts = (0..arrived).find(|ahead| self.xsk.peek(*ahead).is_none_or(|part| !part.more));
            let parts = parts.unwrap_or(arrived - 1) + 1;
            arrived -= parts;
            let header = self.header();
            let mut told = Header::from_bytes(&header).ok().filter(|header| header.kind == Kind::Data && !self.parted);
            let frame: u32 = (0..parts).filter_map(|ahead| self.xsk.peek(ahead)).map(|part| part.bytes).sum();
            if told.is_some_and(|told| u32::from(told.body) + self.shape.before != frame) {
                // Header and fragment have parted.
                told = None;
            }
            let mut inside = 0;
            for _ in 0..parts {
                let Some(part) = self.xsk.take() else { break };
                let bytes = part.bytes.saturating_sub(self.shape.before);
                let told = told.map(|header| Told {
                    tag: header.tag,
                    generation: header.generation,
                    message: header.words[0],
                    offset: header.words[1].wrapping_add(inside),
                    bytes,
                });
                inside = inside.saturating_add(bytes);
                self.landed(part.at, bytes, told, &header, each);
            }
        }
        self.xsk.release();
        self.placer.make_up();
        self.offer()?;
        self.skip();
        Ok(())
    }

    fn landed(
        &mut self,
        at: u64,
        bytes: u32,
        told: Option<Told>,
        header: &[u8; HEADER_BYTES],
        each: &mut dyn FnMut(Arrived<'_>),
    ) {
        let (landing, complete) = self.placer.landed(at, told, &mut self.moves);
        mend(&self.memory, &mut self.moves);
        if landing == Landing::Stray || landing == Landing::Lost {
            let payload = self.memory.frame(at + u64::from(self.shape.before), bytes as usize);
            each(Arrived::Stray(header, payload));
        }
        if let Some(complete) = complete {
            each(Arrived::Page(complete));
        }
    }

    /// The header that belongs to the next frame of the ring.
    fn header(&mut self) -> [u8; HEADER_BYTES] {
        let at = shared::LOG + u64::from(self.seen % LOGGED) * HEADER_BYTES as u64;
        self.seen = self.seen.wrapping_add(1);
        let mut header = [0; HEADER_BYTES];
        for (place, bytes) in header.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *bytes = self.shared.double(at + 8 * place as u64).load(Ordering::Relaxed).to_ne_bytes();
        }
        header
    }

    /// Without the register, strangers' frames can find no place. Then nothing is believed until the ring is empty and
    /// has been so since the program let the last frame through.
    fn look_for_drops(&mut self, arrived: u32) {
        let taken = self.shared.word(shared::TAKEN).load(Ordering::Acquire);
        let dropped = self.xsk.losses().overflows;
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
        self.memory.frame(at, self.placement.page as usize)
    }

    /// Gives a page that was complete back.
    pub fn release(&mut self, page: Complete) {
        self.placer.release(page.at);
    }

    /// What has happened so far.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        self.placer.counts()
    }

    /// How many frames the program has let through.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.shared.word(shared::TAKEN).load(Ordering::Acquire)
    }

    /// Frames that the kernel found no place for.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.xsk.losses().overflows
    }
}

impl AsFd for Stream {
    /// Readable when frames have come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.xsk.as_fd()
    }
}

/// Offers the kernel the places that are due.
pub(super) fn offer(placer: &mut Placer, xsk: &mut Xsk) -> Result<(), XdpError> {
    let mut failed = None;
    placer.offer(|at| {
        // The ring has more entries than there are places.
        if let Err(error) = xsk.offer(at - HEADROOM) {
            failed = Some(error);
        }
    });
    xsk.post();
    failed.map_or(Ok(()), Err)
}

/// Makes these copies.
pub(super) fn mend(memory: &Memory, moves: &mut Vec<Move>) {
    for Move { from, to, bytes } in moves.drain(..) {
        let mapping = memory.mapping();
        Mapping::copy_across(mapping, from, mapping, to, bytes as usize);
    }
}

/// Where announcement `number` lies.
fn announcement(number: u32) -> u64 {
    shared::ANNOUNCEMENTS + u64::from(number % ANNOUNCED) * shared::ANNOUNCEMENT_BYTES
}

#[cfg(test)]
mod tests;
