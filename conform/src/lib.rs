//! One behaviour suite for every way in which two endpoints are joined.
//!
//! A way is a [`Join`]: shared memory is the first, others come later. What an endpoint promises does not depend on
//! it, so each promise is one function over any [`Join`], and [`suite!`] makes a test of each. What a way cannot do by
//! its nature it says ([`Join::lacks`]), and the behaviours that need it are skipped with a line that says so.
//!
//! The suite drives endpoints through the public library only. Tests that reach below it (a hostile peer, killed
//! processes, counted system calls) lie in `tests/`, and are about shared memory alone.

pub mod bytes;
pub mod join;
pub mod suite;

pub use join::{Capability, Join, Pair, Side};
