//! The register of the placing program in plain words: what tests and fuzz targets hold the program against.

use cutthrough_wire::frame::{HEADER_BYTES, OPENING_BYTES};

use super::machine::set_word;
use super::placing::{ANY, CLOSED, FRESH, LEAST, shared};
use super::program::{ENVELOPE_BYTES, LINK_BYTES};

/// What the register is aimed at, and how far it has come.
#[derive(Debug, Clone, Copy)]
pub struct Aim {
    /// The channel, as its frames name it.
    pub tag: u32,
    /// Its life.
    pub generation: u32,
    /// The least number of a message that may begin; the one before it is sent again.
    pub awaited: u32,
    /// Bytes of payload of a full frame.
    pub slice: u32,
    /// The message that has begun, if one has.
    pub message: Option<u32>,
    /// Where its payload goes on.
    pub next: u32,
    /// How far there are places.
    pub limit: u32,
    /// Whether a frame that was not full has ended it.
    pub over: bool,
    /// Whether user space has closed it.
    pub closed: bool,
    /// The processor that its frames come to, once one has come.
    pub processor: Option<u32>,
}

/// Writes what a register is aimed at into the memory that is shared with the program: the channel's tag and life, then
/// where the payload goes on, the message, bytes of a full frame and how far there are places.
pub fn announce(memory: &mut [u8], (tag, generation): (u32, u32), words: [u32; 4], epoch: u32) {
    let [next, message, slice, limit] = words;
    for (place, word) in [
        (shared::NEXT, next),
        (shared::NEXT + 4, epoch),
        (shared::TAG, tag),
        (shared::GENERATION, generation),
        (shared::MESSAGE, message),
        (shared::SLICE, slice),
        (shared::LIMIT, limit),
        (shared::PROCESSOR, ANY),
    ] {
        set_word(memory, place, word);
    }
}

impl Aim {
    /// See [`announce`].
    pub fn announce(&self, memory: &mut [u8], epoch: u32) {
        let next = if self.message.is_none() { FRESH } else { self.next };
        let words = [next, self.message.unwrap_or(self.awaited), self.slice, self.limit];
        announce(memory, (self.tag, self.generation), words, epoch);
    }

    /// How many bytes are cut off, if the register lets this frame through: of its first part, of as many bytes more
    /// beyond that, on this processor.
    ///
    /// # Panics
    /// If a full frame is said to hold less than an opening.
    pub fn takes(&mut self, linear: &[u8], beyond: usize, processor: u32) -> Option<usize> {
        let before = ENVELOPE_BYTES + HEADER_BYTES;
        let head = linear.get(ENVELOPE_BYTES..before)?;
        let word = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().expect("all of the header"));
        let body = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let length = linear.len() + beyond;
        let same = head[0] == 1 && (word(4), word(8)) == (self.tag, self.generation) && length == before + body;
        if !same || self.over || self.closed {
            return None;
        }
        let first = self.slice - u32::try_from(OPENING_BYTES).expect("some bytes");
        let (opening, full) = match (head[1], self.message) {
            (9, None) if word(44) == 0 && word(40).wrapping_sub(self.awaited) < 1 << 31 => (OPENING_BYTES, first),
            (10, Some(message)) if word(40) == message && word(44) == self.next => (0, self.slice),
            _ => return None,
        };
        let payload = u32::try_from(body.checked_sub(opening)?).expect("64 KiB at most");
        let headers = before + opening;
        // What lies beyond the first part cannot be cut off.
        if payload < LEAST || headers + LINK_BYTES as usize > linear.len() {
            return None;
        }
        if *self.processor.get_or_insert(processor) != processor {
            return None;
        }
        if payload > full || self.next + payload > self.limit {
            return None;
        }
        self.message = Some(word(40));
        self.next += payload;
        self.over = payload < full;
        Some(headers)
    }

    /// The two words at [`shared::NEXT`] by now: where it goes on, or why it does not, and the epoch.
    #[must_use]
    pub const fn says(&self, epoch: u32) -> (u32, u32) {
        match *self {
            Self { closed: true, .. } => (CLOSED, 0),
            Self { message: None, .. } => (FRESH, epoch),
            Self { next, over: true, .. } => (next | CLOSED, epoch),
            Self { next, .. } => (next, epoch),
        }
    }
}
