//! Waiting: it ends, and nothing that happens is missed.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{AsyncEndpoint, Config, Counter, Event, Incoming, SendError, WaitError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{beside_tokio, config, in_time};
use crate::bytes::pattern;
use crate::join::PATIENCE;
use crate::{Capability, Join, Pair, Side};

/// Messages of a test for lost wake-ups.
const MESSAGES: u64 = 20_000;
/// Messages in a row between which there is no sleep, and then sleep.
const STRETCH: u64 = 64;
/// Sleeps after such stretches.
const ROUNDS: usize = 40;

/// Waiting ends when its time is over, not before and not for ever.
pub fn waiting_ends_in_time(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    for millis in [0, 1, 30] {
        let timeout = Duration::from_millis(millis);
        let begun = Instant::now();
        assert!(matches!(pair.a.endpoint.wait(Some(timeout)), Err(WaitError::TimedOut)));
        assert!(begun.elapsed() >= timeout && begun.elapsed() < PATIENCE);
    }
    pair.b.say(b"there");
    assert!(matches!(pair.a.endpoint.wait(Some(PATIENCE)), Ok(Event::Message(_))));
}

/// A wait that has no end ends when another thread says so: the one that is under way, or else the next one.
pub fn a_waker_ends_a_wait(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let waker = pair.b.endpoint.waker();
    for round in 0..20 {
        thread::scope(|scope| {
            let waker = waker.clone();
            scope.spawn(move || {
                // In every other round until the other side sleeps.
                thread::sleep(Duration::from_millis(round % 2 * 3));
                waker.wake();
            });
            let woken = pair.b.endpoint.wait(None);
            assert!(matches!(woken, Err(WaitError::Woken)), "{woken:?}");
        });
    }
    waker.wake();
    waker.wake();
    assert!(matches!(pair.b.endpoint.wait(Some(PATIENCE)), Err(WaitError::Woken)));
    assert!(matches!(pair.b.endpoint.wait(Some(Duration::from_millis(1))), Err(WaitError::TimedOut)));
    // What comes is not lost, nor does it keep a wait from ending.
    pair.a.say(b"there");
    waker.wake();
    assert!(matches!(pair.b.endpoint.wait(Some(PATIENCE)), Err(WaitError::Woken)));
    assert_eq!(pair.b.message().control(), b"there");
    // Who sleeps elsewhere is woken, too.
    while !pair.b.endpoint.arm() {
        assert!(pair.b.endpoint.poll().is_none());
    }
    waker.wake();
    sleep_on(&pair.b, 1);
    drop(pair.b);
    waker.wake();
}

/// Pauses of every length from none to longer than anybody spins, in no order.
pub(super) fn pause(number: u64) {
    match pattern(number, 1)[0] {
        0..=127 => {}
        byte @ 128..=250 => {
            let begun = Instant::now();
            let length = Duration::from_nanos(u64::from(byte - 128) * 1000);
            while begun.elapsed() < length {
                std::hint::spin_loop();
            }
        }
        byte => thread::sleep(Duration::from_micros(u64::from(byte - 250) * 60)),
    }
}

/// Sends numbered messages with pauses of all lengths between them.
fn speak(side: &mut Side) {
    for number in 0..MESSAGES {
        pause(number);
        side.say(&number.to_le_bytes());
    }
}

/// Poll until there is nothing, arm, sleep on the file descriptor: no message is missed, however it falls in between;
/// nor after stretches without sleep, in which nobody has to be woken.
pub fn no_wake_up_is_lost_in_epoll(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    pair.both(speak, |b| {
        let mut expected = 0u64;
        while expected < MESSAGES {
            if let Some(event) = b.endpoint.poll() {
                match event {
                    Event::Message(message) => assert_eq!(message.control(), expected.to_le_bytes()),
                    other => panic!("{other:?}"),
                }
                expected += 1;
            } else if expected / STRETCH % 2 == 1 && b.endpoint.arm() {
                sleep_on(b, expected);
            }
        }
    });
}

/// Sleeps until the endpoint's file descriptor is readable.
fn sleep_on(side: &Side, expected: u64) {
    assert!(is_readable(side, PATIENCE), "nobody rang for message {expected}");
}

/// Who sleeps after a long stretch without sleep is woken by what comes, and not by a timer that happens to go off.
pub fn who_has_not_slept_for_long_is_woken_at_once(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let mut woken = 0;
    for round in 0..ROUNDS {
        for number in 0..STRETCH {
            pair.a.say(&number.to_le_bytes());
            let message = loop {
                match pair.b.endpoint.poll() {
                    Some(Event::Message(message)) => break message,
                    Some(other) => panic!("{other:?}"),
                    // What waits for company goes on, too.
                    None => assert!(pair.a.endpoint.poll().is_none()),
                }
            };
            assert_eq!(message.control(), number.to_le_bytes(), "round {round}");
        }
        while !pair.b.endpoint.arm() {
            assert!(pair.b.endpoint.poll().is_none());
        }
        pair.a.say(b"wake up");
        pair.a.endpoint.flush();
        // The kernel has brought it by now, or nearly so; those who look after a sleeper come by less often.
        woken += usize::from(is_readable(&pair.b, Duration::from_millis(2)));
        assert_eq!(pair.b.message().control(), b"wake up");
    }
    assert!(woken > ROUNDS / 2, "woken at once in {woken} rounds of {ROUNDS}");
}

fn is_readable(side: &Side, within: Duration) -> bool {
    let file = side.endpoint.as_fd();
    let timeout = Timespec::try_from(within).expect("a short time");
    poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&timeout)).expect("poll") == 1
}

/// The same through tokio.
pub fn no_wake_up_is_lost_in_tokio(join: &dyn Join) {
    let pair = join.pair(config(), config());
    let (mut a, b) = (pair.a, pair.b);
    let speaker = thread::spawn(move || {
        speak(&mut a);
        a
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().expect("a runtime");
    runtime.block_on(async move {
        let mut endpoint = AsyncEndpoint::new(b.endpoint).expect("an endpoint in a runtime");
        for expected in 0..MESSAGES {
            match in_time(endpoint.next()).await.expect("an event") {
                Event::Message(message) => assert_eq!(message.control(), expected.to_le_bytes()),
                other => panic!("{other:?}"),
            }
        }
    });
    drop(speaker.join().expect("the speaker"));
}

/// A peer that sends without end keeps no other task of its reader's thread waiting. What comes is told in order, also
/// where waits for it are given up.
pub fn a_flood_keeps_no_other_task_waiting(join: &dyn Join) {
    let roomy = || Config { slots: 1024, ..config() };
    let Pair { a, mut b, .. } = join.pair(roomy(), roomy());
    beside_tokio(
        |over| {
            let mut number = 0_u64;
            while !over.load(Ordering::Relaxed) {
                match b.endpoint.send(b.channel, &number.to_le_bytes()) {
                    Ok(()) => number += 1,
                    Err(SendError::Full) => drop(b.endpoint.wait(Some(Duration::from_millis(1)))),
                    Err(_) => return,
                }
            }
        },
        async {
            // By then the sender has no more room.
            thread::sleep(Duration::from_millis(20));
            let mut a = AsyncEndpoint::new(a.endpoint).expect("an endpoint in a runtime");
            let check = |event: std::io::Result<Event>, number: u64| match event.expect("an event") {
                Event::Message(message) => assert_eq!(message.control(), number.to_le_bytes()),
                other => panic!("instead of message {number}: {other:?}"),
            };
            let (ran, mut number) = (Arc::new(AtomicBool::new(false)), 0);
            let its = Arc::clone(&ran);
            tokio::spawn(async move { its.store(true, Ordering::Relaxed) });
            while !ran.load(Ordering::Relaxed) && number < MESSAGES {
                check(in_time(a.next()).await, number);
                number += 1;
            }
            assert!(number <= 100, "{number} messages were told before another task had its turn");
            for number in number..number + 1000 {
                let at_once = std::pin::pin!(a.next()).poll(&mut Context::from_waker(Waker::noop()));
                let event = match at_once {
                    Poll::Ready(event) => event,
                    Poll::Pending => in_time(a.next()).await,
                };
                check(event, number);
            }
        },
    );
}

/// A wait in the middle of a payload does not use up the wake-ups of the endpoint: waiting for ever afterwards works.
pub fn no_wake_up_is_lost_by_a_wait_in_between(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    pair.both(
        |a| {
            for number in 0..200u64 {
                // Armed by a wait that ends without an event; then a send that sleeps in the middle.
                let _ = a.endpoint.wait(Some(Duration::from_micros(300)));
                a.send_copy(b"large", &pattern(number, 300_000), None);
                assert_eq!(a.message().control(), b"done");
            }
        },
        |b| {
            for number in 0..200u64 {
                let mut message = b.message();
                thread::sleep(Duration::from_micros(300));
                b.read_checked(&mut message, number);
                thread::sleep(Duration::from_micros(400));
                b.say(b"done");
            }
        },
    );
}

/// A sleeper that waits for its pages is woken by their release, and not before there is something to wake it for.
pub fn returned_pages_wake_a_sleeper(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let mut pair = join.pair(config(), config());
    pair.both(
        |a| {
            for cookie in 0..100 {
                let page = a.endpoint.page(a.channel, 4096).expect("a page");
                a.endpoint.outgoing(a.channel).expect("a slot").attach(page).track(cookie).send().expect("sent");
                assert_eq!(a.completed(), cookie);
            }
        },
        |b| {
            let mut next = None;
            for _ in 0..100 {
                let message = next.take().unwrap_or_else(|| b.message());
                thread::sleep(Duration::from_micros(300));
                drop(message);
                // Who is woken by that may have answered before it is over.
                next = b.endpoint.poll().map(|event| match event {
                    Event::Message(message) => message,
                    other => panic!("instead of a message: {other:?}"),
                });
            }
        },
    );
    // A page that stays lent does not make its owner ring for ever.
    let page = pair.a.endpoint.page(pair.a.channel, 4096).expect("a page");
    pair.a.endpoint.outgoing(pair.a.channel).expect("a slot").attach(page).send().expect("sent");
    let held = pair.b.message();
    assert!(pair.b.endpoint.arm() || pair.b.endpoint.poll().is_none());
    let rung = pair.a.endpoint.counter(Counter::WakesSent);
    for _ in 0..10_000 {
        assert!(pair.a.endpoint.poll().is_none());
    }
    assert_eq!(pair.a.endpoint.counter(Counter::WakesSent), rung);
    drop(held);
}

/// Polling, arming and polling again finds what the peer has returned, whichever poll it is that asks for it.
pub fn returned_pages_are_not_slept_over(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let mut pair = join.pair(config(), config());
    for cookie in 0..32 {
        let page = pair.a.endpoint.page(pair.a.channel, 4096).expect("a page");
        pair.a.endpoint.outgoing(pair.a.channel).expect("a slot").attach(page).track(cookie).send().expect("sent");
        drop(pair.b.message());
        // The pages go back, and nobody sleeps who would have to be rung for.
        (0..40).for_each(|_| drop(pair.b.endpoint.poll()));
        let mut event = (0..cookie % 16).find_map(|_| pair.a.endpoint.poll());
        for _ in 0..40 {
            event = event.or_else(|| pair.a.endpoint.poll());
            match event {
                Some(Event::Completed(completion)) => {
                    assert_eq!(completion.cookie, cookie);
                    break;
                }
                None => assert!(!pair.a.endpoint.arm(), "{cookie} has completed, and nobody rings for it again"),
                Some(other) => panic!("{other:?}"),
            }
        }
        assert!(event.is_some(), "{cookie} never completes");
    }
}

/// Messages of a page each: more than twice as many as can go back at a time.
const LENT: u64 = 10_000;

/// Lends a page with each of so many messages, the last one tracked, all held by `b`.
fn lend(pair: &mut Pair, tracked: bool) -> Vec<Incoming> {
    let lend = |number| {
        let page = pair.a.endpoint.page(pair.a.channel, 4096).expect("a page");
        let mut outgoing = pair.a.endpoint.outgoing(pair.a.channel).expect("a slot").attach(page);
        if tracked && number == LENT - 1 {
            outgoing = outgoing.track(number);
        }
        outgoing.send().expect("sent");
        pair.b.message()
    };
    (0..LENT).map(lend).collect()
}

/// Pages of thousands of messages that are dropped at once go back in parts, while both sides only wait.
pub fn thousands_of_pages_go_back_while_both_sides_sleep(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let mut pair = join.pair(config(), config());
    let held = lend(&mut pair, true);
    pair.both(
        |a| {
            // Until the other side sleeps.
            thread::sleep(Duration::from_millis(5));
            assert_eq!(a.completed(), LENT - 1);
            a.say(b"all came back");
        },
        |b| {
            drop(held);
            assert_eq!(b.message().control(), b"all came back");
        },
    );
    // The same for an owner that is not waiting for any of them, and asks once.
    let held = lend(&mut pair, false);
    let rest = |side: &mut Side| {
        let nothing = side.endpoint.wait(Some(Duration::from_millis(100)));
        assert!(matches!(nothing, Err(WaitError::TimedOut)), "{nothing:?}");
    };
    pair.both(rest, |b| {
        drop(held);
        rest(b);
    });
    let pool = usize::try_from(config().pool_bytes).expect("it is mapped");
    assert!(pair.a.endpoint.page(pair.a.channel, pool).is_ok(), "the whole pool is there again");
}

/// Who holds pages back for want of room sleeps while there is none, does not sleep while there is some, and is woken
/// when there is.
pub fn pages_held_back_are_not_slept_over(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let mut pair = join.pair(config(), config());
    drop(lend(&mut pair, false));
    let look = |side: &mut Side| (0..40).for_each(|_| assert!(side.endpoint.poll().is_none()));
    look(&mut pair.b);
    // The first time is for what was dropped.
    let _ = pair.b.endpoint.arm();
    look(&mut pair.b);
    assert!(pair.b.endpoint.arm(), "nothing can be done for want of room");
    pair.a.endpoint.page(pair.a.channel, 4096).expect("some have come back");
    sleep_on(&pair.b, 0);
    look(&mut pair.b);
    pair.a.endpoint.page(pair.a.channel, 4096).expect("some have come back");
    assert!(!pair.b.endpoint.arm(), "there is room for the rest");
    look(&mut pair.b);
    // Whoever holds nothing back is not woken for room.
    assert!(pair.b.endpoint.arm());
    let rung = pair.a.endpoint.counter(Counter::WakesSent);
    let pool = usize::try_from(config().pool_bytes).expect("it is mapped");
    assert!(pair.a.endpoint.page(pair.a.channel, pool).is_ok(), "the whole pool is there again");
    assert_eq!(pair.a.endpoint.counter(Counter::WakesSent), rung);
}

/// What was given back by name goes back although its endpoint sleeps next, and although it was ready to sleep before.
pub fn what_is_released_is_not_slept_over(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    let mut pair = join.pair(config(), config());
    let lend = |a: &mut Side, cookie| {
        let page = a.endpoint.page(a.channel, 4096).expect("a page");
        a.endpoint.outgoing(a.channel).expect("a slot").attach(page).track(cookie).send().expect("sent");
    };
    pair.both(
        |a| {
            for cookie in 0..100 {
                lend(a, cookie);
                assert_eq!(a.completed(), cookie);
                a.say(b"it came back");
            }
        },
        |b| {
            for _ in 0..100 {
                let message = b.message();
                b.endpoint.release(message);
                assert_eq!(b.message().control(), b"it came back");
            }
        },
    );
    for cookie in 0..10 {
        lend(&mut pair.a, cookie);
        let message = pair.b.message();
        while !pair.b.endpoint.arm() {
            assert!(pair.b.endpoint.poll().is_none());
        }
        pair.b.endpoint.release(message);
        sleep_on(&pair.b, 0);
        assert!(pair.b.endpoint.poll().is_none());
        assert_eq!(pair.a.completed(), cookie);
    }
}

/// A payload that another thread drops while its endpoint sleeps goes back to its sender all the same.
pub fn a_payload_dropped_elsewhere_goes_back(join: &dyn Join) {
    if join.skips(Capability::SharedPages) {
        return;
    }
    const ROUNDS: u64 = 20;
    let mut pair = join.pair(config(), config());
    pair.both(
        |a| {
            for cookie in 0..ROUNDS {
                let page = a.endpoint.page(a.channel, 4096).expect("a page");
                a.endpoint.outgoing(a.channel).expect("a slot").attach(page).track(cookie).send().expect("sent");
                assert_eq!(a.completed(), cookie);
            }
            a.say(b"all came back");
        },
        |b| {
            thread::scope(|scope| {
                for _ in 0..ROUNDS {
                    let message = b.message();
                    scope.spawn(move || {
                        thread::sleep(Duration::from_millis(20));
                        drop(message);
                    });
                }
                assert_eq!(b.message().control(), b"all came back");
            });
        },
    );
}
