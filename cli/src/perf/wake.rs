//! `perf wake`: from the sending of a message until a receiver that slept in `wait` has it.

use std::time::Duration;

use super::ask::{self, Answer, Job, LAST, MORE};
use super::case::{Case, Test};
use super::lane::{Lane, LaneError, on_core};
use super::limits::{futex_wake, futex_wake_rested, rest};
use super::peer::{Peer, cores};
use crate::args::{Measure, WakeArgs};
use crate::failure::Failure;
use crate::machine::Machine;
use crate::output::{Output, PerfLine, Times, tenths, thousandths};
use crate::stats::{Quantiles, Samples};
use crate::table::Table;
use crate::units;

/// How long the futex is measured.
const SHORT: Duration = Duration::from_millis(300);

/// Measures wake-ups and prints them with the futex's.
///
/// # Errors
/// If the other end cannot be started or goes away, or the output cannot be written.
pub fn run(args: &WakeArgs, output: Output) -> Result<(), Failure> {
    let core = cores().first;
    let mut peer = Peer::start(cores().second)?;
    let cases = Case::all(Test::Lat, &Measure::default())?;
    let setup = cases.first().map(Case::setup).ok_or(LaneError::Unexpected)?;
    let mut lane = peer.lane(&setup)?;
    peer.begin(&mut lane, Job::Wake)?;
    let samples = on_core(core, || wake_all(&mut lane, args.count))?;
    let limit = futex_wake(SHORT).ok();
    println!("rested {:?}", futex_wake_rested(SHORT));
    let machine = Machine::here();
    if let Some(times) = samples.quantiles(1.0) {
        print(&times, limit.map(|limit| limit.p50_ns), &machine, output)?;
    }
    Ok(())
}

/// Wakes the other end so often, each time after a rest. Both ends read the same clock, so each way is a sample.
fn wake_all(lane: &mut Lane, count: u64) -> Result<Samples, LaneError> {
    let mut samples = Samples::new();
    for left in (0..count).rev() {
        rest();
        let sent = cutthrough::now().as_nanos();
        lane.tell(&[if left == 0 { LAST } else { MORE }])?;
        match ask::read(lane.hear()?.control()) {
            Some(Answer::At(woken)) => samples.record(woken.saturating_sub(sent)),
            _ => return Err(LaneError::Unexpected),
        }
    }
    Ok(samples)
}

fn print(times: &Quantiles, limit_ns: Option<f64>, machine: &Machine, output: Output) -> Result<(), Failure> {
    let ratio = limit_ns.map(|limit| times.p50_ns / limit);
    output.line(&PerfLine {
        test: "wake",
        adapter: Some("shm".into()),
        count: Some(times.count),
        times: Times::from(times),
        limit: limit_ns.map(|_| "futex_wake".into()),
        limit_ns: limit_ns.map(tenths),
        ratio_to_limit: ratio.map(thousandths),
        machine: machine.clone(),
        ..PerfLine::default()
    })?;
    let mut table = Table::new(&["test", "p50", "p99", "min", "futex_wake", "ratio"]);
    let optional = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    table.row(vec![
        "wake".into(),
        units::time(times.p50_ns),
        units::time(times.p99_ns),
        units::time(times.min_ns),
        optional(limit_ns.map(units::time)),
        optional(ratio.map(|ratio| format!("{ratio:.2}"))),
    ]);
    output.say(&format!(
        "{machine}\n\n{table}\n\nFrom the sending until the receiver, asleep in wait() on another core, has it."
    ))
}
