//! The program `cutthrough`: what it reads, measures and prints.
//!
//! A command line goes through these files in order: [`args`] reads it, [`main`] hands it to the command ([`demo`],
//! [`info`], [`key`], [`lease`], [`perf`], [`run`], [`stat`]), which measures on chosen cores ([`cpu`]) with [`clock`]
//! and [`stats`], or simulates ([`sim`]), and prints through [`output`] for scripts and [`table`] and [`timeline`] for
//! people. A [`failure`] is one line on standard error. Commands that either names are written by [`hint`].

#![forbid(unsafe_code)]

pub mod address;
pub mod args;
pub mod clock;
pub mod cpu;
pub mod demo;
pub mod failure;
pub mod file;
pub mod hint;
pub mod info;
pub mod key;
pub mod lease;
pub mod machine;
pub mod output;
pub mod perf;
pub mod progress;
pub mod run;
pub mod sim;
pub mod stat;
pub mod stats;
pub mod table;
pub mod timeline;
pub mod units;
pub mod veth;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::Builder;
use std::time::Duration;

use args::{Command, Parsed};
use failure::Failure;
use output::Output;

/// Exit code of a program that ran, and a check that it was asked for failed.
const CHECK_FAILED: u8 = 1;

/// Exit code of a program that could not run.
const CANNOT_RUN: u8 = 2;

/// How long the reader of standard error may take where haste is.
const HASTE: Duration = Duration::from_secs(1);

/// Runs the program with these words, its own name first, and returns its exit code: 0 done, 1 a check that was asked
/// for failed, 2 could not run.
pub fn main(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    // A file that is longer than `ulimit -f` allows is an error then, and no death. Programs that this one starts do
    // not inherit that. Where it cannot be had, all is as it would have been without.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    match run(words) {
        Ok(()) | Err(Failure::ReaderGone) => ExitCode::SUCCESS,
        Err(Failure::InHaste(failure)) => {
            say_in_haste(line_of(&failure));
            code_of(&failure)
        }
        Err(failure) => {
            // If standard error is gone too, the exit code alone has to tell.
            let _ = io::stderr().write_all(line_of(&failure).as_bytes());
            code_of(&failure)
        }
    }
}

fn line_of(failure: &Failure) -> String {
    format!("cutthrough: {failure}\n")
}

fn code_of(failure: &Failure) -> ExitCode {
    ExitCode::from(if matches!(failure, Failure::CheckFailed { .. }) { CHECK_FAILED } else { CANNOT_RUN })
}

/// Says this on standard error if that takes it soon. Not by way of its lock, which another thread may hold that waits
/// for the same reader.
fn say_in_haste(line: String) {
    let (done, said) = mpsc::channel();
    let say = move || {
        let _ = rustix::io::write(io::stderr(), line.as_bytes());
        let _ = done.send(());
    };
    if Builder::new().spawn(say).is_ok() {
        // The thread ends with this process.
        let _ = said.recv_timeout(HASTE);
    }
}

fn run(words: impl IntoIterator<Item = OsString>) -> Result<(), Failure> {
    let cli = match args::parse(words)? {
        Parsed::Run(cli) => cli,
        Parsed::Print(text) => return Output::new(false).say(text.trim_end()),
    };
    let output = Output::new(cli.json);
    table::fit(output.columns());
    match cli.command {
        Command::Info => info::run(output),
        Command::Perf { test } => perf::run(&test, output),
        Command::Run(args) => run::run(&args, output),
        Command::Key(args) => key::run(&args, output),
        Command::Lease(args) => lease::run(&args, output),
        Command::Demo(args) => demo::run(&args, output),
        Command::Stat(args) => stat::run(&args, output),
        Command::Sim(args) => sim::run(&args, output),
    }
}
