//! `perf am`: active messages, each row in turn with the raw messages that it is held against.

pub mod ground;
pub mod pages;
pub mod station;
pub mod turns;

use std::time::Instant;

use clap::{Args, ValueEnum};
use cutthrough::NoMemory;
use cutthrough::am::{Body, RequestError};

use crate::args::{Adapter, Measure, Memory};
use crate::clock::{Length, Pace, Phase, round_trips};
use crate::failure::Failure;
use crate::output::Output;
use crate::stats::median;
use crate::units::Size;

use super::cargo::Tally;
use super::case::{Slice, Test};
use super::floor::{Floor, LIMIT};
use super::held::Against;
use super::lane::LaneError;
use super::others::Others;
use super::seat::Seat;
use ground::{Plan, Ready, Row, Side};
use station::{MEDIUM, SHORT, STORE};
use turns::{Common, Figure, Turns};

/// Requests under way where a rate or a stream is measured.
const UNDER_WAY: u64 = 64;
/// Requests between two looks at the clock, at most, and bytes of their payloads.
const PER_LOOK: u64 = 64;
const BYTES_PER_LOOK: u64 = 64 << 10;
/// Bytes of a request where a rate is measured.
const RATE_BYTES: u64 = 16;
/// Streams of which the median counts.
const STREAMS: u32 = 8;
/// Bytes of a medium payload.
pub const MEDIUM_BYTES: u64 = 4 << 10;
/// Sizes of stores, unless others are asked for.
pub const STORES: [Size; 2] = [Size(64 << 10), Size(1 << 20)];

/// Options of `perf am`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct AmArgs {
    /// Only these rows, by these names or as the table has them [default: all]
    #[arg(value_name = "ROW", value_enum)]
    pub rows: Vec<AmRow>,

    /// Sizes of stores [default: 64KiB,1MiB]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub size: Vec<Size>,

    /// The options that `perf rpc` has, too.
    #[command(flatten)]
    pub common: Common,
}

/// A row of `perf am`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AmRow {
    /// A request of four words and its reply; half of it
    Short,
    /// A payload of 4 KiB there and one back, copied; half of it
    Medium,
    /// A stream of long requests, which the other end reads into private memory
    Store,
    /// Short requests, 64 of them under way
    Rate,
    /// 20,000 pages of 16 KiB, or fewer if less than a second is asked for, to random slots of another region, or from
    /// there, with one call. Not by a ring of AF_XDP
    #[value(aliases = ["pages_store", "pages_fetch", "pages_raw", "pages_copy"])]
    Pages,
}

/// What a row is, and what it is held against.
fn explain(what: &str) -> &'static str {
    match what {
        "short" => "half of a request and its reply, over message_64, half a round trip of raw messages of 64 B.",
        "medium" => "half of a request and its reply, over half a round trip of raw messages of the size.",
        "store" => "a stream of requests, over raw_stream, a stream of raw messages of the size: the time of one.",
        "rate" => {
            "64 requests under way, over cacheline_pingpong, the time that one flag takes one way: no limit, for \
             requests overlap and flags do not."
        }
        "pages_store" | "pages_fetch" => "a page of a batch, over pages_raw.",
        "pages_raw" => {
            "one message for each page, private memory to private memory, in the same order: the payload's \
             own time."
        }
        "pages_copy" => "one core copies the same pages in the same order.",
        _ => "",
    }
}

/// Measures active messages, and prints each row; or, with `--listen`, is the other end once.
///
/// # Errors
/// If an option cannot be served, or the other end cannot be started or goes away.
pub fn run(args: &AmArgs, output: Output) -> Result<(), Failure> {
    let raw = args.common.measure();
    let sizes = if args.size.is_empty() { &STORES[..] } else { &args.size };
    let stores: Vec<Plan> = sizes.iter().map(|size| store(&raw, size.0, Memory::Private)).collect::<Result<_, _>>()?;
    let rows = turns::wanted(&args.rows);
    turns::run("am", &args.common, output, explain, |turns| {
        for row in rows {
            match row {
                AmRow::Short => turns.row(&short(&raw)?)?,
                AmRow::Medium => turns.row(&medium(&raw, MEDIUM_BYTES, Memory::Private)?)?,
                AmRow::Store => stores.iter().try_for_each(|plan| turns.row(plan))?,
                AmRow::Rate => measure_rate(turns, &rate(&raw)?)?,
                // Its raw messages are beside it all the time.
                AmRow::Pages if turns.way.is_narrow() && args.rows.is_empty() => {}
                AmRow::Pages => pages::run(turns)?,
            }
        }
        Ok(())
    })
}

/// Four words and their reply.
///
/// # Errors
/// If an option cannot be served.
pub fn short(options: &Measure) -> Result<Plan, Failure> {
    let case = ground::raw(options, Test::Lat, 64, Memory::Private)?;
    let row = Row { what: "short", test: Test::Lat, limit: "message_64", times: 1.0 };
    Ok(Plan::new(row, case, options, |ground, _| {
        Ok(Ready::new(ground.station(64)?, |side, length| {
            let send = |side: &mut Side| Ok(side.node.request(side.channel, SHORT, &[1, 2, 3, 4]).map(drop)?);
            times(side, length, send, |side| {
                let reply = side.reply()?;
                if reply.words() == [1, 2, 3, 4] { Ok(()) } else { Err(LaneError::Unexpected) }
            })
        }))
    }))
}

/// A payload there and one back. Those of requests are kept in this memory.
///
/// # Errors
/// If an option cannot be served.
pub fn medium(options: &Measure, bytes: u64, memory: Memory) -> Result<Plan, Failure> {
    let case = ground::raw(options, Test::Lat, bytes, memory)?;
    let row = Row { what: "medium", test: Test::Lat, limit: "message", times: 1.0 };
    Ok(Plan::new(row, case, options, |ground, case| {
        let (shape, bytes) = (case.shape, case.shape.bytes as usize);
        let (from, mut into) = (vec![0x5a; bytes], vec![0; bytes]);
        Ok(Ready::new(ground.station(shape.bytes.into())?, move |side, length| {
            let send = |side: &mut Side| ask(side, MEDIUM, shape.memory, &from);
            times(side, length, send, |side| {
                let mut reply = side.reply()?;
                if reply.payload_len() != bytes {
                    return Err(LaneError::Unexpected);
                }
                side.node.read(&mut reply, &mut into)?;
                Ok(())
            })
        }))
    }))
}

/// Asks with these bytes of private memory, or with a page that has as many.
#[inline]
fn ask(side: &mut Side, handler: u16, memory: Memory, from: &[u8]) -> Result<(), LaneError> {
    let body = match memory {
        Memory::Reference => Body::Page(side.node.page(side.channel, from.len())?),
        Memory::Private | Memory::Pool => Body::Copy(from),
    };
    Ok(side.node.ask(side.channel, handler).body(body).send().map(drop)?)
}

/// Times of one request after the other.
///
/// # Errors
/// [`LaneError`].
pub fn times(
    side: &mut Side,
    length: Length,
    send: impl FnMut(&mut Side) -> Result<(), LaneError>,
    receive: impl FnMut(&mut Side) -> Result<(), LaneError>,
) -> Result<Slice, LaneError> {
    let samples = round_trips(length, side, send, receive)?;
    // The last one was asked for before it was known to be enough.
    let count = samples.quantiles(1.0).map_or(0, |quantiles| quantiles.count);
    Ok(Slice { samples: Some(samples), count, msgs_per_s: None, tally: std::mem::take(&mut side.tally) })
}

/// A stream of payloads, which are kept in this memory.
///
/// # Errors
/// If an option cannot be served.
pub fn store(options: &Measure, bytes: u64, memory: Memory) -> Result<Plan, Failure> {
    let case = ground::raw(options, Test::Bw, bytes, memory)?;
    let row = Row { what: "store", test: Test::Bw, limit: "raw_stream", times: 1.0 };
    Ok(Plan::new(row, case, options, |ground, case| {
        let shape = case.shape;
        let from = vec![0x5a; shape.bytes as usize];
        Ok(Ready::new(ground.station(shape.bytes.into())?, move |side, length| {
            stream(side, length, shape.bytes.into(), |side| ask(side, STORE, shape.memory, &from))
        }))
    }))
}

/// Short requests, many of them under way.
///
/// # Errors
/// If an option cannot be served.
pub fn rate(options: &Measure) -> Result<Plan, Failure> {
    let case = ground::raw(options, Test::Rate, 64, Memory::Private)?;
    let row = Row { what: "rate", test: Test::Rate, limit: "cacheline_pingpong", times: 1.0 };
    let mut plan = Plan::new(row, case, options, |ground, _| {
        Ok(Ready::new(ground.station(64)?, |side, length| {
            let ask = |side: &mut Side| Ok(side.node.request(side.channel, SHORT, &[1, 2, 3, 4]).map(drop)?);
            stream(side, length, RATE_BYTES, ask)
        }))
    });
    plan.size = Size(RATE_BYTES);
    Ok(plan)
}

/// Measures a rate in turn with its limit, which is no raw message, and prints the row.
fn measure_rate(turns: &mut Turns<'_>, plan: &Plan) -> Result<(), Failure> {
    let (case, core) = (&plan.case, turns.core);
    let mut floor = Floor::of(turns.way, core);
    // On a wire many requests share a frame, so that no frame is their limit, whatever the wire is.
    let mut against = Against::new(if turns.way.adapter == Adapter::Shm { floor.bar(case) } else { Ok(None) });
    let length = case.length.part(STREAMS);
    let others = Others::watch(&mut turns.peer)?;
    let mut station = Seat::take(plan, &mut turns.peer, core, turns.way.is_narrow())?;
    let mut rates = Vec::new();
    let mut count = 0;
    for _ in 0..STREAMS {
        against.round(&mut floor, &mut turns.peer, 1, LIMIT / STREAMS)?;
        let slice = station.measure(&mut turns.peer, core, plan.row.test, length)?;
        count += slice.count;
        rates.push(slice.msgs_per_s);
    }
    floor.close(&mut turns.peer)?;
    station.leave(&mut turns.peer)?;
    let others = others.share(&mut turns.peer)?;
    let per_s = median(&rates.iter().copied().flatten().collect::<Vec<_>>());
    let held = turns.missing.or_why(case, against.held(&rates));
    let held = held.map(|held| (held.limit, held.ns, held.ratio));
    turns.print(&Figure {
        what: "rate",
        size: plan.size.0,
        count,
        quantiles: None,
        per_s,
        copies: None,
        held,
        mean_ns: None,
        others,
    })
}

/// Requests of so many bytes as fast as the other end answers them, some of them under way. The time that counts ends
/// with the last reply.
fn stream(
    side: &mut Side,
    length: Length,
    bytes: u64,
    mut ask: impl FnMut(&mut Side) -> Result<(), LaneError>,
) -> Result<Slice, LaneError> {
    let (mut sent, mut answered) = (0_u64, 0_u64);
    let mut pace = Pace::new(length, Instant::now());
    while pace.phase() != Phase::Over {
        let messages = (BYTES_PER_LOOK / bytes).clamp(1, PER_LOOK).min(pace.left());
        for _ in 0..messages {
            loop {
                if sent - answered < UNDER_WAY {
                    match ask(side) {
                        Ok(()) => break,
                        // The other end is behind, or has all pages.
                        Err(LaneError::Request(RequestError::Full) | LaneError::Memory(NoMemory::NoPages)) => {}
                        Err(error) => return Err(error),
                    }
                }
                while side.look()?.is_some() {
                    answered += 1;
                }
            }
            sent += 1;
        }
        pace.tick(Instant::now(), messages);
    }
    while answered < sent {
        answered += u64::from(side.look()?.is_some());
    }
    let count = pace.count();
    let msgs_per_s = count as f64 / pace.since().elapsed().as_secs_f64();
    Ok(Slice { samples: None, count, msgs_per_s: Some(msgs_per_s), tally: Tally::default() })
}
