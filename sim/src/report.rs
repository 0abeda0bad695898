//! The report: everything that experiments brought forth, as files for people and for programs.
//!
//! | file | what |
//! |---|---|
//! | `index.html` | everything in one page that needs no network (`html`) |
//! | `ID.svg`, `ID.csv` | each figure, drawn (`curves`, `bars`, `flow`) and as numbers (`csv`) |
//! | `lines.jsonl`, `lines.csv` | every line that is held against the papers (`record`) |
//!
//! A drawing begins with a `scale` for each axis, is set down on a `canvas`, and is never wider than a phone's
//! screen can show; `label` keeps texts apart. Equal results give equal files, byte for byte.

mod bars;
mod canvas;
pub mod csv;
mod curves;
mod flow;
mod html;
mod label;
mod legend;
pub mod number;
pub mod record;
mod scale;
pub mod summary;

use crate::outcome::{Drawing, Experiment, Figure, Line, Outcome};
use crate::platform::Platform;

use canvas::{Canvas, Form};
use record::Record;
use summary::Summary;

/// Results to report on.
#[derive(Debug)]
pub struct Report<'a> {
    /// What was run and what came of it, in the order of the report.
    pub results: &'a [(Experiment, Outcome)],
    /// The machines, each with the origins of its parameters.
    pub platforms: &'a [Platform],
}

/// A file of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its name within the report's folder.
    pub name: String,
    /// What is in it.
    pub text: String,
}

impl Report<'_> {
    /// Every file of the report; `index.html` is the first.
    #[must_use]
    pub fn files(&self) -> Vec<File> {
        let file = |name: &str, text| File { name: name.to_owned(), text };
        let mut files = vec![
            file("index.html", html::page(self)),
            file("lines.jsonl", self.lines().map(|line| Record::of(line).json() + "\n").collect()),
            file("lines.csv", csv::lines(self.lines())),
        ];
        for figure in self.results.iter().flat_map(|(_, outcome)| &outcome.figures) {
            files.push(File { name: format!("{}.svg", figure.id), text: svg(figure) });
            files.push(File { name: format!("{}.csv", figure.id), text: csv::figure(figure) });
        }
        files
    }

    /// Every line, in the order of the report.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.results.iter().flat_map(|(_, outcome)| &outcome.lines)
    }

    /// How well all lines agree with the papers.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary::of(self.lines())
    }
}

/// A figure as a picture that stands alone: with its title, and the colours for light and for dark.
#[must_use]
pub fn svg(figure: &Figure) -> String {
    drawn(figure).finish(Form::Alone, &figure.title)
}

/// A figure as a part of a page that has the title and the colours.
fn inline_svg(figure: &Figure) -> String {
    drawn(figure).finish(Form::Inline, &figure.title)
}

fn drawn(figure: &Figure) -> Canvas {
    match &figure.drawing {
        Drawing::Curves { x, y, curves, marks } => curves::draw(x, y, curves, marks),
        Drawing::Bars { y, bars } => bars::draw(y, bars),
        Drawing::Flow { rows, stripes } => flow::draw(rows, stripes),
    }
}

#[cfg(test)]
mod tests;
