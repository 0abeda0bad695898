//! Checks of this repository: `cargo xtask tidy` and `cargo xtask ci`.
#![forbid(unsafe_code)]

mod ci;
mod crates;
mod sources;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

commands:
  tidy   the house rules that no other tool checks
  ci     every check, one after the other (`.ci/run` installs what they need first)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => report(&tidy::faults(root())),
        ["ci"] => ci::run(root()),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            true
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The folder of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Prints the faults: whether there are none.
fn report(faults: &[String]) -> bool {
    for fault in faults {
        eprintln!("{fault}");
    }
    faults.is_empty()
}
