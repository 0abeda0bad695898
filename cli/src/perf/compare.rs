//! `perf compare`: two sets of options in turn, many short rounds, and their ratio. Machines drift; a ratio taken
//! within a round drifts less.

use super::case::{Case, Rig, Test};
use super::loss::{self, Lossy};
use super::measure::other_end;
use super::peer::{Peer, cores};
use super::way::{Seal, Way};
use crate::args::{Across, CompareArgs, CompareTest, Measure};
use crate::failure::Failure;
use crate::machine::Machine;
use crate::output::{CompareLine, Output, thousandths};
use crate::progress;
use crate::stats::{quantile, ratios};
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
    let mut way = Way::make(&sealed_as(&a.across, &args.common.across), args.common.far.peer.as_deref())?;
    let lossy = way.wire.pair().filter(|_| lossy).map(Lossy::between).transpose()?;
    let lose = |side: usize| lossy.iter().for_each(|lossy| lossy.set(losses[side]));
    let mut ends = Ends::find(args, [&a.across, &b.across], &mut way)?;
    let bar = progress::bar(pairs.len() * ROUNDS as usize);
    let mut table = Table::new(&["size", "A / B", "10 %", "90 %"]);
    for (a, b) in pairs {
        let sizes = if a.size() == b.size() { a.size().to_string() } else { format!("{}, {}", a.size(), b.size()) };
        let size = a.size();
        bar.set_message(sizes.clone());
        let ratios = in_turn(&mut ends, core, [a, b], lose, || bar.inc(1))?;
        let at = |share| quantile(&ratios, share).map(thousandths).unwrap_or_default();
        let line = CompareLine {
            test: "compare",
            a: args.a.clone(),
            b: args.b.clone(),
            a_sealed: ends.seals[0].is_sealed(),
            b_sealed: ends.seals[1].is_sealed(),
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
        way.head_of(&Machine::here(), &ends.in_words()),
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

/// The other ends of both sides: one, unless one side seals and the other one does not, for an other end does so on all
/// of its lanes or on none.
struct Ends {
    peers: Vec<Peer>,
    /// How A seals, and B.
    seals: [Seal; 2],
}

impl Ends {
    /// Finds or starts them, at the end of this way, which seals as A does.
    fn find(args: &CompareArgs, sides: [&Across; 2], way: &mut Way) -> Result<Self, Failure> {
        let mut peers = vec![other_end(&args.common, way)?];
        let of_a = way.seal.clone();
        if !seal_alike(sides) {
            way.seal = Seal::of(sides[1], way.adapter, false)?;
            peers.push(Peer::start(cores().second, way)?);
        }
        Ok(Self { peers, seals: [of_a, way.seal.clone()] })
    }

    /// The other end of a side.
    fn of(&mut self, side: usize) -> &mut Peer {
        let at = side.min(self.peers.len() - 1);
        &mut self.peers[at]
    }

    /// Whether messages were sealed, for people.
    fn in_words(&self) -> String {
        let [a, b] = self.seals.each_ref().map(Seal::in_words);
        if a == b { a.into() } else { format!("A {a}, B {b}") }
    }
}

/// These options, with what is said of sealing in others.
fn sealed_as(sealing: &Across, across: &Across) -> Across {
    Across { seal: sealing.seal, key: sealing.key.clone(), insecure: sealing.insecure, ..across.clone() }
}

/// Whether both sides seal with the same keys, or neither does.
fn seal_alike([a, b]: [&Across; 2]) -> bool {
    (a.seal, &a.key) == (b.seal, &b.key)
}

/// Both sides have to go the same way, or they cannot be measured in turn.
fn check(args: &CompareArgs, sides: [&Measure; 2]) -> Result<(), Failure> {
    let common = &args.common;
    // Each lane has endpoints, and so a placement and rings, of its own; and each side an other end, where they seal
    // differently.
    let across = |side: &Measure| Across {
        placement: common.across.placement,
        net_xdp: common.across.net_xdp,
        ..sealed_as(&common.across, &side.across)
    };
    let apart =
        sides.iter().any(|side| side.far != common.far || across(side) != common.across || side.far.listen.is_some());
    if apart {
        return Err(Failure::new(
            "A and B need the same other end",
            "give --peer, --adapter and --veth outside --a and --b, and no --listen",
        ));
    }
    if common.far.peer.is_some() && !seal_alike(sides.map(|side| &side.across)) {
        return Err(Failure::new(
            "the other end at --peer seals in one way",
            "give --seal, --key and --insecure outside --a and --b, or leave --peer away",
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
fn in_turn(
    ends: &mut Ends,
    core: usize,
    cases: [Case; 2],
    before: impl Fn(usize),
    done: impl Fn(),
) -> Result<Vec<f64>, Failure> {
    let test = cases[0].test;
    let mut rigs = Vec::new();
    for (side, case) in cases.into_iter().enumerate() {
        rigs.push(Rig::open(ends.of(side), Case { length: case.length.part(ROUNDS), ..case })?);
    }
    let mut figures = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        for side in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            before(side);
            figures[side].push(rigs[side].measure(ends.of(side), core)?.figure(test));
        }
        done();
    }
    rigs.into_iter().enumerate().try_for_each(|(side, rig)| rig.close(ends.of(side)))?;
    Ok(ratios(&figures[0], &figures[1]))
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
    fn both_sides_go_the_same_way_and_seal_as_they_like() {
        assert!(checked(&args("--peer shm:a", "")).is_err());
        assert!(checked(&args("--adapter udp", "")).is_err());
        let mut wired = args("--seal", "--insecure");
        wired.common.across.adapter = Some(crate::args::Adapter::Udp);
        assert_eq!(checked(&wired).ok(), Some(1));
        wired.common.far.peer = Some("udp:10.0.0.1:7000".into());
        assert!(checked(&wired).is_err_and(|failure| failure.to_string().contains("or leave --peer away")));
        // The same on both sides, however it is said.
        wired.b = "--seal".into();
        assert_eq!(checked(&wired).ok(), Some(1));
        assert!(checked(&args("", "--listen shm:a")).is_err());
    }
}
