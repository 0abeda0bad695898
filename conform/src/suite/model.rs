//! Any sequence of operations against a model that is plainly right: a queue of what has to arrive.

use std::collections::VecDeque;

use cutthrough::{Config, Landing, Payload, Token};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::config;
use crate::bytes::{check, pattern};
use crate::{Capability, Join, Pair, Side};

/// Something that one side does; the other side is `b` or `a` by turns.
#[derive(Debug, Clone)]
enum Operation {
    /// Sends a control message of so many bytes.
    Say(usize),
    /// Sends so many private bytes.
    Copy(usize),
    /// Sends pages of so many bytes each.
    Pages(Vec<usize>),
    /// Sends private bytes (or pages) to a token; the place has so many bytes, in pages or not.
    Token { len: usize, room: usize, to_pages: bool, from_pages: bool },
    /// Posts runs.
    Post(usize, u32),
    /// Takes one message and keeps it unread.
    Keep,
    /// Takes one message and checks it.
    Take,
    /// Checks the message that was kept longest.
    Settle,
}

/// What a message has to be when it arrives.
#[derive(Debug)]
struct Expected {
    seed: u64,
    control: usize,
    payload: Option<usize>,
    dropped: bool,
}

/// One direction of the model: what is on its way, and what has arrived and is still held.
#[derive(Debug, Default)]
struct Direction {
    coming: VecDeque<Expected>,
    kept: VecDeque<(cutthrough::Incoming, Expected)>,
}

fn operations(pages: bool) -> impl Strategy<Value = Vec<(bool, Operation)>> {
    // Private payloads that nobody takes at the same time have to fit into the staging ring; the driver sees to that.
    let len = prop_oneof![Just(0usize), 1..200usize, 4000..4200usize, 1..20_000usize];
    let lens = vec(len.clone(), 1..5);
    let from = if pages { any::<bool>().boxed() } else { Just(false).boxed() };
    let by_pages = if pages { lens.prop_map(Operation::Pages).boxed() } else { Just(Operation::Take).boxed() };
    let token = (len.clone(), len.clone(), any::<bool>(), from)
        .prop_map(|(len, room, to_pages, from_pages)| Operation::Token { len, room, to_pages, from_pages });
    let operation = prop_oneof![
        3 => (0..=96usize).prop_map(Operation::Say),
        3 => len.clone().prop_map(Operation::Copy),
        2 => by_pages,
        2 => token,
        1 => (len, 1..4u32).prop_map(|(len, count)| Operation::Post(len, count)),
        2 => Just(Operation::Keep),
        5 => Just(Operation::Take),
        2 => Just(Operation::Settle),
    ];
    vec((any::<bool>(), operation), 1..120)
}

/// Random sequences of sends by every path, posts, grants, reads now and later, in both directions: every message
/// arrives in order, once, with the bytes it was sent with, or dropped if its token had no room.
pub fn any_sequence_of_operations(join: &dyn Join) {
    let pages = !join.skips(Capability::SharedPages);
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() });
    let outcome = runner.run(&operations(pages), |operations| {
        let roomy = Config { staging_bytes: 1 << 20, ..config() };
        let mut pair = join.pair(roomy.clone(), roomy);
        let mut directions = [Direction::default(), Direction::default()];
        for (seed, (swapped, operation)) in (0..).zip(operations) {
            if swapped {
                std::mem::swap(&mut pair.a, &mut pair.b);
                directions.swap(0, 1);
            }
            step(&mut pair, &mut directions[0], operation, seed);
        }
        for direction in &mut directions {
            finish(&mut pair.b, direction);
            std::mem::swap(&mut pair.a, &mut pair.b);
        }
        prop_assert!(pair.a.endpoint.poll().is_none());
        prop_assert!(pair.b.endpoint.poll().is_none());
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// One operation: sends go from `a` to `b`, the rest happens at `b`.
fn step(pair: &mut Pair, direction: &mut Direction, operation: Operation, seed: u64) {
    // One side drives both, so nobody takes messages while it sends: at most 40 are on their way, and that many of
    // the longest fit into the ring.
    if direction.coming.len() >= 40 || direction.kept.len() >= 10 {
        finish(&mut pair.b, direction);
    }
    match operation {
        Operation::Say(control) => {
            pair.a.say(&pattern(seed, control));
            direction.coming.push_back(Expected { seed, control, payload: None, dropped: false });
        }
        Operation::Copy(len) => {
            pair.a.send_copy(&pattern(seed, 8), &pattern(seed, len), None);
            direction.coming.push_back(Expected { seed, control: 8, payload: Some(len), dropped: false });
        }
        Operation::Pages(lens) => {
            let lens = whole_but_last(lens);
            pair.a.send_pages(&pattern(seed, 8), seed, &lens, None);
            let len = lens.iter().sum();
            direction.coming.push_back(Expected { seed, control: 8, payload: Some(len), dropped: false });
        }
        Operation::Token { len, room, to_pages, from_pages } => {
            let landing = if to_pages { Landing::Pages(room) } else { Landing::Buffer(vec![0; room]) };
            let fits = if to_pages { room.max(1).next_multiple_of(4096) } else { room };
            let token: Token = pair.b.endpoint.grant(pair.b.channel, landing).expect("a token");
            if from_pages {
                pair.a.send_pages(&pattern(seed, 8), seed, &[len], Some(token));
            } else {
                pair.a.send_copy(&pattern(seed, 8), &pattern(seed, len), Some(token));
            }
            direction.coming.push_back(Expected { seed, control: 8, payload: Some(len), dropped: len > fits });
        }
        Operation::Post(len, count) => {
            pair.b.endpoint.post(pair.b.channel, len, count).expect("pages");
        }
        Operation::Keep => direction.kept.extend(take(&mut pair.b, direction.coming.pop_front())),
        Operation::Take => {
            if let Some((message, expected)) = take(&mut pair.b, direction.coming.pop_front()) {
                settle(&mut pair.b, message, &expected);
            }
        }
        Operation::Settle => {
            if let Some((message, expected)) = direction.kept.pop_front() {
                settle(&mut pair.b, message, &expected);
            }
        }
    }
}

/// Pages of a list are full, except the last.
fn whole_but_last(mut lens: Vec<usize>) -> Vec<usize> {
    let last = lens.len() - 1;
    for len in &mut lens[..last] {
        *len = (*len).max(1).next_multiple_of(4096);
    }
    lens
}

/// Takes the message that has to come next.
fn take(side: &mut Side, expected: Option<Expected>) -> Option<(cutthrough::Incoming, Expected)> {
    let expected = expected?;
    let message = side.message();
    assert_eq!(message.control(), pattern(expected.seed, expected.control));
    Some((message, expected))
}

/// Checks a message's payload.
fn settle(side: &mut Side, mut message: cutthrough::Incoming, expected: &Expected) {
    match (message.payload(), expected.payload) {
        (Payload::None, None) => {}
        (Payload::Dropped(_), Some(_)) => assert!(expected.dropped),
        (Payload::Buffer(bytes), Some(len)) => {
            assert_eq!((bytes.len(), expected.dropped), (len, false));
            check(expected.seed, bytes);
        }
        (Payload::Landed(landed), Some(len)) => {
            assert_eq!((landed.len(), expected.dropped), (len, false));
            check(expected.seed, &landed.to_vec());
        }
        (Payload::Arriving(_), Some(len)) => {
            assert_eq!((message.payload_len(), expected.dropped), (len, false));
            side.read_checked(&mut message, expected.seed);
        }
        (payload, _) => panic!("{payload:?} instead of {expected:?}"),
    }
}

/// Takes and checks everything that is still on its way or held.
fn finish(side: &mut Side, direction: &mut Direction) {
    while let Some((message, expected)) = direction.kept.pop_front() {
        settle(side, message, &expected);
    }
    while let Some((message, expected)) = take(side, direction.coming.pop_front()) {
        settle(side, message, &expected);
    }
}
