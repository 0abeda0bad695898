//! A progress bar on standard error, drawn only if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of `steps` steps; set its message to what is being done.
#[must_use]
pub fn bar(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}");
    let bar = ProgressBar::new(steps as u64);
    match style {
        Ok(style) => bar.with_style(style.progress_chars("█▌ ")),
        Err(_) => bar,
    }
}
