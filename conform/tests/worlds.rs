//! Worlds in which whole endpoints meet faults: see [`cutthrough_conform::layers`] and [`cutthrough_conform::storm`].

use std::time::{SystemTime, UNIX_EPOCH};

use cutthrough_conform::{layers, storm};

/// Worlds of a test run.
const LAYERS: u64 = 40;
const STORMS: u64 = 120;
const RINGED: u64 = 10;
const FRESH: u64 = 3;

#[test]
fn no_call_breaks_a_rule_in_any_world() {
    let mut summary = layers::Summary::default();
    for seed in 0..LAYERS {
        summary.add(&layers::run(seed).unwrap_or_else(|what| panic!("{what}")));
    }
    eprintln!("{summary}");
    // About half of what these seeds make: where less goes wrong, less is shown.
    assert!(summary.calls > 2000 && summary.answered > 1300, "{summary}");
    assert!(summary.failed > 600 && summary.cancelled > 50 && summary.handed_over > 120, "{summary}");
    assert!(summary.moved > 850 && summary.unmoved > 30, "{summary}");
    assert!(summary.deaths > 23 && summary.sent > 120_000 && summary.spoilt > 2700, "{summary}");
}

#[test]
fn no_message_breaks_a_rule_in_any_storm() {
    let mut summary = storm::Summary::default();
    for seed in 0..STORMS {
        summary.add(&storm::world(seed).unwrap_or_else(|what| panic!("{what}")));
    }
    eprintln!("{summary}");
    assert!(summary.messages > 10_000 && summary.bytes > 250 << 20, "{summary}");
    assert!(summary.deaths > 45 && summary.sent > 250_000 && summary.spoilt > 15_000, "{summary}");
}

/// On rings that place payloads, and kernels that stop wherever they may. In many of them much of what comes is placed.
#[test]
fn no_message_breaks_a_rule_in_any_storm_over_rings() {
    let mut summary = storm::Summary::default();
    for seed in 0..RINGED {
        summary.add(&storm::ringed(seed).unwrap_or_else(|what| panic!("{what}")));
    }
    eprintln!("{summary}");
    assert!(summary.messages > 1000 && summary.bytes > 10 << 20 && summary.deaths > 3, "{summary}");
    assert!(summary.came > 15_000 && summary.through > 3000 && summary.stopped > 300, "{summary}");
    assert!(summary.streamed >= 2, "{summary}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    let fresh = now.as_secs() << 32;
    for seed in fresh..fresh + FRESH {
        storm::ringed(seed).unwrap_or_else(|what| panic!("{what}"));
    }
}

#[test]
fn a_world_is_its_seeds_alone() {
    for seed in [1, 7] {
        assert_eq!(layers::run(seed), layers::run(seed));
        assert_eq!(storm::world(seed), storm::world(seed));
        assert_eq!(storm::ringed(seed), storm::ringed(seed));
    }
}
