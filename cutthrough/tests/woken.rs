//! A node's waits end when another thread says so; and nothing else wakes it.

mod two;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cutthrough::am::{Args, Continuing, Settings};
use cutthrough::{Counter, WaitError};
use two::{Over, PATIENCE, small};

over_both! {
    a_node_is_woken, a_node_that_is_woken_in_a_call_is_told_afterwards, who_waits_for_a_full_window_sleeps,
    who_waits_for_a_full_ring_hears_of_room,
}

const CALL: u16 = 1;
const ANSWERED: u16 = 5;

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

/// Room comes with answers that are told to nobody: who waits for it sleeps until then, and looks when one has come.
fn who_waits_for_a_full_window_sleeps(over: Over) {
    let settings = Settings { window: 3, ..Settings::default() };
    let put_off = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&put_off);
    let (_server, mut node, channel) = over.serve_with(small(), settings, |node| {
        node.short(CALL, Args::Any, move |request| its.lock().expect("the list").push(request.defer()));
    });
    let answered = Arc::new(AtomicU32::new(0));
    for _ in 0..3 {
        let its = Arc::clone(&answered);
        let counts = move |_: &mut Continuing<'_>, _| {
            its.fetch_add(1, Ordering::Relaxed);
        };
        node.ask(channel, CALL).send_then(counts).expect("room");
    }
    let before = node.endpoint().counter(Counter::Sleeps);
    let waited = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            put_off.lock().expect("the list").clear();
        });
        node.wait_for_room(channel, Some(PATIENCE))
    });
    assert_eq!(waited, Ok(()));
    let slept = node.endpoint().counter(Counter::Sleeps) - before;
    // Over a network it is woken by what keeps a channel alive, too.
    assert!((1..20).contains(&slept), "woken {slept} times");
    assert!(answered.load(Ordering::Relaxed) > 0, "there was room before");
}

/// The window has room as soon as the first answer has come, and the ring only when the server goes on.
fn who_waits_for_a_full_ring_hears_of_room(over: Over) {
    let put_off = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&put_off);
    let settings = Settings { window: 16, ..Settings::default() };
    let mut served = 0;
    let (_server, mut node, channel) = over.serve_with(small(), settings, move |node| {
        node.short(CALL, Args::Any, move |request| {
            served += 1;
            if served == 1 {
                return request.reply(&[1]);
            }
            if served == 2 {
                // Until the other side has looked, has found no room, and sleeps.
                std::thread::sleep(Duration::from_millis(20));
            }
            its.lock().expect("the list").push(request.defer());
        });
    });
    node.on_reply(ANSWERED, |_| ());
    while node.ask(channel, CALL).then(ANSWERED).send().is_ok() {}
    let begun = Instant::now();
    assert_eq!(node.wait_for_room(channel, Some(PATIENCE)), Ok(()));
    // When the calls are late it looks again.
    assert!(begun.elapsed() < Settings::default().deadline, "there is room, and nobody said so");
}
