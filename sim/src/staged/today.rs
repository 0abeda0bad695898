//! M1 to M4: today's machines. What is the best policy at 100 and 400 Gb/s, when pulses cost nanoseconds and pages are
//! 4 KiB to 2 MiB?

use cutthrough_engine::pulse::Policy;

use crate::outcome::{Axis, Curve, Line, Outcome};
use crate::point::Firmware;
use crate::time::Span;

use super::lab::{Lab, below, built_in, curve, curves, eager, fixed, untuned, whole};
use super::machine::Machine;

/// Pages of today: 4 KiB to 2 MiB.
const PAGES: [u64; 10] =
    [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20];

const MACHINES: [&str; 3] = ["pcie4-100g", "pcie5-400g", "cloud-vnic"];

/// Fixed pulses to try for a payload of `len` bytes: two for each power of two from 256 B.
fn sweep(len: u64) -> impl Iterator<Item = u64> {
    (8..=len.ilog2()).flat_map(|log| [1 << log, 3 << (log - 1)]).filter(move |&pulse| pulse <= len)
}

/// The fixed pulse with the least latency, and that latency.
fn best_fixed(lab: &mut Lab, machine: &Machine, len: u64) -> (u64, f64) {
    let tried = sweep(len).map(|pulse| (pulse, latency(lab, machine, fixed(pulse, pulse), len)));
    tried.min_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or((len, f64::NAN))
}

/// Mean one-way latency of a few round trips: these machines are as quick as their runs are long in turns.
fn latency(lab: &mut Lab, machine: &Machine, firmware: Firmware, len: u64) -> f64 {
    let rounds =
        if matches!(firmware, Firmware::Engine { send: Policy::Adaptive { minpulse: None }, .. }) { 20 } else { 4 };
    lab.go(super::run::Run::ping_pong([machine, machine], firmware, len, rounds)).each_us()
}

fn size(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}

/// M1: gain over store-and-forward, by page.
pub(super) fn gains() -> Outcome {
    let mut lab = Lab::default();
    let (mut lines, mut figures) = (Vec::new(), Vec::new());
    for name in MACHINES {
        let machine = built_in(name);
        let plain: Vec<f64> = PAGES.iter().map(|&len| latency(&mut lab, &machine, whole(), len)).collect();
        let mut gain = |policy: &str, of: fn(&mut Lab, &Machine, u64) -> f64| {
            let gain = |(&len, &plain): (&u64, &f64)| [len as f64, below(of(&mut lab, &machine, len), plain)];
            Curve { name: policy.to_owned(), points: PAGES.iter().zip(&plain).map(gain).collect() }
        };
        let drawn = vec![
            gain("adaptive, nothing set", |lab, machine, len| latency(lab, machine, untuned(), len)),
            gain("adaptive, minpulse 512 B", |lab, machine, len| latency(lab, machine, eager(512, 512), len)),
            gain("best fixed pulse for each page", |lab, machine, len| best_fixed(lab, machine, len).1),
        ];
        for (curve, at) in drawn.iter().flat_map(|curve| [0, 4, 9].map(|at| (curve, at))) {
            let what = format!("gain over store-and-forward, {}", curve.name);
            let conditions = format!("{name}, page of {}", size(PAGES[at]));
            lines.push(Line::new("M1", what, conditions, "%", curve.points[at][1]).source("prediction"));
        }
        let caption = "How much sooner a page is there than with store-and-forward. On short pages the fixed costs \
            of a message hide everything; on long ones three stages overlap.";
        let axes = [Axis::log("page, bytes"), Axis::linear("gain over store-and-forward, %")];
        figures.push(curves(
            &format!("m1-{name}"),
            &format!("Gain over page, {name}"),
            caption,
            axes,
            drawn,
            Vec::new(),
        ));
    }
    Outcome { lines, figures, events: lab.events }
}

/// M2: latency over fixed pulse: the curves that the papers drew for 8 KB.
pub(super) fn pulses() -> Outcome {
    let mut lab = Lab::default();
    let (mut lines, mut figures) = (Vec::new(), Vec::new());
    for name in MACHINES {
        let machine = built_in(name);
        let pages = [4 << 10, 64 << 10, 2 << 20];
        let line = |len: u64, lab: &mut Lab| {
            let pulses: Vec<u64> = sweep(len).collect();
            let points = curve(String::new(), &pulses, |pulse| latency(lab, &machine, fixed(pulse, pulse), len)).points;
            let least = points.iter().map(|point| point[1]).fold(f64::INFINITY, f64::min);
            let over = points.into_iter().map(|[pulse, us]| [pulse, us / least]).collect();
            Curve { name: size(len), points: over }
        };
        let drawn: Vec<Curve> = pages.iter().map(|&len| line(len, &mut lab)).collect();
        for len in pages {
            let (pulse, us) = best_fixed(&mut lab, &machine, len);
            let regret = latency(&mut lab, &machine, untuned(), len) / us;
            let conditions = format!("{name}, page of {}", size(len));
            let line =
                |what: &str, unit: &str, sim| Line::new("M2", what, conditions.clone(), unit, sim).source("prediction");
            lines.push(line("best fixed pulse", "B", pulse as f64));
            lines.push(line("latency, best fixed pulse", "us", us));
            lines.push(line("latency of adaptive with nothing set, over that", "ratio", regret));
        }
        let caption = "Latency over that of the best pulse of each page. The best one grows with the page: there is \
            no pulse to set once for all.";
        let axes = [Axis::log("fixed pulse, bytes"), Axis::log("latency over the best")];
        figures.push(curves(
            &format!("m2-{name}"),
            &format!("Latency over pulse, {name}"),
            caption,
            axes,
            drawn,
            Vec::new(),
        ));
    }
    Outcome { lines, figures, events: lab.events }
}

/// M3: bandwidth over page.
pub(super) fn bandwidths() -> Outcome {
    let mut lab = Lab::default();
    let (mut lines, mut figures) = (Vec::new(), Vec::new());
    for name in MACHINES {
        let machine = built_in(name);
        let policies = [
            ("store-and-forward", whole()),
            ("fixed, 1408 B", fixed(1408, 1408)),
            ("fixed, 16 KiB", fixed(16 << 10, 16 << 10)),
            ("adaptive, nothing set", untuned()),
        ];
        let mut rate = |firmware, len: u64| {
            let count = (32 << 20) / len;
            lab.bandwidth([&machine, &machine], firmware, len, count.clamp(16, 400)) * 8.0 / 1e9
        };
        let drawn: Vec<Curve> =
            policies.iter().map(|&(policy, firmware)| curve(policy, &PAGES, |len| rate(firmware, len))).collect();
        for (curve, at) in drawn.iter().flat_map(|curve| [0, 4, 9].map(|at| (curve, at))) {
            let conditions = format!("{name}, pages of {} one after the other", size(PAGES[at]));
            lines.push(
                Line::new("M3", format!("bandwidth, {}", curve.name), conditions, "Gb/s", curve.points[at][1])
                    .source("prediction"),
            );
        }
        let caption = "Under load adaptive pulses are whole pages, so they reach what store-and-forward does; short \
            fixed pulses do not fill a fast link.";
        let axes = [Axis::log("page, bytes"), Axis::linear("bandwidth, Gb/s")];
        figures.push(curves(
            &format!("m3-{name}"),
            &format!("Bandwidth over page, {name}"),
            caption,
            axes,
            drawn,
            Vec::new(),
        ));
    }
    Outcome { lines, figures, events: lab.events }
}

/// M4: what a pulse may cost.
pub(super) fn costs() -> Outcome {
    const COSTS_NS: [u64; 9] = [1, 3, 10, 30, 100, 300, 1000, 3000, 10_000];
    let mut lab = Lab::default();
    let (mut lines, mut figures) = (Vec::new(), Vec::new());
    for name in ["pcie4-100g", "pcie5-400g"] {
        let mut machine = built_in(name);
        let mut gain = |cost_ns: u64, len: u64| {
            (machine.turn, machine.decision) = (Span::from_ns(cost_ns), Span::from_ns(cost_ns));
            let plain = latency(&mut lab, &machine, whole(), len);
            below(latency(&mut lab, &machine, untuned(), len), plain)
        };
        let drawn: Vec<Curve> =
            [4 << 10, 64 << 10, 2 << 20].map(|len| curve(size(len), &COSTS_NS, |cost| gain(cost, len))).to_vec();
        for (curve, at) in drawn.iter().flat_map(|curve| [1, 4, 6].map(|at| (curve, at))) {
            let conditions =
                format!("{name}, page of {}, {} ns for a turn and for a decision", curve.name, COSTS_NS[at]);
            let line = Line::new("M4", "gain of adaptive over store-and-forward", conditions, "%", curve.points[at][1]);
            lines.push(line.source("prediction"));
        }
        let caption = "Gain of adaptive pulses, with nothing set, over store-and-forward, for what a turn of the \
            firmware loop and a decision cost. A long page gains whatever they cost; a short one only on a quick \
            adapter.";
        let axes = [Axis::log("cost of a turn and of a decision, ns"), Axis::linear("gain over store-and-forward, %")];
        figures.push(curves(
            &format!("m4-{name}"),
            &format!("Gain over the cost of a pulse, {name}"),
            caption,
            axes,
            drawn,
            Vec::new(),
        ));
    }
    Outcome { lines, figures, events: lab.events }
}
