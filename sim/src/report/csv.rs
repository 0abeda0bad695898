//! Tables of commas: every figure as the numbers that it is drawn from, and all lines.

use crate::outcome::{Bar, Curve, Drawing, Figure, Line, Mark, Paper, Role, Stripe};

/// A figure's numbers. Curves: a row for each point, simulated or the paper's. Bars: a row for each part. Flows: a row
/// for each stripe.
#[must_use]
pub fn figure(figure: &Figure) -> String {
    match &figure.drawing {
        Drawing::Curves { x, y, curves, marks } => points([&x.label, &y.label], curves, marks),
        Drawing::Bars { y, bars } => parts(&y.label, bars),
        Drawing::Flow { rows, stripes } => flow(rows, stripes),
    }
}

/// All lines under the names of the fields of their records; a range is `low..high`.
pub fn lines<'a>(lines: impl Iterator<Item = &'a Line>) -> String {
    let head =
        ["id", "what", "conditions", "unit", "paper", "sim", "error_pct", "role", "tolerance_pct", "ok", "source"];
    let optional = |value: Option<f64>| value.map(number).unwrap_or_default();
    table(
        &head,
        lines.map(|line| {
            vec![
                line.id.clone(),
                line.what.clone(),
                line.conditions.clone(),
                line.unit.clone(),
                line.paper.map(paper).unwrap_or_default(),
                number(line.sim),
                optional(line.error_pct),
                match line.role {
                    Role::Fitted => "fitted".to_owned(),
                    Role::Predicted => "predicted".to_owned(),
                },
                optional(line.tolerance_pct),
                line.ok.map(|ok| ok.to_string()).unwrap_or_default(),
                line.source.clone(),
            ]
        }),
    )
}

fn points(labels: [&str; 2], curves: &[Curve], marks: &[Mark]) -> String {
    let row = |kind: &str, name: &str, [x, y]: [f64; 2]| vec![kind.to_owned(), name.to_owned(), number(x), number(y)];
    let simulated = curves.iter().flat_map(|curve| curve.points.iter().map(|at| row("sim", &curve.name, *at)));
    let published = marks.iter().map(|mark| row("paper", &mark.label, mark.at));
    table(&["kind", "name", labels[0], labels[1]], simulated.chain(published))
}

fn parts(label: &str, bars: &[Bar]) -> String {
    let row = |kind: &str, bar: &Bar, part: &str, height| {
        vec![kind.to_owned(), bar.name.clone(), part.to_owned(), number(height)]
    };
    let rows = bars.iter().flat_map(|bar| {
        let simulated = bar.parts.iter().map(|(part, height)| row("sim", bar, part, *height));
        simulated.chain(bar.paper.map(|height| row("paper", bar, "", height))).collect::<Vec<_>>()
    });
    table(&["kind", "bar", "part", label], rows)
}

fn flow(rows: &[String], stripes: &[Stripe]) -> String {
    let row = |stripe: &Stripe| {
        vec![
            rows.get(stripe.row).cloned().unwrap_or_default(),
            stripe.message.to_string(),
            number(stripe.start_us),
            number(stripe.end_us),
            stripe.bytes.to_string(),
        ]
    };
    table(&["row", "message", "start_us", "end_us", "bytes"], stripes.iter().map(row))
}

fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let head = head.iter().map(|&cell| cell.to_owned()).collect();
    std::iter::once(head)
        .chain(rows)
        .map(|row| row.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",") + "\n")
        .collect()
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}

/// The shortest text that is read as the same number again.
fn number(value: f64) -> String {
    value.to_string()
}

fn paper(paper: Paper) -> String {
    match paper {
        Paper::Value(value) => number(value),
        Paper::Range([low, high]) => format!("{low}..{high}"),
    }
}
