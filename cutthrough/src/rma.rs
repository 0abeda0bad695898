//! Put, get and atomics on memory that another process has registered, and pages by the batch: one call moves any
//! number of them between slots of two pools.
//!
//! The owner makes a [`Region`] and registers it with its [`Owner`]; the [`Key`] that it gets is what others name it
//! by. Everything is done by handlers of the owner's node, so the owner has to poll, and each operation on a region
//! happens as a whole: no other one sees half of it, unless it is longer than a batch.
//!
//! Who has a node to itself uses a [`Remote`]; threads and tasks that share a [`Client`](crate::rpc::Client), a
//! [`SharedRemote`].
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

mod batches;
mod extents;
mod operations;
mod remote;
mod shared;
mod waiting;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use cutthrough_node::entropy;
use rustix::io::Errno;

pub use extents::Extent;
pub use remote::{MoveError, Remote};
pub use shared::SharedRemote;

use crate::am::{Args, Failure, Node, RESERVED, Request};
use crate::{MapError, PrivateMemory};
use operations::{LOCKED, NO_REGION, OUTSIDE};
use waiting::{Queue, Waiting};

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
    /// What peers have asked for meanwhile.
    queue: Queue,
    len: u64,
    slot: u32,
    /// A bit for each slot.
    valid: Box<[AtomicU64]>,
    /// How many threads sleep until one is set, and what they sleep on.
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    validated: Condvar,
}

type Bytes<'r> = MutexGuard<'r, PrivateMemory>;

/// The bytes of a [`Region`], which nobody else has meanwhile. When this is dropped, what peers have asked of the
/// region meanwhile is done first, by the thread that drops it.
///
/// It is the bytes alone: a region stays as long as it was made.
///
/// ```compile_fail,E0599
/// let region = cutthrough::rma::Region::new(4096, 4096);
/// region.lock().grow(8192).unwrap();
/// ```
///
/// ```compile_fail,E0277
/// let region = cutthrough::rma::Region::new(4096, 4096);
/// let bytes = std::mem::take(&mut *region.lock());
/// ```
#[derive(Debug)]
pub struct Locked<'r> {
    region: &'r Region,
    /// There until this is dropped.
    bytes: Option<Bytes<'r>>,
}

impl<'r> Locked<'r> {
    fn new(region: &'r Region, bytes: Bytes<'r>) -> Self {
        region.inside.holder.store(this_thread(), Ordering::Relaxed);
        Self { region, bytes: Some(bytes) }
    }
}

impl Deref for Locked<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.as_ref().expect("it is not dropped")
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut().expect("it is not dropped")
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let Some(bytes) = self.bytes.take() else { return };
        self.region.inside.holder.store(0, Ordering::Relaxed);
        self.region.inside.queue.leave(bytes, |waiting, bytes| waiting.serve(self.region, bytes));
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
    /// If `slot` is 0, or if there is no memory for so many bytes: [`Region::try_new`] says so instead.
    #[must_use]
    pub fn new(bytes: usize, slot: u32) -> Self {
        Self::try_new(bytes, slot).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same, where there may be no memory for so many bytes.
    ///
    /// # Errors
    /// [`MapError::Map`].
    ///
    /// # Panics
    /// If `slot` is 0.
    pub fn try_new(bytes: usize, slot: u32) -> Result<Self, MapError> {
        assert!(slot > 0, "a slot has at least one byte");
        let zeros = PrivateMemory::zeroed(bytes)?;
        let words = bytes.div_ceil(slot as usize).div_ceil(64);
        let mut valid = Vec::new();
        let failed = |_| MapError::Map { bytes: bytes as u64, errno: Errno::NOMEM };
        valid.try_reserve_exact(words).map_err(failed)?;
        valid.resize_with(words, AtomicU64::default);
        let valid = valid.into_boxed_slice();
        let inside = Inside {
            bytes: Mutex::new(zeros),
            holder: AtomicUsize::new(0),
            queue: Queue::default(),
            len: bytes as u64,
            slot,
            valid,
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::default(),
            validated: Condvar::new(),
        };
        Ok(Self { inside: Arc::new(inside) })
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

    /// The bytes, for as long as this is kept: no peer reads or writes them meanwhile. What peers ask of them waits
    /// until this is dropped, and is done then by the thread that drops it; a node whose [`Owner`] has the region goes
    /// on. Where its own thread has them, what is asked of the region while it polls is refused: let go of them, or
    /// copy them, before an operation that waits.
    ///
    /// # Panics
    /// If this thread has them already: it would wait for ever.
    pub fn lock(&self) -> Locked<'_> {
        assert!(!self.is_locked_here(), "this thread has locked the region already, and would wait for ever");
        Locked::new(self, self.inside.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`Region::lock`], if another thread that has them lets go of them within this time.
    fn lock_within(&self, time: Duration) -> Option<Locked<'_>> {
        assert!(!self.is_locked_here(), "this thread has locked the region already, and would wait for ever");
        self.try_lock().or_else(|| self.inside.queue.wait(self, time))
    }

    /// Before anything is sent: whoever has a region locked would wait for himself.
    fn assert_free(&self) {
        assert!(
            !self.is_locked_here(),
            "this thread has locked the region whose pages it moves, and would wait for ever"
        );
    }

    /// The bytes, if nobody has them.
    fn try_lock(&self) -> Option<Locked<'_>> {
        match self.inside.bytes.try_lock() {
            Ok(bytes) => Some(Locked::new(self, bytes)),
            Err(TryLockError::Poisoned(bytes)) => Some(Locked::new(self, bytes.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
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
        // SYNC POINT validated: in one order with `validate`, for `wait_until_valid`.
        word.is_some_and(|word| word.load(Ordering::SeqCst) >> (slot % 64) & 1 == 1)
    }

    /// Sleeps until a slot is [valid](Self::is_valid), on any thread but that which drives the node: whether it was
    /// found so in time, whatever has become of it since. False at once for a slot that there is not.
    #[must_use]
    pub fn wait_until_valid(&self, slot: u32, timeout: Duration) -> bool {
        if u64::from(slot) * u64::from(self.inside.slot) >= self.inside.len {
            return false;
        }
        if self.is_valid(slot) {
            return true;
        }
        // SYNC POINT validated: whoever sets the bit either sees this, or did so before the look below.
        self.inside.sleepers.fetch_add(1, Ordering::SeqCst);
        let sleep = self.inside.sleep.lock().unwrap_or_else(PoisonError::into_inner);
        let slept = self.inside.validated.wait_timeout_while(sleep, timeout, |()| !self.is_valid(slot));
        // Not looked at again: it may have been made invalid since, for the next page.
        let (sleep, slept) = slept.unwrap_or_else(PoisonError::into_inner);
        drop(sleep);
        self.inside.sleepers.fetch_sub(1, Ordering::Relaxed);
        !slept.timed_out()
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
        let Some(word) = self.inside.valid.get(slot as usize / 64) else { return };
        // SYNC POINT validated.
        word.fetch_or(1 << (slot % 64), Ordering::SeqCst);
        if self.inside.sleepers.load(Ordering::SeqCst) > 0 {
            // Who has looked in vain sleeps before this is had.
            drop(self.inside.sleep.lock().unwrap_or_else(PoisonError::into_inner));
            self.inside.validated.notify_all();
        }
    }
}

/// The regions that a node's peers may use.
#[derive(Debug, Clone)]
pub struct Owner {
    regions: Arc<Mutex<HashMap<u64, Region>>>,
    /// Those for whose bytes something waits, or has waited.
    awaited: Arc<Mutex<Vec<Weak<Inside>>>>,
}

impl Owner {
    /// Lets peers of this node read and write what is registered from now on. A node has one owner: whoever asks for it
    /// again gets the same.
    #[must_use]
    pub fn new(node: &mut Node) -> Self {
        if let Some(owner) = &node.owner {
            return owner.clone();
        }
        let owner = Self { regions: Arc::default(), awaited: Arc::default() };
        let mut on = |handler, words, most: fn(usize) -> usize, run: fn(Request<'_>, Locked<'_>)| {
            let (asked, its) = (owner.clone(), owner.clone());
            let admits = move |args: &[u8], len| asked.admits(args, len, most);
            let run = move |request: Request<'_>| its.on(handler, request, run);
            node.register_own(handler, Args::Words(words), Box::new(admits), run);
        };
        on(PUT, 4, |region| region, operations::put);
        on(GET, 5, |_| 0, operations::get);
        on(ATOMIC, 9, |_| 0, operations::atomic);
        // A list of runs comes before their bytes.
        on(SCATTER, 4, |region| region.saturating_add(GATHER_MAX), operations::scatter);
        on(GATHER, 3, |_| GATHER_MAX, operations::gather);
        on(AWAIT, 3, |_| GATHER_MAX, operations::await_pages);
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

    /// Whether the key in these arguments is still that of this region.
    fn has(&self, args: &[u8], region: &Region) -> bool {
        self.region(args).is_some_and(|its| Arc::ptr_eq(&its.inside, &region.inside))
    }

    /// Has a request done that names a region: by `run`, if its bytes are free. Else it waits for them.
    fn on(&self, handler: u16, request: Request<'_>, run: fn(Request<'_>, Locked<'_>)) {
        let Some(region) = self.region(request.args()) else { return request.refuse(NO_REGION) };
        if region.is_locked_here() {
            return request.refuse(LOCKED);
        }
        let queue = &region.inside.queue;
        match queue.enter(&region) {
            // It may have been taken back meanwhile.
            Some(_) if !self.has(request.args(), &region) => request.refuse(NO_REGION),
            Some(bytes) => run(request, bytes),
            None => {
                if let Some(waiting) = Waiting::new(self, handler, request, queue) {
                    queue.join(&region, waiting);
                    self.note_awaited(&region);
                }
            }
        }
    }

    /// Something waits for the region's bytes.
    fn note_awaited(&self, region: &Region) {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        if !awaited.iter().any(|its| std::ptr::eq(its.as_ptr(), Arc::as_ptr(&region.inside))) {
            awaited.retain(|its| its.strong_count() > 0);
            awaited.push(Arc::downgrade(&region.inside));
        }
    }

    /// Throws away what waits for the bytes of any region, and for which nobody waits any more.
    pub(crate) fn throw_away(&self) {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        awaited.retain(|its| its.upgrade().is_some_and(|inside| inside.queue.throw_away()));
    }
}
