//! What comes back of a request that was not made.

mod two;

use cutthrough::am::{Args, Body, Event, RequestError, Settings, Unsent};
use cutthrough::{Config, Endpoint, Landing, NoMemory};
use two::{Over, PATIENCE, small};

over_both! { a_request_that_was_not_made_comes_back }

const LATER: u16 = 1;
const ECHO: u16 = 2;

fn a_request_that_was_not_made_comes_back(over: Over) {
    let settings = Settings { window: 1, ..Settings::default() };
    let (_server, mut node, channel) = over.serve_with(small(), settings, |node| {
        let mut held = Vec::new();
        node.short(LATER, Args::Any, move |request| held.push(request.defer()));
        node.medium(ECHO, Args::Any, |request| {
            let payload = request.medium();
            request.reply_with(&[], Body::Copy(payload));
        });
    });
    let waits = node.request(channel, LATER, &[]).expect("room");
    let place = vec![9; 5000];
    let lies = place.as_ptr();
    let mut landing = Some(Landing::Buffer(place));
    let (mut bytes, mut page) = (vec![5; 100], node.page(channel, 100).expect("a page"));
    page.fill(6);
    // More often than the channel has tokens.
    for _ in 0..300 {
        let asked = node.ask(channel, ECHO).body(Body::Owned(bytes)).reply_into(landing.take().expect("it is back"));
        let unsent: Unsent<'_> = asked.try_send().expect_err("the window is full");
        assert_eq!(unsent.error, RequestError::Full);
        (bytes, landing) = match unsent.body {
            Body::Owned(bytes) => (bytes, unsent.landing),
            other => panic!("{other:?}"),
        };
        let asked = node.ask(channel, ECHO).body(Body::Page(page));
        let unsent = asked.try_send_then(|_, _| panic!("it was not made")).expect_err("the window is full");
        page = match unsent.body {
            Body::Page(page) => page,
            other => panic!("{other:?}"),
        };
    }
    assert!(matches!(&landing, Some(Landing::Buffer(place)) if place.as_ptr() == lies && *place == [9; 5000]));
    assert_eq!((&bytes[..], &page[..]), (&[5; 100][..], &[6; 100][..]));
    // The other reasons.
    let unsent = node.ask(channel, ECHO).body(Body::Page(page)).then(77).try_send().expect_err("no such handler");
    assert_eq!(unsent.error, RequestError::NoHandler);
    let Body::Page(page) = unsent.body else { panic!("the page") };
    let asked = node.ask(channel, ECHO).body(Body::Page(page)).reply_into(Landing::Pages(1 << 40));
    let unsent = asked.try_send().expect_err("no place so long");
    assert!(matches!(unsent.error, RequestError::NoMemory(NoMemory::TooLong | NoMemory::NoPages)), "{unsent:?}");
    let (Body::Page(page), Some(Landing::Pages(bytes))) = (unsent.body, unsent.landing) else { panic!("both") };
    assert_eq!(bytes, 1 << 40);
    // Both go as they are, once there is room.
    assert_eq!(node.cancel(waits), None);
    drop(node);
    drop((page, landing));
    let (_server, mut node, channel) = over.serve_with(small(), settings, |node| {
        node.short(LATER, Args::Any, |request| request.reply(&[]));
    });
    node.close(channel);
    let landing = Landing::Buffer(vec![1; 10]);
    let unsent = node.ask(channel, LATER).reply_into(landing.clone()).try_send().expect_err("it is closed");
    assert_eq!((unsent.error, unsent.landing), (RequestError::Closed, Some(landing)));
    assert!(matches!(node.wait(Some(PATIENCE)), Ok(Event::Closed(..))));
}

/// The lists of pages that are on their way leave no room for another one until the peer takes some: a payload that was
/// to go into pages which it had posted was taken for one that cannot be sent at all.
#[test]
fn a_payload_for_posted_pages_waits_for_room_in_their_list() {
    let config = || Config { landing_bytes: 32 << 20, ..Config::default() };
    let address = format!("shm:cutthrough-lists-{}", std::process::id());
    let mut peer = Endpoint::open(config()).expect("an endpoint");
    peer.listen(&address).expect("a free name");
    let mut node = Over::node(config(), Settings::default());
    let connecting = node.begin_connect(&address, PATIENCE).expect("begun");
    let Ok(cutthrough::Event::Opened(its)) = peer.wait(Some(PATIENCE)) else { panic!("nobody comes") };
    let channel = match node.wait(Some(PATIENCE)) {
        Ok(Event::Connected(of, Ok(channel))) if of == connecting => channel,
        other => panic!("{other:?}"),
    };
    assert_eq!(peer.post(its, 4096, 4096), Ok(4096));
    let bytes = vec![7; 16 * 4096];
    let mut sent = 0;
    let unsent = loop {
        match node.ask(channel, ECHO).body(Body::Copy(&bytes)).try_send() {
            Ok(_) => sent += 1,
            Err(unsent) => break unsent,
        }
    };
    // All but the last of 4096 pages: a list has two words beside its runs.
    assert_eq!((sent, unsent.error, unsent.body.len()), (255, RequestError::Full, bytes.len()));
    while let Some(cutthrough::Event::Message(message)) = peer.poll() {
        assert_eq!((message.payload_len(), message.receipt().copies), (bytes.len(), 1));
    }
    node.ask(channel, ECHO).body(Body::Copy(&bytes)).send().expect("room");
}
