//! Pages on their way: lent to the peer, posted for it, granted to it. Plain bookkeeping of one channel.

use std::collections::VecDeque;
use std::sync::Arc;

use cutthrough_engine::check::{self, Breach};
use cutthrough_engine::token::Tokens;
use cutthrough_segment::bell;
use cutthrough_segment::half::{Own, Peer};
use cutthrough_segment::map::{Array, OwnArray};
use cutthrough_segment::page::{Handles, Pages, Release, Releases, Shelf, Waker};
use cutthrough_segment::pool::Pool;
use cutthrough_segment::record::{Reader, Writer};
use cutthrough_segment::ring::Impossible;
use cutthrough_segment::sync::AtomicU64;
use cutthrough_wire::layout::{Line, RECORDS, Sizes};
use cutthrough_wire::run::Run;

use super::lends::Lends;
use crate::incoming::Payload;
use crate::parcel::Parcel;

/// Messages of nothing but frozen pages that may be lent at a time. Of others each has a page of the pool, which is the
/// bound of those.
pub(super) const FROZEN_MAX: u32 = 1024;

/// What a granted token stands for.
#[derive(Debug)]
pub(crate) enum Place {
    /// Landing pages.
    Pages { first: u32, count: u32, bytes: u32 },
    /// Private memory of the caller's.
    Buffer(Vec<u8>),
}

/// Landing pages of ours that the peer may fill.
#[derive(Debug)]
struct Posted {
    first: u32,
    count: u32,
    /// Whether the peer has filled it and the caller not yet released it.
    filled: bool,
    /// Whether it is wanted back: then it is not posted again.
    recalled: bool,
}

/// What has come back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reclaimed {
    /// Pages that may be used again.
    pub(crate) pages: u64,
    /// Whether the peer may have more to give back, and have gone to sleep because its return ring was full.
    pub(crate) was_full: bool,
}

/// All pages of one channel.
#[derive(Debug)]
pub(crate) struct Traffic {
    // What we send from.
    pub(crate) pages: Pages,
    pub(crate) shelf: Arc<Shelf>,
    pub(super) lends: Lends,
    reclaims: Reader<Array<AtomicU64>>,
    /// Cookies of messages whose pages may be used again.
    pub(crate) completed: VecDeque<u64>,
    // What we receive into.
    pub(crate) landing: Pool,
    /// Our landing pages, as payloads lie in them.
    pub(crate) landing_ground: Handles,
    /// The peer's pool, as payloads lie in it.
    pub(crate) peer_ground: Handles,
    posted: Vec<Option<Posted>>,
    /// Numbers that no posted run has any more.
    unused: Vec<u16>,
    /// Runs that are wanted back, are not filled, and have not come back.
    recalled: u32,
    posts: Writer<OwnArray<AtomicU64>>,
    pub(crate) tokens: Tokens<Place>,
    returns: Writer<OwnArray<AtomicU64>>,
    /// Lends that were dropped, for which the return ring has had no room yet.
    return_backlog: VecDeque<u64>,
    /// Messages that the peer has lent and that were not returned yet.
    borrowed: u32,
    /// Pages of the peer's pool, and of its landing memory.
    peer_pages: u32,
    peer_landing: u32,
    // Where the peer lets us put payloads.
    places: VecDeque<Run>,
    offers: Reader<Array<AtomicU64>>,
    /// What has been used, until the next [`Traffic::tidy`].
    read: Vec<Parcel>,
    /// Where that puts what is given back; empty between two of them.
    released: Vec<Release>,
}

impl Traffic {
    pub(crate) fn new(
        own: &Own,
        peer: &Peer,
        sizes: &Sizes,
        peer_sizes: &Sizes,
        seed: u64,
        waker: &Arc<Waker>,
    ) -> Self {
        let shelf = Arc::new(Shelf::new(Arc::clone(waker)));
        Self {
            pages: own.pages(Arc::clone(&shelf)),
            shelf: Arc::clone(&shelf),
            lends: Lends::default(),
            reclaims: Reader::new(peer.returns()),
            completed: VecDeque::new(),
            landing: Pool::new(sizes.landing_pages),
            landing_ground: Handles::new(own.landing().ground(sizes.page_bytes, Arc::clone(&shelf))),
            peer_ground: Handles::new(peer.pool(peer_sizes.page_bytes, shelf)),
            posted: Vec::new(),
            unused: Vec::new(),
            recalled: 0,
            posts: Writer::new(own.free()),
            tokens: Tokens::new(seed),
            returns: Writer::new(own.returns()),
            return_backlog: VecDeque::new(),
            borrowed: 0,
            peer_pages: peer_sizes.pool_pages,
            peer_landing: peer_sizes.landing_pages,
            places: VecDeque::new(),
            offers: Reader::new(peer.free()),
            read: Vec::new(),
            released: Vec::new(),
        }
    }

    /// Whether somebody waits for what the peer returns: a message is tracked, or so many are lent that the peer may be
    /// holding some back until others have been taken out of its return ring, or that no frozen page may be lent; or
    /// posted runs are wanted back.
    pub(crate) const fn awaits_returns(&self) -> bool {
        self.lends.tracked() > 0
            || self.to_come_back() > RECORDS
            || self.lends.frozen() >= FROZEN_MAX
            || self.recalled > 0
    }

    /// What the peer may still put into its return ring.
    const fn to_come_back(&self) -> u32 {
        self.lends.messages().saturating_add(self.recalled)
    }

    /// Whether the peer has returned anything that was not taken back yet.
    pub(crate) fn has_returns(&self, peer: &Peer) -> bool {
        peer.get(Line::Returned) != self.reclaims.taken()
    }

    /// Takes returned lends back: their pages may be used again.
    pub(crate) fn reclaim(&mut self, own: &Own, peer: &Peer) -> Result<Reclaimed, Breach> {
        if self.to_come_back() == 0 {
            return Ok(Reclaimed::default());
        }
        let before = self.reclaims.taken();
        let many = self.to_come_back() > RECORDS;
        self.reclaims.refresh(peer.get(Line::Returned)).map_err(|Impossible| Breach::Index)?;
        let mut returned = 0;
        while let Some(number) = self.reclaims.pop() {
            if let Some(id) = unfilled(number) {
                self.take_back(id)?;
                continue;
            }
            let pages = &mut self.pages;
            let cookie = self.lends.take_back(number, |first, count| {
                pages.give(first, count);
                returned += u64::from(count);
            })?;
            if let Some(cookie) = cookie {
                self.completed.push_back(cookie);
            }
        }
        if self.reclaims.taken() == before {
            return Ok(Reclaimed::default());
        }
        own.set(Line::Reclaimed, self.reclaims.taken());
        // Asked only now: a peer that found the ring full after it had armed has stored both words before that, and
        // whoever armed later has seen the room.
        bell::light_fence();
        let was_full = many && peer.get(Line::Returned).wrapping_sub(before) >= u64::from(RECORDS);
        Ok(Reclaimed { pages: returned, was_full })
    }

    /// Counts a message that the peer has lent: each has a page at least that no other has, and the peer takes none
    /// back before it was returned here, so there are never more than it has pages; but for those of frozen pages.
    pub(crate) fn borrow(&mut self) -> Result<(), Breach> {
        self.borrowed += 1;
        if self.borrowed <= self.peer_pages.saturating_add(FROZEN_MAX) { Ok(()) } else { Err(Breach::Lend) }
    }

    /// Whether lends wait for room in the return ring.
    pub(crate) fn holds_back(&self) -> bool {
        !self.return_backlog.is_empty()
    }

    /// Whether lends wait for room in the return ring, and there is some.
    pub(crate) fn can_return(&self, peer: &Peer) -> bool {
        self.holds_back() && (self.returns.room() > 0 || peer.get(Line::Reclaimed) != self.returns.taken())
    }

    /// Takes back a payload that has been used, for the next [`Traffic::tidy`]: whoever has read it may have an answer
    /// to send, which goes first.
    pub(crate) fn release(&mut self, parcel: Parcel) {
        self.read.push(parcel);
    }

    /// Takes apart what has been used: pages to be given back, and handles.
    fn take_apart(&mut self) {
        for mut parcel in self.read.drain(..) {
            let Payload::Landed(landed) = parcel.take_payload() else { continue };
            if !landed.belongs_to(&self.shelf) {
                continue;
            }
            let (ground, releases) = landed.part();
            let of_peer = match releases {
                Releases::One(item) => {
                    self.released.push(item);
                    matches!(item, Release::Lend { .. })
                }
                Releases::Many(items) => {
                    self.released.extend(items);
                    false
                }
            };
            if of_peer { self.peer_ground.give(ground) } else { self.landing_ground.give(ground) }
        }
    }

    /// Whether anything waits for [`Traffic::tidy`].
    #[inline]
    pub(crate) fn untidy(&self) -> bool {
        !self.read.is_empty() || self.shelf.filled()
    }

    /// Takes back what dropped values have left: whether anything of it was published for the peer. Tickets of payloads
    /// that nobody will read go to `unread`.
    pub(crate) fn tidy(&mut self, own: &Own, peer: &Peer, unread: &mut Vec<u64>) -> Result<bool, Breach> {
        let mut posted = false;
        if self.untidy() {
            self.take_apart();
            let mut released = std::mem::take(&mut self.released);
            if self.shelf.filled() {
                self.shelf.clear(&mut released);
            }
            for item in released.drain(..) {
                match item {
                    Release::Page { first, count } => self.pages.give(first, count),
                    Release::Lend { number } => self.return_backlog.push_back(number),
                    Release::Posted { id } => {
                        self.repost(peer, id)?;
                        posted = true;
                    }
                    Release::Landing { first, count } => self.landing.give(first, count),
                    Release::Unread { ticket } => unread.push(ticket),
                }
            }
            self.released = released;
        }
        if posted {
            own.set(Line::Posted, self.posts.written());
        }
        self.give_back(own, peer)?;
        Ok(self.return_lends(own, peer)? || posted)
    }

    fn return_lends(&mut self, own: &Own, peer: &Peer) -> Result<bool, Breach> {
        if self.return_backlog.is_empty() {
            return Ok(false);
        }
        if self.returns.room() < self.return_backlog.len() as u64 {
            self.returns.refresh(peer.get(Line::Reclaimed)).map_err(|Impossible| Breach::Index)?;
        }
        let before = self.returns.written();
        while let Some(number) = self.return_backlog.front() {
            if !self.returns.push(*number) {
                break;
            }
            self.borrowed -= u32::from(unfilled(*number).is_none());
            self.return_backlog.pop_front();
        }
        own.set(Line::Returned, self.returns.written());
        Ok(self.returns.written() != before)
    }

    /// Posts `count` fresh runs of landing pages, each for `bytes` bytes: how many there was room for.
    pub(crate) fn post(&mut self, own: &Own, peer: &Peer, pages: u32, count: u32) -> Result<u32, Breach> {
        self.posts.refresh(peer.get(Line::Taken)).map_err(|Impossible| Breach::Index)?;
        let mut posted = 0;
        while posted < count && self.posts.room() > 0 {
            if self.unused.is_empty() && self.posted.len() >= RECORDS as usize {
                break;
            }
            let Some(first) = self.landing.take(pages) else { break };
            let id = self.unused.pop().unwrap_or_else(|| {
                self.posted.push(None);
                u16::try_from(self.posted.len() - 1).unwrap_or(u16::MAX)
            });
            self.posted[usize::from(id)] = Some(Posted { first, count: pages, filled: false, recalled: false });
            self.posts.push(Run { first, count: pages, id }.to_word());
            posted += 1;
        }
        own.set(Line::Posted, self.posts.written());
        Ok(posted)
    }

    /// Runs posted and not yet filled.
    pub(crate) fn posted(&self) -> u64 {
        self.posted.iter().flatten().filter(|run| !run.filled).count() as u64
    }

    /// Posts a released run again. The ring is as long as the table and no run is in it twice, so there is room, unless
    /// the peer fills runs without ever taking them.
    fn repost(&mut self, peer: &Peer, id: u16) -> Result<(), Breach> {
        let Some(place @ Some(_)) = self.posted.get_mut(usize::from(id)) else { return Ok(()) };
        if let Some(run) = place.take_if(|run| run.recalled) {
            self.landing.give(run.first, run.count);
            self.unused.push(id);
        }
        let Some(run) = place else { return Ok(()) };
        run.filled = false;
        if self.posts.room() == 0 {
            self.posts.refresh(peer.get(Line::Taken)).map_err(|Impossible| Breach::Index)?;
        }
        let posted = self.posts.push(Run { first: run.first, count: run.count, id }.to_word());
        if posted { Ok(()) } else { Err(Breach::Index) }
    }

    /// A run that the peer says it has filled: held against our own table.
    pub(crate) fn fill(&mut self, alleged: Run) -> Result<(u32, u32), Breach> {
        let run = self.posted.get_mut(usize::from(alleged.id)).and_then(Option::as_mut).ok_or(Breach::Page)?;
        if run.filled {
            return Err(Breach::Page);
        }
        run.filled = true;
        self.recalled -= u32::from(run.recalled);
        Ok((run.first, run.count))
    }

    /// Wants all posted runs back that are not filled. Those that are are not posted again.
    pub(crate) fn recall(&mut self, own: &Own) {
        for run in self.posted.iter_mut().flatten().filter(|run| !run.recalled) {
            run.recalled = true;
            self.recalled += u32::from(!run.filled);
        }
        own.set(Line::Recalled, self.posts.written());
    }

    /// Runs that are wanted back and have not come back.
    pub(crate) const fn recalled(&self) -> u32 {
        self.recalled
    }

    /// A run that was wanted back has come back: held against our own table.
    fn take_back(&mut self, id: u16) -> Result<(), Breach> {
        let place = self.posted.get_mut(usize::from(id)).ok_or(Breach::Lend)?;
        let run = place.take_if(|run| run.recalled && !run.filled).ok_or(Breach::Lend)?;
        self.landing.give(run.first, run.count);
        self.unused.push(id);
        self.recalled -= 1;
        Ok(())
    }

    /// How many of the peer's runs, the first that are known or to be seen, it wants back. What it says is a hint: it
    /// gets no more than it has posted.
    fn wanted_back(&self, peer: &Peer) -> u64 {
        let first = self.offers.taken().wrapping_sub(self.places.len() as u64);
        let wanted = peer.get(Line::Recalled).wrapping_sub(first);
        if wanted > u64::from(RECORDS) { 0 } else { wanted }
    }

    /// Whether the peer wants runs back that it has posted here. While it takes nothing out of the return ring it gets
    /// none: else it could have any number of them wait for room there.
    pub(crate) fn is_recalled(&self, peer: &Peer) -> bool {
        self.wanted_back(peer) > 0 && self.has_places(peer) && !self.holds_back()
    }

    /// Gives the peer the runs back that it wants and that were not written to.
    fn give_back(&mut self, own: &Own, peer: &Peer) -> Result<(), Breach> {
        if !self.is_recalled(peer) {
            return Ok(());
        }
        let wanted = self.wanted_back(peer);
        self.take_offers(peer)?;
        let count = usize::try_from(wanted).unwrap_or(usize::MAX).min(self.places.len());
        own.set(Line::Taken, self.offers.taken());
        self.return_backlog.extend(self.places.drain(..count).map(|run| number_of(run.id)));
        Ok(())
    }

    /// Takes note of the runs that the peer has posted: how many pages they have.
    fn take_offers(&mut self, peer: &Peer) -> Result<u64, Breach> {
        // One look at the counter for all that is there by now: looking costs a transfer of a cache line.
        self.offers.refresh(peer.get(Line::Posted)).map_err(|Impossible| Breach::Index)?;
        let mut pages = 0;
        while let Some(word) = self.offers.pop() {
            let run = check::run(Run::from_word(word), self.peer_landing)?;
            pages += u64::from(run.count);
            self.places.push_back(run);
        }
        Ok(pages)
    }

    /// Whether the peer has posted landing pages, as far as that is known or to be seen.
    #[inline]
    pub(crate) fn has_places(&self, peer: &Peer) -> bool {
        !self.places.is_empty() || peer.get(Line::Posted) != self.offers.taken()
    }

    /// The next run of the peer's landing pages that is known, if it is long enough for `bytes` bytes.
    #[inline]
    pub(crate) fn claim_front(&mut self, page_bytes: u64, bytes: u64) -> Option<Run> {
        let &Run { first, count, id } = self.places.front()?;
        if u64::from(count) * page_bytes < bytes {
            return None;
        }
        self.places.pop_front();
        Some(Run { first, count, id })
    }

    /// The run that will be claimed next, as far as that is known.
    #[inline]
    pub(crate) fn next_place(&self) -> Option<Run> {
        self.places.front().copied()
    }

    /// Runs of the peer's landing pages for `bytes` bytes, as posted by it; `None` if it has not posted enough.
    pub(crate) fn claim(&mut self, peer: &Peer, sizes: &Sizes, bytes: u64) -> Result<Option<List>, Breach> {
        let room = |run: &Run| u64::from(run.count) * u64::from(sizes.page_bytes);
        if let Some(run) = self.places.pop_front_if(|run| room(run) >= bytes) {
            return Ok(Some(List::One(run)));
        }
        let mut have = 0;
        // No more of them than are needed: there may be thousands.
        for run in &self.places {
            if have >= bytes {
                break;
            }
            have += room(run);
        }
        if have < bytes {
            have += self.take_offers(peer)? * u64::from(sizes.page_bytes);
        }
        if have < bytes {
            return Ok(None);
        }
        if let Some(run) = self.places.pop_front_if(|run| room(run) >= bytes) {
            return Ok(Some(List::One(run)));
        }
        let mut left = bytes;
        let mut runs = Vec::new();
        while let Some(run) = self.places.pop_front() {
            left = left.saturating_sub(room(&run));
            runs.push(run);
            if left == 0 {
                break;
            }
        }
        Ok(Some(List::Many(runs)))
    }

    /// Gives claimed runs back that were not written to after all: they are the next to be claimed, in the same order.
    pub(crate) fn unclaim(&mut self, list: List) {
        match list {
            List::One(run) => self.places.push_front(run),
            List::Many(runs) => runs.into_iter().rev().for_each(|run| self.places.push_front(run)),
        }
    }

    /// How many of the peer's posted runs were taken, to be told to it.
    pub(crate) const fn taken(&self) -> u64 {
        self.offers.taken()
    }
}

/// In the place of a lend's place: the number is that of a posted run which comes back unfilled.
const UNFILLED: u64 = u32::MAX as u64;

/// The number under which a posted run comes back that was not filled.
const fn number_of(id: u16) -> u64 {
    UNFILLED | (id as u64) << 32
}

/// The posted run that comes back under this number, if it is not that of a lend.
fn unfilled(number: u64) -> Option<u16> {
    (number & UNFILLED == UNFILLED).then(|| u16::try_from(number >> 32).unwrap_or(u16::MAX))
}

/// Runs of one payload, as the one side names them to the other.
#[derive(Debug)]
pub(crate) enum List {
    /// One.
    One(Run),
    /// Several, in this order.
    Many(Vec<Run>),
}

impl List {
    pub(crate) const fn as_slice(&self) -> &[Run] {
        match self {
            Self::One(run) => std::slice::from_ref(run),
            Self::Many(runs) => runs.as_slice(),
        }
    }
}
