//! Rows U7 and M5: the seven programs on three machines of the papers' time, and on hosts of today.

use crate::outcome::{Axis, Bar, Curve, Drawing, Figure, Line, Outcome, Paper};

use super::built_in;
use super::parts::Machine;
use super::programs::{Program, SIZES};
use super::world::{Run, run};

/// Nodes of the comparison.
const NODES: usize = 8;

/// Platforms and what the figures call them; the first is what the others are measured by.
const MACHINES: [(&str, &str); 3] = [("cm5", "CM-5"), ("unet-cluster", "U-Net"), ("cs2", "CS-2")];
const CM5: usize = 0;
const UNET: usize = 1;
const CS2: usize = 2;

/// The platform of M5.
const TODAY: &str = "udp-cluster";

const EQUIVALENT: &str = "U-Net abstract: equivalent, no numbers; a factor of 2 either way is our reading of the word";
const ORDER: &str = "expected, as each short message costs two processors their time; no text at hand gives it";

fn measure(machine: &Machine, program: Program, nodes: usize) -> Run {
    run(machine, program.steps(&SIZES, nodes))
}

/// The seven times of a machine over those of another, as their geometric mean.
fn mean_ratio(of: &[Run], over: &[Run]) -> f64 {
    let logs = of.iter().zip(over).map(|(of, over)| (of.time.as_s() / over.time.as_s()).ln());
    (logs.sum::<f64>() / of.len() as f64).exp()
}

pub(super) fn programs() -> Outcome {
    let machines = MACHINES.map(|(name, _)| built_in(name));
    let runs = machines.map(|machine| Program::ALL.map(|program| measure(&machine, program, NODES)));
    let mut outcome = Outcome::default();
    let mut bars = Vec::new();
    for (number, program) in Program::ALL.iter().enumerate() {
        let reference = runs[CM5][number].time;
        for (runs, (_, machine)) in runs.iter().zip(MACHINES) {
            let run = &runs[number];
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
            Program::ALL.iter().position(named).map_or(f64::NAN, |number| runs[UNET][number].time.as_s())
        };
        let ratio = time("bulk") / time("short messages");
        let line = Line::new("U7", format!("{sort}, bulk over short messages"), "U-Net, 8 nodes", "x", ratio);
        outcome.lines.push(line.against(Paper::Range([0.0, 1.0]), 0.0).source(ORDER));
    }
    outcome.events = runs.iter().flatten().map(|run| run.events).sum();
    outcome.figures.push(Figure {
        id: "u7-programs".to_owned(),
        title: "Split-C: seven programs on three machines of 8 nodes".to_owned(),
        caption: "Run times relative to the CM-5's. Programs are represented by their messages and operations. \
                  Communicating is all that is not computing: the processor's time for messages, and waiting. U-Net's \
                  messages cost what this simulator says of its adapter; those of the other two, and what an \
                  operation takes on all three, are general knowledge. Of the programs, only the matrix multiply and \
                  its size are named in a text at hand."
            .to_owned(),
        drawing: Drawing::Bars { y: Axis::linear("run time, CM-5 = 1"), bars },
    });
    for (machine, (platform, name)) in machines.iter().zip(MACHINES) {
        let curves = speed_ups(machine, &mut outcome.events);
        outcome.figures.push(drawn(
            format!("u7-speed-up-{platform}"),
            format!("Split-C: speed-up on the {name}"),
            curves,
        ));
    }
    outcome
}

/// M5: the same programs and sizes on hosts of today, whose messages cost what this library's do.
pub(super) fn today() -> Outcome {
    let mut outcome = Outcome::default();
    let curves = speed_ups(&built_in(TODAY), &mut outcome.events);
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
        caption: "One node's time over that of several with the same problem. Programs are represented by their \
                  messages and operations. Sixteen blocks of a matrix are not dealt out evenly among 3, 5, 6 or 7 \
                  nodes, where some have one more to compute: steps. A short message for each key or label costs far \
                  more than the few operations that it stands for, so more nodes may take longer than one."
            .to_owned(),
        drawing: Drawing::Curves { x: Axis::linear("nodes"), y: Axis::linear("speed-up"), curves, marks: Vec::new() },
    }
}

fn speed_ups(machine: &Machine, events: &mut u64) -> Vec<Curve> {
    Program::ALL.iter().map(|program| speed_up(machine, *program, events)).collect()
}

fn relative(program: Program, machine: &str, ratio: f64) -> Line {
    let line = Line::new("U7", format!("run time, {}", program.name()), format!("{machine}, 8 nodes"), "x CM-5", ratio);
    line.source("predicted from the program's operations and messages; no text at hand gives it")
}

fn bar(program: Program, machine: &str, run: &Run, unit_s: f64) -> Bar {
    let computing = run.mean_computing();
    let parts = [("computing", computing), ("communicating", run.time - computing)];
    Bar {
        name: format!("{}: {machine}", program.name()),
        parts: parts.map(|(name, span)| (name.to_owned(), span.as_s() / unit_s)).to_vec(),
        paper: None,
    }
}

fn speed_up(machine: &Machine, program: Program, events: &mut u64) -> Curve {
    let mut alone = None;
    let mut point = |nodes: usize| {
        let run = measure(machine, program, nodes);
        *events += run.events;
        let time = run.time.as_s();
        [nodes as f64, *alone.get_or_insert(time) / time]
    };
    Curve { name: program.name().to_owned(), points: (1..=NODES).map(&mut point).collect() }
}
