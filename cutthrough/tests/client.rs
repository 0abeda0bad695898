//! What a client of calls does to others: it holds nobody up, whatever it waits for.

mod two;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use cutthrough::am::{Args, CallError, Deferred, Failure, Node, RequestError, Service, Settings};
use cutthrough::rpc::{self, Client, Method, Pending, RpcError};
use cutthrough::{Config, ConnectError, Counter, Endpoint};
use two::{Over, PATIENCE, Server, block_on, small, until};

over_both! {
    opening_a_channel_holds_no_deadline_up, a_deadline_counts_while_another_has_the_node,
    to_drop_a_call_waits_for_nobody, a_call_may_be_dropped_where_its_answer_comes,
    the_last_of_a_client_closes_its_channel, a_channel_that_comes_too_late_is_closed,
    a_continuation_keeps_its_channel, continuations_find_a_server_that_comes_again, a_channel_may_be_awaited,
    who_awaits_a_channel_is_told_why_there_is_none, a_channel_that_nobody_awaits_any_more_is_closed,
    a_task_that_calls_again_and_again_lets_others_run, a_channel_that_nobody_awaits_any_more_keeps_no_place,
    short_calls_find_a_server_that_comes_again,
}

const DOUBLE: Method<u64, u64> = Method::new(1);
const LATER: Method<u64, u64> = Method::new(2);
/// Longer than a call may take, and shorter than anybody's patience.
const LONG: Duration = Duration::from_secs(3);

type List = Arc<Mutex<Vec<Deferred>>>;

fn service() -> Arc<Service> {
    let endpoint = Endpoint::open(Config { insecure: true, ..small() }).expect("an endpoint");
    Arc::new(Service::spawn(Node::new(endpoint, Settings::default()), |_| ()).expect("a thread"))
}

/// A server that answers calls of one method, and puts those of another off.
fn server(over: Over) -> (Server, List) {
    let (mut node, address) = over.listening(small(), Settings::default());
    rpc::serve(&mut node, DOUBLE, |number| Ok(number * 2));
    let list = List::default();
    let its = Arc::clone(&list);
    node.long(LATER.number(), Args::Any, 64, move |request| its.lock().expect("the list").push(request.defer()));
    (Server::run(node, address), list)
}

fn has_come(list: &List) -> bool {
    !list.lock().expect("the list").is_empty()
}

/// Polls a call until its server has it.
fn make(call: &mut Pending<u64>, list: &List, waker: &Waker) {
    until("the request comes", || {
        assert!(std::pin::Pin::new(&mut *call).poll(&mut Context::from_waker(waker)).is_pending());
        has_come(list)
    });
}

/// Has another thread use the node for as long as a call may not take: returns when it does.
fn hold(service: &Arc<Service>, time: Duration) -> std::thread::JoinHandle<()> {
    let (has, had) = mpsc::channel();
    let service = Arc::clone(service);
    let holding = std::thread::spawn(move || {
        service.with(|_| {
            has.send(()).expect("somebody waits");
            std::thread::sleep(time);
        });
    });
    had.recv_timeout(PATIENCE).expect("the node");
    holding
}

/// Whoever opened a channel kept the node to itself until there was an answer.
fn opening_a_channel_holds_no_deadline_up(over: Over) {
    let (server, _list) = server(over);
    let service = service();
    let client = Client::connect(Arc::clone(&service), &server.address, PATIENCE).expect("a channel");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket that nobody reads");
    let silent = format!("udp:{}", socket.local_addr().expect("its address"));
    let opening = std::thread::spawn(move || {
        let since = Instant::now();
        (Client::connect(service, &silent, LONG).map(drop), since.elapsed())
    });
    // Its first hello has gone.
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    socket.recv(&mut [0; 2048]).expect("a hello");
    let since = Instant::now();
    assert_eq!(client.within(Duration::from_millis(50)).call(LATER, &1), Err(CallError::Late.into()));
    assert_eq!(client.call(DOUBLE, &4), Ok(8));
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    let (opened, took) = opening.join().expect("the other thread");
    assert!(matches!(opened, Err(ConnectError::Net(_))), "{opened:?}");
    assert!(took >= LONG && took < LONG + Duration::from_secs(2), "{took:?}");
}

/// Only who has the node looked at deadlines.
fn a_deadline_counts_while_another_has_the_node(over: Over) {
    let (server, list) = server(over);
    let service = service();
    let client = Client::connect(Arc::clone(&service), &server.address, PATIENCE).expect("a channel");
    let calling = std::thread::spawn(move || {
        let since = Instant::now();
        (client.within(Duration::from_millis(300)).call(LATER, &1), since.elapsed())
    });
    until("the request comes", || has_come(&list));
    let holding = hold(&service, LONG);
    let (result, took) = calling.join().expect("the caller");
    assert_eq!(result, Err(CallError::Late.into()));
    assert!(took < Duration::from_secs(2), "{took:?}");
    // A channel is not waited for longer than was said, either.
    let since = Instant::now();
    assert!(Client::connect(service, &server.address, Duration::from_millis(100)).is_err());
    assert!(!holding.is_finished() && since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    holding.join().expect("the other thread");
    until("the server hears of it", || list.lock().expect("the list").iter().all(Deferred::is_over));
}

/// To drop a call waited for whoever had the node.
fn to_drop_a_call_waits_for_nobody(over: Over) {
    let (server, list) = server(over);
    let service = service();
    let client = Client::connect(Arc::clone(&service), &server.address, PATIENCE).expect("a channel");
    let mut call = client.start(LATER, &1);
    make(&mut call, &list, Waker::noop());
    let holding = hold(&service, Duration::from_secs(1));
    let since = Instant::now();
    drop(call);
    assert!(since.elapsed() < Duration::from_millis(500), "{:?}", since.elapsed());
    assert!(!holding.is_finished() && !list.lock().expect("the list")[0].is_over());
    holding.join().expect("the other thread");
    until("the server hears of it", || list.lock().expect("the list")[0].is_over());
    assert_eq!(client.call(DOUBLE, &4), Ok(8));
}

/// Drops calls on the thread that wakes it.
struct Dropping(Mutex<Vec<Pending<u64>>>, mpsc::Sender<()>);

impl Wake for Dropping {
    fn wake(self: Arc<Self>) {
        self.0.lock().expect("the calls").clear();
        let _ = self.1.send(());
    }
}

/// Whoever polled had the node, and waited for itself.
fn a_call_may_be_dropped_where_its_answer_comes(over: Over) {
    let (server, list) = server(over);
    let client = Client::connect(service(), &server.address, PATIENCE).expect("a channel");
    let (woken, is_woken) = mpsc::channel();
    let dropping = Arc::new(Dropping(Mutex::default(), woken));
    let mut first = client.start(LATER, &1);
    make(&mut first, &list, &Waker::from(Arc::clone(&dropping)));
    let mut other = client.start(LATER, &2);
    until("both come", || {
        assert!(std::pin::Pin::new(&mut other).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        list.lock().expect("the list").len() == 2
    });
    dropping.0.lock().expect("the calls").push(other);
    // The answer to the first drops the other.
    drop(list.lock().expect("the list").remove(0));
    is_woken.recv_timeout(PATIENCE).expect("the calls are dropped");
    until("the server hears of it", || list.lock().expect("the list")[0].is_over());
    let result: Result<u64, RpcError> = client.call(DOUBLE, &4);
    assert_eq!(result, Ok(8));
}

fn channels(service: &Service) -> usize {
    service.with(|node| node.channels().count())
}

/// Each client left a channel behind, at both ends.
fn the_last_of_a_client_closes_its_channel(over: Over) {
    let (mut node, address) = over.listening(small(), Settings::default());
    rpc::serve(&mut node, DOUBLE, |number| Ok(number * 2));
    let server = Service::spawn(node, |_| ()).expect("a thread");
    let service = service();
    for number in 0..100 {
        let client = Client::connect(Arc::clone(&service), &address, PATIENCE).expect("a channel");
        let other = client.within(PATIENCE);
        drop(client);
        assert_eq!(other.call(DOUBLE, &number), Ok(number * 2));
    }
    until("this side closes all", || channels(&service) == 0);
    until("the other side hears of it", || channels(&server) == 0);
    // Who ends the service has a node without them.
    let client = Client::connect(Arc::clone(&service), &address, PATIENCE).expect("a channel");
    drop(client);
    let node = Arc::into_inner(service).and_then(Service::stop).expect("nobody shares it");
    assert_eq!(node.channels().count(), 0);
}

fn a_channel_that_comes_too_late_is_closed(over: Over) {
    let (server, _list) = server(over);
    let service = service();
    let client = Client::connect(Arc::clone(&service), &server.address, PATIENCE).expect("a channel");
    let address = server.address.clone();
    drop(server.end());
    // Whoever has its address now does not answer yet.
    let mut node = Over::node(small(), Settings::default());
    until("the address is free", || node.listen(&address).is_ok());
    let mut call = client.start(DOUBLE.idempotent(), &1);
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(100) {
        assert!(std::pin::Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    drop((call, client));
    let server = Service::spawn(node, |_| ()).expect("a thread");
    until("a channel opens", || server.with(|node| node.endpoint().counter(Counter::ChannelsOpened)) > 0);
    until("the other side hears of its end", || channels(&server) == 0);
    until("this side closes it", || channels(&service) == 0);
}

/// A task can await a client, be it by an executor that polls only who was woken.
fn a_channel_may_be_awaited(over: Over) {
    fn send<T: Send>(future: T) -> T {
        future
    }
    let (server, _list) = server(over);
    let service = service();
    let named = server.address.replace("127.0.0.1", "localhost");
    for address in [server.address.clone(), named] {
        let connecting = send(Client::start_connect(Arc::clone(&service), address, PATIENCE));
        let client = block_on(connecting).expect("a channel");
        assert_eq!(client.call(DOUBLE, &21), Ok(42));
    }
    until("the channels are closed", || channels(&service) == 0);
}

fn who_awaits_a_channel_is_told_why_there_is_none(over: Over) {
    let service = service();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket that nobody reads");
    let time = Duration::from_millis(50);
    let await_one = |address: String| block_on(Client::start_connect(Arc::clone(&service), address, time)).err();
    let silent = await_one(format!("udp:{}", socket.local_addr().expect("its address")));
    assert!(matches!(silent, Some(ConnectError::Net(_) | ConnectError::Timeout(_))), "{silent:?}");
    let nobody = await_one(format!("shm:cutthrough-nobody-{}", std::process::id()));
    assert!(matches!(nobody, Some(ConnectError::Address(_))), "{nobody:?}");
    let unknown = await_one("udp:there-is-no-such-host.invalid:7".into());
    assert!(matches!(unknown, Some(ConnectError::NetAddress(_))), "{unknown:?}");
    // The service goes on.
    let (server, _list) = server(over);
    let client = Client::connect(service, &server.address, PATIENCE).expect("a channel");
    assert_eq!(client.call(DOUBLE, &1), Ok(2));
}

/// At whatever moment it is given up.
fn a_channel_that_nobody_awaits_any_more_is_closed(over: Over) {
    let (server, _list) = server(over);
    let service = service();
    for round in 0..30 {
        let mut connecting = Box::pin(Client::start_connect(Arc::clone(&service), &server.address, PATIENCE));
        if round > 0 {
            // Some are there already.
            drop(connecting.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        }
        std::thread::sleep(Duration::from_micros(50 * round));
        drop(connecting);
    }
    // Behind all of them.
    let client = Client::connect(Arc::clone(&service), &server.address, PATIENCE).expect("a channel");
    assert_eq!(client.call(DOUBLE, &1), Ok(2));
    until("only this one is left", || channels(&service) == 1);
    // What was never polled was never begun.
    let opened = service.with(|node| node.endpoint().counter(Counter::ChannelsOpened));
    assert!((1..=30).contains(&opened), "{opened} of 29, and one");
}

/// Who gave up, as by `select!`, left behind what was begun: that kept its place among the channels until its time was
/// over.
fn a_channel_that_nobody_awaits_any_more_keeps_no_place(over: Over) {
    let (mut node, address) = over.listening(small(), Settings::default());
    rpc::serve(&mut node, DOUBLE, |number| Ok(number * 2));
    let config = Config { insecure: true, channels: 4, ..small() };
    let endpoint = Endpoint::open(config).expect("an endpoint");
    let service = Arc::new(Service::spawn(Node::new(endpoint, Settings::default()), |_| ()).expect("a thread"));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..12 {
        // Whoever listens does not look, so that over shared memory there is no answer.
        let mut connecting = Box::pin(Client::start_connect(Arc::clone(&service), &address, PATIENCE));
        for _ in 0..2 {
            if let Poll::Ready(outcome) = connecting.as_mut().poll(&mut context) {
                drop(outcome.expect("a place"));
                break;
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }
    let server = Server::run(node, address);
    let client = block_on(Client::start_connect(Arc::clone(&service), &server.address, PATIENCE)).expect("a channel");
    assert_eq!(client.call(DOUBLE, &1), Ok(2));
    until("only this one is left", || channels(&service) == 1);
}

/// A call is often answered by its first poll: a task that made one after the other kept its thread for itself.
fn a_task_that_calls_again_and_again_lets_others_run(over: Over) {
    let (server, _list) = server(over);
    let client = Client::connect(service(), &server.address, PATIENCE).expect("a channel");
    let made = Cell::new(0);
    let calling = async {
        while made.get() < 20_000 {
            let number = made.replace(made.get() + 1);
            assert_eq!(client.start(DOUBLE, &number).await, Ok(2 * number));
        }
    };
    let mut calling = pin!(calling);
    let mut most = 0;
    block_on(poll_fn(|context| {
        let before = made.get();
        let answer = calling.as_mut().poll(context);
        most = most.max(made.get() - before);
        answer
    }));
    assert!(most <= 33, "{most} calls while others waited");
}

/// With the last of a client its channel ends, but not before what was asked for is answered.
fn a_continuation_keeps_its_channel(over: Over) {
    let (server, list) = server(over);
    let service = service();
    let client = Client::connect(Arc::clone(&service), &server.address, PATIENCE).expect("a channel");
    let (told, hears) = mpsc::channel();
    client.call_then(LATER, &1, move |result| told.send(result).expect("somebody listens")).expect("room");
    drop(client);
    until("the request comes", || has_come(&list));
    assert!(hears.recv_timeout(Duration::from_millis(20)).is_err());
    drop(list.lock().expect("the list").pop());
    let result = hears.recv_timeout(PATIENCE).expect("a result");
    assert_eq!(result, Err(CallError::Failed(Failure::Abandoned).into()));
    until("the channel is closed", || channels(&service) == 0);
}

/// Only other calls had another channel opened where one had ended.
fn continuations_find_a_server_that_comes_again(over: Over) {
    let (first, _list) = server(over);
    let address = first.address.clone();
    let client = Client::connect(service(), &address, PATIENCE).expect("a channel");
    let ask = || {
        let (told, hears) = mpsc::channel();
        client.call_then(DOUBLE, &4, move |result| told.send(result).expect("somebody listens"))?;
        Ok::<_, RequestError>(hears.recv_timeout(PATIENCE).expect("a result"))
    };
    assert_eq!(ask(), Ok(Ok(8)));
    drop(first.end());
    // Its end is heard of by a call, or before.
    let gone = ask();
    assert!(matches!(gone, Err(RequestError::Closed) | Ok(Err(RpcError::Call(CallError::Closed(_))))), "{gone:?}");
    until("it has heard of it", || ask() == Err(RequestError::Closed));
    let mut node = Over::node(small(), Settings::default());
    rpc::serve(&mut node, DOUBLE, |number| Ok(number * 2));
    until("the address is free", || node.listen(&address).is_ok());
    let _second = Server::run(node, address);
    until("it finds the other one", || match ask() {
        Ok(result) => result == Ok(8),
        Err(error) => {
            assert_eq!(error, RequestError::Closed);
            false
        }
    });
}

/// Another channel had no longer to open than the call that had it opened.
fn short_calls_find_a_server_that_comes_again(over: Over) {
    let (mut node, address) = over.listening(small(), Settings::default());
    rpc::serve(&mut node, DOUBLE, |number| Ok(number * 2));
    let client = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| Client::connect(service(), &address, PATIENCE).expect("a channel"));
        until("it has come", || node.poll().is_some());
        connecting.join().expect("no panic")
    });
    let first = node.channels().next().expect("a channel");
    node.close(first);
    // Who serves is slower than any of these calls may be.
    let short = client.within(Duration::from_millis(5));
    until("there is another channel", || {
        let called = short.call(DOUBLE, &4);
        assert!(called.is_err(), "nobody has served it");
        std::thread::sleep(Duration::from_millis(30));
        while node.poll().is_some() {}
        node.channels().next().is_some()
    });
    // It is kept, too.
    std::thread::sleep(Duration::from_millis(30));
    while node.poll().is_some() {}
    assert_eq!(node.channels().count(), 1);
    let _server = Server::run(node, address);
    assert_eq!(client.call(DOUBLE, &4), Ok(8));
}
