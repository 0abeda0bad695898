//! The report as one page: no script, no network, readable on a phone, light or dark as the reader's system is.

use crate::outcome::{Experiment, Figure, Line, Outcome, Paper, Role};
use crate::platform::{Origin, Parameter, Platform};

use super::canvas::{self, escaped};
use super::number::{count, percent, short, unit};
use super::summary::Summary;
use super::{Report, inline_svg};

/// What the page looks like; the colours of the drawings come from [`canvas::style`].
const STYLE: &str = include_str!("html/style.css");

/// What a reader has to know before the figures.
const ABOUT: &str = "The machines of the papers, rebuilt part by part, run the same engine as the real adapters. A \
    <em>fitted</em> figure shows nothing: an unknown parameter of its platform was chosen so that it comes out. A \
    <em>predicted</em> figure is what the mechanism says, and nothing was chosen after it. Misses are left \
    as they are.";

/// The whole page.
pub(super) fn page(report: &Report<'_>) -> String {
    let body = [head(&report.summary(), report), misses(report), contents(report), results(report), platforms(report)];
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>Cutthrough: the papers' results, simulated</title>\
         <style>{STYLE}{}</style></head>\n<body><main>\n{}</main></body></html>\n",
        canvas::style(),
        body.concat()
    )
}

fn head(summary: &Summary, report: &Report<'_>) -> String {
    let events: u64 = report.results.iter().map(|(_, outcome)| outcome.events).sum();
    let median = |error: Option<f64>| error.map_or_else(|| "none".to_owned(), |error| format!("{error:.1} %"));
    let tiles = [
        (median(summary.median_error_pct), "median error of the predictions"),
        (median(summary.hard_median_error_pct), "the same, without ranges and without sums of published figures"),
        (format!("{} of {}", summary.predictions_ok, summary.predictions), "predictions within their tolerance"),
        (format!("{} of {}", summary.ok, summary.compared), "published figures met, fitted ones included"),
        (count((summary.lines - summary.compared) as u64), "figures without a published one to compare with"),
        (count(events.div_ceil(1000)), "thousand events simulated"),
    ];
    let tile = |(value, what): &(String, &str)| format!("<li><b>{value}</b> {what}</li>");
    let tiles: String = tiles.iter().map(tile).collect();
    format!("<h1>The papers' results, simulated</h1>\n<p>{ABOUT}</p>\n<ul class=\"tiles\">{tiles}</ul>\n")
}

/// The lines that miss, before anything else.
fn misses(report: &Report<'_>) -> String {
    let missed: Vec<&Line> = report.lines().filter(|line| line.ok == Some(false)).collect();
    if missed.is_empty() {
        return "<p>No figure misses the published one by more than its tolerance.</p>\n".to_owned();
    }
    let how_many =
        if missed.len() == 1 { "1 figure misses".to_owned() } else { format!("{} figures miss", missed.len()) };
    format!("<h2 id=\"misses\">{how_many}</h2>\n{}", table(&missed, true))
}

fn contents(report: &Report<'_>) -> String {
    let entry = |(experiment, outcome): &(Experiment, Outcome)| {
        let summary = Summary::of(outcome.lines.iter());
        let state = match (summary.compared, summary.misses()) {
            (0, _) => String::new(),
            (compared, 0) => format!(" <span class=\"ok\">{}</span>", if compared == 1 { "ok" } else { "all ok" }),
            (compared, misses) => format!(" <span class=\"miss\">{misses} of {compared} miss</span>"),
        };
        let (id, title) = (escaped(experiment.id), escaped(experiment.title));
        format!("<li><a href=\"#{id}\"><b>{id}</b> {title}</a>{state}</li>")
    };
    let entries: String = report.results.iter().map(entry).collect();
    let machines = if report.platforms.is_empty() { "" } else { "<li><a href=\"#platforms\">The machines</a></li>" };
    format!("<nav aria-label=\"contents\"><ul>{entries}{machines}</ul></nav>\n")
}

fn results(report: &Report<'_>) -> String {
    let section = |(experiment, outcome): &(Experiment, Outcome)| {
        let (id, title) = (escaped(experiment.id), escaped(experiment.title));
        let figures: String = outcome.figures.iter().map(figure).collect();
        let lines: Vec<&Line> = outcome.lines.iter().collect();
        let lines = if lines.is_empty() { String::new() } else { table(&lines, false) };
        format!(
            "<section id=\"{id}\"><h2><b>{id}</b> {title}</h2>\n<div class=\"figures\">{figures}</div>\n\
             {lines}</section>\n"
        )
    };
    report.results.iter().map(section).collect()
}

fn figure(figure: &Figure) -> String {
    let drawing = super::drawn(figure);
    let class = if drawing.width > canvas::NARROW { " class=\"wide\"" } else { "" };
    let (id, title, caption) = (escaped(&figure.id), escaped(&figure.title), escaped(&figure.caption));
    format!(
        "<figure{class}><h3>{title}</h3><div class=\"scroll\">{}</div><figcaption>{caption} \
         <a href=\"{id}.svg\">SVG</a> <a href=\"{id}.csv\">CSV</a></figcaption></figure>\n",
        inline_svg(figure)
    )
}

/// Lines as a table; on a phone each becomes a card, whose cells are named by `data-l`.
fn table(lines: &[&Line], with_id: bool) -> String {
    let id = if with_id { "<th>row</th>" } else { "" };
    let rows: String = lines.iter().map(|line| row(line, with_id)).collect();
    format!(
        "<table class=\"lines\"><thead><tr>{id}<th>what</th><th class=\"r\">paper</th><th class=\"r\">sim</th>\
         <th>unit</th><th class=\"r\">error</th><th class=\"r\">tolerance</th><th>role</th><th>within</th>\
         <th>source</th></tr></thead><tbody>{rows}</tbody></table>\n"
    )
}

fn row(line: &Line, with_id: bool) -> String {
    let number = |name: &str, text: String| format!("<td class=\"r\" data-l=\"{name}\">{text}</td>");
    let word = |name: &str, text: &str| format!("<td data-l=\"{name}\">{}</td>", escaped(text));
    let id = escaped(&line.id);
    let (class, within) = match line.ok {
        Some(true) => ("ok", "✓ ok"),
        Some(false) => ("miss", "✗ miss"),
        None => ("open", "open"),
    };
    let role = match line.role {
        Role::Fitted => "fitted",
        Role::Predicted => "predicted",
    };
    [
        format!("<tr class=\"{class}\">"),
        if with_id { format!("<td data-l=\"row\"><a href=\"#{id}\">{id}</a></td>") } else { String::new() },
        format!("<td class=\"what\">{}<small>{}</small></td>", escaped(&line.what), escaped(&line.conditions)),
        number("paper", line.paper.map_or_else(|| "–".to_owned(), paper)),
        number("sim", short(line.sim)),
        word("unit", &unit(&line.unit)),
        number("error", line.error_pct.map_or_else(|| "–".to_owned(), percent)),
        number("tolerance", line.tolerance_pct.map_or_else(|| "–".to_owned(), |most| format!("{} %", short(most)))),
        word("role", role),
        format!("<td class=\"within\" data-l=\"within\"><span class=\"{class}\">{within}</span></td>"),
        format!("<td class=\"source\" data-l=\"source\">{}</td></tr>", escaped(&line.source)),
    ]
    .concat()
}

/// The published figure; a range as its two ends.
fn paper(paper: Paper) -> String {
    match paper {
        Paper::Value(value) => short(value),
        Paper::Range([low, high]) => format!("{} to {}", short(low), short(high)),
    }
}

/// Every machine: what was fitted to what, and where every other number comes from.
fn platforms(report: &Report<'_>) -> String {
    if report.platforms.is_empty() {
        return String::new();
    }
    let machines: String = report.platforms.iter().map(platform).collect();
    format!(
        "<section id=\"platforms\"><h2>The machines</h2>\n<p>At most four parameters of a machine are fitted, each \
         within the range that is physically plausible. Every other parameter has a source.</p>\n{machines}</section>\n"
    )
}

fn platform(platform: &Platform) -> String {
    let is_fitted = |(_, parameter): &(&str, &Parameter)| matches!(parameter.origin, Origin::Fitted { .. });
    let fitted: String = platform.parameters().filter(is_fitted).map(parameter).collect();
    let given: Vec<String> = platform.parameters().filter(|found| !is_fitted(found)).map(parameter).collect();
    let head = |last: &str| {
        format!(
            "<table class=\"parameters\"><thead><tr><th>parameter</th><th class=\"r\">value</th><th>{last}</th></tr>\
             </thead>"
        )
    };
    let fitted = if fitted.is_empty() {
        "<p>Nothing is fitted.</p>".to_owned()
    } else {
        format!("{}<tbody>{fitted}</tbody></table>", head("fitted to, and plausible range"))
    };
    let how_many = match given.len() {
        1 => "1 parameter with its source".to_owned(),
        many => format!("{many} parameters with their sources"),
    };
    format!(
        "<h3 id=\"{}\">{}</h3><p><code>{}</code>, model <code>{}</code></p>\n{fitted}\n<details>\
         <summary>{how_many}</summary>\
         {}<tbody>{}</tbody></table></details>\n",
        escaped(platform.name()),
        escaped(platform.title()),
        escaped(platform.name()),
        escaped(platform.model()),
        head("source"),
        given.concat()
    )
}

fn parameter((key, parameter): (&str, &Parameter)) -> String {
    let name = unit(&parameter.unit);
    let origin = match &parameter.origin {
        Origin::Source(source) => source.clone(),
        Origin::Fitted { to, range: [low, high] } => {
            format!("{to}; plausible: {} to {} {name}", short(*low), short(*high))
        }
    };
    let (key, value, name) = (escaped(key), short(parameter.value), escaped(&name));
    format!(
        "<tr><td><code>{key}</code></td><td class=\"r\">{value} {name}</td><td class=\"source\">{}</td></tr>",
        escaped(&origin)
    )
}
