//! The cluster against arithmetic, and the programs against what they stand for.

use proptest::prelude::*;

use super::components::{components, edges, find, join};
use super::parts::{Machine, Work};
use super::programs::{Program, SIZES, Sizes, first_of, owner};
use super::results::programs;
use super::world::{Run, Step, run};
use super::{PLATFORMS, built_in, point};
use crate::atm::unet::costs;
use crate::outcome::Drawing;
use crate::platform::Platform;
use crate::point::{Point, PointError, Query};

/// Small problems, for many runs.
const SMALL: Sizes = Sizes { block: 16, keys: 1 << 10, samples: 16, mesh: 24, grid: 16, iterations: 3, ..SIZES };

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

fn is_whole(run: &Run, nodes: usize) -> bool {
    (run.sent, run.sent_bytes, run.finished) == (run.handled, run.handled_bytes, nodes)
}

fn ask(name: &str, payload: u64, count: u64, senders: u32) -> Result<Point, PointError> {
    let platform = Platform::parse(text(name), name).unwrap();
    point(&platform, &Query { firmware: "adaptive".parse().unwrap(), payload, count, senders })
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
    let read = Step::Get { from: 1, bytes };
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
    let deaf = vec![vec![Step::Compute(Work::float(1_000_000))], vec![Step::Get { from: 0, bytes: 8 }, Step::Sync]];
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
fn every_message_is_handled_once_and_every_program_ends_the_same_each_time() {
    for (name, _) in PLATFORMS {
        for program in Program::ALL {
            for nodes in [2, 3, 8] {
                let once = run(&built_in(name), program.steps(&SMALL, nodes));
                assert!(is_whole(&once, nodes) && once.sent > 0, "{name} {program:?} {nodes}: {once:?}");
                assert_eq!(once, run(&built_in(name), program.steps(&SMALL, nodes)));
            }
        }
    }
}

#[test]
fn one_node_needs_no_messages() {
    for program in Program::ALL {
        let alone = run(&built_in("cm5"), program.steps(&SMALL, 1));
        assert_eq!((alone.sent, alone.finished, alone.time), (0, 1, alone.mean_computing()));
    }
}

#[test]
fn more_nodes_multiply_matrices_sooner() {
    for (name, _) in PLATFORMS {
        let time = |nodes| run(&built_in(name), Program::Matrix.steps(&SIZES, nodes)).time;
        let times = [1, 2, 4, 8].map(time);
        assert!(times.is_sorted_by(|slower, faster| slower > faster), "{name}: {times:?}");
    }
}

/// The bytes of a matrix multiply are the blocks that are not at home.
#[test]
fn a_matrix_multiply_fetches_what_is_not_at_home() {
    let nodes = 8;
    let away = |mine: usize| {
        let (i, j) = (mine / 4, mine % 4);
        (0..4).flat_map(|k| [4 * i + k, 4 * k + j]).filter(|block| block % nodes != mine % nodes).count()
    };
    let blocks: usize = (0..16).map(away).sum();
    let steps = Program::Matrix.steps(&SIZES, nodes);
    let fetched = |step: &Step| if let Step::Get { bytes, .. } = step { *bytes } else { 0 };
    assert_eq!(steps.iter().flatten().map(fetched).sum::<u64>(), blocks as u64 * 128 * 128 * 8);
}

#[test]
fn components_are_those_of_a_serial_run() {
    let mut parents: Vec<usize> = (0..SMALL.mesh * SMALL.mesh).collect();
    edges(&SMALL).into_iter().for_each(|edge| join(&mut parents, edge));
    let serial: Vec<usize> = (0..parents.len()).map(|point| find(&mut parents, point)).collect();
    for nodes in [1, 2, 5, 8, 24] {
        assert_eq!(components(&SMALL, nodes).1, serial, "{nodes} nodes");
    }
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
        for program in Program::ALL {
            let run = run(&machine, program.steps(&SMALL, 4));
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
    #[test]
    fn things_are_dealt_out_in_runs(total in 1usize..200, nodes in 1usize..20) {
        for number in 0..total {
            let node = owner(number, total, nodes);
            prop_assert!((first_of(node, total, nodes)..first_of(node + 1, total, nodes)).contains(&number));
        }
    }

    /// No order of puts, gets, waits and barriers loses a message or leaves a node waiting.
    #[test]
    fn nothing_is_lost_whatever_the_nodes_do(
        each in prop::collection::vec(prop::collection::vec((0u8..5, 0usize..8, 0u64..9000), 0..20), 1..9),
        barriers in 0usize..3,
    ) {
        let nodes = each.len();
        let step = |node: usize, (kind, far, bytes): (u8, usize, u64)| match (kind, 1 + far % nodes.max(2)) {
            (0, _) => Step::Compute(Work::integer(bytes)),
            (1, far) if far < nodes => Step::Put { to: (node + far) % nodes, bytes },
            (2, far) if far < nodes => Step::Get { from: (node + far) % nodes, bytes },
            (3, _) => Step::Sync,
            _ => Step::Poll,
        };
        let steps: Vec<Vec<Step>> = each
            .iter()
            .enumerate()
            .map(|(node, kinds)| {
                let steps = kinds.iter().map(|kind| step(node, *kind));
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
