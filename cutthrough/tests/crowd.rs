//! Many tasks that call at the same time: each has its turn, and little is done for those that wait.

mod two;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use cutthrough::Counter;
use cutthrough::am::{Node, Service, Settings};
use cutthrough::rpc::{self, Client, Method};
use two::{Over, PATIENCE, small, until};

over_both! {
    tasks_beyond_the_window_have_their_turn, a_call_that_nobody_polls_keeps_no_other_waiting,
    tasks_wait_for_a_busy_server_without_a_storm,
}

const DOUBLE: Method<u64, u64> = Method::new(1);
const LATER: Method<u64, u64> = Method::new(2);

/// What an executor runs next, in the order in which it was woken.
#[derive(Default)]
struct Ready {
    tasks: Mutex<VecDeque<usize>>,
    some: Condvar,
}

struct Task {
    number: usize,
    ready: Arc<Ready>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let mut tasks = self.ready.tasks.lock().expect("the list");
        if !tasks.contains(&self.number) {
            tasks.push_back(self.number);
        }
        drop(tasks);
        self.ready.some.notify_one();
    }
}

/// Runs tasks until all are over, each when it was woken: how often they were polled.
fn run<F: Future<Output = ()>>(futures: impl IntoIterator<Item = F>) -> u64 {
    let ready = Arc::<Ready>::default();
    let mut tasks: Vec<_> = futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    let wakers: Vec<Waker> =
        (0..tasks.len()).map(|number| Arc::new(Task { number, ready: Arc::clone(&ready) }).into()).collect();
    wakers.iter().for_each(Waker::wake_by_ref);
    let (mut left, mut polls) = (tasks.len(), 0);
    while left > 0 {
        let waits = |tasks: &mut VecDeque<usize>| tasks.is_empty();
        let list = ready.tasks.lock().expect("the list");
        let (mut list, time) = ready.some.wait_timeout_while(list, PATIENCE, waits).expect("the list");
        assert!(!time.timed_out(), "{left} tasks are not woken any more");
        let number = list.pop_front().expect("one is ready");
        drop(list);
        let Some(task) = &mut tasks[number] else { continue };
        polls += 1;
        if task.as_mut().poll(&mut Context::from_waker(&wakers[number])).is_ready() {
            tasks[number] = None;
            left -= 1;
        }
    }
    polls
}

/// A server, and a client that may have so many calls under way.
fn serve(over: Over, window: u32, most: usize, prepare: impl FnOnce(&mut Node)) -> (Service, Client) {
    let (mut node, address) = over.listening(small(), Settings { serve: most, ..Settings::default() });
    prepare(&mut node);
    let server = Service::spawn(node, |_| ()).expect("a thread");
    let node = Over::node(small(), Settings { window, ..Settings::default() });
    let service = Arc::new(Service::spawn(node, |_| ()).expect("a thread"));
    (server, Client::connect(service, &address, PATIENCE).expect("a channel"))
}

/// Each of those that waited was polled each tenth of a millisecond, and whoever came first then had the room.
fn tasks_beyond_the_window_have_their_turn(over: Over) {
    const TASKS: u64 = 400;
    const CALLS: u64 = 40;
    let (_server, client) = serve(over, 4, 1024, |node| rpc::serve(node, DOUBLE, |number| Ok(number * 2)));
    let done: Vec<_> = (0..TASKS).map(|_| AtomicU64::new(0)).collect();
    let polls = run((0..TASKS).map(|task| {
        let (client, done) = (&client, &done);
        async move {
            for call in 1..=CALLS {
                assert_eq!(client.start(DOUBLE, &call).await, Ok(2 * call));
                done[usize::try_from(task).expect("a few")].store(call, Ordering::Relaxed);
                if call == CALLS {
                    let least = done.iter().map(|done| done.load(Ordering::Relaxed)).min();
                    // Some that are answered at once may be made in a row.
                    assert!(least >= Some(CALLS / 2), "{task} is done, and another one has made {least:?} calls");
                }
            }
        }
    }));
    println!("{polls} polls for {} calls", TASKS * CALLS);
    assert!(polls < 6 * TASKS * CALLS, "{polls} polls for {} calls", TASKS * CALLS);
}

/// Where a task stops to poll its call, which is the first that would have its turn.
fn a_call_that_nobody_polls_keeps_no_other_waiting(over: Over) {
    let held = Arc::<Mutex<Vec<rpc::Answer<u64>>>>::default();
    let its = Arc::clone(&held);
    let (_server, client) = serve(over, 1, 1024, move |node| {
        rpc::serve(node, DOUBLE, |number| Ok(number * 2));
        rpc::serve_later(node, LATER, move |_, answer| its.lock().expect("the list").push(answer));
    });
    let poll = |call: &mut rpc::Pending<u64>| Pin::new(call).poll(&mut Context::from_waker(Waker::noop()));
    let mut first = client.start(LATER, &1);
    until("it comes", || {
        assert!(poll(&mut first).is_pending());
        !held.lock().expect("the list").is_empty()
    });
    // These wait for room, and nobody asks them again.
    let mut left: Vec<_> = (0..100).map(|number| client.start(DOUBLE, &number)).collect();
    assert!(left.iter_mut().all(|call| poll(call).is_pending()));
    held.lock().expect("the list").drain(..).for_each(|answer| answer.give(Ok(7)));
    let polls = run((0..10).map(|number| {
        let client = &client;
        async move { assert_eq!(client.start(DOUBLE, &number).await, Ok(2 * number)) }
    }));
    println!("{polls} polls");
    assert_eq!(poll(&mut first), Poll::Ready(Ok(7)));
    // They are made all the same once they are polled, and one that is dropped leaves nothing.
    drop(left.split_off(50));
    run(left.into_iter().map(|call| async move { assert!(call.await.is_ok()) }));
    assert_eq!(client.call(DOUBLE, &4), Ok(8));
}

/// Each of those that the server had refused was sent again each tenth of a millisecond.
fn tasks_wait_for_a_busy_server_without_a_storm(over: Over) {
    const TASKS: u64 = 200;
    let asked = Arc::new(AtomicU64::new(0));
    let (its, (give, given)) = (Arc::clone(&asked), std::sync::mpsc::channel::<(u64, rpc::Answer<u64>)>());
    let (server, client) = serve(over, 256, 2, move |node| {
        rpc::serve_later(node, LATER, move |number, answer| {
            its.fetch_add(1, Ordering::Relaxed);
            let _ = give.send((number, answer));
        });
    });
    let worker = std::thread::spawn(move || {
        for (number, answer) in given {
            std::thread::sleep(Duration::from_micros(500));
            answer.give(Ok(number + 1));
        }
    });
    let polls = run((0..TASKS).map(|number| {
        let client = &client;
        async move { assert_eq!(client.start(LATER, &number).await, Ok(number + 1)) }
    }));
    let came = server.with(|node| node.endpoint().counter(Counter::MessagesReceived));
    println!("{polls} polls and {came} requests for {TASKS} calls");
    assert_eq!(asked.load(Ordering::Relaxed), TASKS, "each runs once");
    assert!(polls.max(came) < 15 * TASKS, "{polls} polls and {came} requests for {TASKS} calls");
    drop((client, server));
    worker.join().expect("no panic");
}
