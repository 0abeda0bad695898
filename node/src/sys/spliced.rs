//! Trains that the kernel sends from where they lie.
//!
//! `sendmsg` copies what it sends into memory of its own, most of which another core has just had: more than half of
//! what a train of 64 KiB takes there. `sendfile` from a memory file to a socket names the file's pages to the network
//! instead (`MSG_SPLICE_PAGES`, Linux 6.5), and whoever receives them on this machine, or the network card, reads them
//! there. No call says when that is over. So a train's memory is written again only once the other side has all that
//! the train carries, or the channel is over. A copy of a frame that is still queued somewhere then, because it was
//! given up and has gone again, or because a peer acknowledges what it has not read, changes under its reader: its
//! check sum is wrong, or it is a later frame, which is known by its number. All of the memory goes to one peer for as
//! long as it lives, so nobody sees what was for another one. And what is sealed is so before it lies there, so nobody
//! on the way sees it either.

use std::collections::VecDeque;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cutthrough_engine::net::memory::Hold;
use cutthrough_segment::map::{MapError, Mapping, Writers};
use rustix::io::Errno;

use super::datagram::{Datagrams, TRAIN_BYTES};

/// Bytes of each train's memory: pages that hold the longest train, and no more than a pipe takes at once by default,
/// through which the kernel passes them.
const BERTH: usize = 64 << 10;
const _: () = assert!(TRAIN_BYTES <= BERTH);
/// Trains that may be under way. They take turns: memory that has just been read is in the caches of who has read it,
/// and takes longer to write. Of fewer a stream has to wait for some, or have the kernel copy; many more would not stay
/// in any cache between two turns.
const BERTHS: u16 = 48;

/// Memory for the trains to one peer.
#[derive(Debug)]
pub(crate) struct Spliced {
    mapping: Arc<Mapping>,
    file: OwnedFd,
    /// Those that nobody has, in the order in which they were given back.
    free: Mutex<VecDeque<u16>>,
}

impl Spliced {
    /// How many trains take turns.
    pub(crate) const TRAINS: usize = BERTHS as usize;

    /// Whether this kernel sends pages of files as trains, by a socket that is joined to a peer.
    pub(crate) fn is_possible() -> bool {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
        (numbers.next(), numbers.next()) >= (Some(6), Some(5))
    }

    /// Makes such memory: 3 MiB, which cost nothing until they are written.
    ///
    /// # Errors
    /// [`MapError`], if there is none.
    pub(crate) fn new() -> Result<Arc<Self>, MapError> {
        let bytes = u64::from(BERTHS) * BERTH as u64;
        let (mapping, file) = Mapping::create("cutthrough-trains", bytes, 4096, Writers::Both)?;
        Ok(Arc::new(Self { mapping, file, free: Mutex::new((0..BERTHS).collect()) }))
    }

    fn free(&self) -> MutexGuard<'_, VecDeque<u16>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether trains hold all of it.
    pub(crate) fn is_taken(&self) -> bool {
        self.free().is_empty()
    }

    /// How many trains hold memory.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        Self::TRAINS - self.free().len()
    }

    /// Memory for a train, empty; none if all is taken.
    pub(crate) fn berth(self: &Arc<Self>) -> Option<Berth> {
        let index = self.free().pop_front()?;
        Some(Berth { of: Arc::clone(self), index, bytes: 0 })
    }
}

/// Memory for one train, to be dropped when the other side has all that it carries.
#[derive(Debug)]
pub(crate) struct Berth {
    of: Arc<Spliced>,
    index: u16,
    bytes: usize,
}

impl Berth {
    const fn offset(&self) -> u64 {
        self.index as u64 * BERTH as u64
    }

    /// Hands the train to the network by a socket that is joined to a peer and cuts what it sends
    /// ([`Datagrams::set_cut`]); never waits. Bytes that went.
    ///
    /// # Errors
    /// As of [`Datagrams::send`].
    pub(crate) fn send(&self, socket: &Datagrams) -> Result<usize, Errno> {
        let mut from = self.offset();
        rustix::fs::sendfile(socket, &self.of.file, Some(&mut from), self.bytes)
    }
}

impl Hold for Berth {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for reading below; this one is borrowed for writing, so nobody here reads either. The kernel may
        // still read what lay here before: see the head of this file.
        unsafe { self.of.mapping.slice_mut(self.offset(), self.bytes) }
    }

    fn grow(&mut self, by: usize) -> bool {
        if self.bytes + by > BERTH {
            return false;
        }
        self.bytes += by;
        true
    }
}

impl Deref for Berth {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the file was never given to anybody, and of its berths each index is had by one value at a time,
        // which is borrowed: so nobody writes there.
        unsafe { self.of.mapping.slice(self.offset(), self.bytes) }
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        self.of.free().push_back(self.index);
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;

    use super::*;

    /// Two sockets of this host; the first one is joined to the second.
    fn joined() -> (Datagrams, Datagrams) {
        let [from, to] = [(); 2].map(|()| Datagrams::bind("127.0.0.1:0".parse().unwrap()).unwrap());
        from.connect(to.local().unwrap()).unwrap();
        (from, to)
    }

    /// All that comes until nothing has come for a while.
    fn receive(at: &Datagrams) -> Vec<u8> {
        let (mut all, mut room, mut quiet) = (Vec::new(), vec![0; BERTH], 0);
        while quiet < 50 {
            match at.receive(&mut [IoSliceMut::new(&mut room)]) {
                Ok(came) => {
                    all.extend_from_slice(&room[..came.bytes]);
                    quiet = 0;
                }
                Err(_) => {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    quiet += 1;
                }
            }
        }
        all
    }

    fn train(of: &Arc<Spliced>, len: usize, seed: usize) -> (Berth, Vec<u8>) {
        let mut berth = of.berth().expect("a free one");
        let bytes: Vec<u8> = (0..len).map(|at| ((at / 7) ^ seed).to_le_bytes()[0]).collect();
        assert!(berth.grow(len));
        berth.bytes_mut().copy_from_slice(&bytes);
        (berth, bytes)
    }

    #[test]
    fn trains_arrive_as_they_lay_when_they_were_sent() {
        if !Spliced::is_possible() {
            crate::skipped("this kernel copies what it sends by UDP (before Linux 6.5)");
            return;
        }
        let (spliced, (from, to)) = (Spliced::new().unwrap(), joined());
        from.set_cut(1400).unwrap();
        for len in [2_000, 4_096, 16_384, 60_000, TRAIN_BYTES] {
            let trains: Vec<_> = (0..4).map(|seed| train(&spliced, len, seed)).collect();
            for (berth, _) in &trains {
                assert_eq!(berth.send(&from), Ok(len));
            }
            let sent: Vec<u8> = trains
                .iter()
                .flat_map(|(berth, bytes)| {
                    assert_eq!(**berth, **bytes);
                    bytes.clone()
                })
                .collect();
            assert!(receive(&to) == sent, "{len}");
        }
    }

    #[test]
    fn memory_is_used_by_one_train_at_a_time_and_all_of_it_in_turn() {
        let spliced = Spliced::new().unwrap();
        let mut all: VecDeque<Berth> = std::iter::from_fn(|| spliced.berth()).collect();
        assert_eq!(all.len(), Spliced::TRAINS);
        for (number, berth) in (0_u8..).zip(&mut all) {
            assert!(berth.grow(100));
            berth.bytes_mut().fill(number);
        }
        assert!((0_u8..).zip(&all).all(|(number, berth)| **berth == [number; 100]));
        let indices = |all: &VecDeque<Berth>| all.iter().map(|berth| berth.index).collect::<Vec<_>>();
        let before = indices(&all);
        all.rotate_left(3);
        all.clear();
        let after: VecDeque<Berth> = std::iter::from_fn(|| spliced.berth()).collect();
        assert_eq!(indices(&after), [&before[3..], &before[..3]].concat());
        assert!(after.iter().all(|berth| berth.is_empty()));
    }

    #[test]
    fn no_train_is_longer_than_its_memory() {
        let spliced = Spliced::new().unwrap();
        let mut berth = spliced.berth().unwrap();
        assert!(berth.grow(BERTH - 1) && !berth.grow(2) && berth.grow(1) && !berth.grow(1));
        assert_eq!(berth.len(), BERTH);
    }
}
