//! T1 to T3: latency over pulse lengths and over payload, as in HPDC 1997, Figures 4, 6 and 7.

use crate::outcome::{Axis, Curve, Figure, Line, Outcome, Paper};

use super::lab::{Lab, PAGE, below, built_in, curve, curves, eager, fixed, mark, whole};
use super::machine::Machine;

/// Pulses of the papers' graphs, bytes: ticks every 1024 from 512, and more of them where it matters.
const PULSES: [u64; 19] =
    [256, 384, 512, 640, 768, 1024, 1152, 1280, 1408, 1536, 1792, 2048, 2560, 3584, 4608, 5632, 6656, 7680, 8192];

/// Pulses of the other side, one line each.
const LINES: [u64; 6] = [512, 1024, 1280, 1536, 2560, 8192];

const HOSTS: &str = "AlphaStation 500 pair, 128 B control, 8192 B payload";

fn us(id: &str, what: &str, conditions: &str, sim: f64) -> Line {
    Line::new(id, what, format!("{HOSTS}, {conditions}"), "us", sim)
}

/// A point of a paper: pulse of the sender, of the receiver, latency, and what it is.
type Known = (u64, u64, f64, &'static str);

/// Latency over the pulse of one side, with a line for each pulse of the other: a pair of graphs.
fn pair_of_graphs(
    id: &str,
    kind: &str,
    caption: &str,
    known: &[Known],
    mut latency: impl FnMut(u64, u64) -> f64,
) -> Vec<Figure> {
    let mut graph = |side: &str, other: &str, swap: bool| {
        let name = |bytes: u64| format!("{other} {kind} {bytes} B");
        let mut line =
            |bytes| curve(name(bytes), &PULSES, |x| if swap { latency(bytes, x) } else { latency(x, bytes) });
        let lines = LINES.iter().map(|&bytes| line(bytes)).collect();
        let at = |&(send, recv, us, label): &Known| mark(if swap { recv } else { send } as f64, us, label);
        let axes = [Axis::linear(&format!("{side} {kind}, bytes")), Axis::linear("one-way latency, us")];
        let title = format!("Latency over {side} {kind}");
        curves(&format!("{id}-{side}"), &title, caption, axes, lines, known.iter().map(at).collect())
    };
    vec![graph("send", "receive", false), graph("receive", "send", true)]
}

/// The fixed pulse, the same on both sides, with the least latency.
fn best_fixed(lab: &mut Lab, host: &Machine) -> (u64, f64) {
    let all = (8..=32).map(|step| step * 128).map(|pulse| (pulse, lab.latency(host, fixed(pulse, pulse), PAGE)));
    all.min_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or_default()
}

/// T1: fixed pulses (Figure 4).
pub(super) fn fixed_pulses() -> Outcome {
    let (mut lab, host) = (Lab::default(), built_in("alphastation500"));
    let full = lab.latency(&host, fixed(PAGE, PAGE), PAGE);
    let at_1280 = lab.latency(&host, fixed(1280, 1280), PAGE);
    let (pulse, best) = best_fixed(&mut lab, &host);
    let section = "hpdc97 section 4.1, Figure 4";
    let conditions = format!("{HOSTS}, the same pulse on both sides");
    let lines = vec![
        us("T1", "latency, store-and-forward", "pulses of 8 KB", full)
            .against(Paper::Value(308.0), 10.0)
            .fitted()
            .source(section),
        us("T1", "latency, fixed pulses", "pulses of 1280 B", at_1280)
            .against(Paper::Value(195.0), 10.0)
            .fitted()
            .source(section),
        Line::new("T1", "best fixed pulse", conditions.clone(), "B", pulse as f64)
            .against(Paper::Range([1000.0, 1843.0]), 0.0)
            .fitted()
            .source(format!("{section}: 1280 B; the range is the tolerance")),
        us("T1", "latency, best fixed pulse", &format!("pulses of {pulse} B"), best),
        Line::new("T1", "gain of fixed pulses over store-and-forward", conditions, "%", below(at_1280, full))
            .against(Paper::Value(37.0), 22.0)
            .fitted()
            .source(format!("{section}: follows from the two latencies; tolerance of 8 points")),
    ];
    let caption = "Whole messages on the right, more and shorter pulses to the left. Too short ones cost more to \
        start than they save, and the two sides differ: the sender has two movers to feed.";
    let known = [(1280, 1280, 195.0, "paper: 195 us"), (8192, 8192, 308.0, "paper: 308 us")];
    let figures =
        pair_of_graphs("t1-fixed", "pulse", caption, &known, |send, recv| lab.latency(&host, fixed(send, recv), PAGE));
    Outcome { lines, figures, events: lab.events }
}

/// T2: eager DMA (Figure 6).
pub(super) fn eager_pulses() -> Outcome {
    let (mut lab, host) = (Lab::default(), built_in("alphastation500"));
    let section = "hpdc97 section 4.2, Figure 6";
    let mut lines: Vec<Line> = [(384, 512), (512, 512), (512, 384)]
        .map(|(send, recv)| {
            let sim = lab.latency(&host, eager(send, recv), PAGE);
            us("T2", "latency, eager DMA", &format!("thresholds {send} and {recv} B"), sim)
                .against(Paper::Value(177.0), 8.0)
                .source(section)
        })
        .to_vec();
    let slower = PULSES.iter().map(|&bytes| {
        let least = lab.latency(&host, eager(bytes, bytes), PAGE);
        -below(least, lab.latency(&host, fixed(bytes, bytes), PAGE))
    });
    let worst = slower.fold(f64::NEG_INFINITY, f64::max);
    lines.push(
        Line::new(
            "T2",
            "most by which eager DMA is slower than fixed pulses",
            format!("{HOSTS}, any threshold"),
            "%",
            worst,
        )
        .against(Paper::Range([-100.0, 2.0]), 0.0)
        .source(format!("{section}: eager DMA is flatter at small thresholds")),
    );
    let caption = "Each pulse takes all that is buffered; the threshold is only the least. Where fixed pulses rise \
        steeply to the left, these stay flat, since pulses grow by themselves behind the slow bus of the receiver.";
    let known = [(512, 512, 177.0, "paper: 177 us"), (8192, 8192, 308.0, "paper: 308 us")];
    let latency = |send, recv| lab.latency(&host, eager(send, recv), PAGE);
    let figures = pair_of_graphs("t2-eager", "threshold", caption, &known, latency);
    Outcome { lines, figures, events: lab.events }
}

/// T3: latency over payload (Figure 7).
pub(super) fn payloads() -> Outcome {
    let (mut lab, host) = (Lab::default(), built_in("alphastation500"));
    let sizes: Vec<u64> = (0..=64).map(|step| step * 128).collect();
    let plain = curve("store-and-forward", &sizes, |len| lab.latency(&host, whole(), len));
    let through = curve("cut-through (eager, 384 and 512 B)", &sizes, |len| lab.latency(&host, eager(384, 512), len));
    let at = |curve: &Curve, len: u64| curve.points[(len / 128) as usize][1];
    let slope = |curve: &Curve| (at(curve, PAGE) - at(curve, 2048)) * 1000.0 / (PAGE - 2048) as f64;
    let gains = || plain.points.iter().zip(&through.points).map(|(plain, through)| (plain[0], plain[1] - through[1]));
    let even = gains().filter(|&(_, gain)| gain < 1.0).map(|(len, _)| len).fold(0.0, f64::max);
    let section = "hpdc97 section 4.3, Figure 7";
    let hosts = "AlphaStation 500 pair, 128 B control";
    let line = |what: &str, unit: &str, sim: f64| Line::new("T3", what, hosts, unit, sim).source(section);
    let gain = below(at(&through, PAGE), at(&plain, PAGE));
    let lines = vec![
        line("latency without payload", "us", at(&plain, 0)).against(Paper::Value(42.0), 10.0).fitted(),
        line("gain of cut-through at 8 KB", "%", gain).against(Paper::Value(43.0), 10.0),
        line("largest payload at which cut-through gains less than 1 us", "B", even),
        line("latency of 1 KB, store-and-forward", "us", at(&plain, 1024)),
        line("latency of 1 KB, cut-through", "us", at(&through, 1024)),
        line("latency of 4 KB, store-and-forward", "us", at(&plain, 4096)),
        line("latency of 4 KB, cut-through", "us", at(&through, 4096)),
        line("slope from 2 to 8 KB, store-and-forward", "ns/B", slope(&plain)),
        line("slope from 2 to 8 KB, cut-through", "ns/B", slope(&through)),
    ];
    let caption = "Store-and-forward pays for each byte on both buses and the link, cut-through only on the slowest \
        of them. Below the thresholds there is nothing to overlap.";
    let axes = [Axis::linear("payload, bytes"), Axis::linear("one-way latency, us")];
    let marks = vec![
        mark(0.0, 42.0, "paper: 42 us"),
        mark(8192.0, 308.0, "paper: 308 us"),
        mark(8192.0, 177.0, "paper: 177 us"),
    ];
    let figure = curves("t3-payload", "Latency over payload", caption, axes, vec![plain, through], marks);
    Outcome { lines, figures: vec![figure], events: lab.events }
}
