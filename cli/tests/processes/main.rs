//! The program and the other ends that it starts: what they print, and that nothing of them is left.

mod calls;
mod ends;
mod folder;
mod perf;
mod run;
mod stat;
mod veth;

/// Says that a test, or a part of one, is skipped, and why: where it is seen even if the test passes.
pub(crate) fn skipped(why: impl std::fmt::Display) {
    use std::io::Write as _;
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    // `eprintln` would go where the harness keeps the output of tests that pass.
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {why}");
}
