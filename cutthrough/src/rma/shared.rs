//! Who reads and writes another's region by a client of calls, on any thread and in any task.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::task::Poll;

use cutthrough_engine::time::Instant;
use cutthrough_node::clock;
use cutthrough_node::incoming::Payload;

use super::batches::{DEPTH, Lengths, to_slots};
use super::extents::{EXTENT_BYTES, Extent};
use super::remote::{Ran, assert_inside, before, kept, left, may_be_done};
use super::{ATOMIC, AWAIT, Atomic, GATHER, GET, Key, MoveError, PUT, Region, SCATTER};
use crate::am::{Body, CallError, Failure, Reply, Unanswered, nanos};
use crate::rpc::{Client, Raw, RawError};

/// A peer's region, as those use it who share a [`Client`]: on any thread, blocking or awaited. Clones are the same.
///
/// The operations are those of [`Remote`](super::Remote), which has the node for itself as long as one takes. Here each
/// is made of calls of the client, so calls and operations of others are under way meanwhile, by the same channel. What
/// a thread or a task asks for once it has an answer happens behind that; between those of several there is no order.
/// Awaited, an operation is begun when its future is polled, and given up when that is dropped: what has been sent by
/// then may be done. These futures need no particular executor. The client's channel stays open while this is kept.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use cutthrough::am::{Node, Service, Settings};
/// use cutthrough::rma::{Owner, Region, SharedRemote};
/// use cutthrough::rpc::Client;
/// # use cutthrough::{Config, Endpoint};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let address = format!("shm:rma-shared-doc-{}", std::process::id());
/// # let mut node = Node::new(Endpoint::open(Config::default())?, Settings::default());
/// # let key = Owner::new(&mut node).register(&Region::new(4096, 4096));
/// # node.listen(&address)?;
/// # let server = Service::spawn(node, |_| ())?;
/// # let node = Node::new(Endpoint::open(Config::default())?, Settings::default());
/// let client = Client::connect(Arc::new(Service::spawn(node, |_| ())?), &address, Duration::from_secs(1))?;
/// let remote = SharedRemote::new(client.within(Duration::from_secs(1)), key);
/// std::thread::scope(|scope| {
///     let adding = [(); 4].map(|()| scope.spawn(|| remote.fetch_add(0, 5)));
///     adding.into_iter().try_for_each(|one| one.join().expect("no panic").map(drop))
/// })?;
/// assert_eq!(remote.fetch_add(0, 0)?, 20);
/// # Ok(())
/// # }
/// ```
///
/// # What an error says
///
/// What ends as [`NotSent`](CallError::NotSent), but for [`Lost`](crate::am::RequestError::Lost), has had nothing done,
/// and can be asked for again. If anything was sent by then, be it the first piece of many, it is `Late`, or `Lost`.
/// What is `Late`, `Lost` or [`Closed`](CallError::Closed) may have been done, and what is `Late` may be done later
/// still: as of [`Remote`](super::Remote). Nothing that may have been done is asked for again. Where the owner is
/// [`Busy`](Failure::Busy), which has done nothing, it is, until the time is over.
///
/// # After the channel has ended
///
/// A client opens another channel by itself, and that may be to another owner: a server that was started again. A key
/// is good at the owner that has given it, by whatever channel. Another one refuses it ([`Failure::Refused`], "no
/// region has that key"), and its regions are left alone. Who hears so asks it for its key, as by a call, and makes a
/// `SharedRemote` of that and of the same client. While there is no owner, operations end as
/// [`NotSent`](CallError::NotSent) at once; [`Client::last_error`] says why.
///
/// # Panics
///
/// Operations that are not awaited panic as [`Client::call`] does: in a handler or a continuation, which has the node,
/// they would wait in vain.
#[derive(Debug, Clone)]
pub struct SharedRemote {
    client: Client,
    key: Key,
}

impl SharedRemote {
    /// The region that the owner on the other side of this client's channel has registered as `key`. Every operation
    /// ends within the time that the client gives its calls ([`Client::within`]).
    #[must_use]
    pub const fn new(client: Client, key: Key) -> Self {
        Self { client, key }
    }

    fn lengths(&self) -> Lengths {
        lengths(&self.client)
    }

    /// An operation of so many calls, which begins now.
    fn made_of(&self, count: usize) -> Pieces {
        let client = self.client.clone();
        let until = clock::now().after(nanos(client.limit()));
        Pieces { client, count, begin_by: until, until, sent: false }
    }

    /// Writes bytes to the region, from `offset` on; more than 64 KiB, or 128 KiB over a network, in several pieces,
    /// some of which are under way at the same time.
    ///
    /// # Errors
    /// [`Unanswered`]: why, and the owner's own words; [`Failure::Refused`] if they do not lie in the region. Where
    /// there are several pieces, some of them may have been written.
    pub fn put(&self, offset: u64, bytes: &[u8]) -> Result<(), Unanswered> {
        if bytes.len() > self.lengths().batch {
            return self.client.wait(self.start_put(offset, bytes));
        }
        self.client.call_raw(putting(self.key, offset, bytes)).map(drop).map_err(unanswered)
    }

    /// The same as a future.
    ///
    /// # Errors
    /// As [`SharedRemote::put`].
    pub fn start_put<'a>(
        &self,
        offset: u64,
        bytes: &'a [u8],
    ) -> impl Future<Output = Result<(), Unanswered>> + Send + use<'a> {
        let (key, most) = (self.key, self.lengths().batch);
        let ask = move |number: usize| {
            let start = number * most;
            let its = &bytes[start..bytes.len().min(start + most)];
            Some(putting(key, offset.saturating_add(start as u64), its))
        };
        self.made_of(bytes.len().div_ceil(most).max(1)).run(ask, |_, result| result.map(drop))
    }

    /// Reads bytes of the region, from `offset` on; more than 64 KiB, or 128 KiB over a network, in several pieces,
    /// some of which are under way at the same time.
    ///
    /// # Errors
    /// As [`SharedRemote::put`]; [`Failure::TooLong`] if the owner answers with another number of bytes. Some of `into`
    /// may have been written.
    pub fn get(&self, offset: u64, into: &mut [u8]) -> Result<(), Unanswered> {
        if into.len() > self.lengths().batch {
            return self.client.wait(self.start_get(offset, into));
        }
        let reply = self.client.call_raw(getting(self.key, offset, into.len())).map_err(unanswered)?;
        copies(&reply, into.len())?(0, into);
        Ok(())
    }

    /// The same as a future. Dropped before it is done, it may have written some of `into`, and writes nothing later.
    ///
    /// # Errors
    /// As [`SharedRemote::get`].
    pub fn start_get<'a>(
        &self,
        offset: u64,
        into: &'a mut [u8],
    ) -> impl Future<Output = Result<(), Unanswered>> + Send + use<'a> {
        let (key, most, all_bytes) = (self.key, self.lengths().batch, into.len());
        let piece = move |number: usize| number * most..all_bytes.min((number + 1) * most);
        let ask = move |number: usize| {
            let its = piece(number);
            Some(getting(key, offset.saturating_add(its.start as u64), its.len()))
        };
        self.made_of(all_bytes.div_ceil(most).max(1)).run(ask, move |number, result| {
            let place = &mut into[piece(number)];
            copies(&result?, place.len())?(0, place);
            Ok(())
        })
    }

    /// Adds to the 8 bytes at `offset`, a multiple of 8, as a little-endian number: what it was before.
    ///
    /// # Errors
    /// As [`SharedRemote::put`].
    pub fn fetch_add(&self, offset: u64, operand: u64) -> Result<u64, Unanswered> {
        self.atomic(Atomic::Add, offset, operand, 0)
    }

    /// The same as a future.
    ///
    /// # Errors
    /// As [`SharedRemote::put`].
    pub fn start_fetch_add(
        &self,
        offset: u64,
        operand: u64,
    ) -> impl Future<Output = Result<u64, Unanswered>> + Send + use<> {
        self.start_atomic(Atomic::Add, offset, operand, 0)
    }

    /// Replaces the number at `offset`: what it was before.
    ///
    /// # Errors
    /// As [`SharedRemote::put`].
    pub fn swap(&self, offset: u64, value: u64) -> Result<u64, Unanswered> {
        self.atomic(Atomic::Swap, offset, value, 0)
    }

    /// The same as a future.
    ///
    /// # Errors
    /// As [`SharedRemote::put`].
    pub fn start_swap(&self, offset: u64, value: u64) -> impl Future<Output = Result<u64, Unanswered>> + Send + use<> {
        self.start_atomic(Atomic::Swap, offset, value, 0)
    }

    /// Replaces the number at `offset` if it is `expected`: what it was before.
    ///
    /// # Errors
    /// As [`SharedRemote::put`].
    pub fn compare_swap(&self, offset: u64, expected: u64, value: u64) -> Result<u64, Unanswered> {
        self.atomic(Atomic::CompareSwap, offset, value, expected)
    }

    /// The same as a future.
    ///
    /// # Errors
    /// As [`SharedRemote::put`].
    pub fn start_compare_swap(
        &self,
        offset: u64,
        expected: u64,
        value: u64,
    ) -> impl Future<Output = Result<u64, Unanswered>> + Send + use<> {
        self.start_atomic(Atomic::CompareSwap, offset, value, expected)
    }

    fn atomic(&self, which: Atomic, offset: u64, operand: u64, expected: u64) -> Result<u64, Unanswered> {
        found(self.client.call_raw(changing(self.key, which, offset, [operand, expected])))
    }

    fn start_atomic(
        &self,
        which: Atomic,
        offset: u64,
        operand: u64,
        expected: u64,
    ) -> impl Future<Output = Result<u64, Unanswered>> + Send + use<> {
        let call = self.client.start_raw(changing(self.key, which, offset, [operand, expected]));
        async move { found(call.await) }
    }

    /// Writes runs of bytes of the region: `bytes` are those of all runs, one behind the other.
    ///
    /// # Errors
    /// As [`SharedRemote::put`]. Some of the runs may have been written.
    ///
    /// # Panics
    /// If there are fewer bytes than the runs have.
    pub fn put_list(&self, runs: &[Extent], bytes: &[u8]) -> Result<(), Unanswered> {
        let lengths = self.lengths();
        let (runs, starts) = lengths.pieces(runs);
        let batches = lengths.batches(&runs);
        let ask = |number: usize| {
            let (first, end) = batches[number];
            let its = &bytes[starts[first]..starts[first] + len_of(&runs[first..end])];
            Some(listing(self.key, SCATTER, &runs[first..end], 0, |body| body.extend_from_slice(its)))
        };
        self.client.wait(self.made_of(batches.len()).run(ask, |_, result| result.map(drop)))
    }

    /// Reads runs of bytes of the region into `bytes`, one behind the other.
    ///
    /// # Errors
    /// As [`SharedRemote::put`].
    ///
    /// # Panics
    /// If there are fewer bytes than the runs have.
    pub fn get_list(&self, runs: &[Extent], bytes: &mut [u8]) -> Result<(), Unanswered> {
        let lengths = self.lengths();
        let (runs, starts) = lengths.pieces(runs);
        gather(self.made_of(0), (self.key, lengths), &runs, |its, len, copy| {
            copy(0, &mut bytes[starts[its.start]..starts[its.start] + len]);
            Ok(())
        })
    }

    /// Copies pages of `from` to slots of the region: `moves` are pairs of slots, from and to. All slots of the region
    /// that pages go to are made invalid first, and the owner's [`Region::is_valid`] tells of each page as soon as it
    /// lies there. [`Remote::store_pages`](super::Remote::store_pages) copies each page once less, and keeps the node
    /// for itself meanwhile. Of its time the last eighth, but at most a second, is kept as there.
    ///
    /// # Errors
    /// [`MoveError`], which says of each page whether it has arrived, as far as that can be known.
    ///
    /// # Panics
    /// If a slot lies outside of `from`, or is its last one and shorter than the others, or if this thread has `from`
    /// [locked](Region::lock). Then nothing is sent.
    pub fn store_pages(&self, from: &Region, moves: &[(u32, u32)]) -> Result<(), MoveError> {
        from.assert_free();
        moves.iter().for_each(|(its, _)| assert_inside(from, *its));
        let (slot, lengths) = (from.slot_bytes(), self.lengths());
        let runs = to_slots(moves.iter().map(|(_, to)| *to), slot);
        let mut valid = vec![Some(false); runs.len()];
        // Before the pages, all of their slots: what lies there is not valid from then on, whatever becomes of this.
        let most = lengths.list();
        let awaits = self.made_of(runs.len().div_ceil(most));
        let (client, until, sent) = (awaits.client.clone(), awaits.until, awaits.count > 0);
        let begin_by = before(until, kept(client.limit()));
        let ask = |number: usize| {
            let its = &runs[number * most..runs.len().min((number + 1) * most)];
            Some(listing(self.key, AWAIT, its, 0, |_| ()))
        };
        if let Err(error) = self.client.wait(awaits.run(ask, |_, result| result.map(drop))) {
            return Err(MoveError { error, valid });
        }
        let batches = lengths.batches(&runs);
        let ask = |number: usize| {
            let (first, end) = batches[number];
            let held = from.lock_within(left(begin_by))?;
            let fill = |body: &mut Vec<u8>| {
                for (its, _) in &moves[first..end] {
                    body.extend_from_slice(&held[in_slot(*its, slot)]);
                }
            };
            Some(listing(self.key, SCATTER, &runs[first..end], 1, fill))
        };
        let end = |number: usize, result: Result<Reply, Unanswered>| {
            let (first, end) = batches[number];
            valid[first..end].fill(match &result {
                Ok(_) => Some(true),
                Err(unanswered) if may_be_done(unanswered.error) => None,
                Err(_) => Some(false),
            });
            result.map(drop)
        };
        let operation = Pieces { client, count: batches.len(), begin_by, until, sent };
        let done = self.client.wait(operation.run(ask, end));
        done.map_err(|error| MoveError { error, valid })
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
    pub fn fetch_pages(&self, into: &Region, moves: &[(u32, u32)]) -> Result<(), MoveError> {
        into.assert_free();
        moves.iter().for_each(|(_, its)| assert_inside(into, *its));
        moves.iter().for_each(|(_, its)| into.invalidate(*its));
        let slot = into.slot_bytes();
        let runs = to_slots(moves.iter().map(|(from, _)| *from), slot);
        let mut valid = vec![Some(false); runs.len()];
        let operation = self.made_of(0);
        let until = operation.until;
        let done = gather(operation, (self.key, self.lengths()), &runs, |its, _, copy| {
            let mut held = into.lock_within(left(until)).ok_or(CallError::Late)?;
            for (i, (_, to)) in moves[its.clone()].iter().enumerate() {
                copy(i * slot as usize, &mut held[in_slot(*to, slot)]);
                into.validate(*to);
            }
            valid[its].fill(Some(true));
            Ok(())
        });
        done.map_err(|error| MoveError { error, valid })
    }
}

/// Reads runs by the batch. `take` gets the runs of a reply, their bytes' number, and what copies those.
fn gather(
    operation: Pieces,
    (key, lengths): (Key, Lengths),
    runs: &[Extent],
    mut take: impl FnMut(Range<usize>, usize, &dyn Fn(usize, &mut [u8])) -> Result<(), Unanswered>,
) -> Result<(), Unanswered> {
    let client = operation.client.clone();
    let batches = lengths.batches(runs);
    let ask = |number: usize| {
        let (first, end) = batches[number];
        Some(listing(key, GATHER, &runs[first..end], 0, |_| ()))
    };
    let end = |number: usize, result: Result<Reply, Unanswered>| {
        let (first, end) = batches[number];
        let len = len_of(&runs[first..end]);
        take(first..end, len, &copies(&result?, len)?)
    };
    client.wait(Pieces { count: batches.len(), ..operation }.run(ask, end))
}

/// The calls that an operation is made of.
struct Pieces {
    client: Client,
    count: usize,
    /// From when on no more are made, and when its time is over.
    begin_by: Instant,
    until: Instant,
    /// Whether anything was sent before.
    sent: bool,
}

impl Pieces {
    /// Makes the calls, a few at a time, and waits for all of them; after the first error no more are made. `ask` says
    /// what a call is; none, if the time is over. `end` takes what has become of it.
    async fn run<'r>(
        self,
        mut ask: impl FnMut(usize) -> Option<Raw<'r>>,
        mut end: impl FnMut(usize, Result<Reply, Unanswered>) -> Result<(), Unanswered>,
    ) -> Result<(), Unanswered> {
        let Self { client, count, begin_by, until, sent } = self;
        let (mut next, mut wrong, mut ran) = (0, None, Ran { sent, late: false });
        let mut under_way = Vec::with_capacity(count.min(DEPTH));
        poll_fn(move |context| {
            while next < count && under_way.len() < DEPTH {
                let raw = if left(begin_by).is_zero() { None } else { ask(next) };
                let Some(raw) = raw else {
                    (next, ran.late) = (count, true);
                    break;
                };
                // Of what is begun none is kept from waiting.
                let permit = if next > 0 || sent {
                    client.another_permit(&raw)
                } else {
                    match client.permit(&raw) {
                        Ok(permit) => permit,
                        Err(why) => return Poll::Ready(Err(why.into())),
                    }
                };
                under_way.push((next, client.within(left(until)).start_raw(raw).permitted(permit)));
                next += 1;
            }
            under_way.retain_mut(|(number, call)| {
                let Poll::Ready(result) = Pin::new(call).poll(context) else { return true };
                let result = result.map_err(unanswered);
                let unsent = matches!(&result, Err(why) if is_unsent(why.error));
                ran.sent |= !unsent;
                if let Err(why) = end(*number, result) {
                    next = count;
                    wrong.get_or_insert(why);
                }
                false
            });
            if next == count && under_way.is_empty() {
                return Poll::Ready(std::mem::take(&mut ran).over(wrong.take(), client.limit()));
            }
            if next < count && under_way.len() < DEPTH {
                // Other tasks run before the next ones are made.
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await
    }
}

fn lengths(client: &Client) -> Lengths {
    Lengths::new(client.pool_bytes(), client.is_wire())
}

/// Whether the owner was asked for nothing.
const fn is_unsent(error: CallError) -> bool {
    matches!(error, CallError::NotSent(why) if !why.may_have_run())
}

/// Why there is no reply, as of whoever has the node. Why there is no channel the client says.
fn unanswered(failed: RawError) -> Unanswered {
    let RawError { error, args, landing, .. } = failed;
    Unanswered { args, landing, ..error.into() }
}

fn putting(key: Key, offset: u64, bytes: &[u8]) -> Raw<'_> {
    Raw::new(PUT).args([key.0, offset].map(u64::to_le_bytes).as_flattened()).body(Body::Copy(bytes))
}

fn getting(key: Key, offset: u64, len: usize) -> Raw<'static> {
    // The number of bytes is a word.
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    Raw::new(GET).args(&[key.0, offset, len.into()].map(u64::to_le_bytes).as_flattened()[..20])
}

fn changing(key: Key, which: Atomic, offset: u64, [operand, expected]: [u64; 2]) -> Raw<'static> {
    let mut args = [0; 36];
    args[..8].copy_from_slice(&key.0.to_le_bytes());
    args[8..12].copy_from_slice(&(which as u32).to_le_bytes());
    args[12..].copy_from_slice([offset, operand, expected].map(u64::to_le_bytes).as_flattened());
    Raw::new(ATOMIC).args(&args)
}

/// A request with a list of runs and, of a scatter, whether they are pages, and the bytes that `fill` adds.
fn listing(key: Key, handler: u16, runs: &[Extent], pages: u32, fill: impl FnOnce(&mut Vec<u8>)) -> Raw<'static> {
    let bytes = if handler == SCATTER { len_of(runs) } else { 0 };
    let mut body = Vec::with_capacity(runs.len() * EXTENT_BYTES + bytes);
    runs.iter().for_each(|run| body.extend_from_slice(&run.to_bytes()));
    fill(&mut body);
    let words = runs.len() as u64 | u64::from(pages) << 32;
    let args = [key.0, words].map(u64::to_le_bytes);
    let args = &args.as_flattened()[..if handler == SCATTER { 16 } else { 12 }];
    Raw::new(handler).args(args).body(Body::Owned(body))
}

/// What an atomic operation answers.
fn found(outcome: Result<Reply, RawError>) -> Result<u64, Unanswered> {
    let reply = outcome.map_err(unanswered)?;
    let before = <[u8; 8]>::try_from(reply.args()).map_err(|_| CallError::from(Failure::Arguments))?;
    Ok(u64::from_le_bytes(before))
}

/// What copies the bytes of a reply, of which there have to be so many: the other side lies.
fn copies(reply: &Reply, len: usize) -> Result<impl Fn(usize, &mut [u8]), Unanswered> {
    let payload = reply.payload();
    let has_come = len == 0 || matches!(payload, Payload::Landed(_) | Payload::Buffer(_));
    if reply.payload_len() != len || !has_come {
        return Err(CallError::from(Failure::TooLong).into());
    }
    Ok(move |at: usize, into: &mut [u8]| match payload {
        Payload::Landed(landed) => landed.read_at(at, into),
        Payload::Buffer(bytes) => into.copy_from_slice(&bytes[at..at + into.len()]),
        _ => {}
    })
}

fn len_of(runs: &[Extent]) -> usize {
    runs.iter().map(|run| run.len as usize).sum()
}

/// The bytes of a slot of a region of this side.
const fn in_slot(slot: u32, bytes: u32) -> Range<usize> {
    let start = slot as usize * bytes as usize;
    start..start + bytes as usize
}
