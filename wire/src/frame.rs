//! What crosses a network: frames of a 64-byte header and a body (rules N1 to N15).
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
//!  30..32    zero
//!  32..40    bits: which of the numbers after `below` have arrived
//!  40..48    two words by kind
//!  48..64    seal of the 48 bytes before it and of the body: a check sum, or the tag of a cipher
//! ```
//!
//! The seal lies in the header, so that a payload is bare: the receiver's scatter list puts headers aside and payloads
//! where they belong, and they are opened there.

use crate::slot::{CONTROL_MAX, PAYLOAD_MAX};
use crate::token::Token;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a header that the seal protects: all but the seal.
pub const SEALED_BYTES: usize = 48;
/// Bytes of a seal.
pub const SEAL_BYTES: usize = 16;
/// Bytes of an opening: what stands before the payload in the first frame of a message that has one. The last 16 are
/// the opening's own seal.
pub const OPENING_BYTES: usize = 144;
/// Bytes at the head of a body of records: how far the receiver of this frame may go.
pub const LIMITS_BYTES: usize = 8;
/// Bytes of a record without its control message.
pub const RECORD_BYTES: usize = 2;
/// Bytes of a body of a note without ranges and grants.
pub const NOTE_BYTES: usize = 16;
/// Bytes of a range or a grant in a note.
pub const NOTE_ENTRY_BYTES: usize = 8;
/// Bytes of a body of a greeting without the handshake of the cipher.
pub const GREETING_BYTES: usize = 56;
/// Most bytes of a cipher's handshake message.
pub const HANDSHAKE_MAX: usize = 512;
/// Least body that every path carries: an opening and some payload, or a greeting, within 1,200 bytes of datagram.
pub const BODY_MIN: u16 = 1200 - 64;
/// Version of the frames (rule N1).
pub const FRAME_VERSION: u8 = 1;

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
    /// Which of the numbers after `below` have arrived: bit `i` is number `below + 1 + i`.
    pub bits: u64,
    /// By kind: [`Kind::Records`]: number of the first message and how many; [`Kind::Open`], [`Kind::Data`]: number of
    /// the message and offset in its payload; [`Kind::Close`]: how many messages were sent in all, and why it ends.
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

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

impl Header {
    /// The header as bytes; the seal is zero.
    #[must_use]
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = FRAME_VERSION;
        bytes[1] = self.kind as u8;
        put(&mut bytes, 2, &self.body.to_le_bytes());
        put(&mut bytes, 4, &self.tag.to_le_bytes());
        put(&mut bytes, 8, &self.generation.to_le_bytes());
        put(&mut bytes, 12, &self.awaited.to_le_bytes());
        put(&mut bytes, 16, &self.number.to_le_bytes());
        put(&mut bytes, 24, &self.below.to_le_bytes());
        put(&mut bytes, 28, &self.held.to_le_bytes());
        put(&mut bytes, 32, &self.bits.to_le_bytes());
        put(&mut bytes, 40, &self.words[0].to_le_bytes());
        put(&mut bytes, 44, &self.words[1].to_le_bytes());
        bytes
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
        if u16_at(bytes, 30) != 0 {
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
            bits: u64_at(bytes, 32),
            words: [u32_at(bytes, 40), u32_at(bytes, 44)],
        })
    }
}

/// How far the receiver of a frame may go: counters that only grow, their low 32 bits (rule N7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Messages: numbers below this one may be sent.
    pub messages: u32,
    /// Payload bytes that may be sent without having been asked for, counted since the channel was opened.
    pub unasked: u32,
}

impl Limits {
    /// The limits as bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; LIMITS_BYTES] {
        let mut bytes = [0; LIMITS_BYTES];
        put(&mut bytes, 0, &self.messages.to_le_bytes());
        put(&mut bytes, 4, &self.unasked.to_le_bytes());
        bytes
    }

    /// Takes limits apart.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { messages: u32_at(bytes, 0), unasked: u32_at(bytes, 4) }
    }
}

/// The beginning of a message with a payload (rule N6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// Bytes of the payload.
    pub payload: u32,
    /// How many of them the sender sends without being asked.
    pub unasked: u32,
    /// Where the payload shall land, if the sender knows.
    pub token: Option<Token>,
    /// Whether the payload comes from pages, so that it has to land in pages.
    pub pages: bool,
    /// How far the other side may go.
    pub limits: Limits,
    /// Bytes of the control message.
    pub control_len: u8,
    /// The control message.
    pub control: [u8; CONTROL_MAX],
}

impl Opening {
    /// The opening as bytes; its seal is zero.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; OPENING_BYTES] {
        let mut bytes = [0; OPENING_BYTES];
        put(&mut bytes, 0, &self.payload.to_le_bytes());
        bytes[4] = self.control_len;
        bytes[5] = u8::from(self.token.is_some()) | u8::from(self.pages) << 1;
        if let Some(token) = self.token {
            put(&mut bytes, 6, &token.index.to_le_bytes());
            put(&mut bytes, 8, &token.key.to_le_bytes());
        }
        put(&mut bytes, 16, &self.unasked.to_le_bytes());
        put(&mut bytes, 20, &self.limits.to_bytes());
        put(&mut bytes, 32, &self.control);
        bytes
    }

    /// Takes an opening apart.
    ///
    /// # Errors
    /// [`Malformed::Field`].
    pub fn from_bytes(bytes: &[u8; OPENING_BYTES]) -> Result<Self, Malformed> {
        let (payload, unasked) = (u32_at(bytes, 0), u32_at(bytes, 16));
        let (control_len, flags) = (bytes[4], bytes[5]);
        let good = u64::from(payload) <= PAYLOAD_MAX
            && unasked <= payload
            && usize::from(control_len) <= CONTROL_MAX
            && flags < 4
            && u32_at(bytes, 28) == 0;
        if !good {
            return Err(Malformed::Field);
        }
        let token = (flags & 1 == 1).then(|| Token { index: u16_at(bytes, 6), key: u64_at(bytes, 8) });
        let mut control = [0; CONTROL_MAX];
        control.copy_from_slice(&bytes[32..32 + CONTROL_MAX]);
        let limits = Limits::from_bytes(&bytes[20..28]);
        Ok(Self { payload, unasked, token, pages: flags & 2 != 0, limits, control_len, control })
    }
}

/// The control messages in a body of records, without the limits before them (rule N5).
#[derive(Debug, Clone)]
pub struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    /// The records in these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether these bytes are whole records, `count` of them.
    #[must_use]
    pub fn are(&self, count: u32) -> bool {
        let mut rest = self.clone();
        let mut have = 0;
        while rest.next().is_some() {
            have += 1;
        }
        rest.0.is_empty() && have == count
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];
    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (&[len, zero], rest) = self.0.split_first_chunk()?;
        if zero != 0 || usize::from(len) > CONTROL_MAX || rest.len() < usize::from(len) {
            return None;
        }
        let (control, rest) = rest.split_at(usize::from(len));
        self.0 = rest;
        Some(control)
    }
}

/// Ranges of numbers that have arrived, and grants (rules N8, N9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note<'a> {
    /// How far the other side may go.
    pub limits: Limits,
    /// Ranges that have arrived, then grants.
    entries: &'a [u8],
    ranges: u16,
}

impl<'a> Note<'a> {
    /// The head of a note with so many ranges and grants behind it.
    #[must_use]
    pub fn head(limits: Limits, ranges: u16, grants: u16) -> [u8; NOTE_BYTES] {
        let mut bytes = [0; NOTE_BYTES];
        put(&mut bytes, 0, &limits.to_bytes());
        put(&mut bytes, 8, &ranges.to_le_bytes());
        put(&mut bytes, 10, &grants.to_le_bytes());
        bytes
    }

    /// A range of numbers from `first` on, or a grant: of the payload of message `first`, up to byte `second`.
    #[must_use]
    pub fn entry(first: u32, second: u32) -> [u8; NOTE_ENTRY_BYTES] {
        let mut bytes = [0; NOTE_ENTRY_BYTES];
        put(&mut bytes, 0, &first.to_le_bytes());
        put(&mut bytes, 4, &second.to_le_bytes());
        bytes
    }

    /// Takes a note apart.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let Some((head, entries)) = bytes.split_at_checked(NOTE_BYTES) else { return Err(Malformed::Short) };
        let (ranges, grants) = (u16_at(head, 8), u16_at(head, 10));
        if entries.len() != (usize::from(ranges) + usize::from(grants)) * NOTE_ENTRY_BYTES || u32_at(head, 12) != 0 {
            return Err(Malformed::Field);
        }
        Ok(Self { limits: Limits::from_bytes(head), entries, ranges })
    }

    /// Low bits of the first number, and how many have arrived from there on.
    pub fn ranges(&self) -> impl Iterator<Item = (u32, u32)> + 'a {
        pairs(&self.entries[..usize::from(self.ranges) * NOTE_ENTRY_BYTES])
    }

    /// Number of a message, and up to which byte of its payload the receiver takes now; [`WANTS_NO_MORE`] if it
    /// wants nothing more of it.
    pub fn grants(&self) -> impl Iterator<Item = (u32, u32)> + 'a {
        pairs(&self.entries[usize::from(self.ranges) * NOTE_ENTRY_BYTES..])
    }
}

/// Grant that says: send nothing more of this payload, it is not wanted.
pub const WANTS_NO_MORE: u32 = u32::MAX;

fn pairs(bytes: &[u8]) -> impl Iterator<Item = (u32, u32)> + '_ {
    bytes.as_chunks::<NOTE_ENTRY_BYTES>().0.iter().map(|entry| (u32_at(entry, 0), u32_at(entry, 4)))
}

/// What two endpoints tell each other of themselves and of the channel to be (rule N10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// Which channel frames for the one who greets shall name.
    pub tag: u32,
    /// Which life of it.
    pub generation: u32,
    /// Random number of this life of the endpoint.
    pub life: u64,
    /// What the caller was told by [`Kind::Retry`]; 0 at first.
    pub cookie: u64,
    /// Longest body that the one who greets takes.
    pub body: u16,
    /// How far the other side may go at first.
    pub limits: Limits,
    /// Process and user, for people to read; not proved.
    pub process: u32,
    /// User.
    pub user: u32,
}

impl Greeting {
    /// The greeting as bytes, for a handshake message of `handshake` bytes behind it.
    #[must_use]
    pub fn to_bytes(&self, handshake: u16) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        put(&mut bytes, 0, &self.tag.to_le_bytes());
        put(&mut bytes, 4, &self.generation.to_le_bytes());
        put(&mut bytes, 8, &self.life.to_le_bytes());
        put(&mut bytes, 16, &self.cookie.to_le_bytes());
        put(&mut bytes, 24, &self.body.to_le_bytes());
        put(&mut bytes, 26, &handshake.to_le_bytes());
        put(&mut bytes, 28, &self.limits.to_bytes());
        put(&mut bytes, 36, &self.process.to_le_bytes());
        put(&mut bytes, 40, &self.user.to_le_bytes());
        bytes
    }

    /// The greeting in a body, and the handshake message behind it.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let Some((head, rest)) = bytes.split_at_checked(GREETING_BYTES) else { return Err(Malformed::Short) };
        let handshake = usize::from(u16_at(head, 26));
        let body = u16_at(head, 24);
        if handshake > HANDSHAKE_MAX || body < BODY_MIN {
            return Err(Malformed::Field);
        }
        let Some(handshake) = rest.get(..handshake) else { return Err(Malformed::Short) };
        let greeting = Self {
            tag: u32_at(head, 0),
            generation: u32_at(head, 4),
            life: u64_at(head, 8),
            cookie: u64_at(head, 16),
            body,
            limits: Limits::from_bytes(&head[28..36]),
            process: u32_at(head, 36),
            user: u32_at(head, 40),
        };
        Ok((greeting, handshake))
    }
}

/// Why a caller is not let in (rule N11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// Another version of the frames.
    Version = 1,
    /// The endpoint has all channels that its settings allow.
    Channels = 2,
    /// The keys do not fit, or one side wants a seal and the other does not.
    Key = 3,
    /// Nobody listens here.
    Nobody = 4,
}

impl Refusal {
    /// The refusal with number `raw`, if there is one.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            1 => Self::Version,
            2 => Self::Channels,
            3 => Self::Key,
            4 => Self::Nobody,
            _ => return None,
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
        bits: 1 << 63,
        words: [5, 1 << 30],
    };

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
        let mut bytes = HEADER.to_bytes();
        bytes[31] = 1;
        assert_eq!(Header::from_bytes(&bytes), Err(Malformed::Field));
    }

    #[test]
    fn an_opening_survives_its_bytes() {
        let opening = Opening {
            payload: 1 << 30,
            unasked: 65_536,
            token: Some(Token { index: 3, key: 4 }),
            pages: true,
            limits: Limits { messages: 1, unasked: 2 },
            control_len: 96,
            control: [9; CONTROL_MAX],
        };
        assert_eq!(Opening::from_bytes(&opening.to_bytes()), Ok(opening));
        let none = Opening { token: None, pages: false, ..opening };
        assert_eq!(Opening::from_bytes(&none.to_bytes()), Ok(none));
        let empty = Opening { payload: 0, unasked: 0, ..opening };
        assert_eq!(Opening::from_bytes(&empty.to_bytes()), Ok(empty));
        let too_long = Opening { payload: (1 << 30) + 1, ..opening };
        assert_eq!(Opening::from_bytes(&too_long.to_bytes()), Err(Malformed::Field));
        let beyond = Opening { payload: 5, unasked: 6, ..opening };
        assert_eq!(Opening::from_bytes(&beyond.to_bytes()), Err(Malformed::Field));
    }

    #[test]
    fn records_are_whole_or_refused() {
        let bytes = [2, 0, 7, 8, 0, 0, 1, 0, 9];
        let records = Records::new(&bytes);
        assert!(records.are(3) && !records.are(2) && !records.are(4));
        assert!(records.eq([&[7, 8][..], &[], &[9]]));
        assert!(!Records::new(&bytes[..8]).are(3));
        assert!(!Records::new(&[97, 0]).are(1));
        assert!(!Records::new(&[0, 1]).are(1));
    }

    #[test]
    fn a_note_is_taken_apart() {
        let mut bytes = [0; NOTE_BYTES + 3 * NOTE_ENTRY_BYTES];
        bytes[..NOTE_BYTES].copy_from_slice(&Note::head(Limits { messages: 1, unasked: 2 }, 2, 1));
        for (entry, pair) in bytes[NOTE_BYTES..].as_chunks_mut::<8>().0.iter_mut().zip([(1, 2), (3, 4), (5, 6)]) {
            *entry = Note::entry(pair.0, pair.1);
        }
        let note = Note::from_bytes(&bytes).unwrap();
        assert!(note.ranges().eq([(1, 2), (3, 4)]) && note.grants().eq([(5, 6)]));
        assert_eq!(Note::from_bytes(&bytes[..NOTE_BYTES + 16]), Err(Malformed::Field));
        assert_eq!(Note::from_bytes(&bytes[..NOTE_BYTES - 1]), Err(Malformed::Short));
    }

    #[test]
    fn a_greeting_survives_its_bytes() {
        let greeting = Greeting {
            tag: 1,
            generation: 2,
            life: 3,
            cookie: 4,
            body: BODY_MIN,
            limits: Limits { messages: 5, unasked: 6 },
            process: 7,
            user: 8,
        };
        let mut bytes = [3; GREETING_BYTES + 20];
        bytes[..GREETING_BYTES].copy_from_slice(&greeting.to_bytes(10));
        assert_eq!(Greeting::from_bytes(&bytes), Ok((greeting, &[3; 10][..])));
        bytes[..GREETING_BYTES].copy_from_slice(&greeting.to_bytes(21));
        assert_eq!(Greeting::from_bytes(&bytes), Err(Malformed::Short));
        let short = Greeting { body: BODY_MIN - 1, ..greeting };
        assert_eq!(Greeting::from_bytes(&short.to_bytes(0)), Err(Malformed::Field));
    }
}
