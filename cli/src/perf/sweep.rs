//! `perf sweep`: the default policy against every fixed pulse, for every size: what does it cost to tune nothing?

use std::num::NonZeroU64;

use cutthrough::Policy;

use super::case::{Case, Test};
use super::floor::{Floor, LIMIT};
use super::held::{Against, Held, Missing};
use super::legend;
use super::loss::{self, Lossy};
use super::measure::other_end;
use super::others::{self, Others};
use super::peer::{Peer, cores};
use super::seat::Seat;
use super::way::Way;
use crate::args::{Measure, Memory};
use crate::clock::Length;
use crate::failure::Failure;
use crate::hint;
use crate::machine::Machine;
use crate::output::{Output, PerfLine, RegretLine, Times, tenths, thousandths};
use crate::progress;
use crate::stats::median;
use crate::table::{Table, wrapped};
use crate::units::{self, Size};

/// The sizes if none are given.
const SIZES: [u64; 7] = [64, 512, 4 << 10, 8 << 10, 64 << 10, 1 << 20, 4 << 20];

/// The shortest fixed pulse.
const SHORTEST: u64 = 512;
/// What one call to a network takes, with its headers.
const LONGEST_BATCH: u64 = 64 << 10;

/// How often each policy is measured; its time is divided among the rounds.
const ROUNDS: u32 = 15;

/// Slices of the limit of a size, which is measured after it.
const SLICES: u32 = 3;

/// How long each figure is measured if nothing is said.
const SECONDS: f64 = 0.3;

/// Measures every policy for every size, in many short rounds, and prints each and the regret of the default.
///
/// # Errors
/// If an option cannot be served, or the other end cannot be started or goes away.
pub fn run(options: &Measure, output: Output) -> Result<(), Failure> {
    let options = checked(options)?;
    let machine = Machine::here();
    let core = cores().first;
    let cases = Case::all(Test::Lat, &options)?;
    loss::check(&options)?;
    let way = Way::make(&options.across, options.far.peer.as_deref())?;
    let lossy = Lossy::asked(&options, &way)?;
    let mut peer = other_end(&options, &way)?;
    let bar = progress::bar(cases.len() * ROUNDS as usize);
    let (mut floor, mut missing) = (Floor::of(&way, core), Missing::default());
    let mut regrets = Table::new(&["size", "latency", "quickest", "bandwidth", "widest"]);
    let mut figures = Table::new(&["policy", "size", "p50", "bandwidth", "ratio", "limit"]);
    let (mut shown, mut shares) = (Vec::new(), Vec::new());
    for case in cases {
        bar.set_message(case.size().to_string());
        let others = Others::watch(&mut peer)?;
        let run = || sweep(&mut peer, core, &case, way.is_narrow(), || bar.inc(1));
        let (swept, lost) = loss::during(lossy.as_ref(), options.loss, run)?;
        // For all policies, whose lanes are closed: a ring has to have its queue for itself.
        let mut against = Against::new(floor.bar(&case));
        against.round(&mut floor, &mut peer, SLICES, LIMIT / SLICES)?;
        let limit = missing.or_why(&case, against.held(&[Some(1.0)]));
        let share = others.share(&mut peer)?;
        shares.push(share);
        for one in &swept {
            let line = PerfLine { others_share: share.map(thousandths), ..one.line(&machine, limit.as_ref()) };
            output.line(&loss::mark(way.mark(line), lost))?;
            figures.row(one.cells(limit.as_ref()));
        }
        if let Some((line, [by_latency, by_bandwidth])) = regret(&swept) {
            output.line(&line)?;
            regrets.row(vec![
                case.size().to_string(),
                format!("{:.3}", line.latency_ratio),
                by_latency,
                format!("{:.3}", line.bandwidth_ratio),
                by_bandwidth,
            ]);
        }
        shown.push((case, limit));
    }
    floor.close(&mut peer)?;
    bar.finish_and_clear();
    let shown: Vec<_> = shown.iter().map(|(case, limit)| (case, limit.as_ref())).collect();
    let held = legend::of(Test::Lat, &shown);
    let regret = wrapped(
        "Regret of the default: its median over that of the best of the others, round by round. Latency 1.05 or less \
         and bandwidth 0.95 or more is as good as tuned.",
    );
    let others = others::told(shares).map(|text| format!("\n\n{}", wrapped(&text))).unwrap_or_default();
    let head = way.head(&machine);
    output.say(&format!("{head}\n\n{figures}\n\n{missing}{held}\n\n{regret}\n\n{regrets}{others}"))
}

/// The options with the sweep's own defaults.
fn checked(options: &Measure) -> Result<Measure, Failure> {
    if options.policy.is_some() || options.memory.is_some_and(|memory| memory != Memory::Private) {
        return Err(Failure::new(
            "a sweep tries every policy, and only private payloads travel in pulses",
            "leave --policy and --memory away",
        ));
    }
    if options.far.listen.is_some() {
        return Err(Failure::new(
            "a sweep is the measuring end",
            format!("use '{}' for the other", hint::command("perf serve --listen ADDR")),
        ));
    }
    let size = if options.size.is_empty() { SIZES.map(Size).into() } else { options.size.clone() };
    let seconds = options.seconds.or(options.count.is_none().then_some(SECONDS));
    Ok(Measure { size, seconds, ..options.clone() })
}

/// The default, store-and-forward, and every power of two that cuts a message of `bytes` bytes; on a network up to the
/// longest batch, for a longer pulse is the same again. A control message is not cut at all.
fn policies(case: &Case) -> Vec<Policy> {
    let mut policies = vec![Policy::default(), Policy::StoreAndForward];
    let longest = if case.shared { u64::MAX } else { LONGEST_BATCH };
    let shorter = |pulse: &u64| !case.is_control() && *pulse < case.size().0 && *pulse <= longest;
    let pulses = std::iter::successors(Some(SHORTEST), |pulse| pulse.checked_mul(2)).take_while(shorter);
    policies.extend(pulses.filter_map(NonZeroU64::new).map(Policy::Fixed));
    policies
}

/// A policy and its figures, round by round.
struct Swept {
    policy: Policy,
    size: Size,
    latency_ns: Vec<f64>,
    msgs_per_s: Vec<f64>,
}

/// Measures every policy of one size, each with a lane that is open all the time, or `anew` in each round. Who goes
/// first changes from round to round.
fn sweep(peer: &mut Peer, core: usize, case: &Case, anew: bool, done: impl Fn()) -> Result<Vec<Swept>, Failure> {
    let length: Length = case.length.part(ROUNDS);
    let cases: Vec<Case> = policies(case).into_iter().map(|policy| Case { policy, ..case.clone() }).collect();
    let (mut seats, mut swept) = (Vec::new(), Vec::new());
    for case in &cases {
        seats.push(Seat::take(case, peer, core, anew)?);
        swept.push(Swept { policy: case.policy, size: case.size(), latency_ns: Vec::new(), msgs_per_s: Vec::new() });
    }
    for round in 0..ROUNDS as usize {
        for turn in 0..seats.len() {
            let index = (turn + round) % seats.len();
            let (seat, one) = (&mut seats[index], &mut swept[index]);
            let length = seat.length(length);
            seat.turn(peer, core, |_, rig, peer| {
                one.latency_ns.extend(rig.measure_as(peer, core, Test::Lat, length)?.figure(Test::Lat));
                one.msgs_per_s.extend(rig.measure_as(peer, core, Test::Bw, length)?.figure(Test::Bw));
                Ok(())
            })?;
        }
        done();
    }
    seats.into_iter().try_for_each(|seat| seat.leave(peer))?;
    Ok(swept)
}

impl Swept {
    /// Its latency is held against that limit.
    fn line(&self, machine: &Machine, limit: Option<&Held>) -> PerfLine {
        let (rate, latency) = (median(&self.msgs_per_s), median(&self.latency_ns));
        PerfLine {
            test: "sweep",
            policy: Some(self.policy.to_string()),
            size: Some(self.size.0),
            times: Times { p50_ns: latency.map(tenths), ..Times::default() },
            limit: limit.map(|limit| limit.limit.clone()),
            limit_ns: limit.map(|limit| tenths(limit.ns)),
            ratio_to_limit: limit.zip(latency).map(|(limit, latency)| thousandths(latency / limit.ns)),
            bytes_per_s: rate.map(|rate| (rate * self.size.0 as f64).round()),
            msgs_per_s: rate.map(f64::round),
            machine: machine.clone(),
            ..PerfLine::default()
        }
    }

    fn cells(&self, limit: Option<&Held>) -> Vec<String> {
        let bandwidth = |rate: f64| units::bandwidth(rate * self.size.0 as f64);
        let latency = median(&self.latency_ns);
        let nothing = || "-".to_owned();
        vec![
            self.policy.to_string(),
            self.size.to_string(),
            latency.map_or_else(nothing, units::time),
            median(&self.msgs_per_s).map_or_else(nothing, bandwidth),
            limit.zip(latency).map_or_else(nothing, |(limit, latency)| units::ratio(latency / limit.ns)),
            limit.map_or_else(nothing, |limit| units::time(limit.ns)),
        ]
    }
}

/// The regret of the default, which is the first, and the policies that it is held against.
fn regret(swept: &[Swept]) -> Option<(RegretLine, [String; 2])> {
    let (default, fixed) = swept.split_first()?;
    let slower = |a: &&Swept, b: &&Swept| {
        let latency = |one: &Swept| median(&one.latency_ns).unwrap_or(f64::INFINITY);
        latency(a).total_cmp(&latency(b))
    };
    let faster = |a: &&Swept, b: &&Swept| {
        let rate = |one: &Swept| median(&one.msgs_per_s).unwrap_or(0.0);
        rate(a).total_cmp(&rate(b))
    };
    let (quickest, widest) = (fixed.iter().min_by(slower)?, fixed.iter().max_by(faster)?);
    let line = RegretLine {
        test: "regret",
        size: default.size.0,
        latency_ratio: ratio(&default.latency_ns, &quickest.latency_ns)?,
        bandwidth_ratio: ratio(&default.msgs_per_s, &widest.msgs_per_s)?,
    };
    Some((line, [quickest.policy.to_string(), widest.policy.to_string()]))
}

/// The median of the ratios, round by round.
fn ratio(of: &[f64], over: &[f64]) -> Option<f64> {
    let ratios: Vec<f64> = of.iter().zip(over).map(|(of, over)| of / over).collect();
    median(&ratios).map(thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(size: u64) -> Case {
        let options = Measure { size: vec![Size(size)], ..Measure::default() };
        Case::all(Test::Lat, &options).expect("good options").remove(0)
    }

    fn swept(policy: &str, latency_ns: &[f64], msgs_per_s: &[f64]) -> Swept {
        let policy = policy.parse().expect("a policy");
        Swept { policy, size: Size(4096), latency_ns: latency_ns.into(), msgs_per_s: msgs_per_s.into() }
    }

    #[test]
    fn every_pulse_that_cuts_the_message_is_tried() {
        let names = |size| policies(&case(size)).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(4096), ["adaptive", "store-and-forward", "fixed:512", "fixed:1024", "fixed:2048"]);
        assert_eq!(names(64), ["adaptive", "store-and-forward"]);
        assert_eq!(names(512), ["adaptive", "store-and-forward"]);
        let last = |shared| policies(&Case { shared, ..case(1 << 20) }).last().map(ToString::to_string);
        assert_eq!(last(true).as_deref(), Some("fixed:524288"));
        assert_eq!(last(false).as_deref(), Some("fixed:65536"), "no batch is longer");
    }

    #[test]
    fn the_default_is_held_against_the_best_of_the_others_in_each_respect() {
        let all = [
            swept("adaptive", &[10.0, 20.0, 30.0], &[5.0, 5.0, 5.0]),
            swept("fixed:512", &[10.0, 10.0, 10.0], &[1.0, 1.0, 1.0]),
            swept("fixed:1024", &[40.0, 40.0, 40.0], &[4.0, 5.0, 10.0]),
        ];
        let (line, best) = regret(&all).expect("a regret");
        assert_eq!((line.latency_ratio, line.bandwidth_ratio), (2.0, 1.0));
        assert_eq!(best, ["fixed:512", "fixed:1024"]);
    }

    #[test]
    fn what_a_sweep_decides_itself_cannot_be_chosen() {
        let policy = Some(Policy::StoreAndForward);
        assert!(checked(&Measure { policy, ..Measure::default() }).is_err());
        assert!(checked(&Measure { memory: Some(Memory::Pool), ..Measure::default() }).is_err());
        let far = crate::args::Far { listen: Some("shm:x".into()), ..Default::default() };
        assert!(checked(&Measure { far, ..Measure::default() }).is_err());
    }
}
