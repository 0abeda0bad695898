//! Payloads that come through the staging ring: to their reader, to the place of their token, aside, or nowhere.

use std::hint::spin_loop;
use std::sync::Arc;

use cutthrough_engine::adapter::{Adapter, Capability, Pulse, Stage};
use cutthrough_engine::check::{self, Breach};
use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::pulse::Policy;
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::{Refused, Token};
use cutthrough_engine::transfer::{Step, Trace, Transfer};
use cutthrough_engine::tune;
use cutthrough_segment::half::{Own, Peer};
use cutthrough_segment::ring::Control;
use cutthrough_segment::stage::Staging;
use cutthrough_segment::sync::Eviction;
use cutthrough_wire::layout::Line;
use cutthrough_wire::slot::{Header, Kind};
use rustix::fd::OwnedFd;

use super::{ASIDE_MAX, Aside, Expected, Front, Goes, Read, ReadError, token};
use crate::clock;
use crate::incoming::{Arriving, Incoming, Payload, zeros};
use crate::shm::copier::Copier;
use crate::shm::link::{CloseReason, Link};
use crate::shm::pages::Place;
use crate::shm::patience::{self, Nap, Patience};
use crate::shm::send::{LEAST_SHARE, MINPULSE_OF, STAGE_ALIGN, listens, longest_minpulse, traced};
use crate::stat::Stat;

impl Link {
    /// A payload starts to come through the staging ring.
    pub(super) fn begin(&mut self, control: Control, header: Header, stat: &Stat) -> Result<Option<Incoming>, Breach> {
        if self.inbox.front.is_some() {
            self.set_aside();
            self.pump(stat)?;
            if self.inbox.front.is_some() {
                self.inbox.held = Some((control, header));
                return Ok(None);
            }
        }
        if header.kind == Kind::Staged {
            let started = self.enter(&header, Goes::Reader)?;
            let payload = Payload::Arriving(self.arriving(header.payload_len));
            return Ok(Some(self.arrival(control, &header, payload, started, stat)));
        }
        self.enter(&header, Goes::Away)?;
        self.inbox.tried = None;
        match self.token_buffer(token(header.detail >> 32, header.name), header.payload_len)? {
            Ok((buffer, granted)) => {
                if let Some(front) = &mut self.inbox.front {
                    front.goes = Goes::Buffer(Box::new(Expected { buffer, granted, control, header }));
                }
                self.pump(stat)
            }
            Err(refused) => {
                Ok(Some(self.arrival(control, &header, Payload::Dropped(refused), Instant::default(), stat)))
            }
        }
    }

    /// The right to read the front of the staging ring.
    #[inline(always)]
    pub(super) fn arriving(&mut self, bytes: u32) -> Arriving {
        let ticket = self.inbox.tickets;
        let spare = self.inbox.spare.take();
        let shelf = Some(spare.unwrap_or_else(|| Arc::clone(&self.traffic.shelf)));
        Arriving { ticket, bytes, valid: 0, shelf }
    }

    /// A payload is the front of the staging ring from now on: when that was.
    #[inline(always)]
    pub(super) fn enter(&mut self, header: &Header, goes: Goes) -> Result<Instant, Breach> {
        let len = u64::from(header.payload_len);
        let base = self.inbox.next_base.next_multiple_of(STAGE_ALIGN);
        let ready = header.detail & 0xffff_ffff;
        if header.runs != self.inbox.lap {
            self.follow_lap(header.runs, base)?;
        }
        if ready > len || ready > self.inbox.staging.lap() {
            return Err(Breach::Progress);
        }
        self.inbox.next_base = base + len;
        self.inbox.staged = self.inbox.staged.max(base + ready);
        self.inbox.drained = base;
        self.inbox.tickets += 1;
        let ticket = self.inbox.tickets;
        self.inbox.transfer = None;
        self.inbox.halved = false;
        if ready < len {
            // The second half is copied meanwhile: nothing else is waited for.
            self.inbox.staging.prefetch(base, ready.min(2 * EARLY));
            self.peer.prefetch(Line::Staged);
        } else {
            self.inbox.staging.prefetch(base, ready.min(EARLY));
        }
        let started = clock::timed(len);
        self.inbox.front = Some(Front { ticket, base, len, moved: 0, started, goes, stays: false });
        Ok(started)
    }

    /// The sender goes round the ring in another way from a payload on.
    #[cold]
    fn follow_lap(&mut self, word: u16, base: u64) -> Result<(), Breach> {
        let lap = check::lap(word, self.inbox.staging.ring())?;
        if lap.bytes != self.inbox.staging.lap() {
            // What came before has been taken out, and nothing may lie behind it: it would lie elsewhere now.
            if self.inbox.staged > base {
                return Err(Breach::Progress);
            }
            self.inbox.staging.set_lap(lap.bytes);
        }
        self.inbox.eviction = self.eviction.filter(|_| lap.evict);
        self.inbox.lap = word;
        Ok(())
    }

    /// The memory that a token names, cut to the payload, and how long it was: checked before a byte of it moves.
    pub(super) fn token_buffer(&mut self, token: Token, len: u32) -> Result<Result<(Vec<u8>, usize), Refused>, Breach> {
        match self.traffic.tokens.look(token) {
            Ok(Place::Buffer(buffer)) if buffer.len() < len as usize => return Ok(Err(Refused::TooLong)),
            Ok(Place::Pages { .. }) => return Err(Breach::Descriptor),
            Ok(Place::Buffer(_)) => {}
            Err(refused) => return Ok(Err(refused)),
        }
        self.own.clear_token(token.index);
        match self.traffic.tokens.redeem(token) {
            Ok(Place::Buffer(mut buffer)) => {
                let granted = buffer.len();
                buffer.truncate(len as usize);
                Ok(Ok((buffer, granted)))
            }
            _ => Err(Breach::Descriptor),
        }
    }

    /// From now on the front goes aside, if it was waiting for its reader and not too much lies aside already.
    pub(super) fn set_aside(&mut self) {
        if self.inbox.aside.bytes() >= ASIDE_MAX {
            return;
        }
        if let Some(front) = self.inbox.front.as_mut()
            && matches!(front.goes, Goes::Reader)
        {
            let from = usize::try_from(front.moved).unwrap_or(0);
            let rest = usize::try_from(front.len - front.moved).unwrap_or(0);
            let place = zeros(rest);
            front.stays = place.is_none();
            if let Some(place) = place {
                front.goes = Goes::Aside(from, place);
                self.inbox.tried = None;
            }
        }
    }

    /// Sets the front aside if its reader looks for other things while the sender waits for room in the ring: a sender
    /// may be held by a full queue, but not by a reader that has the payload in its hands and does not read it.
    pub(in crate::shm) fn release_sender(&mut self, stat: &Stat) -> Result<(), Breach> {
        if self.inbox.holds_sender(&self.peer) {
            self.set_aside();
            self.pump(stat)?;
            self.inbox.mark();
        }
        Ok(())
    }

    /// Throws payloads away whose right was dropped.
    pub(in crate::shm) fn discard_unread(&mut self, stat: &Stat) -> Result<(), Breach> {
        while let Some(ticket) = self.inbox.unread.pop() {
            drop(self.inbox.aside.take(ticket));
            match self.inbox.front.as_mut() {
                Some(front) if front.ticket == ticket => {
                    front.goes = Goes::Away;
                    self.inbox.tried = None;
                }
                _ => {}
            }
        }
        if self.inbox.front.as_ref().is_some_and(|front| matches!(front.goes, Goes::Away)) {
            self.pump(stat)?;
            self.inbox.mark();
        }
        Ok(())
    }

    /// Moves what has arrived of the front to where it goes by itself; delivers its message, if that waited for it.
    pub(super) fn pump(&mut self, stat: &Stat) -> Result<Option<Incoming>, Breach> {
        let Some(mut front) = self.inbox.front.take() else { return Ok(None) };
        let done = self.move_on(&mut front);
        if done != Ok(true) {
            // Also where the sender was found to lie: the memory that its token named goes back to whoever gave it.
            self.inbox.front = Some(front);
            self.inbox.tried = Some(self.inbox.staged);
            return done.map(|_| None);
        }
        let copied = front.len * u64::from(!matches!(front.goes, Goes::Away));
        stat.add(Counter::Copies, u64::from(copied > 0));
        stat.add(Counter::CopiedBytes, copied);
        let pulses = self.inbox.pulses(front.moved);
        stat.add(Counter::Pulses, u64::from(pulses));
        match front.goes {
            Goes::Buffer(expected) => {
                let Expected { buffer, control, header, .. } = *expected;
                let mut arrival = self.arrival(control, &header, Payload::Buffer(buffer), front.started, stat);
                if let Some(arrived) = arrival.cargo_mut() {
                    arrived.receipt.finished = clock::timed(front.len);
                    arrived.receipt.pulses = pulses;
                }
                Ok(Some(arrival))
            }
            Goes::Aside(from, bytes) => {
                self.inbox.aside.put(front.ticket, Aside { from, bytes, pulses });
                Ok(None)
            }
            Goes::Away | Goes::Reader => Ok(None),
        }
    }

    /// Moves what has arrived of the front to where it goes by itself: whether that is all of it.
    fn move_on(&mut self, front: &mut Front) -> Result<bool, Breach> {
        let Front { base, len, moved, goes, .. } = front;
        let to = match goes {
            Goes::Reader => return Ok(false),
            Goes::Away => return self.advance_away(moved, *base, *len),
            Goes::Buffer(expected) => (0, expected.buffer.as_mut_slice()),
            Goes::Aside(from, bytes) => (*from, bytes.as_mut_slice()),
        };
        Ok(self.advance(*len, moved, *base, to, &mut ())? == Step::Done)
    }

    /// One turn of the engine over the receiving stage: into `to`, whose first byte is byte `first` of the payload.
    pub(super) fn advance(
        &mut self,
        len: u64,
        moved: &mut u64,
        base: u64,
        (first, to): (usize, &mut [u8]),
        trace: &mut impl Trace,
    ) -> Result<Step, Breach> {
        let untouched = *moved == 0 && first == 0 && self.inbox.staged > base;
        if untouched && self.moves_at_once(len) && self.take_at_once(len, moved, base, to, trace)? {
            return Ok(Step::Done);
        }
        let transfer = self.inbox.transfer.get_or_insert_with(|| {
            let mut transfer = Transfer::new(len, self.policy);
            let longest = longest_minpulse(len, self.inbox.staging.lap());
            // The rest of a short one is late already: what there is of it is taken.
            transfer.set_minpulse_max(if len <= LEAST_SHARE { 1 } else { longest });
            transfer.set_timed(tune::is_timed(self.inbox.transfers, len));
            self.inbox.transfers = self.inbox.transfers.wrapping_add(1);
            transfer
        });
        transfer.set_timed(transfer.is_timed() || listens(trace));
        loop {
            let (before, seen) = (*moved, self.inbox.staged);
            let mut mover = Inbound {
                to: (first, &mut *to),
                base,
                len,
                moved: *moved,
                staged: self.inbox.staged,
                staging: &self.inbox.staging,
                copier: &mut self.inbox.copier,
                eviction: self.inbox.eviction,
                own: &self.own,
                peer: &self.peer,
                socket: &self.socket,
                misreport: None,
            };
            let now = if transfer.is_timed() { clock::now() } else { Instant::default() };
            let step = transfer.poll(now, &mut mover, &mut self.tuners, trace);
            let misreport = mover.misreport;
            *moved = mover.moved;
            self.inbox.staged = mover.staged;
            self.inbox.drained = base + *moved;
            self.inbox.told = if *moved > before { self.inbox.drained } else { self.inbox.told };
            if let Some(breach) = misreport {
                return Err(breach);
            }
            match step {
                Step::Misreported { .. } => return Err(Breach::Progress),
                Step::Done => {
                    if transfer.is_timed() {
                        self.own.set_minpulse(self.tuners[Stage::AdapterToHost.index()].minpulse(MINPULSE_OF));
                    }
                    return Ok(Step::Done);
                }
                // What has come during the look may fill the ring, of which the engine asked for the room before: then
                // nothing more comes, and nobody rings, until some of it is taken.
                Step::Waiting if *moved == before && self.inbox.staged == seen => {
                    // The sender may be waiting for the room of the payload before this one.
                    self.tell_drained();
                    return Ok(Step::Waiting);
                }
                Step::Waiting | Step::Moving => {}
            }
        }
    }

    /// A payload of so few bytes that the rule makes one pulse of it: what is there, and then the rest, which its
    /// sender had in its hands when it announced the first half. False if that does not come; then nothing is taken.
    fn take_at_once(
        &mut self,
        len: u64,
        moved: &mut u64,
        base: u64,
        to: &mut [u8],
        trace: &mut impl Trace,
    ) -> Result<bool, Breach> {
        let (mut start, mut begin) = (traced(trace), 0);
        let there = len.min(self.inbox.staged - base);
        let (first, rest) = to[..usize::try_from(len).unwrap_or(0)].split_at_mut(usize::try_from(there).unwrap_or(0));
        self.inbox.take(base, first);
        if !rest.is_empty() {
            let end = traced(trace);
            if !self.comes(base + len)? {
                return Ok(false);
            }
            trace.pulse(Stage::AdapterToHost, 0, there, start, end);
            (start, begin, self.inbox.halved) = (traced(trace), there, true);
            self.inbox.take(base + there, rest);
        }
        if let Some(eviction) = self.inbox.eviction {
            self.inbox.staging.evict(base, len, eviction);
        }
        *moved = len;
        self.inbox.drained = base + len;
        if self.inbox.drained.wrapping_sub(self.inbox.told) >= self.inbox.staging.lap() / TOLD_PER_RING {
            self.tell_drained();
        }
        trace.pulse(Stage::AdapterToHost, begin, len - begin, start, traced(trace));
        Ok(true)
    }

    /// Whether the ring is filled up to `end` within a few looks.
    fn comes(&mut self, end: u64) -> Result<bool, Breach> {
        let inbox = &mut self.inbox;
        for _ in 0..LOOKS {
            let alleged = self.peer.get(Line::Staged);
            inbox.staged = check::staged(inbox.staged, alleged, inbox.drained, inbox.staging.lap())?;
            if inbox.staged >= end {
                return Ok(true);
            }
            spin_loop();
        }
        Ok(false)
    }

    /// Tells the sender how far its bytes have been taken out, if it does not know.
    pub(in crate::shm) fn tell_drained(&mut self) {
        if self.inbox.told != self.inbox.drained {
            self.inbox.told = self.inbox.drained;
            self.own.set(Line::Drained, self.inbox.drained);
            patience::wake(&self.peer, &self.socket);
        }
    }

    /// Lets the front go by without looking at it.
    pub(super) fn advance_away(&mut self, moved: &mut u64, base: u64, len: u64) -> Result<bool, Breach> {
        let inbox = &mut self.inbox;
        inbox.staged = check::staged(inbox.staged, self.peer.get(Line::Staged), inbox.drained, inbox.staging.lap())?;
        *moved = inbox.staged.saturating_sub(base).clamp(*moved, len);
        inbox.drained = base + *moved;
        self.tell_drained();
        Ok(*moved == len)
    }

    /// Reads a short payload that is there whole, as most are in a stream of them: nothing to wait for or to decide.
    #[inline]
    pub(crate) fn read_whole(
        &mut self,
        arriving: &mut Arriving,
        into: &mut [u8],
        trace: &mut impl Trace,
        stat: &Stat,
    ) -> Option<Read> {
        let front = self.inbox.front.as_ref()?;
        let &Front { ticket, base, len, moved, goes: Goes::Reader, .. } = front else { return None };
        let untouched = moved == 0 && self.inbox.staged > base;
        if ticket != arriving.ticket || !untouched || !self.moves_at_once(len) {
            return None;
        }
        let to = into.get_mut(..arriving.bytes as usize)?;
        // What is wrong with the counter is found again, and told, by whoever waits for the rest.
        if !self.take_at_once(len, &mut 0, base, to, trace).unwrap_or(false) {
            return None;
        }
        self.inbox.front = None;
        self.inbox.spare = arriving.shelf.take();
        stat.add(Counter::Copies, 1);
        stat.add(Counter::CopiedBytes, len);
        let pulses = self.inbox.pulses(len);
        stat.add(Counter::Pulses, u64::from(pulses));
        Some(Read { valid: to.len(), done: true, pulses, extra_copies: 0 })
    }

    /// Whether the rule makes one pulse of so many bytes, once all of them are there.
    #[inline]
    fn moves_at_once(&self, len: u64) -> bool {
        len <= LEAST_SHARE && self.inbox.transfer.is_none() && !matches!(self.policy, Policy::Fixed(_))
    }

    /// Reads what has arrived of a payload, without waiting: how many bytes at the start of `into` are valid now. The
    /// early notice; the same memory has to be passed each time.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_some(
        &mut self,
        arriving: &mut Arriving,
        into: &mut [u8],
        trace: &mut impl Trace,
        stat: &Stat,
    ) -> Result<Read, ReadError> {
        let len = arriving.bytes as usize;
        let into = into.get_mut(..len).ok_or(ReadError::TooSmall(len))?;
        if let Some(read) = self.take_set_aside(arriving, into, stat) {
            return Ok(read);
        }
        let Some(mut front) = self.inbox.front.take_if(|front| front.ticket == arriving.ticket) else {
            return Err(self.ending.map_or(ReadError::Nothing, ReadError::Closed));
        };
        if let Goes::Aside(valid, _) = front.goes {
            self.inbox.front = Some(front);
            self.pump(stat).map_err(|breach| self.unreadable(breach))?;
            self.inbox.mark();
            // If that was the rest of it, nobody rings for it again.
            let whole = self.take_set_aside(arriving, into, stat);
            return Ok(whole.unwrap_or(Read { valid, done: false, pulses: 0, extra_copies: 0 }));
        }
        let step = self.advance(front.len, &mut front.moved, front.base, (0, into), trace);
        let done = step.map_err(|breach| self.unreadable(breach))? == Step::Done;
        let pulses = self.inbox.pulses(front.moved);
        let valid = usize::try_from(front.moved).unwrap_or(0);
        if done {
            self.inbox.spare = arriving.shelf.take();
            stat.add(Counter::Copies, 1);
            stat.add(Counter::CopiedBytes, front.len);
            stat.add(Counter::Pulses, u64::from(pulses));
        } else {
            self.inbox.front = Some(front);
        }
        Ok(Read { valid, done, pulses, extra_copies: 0 })
    }

    /// The rest of a payload, if all of that lies aside.
    fn take_set_aside(&mut self, arriving: &mut Arriving, into: &mut [u8], stat: &Stat) -> Option<Read> {
        let Aside { from, bytes, pulses } = self.inbox.aside.take(arriving.ticket)?;
        into[from..].copy_from_slice(&bytes);
        stat.add(Counter::Copies, 1);
        stat.add(Counter::CopiedBytes, bytes.len() as u64);
        arriving.shelf = None;
        Some(Read { valid: into.len(), done: true, pulses, extra_copies: 1 })
    }

    pub(super) fn unreadable(&mut self, breach: Breach) -> ReadError {
        self.end(CloseReason::Breach(breach));
        ReadError::Closed(CloseReason::Breach(breach))
    }

    /// Reads a payload into private memory while it arrives, and waits for the rest of it: one that
    /// `Link::read_whole` has not read.
    ///
    /// # Errors
    /// [`ReadError`]; then what `into` holds is of no use.
    pub fn read(
        &mut self,
        arriving: &mut Arriving,
        into: &mut [u8],
        trace: &mut impl Trace,
        stat: &Stat,
    ) -> Result<Read, ReadError> {
        let mut patience = Patience::new(self.deadline);
        let mut drained = self.inbox.drained;
        loop {
            let read = self.read_some(arriving, into, trace, stat)?;
            if read.done {
                return Ok(read);
            }
            if self.inbox.drained != drained {
                drained = self.inbox.drained;
                patience.progress();
                continue;
            }
            if let Some(reason @ CloseReason::Stalled) = self.ending {
                return Err(ReadError::Closed(reason));
            }
            let (peer, staged) = (&self.peer, self.inbox.staged);
            let waited =
                patience.pass(&self.socket, (&self.own, self.fence), Nap::Long, || peer.get(Line::Staged) != staged);
            let last_bytes = self.peer.get(Line::Staged) != staged;
            match self.waited(waited) {
                Err(reason) if !last_bytes => return Err(ReadError::Closed(reason)),
                _ => {}
            }
        }
    }
}

/// Bytes of a payload that are asked for before they are copied out: the processor's own look-ahead finds the others.
const EARLY: u64 = 1024;

/// Looks for the second half of a short payload: it is copied already when the first is seen, or its sender was
/// stopped.
const LOOKS: u32 = 64;

/// How often the sender is told about short payloads while the ring goes round once. Its look for room takes the
/// counter's cache line away from us, so it shall find much room at each look; a poll that finds nothing tells the
/// rest.
const TOLD_PER_RING: u64 = 8;

/// The last stage of a cut-through copy: out of the staging ring into private memory, while the sender still fills it.
struct Inbound<'a> {
    to: (usize, &'a mut [u8]),
    base: u64,
    len: u64,
    moved: u64,
    staged: u64,
    staging: &'a Staging,
    copier: &'a mut Copier,
    eviction: Option<Eviction>,
    own: &'a Own,
    peer: &'a Peer,
    socket: &'a OwnedFd,
    misreport: Option<Breach>,
}

impl Adapter for Inbound<'_> {
    fn capability(&self, stage: Stage) -> Capability {
        match stage {
            Stage::HostToAdapter => Capability::OBSERVED,
            Stage::AdapterToLink | Stage::LinkToAdapter => Capability::ABSENT,
            Stage::AdapterToHost => Capability::DRIVEN,
        }
    }

    fn idle(&mut self, _now: Instant, _stage: Stage) -> bool {
        true
    }

    fn moved(&mut self, _now: Instant, stage: Stage) -> u64 {
        if stage == Stage::AdapterToHost {
            return self.moved;
        }
        if self.staged < self.base + self.len {
            let drained = self.base + self.moved;
            match check::staged(self.staged, self.peer.get(Line::Staged), drained, self.staging.lap()) {
                Ok(staged) => self.staged = staged,
                Err(breach) => self.misreport = Some(breach),
            }
        }
        self.staged.saturating_sub(self.base).min(self.len)
    }

    fn room(&mut self, _now: Instant, stage: Stage) -> u64 {
        match stage {
            Stage::AdapterToHost => self.len - self.moved,
            _ => (self.base + self.moved + self.staging.lap()).saturating_sub(self.staged.max(self.base)),
        }
    }

    fn start(&mut self, _now: Instant, _stage: Stage, pulse: Pulse) {
        let Ok(len) = usize::try_from(pulse.len) else { return };
        let Ok(offset) = usize::try_from(pulse.offset) else { return };
        let place = offset - self.to.0;
        let (staging, position) = (self.staging, self.base + self.moved);
        let to = &mut self.to.1[place..place + len];
        self.copier.copy(len, |copying| staging.copy_out(position, to, copying));
        if let Some(eviction) = self.eviction {
            self.staging.evict(self.base + self.moved, pulse.len, eviction);
        }
        self.moved += pulse.len;
        self.own.set(Line::Drained, self.base + self.moved);
        patience::wake(self.peer, self.socket);
    }
}
