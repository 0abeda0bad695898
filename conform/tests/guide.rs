//! A test of your own program against a network that loses, in simulated time.

use std::time::Duration;

use cutthrough::am::{Args, Node, Settings};
use cutthrough::simulated::{Network, Time, Wire};
use cutthrough::{Config, Endpoint};

#[test]
fn every_call_is_answered_though_a_fifth_of_all_datagrams_is_lost() {
    let time = Time::begin(42);
    let network = Network::new(42, Wire { loss: 0.2, latency: Duration::from_millis(30), ..Wire::default() });
    let on = |host: [u8; 4]| Config { host: Some(network.host(host)), insecure: true, ..Config::default() };

    let mut server = Node::new(Endpoint::open(on([10, 0, 0, 2])).unwrap(), Settings::default());
    server.short(1, Args::Words(2), |request| {
        let sum = request.word(0) + request.word(1);
        request.reply(&[sum]);
    });
    server.listen("udp:10.0.0.2:7000").unwrap();
    time.beside(move || while server.poll().is_some() {}); // whenever somebody waits

    let mut node = Node::new(Endpoint::open(on([10, 0, 0, 1])).unwrap(), Settings::default());
    let channel = node.connect("udp:10.0.0.2:7000", Duration::from_secs(10)).unwrap();
    for number in 0..100 {
        let sum = node.call(channel, 1, &[number, 1], Duration::from_secs(10)).unwrap();
        assert_eq!(sum.word(0), number + 1);
    }
}
