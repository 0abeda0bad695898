//! How a rank ends its part, where others do not come, or do not listen any more.
#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cutthrough::{Config, Endpoint, am};
use cutthrough_splitc::{Error, Settings, World};

/// Shorter than a rank waits for others to hear of its end.
const DEADLINE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);

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

/// Where all have finished, nobody is late who does not hear of it.
#[test]
fn a_rank_that_has_finished_need_not_hear_of_it() {
    const HELLO: u16 = 1;
    const ARRIVE: u16 = 5;
    const BYE: u16 = 7;
    let settings = at_files("deaf", 2);
    let hash = settings
        .job
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let address = settings.addresses[0].replace("{rank}", "0");
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
        let mut node = am::Node::new(Endpoint::open(Config::default()).expect("an endpoint"), am::Settings::default());
        let begun = Instant::now();
        let channel = loop {
            match node.connect(&address, PATIENCE) {
                Ok(channel) => break channel,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
            }
        };
        // It comes, meets the other, has finished, and hears nothing any more.
        node.call(channel, HELLO, &[2, 1, hash as u32, (hash >> 32) as u32], PATIENCE).expect("it is let in");
        node.call(channel, ARRIVE, &[0], PATIENCE).expect("it is heard");
        node.call(channel, BYE, &[], PATIENCE).expect("it is heard");
        go.store(true, Ordering::SeqCst);
        let (end, took) = first.join().expect("no panic");
        assert_eq!(end, Ok(()));
        assert!(took < Duration::from_secs(2), "{took:?}");
        drop(node);
    });
}
