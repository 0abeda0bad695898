//! Lines for people, and the check of them.

use cutthrough_sim::outcome::{Experiment, Line, Outcome, Paper, Role};
use cutthrough_sim::report::Report;
use cutthrough_sim::report::number::{percent, short};
use cutthrough_sim::report::record::Record;
use cutthrough_sim::report::summary::Summary;

use crate::failure::Failure;
use crate::output::Output;
use crate::table::Table;

/// Columns of the text that says what was measured.
const COLUMNS: usize = 46;

/// Prints the lines of one experiment.
///
/// # Errors
/// If the output cannot be written.
pub fn experiment(experiment: &Experiment, outcome: &Outcome, output: Output) -> Result<(), Failure> {
    outcome.lines.iter().try_for_each(|line| output.line(&Record::of(line)))?;
    let heading = format!("{}  {}\n", experiment.id, experiment.title);
    if outcome.lines.is_empty() {
        return output.say(&format!("{heading}Only figures; --out DIR writes them.\n"));
    }
    let mut table = Table::new(&["what", "paper", "sim", "unit", "error", "allowed", "role", ""]);
    for line in &outcome.lines {
        table.row(row(line));
    }
    output.say(&format!("{heading}{table}\n"))
}

fn row(line: &Line) -> Vec<String> {
    let role = match line.role {
        Role::Fitted => "fitted",
        Role::Predicted => "predicted",
    };
    let ok = match line.ok {
        Some(true) => "ok",
        Some(false) => "MISS",
        None => "",
    };
    let allowed = line.tolerance_pct.map(|most| format!("{} %", short(most)));
    vec![
        what(line),
        line.paper.map(paper).unwrap_or_default(),
        short(line.sim),
        line.unit.clone(),
        line.error_pct.map(percent).unwrap_or_default(),
        allowed.unwrap_or_default(),
        role.into(),
        ok.into(),
    ]
}

/// What was measured, and below it the conditions.
fn what(line: &Line) -> String {
    let mut lines = wrapped(&line.what, COLUMNS);
    lines.extend(wrapped(&line.conditions, COLUMNS - 2).iter().map(|text| format!("  {text}")));
    lines.join("\n")
}

/// Lines of at most so many columns, broken between words.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn paper(paper: Paper) -> String {
    match paper {
        Paper::Value(value) => short(value),
        Paper::Range([low, high]) => format!("{} to {}", short(low), short(high)),
    }
}

/// Prints how well all of it agrees with the papers.
///
/// # Errors
/// If the output cannot be written.
pub fn summary(summary: &Summary, output: Output) -> Result<(), Failure> {
    let Summary { compared, ok, predictions, predictions_ok, .. } = summary;
    let median = |error: Option<f64>| error.map_or_else(|| "none".to_owned(), |error| format!("{error:.1} %"));
    output.say(&format!(
        "{ok} of {compared} published figures met, {predictions_ok} of {predictions} of the predictions.\n\
         Median error of the predictions {}; without ranges and sums of published figures {}.",
        median(summary.median_error_pct),
        median(summary.hard_median_error_pct)
    ))
}

/// Checks that every line that can be held against a paper is within its tolerance.
///
/// # Errors
/// The check failed; it names every line that misses.
pub fn check(report: &Report<'_>) -> Result<(), Failure> {
    let missed: Vec<String> = report.lines().filter(|line| line.ok == Some(false)).map(miss).collect();
    if missed.is_empty() {
        return Ok(());
    }
    let compared = report.summary().compared;
    Err(Failure::check(format!("{} of {compared} figures miss: {}", missed.len(), missed.join("; "))))
}

fn miss(line: &Line) -> String {
    let conditions = if line.conditions.is_empty() { String::new() } else { format!(" ({})", line.conditions) };
    let error = line.error_pct.map(percent).unwrap_or_default();
    let allowed = line.tolerance_pct.map(short).unwrap_or_default();
    let text = format!("{} {}{conditions} {error}, {allowed} % allowed", line.id, line.what);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
