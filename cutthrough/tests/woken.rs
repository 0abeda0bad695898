//! A node's waits end when another thread says so.

mod two;

use std::time::Duration;

use cutthrough::WaitError;
use cutthrough::am::{Args, Settings};
use two::{Over, PATIENCE, small};

over_both! { a_node_is_woken, a_node_that_is_woken_in_a_call_is_told_afterwards }

const CALL: u16 = 1;

fn a_node_is_woken(over: Over) {
    let (mut node, _) = over.listening(small(), Settings::default());
    let waker = node.endpoint().waker();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Until the node sleeps.
            std::thread::sleep(Duration::from_millis(5));
            waker.wake();
        });
        let woken = node.wait(None);
        assert!(matches!(woken, Err(WaitError::Woken)), "{woken:?}");
    });
}

/// A call waits for its reply all the same.
fn a_node_that_is_woken_in_a_call_is_told_afterwards(over: Over) {
    let mut mine = Over::node(small(), Settings::default());
    let waker = mine.endpoint().waker();
    let (server, ..) = over.serve(|node| {
        node.short(CALL, Args::Words(0), move |request| {
            waker.wake();
            // Until the caller has looked for its reply, and slept.
            std::thread::sleep(Duration::from_millis(20));
            request.reply(&[7]);
        });
    });
    let channel = mine.connect(&server.address, PATIENCE).expect("a channel");
    let reply = mine.call(channel, CALL, &[], PATIENCE).expect("a reply");
    assert_eq!(reply.word(0), 7);
    let woken = mine.wait(Some(PATIENCE));
    assert!(matches!(woken, Err(WaitError::Woken)), "{woken:?}");
}
