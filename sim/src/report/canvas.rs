//! What drawings are set down on: lines and texts of SVG, with colours for light and for dark.

use std::fmt::Write;

use super::label::{At, Room, width, wrap};

/// Width of a drawing that a phone shows without scrolling.
pub(super) const NARROW: f64 = 430.0;
/// Width of a drawing with much to see in it.
pub(super) const WIDE: f64 = 760.0;

/// Sizes of texts.
pub(super) const FONT: f64 = 13.0;
pub(super) const SMALL: f64 = 12.0;
const TITLE: f64 = 16.0;

/// How many curves have colours of their own; dashes tell the next ones from them.
pub(super) const COLOURS: usize = 7;

/// Colours that differ for colour-blind people too, after Okabe and Ito: darker ones on white, lighter ones on black.
const LIGHT: [&str; COLOURS] = ["#0072b2", "#c44e00", "#00805c", "#a3477d", "#946200", "#2b2f77", "#5f6b76"];
const DARK: [&str; COLOURS] = ["#56b4e9", "#ff9147", "#2fcf9f", "#eba0c8", "#f2c14e", "#a8a9f5", "#b3bdc7"];

/// Whether a drawing is a file of its own or a part of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A file: with title and colours.
    Alone,
    /// A part of a page, which has [`style`].
    Inline,
}

/// Which point of a text is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    /// Its beginning.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// Shapes of the points that a paper gives; hollow, so that they differ from simulated ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Diamond,
    Square,
    Triangle,
    Circle,
}

/// A drawing in the making; y grows downwards.
#[derive(Debug, Clone)]
pub(super) struct Canvas {
    body: String,
    pub(super) width: f64,
    /// Grows with what is drawn.
    pub(super) height: f64,
    /// The rooms that texts take up, for tests.
    pub(super) texts: Vec<Room>,
}

impl Canvas {
    /// An empty drawing.
    pub(super) fn new(width: f64) -> Self {
        Self { body: String::new(), width, height: 0.0, texts: Vec::new() }
    }

    /// A straight line.
    pub(super) fn line(&mut self, class: &str, from: At, to: At) {
        let [x1, y1, x2, y2] = [from[0], from[1], to[0], to[1]].map(px);
        self.put(format_args!(r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#));
    }

    /// A line through points.
    pub(super) fn through(&mut self, class: &str, points: &[At]) {
        let points: Vec<String> = points.iter().map(|[x, y]| format!("{},{}", px(*x), px(*y))).collect();
        self.put(format_args!(r#"<polyline class="{class}" points="{}"/>"#, points.join(" ")));
    }

    /// A filled point that says what it is when it is pointed at.
    pub(super) fn dot(&mut self, class: &str, [x, y]: At, radius: f64, says: &str) {
        let (x, y, radius, says) = (px(x), px(y), px(radius), escaped(says));
        let circle =
            format_args!(r#"<circle class="{class}" cx="{x}" cy="{y}" r="{radius}"><title>{says}</title></circle>"#);
        self.put(circle);
    }

    /// A filled rectangle.
    pub(super) fn rect(&mut self, class: &str, [x, y]: At, [wide, high]: At) {
        let [x, y, wide, high] = [x, y, wide, high].map(px);
        self.put(format_args!(r#"<rect class="{class}" x="{x}" y="{y}" width="{wide}" height="{high}"/>"#));
    }

    /// Rectangles of one colour and height, each from a left to a right end.
    pub(super) fn blocks(&mut self, class: &str, top: f64, high: f64, blocks: &[At]) {
        let block = |[left, right]: &At| {
            let wide = px((right - left).max(0.3));
            format!("M{} {}h{wide}v{}h-{wide}z", px(*left), px(top), px(high))
        };
        let outline: String = blocks.iter().map(block).collect();
        self.put(format_args!(r#"<path class="{class}" d="{outline}"/>"#));
    }

    /// A point of the paper's that says what it is when it is pointed at.
    pub(super) fn mark(&mut self, shape: Shape, [x, y]: At, says: &str) {
        let around = |offsets: &[At]| {
            let corners: Vec<String> =
                offsets.iter().map(|[dx, dy]| format!("{} {}", px(x + dx), px(y + dy))).collect();
            format!("M{}Z", corners.join("L"))
        };
        let outline = match shape {
            Shape::Diamond => around(&[[0.0, -6.0], [6.0, 0.0], [0.0, 6.0], [-6.0, 0.0]]),
            Shape::Square => around(&[[-4.5, -4.5], [4.5, -4.5], [4.5, 4.5], [-4.5, 4.5]]),
            Shape::Triangle => around(&[[0.0, -6.0], [5.5, 4.0], [-5.5, 4.0]]),
            Shape::Circle => format!("M{} {}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0Z", px(x - 5.0), px(y)),
        };
        let says = escaped(says);
        self.put(format_args!(r#"<path class="p" d="{outline}"><title>{says}</title></path>"#));
    }

    /// A text whose letters stand on `at`.
    pub(super) fn text(&mut self, class: &str, at: At, anchor: Anchor, content: &str) {
        let wide = width(content, if class.is_empty() { FONT } else { SMALL });
        let (name, left) = match anchor {
            Anchor::Start => ("", at[0]),
            Anchor::Middle => (r#" text-anchor="middle""#, at[0] - wide / 2.0),
            Anchor::End => (r#" text-anchor="end""#, at[0] - wide),
        };
        self.texts.push(Room { left, top: at[1] - 9.0, right: left + wide, bottom: at[1] + 2.0 });
        let (x, y, content) = (px(at[0]), px(at[1]), escaped(content));
        let class = if class.is_empty() { String::new() } else { format!(r#" class="{class}""#) };
        self.put(format_args!(r#"<text{class} x="{x}" y="{y}"{name}>{content}</text>"#));
    }

    /// Makes the drawing reach down to `y` at least.
    pub(super) fn reach(&mut self, y: f64) {
        self.height = self.height.max(y);
    }

    /// The drawing as SVG.
    pub(super) fn finish(self, form: Form, title: &str) -> String {
        let Self { body, width: wide, height, .. } = self;
        let name = escaped(title);
        if form == Form::Inline {
            let (wide, height) = (px(wide), px(height));
            return format!(
                r#"<svg class="fig" viewBox="0 0 {wide} {height}" role="img" aria-label="{name}">{body}</svg>"#
            );
        }
        let lines = wrap(title, wide - 24.0, TITLE * 1.06);
        let head = 22.0 * lines.len() as f64 + 16.0;
        let mut heading = String::new();
        for (line, y) in lines.iter().zip((0..).map(|line| 24.0 + 22.0 * f64::from(line))) {
            heading += &format!(r#"<text class="t" x="12" y="{}">{}</text>"#, px(y), escaped(line));
        }
        let (all, high) = (wide + 24.0, head + height + 10.0);
        let (natural, tall) = (px(all * 1.5), px(high * 1.5));
        let (all, high, head, style) = (px(all), px(high), px(head), style());
        let size = format!(r#"width="{natural}" height="{tall}" viewBox="0 0 {all} {high}""#);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" {size} role=\"img\"><title>{name}</title>\
             <style>{style}</style><rect class=\"bg\" width=\"{all}\" height=\"{high}\"/>{heading}\
             <g transform=\"translate(12 {head})\">{body}</g></svg>\n"
        )
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let _ = self.body.write_fmt(element);
    }
}

/// The colours of drawings, for light and for dark.
pub(super) fn style() -> String {
    let mut style = format!(
        ".fig{{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:{FONT}px}}\
         .fig .t{{font-size:{TITLE}px;font-weight:600}}.fig .q,.fig .l,.fig .n{{font-size:{SMALL}px}}\
         .fig .l{{font-weight:600;paint-order:stroke;stroke-width:3px;stroke-linejoin:round}}\
         .fig polyline{{fill:none;stroke-width:2;stroke-linejoin:round}}.fig .sw{{stroke-width:2.5}}\
         .fig .p{{stroke-width:1.8}}.fig .d1{{stroke-dasharray:7 4}}.fig .d2{{stroke-dasharray:2 3}}\
         .fig .n{{text-anchor:middle}}.fig .o{{fill-opacity:.42}}"
    );
    style += &colours("#1f2933", "#52606d", "#ffffff", "#dde2e7", "#f1f3f5", &LIGHT);
    style += "@media(prefers-color-scheme:dark){";
    style += &colours("#e6eaee", "#a9b4bf", "#16191d", "#343b43", "#22272d", &DARK);
    style + "}"
}

fn colours(ink: &str, quiet: &str, ground: &str, grid: &str, track: &str, series: &[&str]) -> String {
    let mut style = format!(
        ".fig text{{fill:{ink}}}.fig .q{{fill:{quiet}}}.fig .l{{stroke:{ground}}}.fig .n{{fill:{ground}}}\
         .fig .bg{{fill:{ground}}}.fig .g{{stroke:{grid}}}.fig .a{{stroke:{quiet}}}.fig .k{{fill:{track}}}\
         .fig .p{{fill:{ground};stroke:{ink}}}"
    );
    for (index, colour) in series.iter().enumerate() {
        style += &format!(".fig .s{index}{{stroke:{colour}}}.fig .f{index}{{fill:{colour}}}");
    }
    style
}

/// A text as XML carries it; what XML cannot carry is left out.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(' '),
            letter if letter.is_control() => {}
            letter => out.push(letter),
        }
    }
    out
}

/// A coordinate to a tenth, so that files stay small.
pub(super) fn px(value: f64) -> f64 {
    (value * 10.0).round() / 10.0 + 0.0
}
