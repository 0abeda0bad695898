//! The thread of a service looks for what comes next before it sleeps, as an endpoint that waits does; and where it
//! shares a core with who calls, both make way for each other.

mod two;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cutthrough::Counter;
use cutthrough::am::{Args, Service, Settings};
use cutthrough::rpc::{Client, Raw};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use two::{Over, PATIENCE, small};

const ECHO: u16 = 1;
const CALLS: u32 = 100;

/// Whether there is a time in which calls with this pause between them find the server awake. While other programs have
/// its core it sleeps at once, so that is asked again and again.
fn is_found_awake(pause: Duration) -> bool {
    let (mut node, address) = Over::Shm.listening(small(), Settings::default());
    node.short(ECHO, Args::Words(1), |request| {
        let words: [u32; 1] = request.words();
        request.reply(&words);
    });
    let _server = Service::spawn(node, |_| ()).expect("a thread");
    let service = Arc::new(Service::spawn(Over::node(small(), Settings::default()), |_| ()).expect("a thread"));
    let client = Client::connect(Arc::clone(&service), &address, PATIENCE).expect("a channel");
    let woken = || service.with(|node| node.endpoint().counter(Counter::WakesSent));
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let before = woken();
        for number in 0..CALLS {
            let reply = client.call_raw(Raw::new(ECHO).args(&number.to_le_bytes())).expect("a reply");
            assert_eq!(reply.word(0), number);
            // Longer than it takes to go to sleep.
            let replied = Instant::now();
            while replied.elapsed() < pause {}
        }
        if woken() - before < u64::from(CALLS / 2) {
            return true;
        }
    }
    false
}

#[test]
fn a_service_is_awake_for_calls_that_follow_each_other() {
    assert!(is_found_awake(Duration::from_micros(25)));
}

/// What pins its threads does so for good.
#[test]
fn so_it_is_on_the_same_core() {
    let allowed = sched_getaffinity(None).expect("asked for this thread");
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).expect("one at least");
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).expect("a core of ours");
    assert!(is_found_awake(Duration::ZERO));
}
