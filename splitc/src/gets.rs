//! What was asked of other ranks and has not come yet, and what has come and was not taken yet.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use cutthrough::am::{Call, Node, Reply};

use crate::part::{GET_INLINE, copy_short};

/// One request under way.
#[derive(Debug, Default)]
struct Asked {
    call: Option<Call>,
    to: To,
}

/// Where what a request brings belongs.
#[derive(Debug)]
enum To {
    /// Part of a place: where in it, and how many bytes.
    Part { slot: u32, at: usize, len: usize },
    /// All of some places, each of as many bytes.
    Each { slots: Vec<u32>, len: usize },
}

impl Default for To {
    fn default() -> Self {
        Self::Each { slots: Vec::new(), len: 0 }
    }
}

impl To {
    const fn len(&self) -> usize {
        match self {
            Self::Part { len, .. } => *len,
            Self::Each { slots, len } => slots.len() * *len,
        }
    }
}

/// A place for what comes.
#[derive(Debug, Default)]
struct Slot {
    /// Words, so that every element is aligned; and how many bytes of them are asked for.
    words: Vec<u64>,
    len: usize,
    /// Requests under way for it.
    missing: u32,
}

impl Slot {
    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.len]
    }

    const fn capacity(&self) -> usize {
        self.words.capacity() * WORD
    }
}

/// Bytes of a word: as many as the longest element has.
const WORD: usize = size_of::<u64>();

/// Something that was asked for by [`World::get`](crate::World::get) or [`World::get_bulk`](crate::World::get_bulk):
/// hand it to [`World::take`](crate::World::take) or [`World::take_bulk`](crate::World::take_bulk) of the same world
/// after a [`World::sync`](crate::World::sync), or earlier; then these wait for it. Or look at it where it lies
/// ([`World::arrived`](crate::World::arrived)). What is never taken nor released keeps its memory as long as the world
/// lives.
#[derive(Debug)]
#[must_use = "what comes is had by `take`"]
pub struct Coming<T> {
    pub(crate) slot: u32,
    pub(crate) from: u32,
    /// The number of the world that has asked.
    world: u64,
    kind: PhantomData<fn() -> T>,
}

/// The requests and places of a rank. Places and tickets are used again, and keep their memory, up to a bound.
#[derive(Debug)]
pub(crate) struct Gets {
    /// The number of this world among those of the process: its places are no other's.
    world: u64,
    asked: Vec<Asked>,
    free_tickets: Vec<u32>,
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    /// Memory for the bytes of several places.
    scratch: Vec<u8>,
    /// Bytes of memory that free places have kept.
    kept: usize,
}

/// Bytes of memory that free places keep. Memory that is new costs more to touch first than to copy into.
const KEPT: usize = 4 << 20;

impl Default for Gets {
    fn default() -> Self {
        static WORLDS: AtomicU64 = AtomicU64::new(0);
        Self {
            world: WORLDS.fetch_add(1, Ordering::Relaxed),
            asked: Vec::new(),
            free_tickets: Vec::new(),
            slots: Vec::new(),
            free_slots: Vec::new(),
            scratch: Vec::new(),
            kept: 0,
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "memory ends long before so many are under way")]
impl Gets {
    /// A place of `len` bytes. What they are is nobody's business before all of it has come.
    pub(crate) fn open(&mut self, len: usize) -> u32 {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        self.kept -= place.capacity();
        place.words.resize(len.div_ceil(WORD), 0);
        place.len = len;
        slot
    }

    /// What was asked of a rank for a place.
    pub(crate) const fn coming<T>(&self, slot: u32, from: u32) -> Coming<T> {
        Coming { slot, from, world: self.world, kind: PhantomData }
    }

    /// Places of other worlds have the same numbers.
    pub(crate) fn assert_its_own<T>(&self, coming: &Coming<T>) {
        assert!(coming.world == self.world, "what comes was asked for by another world, and has to be taken there");
    }

    /// The bytes of a place.
    pub(crate) fn bytes(&self, slot: u32) -> &[u8] {
        self.slots[slot as usize].bytes()
    }

    /// The bytes of a place, to be written.
    pub(crate) fn bytes_mut(&mut self, slot: u32) -> &mut [u8] {
        self.slots[slot as usize].bytes_mut()
    }

    /// How many answers for a place have not come yet.
    pub(crate) fn missing(&self, slot: u32) -> u32 {
        self.slots[slot as usize].missing
    }

    /// Gives a place back.
    pub(crate) fn close(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        if self.kept + place.capacity() > KEPT {
            place.words = Vec::new();
        }
        self.kept += place.capacity();
        self.free_slots.push(slot);
    }

    /// Something for a place is being asked for.
    pub(crate) fn expect(&mut self, slot: u32) {
        self.slots[slot as usize].missing += 1;
    }

    /// A ticket for a request for part of a place: where in it, and how many bytes.
    pub(crate) fn ticket(&mut self, slot: u32, at: usize, len: usize) -> u32 {
        self.issue(To::Part { slot, at, len })
    }

    /// A ticket for a request for all of some places, each of `len` bytes.
    pub(crate) fn ticket_for_all(&mut self, slots: Vec<u32>, len: usize) -> u32 {
        self.issue(To::Each { slots, len })
    }

    fn issue(&mut self, to: To) -> u32 {
        let ticket = self.free_tickets.pop().unwrap_or_else(|| {
            self.asked.push(Asked::default());
            self.asked.len() as u32 - 1
        });
        self.asked[ticket as usize] = Asked { call: None, to };
        ticket
    }

    /// The request of a ticket was made.
    pub(crate) fn made(&mut self, ticket: u32, call: Call) {
        self.asked[ticket as usize].call = Some(call);
    }

    /// Takes a reply in. Says what is wrong with it, if something is.
    pub(crate) fn take(&mut self, mut reply: Reply, node: &mut Node) -> Result<(), &'static str> {
        let ticket = reply.word(0) as usize;
        let asked = self.asked.get_mut(ticket).filter(|asked| asked.call == Some(reply.call()));
        let Some(asked) = asked else { return Err("it answered what was not asked") };
        let len = asked.to.len();
        let inline = len <= GET_INLINE;
        let came = if inline { reply.args().len().checked_sub(4) } else { Some(reply.payload_len()) };
        if came != Some(len) {
            return Err("it answered with another number of bytes than were asked for");
        }
        let mut fill = |into: &mut [u8]| {
            if inline {
                into.copy_from_slice(&reply.args()[4..]);
                return Ok(());
            }
            node.read(&mut reply, into).map_err(|_| "its answer did not arrive as a whole")
        };
        match &mut asked.to {
            To::Part { slot, at, len } => {
                let place = &mut self.slots[*slot as usize];
                fill(&mut place.bytes_mut()[*at..*at + *len])?;
                place.missing -= 1;
            }
            To::Each { slots, len } => {
                self.scratch.resize(slots.len() * *len, 0);
                fill(&mut self.scratch)?;
                for (slot, bytes) in slots.drain(..).zip(self.scratch.chunks_exact(*len)) {
                    let place = &mut self.slots[slot as usize];
                    copy_short(place.bytes_mut(), bytes);
                    place.missing -= 1;
                }
            }
        }
        asked.call = None;
        self.free_tickets.push(ticket as u32);
        Ok(())
    }
}
