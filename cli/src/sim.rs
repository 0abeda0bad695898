//! `sim`: the papers' results from the simulator, and answers about any operating point.
//!
//! [`list`] says what there is, [`run`](mod@experiments) runs experiments and [`show`] prints their lines, [`files`]
//! writes reports and timelines, [`point`] asks for one operating point. [`fault`] is
//! apart: it runs the network side of the engine, as it is today, in worlds in which everything goes wrong.

pub mod experiments;
pub mod fault;
pub mod files;
pub mod list;
pub mod point;
pub mod show;

use cutthrough_sim::catalogue::{Catalogue, draws_flow};
use cutthrough_sim::outcome::{Experiment, Outcome};
use cutthrough_sim::platform::{Platform, PlatformError};
use cutthrough_sim::report::Report;
use cutthrough_sim::trace::Timeline;

use crate::args::{SimArgs, SimCommand, SimResults};
use crate::failure::Failure;
use crate::output::Output;

/// Does what the command line asks for with everything that is built in.
///
/// # Errors
/// If it cannot be done, a check failed, or the output cannot be written.
pub fn run(args: &SimArgs, output: Output) -> Result<(), Failure> {
    run_with(&Catalogue::built_in(), args, output)
}

fn run_with(catalogue: &Catalogue, args: &SimArgs, output: Output) -> Result<(), Failure> {
    match &args.command {
        Some(SimCommand::List) => list::run(catalogue, output),
        Some(SimCommand::All(results)) => simulate(catalogue, &catalogue.experiments(), results, output),
        Some(SimCommand::Point(args)) => point::run(catalogue, args, output),
        Some(SimCommand::Fault(args)) => fault::run(args, output),
        None => simulate(catalogue, &experiments::named(catalogue, &args.ids)?, &args.results, output),
    }
}

/// Runs the experiments, prints their lines, and writes and checks what was asked for.
fn simulate(catalogue: &Catalogue, wanted: &[Experiment], options: &SimResults, output: Output) -> Result<(), Failure> {
    // Before the runs, which may take a minute: what cannot be written.
    let platforms = if options.out.is_some() { platforms(catalogue)? } else { Vec::new() };
    if let Some(folder) = &options.out {
        files::make_folder(folder)?;
    }
    if let Some(file) = &options.trace {
        if !wanted.iter().any(draws_flow) {
            return Err(nothing_drawn());
        }
        files::writable(file)?;
    }
    let results = experiments::run(wanted, output);
    let report = Report { results: &results, platforms: &platforms };
    // Files are written, and the check is made, also if whoever reads the lines has seen enough of them.
    Failure::unless_reader_gone(show_all(&report, output))?;
    if let Some(folder) = &options.out {
        Failure::unless_reader_gone(files::write_report(folder, &report, output))?;
    }
    if let Some(file) = &options.trace {
        Failure::unless_reader_gone(files::write_trace(file, &timelines(&results)?, output))?;
    }
    if options.check { show::check(&report, output) } else { Ok(()) }
}

fn show_all(report: &Report<'_>, output: Output) -> Result<(), Failure> {
    for (experiment, outcome) in report.results {
        show::experiment(experiment, outcome, output)?;
    }
    show::summary(&report.summary(), output)
}

/// Every built-in platform, for the origins of its parameters.
fn platforms(catalogue: &Catalogue) -> Result<Vec<Platform>, Failure> {
    let platforms = catalogue.platforms().filter_map(|(name, _)| catalogue.platform(name));
    platforms.collect::<Result<_, _>>().map_err(|error| wrong_platform(&error))
}

fn wrong_platform(error: &PlatformError) -> Failure {
    Failure::from_error(error, "mend the platform's file")
}

fn timelines(results: &[(Experiment, Outcome)]) -> Result<Vec<Timeline>, Failure> {
    let figures = results.iter().flat_map(|(_, outcome)| &outcome.figures);
    let timelines: Vec<Timeline> = figures.filter_map(Timeline::of).collect();
    if timelines.is_empty() { Err(nothing_drawn()) } else { Ok(timelines) }
}

fn nothing_drawn() -> Failure {
    let remedy = "use --trace with 'sim all', with 'sim point', or with N2, which draws one";
    Failure::new("none of these experiments draws a packet-flow graph", remedy)
}

#[cfg(test)]
mod tests;
