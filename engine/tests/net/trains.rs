//! Trains that come as they were sent, and otherwise: what is handed over is what was sent, whatever landed where.

use cutthrough_engine::net::inbox::{Reading, ReadyPayload};
use cutthrough_engine::net::trains::{Line, TRAIN_BYTES, Train};
use cutthrough_engine::net::{Cargo, Tally};
use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::HEADER_BYTES;
use proptest::prelude::*;

use super::wire::{Arrived, Faults, World, mix, pattern};

/// What a socket has at one moment: what came first is of the endpoint that asks.
pub(crate) struct Socket<'a> {
    pub(crate) came: &'a mut [Arrived],
    pub(crate) at: Instant,
    /// How long the frames of the next train are said to be, where that is not so.
    pub(crate) lies: Option<usize>,
    /// How many the last train had.
    pub(crate) frames: usize,
    /// How often the first header was asked for.
    pub(crate) peeked: u64,
}

impl Line for Socket<'_> {
    type Part<'a> = &'a mut [u8];

    fn part(bytes: &mut [u8]) -> &mut [u8] {
        bytes
    }

    fn peek(&mut self, head: &mut [u8; HEADER_BYTES]) -> Option<usize> {
        self.peeked += 1;
        let first = &self.came.first()?.2;
        let bytes = first.len().min(HEADER_BYTES);
        head[..bytes].copy_from_slice(&first[..bytes]);
        Some(bytes)
    }

    fn receive(&mut self, parts: &mut [&mut [u8]]) -> Option<Train> {
        let (first, from, frame) = self.came.first()?;
        let (first, from, segment, mut bytes) = (*first, *from, frame.len(), Vec::new());
        self.frames = 0;
        for (target, other, frame) in &*self.came {
            let fits = frame.len() <= segment && bytes.len() % segment == 0 && bytes.len() + segment <= TRAIN_BYTES;
            if (first, from) != (*target, *other) || !fits {
                break;
            }
            bytes.extend_from_slice(frame);
            self.frames += 1;
        }
        self.came = &mut std::mem::take(&mut self.came)[self.frames..];
        let mut rest = &bytes[..];
        for part in parts {
            let (now, later) = rest.split_at(rest.len().min(part.len()));
            part[..now.len()].copy_from_slice(now);
            rest = later;
        }
        let segment = self.lies.unwrap_or(segment);
        Some(Train { at: self.at, from, bytes: bytes.len(), segment, cut: !rest.is_empty() })
    }
}

/// What became of payload bytes at the receiver.
#[derive(Debug, Default, PartialEq, Eq)]
struct Landed {
    /// Bytes that have places.
    bytes: u64,
    /// Bytes that were received there, and those that were copied there, by the receipts.
    placed: u64,
    copied: u64,
    /// Frames that were received where they belong, and those that were not.
    hits: u64,
    misses: u64,
}

/// Sends payloads of these lengths, and takes each where it lands: in a posted place of so many bytes if there is one,
/// in new pages, or in the reader's memory.
fn carry(world: &mut World, payloads: &[(usize, bool)], posted: &[usize]) -> Landed {
    world.scattered = true;
    let (a, b) = world.join();
    posted.iter().for_each(|bytes| world.nodes[1].net.memory.post(*bytes));
    world.nodes[1].net.expect(b);
    let (mut sent, mut landed) = (0, Landed::default());
    for (number, &(len, pages)) in payloads.iter().enumerate() {
        while let Some(&(len, pages)) = payloads.get(sent) {
            let cargo = Cargo { load: pattern(sent as u64, len), token: None, pages, cookie: None };
            if world.nodes[0].net.send(a, b"", Some(cargo)).is_ok() {
                sent += 1;
            } else if sent > number {
                break;
            } else {
                // All have come, and it has not heard of that yet.
                world.step(None);
            }
        }
        match world.message(1).1.payload {
            ReadyPayload::Landed(place, story) => {
                assert!(pages && place[..len] == pattern(number as u64, len), "{number}");
                assert!(story.copied <= story.bytes);
                landed.bytes += len as u64;
                landed.copied += u64::from(story.copied);
            }
            ReadyPayload::Arriving(ticket, _) => {
                let mut into = vec![0; len];
                world.read(1, b, &mut Reading { message: ticket, into: &mut into });
                assert!(!pages && into == pattern(number as u64, len), "{number}");
            }
            other => panic!("{other:?}"),
        }
    }
    world.settle();
    let tally = world.nodes[1].net.tally();
    Landed { placed: tally.placed_bytes, hits: tally.hits, misses: tally.misses, ..landed }
}

/// Nothing is copied of what comes in its order, where nothing else comes between.
#[test]
fn what_comes_as_guessed_is_not_copied() {
    let mut world = World::new(41, Faults::NONE);
    let landed = carry(&mut world, &[(300_000, true)], &[300_000]);
    assert_eq!((landed.copied, landed.misses, landed.placed, landed.bytes), (0, 0, 300_000, 300_000));
    assert!(world.runs > 5);
}

/// To find a place may take memory that was guessed: what has landed there is gone then, and comes again.
#[test]
fn what_had_landed_in_a_guess_that_was_taken_comes_again() {
    let mut world = World::new(44, Faults::NONE);
    world.nodes[1].net.memory.fickle = true;
    let payloads = [(1000, true), (1000, false), (70_000, true), (70_000, false), (1, true), (1, false)];
    assert_eq!(carry(&mut world, &payloads, &[100_000]).bytes, 71_001);
}

/// Several messages in one train land in as many places, as soon as it is known that trains are so.
#[test]
fn each_message_of_a_train_lands_in_its_place() {
    let mut world = World::new(41, Faults::NONE);
    let landed = carry(&mut world, &[(3000, true); 200], &[3000; 200]);
    assert!(landed.hits > 5 * landed.misses, "{landed:?}");
    assert_eq!(landed.copied + landed.placed, 600_000);
}

/// Places are longer than what comes, as pages are: what has landed behind a short message, where another one would
/// have gone on, is put together from there before anything is copied to where it lay.
#[test]
fn short_messages_for_long_places_are_taken_as_they_come() {
    for (seed, longest) in (0..40).flat_map(|seed| [(seed, 400), (seed, 1400), (seed, 4000)]) {
        let mut world = World::new(seed, Faults::NONE);
        let len = |at| 1 + usize::try_from(mix(seed + at) % longest).unwrap();
        let payloads: Vec<_> = (0..300).map(|at| (len(at), true)).collect();
        let landed = carry(&mut world, &payloads, &[4096; 300]);
        assert_eq!(landed.copied + landed.placed, landed.bytes, "{landed:?}");
        let tallies: Vec<_> = world.nodes.iter().map(|node| *node.net.tally()).collect();
        let forged_or_lost = |tally: &Tally| tally.forged + tally.frames_lost + tally.unplaced;
        assert!(tallies.iter().all(|tally| forged_or_lost(tally) == 0), "seed {seed}, {longest}: {tallies:?}");
    }
}

/// As many bytes as the last two messages had will the next one have, too, however long its place is.
#[test]
fn what_is_as_long_as_before_lands_in_its_place() {
    for bytes in [100, 1000, 3000] {
        let mut world = World::new(46, Faults::NONE);
        let landed = carry(&mut world, &[(bytes, true); 300], &[4096; 300]);
        // The first ones, as many as may be on their way, come before anything is known.
        assert!(landed.misses < 80 && landed.hits > 3 * landed.misses, "{bytes} bytes: {landed:?}");
        assert_eq!(landed.copied + landed.placed, 300 * bytes as u64);
    }
}

/// A place that is too short for its message is passed over: its bytes are copied from there, and counted.
#[test]
fn what_lands_in_the_wrong_place_is_mended() {
    let mut world = World::new(42, Faults::NONE);
    let landed = carry(&mut world, &[(9000, true), (700, true)], &[800, 9000]);
    assert!(landed.misses > 0 && landed.copied > 0, "{landed:?}");
    assert_eq!(landed.copied + landed.placed, 9700);
}

/// While one payload is read, trains of others come between its own. What has landed in the reader's memory then has to
/// be put together; so the first header is looked at from then on, and what is of others is received in one piece.
#[test]
fn who_reads_beside_others_looks_at_headers_first() {
    const LEN: usize = 300_000;
    for channels in [1, 3] {
        let mut world = World::new(45, Faults::NONE);
        world.scattered = true;
        let joined: Vec<_> = (0..channels).map(|_| world.join()).collect();
        for round in 0..4 {
            for (seed, &(a, _)) in (10 * round..).zip(&joined) {
                let cargo = Cargo { load: pattern(seed, LEN), token: None, pages: false, cookie: None };
                world.nodes[0].net.send(a, b"", Some(cargo)).unwrap();
            }
            for _ in 0..channels {
                let (channel, message) = world.message(1);
                let ReadyPayload::Arriving(number, _) = message.payload else { panic!("{:?}", message.payload) };
                let mut into = vec![0; LEN];
                world.read(1, channel, &mut Reading { message: number, into: &mut into });
                let of = joined.iter().position(|(_, b)| *b == channel).unwrap();
                assert!(into == pattern(10 * round + of as u64, LEN), "round {round}, channel {of}");
            }
        }
        world.settle();
        let placed = world.nodes[1].net.tally().placed_bytes;
        assert_eq!(world.peeked > 0, channels > 1, "{} looks, {placed} bytes placed", world.peeked);
        assert!(placed > channels * LEN as u64, "{placed} bytes placed");
    }
}

/// What was taken for lost and sent again may come in one train with what was not lost: the second of them lands where
/// the first has been copied to meanwhile. It is as good as any other.
#[test]
fn what_comes_twice_in_one_train_is_not_taken_for_forged() {
    let mut landed = Landed::default();
    for seed in 0..200 {
        let mut world = World::new(seed, Faults { loss: 5, reorder: 40, ..Faults::NONE });
        landed = carry(&mut world, &[(150_000, true), (150_000, false)], &[150_000]);
        let tallies: Vec<_> = world.nodes.iter().map(|node| *node.net.tally()).collect();
        assert!(tallies.iter().all(|tally| tally.forged == 0), "seed {seed}: {tallies:?}");
    }
    assert!(landed.hits > 0 && landed.misses > 0, "{landed:?}");
}

/// A hello that was changed twice looks like one of another version: its caller is refused, and calls again.
#[test]
fn a_hello_that_was_changed_twice_is_made_again() {
    let faults = Faults { loss: 13, duplicates: 0, reorder: 0, corrupt: 13 };
    carry(&mut World::new(1_094_770_467_549_831_092, faults), &[(1, false)], &[]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn payloads_are_whole_whatever_trains_are_like(
        seed in any::<u64>(),
        (loss, duplicates, reorder, corrupt) in (0_u32..20, 0_u32..20, 0_u32..40, 0_u32..30),
        payloads in prop::collection::vec(
            (prop_oneof![1..1500_usize, 1..20_000_usize, 1..150_000_usize], prop::bool::weighted(0.8)), 1..24),
        posted in prop::collection::vec(prop_oneof![1..1500_usize, 1..20_000_usize, 1..150_000_usize], 0..24),
    ) {
        let mut world = World::new(seed, Faults { loss, duplicates, reorder, corrupt });
        let landed = carry(&mut world, &payloads, &posted);
        // Each byte of a place was received there, or was copied there; and what was not copied was a hit.
        prop_assert!(landed.placed + landed.copied >= landed.bytes, "{landed:?}");
        prop_assert!((landed.placed > 0) == (landed.hits > 0), "{landed:?}");
    }
}
