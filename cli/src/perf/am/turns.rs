//! Requests and raw messages in turn: both ends of the same measurement, one short round after the other, so that
//! what the machine does besides befalls both.

use clap::{Args, ValueEnum};
use cutthrough::CONTROL_MAX;

use super::ground::{self, Ground, Plan};
use crate::args::{Across, Far, Measure, Memory, seconds};
use crate::clock::Span;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::output::{Output, PerfLine, Times, tenths, thousandths};
use crate::perf::cargo::Tally;
use crate::perf::case::{Slice, Test};
use crate::perf::held::Missing;
use crate::perf::measure::{other_end, serve_once};
use crate::perf::others::{self, Others};
use crate::perf::peer::{Peer, cores};
use crate::perf::seat::Seat;
use crate::perf::way::Way;
use crate::stats::{Quantiles, Samples, median, ratios};
use crate::table::{Table, wrapped};
use crate::units::{self, Size};

/// Rounds of each side.
const ROUNDS: u32 = 10;

/// The common options of `perf am` and `perf rpc`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct Common {
    /// What lies between the two ends.
    #[command(flatten)]
    pub across: Across,

    /// Seconds for which each figure is measured, half of it raw messages [default: 1]
    #[arg(long, value_name = "N", value_parser = seconds)]
    pub seconds: Option<f64>,

    /// How many requests are measured, instead of --seconds; at least one in each of ten rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "seconds")]
    pub count: Option<u64>,

    /// Where the other end is.
    #[command(flatten)]
    pub far: Far,

    /// Requests made before measuring [default: a tenth of the measurement]
    #[arg(long, value_name = "N")]
    pub warmup: Option<u64>,

    /// Seed of everything random, such as the order of pages [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl Common {
    /// The same as options of raw messages.
    #[must_use]
    pub fn measure(&self) -> Measure {
        Measure {
            across: self.across.clone(),
            seconds: self.seconds,
            count: self.count,
            far: self.far.clone(),
            warmup: self.warmup,
            seed: self.seed,
            ..Measure::default()
        }
    }
}

/// The rows that are asked for, or all; each once, because several names of the table may be those of one.
#[must_use]
pub fn wanted<R: ValueEnum + PartialEq>(asked: &[R]) -> Vec<R> {
    let asked = if asked.is_empty() { R::value_variants() } else { asked };
    asked.iter().enumerate().filter(|(at, row)| !asked[..*at].contains(row)).map(|(_, row)| row.clone()).collect()
}

/// A run of `perf am` or `perf rpc`.
#[derive(Debug)]
pub struct Turns<'a> {
    /// The options, and those of raw messages.
    pub options: &'a Common,
    /// See there.
    pub raw: Measure,
    /// The other end.
    pub peer: Peer,
    /// The core of this end.
    pub core: usize,
    /// What lies between the two ends.
    pub way: &'a Way,
    test: &'static str,
    machine: Machine,
    output: Output,
    shown: Vec<[String; 9]>,
    shares: Vec<Option<f64>>,
    /// What is held against nothing.
    pub missing: Missing,
}

/// Runs this as `perf am` or `perf rpc` does; or, with `--listen`, is the other end once.
///
/// # Errors
/// If an option cannot be served, or the other end cannot be started or goes away.
pub fn run(
    test: &'static str,
    options: &Common,
    output: Output,
    explain: impl Fn(&str) -> &'static str,
    rows: impl FnOnce(&mut Turns<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let raw = options.measure();
    // Says what is wrong with the options before anything is started.
    ground::raw(&raw, Test::Lat, 64, Memory::Private)?;
    if let Some(listen) = &options.far.listen {
        return serve_once(&raw, listen, output);
    }
    let way = Way::make(&options.across, options.far.peer.as_deref())?;
    let peer = other_end(&raw, &way)?;
    let (machine, core, missing) = (Machine::here(), cores().first, Missing::default());
    let (shown, shares) = (Vec::new(), Vec::new());
    let mut turns = Turns { options, raw, peer, core, way: &way, test, machine, output, shown, shares, missing };
    rows(&mut turns)?;
    let others = others::told(turns.shares).map(|text| format!("\n{}", wrapped(&text))).unwrap_or_default();
    let legend = legend(&turns.shown, explain);
    let (head, table) = (way.head(&turns.machine), table(turns.shown));
    output.say(&format!("{head}\n\n{table}\n\n{}{legend}{others}", turns.missing))
}

/// How many times as long as what it is held against something takes, if it has this ratio of two times, or of two
/// rates.
fn slower(ratio: f64, is_rate: bool) -> f64 {
    if is_rate { 1.0 / ratio } else { ratio }
}

/// What the rows are that are shown, and what they are held against.
fn legend(rows: &[[String; 9]], explain: impl Fn(&str) -> &'static str) -> String {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for [what, ..] in rows {
        let text = explain(what);
        match found.iter_mut().find(|(other, _)| *other == text) {
            Some((_, names)) if !names.contains(&what.as_str()) => names.push(what),
            Some(_) => {}
            None => found.push((text, vec![what])),
        }
    }
    let each = found.iter().map(|(text, names)| format!("\n{}: {text}", names.join(", ")));
    wrapped(&format!(
        "Against: raw messages between endpoints of the same settings, unless a row says otherwise, measured in turn. \
         Ratio: how many times as long it takes, so that less is better in every row; of a rate, the time of one. The \
         median of the rounds.{}",
        each.collect::<String>()
    ))
}

/// Headings of the table of rows.
const HEADINGS: [&str; 9] = ["what", "size", "p50/mean", "p99", "per s", "bandwidth", "copies", "ratio", "against"];

/// The rows without the columns in which there is nothing.
fn table(rows: Vec<[String; 9]>) -> Table {
    let kept: Vec<usize> = (0..9).filter(|&column| rows.iter().any(|row| row[column] != "-")).collect();
    let mut table = Table::new(&kept.iter().map(|&column| HEADINGS[column]).collect::<Vec<_>>());
    for row in rows {
        table.row(kept.iter().map(|&column| row[column].clone()).collect());
    }
    table
}

impl Turns<'_> {
    /// Where stations are opened.
    pub fn ground(&mut self) -> Ground<'_> {
        Ground { options: &self.raw, peer: &mut self.peer, core: self.core }
    }

    /// Measures raw messages and requests in turn, and prints the row.
    ///
    /// # Errors
    /// If the other end goes away.
    pub fn row(&mut self, plan: &Plan) -> Result<(), Failure> {
        let (row, case, core) = (&plan.row, &plan.case, self.core);
        let length = case.length.part(if matches!(case.length.measure, Span::Time(_)) { 2 * ROUNDS } else { ROUNDS });
        let anew = self.way.is_narrow();
        plan.fits(anew)?;
        let others = Others::watch(&mut self.peer)?;
        let mut station = Seat::take(plan, &mut self.peer, core, anew)?;
        let mut rig = Seat::take(case, &mut self.peer, core, anew)?;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let raw = rig.measure(&mut self.peer, core, case.test, length)?;
            rounds.push((raw, station.measure(&mut self.peer, core, row.test, length)?));
        }
        rig.leave(&mut self.peer)?;
        station.leave(&mut self.peer)?;
        let others = others.share(&mut self.peer)?;
        self.held(plan, &rounds, others)
    }

    /// Prints a row of which this was measured: raw messages, and requests.
    fn held(
        &mut self,
        Plan { row, case, .. }: &Plan,
        rounds: &[(Slice, Slice)],
        others: Option<f64>,
    ) -> Result<(), Failure> {
        let raw: Vec<_> = rounds.iter().map(|(raw, _)| raw.figure(case.test).map(|raw| raw * row.times)).collect();
        let figures: Vec<_> = rounds.iter().map(|(_, own)| own.figure(row.test)).collect();
        let rates: Vec<f64> = rounds.iter().filter_map(|(_, own)| own.msgs_per_s).collect();
        let middle = |figures: &[Option<f64>]| median(&figures.iter().copied().flatten().collect::<Vec<_>>());
        let limit = middle(&raw).map(|raw| if row.test.is_time() { raw } else { 1e9 / raw });
        let held = limit.zip(median(&ratios(&figures, &raw)));
        let mut tally = Tally::default();
        let mut samples = Samples::new();
        for (_, own) in rounds {
            tally.add(&own.tally);
            if let Some(its) = &own.samples {
                samples.add(its);
            }
        }
        self.print(&Figure {
            what: row.what,
            size: case.size().0,
            count: rounds.iter().map(|(_, own)| own.count).sum(),
            quantiles: samples.quantiles(if row.test == Test::Lat { 2.0 } else { 1.0 }),
            per_s: if row.test.is_time() { median(&rates) } else { middle(&figures) },
            copies: tally.copies(),
            held: held.map(|(ns, ratio)| (row.limit.to_owned(), ns, ratio)),
            mean_ns: None,
            others,
        })
    }

    /// Prints a figure.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn print(&mut self, figure: &Figure) -> Result<(), Failure> {
        let mut times = figure.quantiles.as_ref().map(Times::from).unwrap_or_default();
        times.mean_ns = times.mean_ns.or(figure.mean_ns.map(tenths));
        let per_s = figure.per_s.or(figure.mean_ns.map(|ns| 1e9 / ns));
        let limit_ns = figure.held.as_ref().map(|(_, ns, _)| *ns);
        let line = PerfLine {
            test: self.test,
            what: Some(figure.what),
            size: Some(figure.size),
            count: Some(figure.count),
            times,
            bytes_per_s: per_s.map(|rate| (rate * figure.size as f64).round()),
            msgs_per_s: per_s.map(f64::round),
            copies: figure.copies,
            limit: figure.held.as_ref().map(|(limit, ..)| limit.clone()),
            limit_ns: limit_ns.map(tenths),
            ratio_to_limit: figure.held.as_ref().map(|(.., ratio)| thousandths(*ratio)),
            overhead_ns: figure.mean_ns.zip(limit_ns).map(|(mean, limit)| tenths(mean - limit)),
            others_share: figure.others.map(thousandths),
            machine: self.machine.clone(),
            ..PerfLine::default()
        };
        self.output.line(&self.way.mark(line))?;
        self.shares.push(figure.others);
        let dash = || "-".to_owned();
        let time = |ns: Option<f64>| ns.map_or_else(dash, units::time);
        let middle = figure.quantiles.as_ref().map(|times| times.p50_ns).or(figure.mean_ns);
        self.shown.push([
            figure.what.into(),
            Size(figure.size).to_string(),
            time(middle),
            time(figure.quantiles.as_ref().map(|times| times.p99_ns)),
            per_s.map_or_else(dash, units::rate),
            // Of what has no payload the rate says all.
            per_s
                .filter(|_| figure.size > CONTROL_MAX as u64)
                .map_or_else(dash, |rate| units::bandwidth(rate * figure.size as f64)),
            figure.copies.map_or_else(dash, |copies| copies.to_string()),
            figure.held.as_ref().map_or_else(dash, |(.., ratio)| units::ratio(slower(*ratio, figure.is_rate()))),
            figure.held.as_ref().map_or_else(dash, |(_, ns, _)| units::time(*ns)),
        ]);
        Ok(())
    }
}

/// What was found.
#[derive(Debug)]
pub struct Figure {
    /// The name of the row.
    pub what: &'static str,
    /// Bytes of one operation.
    pub size: u64,
    /// Operations that were measured.
    pub count: u64,
    /// Percentiles of their times, if they were measured one by one.
    pub quantiles: Option<Quantiles>,
    /// Operations a second, if they were measured as a stream, or by several threads.
    pub per_s: Option<f64>,
    /// How often a payload was copied.
    pub copies: Option<u32>,
    /// What it is held against, its nanoseconds, and the ratio.
    pub held: Option<(String, f64, f64)>,
    /// Mean time of an operation, if it was one of a batch.
    pub mean_ns: Option<f64>,
    /// Which share of the cores' time other work had meanwhile, if that is known.
    pub others: Option<f64>,
}

impl Figure {
    /// Whether what it is held against is a rate, too.
    fn is_rate(&self) -> bool {
        self.quantiles.is_none() && self.per_s.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(quantiles: Option<Quantiles>, per_s: Option<f64>, mean_ns: Option<f64>) -> Figure {
        let (what, size, count) = ("x", 64, 1);
        Figure { what, size, count, quantiles, per_s, copies: None, held: None, mean_ns, others: None }
    }

    #[test]
    fn a_ratio_above_one_is_slower_whatever_is_measured() {
        let mut samples = Samples::new();
        samples.record(100);
        let times = samples.quantiles(1.0);
        // A stream of a quarter of the rate; calls of many threads, which have times and a rate; pages of a batch.
        let rows = [(figure(None, Some(1e6), None), 0.25), (figure(times, Some(1e6), None), 4.0)];
        for (row, ratio) in rows.into_iter().chain([(figure(None, None, Some(9.0)), 4.0)]) {
            assert_eq!(slower(ratio, row.is_rate()), 4.0, "{row:?}");
        }
    }
}
