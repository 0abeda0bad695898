//! How a rank ends its part, where others do not come, do not listen any more, or send what makes no sense.
#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cutthrough::am::{CallError, Failure};
use cutthrough::{Channel, Config, Endpoint, am};
use cutthrough_conform::free_udp_address;
use cutthrough_splitc::{Error, Op, Settings, World};

/// Shorter than a rank waits for others to hear of its end.
const DEADLINE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);
/// The handler that lets a rank in.
const HELLO: u16 = 1;

/// Ranks that find each other by files.
fn at_files(job: &str, size: u32) -> Settings {
    let job = format!("{job}-{}", std::process::id());
    let addresses = vec![format!("shm:splitc-{job}-{{rank}}")];
    Settings { size, addresses, job, deadline: DEADLINE, ..Settings::alone() }
}

/// A rank that waited for the end of the others named itself.
#[test]
fn a_rank_that_does_not_finish_is_named() {
    for (size, late) in [(2, 1), (4, 2)] {
        let end = World::threads_at(&at_files(&format!("no-end-{size}"), size), |world| {
            if world.rank() == late {
                world.barrier()?;
                std::thread::sleep(4 * DEADLINE);
                return Err(Error::Uneven);
            }
            Ok(())
        });
        assert_eq!(end, Err(Error::Late { rank: late, within: DEADLINE }), "of {size}");
    }
}

/// A rank that began the next world met others that had not left the one before: it was let in there, and lost them.
#[test]
fn the_same_ranks_may_join_again() {
    let port = free_udp_address().port();
    let udp = vec![format!("udp:127.0.0.1:{port}"), format!("udp:127.0.0.2:{port}"), format!("udp:127.0.0.3:{port}")];
    let files = at_files("again", 3);
    for (addresses, rounds) in [(files.addresses.clone(), 20), (udp, 3)] {
        let settings = Settings { addresses, insecure: true, deadline: PATIENCE, ..files.clone() };
        let run = |rank| {
            for round in 0..rounds {
                let mut world = World::join(&Settings { rank, ..settings.clone() })?;
                assert_eq!(world.reduce(Op::Sum, rank + round)?, 3 + 3 * round);
                world.finish()?;
            }
            Ok::<_, Error>(())
        };
        std::thread::scope(|scope| {
            let ranks = [0, 1, 2].map(|rank| scope.spawn(move || run(rank)));
            for rank in ranks {
                assert_eq!(rank.join().expect("no panic"), Ok(()));
            }
        });
    }
}

/// What a rank 1 of two says first, in words.
fn hello(settings: &Settings) -> [u32; 4] {
    let hash = settings
        .job
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    [2, 1, hash as u32, (hash >> 32) as u32]
}

/// A node that is no rank, with a channel to rank 0.
fn caller(settings: &Settings) -> (am::Node, Channel) {
    let address = settings.addresses[0].replace("{rank}", "0");
    let mut node = am::Node::new(Endpoint::open(Config::default()).expect("an endpoint"), am::Settings::default());
    let begun = Instant::now();
    loop {
        match node.connect(&address, PATIENCE) {
            Ok(channel) => return (node, channel),
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
    }
}

/// Where all have finished, nobody is late who does not hear of it.
#[test]
fn a_rank_that_has_finished_need_not_hear_of_it() {
    const ARRIVE: u16 = 5;
    const BYE: u16 = 7;
    let settings = at_files("deaf", 2);
    let go = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let mut world = World::join(&settings).expect("the other one");
            while !go.load(Ordering::SeqCst) {
                assert_eq!(world.poll(), Ok(()));
            }
            let begun = Instant::now();
            (world.finish(), begun.elapsed())
        });
        let (mut node, channel) = caller(&settings);
        // It comes, meets the other, has finished, and hears nothing any more.
        node.call(channel, HELLO, &hello(&settings), PATIENCE).expect("it is let in");
        node.call(channel, ARRIVE, &[0], PATIENCE).expect("it is heard");
        node.call(channel, BYE, &[], PATIENCE).expect("it is heard");
        go.store(true, Ordering::SeqCst);
        let (end, took) = first.join().expect("no panic");
        assert_eq!(end, Ok(()));
        assert!(took < Duration::from_secs(2), "{took:?}");
        drop(node);
    });
}

/// A rank whose channel had ended before it was met was taken for one that is there, and everything that was asked of
/// it for late.
#[test]
fn a_rank_that_is_gone_at_once_is_not_waited_for() {
    std::thread::scope(|scope| {
        for round in 0..8 {
            scope.spawn(move || {
                let (deadline, start) = (Duration::from_secs(3), Duration::from_secs(2));
                let settings = Settings { deadline, start, ..at_files(&format!("gone-{round}"), 2) };
                let its = settings.clone();
                let first = std::thread::spawn(move || World::join(&its).and_then(|mut world| world.barrier()));
                let (mut node, channel) = caller(&settings);
                node.request(channel, HELLO, &hello(&settings)).expect("room");
                drop(node);
                let end = first.join().expect("no panic");
                assert!(matches!(end, Err(Error::Absent { .. } | Error::Lost { rank: 1, .. })), "{end:?}");
            });
        }
    });
}

/// Every letter was kept for ever that a rank sent for operations of its own making.
#[test]
fn letters_for_operations_that_are_far_off_are_refused() {
    const LETTER: u16 = 6;
    let settings = at_files("letters", 2);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let mut world = World::join(&settings).expect("the other one");
            while !done.load(Ordering::SeqCst) {
                assert_eq!(world.poll(), Ok(()));
            }
        });
        let (mut node, channel) = caller(&settings);
        node.call(channel, HELLO, &hello(&settings), PATIENCE).expect("it is let in");
        let refused = Err(CallError::Failed(Failure::Refused));
        let mut letter = |number, high| {
            let answer = node.call(channel, LETTER, &[number, high, 8, 0, 7], PATIENCE);
            answer.map(drop).map_err(CallError::from)
        };
        // As many as there are operations until all ranks meet; the whole of each has come with two.
        for _ in 0..2 {
            assert!((0..16).all(|number| letter(number, 0) == Ok(())));
        }
        assert!((0..300).all(|number| letter(number, 0) == refused && letter(number, 1) == refused));
        done.store(true, Ordering::SeqCst);
        first.join().expect("no panic");
    });
}

/// A rank that had asked for bytes waited until its deadline, though it was answered.
#[test]
fn an_answer_without_the_bytes_is_no_answer() {
    const LETTER: u16 = 6;
    const READS: [u16; 2] = [2, 11];
    let settings = Settings { deadline: PATIENCE, ..at_files("empty", 2) };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let mut world = World::join(&settings)?;
            let here = world.alloc::<u64>(1)?;
            world.read(here.on(1))
        });
        let (mut node, channel) = caller(&settings);
        for handler in [LETTER].into_iter().chain(READS) {
            node.short(handler, am::Args::Any, |request| request.reply(&[]));
        }
        node.call(channel, HELLO, &hello(&settings), PATIENCE).expect("it is let in");
        // Its part in making the array: where that ends, as the greatest and as the least.
        let ends = [8, 0, !8, u32::MAX];
        node.call(channel, LETTER, &[&[1, 0, 16, 0], &ends[..]].concat(), PATIENCE).expect("it is heard");
        while !first.is_finished() {
            let _ = node.wait(Some(Duration::from_millis(1)));
        }
        let end = first.join().expect("no panic");
        assert!(matches!(end, Err(Error::Broken { rank: 1, .. })), "{end:?}");
    });
}
