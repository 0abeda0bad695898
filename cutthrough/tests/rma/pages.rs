//! Batches of pages between slots of regions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cutthrough::am::{CallError, Failure, Node, RequestError, Service};
use cutthrough::rma::{Extent, Key, Owner, Region, Remote};
use cutthrough::{Channel, Config, Counter};

use crate::two::{Over, PATIENCE};
use crate::{PAGE, over_both, owning, pattern};

over_both! {
    pages_go_to_exact_slots, arriving_pages_are_seen_one_by_one, a_dead_owner_leaves_a_list_of_what_is_valid,
    an_owner_that_ends_leaves_a_list_of_what_was_stored, what_lay_there_before_is_no_page_that_has_come,
    a_late_owner_leaves_a_list_of_what_was_stored,
    a_refused_batch_moves_nothing, pages_of_other_slots_fill_those_that_they_cover,
    a_pool_of_no_more_than_a_batch_is_enough, an_owner_with_a_small_pool_answers_long_requests,
    what_comes_late_has_arrived, who_waits_for_a_page_has_it_when_it_is_there,
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

/// How long the answers are is for the asking side to say, whose pool is larger.
fn an_owner_with_a_small_pool_answers_long_requests(over: Over) {
    for pool in [96 << 10, 64 << 10, 4096] {
        let there = Region::new(1 << 20, PAGE);
        there.lock().copy_from_slice(&pattern(5, 1 << 20));
        let mut key = None;
        let config = Config { pool_bytes: pool, ..Config::default() };
        let (server, ..) = over.serve_with(config, Default::default(), |node| {
            key = Some(Owner::new(node).register(&there));
        });
        let mut node = Over::node(Config::default(), Default::default());
        let channel = node.connect(&server.address, PATIENCE).expect("a channel");
        let mut remote = Remote::new(&mut node, channel, key.expect("a key"), PATIENCE);
        let mut got = vec![0; 1 << 20];
        remote.get(0, &mut got).expect("in the region");
        assert!(got == pattern(5, 1 << 20), "{pool}");
        let (into, moves) = (Region::new(1 << 20, PAGE), (0..64).map(|slot| (slot, slot)).collect::<Vec<_>>());
        remote.fetch_pages(&into, &moves).expect("all pages");
        assert!(into.lock()[..] == pattern(5, 1 << 20), "{pool}");
        remote.store_pages(&into, &moves).expect("all pages");
        remote.put(0, &got).expect("in the region");
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
        assert_eq!((error.error.error, error.valid), (CallError::NotSent(RequestError::Payload), vec![Some(false)]));
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
    let many = 6000;
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
    // More than the last polls of the owner take in: 64 messages of four or eight pages each.
    let many = 3000;
    let there = Region::new(many as usize * PAGE as usize, PAGE);
    there.lock().fill(0x77);
    let into = Region::new(many as usize * PAGE as usize, PAGE);
    let moves: Vec<(u32, u32)> = (0..many).map(|slot| (slot, slot)).collect();
    let fetch = |node: &mut Node, channel, key| Remote::new(node, channel, key, PATIENCE).fetch_pages(&into, &moves);
    let error = polled(over, &there, fetch, |owner, _| serve_a_while(owner, 3, || into.count_valid() >= 100));
    let error = error.expect_err("the owner is gone");
    assert!(matches!(error.error.error, CallError::Closed(_) | CallError::NotSent(_)), "{error}");
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
    for polls in [0, 1, 2, 4] {
        let there = Region::new(many as usize * PAGE as usize, PAGE);
        let store =
            |node: &mut Node, channel, key| Remote::new(node, channel, key, PATIENCE).store_pages(&here, &moves);
        let error = polled(over, &there, store, |owner, _| serve_a_while(owner, polls, || there.count_valid() >= 100));
        let error = error.expect_err("the owner is gone");
        assert!(matches!(error.error.error, CallError::Closed(_) | CallError::NotSent(_)), "{error}");
        for ((_, slot), valid) in moves.iter().zip(&error.valid) {
            assert!(valid.is_none_or(|valid| valid == there.is_valid(*slot)), "slot {slot}: {valid:?}");
        }
        // Eight messages of four pages may be under way, and over a network of eight.
        let most = 8 * if matches!(over, Over::Shm) { 4 } else { 8 };
        let unknown = error.valid.iter().filter(|valid| valid.is_none()).count();
        assert!(unknown <= most, "of {unknown} pages it is not known");
        let known = error.valid.iter().filter(|valid| **valid == Some(true)).count();
        assert!(
            known >= 100 && error.to_string().starts_with(&format!("{known} of 3000 pages have arrived")),
            "{error}"
        );
    }
}

/// A slot that was filled once was valid for ever: pages of a second batch that never came were taken for there.
fn what_lay_there_before_is_no_page_that_has_come(over: Over) {
    let many = 3000;
    let there = Region::new(many as usize * PAGE as usize, PAGE);
    let here = Region::new(many as usize * PAGE as usize, PAGE);
    let moves: Vec<(u32, u32)> = (0..many).zip(shuffled(many)).collect();
    let store = |node: &mut Node, channel, key| {
        here.lock().fill(1);
        Remote::new(node, channel, key, PATIENCE).store_pages(&here, &moves).expect("all pages");
        assert_eq!(there.count_valid(), many);
        here.lock().fill(2);
        Remote::new(node, channel, key, PATIENCE).store_pages(&here, &moves)
    };
    let second = || there.lock().chunks_exact(PAGE as usize).filter(|page| page[0] == 2).count();
    let error = polled(over, &there, store, |owner, _| serve_a_while(owner, 2, || second() >= 100));
    let error = error.expect_err("the owner is gone");
    for ((_, slot), valid) in moves.iter().zip(&error.valid) {
        let byte = there.lock()[*slot as usize * PAGE as usize];
        assert_eq!(there.is_valid(*slot), byte == 2, "slot {slot} has what was stored by the batch of number {byte}");
        assert!(valid.is_none_or(|valid| valid == there.is_valid(*slot)), "slot {slot}: {valid:?}");
    }
}

/// Who answers in the last of the time, when no other page is sent, makes known what has become of every page.
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
            std::thread::sleep(TIME * 15 / 16);
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
            assert!(known < many as usize && stored.is_err_and(|error| error.error.error == CallError::Late));
            return;
        }
        // Either side was kept from running for so long that it was in time after all, or far too late.
        assert!(since.elapsed() < PATIENCE, "{stored:?}");
    }
}

/// All that is under way when no other page is sent is waited for: what comes then has arrived.
fn what_comes_late_has_arrived(over: Over) {
    const TIME: Duration = Duration::from_millis(300);
    // No more than are under way at a time.
    let many = 32;
    let here = Region::new(many as usize * PAGE as usize, PAGE);
    let moves: Vec<(u32, u32)> = (0..many).map(|slot| (slot, slot)).collect();
    let since = Instant::now();
    loop {
        let there = Region::new(many as usize * PAGE as usize, PAGE);
        let go = Barrier::new(2);
        let store = |node: &mut Node, channel, key| {
            go.wait();
            Remote::new(node, channel, key, TIME).store_pages(&here, &moves)
        };
        let stored = polled(over, &there, store, |mut owner, is_over| {
            while owner.channels().next().is_none() {
                let _ = owner.poll();
            }
            go.wait();
            std::thread::sleep(TIME * 15 / 16);
            while !is_over() {
                let _ = owner.poll();
            }
        });
        match stored {
            Ok(()) => return assert_eq!(there.count_valid(), many),
            // It was kept from running for too long.
            Err(error) => assert!(since.elapsed() < PATIENCE && error.valid.contains(&None), "{error:?}"),
        }
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
    assert_eq!(error.valid, [Some(false); 3]);
    let said =
        "0 of 3 pages have arrived: the handler refused the request: outside of the region, not aligned, or too much";
    assert_eq!(error.to_string(), said);
    assert!(there.lock().iter().all(|byte| *byte == 0) && there.count_valid() == 0);
    let error = remote.fetch_pages(&here, &[(0, 0), (10, 1)]).expect_err("slot 10");
    assert_eq!((error.error.error, error.valid), (CallError::Failed(Failure::Refused), vec![Some(false); 2]));
    assert!(!here.is_valid(0));
    // The owner lives. One that does not answer ends the call in time.
    remote.store_pages(&here, &[(0, 9)]).expect("a slot");
    assert!(there.is_valid(9));
    let silent = server.end();
    let mut hurried = Remote::new(&mut node, channel, key, Duration::from_millis(20));
    let error = hurried.fetch_pages(&here, &[(0, 0)]).expect_err("nobody serves");
    assert_eq!((error.error.error, error.valid), (CallError::Late, vec![Some(false)]));
    drop(silent);
}

/// A slot that lies outside was found when those before it had been sent.
#[test]
fn nothing_is_moved_to_or_from_slots_that_are_not_there() {
    let region = Region::new(256 * PAGE as usize, PAGE);
    let (mut node, address) = Over::Shm.listening(Config::default(), Default::default());
    let key = Owner::new(&mut node).register(&region);
    let _owner = Service::spawn(node, |_| ()).expect("a thread");
    let mut node = Over::node(Config::default(), Default::default());
    let channel = node.connect(&address, PATIENCE).expect("a channel");
    // The last of them is not whole.
    let here = Region::new(200 * PAGE as usize + 1, PAGE);
    let moves = |wrong| (0..100).map(|slot| (slot, slot)).chain([(wrong, wrong)]).collect::<Vec<_>>();
    for wrong in [200, 201, u32::MAX] {
        let mut remote = Remote::new(&mut node, channel, key, PATIENCE);
        let stores = AssertUnwindSafe(|| remote.store_pages(&here, &moves(wrong)));
        let said = catch_unwind(stores).expect_err("there is no such slot");
        let expected = format!("slot {wrong} lies outside of the region");
        assert_eq!(said.downcast_ref::<String>(), Some(&expected));
        let mut remote = Remote::new(&mut node, channel, key, PATIENCE);
        catch_unwind(AssertUnwindSafe(|| remote.fetch_pages(&here, &moves(wrong)))).expect_err("neither");
    }
    assert_eq!(region.count_valid(), 0);
    Remote::new(&mut node, channel, key, PATIENCE).store_pages(&here, &moves(199)).expect("all are there");
    assert_eq!(region.count_valid(), 101);
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

/// Threads that sleep until their page is there, as those do that have touched one that is missing.
fn who_waits_for_a_page_has_it_when_it_is_there(over: Over) {
    const SLOTS: u32 = 200;
    let region = Region::new(SLOTS as usize * PAGE as usize, PAGE);
    let (_server, mut node, channel, key) = owning(over, &region);
    let (from, order) = (Region::new(SLOTS as usize * PAGE as usize, PAGE), shuffled(SLOTS));
    for slot in 0..SLOTS as usize {
        let bytes = pattern(slot as u32, PAGE as usize);
        from.lock()[slot * PAGE as usize..(slot + 1) * PAGE as usize].copy_from_slice(&bytes);
    }
    assert!(!region.wait_until_valid(3, Duration::from_millis(5)), "nothing has come");
    assert!(!region.wait_until_valid(SLOTS, PATIENCE), "there is no such slot");
    std::thread::scope(|scope| {
        for first in 0..4 {
            let region = &region;
            scope.spawn(move || {
                for slot in (first..SLOTS).step_by(4) {
                    assert!(region.wait_until_valid(slot, PATIENCE), "slot {slot}");
                    let at = slot as usize * PAGE as usize;
                    assert!(region.lock()[at..at + PAGE as usize] == pattern(slot, PAGE as usize), "slot {slot}");
                }
            });
        }
        for moves in order.chunks(7) {
            let moves: Vec<_> = moves.iter().map(|slot| (*slot, *slot)).collect();
            Remote::new(&mut node, channel, key, PATIENCE).store_pages(&from, &moves).expect("all of them");
        }
    });
}

/// It was said that nothing had come, long before the time was over, where the slot was wanted for the next page.
#[test]
fn who_waits_for_a_page_hears_of_it_though_its_slot_is_emptied_again() {
    let region = Region::new(PAGE as usize, PAGE);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                region.validate(0);
                region.invalidate(0);
            }
        });
        let came = (0..20_000).take_while(|_| region.wait_until_valid(0, PATIENCE)).count();
        over.store(true, Ordering::Relaxed);
        assert_eq!(came, 20_000);
    });
}
