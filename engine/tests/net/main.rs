//! Two endpoints over a network that loses, repeats, reorders and delays: everything arrives once, in order, whole.

mod alleged;
mod closing;
mod company;
mod cuts;
mod doorman;
mod duo;
mod epochs;
mod far;
mod flood;
mod heeded;
mod in_use;
mod late;
mod lossy;
mod mended;
mod narrow;
mod quiet;
mod reads;
mod rules;
mod seats;
mod shares;
mod silence;
mod together;
mod told;
mod trains;
mod unwanted;
mod ways;
mod wire;
mod wired;

use cutthrough_engine::net::inbox::{Reading, ReadyPayload};
use cutthrough_engine::net::{Cargo, NetEvent, Tally};
use proptest::prelude::*;

use wire::{Faults, World, pattern};

#[test]
fn a_channel_opens_and_carries_a_message() {
    let mut world = World::new(1, Faults::NONE);
    let (a, b) = world.join();
    world.nodes[0].net.send(a, b"hello", None).unwrap();
    let (index, message) = world.message(1);
    assert_eq!(index, b);
    assert_eq!(&message.control[..usize::from(message.control_len)], b"hello");
    world.settle();
}

#[test]
fn payloads_of_every_length_arrive() {
    let mut world = World::new(2, Faults::NONE);
    let (a, _) = world.join();
    for (seed, len) in (0..).zip([1, 2, 991, 992, 993, 1136, 1408, 5000, 65_536, 1_000_003]) {
        let cargo = Cargo { load: pattern(seed, len), token: None, pages: true, cookie: Some(seed) };
        world.nodes[0].net.send(a, b"with pages", Some(cargo)).unwrap();
        let (_, message) = world.message(1);
        let ReadyPayload::Landed(place, story) = message.payload else { panic!("{:?}", message.payload) };
        assert_eq!((&place[..len], story.bytes as usize), (&pattern(seed, len)[..], len));
        assert_eq!(world.completed(0), seed);
    }
    world.settle();
}

#[test]
fn a_payload_without_a_place_waits_for_its_reader() {
    let mut world = World::new(3, Faults::NONE);
    let (a, b) = world.join();
    let len = 300_000;
    let cargo = Cargo { load: pattern(9, len), token: None, pages: false, cookie: None };
    world.nodes[0].net.send(a, b"to be read", Some(cargo)).unwrap();
    let (_, message) = world.message(1);
    let ReadyPayload::Arriving(number, _) = message.payload else { panic!("{:?}", message.payload) };
    let mut into = vec![0; len];
    let mut reading = Reading { message: number, into: &mut into };
    world.read(1, b, &mut reading);
    assert_eq!(into, pattern(9, len));
    world.settle();
}

/// Signs of life and ends, too.
#[test]
fn every_frame_that_is_sent_is_counted() {
    let mut world = World::new(4, Faults::NONE);
    let (a, _) = world.join();
    world.nodes[0].net.send(a, b"hello", None).unwrap();
    world.message(1);
    world.go_on(10_000_000_000);
    world.settle();
    let tally = |world: &World, node: usize| *world.nodes[node].net.tally();
    for (from, to) in [(0, 1), (1, 0)] {
        let (sent, received) = (tally(&world, from), tally(&world, to).frames_received);
        assert!(received > 1, "{received} from {from}");
        assert_eq!(sent.frames_sent + sent.notes_sent, received, "from {from}");
    }
    let before = tally(&world, 0).frames_sent;
    world.nodes[0].net.close(a);
    assert!(matches!(world.event(1), NetEvent::Closed(..)));
    assert!(tally(&world, 0).frames_sent > before, "the end is one, too");
}

/// What a world does that carries some payloads, and how often frames were brought in together.
fn carried(seed: u64, faults: Faults, together: bool) -> (Vec<Tally>, u64) {
    let mut world = World::new(seed, faults);
    world.together = together;
    let (a, _) = world.join();
    for (seed, len) in (0..).zip([200_000, 1, 70_000, 5_000, 300_000]) {
        let cargo = Cargo { load: pattern(seed, len), token: None, pages: true, cookie: None };
        world.nodes[0].net.send(a, b"", Some(cargo)).unwrap();
        let (_, message) = world.message(1);
        let ReadyPayload::Landed(place, _) = message.payload else { panic!("{:?}", message.payload) };
        assert!(place[..len] == pattern(seed, len)[..], "seed {seed}");
    }
    world.settle();
    // Where frames landed is what differs.
    let tally = |node: &wire::Node| Tally { placed_bytes: 0, mended_bytes: 0, hits: 0, misses: 0, ..*node.net.tally() };
    (world.nodes.iter().map(tally).collect(), world.runs)
}

#[test]
fn frames_brought_in_together_change_as_much_as_each_alone() {
    let (mut runs, mut others) = (0, Vec::new());
    for seed in 0..40 {
        for faults in [Faults::NONE, Faults { loss: 2, duplicates: 3, reorder: 5, corrupt: 2 }] {
            let (alone, together) = (carried(seed, faults, false), carried(seed, faults, true));
            assert_eq!(alone.1, 0);
            runs += together.1;
            if alone.0 != together.0 {
                assert!(faults.loss > 0, "{seed}");
                others.push(seed);
            }
        }
    }
    // Where frames are lost, what is said of that may fall between two that came together: then all that follows is
    // another world. In 300 worlds that are some 2 to 4 %.
    assert!(runs > 1000 && others.len() <= 4, "{runs} {others:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn everything_arrives_once_and_in_order(
        seed in any::<u64>(),
        loss in 0_u32..30,
        duplicates in 0_u32..30,
        reorder in 0_u32..50,
        corrupt in 0_u32..10,
        together in any::<bool>(),
        lens in prop::collection::vec(prop_oneof![Just(0_usize), 1..3000_usize, 1..200_000_usize], 1..40),
    ) {
        let mut world = World::new(seed, Faults { loss, duplicates, reorder, corrupt });
        world.together = together;
        let (a, b) = world.join();
        let mut sent = 0;
        let mut next = 0;
        while next < lens.len() {
            while sent < lens.len() {
                let len = lens[sent];
                let cargo = (len > 0).then(|| Cargo {
                    load: pattern(sent as u64, len),
                    token: None,
                    pages: sent % 2 == 0,
                    cookie: None,
                });
                if world.nodes[0].net.send(a, &[u8::try_from(sent).unwrap()], cargo).is_err() {
                    break;
                }
                sent += 1;
            }
            let (_, message) = world.message(1);
            prop_assert_eq!(&message.control[..usize::from(message.control_len)], &[u8::try_from(next).unwrap()]);
            match message.payload {
                ReadyPayload::None => prop_assert_eq!(lens[next], 0),
                ReadyPayload::Landed(place, _) => {
                    prop_assert_eq!(&place[..lens[next]], &pattern(next as u64, lens[next])[..]);
                }
                ReadyPayload::Arriving(number, _) => {
                    let mut into = vec![0; lens[next]];
                    world.read(1, b, &mut Reading { message: number, into: &mut into });
                    prop_assert_eq!(into, pattern(next as u64, lens[next]));
                }
                ReadyPayload::Refused(why, _) => prop_assert!(false, "{}", why),
            }
            next += 1;
        }
        world.settle();
        world.nodes[0].net.close(a);
        prop_assert!(matches!(world.event(1), NetEvent::Closed(..)));
    }
}
