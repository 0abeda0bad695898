//! Nodes that open channels while they do something else.

mod two;

use std::sync::mpsc;
use std::time::{Duration, Instant};

use cutthrough::am::{Args, Event, Node, Settings};
use two::{Over, PATIENCE, small};

over_both! {
    a_channel_opens_between_calls, a_continuation_gets_the_channel, what_was_given_up_is_not_told,
    what_was_found_while_a_call_was_waited_for_can_be_given_up, what_another_node_opens_is_not_given_up,
}

const ECHO: u16 = 1;

fn echo(node: &mut Node) {
    node.short(ECHO, Args::Any, |request| {
        let args = request.args().to_vec();
        request.reply_bytes(&args);
    });
}

fn a_channel_opens_between_calls(over: Over) {
    let (server, mut node, first) = over.serve(echo);
    for round in 0..20 {
        let connecting = node.begin_connect(&server.address, PATIENCE).expect("begun");
        // Calls on another channel go on, and do not lose what is told of this one.
        for word in 0..10 {
            assert_eq!(node.call(first, ECHO, &[word], PATIENCE).expect("a reply").word(0), word);
        }
        let channel = match node.wait(Some(PATIENCE)) {
            Ok(Event::Connected(of, outcome)) if of == connecting => outcome.expect("a channel"),
            other => panic!("instead of an answer: {other:?}"),
        };
        assert_eq!(node.call(channel, ECHO, &[round], PATIENCE).expect("a reply").word(0), round);
        node.close(channel);
        assert!(matches!(node.wait(Some(PATIENCE)), Ok(Event::Closed(of, _)) if of == channel));
    }
}

fn a_continuation_gets_the_channel(over: Over) {
    let (server, mut node, _) = over.serve(echo);
    let (tell, told) = mpsc::channel();
    let its = tell.clone();
    node.connect_then(&server.address, PATIENCE, move |outcome| its.send(outcome).expect("heard")).expect("begun");
    let outcome = loop {
        // It is no event.
        if let Ok(event) = node.wait(Some(Duration::from_millis(1))) {
            panic!("told of what a continuation has got: {event:?}");
        }
        if let Ok(outcome) = told.try_recv() {
            break outcome;
        }
    };
    let channel = outcome.expect("a channel");
    assert_eq!(node.call(channel, ECHO, &[7], PATIENCE).expect("a reply").word(0), 7);
    // One that fails is told as well, at once or by the continuation.
    let (server, mut silent) = (server.end(), Over::node(small(), Settings::default()));
    drop(server);
    let nobody = format!("{}-nobody", std::process::id());
    let (address, time) = match over {
        Over::Shm => (format!("shm:{nobody}"), PATIENCE),
        Over::Udp => ("udp:127.0.0.1:9".to_owned(), Duration::from_millis(50)),
    };
    let begun = silent.connect_then(&address, time, move |outcome| tell.send(outcome).expect("heard"));
    if begun.is_ok() {
        let failed = loop {
            let _ = silent.wait(Some(Duration::from_millis(1)));
            if let Ok(outcome) = told.try_recv() {
                break outcome;
            }
        };
        failed.expect_err("nobody is there");
    }
}

fn what_was_given_up_is_not_told(over: Over) {
    let (server, mut node, channel) = over.serve(echo);
    let (tell, told) = mpsc::channel();
    for _ in 0..5 {
        let its = tell.clone();
        let connecting = node
            .connect_then(&server.address, PATIENCE, move |outcome| its.send(outcome.is_ok()).expect("heard"))
            .expect("begun");
        assert!(node.cancel_connect(connecting));
    }
    for word in 0..100 {
        assert_eq!(node.call(channel, ECHO, &[word], PATIENCE).expect("a reply").word(0), word);
    }
    assert!(node.wait(Some(Duration::from_millis(30))).is_err());
    assert!(told.try_recv().is_err());
    assert_eq!(node.channels().count(), 1);
}

/// The channel is there by the time that a call on another one has its reply, but nobody was told of it.
fn what_was_found_while_a_call_was_waited_for_can_be_given_up(over: Over) {
    let (server, mut node, first) = over.serve(echo);
    for round in 0..5 {
        let connecting = node.begin_connect(&server.address, PATIENCE).expect("begun");
        let since = Instant::now();
        for word in 0.. {
            assert_eq!(node.call(first, ECHO, &[word], PATIENCE).expect("a reply").word(0), word);
            if node.channels().count() == 2 {
                break;
            }
            assert!(since.elapsed() < PATIENCE, "no channel in round {round}");
        }
        assert!(node.cancel_connect(connecting), "it was not told");
        assert!(!node.cancel_connect(connecting), "once");
        assert_eq!(node.channels().collect::<Vec<_>>(), [first]);
    }
    if let Ok(event) = node.wait(Some(Duration::from_millis(30))) {
        panic!("told of what was given up: {event:?}");
    }
}

/// The second channel of each node of a process had the same name.
fn what_another_node_opens_is_not_given_up(over: Over) {
    let (server, mut node, _) = over.serve(echo);
    let mut other = Over::node(small(), Settings::default());
    other.connect(&server.address, PATIENCE).expect("a channel");
    let connecting = node.begin_connect(&server.address, PATIENCE).expect("begun");
    let others = other.begin_connect(&server.address, PATIENCE).expect("begun");
    assert_ne!(connecting, others);
    assert!(!node.cancel_connect(others), "it is another node's");
    for (node, connecting) in [(&mut node, connecting), (&mut other, others)] {
        match node.wait(Some(PATIENCE)) {
            Ok(Event::Connected(of, outcome)) if of == connecting => drop(outcome.expect("a channel")),
            other => panic!("instead of an answer: {other:?}"),
        }
        assert_eq!(node.channels().count(), 2);
    }
}
