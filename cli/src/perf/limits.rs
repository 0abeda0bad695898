//! `perf limits`: what this machine can do at best, without any of the messaging.
//!
//! Each limit is a function that other tests call too, so that a result and the limit it is held against come from the
//! same run: machines are noisy, and a limit of last week proves nothing.

mod cacheline;
mod call;
mod cipher;
mod copy;
mod ring;
mod socket;
mod stream;
mod train;
mod wake;
mod wire;

pub use cacheline::{cacheline_pingpong, cacheline_pingpong_64, cacheline_pingpong_128, cacheline_shared};
pub use call::{clock_read, null_syscall, sched_yield};
pub use cipher::{aead, body};
pub use copy::{memcpy_1core, memcpy_2core, memcpy_cross};
pub use ring::{ring_fetch, ring_pingpong, ring_stream, ring_wake_rested};
pub use socket::{tcp_pingpong, udp_pingpong, udp_pingpong_sleeping, udp_wake_rested, unix_pingpong};
pub use stream::{tcp_oneway, tcp_stream};
pub use train::{udp_gso_oneway, udp_gso_stream};
use wake::message_wake_rested;
pub use wake::{
    eventfd_wake, eventfd_wake_same_core, futex_wake, futex_wake_rested, futex_wake_same_core, rest,
    sched_yield_pingpong,
};
pub use wire::Wire;

use std::fmt;
use std::io;
use std::time::Duration;

use clap::ValueEnum;
use cutthrough::Adapter;
use cutthrough_seal::Cipher;

use crate::args::LimitsArgs;
use crate::clock::{Length, round_trips};
use crate::cpu::Pair;
use crate::failure::Failure;
use crate::hint;
use crate::machine::Machine;
use crate::output::{LimitLine, Output, Times};
use crate::perf::room::NoRoom;
use crate::progress;
use crate::stats::{Quantiles, Samples, median};
use crate::table::{Table, wrapped};
use crate::units::{self, Size};

/// Across a veth pair everything is measured in turn, so often, because what others do on the machine shows there.
const ROUNDS: u32 = 5;

/// What `perf limits` can measure; named as in its JSON lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Limit {
    /// One way of an 8-byte flag between two cores, a cache line for each direction, as every queue has; both spin.
    /// A message is held against this
    CachelinePingpong,
    /// The same with one cache line for both directions, which saves taking it back: faster, but no queue can do so
    CachelineShared,
    /// One way of a 64-byte message, flag included, between two cores
    #[value(name = "cacheline_pingpong_64")]
    CachelinePingpong64,
    /// One way of a 128-byte message, flag included, between two cores
    #[value(name = "cacheline_pingpong_128")]
    CachelinePingpong128,
    /// One core copies between two hot private buffers
    #[value(name = "memcpy_1core")]
    Memcpy1core,
    /// One core copies what the other has just written
    MemcpyCross,
    /// Two cores copy at once, each between its own buffers; the sum of both
    #[value(name = "memcpy_2core")]
    Memcpy2core,
    /// One core seals bodies of frames by AES-256-GCM, the cipher where AES is in hardware; those of MTU 1500 and 9000
    #[value(name = "aead_aes256gcm")]
    AeadAes256Gcm,
    /// The same by ChaCha20-Poly1305, the cipher elsewhere
    #[value(name = "aead_chacha20poly1305")]
    AeadChaCha20Poly1305,
    /// Waking a thread that sleeps on a futex, on the other core
    FutexWake,
    /// The same after a rest of 250 us, by a thread that was awake: an idle core takes longer to wake
    FutexWakeRested,
    /// The same, in turn again, with both threads on one core
    FutexWakeSameCore,
    /// Waking a thread that sleeps on an eventfd, on the other core
    EventfdWake,
    /// The same with both threads on one core
    EventfdWakeSameCore,
    /// Two spinning threads on one core that yield to each other
    SchedYieldPingpong,
    /// One way of 64 B over the kernel's UDP, both spinning; on loopback, or across what --veth makes
    UdpPingpong,
    /// The same, both sleeping until a message is there
    UdpPingpongSleeping,
    /// Waking a thread that sleeps on a UDP socket, by a datagram of 64 B, after a rest of 250 us
    UdpWakeRested,
    /// One way of 64 B over the kernel's TCP, both spinning
    TcpPingpong,
    /// One way of a long message over the kernel's TCP, both spinning
    TcpOneway,
    /// Bytes per second of one stream of the kernel's TCP
    TcpStream,
    /// One way of a long message over UDP, many datagrams in a call, placed by scatter lists; headers of 32 B
    UdpGsoOneway,
    /// The same with headers of 64 B, as the adapter udp has them
    #[value(name = "udp_gso_oneway_header64")]
    UdpGsoOnewayHeader64,
    /// Bytes per second of UDP, many datagrams in a call
    UdpGsoStream,
    /// One way of 64 B by rings of AF_PACKET, both spinning; across what --veth makes
    PacketPingpong,
    /// One way of 64 B by rings of AF_XDP, both spinning; across what --veth makes
    XdpPingpong,
    /// Waking a thread that sleeps in poll(2) on a bare ring of AF_PACKET, by a frame of 64 B, after a rest of 250 us
    PacketWakeRested,
    /// The same on a bare ring of AF_XDP
    XdpWakeRested,
    /// Asking for a page by rings of AF_PACKET, and copying it out of the ring: a whole round trip
    PacketFetch,
    /// The same by rings of AF_XDP
    XdpFetch,
    /// Bytes per second of full frames by rings of AF_PACKET
    PacketStream,
    /// The same by rings of AF_XDP
    XdpStream,
    /// One way of 64 B over a Unix socket, both spinning
    UnixPingpong,
    /// The cheapest system call
    NullSyscall,
    /// A yield with nobody to yield to
    SchedYield,
    /// Reading the clock
    ClockRead,
}

/// What was measured of one limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// One way, or one whole operation where there is no way; absent for a sum over cores.
    pub times: Option<Quantiles>,
    /// Bytes per second at the median.
    pub bytes_per_s: Option<f64>,
}

impl Figure {
    fn rate(bytes_per_s: f64) -> Self {
        Self { times: None, bytes_per_s: Some(bytes_per_s) }
    }

    /// The median of its times.
    ///
    /// # Errors
    /// If it has none.
    pub fn p50_ns(&self) -> Result<f64, Unavailable> {
        let times = self.times.ok_or_else(|| Unavailable("nothing was measured in the time given".into()))?;
        Ok(times.p50_ns)
    }

    /// What several rounds come to: the median of them, of the shortest times the shortest. None if there are none.
    fn of(rounds: &[Self]) -> Option<Self> {
        let times: Vec<Quantiles> = rounds.iter().filter_map(|round| round.times).collect();
        let middle = |pick: fn(&Quantiles) -> f64| median(&times.iter().map(pick).collect::<Vec<_>>());
        let quantiles = || {
            Some(Quantiles {
                count: times.iter().map(|times| times.count).sum(),
                min_ns: times.iter().map(|times| times.min_ns).reduce(f64::min)?,
                p50_ns: middle(|times| times.p50_ns)?,
                p90_ns: middle(|times| times.p90_ns)?,
                p99_ns: middle(|times| times.p99_ns)?,
                p999_ns: middle(|times| times.p999_ns)?,
                mean_ns: middle(|times| times.mean_ns)?,
            })
        };
        let rates: Vec<f64> = rounds.iter().filter_map(|round| round.bytes_per_s).collect();
        let figure = Self { times: quantiles(), bytes_per_s: median(&rates) };
        (!rounds.is_empty()).then_some(figure)
    }
}

/// Why this machine cannot show a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable(pub(super) String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

impl From<io::Error> for Unavailable {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<NoRoom> for Unavailable {
    fn from(error: NoRoom) -> Self {
        Self(error.to_string())
    }
}

/// The percentiles of a limit, or why there are none.
pub type Measured = Result<Quantiles, Unavailable>;

impl Limit {
    /// What is measured across a veth pair, if nothing else is asked for.
    const ACROSS: [Self; 17] = [
        Self::UdpPingpong,
        Self::UdpPingpongSleeping,
        Self::UdpWakeRested,
        Self::TcpPingpong,
        Self::TcpOneway,
        Self::TcpStream,
        Self::UdpGsoOneway,
        Self::UdpGsoOnewayHeader64,
        Self::UdpGsoStream,
        Self::PacketPingpong,
        Self::XdpPingpong,
        Self::PacketWakeRested,
        Self::XdpWakeRested,
        Self::PacketFetch,
        Self::XdpFetch,
        Self::PacketStream,
        Self::XdpStream,
    ];

    /// The cipher that seals the frames of two ends on this machine.
    #[must_use]
    pub fn cipher_here() -> Self {
        match Cipher::fast_here() {
            Cipher::Aes256Gcm => Self::AeadAes256Gcm,
            Cipher::ChaCha20Poly1305 => Self::AeadChaCha20Poly1305,
        }
    }

    /// Whether it is one of rings of AF_XDP.
    fn is_xdp(self) -> bool {
        matches!(self, Self::XdpPingpong | Self::XdpWakeRested | Self::XdpFetch | Self::XdpStream)
    }

    /// Whether it is measured for each size.
    #[must_use]
    pub fn has_size(self) -> bool {
        !self.sizes().is_empty()
    }

    /// The sizes for which it is measured if none are given.
    fn sizes(self) -> &'static [Size] {
        match self {
            Self::Memcpy1core | Self::MemcpyCross | Self::Memcpy2core => {
                &[Size(4 << 10), Size(8 << 10), Size(64 << 10), Size(1 << 20), Size(4 << 20)]
            }
            Self::AeadAes256Gcm | Self::AeadChaCha20Poly1305 => &[Size(1408), Size(8908)],
            Self::TcpOneway | Self::UdpGsoOneway | Self::UdpGsoOnewayHeader64 => {
                &[Size(8 << 10), Size(64 << 10), Size(1 << 20)]
            }
            Self::PacketFetch | Self::XdpFetch => &[Size(8 << 10)],
            _ => &[],
        }
    }

    /// The name on the command line and in JSON lines.
    #[must_use]
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The bytes of one operation, of those limits that have a fixed number.
    fn fixed_size(self) -> Option<Size> {
        match self {
            Self::CachelinePingpong | Self::CachelineShared => Some(Size(8)),
            Self::CachelinePingpong64
            | Self::UdpPingpong
            | Self::UdpPingpongSleeping
            | Self::UdpWakeRested
            | Self::TcpPingpong
            | Self::PacketPingpong
            | Self::XdpPingpong
            | Self::PacketWakeRested
            | Self::XdpWakeRested
            | Self::UnixPingpong => Some(Size(64)),
            Self::CachelinePingpong128 => Some(Size(128)),
            _ => None,
        }
    }

    /// Measures it for about `duration`; `size` matters only if [`Limit::has_size`], `wire` only to the kernel's
    /// network.
    ///
    /// # Errors
    /// If this machine cannot show it.
    pub fn measure(self, wire: &Wire, size: Size, duration: Duration) -> Result<Figure, Unavailable> {
        let quantiles = match self {
            Self::CachelinePingpong => cacheline_pingpong(duration),
            Self::CachelineShared => cacheline_shared(duration),
            Self::CachelinePingpong64 => cacheline_pingpong_64(duration),
            Self::CachelinePingpong128 => cacheline_pingpong_128(duration),
            Self::Memcpy1core => memcpy_1core(size, duration),
            Self::MemcpyCross => memcpy_cross(size, duration),
            Self::Memcpy2core => return memcpy_2core(size, duration).map(Figure::rate),
            Self::AeadAes256Gcm => aead(Cipher::Aes256Gcm, size, duration),
            Self::AeadChaCha20Poly1305 => aead(Cipher::ChaCha20Poly1305, size, duration),
            Self::FutexWake => futex_wake(duration),
            Self::FutexWakeRested => futex_wake_rested(duration),
            Self::FutexWakeSameCore => futex_wake_same_core(duration),
            Self::EventfdWake => eventfd_wake(duration),
            Self::EventfdWakeSameCore => eventfd_wake_same_core(duration),
            Self::SchedYieldPingpong => sched_yield_pingpong(duration),
            Self::UdpPingpong => udp_pingpong(wire, duration),
            Self::UdpPingpongSleeping => udp_pingpong_sleeping(wire, duration),
            Self::UdpWakeRested => udp_wake_rested(wire, duration),
            Self::TcpPingpong => tcp_pingpong(wire, duration),
            Self::TcpOneway => tcp_oneway(wire, size, duration),
            Self::TcpStream => return tcp_stream(wire, duration).map(Figure::rate),
            Self::UdpGsoOneway => udp_gso_oneway(wire, size, 32, duration),
            Self::UdpGsoOnewayHeader64 => udp_gso_oneway(wire, size, 64, duration),
            Self::UdpGsoStream => return udp_gso_stream(wire, duration).map(Figure::rate),
            Self::PacketPingpong => ring_pingpong(wire, Adapter::Packet, duration),
            Self::XdpPingpong => ring_pingpong(wire, Adapter::Xdp, duration),
            Self::PacketWakeRested => ring_wake_rested(wire, Adapter::Packet, duration),
            Self::XdpWakeRested => ring_wake_rested(wire, Adapter::Xdp, duration),
            Self::PacketFetch => ring_fetch(wire, Adapter::Packet, size, duration),
            Self::XdpFetch => ring_fetch(wire, Adapter::Xdp, size, duration),
            Self::PacketStream => return ring_stream(wire, Adapter::Packet, duration).map(Figure::rate),
            Self::XdpStream => return ring_stream(wire, Adapter::Xdp, duration).map(Figure::rate),
            Self::UnixPingpong => unix_pingpong(duration),
            Self::NullSyscall => null_syscall(duration),
            Self::SchedYield => sched_yield(duration),
            Self::ClockRead => clock_read(duration),
        }?;
        Ok(Figure { times: Some(quantiles), bytes_per_s: self.has_size().then(|| rate(size, quantiles.p50_ns)) })
    }
}

/// Bytes per second of `size` bytes in `ns`.
fn rate(size: Size, ns: f64) -> f64 {
    size.0 as f64 / ns * 1e9
}

/// Two cores, or why there are not two.
fn two_cores() -> Result<Pair, Unavailable> {
    Pair::apart().ok_or_else(|| Unavailable("needs two cores, and this process may use only one".into()))
}

/// The percentiles of what was measured; `share` is how many ways or operations one sample holds.
fn percentiles(samples: &Samples, share: f64) -> Measured {
    samples.quantiles(share).ok_or_else(|| Unavailable("nothing was measured in the time given".into()))
}

/// Round trips of two threads: see [`round_trips`].
fn turns(
    duration: Duration,
    mut send: impl FnMut() -> io::Result<()>,
    mut receive: impl FnMut() -> io::Result<()>,
) -> io::Result<Samples> {
    round_trips(Length::of(duration), &mut (), |()| send(), |()| receive())
}

/// One way, from what both sides of a round-trip test returned.
fn one_way(sides: io::Result<(io::Result<Samples>, io::Result<()>)>) -> Measured {
    let (samples, answered) = sides?;
    let samples = samples?;
    answered?;
    percentiles(&samples, 2.0)
}

/// Measures what the command line asks for, and prints it.
///
/// # Errors
/// If the output cannot be written, or a size of 0 is asked for. A limit that this machine cannot show is printed as
/// such and is no error.
pub fn run(args: &LimitsArgs, output: Output) -> Result<(), Failure> {
    let plan = plan(args)?;
    let mode = args.xdp_mode.unwrap_or_default();
    let wire = args.veth.map_or(Ok(Wire::loopback()), Wire::veth)?.in_mode(mode);
    let rounds = if args.veth.is_some() { ROUNDS } else { 1 };
    let duration = Duration::from_secs_f64(args.seconds) / rounds;
    let machine = Machine::here();
    let bar = progress::bar(plan.len() * rounds as usize);
    let mut table = Table::new(&["limit", "size", "min", "p50", "p99", "bandwidth"]);
    let mut missing = Vec::new();
    let mut measured = vec![Vec::new(); plan.len()];
    for round in 1..=rounds {
        for (&(limit, size), results) in plan.iter().zip(&mut measured) {
            bar.set_message(limit.name());
            results.push(limit.measure(&wire, size.unwrap_or(Size(0)), duration));
            bar.inc(1);
            if round < rounds {
                continue;
            }
            let measured = summed(results);
            let line = line(limit, size, measured.as_ref(), &machine);
            let xdp_mode = mode.chosen().filter(|_| limit.is_xdp());
            output.line(&LimitLine { veth: args.veth, xdp_mode, ..line })?;
            match measured {
                Ok(figure) => table.row(cells(limit, size, &figure)),
                Err(why) => missing.push((limit.name(), why.to_string())),
            }
        }
    }
    bar.finish_and_clear();
    if let Some((name, why)) = missing.first().filter(|_| missing.len() == plan.len()) {
        return Err(Failure::from_error(&format!("{name}: {why}"), "ask for other limits"));
    }
    output.say(&format!(
        "{}\n\n{table}\n{}\nTimes of one way between two threads, or of one whole operation.\n\
         What each is: {}",
        wrapped(&machine.to_string()),
        absent(&missing),
        hint::command("perf limits --help")
    ))
}

/// What could not be measured, a line for each reason.
fn absent(missing: &[(String, String)]) -> String {
    let (mut reasons, mut text) = (Vec::new(), String::new());
    for (_, reason) in missing {
        if reasons.contains(&reason) {
            continue;
        }
        reasons.push(reason);
        let names: Vec<&str> = missing.iter().filter(|(_, why)| why == reason).map(|(name, _)| name.as_str()).collect();
        text.push_str(&format!("\n{}\n", wrapped(&format!("Not measured: {}: {reason}", names.join(", ")))));
    }
    text
}

/// What the rounds of a limit come to; if none of them showed it, why the last one did not.
fn summed(rounds: &[Result<Figure, Unavailable>]) -> Result<Figure, Unavailable> {
    let shown: Vec<Figure> = rounds.iter().filter_map(|round| round.as_ref().ok().copied()).collect();
    let why = rounds.iter().rev().find_map(|round| round.as_ref().err());
    Figure::of(&shown).ok_or_else(|| why.cloned().unwrap_or_else(|| Unavailable("it was not measured".into())))
}

/// What to measure, in order: each limit, and each size of those that have sizes.
fn plan(args: &LimitsArgs) -> Result<Vec<(Limit, Option<Size>)>, Failure> {
    if args.size.contains(&Size(0)) {
        return Err(Failure::new("a copy of 0 bytes cannot be measured", "give --size of 1 or more"));
    }
    let limits = match args.limits.as_slice() {
        [] if args.veth.is_some() => Limit::ACROSS.as_slice(),
        [] => Limit::value_variants(),
        some => some,
    };
    let sizes = |&limit: &Limit| -> Vec<(Limit, Option<Size>)> {
        if limit.has_size() {
            let sizes = if args.size.is_empty() { limit.sizes() } else { &args.size };
            sizes.iter().map(|&size| (limit, Some(size))).collect()
        } else {
            vec![(limit, limit.fixed_size())]
        }
    };
    if args.xdp_mode.is_some() && (args.veth.is_none() || !limits.iter().any(|limit| limit.is_xdp())) {
        return Err(Failure::new(
            "--xdp-mode is that of bare rings of AF_XDP across a veth pair, and none is measured",
            "give --veth 1500, too, or leave --xdp-mode away",
        ));
    }
    Ok(limits.iter().flat_map(sizes).collect())
}

fn line(limit: Limit, size: Option<Size>, measured: Result<&Figure, &Unavailable>, machine: &Machine) -> LimitLine {
    let times = measured.ok().and_then(|figure| figure.times);
    LimitLine {
        test: "limits",
        limit: limit.name(),
        size: size.map(|size| size.0),
        count: times.map(|times| times.count),
        times: times.as_ref().map(Times::from).unwrap_or_default(),
        bytes_per_s: measured.ok().and_then(|figure| figure.bytes_per_s),
        unavailable: measured.err().map(ToString::to_string),
        veth: None,
        xdp_mode: None,
        machine: machine.clone(),
    }
}

fn cells(limit: Limit, size: Option<Size>, figure: &Figure) -> Vec<String> {
    let time = |pick: fn(&Quantiles) -> f64| {
        let times = figure.times.as_ref();
        times.map_or_else(String::new, |times| units::time(pick(times)))
    };
    vec![
        limit.name(),
        size.map_or_else(String::new, |size| size.to_string()),
        time(|times| times.min_ns),
        time(|times| times.p50_ns),
        time(|times| times.p99_ns),
        figure.bytes_per_s.map_or_else(String::new, units::bandwidth),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(10);

    fn args(limits: &[Limit]) -> LimitsArgs {
        let size = vec![Size(64), Size(8192)];
        LimitsArgs { limits: limits.to_vec(), size, seconds: 0.01, veth: None, xdp_mode: None }
    }

    #[test]
    fn every_limit_is_measured_or_says_why_not() {
        for &limit in Limit::value_variants() {
            match limit.measure(&Wire::loopback(), Size(4096), SHORT) {
                Ok(figure) => assert!(figure.times.is_some() || figure.bytes_per_s.is_some(), "{limit:?}"),
                Err(why) => assert!(!why.to_string().is_empty(), "{limit:?}"),
            }
        }
    }

    #[test]
    fn sizes_multiply_only_the_limits_that_have_sizes() {
        let plan = plan(&args(&[Limit::FutexWake, Limit::Memcpy1core])).expect("good sizes");
        assert_eq!(
            plan,
            [(Limit::FutexWake, None), (Limit::Memcpy1core, Some(Size(64))), (Limit::Memcpy1core, Some(Size(8192))),]
        );
    }

    #[test]
    fn all_limits_are_the_default() {
        let all = plan(&args(&[])).expect("good sizes");
        let with_size = Limit::value_variants().iter().filter(|limit| limit.has_size()).count();
        assert_eq!(all.len(), Limit::value_variants().len() + with_size);
        let across = LimitsArgs { veth: Some(1500), size: Vec::new(), ..args(&[]) };
        assert_eq!(plan(&across).expect("good sizes").len(), 5 + 3 * 3 + 9);
    }

    #[test]
    fn rounds_come_to_their_median() {
        let round = |ns| {
            let mut samples = Samples::new();
            samples.record(ns);
            Ok(Figure { times: samples.quantiles(1.0), bytes_per_s: Some(1e9 / ns as f64) })
        };
        let lost = || Err(Unavailable("a message was lost".into()));
        let figure = summed(&[round(30), lost(), round(10), round(20)]).expect("three rounds");
        let times = figure.times.expect("times");
        assert_eq!((times.count, times.min_ns, times.p50_ns), (3, 10.0, 20.0));
        assert_eq!(figure.bytes_per_s, Some(5e7));
        assert_eq!(summed(&[lost()]), Err(Unavailable("a message was lost".into())));
    }

    #[test]
    fn a_size_of_nothing_is_refused() {
        let mut args = args(&[]);
        args.size.push(Size(0));
        assert!(plan(&args).is_err());
    }

    #[test]
    fn names_are_those_of_the_contract() {
        let names: Vec<String> = Limit::value_variants().iter().map(|l| l.name()).collect();
        for name in [
            "cacheline_pingpong",
            "memcpy_1core",
            "memcpy_2core",
            "futex_wake",
            "udp_pingpong",
            "unix_pingpong",
            "aead_aes256gcm",
        ] {
            assert!(names.iter().any(|other| other == name), "{name}");
        }
    }

    #[test]
    fn an_unavailable_limit_is_a_line_without_figures() {
        let why = Unavailable("needs two cores".into());
        let line = line(Limit::CachelinePingpong, Some(Size(8)), Err(&why), &Machine::default());
        let text = serde_json::to_string(&line).expect("serializable");
        assert!(
            text.starts_with(
                r#"{"test":"limits","limit":"cacheline_pingpong","size":8,"unavailable":"needs two cores","machine""#
            ),
            "{text}"
        );
    }
}
