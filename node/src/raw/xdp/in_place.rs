//! Payloads that are sent from where they lie: pages in the memory of the ring.
//!
//! A frame is put into the ring as several parts: its headers, which are copied into a place to send from, and the
//! slices of pages that it carries. They are put only where there is room for all parts of a batch, and shown to the
//! kernel together. It may stop within a frame, where it has no room for completions, and goes on there later.
//!
//! A part is the kernel's until its completion has come back, whoever has acknowledged the frame meanwhile. That is
//! counted for each 4 KiB of the pages ([`Flights`]), so that others can ask whether a page may be given to somebody,
//! without the ring and when that is gone. The kernel has copied the part by then, or the adapter has sent it.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cutthrough_segment::copy::Copying;
use cutthrough_segment::map::Mapping;

use super::super::Hop;
use super::super::cursor::Cursor;
use super::super::envelope::{ENVELOPE_BYTES, Envelope};
use super::plan::ENTRIES;
use super::{PARTS_MAX, XdpRing, unpadded};
use crate::sys::xdp::{Descriptor, Mode, XdpError};

/// Bytes of pages for which parts are counted together.
const UNIT: u64 = 4096;

/// How many parts of the user's pages the kernel has, by where they begin. Who finds that it has none of a page may
/// write there, on any thread.
#[derive(Debug)]
pub(crate) struct Flights {
    begin: u64,
    units: Box<[AtomicU32]>,
}

impl Flights {
    /// None of the pages from `begin` to `end`.
    pub(crate) fn new(begin: u64, end: u64) -> Self {
        Self { begin, units: (0..(end - begin).div_ceil(UNIT)).map(|_| AtomicU32::new(0)).collect() }
    }

    fn unit(&self, at: u64) -> Option<&AtomicU32> {
        let unit = usize::try_from(at.checked_sub(self.begin)? / UNIT).ok()?;
        self.units.get(unit)
    }

    /// The kernel gets a part that begins there.
    pub(crate) fn begin(&self, at: u64) {
        if let Some(unit) = self.unit(at) {
            unit.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It has sent one. More than it had is nothing that it would say.
    pub(crate) fn end(&self, at: u64) {
        if let Some(unit) = self.unit(at) {
            let _ = unit.fetch_update(Ordering::Release, Ordering::Relaxed, |parts| parts.checked_sub(1));
        }
    }

    /// Whether the kernel has no part of `bytes` bytes that begin there. Parts do not reach from before into them.
    pub(crate) fn is_idle(&self, at: u64, bytes: u64) -> bool {
        let first = at.saturating_sub(self.begin) / UNIT;
        let end = (at.saturating_sub(self.begin) + bytes).div_ceil(UNIT);
        let range = usize::try_from(first).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX);
        self.units.get(range).is_some_and(|units| units.iter().all(|unit| unit.load(Ordering::Acquire) == 0))
    }

    /// How many parts it has in all.
    pub(crate) fn all(&self) -> u64 {
        self.units.iter().map(|unit| u64::from(unit.load(Ordering::Relaxed))).sum()
    }

    /// Its socket is closed, and it has none any more.
    pub(crate) fn over(&self) {
        self.units.iter().for_each(|unit| unit.store(0, Ordering::Release));
    }
}

/// Where pages lie that are sent without a copy: the memory, where they begin in it and end, and what of them the
/// kernel has.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) flights: Arc<Flights>,
}

impl XdpRing {
    /// Sends one frame of `header` and of `bytes` bytes of payload that lie at `at` of the memory, among the user's
    /// pages: the payload is not copied on its way to the kernel. It must not be changed while
    /// [`XdpRing::in_place`] says that the kernel has any. `false` if there is no room now.
    ///
    /// # Errors
    /// As [`Ring::send`](super::Ring::send); unsupported if the kernel has no scatter lists.
    pub(crate) fn send_in_place(&mut self, hop: &Hop, header: &[u8], at: u64, bytes: usize) -> io::Result<bool> {
        let body = header.len() + bytes;
        self.check(hop, (body, 1))?;
        self.reclaim()?;
        let envelope = Envelope::write(hop, body);
        let put = self.gather([&envelope, header], at, bytes)?;
        if put {
            self.xsk.kick()?;
        }
        Ok(put)
    }

    /// Most parts that a frame with a payload in place takes in the ring: one for the headers, and one for each buffer
    /// of the payload, which may begin and end within one.
    pub(super) fn parts_in_place(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.plan.buffer as usize) + 2
    }

    /// Puts a frame of two headers and of payload from the user's pages into the ring. Whether there was room.
    pub(super) fn gather(&mut self, headers: [&[u8]; 2], at: u64, bytes: usize) -> io::Result<bool> {
        if !self.xsk.settings().scatter {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let stop = at.checked_add(bytes as u64);
        let inside = at >= self.plan.pages && stop.is_some_and(|stop| stop <= self.plan.pages_end);
        let head_bytes = headers[0].len() + headers[1].len();
        if !inside || bytes == 0 || head_bytes > self.plan.buffer as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let needed = u32::try_from(self.parts_in_place(bytes)).unwrap_or(u32::MAX);
        if needed > PARTS_MAX || self.xsk.room()? < needed {
            return Ok(false);
        }
        let Some(slot) = self.free.pop() else { return Ok(false) };
        let place = self.place_to_send(slot);
        let (first, second) = self.memory.frame(place, head_bytes).split_at_mut(headers[0].len());
        first.copy_from_slice(headers[0]);
        second.copy_from_slice(headers[1]);
        let mut parts = Vec::with_capacity(needed as usize);
        self.split(place, head_bytes, &mut parts);
        self.split(at, bytes, &mut parts);
        self.put_frame(slot, &parts)?;
        Ok(true)
    }

    fn place_to_send(&self, slot: u32) -> u64 {
        self.plan.send_base + u64::from(slot) * self.plan.send_stride
    }

    /// Adds parts for `bytes` bytes at `at`, as many as the kernel's buffers ask for.
    fn split(&self, at: u64, bytes: usize, parts: &mut Vec<Descriptor>) {
        let (mut begin, end) = (at, at + bytes as u64);
        let buffer = u64::from(self.plan.buffer);
        while begin < end {
            // A part may lie across buffers only where buffers may lie anywhere.
            let next = if self.plan.scattered { begin + buffer } else { (begin + 1).next_multiple_of(buffer) };
            let stop = next.min(end);
            parts.push(Descriptor { at: begin, bytes: u32::try_from(stop - begin).unwrap_or(u32::MAX), more: true });
            begin = stop;
        }
    }

    /// Puts one frame into the ring that has the place to send from of this number. There is room for all of its parts.
    fn put_frame(&mut self, slot: u32, parts: &[Descriptor]) -> Result<(), XdpError> {
        for (number, part) in (1..).zip(parts) {
            if self.plan.send_slot_of(part.at) == Some(slot) {
                self.under_way[slot as usize] += 1;
            } else {
                self.flights.begin(part.at);
            }
            self.xsk.put(Descriptor { more: number < parts.len(), ..*part })?;
        }
        Ok(())
    }

    /// Whether batches are sent with pages from where they lie. A driver that takes frames itself (zero copy) takes
    /// only so many parts of one, and does not say how many; and a frame may be too long for the parts that the kernel
    /// takes.
    pub(super) fn gathers(&self) -> bool {
        let longest = self.parts_in_place(self.interface.mtu as usize);
        self.mode != Mode::ZeroCopy && self.xsk.settings().scatter && longest <= PARTS_MAX as usize
    }

    /// Where pages lie that are sent without a copy.
    pub(super) fn site_of_pages(&self) -> Option<Site> {
        let (begin, end) = (self.plan.pages, self.plan.pages_end);
        let mapping = Arc::clone(self.memory.mapping());
        let flights = Arc::clone(&self.flights);
        (self.gathers() && begin < end).then_some(Site { mapping, begin, end, flights })
    }

    /// As [`Ring::send_pages`](super::Ring::send_pages), where the ring can do that.
    pub(super) fn send_gathered(
        &mut self,
        hop: &Hop,
        parts: &[IoSlice<'_>],
        segment: usize,
        borrowed: &[u8],
    ) -> io::Result<bool> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let segment = segment.clamp(1, total.max(1));
        let frames = total.div_ceil(segment).max(1);
        self.check(hop, (segment, frames))?;
        self.reclaim()?;
        let mut cursor = Cursor::new(parts);
        let (mut all, mut ends) = (Vec::new(), Vec::with_capacity(frames));
        let left = self.free.len().checked_sub(frames);
        // Written into places that are free, and stay so until it is known that there is room for all.
        for number in 0..left.map_or(0, |_| frames) {
            let slot = self.free[self.free.len() - 1 - number];
            let whole = segment.min(total - number * segment);
            let body = unpadded(cursor.next_part(), whole, self.leaves_padding && number + 1 < frames);
            self.lay_out(hop, (slot, body), &mut cursor, borrowed, &mut all);
            cursor.skip(whole - body);
            ends.push((slot, all.len()));
        }
        let Some(left) = left.filter(|_| self.xsk.room().is_ok_and(|room| all.len() <= room as usize)) else {
            // What the kernel has left in the ring goes first.
            self.xsk.kick()?;
            return Ok(false);
        };
        self.free.truncate(left);
        let mut begin = 0;
        for (slot, end) in ends {
            self.put_frame(slot, &all[begin..end])?;
            begin = end;
        }
        self.hand_over(frames)
    }

    /// Adds the parts of a frame with `body` bytes to `parts`, and writes what of it is copied into the place to send
    /// from of this number.
    fn lay_out(
        &mut self,
        hop: &Hop,
        (slot, body): (u32, usize),
        cursor: &mut Cursor<'_, '_>,
        borrowed: &[u8],
        parts: &mut Vec<Descriptor>,
    ) {
        let (place, first) = (self.place_to_send(slot), parts.len());
        self.memory.frame(place, ENVELOPE_BYTES).copy_from_slice(&Envelope::write(hop, body));
        // What is copied lies one behind the other: from where on it has no parts yet, and up to where it reaches.
        let (mut from, mut upto) = (place, place + ENVELOPE_BYTES as u64);
        let mut left = body;
        while left > 0 {
            let Some(bytes) = cursor.take(left) else { break };
            left -= bytes.len();
            if let Some(at) = self.place_of(bytes).filter(|_| !overlap(bytes, borrowed)) {
                self.split(from, usize::try_from(upto - from).unwrap_or(0), parts);
                from = upto;
                self.split(at, bytes.len(), parts);
            } else {
                self.memory.frame(upto, bytes.len()).copy_from_slice(bytes);
                upto += bytes.len() as u64;
            }
        }
        self.split(from, usize::try_from(upto - from).unwrap_or(0), parts);
        if parts.len() - first > PARTS_MAX as usize {
            self.join(place, (first, body), parts);
        }
    }

    /// A frame has more parts than the kernel takes, for it was made of many small ones: copies them behind each other.
    fn join(&mut self, place: u64, (first, body): (usize, usize), parts: &mut Vec<Descriptor>) {
        let mut bytes = Vec::with_capacity(ENVELOPE_BYTES + body);
        for part in parts.drain(first..) {
            let from = bytes.len();
            bytes.resize(from + part.bytes as usize, 0);
            self.memory.mapping().copy_out(part.at, &mut bytes[from..], Copying::Pieces);
        }
        self.memory.frame(place, bytes.len()).copy_from_slice(&bytes);
        self.split(place, bytes.len(), parts);
    }

    /// How many parts of payloads sent in place the kernel still has.
    ///
    /// # Errors
    /// If the ring is broken.
    pub(crate) fn in_place(&mut self) -> io::Result<u64> {
        self.reclaim()?;
        Ok(self.flights.all())
    }

    /// Takes back what the kernel has sent, and has it go on with what it has left in the ring.
    pub(super) fn go_on_sending(&mut self) -> Result<(), XdpError> {
        self.reclaim()?;
        if self.xsk.leaves() || self.xsk.unsent()? > 0 { self.xsk.kick() } else { Ok(()) }
    }

    /// Takes back what the kernel has sent: no more than the ring holds, for whoever else has the socket may say so of
    /// more and more.
    pub(super) fn reclaim(&mut self) -> Result<(), XdpError> {
        for _ in 0..ENTRIES {
            let Some(at) = self.xsk.completed()? else { break };
            let Some(slot) = self.plan.send_slot_of(at) else {
                self.flights.end(at);
                continue;
            };
            // More than was sent is nothing that the kernel would say.
            let left = &mut self.under_way[slot as usize];
            if *left > 0 {
                *left -= 1;
                if *left == 0 {
                    self.free.push(slot);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
impl XdpRing {
    /// As [`Xsk::exchange`](crate::sys::xdp::Xsk).
    pub(crate) const fn exchange(&mut self, other: std::os::fd::OwnedFd) -> std::os::fd::OwnedFd {
        self.xsk.exchange(other)
    }
}

/// Whether any byte is in both.
fn overlap(one: &[u8], other: &[u8]) -> bool {
    let (one, other) = (one.as_ptr_range(), other.as_ptr_range());
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests;
