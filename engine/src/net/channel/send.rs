//! A channel's frames on their way out.

use alloc::vec::Vec;

use cutthrough_wire::frame::{Header, Kind, NOTE_BYTES, NOTE_ENTRY_BYTES, Note, WANTS_NO_MORE, low};

use super::super::Tally;
use super::super::batch::{Batch, FRAMES};
use super::super::memory::{Load, Memory};
use super::super::outbox::{Content, Next, frame_bytes};
use super::super::pulses::Worth;
use super::super::ways::{JUDGED, Most, Way};
use super::{Channel, End, RANGES, low16, low32};
use crate::time::Instant;

/// Batches for which it is looked how much there is ahead, so that they get like lengths.
const BATCHES_AHEAD: u64 = 4;

impl<M: Memory> Channel<M> {
    /// Fills a batch with a message of one frame, if there is that and nothing else to be sent, and nothing to be
    /// planned: as [`Channel::fill`] would, which looks at everything. What the last frame acknowledged has time. False
    /// if not.
    pub(in crate::net) fn fill_alone(&mut self, batch: &mut Batch, now: Instant, tally: &mut Tally) -> bool {
        let Some(way) = self.ways.as_ref().map_or(Some(Way::default()), |ways| ways.only()) else { return false };
        let plain = self.probe.is_none() && self.end == End::None && !self.tells();
        let room = self.window.room(self.sent.in_flight()) >= self.full() as u64;
        if !plain || !room || now < self.paced || self.pace() > 0 {
            return false;
        }
        let body = usize::from(self.reach.body());
        // Whose moment is quiet sends frames of payloads one by one.
        let hushed = self.quiet.until().is_some();
        let next = self.outbox.lone_record().or_else(|| if hushed { None } else { self.outbox.lone_short(body) });
        let Some(next) = next else { return false };
        batch.go(way);
        self.pulses.end();
        self.waits = false;
        tally.frames_sent += self.push(batch, next, now);
        true
    }

    /// Fills a batch of up to `most` bytes with what there is to send; `worth` is for the first way. With `whole`, it
    /// is as long as it may be.
    pub(in crate::net) fn fill(
        &mut self,
        batch: &mut Batch,
        (most, worth): (&Most, Option<&Worth>),
        (now, whole): (Instant, bool),
        tally: &mut Tally,
    ) {
        let chosen = self.choose(now);
        let (way, first) = self.ways.as_ref().map_or_else(Default::default, |ways| (ways.now(), ways.first()));
        batch.go(way);
        let most = most[usize::from(way.number)];
        // Whether the two are alive is neither asked nor answered by a way that is on trial, and may lead nowhere.
        if let Some(body) = self.probe.take() {
            batch.go(first);
            self.ask(batch, body, now);
            tally.frames_sent += 1;
            return;
        }
        if self.is_asked && way.number != first.number {
            batch.go(first);
            self.write_note(batch, now, tally);
            return;
        }
        if chosen && now >= self.paced {
            let worth = worth.filter(|_| way.number == 0 && !whole && self.outbox.has_next());
            let batches = if worth.is_some() { most as u64 * BATCHES_AHEAD } else { 0 };
            let ahead = self.outbox.ahead(batches.max(self.window.bytes()));
            let pulse = worth.map_or(most, |worth| self.pulse(ahead, most, worth));
            self.waits = self.waits(ahead, pulse as u64);
            let fits = self.fill_up(batch, pulse, now, tally);
            if !self.outbox.has_next() {
                self.pulses.end();
            }
            if let Some(ways) = &mut self.ways {
                ways.sent(batch.bytes() as u64, self.sent.in_flight(), !self.outbox.has_next());
            }
            if !fits {
                return;
            }
        }
        let full = frame_bytes(usize::from(self.reach.body()));
        if let End::Here { told, .. } = &mut self.end
            && !*told
            && self.outbox.waiting() == 0
            && batch.room(full, most) > 0
        {
            *told = true;
            let words = [low(self.outbox.next()), 0];
            self.frame(batch, Kind::Close, words, &[], Some(Content::Close), now);
            tally.frames_sent += 1;
        }
        if self.note_is_due(now) && batch.room(full, most) > 0 {
            self.write_note(batch, now, tally);
        }
    }

    /// How many bytes are in flight.
    pub(in crate::net) const fn in_flight(&self) -> u64 {
        self.sent.in_flight()
    }

    /// About how many bytes are in flight or could go next; of more than `enough`, some number above that.
    pub(in crate::net) fn outstanding(&self, enough: u64) -> u64 {
        let flying = self.sent.in_flight();
        if flying > enough { flying } else { flying + self.outbox.ahead(enough - flying) }
    }

    /// Whether there is more to send, about `ahead` bytes, than the window takes, with what is in flight, and half of
    /// that is used once the next `going` bytes have gone. Who never comes to that is held back by something else.
    fn waits(&self, ahead: u64, going: u64) -> bool {
        let (window, body) = (self.window.bytes(), usize::from(self.reach.body()));
        let with = |bytes: u64| {
            let headers = (bytes / body.max(1) as u64 + 1) * frame_bytes(0) as u64;
            self.sent.in_flight() + bytes + headers
        };
        self.outbox.has_next() && with(ahead) > window && with(going.min(ahead)) >= window / 2
    }

    /// Whether there are messages that would fill a batch now, and nothing keeps them.
    pub(in crate::net) fn fills(&self, most: &Most, now: Instant) -> bool {
        let way = self.ways.as_ref().map_or(0, |ways| usize::from(ways.now().number));
        let body = usize::from(self.reach.body());
        let frames = (most[way] / frame_bytes(body)).clamp(1, FRAMES);
        let ahead = || self.outbox.ahead((frames * body) as u64) >= (frames * body) as u64;
        let room = self.window.room(self.sent.in_flight()) >= (frames * frame_bytes(body)) as u64;
        !self.resting && now >= self.paced && room && ahead()
    }

    /// Chooses the way of what comes next. False if that has to wait until nothing is in flight.
    fn choose(&mut self, now: Instant) -> bool {
        let has_rested = self.resting && !self.rests();
        let Some(ways) = &mut self.ways else { return true };
        let in_flight = if has_rested { 0 } else { self.sent.in_flight() };
        if self.outbox.has_next() {
            self.resting = ways.choose(now, self.outbox.ahead(JUDGED), in_flight).is_none();
        }
        if ways.hand_over(&mut self.rtt, &mut self.window, u32::from(self.reach.body())) {
            self.quiet.goes_another_way();
            self.window.hush(self.quiet.until().is_some());
        }
        !self.resting
    }

    /// Bytes of the next batch at most, where there are about `ahead` to send.
    fn pulse(&mut self, ahead: u64, most: usize, worth: &Worth) -> usize {
        if self.sent.in_flight() == 0 {
            self.pulses.begin(ahead, worth);
        }
        let body = usize::from(self.reach.body());
        self.pulses.next(ahead, (body, frame_bytes(body)), most)
    }

    /// As much of the messages as may go now. False if the batch is full.
    fn fill_up(&mut self, batch: &mut Batch, most: usize, now: Instant, tally: &mut Tally) -> bool {
        let first = self.number;
        let fits = loop {
            let window = self.window.room(self.sent.in_flight());
            self.outbox.forget_again();
            if window == 0 || !self.outbox.has_next() {
                break true;
            }
            let follows =
                self.outbox.next_whole(usize::from(self.reach.body())).is_some_and(|bytes| batch.takes(bytes, most));
            let full = frame_bytes(self.outbox.next_body(usize::from(self.reach.body())));
            let room = if follows { 1 } else { batch.room(full, most) };
            let quiet = self.quiet.until().is_some();
            let takes = usize::try_from(window).unwrap_or(usize::MAX).div_ceil(full);
            let frames = room.min(if quiet { 1 } else { takes });
            if frames == 0 {
                break false;
            }
            let Some(next) = self.outbox.next_frames(usize::from(self.reach.body()), frames) else { break true };
            tally.frames_sent += self.push(batch, next, now);
            if quiet {
                break true;
            }
        };
        if let Some(next) = self.quiet.next(now).filter(|_| self.number > first) {
            self.paced = next;
        } else if self.pace() > 0 {
            self.spreads = (self.paced.max(now), batch.bytes() as u64);
            self.paced = self.pace_after(self.spreads);
        }
        fits
    }

    /// Nanoseconds for each KiB that is sent.
    fn pace(&self) -> u64 {
        self.window.pace(self.rtt.spread())
    }

    /// When the next frames may follow so many bytes that went at this time.
    pub(super) fn pace_after(&self, (sent, bytes): (Instant, u64)) -> Instant {
        sent.after(bytes.saturating_mul(self.pace()) >> 10)
    }

    /// Adds what is to be sent to a batch: in how many frames.
    fn push(&mut self, batch: &mut Batch, next: Next, now: Instant) -> u64 {
        self.owed.answers(now, self.rtt.smoothed());
        match next {
            Next::Records { first, count } => {
                let limits = self.inbox.limits(true).to_bytes();
                self.unlimited = false;
                let header = self.header(Kind::Records, [low(first), count], now);
                let outbox = &self.outbox;
                let bytes = batch.push(header, &mut *self.seal, |body| {
                    body.extend(&limits);
                    outbox.write_records(first, count, |control| {
                        body.extend(&[u8::try_from(control.len()).unwrap_or(0), 0]);
                        body.extend(control);
                    });
                });
                self.sent.push(header.number, now, low32(bytes), Content::Records { first, count });
            }
            Next::Open { message, mut opening, len } => {
                opening.limits = self.inbox.limits(true);
                self.unlimited = false;
                let bytes = opening.to_bytes();
                let header = self.header(Kind::Open, [low(message), 0], now);
                let header = Header { body: low16(bytes.len() + len as usize), ..header };
                let part = (message, 0, len as usize);
                let Some(load) = self.outbox.load(message) else { return 1 };
                let bytes = if len > 0 {
                    batch.push_payload(header.sealed(), Some(&bytes), part, load, &mut *self.seal)
                } else {
                    batch.push_payload(header.sealed(), Some(&bytes), part, &Nothing, &mut *self.seal)
                };
                self.sent.push(header.number, now, low32(bytes), Content::Open { message, len });
            }
            Next::Data { message, offset, len } => {
                let first = self.header(Kind::Data, [low(message), offset], now);
                let Some(load) = self.outbox.load(message) else { return 1 };
                let (end, mut at) = (offset + len, offset);
                let body = low32(self.outbox.body_of(message, usize::from(self.reach.body())));
                let head = first.sealed();
                for number in first.number.. {
                    let len = (end - at).min(body);
                    let head = head.part(number, low16(len as usize), at);
                    let part = (message, at as usize, len as usize);
                    let bytes = batch.push_payload(head, None, part, load, &mut *self.seal);
                    self.sent.push(number, now, low32(bytes), Content::Data { message, offset: at, len });
                    at += len;
                    if at >= end {
                        self.number = number + 1;
                        break;
                    }
                }
                return self.number - first.number;
            }
        }
        1
    }

    /// A header with the next number and what there is to acknowledge.
    fn header(&mut self, kind: Kind, words: [u32; 2], now: Instant) -> Header {
        let number = self.number;
        self.number += 1;
        self.is_asked = false;
        let ack = self.seen.ack();
        let held = self.owed.goes(now, kind == Kind::Note) >> 8;
        Header {
            kind,
            body: 0,
            tag: self.peer.tag,
            generation: self.peer.generation,
            awaited: low(self.sent.oldest().unwrap_or(number)),
            number,
            below: low(ack.below),
            held: u16::try_from(held).unwrap_or(u16::MAX),
            waits: self.waits,
            calls: self.calls,
            asks: self.asks_for_quiet(now),
            bits: ack.bits,
            words,
        }
    }

    fn frame(
        &mut self,
        batch: &mut Batch,
        kind: Kind,
        words: [u32; 2],
        body: &[u8],
        content: Option<Content>,
        now: Instant,
    ) {
        let header = self.header(kind, words, now);
        let bytes = batch.push(header, &mut *self.seal, |own| own.extend(body));
        if let Some(content) = content {
            self.sent.push(header.number, now, low32(bytes), content);
        }
    }

    fn ask(&mut self, batch: &mut Batch, body: u16, now: Instant) {
        let zeros = alloc::vec![0; usize::from(body)];
        self.frame(batch, Kind::Probe, [0, 0], &zeros, Some(Content::Probe { body }), now);
    }

    fn write_note(&mut self, batch: &mut Batch, now: Instant, tally: &mut Tally) {
        self.note = false;
        tally.notes_sent += 1;
        let again = core::mem::take(&mut self.regrant);
        if again {
            self.grants = self.inbox.outstanding();
        }
        self.grants.extend(self.inbox.take_unwanted().into_iter().map(|message| (message, WANTS_NO_MORE)));
        let most =
            usize::from(self.reach.body()).saturating_sub(NOTE_BYTES + RANGES * NOTE_ENTRY_BYTES) / NOTE_ENTRY_BYTES;
        let rest = self.grants.split_off(self.grants.len().min(most));
        let grants = core::mem::replace(&mut self.grants, rest);
        // A sender that has come to its limits sends nothing that would show the loss of new ones.
        let asks = !grants.is_empty() || again || self.unlimited || self.inbox.limits_are_old();
        self.unlimited = false;
        let limits = self.inbox.limits(asks);
        self.inbox.tells_less(self.number);
        let bits_end = self.seen.ack().below + 64;
        let mut ranges: Vec<(u64, u64)> = self.seen.ranges(RANGES).filter(|range| range.1 > bits_end).collect();
        ranges.extend(self.seen.take_late(RANGES - ranges.len()).map(|number| (number, number + 1)));
        let mut body = Vec::with_capacity(NOTE_BYTES + (ranges.len() + grants.len()) * NOTE_ENTRY_BYTES);
        body.extend_from_slice(&Note::head(limits, low16(ranges.len()), low16(grants.len())));
        for (first, end) in ranges {
            body.extend_from_slice(&Note::entry(low(first), low(end - first)));
        }
        for (message, upto) in &grants {
            if *upto == WANTS_NO_MORE {
                self.inbox.tells(*message, self.number);
            }
            body.extend_from_slice(&Note::entry(low(*message), *upto));
        }
        let content = asks.then_some(Content::Note { number: self.number });
        self.frame(batch, Kind::Note, [u32::from(asks), 0], &body, content, now);
    }
}

struct Nothing;

impl Load for Nothing {
    fn len(&self) -> usize {
        0
    }
    fn piece(&self, _offset: usize, _most: usize) -> &[u8] {
        &[]
    }
}
