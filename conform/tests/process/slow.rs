//! An endpoint that is polled slowly, and never armed: callers are let in and ends are heard of all the same. Processes
//! that are stopped for a while and go on.

use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{Channel, CloseReason, Config, Endpoint, Event, SendError};
use rustix::process::{Signal, kill_process};

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

/// How long each side is stopped, how often, and for how long it runs between two of these.
const STOPPED: Duration = Duration::from_millis(700);
const STOPS: u32 = 5;
const RUNS: Duration = Duration::from_millis(200);

/// The part that takes what the other one gives until that closes; an operation without progress ends after so many
/// milliseconds.
fn goes_on(does: &str, millis: u64, address: &str, say: impl Fn(&str)) {
    let deadline = Duration::from_millis(millis);
    let mut endpoint = Endpoint::open(Config { deadline, silence: PATIENCE, ..config() }).expect("an endpoint");
    let mut bytes = vec![3; 8 << 20];
    if does == "takes" {
        endpoint.listen(address).expect("a name");
        say(&endpoint.net_address().map_or_else(|| address.to_owned(), |at| format!("udp:{at}")));
        loop {
            match endpoint.wait(Some(2 * PATIENCE)).expect("an event") {
                Event::Message(mut message) => match endpoint.read(&mut message, &mut bytes) {
                    Ok(_) => {}
                    Err(error) => return say(&format!("{error:?}")),
                },
                Event::Closed(_, reason) => return say(&format!("{reason:?}")),
                _ => {}
            }
        }
    }
    let channel = endpoint.connect(address, PATIENCE).expect("a channel");
    say("ready");
    let begun = Instant::now();
    while begun.elapsed() < (STOPPED + RUNS) * (STOPS + 1) {
        match endpoint.outgoing(channel).and_then(|outgoing| outgoing.attach_copy(&bytes).send()) {
            Ok(_) => {}
            Err(SendError::Full) => endpoint.wait_for_room(channel, Some(2 * PATIENCE)).expect("room"),
            Err(error) => return say(&format!("{error:?}")),
        }
    }
    drop(endpoint);
    say("gone");
}

/// The same, by the name of the part.
pub(crate) fn goes_on_after_stops(part: &str, address: &str, say: impl Fn(&str)) {
    let words: Vec<&str> = part.split('-').collect();
    let [.., does, millis] = words[..] else { panic!("no such part: {part}") };
    goes_on(does, millis.parse().expect("milliseconds"), address, say);
}

/// Both are stopped, or one of them: each case beside the others. Whoever is stopped has a short deadline.
fn nobody_is_taken_for_stuck(address: impl Fn(&Folder) -> String + Sync) {
    const SHORT: u64 = 300;
    const LONG: u64 = 10_000;
    let case = &|stopped: &str| {
        let folder = Folder::new();
        let [takes, gives] =
            ["takes", "gives"].map(|does| if [does, "both"].contains(&stopped) { SHORT } else { LONG });
        let mut taker = Other::start(Other::command(&format!("goes-on-takes-{takes}"), &address(&folder)));
        let address = taker.says();
        let mut giver = Other::start(Other::command(&format!("goes-on-gives-{gives}"), &address));
        assert_eq!(giver.says(), "ready");
        let sides = [(giver.number(), gives), (taker.number(), takes)];
        for _ in 0..STOPS {
            thread::sleep(RUNS);
            for signal in [Signal::STOP, Signal::CONT] {
                for (number, _) in sides.iter().filter(|(_, deadline)| *deadline == SHORT) {
                    kill_process(*number, signal).expect("it is there");
                }
                if signal == Signal::STOP {
                    thread::sleep(STOPPED);
                }
            }
        }
        let said = [giver.says(), taker.says()];
        assert_eq!(said, ["gone", "Peer"], "{stopped} stopped, over {address}");
    };
    thread::scope(|scope| {
        for stopped in ["both", "gives", "takes"] {
            scope.spawn(move || case(stopped));
        }
    });
}

/// Time in which a process is stopped does not count as time without progress: its peer was stopped with it, or what
/// that has done meanwhile is still to be looked at.
#[test]
fn who_is_stopped_with_its_peer_or_alone_takes_nobody_for_stuck() {
    nobody_is_taken_for_stuck(Folder::address);
}

#[test]
fn who_is_stopped_on_a_network_takes_nobody_for_stuck() {
    nobody_is_taken_for_stuck(|_| "udp:127.0.0.1:0".to_owned());
}

/// Payloads that are on their way when their sender goes, how long each is, and a while.
const LATE: usize = 4;
const LATE_BYTES: usize = 512 << 10;
const WHILE: Duration = Duration::from_millis(250);

/// The part that sends what nobody takes at first, and goes.
pub(crate) fn goes(address: &str, say: impl Fn(&str)) {
    let mut endpoint = Endpoint::open(Config { staging_bytes: 8 << 20, ..config() }).expect("an endpoint");
    let channel = endpoint.connect(address, PATIENCE).expect("a channel");
    say("ready");
    thread::sleep(WHILE);
    for number in 0..LATE {
        let payload = vec![u8::try_from(number).expect("a few"); LATE_BYTES];
        endpoint.outgoing(channel).expect("a slot").attach_copy(&payload).send().expect("sent");
    }
    say("sent");
    drop(endpoint);
}

/// The part that takes them: how many have come.
pub(crate) fn takes_late(address: &str, say: impl Fn(&str)) {
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    endpoint.listen(address).expect("a port");
    say(&format!("udp:{}", endpoint.net_address().expect("a network")));
    let mut bytes = vec![9; LATE_BYTES];
    let mut came = 0;
    loop {
        match endpoint.wait(Some(2 * PATIENCE)).expect("an event") {
            Event::Message(mut message) => match endpoint.read(&mut message, &mut bytes) {
                Ok(_) => came += usize::from(bytes.iter().all(|byte| usize::from(*byte) == came)),
                Err(error) => return say(&format!("{came}, {error:?}")),
            },
            Event::Closed(_, reason) => return say(&format!("{came}, {reason:?}")),
            _ => {}
        }
    }
}

/// What was sent arrives before its sender is gone, also if that was stopped meanwhile for longer than it waits, with
/// its peer.
#[test]
fn who_is_stopped_while_it_goes_still_delivers() {
    let mut taker = Other::start(Other::command("takes-late", "udp:127.0.0.1:0"));
    let address = taker.says();
    let mut goer = Other::ready("goes", &address);
    taker.stop();
    assert_eq!(goer.says(), "sent");
    thread::sleep(WHILE);
    goer.stop();
    thread::sleep(10 * WHILE);
    for number in [goer.number(), taker.number()] {
        kill_process(number, Signal::CONT).expect("it is there");
    }
    assert_eq!(taker.says(), format!("{LATE}, Peer"));
}
