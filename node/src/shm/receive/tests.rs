//! What only shows from inside, or after years.

use std::process::Command;
use std::time::Duration;

use cutthrough_engine::count::Counter;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{ASIDE_MAX, Aside};
use crate::config::Config;
use crate::incoming::{Channel, Event};
use crate::node::{Node, WaitError};
use crate::shm::meanwhile::Alone;
use crate::shm::send::{Cargo, Control, Load};

/// Nobody who waits for so long means well.
const PATIENCE: Duration = Duration::from_secs(20);

/// Two nodes with a channel, as each of them knows it.
fn pair(name: &str) -> ((Node, Channel), (Node, Channel)) {
    let config = || Config {
        slots: 16,
        staging_bytes: 64 << 10,
        pool_bytes: 1 << 16,
        landing_bytes: 1 << 16,
        ..Config::default()
    };
    let address = format!("shm:/tmp/cutthrough-receive-tests-{name}-{}.sock", std::process::id());
    let (mut a, mut b) = (Node::open(config()).unwrap(), Node::open(config()).unwrap());
    b.listen(&address).unwrap();
    let connecting = a.begin_connect(&address, PATIENCE).unwrap();
    let Ok(Event::Opened(at_b)) = b.wait(Some(PATIENCE)) else { panic!("no caller") };
    let Ok(Event::Connected(of, Ok(at_a))) = a.wait(Some(PATIENCE)) else { panic!("no channel") };
    assert_eq!(of, connecting);
    ((a, at_a), (b, at_b))
}

/// Whoever is never untidy counts payloads for ever.
#[test]
fn the_count_of_payloads_has_no_end() {
    let ((mut a, at_a), (mut b, at_b)) = pair("count");
    b.link(at_b).unwrap().0.inbox.untidied = u32::MAX;
    for number in 0..3 {
        let (link, _, stat) = a.link_to_wait(at_a).unwrap();
        let cargo = Cargo { load: Load::Copy(&[number; 100]), token: None, cookie: None };
        link.send(Control::Borrowed(b"one more"), cargo, &mut (), (&mut Alone, stat)).unwrap();
        let Ok(Event::Message(message)) = b.wait(Some(PATIENCE)) else { panic!("no message") };
        assert_eq!(message.payload_len(), 100);
    }
}

/// Where no more may be set aside, a payload that is left in the ring keeps its sender waiting, and nobody awake.
#[test]
fn who_can_set_nothing_aside_sleeps() {
    let ((mut a, at_a), (mut b, at_b)) = pair("aside");
    let payload = vec![7; 256 << 10];
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            let (link, _, stat) = a.link_to_wait(at_a).unwrap();
            let cargo = Cargo { load: Load::Copy(&payload), token: None, cookie: None };
            link.send(Control::Borrowed(b"longer than the ring"), cargo, &mut (), (&mut Alone, stat)).is_ok()
        });
        let Ok(Event::Message(mut message)) = b.wait(Some(PATIENCE)) else { panic!("no message") };
        // As if all of it had come: nobody touches it.
        let all = Aside { from: 0, bytes: vec![0; usize::try_from(ASIDE_MAX).unwrap()], pulses: 1 };
        b.link(at_b).unwrap().0.inbox.aside.put(u64::MAX, all);
        let before = b.stat().value(Counter::Sleeps);
        assert!(matches!(b.wait(Some(Duration::from_millis(200))), Err(WaitError::TimedOut)));
        assert!(b.stat().value(Counter::Sleeps) > before, "it looks without end");
        let mut bytes = vec![0; payload.len()];
        b.read(&mut message, &mut bytes, &mut ()).unwrap();
        assert!(bytes == payload && sent.join().unwrap());
    });
}

/// A payload is as long as its sender says. Who has no memory to set it aside in leaves it where it is.
#[test]
fn a_payload_for_which_there_is_no_memory_ends_nobody() {
    let mut part = Command::new(std::env::current_exe().unwrap());
    part.args(["--exact", "shm::receive::tests::too_little_memory", "--ignored"]);
    let ended = part.output().unwrap();
    let [said, wrong] = [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    // A name that no part has would be no failure.
    assert!(ended.status.success() && said.contains("1 passed"), "{}: {said}{wrong}", ended.status);
}

#[test]
#[ignore = "a part of a_payload_for_which_there_is_no_memory_ends_nobody"]
fn too_little_memory() {
    let ((mut a, at_a), (mut b, at_b)) = pair("memory");
    let payload = vec![0; 1 << 30];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (link, _, stat) = a.link_to_wait(at_a).unwrap();
            let cargo = Cargo { load: Load::Copy(&payload), token: None, cookie: None };
            link.send(Control::Borrowed(b"as long as may be"), cargo, &mut (), (&mut Alone, stat)).unwrap_err();
        });
        let Ok(Event::Message(message)) = b.wait(Some(PATIENCE)) else { panic!("no message") };
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
        let limit =
            Rlimit { current: Some(pages * rustix::param::page_size() as u64 + (64 << 20)), ..getrlimit(Resource::As) };
        setrlimit(Resource::As, limit).unwrap();
        let before = b.stat().value(Counter::Sleeps);
        assert!(matches!(b.wait(Some(Duration::from_millis(200))), Err(WaitError::TimedOut)));
        assert!(b.stat().value(Counter::Sleeps) > before, "it looks without end");
        drop(message);
        b.close(at_b);
    });
}
