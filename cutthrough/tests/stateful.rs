//! Handlers of every kind share the state of their node.

mod two;

use cutthrough::am::{Args, Body, Node, Request, Settings};
use cutthrough::rpc::{self, Answer, Method};
use cutthrough::{Config, Endpoint};
use two::{Over, PATIENCE, Server};

over_both! { handlers_of_every_kind_have_the_state }

/// Who was served, in order.
#[derive(Default)]
struct Served(Vec<u16>);

impl Served {
    /// How many by now, with this one.
    fn add(&mut self, handler: u16) -> u32 {
        self.0.push(handler);
        u32::try_from(self.0.len()).expect("few")
    }
}

const NOW: Method<u32, u32> = Method::new(5);
const LATER: Method<u32, u32> = Method::new(6);

fn note(served: &mut Served, request: Request<'_>) {
    let handler = request.handler();
    request.reply(&[u32::from(handler), served.add(handler)]);
}

fn handlers_of_every_kind_have_the_state(over: Over) {
    let (with, address) = over.listening(Config::default(), Settings::default());
    let mut node = Node::with_state(with.into_endpoint(), Settings::default(), Served::default());
    node.short_with(1, Args::Any, note);
    node.medium_with(2, Args::Any, |served: &mut Served, request| {
        assert_eq!(request.medium(), [2; 100]);
        note(served, request);
    });
    node.long_with(3, Args::Any, 1 << 20, note);
    node.whole_with(4, Args::Any, 1 << 20, |served: &mut Served, mut request| {
        let mut bytes = vec![0; request.payload_len()];
        request.read(&mut bytes).expect("all of it has come");
        assert!(bytes.iter().all(|byte| *byte == 4));
        note(served, request);
    });
    rpc::serve_with(&mut node, NOW, |served: &mut Served, asked| Ok(asked + served.add(5)));
    rpc::serve_later_with(&mut node, LATER, |served: &mut Served, asked, answer: Answer<u32>| {
        answer.give(Ok(asked + served.add(6)));
    });
    rpc::serve_raw_with(&mut node, 7, note);
    let other = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        node.whole_with(8, Args::Any, 0, |_: &mut u32, _| ());
    }));
    assert!(other.is_err(), "the state is no number");

    let server = Server::run(node, address);
    let mut node = Over::node(Config::default(), Settings::default());
    let channel = node.connect(&server.address, PATIENCE).expect("a channel");
    for number in 1..=7_u32 {
        let handler = u16::try_from(number).expect("below 8");
        let bytes = vec![handler.to_le_bytes()[0]; if handler == 2 { 100 } else { 100_000 }];
        let args = if handler < 5 { &[][..] } else { &[10, 0, 0, 0] };
        let body = if (2..=4).contains(&handler) { Body::Copy(&bytes) } else { Body::None };
        let call = node.ask(channel, handler).args(args).body(body).within(PATIENCE).send().expect("room");
        let reply = node.wait_for(call, PATIENCE).expect("an answer");
        let expected = if (5..=6).contains(&handler) { [10 + number, 0] } else { [number, number] };
        assert_eq!(reply.words(), expected, "handler {handler}");
    }
    assert_eq!(server.end().state::<Served>().expect("the state").0, [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
#[should_panic(expected = "the state of the node is of another type")]
fn a_node_without_state_has_no_handler_that_wants_it() {
    let mut node = Node::new(Endpoint::open(Config::default()).expect("an endpoint"), Settings::default());
    rpc::serve_with(&mut node, NOW, |_: &mut Served, asked| Ok(asked));
}
