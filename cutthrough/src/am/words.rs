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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_words_are_those_at_their_places() {
        let args: [u8; 64] = std::array::from_fn(|at| u8::try_from(at * 3).expect("below 192"));
        for len in 0..=args.len() {
            let args = &args[..len];
            let words: [u32; 16] = first(args);
            assert_eq!(words, std::array::from_fn(|index| at(args, index)), "{len} bytes");
            assert_eq!(first::<3>(args), [at(args, 0), at(args, 1), at(args, 2)], "{len} bytes");
        }
        assert_eq!(first(&[1, 0, 0, 0, 2, 0, 0, 1, 9]), [1, 0x0100_0002, 0]);
    }
}
