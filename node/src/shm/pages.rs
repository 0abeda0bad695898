//! Pages on their way: lent to the peer, posted for it, granted to it. Plain bookkeeping of one channel.

use std::collections::VecDeque;
use std::sync::Arc;

use cutthrough_engine::check::{self, Breach};
use cutthrough_engine::token::Tokens;
use cutthrough_segment::half::{Own, Peer};
use cutthrough_segment::map::{Array, Mapping, OwnArray};
use cutthrough_segment::page::{Ground, Pages, Release, Runs, Shelf, Waker};
use cutthrough_segment::pool::Pool;
use cutthrough_segment::record::{Reader, Writer};
use cutthrough_segment::ring::Impossible;
use cutthrough_segment::sync::AtomicU64;
use cutthrough_wire::layout::{Line, RECORDS, Sizes};
use cutthrough_wire::run::Run;

/// What a granted token stands for.
#[derive(Debug)]
pub(crate) enum Place {
    /// Landing pages.
    Pages { first: u32, count: u32, bytes: u32 },
    /// Private memory of the caller's.
    Buffer(Vec<u8>),
}

/// Pages of ours that the peer reads at present.
#[derive(Debug)]
struct Lend {
    nonce: u32,
    runs: Runs,
    cookie: Option<u64>,
}

/// Landing pages of ours that the peer may fill.
#[derive(Debug)]
struct Posted {
    first: u32,
    count: u32,
    /// Whether the peer has filled it and the caller not yet released it.
    filled: bool,
}

/// All pages of one channel.
#[derive(Debug)]
pub(crate) struct Traffic {
    // What we send from.
    pub(crate) pages: Pages,
    pub(crate) shelf: Arc<Shelf>,
    lends: Vec<Option<Lend>>,
    free_lends: Vec<u32>,
    nonce: u32,
    lent_messages: u32,
    /// How many of them somebody waits for.
    tracked: u32,
    reclaims: Reader<Array<AtomicU64>>,
    /// Cookies of messages whose pages may be used again.
    pub(crate) completed: VecDeque<u64>,
    // What we receive into.
    pub(crate) landing: Pool,
    pub(crate) landing_map: Arc<Mapping>,
    /// Our landing pages, as payloads lie in them.
    pub(crate) landing_ground: Arc<Ground>,
    /// The peer's pool, as payloads lie in it.
    pub(crate) peer_ground: Arc<Ground>,
    posted: Vec<Option<Posted>>,
    posts: Writer<OwnArray<AtomicU64>>,
    pub(crate) tokens: Tokens<Place>,
    returns: Writer<OwnArray<AtomicU64>>,
    return_backlog: VecDeque<u64>,
    // Where the peer lets us put payloads.
    places: VecDeque<Run>,
    offers: Reader<Array<AtomicU64>>,
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
            pages: Pages::new(Ground::new(own.pool(), sizes.page_bytes, Arc::clone(&shelf)), sizes.pool_pages),
            shelf: Arc::clone(&shelf),
            lends: Vec::new(),
            free_lends: Vec::new(),
            nonce: 0,
            lent_messages: 0,
            tracked: 0,
            reclaims: Reader::new(peer.returns()),
            completed: VecDeque::new(),
            landing: Pool::new(sizes.landing_pages),
            landing_map: own.landing(),
            landing_ground: Ground::new((own.landing(), 0), sizes.page_bytes, Arc::clone(&shelf)),
            peer_ground: Ground::new(peer.pool(), peer_sizes.page_bytes, shelf),
            posted: Vec::new(),
            posts: Writer::new(own.free()),
            tokens: Tokens::new(seed),
            returns: Writer::new(own.returns()),
            return_backlog: VecDeque::new(),
            places: VecDeque::new(),
            offers: Reader::new(peer.free()),
            released: Vec::new(),
        }
    }

    /// Lends runs of our pool to the peer: the number that it has to return.
    pub(crate) fn lend(&mut self, runs: Runs, cookie: Option<u64>) -> u64 {
        self.nonce = self.nonce.wrapping_add(1);
        self.tracked += u32::from(cookie.is_some());
        let lend = Some(Lend { nonce: self.nonce, runs, cookie });
        let index = match self.free_lends.pop() {
            Some(index) => {
                self.lends[index as usize] = lend;
                index
            }
            None => {
                self.lends.push(lend);
                u32::try_from(self.lends.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.lent_messages += 1;
        u64::from(index) | u64::from(self.nonce) << 32
    }

    /// Messages whose pages are lent and whose return somebody waits for.
    pub(crate) const fn tracked(&self) -> u32 {
        self.tracked
    }

    /// Messages whose pages are lent.
    pub(crate) const fn lent_messages(&self) -> u32 {
        self.lent_messages
    }

    /// Whether the peer has returned anything that was not taken back yet.
    pub(crate) fn has_returns(&self, peer: &Peer) -> bool {
        peer.get(Line::Returned) != self.reclaims.taken()
    }

    /// Takes returned lends back: their pages may be used again. The number of messages that came back.
    pub(crate) fn reclaim(&mut self, own: &Own, peer: &Peer) -> Result<u64, Breach> {
        if self.lent_messages == 0 {
            return Ok(0);
        }
        self.reclaims.refresh(peer.get(Line::Returned)).map_err(|Impossible| Breach::Index)?;
        let mut returned = 0;
        while let Some(number) = self.reclaims.pop() {
            let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
            let index = u32::from_le_bytes([a, b, c, d]);
            let nonce = u32::from_le_bytes([e, f, g, h]);
            let lend = self.lends.get_mut(index as usize).ok_or(Breach::Lend)?;
            let lend = lend.take_if(|lend| lend.nonce == nonce).ok_or(Breach::Lend)?;
            self.free_lends.push(index);
            self.lent_messages -= 1;
            self.tracked -= u32::from(lend.cookie.is_some());
            for (first, count) in lend.runs.iter() {
                self.pages.give(first, count);
            }
            self.completed.extend(lend.cookie);
            returned += 1;
        }
        if returned > 0 {
            own.set(Line::Reclaimed, self.reclaims.taken());
        }
        Ok(returned)
    }

    /// Takes back what dropped values have left: whether anything of it was published for the peer. Tickets of payloads
    /// that nobody will read go to `unread`.
    pub(crate) fn tidy(&mut self, own: &Own, peer: &Peer, unread: &mut Vec<u64>) -> Result<bool, Breach> {
        let filled = self.shelf.filled();
        if filled {
            let mut released = std::mem::take(&mut self.released);
            self.shelf.clear(&mut released);
            for item in released.drain(..) {
                match item {
                    Release::Page { first, count } => self.pages.give(first, count),
                    Release::Lend { number } => self.return_backlog.push_back(number),
                    Release::Posted { id } => self.repost(peer, id)?,
                    Release::Landing { first, count } => self.landing.give(first, count),
                    Release::Unread { ticket } => unread.push(ticket),
                }
            }
            self.released = released;
            own.set(Line::Posted, self.posts.written());
        }
        Ok(self.return_lends(own, peer)? || filled)
    }

    fn return_lends(&mut self, own: &Own, peer: &Peer) -> Result<bool, Breach> {
        if self.return_backlog.is_empty() {
            return Ok(false);
        }
        if self.returns.room() < self.return_backlog.len() as u64 {
            self.returns.refresh(peer.get(Line::Reclaimed)).map_err(|Impossible| Breach::Index)?;
        }
        while let Some(number) = self.return_backlog.front() {
            if !self.returns.push(*number) {
                break;
            }
            self.return_backlog.pop_front();
        }
        own.set(Line::Returned, self.returns.written());
        Ok(true)
    }

    /// Posts `count` fresh runs of landing pages, each for `bytes` bytes: how many there was room for.
    pub(crate) fn post(&mut self, own: &Own, peer: &Peer, pages: u32, count: u32) -> Result<u32, Breach> {
        self.posts.refresh(peer.get(Line::Taken)).map_err(|Impossible| Breach::Index)?;
        let mut posted = 0;
        while posted < count && self.posts.room() > 0 {
            let Some(id) = u16::try_from(self.posted.len()).ok().filter(|id| u32::from(*id) < RECORDS) else { break };
            let Some(first) = self.landing.take(pages) else { break };
            self.posted.push(Some(Posted { first, count: pages, filled: false }));
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
        let Some(Some(run)) = self.posted.get_mut(usize::from(id)) else { return Ok(()) };
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
        Ok((run.first, run.count))
    }

    /// Runs of the peer's landing pages for `bytes` bytes, as posted by it; `None` if it has not posted enough.
    pub(crate) fn claim(&mut self, peer: &Peer, sizes: &Sizes, bytes: u64) -> Result<Option<List>, Breach> {
        let room = |run: &Run| u64::from(run.count) * u64::from(sizes.page_bytes);
        if let Some(run) = self.places.pop_front_if(|run| room(run) >= bytes) {
            return Ok(Some(List::One(run)));
        }
        let mut have: u64 = self.places.iter().map(room).sum();
        if have < bytes {
            // One look at the counter for all that is there by now: looking costs a transfer of a cache line.
            self.offers.refresh(peer.get(Line::Posted)).map_err(|Impossible| Breach::Index)?;
            while let Some(word) = self.offers.pop() {
                let run = check::run(Run::from_word(word), sizes.landing_pages)?;
                have += room(&run);
                self.places.push_back(run);
            }
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
