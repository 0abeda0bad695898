use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::mpsc;
use std::task::Wake;

use super::*;
use crate::am::{Body, Service, Settings, Taker};
use crate::rpc::{Client, Method, serve};
use crate::{Config, Endpoint};

/// Nothing takes longer, unless something was lost.
const PATIENCE: Duration = Duration::from_secs(20);

const LEN: Method<Vec<u8>, u64> = Method::new(1);

/// Panics where it is thrown away.
#[derive(Debug)]
struct Spiteful;

impl Taker for Spiteful {
    fn leave(&self, _: Result<Reply, Failed>) {}
}

impl Drop for Spiteful {
    #[allow(clippy::panic, reason = "that is what it is for")]
    fn drop(&mut self) {
        panic!("as it shall");
    }
}

struct Tells(mpsc::Sender<()>);

impl Wake for Tells {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

fn node(pool_bytes: u64) -> Node {
    let config = Config { insecure: true, slots: 16, staging_bytes: 64 << 10, pool_bytes, ..Config::default() };
    Node::new(Endpoint::open(config).expect("an endpoint"), Settings::default())
}

/// Whoever awaits a call hears of a panic where it is sent as if it had sent it, and at once; and goes on.
#[test]
fn who_awaits_a_call_hears_of_a_panic_of_who_sends_it() {
    let address = format!("shm:cutthrough-aside-{}", std::process::id());
    let mut far = node(1 << 20);
    serve(&mut far, LEN, |bytes| Ok(bytes.len() as u64));
    far.listen(&address).expect("a free name");
    let _server = Service::spawn(far, |_| ()).expect("a thread");
    let service = Arc::new(Service::spawn(node(64 << 10), |_| ()).expect("a thread"));
    let connect = || Client::connect(Arc::clone(&service), &address, PATIENCE).expect("a channel");
    let closed = connect();
    // What is not sent for that is thrown away by who would have sent it.
    service.with(|node| node.close(closed.inside.channel()));
    let (tells, told) = mpsc::channel();
    let waker = Waker::from(Arc::new(Tells(tells)));
    let mut context = Context::from_waker(&waker);
    let until = after(clock::now(), PATIENCE);
    let mut calling = Calling::awaited(Raw::new(1), PATIENCE, until);
    let raw = Raw::new(1).body(Body::Owned(vec![1; 1 << 20]));
    let taker = Arc::new(Spiteful);
    let given = (closed.inside.channel(), until);
    calling.aside = Some(Aside::send(&service, raw, taker, given, &waker).expect("a thread"));
    told.recv_timeout(PATIENCE / 2).expect("it is woken");
    let mut poll = || catch_unwind(AssertUnwindSafe(|| calling.advance(&closed.inside, &context)));
    let with = poll().expect_err("it has panicked");
    assert_eq!(with.downcast_ref::<&str>(), Some(&"as it shall"));
    assert!(poll().is_err(), "it is no call any more");
    assert_eq!(calling.stop(&closed.inside, false), None);
    // The next one is sent by the same thread.
    let client = connect().within(PATIENCE);
    let mut call = pin!(client.start(LEN, &vec![1; 1 << 20]));
    let length = loop {
        if let Poll::Ready(length) = call.as_mut().poll(&mut context) {
            break length;
        }
        told.recv_timeout(PATIENCE).expect("it is woken");
    };
    assert_eq!(length, Ok(1 << 20));
}
