//! What an experiment brings forth: lines that hold the simulated figure against the paper's, and figures to draw.

use serde::Serialize;

/// How the simulated figure came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// An unknown parameter of the platform was chosen so that this figure comes out: agreement shows nothing.
    Fitted,
    /// Nothing was chosen after this figure.
    Predicted,
}

/// What the paper says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Paper {
    /// One value.
    Value(f64),
    /// Any value from the first to the second.
    Range([f64; 2]),
}

/// One simulated figure, held against the paper's where that is known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Row of the table of results, such as `T1`.
    pub id: String,
    /// What was measured.
    pub what: String,
    /// Under which conditions, the platform among them.
    pub conditions: String,
    /// Unit of both figures.
    pub unit: String,
    /// The published figure; absent where none is known and the simulator predicts one.
    pub paper: Option<Paper>,
    /// The simulated figure.
    pub sim: f64,
    /// How far it is off, in percent of the paper's (of the nearer end of a range); absent without a paper's figure.
    pub error_pct: Option<f64>,
    /// Fitted or predicted.
    pub role: Role,
    /// The error that a fair simulator may make, in percent; absent without a paper's figure.
    pub tolerance_pct: Option<f64>,
    /// Whether the error is within the tolerance; absent without a paper's figure.
    pub ok: Option<bool>,
    /// Where the paper's figure stands, or the rule by which it was predicted.
    pub source: String,
}

impl Line {
    /// A figure that no text gives: a prediction to be compared later. Add the paper's with [`Line::against`].
    #[must_use]
    pub fn new(id: &str, what: impl Into<String>, conditions: impl Into<String>, unit: &str, sim: f64) -> Self {
        Self {
            id: id.to_owned(),
            what: what.into(),
            conditions: conditions.into(),
            unit: unit.to_owned(),
            paper: None,
            sim,
            error_pct: None,
            role: Role::Predicted,
            tolerance_pct: None,
            ok: None,
            source: String::new(),
        }
    }

    /// Holds the figure against the paper's, which it may miss by `tolerance_pct` percent.
    #[must_use]
    pub fn against(mut self, paper: Paper, tolerance_pct: f64) -> Self {
        let error = match paper {
            Paper::Value(value) => percent_off(self.sim, value),
            Paper::Range([low, _]) if self.sim < low => percent_off(self.sim, low),
            Paper::Range([_, high]) if self.sim > high => percent_off(self.sim, high),
            Paper::Range(_) => 0.0,
        };
        self.paper = Some(paper);
        self.error_pct = Some(error);
        self.tolerance_pct = Some(tolerance_pct);
        self.ok = Some(error.abs() <= tolerance_pct);
        self
    }

    /// Marks the figure as one that a parameter was fitted to.
    #[must_use]
    pub fn fitted(mut self) -> Self {
        self.role = Role::Fitted;
        self
    }

    /// Says where the paper's figure stands.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }
}

/// How far `value` is off `reference`, in percent of it; of nothing, everything but nothing is 100 % off.
fn percent_off(value: f64, reference: f64) -> f64 {
    if reference != 0.0 {
        (value / reference - 1.0) * 100.0
    } else if value == 0.0 {
        0.0
    } else {
        100.0
    }
}

/// An axis of a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Axis {
    /// What it counts, with the unit: `payload, bytes`.
    pub label: String,
    /// Whether equal factors, and not equal differences, take equal room.
    pub log: bool,
}

impl Axis {
    /// An axis on which equal differences take equal room.
    #[must_use]
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), log: false }
    }

    /// An axis on which equal factors take equal room.
    #[must_use]
    pub fn log(label: &str) -> Self {
        Self { label: label.to_owned(), log: true }
    }
}

/// One simulated curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve {
    /// What the legend calls it.
    pub name: String,
    /// Its points, by x.
    pub points: Vec<[f64; 2]>,
}

/// A point that the paper gives, drawn over the curves.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mark {
    /// Where.
    pub at: [f64; 2],
    /// What it is.
    pub label: String,
}

/// One bar, or several parts on top of one another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bar {
    /// What it stands for.
    pub name: String,
    /// Parts from the bottom up: name and height. A plain bar has one.
    pub parts: Vec<(String, f64)>,
    /// The paper's height, if it gives one.
    pub paper: Option<f64>,
}

/// A stretch of time in which one mover was at work on one message: the packet-flow graphs of the papers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stripe {
    /// Which row (0 is the first of [`Drawing::Flow`]'s rows).
    pub row: usize,
    /// Number of the message.
    pub message: u64,
    /// From when, in microseconds.
    pub start_us: f64,
    /// Until when.
    pub end_us: f64,
    /// Bytes moved.
    pub bytes: u64,
}

/// What is drawn.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Drawing {
    /// Curves, and points of the paper over them.
    Curves {
        /// Across.
        x: Axis,
        /// Up.
        y: Axis,
        /// The curves.
        curves: Vec<Curve>,
        /// Points of the paper.
        marks: Vec<Mark>,
    },
    /// Bars.
    Bars {
        /// Up.
        y: Axis,
        /// The bars, from left to right.
        bars: Vec<Bar>,
    },
    /// Stripes over time, one row for each mover.
    Flow {
        /// Names of the rows, from the top.
        rows: Vec<String>,
        /// The stripes.
        stripes: Vec<Stripe>,
    },
}

/// A figure of the report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Names its files: lower case, no blanks.
    pub id: String,
    /// One line above it.
    pub title: String,
    /// What it shows and what is to be seen in it.
    pub caption: String,
    /// What is drawn.
    pub drawing: Drawing,
}

/// All that an experiment brought forth.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Outcome {
    /// Figures held against the paper's.
    pub lines: Vec<Line>,
    /// Figures to draw.
    pub figures: Vec<Figure>,
    /// Events that the simulator handled, for its own speed.
    pub events: u64,
}

/// One row of the table of results, to be run.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// Its row: `T1`, `N2`, `S3`, `U4`, `D1`; `M1` and so on for today's machines.
    pub id: &'static str,
    /// What it shows, in one line.
    pub title: &'static str,
    /// Runs it.
    pub run: fn() -> Outcome,
}

#[cfg(test)]
mod tests {
    use super::{Line, Paper};

    #[test]
    fn a_line_is_ok_within_its_tolerance() {
        let line = |sim| Line::new("T1", "latency", "", "us", sim);
        assert_eq!(line(300.0).ok, None);
        assert_eq!(line(300.0).against(Paper::Value(308.0), 3.0).ok, Some(true));
        assert_eq!(line(290.0).against(Paper::Value(308.0), 3.0).ok, Some(false));
        assert_eq!(line(98.5).against(Paper::Range([100.0, 200.0]), 1.0).ok, Some(false));
        assert_eq!(line(150.0).against(Paper::Range([100.0, 200.0]), 0.0).ok, Some(true));
    }
}
