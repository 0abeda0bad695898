//! D4: how a page travels, to the byte.

use cutthrough_engine::place::Placer;

use super::frame::{self, ETHERNET, IP, PAGE, TCP};
use super::stack::Method;
use crate::outcome::{Experiment, Line, Outcome, Paper};
use crate::time::Rate;

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment {
    id: "D4",
    title: "Speculative Defragmentation: frames, descriptors and offsets of a page",
    run: d4,
}];

const CONDITIONS: &str = "a page of 4096 bytes as one TCP segment in IP fragments, MTU 1500";

/// Bytes per second of gigabit Ethernet.
const GIGABIT: u64 = 125_000_000;

fn exact(what: impl Into<String>, unit: &str, sim: f64, paper: f64, source: &str) -> Line {
    Line::new("D4", what, CONDITIONS, unit, sim).against(Paper::Value(paper), 0.0).source(source)
}

fn d4() -> Outcome {
    let frames = frame::fragments(TCP, PAGE);
    let mut lines = Vec::new();
    let mut ip_offset = 0;
    let paper = [(1460.0, 54.0, 0.0, 1538.0), (1480.0, 34.0, 185.0, 1538.0), (1156.0, 34.0, 370.0, 1214.0)];
    for (number, (length, (payload, header, offset, wire))) in (1..).zip(frames.iter().zip(paper)) {
        let name = |what: &str| format!("{what} of frame {number}");
        lines.push(exact(name("payload"), "B", length.payload as f64, payload, "slides 13, 15"));
        lines.push(exact(name("header"), "B", length.header as f64, header, "slides 13, 15"));
        lines.push(exact(
            name("IP fragment offset"),
            "8 B",
            f64::from(ip_offset) / 8.0,
            offset,
            "derived from slide 13",
        ));
        lines.push(exact(name("time on the wire"), "B", length.wire() as f64, wire, "derived from slide 13"));
        ip_offset += u32::try_from(length.header + length.payload - ETHERNET - IP).unwrap_or(u32::MAX);
    }
    let posted = offsets_that_the_engine_posts();
    for (number, (offset, paper)) in (1..).zip(posted.iter().zip([0.0, 1460.0, 2940.0])) {
        let what = format!("where the engine lets frame {number} land");
        lines.push(exact(what, "B", f64::from(*offset), paper, "slides 13 to 15"));
    }
    let descriptors = Method::Fbufs.send_descriptors() * frames.len() as u64;
    lines.push(exact("descriptors of a page", "", descriptors as f64, 6.0, "slides 14, 15"));
    lines.extend(efficiency(frames.iter().map(|length| length.wire()).sum()));
    Outcome { lines, ..Outcome::default() }
}

/// The first page's descriptors, as the engine posts them.
fn offsets_that_the_engine_posts() -> Vec<u32> {
    let Ok(layout) = frame::page_layout() else { return Vec::new() };
    let mut placer = Placer::new(layout, 1);
    placer.give(0);
    std::iter::from_fn(|| placer.post()).map(|spot| spot.part.offset).collect()
}

/// What is left of the wire for payload.
fn efficiency(wire: u64) -> [Line; 2] {
    let share = PAGE as f64 / wire as f64;
    let ceiling = Rate::from_bytes_per_s(GIGABIT).map_or(0.0, |link| PAGE as f64 / link.span(wire).as_s());
    let line = |what, unit, sim, paper, tolerance| {
        Line::new("D4", what, CONDITIONS, unit, sim)
            .against(Paper::Value(paper), tolerance)
            .source("derived from slide 13: 4096 of 4290 bytes, rounded")
    };
    [
        line("payload's share of the wire", "%", share * 100.0, 95.5, 0.1),
        line("most payload", "MB/s", ceiling / 1e6, 119.0, 0.5),
    ]
}
