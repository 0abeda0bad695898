//! A message through two stages of known speed, for the tests of the drawings.

use super::{Pulse, Run, StageSpan, Timeline};

/// A 1 MiB message under three policies: each pulse costs 60 ns and 31 ns per KiB in either stage, and the second stage
/// begins a pulse when the first has finished it.
pub(super) fn timeline() -> Timeline {
    let run = |policy: &str, pulse: u64| Run { policy: policy.into(), stages: two_stages(1 << 20, pulse) };
    Timeline {
        title: "One 1 MiB message, private memory to private memory".into(),
        runs: vec![run("store-and-forward", 1 << 20), run("fixed:65536", 64 << 10), run("adaptive", 8 << 10)],
    }
}

fn two_stages(bytes: u64, pulse: u64) -> Vec<StageSpan> {
    let cost = |bytes: u64| 60 + bytes * 31 / 1024;
    let mut first = Vec::new();
    let mut second = Vec::new();
    // A clock that did not begin with this message.
    let (mut first_free, mut second_free) = (7_000, 0);
    for _ in 0..bytes / pulse {
        let moved = Pulse { start_ns: first_free, end_ns: first_free + cost(pulse), bytes: pulse };
        first_free = moved.end_ns;
        let start_ns = second_free.max(moved.end_ns);
        second_free = start_ns + cost(pulse) * 11 / 10;
        second.push(Pulse { start_ns, end_ns: second_free, bytes: pulse });
        first.push(moved);
    }
    vec![StageSpan { stage: "copy in".into(), pulses: first }, StageSpan { stage: "copy out".into(), pulses: second }]
}
