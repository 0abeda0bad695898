//! One behaviour suite for every way in which two endpoints are joined.
//!
//! A way is a [`Join`]: shared memory, UDP in several surroundings, or a network that is not there. What an endpoint
//! promises does not depend on it, so each promise is one function over any [`Join`], and [`suite!`] makes a test of
//! each. What a way cannot do by
//! its nature it says ([`Join::lacks`]), and the behaviours that need it are skipped with a line that says so.
//!
//! The suite drives endpoints through the public library only. Tests that reach below it (a hostile peer, killed
//! processes, counted system calls, a bad wire) lie in `tests/`.

pub mod bytes;
pub mod join;
pub mod layers;
pub mod random;
pub mod storm;
pub mod suite;
mod worlds;

pub use join::{Capability, Join, Pair, Side, free_udp_address};

/// Says that a test, or a part of one, is skipped, and why: where it is seen even if the test passes.
pub fn skipped(why: impl std::fmt::Display) {
    use std::io::Write as _;
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    // `eprintln` would go where the harness keeps the output of tests that pass.
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {why}");
}
