//! A rank's part of the address space, and the handlers by which the others reach it.
//!
//! Everything here is done by handlers, while the rank waits or polls. A handler looks at what it was asked before it
//! touches anything, and touches nothing on behalf of a channel that has not said who it is.

use std::collections::HashMap;
use std::ops::Range;

use cutthrough::am::{Args, Body, Failure, Node, Request};
use cutthrough::{Channel, PrivateMemory};
use cutthrough_space::together::LETTERS_PER_BARRIER;

use crate::Error;

/// Who is there: size, rank, number of the job.
pub(crate) const HELLO: u16 = 1;
/// Read: offset, length, ticket.
pub(crate) const GET: u16 = 2;
/// Write: offset, then the bytes, or a payload.
pub(crate) const PUT: u16 = 3;
/// The same, counted at its destination.
pub(crate) const STORE: u16 = 4;
/// The sender has come to a round of a barrier.
pub(crate) const ARRIVE: u16 = 5;
/// Part of what a rank says to another within a collective operation: number, length of the whole, then bytes, or a
/// payload.
pub(crate) const LETTER: u16 = 6;
/// The sender has finished.
pub(crate) const BYE: u16 = 7;
/// The sender ends because another rank is gone: which one.
pub(crate) const BLAME: u16 = 8;
/// Several writes: how many bytes each of them writes, then for each the offset and the bytes, here or as a payload.
pub(crate) const PUT_BATCH: u16 = 9;
/// The same, counted at their destination.
pub(crate) const STORE_BATCH: u16 = 10;
/// Several reads: how many bytes each of them reads, ticket, then the offsets, here or as a payload.
pub(crate) const GET_BATCH: u16 = 11;

/// Most bytes of one payload; longer transfers are cut. Two of them lie in a second-level cache.
pub(crate) const PIECE: usize = 128 << 10;
/// Replies with a payload that a rank waits for from another: so many pages of its pool are lent to it.
pub(crate) const PIECES: u32 = 32;
/// Bytes that fit beside the offset of a write.
pub(crate) const PUT_INLINE: usize = 56;
/// Bytes that fit beside the ticket of a reply.
pub(crate) const GET_INLINE: usize = 60;
/// Bytes that fit beside a letter's head.
pub(crate) const LETTER_INLINE: usize = 48;

/// Bytes at which arrays begin: those of a cache line.
const ALIGN: usize = 64;

/// A refusal's first byte: the bytes lie outside.
const OUTSIDE: u8 = 1;
/// A refusal's first byte: the sender is of another job.
const STRANGER: u8 = 2;

/// What handlers and the rank itself share: the state of its node.
#[derive(Debug, Default)]
pub(crate) struct Part {
    rank: u32,
    size: u32,
    job: u64,
    /// Every element is aligned that lies at a multiple of its length; and how many bytes of it count. The others are
    /// zeros that nobody has touched.
    memory: PrivateMemory,
    len: usize,
    /// Who is at the other end of a channel, by its row.
    members: Vec<Option<(Channel, u32)>>,
    /// How often somebody has come to each round of a barrier.
    arrivals: [u64; 32],
    letters: HashMap<(u64, u32), Letter>,
    /// The last operation that this rank has begun which is made of letters.
    operation: u64,
    stored: u64,
    /// Memory for the payload of several reads or writes; and for what several reads bring.
    batch: Vec<u8>,
    answer: Vec<u8>,
    left: Vec<bool>,
    /// The rank that is gone, as the first says who knows of it.
    blamed: Option<u32>,
}

/// What a rank has said to this one within a collective operation.
#[derive(Debug, Default)]
struct Letter {
    whole: usize,
    bytes: Vec<u8>,
}

/// The part of the rank that has this node.
pub(crate) fn part(node: &Node) -> &Part {
    node.state().unwrap_or_else(|| unreachable!("a world's node has its part"))
}

/// The same, to be changed.
pub(crate) fn part_mut(node: &mut Node) -> &mut Part {
    node.state_mut().unwrap_or_else(|| unreachable!("a world's node has its part"))
}

/// Gives a node the handlers of its part.
pub(crate) fn serve(node: &mut Node) {
    node.short_with(HELLO, Args::Words(4), Part::hello);
    node.short_with(GET, Args::Words(4), Part::get);
    node.short_with(ARRIVE, Args::Words(1), Part::arrive);
    node.short_with(BYE, Args::Words(0), Part::bye);
    node.short_with(BLAME, Args::Words(1), Part::blame);
    node.long_with(PUT, Args::AtLeast(8), PIECE, Part::put);
    node.long_with(STORE, Args::AtLeast(8), PIECE, Part::store);
    node.long_with(PUT_BATCH, Args::AtLeast(4), PIECE, Part::put_batch);
    node.long_with(STORE_BATCH, Args::AtLeast(4), PIECE, Part::store_batch);
    node.long_with(GET_BATCH, Args::AtLeast(8), PIECE, Part::get_batch);
    node.long_with(LETTER, Args::AtLeast(16), PIECE, Part::letter);
}

impl Part {
    pub(crate) fn new(rank: u32, size: u32, job: u64) -> Self {
        Self { rank, size, job, left: vec![false; size as usize], ..Self::default() }
    }

    /// Adds zeros: where they lie. `None` if there is no memory for them; then nothing has happened.
    pub(crate) fn grow(&mut self, bytes: usize) -> Option<Range<u64>> {
        let at = self.len.checked_next_multiple_of(ALIGN)?;
        let end = at.checked_add(bytes)?;
        if end > self.memory.len() {
            let ahead = end.max(self.memory.len().saturating_mul(2));
            self.memory.grow(ahead).or_else(|_| self.memory.grow(end)).ok()?;
        }
        self.len = end;
        Some(at as u64..end as u64)
    }

    /// Where a run of bytes lies in memory.
    pub(crate) fn range(&self, offset: u64, len: usize) -> Result<Range<usize>, Error> {
        let start = usize::try_from(offset).ok();
        let range = start.and_then(|start| Some(start..start.checked_add(len)?));
        let range = range.filter(|range| range.end <= self.len);
        range.ok_or(Error::Outside { rank: self.rank, offset, len: len as u64 })
    }

    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.memory[range]
    }

    pub(crate) fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        &mut self.memory[range]
    }

    /// How often this round of a barrier was reached by the one who says so.
    pub(crate) const fn arrived(&self, round: usize) -> u64 {
        self.arrivals[round]
    }

    /// Bytes that were stored here so far.
    pub(crate) const fn stored(&self) -> u64 {
        self.stored
    }

    pub(crate) const fn count_stored(&mut self, bytes: usize) {
        self.stored += bytes as u64;
    }

    /// Whether a rank has said that it has finished.
    pub(crate) fn has_left(&self, rank: u32) -> bool {
        self.left[rank as usize]
    }

    /// The rank that is gone, as another has said.
    pub(crate) const fn blamed(&self) -> Option<u32> {
        self.blamed
    }

    /// How many ranks have said that they have finished.
    pub(crate) fn finished(&self) -> u32 {
        self.left.iter().map(|left| u32::from(*left)).sum()
    }

    /// This rank begins an operation that is made of letters: nobody sends any for those before it.
    pub(crate) fn begin(&mut self, number: u64) {
        self.operation = number;
        self.letters.retain(|(its, _), _| *its >= number);
    }

    /// The letter of a rank, or how much of it has come if that is not all.
    pub(crate) fn take_letter(&mut self, number: u64, from: u32) -> Result<Vec<u8>, u64> {
        let come = self.letters.get(&(number, from)).map(|letter| (letter.bytes.len(), letter.whole));
        match come {
            Some((come, whole)) if come == whole => {
                Ok(self.letters.remove(&(number, from)).map(|letter| letter.bytes).unwrap_or_default())
            }
            come => Err(come.map_or(0, |(come, _)| come as u64)),
        }
    }

    /// How many letters there are, and how many bytes of them.
    #[cfg(feature = "fuzz")]
    pub(crate) fn letters(&self) -> (usize, usize) {
        (self.letters.len(), self.letters.values().map(|letter| letter.bytes.len()).sum())
    }

    /// The other ranks' channels that are known.
    pub(crate) fn members(&self) -> impl Iterator<Item = (Channel, u32)> + '_ {
        self.members.iter().flatten().copied()
    }

    /// A rank is at the other end of a channel. False if it is no other rank, or at another channel already.
    pub(crate) fn admit(&mut self, channel: Channel, rank: u32) -> bool {
        let known = self.members().any(|(other, its)| its == rank && other != channel);
        if rank == self.rank || rank >= self.size || known {
            return false;
        }
        let row = channel.index() as usize;
        if self.members.len() <= row {
            self.members.resize(row + 1, None);
        }
        self.members[row] = Some((channel, rank));
        true
    }

    /// A channel has ended.
    pub(crate) fn dismiss(&mut self, channel: Channel) {
        if self.rank_of(channel).is_some() {
            self.members[channel.index() as usize] = None;
        }
    }

    fn rank_of(&self, channel: Channel) -> Option<u32> {
        let member = self.members.get(channel.index() as usize).copied().flatten();
        member.filter(|(its, _)| *its == channel).map(|(_, rank)| rank)
    }

    /// Refuses in words that [`refusal`] understands.
    fn refuse(&self, request: Request<'_>, what: u8, offset: u64, len: usize) {
        let mut words = vec![what];
        words.extend_from_slice(&self.rank.to_le_bytes());
        words.extend_from_slice(&offset.to_le_bytes());
        words.extend_from_slice(&(len as u64).to_le_bytes());
        request.refuse(&words);
    }

    fn hello(&mut self, request: Request<'_>) {
        let job = number(request.args(), 8);
        let (size, rank) = (request.word(0), request.word(1));
        if size != self.size || job != self.job || !self.admit(request.channel(), rank) {
            self.refuse(request, STRANGER, 0, 0);
        }
    }

    fn get(&mut self, request: Request<'_>) {
        let (offset, len, ticket) = (number(request.args(), 0), request.word(2) as usize, request.word(3));
        if self.rank_of(request.channel()).is_none() {
            return self.refuse(request, STRANGER, 0, 0);
        }
        let Some(range) = self.range(offset, len).ok().filter(|_| len <= PIECE) else {
            return self.refuse(request, OUTSIDE, offset, len);
        };
        answer(request, ticket, self.bytes(range));
    }

    /// Reads all of a batch, or nothing of it.
    fn get_batch(&mut self, mut request: Request<'_>) {
        if self.rank_of(request.channel()).is_none() {
            return self.refuse(request, STRANGER, 0, 0);
        }
        let (len, ticket) = (request.word(0) as usize, request.word(1));
        let mut places = std::mem::take(&mut self.batch);
        let mut all = std::mem::take(&mut self.answer);
        all.clear();
        if !take_batch(&mut request, 8, &mut places) {
            request.fail(Failure::Abandoned);
        } else if let Some(offset) = self.read_all(&places, len, &mut all) {
            self.refuse(request, OUTSIDE, offset, len);
        } else {
            answer(request, ticket, &all);
        }
        (self.batch, self.answer) = (places, all);
    }

    /// Puts what lies at some places one behind the other; or says of the first that does not lie in this part, that is
    /// not whole, or that would make the answer too long.
    fn read_all(&self, places: &[u8], len: usize, into: &mut Vec<u8>) -> Option<u64> {
        for place in places.chunks(8) {
            let offset = number(place, 0);
            let range = self.range(offset, len).ok();
            let Some(range) = range.filter(|_| place.len() == 8 && into.len() + len <= PIECE) else {
                return Some(offset);
            };
            into.extend_from_slice(self.bytes(range));
        }
        None
    }

    fn put(&mut self, request: Request<'_>) {
        self.write(request, false);
    }

    fn store(&mut self, request: Request<'_>) {
        self.write(request, true);
    }

    fn write(&mut self, mut request: Request<'_>, counted: bool) {
        let offset = number(request.args(), 0);
        let bulk = request.payload_len();
        let len = if bulk > 0 { bulk } else { request.args().len() - 8 };
        if self.rank_of(request.channel()).is_none() {
            return self.refuse(request, STRANGER, 0, 0);
        }
        let Ok(range) = self.range(offset, len) else { return self.refuse(request, OUTSIDE, offset, len) };
        if bulk == 0 {
            self.bytes_mut(range).copy_from_slice(&request.args()[8..]);
        } else if request.read(self.bytes_mut(range)).is_err() {
            return request.fail(Failure::Abandoned);
        }
        if counted {
            self.count_stored(len);
        }
    }

    fn put_batch(&mut self, request: Request<'_>) {
        self.write_batch(request, false);
    }

    fn store_batch(&mut self, request: Request<'_>) {
        self.write_batch(request, true);
    }

    /// Writes all of a batch, or nothing of it.
    fn write_batch(&mut self, mut request: Request<'_>, counted: bool) {
        if self.rank_of(request.channel()).is_none() {
            return self.refuse(request, STRANGER, 0, 0);
        }
        let len = request.word(0) as usize;
        let mut batch = std::mem::take(&mut self.batch);
        if !take_batch(&mut request, 4, &mut batch) {
            self.batch = batch;
            return request.fail(Failure::Abandoned);
        }
        match self.outside(&batch, len) {
            Some(offset) => self.refuse(request, OUTSIDE, offset, len),
            None => self.write_all(&batch, len, counted),
        }
        self.batch = batch;
    }

    /// Where the first write of a batch leads that does not lie in this part, or is not whole.
    fn outside(&self, batch: &[u8], len: usize) -> Option<u64> {
        let bad = |write: &&[u8]| write.len() != len.saturating_add(8) || self.range(number(write, 0), len).is_err();
        batch.chunks(len.saturating_add(8)).find(bad).map(|write| number(write, 0))
    }

    /// Writes what was looked at before.
    fn write_all(&mut self, batch: &[u8], len: usize, counted: bool) {
        for write in batch.chunks_exact(8 + len) {
            let Ok(range) = self.range(number(write, 0), len) else { continue };
            copy_short(self.bytes_mut(range), &write[8..]);
            if counted {
                self.count_stored(len);
            }
        }
    }

    fn arrive(&mut self, request: Request<'_>) {
        if self.rank_of(request.channel()).is_none() {
            return self.refuse(request, STRANGER, 0, 0);
        }
        if let Some(round) = self.arrivals.get_mut(request.word(0) as usize) {
            *round += 1;
        }
    }

    fn bye(&mut self, request: Request<'_>) {
        match self.rank_of(request.channel()) {
            Some(rank) => self.left[rank as usize] = true,
            None => self.refuse(request, STRANGER, 0, 0),
        }
    }

    fn blame(&mut self, request: Request<'_>) {
        let rank = request.word(0);
        if self.rank_of(request.channel()).is_some() && rank < self.size && rank != self.rank {
            self.blamed.get_or_insert(rank);
        }
        request.reply(&[]);
    }

    fn letter(&mut self, mut request: Request<'_>) {
        let Some(rank) = self.rank_of(request.channel()) else { return self.refuse(request, STRANGER, 0, 0) };
        let number_of = number(request.args(), 0);
        let whole = usize::try_from(number(request.args(), 8)).unwrap_or(usize::MAX);
        let bulk = request.payload_len();
        let more = if bulk > 0 { bulk } else { request.args().len() - 16 };
        let begun = self.letters.get(&(number_of, rank));
        let (its, had) = begun.map_or((whole, 0), |letter| (letter.whole, letter.bytes.len()));
        let is_near = number_of.checked_sub(self.operation).is_some_and(|ahead| ahead < LETTERS_PER_BARRIER);
        if !is_near || its != whole || had + more > whole {
            return self.refuse(request, OUTSIDE, had as u64, more);
        }
        let letter = self.letters.entry((number_of, rank)).or_insert_with(|| Letter { whole, bytes: Vec::new() });
        if bulk == 0 {
            letter.bytes.extend_from_slice(&request.args()[16..]);
        } else {
            letter.bytes.resize(had + bulk, 0);
            if request.read(&mut letter.bytes[had..]).is_err() {
                letter.bytes.truncate(had);
                request.fail(Failure::Abandoned);
            }
        }
    }
}

/// Takes what a request is about, which lies behind the first bytes of its arguments, or is its payload. False if that
/// has not arrived as a whole.
fn take_batch(request: &mut Request<'_>, head: usize, into: &mut Vec<u8>) -> bool {
    into.clear();
    let len = request.payload_len();
    if len == 0 {
        into.extend_from_slice(&request.args()[head..]);
        return true;
    }
    into.resize(len, 0);
    request.read(into).is_ok()
}

/// Answers a read: few bytes beside the ticket, more in a page.
fn answer(mut request: Request<'_>, ticket: u32, bytes: &[u8]) {
    let len = bytes.len();
    if len <= GET_INLINE {
        let mut args = [0; 4 + GET_INLINE];
        args[..4].copy_from_slice(&ticket.to_le_bytes());
        args[4..4 + len].copy_from_slice(bytes);
        return request.reply_bytes(&args[..4 + len]);
    }
    match request.page(len) {
        Ok(mut page) => {
            page.copy_from_slice(bytes);
            request.reply_with(&ticket.to_le_bytes(), Body::Page(page));
        }
        // All pages are out: the bytes wait for their turn in memory of their own.
        Err(_) => request.reply_with(&ticket.to_le_bytes(), Body::Copy(bytes)),
    }
}

/// Copies as many bytes as both have. Those of one number are copied by one instruction, not by a call.
#[inline]
pub(crate) fn copy_short(to: &mut [u8], from: &[u8]) {
    if let (Ok(to), Ok(from)) = (<&mut [u8; 4]>::try_from(&mut *to), <&[u8; 4]>::try_from(from)) {
        *to = *from;
    } else if let (Ok(to), Ok(from)) = (<&mut [u8; 8]>::try_from(&mut *to), <&[u8; 8]>::try_from(from)) {
        *to = *from;
    } else {
        to.copy_from_slice(from);
    }
}

/// Eight bytes of the arguments as a number.
fn number(args: &[u8], at: usize) -> u64 {
    args.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// What the words of a refusal mean, and who has refused.
pub(crate) fn refusal(words: &[u8]) -> Option<(u32, Error)> {
    let (what, rest) = words.split_first()?;
    let rank = u32::from_le_bytes(*rest.first_chunk()?);
    match *what {
        OUTSIDE => Some((rank, Error::Outside { rank, offset: number(rest, 4), len: number(rest, 12) })),
        STRANGER => Some((rank, Error::Stranger { rank })),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(writes: &[(u64, [u8; 2])]) -> Vec<u8> {
        writes.iter().flat_map(|(offset, bytes)| offset.to_le_bytes().into_iter().chain(*bytes)).collect()
    }

    #[test]
    fn a_batch_is_looked_at_before_any_of_it_is_written() {
        let mut part = Part::new(0, 2, 0);
        part.grow(6).expect("six bytes");
        let good = batch(&[(0, [1, 2]), (4, [5, 6]), (0, [3, 4])]);
        assert_eq!(part.outside(&good, 2), None);
        part.write_all(&good, 2, true);
        assert_eq!((part.bytes(0..6), part.stored()), (&[3, 4, 0, 0, 5, 6][..], 6));
        for (offset, why) in [(5, "one byte too far"), (6, "behind"), (u64::MAX, "no place")] {
            assert_eq!(part.outside(&batch(&[(0, [9, 9]), (offset, [9, 9])]), 2), Some(offset), "{why}");
        }
        let cut = &good[..good.len() - 1];
        assert_eq!(part.outside(cut, 2), Some(0), "the last is not whole");
        assert_eq!(part.outside(&good[..5], 2), Some(0), "not even a place");
        assert_eq!(part.outside(&[], 2), None);
        assert_eq!(part.outside(&good, usize::MAX), Some(0), "no length");
    }

    #[test]
    fn a_batch_of_reads_is_answered_as_a_whole_or_not_at_all() {
        let mut part = Part::new(0, 2, 0);
        part.grow(6).expect("six bytes");
        part.bytes_mut(0..6).copy_from_slice(&[1, 2, 3, 4, 5, 6]);
        let places = |offsets: &[u64]| offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect::<Vec<u8>>();
        let read = |places: &[u8], len| {
            let mut bytes = Vec::new();
            part.read_all(places, len, &mut bytes).map_or(Ok(bytes), Err)
        };
        assert_eq!(read(&places(&[4, 0, 4]), 2), Ok(vec![5, 6, 1, 2, 5, 6]));
        assert_eq!(read(&[], 2), Ok(Vec::new()));
        for (offset, why) in [(5, "one byte too far"), (6, "behind"), (u64::MAX, "no place")] {
            assert_eq!(read(&places(&[0, offset]), 2), Err(offset), "{why}");
        }
        assert_eq!(read(&places(&[2, 2])[..15], 2), Err(0), "the last is not whole");
        assert_eq!(read(&places(&[0]), usize::MAX), Err(0), "no length");
        part.grow(60).expect("sixty bytes");
        let many = places(&vec![0; PIECE / 60 + 1]);
        let mut bytes = Vec::new();
        assert_eq!(part.read_all(&many, 60, &mut bytes), Some(0), "more than an answer holds");
        assert_eq!(part.read_all(&many[8..], 60, &mut Vec::new()), None);
    }
}
