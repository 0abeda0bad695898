//! What is wrong is said to whoever can do something about it, in words that say what.

mod two;

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use cutthrough::am::{self, Args, Body, CallError, Failure, Node, Settings, WINDOW};
use cutthrough::{Config, Endpoint, Event, Landing, ReadError};
use two::{Over, PATIENCE};

over_both! {
    whoever_waits_for_a_call_gets_the_words_of_a_refusal, no_payload_is_read_as_no_bytes,
    what_comes_is_shown_as_it_is_written,
}

fn endpoint() -> Endpoint {
    Endpoint::open(Config { insecure: true, ..Config::default() }).expect("an endpoint")
}

#[test]
fn settings_out_of_their_bounds_are_refused() {
    let zero = Duration::ZERO;
    for (config, which) in [
        (Config { channels: 0, ..Config::default() }, "channels"),
        (Config { deadline: zero, ..Config::default() }, "deadline"),
        (Config { silence: zero, ..Config::default() }, "silence"),
    ] {
        let said = Endpoint::open(config).map(drop).expect_err(which).to_string();
        assert!(said.starts_with(&format!("setting out of bounds: Config::{which} has to be ")), "{said}");
    }
    for (config, which, given) in [
        (Config { slots: 1000, ..Config::default() }, "slots", 1000),
        (Config { staging_bytes: 1, ..Config::default() }, "staging_bytes", 1),
        (Config { pool_bytes: 1 << 40, ..Config::default() }, "pool_bytes", 1 << 40),
        (Config { landing_bytes: u64::MAX, ..Config::default() }, "landing_bytes", u64::MAX),
    ] {
        let said = Endpoint::open(config).map(drop).expect_err(which).to_string();
        assert!(said.starts_with(&format!("setting out of bounds: Config::{which} has to be ")), "{said}");
        assert!(said.ends_with(&format!(", and is {given}")), "{said}");
    }
}

/// What a program cannot have meant is a mistake in it, and it is told at once.
#[test]
fn a_window_or_arguments_that_cannot_be_are_a_mistake_of_the_program() {
    let panics = |doing: &mut dyn FnMut()| std::panic::catch_unwind(AssertUnwindSafe(doing)).is_err();
    for window in [0, WINDOW + 1] {
        assert!(panics(&mut || drop(Node::new(endpoint(), Settings { window, ..Settings::default() }))), "{window}");
    }
    let mut node = Node::new(endpoint(), Settings { window: 1, ..Settings::default() });
    for args in [Args::Words(17), Args::AtLeast(65)] {
        assert!(panics(&mut || node.short(1, args, |_| ())), "{args:?}");
    }
    for (number, args) in (1..).zip([Args::Words(16), Args::AtLeast(64)]) {
        node.short(number, args, |_| ());
    }
}

/// What is said of an address that cannot be listened at.
fn refusal(address: &str) -> String {
    endpoint().listen(address).expect_err(address).to_string()
}

#[test]
fn whoever_cannot_listen_is_told_what_to_do() {
    let mut first = endpoint();
    first.listen("udp:127.0.0.1:0").expect("a free port");
    let taken = first.net_address().expect("an address");
    let said = refusal(&format!("udp:{taken}"));
    assert!(said.ends_with("; choose another port, or end the process that has it"), "{said}");
    // An address that is nobody's.
    let said = refusal("udp:192.0.2.1:0");
    assert!(said.ends_with("; use an address of this machine; 'ip address' lists them"), "{said}");
    let name = format!("shm:said-{}", std::process::id());
    let nobody = endpoint().connect(&name, PATIENCE).expect_err("nobody is there").to_string();
    first.listen(&name).expect("a free name");
    let said = refusal(&name);
    // Whoever has given the name knows it again, and where it lies.
    for (said, what) in [(nobody, "nobody listens at "), (said, "")] {
        let begin = format!("{what}{name} ({}/said-", cutthrough::folder().display());
        assert!(said.starts_with(&begin), "{said}");
    }
}

/// It was told to stop the process that has the name, which it was itself.
#[test]
fn who_listens_at_its_name_again_keeps_it() {
    let name = format!("shm:said-again-{}", std::process::id());
    let mut server = endpoint();
    for _ in 0..2 {
        server.listen(&name).expect("its own name");
    }
    let connecting = std::thread::spawn(move || endpoint().connect(&name, PATIENCE).map(drop));
    assert!(matches!(server.wait(Some(PATIENCE)), Ok(Event::Opened(_))));
    connecting.join().expect("the other thread").expect("a channel");
}

const REFUSES: u16 = 1;
const STALLS: u16 = 2;

fn whoever_waits_for_a_call_gets_the_words_of_a_refusal(over: Over) {
    let (_server, mut node, channel) = over.serve(|node| {
        node.short(REFUSES, Args::Any, |request| request.refuse(b"no such blob"));
        let mut put_off = Vec::new();
        node.short(STALLS, Args::Any, move |request| put_off.push(request.defer()));
    });
    let refused = node.call(channel, REFUSES, &[7], PATIENCE).map(drop).expect_err("it refuses");
    assert_eq!((refused.error, &refused.args[..]), (CallError::Failed(Failure::Refused), &b"no such blob"[..]));
    assert_eq!(refused.to_string(), "the handler refused the request: no such blob");
    // The place that was granted comes back with them, and so it does where nothing is said in time.
    for (handler, patience, error) in
        [(REFUSES, PATIENCE, CallError::Failed(Failure::Refused)), (STALLS, Duration::from_millis(20), CallError::Late)]
    {
        let place = Landing::Buffer(vec![0; 64]);
        let call = node.ask(channel, handler).body(Body::None).reply_into(place.clone()).send().expect("room");
        let failed = node.wait_for(call, patience).map(drop).expect_err("it has no reply");
        assert_eq!((failed.error, failed.landing), (error, Some(place)));
    }
}

const GIVES_BACK: u16 = 3;

/// Who serves and who asks need not know whether a payload that may be empty is.
fn no_payload_is_read_as_no_bytes(over: Over) {
    let (_server, mut node, channel) = over.serve(|node| {
        node.long(GIVES_BACK, Args::Any, 100, |mut request| {
            let mut payload = vec![0; request.payload_len()];
            match request.read(&mut payload) {
                Ok(()) => request.reply_with(&[], Body::Copy(&payload)),
                Err(error) => request.refuse(error.to_string().as_bytes()),
            }
        });
    });
    for payload in [&b""[..], b"bytes"] {
        let call = node.ask(channel, GIVES_BACK).body(Body::Copy(payload)).send().expect("room");
        let mut reply = node.wait_for(call, PATIENCE).expect("a reply");
        let mut back = vec![0; reply.payload_len()];
        node.read(&mut reply, &mut back).expect("the payload");
        assert_eq!(back, payload);
    }
    // But where some were to come, that none have is an error.
    let mut reply = node.call(channel, GIVES_BACK, &[], PATIENCE).expect("a reply");
    assert_eq!(node.read(&mut reply, &mut [0; 5]), Err(CallError::Payload(ReadError::Nothing)));
}

/// Of what is left over from other messages nothing is seen.
fn what_comes_is_shown_as_it_is_written(over: Over) {
    let (seen, asked) = std::sync::mpsc::channel();
    let (_server, mut node, channel) = over.serve(|node| {
        node.long(GIVES_BACK, Args::Any, 100, move |request| {
            seen.send(format!("{request:?}")).expect("somebody looks");
            request.reply_with(b"\xff", Body::Copy(b"four"));
        });
    });
    let call = node.ask(channel, GIVES_BACK).args(b"a \"word\"").body(Body::Copy(b"more")).send().expect("room");
    let reply = node.wait_for(call, PATIENCE).expect("a reply");
    let said = asked.recv().expect("it has come");
    assert!(said.starts_with("Request { channel: Channel { ") && said.contains("handler: 3"), "{said}");
    assert!(said.contains(r#"args: b"a \"word\"", payload: "#) && said.contains("(4 bytes)"), "{said}");
    let said = format!("{:?}", am::Event::Replied(reply));
    assert!(said.contains(r#"args: b"\xff", payload: "#) && said.contains("(4 bytes)"), "{said}");
    let (mut sender, mut receiver) = (endpoint(), endpoint());
    let address = format!("shm:said-shown-{}-{over:?}", std::process::id());
    receiver.listen(&address).expect("a free name");
    let sending = std::thread::spawn(move || {
        let channel = sender.connect(&address, PATIENCE).expect("a channel");
        sender.send(channel, b"hello").expect("room");
    });
    while let Ok(event) = receiver.wait(Some(PATIENCE)) {
        if let Event::Message(_) = event {
            assert!(format!("{event:?}").ends_with(r#", control: b"hello" })"#), "{event:?}");
            break;
        }
    }
    sending.join().expect("the other thread");
}
