//! Over shared memory, one side is killed or stopped at any instant: the other hears of it, and nothing stays behind.
//!
//! A program of its own: what another test has mapped meanwhile would be taken for something left.

mod child;

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{AddressError, Channel, CloseReason, Config, ConnectError, Endpoint, Event, ReadError, SendError};
use rustix::process::{Signal, kill_process};

use child::doings::{DOINGS, Doing};
use child::{Folder, Other, PATIENCE, config};

/// Only one test at a time has endpoints: each of them looks at last at what this process has mapped.
static ALONE: Mutex<()> = Mutex::new(());

/// Messages that one sends before it stands still.
const SAID: u64 = 500;

#[test]
fn other_side() {
    child::run(|part, address, say| match part {
        "say-much" => {
            let mut endpoint = Endpoint::open(config()).expect("an endpoint");
            let channel = endpoint.connect(address, PATIENCE).expect("a channel");
            for number in 0..SAID {
                endpoint.send(channel, &number.to_le_bytes()).expect("room");
            }
            say("said");
            // It stands still.
            loop {
                thread::sleep(PATIENCE);
            }
        }
        other => panic!("no such part: {other}"),
    });
}

/// Kills the other side at some instant while the survivor does something: it hears of it within a second.
fn survive(endpoint: &mut Endpoint, channel: Channel, other: Other, round: u64, (name, _, doing): (&str, &str, Doing)) {
    let killer = thread::spawn(move || {
        thread::sleep(Duration::from_micros(round * 977 % 9000));
        let killed = Instant::now();
        drop(other);
        killed
    });
    let reason = doing(endpoint, channel);
    let heard = Instant::now();
    let killed = killer.join().expect("the killer");
    assert!(heard.saturating_duration_since(killed) < Duration::from_secs(1), "{name}: heard of it too late");
    assert_eq!(reason, CloseReason::Died, "{name}");
    while endpoint.channels().next().is_some() {
        let _ = endpoint.poll();
        assert!(heard.elapsed() < Duration::from_secs(1), "{name}: the channel does not end");
    }
}

/// Nothing of ours is mapped or open any more but what this process's own counters need.
fn nothing_is_left(folder: &Folder) {
    assert!(folder.files().is_empty(), "{:?}", folder.files());
    let maps = std::fs::read_to_string("/proc/self/maps").expect("what is mapped");
    let left: Vec<&str> = maps.lines().filter(|line| line.contains("cutthrough.")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_killed_connecting_side_is_noticed() {
    let _alone = ALONE.lock();
    for doing in DOINGS {
        let folder = Folder::new();
        let mut endpoint = Endpoint::open(config()).expect("an endpoint");
        endpoint.listen(&folder.address()).expect("a free name");
        for round in 0..8 {
            let other = Other::start(Other::command(&format!("connect{}", doing.1), &folder.address()));
            let channel = loop {
                if let Event::Opened(channel) = endpoint.wait(Some(PATIENCE)).expect("the other side") {
                    break channel;
                }
            };
            survive(&mut endpoint, channel, other, round, doing);
        }
        drop(endpoint);
        nothing_is_left(&folder);
    }
}

#[test]
fn a_killed_listening_side_is_noticed_and_its_name_is_free() {
    let _alone = ALONE.lock();
    for doing in DOINGS {
        let folder = Folder::new();
        let mut endpoint = Endpoint::open(config()).expect("an endpoint");
        for round in 0..8 {
            // Each of them takes the name that the last one was killed with, and is rejoined under it.
            let other = Other::ready(&format!("listen{}", doing.1), &folder.address());
            let channel = endpoint.connect(&folder.address(), PATIENCE).expect("a channel");
            survive(&mut endpoint, channel, other, round, doing);
        }
        // A dying process hangs up before it gives up its lock: the survivor looks again while it waits.
        let begun = Instant::now();
        while !folder.files().is_empty() {
            let _ = endpoint.wait(Some(Duration::from_millis(20)));
            assert!(begun.elapsed() < PATIENCE, "{}: {:?}", doing.0, folder.files());
        }
        drop(endpoint);
        nothing_is_left(&folder);
    }
}

#[test]
fn a_name_is_free_the_instant_its_owner_is_dead() {
    let _alone = ALONE.lock();
    for _ in 0..10 {
        let folder = Folder::new();
        let other = Other::ready("listen", &folder.address());
        drop(other);
        let mut endpoint = Endpoint::open(config()).expect("an endpoint");
        assert!(matches!(
            endpoint.connect(&folder.address(), PATIENCE),
            Err(ConnectError::Address(AddressError::Nobody(_)))
        ));
        endpoint.listen(&folder.address()).expect("the name of the dead");
        drop(endpoint);
        nothing_is_left(&folder);
    }
}

#[test]
fn a_stopped_peer_ends_operations_by_the_deadline() {
    let _alone = ALONE.lock();
    for (part, how) in [("connect", "send"), ("connect-send", "read")] {
        let folder = Folder::new();
        let deadline = Duration::from_millis(300);
        let mut endpoint = Endpoint::open(Config { deadline, ..config() }).expect("an endpoint");
        endpoint.listen(&folder.address()).expect("a free name");
        let other = Other::start(Other::command(part, &folder.address()));
        let Ok(Event::Opened(channel)) = endpoint.wait(Some(PATIENCE)) else { panic!("nobody comes") };
        // Its message comes with the first bytes of a payload that waits for its reader.
        let message = (how == "read").then(|| endpoint.wait(Some(PATIENCE)));
        other.stop();
        thread::sleep(Duration::from_millis(20));
        let begun = Instant::now();
        if how == "send" {
            let payload = vec![1; 8 << 20];
            let sent = endpoint.outgoing(channel).expect("a slot").attach_copy(&payload).send();
            assert_eq!(sent.map(|_| ()), Err(SendError::Closed(CloseReason::Stalled)));
        } else {
            let Some(Ok(Event::Message(mut message))) = message else { panic!("no message") };
            let read = endpoint.read(&mut message, &mut vec![0; 8 << 20]);
            assert_eq!(read.map(|_| ()), Err(ReadError::Closed(CloseReason::Stalled)));
        }
        assert!(
            begun.elapsed() >= deadline && begun.elapsed() < Duration::from_secs(3),
            "{how}: {:?}",
            begun.elapsed()
        );
        kill_process(other.number(), Signal::CONT).expect("continued");
        drop((endpoint, other));
        nothing_is_left(&folder);
    }
}

/// What had come before a peer stood still is delivered, whatever this side had to wait for in between.
#[test]
fn what_came_before_a_peer_stood_still_is_delivered() {
    let _alone = ALONE.lock();
    let folder = Folder::new();
    let mut endpoint =
        Endpoint::open(Config { deadline: Duration::from_millis(300), ..config() }).expect("an endpoint");
    endpoint.listen(&folder.address()).expect("a free name");
    let mut other = Other::start(Other::command("say-much", &folder.address()));
    let Ok(Event::Opened(channel)) = endpoint.wait(Some(PATIENCE)) else { panic!("nobody comes") };
    assert_eq!(other.says(), "said");
    let sent = endpoint.outgoing(channel).expect("a slot").attach_copy(&vec![1; 8 << 20]).send();
    assert_eq!(sent.map(|_| ()), Err(SendError::Closed(CloseReason::Stalled)));
    for number in 0..SAID {
        match endpoint.wait(Some(PATIENCE)) {
            Ok(Event::Message(message)) => assert_eq!(message.control(), number.to_le_bytes()),
            other => panic!("instead of message {number}: {other:?}"),
        }
    }
    let end = endpoint.wait(Some(PATIENCE));
    assert!(matches!(end, Ok(Event::Closed(of, CloseReason::Stalled)) if of == channel), "{end:?}");
    drop((endpoint, other));
    nothing_is_left(&folder);
}
