//! Who calls: servers of active messages and of calls learn it, by the key that a caller has proved to hold.

mod two;

use std::sync::Arc;
use std::time::Duration;

use cutthrough::am::{Args, Event, Node, Service, Settings};
use cutthrough::rpc::{self, Client, Method, Raw};
use cutthrough::{Config, Endpoint, Keys, PrivateKey, PublicKey};
use two::{Over, PATIENCE, Server};

const WHO: Method<(), Vec<u8>> = Method::new(1);
const WHO_RAW: u16 = 2;
const WHO_WORDS: u16 = 3;

fn node(own: PrivateKey, peers: Vec<PublicKey>) -> Node {
    let keys = Some(Arc::new(Keys::Static { own, peers }));
    Node::new(Endpoint::open(Config { keys, ..Config::default() }).expect("an endpoint"), Settings::default())
}

/// Answers each caller with its own public key.
fn prepare(node: &mut Node) {
    rpc::serve_later(node, WHO, |(), answer| {
        let key = answer.peer().and_then(|peer| peer.key);
        answer.give(key.map(Vec::from).ok_or_else(|| "nobody".into()));
    });
    rpc::serve_raw(node, WHO_RAW, |request| {
        let key = request.peer().and_then(|peer| peer.key).unwrap_or_default();
        request.reply_bytes(&key);
    });
    node.short(WHO_WORDS, Args::Words(0), |request| {
        let key = request.peer().and_then(|peer| peer.key).unwrap_or_default();
        request.reply_bytes(&key);
    });
}

#[test]
fn a_server_answers_each_caller_with_its_own_key() {
    let [server, one, other] = [1, 2, 3].map(|number| PrivateKey::from_bytes([number; 32]));
    let public = [one.public(), other.public()];
    let its = server.public();
    let mut far = node(server, public.to_vec());
    prepare(&mut far);
    far.listen("udp:127.0.0.1:0").expect("a free port");
    let address = format!("udp:{}", far.endpoint().net_address().expect("an address"));
    let far = Server::run(far, address.clone());
    // Both of them are there at the same time.
    let callers = [(one, public[0]), (other, public[1])].map(|(own, public)| {
        let mut node = node(own, vec![its]);
        let channel = node.connect(&address, PATIENCE).expect("a channel");
        assert_eq!(node.peer(channel).and_then(|peer| peer.key), Some(*its.bytes()));
        (node, channel, public)
    });
    for (mut node, channel, public) in callers {
        let reply = node.call(channel, WHO_WORDS, &[], PATIENCE).expect("a reply");
        assert_eq!(reply.args(), public.bytes());
        let service = Arc::new(Service::spawn(node, |_| ()).expect("a thread"));
        let client = Client::connect(service, &address, PATIENCE).expect("a channel");
        assert_eq!(client.peer().and_then(|peer| peer.key), Some(*its.bytes()));
        assert_eq!(client.call(WHO, &()), Ok(public.bytes().to_vec()));
        let reply = client.call_raw(Raw::new(WHO_RAW)).expect("a reply");
        assert_eq!(reply.args(), public.bytes());
    }
    drop(far);
}

/// On one machine there are no keys: the kernel says which process has called.
#[test]
fn a_caller_of_this_machine_is_known_by_its_process() {
    let (_server, mut node, channel) = Over::Shm.serve(|far| {
        far.short(WHO_WORDS, Args::Words(0), |request| {
            let words = request.peer().map_or([0; 2], |peer| [peer.process, peer.user]);
            request.reply(&words);
        });
    });
    let reply = node.call(channel, WHO_WORDS, &[], PATIENCE).expect("a reply");
    let here = node.peer(channel).expect("it is open");
    assert_eq!((reply.word(0), reply.word(1)), (std::process::id(), here.user));
    node.close(channel);
    assert!(node.peer(channel).is_none());
    assert!(matches!(node.wait(Some(Duration::ZERO)), Ok(Event::Closed(..))));
}
