//! How long nothing is heard of a peer before it is dead: time in which this side was stopped does not count. And what
//! a shorter stop costs: its own time, and no more.

use cutthrough_engine::net::channel::Ending;
use cutthrough_engine::net::inbox::{Reading, ReadyPayload};
use cutthrough_engine::net::{Cargo, NetEvent};

use super::wire::{Faults, World, mix, pattern};

const SILENCE_NS: u64 = 900_000_000;
const MILLISECOND: u64 = 1_000_000;

#[test]
fn a_machine_that_stops_takes_nobody_for_dead() {
    // When the last frame came this long before, some questions had gone unanswered or none.
    for before in [0, SILENCE_NS / 8, SILENCE_NS / 2] {
        let mut world = World::with_silence(61, SILENCE_NS);
        let (a, b) = world.join();
        world.settle();
        world.go_on(before);
        world.pass(5 * SILENCE_NS);
        world.nodes[0].net.send(a, b"still here", None).unwrap();
        let (index, message) = world.message(1);
        assert_eq!((index, &message.control[..10]), (b, &b"still here"[..]));
        world.go_on(5 * SILENCE_NS);
        assert_eq!([0, 1].map(|node| world.nodes[node].net.channels()), [1, 1]);
    }
}

#[test]
fn a_peer_that_says_nothing_is_dead_after_the_silence_or_soon_after_a_stop() {
    for (stop, most) in [(0, SILENCE_NS), (5 * SILENCE_NS, 6 * SILENCE_NS)] {
        let mut world = World::with_silence(62, SILENCE_NS);
        let (_, b) = world.join();
        world.settle();
        let begun = world.now();
        world.black = Some((0, 0));
        world.pass(stop);
        assert!(matches!(world.event(1), NetEvent::Closed(index, Ending::Silent) if index == b));
        let after = world.now().saturating_since(begun);
        // The world has gone on to what node 0 does next.
        assert!(after <= most + SILENCE_NS / 4, "{after} ns after a stop of {stop}");
        assert!(after >= stop + SILENCE_NS / 2, "{after} ns after a stop of {stop}");
    }
}

/// Sends so many payloads of 1 MiB.
fn send(world: &mut World, (node, channel): (usize, usize), payloads: usize) {
    let load = pattern(5, 1 << 20);
    for _ in 0..payloads {
        let cargo = Cargo { load: load.clone(), token: None, pages: true, cookie: None };
        world.nodes[node].net.send(channel, b"much", Some(cargo)).unwrap();
    }
}

/// What is acknowledged after it was held for so long says nothing of the way.
#[test]
fn who_stood_still_is_sent_to_as_quickly_as_before() {
    for stop in [20, 300, 600].map(|ms| ms * MILLISECOND) {
        let mut world = World::with_silence(63, SILENCE_NS);
        world.deaf = true;
        let (a, _) = world.join();
        send(&mut world, (0, a), 8);
        (0..3).for_each(|_| drop(world.message(1)));
        let again = world.now().after(stop);
        world.hold(stop);
        (0..4).for_each(|_| drop(world.message(1)));
        let took = world.now().saturating_since(again);
        assert!(took < 50 * MILLISECOND, "{took} ns after a stop of {stop}");
    }
}

/// A handshake during which somebody stood still says little of how long frames take.
#[test]
fn a_slow_handshake_makes_no_stream_slow() {
    for from in 0..2 {
        let mut world = World::with_silence(64, SILENCE_NS);
        let short = std::mem::replace(&mut world.delay, 150 * MILLISECOND);
        let channels = world.join();
        world.delay = short;
        let begun = world.now();
        send(&mut world, (from, [channels.0, channels.1][from]), 1);
        world.message(1 - from);
        let took = world.now().saturating_since(begun);
        assert!(took < 20 * MILLISECOND, "{took} ns from node {from}");
    }
}

/// What is under way at a survivor, that its peer dies in the middle of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    Sending,
    Receiving,
    Reading,
    Both,
}

/// Node 0 dies in such a world after so many steps, or so much time: how long node 1 takes from the last frame of it
/// that arrives until it knows.
fn missed_after(seed: u64, doing: Doing, (faults, delay): (Faults, u64)) -> u64 {
    let mut world = World::with(seed, faults, 64, SILENCE_NS);
    world.delay = delay;
    let (a, b) = world.join();
    world.settle();
    let load = pattern(5, 1 << 20);
    let cargo = |pages| Some(Cargo { load: load.clone(), token: None, pages, cookie: None });
    for _ in 0..8 {
        if matches!(doing, Doing::Receiving | Doing::Reading | Doing::Both) {
            world.nodes[0].net.send(a, b"much", cargo(doing != Doing::Reading)).unwrap();
        }
        if matches!(doing, Doing::Sending | Doing::Both) {
            world.nodes[1].net.send(b, b"much", cargo(true)).unwrap();
        }
    }
    let mut into = vec![0; 1 << 20];
    let mut reading = None;
    if doing == Doing::Reading {
        let (_, message) = world.message(1);
        let ReadyPayload::Arriving(number, _) = message.payload else { panic!("{:?}", message.payload) };
        reading = Some(Reading { message: number, into: &mut into });
    }
    // Somewhere in the middle, or between any two questions.
    let dies = mix(seed) % if doing == Doing::Nothing { 20 } else { 200 };
    let mut heard = world.now();
    for step in 0..100_000 {
        if step == dies {
            // Who comes in its place knows of nothing, and answers nothing.
            world.nodes[0] = World::with_silence(!seed, SILENCE_NS).nodes.remove(0);
        }
        let (now, frames) = (world.now(), world.nodes[1].net.tally().frames_received);
        if let Some(reading) = &mut reading {
            let _ = world.nodes[1].net.read(now, b, reading, 0, true);
        }
        world.step(reading.as_mut().map(|reading| (1, b, reading)));
        if world.nodes[1].net.tally().frames_received > frames {
            heard = world.now();
        }
        while let Some(event) = world.nodes[1].net.next_event() {
            if let NetEvent::Closed(index, ending) = event {
                assert!(step >= dies && index == b && ending == Ending::Silent, "{ending:?} in step {step}");
                assert_eq!(world.nodes[1].net.channels(), 0);
                return now.saturating_since(heard);
            }
        }
    }
    panic!("{doing:?}, seed {seed}: it is never missed");
}

/// Whatever is under way, on a way that is short or long, good or bad: the silence is all that it takes.
#[test]
fn who_dies_is_missed_when_the_silence_is_over_whatever_is_under_way() {
    let bad = Faults { loss: 10, duplicates: 5, reorder: 20, corrupt: 2 };
    for doing in [Doing::Nothing, Doing::Sending, Doing::Receiving, Doing::Reading, Doing::Both] {
        for (number, wire) in (0..).zip([(Faults::NONE, 5_000), (bad, 5_000), (Faults::NONE, 100 * MILLISECOND)]) {
            for seed in 0..20 {
                let took = missed_after(100 * number + seed, doing, wire);
                assert_eq!(took, SILENCE_NS, "{doing:?}, {wire:?}, seed {seed}");
            }
        }
    }
}
