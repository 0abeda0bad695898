//! Adapters that move messages in stages under a firmware loop: Trapeze on Myrinet, and network cards of today.
//!
//! ```text
//!  host --- bus --- adapter === link === switch === link === adapter --- bus --- host
//!            |         |                                        |         |
//!         hostTx     netTx                                    netRcv   hostRcv
//! ```
//!
//! Sources: Yocum, Chase, Gallatin, Lebeck, "Cut-Through Delivery in Trapeze" (HPDC 1997); Anderson and others,
//! "Cheating the I/O Bottleneck" (USENIX 1998); Chase and others, "Network I/O with Trapeze" (Hot Interconnects 1999).
//!
//! What is modelled: the bus with its set-up costs, its two rates, posted writes, and the host's own accesses; the
//! adapter's memory, in which messages of a burst queue up; its three movers; its processor, whose loop takes time for
//! each turn and each decision; the control message, which goes ahead of its payload; the path through the switch,
//! which a message holds from head to tail; and the host, which writes control messages into adapter memory, and polls
//! or is interrupted. Every decision about a payload is the engine's: one
//! [`Transfer`](cutthrough_engine::transfer::Transfer) for each message in each adapter, and neither side knows the
//! other's.
//!
//! What is not: a receiver that has no slot or no memory left holds the link back, where Trapeze dropped messages after
//! a while; room that a receiver makes is known to the sender at once.

mod adapter;
mod bursts;
mod buses;
mod faults;
mod host;
mod lab;
pub mod machine;
mod message;
mod pulses;
mod run;
mod today;
mod watch;
mod world;

use crate::outcome::{Experiment, Stripe};
use crate::platform::{Platform, PlatformError};
use crate::point::{Firmware, Point, PointError, Query};

pub use host::Lens;
pub use machine::{Machine, Notice};
pub use run::{ROUNDS, Ran, Run};
pub use watch::{MOVERS, Milestones, Mover, Taken, Watch};
pub use world::Loop;

/// Values of `model` that are served here.
pub const MODELS: &[&str] = &["staged"];

/// Platforms: name, and text of the file.
pub const PLATFORMS: &[(&str, &str)] = &[
    ("alphastation500", include_str!("../platforms/alphastation500.toml")),
    ("alcor", include_str!("../platforms/alcor.toml")),
    ("miata", include_str!("../platforms/miata.toml")),
    ("pentium2-440lx", include_str!("../platforms/pentium2-440lx.toml")),
    ("pcie4-100g", include_str!("../platforms/pcie4-100g.toml")),
    ("pcie5-400g", include_str!("../platforms/pcie5-400g.toml")),
    ("cloud-vnic", include_str!("../platforms/cloud-vnic.toml")),
];

/// Most senders of one query: ten times what the papers' switches could join.
const MOST_SENDERS: u32 = 4096;

/// Most messages whose pulses are kept.
const MOST_DRAWN: u64 = 10_000;

/// Fewest bytes worth a pulse to the adaptive firmware of 1999, which the texts do not give: HPDC 1997 found 384 to 512
/// best for eager DMA.
const MINPULSE: u64 = 512;

/// Those of the results that are drawn pulse by pulse.
pub const FLOWS: &[&str] = &["N2"];

/// The results that this family gives.
#[must_use]
pub fn experiments() -> Vec<Experiment> {
    let experiment = |id, title, run| Experiment { id, title, run };
    vec![
        experiment("T1", "Trapeze: latency over send and receive pulse, fixed pulses", pulses::fixed_pulses),
        experiment("T2", "Trapeze: latency over send and receive threshold, eager DMA", pulses::eager_pulses),
        experiment("T3", "Trapeze: latency over payload, store-and-forward and cut-through", pulses::payloads),
        experiment("T4", "Trapeze: DMA rate over transfer size", buses::dma_rates),
        experiment("T5", "Trapeze: least time of store-and-forward", buses::bound),
        experiment("T6", "Trapeze: gain over bus and link speed", buses::speeds),
        experiment("T7", "Trapeze: page fetch by part", faults::page_fault),
        experiment("N1", "Network I/O: latency and bandwidth of three policies", bursts::table),
        experiment("N2", "Network I/O: a burst falls back to whole transfers", bursts::burst),
        experiment("N3", "Network I/O: calls of gms_net", faults::calls),
        experiment("M1", "Today: gain over store-and-forward, by page", today::gains),
        experiment("M2", "Today: latency over fixed pulse, and what the default loses", today::pulses),
        experiment("M3", "Today: bandwidth over page", today::bandwidths),
        experiment("M4", "Today: gain over the cost of a pulse", today::costs),
    ]
}

/// Answers one question.
///
/// A lone message is sent to and fro [`ROUNDS`] times, as the papers measured it: its latency is half the mean of these
/// round trips, its stages are those of the last one.
///
/// # Errors
/// The platform's file is wrong, or the platform cannot do what is asked.
pub fn point(platform: &Platform, query: &Query) -> Result<Point, PointError> {
    let machine = Machine::read(platform)?;
    let ran = asked(&machine, query)?.go();
    let (one_way_us, bytes_per_s) = if is_lone(query) {
        let each_us = ran.each_us();
        (each_us, query.payload as f64 / each_us * 1e6)
    } else {
        (ran.watch.first().as_us(), ran.bytes_per_s())
    };
    Ok(Point { one_way_us, bytes_per_s, stages: ran.watch.stages(), events: ran.events })
}

fn is_lone(query: &Query) -> bool {
    query.count == 1 && query.senders == 1
}

/// Runs one operating point and keeps every pulse of the first sender and of the receiver: names of the rows, and the
/// pulses. For figures and for timelines.
///
/// # Errors
/// As for [`point`]; and a run of more than 10,000 messages has too many pulses to keep.
pub fn flow(platform: &Platform, query: &Query) -> Result<(Vec<String>, Vec<Stripe>), PointError> {
    let machine = Machine::read(platform)?;
    let run = asked(&machine, query)?;
    if query.count.saturating_mul(u64::from(query.senders)) > MOST_DRAWN {
        return Err(PointError::Impossible("a timeline can show at most 10,000 messages; ask for fewer".to_owned()));
    }
    let [from, to] = if is_lone(query) { [0, 1] } else { [1, 0] };
    Ok((MOVERS.map(str::to_owned).to_vec(), run.stripes(from, to).go().stripes().to_vec()))
}

/// The run that `query` asks for.
fn asked(machine: &Machine, query: &Query) -> Result<Run, PointError> {
    let Query { firmware, payload, count, senders } = *query;
    let impossible = |what: &str| Err(PointError::Impossible(what.to_owned()));
    if count == 0 || senders == 0 {
        return impossible("there must be at least 1 message and 1 sender");
    }
    if senders > MOST_SENDERS {
        return impossible("there can be at most 4096 senders");
    }
    if payload > 1 << 30 || count > 1 << 40 {
        return impossible("a payload has at most 1 GiB, and a sender at most 2^40 messages");
    }
    if is_lone(query) {
        return Ok(Run::ping_pong([machine, machine], firmware, payload, ROUNDS)?.settled());
    }
    Run::stream([machine, machine], firmware, Lens::Same(payload), count, senders)
}

/// Sends payloads of these lengths from one host to another under `firmware`: what is delivered, in order.
///
/// # Errors
/// As for [`point`].
pub fn deliver(platform: &Platform, firmware: Firmware, lens: &[u64]) -> Result<Vec<Taken>, PointError> {
    let machine = Machine::read(platform)?;
    let run = Run::stream([&machine, &machine], firmware, Lens::List(lens.to_vec()), lens.len() as u64, 1)?;
    Ok(run.deliveries(0).go().deliveries().to_vec())
}

/// A built-in platform of this family.
///
/// # Errors
/// There is none of this name, or its file is wrong.
pub fn machine(name: &str) -> Result<Machine, PlatformError> {
    let text = PLATFORMS.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text);
    Machine::read(&Platform::parse(text, &format!("{name}.toml"))?)
}
