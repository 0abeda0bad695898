//! `run`: starts a program as many ranks, forwards what they say, and ends all of them when one fails.
//!
//! | file | what |
//! |---|---|
//! | `args` | the options |
//! | `plan` | who runs where: on this machine, in two namespaces, on hosts by ssh |
//! | `rank` | how a rank ends with its starter, whatever happens to that |
//! | `forward` | what ranks say |
//! | `lines` | of which lines that is |

pub mod args;
mod forward;
mod lines;
mod plan;
mod rank;

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use crate::failure::Failure;
use crate::output::Output;
use args::RunArgs;
use forward::{Forward, Heard, Stream, forward};
use plan::{Plan, Rank};
use rank::Guard;

/// How long ranks that were asked to end may take.
const ENDING: Duration = Duration::from_secs(2);
/// How long what ranks have said is waited for, when they have ended. How long whoever reads it takes is not counted.
const ECHO: Duration = Duration::from_secs(1);
/// How long after its connections a process may be seen to have ended.
const HANGS_UP: Duration = Duration::from_millis(100);
/// Longest time between two looks at the ranks.
const LOOK: Duration = Duration::from_millis(100);

/// Starts the ranks, and returns when all have ended.
///
/// # Errors
/// [`Failure::CheckFailed`] names the first rank that failed; [`Failure::CannotRun`] if a rank could not be started.
pub fn run(args: &RunArgs, output: Output) -> Result<(), Failure> {
    if args.guard {
        rank::guard();
        return Ok(());
    }
    if let Some(starter) = args.end_with {
        return Err(rank::become_rank(args, starter));
    }
    let plan = Plan::make(args)?;
    let mut bell = Bell::watch().map_err(|error| unstarted(&error))?;
    let end = run_all(plan, &mut bell, Duration::from_secs_f64(args.start), output);
    // All that is left is to say how it has ended: whoever does not wait for that ends this process.
    bell.over.store(true, Ordering::SeqCst);
    if bell.is_asked() { end.map_err(Failure::in_haste) } else { end }
}

/// Nothing is left of the ranks, and of where they ran, when this returns.
fn run_all(mut plan: Plan, bell: &mut Bell, start: Duration, output: Output) -> Result<(), Failure> {
    let guard = Guard::start().map_err(|error| unstarted(&error))?;
    let mut crew = Crew { ranks: Vec::new(), guard, asked: Arc::clone(&bell.asked) };
    for (number, rank) in (0..).zip(&mut plan.ranks) {
        crew.start(number, rank, output).map_err(|error| unstarted(&error))?;
    }
    let end = crew.watch(bell, start);
    let heard = crew.end();
    end.and(heard)
}

fn unstarted(error: &std::io::Error) -> Failure {
    Failure::of_start("the ranks cannot be started", error)
}

/// Wakes the starter when a rank has ended, or when it shall end itself.
#[derive(Debug)]
struct Bell {
    asked: Arc<AtomicBool>,
    /// From now on a signal ends this process as if nobody heeded it.
    over: Arc<AtomicBool>,
    heard: UnixStream,
}

impl Bell {
    fn watch() -> std::io::Result<Self> {
        let [asked, over] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (heard, rope) = UnixStream::pair()?;
        heard.set_read_timeout(Some(LOOK))?;
        // A handler would undo what 'nohup', or a shell for what runs in the background, has said.
        let ignored = ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0) {
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&over))?;
            signal_hook::low_level::pipe::register(signal, rope.try_clone()?)?;
        }
        signal_hook::low_level::pipe::register(SIGCHLD, rope.try_clone()?)?;
        Ok(Self { asked, over, heard })
    }

    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    fn sleep(&mut self) {
        // Whatever ends the sleep, the caller looks again.
        let _ = self.heard.read(&mut [0; 64]);
    }
}

/// The signals that a process ignores, a bit for each, as the kernel tells of it.
fn ignored(status: &str) -> u64 {
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

/// A rank that was started.
#[derive(Debug)]
struct Running {
    child: Child,
    host: Option<String>,
    /// What it was not told yet.
    script: Vec<u8>,
    heard: Arc<Heard>,
    forwards: Vec<Forward>,
    ended: Option<End>,
}

/// How a rank has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Code(i32),
    Signal(i32),
}

/// How what cannot become a rank ends.
const CANNOT: End = End::Code(2);

impl Running {
    /// How it has ended, if it has. It is not waited for: that would give its number, and that of its group, to others.
    fn look(&self) -> Option<End> {
        let number = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)?;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(number), options).ok().flatten()?;
        status.exit_status().map(End::Code).or_else(|| status.terminating_signal().map(End::Signal))
    }

    /// Tells it as much as its host takes now. Its standard input is kept open: the end of that is the rank's.
    fn tell(&mut self) {
        while !self.script.is_empty() {
            let Some(stdin) = &mut self.child.stdin else { return };
            match stdin.write(&self.script) {
                Ok(count) => drop(self.script.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // It takes no more for now; or it reads no more, has ended, and will be found so.
                Err(_) => return,
            }
        }
    }

    fn has_started(&self) -> bool {
        self.host.is_none() || self.heard.started.load(Ordering::Relaxed)
    }
}

/// All ranks; they end with this value.
#[derive(Debug)]
struct Crew {
    ranks: Vec<Running>,
    guard: Guard,
    /// Whether the starter was asked to end.
    asked: Arc<AtomicBool>,
}

impl Crew {
    fn start(&mut self, number: u32, rank: &mut Rank, output: Output) -> std::io::Result<()> {
        let stdin = if rank.script.is_empty() { Stdio::null() } else { Stdio::piped() };
        let command = rank.command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.process_group(0).spawn()?;
        self.guard.tell('+', child.id());
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (host, script) = (rank.host.clone(), std::mem::take(&mut rank.script).into_bytes());
        self.ranks.push(Running { child, host, script, heard: Arc::default(), forwards: Vec::new(), ended: None });
        let Some(running) = self.ranks.last_mut() else { return Ok(()) };
        if let Some(stdin) = &running.child.stdin {
            // A host may never read it, and the other ranks and signals are looked after meanwhile.
            ioctl_fionbio(stdin, true)?;
        }
        running.tell();
        if let (Some(out), Some(err)) = (out, err) {
            running.forwards.push(forward(number, Stream::Out, out, &running.heard, output)?);
            running.forwards.push(forward(number, Stream::Err, err, &running.heard, output)?);
        }
        Ok(())
    }

    /// Waits until all have ended well, or one has not.
    fn watch(&mut self, bell: &mut Bell, start: Duration) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            if bell.is_asked() {
                return Err(Failure::check("interrupted; all ranks were ended"));
            }
            let failed = self.look();
            if let Some((number, end)) = failed.map(|failed| self.cause(failed)) {
                // Whether it had started is among what it has said. The others are not left alone for longer.
                if !self.ranks[number].has_started() || end == CANNOT {
                    hear_out(&mut self.ranks[number].forwards, &AtomicBool::new(true));
                }
                return Err(self.explain(number, end));
            }
            if self.ranks.iter().all(|rank| rank.ended.is_some()) {
                return Ok(());
            }
            if let Some(error) = self.ranks.iter().find_map(|rank| rank.heard.unwritten.get()) {
                return Err(match Failure::output(error) {
                    // Not as where all have ended well: these were ended.
                    Failure::ReaderGone => Failure::check("nobody reads what ranks say any more; all ranks were ended"),
                    failure => failure,
                });
            }
            self.ranks.iter_mut().for_each(Running::tell);
            let late = self.ranks.iter().position(|rank| !rank.has_started()).filter(|_| begun.elapsed() >= start);
            if let Some(number) = late {
                let host = self.ranks[number].host.clone().unwrap_or_default();
                return Err(Failure::new(
                    format!("rank {number} has not started on {host} within {start:?}"),
                    format!("check that 'ssh {host} true' works without being asked anything, or raise --start"),
                ));
            }
            bell.sleep();
        }
    }

    /// Looks who has ended: the one that has failed. Of several it is one that a signal ended, for what died of itself
    /// takes others with it that say so.
    fn look(&mut self) -> Option<(usize, End)> {
        let mut failed = Vec::new();
        for (number, rank) in self.ranks.iter_mut().enumerate().filter(|(_, rank)| rank.ended.is_none()) {
            rank.ended = rank.look();
            failed.extend(rank.ended.filter(|end| *end != End::Code(0)).map(|end| (number, end)));
        }
        let killed = failed.iter().find(|(_, end)| matches!(end, End::Signal(_)));
        killed.or(failed.first()).copied()
    }

    /// The one that was first. What a signal ends hangs up before it is known to have ended: another one may have heard
    /// that, and ended for it, sooner.
    fn cause(&mut self, failed: (usize, End)) -> (usize, End) {
        let begun = Instant::now();
        while matches!(failed.1, End::Code(_))
            && begun.elapsed() < HANGS_UP
            && self.ranks.iter().any(|rank| rank.ended.is_none())
        {
            if let Some(killed @ (_, End::Signal(_))) = self.look() {
                return killed;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        failed
    }

    fn explain(&self, number: usize, end: End) -> Failure {
        let rank = &self.ranks[number];
        let on = rank.host.as_ref().map_or_else(String::new, |host| format!(" on {host}"));
        let how = match end {
            End::Code(code) => format!("ended with exit code {code}"),
            End::Signal(signal) => format!("was ended by signal {signal}{}", name_of(signal)),
        };
        if rank.heard.unstarted.load(Ordering::Relaxed) {
            return Failure::new(format!("rank {number} could not be started{on}"), "see what it says");
        }
        if !rank.has_started() {
            let host = rank.host.as_deref().unwrap_or_default();
            return Failure::new(
                format!("rank {number} could not be started{on}: ssh {how}"),
                format!(
                    "check that 'ssh {host} true' works without being asked anything, and that the program is there"
                ),
            );
        }
        Failure::check(format!("rank {number}{on} {how}; all others were ended"))
    }

    /// Ends all that have not ended, and what they have started; and forwards what was said. Fails if that cannot be
    /// written, or if it shall not wait until all of it is.
    fn end(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        for rank in self.ranks.iter_mut().filter(|rank| rank.ended.is_none()) {
            // The end of its standard input ends a rank on a host.
            drop(rank.child.stdin.take());
            rank::end_group(rank.child.id(), Signal::TERM);
        }
        while self.ranks.iter().any(|rank| rank.ended.is_none()) && begun.elapsed() < ENDING {
            self.look();
            std::thread::sleep(Duration::from_millis(2));
        }
        let (mut forwards, mut heard) = (Vec::new(), Vec::new());
        for mut rank in self.ranks.drain(..) {
            // Its number, which is its group's, may be another's as soon as it was waited for: no signal after that.
            rank::end_group(rank.child.id(), Signal::KILL);
            self.guard.tell('-', rank.child.id());
            let _ = rank.child.wait();
            forwards.append(&mut rank.forwards);
            heard.push(rank.heard);
        }
        hear_out(&mut forwards, &self.asked);
        if self.asked.load(Ordering::Relaxed) && forwards.iter().any(Forward::has_some) {
            return Err(Failure::check("interrupted; not all that was said was read"));
        }
        heard.iter().find_map(|heard| heard.unwritten.get()).map_or(Ok(()), |error| Err(Failure::output(error)))
    }
}

/// Waits until all that ranks have said before they ended is forwarded; for a while, as what they have left behind may
/// go on talking. While whoever reads it is slow, no time passes, unless there is haste.
fn hear_out(forwards: &mut Vec<Forward>, haste: &AtomicBool) {
    forwards.iter().for_each(Forward::rank_has_ended);
    let (mut waited, mut looked) = (Duration::ZERO, Instant::now());
    while waited < ECHO {
        forwards.retain(|forward| !forward.is_finished());
        if forwards.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
        let now = Instant::now();
        if haste.load(Ordering::Relaxed) || !forwards.iter().any(Forward::has_some) {
            waited += now - looked;
        }
        looked = now;
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// What the signals are called that end ranks most often.
const fn name_of(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        15 => " (SIGTERM)",
        _ => "",
    }
}
