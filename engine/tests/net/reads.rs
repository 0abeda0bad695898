//! Payloads that are read as they come, by somebody who lends no memory: what comes between two looks lies aside.

use cutthrough_engine::net::Cargo;
use cutthrough_engine::net::inbox::{Reading, ReadyPayload};

use super::wire::{Faults, UNASKED, World, pattern};

/// Sends a payload for a reader, and has it told: its number.
fn told(world: &mut World, (a, b): (usize, usize), seed: u64, len: usize) -> u64 {
    let cargo = Cargo { load: pattern(seed, len), token: None, pages: false, cookie: None };
    world.nodes[0].net.send(a, b"to be read", Some(cargo)).unwrap();
    let (from, message) = world.message(1);
    let ReadyPayload::Arriving(number, _) = message.payload else { panic!("{:?}", message.payload) };
    assert_eq!(from, b);
    number
}

fn read_some(world: &mut World, channel: usize, number: u64, seed: u64, len: usize) {
    let mut into = vec![0; len];
    world.read_some(1, channel, &mut Reading { message: number, into: &mut into });
    assert!(into == pattern(seed, len), "payload {seed} of {len} bytes");
}

/// Nobody is asked for anything by who reads a payload that is here whole; of one that is not, more is wanted.
#[test]
fn a_payload_that_is_here_wants_nothing() {
    let mut world = World::new(59, Faults::NONE);
    let (a, b) = world.join();
    for (seed, len, whole) in [(1, 1000, true), (2, 1_000_000, false), (3, 1000, true)] {
        let number = told(&mut world, (a, b), seed, len);
        world.go_on(1_000_000);
        let (now, mut into) = (world.now(), vec![0; len]);
        let mut reading = Reading { message: number, into: &mut into };
        let (valid, all) = world.nodes[1].net.read(now, b, &mut reading, 0, false).unwrap();
        assert_eq!((all, world.nodes[1].net.is_wanting()), (whole, !whole), "{len} bytes, of which {valid} are here");
        assert!(reading.into[..valid] == pattern(seed, len)[..valid]);
        world.nodes[1].net.forget(b, number);
        world.settle();
    }
}

/// However little may come unasked, and however little of that is left to a channel beside others.
#[test]
fn a_payload_is_read_as_it_comes_however_long_it_is() {
    let unasked = usize::try_from(UNASKED).unwrap();
    for faults in [Faults::NONE, Faults { loss: 5, duplicates: 5, reorder: 10, corrupt: 2 }] {
        for (channels, len) in [(1, unasked + 1000), (1, 1_000_000), (16, 20_000), (16, 1_000_000)] {
            let mut world = World::new(60, faults);
            let joined: Vec<_> = (0..channels).map(|_| world.join()).collect();
            for (seed, &(a, b)) in (0..3).flat_map(|round| (10 * round..).zip(&joined[..joined.len().min(2)])) {
                let number = told(&mut world, (a, b), seed, len);
                read_some(&mut world, b, number, seed, len);
            }
            world.settle();
        }
    }
}

/// What nobody reads, and what nobody reads on, keeps its memory to itself; and no more of that than there may be.
#[test]
fn a_payload_is_read_as_it_comes_beside_others_that_are_not() {
    const LEN: usize = 300_000;
    let mut world = World::new(61, Faults::NONE);
    let (a, b) = world.join();
    let mut into = vec![0; LEN];
    let mut begun = Vec::new();
    for seed in 0..40 {
        let number = told(&mut world, (a, b), seed, LEN);
        if seed % 2 == 0 {
            let (now, mut reading) = (world.now(), Reading { message: number, into: &mut into });
            let (valid, whole) = world.nodes[1].net.read(now, b, &mut reading, 0, false).unwrap();
            assert!(!whole && reading.into[..valid] == pattern(seed, LEN)[..valid]);
            begun.push((number, seed, valid));
        }
        world.go_on(1_000_000);
        assert!(world.nodes[1].net.aside().all(|(_, aside, most)| aside <= most));
    }
    let number = told(&mut world, (a, b), 40, LEN);
    read_some(&mut world, b, number, 40, LEN);
    // Those that were begun go on where they were left, in the memory that holds what was read.
    let (number, seed, valid) = begun[3];
    into[..valid].copy_from_slice(&pattern(seed, LEN)[..valid]);
    world.read_some(1, b, &mut Reading { message: number, into: &mut into });
    assert!(into == pattern(seed, LEN));
    // Or are read at once from there on.
    let (number, seed, valid) = begun[5];
    into[..valid].copy_from_slice(&pattern(seed, LEN)[..valid]);
    world.read(1, b, &mut Reading { message: number, into: &mut into });
    assert!(into == pattern(seed, LEN));
}

/// Who waits itself until its peers take what it sends lets them be done: all that nobody reads comes aside, whole, and
/// beside what may come unasked.
#[test]
fn what_nobody_reads_makes_way_for_who_waits() {
    for faults in [Faults::NONE, Faults { loss: 5, duplicates: 5, reorder: 10, corrupt: 2 }] {
        let mut world = World::new(62, faults);
        let joined: Vec<_> = (0..8).map(|_| world.join()).collect();
        let len = |at: u64| 200_000 + 10_000 * usize::try_from(at).unwrap();
        let told = (0..).zip(&joined).map(|(at, &pair)| (pair, at, told(&mut world, pair, at, len(at))));
        let told: Vec<_> = told.collect();
        // One of them has been read for a while.
        let ((_, b), _, first) = told[0];
        let mut begun = vec![0; len(0)];
        let now = world.now();
        let mut reading = Reading { message: first, into: &mut begun };
        let (valid, _) = world.nodes[1].net.read(now, b, &mut reading, 0, false).unwrap();
        world.go_on(2_000_000_000);
        let left = |world: &mut World| {
            told.iter().filter(|&&((a, _), _, number)| !world.nodes[0].net.is_done(a, number)).count()
        };
        assert_eq!(left(&mut world), told.len(), "they wait for their reader");
        for _ in 0..4_000 {
            let now = world.now();
            world.nodes[1].net.relieve(now, 0);
            world.go_on(1_000_000);
            assert!(world.nodes[1].net.aside().all(|(_, aside, most)| aside <= most));
            if left(&mut world) == 0 {
                break;
            }
        }
        assert_eq!(left(&mut world), 0, "they wait for nobody");
        // They are read at once, in whichever way.
        for &((_, b), at, number) in &told {
            let mut into = if at == 0 { begun.clone() } else { vec![0; len(at)] };
            let (now, mut reading) = (world.now(), Reading { message: number, into: &mut into });
            let valid = if at == 0 { valid } else { 0 };
            let read = world.nodes[1].net.read(now, b, &mut reading, valid, at % 2 == 1).unwrap();
            assert_eq!(read, (len(at), true));
            assert!(into == pattern(at, len(at)), "payload {at}");
            world.nodes[1].net.forget(b, number);
        }
        world.settle();
        // Nothing of that is left.
        for &(pair, at, _) in &told {
            let number = self::told(&mut world, pair, at, len(at));
            read_some(&mut world, pair.1, number, at, len(at));
        }
    }
}

/// A moment is nothing: what has come a short time ago is not taken for stuck.
#[test]
fn what_is_about_to_be_read_does_not_make_way() {
    const STILL_NS: u64 = 60_000_000_000;
    let mut world = World::new(63, Faults::NONE);
    let (a, b) = world.join();
    let number = told(&mut world, (a, b), 1, 1_000_000);
    let told = world.now();
    world.go_on(2_000_000);
    let before = world.nodes[0].net.acknowledged(a, number);
    let mut looks = 0;
    while world.now().saturating_since(told) < STILL_NS {
        let now = world.now();
        world.nodes[1].net.relieve(now, STILL_NS);
        world.go_on(1_000_000_000);
        assert_eq!(world.nodes[0].net.acknowledged(a, number), before);
        looks += 1;
    }
    assert!(looks > 10, "{looks} looks");
    let now = world.now();
    world.nodes[1].net.relieve(now, STILL_NS);
    world.go_on(200_000_000);
    assert!(world.nodes[0].net.is_done(a, number));
    let mut into = vec![0; 1_000_000];
    world.read(1, b, &mut Reading { message: number, into: &mut into });
    assert!(into == pattern(1, 1_000_000));
}

/// Who reads piece by piece sets the pace, also where it looks for other things between two of them.
#[test]
fn what_is_read_slowly_does_not_make_way() {
    const LEN: usize = 1_000_000;
    const STILL_NS: u64 = 20_000_000;
    let mut world = World::new(65, Faults::NONE);
    let (a, b) = world.join();
    let number = told(&mut world, (a, b), 1, LEN);
    let (mut into, mut valid) = (vec![0; LEN], 0);
    loop {
        let (now, mut reading) = (world.now(), Reading { message: number, into: &mut into });
        let (read, whole) = world.nodes[1].net.read(now, b, &mut reading, valid, false).unwrap();
        valid = read;
        if whole {
            break;
        }
        for _ in 0..12 {
            world.let_pass(STILL_NS / 4);
            let now = world.now();
            world.nodes[1].net.relieve(now, STILL_NS);
            let (_, aside, most) = world.nodes[1].net.aside().find(|of| of.0 == b).unwrap();
            assert!(aside <= most && most < LEN as u64, "{aside} of {most}");
        }
    }
    assert!(into == pattern(1, LEN));
    world.nodes[1].net.forget(b, number);
    world.settle();
}
