//! Channels in memory that always have something do not keep the network waiting, nor it them.

use std::time::Duration;

use cutthrough::{Channel, Config, Endpoint, Event};

fn endpoint() -> Endpoint {
    Endpoint::open(Config { insecure: true, ..Config::default() }).expect("an endpoint")
}

/// Opens a channel from `from` to `address`, where `to` listens: its two ends.
fn join(from: &mut Endpoint, to: &mut Endpoint, address: &str) -> (Channel, Channel) {
    from.begin_connect(address, Duration::from_secs(5)).expect("a call");
    let (mut near, mut far) = (None, None);
    loop {
        match (near, far) {
            (Some(near), Some(far)) => return (near, far),
            _ => std::thread::yield_now(),
        }
        if let Some(Event::Connected(_, outcome)) = from.poll() {
            near = Some(outcome.expect("a channel"));
        }
        if let Some(Event::Opened(channel)) = to.poll() {
            far = Some(channel);
        }
    }
}

/// An endpoint to which one other has a channel in memory and another one over the network.
struct Between {
    /// With its end of the channel in memory, and the end here.
    near: Endpoint,
    to_here: Channel,
    from_near: Channel,
    /// The same of the channel over the network.
    far: Endpoint,
    to_here_too: Channel,
    from_far: Channel,
    here: Endpoint,
}

impl Between {
    fn new(name: &str) -> Self {
        let (mut near, mut far, mut here) = (endpoint(), endpoint(), endpoint());
        let memory = format!("shm:fair-{name}-{}", std::process::id());
        here.listen(&memory).expect("a name");
        here.listen("udp:127.0.0.1:0").expect("a port");
        let network = format!("udp:{}", here.net_address().expect("an address"));
        let (to_here, from_near) = join(&mut near, &mut here, &memory);
        let (to_here_too, from_far) = join(&mut far, &mut here, &network);
        Self { near, to_here, from_near, far, to_here_too, from_far, here }
    }
}

/// How many polls of one endpoint it takes until a message has come over the network, while there is one in memory at
/// each of them, sent so.
fn polls_for_the_network(name: &str, send: fn(&mut Endpoint, Channel)) -> u32 {
    let between = Between::new(name);
    let Between { mut near, to_here: busy, mut far, to_here_too: wire, from_far: comes, mut here, .. } = between;
    far.send(wire, b"over the network").expect("a message");
    far.flush();
    for polls in 1..100_000 {
        send(&mut near, busy);
        near.poll();
        match here.poll() {
            Some(Event::Message(message)) if message.channel() == comes => return polls,
            Some(Event::Message(_)) => {}
            other => panic!("after {polls} polls: {other:?}"),
        }
    }
    panic!("the network had no turn");
}

#[test]
fn messages_in_memory_do_not_keep_the_network_waiting() {
    let polls = polls_for_the_network("plain", |near, busy| near.send(busy, b"in memory").expect("room"));
    assert!(polls <= 1000, "{polls}");
}

#[test]
fn payloads_in_memory_do_not_keep_the_network_waiting() {
    let polls = polls_for_the_network("loaded", |near, busy| {
        let page = near.page(busy, 4096).expect("a page");
        near.outgoing(busy).expect("room").write(b"in memory").attach(page).send().expect("a message");
    });
    assert!(polls <= 1000, "{polls}");
}

/// A network that always has something leaves the channels in memory their turn, at whichever poll that has begun.
#[test]
fn messages_over_the_network_do_not_keep_memory_waiting() {
    let between = Between::new("busy");
    let Between { mut near, to_here: quiet, from_near: comes, mut far, to_here_too: busy, mut here, .. } = between;
    for offset in 0..16 {
        let fill = |far: &mut Endpoint| {
            while far.send(busy, b"over the network").is_ok() {}
            far.flush();
            while far.poll().is_some() {}
        };
        for _ in 0..2000 + offset {
            fill(&mut far);
            assert!(!matches!(here.poll(), Some(Event::Closed(..))));
        }
        near.send(quiet, b"in memory").expect("room");
        let mut polls = 0;
        loop {
            fill(&mut far);
            polls += 1;
            match here.poll() {
                Some(Event::Message(message)) if message.channel() == comes => break,
                Some(Event::Message(_)) | None => {}
                other => panic!("after {polls} polls: {other:?}"),
            }
            assert!(polls < 5000, "memory had no turn");
        }
        assert!(polls <= 300, "{polls} polls, at offset {offset}");
    }
}
