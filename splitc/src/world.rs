//! A rank, and what it does with the parts of others: get, put, store, and waiting for them.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use cutthrough::Channel;
use cutthrough::am::{Body, Call, Node, RequestError};

use crate::batch::Batch;
use crate::gets::{Coming, Gets};
use crate::part::{GET, GET_INLINE, PIECE, PIECES, PUT, PUT_INLINE, STORE, part, part_mut};
use crate::waiting::{Cores, Patience, has_a_core_each};
use crate::{Element, Error, Global};

/// Requests under way at another rank while a long piece goes to it: it leaves half of the pool for answers.
const SENDS: u64 = 64;
/// Requests, or what gathers instead, between two looks at what has come.
const SENDS_PER_POLL: u32 = 32;
/// Bytes of a payload before which a rank looks at what has come.
const LONG: usize = 16 << 10;
/// Bytes of a piece of a long read that waits, and how many of them are under way.
const READ: usize = PIECE;
const READS: usize = 8;
/// Looks in vain before a rank sleeps, where every rank has a core of its own, and where not.
const LOOKS: (u32, u32) = (4000, 50);

/// One of the processes, or threads, that share a global address space. It is used by one thread at a time.
///
/// Other ranks reach this one's part only while it waits or polls: in [`World::sync`], in any collective operation, or
/// in [`World::poll`]. A rank that computes for long polls now and then.
#[derive(Debug)]
pub struct World {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) node: Node,
    /// Channels by rank; none to itself, and to those that are gone.
    pub(crate) channels: Vec<Option<Channel>>,
    /// Ranks by the row of their channel.
    pub(crate) ranks: Vec<Option<u32>>,
    /// Requests under way at each rank, in the order in which they were made; and how many at all.
    pub(crate) under_way: Vec<VecDeque<Call>>,
    pub(crate) all_under_way: u64,
    /// Of these, requests for long pieces: those whose reply has a payload.
    pub(crate) pieces: Vec<u32>,
    /// Short reads and writes that gather for each rank; for how many ranks; and whether they are being sent now.
    pub(crate) batches: Vec<Batch>,
    pub(crate) gathered: u32,
    pub(crate) handing_over: bool,
    pub(crate) gets: Gets,
    /// Bytes of every rank's part: all make the same arrays.
    pub(crate) reach: u64,
    /// Barriers so far.
    pub(crate) epoch: u64,
    /// Collective operations so far.
    pub(crate) number: u64,
    sends: u32,
    pub(crate) looks: u32,
    pub(crate) deadline: Duration,
    pub(crate) begun: Instant,
    pub(crate) broken: Option<Error>,
}

impl World {
    pub(crate) fn new(node: Node, (rank, size): (u32, u32), deadline: Duration) -> Self {
        let looks = if has_a_core_each(size as usize, Cores::seen()) { LOOKS.0 } else { LOOKS.1 };
        let ranks = size as usize;
        Self {
            rank,
            size,
            node,
            channels: vec![None; ranks],
            ranks: Vec::new(),
            under_way: vec![VecDeque::new(); ranks],
            all_under_way: 0,
            pieces: vec![0; ranks],
            batches: std::iter::repeat_with(Batch::default).take(ranks).collect(),
            gathered: 0,
            handing_over: false,
            gets: Gets::default(),
            reach: 0,
            epoch: 0,
            number: 0,
            sends: 0,
            looks,
            deadline,
            begun: Instant::now(),
            broken: None,
        }
    }

    /// A rank's channel is known.
    pub(crate) fn know(&mut self, channel: Channel, rank: u32) {
        let row = channel.index() as usize;
        if self.ranks.len() <= row {
            self.ranks.resize(row + 1, None);
        }
        self.ranks[row] = Some(rank);
        self.channels[rank as usize] = Some(channel);
    }

    /// The number of this rank, from 0.
    #[must_use]
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// How long this rank waits for another of which nothing comes, before it gives up.
    #[must_use]
    pub const fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Reads elements of this rank's own part.
    ///
    /// # Errors
    /// [`Error::Outside`], also for a pointer to another rank's part.
    pub fn local<T: Element>(&self, from: Global<T>, into: &mut [T]) -> Result<(), Error> {
        let part = part(&self.node);
        let range = part.range(from.offset(), into.len() * T::BYTES).and_then(|range| own(self.rank, from, range))?;
        T::read_all(part.bytes(range), into);
        Ok(())
    }

    /// Writes elements of this rank's own part.
    ///
    /// # Errors
    /// As [`World::local`].
    pub fn set_local<T: Element>(&mut self, to: Global<T>, values: &[T]) -> Result<(), Error> {
        let part = part_mut(&mut self.node);
        let range = part.range(to.offset(), values.len() * T::BYTES).and_then(|range| own(self.rank, to, range))?;
        T::write_all(values, part.bytes_mut(range));
        Ok(())
    }

    /// Elements of this rank's own part where they lie, as by a local pointer. Others read and write them only while
    /// this rank waits or polls, which it cannot do while it has them.
    ///
    /// # Errors
    /// As [`World::local`]; [`Error::Unaligned`] for a pointer that was made by hand.
    #[cfg(target_endian = "little")]
    pub fn in_place<T: Element>(&self, from: Global<T>, count: usize) -> Result<&[T], Error> {
        let part = part(&self.node);
        let range = part.range(from.offset(), count.saturating_mul(T::BYTES));
        let range = range.and_then(|range| own(self.rank, from, range))?;
        bytemuck::try_cast_slice(part.bytes(range)).map_err(|_| unaligned(from))
    }

    /// The same, to be changed.
    ///
    /// # Errors
    /// As [`World::in_place`].
    #[cfg(target_endian = "little")]
    pub fn in_place_mut<T: Element>(&mut self, from: Global<T>, count: usize) -> Result<&mut [T], Error> {
        let part = part_mut(&mut self.node);
        let range = part.range(from.offset(), count.saturating_mul(T::BYTES));
        let range = range.and_then(|range| own(self.rank, from, range))?;
        bytemuck::try_cast_slice_mut(part.bytes_mut(range)).map_err(|_| unaligned(from))
    }

    /// Asks for an element (Split-C: `x := *p`). Does not wait for it. While the rank that has it is behind, the
    /// request waits for others that go there, until this rank waits or calls [`World::poll`].
    ///
    /// # Errors
    /// [`Error`].
    pub fn get<T: Element>(&mut self, from: Global<T>) -> Result<Coming<T>, Error> {
        self.get_bulk(from, 1)
    }

    /// Asks for `count` elements that lie one behind the other (`bulk_get`). Does not wait for them.
    ///
    /// # Errors
    /// [`Error`].
    pub fn get_bulk<T: Element>(&mut self, from: Global<T>, count: usize) -> Result<Coming<T>, Error> {
        let (rank, len) = (from.rank(), self.checked::<T>(from, count)?);
        if rank == self.rank {
            let part = part(&self.node);
            let range = part.range(from.offset(), len)?;
            let slot = self.gets.open(len);
            self.gets.bytes_mut(slot).copy_from_slice(part.bytes(range));
            return Ok(self.gets.coming(slot, rank));
        }
        let slot = self.gets.open(len);
        if len <= GET_INLINE && len > 0 {
            self.read_short(rank, from.offset(), len, slot)?;
        } else {
            self.hand_over(rank)?;
            for at in (0..len).step_by(PIECE) {
                let piece = (len - at).min(PIECE);
                // A short rest comes in its reply, as other short reads do.
                let long = piece > GET_INLINE;
                let mut patience = Patience::new();
                while long && self.pieces[rank as usize] >= PIECES {
                    self.rest(&mut patience, rank, u64::from(self.pieces[rank as usize]))?;
                }
                self.get_piece(rank, from.offset() + at as u64, (slot, at, piece))?;
                self.pieces[rank as usize] += u32::from(long);
            }
        }
        Ok(self.gets.coming(slot, rank))
    }

    /// Asks for bytes of another rank, for part of a place: which, where in it, how many.
    #[allow(clippy::cast_possible_truncation, reason = "a piece is shorter than 4 GiB")]
    pub(crate) fn get_piece(&mut self, rank: u32, offset: u64, to: (u32, usize, usize)) -> Result<(), Error> {
        let (slot, at, len) = to;
        self.gets.expect(slot);
        let ticket = self.gets.ticket(slot, at, len);
        let mut args = [0; 16];
        args[..8].copy_from_slice(&offset.to_le_bytes());
        args[8..12].copy_from_slice(&(len as u32).to_le_bytes());
        args[12..].copy_from_slice(&ticket.to_le_bytes());
        let call = self.request(rank, GET, &args)?;
        self.gets.made(ticket, call);
        Ok(())
    }

    /// What a [`World::get`] has brought.
    ///
    /// # Errors
    /// [`Error`], if it has not come yet and does not come.
    ///
    /// # Panics
    /// If another world has asked for it.
    pub fn take<T: Element>(&mut self, coming: Coming<T>) -> Result<T, Error> {
        let mut value = [T::default()];
        self.take_bulk(coming, &mut value)?;
        Ok(value[0])
    }

    /// What a [`World::get_bulk`] has brought: as much as `into` has room for.
    ///
    /// # Errors
    /// As [`World::take`].
    ///
    /// # Panics
    /// If `into` is longer than what was asked for, or if another world has asked for it.
    #[allow(clippy::needless_pass_by_value, reason = "it can be taken once")]
    pub fn take_bulk<T: Element>(&mut self, coming: Coming<T>, into: &mut [T]) -> Result<(), Error> {
        self.wait_for(&coming)?;
        T::read_all(self.gets.bytes(coming.slot), into);
        self.gets.close(coming.slot);
        Ok(())
    }

    /// Waits for what a [`World::get`] or [`World::get_bulk`] brings.
    ///
    /// # Errors
    /// As [`World::take`].
    ///
    /// # Panics
    /// If another world has asked for it.
    pub fn wait_for<T: Element>(&mut self, coming: &Coming<T>) -> Result<(), Error> {
        self.gets.assert_its_own(coming);
        let mut patience = Patience::new();
        loop {
            let missing = self.gets.missing(coming.slot);
            if missing == 0 {
                return Ok(());
            }
            self.rest(&mut patience, coming.from, u64::from(missing))?;
            if self.has_answered(coming.from) && self.gets.missing(coming.slot) > 0 {
                let why = "it answered without the bytes that were asked for".into();
                return Err(self.fail(Error::Broken { rank: coming.from, why }));
            }
        }
    }

    /// What a [`World::get_bulk`] has brought, where it lies, if all of it has come. It stays there until it is
    /// [taken](World::take_bulk) or [released](World::release).
    ///
    /// # Panics
    /// If another world has asked for it.
    #[cfg(target_endian = "little")]
    #[must_use]
    pub fn arrived<T: Element>(&self, coming: &Coming<T>) -> Option<&[T]> {
        self.gets.assert_its_own(coming);
        let all = self.gets.missing(coming.slot) == 0;
        all.then(|| bytemuck::cast_slice(self.gets.bytes(coming.slot)))
    }

    /// Gives back the memory of what was asked for, once it has come: [`World::take_bulk`] of nothing.
    ///
    /// # Errors
    /// As [`World::take`].
    ///
    /// # Panics
    /// If another world has asked for it.
    pub fn release<T: Element>(&mut self, coming: Coming<T>) -> Result<(), Error> {
        self.take_bulk(coming, &mut [])
    }

    /// Writes an element (`*p := x`). Whether it has arrived is known after [`World::sync`]. While the rank that has it
    /// is behind, it waits for others that go there, until this rank waits or calls [`World::poll`].
    ///
    /// # Errors
    /// [`Error`].
    pub fn put<T: Element>(&mut self, to: Global<T>, value: T) -> Result<(), Error> {
        self.put_bulk(to, &[value])
    }

    /// Writes elements that lie one behind the other (`bulk_put`). They are copied before this returns.
    ///
    /// # Errors
    /// [`Error`].
    pub fn put_bulk<T: Element>(&mut self, to: Global<T>, values: &[T]) -> Result<(), Error> {
        self.write(to, values, PUT)
    }

    /// Writes an element (`*p :- x`), of whose arrival the rank that has it learns: all of them by
    /// [`World::all_store_sync`], it alone by [`World::store_sync`].
    ///
    /// # Errors
    /// [`Error`].
    pub fn store<T: Element>(&mut self, to: Global<T>, value: T) -> Result<(), Error> {
        self.store_bulk(to, &[value])
    }

    /// [`World::store`] of elements that lie one behind the other (`bulk_store`).
    ///
    /// # Errors
    /// [`Error`].
    pub fn store_bulk<T: Element>(&mut self, to: Global<T>, values: &[T]) -> Result<(), Error> {
        self.write(to, values, STORE)
    }

    fn write<T: Element>(&mut self, to: Global<T>, values: &[T], handler: u16) -> Result<(), Error> {
        let len = self.checked::<T>(to, values.len())?;
        if to.rank() == self.rank {
            let part = part_mut(&mut self.node);
            let range = part.range(to.offset(), len)?;
            T::write_all(values, part.bytes_mut(range));
            if handler == STORE {
                part.count_stored(len);
            }
            return Ok(());
        }
        if len <= PUT_INLINE && len > 0 {
            return self.write_short(to, values, handler);
        }
        for (values, number) in values.chunks(PIECE / T::BYTES).zip(0_u64..) {
            let offset = to.offset() + number * PIECE as u64;
            self.send(to.rank(), handler, &offset.to_le_bytes(), values)?;
        }
        Ok(())
    }

    /// Reads an element, and waits for it (`x = *p`).
    ///
    /// # Errors
    /// [`Error`].
    pub fn read<T: Element>(&mut self, from: Global<T>) -> Result<T, Error> {
        let coming = self.get(from)?;
        self.take(coming)
    }

    /// Reads elements, and waits for them (`bulk_read`).
    ///
    /// # Errors
    /// [`Error`].
    pub fn read_bulk<T: Element>(&mut self, from: Global<T>, into: &mut [T]) -> Result<(), Error> {
        let len = self.checked::<T>(from, into.len())?;
        if from.rank() == self.rank {
            return self.local(from, into);
        }
        if len <= READ {
            let coming = self.get_bulk(from, into.len())?;
            return self.take_bulk(coming, into);
        }
        // So many pieces that there is always one under way; their places are used again, while they lie in a cache.
        let mut under_way = VecDeque::with_capacity(READS);
        let mut pieces = into.chunks_mut(READ / T::BYTES).zip(0_usize..);
        loop {
            while under_way.len() < READS
                && let Some((piece, number)) = pieces.next()
            {
                let coming = self.get_bulk(from.at(number * (READ / T::BYTES)), piece.len())?;
                under_way.push_back((coming, piece));
            }
            let Some((coming, piece)) = under_way.pop_front() else { return Ok(()) };
            self.take_bulk(coming, piece)?;
        }
    }

    /// Writes an element, and waits until it is there (`*p = x`), and all that was written before it.
    ///
    /// # Errors
    /// [`Error`].
    pub fn write_now<T: Element>(&mut self, to: Global<T>, value: T) -> Result<(), Error> {
        self.put(to, value)?;
        self.sync()
    }

    /// Waits until every get of this rank has come, and every put and store has arrived.
    ///
    /// # Errors
    /// [`Error`], naming a rank that has not answered.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.hand_over_all()?;
        let mut patience = Patience::new();
        while self.all_under_way > 0 {
            self.rest(&mut patience, self.awaited(), self.all_under_way)?;
        }
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// Waits until `bytes` bytes were stored in this rank's part since it was made, all told: by others, and by itself.
    ///
    /// # Errors
    /// [`Error`]; [`Error::Late`] names any other rank.
    pub fn store_sync(&mut self, bytes: u64) -> Result<(), Error> {
        self.hand_over_all()?;
        let mut patience = Patience::new();
        loop {
            let stored = part(&self.node).stored();
            if stored >= bytes {
                return Ok(());
            }
            self.rest(&mut patience, (self.rank + 1) % self.size, stored)?;
        }
    }

    /// Serves what the other ranks have asked for, takes in what has come, and sends what has gathered for them. Waits
    /// only where there is no room to send it.
    ///
    /// # Errors
    /// [`Error`], if a rank is gone.
    pub fn poll(&mut self) -> Result<(), Error> {
        self.pump();
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.hand_over_all()
    }

    /// Bytes that were stored here; and of how many letters how many bytes are kept.
    #[cfg(feature = "fuzz")]
    #[must_use]
    pub fn kept(&self) -> (u64, usize, usize) {
        let part = part(&self.node);
        let (letters, bytes) = part.letters();
        (part.stored(), letters, bytes)
    }

    /// A rank that has not answered everything.
    fn awaited(&self) -> u32 {
        (0..self.size).find(|rank| self.at(*rank) > 0).unwrap_or(self.rank)
    }

    /// Requests under way at a rank.
    pub(crate) fn at(&self, rank: u32) -> u64 {
        self.under_way[rank as usize].len() as u64
    }

    /// Whether a rank, whose channel has not ended, has answered everything that was asked of it.
    fn has_answered(&self, rank: u32) -> bool {
        let waits = self.at(rank) > 0 || !self.batches[rank as usize].is_empty();
        // Of a channel that has ended, the event that says so may still be on its way, and says more.
        !waits && self.node.channels().any(|open| self.channels[rank as usize] == Some(open))
    }

    pub(crate) fn has_channel(&self, rank: u32) -> bool {
        self.channels[rank as usize].is_some()
    }

    /// The channel to another rank.
    fn channel(&self, rank: u32) -> Result<Channel, Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let channel = self.channels.get(rank as usize).ok_or(Error::NoRank { rank, size: self.size })?;
        channel.ok_or(Error::Left { rank })
    }

    /// The bytes of so many elements from a place on, if they lie in a part: every part is as long as this rank's. So
    /// nothing is sent that its rank would refuse.
    fn checked<T: Element>(&self, place: Global<T>, count: usize) -> Result<usize, Error> {
        if place.rank() != self.rank {
            self.channel(place.rank())?;
        }
        let len = count.saturating_mul(T::BYTES);
        let end = place.offset().checked_add(len as u64).filter(|end| *end <= self.reach);
        let outside = Error::Outside { rank: place.rank(), offset: place.offset(), len: len as u64 };
        end.map(|_| len).ok_or(outside)
    }

    /// Makes a short request, behind the writes that have gathered, as soon as there is room for it.
    pub(crate) fn request(&mut self, rank: u32, handler: u16, args: &[u8]) -> Result<Call, Error> {
        self.hand_over(rank)?;
        self.request_now(rank, handler, args)
    }

    pub(crate) fn request_now(&mut self, rank: u32, handler: u16, args: &[u8]) -> Result<Call, Error> {
        self.tend();
        let mut patience = Patience::new();
        loop {
            let channel = self.channel(rank)?;
            match self.node.request_bytes(channel, handler, args) {
                Ok(call) => return Ok(self.count(rank, call)),
                Err(error) => self.unsent(&mut patience, rank, error)?,
            }
        }
    }

    /// Makes a request with a payload, behind the writes that have gathered, as soon as there is room for it and pages
    /// to carry it. It never waits within the endpoint, where this rank would serve nobody.
    pub(crate) fn send<T: Element>(&mut self, rank: u32, handler: u16, args: &[u8], values: &[T]) -> Result<(), Error> {
        self.hand_over(rank)?;
        self.send_now(rank, handler, args, values).map(drop)
    }

    pub(crate) fn send_now<T: Element>(
        &mut self,
        rank: u32,
        handler: u16,
        args: &[u8],
        values: &[T],
    ) -> Result<Call, Error> {
        // Its pages come back the sooner, while they lie in a cache, and so do the others'.
        if self.is_due() || values.len() * T::BYTES >= LONG {
            self.pump();
        }
        let mut patience = Patience::new();
        loop {
            let channel = self.channel(rank)?;
            if self.at(rank) >= SENDS {
                self.rest(&mut patience, rank, self.at(rank))?;
                continue;
            }
            let body = match self.node.page(channel, values.len() * T::BYTES) {
                _ if values.is_empty() => Body::None,
                Ok(mut page) => {
                    T::write_all(values, &mut page);
                    Body::Page(page)
                }
                Err(error) => {
                    self.unsent(&mut patience, rank, error.into())?;
                    continue;
                }
            };
            match self.node.ask(channel, handler).args(args).body(body).send() {
                Ok(call) => return Ok(self.count(rank, call)),
                Err(error) => self.unsent(&mut patience, rank, error)?,
            }
        }
    }

    fn count(&mut self, rank: u32, call: Call) -> Call {
        self.under_way[rank as usize].push_back(call);
        self.all_under_way += 1;
        call
    }

    /// Looks at what has come, once in so many requests.
    fn tend(&mut self) {
        if self.is_due() {
            self.pump();
        }
    }

    /// Counts something that is sent. Whether it is time to look at what has come.
    pub(crate) const fn is_due(&mut self) -> bool {
        self.sends = self.sends.wrapping_add(1);
        self.sends.is_multiple_of(SENDS_PER_POLL)
    }

    /// A request was not made: rests if there will be room, else says what is wrong.
    fn unsent(&mut self, patience: &mut Patience, rank: u32, error: RequestError) -> Result<(), Error> {
        use cutthrough::NoMemory;
        match error {
            // Where the channel has ended, the event that says why is on its way.
            RequestError::Full
            | RequestError::Closed
            | RequestError::Lost
            | RequestError::NoMemory(NoMemory::NoPages | NoMemory::Closed(_)) => {
                self.rest(patience, rank, self.at(rank))
            }
            error => Err(self.fail(Error::Broken { rank, why: error.to_string() })),
        }
    }
}

fn unaligned<T: Element>(place: Global<T>) -> Error {
    Error::Unaligned { offset: place.offset(), bytes: T::BYTES }
}

/// The bytes of a place, if it lies in this rank's own part.
fn own<T: Element>(rank: u32, place: Global<T>, range: Range<usize>) -> Result<Range<usize>, Error> {
    let outside = Error::Outside { rank: place.rank(), offset: place.offset(), len: (range.end - range.start) as u64 };
    if place.rank() == rank { Ok(range) } else { Err(outside) }
}
