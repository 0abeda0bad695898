//! Rows U7 and M5: the seven programs on three machines of the papers' time, and on hosts of today.

use cutthrough_space::programs::{Program, Values};

use crate::outcome::{Axis, Bar, Curve, Drawing, Figure, Line, Outcome, Paper};
use crate::time::Span;

use super::built_in;
use super::parts::Machine;
use super::play::play_on;
use super::world::{Mark, Run};

/// Nodes of the comparison.
const NODES: usize = 8;

/// The paper's matrices; the other sizes are chosen.
const PROGRAMS: [Program; 7] = [
    Program::Matmul { blocks: 4, side: 128 },
    Program::SampleSort { bulk: false, keys: KEYS },
    Program::SampleSort { bulk: true, keys: KEYS },
    Program::RadixSort { bulk: false, keys: KEYS },
    Program::RadixSort { bulk: true, keys: KEYS },
    Program::Components { side: 256, percent: 60 },
    Program::Gradient { side: 128, iterations: 50 },
];
const KEYS: usize = 1 << 15;

/// Platforms and what the figures call them; the first is what the others are measured by.
const MACHINES: [(&str, &str); 3] = [("cm5", "CM-5"), ("unet-cluster", "U-Net"), ("cs2", "CS-2")];
const CM5: usize = 0;
const UNET: usize = 1;
const CS2: usize = 2;

/// The platform of M5.
const TODAY: &str = "udp-cluster";

const EQUIVALENT: &str = "U-Net abstract: equivalent, no numbers; a factor of 2 either way is our reading of the word";
const ORDER: &str = "expected, as each short message costs two processors their time; no text at hand gives it";

/// What a program takes on so many nodes, from when the first begins until the last is done.
#[derive(Debug, Clone, Copy)]
struct Measured {
    time: Span,
    /// Mean time that a node computes.
    computing: Span,
    events: u64,
}

impl Measured {
    /// From the two times that a program asks for the time.
    fn of(run: &Run) -> Self {
        let (begun, ended): (Vec<Mark>, Vec<Mark>) =
            run.marks.iter().filter_map(|marks| Some((*marks.first()?, *marks.last()?))).unzip();
        let first = begun.iter().map(|mark| mark.at).min().unwrap_or_default();
        let last = ended.iter().map(|mark| mark.at).max().unwrap_or_default();
        let computing = begun.iter().zip(&ended).map(|(begun, ended)| ended.computing - begun.computing);
        let sum: Span = computing.sum();
        Self {
            time: last - first,
            computing: Span::from_ps(sum.as_ps() / ended.len().max(1) as u64),
            events: run.events,
        }
    }
}

/// Runs a program, and holds what its ranks come to against a serial run.
///
/// # Panics
/// If they come to something else, or fail: a mistake of the program or of this crate.
fn measure(machine: &Machine, program: Program, nodes: u32, serial: &Values) -> Measured {
    let what = format!("{} on {nodes} simulated nodes", program.name());
    let played = play_on(machine, nodes, |rank| program.run(rank));
    let (mut done, run) = played.unwrap_or_else(|error| panic!("{what}: {error}"));
    let came = done.swap_remove(0).values;
    assert!(came.is_some_and(|came| program.agrees(&came, serial)), "{what}: not what a serial run comes to");
    Measured::of(&run)
}

/// Each program on 1 to 8 nodes of each machine: by machine, program and number of nodes.
fn measure_all<const N: usize>(machines: &[Machine; N]) -> [Vec<[Measured; NODES]>; N] {
    let mut all = machines.map(|_| Vec::new());
    for program in PROGRAMS {
        let serial = program.serial()();
        for (runs, machine) in all.iter_mut().zip(machines) {
            let mut nodes = 0;
            runs.push([(); NODES].map(|()| {
                nodes += 1;
                measure(machine, program, nodes, &serial)
            }));
        }
    }
    all
}

/// On all nodes.
fn whole(runs: &[Measured; NODES]) -> Measured {
    runs[NODES - 1]
}

fn events(runs: &[Vec<[Measured; NODES]>]) -> u64 {
    runs.iter().flatten().flatten().map(|run| run.events).sum()
}

/// The seven times of a machine over those of another, as their geometric mean.
fn mean_ratio(of: &[[Measured; NODES]], over: &[[Measured; NODES]]) -> f64 {
    let logs = of.iter().zip(over).map(|(of, over)| (whole(of).time.as_s() / whole(over).time.as_s()).ln());
    (logs.sum::<f64>() / of.len() as f64).exp()
}

pub(super) fn programs() -> Outcome {
    let machines = MACHINES.map(|(name, _)| built_in(name));
    let runs = measure_all(&machines);
    let mut outcome = Outcome { events: events(&runs), ..Outcome::default() };
    let mut bars = Vec::new();
    for (number, program) in PROGRAMS.iter().enumerate() {
        let reference = whole(&runs[CM5][number]).time;
        for (runs, (_, machine)) in runs.iter().zip(MACHINES) {
            let run = whole(&runs[number]);
            outcome.lines.push(relative(*program, machine, run.time.as_s() / reference.as_s()));
            bars.push(bar(*program, machine, run, reference.as_s()));
        }
    }
    for (what, of, over) in [("U-Net over CM-5", UNET, CM5), ("U-Net over CS-2", UNET, CS2)] {
        let ratio = mean_ratio(&runs[of], &runs[over]);
        let line = Line::new("U7", format!("geometric mean of seven run times, {what}"), "8 nodes", "x", ratio);
        outcome.lines.push(line.against(Paper::Range([0.5, 2.0]), 0.0).source(EQUIVALENT));
    }
    for sort in ["sample sort", "radix sort"] {
        let time = |form: &str| {
            let named = |program: &Program| program.name() == format!("{sort}, {form}");
            let number = PROGRAMS.iter().position(named);
            number.map_or(f64::NAN, |number| whole(&runs[UNET][number]).time.as_s())
        };
        let ratio = time("bulk") / time("short messages");
        let line = Line::new("U7", format!("{sort}, bulk over short messages"), "U-Net, 8 nodes", "x", ratio);
        outcome.lines.push(line.against(Paper::Range([0.0, 1.0]), 0.0).source(ORDER));
    }
    outcome.figures.push(Figure {
        id: "u7-programs".to_owned(),
        title: "Split-C: seven programs on three machines of 8 nodes".to_owned(),
        caption: "Run times relative to the CM-5's. The programs are those that run for real; what they compute takes \
                  as long as the operations that they say. Communicating is all that is not computing: the \
                  processor's time for messages, and waiting. U-Net's messages cost what this simulator says of its \
                  adapter; those of the other two, and what an operation takes on all three, are general knowledge. Of \
                  the programs, only the matrix multiply and its size are named in a text at hand."
            .to_owned(),
        drawing: Drawing::Bars { y: Axis::linear("run time, CM-5 = 1"), bars },
    });
    for (runs, (platform, name)) in runs.iter().zip(MACHINES) {
        let title = format!("Split-C: speed-up on the {name}");
        outcome.figures.push(drawn(format!("u7-speed-up-{platform}"), title, speed_ups(runs)));
    }
    outcome
}

/// M5: the same programs and sizes on hosts of today, whose messages cost what this library's do.
pub(super) fn today() -> Outcome {
    let runs = measure_all(&[built_in(TODAY)]);
    let mut outcome = Outcome { events: events(&runs), ..Outcome::default() };
    let curves = speed_ups(&runs[0]);
    for (curve, nodes) in curves.iter().flat_map(|curve| [2, NODES].map(|nodes| (curve, nodes))) {
        let speed_up = curve.points[nodes - 1][1];
        let line = Line::new("M5", format!("speed-up, {}", curve.name), format!("{nodes} hosts"), "x", speed_up);
        outcome.lines.push(line.source("prediction"));
    }
    outcome.figures.push(drawn(format!("m5-{TODAY}"), "Split-C: speed-up on 8 hosts with UDP".to_owned(), curves));
    outcome
}

fn drawn(id: String, title: String, curves: Vec<Curve>) -> Figure {
    Figure {
        id,
        title,
        caption: "One node's time over that of several with the same problem. The programs are those that run for \
                  real; what they compute takes as long as the operations that they say. Sixteen blocks of a matrix \
                  are not dealt out evenly among 3, 5, 6 or 7 nodes, where some have one more to compute: steps. A \
                  short message for each key or label costs far more than the few operations that it stands for, so \
                  more nodes may take longer than one; so does a short run of keys for each digit of a radix sort in \
                  bulk."
            .to_owned(),
        drawing: Drawing::Curves { x: Axis::linear("nodes"), y: Axis::linear("speed-up"), curves, marks: Vec::new() },
    }
}

fn speed_ups(runs: &[[Measured; NODES]]) -> Vec<Curve> {
    let curve = |(program, runs): (&Program, &[Measured; NODES])| {
        let points = runs.iter().zip(1_u32..);
        let points = points.map(|(run, nodes)| [f64::from(nodes), runs[0].time.as_s() / run.time.as_s()]).collect();
        Curve { name: program.name().to_owned(), points }
    };
    PROGRAMS.iter().zip(runs).map(curve).collect()
}

fn relative(program: Program, machine: &str, ratio: f64) -> Line {
    let line = Line::new("U7", format!("run time, {}", program.name()), format!("{machine}, 8 nodes"), "x CM-5", ratio);
    line.source("predicted from the program's operations and messages; no text at hand gives it")
}

fn bar(program: Program, machine: &str, run: Measured, unit_s: f64) -> Bar {
    let parts = [("computing", run.computing), ("communicating", run.time - run.computing)];
    Bar {
        name: format!("{}: {machine}", program.name()),
        parts: parts.map(|(name, span)| (name.to_owned(), span.as_s() / unit_s)).to_vec(),
        paper: None,
    }
}
