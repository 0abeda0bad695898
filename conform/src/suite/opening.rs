//! Channels that are opened while both sides do something else.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{
    AddressError, AsyncEndpoint, Channel, CloseReason, ConnectError, Connecting, Endpoint, Event, Landing, SendError,
    UdpCallError,
};

use super::{beside_tokio, config, in_time};
use crate::Join;
use crate::bytes::pattern;
use crate::join::{PATIENCE, Pair, Side};

/// Channels that are opened at the same time.
const SEVERAL: usize = 100;

/// An endpoint that connects, where those live.
fn caller(join: &dyn Join) -> Endpoint {
    Endpoint::open(join.config(config())).expect("an endpoint")
}

fn begin(join: &dyn Join, endpoint: &mut Endpoint, way: &str, timeout: Duration) -> Result<Connecting, ConnectError> {
    let mut begun = None;
    join.near(&mut || begun = Some(endpoint.begin_connect(way, timeout)));
    begun.expect("it was run")
}

/// Polls both until each knows its end of the channel.
fn meet(a: &mut Endpoint, b: &mut Endpoint, connecting: Connecting) -> (Channel, Channel) {
    let (mut at_a, mut at_b, begun) = (None, None, Instant::now());
    loop {
        match a.poll() {
            Some(Event::Connected(of, outcome)) if of == connecting => at_a = Some(outcome.expect("a channel")),
            Some(other) => panic!("instead of an answer: {other:?}"),
            None => {}
        }
        match b.poll() {
            Some(Event::Opened(channel)) => at_b = Some(channel),
            Some(other) => panic!("instead of a caller: {other:?}"),
            None => {}
        }
        if let (Some(at_a), Some(at_b)) = (at_a, at_b) {
            return (at_a, at_b);
        }
        assert!(begun.elapsed() < PATIENCE, "they do not meet: {at_a:?}, {at_b:?}");
    }
}

/// One thread opens a channel between two endpoints of its own, without a call that waits; it carries messages.
pub fn a_channel_opens_while_both_poll(join: &dyn Join) {
    let address = join.address();
    let (mut a, mut b) = (caller(join), join.listening(config(), &address));
    let connecting = begin(join, &mut a, &join.way(&address), PATIENCE).expect("begun");
    let (at_a, at_b) = meet(&mut a, &mut b, connecting);
    assert!(!a.cancel_connect(connecting), "it was told");
    let [mut a, mut b] = [(a, at_a), (b, at_b)].map(|(endpoint, channel)| Side { endpoint, channel });
    for (number, from_a) in [(1, true), (2, false)] {
        let (from, to) = if from_a { (&mut a, &mut b) } else { (&mut b, &mut a) };
        from.send_copy(b"payload", &pattern(number, 20_000), None);
        let mut message = to.message();
        assert_eq!(message.channel(), to.channel);
        to.read_checked(&mut message, number);
    }
}

/// Both sleep, and are woken; whoever was let in hears of it before the first message on the channel, and messages on
/// others pass meanwhile.
pub fn a_sleeping_caller_is_woken(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let way = pair.way.clone();
    for round in 0..20u64 {
        let connecting = begin(join, &mut pair.a.endpoint, &way, PATIENCE).expect("begun");
        let (channel, ()) = pair.both(
            |a| {
                a.say(b"meanwhile");
                let mut channel = None;
                loop {
                    match a.event() {
                        Event::Connected(of, outcome) if of == connecting => {
                            channel = Some(outcome.expect("a channel"));
                        }
                        Event::Message(message) => {
                            assert_eq!(
                                (Some(message.channel()), message.control()),
                                (channel, &round.to_le_bytes()[..])
                            );
                            return channel.expect("it was told first");
                        }
                        other => panic!("unasked: {other:?}"),
                    }
                }
            },
            |b| {
                let mut left = 2;
                while left > 0 {
                    match b.event() {
                        Event::Opened(channel) => {
                            b.endpoint.send(channel, &round.to_le_bytes()).expect("room");
                        }
                        Event::Message(message) => assert_eq!(message.control(), b"meanwhile"),
                        other => panic!("unasked: {other:?}"),
                    }
                    left -= 1;
                }
            },
        );
        pair.a.endpoint.close(channel);
        pair.b.closed();
    }
}

/// Several are begun at once, and each is answered once.
pub fn several_channels_open_at_once(join: &dyn Join) {
    let address = join.address();
    let (mut a, mut b) = (caller(join), join.listening(config(), &address));
    let way = join.way(&address);
    let mut begun: Vec<_> = (0..SEVERAL).map(|_| begin(join, &mut a, &way, PATIENCE).expect("begun")).collect();
    let (mut channels, mut opened) = (Vec::new(), 0);
    let since = Instant::now();
    while channels.len() < SEVERAL || opened < SEVERAL {
        if let Some(Event::Connected(of, outcome)) = a.poll() {
            begun.retain(|connecting| *connecting != of);
            channels.push(outcome.expect("a channel"));
        }
        opened += usize::from(matches!(b.poll(), Some(Event::Opened(_))));
        assert!(since.elapsed() < PATIENCE, "{} and {opened} of {SEVERAL}", channels.len());
    }
    assert!(begun.is_empty());
    let channels: HashSet<Channel> = channels.into_iter().collect();
    assert_eq!((channels.len(), a.channels().count(), b.channels().count()), (SEVERAL, SEVERAL, SEVERAL));
}

/// Where nobody listens, that is said: at once by a system that knows it, else when the time is over.
pub fn nobody_at_an_address_is_told(join: &dyn Join) {
    let mut a = caller(join);
    let way = join.way(&join.address());
    let since = Instant::now();
    match begin(join, &mut a, &way, Duration::from_millis(200)) {
        Ok(connecting) => match a.wait(Some(PATIENCE)) {
            Ok(Event::Connected(of, Err(ConnectError::Net(error @ UdpCallError::Silence(_))))) if of == connecting => {
                assert!(since.elapsed() >= Duration::from_millis(150), "too early: {error}");
            }
            other => panic!("instead of a failure: {other:?}"),
        },
        Err(ConnectError::Address(AddressError::Nobody(_))) => {}
        Err(other) => panic!("nobody is there, and what is said is: {other}"),
    }
    assert_eq!(a.channels().count(), 0);
}

/// What was given up is told to nobody, and leaves nothing behind.
pub fn a_call_that_was_given_up_is_not_told(join: &dyn Join) {
    let address = join.address();
    let (mut a, mut b) = (caller(join), join.listening(config(), &address));
    let way = join.way(&address);
    for round in 0..6 {
        let connecting = begin(join, &mut a, &way, PATIENCE).expect("begun");
        if round % 2 == 1 {
            // The answer may be here by now, but it was not told.
            let until = Instant::now() + Duration::from_millis(30);
            while Instant::now() < until && !matches!(b.poll(), Some(Event::Opened(_))) {}
            thread::sleep(Duration::from_millis(5));
        }
        assert!(a.cancel_connect(connecting));
        assert!(!a.cancel_connect(connecting), "once");
    }
    let until = Instant::now() + Duration::from_millis(100);
    while Instant::now() < until {
        if let Some(event) = a.poll() {
            panic!("told of what was given up: {event:?}");
        }
        if let Some(Event::Closed(_, reason)) = b.poll() {
            assert_ne!(reason, CloseReason::Died, "it lives");
        }
    }
    assert_eq!(a.channels().count(), 0);
    let connecting = begin(join, &mut a, &way, PATIENCE).expect("begun");
    let since = Instant::now();
    while !matches!(a.poll(), Some(Event::Connected(of, Ok(_))) if of == connecting) {
        let _ = b.poll();
        assert!(since.elapsed() < PATIENCE, "no channel after others were given up");
    }
}

/// The same in tokio, where a future that is dropped gives its channel up.
pub fn a_channel_opens_in_tokio(join: &dyn Join) {
    let address = join.address();
    let mut b = join.listening(config(), &address);
    let way = join.way(&address);
    let mut a = caller(join);
    // Where the network side is opened belongs to those who connect.
    let first = begin(join, &mut a, &way, PATIENCE).expect("begun");
    a.cancel_connect(first);
    beside_tokio(
        |over| {
            while !over.load(Ordering::Relaxed) {
                if let Ok(Event::Opened(channel)) = b.wait(Some(Duration::from_millis(5))) {
                    // Who has given up is not there.
                    let _ = b.send(channel, b"welcome");
                }
            }
        },
        async {
            let mut a = AsyncEndpoint::new(a).expect("an endpoint in a runtime");
            // Some open before their future can be dropped.
            let mut at_once = Vec::new();
            for round in 0..6 {
                if round % 2 == 0
                    && let Poll::Ready(outcome) =
                        std::pin::pin!(a.connect(&way, PATIENCE)).poll(&mut Context::from_waker(Waker::noop()))
                {
                    at_once.push(outcome.expect("a channel"));
                }
                let channel = a.connect(&way, PATIENCE).await.expect("a channel");
                loop {
                    match in_time(a.next()).await.expect("an event") {
                        Event::Message(message) => {
                            assert_eq!(message.control(), b"welcome");
                            if message.channel() == channel {
                                break;
                            }
                            assert!(at_once.contains(&message.channel()), "a message of nobody's channel");
                        }
                        other => panic!("instead of a welcome: {other:?}"),
                    }
                }
            }
            assert_eq!(a.channels().count(), 6 + at_once.len());
        },
    );
    let since = Instant::now();
    drop(b);
    assert!(since.elapsed() < config().silence, "it waits for callers that have given up");
}

/// What was granted to a peer that closes while a channel is opened in tokio is there when that is told, however long
/// the opening takes.
pub fn what_was_granted_is_kept_while_a_channel_opens(join: &dyn Join) {
    let address = join.address();
    let mut a = caller(join);
    let (way, mut b) = (join.way(&address), join.listening(config(), &address));
    let connecting = begin(join, &mut a, &way, PATIENCE).expect("begun");
    let (channel, back) = meet(&mut a, &mut b, connecting);
    let token = a.grant(channel, Landing::Buffer(vec![7; 99])).expect("a token");
    beside_tokio(
        |over| {
            b.close(back);
            let _ = b.wait(Some(Duration::from_millis(20)));
            // Where callers are let in by polling, the next one waits.
            thread::sleep(Duration::from_millis(600));
            while !over.load(Ordering::Relaxed) {
                let _ = b.wait(Some(Duration::from_millis(5)));
            }
        },
        async {
            let mut a = AsyncEndpoint::new(a).expect("an endpoint in a runtime");
            let opened = a.connect(&way, PATIENCE).await.expect("a channel");
            match in_time(a.next()).await.expect("an event") {
                Event::Closed(of, _) => assert_eq!(of, channel),
                other => panic!("instead of the end: {other:?}"),
            }
            assert_eq!(a.revoke(channel, token), Ok(Landing::Buffer(vec![7; 99])));
            assert!(a.channels().any(|of| of == opened));
        },
    );
}

/// One that is awaited in tokio has its turn behind more than are opened at a time, whose answers are told later.
pub fn a_channel_opens_in_tokio_behind_many(join: &dyn Join) {
    let address = join.address();
    let (mut a, mut b) = (caller(join), join.listening(config(), &address));
    let way = join.way(&address);
    let mut begun: Vec<_> = (0..SEVERAL).map(|_| begin(join, &mut a, &way, PATIENCE).expect("begun")).collect();
    beside_tokio(
        |over| {
            while !over.load(Ordering::Relaxed) {
                let _ = b.wait(Some(Duration::from_millis(5)));
            }
        },
        async {
            let mut a = AsyncEndpoint::new(a).expect("an endpoint in a runtime");
            let mut channels = HashSet::from([a.connect(&way, PATIENCE).await.expect("a channel")]);
            while !begun.is_empty() {
                match in_time(a.next()).await.expect("an event") {
                    Event::Connected(of, outcome) => {
                        begun.retain(|connecting| *connecting != of);
                        channels.insert(outcome.expect("a channel"));
                    }
                    other => panic!("instead of an answer: {other:?}"),
                }
            }
            assert_eq!((channels.len(), a.channels().count()), (SEVERAL + 1, SEVERAL + 1));
        },
    );
}

/// A peer that sends without end, while a channel is opened in tokio, keeps no other task waiting. What it sends waits
/// with it, but for what there is room for, and comes in order afterwards, however it is asked for.
pub fn a_flood_waits_while_a_channel_opens_in_tokio(join: &dyn Join) {
    let Pair { a, mut b, .. } = join.pair(config(), config());
    // Over a network nobody is there; in a process nobody looks.
    let address = join.address();
    let _deaf = (!join.crosses_wire()).then(|| join.listening(config(), &address));
    let (way, sent) = (join.way(&address), AtomicU64::new(0));
    beside_tokio(
        |over| {
            while !over.load(Ordering::Relaxed) {
                match b.endpoint.send(b.channel, &sent.load(Ordering::Relaxed).to_le_bytes()) {
                    Ok(()) => drop(sent.fetch_add(1, Ordering::Relaxed)),
                    Err(SendError::Full) => drop(b.endpoint.wait(Some(Duration::from_millis(1)))),
                    Err(_) => return,
                }
            }
        },
        async {
            let ticks = Arc::new(AtomicU64::new(0));
            let its = Arc::clone(&ticks);
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    its.fetch_add(1, Ordering::Relaxed);
                }
            });
            let mut a = AsyncEndpoint::new(a.endpoint).expect("an endpoint in a runtime");
            a.connect(&way, Duration::from_millis(300)).await.expect_err("nobody answers");
            let (ticks, waits) = (ticks.load(Ordering::Relaxed), sent.load(Ordering::Relaxed));
            assert!(ticks >= 10, "{ticks} ticks in 300 ms");
            assert!(waits <= 16 * u64::from(config().slots), "{waits} messages were taken in");
            for number in 0..2000_u64 {
                let event = match number % 3 {
                    0 => a.wait(Some(PATIENCE)).expect("an event"),
                    _ => in_time(a.next()).await.expect("an event"),
                };
                let Event::Message(message) = event else { panic!("instead of message {number}: {event:?}") };
                assert_eq!(message.control(), u64::to_le_bytes(number));
            }
        },
    );
}
