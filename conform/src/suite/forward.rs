//! What was received is sent on: whichever way it came, to wherever it shall go.

use std::sync::Arc;

use cutthrough::{Config, Endpoint, Incoming, Landed, Landing, Path, Payload, Refused, Token};

use super::config;
use crate::bytes::{check, pattern};
use crate::join::{PATIENCE, connect};
use crate::{Capability, Join, Pair, Side};

/// Bytes of a payload: some pages, the last of them not full.
const LEN: usize = 10_000;

/// Ways in which a payload comes in pages.
#[derive(Debug, Clone, Copy)]
enum Comes {
    /// Pages of the sender: by reference, if there is one memory.
    Pages,
    /// The same, in several runs.
    Runs,
    /// Into a run that was posted.
    Posted,
    /// Into several of them.
    PostedRuns,
    /// Into pages that a token names.
    Token,
}

/// Where it goes when it is sent on.
#[derive(Debug, Clone, Copy)]
enum Goes {
    /// Wherever the receiver reads it.
    Free,
    /// Into a run that was posted.
    Posted,
    /// Into several of them.
    PostedRuns,
    /// Into pages that a token names.
    Token,
    /// Into private memory that a token names.
    Buffer,
}

/// Takes the pages out of a message.
fn take(mut message: Incoming) -> Arc<Landed> {
    match message.take_payload() {
        Payload::Landed(landed) => Arc::new(landed),
        other => panic!("instead of pages: {other:?}"),
    }
}

/// A payload with this pattern comes from one side to the other.
fn receive(from: &mut Side, to: &mut Side, comes: Comes, seed: u64) -> Arc<Landed> {
    match comes {
        Comes::Pages => _ = from.send_pages(b"comes", seed, &[LEN], None),
        Comes::Runs => _ = from.send_pages(b"comes", seed, &[4096, 4096, LEN - 8192], None),
        Comes::Posted | Comes::PostedRuns => {
            let (bytes, count) = if matches!(comes, Comes::Posted) { (LEN, 1) } else { (4096, 3) };
            assert_eq!(to.endpoint.post(to.channel, bytes, count), Ok(count));
            from.send_copy(b"comes", &pattern(seed, LEN), None);
        }
        Comes::Token => {
            let token = to.endpoint.grant(to.channel, Landing::Pages(LEN)).expect("a token");
            from.send_copy(b"comes", &pattern(seed, LEN), Some(token));
        }
    }
    take(to.message())
}

/// Sends it on, with a cookie.
fn send_on(from: &mut Side, landed: Arc<Landed>, token: Option<Token>, cookie: u64) -> cutthrough::Receipt {
    let outgoing = from.endpoint.outgoing(from.channel).expect("a slot").write(b"goes").attach_landed(landed);
    let outgoing = if let Some(token) = token { outgoing.to(token) } else { outgoing };
    outgoing.track(cookie).send().expect("sent")
}

/// What was received is sent on with one copy over shared memory, and arrives whole; the sender's receipt says which
/// way, and the payload goes back to where it came from.
pub fn what_was_received_is_sent_on(join: &dyn Join) {
    let ways = [Comes::Pages, Comes::Runs, Comes::Posted, Comes::PostedRuns, Comes::Token];
    for (comes, last) in ways.into_iter().zip([Goes::Posted, Goes::PostedRuns].into_iter().cycle()) {
        // What is posted stays, so that is the last.
        let mut pair = join.pair(config(), config());
        for (number, goes) in (0..).zip([Goes::Free, Goes::Token, Goes::Buffer, last]) {
            eprintln!("{comes:?}, {goes:?}");
            sent_on(&mut pair, comes, goes, number);
        }
    }
}

fn sent_on(pair: &mut Pair, comes: Comes, goes: Goes, number: u64) {
    let landed = receive(&mut pair.a, &mut pair.b, comes, number);
    let (a, to) = (&mut pair.a.endpoint, pair.a.channel);
    let token = match goes {
        Goes::Free => None,
        Goes::Posted => {
            assert_eq!(a.post(to, LEN, 1), Ok(1));
            None
        }
        Goes::PostedRuns => {
            assert_eq!(a.post(to, 4096, 3), Ok(3));
            None
        }
        Goes::Token => Some(a.grant(to, Landing::Pages(LEN)).expect("a token")),
        Goes::Buffer => Some(a.grant(to, Landing::Buffer(vec![0; LEN])).expect("a token")),
    };
    let receipt = send_on(&mut pair.b, landed, token, number);
    let (path, copies) = match goes {
        Goes::Free => (Path::Reference, 1),
        Goes::Posted | Goes::PostedRuns | Goes::Token => (Path::Put, 1),
        Goes::Buffer => (Path::Get, 2),
    };
    assert_eq!((receipt.path, receipt.bytes), (pair.path(path), LEN as u64));
    assert!(if pair.wire { receipt.copies <= 2 } else { receipt.copies == copies }, "{receipt:?}");
    let mut message = pair.a.message();
    assert_eq!(message.control(), b"goes");
    match (goes, message.payload()) {
        (Goes::Buffer, Payload::Buffer(bytes)) => check(number, bytes),
        (Goes::Buffer, other) => panic!("instead of memory: {other:?}"),
        _ => _ = pair.a.read_checked(&mut message, number),
    }
    drop(message);
    assert!(pair.a.endpoint.poll().is_none());
    assert_eq!(pair.b.completed(), number);
}

/// One payload goes to several, some of them longer than they need, and comes back to its owner when the last has it:
/// the one run that was posted takes the next one then.
pub fn what_was_received_is_sent_on_to_many(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    assert_eq!(pair.b.endpoint.post(pair.b.channel, LEN, 1), Ok(1));
    for round in 0..5 {
        assert_eq!(pair.a.send_copy(b"", &pattern(round, LEN), None).path, pair.path(Path::Put));
        let landed = take(pair.b.message());
        let goes: Vec<_> = (0..5).map(|cookie| send_on(&mut pair.b, Arc::clone(&landed), None, cookie)).collect();
        assert!(goes.iter().all(|receipt| receipt.bytes == LEN as u64), "{goes:?}");
        // It can be read by who sends it on.
        check(round, &landed.to_vec());
        drop(landed);
        let mut messages: Vec<_> = (0..5).map(|_| pair.a.message()).collect();
        messages.iter_mut().for_each(|message| _ = pair.a.read_checked(message, round));
        drop(messages);
        assert!(pair.a.endpoint.poll().is_none());
        let mut cookies: Vec<_> = (0..5).map(|_| pair.b.completed()).collect();
        cookies.sort_unstable();
        assert_eq!(cookies, [0, 1, 2, 3, 4]);
        assert!(pair.b.endpoint.poll().is_none());
    }
}

/// Nothing needs to be free here: without pages of the channel it takes the way of private memory.
pub fn what_was_received_is_sent_on_without_pages(join: &dyn Join) {
    let small = Config { pool_bytes: 4096, ..config() };
    let mut pair = join.pair(config(), small);
    for number in 0..10 {
        let landed = receive(&mut pair.a, &mut pair.b, Comes::Pages, number);
        let receipt = send_on(&mut pair.b, landed, None, number);
        assert_eq!((receipt.path, receipt.bytes), (pair.path(Path::CutThrough), LEN as u64));
        assert!(pair.wire || receipt.copies == 3, "{receipt:?}");
        let mut message = pair.a.message();
        pair.a.read_checked(&mut message, number);
        drop(message);
        assert!(pair.a.endpoint.poll().is_none());
        assert_eq!(pair.b.completed(), number);
    }
}

/// Its token may be no good, as any other's: then the control message arrives alone. No bytes are a payload, too.
pub fn what_is_sent_on_may_be_dropped(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let landed = receive(&mut pair.a, &mut pair.b, Comes::Token, 1);
    let short = pair.a.endpoint.grant(pair.a.channel, Landing::Buffer(vec![0; LEN - 1])).expect("a token");
    let gone = pair.a.endpoint.grant(pair.a.channel, Landing::Pages(LEN)).expect("a token");
    pair.a.endpoint.revoke(pair.a.channel, gone).expect("revoked");
    for (token, why) in [(short, Refused::TooLong), (gone, Refused::Revoked)] {
        let receipt = send_on(&mut pair.b, Arc::clone(&landed), Some(token), 0);
        // Over a network the other side finds that out.
        assert_eq!(receipt.path, if pair.wire { Path::Wire } else { Path::Dropped });
        let message = pair.a.message();
        assert_eq!(message.control(), b"goes");
        assert!(matches!(message.payload(), Payload::Dropped(refused) if *refused == why), "{message:?}");
        assert_eq!(pair.b.completed(), 0);
    }
    pair.a.send_pages(b"", 0, &[0], None);
    let nothing = take(pair.b.message());
    send_on(&mut pair.b, nothing, None, 1);
    let message = pair.a.message();
    assert!(message.is_loaded() && message.payload_len() == 0, "{message:?}");
    drop(message);
    assert!(pair.a.endpoint.poll().is_none());
    assert_eq!(pair.b.completed(), 1);
}

/// A long payload goes on to a third endpoint, after the one that it came from is gone; and what came from the third
/// goes on by a channel of another endpoint.
pub fn what_was_received_outlives_its_channel(join: &dyn Join) {
    const LONG: usize = (1 << 20) + 5;
    if join.skips(Capability::ManyEndpoints) {
        return;
    }
    let mut pair = join.pair(config(), config());
    let mut third = Endpoint::open(join.config(config())).expect("an endpoint");
    let mut joined = None;
    join.near(&mut || joined = Some(connect(&mut third, &mut pair.b.endpoint, &pair.way)));
    let (at_third, to_third) = joined.expect("it was run");
    let mut third = Side { endpoint: third, channel: at_third };
    let token = pair.b.endpoint.grant(pair.b.channel, Landing::Pages(LONG)).expect("a token");
    for (number, token) in [(0, None), (1, Some(token))] {
        pair.a.send_pages(b"", number, &[LONG], token);
    }
    let held = [take(pair.b.message()), take(pair.b.message())];
    let channel = pair.a.channel;
    pair.a.endpoint.close(channel);
    pair.b.closed();
    pair.b.channel = to_third;
    let mut sent = Vec::new();
    for (number, landed) in (0..).zip(held) {
        let b = &mut pair.b;
        std::thread::scope(|scope| {
            let sends = scope.spawn(|| send_on(b, landed, None, number));
            let mut message = third.endpoint.wait(Some(PATIENCE)).map(|event| match event {
                cutthrough::Event::Message(message) => message,
                other => panic!("instead of a message: {other:?}"),
            });
            let message = message.as_mut().expect("a message in time");
            third.read_checked(message, number);
            sent.push(sends.join().expect("sent"));
        });
    }
    assert!(sent.iter().all(|receipt| receipt.bytes == LONG as u64), "{sent:?}");
    assert!(third.endpoint.poll().is_none());
    assert_eq!([pair.b.completed(), pair.b.completed()], [0, 1]);
    // By another endpoint of the same process, which is not the one that it came to.
    let mut other = join.pair(config(), config());
    let landed = receive(&mut third, &mut pair.b, Comes::Pages, 9);
    drop(third);
    send_on(&mut other.a, landed, None, 9);
    let mut message = other.b.message();
    other.b.read_checked(&mut message, 9);
    drop(message);
    assert!(other.b.endpoint.poll().is_none());
    assert_eq!(other.a.completed(), 9);
}
