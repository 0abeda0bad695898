//! A close is heard by both sides, whatever is lost of it: nobody waits for a silence that says nothing.

use cutthrough_engine::net::channel::{Body, Ending};
use cutthrough_engine::net::inbox::{Reading, ReadyPayload};
use cutthrough_engine::net::{Cargo, NetEvent, PARTED_MAX};
use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind};

use super::rules::{Forger, VICTIM, sealed, world};
use super::wire::{DEADLINE_NS, Faults, World, pattern};

/// A tenth of the silence after which nodes of a world take each other for dead.
const SOON_NS: u64 = 2_000_000_000;

#[test]
fn a_close_ends_though_its_last_acknowledgement_is_lost() {
    let mut world = World::new(51, Faults::NONE);
    let (a, b) = world.join();
    world.settle();
    let begun = world.now();
    world.nodes[0].net.close(a);
    world.black = Some((1, 0));
    assert!(matches!(world.event(1), NetEvent::Closed(index, Ending::Peer) if index == b));
    assert!(world.swallowed > 0);
    world.black = None;
    world.settle_side(0);
    assert!(world.now() <= begun.after(SOON_NS), "{:?}", world.now());
}

/// Whoever gives a channel up is told of that, too, and nobody gets the channel's number before.
#[test]
fn what_is_given_up_is_told_before_its_number_is_given_away() {
    let mut world = World::new(54, Faults::NONE);
    let (a, b) = world.join();
    world.settle();
    world.nodes[0].net.abandon(a);
    let (now, address) = (world.now(), world.address(1));
    let next = world.nodes[0].net.call(now, address, 1400).unwrap();
    assert_ne!(next, a);
    assert!(world.nodes[0].net.send(a, b"for nobody", None).is_err());
    assert_eq!(world.nodes[0].net.ended(a), Some(Ending::Stalled));
    assert!(matches!(world.nodes[0].net.next_event(), Some(NetEvent::Closed(of, Ending::Stalled)) if of == a));
    // The other side hears nothing more of it.
    loop {
        match world.event(1) {
            NetEvent::Closed(of, Ending::Silent) if of == b => break,
            NetEvent::Opened(_) => {}
            other => panic!("{other:?}"),
        }
    }
    // Who has closed a channel itself is not told that it has ended.
    let mut world = World::new(55, Faults::NONE);
    let (a, _) = world.join();
    world.nodes[0].net.close(a);
    world.nodes[0].net.abandon(a);
    assert!(world.nodes[0].net.next_event().is_none());
}

#[test]
fn both_sides_close_at_once_and_one_does_not_hear_it() {
    for deaf in [0, 1] {
        let mut world = World::new(52, Faults::NONE);
        let (a, b) = world.join();
        world.settle();
        let begun = world.now();
        world.nodes[0].net.close(a);
        world.nodes[1].net.close(b);
        // Both ends are on their way; what the other side answers is lost.
        world.go_on(1);
        world.black = Some((1 - deaf, 0));
        world.settle_side(1 - deaf);
        world.black = None;
        world.settle_side(deaf);
        assert!(world.now() <= begun.after(SOON_NS), "{:?}", world.now());
    }
}

/// Who has closed and is through forgets the channel before it has heard the other side's close, or what that sent
/// before.
#[test]
fn both_sides_close_at_once_and_what_one_says_is_lost() {
    for says_more in [false, true] {
        let mut world = World::new(53, Faults::NONE);
        let (a, b) = world.join();
        world.settle();
        let begun = world.now();
        if says_more {
            let cargo = Cargo { load: pattern(4, LONG), token: None, pages: true, cookie: None };
            world.nodes[1].net.send(b, b"nobody hears it", Some(cargo)).unwrap();
        }
        world.nodes[0].net.close(a);
        world.nodes[1].net.close(b);
        world.black = Some((1, 0));
        world.go_on(1);
        assert!(world.swallowed > 0);
        world.black = None;
        world.settle_side(0);
        world.settle_side(1);
        assert!(world.now() <= begun.after(SOON_NS), "{says_more}: {:?}", world.now());
    }
}

#[test]
fn closes_come_through_whatever_is_lost() {
    let faults = Faults { loss: 30, duplicates: 10, reorder: 20, corrupt: 5 };
    for seed in 0..50 {
        let mut world = World::new(seed, faults);
        for _ in 0..5 {
            let (a, _) = world.join();
            world.nodes[0].net.send(a, b"the last", None).unwrap();
            world.message(1);
            world.settle();
            let begun = world.now();
            world.nodes[0].net.close(a);
            assert!(matches!(world.event(1), NetEvent::Closed(_, Ending::Peer)));
            world.settle_side(0);
            assert!(world.now() <= begun.after(SOON_NS), "seed {seed}: {:?}", world.now());
        }
    }
}

#[test]
fn what_was_said_last_is_said_again_to_nobody_else() {
    let (mut world, _, mut forger) = world();
    forger.send(&mut world, Kind::Close, [0, 0], &[]);
    let heard = forger.hears(&mut world);
    assert!(matches!(forger.events(&mut world)[..], [NetEvent::Closed(_, Ending::Peer)]));
    let again = |world: &mut World, forger: &mut Forger, kind| {
        forger.send(world, kind, [0, 0], &[]);
        let answers: Vec<_> = std::iter::from_fn(|| world.nodes[VICTIM].net.greeting()).collect();
        let read = |(to, frame): (_, Vec<u8>)| {
            assert_eq!(to, forger.address());
            let (head, body) = frame.split_first_chunk().unwrap();
            let header = Header::from_bytes(head).unwrap();
            assert_eq!(sealed(&header, body).0, head, "its seal fits");
            header
        };
        answers.into_iter().map(read).next()
    };
    let answer = again(&mut world, &mut forger, Kind::Close).expect("an answer");
    let told = heard.last().map(|(header, _)| (header.number, header.below)).expect("an acknowledgement");
    assert_eq!((answer.number, answer.below), (told.0 + 1, told.1 + 1));
    let answer = again(&mut world, &mut forger, Kind::Close).expect("an answer, however often");
    assert_eq!((answer.number, answer.below), (told.0 + 2, told.1 + 2));
    // One that is here already is not, nor is one with a wrong seal.
    forger.number -= 1;
    assert_eq!(again(&mut world, &mut forger, Kind::Close), None);
    let header = forger.header(Kind::Close, [0, 0], &[]);
    let (head, mut body) = sealed(&Header { held: 1, ..header }, &[]);
    let mut head: [u8; HEADER_BYTES] = head.try_into().unwrap();
    head[20] ^= 1;
    let now = world.now();
    world.nodes[VICTIM].net.frame(now, forger.address(), &head, Body::Aside(&mut body), None);
    assert_eq!(world.nodes[VICTIM].net.greeting(), None);
    // Nothing but a close is answered; nor is one of another channel, of another life, or from elsewhere.
    assert_eq!(again(&mut world, &mut forger, Kind::Probe), None);
    let mut lie = |tag, generation, host| {
        let stranger = Forger::stranger(host);
        let (tag, generation) = (forger.tag ^ tag, forger.generation ^ generation);
        let mut other = Forger { tag, generation, number: forger.number, ..stranger };
        again(&mut world, &mut other, Kind::Close)
    };
    assert_eq!([lie(1, 0, 9), lie(0, 1, 9), lie(0, 0, 10)], [None, None, None]);
    assert!(lie(0, 0, 9).is_some());
}

#[test]
fn what_was_said_last_is_kept_of_so_many_channels_and_for_so_long() {
    let (mut world, _, _) = world();
    let mut forgers = Vec::new();
    for _ in 0..2 * PARTED_MAX {
        // So many callers are not answered at once.
        world.pass(1_000_000);
        let mut forger = Forger::joined_as(&mut world, 10);
        forger.send(&mut world, Kind::Close, [0, 0], &[]);
        assert!(!forger.hears(&mut world).is_empty());
        assert!(matches!(forger.events(&mut world)[..], [NetEvent::Closed(_, Ending::Peer)]));
        forgers.push(forger);
    }
    let answered = |world: &mut World, forger: &mut Forger| {
        forger.send(world, Kind::Close, [0, 0], &[]);
        world.nodes[VICTIM].net.greeting().is_some()
    };
    let kept = forgers.iter_mut().filter_map(|forger| answered(&mut world, forger).then_some(())).count();
    assert_eq!(kept, PARTED_MAX);
    let last = forgers.last_mut().expect("the last one");
    assert!(answered(&mut world, last));
    world.pass(10 * SOON_NS);
    let now = world.now();
    world.nodes[VICTIM].net.tick(now);
    assert!(!answered(&mut world, last), "by now it has given this side up");
}

#[test]
fn who_goes_says_it_thrice() {
    let (mut world, _, mut forger) = world();
    forger.send(&mut world, Kind::Close, [0, 0], &[]);
    let heard = forger.hears(&mut world);
    assert!(matches!(forger.events(&mut world)[..], [NetEvent::Closed(_, Ending::Peer)]));
    let parts = |world: &mut World| {
        let now = world.now();
        world.nodes[VICTIM].net.part(now);
        let frames = std::iter::from_fn(|| world.nodes[VICTIM].net.greeting());
        frames.map(|(_, frame)| Header::from_bytes(frame.first_chunk().unwrap()).unwrap()).collect::<Vec<_>>()
    };
    let (told, _) = heard.last().expect("an acknowledgement");
    let [again, once_more] = parts(&mut world)[..] else { panic!("not twice more") };
    assert_eq!((again.number, again.below), (told.number + 1, told.below));
    assert_eq!((once_more.number, once_more.below), (told.number + 2, told.below));
    world.pass(SOON_NS);
    assert!(parts(&mut world).is_empty(), "long ago");
}

/// Bytes of a payload, more than a side keeps that nobody reads.
const LONG: usize = 1_000_000;

/// A channel to a node whose user does not read: its payload is on its way, and the channel is closed.
fn closed_before_it_is_read(seed: u64) -> (World, usize, usize) {
    let mut world = World::with_silence(seed, SOON_NS);
    let (a, b) = world.join();
    let cargo = Cargo { load: pattern(3, LONG), token: None, pages: false, cookie: None };
    world.nodes[0].net.send(a, b"to be read", Some(cargo)).unwrap();
    world.message(1);
    world.nodes[0].net.close(a);
    (world, a, b)
}

#[test]
fn a_close_ends_though_the_peer_takes_nothing() {
    let (mut world, _, b) = closed_before_it_is_read(56);
    let begun = world.now();
    world.go_on(DEADLINE_NS / 2);
    assert_eq!(world.nodes[0].net.channels(), 1, "it may still be read");
    world.settle_side(0);
    let after = world.now().saturating_since(begun);
    assert!((DEADLINE_NS..DEADLINE_NS + SOON_NS).contains(&after), "{after} ns");
    assert!(world.nodes[0].net.next_event().is_none(), "who has closed it is told nothing");
    // The other side hears nothing more.
    assert!(matches!(world.event(1), NetEvent::Closed(index, Ending::Silent) if index == b));
}

#[test]
fn a_close_waits_for_who_reads_slowly() {
    let mut world = World::with_silence(57, SOON_NS);
    let (a, b) = world.join();
    for seed in 0..10 {
        let cargo = Cargo { load: pattern(seed, 100_000), token: None, pages: false, cookie: None };
        world.nodes[0].net.send(a, b"to be read", Some(cargo)).unwrap();
    }
    world.nodes[0].net.close(a);
    let begun = world.now();
    for seed in 0..10 {
        let (_, message) = world.message(1);
        let ReadyPayload::Arriving(number, _) = message.payload else { panic!("{:?}", message.payload) };
        let mut into = vec![0; 100_000];
        world.read(1, b, &mut Reading { message: number, into: &mut into });
        assert_eq!(into, pattern(seed, 100_000));
        world.go_on(DEADLINE_NS / 3);
    }
    assert!(world.now() >= begun.after(3 * DEADLINE_NS), "{:?}", world.now());
    assert!(matches!(world.event(1), NetEvent::Closed(index, Ending::Peer) if index == b));
}

#[test]
fn a_peer_that_closes_and_does_not_send_what_it_counts_has_closed() {
    let (mut world, _, mut forger) = world();
    let begun = world.now();
    forger.send(&mut world, Kind::Close, [2, 0], &[]);
    while world.now() < begun.after(DEADLINE_NS + SOON_NS) {
        forger.send(&mut world, Kind::Probe, [0, 0], &[]);
        assert!(!forger.hears(&mut world).is_empty() || world.nodes[VICTIM].net.channels() < 2);
        if let Some(event) = world.nodes[VICTIM].net.next_event() {
            let NetEvent::Closed(of, Ending::Peer) = event else { panic!("{event:?}") };
            assert_eq!(of, forger.tag as usize);
            assert!(world.now() >= begun.after(DEADLINE_NS));
            return;
        }
        world.let_pass(SOON_NS / 4);
        let now = world.now();
        world.nodes[VICTIM].net.tick(now);
    }
    panic!("never ends");
}
