//! Stripes over time, a row for each mover: the packet-flow graphs of the papers.

use crate::outcome::{Axis, Stripe};

use super::canvas::{Anchor, COLOURS, Canvas, NARROW, SMALL, WIDE};
use super::label::{At, width};
use super::legend::{self, Key};
use super::number::{count, unit};
use super::scale::Scale;

/// Height of a row's name, of its stripes, and of the space below it.
const NAME: f64 = 17.0;
const STRIPE: f64 = 18.0;
const BELOW: f64 = 9.0;
/// With more stripes than this in a row the drawing is wide.
const FEW: usize = 24;
/// What is narrower than this, and this close to the stripe before it, is not drawn.
const SEEN: f64 = 0.25;
/// Between two stripes that touch.
const HAIR: f64 = 0.6;

pub(super) fn draw(rows: &[String], stripes: &[Stripe]) -> Canvas {
    let of_row = |row: usize| -> Vec<&Stripe> { stripes.iter().filter(|stripe| stripe.row == row).collect() };
    let most = (0..rows.len()).map(|row| of_row(row).len()).max().unwrap_or(0);
    let mut canvas = Canvas::new(if most > FEW { WIDE } else { NARROW });
    let right = canvas.width - 18.0;
    let axis = Axis::linear("time, us");
    let times = stripes.iter().flat_map(|stripe| [stripe.start_us, stripe.end_us]);
    let scale = Scale::fit(&axis, times, [0.0, right], if most > FEW { 10 } else { 6 });
    let mut y = 0.0;
    for (row, name) in rows.iter().enumerate() {
        canvas.text("", [0.0, y + 12.0], Anchor::Start, name);
        canvas.rect("k", [0.0, y + NAME], [right, STRIPE]);
        for at in scale.ticks.iter().filter_map(|&tick| scale.at(tick)) {
            canvas.line("g", [at, y + NAME - 2.0], [at, y + NAME + STRIPE + 2.0]);
        }
        fill(&mut canvas, y + NAME, &of_row(row), &scale);
        y += NAME + STRIPE + BELOW;
    }
    for (tick, at) in scale.ticks.iter().filter_map(|&tick| Some((tick, scale.at(tick)?))) {
        let half = width(&scale.label(tick), SMALL) / 2.0;
        let middle = at.max(half).min(canvas.width - half);
        canvas.text("q", [middle, y + 8.0], Anchor::Middle, &scale.label(tick));
    }
    canvas.text("", [right / 2.0, y + 28.0], Anchor::Middle, &unit(&axis.label));
    canvas.reach(y + 34.0);
    let messages = stripes.iter().map(|stripe| stripe.message).collect::<std::collections::BTreeSet<_>>().len();
    let says = match messages {
        0 => "Nothing moved.".to_owned(),
        1 => "One message. A gap begins a new pulse.".to_owned(),
        _ => format!("{} messages, each with its colour and number. A gap begins a new pulse.", count(messages as u64)),
    };
    legend::draw(&mut canvas, y + 32.0, &[(Key::None, says)]);
    canvas
}

/// The stripes of one row: those of one colour as one outline, and the number of a message where there is room.
fn fill(canvas: &mut Canvas, top: f64, stripes: &[&Stripe], scale: &Scale) {
    let mut colours: [Vec<At>; COLOURS] = Default::default();
    let mut numbers: Vec<(f64, u64)> = Vec::new();
    let mut drawn_to = f64::NEG_INFINITY;
    let mut sorted = stripes.to_vec();
    sorted.sort_by(|a, b| a.start_us.total_cmp(&b.start_us));
    for stripe in sorted {
        let (Some(left), Some(right)) = (scale.at(stripe.start_us), scale.at(stripe.end_us)) else { continue };
        if right - drawn_to < SEEN && right - left < SEEN {
            continue;
        }
        drawn_to = right;
        let colour = usize::try_from(stripe.message % COLOURS as u64).unwrap_or(0);
        colours[colour].push([left, (right - HAIR).max(left + HAIR)]);
        let is_named = numbers.iter().rev().take(COLOURS).any(|(_, message)| *message == stripe.message);
        if !is_named && right - left > width(&stripe.message.to_string(), SMALL) + 5.0 {
            numbers.push((f64::midpoint(left, right), stripe.message));
        }
    }
    for (colour, blocks) in colours.iter().enumerate().filter(|(_, blocks)| !blocks.is_empty()) {
        canvas.blocks(&format!("f{colour}"), top, STRIPE, blocks);
    }
    for (middle, message) in numbers {
        canvas.text("n", [middle, top + 13.5], Anchor::Middle, &message.to_string());
    }
}
