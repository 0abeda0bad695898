//! The two phases of every size: a ping-pong, then a one-way stream. Each begins with a warm-up that is not counted.

use std::error::Error;
use std::time::{Duration, Instant};

use crate::link::{Arrival, Link};

/// Payload bytes sent between two looks at the clock while streaming.
const BURST_BYTES: usize = 1 << 20;
/// Messages sent between two looks at the clock, at most.
const BURST_MESSAGES: usize = 64;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The server's part: answers the ping-pong's warm-up and its measured run, then takes both streams.
///
/// # Errors
/// What iceoryx2 reports.
pub(crate) fn answer(link: &mut Link) -> Outcome<()> {
    for _ in ["warm-up", "measured"] {
        while link.receive()? == Arrival::Message {
            link.send()?;
        }
        link.send_end()?;
    }
    for _ in ["warm-up", "measured"] {
        while link.receive()? == Arrival::Message {}
        link.send_end()?;
    }
    Ok(())
}

/// The client's part: measures both phases and prints a JSON object for each.
///
/// # Errors
/// What iceoryx2 reports.
pub(crate) fn one_size(link: &mut Link, cell: Duration) -> Outcome<()> {
    let size = link.size;
    pingpong(link, cell / 4)?;
    let mut samples = pingpong(link, cell)?;
    samples.sort_unstable_by(f64::total_cmp);
    let (p50, p99) = (samples[samples.len() / 2], samples[samples.len() * 99 / 100]);
    println!("{{\"size\":{size},\"p50_ns\":{p50:.1},\"p99_ns\":{p99:.1}}}");
    stream(link, cell / 4)?;
    let rate = stream(link, cell)?;
    println!("{{\"size\":{size},\"msgs_per_s\":{rate:.1}}}");
    Ok(())
}

/// Half round trips in nanoseconds, one for each message; at least one.
fn pingpong(link: &mut Link, cell: Duration) -> Outcome<Vec<f64>> {
    let mut samples = Vec::with_capacity(1 << 20);
    let start = Instant::now();
    let mut last = start;
    while last.duration_since(start) < cell {
        link.send()?;
        link.receive()?;
        let now = Instant::now();
        samples.push(now.duration_since(last).as_secs_f64() * 1e9 / 2.0);
        last = now;
    }
    finish(link)?;
    Ok(samples)
}

/// Messages per second, counted until the server has said that it has them all.
fn stream(link: &mut Link, cell: Duration) -> Outcome<f64> {
    let burst = (BURST_BYTES / link.size).clamp(1, BURST_MESSAGES);
    let mut messages = 0_u32;
    let start = Instant::now();
    while start.elapsed() < cell {
        for _ in 0..burst {
            link.send()?;
            messages += 1;
        }
    }
    finish(link)?;
    Ok(f64::from(messages) / start.elapsed().as_secs_f64())
}

/// Ends the phase and waits for the server to have seen the end.
fn finish(link: &mut Link) -> Outcome<()> {
    link.send_end()?;
    while link.receive()? == Arrival::Message {}
    Ok(())
}
