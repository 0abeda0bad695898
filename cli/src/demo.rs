//! `demo`: two processes, one of which fetches every page of a file from the other, and how long that takes.
//!
//! [`session`] starts the other process and meets it, [`serve`] is what that one does, [`ask`] is what they say to each
//! other, [`source`] says where pages lie, [`fetch`] fetches and checks all of them, [`traced`] looks at one large
//! message, and [`socket`] is the ordinary way that all of it is compared with.

pub mod ask;
pub mod fetch;
pub mod serve;
pub mod session;
pub mod socket;
pub mod source;
pub mod traced;

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cutthrough::Policy;
use serde::Serialize;

use crate::args::DemoArgs;
use crate::failure::Failure;
use crate::file::{self, Loaded};
use crate::hint;
use crate::machine::Machine;
use crate::output::{Output, PerfLine, Times, thousandths};
use crate::perf::others;
use crate::progress;
use crate::stats::Quantiles;
use crate::table::{Table, wrapped};
use crate::timeline::{self, Timeline};
use crate::units::{self, Size};

use fetch::{Budget, Fetched, Places, STREAM, Way};
use session::Server;
use source::PAGE;

/// Fixed pulses that are tried for a page; a longer one would be the whole page.
const PAGE_PULSES: [u64; 3] = [512, 1024, 2048];

/// Fixed pulses that are tried for the stream, beside those.
const STREAM_PULSES: [u64; 4] = [4 << 10, 8 << 10, 16 << 10, 32 << 10];

/// Fixed pulses that are tried for the large message.
const MESSAGE_PULSES: [u64; 5] = [8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];

/// The ways are measured in turn, so many times, so that a disturbance of the machine meets all of them.
const ROUNDS: usize = 3;

/// No further round is begun after this time: the demo ends within 20 s on a slow machine too.
const ROUNDS_UNTIL: Duration = Duration::from_secs(8);

/// How long each policy sends the large message.
const TRACED: Duration = Duration::from_millis(150);

/// The seed of the random order, so that every run fetches in the same one.
const SEED: u64 = 1999;

/// Columns of the timeline where it goes to no terminal.
const COLUMNS: usize = 80;

/// Fewest and most columns of the timeline in a terminal.
const FEWEST_COLUMNS: usize = 60;
const MOST_COLUMNS: usize = 160;

/// Shows it, or serves whoever shows it.
///
/// # Errors
/// If it cannot be done, or a page does not arrive as it was.
pub fn run(args: &DemoArgs, output: Output) -> Result<(), Failure> {
    let path = match &args.file {
        Some(path) => path.clone(),
        None => own_program()?,
    };
    if args.serve { serve::run(&path) } else { show(&path, args.svg.as_deref(), output) }
}

fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::new(format!("cannot find this program: {error}"), "name a file with --file"))
}

fn show(path: &Path, svg: Option<&Path>, output: Output) -> Result<(), Failure> {
    let file = file::load(path)?;
    if let Some(svg) = svg {
        file::writable(svg).map_err(|error| cannot_draw(svg, &error))?;
    }
    let mut server = Server::start(path, file.bytes.len())?;
    output.say(&introduction(path, &file))?;
    let file = file.bytes;

    let bar = progress::bar((ways().len() + STREAM_PULSES.len()) * ROUNDS + 1);
    let others = server.watch();
    let rows = measure(&mut server, &file, &bar)?;
    let others = server.share(&others);
    bar.set_message("one large message");
    let timeline = traced::measure(&mut server, &file, &MESSAGE_PULSES.map(fixed), TRACED)?;
    bar.finish_and_clear();
    drop(server);

    report(&rows, file.len(), others, output)?;
    output.say(&format!("\n{}\n", timeline::text::draw(&timeline, columns(output.columns()))))?;
    if let Some(svg) = svg {
        draw(&timeline, svg)?;
        output.say(&format!("Drawn into {}.\n", svg.display()))?;
    }
    output.say(&next(svg.is_some()))
}

/// Columns of the timeline, given those of the terminal.
fn columns(terminal: Option<usize>) -> usize {
    terminal.map_or(COLUMNS, |columns| columns.clamp(FEWEST_COLUMNS, MOST_COLUMNS))
}

/// What is about to happen.
fn introduction(path: &Path, file: &Loaded) -> String {
    let bytes = file.bytes.len();
    let cut = if file.cut { "the first " } else { "" };
    wrapped(&format!(
        "Two processes. One has a file in memory, the other fetches its pages, one request each, in random order.\n\
         {}: {cut}{}, {} of {}",
        path.display(),
        length(bytes),
        page_count(source::pages(bytes)),
        Size(PAGE as u64)
    )) + "\n"
}

/// A length with three digits or so.
fn length(bytes: usize) -> String {
    match bytes as f64 / 1024.0 {
        kib if kib < 1.0 => format!("{bytes} B"),
        kib if kib < 1024.0 => format!("{kib:.1} KiB"),
        kib => format!("{:.1} MiB", kib / 1024.0),
    }
}

fn page_count(pages: usize) -> String {
    if pages == 1 { "1 page".into() } else { format!("{pages} pages") }
}

/// Every way that pages are fetched, in the order of the table.
fn ways() -> Vec<Way> {
    let pulses = PAGE_PULSES.map(|pulse| Way::Copied(fixed(pulse)));
    let mut ways = vec![Way::Copied(Policy::StoreAndForward)];
    ways.extend(pulses);
    ways.extend([Way::Copied(Policy::default()), Way::Put, Way::ByReference, Way::Socket]);
    ways
}

fn fixed(pulse: u64) -> Policy {
    NonZeroU64::new(pulse).map_or(Policy::StoreAndForward, Policy::Fixed)
}

/// Measures all ways in turn.
fn measure(server: &mut Server, file: &[u8], bar: &indicatif::ProgressBar) -> Result<Vec<Fetched>, Failure> {
    let mut order: Vec<u32> = (0..).take(source::pages(file.len())).collect();
    fastrand::Rng::with_seed(SEED).shuffle(&mut order);
    let mut places = Places::new(file.len())?;
    let pages = ways().into_iter().map(|way| Fetched::new(way, file.len()));
    let streams = STREAM_PULSES.map(|pulse| Fetched::of_stream(Way::Copied(fixed(pulse))));
    let mut rows: Vec<Fetched> = pages.chain(streams).collect();
    let begun = Instant::now();
    for round in 0..ROUNDS {
        if round > 0 && begun.elapsed() > ROUNDS_UNTIL {
            break;
        }
        for row in &mut rows {
            bar.set_message(name(row.way));
            row.measure(server, file, &mut places, &order, budget(round))?;
            bar.inc(1);
        }
    }
    Ok(rows)
}

/// The first round fetches every page; further ones need not.
fn budget(round: usize) -> Budget {
    let every_page = if round == 0 { 1000 } else { 50 };
    Budget {
        every_page: Duration::from_millis(every_page),
        fetches: Duration::from_millis(150),
        stream: Duration::from_millis(80),
    }
}

fn name(way: Way) -> String {
    match way {
        Way::Copied(policy) => policy.to_string(),
        Way::Put => "put".into(),
        Way::ByReference => "by reference".into(),
        Way::Socket => "Unix socket".into(),
    }
}

/// A line of JSON: a `perf` line, and where the pages are kept.
#[derive(Serialize)]
struct Line {
    #[serde(flatten)]
    perf: PerfLine,
    /// `private`, `pool` or `reference`, as `perf --memory`.
    memory: &'static str,
    /// Pages that were fetched and found to be as in the file; absent of a stream alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    checked: Option<usize>,
}

/// Prints the table, and all that was measured as JSON.
fn report(rows: &[Fetched], bytes: usize, others: Option<f64>, output: Output) -> Result<(), Failure> {
    let machine = Machine::here();
    for row in rows {
        let line = line(row, bytes, &machine);
        output.line(&Line { perf: PerfLine { others_share: others.map(thousandths), ..line.perf }, ..line })?;
    }
    output.say(&table(rows))?;
    output.say(&conclusion(rows))?;
    others::told([others]).map_or(Ok(()), |text| output.say(&wrapped(&text)))
}

fn line(row: &Fetched, bytes: usize, machine: &Machine) -> Line {
    let quantiles = row.times.quantiles(1.0);
    let (adapter, policy, memory) = match row.way {
        Way::Copied(policy) => ("shm", Some(policy.to_string()), "private"),
        Way::Put => ("shm", None, "pool"),
        Way::ByReference => ("shm", None, "reference"),
        Way::Socket => ("unix", None, "private"),
    };
    let count = quantiles.map(|quantiles| quantiles.count);
    let pulses = count.filter(|_| row.pulses > 0).map(|count| row.pulses as f64 / count as f64);
    let perf = PerfLine {
        test: if row.pages { "fetch" } else { "bw" },
        adapter: Some(adapter.into()),
        policy,
        size: Some(if row.pages { PAGE } else { STREAM as usize }.min(bytes) as u64),
        count,
        times: quantiles.as_ref().map(Times::from).unwrap_or_default(),
        bytes_per_s: row.bytes_per_s(),
        copies: row.pages.then_some(row.copies),
        pulses: pulses.map(|pulses| (pulses * 10.0).round() / 10.0),
        machine: machine.clone(),
        ..PerfLine::default()
    };
    Line { perf, memory, checked: row.pages.then(|| checked(row)) }
}

fn checked(row: &Fetched) -> usize {
    row.checked.iter().filter(|&&page| page).count()
}

fn table(rows: &[Fetched]) -> String {
    let mut table = Table::new(&["", "fetch p50", "p99", "stream", "copies"]);
    let (fixed, others): (Vec<&Fetched>, Vec<&Fetched>) = rows.iter().partition(|row| pulse(row).is_some());
    for (index, row) in others.into_iter().enumerate() {
        if index == 1
            && let Some((page, stream)) = best(&fixed)
        {
            table.row(cells(best_label(page, stream), page, stream));
        }
        table.row(cells(label(row.way), row, row));
    }
    table.to_string()
}

/// A row of the table: of one way for the pages, and one for the stream.
fn cells(label: String, page: &Fetched, stream: &Fetched) -> Vec<String> {
    let time = |of: fn(&Quantiles) -> f64| {
        page.times.quantiles(1.0).map_or_else(|| "-".into(), |quantiles| units::time(of(&quantiles)))
    };
    vec![
        label,
        time(|quantiles| quantiles.p50_ns),
        time(|quantiles| quantiles.p99_ns),
        stream.bytes_per_s().map_or_else(|| "-".into(), units::bandwidth),
        page.copies.to_string(),
    ]
}

/// The fixed pulse of a way, if it has one.
fn pulse(row: &Fetched) -> Option<u64> {
    if let Way::Copied(Policy::Fixed(pulse)) = row.way { Some(pulse.get()) } else { None }
}

/// Of fixed pulses the one with the least median for a page, and the one with the widest stream.
fn best<'r>(fixed: &[&'r Fetched]) -> Option<(&'r Fetched, &'r Fetched)> {
    let median = |row: &Fetched| row.times.quantiles(1.0).map_or(f64::INFINITY, |quantiles| quantiles.p50_ns);
    let width = |row: &Fetched| row.bytes_per_s().unwrap_or_default();
    let page = fixed.iter().filter(|row| row.pages).min_by(|a, b| median(a).total_cmp(&median(b)))?;
    let stream = fixed.iter().max_by(|a, b| width(a).total_cmp(&width(b)))?;
    Some((page, stream))
}

fn best_label(page: &Fetched, stream: &Fetched) -> String {
    let mut pulses: Vec<String> = [page, stream].into_iter().filter_map(pulse).map(|of| Size(of).to_string()).collect();
    pulses.dedup();
    format!("best fixed pulse ({})", pulses.join(", "))
}

fn label(way: Way) -> String {
    match way {
        Way::Copied(policy @ Policy::Adaptive { .. }) => format!("{policy} (the default)"),
        way => name(way),
    }
}

/// What the table says, and whether every byte was right.
fn conclusion(rows: &[Fetched]) -> String {
    let pages = rows.first().map_or(0, |row| row.checked.len());
    let fewest = rows.iter().filter(|row| row.pages).map(checked).min().unwrap_or_default();
    let which = match fewest {
        1 if pages == 1 => "The one page".into(),
        all if all == pages => format!("All {pages} pages"),
        some => format!("At least {some} of {}", page_count(pages)),
    };
    wrapped(&format!(
        "\n{which} came in every way, and every byte is as in the file.\n\
         fetch: request and page, until it is in its place. stream: the file in messages of {}.\n\
         The first three copy from private to private memory in pulses; of the fixed ones, the best for a page and the \
         best for the stream are shown. put: straight into the page that the request \
         names. by reference: the page itself, which both processes see; nothing moves. Unix socket: the ordinary way, \
         to compare with, by write and read of a stream socket; both processes sleep in the kernel while they wait.",
        Size(STREAM.into())
    ))
}

fn draw(timeline: &Timeline, svg: &Path) -> Result<(), Failure> {
    std::fs::write(svg, timeline::svg::draw(timeline)).map_err(|error| cannot_draw(svg, &error))
}

fn cannot_draw(svg: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write {}: {error}", svg.display()), "name another file with --svg")
}

/// What to try next.
fn next(drawn: bool) -> String {
    let all = [
        ("demo --svg demo.svg", "the timeline as a picture"),
        ("perf lat", "latency, against the machine"),
        ("perf sweep", "the default and all fixed pulses"),
        ("stat", "counters of running endpoints"),
    ];
    let lines = all.map(|(words, what)| (hint::command(words), what));
    let widest = lines.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    let lines = lines.iter().skip(usize::from(drawn)).map(|(command, what)| format!("  {command:<widest$}  {what}"));
    format!("Try next:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed_row(pages: bool, pulse: u64, ns: u64, bytes_per_s: f64) -> Fetched {
        let way = Way::Copied(fixed(pulse));
        let mut row = if pages { Fetched::new(way, 1) } else { Fetched::of_stream(way) };
        if pages {
            row.times.record_duration(Duration::from_nanos(ns));
        }
        row.streams.push(bytes_per_s);
        row
    }

    #[test]
    fn of_fixed_pulses_the_best_for_a_page_and_the_best_for_the_stream_are_shown() {
        let rows = |widest| {
            [
                fixed_row(true, 512, 900, 1e9),
                fixed_row(true, 1024, 700, 2e9),
                fixed_row(true, 2048, 800, widest),
                fixed_row(false, 8 << 10, 0, 9e9),
                fixed_row(false, 16 << 10, 0, 8e9),
            ]
        };
        let shown = |rows: &[Fetched]| {
            let (page, stream) = best(&rows.iter().collect::<Vec<_>>()).expect("there are some");
            cells(best_label(page, stream), page, stream)
        };
        assert_eq!(shown(&rows(3e9)), ["best fixed pulse (1 KiB, 8 KiB)", "700 ns", "700 ns", "9.00 GB/s", "0"]);
        assert_eq!(shown(&rows(9.5e9))[0], "best fixed pulse (1 KiB, 2 KiB)");
        assert_eq!(shown(&rows(3e9)[..2])[0], "best fixed pulse (1 KiB)");
    }

    #[test]
    fn the_timeline_is_as_wide_as_the_terminal_within_reason() {
        assert_eq!([None, Some(1), Some(60), Some(123), Some(400)].map(columns), [80, 60, 60, 123, 160]);
    }
}
