//! What a node refuses, throws away or waits for in vain is counted, each once.

mod two;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cutthrough::am::{Args, CallError, Deferred, Ended, Event, Failure, Node, Settings};
use cutthrough::{Channel, CloseReason, Config, Counter, Endpoint};
use two::{Over, PATIENCE, meet, next};

over_both! { refusals_are_counted, what_is_no_active_message_is_counted }

const LATER: u16 = 1;
const NO: u16 = 2;
const NOBODY: u16 = 3;

/// Refused, busy, late, abandoned, broken.
fn counts(node: &Node) -> [u64; 5] {
    let counters = [
        Counter::RequestsRefused,
        Counter::RequestsBusy,
        Counter::CallsLate,
        Counter::RepliesAbandoned,
        Counter::BreachMessage,
    ];
    counters.map(|counter| node.endpoint().counter(counter))
}

fn refusals_are_counted(over: Over) {
    let held: Arc<Mutex<Vec<Deferred>>> = Arc::default();
    let (mut far, address) = over.listening(Config::default(), Settings { serve: 1, ..Settings::default() });
    let its = Arc::clone(&held);
    far.short(LATER, Args::Any, move |request| its.lock().expect("the list").push(request.defer()));
    far.short(NO, Args::Any, |request| request.refuse(b"no"));
    let mut node = Over::node(Config::default(), Settings::default());
    let channel = meet(&mut far, &mut node, &address);
    let fails = |far: &mut Node, node: &mut Node, handler| {
        node.request(channel, handler, &[]).expect("room");
        match next(far, node) {
            Event::Failed(failed) => failed.error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(fails(&mut far, &mut node, NOBODY), Failure::Unknown.into());
    assert_eq!(counts(&far), [1, 0, 0, 0, 0]);
    let deferred = node.request(channel, LATER, &[]).expect("room");
    for _ in 0..2 {
        assert_eq!(fails(&mut far, &mut node, LATER), Failure::Busy.into());
    }
    assert_eq!(counts(&far), [1, 2, 0, 0, 0]);
    // Thrown away, the right to answer is an answer, too.
    held.lock().expect("the list").clear();
    match next(&mut far, &mut node) {
        Event::Failed(failed) => {
            assert_eq!((failed.call, failed.error), (deferred, Failure::Abandoned.into()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(counts(&far), [1, 2, 0, 1, 0]);
    // Nobody looks at the server until the call is late.
    let late = node.ask(channel, NO).within(Duration::from_millis(20)).send().expect("room");
    match node.wait(Some(PATIENCE)) {
        Ok(Event::Failed(failed)) => assert_eq!((failed.call, failed.error), (late, CallError::Late)),
        other => panic!("{other:?}"),
    }
    assert_eq!(counts(&node), [0, 0, 1, 0, 0]);
    let late = node.call(channel, NO, &[], Duration::from_millis(20));
    assert_eq!(late.map(drop), Err(CallError::Late.into()));
    assert_eq!(counts(&node), [0, 0, 2, 0, 0]);
    // Both were served in the end, as the next one is.
    assert_eq!(fails(&mut far, &mut node, NO), Failure::Refused.into());
    assert_eq!((counts(&far), counts(&node)), ([4, 2, 0, 1, 0], [0, 0, 2, 0, 0]));
}

fn what_is_no_active_message_is_counted(over: Over) {
    let (mut far, address) = over.listening(Config::default(), Settings::default());
    let mut raw = Endpoint::open(Config { insecure: true, ..Config::default() }).expect("an endpoint");
    let (opened, channel): (Event, Channel) = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| raw.connect(&address, PATIENCE).expect("a channel"));
        let opened = far.wait(Some(PATIENCE)).expect("a peer");
        (opened, connecting.join().expect("the other thread"))
    });
    let Event::Opened(from) = opened else { panic!("{opened:?}") };
    raw.send(channel, b"no active message").expect("room");
    match far.wait(Some(PATIENCE)) {
        Ok(Event::Closed(channel, Ended::Broken(_))) => assert_eq!(channel, from),
        other => panic!("{other:?}"),
    }
    assert_eq!(counts(&far), [0, 0, 0, 0, 1]);
    assert_eq!(far.endpoint().counter(Counter::ChannelsClosed), 1);
    // It hears what anybody hears whose channel is closed.
    match raw.wait(Some(PATIENCE)) {
        Ok(cutthrough::Event::Closed(of, reason)) => assert_eq!((of, reason), (channel, CloseReason::Peer)),
        other => panic!("{other:?}"),
    }
}
