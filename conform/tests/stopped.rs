//! Who has not looked for a while, because it computed or its machine stood still: what was under way goes on. In
//! simulated time, where nobody looks instead.

use std::time::Duration;

use cutthrough::simulated::{Network, Time, Wire};
use cutthrough::{Channel, CloseReason, Config, Endpoint, Event, Instant};

const STEP: Duration = Duration::from_micros(200);
const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];
const AT_B: &str = "udp:10.0.0.2:7000";
/// How long both stand still: longer than a peer may be silent, and than an operation may make no progress.
const STOPPED: Duration = Duration::from_secs(25);

fn endpoint(network: &Network, host: [u8; 4]) -> Endpoint {
    Endpoint::open(Config { host: Some(network.host(host)), insecure: true, ..Config::default() }).expect("an endpoint")
}

/// Time passes until then, and nobody looks unless `looks` does.
fn until(time: &Time, end: Instant, mut looks: impl FnMut()) {
    while cutthrough::now() < end {
        time.pass(STEP);
        looks();
    }
}

fn joined(time: &Time, a: &mut Endpoint, b: &mut Endpoint) -> (Channel, Channel) {
    a.begin_connect(AT_B, Duration::from_secs(5)).expect("a call");
    let (mut ours, mut theirs) = (None, None);
    loop {
        time.pass(STEP);
        match a.poll() {
            Some(Event::Connected(_, opened)) => ours = Some(opened.expect("a channel")),
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        match b.poll() {
            Some(Event::Opened(opened)) => theirs = Some(opened),
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            return (ours, theirs);
        }
    }
}

/// Who has closed a channel gives it up if nothing is taken for the deadline. Time in which nobody could is none of it.
#[test]
fn what_was_sent_before_a_close_arrives_after_a_stop() {
    let time = Time::begin(1);
    let network = Network::new(1, Wire { latency: Duration::from_millis(2), ..Wire::default() });
    let (mut a, mut b) = (endpoint(&network, A), endpoint(&network, B));
    b.listen(AT_B).expect("a free port");
    let (ours, _) = joined(&time, &mut a, &mut b);
    let mut sent = 0_u32;
    while a.send(ours, &sent.to_le_bytes()).is_ok() {
        sent += 1;
    }
    a.close(ours);
    until(&time, cutthrough::now() + STOPPED, || ());
    let mut came = 0_u32;
    let reason = 'told: loop {
        time.pass(STEP);
        assert!(a.poll().is_none(), "it is closed");
        while let Some(event) = b.poll() {
            match event {
                Event::Message(message) => {
                    assert_eq!(message.control(), came.to_le_bytes());
                    came += 1;
                }
                Event::Closed(_, why) => break 'told why,
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!((reason, came), (CloseReason::Peer, sent));
}

/// A call that was answered in time is answered, also if its caller comes back from a sleep when its time is over.
#[test]
fn an_answer_that_came_in_time_counts_though_its_caller_looks_late() {
    let time = Time::begin(2);
    let network = Network::new(2, Wire { latency: Duration::from_millis(10), ..Wire::default() });
    let (mut a, mut b) = (endpoint(&network, A), endpoint(&network, B));
    b.listen(AT_B).expect("a free port");
    let begun = cutthrough::now();
    a.begin_connect(AT_B, Duration::from_millis(100)).expect("a call");
    // Who calls is asked first whether he does: by then he has said so, and is about to be let in.
    until(&time, begun + Duration::from_millis(30), || assert!(a.poll().is_none() && b.poll().is_none()));
    assert!(a.arm());
    until(&time, begun + Duration::from_millis(200), || assert!(b.poll().is_none()));
    let event = (0..100).find_map(|_| a.poll()).expect("what has become of it");
    let Event::Connected(_, Ok(channel)) = event else { panic!("{event:?}") };
    a.send(channel, b"here").expect("sent");
    let mut events = Vec::new();
    until(&time, begun + Duration::from_millis(300), || {
        assert!(a.poll().is_none());
        events.extend(b.poll());
    });
    assert!(matches!(&events[..], [Event::Opened(_), Event::Message(_)]), "{events:?}");
}

/// Who has asked a peer that was stopped before for signs of life, and is stopped itself then, does not give it up when
/// it wakes before that: its last question may have been asked just then, or just before.
#[test]
fn who_is_stopped_after_its_peer_asks_it_once_more() {
    let time = Time::begin(1);
    for alone in [100, 300, 500, 690, 800, 895] {
        let network = Network::new(alone, Wire { latency: Duration::from_millis(2), ..Wire::default() });
        let (mut a, mut b) = (endpoint(&network, A), endpoint(&network, B));
        b.listen(AT_B).expect("a free port");
        let (ours, _) = joined(&time, &mut a, &mut b);
        a.send(ours, b"still there?").expect("room");
        let looks = cutthrough::now().after(alone * 1_000_000);
        until(&time, looks, || assert!(a.poll().is_none()));
        until(&time, looks + STOPPED, || ());
        let wakes = cutthrough::now();
        // The machine is busy, and the other one gets its turn later.
        until(&time, wakes.after(50_000_000), || assert!(a.poll().is_none(), "after {alone} ms"));
        let mut heard = false;
        until(&time, wakes.after(2_000_000_000), || {
            assert!(a.poll().is_none(), "after {alone} ms");
            heard |= matches!(b.poll(), Some(Event::Message(_)));
        });
        assert!(heard && a.channels().count() == 1, "after {alone} ms");
        drop((a, b));
    }
}

/// Who looks rarely finds out that its peer is gone all the same, though each of its looks comes late.
#[test]
fn who_looks_rarely_hears_of_a_death() {
    let time = Time::begin(1);
    for every in [100, 226, 338, 400, 1000] {
        let network = Network::new(every, Wire { latency: Duration::from_millis(2), ..Wire::default() });
        let (mut a, mut b) = (endpoint(&network, A), endpoint(&network, B));
        b.listen(AT_B).expect("a free port");
        joined(&time, &mut a, &mut b);
        let stands = cutthrough::now();
        let mut end = None;
        while end.is_none() {
            until(&time, cutthrough::now().after(every * 1_000_000), || ());
            end = a.poll();
            assert!(cutthrough::now() < stands.after(10_000_000_000), "looking every {every} ms");
        }
        assert!(matches!(end, Some(Event::Closed(_, CloseReason::Died))), "{end:?}");
        drop((a, b));
    }
}
