//! A message goes out: by name, copied, or lent while the call lasts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cutthrough_engine::net::ways::Way;
use cutthrough_engine::net::{Cargo as NetCargo, Refused as NetRefused};
use cutthrough_engine::receipt::{Path, Receipt};
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::Token;
use cutthrough_segment::bell::NAP_MS;
use cutthrough_segment::page::{Landed, Page};
use cutthrough_wire::frame::{HEADER_BYTES, OPENING_BYTES};
use cutthrough_wire::slot::{CONTROL_MAX, PAYLOAD_MAX};

use super::carried::Lies;
use super::door::{Core, Udp};
use super::lanes::adapter_of;
use super::line::{SPIN_NS, nap, reason};
use super::outgoing::{COALESCED, Kept, Outgoing};
use crate::clock;
use crate::shm::link::{CloseReason, SendError};
use crate::shm::meanwhile::Meanwhile;
use crate::shm::send::{Cargo, Load, Sheaf};
use crate::stall::Stall;
use crate::stat::Stat;
use crate::sys::datagram::TRAIN_BYTES;
use crate::sys::lent::lend;
use crate::sys::spliced::Spliced;

/// Bytes of a payload in one frame that waits for others as a control message does, at most: so many are counted, not
/// measured.
pub(super) const SHORT: usize = 2048;
/// Bytes of a payload that wait although they have to be copied twice for that, at most. That costs less than a call of
/// the kernel for a short train, here and at the other side.
const COPIED_TWICE: usize = TRAIN_BYTES;

/// Bytes that a channel sends ahead of what has arrived before a sender waits for that: some trains.
const AHEAD: u64 = 4 * TRAIN_BYTES as u64;
/// The same where trains lie in memory that takes turns: a third of that. Who went on until the window was full would
/// have all of it under way, had the kernel copy the rest, and fill memory of a receiver that has not asked for it yet.
const LAID_AHEAD: u64 = Spliced::TRAINS as u64 / 3 * TRAIN_BYTES as u64;
/// Bytes that are copied before one has looked whether more has arrived, about: so few wait for nothing.
const LOOK: usize = 16 << 10;
/// Bytes that are copied in a nanosecond, about.
const COPIED_IN_NS: u64 = 16;

/// Nanoseconds between two times that a sender which waits, and is kept awake by what comes, lets others come who may
/// wait for it.
const RELIEF_NS: u64 = 1_000_000;

/// How long a sender sleeps at a time that has other channels over shared memory, in nanoseconds.
const SHORT_NAP_NS: u64 = NAP_MS.unsigned_abs() as u64 * 1_000_000;

/// For how long a sender waits for its payload to go on, where all that is left could be copied instead: as long as
/// that would take, so that it never costs twice the better choice. What has left from where it lies needs no copy once
/// it is acknowledged, and a sender that copies whatever it is given fills memory that has left the caches when it
/// goes.
const fn worth_waiting(lacking: usize) -> u64 {
    let copying = lacking as u64 / COPIED_IN_NS;
    if copying < SPIN_NS { copying } else { SPIN_NS }
}

impl Udp {
    /// Sends a message.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send(
        &self,
        index: usize,
        control: &[u8],
        cargo: Cargo<'_>,
        others: (&mut impl Meanwhile, &Stat),
    ) -> Result<Receipt, SendError> {
        if control.len() > CONTROL_MAX {
            return Err(SendError::TooLong);
        }
        let Cargo { load, token, cookie } = cargo;
        match load {
            Load::None => {
                let receipt = self.send_control(index, control)?;
                self.complete(index, cookie);
                Ok(receipt)
            }
            Load::Copy(bytes) if bytes.len() as u64 > PAYLOAD_MAX => Err(SendError::TooLong),
            Load::Copy(bytes) => self.send_copy((index, control), bytes, token, cookie, others),
            Load::Pages(sheaf) => self.send_pages(index, control, sheaf, token, cookie),
            Load::Landed(landed) => self.send_landed(index, control, landed, token, cookie),
        }
    }

    /// Whether a message can be sent now; looks at the network if it seems not. There is no room either while copies of
    /// as much private memory are kept for the peer, beside what is on its way, as the staging ring holds: with what is
    /// sent before that it is less than twice as much.
    ///
    /// # Errors
    /// [`SendError::Full`] or [`SendError::Closed`].
    pub fn check_room(&self, index: usize) -> Result<(), SendError> {
        let mut core = self.enter();
        let mut full = core.is_full(index);
        if full {
            core.transmit(clock::again(), true);
            core.turn(None);
            full = core.is_full(index);
        }
        match core.net.room(index) {
            Some(_) if full => Err(SendError::Full),
            Some(_) => Ok(()),
            None => Err(SendError::Closed(Self::closed(&core, index))),
        }
    }

    /// The application is to be told when there is room for a message of a channel.
    pub(crate) fn ask_for_room(&self, index: usize) {
        self.shared.lock().asked.push(index);
    }

    /// Whether there is by now: then nobody asks for it any more. `None` if the channel has ended.
    pub(crate) fn found_room(&self, index: usize) -> Option<bool> {
        let mut core = self.shared.lock();
        core.net.room(index)?;
        let found = !core.is_full(index);
        if found {
            core.asked.retain(|asked| *asked != index);
        }
        Some(found)
    }

    /// Whether so many bytes of private memory would wait for the peer: more than are copied for it, now or ever.
    #[must_use]
    pub fn would_wait(&self, index: usize, bytes: usize) -> bool {
        bytes > self.staging || self.enter().kept(index, self.staging - bytes) + bytes > self.staging
    }

    fn complete(&self, index: usize, cookie: Option<u64>) {
        if let Some(cookie) = cookie {
            self.shared.lock().events.push_back(super::Happened::Completed(index, cookie));
        }
    }

    fn queue(
        core: &mut Core,
        index: usize,
        control: &[u8],
        cargo: Option<NetCargo<Outgoing>>,
    ) -> Result<u64, SendError> {
        let refused = match core.net.send(index, control, cargo) {
            Ok(number) => return Ok(number),
            Err((NetRefused::Closed, _)) => return Err(SendError::Closed(Self::closed(core, index))),
            Err((NetRefused::Full, cargo)) => cargo,
        };
        // Who sends without polling would never see that there is room.
        core.transmit(clock::again(), true);
        core.turn(None);
        match core.net.send(index, control, refused) {
            Ok(number) => Ok(number),
            Err((NetRefused::Full, _)) => Err(SendError::Full),
            Err((NetRefused::Closed, _)) => Err(SendError::Closed(Self::closed(core, index))),
        }
    }

    #[inline]
    fn send_control(&self, index: usize, control: &[u8]) -> Result<Receipt, SendError> {
        let mut core = self.enter();
        Self::queue(&mut core, index, control, None)?;
        core.queued(index, self.shared.more.load(Ordering::Relaxed), control.len(), clock::again);
        Ok(self.crossed(core.net.way(index)))
    }

    fn send_pages(
        &self,
        index: usize,
        control: &[u8],
        sheaf: Sheaf,
        token: Option<Token>,
        cookie: Option<u64>,
    ) -> Result<Receipt, SendError> {
        let pages: Vec<Page> = match sheaf {
            Sheaf::One(page) => vec![page],
            Sheaf::Many(pages) => pages,
        };
        let mut core = self.enter();
        let Some(store) = core.net.memory.get(index) else {
            return Err(SendError::Closed(Self::closed(&core, index)));
        };
        if !pages.iter().all(|page| store.owns(page)) {
            return Err(SendError::ForeignPage);
        }
        let all_but_last = pages.split_last().map_or(&[][..], |(_, rest)| rest);
        if !all_but_last.iter().all(Page::is_full) {
            return Err(SendError::PartialPage);
        }
        let (bytes, runs): (usize, usize) = (pages.iter().map(|page| page.len()).sum(), pages.len());
        if bytes as u64 > PAYLOAD_MAX {
            return Err(SendError::TooLong);
        }
        let mut begin = 0;
        let pages = pages
            .into_iter()
            .map(|page| {
                let at = begin;
                begin += page.len();
                (at, page)
            })
            .collect();
        let started = clock::now();
        let flights = store.flights().cloned();
        let lies = core.chooses(index, bytes, started);
        let laid_out = lies.copies();
        let pages = Outgoing::Pages(pages, flights.clone(), lies);
        let cargo = NetCargo { load: pages, token, pages: true, cookie };
        Self::queue(&mut core, index, control, Some(cargo))?;
        self.send_off(&mut core, index, bytes, started);
        let way = core.net.way(index);
        // What is sealed lies elsewhere. Frames that reach across two runs of pages are copied.
        let across = u32::from(runs > 1);
        let in_place = flights
            .filter(|_| across == 0 && !self.is_sealed())
            .is_some_and(|flights| core.lanes.as_ref().is_some_and(|lanes| lanes.sends_in_place(way.number, &flights)));
        let copies = if in_place { 0 } else { Self::copied_by(way).max(across).max(laid_out) };
        Ok(self.sent(bytes, copies, started, way))
    }

    /// Sends a payload that was received: held until the other side has it. If only this process writes there, from
    /// where it lies.
    fn send_landed(
        &self,
        index: usize,
        control: &[u8],
        landed: Arc<Landed>,
        token: Option<Token>,
        cookie: Option<u64>,
    ) -> Result<Receipt, SendError> {
        let (bytes, runs, is_sole) = (landed.len(), landed.runs(), landed.is_sole());
        let mut core = self.enter();
        let started = clock::now();
        let lies = core.chooses(index, bytes, started);
        let laid_out = lies.copies();
        let load = Outgoing::Landed(landed, lies);
        let cargo = NetCargo { load, token, pages: true, cookie };
        Self::queue(&mut core, index, control, Some(cargo))?;
        self.send_off(&mut core, index, bytes, started);
        let way = core.net.way(index);
        let copies = match is_sole {
            true => Self::copied_by(way).max(u32::from(runs > 1)).max(laid_out),
            false => 1 + Self::copied_by(way),
        };
        Ok(self.sent(bytes, copies, started, way))
    }

    /// A ring's memory is the kernel's: what goes there is copied, unless it lies there.
    fn copied_by(way: Way) -> u32 {
        u32::from(way.number > 0)
    }

    fn sent(&self, bytes: usize, copies: u32, started: Instant, way: Way) -> Receipt {
        let bytes = bytes as u64;
        // So few are not timed.
        let finished = clock::timed(bytes);
        let started = if finished == Instant::default() { finished } else { started };
        Receipt { path: Path::Wire, copies, movers: 1, bytes, started, finished, ..self.crossed(way) }
    }

    /// What a receipt says of any message that goes this way.
    fn crossed(&self, way: Way) -> Receipt {
        Receipt { adapter: adapter_of(way.number), why: way.why, sealed: self.is_sealed(), ..Receipt::default() }
    }

    /// Sends private memory: straight from where it lies, for as long as this call lasts; what is not acknowledged then
    /// is copied, so that it can be sent again.
    fn send_copy(
        &self,
        (index, control): (usize, &[u8]),
        bytes: &[u8],
        token: Option<Token>,
        cookie: Option<u64>,
        others: (&mut impl Meanwhile, &Stat),
    ) -> Result<Receipt, SendError> {
        let _stay = self.stay();
        let now = clock::again();
        let sent = lend(bytes, |lent| {
            let mut core = self.shared.lock();
            let lies = core.splices(index);
            // What waits for others is copied first.
            let lies = core.carried.choose(bytes.len(), lies, false);
            let mut loan = Loan { core: &mut core, index, message: None };
            let cargo = NetCargo { load: Outgoing::Lent(lent, lies), token, pages: false, cookie: None };
            let message = Self::queue(loan.core, index, control, Some(cargo))?;
            loan.message = Some(message);
            loan.core.carried.begin(index, message);
            let copies = self.see_off(&mut loan, bytes, now, others)?;
            Ok((copies, loan.core.net.way(index)))
        });
        let (copies, way) = sent?;
        self.complete(index, cookie);
        Ok(self.sent(bytes.len(), copies + Self::copied_by(way), now, way))
    }

    /// Sends what may go, unless it waits for others to fill a train: whether it does. If not all may go that should,
    /// acknowledgements that have come make room: who sends without polling would not see them.
    fn send_off(&self, core: &mut Core, index: usize, bytes: usize, now: Instant) -> bool {
        let more = self.shared.more.load(Ordering::Relaxed);
        let waits = if bytes <= SHORT && core.net.is_one_frame(index, bytes) {
            core.queued(index, more, HEADER_BYTES + OPENING_BYTES + bytes, || now)
        } else {
            core.gathers(index, more, now)
        };
        let behind = core.net.behind(index);
        // More than a train of them waits for room.
        let held = behind.saturating_sub(1).saturating_mul(bytes as u64) > TRAIN_BYTES as u64;
        if held || behind > 0 && !waits {
            core.turn(None);
        }
        waits
    }

    /// Whether it is worth waiting with a payload that lacks so many bytes: more than `ahead` bytes are under way, and
    /// something has moved a short time ago, as `last` remembers.
    fn goes_on(core: &mut Core, index: usize, last: &mut (u64, Instant), (lacking, ahead): (usize, u64)) -> bool {
        if core.net.outstanding(index, ahead) <= ahead {
            return false;
        }
        let (strides, now) = (core.net.strides_of(index), clock::again());
        if strides != last.0 {
            *last = (strides, now);
        }
        now.saturating_since(last.1) < worth_waiting(lacking)
    }

    /// Sends until what is not acknowledged may be copied: how often it was. It begins at `begun`. Less than the
    /// staging ring holds is copied as soon as it is not worth waiting for.
    fn see_off(
        &self,
        loan: &mut Loan<'_>,
        bytes: &[u8],
        begun: Instant,
        (others, stat): (&mut impl Meanwhile, &Stat),
    ) -> Result<u32, SendError> {
        let (index, Some(message)) = (loan.index, loan.message) else { return Ok(0) };
        let splices = loan.core.carried.lays();
        let (mut looked, mut relieved, mut last) = (begun, begun, (0, begun));
        let mut stall = Stall::new(self.deadline, begun);
        let mut waits = self.send_off(loan.core, index, bytes.len(), begun);
        let (left, body) = loan.core.net.left(index, message);
        // What waits is copied when this call ends, and once more behind the headers of short frames.
        let twice = left > 0 && left.min(body) <= COALESCED && !self.is_sealed();
        if waits && twice && left > COPIED_TWICE {
            loan.core.transmit(clock::again(), true);
            waits = false;
        }
        loop {
            if loan.core.net.is_done(index, message) {
                return match loan.core.net.ended(index) {
                    Some(ending) if loan.core.net.peer(index).is_none() => Err(SendError::Closed(reason(ending))),
                    _ => Ok(u32::from(loan.core.carried.end(&loan.core.spare))),
                };
            }
            let there = loan.core.net.acknowledged(index, message);
            let lacking = bytes.len() - there.min(bytes.len());
            // What has gone from memory of its own need not be copied, but that memory takes turns.
            let to_copy = if splices { loan.core.net.left(index, message).0 } else { lacking };
            let much = if to_copy > LOOK { (to_copy, AHEAD) } else { (lacking, LAID_AHEAD) };
            let may_go_on = (to_copy > LOOK || splices) && !waits;
            let goes_on = may_go_on && Self::goes_on(loan.core, index, &mut last, much);
            if lacking <= self.staging && !goes_on {
                let core = &mut *loan.core;
                let all = core.net.memory.get(index).map(|store| store.kept.clone()).unwrap_or_default();
                let mut kept = Kept::new(bytes, &mut core.carried, &core.spare, all);
                core.net.lacks(index, message, |begin, end| kept.want(begin, end));
                kept.keep_what_is_wanted();
                core.net.lacks(index, message, |begin, end| kept.add(begin, end, bytes));
                core.net.replace(index, message, Outgoing::Copy(kept));
                let laid = left > 0 && core.carried.lays_what_is_kept();
                let again = u32::from(waits && (twice || laid));
                return Ok(again + u32::from(core.carried.end(&core.spare) || there < bytes.len()));
            }
            let now = clock::again();
            // Those before it are taken first, however long that lasts.
            stall.moves(loan.core.net.got_on(index).1);
            if stall.left(now).is_none() {
                // The loan ends the channel when it is dropped.
                return Err(SendError::Closed(CloseReason::Stalled));
            }
            let quiet = !loan.core.turn(None);
            let naps = quiet && now.saturating_since(looked) > SPIN_NS;
            // Whatever comes meanwhile, and however much.
            let mut others_came = false;
            if naps || now.saturating_since(relieved) > RELIEF_NS {
                loan.core.relieve(0);
                others_came = others.relieve(stat);
                relieved = now;
            }
            if !quiet {
                looked = now;
            } else if naps {
                if !others_came && loan.core.doze() {
                    let soon = (!others.is_nobody()).then(|| now.after(SHORT_NAP_NS));
                    nap(self, loan.core.timer().into_iter().chain(soon).min());
                }
                looked = clock::again();
            }
        }
    }
}

impl Core {
    /// How trains of pages lie, so many bytes of them, which are to be sent now.
    fn chooses(&mut self, index: usize, bytes: usize, now: Instant) -> Lies {
        let (may, waits) = (self.splices(index), self.sink.is_busy(now));
        self.carried.choose(bytes, may, waits && bytes > SHORT)
    }

    /// Whether there is no room for a message of a channel that is open: see [`Udp::check_room`].
    pub(super) fn is_full(&mut self, index: usize) -> bool {
        let staging = self.config.staging_bytes as usize;
        self.net.room(index) == Some(0) || self.kept(index, staging.saturating_sub(1)) >= staging
    }

    /// Whether there is room in a channel of which the application has asked to be told.
    pub(super) fn has_asked_room(&mut self) -> bool {
        (0..self.asked.len()).any(|place| !self.is_full(self.asked[place]))
    }

    /// Bytes of a channel's payloads of which copies are kept; of more than `enough`, only those that are not on their
    /// way. What is has a bound of its own, the window, and a fast stream needs more of it than a peer is worth that
    /// takes nothing.
    fn kept(&mut self, index: usize, enough: usize) -> usize {
        match self.net.memory.get(index).map_or(0, |store| store.kept.get()) {
            kept if kept <= enough => kept,
            kept => kept.saturating_sub(usize::try_from(self.net.in_flight(index)).unwrap_or(usize::MAX)),
        }
    }
}

/// Memory that is lent to a message for the time of a call: taken back when this is dropped, whatever happens.
struct Loan<'a> {
    core: &'a mut Core,
    index: usize,
    message: Option<u64>,
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.core.carried.end(&self.core.spare);
        if let Some(message) = self.message
            && matches!(self.core.net.load(self.index, message), Some(Outgoing::Lent(..)))
        {
            self.core.net.abandon(self.index);
        }
    }
}
