//! `perf idle`: what an endpoint costs that has nothing to do, what idle channels cost a busy one, and how two ends get
//! on that have to share a core.

use std::time::Duration;

use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use super::case::{Case, Rig, Test};
use super::incast::kernel::resident;
use super::limits::sched_yield_pingpong;
use super::peer::{Peer, cores};
use super::serve::cpu_time;
use super::way::Way;
use crate::args::{Across, Adapter, Measure, seconds};
use crate::clock::Length;
use crate::cpu::Pair;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::output::{Output, tenths, thousandths};
use crate::progress;
use crate::stats::median;
use crate::table::Table;
use crate::units::{self, Size};

/// Endpoints whose memory is measured together.
const ENDPOINTS: u32 = 16;

/// How often the latency with one channel and with many is measured in turn, and how long each time.
const ROUNDS: u32 = 15;
const ROUND: Duration = Duration::from_millis(20);

/// How long two ends share a core.
const SHARED: Duration = Duration::from_millis(500);

/// Options of `perf idle`.
#[derive(Args, Debug)]
pub struct IdleArgs {
    /// Seconds for which an idle endpoint is watched
    #[arg(long, value_name = "N", value_parser = seconds, default_value_t = 5.0)]
    pub seconds: f64,

    /// Channels of one endpoint whose memory is measured, and that are idle while one of them is used
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4000), default_value_t = 1000)]
    pub channels: u32,

    /// What lies between the two ends.
    #[command(flatten)]
    pub across: Across,
}

/// Everything that `perf idle` finds.
#[derive(Clone, Debug, Default, Serialize)]
struct IdleLine {
    test: &'static str,
    adapter: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    veth: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sealed: Option<bool>,
    /// How long both ends had nothing to do.
    seconds: f64,
    /// Processor time that this end used meanwhile, asleep in `wait`.
    cpu_ns: u64,
    /// Processor time that the other end used meanwhile, asleep on its file descriptor.
    peer_cpu_ns: u64,
    /// Resident memory of an endpoint with default settings and one channel.
    endpoint_bytes: u64,
    /// Idle channels of the busy endpoint.
    channels: u32,
    /// Resident memory of an idle channel at this end: what opening an endpoint with `channels` of them took, divided
    /// by their number.
    channel_bytes: u64,
    /// Median of half a round trip of a 64-byte message with one channel.
    latency_one_ns: f64,
    /// The same with `channels` channels.
    latency_channels_ns: f64,
    /// The second over the first.
    latency_ratio: f64,
    /// Round trips per second of two ends that spin on one core.
    one_core_round_trips_per_s: f64,
    /// Half a round trip of theirs.
    one_core_ns: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_to_limit: Option<f64>,
    machine: Machine,
}

/// Measures all of it and prints it.
///
/// # Errors
/// If the other end cannot be started or goes away, or this process may not open as many channels.
pub fn run(args: &IdleArgs, output: Output) -> Result<(), Failure> {
    if args.across.net_xdp {
        return Err(Failure::new("perf idle leaves the rings of the adapter net alone", "leave --net-xdp away"));
    }
    if args.across.placement.is_some() {
        return Err(Failure::new("perf idle sends no payloads to be placed", "leave --placement away"));
    }
    if args.across.adapter(None)? == Adapter::Xdp {
        return Err(Failure::new(
            "perf idle opens many endpoints at a time, and a queue of an interface has one ring of AF_XDP",
            "give --adapter packet or --adapter udp",
        ));
    }
    raise_open_files();
    let mut line = IdleLine { test: "idle", seconds: args.seconds, channels: args.channels, ..IdleLine::default() };
    line.machine = Machine::here();
    let bar = progress::bar(4);
    let way = Way::own(&args.across)?;
    (line.adapter, line.veth, line.sealed) = (way.adapter.name(), way.veth(), way.sealed());
    let mut peer = Peer::start(cores().second, &way)?;
    bar.set_message("memory");
    (line.endpoint_bytes, line.channel_bytes) = memory(&mut peer, args.channels)?;
    bar.inc(1);
    bar.set_message("processor");
    (line.cpu_ns, line.peer_cpu_ns) = processor(&mut peer, Duration::from_secs_f64(args.seconds))?;
    bar.inc(1);
    bar.set_message(format!("{} channels", args.channels));
    [line.latency_one_ns, line.latency_channels_ns, line.latency_ratio] = channels(&mut peer, args.channels)?;
    bar.inc(1);
    bar.set_message("one core");
    drop(peer);
    line.one_core_ns = one_core(&way)?;
    line.one_core_round_trips_per_s = tenths(5e8 / line.one_core_ns);
    if let Ok(limit) = sched_yield_pingpong(SHARED) {
        line.limit = Some("sched_yield_pingpong");
        line.limit_ns = Some(tenths(limit.p50_ns));
        line.ratio_to_limit = Some(thousandths(line.one_core_ns / limit.p50_ns));
    }
    bar.finish_and_clear();
    output.line(&line)?;
    output.say(&format!("{}\n\n{}", way.head(&line.machine), text(&line)))
}

/// A file descriptor for each channel has to be allowed; the other end inherits what is.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // If it may not be raised, opening the channels says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// A 64-byte message with default settings.
fn case() -> Result<Case, Failure> {
    let options = Measure { size: vec![Size(64)], ..Measure::default() };
    let case = Case::all(Test::Lat, &options)?.pop();
    case.map(|case| Case { length: Length::of(ROUND), ..case }).ok_or_else(|| Failure::new("no case", "report this"))
}

/// Bytes of resident memory that one endpoint with one channel adds to this process, and one channel of many. All are
/// open at once, because an endpoint would grow into what another one has left behind.
fn memory(peer: &mut Peer, channels: u32) -> Result<(u64, u64), Failure> {
    let before = resident();
    let mut rigs = Vec::new();
    for _ in 0..ENDPOINTS {
        rigs.push(Rig::open(peer, case()?)?);
    }
    let between = resident();
    rigs.push(Rig::open_many(peer, case()?, channels)?);
    let bytes = |from: u64, to: u64, count: u32| to.saturating_sub(from) / u64::from(count);
    let bytes = (bytes(before, between, ENDPOINTS), bytes(between, resident(), channels));
    rigs.into_iter().try_for_each(|rig| rig.close(peer))?;
    Ok(bytes)
}

/// Processor time that this end and the other use while neither has anything to do.
fn processor(peer: &mut Peer, time: Duration) -> Result<(u64, u64), Failure> {
    let mut rig = Rig::open(peer, case()?)?;
    let peer_before = peer.cpu_time()?;
    let before = cpu_time();
    rig.idle(time)?;
    let used = cpu_time() - before;
    let peer_used = peer.cpu_time()? - peer_before;
    rig.close(peer)?;
    Ok((used, peer_used))
}

/// Latency with one channel and with many, and the ratio, round by round.
fn channels(peer: &mut Peer, channels: u32) -> Result<[f64; 3], Failure> {
    let core = cores().first;
    let mut one = Rig::open(peer, case()?)?;
    let mut many = Rig::open_many(peer, case()?, channels)?;
    let (mut ones, mut manies, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let figures = (one.measure(peer, core)?.figure(Test::Lat), many.measure(peer, core)?.figure(Test::Lat));
        if let (Some(one), Some(many)) = figures {
            ones.push(one);
            manies.push(many);
            ratios.push(many / one);
        }
    }
    one.close(peer)?;
    many.close(peer)?;
    let middle = |figures: &[f64]| median(figures).unwrap_or_default();
    Ok([tenths(middle(&ones)), tenths(middle(&manies)), thousandths(middle(&ratios))])
}

/// Half a round trip of two ends on one core, the mean, because the scheduler's turns are all that it consists of.
fn one_core(way: &Way) -> Result<f64, Failure> {
    let core = Pair::together().first;
    let mut peer = Peer::start(core, way)?;
    let mut rig = Rig::open(&mut peer, Case { length: Length::of(SHARED), ..case()? })?;
    let slice = rig.measure(&mut peer, core)?;
    rig.close(&mut peer)?;
    let times = slice.quantiles(Test::Lat);
    times
        .map(|times| tenths(times.mean_ns))
        .ok_or_else(|| Failure::new("two ends on one core made no progress", "report this"))
}

fn text(line: &IdleLine) -> String {
    let share = |ns: u64| {
        format!("{} of {} s, {:.3} % of a core", units::time(ns as f64), line.seconds, ns as f64 / line.seconds / 1e7)
    };
    let mut table = Table::new(&["", ""]);
    let mut row = |what: &str, value: String| table.row(vec![what.into(), value]);
    row("processor time, asleep in wait", share(line.cpu_ns));
    row("processor time, asleep on the descriptor", share(line.peer_cpu_ns));
    row("memory of an endpoint with one channel", format!("{} KiB", line.endpoint_bytes >> 10));
    row(&format!("memory of a channel of {}", line.channels), format!("{:.1} KiB", line.channel_bytes as f64 / 1024.0));
    row("64 B message, 1 channel", units::time(line.latency_one_ns));
    row(
        &format!("64 B message, {} channels", line.channels),
        format!("{}, {:.2} x", units::time(line.latency_channels_ns), line.latency_ratio),
    );
    row("64 B message, both ends on one core", units::time(line.one_core_ns));
    row("round trips on one core", units::rate(line.one_core_round_trips_per_s));
    if let (Some(ns), Some(ratio)) = (line.limit_ns, line.ratio_to_limit) {
        row("sched_yield_pingpong", format!("{}, {ratio:.2} x", units::time(ns)));
    }
    table.to_string()
}
