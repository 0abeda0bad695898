//! How wide a text is, where it breaks, and where there is room for it.

/// A point of a drawing.
pub(super) type At = [f64; 2];

/// Width of a text in the widest of the fonts that a reader may have, for a font of this size.
pub(super) fn width(text: &str, font: f64) -> f64 {
    text.chars().map(letter).sum::<f64>() * font
}

fn letter(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.34,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' | '/' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '→' | '+' | '=' | '<' | '>' => 0.96,
        'A'..='Z' => 0.74,
        _ => 0.63,
    }
}

/// Breaks a text between words into lines of at most so many units; a longer word has a line of its own.
pub(super) fn wrap(text: &str, most: f64, font: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, font) + width(" ", font) + width(word, font) <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A rectangle that something takes up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Room {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Room {
    /// A square around a point.
    pub(super) fn around([x, y]: At, half: f64) -> Self {
        Self { left: x - half, top: y - half, right: x + half, bottom: y + half }
    }

    /// The same, with so much more at every side.
    fn wider(&self, by: f64) -> Self {
        Self { left: self.left - by, top: self.top - by, right: self.right + by, bottom: self.bottom + by }
    }

    /// Whether the two have something in common.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    /// Whether a point lies within.
    fn holds(&self, [x, y]: At) -> bool {
        (self.left..=self.right).contains(&x) && (self.top..=self.bottom).contains(&y)
    }

    /// Whether all of the other lies within.
    fn covers(&self, other: &Self) -> bool {
        self.holds([other.left, other.top]) && self.holds([other.right, other.bottom])
    }
}

/// Finds places for short texts beside points.
#[derive(Debug)]
pub(super) struct Placer {
    plot: Room,
    taken: Vec<Room>,
    /// Points of the curves, close to one another.
    curves: Vec<At>,
}

/// Distances of a text from its point, the nearest first.
const DISTANCES: [f64; 4] = [8.0, 13.0, 20.0, 30.0];
/// Directions: right, left, above, below, and between them.
const DIRECTIONS: [At; 8] =
    [[1.0, 0.0], [-1.0, 0.0], [0.0, -1.0], [0.0, 1.0], [0.7, -0.7], [0.7, 0.7], [-0.7, -0.7], [-0.7, 0.7]];
/// How close the points of a curve are set that a text must not cover, and how far from them a text stays.
const CLOSE: f64 = 3.0;

impl Placer {
    /// A plot with nothing in it.
    pub(super) fn new(plot: Room) -> Self {
        Self { plot, taken: Vec::new(), curves: Vec::new() }
    }

    /// Takes up room.
    pub(super) fn take(&mut self, room: Room) {
        self.taken.push(room);
    }

    /// Draws a curve that texts shall not cover.
    pub(super) fn curve(&mut self, points: &[At]) {
        self.curves.extend(points.first());
        for pair in points.windows(2) {
            let [[x, y], [to_x, to_y]] = [pair[0], pair[1]];
            let steps = ((to_x - x).hypot(to_y - y) / CLOSE).ceil().clamp(1.0, 1000.0);
            let mut step = 1.0;
            while step <= steps {
                let share = step / steps;
                self.curves.push([x + share * (to_x - x), y + share * (to_y - y)]);
                step += 1.0;
            }
        }
    }

    /// Where a text of this size covers nothing, near `at`; takes up its room. With `over_curves` it may cover curves
    /// if there is no better place.
    pub(super) fn place(&mut self, at: At, [wide, high]: At, over_curves: bool) -> Option<Room> {
        let candidates = || {
            let far = DISTANCES.iter().flat_map(|&far| DIRECTIONS.iter().map(move |way| (far, way)));
            far.map(move |(far, [right, down])| {
                let x = at[0] + right * far + (right.signum() * right.abs().ceil() - 1.0) * wide / 2.0;
                let y = at[1] + down * far + (down.signum() * down.abs().ceil() - 1.0) * high / 2.0;
                Room { left: x, top: y, right: x + wide, bottom: y + high }
            })
        };
        let is_free = |room: &Room| self.plot.covers(room) && !self.taken.iter().any(|taken| taken.overlaps(room));
        let is_clear = |room: &Room| {
            let wider = room.wider(CLOSE);
            is_free(room) && !self.curves.iter().any(|&point| wider.holds(point))
        };
        let found = candidates().find(is_clear);
        let found = found.or_else(|| candidates().find(|room| over_curves && is_free(room)))?;
        self.taken.push(found);
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::{Placer, Room, width, wrap};

    const PLOT: Room = Room { left: 0.0, top: 0.0, right: 100.0, bottom: 100.0 };

    #[test]
    fn lines_break_between_words() {
        let lines = wrap("store-and-forward at 8192 bytes of payload", 120.0, 12.0);
        assert!(lines.len() > 1 && lines.iter().all(|line| width(line, 12.0) <= 120.0), "{lines:?}");
        assert_eq!(lines.join(" "), "store-and-forward at 8192 bytes of payload");
        assert_eq!(wrap("", 50.0, 12.0), Vec::<String>::new());
    }

    #[test]
    fn texts_cover_neither_each_other_nor_the_curve() {
        let mut placer = Placer::new(PLOT);
        placer.curve(&[[0.0, 50.0], [100.0, 50.0]]);
        let mut found: Vec<Room> = Vec::new();
        for x in [20.0, 50.0, 80.0] {
            let room = placer.place([x, 50.0], [30.0, 12.0], false).expect("there is room");
            assert!(room.bottom <= 50.0 || room.top >= 50.0, "{room:?}");
            assert!(!found.iter().any(|other| other.overlaps(&room)));
            found.push(room);
        }
        assert_eq!(placer.place([50.0, 50.0], [300.0, 12.0], true), None);
    }
}
