//! The four rings that a socket shares with the kernel.
//!
//! One side produces, the other consumes; each writes its own index and reads the other's. Whatever is read is an
//! allegation: somebody else may hold the socket too and write there. An index that cannot be ends the ring.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::XdpRingOffset;

/// The other side has put its index where it cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {ring} ring says {alleged} of {capacity} entries; close the endpoint, its rings are no longer trusted")]
pub struct Broken {
    /// Which ring.
    pub ring: &'static str,
    /// How many entries would be in it.
    pub alleged: u32,
    /// How many it has.
    pub capacity: u32,
}

/// Memory of one ring: two indexes, flags, and entries of `WORDS` 64-bit words. Unmapped when dropped.
#[derive(Debug)]
struct Shared<const WORDS: usize> {
    name: &'static str,
    base: NonNull<u8>,
    bytes: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: Option<NonNull<AtomicU32>>,
    entries: NonNull<[AtomicU64; WORDS]>,
    capacity: u32,
}

// SAFETY: plain memory that is reached through atomics only.
unsafe impl<const WORDS: usize> Send for Shared<WORDS> {}

impl<const WORDS: usize> Shared<WORDS> {
    /// Maps the ring of `capacity` entries that `file` has at `place`.
    fn map(name: &'static str, file: impl AsFd, place: u64, at: XdpRingOffset, capacity: u32) -> Result<Self, Errno> {
        let entry = size_of::<[AtomicU64; WORDS]>();
        let inside = |offset: u64, width: usize| {
            let aligned = usize::try_from(offset).ok().filter(|offset| offset.is_multiple_of(width.min(8)));
            aligned.ok_or(Errno::INVAL)
        };
        let (producer, consumer) = (inside(at.producer, 4)?, inside(at.consumer, 4)?);
        let flags = at.flags.map(|offset| inside(offset, 4)).transpose()?;
        let entries = inside(at.desc, entry)?;
        if !capacity.is_power_of_two() {
            return Err(Errno::INVAL);
        }
        let end = |offset: usize, bytes: usize| offset.checked_add(bytes).ok_or(Errno::INVAL);
        let bytes = end(entries, capacity as usize * entry)?
            .max(end(producer, 4)?)
            .max(end(consumer, 4)?)
            .max(end(flags.unwrap_or(0), 4)?);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags_of_map = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nobody's memory.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags_of_map, file, place) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
        // SAFETY: all four offsets, with what stands there, lie inside of the `bytes` that have just been mapped, and
        // are aligned, for a mapping begins at a page.
        unsafe {
            Ok(Self {
                name,
                base,
                bytes,
                producer: base.add(producer).cast(),
                consumer: base.add(consumer).cast(),
                flags: flags.map(|offset| base.add(offset).cast()),
                entries: base.add(entries).cast(),
                capacity,
            })
        }
    }

    fn producer(&self) -> &AtomicU32 {
        #[cfg(feature = "simulated")]
        crate::simulated::kernel::meanwhile();
        // SAFETY: inside of the mapping, which lives as long as we do; any bytes are a number.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        #[cfg(feature = "simulated")]
        crate::simulated::kernel::meanwhile();
        // SAFETY: as in `producer`.
        unsafe { self.consumer.as_ref() }
    }

    fn wants_wakeup(&self) -> bool {
        // SAFETY: as in `producer`.
        self.flags
            .is_none_or(|flags| unsafe { flags.as_ref() }.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0)
    }

    fn entry(&self, index: u32) -> &[AtomicU64; WORDS] {
        let index = index & (self.capacity - 1);
        // SAFETY: less than the capacity, so inside of the mapping; any bytes are numbers.
        unsafe { self.entries.add(index as usize).as_ref() }
    }

    /// How many entries lie between the two indexes.
    fn between(&self, produced: u32, consumed: u32) -> Result<u32, Broken> {
        let alleged = produced.wrapping_sub(consumed);
        if alleged <= self.capacity {
            return Ok(alleged);
        }
        Err(Broken { ring: self.name, alleged, capacity: self.capacity })
    }
}

impl<const WORDS: usize> Drop for Shared<WORDS> {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with these bytes; no reference outlives us.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A ring that this process fills: fill (one word an entry) or send (two words).
#[derive(Debug)]
pub struct Producer<const WORDS: usize> {
    shared: Shared<WORDS>,
    /// Entries written, published or not.
    written: u32,
    /// Entries that the other side had taken when we looked.
    taken: u32,
}

impl<const WORDS: usize> Producer<WORDS> {
    /// Maps it.
    ///
    /// # Errors
    /// As the kernel says; [`Errno::INVAL`] if the numbers do not describe a ring.
    pub fn map(
        name: &'static str,
        file: impl AsFd,
        place: u64,
        at: XdpRingOffset,
        capacity: u32,
    ) -> Result<Self, Errno> {
        let shared = Shared::map(name, file, place, at, capacity)?;
        let (written, taken) = (shared.producer().load(Ordering::Acquire), shared.consumer().load(Ordering::Acquire));
        Ok(Self { shared, written, taken })
    }

    /// Entries that have room now.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn room(&mut self) -> Result<u32, Broken> {
        Ok(self.shared.capacity - self.pending()?)
    }

    /// Entries that the other side has not taken yet, with those that are not published.
    ///
    /// # Errors
    /// [`Broken`].
    #[inline]
    pub fn pending(&mut self) -> Result<u32, Broken> {
        self.taken = self.shared.consumer().load(Ordering::Acquire);
        self.shared.between(self.written, self.taken)
    }

    /// Writes one entry, which is published later. Whether there was room.
    ///
    /// # Errors
    /// [`Broken`].
    #[inline]
    pub fn put(&mut self, entry: [u64; WORDS]) -> Result<bool, Broken> {
        if self.written.wrapping_sub(self.taken) >= self.shared.capacity && self.room()? == 0 {
            return Ok(false);
        }
        for (place, word) in self.shared.entry(self.written).iter().zip(entry) {
            place.store(word, Ordering::Relaxed);
        }
        self.written = self.written.wrapping_add(1);
        Ok(true)
    }

    /// Writes another entry in place of the one that was written `back` entries before the next one. The caller knows
    /// that the other side takes none meanwhile.
    ///
    /// # Panics
    /// If there are not so many entries.
    #[inline]
    pub fn put_instead(&mut self, back: u32, entry: [u64; WORDS]) {
        assert!((1..=self.shared.capacity).contains(&back), "an entry of the ring");
        for (place, word) in self.shared.entry(self.written.wrapping_sub(back)).iter().zip(entry) {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// Shows the other side all that has been written.
    #[inline]
    pub fn publish(&self) {
        self.shared.producer().store(self.written, Ordering::Release);
    }

    /// Forgets what has been written and not published.
    pub fn forget(&mut self) {
        self.written = self.shared.producer().load(Ordering::Relaxed);
    }

    /// Whether the kernel looks at this ring only after it has been called.
    #[must_use]
    pub fn wants_wakeup(&self) -> bool {
        self.shared.wants_wakeup()
    }
}

/// A ring that the kernel fills: completion (one word an entry) or receive (two words).
#[derive(Debug)]
pub struct Consumer<const WORDS: usize> {
    shared: Shared<WORDS>,
    /// Entries taken, given back or not.
    taken: u32,
    /// Entries that there were when we looked.
    produced: u32,
}

impl<const WORDS: usize> Consumer<WORDS> {
    /// Maps it.
    ///
    /// # Errors
    /// As the kernel says; [`Errno::INVAL`] if the numbers do not describe a ring.
    pub fn map(
        name: &'static str,
        file: impl AsFd,
        place: u64,
        at: XdpRingOffset,
        capacity: u32,
    ) -> Result<Self, Errno> {
        let shared = Shared::map(name, file, place, at, capacity)?;
        let taken = shared.consumer().load(Ordering::Acquire);
        Ok(Self { shared, taken, produced: taken })
    }

    /// Whether anything seems to have come: one look.
    #[must_use]
    #[inline]
    pub fn has_some(&self) -> bool {
        self.shared.producer().load(Ordering::Relaxed) != self.taken
    }

    /// Entries that can be taken now.
    ///
    /// # Errors
    /// [`Broken`].
    #[inline]
    pub fn available(&mut self) -> Result<u32, Broken> {
        let produced = self.shared.producer().load(Ordering::Acquire);
        let available = self.shared.between(produced, self.taken)?;
        self.produced = produced;
        Ok(available)
    }

    /// The entry that is `ahead` of the next one, if it had come when [`Consumer::available`] looked.
    #[must_use]
    #[inline]
    pub fn peek(&self, ahead: u32) -> Option<[u64; WORDS]> {
        if ahead >= self.produced.wrapping_sub(self.taken) {
            return None;
        }
        let mut entry = [0; WORDS];
        for (word, place) in entry.iter_mut().zip(self.shared.entry(self.taken.wrapping_add(ahead))) {
            *word = place.load(Ordering::Relaxed);
        }
        Some(entry)
    }

    /// Takes the next entry, if it had come when [`Consumer::available`] looked.
    #[inline]
    pub fn take(&mut self) -> Option<[u64; WORDS]> {
        let entry = self.peek(0)?;
        self.taken = self.taken.wrapping_add(1);
        Some(entry)
    }

    /// Gives the room of all that has been taken back.
    #[inline]
    pub fn release(&self) {
        self.shared.consumer().store(self.taken, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    const AT: XdpRingOffset = XdpRingOffset { producer: 0, consumer: 64, desc: 192, flags: Some(128) };
    const CAPACITY: u32 = 8;

    fn file() -> rustix::fd::OwnedFd {
        let file = memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 4096).unwrap();
        file
    }

    /// Both ends of one ring, as the kernel and a process have it.
    fn pair() -> (Producer<2>, Consumer<2>) {
        let file = file();
        let producer = Producer::map("send", &file, 0, AT, CAPACITY).unwrap();
        (producer, Consumer::map("send", &file, 0, AT, CAPACITY).unwrap())
    }

    #[test]
    fn what_is_no_ring_is_not_mapped() {
        let file = file();
        assert_eq!(Producer::<1>::map("fill", &file, 0, AT, 5).err(), Some(Errno::INVAL));
        let odd = XdpRingOffset { consumer: 66, ..AT };
        assert_eq!(Producer::<1>::map("fill", &file, 0, odd, 8).err(), Some(Errno::INVAL));
        let far = XdpRingOffset { desc: u64::MAX - 7, ..AT };
        assert_eq!(Producer::<1>::map("fill", &file, 0, far, 8).err(), Some(Errno::INVAL));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Put(u64),
        Publish,
        Forget,
        Take,
        Release,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => any::<u64>().prop_map(Step::Put),
            2 => Just(Step::Publish),
            1 => Just(Step::Forget),
            4 => Just(Step::Take),
            2 => Just(Step::Release),
        ]
    }

    proptest! {
        /// Against a queue: what is published comes out once, in order, and never more than fits.
        #[test]
        fn a_ring_is_a_bounded_queue(steps in prop::collection::vec(step(), 1..200)) {
            let (mut producer, mut consumer) = pair();
            let (mut written, mut published, mut released) = (Vec::new(), 0, 0);
            let mut taken = 0;
            for step in steps {
                match step {
                    Step::Put(value) => {
                        let fits = written.len() - released < CAPACITY as usize;
                        prop_assert_eq!(producer.put([value, !value]), Ok(fits));
                        if fits {
                            written.push(value);
                        }
                    }
                    Step::Publish => {
                        producer.publish();
                        published = written.len();
                    }
                    Step::Forget => {
                        producer.forget();
                        written.truncate(published);
                    }
                    Step::Take => {
                        prop_assert_eq!(consumer.has_some(), published > taken);
                        prop_assert_eq!(consumer.available().unwrap() as usize, published - taken);
                        let expected = (published > taken).then(|| [written[taken], !written[taken]]);
                        prop_assert_eq!(consumer.take(), expected);
                        taken += usize::from(expected.is_some());
                    }
                    Step::Release => {
                        consumer.release();
                        released = taken;
                    }
                }
                prop_assert_eq!(producer.pending().unwrap() as usize, written.len() - released);
            }
        }

        /// Whatever the other side writes into its index, we get an error or a number that fits.
        #[test]
        fn a_hostile_index_ends_the_ring(theirs in any::<u32>(), ahead in any::<u32>()) {
            let (mut producer, mut consumer) = pair();
            consumer.shared.producer().store(theirs, Ordering::Relaxed);
            match consumer.available() {
                Ok(available) => prop_assert!(available == theirs && available <= CAPACITY),
                Err(broken) => {
                    prop_assert!(broken.alleged > CAPACITY);
                    prop_assert_eq!(consumer.peek(ahead), None);
                }
            }
            consumer.shared.consumer().store(theirs, Ordering::Relaxed);
            prop_assert_eq!(producer.pending().is_ok(), 0_u32.wrapping_sub(theirs) <= CAPACITY);
        }
    }
}
