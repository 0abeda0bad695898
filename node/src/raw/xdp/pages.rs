//! A socket whose buffers are parts of pages, and the register of what it awaits: what pages in frames of ours
//! ([`super::stream`]) and datagrams in fragments of IP ([`super::fragments`]) have in common.
//!
//! Who uses it announces pages in their order, takes frames out one by one, says which fragment each of them is, and
//! gets pages back that are complete. What the program at the interface has written down of the frames that it let
//! through is read in the same order.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use cutthrough_segment::map::{Mapping, Writers};

use super::place::{Complete, Counts, Key, Landing, Move, Placer, Shape, Told};
use crate::sys::xdp::bpf::{Attached, Program, Rings, SharedMemory};
use crate::sys::xdp::program::{ANNOUNCED, LOGGED, shared};
use crate::sys::xdp::socket::HEADROOM;
use crate::sys::xdp::{Interface, Memory, Mode, Settings, XdpError, Xsk};

pub(super) const ENTRIES: u32 = 1024;
pub(super) const BUFFER: u32 = 4096;
/// Most bytes of a frame that the kernel writes to one place.
pub(super) const PIECE: u32 = BUFFER - 256;

/// What the memory holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) shape: Shape,
    /// Where the first page begins. Before it there is room for what comes before a fragment.
    pub(super) first: u64,
    /// Bytes from one page to the next.
    pub(super) stride: u64,
    /// How many pages can be expected at a time; at most 63.
    pub(super) window: u32,
    /// Buffers for what was not guessed.
    pub(super) loose: u64,
    /// Whether every fragment is copied to its place.
    pub(super) copied: bool,
}

/// An announcement that the program may still look at.
#[derive(Debug)]
struct Announced {
    number: u32,
    key: Key,
    /// How many of its fragments had been taken when it was given up.
    given_up: Option<u32>,
}

/// A socket whose buffers are parts of pages.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) xsk: Xsk,
    pub(super) memory: Memory,
    pub(super) shared: SharedMemory,
    rings: Rings,
    _attached: Attached,
    placer: Placer,
    window: usize,
    announced: VecDeque<Announced>,
    /// Number of the next announcement.
    end: u32,
    /// How many entries have been read from the log.
    pub(super) seen: u32,
    /// How many frames the kernel had dropped when we looked; whether entries and frames may have parted since.
    dropped: u64,
    pub(super) parted: bool,
    moves: Vec<Move>,
}

impl Pages {
    /// Takes what a program lets through on `queue` of an interface. The program is made when its map of rings and
    /// `shared_bytes` bytes of memory that it shares with this process are there.
    ///
    /// # Errors
    /// [`XdpError`].
    pub(super) fn open(
        interface: &Interface,
        (queue, mode): (u32, Mode),
        layout: Layout,
        shared_bytes: u64,
        program: impl FnOnce(&Rings, &SharedMemory) -> Vec<u8>,
    ) -> Result<Self, XdpError> {
        // Pages; loose buffers; and the length of a buffer, which the kernel wants to lie inside from the beginning of
        // the last place on.
        let Layout { shape, first, stride, window, loose, copied } = layout;
        let pages: Vec<u64> = (0..u64::from(window) * 2 + 1).map(|page| first + page * stride).collect();
        let buffer = u64::from(BUFFER);
        let base = first.next_multiple_of(buffer) + pages.len() as u64 * stride;
        let buffers = (0..loose).map(|number| base + number * buffer + HEADROOM).collect();
        let memory = Memory::new(base + (loose + 1) * buffer, Writers::Maker)?;
        let settings = Settings { queue, mode, buffer_bytes: BUFFER, unaligned: true, scatter: true, entries: ENTRIES };
        let xsk = Xsk::open(interface, &memory, settings)?;
        let rings = Rings::new(interface.queues)?;
        let shared = SharedMemory::new(usize::try_from(shared_bytes).unwrap_or(usize::MAX))?;
        let attached = Program::load(&program(&rings, &shared))?.attach(interface.index, mode)?;
        rings.set(queue, xsk.as_fd())?;
        let placer = if copied { Placer::copying } else { Placer::new };
        Ok(Self {
            xsk,
            memory,
            shared,
            rings,
            _attached: attached,
            placer: placer(shape, pages, buffers),
            window: window as usize,
            announced: VecDeque::new(),
            end: 0,
            seen: 0,
            dropped: 0,
            parted: false,
            moves: Vec::new(),
        })
    }

    /// The map of rings.
    pub(super) const fn rings(&self) -> &Rings {
        &self.rings
    }

    /// Number of the next page that is expected.
    pub(super) const fn next(&self) -> u32 {
        self.end
    }

    /// Whether the program has done with all that was announced.
    pub(super) fn nothing_is_announced(&self) -> bool {
        self.announced.is_empty()
    }

    /// Expects a page, after those that are expected already, and announces it to the program by these words, if there
    /// are any. Whether there was room.
    pub(super) fn expect(&mut self, key: Key, words: Option<&[u32]>) -> Result<bool, XdpError> {
        if self.announced.len() >= self.window || self.placer.expected() >= self.window || !self.placer.expect(key) {
            return Ok(false);
        }
        self.offer()?;
        let number = self.end;
        self.end = number.wrapping_add(1);
        let Some(words) = words else { return Ok(true) };
        // The places are there before the program lets the first fragment through.
        let at = announcement(number);
        for (place, word) in words.iter().enumerate() {
            self.shared.word(at + 4 * place as u64).store(*word, Ordering::Relaxed);
        }
        self.announced.push_back(Announced { number, key, given_up: None });
        self.shared.word(shared::END).store(self.end, Ordering::Release);
        Ok(true)
    }

    /// Expects a page no longer. `take_back` makes its announcement, which lies there, one that no fragment fits, and
    /// says how many of them had been taken; none if the program was faster and goes on itself.
    pub(super) fn give_up(&mut self, key: Key, take_back: impl FnOnce(&SharedMemory, u64) -> Option<u32>) {
        self.placer.give_up(key);
        if let Some(one) = self.announced.iter_mut().find(|one| one.key == key && one.given_up.is_none()) {
            one.given_up = take_back(&self.shared, announcement(one.number));
        }
    }

    /// Forgets announcements that the program has done with, and takes it over those that were given up. Of each it is
    /// told how many fragments had been taken, if not all.
    pub(super) fn skip(&mut self, mut over: impl FnMut(Option<u32>)) {
        let current = self.shared.word(shared::CURRENT);
        while let Some(Announced { number, given_up, .. }) = self.announced.front() {
            let at = current.load(Ordering::Acquire);
            if at == *number {
                if given_up.is_none() {
                    break;
                }
                // If the program was faster, it has gone on itself.
                let _ = current.compare_exchange(at, at.wrapping_add(1), Ordering::AcqRel, Ordering::Relaxed);
            } else if number.wrapping_sub(at) < u32::MAX / 2 {
                break;
            }
            over(*given_up);
            self.announced.pop_front();
        }
    }

    /// Where the log has what belongs to the next frame, in entries of so many bytes.
    pub(super) fn next_entry(&mut self, bytes: u64) -> u64 {
        let at = shared::LOG + u64::from(self.seen % LOGGED) * bytes;
        self.seen = self.seen.wrapping_add(1);
        at
    }

    /// A part of a frame has landed at a place: which fragment it is, if that is known.
    pub(super) fn landed(&mut self, at: u64, told: Option<Told>) -> (Landing, Option<Complete>) {
        let found = self.placer.landed(at, told, &mut self.moves);
        let mapping = self.memory.mapping();
        for Move { from, to, bytes } in self.moves.drain(..) {
            Mapping::copy_across(mapping, from, mapping, to, bytes as usize);
        }
        found
    }

    /// All that had arrived is taken out: the kernel gets new places.
    pub(super) fn done(&mut self) -> Result<(), XdpError> {
        self.xsk.release();
        self.placer.make_up();
        self.offer()
    }

    /// Offers the kernel the places that are due.
    fn offer(&mut self) -> Result<(), XdpError> {
        let mut failed = None;
        self.placer.offer(|at| {
            // The ring has more entries than there are places.
            if let Err(error) = self.xsk.offer(at - HEADROOM) {
                failed = Some(error);
            }
        });
        self.xsk.post();
        failed.map_or(Ok(()), Err)
    }

    /// Without the register, strangers' frames can find no place. Then nothing is believed until the ring is empty and
    /// has been so since the program let the last frame through.
    pub(super) fn look_for_drops(&mut self, arrived: u32) {
        let taken = self.taken();
        let dropped = self.dropped();
        if dropped != self.dropped || taken.wrapping_sub(self.seen) > LOGGED {
            self.dropped = dropped;
            self.parted = true;
        } else if self.parted && arrived == 0 {
            (self.seen, self.parted) = (taken, false);
        }
    }

    /// Gives a page that was complete back.
    pub(super) fn release(&mut self, at: u64) {
        self.placer.release(at);
    }

    /// What has happened to fragments so far.
    pub(super) const fn counts(&self) -> &Counts {
        self.placer.counts()
    }

    /// How many frames the program has let through.
    pub(super) fn taken(&self) -> u32 {
        self.shared.word(shared::TAKEN).load(Ordering::Acquire)
    }

    /// Frames that the kernel found no place for.
    pub(super) fn dropped(&self) -> u64 {
        self.xsk.losses().overflows
    }
}

impl AsFd for Pages {
    /// Readable when frames have come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.xsk.as_fd()
    }
}

/// Where announcement `number` lies.
fn announcement(number: u32) -> u64 {
    shared::ANNOUNCEMENTS + u64::from(number % ANNOUNCED) * shared::ANNOUNCEMENT_BYTES
}
