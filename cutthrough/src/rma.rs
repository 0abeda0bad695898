//! Put, get and atomics on memory that another process has registered, and pages by the batch: one call moves any
//! number of them between slots of two pools.
//!
//! The owner makes a [`Region`] and registers it with its [`Owner`]; the [`Key`] that it gets is what others name it
//! by. Everything is done by handlers of the owner's node, so the owner has to poll, and each operation on a region
//! happens as a whole: no other one sees half of it, unless it is longer than a batch.
//!
//! ```
//! use std::time::Duration;
//! use cutthrough::am::{Node, Settings};
//! use cutthrough::rma::{Key, Owner, Region, Remote};
//! use cutthrough::{Config, Endpoint};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let address = format!("shm:rma-doc-{}", std::process::id());
//! let mut node = Node::new(Endpoint::open(Config::default())?, Settings::default());
//! let owner = Owner::new(&mut node);
//! let counters = Region::new(4096, 4096);
//! let key: Key = owner.register(&counters);
//! node.listen(&address)?;
//! let server = std::thread::spawn(move || while node.wait(Some(Duration::from_millis(300))).is_ok() {});
//!
//! let mut node = Node::new(Endpoint::open(Config::default())?, Settings::default());
//! let channel = node.connect(&address, Duration::from_secs(1))?;
//! let mut remote = Remote::new(&mut node, channel, key, Duration::from_secs(1));
//! remote.put(16, b"hello")?;
//! assert_eq!(remote.fetch_add(8, 5)?, 0);
//! assert_eq!(remote.fetch_add(8, 5)?, 5);
//! let mut back = [0; 5];
//! remote.get(16, &mut back)?;
//! assert_eq!(&back, b"hello");
//! # drop(node);
//! # server.join().ok();
//! # Ok(())
//! # }
//! ```

mod extents;
mod remote;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cutthrough_node::entropy;
use cutthrough_node::incoming::Payload;

pub use extents::Extent;
pub use remote::{MoveError, Remote};

use crate::PrivateMemory;
use crate::am::{Args, Body, Failure, Node, RESERVED, Request};
use extents::{EXTENT_BYTES, total};

/// Writes one run of bytes, straight out of the payload.
const PUT: u16 = RESERVED;
/// Reads one run of bytes.
const GET: u16 = RESERVED + 1;
/// An operation on a cell of 8 bytes.
const ATOMIC: u16 = RESERVED + 2;
/// Writes runs of bytes that the payload lists before their bytes.
const SCATTER: u16 = RESERVED + 3;
/// Reads runs of bytes that the payload lists.
const GATHER: u16 = RESERVED + 4;
/// Says of the slots under the runs that the payload lists that nothing of use lies there until their pages come.
const AWAIT: u16 = RESERVED + 5;

/// Most bytes that are read for one request, which the owner may have to keep: eight times the largest page.
const GATHER_MAX: usize = 16 << 20;

/// What a peer names a region by: a random number, which only those know who were told. It is looked at before a byte
/// moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(pub u64);

/// An atomic operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Atomic {
    Add = 0,
    Swap = 1,
    CompareSwap = 2,
}

/// Memory that others may read and write, in slots of equal size. Clones are the same memory.
#[derive(Debug, Clone)]
pub struct Region {
    inside: Arc<Inside>,
}

#[derive(Debug)]
struct Inside {
    bytes: Mutex<PrivateMemory>,
    /// The thread that has them, or 0.
    holder: AtomicUsize,
    len: u64,
    slot: u32,
    /// A bit for each slot.
    valid: Box<[AtomicU64]>,
}

/// The bytes of a [`Region`], which nobody else has meanwhile.
#[derive(Debug)]
pub struct Locked<'r> {
    bytes: MutexGuard<'r, PrivateMemory>,
    holder: &'r AtomicUsize,
}

impl Deref for Locked<'_> {
    type Target = PrivateMemory;

    fn deref(&self) -> &PrivateMemory {
        &self.bytes
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut PrivateMemory {
        &mut self.bytes
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.holder.store(0, Ordering::Relaxed);
    }
}

/// A number that this thread alone has, and not 0.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

impl Region {
    /// `bytes` bytes of zeros, in slots of `slot` bytes, none of them valid.
    ///
    /// # Panics
    /// If `slot` is 0, or if there is no memory for so many bytes.
    #[must_use]
    pub fn new(bytes: usize, slot: u32) -> Self {
        assert!(slot > 0, "a slot has at least one byte");
        let slots = bytes.div_ceil(slot as usize);
        let valid = (0..slots.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let zeros = PrivateMemory::zeroed(bytes).unwrap_or_else(|error| panic!("{error}"));
        let inside = Inside { bytes: Mutex::new(zeros), holder: AtomicUsize::new(0), len: bytes as u64, slot, valid };
        Self { inside: Arc::new(inside) }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.inside.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inside.len == 0
    }

    /// Bytes of a slot.
    #[must_use]
    pub fn slot_bytes(&self) -> u32 {
        self.inside.slot
    }

    /// The bytes, for as long as this is kept: no peer reads or writes them meanwhile. A node whose [`Owner`] has the
    /// region serves nobody while it waits for them, where somebody asks for them. Where its own thread has them, what
    /// is asked of the region while it polls is refused: let go of them, or copy them, before an operation that waits.
    ///
    /// # Panics
    /// If this thread has them already: it would wait for ever.
    pub fn lock(&self) -> Locked<'_> {
        assert!(!self.is_locked_here(), "this thread has locked the region already, and would wait for ever");
        let bytes = self.inside.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        self.inside.holder.store(this_thread(), Ordering::Relaxed);
        Locked { bytes, holder: &self.inside.holder }
    }

    /// Whether this thread has the bytes. Of others it is not known.
    fn is_locked_here(&self) -> bool {
        self.inside.holder.load(Ordering::Relaxed) == this_thread()
    }

    /// Whether a whole page has arrived in this slot since it was last [invalidated](Self::invalidate), or a batch of
    /// pages that has one for it began. May be asked on any thread while pages arrive.
    #[must_use]
    pub fn is_valid(&self, slot: u32) -> bool {
        let word = self.inside.valid.get(slot as usize / 64);
        word.is_some_and(|word| word.load(Ordering::Acquire) >> (slot % 64) & 1 == 1)
    }

    /// Slots that are valid.
    #[must_use]
    pub fn count_valid(&self) -> u32 {
        self.inside.valid.iter().map(|word| word.load(Ordering::Acquire).count_ones()).sum()
    }

    /// Says that a slot holds nothing of use.
    pub fn invalidate(&self, slot: u32) {
        if let Some(word) = self.inside.valid.get(slot as usize / 64) {
            word.fetch_and(!(1 << (slot % 64)), Ordering::AcqRel);
        }
    }

    /// Says that a slot holds what it shall hold.
    pub fn validate(&self, slot: u32) {
        if let Some(word) = self.inside.valid.get(slot as usize / 64) {
            word.fetch_or(1 << (slot % 64), Ordering::AcqRel);
        }
    }

    /// The bytes of a run, if it lies in the region.
    fn run(bytes: &mut [u8], extent: Extent) -> Option<&mut [u8]> {
        let start = usize::try_from(extent.offset).ok()?;
        bytes.get_mut(start..start.checked_add(extent.len as usize)?)
    }

    /// The slots that a run covers from end to end; the region's last one may be shorter than the others.
    fn slots_of(&self, extent: Extent) -> Range<u32> {
        let (slot, len) = (u64::from(self.inside.slot), self.inside.len);
        let end = extent.offset + u64::from(extent.len);
        let [first, end] = [extent.offset.div_ceil(slot), if end == len { len.div_ceil(slot) } else { end / slot }];
        let [first, end] = [first, end].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        first..end
    }

    /// The slots of which a run covers something; none, if it does not lie in the region.
    fn slots_under(&self, extent: Extent) -> Range<u32> {
        let slot = u64::from(self.inside.slot);
        let end = extent.offset.checked_add(u64::from(extent.len)).filter(|end| *end <= self.inside.len);
        let bounds = end.map_or([0, 0], |end| [extent.offset / slot, end.div_ceil(slot)]);
        let [first, end] = bounds.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        first..end
    }
}

/// The regions that a node's peers may use.
#[derive(Debug, Clone)]
pub struct Owner {
    regions: Arc<Mutex<HashMap<u64, Region>>>,
}

impl Owner {
    /// Lets peers of this node read and write what is registered from now on. A node has one owner: whoever asks for it
    /// again gets the same.
    #[must_use]
    pub fn new(node: &mut Node) -> Self {
        if let Some(owner) = &node.owner {
            return owner.clone();
        }
        let owner = Self { regions: Arc::default() };
        let mut on = |handler, words, most: fn(usize) -> usize, run: fn(&Self, Request<'_>)| {
            let (asked, its) = (owner.clone(), owner.clone());
            let admits = move |args: &[u8], len| asked.admits(args, len, most);
            node.register_own(handler, Args::Words(words), Box::new(admits), move |request| run(&its, request));
        };
        on(PUT, 4, |region| region, Self::put);
        on(GET, 5, |_| 0, Self::get);
        on(ATOMIC, 9, |_| 0, Self::atomic);
        // A list of runs comes before their bytes.
        on(SCATTER, 4, |region| region.saturating_add(GATHER_MAX), Self::scatter);
        on(GATHER, 3, |_| GATHER_MAX, Self::gather);
        on(AWAIT, 3, |_| GATHER_MAX, Self::await_pages);
        node.owner = Some(owner.clone());
        owner
    }

    /// Registers a region: its key, which nobody can guess.
    ///
    /// # Panics
    /// If the system gives no random number, as it did when the endpoint was opened.
    #[must_use]
    pub fn register(&self, region: &Region) -> Key {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Entry::Vacant(place) = regions.entry(entropy::number().expect("a random number")) {
                let key = Key(*place.key());
                place.insert(region.clone());
                return key;
            }
        }
    }

    /// Takes a registration back: operations that name its key are refused from now on, also those that wait for the
    /// region's bytes. One that has them already goes on: who takes [`Region::lock`] behind this has waited for it.
    pub fn unregister(&self, key: Key) {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner).remove(&key.0);
    }

    /// Whether a request is for a region, and brings no more than `most` bytes for one of so many: asked before any of
    /// them has come.
    fn admits(&self, args: &[u8], len: usize, most: fn(usize) -> usize) -> Result<(), (Failure, &'static [u8])> {
        let region = self.region(args).ok_or((Failure::Refused, NO_REGION))?;
        let most = most(usize::try_from(region.len()).unwrap_or(usize::MAX));
        if len > most { Err((Failure::Refused, OUTSIDE)) } else { Ok(()) }
    }

    fn region(&self, args: &[u8]) -> Option<Region> {
        let regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        let key = args.first_chunk().map(|key| u64::from_le_bytes(*key))?;
        regions.get(&key).cloned()
    }

    /// The bytes of the region that a request has found, unless its registration was taken back while they were waited
    /// for.
    fn enter<'r>(&self, request: &Request<'_>, region: &'r Region) -> Result<Locked<'r>, &'static [u8]> {
        if region.is_locked_here() {
            return Err(LOCKED);
        }
        let bytes = region.lock();
        let its = self.region(request.args()).is_some_and(|its| Arc::ptr_eq(&its.inside, &region.inside));
        if its { Ok(bytes) } else { Err(NO_REGION) }
    }

    fn put(&self, mut request: Request<'_>) {
        let Some(region) = self.region(request.args()) else { return request.refuse(NO_REGION) };
        let Ok(len) = u32::try_from(request.payload_len()) else { return request.refuse(OUTSIDE) };
        let extent = Extent { offset: offset(&request, 2), len };
        let mut bytes = match self.enter(&request, &region) {
            Ok(bytes) => bytes,
            Err(why) => return request.refuse(why),
        };
        let Some(place) = Region::run(&mut bytes, extent) else { return request.refuse(OUTSIDE) };
        if len > 0 && request.read(place).is_err() {
            request.fail(Failure::Abandoned);
        }
    }

    fn get(&self, mut request: Request<'_>) {
        let Some(region) = self.region(request.args()) else { return request.refuse(NO_REGION) };
        let extent = Extent { offset: offset(&request, 2), len: request.word(4) };
        let mut bytes = match self.enter(&request, &region) {
            Ok(bytes) => bytes,
            Err(why) => return request.refuse(why),
        };
        let place = Region::run(&mut bytes, extent).filter(|place| place.len() <= GATHER_MAX);
        let Some(place) = place else { return request.refuse(OUTSIDE) };
        if request.place().is_none()
            && let Ok(mut page) = request.page(place.len())
        {
            page.copy_from_slice(place);
            return request.reply_with(&[], Body::Page(page));
        }
        request.reply_with(&[], Body::Copy(place));
    }

    fn atomic(&self, request: Request<'_>) {
        let Some(region) = self.region(request.args()) else { return request.refuse(NO_REGION) };
        let (at, operand, expected) = (offset(&request, 3), offset(&request, 5), offset(&request, 7));
        let operation = request.word(2);
        let mut bytes = match self.enter(&request, &region) {
            Ok(bytes) => bytes,
            Err(why) => return request.refuse(why),
        };
        let cell = Region::run(&mut bytes, Extent { offset: at, len: 8 }).filter(|_| at.is_multiple_of(8));
        let Some(cell) = cell.and_then(|cell| cell.first_chunk_mut::<8>()) else { return request.refuse(OUTSIDE) };
        let before = u64::from_le_bytes(*cell);
        let after = match operation {
            0 => before.wrapping_add(operand),
            1 => operand,
            2 if before == expected => operand,
            2 => before,
            _ => return request.fail(Failure::Arguments),
        };
        *cell = after.to_le_bytes();
        drop(bytes);
        request.reply_bytes(&before.to_le_bytes());
    }

    /// The list of runs at the start of a payload, and where their bytes are found.
    fn list(request: &mut Request<'_>, count: usize, scratch: &mut Vec<u8>) -> Option<(Vec<Extent>, Payload)> {
        let head = count.checked_mul(EXTENT_BYTES)?;
        let len = request.payload_len();
        if head > len {
            return None;
        }
        match request.take_payload() {
            Payload::Landed(landed) => {
                scratch.resize(head, 0);
                landed.read_at(0, scratch);
                Some((extents::decode(scratch), Payload::Landed(landed)))
            }
            Payload::Buffer(bytes) => Some((extents::decode(&bytes[..head]), Payload::Buffer(bytes))),
            _ => None,
        }
    }

    fn scatter(&self, mut request: Request<'_>) {
        let Some(region) = self.region(request.args()) else { return request.refuse(NO_REGION) };
        let (count, pages) = (request.word(2) as usize, request.word(3) == 1);
        let len = request.payload_len();
        let mut scratch = Vec::new();
        let Some((list, payload)) = Self::list(&mut request, count, &mut scratch) else {
            return request.fail(Failure::Arguments);
        };
        let mut bytes = match self.enter(&request, &region) {
            Ok(bytes) => bytes,
            Err(why) => return request.refuse(why),
        };
        // All is looked at before anything is written.
        let inside = list.iter().all(|extent| Region::run(&mut bytes, *extent).is_some());
        if !inside || total(&list).and_then(|bytes| bytes.checked_add(count * EXTENT_BYTES)) != Some(len) {
            return request.refuse(OUTSIDE);
        }
        let mut at = count * EXTENT_BYTES;
        for extent in &list {
            let Some(place) = Region::run(&mut bytes, *extent) else { continue };
            match &payload {
                Payload::Landed(landed) => landed.read_at(at, place),
                Payload::Buffer(from) => place.copy_from_slice(&from[at..at + place.len()]),
                _ => {}
            }
            at += place.len();
            if pages {
                region.slots_of(*extent).for_each(|slot| region.validate(slot));
            }
        }
    }

    fn gather(&self, mut request: Request<'_>) {
        let Some(region) = self.region(request.args()) else { return request.refuse(NO_REGION) };
        let count = request.word(2) as usize;
        let mut scratch = Vec::new();
        let Some((list, _)) = Self::list(&mut request, count, &mut scratch) else {
            return request.fail(Failure::Arguments);
        };
        let mut bytes = match self.enter(&request, &region) {
            Ok(bytes) => bytes,
            Err(why) => return request.refuse(why),
        };
        let inside = list.iter().all(|extent| Region::run(&mut bytes, *extent).is_some());
        // What is asked for may be more than was ever registered, by runs that lie on top of each other.
        let Some(len) = total(&list).filter(|len| inside && *len <= GATHER_MAX) else {
            return request.refuse(OUTSIDE);
        };
        let mut fill = |into: &mut [u8]| {
            let mut at = 0;
            for extent in &list {
                if let Some(place) = Region::run(&mut bytes, *extent) {
                    into[at..at + place.len()].copy_from_slice(place);
                    at += place.len();
                }
            }
        };
        match request.page(len) {
            Ok(mut page) => {
                fill(&mut page);
                request.reply_with(&[], Body::Page(page));
            }
            // All pages are out: the reply waits for its turn in memory of its own.
            Err(_) => {
                let mut copy = vec![0; len];
                fill(&mut copy);
                request.reply_with(&[], Body::Copy(&copy));
            }
        }
    }
}

impl Owner {
    /// Pages are about to come: what lies in their slots is not what shall lie there. A slot outside of the region is
    /// passed over, for its page will be refused; and one that is named often is looked at once.
    fn await_pages(&self, mut request: Request<'_>) {
        let Some(region) = self.region(request.args()) else { return request.refuse(NO_REGION) };
        let (count, mut scratch) = (request.word(2) as usize, Vec::new());
        let Some((list, _)) = Self::list(&mut request, count, &mut scratch) else {
            return request.fail(Failure::Arguments);
        };
        let mut under: Vec<_> = list.iter().map(|extent| region.slots_under(*extent)).collect();
        under.sort_unstable_by_key(|slots| slots.start);
        let mut next = 0;
        for slots in under {
            (slots.start.max(next)..slots.end).for_each(|slot| region.invalidate(slot));
            next = next.max(slots.end);
        }
    }
}

const NO_REGION: &[u8] = b"no region has that key";
const LOCKED: &[u8] = b"the owner polls while it has locked the region";
const OUTSIDE: &[u8] = b"outside of the region, not aligned, or too much";

/// Two words of the arguments.
fn offset(request: &Request<'_>, word: usize) -> u64 {
    u64::from(request.word(word)) | u64::from(request.word(word + 1)) << 32
}
