//! Methods that serve no more calls at a time than they may, of all callers or of each, while others are served.

mod two;

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cutthrough::am::{Args, CallError, Deferred, Failure, Node, Service, Settings};
use cutthrough::rpc::{self, Answer, Client, Method, Pending, RpcError};
use cutthrough::{Config, Counter};
use two::{Over, PATIENCE, small, until};

over_both! {
    a_handler_at_its_limit_is_named, a_caller_at_its_limit_is_named, a_greedy_caller_shuts_out_no_other,
    a_slow_method_shuts_out_no_fast_one, all_calls_of_a_slow_method_are_served_once,
    who_finds_the_window_full_stands_behind_those_before,
}

const SLOW: Method<u64, u64> = Method::new(1);
const FAST: Method<u64, u64> = Method::new(2);
/// It is put off, too, and has no limit.
const HOLD: Method<u64, u64> = Method::new(3);

type Put<T> = Arc<Mutex<Vec<T>>>;

fn a_handler_at_its_limit_is_named(over: Over) {
    let put_off = Put::<Deferred>::default();
    let its = Arc::clone(&put_off);
    let (server, mut node, channel) = over.serve_with(Config::default(), Settings::default(), |node| {
        for handler in [1, 2] {
            let its = Arc::clone(&its);
            node.short(handler, Args::Any, move |request| its.lock().expect("a list").push(request.defer()));
        }
        node.limit_concurrency(1, 2);
    });
    let come = |count| until("they come", || put_off.lock().expect("a list").len() == count);
    for _ in 0..2 {
        node.request(channel, 1, &[]).expect("room");
    }
    come(2);
    for _ in 0..3 {
        let error = node.call(channel, 1, &[], PATIENCE).map(drop).expect_err("two are put off");
        assert_eq!((error.error, &error.args[..]), (Failure::HandlerBusy.into(), &b"handler 1 serves 2"[..]));
        assert!(!error.error.may_have_run() && error.to_string().ends_with(": handler 1 serves 2"), "{error}");
    }
    // Others are put off as ever.
    for _ in 0..3 {
        node.request(channel, 2, &[]).expect("room");
    }
    come(5);
    // Answered or thrown away, one makes room for another.
    put_off.lock().expect("a list").remove(0).reply(&[], Vec::new());
    until("it is served", || node.poll().is_some());
    node.request(channel, 1, &[]).expect("room");
    come(5);
    let refused = node.call(channel, 1, &[], PATIENCE).map(drop).expect_err("two are put off");
    assert_eq!(refused.error, Failure::HandlerBusy.into());
    drop(put_off.lock().expect("a list").drain(..).collect::<Vec<_>>());
    until("there is room", || {
        let called = node.call(channel, 1, &[], Duration::from_millis(1)).map(drop);
        called.is_err_and(|error| error.error == CallError::Late)
    });
    let server = server.end();
    let counter = |counter| server.endpoint().counter(counter);
    assert!(counter(Counter::HandlersBusy) >= 4);
    assert_eq!(counter(Counter::RequestsBusy), 0);
}

/// Each caller has its own places, and with a channel they end.
fn a_caller_at_its_limit_is_named(over: Over) {
    let put_off = Put::<Deferred>::default();
    let its = Arc::clone(&put_off);
    let (server, mut greedy, mut channel) = over.serve(|node| {
        for handler in [1, 2] {
            let its = Arc::clone(&its);
            node.short(handler, Args::Any, move |request| its.lock().expect("a list").push(request.defer()));
        }
        node.limit_concurrency(1, 5);
        node.limit_per_caller(1, 2);
    });
    let mut other = Over::node(small(), Settings::default());
    let others = other.connect(&server.address, PATIENCE).expect("a channel");
    let come = |count| until("they come", || put_off.lock().expect("a list").len() == count);
    let refused = |node: &mut Node, channel| {
        let error = node.call(channel, 1, &[], PATIENCE).map(drop).expect_err("as many are put off as may");
        assert_eq!(error.error, Failure::HandlerBusy.into());
        String::from_utf8(error.args).expect("words")
    };
    for _ in 0..2 {
        greedy.request(channel, 1, &[]).expect("room");
    }
    come(2);
    for _ in 0..3 {
        assert_eq!(refused(&mut greedy, channel), "handler 1 serves 2 of each caller");
    }
    // Those of others are served, and so are those of other handlers.
    other.request(others, 1, &[]).expect("room");
    come(3);
    for _ in 0..3 {
        greedy.request(channel, 2, &[]).expect("room");
    }
    come(6);
    other.request(others, 1, &[]).expect("room");
    come(7);
    assert_eq!(refused(&mut other, others), "handler 1 serves 2 of each caller");
    // Answered, one makes room for another of its own caller's.
    put_off.lock().expect("a list").remove(0).reply(&[], Vec::new());
    until("it is answered", || greedy.poll().is_some());
    assert_eq!(refused(&mut other, others), "handler 1 serves 2 of each caller");
    greedy.request(channel, 1, &[]).expect("room");
    come(7);
    assert_eq!(refused(&mut greedy, channel), "handler 1 serves 2 of each caller");
    // What was asked on a channel that has ended is no caller's, and counts among all.
    greedy.close(channel);
    channel = greedy.connect(&server.address, PATIENCE).expect("a channel");
    until("the other channel has ended", || {
        put_off.lock().expect("a list").iter().filter(|asked| asked.is_over()).count() == 5
    });
    greedy.request(channel, 1, &[]).expect("room");
    come(8);
    assert_eq!(refused(&mut greedy, channel), "handler 1 serves 5");
    assert_eq!(refused(&mut other, others), "handler 1 serves 5");
    put_off.lock().expect("a list").clear();
    until("there is room", || {
        let called = greedy.call(channel, 1, &[], Duration::from_millis(1)).map(drop);
        called.is_err_and(|error| error.error == CallError::Late)
    });
}

/// One that has hundreds of calls waiting has its places, and no more; whoever comes then is served at once.
fn a_greedy_caller_shuts_out_no_other(over: Over) {
    const CALLS: u64 = 200;
    const GREEDY: u64 = 1000;
    let (mut node, address) = over.listening(small(), Settings::default());
    let put_off = Put::<(u64, Answer<u64>)>::default();
    let its = Arc::clone(&put_off);
    rpc::serve_later(&mut node, SLOW, move |number, answer| its.lock().expect("a list").push((number, answer)));
    rpc::limit_concurrency(&mut node, SLOW, 3);
    rpc::limit_per_caller(&mut node, SLOW, 2);
    let server = Service::spawn(node, |_| ()).expect("a thread");
    let client = || {
        let service = Arc::new(Service::spawn(Over::node(small(), Settings::default()), |_| ()).expect("a thread"));
        Client::connect(service, &address, PATIENCE).expect("a channel")
    };
    let (greedy, other) = (client(), client());
    let mut calls: Vec<_> = (0..CALLS).map(|number| greedy.start(SLOW, &(GREEDY + number))).collect();
    let count = |of: fn(u64) -> bool| put_off.lock().expect("a list").iter().filter(|its| of(its.0)).count();
    let polled = |calls: &mut Vec<Pending<u64>>| {
        calls.retain_mut(|call| match poll(call) {
            Poll::Ready(result) => result.is_err_and(|error| panic!("{error}")),
            Poll::Pending => true,
        });
    };
    until("it has its places", || {
        polled(&mut calls);
        count(|number| number >= GREEDY) == 2 && busy(&server) >= 10
    });
    // None of the greedy one's is answered meanwhile.
    for number in 0..20 {
        let mut call = other.start(SLOW, &number);
        let mut answered = false;
        until("it is served", || {
            polled(&mut calls);
            let mut list = put_off.lock().expect("a list");
            if let Some(at) = list.iter().position(|its| its.0 == number) {
                list.remove(at).1.give(Ok(number + 1));
            }
            drop(list);
            if let Poll::Ready(result) = poll(&mut call) {
                assert_eq!(result, Ok(number + 1));
                answered = true;
            }
            answered
        });
        assert_eq!((count(|number| number >= GREEDY), calls.len()), (2, 200));
    }
    // All of the greedy one's are served, too, two at a time.
    let mut served = 0;
    until("all are answered", || {
        polled(&mut calls);
        let come = std::mem::take(&mut *put_off.lock().expect("a list"));
        assert!(come.len() <= 2);
        served += come.into_iter().map(|(_, answer)| answer.give(Ok(7))).count();
        calls.is_empty()
    });
    assert_eq!(served, 200);
}

#[test]
fn a_limit_is_of_a_handler_that_there_is() {
    let mut node = Over::node(small(), Settings::default());
    node.short(3, Args::Any, |_| ());
    node.limit_concurrency(3, 1);
    for (handler, most, said) in [(2, 1, "no handler has the number 2"), (4, 1, "number 4"), (3, 0, "a limit of 0")] {
        for limit in [Node::limit_concurrency, Node::limit_per_caller] {
            let limits = std::panic::AssertUnwindSafe(|| limit(&mut node, handler, most));
            let panic = std::panic::catch_unwind(limits).expect_err("there is no such handler");
            let text = panic.downcast::<String>().expect("words");
            assert!(text.contains(said), "{text}");
        }
    }
}

/// A server whose slow method serves two calls at a time, and a client of it.
fn serve(over: Over, window: u32) -> (Service, Client, Put<Answer<u64>>) {
    let (mut node, address) = over.listening(small(), Settings::default());
    let put_off = Put::default();
    let its = Arc::clone(&put_off);
    rpc::serve_later(&mut node, SLOW, move |_, answer| its.lock().expect("a list").push(answer));
    rpc::serve(&mut node, FAST, |number| Ok(number + 1));
    rpc::limit_concurrency(&mut node, SLOW, 2);
    let server = Service::spawn(node, |_| ()).expect("a thread");
    let node = Over::node(small(), Settings { window, ..Settings::default() });
    let service = Arc::new(Service::spawn(node, |_| ()).expect("a thread"));
    (server, Client::connect(service, &address, PATIENCE).expect("a channel"), put_off)
}

fn poll(call: &mut Pending<u64>) -> Poll<Result<u64, RpcError>> {
    Pin::new(call).poll(&mut Context::from_waker(Waker::noop()))
}

fn busy(server: &Service) -> u64 {
    server.with(|node| node.endpoint().counter(Counter::HandlersBusy))
}

/// Calls that a busy method has refused stood before all that came later, whatever that was for: each of those waited
/// until all of the slow ones had been refused once more.
fn a_slow_method_shuts_out_no_fast_one(over: Over) {
    let (server, client, put_off) = serve(over, 8);
    std::thread::scope(|scope| {
        let slow: Vec<_> = (0..12).map(|number| (number, client.clone())).collect();
        let slow = slow.into_iter().map(|(number, client)| scope.spawn(move || client.call(SLOW, &number)));
        let slow: Vec<_> = slow.collect();
        until("some are refused", || put_off.lock().expect("a list").len() == 2 && busy(&server) >= 10);
        let undisturbed = (0..1000).filter(|number| {
            let before = busy(&server);
            assert_eq!(client.call(FAST, number), Ok(number + 1));
            busy(&server) == before
        });
        let undisturbed = undisturbed.count();
        println!("{undisturbed} were not disturbed");
        // One of the slow ones asks again about once a millisecond. Where all stood in one queue, less than 100 were.
        assert!(undisturbed > 200, "all but {undisturbed} waited until slow ones were refused");
        for number in 0..10 {
            let mut call = client.start(FAST, &number);
            until("it is answered", || match poll(&mut call) {
                Poll::Ready(result) => result == Ok(number + 1),
                Poll::Pending => false,
            });
        }
        // Who waits for the method until its time is over hears which one was busy.
        let late = || client.within(Duration::from_millis(30)).call(SLOW, &1);
        until("it is named", || late() == Err(CallError::Failed(Failure::HandlerBusy).into()));
        until("all are answered", || {
            put_off.lock().expect("a list").drain(..).for_each(|answer| answer.give(Ok(7)));
            slow.iter().all(|call| call.is_finished())
        });
        assert!(slow.into_iter().all(|call| call.join().expect("no panic") == Ok(7)));
    });
}

fn all_calls_of_a_slow_method_are_served_once(over: Over) {
    const CALLS: u64 = 200;
    let (server, client, put_off) = serve(over, 256);
    let mut calls: Vec<_> = (0..CALLS).map(|number| client.start(SLOW, &number)).collect();
    let (mut answered, mut served) = (0, 0);
    until("all are answered", || {
        calls.retain_mut(|call| match poll(call) {
            Poll::Ready(result) => {
                assert_eq!(result, Ok(7));
                answered += 1;
                false
            }
            Poll::Pending => true,
        });
        let come = std::mem::take(&mut *put_off.lock().expect("a list"));
        assert!(come.len() <= 2);
        served += come.into_iter().map(|answer| answer.give(Ok(7))).count();
        calls.is_empty()
    });
    assert_eq!((answered, served), (CALLS, 200));
    let refused = busy(&server);
    println!("{refused} were refused for {CALLS} calls");
    assert!(refused < 15 * CALLS, "{refused} were refused for {CALLS} calls");
    assert_eq!(client.call(FAST, &1), Ok(2));
}

/// A call of a busy method that found no room in the window, when it might be made, had room only by chance: all others
/// that waited for it went before.
fn who_finds_the_window_full_stands_behind_those_before(over: Over) {
    let (mut node, address) = over.listening(small(), Settings::default());
    let put_off = Put::<(u64, Answer<u64>)>::default();
    for method in [SLOW, HOLD] {
        let its = Arc::clone(&put_off);
        rpc::serve_later(&mut node, method, move |number, answer| its.lock().expect("a list").push((number, answer)));
    }
    rpc::limit_concurrency(&mut node, SLOW, 1);
    let server = Service::spawn(node, |_| ()).expect("a thread");
    let node = Over::node(small(), Settings { window: 2, ..Settings::default() });
    let service = Arc::new(Service::spawn(node, |_| ()).expect("a thread"));
    let client = Client::connect(service, &address, PATIENCE).expect("a channel");
    let come = || put_off.lock().expect("a list").iter().map(|(number, _)| *number).collect::<Vec<_>>();
    let answer = |number| {
        let mut list = put_off.lock().expect("a list");
        let at = list.iter().position(|its| its.0 == number).expect("it has come");
        list.remove(at).1.give(Ok(7));
    };
    // Polls these, in this order, until the server has those of them.
    let poll_until = |calls: &mut [&mut Pending<u64>], has: &[u64]| {
        until("they come", || {
            calls.iter_mut().for_each(|call| assert!(poll(call).is_pending()));
            come() == has
        });
    };
    let done = |call: &mut Pending<u64>| until("it is answered", || poll(call) == Poll::Ready(Ok(7)));
    until("it has its turn", || {
        let (mut slow, mut waits) = (client.start(SLOW, &1), client.start(SLOW, &2));
        poll_until(&mut [&mut slow], &[1]);
        let before = busy(&server);
        until("it is refused", || {
            assert!(poll(&mut waits).is_pending());
            busy(&server) > before
        });
        let [mut first, mut next, mut last] = [3, 4, 5].map(|number| client.start(HOLD, &number));
        poll_until(&mut [&mut waits, &mut first], &[1, 3]);
        assert!(poll(&mut next).is_pending());
        answer(1);
        done(&mut slow);
        poll_until(&mut [&mut next], &[3, 4]);
        // The window is full, and it may be made.
        for _ in 0..10 {
            std::thread::sleep(Duration::from_micros(500));
            assert!(poll(&mut waits).is_pending());
        }
        assert!(poll(&mut last).is_pending());
        answer(3);
        done(&mut first);
        until("one of them comes", || {
            assert!(poll(&mut last).is_pending() && poll(&mut waits).is_pending());
            come().len() == 2
        });
        let came_first = come()[1];
        answer(4);
        done(&mut next);
        until("the other one comes", || {
            assert!(poll(&mut last).is_pending() && poll(&mut waits).is_pending());
            come().len() == 2
        });
        [2, 5].into_iter().for_each(answer);
        [waits, last].iter_mut().for_each(done);
        // Else it did not come within a millisecond when it was called.
        came_first == 2
    });
}
