//! Who shares a node with others has it in its turn: a thread, and a task whose executor goes on meanwhile.

mod two;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cutthrough::am::{Args, Service, Settings};
use cutthrough::rpc::{Client, Raw};
use two::{Over, PATIENCE, small};

over_both! { a_task_has_its_turn_beside_threads }

const ECHO: u16 = 1;
const THREADS: usize = 4;

/// Threads that use the node all the time leave it to each other, and it is never free.
fn a_task_has_its_turn_beside_threads(over: Over) {
    let (mut node, address) = over.listening(small(), Settings::default());
    node.short(ECHO, Args::Words(1), |request| {
        let words: [u32; 1] = request.words();
        request.reply(&words);
    });
    let _server = Service::spawn(node, |_| ()).expect("a thread");
    let service = Arc::new(Service::spawn(Over::node(small(), Settings::default()), |_| ()).expect("a thread"));
    let client = Client::connect(Arc::clone(&service), &address, PATIENCE).expect("a channel").within(PATIENCE / 10);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    service.with(|node| {
                        let begun = Instant::now();
                        while begun.elapsed() < Duration::from_micros(50) {
                            let _ = node.poll();
                        }
                    });
                }
            });
        }
        // Until they stand in line.
        std::thread::sleep(Duration::from_millis(20));
        let calls = (0..8_u32).map(|number| {
            let reply = runtime.block_on(client.start_raw(Raw::new(ECHO).args(&number.to_le_bytes())));
            reply.map(|reply| reply.word(0))
        });
        let calls: Vec<_> = calls.collect();
        over.store(true, Ordering::Relaxed);
        for (number, call) in (0..).zip(calls) {
            assert_eq!(call.expect("an answer in time"), number);
        }
    });
}
