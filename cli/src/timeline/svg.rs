//! A timeline as a picture: a panel per policy, a row per stage, one time scale for all.

use svg::Document;
use svg::node::element::path::Data;
use svg::node::element::{Group, Line, Path, Rectangle, Style, Text, Title};

use super::{Bar, Run, Scale, StageSpan, Timeline, pulse_count, tick_label, ticks, unit};
use crate::units;

const WIDTH: f64 = 960.0;
const MARGIN: f64 = 28.0;
/// Where the bars begin, after the stages' names.
const LEFT: f64 = 140.0;
/// Where the bars end, before the totals.
const RIGHT: f64 = 800.0;
/// Where the first panel begins, below the title and the legend.
const TOP: f64 = 112.0;
/// Height of a panel's heading, of a row, and of the space below a panel.
const HEADING: f64 = 26.0;
const ROW: f64 = 30.0;
const BELOW: f64 = 26.0;
/// Height of a bar within its row.
const BAR: f64 = 22.0;
/// Space between two pulses that follow each other at once, and the narrowest pulse that is drawn apart.
const GAP: f64 = 0.8;
const NARROWEST: f64 = 2.5;
const AXIS: f64 = 56.0;

/// One colour per stage, told apart by colour-blind people too (Okabe and Ito).
const COLOURS: [&str; 4] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7"];

const STYLE: &str = "text{font-family:system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:13px;fill:#1f2933}\
    .title{font-size:20px;font-weight:600}.policy{font-size:14px;font-weight:600}.total{font-size:15px;font-weight:600}\
    .quiet{fill:#616e7c}.grid{stroke:#e4e7eb}.end{stroke:#1f2933;stroke-width:1.5}.track{fill:#f5f7fa}";

/// Draws it as an SVG document.
#[must_use]
pub fn draw(timeline: &Timeline) -> String {
    let bottom = TOP + timeline.runs.iter().map(height).sum::<f64>();
    let total = bottom + AXIS;
    let mut document = Document::new()
        .set("viewBox", (0.0, 0.0, WIDTH, total))
        .set("role", "img")
        .add(Title::new(timeline.title.as_str()))
        .add(Style::new(STYLE))
        .add(Rectangle::new().set("width", WIDTH).set("height", total).set("fill", "#ffffff"))
        .add(head(timeline))
        .add(grid(timeline.span_ns(), bottom));
    let mut y = TOP;
    for (index, run) in timeline.runs.iter().enumerate() {
        document = document.add(panel(run, timeline, index, y));
        y += height(run);
    }
    document.to_string()
}

/// The height of a run's panel, the space below it included.
fn height(run: &Run) -> f64 {
    HEADING + ROW * run.stages.len() as f64 + BELOW
}

/// The title, what to look at, and the legend.
fn head(timeline: &Timeline) -> Group {
    let mut group = Group::new().add(text(MARGIN, 42.0, &timeline.title).set("class", "title")).add(
        text(MARGIN, 64.0, "One time scale for all. Where a bar has gaps, each begins a new pulse.")
            .set("class", "quiet"),
    );
    let stages = timeline.runs.first().map_or(&[][..], |run| &run.stages);
    let mut x = LEFT;
    for (index, stage) in stages.iter().enumerate() {
        let square = Rectangle::new().set("x", x).set("y", 80.0).set("width", 13).set("height", 13).set("rx", 2);
        group = group.add(square.set("fill", colour(index))).add(text(x + 20.0, 91.0, &stage.stage));
        x += 44.0 + 7.2 * stage.stage.chars().count() as f64;
    }
    group
}

/// Lines through all panels at round times, and their labels below.
fn grid(span_ns: u64, bottom: f64) -> Group {
    let scale = scale(0, span_ns);
    let (unit, unit_ns) = unit(span_ns);
    let mut group = Group::new();
    for mark in ticks(span_ns, 8) {
        let x = px(LEFT + scale.at(mark));
        group = group
            .add(line(x, TOP, x, bottom).set("class", "grid"))
            .add(text(x, bottom + 18.0, &tick_label(mark, unit_ns)).set("class", "quiet").set("text-anchor", "middle"));
    }
    let caption = format!("time since the first byte left, {}", unit.replace("us", "µs"));
    let middle = f64::midpoint(LEFT, RIGHT);
    group.add(text(middle, bottom + 40.0, &caption).set("class", "quiet").set("text-anchor", "middle"))
}

/// One run: its heading, a row per stage, and where it ended.
fn panel(run: &Run, timeline: &Timeline, index: usize, top: f64) -> Group {
    let scale = scale(run.begin_ns(), timeline.span_ns());
    let rows = top + HEADING;
    let end = px(LEFT + scale.at(run.begin_ns() + run.total_ns()));
    let mut group = Group::new().add(text(LEFT, top + 16.0, &run.policy).set("class", "policy"));
    for (stage, span) in run.stages.iter().enumerate() {
        group = group.add(row(span, scale, stage, rows + ROW * stage as f64, end));
    }
    let bottom = rows + ROW * run.stages.len() as f64;
    group = group.add(line(end, rows - 4.0, end, bottom).set("class", "end"));
    group = group.add(text(RIGHT + 16.0, rows + 19.0, &time(run.total_ns())).set("class", "total"));
    let overlap = format!("{:.0} % overlapped", 100.0 * run.overlap());
    let ratio = timeline.ratio(index).map(|ratio| format!("{ratio:.2} × the first"));
    for (below, remark) in ratio.iter().chain([&overlap]).enumerate() {
        let y = rows + 38.0 + 18.0 * below as f64;
        group = group.add(text(RIGHT + 16.0, y, remark).set("class", "quiet"));
    }
    group
}

/// A time as it is written in a picture, where every sign is at hand.
fn time(ns: u64) -> String {
    units::time(ns as f64).replace("us", "µs")
}

/// One stage of one run: its name, the time it had, and its pulses.
fn row(span: &StageSpan, scale: Scale, stage: usize, top: f64, end: f64) -> Group {
    let top = px(top + (ROW - BAR) / 2.0);
    let count = pulse_count(span.pulses.len());
    let track = Rectangle::new().set("x", LEFT).set("y", top).set("width", px(end - LEFT)).set("height", BAR);
    let bars = scale.bars(&span.pulses, NARROWEST);
    Group::new()
        .add(Title::new(format!("{}: {count}", span.stage)))
        .add(text(LEFT - 12.0, top + 10.0, &span.stage).set("text-anchor", "end"))
        .add(
            text(LEFT - 12.0, top + 22.0, &count)
                .set("class", "quiet")
                .set("text-anchor", "end")
                .set("style", "font-size:10px"),
        )
        .add(track.set("class", "track"))
        .add(Path::new().set("d", outline(&bars, top)).set("fill", colour(stage)))
}

/// All bars of a row as one outline, with a gap between those that touch.
fn outline(bars: &[Bar], top: f64) -> Data {
    let mut data = Data::new();
    for (index, bar) in bars.iter().enumerate() {
        let touches = bars.get(index + 1).is_some_and(|next| next.from - bar.to < GAP);
        let gap = if touches { GAP } else { 0.0 };
        let width = px((bar.to - bar.from - gap).max(GAP));
        data = data.move_to((px(LEFT + bar.from), top)).horizontal_line_by(width);
        data = data.vertical_line_by(BAR).horizontal_line_by(-width).close();
    }
    data
}

fn scale(begin_ns: u64, span_ns: u64) -> Scale {
    Scale { begin_ns, span_ns, width: RIGHT - LEFT }
}

fn colour(stage: usize) -> &'static str {
    COLOURS[stage % COLOURS.len()]
}

fn text(x: f64, y: f64, content: &str) -> Text {
    Text::new(content).set("x", px(x)).set("y", px(y))
}

fn line(x1: f64, y1: f64, x2: f64, y2: f64) -> Line {
    Line::new().set("x1", x1).set("y1", y1).set("x2", x2).set("y2", y2)
}

/// A coordinate to a hundredth, so that the file stays small.
fn px(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::super::model;
    use super::*;

    #[test]
    fn every_run_stage_and_total_is_in_the_picture() {
        let timeline = model::timeline();
        let picture = draw(&timeline);
        for run in &timeline.runs {
            assert!(picture.contains(&run.policy), "{}", run.policy);
            assert!(picture.contains(&time(run.total_ns())));
        }
        assert_eq!(picture.matches("<path").count(), 6);
        assert!(picture.contains("viewBox=\"0 0 960 "));
    }

    #[test]
    fn text_is_escaped() {
        let timeline = Timeline { title: "a < b & c".into(), runs: Vec::new() };
        let picture = draw(&timeline);
        assert!(picture.contains("a &lt; b &amp; c") && !picture.contains("a < b"), "{picture}");
    }

    #[test]
    fn bars_stay_between_the_margins_and_touching_ones_are_apart() {
        let bars = [Bar { from: 0.0, to: 10.0 }, Bar { from: 10.0, to: 660.0 }];
        let path = svg::node::Value::from(outline(&bars, 5.0)).to_string();
        assert_eq!(path, "M140,5 h9.2 v22 h-9.2 z M150,5 h650 v22 h-650 z");
    }

    #[test]
    fn a_thousand_pulses_make_a_small_file() {
        let pulses =
            (0..1000).map(|n| super::super::Pulse { start_ns: n * 10, end_ns: n * 10 + 10, bytes: 1 }).collect();
        let stage = StageSpan { stage: "copy in".into(), pulses };
        let run = Run { policy: "adaptive".into(), stages: vec![stage] };
        let picture = draw(&Timeline { title: "many".into(), runs: vec![run] });
        assert!(picture.len() < 8 << 10, "{} bytes", picture.len());
    }
}
