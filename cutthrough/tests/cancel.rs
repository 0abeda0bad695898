//! Calls that are cancelled: nothing more is told of them, wherever their answer is.

mod two;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cutthrough::Landing;
use cutthrough::am::{Args, Body, Call, CallError, Deferred, Failure, Settings};
use two::{Over, PATIENCE, meet, small, until};

over_both! {
    nothing_is_told_of_a_call_that_is_cancelled_after_its_answer_has_come, a_call_of_another_node_is_not_cancelled,
    who_has_cancelled_a_call_can_make_another_at_once, who_keeps_requests_keeps_nobody_from_making_others,
}

const PAID: u16 = 1;
const BARE: u16 = 2;
const FAILED: u16 = 3;

/// What had come while somebody waited for another call was told all the same, and the place was lost with it.
fn nothing_is_told_of_a_call_that_is_cancelled_after_its_answer_has_come(over: Over) {
    let (_server, mut node, channel) = over.serve_with(small(), Settings::default(), |node| {
        node.short(PAID, Args::Any, |request| request.reply_with(&[], Body::Copy(&[7; 100])));
        node.short(BARE, Args::Any, |request| request.reply(&[1]));
        node.short(FAILED, Args::Any, |request| request.fail(Failure::Abandoned));
    });
    let place = || Landing::Buffer(vec![0; 100]);
    for (handler, given_back) in [(BARE, Some(place())), (FAILED, Some(place())), (PAID, None)] {
        let before = node.request(channel, BARE, &[]).expect("room");
        let call = node.ask(channel, handler).reply_into(place()).send().expect("room");
        let unplaced = node.request(channel, handler, &[]).expect("room");
        let last = node.request(channel, BARE, &[]).expect("room");
        // Requests of a channel are answered in order: by then the others' answers have come.
        node.wait_for(last, PATIENCE).expect("a reply");
        assert_eq!(node.cancel(call), given_back, "the place, of handler {handler}");
        assert_eq!(node.cancel(unplaced), None);
        assert_eq!((node.cancel(call), node.cancel(last)), (None, None), "once");
        let replied = |event| match event {
            Ok(cutthrough::am::Event::Replied(reply)) => reply.call(),
            other => panic!("instead of a reply: {other:?}"),
        };
        let told: Call = replied(node.wait(Some(PATIENCE)));
        assert_eq!(told, before, "of a call that was not cancelled");
        let more = node.wait(Some(Duration::from_millis(20)));
        assert!(more.is_err(), "{more:?} is told of a call that was cancelled");
    }
}

/// The first call of each node of a process had the same name.
fn a_call_of_another_node_is_not_cancelled(over: Over) {
    let (server, mut node, channel) = over.serve(|node| {
        node.short(BARE, Args::Any, |request| request.reply(&[1]));
    });
    let mut other = Over::node(small(), Settings::default());
    let others_channel = other.connect(&server.address, PATIENCE).expect("a channel");
    let call = node.request(channel, BARE, &[]).expect("room");
    let others = other.request(others_channel, BARE, &[]).expect("room");
    assert_ne!(call, others);
    assert_eq!(node.cancel(others), None);
    assert_eq!(node.wait_for(call, PATIENCE).expect("it was not cancelled").word(0), 1);
    assert_eq!(other.wait_for(others, PATIENCE).expect("nor this one").word(0), 1);
}

/// There was none before the next poll, which told the peer of it.
fn who_has_cancelled_a_call_can_make_another_at_once(over: Over) {
    let (mut far, address) = over.listening(small(), Settings::default());
    let deferred = Arc::new(Mutex::new(None));
    let its = Arc::clone(&deferred);
    far.short(BARE, Args::Any, move |request| *its.lock().expect("the place") = Some(request.defer()));
    let mut node = Over::node(small(), Settings::default());
    let channel = meet(&mut far, &mut node, &address);
    let call = node.request(channel, BARE, &[]).expect("room");
    until("it has come", || {
        assert!(far.poll().is_none());
        deferred.lock().expect("the place").is_some()
    });
    let first = deferred.lock().expect("the place").take().expect("it has come");
    assert!(!first.is_over());
    assert_eq!(node.cancel(call), None);
    node.request(channel, BARE, &[]).expect("room for another");
    until("the server hears of it, though nobody polls", || {
        assert!(far.poll().is_none());
        first.is_over()
    });
}

/// As whoever holds back answers until there is news: calls of it that were late had all of the window.
fn who_keeps_requests_keeps_nobody_from_making_others(over: Over) {
    const KEPT: u16 = 7;
    let kept = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&kept);
    let settings = Settings { window: 4, ..Settings::default() };
    let (server, mut node, channel) = over.serve_with(small(), settings, |node| {
        node.short(KEPT, Args::Any, move |request| its.lock().expect("the list").push(request.defer()));
        node.short(BARE, Args::Any, |request| request.reply(&[1]));
    });
    for round in 0..20 {
        let late = node.call(channel, KEPT, &[], Duration::from_millis(2)).expect_err("nobody answers it");
        assert!(matches!(late.error, CallError::Late | CallError::Failed(Failure::Late)), "in round {round}: {late:?}");
        assert_eq!(node.call(channel, BARE, &[], PATIENCE).expect("a reply").word(0), 1);
    }
    until("the server knows that they are over", || {
        // On a busy machine some were late before they came.
        kept.lock().expect("the list").iter().all(Deferred::is_over)
    });
    // What is answered in the end is told to nobody.
    let mut far = server.end();
    for deferred in kept.lock().expect("the list").drain(..) {
        far.answer(deferred, &[7; 4], Body::None);
    }
    while far.poll().is_some() {}
    let told = node.wait(Some(Duration::from_millis(20)));
    assert!(told.is_err(), "{told:?} is told of a call that was late");
}
