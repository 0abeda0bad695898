//! When acknowledgements go alone, and when they wait for company (rule N4).

use cutthrough_engine::net::Cargo;
use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::inbox::{Reading, ReadyPayload};
use cutthrough_wire::frame::{Header, Kind};

use super::rules::Forger;
use super::wire::{Faults, World, pattern};

fn payload(seed: u64, len: usize) -> Cargo<Vec<u8>> {
    Cargo { load: pattern(seed, len), token: None, pages: false, cookie: None }
}

/// Who acknowledges each 256 KiB, and less than that only after some time, lets a sender with a smaller window wait in
/// each round. One that has waited says so.
#[test]
fn a_small_window_is_acknowledged_before_it_is_used_up() {
    let mut world = World::new(17, Faults::NONE);
    let mut forger = Forger::joined(&mut world);
    // Frames of the forger, which has so many in flight, until they are acknowledged; meanwhile no time passes.
    let mut frames = |in_flight: u64, waits: bool| {
        forger.waits = waits;
        let (now, mut batch) = (world.now(), Batch::default());
        for count in 1..1000 {
            forger.awaited = u32::try_from(forger.number.saturating_sub(in_flight - 1)).unwrap();
            forger.send(&mut world, Kind::Probe, [0, 0], &[0; 960]);
            world.nodes[1].net.looked(now);
            if world.nodes[1].net.batch(now, &mut batch, 65_000).is_some() {
                return count;
            }
        }
        panic!("1000 frames without an answer");
    };
    let open_handed: Vec<u32> = (0..16).map(|_| frames(u64::MAX, false)).collect();
    assert_eq!(open_handed.last(), Some(&256), "{open_handed:?}");
    assert_eq!((frames(200, false), frames(100, false), frames(20, false)), (100, 50, 16));
    assert_eq!((frames(200, true), frames(100, true), frames(20, true)), (100, 50, 10));
}

#[test]
fn a_sender_says_whether_it_waits_for_room() {
    let mut world = World::new(18, Faults::NONE);
    let (a, _) = world.join();
    world.settle();
    // What the headers of the next batch say.
    let said = |world: &mut World| {
        let (now, mut batch) = (world.now(), Batch::default());
        world.nodes[0].net.batch(now, &mut batch, 12_000).expect("there is something to send");
        Header::from_bytes(batch.own().first_chunk().unwrap()).unwrap().waits
    };
    world.nodes[0].net.send(a, b"alone", None).unwrap();
    assert!(!said(&mut world));
    world.nodes[0].net.send(a, b"in two", Some(payload(1, 20_000))).unwrap();
    assert!(!said(&mut world) && !said(&mut world));
    for seed in 0..8 {
        world.nodes[0].net.send(a, b"far more", Some(payload(seed, 12_000))).unwrap();
    }
    assert!(said(&mut world), "the window begins with 64 KiB");
}

/// Much to send alone says nothing: the window may never be used up by who takes long to send it.
#[test]
fn a_sender_that_has_used_little_of_its_window_does_not_wait() {
    let mut world = World::new(19, Faults::NONE);
    let (a, _) = world.join();
    world.settle();
    for seed in 0..8 {
        world.nodes[0].net.send(a, b"far more", Some(payload(seed, 12_000))).unwrap();
    }
    let now = world.now();
    let said = (0..4).map(|_| {
        let mut batch = Batch::default();
        world.nodes[0].net.batch(now, &mut batch, 12_000).expect("there is something to send");
        Header::from_bytes(batch.own().first_chunk().unwrap()).unwrap().waits
    });
    assert_eq!(said.collect::<Vec<_>>(), [false, false, true, true], "of a window of 64 KiB, by 12 KB each");
}

/// Each side answers a payload with a payload, for which it needs a while: hardly an acknowledgement has to go alone.
/// If they went after a quarter of a round trip, as they once did, each payload had one, which the answer had to wait
/// for.
#[test]
fn answers_acknowledge_what_they_answer() {
    let mut world = World::new(19, Faults::NONE);
    let (a, b) = world.join();
    world.settle();
    let notes = |world: &World| world.nodes.iter().map(|node| node.net.tally().notes_sent).sum::<u64>();
    let mut before = 0;
    for turn in 0..60 {
        if turn == 10 {
            before = notes(&world);
        }
        for (from, to, (here, there)) in [(0, 1, (a, b)), (1, 0, (b, a))] {
            world.nodes[from].net.send(here, b"payload", Some(payload(turn, 10_000))).unwrap();
            let (_, message) = world.message(to);
            let ReadyPayload::Arriving(number, _) = message.payload else { panic!("{:?}", message.payload) };
            let mut into = vec![0; 10_000];
            world.read(to, there, &mut Reading { message: number, into: &mut into });
            assert!(into == pattern(turn, 10_000));
            world.let_pass(7_000);
        }
    }
    let sent = notes(&world) - before;
    assert!(sent <= 10, "{sent} notes for 100 payloads");
}
