//! Files that `sim` writes: reports and timelines.

use std::fs;
use std::io;
use std::path::Path;

use cutthrough_sim::report::Report;
use cutthrough_sim::trace::{self, Timeline};

use crate::failure::Failure;
use crate::file;
use crate::output::Output;

/// Makes the folder of a report, if it is not there.
///
/// # Errors
/// If it cannot be made.
pub fn make_folder(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error, "name another folder with --out"))
}

/// Makes sure that a timeline can be written.
///
/// # Errors
/// If it cannot.
pub fn writable(path: &Path) -> Result<(), Failure> {
    file::writable(path).map_err(|error| cannot_write(path, &error, "name another file with --trace"))
}

/// Writes every file of the report.
///
/// # Errors
/// If one of them cannot be written.
pub fn write_report(folder: &Path, report: &Report<'_>, output: Output) -> Result<(), Failure> {
    for file in report.files() {
        let path = folder.join(&file.name);
        std::fs::write(&path, file.text)
            .map_err(|error| cannot_write(&path, &error, "name another folder with --out"))?;
    }
    output.say(&format!("The report is {}.", folder.join("index.html").display()))
}

/// Writes a timeline.
///
/// # Errors
/// If it cannot be written.
pub fn write_trace(file: &Path, timelines: &[Timeline], output: Output) -> Result<(), Failure> {
    let written = std::fs::write(file, trace::file(timelines));
    written.map_err(|error| cannot_write(file, &error, "name another file with --trace"))?;
    output.say(&format!("The timeline is {}; open it in ui.perfetto.dev.", file.display()))
}

fn cannot_write(path: &Path, error: &io::Error, remedy: &str) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()), remedy)
}
