//! `perf am`: active messages, each row in turn with the raw messages that it is held against.

pub mod pages;
pub mod station;
pub mod turns;

use std::time::Instant;

use clap::{Args, ValueEnum};
use cutthrough::am::{Body, RequestError};

use crate::args::{Adapter, Memory};
use crate::clock::{Length, Pace, Phase, round_trips};
use crate::failure::Failure;
use crate::output::Output;
use crate::stats::median;
use crate::units::Size;

use super::cargo::Tally;
use super::case::{Case, Slice, Test};
use super::floor::{Floor, LIMIT};
use super::held::Against;
use super::lane::LaneError;
use station::{MEDIUM, SHORT, STORE};
use turns::{Common, Figure, Row, Side, Turns};

/// Requests under way where a rate or a stream is measured.
const UNDER_WAY: u64 = 64;
/// Requests between two looks at the clock, at most, and bytes of their payloads.
const PER_LOOK: u64 = 64;
const BYTES_PER_LOOK: u64 = 64 << 10;
/// Streams of which the median counts.
const STREAMS: u32 = 8;
/// Bytes of a medium payload.
const MEDIUM_BYTES: u64 = 4 << 10;

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
    /// there, with one call
    #[value(aliases = ["pages_store", "pages_fetch", "pages_raw", "pages_copy"])]
    Pages,
}

/// What a row is, and what it is held against.
fn explain(what: &str) -> &'static str {
    match what {
        "short" => "half of a request and its reply, over message_64, half a round trip of raw messages of 64 B.",
        "medium" => "half of a request and its reply, over half a round trip of raw messages of the size.",
        "store" => "a stream of requests, over raw_stream, raw messages of the size; limit: the time of one.",
        "rate" => "64 requests under way, over cacheline_pingpong, the time that one flag takes one way.",
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
    let sizes = if args.size.is_empty() { &[Size(64 << 10), Size(1 << 20)][..] } else { &args.size };
    let stores: Vec<Case> =
        sizes.iter().map(|size| args.common.case(Test::Bw, size.0, Memory::Private)).collect::<Result<_, _>>()?;
    let rows = turns::wanted(&args.rows);
    turns::run("am", &args.common, output, explain, |turns| {
        for row in rows {
            match row {
                AmRow::Short => short(turns)?,
                AmRow::Medium => medium(turns)?,
                AmRow::Store => stores.iter().try_for_each(|case| store(turns, case))?,
                AmRow::Rate => rate(turns)?,
                AmRow::Pages => pages::run(turns)?,
            }
        }
        Ok(())
    })
}

fn short(turns: &mut Turns<'_>) -> Result<(), Failure> {
    let case = turns.options.case(Test::Lat, 64, Memory::Private)?;
    let row = Row { what: "short", test: Test::Lat, limit: "message_64", times: 1.0 };
    let mut side = turns.station(64)?;
    turns.row(&row, &case, &mut side, |side, length| {
        let send = |side: &mut Side| Ok(side.node.request(side.channel, SHORT, &[1, 2, 3, 4]).map(drop)?);
        times(side, length, send, |side| {
            let reply = side.reply()?;
            if reply.words() == [1, 2, 3, 4] { Ok(()) } else { Err(LaneError::Unexpected) }
        })
    })?;
    turns.close(side)
}

fn medium(turns: &mut Turns<'_>) -> Result<(), Failure> {
    let case = turns.options.case(Test::Lat, MEDIUM_BYTES, Memory::Private)?;
    let row = Row { what: "medium", test: Test::Lat, limit: "message", times: 1.0 };
    let mut side = turns.station(MEDIUM_BYTES)?;
    let bytes = usize::try_from(MEDIUM_BYTES).unwrap_or(usize::MAX);
    let (from, mut into) = (vec![0x5a; bytes], vec![0; bytes]);
    turns.row(&row, &case, &mut side, |side, length| {
        let send =
            |side: &mut Side| Ok(side.node.ask(side.channel, MEDIUM).body(Body::Copy(&from)).send().map(drop)?);
        times(side, length, send, |side| {
            let mut reply = side.reply()?;
            if reply.payload_len() != bytes {
                return Err(LaneError::Unexpected);
            }
            side.node.read(&mut reply, &mut into)?;
            Ok(())
        })
    })?;
    turns.close(side)
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

fn store(turns: &mut Turns<'_>, case: &Case) -> Result<(), Failure> {
    let row = Row { what: "store", test: Test::Bw, limit: "raw_stream", times: 1.0 };
    let mut side = turns.station(case.size().0)?;
    let from = vec![0x5a; case.shape.bytes as usize];
    turns.row(&row, case, &mut side, |side, length| {
        let ask = |side: &mut Side| side.node.ask(side.channel, STORE).body(Body::Copy(&from)).send().map(drop);
        stream(side, length, case.size().0, ask)
    })?;
    turns.close(side)
}

fn rate(turns: &mut Turns<'_>) -> Result<(), Failure> {
    let mut case = turns.options.case(Test::Rate, 64, Memory::Private)?;
    let mut floor = Floor::of(turns.way, turns.core);
    // On a wire many requests share a frame, so that no frame is their limit, whatever the wire is.
    let mut against = Against::new(if turns.way.adapter == Adapter::Shm { floor.bar(&case) } else { Ok(None) });
    case.length = case.length.part(STREAMS);
    let mut side = turns.station(64)?;
    let mut rates = Vec::new();
    let mut count = 0;
    for _ in 0..STREAMS {
        against.round(&mut floor, &mut turns.peer, 1, LIMIT / STREAMS)?;
        let slice = turns.attended(&mut side, |side| {
            stream(side, case.length, 16, |side| side.node.request(side.channel, SHORT, &[1, 2, 3, 4]).map(drop))
        })?;
        count += slice.count;
        rates.push(slice.msgs_per_s);
    }
    floor.close(&mut turns.peer)?;
    let per_s = median(&rates.iter().copied().flatten().collect::<Vec<_>>());
    let held = turns.missing.or_why(&case, against.held(&rates));
    let held = held.map(|held| (held.limit, held.ns, held.ratio));
    turns.print(&Figure {
        what: "rate",
        size: 16,
        count,
        quantiles: None,
        per_s,
        copies: None,
        held,
        mean_ns: None,
    })?;
    turns.close(side)
}

/// Requests of so many bytes as fast as the other end answers them, some of them under way. The time that counts ends
/// with the last reply.
fn stream(
    side: &mut Side,
    length: Length,
    bytes: u64,
    mut ask: impl FnMut(&mut Side) -> Result<(), RequestError>,
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
                        Err(RequestError::Full) => {}
                        Err(error) => return Err(error.into()),
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
