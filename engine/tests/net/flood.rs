//! What a flood of forged frames costs: bounded memory, and no answer longer than what asked for it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;

use cutthrough_engine::net::batch::Batch;
use cutthrough_engine::net::channel::Body;
use cutthrough_wire::frame::{BODY_MIN, HEADER_BYTES, Header, Kind};

use super::rules::{Forger, greeting, sealed};
use super::wire::{Faults, World};

thread_local! {
    /// Bytes that this thread has taken from the heap, less those that it has given back.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: everything is passed on to the system's allocator; beside that there is only a counter.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.set(HELD.get() + layout.size().cast_signed() as i64);
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.set(HELD.get() - layout.size().cast_signed() as i64);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

const KINDS: [Kind; 10] = [
    Kind::Hello,
    Kind::Retry,
    Kind::Welcome,
    Kind::Refuse,
    Kind::Records,
    Kind::Open,
    Kind::Data,
    Kind::Note,
    Kind::Probe,
    Kind::Close,
];

/// Forged frames of each kind.
const FRAMES: u64 = 100_000;

/// Bytes that the memory of an endpoint may differ by at any time of a flood.
const MOST: i64 = 64 << 10;

/// What is wrong with a frame that names the honest channel.
#[derive(Debug, Clone, Copy)]
enum Lie {
    Address,
    Generation,
    Seal,
}

/// Throws a frame at a node, and takes what it says to that: it is no longer than what came.
fn throw(world: &mut World, from: SocketAddr, header: &Header, body: &mut [u8], head: &[u8]) {
    let (now, came) = (world.now(), HEADER_BYTES + body.len());
    let net = &mut world.nodes[1].net;
    net.frame(now, from, head.first_chunk().unwrap(), Body::Aside(body), None);
    let answers: usize = std::iter::from_fn(|| net.greeting()).map(|(_, frame)| frame.len()).sum();
    assert!(answers <= came, "{answers} bytes answer {came}: {header:?}");
}

fn flood(lie: Lie) {
    let mut world = World::new(31, Faults::NONE);
    let (a, b) = world.join();
    world.settle();
    let honest = world.address(0);
    let generation = world.generation;
    let mut forger = Forger::stranger(9);
    let mut body = vec![0; usize::from(BODY_MIN)];
    let mut batch = Batch::default();
    let before = HELD.get();
    for kind in KINDS {
        for number in 0..FRAMES {
            body[..56].copy_from_slice(&greeting(number).to_bytes(0));
            forger.number = number;
            let mut header = forger.header(kind, [u32::try_from(number).unwrap(), 1], &body);
            header.tag = u32::try_from(b).unwrap();
            header.generation = generation;
            let from = match lie {
                Lie::Address => {
                    let [low, high, ..] = number.to_le_bytes();
                    SocketAddr::from(([10, 1, high, low], 9))
                }
                Lie::Generation => {
                    header.generation = header.generation.wrapping_add(1 + u32::try_from(number).unwrap());
                    honest
                }
                Lie::Seal => honest,
            };
            let mut head = header.to_bytes();
            if kind.greets() {
                head[..].copy_from_slice(&sealed(&header, &body).0);
            } else {
                head[48] = 1;
            }
            throw(&mut world, from, &header, &mut body, &head);
            if number % 64 == 63 {
                // One note for many frames that had come before, at most.
                let sent = std::iter::from_fn(|| {
                    let now = world.now();
                    world.nodes[1].net.batch(now, &mut batch, 65_000)
                });
                let sent: usize = sent.count();
                assert!(sent <= 1, "{kind:?}: {sent} batches");
            }
            let held = HELD.get() - before;
            assert!(held < MOST, "{kind:?} {lie:?}: {held} bytes more after {number} frames");
        }
    }
    assert_eq!(world.nodes[1].net.channels(), 1);
    let tally = *world.nodes[1].net.tally();
    match lie {
        Lie::Address | Lie::Generation => assert!(tally.stale >= 6 * FRAMES, "{tally:?}"),
        Lie::Seal => assert!(tally.forged + tally.duplicates >= 6 * FRAMES, "{tally:?}"),
    }
    world.nodes[0].net.send(a, b"after the flood", None).unwrap();
    let (index, message) = world.message(1);
    assert_eq!((index, &message.control[..15]), (b, &b"after the flood"[..]));
}

#[test]
fn a_flood_from_strangers_costs_nothing_that_stays() {
    flood(Lie::Address);
}

#[test]
fn a_flood_of_an_earlier_life_costs_nothing_that_stays() {
    flood(Lie::Generation);
}

#[test]
fn a_flood_with_wrong_seals_costs_nothing_that_stays() {
    flood(Lie::Seal);
}

#[test]
fn times_that_mean_nothing_any_more_do_not_pile_up() {
    let mut world = World::new(32, Faults::NONE);
    let (a, _) = world.join();
    let mut pass = |count: u32| {
        for _ in 0..count {
            world.nodes[0].net.send(a, b"again", None).unwrap();
            world.message(1);
            world.settle();
        }
        HELD.get()
    };
    let before = pass(2000);
    let after = pass(50_000);
    assert!(after - before < 8 << 10, "{} bytes more", after - before);
}
