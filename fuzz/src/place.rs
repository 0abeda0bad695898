//! Payloads that land in parts of pages: a kernel that uses places in any order, and a wire that brings anything.

use std::collections::VecDeque;

use arbitrary::Arbitrary;
use cutthrough_engine::place_ring::{Complete, Key, Landing, Move, Placer, Shape, Told};

use crate::register;

/// Pages and loose buffers.
const PAGES: u64 = 6;
const LOOSE: u64 = 5;
/// Bytes at both ends of the memory that nobody may write, but for headers before the first page.
const EDGE: u64 = 512;
const UNTOUCHED: u8 = 0xee;

/// One of the two ways in which a ring places payloads.
#[derive(Debug, Arbitrary)]
pub enum Any {
    /// With headers, or behind a register that is measured.
    Ring(Play),
    /// Behind the register of an endpoint.
    Register(register::Play),
}

impl Any {
    /// Plays it.
    ///
    /// # Panics
    /// As [`run`], and [`register::run`].
    pub fn run(&self) {
        match self {
            Self::Ring(play) => run(play),
            Self::Register(play) => register::run(play),
        }
    }
}

/// A play: a shape of pages, and what happens.
#[derive(Debug, Arbitrary)]
pub struct Play {
    /// Bytes of a page, and of a fragment.
    pub page: u16,
    /// See `page`.
    pub slice: u16,
    /// Bytes of headers that land too; the last fragment is expected first then.
    pub before: u8,
    /// What happens.
    pub steps: Vec<Step>,
}

/// What happens next.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Step {
    /// A page is expected: of which message, and where in it.
    Expect(u8, u8),
    /// The kernel is offered places; perhaps what strangers have taken is made up first.
    Offer(bool),
    /// A fragment of a page lands at one of the kernel's places: of which page, and which.
    Fragment(u8, u8, u8),
    /// The same, and its header says another offset, and another length.
    Odd(u8, u8, u8, u8, i8),
    /// Something else lands, of so many bytes.
    Stray(u8, u16),
    /// The endpoint looks at the next frame that has landed.
    Look,
    /// It is told of a frame where none can be.
    Lie(u64, u8),
    /// A page is expected no longer.
    GiveUp(u8, u8),
    /// The user has done with a page.
    Release(u8),
}

struct Landed {
    at: u64,
    told: Option<Told>,
    bytes: Vec<u8>,
}

struct World {
    shape: Shape,
    memory: Vec<u8>,
    placer: Placer,
    offered: VecDeque<u64>,
    landed: VecDeque<Landed>,
    /// Pages that have not come whole.
    expected: Vec<Key>,
    /// Pages of the user.
    ours: Vec<Complete>,
    /// Fragments so far.
    frames: u32,
    /// For each fragment that was kept, the byte that it is full of.
    kept: Vec<(Key, u32, u8)>,
}

fn index(at: u64) -> usize {
    usize::try_from(at).expect("an address of 64 bits")
}

fn key(message: u8, first: u8, shape: &Shape) -> Key {
    Key { tag: 1, generation: 2, message: u32::from(message % 3), first: u32::from(first % 3) * shape.page }
}

/// Plays it.
///
/// # Panics
/// If a page is shown that is not whole, or changes later, or bytes are written elsewhere; or if places are lost.
pub fn run(play: &Play) {
    let page = u32::from(play.page % 600) + 1;
    let slice = (u32::from(play.slice) % page + 1).max(page.div_ceil(60));
    let before = if play.before > 120 { 0 } else { u32::from(play.before) };
    let shape = Shape { page, slice, before, backwards: before > 0 };
    let stride = shape.stride(false);
    let base = EDGE + PAGES * stride;
    let frame = u64::from(shape.before + shape.slice);
    let loose: Vec<u64> = (0..LOOSE).map(|loose| base + loose * frame).collect();
    let pages = (0..PAGES).map(|page| EDGE + page * stride).collect();
    let mut world = World {
        shape,
        memory: vec![UNTOUCHED; index(base + LOOSE * frame + EDGE)],
        placer: Placer::new(shape, pages, loose),
        offered: VecDeque::new(),
        landed: VecDeque::new(),
        expected: Vec::new(),
        ours: Vec::new(),
        frames: 0,
        kept: Vec::new(),
    };
    for step in &play.steps {
        world.step(*step);
        world.check();
    }
    world.end();
}

impl World {
    fn step(&mut self, step: Step) {
        match step {
            Step::Expect(message, first) => {
                let key = key(message, first, &self.shape);
                // As an engine does, which expects each page once.
                let known = self.expected.contains(&key) || self.ours.iter().any(|page| page.key == key);
                if !known && self.placer.expect(key) {
                    self.expected.push(key);
                }
                assert_eq!(self.placer.expected(), self.expected.len());
            }
            Step::Offer(make_up) => self.offer(make_up),
            Step::Fragment(place, which, part) => self.fragment(place, which, part, (0, 0)),
            Step::Odd(place, which, part, offset, bytes) => self.fragment(place, which, part, (offset, bytes)),
            Step::Stray(place, bytes) => {
                let bytes = u32::from(bytes) % (self.shape.slice + 1);
                self.land(place, None, vec![0xaa; bytes as usize]);
            }
            Step::Look => self.look(),
            Step::Lie(at, message) => self.lie(at, message),
            Step::GiveUp(message, first) => {
                let key = key(message, first, &self.shape);
                self.placer.give_up(key);
                if let Some(at) = self.expected.iter().position(|expected| *expected == key) {
                    self.expected.remove(at);
                    self.kept.retain(|(of, ..)| *of != key);
                }
            }
            Step::Release(which) => {
                if !self.ours.is_empty() {
                    let page = self.ours.swap_remove(usize::from(which) % self.ours.len());
                    self.kept.retain(|(of, ..)| *of != page.key);
                    self.placer.release(page.at);
                }
            }
        }
    }

    fn offer(&mut self, make_up: bool) {
        // What has landed has been looked at before.
        while !self.landed.is_empty() {
            self.look();
        }
        if make_up {
            self.placer.make_up();
        }
        let offered = &mut self.offered;
        self.placer.offer(|at| offered.push_back(at));
    }

    fn fragment(&mut self, place: u8, which: u8, part: u8, (offset, longer): (u8, i8)) {
        let shape = self.shape;
        let Key { tag, generation, message, first } = key(which & 3, which >> 2 & 3, &shape);
        let part = u32::from(part) % shape.parts();
        let bytes = shape.part_bytes(part).saturating_add_signed(longer.into()).min(shape.slice);
        let offset = (first + part * shape.slice).wrapping_add(offset.into());
        self.frames += 1;
        let fill = self.frames.to_le_bytes()[0];
        let told = Told { tag, generation: generation + u32::from(which >> 7), message, offset, bytes };
        self.land(place, Some(told), vec![fill; bytes as usize]);
    }

    /// Something lands. Where headers land too, the kernel uses places in their order as long as somebody has to look.
    fn land(&mut self, place: u8, told: Option<Told>, bytes: Vec<u8>) {
        let in_order = self.shape.before > 0 && !self.landed.is_empty();
        let place = if in_order { 0 } else { usize::from(place) % self.offered.len().max(1) };
        let Some(at) = self.offered.remove(place) else { return };
        let (begin, before) = (index(at), self.shape.before as usize);
        self.memory[begin..begin + before].fill(0xdd);
        self.memory[begin + before..begin + before + bytes.len()].copy_from_slice(&bytes);
        self.landed.push_back(Landed { at, told, bytes });
        if self.shape.before > 0 && place > 0 {
            self.look();
        }
    }

    fn look(&mut self) {
        let Some(Landed { at, told, bytes }) = self.landed.pop_front() else { return };
        let mut moves = Vec::new();
        let (landing, complete) = self.placer.landed(at, told, &mut moves);
        let mut lies = index(at) + self.shape.before as usize;
        for Move { from, to, bytes } in moves {
            self.memory.copy_within(index(from)..index(from) + bytes as usize, index(to));
            lies = index(to);
        }
        assert_eq!(self.memory[lies..lies + bytes.len()], bytes, "a frame that has landed as a {landing:?}");
        assert!(landing != Landing::Lie, "{at} was offered");
        if matches!(landing, Landing::Hit | Landing::Miss) {
            let told = told.expect("a frame without a header is a stray");
            let first = told.offset / self.shape.page * self.shape.page;
            let Told { tag, generation, message, offset, .. } = told;
            let fill = bytes.first().copied().unwrap_or(0);
            self.kept.push((Key { tag, generation, message, first }, offset - first, fill));
        }
        if let Some(complete) = complete {
            self.expected.retain(|expected| *expected != complete.key);
            self.ours.push(complete);
        }
    }

    fn lie(&mut self, at: u64, message: u8) {
        let known = self.offered.iter().chain(self.landed.iter().map(|landed| &landed.at)).any(|place| *place == at);
        if !known {
            let told = Told { tag: 1, generation: 2, message: message.into(), offset: 0, bytes: self.shape.slice };
            let mut moves = Vec::new();
            assert_eq!(self.placer.landed(at, Some(told), &mut moves), (Landing::Lie, None));
            assert!(moves.is_empty());
        }
    }

    /// Every page of the user's is whole, and stays so; the edges are nobody's.
    fn check(&self) {
        for page in &self.ours {
            for part in 0..self.shape.parts() {
                let begin = index(page.at) + (part * self.shape.slice) as usize;
                let came = self.kept.iter().filter(|(of, at, _)| (*of, *at) == (page.key, part * self.shape.slice));
                let fills: Vec<u8> = came.map(|(.., fill)| *fill).collect();
                assert_eq!(fills.len(), 1, "part {part} of {page:?} has come once");
                let bytes = &self.memory[begin..begin + self.shape.part_bytes(part) as usize];
                assert!(bytes.iter().all(|byte| *byte == fills[0]), "part {part} of {page:?}");
            }
        }
        let first = &self.memory[..index(EDGE) - self.shape.before as usize];
        let last = &self.memory[self.memory.len() - index(EDGE)..];
        assert!(first.iter().chain(last).all(|byte| *byte == UNTOUCHED), "written outside of every place");
    }

    /// When everything has come to its end, all pages are there again: as many are expected as at the beginning.
    fn end(&mut self) {
        for message in 0..3 {
            for first in 0..3 {
                self.placer.give_up(key(message, first, &self.shape));
            }
        }
        assert_eq!(self.placer.expected(), 0);
        self.ours.drain(..).for_each(|page| self.placer.release(page.at));
        self.offer(false);
        while !self.offered.is_empty() {
            self.land(0, None, Vec::new());
            self.look();
        }
        self.ours.drain(..).for_each(|page| self.placer.release(page.at));
        let expected = (0..20)
            .take_while(|message| self.placer.expect(Key { tag: 9, generation: 2, message: *message, first: 0 }));
        assert_eq!(expected.count() as u64, PAGES - 1, "pages are lost");
    }
}
