//! The options of `sim` and its parts.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::units::Size;

/// Options of `sim`.
#[derive(Args, Debug)]
pub struct SimArgs {
    /// What to do instead of running some experiments.
    #[command(subcommand)]
    pub command: Option<SimCommand>,

    /// Experiments to run, as in `sim list`
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,

    /// Where the results go.
    #[command(flatten)]
    pub results: SimResults,
}

/// What `sim` does.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// List experiments and platforms
    List,

    /// Run every experiment
    All(SimResults),

    /// Ask for one operating point of one platform
    #[command(
        override_usage = "cutthrough sim point --platform NAME --policy P --payload BYTES [OPTIONS]",
        after_help = "Examples:\n  \
            cutthrough sim point --platform pcie4-100g --policy adaptive --payload 8KiB\n  \
            cutthrough sim point --platform my.toml --policy fixed:1280 --payload 64KiB"
    )]
    Point(PointArgs),

    /// Run the network side under everything that can go wrong, from seeds
    #[command(after_help = "Examples:\n  \
        cutthrough sim fault --seeds 1000   a thousand worlds\n  \
        cutthrough sim fault --seed 7       one of them again, byte for byte")]
    Fault(FaultArgs),
}

/// Where the results of experiments go, beside standard output.
#[derive(Args, Debug, Default)]
pub struct SimResults {
    /// Write a report into this folder: index.html with all figures, and SVG, CSV and JSON lines
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// End with exit code 1 if a figure is not within its tolerance of the paper's; those that are known not to be are
    /// named alone
    #[arg(long)]
    pub check: bool,

    /// Write the packet-flow graphs as a timeline for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

/// Seeds are below this, so that every reader of JSON has them to the last digit.
const SEEDS: u64 = 1 << 53;

/// Options of `sim fault`.
#[derive(Args, Debug)]
pub struct FaultArgs {
    /// How many seeds are run [default: 1000, or 1 with --seed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: Option<u64>,

    /// The first seed, below 2^53, as far as a number of JSON is exact [default: 0]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(..SEEDS))]
    pub seed: Option<u64>,

    /// Other worlds: in each of them are peers, too, that hold the key and lie
    #[arg(long)]
    pub liars: bool,

    /// Plant a bug, to see that it is found; in builds with the feature `planted` only.
    #[arg(long, value_enum, hide = true)]
    pub plant: Option<Plant>,
}

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Plant {
    /// Hand a payload over although bytes are missing
    Unwritten,
    /// Take frames of an earlier life
    Stale,
    /// Forget grants
    Ungranted,
    /// Keep what was asked for on channels that have ended
    Unforgotten,
    /// Let acknowledgements of what was never sent pass; found with --liars
    Unsent,
    /// Take parts of payloads that lie beyond them; found with --liars
    Unbounded,
}

/// Options of `sim point`.
#[derive(Args, Debug)]
pub struct PointArgs {
    /// A platform of `sim list`, or a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    pub platform: String,

    /// store-and-forward, fixed:BYTES, adaptive, adaptive:MINPULSE; two sizes are the sender's and the receiver's.
    /// Baselines: coroutine, vendor, kernel. Where no stage is decided about there is adaptive alone, beside baselines
    #[arg(long, value_name = "P")]
    pub policy: String,

    /// Bytes of payload in each message, such as 8KiB
    #[arg(long, value_name = "BYTES")]
    pub payload: Size,

    /// Messages of each sender; 1 is the latency of a lone message
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000), default_value_t = 1)]
    pub count: u64,

    /// Senders that send to the one receiver at the same time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096), default_value_t = 1)]
    pub senders: u32,

    /// Write every pulse as a timeline for ui.perfetto.dev; where a model keeps none, each stage is one bar
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}
