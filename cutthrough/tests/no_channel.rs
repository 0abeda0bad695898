//! Calls that were not sent: their errors say so, and why. And how long a call may take that says nothing of that.

mod two;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cutthrough::am::{CallError, Node, RequestError, Service, Settings};
use cutthrough::rpc::{self, Client, Method, Raw, RpcError};
use cutthrough::{AddressError, Config, ConnectError, Endpoint, Keys, SharedKey, UdpCallError};
use two::{Over, PATIENCE, Server, small, until};

const DOUBLE: Method<u64, u64> = Method::new(1);
const LATER: Method<u64, u64> = Method::new(2);

/// Serves at an address once whoever had it has gone.
fn serve(mut node: Node, address: &str) -> Server {
    rpc::serve(&mut node, DOUBLE, |number| Ok(number * 2));
    until("the address is free", || node.listen(address).is_ok());
    let address = node.endpoint().net_address().map_or_else(|| address.to_owned(), |address| format!("udp:{address}"));
    Server::run(node, address)
}

fn service(node: Node) -> Arc<Service> {
    Arc::new(Service::spawn(node, |_| ()).expect("a thread"))
}

/// A node that has this key alone.
fn keyed(byte: u8) -> Node {
    let keys = Some(Arc::new(Keys::Shared(SharedKey::from_bytes([byte; 32]))));
    Node::new(Endpoint::open(Config { keys, ..small() }).expect("an endpoint"), Settings::default())
}

/// The errors named the deadline, or said to connect again, and never the key.
#[test]
fn a_server_that_comes_again_with_another_key_is_named() {
    let server = serve(keyed(1), "udp:127.0.0.1:0");
    let address = server.address.clone();
    let client = Client::connect(service(keyed(1)), &address, PATIENCE).expect("a channel");
    assert_eq!(client.call(DOUBLE, &4), Ok(8));
    assert!(client.last_error().is_none());
    drop(server.end());
    let server = serve(keyed(2), &address);
    let client = client.within(Duration::from_secs(1));
    for method in [DOUBLE, DOUBLE.idempotent()] {
        until("the key is named", || match client.call(method, &4) {
            Err(RpcError::NoChannel(why)) => why.contains("the keys do not fit"),
            Err(_) => false,
            Ok(number) => panic!("{number} from whom it has no key of"),
        });
    }
    let error = client.last_error().expect("why there is no channel");
    assert!(matches!(*error, ConnectError::Net(UdpCallError::Key)), "{error:?}");
    drop(server.end());
    let _server = serve(keyed(1), &address);
    until("it finds who has the key", || client.call(DOUBLE, &4) == Ok(8));
    assert!(client.last_error().is_none());
}

/// One that may be made twice was said to be late, of which nobody knows whether it was served.
#[test]
fn a_call_to_a_server_that_is_dead_was_not_sent() {
    let (node, address) = Over::Shm.listening(small(), Settings::default());
    drop(node);
    let server = serve(Over::node(small(), Settings::default()), &address);
    let client = Client::connect(service(Over::node(small(), Settings::default())), &address, PATIENCE);
    let client = client.expect("a channel").within(Duration::from_millis(300));
    assert_eq!(client.call(DOUBLE, &4), Ok(8));
    drop(server.end());
    // Its end is heard of by a call.
    let _ = client.call(DOUBLE, &4);
    for method in [DOUBLE, DOUBLE.idempotent()] {
        let error = client.call(method, &4).expect_err("nobody is there");
        let text = error.to_string();
        assert!(matches!(error, RpcError::NoChannel(_)), "{error:?}");
        assert!(text.starts_with("the call was not sent: ") && text.contains("nobody listens at "), "{text}");
        let failed = client.call_raw(Raw::new(DOUBLE.number()).idempotent()).expect_err("nobody is there");
        assert_eq!((failed.error, failed.to_string()), (CallError::NotSent(RequestError::Closed), text));
        let why = failed.unopened.expect("why there is no channel");
        assert!(matches!(*why, ConnectError::Address(AddressError::Nobody(_))), "{why:?}");
    }
    let _server = serve(Over::node(small(), Settings::default()), &address);
    until("it finds the other one", || client.call(DOUBLE, &4) == Ok(8));
    assert!(client.last_error().is_none());
}

#[test]
fn a_call_that_never_had_the_node_was_not_sent() {
    let (node, address) = Over::Shm.listening(small(), Settings::default());
    let _server = Server::run(node, address.clone());
    let service = service(Over::node(small(), Settings::default()));
    let client = Client::connect(Arc::clone(&service), &address, PATIENCE).expect("a channel");
    let time = Duration::from_millis(50);
    let calling = || client.within(time).call(DOUBLE, &1);
    let result = service.with(|_| std::thread::scope(|scope| scope.spawn(calling).join().expect("the caller")));
    assert_eq!(result, Err(CallError::NotSent(RequestError::TimedOut(time)).into()));
}

/// A client's calls had ten seconds, whatever the settings of its node said.
#[test]
fn the_settings_say_how_long_a_call_may_take() {
    let (mut node, address) = Over::Shm.listening(small(), Settings::default());
    let list = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&list);
    rpc::serve_later(&mut node, LATER, move |_, answer| its.lock().expect("the list").push(answer));
    let _server = Server::run(node, address.clone());
    // So long that the call is made on a busy machine, too.
    let settings = Settings { deadline: Duration::from_secs(1), ..Settings::default() };
    let client = Client::connect(service(Over::node(small(), settings)), &address, PATIENCE).expect("a channel");
    let since = Instant::now();
    assert_eq!(client.call(LATER, &1), Err(CallError::Late.into()));
    assert!(since.elapsed() >= Duration::from_secs(1) && since.elapsed() < Duration::from_secs(8));
    // The server was told so, too.
    let left = list.lock().expect("the list")[0].remaining();
    assert!(left.is_some_and(|left| left <= Duration::from_secs(1)), "{left:?}");
    let longer = client.within(Duration::from_secs(3));
    let since = Instant::now();
    assert_eq!(longer.call(LATER, &1), Err(CallError::Late.into()));
    assert!(since.elapsed() >= Duration::from_secs(3));
}
