//! gRPC's part of the comparison: tonic, unary calls of plain bytes and streams of them, one thread at each end.
//!
//! ```text
//! grpc-peer server ADDRESS:PORT
//! grpc-peer client ADDRESS:PORT CELL_MS SIZE...     (measures and prints)
//! ```
//!
//! The client prints, for every size, one JSON object with half a round trip and one with the rate at which a stream
//! of messages reached the server. Every measured phase follows a shorter one that is not counted.

mod plain;
mod serve;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::uri::PathAndQuery;
use tonic::Request;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};

use crate::plain::Plain;
use crate::serve::{DRAIN, ECHO, END, LONGEST, serve};

const USAGE: &str = "usage: grpc-peer server ADDRESS:PORT | client ADDRESS:PORT CELL_MS SIZE...";
/// How often the client looks for a server, and how long it waits between.
const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(10);

type Outcome<T> = Result<T, Box<dyn Error>>;

enum Options {
    Server(SocketAddr),
    Client { server: SocketAddr, cell: Duration, sizes: Vec<usize> },
}

fn parse(arguments: &[String]) -> Option<Options> {
    let [side, address, rest @ ..] = arguments else {
        return None;
    };
    let address = address.parse().ok()?;
    match (side.as_str(), rest) {
        ("server", []) => Some(Options::Server(address)),
        ("client", [cell_ms, sizes @ ..]) => Some(Options::Client {
            server: address,
            cell: Duration::from_millis(cell_ms.parse().ok()?),
            sizes: sizes.iter().map(|size| size.parse().ok()).collect::<Option<_>>()?,
        }),
        _ => None,
    }
}

/// The client's end.
struct Client(Grpc<Channel>);

impl Client {
    async fn find(server: SocketAddr) -> Outcome<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{server}"))?;
        for _ in 1..TRIES {
            if let Ok(channel) = endpoint.connect().await {
                return Ok(Self(Grpc::new(channel).max_decoding_message_size(LONGEST)));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(format!("no server at {server}").into())
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

    async fn one_size(&mut self, size: usize, cell: Duration) -> Outcome<()> {
        let message = Bytes::from(vec![1; size]);
        self.pingpong(&message, cell / 4).await?;
        let mut samples = self.pingpong(&message, cell).await?;
        samples.sort_unstable_by(f64::total_cmp);
        let (p50, p99) = (samples[samples.len() / 2], samples[samples.len() * 99 / 100]);
        println!("{{\"size\":{size},\"p50_ns\":{p50:.1},\"p99_ns\":{p99:.1}}}");
        self.stream(&message, cell / 4).await?;
        let rate = self.stream(&message, cell).await?;
        println!("{{\"size\":{size},\"msgs_per_s\":{rate:.1}}}");
        Ok(())
    }
}

/// Keeps this thread from waiting in the kernel: the runtime looks for arrivals after each turn of this.
async fn spin() {
    loop {
        tokio::task::yield_now().await;
    }
}

async fn run(options: Options) -> Outcome<()> {
    tokio::spawn(spin());
    match options {
        Options::Server(address) => serve(address).await,
        Options::Client { server, cell, sizes } => {
            let mut client = Client::find(server).await?;
            for size in sizes {
                client.one_size(size, cell).await?;
            }
            client.call(END, &Bytes::new()).await?;
            Ok(())
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(options) = parse(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().event_interval(1).build();
    match runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(options))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("grpc-peer: {error}");
            ExitCode::FAILURE
        }
    }
}
