//! Remote procedure calls through their public interface, over shared memory and over UDP.
#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

mod two;

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use cutthrough::am::{Args, Body, CallError, Deferred, Failure, Node, Service, Settings};
use cutthrough::rpc::{self, Client, Method, RpcError};
use cutthrough::{Config, Endpoint};
use two::{Over, PATIENCE, Server, small, until};

over_both! {
    calls_return_what_the_method_returns, long_values_travel_as_payloads, refusals_come_in_words,
    values_of_other_types_are_refused, what_is_longer_than_a_method_takes_is_refused,
    many_calls_are_under_way, a_continuation_runs_once,
    a_future_needs_no_executor, a_dropped_future_is_cancelled, a_call_ends_by_its_deadline,
    a_busy_server_is_asked_again, payloads_leave_a_busy_server_half_of_the_time,
    only_idempotent_calls_are_made_again, threads_share_a_client,
    a_call_to_a_server_that_stays_away_ends, a_poll_does_not_sleep, a_call_that_finds_no_room_is_woken,
    a_call_that_finds_the_node_in_use_is_woken, a_continuation_may_hold_the_last_client,
}

const DOUBLE: Method<u64, u64> = Method::new(1);
const REVERSE: Method<Vec<u8>, Vec<u8>> = Method::new(2);
const CHECK: Method<String, ()> = Method::new(3);
const LATER: Method<u64, u64> = Method::new(4);
const WRONG: Method<String, String> = Method::new(1);

fn methods(node: &mut Node) {
    rpc::serve(node, DOUBLE, |number| Ok(number * 2));
    rpc::serve(node, REVERSE, |mut bytes| {
        bytes.reverse();
        Ok(bytes)
    });
    rpc::serve(node, CHECK, |text| if text == "good" { Ok(()) } else { Err(format!("not good: {text}").into()) });
}

fn service() -> Arc<Service> {
    let endpoint = Endpoint::open(Config { insecure: true, ..small() }).expect("an endpoint");
    Arc::new(Service::spawn(Node::new(endpoint, Settings::default()), |_| ()).expect("a thread"))
}

fn serve(over: Over, settings: Settings, prepare: impl FnOnce(&mut Node)) -> (Server, Client) {
    let (mut node, address) = over.listening(small(), settings);
    prepare(&mut node);
    let server = Server::run(node, address);
    let client = Client::connect(service(), &server.address, PATIENCE).expect("a channel");
    (server, client)
}

/// Puts requests off, and says how many have come.
fn putting_off(node: &mut Node) -> Arc<Mutex<Vec<Deferred>>> {
    let put_off = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&put_off);
    node.long(LATER.number(), Args::Any, 1 << 20, move |request| its.lock().expect("the list").push(request.defer()));
    put_off
}

/// Polls calls, as an executor does, until they have come: a poll that finds the node in use makes no call.
fn until_made<R>(what: &str, calls: &mut [rpc::Pending<R>], mut come: impl FnMut() -> bool) {
    let mut context = Context::from_waker(Waker::noop());
    until(what, || {
        for call in &mut *calls {
            assert!(std::pin::Pin::new(call).poll(&mut context).is_pending(), "{what}");
        }
        come()
    });
}

fn calls_return_what_the_method_returns(over: Over) {
    let (_server, client) = serve(over, Settings::default(), methods);
    for number in 0..1000 {
        assert_eq!(client.call(DOUBLE, &number), Ok(number * 2));
    }
    assert_eq!(client.call(CHECK, &"good".to_owned()), Ok(()));
}

fn long_values_travel_as_payloads(over: Over) {
    let (_server, client) = serve(over, Settings::default(), methods);
    for len in [0, 1, 57, 58, 59, 64, 65, 4096, 4097, 300_000] {
        let bytes: Vec<u8> = (0..len).map(|i: usize| (i % 251) as u8).collect();
        let back = client.call(REVERSE, &bytes).expect("a reply");
        assert!(back.iter().rev().eq(&bytes), "{len} bytes");
    }
}

fn refusals_come_in_words(over: Over) {
    let (_server, client) = serve(over, Settings::default(), methods);
    let refused = client.call(CHECK, &"bad".to_owned());
    assert_eq!(refused, Err(RpcError::Refused("not good: bad".into())));
    // Cut at a letter, not within one.
    let refused = client.call(CHECK, &"\u{e9}".repeat(100));
    assert_eq!(refused, Err(RpcError::Refused(format!("not good: {}", "\u{e9}".repeat(27)))));
    let unknown: Method<u64, u64> = Method::new(99);
    assert_eq!(client.call(unknown, &1), Err(CallError::Failed(Failure::Unknown).into()));
}

fn values_of_other_types_are_refused(over: Over) {
    let (_server, client) = serve(over, Settings::default(), methods);
    let wrong = client.call(WRONG, &"three".into()).expect_err("a call of another type");
    assert_eq!(wrong, CallError::Failed(Failure::Arguments).into());
    // As that of a reply of another type does.
    let same = "do both sides have the same definition of it?";
    assert!(wrong.to_string().ends_with(same) && RpcError::Type.to_string().ends_with(same), "{wrong}");
    let other: Method<u64, bool> = Method::new(1);
    assert_eq!(client.call(other, &1), Err(RpcError::Type));
}

/// Whoever may call, it is not for them to say how much memory a server takes.
fn what_is_longer_than_a_method_takes_is_refused(over: Over) {
    const COUNT: Method<Vec<u8>, u64> = Method::new(20).at_most(1 << 10);
    const SHORT: Method<String, u64> = Method::new(21).at_most(5);
    let (_server, client) = serve(over, Settings::default(), |node| {
        rpc::serve(node, COUNT, |bytes| Ok(bytes.len() as u64));
        rpc::serve_later(node, SHORT, |text, answer| answer.give(Ok(text.len() as u64)));
    });
    let too_long = || CallError::Failed(Failure::TooLong);
    assert_eq!(client.call(COUNT, &vec![7; 1 << 10]), Ok(1 << 10));
    assert_eq!(client.call(COUNT, &vec![7; (1 << 10) + 1]), Err(too_long().into()));
    let raw = rpc::Raw::new(COUNT.number()).body(Body::Owned(vec![7; 1 << 20]));
    assert_eq!(client.call_raw(raw).map(drop).map_err(|failed| failed.error), Err(too_long()));
    assert_eq!(client.call(SHORT, &"short".into()), Ok(5));
    assert_eq!(client.call(SHORT, &"longer".into()), Err(too_long().into()));
}

fn many_calls_are_under_way(over: Over) {
    let (_server, client) = serve(over, Settings::default(), methods);
    let mut context = Context::from_waker(Waker::noop());
    let mut pending: Vec<_> = (0..600).map(|i| Some(client.start(DOUBLE, &i))).collect();
    let mut left = pending.len();
    let since = Instant::now();
    while left > 0 {
        for (i, slot) in (0..).zip(&mut pending) {
            let Some(call) = slot else { continue };
            if let Poll::Ready(result) = std::pin::pin!(call).poll(&mut context) {
                assert_eq!(result, Ok(i * 2));
                *slot = None;
                left -= 1;
            }
        }
        assert!(since.elapsed() < PATIENCE);
    }
}

fn a_continuation_runs_once(over: Over) {
    let (_server, client) = serve(over, Settings::default(), methods);
    let (sender, receiver) = mpsc::channel();
    for number in 0..10 {
        let sender = sender.clone();
        let then =
            move |result: Result<u64, RpcError>| sender.send(result.expect("a reply")).expect("somebody listens");
        client.call_then(DOUBLE, &number, then).expect("room");
    }
    drop(sender);
    let mut got: Vec<u64> = receiver.iter().collect();
    got.sort_unstable();
    assert_eq!(got, (0..10).map(|number| number * 2).collect::<Vec<_>>());
}

fn a_future_needs_no_executor(over: Over) {
    let (_server, client) = serve(over, Settings::default(), methods);
    assert_eq!(client.within(Duration::MAX).call(DOUBLE, &3), Ok(6));
    struct Flag(AtomicU32);
    impl std::task::Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    for round in 0..50 {
        if round % 10 == 0 {
            // Long enough for everybody to sleep.
            std::thread::sleep(Duration::from_millis(10));
        }
        let flag = Arc::new(Flag(AtomicU32::new(1)));
        let waker = Waker::from(Arc::clone(&flag));
        let mut call = std::pin::pin!(client.start(DOUBLE, &round));
        // Polled only when it was woken.
        let since = Instant::now();
        let result = loop {
            if flag.0.swap(0, Ordering::SeqCst) > 0
                && let Poll::Ready(result) = call.as_mut().poll(&mut Context::from_waker(&waker))
            {
                break result;
            }
            assert!(since.elapsed() < PATIENCE, "nobody wakes the task");
        };
        assert_eq!(result, Ok(round * 2));
        if round == 0 {
            // It was made once; to poll it again is a mistake.
            let again = || call.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(again)).is_err());
        }
    }
}

fn a_dropped_future_is_cancelled(over: Over) {
    let mut put_off = None;
    let (_server, client) = serve(over, Settings::default(), |node| put_off = Some(putting_off(node)));
    let put_off = put_off.expect("the list");
    let mut calls = [client.start(LATER, &1)];
    until_made("the request comes", &mut calls, || put_off.lock().expect("the list").len() == 1);
    assert!(!put_off.lock().expect("the list")[0].is_over());
    drop(calls);
    until("the server hears of it", || put_off.lock().expect("the list")[0].is_over());
}

fn a_call_ends_by_its_deadline(over: Over) {
    let mut put_off = None;
    let (_server, client) = serve(over, Settings::default(), |node| put_off = Some(putting_off(node)));
    let since = Instant::now();
    // Long enough that the handler runs before, on a busy machine too.
    let result = client.within(Duration::from_millis(300)).call(LATER, &1);
    assert_eq!(result, Err(CallError::Late.into()));
    assert!(since.elapsed() >= Duration::from_millis(300));
    let put_off = put_off.expect("the list");
    until("the server knows", || put_off.lock().expect("the list").first().is_some_and(Deferred::is_over));
}

fn a_busy_server_is_asked_again(over: Over) {
    let mut put_off = None;
    let settings = Settings { serve: 1, ..Settings::default() };
    let (_server, client) = serve(over, settings, |node| {
        put_off = Some(putting_off(node));
        methods(node);
    });
    let put_off = put_off.expect("the list");
    let mut first = [client.start(LATER, &1)];
    until_made("the first comes", &mut first, || put_off.lock().expect("the list").len() == 1);
    let busy = client.within(Duration::from_millis(20)).call(DOUBLE, &1);
    assert!(matches!(busy, Err(RpcError::Call(CallError::Failed(Failure::Busy) | CallError::Late))), "{busy:?}");
    let its = Arc::clone(&put_off);
    let freed = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        its.lock().expect("the list").clear();
    });
    assert_eq!(client.call(DOUBLE, &4), Ok(8));
    freed.join().expect("the other thread");
    drop(first);
}

/// A payload that is refused has come all the way.
fn payloads_leave_a_busy_server_half_of_the_time(over: Over) {
    const TRY: Duration = Duration::from_millis(10);
    const TIME: Duration = Duration::from_millis(300);
    let tries = Arc::new(AtomicU32::new(0));
    let its = Arc::clone(&tries);
    let (_server, client) = serve(over, Settings::default(), |node| {
        rpc::serve_raw(node, REVERSE.number(), move |request| {
            its.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(TRY);
            request.fail(Failure::Busy);
        });
    });
    let busy = client.within(TIME).call(REVERSE, &vec![7; 10_000]);
    assert!(matches!(busy, Err(RpcError::Call(CallError::Failed(Failure::Busy) | CallError::Late))), "{busy:?}");
    let (tries, most) = (tries.load(Ordering::Relaxed), TIME.div_duration_f64(2 * TRY) as u32 + 1);
    assert!((2..=most).contains(&tries), "{tries} tries");
}

fn only_idempotent_calls_are_made_again(over: Over) {
    let runs = Arc::new(AtomicU32::new(0));
    let prepare = |runs: &Arc<AtomicU32>, put_off: bool| {
        let runs = Arc::clone(runs);
        move |node: &mut Node| {
            let kept = Mutex::new(Vec::new());
            node.long(LATER.number(), Args::Any, 64, move |request| {
                runs.fetch_add(1, Ordering::SeqCst);
                if put_off {
                    kept.lock().expect("the list").push(request.defer());
                } else {
                    request.reply_with(&77_u64.to_le_bytes(), Body::None);
                }
            });
        }
    };
    for idempotent in [false, true] {
        runs.store(0, Ordering::SeqCst);
        // A server that never replies, and dies.
        let (server, client) = serve(over, Settings::default(), prepare(&runs, true));
        let method = if idempotent { LATER.idempotent() } else { LATER };
        let address = server.address.clone();
        let calling = std::thread::spawn(move || client.call(method, &1));
        until("the call comes", || runs.load(Ordering::SeqCst) == 1);
        drop(server.end());
        // Another takes its address.
        let mut node = Over::node(small(), Settings::default());
        prepare(&runs, false)(&mut node);
        // A client that calls again has to wait for it.
        std::thread::sleep(Duration::from_millis(20));
        until("the address is free", || node.listen(&address).is_ok());
        let _server = Server::run(node, address);
        let result = calling.join().expect("the caller");
        if idempotent {
            assert_eq!((result, runs.load(Ordering::SeqCst)), (Ok(77), 2));
        } else {
            assert!(matches!(result, Err(RpcError::Call(CallError::Closed(_)))), "{result:?}");
            assert_eq!(runs.load(Ordering::SeqCst), 1);
        }
    }
}

fn a_call_to_a_server_that_stays_away_ends(over: Over) {
    let (server, client) = serve(over, Settings::default(), methods);
    assert_eq!(client.call(DOUBLE, &1), Ok(2));
    drop(server.end());
    let client = client.within(Duration::from_millis(200));
    for method in [DOUBLE, DOUBLE.idempotent()] {
        let since = Instant::now();
        let result = client.call(method, &1);
        assert!(matches!(result, Err(RpcError::NoChannel(_) | RpcError::Call(_))), "{result:?}");
        assert!(since.elapsed() < PATIENCE);
    }
}

/// How often this thread has slept.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("what the system says of this thread");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).expect("its line");
    line.trim().parse().expect("a number")
}

/// A poll of a call slept where the window was full, and while another channel was opened.
fn a_poll_does_not_sleep(over: Over) {
    let mut put_off = None;
    let (server, client) = serve(over, Settings::default(), |node| put_off = Some(putting_off(node)));
    let mut context = Context::from_waker(Waker::noop());
    let mut polls_without_sleep = |what: &str, call: &mut rpc::Pending<u64>| {
        // A page that is read for the first time, or a lock, may cost a sleep; each poll may not.
        let before = sleeps();
        for _ in 0..100 {
            assert!(std::pin::Pin::new(&mut *call).poll(&mut context).is_pending(), "{what}");
        }
        let slept = sleeps() - before;
        assert!(slept < 50, "{slept} sleeps in 100 polls of {what}");
    };
    let mut calls: Vec<_> = (0..2100).map(|number| client.start(LATER, &number)).collect();
    for call in &mut calls {
        assert!(std::pin::Pin::new(call).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    polls_without_sleep("a call that finds no room", calls.last_mut().expect("a call"));
    drop(calls);
    put_off.expect("the list").lock().expect("the list").clear();
    // The server is gone, and whoever has its address now answers nobody.
    let address = server.address.clone();
    drop(server.end());
    let mut node = Over::node(small(), Settings::default());
    until("the address is free", || node.listen(&address).is_ok());
    let mut call = client.start(LATER.idempotent(), &1);
    polls_without_sleep("a call whose channel has ended", &mut call);
}

/// A waker, and what it tells.
fn told() -> (Waker, mpsc::Receiver<()>) {
    struct Woken(mpsc::Sender<()>);
    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }
    let (woken, is_woken) = mpsc::channel();
    (Waker::from(Arc::new(Woken(woken))), is_woken)
}

/// Who waits for room is woken when it is time to look again.
fn a_call_that_finds_no_room_is_woken(over: Over) {
    let settings = Settings { window: 2, ..Settings::default() };
    let endpoint = Endpoint::open(Config { insecure: true, ..small() }).expect("an endpoint");
    let (mut node, address) = over.listening(small(), Settings::default());
    methods(&mut node);
    let put_off = putting_off(&mut node);
    let server = Server::run(node, address);
    let service = Arc::new(Service::spawn(Node::new(endpoint, settings), |_| ()).expect("a thread"));
    let client = Client::connect(service, &server.address, PATIENCE).expect("a channel");
    let mut held: Vec<_> = (0..2).map(|number| client.start(LATER, &number)).collect();
    until_made("both come", &mut held, || put_off.lock().expect("the list").len() == 2);
    let (waker, is_woken) = told();
    let mut call = std::pin::pin!(client.start(DOUBLE, &4));
    for round in 0.. {
        match call.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return assert_eq!(result, Ok(8)),
            Poll::Pending => is_woken.recv_timeout(PATIENCE).expect("nobody wakes the task"),
        }
        if round == 3 {
            put_off.lock().expect("the list").clear();
        }
    }
}

/// Who finds the node in use by another thread is woken when it is time to look again.
fn a_call_that_finds_the_node_in_use_is_woken(over: Over) {
    let (mut node, address) = over.listening(small(), Settings::default());
    methods(&mut node);
    let server = Server::run(node, address);
    let service = service();
    let client = Client::connect(Arc::clone(&service), &server.address, PATIENCE).expect("a channel");
    let (waker, is_woken) = told();
    let mut call = std::pin::pin!(client.start(DOUBLE, &4));
    let first = service.with(|_| call.as_mut().poll(&mut Context::from_waker(&waker)));
    assert!(first.is_pending(), "the node is in use");
    loop {
        is_woken.recv_timeout(PATIENCE).expect("nobody wakes the task");
        if let Poll::Ready(result) = call.as_mut().poll(&mut Context::from_waker(&waker)) {
            return assert_eq!(result, Ok(8));
        }
    }
}

/// The service ended on its own thread, which waited for itself.
fn a_continuation_may_hold_the_last_client(over: Over) {
    let mut put_off = None;
    let (_server, client) = serve(over, Settings::default(), |node| put_off = Some(putting_off(node)));
    let put_off = put_off.expect("the list");
    let (told, hears) = mpsc::channel();
    let held = client.clone();
    let then = move |result: Result<u64, RpcError>| {
        drop(held);
        told.send(result).expect("somebody listens");
    };
    client.call_then(LATER, &1, then).expect("room");
    drop(client);
    until("the request comes", || !put_off.lock().expect("the list").is_empty());
    put_off.lock().expect("the list").clear();
    let result = hears.recv_timeout(PATIENCE).expect("the continuation comes to its end");
    assert!(matches!(result, Err(RpcError::Call(_))), "{result:?}");
}

/// A service spent all of its time on a server that does not answer.
#[test]
fn a_server_that_does_not_answer_takes_no_time_from_others() {
    let service = service();
    let (mut node, address) = Over::Udp.listening(small(), Settings::default());
    methods(&mut node);
    let server = Server::run(node, address);
    let silent = Client::connect(Arc::clone(&service), &server.address, PATIENCE).expect("a channel");
    let address = server.address.clone();
    drop(server.end());
    // Nobody answers there any more, and the system does not say so.
    let port = address.trim_start_matches("udp:").to_owned();
    let mut socket = None;
    until("the address is free", || {
        socket = std::net::UdpSocket::bind(&port).ok();
        socket.is_some()
    });
    let (mut node, address) = Over::Udp.listening(small(), Settings::default());
    methods(&mut node);
    let server = Server::run(node, address);
    let client = Client::connect(service, &server.address, PATIENCE).expect("a channel");
    let socket = socket.expect("the socket");
    socket.set_nonblocking(true).expect("a socket that does not wait");
    let calling = std::thread::spawn(move || silent.within(Duration::from_secs(3)).call(DOUBLE.idempotent(), &1));
    let mut hellos = 0;
    while !calling.is_finished() {
        assert_eq!(client.call(DOUBLE, &4), Ok(8));
        hellos += std::iter::from_fn(|| socket.recv(&mut [0; 16]).ok()).count();
    }
    let result = calling.join().expect("the caller");
    assert!(matches!(result, Err(RpcError::NoChannel(_) | RpcError::Call(_))), "{result:?}");
    // A try has a few of them, and holds the node for 50 ms. A machine that is slow has time for less of them.
    assert!((1..60).contains(&hellos), "{hellos} hellos in three seconds");
}

fn threads_share_a_client(over: Over) {
    let (_server, client) = serve(over, Settings::default(), methods);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let client = client.clone();
            scope.spawn(move || {
                for i in 0..100 {
                    assert_eq!(client.call(DOUBLE, &(thread << 32 | i)), Ok((thread << 32 | i) * 2));
                }
            });
        }
    });
}

#[test]
#[cfg(feature = "tower")]
fn a_method_is_a_tower_service() {
    use tower_service::Service as _;
    let (_server, client) = serve(Over::Shm, Settings::default(), methods);
    let mut double = rpc::Tower::new(client, DOUBLE);
    let mut context = Context::from_waker(Waker::noop());
    assert!(double.poll_ready(&mut context).is_ready());
    let mut call = std::pin::pin!(double.call(21));
    loop {
        if let Poll::Ready(result) = call.as_mut().poll(&mut context) {
            return assert_eq!(result, Ok(42));
        }
    }
}

#[test]
#[cfg(feature = "tokio")]
fn tokio_awaits_calls() {
    let (_server, client) = serve(Over::Shm, Settings::default(), methods);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        for i in 0..100 {
            assert_eq!(client.start(DOUBLE, &i).await, Ok(i * 2));
        }
    });
}
