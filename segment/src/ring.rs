//! The ring of slots: one writer, one reader, the writer trusted with nothing but its own memory.
//!
//! ```text
//!         taken by the reader        published             free
//!   ... [ 5 | 6 | 7 ]            [ 8* | 9* | 10* ]       [ 11 | 12 | ...
//!                     reader looks here ^         writer writes here ^
//! ```
//!
//! A message is published by the stamp in its own slot: its number + 1, stored with release, loaded with acquire. There
//! is no index to fetch, so a lone message costs one transfer of its two cache lines. How far the reader has come is
//! told to the writer now and then, through a counter in the reader's own memory; the writer looks at it only when it
//! believes the ring to be full.

use core::ops::Deref;

use cutthrough_wire::slot::{CONTROL_MAX, CONTROL_WORD, SLOT_WORDS, short_word};

#[cfg(not(loom))]
use crate::sync::copied;
use crate::sync::{Eviction, Ordering, Slot, prefetch_read, prefetch_write};

/// How many slots ahead the writer asks for ownership of the cache lines. Measured: where the reader keeps its lines, 3
/// to 24 are alike, 0 is four times slower in a stream, and 1 or 2 takes the line away from a reader that polls it;
/// where the lines have to come from memory, 10 to 16 are a tenth faster than 4, and 20 are slower.
const AHEAD: u64 = 12;

/// Messages in a row after which the reader believes that more are waiting.
const STREAK: u64 = 16;

/// How many slots ahead such a reader asks for. Measured: 4, 8 and 12 are 15, 30 and 40 per cent faster than none;
/// asked for without the streak, the lines are taken away from the writer before they are written.
const READ_AHEAD: u64 = 12;

/// The peer's counter cannot be true: it ran backwards, or beyond what was sent (rule P2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Impossible;

/// Checks a counter that the other side wrote: it may only grow, and never beyond `limit`. Both are compared as
/// distances from what was last seen, so that no value can overflow anything.
///
/// # Errors
/// [`Impossible`], if the counter is outside `previous..=limit`.
#[inline]
pub const fn check_counter(previous: u64, alleged: u64, limit: u64) -> Result<u64, Impossible> {
    if alleged.wrapping_sub(previous) <= limit.wrapping_sub(previous) { Ok(alleged) } else { Err(Impossible) }
}

/// Slots that can be had as plain bytes while they are written.
///
/// # Safety
/// In this process the slots are reached by way of this value alone, and no other process can write them.
#[cfg(not(loom))]
pub unsafe trait Sole: Deref<Target = [Slot]> {}

/// The writing end of a ring. `S` is memory that only this side can write.
#[derive(Debug)]
pub struct Producer<S> {
    slots: S,
    mask: u64,
    next: u64,
    consumed: u64,
}

impl<S: Deref<Target = [Slot]>> Producer<S> {
    /// A ring over fresh (zeroed) memory.
    ///
    /// # Panics
    /// If the number of slots is not a power of two.
    pub fn new(slots: S) -> Self {
        assert!(slots.len().is_power_of_two(), "a ring has a power of two of slots");
        let mask = slots.len() as u64 - 1;
        Self { slots, mask, next: 0, consumed: 0 }
    }

    /// Number of the next message.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// How many messages the reader was last known to have taken.
    pub const fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Whether a slot is free, as far as is known without looking at the reader's counter.
    #[inline]
    pub const fn has_room(&self) -> bool {
        self.next.wrapping_sub(self.consumed) <= self.mask
    }

    /// Takes the reader's counter into account.
    ///
    /// # Errors
    /// [`Impossible`], if the counter cannot be true; then nothing has changed.
    #[inline]
    pub fn refresh(&mut self, alleged: u64) -> Result<(), Impossible> {
        self.consumed = check_counter(self.consumed, alleged, self.next)?;
        Ok(())
    }

    /// The slot that the next message will use.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "masked to the number of slots, which is a usize")]
    fn slot(&self, number: u64) -> &Slot {
        &self.slots[(number & self.mask) as usize]
    }

    /// Asks for the lines of the next slot, which will be written before the answer is here.
    #[inline]
    pub fn prefetch(&self) {
        let next = core::ptr::from_ref(self.slot(self.next)).cast::<u8>();
        prefetch_write(next);
        prefetch_write(next.wrapping_add(64));
    }

    /// Publishes the next slot with this header. The caller has made sure of room.
    ///
    /// SYNC POINT message: the release of the stamp pairs with the acquire in [`Consumer::peek`].
    #[inline]
    pub fn publish(&mut self, header: [u64; 3]) {
        let slot = self.slot(self.next);
        slot.0[2].store(header[1], Ordering::Relaxed);
        slot.0[3].store(header[2], Ordering::Relaxed);
        self.publish_control(header[0]);
    }

    /// Publishes the next slot with this word 1, leaving words 2 and 3 as they are: enough for a message without
    /// payload. The caller has made sure of room.
    ///
    /// SYNC POINT message: see [`Producer::publish`].
    #[inline]
    pub fn publish_control(&mut self, word1: u64) {
        debug_assert!(self.has_room(), "no room");
        let slot = self.slot(self.next);
        slot.0[1].store(word1, Ordering::Relaxed);
        slot.0[0].store(self.next.wrapping_add(1), Ordering::Release);
        let ahead = core::ptr::from_ref(self.slot(self.next.wrapping_add(AHEAD))).cast::<u8>();
        prefetch_write(ahead);
        prefetch_write(ahead.wrapping_add(64));
        self.next = self.next.wrapping_add(1);
    }
}

#[cfg(loom)]
impl<S: Deref<Target = [Slot]>> Producer<S> {
    /// Writes a control message of at most 96 bytes into the next slot, word by word: loom sees atomics only.
    pub fn write_control(&mut self, control: &[u8]) {
        let (words, tail) = control[..control.len().min(CONTROL_MAX)].as_chunks::<8>();
        let places = &self.slot(self.next).0[CONTROL_WORD..];
        for (place, word) in places.iter().zip(words) {
            place.store(u64::from_le_bytes(*word), Ordering::Relaxed);
        }
        if let (false, Some(place)) = (tail.is_empty(), places.get(words.len())) {
            place.store(short_word(tail), Ordering::Relaxed);
        }
    }
}

#[cfg(not(loom))]
impl<S: Sole> Producer<S> {
    /// Writes a control message of at most 96 bytes into the next slot; longer ones are cut.
    ///
    /// Put together before anything is stored: from the first store on, the slot's line is on its way here, and
    /// whatever has to wait for a store waits for the line. So it goes in steps of 16 bytes, the last of which overlaps
    /// the one before; what is shorter is one word or two.
    #[inline]
    pub fn write_control(&mut self, control: &[u8]) {
        let control = &control[..control.len().min(CONTROL_MAX)];
        let place = self.control_mut();
        if let Some(last) = control.last_chunk::<16>() {
            for (to, from) in place.as_chunks_mut::<16>().0.iter_mut().zip(control.as_chunks::<16>().0) {
                *to = *from;
            }
            if let Some(to) = place[..control.len()].last_chunk_mut::<16>() {
                *to = *last;
            }
            return;
        }
        let (words, tail) = control.as_chunks::<8>();
        let last = short_word(tail);
        let [first, second, ..] = place.as_chunks_mut::<8>().0 else { return };
        match words {
            [word, ..] => (*first, *second) = (*word, last.to_le_bytes()),
            [] => *first = last.to_le_bytes(),
        }
    }

    /// The control message of the next slot, to be written in place before [`Producer::publish`].
    #[inline]
    pub fn control_mut(&mut self) -> &mut [u8; CONTROL_MAX] {
        let words = self.slot(self.next).0[CONTROL_WORD..].as_ptr();
        // SAFETY: `Sole` says that nobody else reaches or writes the words, `&mut self` is the only way to that, and 12
        // words are 96 bytes without invalid values. They are atomics, which may be written by way of a shared pointer.
        unsafe { &mut *words.cast_mut().cast::<[u8; CONTROL_MAX]>() }
    }
}

/// Memory that a reader can load slots from. The other side may write it at any instant.
pub trait Slots {
    /// Number of slots.
    fn count(&self) -> usize;
    /// The slot with this index.
    ///
    /// # Panics
    /// If there is no such slot.
    fn slot(&self, index: usize) -> PeerSlot<'_>;
}

/// A slot of the other side's. It is only ever loaded from: a store would end this process, which maps it for reading.
#[derive(Debug, Clone, Copy)]
pub struct PeerSlot<'a>(&'a Slot);

impl<'a> PeerSlot<'a> {
    /// Shows a slot.
    #[inline]
    #[must_use]
    pub const fn new(slot: &'a Slot) -> Self {
        Self(slot)
    }

    /// What a word holds.
    ///
    /// # Panics
    /// If the slot has not so many.
    #[inline(always)]
    #[must_use]
    pub fn load(self, word: usize, order: Ordering) -> u64 {
        self.0.0[word].load(order)
    }

    #[inline(always)]
    fn address(self) -> *const u8 {
        core::ptr::from_ref(self.0).cast()
    }
}

/// A control message, copied out of its slot; what lies beyond its length is left over from earlier messages.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub struct Control([u64; SLOT_WORDS - CONTROL_WORD]);

impl Control {
    /// A control message that has come another way than through a ring.
    #[must_use]
    pub const fn from_bytes(bytes: &[u8; CONTROL_MAX]) -> Self {
        // SAFETY: 96 bytes are 12 words, any bytes are valid words, and what is read need not be aligned.
        unsafe { core::ptr::read_unaligned(bytes.as_ptr().cast::<Self>()) }
    }

    /// The first `len` bytes, at most 96.
    #[must_use]
    #[inline]
    pub fn bytes(&self, len: u32) -> &[u8] {
        // SAFETY: the words are initialised, any bytes are valid, and 12 words are 96 bytes.
        let bytes = unsafe { &*core::ptr::from_ref(&self.0).cast::<[u8; CONTROL_MAX]>() };
        &bytes[..(len as usize).min(CONTROL_MAX)]
    }
}

/// What a look at the next slot shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peek {
    /// A control message of so many bytes, without payload.
    Control(u8),
    /// A message with a payload: words 1 to 3 of its slot.
    Loaded([u64; 3]),
    /// Nothing, after so many messages that were found at the first look each.
    Nothing(u64),
}

/// Copies the control message out of a slot, in wide pieces: what is moved on later as a whole has to be written as a
/// whole, else every move waits for the narrow stores before it.
#[cfg(not(loom))]
#[inline]
fn copy_out(slot: PeerSlot<'_>) -> Control {
    let from = slot.0.0[CONTROL_WORD..].as_ptr().cast::<Control>();
    // SAFETY: words 4 to 15 of the slot are the 96 bytes of a `Control`, aligned alike. The other process may write
    // them meanwhile: what comes out is some bytes, all of which are valid.
    let control = unsafe { core::ptr::read(from) };
    copied();
    control
}

/// Copies the control message out of a slot word by word: loom sees atomics only.
#[cfg(loom)]
fn copy_out(slot: PeerSlot<'_>) -> Control {
    Control(core::array::from_fn(|word| slot.load(CONTROL_WORD + word, Ordering::Relaxed)))
}

/// The reading end of a ring.
#[derive(Debug)]
pub struct Consumer<S> {
    slots: S,
    mask: u64,
    next: u64,
    /// Messages taken without a look in vain.
    run: u64,
    /// How slots are evicted when they have been read, if they are.
    eviction: Option<Eviction>,
}

impl<S: Slots> Consumer<S> {
    /// A ring over the peer's fresh memory.
    ///
    /// # Panics
    /// If the number of slots is not a power of two.
    pub fn new(slots: S) -> Self {
        assert!(slots.count().is_power_of_two(), "a ring has a power of two of slots");
        let mask = slots.count() as u64 - 1;
        Self { slots, mask, next: 0, run: 0, eviction: None }
    }

    /// How many messages have been taken.
    pub const fn taken(&self) -> u64 {
        self.next
    }

    #[inline]
    fn slot(&self) -> PeerSlot<'_> {
        self.slot_of(self.next)
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "masked to the number of slots, which is a usize")]
    fn slot_of(&self, number: u64) -> PeerSlot<'_> {
        self.slots.slot((number & self.mask) as usize)
    }

    /// Whether a message is there.
    #[inline]
    pub fn ready(&self) -> bool {
        self.slot().load(0, Ordering::Acquire) == self.next.wrapping_add(1)
    }

    /// Whether slots are evicted from the cache when they have been read, from now on.
    pub const fn set_eviction(&mut self, eviction: Option<Eviction>) {
        self.eviction = eviction;
    }

    /// A message was found: evicts the slot of the one before, if that has just been here. Where one message comes at a
    /// time, the sender has all the time that it needs to take its slot from here. Not the slot of this message: it is
    /// read later than this.
    #[inline]
    fn found(&mut self, number: u64) {
        if let (Some(eviction), true) = (self.eviction, self.run > 0) {
            eviction.evict_slot(self.slot_of(number.wrapping_sub(1)).0);
        }
        self.run += 1;
    }

    /// Looks at the next message; [`Consumer::take_control`] takes it.
    ///
    /// Looking in vain also touches the slot's second cache line: then both lines of a coming message are fetched at
    /// the same time and not one after the other, which is a third of the latency of a 64-byte message.
    ///
    /// SYNC POINT message: the acquire of the stamp pairs with the release in [`Producer::publish`].
    #[inline]
    pub fn peek(&mut self) -> Peek {
        let slot = self.slot();
        if slot.load(0, Ordering::Acquire) != self.next.wrapping_add(1) {
            core::hint::black_box(slot.load(8, Ordering::Relaxed));
            return Peek::Nothing(core::mem::take(&mut self.run));
        }
        let word1 = slot.load(1, Ordering::Relaxed);
        match u8::try_from(word1) {
            Ok(len) if usize::from(len) <= CONTROL_MAX => Peek::Control(len),
            _ => Peek::Loaded([word1, slot.load(2, Ordering::Relaxed), slot.load(3, Ordering::Relaxed)]),
        }
    }

    /// Takes the message that [`Consumer::peek`] has seen: its control message, copied straight to where it shall be.
    #[inline(always)]
    pub fn take_control(&mut self) -> Control {
        let number = self.next;
        self.found(number);
        if self.run > STREAK {
            let ahead = self.slot_of(number.wrapping_add(READ_AHEAD)).address();
            prefetch_read(ahead);
            prefetch_read(ahead.wrapping_add(64));
        }
        self.next = number.wrapping_add(1);
        // Last, so that the copy goes straight to where the caller wants it.
        copy_out(self.slot_of(number))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
