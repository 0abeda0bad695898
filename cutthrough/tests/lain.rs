//! Requests that have lain somewhere while their server did something else: what nobody waits for any more is not
//! begun.

mod two;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cutthrough::Channel;
use cutthrough::am::{Args, Body, Call, CallError, Event, Failure, Node, Service, Settings};
use cutthrough::rpc::{Client, Method, RpcError, serve};
use two::{Over, PATIENCE, meet, next, small, until};

over_both! {
    what_was_given_up_while_nobody_polled_is_not_begun,
    what_a_client_has_given_up_is_not_begun,
    what_lies_before_the_first_request_is_begun,
    who_was_handed_a_request_counts_from_then,
}

const WORK: u16 = 1;
/// As long as a server does something else.
const AWAY: Duration = Duration::from_millis(300);
const LITTLE: Duration = Duration::from_millis(100);
/// What is left of a time that is long enough.
const MUCH: Duration = Duration::from_secs(10);

/// How often a handler has run, and what it was told to be left when it ran last.
#[derive(Default)]
struct Ran {
    times: AtomicU32,
    left: Mutex<Duration>,
}

impl Ran {
    fn times(&self) -> u32 {
        self.times.load(Ordering::Relaxed)
    }
}

/// A node that counts how often its handler runs.
fn counting(over: Over) -> (Node, String, Arc<Ran>) {
    let (mut far, address) = over.listening(small(), Settings::default());
    let ran = Arc::new(Ran::default());
    let its = Arc::clone(&ran);
    far.short(WORK, Args::Any, move |request| {
        its.times.fetch_add(1, Ordering::Relaxed);
        *its.left.lock().expect("the time") = request.remaining().expect("all of these say it");
        request.reply(&[7]);
    });
    (far, address, ran)
}

fn ask(node: &mut Node, channel: Channel, within: Duration) -> Call {
    node.ask(channel, WORK).within(within).send().expect("room")
}

/// A few calls while the server does nothing else.
fn serves(far: &mut Node, node: &mut Node, channel: Channel) {
    for _ in 0..5 {
        let call = ask(node, channel, PATIENCE);
        assert!(matches!(next(far, node), Event::Replied(reply) if reply.call() == call && reply.word(0) == 7));
    }
    assert!(far.poll().is_none());
}

fn what_was_given_up_while_nobody_polled_is_not_begun(over: Over) {
    let (mut far, address, ran) = counting(over);
    let mut node = Over::node(small(), Settings::default());
    let channel = meet(&mut far, &mut node, &address);
    serves(&mut far, &mut node, channel);
    for round in 0..3 {
        let before = ran.times();
        let dead: Vec<Call> = (0..3).map(|_| ask(&mut node, channel, LITTLE)).collect();
        let alive = ask(&mut node, channel, MUCH);
        std::thread::sleep(AWAY);
        for _ in 0..dead.len() {
            let Ok(Event::Failed(failed)) = node.wait(Some(PATIENCE)) else { panic!("round {round}: they are late") };
            assert!(dead.contains(&failed.call) && failed.error == CallError::Late, "round {round}: {failed:?}");
        }
        let event = next(&mut far, &mut node);
        assert!(matches!(event, Event::Replied(reply) if reply.call() == alive), "round {round}");
        assert_eq!(ran.times(), before + 1, "round {round}: one of them was waited for");
        let left = *ran.left.lock().expect("the time");
        assert!(left < MUCH - AWAY + LITTLE, "round {round}: {left:?}");
        serves(&mut far, &mut node, channel);
    }
}

/// Whose calls are made without a look at the clock.
fn what_a_client_has_given_up_is_not_begun(over: Over) {
    const ADD: Method<(u32, u32), u32> = Method::new(5);
    let (mut far, address) = over.listening(small(), Settings::default());
    let ran = Arc::new(AtomicU32::new(0));
    let its = Arc::clone(&ran);
    serve(&mut far, ADD, move |(one, other)| {
        its.fetch_add(1, Ordering::Relaxed);
        Ok(one + other)
    });
    let client = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            let node = Over::node(small(), Settings::default());
            let service = Arc::new(Service::spawn(node, |_| ()).expect("a thread"));
            Client::connect(service, &address, PATIENCE).expect("a channel")
        });
        assert!(matches!(far.wait(Some(PATIENCE)), Ok(Event::Opened(_))));
        connecting.join().expect("the other thread")
    });
    let calls = |far: &mut Node, times: u32| {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..times).for_each(|_| assert_eq!(client.call(ADD, &(20, 22)), Ok(42)));
                over.store(true, Ordering::Relaxed);
            });
            until("all are answered", || {
                assert!(far.poll().is_none());
                over.load(Ordering::Relaxed)
            });
        });
        assert!(far.poll().is_none());
    };
    calls(&mut far, 20);
    let before = ran.load(Ordering::Relaxed);
    let hasty = client.within(LITTLE);
    for _ in 0..3 {
        assert_eq!(hasty.call(ADD, &(1, 2)), Err(RpcError::Call(CallError::Late)));
    }
    // A little less than they have waited may be known of the last.
    std::thread::sleep(LITTLE);
    calls(&mut far, 20);
    assert_eq!(ran.load(Ordering::Relaxed), before + 20, "nobody has waited for the others");
}

/// Of a channel that has said nothing before nothing is known.
fn what_lies_before_the_first_request_is_begun(over: Over) {
    let (mut far, address, ran) = counting(over);
    let mut node = Over::node(small(), Settings::default());
    let channel = meet(&mut far, &mut node, &address);
    ask(&mut node, channel, LITTLE);
    std::thread::sleep(AWAY);
    assert!(matches!(node.wait(Some(PATIENCE)), Ok(Event::Failed(failed)) if failed.error == CallError::Late));
    let alive = ask(&mut node, channel, MUCH);
    assert!(matches!(next(&mut far, &mut node), Event::Replied(reply) if reply.call() == alive));
    assert_eq!(ran.times(), 2);
    // From then on it is.
    ask(&mut node, channel, LITTLE);
    std::thread::sleep(AWAY);
    serves_late_ones(&mut far, &mut node);
    assert_eq!(ran.times(), 2);
}

fn serves_late_ones(far: &mut Node, node: &mut Node) {
    assert!(matches!(node.wait(Some(PATIENCE)), Ok(Event::Failed(failed)) if failed.error == CallError::Late));
    for _ in 0..1000 {
        assert!(far.poll().is_none() && node.poll().is_none());
    }
}

/// What is left goes on, and who has it counts by the stamps of who has handed it over.
fn who_was_handed_a_request_counts_from_then(over: Over) {
    let (mut c, at_c, ran) = counting(over);
    let (mut b, at_b) = over.listening(small(), Settings::default());
    let to_c = meet(&mut c, &mut b, &at_c);
    b.short(7, Args::Any, move |request| {
        if let Err((error, request)) = request.hand_over(to_c, WORK, &[], Body::None) {
            request.fail(Failure::Busy);
            panic!("{error}");
        }
    });
    let mut a = Over::node(small(), Settings::default());
    let to_b = meet(&mut b, &mut a, &at_b);
    meet(&mut c, &mut a, &at_c);
    let ask = |a: &mut Node, within| a.ask(to_b, 7).within(within).send().expect("room");
    let replied = |a: &mut Node, b: &mut Node, c: &mut Node, call| {
        until("it is answered", || {
            assert!(b.poll().is_none() && c.poll().is_none());
            let event = a.poll();
            event.is_some_and(|event| matches!(event, Event::Replied(reply) if reply.call() == call))
        });
        (0..1000).for_each(|_| assert!(b.poll().is_none() && c.poll().is_none()));
    };
    for _ in 0..5 {
        let call = ask(&mut a, PATIENCE);
        replied(&mut a, &mut b, &mut c, call);
    }
    let before = ran.times();
    ask(&mut a, LITTLE);
    let alive = ask(&mut a, MUCH);
    // Half of its time it lies at the one, the rest at the other.
    std::thread::sleep(LITTLE / 2);
    (0..1000).for_each(|_| assert!(b.poll().is_none()));
    std::thread::sleep(AWAY);
    let Ok(Event::Failed(failed)) = a.wait(Some(PATIENCE)) else { panic!("it is late") };
    // By its own clock, or that of who has handed it over.
    assert!(matches!(failed.error, CallError::Late | CallError::Failed(Failure::Late)), "{failed:?}");
    replied(&mut a, &mut b, &mut c, alive);
    assert_eq!(ran.times(), before + 1);
    let left = *ran.left.lock().expect("the time");
    assert!(left < MUCH - AWAY && left > MUCH - 3 * AWAY, "{left:?}");
}
