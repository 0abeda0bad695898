//! `sim fault`: the engine's network side and active messages under faults, from seeds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cutthrough_sim::fault::{self, Bug, Calls, Lies, Summary, With};
use cutthrough_sim::report::number::count;
use serde::Serialize;

use crate::args::{FaultArgs, Plant};
use crate::cpu;
use crate::failure::Failure;
use crate::output::Output;
use crate::table::wrapped;

/// A seed that takes longer than this is named while it runs: one that never ends would say nothing of itself. Most
/// take some milliseconds.
const LONG: Duration = Duration::from_secs(10);

/// Of so many seeds the options of each are told before they run. Of more only those that fail or take long, then.
const FEW: u64 = 8;

/// A seed that runs.
#[derive(Debug, Clone, Copy)]
struct Running {
    seed: u64,
    since: Instant,
    named: bool,
}

/// What each thread is at.
#[derive(Debug)]
struct AtWork {
    threads: Mutex<Vec<Option<Running>>>,
    with: With,
}

impl AtWork {
    fn of(threads: usize, with: With) -> Self {
        Self { threads: Mutex::new(vec![None; threads]), with }
    }

    fn is_at(&self, thread: usize, seed: Option<u64>) {
        let running = seed.map(|seed| Running { seed, since: Instant::now(), named: false });
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)[thread] = running;
    }

    /// Seeds that take long, each once.
    fn long(&self, now: Instant) -> Vec<u64> {
        let mut all = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let long = all.iter_mut().flatten().filter(|run| !run.named && now.saturating_duration_since(run.since) > LONG);
        long.map(|run| {
            run.named = true;
            run.seed
        })
        .collect()
    }

    /// Names seeds that take long, until all threads have ended.
    fn watch(&self, ends: &Receiver<()>, output: Output) {
        while ends.recv_timeout(LONG / 10) == Err(RecvTimeoutError::Timeout) {
            for seed in self.long(Instant::now()) {
                let text = format!("seed {seed} takes more than {LONG:?}. {}", settings(seed, self.with));
                // Nobody may be there to read it.
                let _ = output.say(&wrapped(&text));
            }
        }
    }
}

/// A seed in whose world a rule was broken.
#[derive(Debug, Serialize)]
struct FailedLine {
    failed_seed: u64,
    at_ns: u64,
    what: String,
    options: String,
}

/// All seeds together.
#[derive(Debug, Serialize)]
struct SummaryLine<'a> {
    failed: u64,
    first_seed: u64,
    #[serde(flatten)]
    summary: &'a Summary,
    /// The hash of the summary as 16 hexadecimal digits: a number of JSON has no room for it in most readers.
    hash: String,
}

/// Runs the worlds of the seeds, and prints each that fails, and what has happened in all of them.
///
/// # Errors
/// If a rule was broken in one of them, a bug cannot be planted in this build, or the output cannot be written.
pub fn run(args: &FaultArgs, output: Output) -> Result<(), Failure> {
    if args.plant.is_some() && !fault::PLANTS {
        let remedy = "build it with 'cargo build --package cutthrough-cli --features planted'";
        return Err(Failure::new("this build cannot plant bugs", remedy));
    }
    let bug = args.plant.map(|plant| match plant {
        Plant::Unwritten => Bug::Unwritten,
        Plant::Stale => Bug::Stale,
        Plant::Ungranted => Bug::Ungranted,
        Plant::Unforgotten => Bug::Unforgotten,
        Plant::Unsent => Bug::Unsent,
        Plant::Unbounded => Bug::Unbounded,
    });
    let (first, seeds) = match args.seed {
        Some(seed) => (seed, args.seeds.unwrap_or(1)),
        None => (0, args.seeds.unwrap_or(1000)),
    };
    let with = if args.liars { With::LIARS } else { With::ALL };
    let few = if seeds <= FEW { 0..seeds } else { 0..0 };
    let mut few = few.map(|number| first.wrapping_add(number));
    let told = few.try_for_each(|seed| output.say(&wrapped(&settings(seed, with))));
    let next = AtomicU64::new(0);
    let results = Mutex::new((Summary::default(), 0_u64, told));
    // No world knows of another, so each core has one.
    let threads = cpu::allowed().len();
    let at_work = AtWork::of(threads, with);
    thread::scope(|scope| {
        let (runs, ends) = mpsc::channel();
        let (at_work, next, results) = (&at_work, &next, &results);
        // Without one of these it takes longer, or says less of what is at work.
        let _ = cpu::spawn(scope, move || at_work.watch(&ends, output));
        let work = move |thread, runs| {
            let _runs: mpsc::Sender<_> = runs;
            loop {
                let done = next.fetch_add(1, Ordering::Relaxed);
                if done >= seeds {
                    return;
                }
                let seed = first.wrapping_add(done);
                at_work.is_at(thread, Some(seed));
                let ran = fault::run_with(seed, with, bug);
                at_work.is_at(thread, None);
                let Ok(mut results) = results.lock() else { return };
                match ran {
                    Ok(summary) => results.0.add(&summary),
                    Err(failure) => {
                        results.1 += 1;
                        results.2 = std::mem::replace(&mut results.2, Ok(())).and_then(|()| show(&failure, output));
                    }
                }
            }
        };
        for thread in 1..threads {
            let runs = runs.clone();
            let _ = cpu::spawn(scope, move || work(thread, runs));
        }
        work(0, runs);
    });
    let (summary, failed, told) = results.into_inner().map_err(|_| Failure::check("a thread has panicked"))?;
    let hash = format!("{:016x}", summary.hash);
    let line = SummaryLine { failed, first_seed: first, summary: &summary, hash };
    let told = told.and_then(|()| output.line(&line)).and_then(|()| output.say(&wrapped(&text(&summary, failed))));
    verdict(told, failed, seeds)
}

/// What a seed has drawn, before anything happens.
fn settings(seed: u64, with: With) -> String {
    format!("Settings of the world of seed {seed}: {}", fault::options_with(seed, with))
}

/// How it has ended, also if whoever reads has seen enough.
fn verdict(told: Result<(), Failure>, failed: u64, seeds: u64) -> Result<(), Failure> {
    Failure::unless_reader_gone(told)?;
    if failed > 0 { Err(Failure::check(format!("{failed} of {seeds} seeds failed"))) } else { Ok(()) }
}

fn show(failure: &fault::Failure, output: Output) -> Result<(), Failure> {
    output.line(&FailedLine {
        failed_seed: failure.seed,
        at_ns: failure.at_ns,
        what: failure.what.clone(),
        options: failure.options.clone(),
    })?;
    output.say(&wrapped(&failure.to_string()))
}

/// What became of calls, as a sentence.
fn calls(calls: &Calls) -> String {
    let kinds = [
        ("asked", calls.asked),
        ("served", calls.served),
        ("replied to", calls.replied),
        ("answered with a failure", calls.failed.iter().sum()),
        ("late", calls.late),
        ("cancelled", calls.cancelled),
        ("lost with a channel", calls.lost),
        ("put off", calls.put_off),
        ("handed over", calls.handed_over),
        ("requests that have lain", calls.aged),
        ("direct replies early", calls.early),
        ("places given back unwritten", calls.given_back),
        ("without room", calls.full),
        ("looks at channels with the larger window", calls.lent),
    ];
    let kinds: Vec<String> = kinds.iter().map(|(name, times)| format!("{name} {}", count(*times))).collect();
    kinds.join(", ")
}

/// What peers have lied, as a line, if there were any that do.
fn lies(lies: &Lies) -> String {
    if *lies == Lies::default() {
        return String::new();
    }
    let Lies { changed, added, greetings, misplaced, certain, caught, messages, breaches } = lies;
    let kinds = [
        ("frames changed", *changed),
        ("added", *added),
        ("of handshakes", *greetings),
        ("of channels of others", *misplaced),
        ("impossible ones", *certain),
        ("of those that ended a channel", *caught),
        ("messages that came of it", *messages),
        ("channels that ended by an index", breaches[0]),
        ("a descriptor", breaches[1]),
        ("a length", breaches[2]),
    ];
    let kinds: Vec<String> = kinds.iter().map(|(name, times)| format!("{name} {}", count(*times))).collect();
    format!("Lies: {}\n", kinds.join(", "))
}

fn text(summary: &Summary, failed: u64) -> String {
    let (injected, wraps) = (&summary.injected, &summary.wraps);
    let kinds = [
        ("frames lost", injected.lost),
        ("repeated", injected.repeated),
        ("reordered", injected.reordered),
        ("corrupted", injected.corrupted),
        ("truncated", injected.truncated),
        ("without room", injected.overflowed),
        ("on a path that was cut", injected.cut_off),
        ("replayed", injected.replayed),
        ("forged", injected.forged),
        ("calls failed by forgers", injected.misled),
        ("guessed", injected.guessed),
        ("crashes", injected.crashes),
        ("pauses", injected.pauses),
        ("clock jumps", injected.jumps),
        ("frames delayed", injected.delayed),
        ("clogs", injected.clogs),
        ("frames held back by clogs", injected.clogged),
        ("cuts", injected.cuts),
        ("slow users", injected.slow),
        ("channels closed", injected.closed),
        ("payloads out of the way", injected.relieved),
        ("frames without room in a ring", injected.ring_overflows),
        ("foreign frames", injected.strays),
        ("swallowed by a way", injected.swallowed),
        ("black holes", injected.black_holes),
        ("changes of ways", injected.ways_changed),
        ("paths that carry less", injected.narrowed),
        ("too long for their path", injected.too_long),
        ("troubles while users talk", injected.amid),
        ("moves to the keys of the next epoch", injected.moved_keys),
        ("frames, messages and openings past the wrap of their numbers", wraps.frames + wraps.messages + wraps.unasked),
        ("calls past that of their names", wraps.calls),
        ("requests past that of their stamps", wraps.stamps),
    ];
    let kinds: Vec<String> = kinds.iter().map(|(name, times)| format!("{name} {}", count(*times))).collect();
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    let seconds = summary.virtual_ns as f64 / 1e9;
    format!(
        "{} {} kept every rule, {failed} failed\n\
         In all: {} frames, {} messages, {} payload bytes, {} lives, {} channel ends, {seconds:.1} s of virtual time\n\
         What went wrong: {}\n\
         Calls: {}\n{}\
         Frames by socket {}, by one ring {}, by another {}; by rings into pages: {} fragments hit, {} missed, \
         {} others, {} whole pages; {} frames cut\nHash of all frames: {:016x}",
        count(summary.seeds),
        if summary.seeds == 1 { "seed" } else { "seeds" },
        count(summary.frames),
        count(summary.messages),
        count(summary.payload_bytes),
        count(summary.lives),
        count(summary.channels),
        kinds.join(", "),
        calls(&summary.calls),
        lies(&summary.lies),
        count(summary.frames_by_way[0]),
        count(summary.frames_by_way[1]),
        count(summary.frames_by_way[2]),
        count(summary.placed.hits),
        count(summary.placed.misses),
        count(summary.placed.strays),
        count(summary.placed.pages),
        count(summary.placed.cut),
        summary.hash,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_that_takes_long_is_named_once() {
        let at_work = AtWork::of(2, With::ALL);
        at_work.is_at(1, Some(7));
        let now = Instant::now();
        assert!(at_work.long(now).is_empty());
        assert_eq!(at_work.long(now + LONG * 2), [7]);
        assert!(at_work.long(now + LONG * 3).is_empty());
        at_work.is_at(1, Some(8));
        at_work.is_at(0, Some(9));
        assert_eq!(at_work.long(now + LONG * 4), [9, 8]);
        at_work.is_at(0, None);
        at_work.is_at(1, None);
        assert!(at_work.long(now + LONG * 9).is_empty());
    }

    #[test]
    fn every_kind_of_what_became_of_calls_is_told() {
        let calls_of = Calls { lent: 1_234_567, full: 89, ..Calls::default() };
        let told = calls(&calls_of);
        assert!(told.ends_with("without room 89, looks at channels with the larger window 1,234,567"), "{told}");
    }

    #[test]
    fn seeds_that_failed_are_a_failed_check_though_nobody_reads_of_them() {
        for told in [|| Ok(()), || Err(Failure::ReaderGone)] {
            assert!(matches!(verdict(told(), 2, 10), Err(Failure::CheckFailed { .. })));
            assert!(verdict(told(), 0, 10).is_ok());
        }
        assert!(matches!(verdict(Err(Failure::new("a", "b")), 2, 10), Err(Failure::CannotRun { .. })));
    }
}
