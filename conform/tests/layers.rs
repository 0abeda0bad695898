//! Worlds in which the layers above messages meet faults: see [`cutthrough_conform::layers`].

use cutthrough_conform::layers::{Summary, run};

/// Worlds of a test run.
const WORLDS: u64 = 40;

#[test]
fn nothing_is_broken_in_any_world() {
    let mut summary = Summary::default();
    for seed in 0..WORLDS {
        summary.add(&run(seed).unwrap_or_else(|what| panic!("{what}")));
    }
    eprintln!("{summary}");
}

#[test]
fn a_world_is_its_seeds_alone() {
    for seed in [1, 7] {
        assert_eq!(run(seed), run(seed));
    }
}
