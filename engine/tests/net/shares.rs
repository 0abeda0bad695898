//! What all channels together may send has to fit into one buffer: unasked, and of what they are asked for.

use cutthrough_engine::net::channel::Body;
use cutthrough_engine::net::inbox::{Reading, ReadyPayload};
use cutthrough_engine::net::{Cargo, NetEvent};
use cutthrough_wire::frame::{BODY_MIN, Kind};

use super::rules::{VICTIM, opening, sealed, world};
use super::wire::{Faults, GRANTED, UNASKED, World, pattern};

/// Sends a payload, longer than what a channel may send unasked, and reads it.
fn carry(world: &mut World, (a, b): (usize, usize), seed: u64) {
    let len = usize::try_from(UNASKED).unwrap() + 1000;
    let cargo = Cargo { load: pattern(seed, len), token: None, pages: false, cookie: None };
    world.nodes[0].net.send(a, b"to be read", Some(cargo)).unwrap();
    let (_, message) = world.message(1);
    let ReadyPayload::Arriving(number, _) = message.payload else { panic!("{:?}", message.payload) };
    let mut into = vec![0; len];
    world.read(1, b, &mut Reading { message: number, into: &mut into });
    assert_eq!(into, pattern(seed, len));
}

#[test]
fn what_may_come_unasked_has_a_bound_however_many_channels_there_are() {
    let mut world = World::new(17, Faults::NONE);
    for _ in 0..16 {
        world.join();
        for node in &world.nodes {
            // Three buffers' worth, and a short frame for each channel.
            let bound = 3 * UNASKED + 16 * u64::from(BODY_MIN);
            assert!(node.net.unasked() <= bound, "{} bytes", node.net.unasked());
        }
    }
}

/// Who was alone at first may send no more than its share once it has used up what it was allowed then; who came late
/// gets its share.
#[test]
fn shares_are_dealt_anew_as_they_are_used() {
    let mut world = World::new(18, Faults::NONE);
    let channels: Vec<_> = (0..16).map(|_| world.join()).collect();
    for round in 0..3 {
        for (seed, channel) in (round..).zip(&channels) {
            carry(&mut world, *channel, seed);
        }
        world.settle();
    }
    let all = world.nodes[1].net.unasked();
    assert!((UNASKED / 2..=UNASKED).contains(&all), "{all} bytes");
    // The others go: who is left may send as much as in the beginning.
    for (a, _) in &channels[1..] {
        world.nodes[0].net.close(*a);
    }
    for _ in &channels[1..] {
        assert!(matches!(world.event(1), NetEvent::Closed(..)));
    }
    (0..3).for_each(|seed| carry(&mut world, channels[0], seed));
    world.settle();
    assert_eq!(world.nodes[1].net.unasked(), UNASKED);
}

/// The first channels have more than their share, and who sends nothing does not use it up: of many later ones each
/// would have no more than a short frame, for ever.
#[test]
fn what_idle_channels_have_is_taken_back() {
    let mut world = World::new(19, Faults::NONE);
    let channels: Vec<_> = (0..16).map(|_| world.join()).collect();
    let even = UNASKED / 16;
    world.let_pass(2_000_000_000);
    let last = channels[15];
    assert!(world.nodes[1].net.unasked() > 2 * UNASKED, "others have what they were dealt first");
    for seed in 1..4 {
        carry(&mut world, last, seed);
        world.let_pass(110_000_000);
    }
    world.settle();
    // Each of the others has twice an even share at most, and the last one as much as if it were alone.
    let all = world.nodes[1].net.unasked();
    assert!((UNASKED + 15 * even / 2..=5 * UNASKED / 2).contains(&all), "{all} bytes");
    // They are not forgotten: the next one that sends has what there is.
    for seed in 4..6 {
        world.let_pass(1_500_000_000);
        carry(&mut world, channels[0], seed);
    }
    assert!(world.nodes[1].net.unasked() <= 3 * UNASKED);
}

/// Who sends at the moment when it is taken back keeps the rules, and so does whoever has not heard of it.
#[test]
fn what_is_on_its_way_when_it_is_taken_back_is_taken_in() {
    for seed in 0..30 {
        let mut world = World::new(seed, Faults { loss: 20, reorder: 20, ..Faults::NONE });
        let channels: Vec<_> = (0..12).map(|_| world.join()).collect();
        let mut draw = seed;
        for round in 0..12 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            world.let_pass((draw >> 40) % 4 * 600_000_000);
            let (one, other) = ((draw >> 20) as usize % 12, (draw >> 30) as usize % 12);
            let len = 100 + (draw >> 44) as usize % 60_000;
            for (channel, seed) in [(one, round), (other, round + 100)] {
                let cargo = Cargo { load: pattern(seed, len), token: None, pages: false, cookie: None };
                world.nodes[0].net.send(channels[channel].0, b"to be read", Some(cargo)).unwrap();
            }
            for _ in 0..2 {
                let (at, message) = world.message(1);
                let ReadyPayload::Arriving(number, _) = message.payload else { panic!("{:?}", message.payload) };
                let mut into = vec![0; len];
                world.read(1, at, &mut Reading { message: number, into: &mut into });
                assert!(into == pattern(round, len) || into == pattern(round + 100, len), "seed {seed}");
            }
        }
    }
}

/// Shares are dealt when an opening has come, and what nobody has proved deals none.
#[test]
fn a_forged_opening_deals_nothing() {
    let (mut world, a, mut forger) = world();
    world.nodes[0].net.close(a);
    world.settle();
    let before = world.nodes[VICTIM].net.unasked();
    assert!(before < UNASKED, "a share of two: {before}");
    let body = opening(1000, 1000);
    let header = forger.header(Kind::Open, [0, 0], &body);
    let (mut head, mut forged) = sealed(&header, &body);
    head[63] ^= 1;
    let now = world.now();
    let head = head.first_chunk().unwrap();
    world.nodes[VICTIM].net.frame(now, forger.address(), head, Body::Aside(&mut forged), None);
    assert_eq!((world.nodes[VICTIM].net.tally().forged, world.nodes[VICTIM].net.unasked()), (1, before));
    forger.send(&mut world, Kind::Open, [0, 0], &body);
    assert_eq!(world.nodes[VICTIM].net.unasked(), UNASKED);
}

/// However many payloads wait, no more is asked for than what has room: a payload that was asked for whole counts until
/// it is here.
#[test]
fn what_is_asked_for_has_a_bound_however_many_payloads_wait() {
    for (faults, len) in
        [(Faults::NONE, 200_000), (Faults::NONE, 40_000), (Faults { loss: 3, ..Faults::NONE }, 200_000)]
    {
        let mut world = World::new(20, faults);
        let channels: Vec<_> = (0..16).map(|_| world.join()).collect();
        for (a, _) in &channels {
            for seed in 0..2 {
                let cargo = Cargo { load: pattern(seed, len), token: None, pages: true, cookie: None };
                world.nodes[0].net.send(*a, b"in a place", Some(cargo)).unwrap();
            }
        }
        let (mut came, mut most) = (0, 0);
        while came < 2 * channels.len() {
            world.go_on(1);
            most = most.max(world.nodes[1].net.asked());
            while let Some(event) = world.nodes[1].net.next_event() {
                assert!(matches!(event, NetEvent::Message(..)), "{event:?}");
                came += 1;
            }
        }
        assert!((u64::from(GRANTED) / 2..=u64::from(GRANTED)).contains(&most), "{most} bytes, {faults:?}");
        assert_eq!(world.nodes[1].net.asked(), 0);
    }
}

/// Peers that are asked for payloads, and send nothing of them or hardly anything, lose their turn to others; and have
/// it again when they do send.
#[test]
fn who_holds_back_what_it_is_asked_for_keeps_nobody_waiting() {
    // The shortest, and the one that has waited longest, are asked for before others.
    const LENS: [usize; 4] = [400_000, 400_000, 400_000, 500_000];
    for trickle in [None, Some((3_000_000, 0))] {
        let mut world = World::new(19, Faults::NONE);
        let channels: Vec<_> = (0..4).map(|_| world.join()).collect();
        world.settle();
        world.kept_back = channels[..3].iter().map(|(_, b)| *b).collect();
        world.trickle = trickle;
        for (seed, ((a, _), len)) in (0..).zip(channels.iter().zip(LENS)) {
            let cargo = Cargo { load: pattern(seed, len), token: None, pages: true, cookie: None };
            world.nodes[0].net.send(*a, b"in a place", Some(cargo)).unwrap();
            // Those that come later wait behind it.
            world.go_on(1_000_000);
        }
        let begun = world.now();
        let (from, message) = world.message(1);
        assert_eq!(from, channels[3].1);
        assert!(matches!(message.payload, ReadyPayload::Landed(place, _) if place == pattern(3, LENS[3])));
        assert!(world.now().saturating_since(begun) < 200_000_000, "{begun:?} to {:?}", world.now());
        world.kept_back.clear();
        let mut came: Vec<_> = (0..3).map(|_| world.message(1).0).collect();
        came.sort_unstable();
        assert_eq!(came, channels[..3].iter().map(|(_, b)| *b).collect::<Vec<_>>());
        world.settle();
    }
}

/// Whose way seems to be long has time for what it is asked for: others do not wait for it, even if it was asked while
/// they wanted nothing.
#[test]
fn who_seems_far_away_and_holds_back_what_it_is_asked_for_keeps_nobody_waiting() {
    let mut world = World::new(21, Faults::NONE);
    world.far = Some((0, 5_000_000_000));
    let channels: Vec<_> = (0..4).map(|_| world.join()).collect();
    world.settle();
    assert_eq!(channels[0].1, 0);
    world.kept_back = vec![0];
    let send = |world: &mut World, seed: usize| {
        let cargo = Cargo { load: pattern(seed as u64, 400_000), token: None, pages: true, cookie: None };
        world.nodes[0].net.send(channels[seed].0, b"in a place", Some(cargo)).unwrap();
    };
    send(&mut world, 0);
    world.go_on(6_000_000_000);
    let begun = world.now();
    (1..4).for_each(|seed| send(&mut world, seed));
    let mut came: Vec<_> = (1..4).map(|_| world.message(1).0).collect();
    came.sort_unstable();
    assert_eq!(came, channels[1..].iter().map(|(_, b)| *b).collect::<Vec<_>>());
    let took = world.now().saturating_since(begun);
    assert!(took < 200_000_000, "{took} ns");
    // Nor is it left out.
    world.kept_back.clear();
    assert_eq!(world.message(1).0, 0);
}
