//! How many calls of a client wait to be made, and who hears that as many do as may.

mod two;

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use cutthrough::am::{Args, Body, CallError, Deferred, Node, RequestError, Service, Settings};
use cutthrough::rma::{Owner, Region, SharedRemote};
use cutthrough::rpc::{Client, Method, Pending, Raw, RpcError};
use cutthrough::{Config, Endpoint};
use two::{Over, PATIENCE, Server, small, until};

over_both! { a_call_beyond_the_bound_ends_by_name, what_was_sent_comes_again_beyond_the_bound }

const LATER: Method<u64, u64> = Method::new(1);
/// Calls under way at a time, and those that may wait.
const WINDOW: u32 = 4;
const WAIT: usize = 3;
/// Bytes of a pool.
const POOL: usize = 1 << 20;

/// A server that puts all off, and a client of it.
struct Both {
    server: Server,
    client: Client,
    put_off: Arc<Mutex<Vec<Deferred>>>,
}

impl Both {
    fn new(over: Over, serve: usize) -> Self {
        Self::with(over, serve, |_| ())
    }

    fn with(over: Over, serve: usize, prepare: impl FnOnce(&mut Node)) -> Self {
        let (mut node, address) = over.listening(small(), Settings { serve, ..Settings::default() });
        let put_off = Arc::<Mutex<Vec<_>>>::default();
        let its = Arc::clone(&put_off);
        node.whole(LATER.number(), Args::Any, 1 << 20, move |request| {
            its.lock().expect("a list").push(request.defer());
        });
        prepare(&mut node);
        let server = Server::run(node, address);
        let endpoint =
            Endpoint::open(Config { insecure: true, pool_bytes: POOL as u64, ..small() }).expect("an endpoint");
        let settings = Settings { window: WINDOW, max_pending: WAIT, ..Settings::default() };
        let service = Arc::new(Service::spawn(Node::new(endpoint, settings), |_| ()).expect("a thread"));
        let client = Client::connect(service, &server.address, PATIENCE).expect("a channel");
        Self { server, client, put_off }
    }

    fn come(&self) -> usize {
        self.put_off.lock().expect("a list").len()
    }

    /// Answers those that have come: how many.
    fn answer(&self) -> usize {
        let come = std::mem::take(&mut *self.put_off.lock().expect("a list"));
        come.into_iter().map(|asked| asked.reply(&7_u64.to_le_bytes(), Vec::new())).count()
    }

    /// As many calls as may be under way, all of which are, and as many as may wait.
    fn full(&self) -> Vec<Pending<u64>> {
        let mut calls = Vec::new();
        // One by one: one that finds the node in use waits, too.
        for number in 0..u64::from(WINDOW) {
            calls.push(self.client.start(LATER, &number));
            until("it is under way", || {
                assert!(calls.iter_mut().all(|call| poll(call).is_pending()));
                self.come() == calls.len()
            });
        }
        calls.extend((0..WAIT as u64).map(|number| self.client.start(LATER, &number)));
        assert!(calls.iter_mut().all(|call| poll(call).is_pending()));
        calls
    }
}

fn poll(call: &mut Pending<u64>) -> Poll<Result<u64, RpcError>> {
    Pin::new(call).poll_once()
}

trait PollOnce: Future {
    fn poll_once(self: Pin<&mut Self>) -> Poll<Self::Output> {
        self.poll(&mut Context::from_waker(Waker::noop()))
    }
}

impl<F: Future> PollOnce for F {}

const OVERLOADED: CallError = CallError::NotSent(RequestError::Overloaded);

fn a_call_beyond_the_bound_ends_by_name(over: Over) {
    let region = Region::new(1 << 20, 4096);
    let mut key = None;
    let both = Both::with(over, 100, |node| key = Some(Owner::new(node).register(&region)));
    let client = &both.client;
    let mut calls = both.full();
    for _ in 0..3 {
        assert_eq!(poll(&mut client.start(LATER, &9)), Poll::Ready(Err(OVERLOADED.into())));
        // One that a thread waits for, a raw one, and an operation of many.
        assert_eq!(client.call(LATER, &9), Err(OVERLOADED.into()));
        let error = client.call_raw(Raw::new(LATER.number()).body(Body::Copy(&[1; 100]))).expect_err("no room");
        assert_eq!((error.error, error.error.may_have_run()), (OVERLOADED, false));
        let remote = SharedRemote::new(client.clone(), key.expect("a key"));
        assert_eq!(remote.put(0, &[1; 300_000]).expect_err("no room").error, OVERLOADED);
    }
    let said = RequestError::Overloaded.to_string();
    assert!(said.contains("Settings::max_pending"), "{said}");
    // One that waits no more makes room for another one.
    drop(calls.pop());
    calls.push(client.start(LATER, &10));
    assert!(poll(calls.last_mut().expect("a call")).is_pending());
    assert_eq!(poll(&mut client.start(LATER, &9)), Poll::Ready(Err(OVERLOADED.into())));
    // So do those that were made, and all that have waited are.
    let mut answered = 0;
    until("all are answered", || {
        both.answer();
        calls.retain_mut(|call| match poll(call) {
            Poll::Ready(result) => {
                assert_eq!(result, Ok(7));
                answered += 1;
                false
            }
            Poll::Pending => true,
        });
        calls.is_empty()
    });
    assert_eq!((answered, both.come()), (WINDOW as usize + WAIT, 0));
    let remote = SharedRemote::new(client.clone(), key.expect("a key"));
    assert_eq!(remote.put(0, &[1; 300_000]), Ok(()), "nothing has kept a place");
}

/// A busy server sends calls back that were under way: they wait again, though as many others do as may.
fn what_was_sent_comes_again_beyond_the_bound(over: Over) {
    let both = Both::new(over, 1);
    until("some are sent before others wait", || {
        let mut calls = Vec::new();
        loop {
            let mut call = both.client.start(LATER, &1);
            match poll(&mut call) {
                Poll::Pending => calls.push(call),
                refused => break assert_eq!(refused, Poll::Ready(Err(OVERLOADED.into()))),
            }
        }
        // Else all of them have found the node in use.
        let were_sent = calls.len() > WAIT;
        until("all are answered", || {
            calls.retain_mut(|call| match poll(call) {
                Poll::Ready(result) => {
                    assert_eq!(result, Ok(7));
                    false
                }
                Poll::Pending => true,
            });
            both.answer();
            calls.is_empty()
        });
        were_sent
    });
}

/// What another thread sends is kept, too.
#[test]
fn a_long_body_waits_within_the_bound() {
    let Both { server, client, .. } = Both::new(Over::Shm, 100);
    let silent = server.end();
    let mut calls = Vec::new();
    let start = || client.start_raw(Raw::new(LATER.number()).body(Body::Owned(vec![0; 2 * POOL])));
    for _ in 0..WAIT {
        let mut call = start();
        assert!(Pin::new(&mut call).poll_once().is_pending());
        calls.push(call);
    }
    let Poll::Ready(Err(refused)) = Pin::new(&mut start()).poll_once() else { panic!("it waits") };
    assert_eq!(refused.error, OVERLOADED);
    drop(calls.pop());
    assert!(Pin::new(&mut start()).poll_once().is_pending());
    drop(silent);
}

#[cfg(feature = "tower")]
mod tower {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use cutthrough::rpc::Tower;
    use tower_service::Service as _;

    use super::*;

    /// Counts how often somebody was woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A service, and how often it was woken.
    struct Asks {
        tower: Tower<u64, u64>,
        woken: Arc<Woken>,
    }

    impl Asks {
        fn new(client: &Client) -> Self {
            Self { tower: Tower::new(client.clone(), LATER), woken: Arc::default() }
        }

        fn is_ready(&mut self) -> bool {
            let waker = Arc::clone(&self.woken).into();
            match self.tower.poll_ready(&mut Context::from_waker(&waker)) {
                Poll::Ready(ready) => ready.is_ok(),
                Poll::Pending => false,
            }
        }

        fn woken(&self) -> usize {
            self.woken.0.load(Ordering::Relaxed)
        }
    }

    /// It was ready however many calls waited.
    #[test]
    fn a_tower_is_ready_while_a_call_may_wait() {
        let both = Both::new(Over::Shm, 100);
        let mut calls = both.full();
        let mut one = Asks::new(&both.client);
        assert!(!one.is_ready() && !one.is_ready());
        assert_eq!(one.woken(), 0);
        drop(calls.pop());
        assert_eq!(one.woken(), 1);
        // The place is its own from then on, whoever comes.
        assert_eq!(poll(&mut both.client.start(LATER, &9)), Poll::Ready(Err(OVERLOADED.into())));
        assert!(!Asks::new(&both.client).is_ready() && one.is_ready() && one.is_ready());
        assert_eq!(poll(&mut both.client.start(LATER, &9)), Poll::Ready(Err(OVERLOADED.into())));
        // And that of its call, which waits; then it has none.
        calls.push(one.tower.call(8));
        assert!(poll(calls.last_mut().expect("a call")).is_pending());
        assert!(!one.is_ready());
        assert_eq!(poll(&mut one.tower.call(9)), Poll::Ready(Err(OVERLOADED.into())), "called without being ready");
        // Those that are made leave their places to others.
        until("it is ready", || {
            both.answer();
            calls.retain_mut(|call| poll(call).is_pending());
            one.woken() == 2
        });
        assert!(one.is_ready());
    }

    #[test]
    fn a_place_is_left_when_its_call_is_made() {
        let both = Both::new(Over::Shm, 100);
        let mut asks: Vec<_> = (0..=WAIT).map(|_| Asks::new(&both.client)).collect();
        assert_eq!(asks.iter_mut().map(Asks::is_ready).collect::<Vec<_>>(), [true, true, true, false]);
        let mut call = asks[0].tower.call(1);
        assert_eq!(asks[WAIT].woken(), 0, "nobody has polled the call");
        until("it is under way", || {
            assert!(poll(&mut call).is_pending());
            both.come() == 1
        });
        assert_eq!(asks[WAIT].woken(), 1);
        assert!(asks[WAIT].is_ready() && !asks[0].is_ready());
        // One that is never polled leaves its place when it is dropped.
        let call = asks[1].tower.call(2);
        assert_eq!(asks[0].woken(), 0);
        drop(call);
        assert_eq!(asks[0].woken(), 1);
    }

    #[test]
    fn places_are_given_in_order_and_given_back() {
        let both = Both::new(Over::Shm, 100);
        let mut calls = both.full();
        let [mut a, mut b, mut c, mut d] = [(); 4].map(|()| Asks::new(&both.client));
        assert!(![&mut a, &mut b, &mut c, &mut d].into_iter().any(Asks::is_ready));
        let woken = |asks: [&Asks; 4]| asks.map(Asks::woken);
        drop(calls.pop());
        assert_eq!(woken([&a, &b, &c, &d]), [1, 0, 0, 0]);
        assert!(!d.is_ready() && !b.is_ready() && a.is_ready());
        // A clone is not ready for that, and comes behind all others.
        let mut clone = Asks { tower: a.tower.clone(), woken: Arc::default() };
        assert!(!clone.is_ready());
        // Dropped when it is ready, when it was given a place and has not come for it, and when it waits.
        let counts = Arc::clone(&a.woken);
        drop(a);
        assert_eq!((counts.0.load(Ordering::Relaxed), woken([&b, &c, &d, &clone])), (1, [1, 0, 0, 0]));
        drop(c);
        drop(b);
        assert_eq!((d.woken(), clone.woken()), (1, 0));
        assert!(d.is_ready() && !clone.is_ready());
        drop(calls.pop());
        assert_eq!((d.woken(), clone.woken()), (1, 1));
        assert!(clone.is_ready());
    }
}
