//! The results of SSAM: rows S1 to S5.
//!
//! The parts of a trap and of a system call are measured figures of the authors, and so inputs. Their totals, what the
//! layer costs an operation, and all that goes from end to end are results.

use crate::outcome::{Axis, Bar, Curve, Drawing, Experiment, Figure, Line, Mark, Outcome, Paper};
use crate::time::Span;

use super::layer::{Cost, Layer};
use super::parts::{CELL_PARTS, READ_PARTS, WRITE_PARTS};
use super::run::{Machine, SSAM_BULK, SSAM_DATA, Ssam};
use super::{aal5, built_in};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: "S1", title: "SSAM: what a trap costs, part by part", run: traps },
    Experiment { id: "S2", title: "SSAM: the same by system call", run: calls },
    Experiment { id: "S3", title: "SSAM: what an operation of Active Messages costs a host", run: operations },
    Experiment { id: "S4", title: "SSAM: from end to end", run: end_to_end },
    Experiment { id: "S5", title: "SSAM: pinned memory", run: memory },
];

const HOSTS: [(&str, &str); 2] = [("ss20-sba100", "SS-20"), ("ss1plus-sba100", "SS-1+")];

fn ssam(platform: &str) -> Ssam {
    Ssam::read(&built_in(platform)).expect("the built-in platform suits its model")
}

/// Cells of the batch of Table 1.
const BATCH: u64 = 16;

/// Totals of Table 1, in the order of [`trap_totals`].
const TABLE_1: [[f64; 5]; 2] = [[2.72, 5.87, 4.61, 3.7, 8.2], [10.11, 11.32, 8.08, 11.2, 21.4]];

fn trap_totals(ssam: &Ssam) -> [(&'static str, f64); 5] {
    let traps = &ssam.traps;
    [
        ("trap that sends a cell", traps.write().as_us()),
        ("trap that reads 1 cell", traps.reads(1).as_us()),
        ("each cell of a trap that reads 16", traps.reads(BATCH).as_us() / BATCH as f64),
        ("trap that sends a cell and finds none", traps.write_reads(0).as_us()),
        ("trap that sends a cell and reads 1", traps.write_reads(1).as_us()),
    ]
}

fn traps() -> Outcome {
    let mut outcome = Outcome::default();
    let mut bars = Vec::new();
    for ((platform, host), table) in HOSTS.into_iter().zip(TABLE_1) {
        let ssam = ssam(platform);
        for ((what, sim), paper) in trap_totals(&ssam).into_iter().zip(table) {
            let source = "Table 1; sum of the authors' measured parts, which they say only roughly add";
            let line = Line::new("S1", what, host, "us", sim).against(Paper::Value(paper), 3.0).source(source);
            outcome.lines.push(line);
        }
        let parts = |names: &[&str], spans: &[Span], share: f64| {
            let heights = spans.iter().map(|span| span.as_us() * share);
            names.iter().map(|name| (*name).to_owned()).zip(heights).collect::<Vec<_>>()
        };
        let write = parts(&WRITE_PARTS, &ssam.traps.write, 1.0);
        let cell = parts(&CELL_PARTS, &ssam.traps.cell, 1.0);
        let read = |share| [parts(&READ_PARTS, &ssam.traps.read, share), cell.clone()].concat();
        let bar = |name: &str, parts, paper| Bar { name: format!("{host}: {name}"), parts, paper: Some(paper) };
        bars.push(bar("send a cell", write, table[0]));
        bars.push(bar("read 1 cell", read(1.0), table[1]));
        bars.push(bar("a cell of 16", read(1.0 / BATCH as f64), table[2]));
    }
    let fast = ssam(HOSTS[0].0);
    let share = fast.traps.write[4].as_us() / fast.traps.write().as_us() * 100.0;
    let line = Line::new("S1", "share of the adapter's access in a sending trap", "SS-20", "%", share);
    outcome.lines.push(line.against(Paper::Value(75.0), 3.0).source("section 3.4.1"));
    outcome.figures.push(Figure {
        id: "s1-traps".to_owned(),
        title: "SSAM: the parts of a trap".to_owned(),
        caption: "Each part is a measurement of the authors; the height is their sum. Access to the adapter (push and \
                  pull) takes most of it on the SS-20, copying within memory as much again on the SS-1+."
            .to_owned(),
        drawing: Drawing::Bars { y: Axis::linear("time, us"), bars },
    });
    outcome
}

fn calls() -> Outcome {
    let mut outcome = Outcome::default();
    let mut bars = Vec::new();
    for ((platform, host), table) in HOSTS.into_iter().zip([[28.2, 34.1, 28.8], [124.0, 137.0, 113.0]]) {
        let ssam = ssam(platform);
        let whole = |parts: [Span; 3]| parts.into_iter().sum::<Span>().as_us();
        let totals = [
            ("system call that sends a cell", whole(ssam.calls.write), "Table 2; sum of its parts"),
            ("system call that reads 1 cell", whole(ssam.calls.read), "Table 2; sum of its parts"),
            (
                "system call that finds no cell",
                ssam.calls.empty().as_us(),
                "Table 2; the parts without pull and without the copy of a cell, as Table 1 gives it (load and store)",
            ),
        ];
        for ((what, sim, source), paper) in totals.into_iter().zip(table) {
            let line = Line::new("S2", what, host, "us", sim).against(Paper::Value(paper), 0.5).source(source);
            // That the copy is what is missing from the empty call was seen in the SS-20's column.
            let chosen = what.ends_with("no cell") && host == "SS-20";
            outcome.lines.push(if chosen { line.fitted() } else { line });
        }
        let ratio = whole(ssam.calls.write) / ssam.traps.write().as_us();
        let line = Line::new("S2", "system call over trap, sending a cell", host, "x", ratio);
        let paper = table[0] / if host == "SS-20" { 2.72 } else { 10.11 };
        outcome.lines.push(line.against(Paper::Value(paper), 3.0).source("Tables 1 and 2"));
        let over = whole(ssam.calls.write) / ssam.null_call.as_us();
        let line = Line::new("S2", "system call that sends a cell over one that does nothing", host, "x", over);
        let paper = table[0] / if host == "SS-20" { 6.9 } else { 40.0 };
        outcome.lines.push(line.against(Paper::Value(paper), 0.5).source("Tables 1 and 2"));
        let named = |names: [&str; 3], parts: [Span; 3]| {
            names.into_iter().map(str::to_owned).zip(parts.map(Span::as_us)).collect::<Vec<_>>()
        };
        let names = |last: &'static str| ["call", "check and copy", last];
        let bar = |name: &str, parts, paper| Bar { name: format!("{host}: {name}"), parts, paper: Some(paper) };
        bars.push(bar("send a cell", named(names("push"), ssam.calls.write), table[0]));
        bars.push(bar("read 1 cell", named(names("pull"), ssam.calls.read), table[1]));
    }
    outcome.figures.push(Figure {
        id: "s2-calls".to_owned(),
        title: "SSAM: the parts of a system call".to_owned(),
        caption: "The way through the file system costs ten times what the trap does, nearly all of it before the \
                  adapter is touched."
            .to_owned(),
        drawing: Drawing::Bars { y: Axis::linear("time, us"), bars },
    });
    outcome
}

/// What each operation costs a host: name, time in traps, time in the layer.
fn operation_costs(ssam: &Ssam) -> [(&'static str, Span, Span); 6] {
    let Ssam { traps, send, handle, .. } = ssam;
    let cell = traps.cell();
    [
        ("send a request, nothing has come", traps.write_reads(0), *send),
        ("poll, nothing has come", traps.reads(0), Span::ZERO),
        ("poll, handle a request, send an acknowledgement", traps.reads(1) + traps.write(), *handle + *send),
        ("poll, handle a request, send a reply", traps.reads(1) + traps.write(), *handle + *send),
        ("poll, handle a reply", traps.reads(1), *handle),
        ("handle a further cell of the same poll", cell, *handle),
    ]
}

fn operations() -> Outcome {
    let mut outcome = Outcome::default();
    let mut bars = Vec::new();
    for (platform, host) in HOSTS {
        for (what, traps, layer) in operation_costs(&ssam(platform)) {
            let source = "traps of Table 1 and a little over 1 us of the layer for each send and each handling (3.4.3)";
            outcome.lines.push(Line::new("S3", what, host, "us", (traps + layer).as_us()).source(source));
            if host == "SS-20" {
                let parts = vec![("traps".to_owned(), traps.as_us()), ("layer".to_owned(), layer.as_us())];
                bars.push(Bar { name: what.to_owned(), parts, paper: None });
            }
        }
    }
    outcome.figures.push(Figure {
        id: "s3-operations".to_owned(),
        title: "SSAM: operations of Active Messages, SS-20".to_owned(),
        caption: "Predicted: what traps cost, and about a microsecond of the layer for each send and each handling."
            .to_owned(),
        drawing: Drawing::Bars { y: Axis::linear("time, us"), bars },
    });
    outcome
}

/// Questions whose times are averaged.
const ROUNDS: u64 = 64;
/// Bytes of a global address and of the double word that is read or stored.
const ADDRESS: u64 = 4;
const WORD: u64 = 8;

fn end_to_end() -> Outcome {
    let mut outcome = Outcome::default();
    for (platform, host) in HOSTS {
        let ssam = ssam(platform);
        round_trips(&ssam, host, &mut outcome);
        rates(&ssam, host, &mut outcome);
    }
    outcome.figures.push(where_a_read_goes(&ssam(HOSTS[0].0)));
    let (curves, events) = rate_curves(&ssam(HOSTS[0].0));
    outcome.events += events;
    outcome.figures.push(curves);
    outcome
}

fn round_trips(ssam: &Ssam, host: &str, outcome: &mut Outcome) {
    let layer = ssam.layer(SSAM_DATA);
    let mut line = |what: &str, way: &str, machine: Machine, question, answer| {
        let (time, events) = machine.round_trip(layer, question, answer, ROUNDS);
        outcome.events += events;
        let source = "simulated: two hosts that poll, traps of Table 1, the layer of section 3.4.3";
        outcome.lines.push(Line::new("S4", what, format!("{host}, {way}"), "us", time.as_us()).source(source));
    };
    let (pair, switched) = (ssam.pair(), Machine { wire: ssam.wire, ..ssam.pair() });
    line("remote read of 8 bytes, round trip", "back to back", pair, ADDRESS, WORD);
    line("remote store of 8 bytes, until acknowledged", "back to back", pair, ADDRESS + WORD, 0);
    line("remote store of 36 bytes, until acknowledged", "back to back", pair, ADDRESS + SSAM_BULK, 0);
    line("remote read of 8 bytes, round trip", "through a switch", switched, ADDRESS, WORD);
}

/// Cells that are only read: what a receiver can take in.
fn bare(ssam: &Ssam) -> Layer {
    let none = Cost::default();
    Layer {
        header: 0,
        chunk: aal5::PAYLOAD as u64,
        send: none,
        receive: none,
        acks: None,
        polls: false,
        window: u64::MAX,
        ..ssam.layer(SSAM_DATA)
    }
}

/// Cells of a burst that the input FIFO survives although it comes at the fibre's rate.
const BURST: u64 = 600;
/// Bytes of a long transfer.
const LONG: u64 = 1 << 17;

fn rates(ssam: &Ssam, host: &str, outcome: &mut Outcome) {
    let mega = |rate: f64| rate / 1e6;
    let stream = ssam.pair().stream(ssam.layer(SSAM_BULK), 1, LONG, 2);
    outcome.events += stream.events;
    let sim = mega(stream.overall());
    let bulk = Line::new("S4", "bulk write, a cell at a time", format!("{host}, 128 KiB"), "MB/s", sim);
    let long = ssam.pair().stream(ssam.long_messages(), 1, LONG, 2);
    outcome.events += long.events;
    let sim = mega(long.overall());
    let long = Line::new("S4", "long messages with the full payload of cells", host, "MB/s", sim);
    let rule = "simulated; 36 of 40 bytes of a cell are data, one acknowledgement for a quarter of the window";
    let chosen = format!("{rule}; that they are cumulative is open in the paper, and was chosen after it");
    if host != "SS-20" {
        return outcome.lines.extend([bulk.source(rule), long.source(rule)]);
    }
    let read = ssam.pair().stream(bare(ssam), 1, aal5::PAYLOAD as u64, BURST);
    outcome.events += read.events;
    let percent = read.steady() / (aal5::PAYLOAD as f64 / ssam.wire.cell.as_s()) * 100.0;
    let limit = Line::new("S4", "share of the fibre's rate that a reader can take", host, "%", percent);
    outcome.lines.extend([
        bulk.clone().against(Paper::Value(5.6), 15.0).fitted().source(format!("sections 3.4.3, 3.4.4; {chosen}")),
        Line { what: "Split-C bulk write".to_owned(), ..bulk }
            .against(Paper::Value(5.5), 15.0)
            .fitted()
            .source(format!("section 3.4.4; the same, {chosen}")),
        long.against(Paper::Value(9.0), 15.0).source("section 3.4.4, where the authors project it"),
        limit.against(Paper::Value(68.0), 15.0).source("section 3.4.1; simulated: a burst that fills the input FIFO"),
    ]);
}

/// A remote read by its parts; what is left of the simulated time is waiting for the next look.
fn where_a_read_goes(ssam: &Ssam) -> Figure {
    let both = |span: Span| (span + span).as_us();
    let traps = &ssam.traps;
    let byte = Span::from_ps(ssam.layer(SSAM_DATA).send.byte_ps) * (ADDRESS + WORD);
    let whole = ssam.pair().round_trip(ssam.layer(SSAM_DATA), ADDRESS, WORD, ROUNDS).0.as_us();
    let mut parts = vec![
        ("layer, sending".to_owned(), both(ssam.send)),
        ("traps that send".to_owned(), both(traps.write())),
        ("fibre".to_owned(), both(ssam.wire.cell)),
        ("traps that read, once they know of the cell".to_owned(), both(traps.read[2] + traps.cell())),
        ("layer, handling".to_owned(), both(ssam.handle)),
        ("copies".to_owned(), both(byte)),
    ];
    let known: f64 = parts.iter().map(|(_, us)| us).sum();
    parts.push(("waiting for the next look".to_owned(), (whole - known).max(0.0)));
    Figure {
        id: "s4-remote-read".to_owned(),
        title: "SSAM: where the time of a remote read goes, SS-20".to_owned(),
        caption: "Two hosts back to back. How long an arrival waits until a polling trap knows of it comes from the \
                  simulation; all else is a sum."
            .to_owned(),
        drawing: Drawing::Bars {
            y: Axis::linear("time, us"),
            bars: vec![Bar { name: "remote read".to_owned(), parts, paper: None }],
        },
    }
}

fn rate_curves(ssam: &Ssam) -> (Figure, u64) {
    let mut events = 0;
    let sizes: Vec<u64> = (5..=16).flat_map(|log| [1u64 << log, 3 << (log - 1)]).collect();
    let mut curve = |name: &str, layer: Layer| {
        let points = sizes.iter().map(|&size| {
            let stream = ssam.pair().stream(layer, 1, size, (LONG / size).clamp(2, 256));
            events += stream.events;
            [size as f64, stream.overall() / 1e6]
        });
        Curve { name: name.to_owned(), points: points.collect() }
    };
    let curves = vec![
        curve("a cell at a time", ssam.layer(SSAM_BULK)),
        curve("long messages, as proposed", ssam.long_messages()),
    ];
    let figure = Figure {
        id: "s4-rate".to_owned(),
        title: "SSAM: rate of remote writes, SS-20".to_owned(),
        caption: "The receiver's traps and handlers set the rate; the fibre would carry 15.2 MB/s.".to_owned(),
        drawing: Drawing::Curves {
            x: Axis::log("block, bytes"),
            y: Axis::linear("payload, MB/s"),
            curves,
            marks: vec![
                Mark { at: [LONG as f64, 5.5], label: "Split-C bulk write".to_owned() },
                Mark { at: [LONG as f64, 9.0], label: "projected by the authors".to_owned() },
            ],
        },
    };
    (figure, events)
}

fn memory() -> Outcome {
    let ssam = ssam(HOSTS[0].0);
    let connection = ssam.pinned() as f64;
    let (nodes, applications) = (64.0, 10.0);
    let one = Line::new("S5", "pinned memory of a connection", "window of 32 cells", "B", connection)
        .against(Paper::Value(8192.0), 0.0)
        .source("section 3.5: 4 windows of slots of 64 bytes");
    let all = connection * nodes * applications / 1e6;
    let all = Line::new("S5", "pinned memory of a node", "64 nodes, 10 applications", "MB", all)
        .against(Paper::Value(5.0), 5.0)
        .source("section 3.5, rounded there to 5 MB");
    let kept = ssam.pair().stream(ssam.layer(SSAM_BULK), 1, LONG, 1);
    let copies = kept.world.hosts[1].flows[0].most_copies as f64;
    let copies = Line::new("S5", "most copies kept to be sent again", "bulk write", "cells", copies)
        .against(Paper::Range([0.0, 32.0]), 0.0)
        .source("section 3.3.1: at most a window");
    Outcome { lines: vec![one, all, copies], figures: Vec::new(), events: kept.events }
}
