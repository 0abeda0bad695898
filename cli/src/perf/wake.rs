//! `perf wake`: from the sending of a message until a receiver that slept in `wait` has it.

use std::time::{Duration, Instant};

use super::ask::{self, Answer, Job, LAST, MORE};
use super::case::{Case, Test};
use super::floor::Floor;
use super::lane::{Lane, LaneError, on_core};
use super::limits::{Limit, Wire, futex_wake, futex_wake_rested, rest};
use super::others::{self, Others};
use super::peer::{Peer, cores};
use super::way::Way;
use crate::args::{Adapter, Measure, WakeArgs};
use crate::clock::Span;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::output::{Output, PerfLine, Times, tenths, thousandths};
use crate::progress;
use crate::stats::{Quantiles, Samples, median};
use crate::table::{Table, wrapped};
use crate::units::{self, Size};

/// Wake-ups and limits are measured in turn, so often, because machines drift.
const ROUNDS: u32 = 10;

/// How long each limit is measured in a round.
const SHORT: Duration = Duration::from_millis(50);

/// Medians of the limits, round by round.
#[derive(Default)]
struct Limits {
    futex_wake: Vec<f64>,
    futex_wake_rested: Vec<f64>,
    /// A bare ring or socket of the adapter's, and which limit that is.
    bare: Option<(Limit, Vec<f64>)>,
}

impl Limits {
    /// Those of what this adapter's receivers sleep on.
    fn of(adapter: Adapter) -> Self {
        let bare = match adapter {
            Adapter::Udp => Some(Limit::UdpWakeRested),
            Adapter::Packet => Some(Limit::PacketWakeRested),
            Adapter::Xdp => Some(Limit::XdpWakeRested),
            _ => None,
        };
        Self { bare: bare.map(|limit| (limit, Vec::new())), ..Self::default() }
    }

    /// Measures each of them for a while. What this machine cannot show is left out.
    fn round(&mut self, wire: &Wire) {
        self.futex_wake.extend(futex_wake(SHORT).map(|limit| limit.p50_ns).ok());
        self.futex_wake_rested.extend(futex_wake_rested(SHORT).map(|limit| limit.p50_ns).ok());
        if let Some((limit, medians)) = &mut self.bare {
            medians.extend(limit.measure(wire, Size(0), SHORT).and_then(|figure| figure.p50_ns()).ok());
        }
    }
}

/// Measures wake-ups and prints them with the futex's.
///
/// # Errors
/// If the other end cannot be started or goes away, or the output cannot be written.
pub fn run(args: &WakeArgs, output: Output) -> Result<(), Failure> {
    let core = cores().first;
    let cases = Case::all(Test::Lat, &Measure { across: args.across.clone(), ..Measure::default() })?;
    let way = Way::own(&args.across)?;
    let mut peer = Peer::start(cores().second, &way)?;
    let setup = cases.first().map(Case::setup).ok_or(LaneError::Unexpected)?;
    let (mut samples, mut limits) = (Samples::new(), Limits::of(way.adapter));
    // Rings on the same interface would be in each other's way.
    let is_alone = Floor::of(&way, core).is_alone();
    let mut lane = None;
    let bar = progress::bar(ROUNDS as usize);
    let others = Others::watch(&mut peer)?;
    for round in 0..u64::from(ROUNDS) {
        let count = args.count * (round + 1) / u64::from(ROUNDS) - args.count * round / u64::from(ROUNDS);
        let time = args.seconds.map(|seconds| Duration::from_secs_f64(seconds) / ROUNDS);
        let span = time.map_or(Span::Count(count), Span::Time);
        if span != Span::Count(0) {
            let mut open = lane.take().map_or_else(|| peer.lane(&setup), Ok)?;
            peer.begin(&mut open, Job::Wake)?;
            on_core(core, || wake_all(&mut open, span, &mut samples))?;
            if is_alone {
                peer.close(open)?;
                // Who answers this has closed it, too.
                peer.cpu_time()?;
            } else {
                lane = Some(open);
            }
        }
        limits.round(&way.wire);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let others = others.share(&mut peer)?;
    samples.quantiles(1.0).map_or(Ok(()), |times| print(&times, &limits, others, &way, output))
}

/// Wakes the other end so often or for so long, each time after a rest. Both ends read the same clock, so each way is a
/// sample.
fn wake_all(lane: &mut Lane, span: Span, samples: &mut Samples) -> Result<(), LaneError> {
    let begun = Instant::now();
    for count in 1.. {
        rest();
        let is_last = span.over(begun.elapsed(), count);
        let sent = cutthrough::now().as_nanos();
        lane.tell(&[if is_last { LAST } else { MORE }])?;
        match ask::read(lane.hear()?.control()) {
            Some(Answer::At(woken)) => samples.record(woken.saturating_sub(sent)),
            _ => return Err(LaneError::Unexpected),
        }
        if is_last {
            break;
        }
    }
    Ok(())
}

/// A line for each limit that it is held against, or one without if this machine cannot show any.
fn print(times: &Quantiles, limits: &Limits, others: Option<f64>, way: &Way, output: Output) -> Result<(), Failure> {
    let machine = Machine::here();
    let line = way.mark(PerfLine {
        test: "wake",
        count: Some(times.count),
        times: Times::from(times),
        others_share: others.map(thousandths),
        machine: machine.clone(),
        ..PerfLine::default()
    });
    let mut table = Table::new(&["", "p50", "p99", "min", "ratio"]);
    table.row(vec![
        "message to a sleeper".into(),
        units::time(times.p50_ns),
        units::time(times.p99_ns),
        units::time(times.min_ns),
    ]);
    let mut named = vec![(Limit::FutexWake, &limits.futex_wake), (Limit::FutexWakeRested, &limits.futex_wake_rested)];
    named.extend(limits.bare.as_ref().map(|(limit, medians)| (*limit, medians)));
    let held: Vec<(String, f64)> = named.iter().filter_map(|(limit, ns)| Some((limit.name(), median(ns)?))).collect();
    if held.is_empty() {
        output.line(&line)?;
    }
    for (limit, ns) in held {
        let ratio = times.p50_ns / ns;
        output.line(&PerfLine {
            limit: Some(limit.clone()),
            limit_ns: Some(tenths(ns)),
            ratio_to_limit: Some(thousandths(ratio)),
            ..line.clone()
        })?;
        table.row(vec![limit, units::time(ns), String::new(), String::new(), units::ratio(ratio)]);
    }
    let cores = cores();
    let place = if cores.first == cores.second { "the same core" } else { "another core" };
    let mut legend = format!("From the sending until the receiver, asleep in wait() on {place}, has the message.");
    if !limits.futex_wake.is_empty() {
        legend.push_str(" Ratio: p50 over that of the limit, measured in turn with it.");
        legend.push_str("\nfutex_wake: two threads that wake each other without a rest.");
    }
    if !limits.futex_wake_rested.is_empty() {
        legend.push_str(
            "\nfutex_wake_rested: one that has slept as long as the receiver here, which takes longer on an idle core.",
        );
    }
    if let Some((limit, _)) = limits.bare.as_ref().filter(|(_, medians)| !medians.is_empty()) {
        let sleeper = match limit {
            Limit::UdpWakeRested => "recv(2) on a bare socket, by one datagram the same way",
            _ => "poll(2) on a bare ring of this kind, by one frame across the same pair",
        };
        let text = format!("\n{}: {sleeper}, after the same rest.", limit.name());
        legend.push_str(&text);
    }
    legend.extend(others::told([others]).map(|text| format!("\n{text}")));
    output.say(&format!("{}\n\n{table}\n\n{}", way.head(&machine), wrapped(&legend)))
}
