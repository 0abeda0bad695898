//! Room that was asked for: it is told among other events, once, however whoever has asked waits.

use std::os::fd::AsFd as _;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{Channel, CloseReason, Counter, Endpoint, Event, Fence, RoomError, SendError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::room::{ANSWERED, MESSAGES, beside_who_takes_slowly, fill, take_slowly};
use super::{config, in_time};
use crate::join::{PATIENCE, connect};
use crate::{Join, Pair, Side};

/// What happens next, by each way of waiting in turn: it looks again and again, sleeps in a call, or on the file
/// descriptor.
fn next(endpoint: &mut Endpoint, way: u64) -> Event {
    let begun = Instant::now();
    match way % 3 {
        0 => loop {
            if let Some(event) = endpoint.poll() {
                return event;
            }
            assert!(begun.elapsed() < PATIENCE, "nothing happens");
        },
        1 => endpoint.wait(Some(PATIENCE)).expect("an event"),
        _ => loop {
            if let Some(event) = endpoint.poll() {
                return event;
            }
            if endpoint.arm() {
                let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
                let woken = poll(&mut [PollFd::new(&endpoint.as_fd(), PollFlags::IN)], Some(&timeout));
                assert_eq!(woken, Ok(1), "nobody rings");
            }
        },
    }
}

/// Sends a numbered message as soon as there is room; what comes meanwhile is an answer, with the number after that of
/// the one before.
fn say(side: &mut Side, number: u64, answers: &mut u64) {
    while let Err(error) = side.endpoint.send(side.channel, &number.to_le_bytes()) {
        assert_eq!(error, SendError::Full, "message {number}");
        side.endpoint.ask_for_room(side.channel).expect("an open channel");
        loop {
            match next(&mut side.endpoint, number) {
                Event::Room(channel) => break assert_eq!(channel, side.channel),
                other => answered(&other, answers),
            }
        }
    }
}

fn answered(event: &Event, answers: &mut u64) {
    match event {
        Event::Message(message) => assert_eq!(message.control(), answers.to_le_bytes()),
        other => panic!("instead of a message: {other:?}"),
    }
    *answers += 1;
}

/// Whoever asks for room is told of it when the receiver has taken some messages, in whatever way it waits, and of what
/// comes meanwhile in its order.
pub fn room_is_told_of_when_it_comes(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    pair.both(
        |a| {
            let mut answers = 0;
            (0..MESSAGES).for_each(|number| say(a, number, &mut answers));
            while answers < MESSAGES / ANSWERED {
                answered(&next(&mut a.endpoint, answers), &mut answers);
            }
        },
        |b| take_slowly(b, MESSAGES),
    );
}

/// The same in tokio, with waits that are given up in between.
pub fn room_is_told_of_in_tokio(join: &dyn Join) {
    beside_who_takes_slowly(join, async |mut a, channel| {
        let mut answers = 0;
        for number in 0..MESSAGES {
            while let Err(error) = a.send(channel, &number.to_le_bytes()) {
                assert_eq!(error, SendError::Full, "message {number}");
                a.ask_for_room(channel).expect("an open channel");
                let mut briefly = Some(Duration::from_micros(number % 7 * 20));
                loop {
                    let event = match briefly.take() {
                        Some(briefly) => match tokio::time::timeout(briefly, a.next()).await {
                            Ok(event) => event,
                            Err(_) => continue,
                        },
                        None => in_time(a.next()).await,
                    };
                    match event.expect("an event") {
                        Event::Room(of) => break assert_eq!(of, channel),
                        other => answered(&other, &mut answers),
                    }
                }
            }
        }
        while answers < MESSAGES / ANSWERED {
            answered(&in_time(a.next()).await.expect("an event"), &mut answers);
        }
    });
}

/// What `endpoint` says next of room; nothing else happens there.
fn told_of_room(endpoint: &mut Endpoint, way: u64) -> Channel {
    match next(endpoint, way) {
        Event::Room(channel) => channel,
        other => panic!("instead of room: {other:?}"),
    }
}

/// Nothing is told any more.
fn quiet(endpoint: &mut Endpoint) {
    let after = endpoint.wait(Some(Duration::from_millis(20)));
    assert!(after.is_err(), "told without being asked: {after:?}");
}

/// Whoever asks for room of several channels is told of each.
pub fn room_of_several_channels_is_told_of_each(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let (second_a, _) = connect(&mut pair.a.endpoint, &mut pair.b.endpoint, &pair.way);
    let first_a = pair.a.channel;
    for round in 0..6 {
        let mut counts = [0_u64; 2];
        for (count, of) in counts.iter_mut().zip([first_a, second_a]) {
            pair.a.channel = of;
            *count = fill(&mut pair.a);
            pair.a.endpoint.ask_for_room(of).expect("an open channel");
        }
        assert!(counts.iter().all(|count| *count > 0), "it was told of room, and found none");
        let mut told = Vec::new();
        pair.both(
            |a| told.extend([told_of_room(&mut a.endpoint, round), told_of_room(&mut a.endpoint, round)]),
            |b| {
                for _ in 0..counts.iter().sum() {
                    let message = b.event();
                    assert!(matches!(message, Event::Message(_)), "{message:?}");
                }
            },
        );
        told.sort_unstable();
        let mut both = [first_a, second_a];
        both.sort_unstable();
        assert_eq!(told, both);
    }
    pair.a.channel = first_a;
}

/// Who has asked once is told once; at once, where there is room; and who has not asked is told of none.
pub fn room_is_told_of_once(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let channel = pair.a.channel;
    for way in 0..3 {
        (0..2).for_each(|_| pair.a.endpoint.ask_for_room(channel).expect("an open channel"));
        assert_eq!(told_of_room(&mut pair.a.endpoint, way), channel);
        quiet(&mut pair.a.endpoint);
        let sent = fill(&mut pair.a);
        (0..2).for_each(|_| pair.a.endpoint.ask_for_room(channel).expect("an open channel"));
        pair.both(
            |a| assert_eq!(told_of_room(&mut a.endpoint, way), channel),
            |b| {
                // Until the other side sleeps, if it does.
                thread::sleep(Duration::from_millis(20));
                (0..sent).for_each(|_| drop(b.message()));
            },
        );
        quiet(&mut pair.a.endpoint);
    }
}

/// Who asks again is told once, and of room that is still there: also if it has come since the first time, or was there
/// then and is gone.
pub fn room_that_is_asked_for_again_is_told_of_once(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let channel = pair.a.channel;
    for way in 0..6 {
        let was_full = way < 3;
        let mut sent = if was_full { fill(&mut pair.a) } else { 0 };
        pair.a.endpoint.ask_for_room(channel).expect("an open channel");
        if !was_full {
            sent = fill(&mut pair.a);
        }
        pair.both(
            |a| {
                for _ in 0..20 {
                    a.endpoint.ask_for_room(channel).expect("an open channel");
                    thread::sleep(Duration::from_millis(1));
                }
                assert_eq!(told_of_room(&mut a.endpoint, way), channel);
                assert_eq!(a.endpoint.send(channel, b"here"), Ok(()), "it was told of room, and found none");
            },
            |b| {
                thread::sleep(Duration::from_millis(10));
                (0..=sent).for_each(|_| drop(b.message()));
            },
        );
        quiet(&mut pair.a.endpoint);
    }
}

/// Who has asked for room, and waits for whatever happens, sleeps while there is none.
pub fn who_has_asked_for_room_sleeps(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let sent = fill(&mut pair.a);
    let (go_on, told) = channel::<()>();
    let wire = join.crosses_wire();
    pair.both(
        move |a| {
            a.endpoint.ask_for_room(a.channel).expect("an open channel");
            let before = a.endpoint.counter(Counter::Sleeps);
            let waited = a.endpoint.wait(Some(Duration::from_millis(100)));
            // On a wire that loses what tells of it, some may have come late.
            assert!(waited.is_err() || wire, "{waited:?}");
            let slept = a.endpoint.counter(Counter::Sleeps) - before;
            assert!(slept > 0 || waited.is_ok(), "it looks all the time");
            if !wire && a.endpoint.fence() != Fence::None {
                assert!(slept <= 3, "woken {slept} times for nothing");
            }
            drop(go_on);
            if waited.is_err() {
                assert_eq!(told_of_room(&mut a.endpoint, 1), a.channel);
            }
        },
        move |b| {
            assert!(told.recv_timeout(PATIENCE).is_err());
            (0..sent).for_each(|_| drop(b.message()));
        },
    );
}

/// Of a channel that ends before there is room, the end alone is told; and nothing to whoever has closed it.
pub fn room_of_an_ended_channel_is_not_told_of(join: &dyn Join) {
    for closes in [false, true] {
        let Pair { mut a, b, .. } = join.pair(config(), config());
        fill(&mut a);
        a.endpoint.ask_for_room(a.channel).expect("an open channel");
        if closes {
            a.endpoint.close(a.channel);
            let after = a.endpoint.wait(Some(Duration::from_millis(20)));
            assert!(after.is_err(), "told of a channel that it has closed: {after:?}");
        } else {
            thread::scope(|scope| {
                scope.spawn(|| {
                    // Until the other side sleeps.
                    thread::sleep(Duration::from_millis(20));
                    drop(b);
                });
                // A wire that loses what tells of it may have had some late.
                let mut event = next(&mut a.endpoint, 1);
                while join.crosses_wire() && matches!(event, Event::Room(_)) {
                    event = next(&mut a.endpoint, 1);
                }
                assert!(matches!(event, Event::Closed(of, CloseReason::Peer) if of == a.channel), "{event:?}");
            });
        }
        assert!(matches!(a.endpoint.ask_for_room(a.channel), Err(RoomError::Closed(_))));
    }
}
