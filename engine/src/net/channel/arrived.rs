//! What has become of a channel's frames: those that have arrived, and those that were lost.

use alloc::vec::Vec;

use cutthrough_wire::frame::{Header, Note};

use super::super::Tally;
use super::super::memory::{Load, Memory};
use super::super::outbox::{Content, Outbox, widen};
use super::{Channel, End};
use crate::check::Breach;
use crate::flow::seen::Ack;
use crate::flow::sent::Acked;
use crate::time::Instant;

impl<M: Memory> Channel<M> {
    /// What the header acknowledges.
    pub(super) fn acknowledged(&mut self, header: &Header, now: Instant, tally: &mut Tally) -> Result<(), Breach> {
        let ack = Ack::from_wire(header.below, header.bits, self.number).ok_or(Breach::Index)?;
        let mut arrived = core::mem::take(&mut self.arrived);
        let acked = self.sent.acked(ack, |content| {
            if !arrived.last_mut().is_some_and(|last: &mut Content| last.goes_on(content)) {
                arrived.push(content);
            }
        });
        arrived.drain(..).for_each(|content| self.has_arrived(content));
        self.arrived = arrived;
        self.progress(acked, header.held, now);
        self.find_lost(now, tally);
        Ok(())
    }

    /// What a note says besides: ranges of frames that have arrived beyond those, and grants.
    pub(super) fn noted(&mut self, note: &Note<'_>, held: u16, now: Instant) -> Result<(), Breach> {
        for (first, count) in note.ranges() {
            let first = widen(first, self.number);
            if first.saturating_add(u64::from(count)) > self.number {
                return Err(Breach::Index);
            }
            let mut arrived = Vec::new();
            let acked = self.sent.acked_range(first, first + u64::from(count), |content| arrived.push(content));
            arrived.into_iter().for_each(|content| self.has_arrived(content));
            self.progress(acked, held, now);
        }
        self.strides += note.grants().count() as u64;
        if note.grants().all(|(message, upto)| self.outbox.grant(message, upto)) { Ok(()) } else { Err(Breach::Index) }
    }

    /// A frame of ours has arrived.
    fn has_arrived(&mut self, content: Content) {
        match content {
            Content::Close => {
                if let End::Here { acked, .. } = &mut self.end {
                    *acked = true;
                }
            }
            Content::Note { number } => self.inbox.bury(number),
            content => {
                if content.is_of_messages() {
                    self.strides += 1;
                    self.ways.iter_mut().for_each(|ways| ways.comes_through());
                }
                self.outbox.acked(content);
            }
        }
    }

    fn progress(&mut self, Acked { frames, bytes, newest }: Acked, held: u16, now: Instant) {
        let Some((_, sent_at)) = newest else { return };
        let held = u64::from(held) << 8;
        if let Some(ways) = &mut self.ways {
            ways.acked(now, (frames, bytes), held + self.lag);
        }
        let round = now.saturating_since(sent_at);
        self.rtt.sample(now, round, held);
        (self.backoff, self.progressed) = (0, now);
        // Nor is it the way's fault how long the acknowledgement has lain here before it was looked at.
        let delay = round.saturating_sub(held).saturating_sub(self.lag).max(self.rtt.least());
        self.window.acked(now, bytes, delay, self.rtt.least(), self.sent.in_flight() + bytes);
    }

    pub(super) fn find_lost(&mut self, now: Instant, tally: &mut Tally) {
        let (outbox, probe, end) = (&mut self.outbox, &mut self.probe, &mut self.end);
        let again = (&mut self.regrant, &mut self.unlimited);
        let mut of_messages = 0;
        let lost = self.sent.lost(now, &self.rtt, |content| {
            tally.frames_lost += 1;
            of_messages += u32::from(content.is_of_messages());
            requeue(content, outbox, probe, end, (again.0, again.1));
        });
        if lost > 0 {
            self.ways.iter_mut().for_each(|ways| ways.lost(now, of_messages));
            self.window.lost(now, lost);
        }
    }
}

/// Puts what was lost back to where it is sent again from.
pub(super) fn requeue<L: Load>(
    content: Content,
    outbox: &mut Outbox<L>,
    probe: &mut Option<u16>,
    end: &mut End,
    (regrant, unlimited): (&mut bool, &mut bool),
) {
    match content {
        Content::Note { .. } => *regrant = true,
        Content::Probe { body } => *probe = Some(body),
        Content::Close => {
            if let End::Here { told, .. } = end {
                *told = false;
            }
        }
        content => {
            *unlimited |= matches!(content, Content::Records { .. } | Content::Open { .. });
            outbox.lost(content);
        }
    }
}
