//! The 128-byte slot of a control message (rules S1 to S6).
//!
//! ```text
//!  word  bytes      holds
//!  0     0..8       stamp: sequence number of the message + 1, written last (release), read first (acquire)
//!  1     8..16      control length (8 bit) | kind (8) | runs (16) | payload length (32)
//!  2     16..24     by kind: one run, or bytes already staged, or the reason of a drop
//!  3     24..32     by kind: lend number, or token
//!  4..16 32..128    the control message
//! ```
//!
//! The stamp lies in the message's own first line, so that a lone message costs one transfer of a cache line pair;
//! a receiver that lags behind finds every following slot stamped too and needs no index at all.

/// Bytes of a slot.
pub const SLOT_BYTES: usize = 128;
/// 64-bit words of a slot.
pub const SLOT_WORDS: usize = SLOT_BYTES / 8;
/// First word of the control message.
pub const CONTROL_WORD: usize = 4;
/// Longest control message, bytes.
pub const CONTROL_MAX: usize = SLOT_BYTES - CONTROL_WORD * 8;
/// Longest payload of one message, bytes (1 GiB).
pub const PAYLOAD_MAX: u64 = 1 << 30;

/// Fewer than eight bytes as a little-endian word; of more only the first seven count. Read in narrow pieces: a
/// processor passes what was just stored to a load only where the load lies within one store.
#[inline]
#[must_use]
pub const fn short_word(bytes: &[u8]) -> u64 {
    let (mut word, mut rest, mut at) = (0, bytes, 0);
    if let Some(([a, b, c, d], after)) = rest.split_first_chunk() {
        word = u32::from_le_bytes([*a, *b, *c, *d]) as u64;
        (rest, at) = (after, 32);
    }
    if let Some(([a, b], after)) = rest.split_first_chunk() {
        word |= (u16::from_le_bytes([*a, *b]) as u64) << at;
        (rest, at) = (after, at + 16);
    }
    if let [byte, ..] = rest {
        word |= (*byte as u64) << at;
    }
    word
}

/// How the payload of a message travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// No payload.
    Control = 0,
    /// The payload lies in pages of the sender's pool; the receiver reads it there and returns the lend number.
    Reference = 1,
    /// The payload was written into pages that the receiver had posted to its free queue.
    Put = 2,
    /// The payload was written into the landing pages that a token names.
    PutToken = 3,
    /// The payload comes through the staging ring.
    Staged = 4,
    /// The payload comes through the staging ring and shall land in the buffer that a token names.
    StagedToken = 5,
    /// The payload lies in pages of the sender's pool and shall be copied to where a token names.
    GetToken = 6,
    /// There was a payload, and the sender dropped it; word 2 says why.
    Dropped = 7,
    /// As [`Kind::GetToken`], into landing pages: both sides copy at the same time, the receiver from the front, the
    /// sender from the back, until they meet.
    Share = 8,
}

impl Kind {
    /// The kind with number `raw`, if there is one.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Control,
            1 => Self::Reference,
            2 => Self::Put,
            3 => Self::PutToken,
            4 => Self::Staged,
            5 => Self::StagedToken,
            6 => Self::GetToken,
            7 => Self::Dropped,
            8 => Self::Share,
            _ => return None,
        })
    }
}

/// Words 1 to 3 of a slot, taken apart. An allegation: only the form has been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of control message, at most [`CONTROL_MAX`].
    pub control_len: u8,
    /// How the payload travels.
    pub kind: Kind,
    /// How many runs of pages the payload has. One run lies in `detail`; several lie in the run ring. Of a payload that
    /// comes through the staging ring its lap (rule F1).
    pub runs: u16,
    /// Bytes of payload, at most [`PAYLOAD_MAX`].
    pub payload_len: u32,
    /// Word 2.
    pub detail: u64,
    /// Word 3.
    pub name: u64,
}

/// How a payload goes round the staging ring, as its slot says in the place of runs (rule F1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lap {
    /// Bytes in which positions go round, a power of two.
    pub bytes: u64,
    /// Whether the receiver is asked to evict the lines of the ring from the cache once it has read them.
    pub evict: bool,
}

impl Lap {
    /// The bit that asks for eviction; those below it are the logarithm of the bytes.
    pub const EVICT: u16 = 1 << 8;

    /// What a slot says.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "at most 64")]
    pub const fn to_word(self) -> u16 {
        self.bytes.trailing_zeros() as u16 | if self.evict { Self::EVICT } else { 0 }
    }
}

/// Why words do not make a header (rule S2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// The kind has no meaning in this version.
    Kind,
    /// The control message would not fit into the slot.
    ControlLength,
    /// The payload is longer than [`PAYLOAD_MAX`].
    PayloadLength,
}

impl Header {
    /// A header of a message without payload.
    #[must_use]
    pub const fn control(control_len: u8) -> Self {
        Self { control_len, kind: Kind::Control, runs: 0, payload_len: 0, detail: 0, name: 0 }
    }

    /// Words 1 to 3 of the slot.
    #[must_use]
    #[inline]
    pub const fn to_words(self) -> [u64; 3] {
        let word1 = self.control_len as u64
            | (self.kind as u64) << 8
            | (self.runs as u64) << 16
            | (self.payload_len as u64) << 32;
        [word1, self.detail, self.name]
    }

    /// Takes words 1 to 3 of a slot apart.
    ///
    /// # Errors
    /// [`Malformed`], if a field has a value without meaning.
    #[inline]
    pub const fn from_words(words: [u64; 3]) -> Result<Self, Malformed> {
        let [word1, detail, name] = words;
        let [control_len, kind, runs_low, runs_high, l0, l1, l2, l3] = word1.to_le_bytes();
        let Some(kind) = Kind::from_raw(kind) else { return Err(Malformed::Kind) };
        if control_len as usize > CONTROL_MAX {
            return Err(Malformed::ControlLength);
        }
        let payload_len = u32::from_le_bytes([l0, l1, l2, l3]);
        if payload_len as u64 > PAYLOAD_MAX {
            return Err(Malformed::PayloadLength);
        }
        let runs = u16::from_le_bytes([runs_low, runs_high]);
        Ok(Self { control_len, kind, runs, payload_len, detail, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_words_are_little_endian() {
        for len in 0..8 {
            let mut bytes = [0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0];
            bytes[len..].fill(0);
            assert_eq!(short_word(&bytes[..len]), u64::from_le_bytes(bytes), "{len} bytes");
        }
    }

    #[test]
    fn a_header_survives_the_words() {
        let header = Header {
            control_len: 96,
            kind: Kind::PutToken,
            runs: 513,
            payload_len: 1 << 30,
            detail: u64::MAX,
            name: 7,
        };
        assert_eq!(Header::from_words(header.to_words()), Ok(header));
    }

    #[test]
    fn every_malformed_field_is_named() {
        assert_eq!(Header::from_words([9 << 8, 0, 0]), Err(Malformed::Kind));
        assert_eq!(Header::from_words([97, 0, 0]), Err(Malformed::ControlLength));
        assert_eq!(Header::from_words([((1 << 30) + 1) << 32, 0, 0]), Err(Malformed::PayloadLength));
    }
}
