//! Runs experiments, on both cores; the results are in the order that was asked for, whoever was first.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cutthrough_sim::catalogue::Catalogue;
use cutthrough_sim::outcome::{Experiment, Outcome};
use indicatif::ProgressBar;

use crate::cpu;
use crate::failure::Failure;
use crate::hint;
use crate::output::Output;
use crate::progress;

/// Threads that run experiments; each experiment has one thread.
const THREADS: usize = 2;

/// The experiments of these names, each once, in the order of the table of results. `all` is every one.
///
/// # Errors
/// If there is no such experiment, or none is named.
pub fn named(catalogue: &Catalogue, ids: &[String]) -> Result<Vec<Experiment>, Failure> {
    let remedy = || format!("'{}' shows all of them", hint::command("sim list"));
    let is_wanted = |found: &Experiment, id: &str| id == "all" || found.id.eq_ignore_ascii_case(id);
    let all = catalogue.experiments();
    if let Some(unknown) = ids.iter().find(|id| *id != "all" && !all.iter().any(|found| is_wanted(found, id))) {
        return Err(Failure::new(format!("there is no experiment {unknown:?}"), remedy()));
    }
    if ids.is_empty() {
        return Err(Failure::new("no experiment is named", remedy()));
    }
    Ok(all.into_iter().filter(|found| ids.iter().any(|id| is_wanted(found, id))).collect())
}

/// Runs them, with a bar on the terminal if there are several.
#[must_use]
pub fn run(wanted: &[Experiment], output: Output) -> Vec<(Experiment, Outcome)> {
    // A bar of one step would say nothing; neither does one that a script reads.
    let bar = if wanted.len() > 1 && !output.is_json() { progress::bar(wanted.len()) } else { ProgressBar::hidden() };
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<Outcome>>> = wanted.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while let Some((index, experiment)) = take(&next, wanted) {
            bar.set_message(experiment.title);
            let outcome = (experiment.run)();
            if let Ok(mut place) = done[index].lock() {
                *place = Some(outcome);
            }
            bar.inc(1);
        }
    };
    thread::scope(|scope| {
        for _ in 1..THREADS.min(wanted.len()) {
            // Without it this takes longer.
            let _ = cpu::spawn(scope, work);
        }
        work();
    });
    bar.finish_and_clear();
    // Every place is filled: a thread that panics takes the whole scope with it.
    let outcomes = done.into_iter().map(|place| place.into_inner().ok().flatten().unwrap_or_default());
    wanted.iter().copied().zip(outcomes).collect()
}

/// The next experiment that nobody has taken yet.
fn take<'a>(next: &AtomicUsize, wanted: &'a [Experiment]) -> Option<(usize, &'a Experiment)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    wanted.get(index).map(|experiment| (index, experiment))
}
