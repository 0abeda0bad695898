//! Peers that stop in the middle of a payload which goes to its place by itself: nobody looks for the rest without end,
//! and the deadline ends them.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cutthrough::{AsyncEndpoint, CloseReason, Config, Counter, Event, Landing, WaitError};
use cutthrough_wire::layout::Line;
use cutthrough_wire::slot::Kind;

use crate::liar::{Liar, PATIENCE, Victim, config};

/// How it stops: what the liar does, and what the victim does meanwhile.
type Stop = fn(&mut Liar, &mut Victim);

const STOPS: [(&str, Stop); 4] = [
    ("a payload to a token, of which too little comes for a pulse", |liar, victim| {
        let token = victim.endpoint.grant(liar.channel, Landing::Buffer(vec![0; 100_000])).expect("a token");
        liar.own.set(Line::Staged, 300);
        liar.say(Kind::StagedToken, 0, 100_000, 300 | u64::from(token.index) << 32, token.key);
    }),
    ("one that has to be set aside", |liar, victim| {
        liar.say(Kind::Staged, 0, 1 << 20, 0, 0);
        let unread = victim.message();
        victim.forget(unread);
        liar.say(Kind::Staged, 0, 100, 0, 0);
        liar.say(Kind::Control, 0, 0, 0, 0);
    }),
    ("one that was set aside in part", |liar, victim| {
        liar.own.set(Line::Staged, 300);
        liar.say(Kind::Staged, 0, 1 << 20, 300, 0);
        let unread = victim.message();
        victim.forget(unread);
        liar.say(Kind::Staged, 0, 100, 0, 0);
    }),
    ("one that was dropped", |liar, victim| {
        liar.say(Kind::Staged, 0, 1 << 20, 0, 0);
        drop(victim.message());
        // From the first of these on it goes nowhere.
        assert!((0..100).all(|_| victim.endpoint.poll().is_none()));
        liar.say(Kind::Control, 0, 0, 0, 0);
    }),
];

#[test]
fn who_waits_for_the_rest_of_a_payload_sleeps() {
    let patient = || Config { deadline: 3 * PATIENCE, ..config() };
    for (name, stop) in STOPS {
        let mut victim = Victim::with(patient());
        let mut liar = Liar::join(&mut victim);
        stop(&mut liar, &mut victim);
        let before = victim.endpoint.counter(Counter::Sleeps);
        let event = victim.endpoint.wait(Some(Duration::from_millis(100)));
        assert!(matches!(event, Err(WaitError::TimedOut)), "{name}: {event:?}");
        assert!(victim.endpoint.counter(Counter::Sleeps) > before, "{name}: it looks without end");
        victim.honest_channel_works(0);
    }
}

#[test]
fn who_stops_in_the_middle_ends_by_the_deadline() {
    for (name, stop) in STOPS {
        eprintln!("{name}");
        let mut victim = Victim::open();
        let mut liar = Liar::join(&mut victim);
        stop(&mut liar, &mut victim);
        assert_eq!(victim.closed(), CloseReason::Stalled, "{name}");
        victim.honest_channel_works(0);
        let mut liar = Liar::join(&mut victim);
        stop(&mut liar, &mut victim);
        match victim.endpoint.wait(Some(PATIENCE)) {
            Ok(Event::Closed(of, CloseReason::Stalled)) => assert_eq!(of, liar.channel, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
        victim.honest_channel_works(0);
    }
}

/// One that is slow, but goes on, is waited for.
#[test]
fn who_goes_on_is_waited_for() {
    const LEN: u32 = 20_000;
    let mut victim = Victim::open();
    let mut liar = Liar::join(&mut victim);
    let token = victim.endpoint.grant(liar.channel, Landing::Buffer(vec![0; LEN as usize])).expect("a token");
    liar.say(Kind::StagedToken, 0, LEN, u64::from(token.index) << 32, token.key);
    for step in 1..=10 {
        let until = std::time::Instant::now() + config().deadline / 3;
        while std::time::Instant::now() < until {
            let event = victim.endpoint.wait(Some(Duration::from_millis(10)));
            assert!(matches!(event, Err(WaitError::TimedOut)), "{event:?}");
        }
        liar.own.set(Line::Staged, step * u64::from(LEN) / 10);
    }
    assert_eq!(victim.message().payload_len(), LEN as usize);
}

/// Longer than it takes to go on, once both may.
const LATE: Duration = Duration::from_millis(1000);

/// Stops this process, as its user does at a terminal, for longer than a sender may stand still.
fn is_stopped() {
    thread::sleep(LATE + LATE / 4);
}

/// Who was stopped itself looks again before it takes a sender for one that stands still: both may have been stopped.
#[test]
fn who_was_stopped_itself_looks_again() {
    const LEN: u32 = 20_000;
    let mut victim = Victim::with(Config { deadline: LATE, ..config() });
    let mut liar = Liar::join(&mut victim);
    let token = victim.endpoint.grant(liar.channel, Landing::Buffer(vec![0; LEN as usize])).expect("a token");
    liar.say(Kind::StagedToken, 0, LEN, u64::from(token.index) << 32, token.key);
    for _ in 0..2 {
        let event = victim.endpoint.wait(Some(Duration::from_millis(10)));
        assert!(matches!(event, Err(WaitError::TimedOut)), "{event:?}");
        is_stopped();
    }
    liar.own.set(Line::Staged, u64::from(LEN));
    assert_eq!(victim.message().payload_len(), LEN as usize);
}

/// The same for who reads in tokio.
#[test]
fn who_was_stopped_in_a_task_looks_again() {
    const LEN: u32 = 20_000;
    let mut victim = Victim::with(Config { deadline: LATE, ..config() });
    let mut liar = Liar::join(&mut victim);
    liar.say(Kind::Staged, 0, LEN, 0, 0);
    let mut message = victim.message();
    let Victim { endpoint, .. } = victim;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    runtime.expect("a runtime").block_on(async {
        let mut endpoint = AsyncEndpoint::new(endpoint).expect("registered");
        let beside = tokio::spawn(async move {
            // Until the reader sleeps, and again until it does.
            for _ in 0..2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
                is_stopped();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            liar.own.set(Line::Staged, u64::from(LEN));
            liar
        });
        let mut bytes = vec![1; LEN as usize];
        let read = tokio::time::timeout(PATIENCE, endpoint.read(&mut message, &mut bytes)).await;
        assert_eq!(read.expect("in time").map(|receipt| receipt.bytes), Ok(u64::from(LEN)));
        assert!(bytes.iter().all(|byte| *byte == 0));
        beside.await.expect("the task beside it");
    });
}

#[test]
fn a_task_that_waits_for_the_rest_of_a_payload_lets_others_run() {
    let (done, ended) = mpsc::channel();
    // Who looks without end cannot be joined.
    let thread = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.expect("a runtime");
        for (name, stop) in STOPS {
            let mut victim = Victim::open();
            let mut liar = Liar::join(&mut victim);
            stop(&mut liar, &mut victim);
            let Victim { endpoint, .. } = victim;
            runtime.block_on(async {
                let mut endpoint = AsyncEndpoint::new(endpoint).expect("registered");
                let soon = tokio::time::timeout(Duration::from_millis(20), endpoint.next()).await;
                assert!(soon.is_err(), "{name}: {soon:?}");
                match tokio::time::timeout(PATIENCE, endpoint.next()).await {
                    Ok(Ok(Event::Closed(of, CloseReason::Stalled))) => assert_eq!(of, liar.channel, "{name}"),
                    other => panic!("{name}: {other:?}"),
                }
            });
        }
        let _ = done.send(());
    });
    let over = ended.recv_timeout(3 * PATIENCE);
    assert_ne!(over, Err(mpsc::RecvTimeoutError::Timeout), "it keeps everybody else waiting");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
