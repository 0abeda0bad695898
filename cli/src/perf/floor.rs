//! What a result is held against: limits of this machine, measured in the same run.

use std::fmt;
use std::time::Duration;

use super::ask::Shape;
use super::case::{Case, Rig, Test};
use super::limits::{
    Limit, Unavailable, Wire, body, cacheline_pingpong, memcpy_1core, ring_fetch, ring_pingpong, ring_stream,
    udp_gso_oneway, udp_gso_stream, udp_pingpong,
};
use super::peer::Peer;
use super::way::Way;
use crate::args::{Adapter, Measure, Memory};
use crate::clock::Length;
use crate::failure::Failure;
use crate::stats::median;
use crate::table::wrapped;
use crate::units::Size;

/// How long each limit is measured: a few times for so long. What is in the middle counts, so that a limit during
/// which the machine did something else, or nothing, is none.
const SHORT: Duration = Duration::from_millis(50);
const SLICES: usize = 3;

/// Bytes of our own header in a datagram.
const HEADER: usize = 64;

/// The 64-byte message that others are held against.
const MESSAGE: Size = Size(64);

/// Limits that hold for all cases of a run.
#[derive(Clone, Debug)]
pub struct Floor<'a> {
    /// Why there is none, otherwise.
    cacheline_ns: Result<f64, Unavailable>,
    message_ns: Option<f64>,
    /// What messages cross, if they do not stay in the memory of the machine: then the kernel's own datagrams across
    /// the same wire are the limits, and bare rings where the adapter is one.
    wire: Option<(&'a Wire, Option<cutthrough::Adapter>)>,
    /// Whether that wire is none that can be measured here.
    beyond: bool,
    /// Whether frames are sealed there.
    sealed: bool,
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

impl<'a> Floor<'a> {
    /// Measures what these cases are held against, this way.
    ///
    /// # Errors
    /// If the other end goes away. Why this machine cannot show a limit is said where a case is held against it.
    pub fn measure(peer: &mut Peer, core: usize, cases: &[Case], way: &'a Way) -> Result<Self, Failure> {
        if way.adapter != Adapter::Shm {
            let wire = Some((&way.wire, ring(way.adapter)));
            return Ok(Self {
                cacheline_ns: Err(Unavailable("another way".into())),
                message_ns: None,
                wire,
                beyond: way.beyond,
                sealed: way.sealed() == Some(true),
            });
        }
        let cacheline_ns = typical(|| cacheline_pingpong(SHORT).map(|line| line.p50_ns));
        let needs_message = cases.iter().any(|case| case.test.is_time() && !case.is_control());
        let message_ns = if needs_message { message(peer, core)? } else { None };
        Ok(Self { cacheline_ns, message_ns, wire: None, beyond: false, sealed: false })
    }

    /// Holds the figure of a case against its limit; measures a memory copy of its size if that is part of it. None if
    /// there is no such limit.
    ///
    /// # Errors
    /// Why this machine cannot show the limit now.
    pub fn hold(&self, case: &Case, figure: f64) -> Result<Option<Held>, Unavailable> {
        if self.beyond {
            return Err(Unavailable("the other end may be on another machine".into()));
        }
        if let Some((wire, ring)) = self.wire {
            return on_wire(wire, ring, case, figure);
        }
        let copied = case.shape.memory != Memory::Reference;
        let copy = || typical(|| memcpy_1core(case.size(), SHORT).map(|copy| copy.p50_ns));
        let cacheline = || self.cacheline_ns.clone();
        let message = || self.message_ns.ok_or_else(|| Unavailable("no message has come back".into()));
        Ok(Some(match case.test {
            Test::Rate => rate("cacheline_pingpong", cacheline()?, figure),
            Test::Bw if case.is_control() => rate("cacheline_pingpong", cacheline()?, figure),
            Test::Bw if copied => rate("memcpy_1core", copy()?, figure),
            // Nothing is moved, so there is no bandwidth to hold it against.
            Test::Bw => return Ok(None),
            Test::Lat if case.is_control() => time("cacheline_pingpong", cacheline()?, figure),
            Test::Lat if copied => time("message_64+memcpy_1core", message()? + copy()?, figure),
            Test::Lat => time("message_64", message()?, figure),
            Test::Fetch if copied => time("2*message_64+memcpy_1core", 2.0 * message()? + copy()?, figure),
            Test::Fetch => time("2*message_64", 2.0 * message()?, figure),
        }))
    }

    /// The wire on which the messages of this test are sealed as a stream; none if they are not, or it is one that
    /// nothing is known of here.
    fn sealed_stream(&self, test: Test) -> Option<&'a Wire> {
        let (wire, _) = self.wire.filter(|_| self.sealed && !self.beyond && test == Test::Bw)?;
        Some(wire)
    }

    /// Holds the figure of a sealed stream against the cipher alone on one core, measured now, in frames as long as the
    /// wire lets them be: one core seals while the other one opens. None if it is no such stream.
    ///
    /// # Errors
    /// Why this machine cannot show the limit now.
    pub fn cipher(&self, case: &Case, figure: f64) -> Result<Option<Held>, Unavailable> {
        let Some(wire) = self.sealed_stream(case.test).filter(|_| !case.is_control()) else { return Ok(None) };
        let (limit, body) = (Limit::cipher_here(), body(wire));
        let frame_ns = typical(|| limit.measure(wire, body, SHORT)?.p50_ns())?;
        Ok(Some(rate(&limit.name(), frame_ns * case.size().0 as f64 / body.0 as f64, figure)))
    }

    /// What the column says that a table has for [`Floor::cipher`]; none if it has none.
    #[must_use]
    pub fn explain_cipher(&self, test: Test) -> Option<String> {
        let (wire, limit) = (self.sealed_stream(test)?, Limit::cipher_here().name());
        let frames = format!("frames with {} B of payload", body(wire).0);
        Some(format!(
            "Cipher: bandwidth over that of {limit}, measured in the same run: one core seals {frames}, and nothing \
             else."
        ))
    }
}

/// Holds the figure of a case against the kernel's own UDP, measured now across the same wire: its small datagram, its
/// long message in trains that are placed at once, and its stream of trains; where bare rings do the same, against
/// those.
fn on_wire(
    wire: &Wire,
    ring: Option<cutthrough::Adapter>,
    case: &Case,
    figure: f64,
) -> Result<Option<Held>, Unavailable> {
    if let Some(ring) = ring
        && let Some(held) = on_ring(wire, ring, case, figure)?
    {
        return Ok(Some(held));
    }
    let small = || typical(|| udp_pingpong(wire, SHORT).map(|datagram| datagram.p50_ns));
    let long = || typical(|| udp_gso_oneway(wire, case.size(), HEADER, SHORT).map(|message| message.p50_ns));
    Ok(Some(match case.test {
        Test::Lat if case.is_control() => time("udp_pingpong", small()?, figure),
        Test::Lat => time("udp_gso_oneway_header64", long()?, figure),
        Test::Fetch => time("udp_pingpong+udp_gso_oneway_header64", small()? + long()?, figure),
        Test::Bw => {
            let bytes_per_s = typical(|| udp_gso_stream(wire, SHORT))?;
            rate("udp_gso_stream", case.size().0 as f64 / bytes_per_s * 1e9, figure)
        }
        // Many small messages share a datagram, so no datagram is their limit.
        Test::Rate => return Ok(None),
    }))
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
fn on_ring(wire: &Wire, ring: cutthrough::Adapter, case: &Case, figure: f64) -> Result<Option<Held>, Unavailable> {
    Ok(Some(match case.test {
        Test::Lat if case.is_control() => {
            let ns = typical(|| ring_pingpong(wire, ring, SHORT).map(|frame| frame.p50_ns))?;
            time(&format!("{ring}_pingpong"), ns, figure)
        }
        Test::Fetch => {
            let ns = typical(|| ring_fetch(wire, ring, case.size(), SHORT).map(|page| page.p50_ns))?;
            time(&format!("{ring}_fetch"), ns, figure)
        }
        Test::Bw => {
            let bytes_per_s = typical(|| ring_stream(wire, ring, SHORT))?;
            rate(&format!("{ring}_stream"), case.size().0 as f64 / bytes_per_s * 1e9, figure)
        }
        Test::Lat | Test::Rate => return Ok(None),
    }))
}

/// Half a round trip of a 64-byte message with default settings.
fn message(peer: &mut Peer, core: usize) -> Result<Option<f64>, Failure> {
    let options = Measure { size: vec![MESSAGE], ..Measure::default() };
    let Some(case) = Case::all(Test::Lat, &options)?.pop() else { return Ok(None) };
    let case = Case { length: Length::of(SHORT), shape: Shape { memory: Memory::Private, ..case.shape }, ..case };
    let mut rig = Rig::open(peer, case)?;
    let slices = (0..SLICES).map(|_| rig.measure(peer, core)).collect::<Result<Vec<_>, _>>()?;
    rig.close(peer)?;
    Ok(median(&slices.iter().filter_map(|slice| slice.figure(Test::Lat)).collect::<Vec<_>>()))
}

/// What is in the middle of a few measurements. On a machine that does something else, one may come to nothing: then
/// there are more of them.
fn typical(mut once: impl FnMut() -> Result<f64, Unavailable>) -> Result<f64, Unavailable> {
    let (mut slices, mut why) = (Vec::new(), String::new());
    for _ in 0..3 * SLICES {
        match once() {
            Ok(slice) => slices.push(slice),
            Err(Unavailable(reason)) => why = reason,
        }
        if slices.len() == SLICES {
            break;
        }
    }
    median(&slices).ok_or(Unavailable(why))
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

    const FLOOR: Floor<'_> =
        Floor { cacheline_ns: Ok(50.0), message_ns: Some(60.0), wire: None, beyond: false, sealed: false };

    fn against(test: Test, memory: Memory, size: u64, figure: f64) -> Option<Held> {
        FLOOR.hold(&case(test, memory, size), figure).expect("a machine that can show it")
    }

    #[test]
    fn a_message_is_held_against_the_cache_line_and_a_page_against_the_message() {
        let held = against(Test::Lat, Memory::Private, 64, 75.0).expect("a limit");
        assert_eq!((held.limit.as_str(), held.ns, held.ratio), ("cacheline_pingpong", 50.0, 1.5));
        let held = against(Test::Lat, Memory::Reference, 4096, 120.0).expect("a limit");
        assert_eq!((held.limit.as_str(), held.ratio), ("message_64", 2.0));
        let held = against(Test::Fetch, Memory::Reference, 4096, 120.0).expect("a limit");
        assert_eq!((held.limit.as_str(), held.ratio), ("2*message_64", 1.0));
    }

    #[test]
    fn what_is_copied_is_held_against_a_copy_too() {
        for memory in [Memory::Private, Memory::Pool] {
            let held = against(Test::Lat, memory, 4096, 500.0).expect("a limit");
            assert_eq!(held.limit, "message_64+memcpy_1core");
            assert!(held.ns > 60.0);
        }
        assert_eq!(against(Test::Bw, Memory::Private, 4096, 1e6).expect("a limit").limit, "memcpy_1core");
    }

    #[test]
    fn what_crosses_a_wire_is_held_against_datagrams_across_it() {
        let wire = Wire::loopback();
        let floor = Floor { wire: Some((&wire, None)), ..FLOOR };
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
            let held = floor.hold(&case(test, Memory::Private, size), 1e6).expect("two cores").expect("a limit");
            assert_eq!(held.limit, limit);
            assert!(held.ns > 0.0 && held.ratio > 0.0);
        }
        assert_eq!(floor.hold(&case(Test::Rate, Memory::Private, 64), 1e6).expect("two cores"), None);
    }

    #[test]
    fn a_sealed_stream_is_held_against_the_cipher_too() {
        let wire = Wire::loopback();
        let sealed = Floor { wire: Some((&wire, None)), sealed: true, ..FLOOR };
        let stream = case(Test::Bw, Memory::Private, 1 << 20);
        let held = sealed.cipher(&stream, 1e3).expect("one core is enough").expect("a limit");
        assert!(held.limit.starts_with("aead_") && held.ns > 0.0, "{held:?}");
        assert!((held.ratio - 1e3 * held.ns / 1e9).abs() < 1e-9, "{held:?}");
        for (floor, case) in [
            (&Floor { sealed: false, ..sealed.clone() }, &stream),
            (&Floor { beyond: true, ..sealed.clone() }, &stream),
            (&FLOOR, &stream),
            (&sealed, &case(Test::Lat, Memory::Private, 1 << 20)),
            (&sealed, &case(Test::Bw, Memory::Private, 64)),
        ] {
            assert_eq!(floor.cipher(case, 1e3), Ok(None));
        }
        for (floor, told) in [(&sealed, true), (&FLOOR, false)] {
            assert_eq!(floor.explain_cipher(Test::Bw).is_some_and(|text| text.contains("aead_")), told);
        }
    }

    #[test]
    fn what_goes_to_another_machine_is_held_against_nothing_of_this_one() {
        let wire = Wire::loopback();
        let floor = Floor { wire: Some((&wire, None)), beyond: true, ..FLOOR };
        for test in [Test::Lat, Test::Fetch, Test::Bw, Test::Rate] {
            let why = floor.hold(&case(test, Memory::Private, 8192), 1e6).unwrap_err().to_string();
            assert_eq!(why, "the other end may be on another machine");
        }
    }

    #[test]
    fn a_limit_that_cannot_be_shown_is_none_and_says_why() {
        let floor = Floor { cacheline_ns: Err(Unavailable("one core".into())), message_ns: None, ..FLOOR };
        for (test, memory) in [(Test::Rate, Memory::Private), (Test::Lat, Memory::Private)] {
            assert_eq!(floor.hold(&case(test, memory, 64), 75.0).unwrap_err().to_string(), "one core");
        }
        let (mut missing, control) = (Missing::default(), case(Test::Lat, Memory::Private, 64));
        assert_eq!(missing.or_why(&control, floor.hold(&control, 75.0)), None);
        let other = Case { shape: Shape { bytes: 8192, ..control.shape }, ..control.clone() };
        assert_eq!(missing.or_why(&other, Err(Unavailable("one core".into()))), None);
        let said = "Held against nothing: lat 64 B, lat 8 KiB: the limit cannot be measured: one core\n";
        assert_eq!(missing.to_string().replace("one\n", "one "), said);
        assert!(floor.hold(&case(Test::Lat, Memory::Reference, 4096), 75.0).is_err());
        assert_eq!(floor.hold(&case(Test::Bw, Memory::Reference, 4096), 1e6).expect("no limit at all"), None);
    }

    #[test]
    fn a_limit_while_the_machine_did_something_else_is_none() {
        let mut slices = [60.0, 5.2e6, 50.0].into_iter();
        assert_eq!(typical(|| Ok(slices.next().expect("no more than are needed"))), Ok(60.0));
        let mut slices = [Err(Unavailable("nothing".into())), Ok(60.0), Ok(50.0), Ok(70.0)].into_iter();
        assert_eq!(typical(|| slices.next().expect("no more than are needed")), Ok(60.0));
        assert_eq!(typical(|| Err(Unavailable("one core".into()))), Err(Unavailable("one core".into())));
    }

    #[test]
    fn a_rate_is_held_against_a_rate() {
        let held = against(Test::Rate, Memory::Private, 64, 60e6).expect("a limit");
        assert_eq!((held.limit.as_str(), held.ratio), ("cacheline_pingpong", 3.0));
        assert_eq!(against(Test::Bw, Memory::Reference, 4096, 1e6), None);
    }
}
