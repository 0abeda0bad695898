//! Arguments as words of 32 bits, little-endian.

/// A word of the arguments; 0 beyond their end.
#[inline]
pub(super) fn at(args: &[u8], index: usize) -> u32 {
    let word = args.get(index * 4..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u32::from_le_bytes(*word))
}

/// The first words of the arguments; 0 beyond their end.
#[inline]
pub(super) fn first<const N: usize>(args: &[u8]) -> [u32; N] {
    let (words, _) = args.as_chunks();
    match words.first_chunk::<N>() {
        Some(words) => words.map(u32::from_le_bytes),
        None => std::array::from_fn(|index| at(args, index)),
    }
}
