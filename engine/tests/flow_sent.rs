//! Frames in flight: against a plain list that applies the rules one frame at a time.

use std::collections::BTreeSet;

use cutthrough_engine::flow::rtt::Rtt;
use cutthrough_engine::flow::seen::{Ack, Seen};
use cutthrough_engine::flow::sent::{Lost, Sent};
use cutthrough_engine::time::Instant;
use proptest::prelude::*;

const ROUND: u64 = 100_000;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// The half of a number that the wire carries.
fn low(number: u64) -> u32 {
    u32::try_from(number % (1 << 32)).unwrap()
}

/// A round trip of 100 us that hardly varies: a frame is late after 112.5 us, and a probe goes out after 200 us.
fn steady() -> Rtt {
    let mut rtt = Rtt::default();
    (0..60).for_each(|turn| rtt.sample(at(turn), ROUND, 0, 0));
    rtt
}

/// The oracle: every frame in flight, by number, with time of sending and bytes.
#[derive(Default)]
struct List {
    frames: Vec<(u64, u64, u32)>,
    largest: Option<u64>,
    last_sent: u64,
}

impl List {
    /// Removes the frames that `which` names. Returns their numbers.
    fn take(&mut self, which: impl Fn(&(u64, u64, u32)) -> bool) -> Vec<u64> {
        let (out, stay) = self.frames.iter().partition(|frame| which(frame));
        self.frames = stay;
        let out: Vec<(u64, u64, u32)> = out;
        out.iter().map(|frame| frame.0).collect()
    }

    fn acked(&mut self, numbers: impl Fn(u64) -> bool, end: u64) -> Vec<u64> {
        self.largest = self.largest.max(end.checked_sub(1));
        self.take(|frame| numbers(frame.0))
    }

    fn is_lost(&self, number: u64, sent: u64, now: u64, rtt: &Rtt) -> bool {
        self.largest
            .is_some_and(|largest| number < largest && (largest - number >= 3 || sent + rtt.loss_delay() <= now))
    }

    fn timer(&self, rtt: &Rtt, backoff: u32) -> Option<u64> {
        let &(number, sent, _) = self.frames.first()?;
        Some(match self.largest {
            Some(largest) if number < largest => sent + rtt.loss_delay(),
            _ => self.last_sent + rtt.probe_timeout(backoff, 0),
        })
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// So many ns pass.
    Wait(u64),
    /// A frame goes out, after so many that are not pushed.
    Push(u64),
    /// The header of an acknowledgement, of numbers a share of 255 of those sent, and with these bits.
    Ack(u8, u64),
    /// A range of it: where it begins and how long it is.
    Range(u8, u64),
    Lost,
    Probe(u32, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..ROUND).prop_map(Step::Wait),
        8 => prop_oneof![4 => Just(0), 1 => 1_u64..4].prop_map(Step::Push),
        3 => (128_u8.., any::<u64>(), 0_u32..64).prop_map(|(share, bits, few)| Step::Ack(share, bits >> few)),
        1 => (128_u8.., 0_u64..10).prop_map(|(share, len)| Step::Range(share, len)),
        3 => Just(Step::Lost),
        2 => (0_u32..3, prop_oneof![Just(0), 0_u64..200_000]).prop_map(|(backoff, lag)| Step::Probe(backoff, lag)),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn every_content_comes_out_by_the_rules_and_once_more_only_if_it_was_given_up(steps in steps()) {
        let (rtt, mut now, mut next) = (steady(), 0, 0);
        let (mut sent, mut list) = (Sent::default(), List::default());
        let (mut pushed, mut out, mut given_up) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::<u64>::new());
        for step in steps {
            let settles = matches!(step, Step::Ack(..) | Step::Range(..));
            let mut got = Vec::new();
            let each = |number: u64| got.push(number);
            let share = |share: u8| next * u64::from(share) / 255;
            let want = match step {
                Step::Wait(nanos) => {
                    now += nanos;
                    Vec::new()
                }
                Step::Push(skipped) => {
                    let number = next + skipped;
                    let bytes = u32::try_from(number % 1000).unwrap();
                    sent.push(number, at(now), bytes, number);
                    list.frames.push((number, now, bytes));
                    list.last_sent = now;
                    next = number + 1;
                    pushed.insert(number);
                    Vec::new()
                }
                Step::Ack(below, bits) => {
                    let ack = Ack { below: share(below), bits };
                    let Some(ack) = Ack::from_wire(low(ack.below), bits, next) else { continue };
                    let was = list.frames.clone();
                    let want = list.acked(|number| number < ack.below || ack.has_bit(number), ack.end());
                    let acked = sent.acked(ack, next, each);
                    prop_assert_eq!(acked.frames as usize, want.len());
                    let longest = was.iter().filter(|frame| want.contains(&frame.0)).map(|frame| frame.2).max();
                    prop_assert_eq!(acked.longest, longest.unwrap_or(0));
                    let newest = was.iter().rev().find(|frame| want.contains(&frame.0));
                    prop_assert_eq!(acked.newest, newest.map(|frame| (frame.0, at(frame.1))));
                    want
                }
                Step::Range(first, len) => {
                    let (first, end) = (share(first), (share(first) + len).min(next));
                    let end_if_any = if first < end { end } else { 0 };
                    let want = list.acked(|number| (first..end).contains(&number), end_if_any);
                    prop_assert_eq!(sent.acked_range(first, end, each).frames as usize, want.len());
                    want
                }
                Step::Lost => {
                    let verdicts: Vec<_> =
                        list.frames.iter().filter(|f| list.is_lost(f.0, f.1, now, &rtt)).copied().collect();
                    let want = list.take(|frame| verdicts.contains(frame));
                    let bytes: u64 = verdicts.iter().map(|frame| u64::from(frame.2)).sum();
                    let mut lost = 0;
                    let each = |number, frame: Lost| {
                        assert_eq!(frame.number, number);
                        lost += u64::from(frame.bytes);
                        got.push(number);
                    };
                    prop_assert_eq!(sent.lost(at(now), &rtt, each), bytes);
                    prop_assert_eq!(lost, bytes);
                    want
                }
                Step::Probe(backoff, lag) => {
                    let overtaken = list.frames.first().is_some_and(|frame| list.largest.is_some_and(|n| frame.0 < n));
                    let wait = rtt.probe_timeout(backoff, lag.min(now));
                    let due = !overtaken && !list.frames.is_empty() && list.last_sent + wait <= now;
                    let looked = at(now - lag.min(now));
                    let oldest: Vec<_> = list.frames.iter().take(if due { 2 } else { 0 }).copied().collect();
                    prop_assert_eq!(sent.probe((at(now), looked), &rtt, backoff, |number, _| got.push(number)), due);
                    list.take(|frame| oldest.contains(frame))
                }
            };
            let late = got.split_off(want.len().min(got.len()));
            prop_assert_eq!(&got, &want);
            prop_assert!(late.is_empty() || settles);
            prop_assert!(late.into_iter().all(|number| given_up.remove(&number)));
            given_up.extend(got.iter().filter(|_| !settles));
            prop_assert!(got.into_iter().all(|number| pushed.contains(&number) && out.insert(number)));
            prop_assert_eq!(sent.len(), list.frames.len());
            prop_assert_eq!(sent.is_empty(), list.frames.is_empty());
            prop_assert_eq!(sent.in_flight(), list.frames.iter().map(|frame| u64::from(frame.2)).sum::<u64>());
            prop_assert_eq!(sent.oldest(), list.frames.first().map(|frame| frame.0));
            prop_assert_eq!(sent.timer(&rtt, 1).map(Instant::as_nanos), list.timer(&rtt, 1));
        }
        sent.drain(|number| assert!(out.insert(number)));
        prop_assert_eq!(pushed, out);
        prop_assert!(sent.is_empty() && sent.in_flight() == 0 && sent.timer(&rtt, 0).is_none());
    }

    /// Sender and receiver over a way that loses and reorders: whatever is lost goes again, until all has arrived.
    #[test]
    fn everything_arrives_in_the_end_and_nothing_is_said_to_have_that_has_not(
        fates in prop::collection::vec((0_u8..10, 0_u64..8, prop_oneof![9 => Just(0), 1 => 1_u64..100]), 300),
        total in 1_u64..200,
    ) {
        let rtt = steady();
        let (mut sent, mut seen, mut arrived) = (Sent::default(), Seen::default(), BTreeSet::new());
        let mut waiting: Vec<u64> = (0..total).rev().collect();
        let mut way = Vec::new();
        let (mut now, mut number, mut pushed, mut backoff, mut given_up) = (0_u64, 0_u64, 0, 0, 0_usize);
        for turn in 0_u64.. {
            prop_assert!(turn < 20_000, "it never ends");
            while sent.len() < 80 && let Some(content) = waiting.pop() {
                sent.push(number, at(now), 1000, content);
                let (fate, late, others) = fates[pushed % fates.len()];
                pushed += 1;
                let arrives = now + ROUND / 2 + late * 10_000;
                if fate > 1 {
                    way.push((arrives, number, Some(content), sent.oldest().unwrap()));
                }
                // Frames that ask for no acknowledgement, of which the last one arrives.
                if others > 0 {
                    way.push((arrives, number + others, None, sent.oldest().unwrap()));
                }
                number += 1 + others;
                now += 1_000;
            }
            way.sort_unstable();
            while let Some(&(when, frame, content, oldest)) = way.first() && when <= now {
                way.remove(0);
                seen.forget_below(oldest);
                if seen.insert(frame) {
                    arrived.extend(content);
                }
            }
            let Ack { below, bits } = seen.ack();
            let ack = Ack::from_wire(low(below), bits, number).expect("an honest receiver");
            let mut acked = sent.acked(ack, number, |content| assert!(arrived.contains(&content))).frames;
            for (first, end) in seen.ranges(8).collect::<Vec<_>>() {
                acked += sent.acked_range(first, end, |content| assert!(arrived.contains(&content))).frames;
            }
            backoff = if acked > 0 { 0 } else { backoff };
            let before = waiting.len();
            sent.lost(at(now), &rtt, |content, _| waiting.push(content));
            backoff += u32::from(sent.probe((at(now), at(now)), &rtt, backoff, |content, _| waiting.push(content)));
            given_up += waiting.len() - before;
            if waiting.is_empty() && sent.is_empty() {
                break;
            }
            now += 7_000;
        }
        prop_assert_eq!(arrived.len() as u64, total, "what was acknowledged has arrived");
        prop_assert!(sent.spurious() <= given_up as u64);
    }
}

/// Frames from 0 up to `count`, one each microsecond.
fn sent(count: u64) -> Sent<u64> {
    let mut sent = Sent::default();
    (0..count).for_each(|number| sent.push(number, at(number * 1_000), 100, number));
    sent
}

#[test]
fn a_frame_that_was_given_up_too_early_is_counted() {
    let rtt = steady();
    let mut flight = sent(1);
    let timer = flight.timer(&rtt, 0).unwrap();
    assert!(!flight.probe((at(timer.as_nanos() - 1), timer), &rtt, 0, |_, _| ()));
    let earlier = at(timer.as_nanos() - 1);
    assert!(!flight.probe((timer, earlier), &rtt, 0, |_, _| ()), "what lies here may acknowledge it");
    assert!(flight.probe((timer, timer), &rtt, 0, |_, _| ()));
    flight.push(1, timer, 100, 0);
    let mut arrived = Vec::new();
    let acked = flight.acked(Ack { below: 1, bits: 0 }, 8, |content| arrived.push(content));
    assert_eq!((acked.frames, acked.late), (0, Some(at(0))));
    assert_eq!((flight.spurious(), arrived), (1, vec![0]), "it need not go again");
    assert_eq!(flight.acked(Ack { below: 2, bits: 0 }, 8, drop).frames, 1);
    assert_eq!(flight.spurious(), 1);
}

#[test]
fn what_was_given_up_last_says_how_long_the_way_is() {
    let rtt = steady();
    let mut flight = sent(4);
    let (mut now, mut number) = (at(1_000_000), 4);
    for _ in 0..2 {
        let mut again = Vec::new();
        assert!(flight.probe((now, now), &rtt, 0, |content, _| again.push(content)));
        for content in again {
            flight.push(number, now, 100, content);
            number += 1;
        }
        now = now.after(1_000_000);
    }
    // Nothing from 4 on has arrived, which would have told to forget 0 and 1: so all three have.
    let mut arrived = Vec::new();
    let acked = flight.acked(Ack { below: 3, bits: 0 }, 8, |content| arrived.push(content));
    assert_eq!(arrived, [0, 1, 2]);
    assert_eq!((acked.late, acked.newest), (Some(at(2_000)), None));
    assert_eq!(flight.acked(Ack { below: 3, bits: 0b1 }, 8, drop).late, None, "4 was sent, and is in flight");
    assert_eq!(flight.acked_range(3, 4, drop).late, Some(at(3_000)));
}

#[test]
fn a_gap_that_was_forgotten_is_not_counted() {
    let rtt = steady();
    let mut flight = sent(5);
    flight.acked(Ack { below: 0, bits: 0b1111 }, 8, drop);
    let mut lost = Vec::new();
    assert_eq!(flight.lost(at(6_000), &rtt, |number, _| lost.push(number)), 100);
    assert_eq!(lost, [0]);
    flight.push(5, at(6_000), 100, 0);
    flight.acked(Ack { below: 6, bits: 0 }, 8, drop);
    assert_eq!(flight.spurious(), 0, "the receiver was told by frame 5 to forget number 0");
}

/// A way may be several times as long as another one, and what comes by it is not lost.
#[test]
fn what_comes_long_after_others_is_borne() {
    let rtt = steady();
    for (late, longer) in [(2 * ROUND, 7 * ROUND / 8), (4 * ROUND, 23 * ROUND / 8), (9 * ROUND, 4 * ROUND)] {
        let mut flight = sent(5);
        flight.acked(Ack { below: 0, bits: 0b1111 }, 8, drop);
        assert_eq!(flight.lost(at(6_000), &rtt, |_, _| ()), 100, "number 0");
        flight.push(5, at(6_000), 100, 0);
        flight.acked(Ack { below: 6, bits: 0 }, 8, drop);
        let mut arrived = Vec::new();
        let acked = flight.acked_range(0, 1, |content| arrived.push(content));
        assert_eq!((arrived, acked.late_frames, acked.overtaken), (vec![0], 1, 5), "{late} ns");
        flight.bear(at(late), &acked, &rtt);
        let now = 10 * ROUND;
        (6..11).for_each(|number| flight.push(number, at(now), 100, number));
        flight.acked_range(7, 11, drop);
        let given_up = now + rtt.loss_delay() + longer;
        assert_eq!(flight.lost(at(given_up - 1), &rtt, |_, _| ()), 0, "{late} ns");
        assert_eq!(flight.lost(at(given_up), &rtt, |_, _| ()), 100, "{late} ns");
    }
}

#[test]
fn what_was_given_up_is_forgotten_in_time() {
    let rtt = steady();
    for (later, spurious) in [(14_999_999_000, 1), (15_000_000_000, 0)] {
        let mut flight = sent(5);
        flight.acked(Ack { below: 0, bits: 0b1111 }, 8, drop);
        assert_eq!(flight.lost(at(6_000), &rtt, |_, _| ()), 100);
        flight.lost(at(later), &rtt, |_, _| ());
        flight.acked_range(0, 1, drop);
        assert_eq!(flight.spurious(), spurious, "{later} ns");
    }
}

/// Memory for what was given up would else be held by channels that have long been quiet.
#[test]
fn what_was_given_up_is_forgotten_where_nothing_is_sent_for_long() {
    let mut flight = sent(5);
    flight.acked(Ack { below: 0, bits: 0b1111 }, 8, drop);
    assert_eq!(flight.lost(at(6_000), &steady(), |_, _| ()), 100);
    flight.settle_down();
    flight.acked_range(0, 1, drop);
    assert_eq!(flight.spurious(), 0);
}

/// Found by the simulator of faults: seed 1753613769024351.
#[test]
fn what_a_far_frame_has_told_to_forget_has_not_arrived() {
    let rtt = steady();
    let mut flight = sent(1);
    let now = at(1_000_000);
    assert!(flight.probe((now, now), &rtt, 0, |_, _| ()));
    flight.push(1, now, 100, 1);
    // Number 1 is lost, and then go frames that ask for no acknowledgement, of which one arrives: beyond the bits.
    let acked = flight.acked(Ack { below: 1, bits: 0 }, 72, |content| panic!("{content} has not arrived"));
    assert_eq!((acked.late, flight.spurious()), (None, 0));
}

#[test]
fn a_lie_about_the_future_does_not_last() {
    let rtt = steady();
    let mut flight = sent(3);
    flight.acked_range(1_000_000, u64::MAX, drop);
    assert_eq!(flight.lost(at(3_000), &rtt, |_, _| ()), 300);
    flight.push(3, at(4_000), 100, 3);
    assert_eq!(flight.lost(at(5_000), &rtt, |_, _| ()), 0, "frame 3 cannot have been overtaken");
    assert_eq!(flight.acked_range(9, 2, drop).frames, 0);
}
