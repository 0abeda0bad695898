//! Guesses which fragment comes next, and mends wrong guesses: Speculative Defragmentation (Kurmann, Rauch, Stricker,
//! 2000) with the fill ring of AF_XDP as the chain of descriptors. Plain numbers; nothing here touches memory.
//!
//! A page is expected in fragments of `slice` bytes, the last one shorter, in a known order. For each of them the
//! kernel is offered the place where it will belong if the guess is right. The kernel uses places in the order in
//! which they were offered, whatever comes. So a frame that was not expected takes the place of one that was, and a
//! frame that is lost leaves a place for the next: both shift all that follows. Then:
//!
//! * A fragment that lies elsewhere than it belongs is copied there, if the kernel can no longer write to that place.
//! * If it still can, the page moves to a spare one, with what has come of it.
//! * Places that are left over go to the first fragments of the next page, which are offered none of their own; if all
//!   places of a page are left over, the next page lands there. What was taken by strangers is made up by loose
//!   buffers. So the shift ends with the page that follows.
//!
//! Where headers are not cut off, each overwrites the bytes before its fragment's place. The last fragment comes first,
//! so that the fragment that belongs there comes later; the first one's header, and the tail of a stranger that is
//! longer than the last fragment, need room around every page ([`Shape::stride`]). Nothing is saved and restored.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Most fragments of a page.
pub const PARTS_MAX: u32 = 64;

/// How pages come in fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a page.
    pub page: u32,
    /// Bytes of each of its fragments but the last one.
    pub slice: u32,
    /// Bytes of headers before a fragment, as frames land: 0 if they are cut off.
    pub before: u32,
    /// Whether the last fragment comes first.
    pub backwards: bool,
}

impl Shape {
    /// How many fragments a page has.
    #[must_use]
    pub const fn parts(&self) -> u32 {
        self.page.div_ceil(self.slice)
    }

    /// Bytes of fragment `part`.
    #[must_use]
    pub const fn part_bytes(&self, part: u32) -> u32 {
        let left = self.page - part * self.slice;
        if left < self.slice { left } else { self.slice }
    }

    /// Bytes from one page to the next, so that no frame of at most `before + slice` bytes that lands at the place of
    /// any fragment touches another page. `strict` says that only frames of exactly the fragment's length land.
    #[must_use]
    pub const fn stride(&self, strict: bool) -> u64 {
        let tail = if strict { self.page } else { self.parts() * self.slice };
        (tail as u64 + self.before as u64).next_multiple_of(4096)
    }

    fn order(&self) -> impl Iterator<Item = u32> + use<> {
        let (parts, backwards) = (self.parts(), self.backwards);
        (0..parts).map(move |turn| if backwards { parts - 1 - turn } else { turn })
    }
}

/// Which bytes of which message a page is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// Channel of the receiver.
    pub tag: u32,
    /// Which life of it.
    pub generation: u32,
    /// Number of the message.
    pub message: u32,
    /// Where in its payload the page begins.
    pub first: u32,
}

/// What the header of a frame says that has landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Channel of the receiver.
    pub tag: u32,
    /// Which life of it.
    pub generation: u32,
    /// Number of the message.
    pub message: u32,
    /// Where in its payload the fragment begins.
    pub offset: u32,
    /// Bytes of the fragment.
    pub bytes: u32,
}

/// Bytes to be copied inside of the memory; the two places may overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// From here.
    pub from: u64,
    /// To there.
    pub to: u64,
    /// How many.
    pub bytes: u32,
}

/// What a frame that has landed was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landing {
    /// The fragment that was expected, where it belongs.
    Hit,
    /// A fragment of an expected page, elsewhere. It has to be copied.
    Miss,
    /// Nothing that is expected: another sender's, a duplicate, or no fragment at all. Its bytes may be used until the
    /// next places are offered.
    Stray,
    /// A fragment of an expected page that cannot be kept, since there is no spare page. It is as if it were lost.
    Lost,
    /// A place that was not offered. Nothing there is to be believed.
    Lie,
}

/// A page that is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Complete {
    /// Which one.
    pub key: Key,
    /// Where it lies. It belongs to the caller until [`Placer::release`].
    pub at: u64,
    /// How many of its fragments were copied.
    pub copies: u32,
}

/// What has happened, counted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Fragments where they belong.
    pub hits: u64,
    /// Fragments elsewhere.
    pub misses: u64,
    /// Frames that were not expected.
    pub strays: u64,
    /// Fragments that could not be kept.
    pub lost: u64,
    /// Places that were not offered.
    pub lies: u64,
    /// Copies of fragments.
    pub copies: u64,
}

/// A place that the kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// For this fragment of the page at this address.
    Part(u64, u32),
    /// For anything.
    Loose(u64),
}

/// A page that is expected.
#[derive(Debug)]
struct Page {
    key: Key,
    at: u64,
    /// Which fragments have come, a bit each.
    come: u64,
    copies: u32,
}

/// The guesses of one stream, and the memory that it lands in.
#[derive(Debug)]
pub struct Placer {
    shape: Shape,
    expected: VecDeque<Page>,
    /// What the kernel has, in the order in which it will use it.
    offered: VecDeque<Place>,
    /// What it is to be offered.
    offers: Vec<Place>,
    /// Pages that nobody uses.
    free: Vec<u64>,
    /// Pages that nobody uses, but of which the kernel still has places.
    held: Vec<u64>,
    loose: Vec<u64>,
    /// Whether fragments get places in their pages; otherwise they come to loose buffers, and all are copied.
    guesses: bool,
    counts: Counts,
}

impl Placer {
    /// For pages that may land at these addresses, [`Shape::stride`] bytes apart, with [`Shape::before`] bytes of room
    /// before each; and loose buffers at those, with room for a frame each. One more page than are expected at a time,
    /// and as many loose buffers as a page has fragments, keep it going.
    ///
    /// # Panics
    /// If a page has more than [`PARTS_MAX`] fragments, or none.
    #[must_use]
    pub fn new(shape: Shape, pages: Vec<u64>, loose: Vec<u64>) -> Self {
        assert!(shape.page > 0 && shape.slice > 0 && shape.parts() <= PARTS_MAX, "1 to {PARTS_MAX} fragments");
        Self {
            shape,
            expected: VecDeque::new(),
            offered: VecDeque::new(),
            offers: Vec::new(),
            free: pages,
            held: Vec::new(),
            loose,
            guesses: true,
            counts: Counts::default(),
        }
    }

    /// As [`Placer::new`], but nothing is guessed: every fragment comes to a loose buffer and is copied, to compare
    /// with. There is a loose buffer for each fragment that is expected at a time.
    ///
    /// # Panics
    /// As [`Placer::new`].
    #[must_use]
    pub fn copying(shape: Shape, pages: Vec<u64>, loose: Vec<u64>) -> Self {
        Self { guesses: false, ..Self::new(shape, pages, loose) }
    }

    /// Expects a page, after all that are expected already. Whether there is memory for it.
    pub fn expect(&mut self, key: Key) -> bool {
        let waiting = self.missing();
        if let Some(at) = self.left_over(waiting) {
            self.held.retain(|page| *page != at);
            self.expected.push_back(Page { key, at, come: 0, copies: 0 });
            return true;
        }
        // One stays for a page that has to move.
        if self.free.len() < 2 {
            return false;
        }
        let Some(at) = self.free.pop() else { return false };
        // Fragments that are still to come take what the kernel has; only the ones beyond get places of their own.
        let have = self.offered.len() + self.offers.len();
        let surplus = have.saturating_sub(waiting);
        for _ in have..waiting {
            let Some(loose) = self.loose.pop() else { break };
            self.offers.push(Place::Loose(loose));
        }
        if self.guesses {
            self.offers.extend(self.shape.order().skip(surplus).map(|part| Place::Part(at, part)));
        }
        self.expected.push_back(Page { key, at, come: 0, copies: 0 });
        if !self.guesses {
            self.make_up();
        }
        true
    }

    /// The page that nobody expects any more whose places, all of them and in order, are the next ones after those of
    /// the fragments that are awaited.
    fn left_over(&self, waiting: usize) -> Option<u64> {
        let places = || self.offered.iter().chain(&self.offers).skip(waiting);
        let Some(&Place::Part(at, _)) = places().next() else { return None };
        let own = self.shape.order().map(|part| Place::Part(at, part));
        let parts = self.shape.parts() as usize;
        (self.held.contains(&at) && places().take(parts).copied().eq(own)).then_some(at)
    }

    /// Fragments of expected pages that have not come.
    fn missing(&self) -> usize {
        let of = |page: &Page| self.shape.parts() - page.come.count_ones();
        self.expected.iter().map(|page| of(page) as usize).sum()
    }

    /// Makes up for places that strangers have taken, so that every expected fragment has one. Called before
    /// [`Placer::offer`] when more is to come of the pages that are expected.
    pub fn make_up(&mut self) {
        while self.offered.len() + self.offers.len() < self.missing() {
            let Some(loose) = self.loose.pop() else { break };
            self.offers.push(Place::Loose(loose));
        }
    }

    /// The places that the kernel is to be offered now, in this order: addresses where frames shall begin. The caller
    /// has done with all that landed before.
    pub fn offer(&mut self, mut each: impl FnMut(u64)) {
        for place in core::mem::take(&mut self.offers) {
            each(self.address(place));
            self.offered.push_back(place);
        }
    }

    /// Where a frame begins that lands at this place.
    fn address(&self, place: Place) -> u64 {
        match place {
            Place::Part(at, part) => self.payload(at, part) - u64::from(self.shape.before),
            Place::Loose(at) => at,
        }
    }

    /// Where a fragment belongs.
    fn payload(&self, at: u64, part: u32) -> u64 {
        at + u64::from(part) * u64::from(self.shape.slice)
    }

    /// A frame has landed at `at`, and its header says this, if it is one. `moves` gets what is to be copied, in this
    /// order, before anything else is done.
    pub fn landed(&mut self, at: u64, told: Option<Told>, moves: &mut Vec<Move>) -> (Landing, Option<Complete>) {
        // Nearly always the first one; a frame that the kernel dropped late gives its place back out of order.
        let Some(index) = self.offered.iter().position(|place| self.address(*place) == at) else {
            self.counts.lies += 1;
            return (Landing::Lie, None);
        };
        if let Some(Place::Loose(loose)) = self.offered.remove(index) {
            self.loose.push(loose);
        }
        let done = self.sort(at, told, moves);
        // Not earlier: the page that this frame lies in must not be the spare one that its own page moves to.
        self.let_go();
        done
    }

    /// Finds out what a frame at a place that was offered is, and has it put where it belongs.
    fn sort(&mut self, at: u64, told: Option<Told>, moves: &mut Vec<Move>) -> (Landing, Option<Complete>) {
        let Some((number, part)) = told.and_then(|told| self.find(told)) else {
            self.counts.strays += 1;
            return (Landing::Stray, None);
        };
        let payload = at + u64::from(self.shape.before);
        let landing = self.keep(number, part, payload, moves);
        let page = &mut self.expected[number];
        if landing == Landing::Lost {
            self.counts.lost += 1;
            return (landing, None);
        }
        page.come |= 1 << part;
        if page.come.count_ones() < self.shape.parts() {
            return (landing, None);
        }
        let complete = self.expected.remove(number);
        (landing, complete.map(|page| Complete { key: page.key, at: page.at, copies: page.copies }))
    }

    /// Which expected fragment this is.
    fn find(&self, told: Told) -> Option<(usize, u32)> {
        let slice = self.shape.slice;
        self.expected.iter().enumerate().find_map(|(number, page)| {
            let key = &page.key;
            let same = (key.tag, key.generation, key.message) == (told.tag, told.generation, told.message);
            let inside = told.offset.checked_sub(key.first).filter(|inside| same && *inside < self.shape.page)?;
            let part = inside / slice;
            let whole = inside % slice == 0 && told.bytes == self.shape.part_bytes(part);
            (whole && page.come >> part & 1 == 0).then_some((number, part))
        })
    }

    /// Sees to it that a fragment gets where it belongs.
    fn keep(&mut self, number: usize, part: u32, payload: u64, moves: &mut Vec<Move>) -> Landing {
        let page = self.expected[number].at;
        let belongs = self.payload(page, part);
        // Where the kernel may still write: the place itself, and, if headers land before fragments, the end of it.
        let shape = self.shape;
        let reached = |place: &Place| match *place {
            Place::Part(at, other) => at == page && (other == part || shape.before > 0 && other == part + 1),
            Place::Loose(_) => false,
        };
        let safe = !self.offered.iter().chain(&self.offers).any(reached);
        if payload == belongs && safe {
            self.counts.hits += 1;
            return Landing::Hit;
        }
        let mut to = belongs;
        if !safe {
            let Some(spare) = self.free.pop() else { return Landing::Lost };
            let come = self.expected[number].come;
            for part in (0..shape.parts()).filter(|part| come >> part & 1 == 1) {
                let (from, to) = (self.payload(page, part), self.payload(spare, part));
                moves.push(Move { from, to, bytes: shape.part_bytes(part) });
            }
            self.expected[number].copies += come.count_ones();
            self.counts.copies += u64::from(come.count_ones());
            self.expected[number].at = spare;
            self.held.push(page);
            to = self.payload(spare, part);
        }
        moves.push(Move { from: payload, to, bytes: shape.part_bytes(part) });
        self.expected[number].copies += 1;
        self.counts.copies += 1;
        self.counts.misses += 1;
        Landing::Miss
    }

    /// Pages of which the kernel has no place any more are free again.
    fn let_go(&mut self) {
        let mut index = 0;
        while let Some(&page) = self.held.get(index) {
            let has = |place: &Place| matches!(*place, Place::Part(at, _) if at == page);
            if self.offered.iter().chain(&self.offers).any(has) {
                index += 1;
            } else {
                self.free.push(self.held.swap_remove(index));
            }
        }
    }

    /// Expects this page no longer: it comes another way, or not at all.
    pub fn give_up(&mut self, key: Key) {
        if let Some(page) =
            self.expected.iter().position(|page| page.key == key).and_then(|at| self.expected.remove(at))
        {
            self.held.push(page.at);
            self.let_go();
        }
    }

    /// Takes a page back that was complete.
    pub fn release(&mut self, at: u64) {
        self.free.push(at);
    }

    /// How many pages are expected.
    #[must_use]
    pub fn expected(&self) -> usize {
        self.expected.len()
    }

    /// What has happened so far.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }
}

#[cfg(test)]
mod tests;
