//! The behaviour suite over shared memory.

mod shared_memory;

use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{
    CloseReason, Config, Counter, Endpoint, Event, Fence, Landing, NoMemory, Policy, SendError, WaitError,
};
use cutthrough_conform::bytes::pattern;
use cutthrough_conform::join::{PATIENCE, circle, connect, keep_house};
use cutthrough_conform::{Capability, Join as _, suite};
use shared_memory::SharedMemory;

cutthrough_conform::suite!(SharedMemory::new());

/// More callers than a socket lets wait: the others stand outside, and come in when the listener looks again.
#[test]
fn callers_wait_while_the_listener_looks_away() {
    let join = SharedMemory::new();
    let address = join.address();
    let mut b = join.listening(Config::default(), &address);
    let mut a = Endpoint::open(Config::default()).expect("an endpoint");
    for _ in 0..200 {
        a.begin_connect(&address, PATIENCE).expect("begun");
    }
    assert!(a.poll().is_none(), "nobody has looked");
    let (since, mut connected, mut opened) = (Instant::now(), 0, 0);
    while connected < 200 || opened < 200 {
        match a.poll() {
            Some(Event::Connected(_, outcome)) => {
                outcome.expect("a channel");
                connected += 1;
            }
            Some(other) => panic!("unasked: {other:?}"),
            None => {}
        }
        opened += usize::from(matches!(b.poll(), Some(Event::Opened(_))));
        assert!(since.elapsed() < PATIENCE, "{connected} and {opened} of 200");
    }
}

/// Its sender said one where nothing was moved.
#[test]
fn an_empty_payload_makes_no_pulse() {
    for policy in [Policy::default(), Policy::StoreAndForward] {
        let settings = || Config { policy, ..suite::config() };
        let mut pair = SharedMemory::new().pair(settings(), settings());
        for len in [0, 1] {
            let sent = pair.a.send_copy(b"", &pattern(0, len), None);
            let mut message = pair.b.message();
            let read = pair.b.read_checked(&mut message, 0);
            assert_eq!((sent.pulses as usize, read.pulses as usize), (len, len), "{policy:?}");
        }
        assert_eq!(pair.a.endpoint.counter(Counter::Pulses), 1, "{policy:?}");
    }
}

/// Who goes while it still calls, and was let in already, has left and not died.
#[test]
fn who_goes_while_it_calls_has_left() {
    let join = SharedMemory::new();
    let address = join.address();
    let mut b = join.listening(suite::config(), &address);
    let mut a = Endpoint::open(suite::config()).expect("an endpoint");
    a.begin_connect(&address, PATIENCE).expect("begun");
    let Ok(Event::Opened(channel)) = b.wait(Some(PATIENCE)) else { panic!("no caller") };
    drop(a);
    match b.wait(Some(PATIENCE)) {
        Ok(Event::Closed(of, reason)) => assert_eq!((of, reason), (channel, CloseReason::Peer)),
        other => panic!("instead of the end: {other:?}"),
    }
}

/// The sender tries how much of its ring to use, and whether its lines shall be evicted when they are read, while
/// payloads lie in it that their reader has not read, and while that one waits for the next message with the last one
/// in its hands.
#[test]
fn the_lap_of_the_ring_changes_beneath_a_stream() {
    const COUNT: u64 = 2000;
    let len = |number: u64| [64 << 10, 1000, 200_000, 8 << 10, 65_000][usize::try_from(number % 5).unwrap_or(0)];
    let mut pair = SharedMemory::new().pair(Config::default(), Config::default());
    pair.both(
        |a| {
            for number in 0..COUNT {
                a.send_copy(b"in a lap", &pattern(number, len(number)), None);
            }
            // The survey needs 60 MiB at most; this were 134.
            assert!(a.endpoint.counter(Counter::LapChanges) >= 3);
        },
        |b| {
            let mut last = None;
            for number in 0..COUNT {
                let mut message = b.message();
                if let Some(mut last) = last.take() {
                    b.read_checked(&mut last, number - 1);
                }
                if number % 7 == 3 && number + 1 < COUNT {
                    last = Some(message);
                } else {
                    b.read_checked(&mut message, number);
                }
            }
        },
    );
}

/// Who waits for room takes messages of others out of their way, but no more than it has room for; then it sleeps,
/// though they have more to say.
#[test]
fn a_wait_sleeps_though_others_have_more_to_say() {
    const SAID: u64 = 20_000;
    let join = SharedMemory::new();
    let addresses = [(); 2].map(|()| join.address());
    let mut waiter = join.listening(suite::config(), &addresses[0]);
    let mut reader = join.listening(suite::config(), &addresses[1]);
    let mut other = Endpoint::open(Config { slots: 32 << 10, ..suite::config() }).expect("an endpoint");
    let (to_reader, _) = connect(&mut waiter, &mut reader, &addresses[1]);
    let (to_waiter, at_waiter) = connect(&mut other, &mut waiter, &addresses[0]);
    for number in 0..SAID {
        other.send(to_waiter, &number.to_le_bytes()).expect("room");
    }
    let payload = pattern(1, 8 << 20);
    // How often this thread has slept.
    let naps = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("what the kernel says of it");
        let naps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        naps.and_then(|naps| naps.trim().parse::<u64>().ok()).expect("a number")
    };
    let before = naps();
    thread::scope(|scope| {
        scope.spawn(|| {
            let Ok(Event::Message(mut message)) = reader.wait(Some(PATIENCE)) else { panic!("no message") };
            thread::sleep(Duration::from_millis(500));
            reader.read(&mut message, &mut vec![0; 8 << 20]).expect("a payload");
        });
        waiter.outgoing(to_reader).expect("a slot").write(b"long").attach_copy(&payload).send().expect("sent");
    });
    let napped = naps() - before;
    assert!(napped > 20, "{napped} naps of a millisecond in half a second");
    for number in 0..SAID {
        let Ok(Event::Message(message)) = waiter.wait(Some(PATIENCE)) else { panic!("no message {number}") };
        assert_eq!((message.channel(), message.control()), (at_waiter, &number.to_le_bytes()[..]));
    }
}

/// Who is woken once by the file descriptor hears of everybody who has gone, though they are more than one call tells.
#[test]
fn who_may_sleep_has_heard_everybody() {
    let join = SharedMemory::new();
    if join.skips(Capability::ThousandChannels) {
        return;
    }
    // A process that another test begins has copies of all sockets until it runs its own program: then they do not go
    // at once.
    let heard: Vec<usize> = (0..3).map(|_| heard_before_sleep(&join)).take_while(|heard| *heard < CHANNELS).collect();
    assert!(heard.len() < 3, "of {CHANNELS} channels {heard:?} were heard of, and the others would be slept over");
}

const CHANNELS: usize = 300;

/// How many channels whose peer has gone are heard of before this side may sleep again.
fn heard_before_sleep(join: &SharedMemory) -> usize {
    let small = || Config { slots: 16, pool_bytes: 4096, landing_bytes: 4096, ..suite::config() };
    let address = join.address();
    let mut b = join.listening(small(), &address);
    let mut a = Endpoint::open(small()).expect("an endpoint");
    for _ in 0..CHANNELS {
        connect(&mut a, &mut b, &address);
    }
    let mut closed = 0;
    let mut poll_all = |b: &mut Endpoint| {
        while let Some(event) = b.poll() {
            assert!(matches!(event, Event::Closed(..)), "{event:?}");
            closed += 1;
        }
        closed
    };
    while !b.arm() {
        poll_all(&mut b);
    }
    drop(a);
    let since = Instant::now();
    loop {
        let closed = poll_all(&mut b);
        if b.arm() && closed > 0 {
            return closed;
        }
        assert!(since.elapsed() < PATIENCE);
    }
}

/// Nobody waits for ever where three send to each other in a circle.
#[test]
fn three_send_in_a_circle_at_once() {
    let join = SharedMemory::new();
    let addresses = [(); 3].map(|()| join.address());
    let nodes = [0, 1, 2].map(|k| join.listening(suite::config(), &addresses[k]));
    circle(nodes, [&addresses[1], &addresses[2], &addresses[0]]);
}

/// A payload that goes another way for want of posted pages was not refused; what finds no page of its own was.
#[test]
fn only_what_was_refused_a_page_is_counted_as_that() {
    let config = || Config { pool_bytes: 16 << 10, landing_bytes: 16 << 10, ..suite::config() };
    let mut pair = SharedMemory::new().pair(config(), config());
    let no_page = |endpoint: &Endpoint| endpoint.counter(Counter::NoPage);
    pair.a.send_copy(b"private", &pattern(1, 1000), None);
    assert_eq!(no_page(&pair.a.endpoint), 0);
    let channel = pair.a.channel;
    let _all = pair.a.endpoint.page(channel, 16 << 10).expect("all pages");
    assert_eq!(pair.a.endpoint.page(channel, 1).map(drop), Err(NoMemory::NoPages));
    assert_eq!(no_page(&pair.a.endpoint), 1);
    let granted = pair.a.endpoint.grant(channel, Landing::Pages(16 << 10)).expect("all landing pages");
    assert_eq!(pair.a.endpoint.grant(channel, Landing::Pages(1)), Err(NoMemory::NoPages));
    assert_eq!(pair.a.endpoint.post(channel, 1, 1), Err(NoMemory::NoPages));
    assert_eq!(no_page(&pair.a.endpoint), 3);
    pair.a.endpoint.revoke(channel, granted).expect("it was not used");
}

/// Who sleeps until messages come is not woken whenever some of its own have been taken; who waits for room is, once.
#[test]
fn who_waits_for_no_room_is_not_rung_for_it() {
    let mut pair = SharedMemory::new().pair(suite::config(), suite::config());
    for waits in [false, true] {
        let sent = (0..).find(|_| pair.a.endpoint.send(pair.a.channel, b"takes room").is_err()).expect("an end");
        let (slept, rung) = pair.both(
            |a| {
                let before = a.endpoint.counter(Counter::Sleeps);
                if waits {
                    let since = Instant::now();
                    a.endpoint.wait_for_room(a.channel, Some(PATIENCE)).expect("room");
                    assert!(since.elapsed() < PATIENCE, "nobody has said that there is room");
                } else {
                    let nothing = a.endpoint.wait(Some(Duration::from_millis(300)));
                    assert!(matches!(nothing, Err(WaitError::TimedOut)), "{nothing:?}");
                }
                a.endpoint.counter(Counter::Sleeps) - before
            },
            |b| {
                // Until the other side sleeps.
                thread::sleep(Duration::from_millis(100));
                let before = b.endpoint.counter(Counter::WakesSent);
                (0..sent).for_each(|_| drop(b.message()));
                keep_house(&mut b.endpoint, |event| panic!("unasked: {event:?}"));
                b.endpoint.counter(Counter::WakesSent) - before
            },
        );
        assert!(rung <= u64::from(waits), "rung for {rung} times; waits for room: {waits}");
        if pair.a.endpoint.fence() != Fence::None {
            assert_eq!(slept, 1, "waits for room: {waits}");
        }
    }
}

/// Every page of a message comes back, and is counted.
#[test]
fn pages_that_come_back_are_counted_one_by_one() {
    let mut pair = SharedMemory::new().pair(suite::config(), suite::config());
    let channel = pair.a.channel;
    for cookie in 0..2 {
        let page = pair.a.endpoint.page(channel, 3 * 4096).expect("pages");
        pair.a.endpoint.outgoing(channel).expect("a slot").attach(page).track(cookie).send().expect("sent");
    }
    for _ in 0..2 {
        drop(pair.b.message());
    }
    assert!(pair.b.endpoint.poll().is_none());
    assert_eq!([pair.a.completed(), pair.a.completed()], [0, 1]);
    assert_eq!(pair.a.endpoint.counter(Counter::PagesReturned), 6);
}

/// Who has messages to receive before it may wait looks for room first, and a payload that has none is counted.
#[test]
fn a_payload_is_refused_only_where_there_is_no_room() {
    const SAID: u64 = 1100;
    let config = || Config { slots: 4096, policy: Policy::StoreAndForward, ..suite::config() };
    let mut pair = SharedMemory::new().pair(config(), config());
    let (at_a, at_b) = (pair.a.channel, pair.b.channel);
    let (a, b) = (&mut pair.a.endpoint, &mut pair.b.endpoint);
    // While the one sends what its ring cannot hold, the other sends much, which is taken out of its way.
    thread::scope(|scope| {
        scope.spawn(|| {
            let Ok(Event::Message(mut message)) = b.wait(Some(PATIENCE)) else { panic!("no message") };
            for number in 0..SAID {
                b.send(at_b, &number.to_le_bytes()).expect("room");
            }
            // Until then there is no room, and whoever waits for it looks what else there is.
            thread::sleep(Duration::from_millis(200));
            b.read(&mut message, &mut vec![0; 1 << 20]).expect("a payload");
        });
        a.outgoing(at_a).expect("a slot").attach_copy(&vec![1; 1 << 20]).send().expect("sent");
    });
    let payload = vec![2; 60_000];
    let mut send = || a.outgoing(at_a).expect("a slot").attach_copy(&payload).send().map(|_| ());
    assert_eq!(send(), Ok(()), "all of the ring is free");
    assert_eq!(send(), Err(SendError::Full), "it would have to wait, and has not received what came");
    assert_eq!(a.counter(Counter::Full), 1);
}

/// A sleeper that was rung for and has not run yet is not rung for again.
#[test]
fn one_ring_wakes_a_sleeper() {
    let mut pair = SharedMemory::new().pair(Config::default(), Config::default());
    let channel = pair.a.channel;
    let rest = |endpoint: &mut Endpoint| {
        let (begun, mut came) = (Instant::now(), 0);
        loop {
            while let Some(event) = endpoint.poll() {
                came += u64::from(matches!(event, Event::Message(_)));
            }
            if endpoint.arm() {
                return came;
            }
            assert!(begun.elapsed() < PATIENCE);
        }
    };
    assert_eq!(rest(&mut pair.b.endpoint), 0);
    for sleep in 1..4 {
        for number in 0..100_u64 {
            pair.a.endpoint.send(channel, &number.to_le_bytes()).expect("room");
        }
        assert_eq!(pair.a.endpoint.counter(Counter::WakesSent), sleep);
        assert_eq!(rest(&mut pair.b.endpoint), 100);
    }
}
