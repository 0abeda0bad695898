//! Which payloads have their headers cut off, where what that costs is found out.

use std::cell::Cell;

use cutthrough_engine::net::Guess;
use cutthrough_engine::net::placing::{Means, Placing};
use cutthrough_engine::receipt::Placement;
use cutthrough_engine::register::{Expected, Whose};
use cutthrough_wire::frame::Kind;

use super::rules::{Forger, VICTIM, opening, world};
use super::wire::World;

/// Bytes of each payload, and of its first frame; the rest is a second one.
const BYTES: u32 = 8000;
const FIRST: u32 = 1000;

/// The first or the second frame of payload `index`.
fn send(world: &mut World, forger: &mut Forger, index: u32, second: bool) {
    if second {
        forger.send(world, Kind::Data, [index, FIRST], &vec![7; (BYTES - FIRST) as usize]);
    } else {
        let first = [&opening(BYTES, BYTES)[..], &[7; FIRST as usize]].concat();
        forger.send(world, Kind::Open, [index, 0], &first);
    }
}

/// Whether headers of what is expected next are cut off, and which guess that is.
fn cuts(world: &mut World) -> (bool, Guess) {
    let now = world.now();
    let net = &mut world.nodes[VICTIM].net;
    let (guess, _) = net.guess(None).expect("memory was posted");
    (net.cuts(guess, 1408, || now), guess)
}

#[test]
fn a_payload_is_placed_as_it_began() {
    let (mut world, _, mut forger) = world();
    (0..64).for_each(|_| world.nodes[VICTIM].net.memory.post(BYTES as usize));
    world.nodes[VICTIM].net.placing = Placing::new(Means::Here, 0);
    let mut turned = None;
    for index in 0..60 {
        send(&mut world, &mut forger, index, false);
        // The payload before it has landed: another placement may be chosen now, but not for this one.
        let before = world.nodes[VICTIM].net.placing.now().placement;
        let (cut, guess) = cuts(&mut world);
        let after = world.nodes[VICTIM].net.placing.now().placement;
        assert!(matches!(guess, Guess::Rest { .. }));
        assert_eq!(cut, (before, after) == (Placement::HeaderCut, Placement::HeaderCut), "payload {index}");
        if (before, after) == (Placement::Copy, Placement::HeaderCut) {
            turned = turned.or(Some(index));
            // The one that comes next is another matter.
            send(&mut world, &mut forger, index, true);
            let (cut, guess) = cuts(&mut world);
            assert!(cut && matches!(guess, Guess::Fresh { .. }), "{guess:?} after payload {index}");
        } else {
            send(&mut world, &mut forger, index, true);
        }
        let now = world.now();
        world.nodes[VICTIM].net.placing.judge(now);
        // The application takes it, and what the victim says of that gives leave to send more.
        assert_eq!(forger.events(&mut world).len(), 1, "payload {index}");
        forger.hears(&mut world);
    }
    assert!(turned.is_some(), "the cut was never tried");
}

/// What is expected next: by its place in memory, the first byte of the first message being at 0.
fn forecast(world: &mut World, most: usize) -> Vec<Expected> {
    let net = &mut world.nodes[VICTIM].net;
    let (guess, _) = net.guess(None).expect("memory was posted");
    let mut list = Vec::new();
    net.forecast((guess, 1472), most, |bytes| Some(bytes.as_ptr().addr() as u64), &mut list);
    list
}

/// Each payload once, as it would be cut: where each frame begins, its bytes, and whether it opens the payload.
fn shape(list: &[Expected]) -> Vec<(u32, u32, bool)> {
    list.iter().map(|frame| (frame.offset, frame.bytes, matches!(frame.whose, Whose::Opens(_)))).collect()
}

#[test]
fn what_comes_next_is_forecast_as_far_as_messages_are_alike() {
    let (mut world, _, mut forger) = world();
    (0..8).for_each(|_| world.nodes[VICTIM].net.memory.post(BYTES as usize));
    let whole = [(0, 1264, true), (1264, 1408, false), (2672, 1408, false), (4080, 1408, false), (5488, 1408, false)];
    let whole = [&whole[..], &[(6896, 1104, false)]].concat();
    send(&mut world, &mut forger, 0, false);
    // Nobody knows how long the next one is: all of its place is listed, and nothing behind it.
    let rest: Vec<_> = (FIRST..BYTES).step_by(1408).map(|at| (at, 1408.min(BYTES - at), false)).collect();
    assert_eq!(shape(&forecast(&mut world, 99)), [&rest[..], &whole].concat());
    send(&mut world, &mut forger, 0, true);
    assert_eq!(shape(&forecast(&mut world, 99)), whole);
    send(&mut world, &mut forger, 1, false);
    // Two alike: so will the others be, as far as there is memory.
    let list = forecast(&mut world, 99);
    assert_eq!(shape(&list), [rest, whole.repeat(6)].concat());
    assert!(list[..5].iter().all(|frame| frame.whose == Whose::Known(1)));
    let opens = list.iter().filter_map(|frame| match frame.whose {
        Whose::Opens(least) => Some(least),
        _ => None,
    });
    assert_eq!(opens.collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7]);
    // Each payload lies in one piece.
    assert!(list.windows(2).all(|two| two[1].offset == 0 || two[1].at == two[0].at + u64::from(two[0].bytes)));
    assert_eq!(shape(&forecast(&mut world, 7)).len(), 7);
    // What lies elsewhere is not listed.
    let net = &mut world.nodes[VICTIM].net;
    let (guess, _) = net.guess(None).expect("memory was posted");
    let mut none = list;
    net.forecast((guess, 1472), 99, |_| None, &mut none);
    assert!(none.is_empty());
    // Nor is it gone through, however much of it there is.
    let asked = Cell::new(0);
    let elsewhere = |_: &[u8]| {
        asked.set(asked.get() + 1);
        None
    };
    net.forecast((guess, 65 + 144), 999, elsewhere, &mut none);
    assert!(none.is_empty() && asked.get() < 20, "{}", asked.get());
    // Of two that have begun the one that has gone on last comes first; the next one is behind both.
    send(&mut world, &mut forger, 2, false);
    let list = forecast(&mut world, 99);
    assert_eq!((list[0].whose, list[5].whose, list[10].whose), (Whose::Known(2), Whose::Known(1), Whose::Opens(3)));
}
