//! Who is asked for how much.

extern crate std;
use std::vec;

use proptest::prelude::*;

use super::*;

/// What is granted, as [`super::choose`] has it.
fn choose(wanting: &[(u8, Wanting)], budget: u32, admitted: usize) -> Vec<(u8, u64, u32)> {
    of_free(wanting, budget, budget, admitted)
}

/// The same, when only so much of the budget is free.
fn of_free(wanting: &[(u8, Wanting)], budget: u32, free: u32, admitted: usize) -> Vec<(u8, u64, u32)> {
    let chosen = super::choose(wanting, budget, &mut (free, 0), |_| (1, None), admitted).into_iter();
    chosen.map(|(owner, wanting, upto)| (owner, wanting.message, upto)).collect()
}

/// Who is asked now, for what, up to where: and that is remembered.
fn asks(
    turns: &mut Turns<u8>,
    now: Instant,
    wanting: &[(u8, Wanting)],
    due: impl Fn(u8, u64) -> Option<Due>,
    distance: impl Fn(u8) -> Distance,
) -> Vec<(u8, u64, u32)> {
    let chosen = turns.choose(now, wanting, BUDGET, due, &distance).into_iter();
    let asked = chosen.map(|(owner, wanting, upto)| {
        turns.asks(now, owner, &wanting, upto, distance(owner));
        (owner, wanting.message, upto)
    });
    asked.collect()
}

const fn wanting(message: u64, have: u32, granted: u32, payload: u32) -> (u8, Wanting) {
    (
        0,
        Wanting {
            message,
            begun: Instant::from_nanos(message),
            have,
            granted,
            most: payload,
            payload,
            sought: false,
            read: false,
        },
    )
}

#[test]
fn one_alone_gets_all() {
    assert_eq!(choose(&[wanting(1, 0, 10, 1000)], 600, 2), vec![(0, 1, 600)]);
    assert_eq!(choose(&[wanting(1, 500, 600, 1000)], 600, 2), vec![(0, 1, 1000)]);
}

#[test]
fn small_grants_wait_unless_they_are_the_last() {
    assert_eq!(choose(&[wanting(1, 100, 600, 5000)], 600, 2), vec![]);
    assert_eq!(choose(&[wanting(1, 300, 600, 5000)], 600, 2), vec![(0, 1, 900)]);
    assert_eq!(choose(&[wanting(1, 100, 600, 650)], 600, 2), vec![(0, 1, 650)]);
}

#[test]
fn the_shortest_and_the_oldest_share() {
    let waiting = [wanting(1, 0, 0, 9000), wanting(2, 0, 0, 8000), wanting(3, 0, 0, 500)];
    assert_eq!(choose(&waiting, 2000, 2), vec![(0, 1, 500), (0, 3, 500)]);
}

#[test]
fn however_many_are_admitted_the_oldest_is_one_of_several() {
    let waiting = [wanting(1, 0, 0, 9000), wanting(2, 0, 0, 8000), wanting(3, 0, 0, 5000), wanting(4, 0, 0, 7000)];
    assert_eq!(choose(&waiting, 2000, 1), vec![(0, 3, 2000)]);
    assert_eq!(choose(&waiting, 2100, 3), vec![(0, 1, 525), (0, 3, 787), (0, 4, 787)]);
    assert_eq!(choose(&waiting, 2000, 9).len(), 4);
}

#[test]
fn what_is_not_free_is_not_granted_and_the_oldest_comes_first() {
    let waiting = [wanting(1, 0, 0, 9000), wanting(2, 0, 0, 400), wanting(3, 0, 0, 600)];
    assert_eq!(of_free(&waiting, 2000, 2000, 2), vec![(0, 1, 500), (0, 2, 400)]);
    assert_eq!(of_free(&waiting, 2000, 800, 2), vec![(0, 1, 500)]);
    assert_eq!(of_free(&waiting, 2000, 300, 2), vec![(0, 1, 300)]);
    // It waits for a worthwhile step, and short ones do not take it from it.
    assert_eq!(of_free(&waiting, 2000, 240, 2), vec![]);
    assert_eq!(of_free(&waiting[1..], 2000, 1000, 2), vec![(0, 2, 400), (0, 3, 500)]);
}

/// Of many that are equally long, and ever more of them, the first would be left out for ever else: it has the
/// fewest bytes left, too, and whoever has waited longest beside it would take all that is free.
#[test]
fn the_first_of_equals_is_never_left_out() {
    let waiting: Vec<(u8, Wanting)> = (1..9).map(|message| wanting(message, 0, 0, 400)).collect();
    assert_eq!(of_free(&waiting, 2000, 100, 2), vec![]);
    assert_eq!(of_free(&waiting, 2000, 400, 2), vec![(0, 1, 400)]);
    assert_eq!(of_free(&waiting, 2000, 800, 2), vec![(0, 1, 400), (0, 2, 400)]);
}

proptest! {
    /// Whatever there is: nobody is granted anything while the one that has waited longest is granted nothing.
    #[test]
    fn the_oldest_of_all_goes_first(
        payloads in prop::collection::vec((1_u64..100, 0_u32..900, 1_u32..900, any::<bool>()), 1..20),
        free in 0_u32..2000,
        admitted in 2_usize..5,
    ) {
        let waiting: Vec<(u8, Wanting)> = payloads
            .iter()
            .map(|&(begun, have, more, read)| {
                let (owner, wanting) = wanting(begun, have, have, have + more);
                (owner, Wanting { read, ..wanting })
            })
            .collect();
        let chosen = super::choose(&waiting, 2000, &mut (free, 0), |_| (1, None), admitted);
        let oldest = waiting.iter().map(|(_, wanting)| wanting.begun).min();
        prop_assert!(chosen.is_empty() || chosen.iter().any(|(_, wanting, _)| Some(wanting.begun) == oldest));
    }
}

#[test]
fn whose_reader_waits_comes_before_shorter_ones() {
    let mut waiting = [wanting(1, 0, 0, 900), wanting(2, 0, 0, 800), wanting(3, 0, 0, 9000)];
    waiting[2].1.read = true;
    assert_eq!(choose(&waiting, 2000, 2), vec![(0, 1, 500), (0, 3, 1500)]);
    assert_eq!(choose(&waiting, 2000, 1), vec![(0, 3, 2000)]);
}

#[test]
fn of_equals_the_one_that_has_waited_longer_is_asked_for() {
    let waiting = [wanting(7, 0, 0, 9000), wanting(5, 0, 0, 9000), wanting(4, 0, 0, 9000), wanting(6, 0, 0, 9000)];
    assert_eq!(choose(&waiting, 2000, 1), vec![(0, 4, 2000)]);
    assert_eq!(choose(&waiting, 2000, 2), vec![(0, 4, 1500), (0, 5, 500)]);
}

#[test]
fn what_has_no_memory_gets_nothing_and_holds_up_nobody() {
    let none = (
        0,
        Wanting {
            message: 1,
            begun: Instant::default(),
            have: 0,
            granted: 10,
            most: 10,
            payload: 100,
            sought: false,
            read: false,
        },
    );
    assert_eq!(choose(&[none], 1000, 2), vec![]);
    let hardly = (
        0,
        Wanting {
            message: 2,
            begun: Instant::default(),
            have: 0,
            granted: 10,
            most: 15,
            payload: 100,
            sought: false,
            read: false,
        },
    );
    assert_eq!(choose(&[none, hardly, hardly, wanting(3, 0, 0, 9000)], 1000, 2), vec![(0, 3, 1000)]);
}

/// A payload, as the receiver has it.
#[derive(Debug, Clone, Copy)]
struct Payload {
    owner: u8,
    bytes: u32,
    have: u32,
    granted: u32,
    /// When it wants to be asked for, in ms.
    begins: u64,
}

const NEAR: Distance = Distance { round_ns: 5_000_000, least_ns: 5_000_000 };
const BUDGET: u32 = 2000;

/// Payloads of several owners, numbered as they lie here, and who is asked for them.
#[derive(Debug)]
struct World {
    turns: Turns<u8>,
    payloads: Vec<Payload>,
}

impl World {
    fn new(payloads: &[(u8, u32)]) -> Self {
        let payload = |(owner, bytes)| Payload { owner, bytes, have: 0, granted: 0, begins: 0 };
        Self { turns: Turns::new(), payloads: payloads.iter().copied().map(payload).collect() }
    }

    /// Looks at this time, in ms, and asks: which payloads for more.
    fn look(&mut self, ms: u64) -> Vec<u64> {
        let wants = |of: &Payload| of.begins <= ms && of.granted < of.bytes;
        let wanting = (0..).zip(&self.payloads).filter(|(_, of)| wants(of)).map(|(message, of)| {
            let Payload { owner, bytes, have, granted, .. } = *of;
            let begun = Instant::from_nanos(of.begins * 1_000_000);
            (owner, Wanting { message, begun, have, granted, most: bytes, payload: bytes, sought: false, read: false })
        });
        let wanting: Vec<(u8, Wanting)> = wanting.collect();
        let payloads = &self.payloads;
        let due = |owner, message: u64| {
            let of = payloads.get(usize::try_from(message).ok()?).filter(|of| of.owner == owner)?;
            (of.granted > of.have).then(|| Due { came: of.have, missing: of.granted - of.have })
        };
        let granted = asks(&mut self.turns, Instant::from_nanos(ms * 1_000_000), &wanting, due, |_| NEAR);
        for &(owner, message, upto) in &granted {
            let of = &mut self.payloads[usize::try_from(message).unwrap()];
            assert!(of.owner == owner && upto > of.granted && upto <= of.bytes, "{upto} of {of:?}");
            of.granted = upto;
        }
        granted.into_iter().map(|(_, message, _)| message).collect()
    }

    /// So many more bytes of a payload come, if it was asked for so many.
    fn comes(&mut self, message: usize, bytes: u32) {
        let of = &mut self.payloads[message];
        of.have = of.granted.min(of.have + bytes);
    }

    /// Bytes that were asked for and have not come, of these owners.
    fn missing(&self, owners: impl Fn(u8) -> bool) -> u32 {
        self.payloads.iter().filter(|of| owners(of.owner)).map(|of| of.granted - of.have).sum()
    }
}

#[test]
fn who_sends_nothing_loses_its_turn_until_it_does() {
    let mut world = World::new(&[(0, 9000), (1, 9500), (2, 9900)]);
    world.payloads[2].begins = 43;
    assert_eq!(world.look(1), vec![0, 1]);
    assert_eq!((world.payloads[0].granted, world.payloads[1].granted), (1500, 500));
    assert_eq!(world.look(2), vec![]);
    assert_eq!(world.turns.next_end(Instant::from_nanos(2_000_000)), Some(Instant::from_nanos(41_000_000)));
    // One of them sends, the other does not, and what that owes is not counted any more.
    world.comes(1, 500);
    assert_eq!(world.look(40), vec![1]);
    assert_eq!(world.look(41), vec![1]);
    assert_eq!(world.payloads[1].granted, 2500);
    world.comes(1, 1000);
    assert_eq!(world.look(43), vec![2]);
    // It sends: what it owes counts again, and it has its turn when there is room for more.
    world.comes(0, 900);
    assert_eq!(world.look(60), vec![]);
    (0..3).for_each(|message| world.comes(message, 2000));
    assert_eq!(world.look(61), vec![1, 0]);
}

/// A sender may send its payloads one after the other: what waits behind another one holds that up as little.
#[test]
fn a_payload_behind_another_one_loses_its_turn_alone() {
    let mut world = World::new(&[(0, 9000), (0, 5000), (1, 9900)]);
    assert_eq!(world.look(0), vec![1, 0]);
    // The first one goes on; the second one has not begun, and its place is another's.
    world.comes(0, 900);
    assert_eq!(world.look(30), vec![0]);
    world.comes(0, 900);
    assert_eq!(world.look(60), vec![0, 2]);
}

/// Bytes now and then are not enough to keep a turn.
#[test]
fn who_sends_a_little_of_what_it_is_asked_for_loses_its_turn() {
    let mut world = World::new(&[(0, 9000), (1, 9000), (2, 3000)]);
    world.payloads[2].begins = 5;
    let mut done = None;
    for ms in 0..1000 {
        world.look(ms);
        (0..2).for_each(|message| world.comes(message, u32::from(ms % 10 == 0)));
        world.comes(2, 1000);
        if world.payloads[2].have == 3000 {
            done = done.or(Some(ms));
        }
    }
    assert!(done.is_some_and(|ms| ms < 50), "{done:?}");
}

#[test]
fn who_was_granted_nothing_is_never_late() {
    let mut turns = Turns::new();
    // All that was granted has come; there is no memory for more.
    let full = Wanting {
        message: 1,
        begun: Instant::default(),
        have: 500,
        granted: 500,
        most: 500,
        payload: 1000,
        sought: false,
        read: false,
    };
    let mut look = |ms: u64, wanting: Wanting| {
        let now = Instant::from_nanos(ms * 1_000_000);
        let granted = asks(&mut turns, now, &[(0, wanting)], |_, _| None, |_| NEAR);
        (granted.len(), turns.next_end(now))
    };
    for ms in 0..100 {
        assert_eq!(look(ms, full), (0, None));
    }
    assert_eq!(look(100, Wanting { most: 1000, ..full }).0, 1);
}

/// What is under way on a long way comes over a round trip, not all at once.
#[test]
fn of_what_is_on_a_long_way_a_part_counts() {
    let away = |ms: u64| move |_: u8| Distance { round_ns: ms * 1_000_000, least_ns: ms * 1_000_000 };
    let look = |ms: u64, wanting: &[(u8, Wanting)], missing: u32| {
        let due = |_, message| (message == 1 && missing > 0).then_some(Due { came: 0, missing });
        asks(&mut Turns::new(), Instant::from_nanos(1), wanting, due, away(ms))
    };
    let alone = wanting(1, 0, 0, 900_000);
    assert_eq!(look(19, &[alone], 0), vec![(0, 1, 2000)], "no more than all of it may come while nobody looks");
    assert_eq!(look(20, &[alone], 0), vec![(0, 1, 4000)]);
    assert_eq!(look(45, &[alone], 0), vec![(0, 1, 8000)]);
    assert_eq!(look(100, &[alone], 0), vec![(0, 1, 15_000)], "but those far away leave something to others");
    assert_eq!(look(10_000, &[alone], 0), vec![(0, 1, 24_000)], "and there is an end");
    // It is asked for more in steps that are worth it for what counts of them.
    assert_eq!(look(45, &[wanting(1, 500, 8000, 900_000)], 7500), vec![]);
    assert_eq!(look(45, &[wanting(1, 1000, 8000, 900_000)], 7000), vec![(0, 1, 9000)]);
    assert_eq!(look(100, &[wanting(1, 1000, 15_000, 900_000)], 14_000), vec![(0, 1, 16_000)]);
    // Beside one near by: what either is asked for counts for the other.
    let mut turns = Turns::new();
    let far = |owner: u8| away(if owner == 0 { 45 } else { 1 })(owner);
    let mut look = |wanting: &[(u8, Wanting)], missing: u32| {
        let due = |owner, _| (owner == 0).then_some(Due { came: 0, missing });
        asks(&mut turns, Instant::from_nanos(1), wanting, due, far)
    };
    let near = (1, wanting(2, 0, 0, 900_000).1);
    assert_eq!(look(&[alone], 0), vec![(0, 1, 8000)]);
    assert_eq!(look(&[near], 4000), vec![(1, 2, 1000)]);
}

/// The round trip is what the other side makes it.
#[test]
fn who_is_far_away_leaves_something_for_others() {
    let far = |owner: u8| if owner == 0 { Distance { round_ns: 10 * FAR.0, ..NEAR } } else { NEAR };
    let mut turns = Turns::new();
    let mut look = |wanting: &[(u8, Wanting)], missing: u32| {
        let due = |owner, message| (owner == 0 && message == 1).then_some(Due { came: 0, missing });
        asks(&mut turns, Instant::from_nanos(1), wanting, due, far)
    };
    let alone = wanting(1, 0, 0, 9000);
    assert_eq!(look(&[alone], 0), vec![(0, 1, 1500)]);
    let asked = wanting(1, 0, 1500, 9000);
    let (_, other) = wanting(2, 0, 0, 9000);
    assert_eq!(look(&[asked], 1500), vec![]);
    assert_eq!(look(&[asked, wanting(3, 0, 0, 100)], 1500), vec![], "nor another one of that owner");
    assert_eq!(look(&[asked, (1, other)], 1500), vec![(1, 2, 500)]);
    // It has its part again when what it was asked for comes.
    assert_eq!(look(&[wanting(1, 900, 1500, 9000)], 600), vec![(0, 1, 2400)]);
}

proptest! {
    /// Whatever comes when: no more is under way than the budget, and everything comes to its end. Of owners that
    /// send nothing at all it is counted once, and is not waited for.
    #[test]
    fn what_is_asked_for_is_within_the_budget(
        payloads in prop::collection::vec((0_u8..6, 1_u32..6000, 0_u64..200), 1..40),
        silent in 0_u8..3,
        admitted in 1_usize..5,
        come in prop::collection::vec((any::<prop::sample::Index>(), 1_u32..3000), 1..200),
    ) {
        let mut world = World::new(&payloads.iter().map(|of| (of.0, of.1)).collect::<Vec<_>>());
        world.payloads.iter_mut().zip(&payloads).for_each(|(of, payload)| of.begins = payload.2);
        world.turns.admitted = admitted;
        let sends = |owner: u8| owner >= silent;
        let mut come = come.iter().cycle();
        let mut ms = 0;
        while world.payloads.iter().any(|of| sends(of.owner) && of.have < of.bytes) {
            world.look(ms);
            let ours = world.missing(sends);
            prop_assert!(ours <= BUDGET, "{} bytes at {}", ours, ms);
            // Until somebody is late, all together.
            let all = world.missing(|_| true);
            prop_assert!(ms >= 40 || all <= BUDGET, "{} bytes at {}", all, ms);
            let (at, bytes) = come.next().unwrap();
            let at = at.index(world.payloads.len());
            // What is under way comes in its time, and that of one of them at once. What came more slowly than that
            // would be late, and not be counted.
            for message in 0..world.payloads.len() {
                if sends(world.payloads[message].owner) {
                    world.comes(message, if message == at { (*bytes).max(100) } else { 100 });
                }
            }
            ms += 1;
            prop_assert!(ms < 20_000, "{:?}", world);
        }
        // They take nothing along.
        (0..6).for_each(|owner| world.turns.forget(owner));
        prop_assert!(world.turns.asked.is_empty());
    }
}
