//! Paths that carry less than they did, and perhaps more again later.

use cutthrough_engine::net::inbox::ReadyPayload;
use cutthrough_engine::net::{Cargo, NetEvent};
use cutthrough_wire::frame::{BODY_MIN, HEADER_BYTES};

use super::wire::{Faults, World, pattern};

/// Bytes of the longest frame that every path carries.
const LEAST: usize = HEADER_BYTES + BODY_MIN as usize;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;

/// A world with a channel of node 0, over which a payload has gone in frames as long as they may be.
fn world(seed: u64) -> (World, usize) {
    let mut world = World::new(seed, Faults::NONE);
    let (a, _) = world.join();
    deliver(&mut world, a);
    assert!(world.longest > LEAST);
    (world, a)
}

/// Sends a payload of many frames, and says how long it took to arrive.
fn deliver(world: &mut World, a: usize) -> u64 {
    let before = world.now();
    let cargo = Cargo { load: pattern(3, 40_000), token: None, pages: true, cookie: None };
    world.nodes[0].net.send(a, b"long", Some(cargo)).unwrap();
    loop {
        let (_, message) = world.message(1);
        if let ReadyPayload::Landed(place, _) = message.payload {
            assert!(place[..40_000] == pattern(3, 40_000)[..]);
            return world.now().saturating_since(before);
        }
    }
}

#[test]
fn a_path_that_carries_less_stops_no_payload_for_long() {
    let (mut world, a) = world(41);
    world.carries = LEAST;
    let mut slowest = deliver(&mut world, a);
    assert!(slowest < 40 * MILLISECOND, "{slowest} ns");
    let begin = world.now();
    let dropped = world.too_long;
    while world.now().saturating_since(begin) < 60 * SECOND {
        slowest = slowest.max(deliver(&mut world, a));
        world.go_on(3 * MILLISECOND);
    }
    assert!(slowest < 40 * MILLISECOND, "{slowest} ns");
    // Whether it carries more again is asked less and less often, by frames that nobody misses.
    let asked = world.too_long - dropped;
    assert!((4..=7).contains(&asked), "{asked} times");
}

/// Signs of life, and whatever else is short, must not hide that long frames are lost.
#[test]
fn short_frames_that_arrive_do_not_keep_long_ones_long() {
    let (mut world, a) = world(42);
    world.carries = LEAST;
    let cargo = Cargo { load: pattern(3, 40_000), token: None, pages: true, cookie: Some(7) };
    world.nodes[0].net.send(a, b"long", Some(cargo)).unwrap();
    let begin = world.now();
    let landed = |world: &mut World| {
        let mut events = std::iter::from_fn(|| world.nodes[0].net.next_event());
        events.any(|event| matches!(event, NetEvent::Completed(_, 7)))
    };
    while !landed(&mut world) {
        let took = world.now().saturating_since(begin);
        assert!(took < 50 * MILLISECOND, "{took} ns, and it is not there");
        // What comes is taken, so that there is room for more.
        while world.nodes[1].net.next_event().is_some() {}
        world.nodes[0].net.send(a, b"short", None).unwrap();
        world.go_on(MILLISECOND);
    }
}

#[test]
fn what_a_path_carries_again_is_used_again() {
    let (mut world, a) = world(43);
    world.carries = LEAST;
    deliver(&mut world, a);
    world.go_on(20 * SECOND);
    (world.carries, world.longest) = (usize::MAX, 0);
    world.go_on(31 * SECOND);
    let asked = world.longest;
    assert!(asked > LEAST);
    (world.longest, world.too_long) = (0, 0);
    deliver(&mut world, a);
    assert_eq!((world.longest, world.too_long), (asked, 0));
}

/// A path that drops long frames whenever they are used again costs a channel less and less often.
#[test]
fn a_path_that_keeps_changing_is_trusted_less_and_less() {
    let (mut world, a) = world(44);
    let begin = world.now();
    let mut changes = 0;
    while world.now().saturating_since(begin) < 60 * SECOND {
        let long = world.longest > LEAST;
        (world.carries, world.longest) = (if long { LEAST } else { usize::MAX }, 0);
        changes += u32::from(long);
        let took = deliver(&mut world, a);
        assert!(took < 40 * MILLISECOND, "{took} ns");
        world.go_on(3 * MILLISECOND);
    }
    assert!((3..=8).contains(&changes), "{changes} changes");
}

/// Machines that do not look for a while lose nothing, and keep their long frames.
#[test]
fn who_does_not_look_for_a_while_is_no_narrow_path() {
    let (mut world, a) = world(45);
    for turn in 0..20 {
        world.hold(turn * 7 * MILLISECOND);
        deliver(&mut world, a);
        world.longest = 0;
        deliver(&mut world, a);
        assert!(world.longest > LEAST, "turn {turn}");
    }
}

/// Where the system itself says so, nobody has to find out.
#[test]
fn what_the_system_refuses_is_not_sent_again() {
    let (mut world, a) = world(46);
    (world.carries, world.longest) = (LEAST, 0);
    let now = world.now();
    world.nodes[0].net.too_long(now, a, HEADER_BYTES + 1408);
    deliver(&mut world, a);
    // It was the longest of all, so the next shorter one is tried.
    assert!(world.too_long > 0);
    deliver(&mut world, a);
    let now = world.now();
    let dropped = world.too_long;
    world.nodes[0].net.too_long(now, a, LEAST + 1);
    world.nodes[0].net.too_long(now, a, 1);
    let took = deliver(&mut world, a);
    assert_eq!((world.too_long, world.longest), (dropped, LEAST));
    assert!(took < MILLISECOND, "{took} ns");
}

/// Hellos that were lost say little of how long frames may be: both sides find that out.
#[test]
fn lost_hellos_keep_frames_short_for_a_while_only() {
    let mut world = World::new(47, Faults::NONE);
    world.lost_hellos = 2;
    let (a, b) = world.join();
    world.go_on(10 * SECOND);
    (world.longest, world.longest_back) = (0, 0);
    deliver(&mut world, a);
    let cargo = Cargo { load: pattern(3, 40_000), token: None, pages: true, cookie: None };
    world.nodes[1].net.send(b, b"back", Some(cargo)).unwrap();
    world.message(0);
    assert_eq!([world.longest, world.longest_back], [HEADER_BYTES + 1408; 2]);
}

/// Whatever a path carries, what is sent is hardly shorter.
#[test]
fn frames_become_about_as_long_as_the_path_carries() {
    for (seed, body) in (48..).zip([1200, 1260, 1300, 1387, 1400]) {
        let (mut world, a) = world(seed);
        world.carries = HEADER_BYTES + body;
        let begin = world.now();
        while world.now().saturating_since(begin) < 60 * SECOND {
            deliver(&mut world, a);
            world.go_on(50 * MILLISECOND);
        }
        (world.longest, world.too_long) = (0, 0);
        deliver(&mut world, a);
        assert_eq!(world.too_long, 0);
        let less = world.carries - world.longest;
        assert!(less <= 64, "{less} bytes less than {body}");
    }
}
