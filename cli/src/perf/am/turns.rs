//! Requests and raw messages in turn: both ends of the same measurement, one short round after the other, so that
//! what the machine does besides befalls both.

use clap::{Args, ValueEnum};
use cutthrough::Channel;
use cutthrough::am::{CallError, Event, Node, Reply};

use super::station::LEAVE;
use crate::args::{Across, Far, Measure, Memory, seconds};
use crate::clock::{Length, Span};
use crate::failure::Failure;
use crate::machine::Machine;
use crate::output::{Output, PerfLine, Times, tenths, thousandths};
use crate::perf::ask::Setup;
use crate::perf::cargo::Tally;
use crate::perf::case::{Case, Rig, Slice, Test};
use crate::perf::held::Missing;
use crate::perf::lane::{LaneError, PATIENCE, on_core};
use crate::perf::measure::{other_end, serve_once};
use crate::perf::peer::{Peer, cores};
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
    /// The options of raw messages of this size.
    fn raw(&self, bytes: u64, memory: Memory) -> Measure {
        Measure {
            across: self.across.clone(),
            size: vec![Size(bytes)],
            seconds: self.seconds,
            count: self.count,
            far: self.far.clone(),
            memory: Some(memory),
            warmup: self.warmup,
            seed: self.seed,
            ..Measure::default()
        }
    }

    /// The raw messages of this test and size.
    ///
    /// # Errors
    /// If an option cannot be served.
    pub fn case(&self, test: Test, bytes: u64, memory: Memory) -> Result<Case, Failure> {
        let mut cases = Case::all(test, &self.raw(bytes, memory))?;
        cases.pop().ok_or_else(|| Failure::new("no size", "give --size of 1 or more"))
    }
}

/// The rows that are asked for, or all; each once, because several names of the table may be those of one.
#[must_use]
pub fn wanted<R: ValueEnum + PartialEq>(asked: &[R]) -> Vec<R> {
    let asked = if asked.is_empty() { R::value_variants() } else { asked };
    asked.iter().enumerate().filter(|(at, row)| !asked[..*at].contains(row)).map(|(_, row)| row.clone()).collect()
}

/// What a row says.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name of the row.
    pub what: &'static str,
    /// What is measured of both sides.
    pub test: Test,
    /// The name of what it is held against.
    pub limit: &'static str,
    /// Raw figures in one of the row: 2 if a whole operation is held against half round trips.
    pub times: f64,
}

/// A client of a station.
#[derive(Debug)]
pub struct Side {
    /// The node.
    pub node: Node,
    /// Its channel to the station.
    pub channel: Channel,
    /// The station's number.
    pub number: u32,
    /// What the receipts said.
    pub tally: Tally,
}

impl Side {
    /// The next reply; spins for it.
    ///
    /// # Errors
    /// [`LaneError`], if a request has failed instead.
    #[inline]
    pub fn reply(&mut self) -> Result<Reply, LaneError> {
        loop {
            if let Some(reply) = self.look()? {
                return Ok(reply);
            }
        }
    }

    /// Looks once for a reply.
    ///
    /// # Errors
    /// As [`Side::reply`].
    #[inline]
    pub fn look(&mut self) -> Result<Option<Reply>, LaneError> {
        match self.node.poll() {
            None => Ok(None),
            Some(Event::Replied(reply)) => Ok(Some(reply)),
            Some(Event::Failed(failed)) => Err(failed.error.into()),
            Some(Event::Closed(_, why)) => Err(CallError::Closed(why).into()),
            Some(Event::Opened(_) | Event::Connected(..)) => Ok(None),
        }
    }

    /// Asks for something that may take a while.
    ///
    /// # Errors
    /// [`LaneError`].
    pub fn call(&mut self, handler: u16, words: &[u32]) -> Result<Reply, LaneError> {
        Ok(self.node.call(self.channel, handler, words, PATIENCE).map_err(CallError::from)?)
    }

    /// Ends the attendance of the other end.
    fn leave(&mut self) -> Result<(), LaneError> {
        self.call(LEAVE, &[]).map(drop)
    }
}

/// A run of `perf am` or `perf rpc`.
#[derive(Debug)]
pub struct Turns<'a> {
    /// The options.
    pub options: &'a Common,
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
    // Says what is wrong with the options before anything is started.
    options.case(Test::Lat, 64, Memory::Private)?;
    let raw = options.raw(64, Memory::Private);
    if let Some(listen) = &options.far.listen {
        return serve_once(&raw, listen, output);
    }
    let way = Way::make(&options.across, options.far.peer.as_deref())?;
    let peer = other_end(&raw, &way)?;
    let (machine, core, missing) = (Machine::here(), cores().first, Missing::default());
    let mut turns = Turns { options, peer, core, way: &way, test, machine, output, shown: Vec::new(), missing };
    rows(&mut turns)?;
    let legend = legend(&turns.shown, explain);
    let (head, table) = (way.head(&turns.machine), table(turns.shown));
    output.say(&format!("{head}\n\n{table}\n\n{}{legend}", turns.missing))
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
        "Measured in turn with raw messages between endpoints of the same settings. Ratio: over the limit, the median \
         of the rounds.{}",
        each.collect::<String>()
    ))
}

/// Headings of the table of rows.
const HEADINGS: [&str; 9] = ["what", "size", "p50/mean", "p99", "per s", "bandwidth", "copies", "ratio", "limit"];

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
    /// Opens a station for payloads of up to so many bytes.
    ///
    /// # Errors
    /// If either end cannot.
    pub fn station(&mut self, bytes: u64) -> Result<Side, Failure> {
        let setup = self.setup(bytes)?;
        let (node, channel, number) = self.peer.station(&setup)?;
        let mut side = Side { node, channel, number, tally: Tally::default() };
        side.leave()?;
        Ok(side)
    }

    /// The settings of a station, and of what talks to it.
    ///
    /// # Errors
    /// If an option cannot be served.
    pub fn setup(&self, bytes: u64) -> Result<Setup, Failure> {
        Ok(self.options.case(Test::Bw, bytes, Memory::Private)?.setup())
    }

    /// Closes a station.
    ///
    /// # Errors
    /// If the other end has gone.
    pub fn close(&mut self, side: Side) -> Result<(), Failure> {
        let number = side.number;
        drop(side);
        self.peer.dismiss(number)
    }

    /// Runs this on our core while the other end attends.
    ///
    /// # Errors
    /// If the other end goes away.
    pub fn attended<R: Send>(
        &mut self,
        side: &mut Side,
        run: impl FnOnce(&mut Side) -> Result<R, LaneError> + Send,
    ) -> Result<R, Failure> {
        self.peer.attend(side.number)?;
        on_core(self.core, || {
            let result = run(side)?;
            side.leave()?;
            Ok(result)
        })
    }

    /// Measures raw messages and requests in turn, and prints the row.
    ///
    /// # Errors
    /// If the other end goes away.
    pub fn row(
        &mut self,
        row: &Row,
        case: &Case,
        side: &mut Side,
        mut own: impl FnMut(&mut Side, Length) -> Result<Slice, LaneError> + Send,
    ) -> Result<(), Failure> {
        let length = case.length.part(if matches!(case.length.measure, Span::Time(_)) { 2 * ROUNDS } else { ROUNDS });
        let mut rig = Rig::open(&mut self.peer, Case { length, ..case.clone() })?;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let raw = rig.measure(&mut self.peer, self.core)?;
            let own = self.attended(side, |side| own(side, length))?;
            rounds.push((raw, own));
        }
        rig.close(&mut self.peer)?;
        let raw: Vec<_> = rounds.iter().map(|(raw, _)| raw.figure(case.test).map(|raw| raw * row.times)).collect();
        let figures: Vec<_> = rounds.iter().map(|(_, own)| own.figure(row.test)).collect();
        let rates: Vec<f64> = rounds.iter().filter_map(|(_, own)| own.msgs_per_s).collect();
        let middle = |figures: &[Option<f64>]| median(&figures.iter().copied().flatten().collect::<Vec<_>>());
        let limit = middle(&raw).map(|raw| if row.test.is_time() { raw } else { 1e9 / raw });
        let held = limit.zip(median(&ratios(&figures, &raw)));
        let mut tally = Tally::default();
        let mut samples = Samples::new();
        for (_, own) in &rounds {
            tally.add(&own.tally);
            if let Some(its) = &own.samples {
                samples.add(its);
            }
        }
        let figure = Figure {
            what: row.what,
            size: case.size().0,
            count: rounds.iter().map(|(_, own)| own.count).sum(),
            quantiles: samples.quantiles(if row.test == Test::Lat { 2.0 } else { 1.0 }),
            per_s: if row.test.is_time() { median(&rates) } else { middle(&figures) },
            copies: tally.copies(),
            held: held.map(|(ns, ratio)| (row.limit.to_owned(), ns, ratio)),
            mean_ns: None,
        };
        self.print(&figure)
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
            machine: self.machine.clone(),
            ..PerfLine::default()
        };
        self.output.line(&self.way.mark(line))?;
        let dash = || "-".to_owned();
        let time = |ns: Option<f64>| ns.map_or_else(dash, units::time);
        let middle = figure.quantiles.as_ref().map(|times| times.p50_ns).or(figure.mean_ns);
        self.shown.push([
            figure.what.into(),
            Size(figure.size).to_string(),
            time(middle),
            time(figure.quantiles.as_ref().map(|times| times.p99_ns)),
            per_s.map_or_else(dash, units::rate),
            per_s.map_or_else(dash, |rate| units::bandwidth(rate * figure.size as f64)),
            figure.copies.map_or_else(dash, |copies| copies.to_string()),
            figure.held.as_ref().map_or_else(dash, |(.., ratio)| units::ratio(*ratio)),
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
    pub copies: Option<u8>,
    /// What it is held against, its nanoseconds, and the ratio.
    pub held: Option<(String, f64, f64)>,
    /// Mean time of an operation, if it was one of a batch.
    pub mean_ns: Option<f64>,
}
