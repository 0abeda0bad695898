//! What a channel, and all of them together, have their parts do: rules that are tried by themselves elsewhere, and
//! would be of no use if nobody asked them.

use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::channel::Ending;
use cutthrough_engine::net::{Cargo, NetEvent};
use cutthrough_wire::frame::{BODY_MIN, Greeting, HEADER_BYTES, Kind, Limits, Opening};
use cutthrough_wire::slot::CONTROL_MAX;

use super::rules::{FIRST, Forger, VICTIM, records, still_works, world};
use super::wire::{Faults, UNASKED, World, pattern};

/// Messages of whose openings nothing has come, each with one byte at its far end.
#[test]
fn what_comes_before_its_opening_has_one_bound_for_all_messages() {
    let (mut world, a, mut forger) = world();
    for message in 0..60 {
        forger.send(&mut world, Kind::Data, [message, (64 << 10) - 1], &[1]);
    }
    let (_, aside, most) = world.nodes[VICTIM].net.aside().find(|of| of.0 == forger.tag as usize).expect("a channel");
    assert!(aside <= 2 * UNASKED && aside <= most, "{aside} of {most}");
    still_works(&mut world, a);
}

/// Frames that carry no byte, whose place in the payload is said to be far into it.
#[test]
fn frames_without_bytes_lay_none_aside() {
    let (mut world, a, mut forger) = world();
    for offset in 1..200 {
        forger.send(&mut world, Kind::Data, [0, 100 * offset], &[]);
        forger.send(&mut world, Kind::Data, [1, 20_000], &[]);
    }
    let (_, aside, most) = world.nodes[VICTIM].net.aside().find(|of| of.0 == forger.tag as usize).expect("a channel");
    assert_eq!(aside, 0, "bytes aside, of {most}");
    still_works(&mut world, a);
}

/// The cookie in it was used up by the channel that it has opened.
#[test]
fn a_hello_that_was_used_opens_nothing_again() {
    let (mut world, a, _) = world();
    let mut forger = Forger::stranger(8);
    let retry = forger.hello(&mut world, 0, FIRST, BODY_MIN).expect("a cookie");
    let cookie = u64::from_le_bytes(*retry[HEADER_BYTES..].first_chunk().expect("eight bytes"));
    let welcome = forger.hello(&mut world, cookie, FIRST, BODY_MIN).expect("a welcome");
    let (greeting, _) = Greeting::from_bytes(&welcome[HEADER_BYTES..]).expect("a greeting");
    (forger.tag, forger.generation) = (greeting.tag, greeting.generation);
    forger.send(&mut world, Kind::Probe, [0, 0], &[]);
    assert!(matches!(forger.events(&mut world)[..], [NetEvent::Opened(_)]));
    let before = world.nodes[VICTIM].net.channels();
    let again = forger.hello(&mut world, cookie, FIRST, BODY_MIN);
    assert!(again.is_none() && world.nodes[VICTIM].net.channels() == before, "{again:?}");
    still_works(&mut world, a);
}

#[test]
fn who_has_broken_a_rule_leaves_nothing_to_read() {
    let (mut world, a, mut forger) = world();
    let limits = Limits { messages: 64, unasked: 64 << 10 };
    let control = [1; CONTROL_MAX];
    let opening = Opening { payload: 100, unasked: 100, token: None, pages: false, limits, control_len: 8, control };
    let body = [&opening.to_bytes()[..], &[7; 100]].concat();
    forger.send(&mut world, Kind::Open, [0, 0], &body);
    assert!(matches!(forger.events(&mut world)[..], [NetEvent::Message(..)]));
    forger.send(&mut world, Kind::Records, [64, 1], &records(1));
    assert!(matches!(forger.events(&mut world)[..], [NetEvent::Closed(_, Ending::Breach(_))]));
    assert!(world.nodes[VICTIM].net.take_left(forger.tag as usize).is_empty());
    still_works(&mut world, a);
}

#[test]
fn channels_send_in_the_order_in_which_they_had_something() {
    let mut world = World::new(41, Faults::NONE);
    let ends: Vec<_> = (0..4).map(|_| world.join().0).collect();
    world.settle();
    for a in &ends {
        world.nodes[0].net.send(*a, b"x", None).expect("room");
    }
    let (now, mut batch, mut order) = (world.now(), Batch::default(), Vec::new());
    while let Some((index, _)) = world.nodes[0].net.batch(now, &mut batch, 65_000) {
        order.push(index);
    }
    assert_eq!(order, ends);
}

#[test]
fn channels_are_heard_by_turns() {
    let mut world = World::new(42, Faults::NONE);
    let ends: Vec<_> = (0..2).map(|_| world.join().0).collect();
    world.settle();
    for a in &ends {
        for _ in 0..3 {
            world.nodes[0].net.send(*a, b"x", None).expect("room");
        }
    }
    world.go_on(1_000_000);
    let mut order = Vec::new();
    while let Some(event) = world.nodes[1].net.next_event() {
        if let NetEvent::Message(index, _) = event {
            order.push(index);
        }
    }
    assert_eq!(order.len(), 6);
    assert!(order.windows(2).all(|two| two[0] != two[1]), "{order:?}");
}

/// Payloads of 60,000 bytes one behind the other, on a channel of node 0.
struct Stream {
    world: World,
    channel: usize,
    sent: u64,
}

/// What a stream has under way, in bytes: on average, and the most that was sent at one moment.
#[derive(Debug)]
struct UnderWay {
    mean: u64,
    at_once: u64,
}

impl Stream {
    /// One whose frames are so long on their way, and of which so many per cent are lost.
    fn begin(loss: u32, delay: u64) -> Self {
        let mut world = World::new(43, Faults { loss, ..Faults::NONE });
        world.delay = delay;
        let (channel, _) = world.join();
        world.settle();
        Self { world, channel, sent: 0 }
    }

    /// Goes on for so many nanoseconds.
    fn go_on(&mut self, nanos: u64) -> UnderWay {
        let Self { world, channel, sent } = self;
        let (mut sum, mut looks, mut at_once) = (0, 0, 0);
        let end = world.now().after(nanos);
        while world.now() < end {
            while world.nodes[0].net.in_flight(*channel) < 4 << 20 {
                let cargo = Cargo { load: pattern(*sent, 60_000), token: None, pages: true, cookie: None };
                if world.nodes[0].net.send(*channel, b"p", Some(cargo)).is_err() {
                    break;
                }
                *sent += 1;
            }
            let before = world.nodes[0].net.in_flight(*channel);
            world.go_on(1);
            let after = world.nodes[0].net.in_flight(*channel);
            at_once = after.saturating_sub(before).max(at_once);
            (sum, looks) = (sum + after, looks + 1);
            while world.nodes[1].net.next_event().is_some() {}
        }
        UnderWay { mean: sum / looks, at_once }
    }
}

#[test]
fn a_window_heeds_losses() {
    let [none, many] = [0, 30].map(|loss| Stream::begin(loss, 100_000).go_on(60_000_000));
    assert!(many.mean < none.mean / 4, "{many:?} with losses, {none:?} without");
}

/// A window that goes out at one moment fills the queues of others.
#[test]
fn what_is_sent_is_spread_over_the_round_trip() {
    let paced = Stream::begin(0, 1_000_000).go_on(60_000_000);
    assert!(paced.mean > 80_000 && paced.at_once < 100_000, "{paced:?}");
}
