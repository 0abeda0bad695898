//! Frames: what is sealed opens, what is changed does not, and the keys move on when they should.

use cutthrough_seal::{BESIDE, Cipher, EPOCH, Forged, Opener, Sealer, TAG};
use proptest::prelude::*;

use crate::sides::{meet, shared};

/// One direction of a session.
fn direction(cipher: Cipher) -> (Sealer, Opener) {
    let (.., ours, theirs) = meet((&shared(), &shared()), cipher);
    (ours.sealer, theirs.opener)
}

fn ciphers() -> impl Strategy<Value = Cipher> {
    prop_oneof![Just(Cipher::Aes256Gcm), Just(Cipher::ChaCha20Poly1305)]
}

/// Numbers that a first frame can have, of bodies and beside them.
fn numbers() -> impl Strategy<Value = u64> {
    (0..2 * EPOCH, any::<bool>()).prop_map(|(number, beside)| if beside { number | BESIDE } else { number })
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..most)
}

/// A sealed frame.
#[derive(Clone)]
struct Frame {
    number: u64,
    tag: [u8; TAG],
    body: Vec<u8>,
}

/// A frame whose body is its number.
fn frame(sealer: &mut Sealer, number: u64) -> Frame {
    let mut body = number.to_le_bytes().to_vec();
    let tag = sealer.seal_in_place(number, b"header", &mut body);
    Frame { number, tag, body }
}

fn open(opener: &mut Opener, frame: &Frame) -> Result<(), Forged> {
    let mut body = frame.body.clone();
    opener.open(frame.number, b"header", &frame.tag, &mut body)?;
    assert_eq!(body, frame.number.to_le_bytes());
    Ok(())
}

proptest! {
    #[test]
    fn what_is_sealed_opens(cipher in ciphers(), number in numbers(), header in bytes(100), plain in bytes(3000)) {
        let (mut apart, mut opener) = direction(cipher);
        let (mut in_place, _) = direction(cipher);
        let mut sealed = vec![0; plain.len()];
        let tag = apart.seal(number, &header, &plain, &mut sealed);
        let mut body = plain.clone();
        prop_assert_eq!(in_place.seal_in_place(number, &header, &mut body), tag);
        prop_assert_eq!(&body, &sealed);
        prop_assert!(plain.len() < 16 || sealed != plain);
        let mut opened = vec![0; plain.len()];
        prop_assert_eq!(opener.open_apart(number, &header, &tag, &sealed, &mut opened), Ok(()));
        prop_assert_eq!(&opened, &plain);
        prop_assert_eq!(opener.open(number, &header, &tag, &mut body), Ok(()));
        prop_assert_eq!(&body, &plain);
    }

    #[test]
    fn any_flipped_bit_is_refused(
        cipher in ciphers(),
        number in numbers(),
        header in bytes(100),
        plain in bytes(300),
        place: prop::sample::Index,
    ) {
        let (mut sealer, mut opener) = direction(cipher);
        let mut body = plain.clone();
        let tag = sealer.seal_in_place(number, &header, &mut body);
        // All that travels, as one row of bits.
        let (at_body, at_tag) = (header.len() + 8, header.len() + 8 + body.len());
        let mut all = [&header[..], &number.to_le_bytes(), &body, &tag].concat();
        let bit = place.index(all.len() * 8);
        all[bit / 8] ^= 1 << (bit % 8);
        let (header, rest) = all[..at_tag].split_at(at_body - 8);
        let (number, sealed) = rest.split_first_chunk().unwrap();
        let number = u64::from_le_bytes(*number);
        let tag = *all[at_tag..].first_chunk().unwrap();
        let mut opened = vec![0; sealed.len()];
        prop_assert_eq!(opener.open_apart(number, header, &tag, sealed, &mut opened), Err(Forged));
        prop_assert!(plain.len() < 16 || opened != plain);
        prop_assert_eq!(opener.open(number, header, &tag, &mut sealed.to_vec()), Err(Forged));
    }

    #[test]
    fn any_frame_of_a_stranger_is_refused(
        cipher in ciphers(),
        number: u64,
        near in 0..4 * EPOCH,
        header in bytes(80),
        tag: [u8; TAG],
        mut body in bytes(200),
        room in 0_usize..200,
    ) {
        let (_, mut opener) = direction(cipher);
        for number in [number, near] {
            let mut plain = vec![0; room];
            prop_assert_eq!(opener.open_apart(number, &header, &tag, &body, &mut plain), Err(Forged));
            prop_assert_eq!(opener.open(number, &header, &tag, &mut body), Err(Forged));
        }
    }

    /// The oracle: a frame opens, if it is of the epoch of the newest frame that has opened, of the one before, or of
    /// the one after.
    #[test]
    fn frames_of_two_epochs_open_in_any_order(
        cipher in ciphers(),
        mut order in Just((0..6).flat_map(|epoch| [0, 7, EPOCH - 1].map(|at| epoch * EPOCH + at)).collect::<Vec<_>>())
            .prop_shuffle(),
        repeated in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        forged in prop::collection::vec(any::<u64>(), 40),
    ) {
        let (mut sealer, mut opener) = direction(cipher);
        let mut numbers = order.clone();
        numbers.sort_unstable();
        let frames: Vec<Frame> = numbers.iter().map(|number| frame(&mut sealer, *number)).collect();
        // Mostly in order, so that all epochs are reached.
        order.sort_by_key(|number| number / EPOCH / 2);
        order.extend(repeated.iter().map(|index| numbers[index.index(numbers.len())]));
        let mut newest = 0;
        for (number, forged) in order.into_iter().zip(forged) {
            let frame = &frames[numbers.binary_search(&number).unwrap()];
            for near in [forged, newest * EPOCH + forged % (3 * EPOCH)] {
                let lie = Frame { number: near, tag: [0; TAG], ..frame.clone() };
                prop_assert_eq!(open(&mut opener, &lie), Err(Forged));
            }
            let epoch = number / EPOCH;
            let due = epoch <= newest + 1 && epoch + 1 >= newest;
            prop_assert_eq!(open(&mut opener, frame), if due { Ok(()) } else { Err(Forged) }, "frame {}", number);
            newest = if due { newest.max(epoch) } else { newest };
        }
    }
}

#[test]
fn keys_move_on_at_the_border_in_either_order() {
    for cipher in [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
        let (mut sealer, mut opener) = direction(cipher);
        let last = frame(&mut sealer, EPOCH - 1);
        let first = frame(&mut sealer, EPOCH);
        assert_eq!(open(&mut opener, &first), Ok(()));
        assert_eq!(open(&mut opener, &last), Ok(()));
        let next = frame(&mut sealer, 2 * EPOCH);
        assert_eq!(open(&mut opener, &next), Ok(()));
        assert_eq!(open(&mut opener, &first), Ok(()));
        assert_eq!(open(&mut opener, &last), Err(Forged));
    }
}

#[test]
fn a_frame_of_one_epoch_is_none_of_another() {
    let (mut sealer, mut opener) = direction(Cipher::Aes256Gcm);
    let mut moved = frame(&mut sealer, 5);
    moved.number += EPOCH;
    assert_eq!(open(&mut opener, &moved), Err(Forged));
    moved.number -= EPOCH;
    assert_eq!(open(&mut opener, &moved), Ok(()));
}

#[test]
fn frames_that_skip_an_epoch_are_refused_and_change_nothing() {
    let (mut sealer, mut opener) = direction(Cipher::Aes256Gcm);
    let near = frame(&mut sealer, 3);
    let next = frame(&mut sealer, EPOCH + 3);
    let far = frame(&mut sealer, 2 * EPOCH + 3);
    for number in [far.number, u64::MAX, 3 * EPOCH, 1 << 63] {
        assert_eq!(open(&mut opener, &Frame { number, ..far.clone() }), Err(Forged));
    }
    assert_eq!(open(&mut opener, &near), Ok(()));
    assert_eq!(open(&mut opener, &next), Ok(()));
    assert_eq!(open(&mut opener, &far), Ok(()));
}

#[test]
fn what_does_not_open_gives_nothing_away() {
    for cipher in [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
        let (mut sealer, mut opener) = direction(cipher);
        let plain = [b'x'; 500];
        let mut sealed = [0; 500];
        let mut tag = sealer.seal(0, b"header", &plain, &mut sealed);
        tag[3] ^= 1;
        let mut opened = [1; 500];
        assert_eq!(opener.open_apart(0, b"header", &tag, &sealed, &mut opened), Err(Forged));
        assert_eq!(opener.open(0, b"header", &tag, &mut sealed), Err(Forged));
        for bytes in [opened, sealed] {
            assert!(!bytes.windows(8).any(|eight| eight == &plain[..8]));
        }
    }
}

#[test]
fn the_two_directions_have_keys_of_their_own() {
    let (.., mut ours, mut theirs) = meet((&shared(), &shared()), Cipher::Aes256Gcm);
    let one = frame(&mut ours.sealer, 0);
    assert_ne!(one.body, frame(&mut theirs.sealer, 0).body);
    assert_eq!(open(&mut ours.opener, &one), Err(Forged));
    assert_eq!(open(&mut theirs.opener, &one), Ok(()));
}

#[test]
fn a_frame_has_room_for_a_text_beside_its_body() {
    let (mut sealer, mut opener) = direction(Cipher::Aes256Gcm);
    for (first, then) in [(0, BESIDE), (BESIDE | 1, 1), (EPOCH, BESIDE | EPOCH), (BESIDE | (2 * EPOCH), 2 * EPOCH)] {
        let (mut one, mut other) = (*b"the same", *b"the same");
        let tags =
            [sealer.seal_in_place(first, b"header", &mut one), sealer.seal_in_place(then, b"header", &mut other)];
        assert_ne!(one, other);
        assert_eq!(opener.open(first, b"header", &tags[1], &mut other.clone()), Err(Forged));
        assert_eq!(opener.open(then, b"header", &tags[1], &mut other), Ok(()));
        assert_eq!(opener.open(first, b"header", &tags[0], &mut one), Ok(()));
        assert_eq!((&one, &other), (b"the same", b"the same"));
    }
}

#[test]
#[should_panic(expected = "a number is never used again")]
fn a_number_is_used_once_beside_bodies_too() {
    let (mut sealer, _) = direction(Cipher::Aes256Gcm);
    frame(&mut sealer, 8);
    frame(&mut sealer, BESIDE | 8);
    frame(&mut sealer, BESIDE | 8);
}

#[test]
#[should_panic(expected = "an epoch that has ended")]
fn an_epoch_that_has_ended_does_not_come_back_beside_bodies() {
    let (mut sealer, _) = direction(Cipher::Aes256Gcm);
    frame(&mut sealer, EPOCH);
    frame(&mut sealer, BESIDE | 8);
}

#[test]
#[should_panic(expected = "a number is never used again")]
fn a_number_is_used_once() {
    let (mut sealer, _) = direction(Cipher::Aes256Gcm);
    frame(&mut sealer, 8);
    frame(&mut sealer, 8);
}

#[test]
#[should_panic(expected = "skips an epoch")]
fn an_epoch_is_not_skipped() {
    frame(&mut direction(Cipher::Aes256Gcm).0, 2 * EPOCH);
}
