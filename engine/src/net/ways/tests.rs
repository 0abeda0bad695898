//! Ways of made-up costs.

use super::*;

/// A world in which way `n` takes `costs[n]` ns for a byte and `starts[n]` for a batch.
struct World {
    ways: Ways,
    now: u64,
}

impl World {
    fn new(usable: u8) -> Self {
        let mut ways = Ways::default();
        ways.set_usable(usable);
        Self { ways, now: 1_000_000_000 }
    }

    fn round(&mut self, bytes: u64, cost: impl Fn(u8) -> u64) -> Way {
        self.stretch((1, bytes), cost, (0, 0))
    }

    /// A stretch of so many frames and bytes, acknowledged at once, with what is said of the time.
    fn stretch(&mut self, sent: (u32, u64), cost: impl Fn(u8) -> u64, said: (u64, u64)) -> Way {
        let way = self.ways.choose(self.at(), sent.1, 0).unwrap();
        self.ways.sent(sent.1, sent.1, true);
        self.now += cost(way.number);
        self.ways.acked(self.at(), sent, said);
        way
    }

    fn at(&self) -> Instant {
        Instant::from_nanos(self.now)
    }
}

#[test]
fn each_size_goes_the_way_that_is_cheapest_for_it() {
    let mut world = World::new(0b11);
    let cost = |bytes: u64| move |way: u8| if way == 0 { 4_000 + bytes / 8 } else { 1_500 + bytes };
    for _ in 0..100 {
        for bytes in [64, 65_000] {
            world.round(bytes, cost(bytes));
        }
    }
    for _ in 0..100 {
        assert_eq!(world.round(64, cost(64)), Way { number: 1, why: Why::Cheapest });
        assert_eq!(world.round(65_000, cost(65_000)), Way { number: 0, why: Why::Cheapest });
    }
}

#[test]
fn every_way_is_tried_however_long_trials_take() {
    let mut world = World::new(0b111);
    assert!((0..60).any(|_| world.round(64, |_| 2 * STALE_NS.1).number == 2));
}

#[test]
fn a_way_that_has_become_better_is_found() {
    let mut world = World::new(0b11);
    for _ in 0..50 {
        world.round(64, |way| if way == 0 { 2_000 } else { 9_000 });
    }
    assert_eq!(world.round(64, |_| 2_000).number, 0);
    world.now += 2 * STALE_NS.1;
    for _ in 0..2_000 {
        world.round(64, |way| if way == 0 { 2_000 } else { 500 });
    }
    assert_eq!(world.round(64, |_| 500), Way { number: 1, why: Why::Cheapest });
}

/// The first stretches of a channel, and the first after a change, cost more than those of a stream.
#[test]
fn what_the_beginning_has_cost_is_soon_forgotten() {
    let mut world = World::new(0b11);
    let begun = world.now;
    let mut by_first = 0;
    for round in 0..20_000 {
        let slow = if round < 2 * u64::from(TRIALS) { 10 } else { 1 };
        let before = world.ways.now().number;
        let way = world.ways.choose(Instant::from_nanos(world.now), 65_000, 0).unwrap();
        let changed = if way.number == before { 1 } else { 20 };
        world.ways.sent(65_000, 65_000, true);
        world.now += if way.number == 0 { 10_000 * slow * changed } else { 40_000 * changed };
        world.ways.acked(Instant::from_nanos(world.now), (1, 65_000), (0, 0));
        by_first += u64::from(round >= 10_000 && way.number == 0);
    }
    assert!(by_first > 9_900, "{by_first} of 10,000, after {} us", (world.now - begun) / 1000);
}

#[test]
fn trials_are_rare() {
    let mut world = World::new(0b111);
    let cost = |way: u8| 3_000 + 1_000 * u64::from(way);
    for _ in 0..100 {
        world.round(64, cost);
    }
    let tried = (0..1_000_000).filter(|_| world.round(64, cost).number != 0).count();
    // Three seconds of three microseconds each, two other ways, each tried nine times with eight batches.
    assert!((100..150).contains(&tried), "{tried}");
}

/// A moment in which the way that is taken is held up says little of it, and the rest of the time nobody takes it.
#[test]
fn a_way_that_was_held_up_is_soon_taken_again() {
    let mut world = World::new(0b11);
    let cost = |way: u8| if way == 0 { 10_000 } else { 15_000 };
    for held_up in [0, 1, 20] {
        world.now += held_up * STALE_NS.1;
        for _ in 0..20_000 {
            world.round(65_000, cost);
        }
        assert_eq!(world.round(65_000, cost).number, 0);
        while world.round(65_000, |way| if way == 0 { 60_000 } else { 15_000 }).number == 0 {}
        let begun = world.now;
        while world.round(65_000, cost) != (Way { number: 0, why: Why::Cheapest }) {}
        assert!(world.now - begun < 2 * STALE_NS.0, "{} ns, held up before: {held_up}", world.now - begun);
    }
}

#[test]
fn frames_never_overtake_those_of_another_way() {
    let mut world = World::new(0b11);
    let at = Instant::from_nanos(world.now);
    for _ in 0..TRIALS {
        world.round(64, |_| 1_000);
    }
    // The other way is a stranger now: it is tried, but only when nothing is in flight.
    for _ in 0..PRESSURE {
        assert_eq!(world.ways.choose(at, 64, 50), Some(Way { number: 0, why: Why::InFlight }));
        world.ways.sent(64, 114, true);
        // As long as it is not acknowledged, everything goes with it.
        assert_eq!(world.ways.choose(at, 64, 114), Some(Way { number: 0, why: Why::InFlight }));
        world.ways.acked(at, (1, 114), (0, 0));
    }
    assert_eq!(world.ways.choose(at, 64, 50), None);
    assert_eq!(world.ways.choose(at, 64, 0), Some(Way { number: 1, why: Why::Trial }));
}

#[test]
fn sizes_that_take_turns_do_not_wait_for_each_other() {
    let mut world = World::new(0b11);
    let cost = |bytes: u64| move |way: u8| if way == 0 { 4_000 + bytes / 8 } else { 1_500 + bytes };
    for bytes in [64, 65_000].into_iter().cycle().take(200) {
        world.round(bytes, cost(bytes));
    }
    let at = Instant::from_nanos(world.now);
    for bytes in [64, 65_000].into_iter().cycle().take(1000) {
        assert!(world.ways.choose(at, bytes, 1).is_some());
    }
}

#[test]
fn a_way_on_which_nothing_comes_through_is_left_alone() {
    let mut world = World::new(0b11);
    for _ in 0..50 {
        world.round(64, |way| if way == 0 { 9_000 } else { 1_000 });
    }
    assert_eq!(world.round(64, |_| 1_000).number, 1);
    world.ways.fails(Instant::from_nanos(world.now));
    for _ in 0..1000 {
        assert_eq!(world.round(64, |_| 9_000).number, 0);
    }
    world.now += 2 * BARRED_NS.1;
    assert!((0..50).any(|_| world.round(64, |_| 1_000).number == 1));
}

/// What goes beside messages is answered by the first way all the time: their losses alone tell that theirs leads
/// nowhere. A peer that is off its processor for a moment loses as many.
#[test]
fn a_way_is_left_once_losses_in_a_row_have_lasted() {
    for (apart, comes_through) in [(SILENT_NS / 100, false), (SILENT_NS, true), (SILENT_NS, false)] {
        let mut world = World::new(0b11);
        while world.round(64, |way| if way == 0 { 9_000 } else { 1_000 }).number == 0 {}
        for _ in 0..2 * LOSSES {
            world.ways.lost(world.at(), 1);
            world.ways.lost(world.at(), 0);
            if comes_through {
                world.ways.comes_through();
            }
            world.now += apart;
        }
        let is_left = world.ways.now().number == 0;
        assert_eq!(is_left, apart == SILENT_NS && !comes_through, "{apart} ns apart, {comes_through}");
    }
}

/// One on which nothing comes through again and again, though short frames do in between.
#[test]
fn a_way_that_fails_again_is_left_alone_for_longer() {
    let mut world = World::new(0b11);
    let mut fail = |opens: u64| {
        world.now += opens;
        while world.round(64, |way| if way == 0 { 9_000 } else { 1_000 }).number == 0 {}
        world.ways.fails(Instant::from_nanos(world.now));
        let since = world.now;
        while world.round(64, |way| if way == 0 { 9_000 } else { 1_000 }).number == 0 {}
        (world.now - since) / 1_000_000
    };
    let bars: [u64; 5] = core::array::from_fn(|_| fail(0));
    assert!(bars.iter().zip([20, 40, 80, 160, 320]).all(|(bar, about)| bar.abs_diff(about) < 2), "{bars:?}");
    assert!(fail(10_000_000_000).abs_diff(20) < 2, "it had worked for long");
}

#[test]
fn a_trial_that_measures_nothing_ends() {
    let mut world = World::new(0b11);
    for _ in 0..TRIALS {
        world.round(64, |_| 1_000);
    }
    // Whatever is acknowledged covers several frames, which shows nothing of so short a stretch.
    let mut taken = [0; 2];
    for _ in 0..STRETCHES {
        let at = Instant::from_nanos(world.now);
        taken[usize::from(world.ways.choose(at, 64, 0).unwrap().number)] += 1;
        world.ways.sent(64, 64, true);
        world.ways.acked(at, (2, 128), (0, 0));
    }
    assert_eq!((taken, world.ways.trial.is_none()), ([0, STRETCHES], true));
    // Nor does another begin at once.
    world.now += 1_000;
    assert_eq!(world.round(64, |_| 1_000).number, 0);
    assert_eq!(world.round(64, |_| 1_000), Way { number: 0, why: Why::Cheapest });
}

/// A trial that an application pauses in is none the longer, nor does a pause make up for it.
#[test]
fn pauses_count_for_no_trial() {
    let mut world = World::new(0b11);
    let cost = |way: u8| if way == 0 { 10_000 } else { 15_000 };
    let mut tried = 0;
    for round in 0..20_000 {
        world.now += if round % 4 == 0 { STALE_NS.1 } else { 0 };
        tried += u32::from(world.round(65_000, cost).number);
    }
    // One of 33 parts of the time, of which each stretch takes half as long again.
    assert!((300..500).contains(&tried), "{tried} of 20,000");
}

/// A peer that stood still for a minute while a way was tried keeps that way from nobody for half an hour.
#[test]
fn a_trial_in_which_the_peer_stood_still_is_repeated() {
    let mut world = World::new(0b11);
    let cost = |way: u8| if way == 0 { 10_000 } else { 5_000 };
    while world.round(65_000, cost).number == 0 {}
    world.round(65_000, |_| 60_000_000_000);
    let begun = world.now;
    while world.round(65_000, cost) != (Way { number: 1, why: Why::Cheapest }) {}
    assert!(world.now - begun < 2 * IDLE_NS, "{} ns", world.now - begun);
}

/// As trains of which the kernel shall find out how they are sent best: twice as dear for a while.
#[test]
fn what_says_little_changes_nothing() {
    let mut world = World::new(0b11);
    let cost = |way: u8| if way == 0 { 10_000 } else { 15_000 };
    for _ in 0..20_000 {
        world.round(65_000, cost);
    }
    for says_little in [true, false] {
        let mut left = 0;
        for _ in 0..100 {
            let way = world.ways.choose(world.at(), 65_000, 0).unwrap();
            left += u32::from(way == Way { number: 1, why: Why::Cheapest });
            world.ways.sent(65_000, 65_000, true);
            if says_little && way.number == 0 {
                world.ways.says_little();
            }
            world.now += if way.number == 0 { 30_000 } else { 15_000 };
            world.ways.acked(world.at(), (1, 65_000), (0, 0));
        }
        assert_eq!(left == 0, says_little, "{left} of 100");
    }
}

/// What both sides say that did not travel may be more than the time there was: such a way was taken for one that
/// costs nothing, and nothing that it cost afterwards changed that.
#[test]
fn a_way_that_seemed_to_cost_nothing_is_found_out() {
    let mut world = World::new(0b11);
    let mut taken = [0_u32; 2];
    for round in 0..50_000 {
        let said = if round < 8 { 1 << 20 } else { 0 };
        let way = world.stretch((1, 64), |way| if way == 0 { 9_000 } else { 1_000 }, (said, 1));
        taken[usize::from(way.number)] += 1;
    }
    assert!(taken[1] > 45_000, "{taken:?}");
}

#[test]
fn who_sends_several_at_once_measures_them_together() {
    let mut world = World::new(0b11);
    let mut taken = [0_u32; 2];
    for _ in 0..10_000 {
        let way = world.stretch((3, 300), |way| if way == 0 { 9_000 } else { 1_000 }, (0, 0));
        taken[usize::from(way.number)] += 1;
    }
    assert!(taken[1] > 9_000, "{taken:?}");
}

/// A size of which one stretch in twenty is took all others along to a way that is worse for them, again and again.
#[test]
fn a_rare_size_keeps_no_other_on_trial() {
    let mut world = World::new(0b11);
    let cost = |way: u8| 1_000 + 1_000 * u64::from(way);
    for _ in 0..100 {
        world.round(64, cost);
    }
    let trials = (0..20_000).filter(|round| {
        let bytes = if round % 20 == 0 { 500 } else { 64 };
        world.round(bytes, cost).number == 1
    });
    let trials = trials.count();
    assert!(trials < 200, "{trials} of 20,000");
}

#[test]
fn a_trial_ends_with_its_way() {
    for gone in [Ways::fails as fn(&mut Ways, Instant), |ways: &mut Ways, _| ways.set_usable(0b01)] {
        let mut world = World::new(0b11);
        for _ in 0..=TRIALS {
            world.round(64, |_| 1_000);
        }
        assert_eq!((world.ways.now().number, world.ways.trial.is_some()), (1, true));
        gone(&mut world.ways, Instant::from_nanos(world.now));
        assert_eq!((world.ways.now().number, world.ways.trial.is_some()), (0, false));
    }
}

#[test]
fn a_way_that_is_gone_is_not_taken() {
    let mut world = World::new(0b10);
    assert_eq!(world.round(64, |_| 1).number, 1);
    world.ways.set_usable(0b01);
    assert_eq!(world.round(64, |_| 1), Way { number: 0, why: Why::Only });
    world.ways.set_usable(0);
    assert_eq!(world.round(64, |_| 1).number, 0);
}
