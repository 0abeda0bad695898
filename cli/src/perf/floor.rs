//! What a result is held against: limits of this machine, measured in the same run.

use std::time::Duration;

use super::ask::Shape;
use super::case::{Case, Rig, Test};
use super::limits::{cacheline_pingpong, memcpy_1core};
use super::peer::Peer;
use crate::args::{Measure, Memory};
use crate::clock::Length;
use crate::failure::Failure;
use crate::units::Size;

/// How long each limit is measured.
const SHORT: Duration = Duration::from_millis(150);

/// The 64-byte message that others are held against.
const MESSAGE: Size = Size(64);

/// Limits that hold for all cases of a run.
#[derive(Clone, Copy, Debug)]
pub struct Floor {
    cacheline_ns: Option<f64>,
    message_ns: Option<f64>,
}

/// A limit, and how far a result is from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// The limit's name: one of `perf limits`, `message_64` for half a round trip of a 64-byte message, or a sum.
    pub limit: String,
    /// Its median in nanoseconds.
    pub ns: f64,
    /// The result over the limit: times, or rates if the result is a rate.
    pub ratio: f64,
}

impl Floor {
    /// Measures what these cases are held against.
    ///
    /// # Errors
    /// If the other end goes away. A limit that this machine cannot show is left out.
    pub fn measure(peer: &mut Peer, core: usize, cases: &[Case]) -> Result<Self, Failure> {
        let cacheline_ns = cacheline_pingpong(SHORT).ok().map(|line| line.p50_ns);
        let needs_message = cases.iter().any(|case| case.test.is_time() && !case.is_control());
        let message_ns = if needs_message { message(peer, core)? } else { None };
        Ok(Self { cacheline_ns, message_ns })
    }

    /// Holds the figure of a case against its limit; measures a memory copy of its size if that is part of it. None if
    /// there is no such limit, or this machine cannot show it.
    #[must_use]
    pub fn hold(&self, case: &Case, figure: f64) -> Option<Held> {
        let copied = case.shape.memory != Memory::Reference;
        let copy = || memcpy_1core(case.size(), SHORT).ok().map(|copy| copy.p50_ns);
        match case.test {
            Test::Rate => Some(rate("cacheline_pingpong", self.cacheline_ns?, figure)),
            Test::Bw if case.is_control() => Some(rate("cacheline_pingpong", self.cacheline_ns?, figure)),
            Test::Bw if copied => Some(rate("memcpy_1core", copy()?, figure)),
            // Nothing is moved, so there is no bandwidth to hold it against.
            Test::Bw => None,
            Test::Lat if case.is_control() => Some(time("cacheline_pingpong", self.cacheline_ns?, figure)),
            Test::Lat if copied => Some(time("message_64+memcpy_1core", self.message_ns? + copy()?, figure)),
            Test::Lat => Some(time("message_64", self.message_ns?, figure)),
            Test::Fetch if copied => Some(time("2*message_64+memcpy_1core", 2.0 * self.message_ns? + copy()?, figure)),
            Test::Fetch => Some(time("2*message_64", 2.0 * self.message_ns?, figure)),
        }
    }
}

/// Half a round trip of a 64-byte message with default settings.
fn message(peer: &mut Peer, core: usize) -> Result<Option<f64>, Failure> {
    let options = Measure { size: vec![MESSAGE], ..Measure::default() };
    let Some(case) = Case::all(Test::Lat, &options)?.pop() else { return Ok(None) };
    let case = Case { length: Length::of(SHORT), shape: Shape { memory: Memory::Private, ..case.shape }, ..case };
    let mut rig = Rig::open(peer, case)?;
    let slice = rig.measure(peer, core)?;
    rig.close(peer)?;
    Ok(slice.figure(Test::Lat))
}

fn time(limit: &str, ns: f64, figure_ns: f64) -> Held {
    Held { limit: limit.into(), ns, ratio: figure_ns / ns }
}

/// A rate against one operation per `ns`.
fn rate(limit: &str, ns: f64, per_s: f64) -> Held {
    Held { limit: limit.into(), ns, ratio: per_s * ns / 1e9 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(test: Test, memory: Memory, size: u64) -> Case {
        let options = Measure { size: vec![Size(size)], memory: Some(memory), ..Measure::default() };
        Case::all(test, &options).expect("good options").remove(0)
    }

    const FLOOR: Floor = Floor { cacheline_ns: Some(50.0), message_ns: Some(60.0) };

    #[test]
    fn a_message_is_held_against_the_cache_line_and_a_page_against_the_message() {
        let held = FLOOR.hold(&case(Test::Lat, Memory::Private, 64), 75.0).expect("a limit");
        assert_eq!((held.limit.as_str(), held.ns, held.ratio), ("cacheline_pingpong", 50.0, 1.5));
        let held = FLOOR.hold(&case(Test::Lat, Memory::Reference, 4096), 120.0).expect("a limit");
        assert_eq!((held.limit.as_str(), held.ratio), ("message_64", 2.0));
        let held = FLOOR.hold(&case(Test::Fetch, Memory::Reference, 4096), 120.0).expect("a limit");
        assert_eq!((held.limit.as_str(), held.ratio), ("2*message_64", 1.0));
    }

    #[test]
    fn what_is_copied_is_held_against_a_copy_too() {
        for memory in [Memory::Private, Memory::Pool] {
            let held = FLOOR.hold(&case(Test::Lat, memory, 4096), 500.0).expect("a limit");
            assert_eq!(held.limit, "message_64+memcpy_1core");
            assert!(held.ns > 60.0);
        }
        assert_eq!(FLOOR.hold(&case(Test::Bw, Memory::Private, 4096), 1e6).expect("a limit").limit, "memcpy_1core");
    }

    #[test]
    fn a_rate_is_held_against_a_rate() {
        let held = FLOOR.hold(&case(Test::Rate, Memory::Private, 64), 60e6).expect("a limit");
        assert_eq!((held.limit.as_str(), held.ratio), ("cacheline_pingpong", 3.0));
        assert_eq!(FLOOR.hold(&case(Test::Bw, Memory::Reference, 4096), 1e6), None);
    }
}
