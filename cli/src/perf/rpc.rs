//! `perf rpc`: calls, and pages fetched by them, each row in turn with the raw messages that it is held against; and
//! beside them what the same costs as active messages, without a client that threads share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use clap::{Args, ValueEnum};
use cutthrough::Landing;
use cutthrough::am::{CallError, Failure as Refusal, Reply, Service};
use cutthrough::rpc::{Client, Raw};
use tokio::runtime::Runtime;

use crate::args::{Measure, Memory};
use crate::clock::{Length, operations, operations_awaited, reading_cost};
use crate::cpu;
use crate::failure::Failure;
use crate::output::Output;
use crate::stats::Samples;
use crate::units::Size;

use super::am::ground::{self, Ground, Plan, Ready, Row, Side};
use super::am::station::{ECHO, FETCH, LEND, SERVED, STOCK, TYPED};
use super::am::times;
use super::am::turns::{self, Common};
use super::cargo::Tally;
use super::case::{Case, Slice, Test};
use super::fetch::pages_of;
use super::lane::{LaneError, PATIENCE};

/// Threads that share a client, unless more or fewer are asked for.
const THREADS: u32 = 8;

/// Sizes of fetched pages, unless others are asked for.
pub const PAGES: [Size; 1] = [Size(8 << 10)];

/// Ways in which pages are fetched: by put, and by reference.
pub const FETCHED: [Memory; 2] = [Memory::Pool, Memory::Reference];

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
             included, and the calls of all of them a second; against: as for one."
        }
        "shared" => {
            "the same by threads that share one client: the time of each call, and the calls of all of them a second; \
             against: as for one thread."
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
    let (raw, rows) = (args.common.measure(), turns::wanted(&args.rows));
    let sizes = if args.size.is_empty() { &PAGES[..] } else { &args.size };
    let (threads, tasks) = (args.threads.unwrap_or(THREADS), args.tasks.unwrap_or(TASKS));
    let mut plans = Vec::new();
    for row in rows {
        match row {
            RpcRow::Tasks => plans.push(tasks_of(&raw, tasks)?),
            RpcRow::Shared => plans.push(shared(&raw, threads)?),
            RpcRow::Fetch | RpcRow::AmFetch => plans.extend(fetches(row, &raw, sizes, &FETCHED)?),
            row => plans.push(call(row, &raw)?),
        }
    }
    turns::run("rpc", &args.common, output, explain, |turns| {
        // Where all rows are asked for, these are left out that cannot be.
        let narrow = turns.way.is_narrow();
        let possible = |plan: &&Plan| !args.rows.is_empty() || plan.fits(narrow).is_ok();
        plans.iter().filter(possible).try_for_each(|plan| turns.row(plan))
    })
}

/// A row of calls of 64 bytes; those of many threads or tasks have as many as by default.
///
/// # Errors
/// If an option cannot be served.
pub fn call(row: RpcRow, options: &Measure) -> Result<Plan, Failure> {
    match row {
        RpcRow::Raw => client("raw", options, || Ok(|client: &Client| echoed(&client.call_raw(words())?))),
        RpcRow::Tokio => client("tokio", options, || {
            let runtime = runtime()?;
            Ok(move |client: &Client| echoed(&runtime.block_on(client.start_raw(words()))?))
        }),
        RpcRow::Tasks => tasks_of(options, TASKS),
        RpcRow::Typed => client("typed", options, || {
            // 64 bytes with the lengths of both parts.
            let asked = (7, vec![7; 48]);
            Ok(move |client: &Client| match client.call(TYPED, &asked)? {
                55 => Ok(()),
                _ => Err(LaneError::Unexpected),
            })
        }),
        RpcRow::Served => served(options),
        RpcRow::Shared => shared(options, THREADS),
        RpcRow::AmCall => am_call(options),
        RpcRow::Fetch | RpcRow::AmFetch => {
            Err(Failure::new("a page is no call of 64 bytes", "report this, with the command"))
        }
    }
}

/// Rows of pages of these sizes, fetched in these ways.
///
/// # Errors
/// If an option cannot be served.
pub fn fetches(row: RpcRow, options: &Measure, sizes: &[Size], ways: &[Memory]) -> Result<Vec<Plan>, Failure> {
    let fetch = if row == RpcRow::Fetch { fetch } else { am_fetch };
    let each = |memory| sizes.iter().map(move |size| fetch(options, size.0, memory));
    ways.iter().flat_map(|memory| each(*memory)).collect()
}

/// The raw call of 64 bytes.
fn words() -> Raw<'static> {
    Raw::new(ECHO).args(&[7; 64])
}

fn echoed(reply: &Reply) -> Result<(), LaneError> {
    if reply.args().len() == 64 { Ok(()) } else { Err(LaneError::Unexpected) }
}

/// What rows of calls of 64 bytes are held against.
fn of_call(what: &'static str, options: &Measure) -> Result<(Row, Case), Failure> {
    let row = Row { what, test: Test::Fetch, limit: "2*message_64", times: 2.0 };
    Ok((row, ground::raw(options, Test::Lat, 64, Memory::Private)?))
}

fn am_call(options: &Measure) -> Result<Plan, Failure> {
    let (row, case) = of_call("am_call", options)?;
    Ok(Plan::new(row, case, options, |ground, _| {
        Ok(Ready::new(ground.station(64)?, |side, length| {
            calls(side, length, |side| {
                echoed(&side.node.call(side.channel, ECHO, &[7; 16], PATIENCE).map_err(CallError::from)?)
            })
        }))
    }))
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
fn client_of(ground: &mut Ground<'_>, side: &mut Side, bytes: u64) -> Result<Client, Failure> {
    let node = ground.peer.node(&ground.setup(bytes)?)?;
    let service = Arc::new(Service::spawn(node, |_| ()).map_err(|error| again(&error))?);
    // The other end lets somebody in only while it attends.
    let address = ground.peer.address_of(side.number);
    let client = ground.attended(side, |_| Ok(Client::connect(service, &address, PATIENCE)))?;
    client.map_err(|error| again(&error))
}

/// Calls of 64 bytes one after the other, each made by what `caller` makes.
fn client<C>(
    what: &'static str,
    options: &Measure,
    caller: impl Fn() -> Result<C, Failure> + 'static,
) -> Result<Plan, Failure>
where
    C: Fn(&Client) -> Result<(), LaneError> + Send + 'static,
{
    let (row, case) = of_call(what, options)?;
    Ok(Plan::new(row, case, options, move |ground, _| {
        let mut side = ground.station(64)?;
        let (client, call) = (client_of(ground, &mut side, 64)?, caller()?);
        Ok(Ready::new(side, move |side, length| calls(side, length, |_| call(&client))))
    })
    .with_client())
}

/// A runtime of tokio that runs on the calling thread.
fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().build().map_err(|error| again(&error))
}

/// The same by many tasks of one runtime.
fn tasks_of(options: &Measure, tasks: u32) -> Result<Plan, Failure> {
    let (row, case) = of_call("tasks", options)?;
    Ok(Plan::new(row, case, options, move |ground, _| {
        let mut side = ground.station(64)?;
        let (client, runtime, cost) = (client_of(ground, &mut side, 64)?, runtime()?, reading_cost());
        Ok(Ready::new(side, move |_, length| {
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
        }))
    })
    .with_client())
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

/// A station that a service's thread serves, and a client of it.
fn service_of(ground: &mut Ground<'_>) -> Result<(Side, Client), Failure> {
    let mut side = ground.station(64)?;
    ground.attended(&mut side, |side| side.call(SERVED, &[1]).map(drop))?;
    let client = client_of(ground, &mut side, 64)?;
    Ok((side, client))
}

/// The same to a server that a service's thread serves.
fn served(options: &Measure) -> Result<Plan, Failure> {
    let (row, case) = of_call("served", options)?;
    Ok(Plan::new(row, case, options, |ground, _| {
        let (side, client) = service_of(ground)?;
        Ok(Ready::new(side, move |side, length| calls(side, length, |_| echoed(&client.call_raw(words())?))))
    })
    .with_client())
}

/// The same by threads that share the client, on any core.
fn shared(options: &Measure, threads: u32) -> Result<Plan, Failure> {
    let (row, case) = of_call("shared", options)?;
    Ok(Plan::new(row, case, options, move |ground, _| {
        let ((side, client), cores) = (service_of(ground)?, cpu::allowed());
        Ok(Ready::new(side, move |_, length| {
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
        }))
    })
    .with_client())
}

/// The row of pages that come in this way, and what it is held against: `by_put` or `by_reference` is what it says.
fn of_fetch(
    [by_put, by_reference]: [&'static str; 2],
    options: &Measure,
    bytes: u64,
    memory: Memory,
) -> Result<(Row, Case), Failure> {
    let what = if memory == Memory::Pool { by_put } else { by_reference };
    let row = Row { what, test: Test::Fetch, limit: "raw_fetch", times: 1.0 };
    Ok((row, ground::raw(options, Test::Fetch, bytes, memory)?))
}

/// A station that has pages of so many bytes, and how many.
fn stock_of(ground: &mut Ground<'_>, bytes: u32) -> Result<(Side, u32), Failure> {
    let pages = pages_of(bytes);
    let mut side = ground.station(bytes.into())?;
    ground.attended(&mut side, |side| side.call(STOCK, &[pages, bytes]).map(drop))?;
    Ok((side, pages))
}

/// Random pages of a region as large as that of `perf fetch`, each by a raw call.
fn fetch(options: &Measure, bytes: u64, memory: Memory) -> Result<Plan, Failure> {
    let (row, case) = of_fetch(["fetch_put", "fetch_reference"], options, bytes, memory)?;
    Ok(Plan::new(row, case, options, |ground, case| {
        let (bytes, by_put) = (case.shape.bytes, case.shape.memory == Memory::Pool);
        let (mut side, pages) = stock_of(ground, bytes)?;
        let client = client_of(ground, &mut side, bytes.into())?;
        let mut random = fastrand::Rng::with_seed(case.seed);
        Ok(Ready::new(side, move |side, length| {
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
        }))
    })
    .with_client())
}

/// The same by requests of who has the node.
fn am_fetch(options: &Measure, bytes: u64, memory: Memory) -> Result<Plan, Failure> {
    let (row, case) = of_fetch(["am_fetch_put", "am_fetch_reference"], options, bytes, memory)?;
    Ok(Plan::new(row, case, options, |ground, case| {
        let (bytes, by_put) = (case.shape.bytes, case.shape.memory == Memory::Pool);
        let (side, pages) = stock_of(ground, bytes)?;
        let mut random = fastrand::Rng::with_seed(case.seed);
        Ok(Ready::new(side, move |side, length| {
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
        }))
    }))
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
