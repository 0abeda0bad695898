//! `perf lat`: half of a round trip of one message at a time.

use super::ask::{Job, LAST, MORE, Shape};
use super::cargo::{Cargo, Tally};
use super::case::Slice;
use super::lane::{Lane, LaneError};
use crate::clock::{Length, round_trips};
use crate::stats::Samples;

/// What the other end does meanwhile.
#[must_use]
pub fn job(shape: Shape) -> Job {
    Job::Echo(shape)
}

/// Measures round trips of this cargo over a lane on which [`job`] has begun.
///
/// # Errors
/// [`LaneError`].
pub fn measure(lane: &mut Lane, cargo: Cargo, length: Length) -> Result<Slice, LaneError> {
    let (samples, tally) = if cargo.shape.is_control() {
        (control(lane, cargo.shape, length)?, Tally::default())
    } else {
        payload(lane, cargo, length)?
    };
    let count = samples.quantiles(1.0).map_or(0, |quantiles| quantiles.count);
    Ok(Slice { samples: Some(samples), count, msgs_per_s: None, tally })
}

fn control(lane: &mut Lane, shape: Shape, length: Length) -> Result<Samples, LaneError> {
    let mut message = vec![MORE; shape.bytes as usize];
    let samples = round_trips(length, lane, |lane| lane.tell(&message), |lane| lane.hear_op().map(drop))?;
    message[0] = LAST;
    lane.tell(&message)?;
    lane.hear_op()?;
    Ok(samples)
}

fn payload(lane: &mut Lane, cargo: Cargo, length: Length) -> Result<(Samples, Tally), LaneError> {
    let mut side = (lane, cargo);
    let hear = |(lane, cargo): &mut (&mut Lane, Cargo)| cargo.take(lane);
    let samples = round_trips(length, &mut side, |(lane, cargo)| cargo.send(lane, MORE), |side| hear(side).map(drop))?;
    side.1.send(side.0, LAST)?;
    hear(&mut side)?;
    Ok((samples, side.1.tally))
}
