//! Payloads out: to where the reader says.

use cutthrough_engine::receipt::{Path, Receipt};
use cutthrough_engine::time::Instant;
use cutthrough_engine::transfer::Trace;

use super::Node;
use crate::clock;
use crate::incoming::{Channel, Incoming, Payload};
use crate::shm::link::{CloseReason, SendError};
use crate::shm::receive::{Read, ReadError};
use crate::stall::Stall;

impl Node {
    /// Gives back what a message still holds: pages go to where they came from at the next poll.
    pub fn release(&mut self, mut message: Incoming) {
        // Who waits for the endpoint's descriptor is woken by what is dropped, and not by this.
        if self.armed {
            return;
        }
        let channel = message.channel();
        if matches!(message.payload(), Payload::Landed(_))
            && let Ok((link, ..)) = self.link_to_wait(channel)
        {
            link.release(message.take_cargo());
            self.warm(channel);
        }
    }

    /// Copies a message's payload into private memory, which must be at least as long: by `Link::read` if it is still
    /// arriving.
    ///
    /// # Errors
    /// [`ReadError`]; then what `into` holds is of no use.
    pub fn read(
        &mut self,
        message: &mut Incoming,
        into: &mut [u8],
        trace: &mut impl Trace,
    ) -> Result<Receipt, ReadError> {
        let channel = message.channel();
        if let Some(arrived) = message.cargo_mut()
            && let Payload::Arriving(arriving) = &mut arrived.payload
            && let Ok((link, stat)) = self.link(channel)
            && let Some(Read { valid, pulses, .. }) = link.read_whole(arriving, into, trace, stat)
        {
            // To be armed again, which tells the sender how far this side is.
            if link.disarm() {
                self.awake.push(channel.index as usize);
            }
            arrived.receipt.pulses = pulses;
            arrived.payload = Payload::None;
            // Put together, not copied: what was stored in parts cannot be loaded as a whole for a while.
            let receipt = Receipt { pulses, ..Receipt::moved(Path::CutThrough, valid as u64) };
            debug_assert_eq!(receipt, arrived.receipt, "the message tells the same");
            return Ok(receipt);
        }
        let wired = self.is_wire(channel);
        let Some(arrived) = message.cargo_mut() else {
            return if into.is_empty() { Ok(message.receipt()) } else { Err(ReadError::Nothing) };
        };
        let len = usize::try_from(arrived.receipt.bytes).unwrap_or(usize::MAX);
        let into = into.get_mut(..len).ok_or(ReadError::TooSmall(len))?;
        // Changed here and written back as a whole: what is stored in parts cannot be loaded as a whole for a while.
        let mut receipt = arrived.receipt;
        if receipt.started == Instant::default() {
            receipt.started = clock::timed(receipt.bytes);
        }
        match &mut arrived.payload {
            // None of none: who asks for what is there need not know that nothing is.
            Payload::None if into.is_empty() => {}
            Payload::None | Payload::Dropped(_) => return Err(ReadError::Nothing),
            Payload::Landed(landed) => {
                landed.read_at(0, into);
                receipt.copies = receipt.copies.saturating_add(1);
            }
            Payload::Buffer(buffer) => {
                into.copy_from_slice(buffer);
                receipt.copies = receipt.copies.saturating_add(1);
            }
            Payload::Arriving(arriving) => {
                if !self.left.read((channel, &mut *arriving), into, &mut receipt, &self.stat) {
                    if wired {
                        return self.read_net(message, into);
                    }
                    let (link, _, stat) = self.link_to_wait(channel).map_err(unreadable)?;
                    let read = link.read(arriving, into, trace, stat);
                    let read = read.inspect_err(|_| self.warm(channel))?;
                    receipt.pulses = read.pulses;
                    receipt.copies = receipt.copies.saturating_add(read.extra_copies);
                }
                arrived.payload = Payload::None;
            }
        }
        receipt.finished = clock::timed(receipt.bytes);
        arrived.receipt = receipt;
        Ok(receipt)
    }

    /// Reads what has arrived of a payload, without waiting: how many bytes at the start of `into` are valid by now.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_some(&mut self, message: &mut Incoming, into: &mut [u8]) -> Result<usize, ReadError> {
        let channel = message.channel();
        let Some(arrived) = message.cargo_mut() else { return self.read(message, into, &mut ()).map(|_| 0) };
        let Payload::Arriving(arriving) = &mut arrived.payload else {
            return self.read(message, into, &mut ()).map(|_| message.payload_len());
        };
        let len = arriving.bytes as usize;
        let whole = into.get_mut(..len).ok_or(ReadError::TooSmall(len))?;
        let (valid, done) = if self.left.read((channel, &mut *arriving), whole, &mut arrived.receipt, &self.stat) {
            (len, true)
        } else if self.is_wire(channel) {
            return self.read_some_net(message, into);
        } else {
            let (link, stat) = self.link(channel).map_err(unreadable)?;
            let read = link.read_some(arriving, into, &mut (), stat);
            let read = read.inspect_err(|_| self.warm(channel))?;
            arrived.receipt.pulses = read.pulses;
            arrived.receipt.copies = arrived.receipt.copies.saturating_add(read.extra_copies);
            (read.valid, read.done)
        };
        if done {
            arrived.receipt.finished = clock::timed(arrived.receipt.bytes);
            arrived.payload = Payload::None;
        }
        Ok(valid)
    }

    /// For how long a payload stands still whose reader waits from now on: see [`Node::arm_to_read`].
    #[must_use]
    pub fn stall(&self) -> Stall {
        Stall::new(self.config.deadline, clock::now())
    }

    /// Prepares to sleep on the node's file descriptor until more has come of a payload than [`Node::read_some`] has
    /// found, or it is to be looked at again because it stands still: what waits to be polled for keeps nobody awake.
    /// False if it is to be asked again at once.
    ///
    /// # Errors
    /// [`ReadError`], if no more will come: the channel has ended, or ends now because its sender has stood still for
    /// the deadline.
    pub fn arm_to_read(&mut self, message: &Incoming, stall: &mut Stall) -> Result<bool, ReadError> {
        let channel = message.channel();
        // Rings and deaths. What wakes a sleeper is an edge: all that there is has to be taken in first.
        let _ = self.hear(0);
        self.armed = true;
        self.pace.sleeps();
        let now = clock::now();
        let due = if let Some((net, index)) = self.wire(channel) {
            // Over a network it may come behind others.
            stall.moves(net.got_on(index));
            let Some(due) = stall.due(now) else {
                net.abandon(index);
                return Err(ReadError::Closed(CloseReason::Stalled));
            };
            net.before_reading().then_some(due)
        } else {
            self.arm_link_to_read(channel, stall.due(now), now)?
        };
        let Some(due) = due else { return Ok(false) };
        self.alarm.set(due, now);
        if self.waker.sleep() {
            return Ok(self.nap());
        }
        self.look_at_shelves();
        Ok(false)
    }

    /// Has the sender ring for more of a payload, unless it has stood still for too long, and nothing is `due`: when it
    /// is to be looked at again. `None` if more has come meanwhile.
    fn arm_link_to_read(
        &mut self,
        channel: Channel,
        due: Option<Instant>,
        now: Instant,
    ) -> Result<Option<Instant>, ReadError> {
        let index = channel.index as usize;
        let (link, _) = self.link(channel).map_err(unreadable)?;
        if link.has_more() {
            return Ok(None);
        }
        // One that was set aside meanwhile has a clock of its own: what comes of it does not come to its reader.
        let due = if link.is_midway() { link.look_after_payload(now) } else { due };
        if due.is_none() {
            link.end(CloseReason::Stalled);
        }
        if let Some(reason) = link.ending() {
            self.warm(channel);
            return Err(ReadError::Closed(reason));
        }
        link.arm(false);
        self.fence_off();
        let more = self.link(channel).map_err(unreadable)?.0.has_more();
        // Nobody has looked for messages since it is armed: that is done before the next sleep of another kind.
        self.awake.retain(|awake| *awake != index);
        self.awake.push(index);
        Ok(due.filter(|_| !more))
    }
}

fn unreadable(error: SendError) -> ReadError {
    ReadError::Closed(if let SendError::Closed(reason) = error { reason } else { CloseReason::Here })
}
