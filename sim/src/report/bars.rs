//! Bars that lie, each below its name: so a name of any length has room, on a phone too.

use crate::outcome::{Axis, Bar};

use super::canvas::{Anchor, COLOURS, Canvas, FONT, NARROW, SMALL, Shape};
use super::label::{width, wrap};
use super::legend::{self, Key};
use super::number::{percent, short, unit};
use super::scale::Scale;

/// Height of a bar, of a line of its name, and of the space below it.
const BAR: f64 = 16.0;
const NAME: f64 = 17.0;
const BELOW: f64 = 10.0;
/// Where the scale ends.
const RIGHT: f64 = NARROW - 18.0;

pub(super) fn draw(axis: &Axis, bars: &[Bar]) -> Canvas {
    let mut canvas = Canvas::new(NARROW);
    let lengths = bars.iter().flat_map(|bar| [total(bar), bar.paper]).flatten();
    // Bars are compared by their lengths, so they begin at 0; a logarithm has none.
    let zero = (!axis.log).then_some(0.0);
    let scale = Scale::fit(axis, lengths.chain(zero), [0.0, RIGHT], 6);
    let parts = part_names(bars);
    let mut y = 0.0;
    for bar in bars {
        y = one(&mut canvas, y, bar, &parts, &scale);
    }
    let mut free_from = f64::NEG_INFINITY;
    for (tick, at) in scale.ticks.iter().filter_map(|&tick| Some((tick, scale.at(tick)?))) {
        let label = scale.label(tick);
        let half = width(&label, SMALL) / 2.0;
        let middle = at.max(half).min(NARROW - half);
        if middle - half >= free_from {
            canvas.text("q", [middle, y + 10.0], Anchor::Middle, &label);
            free_from = middle + half + 6.0;
        }
    }
    canvas.text("", [RIGHT / 2.0, y + 30.0], Anchor::Middle, &unit(&axis.label));
    canvas.reach(y + 36.0);
    legend::draw(&mut canvas, y + 34.0, &entries(bars, &parts));
    canvas
}

/// One bar with its name and figures above it; returns where it ends.
fn one(canvas: &mut Canvas, top: f64, bar: &Bar, parts: &[&str], scale: &Scale) -> f64 {
    let figures = figures(bar);
    let room = NARROW - width(&figures, SMALL) - 14.0;
    let lines = wrap(&bar.name, room, FONT);
    for (line, text) in lines.iter().enumerate() {
        canvas.text("", [0.0, top + 13.0 + NAME * line as f64], Anchor::Start, text);
    }
    let bar_top = top + NAME * lines.len().max(1) as f64 + 2.0;
    canvas.text("q", [NARROW, bar_top - 6.0], Anchor::End, &figures);
    for at in scale.ticks.iter().filter_map(|&tick| scale.at(tick)) {
        canvas.line("g", [at, bar_top - 2.0], [at, bar_top + BAR + 2.0]);
    }
    let mut reached = 0.0;
    let mut left = scale.begin();
    for (name, length) in bar.parts.iter().filter(|(_, length)| length.is_finite()) {
        reached += length;
        let Some(right) = scale.at(reached) else { continue };
        let class = class(parts.iter().position(|part| part == name).unwrap_or(0));
        // A hair between the parts, so that they can be told apart without their colours.
        let gap = if bar.parts.len() > 1 { 0.8 } else { 0.0 };
        if (right - left).abs() > gap {
            canvas.blocks(&class, bar_top, BAR, &[[left.min(right), left.max(right) - gap]]);
        }
        left = right;
    }
    if let Some(at) = bar.paper.and_then(|paper| scale.at(paper)) {
        canvas.mark(Shape::Diamond, [at, bar_top + BAR / 2.0], &figures);
    }
    bar_top + BAR + BELOW
}

/// The colour of a part; when the colours are used up, they come again paler.
fn class(part: usize) -> String {
    format!("f{}{}", part % COLOURS, if part < COLOURS { "" } else { " o" })
}

/// The bar's length, and how the paper's differs.
fn figures(bar: &Bar) -> String {
    let Some(total) = total(bar) else { return "none".to_owned() };
    match bar.paper {
        Some(paper) if paper != 0.0 => {
            format!("{}  (paper {}, {})", short(total), short(paper), percent((total / paper - 1.0) * 100.0))
        }
        Some(paper) => format!("{}  (paper {})", short(total), short(paper)),
        None => short(total),
    }
}

fn total(bar: &Bar) -> Option<f64> {
    let total: f64 = bar.parts.iter().map(|(_, length)| length).sum();
    total.is_finite().then_some(total)
}

/// Names of all parts, in the order in which they first appear.
fn part_names(bars: &[Bar]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in bars.iter().flat_map(|bar| &bar.parts) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names
}

/// Parts are named if there are several; plain bars need no legend but for the paper's points.
fn entries(bars: &[Bar], parts: &[&str]) -> Vec<(Key, String)> {
    let is_stacked = bars.iter().any(|bar| bar.parts.len() > 1) || parts.len() > 1;
    let named = parts.iter().enumerate().filter(|_| is_stacked);
    let mut entries: Vec<(Key, String)> =
        named.map(|(index, name)| (Key::Square(class(index)), (*name).to_owned())).collect();
    if bars.iter().any(|bar| bar.paper.is_some()) {
        entries.push((Key::Mark(Shape::Diamond), "the paper's figure".to_owned()));
    }
    entries
}
