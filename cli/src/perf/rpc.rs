//! `perf rpc`: calls, and pages fetched by them, each row in turn with the raw messages that it is held against; and
//! beside them what the same costs as active messages, without a client that threads share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use clap::{Args, ValueEnum};
use cutthrough::Landing;
use cutthrough::am::{CallError, Failure as Refusal, Reply, Service};
use cutthrough::rpc::{Client, Raw};
use tokio::runtime::Runtime;

use crate::args::Memory;
use crate::clock::{Length, operations, operations_awaited, reading_cost};
use crate::cpu;
use crate::failure::Failure;
use crate::output::Output;
use crate::stats::Samples;
use crate::units::Size;

use super::am::station::{ECHO, FETCH, LEND, SERVED, STOCK, TYPED};
use super::am::times;
use super::am::turns::{self, Common, Row, Side, Turns};
use super::cargo::Tally;
use super::case::{Case, Slice, Test};
use super::fetch::pages_of;
use super::lane::{LaneError, PATIENCE};

/// Threads that share a client, unless more or fewer are asked for.
const THREADS: u32 = 8;

/// Tasks of one runtime that share a client, unless more or fewer are asked for.
const TASKS: u32 = 100;

/// Options of `perf rpc`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct RpcArgs {
    /// Only these rows, by these names or as the table has them [default: all]
    #[arg(value_name = "ROW", value_enum)]
    pub rows: Vec<RpcRow>,

    /// Threads that share the client of the row `shared` [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Option<u32>,

    /// Tasks that share the client of the row `tasks` [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub tasks: Option<u32>,

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
    /// A blocking raw call of 64 bytes, and as many back, by a client that threads share
    Raw,
    /// The same as a future in a runtime of tokio with one thread
    Tokio,
    /// The same by many tasks of such a runtime at a time
    Tasks,
    /// A typed call of 64 bytes by such a client, and a number back
    Typed,
    /// A blocking raw call of 64 bytes to a server that is on a service's thread, which sleeps while nothing comes
    Served,
    /// The same by several threads that share one client
    Shared,
    /// A page by a raw call into the caller's page, by put, and by reference
    #[value(aliases = ["fetch_put", "fetch_reference"])]
    Fetch,
    /// Active messages: a request of 64 bytes, and the wait for as many back, by who has the node
    #[value(alias = "am_call")]
    AmCall,
    /// Active messages: a page by put and by reference, to who has the node
    #[value(aliases = ["am_fetch", "am_fetch_put", "am_fetch_reference"])]
    AmFetch,
}

/// What a row is, and what it is held against.
fn explain(what: &str) -> &'static str {
    match what {
        "raw" | "tokio" | "typed" => {
            "calls by rpc::Client, from the call until the reply is there, over 2*message_64, two raw \
             messages of 64 B; without the cost of reading the clock, for which a blocking call leaves no time."
        }
        "served" => "the same to a server that is on a thread of am::Service.",
        "tasks" => {
            "raw calls by tasks of one runtime that share one client: the time of each call, other tasks' turns \
             included, and the calls of all of them a second; limit: as for one."
        }
        "shared" => {
            "the same by threads that share one client: the time of each call, and the calls of all of them a second; \
             limit: as for one thread."
        }
        "am_call" => "the same for a request and its reply by the one thread that has the node (am::Node::call).",
        "fetch_put" | "fetch_reference" => {
            "raw calls by rpc::Client whose reply has a page, over raw_fetch, the fetch of a page of this \
             size by a raw message and its answer, the same way (perf fetch); without the cost of reading the clock."
        }
        "am_fetch_put" | "am_fetch_reference" => {
            "requests by the one thread that has the node, over raw_fetch, too; the clock is read while they travel."
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
    let rows = turns::wanted(&args.rows);
    turns::run("rpc", &args.common, output, explain, |turns| {
        for row in rows {
            match row {
                RpcRow::Raw => client(turns, "raw", |client| echoed(&client.call_raw(words())?))?,
                RpcRow::Tokio => {
                    let runtime = runtime()?;
                    client(turns, "tokio", |client| echoed(&runtime.block_on(client.start_raw(words()))?))?;
                }
                RpcRow::Tasks => tasks(turns, args.tasks.unwrap_or(TASKS))?,
                RpcRow::Typed => {
                    // 64 bytes with the lengths of both parts.
                    let asked = (7, vec![7; 48]);
                    client(turns, "typed", |client| match client.call(TYPED, &asked)? {
                        55 => Ok(()),
                        _ => Err(LaneError::Unexpected),
                    })?;
                }
                RpcRow::Served => served(turns)?,
                RpcRow::Shared => shared(turns, args.threads.unwrap_or(THREADS))?,
                RpcRow::Fetch => put.iter().chain(&reference).try_for_each(|case| fetch(turns, case))?,
                RpcRow::AmCall => am_call(turns)?,
                RpcRow::AmFetch => put.iter().chain(&reference).try_for_each(|case| am_fetch(turns, case))?,
            }
        }
        Ok(())
    })
}

/// The raw call of 64 bytes.
fn words() -> Raw<'static> {
    Raw::new(ECHO).args(&[7; 64])
}

fn echoed(reply: &Reply) -> Result<(), LaneError> {
    if reply.args().len() == 64 { Ok(()) } else { Err(LaneError::Unexpected) }
}

fn am_call(turns: &mut Turns<'_>) -> Result<(), Failure> {
    let case = turns.options.case(Test::Lat, 64, Memory::Private)?;
    let row = Row { what: "am_call", test: Test::Fetch, limit: "2*message_64", times: 2.0 };
    let mut side = turns.station(64)?;
    turns.row(&row, &case, &mut side, |side, length| {
        calls(side, length, |side| {
            echoed(&side.node.call(side.channel, ECHO, &[7; 16], PATIENCE).map_err(CallError::from)?)
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

/// A client of a station, which has a service of its own.
fn client_of(turns: &mut Turns<'_>, side: &mut Side, bytes: u64) -> Result<Client, Failure> {
    let node = turns.peer.node(&turns.setup(bytes)?)?;
    let service = Arc::new(Service::spawn(node, |_| ()).map_err(|error| again(&error))?);
    // The other end lets somebody in only while it attends.
    let address = turns.peer.address_of(side.number);
    let client = turns.attended(side, |_| Ok(Client::connect(service, &address, PATIENCE)))?;
    client.map_err(|error| again(&error))
}

/// Calls of 64 bytes one after the other, each made by `call`.
fn client(
    turns: &mut Turns<'_>,
    what: &'static str,
    call: impl Fn(&Client) -> Result<(), LaneError> + Send + Sync,
) -> Result<(), Failure> {
    let case = turns.options.case(Test::Lat, 64, Memory::Private)?;
    let row = Row { what, test: Test::Fetch, limit: "2*message_64", times: 2.0 };
    let mut side = turns.station(64)?;
    let client = client_of(turns, &mut side, 64)?;
    turns.row(&row, &case, &mut side, |side, length| calls(side, length, |_| call(&client)))?;
    drop(client);
    turns.close(side)
}

/// A runtime of tokio that runs on the calling thread.
fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().build().map_err(|error| again(&error))
}

/// The same by many tasks of one runtime.
fn tasks(turns: &mut Turns<'_>, tasks: u32) -> Result<(), Failure> {
    let case = turns.options.case(Test::Lat, 64, Memory::Private)?;
    let row = Row { what: "tasks", test: Test::Fetch, limit: "2*message_64", times: 2.0 };
    let mut side = turns.station(64)?;
    let (client, runtime, cost) = (client_of(turns, &mut side, 64)?, runtime()?, reading_cost());
    turns.row(&row, &case, &mut side, |_, length| {
        let (samples, begun) = (Arc::new(Mutex::new(Samples::new())), Instant::now());
        let each: Vec<_> = length
            .shares(tasks)
            .map(|length| {
                let (client, samples) = (client.clone(), Arc::clone(&samples));
                let call = async move || echoed(&client.start_raw(words()).await?);
                let record = move |took: u64| lock(&samples).record(took.saturating_sub(cost));
                runtime.spawn(operations_awaited(length, call, record))
            })
            .collect();
        runtime.block_on(async {
            for task in each {
                task.await.unwrap_or_else(|ended| std::panic::resume_unwind(ended.into_panic()))?;
            }
            Ok::<_, LaneError>(())
        })?;
        Ok(together(std::mem::take(&mut *lock(&samples)), begun))
    })?;
    drop(client);
    turns.close(side)
}

/// What tasks have measured: of one histogram for each, to add them up would take longer than the calls.
fn lock(samples: &Mutex<Samples>) -> MutexGuard<'_, Samples> {
    samples.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What several have measured at the same time, and how many operations that were a second.
fn together(samples: Samples, begun: Instant) -> Slice {
    let count = samples.quantiles(1.0).map_or(0, |quantiles| quantiles.count);
    let msgs_per_s = Some(count as f64 / begun.elapsed().as_secs_f64());
    Slice { samples: Some(samples), count, msgs_per_s, tally: Tally::default() }
}

/// The same to a server that a service's thread serves.
fn served(turns: &mut Turns<'_>) -> Result<(), Failure> {
    let case = turns.options.case(Test::Lat, 64, Memory::Private)?;
    let row = Row { what: "served", test: Test::Fetch, limit: "2*message_64", times: 2.0 };
    let mut side = turns.station(64)?;
    turns.attended(&mut side, |side| side.call(SERVED, &[1]).map(drop))?;
    let client = client_of(turns, &mut side, 64)?;
    turns.row(&row, &case, &mut side, |side, length| calls(side, length, |_| echoed(&client.call_raw(words())?)))?;
    drop(client);
    turns.close(side)
}

/// The same by threads that share the client, on any core.
fn shared(turns: &mut Turns<'_>, threads: u32) -> Result<(), Failure> {
    let case = turns.options.case(Test::Lat, 64, Memory::Private)?;
    let row = Row { what: "shared", test: Test::Fetch, limit: "2*message_64", times: 2.0 };
    let mut side = turns.station(64)?;
    turns.attended(&mut side, |side| side.call(SERVED, &[1]).map(drop))?;
    let (client, cores) = (client_of(turns, &mut side, 64)?, cpu::allowed());
    turns.row(&row, &case, &mut side, |_, length| {
        let begun = Instant::now();
        let each = length.shares(threads).map(|length| {
            let (client, cores) = (&client, &cores);
            move || -> Result<Samples, LaneError> {
                // Whoever begins a thread has one core.
                let _ = cpu::allow(cores);
                operations(length, &mut (), |()| echoed(&client.call_raw(words())?))
            }
        });
        let samples = std::thread::scope(|scope| {
            let begun: Result<Vec<_>, _> = each.map(|run| cpu::spawn(scope, run)).collect();
            begun?.into_iter().try_fold(Samples::new(), |mut all, thread| {
                all.add(&thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
                Ok::<_, LaneError>(all)
            })
        })?;
        Ok(together(samples, begun))
    })?;
    drop(client);
    turns.close(side)
}

/// Random pages of a region as large as that of `perf fetch`, each by a raw call.
fn fetch(turns: &mut Turns<'_>, case: &Case) -> Result<(), Failure> {
    let bytes = case.shape.bytes;
    let pages = pages_of(bytes);
    let by_put = case.shape.memory == Memory::Pool;
    let what = if by_put { "fetch_put" } else { "fetch_reference" };
    let row = Row { what, test: Test::Fetch, limit: "raw_fetch", times: 1.0 };
    let mut side = turns.station(u64::from(bytes))?;
    turns.attended(&mut side, |side| side.call(STOCK, &[pages, bytes]).map(drop))?;
    let client = client_of(turns, &mut side, u64::from(bytes))?;
    let mut random = fastrand::Rng::with_seed(case.seed);
    turns.row(&row, case, &mut side, |side, length| {
        calls(side, length, |side| {
            let raw = Raw::new(if by_put { FETCH } else { LEND }).args(&random.u32(..pages).to_le_bytes());
            let raw = if by_put { raw.reply_into(Landing::Pages(bytes as usize)) } else { raw };
            let reply = client.call_raw(raw)?;
            if reply.payload_len() != bytes as usize {
                return Err(LaneError::Unexpected);
            }
            side.tally.read(&reply.receipt());
            Ok(())
        })
    })?;
    drop(client);
    turns.close(side)
}

/// The same by requests of who has the node.
fn am_fetch(turns: &mut Turns<'_>, case: &Case) -> Result<(), Failure> {
    let bytes = case.shape.bytes;
    let pages = pages_of(bytes);
    let by_put = case.shape.memory == Memory::Pool;
    let what = if by_put { "am_fetch_put" } else { "am_fetch_reference" };
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
