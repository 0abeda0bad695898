//! Frames that never go.

use super::*;

/// A frame that is longer than the other end takes by now does not hold up shorter ones for ever, in either order.
#[test]
fn what_never_goes_holds_up_nothing_that_is_shorter() {
    let Some(wire) = wire(9000) else { return };
    let mut receiver = far(&wire);
    let mut sender = near(&wire, receiver.local);
    wire.far.ip("link set far mtu 1500");
    let room = sender.ring.room();
    let (long, short) = (body(1, 8000), body(2, 1000));
    for bodies in [[&short, &long, &long, &short], [&long, &short, &short, &long]] {
        for body in bodies {
            assert!(sender.ring.send(&sender.way, &[IoSlice::new(body)], body.len()).unwrap());
        }
        assert!(sender.ring.leaves(), "nobody looks again, though short ones wait behind a long one");
        let (begun, mut came) = (Instant::now(), 0);
        while came < 2 {
            assert!(begun.elapsed() < PATIENCE, "{came} have come");
            sender.ring.receive(1, &mut |_, _| {});
            receiver.ring.receive(usize::MAX, &mut |_, body| {
                assert!(*body == short);
                came += 1;
            });
        }
    }
    wire.far.ip("link set far mtu 9000");
    // All but the last one were lost.
    let looks = || {
        sender.ring.receive(1, &mut |_, _| {});
    };
    assert_eq!(gather_while(&mut receiver, 1, QUIET, looks).0, [long]);
    assert_eq!((sender.ring.room(), sender.ring.counts().refused), (room, 3));
}
