//! What was received in pages answers others: a server keeps what it has got and sends it on.

mod two;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use cutthrough::am::{Args, Body, Event, Node, Service, Settings};
use cutthrough::rpc::{self, Client, Raw};
use cutthrough::{Config, Landed, Landing, Payload};
use two::{Over, PATIENCE};

over_both! {
    a_server_sends_on_what_it_keeps, what_is_sent_on_keeps_no_server,
}

const STORE: u16 = 80;
const FETCH: u16 = 81;
/// The same as a plain request.
const ASK: u16 = 82;

/// Keeps the last payload that came in pages, and answers with it.
fn keeper(node: &mut Node) {
    let kept: Arc<Mutex<Option<Arc<Landed>>>> = Arc::default();
    let its = Arc::clone(&kept);
    rpc::serve_raw(node, STORE, move |mut request| match request.take_payload() {
        Payload::Landed(landed) => {
            *its.lock().expect("no panic") = Some(Arc::new(landed));
            request.reply(&[]);
        }
        other => panic!("instead of pages: {other:?}"),
    });
    let its = Arc::clone(&kept);
    node.short(ASK, Args::Words(0), move |request| {
        let kept = its.lock().expect("no panic");
        request.reply_with(&[], kept.as_ref().expect("something is kept").into());
    });
    rpc::serve_raw(node, FETCH, move |request| match &*kept.lock().expect("no panic") {
        Some(landed) => request.reply_with(&[], landed.into()),
        None => request.refuse(b"nothing is kept"),
    });
}

fn client(address: &str) -> Client {
    let node = Over::node(Config::default(), Settings::default());
    let service = Arc::new(Service::spawn(node, |_| ()).expect("a thread"));
    Client::connect(service, address, PATIENCE).expect("a channel")
}

/// Stores so many bytes of this value.
fn store(client: &Client, value: u8, bytes: usize) {
    let mut page = client.page(bytes).expect("a page");
    page.fill(value);
    client.call_raw(Raw::new(STORE).body(Body::Page(page))).expect("stored");
}

/// One caller's pages are another one's answer, wherever that shall land, and also when the first one is gone.
fn a_server_sends_on_what_it_keeps(over: Over) {
    const LEN: usize = 9000;
    let (server, _, _) = over.serve(keeper);
    let [first, second] = [(); 2].map(|()| client(&server.address));
    for value in 0..4 {
        store(&first, value, LEN);
        for landing in [None, Some(Landing::Pages(LEN)), Some(Landing::Buffer(vec![0; LEN]))] {
            let raw = Raw::new(FETCH);
            let raw = if let Some(landing) = landing { raw.reply_into(landing) } else { raw };
            let reply = second.call_raw(raw).expect("a reply");
            match reply.payload() {
                Payload::Landed(landed) => assert!(landed.to_vec() == [value; LEN]),
                Payload::Buffer(bytes) => assert!(bytes == &[value; LEN]),
                other => panic!("{other:?}"),
            }
        }
    }
    drop(first);
    for _ in 0..50 {
        let reply = second.call_raw(Raw::new(FETCH)).expect("a reply");
        assert!(matches!(reply.payload(), Payload::Landed(landed) if landed.to_vec() == [3; LEN]), "{reply:?}");
    }
    // And further on: it is a request then, which may be made as often as it has to.
    let reply = second.call_raw(Raw::new(FETCH)).map(|mut reply| reply.take_payload());
    let Ok(Payload::Landed(landed)) = reply else { panic!("no pages: {reply:?}") };
    let (other, _, _) = over.serve(keeper);
    let third = client(&other.address);
    third.call_raw(Raw::new(STORE).body(Body::from(landed)).idempotent()).expect("stored");
    let reply = third.call_raw(Raw::new(FETCH)).expect("a reply");
    assert!(matches!(reply.payload(), Payload::Landed(landed) if landed.to_vec() == [3; LEN]), "{reply:?}");
}

/// More answers than the server has pages for go to somebody who takes none: they wait, and others are served. In the
/// end all come.
fn what_is_sent_on_keeps_no_server(over: Over) {
    const LEN: usize = 40_000;
    const ASKED: usize = 12;
    let few = Config { pool_bytes: 64 << 10, staging_bytes: 64 << 10, ..Config::default() };
    let (server, mut idle, channel) = over.serve_with(few, Settings::default(), keeper);
    let client = client(&server.address);
    store(&client, 9, LEN);
    for _ in 0..ASKED {
        idle.ask(channel, ASK).within(PATIENCE).send().expect("room");
    }
    let since = Instant::now();
    for _ in 0..20 {
        let reply = client.call_raw(Raw::new(FETCH)).expect("a reply");
        assert_eq!(reply.payload_len(), LEN);
    }
    assert!(since.elapsed() < PATIENCE / 4, "the server waited for somebody else");
    for _ in 0..ASKED {
        let Ok(Event::Replied(reply)) = idle.wait(Some(PATIENCE)) else { panic!("no reply") };
        assert_eq!(reply.payload_len(), LEN);
        assert!(!matches!(reply.payload(), Payload::Landed(landed) if landed.to_vec() != [9; LEN]));
    }
}
