//! Placement: guessing where the next frame's payload belongs, and mending a wrong guess.
//!
//! A page travels in several frames, and an ordinary adapter must be told where to put a frame before anybody knows
//! which frame it will be. Speculative Defragmentation (Kurmann, Müller, Rauch, Stricker, HPDC 2000) guesses: the
//! frames of a page arrive in order and uninterrupted. So each posted descriptor (a pair, where the adapter puts
//! headers aside) points at the part of a page that the frame should carry, and if the guess holds the page is whole
//! without a copy. If it fails, the payload is copied from where it landed to where it belongs.
//!
//! [`Placer`] is that rule without memory or adapter. Its caller posts descriptors and reports frames:
//!
//! 1. [`Placer::give`] lends it pages;
//! 2. [`Placer::post`] says where the next descriptor points, as often as the adapter has room for one;
//! 3. [`Placer::arrived`] takes the frames in the order in which the adapter filled descriptors, and says for each
//!    whether the guess held, and what to copy if it did not. A page that is whole leaves the placer;
//! 4. if the guesses are out of step ([`Placer::in_step`]) and the adapter can give descriptors back that it has not
//!    begun to fill, [`Placer::withdraw`] takes the last one back; the next [`Placer::post`] guesses anew. An adapter
//!    that gives nothing back costs a miss for each descriptor that it holds; new guesses fit all the same.
//!
//! # Why a wrong guess cannot corrupt
//!
//! A descriptor may be filled at any time between its `post` and its `arrived`: frames land before anybody looks at
//! them. So the placer never lets a payload be copied to a part whose descriptor is posted, nor to the part that a
//! header before the payload may reach into; it moves the message to a page without descriptors instead. It never
//! posts a part that holds a payload, and a page is handed on only when nothing points into it any more. A frame is
//! believed to carry a part of a page only if offset and length are those of the layout; every other frame is left to
//! the caller ([`Verdict::Apart`]). What is left for the adapter is to write no more payload to a descriptor than the
//! part has bytes: the rest of a longer frame belongs into the next descriptor, or into a buffer of the caller's.
//!
//! It keeps the payloads apart of messages that are open at once; that a message is delivered once only, and sent again
//! if a frame of it is lost, is for others to see to. Nothing here depends on the size of frames: see [`Layout`].

mod admission;
mod layout;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

pub use admission::{Admission, Chain, Register};
pub use layout::{FRAGMENTS_MAX, Layout, LayoutError, Part};

/// A part of a page: where a descriptor points, or where a payload belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Spot {
    /// The page, by the caller's number.
    pub page: u32,
    /// The part of it.
    pub part: Part,
}

/// What the header of a frame says of the payload that it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// Who sends.
    pub stream: u64,
    /// Which page of the stream; not the number of another page that is still under way.
    pub message: u64,
    /// First byte and length in the page.
    pub part: Part,
}

/// Where the bytes of a copy lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// Where the adapter has put the payload of the frame that arrived: as a rule at [`Arrival::landed`], but a header
    /// of an unexpected length displaces it, and only the caller knows by how much.
    Arrived,
    /// At a part of a page that an earlier frame was placed in.
    Placed(Spot),
}

/// A copy that has to be made at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mend {
    /// From where.
    pub from: Source,
    /// To where, and how many bytes.
    pub to: Spot,
}

/// What has become of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The guess held: the payload lies where it belongs.
    Hit,
    /// The guess failed, and the payload was copied to where it belongs.
    Miss,
    /// The payload was there already; nothing was done.
    Duplicate,
    /// The frame is not one that is placed: it carries no part of a page, its stream is not the admitted one, or no
    /// page was free. The caller takes it out of the descriptor and treats it as any frame.
    Apart,
}

/// A message that is whole. Its page is the caller's again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Whole {
    /// Who sent it.
    pub stream: u64,
    /// Which it is.
    pub message: u64,
    /// Where its payload lies.
    pub page: u32,
}

/// What [`Placer::arrived`] says of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// Where the descriptor pointed that the frame has used up.
    pub landed: Spot,
    /// What has become of it.
    pub verdict: Verdict,
    /// The message that it completed.
    pub whole: Option<Whole>,
}

/// What has happened so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Descriptors posted.
    pub posted: u64,
    /// Descriptors withdrawn.
    pub withdrawn: u64,
    /// Fragments that landed where they belong.
    pub hits: u64,
    /// Fragments that landed elsewhere and were copied.
    pub misses: u64,
    /// Fragments that were there already.
    pub duplicates: u64,
    /// Frames that were left to the caller.
    pub apart: u64,
    /// Those among them that would have been placed if a page had been free.
    pub no_page: u64,
    /// Copies made: one for each miss, and one for each payload that had to leave its page.
    pub copies: u64,
    /// Bytes of those copies.
    pub copied_bytes: u64,
    /// Times the guesses were made anew, from another frame of a page than the next one in turn.
    pub resyncs: u64,
    /// Messages completed.
    pub whole: u64,
    /// Messages given up before they were whole.
    pub dropped: u64,
}

/// A message: its stream, and its number there.
type Name = (u64, u64);

/// A message of which some frames have arrived.
#[derive(Debug, Clone, Copy)]
struct Open {
    /// Its page.
    home: u32,
    /// Which frames have been placed there: bit n is the n-th in the order of travel.
    have: u64,
    /// How many messages were begun before it.
    age: u64,
}

/// What is known of a page.
#[derive(Debug, Clone, Copy, Default)]
struct Page {
    /// Whether the placer holds it.
    held: bool,
    /// Whether it is held and nothing needs it.
    free: bool,
    /// Which of its parts are posted.
    posted: u64,
    /// The open message that it is the home of.
    owner: Option<Name>,
}

/// A posted descriptor: a page, and which frame of the page in the order of travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Guess {
    page: u32,
    frame: usize,
}

/// The placement rule for one ring of receive descriptors.
#[derive(Debug, Clone)]
pub struct Placer {
    layout: Layout,
    /// Descriptors that the adapter may fill, in the order in which it will.
    posted: VecDeque<Guess>,
    /// What the next descriptor is for, if the guesses stay in step.
    next: Option<Guess>,
    /// The message whose frames are awaited, and which of them is next: the first is that of a message to come.
    awaited: (Name, usize),
    admitted: Option<u64>,
    open: BTreeMap<Name, Open>,
    open_max: usize,
    /// Messages begun.
    begun: u64,
    pages: Vec<Page>,
    free: Vec<u32>,
    tally: Tally,
}

impl Placer {
    /// A placer without pages, for pages that travel in `layout`. It keeps at most `open_max` messages open (at least
    /// one): the oldest is given up for one more, so a sender that never ends its messages costs no memory.
    #[must_use]
    pub fn new(layout: Layout, open_max: usize) -> Self {
        Self {
            layout,
            posted: VecDeque::new(),
            next: None,
            awaited: ((0, 0), 0),
            admitted: None,
            open: BTreeMap::new(),
            open_max: open_max.max(1),
            begun: 0,
            pages: Vec::new(),
            free: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// The layout of pages.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What has happened so far.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Descriptors that are posted.
    #[must_use]
    pub fn posted(&self) -> usize {
        self.posted.len()
    }

    /// Where the descriptor points that the adapter fills `ahead` frames after the next one.
    #[must_use]
    pub fn guess(&self, ahead: usize) -> Option<Spot> {
        self.posted.get(ahead).map(|&guess| self.spot(guess))
    }

    /// Lends a page. Numbers should be small and used again: memory grows with the largest. A posted ring of `n`
    /// descriptors wants `n` pages by the frames of a page, rounded up, and one more for every message that may be open
    /// when guesses fail. A page that the placer holds already is not taken twice.
    pub fn give(&mut self, page: u32) {
        let index = page as usize;
        if index >= self.pages.len() {
            self.pages.resize(index + 1, Page::default());
        }
        self.pages[index].held = true;
        self.release(page);
    }

    /// Places frames of `stream` only, and follows its order alone; `None` takes every stream as it comes. Messages
    /// that other streams have begun are given up.
    pub fn admit(&mut self, stream: Option<u64>) {
        self.admitted = stream;
        let Some(stream) = stream else { return };
        if stream != self.awaited.0.0 {
            self.awaited = ((stream, 0), 0);
        }
        self.give_up(|of| of != stream);
    }

    /// Gives up the open messages of `stream`: it is gone.
    pub fn forget(&mut self, stream: u64) {
        if self.awaited.0.0 == stream {
            self.awaited.1 = 0;
        }
        self.give_up(|of| of == stream);
    }

    /// Where the next descriptor shall point; `None` if no page is free. The guess is that every descriptor posted
    /// before gets one frame of the awaited messages.
    pub fn post(&mut self) -> Option<Spot> {
        let ahead = self.awaited.1 + self.posted.len();
        let frame = ahead % self.layout.parts().len();
        let resumed = if ahead == frame { self.resumed(frame) } else { None };
        let guess = match self.next.filter(|&next| next.frame == frame && self.suits(next)) {
            Some(next) if resumed.is_none_or(|resumed| resumed == next) => next,
            _ => self.jump(resumed, frame)?,
        };
        self.posted.push_back(guess);
        self.pages[guess.page as usize].posted |= 1 << frame;
        let more = frame + 1 < self.layout.parts().len();
        self.next = more.then_some(Guess { page: guess.page, frame: frame + 1 });
        self.tally.posted += 1;
        Some(self.spot(guess))
    }

    /// Takes back the descriptor that was posted last, because the adapter has given it back unfilled.
    pub fn withdraw(&mut self) -> Option<Spot> {
        let guess = self.posted.pop_back()?;
        self.pages[guess.page as usize].posted &= !(1 << guess.frame);
        self.set_next(Some(guess));
        self.tally.withdrawn += 1;
        Some(self.spot(guess))
    }

    /// Whether the descriptor that is filled next points where the awaited frame belongs. If not, and the adapter gives
    /// descriptors back, it is time to [`Placer::withdraw`] them.
    #[must_use]
    pub fn in_step(&self) -> bool {
        let (name, frame) = self.awaited;
        self.posted.front().is_none_or(|guess| {
            let page_fits = match self.open.get(&name) {
                Some(open) if frame > 0 => open.home == guess.page || open.have >> frame != 0,
                _ => self.pages[guess.page as usize].owner.is_none(),
            };
            guess.frame == frame && page_fits
        })
    }

    /// A frame has used up the next descriptor; `fragment` is what its header says, or `None` if it carries no part of
    /// a page (or is the end of a frame that did not fit the descriptor before). Calls `mend` for each copy to make,
    /// in order. Before the next [`Placer::post`] the caller must be done with what the descriptor holds. Returns
    /// `None`, and does nothing, if no descriptor is posted.
    pub fn arrived(&mut self, fragment: Option<Fragment>, mut mend: impl FnMut(Mend)) -> Option<Arrival> {
        let guess = self.posted.pop_front()?;
        self.pages[guess.page as usize].posted &= !(1 << guess.frame);
        let mut whole = None;
        let placed = fragment.and_then(|fragment| Some((fragment, self.layout.find(fragment.part)?)));
        let verdict = match placed {
            Some((fragment, frame)) if self.admitted.is_none_or(|admitted| admitted == fragment.stream) => {
                let name = (fragment.stream, fragment.message);
                let verdict = self.place(guess, name, frame, &mut mend);
                whole = self.close_if_whole(name);
                let follows = if whole.is_some() { 0 } else { (frame + 1) % self.layout.parts().len() };
                self.awaited = (name, follows);
                verdict
            }
            _ => Verdict::Apart,
        };
        match verdict {
            Verdict::Hit => self.tally.hits += 1,
            Verdict::Miss => self.tally.misses += 1,
            Verdict::Duplicate => self.tally.duplicates += 1,
            Verdict::Apart => self.tally.apart += 1,
        }
        self.release(guess.page);
        Some(Arrival { landed: self.spot(guess), verdict, whole })
    }

    /// Places the `frame`-th frame of a message, which has landed at `guess`.
    fn place(&mut self, guess: Guess, name: Name, frame: usize, mend: &mut impl FnMut(Mend)) -> Verdict {
        let home = match self.open.get(&name).copied() {
            Some(open) if open.have >> frame & 1 == 1 => return Verdict::Duplicate,
            Some(open) if self.may_copy(open.home, frame) => Some(open.home),
            Some(open) => self.move_out(name, open, mend),
            None if guess.frame == frame && self.pages[guess.page as usize].owner.is_none() => Some(guess.page),
            None => self.take_free(),
        };
        let Some(home) = home else {
            self.tally.no_page += 1;
            return Verdict::Apart;
        };
        match self.open.get_mut(&name) {
            Some(open) => open.have |= 1 << frame,
            None => self.begin(name, home, 1 << frame),
        }
        let belongs = Guess { page: home, frame };
        if belongs == guess {
            return Verdict::Hit;
        }
        self.copy(Source::Arrived, belongs, mend);
        Verdict::Miss
    }

    /// Moves an open message to a page that nothing points into. Without such a page it is given up.
    fn move_out(&mut self, name: Name, open: Open, mend: &mut impl FnMut(Mend)) -> Option<u32> {
        let Some(new) = self.take_free() else {
            self.drop_open(name);
            return None;
        };
        for frame in (0..self.layout.parts().len()).filter(|frame| open.have >> frame & 1 == 1) {
            let from = Source::Placed(self.spot(Guess { page: open.home, frame }));
            self.copy(from, Guess { page: new, frame }, mend);
        }
        self.open.insert(name, Open { home: new, ..open });
        self.pages[new as usize].owner = Some(name);
        self.pages[open.home as usize].owner = None;
        self.release(open.home);
        Some(new)
    }

    fn copy(&mut self, from: Source, to: Guess, mend: &mut impl FnMut(Mend)) {
        let to = self.spot(to);
        self.tally.copies += 1;
        self.tally.copied_bytes += u64::from(to.part.len);
        mend(Mend { from, to });
    }

    /// Opens a message; the oldest gives way if there are too many.
    fn begin(&mut self, name: Name, home: u32, have: u64) {
        if self.open.len() == self.open_max {
            let oldest = self.open.iter().min_by_key(|(_, open)| open.age).map(|(&name, _)| name);
            oldest.into_iter().for_each(|oldest| self.drop_open(oldest));
        }
        self.pages[home as usize].owner = Some(name);
        self.open.insert(name, Open { home, have, age: self.begun });
        self.begun += 1;
    }

    fn close_if_whole(&mut self, name: Name) -> Option<Whole> {
        let all = u64::MAX >> (FRAGMENTS_MAX - self.layout.parts().len());
        let page = self.open.get(&name).filter(|open| open.have == all)?.home;
        self.open.remove(&name);
        self.pages[page as usize] = Page::default();
        if self.next.is_some_and(|next| next.page == page) {
            self.next = None;
        }
        self.tally.whole += 1;
        Some(Whole { stream: name.0, message: name.1, page })
    }
}

/// Where things are, and what may be done with them.
impl Placer {
    fn spot(&self, guess: Guess) -> Spot {
        Spot { page: guess.page, part: self.layout.parts()[guess.frame] }
    }

    /// Whether a payload may be copied to (or is allowed to stay at) this part: its own descriptor is not posted, nor
    /// the one before, whose header may reach into it.
    fn may_copy(&self, page: u32, frame: usize) -> bool {
        let danger = (1 << frame) | if frame > 0 { 1 << (frame - 1) } else { 0 };
        self.pages[page as usize].posted & danger == 0
    }

    /// Whether to go on with the page that was begun: it is free of payloads from there on, and not the page of a
    /// message that is not awaited.
    fn suits(&self, next: Guess) -> bool {
        let Some(name) = self.pages[next.page as usize].owner else { return true };
        name == self.awaited.0 && self.open.get(&name).is_none_or(|open| open.have >> next.frame == 0)
    }

    /// This part of the awaited message's own page, if neither it nor a later one holds a payload, and nothing points
    /// into the page.
    fn resumed(&self, frame: usize) -> Option<Guess> {
        let open = self.open.get(&self.awaited.0).filter(|open| frame > 0 && open.have >> frame == 0)?;
        let guess = Guess { page: open.home, frame };
        (self.pages[open.home as usize].posted == 0).then_some(guess)
    }

    /// Guesses anew: goes on with the page of the awaited message if that can be resumed, else with a free page.
    fn jump(&mut self, resumed: Option<Guess>, frame: usize) -> Option<Guess> {
        let strayed = self.next.is_some() || frame > 0;
        self.set_next(None);
        let guess = match resumed {
            Some(guess) => guess,
            None => Guess { page: self.take_free()?, frame },
        };
        self.tally.resyncs += u64::from(strayed);
        self.set_next(Some(guess));
        Some(guess)
    }

    fn set_next(&mut self, next: Option<Guess>) {
        let before = core::mem::replace(&mut self.next, next);
        if let Some(before) = before {
            self.release(before.page);
        }
    }

    fn take_free(&mut self) -> Option<u32> {
        let page = self.free.pop()?;
        self.pages[page as usize].free = false;
        Some(page)
    }

    /// Makes a page free if the placer holds it and nothing points into it or belongs there.
    fn release(&mut self, number: u32) {
        let awaits = self.next.is_some_and(|next| next.page == number);
        let page = &mut self.pages[number as usize];
        if page.held && !page.free && page.posted == 0 && page.owner.is_none() && !awaits {
            page.free = true;
            self.free.push(number);
        }
    }

    /// Gives up the open messages of some streams.
    fn give_up(&mut self, which: impl Fn(u64) -> bool) {
        let names: Vec<Name> = self.open.keys().copied().filter(|&(stream, _)| which(stream)).collect();
        names.into_iter().for_each(|name| self.drop_open(name));
    }

    fn drop_open(&mut self, name: Name) {
        if let Some(open) = self.open.remove(&name) {
            self.pages[open.home as usize].owner = None;
            self.tally.dropped += 1;
            self.release(open.home);
        }
    }
}
