//! Waiting for room: it comes, its wait ends with the channel, and nothing that happens meanwhile is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{AsyncEndpoint, Channel, CloseReason, Counter, Endpoint, Event, Fence, RoomError, SendError};

use super::waiting::pause;
use super::{beside_tokio, config, in_time};
use crate::join::PATIENCE;
use crate::{Join, Pair, Side};

/// Messages of a test, many times as many as there is room for.
pub(super) const MESSAGES: u64 = 4000;
/// Messages that go the other way meanwhile: one for so many.
pub(super) const ANSWERED: u64 = 10;

/// Sends until there is no more room: how many there were.
pub(super) fn fill(side: &mut Side) -> u64 {
    let mut sent = 0_u64;
    loop {
        match side.endpoint.send(side.channel, &sent.to_le_bytes()) {
            Ok(()) => sent += 1,
            Err(error) => {
                assert_eq!(error, SendError::Full);
                return sent;
            }
        }
    }
}

/// Waits for room where there is none: how that ends. On a wire that loses what tells of it, some may come late; it is
/// used up then.
fn wait_in_vain(side: &mut Side, timeout: Option<Duration>) -> RoomError {
    let begun = Instant::now();
    loop {
        if let Err(ended) = side.endpoint.wait_for_room(side.channel, timeout) {
            return ended;
        }
        assert!(begun.elapsed() < PATIENCE, "there is always room");
        let mut sent = 0_u64;
        let error = loop {
            match side.endpoint.send(side.channel, &sent.to_le_bytes()) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        assert!(sent > 0 || error != SendError::Full, "there was no room");
    }
}

/// Waits until there is room. It would be found at the end of the time, too, though nobody had rung for it.
fn wait_for_room(side: &mut Side) {
    let begun = Instant::now();
    side.endpoint.wait_for_room(side.channel, Some(PATIENCE)).expect("room");
    assert!(begun.elapsed() < PATIENCE, "there is room, and nobody said so");
}

/// Sends a numbered message, and waits for room if there is none.
fn say(side: &mut Side, number: u64) {
    while let Err(error) = side.endpoint.send(side.channel, &number.to_le_bytes()) {
        assert_eq!(error, SendError::Full, "message {number}");
        wait_for_room(side);
    }
}

/// Takes so many messages, one by one, with pauses of all lengths, and answers some.
pub(super) fn take_slowly(side: &mut Side, count: u64) {
    for number in 0..count {
        assert_eq!(side.message().control(), number.to_le_bytes());
        pause(number);
        if number.is_multiple_of(ANSWERED) {
            side.say(&(number / ANSWERED).to_le_bytes());
        }
    }
}

/// Whoever waits for room has it when the receiver has taken some messages, however its sleep falls in between; what
/// comes meanwhile is there afterwards.
pub fn room_comes_when_the_receiver_takes(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    pair.both(
        |a| {
            (0..MESSAGES).for_each(|number| say(a, number));
            for number in 0..MESSAGES / ANSWERED {
                assert_eq!(a.message().control(), number.to_le_bytes());
            }
        },
        |b| take_slowly(b, MESSAGES),
    );
}

/// Sends to somebody who takes so many messages slowly, in a runtime beside that.
pub(super) fn beside_who_takes_slowly(join: &dyn Join, send: impl AsyncFnOnce(AsyncEndpoint, Channel)) {
    let Pair { a, mut b, .. } = join.pair(config(), config());
    beside_tokio(
        |_| {
            take_slowly(&mut b, MESSAGES);
            assert_eq!(b.closed(), CloseReason::Peer);
        },
        async { send(AsyncEndpoint::new(a.endpoint).expect("an endpoint in a runtime"), a.channel).await },
    );
}

/// The same in tokio, with waits that are given up in between.
pub fn room_is_awaited_in_tokio(join: &dyn Join) {
    beside_who_takes_slowly(join, async |mut a, channel| {
        for number in 0..MESSAGES {
            while let Err(error) = a.send(channel, &number.to_le_bytes()) {
                assert_eq!(error, SendError::Full, "message {number}");
                let briefly = Duration::from_micros(number % 7 * 20);
                if let Ok(room) = tokio::time::timeout(briefly, a.room(channel)).await {
                    room.expect("room");
                } else {
                    in_time(a.room(channel)).await.expect("room");
                }
            }
        }
        for number in 0..MESSAGES / ANSWERED {
            match in_time(a.next()).await.expect("an event") {
                Event::Message(message) => assert_eq!(message.control(), number.to_le_bytes()),
                other => panic!("instead of a message: {other:?}"),
            }
        }
    });
}

/// Who awaits room keeps no other task of its thread waiting, whether there is none or always some.
pub fn a_wait_for_room_in_tokio_keeps_no_other_task_waiting(join: &dyn Join) {
    let Pair { mut a, mut b, .. } = join.pair(config(), config());
    let (go_on, told) = channel();
    beside_tokio(
        move |_| {
            told.recv_timeout(PATIENCE).expect("the task beside the sender runs");
            while !matches!(b.event(), Event::Closed(..)) {}
        },
        async {
            fill(&mut a);
            let channel = a.channel;
            let mut a = AsyncEndpoint::new(a.endpoint).expect("an endpoint in a runtime");
            tokio::spawn(async move {
                // Until the sender sleeps.
                tokio::time::sleep(Duration::from_millis(20)).await;
                go_on.send(()).expect("the receiver waits for it");
            });
            in_time(a.room(channel)).await.expect("room");
            let ran = Arc::new(AtomicBool::new(false));
            let its = Arc::clone(&ran);
            tokio::spawn(async move { its.store(true, Ordering::Relaxed) });
            for _ in 0..1000 {
                in_time(a.room(channel)).await.expect("room");
            }
            assert!(ran.load(Ordering::Relaxed), "a thousand rooms were told before another task had its turn");
        },
    );
}

/// Two that send much to each other, and receive only when they are done, wait for each other's room and go on.
pub fn two_that_wait_for_room_go_on(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let talk = |side: &mut Side| {
        (0..MESSAGES).for_each(|number| say(side, number));
        for number in 0..MESSAGES {
            assert_eq!(side.message().control(), number.to_le_bytes());
        }
    };
    pair.both(talk, talk);
}

/// Who waits for room does not take in without end what comes meanwhile: then its sender has no more room either, until
/// one of them takes what it has.
pub fn who_waits_for_room_holds_others_up_in_the_end(join: &dyn Join) {
    // Those that are set aside, and what is on its way or taken before the next look.
    const MOST: u64 = 16_384 + 1024;
    let mut pair = join.pair(config(), config());
    let held = fill(&mut pair.a);
    let (all, told) = channel();
    pair.both(
        move |a| {
            wait_for_room(a);
            let sent: u64 = told.recv_timeout(PATIENCE).expect("a number");
            for number in 0..sent {
                assert_eq!(a.message().control(), number.to_le_bytes());
            }
        },
        move |b| {
            let (mut sent, mut since) = (0_u64, Instant::now());
            while since.elapsed() < Duration::from_millis(300) {
                match b.endpoint.send(b.channel, &sent.to_le_bytes()) {
                    Ok(()) => (sent, since) = (sent + 1, Instant::now()),
                    Err(error) => {
                        assert_eq!(error, SendError::Full);
                        thread::yield_now();
                    }
                }
                assert!(sent <= MOST, "it takes in whatever comes");
            }
            all.send(sent).expect("the other side wants to know");
            for number in 0..held {
                assert_eq!(b.message().control(), number.to_le_bytes());
            }
        },
    );
}

/// Who waits for room sleeps while there is none.
pub fn a_wait_for_room_sleeps(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let sent = fill(&mut pair.a);
    let (go_on, told) = channel::<()>();
    let wire = join.crosses_wire();
    pair.both(
        move |a| {
            let before = a.endpoint.counter(Counter::Sleeps);
            let waited = a.endpoint.wait_for_room(a.channel, Some(Duration::from_millis(100)));
            assert_eq!(waited, Err(RoomError::TimedOut));
            let slept = a.endpoint.counter(Counter::Sleeps) - before;
            assert!(slept > 0, "it looks all the time");
            if !wire && a.endpoint.fence() != Fence::None {
                assert!(slept <= 3, "woken {slept} times for nothing");
            }
            drop(go_on);
            wait_for_room(a);
        },
        move |b| {
            assert!(told.recv_timeout(PATIENCE).is_err());
            (0..sent).for_each(|_| drop(b.message()));
        },
    );
}

/// A wait for room ends in time, by a waker, and with the channel; then that is told as it always is.
pub fn a_wait_for_room_ends(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let room =
        |endpoint: &mut Endpoint, channel, millis| endpoint.wait_for_room(channel, Some(Duration::from_millis(millis)));
    assert_eq!(room(&mut pair.a.endpoint, pair.a.channel, 0), Ok(()), "there is room at once");
    fill(&mut pair.a);
    for millis in [0, 1, 30] {
        let begun = Instant::now();
        assert_eq!(wait_in_vain(&mut pair.a, Some(Duration::from_millis(millis))), RoomError::TimedOut);
        assert!(begun.elapsed() >= Duration::from_millis(millis) && begun.elapsed() < PATIENCE);
    }
    let waker = pair.a.endpoint.waker();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(5));
            waker.wake();
        });
        assert_eq!(wait_in_vain(&mut pair.a, None), RoomError::Woken);
    });
    let Pair { mut a, b, .. } = pair;
    let ending = thread::scope(|scope| {
        scope.spawn(|| {
            // Until the other side sleeps.
            thread::sleep(Duration::from_millis(20));
            drop(b);
        });
        wait_in_vain(&mut a, Some(PATIENCE))
    });
    assert_eq!(ending, RoomError::Closed(CloseReason::Peer));
    assert_eq!(a.closed(), CloseReason::Peer);
    assert_eq!(room(&mut a.endpoint, a.channel, 0), Err(RoomError::Closed(CloseReason::Peer)));
}
