//! The program with rings of raw frames, across a veth pair: what it leases, to whom, and how it refuses. What needs
//! the rights of root says so and does nothing without them.

mod defrag;
mod errors;
mod lease;
mod serve;

use cutthrough_conform::skipped;
use std::net::IpAddr;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use cutthrough_cli::veth::{Pair, Space};

/// Nothing may take longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A wire, or none, and the reason was printed: no namespaces, or no ring in them.
fn wire() -> Option<Pair> {
    let missing = match Pair::make(1500) {
        Ok(pair) => match cutthrough::probe(cutthrough::Adapter::Xdp).into_iter().find_map(|(_, tried)| tried.err()) {
            None => return Some(pair),
            Some(missing) => missing,
        },
        Err(missing) => missing.to_string(),
    };
    crate::skipped(missing);
    None
}

/// The program with these words, to be started in a namespace by [`Space::within`].
fn program(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cutthrough"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is UTF-8")
}

/// What it says where it cannot run: one line on standard error, which begins with its name and says what to do, and
/// exit code 2.
fn refusal(output: &Output) -> String {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("cutthrough: ") && said.contains("; "), "{said}");
    said.to_owned()
}

/// What `ip` says of the near interface.
fn shown(pair: &Pair) -> String {
    let ip = || Command::new("ip").args(["link", "show", "near"]).output().expect("ip runs");
    text(&within(&pair.near, ip).stdout).to_owned()
}

fn within<R: Send>(space: &Space, run: impl FnOnce() -> R + Send) -> R {
    space.within(run).expect("the namespace")
}

/// `SCHEME:HOST:PORT` of an end of the wire.
fn at(scheme: &str, host: IpAddr, port: u16) -> String {
    format!("{scheme}:{host}:{port}")
}
