//! What reading the clock costs, and round trips measured without that cost.

use std::time::{Duration, Instant};

use crate::stats::{Samples, nanoseconds};

/// The median cost of one reading of the clock, in nanoseconds, measured now.
#[must_use]
pub fn reading_cost() -> u64 {
    const BATCHES: usize = 101;
    const READINGS: u32 = 64;
    let mut costs = [0; BATCHES];
    for cost in &mut costs {
        let start = Instant::now();
        for _ in 0..READINGS {
            std::hint::black_box(Instant::now());
        }
        *cost = nanoseconds(start.elapsed()) / u64::from(READINGS);
    }
    costs.sort_unstable();
    costs[BATCHES / 2]
}

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Span {
    /// For this long.
    Time(Duration),
    /// So many messages or operations.
    Count(u64),
}

impl Span {
    /// A tenth of it, one message at least.
    #[must_use]
    pub fn tenth(self) -> Self {
        match self {
            Self::Time(time) => Self::Time(time / 10),
            Self::Count(count) => Self::Count((count / 10).max(1)),
        }
    }

    /// It without its last message, which is sent apart; a time stays as it is.
    #[must_use]
    pub fn but_last(self) -> Self {
        match self {
            Self::Time(time) => Self::Time(time),
            Self::Count(count) => Self::Count(count.saturating_sub(1)),
        }
    }

    /// The part of it that comes to each of `parts`; one message at least.
    #[must_use]
    pub fn part(self, parts: u32) -> Self {
        match self {
            Self::Time(time) => Self::Time(time / parts),
            Self::Count(count) => Self::Count((count / u64::from(parts)).max(1)),
        }
    }

    /// Whether it is over, `passed` after its beginning and `count` messages later.
    #[must_use]
    pub fn over(self, passed: Duration, count: u64) -> bool {
        match self {
            Self::Time(time) => passed >= time,
            Self::Count(most) => count >= most,
        }
    }
}

/// How much to measure, and what comes before it unrecorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Length {
    /// Unrecorded, so that caches are warm and sizes have settled.
    pub warmup: Span,
    /// Recorded.
    pub measure: Span,
}

impl Length {
    /// This much, of which the first tenth is unrecorded if it is a time.
    #[must_use]
    pub fn of(time: Duration) -> Self {
        let warmup = time / 10;
        Self { warmup: Span::Time(warmup), measure: Span::Time(time - warmup) }
    }
}

impl Length {
    /// The part of it that comes to each of `parts`.
    #[must_use]
    pub fn part(self, parts: u32) -> Self {
        Self { warmup: self.warmup.part(parts), measure: self.measure.part(parts) }
    }

    /// It in rounds: `most` of them, or fewer if a round were to count fewer than `least` messages. What is counted is
    /// divided among them; each has its part of the warm-up, a message at least if there is any.
    #[must_use]
    pub fn rounds(self, most: u32, least: u64) -> Vec<Self> {
        let rounds = match self.measure {
            Span::Time(_) => most,
            Span::Count(count) => u32::try_from(count / least.max(1)).map_or(most, |rounds| rounds.clamp(1, most)),
        };
        let warmup = match self.warmup {
            Span::Time(time) => Span::Time(time / rounds),
            Span::Count(count) => Span::Count(count.div_ceil(rounds.into())),
        };
        let measure = |at| match self.measure {
            Span::Time(time) => Span::Time(time / rounds),
            Span::Count(count) => Span::Count(share_of(count, at, rounds)),
        };
        (0..rounds).map(|at| Self { warmup, measure: measure(at) }).collect()
    }

    /// What each of some threads measures that do so at the same time: all take as long, or share what is counted.
    /// There are no threads without anything to be counted.
    pub fn shares(self, threads: u32) -> impl Iterator<Item = Self> {
        let share = move |span: Span, at: u32| match span {
            Span::Time(time) => Span::Time(time),
            Span::Count(count) => Span::Count(share_of(count, at, threads)),
        };
        (0..threads)
            .map(move |at| Self { warmup: share(self.warmup, at), measure: share(self.measure, at) })
            .filter(|length| length.measure != Span::Count(0))
    }
}

/// What the one `at` this place has of a number that so many divide among them.
fn share_of(count: u64, at: u32, among: u32) -> u64 {
    let (among, at) = (u64::from(among.max(1)), u64::from(at));
    count / among + u64::from(at < count % among)
}

/// How far a measurement has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Warming up.
    Warm,
    /// What happens now is recorded.
    Measure,
    /// Enough was recorded.
    Over,
}

/// Follows a measurement from its warm-up to its end.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    length: Length,
    phase: Phase,
    since: Instant,
    count: u64,
}

impl Pace {
    /// A measurement that begins at `now`.
    #[must_use]
    pub fn new(length: Length, now: Instant) -> Self {
        let phase = if length.warmup.over(Duration::ZERO, 0) { Phase::Measure } else { Phase::Warm };
        Self { length, phase, since: now, count: 0 }
    }

    /// How far it is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Messages until the present phase is over, as far as it depends on them.
    #[must_use]
    pub fn left(&self) -> u64 {
        match if self.phase == Phase::Warm { self.length.warmup } else { self.length.measure } {
            Span::Time(_) => u64::MAX,
            Span::Count(count) => count.saturating_sub(self.count),
        }
    }

    /// When the present phase began.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Messages of the present phase.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// `messages` more were done by `now`: the phase that they belong to.
    #[inline]
    pub fn tick(&mut self, now: Instant, messages: u64) -> Phase {
        let phase = self.phase;
        self.count += messages;
        let span = if phase == Phase::Warm { self.length.warmup } else { self.length.measure };
        if phase != Phase::Over && span.over(now - self.since, self.count) {
            self.next(now);
        }
        phase
    }

    fn next(&mut self, now: Instant) {
        if self.phase == Phase::Warm {
            (self.phase, self.since, self.count) = (Phase::Measure, now, 0);
        } else {
            self.phase = Phase::Over;
        }
    }
}

/// Measures round trips: `send` starts one, `receive` returns when its answer is there; both get `side`.
///
/// A sample is the time from one send to the next. The clock is read, and the sample stored, while the message travels,
/// so neither adds to what is measured, unless both sides share a core or a round trip is shorter than that.
///
/// # Errors
/// The first error of `send` or `receive`.
pub fn round_trips<S, E>(
    length: Length,
    side: &mut S,
    mut send: impl FnMut(&mut S) -> Result<(), E>,
    mut receive: impl FnMut(&mut S) -> Result<(), E>,
) -> Result<Samples, E> {
    let mut samples = Samples::new();
    let mut pace = Pace::new(length, Instant::now());
    send(side)?;
    let mut last = Instant::now();
    loop {
        receive(side)?;
        if pace.phase() == Phase::Over {
            return Ok(samples);
        }
        send(side)?;
        let now = Instant::now();
        if pace.tick(now, 1) == Phase::Measure {
            samples.record(nanoseconds(now - last));
        }
        last = now;
    }
}

/// Measures operations that leave no time to read the clock meanwhile, one by one; its cost is taken off.
///
/// # Errors
/// The first error of `work`.
pub fn operations<S, E>(
    length: Length,
    side: &mut S,
    mut work: impl FnMut(&mut S) -> Result<(), E>,
) -> Result<Samples, E> {
    let cost = reading_cost();
    let mut samples = Samples::new();
    let mut pace = Pace::new(length, Instant::now());
    while pace.phase() != Phase::Over {
        let start = Instant::now();
        work(side)?;
        let now = Instant::now();
        if pace.tick(now, 1) == Phase::Measure {
            samples.record(nanoseconds(now - start).saturating_sub(cost));
        }
    }
    Ok(samples)
}

/// The same for operations that are awaited: each takes as long as others keep its task waiting, too. `record` gets how
/// long each has taken, the cost of the clock included: to measure that here would keep others waiting.
///
/// # Errors
/// The first error of `work`.
pub async fn operations_awaited<E>(
    length: Length,
    work: impl AsyncFn() -> Result<(), E>,
    mut record: impl FnMut(u64),
) -> Result<(), E> {
    let mut pace = Pace::new(length, Instant::now());
    while pace.phase() != Phase::Over {
        let start = Instant::now();
        work().await?;
        let now = Instant::now();
        if pace.tick(now, 1) == Phase::Measure {
            record(nanoseconds(now - start));
        }
    }
    Ok(())
}

/// Measures batches of `work` for a time, the first tenth of it unrecorded as warm-up. Each sample is one batch, the
/// clock's own cost taken off; divide by `batch` to get one piece of work.
#[must_use]
pub fn batches(duration: Duration, batch: u32, mut work: impl FnMut()) -> Samples {
    let cost = reading_cost();
    let mut samples = Samples::new();
    let begin = Instant::now();
    let warm = begin + duration / 10;
    let end = begin + duration;
    loop {
        let start = Instant::now();
        for _ in 0..batch {
            work();
        }
        let now = Instant::now();
        if now > warm {
            samples.record(nanoseconds(now - start).saturating_sub(cost));
        }
        if now >= end {
            return samples;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_trip_is_one_send_and_one_receive() {
        let mut counts = (0_u64, 0_u64);
        let send = |counts: &mut (u64, u64)| {
            counts.0 += 1;
            Ok::<(), ()>(())
        };
        let receive = |counts: &mut (u64, u64)| {
            counts.1 += 1;
            Ok(())
        };
        let samples = round_trips(Length::of(Duration::from_millis(5)), &mut counts, send, receive);
        let recorded = samples.expect("no error was made").quantiles(1.0).expect("some were recorded").count;
        assert_eq!(counts.0, counts.1);
        assert!((1..=counts.0).contains(&recorded));
    }

    #[test]
    fn a_count_is_kept_to_the_message() {
        let length = Length { warmup: Span::Count(3), measure: Span::Count(7) };
        let mut sent = 0;
        let send = |sent: &mut u64| {
            *sent += 1;
            Ok::<(), ()>(())
        };
        let samples = round_trips(length, &mut sent, send, |_| Ok(())).expect("no error was made");
        assert_eq!(samples.quantiles(1.0).map(|quantiles| quantiles.count), Some(7));
        assert_eq!(sent, 11);
    }

    #[test]
    fn operations_are_counted_and_end_with_an_error() {
        let length = Length { warmup: Span::Count(3), measure: Span::Count(7) };
        let mut done = 0;
        let work = |done: &mut u64| {
            *done += 1;
            Ok::<(), ()>(())
        };
        let samples = operations(length, &mut done, work).expect("no error was made");
        assert_eq!((samples.quantiles(1.0).map(|quantiles| quantiles.count), done), (Some(7), 10));
        assert_eq!(operations(length, &mut done, |_| Err("broken")).err(), Some("broken"));
    }

    #[test]
    fn threads_share_what_is_counted_and_take_as_long() {
        let length = Length { warmup: Span::Count(1), measure: Span::Count(7) };
        let shares: Vec<_> = length.shares(3).map(|share| (share.warmup, share.measure)).collect();
        let count = Span::Count;
        assert_eq!(shares, [(count(1), count(3)), (count(0), count(2)), (count(0), count(2))]);
        assert_eq!(length.shares(9).count(), 7);
        let time = Length::of(Duration::from_secs(1));
        assert_eq!(time.shares(2).collect::<Vec<_>>(), [time, time]);
    }

    #[test]
    fn rounds_measure_all_that_is_counted() {
        let count = |warmup, measure| Length { warmup: Span::Count(warmup), measure: Span::Count(measure) };
        let rounds = |length: Length| length.rounds(5, 10);
        assert_eq!(rounds(count(7, 52)), [count(2, 11), count(2, 11), count(2, 10), count(2, 10), count(2, 10)]);
        assert_eq!(rounds(count(0, 29)), [count(0, 15), count(0, 14)]);
        assert_eq!(rounds(count(1, 3)), [count(1, 3)]);
        let time = Duration::from_secs(1);
        let [timed, fifth] = [time, time / 5].map(|time| Length { warmup: Span::Count(3), measure: Span::Time(time) });
        assert_eq!(rounds(timed), [Length { warmup: Span::Count(1), ..fifth }; 5]);
    }

    #[test]
    fn an_error_ends_the_measurement() {
        let length = Length::of(Duration::from_secs(3600));
        assert_eq!(round_trips(length, &mut (), |()| Err("broken"), |()| Ok(())).err(), Some("broken"));
    }

    #[test]
    fn no_warm_up_begins_with_the_measurement() {
        let length = Length { warmup: Span::Count(0), measure: Span::Count(1) };
        let mut pace = Pace::new(length, Instant::now());
        assert_eq!(pace.tick(Instant::now(), 1), Phase::Measure);
        assert_eq!(pace.phase(), Phase::Over);
    }

    #[test]
    fn batches_end_even_if_one_takes_longer_than_the_time() {
        let samples = batches(Duration::from_millis(1), 1, || {
            std::thread::sleep(Duration::from_millis(2));
        });
        let slept = samples.quantiles(1.0).expect("one batch was recorded");
        assert!(slept.min_ns >= 1e6);
    }
}
