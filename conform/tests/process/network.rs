//! A peer on another machine dies, stops or computes, or is not what it should be: every operation ends in an error
//! that says so, and a peer that is merely busy is left alone.

use std::net::UdpSocket;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{
    Channel, CloseReason, Config, ConnectError, Counter, Endpoint, Event, Keys, Landing, ListenError, ReadError,
    SendError, SharedKey, UdpAddressError, UdpCallError,
};
use cutthrough_conform::free_udp_address;
use cutthrough_conform::join::{connect, keep_house};
use cutthrough_wire::frame::{FRAME_VERSION, HEADER_BYTES, Kind, Refusal};
use rustix::process::{Signal, kill_process};

use crate::child::doings::{DOINGS, Doing};
use crate::child::{LONG, Other, PATIENCE, SILENCE, config};

/// Within this time every operation has ended after a peer died: its silence, and several times as much for a machine
/// that is busy with other things. As long as the deadline, by which it would have ended for another reason.
const HEARD: Duration = Duration::from_secs(5);

/// Within this time a death is noticed with the settings that nobody has changed, where the machine has time for it.
const NOTICED: Duration = Duration::from_secs(1);

/// An address that nobody listens at.
fn free() -> String {
    format!("udp:{}", free_udp_address())
}

fn listening(address: &str) -> Endpoint {
    listening_with(config(), address)
}

fn listening_with(config: Config, address: &str) -> Endpoint {
    let mut endpoint = Endpoint::open(config).expect("an endpoint");
    endpoint.listen(address).expect("a free address");
    endpoint
}

/// Waits for a caller.
fn caller(endpoint: &mut Endpoint) -> Channel {
    loop {
        if let Event::Opened(channel) = endpoint.wait(Some(PATIENCE)).expect("a caller") {
            return channel;
        }
    }
}

/// Kills the other side a little later, while the survivor does something: it hears of it in time. How long that took.
fn survive(
    endpoint: &mut Endpoint,
    channel: Channel,
    other: Other,
    round: u64,
    (name, _, doing): (&str, &str, Doing),
) -> Duration {
    let killer = thread::spawn(move || {
        thread::sleep(Duration::from_micros(round * 977 % 9000));
        drop(other);
        Instant::now()
    });
    let reason = doing(endpoint, channel);
    let heard = Instant::now();
    let killed = killer.join().expect("the killer");
    let late = heard.saturating_duration_since(killed);
    assert!(late < HEARD, "{name}: heard of it after {late:?}");
    assert_eq!(reason, CloseReason::Died, "{name}");
    while endpoint.channels().next().is_some() {
        let _ = endpoint.poll();
        assert!(heard.elapsed() < HEARD, "{name}: the channel does not end");
    }
    late
}

/// Plays it with a survivor for each thing to do, all at once. Whatever it does, a death is heard of as soon as is
/// promised, in one of ten plays: a machine that is busy with other things may be late each time.
fn noticed(play: impl Fn((&'static str, &'static str, Doing)) -> Duration + Sync) {
    assert_eq!(config().silence, Config::default().silence);
    let (mut left, mut late) = (DOINGS.to_vec(), Vec::new());
    for _ in 0..10 {
        let took: Vec<Duration> = thread::scope(|scope| {
            let play = &play;
            let plays: Vec<_> = left.iter().map(|doing| scope.spawn(move || play(*doing))).collect();
            plays.into_iter().map(|play| play.join().expect("a survivor")).collect()
        });
        let mut took = took.into_iter();
        late.clear();
        left.retain(|doing| {
            let took = took.next().expect("one for each");
            late.extend((took >= NOTICED).then_some((doing.0, took)));
            took >= NOTICED
        });
        if left.is_empty() {
            return;
        }
    }
    panic!("heard of it after {late:?}");
}

#[test]
fn a_killed_caller_is_noticed() {
    noticed(|doing| {
        let address = free();
        let mut endpoint = listening(&address);
        let rounds = (0..2).map(|round| {
            let other = Other::start(Other::command(&format!("connect{}", doing.1), &address));
            let channel = caller(&mut endpoint);
            survive(&mut endpoint, channel, other, round * 3 + 2, doing)
        });
        rounds.min().expect("two rounds")
    });
}

#[test]
fn a_killed_listener_is_noticed_and_joined_again_under_its_address() {
    noticed(|doing| {
        let address = free();
        let mut endpoint = Endpoint::open(config()).expect("an endpoint");
        let rounds = (0..2).map(|round| {
            let other = Other::ready(&format!("listen{}", doing.1), &address);
            let channel = endpoint.connect(&address, PATIENCE).expect("a channel");
            survive(&mut endpoint, channel, other, round * 3 + 2, doing)
        });
        rounds.min().expect("two rounds")
    });
}

#[test]
fn an_address_is_free_the_instant_its_owner_is_dead() {
    let address = free();
    // It does not hear of any death meanwhile.
    let silence = 10 * PATIENCE;
    let mut caller = Endpoint::open(Config { silence, ..config() }).expect("an endpoint");
    for _ in 0..5 {
        // The caller has channels to those that died before, and is let in by the next one all the same.
        let other = Other::ready("listen", &address);
        let channel = caller.connect(&address, PATIENCE).expect("a channel");
        caller.send(channel, b"there").expect("sent");
        drop(other);
        drop(listening(&address));
    }
}

/// Memory that a token named comes back, too, if its sender is killed while it fills it.
#[test]
fn memory_that_was_being_filled_comes_back() {
    let address = free();
    let mut endpoint = listening(&address);
    let other = Other::start(Other::command("connect-fill", &address));
    let channel = caller(&mut endpoint);
    let token = endpoint.grant(channel, Landing::Buffer(vec![1; LONG + 1])).expect("a token");
    let before = endpoint.counter(Counter::FramesReceived);
    let control = [&token.index.to_le_bytes()[..], &token.key.to_le_bytes()].concat();
    endpoint.send(channel, &control).expect("sent");
    while endpoint.counter(Counter::FramesReceived) < before + 1000 {
        assert!(endpoint.poll().is_none());
    }
    assert!(endpoint.revoke(channel, token).is_err(), "it is being filled");
    drop(other);
    match endpoint.wait(Some(PATIENCE)).expect("an event") {
        Event::Closed(of, CloseReason::Died) => assert_eq!(of, channel),
        event => panic!("{event:?}"),
    }
    match endpoint.revoke(channel, token) {
        Ok(Landing::Buffer(buffer)) => assert_eq!(buffer.len(), LONG + 1),
        other => panic!("{other:?}"),
    }
    assert!(endpoint.revoke(channel, token).is_err(), "it comes back once");
}

#[test]
fn who_is_stopped_for_longer_than_the_silence_is_dead() {
    let address = free();
    let mut endpoint = listening(&address);
    let other = Other::start(Other::command("connect", &address));
    let channel = caller(&mut endpoint);
    other.stop();
    let begun = Instant::now();
    let payload = vec![1; 8 << 20];
    let reason = loop {
        match endpoint.outgoing(channel).and_then(|outgoing| outgoing.attach_copy(&payload).send()) {
            Ok(_) | Err(SendError::Full) => {}
            Err(SendError::Closed(reason)) => break reason,
            Err(error) => panic!("{error}"),
        }
        if let Some(Event::Closed(_, reason)) = endpoint.poll() {
            break reason;
        }
    };
    assert_eq!(reason, CloseReason::Died);
    // It was heard of last a little before.
    let silence = config().silence;
    assert!(begun.elapsed() > silence / 3 && begun.elapsed() < HEARD, "{:?}", begun.elapsed());
    // It goes on, hears that it was given up, and may come again.
    kill_process(other.number(), Signal::CONT).expect("continued");
    drop(other);
    let _other = Other::start(Other::command("connect", &address));
    caller(&mut endpoint);
}

/// An operation that makes no progress ends its channel by the deadline. The channel's number is nobody else's until
/// that was told: what is still sent there, and a close of it, concern no other channel.
#[test]
fn who_has_stalled_keeps_its_number_until_that_is_told() {
    for (part, how) in [("connect", "send"), ("connect-send", "read")] {
        let address = free();
        let deadline = Duration::from_millis(300);
        let silence = Duration::from_secs(3600);
        let mut endpoint = Endpoint::open(Config { deadline, silence, ..config() }).expect("an endpoint");
        endpoint.listen(&address).expect("a free address");
        let other = Other::start(Other::command(part, &address));
        let old = caller(&mut endpoint);
        let message = (how == "read").then(|| endpoint.wait(Some(PATIENCE)));
        other.stop();
        let begun = Instant::now();
        if how == "send" {
            let payload = vec![1; 64 << 20];
            let sent = endpoint.outgoing(old).expect("a slot").attach_copy(&payload).send();
            assert_eq!(sent.map(|_| ()), Err(SendError::Closed(CloseReason::Stalled)));
        } else {
            let Some(Ok(Event::Message(mut message))) = message else { panic!("no message") };
            let read = endpoint.read(&mut message, &mut vec![0; 8 << 20]);
            assert_eq!(read.map(|_| ()), Err(ReadError::Closed(CloseReason::Stalled)));
        }
        assert!(begun.elapsed() >= deadline && begun.elapsed() < PATIENCE, "{how}: {:?}", begun.elapsed());

        let address = free();
        let mut next = listening(&address);
        let (here, there) = connect(&mut endpoint, &mut next, &address);
        let sent = endpoint.send(old, b"for nobody");
        assert_eq!(sent, Err(SendError::Closed(CloseReason::Stalled)), "{how}");
        let told = endpoint.wait(Some(PATIENCE));
        let stalled = matches!(&told, Ok(Event::Closed(of, CloseReason::Stalled)) if *of == old);
        assert!(stalled, "{how}: {told:?}");
        endpoint.close(old);
        assert_eq!(endpoint.channels().collect::<Vec<_>>(), [here], "{how}");
        next.send(there, b"for the next").expect("room");
        let told = endpoint.wait(Some(PATIENCE));
        assert!(matches!(&told, Ok(Event::Message(message)) if message.channel() == here), "{how}: {told:?}");
        endpoint.send(here, b"back").expect("room");
        let told = next.wait(Some(PATIENCE));
        assert!(matches!(&told, Ok(Event::Message(message)) if message.control() == b"back"), "{how}: {told:?}");
    }
}

#[test]
fn drop_does_not_wait_for_all_of_a_long_silence() {
    let address = free();
    let mut endpoint = Endpoint::open(Config { silence: Duration::from_secs(3600), ..config() }).expect("an endpoint");
    endpoint.listen(&address).expect("a free address");
    let other = Other::start(Other::command("connect", &address));
    let channel = caller(&mut endpoint);
    other.stop();
    endpoint.send(channel, b"never to arrive").expect("room");
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        drop(endpoint);
        let _ = tell.send(());
    });
    told.recv_timeout(2 * PATIENCE).expect("the endpoint is gone");
}

#[test]
fn who_is_stopped_for_less_than_the_silence_is_waited_for() {
    let address = free();
    // Long enough that the two signals come in time on a busy machine too.
    let silence = Duration::from_secs(3);
    let mut endpoint = listening_with(Config { silence, ..config() }, &address);
    let mut command = Other::command("connect", &address);
    command.env(SILENCE, silence.as_millis().to_string());
    let other = Other::start(command);
    let channel = caller(&mut endpoint);
    other.stop();
    thread::sleep(silence / 3);
    kill_process(other.number(), Signal::CONT).expect("continued");
    let _ = endpoint.wait(Some(silence * 2)).expect_err("nothing happens");
    endpoint.outgoing(channel).and_then(|outgoing| outgoing.attach_copy(&[1; 100_000]).send()).expect("sent");
}

#[test]
fn who_computes_without_polling_is_not_dead() {
    let address = free();
    let mut endpoint = listening(&address);
    let _other = Other::start(Other::command("connect-compute", &address));
    let channel = caller(&mut endpoint);
    let mut message = match endpoint.wait(Some(PATIENCE)).expect("a message") {
        Event::Message(message) => message,
        other => panic!("{other:?}"),
    };
    assert_eq!(message.control(), b"computing");
    // It takes what it is sent only when it has finished, and what it has sent is read meanwhile.
    endpoint.outgoing(channel).and_then(|out| out.attach_copy(&[3; 300_000]).send()).expect("sent");
    let mut bytes = vec![0; message.payload_len()];
    let begun = Instant::now();
    endpoint.read(&mut message, &mut bytes).expect("its payload");
    assert!(begun.elapsed() < Duration::from_secs(2), "its payload waits for it");
    assert!(bytes.iter().all(|byte| *byte == 4));
    match endpoint.wait(Some(PATIENCE)).expect("a message") {
        Event::Message(message) => assert_eq!(message.control(), b"computed"),
        other => panic!("{other:?}"),
    }
    assert!(begun.elapsed() > Duration::from_secs(2));
}

#[test]
fn a_dropped_endpoint_delivers_what_was_sent() {
    for len in [0, 1000, 1 << 20] {
        let address = free();
        let mut endpoint = listening(&address);
        let bytes = thread::scope(|scope| {
            scope.spawn(|| {
                let mut sender = Endpoint::open(config()).expect("an endpoint");
                let channel = sender.connect(&address, PATIENCE).expect("a channel");
                for number in 0..50_u8 {
                    sender.send(channel, &[number]).expect("room");
                }
                let last = sender.outgoing(channel).expect("room").write(b"last");
                last.attach_copy(&vec![9; len]).send().expect("sent");
            });
            caller(&mut endpoint);
            for number in 0..50 {
                match endpoint.wait(Some(PATIENCE)).expect("a message") {
                    Event::Message(message) => assert_eq!(message.control(), [number]),
                    other => panic!("{number}: {other:?}"),
                }
            }
            let Ok(Event::Message(mut message)) = endpoint.wait(Some(PATIENCE)) else { panic!("no last message") };
            let mut bytes = vec![0; message.payload_len()];
            if len > 0 {
                endpoint.read(&mut message, &mut bytes).expect("its payload");
            }
            bytes
        });
        assert_eq!(bytes, vec![9; len]);
        let end = endpoint.wait(Some(PATIENCE));
        assert!(matches!(end, Ok(Event::Closed(_, CloseReason::Peer))), "{end:?}");
    }
}

/// What a caller with these settings is told by a listener with those.
fn told(caller: Config, listener: Config) -> ConnectError {
    let address = free();
    let mut listens = Endpoint::open(listener).expect("an endpoint");
    listens.listen(&address).expect("a free address");
    let mut calls = Endpoint::open(caller).expect("an endpoint");
    let begun = Instant::now();
    let error = calls.connect(&address, Duration::from_secs(1)).expect_err("it is refused");
    assert!(begun.elapsed() < HEARD, "{:?}", begun.elapsed());
    keep_house(&mut listens, |event| panic!("the listener shall not notice: {event:?}"));
    assert!(listens.counter(Counter::HellosRefused) > 0, "nobody counts it");
    error
}

#[test]
fn no_key_and_no_leave_to_go_without_is_refused() {
    for result in [
        Endpoint::open(Config::default()).expect("an endpoint").listen(&free()).map_err(|error| error.to_string()),
        Endpoint::open(Config::default())
            .expect("an endpoint")
            .connect(&free(), PATIENCE)
            .map(drop)
            .map_err(|error| error.to_string()),
    ] {
        let text = result.expect_err("it is refused");
        assert!(text.contains("Config::keys") && text.contains("Config::insecure") && !text.contains("--"), "{text}");
    }
}

#[test]
fn keys_that_do_not_fit_are_refused() {
    let keyed = |byte| {
        let keys = Some(Arc::new(Keys::Shared(SharedKey::from_bytes([byte; 32]))));
        Config { keys, insecure: false, ..config() }
    };
    for (caller, listener) in [(keyed(1), keyed(2)), (keyed(1), config()), (config(), keyed(2))] {
        let error = told(caller, listener);
        assert!(matches!(error, ConnectError::Net(UdpCallError::Key)), "{error}");
        assert!(error.to_string().contains("keys do not fit"), "{error}");
    }
}

#[test]
fn a_listener_without_room_says_so() {
    let address = free();
    let _full = listening_with(Config { channels: 1, ..config() }, &address);
    let mut callers = [(); 2].map(|()| Endpoint::open(config()).expect("an endpoint"));
    callers[0].connect(&address, PATIENCE).expect("the one channel");
    let error = callers[1].connect(&address, PATIENCE).expect_err("there is no other");
    assert!(matches!(error, ConnectError::Net(UdpCallError::Channels)), "{error}");
}

#[test]
fn who_does_not_listen_says_so() {
    let address = free();
    let mut other = listening(&address);
    // Bound, and calls, but does not listen.
    let mut silent = Endpoint::open(config()).expect("an endpoint");
    silent.connect(&address, PATIENCE).expect("a channel");
    let port = silent.net_address().expect("it is bound").port();
    let error = other.connect(&format!("udp:127.0.0.1:{port}"), Duration::from_secs(1)).expect_err("it is refused");
    assert!(matches!(error, ConnectError::Net(UdpCallError::Nobody)), "{error}");
}

#[test]
fn nobody_there_is_said_in_time() {
    let mut endpoint = Endpoint::open(config()).expect("an endpoint");
    for timeout in [0, 50, 300].map(Duration::from_millis) {
        let begun = Instant::now();
        let error = endpoint.connect(&free(), timeout).expect_err("nobody is there");
        assert!(begun.elapsed() >= timeout && begun.elapsed() < timeout + HEARD);
        assert!(error.to_string().contains("is anybody listening there"), "{error}");
    }
    assert!(endpoint.channels().next().is_none() && endpoint.poll().is_none());
}

/// Another release answers what it is asked with its own version.
#[test]
fn another_version_is_told_by_name() {
    let address = free();
    let _endpoint = listening(&address);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(HEARD)).expect("a timeout");
    let to = address.trim_start_matches("udp:");
    let mut hello = [0; 1200];
    (hello[0], hello[1]) = (FRAME_VERSION + 1, 1);
    socket.send_to(&hello, to).expect("sent");
    let mut answer = [0; 2048];
    let len = socket.recv(&mut answer).expect("an answer");
    assert!(len >= HEADER_BYTES && len <= hello.len(), "{len} bytes");
    assert_eq!(answer[0], FRAME_VERSION, "it says which version it speaks");
    // Neither a short one nor noise is answered.
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    for noise in [&[7; 1][..], &[0xff; 64], &[0xa5; 1400]] {
        socket.send_to(noise, to).expect("sent");
    }
    assert!(socket.recv(&mut answer).is_err(), "noise is answered");
}

#[test]
fn a_caller_of_another_version_hears_so() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = format!("udp:{}", socket.local_addr().expect("its address"));
    let other = thread::spawn(move || {
        let mut asked = [0; 2048];
        let (_, from) = socket.recv_from(&mut asked).expect("a hello");
        // A refusal lies at the same place in every version: it names the call, as the hello's body does.
        let mut answer = [0; 128];
        (answer[0], answer[1], answer[2]) = (FRAME_VERSION + 1, Kind::Refuse as u8, 2);
        answer[4..12].copy_from_slice(&asked[HEADER_BYTES..HEADER_BYTES + 8]);
        answer[HEADER_BYTES..HEADER_BYTES + 2].copy_from_slice(&[Refusal::Version as u8, FRAME_VERSION + 1]);
        socket.send_to(&answer, from).expect("sent");
        socket
    });
    let error = Endpoint::open(config()).expect("an endpoint").connect(&address, Duration::from_secs(1));
    let error = error.expect_err("it is of another version");
    let next = FRAME_VERSION + 1;
    assert!(matches!(error, ConnectError::Net(UdpCallError::Version(of)) if of == next), "{error}");
    assert!(error.to_string().contains(&format!("version {next} of the frames, and not {FRAME_VERSION}")), "{error}");
    drop(other.join().expect("the other release"));
}

#[test]
fn an_address_in_use_is_refused() {
    let address = free();
    let _first = listening(&address);
    let error = Endpoint::open(config()).expect("an endpoint").listen(&address).expect_err("it is in use");
    assert!(matches!(error, ListenError::Net(UdpAddressError::Socket { .. })), "{error}");
    assert!(error.to_string().contains("in use"), "{error}");
}

#[test]
fn a_malformed_address_is_refused_with_an_example() {
    for address in ["udp:", "udp:127.0.0.1", "udp:127.0.0.1:port", "udp::7000", "udp:127.0.0.1:70000"] {
        let mut endpoint = Endpoint::open(config()).expect("an endpoint");
        let texts = [
            endpoint.listen(address).expect_err("it is malformed").to_string(),
            endpoint.connect(address, PATIENCE).expect_err("it is malformed").to_string(),
        ];
        for text in texts {
            assert!(text.contains("for example udp:127.0.0.1:7000"), "{text}");
        }
    }
}

/// A reader of a payload whose sender dies in the middle is not left waiting.
#[test]
fn a_read_ends_when_its_sender_dies_in_the_middle() {
    for round in 0..3 {
        let address = free();
        let mut endpoint = listening(&address);
        let other = Other::start(Other::command("connect-send", &address));
        caller(&mut endpoint);
        let mut bytes = vec![0; 8 << 20];
        let Ok(Event::Message(mut message)) = endpoint.wait(Some(PATIENCE)) else { panic!("no message") };
        let killer = thread::spawn(move || {
            thread::sleep(Duration::from_micros(round * 500));
            drop(other);
        });
        let begun = Instant::now();
        let read = endpoint.read(&mut message, &mut bytes);
        assert!(begun.elapsed() < HEARD, "{:?}", begun.elapsed());
        match read {
            Ok(_) => assert!(bytes.iter().all(|byte| *byte == 5)),
            Err(error) => assert_eq!(error, ReadError::Closed(CloseReason::Died)),
        }
        killer.join().expect("the killer");
    }
}
