//! A call that is awaited and whose body is longer than the pool goes only as fast as its server takes it. Its task
//! waits for that, and nobody else of its executor does.

mod two;

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use cutthrough::am::{Args, Body, CallError, Failure, RequestError, Service, Settings};
use cutthrough::rpc::{self, Client, Method, Raw, RawPending, RpcError};
use cutthrough::{Config, Landing};
use two::{Over, PATIENCE, block_on, small, until};

over_both! {
    other_tasks_go_on_while_a_long_body_is_sent, a_long_body_that_nobody_takes_is_late_in_time,
    a_call_whose_long_body_is_sent_can_be_dropped, long_values_of_several_tasks_come_as_they_are,
    who_waits_behind_a_long_body_is_late_in_time, a_waker_that_panics_keeps_no_other_long_body_from_being_sent,
    who_sends_a_long_body_has_no_hold_of_the_service, who_has_waited_for_others_asks_a_busy_server_again_at_once,
}

/// More than the receiver lets come unasked and aside.
const LONG: usize = 60 << 20;
const TAKE: u16 = 20;

/// A server that takes no long body before it is told to: the service, the caller's client, who tells it, and how often
/// it has been asked.
fn stubborn(over: Over) -> (Service, Client, mpsc::Sender<()>, Arc<AtomicU32>) {
    let (server, _, client, tell, asked) = stubborn_server(over);
    (server, client, tell, asked)
}

/// The same, and the caller's service.
fn stubborn_server(over: Over) -> (Service, Arc<Service>, Client, mpsc::Sender<()>, Arc<AtomicU32>) {
    let (mut node, address) = over.listening(small(), Settings::default());
    let (tell, told) = mpsc::channel();
    let (told, asked) = (Mutex::new(told), Arc::new(AtomicU32::new(0)));
    let counts = Arc::clone(&asked);
    node.long(TAKE, Args::Any, LONG, move |mut request| {
        counts.fetch_add(1, Ordering::Relaxed);
        let _ = told.lock().expect("no panic").recv_timeout(PATIENCE);
        let mut bytes = vec![0; request.payload_len()];
        match request.read(&mut bytes) {
            Ok(_) => request.reply(&[u32::try_from(bytes.len()).expect("few")]),
            Err(_) => request.refuse(b"gone"),
        }
    });
    let server = Service::spawn(node, |_| ()).expect("a thread");
    let config = Config { pool_bytes: 64 << 10, deadline: PATIENCE, ..small() };
    let service = Arc::new(Service::spawn(Over::node(config, Settings::default()), |_| ()).expect("a thread"));
    let client = Client::connect(Arc::clone(&service), &address, PATIENCE).expect("a channel");
    (server, service, client.within(PATIENCE), tell, asked)
}

/// Awaits both on this thread, each polled when the other lets it.
async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(|context: &mut Context<'_>| {
        if first.is_none()
            && let Poll::Ready(done) = one.as_mut().poll(context)
        {
            first = Some(done);
        }
        if second.is_none()
            && let Poll::Ready(done) = other.as_mut().poll(context)
        {
            second = Some(done);
        }
        if first.is_some() && second.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (first.expect("it is done"), second.expect("it is done"))
}

fn other_tasks_go_on_while_a_long_body_is_sent(over: Over) {
    let (_server, client, tell, asked) = stubborn(over);
    let long = vec![1; LONG];
    let call = client.start_raw(Raw::new(TAKE).body(Body::Copy(&long)));
    // Only this task tells the server to go on, and only once that has begun.
    let is_done = AtomicBool::new(false);
    let other = async {
        let since = Instant::now();
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            let begun = asked.load(Ordering::Relaxed) > 0 || since.elapsed() > PATIENCE / 2;
            if begun { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        assert!(!is_done.load(Ordering::Relaxed));
        tell.send(()).expect("the server is there");
    };
    let call = async {
        let reply = call.await;
        is_done.store(true, Ordering::Relaxed);
        reply
    };
    let (reply, ()) = block_on(both(call, other));
    assert_eq!(reply.expect("a reply").word(0) as usize, LONG);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    // Nothing is left behind of it.
    drop(tell);
    let short = block_on(client.start_raw(Raw::new(TAKE).body(Body::Copy(&[1; 100]))));
    assert_eq!(short.expect("a reply").word(0), 100);
}

fn a_long_body_that_nobody_takes_is_late_in_time(over: Over) {
    let (_server, client, tell, _) = stubborn(over);
    let since = Instant::now();
    let place = Landing::Buffer(vec![0; 10]);
    let raw = Raw::new(TAKE).body(Body::Owned(vec![1; LONG])).reply_into(place);
    let late = block_on(client.within(Duration::from_millis(100)).start_raw(raw)).map(drop).expect_err("it is late");
    assert_eq!(late.error, CallError::Late);
    assert!(since.elapsed() < PATIENCE / 2, "it has waited for the server");
    // The server has its message, and a later call of the same channel comes behind.
    drop(tell);
    let short = block_on(client.start_raw(Raw::new(TAKE).body(Body::Copy(&[1; 100]))));
    assert_eq!(short.expect("a reply").word(0), 100);
}

/// A call of which the server knows, and whose body it does not take yet.
fn begun(client: &Client, asked: &AtomicU32, waker: &Waker) -> RawPending<'static> {
    let mut call = client.start_raw(Raw::new(TAKE).body(Body::Owned(vec![1; LONG])));
    until("it is sent", || {
        assert!(Pin::new(&mut call).poll(&mut Context::from_waker(waker)).is_pending());
        asked.load(Ordering::Relaxed) > 0
    });
    call
}

fn a_call_whose_long_body_is_sent_can_be_dropped(over: Over) {
    let (_server, client, tell, asked) = stubborn(over);
    let since = Instant::now();
    let call = begun(&client, &asked, Waker::noop());
    assert_eq!(call.cancel(), None);
    assert!(since.elapsed() < PATIENCE / 2, "it has waited for the server");
    drop(tell);
    let short = block_on(client.start_raw(Raw::new(TAKE).body(Body::Copy(&[1; 100]))));
    assert_eq!(short.expect("a reply").word(0), 100);
}

/// The service's thread, which wakes those that wait, waited for the node itself.
fn who_waits_behind_a_long_body_is_late_in_time(over: Over) {
    let (_server, client, tell, asked) = stubborn(over);
    let call = begun(&client, &asked, Waker::noop());
    let since = Instant::now();
    let soon = Duration::from_millis(100);
    let late = |bytes| {
        let raw = Raw::new(TAKE).body(Body::Owned(vec![1; bytes])).reply_into(Landing::Buffer(vec![7; 10]));
        let late = block_on(client.within(soon).start_raw(raw)).map(drop).expect_err("it is late");
        assert_eq!(late.error, CallError::NotSent(RequestError::TimedOut(soon)));
        assert_eq!(late.landing, Some(Landing::Buffer(vec![7; 10])), "it is given back");
    };
    late(LONG);
    late(100);
    assert!(since.elapsed() < PATIENCE / 2, "they have waited for the server");
    drop(tell);
    assert_eq!(block_on(call).expect("a reply").word(0) as usize, LONG);
    assert_eq!(asked.load(Ordering::Relaxed), 1, "they were not sent");
}

/// How long others have the node is no part of what a try takes.
fn who_has_waited_for_others_asks_a_busy_server_again_at_once(over: Over) {
    const BUSY_ONCE: u16 = 23;
    const HELD: Duration = Duration::from_secs(2);
    let (server, client, tell, asked) = stubborn(over);
    let refused = [AtomicBool::new(false), AtomicBool::new(false)];
    server.with(|node| {
        rpc::serve_raw(node, BUSY_ONCE, move |request| {
            if refused[usize::from(request.args()[0])].swap(true, Ordering::Relaxed) {
                request.reply(&[7]);
            } else {
                request.fail(Failure::Busy);
            }
        });
    });
    let call = begun(&client, &asked, Waker::noop());
    let client = client.within(HELD + HELD * 3 / 4);
    let raw = |who| Raw::new(BUSY_ONCE).args(&[who]).body(Body::Owned(vec![1; LONG]));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| client.call_raw(raw(0)));
        scope.spawn(|| {
            std::thread::sleep(HELD);
            drop(tell);
        });
        let awaited = block_on(client.start_raw(raw(1)));
        for answer in [awaited, waits.join().expect("no panic")] {
            assert_eq!(answer.expect("a reply").word(0), 7);
        }
    });
    drop(call);
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("as it shall");
    }
}

fn a_waker_that_panics_keeps_no_other_long_body_from_being_sent(over: Over) {
    let (_server, client, tell, asked) = stubborn(over);
    let call = begun(&client, &asked, &Waker::from(Arc::new(Panics)));
    drop(tell);
    let next = block_on(client.start_raw(Raw::new(TAKE).body(Body::Owned(vec![1; LONG]))));
    assert_eq!(next.expect("a reply").word(0) as usize, LONG);
    assert_eq!(block_on(call).expect("a reply").word(0) as usize, LONG);
}

/// Until the server had taken the body, nobody could have the service to itself and stop it.
fn who_sends_a_long_body_has_no_hold_of_the_service(over: Over) {
    let (_server, service, client, tell, asked) = stubborn_server(over);
    let call = begun(&client, &asked, Waker::noop());
    drop((call, client));
    until("nobody else has the service", || Arc::strong_count(&service) == 1);
    assert_eq!(asked.load(Ordering::Relaxed), 1, "the server has not taken the body");
    let service = Arc::into_inner(service).expect("nobody else has it");
    let stopping = std::thread::spawn(move || service.stop());
    drop(tell);
    let node = stopping.join().expect("no panic").expect("nobody else has the node");
    drop(node);
}

fn long_values_of_several_tasks_come_as_they_are(over: Over) {
    const SUM: Method<Vec<u8>, u64> = Method::new(21);
    const REFUSES: Method<Vec<u8>, u64> = Method::new(22);
    let (mut node, address) = over.listening(small(), Settings::default());
    rpc::serve(&mut node, SUM, |bytes| Ok(bytes.iter().map(|byte| u64::from(*byte)).sum()));
    rpc::serve(&mut node, REFUSES, |bytes| Err(format!("{} are too many", bytes.len()).into()));
    let _server = Service::spawn(node, |_| ()).expect("a thread");
    let config = Config { pool_bytes: 64 << 10, ..small() };
    let service = Arc::new(Service::spawn(Over::node(config, Settings::default()), |_| ()).expect("a thread"));
    let client = Client::connect(service, &address, PATIENCE).expect("a channel").within(PATIENCE);
    let [one, two] = [vec![1; 5 << 20], vec![2; 3 << 20]];
    let (sums, refused) = block_on(both(
        both(client.start(SUM, &one), client.start(SUM, &two)),
        both(client.start(REFUSES, &two), client.start(SUM, &vec![1, 2, 3])),
    ));
    assert_eq!(sums, (Ok(5 << 20), Ok(6 << 20)));
    assert_eq!(refused, (Err(RpcError::Refused(format!("{} are too many", 3 << 20))), Ok(6)));
}
