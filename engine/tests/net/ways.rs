//! Channels that more than one way leads to the peer of.

use cutthrough_engine::net::{Cargo, NetEvent};

use super::wire::{Faults, World, pattern};

/// A world with a channel that may go two ways at both ends, of frames that take so long.
fn two_ways(delay: u64) -> (World, usize, usize) {
    let mut world = World::new(11, Faults::NONE);
    let (a, b) = world.join();
    world.delay = delay;
    world.nodes[0].net.set_ways(a, 0b11);
    world.nodes[1].net.set_ways(b, 0b11);
    (world, a, b)
}

/// A message and its answer: by which way the message went.
fn round(world: &mut World, (a, b): (usize, usize)) -> usize {
    world.nodes[0].net.send(a, b"q", None).unwrap();
    let way = world.nodes[0].net.way(a).number;
    world.message(1);
    world.nodes[1].net.send(b, b"r", None).unwrap();
    world.message(0);
    way.into()
}

/// A peer that is off its processor for a moment answers by no way. The one in use was left alone for ten seconds.
#[test]
fn a_peer_that_does_not_look_for_a_moment_bars_no_way() {
    for pause in [100_000, 300_000, 1_000_000, 3_000_000] {
        let (mut world, a, b) = two_ways(20_000);
        let settles = (0..200_000).any(|_| round(&mut world, (a, b)) == 1 && world.nodes[0].net.way(a).number == 1);
        assert!(settles, "the other way was tried");
        world.nodes[0].net.send(a, b"q", None).unwrap();
        world.hold(pause);
        world.message(1);
        world.nodes[1].net.send(b, b"r", None).unwrap();
        world.message(0);
        let since = world.now();
        while round(&mut world, (a, b)) != 1 {
            let ms = world.now().saturating_since(since) / 1_000_000;
            assert!(ms < 1_500, "a pause of {} us", pause / 1000);
            world.go_on(1_000_000);
        }
    }
}

/// A way that leads nowhere is left, whatever comes by the first one meanwhile.
#[test]
fn a_way_that_leads_nowhere_is_left_while_the_peer_streams() {
    let (mut world, a, b) = two_ways(20_000);
    while round(&mut world, (a, b)) != 1 || world.nodes[0].net.way(a).number != 1 {}
    world.black = Some((0, 1));
    world.nodes[0].net.send(a, b"q", None).unwrap();
    assert_eq!(world.nodes[0].net.way(a).number, 1);
    let since = world.now();
    let comes = |event| matches!(event, NetEvent::Message(..));
    let load = pattern(1, 256 << 10);
    while !world.nodes[1].net.next_event().is_some_and(comes) {
        let net = &mut world.nodes[1].net;
        while net.unsent(b) < 4 && net.room(b).unwrap() > 0 {
            let cargo = Cargo { load: load.clone(), token: None, pages: true, cookie: None };
            if net.send(b, b"r", Some(cargo)).is_err() {
                break;
            }
        }
        world.go_on(5_000);
        while world.nodes[0].net.next_event().is_some() {}
        assert!(world.now().saturating_since(since) < 50_000_000, "nothing came for 50 ms");
    }
}

/// However long frames are on their way, the other way is tried and can be measured.
#[test]
fn on_long_ways_the_other_one_is_tried_too() {
    for delay in [5_000, 1_000_000, 10_000_000, 50_000_000] {
        let (mut world, a, b) = two_ways(delay);
        let by_other = (0..100).filter(|_| round(&mut world, (a, b)) == 1).count();
        assert!(by_other >= 8, "{by_other} of 100, {} us", delay / 1000);
        let timeouts = world.nodes[0].net.tally().timeouts;
        assert!(timeouts < 5, "{timeouts} frames were not waited for, {} us", delay / 1000);
    }
}

/// Messages of node 1 that node 0 gets in each of three times 20 ms, while it sends payloads of `len` bytes itself.
fn streamed(two: bool, len: usize) -> [u64; 3] {
    let (mut world, a, b) = two_ways(20_000);
    if !two {
        world.nodes[0].net.set_ways(a, 1);
        world.nodes[1].net.set_ways(b, 1);
    }
    let begun = world.now();
    let mut counts = [0; 3];
    let loads = [len, 256 << 10].map(|bytes| pattern(1, bytes));
    loop {
        let at = (world.now().saturating_since(begun) / 20_000_000) as usize;
        if at >= counts.len() {
            return counts;
        }
        for (node, end) in [a, b].into_iter().enumerate() {
            let net = &mut world.nodes[node].net;
            while net.unsent(end) < 4 && net.room(end).unwrap() > 0 {
                let cargo = Cargo { load: loads[node].clone(), token: None, pages: true, cookie: None };
                if net.send(end, b"x", Some(cargo)).is_err() {
                    break;
                }
            }
        }
        world.go_on(5_000);
        while world.nodes[1].net.next_event().is_some() {}
        while let Some(event) = world.nodes[0].net.next_event() {
            counts[at] += u64::from(matches!(event, NetEvent::Message(..)));
        }
    }
}

/// A stream that came to rest for another way waited as long as its peer streamed: what it owed that, grants and
/// acknowledgements, counted as in flight.
#[test]
fn streams_both_ways_do_not_stand_still() {
    let alone = streamed(false, 4000);
    for len in [60, 4000] {
        let counts = streamed(true, len);
        let stands = counts.iter().zip(&alone).any(|(both, one)| both < &(one / 2));
        assert!(!stands, "{counts:?} by two ways, {alone:?} by one, beside payloads of {len} bytes");
    }
}
