//! Requests that are handed over: who hears what, and when.

use alloc::vec::Vec;

use super::*;

/// What is on its way between two.
fn on_its_way(world: &World, from: u32, to: u32) -> Vec<Message<'_>> {
    world.rings[&(from, to)].iter().map(|(control, _)| Message::decode(control).expect("well-formed")).collect()
}

/// The giver's word waited until it looked at what waits, while the taker's reply was on its way already.
#[test]
fn who_has_asked_is_told_at_once_who_replies() {
    let mut world = World::new(3, 100, WINDOW);
    world.ask(0, 1, PASS, 0).expect("room");
    world.step(0, 1);
    let told: Vec<_> = on_its_way(&world, 1, 0).iter().map(|told| told.kind).collect();
    assert_eq!(told, [Kind::HandOver]);
    world.settle();
    world.check();
}
