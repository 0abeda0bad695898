//! What becomes of a rank if its starter dies: nothing is left of it.
//!
//! A rank is started by way of this program, which asks the kernel to be killed with the starter, and then becomes the
//! rank's program. That holds for the process itself. What the rank has started is in its group of processes, and a
//! guard, which learns of the starter's end by the end of its standard input, ends the groups.

use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use cutthrough_node::shm::rendezvous::sweep_own;
use rustix::process::{
    Pid, Signal, getppid, kill_process_group, set_parent_process_death_signal, test_kill_process_group,
};

use super::args::RunArgs;
use super::plan::UNSTARTED;
use crate::failure::Failure;
use crate::veth::Space;

/// How long processes that are killed may take to end.
const DYING: Duration = Duration::from_secs(1);

/// Becomes a rank's program. Returns only if it cannot, and then tells the starter so.
pub(super) fn become_rank(args: &RunArgs, starter: u32) -> Failure {
    let why = try_to_become(args, starter);
    let _ = io::stderr().write_all(UNSTARTED);
    why
}

fn try_to_become(args: &RunArgs, starter: u32) -> Failure {
    let refuse = |error: io::Error| Failure::new(format!("the rank cannot be started: {error}"), "try again");
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return refuse(error.into());
    }
    let parent = getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
    if i64::from(parent) != i64::from(starter) {
        return Failure::new("the process that has started this rank has ended", "start it again");
    }
    if let Some(space) = &args.space
        && let Err(error) = Space::at(space).and_then(|space| space.enter())
    {
        return refuse(error);
    }
    let Some((program, words)) = args.program.split_first() else {
        return Failure::new("no program is given", "name one after --");
    };
    let error = Command::new(program).args(words).exec();
    Failure::new(format!("{}: {error}", program.display()), "check the name of the program")
}

/// Ends all groups that standard input has named, when it ends: the starter has died, or there is nothing left to do.
/// It says `+N` of a group, and `-N` when it has ended. What was ended by a signal has left the names of its endpoints,
/// which are removed.
pub(super) fn guard() {
    let mut groups: Vec<u32> = Vec::new();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        match line.split_at_checked(1) {
            Some(("+", number)) => groups.extend(number.parse::<u32>()),
            Some(("-", number)) => groups.retain(|group| number.parse() != Ok(*group)),
            _ => {}
        }
    }
    groups.iter().for_each(|group| end_group(*group, Signal::KILL));
    let begun = Instant::now();
    while groups.iter().any(|group| has_some(*group)) && begun.elapsed() < DYING {
        std::thread::sleep(Duration::from_millis(2));
    }
    sweep_own();
}

/// Sends a signal to a group of processes; one that has ended does not mind.
pub(super) fn end_group(group: u32, signal: Signal) {
    if let Some(group) = named(group) {
        let _ = kill_process_group(group, signal);
    }
}

/// Whether somebody is in a group of processes, were it one that has ended and was not waited for.
fn has_some(group: u32) -> bool {
    named(group).is_some_and(|group| test_kill_process_group(group).is_ok())
}

fn named(group: u32) -> Option<Pid> {
    i32::try_from(group).ok().filter(|group| *group > 1).and_then(Pid::from_raw)
}

/// The guard, as its starter has it.
#[derive(Debug)]
pub(super) struct Guard {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Guard {
    pub(super) fn start() -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["run", "--guard"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let stdin = child.stdin.take();
        Ok(Self { child, stdin })
    }

    /// A group has begun, or has ended. Without a guard the ranks themselves end with the starter all the same.
    pub(super) fn tell(&mut self, sign: char, group: u32) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(format!("{sign}{group}\n").as_bytes());
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}
