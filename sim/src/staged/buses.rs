//! T4 to T6: what the bus does, the bound that follows from it, and what other buses and links would do (HPDC 1997,
//! Figure 5, sections 4.1 and 4.4).

use crate::model::bus::{Bus, BusParts, Way};
use crate::outcome::{Axis, Line, Outcome, Paper};
use crate::time::{Rate, Span, Time};

use super::lab::{Lab, PAGE, below, built_in, curve, curves, eager, mark, whole};
use super::machine::Machine;

/// Bytes per second of transfers of `len` bytes that follow each other, each started when the last one is over: what
/// Myricom's benchmark firmware measured.
fn transfers(parts: BusParts, way: Way, len: u64) -> f64 {
    const COUNT: u64 = 100;
    let mut bus = Bus::new(parts);
    let mut now = Time::START;
    for _ in 0..COUNT {
        bus.start(way, now, len);
        now = bus.end(way).unwrap_or(now) + Span::from_ps(1);
        bus.settle(way, now);
    }
    (COUNT * len) as f64 / (now - Time::START).as_s()
}

/// T4: DMA rate over transfer size (Figure 5).
pub(super) fn dma_rates() -> Outcome {
    let host = built_in("alphastation500");
    let sizes: Vec<u64> = (6..=13).flat_map(|log| [1 << log, 3 << (log - 1)]).filter(|&len| len <= PAGE).collect();
    let rate = |way, len| transfers(host.bus, way, len) / 1e6;
    let line = |what: &str, way, paper| {
        Line::new("T4", what, "AlphaStation 500, transfers of 8 KB one after the other", "MB/s", rate(way, PAGE))
            .against(Paper::Value(paper), 5.0)
            .source("hpdc97 section 4.1, Figure 5")
    };
    let lines = vec![
        line("DMA rate, host memory to adapter", Way::Read, 128.0),
        line("DMA rate, adapter to host memory", Way::Write, 64.0),
    ];
    let caption = "Short transfers lose to the set-up of each. What goes into host memory runs at half the rate, a \
        flaw of this host's bridge; the paper prints the curve, of which the text gives the peaks only.";
    let drawn = vec![
        curve("host memory to adapter", &sizes, |len| rate(Way::Read, len)),
        curve("adapter to host memory", &sizes, |len| rate(Way::Write, len)),
    ];
    let axes = [Axis::log("transfer, bytes"), Axis::linear("rate, MB/s")];
    let marks = vec![mark(8192.0, 128.0, "paper: peak 128"), mark(8192.0, 64.0, "paper: peak 64")];
    let figure = curves("t4-dma", "DMA rate over transfer size", caption, axes, drawn, marks);
    Outcome { lines, figures: vec![figure], events: 0 }
}

/// T5: the least that store-and-forward can take (section 4.1): arithmetic on the rates.
pub(super) fn bound() -> Outcome {
    let host = built_in("alphastation500");
    let parts = [
        ("host to adapter", host.bus.read, 64.0),
        ("link", host.link.rate, 64.0),
        ("adapter to host", host.bus.write, 128.0),
    ];
    let line = |what: String, sim: f64, paper| {
        Line::new("T5", what, "8192 B at the rates of the AlphaStation 500, no overhead", "us", sim)
            .against(Paper::Value(paper), 0.0)
            .source("hpdc97 section 4.1: 256 us; its parts are derived")
    };
    let mut lines: Vec<Line> = parts
        .iter()
        .map(|(name, rate, paper)| line(format!("bound, {name}"), rate.span(PAGE).as_us(), *paper))
        .collect();
    let sum: Span = parts.iter().map(|(_, rate, _)| rate.span(PAGE)).sum();
    lines.push(line("bound of store-and-forward".to_owned(), sum.as_us(), 256.0));
    Outcome { lines, ..Outcome::default() }
}

/// The host with other buses and links: rates in MB/s.
fn with_rates(host: &Machine, bus: u64, link: u64) -> Machine {
    let rate = |mb: u64| Rate::from_bytes_per_s(mb * 1_000_000).unwrap_or(host.link.rate);
    let mut machine = host.clone();
    machine.bus = BusParts { peak: rate(bus), read: rate(bus), write: rate(bus), write_buffer: 0, ..machine.bus };
    machine.link.rate = rate(link);
    machine
}

/// T6: gain over bus and link speed (section 4.4, whose figure is lost).
pub(super) fn speeds() -> Outcome {
    const LINKS: [u64; 12] = [8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024];
    let (mut lab, host) = (Lab::default(), built_in("alphastation500"));
    let mut gain = |bus, link| {
        let machine = with_rates(&host, bus, link);
        below(lab.latency(&machine, eager(512, 512), PAGE), lab.latency(&machine, whole(), PAGE))
    };
    let line = |what: &str, unit: &str, conditions: &str, sim: f64| {
        Line::new("T6", what, conditions, unit, sim).source("hpdc97 section 4.4: a trend; its figure is lost")
    };
    let (slow, near, far) = (gain(128, 16), gain(128, 128), gain(128, 1024));
    let lines = vec![
        line("gain of cut-through, slow link", "%", "bus 128 MB/s, link 16 MB/s, 8 KB", slow),
        line("gain of cut-through, link as fast as the bus", "%", "bus 128 MB/s, link 128 MB/s, 8 KB", near),
        line("gain of cut-through, link eight times as fast", "%", "bus 128 MB/s, link 1024 MB/s, 8 KB", far),
        line(
            "growth of the gain as the link nears the bus",
            "points",
            "bus 128 MB/s, link 16 to 128 MB/s",
            near - slow,
        )
        .against(Paper::Range([0.0, 100.0]), 0.0),
    ];
    let drawn =
        [32, 64, 128, 256, 512].map(|bus| curve(format!("bus {bus} MB/s"), &LINKS, |link| gain(bus, link))).to_vec();
    let caption = "A slow link takes most of the time whatever the adapters do. The gain grows as the link's rate \
        nears the bus's, where three equal stages overlap; beyond that only the two buses are left to overlap.";
    let axes = [Axis::log("link, MB/s"), Axis::linear("gain of cut-through at 8 KB, %")];
    let figure = curves("t6-speeds", "Gain over bus and link speed", caption, axes, drawn, Vec::new());
    Outcome { lines, figures: vec![figure], events: lab.events }
}
