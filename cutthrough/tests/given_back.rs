//! An endpoint that comes back from its node.

mod two;

use cutthrough::am::{Args, Settings};
use cutthrough::{Config, Event};
use two::{Over, PATIENCE};

over_both! { an_endpoint_comes_back_from_its_node_with_its_channels }

fn an_endpoint_comes_back_from_its_node_with_its_channels(over: Over) {
    let (server, mut node, channel) = over.serve_with(Config::default(), Settings::default(), |node| {
        node.short(1, Args::Any, |request| request.reply(&[7]));
    });
    assert_eq!(node.call(channel, 1, &[], PATIENCE).expect("an answer").word(0), 7);
    let mut endpoint = node.into_endpoint();
    let mut far = server.end().into_endpoint();
    let channels: Vec<_> = far.channels().collect();
    far.send(channels[0], b"without a node").expect("room");
    let Event::Message(message) = endpoint.wait(Some(PATIENCE)).expect("a message") else { panic!("another event") };
    assert_eq!((message.channel(), message.control()), (channel, &b"without a node"[..]));
}
