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

use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind};

use super::super::envelope::ENVELOPE_BYTES;
use super::pages::{BUFFER, Layout, PIECE, Pages};
use super::place::{Complete, Counts, Key, Landing, Shape, Told};
use crate::sys::xdp::bpf::Rings;
use crate::sys::xdp::program::{ANNOUNCED, LINK_BYTES, Matching, Ours, matching, shared};
use crate::sys::xdp::{Interface, Mode, XdpError};

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
    pages: Pages,
    placement: Placement,
    shape: Shape,
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
        let Placement { slice, cut, strict, window, .. } = placement;
        let layout = Layout {
            shape,
            first: u64::from(BUFFER),
            stride: shape.stride(strict),
            window,
            loose: LOOSE,
            copied: false,
        };
        let ours = Ours { local, frame_max: interface.mtu + LINK_BYTES, of_rings: false };
        let register = Matching { queue, slice, cut, backwards: !cut, strict };
        let pages = Pages::open(interface, (queue, mode), layout, shared::BYTES, |rings, shared| {
            matching(&ours, &register, rings.number(), shared.number())
        })?;
        Ok(Self { pages, placement, shape })
    }

    /// The map of rings, for an ordinary ring at another queue of this interface.
    #[must_use]
    pub const fn rings(&self) -> &Rings {
        self.pages.rings()
    }

    /// Expects a page, after those that are expected already. Whether there was room; if not, it comes by the socket.
    ///
    /// # Errors
    /// [`XdpError::Broken`].
    pub fn expect(&mut self, key: Key) -> Result<bool, XdpError> {
        self.skip();
        let Placement { page, slice, cut, strict, .. } = self.placement;
        let next = key.first + if cut { 0 } else { (page - 1) / slice * slice };
        let words = [key.tag, key.generation, key.message, next, key.first, page];
        self.pages.expect(key, strict.then_some(&words))
    }

    /// Expects a page no longer: it comes by the socket, or not at all.
    pub fn give_up(&mut self, key: Key) {
        self.pages.give_up(key, |shared, at| {
            // The program matches no fragment with this offset. If it says that itself, it goes on itself too.
            let next = shared.word(at + 12).swap(u32::MAX, Ordering::AcqRel);
            (next != u32::MAX).then_some(next)
        });
        self.skip();
    }

    fn skip(&mut self) {
        self.pages.skip(|_| {});
    }

    /// Whether anything has come: a look at shared memory.
    #[must_use]
    #[inline]
    pub fn has_frames(&self) -> bool {
        self.pages.xsk.has_frames()
    }

    /// Takes in what has come.
    ///
    /// # Errors
    /// [`XdpError::Broken`].
    pub fn receive(&mut self, each: &mut dyn FnMut(Arrived<'_>)) -> Result<(), XdpError> {
        let mut arrived = self.pages.xsk.arrived()?;
        if !self.placement.strict {
            self.pages.look_for_drops(arrived);
        }
        while arrived > 0 {
            let parts = (0..arrived).find(|ahead| self.pages.xsk.peek(*ahead).is_none_or(|part| !part.more));
            let parts = parts.unwrap_or(arrived - 1) + 1;
            arrived -= parts;
            let header = self.header();
            let mut told =
                Header::from_bytes(&header).ok().filter(|header| header.kind == Kind::Data && !self.pages.parted);
            let frame: u32 = (0..parts).filter_map(|ahead| self.pages.xsk.peek(ahead)).map(|part| part.bytes).sum();
            if told.is_some_and(|told| u32::from(told.body) + self.shape.before != frame) {
                // Header and fragment have parted.
                told = None;
            }
            let mut inside = 0;
            for _ in 0..parts {
                let Some(part) = self.pages.xsk.take() else { break };
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
        self.pages.done()?;
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
        let (landing, complete) = self.pages.landed(at, told);
        if landing == Landing::Stray || landing == Landing::Lost {
            let payload = self.pages.memory.frame(at + u64::from(self.shape.before), bytes as usize);
            each(Arrived::Stray(header, payload));
        }
        if let Some(complete) = complete {
            each(Arrived::Page(complete));
        }
    }

    /// The header that belongs to the next frame of the ring.
    fn header(&mut self) -> [u8; HEADER_BYTES] {
        let at = self.pages.next_entry(HEADER_BYTES as u64);
        let mut header = [0; HEADER_BYTES];
        for (place, bytes) in header.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *bytes = self.pages.shared.double(at + 8 * place as u64).load(Ordering::Relaxed).to_ne_bytes();
        }
        header
    }

    /// Bytes of a page that is complete.
    ///
    /// # Panics
    /// If there is no page.
    pub fn page(&mut self, at: u64) -> &mut [u8] {
        self.pages.memory.frame(at, self.placement.page as usize)
    }

    /// Gives a page that was complete back.
    pub fn release(&mut self, page: Complete) {
        self.pages.release(page.at);
    }

    /// What has happened so far.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        self.pages.counts()
    }

    /// How many frames the program has let through.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.pages.taken()
    }

    /// Frames that the kernel found no place for.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.pages.dropped()
    }
}

impl AsFd for Stream {
    /// Readable when frames have come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pages.as_fd()
    }
}

#[cfg(test)]
mod tests;
