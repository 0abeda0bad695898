//! Payloads that are still arriving: read late, in parts, not at all, and past each other.
#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

use std::thread;
use std::time::Duration;

use cutthrough::{CloseReason, Config, Event, Incoming, Landing, Path, Payload, Policy, ReadError, SendError};

use super::config;
use crate::bytes::{check, pattern};
use crate::join::PATIENCE;
use crate::{Join, Pair, Side};

/// A payload whose right is dropped is thrown away, whatever its length, and the next ones are not harmed.
pub fn a_payload_dropped_unread_is_gone(join: &dyn Join) {
    const LENS: [usize; 7] = [1000, 0, 1, 128, 0, 100_000, 1 << 20];
    let mut pair = join.pair(config(), config());
    pair.both(
        |a| {
            for (number, len) in (0..).zip(LENS.into_iter().cycle().take(70)) {
                a.send_copy(b"unread", &pattern(number, len), None);
                a.send_copy(b"read", &pattern(number, len), None);
            }
        },
        |b| {
            for number in 0..70 {
                assert_eq!(b.message().control(), b"unread");
                let mut message = b.message();
                assert_eq!(message.control(), b"read");
                b.read_checked(&mut message, number);
            }
        },
    );
}

/// Payloads that are left unread while others come are set aside, and are whole when they are read, in any order.
pub fn a_payload_left_unread_waits(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let (wire, path) = (pair.wire, pair.path(Path::CutThrough));
    pair.both(
        |a| {
            for (number, len) in (0..8u32).zip((40_000..).step_by(1000)) {
                a.send_copy(&number.to_le_bytes(), &pattern(number.into(), len), None);
            }
            a.say(b"last");
        },
        |b| {
            let mut messages: Vec<_> = (0..8).map(|_| b.message()).collect();
            let last = messages.len() - 1;
            b.read_checked(&mut messages[last], 7);
            assert_eq!(b.message().control(), b"last");
            for (number, mut message) in (0..7u32).zip(messages).rev() {
                assert_eq!(message.control(), number.to_le_bytes());
                let receipt = b.read_checked(&mut message, number.into());
                assert_eq!(receipt.path, path);
                assert!(wire || receipt.copies == 3, "set aside is one copy more: {}", receipt.copies);
                assert!(receipt.pulses > 0, "it came in pulses all the same");
            }
        },
    );
}

/// A payload longer than the ring between the two does not hold its sender, if its reader looks for other things first.
pub fn a_long_payload_left_unread_does_not_hold_its_sender(join: &dyn Join) {
    const LEN: usize = 4 << 20;
    let mut pair = join.pair(config(), config());
    pair.both(
        |a| {
            a.send_copy(b"long", &pattern(1, LEN), None);
            a.say(b"after");
        },
        |b| {
            let mut long = b.message();
            assert_eq!(long.control(), b"long");
            assert_eq!(b.message().control(), b"after");
            b.read_checked(&mut long, 1);
        },
    );
}

/// Nor does one as long as that ring, or so little shorter that no other payload begins behind it.
pub fn a_payload_as_long_as_the_ring_does_not_hold_its_sender(join: &dyn Join) {
    let ring = config().staging_bytes as usize;
    let mut pair = join.pair(config(), config());
    for len in [ring, ring - 1, ring - 127, ring - 128, ring + 1] {
        pair.both(
            |a| {
                a.send_copy(b"exact", &pattern(1, len), None);
                a.send_copy(b"next", &pattern(2, 1000), None);
            },
            |b| {
                let mut exact = b.message();
                assert_eq!(exact.control(), b"exact");
                let mut next = b.message();
                assert_eq!(next.control(), b"next");
                b.read_checked(&mut exact, 1);
                b.read_checked(&mut next, 2);
            },
        );
    }
}

/// Control messages that follow a payload which nobody has read yet are delivered all the same.
pub fn control_messages_pass_an_arriving_payload(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    for number in 0..500u64 {
        pair.a.send_copy(b"payload", &pattern(number, 30_000), None);
        pair.a.say(b"one");
        pair.a.say(b"two");
        let mut payload = pair.b.message();
        assert_eq!(payload.control(), b"payload");
        assert_eq!(pair.b.message().control(), b"one");
        if number % 2 == 0 {
            pair.b.read_checked(&mut payload, number);
        }
        assert_eq!(pair.b.message().control(), b"two");
        if number % 2 == 1 {
            pair.b.read_checked(&mut payload, number);
        }
    }
}

/// Both sides send 8 MiB at the same time, and read only when they are done: neither waits for the other.
pub fn both_sides_send_at_once(join: &dyn Join) {
    const LEN: usize = 8 << 20;
    let mut pair = join.pair(config(), config());
    for round in 0..10 {
        let talk = move |side: &mut Side| {
            side.send_copy(b"large", &pattern(round, LEN), None);
            side.say(b"after");
            let mut message = side.message();
            assert_eq!((message.control(), message.payload_len()), (&b"large"[..], LEN));
            side.read_checked(&mut message, round);
            assert_eq!(side.message().control(), b"after");
        };
        pair.both(talk, talk);
    }
}

/// Messages without payload that go before a long payload do not keep it from the other side, however many they are.
pub fn both_sides_send_at_once_behind_many_messages(join: &dyn Join) {
    const LEN: usize = 4 << 20;
    let config = || Config { slots: 2048, ..config() };
    let mut pair = join.pair(config(), config());
    for round in 0..4 {
        let talk = move |side: &mut Side| {
            // The second time more wait than one side takes out of the other's way before it waits anew.
            let mut came = Vec::new();
            for payload in 0..2 {
                for _ in 0..1100 {
                    while let Err(error) = side.endpoint.send(side.channel, b"short") {
                        assert_eq!(error, SendError::Full);
                        came.extend(side.endpoint.poll());
                    }
                }
                let bytes = pattern(round * 2 + payload, LEN);
                loop {
                    let sent = side.endpoint.outgoing(side.channel).and_then(|out| out.attach_copy(&bytes).send());
                    match sent {
                        Ok(_) => break,
                        Err(error) => assert_eq!(error, SendError::Full),
                    }
                    came.extend(side.endpoint.poll());
                }
            }
            let (mut short, mut long) = (0, 0);
            let mut came = came.into_iter();
            while short < 2200 || long < 2 {
                match came.next().unwrap_or_else(|| side.event()) {
                    Event::Message(message) if message.control() == b"short" => short += 1,
                    Event::Message(mut message) => {
                        side.read_checked(&mut message, round * 2 + long);
                        long += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        };
        pair.both(talk, talk);
    }
}

/// The early notice only grows, never says more than has arrived, and ends with all of it. It says of a part that it is
/// there before the rest is: a payload is longer than the ring between the two, or has to be asked for; only if both
/// sides run abreast from its first byte to its last nobody sees a part.
pub fn early_notice_only_grows(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let mut early = false;
    for (number, len) in (0..1000).zip((300_000..).step_by(7)) {
        let (_, parts) = pair.both(
            |a| a.send_copy(b"", &pattern(number, len), None),
            |b| {
                let (mut message, mut parts) = (b.message(), 0);
                let mut bytes = vec![0; len];
                assert_eq!(b.endpoint.read_some(&mut message, &mut bytes[1..]).ok(), None, "too small a memory");
                let mut valid = 0;
                while valid < len {
                    let now = b.endpoint.read_some(&mut message, &mut bytes).expect("what has arrived");
                    assert!(now >= valid && now <= len, "{now} after {valid}");
                    if now > valid {
                        check(number, &bytes[..now / 8 * 8]);
                        parts += u32::from(now < len);
                    }
                    valid = now;
                }
                check(number, &bytes);
                parts
            },
        );
        early |= parts > 0;
        if early && number >= 20 {
            return;
        }
    }
    panic!("nobody was ever told of a part");
}

/// What the early notice has said stays true when the rest of the payload is set aside for others. It is longer than
/// the ring, so that its reader has hardly ever been told of all of it before: only where both sides run abreast from
/// its first byte to its last.
pub fn early_notice_survives_being_set_aside(join: &dyn Join) {
    const LEN: usize = 4 << 20;
    let mut pair = join.pair(config(), config());
    let wire = pair.wire;
    let mut early = 0;
    for number in 0..8u64 {
        let ((), before) = pair.both(
            |a| {
                a.send_copy(b"first", &pattern(number, LEN), None);
                a.send_copy(b"second", &pattern(number + 1, 50_000), None);
            },
            |b| {
                let mut first = b.message();
                let mut bytes = vec![0; LEN];
                let before = b.endpoint.read_some(&mut first, &mut bytes).expect("what has arrived");
                let mut second = b.message();
                let mut valid = before;
                while valid < LEN {
                    let now = b.endpoint.read_some(&mut first, &mut bytes).expect("what has arrived");
                    assert!(now >= valid);
                    valid = now;
                }
                check(number, &bytes);
                let receipt = first.receipt();
                let aside = wire || before == LEN || receipt.copies == 3;
                assert!(aside, "set aside is one copy more: {}", receipt.copies);
                assert!(receipt.pulses > 0, "it came in pulses all the same");
                b.read_checked(&mut second, number + 1);
                before
            },
        );
        early += u32::from(before < LEN);
    }
    assert!(wire || early > 0, "longer than the ring");
}

/// While both sides wait for each other in the middle of payloads, messages keep their order: nothing overtakes a
/// payload that goes to where its token says.
pub fn nothing_overtakes_a_payload_on_its_way(join: &dyn Join) {
    const LEN: usize = 200_000;
    let mut pair = join.pair(config(), config());
    for round in 0..100u64 {
        let token = pair.a.endpoint.grant(pair.a.channel, Landing::Buffer(vec![0; LEN])).expect("a token");
        pair.both(
            |a| {
                a.send_copy(b"from a", &pattern(round, 1 << 20), None);
                let message = a.message();
                assert_eq!(message.control(), b"to a token");
                match message.payload() {
                    Payload::Buffer(bytes) => check(round, bytes),
                    other => panic!("{other:?}"),
                }
                for word in [&b"one"[..], b"two", b"three"] {
                    assert_eq!(a.message().control(), word);
                }
            },
            |b| {
                b.send_copy(b"to a token", &pattern(round, LEN), Some(token));
                for word in [&b"one"[..], b"two", b"three"] {
                    b.say(word);
                }
                thread::sleep(Duration::from_micros(200));
                match b.endpoint.wait(Some(PATIENCE)).expect("the payload") {
                    Event::Message(mut message) => b.read_checked(&mut message, round),
                    other => panic!("{other:?}"),
                };
            },
        );
    }
}

/// A reader that has taken a short payload and then sleeps has made room for it: a payload as long as all of the memory
/// between the two, which has to be there before any of it is taken out, finds its place.
pub fn a_sleeping_reader_has_told_how_far_it_is(join: &dyn Join) {
    let settings = || Config { policy: Policy::StoreAndForward, ..config() };
    let whole = config().staging_bytes as usize;
    let mut pair = join.pair(settings(), settings());
    pair.both(
        |a| {
            for number in 0..40 {
                a.send_copy(b"short", &pattern(2 * number, 1000), None);
                thread::sleep(Duration::from_millis(if number % 4 == 0 { 2 } else { 0 }));
                a.send_copy(b"whole", &pattern(2 * number + 1, whole), None);
            }
        },
        |b| {
            for number in 0..80 {
                let Ok(Event::Message(mut message)) = b.endpoint.wait(Some(PATIENCE)) else { panic!("no message") };
                b.read_checked(&mut message, number);
            }
        },
    );
}

/// Endpoints of one process called their channels and payloads by the same names. A payload is read where it came, and
/// who tries it elsewhere gets nothing, and takes nothing from whose it would be there.
pub fn a_payload_is_read_where_it_came(join: &dyn Join) {
    for (own, other) in [(100, 100), (100, 50), (100, 4000), (20_000, 10_000)] {
        let Pair { mut a, mut b, .. } = join.pair(config(), config());
        a.send_copy(b"to b", &pattern(1, own), None);
        b.send_copy(b"to a", &pattern(2, other), None);
        let (mut first, mut second) = (b.message(), a.message());
        assert_eq!([&first, &second].map(|message| message.receipt().placed), [0; 2], "nobody has read it");
        let mut into = vec![9; own];
        let closed = ReadError::Closed(CloseReason::Here);
        assert_eq!(a.endpoint.read(&mut first, &mut into).map(drop), Err(closed));
        assert_eq!(a.endpoint.read_some(&mut first, &mut into), Err(closed));
        assert!(into.iter().all(|byte| *byte == 9));
        b.read_checked(&mut first, 1);
        a.read_checked(&mut second, 2);
        // What the one drops unread, the other still has.
        a.send_copy(b"to b", &pattern(3, own), None);
        b.send_copy(b"to a", &pattern(4, other), None);
        let mut kept = b.message();
        drop(a.message());
        assert!(a.endpoint.poll().is_none() && b.endpoint.poll().is_none());
        b.read_checked(&mut kept, 3);
        // The same of what a channel has left behind.
        a.send_copy(b"to b", &pattern(5, own), None);
        b.send_copy(b"to a", &pattern(6, other), None);
        let (mut first, mut second) = (b.message(), a.message());
        b.endpoint.close(b.channel);
        a.closed();
        assert_eq!(a.endpoint.read(&mut first, &mut into).map(drop), Err(closed));
        a.read_checked(&mut second, 6);
    }
}

/// Both sides send short payloads of any length, with control messages of any, and read those of the other at once, in
/// parts, later, or not at all: each has its own bytes, and memory beyond its end stays as it is.
pub fn short_payloads_are_whole_whatever_becomes_of_others(join: &dyn Join) {
    let settings = || Config { slots: 64, staging_bytes: 64 << 10, ..config() };
    let mut pair = join.pair(settings(), settings());
    let many = if pair.wire { 1000 } else { 40_000 };
    pair.both(|a| exchange(a, many, 1, 2), |b| exchange(b, many, 2, 1));
}

/// What the message with this number of the side with this salt is like: bytes of its control message and payload.
fn lengths(number: u64, salt: u64) -> (usize, usize) {
    let dice = (number ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let len = if dice >> 24 & 7 == 0 { 0 } else { (dice >> 8) % 8400 };
    ((dice % 97) as usize, len as usize)
}

/// Sends so many messages and takes as many.
fn exchange(side: &mut Side, many: u64, own: u64, other: u64) {
    let (mut sent, mut got, mut kept) = (0, 0, Vec::new());
    while sent < many || got < many {
        if sent < many
            && let Ok(outgoing) = side.endpoint.outgoing(side.channel)
        {
            let (control, payload) = lengths(sent, own);
            let (control, payload) = (pattern(sent + own, control), pattern(sent + own, payload));
            let receipt = outgoing.write(&control).attach_copy(&payload).send().expect("room");
            assert_eq!(receipt.bytes, payload.len() as u64);
            sent += 1;
        }
        let event = if sent == many && got < many { Some(side.event()) } else { side.endpoint.poll() };
        let Some(Event::Message(message)) = event else { continue };
        let (control, payload) = lengths(got, other);
        assert_eq!((message.control(), message.payload_len()), (&pattern(got + other, control)[..], payload));
        match got % 11 {
            3 => drop(message),
            4 => kept.push((got, message)),
            _ => read_with_care(side, message, got, got + other),
        }
        if kept.len() as u64 > got % 4 {
            let (number, message) = kept.swap_remove(0);
            read_with_care(side, message, number, number + other);
        }
        got += 1;
    }
}

/// Reads a payload, in parts if its number says so, into memory that is longer.
fn read_with_care(side: &mut Side, mut message: Incoming, number: u64, seed: u64) {
    let len = message.payload_len();
    let mut into = vec![0xaa; len + 5];
    if number.is_multiple_of(5) {
        side.endpoint.read_some(&mut message, &mut into).expect("some of it");
    }
    if !matches!(message.payload(), Payload::None) {
        let receipt = side.endpoint.read(&mut message, &mut into).expect("a payload");
        assert_eq!((receipt, receipt.bytes), (message.receipt(), len as u64));
    }
    assert!(matches!(message.payload(), Payload::None), "it has been read");
    check(seed, &into[..len]);
    assert_eq!(into[len..], [0xaa; 5], "beyond payload {number}");
}
