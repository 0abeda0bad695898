//! The options of `perf compare`, and those of each of its sides.

use clap::{Args, Parser, ValueEnum};

use super::{Measure, one_line};
use crate::failure::Failure;
use crate::hint;

/// Options of `perf compare`.
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// What to measure.
    #[arg(value_name = "TEST", value_enum)]
    pub test: CompareTest,

    /// Options of A, added to the common ones
    #[arg(long, value_name = "OPTS", allow_hyphen_values = true)]
    pub a: String,

    /// Options of B, added to the common ones
    #[arg(long, value_name = "OPTS", allow_hyphen_values = true)]
    pub b: String,

    /// Only these rows of am or rpc, such as short,medium [default: all that can be compared]
    #[arg(long, value_name = "ROWS", value_delimiter = ',')]
    pub rows: Vec<String>,

    /// Options common to both.
    #[command(flatten)]
    pub common: Measure,
}

/// The tests that `perf compare` can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompareTest {
    /// Latency: half of a round trip
    Lat,
    /// Bandwidth of a stream of messages
    Bw,
    /// Messages per second
    Rate,
    /// Demand fetch
    Fetch,
    /// Rows of perf am: short, medium, store and rate
    Am,
    /// Rows of perf rpc
    Rpc,
}

/// The options of one side of a comparison, alone.
#[derive(Parser)]
#[command(name = "options", no_binary_name = true, disable_help_flag = true)]
pub(super) struct Side {
    #[command(flatten)]
    measure: Measure,
}

impl CompareArgs {
    /// The full options of A and of B: the common ones, with each side's own in their place.
    ///
    /// # Errors
    /// If the options of a side cannot be read.
    pub fn sides(&self) -> Result<(Measure, Measure), Failure> {
        Ok((self.side("--a", &self.a)?, self.side("--b", &self.b)?))
    }

    fn side(&self, name: &str, options: &str) -> Result<Measure, Failure> {
        let refuse = |error: clap::Error| {
            let (what, _) = one_line(&error);
            Failure::new(
                format!("in {name} {options:?}: {what}"),
                format!("see '{}'", hint::command("perf compare --help")),
            )
        };
        let Side { measure: own } = Side::try_parse_from(options.split_whitespace()).map_err(refuse)?;
        let mut side = Side { measure: self.common.clone() };
        side.try_update_from(options.split_whitespace()).map_err(refuse)?;
        // A switch that a side does not set stays as it is; clap takes it for one that is not to be.
        let (common, across) = (&self.common.across, &mut side.measure.across);
        across.net_xdp = own.across.net_xdp || common.net_xdp;
        // Ways to say one thing: what a side says takes the place of all.
        let sealing = if own.across.says_how_to_seal() { &own.across } else { common };
        (across.seal, across.insecure) = (sealing.seal, sealing.insecure);
        across.key.clone_from(&sealing.key);
        if own.seconds.is_some() || own.count.is_some() {
            (side.measure.seconds, side.measure.count) = (own.seconds, own.count);
        }
        Ok(side.measure)
    }
}
