//! The frames of `perf defrag` in our own form: a header of 64 bytes, and a slice of a page whose first byte says
//! which one it is.

use cutthrough_node::raw::xdp::place::Key;

/// Bytes of our header before each fragment.
pub(super) const HEADER: usize = 64;

/// The first byte of a fragment, by which it is known again.
pub(super) fn content(key: Key, at: usize) -> u8 {
    let [a, b, ..] = key.message.to_le_bytes();
    a ^ b.rotate_left(3) ^ u8::try_from(at / 64 % 251).unwrap_or(0) ^ u8::try_from(key.tag).unwrap_or(0).rotate_left(6)
}

pub(super) fn header(key: Key, at: usize, bytes: usize) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    // As `cutthrough_wire::frame` has it: version 1, kind Data, the body's bytes, tag, generation, message, offset.
    header[..2].copy_from_slice(&[1, 10]);
    header[2..4].copy_from_slice(&u16::try_from(bytes).unwrap_or(u16::MAX).to_le_bytes());
    header[4..8].copy_from_slice(&key.tag.to_le_bytes());
    header[8..12].copy_from_slice(&key.generation.to_le_bytes());
    header[40..44].copy_from_slice(&key.message.to_le_bytes());
    let offset = key.first + u32::try_from(at).unwrap_or(u32::MAX);
    header[44..48].copy_from_slice(&offset.to_le_bytes());
    header
}

/// Tag, message, and where the fragment belongs.
pub(super) fn parse(header: &[u8]) -> Option<(u32, u32, usize)> {
    let word = |at: usize| header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    Some((word(4)?, word(40)?, usize::try_from(word(44)?).ok()?))
}
