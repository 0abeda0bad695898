//! What batches have carried of the payload that a caller lends, in memory of their own.
//!
//! Where frames are short, payloads are copied behind their headers ([`super::outgoing`]). The kernel copies that
//! memory once more when it sends it. Trains of longer payloads to the peer that a socket is joined to are laid out in
//! memory from which the kernel sends them without that ([`crate::sys::spliced`]), and which is written again only once
//! the other side has the payloads that they carry, or the channel is over.

use std::any::Any;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use cutthrough_engine::net::batch::{Batch, Copied, Held};
use cutthrough_engine::time::Instant;

use crate::sys::spliced::{Berth, Spliced};

/// Batches whose memory is kept while the payload is sent that they carry. What was sent before is acknowledged, or
/// copied once more. Acknowledgements of a stream come after 256 KiB, and a payload ends between two: with a quarter of
/// these batches a sender of 1 MiB copied what it had just copied behind headers, into memory that was new each time.
const CARRIED: usize = 16;
/// Of how many bytes of a batch's memory one at least has to be kept; of others what has to is copied. A peer may
/// acknowledge all but a frame of each batch, and only what has to be kept is counted.
pub(super) const WASTE: usize = 4;
/// Bytes of buffers that are kept for the next copies.
const SPARE: usize = 2 << 20;
/// Nanoseconds after which they are given back, if there was no copy.
const UNUSED_NS: u64 = 1_000_000_000;

/// Bytes of a payload up to which the kernel copies its trains, unless it waits for others to fill them: to name pages
/// to it has a price of its own, which one train of so many bytes is not worth.
const SHORT: usize = 16 << 10;

/// How trains of a payload lie.
#[derive(Debug, Clone, Default)]
pub(crate) enum Lies {
    /// In memory of the batch, or where they are: the kernel copies them.
    #[default]
    Anywhere,
    /// Copied into memory of this, where the kernel sends them from.
    LaidOut(Arc<Spliced>),
    /// Sealed into it.
    Sealed(Arc<Spliced>),
}

impl Lies {
    /// The memory that the kernel sends them from.
    pub(super) const fn memory(&self) -> Option<&Arc<Spliced>> {
        match self {
            Self::Anywhere => None,
            Self::LaidOut(memory) | Self::Sealed(memory) => Some(memory),
        }
    }

    /// How often a payload is copied for that that could go from where it is, at most: where there is no memory left
    /// it is not.
    pub(super) const fn copies(&self) -> u32 {
        matches!(self, Self::LaidOut(_)) as u32
    }
}

/// Memory in which parts of a payload lie, and where, by their place in the payload.
#[derive(Debug, Default)]
pub(super) struct Haul<B = Vec<u8>> {
    pub(super) bytes: B,
    pub(super) parts: Vec<Copied>,
    /// Bytes of the payload in it that have to be kept.
    wanted: usize,
}

impl<B: Deref<Target = [u8]>> Haul<B> {
    /// First byte of the payload that lies here.
    pub(super) fn begin(&self) -> usize {
        self.parts.first().map_or(usize::MAX, |part| part.offset)
    }

    /// One past the last.
    pub(super) fn end(&self) -> usize {
        self.parts.last().map_or(0, |part| part.offset + part.len)
    }

    /// What lies from `begin` to `end` in the payload has to be kept.
    fn want(&mut self, begin: usize, end: usize) {
        self.wanted += end.min(self.end()).saturating_sub(begin.max(self.begin()));
    }

    /// What lies from `offset` on, up to the end of the part that it is in; nothing if it is in none.
    pub(super) fn piece(&self, offset: usize) -> &[u8] {
        let next = self.parts.partition_point(|part| part.offset <= offset);
        let Some(part) = next.checked_sub(1).and_then(|last| self.parts.get(last)) else { return &[] };
        let skip = (offset - part.offset).min(part.len);
        self.bytes.get(part.at + skip..part.at + part.len).unwrap_or(&[])
    }
}

impl Haul {
    /// Whether less has to be kept of it than a part of what it holds.
    fn is_waste(&self) -> bool {
        self.wanted < self.bytes.len() / WASTE
    }

    pub(super) fn add(&mut self, offset: usize, bytes: &[u8]) {
        self.parts.push(Copied { message: 0, offset, at: self.bytes.len(), len: bytes.len() });
        self.bytes.extend_from_slice(bytes);
    }
}

/// Memory that nobody needs any more: the next copy needs no new one.
#[derive(Debug, Clone, Default)]
pub(super) struct Spare(Arc<Mutex<Shelf>>);

#[derive(Debug, Default)]
struct Shelf {
    hauls: Vec<Haul>,
    bytes: usize,
    /// How often it was used, and how often when that was last seen to change.
    uses: u64,
    seen: (u64, Instant),
}

impl Spare {
    pub(super) fn take(&self) -> Haul {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let haul = shelf.hauls.pop().unwrap_or_default();
        shelf.bytes -= haul.bytes.capacity();
        shelf.uses += 1;
        haul
    }

    /// Gives all of it back, if nobody has needed any for long.
    pub(super) fn rest(&self, now: Instant) {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shelf.seen.0 != shelf.uses {
            shelf.seen = (shelf.uses, now);
        } else if shelf.bytes > 0 && now.saturating_since(shelf.seen.1) >= UNUSED_NS {
            (shelf.hauls, shelf.bytes) = (Vec::new(), 0);
        }
    }

    pub(super) fn give(&self, hauls: impl Iterator<Item = Haul>) {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for mut haul in hauls {
            let bytes = haul.bytes.capacity();
            shelf.uses += 1;
            if bytes > 0 && shelf.bytes + bytes <= SPARE {
                haul.bytes.clear();
                haul.parts.clear();
                haul.wanted = 0;
                shelf.bytes += bytes;
                shelf.hauls.push(haul);
            }
        }
    }
}

/// The memory of batches that carried a payload. Of one payload all are of the same kind.
#[derive(Debug, Default)]
pub(super) struct Hauls {
    /// By rising parts of the payload; none has a gap.
    pub(super) own: VecDeque<Haul>,
    /// The same, of memory that the kernel sends from where it lies. It is not written again as long as it is here.
    trains: VecDeque<Haul<Berth>>,
    /// Such memory of which parts lie elsewhere, too, or with gaps, or sealed; and where the last of its parts ends.
    odd: Vec<(usize, Berth)>,
    /// Where the first byte of the payload is that has to be kept, if any has.
    least: Option<usize>,
}

impl Hauls {
    /// Where the first of them that reaches beyond `from` begins and ends.
    pub(super) fn next(&self, from: usize) -> Option<(usize, usize)> {
        let own = self.own.iter().map(|haul| (haul.begin(), haul.end()));
        let trains = self.trains.iter().map(|haul| (haul.begin(), haul.end()));
        own.chain(trains).find(|(_, end)| from < *end)
    }

    /// What lies from `begin` to `end` in the payload has to be kept.
    pub(super) fn want(&mut self, begin: usize, end: usize) {
        self.least = Some(self.least.map_or(begin, |least| least.min(begin)));
        self.own.iter_mut().for_each(|haul| haul.want(begin, end));
        self.trains.iter_mut().for_each(|haul| haul.want(begin, end));
    }

    /// Gives away what holds nothing that has to be kept, or hardly anything, which is copied then.
    pub(super) fn keep_what_is_wanted(&mut self, spare: &Spare) {
        let least = self.least.take().unwrap_or(usize::MAX);
        self.odd.retain(|(end, _)| *end > least);
        self.trains.retain(|haul| haul.wanted > 0);
        if self.own.iter().any(Haul::is_waste) {
            let (waste, kept): (VecDeque<Haul>, _) = self.own.drain(..).partition(Haul::is_waste);
            self.own = kept;
            spare.give(waste.into_iter());
        }
    }

    /// What lies from `offset` on, up to the end of the part that it is in.
    pub(super) fn piece(&self, offset: usize) -> Option<&[u8]> {
        let own = self.own.iter().find(|haul| (haul.begin()..haul.end()).contains(&offset));
        let train = || self.trains.iter().find(|haul| (haul.begin()..haul.end()).contains(&offset));
        own.map(|haul| haul.piece(offset)).or_else(|| train().map(|haul| haul.piece(offset)))
    }
}

/// The parts of a message that a batch has copied.
fn parts(batch: &Batch, message: u64) -> impl Iterator<Item = &Copied> {
    batch.copied().iter().filter(move |part| part.message == message)
}

/// Whether these parts follow each other without a gap, behind what ends at `end`; there is one at least.
fn follow<'a>(mut parts: impl Iterator<Item = &'a Copied>, end: usize) -> bool {
    let Some(first) = parts.next() else { return false };
    let mut before = first.offset + first.len;
    first.offset >= end && parts.all(|part| core::mem::replace(&mut before, part.offset + part.len) == part.offset)
}

/// What the last batches have carried of the payload that a caller lends now.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// The channel and the message.
    of: Option<(usize, u64)>,
    /// Whether any of it was copied.
    any: bool,
    hauls: Hauls,
    /// How trains of the last channel that has lent a payload may lie, and how those of the payload itself do.
    may: Lies,
    lies: Lies,
    /// Such trains of payloads that are lent no more.
    gone: VecDeque<Gone>,
}

/// A train of a payload that is lent no more: the channel, the first and the last message.
type Gone = (usize, (u64, u64), Berth);

#[cfg(test)]
impl Carried {
    /// As batches leave it whose memory is this.
    pub(super) fn by(hauls: impl Iterator<Item = Haul>) -> Self {
        Self {
            of: Some((0, 7)),
            any: true,
            hauls: Hauls { own: hauls.collect(), ..Hauls::default() },
            ..Self::default()
        }
    }
}

impl Carried {
    /// How trains of a payload of so many bytes lie, that is about to go; `may` says how they can. Shorter ones lie so
    /// where others wait with them.
    pub(super) fn choose(&mut self, bytes: usize, may: Lies, in_company: bool) -> Lies {
        self.lies = if bytes > SHORT || in_company { may.clone() } else { Lies::Anywhere };
        self.may = may;
        self.lies.clone()
    }

    /// From now on it is this message's payload.
    pub(super) fn begin(&mut self, channel: usize, message: u64) {
        (self.of, self.any) = (Some((channel, message)), false);
    }

    /// The payload is lent no more. Whether any of it was copied.
    pub(super) fn end(&mut self, spare: &Spare) -> bool {
        self.of = None;
        if !self.hauls.own.is_empty() {
            spare.give(self.hauls.own.drain(..));
        }
        self.hauls.trains.clear();
        self.hauls.odd.clear();
        core::mem::take(&mut self.any)
    }

    /// The memory of its batches.
    pub(super) fn hauls(&mut self) -> Hauls {
        core::mem::take(&mut self.hauls)
    }

    /// Whether trains of this payload are laid out.
    pub(super) const fn lays(&self) -> bool {
        matches!(self.lies, Lies::LaidOut(_))
    }

    /// Whether those are that carry what is kept of it, in company.
    pub(super) const fn lays_what_is_kept(&self) -> bool {
        matches!(self.may, Lies::LaidOut(_))
    }

    /// How trains lie that carry what is kept of it, in company.
    pub(super) fn what_is_kept(&self) -> Lies {
        self.may.clone()
    }

    /// Whether the next train may ask for memory, and if so, whether there is none left.
    pub(super) fn lacks_room(&self) -> Option<bool> {
        self.may.memory().map(|memory| memory.is_taken())
    }

    /// The payload that is lent now: its channel and message.
    pub(super) fn lent(&self) -> Option<(usize, u64)> {
        self.of
    }

    /// Gives the memory of trains away that carry nothing which begins at `upto` or behind it in the lent payload, of
    /// which all before that has arrived.
    pub(super) fn have_arrived(&mut self, upto: usize) {
        while self.hauls.trains.front().is_some_and(|haul| haul.end() <= upto) {
            self.hauls.trains.pop_front();
        }
        self.hauls.odd.retain(|(end, _)| *end > upto);
    }

    /// Gives the memory of trains away that have arrived: of whose messages the other side has all. As a rule the first
    /// to go is the first to arrive; with `all`, also of those behind one that has not.
    pub(super) fn take_back(&mut self, all: bool, mut is_done: impl FnMut(usize, u64) -> bool) {
        let mut has_arrived =
            |(channel, (first, last), _): &Gone| is_done(*channel, *first) && is_done(*channel, *last);
        while self.gone.pop_front_if(|gone| has_arrived(gone)).is_some() {}
        if all {
            self.gone.retain(|gone| !has_arrived(gone));
        }
    }

    /// The message of a channel whose payload is lent now.
    fn lent_on(&self, channel: usize) -> Option<u64> {
        self.of.filter(|(of, _)| *of == channel).map(|(_, message)| message)
    }

    /// Keeps the memory of a train until that has arrived. What it carries of the lent payload, as it is, is found
    /// there.
    fn keep(&mut self, channel: usize, held: Held, berth: Berth, batch: &Batch) {
        let lent = self.lent_on(channel);
        let mut haul = Haul { bytes: berth, parts: Vec::new(), wanted: 0 };
        if let Some(message) = lent {
            haul.parts.reserve(batch.copied().len());
            haul.parts.extend(parts(batch, message));
        }
        let is_of_lent_alone = held.first == held.last && lent == Some(held.last);
        if haul.parts.is_empty() && !is_of_lent_alone {
            return self.gone.push_back((channel, (held.first, held.last), haul.bytes));
        }
        self.any |= !haul.parts.is_empty();
        if follow(haul.parts.iter(), self.hauls.trains.back().map_or(0, Haul::end)) {
            self.hauls.trains.push_back(haul);
        } else {
            let end = haul.parts.iter().map(|part| part.offset + part.len).max();
            self.hauls.odd.push((end.unwrap_or(held.end), haul.bytes));
        }
    }

    /// A batch has gone out on `channel`: takes its memory, if that may be needed.
    pub(super) fn take(&mut self, channel: usize, batch: &mut Batch, spare: &Spare) {
        if let Some((hold, held)) = batch.take_hold() {
            let hold: Box<dyn Any> = hold;
            return hold.downcast().map_or((), |berth| self.keep(channel, held, *berth, batch));
        }
        let Some(message) = self.lent_on(channel) else { return };
        if parts(batch, message).next().is_none() {
            return;
        }
        self.any = true;
        let hauls = &mut self.hauls;
        // What goes again lies in the memory of an earlier batch, or is copied once more.
        if follow(parts(batch, message), hauls.own.back().map_or(0, Haul::end)) {
            let before = if hauls.own.len() < CARRIED { None } else { hauls.own.pop_front() };
            let mut haul = before.unwrap_or_else(|| spare.take());
            // The next batch is probably as long as this one.
            haul.bytes.clear();
            haul.bytes.reserve(batch.own().len());
            batch.swap(&mut haul.bytes, &mut haul.parts);
            haul.parts.retain(|part| part.message == message);
            hauls.own.push_back(haul);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::spliced::Spliced;

    #[test]
    fn what_nobody_has_needed_for_a_second_is_given_back() {
        let (spare, at) = (Spare::default(), |ms: u64| Instant::from_nanos(ms * 1_000_000));
        let bytes = || spare.0.lock().unwrap().bytes;
        let haul = || std::iter::once(Haul { bytes: Vec::with_capacity(1000), ..Haul::default() });
        spare.give(haul());
        for ms in [10_000, 10_500, 10_999] {
            spare.rest(at(ms));
            assert!(bytes() >= 1000, "after {ms} ms");
        }
        spare.give([spare.take()].into_iter());
        spare.rest(at(11_100));
        spare.rest(at(12_000));
        assert!(bytes() >= 1000, "it was needed meanwhile");
        spare.rest(at(12_100));
        assert_eq!(bytes(), 0);
        assert_eq!(spare.take().bytes.capacity(), 0);
    }

    /// Trains of a payload that is not read yet, or never, keep no memory but their own.
    #[test]
    fn trains_that_have_arrived_give_memory_back_behind_one_that_has_not() {
        let (memory, mut carried) = (Spliced::new().unwrap(), Carried::default());
        for message in 0..10 {
            carried.gone.push_back((0, (message, message), memory.berth().unwrap()));
        }
        carried.gone.push_back((1, (3, 12), memory.berth().unwrap()));
        carried.take_back(false, |channel, message| (channel, message) != (0, 2));
        assert_eq!(memory.taken(), 9, "as far as they have arrived in turn");
        carried.take_back(true, |channel, message| (channel, message) != (0, 2) && (channel, message) != (1, 12));
        assert_eq!(memory.taken(), 2);
        carried.take_back(true, |_, _| true);
        assert_eq!(memory.taken(), 0);
    }

    /// What goes again is laid out once more; of a payload that takes long that memory comes back, too.
    #[test]
    fn what_went_again_gives_memory_back_when_it_has_arrived() {
        let (memory, mut carried) = (Spliced::new().unwrap(), Carried::default());
        for end in [100, 300, 200] {
            carried.hauls.odd.push((end, memory.berth().unwrap()));
        }
        for (upto, taken) in [(99, 3), (100, 2), (299, 1), (300, 0)] {
            carried.have_arrived(upto);
            assert_eq!(memory.taken(), taken, "{upto}");
        }
    }
}
