//! What the seven programs share: their arguments, random numbers, the clock, and the last line.
#![allow(dead_code, unused_imports, reason = "each program uses some of it")]

mod kernels;

use std::time::{Duration, Instant};

use cutthrough_splitc::{Error, World};
pub(crate) use kernels::{Mesh, add, apply, multiply_row, product, random};

/// What a program ends with.
pub(crate) type End = Result<(), Box<dyn std::error::Error>>;

/// Whether somebody has asked what a program does, by `--help`; then it was said, with how it is called.
pub(crate) fn helped(what: &str, usage: &str) -> bool {
    let asked = std::env::args().nth(1).is_some_and(|word| word == "--help");
    if asked {
        println!("{what}\nusage: cutthrough run -n N -- {usage}");
    }
    asked
}

/// The argument with this number, from 1, or a default.
///
/// # Errors
/// If it is no such thing.
pub(crate) fn argument<T: std::str::FromStr>(number: usize, name: &str, default: T) -> Result<T, String> {
    match std::env::args().nth(number) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| format!("argument {number}, {name}, cannot be {text:?}")),
    }
}

/// Whether the first argument asks for bulk transfers rather than short messages.
///
/// # Errors
/// If it is neither.
pub(crate) fn bulk() -> Result<bool, String> {
    match std::env::args().nth(1).as_deref() {
        None | Some("bulk") => Ok(true),
        Some("small") => Ok(false),
        Some(other) => Err(format!("the first argument is small or bulk, not {other:?}")),
    }
}

/// First and end of this rank's share of `total` things that are dealt out in runs of nearly the same length.
#[must_use]
pub(crate) fn share(world: &World, total: usize) -> std::ops::Range<usize> {
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    rank * total / size..(rank + 1) * total / size
}

/// Runs what all ranks do together, from when all are ready until all are done.
///
/// # Errors
/// That of the ranks.
pub(crate) fn timed<R>(
    world: &mut World,
    run: impl FnOnce(&mut World) -> Result<R, Error>,
) -> Result<(R, Duration), Error> {
    world.barrier()?;
    let begun = Instant::now();
    let result = run(world)?;
    world.barrier()?;
    Ok((result, begun.elapsed()))
}

/// Runs something alone.
pub(crate) fn alone<R>(run: impl FnOnce() -> R) -> (R, Duration) {
    let begun = Instant::now();
    let result = run();
    (result, begun.elapsed())
}

/// Says how long it took, against a serial run; on rank 0. `right`: both came to the same.
///
/// # Errors
/// If they did not.
pub(crate) fn report(
    world: &World,
    what: &str,
    together: Duration,
    serial: Duration,
    right: bool,
) -> Result<(), String> {
    if !right {
        return Err(format!("{what}: not what a serial run comes to"));
    }
    let (a, b) = (together.as_secs_f64() * 1e3, serial.as_secs_f64() * 1e3);
    println!("{what}: {a:.2} ms on {} ranks, {b:.2} ms serial, {:.2} x, verified", world.size(), b / a);
    Ok(())
}
