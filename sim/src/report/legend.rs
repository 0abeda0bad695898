//! The legend: below the drawing, where it covers nothing.

use super::canvas::{Anchor, Canvas, FONT, SMALL, Shape};
use super::label::{width, wrap};

/// What stands before an entry's text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Key {
    /// A piece of a curve, of these classes.
    Curve(String),
    /// A square of this class.
    Square(String),
    /// A point of the paper's.
    Mark(Shape),
    /// A letter that stands beside such a point.
    Letter(String),
    /// Nothing: a remark.
    None,
}

/// Height of a row.
const ROW: f64 = 19.0;
/// Between two entries of a row.
const GAP: f64 = 16.0;

/// Sets the entries down from `top` on: in columns if there is room for two, else in rows.
pub(super) fn draw(canvas: &mut Canvas, top: f64, entries: &[(Key, String)]) {
    let widest = entries.iter().map(|(key, text)| indent(key) + width(text, font(key)) + GAP).fold(0.0, f64::max);
    // Entries that begin below one another are found soonest.
    let column = if widest <= (canvas.width + GAP) / 2.0 {
        (canvas.width + GAP) / ((canvas.width + GAP) / widest).floor()
    } else {
        0.0
    };
    let (mut x, mut y) = (0.0, top + ROW);
    for (key, text) in entries {
        let (indent, font) = (indent(key), font(key));
        if x > 0.0 && x + indent + width(text, font) > canvas.width {
            (x, y) = (0.0, y + ROW);
        }
        let lines = wrap(text, canvas.width - indent, font);
        swatch(canvas, key, x, y);
        for (index, line) in lines.iter().enumerate() {
            if index > 0 {
                y += ROW - 3.0;
            }
            let class = if *key == Key::None { "q" } else { "" };
            canvas.text(class, [x + indent, y], Anchor::Start, line);
        }
        let wide = lines.iter().map(|line| width(line, font)).fold(0.0, f64::max);
        x = if lines.len() > 1 { canvas.width } else { (x + indent + wide + GAP).max(x + column) };
        canvas.reach(y + 6.0);
    }
}

/// Room for what stands before the text.
fn indent(key: &Key) -> f64 {
    match key {
        Key::Curve(_) => 30.0,
        Key::Square(_) | Key::Mark(_) | Key::Letter(_) => 20.0,
        Key::None => 0.0,
    }
}

fn font(key: &Key) -> f64 {
    if *key == Key::None { SMALL } else { FONT }
}

fn swatch(canvas: &mut Canvas, key: &Key, x: f64, y: f64) {
    match key {
        Key::Curve(class) => canvas.line(&format!("sw {class}"), [x, y - 4.5], [x + 24.0, y - 4.5]),
        Key::Square(class) => canvas.rect(class, [x, y - 11.0], [13.0, 13.0]),
        Key::Mark(shape) => canvas.mark(*shape, [x + 7.0, y - 4.5], ""),
        Key::Letter(letter) => canvas.text("l", [x + 7.0, y], Anchor::Middle, letter),
        Key::None => {}
    }
}
