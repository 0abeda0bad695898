//! `perf lat`, `bw`, `rate` and `fetch`: every case, one after the other, each in turn with its limit.

use super::case::{Case, Test};
use super::floor::Floor;
use super::held::{Held, Missing};
use super::legend;
use super::loss::{self, Lossy};
use super::others;
use super::peer::{Peer, cores};
use super::rounds::{Bench, Measured};
use super::serve;
use super::way::Way;
use crate::args::{Measure, ServeArgs};
use crate::failure::Failure;
use crate::machine::Machine;
use crate::output::{Output, PerfLine, Times, tenths, thousandths};
use crate::progress;
use crate::table::{Table, wrapped};
use crate::units;

/// Measures every case of these options and prints it; or, with `--listen`, is the other end once.
///
/// # Errors
/// If an option cannot be served, or the other end cannot be started or goes away.
pub fn run(test: Test, options: &Measure, output: Output) -> Result<(), Failure> {
    let cases = Case::all(test, options)?;
    loss::check(options)?;
    if let Some(listen) = &options.far.listen {
        return serve_once(options, listen, output);
    }
    let machine = Machine::here();
    let core = cores().first;
    let way = Way::make(&options.across, options.far.peer.as_deref())?;
    let lossy = Lossy::asked(options, &way)?;
    let peer = other_end(options, &way)?;
    let bar = progress::bar(cases.len());
    let floor = Floor::of(&way, core);
    let cipher = floor.explain_cipher(test);
    let of_cipher: &[&str] = if cipher.is_some() { &["cipher"] } else { &[] };
    let headings = [headings(test), of_cipher].concat();
    let (mut table, mut missing, mut shown) = (Table::new(&headings), Missing::default(), Vec::new());
    let mut shares = Vec::new();
    let mut bench = Bench { peer, core, floor, lossy, loss: options.loss };
    for case in cases {
        bar.set_message(format!("{} {}", test.name(), case.size()));
        let result = bench.measure(&case)?;
        let held = missing.or_why(&case, result.held());
        let sealed = missing.or_why(&case, result.cipher());
        let line = line(&result, held.as_ref(), sealed.as_ref(), &machine);
        output.line(&loss::mark(way.mark(line), result.lost))?;
        let of_cipher = sealed.iter().map(|sealed| units::ratio(sealed.ratio)).collect();
        table.row([cells(&result, held.as_ref()), of_cipher].concat());
        shown.push((case, held));
        shares.push(result.others);
        bar.inc(1);
    }
    bench.close()?;
    bar.finish_and_clear();
    let shown: Vec<_> = shown.iter().map(|(case, held)| (case, held.as_ref())).collect();
    let below: String =
        cipher.into_iter().chain(others::told(shares)).map(|text| format!("\n{}", wrapped(&text))).collect();
    output.say(&format!("{}\n\n{table}\n\n{missing}{}{below}", way.head(&machine), legend::of(test, &shown)))
}

/// Is the other end of these options at `listen`, until the first client has gone.
///
/// # Errors
/// If an option cannot be served.
pub fn serve_once(options: &Measure, listen: &str, output: Output) -> Result<(), Failure> {
    Way::make(&options.across, Some(listen))?;
    let (key, insecure) = (options.across.key.clone(), options.across.insecure);
    let args = ServeArgs { listen: listen.to_owned(), once: true, key, insecure, ..ServeArgs::default() };
    serve::run(&args, output)
}

/// The other end that the options name, or one of our own on another core, at the end of this way.
///
/// # Errors
/// If it cannot be reached or started.
pub fn other_end(options: &Measure, way: &Way) -> Result<Peer, Failure> {
    match &options.far.peer {
        Some(address) => Peer::reach(address, way),
        None => Peer::start(cores().second, way),
    }
}

fn line(result: &Measured, held: Option<&Held>, cipher: Option<&Held>, machine: &Machine) -> PerfLine {
    let case = &result.case;
    let quantiles = result.quantiles();
    let msgs_per_s = result.figure().filter(|_| !case.test.is_time());
    let tally = result.tally();
    PerfLine {
        test: case.test.name(),
        policy: case.heeds_policy().then(|| case.policy.to_string()),
        memory: (!case.is_control()).then_some(case.shape.memory),
        size: Some(case.size().0),
        count: Some(result.count()),
        times: quantiles.as_ref().map(Times::from).unwrap_or_default(),
        bytes_per_s: msgs_per_s.map(|rate| (rate * case.size().0 as f64).round()),
        msgs_per_s: msgs_per_s.map(f64::round),
        copies: tally.copies(),
        pulses: tally.pulses(),
        placed_ratio: tally.placed_ratio().filter(|_| case.lands_by_wire()),
        limit: held.map(|held| held.limit.clone()),
        limit_ns: held.map(|held| tenths(held.ns)),
        ratio_to_limit: held.map(|held| thousandths(held.ratio)),
        ratio_min: held.map(|held| thousandths(held.range[0])),
        ratio_max: held.map(|held| thousandths(held.range[1])),
        rounds: Some(result.rounds()),
        cipher: cipher.map(|held| held.limit.clone()),
        cipher_ns: cipher.map(|held| tenths(held.ns)),
        ratio_to_cipher: cipher.map(|held| thousandths(held.ratio)),
        others_share: result.others.map(thousandths),
        machine: machine.clone(),
        ..PerfLine::default()
    }
}

fn headings(test: Test) -> &'static [&'static str] {
    if test.is_time() {
        &["size", "memory", "p50", "p99", "min", "copies", "pulses", "ratio", "limit"]
    } else if test == Test::Rate {
        &["size", "memory", "messages/s", "bandwidth", "copies", "pulses", "ratio", "reference"]
    } else {
        &["size", "memory", "messages/s", "bandwidth", "copies", "pulses", "ratio", "limit"]
    }
}

fn cells(result: &Measured, held: Option<&Held>) -> Vec<String> {
    let case = &result.case;
    let tally = result.tally();
    let memory = if case.is_control() { "-".into() } else { format!("{:?}", case.shape.memory).to_lowercase() };
    let mut cells = vec![case.size().to_string(), memory];
    let quantiles = result.quantiles();
    match (quantiles, result.figure()) {
        (Some(times), _) => cells.extend([times.p50_ns, times.p99_ns, times.min_ns].map(units::time)),
        (None, Some(rate)) => {
            cells.extend([units::rate(rate), units::bandwidth(rate * case.size().0 as f64)]);
        }
        (None, None) => cells.resize(headings(case.test).len() - 4, String::new()),
    }
    cells.push(tally.copies().map_or_else(|| "-".into(), |copies| copies.to_string()));
    cells.push(tally.pulses().map_or_else(|| "-".into(), |pulses| pulses.to_string()));
    cells.push(held.map_or_else(|| "-".into(), |held| units::ratio(held.ratio)));
    cells.push(held.map_or_else(|| "-".into(), |held| limit(case, held)));
    cells
}

/// What a case is held against, in the unit of the case.
fn limit(case: &Case, held: &Held) -> String {
    match case.test {
        Test::Lat | Test::Fetch => units::time(held.ns),
        Test::Bw => units::bandwidth(case.size().0 as f64 / held.ns * 1e9),
        Test::Rate => units::rate(1e9 / held.ns),
    }
}
