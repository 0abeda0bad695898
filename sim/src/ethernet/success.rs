//! D3: how often guesses come true.

use super::built_in;
use super::parts::Parts;
use super::receiver::Control;
use super::run::{Measured, Streams, shared_memory, streams};
use super::stack::Method;
use crate::outcome::{Axis, Curve, Drawing, Experiment, Figure, Line, Mark, Outcome, Paper};
use crate::time::Span;

pub(super) const EXPERIMENTS: &[Experiment] =
    &[Experiment { id: "D3", title: "Speculative Defragmentation: how often guesses come true", run: d3 }];

/// The receivers that are compared.
const CONTROLS: [(&str, Control); 4] = [
    ("no control", Control { admission: false, register: false }),
    ("matching register, header split", Control { admission: false, register: true }),
    ("admission control", Control { admission: true, register: false }),
    ("admission control, matching register, header split", Control { admission: true, register: true }),
];

/// Runs that are averaged, each with a seed of its own.
const SEEDS: u64 = 3;
/// Seed of the shared memory.
const SEED: u64 = 1;
/// Most senders at once.
const MOST: u32 = 8;

/// The paper does not say how long its program works on a page, and that decides: choosing a time is fitting.
const SLIDE_19: &str =
    "slide 19; the program's work on a page is not known, and 3 ms was chosen with this figure in view";

/// Means over the runs of an experiment.
struct Mean {
    success_pct: f64,
    mb_per_s: f64,
    events: u64,
}

fn mean(parts: &Parts, what: &Streams) -> Mean {
    let runs: Vec<Measured> = (0..SEEDS).map(|seed| streams(parts, &Streams { seed, ..*what })).collect();
    let over = |value: fn(&Measured) -> f64| runs.iter().map(value).sum::<f64>() / runs.len() as f64;
    Mean {
        success_pct: over(Measured::success_pct),
        mb_per_s: over(Measured::mb_per_s),
        events: runs.iter().map(|run| run.events).sum(),
    }
}

/// Streams that do not keep step by accident.
fn at_once(method: Method, senders: u32, control: Control) -> Streams {
    Streams { control, senders, count: 40, varies: true, ..Streams::new(method, method) }
}

fn d3() -> Outcome {
    let parts = built_in("gige-pentium2");
    let mut outcome = Outcome::default();
    one_sender(&parts, &mut outcome);
    several_senders(&parts, &mut outcome);
    two_with_pauses(&parts, &mut outcome);
    outcome
}

/// Frames come from one host, or from one at a time.
fn one_sender(parts: &Parts, outcome: &mut Outcome) {
    let alone = mean(parts, &at_once(Method::Fbufs, 1, Control::default()));
    outcome.events += alone.events;
    outcome.lines.push(
        Line::new(
            "D3",
            "frames of pages placed without a copy, one sender",
            "gige-pentium2, fbufs",
            "%",
            alone.success_pct,
        )
        .against(Paper::Range([99.0, 100.0]), 0.0)
        .source("reference README D3; slide 19: 100 % at the TreadMarks master"),
    );
    let points: Vec<[f64; 2]> = [100, 300, 1000, 3000, 10_000, 30_000]
        .into_iter()
        .map(|us| {
            let run = shared_memory(parts, Method::Fbufs, Span::from_ns(1000 * us), 150, SEED);
            outcome.events += run.events;
            [us as f64, run.success_pct()]
        })
        .collect();
    let slow = points.iter().find(|[us, _]| *us >= 3000.0).map_or(0.0, |&[_, success]| success);
    outcome.lines.push(
        Line::new(
            "D3",
            "frames of pages placed without a copy, shared memory of three hosts",
            "gige-pentium2, fbufs; each process fetches page after page from the others, with 3 ms of work between",
            "%",
            slow,
        )
        .against(Paper::Range([99.94, 100.0]), 1.0)
        .fitted()
        .source(SLIDE_19),
    );
    let marks = vec![Mark { at: [3000.0, 99.94], label: "TreadMarks SOR, the worst host".to_owned() }];
    outcome.figures.push(Figure {
        id: "d3-shared-memory".to_owned(),
        title: "Guesses that come true in a shared memory of three hosts".to_owned(),
        caption: "Every process has one page under way at a time, so what spoils a guess is another process's \
                  request that comes between. The more a process works on each page, the rarer that is. The time of \
                  the paper's program is not known; its mark stands at 3 ms."
            .to_owned(),
        drawing: Drawing::Curves {
            x: Axis::log("work on a page, us"),
            y: Axis::linear("frames placed without a copy, %"),
            curves: vec![Curve { name: "no control".to_owned(), points }],
            marks,
        },
    });
}

/// Hosts that send to one at the same time without a pause.
fn several_senders(parts: &Parts, outcome: &mut Outcome) {
    let (mut success, mut speed) = (Vec::new(), Vec::new());
    for (name, control) in CONTROLS {
        let means: Vec<Mean> =
            (1..=MOST).map(|senders| mean(parts, &at_once(Method::Fbufs, senders, control))).collect();
        outcome.events += means.iter().map(|mean| mean.events).sum::<u64>();
        for senders in [2, 4, 8] {
            let mean = &means[senders - 1];
            let conditions = format!("gige-pentium2, fbufs, {senders} senders of 64 KiB messages at once, {name}");
            let rule = "prediction: frames interleave in the switch in the order of their arrival";
            let line = |what, unit, sim| Line::new("D3", what, conditions.as_str(), unit, sim).source(rule);
            outcome.lines.push(line("frames of pages placed without a copy", "%", mean.success_pct));
            outcome.lines.push(line("bandwidth", "MB/s", mean.mb_per_s));
        }
        let curve = |value: fn(&Mean) -> f64| Curve {
            name: name.to_owned(),
            points: (1..).zip(&means).map(|(senders, mean)| [f64::from(senders), value(mean)]).collect(),
        };
        success.push(curve(|mean| mean.success_pct));
        speed.push(curve(|mean| mean.mb_per_s));
    }
    let figure = |id: &str, title: &str, y: &str, curves| Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        caption: "Without control the frames of two senders interleave, and nearly every guess fails; what is wrong \
                  is copied. With admission one sender sends at a time, and asks before each message of 64 KiB. A \
                  matching register alone keeps the first stream's guesses true, and leaves the others to the \
                  ordinary way."
            .to_owned(),
        drawing: Drawing::Curves { x: Axis::linear("senders at once"), y: Axis::linear(y), curves, marks: Vec::new() },
    };
    let success = figure("d3-success", "Guesses that come true", "frames placed without a copy, %", success);
    let speed = figure("d3-bandwidth", "Bandwidth of several senders to one", "bandwidth, MB/s", speed);
    outcome.figures.extend([success, speed]);
}

/// Two hosts that send now and then: the applications of the paper are in between.
fn two_with_pauses(parts: &Parts, outcome: &mut Outcome) {
    let mut curves = Vec::new();
    for method in [Method::Fbufs, Method::Remapping] {
        let mut points: Vec<[f64; 2]> = Vec::new();
        for us in [0, 500, 1000, 2000, 3000, 4000, 6000, 8000, 16_000, 32_000] {
            let two = at_once(method, 2, Control::default());
            let mean = mean(parts, &Streams { pause: Span::from_ns(1000 * us), ..two });
            outcome.events += mean.events;
            points.push([us as f64 / 2000.0, mean.success_pct]);
        }
        curves.push(Curve { name: method.name().to_owned(), points });
    }
    outcome.figures.push(Figure {
        id: "d3-pauses".to_owned(),
        title: "Two senders that pause".to_owned(),
        caption:
            "Guesses that come true without any control, over the mean pause between messages of 64 KiB. A message \
                  alone takes about 0.9 ms."
                .to_owned(),
        drawing: Drawing::Curves {
            x: Axis::linear("mean pause, ms"),
            y: Axis::linear("frames placed without a copy, %"),
            curves,
            marks: Vec::new(),
        },
    });
}
