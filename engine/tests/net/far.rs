//! Ways so long that a frame is sent again before it can have been acknowledged.

use std::sync::atomic::Ordering;

use cutthrough_engine::net::channel::Ending;
use cutthrough_engine::net::inbox::ReadyPayload;
use cutthrough_engine::net::{Cargo, NetEvent};

use cutthrough_wire::frame::HEADER_BYTES;

use super::wire::{World, pattern};

const MS: u64 = 1_000_000;

/// After how long nodes take each other for dead if nothing is said.
const SILENCE_NS: u64 = 900 * MS;

/// A world whose frames take so long, both ways together.
fn world(round: u64, silence: u64) -> World {
    let mut world = World::with_silence(71, silence);
    world.delay = round / 2;
    world
}

/// Round trips in ns, and silences that go with them.
const FAR: [(u64, u64); 5] = [
    (150 * MS, SILENCE_NS),
    (300 * MS, SILENCE_NS),
    (600 * MS, SILENCE_NS),
    (1_200 * MS, 4 * SILENCE_NS),
    (3_000 * MS, 10 * SILENCE_NS),
];

/// Frames that were sent again for nothing.
fn lost(world: &World) -> u64 {
    world.nodes.iter().map(|node| node.net.tally().frames_lost).sum()
}

#[test]
fn a_message_is_acknowledged_over_any_way() {
    for (round, silence) in FAR {
        let mut world = world(round, silence);
        let (a, b) = world.join();
        let begun = world.now();
        world.nodes[0].net.send(a, b"far away", None).unwrap();
        assert_eq!(world.message(1).0, b);
        world.settle();
        let took = world.now().saturating_since(begun);
        assert!(took <= round * 3 / 2, "{} ms over a way of {}", took / MS, round / MS);
        // The other side has measured nothing but how long its welcome took to be answered.
        let begun = world.now();
        world.nodes[1].net.send(b, b"and back", None).unwrap();
        assert_eq!(world.message(0).0, a);
        world.settle();
        let took = world.now().saturating_since(begun);
        assert!(took <= round * 3 / 2, "{} ms back over a way of {}", took / MS, round / MS);
        assert_eq!(lost(&world), 0, "over a way of {} ms", round / MS);
    }
}

#[test]
fn many_messages_are_acknowledged_over_any_way() {
    for (round, silence) in FAR {
        let mut world = world(round, silence);
        let (a, _) = world.join();
        let (mut sent, mut next) = (0_u32, 0_u32);
        while next < 300 {
            while sent < 300 && world.nodes[0].net.send(a, &sent.to_le_bytes(), None).is_ok() {
                sent += 1;
            }
            world.go_on(1);
            while let Some(event) = world.nodes[1].net.next_event() {
                let NetEvent::Message(_, message) = event else { panic!("{event:?}") };
                assert_eq!(message.control[..4], next.to_le_bytes());
                next += 1;
            }
        }
        world.settle();
        assert_eq!(lost(&world), 0, "over a way of {} ms", round / MS);
    }
}

#[test]
fn a_long_payload_comes_over_any_way_and_so_does_the_end() {
    for (round, silence) in FAR {
        let mut world = world(round, silence);
        let (a, b) = world.join();
        let begun = world.now();
        let len = 1 << 20;
        let cargo = Cargo { load: pattern(7, len), token: None, pages: true, cookie: Some(1) };
        world.nodes[0].net.send(a, b"much", Some(cargo)).unwrap();
        let (_, message) = world.message(1);
        let ReadyPayload::Landed(place, _) = message.payload else { panic!("{:?}", message.payload) };
        assert!(place[..len] == pattern(7, len)[..]);
        assert_eq!(world.completed(0), 1);
        let took = world.now().saturating_since(begun);
        assert!(took <= 20 * round, "{} ms over a way of {}", took / MS, round / MS);
        world.nodes[0].net.close(a);
        assert!(matches!(world.event(1), NetEvent::Closed(index, Ending::Peer) if index == b));
        world.settle_side(0);
        assert_eq!(lost(&world), 0, "over a way of {} ms", round / MS);
    }
}

#[test]
fn a_way_that_grows_long_is_learnt() {
    for round in [300 * MS, 600 * MS] {
        let mut world = World::with_silence(72, SILENCE_NS);
        let (a, _) = world.join();
        for turn in 0..20_u8 {
            world.nodes[0].net.send(a, &[turn], None).unwrap();
            world.message(1);
            world.settle();
        }
        // What others send stands in a queue from now on.
        world.delay = round / 2;
        for turn in 0..20_u8 {
            let begun = world.now();
            world.nodes[0].net.send(a, &[turn], None).unwrap();
            world.message(1);
            world.settle();
            let took = world.now().saturating_since(begun);
            let most = if turn == 0 { 4 * round } else { round * 3 / 2 };
            assert!(took <= most, "message {turn}: {} ms over a way of {}", took / MS, round / MS);
        }
    }
}

#[test]
fn who_has_nothing_to_say_stays_over_a_long_way() {
    for (round, silence) in FAR {
        let mut world = world(round, silence);
        world.join();
        world.go_on(10 * silence);
        assert_eq!([0, 1].map(|node| world.nodes[node].net.channels()), [1, 1], "{} ms", round / MS);
    }
}

/// While a call is answered over a long way, the cookies change: a hello with the old one is answered, and one with the
/// new one is told.
#[test]
fn a_call_comes_through_when_cookies_change_meanwhile() {
    let mut world = world(200 * MS, 20 * SILENCE_NS);
    let (now, to) = (world.now(), world.address(1));
    world.nodes[0].net.call(now, to, 1408).unwrap();
    world.let_pass(105 * MS);
    world.cookies.store(1, Ordering::Relaxed);
    assert!(matches!(world.event(0), NetEvent::Connected(_)));
    let took = world.now().saturating_since(now);
    assert!(took <= 1_000 * MS, "{} ms", took / MS);
    world.nodes[0].net.send(0, b"through", None).unwrap();
    while !matches!(world.event(1), NetEvent::Message(..)) {}
}

/// Hellos that are repeated before they can be answered say nothing of how long frames may be.
#[test]
fn slow_answers_make_no_path_narrow() {
    let mut world = world(300 * MS, SILENCE_NS);
    let (a, b) = world.join();
    world.longest = 0;
    let send = |world: &mut World, node: usize, channel| {
        let cargo = Cargo { load: pattern(8, 30_000), token: None, pages: true, cookie: None };
        world.nodes[node].net.send(channel, b"", Some(cargo)).unwrap();
        world.message(1 - node);
        world.settle();
    };
    send(&mut world, 0, a);
    assert_eq!(world.longest, HEADER_BYTES + 1408);
    // The other side has been told less, again and again; it finds out.
    world.go_on(8_000 * MS);
    let frames = world.nodes[1].net.tally().frames_sent;
    send(&mut world, 1, b);
    let frames = world.nodes[1].net.tally().frames_sent - frames;
    assert_eq!(frames, 30_000_u64.div_ceil(1408), "a few bytes more with the opening");
}
