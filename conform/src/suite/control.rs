//! Control messages: in order, each once, whole.

use cutthrough::{CONTROL_MAX, Counter, Event, SendError};

use super::config;
use crate::bytes::pattern;
use crate::{Join, Side};

/// An endpoint that is shown, as in a log, tells nothing of what its channels carry.
pub fn an_endpoint_that_is_shown_tells_no_message(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    pair.a.say(b"SECRET");
    pair.a.send_copy(b"SECRET", b"SECRET", None);
    pair.b.message();
    let message = pair.b.message();
    for shown in [format!("{:?}", pair.a.endpoint), format!("{:?}", pair.b.endpoint)] {
        let tells = shown.contains("SECRET") || shown.contains("83, 69, 67");
        assert!(!tells && shown.len() < 500, "{shown}");
        assert!(shown.contains(&format!("index: {}", pair.a.channel.index())), "{shown}");
    }
    drop(message);
}

/// Messages of every length from 0 to 96 bytes arrive in order, each once, every byte as it was sent; the ring wraps.
pub fn in_order_once_and_whole(join: &dyn Join) {
    const MESSAGES: u64 = 20_000;
    let mut pair = join.pair(config(), config());
    pair.both(
        |a| {
            for number in 0..MESSAGES {
                a.say(&numbered(number));
                if number % 23 == 0 {
                    a.endpoint.flush();
                }
            }
        },
        |b| {
            for number in 0..MESSAGES {
                let message = b.message();
                assert_eq!(message.control(), numbered(number), "message {number}");
                assert_eq!(message.channel(), b.channel);
                assert_eq!(message.payload_len(), 0);
            }
            assert!(b.endpoint.poll().is_none());
        },
    );
}

/// Message `number` of the sequence: its length cycles through all that are allowed.
fn numbered(number: u64) -> Vec<u8> {
    pattern(number, usize::try_from(number).unwrap_or(0) % (CONTROL_MAX + 1))
}

/// A control message of 97 bytes is refused, however it is sent, and leaves no trace.
pub fn too_long_is_refused(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let long = pattern(1, CONTROL_MAX + 1);
    assert_eq!(pair.a.endpoint.send(pair.a.channel, &long), Err(SendError::TooLong));
    for payload in [&[][..], &[1; 100]] {
        let outgoing = pair.a.endpoint.outgoing(pair.a.channel).expect("a slot").write(&long);
        assert_eq!(outgoing.attach_copy(payload).send().map(|_| ()), Err(SendError::TooLong));
        let outgoing = pair.a.endpoint.outgoing(pair.a.channel).expect("a slot").write(&long);
        assert_eq!(outgoing.send().map(|_| ()), Err(SendError::TooLong));
    }
    pair.a.endpoint.outgoing(pair.a.channel).expect("a slot").write(&long[..CONTROL_MAX]).send().expect("sent");
    assert_eq!(pair.b.message().control(), &long[..CONTROL_MAX]);
    assert!(pair.b.endpoint.poll().is_none());
}

/// A ring that nobody takes from says `Full`, counts it, and loses nothing once somebody does.
pub fn a_full_ring_says_so_and_recovers(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    for round in 0..3u64 {
        let sent = fill(&mut pair.a, round);
        if !pair.wire {
            assert!(sent >= 64 - 64 / 8, "only {sent} messages fit: the receiver says at every eighth how far it is");
            assert!(pair.a.endpoint.outgoing(pair.a.channel).is_err());
        }
        for number in 0..sent {
            assert_eq!(pair.b.message().control(), pattern(round << 32 | number, 64));
        }
    }
    assert!(pair.a.endpoint.counter(Counter::Full) >= 3);
    pair.both(|a| a.say(b"again"), |b| assert_eq!(b.message().control(), b"again"));
}

/// Sends until the ring is full: how many messages fitted. What was there before may go on being acknowledged.
fn fill(side: &mut Side, round: u64) -> u64 {
    (0..)
        .find(|number| match side.endpoint.send(side.channel, &pattern(round << 32 | number, 64)) {
            Ok(()) => false,
            Err(SendError::Full) => true,
            Err(error) => panic!("{error}"),
        })
        .unwrap_or(0)
}

/// A borrowed slot that is not sent is free again, and nothing of it arrives.
pub fn an_unsent_message_was_never_there(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    for _ in 0..200 {
        drop(pair.a.endpoint.outgoing(pair.a.channel).expect("a slot").write(b"not this one"));
    }
    pair.a.say(b"this one");
    assert_eq!(pair.b.message().control(), b"this one");
    assert!(pair.b.endpoint.poll().is_none());
}

/// Both sides send and receive at the same time, without either waiting for the other to be done.
pub fn both_directions_at_once(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let talk = |side: &mut Side| {
        let (mut sent, mut received) = (0u64, 0u64);
        while received < 10_000 {
            if sent < 10_000 && side.endpoint.send(side.channel, &sent.to_le_bytes()).is_ok() {
                sent += 1;
            } else if let Some(event) = side.endpoint.poll() {
                // Polled, not waited for: over a network the word that there is room again may be all that comes.
                match event {
                    Event::Message(message) => assert_eq!(message.control(), received.to_le_bytes()),
                    other => panic!("instead of a message: {other:?}"),
                }
                received += 1;
            }
        }
        while sent < 10_000 {
            side.say(&sent.to_le_bytes());
            sent += 1;
        }
    };
    pair.both(talk, talk);
}
