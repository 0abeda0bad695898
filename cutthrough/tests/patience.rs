//! How long calls wait: as long as they were told, whatever the node's own deadline is, and whatever others do.

#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

mod two;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cutthrough::am::{Args, CallError, Deferred, Event, Failure, Node, RequestError, Settings, Unanswered};
use cutthrough::rma::{Key, Owner, Region, Remote};
use cutthrough::{Channel, Config, Endpoint};
use two::{Over, PATIENCE, Server, small};

over_both! {
    a_timeout_counts_more_than_the_deadline, operations_on_memory_have_their_timeout,
    who_comes_again_has_as_many_requests_in_service_as_before,
    what_is_put_at_an_owner_that_sleeps_ends_in_time, long_puts_arrive_whatever_the_owner_does_meanwhile,
    pages_that_are_late_may_arrive_until_the_owner_answers_again,
    who_polls_now_and_then_hears_of_what_is_late, the_time_of_a_request_runs_once_it_was_asked_for,
}

const SLOW: u16 = 1;
/// Longer than the deadline, and shorter than the timeouts.
const NAP: Duration = Duration::from_millis(200);

/// A deadline that is over long before an answer comes.
fn hasty() -> Settings {
    Settings { deadline: Duration::from_millis(50), ..Settings::default() }
}

fn a_timeout_counts_more_than_the_deadline(over: Over) {
    let (_server, mut node, channel) = over.serve_with(small(), hasty(), |node| {
        node.short(SLOW, Args::Any, |request| {
            std::thread::sleep(NAP);
            request.reply(&[7]);
        });
    });
    let reply = node.call(channel, SLOW, &[], PATIENCE).expect("a reply within its timeout");
    assert_eq!(reply.word(0), 7);
    // What was said with the request itself stands.
    let made = node.ask(channel, SLOW).within(NAP / 4).send().expect("room");
    assert_eq!(node.wait_for(made, PATIENCE).map(drop), Err(CallError::Late.into()));
    // Where nothing is said, the deadline counts.
    node.request(channel, SLOW, &[]).expect("room");
    let Ok(Event::Failed(failed)) = node.wait(Some(PATIENCE)) else { panic!("it is late") };
    assert_eq!(failed.error, CallError::Late);
}

/// It is not known when the request comes: most handlers have no use for it.
fn the_time_of_a_request_runs_once_it_was_asked_for(over: Over) {
    let step = Duration::from_millis(2);
    let left = Arc::new(Mutex::new(None));
    let its = Arc::clone(&left);
    let (_server, mut node, channel) = over.serve_with(small(), Settings::default(), move |node| {
        node.short(SLOW, Args::Any, move |request| {
            let first = request.remaining();
            std::thread::sleep(step);
            let second = request.remaining();
            std::thread::sleep(step);
            let deferred = request.defer();
            *its.lock().expect("the list") = Some([first, second, deferred.remaining()]);
        });
    });
    for within in [Some(PATIENCE), None] {
        let asking = node.ask(channel, SLOW);
        let asking = if let Some(within) = within { asking.within(within) } else { asking };
        asking.send().expect("room");
        let failed = node.wait(Some(PATIENCE)).expect("the end of it");
        assert!(matches!(failed, Event::Failed(failed) if failed.error == Failure::Abandoned.into()));
        let left = left.lock().expect("the list").take().expect("it was asked");
        assert_eq!(left.map(|left| left.is_some()), [within.is_some(); 3]);
        if let [Some(first), Some(second), Some(third)] = left {
            assert!(first <= PATIENCE && second + step <= first && third + step <= second, "{left:?}");
        }
    }
}

/// The clock was read in one poll of 256.
fn who_polls_now_and_then_hears_of_what_is_late(over: Over) {
    let held: Arc<Mutex<Vec<Deferred>>> = Arc::default();
    let its = Arc::clone(&held);
    let (_server, mut node, channel) = over.serve(|node| {
        node.short(SLOW, Args::Any, move |request| its.lock().expect("the list").push(request.defer()));
    });
    // However it was polled before.
    for polls in [0, 10_000] {
        (0..polls).for_each(|_| assert!(node.poll().is_none()));
        let call = node.ask(channel, SLOW).within(Duration::from_millis(20)).send().expect("room");
        let mut polls = 0;
        let failed = loop {
            match node.poll() {
                Some(Event::Failed(failed)) => break failed,
                Some(event) => panic!("{event:?}"),
                None => polls += 1,
            }
            assert!(polls < 30, "nothing is late after {polls} polls in 300 ms");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!((failed.call, failed.error), (call, CallError::Late));
    }
}

fn operations_on_memory_have_their_timeout(over: Over) {
    let region = Region::new(1 << 20, 4096);
    let mut key = None;
    let (_server, mut node, channel) = over.serve_with(small(), hasty(), |node| {
        key = Some(Owner::new(node).register(&region));
    });
    let mut remote = Remote::new(&mut node, channel, key.expect("a key"), PATIENCE);
    type Operation = fn(&mut Remote<'_>) -> Result<(), Unanswered>;
    let operations: [Operation; 4] = [
        |remote| remote.put(16, b"hello"),
        |remote| remote.get(16, &mut [0; 5]),
        |remote| remote.fetch_add(8, 5).map(drop),
        |remote| remote.store_pages(&Region::new(1 << 20, 4096), &[(0, 1)]).map_err(|error| error.error),
    ];
    for (number, operation) in operations.into_iter().enumerate() {
        // The owner waits for whoever has the region locked.
        std::thread::scope(|scope| {
            let (locked, is_locked) = std::sync::mpsc::channel();
            let region = &region;
            scope.spawn(move || {
                let region = region.lock();
                locked.send(()).expect("somebody waits");
                std::thread::sleep(NAP);
                drop(region);
            });
            is_locked.recv().expect("a lock");
            assert_eq!(operation(&mut remote), Ok(()), "operation {number}");
        });
    }
}

/// An owner whose node nobody polls, and a node with a channel to it.
fn sleeping(over: Over, region: &Region) -> (Node, String, Node, Channel, Key) {
    let mut key = None;
    let (server, node, channel) = over.serve_with(Config::default(), Settings::default(), |node| {
        key = Some(Owner::new(node).register(region));
    });
    let address = server.address.clone();
    (server.end(), address, node, channel, key.expect("a key"))
}

/// A put that was longer than the staging ring waited for the owner as long as the endpoint's deadline, and ended the
/// channel.
fn what_is_put_at_an_owner_that_sleeps_ends_in_time(over: Over) {
    let region = Region::new(8 << 20, 4096);
    let (owner, address, mut node, channel, key) = sleeping(over, &region);
    let bytes: Vec<u8> = (0..8 << 20_u32).map(|i| (i % 251) as u8).collect();
    for len in [5, 60_000, 64 << 10, 300_000, 8 << 20] {
        // The last one finds no room for anything.
        for _ in 0..40 {
            let since = Instant::now();
            let put = Remote::new(&mut node, channel, key, NAP / 20).put(0, &bytes[..len]).expect_err("nobody serves");
            // What was sent before has left no room.
            let unsent = put.error == RequestError::TimedOut(NAP / 20).into() && len > 60_000;
            assert!(put.error == CallError::Late || unsent, "{len} bytes: {put:?}");
            assert!(since.elapsed() < Duration::from_secs(1), "{len} bytes took {:?}", since.elapsed());
        }
    }
    let since = Instant::now();
    let put = Remote::new(&mut node, channel, key, NAP).put(0, &bytes);
    assert_eq!(put, Err(RequestError::TimedOut(NAP).into()));
    assert!(since.elapsed() >= NAP && since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    what_finds_no_room_has_not_run(&mut Remote::new(&mut node, channel, key, NAP / 20));
    // The channel lives, and the owner wakes.
    let _server = Server::run(owner, address);
    let put = Remote::new(&mut node, channel, key, PATIENCE).put(0, &bytes);
    assert_eq!(put, Ok(()));
    assert!(region.lock()[..] == bytes[..]);
}

/// Operations for which there is no room have not been asked for, and say so: some were late, and may have been done.
fn what_finds_no_room_has_not_run(remote: &mut Remote<'_>) {
    let here = Region::new(4096, 4096);
    for (number, operation) in OPERATIONS.into_iter().enumerate() {
        let error = operation(remote, &here).expect_err("there is no room").error;
        assert_eq!((error, error.may_have_run()), (RequestError::TimedOut(NAP / 20).into(), false), "{number}");
    }
    let error = remote.store_pages(&here, &[(0, 1)]).expect_err("there is no room");
    assert_eq!(error.valid, [Some(false)]);
}

type Operation = fn(&mut Remote<'_>, &Region) -> Result<(), Unanswered>;

const OPERATIONS: [Operation; 6] = [
    |remote, _| remote.put(16, b"hello"),
    |remote, _| remote.put(16, &[0; 70_000]),
    |remote, _| remote.get(16, &mut [0; 5]),
    |remote, _| remote.fetch_add(8, 5).map(drop),
    |remote, here| remote.store_pages(here, &[(0, 1)]).map_err(|error| error.error),
    |remote, here| remote.fetch_pages(here, &[(1, 0)]).map_err(|error| error.error),
];

fn long_puts_arrive_whatever_the_owner_does_meanwhile(over: Over) {
    let region = Region::new(8 << 20, 4096);
    let (mut owner, _, mut node, channel, key) = sleeping(over, &region);
    // An owner that sleeps now and then.
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let serving = std::thread::spawn(move || {
        while stopped.try_recv().is_err() {
            for _ in 0..50 {
                let _ = owner.poll();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let mut remote = Remote::new(&mut node, channel, key, PATIENCE);
    for len in [0, 1, 4096, 4097, 65_535, 65_536, 65_537, 3 << 20, (8 << 20) - 1] {
        let bytes: Vec<u8> = (0..len).map(|i| (i % 249) as u8).collect();
        assert_eq!(remote.put(1, &bytes), Ok(()), "{len} bytes");
        assert!(region.lock()[1..=len] == bytes[..], "{len} bytes");
        let outside = remote.put((8 << 20) - len as u64 + 1, &bytes);
        assert_eq!(outside.map_err(CallError::from), Err(CallError::Failed(Failure::Refused)), "{len} bytes");
    }
    stop.send(()).expect("it serves");
    serving.join().expect("the owner");
}

/// What is not known of pages at an owner that does not answer is known as soon as it has answered anything else.
fn pages_that_are_late_may_arrive_until_the_owner_answers_again(over: Over) {
    let region = Region::new(64 << 12, 4096);
    let (mut owner, _, mut node, channel, key) = sleeping(over, &region);
    let here = Region::new(64 << 12, 4096);
    here.lock().fill(7);
    let moves: Vec<(u32, u32)> = (0..64).map(|slot| (slot, slot)).collect();
    let since = Instant::now();
    let error = Remote::new(&mut node, channel, key, NAP / 4).store_pages(&here, &moves).expect_err("nobody serves");
    assert_eq!((error.error.error, error.valid), (CallError::Late, vec![None; 64]));
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    assert_eq!(region.count_valid(), 0);
    // The owner wakes, and finds the requests before the notice that nobody waits for them. It cannot know how long
    // they have lain there.
    let (answered, is_answered) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while is_answered.try_recv().is_err() {
                let _ = owner.wait(Some(Duration::from_millis(1)));
            }
        });
        // The answer to any later operation of the channel says that all of it is decided.
        let mut byte = [0];
        assert_eq!(Remote::new(&mut node, channel, key, PATIENCE).get(0, &mut byte), Ok(()));
        let valid = region.count_valid();
        assert_eq!((valid, byte), (64, [7]), "what lay in the ring was served");
        std::thread::sleep(NAP / 4);
        assert_eq!(region.count_valid(), valid);
        answered.send(()).expect("it serves");
    });
}

/// A put whose payload stops in the middle.
#[test]
fn a_budget_goes_with_each_operation_on_memory() {
    let address = format!("shm:cutthrough-budget-{}", std::process::id());
    let mut owner = Endpoint::open(Config::default()).expect("an endpoint");
    owner.listen(&address).expect("a free name");
    let mut node = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            let mut node = Over::node(Config::default(), Settings::default());
            let channel = node.connect(&address, PATIENCE).expect("a channel");
            (node, channel)
        });
        let Ok(cutthrough::Event::Opened(_)) = owner.wait(Some(PATIENCE)) else { panic!("nobody comes") };
        connecting.join().expect("the other thread")
    });
    let here = Region::new(4096, 4096);
    let mut remote = Remote::new(&mut node.0, node.1, Key(1), NAP / 10);
    for (number, operation) in OPERATIONS.into_iter().enumerate() {
        assert_eq!(operation(&mut remote, &here), Err(CallError::Late.into()));
        let mut requests = 0;
        while let Some(event) = owner.poll() {
            let cutthrough::Event::Message(message) = event else { panic!("{event:?}") };
            // A request says how much time is left in the six bytes behind its arguments.
            let control = message.control();
            if control[0] == 1 {
                assert_eq!(control[1] & 2, 2, "operation {number} has no budget");
                let at = 16 + usize::from(control[2]);
                let mut budget = [0; 8];
                budget[..6].copy_from_slice(&control[at..at + 6]);
                let budget = Duration::from_nanos(u64::from_le_bytes(budget));
                assert!(budget > Duration::ZERO && budget <= NAP / 10, "operation {number}: {budget:?}");
                requests += 1;
            }
        }
        assert!(requests > 0, "operation {number}");
    }
}

/// Requests that were put off were not counted any more when their channel had ended.
fn who_comes_again_has_as_many_requests_in_service_as_before(over: Over) {
    let put_off = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&put_off);
    let settings = Settings { serve: 2, ..Settings::default() };
    let (server, mut node, channel) = over.serve_with(small(), settings, |node| {
        node.short(SLOW, Args::Any, move |request| its.lock().expect("the list").push(request.defer()));
    });
    let wait_until = |what: &str, done: &dyn Fn(&[Deferred]) -> bool| {
        let since = Instant::now();
        while !done(&put_off.lock().expect("the list")) {
            assert!(since.elapsed() < PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    for _ in 0..2 {
        node.request(channel, SLOW, &[]).expect("room");
    }
    wait_until("both come", &|all| all.len() == 2);
    node.close(channel);
    wait_until("the server knows", &|all| all.iter().all(Deferred::is_over));
    let channel = node.connect(&server.address, PATIENCE).expect("a channel");
    assert_eq!(node.call(channel, SLOW, &[], PATIENCE).map(drop), Err(CallError::Failed(Failure::Busy).into()));
    // Once they are thrown away, there is room for others.
    put_off.lock().expect("the list").clear();
    let since = Instant::now();
    while put_off.lock().expect("the list").is_empty() {
        assert!(since.elapsed() < PATIENCE, "there is room for no other");
        match node.call(channel, SLOW, &[], NAP).map_err(CallError::from) {
            Err(CallError::Late | CallError::Failed(Failure::Busy)) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// A node with a channel to another, and the other's channel to it.
fn joined(far: &mut Node, address: &str) -> (Node, Channel) {
    let mut node = Over::node(small(), Settings::default());
    let channel = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| node.connect(address, PATIENCE).expect("a channel"));
        let Ok(Event::Opened(channel)) = far.wait(Some(PATIENCE)) else { panic!("nobody comes") };
        connecting.join().expect("the other thread");
        channel
    });
    (node, channel)
}

/// Answers that waited for one peer kept requests to all others waiting.
#[test]
fn who_takes_no_answers_in_stands_in_nobody_elses_way() {
    let (mut far, address) = Over::Shm.listening(small(), Settings::default());
    far.short(SLOW, Args::Any, |request| request.reply(&[1]));
    let (mut idle, to_idle) = joined(&mut far, &address);
    let (mut other, to_other) = joined(&mut far, &address);
    let channel = idle.channels().next().expect("a channel");
    // More answers than there is room for.
    for _ in 0..40 {
        idle.request(channel, SLOW, &[]).expect("the requests are taken");
        assert!(far.poll().is_none());
    }
    let little = Duration::from_millis(20);
    assert!(far.wait_for_room(to_idle, Some(little)).is_err(), "there is room for all of the answers");
    assert_eq!(far.wait_for_room(to_other, Some(little)), Ok(()));
    let answered = (0..1000).filter(|_| matches!((far.poll(), idle.poll()), (_, Some(Event::Replied(_)))));
    assert_eq!(answered.count(), 40);
    assert_eq!(far.wait_for_room(to_idle, Some(little)), Ok(()));
    drop(other.poll());
}
