//! Put, get, atomics and batches of pages ([`pages`]), also of regions that somebody has locked ([`locked`]), and by a
//! client that many share ([`shared`]), through their public interface, over shared memory and over UDP.
#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

mod locked;
mod pages;
mod shared;
#[path = "../two/mod.rs"]
mod two;

use std::time::Duration;

use cutthrough::am::{Body, CallError, Failure, Node, Unanswered};
use cutthrough::rma::{Extent, Key, Owner, Region, Remote};
use cutthrough::{Channel, Config, Endpoint, Event};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use two::{Over, PATIENCE, Server, small};

over_both! {
    what_is_put_is_got, lists_and_strides_are_as_a_model_says, atomics_are_atomic,
    nothing_outside_of_a_region_is_touched, a_batch_that_is_still_arriving_is_written, what_is_long_is_got_in_pieces,
    what_is_not_registered_any_more_is_left_alone,
}

const PAGE: u32 = 16 << 10;

fn owning(over: Over, region: &Region) -> (Server, Node, Channel, Key) {
    let mut key = None;
    let (server, node, channel) = over.serve_with(Config::default(), Default::default(), |node| {
        key = Some(Owner::new(node).register(region));
    });
    (server, node, channel, key.expect("a key"))
}

fn pattern(seed: u32, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i as u32).wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(97)).to_le_bytes()[2]).collect()
}

fn what_is_put_is_got(over: Over) {
    let region = Region::new(4 << 20, PAGE);
    let (_server, mut node, channel, key) = owning(over, &region);
    let mut remote = Remote::new(&mut node, channel, key, PATIENCE);
    for (offset, len) in [(0, 1), (7, 64), (4095, 4097), (100_000, 300_000), (1 << 20, 3 << 20), (5, 0)] {
        let bytes = pattern(len as u32, len);
        remote.put(offset, &bytes).expect("in the region");
        let start = offset as usize;
        assert_eq!(region.lock()[start..start + len], bytes);
        let mut back = vec![0; len];
        remote.get(offset, &mut back).expect("in the region");
        assert_eq!(back, bytes);
    }
}

/// What the owner says to whoever knows no key of it.
const NO_REGION: &str = "no region has that key";
/// What it says of what does not lie in a region.
const OUTSIDE: &str = "outside of the region, not aligned, or too much";

/// A refusal, in the owner's words.
fn refused(words: &str) -> Unanswered {
    let mut refused = Unanswered::from(CallError::Failed(Failure::Refused));
    refused.args = words.into();
    refused
}

/// No request makes the owner keep more than a piece for whoever does not take it.
fn what_is_long_is_got_in_pieces(over: Over) {
    let region = Region::new(20 << 20, PAGE);
    let (_server, mut node, channel, key) = owning(over, &region);
    let len = (17 << 20) + 5;
    let bytes = pattern(1, len);
    region.lock()[4096..4096 + len].copy_from_slice(&bytes);
    let mut remote = Remote::new(&mut node, channel, key, PATIENCE);
    let mut back = vec![0; len];
    remote.get(4096, &mut back).expect("in the region");
    assert!(back == bytes);
    // The owner's handler of this operation, asked for more than a piece at once.
    let get = cutthrough::am::RESERVED + 1;
    let [low, high] = [key.0 as u32, (key.0 >> 32) as u32];
    let refused = node.call(channel, get, &[low, high, 0, 0, len as u32], PATIENCE);
    assert_eq!(refused.map(drop).map_err(CallError::from), Err(CallError::Failed(Failure::Refused)));
}

fn lists_and_strides_are_as_a_model_says(over: Over) {
    let region = Region::new(1 << 20, PAGE);
    let (_server, mut node, channel, key) = owning(over, &region);
    let mut remote = Remote::new(&mut node, channel, key, PATIENCE);
    let run = (0_u64..(1 << 20) - 5000, 0_u32..5000).prop_map(|(offset, len)| Extent { offset, len });
    let mut model = vec![0; 1 << 20];
    let mut runner = TestRunner::new(ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() });
    let remote = std::cell::RefCell::new(&mut remote);
    let model = std::cell::RefCell::new(&mut model);
    runner
        .run(&(proptest::collection::vec(run, 0..100), any::<u32>()), |(runs, seed)| {
            let (mut remote, mut model) = (remote.borrow_mut(), model.borrow_mut());
            let total = runs.iter().map(|run| run.len as usize).sum();
            let bytes = pattern(seed, total);
            remote.put_list(&runs, &bytes).expect("in the region");
            let mut at = 0;
            for run in &runs {
                let (start, len) = (run.offset as usize, run.len as usize);
                model[start..start + len].copy_from_slice(&bytes[at..at + len]);
                at += len;
            }
            prop_assert!(region.lock()[..] == model[..]);
            let mut back = vec![0; total];
            remote.get_list(&runs, &mut back).expect("in the region");
            let expected: Vec<u8> = runs
                .iter()
                .flat_map(|run| model[run.offset as usize..run.offset as usize + run.len as usize].to_vec())
                .collect();
            prop_assert!(back == expected);
            Ok(())
        })
        .expect("as the model says");
    // A column of a matrix, and a run that is longer than a batch.
    let mut remote = remote.borrow_mut();
    let column: Vec<Extent> = Extent::strided(24, 8, 1024, 100).collect();
    remote.put_list(&column, &[9; 800]).expect("in the region");
    assert!((0..100).all(|row| region.lock()[row * 1024 + 24..row * 1024 + 32] == [9; 8]));
    // More runs than one message lists.
    let bytes = pattern(9, 3000);
    let many: Vec<Extent> = Extent::strided(5, 1, 2, 3000).collect();
    remote.put_list(&many, &bytes).expect("in the region");
    assert!((0..3000).all(|run| region.lock()[5 + 2 * run] == bytes[run]));
    let mut back = vec![0; 3000];
    remote.get_list(&many, &mut back).expect("in the region");
    assert!(back == bytes);
    let long = [Extent { offset: 1, len: 700_000 }];
    let bytes = pattern(5, 700_000);
    remote.put_list(&long, &bytes).expect("in the region");
    let mut back = vec![0; 700_000];
    remote.get_list(&long, &mut back).expect("in the region");
    assert!(back == bytes);
}

/// A batch for which there was no page when it came was refused.
fn a_batch_that_is_still_arriving_is_written(over: Over) {
    const SCATTER: u16 = cutthrough::am::RESERVED + 3;
    let region = Region::new(1 << 20, PAGE);
    let (_server, mut node, channel, key) = owning(over, &region);
    let bytes = pattern(3, 300_000);
    // One run: its offset, its length, and its bytes. From private memory they come as they are read.
    let list = [&5_u64.to_le_bytes()[..], &300_000_u64.to_le_bytes()].concat();
    let args = [&key.0.to_le_bytes()[..], &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
    let payload = [list, bytes.clone()].concat();
    let call = node.ask(channel, SCATTER).args(&args).body(Body::Copy(&payload)).send().expect("room");
    let end = node.wait_for(call, PATIENCE);
    assert_eq!(end.map(drop), Ok(()));
    assert_eq!(region.lock()[5..300_005], bytes);
}

fn atomics_are_atomic(over: Over) {
    let region = Region::new(4096, 4096);
    let (server, mut node, channel, key) = owning(over, &region);
    let other = {
        let address = server.address.clone();
        std::thread::spawn(move || {
            let mut node = Over::node(Config::default(), Default::default());
            let channel = node.connect(&address, PATIENCE).expect("a channel");
            let mut remote = Remote::new(&mut node, channel, key, PATIENCE);
            (0..500).map(|_| remote.fetch_add(8, 3).expect("a cell")).collect::<Vec<u64>>()
        })
    };
    let mut remote = Remote::new(&mut node, channel, key, PATIENCE);
    let mut seen: Vec<u64> = (0..500).map(|_| remote.fetch_add(8, 3).expect("a cell")).collect();
    seen.extend(other.join().expect("the other thread"));
    seen.sort_unstable();
    assert!(seen.iter().zip(0..).all(|(value, i)| *value == i * 3), "each sum is seen once");
    assert_eq!(remote.swap(8, u64::MAX), Ok(3000));
    assert_eq!(remote.compare_swap(8, 1, 5), Ok(u64::MAX));
    assert_eq!(remote.compare_swap(8, u64::MAX, 5), Ok(u64::MAX));
    assert_eq!(remote.fetch_add(8, u64::MAX), Ok(5));
    assert_eq!(remote.swap(8, 0), Ok(4));
    assert_eq!(remote.fetch_add(4, 1).err(), Some(refused(OUTSIDE)), "not aligned");
}

fn nothing_outside_of_a_region_is_touched(over: Over) {
    let region = Region::new(10_000, 1000);
    let (_server, mut node, channel, key) = owning(over, &region);
    let outside = Some(refused(OUTSIDE));
    let mut remote = Remote::new(&mut node, channel, key, PATIENCE);
    for (offset, len) in [(10_000, 1), (9_999, 2), (u64::MAX, 1), (u64::MAX - 3, 8), (0, 10_001)] {
        assert_eq!(remote.put(offset, &vec![1; len]).err(), outside, "{offset} {len}");
        assert_eq!(remote.get(offset, &mut vec![1; len]).err(), outside, "{offset} {len}");
        let run = [Extent { offset, len: len as u32 }];
        assert_eq!(remote.put_list(&run, &vec![1; len]).err(), outside, "{offset} {len}");
        assert_eq!(remote.get_list(&run, &mut vec![1; len]).err(), outside, "{offset} {len}");
    }
    assert_eq!(remote.swap(10_000, 1).err(), outside);
    assert!(region.lock().iter().all(|byte| *byte == 0));
    let unknown = Some(refused(NO_REGION));
    for guess in (0..10).chain([key.0 ^ 1, key.0 ^ 1 << 63, key.0 >> 32, key.0 & 0xffff_ffff]) {
        let mut stranger = Remote::new(&mut node, channel, Key(guess), PATIENCE);
        assert_eq!(stranger.put(0, b"x").err(), unknown);
        assert_eq!(stranger.get(0, &mut [0]).err(), unknown);
        assert_eq!(stranger.fetch_add(0, 1).err(), unknown);
        assert_eq!(stranger.put_list(&[Extent { offset: 0, len: 1 }], b"x").err(), unknown);
        assert_eq!(stranger.get_list(&[Extent { offset: 0, len: 1 }], &mut [0]).err(), unknown);
    }
    assert!(region.lock().iter().all(|byte| *byte == 0));
}

/// An operation that had found its region, and waited for its bytes, was done also where it was unregistered meanwhile.
fn what_is_not_registered_any_more_is_left_alone(over: Over) {
    type Operation = fn(&mut Remote<'_>) -> Result<(), Unanswered>;
    let operations: [(&str, Operation); 5] = [
        ("put", |remote| remote.put(0, &[1; 100])),
        ("get", |remote| remote.get(0, &mut [0; 100])),
        ("atomic", |remote| remote.swap(0, 1).map(drop)),
        ("scatter", |remote| remote.put_list(&[Extent { offset: 0, len: 100 }], &[1; 100])),
        ("gather", |remote| remote.get_list(&[Extent { offset: 0, len: 100 }], &mut [0; 100])),
    ];
    let region = Region::new(4096, 4096);
    let mut owner = None;
    let (_server, mut node, channel) = over.serve_with(Config::default(), Default::default(), |node| {
        owner = Some(Owner::new(node));
    });
    let owner = owner.expect("an owner");
    for (name, operation) in operations {
        let key = owner.register(&region);
        let mut bytes = region.lock();
        bytes.fill(0);
        let end = std::thread::scope(|scope| {
            let asking = scope.spawn(|| operation(&mut Remote::new(&mut node, channel, key, PATIENCE)));
            // By then the owner's thread waits for the bytes.
            std::thread::sleep(Duration::from_millis(100));
            owner.unregister(key);
            bytes.fill(7);
            drop(bytes);
            asking.join().expect("no panic")
        });
        assert_eq!(end, Err(refused(NO_REGION)), "{name}");
        assert!(region.lock().iter().all(|byte| *byte == 7), "{name}");
    }
}

/// An owner whose answer was too short left memory as it was, and nobody was told.
#[test]
fn an_answer_of_another_length_is_no_answer() {
    let address = format!("shm:cutthrough-short-{}", std::process::id());
    for len in [0_usize, 1, 99, 101, 5000] {
        let mut liar = Endpoint::open(Config::default()).expect("an endpoint");
        liar.listen(&address).expect("a free name");
        let answering = std::thread::spawn(move || {
            let request = loop {
                if let Event::Message(request) = liar.wait(Some(PATIENCE)).expect("a request") {
                    break request;
                }
            };
            // A reply without arguments, to the call whose number the request has.
            let control = [&[2, 0, 0, 0, 0, 0, 0, 0], &request.control()[8..16]].concat();
            let reply = liar.outgoing(request.channel()).expect("room").write(&control);
            reply.attach_copy(&vec![7; len]).send().expect("an open channel");
            liar
        });
        let mut node = Over::node(Config::default(), Default::default());
        let channel = node.connect(&address, PATIENCE).expect("a channel");
        let mut remote = Remote::new(&mut node, channel, Key(1), PATIENCE);
        if len > 0 {
            let got = remote.get(0, &mut [0; 100]);
            assert_eq!(got, Err(CallError::Failed(Failure::TooLong).into()), "{len} bytes for 100");
        } else {
            // A number has 8 bytes, as arguments.
            assert_eq!(remote.fetch_add(0, 1), Err(CallError::Failed(Failure::Arguments).into()));
        }
        drop(answering.join().expect("the owner"));
    }
}

/// They were numbers from 0 on.
#[test]
fn nobody_guesses_a_key() {
    let region = Region::new(10, 10);
    let mut node = Over::node(Config::default(), Default::default());
    let owner = Owner::new(&mut node);
    let keys: Vec<u64> = (0..64).map(|_| owner.register(&region).0).collect();
    // Each bit is 1 in some and 0 in others.
    assert_eq!(keys.iter().fold(0, |all, key| all | key), u64::MAX);
    assert_eq!(keys.iter().fold(u64::MAX, |all, key| all & key), 0);
    // An owner of another node gives others.
    let mut node = Over::node(Config::default(), Default::default());
    assert!(!keys.contains(&Owner::new(&mut node).register(&region).0));
}

/// The second owner of a node had all that was registered with the first one refused.
#[test]
fn a_node_has_one_owner() {
    let regions = [1, 2].map(|byte| {
        let region = Region::new(8, 8);
        region.lock().fill(byte);
        region
    });
    let mut keys = Vec::new();
    let (_server, mut node, channel) = Over::Shm.serve(|node| {
        keys.extend(regions.iter().map(|region| Owner::new(node).register(region)));
    });
    for (key, byte) in keys.into_iter().zip([1, 2]) {
        let mut got = [0; 8];
        Remote::new(&mut node, channel, key, PATIENCE).get(0, &mut got).expect("it is registered");
        assert_eq!(got, [byte; 8]);
    }
}

/// A reply that was kept for want of pages waited for those that the next ones lay in, which waited behind it.
#[test]
fn an_owner_with_one_page_answers_whoever_reads_lists() {
    let config = || Config { pool_bytes: 4096, ..small() };
    let region = Region::new(16 * 40_000, PAGE);
    region.lock().copy_from_slice(&pattern(3, 16 * 40_000));
    let runs: Vec<_> = Extent::strided(0, 8, 16, 40_000).collect();
    let expected: Vec<u8> = region.lock().chunks_exact(16).flat_map(|both| both[..8].to_vec()).collect();
    for _ in 0..3 {
        let mut key = None;
        let (_server, mut node, channel) =
            Over::Shm.serve_with(config(), Default::default(), |node| key = Some(Owner::new(node).register(&region)));
        let mut got = vec![0; expected.len()];
        let mut remote = Remote::new(&mut node, channel, key.expect("it was registered"), PATIENCE);
        remote.get_list(&runs, &mut got).expect("all of it");
        assert!(got == expected);
    }
}

/// Two nodes that put straight out of regions that they own waited for each other for ever, beyond any timeout.
#[test]
fn who_polls_with_its_region_locked_is_not_waited_for() {
    let (said, hears) = std::sync::mpsc::channel();
    // Not scoped: threads that hang are left behind.
    std::thread::spawn(move || {
        let region = Region::new(1 << 20, PAGE);
        let mut owner =
            Node::new(Endpoint::open(Config::default()).expect("an endpoint"), cutthrough::am::Settings::default());
        let key = Owner::new(&mut owner).register(&region);
        let address = format!("shm:rma-locked-{}", std::process::id());
        owner.listen(&address).expect("a name");
        let asker = std::thread::spawn(move || {
            let mut node =
                Node::new(Endpoint::open(Config::default()).expect("an endpoint"), cutthrough::am::Settings::default());
            let channel = node.connect(&address, PATIENCE).expect("a channel");
            Remote::new(&mut node, channel, key, Duration::from_secs(1)).fetch_add(0, 1)
        });
        let bytes = region.lock();
        let begun = std::time::Instant::now();
        while !asker.is_finished() && begun.elapsed() < Duration::from_secs(5) {
            let _ = owner.wait(Some(Duration::from_millis(10)));
        }
        drop(bytes);
        let _ = said.send(asker.join().expect("no panic"));
    });
    let answer = hears.recv_timeout(Duration::from_secs(8)).expect("the owner's thread goes on");
    assert_eq!(answer.map_err(|unanswered| unanswered.error), Err(CallError::Failed(Failure::Refused)));
}

/// A put said that there was no place for its reply.
#[test]
fn an_operation_on_a_channel_that_has_ended_says_so() {
    let region = Region::new(1 << 20, PAGE);
    for over in [Over::Shm, Over::Udp] {
        let (server, mut node, channel, key) = owning(over, &region);
        drop(server);
        let mut remote = Remote::new(&mut node, channel, key, PATIENCE);
        while remote.put(0, &[1]).is_ok() {}
        let ended = Err(CallError::NotSent(cutthrough::am::RequestError::Closed));
        assert_eq!(remote.put(0, &[1]).map_err(|unanswered| unanswered.error), ended);
        assert_eq!(remote.put(0, &vec![1; 1 << 18]).map_err(|unanswered| unanswered.error), ended);
        let pages = remote.fetch_pages(&Region::new(PAGE as usize, PAGE), &[(0, 0)]);
        assert_eq!(pages.map_err(|error| error.error.error), ended);
    }
}
