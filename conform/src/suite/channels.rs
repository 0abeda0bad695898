//! Channels: several, very many, and how they end.

use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{
    AddressError, Channel, CloseReason, Config, ConnectError, Counter, Endpoint, Event, Path, SendError, UdpCallError,
    WaitError, stat,
};

use super::config;
use crate::bytes::{check, pattern};
use crate::join::{PATIENCE, Side, connect, keep_house, landed};
use crate::{Capability, Join, Pair};

/// Everything that was sent before a channel was closed in good order is delivered before its end is told.
pub fn closing_delivers_everything_first(join: &dyn Join) {
    for round in 0..50u64 {
        let mut pair = join.pair(config(), config());
        for number in 0..20u64 {
            pair.a.say(&number.to_le_bytes());
        }
        pair.a.send_copy(b"payload", &pattern(round, 5000), None);
        if round % 2 == 0 {
            pair.a.endpoint.close(pair.a.channel);
        } else {
            drop(pair.a);
        }
        for number in 0..20u64 {
            assert_eq!(pair.b.message().control(), number.to_le_bytes());
        }
        let mut message = pair.b.message();
        assert_eq!(message.control(), b"payload");
        pair.b.read_checked(&mut message, round);
        assert_eq!(pair.b.closed(), CloseReason::Peer);
        assert!(pair.b.endpoint.poll().is_none());
    }
}

/// Who stops listening lets nobody in any more, keeps the channels that there are, and may listen again.
pub fn who_stops_listening_keeps_its_channels(join: &dyn Join) {
    if join.skips(Capability::ManyEndpoints) {
        return;
    }
    let mut pair = join.pair(config(), config());
    let mut other = Endpoint::open(join.config(config())).expect("an endpoint");
    for round in 0..2 {
        pair.b.endpoint.stop_listening();
        let mut refused = None;
        join.near(&mut || refused = Some(other.connect(&pair.way, PATIENCE)));
        match refused.expect("it was run") {
            Err(ConnectError::Address(AddressError::Nobody(_)) | ConnectError::Net(UdpCallError::Nobody)) => {}
            other => panic!("instead of a refusal: {other:?}"),
        }
        pair.a.say(b"still");
        assert_eq!(pair.b.message().control(), b"still");
        pair.b.send_copy(b"here", &pattern(round, 5000), None);
        let mut message = pair.a.message();
        pair.a.read_checked(&mut message, round);
        join.far(&mut || pair.b.endpoint.listen(&pair.address).expect("its own name"));
        let mut opened = None;
        join.near(&mut || opened = Some(connect(&mut other, &mut pair.b.endpoint, &pair.way)));
        let (near, _) = opened.expect("it was run");
        other.close(near);
        pair.b.closed();
    }
}

/// Who closes a channel hears nothing more of it, though messages came together of which it had seen the first.
pub fn who_closes_hears_nothing_more(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    for number in 0..20u64 {
        pair.a.say(&number.to_le_bytes());
    }
    pair.a.send_copy(b"payload", &pattern(1, 5000), None);
    // Long enough that all of it has come.
    thread::sleep(Duration::from_millis(50));
    assert_eq!(pair.b.message().control(), 0u64.to_le_bytes());
    pair.b.endpoint.close(pair.b.channel);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(100) {
        assert!(pair.b.endpoint.poll().is_none());
    }
    assert_eq!(pair.a.closed(), CloseReason::Peer);
}

/// The same, where a payload that nobody reads lies before the last messages.
pub fn closing_delivers_what_waited_behind_a_payload(join: &dyn Join) {
    for round in 0..50u64 {
        let mut pair = join.pair(config(), config());
        pair.a.send_copy(b"unread", &pattern(round, 20_000), None);
        pair.a.send_copy(b"unread", &pattern(round, 20_000), None);
        pair.a.say(b"last");
        pair.a.endpoint.close(pair.a.channel);
        let first = pair.b.message();
        if round % 2 == 0 {
            drop(first);
        }
        drop(pair.b.message());
        assert_eq!(pair.b.message().control(), b"last");
        assert_eq!(pair.b.closed(), CloseReason::Peer);
    }
}

/// Payloads that had arrived can be read after the end was told: their sender was told that they were sent.
pub fn what_had_arrived_can_be_read_after_the_end(join: &dyn Join) {
    for round in 0..20u64 {
        let mut pair = join.pair(config(), config());
        let len = if round < 10 { 20_000 } else { 5000 };
        for number in 0..3 {
            pair.a.send_copy(b"unread", &pattern(round + number, len), None);
        }
        if round % 2 == 0 {
            pair.a.endpoint.close(pair.a.channel);
        } else {
            drop(pair.a);
        }
        let mut messages: Vec<_> = (0..3).map(|_| pair.b.message()).collect();
        assert_eq!(pair.b.closed(), CloseReason::Peer);
        for number in [2, 0, 1] {
            let message = &mut messages[usize::try_from(number).unwrap_or(0)];
            if number == round % 4 {
                drop(message.take_payload());
            } else {
                let receipt = pair.b.read_checked(message, round + number);
                assert!(receipt.pulses > 0, "it came in pulses all the same");
            }
        }
        assert!(pair.b.endpoint.poll().is_none());
    }
}

/// Two channels between the same endpoints keep their messages, pages and ends apart.
pub fn two_channels_between_the_same_endpoints(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let (second_a, second_b) = connect(&mut pair.a.endpoint, &mut pair.b.endpoint, &pair.way);
    assert_ne!(second_a, pair.a.channel);
    for number in 0..1000u64 {
        for channel in [pair.a.channel, second_a] {
            pair.a.endpoint.send(channel, &number.to_le_bytes()).expect("room");
        }
        for _ in 0..2 {
            assert_eq!(pair.b.message().control(), number.to_le_bytes());
        }
    }
    assert_eq!(pair.b.endpoint.post(pair.b.channel, 100, 1), Ok(1));
    let paths: Vec<Path> = [pair.a.channel, second_a]
        .map(|channel| {
            let outgoing = pair.a.endpoint.outgoing(channel).expect("a slot");
            outgoing.attach_copy(b"payload").send().expect("sent").path
        })
        .into();
    assert_eq!(paths, [pair.path(Path::Put), pair.path(Path::CutThrough)]);
    for _ in 0..2 {
        drop(pair.b.message());
    }
    pair.a.endpoint.close(pair.a.channel);
    match pair.b.event() {
        Event::Closed(channel, reason) => assert_eq!((channel, reason), (pair.b.channel, CloseReason::Peer)),
        other => panic!("{other:?}"),
    }
    pair.a.endpoint.send(second_a, b"still here").expect("sent");
    let message = pair.b.message();
    assert_eq!((message.control(), message.channel()), (&b"still here"[..], second_b));
}

/// Whoever has most to do with one peer hears others that come, or speak now and then; and goes on with one of those
/// when that one is gone.
pub fn who_has_most_to_do_with_one_hears_the_others(join: &dyn Join) {
    const OFTEN: u64 = 300;
    if join.skips(Capability::ManyEndpoints) {
        return;
    }
    let ask = |from: &mut Side, to: &mut Side, number: u64| {
        from.say(&number.to_le_bytes());
        let message = to.message();
        assert_eq!(message.control(), number.to_le_bytes());
        to.channel = message.channel();
        to.say(&number.to_le_bytes());
        assert_eq!(from.message().control(), number.to_le_bytes());
    };
    let say_at_length = |from: &mut Side, to: &mut Side, number: u64| {
        from.send_copy(b"long", &pattern(number, 20_000), None);
        let mut message = to.message();
        to.read_checked(&mut message, number);
    };
    let mut pair = join.pair(config(), config());
    let way = pair.way.clone();
    for _ in 0..2 {
        // And a long one behind short ones, each way.
        for round in 0..3 {
            (0..OFTEN).for_each(|number| ask(&mut pair.a, &mut pair.b, number));
            say_at_length(&mut pair.a, &mut pair.b, round);
            say_at_length(&mut pair.b, &mut pair.a, round);
        }
        let mut endpoint = Endpoint::open(join.config(config())).expect("an endpoint");
        let mut joined = None;
        join.near(&mut || joined = Some(connect(&mut endpoint, &mut pair.b.endpoint, &way)));
        let (channel, _) = joined.expect("it was run");
        let mut other = Side { endpoint, channel };
        for number in 0..OFTEN {
            ask(&mut pair.a, &mut pair.b, number);
            if number % 8 == 0 {
                ask(&mut other, &mut pair.b, number);
            }
        }
        ask(&mut pair.a, &mut pair.b, OFTEN);
        drop(std::mem::replace(&mut pair.a, other));
        assert_eq!(pair.b.closed(), CloseReason::Peer);
    }
}

/// A thousand channels on one endpoint: each works, none starves while others talk without pause.
pub fn a_thousand_channels(join: &dyn Join) {
    const CHANNELS: usize = 1000;
    if join.skips(Capability::ThousandChannels) {
        return;
    }
    let small = Config { slots: 16, pool_bytes: 4096, landing_bytes: 4096, ..config() };
    let mut pair = join.pair(small.clone(), small);
    let mut channels = vec![(pair.a.channel, pair.b.channel)];
    while channels.len() < CHANNELS {
        channels.push(connect(&mut pair.a.endpoint, &mut pair.b.endpoint, &pair.way));
    }
    let all: Vec<Channel> = channels.iter().map(|channel| channel.0).collect();
    pair.both(
        |a| {
            for channel in &all {
                a.endpoint.send(*channel, b"quiet").expect("room");
            }
            // The first ten never stop until the other side says that it has heard everybody.
            let begun = Instant::now();
            while a.endpoint.poll().is_none() {
                for channel in &all[..10] {
                    match a.endpoint.send(*channel, b"loud") {
                        Ok(()) | Err(SendError::Full) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                assert!(begun.elapsed() < PATIENCE, "somebody starves");
            }
        },
        |b| {
            let mut quiet = std::collections::HashSet::new();
            while quiet.len() < CHANNELS {
                let message = b.message();
                if message.control() == b"quiet" {
                    assert!(quiet.insert(message.channel()), "twice on one channel");
                }
            }
            b.say(b"heard all");
        },
    );
    assert_eq!(pair.a.endpoint.channels().count(), CHANNELS);
}

/// What one side counts as sent the other counts as received.
pub fn counters_agree(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    assert_eq!(pair.b.endpoint.post(pair.b.channel, 4096, 1), Ok(1));
    pair.a.say(b"control");
    pair.a.send_copy(b"put", &pattern(1, 4000), None);
    pair.a.send_copy(b"cut through", &pattern(2, 3000), None);
    drop(pair.b.message());
    check(1, &landed(&pair.b.message()).to_vec());
    let pages = !join.skips(Capability::SharedPages);
    if pages {
        pair.a.send_pages(b"reference", 3, &[2000], None);
    }
    let mut message = pair.b.message();
    pair.b.read_checked(&mut message, 2);
    if pages {
        check(3, &landed(&pair.b.message()).to_vec());
    }
    let by_reference = u64::from(pages);
    keep_house(&mut pair.a.endpoint, drop);
    keep_house(&mut pair.b.endpoint, drop);
    let (a, b) = (&pair.a.endpoint, &pair.b.endpoint);
    assert_eq!(a.counter(Counter::MessagesSent), 3 + by_reference);
    assert_eq!(b.counter(Counter::MessagesReceived), 3 + by_reference);
    assert_eq!(a.counter(Counter::PayloadBytesSent), 7000 + 2000 * by_reference);
    assert_eq!(b.counter(Counter::PayloadBytesReceived), 7000 + 2000 * by_reference);
    if pair.wire {
        return;
    }
    assert_eq!((a.counter(Counter::Put), a.counter(Counter::CutThrough)), (1, 1));
    assert_eq!(a.counter(Counter::ByReference), by_reference);
    assert_eq!((a.counter(Counter::Copies), a.counter(Counter::CopiedBytes)), (2, 7000));
    assert_eq!((b.counter(Counter::Copies), b.counter(Counter::CopiedBytes)), (1, 3000));
    assert_eq!((a.counter(Counter::ChannelsOpened), b.counter(Counter::ChannelsOpened)), (1, 1));
}

/// Every operation on a channel that has ended says that it has.
pub fn a_closed_channel_says_so(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    let channel = pair.a.channel;
    pair.a.endpoint.close(channel);
    pair.a.endpoint.close(channel);
    let a = &mut pair.a.endpoint;
    assert_eq!(a.send(channel, b""), Err(SendError::Closed(CloseReason::Here)));
    assert!(a.outgoing(channel).is_err() && a.page(channel, 1).is_err() && a.post(channel, 1, 1).is_err());
    assert!(a.peer(channel).is_none() && a.channels().next().is_none());
    assert!(a.poll().is_none());
    assert_eq!(pair.b.closed(), CloseReason::Peer);
    assert!(pair.b.endpoint.send(pair.b.channel, b"").is_err());
    let (again_a, again_b) = connect(&mut pair.a.endpoint, &mut pair.b.endpoint, &pair.way);
    assert!(again_a != channel && again_b != pair.b.channel, "an old name means a new channel");
    assert!(pair.a.endpoint.send(channel, b"").is_err(), "the old name still works");
    pair.a.endpoint.send(again_a, b"again").expect("sent");
    assert_eq!(pair.b.message().control(), b"again");
}

/// Two endpoints called their channels by the same names, and what was meant for one went to the other's peer.
pub fn a_channel_of_another_endpoint_is_none(join: &dyn Join) {
    let Pair { mut a, mut b, .. } = join.pair(config(), config());
    let (own, other) = (a.channel, b.channel);
    assert!(own.index() == other.index() && own != other);
    let at = &mut a.endpoint;
    assert_eq!(at.send(other, b"astray"), Err(SendError::Closed(CloseReason::Here)));
    assert!(at.outgoing(other).is_err() && at.page(other, 1).is_err() && at.post(other, 1, 1).is_err());
    assert!(at.peer(other).is_none());
    at.close(other);
    assert!(at.poll().is_none());
    a.say(b"as meant");
    assert_eq!(b.message().control(), b"as meant");
    b.say(b"and back");
    assert_eq!(a.message().control(), b"and back");
}

/// An endpoint that is dropped closes its channels, wakes whoever waits on them, and frees its name.
pub fn a_dropped_endpoint_closes_its_channels(join: &dyn Join) {
    let pair = join.pair(config(), config());
    let (mut a, b) = (pair.a, pair.b);
    let waiting = std::thread::spawn(move || a.closed());
    std::thread::sleep(Duration::from_millis(20));
    drop(b);
    assert_eq!(waiting.join().expect("the waiting side"), CloseReason::Peer);
    drop(join.listening(config(), &pair.address));
}

/// Who sleeps has counted all that it has sent and received before, and shows it: nobody knows how long it will sleep.
pub fn who_sleeps_shows_how_far_it_is(join: &dyn Join) {
    let mut pair = join.pair(config(), config());
    if pair.wire {
        return;
    }
    let (a, b) = (pair.a.channel.index() as usize, pair.b.channel.index() as usize);
    let mut all = 0;
    for burst in [1, 40, 3] {
        // Between two rounds of housekeeping.
        keep_house(&mut pair.a.endpoint, drop);
        keep_house(&mut pair.b.endpoint, drop);
        for _ in 0..burst {
            pair.a.say(b"asked");
            assert_eq!(pair.b.message().control(), b"asked");
            pair.b.say(b"answered");
            assert_eq!(pair.a.message().control(), b"answered");
        }
        all += burst;
        for endpoint in [&mut pair.b.endpoint, &mut pair.a.endpoint] {
            let before = endpoint.counter(Counter::Sleeps);
            // Who is kept from running has no time left to sleep.
            while endpoint.counter(Counter::Sleeps) == before {
                assert!(matches!(endpoint.wait(Some(Duration::from_millis(5))), Err(WaitError::TimedOut)));
            }
        }
        for (endpoint, row) in [(&pair.a.endpoint, a), (&pair.b.endpoint, b)] {
            let counted = [Counter::MessagesSent, Counter::MessagesReceived].map(|counter| endpoint.counter(counter));
            assert_eq!(counted, [all; 2], "after a burst of {burst}");
            let shown = shown(endpoint.counter(Counter::ChannelsOpened), row, all);
            assert!(shown, "no endpoint of this process shows {all} messages each way in row {row}");
        }
    }
}

/// Whether an endpoint of this process that has opened so many channels shows, to who looks from outside, so many
/// messages of this channel in each direction.
fn shown(opened: u64, row: usize, messages: u64) -> bool {
    let endpoints = stat::find().expect("the processes").into_iter().filter(|(pid, _)| *pid == std::process::id());
    let seen = endpoints.filter_map(|(_, path)| Some(stat::Watch::open(&path).ok()?.snapshot()));
    let its = seen.filter(|seen| seen.counters.contains(&(Counter::ChannelsOpened, opened)));
    let rows: Vec<_> = its.flat_map(|seen| seen.rows).filter(|its| its.channel == row).collect();
    let of = |cells: [u64; 16]| [stat::Cell::Sent, stat::Cell::Received].map(|cell| cells[cell as usize]);
    rows.into_iter().any(|row| of(row.cells) == [messages; 2])
}
