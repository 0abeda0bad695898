//! Options of `run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::args::seconds;

/// Options of `run`.
#[derive(Args, Debug)]
#[command(
    override_usage = "cutthrough run [OPTIONS] -- PROGRAM [ARG]...",
    after_help = "Examples:\n  \
    cutthrough run -n 4 -- ./program 1000\n  \
    cutthrough run -n 2 --veth 9000 -- ./program   across a network of its own\n  \
    cutthrough run -n 8 --hosts hosts.txt -- /srv/program   by ssh\n\n\
    A file of hosts has one on a line: its name for ssh and, if that is not where\n\
    messages reach it, its address.\n\n\
    Exit codes: 0 every rank ended with 0; 1 a rank failed, or was ended; 2 a rank\n\
    could not be started."
)]
pub struct RunArgs {
    /// How many ranks are started
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096),
        default_value_t = 1)]
    pub ranks: u32,

    /// Deal the ranks out to two network namespaces joined by a veth pair of this MTU. Needs root, or 'unshare -Ur'
    #[arg(long, value_name = "MTU", conflicts_with = "hosts")]
    pub veth: Option<u32>,

    /// Deal the ranks out to the hosts of this file, by ssh
    #[arg(long, value_name = "FILE")]
    pub hosts: Option<PathBuf>,

    /// The first rank's UDP port on the hosts; the others have the next ones
    #[arg(long, value_name = "PORT", default_value_t = 7400, requires = "hosts")]
    pub port: u16,

    /// How many seconds a rank may take to start on its host, and to join the others
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value_t = 30.0)]
    pub start: f64,

    /// Become a rank, which ends with the process of this number.
    #[arg(long, hide = true, value_name = "PID")]
    pub end_with: Option<u32>,

    /// Go to this network namespace before.
    #[arg(long, hide = true, value_name = "PATH")]
    pub space: Option<PathBuf>,

    /// End the groups of processes that standard input names, when it ends.
    #[arg(long, hide = true)]
    pub guard: bool,

    /// The program, and its arguments
    #[arg(value_name = "PROGRAM", last = true, required_unless_present = "guard")]
    pub program: Vec<OsString>,
}
