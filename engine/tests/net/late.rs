//! Frames that come later than others that were sent after them: they are not lost.

use cutthrough_engine::net::Cargo;
use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::channel::Body;
use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::Kind;

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

/// What was given up because no answer came, and proves to have arrived before it went again, does not go again.
#[test]
fn what_has_arrived_after_all_is_not_sent_again() {
    let mut world = World::new(82, Faults::NONE);
    let (a, b) = world.join();
    world.settle();
    let (now, later) = (world.now(), world.now().after(50_000_000));
    let frame = |world: &mut World, by: usize, channel: usize, control: &[u8]| {
        let mut batch = Batch::default();
        world.nodes[by].net.send(channel, control, None).unwrap();
        assert!(world.nodes[by].net.batch(now, &mut batch, 65_000).is_some());
        world.bytes(by, channel, &batch)
    };
    let bring = |world: &mut World, by: usize, frame: &mut [u8], at: Instant| {
        let (from, (head, body)) = (world.address(by), frame.split_first_chunk_mut().unwrap());
        world.nodes[1 - by].net.frame(at, from, head, Body::Aside(body), None);
    };
    let mut word = frame(&mut world, 0, a, b"a word");
    bring(&mut world, 0, &mut word, now);
    let mut answer = frame(&mut world, 1, b, b"and its answer");
    let net = &mut world.nodes[0].net;
    net.looked(later);
    assert!(net.doubts(later));
    net.tick(later);
    let lost = net.tally().frames_lost;
    assert!(net.tally().timeouts == 1 && lost > 0 && net.tally().frames_late == 0);
    bring(&mut world, 1, &mut answer, later);
    let net = &mut world.nodes[0].net;
    let mut again = Batch::default();
    while net.batch(later, &mut again, 65_000).is_some() {
        assert_ne!(again.own()[1], Kind::Records as u8, "it is there");
    }
    assert_eq!((net.tally().frames_lost, net.tally().frames_late), (lost, lost));
}

/// When a call would have been repeated means nothing once it is answered, and hides nothing: on a long way that is
/// before what was sent then may be given up.
#[test]
fn an_old_time_hides_no_frame_that_may_be_given_up() {
    for delay_ms in 1..40 {
        let mut world = World::new(83, Faults::NONE);
        world.delay = delay_ms * 1_000_000;
        let (a, _) = world.join();
        let (now, later) = (world.now(), world.now().after(800_000_000));
        let (net, mut batch) = (&mut world.nodes[0].net, Batch::default());
        net.send(a, b"a word", None).unwrap();
        while net.batch(now, &mut batch, 65_000).is_some() {}
        net.looked(now);
        net.tick(now);
        assert!(!net.doubts(now) && net.doubts(later), "{delay_ms} ms");
    }
}
