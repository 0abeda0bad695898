//! What a result is held against: limits of this machine, measured in the same run.

use std::time::Duration;

use super::ask::Shape;
use super::case::{Case, Rig, Test};
use super::limits::{
    Wire, cacheline_pingpong, memcpy_1core, ring_fetch, ring_pingpong, ring_stream, udp_gso_oneway, udp_gso_stream,
    udp_pingpong,
};
use super::peer::Peer;
use super::way::Way;
use crate::args::{Adapter, Measure, Memory};
use crate::clock::Length;
use crate::failure::Failure;
use crate::units::Size;

/// How long each limit is measured.
const SHORT: Duration = Duration::from_millis(150);

/// Bytes of our own header in a datagram.
const HEADER: usize = 64;

/// The 64-byte message that others are held against.
const MESSAGE: Size = Size(64);

/// Limits that hold for all cases of a run.
#[derive(Clone, Copy, Debug)]
pub struct Floor<'a> {
    cacheline_ns: Option<f64>,
    message_ns: Option<f64>,
    /// What messages cross, if they do not stay in the memory of the machine: then the kernel's own datagrams across
    /// the same wire are the limits, and bare rings where the adapter is one.
    wire: Option<(&'a Wire, Option<cutthrough::Adapter>)>,
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

impl<'a> Floor<'a> {
    /// Measures what these cases are held against, this way.
    ///
    /// # Errors
    /// If the other end goes away. A limit that this machine cannot show is left out.
    pub fn measure(peer: &mut Peer, core: usize, cases: &[Case], way: &'a Way) -> Result<Self, Failure> {
        if way.adapter != Adapter::Shm {
            return Ok(Self { cacheline_ns: None, message_ns: None, wire: Some((&way.wire, ring(way.adapter))) });
        }
        let cacheline_ns = cacheline_pingpong(SHORT).ok().map(|line| line.p50_ns);
        let needs_message = cases.iter().any(|case| case.test.is_time() && !case.is_control());
        let message_ns = if needs_message { message(peer, core)? } else { None };
        Ok(Self { cacheline_ns, message_ns, wire: None })
    }

    /// Holds the figure of a case against its limit; measures a memory copy of its size if that is part of it. None if
    /// there is no such limit, or this machine cannot show it.
    #[must_use]
    pub fn hold(&self, case: &Case, figure: f64) -> Option<Held> {
        if let Some((wire, ring)) = self.wire {
            return on_wire(wire, ring, case, figure);
        }
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

/// Holds the figure of a case against the kernel's own UDP, measured now across the same wire: its small datagram, its
/// long message in trains that are placed at once, and its stream of trains.
fn on_wire(wire: &Wire, ring: Option<cutthrough::Adapter>, case: &Case, figure: f64) -> Option<Held> {
    if let Some(ring) = ring {
        let held = on_ring(wire, ring, case, figure);
        if held.is_some() {
            return held;
        }
    }
    let small = || udp_pingpong(wire, SHORT).ok().map(|datagram| datagram.p50_ns);
    let long = || udp_gso_oneway(wire, case.size(), HEADER, SHORT).ok().map(|message| message.p50_ns);
    match case.test {
        Test::Lat if case.is_control() => Some(time("udp_pingpong", small()?, figure)),
        Test::Lat => Some(time("udp_gso_oneway_header64", long()?, figure)),
        Test::Fetch => Some(time("udp_pingpong+udp_gso_oneway_header64", small()? + long()?, figure)),
        Test::Bw => {
            let ns = case.size().0 as f64 / udp_gso_stream(wire, SHORT).ok()? * 1e9;
            Some(rate("udp_gso_stream", ns, figure))
        }
        // Many small messages share a datagram, so no datagram is their limit.
        Test::Rate => None,
    }
}

/// The ring that an adapter has for all of its frames.
const fn ring(adapter: Adapter) -> Option<cutthrough::Adapter> {
    match adapter {
        Adapter::Packet => Some(cutthrough::Adapter::Packet),
        Adapter::Xdp => Some(cutthrough::Adapter::Xdp),
        Adapter::Shm | Adapter::Udp | Adapter::Net | Adapter::Fabric => None,
    }
}

/// Holds the figure of a case against bare rings, measured now across the same wire, where they do the same thing.
fn on_ring(wire: &Wire, ring: cutthrough::Adapter, case: &Case, figure: f64) -> Option<Held> {
    match case.test {
        Test::Lat if case.is_control() => {
            Some(time(&format!("{ring}_pingpong"), ring_pingpong(wire, ring, SHORT).ok()?.p50_ns, figure))
        }
        Test::Fetch => {
            let fetch = ring_fetch(wire, ring, case.size(), SHORT).ok()?;
            Some(time(&format!("{ring}_fetch"), fetch.p50_ns, figure))
        }
        Test::Bw => {
            let ns = case.size().0 as f64 / ring_stream(wire, ring, SHORT).ok()? * 1e9;
            Some(rate(&format!("{ring}_stream"), ns, figure))
        }
        Test::Lat | Test::Rate => None,
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

    const FLOOR: Floor<'_> = Floor { cacheline_ns: Some(50.0), message_ns: Some(60.0), wire: None };

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
    fn what_crosses_a_wire_is_held_against_datagrams_across_it() {
        let wire = Wire::loopback();
        let floor = Floor { cacheline_ns: None, message_ns: None, wire: Some((&wire, None)) };
        if crate::cpu::Pair::apart().is_none() {
            cutthrough_conform::skipped("one core cannot show these limits");
            return;
        }
        for (test, size, limit) in [
            (Test::Lat, 64, "udp_pingpong"),
            (Test::Lat, 8192, "udp_gso_oneway_header64"),
            (Test::Fetch, 8192, "udp_pingpong+udp_gso_oneway_header64"),
            (Test::Bw, 8192, "udp_gso_stream"),
        ] {
            let held = floor.hold(&case(test, Memory::Private, size), 1e6).expect("a limit");
            assert_eq!(held.limit, limit);
            assert!(held.ns > 0.0 && held.ratio > 0.0);
        }
        assert_eq!(floor.hold(&case(Test::Rate, Memory::Private, 64), 1e6), None);
    }

    #[test]
    fn a_rate_is_held_against_a_rate() {
        let held = FLOOR.hold(&case(Test::Rate, Memory::Private, 64), 60e6).expect("a limit");
        assert_eq!((held.limit.as_str(), held.ratio), ("cacheline_pingpong", 3.0));
        assert_eq!(FLOOR.hold(&case(Test::Bw, Memory::Reference, 4096), 1e6), None);
    }
}
