//! `perf compare`: two sets of options in turn, many short rounds, and their ratio. Machines drift; a ratio taken
//! within a round drifts less.

use super::case::{Case, Rig, Test};
use super::loss::{self, Lossy};
use super::measure::other_end;
use super::peer::{Peer, cores};
use super::way::Way;
use crate::args::{Across, CompareArgs, CompareTest, Measure};
use crate::failure::Failure;
use crate::machine::Machine;
use crate::output::{CompareLine, Output, thousandths};
use crate::progress;
use crate::stats::quantile;
use crate::table::{Table, hanging};

/// How often each side is measured; its time is divided among the rounds.
const ROUNDS: u32 = 31;

/// Measures A and B in turn, size by size, and prints the ratios.
///
/// # Errors
/// If an option cannot be served, or the other end cannot be started or goes away.
pub fn run(args: &CompareArgs, output: Output) -> Result<(), Failure> {
    let (a, b) = args.sides()?;
    check(args, [&a, &b])?;
    loss::check(&a)?;
    loss::check(&b)?;
    let test = test(args.test);
    // Both sides go the same way: where one asks for loss, the other has a program that loses nothing.
    let (lossy, losses) = (a.loss.is_some() || b.loss.is_some(), [a.loss, b.loss].map(Option::unwrap_or_default));
    let pairs = pairs(Case::all(test, &a)?, Case::all(test, &b)?)?;
    let core = cores().first;
    let way = Way::make(&args.common.across, args.common.far.peer.as_deref())?;
    let lossy = way.wire.pair().filter(|_| lossy).map(Lossy::between).transpose()?;
    let lose = |side: usize| lossy.iter().for_each(|lossy| lossy.set(losses[side]));
    let mut peer = other_end(&args.common, &way)?;
    let bar = progress::bar(pairs.len() * ROUNDS as usize);
    let mut table = Table::new(&["size", "A / B", "10 %", "90 %"]);
    for (a, b) in pairs {
        let sizes = if a.size() == b.size() { a.size().to_string() } else { format!("{}, {}", a.size(), b.size()) };
        let size = a.size();
        bar.set_message(sizes.clone());
        let ratios = ratios(&mut peer, core, [a, b], lose, || bar.inc(1))?;
        let at = |share| quantile(&ratios, share).map(thousandths).unwrap_or_default();
        let line = CompareLine {
            test: "compare",
            a: args.a.clone(),
            b: args.b.clone(),
            size: size.0,
            ratio_p50: at(0.5),
            ratio_lo: at(0.1),
            ratio_hi: at(0.9),
            rounds: ROUNDS,
        };
        output.line(&line)?;
        let ratio = |ratio: f64| format!("{ratio:.3}");
        table.row(vec![sizes, ratio(line.ratio_p50), ratio(line.ratio_lo), ratio(line.ratio_hi)]);
    }
    bar.finish_and_clear();
    let what = if test.is_time() { "times: below 1, A is faster" } else { "rates: above 1, A is faster" };
    output.say(&format!(
        "{}\n\nA: {}\nB: {}\n\n{table}\n\n{} of {} rounds; ratio of {what}.",
        way.head(&Machine::here()),
        options(&args.a),
        options(&args.b),
        test.name(),
        ROUNDS
    ))
}

/// The options of one side, as people read them.
fn options(of: &str) -> String {
    if of.trim().is_empty() { "no options of its own".into() } else { hanging(of.trim(), 3) }
}

fn test(test: CompareTest) -> Test {
    match test {
        CompareTest::Lat => Test::Lat,
        CompareTest::Bw => Test::Bw,
        CompareTest::Rate => Test::Rate,
        CompareTest::Fetch => Test::Fetch,
    }
}

/// Both sides have to have the same other end, or they cannot be measured in turn.
fn check(args: &CompareArgs, sides: [&Measure; 2]) -> Result<(), Failure> {
    let common = &args.common;
    // Each lane has endpoints, and so a placement and rings, of its own.
    let across = |side: &Measure| Across {
        placement: common.across.placement,
        net_xdp: common.across.net_xdp,
        ..side.across.clone()
    };
    let apart =
        sides.iter().any(|side| side.far != common.far || across(side) != common.across || side.far.listen.is_some());
    if apart {
        return Err(Failure::new(
            "A and B need the same other end",
            "give --peer, --adapter, --veth and keys outside --a and --b, and no --listen",
        ));
    }
    Ok(())
}

fn pairs(a: Vec<Case>, b: Vec<Case>) -> Result<Vec<(Case, Case)>, Failure> {
    if a.len() == b.len() {
        return Ok(a.into_iter().zip(b).collect());
    }
    Err(Failure::new(
        format!("A has {} sizes and B has {}", a.len(), b.len()),
        "give --size once, outside --a and --b, or as many sizes in each",
    ))
}

/// The figure of A over that of B in each round, `before` each of which it is said whose turn it is. Who goes first
/// changes from round to round.
fn ratios(
    peer: &mut Peer,
    core: usize,
    cases: [Case; 2],
    before: impl Fn(usize),
    done: impl Fn(),
) -> Result<Vec<f64>, Failure> {
    let test = cases[0].test;
    let mut rigs = Vec::new();
    for case in cases {
        rigs.push(Rig::open(peer, Case { length: case.length.part(ROUNDS), ..case })?);
    }
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        let mut figures = [None; 2];
        for side in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            before(side);
            figures[side] = rigs[side].measure(peer, core)?.figure(test);
        }
        if let [Some(a), Some(b)] = figures {
            ratios.push(a / b);
        }
        done();
    }
    rigs.into_iter().try_for_each(|rig| rig.close(peer))?;
    Ok(ratios)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Size;

    fn args(a: &str, b: &str) -> CompareArgs {
        let common = Measure { size: vec![Size(64)], ..Measure::default() };
        CompareArgs { test: CompareTest::Lat, a: a.into(), b: b.into(), common }
    }

    fn checked(args: &CompareArgs) -> Result<usize, Failure> {
        let (a, b) = args.sides()?;
        check(args, [&a, &b])?;
        Ok(pairs(Case::all(Test::Lat, &a)?, Case::all(Test::Lat, &b)?)?.len())
    }

    #[test]
    fn sizes_are_compared_in_pairs() {
        assert_eq!(checked(&args("--size 8,64", "--size 4KiB,8KiB")).ok(), Some(2));
        assert!(checked(&args("--size 8,64", "")).is_err());
    }

    #[test]
    fn both_sides_have_one_other_end() {
        assert!(checked(&args("--peer shm:a", "")).is_err());
        assert!(checked(&args("", "--listen shm:a")).is_err());
    }
}
