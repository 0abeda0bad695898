//! The cluster against arithmetic, and what programs on it come to.

use cutthrough_space::programs::{Done, Program};
use cutthrough_space::{Global, Op, Space, Work};
use proptest::prelude::*;

use super::parts::Machine;
use super::play::play_on;
use super::results::programs;
use super::world::{Run, Step, run};
use super::{PLATFORMS, PlayError, Rank, RankError, built_in, play, point};
use crate::atm::unet::costs;
use crate::outcome::Drawing;
use crate::platform::Platform;
use crate::point::{Point, PointError, Query};

/// Small problems, for many runs.
const SMALL: [Program; 7] = [
    Program::Matmul { blocks: 4, side: 16 },
    Program::SampleSort { bulk: false, keys: 1 << 10 },
    Program::SampleSort { bulk: true, keys: 1 << 10 },
    Program::RadixSort { bulk: false, keys: 1 << 10 },
    Program::RadixSort { bulk: true, keys: 1 << 10 },
    Program::Components { side: 24, percent: 60 },
    Program::Gradient { side: 16, iterations: 3 },
];

fn text(name: &str) -> &'static str {
    PLATFORMS.iter().find(|(known, _)| *known == name).unwrap().1
}

/// A built-in machine with another value of one parameter.
fn with(text: &str, key: &str, value: &str) -> String {
    let (before, after) = text.split_once(&format!("[{key}]\nvalue = ")).unwrap();
    let (_, rest) = after.split_once('\n').unwrap();
    format!("{before}[{key}]\nvalue = {value}\n{rest}")
}

fn machine(text: &str) -> Result<Machine, String> {
    Machine::read(&Platform::parse(text, "x.toml").unwrap()).map_err(|error| error.to_string())
}

fn platform(name: &str) -> Platform {
    Platform::parse(text(name), name).unwrap()
}

/// A program on so many nodes: how it has ended, and what the nodes did.
fn done(machine: &Machine, program: Program, nodes: u32) -> (Vec<Done>, Run) {
    play_on(machine, nodes, |rank| program.run(rank)).unwrap_or_else(|error| panic!("{program:?}: {error}"))
}

fn is_whole(run: &Run, nodes: usize) -> bool {
    (run.sent, run.sent_bytes, run.finished) == (run.handled, run.handled_bytes, nodes)
}

fn ask(name: &str, payload: u64, count: u64, senders: u32) -> Result<Point, PointError> {
    point(&platform(name), &Query { firmware: "adaptive".parse().unwrap(), payload, count, senders })
}

#[test]
fn a_short_message_takes_what_its_parts_take() {
    let there = run(&built_in("cm5"), vec![vec![Step::Put { to: 1, bytes: 16 }, Step::Sync], Vec::new()]);
    // 1.5 us to send, half a round trip between; then handling, and the answer of 4 bytes instead of 20 on the port.
    assert_eq!(there.first.unwrap().as_us(), 6.0);
    assert!((there.time.as_us() - (12.0 - 1.6)).abs() < 1e-9);
    assert_eq!((there.sent, there.sent_bytes), (2, 16));
    assert_eq!(ask("cs2", 16, 1, 1).unwrap().one_way_us, 12.5);
    assert_eq!(ask("unet-cluster", 16, 1, 1).unwrap().one_way_us, 34.8);
}

#[test]
fn a_chunk_is_copied_at_both_ends_and_crosses_both_ports_once() {
    // 51.2 us for each copy and 51.6 us on the ports, which overlap; 3 us of overhead and 1 us of travel.
    let chunk = ask("cm5", 512, 1, 1).unwrap();
    assert!((chunk.one_way_us - (3.0 * 51.2 + 0.4 + 3.0 + 1.0)).abs() < 1e-6, "{}", chunk.one_way_us);
    // Of many chunks, each keeps a processor for a copy and four overheads' half.
    let stream = ask("cm5", 4096, 100, 1).unwrap().bytes_per_s / 1e6;
    assert!((9.0..=10.0).contains(&stream), "{stream}");
    // Without copies, only overhead is added.
    let moved = ask("cs2", 4096, 1, 1).unwrap();
    assert!((moved.one_way_us - (4100.0 / 40.0 + 12.0)).abs() < 1e-6, "{}", moved.one_way_us);
}

#[test]
fn a_bulk_read_goes_on_while_its_node_computes() {
    let bytes = 20 * 4096;
    let rows = [Step::Compute(Work::float(10_000)), Step::Poll].repeat(100);
    let read = Step::Get { from: 1, bytes, ticket: 0 };
    let ahead = [vec![read], rows.clone(), vec![Step::Sync]].concat();
    let after = [rows.clone(), vec![read, Step::Sync]].concat();
    let time = |steps: &[Step]| run(&built_in("cs2"), vec![steps.to_vec(), Vec::new()]).time;
    let (ahead, after, alone) = (time(&ahead), time(&after), time(&rows));
    assert!(ahead < after && (ahead - alone).as_us() < 0.5 * (after - alone).as_us());
}

#[test]
fn computing_takes_operations_times_their_time_and_hears_nothing() {
    let work = Work { integer: 10, float: 5 };
    let alone = run(&built_in("cs2"), vec![vec![Step::Compute(work)]]);
    assert_eq!(alone.time.as_us(), 10.0 * 0.025 + 5.0 * 0.075);
    let deaf =
        vec![vec![Step::Compute(Work::float(1_000_000))], vec![Step::Get { from: 0, bytes: 8, ticket: 0 }, Step::Sync]];
    assert!(run(&built_in("cs2"), deaf).time.as_us() > 75_000.0);
}

/// The cluster's messages are those of the adapter that this simulator has.
#[test]
fn the_cluster_of_unet_costs_what_its_adapter_costs() {
    let (costs, unet) = (costs(), built_in("unet-cluster"));
    let close = |is: f64, should: f64, percent: f64| {
        assert!((is / should - 1.0).abs() * 100.0 <= percent, "{is} is not {should}: {costs:?}");
    };
    close(unet.send_cost(0).as_us(), costs.send, 0.1);
    close(unet.handle_cost(0).as_us(), costs.handle, 0.1);
    close(2.0 * ask("unet-cluster", 16, 1, 1).unwrap().one_way_us, costs.round_trip, 0.5);
    close(unet.on_port(16).as_us(), costs.each, 2.0);
    close(2.0 * ask("unet-cluster", 4096, 1, 1).unwrap().one_way_us, costs.chunk_round_trip, 1.0);
    // Nothing was set after this one.
    close(ask("unet-cluster", 4096, 200, 1).unwrap().bytes_per_s / 1e6, costs.mb_per_s, 15.0);
}

#[test]
fn a_node_waits_for_one_read_and_for_one_letter() {
    let bytes = 20 * 4096;
    let [near, far] = [Step::Get { from: 1, bytes: 8, ticket: 7 }, Step::Get { from: 1, bytes, ticket: 8 }];
    let until = |last: Step| {
        let steps = vec![far, near, last, Step::Clock];
        run(&built_in("cs2"), vec![steps, Vec::new()]).marks[0][0].at
    };
    let [short, long, all] = [Step::Wait { ticket: 7 }, Step::Wait { ticket: 8 }, Step::Sync].map(until);
    assert!(short < long && long == all, "{short:?} {long:?} {all:?}");
    // Letters are heard in any order, and each once.
    let tell = |number, bytes| Step::Tell { to: 1, bytes, number };
    let hear = |number| Step::Hear { from: 0, number };
    let heard = |steps: Vec<Step>| run(&built_in("cs2"), vec![vec![tell(1, bytes), tell(2, 8)], steps]);
    let both = heard(vec![hear(2), Step::Clock, hear(1), Step::Clock]);
    assert!(is_whole(&both, 2) && both.marks[1][0].at > both.first.unwrap(), "{both:?}");
    assert_eq!(heard(vec![hear(1), hear(2), hear(2)]).stuck, [1]);
}

#[test]
fn every_message_is_handled_once_and_every_program_ends_the_same_each_time() {
    for (name, _) in PLATFORMS {
        for program in SMALL {
            for nodes in [2, 3, 8] {
                let (once, again) = (done(&built_in(name), program, nodes), done(&built_in(name), program, nodes));
                let run = &once.1;
                assert!(is_whole(run, nodes as usize) && run.sent > 0, "{name} {program:?} {nodes}: {run:?}");
                assert_eq!(once, again);
            }
        }
    }
}

#[test]
fn one_node_needs_no_messages() {
    for program in SMALL {
        let (done, alone) = done(&built_in("cm5"), program, 1);
        assert_eq!((alone.sent, alone.finished, alone.time), (0, 1, alone.computing[0]));
        assert!(done[0].time.as_nanos() > 0, "{program:?}");
    }
}

#[test]
fn more_nodes_multiply_matrices_sooner() {
    for (name, _) in PLATFORMS {
        let program = Program::Matmul { blocks: 4, side: 128 };
        let times = [1, 2, 4, 8].map(|nodes| done(&built_in(name), program, nodes).0[0].time);
        assert!(times.is_sorted_by(|slower, faster| slower > faster), "{name}: {times:?}");
    }
}

/// What a rank does takes the time of its node, and not that of the thread which it has here.
#[test]
fn a_program_takes_the_time_of_its_node() {
    let program = |rank: &mut Rank| {
        let begun = rank.time()?;
        std::thread::sleep(std::time::Duration::from_millis(5));
        rank.computes(Work::float(1000));
        let computed = rank.time()?;
        let place: Global<u64> = rank.alloc(1)?;
        rank.barrier()?;
        let asked = rank.time()?;
        let value = if rank.rank() == 0 { rank.read(place.on(1))? } else { 0 };
        let read = rank.time()?;
        rank.barrier()?;
        Ok((value, [computed - begun, read - asked].map(|time| time.as_nanos())))
    };
    let played = play(&platform("cm5"), 2, program).unwrap();
    // 1000 operations of 182 ns; a round trip of 12 us, less what is shorter than a message of 16 bytes, and a copy.
    let (computed, asked) = (played.results[0].1[0], played.results[0].1[1]);
    assert_eq!((played.results[0].0, computed), (0, 182_000));
    assert!((9_000..=13_000).contains(&asked), "{asked}");
    assert_eq!(played.results[1].1[1], 0);
}

#[test]
fn a_rank_that_fails_or_panics_ends_the_run_and_is_named() {
    // All others wait for it, in each way of waiting.
    let others = |rank: &mut Rank| match rank.rank() {
        1 => rank.barrier(),
        2 => rank.reduce(Op::Sum, 1_u32).map(drop),
        _ => rank.all_store_sync(),
    };
    let run = |program: &(dyn Fn(&mut Rank) -> Result<(), RankError> + Sync)| {
        play(&platform("cs2"), 4, program).unwrap_err().to_string()
    };
    let failed = run(&|rank| match rank.rank() {
        3 => rank.store(Global::new(0, 64), 1_u8),
        _ => others(rank),
    });
    assert!(failed.starts_with("rank 3: 1 bytes from 0x40 on do not lie in the part of rank 0"), "{failed}");
    let panicked = run(&|rank| match rank.rank() {
        3 => panic!("on purpose, by rank {}", rank.rank()),
        _ => others(rank),
    });
    assert_eq!(panicked, "rank 3 panicked: on purpose, by rank 3");
    // Whoever goes on although all is over ends, too.
    let stubborn = run(&|rank| match rank.rank() {
        3 => Err(RankError::Uneven),
        _ => (0..100).map(|_| others(rank)).last().unwrap_or(Ok(())),
    });
    assert!(stubborn.starts_with("rank 3: "), "{stubborn}");
}

#[test]
fn ranks_that_wait_for_ever_are_named() {
    let stuck = play(&platform("cm5"), 3, |rank| if rank.rank() == 1 { Ok(()) } else { rank.barrier() });
    assert!(matches!(stuck, Err(PlayError::Stuck { ranks }) if ranks == [0, 2]));
    let uneven = play(&platform("cm5"), 2, |rank| rank.alloc::<u8>(1 + rank.rank() as usize).map(drop));
    assert!(matches!(uneven, Err(PlayError::Failed { error: RankError::Uneven, .. })));
    for nodes in [0, 9] {
        let none = play(&platform("cm5"), nodes, |_| Ok(()));
        assert!(matches!(none, Err(PlayError::Nodes { asked, has: 8 }) if asked == nodes));
    }
}

#[test]
fn what_a_rank_may_not_do_is_refused_and_the_run_goes_on() {
    play(&platform("cm5"), 2, |rank| {
        let here: Global<u32> = rank.alloc(4)?;
        let outside = |error| matches!(error, RankError::Outside { .. });
        assert!(outside(rank.get(here.at(4)).unwrap_err()) && outside(rank.store(here.on(1).at(4), 1).unwrap_err()));
        assert!(outside(rank.local(here.on(1 - rank.rank()), &mut [0]).unwrap_err()));
        assert!(outside(rank.in_place(here, 5).unwrap_err()));
        let odd = Global::<u32>::new(rank.rank(), here.offset() + 1);
        assert!(matches!(rank.in_place(odd, 1), Err(RankError::Unaligned { .. })));
        assert!(matches!(rank.get(here.on(2)), Err(RankError::NoRank { rank: 2, size: 2 })));
        assert!(matches!(rank.broadcast_bulk(2, &mut [0_u8]), Err(RankError::NoRank { .. })));
        rank.store(here.on(1 - rank.rank()), 7)?;
        rank.all_store_sync()?;
        assert_eq!(rank.in_place(here, 4)?, [7, 0, 0, 0]);
        Ok(())
    })
    .unwrap();
}

#[test]
fn extreme_machines_work_or_are_refused() {
    let unet = text("unet-cluster");
    for (key, why) in [("message.window", "at least 1"), ("bulk.window", "at least 1"), ("bulk.chunk", "at least 1")] {
        assert!(machine(&with(unet, key, "0")).unwrap_err().contains(why));
    }
    assert!(machine(&with(unet, "message.round_trip", "10")).unwrap_err().contains("is less than two messages take"));
    assert!(machine(&with(unet, "port.rate", "0")).is_err() && machine(&with(unet, "hosts", "2000")).is_err());
    let values = [
        ("bulk.window", "1"),
        ("message.window", "1"),
        ("bulk.chunk", "1"),
        ("message.short", "0"),
        ("processor.float", "0"),
        ("message.round_trip", "900000000"),
        ("bulk.copy", "900000000"),
        ("bulk.chunk", "900000000"),
    ];
    for (key, value) in values {
        let machine = machine(&with(unet, key, value)).unwrap();
        for program in SMALL {
            let (_, run) = done(&machine, program, 4);
            assert!(is_whole(&run, 4), "{key} = {value}, {program:?}");
        }
    }
}

#[test]
fn what_a_cluster_cannot_do_is_said() {
    for (payload, count, senders) in [(8, 0, 1), (8, 1, 0), (8, 1, 8), (u64::MAX, 1, 1), (8, u64::MAX, 7)] {
        assert!(matches!(ask("cm5", payload, count, senders), Err(PointError::Impossible(_))));
    }
    assert!(ask("cm5", 0, 1, 1).unwrap().one_way_us > 0.0);
}

proptest! {
    /// No order of puts, gets, waits and barriers loses a message or leaves a node waiting.
    #[test]
    fn nothing_is_lost_whatever_the_nodes_do(
        each in prop::collection::vec(prop::collection::vec((0u8..6, 0usize..8, 0u64..9000), 0..20), 1..9),
        barriers in 0usize..3,
    ) {
        let nodes = each.len();
        let step = |node: usize, ticket: u32, (kind, far, bytes)| match (kind, 1 + far % nodes.max(2)) {
            (0, _) => Step::Compute(Work::integer(bytes)),
            (1, far) if far < nodes => Step::Put { to: (node + far) % nodes, bytes },
            (2, far) if far < nodes => Step::Get { from: (node + far) % nodes, bytes, ticket },
            (3, _) => Step::Sync,
            (4, _) => Step::Wait { ticket: ticket.saturating_sub(1) },
            _ => Step::Poll,
        };
        let steps: Vec<Vec<Step>> = each
            .iter()
            .enumerate()
            .map(|(node, kinds)| {
                let steps = kinds.iter().zip(0..).map(|(kind, ticket)| step(node, ticket, *kind));
                steps.chain((0..barriers).map(|_| Step::Barrier)).chain([Step::Sync]).collect()
            })
            .collect();
        let run = run(&built_in("unet-cluster"), steps);
        prop_assert!(is_whole(&run, nodes));
        prop_assert!(run.computing.iter().all(|computing| *computing <= run.time));
    }
}

#[test]
fn the_row_is_whole_and_its_order_holds() {
    let outcome = programs();
    assert!(outcome.lines.iter().all(|line| line.id == "U7" && line.sim.is_finite() && !line.source.is_empty()));
    assert_eq!(outcome.lines.len(), 3 * 7 + 4);
    let missed: Vec<_> = outcome.lines.iter().filter(|line| line.ok == Some(false)).collect();
    assert!(missed.is_empty(), "{missed:#?}");
    for figure in &outcome.figures {
        match &figure.drawing {
            Drawing::Bars { bars, .. } => {
                assert_eq!(bars.len(), 21);
                assert!(bars.iter().flat_map(|bar| &bar.parts).all(|(_, height)| *height >= 0.0));
            }
            Drawing::Curves { curves, .. } => {
                assert!(curves.iter().all(|curve| curve.points.len() == 8 && curve.points[0] == [1.0, 1.0]));
                // Nodes share what one computes; only keys sorted in smaller parts take fewer steps.
                assert!(curves.iter().flat_map(|curve| &curve.points).all(|[nodes, gain]| *gain <= 1.15 * nodes));
            }
            Drawing::Flow { .. } => panic!("no such figure"),
        }
    }
}
