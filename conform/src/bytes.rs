//! Payloads whose every byte can be checked.

/// The sizes at which payloads are checked: nothing, single bytes, both sides of a cache line and of a page, beyond a
/// page of 64 KiB, and longer than any staging ring of the suite.
pub const SIZES: [usize; 10] = [0, 1, 63, 64, 4095, 4096, 4097, (64 << 10) + 1, 1 << 20, 17 << 20];

/// The bytes of payload number `seed`: no two payloads and no two pages of one are alike.
#[must_use]
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(seed, &mut bytes);
    bytes
}

/// Writes [`pattern`] into memory that is there already.
pub fn fill(seed: u64, into: &mut [u8]) {
    for (place, chunk) in (0u64..).zip(into.chunks_mut(8)) {
        chunk.copy_from_slice(&word(seed, place)[..chunk.len()]);
    }
}

/// Checks every byte against [`pattern`].
///
/// # Panics
/// If one differs; the message says where the first one is.
pub fn check(seed: u64, bytes: &[u8]) {
    for (place, chunk) in (0u64..).zip(bytes.chunks(8)) {
        assert_eq!(chunk, &word(seed, place)[..chunk.len()], "payload {seed}, {} bytes, word {place}", bytes.len());
    }
}

/// Word `place` of payload `seed` (the finaliser of SplitMix64).
fn word(seed: u64, place: u64) -> [u8; 8] {
    let value = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(place);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (value ^ (value >> 27)).to_le_bytes()
}
