//! Samples of a measured time, and their percentiles.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest time that is kept apart, one hour; longer ones count as this.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Four digits: times below 16 us keep every nanosecond, longer ones are off by 0.01 % at most.
const DIGITS: u8 = 4;

/// Measured times in a histogram of fixed size, so that recording neither allocates nor faults in the middle of a
/// measurement, however long it runs.
#[derive(Clone, Debug)]
pub struct Samples {
    histogram: Histogram<u64>,
}

/// A quantile of some numbers, 0.5 for the median: the mean of the two nearest if it lies between them. None if there
/// are no numbers.
#[must_use]
pub fn quantile(numbers: &[f64], quantile: f64) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let place = quantile.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let share = place.fract();
    let nearest = sorted.iter().zip(0_u32..).filter(|(_, index)| (f64::from(*index) - place).abs() < 1.0);
    let (mut sum, mut weights) = (0.0, 0.0);
    for (number, index) in nearest {
        let weight = if f64::from(index) > place { share } else { 1.0 - share };
        sum += number * weight;
        weights += weight;
    }
    Some(sum / weights)
}

/// The median of some numbers; none if there are none.
#[must_use]
pub fn median(numbers: &[f64]) -> Option<f64> {
    quantile(numbers, 0.5)
}

/// The ratios of two things that were measured in turn, round by round. A round in which one of them came to nothing
/// has none.
#[must_use]
pub fn ratios(of: &[Option<f64>], over: &[Option<f64>]) -> Vec<f64> {
    of.iter().zip(over).filter_map(|(of, over)| Some((*of)? / (*over)?)).collect()
}

/// Percentiles of one measured time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    /// How many samples there were.
    pub count: u64,
    /// The shortest.
    pub min_ns: f64,
    /// The median.
    pub p50_ns: f64,
    /// The 90th percentile.
    pub p90_ns: f64,
    /// The 99th percentile.
    pub p99_ns: f64,
    /// The 99.9th percentile.
    pub p999_ns: f64,
    /// The mean.
    pub mean_ns: f64,
}

impl Samples {
    /// No samples yet.
    ///
    /// # Panics
    /// Never: the bounds and digits are constants that the histogram accepts.
    #[must_use]
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("constant bounds are accepted");
        Self { histogram }
    }

    /// Adds one time in nanoseconds.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
    }

    /// Adds one time.
    #[inline]
    pub fn record_duration(&mut self, time: Duration) {
        self.record(nanoseconds(time));
    }

    /// Adds all times of another measurement.
    pub fn add(&mut self, other: &Self) {
        for value in other.histogram.iter_recorded() {
            self.histogram.saturating_record_n(value.value_iterated_to(), value.count_at_value());
        }
    }

    /// The percentiles of each sample divided by `share`: 2 makes one way of a round trip, the length of a batch
    /// makes one operation of it. None if nothing was recorded.
    #[must_use]
    pub fn quantiles(&self, share: f64) -> Option<Quantiles> {
        if self.histogram.is_empty() {
            return None;
        }
        let at = |quantile| self.histogram.value_at_quantile(quantile) as f64 / share;
        Some(Quantiles {
            count: self.histogram.len(),
            min_ns: at(0.0),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            mean_ns: self.histogram.mean() / share,
        })
    }
}

impl Default for Samples {
    fn default() -> Self {
        Self::new()
    }
}

/// A duration in whole nanoseconds; 584 years are the most.
#[inline]
#[must_use]
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_thousand_are_exact() {
        let mut samples = Samples::new();
        (1..=1000).for_each(|ns| samples.record(ns));
        let quantiles = samples.quantiles(1.0).expect("samples were recorded");
        assert_eq!(
            quantiles,
            Quantiles {
                count: 1000,
                min_ns: 1.0,
                p50_ns: 500.0,
                p90_ns: 900.0,
                p99_ns: 990.0,
                p999_ns: 999.0,
                mean_ns: 500.5,
            }
        );
    }

    #[test]
    fn times_of_two_measurements_add_up() {
        let (mut one, mut two) = (Samples::new(), Samples::new());
        (1..=500).for_each(|ns| one.record(ns));
        (501..=1000).for_each(|ns| two.record(ns));
        one.add(&two);
        let both = one.quantiles(1.0).expect("samples were recorded");
        assert_eq!((both.count, both.min_ns, both.p50_ns, both.p999_ns), (1000, 1.0, 500.0, 999.0));
    }

    #[test]
    fn a_share_divides_every_figure() {
        let mut samples = Samples::new();
        samples.record(120);
        let half = samples.quantiles(2.0).expect("a sample was recorded");
        assert_eq!((half.min_ns, half.p50_ns, half.mean_ns), (60.0, 60.0, 60.0));
    }

    #[test]
    fn extremes_are_kept_within_the_bounds() {
        let mut samples = Samples::new();
        samples.record(0);
        samples.record(u64::MAX);
        let quantiles = samples.quantiles(1.0).expect("samples were recorded");
        assert_eq!(quantiles.count, 2);
        assert!(quantiles.p999_ns <= 1.001 * 3.6e12);
    }

    #[test]
    fn quantiles_of_numbers_lie_between_the_nearest() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
        let hundred: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!((quantile(&hundred, 0.1), quantile(&hundred, 0.9)), (Some(10.0), Some(90.0)));
        assert_eq!((quantile(&hundred, 0.0), quantile(&hundred, 1.0)), (Some(0.0), Some(100.0)));
    }

    #[test]
    fn ratios_are_of_the_rounds_that_have_both() {
        assert_eq!(ratios(&[Some(3.0), None, Some(8.0)], &[Some(2.0), Some(1.0), Some(2.0)]), [1.5, 4.0]);
        assert_eq!(ratios(&[Some(3.0), Some(4.0)], &[None]), [0.0; 0]);
    }

    #[test]
    fn nothing_recorded_has_no_percentiles() {
        assert_eq!(Samples::new().quantiles(1.0), None);
    }
}
