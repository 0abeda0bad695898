//! What a lost frame must not cost those behind it.

use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::inbox::{Ready, ReadyPayload};
use cutthrough_engine::net::{Guess, NetEvent};
use cutthrough_wire::frame::{BODY_MIN, HEADER_BYTES, Header, Kind, OPENING_BYTES};

use super::rules::{Forger, VICTIM, opening, still_works, world};
use super::wire::{World, pattern};

/// Where the next frame is expected: begin and end.
fn guessed(world: &mut World) -> Option<(u32, u32)> {
    match world.nodes[VICTIM].net.guess(None)?.0 {
        Guess::Rest { begin, end, .. } => Some((begin, end)),
        Guess::Fresh { .. } => None,
    }
}

fn send(world: &mut World, forger: &mut Forger, bytes: &[u8], offset: usize) {
    forger.send(world, Kind::Data, [0, u32::try_from(offset).unwrap()], &bytes[offset..offset + 1000]);
}

#[test]
fn the_next_frame_is_expected_behind_the_last_one_whatever_was_lost_before_it() {
    let (mut world, _, mut forger) = world();
    let bytes = pattern(4, 10_000);
    forger.send(&mut world, Kind::Open, [0, 0], &[&opening(10_000, 10_000)[..], &bytes[..1000]].concat());
    assert_eq!(guessed(&mut world), Some((1000, 10_000)));
    // From 1000 to 2000 is lost, and so is from 3000 to 5000.
    send(&mut world, &mut forger, &bytes, 2000);
    assert_eq!(guessed(&mut world), Some((3000, 10_000)));
    send(&mut world, &mut forger, &bytes, 5000);
    assert_eq!(guessed(&mut world), Some((6000, 10_000)));
    // What was lost comes again in its order, and what is new behind it.
    send(&mut world, &mut forger, &bytes, 1000);
    assert_eq!(guessed(&mut world), Some((3000, 5000)));
    send(&mut world, &mut forger, &bytes, 3000);
    send(&mut world, &mut forger, &bytes, 6000);
    assert_eq!(guessed(&mut world), Some((7000, 10_000)));
    for offset in [7000, 8000, 9000] {
        send(&mut world, &mut forger, &bytes, offset);
    }
    // What comes before the rest of it is another message.
    assert_eq!(guessed(&mut world), None);
    send(&mut world, &mut forger, &bytes, 4000);
    let landed = std::iter::from_fn(|| world.nodes[VICTIM].net.next_event()).find_map(|event| match event {
        NetEvent::Message(_, Ready { payload: ReadyPayload::Landed(place, _), .. }) => Some(place),
        _ => None,
    });
    assert_eq!(landed, Some(bytes));
}

#[test]
fn a_gap_is_told_at_once_and_so_is_its_end() {
    let (mut world, _, mut forger) = world();
    let bytes = pattern(5, 10_000);
    let tells = |world: &mut World| {
        let (now, mut told) = (world.now(), false);
        let mut batch = Batch::default();
        while world.nodes[VICTIM].net.batch(now, &mut batch, 65_000).is_some() {
            told = true;
        }
        told
    };
    forger.send(&mut world, Kind::Open, [0, 0], &[&opening(10_000, 10_000)[..], &bytes[..1000]].concat());
    tells(&mut world);
    for (offset, told) in [(1000, false), (2000, false), (4000, true), (5000, false)] {
        // The frame that carries what lies from 3000 on is lost.
        forger.number += u64::from(offset == 4000);
        send(&mut world, &mut forger, &bytes, offset);
        assert_eq!(tells(&mut world), told, "{offset}");
    }
    // Its sender has heard that, sends it again, and waits for no other before that.
    forger.awaited = u32::try_from(forger.number).unwrap();
    send(&mut world, &mut forger, &bytes, 3000);
    assert!(tells(&mut world));
    send(&mut world, &mut forger, &bytes, 6000);
    assert!(!tells(&mut world));
}

#[test]
fn a_header_names_where_its_payload_belongs_and_nothing_that_is_there() {
    let (mut world, _, mut forger) = world();
    let bytes = pattern(6, 10_000);
    forger.send(&mut world, Kind::Open, [0, 0], &[&opening(10_000, 8_000)[..], &bytes[..1000]].concat());
    send(&mut world, &mut forger, &bytes, 3000);
    let mut foreseen = |kind, words, generation| {
        let header = forger.header(kind, words, &[7; 10]);
        let head = Header { generation: header.generation ^ generation, ..header }.to_bytes();
        match world.nodes[VICTIM].net.foresee(&head, None)?.0 {
            Guess::Rest { message, begin, end, .. } => Some((message, begin, end)),
            Guess::Fresh { .. } => None,
        }
    };
    assert_eq!(foreseen(Kind::Data, [0, 1000], 0), Some((0, 1000, 3000)));
    assert_eq!(foreseen(Kind::Data, [0, 2500], 0), Some((0, 2500, 3000)));
    assert_eq!(foreseen(Kind::Data, [0, 4000], 0), Some((0, 4000, 10_000)));
    // What is there, what was not granted, what is beyond it; another message, life, kind.
    for offset in [0, 999, 3000, 3999, 8000, 10_000, u32::MAX] {
        assert_eq!(foreseen(Kind::Data, [0, offset], 0), None, "{offset}");
    }
    assert_eq!(foreseen(Kind::Data, [1, 0], 0), None);
    assert_eq!(foreseen(Kind::Data, [0, 1000], 1), None);
    assert_eq!(foreseen(Kind::Records, [0, 1000], 0), None);
}

#[test]
fn signs_of_life_bring_no_message_on() {
    let (mut world, _, mut forger) = world();
    let before = world.nodes[VICTIM].net.strides();
    forger.send(&mut world, Kind::Probe, [0, 0], &[]);
    assert_eq!(world.nodes[VICTIM].net.strides(), before);
    forger.send(&mut world, Kind::Open, [0, 0], &opening(3_000, 3_000));
    forger.send(&mut world, Kind::Data, [0, 0], &[7; 1000]);
    assert_eq!(world.nodes[VICTIM].net.strides(), before + 2);
    // The same once more is nothing new.
    forger.number -= 1;
    forger.send(&mut world, Kind::Data, [0, 0], &[7; 1000]);
    assert_eq!(world.nodes[VICTIM].net.strides(), before + 2);
}

#[test]
fn however_short_frames_are_their_guess_is_a_whole_one() {
    for bytes in [1, OPENING_BYTES, usize::from(BODY_MIN)] {
        let (mut world, a, mut forger) = world();
        forger.send(&mut world, Kind::Open, [0, 0], &[&opening(60_000, 4000)[..], &[7]].concat());
        // More is to come behind each.
        for offset in [1, 2000] {
            forger.send(&mut world, Kind::Data, [0, offset], &vec![7; bytes]);
            let (_, full) = world.nodes[VICTIM].net.guess(None).expect("the rest of it");
            assert!(full >= HEADER_BYTES + usize::from(BODY_MIN), "{full} bytes");
        }
        still_works(&mut world, a);
    }
}

/// Notes that only acknowledge say new limits by the way, and nobody hears whether they are lost: so those count as
/// told only when they have been said in a note that is acknowledged.
#[test]
fn limits_are_told_where_their_loss_is_noticed() {
    let (mut world, _, mut forger) = world();
    let (mut asked, mut taken) = (0, 0);
    for message in 0..64 {
        let record = [&[0; 8][..], &[1, 0, 7]].concat();
        forger.send(&mut world, Kind::Records, [message, 1], &record);
        taken += forger.events(&mut world).len();
        let notes = forger.hears(&mut world);
        asked += notes.iter().filter(|(header, _)| header.kind == Kind::Note && header.words[0] == 1).count();
    }
    // There are 64 slots.
    assert_eq!((taken, asked), (64, 8));
}
