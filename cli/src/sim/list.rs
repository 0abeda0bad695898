//! `sim list`: every experiment and every platform, a line each.

use cutthrough_sim::catalogue::Catalogue;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Output;
use crate::table::hanging;

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
    let (mut experiments, mut platforms) = (vec!["experiment".to_owned()], vec!["platform".to_owned()]);
    for found in catalogue.experiments() {
        output.line(&ExperimentLine { experiment: found.id, title: found.title })?;
        experiments.push(hanging(&format!("{:<5} {}", found.id, found.title), 6));
    }
    for platform in super::platforms(catalogue)? {
        let (name, title) = (platform.name(), platform.title());
        output.line(&PlatformLine { platform: name, title, model: platform.model() })?;
        platforms.push(hanging(&format!("{name:<18} {title}"), 19));
    }
    output.say(&format!("{}\n\n{}", experiments.join("\n"), platforms.join("\n")))
}
