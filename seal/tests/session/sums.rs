//! Check sums, where plain text was asked for: what the wire changes is found, and the sum is the one of the rule.

use cutthrough_seal::CheckSum;
use cutthrough_wire::seal::{OPENING_NUMBER, Seal};
use proptest::prelude::*;

/// Of no bytes, with the seed 0: published by XXH3's author among his sanity checks.
const OF_NOTHING: u64 = 0x2d06_8005_38d3_94c2;

#[test]
fn header_and_body_have_a_sum_each() {
    let mut plain = CheckSum::default();
    let seal = plain.sum(7, b"", b"");
    assert_eq!(seal, [OF_NOTHING.to_le_bytes(), OF_NOTHING.to_le_bytes()].concat()[..]);
    let (with_header, with_body) = (plain.sum(7, b"header", b""), plain.sum(7, b"", b"body"));
    assert_eq!((&with_header[8..], &with_body[..8]), (&seal[8..], &seal[..8]));
    assert_ne!((&with_header[..8], &with_body[8..]), (&seal[..8], &seal[8..]));
    let opening = plain.sum(7 | OPENING_NUMBER, b"header", b"body");
    assert_ne!(opening, plain.sum(7, b"header", b"body"));
}

proptest! {
    #[test]
    fn any_changed_bit_is_found(
        header in prop::collection::vec(any::<u8>(), 48),
        body in prop::collection::vec(any::<u8>(), 0..9000),
        opening: bool,
        place: prop::sample::Index,
    ) {
        let number = if opening { OPENING_NUMBER } else { 0 };
        let mut plain = CheckSum::default();
        let mut apart = vec![0; body.len()];
        let seal = plain.sum(number, &header, &body);
        prop_assert_eq!(plain.seal_into(number, &header, &body, &mut apart), seal);
        prop_assert_eq!(&apart, &body);
        prop_assert_eq!(plain.seal(number, &header, &mut apart), seal);
        prop_assert!(plain.open(number, &header, &seal, &mut apart));
        prop_assert!(!plain.open(number ^ OPENING_NUMBER, &header, &seal, &mut apart));
        // All that travels, as one row of bits.
        let mut all = [&header[..], &seal, &body].concat();
        let bit = place.index(all.len() * 8);
        all[bit / 8] ^= 1 << (bit % 8);
        let (header, rest) = all.split_at(48);
        let (seal, body) = rest.split_first_chunk().unwrap();
        prop_assert!(!plain.open(number, header, seal, &mut body.to_vec()));
    }
}
