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
