//! Bodies of the frames of a channel: control messages, the beginnings of payloads, and how far the other side may go.

use super::{Malformed, put, u16_at, u32_at, u64_at};
use crate::slot::{CONTROL_MAX, PAYLOAD_MAX};
use crate::token::Token;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
