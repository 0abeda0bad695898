//! Which payloads have their headers cut off, where what that costs is found out.

use cutthrough_engine::net::Guess;
use cutthrough_engine::net::placing::{Means, Placing};
use cutthrough_engine::receipt::Placement;
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
