//! The register of the placing program in plain words: what tests and fuzz targets hold the program against.

use cutthrough_engine::register::{Expected, LEAST, Whose};
use cutthrough_wire::frame::{HEADER_BYTES, OPENING_BYTES};

use super::machine::set_word;
use super::placing::{ANY, CLOSED, entry, entry_at, shared};
use super::program::{ENVELOPE_BYTES, LINK_BYTES};

/// What the register is aimed at, and how far it has come.
#[derive(Debug, Clone, Default)]
pub struct Aim {
    /// The channel, as its frames name it.
    pub tag: u32,
    /// Its life.
    pub generation: u32,
    /// The listed frames.
    pub listed: Vec<Expected>,
    /// How many of them have come.
    pub due: u32,
    /// The message that was opened last.
    pub message: u32,
    /// Whether a frame that was shorter than expected has ended it.
    pub over: bool,
    /// Whether user space has closed it.
    pub closed: bool,
    /// The processor that its frames come to, once one has come.
    pub processor: Option<u32>,
}

/// The frames of a payload from `begin` to `end`, full ones of `slice` bytes: the rest of this message; or of the next
/// one, which is `least` or one behind it.
///
/// # Panics
/// If a full frame is said to hold no more than an opening.
#[must_use]
pub fn payload(message: Option<u32>, least: u32, (begin, end): (u32, u32), slice: u32) -> Vec<Expected> {
    let opening = u32::try_from(OPENING_BYTES).expect("some bytes");
    let (mut offset, mut frames) = (begin, Vec::new());
    while offset < end {
        let (whose, full) = match message {
            Some(message) => (Whose::Known(message), slice),
            None if offset == begin => {
                (Whose::Opens(least), slice.checked_sub(opening).expect("room behind an opening"))
            }
            None => (Whose::Opened, slice),
        };
        let bytes = full.min(end - offset);
        frames.push(Expected { whose, offset, bytes, at: u64::from(offset) });
        offset += bytes.max(1);
    }
    frames
}

/// Writes what a register is aimed at into the memory that is shared with the program: the channel's tag and life, the
/// listed frames from the first one on, and which one is due.
pub fn announce<'a>(
    memory: &mut [u8],
    (tag, generation): (u32, u32),
    listed: impl Iterator<Item = (u32, &'a Expected)>,
    (due, epoch): (u32, u32),
) {
    let limit = list(memory, listed).unwrap_or(0);
    for (place, word) in [
        (shared::NEXT, due),
        (shared::NEXT + 4, epoch),
        (shared::TAG, tag),
        (shared::GENERATION, generation),
        (shared::LIMIT, limit),
        (shared::PROCESSOR, ANY),
    ] {
        set_word(memory, place, word);
    }
}

/// Writes entries of listed frames: the number behind the last one, if there is one.
pub fn list<'a>(memory: &mut [u8], listed: impl Iterator<Item = (u32, &'a Expected)>) -> Option<u32> {
    let mut limit = None;
    for (number, frame) in listed {
        for (word, at) in entry(frame).into_iter().zip((entry_at(number)..).step_by(4)) {
            set_word(memory, at, word);
        }
        limit = Some(number + 1);
    }
    limit
}

impl Aim {
    /// See [`announce`].
    pub fn announce(&self, memory: &mut [u8], epoch: u32) {
        announce(memory, (self.tag, self.generation), (0..).zip(&self.listed), (self.due, epoch));
    }

    /// The frame that is due.
    #[must_use]
    pub fn next(&self) -> Option<&Expected> {
        self.listed.get(self.due as usize)
    }

    /// How many bytes are cut off, if the register lets this frame through: of its first part, of as many bytes more
    /// beyond that, on this processor.
    ///
    /// # Panics
    /// If a frame has more bytes than any has.
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
        let next = *self.next()?;
        let opening = match (head[1], next.whose) {
            (9, Whose::Opens(least)) if word(44) == 0 && word(40).wrapping_sub(least) < 1 << 31 => OPENING_BYTES,
            (10, Whose::Known(message)) if word(40) == message && word(44) == next.offset => 0,
            (10, Whose::Opened) if word(40) == self.message && word(44) == next.offset => 0,
            _ => return None,
        };
        let payload = u32::try_from(body.checked_sub(opening)?).expect("64 KiB at most");
        let headers = before + opening;
        // What lies beyond the first part cannot be cut off.
        if !(LEAST..=next.bytes).contains(&payload) || headers + LINK_BYTES as usize > linear.len() {
            return None;
        }
        if *self.processor.get_or_insert(processor) != processor {
            return None;
        }
        if opening > 0 {
            self.message = word(40);
        }
        self.due += 1;
        self.over = payload < next.bytes;
        Some(headers)
    }

    /// The two words at [`shared::NEXT`] by now: which frame is due, or why none is, and the epoch.
    #[must_use]
    pub const fn says(&self, epoch: u32) -> (u32, u32) {
        match *self {
            Self { closed: true, .. } => (CLOSED, 0),
            Self { due, over: true, .. } => (due | CLOSED, epoch),
            Self { due, .. } => (due, epoch),
        }
    }
}
