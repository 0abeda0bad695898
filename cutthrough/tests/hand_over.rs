//! Requests that are handed over: A asks B, B hands over to C, C replies to A.

mod two;

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use cutthrough::am::{Args, Body, Call, CallError, Deferred, Failure, Node, RequestError, Service, Settings, WINDOW};
use cutthrough::rpc::{Client, Raw};
use cutthrough::{Channel, Config, Counter, Endpoint, Event, Landing, Policy, Stage, Trace};
use two::{Over, PATIENCE, Server, small};

over_both! {
    a_request_is_handed_over,
    handing_over_to_a_stranger_fails,
    arguments_have_room_beside_all_that_goes_with_them,
    who_takes_a_request_and_stalls_holds_its_giver_no_longer_than_a_call,
    who_has_taken_a_request_hears_that_it_is_cancelled,
    who_has_taken_a_request_and_dies_is_gone,
    who_hands_over_to_somebody_busy_runs_once,
}

const ECHO: u16 = 1;

fn a_request_is_handed_over(over: Over) {
    let (mut c, at_c) = over.listening(small(), Settings::default());
    let (mut b, at_b) = over.listening(small(), Settings::default());
    c.short(8, Args::Any, |mut request| {
        assert!(request.is_handed_over());
        let args = request.args().to_vec();
        let mut page = request.page(args.len()).expect("a page");
        page.copy_from_slice(&args);
        request.reply_with(&args, Body::Page(page));
    });
    let _c = Server::run(c, at_c.clone());
    let b_to_c = b.connect(&at_c, PATIENCE).expect("a channel");
    b.short(7, Args::Any, move |request| {
        let args = request.args().to_vec();
        if let Err((error, request)) = request.hand_over(b_to_c, 8, &args, Body::None) {
            assert_eq!(error, RequestError::Full);
            request.fail(Failure::Busy);
        }
    });
    let _b = Server::run(b, at_b.clone());
    let mut a = Over::node(small(), Settings::default());
    let to_b = a.connect(&at_b, PATIENCE).expect("a channel");
    let to_c = a.connect(&at_c, PATIENCE).expect("a channel");
    for round in 0..500_u32 {
        match a.call(to_b, 7, &[round, 5], PATIENCE) {
            Ok(mut reply) => {
                assert_eq!((reply.word(0), reply.word(1), reply.channel()), (round, 5, to_c));
                let mut bytes = [0; 8];
                a.read(&mut reply, &mut bytes).expect("the payload");
                assert_eq!(bytes, reply.args());
            }
            Err(error) => assert_eq!(error, CallError::Failed(Failure::Busy).into()),
        }
    }
    let since = Instant::now();
    while a.room(to_b) < WINDOW {
        assert!(a.poll().is_none());
        assert!(since.elapsed() < PATIENCE);
    }
}

fn handing_over_to_a_stranger_fails(over: Over) {
    let (mut c, at_c) = over.listening(small(), Settings::default());
    let (mut b, at_b) = over.listening(small(), Settings::default());
    c.short(ECHO, Args::Any, |request| request.reply(&[]));
    let c = Server::run(c, at_c.clone());
    let b_to_c = b.connect(&at_c, PATIENCE).expect("a channel");
    b.short(7, Args::Any, move |request| {
        if let Err((error, request)) = request.hand_over(b_to_c, ECHO, &[], Body::None) {
            assert_eq!(error, RequestError::Closed);
            request.refuse(b"gone");
        }
    });
    let _b = Server::run(b, at_b.clone());
    let mut a = Over::node(small(), Settings::default());
    let to_b = a.connect(&at_b, PATIENCE).expect("a channel");
    assert_eq!(a.call(to_b, 7, &[], PATIENCE).map(drop), Err(CallError::Failed(Failure::NoRoute).into()));
    assert_eq!(a.call(to_b, 7, &[], PATIENCE).map(drop), Err(CallError::Failed(Failure::NoRoute).into()));
    drop(c);
    let since = Instant::now();
    let refused = Err(CallError::Failed(Failure::Refused));
    while a.call(to_b, 7, &[], PATIENCE).map(drop).map_err(CallError::from) != refused {
        assert!(since.elapsed() < PATIENCE);
    }
}

/// The caller of a client asked again and again until its deadline, and each time the handler ran that handed it over.
fn who_hands_over_to_somebody_busy_runs_once(over: Over) {
    let (mut c, at_c) = over.listening(small(), Settings { serve: 1, ..Settings::default() });
    let held = Arc::new(Mutex::new(Vec::<Deferred>::new()));
    let its = Arc::clone(&held);
    c.short(8, Args::Any, move |request| its.lock().expect("the list").push(request.defer()));
    let _c = Server::run(c, at_c.clone());
    let (mut b, at_b) = over.listening(small(), Settings::default());
    let b_to_c = b.connect(&at_c, PATIENCE).expect("a channel");
    let runs = Arc::new(AtomicU32::new(0));
    let its = Arc::clone(&runs);
    b.short(7, Args::Any, move |request| {
        its.fetch_add(1, Ordering::Relaxed);
        request.hand_over(b_to_c, 8, &[], Body::None).map_err(|(error, _)| error).expect("room");
    });
    let _b = Server::run(b, at_b.clone());
    let a = Arc::new(Service::spawn(Over::node(small(), Settings::default()), |_| ()).expect("a thread"));
    let _to_c = Client::connect(Arc::clone(&a), &at_c, PATIENCE).expect("a channel");
    let to_b = Client::connect(a, &at_b, PATIENCE).expect("a channel");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| to_b.call_raw(Raw::new(7)));
        two::until("it is put off", || held.lock().expect("the list").len() == 1);
        let busy = to_b.call_raw(Raw::new(7)).expect_err("the other one is busy");
        assert_eq!((busy.error, runs.load(Ordering::Relaxed)), (CallError::Failed(Failure::Busy), 2));
        // What may run twice does.
        let again = scope.spawn(|| to_b.call_raw(Raw::new(7).idempotent()));
        two::until("it is asked again", || runs.load(Ordering::Relaxed) > 4);
        held.lock().expect("the list").clear();
        two::until("the other runs", || held.lock().expect("the list").len() == 1);
        held.lock().expect("the list").clear();
        for call in [first, again] {
            let thrown = call.join().expect("the caller").expect_err("it was thrown away");
            assert_eq!(thrown.error, CallError::Failed(Failure::Abandoned));
        }
    });
}

/// A request has room for 64 bytes, whatever else it says; one that is handed over has to say who has asked.
fn arguments_have_room_beside_all_that_goes_with_them(over: Over) {
    let (mut c, at_c) = over.listening(small(), Settings::default());
    let (mut b, at_b) = over.listening(small(), Settings::default());
    c.short(8, Args::Any, |request| {
        let args = request.args().to_vec();
        request.reply_bytes(&args);
    });
    let _c = Server::run(c, at_c.clone());
    let b_to_c = b.connect(&at_c, PATIENCE).expect("a channel");
    b.short(7, Args::Any, move |request| {
        let args = request.args().to_vec();
        if let Err((error, request)) = request.hand_over(b_to_c, 8, &args, Body::None) {
            assert_eq!(error, RequestError::TooLong);
            request.fail(Failure::Arguments);
        }
    });
    let _b = Server::run(b, at_b.clone());
    let mut a = Over::node(small(), Settings::default());
    let to_b = a.connect(&at_b, PATIENCE).expect("a channel");
    a.connect(&at_c, PATIENCE).expect("a channel");
    for (len, dated, fits) in [(64, false, true), (58, true, true), (59, true, false), (64, true, false)] {
        let args: Vec<u8> = (0..len).collect();
        let asking = a.ask(to_b, 7).args(&args).reply_into(Landing::Buffer(vec![0; 100]));
        let asking = if dated { asking.within(PATIENCE) } else { asking };
        let call = asking.send().expect("it has room");
        match a.wait_for(call, PATIENCE) {
            Ok(reply) => assert!(fits && reply.args() == args, "{len} bytes"),
            Err(error) => {
                assert!(!fits && error.error == CallError::Failed(Failure::Arguments), "{len} bytes: {error}");
            }
        }
    }
}

/// A requester, who has a channel to a giver; whatever the giver is asked goes to a taker that puts it off for good.
struct Stalling {
    a: Node,
    to_b: Channel,
    taken: Arc<Mutex<Vec<Deferred>>>,
    _servers: [Server; 2],
}

impl Stalling {
    /// With these settings of the giver.
    fn new(over: Over, settings: Settings) -> Self {
        let (mut c, at_c) = over.listening(small(), Settings::default());
        let (mut b, at_b) = over.listening(small(), settings);
        let taken: Arc<Mutex<Vec<Deferred>>> = Arc::default();
        let its = Arc::clone(&taken);
        c.short(ECHO, Args::Any, move |request| its.lock().expect("no panic").push(request.defer()));
        let c = Server::run(c, at_c.clone());
        let b_to_c = b.connect(&at_c, PATIENCE).expect("a channel");
        b.short(7, Args::Any, move |request| {
            assert!(request.hand_over(b_to_c, ECHO, &[], Body::None).is_ok());
        });
        let b = Server::run(b, at_b.clone());
        let mut a = Over::node(small(), Settings::default());
        let to_b = a.connect(&at_b, PATIENCE).expect("a channel");
        a.connect(&at_c, PATIENCE).expect("a channel");
        Self { a, to_b, taken, _servers: [b, c] }
    }
}

fn who_takes_a_request_and_stalls_holds_its_giver_no_longer_than_a_call(over: Over) {
    // Long enough that the request is taken before, on a busy machine too.
    let settings = Settings { deadline: Duration::from_millis(400), ..Settings::default() };
    let Stalling { mut a, to_b, taken, _servers } = Stalling::new(over, settings);
    // Nothing said: as long as a call of the giver's own.
    assert_eq!(a.call(to_b, 7, &[], PATIENCE).map(drop), Err(CallError::Failed(Failure::Late).into()));
    // Whoever has taken it is told, too: it named no deadline that would have passed by itself.
    let since = Instant::now();
    while !taken.lock().expect("no panic")[0].is_over() {
        assert!(since.elapsed() < PATIENCE, "the taker is not told that nobody waits");
    }
    // A deadline of the requester's. It may find out by itself, and before it is told.
    let call = a.ask(to_b, 7).within(Duration::from_millis(50)).send().expect("room");
    let ended = a.wait_for(call, Duration::MAX).map(drop).map_err(CallError::from);
    assert!(matches!(ended, Err(CallError::Late | CallError::Failed(Failure::Late))), "{ended:?}");
    let since = Instant::now();
    while a.room(to_b) < WINDOW {
        let _ = a.poll();
        assert!(since.elapsed() < PATIENCE, "the window of who has asked is still bound");
    }
}

/// Who had handed a request over did not pass on that it was cancelled.
fn who_has_taken_a_request_hears_that_it_is_cancelled(over: Over) {
    let Stalling { mut a, to_b, taken, _servers } = Stalling::new(over, Settings::default());
    let mut ask = || a.ask(to_b, 7).within(Duration::from_secs(3600)).send().expect("room");
    let (kept, cancelled) = (ask(), ask());
    let until = |a: &mut Node, what: &str, done: &dyn Fn(&Node) -> bool| {
        let since = Instant::now();
        while !done(a) {
            assert!(a.poll().is_none(), "a call has ended");
            assert!(since.elapsed() < PATIENCE, "{what}");
        }
    };
    until(&mut a, "both are taken", &|_| taken.lock().expect("no panic").len() == 2);
    a.cancel(cancelled);
    until(&mut a, "its taker hears of it", &|_| taken.lock().expect("no panic")[1].is_over());
    until(&mut a, "the window of who has asked is still bound", &|a| a.room(to_b) == WINDOW - 1);
    assert!(!taken.lock().expect("no panic")[0].is_over(), "somebody waits for the other");
    // It is thrown away, and nobody is told; the other is, too.
    drop(taken.lock().expect("no panic").pop());
    taken.lock().expect("no panic").pop();
    let ended = a.wait_for(kept, Duration::MAX).map(drop);
    assert_eq!(ended, Err(CallError::Failed(Failure::Abandoned).into()));
}

/// The channel on which the call was made is as good as before.
fn who_has_taken_a_request_and_dies_is_gone(over: Over) {
    let Stalling { mut a, to_b, taken, _servers: [b, c] } = Stalling::new(over, Settings::default());
    let call = a.ask(to_b, 7).within(PATIENCE).send().expect("room");
    let since = Instant::now();
    while taken.lock().expect("no panic").is_empty() || since.elapsed() < Duration::from_millis(50) {
        assert!(a.poll().is_none(), "it has ended");
        assert!(since.elapsed() < PATIENCE);
    }
    // Who has handed it over says nothing of it.
    let b = b.end();
    drop(c.end());
    let ended = a.wait_for(call, Duration::MAX).map(drop);
    assert_eq!(ended, Err(CallError::Failed(Failure::Gone).into()));
    assert!(a.room(to_b) > 0);
    drop(b);
}

/// An active message about a call, byte by byte.
fn forged(kind: u8, call: &[u8], args: &[u8], origin: Option<u64>) -> Vec<u8> {
    const F_ORIGIN: u8 = 4;
    let flags = if origin.is_some() { F_ORIGIN } else { 0 };
    let mut bytes = vec![kind, flags, u8::try_from(args.len()).expect("few"), 0, 0, 0, 0, 0];
    bytes.extend(call);
    bytes.extend(args);
    bytes.extend(origin.into_iter().flat_map(|generation| [generation, 0]).flat_map(u64::to_le_bytes));
    bytes
}

/// The next message that comes to an endpoint.
fn message(endpoint: &mut Endpoint) -> Vec<u8> {
    let since = Instant::now();
    loop {
        if let Some(Event::Message(message)) = endpoint.poll() {
            return message.control().to_vec();
        }
        assert!(since.elapsed() < PATIENCE);
    }
}

const HANDED: u8 = 4;
const HAND_OVER: u8 = 6;
const DIRECT: u8 = 7;

/// A node, and endpoints that have opened a channel to it and say what they like.
fn among(count: usize) -> (Node, Vec<(Endpoint, Channel)>) {
    let (mut a, at_a) = Over::Shm.listening(small(), Settings::default());
    let mut peers = Vec::new();
    for _ in 0..count {
        let address = at_a.clone();
        let joins = std::thread::spawn(move || {
            let mut endpoint = Endpoint::open(small()).expect("an endpoint");
            let channel = endpoint.connect(&address, PATIENCE).expect("a channel");
            (endpoint, channel)
        });
        let opened = a.wait(Some(PATIENCE)).expect("somebody");
        assert!(matches!(opened, cutthrough::am::Event::Opened(_)), "{opened:?}");
        peers.push(joins.join().expect("a channel"));
    }
    (a, peers)
}

/// Has a node ask the first of its peers: each call, and the bytes by which its peers know it.
fn asks(a: &mut Node, giver: &mut Endpoint, count: usize) -> Vec<(Call, Vec<u8>)> {
    let to_giver = a.channels().next().expect("a channel");
    let ask = |_| {
        let call = a.request(to_giver, 7, &[]).expect("room");
        (call, message(giver)[8..16].to_vec())
    };
    (0..count).map(ask).collect()
}

/// The burst of one that hands over, and then does not look for a while: its takers' replies come before the giver's
/// word, and all of them count.
#[test]
fn no_reply_is_lost_that_comes_before_it_is_announced() {
    const CALLS: usize = 200;
    let (mut a, mut peers) = among(2);
    let [(giver, giver_to_a), (taker, taker_to_a)] = &mut peers[..] else { panic!("two") };
    let asked = asks(&mut a, giver, CALLS);
    for (_, call) in &asked {
        taker.send(*taker_to_a, &forged(DIRECT, call, call, None)).expect("room");
        assert!(a.poll().is_none());
    }
    let generation = generation_of(taker);
    let mut replied = Vec::new();
    let mut look = |a: &mut Node| match a.poll() {
        Some(cutthrough::am::Event::Replied(reply)) => replied.push((reply.call(), reply.args().to_vec())),
        None => {}
        other => panic!("instead of a reply: {other:?}"),
    };
    for (_, call) in &asked {
        giver.send(*giver_to_a, &forged(HAND_OVER, call, &[], Some(generation))).expect("room");
        giver.send(*giver_to_a, &forged(HANDED, call, &[], None)).expect("room");
        (0..4).for_each(|_| look(&mut a));
    }
    (0..CALLS).for_each(|_| look(&mut a));
    assert_eq!(replied.len(), CALLS, "replies");
    assert!(replied == asked, "each to its own call, in the order in which they were announced");
}

/// Payloads that nobody has announced take memory of this side, which is bounded: a call whose payload finds no room
/// ends in a failure that says so.
#[test]
fn payloads_that_come_before_they_are_announced_are_bounded_in_bytes() {
    const CALLS: usize = 40;
    const BYTES: usize = 1 << 20;
    let (mut a, mut peers) = among(2);
    let (mut taker, taker_to_a) = peers.pop().expect("two");
    let (mut giver, giver_to_a) = peers.pop().expect("two");
    let asked = asks(&mut a, &mut giver, CALLS);
    let generation = generation_of(&mut taker);
    let calls: Vec<_> = asked.iter().map(|(_, call)| call.clone()).collect();
    let sends = std::thread::spawn(move || {
        for call in calls {
            let control = forged(DIRECT, &call, &call, None);
            let outgoing = taker.outgoing(taker_to_a).expect("room").write(&control);
            outgoing.attach_copy(&vec![call[0]; BYTES]).send().expect("all of it");
        }
        taker
    });
    while !sends.is_finished() {
        assert!(a.poll().is_none());
    }
    let _taker = sends.join().expect("no panic");
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(20) {
        assert!(a.poll().is_none());
    }
    let mut whole = 0;
    for (place, (call, bytes)) in asked.iter().enumerate() {
        giver.send(giver_to_a, &forged(HAND_OVER, bytes, &[], Some(generation))).expect("room");
        giver.send(giver_to_a, &forged(HANDED, bytes, &[], None)).expect("room");
        match a.wait_for(*call, PATIENCE) {
            Ok(mut reply) => {
                let mut into = vec![0; BYTES];
                a.read(&mut reply, &mut into).expect("the payload");
                assert!(into.iter().all(|byte| *byte == bytes[0]));
                whole += 1;
            }
            Err(error) => assert_eq!((error.error, place >= 32), (CallError::Failed(Failure::Abandoned), true)),
        }
    }
    assert_eq!(whole, 32, "payloads of 1 MiB");
    assert_eq!(a.endpoint().counter(Counter::RepliesAbandoned), asked.len() as u64 - 32);
}

#[test]
fn a_peer_with_many_early_replies_takes_no_room_from_others() {
    let (mut a, mut peers) = among(3);
    let mut channels: Vec<Channel> = a.channels().collect();
    let [(giver, giver_to_a), (taker, taker_to_a), (flood, flood_to_a)] = &mut peers[..] else { panic!("three") };
    let to_giver = channels.remove(0);
    let asked = a.request(to_giver, 7, &[]).expect("room");
    let request = message(giver);
    let call = &request[8..16];
    // Lies about the call that is about to be handed over.
    for _ in 0..200 {
        flood.send(*flood_to_a, &forged(DIRECT, call, b"lies", None)).expect("room");
        assert!(a.poll().is_none());
    }
    taker.send(*taker_to_a, &forged(DIRECT, call, b"true", None)).expect("room");
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(50) {
        assert!(a.poll().is_none());
    }
    // Who takes it is known by the generation of its endpoint.
    let generation = generation_of(taker);
    giver.send(*giver_to_a, &forged(HAND_OVER, call, &[], Some(generation))).expect("room");
    giver.send(*giver_to_a, &forged(HANDED, call, &[], None)).expect("room");
    let reply = a.wait_for(asked, Duration::MAX).expect("the reply that was set aside");
    assert_eq!(reply.args(), b"true");
}

/// Stops after the first pulse of a payload, until it is told to go on.
struct Halt(Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>);

impl Trace for Halt {
    fn pulse(&mut self, _: Stage, _: u64, _: u64, _: cutthrough::Instant, _: cutthrough::Instant) {
        if let Some((reached, go_on)) = self.0.take() {
            reached.send(()).expect("somebody waits");
            go_on.recv_timeout(PATIENCE).expect("somebody says so");
        }
    }
}

/// Which of two messages a node takes in first is its own matter: so this is tried until it was the notice.
#[test]
fn a_request_that_was_handed_over_and_is_cancelled_while_its_payload_comes_is_not_served() {
    assert!((0..60).any(|_| is_dropped_when_cancelled()), "requests for which nobody waits are served");
}

/// Whether a request that was put aside was not served, because its giver did not wait for it any more.
fn is_dropped_when_cancelled() -> bool {
    const REQUEST: u8 = 1;
    const REPLY: u8 = 2;
    const CANCEL: u8 = 5;
    const ECHO_HERE: u8 = 1;
    let config = || Config { policy: Policy::Fixed(NonZeroU64::new(512).expect("a number")), ..small() };
    let (mut c, at_c) = Over::Shm.listening(config(), Settings::default());
    let served = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&served);
    c.whole(0, Args::Any, 1 << 20, move |_| its.store(true, Ordering::Relaxed));
    c.short(ECHO, Args::Any, |request| request.reply(&[]));
    // While the other runs, the rest of the payload comes, and behind it that nobody waits for it any more.
    let ((go_on, goes_on), (done, is_done)) = (mpsc::channel(), mpsc::channel());
    c.short(2, Args::Any, move |_| is_done.recv_timeout(PATIENCE).expect("somebody says so"));
    // It polls, and does not sleep: so the notice may be taken in by the poll that has run the handler.
    let stop = Arc::new(AtomicBool::new(false));
    let stops = Arc::clone(&stop);
    let polls = std::thread::spawn(move || {
        while !stops.load(Ordering::Relaxed) {
            let _ = c.poll();
        }
    });
    let mut first = Endpoint::open(small()).expect("an endpoint");
    let to_c = first.connect(&at_c, PATIENCE).expect("a channel");
    let origin = generation_of(&mut first);
    let (reached, is_reached) = mpsc::channel();
    let giver = std::thread::spawn(move || {
        let mut giver = Endpoint::open(config()).expect("an endpoint");
        let channel = giver.connect(&at_c, PATIENCE).expect("a channel");
        let call = [9, 0, 0, 0, 1, 0, 0, 0];
        let (request, payload) = (forged(REQUEST, &call, &[], Some(origin)), [3; 20_000]);
        let outgoing = giver.outgoing(channel).expect("room").write(&request).attach_copy(&payload);
        outgoing.send_traced(&mut Halt(Some((reached, goes_on)))).expect("all of it");
        giver.send(channel, &forged(CANCEL, &call, &[], None)).expect("room");
        done.send(()).expect("somebody waits");
        message(&mut giver)
    });
    is_reached.recv_timeout(PATIENCE).expect("the first bytes");
    let mut ask = |handler: u8| {
        let mut request = forged(REQUEST, &[handler, 0, 0, 0, 2, 0, 0, 0], &[], None);
        request[4] = handler;
        first.send(to_c, &request).expect("room");
        if handler == ECHO_HERE { message(&mut first) } else { Vec::new() }
    };
    // By the last of these, the request has come as well.
    for _ in 0..4 {
        assert_eq!(ask(ECHO_HERE)[0], REPLY);
    }
    ask(2);
    go_on.send(()).expect("somebody waits");
    let answer = giver.join().expect("the giver");
    assert_eq!((answer[0], &answer[8..16]), (REPLY, &[9, 0, 0, 0, 1, 0, 0, 0][..]));
    let came = [message(&mut first), message(&mut first)];
    let direct = came.iter().find(|message| message[0] == DIRECT).expect("the answer that was handed over");
    stop.store(true, Ordering::Relaxed);
    polls.join().expect("no panic outside of handlers");
    let served = served.load(Ordering::Relaxed);
    assert_eq!((direct[0], direct[3]), (DIRECT, if served { 0 } else { Failure::Late as u8 }));
    !served
}

/// The generation of an endpoint, as one that it lets in sees it.
fn generation_of(endpoint: &mut Endpoint) -> u64 {
    static NAMES: AtomicU32 = AtomicU32::new(0);
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    let address = format!("shm:cutthrough-gen-{}-{number}", std::process::id());
    endpoint.listen(&address).expect("a free name");
    std::thread::scope(|scope| {
        let joins = scope.spawn(|| {
            let mut other = Endpoint::open(small()).expect("an endpoint");
            let channel = other.connect(&address, PATIENCE).expect("a channel");
            other.peer(channel).expect("it is open").generation
        });
        while !joins.is_finished() {
            let _ = endpoint.poll();
        }
        joins.join().expect("a generation")
    })
}
