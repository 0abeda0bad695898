//! Split-C over a network that is not there: what every rank reads is what one array would say, be the wires as bad as
//! they like, and where a rank dies at any step, all others say so.
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "the numbers are small")]

use std::net::Ipv4Addr;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use cutthrough::simulated::{Network, Wire};
use cutthrough::{Keys, SharedKey};
use cutthrough_conform::random::Random;
use cutthrough_splitc::{Error, Op, Settings, Spread, World};

/// Elements of the array.
const LEN: usize = 20_000;
/// The most that one access of many elements has.
const BULK: u64 = 3000;
const PHASES: u64 = 6;
/// How long ranks wait for each other: nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest that a death may stay unknown: a peer is dead after a second of silence, and a machine may be busy.
const NOTICED: Duration = Duration::from_secs(15);

/// Wires drawn from a seed: from good ones to such that lose a twentieth, and do everything else that wires do.
fn wires(random: &mut Random) -> Wire {
    let mut up_to = |most: u64| random.below(most + 1) as f64 / 1000.0;
    let (loss, duplicates, reorders, corrupts, truncates) = (up_to(50), up_to(20), up_to(50), up_to(5), up_to(5));
    let micros = |random: &mut Random, most| Duration::from_micros(random.below(most));
    let (latency, jitter) = (micros(random, 200), micros(random, 100));
    let mtu = [1500, 1500, 9000, 1280][random.below(4) as usize];
    Wire { mtu, latency, jitter, loss, duplicates, reorders, corrupts, truncates, ..Wire::default() }
}

fn host(rank: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, u8::try_from(rank + 1).expect("few ranks"))
}

/// Ranks over such a network, sealed: a check sum finds most of what has changed, a seal all of it.
fn settings(size: u32, network: &Network) -> Settings {
    Settings {
        size,
        addresses: (0..size).map(|rank| format!("udp:{}:7000", host(rank))).collect(),
        job: "ranks".into(),
        keys: Some(Arc::new(Keys::Shared(SharedKey::from_bytes([3; 32])))),
        deadline: PATIENCE,
        start: PATIENCE,
        network: Some(network.clone()),
        ..Settings::alone()
    }
}

/// Some elements in a row.
#[derive(Debug, Clone, Copy)]
struct Run {
    first: usize,
    count: usize,
    /// What is written there: as many numbers from this one on.
    value: u64,
    way: u64,
}

/// What is done in a phase by this rank: nobody writes where another does, nor twice.
fn runs(seed: u64, phase: u64, (rank, size): (u32, u32)) -> Vec<Run> {
    let mut random = Random(seed ^ phase << 32 ^ 0x5eed);
    let mut runs = Vec::new();
    let mut first = 0;
    while first < LEN {
        let most = if random.below(3) == 0 { BULK } else { 4 };
        let count = (1 + random.below(most) as usize).min(LEN - first);
        let (whose, value, way) = (random.below(u64::from(size) + 1), random.draw() >> 8, random.below(5));
        // What is nobody's stays as it was.
        if whose == u64::from(rank) {
            runs.push(Run { first, count, value, way });
        }
        first += count;
    }
    runs
}

/// Writes a run: parts of the array that lie at one rank.
fn write(world: &mut World, array: &Spread<u64>, run: Run) -> Result<(), Error> {
    let block = array.block();
    let mut at = run.first;
    while at < run.first + run.count {
        let count = (block - at % block).min(run.first + run.count - at);
        let values: Vec<u64> = (0..count as u64).map(|i| run.value + (at - run.first) as u64 + i).collect();
        match run.way {
            0 => world.put_bulk(array.place(at), &values)?,
            1 => world.store_bulk(array.place(at), &values)?,
            2 => values.iter().zip(at..).try_for_each(|(value, at)| world.put(array.place(at), *value))?,
            // Waits for the other rank: of many elements for one of them.
            3 => {
                world.write_now(array.place(at), values[0])?;
                world.put_bulk(array.place(at).at(1), &values[1..])?;
            }
            _ => values.iter().zip(at..).try_for_each(|(value, at)| world.store(array.place(at), *value))?,
        }
        at += count;
    }
    Ok(())
}

/// Phases of writes by all and reads of some of it, each checked against one array; `step` comes before each.
fn live(world: &mut World, seed: u64, mut step: impl FnMut(&World, u64) -> bool) -> Result<(), Error> {
    let mut random = Random(seed ^ u64::from(world.rank()) << 48);
    let block = 1 + Random(seed).below(2000) as usize;
    let array = world.spread::<u64>(LEN, block)?;
    let mut expected = vec![0; LEN];
    for phase in 0..PHASES {
        if step(world, 2 * phase) {
            return Ok(());
        }
        for run in runs(seed, phase, (world.rank(), world.size())) {
            write(world, &array, run)?;
        }
        if step(world, 2 * phase + 1) {
            return Ok(());
        }
        world.all_store_sync()?;
        for rank in 0..world.size() {
            for run in runs(seed, phase, (rank, world.size())) {
                (run.value..).zip(&mut expected[run.first..][..run.count]).for_each(|(value, place)| *place = value);
            }
        }
        let mut coming = Vec::new();
        for _ in 0..40 {
            let first = random.below(LEN as u64) as usize;
            let count = (1 + random.below(BULK) as usize).min(block - first % block).min(LEN - first);
            coming.push((first, count, world.get_bulk(array.place(first), count)?));
        }
        world.sync()?;
        for (first, count, coming) in coming {
            let mut came = vec![0; count];
            world.take_bulk(coming, &mut came)?;
            assert_eq!(came, expected[first..first + count], "seed {seed}, phase {phase}, from {first} on");
        }
        for _ in 0..4 {
            let at = random.below(LEN as u64) as usize;
            let one = world.get(array.place(at))?;
            assert_eq!(world.read(array.place(at))?, expected[at], "seed {seed}, phase {phase}, {at}");
            world.wait_for(&one)?;
            assert_eq!(world.take(one)?, expected[at], "seed {seed}, phase {phase}, {at}");
        }
        let sum = world.reduce(Op::Sum, u64::from(world.rank()) + phase)?;
        let size = u64::from(world.size());
        assert_eq!(sum, size * (size - 1) / 2 + size * phase, "seed {seed}, phase {phase}");
    }
    Ok(())
}

#[test]
fn what_ranks_read_is_what_one_array_says() {
    let (mut lost, mut spoilt) = (0, 0);
    for seed in 0..12 {
        let mut random = Random(seed);
        let size = 2 + random.below(3) as u32;
        let network = Network::new(seed, wires(&mut random));
        let ends = World::threads_at(&settings(size, &network), |world| live(world, seed, |_, _| false));
        assert!(ends.is_ok(), "seed {seed}: {ends:?}");
        let counts = network.counts();
        assert!(counts.arrived > 0, "nothing went over the network");
        (lost, spoilt) = (lost + counts.lost, spoilt + counts.damaged);
    }
    assert!(lost > 0 && spoilt > 0, "the wires were good");
}

#[test]
fn an_address_that_no_simulated_host_can_have_is_refused() {
    let addresses = vec!["shm:ranks-{rank}".into()];
    let settings = Settings { addresses, ..settings(2, &Network::new(1, Wire::default())) };
    let refused = World::join(&settings).map(drop);
    assert!(
        matches!(&refused, Err(Error::Endpoint { rank: 0, why }) if why.contains("udp:NUMBER:PORT")),
        "{refused:?}"
    );
}

/// A rank's host is cut off before a step of its own: all others end, and name it; and so does it name another.
#[test]
fn where_a_rank_dies_all_others_say_so() {
    for seed in 0..8 {
        let mut random = Random(seed ^ 0xdead);
        let size = 2 + random.below(3) as u32;
        let (dies, when) = (random.below(u64::from(size)) as u32, random.below(2 * PHASES));
        let network = Network::new(seed, wires(&mut random));
        let settings = settings(size, &network);
        // Whoever leaves first would be named by others, too.
        let all = Barrier::new(size as usize);
        let run = |rank| {
            let mut since = Instant::now();
            let mut world = World::join(&Settings { rank, ..settings.clone() }).expect("all come");
            let end = live(&mut world, seed, |world, at| {
                let now = at == when && world.rank() == dies;
                if now {
                    network.unplug(host(dies));
                }
                since = Instant::now();
                // It goes on, and finds the others gone; now and then it does nothing more.
                now && seed % 2 == 0
            });
            let took = since.elapsed();
            all.wait();
            (end, took)
        };
        let ends: Vec<_> = std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = (0..size).map(|rank| scope.spawn(move || run(rank))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
        });
        for (rank, end) in (0..).zip(&ends) {
            let (end, took) = end;
            let is_named = match end {
                Err(Error::Lost { rank: gone, .. }) => (*gone == dies) != (rank == dies),
                Ok(()) => rank == dies && seed % 2 == 0,
                Err(_) => false,
            };
            assert!(is_named, "seed {seed}, rank {rank} of {size}, where {dies} dies before step {when}: {end:?}");
            assert!(*took < NOTICED, "seed {seed}, rank {rank}: {took:?}");
        }
    }
}
