//! The seven programs of Split-C, for real and on simulated nodes: the same code comes to the same bytes, asks the same
//! of the same ranks, and is what a serial run comes to.

use std::time::Duration;

use cutthrough_sim::platform::Platform;
use cutthrough_sim::splitc::{PLATFORMS, PlayError, Played, RankError, play};
use cutthrough_space::programs::{Done, Program, Values};
use cutthrough_space::together::LETTERS_PER_BARRIER;
use cutthrough_space::{Element, Global, Op, Space, Work};
use cutthrough_splitc::World;

/// The seven, with sizes that do not divide evenly.
const PROGRAMS: [Program; 7] = [
    Program::Matmul { blocks: 3, side: 17 },
    Program::SampleSort { bulk: false, keys: 1001 },
    Program::SampleSort { bulk: true, keys: 5001 },
    Program::RadixSort { bulk: false, keys: 1001 },
    Program::RadixSort { bulk: true, keys: 5001 },
    Program::Components { side: 31, percent: 55 },
    Program::Gradient { side: 17, iterations: 20 },
];

const RANKS: [u32; 5] = [1, 2, 3, 4, 8];

/// What a rank has asked of another, or of all: where, and how many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Read(u32, u64, usize),
    Write(u32, u64, usize),
    Reduce(usize),
    Scan(usize),
    Broadcast(usize),
    Barrier,
}

/// A rank, and all that it has asked for.
struct Heard<'a, S> {
    space: &'a mut S,
    asked: Vec<Asked>,
}

impl<S: Space> Space for Heard<'_, S> {
    type Error = S::Error;
    type Coming<T: Element> = S::Coming<T>;

    fn rank(&self) -> u32 {
        self.space.rank()
    }
    fn size(&self) -> u32 {
        self.space.size()
    }
    fn time(&mut self) -> Result<Duration, S::Error> {
        self.space.time()
    }
    fn computes(&mut self, work: Work) {
        self.space.computes(work);
    }
    fn alloc<T: Element>(&mut self, count: usize) -> Result<Global<T>, S::Error> {
        // Two ends of a part, as `together.rs` says.
        self.asked.push(Asked::Reduce(16));
        self.space.alloc(count)
    }
    fn local<T: Element>(&mut self, from: Global<T>, into: &mut [T]) -> Result<(), S::Error> {
        self.space.local(from, into)
    }
    fn set_local<T: Element>(&mut self, to: Global<T>, values: &[T]) -> Result<(), S::Error> {
        self.space.set_local(to, values)
    }
    fn in_place<T: Element>(&self, from: Global<T>, count: usize) -> Result<&[T], S::Error> {
        self.space.in_place(from, count)
    }
    fn in_place_mut<T: Element>(&mut self, from: Global<T>, count: usize) -> Result<&mut [T], S::Error> {
        self.space.in_place_mut(from, count)
    }
    fn get_bulk<T: Element>(&mut self, from: Global<T>, count: usize) -> Result<S::Coming<T>, S::Error> {
        self.asked.push(Asked::Read(from.rank(), from.offset(), count * T::BYTES));
        self.space.get_bulk(from, count)
    }
    fn wait_for<T: Element>(&mut self, coming: &S::Coming<T>) -> Result<(), S::Error> {
        self.space.wait_for(coming)
    }
    fn arrived<'a, T: Element>(&'a self, coming: &S::Coming<T>) -> Option<&'a [T]> {
        self.space.arrived(coming)
    }
    fn take_bulk<T: Element>(&mut self, coming: S::Coming<T>, into: &mut [T]) -> Result<(), S::Error> {
        self.space.take_bulk(coming, into)
    }
    fn put_bulk<T: Element>(&mut self, to: Global<T>, values: &[T]) -> Result<(), S::Error> {
        self.asked.push(Asked::Write(to.rank(), to.offset(), values.len() * T::BYTES));
        self.space.put_bulk(to, values)
    }
    fn store_bulk<T: Element>(&mut self, to: Global<T>, values: &[T]) -> Result<(), S::Error> {
        self.asked.push(Asked::Write(to.rank(), to.offset(), values.len() * T::BYTES));
        self.space.store_bulk(to, values)
    }
    fn sync(&mut self) -> Result<(), S::Error> {
        self.space.sync()
    }
    fn barrier(&mut self) -> Result<(), S::Error> {
        self.asked.push(Asked::Barrier);
        self.space.barrier()
    }
    fn poll(&mut self) -> Result<(), S::Error> {
        self.space.poll()
    }
    fn broadcast_bulk<T: Element>(&mut self, root: u32, values: &mut [T]) -> Result<(), S::Error> {
        self.asked.push(Asked::Broadcast(values.len() * T::BYTES));
        self.space.broadcast_bulk(root, values)
    }
    fn reduce_bulk<T: Element>(&mut self, op: Op, values: &mut [T]) -> Result<(), S::Error> {
        self.asked.push(Asked::Reduce(values.len() * T::BYTES));
        self.space.reduce_bulk(op, values)
    }
    fn scan_bulk<T: Element>(&mut self, op: Op, values: &mut [T]) -> Result<(), S::Error> {
        self.asked.push(Asked::Scan(values.len() * T::BYTES));
        self.space.scan_bulk(op, values)
    }
}

/// A rank's run, and all that it has asked for.
fn heard<S: Space>(program: Program, space: &mut S) -> Result<(Done, Vec<Asked>), S::Error> {
    let mut heard = Heard { space, asked: Vec::new() };
    let done = program.run(&mut heard)?;
    Ok((done, heard.asked))
}

fn platform(name: &str) -> Platform {
    let text = PLATFORMS.iter().find(|(known, _)| *known == name).expect("a built-in platform").1;
    Platform::parse(text, name).expect("it is well formed")
}

/// What all ranks have come to, and what each has asked for.
fn apart(ends: Vec<(Done, Vec<Asked>)>) -> (Values, Vec<Vec<Asked>>) {
    let (done, asked): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    let mut values: Vec<_> = done.into_iter().filter_map(|done| done.values).collect();
    assert_eq!(values.len(), 1, "rank 0 alone has all");
    (values.remove(0), asked)
}

fn simulated(program: Program, ranks: u32, on: &str) -> Played<(Done, Vec<Asked>)> {
    play(&platform(on), ranks, |rank| heard(program, rank)).expect("no rank fails")
}

fn real(program: Program, ranks: u32) -> (Values, Vec<Vec<Asked>>) {
    apart(World::threads(ranks, |world| heard(program, world)).expect("no rank fails"))
}

#[test]
fn simulated_nodes_come_to_what_a_serial_run_comes_to() {
    for program in PROGRAMS {
        let serial = program.serial()();
        for (on, _) in PLATFORMS {
            for ranks in RANKS {
                let (came, _) = apart(simulated(program, ranks, on).results);
                assert!(program.agrees(&came, &serial), "{program:?} on {ranks} nodes of {on}");
                // Sums of several ranks are added in another order.
                if ranks == 1 || !matches!(program, Program::Gradient { .. }) {
                    assert_eq!(came.bytes(), serial.bytes(), "{program:?} on {ranks} nodes of {on}");
                }
            }
        }
    }
}

#[test]
fn simulated_nodes_come_to_what_real_ranks_come_to_and_ask_the_same() {
    for program in PROGRAMS {
        for ranks in RANKS {
            let (there, theirs) = real(program, ranks);
            let (here, ours) = apart(simulated(program, ranks, "udp-cluster").results);
            assert_eq!(here.bytes(), there.bytes(), "{program:?} on {ranks} ranks");
            assert_eq!(ours, theirs, "{program:?} on {ranks} ranks");
        }
    }
}

/// Messages of a CM-5 for what ranks have asked for: two for each request, and those of barriers.
fn messages(asked: &[Vec<Asked>]) -> u64 {
    let ranks = asked.len() as u64;
    let rounds = u64::from(asked.len().next_power_of_two().ilog2());
    let requests = |bytes: usize| if bytes <= 16 { 1 } else { bytes.div_ceil(512) as u64 };
    let mut all = 0;
    for (rank, asked) in (0_u32..).zip(asked) {
        all += asked
            .iter()
            .map(|asked| match *asked {
                Asked::Read(of, _, bytes) | Asked::Write(of, _, bytes) if of != rank => 2 * requests(bytes),
                Asked::Barrier => rounds,
                _ => 0,
            })
            .sum::<u64>();
    }
    // What all do together: each has asked for the same.
    let mut operations = 0;
    for asked in &asked[0] {
        let (letters, bytes) = match *asked {
            Asked::Reduce(bytes) => (2 * (ranks - 1), bytes),
            Asked::Broadcast(bytes) => (ranks - 1, bytes),
            Asked::Scan(bytes) => ((0..rounds).map(|round| ranks - (1 << round)).sum(), bytes),
            _ => continue,
        };
        operations += 1;
        all += 2 * letters * requests(bytes);
        all += if operations % LETTERS_PER_BARRIER == 0 { ranks * rounds } else { 0 };
    }
    all
}

#[test]
fn nodes_send_as_many_messages_as_real_ranks_have_asked_for() {
    for program in PROGRAMS {
        for ranks in RANKS {
            let (_, asked) = real(program, ranks);
            let sent = simulated(program, ranks, "cm5").messages;
            assert_eq!(sent, messages(&asked), "{program:?} on {ranks} ranks");
            assert!(ranks == 1 || sent > 0);
        }
    }
}

#[test]
fn the_same_run_is_the_same_to_the_event() {
    for program in PROGRAMS {
        let run = || simulated(program, 8, "unet-cluster");
        assert_eq!(run(), run(), "{program:?}");
    }
}

/// A serial run that finds fault with nothing would find fault with no rank.
#[test]
fn other_values_are_not_taken_for_the_same() {
    for program in PROGRAMS {
        let serial = program.serial()();
        let other = match serial.clone() {
            Values::Keys(mut keys) => {
                keys.swap(0, 500);
                Values::Keys(keys)
            }
            Values::Words(mut words) => {
                words[7] += 1;
                Values::Words(words)
            }
            Values::Doubles(mut doubles) => {
                doubles[7] *= 1.0 + 1e-5;
                Values::Doubles(doubles)
            }
        };
        assert!(program.agrees(&serial, &serial) && !program.agrees(&other, &serial), "{program:?}");
    }
}

/// Where a rank gives up, or panics, the others wait for nothing.
#[test]
fn a_rank_that_gives_up_ends_a_simulated_run() {
    let program = Program::Components { side: 9, percent: 50 };
    let ended = |give_up: fn() -> RankError| {
        play(&platform("cs2"), 3, |rank| if rank.rank() == 2 { Err(give_up()) } else { program.run(rank) })
    };
    let failed = ended(|| RankError::Uneven);
    assert!(matches!(failed, Err(PlayError::Failed { rank: 2, error: RankError::Uneven })), "{failed:?}");
    let panicked = ended(|| panic!("on purpose"));
    assert!(matches!(&panicked, Err(PlayError::Panicked { rank: 2, what }) if what == "on purpose"), "{panicked:?}");
}
