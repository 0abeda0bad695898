//! `perf incast`: many senders to one receiver at the same time, in turn with one of them alone.
//!
//! The receiver is this process, at the near end; the senders are threads of another one, at the far end, each with an
//! endpoint of its own ([`senders`]). The [`receiver`] says to each when to begin and when to stop, so that one sender
//! and all of them take turns over the same channels.

pub mod kernel;
pub mod receiver;
pub mod senders;

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::peer::cores;
use super::way::Way;
use crate::args::{Across, Adapter, Started, seconds};
use crate::failure::Failure;
use crate::machine::Machine;
use crate::output::{Output, thousandths};
use crate::stats::median;
use crate::table::{Table, wrapped};
use crate::units::{self, Size};
use receiver::{Phase, Receiver, Round};

/// How often one sender and all of them take turns.
const ROUNDS: u32 = 5;

/// Options of `perf incast`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct IncastArgs {
    /// Senders, each with an endpoint of its own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256), default_value_t = 16)]
    pub senders: u32,

    /// Bytes of each payload
    #[arg(long, value_name = "BYTES", default_value = "1MiB")]
    pub size: Option<Size>,

    /// Seconds for which one sender is measured, and all of them
    #[arg(long, value_name = "N", value_parser = seconds, default_value_t = 2.0)]
    pub seconds: f64,

    /// Post no pages: read each payload as it comes
    #[arg(long)]
    pub unposted: bool,

    /// What lies between the senders and the receiver.
    #[command(flatten)]
    pub across: Across,

    /// Be the senders: to this address.
    #[arg(long, hide = true, value_name = "ADDR")]
    pub to: Option<String>,

    /// What a process says that starts this one.
    #[command(flatten)]
    pub started: Started,
}

/// What `perf incast` finds.
#[derive(Clone, Debug, Default, Serialize)]
struct IncastLine {
    test: &'static str,
    adapter: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    veth: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sealed: Option<bool>,
    size: u64,
    senders: u32,
    /// Messages of all senders together that came while they were measured.
    count: u64,
    /// Payload bytes of all senders together.
    bytes_per_s: f64,
    /// Of one sender alone.
    one_bytes_per_s: f64,
    /// The first over the second: the median of rounds.
    ratio: f64,
    /// The slowest sender's part of the bytes over an equal part, and the fastest one's.
    least_share: f64,
    most_share: f64,
    /// The one over the other.
    fairness: f64,
    /// Frames that senders took for lost while all of them sent, and while one did.
    frames_lost: u64,
    one_frames_lost: u64,
    /// Part of the payload bytes that were received where they belong while all of them sent, and while one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    placed: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    one_placed: Option<f64>,
    /// Datagrams for which the receiver's socket had no room in all rounds, as its kernel counts them, or frames for
    /// which its ring had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    overruns: Option<u64>,
    /// Most bytes that stood in the receiver's socket, as its kernel counts them, and what it may hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_limit_bytes: Option<u64>,
    /// By how much the receiver's resident memory grew at most, since its endpoint was open and had no channel.
    memory_bytes: u64,
    /// Landing pages that the receiver has posted: a part of that.
    posted_bytes: u64,
    machine: Machine,
}

/// Measures and prints it; or is the senders.
///
/// # Errors
/// If an option cannot be served, the senders cannot be started, or one of them goes away.
pub fn run(args: &IncastArgs, output: Output) -> Result<(), Failure> {
    if let Some(to) = &args.to {
        return senders::run(args, to);
    }
    let size = args.size.unwrap_or(Size(1 << 20));
    if size.0 == 0 {
        return Err(Failure::new("a payload of 0 bytes cannot be measured", "give --size of 1 or more"));
    }
    if args.across.net_xdp {
        return Err(Failure::new("perf incast leaves the rings of the adapter net alone", "leave --net-xdp away"));
    }
    let machine = Machine::here();
    let way = Way::own(&args.across)?;
    let cores = cores();
    let mut receiver = Receiver::open(&way, args, size, cores)?;
    let each = Duration::from_secs_f64(args.seconds) / ROUNDS;
    let mut rounds = Vec::new();
    let bar = crate::progress::bar(ROUNDS as usize);
    for round in 0..ROUNDS {
        bar.set_position(round.into());
        rounds.push(receiver.round(round, each)?);
    }
    let line = line(args, &way, size, &receiver, &rounds, machine);
    receiver.close();
    output.line(&line)?;
    output.say(&format!("{}\n\n{}", way.head(&line.machine), text(&line)))
}

fn line(
    args: &IncastArgs,
    way: &Way,
    size: Size,
    receiver: &Receiver,
    rounds: &[Round],
    machine: Machine,
) -> IncastLine {
    let middle = |figure: &dyn Fn(&Round) -> f64| median(&rounds.iter().map(figure).collect::<Vec<_>>());
    let rate = |messages: u64, time: Duration| messages as f64 * size.0 as f64 / time.as_secs_f64();
    let mut each = vec![0_u64; args.senders as usize];
    for round in rounds {
        each.iter_mut().zip(&round.all.each).for_each(|(sum, messages)| *sum += messages);
    }
    let count: u64 = each.iter().sum();
    let equal = count as f64 / each.len() as f64;
    let (least, most) = (each.iter().min().copied().unwrap_or(0), each.iter().max().copied().unwrap_or(0));
    let seen = receiver.seen();
    let socket = way.adapter != Adapter::Shm;
    let per_sum = |messages: u64, over: f64| if over > 0.0 { thousandths(messages as f64 / over) } else { 0.0 };
    let placed = |phase: &dyn Fn(&Round) -> &Phase| {
        let sum = |which: usize| rounds.iter().map(|round| phase(round).placed[which]).sum::<u64>();
        (sum(1) > 0).then(|| (sum(0) as f64 / sum(1) as f64 * 1e5).round() / 1e5)
    };
    let all = |round: &Round| rate(round.all.messages(), round.all.time);
    let one = |round: &Round| rate(round.one.messages(), round.one.time);
    IncastLine {
        test: "incast",
        adapter: way.adapter.name(),
        veth: way.veth(),
        sealed: way.sealed(),
        size: size.0,
        senders: args.senders,
        count,
        bytes_per_s: middle(&all).unwrap_or_default().round(),
        one_bytes_per_s: middle(&one).unwrap_or_default().round(),
        ratio: thousandths(middle(&|round| all(round) / one(round).max(1.0)).unwrap_or_default()),
        least_share: per_sum(least, equal),
        most_share: per_sum(most, equal),
        fairness: per_sum(least, most as f64),
        frames_lost: rounds.iter().map(|round| round.all.lost).sum(),
        one_frames_lost: rounds.iter().map(|round| round.one.lost).sum(),
        placed: placed(&|round| &round.all).filter(|_| socket),
        one_placed: placed(&|round| &round.one).filter(|_| socket),
        overruns: seen.overruns.filter(|_| socket),
        queue_bytes: socket.then_some(seen.queue_bytes),
        queue_limit_bytes: seen.queue_limit_bytes,
        memory_bytes: seen.memory_bytes,
        posted_bytes: receiver.posted_bytes(),
        machine,
    }
}

fn text(line: &IncastLine) -> String {
    let mut table = Table::new(&["", ""]);
    let mut row = |what: &str, value: String| table.row(vec![what.into(), value]);
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    row("one sender", units::bandwidth(line.one_bytes_per_s));
    row(
        &if line.senders == 1 { "once more".into() } else { format!("{} senders together", line.senders) },
        format!("{}, {:.3} x", units::bandwidth(line.bytes_per_s), line.ratio),
    );
    row("share of the slowest and the fastest", format!("{:.3}, {:.3}", line.least_share, line.most_share));
    row("messages", line.count.to_string());
    row("frames sent again, all and one", format!("{}, {}", line.frames_lost, line.one_frames_lost));
    if let (Some(all), Some(one)) = (line.placed, line.one_placed) {
        row("placed without a copy, all and one", format!("{:.2} %, {:.2} %", all * 100.0, one * 100.0));
    }
    if line.queue_bytes.is_some() {
        let said = line.overruns.map(|overruns| overruns.to_string());
        row("receive overruns", said.unwrap_or_else(|| "the kernel does not say".into()));
    }
    if let (Some(bytes), Some(limit)) = (line.queue_bytes, line.queue_limit_bytes) {
        row("most in the receiver's socket", format!("{} of {}", mib(bytes), mib(limit)));
    }
    row("most memory of the receiver", format!("{}, {} posted", mib(line.memory_bytes), mib(line.posted_bytes)));
    let legend = format!("One sender and all take {ROUNDS} turns; ratio: the median. Share: 1 is an equal part.");
    format!("{table}\n\n{}", wrapped(&legend))
}
