//! Curves over an axis, and the points of the paper over the curves.

use crate::outcome::{Axis, Curve, Mark};

use super::canvas::{Anchor, COLOURS, Canvas, FONT, NARROW, SMALL, Shape};
use super::label::{At, Placer, Room, width};
use super::legend::{self, Key};
use super::number::{short, unit};
use super::scale::Scale;

/// Height of the plot.
const HEIGHT: f64 = 250.0;
/// Above the plot, where the label of the upward axis stands.
const ABOVE: f64 = 26.0;
/// Curves of at most so many points show each of them.
const DOTTED: usize = 24;
/// A label that is longer than this stands below the plot, and a letter in its place.
const SHORT: f64 = 190.0;
/// Points that lie closer than this cannot be told apart.
const SAME: f64 = 0.4;
/// A curve whose every point lies so close to another's hides it.
const HIDDEN: f64 = 1.2;

/// Shapes for labels that several points of the paper have in common.
const SHAPES: [Shape; 3] = [Shape::Square, Shape::Triangle, Shape::Circle];

pub(super) fn draw(x: &Axis, y: &Axis, curves: &[Curve], marks: &[Mark]) -> Canvas {
    let mut canvas = Canvas::new(NARROW);
    let values = |axis: usize| {
        let simulated = curves.iter().flat_map(|curve| &curve.points);
        simulated.chain(marks.iter().map(|mark| &mark.at)).map(move |at| at[axis])
    };
    let up = Scale::fit(y, values(1), [ABOVE + HEIGHT, ABOVE], 6);
    let left = up.ticks.iter().map(|&tick| width(&up.label(tick), SMALL)).fold(0.0, f64::max) + 8.0;
    let across = Scale::fit(x, values(0), [left, NARROW - 18.0], 6);
    let plot = Room { left, top: ABOVE, right: NARROW - 18.0, bottom: ABOVE + HEIGHT };
    axes(&mut canvas, plot, (x, &across), (y, &up));

    let at = |[x, y]: At| Some([across.at(x)?, up.at(y)?]);
    let mut placer = Placer::new(Room { right: NARROW, top: ABOVE - 8.0, ..plot });
    let (mut entries, mut drawn) = (Vec::new(), Vec::new());
    for (index, curve) in curves.iter().enumerate() {
        let points: Vec<At> = curve.points.iter().filter_map(|&point| at(point)).collect();
        // One that hides another is dashed, so that both are seen.
        let dashes = if hides(&points, &drawn) { 1 } else { index / COLOURS % 3 };
        let class = format!("s{} d{dashes}", index % COLOURS);
        canvas.through(&class, &thinned(&points));
        placer.curve(&points);
        if curve.points.len() <= DOTTED {
            for (&point, at) in curve.points.iter().filter_map(|point| Some((point, at(*point)?))) {
                let says = format!("{}: {}, {}", curve.name, short(point[0]), short(point[1]));
                canvas.dot(&format!("f{}", index % COLOURS), at, 2.6, &says);
            }
        }
        entries.push((Key::Curve(class), curve.name.clone()));
        drawn.push(points);
    }
    let seen: Vec<(At, &Mark)> = marks.iter().filter_map(|mark| Some((at(mark.at)?, mark))).collect();
    entries.extend(points_of_the_paper(&mut canvas, &mut placer, &seen));
    if curves.iter().all(|curve| curve.points.is_empty()) && marks.is_empty() {
        entries.push((Key::None, "Nothing was simulated.".to_owned()));
    }
    legend::draw(&mut canvas, plot.bottom + 44.0, &entries);
    canvas
}

/// Whether a curve hides one of these: their points cannot be told apart.
fn hides(points: &[At], earlier: &[Vec<At>]) -> bool {
    let is_same = |(a, b): (&At, &At)| (a[0] - b[0]).abs() + (a[1] - b[1]).abs() < HIDDEN;
    earlier.iter().any(|other| other.len() == points.len() && other.iter().zip(points).all(is_same))
}

/// The plot's grid, and what is written at its sides.
fn axes(canvas: &mut Canvas, plot: Room, (x, across): (&Axis, &Scale), (y, up): (&Axis, &Scale)) {
    for (tick, at) in up.ticks.iter().filter_map(|&tick| Some((tick, up.at(tick)?))) {
        canvas.line("g", [plot.left, at], [plot.right, at]);
        canvas.text("q", [plot.left - 6.0, at + 4.0], Anchor::End, &up.label(tick));
    }
    let mut free_from = 0.0;
    for (tick, at) in across.ticks.iter().filter_map(|&tick| Some((tick, across.at(tick)?))) {
        canvas.line("g", [at, plot.top], [at, plot.bottom]);
        let label = across.label(tick);
        let half = width(&label, SMALL) / 2.0;
        // The label at an end may have to give way a little; one that would touch its neighbour is left out.
        let middle = at.min(NARROW - half);
        if middle - half >= free_from {
            canvas.text("q", [middle, plot.bottom + 17.0], Anchor::Middle, &label);
            free_from = middle + half + 6.0;
        }
    }
    let zero = up.at(0.0).unwrap_or(plot.bottom);
    canvas.line("a", [plot.left, zero], [plot.right, zero]);
    canvas.text("", [0.0, 13.0], Anchor::Start, &unit(&y.label));
    canvas.text("", [f64::midpoint(plot.left, plot.right), plot.bottom + 36.0], Anchor::Middle, &unit(&x.label));
    canvas.reach(plot.bottom + 42.0);
}

/// Draws them with their labels, and returns what the legend has to say of them.
fn points_of_the_paper(canvas: &mut Canvas, placer: &mut Placer, marks: &[(At, &Mark)]) -> Vec<(Key, String)> {
    for (at, _) in marks {
        placer.take(Room::around(*at, 7.0));
    }
    let has_twins = |mark: &Mark| marks.iter().filter(|(_, other)| other.label == mark.label).count() > 1;
    let mut entries: Vec<(Key, String)> = Vec::new();
    let single: Vec<&(At, &Mark)> = marks.iter().filter(|(_, mark)| !has_twins(mark)).collect();
    for (at, mark) in marks.iter().filter(|(_, mark)| has_twins(mark)) {
        let known = entries.iter().position(|(_, label)| *label == paper(&mark.label));
        let shape = SHAPES[known.unwrap_or(entries.len()) % SHAPES.len()];
        canvas.mark(shape, *at, &says(mark));
        if known.is_none() {
            entries.push((Key::Mark(shape), paper(&mark.label)));
        }
    }
    for (at, mark) in &single {
        canvas.mark(Shape::Diamond, *at, &says(mark));
    }
    if !single.is_empty() {
        entries.push((Key::Mark(Shape::Diamond), "the paper's figure".to_owned()));
    }
    let mut letters = 0;
    for (at, mark) in &single {
        let label = unit(&mark.label);
        let wide = width(&label, FONT);
        let room = if wide <= SHORT { placer.place(*at, [wide, 14.0], false) } else { None };
        let letter = letter(letters);
        let (text, room) = match room {
            Some(room) => (label.as_str(), Some(room)),
            None => (letter.as_str(), placer.place(*at, [width(&letter, FONT), 14.0], true)),
        };
        if let Some(room) = room {
            let middle = f64::midpoint(room.left, room.right);
            canvas.text("l", [middle, room.bottom - 3.0], Anchor::Middle, text);
        }
        if text == letter {
            entries.push((Key::Letter(letter), label));
            letters += 1;
        }
    }
    entries
}

fn paper(label: &str) -> String {
    if label.to_lowercase().contains("paper") { label.to_owned() } else { format!("paper: {label}") }
}

fn says(mark: &Mark) -> String {
    format!("{}: {}, {}", paper(&mark.label), short(mark.at[0]), short(mark.at[1]))
}

/// a, b and so on; after z come a1, b1.
fn letter(index: usize) -> String {
    let letter = char::from(b'a' + u8::try_from(index % 26).unwrap_or(0));
    if index < 26 { letter.to_string() } else { format!("{letter}{}", index / 26) }
}

/// Without points that cannot be told from the one before.
fn thinned(points: &[At]) -> Vec<At> {
    let mut kept: Vec<At> = Vec::new();
    for (index, &[x, y]) in points.iter().enumerate() {
        let is_last = index + 1 == points.len();
        if is_last || kept.last().is_none_or(|[a, b]| (a - x).abs() + (b - y).abs() >= SAME) {
            kept.push([x, y]);
        }
    }
    kept
}
