//! Threads and tasks that share a client, and by it a region of its server.

use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use cutthrough::am::{Args, CallError, Failure, RequestError, Service, Settings, Unanswered, WINDOW};
use cutthrough::rma::{Extent, Key, Owner, Region, SharedRemote};
use cutthrough::rpc::{self, Client, Method};
use cutthrough::{Channel, Config};

use crate::two::{Over, PATIENCE, Server, block_on, small, until};
use crate::{NO_REGION, OUTSIDE, PAGE, over_both, pattern, refused};

over_both! {
    threads_share_a_region, tasks_share_a_region, what_does_not_lie_in_a_region_is_refused, pages_go_by_a_client_too,
    others_call_while_an_operation_waits, an_operation_ends_by_the_time_of_its_client,
    nothing_is_sent_while_others_keep_the_node, a_long_operation_that_was_begun_says_so,
    who_was_dropped_gives_its_place_back, an_owner_that_ends_is_no_owner, a_key_that_was_taken_back_is_refused,
    another_owner_refuses_the_key, a_key_is_good_by_another_channel,
}

const DOUBLE: Method<u64, u64> = Method::new(1);
const LONG: usize = 300_000;
/// Longer than anything takes here, and shorter than anybody's patience.
const SHORT: Duration = Duration::from_millis(200);

/// A node that owns a region and serves calls beside, what its owner says, and the key.
fn listening(over: Over, region: &Region) -> (cutthrough::am::Node, String, Owner, Key) {
    let (mut node, address) = over.listening(small(), Settings::default());
    rpc::serve(&mut node, DOUBLE, |number| Ok(number * 2));
    let owner = Owner::new(&mut node);
    let key = owner.register(region);
    (node, address, owner, key)
}

/// An owner of a region, and a client of it.
fn shared(over: Over, config: Config, region: &Region) -> (Server, Arc<Service>, Client, Key) {
    let (node, address, _, key) = listening(over, region);
    let server = Server::run(node, address);
    let service = Arc::new(Service::spawn(Over::node(config, Settings::default()), |_| ()).expect("a thread"));
    let client = Client::connect(Arc::clone(&service), &server.address, PATIENCE).expect("a channel");
    (server, service, client.within(PATIENCE), key)
}

/// What it is to have done for operations whose error says so.
fn error(result: Result<(), Unanswered>) -> Option<CallError> {
    result.err().map(CallError::from)
}

/// A number from 0 up to there, without rhyme.
fn random(state: &mut u64, below: usize) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize % below
}

/// Each thread has a part of its own, whose bytes it knows, and all have one counter.
fn threads_share_a_region(over: Over) {
    const THREADS: usize = 8;
    const PART: usize = 512 << 10;
    const ROUNDS: usize = 60;
    let region = Region::new((THREADS + 1) * PART, PAGE);
    let (_server, _service, client, key) = shared(over, small(), &region);
    let work = |thread: usize| {
        let remote = SharedRemote::new(client.clone(), key);
        let (base, mut state) = ((thread + 1) * PART, thread as u64);
        let (mut model, mut seen) = (vec![0; PART], Vec::new());
        for round in 0..ROUNDS {
            let most = [8, 5000, LONG][random(&mut state, 3)];
            let len = random(&mut state, most);
            let start = random(&mut state, PART - len);
            match random(&mut state, 4) {
                0 => {
                    model[start..start + len].copy_from_slice(&pattern(round as u32, len));
                    remote.put((base + start) as u64, &model[start..start + len]).expect("in the region");
                }
                1 => {
                    let mut back = vec![1; len];
                    remote.get((base + start) as u64, &mut back).expect("in the region");
                    assert!(back == model[start..start + len], "{thread} {round}");
                }
                2 => {
                    let bytes = pattern(round as u32, 100 * 24);
                    let runs: Vec<_> = Extent::strided((base + start % 1000) as u64, 24, 1000, 100).collect();
                    remote.put_list(&runs, &bytes).expect("in the region");
                    for (row, its) in bytes.chunks_exact(24).enumerate() {
                        model[start % 1000 + row * 1000..][..24].copy_from_slice(its);
                    }
                    let mut back = vec![0; bytes.len()];
                    remote.get_list(&runs, &mut back).expect("in the region");
                    assert!(back == bytes, "{thread} {round}");
                }
                _ => seen.push(remote.fetch_add(8, 3).expect("a cell")),
            }
        }
        assert!(region.lock()[base..base + PART] == model[..], "{thread}");
        seen
    };
    let mut seen: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    seen.sort_unstable();
    assert!(seen.len() > ROUNDS && seen.iter().zip(0..).all(|(value, i)| *value == i * 3), "each sum is seen once");
    let remote = SharedRemote::new(client.clone(), key);
    let sum = seen.len() as u64 * 3;
    assert_eq!(remote.swap(8, u64::MAX), Ok(sum));
    assert_eq!(remote.compare_swap(8, 1, 5), Ok(u64::MAX));
    assert_eq!(remote.compare_swap(8, u64::MAX, 5), Ok(u64::MAX));
    assert_eq!(remote.swap(8, 0), Ok(5));
}

fn tasks_share_a_region(over: Over) {
    const TASKS: usize = 16;
    let region = Region::new((TASKS + 1) * LONG, PAGE);
    let (_server, _service, client, key) = shared(over, small(), &region);
    let remote = SharedRemote::new(client, key);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let tasks: Vec<_> = (1..=TASKS)
            .map(|task| {
                let remote = remote.clone();
                tokio::spawn(async move {
                    let offset = (task * LONG) as u64;
                    for len in [0, 1, 4096, 64 << 10, (64 << 10) + 1, 256 << 10, LONG] {
                        let bytes = pattern((task + len) as u32, len);
                        remote.start_put(offset, &bytes).await.expect("in the region");
                        let mut back = vec![0; len];
                        remote.start_get(offset, &mut back).await.expect("in the region");
                        assert!(back == bytes, "{task} {len}");
                        remote.start_fetch_add(0, 1).await.expect("a cell");
                    }
                    let cell = 8 * task as u64;
                    assert_eq!(remote.start_swap(cell, 5).await, Ok(0));
                    assert_eq!(remote.start_compare_swap(cell, 5, 6).await, Ok(5));
                    assert_eq!(remote.start_compare_swap(cell, 5, 7).await, Ok(6));
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        assert_eq!(remote.start_fetch_add(0, 0).await, Ok(7 * TASKS as u64));
    });
    // No executor but a thread that sleeps.
    assert_eq!(block_on(remote.start_fetch_add(8, 0)), Ok(6));
}

fn what_does_not_lie_in_a_region_is_refused(over: Over) {
    let region = Region::new(10_000, 1000);
    let (_server, _service, client, key) = shared(over, Config::default(), &region);
    let remote = SharedRemote::new(client.clone(), key);
    let outside = Err(refused(OUTSIDE));
    for (offset, len) in [(10_000, 1), (9_999, 2), (u64::MAX, 1), (0, 10_001), (u64::MAX - 3, LONG), (10_000, LONG)] {
        assert_eq!(remote.put(offset, &vec![1; len]), outside, "{offset} {len}");
        assert_eq!(remote.get(offset, &mut vec![1; len]), outside, "{offset} {len}");
        assert_eq!(block_on(remote.start_put(offset, &vec![1; len])), outside, "{offset} {len}");
        assert_eq!(block_on(remote.start_get(offset, &mut vec![1; len])), outside, "{offset} {len}");
        let run = [Extent { offset, len: len as u32 }];
        assert_eq!(remote.put_list(&run, &vec![1; len]), outside, "{offset} {len}");
        assert_eq!(remote.get_list(&run, &mut vec![1; len]), outside, "{offset} {len}");
    }
    assert_eq!(remote.swap(10_000, 1).map(drop), outside);
    assert_eq!(block_on(remote.start_fetch_add(4, 1)).map(drop), outside, "not aligned");
    let stranger = SharedRemote::new(client, Key(key.0 ^ 1));
    assert_eq!(stranger.put(0, b"x"), Err(refused(NO_REGION)));
    assert_eq!(stranger.put(0, &[1; 9000]), Err(refused(NO_REGION)));
    assert_eq!(stranger.fetch_add(0, 1).map(drop), Err(refused(NO_REGION)));
    assert!(region.lock().iter().all(|byte| *byte == 0));
    assert_eq!((remote.put_list(&[], &[]), remote.get_list(&[], &mut [])), (Ok(()), Ok(())));
}

fn pages_go_by_a_client_too(over: Over) {
    for pool in [Config::default().pool_bytes, 64 << 10, 4096] {
        let many = 100;
        let bytes = many as usize * PAGE as usize;
        let (there, here, back) = (Region::new(bytes, PAGE), Region::new(bytes, PAGE), Region::new(bytes, PAGE));
        let config = Config { pool_bytes: pool, ..small() };
        let (_server, _service, client, key) = shared(over, config, &there);
        let remote = SharedRemote::new(client, key);
        here.lock().copy_from_slice(&pattern(7, bytes));
        // Slots in another order, half of them; what lay in them before is no page that has come.
        let moves: Vec<(u32, u32)> = (0..many / 2).map(|slot| (slot, slot * 37 % many)).collect();
        (0..many).for_each(|slot| there.validate(slot));
        remote.store_pages(&here, &moves).expect("all pages");
        for (from, to) in &moves {
            let [from, to] = [from, to].map(|slot| *slot as usize * PAGE as usize);
            assert!(there.lock()[to..to + PAGE as usize] == here.lock()[from..from + PAGE as usize], "{pool} {to}");
        }
        let moves: Vec<_> = moves.into_iter().map(|(its, to)| (to, its)).collect();
        remote.fetch_pages(&back, &moves).expect("all pages");
        assert_eq!((there.count_valid(), back.count_valid()), (many, many / 2));
        assert!(back.lock()[..bytes / 2] == here.lock()[..bytes / 2], "{pool}");
        // A page that lies outside there: nothing of its batch has come, and it says so. In such a pool it is alone.
        let alone = pool < u64::from(PAGE);
        let failed = remote.store_pages(&here, &[(0, 0), (1, many)]).expect_err("no such slot");
        assert_eq!((failed.error, failed.valid), (refused(OUTSIDE), vec![Some(alone), Some(false)]));
        assert_eq!(there.is_valid(0), alone, "its page was on its way");
        let failed = remote.fetch_pages(&back, &[(many, 3)]).expect_err("no such slot");
        assert_eq!((failed.error, failed.valid), (refused(OUTSIDE), vec![Some(false)]));
        assert!(!back.is_valid(3));
    }
}

/// Whoever had the node for such an operation kept all others from their calls.
fn others_call_while_an_operation_waits(over: Over) {
    type Operation = fn(&SharedRemote) -> Result<(), Unanswered>;
    let operations: [(&str, Operation); 7] = [
        ("put", |remote| remote.put(0, &[1; 100])),
        ("long put", |remote| remote.put(0, &[1; LONG])),
        ("long get", |remote| remote.get(0, &mut [0; LONG])),
        ("atomic", |remote| remote.swap(0, 1).map(drop)),
        ("list", |remote| remote.get_list(&[Extent { offset: 0, len: 100 }], &mut [0; 100])),
        ("store", |remote| {
            let page = Region::new(PAGE as usize, PAGE);
            remote.store_pages(&page, &[(0, 0)]).map_err(|error| error.error)
        }),
        ("fetch", |remote| {
            let page = Region::new(PAGE as usize, PAGE);
            remote.fetch_pages(&page, &[(0, 0)]).map_err(|error| error.error)
        }),
    ];
    let region = Region::new(1 << 20, PAGE);
    let (_server, _service, client, key) = shared(over, Config::default(), &region);
    let remote = SharedRemote::new(client.clone(), key);
    for (name, operation) in operations {
        let bytes = region.lock();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| operation(&remote));
            std::thread::sleep(Duration::from_millis(20));
            let called = client.within(PATIENCE / 4).call(DOUBLE, &21);
            let waited = !waits.is_finished();
            drop(bytes);
            assert_eq!((called, waited), (Ok(42), true), "{name}");
            assert_eq!(waits.join().expect("no panic"), Ok(()), "{name}");
        });
    }
}

fn an_operation_ends_by_the_time_of_its_client(over: Over) {
    let region = Region::new(1 << 20, PAGE);
    let (_server, _service, client, key) = shared(over, Config::default(), &region);
    let remote = SharedRemote::new(client.within(SHORT), key);
    let page = Region::new(PAGE as usize, PAGE);
    let bytes = region.lock();
    let since = Instant::now();
    let late = Some(CallError::Late);
    assert_eq!(error(remote.put(0, &[1])), late);
    assert_eq!(error(remote.put(0, &[1; LONG])), late);
    assert_eq!(error(remote.get(0, &mut [1; LONG])), late);
    assert_eq!(error(remote.swap(0, 1).map(drop)), late);
    assert_eq!(error(block_on(remote.start_put(0, &[1; LONG]))), late);
    assert_eq!(error(block_on(remote.start_get(0, &mut [1]))), late);
    assert_eq!(error(block_on(remote.start_swap(0, 1)).map(drop)), late);
    let stored = remote.store_pages(&page, &[(0, 0)]).expect_err("the region is locked");
    assert_eq!((CallError::from(stored.error), stored.valid), (CallError::Late, vec![Some(false)]));
    let fetched = remote.fetch_pages(&page, &[(0, 0)]).expect_err("the region is locked");
    assert_eq!((CallError::from(fetched.error), fetched.valid), (CallError::Late, vec![Some(false)]));
    assert!(since.elapsed() >= SHORT * 9 && since.elapsed() < PATIENCE, "{:?}", since.elapsed());
    drop(bytes);
    // Nobody waits for these any more.
    let remote = SharedRemote::new(client.clone(), key);
    assert_eq!(remote.fetch_add(0, 1), Ok(0), "what was late is not done");
    let none = SharedRemote::new(client.within(Duration::ZERO), key);
    let unsent = Some(CallError::NotSent(RequestError::TimedOut(Duration::ZERO)));
    assert_eq!(error(none.put(0, &[1])), unsent);
    assert_eq!(error(none.put(0, &[1; LONG])), unsent);
    assert_eq!(error(block_on(none.start_get(0, &mut [1; LONG]))), unsent);
    assert_eq!(none.store_pages(&page, &[(0, 0)]).err().map(|failed| failed.error.error), unsent);
    assert_eq!(remote.fetch_add(0, 1), Ok(1));
}

/// That is said of a long operation, too, in the words of its own time.
fn nothing_is_sent_while_others_keep_the_node(over: Over) {
    let region = Region::new(1 << 20, PAGE);
    let (_server, service, client, key) = shared(over, Config::default(), &region);
    let remote = SharedRemote::new(client.within(SHORT), key);
    let (has, had) = mpsc::channel();
    let (goes_on, ends) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            service.with(|_| {
                has.send(()).expect("somebody waits");
                let _ = ends.recv_timeout(PATIENCE);
            });
        });
        had.recv_timeout(PATIENCE).expect("the node");
        let unsent = Some(CallError::NotSent(RequestError::TimedOut(SHORT)));
        let since = Instant::now();
        let said = [
            error(remote.put(0, &[1])),
            error(remote.put(0, &[1; LONG])),
            error(remote.get_list(&[Extent { offset: 0, len: 1 }], &mut [0])),
            error(remote.fetch_add(0, 1).map(drop)),
        ];
        let took = since.elapsed();
        drop(goes_on);
        assert_eq!(said, [unsent; 4]);
        assert!(took < PATIENCE / 2, "{took:?}");
    });
    assert_eq!(SharedRemote::new(client, key).fetch_add(0, 0), Ok(0), "the region is as it was");
}

/// Once a piece was sent, that nothing was is not true.
fn a_long_operation_that_was_begun_says_so(over: Over) {
    let region = Region::new(8 << 20, PAGE);
    let (_server, service, client, key) = shared(over, small(), &region);
    let remote = SharedRemote::new(client.within(SHORT), key);
    let bytes = vec![1; 8 << 20];
    // The first pieces are under way; then somebody keeps the node, so that no others are sent.
    let mut locked = Some(region.lock());
    let mut put = std::pin::pin!(remote.start_put(0, &bytes));
    until("a piece is under way", || {
        assert!(put.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        service.with(|node| node.channels().any(|channel| node.room(channel) < WINDOW))
    });
    let done = service.with(|_| {
        std::thread::sleep(SHORT * 2);
        put.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    });
    locked.take();
    let done = if let Poll::Ready(done) = done { done } else { block_on(put) };
    assert_eq!(error(done), Some(CallError::Late));
}

fn who_was_dropped_gives_its_place_back(over: Over) {
    let region = Region::new(1 << 20, PAGE);
    let (_server, service, client, key) = shared(over, Config::default(), &region);
    let remote = SharedRemote::new(client, key);
    let channel: Channel = service.with(|node| node.channels().next().expect("a channel"));
    let bytes = region.lock();
    let mut into = vec![7; LONG];
    for _ in 0..3 * WINDOW / 5 {
        let mut get = Box::pin(remote.start_get(0, &mut into));
        let mut context = Context::from_waker(Waker::noop());
        assert!(get.as_mut().poll(&mut context).is_pending());
        assert!(get.as_mut().poll(&mut context).is_pending());
        drop(get);
        drop(remote.start_put(0, &[1; LONG]));
    }
    drop(bytes);
    until("all places are free", || service.with(|node| node.room(channel)) >= WINDOW);
    assert!(into.iter().all(|byte| *byte == 7), "nothing is written behind it");
    let bytes = pattern(3, LONG);
    remote.put(0, &bytes).expect("there is room");
    remote.get(0, &mut into).expect("there is room");
    assert!(into == bytes);
}

fn an_owner_that_ends_is_no_owner(over: Over) {
    let region = Region::new(1 << 20, PAGE);
    let (server, _service, client, key) = shared(over, Config::default(), &region);
    let remote = SharedRemote::new(client.clone(), key);
    let bytes = region.lock();
    let begun = Barrier::new(3);
    std::thread::scope(|scope| {
        let waits = [1, LONG].map(|len| {
            let (remote, begun) = (&remote, &begun);
            scope.spawn(move || {
                begun.wait();
                (len, error(remote.put(0, &vec![1; len])))
            })
        });
        begun.wait();
        std::thread::sleep(Duration::from_millis(100));
        drop(server.end());
        for waits in waits {
            let (len, said) = waits.join().expect("no panic");
            let known = matches!(said, Some(CallError::Closed(_) | CallError::NotSent(RequestError::Lost)));
            assert!(known, "{len}: {said:?}");
        }
    });
    drop(bytes);
    let none = Some(CallError::NotSent(RequestError::Closed));
    until("it has heard of it", || error(remote.put(0, &[1])) == none);
    assert_eq!(error(remote.put(0, &[1; LONG])), none);
    assert_eq!(error(block_on(remote.start_get(0, &mut [1; LONG]))), none);
    assert_eq!(error(remote.fetch_add(0, 1).map(drop)), none);
    let page = Region::new(PAGE as usize, PAGE);
    assert_eq!(remote.store_pages(&page, &[(0, 0)]).err().map(|failed| failed.error.error), none);
    assert!(client.last_error().is_some());
}

fn a_key_that_was_taken_back_is_refused(over: Over) {
    let region = Region::new(1 << 20, PAGE);
    let (node, address, owner, key) = listening(over, &region);
    let server = Server::run(node, address);
    let service = Arc::new(Service::spawn(Over::node(small(), Settings::default()), |_| ()).expect("a thread"));
    let client = Client::connect(service, &server.address, PATIENCE).expect("a channel").within(PATIENCE);
    let remote = SharedRemote::new(client, key);
    let bytes = region.lock();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| remote.put(0, &[1; LONG]));
        std::thread::sleep(Duration::from_millis(100));
        owner.unregister(key);
        drop(bytes);
        assert_eq!(waits.join().expect("no panic"), Err(refused(NO_REGION)), "it has waited for the bytes");
    });
    assert_eq!(remote.fetch_add(0, 1).map(drop), Err(refused(NO_REGION)));
    assert!(region.lock().iter().all(|byte| *byte == 0));
}

/// The server was started again, with a region of its own.
fn another_owner_refuses_the_key(over: Over) {
    let (region, other) = (Region::new(1 << 20, PAGE), Region::new(1 << 20, PAGE));
    let (server, _service, client, key) = shared(over, small(), &region);
    let remote = SharedRemote::new(client.clone(), key);
    remote.put(0, &pattern(1, LONG)).expect("in the region");
    let address = server.address.clone();
    drop(server.end());
    let mut node = Over::node(small(), Settings::default());
    let owner = Owner::new(&mut node);
    let other_key = owner.register(&other);
    until("the address is free", || node.listen(&address).is_ok());
    let _second = Server::run(node, address);
    // Its end is heard of by an operation, or before; then there is another channel.
    until("it finds the other one", || {
        let said = remote.put(0, &[1; LONG]).expect_err("it is not known there");
        let on_the_way = matches!(said.error, CallError::Closed(_) | CallError::NotSent(_));
        assert!(on_the_way || said == refused(NO_REGION), "{said}");
        !on_the_way
    });
    assert_eq!(remote.fetch_add(0, 1).map(drop), Err(refused(NO_REGION)));
    assert_eq!(block_on(remote.start_put(0, &[1])), Err(refused(NO_REGION)));
    assert!(other.lock().iter().all(|byte| *byte == 0));
    let remote = SharedRemote::new(client, other_key);
    remote.put(0, &pattern(2, LONG)).expect("it is known there");
    assert!(other.lock()[..LONG] == pattern(2, LONG));
    assert!(region.lock()[..LONG] == pattern(1, LONG));
}

fn a_key_is_good_by_another_channel(over: Over) {
    const PART: u16 = 9;
    let region = Region::new(1 << 20, PAGE);
    let (mut node, address, _, key) = listening(over, &region);
    node.short(PART, Args::Any, |request| request.reply(&[]));
    let server = Arc::new(Service::spawn(node, |_| ()).expect("a thread"));
    let service = Arc::new(Service::spawn(Over::node(small(), Settings::default()), |_| ()).expect("a thread"));
    let client = Client::connect(service, &address, PATIENCE).expect("a channel").within(PATIENCE);
    let remote = SharedRemote::new(client, key);
    for round in 0..5 {
        assert_eq!(remote.fetch_add(0, 1), Ok(round));
        server.with(|node| {
            let channels: Vec<_> = node.channels().collect();
            channels.into_iter().for_each(|channel| node.close(channel));
        });
        // What may have been done is not asked for again.
        until("there is another channel", || match remote.put(64, &pattern(round as u32, LONG)) {
            Ok(()) => true,
            Err(why) => {
                let ended = matches!(why.error, CallError::Closed(_) | CallError::NotSent(_));
                assert!(ended && why.error != CallError::Failed(Failure::Refused), "{why}");
                false
            }
        });
        assert!(region.lock()[64..64 + LONG] == pattern(round as u32, LONG));
    }
}
