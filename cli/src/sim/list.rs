//! `sim list`: every experiment and every platform, a line each.

use cutthrough_sim::catalogue::Catalogue;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Output;
use crate::table::Table;

/// An experiment that can be run.
#[derive(Debug, Serialize)]
struct ExperimentLine<'a> {
    experiment: &'a str,
    title: &'a str,
}

/// A platform that can be asked.
#[derive(Debug, Serialize)]
struct PlatformLine<'a> {
    platform: &'a str,
    title: &'a str,
    model: &'a str,
}

/// Prints the list.
///
/// # Errors
/// If a built-in platform is wrong, or the output cannot be written.
pub fn run(catalogue: &Catalogue, output: Output) -> Result<(), Failure> {
    let mut experiments = Table::new(&["experiment"]);
    for found in catalogue.experiments() {
        output.line(&ExperimentLine { experiment: found.id, title: found.title })?;
        experiments.row(vec![format!("{:<5} {}", found.id, found.title)]);
    }
    let mut platforms = Table::new(&["platform"]);
    for platform in super::platforms(catalogue)? {
        let (name, title) = (platform.name(), platform.title());
        output.line(&PlatformLine { platform: name, title, model: platform.model() })?;
        platforms.row(vec![format!("{name:<18} {title}")]);
    }
    output.say(&format!("{experiments}\n\n{platforms}"))
}
