//! Regions whose bytes somebody has: what is asked of them waits, and nobody else does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::am::{Args, Body, CallError, Event, Failure, Node, Settings};
use cutthrough::rma::{Extent, Key, Owner, Region, Remote};
use cutthrough::{Channel, Config, MapError};

use crate::two::{Over, PATIENCE, Server};
use crate::{NO_REGION, PAGE, over_both, pattern, refused};

over_both! {
    who_locks_a_region_keeps_nobody_waiting_but_for_it, what_is_late_for_a_locked_region_is_not_done,
    what_waits_for_a_region_is_refused_once_its_key_is_taken_back,
    who_panics_with_a_region_in_its_hands_does_what_waits_no_more,
    what_nobody_waits_for_any_more_takes_no_room, what_nobody_waits_for_any_more_keeps_no_node_busy,
    what_is_too_much_to_wait_for_a_region_is_refused,
    what_peers_and_holders_add_is_all_there, who_has_locked_a_region_keeps_no_move_waiting_for_longer_than_it_may,
    who_has_locked_a_region_moves_no_page_of_it,
}

/// An owner of two regions, that also echoes; and another peer of it.
struct Two {
    _server: Server,
    node: Node,
    channel: Channel,
    other: (Node, Channel),
    regions: [Region; 2],
    keys: [Key; 2],
    owner: Owner,
}

const ECHO: u16 = 1;

fn two_regions(over: Over) -> Two {
    let regions = [Region::new(64 << 20, PAGE), Region::new(1 << 20, PAGE)];
    let mut owned = None;
    let (server, node, channel) = over.serve_with(Config::default(), Default::default(), |node| {
        let owner = Owner::new(node);
        owned = Some((owner.clone(), regions.each_ref().map(|region| owner.register(region))));
        node.short(ECHO, Args::Words(1), |request| {
            let word = request.word(0);
            request.reply(&[word]);
        });
    });
    let mut other = Over::node(Config::default(), Default::default());
    let its = other.connect(&server.address, PATIENCE).expect("a channel");
    let (owner, keys) = owned.expect("an owner");
    Two { _server: server, node, channel, other: (other, its), regions, keys, owner }
}

/// Has the region's bytes until `until` says so, on a thread of its own; `during` runs meanwhile.
fn held<R>(region: &Region, during: impl FnOnce(&mpsc::Sender<()>) -> R) -> R {
    let ((locked, is_locked), (free, is_free)) = (mpsc::channel(), mpsc::channel());
    // The way to set it free goes with this, also by a panic.
    thread::scope(move |scope| {
        let free = free;
        scope.spawn(move || {
            let bytes = region.lock();
            locked.send(()).expect("somebody waits");
            // Freed too when whoever waits has panicked.
            let _ = is_free.recv();
            drop(bytes);
        });
        is_locked.recv().expect("a lock");
        during(&free)
    })
}

/// The owner's node answers all else, also of the same peer; and what waits is done in its order.
fn who_locks_a_region_keeps_nobody_waiting_but_for_it(over: Over) {
    let Two { _server, mut node, channel, other: (mut other, its), regions, keys, .. } = two_regions(over);
    let bytes = pattern(4, 300_000);
    thread::scope(|scope| {
        let done = held(&regions[0], |free| {
            let (began, has_begun) = mpsc::channel();
            let bytes = &bytes;
            let waiting = scope.spawn(move || {
                began.send(()).expect("somebody waits");
                let mut remote = Remote::new(&mut node, channel, keys[0], PATIENCE);
                remote.put(8, &bytes[..100]).expect("in the region");
                remote.put(5000, bytes).expect("in the region");
                assert_eq!(remote.fetch_add(0, 5), Ok(0));
                remote.store_pages(&Region::new(1 << 20, PAGE), &[(3, 40)]).expect("in the region");
                let mut back = vec![0; bytes.len()];
                remote.get(5000, &mut back).expect("in the region");
                assert!(back == *bytes);
                remote.get_list(&[Extent { offset: 0, len: 8 }], &mut back[..8]).expect("in the region");
                assert_eq!(back[..8], 5_u64.to_le_bytes());
                node
            });
            has_begun.recv().expect("a beginning");
            for round in 0..50 {
                let echoed = other.call(its, ECHO, &[round], PATIENCE).expect("an answer");
                assert_eq!(echoed.word(0), round);
                let mut remote = Remote::new(&mut other, its, keys[1], PATIENCE);
                assert_eq!(remote.fetch_add(0, 1), Ok(u64::from(round)));
                thread::sleep(Duration::from_millis(1));
            }
            assert!(!waiting.is_finished());
            free.send(()).expect("a holder");
            waiting
        });
        done.join().expect("all is done");
    });
    let region = regions[0].lock();
    assert!(region[8..108] == bytes[..100] && region[5000..305_000] == bytes[..]);
    assert!(regions[0].is_valid(40));
}

/// What nobody waits for any more is not done, whenever the bytes are free.
fn what_is_late_for_a_locked_region_is_not_done(over: Over) {
    let Two { _server, mut node, channel, regions, keys, .. } = two_regions(over);
    held(&regions[0], |free| {
        let mut remote = Remote::new(&mut node, channel, keys[0], Duration::from_millis(40));
        assert_eq!(remote.put(8, b"late"), Err(CallError::Late.into()));
        assert_eq!(remote.fetch_add(0, 1), Err(CallError::Late.into()));
        // The owner may have heard of them later than they were sent. Behind their ends comes this.
        assert_eq!(node.call(channel, ECHO, &[7], PATIENCE).expect("an answer").word(0), 7);
        free.send(()).expect("a holder");
    });
    let mut remote = Remote::new(&mut node, channel, keys[0], PATIENCE);
    assert_eq!(remote.fetch_add(0, 2), Ok(0));
    assert_eq!(regions[0].lock()[8..12], [0; 4]);
}

/// A key that is taken back is good for nothing that waits.
fn what_waits_for_a_region_is_refused_once_its_key_is_taken_back(over: Over) {
    let Two { _server, mut node, channel, regions, keys, owner, .. } = two_regions(over);
    let said = thread::scope(|scope| {
        held(&regions[0], |free| {
            let putting =
                scope.spawn(|| Remote::new(&mut node, channel, keys[0], PATIENCE).put(0, b"too late for this"));
            thread::sleep(Duration::from_millis(50));
            owner.unregister(keys[0]);
            free.send(()).expect("a holder");
            putting
        })
        .join()
        .expect("an answer")
    });
    assert_eq!(said, Err(refused(NO_REGION)));
    assert_eq!(regions[0].lock()[..4], [0; 4]);
}

/// A thread that panics with the bytes in its hands does nothing for others any more; who comes later is served.
fn who_panics_with_a_region_in_its_hands_does_what_waits_no_more(over: Over) {
    let Two { _server, mut node, channel, regions, keys, .. } = two_regions(over);
    let (region, panics) = (&regions[0], &AtomicBool::new(false));
    let said = thread::scope(|scope| {
        let (locked, is_locked) = mpsc::channel();
        let holder = scope.spawn(move || {
            let _bytes = region.lock();
            locked.send(()).expect("somebody waits");
            while !panics.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        is_locked.recv().expect("a lock");
        let putting = scope.spawn(|| Remote::new(&mut node, channel, keys[0], PATIENCE).put(0, b"some bytes"));
        thread::sleep(Duration::from_millis(50));
        panics.store(true, Ordering::Relaxed);
        holder.join().expect_err("it panics");
        putting.join().expect("an answer")
    });
    // Or it came only after the panic.
    assert!(said.is_ok() || said == Err(CallError::Failed(Failure::Panicked).into()), "{said:?}");
    let mut remote = Remote::new(&mut node, channel, keys[0], PATIENCE);
    remote.put(0, b"other bytes").expect("in the region");
    assert_eq!(regions[0].lock()[..11], *b"other bytes");
}

/// Requests that are late, however many, keep nobody from a locked region, nor from its node.
fn what_nobody_waits_for_any_more_takes_no_room(over: Over) {
    let Two { _server, mut node, channel, other: (mut other, its), regions, keys, .. } = two_regions(over);
    held(&regions[0], |free| {
        for round in 0..4 {
            for _ in 0..300 {
                let late = Remote::new(&mut node, channel, keys[0], Duration::from_micros(200)).fetch_add(0, 1);
                assert!(late.is_err(), "the region is locked");
            }
            let late = Remote::new(&mut node, channel, keys[0], Duration::from_millis(20)).put(8, &[1; 12 << 20]);
            assert!(late.is_err(), "the region is locked");
            assert_eq!(other.call(its, ECHO, &[round], PATIENCE).expect("an answer").word(0), round);
            let mut remote = Remote::new(&mut other, its, keys[1], PATIENCE);
            assert_eq!(remote.fetch_add(0, 1), Ok(u64::from(round)));
        }
        let waits = thread::scope(|scope| {
            let putting = scope.spawn(|| Remote::new(&mut other, its, keys[0], PATIENCE).put(64 << 10, b"in time"));
            thread::sleep(Duration::from_millis(30));
            free.send(()).expect("a holder");
            putting.join().expect("an answer")
        });
        assert_eq!(waits, Ok(()));
    });
    let region = regions[0].lock();
    assert_eq!((&region[64 << 10..(64 << 10) + 7], &region[..16]), (&b"in time"[..], &[0; 16][..]));
}

/// Where as many of them wait as the node may serve, it served nobody until the bytes were free.
fn what_nobody_waits_for_any_more_keeps_no_node_busy(over: Over) {
    const MANY: usize = 16;
    let region = Region::new(4096, PAGE);
    let mut key = None;
    let settings = Settings { serve: MANY, ..Settings::default() };
    let (_server, mut node, channel) = over.serve_with(Config::default(), settings, |node| {
        key = Some(Owner::new(node).register(&region));
        node.short(ECHO, Args::Words(0), |request| request.reply(&[]));
    });
    let Key(key) = key.expect("a key");
    // To add 0 to the first cell.
    let args = [&key.to_le_bytes()[..], &[0; 28]].concat();
    let atomic = cutthrough::am::RESERVED + 2;
    held(&region, |_| {
        for _ in 0..MANY {
            node.ask(channel, atomic).args(&args).within(Duration::from_millis(20)).send().expect("a call");
        }
        for _ in 0..MANY {
            let Ok(Event::Failed(failed)) = node.wait(Some(PATIENCE)) else { panic!("the region is locked") };
            assert_eq!(failed.error, CallError::Late);
        }
        assert_eq!(node.call(channel, ECHO, &[], PATIENCE).map(drop), Ok(()));
    });
}

/// More than is kept for a region has to come again.
fn what_is_too_much_to_wait_for_a_region_is_refused(over: Over) {
    let Two { _server, mut node, channel, regions, keys, .. } = two_regions(over);
    let long = pattern(1, 20 << 20);
    let [low, high] = [keys[0].0 as u32, (keys[0].0 >> 32) as u32];
    let args: Vec<u8> = [low, high, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect();
    let put = cutthrough::am::RESERVED;
    held(&regions[0], |free| {
        let mut calls = Vec::new();
        for _ in 0..2 {
            calls.push(node.ask(channel, put).args(&args).body(Body::Copy(&long)).send().expect("a call"));
        }
        // In their order: the second one is told at once.
        let begun = Instant::now();
        let failed = loop {
            if let Some(event) = node.poll() {
                break event;
            }
            assert!(begun.elapsed() < PATIENCE);
        };
        let Event::Failed(failed) = failed else { panic!("{failed:?}") };
        assert_eq!((failed.call, failed.error), (calls[1], CallError::Failed(Failure::Busy)));
        free.send(()).expect("a holder");
    });
    let mut remote = Remote::new(&mut node, channel, keys[0], PATIENCE);
    assert_eq!(remote.fetch_add((20 << 20) + 8, 1), Ok(0));
    assert!(regions[0].lock()[..20 << 20] == long);
}

/// Threads that lock and let go, and peers that add: nothing is lost, and nothing is done twice.
fn what_peers_and_holders_add_is_all_there(over: Over) {
    const ROUNDS: u64 = 2000;
    let Two { _server, mut node, channel, other: (mut other, its), regions, keys, .. } = two_regions(over);
    let region = &regions[0];
    let stop = AtomicBool::new(false);
    let by_holders = thread::scope(|scope| {
        let holders: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut added = 0_u64;
                    while !stop.load(Ordering::Relaxed) {
                        let mut bytes = region.lock();
                        let cell = bytes.first_chunk_mut::<8>().expect("a cell");
                        *cell = (u64::from_le_bytes(*cell) + 1).to_le_bytes();
                        added += 1;
                        if added.is_multiple_of(16) {
                            thread::sleep(Duration::from_micros(50));
                        }
                        drop(bytes);
                        if added.is_multiple_of(4) {
                            thread::yield_now();
                        }
                    }
                    added
                })
            })
            .collect();
        let peers = [(&mut node, channel), (&mut other, its)].map(|(node, channel)| {
            scope.spawn(move || {
                let mut remote = Remote::new(node, channel, keys[0], PATIENCE);
                for _ in 0..ROUNDS {
                    remote.fetch_add(0, 1).expect("in the region");
                }
            })
        });
        let ended = peers.map(thread::ScopedJoinHandle::join);
        stop.store(true, Ordering::Relaxed);
        let added: u64 = holders.into_iter().map(|holder| holder.join().expect("a holder")).sum();
        ended.into_iter().for_each(|ended| ended.expect("a peer"));
        added
    });
    let all = region.lock().first_chunk().copied().map(u64::from_le_bytes);
    assert_eq!(all, Some(by_holders + 2 * ROUNDS));
}

/// Pages go from and to regions of this side, too: while another thread had such a one locked, its node waited for
/// that, longer than the operation may take, and served nobody.
fn who_has_locked_a_region_keeps_no_move_waiting_for_longer_than_it_may(over: Over) {
    const TIME: Duration = Duration::from_millis(100);
    let Two { _server, mut node, channel, regions, keys, .. } = two_regions(over);
    let here = Region::new(1 << 20, PAGE);
    let moves: Vec<(u32, u32)> = (0..40).map(|slot| (slot, slot)).collect();
    held(&here, |_| {
        let begun = Instant::now();
        let mut remote = Remote::new(&mut node, channel, keys[0], TIME);
        let error = remote.store_pages(&here, &moves).expect_err("it is locked");
        assert_eq!((error.error.error, error.valid), (CallError::Late, vec![Some(false); 40]));
        let error = remote.fetch_pages(&here, &moves).expect_err("it is locked");
        assert_eq!((error.error.error, error.valid), (CallError::Late, vec![Some(false); 40]));
        assert!(begun.elapsed() < PATIENCE / 4, "{:?}", begun.elapsed());
    });
    assert_eq!((regions[0].count_valid(), here.count_valid()), (0, 0));
    let mut remote = Remote::new(&mut node, channel, keys[0], PATIENCE);
    remote.store_pages(&here, &moves).expect("it is free");
    remote.fetch_pages(&here, &moves).expect("it is free");
    assert_eq!((regions[0].count_valid(), here.count_valid()), (40, 40));
}

/// Some pages had gone before, and slots were not valid any more.
fn who_has_locked_a_region_moves_no_page_of_it(over: Over) {
    let Two { _server, mut node, channel, regions, keys, .. } = two_regions(over);
    let mine = Region::new(1 << 20, PAGE);
    mine.validate(1);
    regions[0].validate(3);
    let mut remote = Remote::new(&mut node, channel, keys[0], PATIENCE);
    let lock = mine.lock();
    for store in [true, false] {
        let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            if store { remote.store_pages(&mine, &[(1, 3)]) } else { remote.fetch_pages(&mine, &[(3, 1)]) }
        }));
        let text = *tried.expect_err("it would wait for ever").downcast::<&str>().expect("words");
        assert!(text.contains("whose pages it moves"), "{text}");
    }
    drop(lock);
    // The owner has done all that was asked of it before.
    remote.get(0, &mut [0]).expect("in the region");
    assert!(mine.is_valid(1) && regions[0].is_valid(3));
    remote.store_pages(&mine, &[(1, 3)]).expect("in the region");
}

/// What says which slots are valid was allocated first, in vain, which ended the process.
#[test]
fn a_region_for_which_there_is_no_memory_is_an_error() {
    for (bytes, slot) in [(1 << 50, PAGE), (1 << 50, 1), (usize::MAX, 1), (usize::MAX, u32::MAX), (1 << 46, 1)] {
        let error = Region::try_new(bytes, slot).expect_err("more than there is");
        assert!(matches!(error, MapError::Map { .. }), "{error}");
    }
    let tried = std::panic::catch_unwind(|| Region::new(1 << 50, PAGE));
    let text = *tried.expect_err("more than there is").downcast::<String>().expect("words");
    assert!(text.contains("cannot be mapped"), "{text}");
    assert_eq!(Region::try_new(4097, 4096).expect("memory").len(), 4097);
}
