//! Which placement is taken for payloads that come by a ring, in a world where it is known what each costs.

use cutthrough_engine::net::placing::{Choice, LONG, Means, Placing};
use cutthrough_engine::receipt::{Placement, Why};
use cutthrough_engine::time::Instant;
use proptest::prelude::*;

/// The way that is measured.
const WAY: u8 = 2;

/// Nanoseconds after which what was left is tried again, at first.
const STALE_NS: u64 = 125_000_000;

/// Payloads that arrive one after the other, and take so many picoseconds for a byte: when copied, and when cut.
struct World {
    placing: Placing,
    now: u64,
}

impl World {
    fn new(means: Means) -> Self {
        Self { placing: Placing::new(means, WAY), now: 1_000_000_000 }
    }

    fn at(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    /// `count` payloads of `bytes` bytes, in frames of `frame`, come at the same time: how they are placed.
    fn payloads(&mut self, (count, bytes, frame): (u32, u32, u32), costs: [u64; 2], percent: u64) -> Choice {
        let choice = self.placing.choose(self.at(), frame);
        let begun = self.at();
        let cost = costs[usize::from(choice.placement == Placement::HeaderCut)];
        self.now += u64::from(count) * u64::from(bytes) * cost / 1000 * percent / 100 + 1;
        for _ in 0..count {
            self.placing.landed((choice, WAY), bytes, begun);
        }
        self.placing.judge(self.at());
        choice
    }

    /// As many payloads one by one as there are percentages, each after a pause: how many of the second half were
    /// placed so.
    fn run(&mut self, percents: &[u64], costs: [u64; 2], pause: u64, wanted: Placement) -> usize {
        let half = percents.len() / 2;
        let mut so = 0;
        for (number, percent) in percents.iter().enumerate() {
            let choice = self.payloads((1, 8 << 10, 1472), costs, *percent);
            so += usize::from(number >= half && choice.placement == wanted);
            self.now += pause;
        }
        so
    }
}

/// How long each payload takes, in percent of what it should: one in twenty comes far too late.
fn noise(count: usize) -> impl Strategy<Value = Vec<u64>> {
    let draw = prop_oneof![19 => 80..=120_u64, 1 => 200..=10_000_u64];
    proptest::collection::vec(draw, count)
}

/// Two costs of which one is at least 1.6 times the other, and which placement is the cheaper one.
fn unlike() -> impl Strategy<Value = ([u64; 2], Placement)> {
    (20..2000_u64, 160..1000_u64, any::<bool>()).prop_map(|(less, percent, cut)| {
        let more = less * percent / 100;
        if cut { ([more, less], Placement::HeaderCut) } else { ([less, more], Placement::Copy) }
    })
}

const fn other(placement: Placement) -> Placement {
    if matches!(placement, Placement::Copy) { Placement::HeaderCut } else { Placement::Copy }
}

proptest! {
    /// Through noise, nearly all are placed the cheaper way; but for those of one wrong verdict, which lasts until what
    /// was left is tried again. In one of 100,000 worlds what comes too late comes so often in a row.
    #[test]
    fn the_cheaper_placement_is_found(
        percents in noise(2000),
        (costs, cheaper) in unlike(),
        pause in 500_000..2_000_000_u64,
    ) {
        let found = World::new(Means::Here).run(&percents, costs, pause, cheaper);
        let by_one_verdict = usize::try_from(STALE_NS / pause).unwrap();
        prop_assert!(found + by_one_verdict > 850, "{found} of 1000");
    }

    /// What was dearer and has become cheaper is found, and so is the change back.
    #[test]
    fn a_change_of_costs_is_found(percents in noise(4000), (costs, cheaper) in unlike()) {
        let mut world = World::new(Means::Here);
        let [copy, cut] = costs;
        for (costs, cheaper) in [(costs, cheaper), ([cut, copy], other(cheaper)), (costs, cheaper)] {
            // 4000 payloads in four seconds or more.
            let found = world.run(&percents, costs, 1_000_000, cheaper);
            prop_assert!(found > 1700, "{found} of 2000 by {cheaper:?}");
        }
    }

    /// However costs are, and change, the placement that was not the better one the last time is tried with few.
    #[test]
    fn trials_are_few(
        costs in proptest::collection::vec([1..3000_u64, 1..3000_u64], 3000),
        bytes in 1..100_000_u32,
        pause in 0..300_000_000_u64,
        at_a_time in 1..8_u32,
    ) {
        let mut world = World::new(Means::Here);
        let (mut kept, mut before, mut tried, mut all) = (Placement::Copy, Placement::Copy, 0, 0);
        for costs in costs {
            let choice = world.payloads((at_a_time, bytes, 9000), costs, 100);
            // What is not being tried was decided for; the first that follows a trial ends it.
            let trial = choice.why == Why::Trial && (choice.placement != kept || before != kept);
            if !trial {
                kept = choice.placement;
            }
            before = choice.placement;
            (all, tried) = (all + at_a_time, tried + if trial { at_a_time } else { 0 });
            world.now += pause;
        }
        prop_assert!(tried <= 100 + all / 8, "{tried} of {all}");
    }

    /// Where headers cannot be cut off they never are, and where they always shall be they always are, whatever has
    /// come before, or is said of what has come.
    #[test]
    fn the_cut_is_taken_only_where_it_can_be(
        deeds in proptest::collection::vec((0..8_u8, 0..100_000_u32, 0..400_000_000_u64), 1..400),
    ) {
        let mut world = World::new(Means::None);
        let mut last = world.placing.now();
        for (deed, bytes, ns) in deeds {
            world.now += ns / 4;
            match deed {
                0 => world.placing.set_means(Means::None),
                1 => world.placing.set_means(Means::Later),
                2 => world.placing.set_means(Means::Here),
                3 => world.placing.set_means(Means::Always),
                4 => world.placing.landed((last, WAY), bytes, Instant::from_nanos(world.now.saturating_sub(ns))),
                5 => world.placing.judge(world.at()),
                _ => last = world.payloads((1, bytes, bytes), [1000, 10], 100),
            }
            let placed = [world.placing.now(), world.placing.choose(world.at(), bytes)];
            for choice in placed {
                let why = match world.placing.means() {
                    Means::None => Some((Placement::Copy, Why::Only)),
                    Means::Later => Some((Placement::Copy, Why::Trial)),
                    Means::Always => Some((Placement::HeaderCut, Why::Only)),
                    Means::Here => None,
                };
                prop_assert!(why.is_none_or(|why| why == (choice.placement, choice.why)), "{choice:?}, not {why:?}");
                prop_assert!(choice.placement != Placement::Auto);
            }
        }
    }
}

/// Each length of frames has what is the cheaper one for it.
#[test]
fn lengths_of_frames_are_told_apart() {
    let mut world = World::new(Means::Here);
    let mut last = [Choice::default(); 2];
    for _ in 0..400 {
        last[0] = world.payloads((1, 8 << 10, 1472), [100, 300], 100);
        last[1] = world.payloads((1, 8 << 10, 8900), [300, 100], 100);
    }
    let last = last.map(|choice| (choice.placement, choice.why));
    assert_eq!(last, [(Placement::Copy, Why::Cheapest), (Placement::HeaderCut, Why::Cheapest)]);
}

/// A ring that cuts headers off is wanted when it is known what copies cost, and not for short payloads.
#[test]
fn a_ring_is_wanted_once_long_payloads_have_come() {
    let mut world = World::new(Means::Later);
    for _ in 0..1000 {
        world.payloads((1, LONG - 1, 1472), [100, 10], 100);
    }
    assert!(!world.placing.wants_ring());
    let mut came = 0;
    while !world.placing.wants_ring() {
        assert_eq!(world.payloads((1, LONG, 1472), [100, 10], 100).placement, Placement::Copy);
        came += 1;
    }
    assert_eq!(came, 8);
    world.placing.set_means(Means::Here);
    // What copies cost is known: the cut is tried at once, and is the better one.
    let choices = [(); 9].map(|()| world.payloads((1, LONG, 1472), [100, 10], 100));
    assert!(choices.iter().all(|choice| choice.placement == Placement::HeaderCut), "{choices:?}");
    assert_eq!(choices.map(|choice| choice.why)[7..], [Why::Trial, Why::Cheapest]);
    // Its ring is gone.
    world.placing.set_means(Means::Later);
    assert_eq!(world.payloads((1, LONG, 1472), [100, 10], 100).placement, Placement::Copy);
}

/// A trial that is of short payloads alone measures nothing, and ends; what was known before still holds.
#[test]
fn a_trial_that_measures_nothing_ends() {
    let mut world = World::new(Means::Here);
    let mut choice = Choice::default();
    while choice.why != Why::Cheapest {
        choice = world.payloads((1, 8 << 10, 1472), [100, 300], 100);
    }
    let mut cut = 0;
    for _ in 0..1000 {
        world.now += 10_000_000;
        cut += u32::from(world.payloads((1, LONG - 1, 1472), [100, 300], 100).placement == Placement::HeaderCut);
    }
    assert!((1..=100).contains(&cut), "{cut}");
}

/// Frames of other ways, and payloads that began by another choice, show nothing.
#[test]
fn what_came_otherwise_is_not_measured() {
    let mut world = World::new(Means::Later);
    for _ in 0..100 {
        let choice = world.placing.choose(world.at(), 1472);
        world.placing.landed((choice, 0), LONG, world.at());
        assert!(!world.placing.has_landed());
    }
    let stale = world.placing.now();
    world.placing.set_means(Means::Later);
    for _ in 0..100 {
        world.placing.landed((stale, WAY), LONG, world.at());
        world.placing.judge(world.at());
    }
    assert!(!world.placing.wants_ring());
}
