//! Pages by ownership: a page to be filled and sent, and pages that have arrived.
//!
//! A value of these types *is* the right to its pages. Dropping it gives the right back, by way of a [`Shelf`] that the
//! channel clears when it is next used: pages may be dropped on another thread, and after their channel is gone.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::copy::Copying;
use crate::landing::LandingMemory;
use crate::map::{MapError, Mapping, Writers};
use crate::pool::Pool;
pub use crate::shelf::{Filled, Release, Shelf, Waker};

/// Longest payload that is asked for before anybody reads it, bytes. A longer one takes so long to be read that it is
/// no sooner for that, and who only hands it on need not wait for it.
const SHORT: usize = 1024;

/// Handles of a ground that are kept, at most: for twice as many payloads as come before the ones before them are taken
/// apart.
const SPARES: usize = 32;

/// Where pages lie, and where the right to them is given back: shared by all that is lent from there.
#[derive(Debug)]
pub struct Ground {
    mapping: Arc<Mapping>,
    start: u64,
    page_bytes: u32,
    shelf: Arc<Shelf>,
    /// Whether only this process writes there, and nobody what was handed over there: see [`Pages::handed`].
    sole: bool,
}

impl Ground {
    /// Pages of `page_bytes` bytes from `start` on; what is dropped goes to `shelf`.
    #[must_use]
    pub fn new((mapping, start): (Arc<Mapping>, u64), page_bytes: u32, shelf: Arc<Shelf>) -> Arc<Self> {
        Arc::new(Self { mapping, start, page_bytes, shelf, sole: false })
    }

    /// The same pages, of which what is dropped goes to another shelf.
    #[must_use]
    pub fn share(&self, shelf: Arc<Shelf>) -> Arc<Self> {
        Self::new((Arc::clone(&self.mapping), self.start), self.page_bytes, shelf)
    }

    /// Asks for the lines of a payload of `bytes` bytes that begins on this page to be read soon, if it is short.
    ///
    /// # Panics
    /// If they do not lie within the memory.
    #[inline]
    pub fn prefetch_read(&self, page: u32, bytes: usize) {
        if bytes <= SHORT {
            self.mapping.prefetch_read(self.offset(page), bytes);
        }
    }

    /// Bytes of a page.
    #[must_use]
    pub const fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// Offset of a page in the mapping.
    fn offset(&self, page: u32) -> u64 {
        self.start + u64::from(page) * u64::from(self.page_bytes)
    }

    fn place(&self, page: u32) -> Place {
        Place { mapping: Arc::clone(&self.mapping), offset: self.offset(page) }
    }
}

/// Where a page or a payload begins. Nothing can be written by way of it: somebody may have the page as a slice.
///
/// ```compile_fail
/// fn write(page: &cutthrough_segment::page::Page) {
///     let (memory, at) = page.place();
///     memory.copy_in(at, b"under a slice", Default::default());
/// }
/// ```
#[derive(Debug)]
pub struct Place {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) offset: u64,
}

impl Place {
    /// In bytes from the beginning of the memory in which it lies.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }
}

/// A ground, and more handles of it that nobody holds at present. To make a handle and to drop it takes a locked
/// instruction each, which waits until the stores before it are seen: longer than a whole message, where these are a
/// message to another core.
#[derive(Debug)]
pub struct Handles {
    ground: Arc<Ground>,
    spares: Vec<Arc<Ground>>,
}

impl Handles {
    /// Handles of this ground.
    #[must_use]
    pub const fn new(ground: Arc<Ground>) -> Self {
        Self { ground, spares: Vec::new() }
    }

    /// A handle.
    #[inline]
    #[must_use]
    pub fn take(&mut self) -> Arc<Ground> {
        self.spares.pop().unwrap_or_else(|| Arc::clone(&self.ground))
    }

    /// Takes a handle back, if it is one of this ground.
    #[inline]
    pub fn give(&mut self, handle: Arc<Ground>) {
        if self.spares.len() < SPARES && Arc::ptr_eq(&handle, &self.ground) {
            self.spares.push(handle);
        }
    }
}

/// The pool of pages that one side of a channel sends by reference. Only this process can write them.
///
/// The right to pages is a [`Page`] in the hands of a user. On its way through tables and over the [`Shelf`] it is
/// numbers, which no type can keep from being used twice: [`Pages::give`] and [`Landed::new`] believe what they are
/// told. Those who call them hold to this: a run is given back once, after its page was taken apart or dropped, and
/// nobody has it as a payload while it is a page. On a ground of [`Pages::handed`] a payload is a slice, too.
#[derive(Debug)]
pub struct Pages {
    pool: Pool,
    handles: Handles,
    /// Whether it made its memory: then nobody else has it, the kernel included.
    made: bool,
}

impl Pages {
    /// The pool of `pages` pages on a ground.
    ///
    /// # Safety
    /// No other process can write that memory, but for one that is trusted not to (the kernel, where a ring is told to
    /// write elsewhere). As long as the pool or a page of it lives, nothing in this process reaches the pages but by
    /// them: no other pool is made of this memory, nothing is copied to it, nothing has it as slots, words or frames.
    #[must_use]
    pub unsafe fn new(ground: Arc<Ground>, pages: u32) -> Self {
        Self { pool: Pool::new(pages), handles: Handles::new(ground), made: false }
    }

    /// A pool of `pages` pages in memory of its own, and the ground that they lie on, for payloads that are handed over
    /// there; what is dropped goes to `shelf`. The name is as in [`Mapping::create`].
    ///
    /// # Errors
    /// As of [`Mapping::create`].
    pub fn create(name: &str, pages: u32, page_bytes: u32, shelf: Arc<Shelf>) -> Result<(Self, Arc<Ground>), MapError> {
        let bytes = u64::from(pages) * u64::from(page_bytes);
        let (mapping, _file) = Mapping::create(name, bytes, u64::from(page_bytes), Writers::Both)?;
        let ground = Ground::new((mapping, 0), page_bytes, shelf);
        // SAFETY: nobody has the file, and nobody else the mapping; by the ground it can only be read.
        let pool = unsafe { Self::new(Arc::clone(&ground), pages) };
        Ok((Self { made: true, ..pool }, ground))
    }

    /// The ground of these pages for payloads that are handed over there; what is dropped goes to `shelf`. If the pool
    /// has made its memory, nobody writes such a payload, and it can be sent on from where it lies ([`Landed::piece`]).
    #[must_use]
    pub fn handed(&self, shelf: Arc<Shelf>) -> Arc<Ground> {
        let (Ground { mapping, start, page_bytes, .. }, sole) = (&*self.handles.ground, self.made);
        Arc::new(Ground { mapping: Arc::clone(mapping), start: *start, page_bytes: *page_bytes, shelf, sole })
    }

    /// A run of pages for `bytes` bytes, to be filled. What it holds at first is left over from earlier use.
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Option<Page> {
        let count = u32::try_from(bytes.max(1).div_ceil(self.handles.ground.page_bytes as usize)).ok()?;
        let first = self.pool.take(count)?;
        Some(Page { ground: Some(self.handles.take()), frozen: None, bytes, first, count })
    }

    /// The run of a page, which is the caller's to give back now; keeps its handle for the next one. A view has none.
    #[inline(always)]
    pub fn part(&mut self, page: &mut Page) -> (u32, u32) {
        if let Some(handle) = page.ground.take() {
            self.handles.give(handle);
        }
        (page.first, page.count)
    }

    /// Takes a run back, whose page is no more: see [`Pages`].
    ///
    /// # Panics
    /// If it was not taken.
    pub fn give(&mut self, first: u32, count: u32) {
        self.pool.give(first, count);
    }

    /// Pages that are out.
    #[must_use]
    pub const fn lent(&self) -> u32 {
        self.pool.lent()
    }
}

/// Pages of our own, to be written in place and then sent: contiguous memory. Dropped unsent, they go back to the pool.
#[derive(Debug)]
pub struct Page {
    /// Taken out when the run becomes somebody else's to give back.
    ground: Option<Arc<Ground>>,
    /// Of a view: the page that it is one of, whose the run is.
    frozen: Option<Arc<Self>>,
    bytes: usize,
    first: u32,
    count: u32,
}

impl Page {
    /// Whether this page belongs to the pool with this shelf: pages go only through the channel they were taken from.
    #[doc(hidden)]
    #[must_use]
    pub fn belongs_to(&self, shelf: &Arc<Shelf>) -> bool {
        self.ground.as_ref().is_some_and(|ground| Arc::ptr_eq(&ground.shelf, shelf))
    }

    /// Sends fewer bytes than were asked for.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }

    /// Keeps what was written: it can be read and sent as often as one likes, and is not written any more.
    #[must_use]
    pub fn freeze(self) -> Frozen {
        Frozen(Arc::new(self))
    }

    /// Whether this is a view of a frozen page ([`Frozen::view`]), which somebody else may send, too.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub const fn is_view(&self) -> bool {
        self.frozen.is_some()
    }

    /// Whether all of the pages' bytes are in use.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.ground.as_ref().is_some_and(|ground| self.bytes == self.count as usize * ground.page_bytes as usize)
    }

    /// Where the page lies.
    ///
    /// # Panics
    /// Never: a page has its ground until it is taken apart.
    #[doc(hidden)]
    #[must_use]
    pub fn place(&self) -> Place {
        self.ground.as_ref().expect("a page has its ground").place(self.first)
    }

    /// First page and number of pages.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub const fn run(&self) -> (u32, u32) {
        (self.first, self.count)
    }

    /// First page, number of pages and bytes in use; the run is the caller's to give back now.
    #[doc(hidden)]
    #[must_use]
    pub fn into_run(mut self) -> (u32, u32, usize) {
        self.ground = None;
        (self.first, self.count, self.bytes)
    }
}

impl Deref for Page {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let Some(ground) = &self.ground else { return &[] };
        // SAFETY: the pool gave this run to this value alone, or to the page that this is a view of and keeps; nobody
        // else reaches it, see `Pages` and `Pages::new`. Writing takes `&mut self` of what is no view, which nobody has
        // while the slice lives: a page that has views is shared.
        unsafe { ground.mapping.slice(ground.offset(self.first), self.bytes) }
    }
}

impl DerefMut for Page {
    fn deref_mut(&mut self) -> &mut [u8] {
        let Some(ground) = self.ground.as_ref().filter(|_| self.frozen.is_none()) else { return &mut [] };
        // SAFETY: as above, and `&mut self` is exclusive: of a run that has views nobody has it.
        unsafe { ground.mapping.slice_mut(ground.offset(self.first), self.bytes) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.frozen.is_none()
            && let Some(ground) = self.ground.take()
        {
            ground.shelf.put(Release::Page { first: self.first, count: self.count });
        }
    }
}

/// A page that is not written any more ([`Page::freeze`]), and so may be sent as often as one likes, also while others
/// read it still: what is answered again and again is written once. Copies of this value are the same page, which goes
/// back to its pool when the last of them is dropped and nobody reads it any more; or with its channel.
#[derive(Debug, Clone)]
pub struct Frozen(Arc<Page>);

impl Frozen {
    /// The page as what is sent. It can be read; as a slice to be written it is empty.
    #[doc(hidden)]
    #[must_use]
    pub fn view(&self) -> Page {
        let Page { ground, bytes, first, count, .. } = &*self.0;
        Page { ground: ground.clone(), frozen: Some(Arc::clone(&self.0)), bytes: *bytes, first: *first, count: *count }
    }
}

impl Deref for Frozen {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Runs of pages of one payload: one, or a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runs {
    /// First page and number of pages.
    One(u32, u32),
    /// The same, several times.
    Many(Vec<(u32, u32)>),
}

impl Runs {
    /// Each run: first page and number of pages.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let (one, many) = match self {
            Self::One(first, count) => (Some((*first, *count)), [].as_slice()),
            Self::Many(runs) => (None, runs.as_slice()),
        };
        one.into_iter().chain(many.iter().copied())
    }
}

/// What a payload gives back when it is dropped: one thing, or one for each run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Releases {
    /// One.
    One(Release),
    /// Several.
    Many(Vec<Release>),
}

/// A payload that has arrived in pages. Those that came by shared memory both sides see, and the peer may still write
/// there: so it is not had as a slice, but copied out (or looked at through a raw pointer by those who know what that
/// means).
#[derive(Debug)]
pub struct Landed {
    /// Taken out when somebody else gives the pages back.
    ground: Option<Arc<Ground>>,
    runs: Runs,
    bytes: usize,
    release: Releases,
}

impl Landed {
    /// A payload of `bytes` bytes in `runs` of the pages of `ground`, which the caller has checked. None of them is a
    /// page in this process: see [`Pages`].
    #[doc(hidden)]
    #[must_use]
    pub const fn new(ground: Arc<Ground>, runs: Runs, bytes: usize, release: Releases) -> Self {
        Self { ground: Some(ground), runs, bytes, release }
    }

    fn ground(&self) -> &Ground {
        self.ground.as_ref().expect("a payload has its ground until it is taken apart")
    }

    /// Whether its pages go back by way of this shelf.
    #[doc(hidden)]
    #[must_use]
    pub fn belongs_to(&self, shelf: &Arc<Shelf>) -> bool {
        self.ground.as_ref().is_some_and(|ground| Arc::ptr_eq(&ground.shelf, shelf))
    }

    /// What it gives back is the caller's to take care of now, with the handle of the ground on which it lay.
    ///
    /// # Panics
    /// Never: a payload has its ground until it is taken apart.
    #[doc(hidden)]
    #[must_use]
    pub fn part(mut self) -> (Arc<Ground>, Releases) {
        let ground = self.ground.take().expect("a payload has its ground until it is taken apart");
        (ground, std::mem::replace(&mut self.release, Releases::Many(Vec::new())))
    }

    /// Bytes of the payload.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the payload has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Copies `into.len()` bytes out, from `offset` on.
    ///
    /// # Panics
    /// If they reach beyond the payload.
    pub fn read_at(&self, offset: usize, into: &mut [u8]) {
        self.parts(offset, into.len(), |ground, at, done, len| {
            ground.mapping.copy_out(at, &mut into[done..done + len], Copying::Pieces);
        });
    }

    /// The payload, copied out.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        self.read_at(0, &mut bytes);
        bytes
    }

    /// Where the payload begins.
    #[doc(hidden)]
    #[must_use]
    pub fn place(&self) -> Place {
        self.ground().place(self.runs.iter().next().map_or(0, |run| run.0))
    }

    /// Copies `bytes` bytes of the payload, from `start` on, into landing memory, to `offset`.
    ///
    /// # Panics
    /// If they reach beyond the payload, or do not fit there.
    #[doc(hidden)]
    pub fn copy_to(&self, start: usize, bytes: usize, to: &LandingMemory, offset: u64) {
        self.parts(start, bytes, |ground, at, done, len| {
            to.copy_across(offset + done as u64, &ground.mapping, at, len);
        });
    }

    /// Calls `each` with the parts of `bytes` bytes of the payload, from `start` on, that lie in one piece: where they
    /// lie, how many were before them, and how many they are.
    fn parts(&self, start: usize, bytes: usize, mut each: impl FnMut(&Ground, u64, usize, usize)) {
        let end = start.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "reading beyond the payload");
        let ground = self.ground();
        let (mut skip, mut done) = (start as u64, 0);
        for (first, count) in self.runs.iter() {
            let have = u64::from(count) * u64::from(ground.page_bytes);
            if skip >= have {
                skip -= have;
                continue;
            }
            let len = (bytes - done).min(usize::try_from(have - skip).unwrap_or(usize::MAX));
            each(ground, ground.offset(first) + skip, done, len);
            (done, skip) = (done + len, 0);
            if done == bytes {
                return;
            }
        }
    }

    /// Whether nobody writes there: then it is sent on from where it lies.
    #[doc(hidden)]
    #[must_use]
    pub fn is_sole(&self) -> bool {
        self.ground().sole
    }

    /// Runs of pages that it lies in.
    #[doc(hidden)]
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs.iter().count()
    }

    /// The bytes from `offset` on, as far as they lie in one piece, and there are any; none if somebody may write there
    /// ([`Landed::is_sole`]).
    #[doc(hidden)]
    #[must_use]
    pub fn piece(&self, offset: usize) -> &[u8] {
        let ground = self.ground();
        let (mut skip, mut left) = (offset, self.bytes);
        for (first, count) in self.runs.iter().filter(|_| ground.sole) {
            let have = left.min(count as usize * ground.page_bytes as usize);
            if skip < have {
                // SAFETY: no other process has that memory, which the pool has made, whose ground this is. The run was
                // a page of it, and is this payload's alone until that gives it back: until then nobody gets it as a
                // page, and by this ground it can only be read.
                return unsafe { ground.mapping.slice(ground.offset(first) + skip as u64, have - skip) };
            }
            (skip, left) = (skip - have, left - have);
        }
        &[]
    }

    /// Where the payload lies, for a system call or foreign code: address and bytes of each contiguous piece. The peer
    /// may write there at any time. The addresses are good as long as this payload: when it is dropped, its pages go
    /// back, and their memory may be unmapped.
    pub fn pieces(&self) -> impl Iterator<Item = (*const u8, usize)> + '_ {
        let (ground, mut left) = (self.ground(), self.bytes);
        self.runs.iter().filter_map(move |(first, count)| {
            let len = left.min(count as usize * ground.page_bytes as usize);
            left -= len;
            (len > 0).then(|| (ground.mapping.address(ground.offset(first), len), len))
        })
    }
}

impl Drop for Landed {
    fn drop(&mut self) {
        let Some(ground) = self.ground.take() else { return };
        match &mut self.release {
            Releases::One(item) => ground.shelf.put(*item),
            Releases::Many(items) => items.drain(..).for_each(|item| ground.shelf.put(item)),
        }
    }
}
