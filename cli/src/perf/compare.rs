//! `perf compare`: two sets of options in turn, many short rounds, and their ratio. Machines drift; a ratio taken
//! within a round drifts less.
//!
//! What is compared are cases of raw messages, or [`rows`] of requests. Both sides go by the same wire, by [`ends`] of
//! their own where one would not do.

pub mod ends;
pub mod rows;

use std::collections::BTreeSet;

use super::case::{Case, Test};
use super::loss::{self, Lossy};
use super::peer::cores;
use super::seat::{Seat, Subject};
use super::way::Way;
use crate::args::{Adapter, CompareArgs, CompareTest, Measure};
use crate::failure::Failure;
use crate::machine::Machine;
use crate::output::{CompareLine, Output, thousandths};
use crate::progress;
use crate::stats::{quantile, ratios};
use crate::table::{Table, hanging, wrapped};
use ends::{Ends, seal_alike};

/// How often each side is measured; its time is divided among the rounds.
const ROUNDS: u32 = 31;

/// Measures A and B in turn, size by size or row by row, and prints the ratios.
///
/// # Errors
/// If an option cannot be served, or the other end cannot be started or goes away.
pub fn run(args: &CompareArgs, output: Output) -> Result<(), Failure> {
    let (a, b) = args.sides()?;
    let sides = [&a, &b];
    check(args, sides)?;
    if let Some(test) = raw(args.test) {
        let [of_a, of_b] = [Case::all(test, &a)?, Case::all(test, &b)?];
        return compare(args, sides, &pairs(of_a, of_b)?, output);
    }
    let [of_a, of_b] = rows::of(args, sides)?;
    compare(args, sides, &pairs(of_a, of_b)?, output)
}

fn compare<S: Subject>(
    args: &CompareArgs,
    sides: [&Measure; 2],
    pairs: &[(S, S)],
    output: Output,
) -> Result<(), Failure> {
    // Both sides go the same way: where one asks for loss, the other has a program that loses nothing.
    let losses = sides.map(|side| side.loss);
    let lossy = losses.iter().any(Option::is_some);
    let core = cores().first;
    let mut way = Way::make(&sides[0].across, args.common.far.peer.as_deref())?;
    let lossy = way.wire.pair().filter(|_| lossy).map(Lossy::between).transpose()?;
    let lose = |side: usize| lossy.iter().for_each(|lossy| lossy.set(losses[side].unwrap_or_default()));
    let mut ends = Ends::find(args, sides, &mut way)?;
    let bar = progress::bar(pairs.len() * ROUNDS as usize);
    let mut table = Table::new(&["size", "A / B", "10 %", "90 %"]);
    let mut found = Found::default();
    for (a, b) in pairs {
        let sizes = if a.size() == b.size() { a.size().to_string() } else { format!("{}, {}", a.size(), b.size()) };
        let what = a.what().zip(b.what()).map(|(a, b)| rows::name(a, b));
        let shown = what.map_or_else(|| sizes.clone(), |what| format!("{what}, {sizes}"));
        bar.set_message(shown.clone());
        let ratios = in_turn(&mut ends, core, [a, b], lose, || bar.inc(1))?;
        let at = |share| quantile(&ratios, share).map(thousandths).unwrap_or_default();
        let line = CompareLine {
            test: "compare",
            what,
            a: args.a.clone(),
            b: args.b.clone(),
            a_sealed: ends.seals[0].is_sealed(),
            b_sealed: ends.seals[1].is_sealed(),
            size: a.size().0,
            ratio_p50: at(0.5),
            ratio_lo: at(0.1),
            ratio_hi: at(0.9),
            rounds: ROUNDS,
        };
        output.line(&line)?;
        let ratio = |ratio: f64| format!("{ratio:.3}");
        table.row(vec![shown, ratio(line.ratio_p50), ratio(line.ratio_lo), ratio(line.ratio_hi)]);
        found.add(a.test(), what.unwrap_or(a.test().name()));
    }
    bar.finish_and_clear();
    output.say(&format!(
        "{}\n\nA: {}\nB: {}\n\n{table}\n\n{}",
        ends.head(&way, &Machine::here()),
        options(&args.a),
        options(&args.b),
        wrapped(&found.in_words())
    ))
}

/// Of what the ratios are.
#[derive(Default)]
struct Found {
    times: BTreeSet<&'static str>,
    rates: BTreeSet<&'static str>,
}

impl Found {
    fn add(&mut self, test: Test, what: &'static str) {
        if test.is_time() { &mut self.times } else { &mut self.rates }.insert(what);
    }

    fn in_words(&self) -> String {
        let [times, rates] =
            [&self.times, &self.rates].map(|names| names.iter().copied().collect::<Vec<_>>().join(", "));
        match (self.times.is_empty(), self.rates.is_empty()) {
            (_, true) => format!("{times} of {ROUNDS} rounds; ratio of times: below 1, A is faster."),
            (true, false) => format!("{rates} of {ROUNDS} rounds; ratio of rates: above 1, A is faster."),
            (false, false) => format!(
                "{ROUNDS} rounds of each. {times}: ratio of times: below 1, A is faster. {rates}: ratio of rates: \
                 above 1, A is faster."
            ),
        }
    }
}

/// The options of one side, as people read them.
fn options(of: &str) -> String {
    if of.trim().is_empty() { "no options of its own".into() } else { hanging(of.trim(), 3) }
}

/// The test of raw messages; none if it is one of requests.
fn raw(test: CompareTest) -> Option<Test> {
    match test {
        CompareTest::Lat => Some(Test::Lat),
        CompareTest::Bw => Some(Test::Bw),
        CompareTest::Rate => Some(Test::Rate),
        CompareTest::Fetch => Some(Test::Fetch),
        CompareTest::Am | CompareTest::Rpc => None,
    }
}

/// Both sides have to go by the same wire, or they cannot be measured in turn; and each option has to be one of its
/// side.
fn check(args: &CompareArgs, sides: [&Measure; 2]) -> Result<(), Failure> {
    let common = &args.common;
    // Each side has an other end of its own, where adapters or seals are others.
    let apart =
        |side: &&Measure| side.far != common.far || side.across.veth != common.across.veth || side.far.listen.is_some();
    if sides.iter().any(apart) {
        return Err(Failure::new(
            "A and B need the same other end",
            "give --peer and --veth outside --a and --b, and no --listen",
        ));
    }
    if common.far.peer.is_some() && !seal_alike(sides.map(|side| &side.across)) {
        return Err(Failure::new(
            "the other end at --peer seals in one way",
            "give --seal, --key and --insecure outside --a and --b, or leave --peer away",
        ));
    }
    if !args.rows.is_empty() && raw(args.test).is_some() {
        return Err(Failure::new("--rows are those of am and rpc", "compare one of these, or leave --rows away"));
    }
    let address = common.far.peer.as_deref();
    let mut lossy = false;
    for side in sides {
        let adapter = side.across.adapter(address)?;
        side.across.fits(adapter, address, "give --veth 1500, or --peer with the address of another machine")?;
        loss::check(side)?;
        lossy |= side.loss.is_some();
    }
    let is_udp = |side: &Measure| side.across.adapter(address).is_ok_and(|adapter| adapter == Adapter::Udp);
    if lossy && !sides.into_iter().all(is_udp) {
        return Err(Failure::new(
            "--loss is for the adapter udp, and both sides cross the same wire",
            "leave --loss away, or compare udp with udp",
        ));
    }
    Ok(())
}

fn pairs<S: Subject>(a: Vec<S>, b: Vec<S>) -> Result<Vec<(S, S)>, Failure> {
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
fn in_turn<S: Subject>(
    ends: &mut Ends,
    core: usize,
    subjects: [&S; 2],
    before: impl Fn(usize),
    done: impl Fn(),
) -> Result<Vec<f64>, Failure> {
    let anew = ends.anew;
    let mut seats = Vec::new();
    for (side, subject) in subjects.into_iter().enumerate() {
        seats.push(Seat::take(subject, ends.of(side), core, anew)?);
    }
    let mut figures = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        for side in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            before(side);
            let (test, length) = (subjects[side].test(), subjects[side].length().part(ROUNDS));
            figures[side].push(seats[side].measure(ends.of(side), core, test, length)?.figure(test));
        }
        done();
    }
    seats.into_iter().enumerate().try_for_each(|(side, seat)| seat.leave(ends.of(side)))?;
    Ok(ratios(&figures[0], &figures[1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Across;
    use crate::units::Size;

    fn args(a: &str, b: &str) -> CompareArgs {
        let common = Measure { size: vec![Size(64)], ..Measure::default() };
        CompareArgs { test: CompareTest::Lat, a: a.into(), b: b.into(), rows: Vec::new(), common }
    }

    fn checked(args: &CompareArgs) -> Result<usize, Failure> {
        let (a, b) = args.sides()?;
        check(args, [&a, &b])?;
        Ok(pairs(Case::all(Test::Lat, &a)?, Case::all(Test::Lat, &b)?)?.len())
    }

    fn refused(args: &CompareArgs) -> String {
        checked(args).expect_err("it cannot be served").to_string()
    }

    #[test]
    fn sizes_are_compared_in_pairs() {
        assert_eq!(checked(&args("--size 8,64", "--size 4KiB,8KiB")).ok(), Some(2));
        assert!(checked(&args("--size 8,64", "")).is_err());
    }

    #[test]
    fn both_sides_go_by_the_same_wire_and_seal_as_they_like() {
        assert!(checked(&args("--peer shm:a", "")).is_err());
        assert!(refused(&args("--veth 1500", "")).contains("the same other end; give --peer and --veth outside"));
        let mut wired = args("--seal", "--insecure");
        wired.common.across.adapter = Some(Adapter::Udp);
        assert_eq!(checked(&wired).ok(), Some(1));
        wired.common.far.peer = Some("udp:10.0.0.1:7000".into());
        assert!(refused(&wired).contains("or leave --peer away"));
        // The same on both sides, however it is said.
        wired.b = "--seal".into();
        assert_eq!(checked(&wired).ok(), Some(1));
        assert!(checked(&args("", "--listen shm:a")).is_err());
    }

    #[test]
    fn sides_may_have_adapters_of_their_own() {
        assert_eq!(checked(&args("--adapter shm", "--adapter udp")).ok(), Some(1));
        assert_eq!(checked(&args("--adapter udp --seal", "")).ok(), Some(1));
        let mut across = args("--adapter udp", "--adapter xdp --xdp-mode native");
        assert!(refused(&across).contains("the adapter xdp needs a network interface"));
        across.common.across.veth = Some(1500);
        assert_eq!(checked(&across).ok(), Some(1));
        for (a, b) in [("packet", "net"), ("net --net-xdp", "net"), ("xdp --placement copy", "udp --seal")] {
            let [a, b] = [a, b].map(|side| format!("--adapter {side}"));
            let sides = CompareArgs { a, b, ..args("", "") };
            let common = Measure { across: Across { veth: Some(1500), ..Across::default() }, ..Measure::default() };
            assert_eq!(checked(&CompareArgs { common, ..sides }).ok(), Some(4));
        }
    }

    /// One line says what to do, before anything is started.
    #[test]
    fn options_that_do_not_go_together_are_refused() {
        let with = |a: &str, b: &str, across: Across| {
            let args = args(a, b);
            CompareArgs { common: Measure { across, ..args.common.clone() }, ..args }
        };
        let veth = Across { veth: Some(1500), ..Across::default() };
        let native = Across { xdp_mode: "native".parse().ok(), ..veth.clone() };
        for (args, what) in [
            (with("--adapter shm", "--adapter udp", veth.clone()), "nothing crosses the veth pair in shared memory"),
            (
                with("--adapter udp", "--adapter xdp", native),
                "and this is udp; give --adapter xdp, or leave --xdp-mode",
            ),
            (with("--adapter udp --placement copy", "", veth.clone()), "give --adapter xdp, or leave --placement away"),
            (with("--adapter net", "--adapter packet --net-xdp", veth.clone()), "give --adapter net, or leave"),
            (with("--loss 1", "--adapter packet", veth.clone()), "compare udp with udp"),
            (with("--adapter shm --loss 1", "", Across::default()), "give --veth 1500, too"),
            (CompareArgs { rows: vec!["short".into()], ..args("", "") }, "--rows are those of am and rpc"),
        ] {
            let why = refused(&args);
            assert!(why.contains(what) && !why.contains('\n'), "{what}: {why}");
        }
        let mut away = with("--adapter udp", "--adapter shm", Across::default());
        away.common.far.peer = Some("udp:10.0.0.1:7000".into());
        assert!(refused(&away).contains("is not an address of the adapter shm"));
    }

    #[test]
    fn it_is_said_of_what_the_ratios_are() {
        let words = |found: &[(Test, &'static str)]| {
            let mut all = Found::default();
            found.iter().for_each(|(test, what)| all.add(*test, what));
            all.in_words()
        };
        assert_eq!(words(&[(Test::Lat, "lat")]), "lat of 31 rounds; ratio of times: below 1, A is faster.");
        assert_eq!(words(&[(Test::Bw, "bw")]), "bw of 31 rounds; ratio of rates: above 1, A is faster.");
        let both = words(&[(Test::Lat, "short"), (Test::Bw, "store"), (Test::Rate, "rate"), (Test::Bw, "store")]);
        let of_times = "31 rounds of each. short: ratio of times: below 1, A is faster. ";
        assert_eq!(both, [of_times, "rate, store: ratio of rates: above 1, A is faster."].concat());
    }
}
