//! What was received in pages answers others: a server keeps what it has got and sends it on.

mod two;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use cutthrough::am::{Args, Body, Event, Node, Service, Settings};
use cutthrough::rpc::{self, Client, Raw};
use cutthrough::{Config, Frozen, Landed, Landing, Page, Payload};
use two::{Over, PATIENCE};

over_both! {
    a_server_sends_on_what_it_keeps, what_is_sent_on_keeps_no_server, what_is_sent_on_goes_by_pages_here_and_there,
    what_is_sent_on_to_a_place_waits_in_a_queue, two_that_send_back_what_they_are_sent_go_on,
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

/// A server whose pages are free here and there alone copied what it sent on to no run of them, and never answered.
fn what_is_sent_on_goes_by_pages_here_and_there(over: Over) {
    const HOLD: u16 = 20;
    let few = Config { pool_bytes: 256 << 10, staging_bytes: 64 << 10, ..Config::default() };
    let (server, mut node, channel) = over.serve_with(few, Settings::default(), |node| {
        keeper(node);
        let held: Mutex<Vec<Page>> = Mutex::default();
        node.short(HOLD, Args::Words(0), move |mut request| {
            let mut pages: Vec<_> = std::iter::from_fn(|| request.page(4096).ok()).collect();
            let mut is_kept = false;
            pages.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            held.lock().expect("nobody panics").extend(pages);
        });
    });
    store(&client(&server.address), 9, 100_000);
    node.call(channel, HOLD, &[], PATIENCE).expect("it holds them");
    for _ in 0..4 {
        node.ask(channel, ASK).within(PATIENCE).send().expect("room");
    }
    for _ in 0..4 {
        let Ok(Event::Replied(mut reply)) = node.wait(Some(PATIENCE)) else { panic!("no answer") };
        let mut bytes = vec![0; reply.payload_len()];
        node.read(&mut reply, &mut bytes).expect("a payload");
        assert!(bytes == vec![9; 100_000]);
    }
}

/// A reply to a place goes as a list of its pages. Where there is room for no more of these, one that was sent on had
/// the server wait for its client.
fn what_is_sent_on_to_a_place_waits_in_a_queue(over: Over) {
    const FROZEN: u16 = 21;
    let few = Config { pool_bytes: 1 << 20, staging_bytes: 64 << 10, ..Config::default() };
    let (server, mut idle, channel) = over.serve_with(few, Settings::default(), |node| {
        keeper(node);
        let frozen: Mutex<Option<Frozen>> = Mutex::default();
        node.short(FROZEN, Args::Words(0), move |mut request| {
            let mut frozen = frozen.lock().expect("nobody panics");
            let frozen = frozen.get_or_insert_with(|| request.page(4096).expect("a page").freeze());
            request.reply_with(&[], (&*frozen).into());
        });
    });
    let client = client(&server.address);
    store(&client, 9, 100_000);
    // As many as may be kept.
    let held: Vec<_> = (0..1024).map(|_| idle.call(channel, FROZEN, &[], PATIENCE).expect("a frozen page")).collect();
    let place = Landing::Buffer(vec![0; 100_000]);
    idle.ask(channel, ASK).reply_into(place).within(PATIENCE).send().expect("room");
    // Who has asked looks no more, and another one is served.
    assert_eq!(client.call_raw(Raw::new(FETCH)).expect("served").payload_len(), 100_000);
    drop(held);
    let Ok(Event::Replied(reply)) = idle.wait(Some(PATIENCE)) else { panic!("no answer") };
    assert_eq!(reply.payload_len(), 100_000);
}

/// Each answers from the pages that the other one needs for its own answers. They waited for each other for ever.
fn two_that_send_back_what_they_are_sent_go_on(over: Over) {
    const BACK: u16 = 22;
    const LONG: usize = 128 << 10;
    let few = Config { pool_bytes: 256 << 10, staging_bytes: 64 << 10, ..Config::default() };
    let (mut far, address) = over.listening(few.clone(), Settings::default());
    let mut near = Over::node(few, Settings::default());
    for node in [&mut near, &mut far] {
        node.long(BACK, Args::Words(0), LONG, |mut request| match request.take_payload() {
            Payload::Landed(pages) => request.reply_with(&[], pages.into()),
            _ => request.refuse(b"no pages"),
        });
    }
    let (at_near, at_far) = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| near.connect(&address, PATIENCE).expect("a channel"));
        let Ok(Event::Opened(at_far)) = far.wait(Some(PATIENCE)) else { panic!("no caller") };
        (connecting.join().expect("a channel"), at_far)
    });
    let (both_have_asked, both_are_done) = (&Barrier::new(2), &AtomicU32::new(0));
    std::thread::scope(|scope| {
        for (node, channel) in [(&mut near, at_near), (&mut far, at_far)] {
            scope.spawn(move || {
                for number in 0..2 {
                    let mut page = node.page(channel, LONG).expect("a page");
                    page.fill(number);
                    node.ask(channel, BACK).body(Body::Page(page)).within(PATIENCE).send().expect("room");
                }
                both_have_asked.wait();
                for _ in 0..2 {
                    let Ok(Event::Replied(reply)) = node.wait(Some(PATIENCE)) else { panic!("no answer") };
                    assert_eq!(reply.payload_len(), LONG);
                }
                both_are_done.fetch_add(1, Ordering::Relaxed);
                let begun = Instant::now();
                while both_are_done.load(Ordering::Relaxed) < 2 {
                    assert!(begun.elapsed() < PATIENCE);
                    let _ = node.wait(Some(Duration::from_millis(1)));
                }
            });
        }
    });
}
