//! A ring whose buffers are parts of pages, and the program before it, as `perf defrag` has them: the engine's own
//! [`Placer`] decides, and here are the memory and the kernel that it decides for. Endpoints of the adapter `xdp` have
//! a register instead: see `cut`.
//!
//! Frames land when they come; the endpoint looks later, and what it takes from here it reads from where the placer
//! says. Everything is held against what came: nobody's bytes change, a page that is complete is whole and stays so.

use std::collections::{BTreeMap, VecDeque};

use cutthrough_engine::net::Guess;
use cutthrough_engine::place_ring::{Complete, Key, Landing, Move, Placer, Shape, Told};
use cutthrough_wire::frame::{FRAME_VERSION, HEADER_BYTES, Header, Kind};

use super::Summary;
use super::network::Frame;
use super::random::Random;
use super::ways::Placement;

/// Bytes before our header: Ethernet, IPv4, UDP.
const ENVELOPE: usize = 42;
/// Bytes at both ends of the memory, of which nobody has to write any but headers before the first page.
const EDGE: usize = 4096;
/// What nobody has written.
const UNTOUCHED: u8 = 0xee;
/// Loose buffers.
const LOOSE: u64 = 16;
/// Pages that the user keeps.
const KEPT: usize = 2;
/// Of a thousand frames, those that find the next two places in the other order.
const SWAPPED: u64 = 10;

/// A frame that has landed.
#[derive(Debug)]
struct Landed {
    at: u64,
    frame: Frame,
}

/// A page that the user has, and what it has to hold.
#[derive(Debug)]
struct Owned {
    page: Complete,
    bytes: Vec<u8>,
}

/// The ring, its memory and its program.
#[derive(Debug)]
pub(super) struct Stream {
    shape: Shape,
    placement: Placement,
    placer: Placer,
    memory: Vec<u8>,
    /// Places that the kernel has.
    offered: VecDeque<u64>,
    landed: VecDeque<Landed>,
    slots: usize,
    expected: Vec<Key>,
    /// Pages that the program lets through, and the next fragment of each.
    announced: VecDeque<(Key, u32)>,
    /// Fragments that were kept, as they came.
    came: BTreeMap<(u32, u32, u32, u32, u32), Vec<u8>>,
    owned: VecDeque<Owned>,
    moves: Vec<Move>,
    /// Whether bytes were written since the memory was looked at.
    written: bool,
}

impl Stream {
    /// For fragments of `slice` bytes. At most `slots` frames are kept until they are looked at.
    pub(super) fn new(placement: Placement, slice: u32, slots: usize) -> Self {
        let before = if placement.cut { 0 } else { u32::try_from(ENVELOPE + HEADER_BYTES).unwrap_or(0) };
        let shape = Shape { page: slice * placement.parts, slice, before, backwards: !placement.cut };
        let stride = shape.stride(placement.strict);
        let pages: Vec<u64> = (0..2 * placement.window as u64 + 1).map(|page| EDGE as u64 + page * stride).collect();
        let base = EDGE as u64 + pages.len() as u64 * stride;
        let buffer = u64::from(before + slice);
        let loose = (0..LOOSE).map(|loose| base + loose * buffer).collect();
        let bytes = usize::try_from(base + LOOSE * buffer).unwrap_or(0) + EDGE;
        Self {
            shape,
            placement,
            placer: Placer::new(shape, pages, loose),
            memory: vec![UNTOUCHED; bytes],
            offered: VecDeque::new(),
            landed: VecDeque::new(),
            slots,
            expected: Vec::new(),
            announced: VecDeque::new(),
            came: BTreeMap::new(),
            owned: VecDeque::new(),
            moves: Vec::new(),
            written: false,
        }
    }

    /// Whether nothing waits to be looked at.
    pub(super) fn is_empty(&self) -> bool {
        self.landed.is_empty()
    }

    /// The program: whether this frame is for this ring. A page turns to its next fragment.
    fn matches(&mut self, frame: &Frame) -> bool {
        let data = [FRAME_VERSION, Kind::Data as u8];
        let Some((head, body)) = frame.bytes.split_first_chunk::<HEADER_BYTES>() else { return false };
        if head[..2] != data || body.len() > self.shape.slice as usize || self.expected.is_empty() {
            return false;
        }
        if !self.placement.strict {
            return true;
        }
        let Some((key, part)) = self.announced.front_mut() else { return false };
        let Ok(header) = Header::from_bytes(head) else { return false };
        let offset = key.first + *part * self.shape.slice;
        let bytes = self.shape.part_bytes(*part) as usize;
        let next = (header.tag, header.generation) == (key.tag, key.generation)
            && header.words == [key.message, offset]
            && usize::from(header.body) == bytes
            && body.len() == bytes;
        if next {
            let last = if self.shape.backwards { *part == 0 } else { *part + 1 == self.shape.parts() };
            if last {
                self.announced.pop_front();
            } else {
                *part = if self.shape.backwards { *part - 1 } else { *part + 1 };
            }
        }
        next
    }

    /// A frame has come: it lands, is lost because there is no place, or is given back because it is not for this ring.
    pub(super) fn arrived(&mut self, frame: Frame, random: &mut Random, summary: &mut Summary) -> Option<Frame> {
        if !self.matches(&frame) {
            return Some(frame);
        }
        // Only a kernel that gives several places to one frame gives them back in another order, and cuts headers off.
        if self.placement.cut && self.offered.len() > 1 && random.chance(SWAPPED) {
            self.offered.swap(0, 1);
        }
        let place = if self.landed.len() < self.slots { self.offered.pop_front() } else { None };
        let Some(at) = place else {
            summary.injected.ring_overflows += 1;
            return None;
        };
        let (begin, before) = (usize::try_from(at).unwrap_or(0), self.shape.before as usize);
        let body = &frame.bytes[HEADER_BYTES..];
        self.memory[begin..begin + before].fill(0xdd);
        self.memory[begin + before..begin + before + body.len()].copy_from_slice(body);
        self.written = true;
        self.landed.push_back(Landed { at, frame });
        None
    }

    /// The next frame that has landed, as it lies in the memory now.
    pub(super) fn take(&mut self, summary: &mut Summary) -> Result<Option<Frame>, String> {
        let Some(Landed { at, mut frame }) = self.landed.pop_front() else { return Ok(None) };
        let (head, body) = frame.bytes.split_at(HEADER_BYTES);
        let header = head.first_chunk().and_then(|head| Header::from_bytes(head).ok());
        let bytes = u32::try_from(body.len()).unwrap_or(0);
        let told = header.filter(|header| u32::from(header.body) == bytes).map(|header| Told {
            tag: header.tag,
            generation: header.generation,
            message: header.words[0],
            offset: header.words[1],
            bytes,
        });
        let mut lies = usize::try_from(at).unwrap_or(0) + self.shape.before as usize;
        if self.memory[lies..lies + body.len()] != *body {
            return Err(format!("a frame at {at} was written over before it was looked at"));
        }
        let (landing, complete) = self.placer.landed(at, told, &mut self.moves);
        for Move { from, to, bytes } in self.moves.drain(..) {
            let (from, to, bytes) = (usize::try_from(from), usize::try_from(to), bytes as usize);
            let (Ok(from), Ok(to)) = (from, to) else { return Err("a copy to nowhere".into()) };
            if from.max(to) + bytes > self.memory.len() {
                return Err(format!("a copy from {from} to {to}, of memory that is not there"));
            }
            self.memory.copy_within(from..from + bytes, to);
            lies = to;
        }
        match landing {
            Landing::Hit => summary.placed.hits += 1,
            Landing::Miss => summary.placed.misses += 1,
            Landing::Stray | Landing::Lost => summary.placed.strays += 1,
            Landing::Lie => return Err(format!("the place at {at} was offered, and is taken for a lie")),
        }
        if self.memory[lies..lies + body.len()] != *body {
            return Err(format!("a frame that landed at {at} as a {landing:?} has other bytes now"));
        }
        if matches!(landing, Landing::Hit | Landing::Miss)
            && let Some(told) = told
        {
            self.came.insert((told.tag, told.generation, told.message, told.offset, bytes), body.to_vec());
        }
        if let Some(complete) = complete {
            summary.placed.pages += 1;
            self.complete(complete)?;
        }
        frame.bytes[HEADER_BYTES..].copy_from_slice(&self.memory[lies..lies + bytes as usize]);
        Ok(Some(frame))
    }

    /// A page is the user's now: all of it has come, and is there.
    fn complete(&mut self, page: Complete) -> Result<(), String> {
        let mut bytes = Vec::with_capacity(self.shape.page as usize);
        for part in 0..self.shape.parts() {
            let (offset, len) = (page.key.first + part * self.shape.slice, self.shape.part_bytes(part));
            let part = (page.key.tag, page.key.generation, page.key.message, offset, len);
            let Some(came) = self.came.remove(&part) else {
                return Err(format!("a page is shown without its part at {offset}: {page:?}"));
            };
            bytes.extend_from_slice(&came);
        }
        self.expected.retain(|key| *key != page.key);
        self.owned.push_back(Owned { page, bytes });
        self.check()
    }

    /// Whether every page of the user's holds what it has to, and nothing was written at the edges.
    fn check(&self) -> Result<(), String> {
        for Owned { page, bytes } in &self.owned {
            let at = usize::try_from(page.at).unwrap_or(0);
            if self.memory[at..at + bytes.len()] != bytes[..] {
                return Err(format!("a page of the user's is not what has come: {page:?}"));
            }
        }
        let first = &self.memory[..EDGE - self.shape.before as usize];
        let last = &self.memory[self.memory.len() - EDGE..];
        let written = first.iter().chain(last).any(|byte| *byte != UNTOUCHED);
        if written { Err("bytes were written outside of every place".into()) } else { Ok(()) }
    }

    /// What has come has been looked at. Pages are expected where the engine's next bytes will go, and others not any
    /// more; then the kernel gets new places. `last` is the channel of the last payload, and which life of it.
    pub(super) fn offer(&mut self, guess: Option<Guess>, (last, generation): (u32, u32)) -> Result<(), String> {
        if std::mem::take(&mut self.written) {
            self.check()?;
        }
        let rest = match guess {
            Some(Guess::Rest { channel, message, begin, end }) if channel == last as usize => {
                #[allow(clippy::cast_possible_truncation, reason = "the low half travels")]
                let of = (u32::try_from(channel).unwrap_or(0), generation, message as u32);
                Some((of, begin, end))
            }
            _ => None,
        };
        self.give_up(rest);
        if let Some(((tag, generation, message), begin, end)) = rest {
            let known = self.expected.last().map(|key| key.first + self.shape.page);
            let mut first = known.map_or(begin, |known| known.max(begin));
            while end.saturating_sub(first) >= self.shape.page && self.placer.expected() < self.placement.window {
                let key = Key { tag, generation, message, first };
                if !self.placer.expect(key) {
                    break;
                }
                self.expected.push(key);
                self.announced.push_back((key, if self.shape.backwards { self.shape.parts() - 1 } else { 0 }));
                first += self.shape.page;
            }
        }
        self.placer.make_up();
        let offered = &mut self.offered;
        self.placer.offer(|at| offered.push_back(at));
        while self.owned.len() > KEPT {
            if let Some(owned) = self.owned.pop_front() {
                self.placer.release(owned.page.at);
            }
        }
        Ok(())
    }

    /// Expects no page any more but those of this message from its first gap on.
    fn give_up(&mut self, rest: Option<((u32, u32, u32), u32, u32)>) {
        let page = self.shape.page;
        let stays = |key: &Key| {
            rest.is_some_and(|(of, begin, end)| {
                (key.tag, key.generation, key.message) == of && key.first + page > begin && key.first + page <= end
            })
        };
        for key in self.expected.extract_if(.., |key| !stays(key)) {
            self.placer.give_up(key);
            self.announced.retain(|(announced, _)| *announced != key);
            self.came.retain(|(tag, generation, message, offset, _), _| {
                (*tag, *generation, *message) != (key.tag, key.generation, key.message)
                    || !(key.first..key.first + page).contains(offset)
            });
        }
    }
}
