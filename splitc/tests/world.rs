//! The global address space through its public interface: ranks are threads, over shared memory and over UDP.
#![allow(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cutthrough::{Config, Endpoint, am};
use cutthrough_conform::free_udp_address;
use cutthrough_splitc::{Error, Global, Op, Settings, World};

/// Ranks as threads over UDP on loopback, in plain text.
fn over_udp<R: Send>(size: u32, program: impl Fn(&mut World) -> Result<R, Error> + Sync) -> Result<Vec<R>, Error> {
    let addresses = (0..size).map(|_| format!("udp:{}", free_udp_address())).collect();
    let settings = Settings { size, addresses, job: "udp".into(), insecure: true, ..Settings::alone() };
    World::threads_at(&settings, program)
}

fn over_both<R: Send>(size: u32, program: impl Fn(&mut World) -> Result<R, Error> + Sync) -> Vec<Vec<R>> {
    vec![World::threads(size, &program).expect("over shared memory"), over_udp(size, &program).expect("over UDP")]
}

#[test]
fn collective_operations_are_those_of_a_serial_program() {
    for size in 1..=5 {
        for results in over_both(size, |world| {
            let mine = u64::from(world.rank()) * 7 + 3;
            let mut many: Vec<i64> = (0..1000).map(|i| i64::from(world.rank()) * i - 500).collect();
            let sum = world.reduce(Op::Sum, mine)?;
            let least = world.reduce(Op::Min, mine)?;
            let most = world.reduce(Op::Max, -1.5 * f64::from(world.rank()))?;
            let upto = world.scan(Op::Sum, mine)?;
            let root = size - 1;
            let from_root = world.broadcast(root, mine)?;
            world.scan_bulk(Op::Max, &mut many)?;
            let scanned = many.clone();
            world.reduce_bulk(Op::Sum, &mut many)?;
            // Longer than one piece.
            let mut long: Vec<u32> = (0..100_000).map(|i| i * (world.rank() + 1)).collect();
            world.broadcast_bulk(root, &mut long)?;
            Ok((sum, least, most, upto, from_root, scanned, many, long))
        }) {
            let of = |rank: u32| u64::from(rank) * 7 + 3;
            let sum: u64 = (0..size).map(of).sum();
            let maxima = |rank: u32| -> Vec<i64> {
                (0..1000).map(|i| (0..=i64::from(rank)).map(|r| r * i - 500).max().unwrap_or(0)).collect()
            };
            let sums: Vec<i64> = (0..1000).map(|i| (0..size).map(|rank| maxima(rank)[i]).sum()).collect();
            let long: Vec<u32> = (0..100_000).map(|i| i * size).collect();
            for (rank, result) in (0..).zip(results) {
                let upto = (0..=rank).map(of).sum();
                assert_eq!(result, (sum, 3, 0.0, upto, of(size - 1), maxima(rank), sums.clone(), long.clone()));
            }
        }
    }
}

#[test]
fn nobody_leaves_a_barrier_before_all_have_come() {
    for size in [2, 3, 6] {
        let came = AtomicU32::new(0);
        World::threads(size, |world| {
            for round in 1..=50 {
                came.fetch_add(1, Ordering::SeqCst);
                world.barrier()?;
                assert!(came.load(Ordering::SeqCst) >= round * size);
            }
            Ok(())
        })
        .expect("no rank fails");
    }
}

#[test]
fn long_transfers_in_a_ring_do_not_deadlock_and_arrive_whole() {
    const LEN: usize = (6 << 20) + 123;
    let pattern =
        |rank: u32| -> Vec<u8> { (0..LEN).map(|i| (i * 31 + rank as usize) as u8 ^ (i >> 12) as u8).collect() };
    over_both(3, |world| {
        let (to, from) = ((world.rank() + 1) % 3, (world.rank() + 2) % 3);
        let here = world.alloc::<u8>(LEN)?;
        world.store_bulk(here.on(to), &pattern(world.rank()))?;
        world.store_sync(LEN as u64)?;
        let mut came = vec![0; LEN];
        world.local(here, &mut came)?;
        assert_eq!(came, pattern(from));
        // What this rank has sent, read back from where it lies.
        let coming = world.get_bulk(here.on(to), LEN)?;
        world.sync()?;
        world.take_bulk(coming, &mut came)?;
        assert_eq!(came, pattern(world.rank()));
        Ok(())
    });
}

#[test]
fn every_length_of_a_transfer_arrives() {
    over_both(2, |world| {
        let here = world.alloc::<u16>(200_000)?;
        let there = here.on(1 - world.rank());
        for len in [0, 1, 27, 28, 29, 30, 31, 2047, 2048, 2049, 65_535, 65_536, 65_537, 140_000] {
            let values: Vec<u16> =
                (0..len).map(|i| (i as u16).wrapping_mul(7).wrapping_add(world.rank() as u16)).collect();
            world.put_bulk(there.at(3), &values)?;
            let mut back = vec![0; len];
            world.read_bulk(there.at(3), &mut back)?;
            assert_eq!(back, values, "{len}");
            world.all_store_sync()?;
        }
        Ok(())
    });
}

/// The rest behind the last whole piece is so short that it comes in the reply itself.
#[test]
fn many_long_reads_with_a_short_rest_arrive() {
    const LEN: usize = (128 << 10) / 8 + 1;
    let end = World::threads_at(&at_files("rests", 2, Duration::from_secs(5)), |world| {
        let here = world.alloc::<u64>(LEN)?;
        let values: Vec<u64> = (0..LEN as u64).collect();
        world.set_local(here, &values)?;
        world.barrier()?;
        if world.rank() == 0 {
            let mut back = vec![0; LEN];
            for _ in 0..40 {
                back.fill(0);
                world.read_bulk(here.on(1), &mut back)?;
                assert_eq!(back, values);
            }
            // Reads that gather are of the same budget.
            let coming: Vec<_> = (0..1000).map(|at| world.get(here.on(1).at(at))).collect::<Result<_, _>>()?;
            for (coming, expected) in coming.into_iter().zip(0..) {
                assert_eq!(world.take(coming)?, expected);
            }
        }
        world.barrier()
    });
    assert_eq!(end, Ok(vec![(); 2]));
}

#[test]
fn what_has_arrived_is_seen_where_it_lies() {
    over_both(2, |world| {
        let here = world.alloc::<u16>(200_000)?;
        let values_of = |rank: u32| (0..200_000).map(|i| (i * 3 + rank) as u16).collect::<Vec<u16>>();
        let other = 1 - world.rank();
        let (values, expected, there) = (values_of(world.rank()), values_of(other), here.on(other));
        world.set_local(here, &values)?;
        world.barrier()?;
        for (at, len) in [(0, 0), (7, 1), (3, 200), (1, 150_000)] {
            let mine = world.get_bulk(here.at(at), len)?;
            assert_eq!(world.arrived(&mine), Some(&values[at..at + len]), "one's own is there at once");
            let theirs = world.get_bulk(there.at(at), len)?;
            world.wait_for(&theirs)?;
            assert_eq!(world.arrived(&theirs), Some(&expected[at..at + len]));
            // Meanwhile others come, and their memory is theirs.
            let other = world.get_bulk(there, 1000)?;
            world.sync()?;
            assert_eq!(world.arrived(&theirs), Some(&expected[at..at + len]));
            assert_eq!(world.arrived(&other), Some(&expected[..1000]));
            world.release(theirs)?;
            world.release(mine)?;
            let mut some = [0; 10];
            world.take_bulk(other, &mut some)?;
            assert_eq!(some, expected[..10]);
        }
        // Given back before it has come: that waits for it.
        let coming = world.get_bulk(there, 100_000)?;
        assert!(world.rank() == 0 || world.arrived(&coming).is_none_or(|came| came == &expected[..100_000]));
        world.release(coming)?;
        world.barrier()
    });
}

#[test]
fn what_lies_outside_is_refused() {
    let outside = |program: fn(&mut World, Global<u64>) -> Result<(), Error>| {
        World::threads(2, |world| {
            let here = world.alloc::<u64>(8)?;
            if world.rank() == 0 {
                return program(world, here.on(1));
            }
            world.barrier()
        })
        .expect_err("it lies outside")
    };
    let says = |offset, len| Error::Outside { rank: 1, offset, len };
    assert_eq!(outside(|world, there| world.read(there.at(8)).map(drop)), says(64, 8));
    assert_eq!(outside(|world, there| world.write_now(there.at(1_000_000), 1)), says(8_000_000, 8));
    assert_eq!(outside(|world, there| world.read_bulk(there.at(1), &mut [0; 100])), says(8, 800));
    assert_eq!(outside(|world, there| world.store_bulk(there, &[0; 9]).and_then(|()| world.sync())), says(0, 72));
    let far = u64::MAX - 3;
    assert_eq!(outside(|world, _| world.read(Global::<u64>::new(1, u64::MAX - 3)).map(drop)), says(far, 8));
    assert_eq!(outside(|world, there| world.local(there, &mut [0])), says(0, 8));
    assert_eq!(outside(|world, there| world.put(there.on(2), 0)), Error::NoRank { rank: 2, size: 2 });
    assert_eq!(
        outside(|world, there| world.local(there.on(0).at(8), &mut [0])),
        Error::Outside { rank: 0, offset: 64, len: 8 }
    );
}

/// Every part is as long as this rank's own: nothing of a transfer that does not fit is sent, and the world goes on.
#[test]
fn what_lies_outside_changes_nothing() {
    const LEN: usize = 300_000;
    over_both(2, |world| {
        let here = world.alloc::<u64>(LEN)?;
        let there = here.on(1 - world.rank());
        let says = |at: usize, len: usize| {
            let outside = Error::Outside { rank: 1 - world.rank(), offset: 8 * at as u64, len: 8 * len as u64 };
            Err(outside)
        };
        let (one, all, much) = (says(LEN, 1), says(1, LEN), says(0, LEN + 1));
        assert_eq!(world.put(there.at(LEN), 7), one);
        assert_eq!(world.read(there.at(LEN)).map(drop), one);
        // Most of it would have lain within the part.
        assert_eq!(world.put_bulk(there.at(1), &vec![7; LEN]), all);
        assert_eq!(world.store_bulk(there.at(1), &vec![7; LEN]), all);
        assert_eq!(world.get_bulk(there, LEN + 1).map(drop), much);
        assert_eq!(world.put(there.on(2), 7), Err(Error::NoRank { rank: 2, size: 2 }));
        world.all_store_sync()?;
        let mut values = vec![1; LEN];
        world.local(here, &mut values)?;
        assert!(values.iter().all(|value| *value == 0), "some of it was written");
        world.barrier()?;
        world.write_now(there.at(LEN - 1), 5)?;
        world.barrier()?;
        assert_eq!(world.read(here.at(LEN - 1))?, 5);
        Ok(())
    });
}

/// What others write is seen in place, and what is written in place is read by others.
#[test]
fn a_part_can_be_had_in_place() {
    over_both(2, |world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        let bytes = world.alloc::<u8>(3)?;
        let here = world.alloc::<f64>(100)?;
        world.in_place_mut(here.at(1), 99)?.fill(1.5);
        world.barrier()?;
        world.put(here.on(other), f64::from(me))?;
        assert_eq!(world.read(here.on(other).at(99))?, 1.5);
        world.all_store_sync()?;
        let mine = world.in_place(here, 100)?;
        assert_eq!((mine[0], mine[1]), (f64::from(other), 1.5));
        assert_eq!(world.in_place(bytes, 3)?, [0; 3]);
        let outside = |rank, offset, len| Some(Error::Outside { rank, offset, len });
        assert_eq!(world.in_place(here, 101).err(), outside(me, here.offset(), 808));
        assert_eq!(world.in_place(here.on(other), 1).err(), outside(other, here.offset(), 8));
        assert_eq!(world.in_place_mut(here, usize::MAX).err(), outside(me, here.offset(), usize::MAX as u64));
        let odd = Global::<f64>::new(me, here.offset() + 4);
        assert_eq!(world.in_place(odd, 1).err(), Some(Error::Unaligned { offset: odd.offset(), bytes: 8 }));
        assert_eq!(world.in_place_mut(odd, 1).err(), Some(Error::Unaligned { offset: odd.offset(), bytes: 8 }));
        world.barrier()
    });
}

/// A rank that does not look at where it writes is refused by the one that has the part.
#[test]
fn a_rank_that_writes_outside_all_the_same_is_refused() {
    const HELLO: u16 = 1;
    const PUT: u16 = 3;
    const PUT_BATCH: u16 = 9;
    let patience = Duration::from_secs(20);
    let job = format!("liar-{}", std::process::id());
    let hash = job
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let address = format!("shm:splitc-{job}-0");
    let addresses = vec![address.clone(), "shm:nobody".into()];
    let settings = Settings { size: 2, addresses, job, ..Settings::alone() };
    let (joined, done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut world = World::join(&settings).expect("the other one");
            joined.store(true, Ordering::Relaxed);
            while !done.load(Ordering::Relaxed) {
                assert_eq!(world.poll(), Ok(()));
            }
        });
        let mut node = am::Node::new(Endpoint::open(Config::default()).expect("an endpoint"), am::Settings::default());
        let begun = Instant::now();
        let channel = loop {
            match node.connect(&address, patience) {
                Ok(channel) => break channel,
                Err(error) => assert!(begun.elapsed() < patience, "{error}"),
            }
        };
        let (job, rank) = ([hash as u32, (hash >> 32) as u32], 1);
        node.call(channel, HELLO, &[2, rank, job[0], job[1]], patience).expect("it is let in");
        // One write; several; one that is not whole; some without length; some of an impossible length.
        let all: [(u16, &[u32]); 5] = [
            (PUT, &[0, 1, 7]),
            (PUT_BATCH, &[4, 0, 0, 7, 0, 1, 7]),
            (PUT_BATCH, &[4, 0, 0]),
            (PUT_BATCH, &[0, 1, 0, 2, 0]),
            (PUT_BATCH, &[u32::MAX, 0, 0, 7]),
        ];
        let refused = all.map(|(handler, words)| node.call(channel, handler, words, patience));
        let nothing = node.call(channel, PUT_BATCH, &[4], patience);
        // One that went before it was met would be missing.
        while !joined.load(Ordering::Relaxed) && begun.elapsed() < 2 * patience {
            assert!(node.poll().is_none());
        }
        done.store(true, Ordering::Relaxed);
        for (refused, what) in refused.into_iter().zip(all) {
            let error = refused.expect_err("a refusal").error;
            assert_eq!(error, am::CallError::Failed(am::Failure::Refused), "{what:?}");
        }
        nothing.expect("no write at all does no harm");
    });
}

#[test]
fn a_rank_that_ends_early_is_named_wherever_the_others_wait() {
    type Wait = fn(&mut World, Global<u64>) -> Result<(), Error>;
    let waits: [Wait; 6] = [
        |world, _| world.barrier(),
        |world, here| world.read(here.on(1)).map(drop),
        |world, here| (0..100_000).try_for_each(|i| world.store(here.on(1), i)),
        |world, _| world.reduce(Op::Sum, 1_u64).map(drop),
        |world, here| world.store_bulk(here.on(1), &[0; 1 << 20]).and_then(|()| world.sync()),
        |world, _| world.store_sync(1),
    ];
    for (number, wait) in waits.into_iter().enumerate() {
        let ends = World::threads(3, |world| {
            let here = world.alloc::<u64>(1 << 20)?;
            world.barrier()?;
            if world.rank() == 1 {
                return Err(Error::Uneven);
            }
            let end = loop {
                if let Err(error) = wait(world, here) {
                    break error;
                }
            };
            assert!(matches!(end, Error::Lost { rank: 1, .. }), "{number}: {end}");
            // From then on everything says so.
            assert_eq!(world.barrier().err(), Some(end.clone()));
            Err::<(), _>(end)
        });
        assert_eq!(ends, Err(Error::Uneven), "{number}: it has said why itself");
    }
}

/// Ranks that wait so long, and find each other by files.
fn at_files(job: &str, size: u32, deadline: Duration) -> Settings {
    let job = format!("{job}-{}", std::process::id());
    let addresses = vec![format!("shm:splitc-{job}-{{rank}}")];
    Settings { size, addresses, job, deadline, ..Settings::alone() }
}

#[test]
fn a_rank_that_does_not_poll_is_late() {
    let deadline = Duration::from_millis(300);
    let end = World::threads_at(&at_files("late", 2, deadline), |world| {
        let here = world.alloc::<u64>(1)?;
        if world.rank() == 1 {
            std::thread::sleep(4 * deadline);
            return Err(Error::Uneven);
        }
        world.read(here.on(1)).map(drop)
    });
    assert_eq!(end, Err(Error::Late { rank: 1, within: deadline }));
}

/// Of two that do not answer, the one is named whose time has run out.
#[test]
fn the_rank_that_is_late_is_named() {
    let deadline = Duration::from_secs(1);
    let deaf = AtomicU32::new(0);
    let end = World::threads_at(&at_files("late-one", 3, deadline), |world| {
        let here = world.alloc::<u64>(1)?;
        if world.rank() == 0 {
            while deaf.load(Ordering::SeqCst) < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            world.put(here.on(2), 1)?;
            let begun = Instant::now();
            while begun.elapsed() < deadline / 2 {
                world.poll()?;
            }
            world.put(here.on(1), 1)?;
            return world.sync();
        }
        deaf.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(4 * deadline);
        Err(Error::Uneven)
    });
    assert_eq!(end, Err(Error::Late { rank: 2, within: deadline }));
}

/// Nobody is late as long as something comes of what is waited for, however long all of it takes.
#[test]
fn who_goes_on_is_not_late() {
    let deadline = Duration::from_secs(2);
    let end = World::threads_at(&at_files("goes-on", 2, deadline), |world| {
        const STORES: u64 = 14;
        let here = world.alloc::<u64>(1)?;
        if world.rank() == 0 {
            return world.store_sync(8 * STORES);
        }
        for value in 0..STORES {
            std::thread::sleep(deadline / 10);
            world.store(here.on(0), value)?;
        }
        world.sync()
    });
    assert_eq!(end, Ok(vec![(), ()]));
}

#[test]
fn ranks_that_do_not_come_are_named() {
    let job = format!("absent-{}", std::process::id());
    let addresses = vec![format!("shm:splitc-{job}-{{rank}}")];
    let start = Duration::from_millis(200);
    let settings = Settings { size: 4, addresses: addresses.clone(), job, start, ..Settings::alone() };
    let end = World::join(&settings).map(drop);
    let at = addresses[0].replace("{rank}", "1");
    assert_eq!(end, Err(Error::Absent { ranks: vec![1, 2, 3], within: start, at: at.clone() }));
    let text = end.map_err(|error| error.to_string());
    assert_eq!(
        text,
        Err(format!("ranks 1, 2, 3 have not come within 200ms: see that every rank is started, and reached at {at}"))
    );
    // One that needs a rank before it.
    let end = World::join(&Settings { rank: 3, ..settings }).map(drop);
    assert!(matches!(end, Err(Error::Absent { ranks, .. }) if ranks == [0]));
}

#[test]
fn a_rank_without_a_key_hears_which_variable_to_set() {
    let addresses = vec![format!("udp:{}", free_udp_address()), "udp:127.0.0.1:1".into()];
    let end = World::join(&Settings { size: 2, addresses, ..Settings::alone() }).map(drop);
    let Err(Error::Endpoint { rank: 0, why }) = end else { panic!("{end:?}") };
    assert!(why.contains("CUTTHROUGH_KEY") && why.contains("CUTTHROUGH_INSECURE=1"), "{why}");
}

#[test]
fn a_rank_of_another_job_is_not_let_in() {
    let address = format!("shm:splitc-other-{}-{{rank}}", std::process::id());
    let start = Duration::from_millis(500);
    let settings = Settings { size: 2, addresses: vec![address], start, ..Settings::alone() };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| World::join(&Settings { job: "one".into(), ..settings.clone() }).map(drop));
        let other = World::join(&Settings { job: "two".into(), rank: 1, ..settings.clone() }).map(drop);
        assert_eq!(other, Err(Error::Stranger { rank: 0 }));
        let first = first.join().expect("no panic");
        assert!(matches!(first, Err(Error::Absent { ranks, .. }) if ranks == [1]));
    });
}

#[test]
fn a_rank_that_finishes_while_others_wait_for_it_is_named() {
    // Rank 1 meets once less than rank 0: rank 0's second meeting is rank 1's end, and its end finds nobody.
    let end = World::threads(2, |world| {
        world.barrier()?;
        if world.rank() == 0 { world.barrier() } else { Ok(()) }
    });
    assert_eq!(end, Err(Error::Left { rank: 1 }));
}

/// What the guide says of a rank after an error: what others have no part in goes on.
#[test]
fn a_rank_keeps_its_own_part_whatever_fails() {
    let address = format!("shm:splitc-own-{}-{{rank}}", std::process::id());
    let settings = Settings { size: 2, addresses: vec![address], ..Settings::alone() };
    let left = Error::Left { rank: 1 };
    // Rank 1 finishes without rank 0, whose second meeting is its end, and gives up waiting for it.
    let end = World::threads_at(&Settings { deadline: Duration::from_millis(300), ..settings }, |world| {
        let here = world.alloc::<u64>(4)?;
        world.barrier()?;
        if world.rank() == 1 {
            return Ok(());
        }
        world.barrier()?;
        let [own, other] = [0, 1].map(|rank| here.on(rank));
        let refused = Err(left.clone());
        let since = Instant::now();
        while world.put(other, 1) != refused {
            world.poll()?;
            assert!(since.elapsed() < Duration::from_secs(20), "it does not go");
            std::thread::sleep(Duration::from_millis(1));
        }
        // Nothing was sent, and nothing is waited for.
        assert_eq!(world.sync(), Ok(()));
        assert_eq!(world.put(other, 1), refused);
        // From now on all that needs others says so.
        assert_eq!(world.store_sync(100), refused);
        assert_eq!([world.sync(), world.put(other, 1)], [refused.clone(), refused.clone()]);
        world.put(own, 7)?;
        assert_eq!(world.read(own), Ok(7));
        refused
    });
    assert_eq!(end, Err(left.clone()));
}

#[test]
fn different_arrays_at_different_ranks_are_found_out() {
    let end = World::threads(3, |world| world.alloc::<u32>(10 + usize::from(world.rank() == 2) * 100).map(drop));
    assert_eq!(end, Err(Error::Uneven));
}

#[test]
fn an_array_that_no_memory_holds_is_refused() {
    for results in over_both(2, |world| {
        // The second is as long as one element, where the product wraps around.
        for count in [usize::MAX, usize::MAX / 8 + 2, usize::MAX / 8, 1 << 50] {
            assert_eq!(world.alloc::<u64>(count), Err(Error::TooLarge { count, bytes: 8 }));
        }
        let block = usize::MAX / 4 + 1;
        assert!(matches!(world.spread::<u8>(usize::MAX, block), Err(Error::TooLarge { .. })));
        // The world is as it was.
        let at = world.alloc::<u64>(2)?;
        let beside = Global::<u64>::new(1 - world.rank(), at.offset());
        world.store(beside.at(1), u64::from(world.rank()) + 7)?;
        world.all_store_sync()?;
        assert!(matches!(world.put(beside.at(2), 1), Err(Error::Outside { .. })));
        let mut mine = [0; 2];
        world.local(at, &mut mine)?;
        Ok(mine)
    }) {
        assert_eq!(results, [[0, 8], [0, 7]]);
    }
}

#[test]
fn a_rank_without_memory_for_an_array_ends_all() {
    let (early, count) = (AtomicU32::new(u32::MAX), usize::MAX / 8 + 2);
    let end = World::threads(3, |world| {
        let mine = if world.rank() == 1 { count } else { 1 };
        let error = world.alloc::<u64>(mine).map(drop).expect_err("only two have it");
        let expected = if world.rank() == 1 { Error::TooLarge { count, bytes: 8 } } else { Error::Uneven };
        assert!(error == expected || matches!(error, Error::Lost { .. }), "{error}");
        early.fetch_and(!(1 << world.rank()), Ordering::Relaxed);
        assert_eq!(world.barrier(), Err(error.clone()));
        Err::<(), _>(error)
    });
    assert_eq!(early.into_inner(), u32::MAX << 3, "{end:?}");
}

#[test]
fn the_environment_says_who_a_rank_is() {
    let of = |variables: &[(&str, &str)]| {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Settings::from_variables(find)
    };
    let alone = of(&[]).expect("alone");
    assert_eq!((alone.rank, alone.size), (0, 1));
    let started = [("CUTTHROUGH_RANK", "1"), ("CUTTHROUGH_SIZE", "3"), ("CUTTHROUGH_JOB", "a/b c")];
    let started = of(&[&started[..], &[("SLURM_PROCID", "7"), ("SLURM_NTASKS", "8")]].concat()).expect("usable");
    assert_eq!(
        (started.rank, started.size, &started.addresses[..]),
        (1, 3, &["shm:splitc-a-b-c-{rank}".to_owned()][..])
    );
    let pmi = of(&[("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("PMI_JOBID", "5")]).expect("usable");
    assert_eq!((pmi.rank, pmi.size, pmi.job.as_str()), (0, 2, "5"));
    let ompi = [("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_NAMESPACE", "n@1")];
    let ompi = of(&ompi).expect("usable");
    assert_eq!((ompi.rank, ompi.size, ompi.job.as_str()), (2, 4, "n-1"));
    let by_hand = of(&[("SLURM_NTASKS", "4"), ("SLURM_JOB_ID", "9")]).expect("alone in an allocation");
    assert_eq!((by_hand.rank, by_hand.size), (0, 1));
    // Names that begin alike are not cut to the same.
    let long = |end: &str| {
        let name = format!("prterun-a-machine-with-a-long-name.example.org-417732@{end}");
        of(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2"), ("PMIX_NAMESPACE", &name)])
            .expect("usable")
            .job
    };
    assert!(long("1").starts_with("prterun-a-machine-with-a") && long("1").len() == 40, "{}", long("1"));
    assert!(long("1") == long("1") && long("1") != long("2"));
    let slurm = [("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2"), ("SLURM_JOB_ID", "9"), ("SLURM_STEP_ID", "0")];
    let settings = of(&slurm).expect("usable");
    assert_eq!((settings.rank, settings.size, settings.job.as_str()), (1, 2, "9.0"));
    // What a starter runs in names no job of its own; what it says of places counts.
    let inside =
        [("SLURM_JOB_ID", "9"), ("SLURM_STEP_ID", "0"), ("SLURM_JOB_NUM_NODES", "2"), ("MPI_LOCALNRANKS", "2")];
    let mpich = [&[("PMI_RANK", "0"), ("PMI_SIZE", "2")], &inside[..]].concat();
    assert_eq!(of(&mpich).expect("usable").job, format!("p{}", std::os::unix::process::parent_id()));
    let apart = [&mpich[..3], &[("CUTTHROUGH_ADDRESSES", "udp:a:1, udp:b:2")]].concat();
    assert_eq!(of(&apart).expect("usable").job, "by-addresses");
    assert!(of(&mpich[..5]).expect_err("two machines").to_string().contains("set CUTTHROUGH_ADDRESSES"));
    let given = [("CUTTHROUGH_ADDRESSES", "udp:a:1, udp:b:2"), ("CUTTHROUGH_DEADLINE", "1.5")];
    let given = of(&[&slurm[..], &given].concat()).expect("usable");
    assert_eq!(given.addresses, ["udp:a:1", "udp:b:2"]);
    assert_eq!(given.deadline, Duration::from_millis(1500));

    let wrong = |more: &[(&str, &str)]| of(&[more, &slurm[..]].concat()).map(drop).expect_err("unusable").to_string();
    assert_eq!(wrong(&[("CUTTHROUGH_RANK", "1")]), "CUTTHROUGH_SIZE is missing; set it as well");
    assert_eq!(wrong(&[("SLURM_PROCID", "x")]), "SLURM_PROCID is \"x\"; it has to be a whole number");
    assert_eq!(wrong(&[("SLURM_PROCID", "2")]), "SLURM_PROCID is 2, and SLURM_NTASKS is 2; ranks count from 0");
    assert!(wrong(&[("SLURM_NNODES", "2")]).contains("set CUTTHROUGH_ADDRESSES"));
    assert!(wrong(&[("CUTTHROUGH_ADDRESSES", "udp:a:1")]).contains("give each one"));
    assert!(wrong(&[("CUTTHROUGH_START", "-1")]).contains("a number of seconds above 0"));
    assert!(wrong(&[("CUTTHROUGH_KEY", "psk: 1234")]).starts_with("CUTTHROUGH_KEY: "));
}
