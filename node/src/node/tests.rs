//! Two nodes on loopback, from inside.

use std::time::{Duration, Instant};

use super::Node;
use crate::config::Config;
use crate::incoming::{Channel, Event};
use crate::shm::meanwhile::Alone;
use crate::shm::send::{Cargo, Load};

/// Nobody who waits for so long means well.
const PATIENCE: Duration = Duration::from_secs(20);

fn open() -> Node {
    let config = Config { insecure: true, silence: Duration::from_secs(3600), ..Config::default() };
    let mut node = Node::open(config).unwrap();
    node.listen("udp:127.0.0.1:0").unwrap();
    node
}

/// Two nodes with a channel, as each of them knows it, over UDP.
fn pair() -> ((Node, Channel), (Node, Channel)) {
    let (mut a, mut b) = (open(), open());
    let address = format!("udp:{}", b.net_address().unwrap());
    let at_a = a.connect(&address, PATIENCE).unwrap();
    let Ok(Event::Opened(at_b)) = b.wait(Some(PATIENCE)) else { panic!("no caller") };
    ((a, at_a), (b, at_b))
}

fn say(node: &Node, channel: Channel) {
    let (net, index) = node.wire(channel).unwrap();
    let cargo = Cargo { load: Load::None, token: None, cookie: None };
    net.send(index, b"a word", cargo, (&mut Alone, &node.stat)).unwrap();
    net.flush();
}

/// Polls until this node may sleep, and has seen afterwards that there is nothing.
fn rest(node: &mut Node) {
    let begun = Instant::now();
    while !node.arm() {
        assert!(node.poll().is_none() && begun.elapsed() < PATIENCE);
    }
    assert!((0..200).all(|_| node.poll().is_none()));
}

/// Housekeeping hears of the network what nothing says again: who has heard it and not looked does not sleep.
#[test]
fn who_has_heard_of_the_network_looks_before_it_sleeps() {
    let ((mut a, _), (b, at_b)) = pair();
    for round in 0..100 {
        rest(&mut a);
        say(&b, at_b);
        a.keep_house();
        assert!(!a.arm(), "round {round}");
        let told = a.wait(Some(PATIENCE));
        assert!(matches!(told, Ok(Event::Message(_))), "{told:?}");
    }
}
