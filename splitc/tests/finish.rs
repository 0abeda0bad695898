//! How a rank ends its part, where others do not come, or do not listen any more.
#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cutthrough::{Channel, Config, Endpoint, am};
use cutthrough_splitc::{Error, Settings, World};

/// Shorter than a rank waits for others to hear of its end.
const DEADLINE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);
/// The handler that lets a rank in.
const HELLO: u16 = 1;

/// Ranks that find each other by files.
fn at_files(job: &str, size: u32) -> Settings {
    let job = format!("{job}-{}", std::process::id());
    let addresses = vec![format!("shm:{}/splitc-{job}-{{rank}}.sock", std::env::temp_dir().display())];
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
