//! The overlapping stages of one message, drawn for several policies under each other on one time scale.
//!
//! [`text`] draws them in a terminal, [`svg`] into a picture. Both take the same numbers from here.

pub mod svg;
pub mod text;

#[cfg(test)]
mod model;

/// One unbroken move of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// When it began, in nanoseconds on the clock of its run.
    pub start_ns: u64,
    /// When it ended; never before it began.
    pub end_ns: u64,
    /// What it moved.
    pub bytes: u64,
}

/// What one stage did for one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageSpan {
    /// The stage's name for people, such as `copy in`.
    pub stage: String,
    /// Its pulses in the order of time.
    pub pulses: Vec<Pulse>,
}

/// One message sent under one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The policy, as on the command line.
    pub policy: String,
    /// The stages in the order of travel. All use one clock.
    pub stages: Vec<StageSpan>,
}

/// Several runs of one message, the first of which the others are compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// What is drawn, such as `One 1 MiB message, private memory to private memory`.
    pub title: String,
    /// The runs from top to bottom.
    pub runs: Vec<Run>,
}

impl Run {
    fn pulses(&self) -> impl Iterator<Item = &Pulse> {
        self.stages.iter().flat_map(|stage| &stage.pulses)
    }

    /// When the first pulse of any stage began.
    fn begin_ns(&self) -> u64 {
        self.pulses().map(|pulse| pulse.start_ns).min().unwrap_or_default()
    }

    /// From the first byte that leaves to the last that arrives, in nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        let end = self.pulses().map(|pulse| pulse.end_ns).max().unwrap_or_default();
        end.saturating_sub(self.begin_ns())
    }

    /// The part of the total during which two or more stages moved at once, 0 to 1.
    #[must_use]
    pub fn overlap(&self) -> f64 {
        let mut edges: Vec<(u64, i32)> =
            self.pulses().flat_map(|pulse| [(pulse.start_ns, 1), (pulse.end_ns, -1)]).collect();
        edges.sort_unstable();
        let (mut moving, mut since, mut overlapped) = (0, 0, 0);
        for (now, change) in edges {
            if moving >= 2 {
                overlapped += now - since;
            }
            moving += change;
            since = now;
        }
        overlapped as f64 / self.total_ns().max(1) as f64
    }
}

impl Timeline {
    /// The length of the common time scale in nanoseconds: the longest run. Never 0.
    #[must_use]
    pub fn span_ns(&self) -> u64 {
        self.runs.iter().map(Run::total_ns).max().unwrap_or_default().max(1)
    }

    /// The total of a run over the total of the first run; none for the first itself.
    #[must_use]
    pub fn ratio(&self, index: usize) -> Option<f64> {
        let first = self.runs.first()?.total_ns();
        let run = self.runs.get(index)?;
        (index > 0 && first > 0).then(|| run.total_ns() as f64 / first as f64)
    }
}

/// A bar on the scale: from and to, in the units of the drawing.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bar {
    from: f64,
    to: f64,
}

/// The time scale of a drawing: `width` units for `span_ns`, beginning at `begin_ns`.
#[derive(Clone, Copy, Debug)]
struct Scale {
    begin_ns: u64,
    span_ns: u64,
    width: f64,
}

impl Scale {
    /// Where a time lies.
    fn at(&self, ns: u64) -> f64 {
        ns.saturating_sub(self.begin_ns) as f64 / self.span_ns as f64 * self.width
    }

    /// The pulses as bars. Neighbours run together if one of them is narrower than `narrowest` and the gap between them
    /// is too, so that a thousand pulses make no more bars than can be told apart.
    fn bars(&self, pulses: &[Pulse], narrowest: f64) -> Vec<Bar> {
        let mut bars: Vec<Bar> = Vec::new();
        for pulse in pulses {
            let bar = Bar { from: self.at(pulse.start_ns), to: self.at(pulse.end_ns) };
            match bars.last_mut() {
                Some(last) if bar.from - last.to < narrowest && narrow(*last, bar, narrowest) => {
                    last.to = last.to.max(bar.to);
                }
                _ => bars.push(bar),
            }
        }
        bars
    }
}

fn narrow(a: Bar, b: Bar, narrowest: f64) -> bool {
    (a.to - a.from).min(b.to - b.from) < narrowest
}

/// Times for the marks of a scale from 0 to `span_ns`: steps of 1, 2 or 5 times a power of ten, `most` steps at most.
fn ticks(span_ns: u64, most: usize) -> Vec<u64> {
    let most = most.max(1) as u64;
    let steps =
        (0..).map(|power| 10_u64.saturating_pow(power)).flat_map(|ten| [1, 2, 5].map(|n| ten.saturating_mul(n)));
    let step = steps.into_iter().find(|step| span_ns / step <= most).unwrap_or(u64::MAX);
    (0..=span_ns / step).map(|index| index * step).collect()
}

/// The unit that a scale of this length is labelled in, and its nanoseconds.
fn unit(span_ns: u64) -> (&'static str, u64) {
    match span_ns {
        0..2_000 => ("ns", 1),
        2_000..2_000_000 => ("us", 1_000),
        _ => ("ms", 1_000_000),
    }
}

/// A mark in that unit, without useless zeros.
fn tick_label(ns: u64, unit_ns: u64) -> String {
    format!("{}", ns as f64 / unit_ns as f64)
}

/// How many pulses, for people.
fn pulse_count(count: usize) -> String {
    if count == 1 { "1 pulse".into() } else { format!("{count} pulses") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pulse(start_ns: u64, end_ns: u64) -> Pulse {
        Pulse { start_ns, end_ns, bytes: 1 }
    }

    fn run(stages: &[&[Pulse]]) -> Run {
        let stage = |pulses: &&[Pulse]| StageSpan { stage: "stage".into(), pulses: pulses.to_vec() };
        Run { policy: "policy".into(), stages: stages.iter().map(stage).collect() }
    }

    #[test]
    fn the_total_is_from_first_to_last() {
        assert_eq!(run(&[&[pulse(100, 150)], &[pulse(140, 220)]]).total_ns(), 120);
        assert_eq!(run(&[]).total_ns(), 0);
    }

    #[test]
    fn overlap_is_the_share_of_time_with_two_stages_moving() {
        assert_eq!(run(&[&[pulse(0, 50)], &[pulse(50, 100)]]).overlap(), 0.0);
        assert_eq!(run(&[&[pulse(0, 60)], &[pulse(40, 100)]]).overlap(), 0.2);
        assert_eq!(run(&[&[pulse(0, 100)], &[pulse(0, 100)]]).overlap(), 1.0);
        assert_eq!(run(&[]).overlap(), 0.0);
    }

    #[test]
    fn all_runs_share_the_scale_of_the_longest() {
        let timeline =
            Timeline { title: String::new(), runs: vec![run(&[&[pulse(1000, 1100)]]), run(&[&[pulse(0, 60)]])] };
        assert_eq!(timeline.span_ns(), 100);
        assert_eq!(timeline.ratio(0), None);
        assert_eq!(timeline.ratio(1), Some(0.6));
        assert_eq!(timeline.ratio(2), None);
    }

    #[test]
    fn a_run_without_pulses_can_be_drawn() {
        let timeline = Timeline { title: "none".into(), runs: vec![run(&[&[]]), run(&[])] };
        assert_eq!(timeline.span_ns(), 1);
        assert!(text::draw(&timeline, 60).contains("none"));
        assert!(svg::draw(&timeline).contains("none"));
    }

    #[test]
    fn bars_lie_on_the_scale() {
        let scale = Scale { begin_ns: 1000, span_ns: 100, width: 200.0 };
        let bars = scale.bars(&[pulse(1000, 1025), pulse(1050, 1100)], 1.0);
        assert_eq!(bars, [Bar { from: 0.0, to: 50.0 }, Bar { from: 100.0, to: 200.0 }]);
    }

    #[test]
    fn narrow_neighbours_run_together_and_wide_ones_do_not() {
        let scale = Scale { begin_ns: 0, span_ns: 1000, width: 100.0 };
        let many: Vec<Pulse> = (0..100).map(|n| pulse(n * 10, n * 10 + 10)).collect();
        assert_eq!(scale.bars(&many, 2.0), [Bar { from: 0.0, to: 100.0 }]);
        assert_eq!(scale.bars(&many, 0.5).len(), 100);
        let apart = [pulse(0, 10), pulse(500, 510)];
        assert_eq!(scale.bars(&apart, 2.0).len(), 2);
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(65_000, 8), [0, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000]);
        assert_eq!(ticks(900, 5), [0, 200, 400, 600, 800]);
        assert_eq!(ticks(1, 8), [0, 1]);
        for span in [1, 7, 999, 123_456, u64::MAX] {
            let marks = ticks(span, 6);
            assert!(marks.len() <= 7 && marks.iter().all(|&mark| mark <= span), "{span}: {marks:?}");
        }
    }

    #[test]
    fn labels_have_no_useless_zeros() {
        assert_eq!(tick_label(10_000, 1000), "10");
        assert_eq!(tick_label(2_500, 1000), "2.5");
        assert_eq!(unit(65_000), ("us", 1000));
        assert_eq!(unit(500), ("ns", 1));
    }
}
