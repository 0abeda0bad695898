//! How far results are from their limits: a ratio for each round, in which both were measured one after the other.

use std::fmt;
use std::time::{Duration, Instant};

use super::case::Case;
use super::floor::{Bar, Floor, LONG};
use super::limits::Unavailable;
use super::peer::Peer;
use crate::failure::Failure;
use crate::stats::{median, quantile, ratios};
use crate::table::wrapped;

/// A slice of a limit that takes so many times as long as the shortest one shows what else the machine did meanwhile:
/// two spinning threads wait for each other's turn on a core, which is thousands of times as long as a message takes.
const STRAY: f64 = 10.0;

/// How often a slice is measured anew that has gone astray.
const ANEW: u32 = 2;

/// A limit, and how far a result is from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// The limit's name: one of `perf limits`, `message_64` for half a round trip of a 64-byte message, or a sum.
    pub limit: String,
    /// Its median in nanoseconds.
    pub ns: f64,
    /// The result over the limit, times or rates if the result is a rate: the median of the rounds.
    pub ratio: f64,
    /// The least ratio of a round, and the most.
    pub range: [f64; 2],
    /// How many rounds have a ratio.
    pub rounds: u32,
}

/// What a case is held against, and what was measured of that, round by round.
#[derive(Debug)]
pub struct Against {
    bar: Option<Bar>,
    /// Nanoseconds of each round; none where it came to nothing.
    rounds: Vec<Option<f64>>,
    /// The shortest of all slices.
    least: f64,
    /// Why it came to nothing, the last time that it did.
    why: Option<Unavailable>,
}

impl Against {
    /// Held against this, or nothing.
    #[must_use]
    pub fn new(bar: Result<Option<Bar>, Unavailable>) -> Self {
        let (bar, why) = bar.map_or_else(|why| (None, Some(why)), |bar| (bar, None));
        Self { bar, rounds: Vec::new(), least: f64::INFINITY, why }
    }

    /// Whether there is anything to be measured.
    #[must_use]
    pub fn is_something(&self) -> bool {
        self.bar.is_some()
    }

    /// Measures the limit in a round: the median of so many slices, each of this time, but no further one after one
    /// that took long.
    ///
    /// # Errors
    /// If the other end goes away. Why this machine cannot show a limit is said where a case is held against it.
    pub fn round(
        &mut self,
        floor: &mut Floor<'_>,
        peer: &mut Peer,
        slices: u32,
        time: Duration,
    ) -> Result<(), Failure> {
        let Some(bar) = &self.bar else { return Ok(()) };
        let (begun, mut shown, mut anew) = (Instant::now(), Vec::new(), ANEW);
        while shown.len() < slices as usize {
            let slice = floor.slice(peer, bar, time)?;
            self.least = slice.as_ref().map_or(self.least, |ns| ns.min(self.least));
            let (is_stray, is_long) =
                (slice.as_ref().is_ok_and(|ns| is_stray(*ns, self.least)), begun.elapsed() > LONG);
            if is_stray && anew > 0 && !is_long {
                anew -= 1;
                continue;
            }
            shown.push(slice.map_err(|why| self.why = Some(why)).ok());
            if is_long {
                break;
            }
        }
        let shown: Vec<f64> = shown.into_iter().flatten().filter(|ns| !is_stray(*ns, self.least)).collect();
        self.rounds.push(median(&shown));
        Ok(())
    }

    /// The limit in each round, those that have gone astray left out.
    fn of_rounds(&self) -> Vec<Option<f64>> {
        self.rounds.iter().map(|ns| ns.filter(|ns| !is_stray(*ns, self.least))).collect()
    }

    /// Holds the figures of the rounds, times or rates, against the limit of the same rounds. None if there is none.
    ///
    /// # Errors
    /// Why this machine could not show the limit in any round.
    pub fn held(&self, figures: &[Option<f64>]) -> Result<Option<Held>, Unavailable> {
        let held = self.bar.as_ref().and_then(|bar| hold(&bar.name(), bar.is_time, &self.of_rounds(), figures));
        match (held, &self.why) {
            (None, Some(why)) => Err(why.clone()),
            (held, _) => Ok(held),
        }
    }
}

/// Whether a slice of a limit has gone astray, if the shortest one took so long.
fn is_stray(ns: f64, least: f64) -> bool {
    ns > STRAY * least
}

/// Holds figures, times or rates, against a limit of so many nanoseconds in the same rounds. None if no round has both.
fn hold(limit: &str, is_time: bool, limit_ns: &[Option<f64>], figures: &[Option<f64>]) -> Option<Held> {
    let per_s = |ns: &Option<f64>| ns.map(|ns| 1e9 / ns);
    let of_limit: Vec<Option<f64>> = if is_time { limit_ns.into() } else { limit_ns.iter().map(per_s).collect() };
    let ratios = ratios(figures, &of_limit);
    Some(Held {
        limit: limit.into(),
        ns: median(&limit_ns.iter().copied().flatten().collect::<Vec<_>>())?,
        ratio: median(&ratios)?,
        range: [quantile(&ratios, 0.0)?, quantile(&ratios, 1.0)?],
        rounds: u32::try_from(ratios.len()).unwrap_or(u32::MAX),
    })
}

/// Which cases are held against nothing, because this machine could not show their limits: for people, a paragraph for
/// each reason.
#[derive(Debug, Default)]
pub struct Missing(Vec<(String, Vec<String>)>);

impl Missing {
    /// What a case was held against; if its limit could not be shown, that is noted.
    pub fn or_why(&mut self, case: &Case, held: Result<Option<Held>, Unavailable>) -> Option<Held> {
        held.unwrap_or_else(|why| {
            let (what, why) = (format!("{} {}", case.test.name(), case.size()), why.to_string());
            match self.0.iter_mut().find(|(other, _)| *other == why) {
                Some((_, cases)) => cases.push(what),
                None => self.0.push((why, vec![what])),
            }
            None
        })
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (why, cases) in &self.0 {
            let text = format!("Held against nothing: {}: the limit cannot be measured: {why}", cases.join(", "));
            writeln!(f, "{}", wrapped(&text))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Adapter, Measure};
    use crate::perf::across::Mode;
    use crate::perf::case::Test;
    use crate::perf::limits::Wire;
    use crate::perf::way::{Seal, Way};
    use crate::units::Size;

    fn case(test: Test, size: u64) -> Case {
        let options = Measure { size: vec![Size(size)], ..Measure::default() };
        Case::all(test, &options).expect("good options").remove(0)
    }

    #[test]
    fn the_ratio_is_of_neighbours_and_not_of_medians() {
        // The machine was twice as slow in the last two rounds, in the second of which the limit was not.
        let limit = [50.0, 50.0, 50.0, 100.0, 50.0].map(Some);
        let held = hold("x", true, &limit, &[75.0, 80.0, 70.0, 150.0, 160.0].map(Some)).expect("five rounds");
        assert_eq!((held.limit.as_str(), held.ns, held.ratio), ("x", 50.0, 1.5));
        assert_eq!((held.range, held.rounds), ([1.4, 3.2], 5));
    }

    #[test]
    fn a_rate_is_held_against_a_rate() {
        let held = hold("x", false, &[Some(50.0)], &[Some(60e6)]).expect("a round");
        assert_eq!((held.ns, held.ratio, held.range, held.rounds), (50.0, 3.0, [3.0, 3.0], 1));
    }

    #[test]
    fn a_round_in_which_either_came_to_nothing_has_no_ratio() {
        let limit = [None, Some(50.0), Some(100.0), Some(60.0)];
        let held = hold("x", true, &limit, &[Some(10.0), None, Some(200.0)]).expect("a round");
        assert_eq!((held.ns, held.ratio, held.rounds), (60.0, 2.0, 1));
        assert_eq!(hold("x", true, &[None], &[Some(10.0)]), None);
    }

    #[test]
    fn a_limit_that_cannot_be_shown_is_none_and_says_why() {
        let why = || Unavailable("one core".into());
        let against = Against::new(Err(why()));
        assert!(!against.is_something());
        assert_eq!(against.held(&[Some(75.0)]), Err(why()));
        assert_eq!(Against::new(Ok(None)).held(&[Some(75.0)]), Ok(None));
        let mut missing = Missing::default();
        for size in [64, 8192] {
            assert_eq!(missing.or_why(&case(Test::Lat, size), against.held(&[Some(75.0)])), None);
        }
        let said = "Held against nothing: lat 64 B, lat 8 KiB: the limit cannot be measured: one core\n";
        assert_eq!(missing.to_string().replace("one\n", "one "), said);
    }

    #[test]
    fn a_slice_while_the_machine_did_something_else_is_none() {
        let rounds = vec![Some(8e6), Some(100.0), Some(400.0), Some(9e6)];
        let against = Against { rounds, least: 100.0, ..Against::new(Ok(None)) };
        assert_eq!(against.of_rounds(), [None, Some(100.0), Some(400.0), None]);
    }

    #[test]
    fn one_round_that_showed_the_limit_is_enough() {
        let way = Way {
            adapter: Adapter::Udp,
            wire: Wire::loopback(),
            beyond: false,
            seal: Seal::Plain,
            net_xdp: false,
            xdp_mode: Mode::default(),
        };
        let bar = Floor::of(&way, 0).bar(&case(Test::Lat, 64));
        let against =
            Against { rounds: vec![None, Some(50.0)], why: Some(Unavailable("lost".into())), ..Against::new(bar) };
        let held = against.held(&[Some(100.0), Some(75.0)]).expect("shown").expect("a limit");
        assert_eq!((held.limit.as_str(), held.ratio, held.rounds), ("udp_pingpong", 1.5, 1));
        assert_eq!(
            Against { rounds: vec![None, None], ..against }.held(&[Some(1.0); 2]),
            Err(Unavailable("lost".into()))
        );
    }
}
