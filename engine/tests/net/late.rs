//! Frames that come later than others that were sent after them: they are not lost.

use cutthrough_engine::net::Cargo;

use super::wire::{Faults, World, pattern};

/// Sends payloads of 1 MiB one after the other, 5 % of whose frames are overtaken by others, and says how many frames
/// were taken for lost meanwhile, and how long it took.
fn carried(world: &mut World, a: usize, payloads: usize) -> (u64, u64) {
    let (begun, before) = (world.now(), world.nodes[0].net.tally().frames_lost);
    for _ in 0..payloads {
        let cargo = Cargo { load: pattern(5, 1 << 20), token: None, pages: true, cookie: None };
        world.nodes[0].net.send(a, b"much", Some(cargo)).unwrap();
        world.message(1);
    }
    (world.nodes[0].net.tally().frames_lost - before, world.now().saturating_since(begun))
}

#[test]
fn frames_that_are_overtaken_are_not_taken_for_lost_for_long() {
    let mut world = World::new(81, Faults { reorder: 5, ..Faults::NONE });
    world.delay = 100_000;
    let (a, _) = world.join();
    carried(&mut world, a, 1);
    // Some 5,600 frames, of which 280 come up to a quarter of a round trip late.
    let (lost, took) = carried(&mut world, a, 7);
    assert!(lost < 40, "{lost} frames in {took} ns");
    let mut world = World::new(81, Faults::NONE);
    world.delay = 100_000;
    let (a, _) = world.join();
    carried(&mut world, a, 1);
    let (_, in_order) = carried(&mut world, a, 7);
    assert!(took < 3 * in_order, "{took} ns, and {in_order} in order");
}
