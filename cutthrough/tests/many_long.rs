//! Awaited calls whose bodies are longer than the pool: however many there are, a service has one thread that sends
//! them. It is the only test of its program, for it counts the threads.

mod two;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use cutthrough::Config;
use cutthrough::am::{Service, Settings};
use cutthrough::rpc::{self, Client, Method, Pending, RpcError};
use two::{Over, PATIENCE, block_on, small, until};

/// How many bytes have come, and their sum.
const SUM: Method<Vec<u8>, (u64, u64)> = Method::new(1);

type Summed = Result<(u64, u64), RpcError>;

/// A call, and its number.
struct Numbered(u8, Pin<Box<Pending<(u64, u64)>>>);

impl Numbered {
    /// It has bytes that no other one has, and more of them than the pool.
    fn new(client: &Client, number: u8) -> Self {
        Self(number, Box::pin(client.start(SUM, &vec![number; 100_000 + usize::from(number)])))
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Summed> {
        self.1.as_mut().poll(context)
    }
}

fn sum(number: u8) -> (u64, u64) {
    let bytes = 100_000 + u64::from(number);
    (bytes, bytes * u64::from(number))
}

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("the list of threads").count()
}

#[test]
fn one_thread_sends_however_many_long_bodies_there_are() {
    let (mut node, address) = Over::Shm.listening(small(), Settings::default());
    rpc::serve(&mut node, SUM, |bytes| Ok((bytes.len() as u64, bytes.iter().map(|byte| u64::from(*byte)).sum())));
    let _server = Service::spawn(node, |_| ()).expect("a thread");
    let config = Config { pool_bytes: 64 << 10, ..small() };
    let service = Arc::new(Service::spawn(Over::node(config, Settings::default()), |_| ()).expect("a thread"));
    let client = Client::connect(service, &address, PATIENCE).expect("a channel").within(PATIENCE * 3);
    let before = threads();
    let mut calls: Vec<_> = (0..200).map(|number| Numbered::new(&client, number)).collect();
    let (mut most, mut sums) = (before, Vec::new());
    block_on(std::future::poll_fn(|context| {
        calls.retain_mut(|call| match call.poll(context) {
            Poll::Ready(answer) => {
                sums.push((call.0, answer.expect("an answer")));
                false
            }
            Poll::Pending => {
                most = most.max(threads());
                true
            }
        });
        if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }));
    assert_eq!(most, before + 1, "one thread sends them");
    sums.sort_unstable();
    assert_eq!(sums, (0..200).map(|number| (number, sum(number))).collect::<Vec<_>>());
    // Those that are dropped, wherever they are just then, leave nothing.
    for round in 0..20 {
        let mut calls: Vec<_> = (0..8).map(|number| Numbered::new(&client, number)).collect();
        for call in &mut calls {
            let _ = call.poll(&mut Context::from_waker(Waker::noop()));
        }
        drop(calls);
        assert!(threads() <= before + 1, "after {round}");
    }
    let mut last = Numbered::new(&client, 7);
    let answer = block_on(std::future::poll_fn(|context| last.poll(context)));
    assert_eq!(answer, Ok(sum(7)));
    until("the thread ends", || threads() == before);
}
