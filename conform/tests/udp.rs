//! The behaviour suite over UDP, on loopback, in plain text.

mod loopback;
mod shared_memory;

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{CloseReason, Config, ConnectError, Counter, Endpoint, Event, SendError, UdpCallError};
use cutthrough_conform::bytes::pattern;
use cutthrough_conform::join::{PATIENCE, circle, connect, keep_house, listen};
use cutthrough_conform::suite::paths::a_stream_is_placed;
use cutthrough_conform::{Join, Pair, Side, suite};
use cutthrough_wire::frame::HEADER_BYTES;
use loopback::Loopback;
use shared_memory::SharedMemory;

cutthrough_conform::suite!(Loopback(None));

/// Messages that are answered.
const MESSAGES: u64 = 300;

/// Frames that an endpoint has sent.
fn frames_sent(endpoint: &mut Endpoint) -> u64 {
    keep_house(endpoint, |event| assert!(!matches!(event, Event::Message(_))));
    endpoint.counter(Counter::FramesSent)
}

#[test]
fn who_has_most_to_do_with_one_joins_a_socket_to_it() {
    let mut pair = Loopback(None).pair(Config::default(), Config::default());
    for _ in 0..MESSAGES {
        pair.a.say(b"question");
        assert_eq!(pair.b.message().control(), b"question");
        pair.b.say(b"answer");
        assert_eq!(pair.a.message().control(), b"answer");
    }
    for side in [&mut pair.a, &mut pair.b] {
        keep_house(&mut side.endpoint, |event| panic!("{event:?}"));
        let joins = [Counter::SocketsJoined, Counter::JoinsRefused].map(|counter| side.endpoint.counter(counter));
        assert_eq!(joins, [1, 0]);
    }
}

#[test]
fn answers_to_messages_that_came_together_go_together() {
    let loopback = Loopback(None);
    let mut sides = [(); 2].map(|()| Endpoint::open(loopback.config(Config::default())).expect("an endpoint"));
    let [a, b] = &mut sides;
    let address = loopback.address();
    b.listen(&address).expect("a free port");
    let (at_a, at_b) = connect(a, b, &address);
    let frames = frames_sent(b);
    for _ in 0..MESSAGES {
        a.send(at_a, b"question").expect("room");
    }
    let (mut asked, mut answered) = (0, 0);
    while answered < MESSAGES {
        while let Some(event) = b.poll() {
            if matches!(event, Event::Message(_)) {
                asked += 1;
                b.send(at_b, b"answer").expect("room");
            }
        }
        while let Some(event) = a.poll() {
            answered += u64::from(matches!(event, Event::Message(_)));
        }
    }
    // Most came in frames with others: a frame for each answer would be 300, and acknowledgements beside.
    let frames = frames_sent(b) - frames;
    assert!(asked == MESSAGES && frames < MESSAGES / 2, "{frames} frames for {asked} answers");
}

/// Messages that share trains, each with a place: what follows the first in a train lands like the first.
#[test]
fn messages_that_share_trains_land_where_they_belong() {
    assert!(a_stream_is_placed(&Loopback(None), 8192));
}

/// Who listens at all addresses of a machine answers from the one that was called, on each of its channels.
#[test]
fn a_listener_at_all_addresses_is_reached_by_each() {
    let loopback = Loopback(None);
    let open = || Endpoint::open(loopback.config(Config::default())).expect("an endpoint");
    for (all, hosts) in [
        ("udp:0.0.0.0:0", &["127.0.0.2", "127.0.0.3", "127.0.0.1"][..]),
        ("udp:[::]:0", &["[::1]", "127.0.0.2", "127.0.0.1"]),
        ("udp:[::]:0", &["127.0.0.3", "127.0.0.1"]),
    ] {
        let (mut a, mut b) = (open(), open());
        b.listen(all).expect("a port");
        let port = b.net_address().expect("an address").port();
        let channels: Vec<_> =
            hosts.iter().map(|host| connect(&mut a, &mut b, &format!("udp:{host}:{port}"))).collect();
        let [mut a, mut b] =
            [(a, channels[0].0), (b, channels[0].1)].map(|(endpoint, channel)| Side { endpoint, channel });
        for (number, (at_a, at_b)) in (0..).zip(channels.into_iter().rev()) {
            (a.channel, b.channel) = (at_a, at_b);
            for from_a in [true, false] {
                let (from, to) = if from_a { (&mut a, &mut b) } else { (&mut b, &mut a) };
                from.send_copy(b"all of it", &pattern(number, 100_000), None);
                let mut message = to.message();
                to.read_checked(&mut message, number);
            }
        }
    }
}

/// A payload that is dropped after the end of its channel is none of the next channel's, whose messages are numbered
/// anew and which may have got the same number.
#[test]
fn what_is_dropped_late_is_none_of_the_next_channels() {
    for here in [false, true] {
        let mut pair = Loopback(None).pair(Config::default(), Config::default());
        let (_, other) = connect(&mut pair.a.endpoint, &mut pair.b.endpoint, &pair.way);
        pair.a.send_copy(b"old", &pattern(1, 5000), None);
        let old = pair.b.message();
        if here {
            pair.b.endpoint.close(pair.b.channel);
            assert_eq!(pair.a.closed(), CloseReason::Peer);
        } else {
            pair.a.endpoint.close(pair.a.channel);
            assert_eq!(pair.b.closed(), CloseReason::Peer);
        }
        pair.a.channel = pair.a.endpoint.connect(&pair.way, PATIENCE).expect("a channel");
        pair.a.send_copy(b"new", &pattern(2, 5000), None);
        // Looks at the network that tell nobody what they have found: there is no such memory.
        let mut look = || {
            for _ in 0..100 {
                pair.b.endpoint.page(other, 1 << 30).expect_err("no pages");
                thread::sleep(Duration::from_micros(200));
            }
        };
        look();
        drop(old);
        look();
        assert!(matches!(pair.b.event(), Event::Opened(_)));
        let mut message = pair.b.message();
        pair.b.read_checked(&mut message, 2);
    }
}

/// A channel that has ended keeps its number until its user has been told of the end, whatever was called meanwhile.
#[test]
fn a_call_takes_no_number_whose_end_was_not_told() {
    let mut pair = Loopback(None).pair(Config::default(), Config::default());
    pair.b.endpoint.close(pair.b.channel);
    let ended = pair.a.channel;
    let mut opened = Vec::new();
    for _ in 0..3 {
        // Looks at the network that tell nobody what they have found: there is no such memory.
        for _ in 0..100 {
            pair.a.endpoint.page(ended, 1 << 30).expect_err("no pages");
            thread::sleep(Duration::from_micros(200));
        }
        opened.push(pair.a.endpoint.connect(&pair.way, PATIENCE).expect("a channel"));
    }
    pair.a.endpoint.send(ended, b"for nobody").expect_err("it has ended");
    assert_eq!(pair.a.closed(), CloseReason::Peer);
    let opened: Vec<_> = opened.into_iter().map(|at_a| (at_a, pair.b.event())).collect();
    for (number, (at_a, at_b)) in (0..).zip(opened) {
        let Event::Opened(at_b) = at_b else { panic!("instead of a caller: {at_b:?}") };
        (pair.a.channel, pair.b.channel) = (at_a, at_b);
        pair.a.send_copy(b"for who was called", &pattern(number, 5000), None);
        let mut message = pair.b.message();
        pair.b.read_checked(&mut message, number);
    }
}

/// Where no way leads the kernel says so, and nobody waits for an answer.
#[test]
fn who_cannot_be_reached_is_said_at_once() {
    let loopback = Loopback(None);
    let mut endpoint = Endpoint::open(loopback.config(Config::default())).expect("an endpoint");
    endpoint.listen(&loopback.address()).expect("a free port");
    // From an address of loopback no way leads to an address for examples (RFC 5737).
    let error = endpoint.connect("udp:192.0.2.1:7", PATIENCE).unwrap_err();
    assert!(matches!(error, ConnectError::Net(UdpCallError::Unreachable { .. })), "{error}");
    let error = endpoint.connect("udp:[::1]:7", PATIENCE).unwrap_err();
    assert!(matches!(error, ConnectError::Net(UdpCallError::OtherFamily { .. })), "{error}");
}

/// A call that has failed keeps its number until that was told: a call that is begun meanwhile is not taken for it.
#[test]
fn a_failed_call_is_taken_for_no_other() {
    let loopback = Loopback(None);
    for cancels in [true, false] {
        let [(mut a, _), (mut b, way)] = [(); 2].map(|()| {
            let address = loopback.address();
            (loopback.listening(Config::default(), &address), address)
        });
        let (channel, _) = connect(&mut a, &mut b, &way);
        let calls = [(); 3].map(|()| {
            // From an address of loopback no way leads to an address for examples (RFC 5737).
            let failing = a.begin_connect("udp:192.0.2.1:7", PATIENCE).expect("a call");
            // Looks at the network that tell nobody what they have found: there is no such memory.
            (0..10).for_each(|_| assert!(a.page(channel, 1 << 30).is_err()));
            (failing, a.begin_connect(&way, PATIENCE).expect("a call"))
        });
        if cancels {
            calls.iter().for_each(|(failing, _)| assert!(a.cancel_connect(*failing), "nothing was told yet"));
        }
        let (mut opened, mut failed) = (Vec::new(), Vec::new());
        let mut answered = || {
            while opened.len() < 3 || !cancels && failed.len() < 3 {
                match a.wait(Some(PATIENCE)).expect("what has become of a call") {
                    Event::Connected(call, Ok(channel)) => {
                        a.send(channel, format!("{call:?}").as_bytes()).expect("room");
                        opened.push(call);
                    }
                    Event::Connected(call, Err(ConnectError::Net(UdpCallError::Unreachable { .. }))) => {
                        failed.push(call);
                    }
                    other => panic!("{other:?}"),
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut events = [(); 6].map(|()| b.wait(Some(PATIENCE)).expect("a caller, and what it says"));
                events.sort_by_key(|event| matches!(event, Event::Message(_)));
                assert!(events[..3].iter().all(|event| matches!(event, Event::Opened(_))), "{events:?}");
                assert!(events[3..].iter().all(|event| matches!(event, Event::Message(_))), "{events:?}");
            });
            answered();
        });
        for (failing, other) in calls {
            assert!(opened.contains(&other) && failed.contains(&failing) != cancels, "{opened:?} {failed:?}");
        }
    }
}

/// Channels of all kinds count together: a caller over a network hears that there is no room, and so does one of this
/// machine.
#[test]
fn channels_of_both_kinds_share_what_the_settings_allow() {
    let (memory, network) = (SharedMemory::new(), Loopback(None));
    let ways = [memory.address(), network.address()];
    for first in [0, 1] {
        let mut listener = Endpoint::open(network.config(Config { channels: 1, ..Config::default() })).expect("one");
        ways.iter().for_each(|way| listen(&mut listener, way));
        let mut callers = [(); 2].map(|()| Endpoint::open(network.config(Config::default())).expect("an endpoint"));
        let (_, at_listener) = connect(&mut callers[first], &mut listener, &ways[first]);
        let second = &mut callers[1 - first];
        let error = thread::scope(|scope| {
            let calls = scope.spawn(|| second.connect(&ways[1 - first], PATIENCE).expect_err("there is no room"));
            while !calls.is_finished() {
                assert!(listener.poll().is_none(), "nobody is let in");
            }
            calls.join().expect("an error")
        });
        match error {
            ConnectError::Net(UdpCallError::Channels) if first == 0 => {}
            ConnectError::Handshake(_) if first == 1 => {}
            other => panic!("{other}"),
        }
        // As soon as that has gone there is room.
        listener.close(at_listener);
        connect(second, &mut listener, &ways[1 - first]);
    }
}

/// A channel that was closed, of which the other side has not heard yet, takes nobody's place.
#[test]
fn a_channel_that_closes_leaves_its_place() {
    let loopback = Loopback(None);
    let address = loopback.address();
    let _listener = loopback.listening(Config::default(), &address);
    let mut caller = Endpoint::open(loopback.config(Config { channels: 1, ..Config::default() })).expect("one");
    for _ in 0..2 {
        let channel = caller.connect(&address, PATIENCE).expect("a channel");
        assert!(matches!(caller.connect(&address, PATIENCE), Err(ConnectError::Net(UdpCallError::Full))));
        caller.send(channel, b"the last").expect("room");
        caller.close(channel);
    }
}

/// What is said of channels that have ended comes from the address that was called, as all else does.
#[test]
fn a_listener_at_all_addresses_goes_by_the_one_that_was_called() {
    goes_by_the_one_that_was_called("udp:0.0.0.0:0");
    goes_by_the_one_that_was_called("udp:[::]:0");
}

fn goes_by_the_one_that_was_called(all: &str) {
    let loopback = Loopback(None);
    let open = || Endpoint::open(loopback.config(Config::default())).expect("an endpoint");
    let (mut caller, mut listener) = (open(), open());
    listener.listen(all).expect("a port");
    let called = SocketAddr::from(([127, 0, 0, 2], listener.net_address().expect("an address").port()));
    // Somebody between the two, who sees from where things come.
    let between = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    between.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    let way = format!("udp:{}", between.local_addr().expect("its address"));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let carrier = scope.spawn(|| {
            let (mut back, mut frame) = (None, vec![0; 1 << 16]);
            while !over.load(Ordering::Relaxed) {
                let Ok((len, from)) = between.recv_from(&mut frame) else { continue };
                let to = if from.port() == called.port() {
                    assert_eq!(from, called);
                    back.expect("who has called")
                } else {
                    back = Some(from);
                    called
                };
                between.send_to(&frame[..len], to).expect("sent");
            }
        });
        let (channel, _) = connect(&mut caller, &mut listener, &way);
        caller.close(channel);
        assert!(matches!(listener.wait(Some(PATIENCE)), Ok(Event::Closed(..))));
        // It says twice more that it has heard the end.
        drop(listener);
        thread::sleep(Duration::from_millis(100));
        over.store(true, Ordering::Relaxed);
        carrier.join().expect("all comes from where it went");
    });
}

/// A call of somebody who answers does not wait for those of others who do not.
#[test]
fn a_call_waits_for_no_silent_peers() {
    let loopback = Loopback(None);
    let address = loopback.address();
    let mut b = loopback.listening(Config::default(), &address);
    let mut a = Endpoint::open(loopback.config(Config::default())).expect("an endpoint");
    let silent = [(); 40].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    for socket in &silent {
        let way = format!("udp:{}", socket.local_addr().expect("its address"));
        a.begin_connect(&way, 2 * PATIENCE).expect("a call");
    }
    let call = a.begin_connect(&address, 2 * PATIENCE).expect("a call");
    let begun = Instant::now();
    let answered = loop {
        let _ = b.poll();
        if let Some(event) = a.poll() {
            break event;
        }
        assert!(begun.elapsed() < PATIENCE, "the others are waited for");
    };
    assert!(matches!(answered, Event::Connected(of, Ok(_)) if of == call), "{answered:?}");
}

/// Too many calls of one address wait for one another, and the next one is made when one ends.
#[test]
fn a_call_that_ends_makes_way_for_the_next_of_its_address() {
    let loopback = Loopback(None);
    let mut a = Endpoint::open(loopback.config(Config::default())).expect("an endpoint");
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    silent.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let way = format!("udp:{}", silent.local_addr().expect("its address"));
    let calls: Vec<_> = (0..40).map(|_| a.begin_connect(&way, 2 * PATIENCE).expect("a call")).collect();
    // Tag and generation of each call that is heard of.
    let mut heard = HashSet::new();
    let mut hear = |calls| {
        while heard.len() < calls {
            let mut hello = [0; 2048];
            let len = silent.recv(&mut hello).expect("a hello");
            heard.insert(<[u8; 8]>::try_from(&hello[HEADER_BYTES..len][..8]).expect("a greeting"));
        }
        heard.len()
    };
    assert_eq!(hear(16), 16);
    for (cancelled, call) in (1..).zip(&calls[..24]) {
        assert!(a.cancel_connect(*call));
        assert_eq!(hear(16 + cancelled), 16 + cancelled);
    }
    assert!(calls[24..].iter().all(|call| a.cancel_connect(*call)) && a.poll().is_none());
}

/// Who is woken by a peer in memory and computes from then on has an attendant that looks after its network.
#[test]
fn who_is_woken_by_memory_and_computes_answers_the_network() {
    let (memory, network) = (SharedMemory::new(), Loopback(None));
    // Nothing is due by itself meanwhile.
    let config = || Config { silence: Duration::from_secs(3600), ..Config::default() };
    let listening = |join: &dyn Join, address: &str| join.listening(network.config(config()), address);
    let addresses = [memory.address(), network.address()];
    let mut near = listening(&memory, &addresses[0]);
    let mut far = listening(&network, &addresses[1]);
    let mut middle = Endpoint::open(network.config(config())).expect("an endpoint");
    let (_, at_near) = connect(&mut middle, &mut near, &addresses[0]);
    let (at_middle, at_far) = connect(&mut middle, &mut far, &addresses[1]);
    assert_eq!(middle.post(at_middle, 4096, 5), Ok(5));
    // What looks for the longest frames is through.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(200) {
        assert!(middle.poll().is_none() && far.poll().is_none());
    }
    for round in 0..5 {
        let completed = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                let told = middle.wait(Some(PATIENCE)).expect("a message");
                assert!(matches!(told, Event::Message(_)));
                completed.wait();
            });
            // Long enough that it sleeps.
            thread::sleep(Duration::from_millis(100));
            near.send(at_near, b"wake up").expect("room");
            let page = far.page(at_far, 4096).expect("a page");
            far.outgoing(at_far).expect("room").write(b"meanwhile").attach(page).track(round).send().expect("sent");
            let told = far.wait(Some(PATIENCE / 4));
            completed.wait();
            assert!(matches!(&told, Ok(Event::Completed(_))), "round {round}: {told:?}");
        });
        assert!(matches!(middle.wait(Some(PATIENCE)), Ok(Event::Message(_))));
    }
}

/// Nobody waits for ever where three send to each other in a circle, over a network, or over a network and memory.
#[test]
fn three_send_in_a_circle_at_once() {
    let (memory, network) = (SharedMemory::new(), Loopback(None));
    let joins: [&dyn Join; 2] = [&network, &memory];
    // How the first reaches the second, the second the third, the third the first.
    for ways in [[0, 0, 0], [1, 0, 1], [0, 1, 1], [1, 0, 0]] {
        let addresses = ways.map(|way| joins[way].address());
        let mut nodes = [(); 3].map(|()| Endpoint::open(network.config(suite::config())).expect("an endpoint"));
        for (k, address) in addresses.iter().enumerate() {
            nodes[(k + 1) % 3].listen(address).expect("a free address");
        }
        circle(nodes, [&addresses[0], &addresses[1], &addresses[2]]);
    }
}

/// As much as the largest buffers hold, and more, is no more than a short payload: neither waits for the other.
#[test]
fn both_sides_send_more_at_once_than_may_come_unasked() {
    const LEN: usize = 40 << 20;
    let network = Loopback(None);
    let mut pair = network.pair(suite::config(), suite::config());
    let talk = |side: &mut Side| {
        side.send_copy(b"longer", &pattern(1, LEN), None);
        side.say(b"after");
        let mut message = side.message();
        assert_eq!(side.message().control(), b"after");
        side.read_checked(&mut message, 1);
    };
    pair.both(talk, talk);
    // Nor does one side wait for another that looks for what comes behind it.
    pair.both(
        |a| {
            a.send_copy(b"longer", &pattern(2, LEN), None);
            a.say(b"behind");
        },
        |b| {
            let mut message = b.message();
            assert_eq!(b.message().control(), b"behind");
            b.read_checked(&mut message, 2);
        },
    );
}

/// Who waits until it is let in, perhaps in vain, lets others come meanwhile.
#[test]
fn who_calls_in_vain_holds_no_sender() {
    let network = Loopback(None);
    let config = || Config { deadline: Duration::from_secs(1), ..suite::config() };
    let mut pair = network.pair(config(), config());
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let nobody = format!("udp:{}", silent.local_addr().expect("its address"));
    pair.both(
        |a| {
            thread::sleep(Duration::from_millis(100));
            a.send_copy(b"long", &pattern(1, 40 << 20), None);
        },
        |b| {
            let answer = b.endpoint.connect(&nobody, Duration::from_secs(2));
            assert!(answer.is_err(), "{answer:?}");
            let mut message = b.message();
            b.read_checked(&mut message, 1);
        },
    );
}

/// A payload that could lie anywhere does not wait for pages because one before it does.
#[test]
fn a_payload_behind_pages_that_wait_makes_way() {
    const PAGES: usize = 8 * 4096;
    let network = Loopback(None);
    let config = || {
        let (landing_bytes, pool_bytes) = (PAGES as u64, 2 * PAGES as u64);
        Config { landing_bytes, pool_bytes, deadline: Duration::from_secs(3), ..suite::config() }
    };
    let mut pair = network.pair(config(), config());
    let talk = |side: &mut Side| {
        for seed in [1, 2] {
            side.send_pages(b"pages", seed, &[PAGES], None);
        }
        side.send_copy(b"longer", &pattern(3, 40 << 20), None);
        for seed in 1..4 {
            let mut message = side.message();
            side.read_checked(&mut message, seed);
        }
    };
    pair.both(talk, talk);
}

/// What comes on a new channel before its opening was told does not go to the memory of who had its number before.
#[test]
fn what_comes_early_on_a_new_channel_is_not_for_the_one_before() {
    let network = Loopback(None);
    let address = network.address();
    let mut server = network.listening(network.config(Config::default()), &address);
    let mut first = Endpoint::open(network.config(Config::default())).expect("an endpoint");
    let (at_first, at_server) = connect(&mut first, &mut server, &address);
    assert_eq!(server.post(at_server, 8192, 4), Ok(4));
    let mut one = Side { endpoint: first, channel: at_first };
    one.send_copy(b"first", &pattern(1, 8192), None);
    let mut server = Side { endpoint: server, channel: at_server };
    let mut message = server.message();
    server.read_checked(&mut message, 1);
    drop(message);
    one.endpoint.close(at_first);
    server.closed();
    for seed in 2..6 {
        // The server's attendant takes in what it does not look at.
        let mut next = Endpoint::open(network.config(Config::default())).expect("an endpoint");
        let channel = next.connect(&address, PATIENCE).expect("a channel");
        let mut next = Side { endpoint: next, channel };
        if seed % 2 == 0 {
            next.send_pages(b"pages", seed, &[8192], None);
        } else {
            next.send_copy(b"private", &pattern(seed, 8192), None);
        }
        next.endpoint.flush();
        thread::sleep(Duration::from_millis(100));
        server.channel = match server.event() {
            Event::Opened(channel) => channel,
            other => panic!("{other:?}"),
        };
        let mut message = server.message();
        assert_eq!(message.payload_len(), 8192);
        server.read_checked(&mut message, seed);
        drop(message);
        next.endpoint.close(channel);
        server.closed();
    }
}

/// Sends a payload if there is room for it.
fn offers(side: &mut Side, payload: &[u8]) -> bool {
    match side.endpoint.outgoing(side.channel) {
        Ok(outgoing) => {
            outgoing.write(&[1]).attach_copy(payload).send().expect("who has a slot can send");
            true
        }
        Err(SendError::Full) => {
            keep_house(&mut side.endpoint, |event| panic!("{event:?}"));
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// Who takes nothing makes the other side keep no more than the settings say.
#[test]
fn copies_for_a_peer_that_takes_nothing_are_bounded() {
    const BYTES: usize = 256 << 10;
    let mut pair = Loopback(None).pair(Config::default(), Config::default());
    let payloads: Vec<_> = (0..4).map(|seed| pattern(seed, BYTES)).collect();
    let (mut sent, mut refused, begun) = (0, 0, Instant::now());
    while refused < 20 {
        let goes = offers(&mut pair.a, &payloads[sent % payloads.len()]);
        (sent, refused) = (sent + usize::from(goes), refused + usize::from(!goes));
    }
    // Those of which copies are kept, and what the other side takes unasked; there are slots for a thousand.
    assert!((8..=256).contains(&sent), "{sent} payloads");
    // A message without a payload still goes, and nothing waits.
    pair.a.endpoint.send(pair.a.channel, &[2]).expect("a slot");
    assert!(begun.elapsed() < Config::default().deadline, "{:?}", begun.elapsed());
    let Pair { mut a, mut b, .. } = pair;
    let taker = thread::spawn(move || {
        for at in 0..=sent + 1 {
            let mut message = b.message();
            match message.control() {
                [2] => assert_eq!(at, sent),
                _ => drop(b.read_checked(&mut message, (at - usize::from(at > sent)) as u64 % 4)),
            }
        }
        b
    });
    while !offers(&mut a, &payloads[sent % payloads.len()]) {
        assert!(begun.elapsed() < PATIENCE);
    }
    while !taker.is_finished() {
        keep_house(&mut a.endpoint, |event| panic!("{event:?}"));
    }
    drop(taker.join().expect("everything was read"));
}
