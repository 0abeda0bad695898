//! Lines for people, and the check of them.

use cutthrough_sim::catalogue::is_known_miss;
use cutthrough_sim::outcome::{Experiment, Line, Outcome, Paper, Role};
use cutthrough_sim::report::Report;
use cutthrough_sim::report::number::{percent, short};
use cutthrough_sim::report::record::Record;
use cutthrough_sim::report::summary::Summary;

use crate::failure::Failure;
use crate::output::Output;
use crate::table::{self, Table, hanging};

/// Columns of the text that says what was measured.
const COLUMNS: usize = 34;

/// Prints the lines of one experiment.
///
/// # Errors
/// If the output cannot be written.
pub fn experiment(experiment: &Experiment, outcome: &Outcome, output: Output) -> Result<(), Failure> {
    outcome.lines.iter().try_for_each(|line| output.line(&Record::of(line)))?;
    let heading = format!("{}\n", hanging(&format!("{}  {}", experiment.id, experiment.title), 4));
    if outcome.lines.is_empty() {
        return output.say(&format!("{heading}Only figures; --out DIR writes them.\n"));
    }
    output.say(&format!("{heading}{}\n", figures(&outcome.lines)))
}

/// A table of the figures; below each, as wide as the terminal, the conditions and how far it may be off the paper's.
fn figures(lines: &[Line]) -> String {
    let mut table = Table::new(&["what", "paper", "sim", "unit", "error", ""]);
    lines.iter().for_each(|line| table.row(row(line)));
    let table = table.whole();
    let mut rows = table.lines();
    let mut text: Vec<String> = rows.next().map(str::to_owned).into_iter().collect();
    for line in lines {
        text.extend(rows.by_ref().take(what(line).len()).map(str::to_owned));
        text.push(hanging(&format!("  {}", conditions(line)), 2));
    }
    text.join("\n")
}

fn row(line: &Line) -> Vec<String> {
    let ok = match line.ok {
        Some(true) => "ok",
        Some(false) => "MISS",
        None => "",
    };
    vec![
        what(line).join("\n"),
        line.paper.map(paper).unwrap_or_default(),
        short(line.sim),
        line.unit.clone(),
        line.error_pct.map(percent).unwrap_or_default(),
        ok.into(),
    ]
}

/// What was measured, in lines.
fn what(line: &Line) -> Vec<String> {
    wrapped(&line.what, COLUMNS)
}

fn conditions(line: &Line) -> String {
    let role = match line.role {
        Role::Fitted => "fitted",
        Role::Predicted => "predicted",
    };
    let allowed = line.tolerance_pct.map(|most| format!(", {} % allowed", short(most))).unwrap_or_default();
    let separator = if line.conditions.is_empty() { "" } else { "; " };
    format!("{}{separator}{role}{allowed}", line.conditions)
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
    output.say(&table::wrapped(&met(summary)))
}

/// How well it agrees, in words.
fn met(summary: &Summary) -> String {
    let Summary { compared, ok, predictions, predictions_ok, .. } = summary;
    if *compared == 0 {
        return "No figures were published for this: there is nothing to hold it against.".into();
    }
    let met = format!("{ok} of {compared} published figures met");
    if *predictions == 0 {
        return format!("{met}; none of them is a prediction.");
    }
    let median = |error: Option<f64>| error.map_or_else(|| "none".to_owned(), |error| format!("{error:.1} %"));
    format!(
        "{met}, {predictions_ok} of {predictions} of the predictions.\n\
         Median error of the predictions {}; without ranges and sums of published figures {}.",
        median(summary.median_error_pct),
        median(summary.hard_median_error_pct)
    )
}

/// Checks that every line that can be held against a paper is within its tolerance, but for those that are known not to
/// be, and names these.
///
/// # Errors
/// The check failed; it names every other line that misses. Or the output cannot be written.
pub fn check(report: &Report<'_>, output: Output) -> Result<(), Failure> {
    let missed = report.lines().filter(|line| line.ok == Some(false));
    let (known, missed): (Vec<&Line>, Vec<&Line>) = missed.partition(|line| is_known_miss(line));
    let named = |lines: &[&Line]| lines.iter().map(|line| miss(line)).collect::<Vec<_>>().join("; ");
    if !known.is_empty() {
        let figures = if known.len() == 1 { "figure misses" } else { "figures miss" };
        output.say(&table::wrapped(&format!("{} {figures}, as is known: {}", known.len(), named(&known))))?;
    }
    if missed.is_empty() {
        return Ok(());
    }
    let compared = report.summary().compared;
    Err(Failure::check(format!("{} of {compared} figures miss: {}", missed.len(), named(&missed))))
}

fn miss(line: &Line) -> String {
    let conditions = if line.conditions.is_empty() { String::new() } else { format!(" ({})", line.conditions) };
    let error = line.error_pct.map(percent).unwrap_or_default();
    let allowed = line.tolerance_pct.map(short).unwrap_or_default();
    let text = format!("{} {}{conditions} {error}, {allowed} % allowed", line.id, line.what);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_published_is_not_held_against_anything() {
        let line = Line::new("N2", "latency", "", "us", 51.02);
        let words = met(&Summary::of([&line].into_iter()));
        assert_eq!(words, "No figures were published for this: there is nothing to hold it against.");
        let fitted = line.clone().against(Paper::Value(51.0), 10.0).fitted();
        let words = met(&Summary::of([&line, &fitted].into_iter()));
        assert_eq!(words, "1 of 1 published figures met; none of them is a prediction.");
    }

    #[test]
    fn figures_fit_into_a_terminal_and_keep_their_conditions() {
        let long = "the bandwidth from a socket that copies to a driver that remaps pages";
        let conditions = "some platform, some protocol, one sender, messages of 64 KiB without a pause between them";
        let line = |what: &str, conditions: &str| {
            Line::new("D2", what, conditions, "message", 51.02).against(Paper::Range([1000.0, 1843.0]), 10.0)
        };
        let text = figures(&[line(long, conditions), line("short", ""), line("next", "alone")]);
        assert!(text.lines().all(|line| line.chars().count() <= table::COLUMNS), "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(conditions), "{text}");
        let short = text.lines().position(|line| line.starts_with("short ")).expect("a row");
        assert!(text.lines().nth(short + 1).is_some_and(|line| line.starts_with("  predicted, ")), "{text}");
        assert!(text.lines().nth(short + 2).is_some_and(|line| line.starts_with("next ")), "{text}");
    }
}
