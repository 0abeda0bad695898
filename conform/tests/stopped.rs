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
