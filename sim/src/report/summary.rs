//! How well lines agree with the papers, in a few numbers.

use crate::outcome::{Line, Paper, Role};

/// Lines, counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// All of them.
    pub lines: usize,
    /// Those that are held against a published figure.
    pub compared: usize,
    /// Of these, the ones within their tolerance.
    pub ok: usize,
    /// Of those compared, the ones that nothing was fitted to.
    pub predictions: usize,
    /// Of the predictions, the ones within their tolerance.
    pub predictions_ok: usize,
    /// Half of the predictions are off by at most so many percent; `None` without predictions.
    pub median_error_pct: Option<f64>,
    /// The same of the predictions that are hard to meet: neither a range, nor so exact that they are a sum of
    /// published figures; `None` without any.
    pub hard_median_error_pct: Option<f64>,
}

/// The least tolerance, in percent, of a figure that is more than a sum of published ones.
const HARD: f64 = 5.0;

impl Summary {
    /// Counts these lines.
    pub fn of<'a>(lines: impl Iterator<Item = &'a Line>) -> Self {
        let lines: Vec<&Line> = lines.collect();
        let compared: Vec<&Line> = lines.iter().copied().filter(|line| line.ok.is_some()).collect();
        let predicted = || compared.iter().filter(|line| line.role == Role::Predicted);
        Self {
            lines: lines.len(),
            compared: compared.len(),
            ok: compared.iter().filter(|line| line.ok == Some(true)).count(),
            predictions: predicted().count(),
            predictions_ok: predicted().filter(|line| line.ok == Some(true)).count(),
            median_error_pct: median(predicted().filter_map(|line| line.error_pct)),
            hard_median_error_pct: median(predicted().filter(|line| is_hard(line)).filter_map(|line| line.error_pct)),
        }
    }

    /// Lines that miss the published figure by more than their tolerance.
    #[must_use]
    pub fn misses(&self) -> usize {
        self.compared - self.ok
    }
}

/// Whether it takes a mechanism to meet the published figure.
fn is_hard(line: &Line) -> bool {
    matches!(line.paper, Some(Paper::Value(_))) && line.tolerance_pct.is_some_and(|most| most >= HARD)
}

/// The median of the errors, their signs apart.
fn median(errors: impl Iterator<Item = f64>) -> Option<f64> {
    let mut errors: Vec<f64> = errors.map(f64::abs).collect();
    errors.sort_by(f64::total_cmp);
    let upper = *errors.get(errors.len() / 2)?;
    let lower = *errors.get((errors.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::{Summary, median};
    use crate::outcome::{Line, Paper};

    #[test]
    fn only_predictions_count_for_the_median() {
        let line = |sim| Line::new("T1", "", "", "us", sim).against(Paper::Value(100.0), 5.0);
        let lines = [line(104.0), line(94.0), line(150.0).fitted(), Line::new("T3", "", "", "us", 9.0)];
        let summary = Summary::of(lines.iter());
        assert_eq!((summary.lines, summary.compared, summary.ok, summary.misses()), (4, 3, 1, 2));
        assert_eq!((summary.predictions, summary.predictions_ok), (2, 1));
        assert!((summary.median_error_pct.unwrap() - 5.0).abs() < 1e-9);
    }

    #[test]
    fn ranges_and_exact_sums_are_easy() {
        let line = |paper, tolerance| Line::new("T1", "", "", "us", 120.0).against(paper, tolerance);
        let lines =
            [line(Paper::Range([0.0, 500.0]), 9.0), line(Paper::Value(120.0), 0.0), line(Paper::Value(100.0), 9.0)];
        let summary = Summary::of(lines.iter());
        assert_eq!(summary.median_error_pct, Some(0.0));
        assert!(summary.hard_median_error_pct.is_some_and(|error| (error - 20.0).abs() < 1e-9));
    }

    #[test]
    fn the_median_of_nothing_is_none() {
        assert_eq!(median([].into_iter()), None);
        assert_eq!(median([-3.0, 1.0, 2.0].into_iter()), Some(2.0));
    }
}
