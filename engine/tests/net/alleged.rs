//! Frames that do not open are allegations: nothing follows from them but a count (rule N15).

use cutthrough_engine::net::channel::Body;
use cutthrough_engine::net::trains::Came;
use cutthrough_engine::net::{CallError, Guess, NetEvent};
use cutthrough_wire::frame::{Header, Kind, Refusal};

use super::rules::{Forger, VICTIM, opening, sealed, world};
use super::trains::Socket;
use super::wire::{Faults, Node, World};

/// Brings a frame whose seal is wrong.
fn forge(world: &mut World, forger: &Forger, header: &Header, body: &[u8]) {
    let (mut head, mut body) = sealed(header, body);
    head[60] ^= 1;
    let (now, from) = (world.now(), forger.address());
    world.nodes[VICTIM].net.frame(now, from, head.first_chunk().unwrap(), Body::Aside(&mut body), None);
}

#[test]
fn a_forged_frame_with_an_old_number_is_not_answered() {
    let (mut world, _, mut forger) = world();
    forger.send(&mut world, Kind::Probe, [0, 0], &[]);
    forger.hears(&mut world);
    let old = Header { number: 0, ..forger.header(Kind::Probe, [0, 0], &[]) };
    let before = *world.nodes[VICTIM].net.tally();
    (0..10).for_each(|_| forge(&mut world, &forger, &old, &[]));
    assert!(forger.hears(&mut world).is_empty());
    let tally = *world.nodes[VICTIM].net.tally();
    assert_eq!((tally.forged, tally.duplicates), (before.forged + 10, before.duplicates));
    // The true one is answered again.
    let (head, mut body) = sealed(&old, &[]);
    let (now, from) = (world.now(), forger.address());
    world.nodes[VICTIM].net.frame(now, from, head.first_chunk().unwrap(), Body::Aside(&mut body), None);
    assert_eq!(forger.hears(&mut world).len(), 1);
    assert_eq!(world.nodes[VICTIM].net.tally().duplicates, before.duplicates + 1);
}

#[test]
fn a_forged_frame_does_not_change_where_the_next_is_expected() {
    let (mut world, _, mut one) = world();
    let mut other = Forger::joined_as(&mut world, 10);
    let guessed = |world: &mut World| {
        let (Guess::Rest { channel, .. } | Guess::Fresh { channel }, _) = world.nodes[VICTIM].net.guess(None)?;
        Some(channel)
    };
    other.send(&mut world, Kind::Open, [0, 0], &opening(3000, 3000));
    one.send(&mut world, Kind::Open, [0, 0], &opening(3000, 3000));
    let expected = guessed(&mut world);
    assert!(expected.is_some());
    for kind in [Kind::Data, Kind::Open] {
        let body = if kind == Kind::Open { opening(3000, 3000) } else { vec![7; 1000] };
        forge(&mut world, &other, &other.header(kind, [0, 0], &body), &body);
        // So it is with one that has come before.
        forge(&mut world, &other, &Header { number: 0, ..other.header(kind, [0, 0], &body) }, &body);
        assert_eq!(guessed(&mut world), expected, "{kind:?}");
    }
    other.send(&mut world, Kind::Data, [0, 0], &[7; 1000]);
    assert_ne!(guessed(&mut world), expected);
    assert!(
        std::iter::from_fn(|| world.nodes[VICTIM].net.next_event()).all(|event| !matches!(event, NetEvent::Closed(..)))
    );
}

/// What nobody has proved has no headers looked at before trains are received, which costs a call of the kernel for
/// each.
#[test]
fn a_forged_frame_has_no_others_looked_at_first() {
    let (mut world, _, mut one) = world();
    one.send(&mut world, Kind::Open, [0, 0], &opening(9000, 9000));
    let (now, from) = (world.now(), one.address());
    let mut received = |header: &Header, body: &[u8], forged: bool| {
        let (mut frame, body) = sealed(header, body);
        frame[60] ^= u8::from(forged);
        frame.extend_from_slice(&body);
        let Node { net, trains, .. } = &mut world.nodes[VICTIM];
        assert!(net.guess(None).is_some(), "part of the payload is awaited");
        let mut came = [(VICTIM, from, frame)];
        let mut socket = Socket { came: &mut came, at: now, lies: None, frames: 0, peeked: 0 };
        assert_eq!(trains.receive(net, &mut socket, None), Came::Train);
        socket.peeked
    };
    for kind in [Kind::Data, Kind::Open] {
        let body = if kind == Kind::Open { opening(3000, 3000) } else { vec![7; 1000] };
        for _ in 0..10 {
            let header = one.header(kind, [0, 5000], &body);
            assert_eq!(received(&header, &body, true), 0, "{kind:?}");
            assert_eq!(received(&Header { generation: 77, ..header }, &body, false), 0, "{kind:?}");
        }
    }
    // A true one that lies elsewhere than was guessed has.
    assert_eq!(received(&one.header(Kind::Data, [0, 5000], &[7; 1000]), &[7; 1000], false), 0);
    one.number += 1;
    assert_eq!(received(&one.header(Kind::Data, [0, 6000], &[7; 1000]), &[7; 1000], false), 1);
}

/// Somebody on the way sends all that a side says back to it: a shared key proves to it that it speaks to itself.
#[test]
fn a_side_is_not_taken_for_its_own_peer() {
    let mut world = World::new(41, Faults::NONE);
    world.mirror = true;
    world.nodes[0].net.listen(true);
    let (now, to) = (world.now(), world.address(1));
    let call = world.nodes[0].net.call(now, to, 1408).unwrap();
    let event = world.event(0);
    let NetEvent::Failed(of, CallError::Refused(Refusal::Itself)) = event else { panic!("{event:?}") };
    assert_eq!((of, world.nodes[0].net.channels()), (call, 0));
    // So it says when it is called by its own address.
    world.mirror = false;
    let (now, to) = (world.now(), world.address(0));
    world.nodes[0].net.call(now, to, 1408).unwrap();
    assert!(matches!(world.event(0), NetEvent::Failed(_, CallError::Refused(Refusal::Itself))));
}
