//! N1 and N2: three policies on each host, and a burst that falls back to whole transfers ("Network I/O with Trapeze",
//! Hot Interconnects 1999, Table 1 and Figure 3).

use crate::outcome::{Axis, Bar, Drawing, Figure, Line, Outcome, Paper, Stripe};

use super::lab::{Lab, PAGE, below, built_in, eager, fixed, whole};
use super::machine::Machine;
use super::run::Run;
use super::watch::{MOVERS, Mover};
use super::{Lens, MINPULSE};

const SOURCE: &str = "hoti99 section Balancing Latency and Bandwidth, text on Table 1";

/// Trapeze hosts: sender, receiver.
const HOSTS: [(&str, &str); 5] = [
    ("alphastation500", "alphastation500"),
    ("alcor", "miata"),
    ("miata", "alcor"),
    ("miata", "miata"),
    ("pentium2-440lx", "pentium2-440lx"),
];

/// Latency in microseconds and bandwidth in MB/s of the three policies, in the paper's order.
fn policies(lab: &mut Lab, pair: [&Machine; 2]) -> [(f64, f64); 3] {
    [whole(), fixed(1408, 1408), eager(MINPULSE, MINPULSE)].map(|firmware| {
        let alone = lab.go(Run::stream(pair, firmware, Lens::Same(PAGE), 1, 1));
        let latency = if std::ptr::eq(pair[0], pair[1]) {
            lab.latency(pair[0], firmware, PAGE)
        } else {
            alone.watch.first().as_us()
        };
        (latency, lab.bandwidth(pair, firmware, PAGE, 1000) / 1e6)
    })
}

/// N1: the three policies.
pub(super) fn table() -> Outcome {
    let mut lab = Lab::default();
    let (mut lines, mut latencies, mut bandwidths) = (Vec::new(), Vec::new(), Vec::new());
    let (mut gain, mut loss) = (f64::MIN, f64::MIN);
    for (sender, receiver) in HOSTS {
        let (from, to) = (built_in(sender), built_in(receiver));
        let pair = if sender == receiver { [&from, &from] } else { [&from, &to] };
        let found = policies(&mut lab, pair);
        let [plain, pulsed, adaptive] = found;
        gain = gain.max(below(pulsed.0, plain.0));
        loss = loss.max(below(pulsed.1, plain.1));
        let conditions = format!("{sender} to {receiver}, 8 KB payloads");
        let line = |what: &str, unit: &str, sim| Line::new("N1", what, conditions.clone(), unit, sim).source(SOURCE);
        for ((latency, bandwidth), name) in found.into_iter().zip(["store-and-forward", "fixed, 1408 B", "adaptive"]) {
            lines.push(line(&format!("latency, {name}"), "us", latency));
            lines.push(line(&format!("bandwidth, {name}"), "MB/s", bandwidth));
            let bar = |height| Bar {
                name: format!("{sender} to {receiver}, {name}"),
                parts: vec![(String::new(), height)],
                paper: None,
            };
            latencies.push(bar(latency));
            bandwidths.push(bar(bandwidth));
        }
        let best = (plain.0.min(pulsed.0), plain.1.max(pulsed.1));
        lines.push(
            line("latency of adaptive over the best of the others", "ratio", adaptive.0 / best.0)
                .against(Paper::Range([0.0, 1.1]), 0.0),
        );
        lines.push(
            line("bandwidth of adaptive over the best of the others", "ratio", adaptive.1 / best.1)
                .against(Paper::Range([0.9, 2.0]), 0.0),
        );
    }
    let over = |what: &str, sim, paper, points| {
        Line::new("N1", what, "over all these hosts, 8 KB payloads, pulses of 1408 B", "%", sim)
            .against(Paper::Value(paper), points / paper * 100.0)
            .source(format!("{SOURCE}; tolerance of 10 points"))
    };
    lines.push(over("most by which fixed pulses lower latency", gain, 45.0, 10.0));
    lines.push(over("most by which fixed pulses lower bandwidth", loss, 30.0, 10.0));
    let figure = |id: &str, title: &str, y: &str, bars, caption: &str| {
        let drawing = Drawing::Bars { y: Axis::linear(y), bars };
        Figure { id: id.to_owned(), title: title.to_owned(), caption: caption.to_owned(), drawing }
    };
    let figures = vec![
        figure(
            "n1-latency",
            "Latency of three policies",
            "us",
            latencies,
            "Fixed and adaptive pulses cut latency alike.",
        ),
        figure(
            "n1-bandwidth",
            "Bandwidth of three policies",
            "MB/s",
            bandwidths,
            "Fixed pulses pay for each pulse; adaptive ones grow until there is one for each message.",
        ),
    ];
    Outcome { lines, figures, events: lab.events }
}

/// The number of the first message (from 1) from which on `mover` moves every payload in one transfer; `None` if it
/// does not end so.
pub(super) fn whole_from(stripes: &[Stripe], mover: Mover, len: u64) -> Option<u64> {
    let row = mover as usize;
    let last = stripes.iter().map(|stripe| stripe.message).max()?;
    let whole =
        |message| stripes.iter().any(|stripe| (stripe.row, stripe.message, stripe.bytes) == (row, message, len));
    let broken = (0..=last).rev().find(|&message| !whole(message));
    match broken {
        Some(message) if message == last => None,
        Some(message) => Some(message + 2),
        None => Some(1),
    }
}

/// N2: a burst.
pub(super) fn burst() -> Outcome {
    const COUNT: u64 = 24;
    let (mut lab, host) = (Lab::default(), built_in("pentium2-440lx"));
    let run = Run::stream([&host, &host], eager(MINPULSE, MINPULSE), Lens::Same(PAGE), COUNT, 1);
    let ran = lab.go(run.map(|run| run.stripes(1, 0)));
    let stripes = ran.stripes().to_vec();
    let from = |mover| whole_from(&stripes, mover, PAGE).map_or(f64::NAN, |message| message as f64);
    let line = |what: &str, sim: f64| {
        Line::new("N2", what, "Pentium II 440LX pair, burst of 8 KB payloads", "message", sim)
            .source("hoti99 Figure 3: both adapters end on whole transfers")
    };
    let lines = vec![
        line("first of the messages that leave in whole transfers", from(Mover::NetTx)),
        line("first of the messages that reach host memory in whole transfers", from(Mover::HostRcv)),
    ];
    let caption = "Time goes to the right, each stripe is one transfer. The first messages go in short pulses; each \
        pulse costs the sinks a little, so more is buffered when the next one starts, until each takes a whole \
        message. The short stripes are control messages.";
    let shown = stripes.into_iter().filter(|stripe| stripe.message < 16).collect();
    let drawing = Drawing::Flow { rows: MOVERS.map(str::to_owned).to_vec(), stripes: shown };
    let title = "A burst falls back to whole transfers".to_owned();
    let figure = Figure { id: "n2-burst".to_owned(), title, caption: caption.to_owned(), drawing };
    Outcome { lines, figures: vec![figure], events: lab.events }
}
