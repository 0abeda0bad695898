//! What does not happen: allocations on the path of a short request and its reply, and on that of a raw call.

#[path = "../../conform/tests/quiet/allocations.rs"]
#[allow(dead_code, reason = "only allocations of this thread are counted here")]
mod allocations;
mod two;

use std::sync::Arc;

use cutthrough::am::{Args, Event, Node, Service};
use cutthrough::rpc::{Client, Raw};
use cutthrough::{Channel, Config};
use two::{Over, PATIENCE, Server};

/// Two nodes that this thread polls.
fn pair() -> (Node, Channel, Node) {
    let (mut far, address) = Over::Shm.listening(Config::default(), Default::default());
    far.short(1, Args::Words(4), |request| {
        let words = [request.word(0), request.word(1), request.word(2), request.word(3)];
        request.reply(&words);
    });
    let mut node = Over::node(Config::default(), Default::default());
    let channel = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| node.connect(&address, PATIENCE).expect("a channel"));
        assert!(matches!(far.wait(Some(PATIENCE)), Ok(Event::Opened(_))));
        connecting.join().expect("the other thread")
    });
    (node, channel, far)
}

#[test]
fn a_short_request_and_its_reply_allocate_nothing() {
    let (mut node, channel, mut far) = pair();
    let mut exchange = |under_way: u32| {
        for number in 0..under_way {
            node.request(channel, 1, &[number, 2, 3, 4]).expect("room");
        }
        let mut answered = 0;
        while answered < under_way {
            assert!(far.poll().is_none());
            while let Some(event) = node.poll() {
                let Event::Replied(reply) = event else { panic!("{event:?}") };
                assert_eq!(reply.word(0), answered);
                answered += 1;
            }
        }
    };
    // The table of calls grows to what is under way, once.
    exchange(64);
    let counted = allocations::count(|| (0..1000).for_each(|_| exchange(64)));
    assert_eq!(counted, 0, "allocations in 64,000 requests");
    assert_eq!(allocations::count(|| drop(std::hint::black_box(Box::new(1)))), 1, "the counter counts");
}

/// Whoever leaves an answer on another thread may have hold of its place for a moment longer, so that the next call
/// needs another one: in some hundred calls there are none for which that happens.
#[test]
fn a_raw_call_of_a_client_allocates_nothing() {
    let (mut far, address) = Over::Shm.listening(Config::default(), Default::default());
    far.short(1, Args::Any, |request| {
        let mut bytes = [0; 64];
        bytes.copy_from_slice(request.args());
        request.reply_bytes(&bytes);
    });
    let server = Server::run(far, address);
    let service = Service::spawn(Over::node(Config::default(), Default::default()), |_| ()).expect("a thread");
    let client = Client::connect(Arc::new(service), &server.address, PATIENCE).expect("a channel");
    let call = || {
        let reply = client.call_raw(Raw::new(1).args(&[7; 64])).expect("a reply");
        assert_eq!(reply.args(), [7; 64]);
    };
    // What a call needs is kept for the next one.
    (0..100).for_each(|_| call());
    let fewest = (0..20).map(|_| allocations::count(|| (0..100).for_each(|_| call()))).min();
    assert_eq!(fewest, Some(0), "allocations in 100 calls");
}
