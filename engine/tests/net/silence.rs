//! How long nothing is heard of a peer before it is dead: time in which this side was stopped does not count.

use cutthrough_engine::net::NetEvent;
use cutthrough_engine::net::channel::Ending;

use super::wire::World;

const SILENCE_NS: u64 = 900_000_000;

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
