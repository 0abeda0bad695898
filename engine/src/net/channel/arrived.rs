//! What has become of a channel's frames: those that have arrived, and those that were lost.

use alloc::vec::Vec;

use cutthrough_wire::frame::{Header, Note};

use super::super::Tally;
use super::super::memory::{Load, Memory};
use super::super::outbox::{Content, Outbox, widen};
use super::reach::Reach;
use super::times::Stands;
use super::{Channel, End, RANGES};
use crate::check::Breach;
use crate::flow::rtt::Rtt;
use crate::flow::seen::Ack;
use crate::flow::sent::{Acked, Lost, Sent};
use crate::time::Instant;

impl<M: Memory> Channel<M> {
    /// Remembers what the header acknowledges, for [`Channel::heed`].
    pub(super) fn acknowledged(&mut self, header: &Header, now: Instant) -> Result<(), Breach> {
        let ack = Ack::from_wire(header.below, header.bits, self.number);
        #[cfg(feature = "planted")]
        if ack.is_none() && self.credulous {
            return Ok(());
        }
        let ack = ack.ok_or(Breach::Index)?;
        self.unheeded = Some((ack, header.held, now));
        Ok(())
    }

    /// As [`Channel::heed`], but who waits for a message is told of it first.
    pub(super) fn heed_unless_told(&mut self, tally: &mut Tally) {
        if !self.inbox.has_ready() {
            self.heed(tally);
        }
    }

    /// Sees to what the last frame has acknowledged, if that was not done yet: whether it was to be done.
    #[inline]
    pub(in crate::net) fn heed(&mut self, tally: &mut Tally) -> bool {
        let Some((ack, held, now)) = self.unheeded.take() else { return false };
        self.see_to(ack, held, now, tally);
        true
    }

    fn see_to(&mut self, ack: Ack, held: u16, now: Instant, tally: &mut Tally) {
        // Who sends much says the same in many frames. What it settles is settled.
        if self.heeded.replace(ack) == Some(ack) {
            if !self.sent.is_empty() {
                self.find_lost(now, tally);
            }
            return;
        }
        let mut arrived = core::mem::take(&mut self.arrived);
        let acked = self.sent.acked(ack, self.number, |content| {
            if !arrived.last_mut().is_some_and(|last: &mut Content| last.goes_on(content)) {
                arrived.push(content);
            }
        });
        arrived.drain(..).for_each(|content| self.has_arrived(content, now));
        self.arrived = arrived;
        self.progress(acked, held, now, tally);
        self.find_lost(now, tally);
    }

    /// What a note says besides: ranges of frames that have arrived beyond those, and grants.
    pub(super) fn noted(&mut self, note: &Note<'_>, held: u16, now: Instant, tally: &mut Tally) -> Result<(), Breach> {
        if note.ranges().count() > RANGES {
            return Err(Breach::Descriptor);
        }
        let mut before = u64::MAX;
        for (first, count) in note.ranges() {
            let first = widen(first, self.number);
            let end = first.saturating_add(u64::from(count));
            if count == 0 || end > core::mem::replace(&mut before, first) {
                return Err(Breach::Descriptor);
            }
            if end > self.number {
                return Err(Breach::Index);
            }
            let mut arrived = Vec::new();
            let acked = self.sent.acked_range(first, end, |content| arrived.push(content));
            arrived.into_iter().for_each(|content| self.has_arrived(content, now));
            self.progress(acked, held, now, tally);
        }
        self.strides += note.grants().count() as u64;
        if note.grants().all(|(message, upto)| self.outbox.grant(message, upto)) { Ok(()) } else { Err(Breach::Index) }
    }

    /// A frame of ours has arrived.
    fn has_arrived(&mut self, content: Content, now: Instant) {
        match content {
            Content::Close => {
                if let End::Here { acked, .. } = &mut self.end {
                    *acked = true;
                }
            }
            Content::Note { number } => self.inbox.bury(number),
            Content::Probe { body } => self.reach.carries(now, body),
            content => {
                if content.is_of_messages() {
                    self.strides += 1;
                    self.stands = self.stands.map(|_| Stands::since(now));
                    self.ways.iter_mut().for_each(|ways| ways.comes_through());
                }
                if matches!(content, Content::Open { .. } | Content::Data { .. }) {
                    self.taken = now;
                }
                self.outbox.acked(content);
            }
        }
    }

    fn progress(&mut self, acked: Acked, held: u16, now: Instant, tally: &mut Tally) {
        tally.frames_late += u64::from(acked.late_frames);
        self.reach.acked(now, &acked);
        if acked.overtaken > 0 {
            // What was given up of those was not lost.
            self.window.found(acked.late_bytes);
            self.sent.bear(now, &acked, &self.rtt);
        }
        let said = u64::from(held) << 8;
        if acked.unprobed && acked.overtaken == 0 {
            self.rtt.had_arrived(said);
        }
        // What does not fit into the field was perhaps far longer, if so was the answer. A receiver that finds
        // something whenever it looks says as much all the time.
        let held = |round: u64| if held == u16::MAX && round > 2 * said { u64::MAX } else { said };
        let Acked { frames, bytes, newest: Some((_, sent_at)), .. } = acked else {
            if let Some(sent_at) = acked.late {
                // It was not lost, but given up too early.
                let round = now.saturating_since(sent_at);
                self.rtt.sample(now, round, held(round), self.lag);
                (self.backoff, self.progressed) = (0, now);
            }
            return;
        };
        if let Some(ways) = &mut self.ways {
            ways.acked(now, (frames, bytes), (said.saturating_add(self.lag), self.rtt.least()));
        }
        let round = now.saturating_since(sent_at);
        let held = held(round);
        self.quiet.sample(sent_at, round);
        self.end_quiet(now);
        self.rtt.sample(now, round, held, self.lag);
        (self.backoff, self.progressed) = (0, now);
        // Nor is it the way's fault how long the acknowledgement has lain here before it was looked at.
        let delay = round.saturating_sub(held).saturating_sub(self.lag).max(self.rtt.least());
        self.window.acked(now, bytes, (round, delay), self.rtt.least(), self.sent.in_flight() + bytes);
        if self.paced > now && self.quiet.until().is_none() {
            // What was believed of the way when the last batch went may have been far too much.
            self.paced = self.paced.min(self.pace_after(self.spreads));
        }
    }

    pub(super) fn find_lost(&mut self, now: Instant, tally: &mut Tally) {
        let (sent, rtt, _, mut losses) = self.losses(now);
        let bytes = sent.lost(now, rtt, |content, frame| losses.take(content, frame));
        let (frames, of_messages, tries) = (losses.frames, losses.of_messages, losses.tries);
        if frames > 0 {
            tally.frames_lost += frames;
            self.ways.iter_mut().for_each(|ways| ways.lost(now, of_messages));
            self.window.lost(now, bytes - tries);
        }
    }

    /// Frames in flight, their times, and what takes those that are lost.
    pub(super) fn losses(&mut self, now: Instant) -> (&mut Sent<Content>, &Rtt, u32, Losses<'_, M::Load>) {
        let losses = Losses {
            now,
            next: self.number,
            frames: 0,
            of_messages: 0,
            tries: 0,
            outbox: &mut self.outbox,
            probe: &mut self.probe,
            end: &mut self.end,
            regrant: &mut self.regrant,
            unlimited: &mut self.unlimited,
            reach: &mut self.reach,
        };
        (&mut self.sent, &self.rtt, self.backoff, losses)
    }
}

/// Takes what was lost, and puts it back to where it is sent again from.
pub(super) struct Losses<'a, L> {
    now: Instant,
    /// Number of the next frame.
    next: u64,
    /// Frames that were lost, and how many of them are of messages.
    pub(super) frames: u64,
    pub(super) of_messages: u32,
    /// Bytes of those besides that were longer than any path has to carry, to see whether this one does.
    tries: u64,
    outbox: &'a mut Outbox<L>,
    probe: &'a mut Option<u16>,
    end: &'a mut End,
    regrant: &'a mut bool,
    unlimited: &'a mut bool,
    reach: &'a mut Reach,
}

impl<L: Load> Losses<'_, L> {
    pub(super) fn take(&mut self, content: Content, lost: Lost) {
        if let Content::Probe { body: body @ 1.. } = content {
            self.reach.tried_in_vain(self.now, body);
            self.tries += u64::from(lost.bytes);
            return;
        }
        self.frames += 1;
        self.of_messages += u32::from(content.is_of_messages());
        self.reach.lost(self.now, lost, self.next);
        match content {
            Content::Note { .. } => *self.regrant = true,
            Content::Probe { .. } => *self.probe = Some(0),
            Content::Close => {
                if let End::Here { told, .. } = self.end {
                    *told = false;
                }
            }
            content => {
                *self.unlimited |= matches!(content, Content::Records { .. } | Content::Open { .. });
                self.outbox.lost(content);
            }
        }
    }
}
