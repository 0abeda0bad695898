//! A bench for the experiments: built-in machines, policies by name, and what one run of them says.

use std::num::NonZeroU64;

use cutthrough_engine::pulse::Policy;

use crate::outcome::{Axis, Curve, Drawing, Figure, Mark};
use crate::point::Firmware;

use super::machine::Machine;
use super::run::{ROUNDS, Ran, Run};
use super::{Lens, machine};

/// 8 KB: the page of an Alpha, and the payload of most of the papers' measurements.
pub(super) const PAGE: u64 = 8192;

/// Counts the events of the runs that are made on it.
#[derive(Debug, Default)]
pub(super) struct Lab {
    pub(super) events: u64,
}

/// A built-in machine.
pub(super) fn built_in(name: &str) -> Machine {
    machine(name).expect("built-in platforms are tested")
}

/// The engine with these rules for the two sides.
pub(super) fn engine(send: Policy, recv: Policy) -> Firmware {
    Firmware::Engine { send, recv }
}

/// Whole messages on both sides.
pub(super) fn whole() -> Firmware {
    engine(Policy::StoreAndForward, Policy::StoreAndForward)
}

/// Fixed pulses of these lengths.
pub(super) fn fixed(send: u64, recv: u64) -> Firmware {
    let policy = |bytes| NonZeroU64::new(bytes).map_or(Policy::StoreAndForward, Policy::Fixed);
    engine(policy(send), policy(recv))
}

/// Everything that is buffered, if it is at least this much.
pub(super) fn eager(send: u64, recv: u64) -> Firmware {
    let policy = |bytes| Policy::Adaptive { minpulse: NonZeroU64::new(bytes) };
    engine(policy(send), policy(recv))
}

/// The engine without any setting: what is worth a pulse is measured.
pub(super) fn untuned() -> Firmware {
    engine(Policy::default(), Policy::default())
}

impl Lab {
    /// One-way latency in microseconds between two machines of a kind.
    pub(super) fn latency(&mut self, machine: &Machine, firmware: Firmware, len: u64) -> f64 {
        self.go(Run::ping_pong([machine, machine], firmware, len, ROUNDS)).each_us()
    }

    /// Bytes per second of `count` messages from `pair[0]` to `pair[1]`.
    pub(super) fn bandwidth(&mut self, pair: [&Machine; 2], firmware: Firmware, len: u64, count: u64) -> f64 {
        self.go(Run::stream(pair, firmware, Lens::Same(len), count, 1)).bytes_per_s()
    }

    /// Makes a run.
    pub(super) fn go(&mut self, run: Result<Run, crate::point::PointError>) -> Ran {
        let ran = run.expect("every engine and baseline of the experiments is modelled").go();
        self.events += ran.events;
        ran
    }
}

/// A figure of curves.
pub(super) fn curves(
    id: &str,
    title: &str,
    caption: &str,
    axes: [Axis; 2],
    curves: Vec<Curve>,
    marks: Vec<Mark>,
) -> Figure {
    let [x, y] = axes;
    let drawing = Drawing::Curves { x, y, curves, marks };
    Figure { id: id.to_owned(), title: title.to_owned(), caption: caption.to_owned(), drawing }
}

/// A curve through the points that `y` gives for each of `xs`.
pub(super) fn curve(name: impl Into<String>, xs: &[u64], mut y: impl FnMut(u64) -> f64) -> Curve {
    Curve { name: name.into(), points: xs.iter().map(|&x| [x as f64, y(x)]).collect() }
}

/// A point that a paper gives.
pub(super) fn mark(x: f64, y: f64, label: &str) -> Mark {
    Mark { at: [x, y], label: label.to_owned() }
}

/// By how many percent `new` is below `old`.
pub(super) fn below(new: f64, old: f64) -> f64 {
    (1.0 - new / old) * 100.0
}
