//! What one call to the network takes: frames of equal length, the last of which may be shorter.
//!
//! A batch is a pulse: everything that waits when the way is free goes at once (see [`crate::pulse`]). Headers, control
//! messages and sealed payloads lie in the batch's own memory, or in memory that the first payload has for all of them
//! ([`Load::hold`]); bare payloads are named and sent from where they lie, unless whoever has them would rather have
//! them copied behind their headers ([`Load::coalesces`]).

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use cutthrough_wire::frame::{HEADER_BYTES, Header, OPENING_BYTES, SEAL_BYTES, SEALED_BYTES, Sealed};
use cutthrough_wire::seal::{OPENING_NUMBER, Seal};

use super::channel::low16;
use super::memory::{Hold, Load};
use super::own::Own;
use super::ways::Way;

/// Frames of a batch at most: what the kernel takes in one call (64 before Linux 6.9).
pub const FRAMES: usize = 64;

/// Of how many bytes of a payload one more may be added to its end, so that others can follow in the same batch.
pub(super) const PADDED: usize = 8;

/// A piece of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of the batch's own memory.
    Own {
        /// First byte.
        at: usize,
        /// Number of bytes.
        len: usize,
    },
    /// Bytes of a payload.
    Payload {
        /// Number of the message.
        message: u64,
        /// First byte.
        offset: usize,
        /// Number of bytes.
        len: usize,
    },
}

/// A part of a payload that a batch carries in its own memory, as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Number of the message.
    pub message: u64,
    /// First byte in the payload.
    pub offset: usize,
    /// First byte in the batch's own memory.
    pub at: usize,
    /// Number of bytes.
    pub len: usize,
}

/// Frames to be sent in one call.
#[derive(Debug, Default)]
pub struct Batch {
    own: Own,
    pieces: Vec<Piece>,
    copied: Vec<Copied>,
    segment: usize,
    last: usize,
    bytes: usize,
    frames: usize,
    /// Bytes by which the last frame may be filled up, if that is more than a quarter of a frame.
    pad: usize,
    way: Way,
    /// The first message of whose payload it carries a part.
    first: Option<u64>,
    /// The first and the last message of whose payloads it carries parts, and where the last part ends; if it lies in
    /// memory of the first one's.
    held: Option<Held>,
}

/// What a batch carries that lies in memory of its load's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The first message of whose payload it carries a part.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// Where the last part ends in its payload.
    pub end: usize,
}

impl Batch {
    /// Empties the batch.
    pub fn clear(&mut self) {
        self.own.clear();
        self.pieces.clear();
        self.copied.clear();
        (self.segment, self.last, self.bytes, self.frames, self.pad) = (0, 0, 0, 0, 0);
        (self.first, self.held) = (None, None);
    }

    /// Whether it holds no frame.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// The way that it goes.
    #[must_use]
    pub const fn way(&self) -> Way {
        self.way
    }

    pub(super) const fn go(&mut self, way: Way) {
        self.way = way;
    }

    /// Frames.
    #[must_use]
    pub const fn frames(&self) -> usize {
        self.frames
    }

    /// Bytes of all frames.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of each frame but the last.
    #[must_use]
    pub const fn segment(&self) -> usize {
        self.segment
    }

    /// The first message of whose payload it carries a part, if it carries any.
    #[must_use]
    pub const fn first(&self) -> Option<u64> {
        self.first
    }

    /// Its own memory, of which [`Piece::Own`] speaks.
    #[must_use]
    pub fn own(&self) -> &[u8] {
        self.own.bytes()
    }

    /// The memory of a load's that all of it lies in, if it does ([`Load::hold`]).
    #[must_use]
    pub fn hold(&self) -> Option<&dyn Hold> {
        // One after the other they are one piece.
        self.own.hold().filter(|_| matches!(*self.pieces, [Piece::Own { .. }]))
    }

    /// Takes memory of a load's out that it lies in, or a part of it, with what it carries: the batch can only be
    /// cleared then.
    pub fn take_hold(&mut self) -> Option<(Box<dyn Hold>, Held)> {
        self.own.take_hold().zip(self.held.take())
    }

    /// Parts of payloads in that memory, in the order of travel, as far as they are not sealed.
    #[must_use]
    pub fn copied(&self) -> &[Copied] {
        &self.copied
    }

    /// Gives its own memory away, with the list of those parts, and takes others for the next batch: this one can only
    /// be cleared then.
    pub fn swap(&mut self, own: &mut Vec<u8>, copied: &mut Vec<Copied>) {
        core::mem::swap(self.own.vec_mut(), own);
        core::mem::swap(&mut self.copied, copied);
    }

    /// The pieces, in the order of travel.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// How many frames of `full` bytes can follow, of which the last may be shorter: there is room, and the last one so
    /// far is full, or is filled up now because that adds little to it, or to the payload whose end it carries.
    pub(super) fn room(&mut self, full: usize, most: usize) -> usize {
        if self.frames == 0 {
            return (most / full).clamp(1, FRAMES);
        }
        let padding = full - self.last.min(full);
        if self.bytes + padding + full > most || self.segment > full {
            return 0;
        }
        if padding > 0 {
            if padding > self.pad.max(full / 4) || self.frames >= FRAMES {
                return 0;
            }
            if self.frames == 1 {
                self.segment = full;
            } else if self.segment != full {
                return 0;
            }
            let at = self.own.len();
            self.own.grow(padding);
            self.own.bytes_mut()[at..].fill(0);
            self.push_own(at, padding);
            self.bytes += padding;
            self.last = full;
        }
        ((most - self.bytes) / full).min(FRAMES - self.frames.min(FRAMES))
    }

    /// Whether a frame of so many bytes can follow as it is: all before it are as long as the first one, and it is not
    /// longer. So short messages of one length go together.
    pub(super) const fn takes(&self, bytes: usize, most: usize) -> bool {
        self.frames > 0
            && self.frames < FRAMES
            && self.last == self.segment
            && bytes <= self.segment
            && self.bytes + bytes <= most
    }

    fn push_own(&mut self, at: usize, len: usize) {
        if let Some(Piece::Own { at: before, len: have }) = self.pieces.last_mut()
            && *before + *have == at
        {
            *have += len;
        } else {
            self.pieces.push(Piece::Own { at, len });
        }
    }

    fn count(&mut self, bytes: usize) {
        if self.frames == 0 {
            self.segment = bytes;
        }
        self.pad = 0;
        self.frames += 1;
        self.bytes += bytes;
        self.last = bytes;
    }

    /// Adds a frame with a body of its own, which `write` writes; how long that is, the header is told then.
    pub(super) fn push(&mut self, header: Header, seal: &mut dyn Seal, write: impl FnOnce(&mut Own)) -> usize {
        let at = self.own.len();
        self.own.extend(&[0; HEADER_BYTES]);
        let mut aside = self.is_held().then(Own::default);
        write(aside.as_mut().unwrap_or(&mut self.own));
        self.own.grow(aside.as_ref().map_or(0, Own::len));
        let (head, sealed) = self.own.bytes_mut()[at..].split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&Header { body: low16(sealed.len()), ..header }.to_bytes());
        let (protected, place) = head.split_at_mut(SEALED_BYTES);
        place.copy_from_slice(&match aside {
            Some(plain) => seal.seal_into(header.number, protected, plain.bytes(), sealed),
            None => seal.seal(header.number, protected, sealed),
        });
        let bytes = HEADER_BYTES + sealed.len();
        self.push_own(at, bytes);
        self.count(bytes);
        bytes
    }

    /// Whether it lies in memory of a load's. Somebody may still read what lay there before, and sends it: nothing may
    /// lie there that is not sealed yet.
    fn is_held(&self) -> bool {
        self.own.hold().is_some()
    }

    /// Adds a frame that carries a part of a payload, behind an opening if there is one.
    ///
    /// Where it is called, so that the header goes from registers to where it travels. Laid down on the way there it
    /// would be read back in other pieces than it was written in, and that waits for all of the payload before it:
    /// a tenth of what a stream's sender does.
    #[inline(always)]
    pub(super) fn push_payload(
        &mut self,
        head: Sealed,
        opening: Option<&[u8; OPENING_BYTES]>,
        part: (u64, usize, usize),
        load: &impl Load,
        seal: &mut dyn Seal,
    ) -> usize {
        let at = self.begin(part, load);
        self.own.extend_with(|| head.to_bytes());
        self.push_behind((at, head.number()), opening, part, load, seal)
    }

    /// Where a frame with this part of a payload begins.
    fn begin(&mut self, (message, offset, len): (u64, usize, usize), load: &impl Load) -> usize {
        if self.frames == 0
            && self.way.number == 0
            && let Some(hold) = load.hold()
        {
            self.own.lie(hold);
            self.held = Some(Held { first: message, last: message, end: 0 });
        }
        self.first.get_or_insert(message);
        if let Some(held) = &mut self.held {
            (held.last, held.end) = (message, offset + len);
        }
        self.own.len()
    }

    /// Adds what belongs behind the header of this number, which is there from a byte on.
    fn push_behind(
        &mut self,
        (at, number): (usize, u64),
        opening: Option<&[u8; OPENING_BYTES]>,
        (message, offset, len): (u64, usize, usize),
        load: &impl Load,
        seal: &mut dyn Seal,
    ) -> usize {
        if let Some(opening) = opening {
            let mut opening = *opening;
            let (plain, place) = opening.split_at_mut(OPENING_BYTES - SEAL_BYTES);
            let protected = &self.own.bytes()[at..at + SEALED_BYTES];
            place.copy_from_slice(&seal.seal(number | OPENING_NUMBER, protected, plain));
            self.own.extend(&opening);
        }
        let before = self.own.len() - at;
        self.push_own(at, before);
        let piece = load.piece(offset, len);
        let sum = if seal.is_bare() && piece.len() == len && load.coalesces(len, self.is_held()) {
            // Of where it was, not of the copy: what was just written cannot be read at once.
            let sum = seal.sum(number, &self.own.bytes()[at..at + SEALED_BYTES], piece);
            let to = self.own.len();
            self.own.extend(piece);
            self.push_own(to, len);
            self.copied.push(Copied { message, offset, at: to, len });
            sum
        } else if seal.is_bare() && piece.len() == len {
            self.pieces.push(Piece::Payload { message, offset, len });
            seal.sum(number, &self.own.bytes()[at..at + SEALED_BYTES], piece)
        } else {
            let to = self.own.len();
            self.own.grow(len);
            let is_held = self.is_held();
            let (written, out) = self.own.bytes_mut().split_at_mut(to);
            let protected = &written[at..at + SEALED_BYTES];
            let sum = if piece.len() == len && !seal.is_bare() {
                Some(seal.seal_into(number, protected, piece, out))
            } else if is_held && !seal.is_bare() {
                let mut plain = vec![0; len];
                load.copy_out(offset, &mut plain).then(|| seal.seal_into(number, protected, &plain, out))
            } else {
                load.copy_out(offset, out).then(|| seal.seal(number, protected, out))
            };
            // A payload that has lost its memory is never shown to the other side, and nothing of it to anybody.
            let sum = sum.unwrap_or_else(|| {
                out.fill(0);
                [0xff; SEAL_BYTES]
            });
            self.push_own(to, len);
            sum
        };
        self.own.bytes_mut()[at + SEALED_BYTES..at + HEADER_BYTES].copy_from_slice(&sum);
        let bytes = before + len;
        self.count(bytes);
        self.pad = load.len() / PADDED;
        bytes
    }
}
