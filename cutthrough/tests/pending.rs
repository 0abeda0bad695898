//! How many calls of a client wait to be made, and with how many bytes, and who hears that as many do as may.

mod two;

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use cutthrough::am::{Args, Body, CallError, Deferred, Node, RequestError, Service, Settings};
use cutthrough::rma::{Owner, Region, SharedRemote};
use cutthrough::rpc::{Client, Method, Pending, Raw, RawPending, RpcError};
use cutthrough::{Config, Endpoint, Landing};
use two::{Over, PATIENCE, Server, small, until};

over_both! {
    a_call_beyond_the_bound_ends_by_name, calls_wait_with_as_many_bytes_as_may,
    what_was_sent_comes_again_beyond_the_bound, what_was_sent_keeps_its_bytes_beyond_the_bound,
}

const LATER: Method<u64, u64> = Method::new(1);
/// Calls under way at a time, and those that may wait.
const WINDOW: u32 = 4;
const WAIT: usize = 3;
/// Bytes with which they may wait, where that is tried.
const BYTES: usize = 1000;
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
        let settings = Settings { window: WINDOW, max_pending: WAIT, ..Settings::default() };
        Self::with(over, serve, settings, |_| ())
    }

    /// Many may wait, and few bytes.
    fn of_bytes(over: Over, serve: usize) -> Self {
        let settings = Settings { window: WINDOW, max_pending_bytes: BYTES, ..Settings::default() };
        Self::with(over, serve, settings, |_| ())
    }

    fn with(over: Over, serve: usize, settings: Settings, prepare: impl FnOnce(&mut Node)) -> Self {
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
        let mut calls = self.under_way();
        calls.extend((0..WAIT as u64).map(|number| self.client.start(LATER, &number)));
        assert!(calls.iter_mut().all(|call| poll(call).is_pending()));
        calls
    }

    /// As many calls as may be under way, all of which are.
    fn under_way(&self) -> Vec<Pending<u64>> {
        let mut calls = Vec::new();
        // One by one: one that finds the node in use waits, too.
        for number in 0..u64::from(WINDOW) {
            calls.push(self.client.start(LATER, &number));
            until("it is under way", || {
                assert!(calls.iter_mut().all(|call| poll(call).is_pending()));
                self.come() == calls.len()
            });
        }
        calls
    }

    /// A call with so many bytes: whether it waits, or as many do as may.
    fn waits(&self, raw: Raw<'static>) -> Option<RawPending<'static>> {
        let mut call = self.client.start_raw(raw);
        match Pin::new(&mut call).poll_once() {
            Poll::Pending => Some(call),
            Poll::Ready(Err(refused)) if refused.error == OVERLOADED => None,
            Poll::Ready(other) => panic!("{other:?}"),
        }
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
    let settings = Settings { window: WINDOW, max_pending: WAIT, ..Settings::default() };
    let both = Both::with(over, 100, settings, |node| key = Some(Owner::new(node).register(&region)));
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
    assert!(said.contains("(Settings::max_pending, max_pending_bytes)"), "{said}");
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

/// A call that carries so many bytes.
fn long(bytes: usize) -> Raw<'static> {
    Raw::new(LATER.number()).body(Body::Owned(vec![1; bytes]))
}

/// Only how many there were was bounded: however long they were.
fn calls_wait_with_as_many_bytes_as_may(over: Over) {
    let both = Both::of_bytes(over, 100);
    let mut under_way = both.under_way();
    let mut calls: Vec<_> = [400, 400, 200].map(|bytes| both.waits(long(bytes)).expect("they fit")).into();
    assert!(both.waits(long(1)).is_none() && both.waits(long(BYTES)).is_none());
    let copied = both.client.call_raw(Raw::new(LATER.number()).body(Body::Copy(&[1; 100]))).expect_err("no room");
    assert_eq!((copied.error, copied.error.may_have_run()), (OVERLOADED, false));
    // Those without bytes are kept from nothing, and a place for the answer has bytes, too.
    let mut short: Vec<_> = (0..10).map(|number| both.client.start(LATER, &number)).collect();
    assert!(short.iter_mut().all(|call| poll(call).is_pending()));
    let answered_in = |bytes| Raw::new(LATER.number()).reply_into(Landing::Buffer(vec![0; bytes]));
    assert!(both.waits(answered_in(1)).is_none());
    drop(calls.remove(0));
    assert!(both.waits(long(401)).is_none());
    calls.push(both.waits(answered_in(250)).expect("there is room"));
    assert!(both.waits(long(151)).is_none());
    calls.push(both.waits(long(150)).expect("there is room"));
    // One that is longer than all of them waits where no other does, and keeps others from that.
    calls.clear();
    let longest = both.waits(long(3 * BYTES)).expect("it is alone");
    assert!(both.waits(long(1)).is_none());
    drop(longest);
    // Those that are made leave their bytes to others.
    let mut last = vec![both.waits(long(BYTES)).expect("there is room")];
    until("all are answered", || {
        both.answer();
        under_way.retain_mut(|call| poll(call).is_pending());
        short.retain_mut(|call| poll(call).is_pending());
        last.retain_mut(|call| match Pin::new(call).poll_once() {
            Poll::Ready(result) => result.is_err_and(|error| panic!("{error}")),
            Poll::Pending => true,
        });
        under_way.is_empty() && short.is_empty() && last.is_empty()
    });
    let mut under_way = both.under_way();
    assert!(both.waits(long(BYTES)).is_some(), "nothing has kept its bytes");
    assert!(under_way.iter_mut().all(|call| poll(call).is_pending()));
}

/// Those that a busy server has sent back wait with all that they have, and are answered.
fn what_was_sent_keeps_its_bytes_beyond_the_bound(over: Over) {
    let both = Both::of_bytes(over, 1);
    let mut calls = Vec::new();
    until("as many bytes wait as may, and more", || {
        match both.waits(long(BYTES)) {
            Some(call) => calls.push(call),
            None => return calls.len() > 1,
        }
        false
    });
    until("all are answered", || {
        both.answer();
        calls.retain_mut(|call| match Pin::new(call).poll_once() {
            Poll::Ready(result) => result.is_err_and(|error| panic!("{error}")),
            Poll::Pending => true,
        });
        calls.is_empty()
    });
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

    use cutthrough::rpc::{Message, Tower};
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
    struct Asks<Q = u64> {
        tower: Tower<Q, u64>,
        woken: Arc<Woken>,
    }

    impl Asks {
        fn new(client: &Client) -> Self {
            Self::of(client, LATER)
        }
    }

    impl<Q: Message> Asks<Q> {
        fn of(client: &Client, method: Method<Q, u64>) -> Self {
            Self { tower: Tower::new(client.clone(), method), woken: Arc::default() }
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

    /// The same method, with values that have bytes.
    const BYTES_LATER: Method<Vec<u8>, u64> = Method::new(1);

    /// How long a call will be is not known when its place is given away: so one at a time is.
    #[test]
    fn a_tower_is_ready_while_a_byte_is_left() {
        let both = Both::of_bytes(Over::Shm, 100);
        let _under_way = both.under_way();
        let [mut a, mut b, mut c, mut d, mut e] = [(); 5].map(|()| Asks::of(&both.client, BYTES_LATER));
        let bring = |asks: &mut Asks<Vec<u8>>, bytes| {
            let mut call = asks.tower.call(vec![1; bytes]);
            assert!(poll(&mut call).is_pending());
            call
        };
        // Both are ready before the first one's call comes, and the second one's is longer than what is left.
        assert!(a.is_ready() && b.is_ready());
        let first = bring(&mut a, 600);
        let second = bring(&mut b, 600);
        assert!(![&mut c, &mut d, &mut e].into_iter().any(Asks::is_ready));
        let woken = |asks: [&Asks<Vec<u8>>; 3]| asks.map(Asks::woken);
        drop(second);
        assert_eq!(woken([&c, &d, &e]), [1, 0, 0]);
        assert!(both.waits(long(1)).is_none(), "others wait for it");
        assert!(c.is_ready());
        let _third = bring(&mut c, 100);
        assert_eq!(woken([&c, &d, &e]), [1, 1, 0], "there is room for another one");
        assert!(d.is_ready());
        let fourth = bring(&mut d, 600);
        assert_eq!(woken([&c, &d, &e]), [1, 1, 0]);
        drop(first);
        assert_eq!(woken([&c, &d, &e]), [1, 1, 1]);
        drop(fourth);
        assert!(e.is_ready());
        // Who is ready, and makes no call, keeps no bytes.
        assert!(both.waits(long(BYTES / 2)).is_some());
    }

    /// Those that wait for bytes alone are all given places when nobody keeps any.
    #[test]
    fn all_towers_are_ready_where_no_byte_waits() {
        let both = Both::of_bytes(Over::Shm, 100);
        let _under_way = both.under_way();
        let long = both.waits(long(BYTES)).expect("there is room");
        let mut asks: Vec<_> = (0..WAIT).map(|_| Asks::of(&both.client, BYTES_LATER)).collect();
        assert!(!asks.iter_mut().any(Asks::is_ready));
        drop(long);
        assert!(asks.iter().all(|asks| asks.woken() == 1) && asks.iter_mut().all(Asks::is_ready));
    }
}
