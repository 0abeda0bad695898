//! A timeline in the terminal: a row of block characters per stage.

use super::{Run, Scale, StageSpan, Timeline, pulse_count, tick_label, ticks, unit};
use crate::units;

/// Columns at the right that hold the number of pulses or the total.
const RIGHT: usize = 14;

/// Fewest columns for the bars, however narrow the terminal.
const FEWEST: usize = 20;

/// Pulses at least this many columns wide, on average, are drawn apart.
const APART: usize = 2;

/// Draws it in lines of `columns` characters, or a few more if that is too few.
#[must_use]
pub fn draw(timeline: &Timeline, columns: usize) -> String {
    let label = label_width(timeline);
    let width = columns.saturating_sub(label + RIGHT).max(FEWEST);
    let mut lines = vec![timeline.title.clone()];
    for (index, run) in timeline.runs.iter().enumerate() {
        lines.push(String::new());
        lines.push(heading(run, timeline.ratio(index)));
        let scale = Scale { begin_ns: run.begin_ns(), span_ns: timeline.span_ns(), width: width as f64 };
        lines.extend(run.stages.iter().map(|stage| row(stage, scale, label, width)));
    }
    lines.extend(axis(timeline.span_ns(), label, width));
    lines.join("\n")
}

fn label_width(timeline: &Timeline) -> usize {
    let names = timeline.runs.iter().flat_map(|run| &run.stages).map(|stage| stage.stage.chars().count());
    names.max().unwrap_or_default() + 4
}

/// The policy, its total, and what became of it: `adaptive: 41.3 us, 0.63 x, 78 % overlapped`.
fn heading(run: &Run, ratio: Option<f64>) -> String {
    let ratio = ratio.map(|ratio| format!(", {ratio:.2} x")).unwrap_or_default();
    let overlap = 100.0 * run.overlap();
    format!("{}: {}{ratio}, {overlap:.0} % overlapped", run.policy, units::time(run.total_ns() as f64))
}

fn row(stage: &StageSpan, scale: Scale, label: usize, width: usize) -> String {
    let count = pulse_count(stage.pulses.len());
    format!("  {:<name$}{}  {count}", stage.stage, cells(stage, scale, width), name = label - 2)
}

/// One character per column, the darker the longer the stage moved in that stretch of time.
fn cells(stage: &StageSpan, scale: Scale, width: usize) -> String {
    let mut busy = vec![0.0; width];
    let mut begins = vec![false; width];
    for pulse in &stage.pulses {
        let (from, to) = (scale.at(pulse.start_ns), scale.at(pulse.end_ns));
        let first = column(pulse.start_ns, scale, width).min(width - 1);
        let last = column(pulse.end_ns, scale, width).min(width - 1);
        for (index, share) in busy.iter_mut().enumerate().take(last + 1).skip(first) {
            *share += (to.min(index as f64 + 1.0) - from.max(index as f64)).max(0.0);
        }
        begins[first] = true;
    }
    let apart = stage.pulses.len() * APART <= columns_used(&busy);
    let character = |index: usize| {
        let follows = index > 0 && begins[index] && busy[index - 1] > 0.0;
        if apart && follows { '▐' } else { shade(busy[index]) }
    };
    (0..width).map(character).collect()
}

/// The column in which a time lies, `width` at most.
fn column(ns: u64, scale: Scale, width: usize) -> usize {
    let columns = u128::from(ns.saturating_sub(scale.begin_ns)) * width as u128 / u128::from(scale.span_ns);
    usize::try_from(columns).map_or(width, |column| column.min(width))
}

/// How many columns are in use.
fn columns_used(busy: &[f64]) -> usize {
    busy.iter().filter(|&&share| share > 0.0).count()
}

fn shade(share: f64) -> char {
    match share {
        share if share >= 0.75 => '█',
        share if share >= 0.5 => '▓',
        share if share >= 0.25 => '▒',
        share if share > 0.0 => '░',
        _ => ' ',
    }
}

/// A line with marks, and a line with their times.
fn axis(span_ns: u64, label: usize, width: usize) -> [String; 2] {
    let (unit, unit_ns) = unit(span_ns);
    let scale = Scale { begin_ns: 0, span_ns, width: width as f64 };
    let mut line: Vec<char> = vec!['─'; width + 1];
    let mut times = String::new();
    for mark in ticks(span_ns, width / 10) {
        let column = column(mark, scale, width);
        line[column] = if column == 0 { '└' } else { '┴' };
        let gap = column.saturating_sub(times.chars().count());
        times.push_str(&" ".repeat(gap));
        times.push_str(&tick_label(mark, unit_ns));
    }
    let margin = " ".repeat(label);
    let line: String = line.into_iter().collect();
    [format!("{margin}{line}"), format!("{margin}{times} {unit}")]
}

#[cfg(test)]
mod tests {
    use super::super::{Pulse, model};
    use super::*;

    fn drawn(pulses: &[(u64, u64)], width: usize) -> String {
        let pulse = |&(start_ns, end_ns)| Pulse { start_ns, end_ns, bytes: 1 };
        let stage = StageSpan { stage: "stage".into(), pulses: pulses.iter().map(pulse).collect() };
        cells(&stage, Scale { begin_ns: 0, span_ns: 100, width: width as f64 }, width)
    }

    #[test]
    fn a_bar_fills_the_columns_of_its_time() {
        assert_eq!(drawn(&[(20, 60)], 10), "  ████    ");
        assert_eq!(drawn(&[(0, 100)], 4), "████");
        assert_eq!(drawn(&[], 4), "    ");
    }

    #[test]
    fn a_part_of_a_column_is_lighter() {
        assert_eq!(drawn(&[(10, 25)], 10), " █▓       ");
        assert_eq!(drawn(&[(0, 3)], 10), "▒         ");
    }

    #[test]
    fn wide_pulses_are_told_apart_and_narrow_ones_run_together() {
        assert_eq!(drawn(&[(0, 50), (50, 100)], 10), "█████▐████");
        assert_eq!(drawn(&[(0, 10), (10, 20), (20, 30)], 10), "███       ");
    }

    #[test]
    fn rows_keep_to_the_width_and_the_axis_below_them() {
        let text = draw(&model::timeline(), 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let axis = text.lines().rev().nth(1).expect("an axis");
        let first_bar = text.lines().find(|line| line.contains('█')).expect("a bar");
        let column = |line: &str, wanted: char| line.chars().position(|c| c == wanted);
        assert_eq!(column(axis, '└'), column(first_bar, '█'));
    }

    #[test]
    fn each_policy_has_its_heading() {
        let text = draw(&model::timeline(), 80);
        for heading in ["store-and-forward: ", "fixed:65536: ", "adaptive: "] {
            assert!(text.contains(heading), "{text}");
        }
        assert!(text.contains(" x, ") && text.contains("0 % overlapped"), "{text}");
    }
}
