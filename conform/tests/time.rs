//! Endpoints in simulated time: all on one thread, which tells it to pass; a run is the seed's alone.

use std::cell::RefCell;
use std::future::Future as _;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use cutthrough::am::{Args, CallError, Event, Node, Service, Settings};
use cutthrough::rma::{MoveError, Owner, Region, Remote, SharedRemote};
use cutthrough::rpc::{self, Client, Method, RpcError};
use cutthrough::simulated::{Counts, Network, Time, Wire};
use cutthrough::{
    Channel, CloseReason, Config, ConnectError, Endpoint, Incoming, Keys, RoomError, SendError, SharedKey,
    UdpCallError, WaitError,
};
use cutthrough_conform::bytes::pattern;

const STEP: Duration = Duration::from_micros(100);
const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];
const AT_B: &str = "udp:10.0.0.2:7000";
const ADD: u16 = 1;
/// It is never answered.
const NEVER: Method<u64, u64> = Method::new(2).idempotent();

const BAD: Wire = Wire {
    mtu: 1500,
    latency: Duration::from_micros(50),
    jitter: Duration::from_micros(50),
    bandwidth: Some(1_000_000_000),
    loss: 0.05,
    duplicates: 0.02,
    reorders: 0.05,
    corrupts: 0.01,
    truncates: 0.01,
};

fn endpoint(network: &Network, host: [u8; 4], sealed: bool) -> Endpoint {
    let keys = sealed.then(|| Arc::new(Keys::Shared(SharedKey::from_bytes([7; 32]))));
    let config = Config { host: Some(network.host(host)), insecure: keys.is_none(), keys, ..Config::default() };
    Endpoint::open(config).expect("an endpoint")
}

/// A node that adds, at B.
fn adder(network: &Network, sealed: bool) -> Node {
    let mut node = Node::new(endpoint(network, B, sealed), Settings::default());
    node.short(ADD, Args::Words(2), |request| {
        let sum = request.word(0) + request.word(1);
        request.reply(&[sum]);
    });
    node.listen(AT_B).expect("a free port");
    node
}

/// A thousand calls over a bad wire, sixteen at a time: what became of datagrams, and how long it took.
fn calls(seed: u64) -> (Counts, u64) {
    let time = Time::begin(seed);
    let network = Network::new(seed, BAD);
    let mut b = adder(&network, true);
    let mut a = Node::new(endpoint(&network, A, true), Settings { window: 16, ..Settings::default() });
    let begun = cutthrough::now();
    a.begin_connect(AT_B, Duration::from_secs(5)).expect("a call");
    let (mut channel, mut asked, mut answered) = (None, 0, 0);
    while answered < 1000 {
        while let Some(event) = b.poll() {
            assert!(matches!(event, Event::Opened(_)), "{event:?}");
        }
        while let Some(event) = a.poll() {
            match event {
                Event::Connected(_, opened) => channel = Some(opened.expect("a channel")),
                Event::Replied(reply) => answered += reply.word(0) / 7,
                other => panic!("{other:?}"),
            }
        }
        while let Some(channel) = channel.filter(|_| asked < 1000)
            && a.request(channel, ADD, &[3, 4]).is_ok()
        {
            asked += 1;
        }
        time.pass(STEP);
    }
    (network.counts(), cutthrough::now().saturating_since(begun))
}

#[test]
fn a_run_is_the_seeds_alone() {
    let (counts, took) = calls(1);
    assert_eq!((counts, took), calls(1));
    assert_ne!(counts.digest, calls(2).0.digest);
    for (name, count) in [("lost", counts.lost), ("repeated", counts.repeated), ("damaged", counts.damaged)] {
        assert!(count > 0, "none {name}: {counts:?}");
    }
}

/// Operations that wait have others run, and time pass.
#[test]
fn who_waits_has_the_others_polled() {
    let time = Time::begin(3);
    let network = Network::new(3, Wire { latency: Duration::from_millis(40), ..Wire::default() });
    let b = Rc::new(RefCell::new(adder(&network, false)));
    let others = Rc::clone(&b);
    time.beside(move || while others.borrow_mut().poll().is_some() {});
    let mut a = Node::new(endpoint(&network, A, false), Settings::default());
    let begun = cutthrough::now();
    let channel = a.connect(AT_B, Duration::from_secs(5)).expect("a channel");
    assert_eq!(a.call(channel, ADD, &[20, 22], Duration::from_secs(5)).expect("a sum").word(0), 42);
    let ms = cutthrough::now().saturating_since(begun) / 1_000_000;
    assert!((240..260).contains(&ms), "{ms} ms for three round trips of 80: who calls is asked first whether he does");
}

#[test]
fn time_outs_take_as_long_as_they_say() {
    let time = Time::begin(4);
    let network = Network::new(4, Wire::default());
    let mut a = endpoint(&network, A, false);
    let begun = cutthrough::now();
    let error = a.connect(AT_B, Duration::from_secs(100)).unwrap_err();
    assert!(matches!(error, ConnectError::Net(UdpCallError::Silence(_))), "{error}");
    assert_eq!(a.wait(Some(Duration::from_secs(20))).unwrap_err(), WaitError::TimedOut);
    a.begin_connect(AT_B, Duration::from_secs(30)).expect("a call");
    let event = a.wait(Some(Duration::from_secs(60))).expect("its end");
    assert!(matches!(event, cutthrough::Event::Connected(_, Err(_))), "{event:?}");
    let seconds = cutthrough::now().saturating_since(begun) / 1_000_000_000;
    assert_eq!(seconds, 150);
    drop(time);
}

/// Of a host that is unplugged nobody hears any more; another one with its address is another one.
#[test]
fn a_host_dies_and_comes_back() {
    let time = Time::begin(5);
    let network = Network::new(5, Wire::default());
    let b = Rc::new(RefCell::new(Some(adder(&network, false))));
    let others = Rc::clone(&b);
    time.beside(move || {
        if let Some(node) = others.borrow_mut().as_mut() {
            while node.poll().is_some() {}
        }
    });
    let mut a = Node::new(endpoint(&network, A, false), Settings::default());
    let channel = a.connect(AT_B, Duration::from_secs(5)).expect("a channel");
    network.unplug(B);
    drop(b.take());
    network.mend();
    let begun = cutthrough::now();
    a.call(channel, ADD, &[1, 1], Duration::from_secs(5)).expect_err("nobody is there");
    let ms = cutthrough::now().saturating_since(begun) / 1_000_000;
    assert!((600..1500).contains(&ms), "{ms} ms until its death was noticed");
    *b.borrow_mut() = Some(adder(&network, false));
    let channel = a.connect(AT_B, Duration::from_secs(5)).expect("a channel");
    assert_eq!(a.call(channel, ADD, &[1, 1], Duration::from_secs(5)).expect("a sum").word(0), 2);
}

/// A peer that dies is noticed within a second and a half, each time: on short ways and long ones, whether anything is
/// under way or not.
#[test]
fn a_death_is_noticed_in_time() {
    for (number, latency) in [10, 1000, 20_000].into_iter().map(Duration::from_micros).enumerate() {
        for busy in [false, true] {
            let time = Time::begin(10 + number as u64);
            let network = Network::new(10, Wire { latency, ..Wire::default() });
            let (mut a, b) = (endpoint(&network, A, busy), Rc::new(RefCell::new(Some(endpoint(&network, B, busy)))));
            b.borrow_mut().as_mut().expect("an endpoint").listen(AT_B).expect("a free port");
            let others = Rc::clone(&b);
            time.beside(move || {
                if let Some(endpoint) = others.borrow_mut().as_mut() {
                    while endpoint.poll().is_some() {}
                }
            });
            let channel = a.connect(AT_B, Duration::from_secs(5)).expect("a channel");
            a.wait(Some(Duration::from_secs(3))).expect_err("nothing is said");
            if busy {
                let payload = pattern(1, 1 << 20);
                a.outgoing(channel).expect("a slot").write(b"long").attach_copy(&payload).send().expect("sent");
            }
            let begun = cutthrough::now();
            network.unplug(B);
            drop(b.take());
            let event = a.wait(Some(Duration::from_secs(10))).expect("its end");
            let ms = cutthrough::now().saturating_since(begun) / 1_000_000;
            assert!(matches!(event, cutthrough::Event::Closed(_, CloseReason::Died)), "{event:?}");
            assert!((300..1500).contains(&ms), "{ms} ms at {latency:?}, busy: {busy}");
        }
    }
}

/// A call that may be made twice, and whose channel has ended, is not made again once its time is over: whoever looks
/// late hears of its end at that look.
#[test]
fn who_looks_late_hears_of_the_end_at_once() {
    let time = Time::begin(7);
    let network = Network::new(7, Wire::default());
    let mut node = Node::new(endpoint(&network, B, false), Settings::default());
    rpc::serve_later(&mut node, NEVER, |_, answer| std::mem::forget(answer));
    node.listen(AT_B).expect("a free port");
    let b = Rc::new(RefCell::new(Some(node)));
    let others = Rc::clone(&b);
    time.beside(move || {
        if let Some(node) = others.borrow_mut().as_mut() {
            while node.poll().is_some() {}
        }
    });
    let service =
        Arc::new(Service::spawn(Node::new(endpoint(&network, A, false), Settings::default()), |_| ()).unwrap());
    let client = Client::connect(Arc::clone(&service), AT_B, Duration::from_secs(5)).expect("a channel");
    let mut context = Context::from_waker(std::task::Waker::noop());
    let mut call = client.within(Duration::from_millis(1500)).start(NEVER, &7);
    assert!(Pin::new(&mut call).poll(&mut context).is_pending());
    network.unplug(B);
    drop(b.take());
    // The end of the channel is known, and the caller is away until its time is over, too.
    for _ in 0..2000 {
        time.pass(Duration::from_millis(1));
        service.turn();
    }
    let Poll::Ready(ended) = Pin::new(&mut call).poll(&mut context) else { panic!("it waits after its deadline") };
    assert!(matches!(ended, Err(RpcError::Call(CallError::Closed(_) | CallError::Late))), "{ended:?}");
}

/// A wire on which three MiB take half a minute, where an operation may stand still for ten seconds.
const SLOW: Wire = Wire {
    mtu: 1500,
    latency: Duration::from_millis(10),
    jitter: Duration::ZERO,
    bandwidth: Some(100_000),
    loss: 0.0,
    duplicates: 0.0,
    reorders: 0.0,
    corrupts: 0.0,
    truncates: 0.0,
};
const LONG: usize = 3 << 20;

/// Two endpoints joined by that, of which the second one is polled while the first one waits, and the other way round;
/// what the second one has got.
#[expect(clippy::type_complexity, reason = "of a test")]
fn joined_slowly(
    time: &Time,
    staging_bytes: u32,
) -> (Rc<RefCell<Endpoint>>, Channel, Rc<RefCell<Endpoint>>, Rc<RefCell<Vec<Incoming>>>) {
    let network = Network::new(8, SLOW);
    let open = |host| {
        let host = Some(network.host(host));
        let config = Config { host, insecure: true, staging_bytes, ..Config::default() };
        Rc::new(RefCell::new(Endpoint::open(config).expect("an endpoint")))
    };
    let (a, b) = (open(A), open(B));
    b.borrow_mut().listen(AT_B).expect("a free port");
    let came = Rc::new(RefCell::new(Vec::new()));
    let (both, comes) = ([Rc::clone(&a), Rc::clone(&b)], Rc::clone(&came));
    time.beside(move || {
        for endpoint in &both {
            // Who waits is in use.
            let Ok(mut endpoint) = endpoint.try_borrow_mut() else { continue };
            while let Some(event) = endpoint.poll() {
                if let cutthrough::Event::Message(message) = event {
                    comes.borrow_mut().push(message);
                }
            }
        }
    });
    let channel = a.borrow_mut().connect(AT_B, Duration::from_secs(5)).expect("a channel");
    (a, channel, b, came)
}

/// Who waits until a payload is taken waits as long as those before it are, however long that lasts.
#[test]
fn a_payload_that_waits_behind_others_is_not_stalled() {
    let time = Time::begin(8);
    let (a, channel, _b, came) = joined_slowly(&time, 64 << 10);
    let mut page = a.borrow_mut().page(channel, LONG).expect("a page");
    page.fill(7);
    a.borrow_mut().outgoing(channel).expect("a slot").write(b"pages").attach(page).send().expect("sent");
    let private = pattern(2, LONG / 4);
    let sent = a.borrow_mut().outgoing(channel).expect("a slot").write(b"private").attach_copy(&private).send();
    sent.expect("it waits for its turn, and is sent");
    a.borrow_mut().wait(Some(Duration::from_secs(10))).expect_err("nothing is said");
    assert_eq!(came.borrow().len(), 2);
}

/// Who reads a payload that comes behind another one waits as long as that comes.
#[test]
fn a_payload_that_comes_behind_others_is_not_stalled() {
    let time = Time::begin(9);
    let (a, channel, b, came) = joined_slowly(&time, 8 << 20);
    for number in [1, 2] {
        let private = pattern(number, LONG);
        a.borrow_mut().outgoing(channel).expect("a slot").write(b"private").attach_copy(&private).send().expect("sent");
    }
    while came.borrow().len() < 2 {
        a.borrow_mut().wait(Some(Duration::from_secs(1))).expect_err("nothing is said");
    }
    for number in [2, 1] {
        let mut message = came.borrow_mut().pop().expect("two");
        let mut bytes = vec![0; LONG];
        b.borrow_mut().read(&mut message, &mut bytes).expect("a payload");
        assert!(bytes == pattern(number, LONG));
    }
}

#[test]
fn other_ways_than_the_network_are_refused() {
    let time = Time::begin(6);
    let network = Network::new(6, Wire::default());
    let mut a = endpoint(&network, A, false);
    for (address, why) in [
        ("net:10.0.0.1:7000", "net: a simulated network has no such rings; use udp:"),
        ("udp:10.0.0.2:7000", "this is the simulated host 10.0.0.1"),
        ("shm:in-no-time", "shared memory knows no simulated time"),
    ] {
        let error = a.listen(address).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    drop((a, time));
}

/// A wait for room lets time pass until there is some, over a bad wire too, and no longer than it may.
#[test]
fn room_is_waited_for_in_simulated_time() {
    const MESSAGES: u64 = 5000;
    let time = Time::begin(11);
    let network = Network::new(11, BAD);
    let mut b = endpoint(&network, B, true);
    b.listen(AT_B).expect("a free port");
    let mut a = endpoint(&network, A, true);
    let (taken, takes) = (Rc::new(RefCell::new(0_u64)), Rc::new(RefCell::new(true)));
    let (its, whether) = (Rc::clone(&taken), Rc::clone(&takes));
    time.beside(move || {
        while *whether.borrow()
            && let Some(event) = b.poll()
        {
            if let cutthrough::Event::Message(message) = event {
                assert_eq!(message.control(), its.borrow().to_le_bytes());
                *its.borrow_mut() += 1;
            }
        }
    });
    let channel = a.connect(AT_B, Duration::from_secs(5)).expect("a channel");
    *takes.borrow_mut() = false;
    let mut sent = 0_u64;
    let mut send = |a: &mut Endpoint| {
        let refused = a.send(channel, &sent.to_le_bytes());
        sent += u64::from(refused.is_ok());
        refused
    };
    while send(&mut a).is_ok() {}
    let (begun, brief) = (cutthrough::now(), Duration::from_millis(70));
    assert_eq!(a.wait_for_room(channel, Some(brief)), Err(RoomError::TimedOut));
    let passed = Duration::from_nanos(cutthrough::now().saturating_since(begun));
    assert!(passed >= brief && passed < brief * 2, "{passed:?}");
    *takes.borrow_mut() = true;
    let mut waited = 0;
    loop {
        match send(&mut a) {
            Ok(()) if *taken.borrow() >= MESSAGES => break,
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, SendError::Full);
                a.wait_for_room(channel, Some(Duration::from_secs(5))).expect("room");
                waited += 1;
            }
        }
    }
    assert!(waited > 0);
}

/// A store of pages that may take `TIME`, by a node or by a client of it. Its owner serves as long as it takes, or only
/// until it has begun; by a client until its slots are empty. What has become of it, how long it took, and which pages
/// lie there.
fn store(wire: Wire, by_client: bool, pages: u32, serves: bool) -> (Result<(), MoveError>, Duration, Vec<bool>) {
    const PAGE: u32 = 16 << 10;
    let time = Time::begin(12);
    let network = Network::new(12, wire);
    let open = |host| {
        let config =
            Config { host: Some(network.host(host)), insecure: true, pool_bytes: 64 << 10, ..Config::default() };
        Node::new(Endpoint::open(config).expect("an endpoint"), Settings::default())
    };
    let (mut a, mut owner) = (open(A), open(B));
    let [here, there] = [(), ()].map(|()| Region::new(pages as usize * PAGE as usize, PAGE));
    (0..pages).for_each(|slot| there.validate(slot));
    let key = Owner::new(&mut owner).register(&there);
    owner.listen(AT_B).expect("a free port");
    let has_begun = Rc::new(RefCell::new(false));
    let (its, begins) = (there.clone(), Rc::clone(&has_begun));
    time.beside(
        move || {
            while (serves || !*begins.borrow() || (by_client && its.is_valid(0))) && owner.poll().is_some() {}
        },
    );
    let moves: Vec<(u32, u32)> = (0..pages).map(|slot| (slot, slot)).collect();
    let (begun, stored) = if by_client {
        let client = Client::connect(Arc::new(Service::spawn(a, |_| ()).expect("a service")), AT_B, TIME);
        let remote = SharedRemote::new(client.expect("a channel").within(TIME), key);
        *has_begun.borrow_mut() = true;
        (cutthrough::now(), remote.store_pages(&here, &moves))
    } else {
        let channel = a.connect(AT_B, TIME).expect("a channel");
        *has_begun.borrow_mut() = true;
        (cutthrough::now(), Remote::new(&mut a, channel, key, TIME).store_pages(&here, &moves))
    };
    let took = Duration::from_nanos(cutthrough::now().saturating_since(begun));
    (stored, took, (0..pages).map(|slot| there.is_valid(slot)).collect())
}

const TIME: Duration = Duration::from_millis(800);
/// Until whoever sleeps looks at the clock again.
const LOOK: Duration = Duration::from_millis(2);

/// It took as long again to learn what had become of pages that were under way.
#[test]
fn pages_are_stored_by_their_deadline_or_not_known() {
    for by_client in [false, true] {
        let (stored, took, _) = store(Wire::default(), by_client, 2, false);
        let error = stored.expect_err("nobody serves");
        assert_eq!((error.error.error, error.valid), (CallError::Late, vec![None; 2]), "by a client: {by_client}");
        assert!(took >= TIME && took <= TIME + LOOK, "{took:?}, by a client: {by_client}");
    }
}

/// Time is kept to hear of all that is under way: who answers within that leaves no page of which nothing is known.
#[test]
fn of_pages_that_are_answered_by_the_deadline_all_is_known() {
    // What is under way at a time takes less than is kept, and 600 pages take longer than there is time.
    let wire = Wire { bandwidth: Some(8_000_000), ..Wire::default() };
    for by_client in [false, true] {
        let (stored, took, lie) = store(wire, by_client, 600, true);
        let error = stored.expect_err("there were more of them");
        assert_eq!(error.error.error, CallError::Late);
        assert_eq!(error.valid, lie.into_iter().map(Some).collect::<Vec<_>>(), "by a client: {by_client}");
        let known = error.valid.iter().filter(|valid| **valid == Some(true)).count();
        assert!(known > 0 && known < 600, "{known}");
        assert!(took >= TIME - TIME / 8 && took <= TIME, "{took:?}, by a client: {by_client}");
    }
}
