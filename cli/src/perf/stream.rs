//! `perf bw` and `perf rate`: messages one after the other, as fast as the other end takes them.

use std::time::Instant;

use cutthrough::SendError;

use super::ask::{Job, LAST, MORE, Shape};
use super::cargo::Cargo;
use super::case::{Slice, window};
use super::lane::{Lane, LaneError};
use crate::args::Memory;
use crate::clock::{Length, Pace, Phase};

/// Messages between two confirmations where nobody waits for them.
const CONFIRM_EVERY: u32 = 1 << 14;

/// Bytes after which the clock is read and it is looked for a confirmation, about as many as the stream has between two
/// looks that a network is held against; and the messages that are at most.
const BYTES_PER_LOOK: u32 = 256 << 10;
const MESSAGES_PER_LOOK: u32 = 256;

/// What the other end does meanwhile. Where payloads land in posted pages, it confirms after half of them, so that
/// there is always one for the next payload.
#[must_use]
pub fn job(shape: Shape) -> Job {
    let confirm_every = if shape.memory == Memory::Pool { window(shape) / 2 } else { CONFIRM_EVERY };
    Job::Sink { shape, confirm_every }
}

/// Sends this cargo, again and again, over a lane on which [`job`] has begun. The time that counts ends when the other
/// end has confirmed the last of them.
///
/// # Errors
/// [`LaneError`].
pub fn measure(lane: &mut Lane, cargo: Cargo, length: Length) -> Result<Slice, LaneError> {
    let shape = cargo.shape;
    let mut sender = Sender {
        shape,
        control: vec![MORE; if shape.is_control() { shape.bytes as usize } else { 0 }],
        cargo,
        sent: 0,
        taken: 0,
        window: if shape.memory == Memory::Pool { u64::from(window(shape)) } else { u64::MAX },
    };
    let per_look = (BYTES_PER_LOOK / shape.bytes).clamp(1, MESSAGES_PER_LOOK);
    let mut pace = Pace::new(Length { measure: length.measure.but_last(), ..length }, Instant::now());
    while pace.phase() != Phase::Over {
        let messages = u64::from(per_look).min(pace.left());
        for _ in 0..messages {
            sender.send(lane, MORE)?;
        }
        sender.look(lane)?;
        pace.tick(Instant::now(), messages);
    }
    sender.send(lane, LAST)?;
    while sender.taken < sender.sent {
        sender.look(lane)?;
    }
    let count = pace.count() + 1;
    let msgs_per_s = count as f64 / pace.since().elapsed().as_secs_f64();
    Ok(Slice { samples: None, count, msgs_per_s: Some(msgs_per_s), tally: sender.cargo.tally })
}

/// The sending side of a stream.
struct Sender {
    shape: Shape,
    control: Vec<u8>,
    cargo: Cargo,
    sent: u64,
    taken: u64,
    window: u64,
}

impl Sender {
    /// Sends one message; waits while the other end is behind.
    #[inline]
    fn send(&mut self, lane: &mut Lane, op: u8) -> Result<(), LaneError> {
        while self.sent - self.taken >= self.window {
            self.look(lane)?;
        }
        loop {
            match self.try_send(lane, op) {
                Ok(()) => break,
                Err(LaneError::Send(SendError::Full)) => self.look(lane)?,
                Err(error) => return Err(error),
            }
        }
        self.sent += 1;
        Ok(())
    }

    #[inline]
    fn try_send(&mut self, lane: &mut Lane, op: u8) -> Result<(), LaneError> {
        if !self.shape.is_control() {
            return self.cargo.send(lane, op);
        }
        self.control[0] = op;
        lane.tell(&self.control)
    }

    /// Looks for a confirmation.
    #[inline]
    fn look(&mut self, lane: &mut Lane) -> Result<(), LaneError> {
        if let Some(taken) = lane.look()? {
            self.taken = taken;
        }
        Ok(())
    }
}
