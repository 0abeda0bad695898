//! What a result is held against: limits of this machine, a slice of them at a time, so that each lies beside the time
//! that it judges.

use std::time::{Duration, Instant};

use super::ask::Shape;
use super::case::{Case, Rig, Test};
use super::limits::{Figure, Limit, Unavailable, Wire, body};
use super::peer::Peer;
use super::way::Way;
use crate::args::{Adapter, Measure, Memory};
use crate::clock::Length;
use crate::failure::Failure;
use crate::units::Size;

/// How long a limit is measured for one result, in as many slices as there are rounds.
pub const LIMIT: Duration = Duration::from_millis(150);

/// What takes longer than this is not done again where once will do: of the longest messages a single one does.
pub const LONG: Duration = Duration::from_secs(1);

/// How often a slice is tried that comes to nothing, as one may on a machine that does something else.
const TRIES: u32 = 3;

/// The 64-byte message that others are held against.
const MESSAGE: Size = Size(64);

/// The limits of this machine for messages that go one way.
#[derive(Debug)]
pub struct Floor<'a> {
    core: usize,
    /// What messages cross, if they do not stay in the memory of the machine: then the kernel's own datagrams across
    /// the same wire are the limits, and bare rings where the adapter is one.
    wire: Option<&'a Wire>,
    adapter: Adapter,
    /// Whether that wire is none that can be measured here.
    beyond: bool,
    /// Whether frames are sealed there.
    sealed: bool,
    /// The lane of the 64-byte message, since it was first needed.
    message: Option<Rig>,
}

/// The limit of a case: the times of its parts together.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// How often half a round trip of a 64-byte message.
    messages: u32,
    /// Other limits, and the bytes for which each is measured.
    parts: Vec<(Limit, Size)>,
    /// Bytes of one message of the case.
    size: Size,
    /// Whether it is the limit of a time, and not of a rate.
    pub is_time: bool,
}

impl Bar {
    /// Its name: limits of `perf limits`, `message_64` for half a round trip of a 64-byte message, or a sum.
    #[must_use]
    pub fn name(&self) -> String {
        let message = match self.messages {
            0 => None,
            1 => Some("message_64".into()),
            times => Some(format!("{times}*message_64")),
        };
        message.into_iter().chain(self.parts.iter().map(|(limit, _)| limit.name())).collect::<Vec<_>>().join("+")
    }
}

impl<'a> Floor<'a> {
    /// The limits of this way, as seen from `core`.
    #[must_use]
    pub fn of(way: &'a Way, core: usize) -> Self {
        let wire = (way.adapter != Adapter::Shm).then_some(&way.wire);
        let (adapter, beyond, sealed) = (way.adapter, way.beyond, way.sealed() == Some(true));
        Self { core, wire, adapter, beyond, sealed, message: None }
    }

    /// What a case is held against. None if there is no such limit.
    ///
    /// # Errors
    /// Why its limit cannot be measured at all.
    pub fn bar(&self, case: &Case) -> Result<Option<Bar>, Unavailable> {
        if self.beyond {
            return Err(Unavailable("the other end may be on another machine".into()));
        }
        let (messages, limits) = match if self.wire.is_some() { self.on_wire(case) } else { in_memory(case) } {
            (0, []) => return Ok(None),
            needed => needed,
        };
        let parts = limits.iter().map(|limit| (*limit, case.size())).collect();
        Ok(Some(Bar { messages, parts, size: case.size(), is_time: case.test.is_time() }))
    }

    /// The kernel's own UDP across the same wire: its small datagram, its long message in trains that are placed at
    /// once, and its stream of trains; where bare rings do the same, those.
    fn on_wire(&self, case: &Case) -> (u32, &'static [Limit]) {
        let limits: &[Limit] = match (self.adapter, case.test) {
            // Many small messages share a datagram, so no datagram is their limit.
            (_, Test::Rate) => &[],
            (Adapter::Packet, Test::Lat) if case.is_control() => &[Limit::PacketPingpong],
            (Adapter::Packet, Test::Fetch) => &[Limit::PacketFetch],
            (Adapter::Packet, Test::Bw) => &[Limit::PacketStream],
            (Adapter::Xdp, Test::Lat) if case.is_control() => &[Limit::XdpPingpong],
            (Adapter::Xdp, Test::Fetch) => &[Limit::XdpFetch],
            (Adapter::Xdp, Test::Bw) => &[Limit::XdpStream],
            (_, Test::Lat) if case.is_control() => &[Limit::UdpPingpong],
            (_, Test::Lat) => &[Limit::UdpGsoOnewayHeader64],
            (_, Test::Fetch) => &[Limit::UdpPingpong, Limit::UdpGsoOnewayHeader64],
            (_, Test::Bw) => &[Limit::UdpGsoStream],
        };
        (0, limits)
    }

    /// The wire on which the messages of this test are sealed as a stream; none if they are not, or it is one that
    /// nothing is known of here.
    fn sealed_stream(&self, test: Test) -> Option<&'a Wire> {
        self.wire.filter(|_| self.sealed && !self.beyond && test == Test::Bw)
    }

    /// What a sealed stream is held against beside its limit: the cipher alone on one core, in frames as long as the
    /// wire lets them be: one core seals while the other one opens. None if it is no such stream.
    #[must_use]
    pub fn cipher(&self, case: &Case) -> Option<Bar> {
        let wire = self.sealed_stream(case.test).filter(|_| !case.is_control())?;
        Some(Bar { messages: 0, parts: vec![(Limit::cipher_here(), body(wire))], size: case.size(), is_time: false })
    }

    /// What the column says that a table has for [`Floor::cipher`]; none if it has none.
    #[must_use]
    pub fn explain_cipher(&self, test: Test) -> Option<String> {
        let (wire, limit) = (self.sealed_stream(test)?, Limit::cipher_here().name());
        let frames = format!("frames with {} B of payload", body(wire).0);
        Some(format!(
            "Cipher: bandwidth over that of {limit}, measured in turn with it: one core seals {frames}, and nothing \
             else."
        ))
    }

    /// Whether the lane of a case has to be closed while limits of this way are measured: its rings would see their
    /// frames, too, or leave them no queue of the interface.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        !self.beyond && matches!(self.adapter, Adapter::Packet | Adapter::Xdp | Adapter::Net)
    }

    /// Measures a limit for a while: nanoseconds for one message of its case. What comes to nothing is measured again,
    /// unless that has taken long.
    ///
    /// # Errors
    /// If the other end goes away; within, why this machine cannot show the limit now.
    pub fn slice(&mut self, peer: &mut Peer, bar: &Bar, time: Duration) -> Result<Result<f64, Unavailable>, Failure> {
        if self.is_alone() {
            // Whoever answers has closed what it was told to close before.
            peer.cpu_time()?;
        }
        let mut ns = 0.0;
        if bar.messages > 0 {
            match self.message(peer, time)? {
                Some(message) => ns += f64::from(bar.messages) * message,
                None => return Ok(Err(Unavailable("no message has come back".into()))),
            }
        }
        let loopback = Wire::loopback();
        let wire = self.wire.unwrap_or(&loopback);
        for &(limit, bytes) in &bar.parts {
            let nothing = || Unavailable("nothing was measured in the time given".into());
            let measure = || nanoseconds(&limit.measure(wire, bytes, time)?, bytes, bar.size).ok_or_else(nothing);
            match again(measure) {
                Ok(part) => ns += part,
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(ns))
    }

    /// Half a round trip of a 64-byte message with default settings.
    fn message(&mut self, peer: &mut Peer, time: Duration) -> Result<Option<f64>, Failure> {
        let rig = match &mut self.message {
            Some(rig) => rig,
            message => {
                let options = Measure { size: vec![MESSAGE], ..Measure::default() };
                let Some(case) = Case::all(Test::Lat, &options)?.pop() else { return Ok(None) };
                let shape = Shape { memory: Memory::Private, ..case.shape };
                message.insert(Rig::open(peer, Case { shape, ..case })?)
            }
        };
        Ok(rig.measure_as(peer, self.core, Test::Lat, Length::of(time))?.figure(Test::Lat))
    }

    /// Closes what was opened for limits.
    ///
    /// # Errors
    /// If the other end has gone.
    pub fn close(self, peer: &mut Peer) -> Result<(), Failure> {
        self.message.map_or(Ok(()), |rig| rig.close(peer))
    }
}

/// The memory of this machine alone: a cache line for what is a control message, a message of 64 bytes where a page
/// goes by reference, and a copy beside it where it is copied.
fn in_memory(case: &Case) -> (u32, &'static [Limit]) {
    let copied: &[Limit] = if case.shape.memory == Memory::Reference { &[] } else { &[Limit::Memcpy1core] };
    match case.test {
        Test::Rate => (0, &[Limit::CachelinePingpong]),
        Test::Lat | Test::Bw if case.is_control() => (0, &[Limit::CachelinePingpong]),
        // By reference nothing is moved, so there is no bandwidth to hold it against.
        Test::Bw => (0, copied),
        Test::Lat => (1, copied),
        Test::Fetch => (2, copied),
    }
}

/// Nanoseconds that a limit takes for `size` bytes, if it was measured with `bytes` in each operation: a cipher takes
/// them for each frame, and a stream as long as its bytes do.
fn nanoseconds(figure: &Figure, bytes: Size, size: Size) -> Option<f64> {
    let of_times = figure.times.map(|times| times.p50_ns * (size.0 as f64 / bytes.0 as f64));
    of_times.or(figure.bytes_per_s.map(|rate| size.0 as f64 / rate * 1e9))
}

/// Tries again what comes to nothing, unless it takes long.
fn again<R>(mut once: impl FnMut() -> Result<R, Unavailable>) -> Result<R, Unavailable> {
    let begun = Instant::now();
    for _ in 1..TRIES {
        let tried = once();
        if tried.is_ok() || begun.elapsed() > LONG {
            return tried;
        }
    }
    once()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(test: Test, memory: Memory, size: u64) -> Case {
        let options = Measure { size: vec![Size(size)], memory: Some(memory), ..Measure::default() };
        Case::all(test, &options).expect("good options").remove(0)
    }

    const MEMORY: Floor<'_> =
        Floor { core: 0, wire: None, adapter: Adapter::Shm, beyond: false, sealed: false, message: None };

    const LOOPBACK: &Wire = &Wire::loopback();

    fn wired(adapter: Adapter) -> Floor<'static> {
        Floor { wire: Some(LOOPBACK), adapter, ..MEMORY }
    }

    fn against(floor: &Floor<'_>, test: Test, memory: Memory, size: u64) -> String {
        floor.bar(&case(test, memory, size)).expect("this machine").map_or_else(|| "nothing".into(), |bar| bar.name())
    }

    #[test]
    fn a_message_is_held_against_the_cache_line_and_a_page_against_the_message() {
        let name = |test, memory, size| against(&MEMORY, test, memory, size);
        assert_eq!(name(Test::Lat, Memory::Private, 64), "cacheline_pingpong");
        assert_eq!(name(Test::Rate, Memory::Private, 64), "cacheline_pingpong");
        assert_eq!(name(Test::Bw, Memory::Private, 64), "cacheline_pingpong");
        assert_eq!(name(Test::Lat, Memory::Reference, 4096), "message_64");
        assert_eq!(name(Test::Fetch, Memory::Reference, 4096), "2*message_64");
    }

    #[test]
    fn what_is_copied_is_held_against_a_copy_too() {
        let name = |test, memory| against(&MEMORY, test, memory, 4096);
        for memory in [Memory::Private, Memory::Pool] {
            assert_eq!(name(Test::Lat, memory), "message_64+memcpy_1core");
            assert_eq!(name(Test::Fetch, memory), "2*message_64+memcpy_1core");
            assert_eq!(name(Test::Bw, memory), "memcpy_1core");
        }
        assert_eq!(name(Test::Bw, Memory::Reference), "nothing");
    }

    #[test]
    fn what_crosses_a_wire_is_held_against_datagrams_or_rings_across_it() {
        for (adapter, test, size, limit) in [
            (Adapter::Udp, Test::Lat, 64, "udp_pingpong"),
            (Adapter::Udp, Test::Lat, 8192, "udp_gso_oneway_header64"),
            (Adapter::Net, Test::Fetch, 8192, "udp_pingpong+udp_gso_oneway_header64"),
            (Adapter::Udp, Test::Bw, 8192, "udp_gso_stream"),
            (Adapter::Udp, Test::Rate, 64, "nothing"),
            (Adapter::Packet, Test::Lat, 64, "packet_pingpong"),
            (Adapter::Packet, Test::Lat, 8192, "udp_gso_oneway_header64"),
            (Adapter::Packet, Test::Bw, 8192, "packet_stream"),
            (Adapter::Xdp, Test::Lat, 64, "xdp_pingpong"),
            (Adapter::Xdp, Test::Fetch, 8192, "xdp_fetch"),
            (Adapter::Xdp, Test::Bw, 8192, "xdp_stream"),
            (Adapter::Xdp, Test::Rate, 64, "nothing"),
        ] {
            assert_eq!(against(&wired(adapter), test, Memory::Private, size), limit, "{adapter:?} {test:?}");
        }
        assert_eq!([Adapter::Xdp, Adapter::Net].map(|adapter| wired(adapter).is_alone()), [true; 2]);
        assert!(!wired(Adapter::Udp).is_alone() && !MEMORY.is_alone());
    }

    #[test]
    fn a_sealed_stream_is_held_against_the_cipher_too() {
        let sealed = || Floor { sealed: true, ..wired(Adapter::Udp) };
        let stream = case(Test::Bw, Memory::Private, 1 << 20);
        let bar = sealed().cipher(&stream).expect("a limit");
        assert!(bar.name().starts_with("aead_") && !bar.is_time, "{bar:?}");
        for (floor, case) in [
            (Floor { sealed: false, ..sealed() }, &stream),
            (Floor { beyond: true, ..sealed() }, &stream),
            (MEMORY, &stream),
            (sealed(), &case(Test::Lat, Memory::Private, 1 << 20)),
            (sealed(), &case(Test::Bw, Memory::Private, 64)),
        ] {
            assert_eq!(floor.cipher(case), None);
        }
        for (floor, told) in [(sealed(), true), (MEMORY, false)] {
            assert_eq!(floor.explain_cipher(Test::Bw).is_some_and(|text| text.contains("aead_")), told);
        }
    }

    #[test]
    fn what_goes_to_another_machine_is_held_against_nothing_of_this_one() {
        let floor = Floor { beyond: true, ..wired(Adapter::Udp) };
        for test in [Test::Lat, Test::Fetch, Test::Bw, Test::Rate] {
            let why = floor.bar(&case(test, Memory::Private, 8192)).unwrap_err().to_string();
            assert_eq!(why, "the other end may be on another machine");
        }
    }

    #[test]
    fn a_limit_counts_for_the_bytes_of_a_message() {
        let rate = |bytes_per_s| Figure { times: None, bytes_per_s: Some(bytes_per_s) };
        assert_eq!(nanoseconds(&rate(2e9), Size(8192), Size(8192)), Some(4096.0));
        let mut samples = crate::stats::Samples::new();
        samples.record(500);
        let times = Figure { times: samples.quantiles(1.0), bytes_per_s: None };
        assert_eq!(nanoseconds(&times, Size(8192), Size(8192)), Some(500.0));
        // A message in four frames.
        assert_eq!(nanoseconds(&times, Size(2048), Size(8192)), Some(2000.0));
    }

    #[test]
    fn what_comes_to_nothing_is_tried_again() {
        let lost = || Err(Unavailable("lost".into()));
        let mut tries = [lost(), lost(), Ok(60.0)].into_iter();
        assert_eq!(again(|| tries.next().expect("no more than are needed")), Ok(60.0));
        let mut tries = [Ok(50.0)].into_iter();
        assert_eq!(again(|| tries.next().expect("no more than are needed")), Ok(50.0));
        let mut count = 0;
        let never = again(|| {
            count += 1;
            lost().map(|never: f64| never)
        });
        assert_eq!((never, count), (lost(), TRIES));
    }
}
