//! What is posted is taken back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{CloseReason, Config, Endpoint, Landing, Path, Payload};

use super::config;
use crate::bytes::{check, pattern};
use crate::join::{PATIENCE, keep_house, landed};
use crate::random::Random;
use crate::{Join, Side};

/// Settings with so many landing pages.
fn with_pages(pages: u64) -> Config {
    Config { landing_bytes: pages * 4096, ..config() }
}

/// Takes everything back, while the other side looks after its endpoint.
fn recall(side: &mut Side, other: &mut Endpoint) {
    let begun = Instant::now();
    while side.endpoint.recall(side.channel).expect("an open channel") > 0 {
        assert!(begun.elapsed() < PATIENCE, "some are still out");
        assert!(other.poll().is_none() && side.endpoint.poll().is_none());
    }
}

/// Taken back, the pages are free for other use, and nothing lands in them; those of a payload are when that is
/// released. What is posted later is a free queue as before.
pub fn what_is_posted_is_taken_back(join: &dyn Join) {
    let mut pair = join.pair(config(), with_pages(4));
    assert_eq!(pair.b.endpoint.recall(pair.b.channel), Ok(0), "nothing is posted");
    for round in 0..3 {
        assert_eq!(pair.b.endpoint.post(pair.b.channel, 4096, 4), Ok(4));
        assert_eq!(pair.a.send_copy(b"", &pattern(round, 4000), None).path, pair.path(Path::Put));
        let message = pair.b.message();
        assert!(pair.b.endpoint.post(pair.b.channel, 4096, 1).is_err(), "all pages are posted");
        recall(&mut pair.b, &mut pair.a.endpoint);
        // One is held.
        let token = pair.b.endpoint.grant(pair.b.channel, Landing::Pages(3 * 4096)).expect("three pages are free");
        pair.a.send_copy(b"", &pattern(round, 3 * 4096), Some(token));
        check(round, &landed(&pair.b.message()).to_vec());
        pair.a.send_copy(b"", &pattern(round, 5000), None);
        let mut arriving = pair.b.message();
        assert!(matches!(arriving.payload(), Payload::Arriving(_)), "nothing is posted: {arriving:?}");
        pair.b.read_checked(&mut arriving, round);
        check(round, &landed(&message).to_vec());
        drop(message);
        assert!(pair.b.endpoint.poll().is_none());
        let token = pair.b.endpoint.grant(pair.b.channel, Landing::Pages(4 * 4096)).expect("it is not posted again");
        pair.b.endpoint.revoke(pair.b.channel, token).expect("revoked");
    }
}

/// More runs are posted and taken back than there are numbers for them.
pub fn numbers_of_what_was_posted_come_back(join: &dyn Join) {
    let mut pair = join.pair(config(), with_pages(1000));
    for round in 0..6 {
        assert_eq!(pair.b.endpoint.post(pair.b.channel, 4096, 1000), Ok(1000), "round {round}");
        for number in 0..10 {
            assert_eq!(pair.a.send_copy(b"", &pattern(number, 4096), None).path, pair.path(Path::Put));
            check(number, &landed(&pair.b.message()).to_vec());
        }
        recall(&mut pair.b, &mut pair.a.endpoint);
    }
}

/// Who sleeps is woken for it, or finds it before it sleeps; it is asked once each time.
pub fn who_sleeps_gives_back_what_was_posted(join: &dyn Join) {
    let mut pair = join.pair(config(), with_pages(1));
    pair.both(
        |a| assert_eq!(a.message().control(), b"over"),
        |b| {
            for round in 0..300 {
                assert_eq!(b.endpoint.post(b.channel, 4096, 1), Ok(1), "round {round}");
                b.endpoint.recall(b.channel).expect("an open channel");
                let begun = Instant::now();
                let token = loop {
                    if let Ok(token) = b.endpoint.grant(b.channel, Landing::Pages(4096)) {
                        break token;
                    }
                    assert!(begun.elapsed() < PATIENCE, "round {round}: nobody gives it back");
                    assert!(b.endpoint.poll().is_none());
                };
                b.endpoint.revoke(b.channel, token).expect("revoked");
                if round % 50 == 0 {
                    thread::sleep(Duration::from_millis(25));
                }
            }
            b.say(b"over");
        },
    );
}

/// Who holds on to them, because it looks at nothing, keeps the rest of the channel going; and with the channel they
/// are gone.
pub fn who_holds_on_to_what_was_posted_keeps_nobody(join: &dyn Join) {
    let mut pair = join.pair(config(), with_pages(4));
    assert_eq!(pair.b.endpoint.post(pair.b.channel, 4096, 3), Ok(3));
    // The first one knows of them.
    assert_eq!(pair.a.send_copy(b"", &pattern(1, 10), None).path, pair.path(Path::Put));
    drop(pair.b.message());
    let out = if pair.wire { 0 } else { 3 };
    keep_house(&mut pair.b.endpoint, |event| panic!("{event:?}"));
    assert_eq!(pair.b.endpoint.recall(pair.b.channel), Ok(out));
    keep_house(&mut pair.b.endpoint, |event| panic!("{event:?}"));
    assert_eq!(pair.b.endpoint.recall(pair.b.channel), Ok(out));
    // It may still fill one that it has.
    pair.a.send_copy(b"", &pattern(2, 100), None);
    let mut message = pair.b.message();
    pair.b.read_checked(&mut message, 2);
    drop(message);
    assert_eq!(pair.b.endpoint.recall(pair.b.channel), Ok(out.saturating_sub(1)));
    pair.b.endpoint.post(pair.b.channel, 4096, 1).expect("a free page");
    drop(pair.a);
    assert_eq!(pair.b.closed(), CloseReason::Peer);
    assert!(pair.b.endpoint.recall(pair.b.channel).is_err());
}

/// Whenever runs are taken back while the other side sends, every payload is whole, and in the end
/// all pages are there.
pub fn what_is_posted_is_taken_back_beneath_a_stream(join: &dyn Join) {
    const PAGES: u64 = 32;
    const COUNT: u64 = 400;
    let mut pair = join.pair(config(), with_pages(PAGES));
    let over = AtomicBool::new(false);
    pair.both(
        |a| {
            for number in 0..COUNT {
                let len = usize::try_from(number * 37 % 9000).unwrap_or(0);
                a.send_copy(&number.to_le_bytes(), &pattern(number, len), None);
                if number % 16 == 0 {
                    keep_house(&mut a.endpoint, |event| panic!("{event:?}"));
                }
            }
            while !over.load(Ordering::Relaxed) {
                assert!(a.endpoint.poll().is_none());
            }
        },
        |b| {
            let (mut dice, mut held) = (Random(5), Vec::new());
            for number in 0..COUNT {
                let mut message = b.message();
                assert_eq!(message.control(), number.to_le_bytes());
                b.read_checked(&mut message, number);
                held.push((number, message));
                match dice.below(8) {
                    0 => _ = b.endpoint.post(b.channel, 4096, 4),
                    1 => _ = b.endpoint.recall(b.channel).expect("an open channel"),
                    2..=4 => held.clear(),
                    _ => {}
                }
                if held.len() > 8 {
                    held.clear();
                }
            }
            held.clear();
            let begun = Instant::now();
            while b.endpoint.recall(b.channel).expect("an open channel") > 0 {
                assert!(begun.elapsed() < PATIENCE, "some are still out");
                assert!(b.endpoint.poll().is_none());
            }
            b.endpoint.grant(b.channel, Landing::Pages(usize::try_from(PAGES).unwrap_or(0) * 4096)).expect("all pages");
            over.store(true, Ordering::Relaxed);
        },
    );
}
