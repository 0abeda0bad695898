//! Nodes that the system does not let wait any more.

use std::os::fd::{AsFd, AsRawFd};

use cutthrough::am::{Args, CallError, Event, Node, RequestError, Settings};
use cutthrough::{Config, Endpoint};

use crate::child::{Folder, PATIENCE, config};

/// Puts a file in the place of what a node waits by.
fn deafen(node: &Node) {
    let null = std::fs::File::open("/dev/null").expect("it is there");
    let waits_by = node.endpoint().as_fd().as_raw_fd();
    // SAFETY: the number is of an open file of the node's before and after, and the node closes it.
    assert_eq!(unsafe { libc::dup3(null.as_raw_fd(), waits_by, libc::O_CLOEXEC) }, waits_by);
}

/// Nobody knows whether a request was served when waiting for its reply failed: it was said that it was not sent.
#[test]
fn a_request_that_was_sent_is_not_called_unsent_when_waiting_fails() {
    let folder = Folder::new();
    let mut far = Node::new(Endpoint::open(config()).expect("an endpoint"), Settings::default());
    far.short(1, Args::Any, |request| request.reply(&[7]));
    far.listen(&folder.address()).expect("the name");
    let settings = Config { slots: 16, ..config() };
    let mut node = Node::new(Endpoint::open(settings).expect("an endpoint"), Settings::default());
    let connecting = node.begin_connect(&folder.address(), PATIENCE).expect("begun");
    let channel = loop {
        drop(far.poll());
        if let Some(Event::Connected(of, outcome)) = node.poll() {
            assert_eq!(of, connecting);
            break outcome.expect("a channel");
        }
    };
    deafen(&node);
    let call = node.request(channel, 1, &[]).expect("room");
    let error = node.wait_for(call, PATIENCE).expect_err("it cannot wait").error;
    assert_eq!((error, error.may_have_run()), (CallError::Wait, true));
    // What was given up is told by no later event.
    for _ in 0..1000 {
        drop(far.poll());
        assert!(node.poll().is_none());
    }
    // And of what has found no room nothing was sent.
    while node.request(channel, 1, &[]).is_ok() {}
    assert_eq!(node.wait_for_room(channel, Some(PATIENCE)), Err(RequestError::Wait));
    assert!(!RequestError::Wait.may_have_run());
}
