//! The two halves of a channel's memory: what we own, and what the peer owns.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use cutthrough_wire::layout::{Layout, Line, RECORDS, RUNS, Sizes};
use cutthrough_wire::token::{Place, TOKENS};

use crate::bell::{self, Rung};
use crate::landing::LandingMemory;
use crate::map::{Array, MapError, Mapping, OwnArray, Writers};
use crate::page::{Ground, Pages, Shelf};
use crate::record::Words;
use crate::share::{Hears, Says};
use crate::stage::Staging;
use crate::sync::{AtomicU8, AtomicU64, Ordering, Slot};

/// Words of all the counters at the start of the out memory.
const LINE_WORDS: usize = 4096 / 8;

/// Index of a line's word among them.
const fn word(line: Line) -> usize {
    line as usize * 16
}

/// Memory of our own: we write the out memory alone; the landing memory the peer writes too.
#[derive(Debug)]
pub struct Own {
    lines: OwnArray<AtomicU64>,
    out: Arc<Mapping>,
    landing: LandingMemory,
    sizes: Sizes,
    layout: Layout,
    /// Which parts of the out memory were given away ([`Own::part`]).
    given: AtomicU8,
    /// By which number it was armed last.
    armed: AtomicU64,
}

/// Parts of the out memory that are had as plain bytes, so that nothing else may reach them; and all of it.
const SLOTS: u8 = 1;
const POOL: u8 = 2;
const ALL: u8 = SLOTS | POOL;

/// The files that let the peer map our memory.
#[derive(Debug)]
pub struct Files {
    /// The out memory: can be mapped for reading only.
    pub out: OwnedFd,
    /// The landing memory.
    pub landing: OwnedFd,
}

impl Own {
    /// Makes the memory of one side of a channel.
    ///
    /// # Errors
    /// [`MapError`], if there is none to be had.
    ///
    /// # Panics
    /// If the layout is not that of these sizes.
    pub fn create(sizes: &Sizes, layout: Layout) -> Result<(Self, Files), MapError> {
        assert_eq!(sizes.layout(), Ok(layout), "the layout of these sizes");
        let align = u64::from(sizes.page_bytes);
        let (out, out_file) = Mapping::create("cutthrough.out", layout.out_bytes, align, Writers::Maker)?;
        let (landing, landing_file) = LandingMemory::create("cutthrough.landing", layout.landing_bytes, align)?;
        // SAFETY: words that only this process can write.
        let lines = unsafe { OwnArray::new(&out, 0, LINE_WORDS) };
        let own = Self {
            lines,
            out,
            landing,
            sizes: *sizes,
            layout,
            given: AtomicU8::new(0),
            armed: AtomicU64::new(bell::ARMED),
        };
        Ok((own, Files { out: out_file, landing: landing_file }))
    }

    /// What it was made for.
    #[must_use]
    pub const fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Gives parts of the out memory away, once.
    fn part(&self, parts: u8) {
        let before = self.given.fetch_or(parts, Ordering::Relaxed);
        assert_eq!(before & parts, 0, "a part of the memory is given away once");
    }

    /// Words of the out memory outside of its slots and its pool.
    fn words(&self, offset: u64, count: u32) -> OwnArray<AtomicU64> {
        // SAFETY: words that only this process can write.
        unsafe { OwnArray::new(&self.out, offset, count as usize) }
    }

    /// Publishes one of our counters.
    ///
    /// SYNC POINT counter: the release pairs with the acquire in [`Peer::get`].
    #[inline]
    pub fn set(&self, line: Line, value: u64) {
        self.lines[word(line)].store(value, Ordering::Release);
    }

    /// One of our own counters.
    #[must_use]
    pub fn get(&self, line: Line) -> u64 {
        self.lines[word(line)].load(Ordering::Relaxed)
    }

    /// Asks to be rung for, by another number than each time before.
    pub fn arm(&self) {
        self.arm_with(0);
    }

    /// The same, and to be rung for when messages of ours have been taken.
    pub fn arm_for_room(&self) {
        self.arm_with(bell::ROOM);
    }

    fn arm_with(&self, room: u64) {
        let number = self.armed.load(Ordering::Relaxed) + 1;
        self.armed.store(number, Ordering::Relaxed);
        self.set(Line::Armed, number | room);
    }

    /// Does not need to be rung for any more.
    pub fn disarm(&self) {
        self.set(Line::Armed, 0);
    }

    /// Begins to copy a payload together with the peer: `line` is [`Line::ShareSent`] or [`Line::ShareTaken`], `number`
    /// the message's number + 1, and nothing of `begun` and `done` is behind what they say.
    pub fn begin_share(&self, line: Line, number: u64, begun: u64, done: u64) {
        self.share(line).begin(number, begun, done);
    }

    /// What we say of a payload that both sides copy, in such a line.
    ///
    /// # Panics
    /// Never: every line has as many words.
    #[must_use]
    #[inline]
    pub fn share(&self, line: Line) -> Says<'_> {
        Says::new(self.lines[word(line)..].first_chunk().expect("a line has three words"))
    }

    /// Tells the peer the fewest bytes that are worth a pulse to us.
    pub fn set_minpulse(&self, bytes: u64) {
        self.lines[word(Line::Drained) + 1].store(bytes, Ordering::Relaxed);
    }

    /// Our ring of slots.
    ///
    /// # Panics
    /// If it was asked for before.
    #[must_use]
    pub fn slots(&self) -> OwnArray<Slot> {
        self.part(SLOTS);
        // SAFETY: only this process can write the memory. These slots are given away once, and nothing else here
        // reaches that part: by the layout all others lie beside it.
        unsafe { OwnArray::new(&self.out, self.layout.slots, self.sizes.slots as usize) }
    }

    /// Our ring of runs.
    #[must_use]
    pub fn runs(&self) -> OwnArray<AtomicU64> {
        self.words(self.layout.runs, RUNS)
    }

    /// Our free ring: runs of our landing pages, posted for the peer.
    #[must_use]
    pub fn free(&self) -> OwnArray<AtomicU64> {
        self.words(self.layout.free, RECORDS)
    }

    /// Our return ring: lends of the peer that we are done with.
    #[must_use]
    pub fn returns(&self) -> OwnArray<AtomicU64> {
        self.words(self.layout.returns, RECORDS)
    }

    /// Writes a token's place, then its key: the sender reads the key first.
    pub fn set_token(&self, index: u16, key: u64, place: Place) {
        let entry = self.layout.tokens + u64::from(index % TOKENS) * 16;
        self.out.word(entry + 8).store(place.to_word(), Ordering::Relaxed);
        self.out.word(entry).store(key, Ordering::Release);
    }

    /// Takes a token's key away.
    pub fn clear_token(&self, index: u16) {
        self.out.word(self.layout.tokens + u64::from(index % TOKENS) * 16).store(0, Ordering::SeqCst);
    }

    /// Says that we are about to write into the peer's token `index`, or no longer (key 0).
    pub fn set_claim(&self, index: u16, key: u64) {
        self.out.word(self.layout.claims + u64::from(index % TOKENS) * 8).store(key, Ordering::SeqCst);
    }

    /// Our staging ring.
    ///
    /// # Panics
    /// Never: its length is a power of two.
    #[must_use]
    pub fn staging(&self) -> Staging {
        Staging::new((Arc::clone(&self.out), self.layout.staging), u64::from(self.sizes.staging_bytes))
    }

    /// Our pool; pages that are dropped go to `shelf`.
    ///
    /// # Panics
    /// If it was asked for before.
    #[must_use]
    pub fn pages(&self, shelf: Arc<Shelf>) -> Pages {
        self.part(POOL);
        let ground = Ground::new((Arc::clone(&self.out), self.layout.pool), self.sizes.page_bytes, shelf);
        // SAFETY: only this process can write the memory. The pool is given away once, and nothing else here reaches
        // that part: by the layout all others lie beside it.
        unsafe { Pages::new(ground, self.sizes.pool_pages) }
    }

    /// All of the out memory, to be written at random: for a side that keeps no rule.
    ///
    /// # Panics
    /// If its slots or its pages were asked for before.
    #[must_use]
    pub fn lawless(&self) -> Arc<Mapping> {
        self.part(ALL);
        Arc::clone(&self.out)
    }

    /// The landing memory.
    #[must_use]
    pub const fn landing(&self) -> &LandingMemory {
        &self.landing
    }
}

/// The peer's memory. What is read here is alleged.
#[derive(Debug)]
pub struct Peer {
    lines: Array<AtomicU64>,
    rung: Rung,
    out: Arc<Mapping>,
    landing: LandingMemory,
    layout: Layout,
}

impl Peer {
    /// Maps the peer's memory: its out memory for reading, its landing memory for writing too.
    ///
    /// # Errors
    /// [`MapError`], if the files are not what the peer's sizes promise.
    pub fn open(out: BorrowedFd<'_>, landing: BorrowedFd<'_>, sizes: &Sizes, layout: Layout) -> Result<Self, MapError> {
        let align = u64::from(sizes.page_bytes);
        let out = Mapping::open(out.as_fd(), layout.out_bytes, align, false)?;
        let landing = LandingMemory::open(landing.as_fd(), layout.landing_bytes, align)?;
        let lines = Array::new(&out, 0, LINE_WORDS);
        Ok(Self { lines, rung: Rung::default(), out, landing, layout })
    }

    /// One of the peer's counters.
    ///
    /// SYNC POINT counter: the acquire pairs with the release in [`Own::set`].
    #[must_use]
    #[inline]
    pub fn get(&self, line: Line) -> u64 {
        self.lines.load_acquire(word(line))
    }

    /// Asks for the cache line of a counter, which is looked at soon.
    #[inline]
    pub fn prefetch(&self, line: Line) {
        crate::sync::prefetch_read(std::ptr::from_ref(&self.lines.words()[word(line)]).cast());
    }

    /// Whether the peer sleeps and wants to be woken. One load of a line that hardly ever changes.
    #[must_use]
    #[inline]
    pub fn armed(&self) -> bool {
        self.lines.load(word(Line::Armed)) != 0
    }

    /// Rings by `ring`, which says whether it has, if the peer sleeps and was not rung for since it armed. True if it
    /// rang.
    #[inline]
    pub fn wake(&self, ring: impl FnOnce() -> bool) -> bool {
        let armed = self.lines.load(word(Line::Armed));
        self.rung.is_due(armed) && self.ring(armed, ring)
    }

    /// The same, if it waits for room as well: to be asked when messages of its own were taken.
    #[inline]
    pub fn wake_for_room(&self, ring: impl FnOnce() -> bool) -> bool {
        let armed = self.lines.load(word(Line::Armed));
        self.rung.is_due_for_room(armed) && self.ring(armed, ring)
    }

    fn ring(&self, armed: u64, ring: impl FnOnce() -> bool) -> bool {
        let rang = ring();
        if rang {
            self.rung.done(armed);
        }
        rang
    }

    /// What the peer says of a payload that both sides copy, in such a line.
    ///
    /// # Panics
    /// Never: every line has as many words.
    #[must_use]
    #[inline]
    pub fn share(&self, line: Line) -> Hears<'_> {
        Hears::new(self.lines.words()[word(line)..].first_chunk().expect("a line has three words"))
    }

    /// The fewest bytes that are worth a pulse to the peer.
    #[must_use]
    pub fn minpulse(&self) -> u64 {
        self.lines.load(word(Line::Drained) + 1)
    }

    /// The peer's ring of slots.
    #[must_use]
    pub fn slots(&self, count: u32) -> Array<Slot> {
        Array::new(&self.out, self.layout.slots, count as usize)
    }

    /// The peer's ring of runs.
    #[must_use]
    pub fn runs(&self) -> Array<AtomicU64> {
        Array::new(&self.out, self.layout.runs, RUNS as usize)
    }

    /// The peer's free ring.
    #[must_use]
    pub fn free(&self) -> Array<AtomicU64> {
        Array::new(&self.out, self.layout.free, RECORDS as usize)
    }

    /// The peer's return ring.
    #[must_use]
    pub fn returns(&self) -> Array<AtomicU64> {
        Array::new(&self.out, self.layout.returns, RECORDS as usize)
    }

    /// The place of the peer's token `index`, if there is such a token and it holds `key` now.
    #[must_use]
    pub fn token(&self, index: u16, key: u64) -> Option<Place> {
        if index >= TOKENS {
            return None;
        }
        let entry = self.layout.tokens + u64::from(index % TOKENS) * 16;
        let held = self.out.load(entry, Ordering::SeqCst);
        (held == key && key != 0).then(|| Place::from_word(self.out.load(entry + 8, Ordering::Relaxed)))
    }

    /// The key that the peer claims to be writing into our token `index`; 0 if none.
    #[must_use]
    pub fn claim(&self, index: u16) -> u64 {
        self.out.load(self.layout.claims + u64::from(index % TOKENS) * 8, Ordering::SeqCst)
    }

    /// The out memory and where its staging ring starts.
    #[must_use]
    pub fn staging(&self) -> (Arc<Mapping>, u64) {
        (Arc::clone(&self.out), self.layout.staging)
    }

    /// The peer's pool, as payloads lie there; what of it is dropped goes to `shelf`.
    #[must_use]
    pub fn pool(&self, page_bytes: u32, shelf: Arc<Shelf>) -> Arc<Ground> {
        Ground::new((Arc::clone(&self.out), self.layout.pool), page_bytes, shelf)
    }

    /// The landing memory.
    #[must_use]
    pub const fn landing(&self) -> &LandingMemory {
        &self.landing
    }
}
