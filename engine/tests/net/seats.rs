//! How many channels there may be: those that close are none, and those of other kinds are some.

use cutthrough_engine::net::{CallError, NetEvent};
use cutthrough_wire::frame::{BODY_MIN, HEADER_BYTES, Kind, Refusal};

use super::rules::{FIRST, Forger, VICTIM};
use super::wire::{Faults, World};

/// Channels that the settings of a world allow.
const MOST: usize = 16;

fn call(world: &mut World) -> Option<usize> {
    let (now, to) = (world.now(), world.address(1));
    world.nodes[0].net.call(now, to, 1408)
}

/// Who has closed its channels may open others at once, though nobody has heard of that; but not without a bound.
#[test]
fn channels_that_close_leave_their_places() {
    let mut world = World::new(56, Faults::NONE);
    let channels: Vec<_> = (0..MOST).map(|_| world.join()).collect();
    world.settle();
    assert_eq!(call(&mut world), None);
    channels.iter().for_each(|(a, _)| world.nodes[0].net.close(*a));
    let mut calls: Vec<_> = (0..MOST).map(|_| call(&mut world).expect("a seat")).collect();
    assert!(calls.iter().all(|call| channels.iter().all(|(a, _)| a != call)), "those are taken");
    assert_eq!(call(&mut world), None);
    // A call that is given up leaves its place; one channel that has ended leaves none more than it had.
    world.nodes[0].net.close(calls.pop().expect("a call"));
    assert!(call(&mut world).is_some());
    channels.iter().for_each(|(a, _)| world.nodes[0].net.abandon(*a));
    assert_eq!(call(&mut world), None);
}

/// Channels of another kind leave fewer for callers, who hear so; and callers leave fewer for those, but for one that
/// has said nothing for a while.
#[test]
fn channels_of_another_kind_count_as_well() {
    let mut world = World::new(57, Faults::NONE);
    world.nodes[VICTIM].net.has_others(MOST - 2);
    world.join();
    let now = world.now();
    assert!(world.nodes[VICTIM].net.take_other(now) && !world.nodes[VICTIM].net.take_other(now));
    let a = call(&mut world).expect("a seat");
    let event = world.event(0);
    let refused = CallError::Refused(Refusal::Channels);
    assert!(matches!(event, NetEvent::Failed(of, why) if of == a && why == refused), "{event:?}");
    world.nodes[VICTIM].net.free_other();
    let mut forger = Forger::stranger(9);
    let retry = forger.hello(&mut world, 0, FIRST, BODY_MIN).expect("a cookie");
    let cookie = u64::from_le_bytes(*retry[HEADER_BYTES..].first_chunk().unwrap());
    let welcome = forger.hello(&mut world, cookie, FIRST, BODY_MIN).expect("an answer");
    assert_eq!(welcome[1], Kind::Welcome as u8);
    let now = world.now();
    assert!(!world.nodes[VICTIM].net.take_other(now), "it may be heard of soon");
    assert!(world.nodes[VICTIM].net.take_other(now.after(50_000_000)));
    assert_eq!(world.nodes[VICTIM].net.channels(), 1);
}

/// Callers that were let in and say nothing keep this side from calling nobody: one that has said nothing for a while
/// gives way.
#[test]
fn callers_that_say_nothing_leave_places_for_calls() {
    let mut world = World::new(58, Faults::NONE);
    for host in 20..20 + u8::try_from(MOST).unwrap() {
        let mut forger = Forger::stranger(host);
        let retry = forger.hello(&mut world, 0, FIRST, BODY_MIN).expect("a cookie");
        let cookie = u64::from_le_bytes(*retry[HEADER_BYTES..].first_chunk().unwrap());
        assert_eq!(forger.hello(&mut world, cookie, FIRST, BODY_MIN).expect("let in")[1], Kind::Welcome as u8);
    }
    let (now, to) = (world.now(), world.address(0));
    let net = &mut world.nodes[VICTIM].net;
    assert_eq!(net.call(now, to, 1408), None, "they may be heard of soon");
    assert!(net.call(now.after(50_000_000), to, 1408).is_some());
    assert_eq!((net.channels(), net.leak()), (MOST - 1, None));
}
