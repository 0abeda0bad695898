//! One channel over a network, as its endpoint uses it.

use cutthrough_engine::net::channel::Ending;
use cutthrough_engine::net::inbox::{Reading, Story};
use cutthrough_engine::receipt::{Path, Receipt, Why};
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::Token;
use cutthrough_segment::page::Page;
use cutthrough_wire::slot::PAYLOAD_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::door::{Core, Udp};
use super::lanes::{PLACING, Troubles, adapter_of};
use super::memory::Spot;
use crate::clock;
use crate::shm::grant::{Landing, NoMemory, RevokeError};
use crate::shm::link::{CloseReason, Identity};
use crate::shm::receive::ReadError;
use crate::stall::Stall;

/// Nanoseconds of looking before a call that waits goes to sleep.
pub(super) const SPIN_NS: u64 = 50_000;
/// Longest sleep of a call that waits, in nanoseconds.
const NAP_NS: u64 = 5_000_000;

/// What the ending of a channel is to its user.
pub(crate) const fn reason(ending: Ending) -> CloseReason {
    match ending {
        Ending::Here => CloseReason::Here,
        Ending::Peer => CloseReason::Peer,
        Ending::Silent => CloseReason::Died,
        Ending::Breach(breach) => CloseReason::Breach(breach),
        Ending::Stalled => CloseReason::Stalled,
    }
}

/// What a receipt says of a payload that has come.
pub(crate) fn receipt(story: &Story, path: Path, sealed: bool, finished: Instant) -> Receipt {
    let bytes = u64::from(story.bytes);
    let by_xdp = story.way == PLACING;
    Receipt {
        path,
        copies: story.times,
        movers: 1,
        pulses: story.frames,
        bytes,
        placed: bytes - u64::from(story.copied).min(bytes),
        sealed,
        adapter: adapter_of(story.way),
        why: Why::default(),
        placement: by_xdp.then_some(story.choice.placement),
        placement_why: if by_xdp { story.choice.why } else { Why::default() },
        started: story.begun,
        finished,
    }
}

/// Nanoseconds for which a payload waits for its reader while the application looks for other things, before it comes
/// aside, whole: a copy more, and memory for it, so that its sender does not wait for what nobody is about to read.
pub(super) const UNREAD_NS: u64 = 20_000_000;

/// Sleeps until the socket has something, or `until`, or a nap has passed.
pub(super) fn nap(udp: &Udp, until: Option<Instant>) {
    let now = clock::now();
    let nap = until.map_or(NAP_NS, |until| until.saturating_since(now).min(NAP_NS));
    if clock::sleeps(Some(nap)) {
        return;
    }
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::try_from(nap).unwrap_or(0) };
    let mut watched: Vec<_> = udp.watched().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let _ = poll(&mut watched, Some(&timeout));
}

impl Core {
    /// See [`Net::relieve`].
    ///
    /// [`Net::relieve`]: cutthrough_engine::net::Net::relieve
    pub(super) fn relieve(&mut self, still_ns: u64) {
        let now = clock::now();
        self.net.relieve(now, still_ns);
        if self.net.has_work() {
            self.transmit(now, true);
        }
    }
}

impl Udp {
    /// Whether channels are sealed.
    pub(crate) const fn is_sealed(&self) -> bool {
        self.keys.is_some()
    }

    /// Who is on the other side of a channel.
    pub fn identity(&self, index: usize) -> Option<Identity> {
        let mut core = self.shared.lock();
        let (_, process, user, generation) = core.net.peer(index)?;
        Some(Identity { process, user, generation, key: core.net.peer_key(index) })
    }

    /// Closes a channel, once everything has arrived that it has sent.
    pub(crate) fn close(&self, index: usize) {
        let mut core = self.enter();
        core.net.close(index);
        // Whoever gets the number next must not be told of it.
        core.events.retain(|event| !matches!(event, super::Happened::Completed(of, _) if *of == index));
        core.transmit(clock::now(), true);
    }

    pub(super) fn closed(core: &Core, index: usize) -> CloseReason {
        core.net.ended(index).map_or(CloseReason::Here, reason)
    }

    /// Pages of a channel's pool.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn page(&self, index: usize, bytes: usize) -> Result<Page, NoMemory> {
        if bytes as u64 > PAYLOAD_MAX {
            return Err(NoMemory::TooLong);
        }
        let mut core = self.enter();
        core.find_pool(index);
        let Some(store) = core.net.memory.get(index) else {
            return Err(NoMemory::Closed(Self::closed(&core, index)));
        };
        if let Some(page) = store.page(bytes) {
            return Ok(page);
        }
        // Acknowledgements give pages back: those, too, that came with what the application was told of last.
        core.turn(None);
        core.release_pages();
        core.net.memory.get(index).and_then(|store| store.page(bytes)).ok_or(NoMemory::NoPages)
    }

    /// Posts runs of landing pages: how many.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn post(&self, index: usize, bytes: usize, count: u32) -> Result<u32, NoMemory> {
        if bytes as u64 > PAYLOAD_MAX {
            return Err(NoMemory::TooLong);
        }
        let mut core = self.enter();
        let mut posted = 0;
        loop {
            let Some(store) = core.net.memory.get(index) else {
                return Err(NoMemory::Closed(Self::closed(&core, index)));
            };
            let more = (posted..count).take_while(|_| store.post(bytes)).count();
            posted += u32::try_from(more).unwrap_or(0);
            if posted == count || !core.lets_go(index) {
                break;
            }
        }
        core.net.expect(index);
        match posted {
            0 if count > 0 => Err(NoMemory::NoPages),
            posted => Ok(posted),
        }
    }

    /// Grants a place for one payload.
    ///
    /// # Errors
    /// [`NoMemory`], and the place.
    pub fn grant(&self, index: usize, landing: Landing) -> Result<Token, (NoMemory, Landing)> {
        let mut core = self.enter();
        let Some(store) = core.net.memory.get(index) else {
            return Err((NoMemory::Closed(Self::closed(&core, index)), landing));
        };
        let page_bytes = store.page_bytes();
        let spot = match landing {
            Landing::Buffer(buffer) if buffer.len() as u64 > PAYLOAD_MAX => {
                return Err((NoMemory::TooLong, Landing::Buffer(buffer)));
            }
            Landing::Buffer(buffer) => Spot::Buffer(buffer),
            Landing::Pages(bytes) if bytes as u64 > PAYLOAD_MAX => return Err((NoMemory::TooLong, landing)),
            Landing::Pages(bytes) => {
                let whole = bytes.max(1).next_multiple_of(page_bytes);
                let mut pages = store.landing(whole);
                if pages.is_none() && core.lets_go(index) {
                    pages = core.net.memory.get(index).and_then(|store| store.landing(whole));
                }
                Spot::Pages(pages.ok_or((NoMemory::NoPages, landing))?, bytes)
            }
        };
        let Some(store) = core.net.memory.get(index) else {
            return Err((NoMemory::Closed(Self::closed(&core, index)), spot.into()));
        };
        let token = store.tokens.give(spot).map_err(|spot| (NoMemory::NoTokens, spot.into()))?;
        store.expect(token);
        core.net.expect(index);
        Ok(token)
    }

    /// Takes a token back.
    ///
    /// # Errors
    /// [`RevokeError`].
    pub fn revoke(&self, index: usize, token: Token) -> Result<Landing, RevokeError> {
        let mut core = self.enter();
        let Some(store) = core.net.memory.get(index) else {
            return Err(RevokeError::Closed(Self::closed(&core, index)));
        };
        let spot = store.tokens.revoke(token)?;
        store.granted.retain(|other| *other != token);
        Ok(spot.into())
    }

    /// Reads a payload that was handed over before it was there, and waits for it.
    pub(crate) fn read(&self, index: usize, message: u64, into: &mut [u8]) -> Result<Story, ReadError> {
        let _stay = self.stay();
        let mut core = self.shared.lock();
        let mut reading = Reading { message, into };
        let mut now = clock::again();
        let (mut looked, mut relieved, mut stall) = (now, now, Stall::new(self.deadline, now));
        loop {
            let Some((_, done)) = core.net.read(now, index, &mut reading, 0, true) else {
                return Err(ReadError::Closed(Self::closed(&core, index)));
            };
            if done {
                let story = core.net.forget(index, message).unwrap_or_default();
                // What follows has time until the reader asks for more or answers, unless somebody waits to hear of it.
                if core.net.is_wanting() || core.net.tells(index) {
                    core.transmit(now, false);
                } else {
                    core.owed = true;
                }
                return Ok(story);
            }
            // What is read last may come last, behind all others.
            stall.moves(core.net.got_on(index).0);
            if stall.left(now).is_none() {
                core.net.abandon(index);
                return Err(ReadError::Closed(CloseReason::Stalled));
            }
            // Others wait for this side as it waits for one of them.
            if now.saturating_since(relieved) > UNREAD_NS {
                core.net.relieve(now, UNREAD_NS);
                relieved = now;
            }
            core.transmit(now, true);
            if core.turn(Some((index, &mut reading))) {
                looked = now;
            } else if now.saturating_since(looked) > SPIN_NS {
                if core.doze() {
                    nap(self, core.timer());
                }
                looked = clock::again();
            }
            now = clock::again();
        }
    }

    /// Copies what has come of a payload, without waiting: how many bytes are valid, and the story once that is all.
    pub(crate) fn read_some(
        &self,
        index: usize,
        message: u64,
        into: &mut [u8],
        valid: usize,
    ) -> Result<(usize, Option<Story>), ReadError> {
        let mut core = self.enter();
        core.turn(None);
        let now = clock::again();
        let mut reading = Reading { message, into };
        let Some((valid, done)) = core.net.read(now, index, &mut reading, valid, false) else {
            return Err(ReadError::Closed(Self::closed(&core, index)));
        };
        let story = if done { core.net.forget(index, message) } else { None };
        core.transmit(now, true);
        core.looked_at = (index, core.net.strides_of(index));
        Ok((valid, story))
    }

    /// When bytes of any payload of a channel have come last.
    pub(crate) fn got_on(&self, index: usize) -> Instant {
        self.shared.lock().net.got_on(index).0
    }

    /// Ends a channel whose sender has stood still for too long in the middle of a payload.
    pub(crate) fn abandon(&self, index: usize) {
        self.enter().net.abandon(index);
    }

    /// While this side waits for what it has sent over shared memory to be taken: has all come aside that waits here
    /// for a reader. True if anything has come.
    pub(crate) fn relieve(&self) -> bool {
        let mut core = self.enter();
        let any = core.turn(None);
        core.relieve(0);
        any
    }

    /// While the application looks for other things: has those payloads come aside that have waited for a while.
    pub(crate) fn sets_aside(&self) {
        self.shared.lock().relieve(UNREAD_NS);
    }

    /// Takes back what dropped values have left.
    pub(crate) fn tidy(&self) {
        self.shared.lock().tidy(clock::now());
    }

    /// Counts of a channel: see [`cutthrough_engine::net::Net::counts`]; and runs posted, pages lent.
    pub(crate) fn counts(&self, index: usize) -> Option<[u64; 6]> {
        let mut core = self.shared.lock();
        let [a, b, c, d, e] = core.net.counts(index)?;
        let posted = core.net.memory.get(index).map_or(0, |store| store.waiting());
        Some([a, b, c, d, e, posted])
    }

    /// What the engine has counted since the beginning, and what has gone wrong below it.
    pub(crate) fn tally(&self) -> (cutthrough_engine::net::Tally, Troubles) {
        let core = &mut *self.shared.lock();
        let (rings, turnover) = core.lanes.as_mut().map(|lanes| (lanes.counts(), lanes.turnover())).unwrap_or_default();
        let (rings_lost, rings_reopened) = turnover;
        let overruns = core.overruns.look(&core.socket);
        let joined = core.joined.as_mut().map(|joined| (joined.joins, joined.overruns()));
        let (joins, at_joined) = joined.unwrap_or_default();
        let overruns = overruns + at_joined;
        (*core.net.tally(), Troubles { rings, rings_lost, rings_reopened, joins, overruns, ..core.troubles })
    }
}
