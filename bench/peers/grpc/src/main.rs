//! gRPC's part of the comparison: tonic, unary calls of plain bytes and streams of them, one thread at each end.
//!
//! ```text
//! grpc-peer stream|calls server ADDRESS
//! grpc-peer stream|calls client ADDRESS CELL_MS SIZE...     (measures and prints)
//! ```
//!
//! An address is `IP:PORT` or `unix:PATH`. The client prints, for every size, one JSON object with half a round trip
//! and one with a rate: with `stream`, that at which a stream of messages reached the server; with `calls`, that of
//! unary calls, 64 of them under way on one connection. Every measured phase follows a shorter one that is not counted.

mod plain;
mod serve;

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::uri::PathAndQuery;
use tokio::task::{AbortHandle, JoinSet};
use tonic::Request;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};

use crate::plain::Plain;
use crate::serve::{Address, DRAIN, ECHO, END, LONGEST, WAIT, serve};

const USAGE: &str = "usage: grpc-peer stream|calls server ADDRESS | stream|calls client ADDRESS CELL_MS SIZE...";
/// How often the client looks for a server, and how long it waits between.
const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(10);
/// Calls under way where their rate is measured.
const UNDER_WAY: usize = 64;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

enum Side {
    Server(Address),
    Client { server: Address, cell: Duration, sizes: Vec<usize> },
}

/// What is measured beside the round trip.
#[derive(Clone, Copy)]
enum Rate {
    Stream,
    Calls,
}

fn parse(arguments: &[String]) -> Option<(Rate, Side)> {
    let [rate, side, address, rest @ ..] = arguments else {
        return None;
    };
    let rate = match rate.as_str() {
        "stream" => Rate::Stream,
        "calls" => Rate::Calls,
        _ => return None,
    };
    let address = address.parse().ok()?;
    let side = match (side.as_str(), rest) {
        ("server", []) => Side::Server(address),
        ("client", [cell_ms, sizes @ ..]) => Side::Client {
            server: address,
            cell: Duration::from_millis(cell_ms.parse().ok()?),
            sizes: sizes.iter().map(|size| size.parse().ok()).collect::<Option<_>>()?,
        },
        _ => return None,
    };
    Some((rate, side))
}

/// The client's end.
#[derive(Clone)]
struct Client(Grpc<Channel>);

impl Client {
    async fn find(server: &Address) -> Outcome<Self> {
        let endpoint = Endpoint::from_shared(server.uri())?;
        for _ in 1..TRIES {
            if let Ok(channel) = endpoint.connect().await {
                return Ok(Self(Grpc::new(channel).max_decoding_message_size(LONGEST)));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(format!("no server at {}", server.uri()).into())
    }

    async fn call(&mut self, path: &'static str, message: &Bytes) -> Outcome<Vec<u8>> {
        self.0.ready().await?;
        let path = PathAndQuery::from_static(path);
        Ok(self.0.unary(Request::new(message.clone()), path, Plain).await?.into_inner())
    }

    /// Half round trips in nanoseconds, one for each message; at least one.
    async fn pingpong(&mut self, message: &Bytes, cell: Duration) -> Outcome<Vec<f64>> {
        let mut samples = Vec::with_capacity(1 << 16);
        let start = Instant::now();
        let mut last = start;
        while last.duration_since(start) < cell {
            let back = self.call(ECHO, message).await?;
            if back.len() != message.len() {
                return Err(format!("{} B came back of {}", back.len(), message.len()).into());
            }
            let now = Instant::now();
            samples.push(now.duration_since(last).as_secs_f64() * 1e9 / 2.0);
            last = now;
        }
        Ok(samples)
    }

    /// Messages per second, counted until the server has said that it has them all.
    async fn stream(&mut self, message: &Bytes, cell: Duration) -> Outcome<f64> {
        self.0.ready().await?;
        let message = message.clone();
        let start = Instant::now();
        let messages = std::iter::repeat_with(move || message.clone()).take_while(move |_| start.elapsed() < cell);
        let request = Request::new(tokio_stream::iter(messages));
        let answer = self.0.client_streaming(request, PathAndQuery::from_static(DRAIN), Plain).await?.into_inner();
        let count = u64::from_le_bytes(answer.as_slice().try_into()?);
        Ok(f64::from(u32::try_from(count)?) / start.elapsed().as_secs_f64())
    }

    /// Calls per second, `UNDER_WAY` of them at any time.
    async fn calls(&self, message: &Bytes, cell: Duration) -> Outcome<f64> {
        let start = Instant::now();
        let mut callers = JoinSet::new();
        for _ in 0..UNDER_WAY {
            let (mut client, message) = (self.clone(), message.clone());
            callers.spawn(async move {
                let mut count = 0_u32;
                while start.elapsed() < cell {
                    client.call(ECHO, &message).await?;
                    count += 1;
                }
                Outcome::Ok(count)
            });
        }
        let mut count = 0;
        while let Some(ended) = callers.join_next().await {
            count += ended??;
        }
        Ok(f64::from(count) / start.elapsed().as_secs_f64())
    }

    /// Half a round trip and its 99th percentile.
    async fn latency(&mut self, size: usize, cell: Duration) -> Outcome<()> {
        let message = Bytes::from(vec![1; size]);
        self.pingpong(&message, cell / 4).await?;
        let mut samples = self.pingpong(&message, cell).await?;
        samples.sort_unstable_by(f64::total_cmp);
        let (p50, p99) = (samples[samples.len() / 2], samples[samples.len() * 99 / 100]);
        println!("{{\"size\":{size},\"p50_ns\":{p50:.1},\"p99_ns\":{p99:.1}}}");
        Ok(())
    }

    /// The rate of a stream, or of calls.
    async fn rate(&mut self, size: usize, rate: Rate, cell: Duration) -> Outcome<()> {
        let message = Bytes::from(vec![1; size]);
        match rate {
            Rate::Stream => {
                self.stream(&message, cell / 4).await?;
                let rate = self.stream(&message, cell).await?;
                println!("{{\"size\":{size},\"msgs_per_s\":{rate:.1}}}");
            }
            Rate::Calls => {
                self.calls(&message, cell / 4).await?;
                let rate = self.calls(&message, cell).await?;
                println!("{{\"size\":{size},\"calls_per_s\":{rate:.1}}}");
            }
        }
        Ok(())
    }

    /// Everything. Where many calls are under way there is no end of work, and to look for arrivals after each turn
    /// only costs: for their rate, both ends wait in the kernel again.
    async fn measure(&mut self, rate: Rate, sizes: &[usize], cell: Duration, spinning: &AbortHandle) -> Outcome<()> {
        match rate {
            Rate::Stream => {
                for &size in sizes {
                    self.latency(size, cell).await?;
                    self.rate(size, rate, cell).await?;
                }
            }
            Rate::Calls => {
                for &size in sizes {
                    self.latency(size, cell).await?;
                }
                self.call(WAIT, &Bytes::new()).await?;
                spinning.abort();
                for &size in sizes {
                    self.rate(size, rate, cell).await?;
                }
            }
        }
        self.call(END, &Bytes::new()).await?;
        Ok(())
    }
}

/// Keeps this thread from waiting in the kernel: the runtime looks for arrivals after each turn of this.
async fn spin() {
    loop {
        tokio::task::yield_now().await;
    }
}

async fn run(rate: Rate, side: Side) -> Outcome<()> {
    let spinning = tokio::spawn(spin()).abort_handle();
    match side {
        Side::Server(address) => serve(address, spinning).await,
        Side::Client { server, cell, sizes } => {
            Client::find(&server).await?.measure(rate, &sizes, cell, &spinning).await
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((rate, side)) = parse(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut builder = tokio::runtime::Builder::new_current_thread();
    if matches!(rate, Rate::Stream) {
        builder.event_interval(1);
    }
    let runtime = builder.enable_all().build();
    match runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(rate, side))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("grpc-peer: {error}");
            ExitCode::FAILURE
        }
    }
}
