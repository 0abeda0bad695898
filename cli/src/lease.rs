//! `lease`: opens a ring of the adapter `xdp` and passes it to a process without privileges, which then has it alone.
//!
//! A helper that is killed (`kill -9`) leaves its socket, as the kernel has it. So it has a guard, a process of its own
//! that learns of its end by the end of its standard input, and removes what it has left.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clap::Args;
use cutthrough::{Lease, LeaseError, Tenant};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::address::{self, Use};
use crate::failure::Failure;
use crate::hint;
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

    /// Remove what a killed helper has left at PATH, when standard input ends.
    #[arg(long, hide = true)]
    pub guard: bool,
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
/// If there is no ring to be had, or no place to wait at; [`Failure::CheckFailed`] if a signal ends it before.
pub fn run(args: &LeaseArgs, output: Output) -> Result<(), Failure> {
    if args.guard {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = Lease::sweep(&args.at);
        return Ok(());
    }
    let failed = |error| match &error {
        LeaseError::Malformed(_) => Failure::from_error(&error, "check the address"),
        _ => {
            let remedy = format!("run it as root, or see in '{}' what is missing", hint::command("info"));
            Failure::from_error(&error, &remedy)
        }
    };
    if !args.address.starts_with("xdp:") {
        let what = format!("{} cannot be leased", args.address);
        return Err(Failure::new(what, "say xdp:HOST:PORT, with an IPv4 address of this machine"));
    }
    address::check(&args.address, Use::Lease)?;
    let mut bell = bell().map_err(|error| Failure::of_start("signals cannot be heeded", &error))?;
    // Before there is anything to be left, so that it has none of the ring's files.
    let _guard = Guard::start(args).map_err(|error| Failure::of_start("the guard cannot be started", &error))?;
    let lease = Lease::open(&args.address, args.queue, None, &args.at).map_err(failed)?;
    let place = identity(&args.at);
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
    // Whoever comes first: the user, or a signal.
    let (ends, end) = mpsc::channel();
    let (user, passed) = (*user, ends.clone());
    std::thread::spawn(move || {
        let mut told = Told::default();
        let tenant = lease.pass(user, |stranger| {
            if let Some(line) = told.of(stranger, Instant::now()) {
                let _ = writeln!(io::stderr(), "{line}");
            }
        });
        passed.send(Some(tenant))
    });
    std::thread::spawn(move || {
        let _ = bell.read(&mut [0]);
        ends.send(None)
    });
    let Ok(Some(tenant)) = end.recv() else {
        // Nobody waits there any more; but where the ring was just passed on, the next helper may.
        if place.is_some() && place == identity(&args.at) {
            let _ = std::fs::remove_file(&args.at);
        }
        return Err(Failure::check("interrupted; the ring was given up"));
    };
    let tenant = tenant.map_err(failed)?;
    output.line(&Taken { process: tenant.process, user: tenant.user })?;
    output.say(&format!("process {} of user {} has it", tenant.process, tenant.user))
}

/// Outlives this process if that is killed. Dropped, it has ended.
#[derive(Debug)]
struct Guard(Child);

impl Guard {
    fn start(args: &LeaseArgs) -> io::Result<Self> {
        // Where it has its own group, an interrupt at the terminal is the helper's alone.
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("lease").arg(&args.address).args(["--guard", "--user", &args.user.to_string()]);
        let mut at = OsString::from("--at=");
        at.push(&args.at);
        command.arg(at);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        command.spawn().map(Self)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// How often it is told who was refused. Anybody may come as often as it likes, and would fill whatever keeps that.
const TELLING: Duration = Duration::from_secs(1);

/// Who was refused, as far as it was told.
#[derive(Debug, Default)]
struct Told {
    last: Option<Instant>,
    untold: u64,
}

impl Told {
    /// What to tell of somebody who was refused now; nothing so soon after the last one.
    fn of(&mut self, stranger: Tenant, now: Instant) -> Option<String> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < TELLING) {
            self.untold += 1;
            return None;
        }
        self.last = Some(now);
        let others = match std::mem::take(&mut self.untold) {
            0 => String::new(),
            untold => format!(", and {untold} more before"),
        };
        Some(format!("refused: process {} of user {}{others}", stranger.process, stranger.user))
    }
}

/// Is written to by every signal that asks this process to end.
fn bell() -> io::Result<UnixStream> {
    let (bell, rope) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, rope.try_clone()?)?;
    }
    Ok(bell)
}

/// Which file this is.
fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_that_is_refused_is_told_of_once_a_second() {
        let (mut told, begun) = (Told::default(), Instant::now());
        let mut says = |process, after| told.of(Tenant { process, user: 7 }, begun + Duration::from_millis(after));
        assert_eq!(says(1, 0).as_deref(), Some("refused: process 1 of user 7"));
        for process in 2..1002 {
            assert_eq!(says(process, 999), None);
        }
        assert_eq!(says(3, 1000).as_deref(), Some("refused: process 3 of user 7, and 1000 more before"));
        assert_eq!(says(4, 2000).as_deref(), Some("refused: process 4 of user 7"));
    }
}
