//! The options of everything that measures messages.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use cutthrough::{Placement, Policy};
use serde::{Deserialize, Serialize};

use super::seconds;
use crate::perf::across::{Mode, placement};
use crate::perf::loss::Loss;
use crate::units::Size;

/// The common options of everything that measures messages. What is not given is left to the test.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct Measure {
    /// What lies between the two ends.
    #[command(flatten)]
    pub across: Across,

    /// Payload sizes, such as 64,8KiB,1MiB [default: some, by the test]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pub size: Vec<Size>,

    /// Pulse policy: store-and-forward, fixed:BYTES, adaptive or adaptive:MINPULSE [default: adaptive].
    /// In shared memory store-and-forward and fixed pulses above 512 KiB get a staging ring that holds the whole
    /// message, the others keep that of 2 MiB; on a network it says how long the batches are that go at once
    #[arg(long)]
    pub policy: Option<Policy>,

    /// Seconds for which each figure is measured [default: 1; in a sweep 0.3]
    #[arg(long, value_name = "N", value_parser = seconds)]
    pub seconds: Option<f64>,

    /// How many messages are measured, instead of --seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "seconds")]
    pub count: Option<u64>,

    /// Where the other end is.
    #[command(flatten)]
    pub far: Far,

    /// Lose so many percent of the frames on the veth pair, at random, both ways: 0 to 50. Adapter udp
    #[arg(long, value_name = "PERCENT")]
    pub loss: Option<Loss>,

    /// Where the payloads are kept [default: private]
    #[arg(long, value_enum)]
    pub memory: Option<Memory>,

    /// Messages exchanged before measuring [default: a tenth of the measurement]
    #[arg(long, value_name = "N")]
    pub warmup: Option<u64>,

    /// Seed of everything random, such as the order of fetches [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Options about the other end of a measurement.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Far {
    /// Wait here for the other end, such as shm:NAME
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,

    /// Measure against the other end that listens there [default: start one on another core]
    #[arg(long, value_name = "ADDR", conflicts_with = "listen")]
    pub peer: Option<String>,
}

/// Options about what lies between the two ends.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Across {
    /// The adapter that carries the messages [default: shm; udp with --veth]
    #[arg(long, value_enum)]
    pub adapter: Option<Adapter>,

    /// Run the two ends in two network namespaces joined by a veth pair of this MTU, and leave nothing. Needs root;
    /// for every adapter but xdp 'unshare -Ur cutthrough ...' is enough
    #[arg(long, value_name = "MTU")]
    pub veth: Option<u32>,

    /// How payloads get from the rings of the adapter xdp to their pages [default: auto, the cheaper as measured]
    #[arg(long, value_name = "auto|copy|header-cut", value_parser = placement)]
    pub placement: Option<Placement>,

    /// Where the program of rings of AF_XDP runs, of the adapter xdp or by --net-xdp, at both ends [default: auto, the
    /// best that the interface has]
    #[arg(long, value_name = "auto|generic|native|zero-copy")]
    pub xdp_mode: Option<Mode>,

    /// Give the adapter net a ring of AF_XDP too (needs root)
    #[arg(long)]
    pub net_xdp: bool,

    /// Seal messages on a wire with a random key of this run
    #[arg(long)]
    pub seal: bool,

    /// Seal messages on a wire with the keys of this file
    #[arg(long, value_name = "FILE", conflicts_with = "seal")]
    pub key: Option<PathBuf>,

    /// Let messages on a wire be plain text, which anybody there may read and forge
    #[arg(long, conflicts_with_all = ["seal", "key"])]
    pub insecure: bool,
}

impl Across {
    /// Whether these options say how messages on a wire are sealed.
    pub(super) fn says_how_to_seal(&self) -> bool {
        self.seal || self.insecure || self.key.is_some()
    }
}

/// A NIC or its stand-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Adapter {
    /// Shared memory between two processes
    Shm,
    /// UDP sockets
    Udp,
    /// AF_XDP rings
    Xdp,
    /// AF_PACKET rings
    Packet,
    /// UDP sockets and AF_PACKET rings, each batch by the one that has cost the least
    Net,
    /// libfabric hardware; not built yet
    Fabric,
}

/// Where `perf` keeps payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    /// Private memory on both sides: cut-through copy
    Private,
    /// A destination page that the sender can write: one copy
    Pool,
    /// A shared page handed over: no copy
    Reference,
}
