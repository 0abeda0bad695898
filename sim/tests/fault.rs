//! Worlds in which everything goes wrong: fixed seeds, fresh ones, and those that once failed.

use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use cutthrough_sim::fault::{self, Lies, Summary, With, Wraps};

/// Hash of seeds 0 to 999. Whatever makes other worlds of them changes it: the engine, or what may go wrong. Then the
/// hashes in `docs/performance.md` are of the worlds of before.
const HASH: u64 = 0x598c_c201_7398_62c1;

/// Runs seeds, on as many cores as there are, and shows every failure. Worlds add up to the same in any order.
fn all(seeds: Range<u64>) -> Summary {
    all_with(seeds, With::ALL)
}

fn all_with(seeds: Range<u64>, with: With) -> Summary {
    let (next, last) = (AtomicU64::new(seeds.start), seeds.end);
    let some = || {
        let (mut all, mut failed) = (Summary::default(), 0);
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= last {
                return (all, failed);
            }
            match fault::run_with(seed, with, None) {
                Ok(summary) => all.add(&summary),
                Err(failure) => {
                    println!("{failure}");
                    failed += 1;
                }
            }
        }
    };
    let (mut all, mut failed) = (Summary::default(), 0);
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(some)).collect();
        for ran in threads.into_iter().map(|thread| thread.join().expect("no world panics")) {
            all.add(&ran.0);
            failed += ran.1;
        }
    });
    assert_eq!(failed, 0, "failing seeds, beside {all:?}");
    all
}

#[test]
fn fixed_seeds_keep_every_rule() {
    let all = all(0..1000);
    let injected = &all.injected;
    let kinds = [injected.lost, injected.repeated, injected.reordered, injected.corrupted, injected.truncated];
    assert!(kinds.iter().all(|kind| *kind > 1000), "{all:?}");
    let rare = [injected.overflowed, injected.cut_off, injected.replayed, injected.forged, injected.crashes];
    assert!(rare.iter().all(|kind| *kind > 100), "{all:?}");
    assert!(injected.guessed > 1000, "{all:?}");
    assert!(injected.misled > 3, "what is forged is never believed: {all:?}");
    assert!(injected.narrowed > 100 && injected.too_long > 1000, "{all:?}");
    let of_machines = [injected.pauses, injected.jumps, injected.clogs, injected.cuts, injected.slow, injected.closed];
    assert!(of_machines.iter().all(|kind| *kind > 100), "{all:?}");
    // What goes wrong when nobody waits for anything shows little.
    assert!(injected.amid > 5500, "{all:?}");
    // Frames come late, and counters go past their end.
    assert!(injected.delayed > 100_000 && injected.clogged > 1000, "{all:?}");
    let Wraps { frames, messages, unasked, calls: names, stamps } = all.wraps;
    assert!([frames, messages, unasked, names, stamps].iter().all(|kind| *kind > 1), "{all:?}");
    assert!(injected.relieved > 100 && injected.moved_keys > 100, "{all:?}");
    let of_rings = [injected.ring_overflows, injected.strays, injected.swallowed, injected.black_holes];
    assert!(of_rings.iter().all(|kind| *kind > 100) && injected.ways_changed > 50, "{all:?}");
    assert!(all.frames_by_way.iter().all(|frames| *frames > 50_000), "{all:?}");
    let landed = &all.landed;
    assert!([landed.trains, landed.hits, landed.misses].iter().all(|kind| *kind > 10_000), "{all:?}");
    let placed = &all.placed;
    assert!([placed.hits, placed.misses, placed.strays, placed.pages].iter().all(|kind| *kind > 100), "{all:?}");
    assert!(placed.cut > 5_000 && placed.aims > 5_000, "{all:?}");
    assert!(all.messages > 50_000 && all.endings > 100, "{all:?}");
    let calls = &all.calls;
    let ends = [calls.replied, calls.late, calls.cancelled, calls.lost, calls.given_back, calls.put_off];
    assert!(ends.iter().all(|kind| *kind > 100) && calls.handed_over > 100 && calls.lent > 100, "{all:?}");
    assert!(calls.aged > 100, "{all:?}");
    // Who hands a request over does not serve it.
    assert!(calls.served <= calls.asked, "{all:?}");
    // Unknown, too long, busy, abandoned, no route, a bad token, refused: nothing else is answered to who still waits.
    let codes = [1, 3, 5, 8, 9, 11, 12];
    assert!(codes.iter().all(|code| calls.failed[code - 1] > 100), "{all:?}");
    assert!(all.hash == HASH, "other worlds than those whose hash is published: {:016x}", all.hash);
}

/// The first of some seeds that nobody has run, as `sim fault --seed` takes them: whole numbers that JSON keeps.
fn fresh() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_nanos() >> 10).unwrap() % ((1 << 53) - 200)
}

#[test]
fn fresh_seeds_keep_every_rule() {
    let first = fresh();
    println!("seeds {first} and the 199 after it");
    all(first..first + 200);
}

/// Who holds the key and lies breaks nothing but its own channels.
#[test]
fn liars_break_nothing_but_their_own_channels() {
    let all = all_with(0..200, With::LIARS);
    let Lies { changed, added, greetings, misplaced, certain, caught, messages, breaches } = &all.lies;
    assert!([changed, added, messages].iter().all(|kind| **kind > 10_000), "{all:?}");
    assert!([greetings, misplaced, certain, caught].iter().all(|kind| **kind > 100), "{all:?}");
    // By an index, a descriptor and a length; the others are of shared memory.
    assert!(breaches[..3].iter().all(|kind| *kind > 100) && breaches[3..] == [0; 3], "{all:?}");
    assert!(all.messages > 10_000, "honest ones talk meanwhile: {all:?}");
}

#[test]
fn fresh_seeds_with_liars_keep_every_rule() {
    let first = fresh();
    println!("seeds {first} and the 39 after it, with liars");
    all_with(first..first + 40, With::LIARS);
}

/// What they do is drawn apart: without them there is nothing of it.
#[test]
fn where_nobody_lies_the_world_is_as_it_was() {
    let honest = all(0..4);
    assert_eq!(honest.lies, Lies::default());
    assert_eq!(honest, all_with(0..4, With { liars: false, ..With::LIARS }));
    assert!(!fault::options(0).contains("liars"));
    let with = fault::options_with(0, With::LIARS);
    assert!(with.contains(" liars "), "{with}");
    assert_eq!(fault::run_with(7, With::LIARS, None), fault::run_with(7, With::LIARS, None));
}

#[test]
fn a_seed_is_the_same_world_each_time() {
    for seed in [3, 8, 37, 11_111] {
        assert_eq!(fault::options(seed), fault::options(seed));
        let first = fault::run(seed, None).unwrap();
        assert_eq!(first, fault::run(seed, None).unwrap());
        assert_ne!(first.hash, fault::run(seed + 1, None).unwrap().hash);
    }
}

/// Without rings a world with some is another one; one without any is the same.
#[test]
fn rings_change_no_world_that_has_none() {
    let (mut with, mut without) = (0, 0);
    for seed in 0..40 {
        let no_rings = With { rings: false, ..With::ALL };
        let worlds = [fault::run(seed, None).unwrap(), fault::run_with(seed, no_rings, None).unwrap()];
        if fault::options(seed).ends_with("ways 1") {
            assert_eq!(worlds[0], worlds[1]);
            without += 1;
        } else {
            assert_eq!(worlds[1].frames_by_way[1..], [0, 0]);
            with += 1;
        }
    }
    assert!(with > 5 && without > 5);
}

/// Without calls a world with some is another one; one without any is the same.
#[test]
fn calls_change_no_world_that_has_none() {
    let (mut with, mut without) = (0, 0);
    for seed in 0..40 {
        let no_calls = With { calls: false, ..With::ALL };
        let worlds = [fault::run(seed, None).unwrap(), fault::run_with(seed, no_calls, None).unwrap()];
        assert_eq!(worlds[1].calls, fault::Calls::default());
        if fault::options(seed).contains(" calls ") {
            with += 1;
        } else {
            assert_eq!(worlds[0], worlds[1]);
            without += 1;
        }
    }
    assert!(with > 5 && without > 5);
}

/// Each of these worlds once broke a rule, before there was more in worlds: rings, but for those that say so, and for
/// the last but three batches that are divided and paths that carry less. The last three had all but calls whose names
/// begin anew, and forgers who hear nothing.
#[test]
fn seeds_that_once_failed_keep_every_rule() {
    let seeds = [
        (1214, "a channel at its end looked for ever for what its pace did not let it send"),
        (9848, "two sides that had closed waited for each other to read, and kept others from being granted anything"),
        (20_486, "a bit of the version was changed on the way, and the caller was refused for it"),
        (23_827, "a call that was given up was told to be open when its number had another owner"),
        (31_942, "the version again"),
        (36_805, "the version again, with keys"),
        (37_235, "the version again, on a path that repeats"),
        (37_314, "a channel that only one side knew lived for twice the silence"),
        (44_870, "the same with clocks that jump"),
    ];
    let with_rings = [
        (9668, "probes of a channel whose welcome was lost were taken for those of the one that the call got instead"),
        (73_800, "answers went by a way on trial that led nowhere, and their node was taken for dead"),
    ];
    let with_more = [(32_982, "a channel that was closed here kept the ways of before, of which none led anywhere")];
    let of = |with| move |(seed, story)| (fault::run_with(seed, with, None), story);
    let rings = With { rings: true, ..With::NOTHING };
    let more = With { policy: true, narrow: true, ..rings };
    let all = seeds.map(of(With::NOTHING)).into_iter().chain(with_rings.map(of(rings))).chain(with_more.map(of(more)));
    let with_all = [
        (310_656, "an opening that had arrived after all carried less than the one that went again"),
        (502_364, "messages went by a way that led nowhere as long as what goes beside them was answered"),
        (1_753_613_769_024_351, "a frame that was to be forgotten was taken for one that had arrived"),
    ];
    let all = all.chain(with_all.map(of(With { names: false, blind: false, ..With::ALL })));
    for (ran, story) in all {
        if let Err(failure) = ran {
            panic!("{story}, again: {failure}");
        }
    }
}

/// The worlds that planted bugs are found in.
#[cfg(feature = "planted")]
mod planted {
    use cutthrough_sim::fault::{self, Bug, With};

    /// Seeds until a bug is found, by what it does: far less than a minute.
    fn found(bug: Bug, says: &str) -> u64 {
        found_with(With::ALL, bug, &[says])
    }

    /// It says any of these.
    fn found_with(with: With, bug: Bug, says: &[&str]) -> u64 {
        let first = (0..2000).find_map(|seed| fault::run_with(seed, with, Some(bug)).err());
        let failure = first.expect("a planted bug is found");
        println!("{bug:?} after {} seeds: {failure}", failure.seed + 1);
        assert!(says.iter().any(|says| failure.what.contains(says)), "{failure}");
        failure.seed + 1
    }

    #[test]
    fn a_payload_with_bytes_missing_is_found() {
        assert!(found(Bug::Unwritten, "is not what was sent") <= 500);
    }

    #[test]
    fn a_frame_of_an_earlier_life_is_found() {
        // A frame that breaks a rule is counted nowhere. The channel ends of it, or that is seen before.
        let says = ["broke a rule", "frames are counted, of"];
        assert!(found_with(With { blind: false, ..With::ALL }, Bug::Stale, &says) <= 2000);
    }

    #[test]
    fn a_frame_whose_generation_was_guessed_is_found() {
        assert!(found(Bug::Stale, "whose generation was guessed is not refused") <= 100);
    }

    #[test]
    fn a_grant_that_is_not_told_is_found() {
        assert!(found(Bug::Ungranted, "nothing goes wrong any more, and still") <= 500);
    }

    #[test]
    fn an_acknowledgement_of_what_was_never_sent_is_found() {
        let says = ["what cannot be true is taken in"];
        assert!(found_with(With::LIARS, Bug::Unsent, &says) <= 100);
    }

    #[test]
    fn a_part_beyond_its_payload_is_found() {
        let says = ["goes beyond itself", "a panic", "something lies in"];
        assert!(found_with(With::LIARS, Bug::Unbounded, &says) <= 500);
    }

    #[test]
    fn what_a_channel_leaves_behind_is_found() {
        assert!(found(Bug::Unforgotten, "a channel has ended and still has") <= 500);
    }
}

#[test]
fn worlds_add_up_to_the_same_in_any_order() {
    let worlds: Vec<_> = (0..8).map(|seed| fault::run(seed, None).unwrap()).collect();
    let sum = |order: &mut dyn Iterator<Item = usize>| {
        let mut all = fault::Summary::default();
        order.for_each(|number| all.add(&worlds[number]));
        all
    };
    let there = sum(&mut (0..8));
    assert_eq!(there, sum(&mut (0..8).rev()));
    assert_ne!(there.hash, sum(&mut (1..8)).hash);
}
