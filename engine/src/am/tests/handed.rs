//! Requests that are handed over: who hears what, and when.

use alloc::vec::Vec;

use super::*;

/// A call of the first of three that the second has just handed over to the third.
fn handed() -> (World, CallId) {
    let mut world = World::new(3, 100, WINDOW);
    let number = world.ask(0, 1, PASS, 0).expect("room");
    let (_, call) = world.calls[&number];
    world.step(0, 1);
    (world, call)
}

/// What is on its way between two.
fn on_its_way(world: &World, from: u32, to: u32) -> Vec<Message<'_>> {
    world.rings[&(from, to)].iter().map(|(control, _)| Message::decode(control).expect("well-formed")).collect()
}

/// The giver's word waited until it looked at what waits, while the taker's reply was on its way already.
#[test]
fn who_has_asked_is_told_at_once_who_replies() {
    let (mut world, _) = handed();
    let told: Vec<_> = on_its_way(&world, 1, 0).iter().map(|told| told.kind).collect();
    assert_eq!(told, [Kind::HandOver]);
    world.settle();
    world.check();
}

/// Who had handed a request over did not pass on that it was cancelled: the taker served it for nobody, and all windows
/// were bound until it answered.
#[test]
fn that_a_request_is_cancelled_goes_on_to_its_taker() {
    let (mut world, call) = handed();
    let context = world.nodes[0].cancel(call).expect("it waits");
    world.over(0, context, Outcome::Lost);
    world.flush(0);
    world.step(0, 1);
    world.flush(1);
    let told = on_its_way(&world, 1, 2);
    assert_eq!(told.iter().map(|told| told.kind).collect::<Vec<_>>(), [Kind::Request, Kind::Cancel]);
    assert_eq!(told[0].call, told[1].call);
    // Who has asked has its window again before the taker answers.
    while world.step(1, 0) {}
    assert_eq!(world.nodes[0].under_way(1).0, 0);
    world.settle();
    world.check();
}

/// The channel of who had asked ended, and who had handed the request over did not tell its taker, which served it for
/// nobody.
#[test]
fn that_the_channel_of_a_request_has_ended_goes_on_to_its_taker() {
    let (mut world, _) = handed();
    world.part(0, 1);
    assert_eq!(world.nodes[1].calls().waiting(), 0);
    world.flush(1);
    let told = on_its_way(&world, 1, 2);
    assert_eq!(told.iter().map(|told| told.kind).collect::<Vec<_>>(), [Kind::Request, Kind::Cancel]);
    assert_eq!(told[0].call, told[1].call);
    world.settle();
    world.check();
}

/// Of many that are handed over, those are cancelled that were asked for on a channel, or by a number, and no others:
/// also where a liar has given one number twice.
#[test]
fn those_are_cancelled_that_are_meant() {
    let mut world = World::new(3, 1000, WINDOW);
    for (from, number) in [(0, 1), (2, 1), (0, 2), (0, 2), (2, 2), (0, 3)] {
        let mut control = [0; CONTROL_MAX];
        let call = CallId::new(number, 1);
        let args = u64::from(number).to_le_bytes();
        let request = Message { handler: PASS, args: &args, ..Message::new(Kind::Request, call) };
        let len = request.encode(&mut control).expect("it is short");
        world.take_in(from, 1, &control[..len], None);
    }
    let giver = &mut world.nodes[1];
    let mut left = 6;
    for (from, number, is_there) in [(0, 2, 2), (0, 4, 0), (2, 2, 1), (1, 1, 0)] {
        for _ in 0..is_there {
            let context = giver.cancel_handed(from, CallId::new(number, 1));
            let Some(Context::Passed(to)) = context else { panic!("{from} {number}: {context:?}") };
            assert_eq!((to.row(), to.call().index()), (from, number));
            left -= 1;
        }
        assert!(giver.cancel_handed(from, CallId::new(number, 1)).is_none());
        assert_eq!(giver.calls().waiting(), left);
    }
    giver.closed(0);
    let with_it = core::iter::from_fn(|| giver.lost(0)).map(|ended| ended.row).collect::<Vec<_>>();
    // Two that have come from there, and one that was handed over to there.
    assert_eq!((with_it.len(), giver.calls().waiting()), (3, 0));
}

/// Numbers begin anew with a channel.
#[test]
fn what_an_earlier_channel_of_a_row_has_asked_is_not_cancelled_by_a_later_one() {
    let (mut world, call) = handed();
    let giver = &mut world.nodes[1];
    giver.closed(0);
    giver.opened(0, 100);
    assert!(giver.cancel_handed(0, call).is_none());
    assert_eq!(giver.calls().waiting(), 1);
}
