//! The first stage of a cut-through copy: private memory into the staging ring, in pulses.

use std::hint::spin_loop;
use std::ops::Deref;

use cutthrough_engine::adapter::{Adapter, Capability, Pulse, Stage};
use cutthrough_engine::check::{self, Breach};
use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::pulse::Policy;
use cutthrough_engine::receipt::Path;
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::Token;
use cutthrough_engine::transfer::{Step, Trace, Transfer};
use cutthrough_engine::tune;
use cutthrough_segment::copy::Copying;
use cutthrough_segment::half::{Own, Peer};
use cutthrough_segment::ring::Producer;
use cutthrough_segment::stage::Staging;
use cutthrough_segment::sync::Slot;
use cutthrough_wire::layout::Line;
use cutthrough_wire::slot::{Header, Lap};
use cutthrough_wire::token::Place;
use rustix::fd::OwnedFd;

use crate::clock;
use crate::shm::copier::Copier;
use crate::shm::link::{Link, Outbox, SendError};
use crate::shm::meanwhile::Meanwhile;
use crate::shm::patience::{self, Nap, Patience};
use crate::shm::send::Control;
use crate::stat::Stat;

impl Link {
    /// Through the staging ring, in pulses, while the receiver takes them out at the other end. Waits for room where
    /// the message is longer than the lap; meanwhile what the peer sends us is taken out of its way, and after a while
    /// what other peers send, so that sides that send to each other at the same time, or in a circle, never wait for
    /// each other.
    pub(super) fn stage(
        &mut self,
        mut header: Header,
        control: Control<'_>,
        payload: &[u8],
        token: Option<Token>,
        trace: &mut impl Trace,
        (others, stat): (&mut impl Meanwhile, &Stat),
    ) -> Result<(Path, u32), SendError> {
        let before = self.outbox.staged;
        let base = before.next_multiple_of(STAGE_ALIGN);
        header.detail = u64::from(token.map_or(0, |token| token.index)) << 32;
        let len = payload.len() as u64;
        if self.inbox.is_behind() && self.lacks_room(base + len) {
            stat.add(Counter::Full, 1);
            return Err(SendError::Full);
        }
        // Only where the receiver's line is looked at anyway, or nothing is known to lie in the ring: a change that has
        // to wait for its moment costs the payloads before it nothing.
        let changes = self.outbox.staging.lap() != self.outbox.laps.lap().bytes;
        if changes {
            self.urge(before);
        }
        let known_full = base + len > self.outbox.drained + self.outbox.staging.lap();
        let moment = known_full || self.outbox.drained >= before;
        let barred = changes && moment && self.change_lap(base, len, stat);
        if !barred && self.is_one_pulse(len) {
            self.stage_at_once(header, control, payload, trace);
            return Ok((Path::CutThrough, u32::from(len > 0)));
        }
        header.runs = self.lap_word();
        self.stage_in_pulses(header, control, payload, (before, base, barred), trace, (others, stat))
    }

    /// How the next payload goes round the ring.
    #[inline(always)]
    fn lap_word(&self) -> u16 {
        let (lap, wanted) = (self.outbox.staging.lap(), self.outbox.laps.lap());
        Lap { bytes: lap, evict: wanted.evict && lap == wanted.bytes }.to_word()
    }

    /// Whether the rule makes one pulse of so many bytes, and the ring is known to have room for them.
    #[inline(always)]
    fn is_one_pulse(&self, len: u64) -> bool {
        let Outbox { staging, staged, drained, .. } = &self.outbox;
        matches!(self.policy, Policy::Adaptive { .. })
            && len <= LEAST_SHARE
            && staged.next_multiple_of(STAGE_ALIGN) + len <= drained + staging.lap()
    }

    /// Whether a payload of so many bytes that no token is for can go through the ring in one step: there is nothing to
    /// wait for, to look up or to decide.
    #[inline(always)]
    pub(super) fn goes_at_once(&self, bytes: u32) -> bool {
        self.is_one_pulse(u64::from(bytes))
            && self.outbox.staging.lap() == self.outbox.laps.lap().bytes
            && self.ending.is_none()
            && self.producer.has_room()
            && !self.traffic.has_places(&self.peer)
    }

    /// A payload that goes in pulses, or waits for room.
    #[inline(never)]
    fn stage_in_pulses(
        &mut self,
        mut header: Header,
        control: Control<'_>,
        payload: &[u8],
        (before, base, barred): (u64, u64, bool),
        trace: &mut impl Trace,
        (others, stat): (&mut impl Meanwhile, &Stat),
    ) -> Result<(Path, u32), SendError> {
        let (len, lap) = (payload.len() as u64, self.outbox.staging.lap());
        header.control_len = self.place(control);
        if self.outbox.wanted_age.is_multiple_of(WANTED_FOR) {
            self.outbox.wanted = self.peer.minpulse();
        }
        self.outbox.wanted_age = self.outbox.wanted_age.wrapping_add(1);
        let mut transfer = Transfer::new(len, self.policy);
        transfer.set_timed(listens(trace) || tune::is_timed(self.outbox.wanted_age, len));
        if self.is_far_ahead(before) {
            transfer.set_minpulse_max(half(len, lap));
            transfer.set_downstream_minpulse(Some(half(len, lap)));
        } else {
            transfer.set_minpulse_max(longest_minpulse(len, lap));
            transfer.set_downstream_minpulse(downstream(self.outbox.wanted, len, lap));
        }
        let mut announced = false;
        if barred {
            // The receiver makes way for it: it may wait for this payload before it reads the one before. The bytes in
            // front of where it begins count as staged.
            self.own.set(Line::Staged, base);
            self.producer.publish(header.to_words());
            announced = true;
            patience::wake(&self.peer, &self.socket);
        }
        let mut patience = Patience::new(self.deadline);
        loop {
            let mut mover = Outbound {
                payload,
                before,
                barred,
                base,
                moved: self.outbox.staged.saturating_sub(base),
                drained: self.outbox.drained,
                staging: &self.outbox.staging,
                copier: &mut self.outbox.copier,
                own: &self.own,
                peer: &self.peer,
                socket: &self.socket,
                misreport: None,
                announce: (!announced).then_some((&mut self.producer, header)),
            };
            let now = if transfer.is_timed() { clock::now() } else { Instant::default() };
            let step = transfer.poll(now, &mut mover, &mut self.tuners, trace);
            let progress = base + mover.moved > self.outbox.staged;
            let misreport = mover.misreport;
            announced = mover.announce.is_none();
            self.outbox.staged = self.outbox.staged.max(base + mover.moved);
            self.outbox.drained = mover.drained;
            if let Some(breach) = misreport {
                return Err(self.broken(breach));
            }
            match step {
                Step::Done if announced || base <= self.outbox.drained + lap => break,
                // An empty payload, whose start would count as staged beyond what the ring holds.
                Step::Done => self.wait_for_room(&mut patience, others, stat)?,
                Step::Misreported { .. } => return Err(self.broken(Breach::Progress)),
                Step::Moving => patience.progress(),
                Step::Waiting if progress => patience.progress(),
                Step::Waiting => self.wait_for_room(&mut patience, others, stat)?,
            }
        }
        if !announced {
            // An empty payload: its start counts as staged, because the receiver begins there.
            self.own.set(Line::Staged, self.outbox.staged);
            self.producer.publish(header.to_words());
        }
        self.pass(len);
        Ok((Path::CutThrough, transfer.pulses()))
    }

    /// Whether the receiver is still at payloads before this one. Looked for only where nothing has come from it since
    /// the last one: an answer says that it is not, and the look is a wait for its line.
    fn is_far_ahead(&mut self, before: u64) -> bool {
        let only_sends = self.only_sends();
        if only_sends && self.outbox.drained < before {
            self.outbox.learn_drained(&self.peer, before);
        }
        only_sends && self.outbox.drained < before
    }

    /// A lap is wanted for which there may never be a moment: a receiver close behind has always something left. Lets
    /// it finish what it has, for a little while, once every so many bytes.
    fn urge(&mut self, before: u64) {
        if before.wrapping_sub(self.outbox.urged) < URGED_EVERY {
            return;
        }
        self.outbox.urged = before;
        let since = clock::now();
        while self.outbox.drained < before && clock::now().saturating_since(since) < URGED_FOR_NS {
            spin_loop();
            self.outbox.learn_drained(&self.peer, before);
        }
    }

    /// Changes the lap for this payload, if it is a good moment: nothing lies in the ring, or the payload has to wait
    /// for room anyway and can be announced before it has any. True if it has to wait until the ring is empty.
    fn change_lap(&mut self, base: u64, len: u64, stat: &Stat) -> bool {
        self.outbox.learn_drained(&self.peer, self.outbox.staged);
        let Outbox { staging, drained, staged, laps, .. } = &mut self.outbox;
        let (empty, fits) = (*drained >= *staged, base + len <= *drained + staging.lap());
        let announced = base <= *drained + staging.lap();
        let good = if fits { empty && len <= laps.lap().bytes } else { empty || announced };
        if len == 0 || !good {
            return false;
        }
        staging.set_lap(laps.lap().bytes);
        stat.add(Counter::LapChanges, 1);
        !empty
    }

    /// A payload is in the ring, and somebody may want to know when.
    #[inline]
    fn pass(&mut self, len: u64) {
        let lap = self.outbox.staging.lap();
        if self.outbox.laps.pass(len, lap) {
            self.outbox.laps.look(clock::now(), lap);
        }
    }

    /// A payload of so few bytes that the rule makes one pulse of it, whatever was measured: the same, without asking.
    /// A receiver that waits for it sees its first half while the second is copied.
    #[inline(always)]
    pub(super) fn stage_at_once(
        &mut self,
        mut header: Header,
        control: Control<'_>,
        payload: &[u8],
        trace: &mut impl Trace,
    ) {
        let start = traced(trace);
        let len = u64::from(header.payload_len);
        let seen = if self.only_sends() {
            self.outbox.halves.forget();
            payload.len()
        } else {
            self.outbox.halves.first(payload.len())
        };
        let (first, rest) = payload.split_at(seen);
        self.fill(self.outbox.staged.next_multiple_of(STAGE_ALIGN), first);
        header.runs = self.lap_word();
        header.detail |= first.len() as u64;
        header.control_len = self.place(control);
        self.producer.publish(header.to_words());
        if !rest.is_empty() {
            self.fill(self.outbox.staged, rest);
        }
        if self.outbox.copier.usual(seen) == Copying::Pieces {
            self.outbox.staging.prefetch_write(self.outbox.staged.next_multiple_of(STAGE_ALIGN), len);
        }
        if len > 0 {
            trace.pulse(Stage::HostToAdapter, 0, len, start, traced(trace));
        }
        self.pass(len);
    }

    /// Copies bytes to a place in the ring, up to the end of which all is there then.
    #[inline]
    fn fill(&mut self, position: u64, bytes: &[u8]) {
        let Outbox { staging, copier, .. } = &mut self.outbox;
        copier.copy(bytes.len(), |copying| staging.copy_in(position, bytes, copying));
        self.outbox.staged = position + bytes.len() as u64;
        self.own.set(Line::Staged, self.outbox.staged);
    }

    /// Whether nothing has come from the receiver since the last payload: an answer says that it waits for this one.
    #[inline]
    fn only_sends(&mut self) -> bool {
        let heard = self.consumer.taken();
        std::mem::replace(&mut self.outbox.heard, heard) == heard
    }

    /// Whether so many bytes of private memory would wait for the peer, sent now to where the token says.
    pub fn would_wait(&mut self, bytes: usize, token: Option<Token>) -> bool {
        match token.map(|token| self.unused(token)) {
            Some(None | Some(Place::Pages { .. })) => return false,
            Some(Some(Place::Private { bytes: room })) if bytes > room as usize => return false,
            Some(Some(Place::Private { .. })) | None => {}
        }
        let end = self.outbox.staged.next_multiple_of(STAGE_ALIGN) + bytes as u64;
        self.lacks_room(end)
    }

    /// Whether the staging ring has no room up to `end`; looks at the peer's counter if it seems so.
    fn lacks_room(&mut self, end: u64) -> bool {
        let lap = self.outbox.staging.lap();
        if end > self.outbox.drained + lap {
            self.outbox.learn_drained(&self.peer, self.outbox.staged);
        }
        end > self.outbox.drained + lap
    }

    fn wait_for_room(
        &mut self,
        patience: &mut Patience,
        others: &mut impl Meanwhile,
        stat: &Stat,
    ) -> Result<(), SendError> {
        self.relieve(stat).map_err(|breach| self.broken(breach))?;
        let drained = self.outbox.drained;
        let (peer, consumer, inbox) = (&self.peer, &self.consumer, &self.inbox);
        // Others ring at doors of their own, which nobody watches here.
        let most = if others.is_nobody() { Nap::Long } else { Nap::Short };
        let more = || consumer.ready() && inbox.takes_more();
        let ready = || peer.get(Line::Drained) != drained || more() || inbox.bytes_wait(peer) || others.relieve(stat);
        let waited = patience.pass(&self.socket, (&self.own, self.fence), most, ready);
        self.waited(waited).map_err(SendError::Closed)
    }
}

impl Outbox {
    /// Looks how far the receiver has come, of what was staged up to `end`. What cannot be is found again by whoever
    /// waits for room.
    fn learn_drained(&mut self, peer: &Peer, end: u64) {
        self.drained = check::drained(self.drained, peer.get(Line::Drained), end).unwrap_or(self.drained);
    }
}

/// Bytes that are sent for each time that a sender lets its receiver finish, see [`Link::urge`], and for how long, in
/// nanoseconds: the bytes take six times as long at the least.
const URGED_EVERY: u64 = 1 << 20;
const URGED_FOR_NS: u64 = 5_000;

/// The shortest lap that serves a policy: those that are compared with the default need room for their pulses.
pub(in crate::shm) fn least_lap(policy: Policy, ring: u64) -> u64 {
    match policy {
        Policy::Adaptive { .. } => 0,
        Policy::Fixed(pulse) => pulse.get().saturating_mul(4).checked_next_power_of_two().unwrap_or(ring),
        Policy::StoreAndForward => ring,
    }
}

/// Whether somebody wants to know of pulses.
pub(in crate::shm) fn listens<T: Trace>(_trace: &T) -> bool {
    T::LISTENS
}

/// The time now, if somebody wants to know.
pub(in crate::shm) fn traced<T: Trace>(_trace: &T) -> Instant {
    if T::LISTENS { clock::now() } else { Instant::default() }
}

/// Payloads start at a cache line pair in the staging ring.
pub(in crate::shm) const STAGE_ALIGN: u64 = 128;

/// The peer says what it finds worth a pulse of a payload of this length; for others it grows with the square root.
pub(in crate::shm) const MINPULSE_OF: u64 = 1 << 20;

/// What the peer finds worth a pulse: an allegation that can do no harm, cut to sense.
fn downstream(wanted: u64, len: u64, ring: u64) -> Option<u64> {
    let wanted = wanted.min(MINPULSE_OF);
    let scaled = wanted * len.isqrt() / MINPULSE_OF.isqrt();
    (wanted > 0).then(|| scaled.clamp(256, longest_minpulse(len, ring)))
}

/// The most that may be demanded of a pulse: so little that both sides work on a message at the same time (four pulses
/// of two equal stages take 5/8 of store-and-forward, infinitely many 1/2), and that the ring holds several; but not
/// so little that the hand-over of a cache line shows.
///
/// The measured cost alone is not to be trusted with this: bytes that the other core has just written are slow to read,
/// which looks like overhead and is none.
pub(in crate::shm) fn longest_minpulse(len: u64, ring: u64) -> u64 {
    (len / 4).clamp(LEAST_SHARE, ring / 4)
}

/// What is worth a pulse of a payload that waits behind others: whoever copies those does not look yet, so nothing is
/// gained by seeing it early, and each sight of it takes a line from its writer. Half of a long one, so that both work
/// on it at the same time once the receiver has caught up; and the ring holds several.
fn half(len: u64, ring: u64) -> u64 {
    (len / 2).max(WHOLE).min(ring / 4)
}

/// A payload that waits behind others and is not longer than this is shown when all of it is there: by halves, streams
/// of 12 to 32 KiB were a twentieth to a tenth slower.
const WHOLE: u64 = 32 << 10;

/// Payloads for which the sender believes what the receiver last found worth a pulse. To look means to wait for a cache
/// line that the receiver has just written.
const WANTED_FOR: u32 = 32;

/// Progress is reported in steps of four cache lines at least: finer ones cost more than the copy itself.
const LEAST_REPORT: u64 = 256;

/// Below this a pulse is dominated by the hand-over, bytes.
pub(in crate::shm) const LEAST_SHARE: u64 = 8192;

/// The receipts of payloads that go in one step have no times.
const _: () = assert!(LEAST_SHARE <= clock::UNTIMED);

/// The first stage of a cut-through copy: from private memory into the staging ring. This processor is the mover, so a
/// pulse is over when `start` returns; its progress is published on the way, as often as the receiver wants to see it.
struct Outbound<'a, S> {
    payload: &'a [u8],
    /// Where the payload before this one ended; and whether that has to be out before this one begins.
    before: u64,
    barred: bool,
    base: u64,
    moved: u64,
    drained: u64,
    staging: &'a Staging,
    copier: &'a mut Copier,
    own: &'a Own,
    peer: &'a Peer,
    socket: &'a OwnedFd,
    misreport: Option<Breach>,
    /// The slot that announces the message goes out with the first bytes.
    announce: Option<(&'a mut Producer<S>, Header)>,
}

impl<S: Deref<Target = [Slot]>> Outbound<'_, S> {
    /// Lets the receiver see that `moved` bytes of the message are there.
    fn publish(&mut self) {
        self.own.set(Line::Staged, self.base + self.moved);
        if let Some((producer, mut header)) = self.announce.take() {
            // What is there already is said in the slot itself, which saves the receiver a look at the counter.
            header.detail |= self.moved;
            producer.publish(header.to_words());
        }
        patience::wake(self.peer, self.socket);
    }
}

impl<S: Deref<Target = [Slot]>> Adapter for Outbound<'_, S> {
    fn capability(&self, stage: Stage) -> Capability {
        match stage {
            Stage::HostToAdapter => Capability::DRIVEN,
            Stage::AdapterToLink | Stage::LinkToAdapter | Stage::AdapterToHost => Capability::ABSENT,
        }
    }

    fn idle(&mut self, _now: Instant, _stage: Stage) -> bool {
        true
    }

    fn moved(&mut self, _now: Instant, _stage: Stage) -> u64 {
        self.moved
    }

    fn room(&mut self, _now: Instant, _stage: Stage) -> u64 {
        let position = self.base + self.moved;
        let rest = self.payload.len() as u64 - self.moved;
        let waits = self.barred && self.drained < self.before;
        if waits || position + rest > self.drained + self.staging.lap() {
            match check::drained(self.drained, self.peer.get(Line::Drained), position) {
                Ok(drained) => self.drained = drained,
                Err(breach) => self.misreport = Some(breach),
            }
        }
        if self.barred && self.drained < self.before {
            return 0;
        }
        // Once the payload before is out, nothing lies in the bytes that were left between the two.
        let free_from = if self.drained >= self.before { self.drained.max(self.base) } else { self.drained };
        (free_from + self.staging.lap()).saturating_sub(position)
    }

    fn start(&mut self, _now: Instant, _stage: Stage, pulse: Pulse) {
        let Ok(start) = usize::try_from(pulse.offset) else { return };
        let Ok(len) = usize::try_from(pulse.len) else { return };
        let report = usize::try_from(pulse.report_every.max(LEAST_REPORT)).unwrap_or(len);
        for piece in self.payload[start..start + len].chunks(report) {
            let (staging, position) = (self.staging, self.base + self.moved);
            self.copier.copy(piece.len(), |copying| staging.copy_in(position, piece, copying));
            self.moved += piece.len() as u64;
            self.publish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_behind_others_is_shown_whole_or_by_halves() {
        let ring = 2 << 20;
        for (len, shown) in [(9000, WHOLE), (WHOLE, WHOLE), (100 << 10, 50 << 10), (1 << 20, 512 << 10)] {
            assert_eq!(half(len, ring), shown);
        }
        assert_eq!(half(4 << 20, ring), 512 << 10, "and the ring holds several");
        assert_eq!(half(4 << 20, 64 << 10), 16 << 10);
    }
}
