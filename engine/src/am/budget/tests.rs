use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
/// By how much less a request may be taken to have waited than it has: the slack, a tick that the least was too large
/// by, and what both are rounded by.
const MISSED: u64 = ((2 * SLACK + 2) as u64) << UNIT;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// Two clocks, both of which tick so often or run; the true time counts for nobody.
#[derive(Debug, Clone)]
struct Clocks {
    ahead: u64,
    /// Parts in a million by which the requester's clock is quicker.
    drift: i64,
    /// Nanoseconds between two ticks of the requester's.
    tick: u64,
}

impl Clocks {
    /// What the requester says at a true time.
    fn says(&self, time: u64, nanos: u64) -> Budget {
        let drifted = time.wrapping_add_signed(i64::try_from(time).unwrap() / 1_000_000 * self.drift);
        let its = drifted.wrapping_add(self.ahead);
        Budget::at(at(its - its % self.tick), nanos)
    }
}

/// As a node does it: a look at the last tick first, if there are ticks.
fn left(waits: &mut Waits, budget: Budget, now: u64, tick: u64, idle: u64) -> u64 {
    if waits.is_usual(budget.stamp(), at(now - now % tick)) {
        budget.nanos()
    } else {
        waits.left(budget, at(now), at(idle))
    }
}

/// What a node learns of prompt requests.
fn learnt(clocks: &Clocks, begin: u64) -> Waits {
    let mut waits = Waits::default();
    for turn in 0..20 {
        let now = begin + turn * 10 * MS;
        assert_eq!(left(&mut waits, clocks.says(now, SECOND), now, 1, now), SECOND);
    }
    waits
}

const STEADY: Clocks = Clocks { ahead: 77_777_777_777, drift: 0, tick: 1 };

#[test]
fn what_has_waited_has_so_much_less_time() {
    let mut waits = learnt(&STEADY, SECOND);
    let sent = 2 * SECOND;
    let after = |waits: &mut Waits, ms: u64, nanos| left(waits, STEADY.says(sent, nanos), sent + ms * MS, 1, sent - MS);
    assert_eq!(after(&mut waits, 300, 100 * MS), 0, "nobody waits");
    let some = after(&mut waits, 300, 10 * SECOND);
    assert!((9_700 * MS..=9_700 * MS + MISSED).contains(&some), "{some}");
    assert_eq!(after(&mut waits, 10, 5 * MS), 5 * MS, "that little cannot be told");
    assert_eq!(left(&mut waits, STEADY.says(sent + SECOND, 9 * MS), sent + SECOND, 1, sent), 9 * MS, "this has not");
}

#[test]
fn of_the_first_request_nothing_is_known() {
    let mut waits = Waits::default();
    assert!(!waits.is_usual(STEADY.says(SECOND, 1).stamp(), at(SECOND)));
    // It has waited for two seconds, and so have those behind it.
    for sent in [SECOND, SECOND + 1, 2 * SECOND] {
        assert_eq!(left(&mut waits, STEADY.says(sent, 5), 3 * SECOND, 1, SECOND), 5);
    }
    // The first that has not shows what is so.
    assert_eq!(left(&mut waits, STEADY.says(4 * SECOND, 5), 4 * SECOND, 1, 3 * SECOND), 5);
    assert_eq!(left(&mut waits, STEADY.says(4 * SECOND, 5), 6 * SECOND, 1, 4 * SECOND), 0);
}

/// A machine slept, or a virtual one was moved: its clock has stood still.
#[test]
fn a_clock_that_stood_still_makes_nothing_late_where_nothing_lay() {
    let mut waits = learnt(&STEADY, SECOND);
    let later = Clocks { ahead: STEADY.ahead - 30 * SECOND, ..STEADY };
    let now = 40 * SECOND;
    assert_eq!(left(&mut waits, later.says(now, 100 * MS), now, 1, now - 50 * MS), 100 * MS);
    // From then on it is as it was before.
    assert_eq!(left(&mut waits, later.says(now + MS, 100 * MS), now + 400 * MS, 1, now), 0);
}

#[test]
fn a_receiver_that_always_finds_something_refuses_in_vain_for_some_seconds() {
    let mut waits = learnt(&STEADY, SECOND);
    let later = Clocks { ahead: STEADY.ahead - 10 * SECOND, ..STEADY };
    let begin = 12 * SECOND;
    let served = (0..1000).find(|turn| {
        let now = begin + turn * 10 * MS;
        left(&mut waits, later.says(now, SECOND), now, 1, SECOND) > 0
    });
    let after = served.expect("it is served in the end") * 10 * MS;
    assert!((VAIN_NS..VAIN_NS + 20 * MS).contains(&after), "{after}");
    let now = begin + after + MS;
    assert_eq!(left(&mut waits, later.says(now, SECOND), now, 1, SECOND), SECOND);
}

/// Those who have given up themselves say so, behind their requests.
#[test]
fn requests_that_were_given_up_are_refused_for_as_long_as_they_come() {
    let mut waits = learnt(&STEADY, SECOND);
    for turn in 0..6000 {
        let now = 10 * SECOND + turn * 10 * MS;
        let wait = (2000 + turn % 7) * MS;
        assert_eq!(left(&mut waits, STEADY.says(now - wait, SECOND), now, 1, SECOND), 0, "{turn}");
        waits.given_up();
    }
}

#[test]
fn a_budget_that_was_over_when_it_was_said_is_over() {
    let mut waits = Waits::default();
    for turn in 0..3 {
        assert_eq!(left(&mut waits, STEADY.says(turn * SECOND, 0), turn * SECOND, 1, 0), 0);
    }
}

#[test]
fn a_request_that_has_lain_for_longer_than_a_stamp_says_harms_no_other() {
    for wait in [30, 40, 55, 60, 68, 69, 75, 100, 140] {
        let mut waits = learnt(&STEADY, SECOND);
        let (begin, now) = (2 * SECOND, (2 + wait) * SECOND);
        let idle = begin - MS;
        // One second apart, none of which was taken in.
        for sent in (0..wait).map(|second| begin + second * SECOND) {
            let waited = now - sent;
            for budget in [waited + MS, 2 * waited] {
                assert!(left(&mut waits, STEADY.says(sent, budget), now, 1, idle) > 0, "{wait} s: {waited}");
            }
        }
        let prompt = STEADY.says(now + MS, 30 * MS);
        assert_eq!(left(&mut waits, prompt, now + MS, 1, now), 30 * MS, "{wait} s");
    }
}

fn clocks() -> impl Strategy<Value = Clocks> {
    let tick = prop_oneof![Just(1), Just(MS), Just(4 * MS), Just(10 * MS)];
    ((1_u64 << 40)..1 << 50, -200_i64..=200, tick).prop_map(|(ahead, drift, tick)| Clocks { ahead, drift, tick })
}

/// Requests: after what silence, how long on their way beyond the shortest, how long where nobody takes them in, what
/// they may take, and whether nothing lay there just before they came.
fn requests() -> impl Strategy<Value = Vec<(u64, u64, u64, u64, bool)>> {
    let silence = prop_oneof![6 => 0..50 * MS, 2 => 0..20 * SECOND, 1 => 0..3600 * SECOND];
    let way = prop_oneof![4 => 0..MS, 1 => 0..200 * MS];
    let wait = prop_oneof![3 => Just(0), 2 => 0..MS, 2 => 0..SECOND, 1 => 0..30 * SECOND];
    let nanos = prop_oneof![0..20 * MS, 0..SECOND, 0..60 * SECOND];
    proptest::collection::vec((silence, way, wait, nanos, prop::bool::weighted(0.8)), 1..60)
}

/// A clock falls a second behind while something always lies there: requests that have less time are refused for some
/// seconds, whatever others have that come between them. Half of the requesters give up what they have asked for.
#[test]
fn who_has_more_time_keeps_nobody_refused() {
    for (every, gives_up) in [(1000, false), (10, false), (2, false), (10, true)] {
        let (mut waits, mut refused) = (Waits::default(), Vec::new());
        for turn in 0..3000 {
            let now = 1000 * SECOND + turn * 10 * MS;
            let theirs = if turn < 500 { now } else { now - SECOND };
            let nanos = if turn % every == 0 { 10 * SECOND } else { SECOND / 2 };
            let budget = Budget::at(Instant::from_nanos(theirs), nanos);
            if left(&mut waits, budget, now, 1, 1000 * SECOND) == 0 {
                refused.push(turn);
                if gives_up && turn % 2 == 0 {
                    waits.given_up();
                }
            }
        }
        assert!(refused.len() > 100 && refused.iter().all(|turn| (500..1010).contains(turn)), "{:?}", refused.last());
    }
}

proptest! {
    /// Whatever clocks that are not set do: no time is taken off that has not passed.
    #[test]
    fn what_somebody_waits_for_is_never_late(
        clocks in clocks(), tick in prop_oneof![Just(1), Just(4 * MS), Just(10 * MS)],
        least in 0..100 * MS, requests in requests(),
    ) {
        let (mut waits, mut now, mut idle) = (Waits::default(), 1000 * SECOND, 1000 * SECOND);
        for (silence, way, wait, nanos, was_idle) in requests {
            let sent = now + silence;
            let comes = sent + least + way;
            now = comes + wait;
            idle = if was_idle { comes } else { idle };
            let left = left(&mut waits, clocks.says(sent, nanos), now, tick, idle);
            let age = now - sent;
            prop_assert!(left <= nanos && left >= nanos.saturating_sub(age), "{left} of {nanos} after {age}");
        }
    }

    /// What has waited for longer than can be missed is known to have.
    #[test]
    fn what_nobody_waits_for_is_late(clocks in clocks(), wait in 0..30 * SECOND, budget in 0..30 * SECOND) {
        let begin = 1000 * SECOND;
        let mut waits = learnt(&clocks, begin);
        let sent = begin + SECOND;
        let left = left(&mut waits, clocks.says(sent, budget), sent + wait, 1, sent - MS);
        // The least rises while it waits, and the clocks go apart.
        let known = (wait - wait / 1000).saturating_sub(MISSED);
        prop_assert!(left <= budget.saturating_sub(known), "{left} of {budget} after {wait}");
    }

    /// Stamps may say what they like: nothing has waited for longer than since nothing lay there.
    #[test]
    fn no_stamp_says_more_than_the_clock_here(
        stamps in proptest::collection::vec((any::<u16>(), 0..100 * SECOND, 0..SECOND, 0..2 * SECOND), 0..200),
    ) {
        let (mut waits, mut now) = (Waits::default(), 5 * SECOND);
        for (stamp, silence, idle, nanos) in stamps {
            now += silence;
            let left = left(&mut waits, Budget::new(nanos, stamp), now, 1, now - idle);
            prop_assert!(left >= nanos.saturating_sub(idle));
        }
    }

    /// A clock jumps, either way: what comes once nothing lay there is served, and what waits then is late again.
    #[test]
    fn a_jump_is_over_once_nothing_lay_there(
        clocks in clocks(), jump in 0..200 * SECOND, back in any::<bool>(), gap in 0..100 * SECOND,
    ) {
        let begin = 1000 * SECOND;
        let mut waits = learnt(&clocks, begin);
        let ahead = if back { clocks.ahead - jump } else { clocks.ahead + jump };
        let jumped = Clocks { ahead, ..clocks };
        let mut now = begin + SECOND + gap;
        for _ in 0..3 {
            prop_assert!(left(&mut waits, jumped.says(now, 30 * MS), now, 1, now - 10 * MS) >= 20 * MS);
            now += 20 * MS;
        }
        let sent = now;
        let left = left(&mut waits, jumped.says(sent, 100 * MS), sent + 500 * MS, 1, sent - MS);
        prop_assert_eq!(left, 0);
    }

    /// The same where something always lies there: for some seconds at most.
    #[test]
    fn a_jump_is_over_after_some_seconds(clocks in clocks(), jump in 0..200 * SECOND, back in any::<bool>()) {
        let begin = 1000 * SECOND;
        let mut waits = learnt(&clocks, begin);
        let ahead = if back { clocks.ahead - jump } else { clocks.ahead + jump };
        let jumped = Clocks { ahead, ..clocks };
        let mut served = begin + SECOND;
        for turn in 0..1500 {
            let now = begin + SECOND + turn * 10 * MS;
            if left(&mut waits, jumped.says(now, SECOND), now, 1, begin) > 0 {
                served = now;
            }
            prop_assert!(now - served <= VAIN_NS + 20 * MS, "at {now}");
        }
    }
}
