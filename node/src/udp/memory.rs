//! Where payloads land when they come, and the pages of the pool that they leave from.

use std::collections::VecDeque;
use std::sync::Arc;

use cutthrough_engine::net::inbox::{ReadyPayload, Story};
use cutthrough_engine::net::memory::{Memory, Place, Placing, Want};
use cutthrough_engine::receipt::{Path, Receipt};
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::{Refused, Token, Tokens};
use cutthrough_segment::map::{MapError, Mapping};
use cutthrough_segment::page::{Filled, Ground, Landed, Page, Pages, Release, Releases, Runs, Shelf, Waker};

use super::ahead::Ahead;
use super::door::{Core, Udp};
use super::lanes::pools::Pooled;
use super::line::receipt;
use super::outgoing::{KeptBytes, Outgoing};
use super::posted::Posted;
use crate::config::Config;
use crate::incoming::{Arrived, Arriving, Payload};
use crate::raw::xdp::Flights;
use crate::shm::grant::Landing;
use crate::shm::unmap;
use crate::sys::xdp::socket::pages_of;

/// Memory that a payload lands in.
#[derive(Debug)]
pub(crate) enum Spot {
    /// Runs that were posted, and their numbers, and where each begins in the payload.
    Posted(Vec<(usize, u16, Page)>),
    /// Landing pages that a token named, for so many bytes, or that were taken for a payload from pages.
    Pages(Page, usize),
    /// Memory that a token named.
    Buffer(Vec<u8>),
}

impl Spot {
    /// Landing pages that it takes.
    fn pages(&self) -> u64 {
        let pages = |page: &Page| u64::from(page.run().1);
        match self {
            Self::Posted(runs) => runs.iter().map(|(.., run)| pages(run)).sum(),
            Self::Pages(page, _) => pages(page),
            Self::Buffer(_) => 0,
        }
    }
}

impl From<Spot> for Landing {
    fn from(spot: Spot) -> Self {
        match spot {
            Spot::Buffer(buffer) => Self::Buffer(buffer),
            Spot::Pages(_, bytes) => Self::Pages(bytes),
            Spot::Posted(_) => Self::Pages(0),
        }
    }
}

impl Place for Spot {
    fn len(&self) -> usize {
        match self {
            Self::Posted(runs) => runs.last().map_or(0, |(begin, _, run)| begin + run.len()),
            Self::Pages(page, _) => page.len(),
            Self::Buffer(buffer) => buffer.len(),
        }
    }

    fn piece(&mut self, offset: usize, most: usize) -> &mut [u8] {
        let bytes = match self {
            Self::Posted(runs) => {
                let index = runs.partition_point(|(begin, ..)| *begin <= offset).saturating_sub(1);
                let Some((begin, _, run)) = runs.get_mut(index) else { return &mut [] };
                let from = offset - *begin;
                run.get_mut(from..).unwrap_or(&mut [])
            }
            Self::Pages(page, _) => page.get_mut(offset..).unwrap_or(&mut []),
            Self::Buffer(buffer) => buffer.get_mut(offset..).unwrap_or(&mut []),
        };
        let len = bytes.len().min(most);
        &mut bytes[..len]
    }
}

/// The memory of one channel. Its mappings are made when they are needed first.
#[derive(Debug)]
pub(crate) struct Store {
    pub(super) page_bytes: u32,
    pool_pages: u32,
    landing_pages: u32,
    pub(super) shelf: Arc<Shelf>,
    back: Arc<Shelf>,
    pool: Option<Pages>,
    /// What a ring has of the pool's pages, if they lie in its memory.
    flights: Option<Arc<Flights>>,
    pub(super) landing: Option<(Pages, Arc<Ground>)>,
    /// Whether that lies in the memory of a ring.
    pub(super) in_ring: bool,
    /// Posted runs that wait, in order; all that were, by their numbers, and the numbers that no run has any more.
    pub(super) free: VecDeque<Spot>,
    pub(super) posted: Vec<Option<Posted>>,
    pub(super) unused: Vec<u16>,
    pub(super) tokens: Tokens<Spot>,
    /// Tokens granted and not used, in order: the next payload will probably carry the first.
    pub(super) granted: VecDeque<Token>,
    /// Pages in which a payload lands that will probably carry a token. What a token names is not touched before the
    /// token is checked: if it is good, these pages take the place of those that were set aside for it.
    guess: Option<Spot>,
    /// The same for those that will probably carry none, and have nothing posted.
    pub(super) ahead: Ahead,
    /// Whether frames may land in what is guessed at any time: then it is not given to others.
    pub(super) held: bool,
    /// What came back.
    items: Vec<Release>,
    /// Numbers of payloads that were dropped unread.
    pub(super) unread: Vec<u64>,
    /// Bytes of payloads of which copies are kept until they have arrived.
    pub(super) kept: KeptBytes,
    /// Whether its channel is over for its user: what is dropped from now on is none of the next channel's.
    retired: bool,
}

impl Store {
    /// The memory of the channel with this number; when something of it was dropped, that is listed in `filled`.
    pub(super) fn new(
        config: &Config,
        waker: &Arc<Waker>,
        (filled, channel): (&Arc<Filled>, usize),
        seed: u64,
    ) -> Self {
        let page_bytes = config.page_size.bytes();
        let pages = |bytes: u64| u32::try_from(bytes.div_ceil(u64::from(page_bytes))).unwrap_or(u32::MAX);
        Self {
            page_bytes,
            pool_pages: pages(config.pool_bytes),
            landing_pages: pages(config.landing_bytes),
            shelf: Arc::new(Shelf::new(Arc::clone(waker)).listed_in(Arc::clone(filled), channel)),
            back: Arc::new(Shelf::default().listed_in(Arc::clone(filled), channel)),
            pool: None,
            flights: None,
            landing: None,
            in_ring: false,
            free: VecDeque::new(),
            posted: Vec::new(),
            unused: Vec::new(),
            tokens: Tokens::new(seed),
            granted: VecDeque::new(),
            guess: None,
            ahead: Ahead::default(),
            held: false,
            items: Vec::new(),
            kept: KeptBytes::default(),
            unread: Vec::new(),
            retired: false,
        }
    }

    /// Has payloads land in this memory: `lot` makes two grounds of it, for what lands and for what is handed over.
    pub(super) fn land_in(
        &mut self,
        lot: impl FnOnce(&mut dyn FnMut((Arc<Mapping>, u64)) -> [Arc<Ground>; 2]) -> Option<[Arc<Ground>; 2]>,
    ) {
        let (page_bytes, back, shelf) = (self.page_bytes, &self.back, &self.shelf);
        let made = lot(&mut |memory| {
            let ground = Ground::new(memory, page_bytes, Arc::clone(back));
            let handed = Ground::share(&ground, Arc::clone(shelf));
            [ground, handed]
        });
        if let Some([ground, handed]) = made {
            self.landing = Some((pages_of(ground, self.landing_pages), handed));
            self.in_ring = true;
        }
    }

    fn map(&self, pages: u32, shelf: &Arc<Shelf>) -> Result<(Pages, Arc<Ground>), MapError> {
        Pages::create("cutthrough-pages", pages, self.page_bytes, Arc::clone(shelf))
    }

    /// Whether the pool has its memory.
    pub(super) const fn has_pool(&self) -> bool {
        self.pool.is_some()
    }

    /// What the pool's pages lie on in this memory.
    pub(super) fn ground_of_pool(&self, memory: (Arc<Mapping>, u64)) -> Arc<Ground> {
        Ground::new(memory, self.page_bytes, Arc::clone(&self.shelf))
    }

    /// Has the pool's pages lie in memory of a ring.
    pub(super) fn pool_in(&mut self, Pooled { ground, flights }: Pooled) {
        self.pool = Some(pages_of(ground, self.pool_pages));
        self.flights = Some(flights);
    }

    /// What a ring has of the pool's pages, if they lie in its memory.
    pub(super) const fn flights(&self) -> Option<&Arc<Flights>> {
        self.flights.as_ref()
    }

    /// Pages of the pool, to be filled and sent.
    pub(super) fn page(&mut self, bytes: usize) -> Option<Page> {
        if self.pool.is_none() {
            self.pool = Some(self.map(self.pool_pages, &self.shelf).ok()?.0);
        }
        self.tidy();
        self.pool.as_mut()?.take(bytes)
    }

    /// Bytes of a page.
    pub(super) const fn page_bytes(&self) -> usize {
        self.page_bytes as usize
    }

    pub(super) fn owns(&self, page: &Page) -> bool {
        page.belongs_to(&self.shelf)
    }

    /// Landing pages that nobody else has.
    pub(super) fn landing(&mut self, bytes: usize) -> Option<Page> {
        if self.landing.is_none() {
            // Pages that land are given back by what is handed to the user; dropped on the way, by the other shelf.
            let (pages, _) = self.map(self.landing_pages, &self.back).ok()?;
            let handed = pages.handed(Arc::clone(&self.shelf));
            self.landing = Some((pages, handed));
        }
        self.tidy();
        let landing = &mut self.landing.as_mut()?.0;
        if let Some(page) = landing.take(bytes) {
            return Some(page);
        }
        // Memory for guesses is the first to go.
        if self.held || !(self.ahead.give_way() | self.guess.take().is_some()) {
            return None;
        }
        self.tidy();
        self.ahead.ran_short();
        self.landing.as_mut()?.0.take(bytes)
    }

    /// Where a payload from pages goes that names no place: into landing pages. If there are none, it waits for those
    /// that come back. If these will never be enough, whoever reads it says where it goes: nobody would get it, and
    /// nothing behind it.
    fn land_or_read<'a>(&mut self, bytes: usize, behind: impl Iterator<Item = &'a Spot>) -> Placing<Spot> {
        self.expect_pages(Some(bytes));
        if let Some(spot) = self.take_ahead(bytes) {
            return Placing::Guessed(spot);
        }
        match self.landing(bytes) {
            Some(page) => Placing::Here(Spot::Pages(page, bytes)),
            None if self.may_land(bytes, behind) => Placing::Later,
            None => Placing::Reader,
        }
    }

    /// Whether there may be landing pages for so many bytes when others come back. What is posted is posted again, and
    /// what a token names comes back with a payload that may lie behind this one, as those do that have got it already.
    fn may_land<'a>(&self, bytes: usize, behind: impl Iterator<Item = &'a Spot>) -> bool {
        let Some((landing, _)) = &self.landing else { return false };
        let got = behind.filter(|spot| matches!(spot, Spot::Pages(..))).map(Spot::pages);
        let named = self.tokens.places().map(Spot::pages).chain(got).sum::<u64>();
        let kept = named + self.pages_posted_again();
        let guessed = self.guess.iter().chain(&self.ahead.runs);
        let stays = named + self.free.iter().chain(guessed).map(Spot::pages).sum::<u64>();
        let wanted = bytes.div_ceil(self.page_bytes as usize) as u64;
        kept + wanted <= u64::from(self.landing_pages) && stays < u64::from(landing.lent())
    }

    /// Pages of the size that the next token names, if there are any to spare.
    fn guess_for(&mut self, token: Token) -> Option<&mut Spot> {
        let Ok(Spot::Pages(named, _)) = self.tokens.look(token) else { return None };
        let bytes = named.len();
        if self.guess.as_ref().is_none_or(|guess| guess.len() != bytes) {
            if self.held && self.guess.is_some() {
                return None;
            }
            self.guess = None;
            self.tidy();
            self.guess =
                self.landing.as_mut().and_then(|(landing, _)| landing.take(bytes)).map(|page| Spot::Pages(page, bytes));
        }
        self.guess.as_mut()
    }

    /// Remembers that a token was granted: the next payload will probably carry it.
    pub(super) fn expect(&mut self, token: Token) {
        self.granted.push_back(token);
    }

    /// Takes the private memory back that tokens name, or named until their payload had `begun`: the channel has ended.
    pub(super) fn take_grants(&mut self, begun: Vec<(Token, Spot)>) -> Vec<(Token, Vec<u8>)> {
        let private = self.tokens.clear().chain(begun).filter_map(|(token, spot)| match spot {
            Spot::Buffer(buffer) => Some((token, buffer)),
            Spot::Posted(_) | Spot::Pages(..) => None,
        });
        private.collect()
    }

    /// Its channel is over for its user: nothing more is taken from its memory, which goes with the last that somebody
    /// has of it. Gives away the shelf on which dropped values are still left, and the numbers of payloads that lay
    /// there.
    pub(super) fn retire(&mut self) -> (Arc<Shelf>, Vec<u64>) {
        self.retired = true;
        let memory = (self.landing.take(), self.pool.take(), self.guess.take(), std::mem::take(&mut self.ahead));
        let pages = if memory.0.is_some() { u64::from(self.landing_pages) } else { 0 }
            + if memory.1.is_some() { u64::from(self.pool_pages) } else { 0 };
        // What lies in a ring's memory stays there, and the next channel may have it at once.
        let stays = self.flights.take().is_some() || self.in_ring;
        if !stays && pages * u64::from(self.page_bytes) >= unmap::LARGE {
            unmap::later(memory);
        } else {
            drop(memory);
        }
        (self.free, self.posted, self.unused) = (VecDeque::new(), Vec::new(), Vec::new());
        (Arc::clone(&self.shelf), std::mem::take(&mut self.unread))
    }

    /// Takes back what dropped values have left. True if landing pages came back.
    pub(super) fn tidy(&mut self) -> bool {
        if self.retired || !(self.shelf.filled() || self.back.filled()) {
            return false;
        }
        let mut came = false;
        let mut items = std::mem::take(&mut self.items);
        self.back.clear(&mut items);
        for item in items.drain(..) {
            if let (Release::Page { first, count }, Some((landing, _))) = (item, &mut self.landing) {
                landing.give(first, count);
                came = true;
            }
        }
        self.shelf.clear(&mut items);
        for item in items.drain(..) {
            match item {
                Release::Page { first, count } => {
                    if let Some(pool) = &mut self.pool {
                        pool.give(first, count);
                    }
                }
                Release::Landing { first, count } => {
                    if let Some((landing, _)) = &mut self.landing {
                        landing.give(first, count);
                        came = true;
                    }
                }
                Release::Posted { id } => came |= self.repost(id),
                Release::Unread { ticket } => self.unread.push(ticket),
                Release::Lend { .. } => {}
            }
        }
        self.items = items;
        if came {
            self.ahead.came_back();
        }
        came
    }

    /// The place that a spot becomes for the user when all of the payload is there.
    pub(super) fn hand_over(&self, spot: Spot, bytes: usize) -> Payload {
        let ground = || self.landing.as_ref().map(|(_, handed)| Arc::clone(handed));
        match spot {
            Spot::Buffer(mut buffer) => {
                buffer.truncate(bytes);
                Payload::Buffer(buffer)
            }
            Spot::Pages(page, _) => {
                let (first, count, _) = page.into_run();
                let release = Releases::One(Release::Landing { first, count });
                let landed = |ground| Landed::new(ground, Runs::One(first, count), bytes, release);
                ground().map_or(Payload::None, |ground| Payload::Landed(landed(ground)))
            }
            Spot::Posted(runs) => {
                let mut runs = runs.into_iter().map(|(_, id, run)| {
                    let (first, count, _) = run.into_run();
                    ((first, count), Release::Posted { id })
                });
                let (runs, release) = match (runs.next(), runs.len()) {
                    (Some(((first, count), release)), 0) => (Runs::One(first, count), Releases::One(release)),
                    (first, _) => {
                        let (runs, releases) = first.into_iter().chain(runs).unzip();
                        (Runs::Many(runs), Releases::Many(releases))
                    }
                };
                ground().map_or(Payload::None, |ground| Payload::Landed(Landed::new(ground, runs, bytes, release)))
            }
        }
    }
}

/// The memory of all channels of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Stores(pub(super) Vec<Option<Store>>);

impl Stores {
    pub(super) fn get(&mut self, channel: usize) -> Option<&mut Store> {
        self.0.get_mut(channel).and_then(Option::as_mut)
    }

    /// The memory of a channel whose user has it. What comes on the next channel with its number is not for that
    /// memory, also before its user is told of it.
    fn of_user(&mut self, channel: usize) -> Option<&mut Store> {
        self.get(channel).filter(|store| !store.retired)
    }
}

impl Stores {
    /// The payload of a message that is handed over, as its user gets it; `None` if there is none.
    pub(crate) fn hand_over(&mut self, channel: usize, payload: ReadyPayload<Spot>, sealed: bool) -> Option<Arrived> {
        let store = self.get(channel)?;
        let (payload, story, path) = match payload {
            ReadyPayload::None => return None,
            ReadyPayload::Landed(spot, story) => (store.hand_over(spot, story.bytes as usize), story, Path::Wire),
            ReadyPayload::Arriving(ticket, story) => {
                let shelf = Some(Arc::clone(&store.shelf));
                let arriving = Arriving { ticket, bytes: story.bytes, valid: 0, shelf };
                (Payload::Arriving(arriving), story, Path::Wire)
            }
            ReadyPayload::Refused(refused, story) => {
                (Payload::Dropped(refused), Story { bytes: 0, ..story }, Path::Dropped)
            }
        };
        let known = receipt(&story, path, sealed, story.ended);
        // What is still to come is not placed yet, nor has it come: that is known when it has been read.
        let receipt = match payload {
            Payload::Arriving(_) => Receipt { placed: 0, finished: Instant::default(), ..known },
            _ => known,
        };
        Some(Arrived { payload, receipt })
    }
}

impl Memory for Stores {
    type Load = Outgoing;
    type Place = Spot;

    fn place<'a>(&mut self, channel: usize, want: &Want, behind: impl Iterator<Item = &'a Spot>) -> Placing<Spot> {
        let Some(store) = self.of_user(channel) else { return Placing::Reader };
        store.tidy();
        let bytes = want.bytes as usize;
        if let Some(token) = want.token {
            match store.tokens.look(token) {
                Err(refused) => return Placing::Refused(refused),
                Ok(spot) if spot.len() < bytes => return Placing::Refused(Refused::TooLong),
                Ok(_) => {}
            }
            store.granted.retain(|other| *other != token);
            return match (store.tokens.redeem(token), store.guess.take()) {
                // Dropped, the pages that the token named are free again.
                (Ok(Spot::Pages(named, _)), Some(guess)) if guess.len() == named.len() => Placing::Guessed(guess),
                (Ok(spot), guess) => {
                    store.guess = guess;
                    Placing::Here(spot)
                }
                (Err(refused), guess) => {
                    store.guess = guess;
                    Placing::Refused(refused)
                }
            };
        }
        if want.pages && store.free.is_empty() {
            return store.land_or_read(bytes, behind);
        }
        // A guess is of the first run, which is the first of several, too.
        let first = store.granted.is_empty() && !store.free.is_empty();
        match store.take_posted(bytes) {
            Some(spot) if first => Placing::Guessed(spot),
            Some(spot) => Placing::Here(spot),
            None if want.pages => store.land_or_read(bytes, behind),
            None => {
                store.expect_pages(None);
                Placing::Reader
            }
        }
    }

    fn guess(&mut self, channel: usize) -> Option<&mut Spot> {
        self.guesses(channel).next()
    }

    fn guesses(&mut self, channel: usize) -> impl Iterator<Item = &mut Spot> {
        let (mut named, mut free) = (None, None);
        if let Some(store) = self.of_user(channel) {
            match store.next_named() {
                Some(token) => named = store.guess_for(token),
                None => {
                    // What was dropped since may be all that there is.
                    if store.free.is_empty() {
                        store.tidy();
                    }
                    let runs = if store.free.is_empty() {
                        store.lay_out();
                        &mut store.ahead.runs
                    } else {
                        &mut store.free
                    };
                    free = Some(runs.iter_mut());
                }
            }
        }
        named.into_iter().chain(free.into_iter().flatten())
    }
}

impl Store {
    /// The first token that was granted and is still good: the next payload will probably carry it.
    fn next_named(&mut self) -> Option<Token> {
        while let Some(token) = self.granted.front().copied() {
            if self.tokens.look(token).is_ok() {
                return Some(token);
            }
            self.granted.pop_front();
        }
        None
    }
}

impl Udp {
    /// A channel is over for its user.
    pub(crate) fn retire(&self, channel: usize) {
        let mut core = self.shared.lock();
        core.asked.retain(|asked| *asked != channel);
        if let Some(store) = core.net.memory.get(channel) {
            store.retire();
            // What tokens name is nobody's any more: who was told of the end has it already.
            store.take_grants(Vec::new());
        }
    }
}

impl Core {
    /// Gives a channel its memory.
    pub(super) fn furnish(&mut self, channel: usize) {
        // Who had this number before is gone, and what is left of its last batch speaks of other messages.
        self.stuck = self.stuck.filter(|(of, ..)| *of != channel);
        if let Some(lanes) = &mut self.lanes
            && let Some((peer, ..)) = self.net.peer(channel)
        {
            self.net.set_ways(channel, lanes.join(channel, peer));
        }
        let seed = crate::entropy::number().unwrap_or(0x9e37_79b9_7f4a_7c15);
        let mut store = Store::new(&self.config, &self.waker, (&self.filled, channel), seed);
        // Who had this number before may have been aimed at.
        let settled = self.settle();
        let stores = &mut self.net.memory.0;
        if stores.len() <= channel {
            stores.resize_with(channel + 1, || None);
        }
        // With what is left of it, its part of the ring's memory is free again.
        stores[channel] = None;
        if let Some(lanes) = self.lanes.as_mut().filter(|_| settled) {
            store.land_in(|make| lanes.lot(make));
        }
        stores[channel] = Some(store);
    }

    /// Takes back what dropped values have left: pages, and the right to payloads that nobody will read. Only channels
    /// are looked at of which something was dropped: how many.
    pub(super) fn tidy(&mut self, now: Instant) -> usize {
        self.tend_lanes(now);
        self.spare.rest(now);
        let (mut came, mut looks) = (false, 0);
        let mut channels = std::mem::take(&mut self.tidied);
        self.filled.clear(&mut channels);
        for channel in channels.drain(..) {
            let Some(store) = self.net.memory.get(channel) else { continue };
            looks += 1;
            store.shelf.unlist();
            store.back.unlist();
            came |= store.tidy();
            store.ahead.turn_over();
            for number in std::mem::take(&mut store.unread) {
                self.net.forget(channel, number);
            }
        }
        self.tidied = channels;
        if came {
            self.net.memory_came_back(now);
        }
        looks
    }
}
