//! What a tuner learns of synthetic stages, through noise and through change.

use cutthrough_engine::tune::{BATCH, Tuner, is_timed};
use proptest::prelude::*;

/// A stage as it is.
#[derive(Debug, Clone, Copy)]
struct Truth {
    overhead_ns: u64,
    byte_ps: u64,
}

impl Truth {
    fn ns(self, bytes: u64) -> u64 {
        self.overhead_ns + bytes * self.byte_ps / 1000
    }
}

/// One measurement: how many bytes moved, the percentage by which it came out too long, and whether it is the one in
/// ten that came out a hundred times too long.
#[derive(Debug, Clone, Copy)]
struct Draw {
    bytes: u64,
    late_percent: u64,
    outlier: bool,
}

/// Numbers whose logarithms are spread evenly.
fn spread(logs: std::ops::Range<u32>) -> impl Strategy<Value = u64> {
    (logs, 64..128u64).prop_map(|(log, mantissa)| (mantissa << log) >> 6)
}

fn draws(count: u32) -> impl Strategy<Value = Vec<Draw>> {
    let draw = (spread(6..20), 0..=5u64, proptest::bool::weighted(0.1));
    let draw = draw.prop_map(|(bytes, late_percent, outlier)| Draw { bytes, late_percent, outlier });
    proptest::collection::vec(draw, count as usize)
}

fn feed(tuner: &mut Tuner, truth: Truth, draws: &[Draw]) {
    for draw in draws {
        let percent = if draw.outlier { 10_000 } else { 100 + draw.late_percent };
        tuner.observe(draw.bytes, truth.ns(draw.bytes) * percent / 100);
    }
}

/// What the tuner thinks that a pulse takes, over what it takes.
fn cost_ratio(tuner: &Tuner, truth: Truth, bytes: u64) -> f64 {
    let learnt = tuner.overhead_ns() as f64 + bytes as f64 * 1000.0 / tuner.bytes_per_us() as f64;
    learnt / truth.ns(bytes) as f64
}

/// Largest relative error of the learnt cost over lengths from 64 bytes to 1 MiB.
fn cost_error(tuner: &Tuner, truth: Truth) -> f64 {
    (6..=20).map(|log| (cost_ratio(tuner, truth, 1 << log) - 1.0).abs()).fold(0.0, f64::max)
}

/// Overheads from 16 ns to 32 us, rates from 0.06 to 60 bytes in a nanosecond.
fn any_truth() -> impl Strategy<Value = Truth> {
    (spread(4..15), spread(4..14)).prop_map(|(overhead_ns, byte_ps)| Truth { overhead_ns, byte_ps })
}

proptest! {
    #[test]
    fn the_cost_of_a_stage_is_found_through_outliers(truth in any_truth(), draws in draws(3 * BATCH)) {
        let mut tuner = Tuner::default();
        feed(&mut tuner, truth, &draws);
        let error = cost_error(&tuner, truth);
        prop_assert!(error < 0.2, "{error}: {tuner:?}");
    }

    /// Where neither overhead nor rate hides the other, each is found.
    #[test]
    fn overhead_and_rate_are_told_apart(knee in spread(8..16), byte_ps in spread(4..14), draws in draws(3 * BATCH)) {
        let truth = Truth { overhead_ns: knee * byte_ps / 1000, byte_ps };
        prop_assume!(truth.overhead_ns >= 16);
        let mut tuner = Tuner::default();
        feed(&mut tuner, truth, &draws);
        let overhead = tuner.overhead_ns() as f64 / truth.overhead_ns as f64;
        let rate = (tuner.bytes_per_us() * byte_ps) as f64 / 1e6;
        prop_assert!((overhead - 1.0).abs() < 0.2, "overhead {overhead}: {tuner:?}");
        prop_assert!((rate - 1.0).abs() < 0.2, "rate {rate}: {tuner:?}");
    }

    /// Two batches after a change nothing of the past is left.
    #[test]
    fn a_change_is_followed_within_two_batches(
        truth in any_truth(),
        slower: bool,
        (before, after) in (draws(3 * BATCH + 17), draws(2 * BATCH)),
    ) {
        let mut tuner = Tuner::default();
        feed(&mut tuner, truth, &before);
        let byte_ps = if slower { truth.byte_ps * 4 } else { truth.byte_ps / 4 };
        let changed = Truth { byte_ps, ..truth };
        feed(&mut tuner, changed, &after);
        let error = cost_error(&tuner, changed);
        prop_assert!(error < 0.2, "{error}: {tuner:?}");
    }

    /// Pulses of one length cannot tell overhead from rate, but their own cost is known at once.
    #[test]
    fn one_length_is_enough_for_its_own_cost(truth in any_truth(), bytes in spread(6..20), after_short: bool) {
        let tuner = Tuner::default();
        let mut tuner = if after_short { tuner.after_short_ones() } else { tuner };
        tuner.observe(bytes, truth.ns(bytes));
        let ratio = cost_ratio(&tuner, truth, bytes);
        let rounding = 1.0 / tuner.bytes_per_us() as f64;
        prop_assert!((ratio - 1.0).abs() < 0.01 + rounding, "{ratio}: {tuner:?}");
    }

    /// As over a network, where a channel begins with short messages: of these alone nothing follows for long ones.
    #[test]
    fn one_length_says_nothing_of_what_is_worth_a_pulse(
        bytes in spread(6..14), times in 1_u64..10, observed in 1_u32..200
    ) {
        let mut tuner = Tuner::with_prior(2_000, 5_000).after_short_ones();
        let before = tuner.minpulse(1 << 20) as f64;
        let ns = times * (2_000 + bytes / 5);
        (0..observed).for_each(|_| tuner.observe(bytes, ns));
        let ratio = tuner.minpulse(1 << 20) as f64 / before;
        // A few bytes take a few nanoseconds, and these are counted whole.
        prop_assert!((ratio - 1.0).abs() < 0.1, "{ratio}: {tuner:?}");
    }

    #[test]
    fn nothing_overflows(observations in proptest::collection::vec(any::<(u64, u64)>(), 0..200), len: u64) {
        let mut tuner = Tuner::default();
        for (bytes, ns) in observations {
            tuner.observe(bytes, ns);
            tuner.observe(bytes % 5000, ns % 5000);
            prop_assert!(tuner.overhead_ns() > 0 && tuner.bytes_per_us() > 0);
            prop_assert!(tuner.minpulse(len) <= len);
            prop_assert!(tuner.pulse_max() >= 256);
        }
    }

    #[test]
    fn minpulse_grows_with_the_message(overhead in 1..u64::MAX, rate in 1..u64::MAX, mut lens: [u64; 2]) {
        lens.sort_unstable();
        let tuner = Tuner::with_prior(overhead, rate);
        prop_assert!(tuner.minpulse(lens[0]) <= tuner.minpulse(lens[1]));
    }
}

#[test]
fn minpulse_is_the_optimum_of_the_model() {
    let tuner = Tuner::with_prior(1500, 131);
    let time = |len: u64, pulse: u64| {
        let pulses = len.div_ceil(pulse);
        (len + pulse) as f64 / 0.131 + pulses as f64 * 1500.0
    };
    for len in [4096, 8192, 65536, 1 << 20] {
        let best = (1..=len / 64).map(|lines| time(len, 64 * lines)).fold(f64::INFINITY, f64::min);
        let found = time(len, tuner.minpulse(len));
        assert!(found <= best * 1.02, "{len}: {found} against {best}");
    }
}

#[test]
fn lengths_are_whole_lines_within_bounds() {
    let tuner = Tuner::with_prior(200, 8000);
    assert_eq!([0, 100, 300, 4096].map(|len| tuner.minpulse(len)), [0, 100, 300, 2560]);
    assert_eq!(tuner.minpulse(1 << 20) % 64, 0);
    assert_eq!(tuner.pulse_max(), 19 * 1600);
    assert_eq!(Tuner::with_prior(0, 0).minpulse(1 << 20), 256);
    assert_eq!(Tuner::with_prior(0, 0).pulse_max(), 256);
    assert_eq!(Tuner::with_prior(u64::MAX, u64::MAX).minpulse(u64::MAX), 1 << 32);
}

#[test]
fn a_few_of_many_payloads_are_timed_and_the_first_and_the_long_ones() {
    assert!((0..BATCH).all(|number| is_timed(number, 8193)));
    assert_eq!((1000..2000).filter(|&number| is_timed(number, 65_536)).count(), 62);
    assert!((1000..2000).all(|number| is_timed(number, 1 << 20)));
}
