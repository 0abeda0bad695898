//! `lease`: opens a ring of the adapter `xdp` and passes it to a process without privileges, which then has it alone.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;
use cutthrough::{Lease, LeaseError};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Output;

/// Options of `lease`.
#[derive(Args, Debug)]
pub struct LeaseArgs {
    /// What the ring is for, such as xdp:10.0.0.1:7000; its user may send any frame by that address's interface
    #[arg(value_name = "ADDR")]
    pub address: String,

    /// Number of the user who may have it; others are refused
    #[arg(long, value_name = "UID")]
    pub user: u32,

    /// The Unix socket where that user's process takes it, told by CUTTHROUGH_LEASE=PATH or Config::lease
    #[arg(long, value_name = "PATH")]
    pub at: PathBuf,

    /// Which queue of the interface
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub queue: u32,
}

/// A ring that waits for its user.
#[derive(Debug, Serialize)]
struct Offered<'a> {
    lease: String,
    interface: &'a str,
    queue: u32,
    mode: &'static str,
    user: u32,
    at: String,
}

/// Who has it.
#[derive(Debug, Serialize)]
struct Taken {
    process: u32,
    user: u32,
}

/// Opens the ring, waits for its user, and passes it on.
///
/// # Errors
/// If there is no ring to be had, or no place to wait at.
pub fn run(args: &LeaseArgs, output: Output) -> Result<(), Failure> {
    let failed = |error| match &error {
        LeaseError::Malformed(_) => Failure::from_error(&error, "check the address"),
        _ => Failure::from_error(&error, "run it as root; 'cutthrough info' says what is missing"),
    };
    let lease = Lease::open(&args.address, args.queue, None, &args.at).map_err(failed)?;
    let offered = Offered {
        lease: format!("xdp:{}", lease.local()),
        interface: lease.interface(),
        queue: args.queue,
        mode: lease.mode().name(),
        user: args.user,
        at: args.at.display().to_string(),
    };
    output.line(&offered)?;
    let Offered { lease: what, interface, queue, mode, user, at } = &offered;
    output.say(&format!("{what}, queue {queue} of {interface}, {mode} mode, waits for user {user} at {at}"))?;
    let tenant = lease.pass(args.user, |stranger| {
        let _ = writeln!(io::stderr(), "refused: process {} of user {}", stranger.process, stranger.user);
    });
    let tenant = tenant.map_err(failed)?;
    output.line(&Taken { process: tenant.process, user: tenant.user })?;
    output.say(&format!("process {} of user {} has it", tenant.process, tenant.user))
}
