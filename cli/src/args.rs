//! The command line: every command, option and help text.

mod compare;
mod measure;
mod sim;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand};

pub use self::compare::{CompareArgs, CompareTest};
pub use self::measure::{Across, Adapter, Far, Measure, Memory};
pub use self::sim::{FaultArgs, Plant, PointArgs, SimArgs, SimCommand, SimResults};
use crate::failure::Failure;
use crate::hint;
use crate::perf::across::Mode;
use crate::perf::am::AmArgs;
use crate::perf::idle::IdleArgs;
use crate::perf::incast::IncastArgs;
use crate::perf::limits::Limit;
use crate::perf::rpc::RpcArgs;
use crate::units::Size;

/// Messages and memory pages that start arriving before they have finished leaving.
#[derive(Debug, Parser)]
#[command(
    name = "cutthrough",
    bin_name = "cutthrough",
    version,
    max_term_width = 80,
    after_help = "Examples:\n  \
        cutthrough demo                            see it work, in under 20 s\n  \
        cutthrough info                            what this machine offers\n  \
        cutthrough perf lat --size 64,8KiB,1MiB    latency of three sizes\n\n\
        Exit codes: 0 done; 1 a check that was asked for failed; 2 could not run."
)]
pub struct Cli {
    /// Print one JSON object per line on standard output; text for people goes to standard error
    #[arg(long, global = true, display_order = 1000)]
    pub json: bool,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Fetch every page of a file from another process, and see how
    #[command(after_help = "Examples:\n  \
        cutthrough demo\n  \
        cutthrough demo --file /usr/bin/bash --svg timeline.svg")]
    Demo(DemoArgs),

    /// Show the adapters usable here, why others are not, and the limits that matter
    #[command(after_help = "Examples:\n  \
        cutthrough info\n  \
        cutthrough info --json")]
    Info,

    /// Measure this machine, and messages against it
    #[command(after_help = "Examples:\n  \
        cutthrough perf limits                    what this machine can do at best\n  \
        cutthrough perf lat --size 64,8KiB,1MiB   latency of three sizes\n  \
        cutthrough perf compare lat --a \"--policy adaptive\" --b \"--policy fixed:8192\"")]
    Perf {
        /// What to measure.
        #[command(subcommand)]
        test: PerfTest,
    },

    /// Start a program as many ranks, with their endpoints joined
    Run(crate::run::args::RunArgs),

    /// Make a key file for channels between machines
    #[command(after_help = "Examples:\n  \
        cutthrough key pages.key          a key that both sides share\n  \
        cutthrough key own.key --static   a private key; prints the public one\n\n\
        The line that is printed is for the key files of peers.")]
    Key(crate::key::KeyArgs),

    /// Open a ring of the adapter xdp for a process that may open none itself; needs root
    #[command(after_help = "Example, for a program that listens at or connects by the adapter xdp:\n\n  \
        as root; it ends when the ring is taken:\n    \
        cutthrough lease xdp:10.0.0.1:7000 --user 1000 --at /run/ring.sock\n  \
        as user 1000:\n    \
        CUTTHROUGH_LEASE=/run/ring.sock page_server FILE xdp:10.0.0.1:7000 KEYS")]
    Lease(crate::lease::LeaseArgs),

    /// Show live counters and queue depths of running endpoints
    #[command(after_help = "Examples:\n  \
        cutthrough stat                       once, all of them\n  \
        cutthrough stat --watch               every second\n  \
        cutthrough stat --watch 0.5 --json    twice a second, for a script\n\n\
        What each counter counts is said in the documentation of cutthrough::Counter\n\
        (cargo doc --open --no-deps --all-features -p cutthrough).\n\
        frames_lost are frames taken for lost, whose contents were sent again;\n\
        frames_late are those of them that have come. Counters that are 0 are left out.\n\n\
        An endpoint writes the rows of its channels, and what it counts on a network,\n\
        every 20 ms while it is polled, and those of shared memory before it sleeps. One\n\
        whose program does something else shows what it wrote last.")]
    Stat(StatArgs),

    /// The papers' results from the simulator, and today's machines
    #[command(after_help = "Examples:\n  \
        cutthrough sim list                    experiments and platforms\n  \
        cutthrough sim T1 N2                   two experiments\n  \
        cutthrough sim all --out report        everything, as a page with figures\n  \
        cutthrough sim N2 --trace burst.json   a timeline for ui.perfetto.dev\n  \
        cutthrough sim point --platform pcie4-100g --policy adaptive --payload 8KiB")]
    #[command(args_conflicts_with_subcommands = true)]
    Sim(SimArgs),
}

/// Options of `demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// The file whose pages are fetched, of a longer one the first 256 MiB [default: this program's own executable]
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,

    /// Draw the timeline of one large message into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Be the process that serves the pages.
    #[arg(long, hide = true)]
    pub serve: bool,
}

/// Options of `stat`.
#[derive(Args, Debug)]
pub struct StatArgs {
    /// Only endpoints listening under this name, as in shm:NAME
    #[arg(long, value_name = "ADDR")]
    pub peer: Option<String>,

    /// Only endpoints of this process
    #[arg(long, value_name = "N")]
    pub pid: Option<u32>,

    /// Show them again every so many seconds, until interrupted [default if none are given: 1]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, num_args = 0..=1, default_missing_value = "1")]
    pub watch: Option<f64>,
}

/// What `perf` measures.
#[derive(Debug, Subcommand)]
pub enum PerfTest {
    /// What this machine can do at best, without messages: caches, memory, kernel
    #[command(after_help = "Examples:\n  \
        cutthrough perf limits                           all of them\n  \
        cutthrough perf limits memcpy_1core --size 8KiB  one, of one size\n  \
        cutthrough perf limits --veth 1500               across a veth pair")]
    Limits(LimitsArgs),

    /// Latency: half of a round trip
    #[command(after_help = "A private message of up to 96 B is a control message; everything else has a\n\
        payload. In shared memory it is held against cacheline_pingpong (a control\n\
        message), message_64 (a page by reference) or message_64+memcpy_1core (whatever\n\
        is copied). Each case and its limit are measured in turn, in rounds, and the\n\
        ratio is the median of the rounds'.")]
    Lat(Measure),

    /// Bandwidth of a stream of messages
    Bw(Measure),

    /// Messages per second
    Rate(Measure),

    /// Demand fetch: a request for a page until the page is there
    #[command(after_help = "Pages of a region of 1 MiB, in random order, one request at a time.")]
    Fetch(Measure),

    /// Waking a receiver that sleeps
    Wake(WakeArgs),

    /// What idle endpoints and channels cost: processor, memory, latency with many channels, two ends on one core
    Idle(IdleArgs),

    /// Active messages: requests and replies, stores, batches of pages, against raw messages
    Am(AmArgs),

    /// Calls: raw and typed, and pages fetched by them, against raw messages
    Rpc(RpcArgs),

    /// Pages in fragments, placed by guessing: senders, receivers, placements, one sender and two; needs root
    Defrag(DefragArgs),

    /// Many senders to one receiver at the same time, in turn with one of them alone
    Incast(IncastArgs),

    /// The default policy against every fixed pulse, for every size
    Sweep(Measure),

    /// Two sets of options in turn, many short rounds, and their ratio
    #[command(after_help = "Examples:\n  \
        cutthrough perf compare lat --a \"--policy adaptive\" --b \"--policy fixed:8192\"\n  \
        cutthrough perf compare bw --adapter udp --a \"--seal\" --b \"--insecure\"\n  \
        cutthrough perf compare rpc --a \"--adapter shm\" --b \"--adapter udp\"\n  \
        cutthrough perf compare am --size 64 --a \"\" --b \"--memory reference\"\n\n\
        Where one side seals and the other does not, or they have different adapters,\n\
        each has an end of its own there. A ring of AF_XDP, and another ring beside\n\
        another adapter, is opened anew for each of its turns, and settles for 40 ms\n\
        before it is measured: give --seconds 10 for streams.\n\n\
        With --memory in am and rpc only rows with payloads are compared: medium and\n\
        store of private memory or by reference, pages by put (pool) or by reference.")]
    Compare(CompareArgs),

    /// The other end, for `--peer` in another terminal or on another machine; uses no CPU while idle
    #[command(after_help = "Examples:\n  \
        cutthrough perf serve --listen shm:bench            in one terminal, and\n  \
        cutthrough perf lat --peer shm:bench                in another\n\n  \
        cutthrough perf serve --listen udp:0.0.0.0:7400 --key pages.key\n  \
        cutthrough perf lat --peer udp:HOST:7400 --key pages.key   on another machine\n\n\
        It serves one measuring end at a time, and goes to another core than that one\n\
        if they are on one machine.\n\n\
        What is measured goes by the ports that follow, one after the other: let these\n\
        through, too. At packet:, xdp: or net: it waits by a socket; a ring is there\n\
        while something is measured, and the queue is free for others in between.")]
    Serve(ServeArgs),
}

/// Options of `perf limits`.
#[derive(Args, Debug)]
pub struct LimitsArgs {
    /// Only these limits [default: all]
    #[arg(value_name = "LIMIT", value_enum)]
    pub limits: Vec<Limit>,

    /// Sizes of copies, long messages and bodies of frames [default: 4KiB to 4MiB for copies, 8KiB,64KiB,1MiB for
    /// messages, those of MTU 1500 and 9000 for frames]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub size: Vec<Size>,

    /// Seconds for which each figure is measured
    #[arg(long, value_name = "N", value_parser = seconds, default_value_t = 0.3)]
    pub seconds: f64,

    /// Measure across a veth pair of this MTU, between two network namespaces. Needs root, or 'unshare -Ur cutthrough'
    #[arg(long, value_name = "MTU")]
    pub veth: Option<u32>,

    /// Where the program of bare rings of AF_XDP runs there [default: auto, the best that the interface has]
    #[arg(long, value_name = "auto|generic|native|zero-copy")]
    pub xdp_mode: Option<Mode>,
}

/// Options of `perf wake`.
#[derive(Args, Debug)]
pub struct WakeArgs {
    /// How many times the receiver is woken
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), default_value_t = 2000)]
    pub count: u64,

    /// Seconds for which it is woken again and again, instead of --count
    #[arg(long, value_name = "N", value_parser = seconds, conflicts_with = "count")]
    pub seconds: Option<f64>,

    /// What lies between the two ends.
    #[command(flatten)]
    pub across: Across,
}

/// Options of `perf defrag`.
#[derive(Args, Debug)]
pub struct DefragArgs {
    /// MTU of the veth pair between the two ends
    #[arg(long, value_name = "MTU", default_value_t = 1500)]
    pub veth: u32,

    /// Pages that are asked for in each row
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..), default_value_t = 2000)]
    pub pages: u32,

    /// Run the programs in the driver instead of after it
    #[arg(long)]
    pub native: bool,

    /// Send pages as datagrams in fragments of IP, which any kernel sends and takes too
    #[arg(long)]
    pub fragments: bool,
}

/// Options of `perf serve`.
#[derive(Args, Clone, Debug, Default)]
pub struct ServeArgs {
    /// Wait here for the measuring end, such as shm:NAME
    #[arg(long, value_name = "ADDR")]
    pub listen: String,

    /// End when the first measuring end has gone.
    #[arg(long, hide = true)]
    pub once: bool,

    /// Seal messages on a wire with the keys of this file
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,

    /// Let messages on a wire be plain text, which anybody there may read and forge
    #[arg(long, conflicts_with = "key")]
    pub insecure: bool,

    /// What a process says that starts this one.
    #[command(flatten)]
    pub started: Started,
}

/// What `perf` says to the processes that it starts.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Started {
    /// Run on this core alone.
    #[arg(long, hide = true, value_name = "N")]
    pub core: Option<usize>,

    /// Run in this network namespace, and end with the process that has started this one.
    #[arg(long, hide = true, value_name = "PATH")]
    pub netns: Option<PathBuf>,

    /// Read the keys from standard input.
    #[arg(long, hide = true)]
    pub key_from_stdin: bool,
}

/// A command line that was read, or what to print instead.
#[derive(Debug)]
pub enum Parsed {
    /// Run this.
    Run(Box<Cli>),
    /// Print this text, asked for by `--help` or `--version`, and end with exit code 0.
    Print(String),
}

/// Reads a command line, program name first.
///
/// # Errors
/// Bad use, as one line that says where to read more.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Parsed, Failure> {
    let error = match Cli::try_parse_from(words) {
        Ok(cli) => return Ok(Parsed::Run(Box::new(cli))),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Parsed::Print(error.render().to_string())),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            if error.render().to_string().contains("Usage: cutthrough perf") {
                let [lat, help] = ["perf lat", "perf --help"].map(hint::command);
                let remedy = format!("try '{lat}', or '{help}' for all of them");
                return Err(Failure::new("no test is named", remedy));
            }
            let [demo, help] = ["demo", "--help"].map(hint::command);
            Err(Failure::new("no command given", format!("try '{demo}', or '{help}' for all commands")))
        }
        _ => {
            if let Some(failure) = not_built(&error) {
                return Err(failure);
            }
            let (what, remedy) = one_line(&error);
            // What starts other ranks takes its program without.
            let of_run = error.render().to_string().contains("-- PROGRAM [ARG]...");
            if of_run && error.kind() == ErrorKind::UnknownArgument && !what.starts_with("unexpected argument '-") {
                return Err(Failure::new(what, "put -- before the program"));
            }
            Err(Failure::new(what, remedy))
        }
    }
}

/// Commands that are planned: who asks for one has not mistaken its name.
const PLANNED: [&str; 4] = ["mem", "trace", "broker", "perf fault"];

/// That a command which was asked for is planned, if it is.
fn not_built(error: &clap::Error) -> Option<Failure> {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let above = if error.render().to_string().contains("Usage: cutthrough perf") { "perf " } else { "" };
    let command = format!("{above}{name}");
    let help = hint::command(&format!("{above}--help"));
    let what = format!("the command {command} is not built yet");
    PLANNED.contains(&command.as_str()).then(|| Failure::new(what, format!("'{help}' shows all that there are")))
}

/// What a clap error says in its first paragraph, and its tip or where help is, each as one line.
fn one_line(error: &clap::Error) -> (String, String) {
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n");
    let what = in_words(&joined(paragraphs.next().unwrap_or_default()));
    if let Some((what, _)) = what.split_once(" [possible values: ").filter(|_| what.len() > LONGEST) {
        return (what.trim_start_matches("error: ").to_string(), "add '--help' to see what there is".to_string());
    }
    // An option that is not known is more often a mistake than a value that begins like one.
    let tip = paragraphs.find_map(|text| text.trim_start().strip_prefix("tip: "));
    let tip = tip.filter(|tip| !tip.starts_with("to pass"));
    let remedy = tip.map_or_else(
        || match error.kind() {
            ErrorKind::InvalidSubcommand => "write '--help' in its place to see what there is".to_string(),
            _ => "add '--help' to see how it is used".to_string(),
        },
        joined,
    );
    (what.trim_start_matches("error: ").to_string(), remedy)
}

/// Longest message that lists the values that there are.
const LONGEST: usize = 200;

/// What the library for numbers says is not for people.
fn in_words(what: &str) -> String {
    let what = what.replace("invalid digit found in string", "write a whole number");
    let Some((before, range)) = what.split_once(" is not in ") else { return what };
    let (before, _) = before.rsplit_once(' ').unwrap_or((before, ""));
    match range.split_once("..").map(|(from, to)| (from, to.strip_prefix('='), to)) {
        Some((from, Some(to), _)) => format!("{before} write a number from {from} to {to}"),
        Some((from, None, to)) if to == u64::MAX.to_string() => format!("{before} write a number from {from} on"),
        Some((from, None, to)) => format!("{before} write a number from {from} on, and below {to}"),
        None => what,
    }
}

fn joined(paragraph: &str) -> String {
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Reads a positive number of seconds, a day at most.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(seconds),
        _ => Err("write a number of seconds above 0, such as 0.5 or 10, and 86400 (a day) at most".into()),
    }
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
