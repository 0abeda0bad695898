//! What has arrived: against a plain set of numbers, and against the wire's short form of it.

use std::collections::BTreeSet;

use cutthrough_engine::flow::seen::{Ack, Seen};
use proptest::prelude::*;

/// The half of a number that the wire carries.
fn low(number: u64) -> u32 {
    u32::try_from(number % (1 << 32)).unwrap()
}

/// What `Seen` claims, from the set of what was taken and the number below which all is settled.
fn agrees(seen: &Seen, taken: &BTreeSet<u64>, forgotten: u64) {
    let below = (forgotten..).find(|number| !taken.contains(number)).unwrap();
    assert_eq!(seen.below(), below);
    assert_eq!(seen.largest().unwrap_or(0), taken.last().copied().unwrap_or(0).max(below.saturating_sub(1)));
    let ack = seen.ack();
    assert_eq!(ack.below, below);
    for number in below..below + 70 {
        assert_eq!(ack.has_bit(number), number <= below + 64 && taken.contains(&number), "bit of {number}");
    }
    let ranges: Vec<_> = seen.ranges(usize::MAX).collect();
    assert!(ranges.windows(2).all(|pair| pair[1].1 < pair[0].0), "newest first, with gaps: {ranges:?}");
    let listed: BTreeSet<u64> = ranges.iter().flat_map(|&(first, end)| first..end).collect();
    assert_eq!(listed, taken.range(below..).copied().collect());
    assert_eq!(seen.ranges(2).collect::<Vec<_>>(), ranges[..ranges.len().min(2)]);
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u64),
    Run(u64, u64),
    Forget(u64),
    Late(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0_u64..200).prop_map(Step::Insert),
        2 => (0_u64..200, 0_u64..20).prop_map(|(first, count)| Step::Run(first, count)),
        1 => (0_u64..250).prop_map(Step::Forget),
        1 => (0_usize..4).prop_map(Step::Late),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn it_is_a_set_of_numbers(steps in steps()) {
        let (mut seen, mut taken, mut forgotten) = (Seen::default(), BTreeSet::new(), 0);
        // Those that came after their sender had said that it does not wait for them, and was not told of.
        let mut late = BTreeSet::new();
        for step in steps {
            match step {
                Step::Insert(number) => {
                    let new = !taken.contains(&number);
                    prop_assert_eq!(seen.is_new(number), new);
                    prop_assert_eq!(seen.insert(number), new);
                    prop_assert!(!seen.is_new(number));
                    if taken.insert(number) && number < forgotten {
                        late.insert(number);
                    }
                }
                Step::Run(first, count) => {
                    // A run often goes on where all has arrived.
                    let first = if first % 2 == 0 { seen.below() } else { first };
                    seen.insert_run(first, count);
                    late.extend((first..first + count).filter(|number| taken.insert(*number) && *number < forgotten));
                }
                Step::Forget(number) => {
                    seen.forget_below(number);
                    let next = taken.last().map_or(0, |last| last + 1).max(forgotten);
                    forgotten = forgotten.max(number.min(next));
                }
                Step::Late(most) => {
                    let told: Vec<u64> = seen.take_late(most).collect();
                    let newest: Vec<u64> = late.iter().rev().take(most).copied().collect();
                    prop_assert_eq!(&told, &newest);
                    late.retain(|number| !told.contains(number));
                }
            }
            prop_assert_eq!(seen.has_late(), !late.is_empty());
            agrees(&seen, &taken, forgotten);
        }
    }

    #[test]
    fn nothing_is_taken_twice_however_many_gaps(numbers in prop::collection::vec(0_u64..4000, 0..3000)) {
        let (mut seen, mut taken) = (Seen::default(), BTreeSet::new());
        for number in numbers {
            let new = seen.is_new(number);
            prop_assert_eq!(seen.insert(number), new);
            prop_assert!(!new || taken.insert(number), "{} was taken twice", number);
            prop_assert!(seen.ranges(usize::MAX).count() <= 256);
        }
        let missing = (0..).find(|number| !taken.contains(number)).unwrap();
        prop_assert_eq!(seen.below(), missing, "nothing is acknowledged that has not arrived");
        for (first, end) in seen.ranges(usize::MAX) {
            prop_assert!((first..end).all(|number| taken.contains(&number)));
        }
    }

    #[test]
    fn any_numbers_do(numbers in prop::collection::vec(any::<u64>(), 0..50)) {
        let mut seen = Seen::default();
        for number in numbers {
            let new = seen.is_new(number);
            prop_assert_eq!(seen.insert(number), new);
            seen.forget_below(number.rotate_left(7));
            prop_assert!(seen.ack().end() <= seen.largest().map_or(0, |last| last + 1));
        }
    }

    #[test]
    fn an_acknowledgement_survives_the_wire(below: u64, bits: u64, more in 0_u64..1 << 31) {
        let ack = Ack { below, bits };
        let Some(next) = below.checked_add(more).filter(|next| ack.end() <= *next) else { return Ok(()) };
        prop_assert_eq!(Ack::from_wire(low(below), bits, next), Some(ack));
    }

    #[test]
    fn one_of_what_was_never_sent_is_refused(half: u32, bits: u64, next: u64) {
        if let Some(ack) = Ack::from_wire(half, bits, next) {
            prop_assert_eq!(low(ack.below), half);
            prop_assert!(ack.end() <= next && next - ack.below <= 1 << 31);
        }
    }
}

#[test]
fn the_low_half_of_a_number_wraps() {
    let wrap = 1_u64 << 32;
    for (below, next) in
        [(wrap - 1, wrap), (wrap - 1, wrap + 5), (wrap, wrap), (wrap, wrap + 9), (5 * wrap - 3, 5 * wrap)]
    {
        assert_eq!(Ack::from_wire(low(below), 0, next), Some(Ack { below, bits: 0 }));
    }
    assert_eq!(Ack::from_wire(7, 0, 6), None, "not sent, and nothing was sent before it");
    assert_eq!(Ack::from_wire(7, 0, 7), Some(Ack { below: 7, bits: 0 }));
    assert_eq!(Ack::from_wire(7, 1, 8), None, "number 8 was not sent");
    assert_eq!(Ack::from_wire(7, 1, 9), Some(Ack { below: 7, bits: 1 }));
    assert_eq!(Ack::from_wire(0, 1 << 63, 65).map(Ack::end), Some(65));
    assert_eq!(Ack::from_wire(0, 1 << 63, 64), None);
    assert_eq!(Ack::from_wire(0, 0, (1 << 31) + 1), None, "too long ago");
}

#[test]
fn an_order_without_gaps_takes_no_memory() {
    let mut seen = Seen::default();
    assert_eq!((seen.largest(), seen.ack()), (None, Ack::default()));
    assert!((0..1000).all(|number| seen.insert(number)));
    assert_eq!(seen.ack(), Ack { below: 1000, bits: 0 });
    assert!(size_of::<Seen>() <= 64);
}

#[test]
fn a_leap_is_refused() {
    let mut seen = Seen::default();
    assert!(!seen.insert(1 << 20) && seen.insert((1 << 20) - 1));
    assert!(!seen.is_new(1 << 21) && seen.is_new((1 << 21) - 1));
    assert!(!seen.is_new(u64::MAX));
}

/// Its sender may have sent 2^31 messages since, and frames say the low half of their numbers only.
#[test]
fn what_is_far_behind_is_not_taken() {
    let (mut seen, far) = (Seen::default(), 1 << 16);
    (2..far).for_each(|number| assert!(seen.insert(number)));
    seen.forget_below(far);
    assert!(seen.is_new(0) && seen.is_new(1), "nobody has seen them");
    assert!(seen.insert(far));
    assert!(!seen.is_new(0) && seen.insert(1), "one is as far as that");
    assert_eq!(seen.take_late(9).collect::<Vec<_>>(), [1]);
}

#[test]
fn of_many_gaps_the_newest_can_be_filled() {
    let mut seen = Seen::default();
    for turn in 0..300 {
        assert!(seen.insert(2 * turn + 1));
        seen.forget_below(2 * turn + 2);
    }
    assert_eq!(seen.below(), 600);
    assert_eq!(
        (0..600).filter(|number| seen.insert(*number)).collect::<Vec<_>>(),
        Vec::from_iter((88..600).step_by(2))
    );
    let told: Vec<u64> = seen.take_late(1000).collect();
    assert_eq!((told.len(), told[0]), (128, 598), "its sender is told of the newest");
}

#[test]
fn who_rests_forgets_what_may_be_late() {
    let mut seen = Seen::default();
    assert!(seen.insert(1));
    seen.forget_below(2);
    seen.settle_down();
    assert!(!seen.is_new(0) && seen.is_new(2));
}

#[test]
fn with_too_many_gaps_the_lowest_range_is_refused_but_not_acknowledged() {
    let mut seen = Seen::default();
    assert!((0..257).all(|turn| seen.insert(1 + 2 * turn)));
    assert_eq!(seen.ranges(usize::MAX).count(), 256);
    assert!(!seen.is_new(0) && !seen.is_new(1) && seen.is_new(2));
    assert_eq!(seen.below(), 0, "number 0 never arrived, and its sender must know");
    assert!(!seen.ack().has_bit(1), "what is forgotten is not acknowledged");
    assert!(seen.insert(2));
    assert_eq!(seen.below(), 0);
    seen.forget_below(2);
    assert_eq!(seen.below(), 4);
}
