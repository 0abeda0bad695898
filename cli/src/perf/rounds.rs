//! A case and what it is held against in turn, round by round. Machines drift: what is measured one after the other has
//! been measured on the same machine.

use std::time::{Duration, Instant};

use super::cargo::Tally;
use super::case::{Case, Rig, Slice};
use super::floor::{Floor, LIMIT, LONG};
use super::held::{Against, Held};
use super::limits::Unavailable;
use super::loss::{self, Frames, Loss, Lossy};
use super::others::Others;
use super::peer::Peer;
use crate::clock::{Length, Span};
use crate::failure::Failure;
use crate::stats::{Quantiles, Samples, median};

/// Slices of a limit at least, however few the rounds are: what is in the middle counts, so that one during which the
/// machine did something else is none.
const SLICES: u32 = 3;

/// What measures: both ends, the limits, and what loses frames if they are to be lost.
#[derive(Debug)]
pub struct Bench<'a> {
    /// The other end.
    pub peer: Peer,
    /// The core of this end.
    pub core: usize,
    /// The limits of the way between both.
    pub floor: Floor<'a>,
    /// What loses frames of a case, if some are to be lost, and how many.
    pub lossy: Option<Lossy>,
    /// See there.
    pub loss: Option<Loss>,
}

/// A case and what was measured of it.
#[derive(Debug)]
pub struct Measured {
    /// The case.
    pub case: Case,
    slices: Vec<Slice>,
    limit: Against,
    cipher: Against,
    /// What crossed the pair meanwhile, if frames of it were to be lost.
    pub lost: Option<(Loss, Frames)>,
    /// Which share of the cores' time other work had meanwhile, if that is known.
    pub others: Option<f64>,
}

impl Bench<'_> {
    /// Measures a case over a lane of its own, and its limits, which are measured without loss. Who goes first changes
    /// from round to round.
    ///
    /// # Errors
    /// If the other end goes away.
    pub fn measure(&mut self, case: &Case) -> Result<Measured, Failure> {
        let (limit, cipher) = (Against::new(self.floor.bar(case)), Against::new(Ok(self.floor.cipher(case))));
        let mut measured = Measured { case: case.clone(), slices: Vec::new(), limit, cipher, lost: None, others: None };
        let others = Others::watch(&mut self.peer)?;
        let (lengths, mut spent) = (case.rounds(), Duration::ZERO);
        let rounds = u32::try_from(lengths.len()).unwrap_or(u32::MAX);
        let mut rig = None;
        for (round, length) in lengths.iter().enumerate() {
            if round > 0 && !goes_on(spent, case.length) {
                break;
            }
            if round % 2 == 0 {
                self.limits(&mut measured, rounds, &mut rig)?;
            }
            let mut open = match rig.take() {
                Some(open) => open,
                None => Rig::open(&mut self.peer, case.clone())?,
            };
            let begun = Instant::now();
            self.slice(&mut measured, &mut open, *length)?;
            spent += begun.elapsed();
            rig = Some(open);
            if round % 2 == 1 {
                self.limits(&mut measured, rounds, &mut rig)?;
            }
        }
        rig.map_or(Ok(()), |rig| rig.close(&mut self.peer))?;
        measured.others = others.share(&mut self.peer)?;
        Ok(measured)
    }

    fn slice(&mut self, measured: &mut Measured, rig: &mut Rig, length: Length) -> Result<(), Failure> {
        let run = || rig.measure_as(&mut self.peer, self.core, measured.case.test, length);
        let (slice, lost) = loss::during(self.lossy.as_ref(), self.loss, run)?;
        measured.slices.push(slice);
        match (&mut measured.lost, lost) {
            (Some((_, frames)), Some((_, more))) => frames.add(more),
            (all, lost) => *all = lost,
        }
        Ok(())
    }

    /// Measures what the case is held against, in one of so many rounds. Its lane is closed first if it has to be.
    fn limits(&mut self, measured: &mut Measured, rounds: u32, rig: &mut Option<Rig>) -> Result<(), Failure> {
        if measured.limit.is_something() && self.floor.is_alone() {
            rig.take().map_or(Ok(()), |rig| rig.close(&mut self.peer))?;
        }
        let slices = SLICES.div_ceil(rounds);
        let time = LIMIT / (slices * rounds);
        for against in [&mut measured.limit, &mut measured.cipher] {
            against.round(&mut self.floor, &mut self.peer, slices, time)?;
        }
        Ok(())
    }

    /// Closes what was opened for limits.
    ///
    /// # Errors
    /// If the other end has gone.
    pub fn close(mut self) -> Result<(), Failure> {
        self.floor.close(&mut self.peer)
    }
}

/// Whether there is another round: messages that are counted are all measured, and a time is exceeded twice at most
/// where a single message takes longer than its part of it, or the machine has other work.
fn goes_on(spent: Duration, asked: Length) -> bool {
    let time = |span| if let Span::Time(time) = span { Some(time) } else { None };
    time(asked.measure).is_none_or(|measure| {
        let whole = measure + time(asked.warmup).unwrap_or_default();
        spent < 2 * whole.max(LONG)
    })
}

impl Measured {
    /// The one number that tells: the median time of all rounds, or the median of their rates.
    #[must_use]
    pub fn figure(&self) -> Option<f64> {
        if self.case.test.is_time() {
            return self.quantiles().map(|quantiles| quantiles.p50_ns);
        }
        median(&self.figures().into_iter().flatten().collect::<Vec<_>>())
    }

    /// The figure of each round.
    fn figures(&self) -> Vec<Option<f64>> {
        self.slices.iter().map(|slice| slice.figure(self.case.test)).collect()
    }

    /// The percentiles of the times of all rounds together, if times were measured.
    #[must_use]
    pub fn quantiles(&self) -> Option<Quantiles> {
        pooled(&self.slices)?.quantiles(self.case.test.ways())
    }

    /// What all receipts said.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        self.slices.iter().for_each(|slice| tally.add(&slice.tally));
        tally
    }

    /// Messages or whole operations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.slices.iter().map(|slice| slice.count).sum()
    }

    /// How many rounds there were.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        u32::try_from(self.slices.len()).unwrap_or(u32::MAX)
    }

    /// What it is held against. None if there is no such limit.
    ///
    /// # Errors
    /// Why this machine could not show the limit.
    pub fn held(&self) -> Result<Option<Held>, Unavailable> {
        self.limit.held(&self.figures())
    }

    /// As [`Measured::held`], against the cipher that seals it.
    ///
    /// # Errors
    /// As [`Measured::held`].
    pub fn cipher(&self) -> Result<Option<Held>, Unavailable> {
        self.cipher.held(&self.figures())
    }
}

/// The times of all slices together; none of streams.
fn pooled(slices: &[Slice]) -> Option<Samples> {
    slices.iter().filter_map(|slice| slice.samples.as_ref()).fold(None, |all, samples| {
        let mut all = all.unwrap_or_default();
        Samples::add(&mut all, samples);
        Some(all)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Measure, Memory};
    use crate::perf::ask::Shape;
    use crate::perf::case::Test;

    fn measured(test: Test, slices: Vec<Slice>) -> Measured {
        let mut case = Case::all(test, &Measure::default()).expect("good options").remove(0);
        case.shape = Shape { memory: Memory::Private, bytes: 64 };
        let [limit, cipher] = [(); 2].map(|()| Against::new(Ok(None)));
        Measured { case, slices, limit, cipher, lost: None, others: None }
    }

    fn times(ns: &[u64]) -> Slice {
        let mut samples = Samples::new();
        ns.iter().for_each(|ns| samples.record(*ns));
        Slice { samples: Some(samples), count: ns.len() as u64, msgs_per_s: None, tally: Tally::default() }
    }

    fn stream(msgs_per_s: f64) -> Slice {
        Slice { samples: None, count: 7, msgs_per_s: Some(msgs_per_s), tally: Tally::default() }
    }

    #[test]
    fn times_of_all_rounds_are_one_lot_and_of_rates_the_median_counts() {
        let result = measured(Test::Fetch, vec![times(&[100, 200, 300]), times(&[400]), times(&[500])]);
        let quantiles = result.quantiles().expect("times");
        assert_eq!((quantiles.min_ns, quantiles.p50_ns, quantiles.p99_ns, quantiles.count), (100.0, 300.0, 500.0, 5));
        assert_eq!((result.figure(), result.count(), result.rounds()), (Some(300.0), 5, 3));
        assert_eq!(result.figures(), [Some(200.0), Some(400.0), Some(500.0)]);
        // Half of a round trip.
        assert_eq!(measured(Test::Lat, vec![times(&[100])]).figure(), Some(50.0));

        let result = measured(Test::Bw, [5e6, 1e6, 2e6].map(stream).into());
        assert_eq!((result.figure(), result.quantiles(), result.count()), (Some(2e6), None, 21));
    }

    #[test]
    fn a_time_is_not_exceeded_by_far_and_what_is_counted_is_all_measured() {
        let seconds = Duration::from_secs;
        let timed = |time| Length { warmup: Span::Time(time / 10), measure: Span::Time(time) };
        let short = timed(Duration::from_millis(10));
        assert!(goes_on(LONG, short) && !goes_on(2 * LONG, short));
        assert!(goes_on(seconds(21), timed(seconds(10))) && !goes_on(seconds(22), timed(seconds(10))));
        let counted = Length { warmup: Span::Count(1), measure: Span::Count(50) };
        assert!(goes_on(seconds(1000), counted));
    }
}
