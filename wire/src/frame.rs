//! What crosses a network: frames of a 64-byte header and a body (rules N1 to N15, and N17).
//!
//! ```text
//!  bytes     holds
//!  0         version
//!  1         kind
//!  2..4      bytes of the body; what follows them in a datagram is padding
//!  4..8      tag: which channel of the receiver, as the receiver numbers them
//!  8..12     generation: which life of that channel, drawn by the receiver
//!  12..16    awaited: low 32 bits of the least number whose acknowledgement the sender still waits for
//!  16..24    number of the frame: never used twice by a side of a channel
//!  24..28    below: low 32 bits of the number up to which everything has arrived here
//!  28..30    held: for how long the acknowledgement was held back, in units of 256 ns
//!  30        1 if its sender waits for room in its window, else 0
//!  31        bits 0 and 1: how often its sender has called a quiet moment, modulo 4; bits 2 to 6: it asks for one
//!  32..40    bits: which of the numbers after `below` have arrived
//!  40..48    two words by kind
//!  48..64    seal of the 48 bytes before it and of the body: a check sum, or the tag of a cipher
//! ```
//!
//! The seal lies in the header, so that a payload is bare: the receiver's scatter list puts headers aside and payloads
//! where they belong, and they are opened there.

mod body;
mod greeting;

pub use body::{
    LIMITS_BYTES, Limits, NOTE_BYTES, NOTE_ENTRY_BYTES, Note, OPENING_BYTES, Opening, RECORD_BYTES, Records,
    WANTS_NO_MORE,
};
pub use greeting::{GREETING_BYTES, Greeting, HANDSHAKE_MAX, Refusal};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a header that the seal protects: all but the seal.
pub const SEALED_BYTES: usize = 48;
/// Bytes of a seal.
pub const SEAL_BYTES: usize = 16;
/// Least body that every path carries: an opening and some payload, or a greeting, within 1,200 bytes of datagram.
pub const BODY_MIN: u16 = 1200 - 64;
/// The bits of byte 31 that count quiet moments, where those begin that ask for one, and what they hold at most.
const CALLS: u8 = 3;
const ASKS: u8 = 2;
const ASKS_MOST: u8 = 31;
/// Version of the frames (rule N1).
pub const FRAME_VERSION: u8 = 1;

/// Bytes of a frame, by its first four or more; what follows them in a datagram is padding. Nothing if it is of another
/// version, or there are fewer.
#[must_use]
pub const fn frame_len(begin: &[u8]) -> Option<usize> {
    match begin {
        [FRAME_VERSION, _, low, high, ..] => Some(HEADER_BYTES + u16::from_le_bytes([*low, *high]) as usize),
        _ => None,
    }
}

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Asks for a channel.
    Hello = 1,
    /// Asks the caller to come again with a cookie, so that no memory is spent on forged addresses.
    Retry = 2,
    /// Lets the caller in.
    Welcome = 3,
    /// Does not.
    Refuse = 4,
    /// Control messages without payload.
    Records = 8,
    /// A control message with a payload, and the payload's first bytes.
    Open = 9,
    /// More of a payload.
    Data = 10,
    /// Acknowledgements and grants.
    Note = 11,
    /// Asks for an acknowledgement, or, as long as the longest frame, whether the path carries that.
    Probe = 12,
    /// Ends the channel, after all that was sent before.
    Close = 13,
}

impl Kind {
    /// The kind with number `raw`, if there is one.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            1 => Self::Hello,
            2 => Self::Retry,
            3 => Self::Welcome,
            4 => Self::Refuse,
            8 => Self::Records,
            9 => Self::Open,
            10 => Self::Data,
            11 => Self::Note,
            12 => Self::Probe,
            13 => Self::Close,
            _ => return None,
        })
    }

    /// Whether it belongs to the handshake: sent when there is no channel yet.
    #[must_use]
    pub const fn greets(self) -> bool {
        matches!(self, Self::Hello | Self::Retry | Self::Welcome | Self::Refuse)
    }
}

/// A header, taken apart. An allegation: only its form has been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the frame is for.
    pub kind: Kind,
    /// Bytes of the body.
    pub body: u16,
    /// Which channel of the receiver.
    pub tag: u32,
    /// Which life of it.
    pub generation: u32,
    /// Low bits of the least number that the sender still waits for.
    pub awaited: u32,
    /// Number of the frame.
    pub number: u64,
    /// Low bits of the number up to which everything has arrived at the sender.
    pub below: u32,
    /// How long the acknowledgement was held back, in units of 256 ns.
    pub held: u16,
    /// Whether its sender has more to send than its window takes, half of which is in flight, and so waits for
    /// acknowledgements (rule N4).
    pub waits: bool,
    /// How often its sender has called the other side to a quiet moment, modulo 4 (rule N17).
    pub calls: u8,
    /// If it is not 0, its sender asks for a quiet moment, and its round trips take less than 2 to the power of this
    /// microseconds; less than 32 (rule N17).
    pub asks: u8,
    /// Which of the numbers after `below` have arrived: bit `i` is number `below + 1 + i`.
    pub bits: u64,
    /// By kind: [`Kind::Records`]: number of the first message and how many; [`Kind::Open`], [`Kind::Data`]: number of
    /// the message and offset in its payload; [`Kind::Close`]: how many messages were sent in all, and 0.
    pub words: [u32; 2],
}

/// Why bytes are no frame (rule N2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Fewer bytes than a header, or than its body.
    Short,
    /// Another version, this one.
    Version(u8),
    /// The kind has no meaning in this version.
    Kind,
    /// A field has a value without meaning.
    Field,
}

/// The half of a number that travels. Who receives it knows the other half: see rule N3.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "that is what it is for")]
pub const fn low(number: u64) -> u32 {
    number as u32
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[inline]
fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// What is sealed of a header, as it travels, in words of 8 bytes: bytes are made of these, compared with these, and
/// summed in these. A processor that reads back what it has just written in smaller pieces waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed([u64; SEALED_BYTES / 8]);

impl Sealed {
    /// The same of another frame of its payload: the frame's number, the bytes of its body, and the offset of those.
    #[must_use]
    #[inline]
    pub fn part(self, number: u64, body: u16, offset: u32) -> Self {
        let [first, life, _, acknowledged, bits, words] = self.0;
        let first = first & !(0xffff << 16) | u64::from(body) << 16;
        Self([first, life, number, acknowledged, bits, words & u64::from(u32::MAX) | u64::from(offset) << 32])
    }

    /// Number of the frame.
    #[must_use]
    #[inline]
    pub const fn number(&self) -> u64 {
        self.0[2]
    }

    /// The header as bytes; the seal is zero.
    #[must_use]
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(self.0) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    /// Whether these are its bytes, whatever the seal is.
    #[must_use]
    #[inline]
    pub fn is(&self, bytes: &[u8; HEADER_BYTES]) -> bool {
        self.0.iter().zip(bytes.as_chunks().0).all(|(own, bytes)| *own == u64::from_le_bytes(*bytes))
    }
}

impl Header {
    /// What is sealed of it.
    #[must_use]
    #[inline]
    pub fn sealed(&self) -> Sealed {
        let quiet = self.calls & CALLS | (self.asks & ASKS_MOST) << ASKS;
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        Sealed([
            u64::from(FRAME_VERSION) | u64::from(self.kind as u8) << 8 | u64::from(self.body) << 16 | pair(0, self.tag),
            pair(self.generation, self.awaited),
            self.number,
            pair(self.below, 0) | u64::from(self.held) << 32 | u64::from(self.waits) << 48 | u64::from(quiet) << 56,
            self.bits,
            pair(self.words[0], self.words[1]),
        ])
    }

    /// The header as bytes; the seal is zero.
    #[must_use]
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        self.sealed().to_bytes()
    }

    /// Takes a header apart.
    ///
    /// # Errors
    /// [`Malformed`]. The version is looked at first: of a frame of another version nothing else is known.
    #[inline]
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Malformed> {
        if bytes[0] != FRAME_VERSION {
            return Err(Malformed::Version(bytes[0]));
        }
        let Some(kind) = Kind::from_raw(bytes[1]) else { return Err(Malformed::Kind) };
        let (waits, quiet) = (bytes[30], bytes[31]);
        if waits > 1 || quiet > CALLS | ASKS_MOST << ASKS {
            return Err(Malformed::Field);
        }
        let words = [u32_at(bytes, 40), u32_at(bytes, 44)];
        let fit = match kind {
            Kind::Records | Kind::Data => true,
            Kind::Open | Kind::Close => words[1] == 0,
            Kind::Note => words[0] <= 1 && words[1] == 0,
            Kind::Hello | Kind::Retry | Kind::Welcome | Kind::Refuse | Kind::Probe => words == [0, 0],
        };
        if !fit {
            return Err(Malformed::Field);
        }
        Ok(Self {
            kind,
            body: u16_at(bytes, 2),
            tag: u32_at(bytes, 4),
            generation: u32_at(bytes, 8),
            awaited: u32_at(bytes, 12),
            number: u64_at(bytes, 16),
            below: u32_at(bytes, 24),
            held: u16_at(bytes, 28),
            waits: waits == 1,
            calls: quiet & CALLS,
            asks: quiet >> ASKS,
            bits: u64_at(bytes, 32),
            words,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        kind: Kind::Data,
        body: 1408,
        tag: 7,
        generation: 0xdead_beef,
        awaited: 3,
        number: u64::MAX - 5,
        below: 9,
        held: 77,
        waits: true,
        calls: 2,
        asks: 31,
        bits: 1 << 63,
        words: [5, 1 << 30],
    };

    #[test]
    fn words_are_what_their_kind_says() {
        let takes = |kind, words| Header::from_bytes(&Header { kind, words, ..HEADER }.to_bytes()).is_ok();
        for kind in [Kind::Records, Kind::Data] {
            assert!(takes(kind, [u32::MAX; 2]));
        }
        for kind in [Kind::Open, Kind::Close] {
            assert!(takes(kind, [u32::MAX, 0]) && !takes(kind, [0, 1]));
        }
        assert!(takes(Kind::Note, [1, 0]) && !takes(Kind::Note, [2, 0]) && !takes(Kind::Note, [0, 1]));
        for kind in [Kind::Hello, Kind::Retry, Kind::Welcome, Kind::Refuse, Kind::Probe] {
            assert!(takes(kind, [0, 0]) && !takes(kind, [1, 0]) && !takes(kind, [0, 1]));
        }
    }

    #[test]
    fn a_frame_header_survives_its_bytes() {
        assert_eq!(Header::from_bytes(&HEADER.to_bytes()), Ok(HEADER));
    }

    #[test]
    fn frames_of_another_version_or_kind_are_refused() {
        let mut bytes = HEADER.to_bytes();
        bytes[1] = 5;
        assert_eq!(Header::from_bytes(&bytes), Err(Malformed::Kind));
        bytes[0] = 2;
        assert_eq!(Header::from_bytes(&bytes), Err(Malformed::Version(2)));
        for (at, value) in [(30, 2), (31, 0x80)] {
            let mut bytes = HEADER.to_bytes();
            bytes[at] = value;
            assert_eq!(Header::from_bytes(&bytes), Err(Malformed::Field));
        }
    }
}
