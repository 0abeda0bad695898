//! How one side of a test sends and takes payloads, by where they are kept.

use cutthrough::{Receipt, SendError};

use super::ask::Shape;
use super::lane::{Lane, LaneError};
use super::room::{NoRoom, filled};
use crate::args::Memory;
use crate::output::{tenths, thousandths};
use cutthrough::NoMemory;

/// What the receipts of a test said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    copies: u32,
    pulses_out: u64,
    sent: u64,
    pulses_in: u64,
    read: u64,
    bytes: u64,
    placed: u64,
}

impl Tally {
    /// A payload was sent.
    #[inline]
    pub fn sent(&mut self, receipt: &Receipt) {
        self.copies = self.copies.max(receipt.copies);
        self.pulses_out += u64::from(receipt.pulses);
        self.sent += 1;
    }

    /// A payload was read.
    #[inline]
    pub fn read(&mut self, receipt: &Receipt) {
        self.copies = self.copies.max(receipt.copies);
        self.pulses_in += u64::from(receipt.pulses);
        self.read += 1;
        self.landed(receipt);
    }

    /// A payload has come, and is left where it is.
    #[inline]
    pub const fn landed(&mut self, receipt: &Receipt) {
        self.bytes += receipt.bytes;
        // Not together with the bytes: two numbers that were just stored cannot be loaded as one for a while.
        if receipt.placed > 0 {
            self.placed += receipt.placed;
        }
    }

    /// Adds another tally to this one.
    pub fn add(&mut self, other: &Self) {
        self.copies = self.copies.max(other.copies);
        self.pulses_out += other.pulses_out;
        self.sent += other.sent;
        self.pulses_in += other.pulses_in;
        self.read += other.read;
        self.bytes += other.bytes;
        self.placed += other.placed;
    }

    /// How often a payload was copied at most; none if there was no payload.
    #[must_use]
    pub fn copies(&self) -> Option<u32> {
        (self.sent + self.read > 0).then_some(self.copies)
    }

    /// Which part of the bytes that came lay where they belong without a copy; none if there were none.
    #[must_use]
    pub fn placed_ratio(&self) -> Option<f64> {
        (self.bytes > 0).then(|| thousandths(self.placed as f64 / self.bytes as f64))
    }

    /// Mean number of pulses of one payload, those of its sender and of its reader together, as far as this side saw
    /// either; none if it was not moved in pulses.
    #[must_use]
    pub fn pulses(&self) -> Option<f64> {
        let mean = |pulses: u64, payloads: u64| pulses as f64 / payloads.max(1) as f64;
        let both = mean(self.pulses_out, self.sent) + mean(self.pulses_in, self.read);
        (both > 0.0).then(|| tenths(both))
    }
}

/// One side's payloads: the memory that they leave from and the memory that they arrive in.
#[derive(Debug)]
pub struct Cargo {
    /// What they look like.
    pub shape: Shape,
    from: Vec<u8>,
    into: Vec<u8>,
    /// What the receipts said.
    pub tally: Tally,
}

impl Cargo {
    /// Payloads of this shape; their memory is there from now on.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn new(shape: Shape) -> Result<Self, NoRoom> {
        let memory = |fill: u8, needed: bool| filled(if needed { shape.bytes as usize } else { 0 }, fill);
        let private = shape.memory == Memory::Private;
        Ok(Self {
            shape,
            from: memory(0x5a, shape.memory != Memory::Reference)?,
            into: memory(0xa5, private)?,
            tally: Tally::default(),
        })
    }

    /// Sends one payload with a control message that begins with `op`.
    ///
    /// # Errors
    /// [`LaneError`]; [`SendError::Full`] if the other end is behind.
    #[inline]
    pub fn send(&mut self, lane: &mut Lane, op: u8) -> Result<(), LaneError> {
        let control = [op, 0, 0, 0, 0, 0, 0, 0];
        let sent = if self.shape.memory == Memory::Reference {
            let page = lane.endpoint.page(lane.channel, self.shape.bytes as usize).map_err(full)?;
            lane.endpoint.outgoing(lane.channel)?.write(&control).attach(page).send()
        } else {
            lane.endpoint.outgoing(lane.channel)?.write(&control).attach_copy(&self.from).send()
        };
        self.tally.sent(&sent?);
        Ok(())
    }

    /// Takes the next payload: read into private memory, or left where it is and given back. Returns the first byte of
    /// its control message.
    ///
    /// # Errors
    /// [`LaneError`].
    #[inline]
    pub fn take(&mut self, lane: &mut Lane) -> Result<u8, LaneError> {
        lane.hear_with(|endpoint, mut message| {
            let op = message.control().first().copied().ok_or(LaneError::Unexpected)?;
            if self.shape.memory == Memory::Private {
                let receipt = endpoint.read(&mut message, &mut self.into)?;
                self.tally.read(&receipt);
            } else {
                self.tally.landed(&message.receipt());
                endpoint.release(message);
            }
            Ok(op)
        })
    }
}

/// All pages are on their way: the other end is behind.
fn full(error: NoMemory) -> LaneError {
    match error {
        NoMemory::NoPages => LaneError::Send(SendError::Full),
        error => LaneError::Memory(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(copies: u32, pulses: u32) -> Receipt {
        Receipt { copies, pulses, ..Receipt::default() }
    }

    #[test]
    fn pulses_of_both_ends_add_up() {
        let mut tally = Tally::default();
        assert_eq!((tally.copies(), tally.pulses()), (None, None));
        tally.sent(&receipt(2, 1));
        tally.sent(&receipt(2, 3));
        tally.read(&receipt(2, 8));
        assert_eq!((tally.copies(), tally.pulses()), (Some(2), Some(10.0)));
    }

    #[test]
    fn what_was_placed_is_a_part_of_what_was_read() {
        let mut tally = Tally::default();
        assert_eq!(tally.placed_ratio(), None);
        for placed in [0, 100, 200] {
            tally.read(&Receipt { bytes: 200, placed, ..Receipt::default() });
        }
        let mut all = Tally::default();
        all.add(&tally);
        assert_eq!(all.placed_ratio(), Some(0.5));
    }

    #[test]
    fn a_payload_that_nobody_moved_has_no_pulses() {
        let mut tally = Tally::default();
        tally.sent(&receipt(0, 0));
        assert_eq!((tally.copies(), tally.pulses()), (Some(0), None));
    }
}
