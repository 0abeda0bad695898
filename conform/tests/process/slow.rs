//! An endpoint that is polled slowly, and never armed: callers are let in and ends are heard of all the same.

use std::thread;
use std::time::Duration;

use cutthrough::{Channel, CloseReason, Endpoint, Event};

use crate::child::{Folder, Other, PATIENCE, config};

/// Time between two polls.
const NAP: Duration = Duration::from_millis(5);
/// Polls within which everything is heard of: more than are needed, and fewer than a fixed distance would take.
const SOON: u32 = 300;
/// Slow polls after which an endpoint has noticed how slow they are.
const USED: u32 = 140;

/// Polls slowly until something happens: what, and at which poll.
fn slowly(endpoint: &mut Endpoint) -> (Event, u32) {
    for polls in 1..=SOON {
        if let Some(event) = endpoint.poll() {
            return (event, polls);
        }
        thread::sleep(NAP);
    }
    panic!("nothing was heard of in {SOON} polls");
}

/// Lets a caller in while it polls slowly.
fn caller(endpoint: &mut Endpoint) -> Channel {
    match slowly(endpoint) {
        (Event::Opened(channel), _) => channel,
        other => panic!("{other:?}"),
    }
}

/// An endpoint that listens and has been polled so often that it looks rarely at the clock.
fn quick(folder: &Folder) -> Endpoint {
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    endpoint.listen(&folder.address()).expect("a free name");
    for _ in 0..100_000 {
        assert!(endpoint.poll().is_none());
    }
    endpoint
}

#[test]
fn a_slow_poller_lets_callers_in_and_hears_them_leave() {
    let folder = Folder::new();
    let mut endpoint = quick(&folder);
    let address = folder.address();
    let caller_side = thread::spawn(move || {
        let mut endpoint = Endpoint::open(config()).expect("an endpoint");
        endpoint.connect(&address, PATIENCE).expect("a channel");
        endpoint
    });
    let channel = caller(&mut endpoint);
    // The caller may have been heard of at the first slow poll, which shows nothing of the pace.
    for _ in 0..USED {
        assert!(endpoint.poll().is_none());
        thread::sleep(NAP);
    }
    drop(caller_side.join().expect("the caller"));
    let (event, polls) = slowly(&mut endpoint);
    assert!(matches!(event, Event::Closed(closed, CloseReason::Peer) if closed == channel), "{event:?}");
    assert!(polls <= 20, "it was heard of after {polls} polls");
}

#[test]
fn a_slow_poller_hears_of_a_death() {
    let folder = Folder::new();
    let mut endpoint = quick(&folder);
    let other = Other::start(Other::command("connect-hold", &folder.address()));
    // The other process takes its time to start.
    let channel = loop {
        if let Some(Event::Opened(channel)) = endpoint.poll() {
            break channel;
        }
    };
    for _ in 0..100_000 {
        assert!(endpoint.poll().is_none());
    }
    drop(other);
    let (event, _) = slowly(&mut endpoint);
    assert!(matches!(event, Event::Closed(closed, CloseReason::Died) if closed == channel), "{event:?}");
}
