//! A scale: where on an axis a value lies, and the round values that are written beside it.

use crate::outcome::Axis;
use crate::report::number;

/// Room beyond the values is given up to a round value; from this share of the highest on, the lowest is near enough to
/// it that the scale need not begin at 0.
const FAR_FROM_ZERO: f64 = 0.6;

/// An axis, laid onto a length of the drawing.
#[derive(Debug, Clone)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    binary: bool,
    /// Where the two ends lie.
    ends: [f64; 2],
    /// Round values, from the least.
    pub(super) ticks: Vec<f64>,
}

impl Scale {
    /// Lays an axis that shows all `values` between the two `ends`, with about `most` ticks. Without any value that can
    /// be shown it goes from 0 to 1 (from 1 to 10 where factors count).
    pub(super) fn fit(axis: &Axis, values: impl Iterator<Item = f64>, ends: [f64; 2], most: usize) -> Self {
        let binary = counts_bytes(&axis.label);
        let shown = values.filter(|&value| fits(axis, value));
        let bounds = shown.fold(None, |bounds: Option<(f64, f64)>, value| {
            Some(bounds.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
        });
        let ticks = match (axis.log, bounds) {
            (true, bounds) => factors(bounds.unwrap_or((1.0, 10.0)), binary, most),
            (false, bounds) => steps(bounds.unwrap_or((0.0, 1.0)), binary, most),
        };
        let (low, high) = (ticks.low, ticks.high);
        Self { low, high, log: axis.log, binary, ends, ticks: ticks.at }
    }

    /// Where a value lies; `None` if the axis cannot show it.
    pub(super) fn at(&self, value: f64) -> Option<f64> {
        let [from, to] = self.ends;
        let share = if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        (-1e-9..=1.0 + 1e-9).contains(&share).then_some(from + share * (to - from))
    }

    /// Where the scale begins: at 0, or at the lowest value that it shows.
    pub(super) fn begin(&self) -> f64 {
        self.at(0.0).filter(|_| !self.log).unwrap_or(self.ends[0])
    }

    /// What is written beside a tick.
    pub(super) fn label(&self, tick: f64) -> String {
        let most = self.ticks.iter().copied().fold(0.0, |most: f64, tick| most.max(tick.abs()));
        if self.binary && tick >= 1024.0 {
            let (unit, name) = if tick >= 1_048_576.0 { (1_048_576.0, "MiB") } else { (1024.0, "KiB") };
            return format!("{} {name}", number::short(tick / unit));
        }
        if most >= 1e7 {
            return if tick == 0.0 { "0".to_owned() } else { format!("{} M", number::short(tick / 1e6)) };
        }
        number::short(tick)
    }
}

/// Whether an axis can show a value.
fn fits(axis: &Axis, value: f64) -> bool {
    value.is_finite() && !(axis.log && value <= 0.0)
}

/// Whether an axis counts bytes, so that powers of two are the round values.
fn counts_bytes(label: &str) -> bool {
    let unit = label.rsplit(", ").next().unwrap_or(label);
    matches!(unit.trim(), "B" | "byte" | "bytes")
}

/// The two ends of a scale, and the ticks between them.
struct Ticks {
    low: f64,
    high: f64,
    at: Vec<f64>,
}

/// Equal steps of 1, 2 or 5 times a power of ten, or of a power of two for bytes.
fn steps((low, high): (f64, f64), binary: bool, most: usize) -> Ticks {
    let from_zero = low >= 0.0 && low < FAR_FROM_ZERO * high;
    let low = if from_zero || low == high { low.min(0.0) } else { low };
    let high = if high > low { high } else { low + 1.0 };
    let step = round_step((high - low) / most.max(1) as f64, binary);
    let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
    let count = last - first;
    let at = (0..).map(|index| first + f64::from(index)).take_while(|&index| index <= first + count);
    // A product, not a sum: the 3rd step of 0.1 is 0.3, and 0.30000000000000004 is no round number.
    let at = at.map(|index| number::significant(index * step, 12)).collect();
    Ticks { low: first * step, high: last * step, at }
}

/// The next round step that is at least so long.
fn round_step(least: f64, binary: bool) -> f64 {
    if binary {
        return least.log2().ceil().max(0.0).exp2();
    }
    let ten = 10_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().find(|step| step * ten >= least * (1.0 - 1e-9)).unwrap_or(10.0) * ten;
    number::significant(step, 1)
}

/// Equal factors: powers of two for bytes, else of ten, with 2 and 5 between them where there is room.
fn factors((low, high): (f64, f64), binary: bool, most: usize) -> Ticks {
    let base: f64 = if binary { 2.0 } else { 10.0 };
    let exponent = |value: f64| value.ln() / base.ln();
    let (first, last) = ((exponent(low) + 1e-9).floor(), (exponent(high) - 1e-9).ceil());
    let last = if last > first { last } else { first + 1.0 };
    let powers = |stride: f64| -> Vec<f64> {
        let first = (first / stride).ceil() * stride;
        let exponents = (0..).map(|index| first + stride * f64::from(index));
        exponents.take_while(|&power| power <= last).map(|power| number::significant(base.powf(power), 12)).collect()
    };
    let mut strides = (1..).map(f64::from);
    let at = strides.find_map(|stride| Some(powers(stride)).filter(|at| at.len() <= most.max(2) + 1));
    let whole = Ticks { low: base.powf(first), high: base.powf(last), at: at.unwrap_or_default() };
    if binary {
        return whole;
    }
    // The ends need not be whole powers of ten, if there are ticks enough between them; few decades have room for more.
    let between: Vec<f64> = powers(1.0).iter().flat_map(|&ten| [ten, ten * 2.0, ten * 5.0]).collect();
    let low = between.iter().copied().filter(|&tick| tick <= low * (1.0 + 1e-9)).fold(between[0], f64::max);
    let high = between.iter().copied().filter(|&tick| tick >= high * (1.0 - 1e-9)).fold(whole.high, f64::min);
    let high = if high > low { high } else { low * base };
    let inside = |ticks: &[f64]| ticks.iter().copied().filter(|tick| (low..=high).contains(tick)).collect::<Vec<_>>();
    match (inside(&between), inside(&whole.at)) {
        (at, _) if at.len() <= most => Ticks { low, high, at },
        (_, at) if at.len() > 1 => Ticks { low, high, at },
        _ => whole,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Axis, Scale};

    fn scale(axis: &Axis, values: &[f64]) -> Scale {
        Scale::fit(axis, values.iter().copied(), [0.0, 100.0], 6)
    }

    #[test]
    fn ticks_are_round() {
        let us = Axis::linear("latency, us");
        assert_eq!(scale(&us, &[3.0, 295.0]).ticks, [0.0, 50.0, 100.0, 150.0, 200.0, 250.0, 300.0]);
        assert_eq!(scale(&us, &[195.0, 308.0]).ticks, [180.0, 200.0, 220.0, 240.0, 260.0, 280.0, 300.0, 320.0]);
        assert_eq!(scale(&us, &[-0.3, 0.3]).ticks, [-0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3]);
        let bytes = Axis::linear("payload, bytes");
        assert_eq!(scale(&bytes, &[1.0, 8192.0]).ticks, [0.0, 2048.0, 4096.0, 6144.0, 8192.0]);
        let log = Axis::log("payload, bytes");
        assert_eq!(scale(&log, &[64.0, 8192.0]).ticks, [64.0, 256.0, 1024.0, 4096.0]);
        assert_eq!(scale(&Axis::log("rate, MB/s"), &[0.5, 900.0]).ticks, [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(scale(&Axis::log("rate, MB/s"), &[3.0, 40.0]).ticks, [2.0, 5.0, 10.0, 20.0, 50.0]);
    }

    #[test]
    fn labels_are_short() {
        let bytes = scale(&Axis::log("payload, bytes"), &[512.0, 2e6]);
        assert_eq!(
            [512.0, 1024.0, 65536.0, 2_097_152.0].map(|tick| bytes.label(tick)),
            ["512", "1 KiB", "64 KiB", "2 MiB"]
        );
        assert_eq!(scale(&Axis::linear("B/s"), &[0.0, 4e7]).label(2e7), "20 M");
        assert_eq!(scale(&Axis::linear("us"), &[0.0, 0.9]).label(0.2), "0.2");
    }

    #[test]
    fn what_cannot_be_shown_is_left_out() {
        let log = scale(&Axis::log("us"), &[0.0, f64::NAN, 5.0]);
        assert_eq!((log.at(0.0), log.at(-1.0), log.at(f64::NAN)), (None, None, None));
        assert!(scale(&Axis::linear("us"), &[]).at(0.5).is_some());
        assert!(scale(&Axis::linear("us"), &[7.0]).at(7.0).is_some());
    }

    proptest! {
        #[test]
        fn every_value_and_every_tick_lies_between_the_ends(
            values in prop::collection::vec(prop_oneof![1e-3..1e3, 1.0..1e9], 1..9),
            log: bool,
            bytes: bool,
        ) {
            let label = if bytes { "payload, bytes" } else { "time, us" };
            let scale = scale(&Axis { label: label.into(), log }, &values);
            for value in values.iter().chain(&scale.ticks) {
                let at = scale.at(*value);
                prop_assert!(at.is_some_and(|at| (-1e-6..=100.0 + 1e-6).contains(&at)), "{value} in {scale:?}");
            }
            prop_assert!((1..=16).contains(&scale.ticks.len()), "{scale:?}");
        }
    }
}
