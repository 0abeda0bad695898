//! Who reads and writes another's region.

use std::time::Duration;

use cutthrough_engine::time::Instant;
use cutthrough_node::clock;
use cutthrough_node::incoming::{Channel, Payload};
use cutthrough_node::shm::grant::NoMemory;

use super::batches::{DEPTH, Lengths, to_slots};
use super::extents::{EXTENT_BYTES, Extent};
use super::{ATOMIC, AWAIT, Atomic, GATHER, GET, Key, Locked, PUT, Region, SCATTER};
use crate::am::{Body, Call, CallError, Failure, Node, Reply, RequestError, Unanswered, nanos};

/// Looks in vain before a batch sleeps.
const LOOKS: u32 = 1 << 14;
/// How long who has locked a region of this side is waited for at a time: nobody is served meanwhile.
const HELD: Duration = Duration::from_millis(1);
/// Of the time of an operation that stores pages, at most so much is kept to learn what has become of those under way.
const KEPT: Duration = Duration::from_secs(1);

/// A peer's region, as this node uses it. Each operation returns when the owner has done it, or when its time is over.
///
/// What ends as [`NotSent`](CallError::NotSent), but for [`Lost`](RequestError::Lost), has asked the owner for nothing,
/// and can be done again: there was no room for it in time, say. If anything was sent by then, be it the first piece of
/// many, it is `Late`, or `Lost`.
///
/// What is [`Late`](CallError::Late) may have been done, and may be done later still: the owner is told how much time
/// was left when the request was sent, and when nobody waits for it any more, but not how long the request has lain
/// before it looks. It does operations of a channel in the order in which they were asked for: once it has answered any
/// later one, what was late before that is done or will never be.
#[derive(Debug)]
pub struct Remote<'n> {
    node: &'n mut Node,
    channel: Channel,
    key: Key,
    timeout: Duration,
}

/// Pages that did not all arrive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} of {} pages have arrived{}: {error}", count(.valid, Some(true)), .valid.len(), more(.valid))]
#[non_exhaustive]
pub struct MoveError {
    /// What went wrong first, with the owner's own words, if it has refused.
    pub error: Unanswered,
    /// For each move, in the order of the call: whether its page lies in its slot. `None`, which only
    /// [`Remote::store_pages`] and that of a [`SharedRemote`](super::SharedRemote) say: it is not known. The page was
    /// under way when the channel ended, or when the time was over; it may lie there, or, while the channel lives,
    /// still come there: see [`Remote`]. The owner's [`Region::is_valid`] knows.
    pub valid: Vec<Option<bool>>,
}

fn count(valid: &[Option<bool>], what: Option<bool>) -> usize {
    valid.iter().filter(|its| **its == what).count()
}

/// How many pages may have arrived, if there are such.
fn more(valid: &[Option<bool>]) -> String {
    match count(valid, None) {
        0 => String::new(),
        many => format!(", and {many} others may have"),
    }
}

/// Arguments of a request for bytes: the key, where, and how many.
fn get_args(key: Key, offset: u64, len: usize) -> Vec<u8> {
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    key.0.to_le_bytes().into_iter().chain(offset.to_le_bytes()).chain(len.to_le_bytes()).collect()
}

impl<'n> Remote<'n> {
    /// The region that the peer of `channel` has registered as `key`. Every operation ends within `timeout`.
    #[must_use]
    pub const fn new(node: &'n mut Node, channel: Channel, key: Key, timeout: Duration) -> Self {
        Self { node, channel, key, timeout }
    }

    fn until(&self) -> Instant {
        clock::now().after(u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Bytes of the pool: a message of a batch, with its list, can have no more.
    fn pool(&self) -> usize {
        usize::try_from(self.node.inside.endpoint.pool_bytes()).unwrap_or(usize::MAX)
    }

    fn lengths(&self) -> Lengths {
        Lengths::new(self.pool(), self.node.inside.endpoint.is_wire(self.channel))
    }

    /// Arguments: the key, then words.
    fn args<const N: usize>(&self, words: [u64; N]) -> Vec<u8> {
        let key = self.key.0.to_le_bytes();
        key.into_iter().chain(words.into_iter().flat_map(u64::to_le_bytes)).collect()
    }

    /// Waits for room: how much time is left then.
    fn room(&mut self, until: Instant) -> Result<Duration, RequestError> {
        self.node.wait_for_room(self.channel, Some(self.timeout))?;
        Some(left(until)).filter(|left| !left.is_zero()).ok_or(RequestError::TimedOut(self.timeout))
    }

    fn finish(&mut self, call: Result<Call, RequestError>, until: Instant) -> Result<Reply, Unanswered> {
        self.node.wait_until(call?, until)
    }

    /// Writes bytes to the region, from `offset` on; more than 64 KiB, or 128 KiB over a network, in several pieces,
    /// some of which are under way at the same time.
    ///
    /// # Errors
    /// [`Unanswered`]: why, and the owner's own words; [`Failure::Refused`] if they do not lie in the region. Where
    /// there are several pieces, some of them may have been written.
    pub fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Unanswered> {
        let until = self.until();
        if bytes.len() <= self.lengths().batch {
            let args = self.args([offset]);
            let asking = self.node.ask(self.channel, PUT).args(&args).body(Body::Copy(bytes)).within(self.timeout);
            match asking.impatient().send() {
                // The owner is behind: see below.
                Err(RequestError::Full) => {}
                made => return self.finish(made, until).map(drop),
            }
        }
        self.put_pieces(offset, bytes, until)
    }

    /// The same in pieces, each as soon as there is room for it. None of them waits for the owner within the endpoint,
    /// which knows of no time but its own, and ends the channel after that.
    fn put_pieces(&mut self, offset: u64, bytes: &[u8], until: Instant) -> Result<(), Unanswered> {
        let most = self.lengths().batch;
        let (key, channel) = (self.key.0.to_le_bytes(), self.channel);
        let send = |node: &mut Node, tally: u32, piece: usize, left: Duration| {
            let start = piece * most;
            let its = &bytes[start..bytes.len().min(start + most)];
            let at = offset.saturating_add(start as u64).to_le_bytes();
            let args: Vec<u8> = key.into_iter().chain(at).collect();
            let body = match node.page(channel, its.len()) {
                Ok(mut page) => {
                    page.copy_from_slice(its);
                    Body::Page(page)
                }
                // All pages are out: perhaps there is room elsewhere.
                Err(NoMemory::NoPages) => Body::Copy(its),
                Err(error) => return Err(error.into()),
            };
            node.ask(channel, PUT).args(&args).body(body).impatient().within(left).tally(tally).send()
        };
        let mut wrong = None;
        let many = bytes.len().div_ceil(most).max(1);
        let ran = self.run((many, 0), (until, until), send, |_, result| {
            wrong = wrong.take().or(result.err());
            None
        });
        ran.over(wrong, self.timeout)
    }

    /// Reads bytes of the region, from `offset` on; more than 64 KiB, or 128 KiB over a network, in several pieces,
    /// some of which are under way at the same time.
    ///
    /// # Errors
    /// As [`Remote::put`]; [`Failure::TooLong`] if the owner answers with another number of bytes. Some of `into` may
    /// have been written.
    pub fn get(&mut self, offset: u64, into: &mut [u8]) -> Result<(), Unanswered> {
        let until = self.until();
        if into.len() > self.lengths().batch {
            return self.get_pieces(offset, into, until);
        }
        let left = self.room(until)?;
        let args = get_args(self.key, offset, into.len());
        let call = self.node.ask(self.channel, GET).args(&args).within(left).send();
        let mut reply = self.finish(call, until)?;
        // The other side lies: the rest of the memory would be as it was.
        if reply.payload_len() != into.len() {
            return Err(CallError::from(Failure::TooLong).into());
        }
        if !into.is_empty() {
            self.node.read(&mut reply, into)?;
        }
        Ok(())
    }

    /// The same in pieces, of which some are under way at the same time: one is copied in while another is copied out,
    /// and nobody else waits at the owner for more than a piece.
    fn get_pieces(&mut self, offset: u64, into: &mut [u8], until: Instant) -> Result<(), Unanswered> {
        let (most, all_bytes) = (self.lengths().batch, into.len());
        let (channel, key) = (self.channel, self.key);
        let piece = |number: usize| number * most..all_bytes.min((number + 1) * most);
        let send = |node: &mut Node, tally: u32, number: usize, left: Duration| {
            let its = piece(number);
            let args = get_args(key, offset.saturating_add(its.start as u64), its.len());
            node.ask(channel, GET).args(&args).impatient().within(left).tally(tally).send()
        };
        let mut wrong = None;
        let many = all_bytes.div_ceil(most);
        let ran = self.run((many, 0), (until, until), send, |number, result| {
            let place = &mut into[piece(number)];
            let taken = result.and_then(|mut reply| {
                if reply.payload_len() != place.len() {
                    return Err(CallError::from(Failure::TooLong).into());
                }
                match reply.take_payload() {
                    Payload::Landed(landed) => landed.read_at(0, place),
                    Payload::Buffer(bytes) => place.copy_from_slice(&bytes),
                    _ => return Err(CallError::from(Failure::TooLong).into()),
                }
                Ok(())
            });
            wrong = wrong.take().or(taken.err());
            None
        });
        ran.over(wrong, self.timeout)
    }

    /// Adds to the 8 bytes at `offset`, a multiple of 8, as a little-endian number: what it was before.
    ///
    /// # Errors
    /// As [`Remote::put`].
    pub fn fetch_add(&mut self, offset: u64, operand: u64) -> Result<u64, Unanswered> {
        self.atomic(Atomic::Add, offset, operand, 0)
    }

    /// Replaces the number at `offset`: what it was before.
    ///
    /// # Errors
    /// As [`Remote::put`].
    pub fn swap(&mut self, offset: u64, value: u64) -> Result<u64, Unanswered> {
        self.atomic(Atomic::Swap, offset, value, 0)
    }

    /// Replaces the number at `offset` if it is `expected`: what it was before.
    ///
    /// # Errors
    /// As [`Remote::put`].
    pub fn compare_swap(&mut self, offset: u64, expected: u64, value: u64) -> Result<u64, Unanswered> {
        self.atomic(Atomic::CompareSwap, offset, value, expected)
    }

    fn atomic(&mut self, which: Atomic, offset: u64, operand: u64, expected: u64) -> Result<u64, Unanswered> {
        let until = self.until();
        let left = self.room(until)?;
        let mut args = self.key.0.to_le_bytes().to_vec();
        args.extend_from_slice(&(which as u32).to_le_bytes());
        args.extend([offset, operand, expected].into_iter().flat_map(u64::to_le_bytes));
        let call = self.node.ask(self.channel, ATOMIC).args(&args).within(left).send();
        let reply = self.finish(call, until)?;
        if reply.args().len() != 8 {
            return Err(CallError::from(Failure::Arguments).into());
        }
        Ok(u64::from(reply.word(0)) | u64::from(reply.word(1)) << 32)
    }

    /// Writes runs of bytes of the region: `bytes` are those of all runs, one behind the other.
    ///
    /// # Errors
    /// As [`Remote::put`]. Some of the runs may have been written.
    ///
    /// # Panics
    /// If there are fewer bytes than the runs have.
    pub fn put_list(&mut self, runs: &[Extent], bytes: &[u8]) -> Result<(), Unanswered> {
        let (runs, starts) = self.lengths().pieces(runs);
        let fill = |(): &(), i: usize, into: &mut [u8]| into.copy_from_slice(&bytes[starts[i]..starts[i] + into.len()]);
        self.scatter(&runs, false, || Some(()), fill).map(drop).map_err(|error| error.error)
    }

    /// Reads runs of bytes of the region into `bytes`, one behind the other.
    ///
    /// # Errors
    /// As [`Remote::put`].
    ///
    /// # Panics
    /// If there are fewer bytes than the runs have.
    pub fn get_list(&mut self, runs: &[Extent], bytes: &mut [u8]) -> Result<(), Unanswered> {
        let (runs, starts) = self.lengths().pieces(runs);
        let take = |(): &mut (), i: usize, len: usize, copy: &mut dyn FnMut(&mut [u8])| {
            copy(&mut bytes[starts[i]..starts[i] + len]);
        };
        self.gather(&runs, || Some(()), take).map(drop).map_err(|error| error.error)
    }

    /// Copies pages of `from` to slots of the region: `moves` are pairs of slots, from and to. All slots of the region
    /// that pages go to are made invalid first, and the owner's [`Region::is_valid`] tells of each page as soon as it
    /// lies there. Slots count as those of `from` do: where the owner's are shorter, a page makes all of them valid
    /// that it covers; where they are longer, none.
    ///
    /// Of its time the last eighth, but at most a second, is kept to learn what has become of the pages that are under
    /// way by then: no other page is sent meanwhile. Of pages whose owner answers within that it is known.
    ///
    /// # Errors
    /// [`MoveError`], which says of each page whether it has arrived, as far as that can be known;
    /// [`RequestError::Payload`] if a page and 16 bytes are more than the [pool](crate::Config::pool_bytes).
    ///
    /// # Panics
    /// If a slot lies outside of `from`, or is its last one and shorter than the others, or if this thread has `from`
    /// [locked](Region::lock). Then nothing is sent.
    pub fn store_pages(&mut self, from: &Region, moves: &[(u32, u32)]) -> Result<(), MoveError> {
        let slot = from.slot_bytes();
        from.assert_free();
        moves.iter().for_each(|(its, _)| assert_inside(from, *its));
        let runs = to_slots(moves.iter().map(|(_, to)| *to), slot);
        // Locked for a message: this node may be the owner of `from`, and serves others between two.
        let fill = |bytes: &Locked<'_>, i: usize, into: &mut [u8]| {
            let start = moves[i].0 as usize * slot as usize;
            into.copy_from_slice(&bytes[start..start + slot as usize]);
        };
        self.scatter(&runs, true, || from.lock_within(HELD), fill)
    }

    /// Copies pages of the region to slots of `into`: `moves` are pairs of slots, from and to. [`Region::is_valid`] of
    /// `into` tells of each page as soon as it lies there.
    ///
    /// # Errors
    /// [`MoveError`], which says exactly which pages have arrived; pages of more than 16 MiB are refused.
    ///
    /// # Panics
    /// If a slot lies outside of `into`, or is its last one and shorter than the others, or if this thread has `into`
    /// [locked](Region::lock). Then nothing is asked for, and what is valid is so still.
    pub fn fetch_pages(&mut self, into: &Region, moves: &[(u32, u32)]) -> Result<(), MoveError> {
        let slot = into.slot_bytes();
        let runs = to_slots(moves.iter().map(|(from, _)| *from), slot);
        into.assert_free();
        moves.iter().for_each(|(_, its)| assert_inside(into, *its));
        moves.iter().for_each(|(_, its)| into.invalidate(*its));
        let take = |bytes: &mut Locked<'_>, i: usize, _: usize, copy: &mut dyn FnMut(&mut [u8])| {
            let start = moves[i].1 as usize * slot as usize;
            copy(&mut bytes[start..start + slot as usize]);
            into.validate(moves[i].1);
        };
        self.gather(&runs, || into.lock_within(HELD), take)
    }

    /// Writes runs by the batch. `fill` copies the bytes of a run, with what `hold` gives, if that is to be had now.
    fn scatter<H>(
        &mut self,
        runs: &[Extent],
        pages: bool,
        hold: impl Fn() -> Option<H>,
        mut fill: impl FnMut(&H, usize, &mut [u8]),
    ) -> Result<(), MoveError> {
        let until = self.until();
        // Only of pages it is said which have arrived.
        let begin_by = if pages { before(until, kept(self.timeout)) } else { until };
        let (pool, lengths) = (self.pool(), self.lengths());
        let batches = lengths.batches(runs);
        let (key, channel) = (self.key.0.to_le_bytes(), self.channel);
        // Before the pages, all of their slots: what lies there is not valid from then on, whatever becomes of this.
        let most = lengths.list();
        let awaited = if pages { runs.len().div_ceil(most) } else { 0 };
        let send = |node: &mut Node, tally: u32, number: usize, left: Duration| {
            let Some(batch) = number.checked_sub(awaited) else {
                let list = &runs[number * most..runs.len().min((number + 1) * most)];
                let mut page = node.page(channel, list.len() * EXTENT_BYTES)?;
                for (run, place) in list.iter().zip(page.chunks_exact_mut(EXTENT_BYTES)) {
                    place.copy_from_slice(&run.to_bytes());
                }
                let count = u32::try_from(list.len()).unwrap_or(u32::MAX);
                let args: Vec<u8> = key.into_iter().chain(count.to_le_bytes()).collect();
                let asking = node.ask(channel, AWAIT).args(&args).body(Body::Page(page));
                return asking.within(left).tally(tally).send();
            };
            let (first, end) = batches[batch];
            let list = &runs[first..end];
            let bytes: usize = list.iter().map(|run| run.len as usize).sum();
            let len = list.len() * EXTENT_BYTES + bytes;
            // A page that does not fit even alone: to wait for so much memory would be in vain.
            if len > pool {
                return Err(RequestError::Payload);
            }
            let held = hold().ok_or(RequestError::Full)?;
            let mut page = node.page(channel, len)?;
            let (head, mut rest) = page.split_at_mut(list.len() * EXTENT_BYTES);
            for (i, (run, place)) in list.iter().zip(head.chunks_exact_mut(EXTENT_BYTES)).enumerate() {
                place.copy_from_slice(&run.to_bytes());
                let (now, later) = rest.split_at_mut(run.len as usize);
                fill(&held, first + i, now);
                rest = later;
            }
            drop(held);
            let words = [u32::try_from(list.len()).unwrap_or(u32::MAX), u32::from(pages)];
            let args: Vec<u8> = key.into_iter().chain(words.into_iter().flat_map(u32::to_le_bytes)).collect();
            node.ask(channel, SCATTER).args(&args).body(Body::Page(page)).within(left).tally(tally).send()
        };
        let mut valid = vec![Some(false); runs.len()];
        let mut wrong = None;
        let ran = self.run((awaited + batches.len(), awaited), (begin_by, until), send, |number, result| {
            let Some(batch) = number.checked_sub(awaited) else {
                wrong = wrong.take().or(result.err());
                return None;
            };
            let (first, end) = batches[batch];
            valid[first..end].fill(match &result {
                Ok(_) => Some(true),
                Err(unanswered) if may_be_done(unanswered.error) => None,
                Err(_) => Some(false),
            });
            wrong = wrong.take().or(result.err());
            None
        });
        ran.over(wrong, self.timeout).map_err(|error| MoveError { error, valid })
    }

    /// Reads runs by the batch. `take` says where the bytes of a run go, with what `hold` gives, as above.
    fn gather<H>(
        &mut self,
        runs: &[Extent],
        hold: impl Fn() -> Option<H>,
        mut take: impl FnMut(&mut H, usize, usize, &mut dyn FnMut(&mut [u8])),
    ) -> Result<(), MoveError> {
        let until = self.until();
        let batches = self.lengths().batches(runs);
        let (key, channel) = (self.key.0.to_le_bytes(), self.channel);
        let send = |node: &mut Node, tally: u32, batch: usize, left: Duration| {
            let (first, end) = batches[batch];
            let list = &runs[first..end];
            let mut page = node.page(channel, list.len() * EXTENT_BYTES)?;
            for (run, place) in list.iter().zip(page.chunks_exact_mut(EXTENT_BYTES)) {
                place.copy_from_slice(&run.to_bytes());
            }
            let count = u32::try_from(list.len()).unwrap_or(u32::MAX);
            let args: Vec<u8> = key.into_iter().chain(count.to_le_bytes()).collect();
            node.ask(channel, GATHER).args(&args).body(Body::Page(page)).within(left).tally(tally).send()
        };
        let mut valid = vec![Some(false); runs.len()];
        let mut wrong = None;
        let ran = self.run((batches.len(), 0), (until, until), send, |batch, result| {
            let (first, end) = batches[batch];
            let bytes: usize = runs[first..end].iter().map(|run| run.len as usize).sum();
            let reply = match result {
                Ok(reply) if reply.payload_len() == bytes => reply,
                result => {
                    let other = || CallError::from(Failure::TooLong).into();
                    wrong = wrong.take().or_else(|| Some(result.err().unwrap_or_else(other)));
                    return None;
                }
            };
            let Some(mut held) = hold() else { return Some(reply) };
            let mut at = 0;
            for (i, run) in (first..).zip(&runs[first..end]) {
                let len = run.len as usize;
                take(&mut held, i, len, &mut |into: &mut [u8]| match reply.payload() {
                    Payload::Landed(landed) => landed.read_at(at, into),
                    Payload::Buffer(bytes) => into.copy_from_slice(&bytes[at..at + len]),
                    _ => {}
                });
                at += len;
            }
            valid[first..end].fill(Some(true));
            None
        });
        ran.over(wrong, self.timeout).map_err(|error| MoveError { error, valid })
    }

    /// Makes so many calls, a few at a time beside the first `ahead` of them, and waits for all of them until `until`;
    /// after the first error, and from `begin_by` on, no more are made. Those that are under way at the end are given
    /// up. Of those that were made each says for itself. What `end` gives back it gets again later.
    fn run(
        &mut self,
        (count, ahead): (usize, usize),
        (begin_by, until): (Instant, Instant),
        mut send: impl FnMut(&mut Node, u32, usize, Duration) -> Result<Call, RequestError>,
        mut end: impl FnMut(usize, Result<Reply, Unanswered>) -> Option<Reply>,
    ) -> Ran {
        let tally = self.node.begin_tally();
        let Counted { node, under_way, .. } =
            &mut Counted { node: &mut *self.node, tally, under_way: Vec::with_capacity(DEPTH) };
        let (mut next, mut looks, mut ran, mut kept) = (0, 0_u32, Ran::default(), Vec::new());
        while next < count || !under_way.is_empty() || !kept.is_empty() {
            let mut before = std::mem::take(&mut kept).into_iter();
            while kept.is_empty()
                && let Some((batch, reply)) = before.next()
            {
                kept.extend(end(batch, Ok(reply)).map(|reply| (batch, reply)));
            }
            kept.extend(before);
            while next < count && kept.len() + under_way.iter().filter(|(_, its)| *its >= ahead).count() < DEPTH {
                if left(begin_by).is_zero() {
                    break;
                }
                match send(node, tally, next, left(until)) {
                    Ok(call) => {
                        ran.sent = true;
                        under_way.push((call, next));
                    }
                    // The peer is behind: what it gives back makes room. Or somebody has a region of this side.
                    Err(RequestError::Full | RequestError::NoMemory(NoMemory::NoPages)) => break,
                    Err(error) => {
                        end(next, Err(error.into()));
                        next = count;
                        break;
                    }
                }
                next += 1;
            }
            let moved = node.drive(looks > LOOKS);
            looks = if moved { 0 } else { looks + 1 };
            let ended = std::mem::take(&mut node.tally(tally).ended);
            for (call, result) in ended {
                let Some(place) = under_way.iter().position(|(its, _)| *its == call) else { continue };
                let (_, batch) = under_way.swap_remove(place);
                if result.is_err() {
                    next = count;
                }
                kept.extend(end(batch, result).map(|reply| (batch, reply)));
            }
            if (looks.is_multiple_of(256) || looks > LOOKS) && clock::now() >= begin_by {
                if next < count {
                    (next, ran.late) = (count, true);
                }
                if clock::now() >= until {
                    for (call, batch) in under_way.drain(..) {
                        node.give_up(call, true);
                        end(batch, Err(CallError::Late.into()));
                    }
                    kept.drain(..).for_each(|(batch, _)| drop(end(batch, Err(CallError::Late.into()))));
                }
            }
        }
        ran
    }
}

/// What has become of many calls, beside what each says for itself.
#[derive(Debug, Default)]
pub(super) struct Ran {
    /// Whether any was made.
    pub(super) sent: bool,
    /// Whether some were left to be made when the time was over.
    pub(super) late: bool,
}

impl Ran {
    /// What has become of the operation that they were made for, where something went wrong with one of them, or not.
    /// That the owner was asked for nothing is said only where none was made.
    pub(super) fn over(self, wrong: Option<Unanswered>, time: Duration) -> Result<(), Unanswered> {
        let late = self.late.then(|| RequestError::TimedOut(time).into());
        let Some(mut wrong) = wrong.or(late) else { return Ok(()) };
        wrong.error = match wrong.error {
            CallError::NotSent(RequestError::TimedOut(_)) if self.sent => CallError::Late,
            CallError::NotSent(RequestError::TimedOut(_)) => RequestError::TimedOut(time).into(),
            CallError::NotSent(RequestError::Closed) if self.sent => RequestError::Lost.into(),
            error => error,
        };
        Err(wrong)
    }
}

/// Calls of one operation that are counted, with what each is for: those that are left are given up in the end, be it
/// a panic of whoever has asked for the operation.
struct Counted<'n> {
    node: &'n mut Node,
    tally: u32,
    under_way: Vec<(Call, usize)>,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        for (call, _) in self.under_way.drain(..) {
            self.node.cancel(call);
        }
        self.node.end_tally(self.tally);
    }
}

/// Whether a request that has ended so may have been done all the same, or may still be.
pub(super) const fn may_be_done(error: CallError) -> bool {
    use CallError::{Closed, Failed, Late, NotSent, Wait};
    // The owner looks at a whole batch before it writes any of it: what it says no to is not done.
    matches!(
        error,
        Closed(_) | Late | Wait | NotSent(RequestError::Lost) | Failed(Failure::Panicked | Failure::Abandoned)
    )
}

/// How much of an operation's time is kept to learn what has become of pages that are under way.
pub(super) fn kept(time: Duration) -> Duration {
    (time / 8).min(KEPT)
}

/// So long before that.
pub(super) fn before(until: Instant, time: Duration) -> Instant {
    Instant::from_nanos(until.as_nanos().saturating_sub(nanos(time)))
}

/// How much time is left.
pub(super) fn left(until: Instant) -> Duration {
    Duration::from_nanos(until.saturating_since(clock::now()))
}

/// Before anything is sent: a slot that is not whole lies outside.
pub(super) fn assert_inside(region: &Region, slot: u32) {
    let end = (u64::from(slot) + 1) * u64::from(region.slot_bytes());
    assert!(end <= region.len(), "slot {slot} lies outside of the region");
}
