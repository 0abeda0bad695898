//! `perf rpc`: calls, and pages fetched by them, each row in turn with the raw messages that it is held against.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use cutthrough::Landing;
use cutthrough::am::{CallError, Failure as Refusal, Service};
use cutthrough::rpc::{Client, RpcError};

use crate::args::Memory;
use crate::clock::{Length, operations};
use crate::failure::Failure;
use crate::output::Output;
use crate::units::Size;

use super::am::station::{ECHO, FETCH, LEND, STOCK, TYPED};
use super::am::times;
use super::am::turns::{self, Common, Row, Side, Turns};
use super::case::{Case, Slice, Test};
use super::fetch::pages_of;
use super::lane::{LaneError, PATIENCE};

/// Options of `perf rpc`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct RpcArgs {
    /// Only these rows [default: all]
    #[arg(value_name = "ROW", value_enum)]
    pub rows: Vec<RpcRow>,

    /// Sizes of fetched pages [default: 8KiB]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub size: Vec<Size>,

    /// The options that `perf am` has, too.
    #[command(flatten)]
    pub common: Common,
}

/// A row of `perf rpc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RpcRow {
    /// A blocking call of 64 bytes and as many back
    Raw,
    /// A typed call of 64 bytes by a client that threads share, and a number back
    Typed,
    /// A typed call as a future in a runtime of tokio with one thread
    Tokio,
    /// A page into the caller's page, by put and by reference
    Fetch,
}

/// What a row is, and what it is held against.
fn explain(what: &str) -> &'static str {
    match what {
        "raw" | "typed" | "tokio" => {
            "whole calls, from the request until the reply is there, over 2*message_64, two raw \
             messages of 64 B; without the cost of reading the clock, for which a blocking call leaves no time."
        }
        "fetch_put" | "fetch_reference" => {
            "over raw_fetch, the fetch of a page of this size by a raw message and its \
             answer, the same way (perf fetch)."
        }
        _ => "",
    }
}

/// Measures calls, and prints each row; or, with `--listen`, is the other end once.
///
/// # Errors
/// If an option cannot be served, or the other end cannot be started or goes away.
pub fn run(args: &RpcArgs, output: Output) -> Result<(), Failure> {
    let sizes = if args.size.is_empty() { &[Size(8 << 10)][..] } else { &args.size };
    let fetches = |memory| sizes.iter().map(move |size| args.common.case(Test::Fetch, size.0, memory));
    let put: Vec<Case> = fetches(Memory::Pool).collect::<Result<_, _>>()?;
    let reference: Vec<Case> = fetches(Memory::Reference).collect::<Result<_, _>>()?;
    let rows = if args.rows.is_empty() { RpcRow::value_variants() } else { &args.rows };
    turns::run("rpc", &args.common, output, explain, |turns| {
        for row in rows {
            match row {
                RpcRow::Raw => raw(turns)?,
                RpcRow::Typed => typed(turns, "typed", |client, asked| client.call(TYPED, asked))?,
                RpcRow::Tokio => {
                    let runtime =
                        tokio::runtime::Builder::new_current_thread().build().map_err(|error| again(&error))?;
                    typed(turns, "tokio", |client, asked| runtime.block_on(client.start(TYPED, asked)))?;
                }
                RpcRow::Fetch => {
                    put.iter().try_for_each(|case| fetch(turns, case))?;
                    reference.iter().try_for_each(|case| fetch(turns, case))?;
                }
            }
        }
        Ok(())
    })
}

fn raw(turns: &mut Turns<'_>) -> Result<(), Failure> {
    let case = turns.options.case(Test::Lat, 64, Memory::Private)?;
    let row = Row { what: "raw", test: Test::Fetch, limit: "2*message_64", times: 2.0 };
    let mut side = turns.station(64)?;
    turns.row(&row, &case, &mut side, |side, length| {
        calls(side, length, |side| {
            let reply = side.node.call(side.channel, ECHO, &[7; 16], PATIENCE)?;
            if reply.args().len() == 64 { Ok(()) } else { Err(LaneError::Unexpected) }
        })
    })?;
    turns.close(side)
}

/// Times of whole calls, one after the other.
fn calls(
    side: &mut Side,
    length: Length,
    call: impl FnMut(&mut Side) -> Result<(), LaneError>,
) -> Result<Slice, LaneError> {
    let samples = operations(length, side, call)?;
    let count = samples.quantiles(1.0).map_or(0, |quantiles| quantiles.count);
    Ok(Slice { samples: Some(samples), count, msgs_per_s: None, tally: std::mem::take(&mut side.tally) })
}

fn again(error: &dyn std::fmt::Display) -> Failure {
    Failure::from_error(&error, "try again")
}

/// Typed calls one after the other, each made by `call`.
fn typed(
    turns: &mut Turns<'_>,
    what: &'static str,
    call: impl Fn(&Client, &(u64, Vec<u8>)) -> Result<u64, RpcError> + Send + Sync,
) -> Result<(), Failure> {
    let case = turns.options.case(Test::Lat, 64, Memory::Private)?;
    let row = Row { what, test: Test::Fetch, limit: "2*message_64", times: 2.0 };
    let mut side = turns.station(64)?;
    let node = turns.peer.node(&turns.setup(64)?)?;
    let service = Arc::new(Service::spawn(node, |_| ()).map_err(|error| again(&error))?);
    // The other end lets somebody in only while it attends.
    let address = turns.peer.address_of(side.number);
    let client = turns.attended(&mut side, |_| Ok(Client::connect(service, &address, PATIENCE)))?;
    let client = client.map_err(|error| again(&error))?;
    // 64 bytes with the lengths of both parts.
    let asked = (7, vec![7; 48]);
    turns.row(&row, &case, &mut side, |side, length| {
        calls(side, length, |_| if call(&client, &asked)? == 7 + 48 { Ok(()) } else { Err(LaneError::Unexpected) })
    })?;
    drop(client);
    turns.close(side)
}

/// Fetches of random pages of a region as large as that of `perf fetch`.
fn fetch(turns: &mut Turns<'_>, case: &Case) -> Result<(), Failure> {
    let bytes = case.shape.bytes;
    let pages = pages_of(bytes);
    let by_put = case.shape.memory == Memory::Pool;
    let what = if by_put { "fetch_put" } else { "fetch_reference" };
    let row = Row { what, test: Test::Fetch, limit: "raw_fetch", times: 1.0 };
    let mut side = turns.station(u64::from(bytes))?;
    turns.attended(&mut side, |side| side.call(STOCK, &[pages, bytes]).map(drop))?;
    let mut random = fastrand::Rng::with_seed(case.seed);
    turns.row(&row, case, &mut side, |side, length| {
        let receive = |side: &mut Side| taken(side, bytes as usize);
        if by_put {
            let send = |side: &mut Side| {
                let page = random.u32(..pages).to_le_bytes();
                let asking = side.node.ask(side.channel, FETCH).args(&page);
                Ok(asking.reply_into(Landing::Pages(bytes as usize)).send().map(drop)?)
            };
            return times(side, length, send, receive);
        }
        let send = |side: &mut Side| Ok(side.node.request(side.channel, LEND, &[random.u32(..pages)]).map(drop)?);
        times(side, length, send, |side| lent(side, bytes as usize))
    })?;
    turns.close(side)
}

/// The page that comes next by reference. A pool has room for few that are long: where all of them are out, they go
/// back while this end polls for the answer, and the other end is asked again. That takes its time, and counts.
#[inline]
fn lent(side: &mut Side, bytes: usize) -> Result<(), LaneError> {
    loop {
        match taken(side, bytes) {
            Err(LaneError::Call(CallError::Failed(Refusal::Busy))) => {
                side.node.request(side.channel, LEND, &[0])?;
            }
            taken => return taken,
        }
    }
}

/// The page that comes next. It is given back at once.
#[inline]
fn taken(side: &mut Side, bytes: usize) -> Result<(), LaneError> {
    let reply = side.reply()?;
    if reply.payload_len() != bytes {
        return Err(LaneError::Unexpected);
    }
    side.tally.read(&reply.receipt());
    side.node.release(reply);
    Ok(())
}
