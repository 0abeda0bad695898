//! What the programs share that run the seven: their arguments, the clock, and the last line.
#![allow(dead_code, reason = "each program uses some of it")]

use std::time::{Duration, Instant};

use cutthrough_space::programs::Program;
use cutthrough_splitc::World;

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

/// Runs one of the seven as a rank of the job that the environment names. Rank 0 holds it against a serial run, and
/// says how long both took.
///
/// # Errors
/// If they come to different things; that of a rank.
pub(crate) fn run(program: Program) -> End {
    program.check(1)?;
    let mut world = World::from_environment()?;
    program.check(world.size())?;
    let done = program.run(&mut world)?;
    if let Some(came) = done.values {
        let serial = program.serial();
        let begun = Instant::now();
        let expected = serial();
        let time = begun.elapsed();
        report(program, &world, [done.time, time], program.agrees(&came, &expected))?;
    }
    Ok(world.finish()?)
}

fn report(program: Program, world: &World, [together, serial]: [Duration; 2], right: bool) -> Result<(), String> {
    let what = program.name();
    if !right {
        return Err(format!("{what}: not what a serial run comes to"));
    }
    let (a, b) = (together.as_secs_f64() * 1e3, serial.as_secs_f64() * 1e3);
    println!("{what}: {a:.2} ms on {} ranks, {b:.2} ms serial, {:.2} x, verified", world.size(), b / a);
    Ok(())
}
