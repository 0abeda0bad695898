use alloc::vec;
use alloc::vec::Vec;

use cutthrough_wire::frame::OPENING_BYTES;

use super::*;

fn cargo(bytes: usize) -> Cargo<Vec<u8>> {
    Cargo { load: vec![7; bytes], token: None, pages: true, cookie: None }
}

/// On a path that has become wider an opening that was lost takes more along, and what followed it is cut off
/// there: nobody keeps bytes that the other side has.
#[test]
fn nothing_that_the_other_side_has_goes_again_with_what_it_lacks() {
    let mut outbox = Outbox::new(Limits { messages: 8, unasked: 1 << 20 }, 0);
    outbox.push(b"long", Some(cargo(10_000)));
    let content = |next: Option<Next>| match next {
        Some(Next::Open { message, len, .. }) => Content::Open { message, len },
        Some(Next::Data { message, offset, len }) => Content::Data { message, offset, len },
        other => panic!("{other:?}"),
    };
    let sent: Vec<Content> = (0..4).map(|_| content(outbox.next_frames(1400, 1))).collect();
    sent.into_iter().for_each(|content| outbox.lost(content));
    let opening = content(outbox.next_frames(3000, 1));
    let Content::Open { len: first, .. } = opening else { panic!("{opening:?}") };
    outbox.acked(opening);
    let mut lacks = Vec::new();
    outbox.lacks(0, |begin, end| lacks.push((begin, end)));
    assert_eq!(lacks, [(first as usize, 10_000)]);
    let Content::Data { offset, .. } = content(outbox.next_frames(3000, 1)) else { panic!("no data") };
    assert_eq!(offset, first);
}

#[test]
fn what_the_other_side_lacks_is_told_gap_by_gap() {
    let mut outbox = Outbox::new(Limits { messages: 8, unasked: 1 << 20 }, 0);
    let message = outbox.push(b"long", Some(cargo(5_000)));
    let lacks = |outbox: &mut Outbox<Vec<u8>>| {
        let mut lacks = Vec::new();
        outbox.lacks(message, |begin, end| lacks.push((begin, end)));
        (outbox.acknowledged_bytes(message), lacks)
    };
    while outbox.next_frames(1000, 1).is_some() {}
    outbox.acked(Content::Data { message, offset: 2000, len: 1000 });
    // Its opening may go again with any part of it.
    assert_eq!(lacks(&mut outbox), (0, vec![(0, 5000)]));
    outbox.acked(Content::Open { message, len: 500 });
    assert_eq!(lacks(&mut outbox), (1500, vec![(500, 2000), (3000, 5000)]));
    outbox.acked(Content::Data { message, offset: 3000, len: 2000 });
    assert_eq!(lacks(&mut outbox), (3500, vec![(500, 2000)]));
    outbox.acked(Content::Data { message, offset: 500, len: 1500 });
    assert_eq!(lacks(&mut outbox), (0, vec![]));
}

#[test]
fn low_halves_are_widened_to_what_is_near() {
    assert_eq!(widen(5, 3), 5);
    assert_eq!(widen(u32::MAX, 1 << 32), (1 << 32) - 1);
    assert_eq!(widen(2, (1 << 32) - 3), (1 << 32) + 2);
    assert_eq!(widen(u32::MAX, 0), 0);
}

#[test]
fn what_is_ahead_is_all_that_waits_up_to_enough() {
    let mut outbox = Outbox::new(Limits { messages: 1000, unasked: 20_000 }, 0);
    let ahead = |outbox: &Outbox<Vec<u8>>| outbox.ahead(1 << 20);
    assert_eq!(ahead(&outbox), 0);
    outbox.push(b"short", None);
    outbox.push(b"long", Some(cargo(8_000)));
    outbox.push(b"long", Some(cargo(8_000)));
    let (short, opening) = (CONTROL_MAX as u64, OPENING_BYTES as u64);
    assert_eq!(ahead(&outbox), short + 2 * (opening + 8_000));
    // Of a payload that is longer than what goes unasked, the rest waits to be asked for.
    outbox.push(b"longer", Some(cargo(8_000)));
    assert_eq!(ahead(&outbox), short + 3 * opening + 20_000);
    assert!((8_000..20_000).contains(&outbox.ahead(8_000)));
    while outbox.next_frames(1000, 1).is_some() {}
    assert_eq!(ahead(&outbox), 0);
    outbox.lost(Content::Data { message: 1, offset: 0, len: 500 });
    assert!(outbox.grant(3, 8_000));
    // Of the 4,000 that were left full frames have gone: 856 behind the opening, and 3 of 1,000.
    assert_eq!(ahead(&outbox), 500 + 8_000 - 3_856);
    for _ in 0..200 {
        outbox.push(b"short", None);
    }
    assert_eq!(ahead(&outbox), 4_644 + 200 * short);
}

/// What is told of the next frames is so: else those behind a longer one in its batch are cut at wrong places. What was
/// lost and is not needed any more must not hide that a payload with frames of like length comes next.
#[test]
fn the_next_frames_are_as_long_as_is_told() {
    let mut outbox = Outbox::new(Limits { messages: 8, unasked: 1 << 20 }, 0);
    let unwanted = outbox.push(b"long", Some(cargo(5_000)));
    outbox.push(b"like", Some(cargo(3_000)));
    let opening = outbox.next_frames(1400, 1);
    assert!(matches!(opening, Some(Next::Open { message, .. }) if message == unwanted));
    let Some(Next::Data { message, offset, len }) = outbox.next_frames(1400, 64) else { panic!("no data") };
    assert!(matches!(outbox.next_frames(1400, 1), Some(Next::Open { .. })));
    outbox.lost(Content::Data { message, offset, len });
    assert!(outbox.grant(low(unwanted), WANTS_NO_MORE));
    outbox.forget_again();
    let told = outbox.next_body(1400);
    let Some(Next::Data { message, len, .. }) = outbox.next_frames(1400, 2) else { panic!("no data") };
    assert_eq!(told, outbox.body_of(message, 1400));
    assert!(told < 1400 && len as usize > told, "{len} bytes in frames of {told}");
}
