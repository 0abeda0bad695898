//! What others' functions do on the thread of a service does not end it.

mod two;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use cutthrough::am::{Args, Body, CallError, Continuing, Event, Failed, Failure, Node, Reply, Service, Settings};
use cutthrough::rpc::{self, Answer, Client, Method, Raw};
use cutthrough::{Channel, Config, Endpoint};
use two::{Over, PATIENCE, Server, small, until};

over_both! {
    a_panic_in_an_upcall_does_not_end_the_service,
    a_handler_that_waits_for_its_own_node_is_told_so, a_panic_of_who_uses_the_node_does_not_put_the_service_to_sleep,
    a_panic_of_who_is_woken_does_not_end_the_service, a_continuation_reads_its_reply,
    a_handler_that_calls_by_its_own_node_is_told_so, a_handler_runs_well_while_its_thread_unwinds,
    what_somebody_panics_with_may_panic_when_it_is_dropped, who_is_woken_may_be_dropped_where_the_answer_comes,
    a_continuation_has_the_next_call_made, what_is_posted_again_and_again_keeps_nobody_out,
    who_is_told_of_an_event_has_the_node, a_request_that_its_handler_forgets_is_answered,
}

const ECHO: u16 = 1;
const WAIT: Method<u32, u32> = Method::new(2);

/// A server, and a service with a channel to it.
fn serviced(over: Over, event: impl FnMut(Event) + Send + 'static) -> (Server, Service, Channel) {
    let (server, mut node, channel) = over.serve_with(small(), Settings::default(), |node| {
        node.short(ECHO, Args::Any, |request| request.reply(&[1]));
    });
    node.on_reply(3, |_| panic!("a reply handler"));
    (server, Service::spawn(node, event).expect("a thread"), channel)
}

/// Whether the service's own thread takes an answer in.
fn is_alive(service: &Service, channel: Channel) -> bool {
    let (tell, told) = mpsc::channel();
    let asked = service.with(|node| {
        node.ask(channel, ECHO).send_then(move |_, reply| {
            let _ = tell.send((reply.is_ok(), std::thread::current().id()));
        })
    });
    let own = std::thread::current().id();
    asked.is_ok() && told.recv_timeout(PATIENCE / 4).is_ok_and(|(replied, by)| replied && by != own)
}

/// It waited for ever, and all who wanted the node with it.
fn a_handler_that_waits_for_its_own_node_is_told_so(over: Over) {
    let own: Arc<OnceLock<Service>> = Arc::default();
    let its = Arc::clone(&own);
    let (mut node, address) = over.listening(small(), Settings::default());
    node.short(ECHO, Args::Words(1), move |request| {
        if request.word(0) == 1 {
            its.get().expect("it is there").with(|node| drop(node.poll()));
        }
        request.reply(&[7]);
    });
    assert!(own.set(Service::spawn(node, |_| ()).expect("a thread")).is_ok());
    let mut peer = Over::node(small(), Settings::default());
    let channel = peer.connect(&address, PATIENCE).expect("a channel");
    for _ in 0..2 {
        let waits = peer.call(channel, ECHO, &[1], PATIENCE).map(drop).map_err(|unanswered| unanswered.error);
        assert_eq!(waits, Err(CallError::Failed(Failure::Panicked)));
        assert_eq!(peer.call(channel, ECHO, &[0], PATIENCE).expect("a reply").word(0), 7);
    }
}

/// It waited until its time was over, and all who wanted the node with it.
fn a_handler_that_calls_by_its_own_node_is_told_so(over: Over) {
    const CONNECT: u16 = 3;
    const HELD: u16 = 9;
    let held = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&held);
    let (other, _, _) = over.serve(|node| {
        rpc::serve(node, WAIT, |number| Ok(number + 1));
        node.short(HELD, Args::Any, move |request| its.lock().expect("the list").push(request.defer()));
    });
    let (address, own) = (other.address.clone(), Arc::<OnceLock<(Arc<Service>, Client)>>::default());
    let (mut node, its_address) = over.listening(small(), Settings { window: 1, ..Settings::default() });
    let its = Arc::clone(&own);
    node.short(ECHO, Args::Words(0), move |request| {
        let sum = its.get().expect("it is there").1.call(WAIT, &7).expect("a result");
        request.reply(&[sum]);
    });
    let its = Arc::clone(&own);
    node.short(CONNECT, Args::Words(0), move |request| {
        let service = Arc::clone(&its.get().expect("it is there").0);
        drop(Client::connect(service, &address, PATIENCE));
        request.reply(&[]);
    });
    let service = Arc::new(Service::spawn(node, |_| ()).expect("a thread"));
    let client = Client::connect(Arc::clone(&service), &other.address, PATIENCE).expect("a channel");
    assert_eq!(client.call(WAIT, &7), Ok(8));
    assert!(own.set((service, client.clone())).is_ok());
    let mut peer = Over::node(small(), Settings::default());
    let channel = peer.connect(&its_address, PATIENCE).expect("a channel");
    for handler in [ECHO, CONNECT] {
        let waits = peer.call(channel, handler, &[], PATIENCE / 4).map(drop).map_err(|unanswered| unanswered.error);
        assert_eq!(waits, Err(CallError::Failed(Failure::Panicked)), "of {handler}");
        assert_eq!(client.call(WAIT, &7), Ok(8), "elsewhere it can be called");
    }
    // Where calls wait to be made, it would wait behind them.
    let mut context = Context::from_waker(Waker::noop());
    let mut first = client.start_raw(Raw::new(HELD));
    until("the first is there", || {
        assert!(Pin::new(&mut first).poll(&mut context).is_pending());
        !held.lock().expect("the list").is_empty()
    });
    let mut second = client.start(WAIT, &7);
    assert!(Pin::new(&mut second).poll(&mut context).is_pending());
    let waits = peer.call(channel, ECHO, &[], PATIENCE / 4).map(drop).map_err(|unanswered| unanswered.error);
    assert_eq!(waits, Err(CallError::Failed(Failure::Panicked)));
    drop((first, second));
    held.lock().expect("the list").clear();
    assert_eq!(client.call(WAIT, &7), Ok(8));
}

/// It has not panicked itself.
fn a_handler_runs_well_while_its_thread_unwinds(over: Over) {
    struct Serves(Node, Arc<AtomicU32>);
    impl Drop for Serves {
        fn drop(&mut self) {
            until("a request has come", || self.0.poll().is_none() && self.1.load(Ordering::Relaxed) > 0);
        }
    }
    let (mut node, address) = over.listening(small(), Settings::default());
    let served = Arc::<AtomicU32>::default();
    let its = Arc::clone(&served);
    node.short(ECHO, Args::Any, move |_| {
        its.fetch_add(1, Ordering::Relaxed);
    });
    let panics = std::thread::spawn(|| {
        let _serves = Serves(node, served);
        panic!("as it shall");
    });
    let mut peer = Over::node(small(), Settings::default());
    let channel = peer.connect(&address, PATIENCE).expect("a channel");
    assert_eq!(peer.call(channel, ECHO, &[], PATIENCE).map(drop), Ok(()));
    assert!(panics.join().is_err());
}

fn a_panic_in_an_upcall_does_not_end_the_service(over: Over) {
    let events = Arc::new(AtomicU32::new(0));
    let its = Arc::clone(&events);
    let (_server, service, channel) = serviced(over, move |_| {
        its.fetch_add(1, Ordering::SeqCst);
        panic!("an event");
    });
    assert!(is_alive(&service, channel));
    service.with(|node| node.ask(channel, ECHO).then(3).send()).expect("room");
    std::thread::sleep(Duration::from_millis(20));
    assert!(is_alive(&service, channel), "after a reply handler");
    service.with(|node| node.ask(channel, ECHO).send_then(|_, _| panic!("a continuation"))).expect("room");
    std::thread::sleep(Duration::from_millis(20));
    assert!(is_alive(&service, channel), "after a continuation");
    service.with(|node| node.request(channel, ECHO, &[])).expect("room");
    std::thread::sleep(Duration::from_millis(20));
    assert!(is_alive(&service, channel), "after an event");
    assert_eq!(events.load(Ordering::SeqCst), 1);
    assert!(service.stop().is_some());
}

fn a_panic_of_who_uses_the_node_does_not_put_the_service_to_sleep(over: Over) {
    let (_server, service, channel) = serviced(over, |_| ());
    // Its thread sleeps, and is to be rung for.
    std::thread::sleep(Duration::from_millis(50));
    let (tell, told) = mpsc::channel();
    let used = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        service.with(|node| {
            let ask = node.ask(channel, ECHO).body(Body::Copy(&[0; 100]));
            ask.send_then(move |_, _| tell.send(()).expect("somebody listens")).expect("room");
            // Whoever has polled is not rung for any more.
            (0..1000).for_each(|_| drop(node.poll()));
            node.ask(channel, ECHO).body(Body::Copy(&[0; 100])).send_then(|_, _| ()).expect("room");
            panic!("whoever uses the node");
        })
    }));
    assert!(used.is_err());
    assert_eq!(told.recv_timeout(PATIENCE / 4), Ok(()));
    assert!(is_alive(&service, channel));
}

fn a_continuation_reads_its_reply(over: Over) {
    let payload: Vec<u8> = (0..10_000_u32).map(|i| i.to_le_bytes()[0]).collect();
    let its = payload.clone();
    let (_server, mut node, channel) = over.serve(|node| {
        node.short(ECHO, Args::Any, move |request| request.reply_with(&[], Body::Copy(&its)));
    });
    let (tell, told) = mpsc::channel();
    let take = move |inside: &mut Continuing<'_>, reply: Result<Reply, Failed>| {
        let mut reply = reply.expect("a reply");
        let mut bytes = vec![0; reply.payload_len()];
        let read = reply.read(inside, &mut bytes);
        let page = inside.page(reply.channel(), 100).map(|page| page.len());
        inside.release(reply);
        tell.send((read, bytes, page)).expect("somebody listens");
    };
    node.ask(channel, ECHO).send_then(take).expect("room");
    let told = loop {
        assert!(node.wait(Some(Duration::from_millis(1))).is_err(), "the reply is the continuation's");
        if let Ok(told) = told.try_recv() {
            break told;
        }
    };
    assert_eq!(told, (Ok(()), payload, Ok(100)));
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker");
    }
}

fn a_panic_of_who_is_woken_does_not_end_the_service(over: Over) {
    let (mut far, address) = over.listening(small(), Settings::default());
    let held: Arc<Mutex<Vec<Answer<u32>>>> = Arc::default();
    let its = Arc::clone(&held);
    rpc::serve_later(&mut far, WAIT, move |_, answer| its.lock().expect("the list").push(answer));
    let _server = Server::run(far, address.clone());
    let (mut node, own) = over.listening(small(), Settings { window: 1, ..Settings::default() });
    node.short(ECHO, Args::Any, |request| request.reply(&[5]));
    let service = Arc::new(Service::spawn(node, |_| ()).expect("a thread"));
    let client = Client::connect(service, &address, PATIENCE).expect("a channel");
    let (mut first, mut second) = (client.start(WAIT, &1), client.start(WAIT, &2));
    assert!(Pin::new(&mut first).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // For this there is no room: its task is to be woken, to try again.
    let waker = Waker::from(Arc::new(Panics));
    assert!(Pin::new(&mut second).poll(&mut Context::from_waker(&waker)).is_pending());
    std::thread::sleep(Duration::from_millis(20));
    let mut peer = Over::node(small(), Settings::default());
    let channel = peer.connect(&own, PATIENCE / 4).expect("somebody lets it in");
    assert_eq!(peer.call(channel, ECHO, &[], PATIENCE / 4).expect("a reply").word(0), 5);
}

struct Words;

impl Drop for Words {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("what somebody has panicked with");
        }
    }
}

/// It ended the service's thread, and whoever polled.
fn what_somebody_panics_with_may_panic_when_it_is_dropped(over: Over) {
    let (_server, service, channel) = serviced(over, |_| ());
    service.with(|node| node.ask(channel, ECHO).send_then(|_, _| std::panic::panic_any(Words))).expect("room");
    std::thread::sleep(Duration::from_millis(20));
    assert!(is_alive(&service, channel), "after a continuation");
    let (_server, mut node, channel) = over.serve(|node| {
        node.short(ECHO, Args::Any, |request| request.reply(&[1]));
        node.short(WAIT.number(), Args::Any, |_| std::panic::panic_any(Words));
    });
    let panicked = node.call(channel, WAIT.number(), &[], PATIENCE / 4).map_err(|unanswered| unanswered.error);
    assert!(matches!(panicked, Err(CallError::Failed(Failure::Panicked))), "{panicked:?}");
    assert!(node.call(channel, ECHO, &[], PATIENCE / 4).is_ok(), "after a handler");
}

type Held = Arc<Mutex<Vec<Answer<u32>>>>;

/// Uses the service when it is dropped, and has the answer to its call come just then.
struct Uses {
    service: Arc<Service>,
    held: Held,
    is_last: Arc<AtomicBool>,
}

impl Wake for Uses {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Uses {
    fn drop(&mut self) {
        if self.is_last.load(Ordering::SeqCst) {
            self.held.lock().expect("the list").pop().expect("an answer").give(Ok(5));
            std::thread::sleep(Duration::from_millis(50));
            self.service.with(|_| ());
        }
    }
}

/// Whoever left the answer waited for who dropped the waker, and the other way round.
fn who_is_woken_may_be_dropped_where_the_answer_comes(over: Over) {
    let (mut far, address) = over.listening(small(), Settings::default());
    let held = Held::default();
    let its = Arc::clone(&held);
    rpc::serve_later(&mut far, WAIT, move |_, answer| its.lock().expect("the list").push(answer));
    let _server = Server::run(far, address.clone());
    let service = Service::spawn(Over::node(small(), Settings::default()), |_| ()).expect("a thread");
    let service = Arc::new(service);
    let client = Client::connect(Arc::clone(&service), &address, PATIENCE).expect("a channel");
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut call = client.start(WAIT, &1);
        let is_last = Arc::new(AtomicBool::new(false));
        let uses = Uses { service, held: Arc::clone(&held), is_last: Arc::clone(&is_last) };
        let waker = Waker::from(Arc::new(uses));
        until("the request comes", || {
            assert!(Pin::new(&mut call).poll(&mut Context::from_waker(&waker)).is_pending());
            !held.lock().expect("the list").is_empty()
        });
        drop(waker);
        is_last.store(true, Ordering::SeqCst);
        // Another task has the call from now on.
        assert!(Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        until("the answer", || match Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => tell.send(result).is_ok(),
            Poll::Pending => false,
        });
    });
    assert_eq!(told.recv_timeout(PATIENCE / 4), Ok(Ok(5)));
}

#[test]
fn handlers_share_a_state_with_whoever_has_the_node() {
    let address = format!("shm:cutthrough-state-{}", std::process::id());
    let mut far = Node::with_state(Endpoint::open(small()).expect("an endpoint"), Settings::default(), vec![5_u32]);
    far.listen(&address).expect("a free name");
    far.short_with(1, Args::Words(1), |numbers: &mut Vec<u32>, request| {
        numbers.push(request.word(0));
        request.reply(&[numbers.iter().sum()]);
    });
    far.long_with(2, Args::Words(0), 64, |numbers: &mut Vec<u32>, mut request| {
        let mut bytes = vec![0; request.payload_len()];
        request.read(&mut bytes).expect("the payload");
        numbers.extend(bytes.into_iter().map(u32::from));
    });
    let server = Server::run(far, address.clone());
    let mut node = Over::node(small(), Settings::default());
    let channel = node.connect(&address, PATIENCE).expect("a channel");
    for (number, sum) in [(7, 12), (8, 20)] {
        assert_eq!(node.call(channel, 1, &[number], PATIENCE).expect("a reply").word(0), sum);
    }
    let call = node.ask(channel, 2).body(Body::Copy(&[1, 2])).send().expect("room");
    node.wait_for(call, PATIENCE).expect("a reply");
    let mut far = server.end();
    far.state_mut::<Vec<u32>>().expect("the state").push(3);
    assert_eq!(far.state::<Vec<u32>>(), Some(&vec![5, 7, 8, 1, 2, 3]));
    // A handler for another state is a mistake, and found at once.
    assert!(far.state::<u32>().is_none());
    let wrong = std::panic::AssertUnwindSafe(|| far.short_with(3, Args::Any, |_: &mut u32, _| ()));
    assert!(std::panic::catch_unwind(wrong).is_err());
}

const NEXT: Method<u32, u32> = Method::new(4);

/// The next call, made where a continuation has left it, and so on.
fn count(service: &Arc<Service>, client: &Client, number: u32, tell: mpsc::Sender<u32>) {
    let (its, next) = (Arc::clone(service), client.clone());
    let begun = client.call_then(NEXT, &number, move |number| {
        let number = number.expect("an answer");
        if number == 100 {
            tell.send(number).expect("somebody waits");
        } else {
            let service = Arc::clone(&its);
            its.post(move || count(&service, &next, number, tell));
        }
    });
    begun.expect("room");
}

fn a_continuation_has_the_next_call_made(over: Over) {
    let (server, _, _) = over.serve(|node| rpc::serve(node, NEXT, |number| Ok(number + 1)));
    let service = Arc::new(Service::spawn(Over::node(small(), Settings::default()), |_| ()).expect("a thread"));
    let client = Client::connect(Arc::clone(&service), &server.address, PATIENCE).expect("a channel");
    let (tell, told) = mpsc::channel();
    count(&service, &client, 0, tell);
    assert_eq!(told.recv_timeout(PATIENCE), Ok(100));
    // Nothing that was posted holds them any more: the service can be ended, once its last upcall has.
    drop(client);
    until("nobody else has the service", || Arc::strong_count(&service) == 1);
    assert!(Arc::into_inner(service).expect("the last").stop().is_some());
}

fn post_again(service: &Weak<Service>, times: &Arc<AtomicU32>) {
    times.fetch_add(1, Ordering::Relaxed);
    let (its, times) = (Weak::clone(service), Arc::clone(times));
    if let Some(service) = service.upgrade() {
        service.post(move || post_again(&its, &times));
    }
}

fn what_is_posted_again_and_again_keeps_nobody_out(over: Over) {
    let (_server, service, channel) = serviced(over, |_| ());
    let (service, times) = (Arc::new(service), Arc::default());
    post_again(&Arc::downgrade(&service), &times);
    (0..10).for_each(|_| assert!(is_alive(&service, channel)));
    assert!(times.load(Ordering::Relaxed) > 10);
    // Nor does it keep the service from ending: then nobody is left who could post.
    let its = Arc::downgrade(&service);
    drop(service);
    until("the service has ended", || its.strong_count() == 0);
    until("nothing is posted any more", || Arc::strong_count(&times) == 1);
}

/// A service's event closure had neither the node nor its state.
fn who_is_told_of_an_event_has_the_node(over: Over) {
    let endpoint = Endpoint::open(Config { insecure: true, ..small() }).expect("an endpoint");
    let mut node = Node::with_state(endpoint, Settings::default(), HashMap::<Channel, u32>::new());
    let name = format!("shm:upcalls-events-{}", std::process::id());
    node.listen(if over == Over::Udp { "udp:127.0.0.1:0" } else { &name }).expect("an address");
    let address = match node.endpoint().net_address() {
        Some(address) => format!("udp:{address}"),
        None => name,
    };
    node.short_with(ECHO, Args::Any, |asked: &mut HashMap<Channel, u32>, request| {
        let count = asked.entry(request.channel()).or_default();
        *count += 1;
        request.reply(&[*count]);
    });
    let (tell, told) = mpsc::channel();
    let service = Service::spawn_with(node, move |node, event| match event {
        Event::Opened(channel) => drop(node.request(channel, ECHO, &[]).expect("room")),
        Event::Closed(channel, _) => {
            let asked = node.state_mut::<HashMap<Channel, u32>>().expect("the state");
            assert_eq!(asked.remove(&channel), Some(1));
        }
        Event::Replied(reply) => tell.send(reply.word(0)).expect("somebody waits"),
        other => panic!("{other:?}"),
    })
    .expect("a thread");
    let mut peer = Over::node(small(), Settings::default());
    peer.short(ECHO, Args::Any, |request| request.reply(&[9]));
    let channel = peer.connect(&address, PATIENCE).expect("a channel");
    assert_eq!(peer.call(channel, ECHO, &[], PATIENCE).expect("an answer").word(0), 1);
    until("it is asked by who was told of the channel", || {
        let _ = peer.poll();
        told.try_iter().any(|word| word == 9)
    });
    peer.close(channel);
    drop(peer);
    until("the channel ends", || service.with(|node| node.channels().count() == 0));
    until("its state has gone", || service.with(|node| node.state::<HashMap<Channel, u32>>().expect("it").is_empty()));
}

/// So many of them were in service for ever, and the channel served no other.
fn a_request_that_its_handler_forgets_is_answered(over: Over) {
    let (_server, mut node, channel) = over.serve_with(Config::default(), Settings::default(), |node| {
        node.short(ECHO, Args::Any, |request| std::mem::forget(request));
        node.whole(2, Args::Any, 1 << 20, |request| {
            let word = request.word(0);
            std::mem::forget(request);
            assert!(word != 1, "forgotten, and a panic");
        });
    });
    for round in 0..600_u32 {
        let (handler, args) = if round % 2 == 0 { (ECHO, [0; 4]) } else { (2, (round % 4 / 2).to_le_bytes()) };
        let body = if round % 2 == 0 { Body::None } else { Body::Copy(b"bytes") };
        let call = node.ask(channel, handler).args(&args).body(body).within(PATIENCE).send().expect("room");
        let reply = node.wait_for(call, PATIENCE).expect("an empty answer");
        assert_eq!((reply.args().len(), reply.payload_len()), (0, 0), "round {round}");
    }
}
