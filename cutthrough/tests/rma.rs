//! Put, get, atomics and batches of pages through their public interface, over shared memory and over UDP.
#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

mod two;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cutthrough::am::{Body, CallError, Failure, Node, RequestError, Service};
use cutthrough::rma::{Extent, Key, Owner, Region, Remote};
use cutthrough::{Channel, Config, Counter, Endpoint, Event};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use two::{Over, PATIENCE, Server, small};

over_both! {
    what_is_put_is_got, lists_and_strides_are_as_a_model_says, atomics_are_atomic,
    nothing_outside_of_a_region_is_touched, pages_go_to_exact_slots, arriving_pages_are_seen_one_by_one,
    a_dead_owner_leaves_a_list_of_what_is_valid, an_owner_that_ends_leaves_a_list_of_what_was_stored,
    a_late_owner_leaves_a_list_of_what_was_stored, a_refused_batch_moves_nothing,
    a_batch_that_is_still_arriving_is_written, what_is_long_is_got_in_pieces,
    pages_of_other_slots_fill_those_that_they_cover, what_is_not_registered_any_more_is_left_alone,
    a_pool_of_no_more_than_a_batch_is_enough,
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
    assert_eq!(refused.map(drop), Err(CallError::Failed(Failure::Refused)));
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
    let end = node.wait_for(call, cutthrough_node::clock::now().after(20_000_000_000));
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
    assert_eq!(remote.fetch_add(4, 1).err(), Some(CallError::Failed(Failure::Refused)), "not aligned");
}

fn nothing_outside_of_a_region_is_touched(over: Over) {
    let region = Region::new(10_000, 1000);
    let (_server, mut node, channel, key) = owning(over, &region);
    let refused = Some(CallError::Failed(Failure::Refused));
    let mut remote = Remote::new(&mut node, channel, key, PATIENCE);
    for (offset, len) in [(10_000, 1), (9_999, 2), (u64::MAX, 1), (u64::MAX - 3, 8), (0, 10_001)] {
        assert_eq!(remote.put(offset, &vec![1; len]).err(), refused, "{offset} {len}");
        assert_eq!(remote.get(offset, &mut vec![1; len]).err(), refused, "{offset} {len}");
        let run = [Extent { offset, len: len as u32 }];
        assert_eq!(remote.put_list(&run, &vec![1; len]).err(), refused, "{offset} {len}");
        assert_eq!(remote.get_list(&run, &mut vec![1; len]).err(), refused, "{offset} {len}");
    }
    assert_eq!(remote.swap(10_000, 1).err(), refused);
    assert!(region.lock().iter().all(|byte| *byte == 0));
    for guess in (0..10).chain([key.0 ^ 1, key.0 ^ 1 << 63, key.0 >> 32, key.0 & 0xffff_ffff]) {
        let mut stranger = Remote::new(&mut node, channel, Key(guess), PATIENCE);
        assert_eq!(stranger.put(0, b"x").err(), refused);
        assert_eq!(stranger.get(0, &mut [0]).err(), refused);
        assert_eq!(stranger.fetch_add(0, 1).err(), refused);
        assert_eq!(stranger.put_list(&[Extent { offset: 0, len: 1 }], b"x").err(), refused);
        assert_eq!(stranger.get_list(&[Extent { offset: 0, len: 1 }], &mut [0]).err(), refused);
    }
    assert!(region.lock().iter().all(|byte| *byte == 0));
}

/// An operation that had found its region, and waited for its bytes, was done also where it was unregistered meanwhile.
fn what_is_not_registered_any_more_is_left_alone(over: Over) {
    type Operation = fn(&mut Remote<'_>) -> Result<(), CallError>;
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
        assert_eq!(end, Err(CallError::Failed(Failure::Refused)), "{name}");
        assert!(region.lock().iter().all(|byte| *byte == 7), "{name}");
    }
}

/// An owner whose answer was too short left memory as it was, and nobody was told.
#[test]
fn an_answer_of_another_length_is_no_answer() {
    let name = format!("cutthrough-short-{}.sock", std::process::id());
    let address = format!("shm:{}", std::env::temp_dir().join(name).display());
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
            assert_eq!(got, Err(CallError::Failed(Failure::TooLong)), "{len} bytes for 100");
        } else {
            // A number has 8 bytes, as arguments.
            assert_eq!(remote.fetch_add(0, 1), Err(CallError::Failed(Failure::Arguments)));
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

/// Slots in an order without rhyme.
fn shuffled(many: u32) -> Vec<u32> {
    let mut slots: Vec<u32> = (0..many).collect();
    slots.sort_by_key(|slot| slot.wrapping_mul(2_654_435_761) ^ 0x5bd1);
    slots
}

fn pages_go_to_exact_slots(over: Over) {
    let many = 500;
    let there = Region::new(many as usize * PAGE as usize, PAGE);
    let (_server, mut node, channel, key) = owning(over, &there);
    let here = Region::new(many as usize * PAGE as usize, PAGE);
    for (slot, page) in (0..).zip(here.lock().chunks_exact_mut(PAGE as usize)) {
        page.copy_from_slice(&pattern(slot, PAGE as usize));
    }
    let moves: Vec<(u32, u32)> = shuffled(many).into_iter().zip(0..many).collect();
    let mut remote = Remote::new(&mut node, channel, key, PATIENCE);
    remote.store_pages(&here, &moves[..400]).expect("all pages");
    assert_eq!(there.count_valid(), 400);
    for (from, to) in &moves {
        let start = *to as usize * PAGE as usize;
        let valid = there.is_valid(*to);
        assert_eq!(valid, *to < 400);
        let expected = if valid { pattern(*from, PAGE as usize) } else { vec![0; PAGE as usize] };
        assert!(there.lock()[start..start + PAGE as usize] == expected, "slot {to}");
    }
    // And back, to other slots.
    let back: Vec<(u32, u32)> = (0..400).map(|slot| (slot, 399 - slot)).collect();
    let into = Region::new(400 * PAGE as usize, PAGE);
    remote.fetch_pages(&into, &back).expect("all pages");
    assert_eq!(into.count_valid(), 400);
    for (from, to) in &back {
        let start = *to as usize * PAGE as usize;
        let expected = pattern(moves[*from as usize].0, PAGE as usize);
        assert!(into.lock()[start..start + PAGE as usize] == expected, "slot {to}");
    }
}

/// A batch with its list was longer than the pool: it was never sent, and the owner taken for late.
fn a_pool_of_no_more_than_a_batch_is_enough(over: Over) {
    for (pool, page) in [(64 << 10, PAGE), (4096, 1024)] {
        let there = Region::new(1 << 20, page);
        let (server, _, _, key) = owning(over, &there);
        let mut node = Over::node(Config { pool_bytes: pool, ..Config::default() }, Default::default());
        let channel = node.connect(&server.address, PATIENCE).expect("a channel");
        let mut remote = Remote::new(&mut node, channel, key, PATIENCE / 4);
        let four = 4 * page as usize;
        let here = Region::new(four, page);
        here.lock().copy_from_slice(&pattern(page, four));
        let moves: Vec<(u32, u32)> = (0..4).map(|slot| (slot, slot)).collect();
        remote.store_pages(&here, &moves).expect("all pages");
        assert_eq!(there.count_valid(), 4);
        assert!(there.lock()[..four] == pattern(page, four));
        let back = Region::new(four, page);
        remote.fetch_pages(&back, &moves).expect("all pages");
        assert!(back.lock()[..] == pattern(page, four));
        // A run that is cut, and more runs than the pool has room to list.
        let runs: Vec<Extent> =
            [Extent { offset: 3, len: 200_000 }].into_iter().chain(Extent::strided(300_000, 1, 7, 1000)).collect();
        let bytes = pattern(1, 201_000);
        remote.put_list(&runs, &bytes).expect("in the region");
        let mut got = vec![0; bytes.len()];
        remote.get_list(&runs, &mut got).expect("in the region");
        assert!(got == bytes);
        // A page that fills the pool leaves no room to say where it belongs; for it there is room where it comes from.
        let long = Region::new(pool as usize, pool as u32);
        let error = remote.store_pages(&long, &[(0, 1)]).expect_err("it fits nowhere");
        assert_eq!((error.error, error.valid), (CallError::NotSent(RequestError::Payload), vec![Some(false)]));
        remote.fetch_pages(&long, &[(1, 0)]).expect("its slot");
        assert!(long.lock()[..] == there.lock()[pool as usize..2 * pool as usize]);
    }
}

/// Every slot is valid that a page has filled from end to end, however long the slots are that pages come from.
fn pages_of_other_slots_fill_those_that_they_cover(over: Over) {
    // The last slot is shorter.
    let there = Region::new(10 * 1024 + 512, 1024);
    let (_server, mut node, channel, key) = owning(over, &there);
    let mut remote = Remote::new(&mut node, channel, key, PATIENCE);
    let valid = || (0..11).filter(|slot| there.is_valid(*slot)).collect::<Vec<_>>();
    remote.store_pages(&Region::new(2048, 2048), &[(0, 1)]).expect("it lies inside");
    assert_eq!(valid(), [2, 3]);
    remote.store_pages(&Region::new(1536, 1536), &[(0, 3), (0, 6)]).expect("it lies inside");
    assert_eq!(valid(), [2, 3, 5, 9, 10]);
    remote.store_pages(&Region::new(512, 512), &[(0, 0), (0, 1), (0, 20)]).expect("it lies inside");
    assert_eq!(valid(), [2, 3, 5, 9, 10]);
}

/// An owner that its test polls, and whoever has a channel to it, on a thread of its own: what that comes to.
fn polled<R: Send>(
    over: Over,
    region: &Region,
    ask: impl FnOnce(&mut Node, Channel, Key) -> R + Send,
    serve: impl FnOnce(Node, &dyn Fn() -> bool),
) -> R {
    let (mut owner, address) = over.listening(Config::default(), Default::default());
    let key = Owner::new(&mut owner).register(region);
    std::thread::scope(|scope| {
        let asking = scope.spawn(move || {
            let mut node = Over::node(Config::default(), Default::default());
            let channel = node.connect(&address, PATIENCE).expect("a channel");
            ask(&mut node, channel, key)
        });
        serve(owner, &|| asking.is_finished());
        asking.join().expect("no panic")
    })
}

/// Between two polls the owner sees what has come so far: no poll takes all of it in.
fn arriving_pages_are_seen_one_by_one(over: Over) {
    let many = 2000;
    let there = Region::new(many as usize * 4096, 4096);
    let mut seen = Vec::new();
    let store = |node: &mut Node, channel, key| {
        let here = Region::new(many as usize * 4096, 4096);
        let moves: Vec<(u32, u32)> = (0..many).zip(shuffled(many)).collect();
        Remote::new(node, channel, key, PATIENCE).store_pages(&here, &moves)
    };
    let stored = polled(over, &there, store, |mut owner, is_over| {
        while !is_over() {
            let _ = owner.poll();
            seen.push(there.count_valid());
        }
    });
    assert_eq!((stored, there.count_valid()), (Ok(()), many));
    assert!(seen.is_sorted(), "a page is valid no more");
    assert!(seen.iter().any(|valid| (1..many).contains(valid)), "all pages came at once");
}

/// Lets an owner serve until something has come and then so many polls more, and ends it.
fn serve_a_while(mut owner: Node, polls: u32, has_come: impl Fn() -> bool) {
    let since = Instant::now();
    while !has_come() && since.elapsed() < PATIENCE {
        let _ = owner.poll();
    }
    (0..polls).for_each(|_| drop(owner.poll()));
}

fn a_dead_owner_leaves_a_list_of_what_is_valid(over: Over) {
    // More than the last polls of the owner take in: 64 messages of four pages each.
    let many = 3000;
    let there = Region::new(many as usize * PAGE as usize, PAGE);
    there.lock().fill(0x77);
    let into = Region::new(many as usize * PAGE as usize, PAGE);
    let moves: Vec<(u32, u32)> = (0..many).map(|slot| (slot, slot)).collect();
    let fetch = |node: &mut Node, channel, key| Remote::new(node, channel, key, PATIENCE).fetch_pages(&into, &moves);
    let error = polled(over, &there, fetch, |owner, _| serve_a_while(owner, 3, || into.count_valid() >= 100));
    let error = error.expect_err("the owner is gone");
    assert!(matches!(error.error, CallError::Closed(_) | CallError::NotSent(_)), "{error}");
    let counted = error.valid.iter().filter(|valid| **valid == Some(true)).count();
    assert!((100..many as usize).contains(&counted), "{counted}");
    for slot in 0..many {
        assert_eq!(error.valid[slot as usize], Some(into.is_valid(slot)));
        let byte = into.lock()[slot as usize * PAGE as usize + 5];
        assert_eq!(error.valid[slot as usize], Some(byte == 0x77));
    }
}

/// What was said not to be valid might be there all the same.
fn an_owner_that_ends_leaves_a_list_of_what_was_stored(over: Over) {
    let many = 3000;
    let here = Region::new(many as usize * PAGE as usize, PAGE);
    let moves: Vec<(u32, u32)> = (0..many).zip(shuffled(many)).collect();
    for polls in [0, 1, 2, 5] {
        let there = Region::new(many as usize * PAGE as usize, PAGE);
        let store =
            |node: &mut Node, channel, key| Remote::new(node, channel, key, PATIENCE).store_pages(&here, &moves);
        let error = polled(over, &there, store, |owner, _| serve_a_while(owner, polls, || there.count_valid() >= 100));
        let error = error.expect_err("the owner is gone");
        assert!(matches!(error.error, CallError::Closed(_) | CallError::NotSent(_)), "{error}");
        for ((_, slot), valid) in moves.iter().zip(&error.valid) {
            assert!(valid.is_none_or(|valid| valid == there.is_valid(*slot)), "slot {slot}: {valid:?}");
        }
        // Eight messages of four pages may be under way.
        let unknown = error.valid.iter().filter(|valid| valid.is_none()).count();
        assert!(unknown <= 8 * 4, "of {unknown} pages it is not known");
        let known = error.valid.iter().filter(|valid| **valid == Some(true)).count();
        assert!(
            known >= 100 && error.to_string().starts_with(&format!("{known} of 3000 pages have arrived")),
            "{error}"
        );
    }
}

/// Who lives and answers after the time is over, but soon, makes known what has become of every page.
fn a_late_owner_leaves_a_list_of_what_was_stored(over: Over) {
    const TIME: Duration = Duration::from_millis(300);
    // More than are under way at a time.
    let many = 100;
    let here = Region::new(many as usize * PAGE as usize, PAGE);
    let moves: Vec<(u32, u32)> = (0..many).zip(shuffled(many)).collect();
    let since = Instant::now();
    loop {
        let there = Region::new(many as usize * PAGE as usize, PAGE);
        let (joined, go) = (AtomicBool::new(false), Barrier::new(2));
        let store = |node: &mut Node, channel, key| {
            joined.store(true, Ordering::Relaxed);
            go.wait();
            let stored = Remote::new(node, channel, key, TIME).store_pages(&here, &moves);
            // By then everything that was asked for before has been done, or never will be.
            assert_eq!(Remote::new(node, channel, key, PATIENCE).get(0, &mut [0]), Ok(()));
            stored
        };
        let stored = polled(over, &there, store, |mut owner, is_over| {
            while !joined.load(Ordering::Relaxed) {
                let _ = owner.poll();
            }
            go.wait();
            std::thread::sleep(TIME + TIME / 3);
            while !is_over() {
                let _ = owner.poll();
            }
        });
        let valid = stored.as_ref().map_or_else(|error| &error.valid[..], |()| &[]);
        for ((_, slot), valid) in moves.iter().zip(valid) {
            assert!(valid.is_none_or(|valid| valid == there.is_valid(*slot)), "slot {slot}: {valid:?}");
        }
        let known = valid.iter().filter(|valid| **valid == Some(true)).count();
        if known > 0 && !valid.contains(&None) {
            assert!(known < many as usize && stored.is_err_and(|error| error.error == CallError::Late));
            return;
        }
        // Either side was kept from running for so long that it was in time after all, or far too late.
        assert!(since.elapsed() < PATIENCE, "{stored:?}");
    }
}

/// Each message of a batch rang for an owner that slept, until that had woken.
#[test]
fn an_owner_that_sleeps_is_woken_once_for_a_batch() {
    // Eight messages: as many as are under way at a time.
    let slots = 8 * 4;
    let there = Region::new(slots as usize * PAGE as usize, PAGE);
    let here = Region::new(slots as usize * PAGE as usize, PAGE);
    let moves: Vec<(u32, u32)> = (0..slots).zip(shuffled(slots)).collect();
    for fetches in [false, true] {
        let armed = Barrier::new(2);
        let batch = |node: &mut Node, channel, key| {
            armed.wait();
            let before = node.endpoint().counter(Counter::WakesSent);
            let mut remote = Remote::new(node, channel, key, PATIENCE);
            let moved = if fetches { remote.fetch_pages(&here, &moves) } else { remote.store_pages(&here, &moves) };
            (moved, node.endpoint().counter(Counter::WakesSent) - before)
        };
        let (moved, wakes) = polled(Over::Shm, &there, batch, |mut owner, is_over| {
            while owner.channels().next().is_none() || owner.arm() == Some(Duration::ZERO) {
                let _ = owner.poll();
            }
            armed.wait();
            // The window fills while it sleeps.
            std::thread::sleep(Duration::from_millis(200));
            while !is_over() {
                let _ = owner.poll();
            }
        });
        assert_eq!((moved, wakes), (Ok(()), 1));
    }
}

fn a_refused_batch_moves_nothing(over: Over) {
    let there = Region::new(10 * 4096, 4096);
    let (server, mut node, channel, key) = owning(over, &there);
    let here = Region::new(20 * 4096, 4096);
    here.lock().fill(3);
    let mut remote = Remote::new(&mut node, channel, key, PATIENCE);
    // One slot of the batch does not exist.
    let error = remote.store_pages(&here, &[(0, 0), (1, 1), (2, 10)]).expect_err("slot 10");
    assert_eq!((error.error, error.valid), (CallError::Failed(Failure::Refused), vec![Some(false); 3]));
    assert!(there.lock().iter().all(|byte| *byte == 0) && there.count_valid() == 0);
    let error = remote.fetch_pages(&here, &[(0, 0), (10, 1)]).expect_err("slot 10");
    assert_eq!((error.error, error.valid), (CallError::Failed(Failure::Refused), vec![Some(false); 2]));
    assert!(!here.is_valid(0));
    // The owner lives. One that does not answer ends the call in time.
    remote.store_pages(&here, &[(0, 9)]).expect("a slot");
    assert!(there.is_valid(9));
    let silent = server.end();
    let mut hurried = Remote::new(&mut node, channel, key, Duration::from_millis(20));
    let error = hurried.fetch_pages(&here, &[(0, 0)]).expect_err("nobody serves");
    assert_eq!((error.error, error.valid), (CallError::Late, vec![Some(false)]));
    drop(silent);
}

/// Who has given too little memory hears of it by a panic; what was on its way goes back to where it came from.
#[test]
fn a_batch_that_panics_holds_nothing_back() {
    let config = || Config { pool_bytes: 1 << 20, ..Config::default() };
    let region = Region::new(1 << 20, PAGE);
    let (mut node, address) = Over::Shm.listening(config(), Default::default());
    let key = Owner::new(&mut node).register(&region);
    let owner = Service::spawn(node, |_| ()).expect("a thread");
    let mut node = Over::node(config(), Default::default());
    let channel = node.connect(&address, PATIENCE).expect("a channel");
    let runs: Vec<Extent> = Extent::strided(0, PAGE, u64::from(PAGE), 64).collect();
    let free = || {
        owner.with(|node| {
            let its = node.channels().next().expect("a channel");
            std::iter::from_fn(|| node.page(its, 4096).ok()).collect::<Vec<_>>().len()
        })
    };
    let mut all = vec![0; 1 << 20];
    Remote::new(&mut node, channel, key, PATIENCE).get_list(&runs, &mut all).expect("in the region");
    let before = free();
    for _ in 0..4 {
        let mut remote = Remote::new(&mut node, channel, key, PATIENCE);
        let panics = AssertUnwindSafe(|| remote.get_list(&runs, &mut all[..100]));
        catch_unwind(panics).expect_err("there is too little memory");
    }
    Remote::new(&mut node, channel, key, PATIENCE).get_list(&runs, &mut all).expect("in the region");
    let since = Instant::now();
    while free() < before {
        assert!(node.poll().is_none(), "told of an operation of memory");
        assert!(since.elapsed() < PATIENCE / 4, "{} of {before} pages are free", free());
        std::thread::sleep(Duration::from_millis(1));
    }
}
