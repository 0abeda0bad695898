//! How soon a service notices what comes, whatever others have done with its node just before.

mod two;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use cutthrough::Config;
use cutthrough::am::{Args, Node, Service, Settings};
use cutthrough::rpc::{self, Answer, Client, Method};
use two::{Over, PATIENCE, Server, block_on, small};

over_both! {
    a_request_is_served_at_once_after_somebody_has_used_the_node, who_wants_the_node_has_it_in_between_requests,
}

const ECHO: u16 = 1;
const QUICK: Method<u32, u32> = Method::new(2);
const SLOW: Method<u32, u32> = Method::new(3);

/// Longer than any caller looks for its reply.
const SERVED: Duration = Duration::from_micros(100);
/// Less than a node was left alone for by its service's thread, and many times what anything here takes.
const SOON: Duration = Duration::from_micros(700);
/// Others may keep the processors busy: in one of so many rounds they do not. What is noticed only when somebody looks
/// again is no sooner in any.
const ROUNDS: u32 = 20;
const TIMES: u32 = 50;

/// Whether half of all was soon done, in one of the rounds; and how soon that was in the last one.
fn is_prompt(each: impl Fn(u32) -> Duration) -> Result<Duration, Duration> {
    let mut half = Duration::MAX;
    for _ in 0..ROUNDS {
        let mut taken: Vec<_> = (0..TIMES).map(&each).collect();
        taken.sort_unstable();
        half = taken[taken.len() / 2];
        if half < SOON {
            return Ok(half);
        }
    }
    Err(half)
}

fn timed(done: impl FnOnce()) -> Duration {
    let since = Instant::now();
    done();
    since.elapsed()
}

/// A server that serves one method at once and another for a while.
fn serving(over: Over) -> Server {
    let (mut node, address) = over.listening(small(), Settings::default());
    rpc::serve(&mut node, QUICK, Ok);
    rpc::serve(&mut node, SLOW, |number| {
        let since = Instant::now();
        while since.elapsed() < SERVED {
            std::hint::spin_loop();
        }
        Ok(number)
    });
    Server::run(node, address)
}

/// It was noticed when the thread looked again, up to a millisecond later.
#[test]
fn a_reply_that_its_caller_has_not_looked_for_long_enough_is_noticed_at_once() {
    let server = serving(Over::Shm);
    let service = Service::spawn(Over::node(small(), Settings::default()), |_| ()).expect("a thread");
    let client = Client::connect(Arc::new(service), &server.address, PATIENCE).expect("a channel");
    let awaits = |number| timed(|| assert_eq!(block_on(client.start(SLOW, &number)), Ok(number)));
    let calls = |number| timed(|| assert_eq!(client.call(SLOW, &number), Ok(number)));
    let (awaited, called) = (is_prompt(awaits), is_prompt(calls));
    assert!(awaited.is_ok() && called.is_ok(), "{awaited:?} awaited, {called:?} called");
}

/// The same.
fn a_request_is_served_at_once_after_somebody_has_used_the_node(over: Over) {
    let server = serving(over);
    let (mut node, address) = over.listening(small(), Settings::default());
    node.short(ECHO, Args::Any, |request| request.reply(&[1]));
    let service = Arc::new(Service::spawn(node, |_| ()).expect("a thread"));
    let client = Client::connect(Arc::clone(&service), &server.address, PATIENCE).expect("a channel");
    let mut peer = Over::node(small(), Settings::default());
    let channel = peer.connect(&address, PATIENCE).expect("a channel");
    let peer = RefCell::new(peer);
    let used = || drop(service.with(Node::poll));
    // Now and then: who calls without end is not to ring without end.
    let calls = || {
        std::thread::sleep(Duration::from_millis(3));
        assert_eq!(client.call(QUICK, &1), Ok(1));
    };
    let uses: [(&str, &dyn Fn()); 2] = [("a use", &used), ("a call", &calls)];
    for (name, uses) in uses {
        let taken = is_prompt(|_| {
            uses();
            std::thread::sleep(Duration::from_micros(50));
            timed(|| assert_eq!(peer.borrow_mut().call(channel, ECHO, &[], PATIENCE).expect("a reply").word(0), 1))
        });
        assert!(taken.is_ok(), "{taken:?} after {name}");
    }
}

/// Who answers after a call of his own, by the same node: his answer, and the next request, were noticed when its
/// thread looked again, up to a millisecond later each.
#[test]
fn what_is_answered_by_way_of_another_call_is_answered_at_once() {
    let server = serving(Over::Shm);
    let (mut between, address) = Over::Shm.listening(small(), Settings::default());
    let (asks, asked) = mpsc::channel::<(u32, Answer<u32>)>();
    rpc::serve_later(&mut between, QUICK, move |number, answer| drop(asks.send((number, answer))));
    let between = Arc::new(Service::spawn(between, |_| ()).expect("a thread"));
    let client = Client::connect(Arc::clone(&between), &server.address, PATIENCE).expect("a channel");
    let works = std::thread::spawn(move || {
        for (number, answer) in asked {
            answer.give(client.call(QUICK, &number).map_err(|error| error.to_string().into()));
        }
    });
    let service = Service::spawn(Over::node(small(), Settings::default()), |_| ()).expect("a thread");
    let client = Client::connect(Arc::new(service), &address, PATIENCE).expect("a channel");
    let prompt = is_prompt(|number| timed(|| assert_eq!(client.call(QUICK, &number), Ok(number))));
    assert!(prompt.is_ok(), "{prompt:?}");
    drop((client, works));
}

/// Whoever waited for the node was woken each time that its thread had let go of it, and never before that had taken it
/// again.
fn who_wants_the_node_has_it_in_between_requests(over: Over) {
    let (mut far, address) = over.listening(Config::default(), Settings::default());
    let served = Arc::new(AtomicU64::new(0));
    let its = Arc::clone(&served);
    far.short(ECHO, Args::Any, move |request| {
        let since = Instant::now();
        while since.elapsed() < Duration::from_micros(50) {}
        its.fetch_add(1, Ordering::Relaxed);
        request.reply(&[1]);
    });
    let service = Service::spawn(far, |_| ()).expect("a thread");
    let over_now = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut node = Over::node(Config::default(), Settings::default());
            let channel = node.connect(&address, PATIENCE).expect("a channel");
            while !over_now.load(Ordering::Relaxed) {
                while node.request(channel, ECHO, &[]).is_ok() {}
                while node.poll().is_some() {}
                std::thread::yield_now();
            }
        });
        let waits = (0..300).map(|_| {
            std::thread::sleep(Duration::from_micros(500));
            let before = served.load(Ordering::Relaxed);
            service.with(|_| served.load(Ordering::Relaxed) - before)
        });
        let most = waits.max();
        over_now.store(true, Ordering::Relaxed);
        most
    });
    // 64 at a time.
    assert!(most < Some(64 * 40), "{most:?} requests went before");
}
