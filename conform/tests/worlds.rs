//! Worlds in which whole endpoints meet faults: see [`cutthrough_conform::layers`] and [`cutthrough_conform::storm`].

use cutthrough_conform::{layers, storm};

/// Worlds of a test run.
const LAYERS: u64 = 40;
const STORMS: u64 = 120;

#[test]
fn no_call_breaks_a_rule_in_any_world() {
    let mut summary = layers::Summary::default();
    for seed in 0..LAYERS {
        summary.add(&layers::run(seed).unwrap_or_else(|what| panic!("{what}")));
    }
    eprintln!("{summary}");
}

#[test]
fn no_message_breaks_a_rule_in_any_storm() {
    let mut summary = storm::Summary::default();
    for seed in 0..STORMS {
        summary.add(&storm::world(seed).unwrap_or_else(|what| panic!("{what}")));
    }
    eprintln!("{summary}");
}

#[test]
fn a_world_is_its_seeds_alone() {
    for seed in [1, 7] {
        assert_eq!(layers::run(seed), layers::run(seed));
        assert_eq!(storm::world(seed), storm::world(seed));
    }
}
