//! The results of the staged family against the papers.

use cutthrough_sim::catalogue::draws_flow;
use cutthrough_sim::outcome::{Drawing, Role};
use cutthrough_sim::staged::experiments;
use cutthrough_sim::trace::Timeline;

#[test]
fn every_line_is_within_its_tolerance() {
    let mut errors = Vec::new();
    for experiment in experiments().into_iter().filter(|experiment| !experiment.id.starts_with('M')) {
        let outcome = (experiment.run)();
        assert!(!outcome.lines.is_empty());
        let drawn = outcome.figures.iter().any(|figure| Timeline::of(figure).is_some());
        assert_eq!(drawn, draws_flow(&experiment), "{}", experiment.id);
        for line in outcome.lines {
            assert!(line.sim.is_finite(), "{line:?}");
            assert_ne!(line.ok, Some(false), "{line:?}");
            if let (Role::Predicted, Some(error)) = (line.role, line.error_pct) {
                errors.push(error.abs());
            }
        }
        for figure in outcome.figures {
            match figure.drawing {
                Drawing::Curves { curves, .. } => assert!(curves.iter().all(|curve| curve.points.len() > 3)),
                Drawing::Bars { bars, .. } => assert!(!bars.is_empty()),
                Drawing::Flow { rows, stripes } => assert!(stripes.iter().all(|stripe| stripe.row < rows.len())),
            }
        }
    }
    errors.sort_by(f64::total_cmp);
    assert!(errors[errors.len() / 2] <= 5.0, "{errors:?}");
}

/// Trapeze's own answer to "no thresholds": on every machine of today the default is near the best fixed pulse.
#[test]
fn the_default_is_near_the_best_fixed_pulse_today() {
    let found = experiments().into_iter().find(|experiment| experiment.id == "M2").unwrap();
    let lines = (found.run)().lines;
    let ratios: Vec<_> = lines.iter().filter(|line| line.unit == "ratio").collect();
    assert!(!ratios.is_empty(), "no ratio was found");
    for line in ratios {
        assert!(line.sim <= 1.1, "{line:?}");
    }
}
