//! Nodes that sleep on their file descriptor, in a loop of their user's.

mod two;

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cutthrough::am::{Args, CallError, Deferred, Event, Node, Settings};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use two::{Over, PATIENCE, Server, small};

over_both! { no_request_is_slept_over, what_is_due_ends_a_sleep }

const ECHO: u16 = 1;
const LATER: u16 = 2;

/// What happens next, slept for on the descriptor; with it how often that was for no time at all.
fn next(node: &mut Node, longest: Duration) -> (Option<Event>, u32) {
    let (since, mut awake) = (Instant::now(), 0);
    loop {
        if let Some(event) = node.poll() {
            return (Some(event), awake);
        }
        let left = longest.saturating_sub(since.elapsed());
        if left.is_zero() {
            return (None, awake);
        }
        let limit = node.arm().unwrap_or(longest);
        awake += u32::from(limit.is_zero());
        let timeout = Timespec::try_from(limit.min(left)).expect("a short time");
        poll(&mut [PollFd::new(&node.endpoint().as_fd(), PollFlags::IN)], Some(&timeout)).expect("a descriptor");
    }
}

fn no_request_is_slept_over(over: Over) {
    let (mut node, address) = over.listening(small(), Settings::default());
    node.short(ECHO, Args::Words(1), |request| {
        let word = request.word(0);
        request.reply(&[word]);
    });
    let over_with = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&over_with);
    let server = std::thread::spawn(move || {
        while !its.load(Ordering::Relaxed) {
            let (event, _) = next(&mut node, Duration::from_millis(100));
            assert!(matches!(event, None | Some(Event::Opened(_) | Event::Closed(..))), "{event:?}");
        }
    });
    let mut node = Over::node(small(), Settings::default());
    let channel = node.connect(&address, PATIENCE).expect("a channel");
    let since = Instant::now();
    for word in 0..200 {
        // Some come while it looks, others while it sleeps.
        std::thread::sleep(Duration::from_micros(u64::from(word % 4) * 200));
        assert_eq!(node.call(channel, ECHO, &[word], PATIENCE).expect("a reply").word(0), word);
    }
    // A request that was slept over would be found after 100 ms.
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    over_with.store(true, Ordering::Relaxed);
    server.join().expect("no panic");
}

fn what_is_due_ends_a_sleep(over: Over) {
    let (mut node, address) = over.listening(small(), Settings::default());
    let mut kept: Vec<Deferred> = Vec::new();
    node.short(LATER, Args::Words(0), move |request| kept.push(request.defer()));
    let _server = Server::run(node, address.clone());
    let mut node = Over::node(small(), Settings::default());
    let channel = node.connect(&address, PATIENCE).expect("a channel");
    let since = Instant::now();
    let within = Duration::from_millis(100);
    node.ask(channel, LATER).within(within).send().expect("room");
    match next(&mut node, PATIENCE) {
        (Some(Event::Failed(failed)), awake) => {
            assert_eq!(failed.error, CallError::Late);
            assert!(awake < 1000, "it was awake {awake} times in 100 ms");
        }
        other => panic!("instead of the end of its call: {other:?}"),
    }
    assert!(since.elapsed() >= within && since.elapsed() < PATIENCE / 2, "{:?}", since.elapsed());
}
