//! The rings of a socket of AF_XDP, into which another process that shares them writes anything at any time.

use std::os::fd::OwnedFd;

use arbitrary::Arbitrary;
use cutthrough_node::fuzz::socket;
use cutthrough_node::sys::xdp::{Descriptor, Memory, Mode, Settings, Xsk};
use cutthrough_segment::map::Writers;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{dup, pread, pwrite};

/// Entries of each ring.
const ENTRIES: u32 = 8;
/// Bytes of the memory of the frames.
const BYTES: u64 = 64 << 10;
/// Where a ring's producer and consumer have their indexes, its flags lie, and its entries begin.
const PRODUCER: u64 = 0;
const CONSUMER: u64 = 64;
const FLAGS: u64 = 128;
const FIRST: u64 = 192;

/// Which ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Arbitrary)]
pub enum Which {
    /// Places for frames, one word each.
    Fill,
    /// Places that were sent, one word each.
    Completed,
    /// Frames that have come, two words each.
    Received,
    /// Frames to be sent, two words each.
    Send,
}

/// A number that is written.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Value {
    /// Any.
    Any(u32),
    /// So much more than what stands there.
    More(i8),
}

/// What happens next.
#[derive(Debug, Clone, Arbitrary)]
pub enum Step {
    /// The other process writes the kernel's index of a ring.
    Index(Which, Value),
    /// It writes ours.
    OurIndex(Which, Value),
    /// It writes the flags.
    Flags(Which, u32),
    /// It writes an entry: place, bytes, options.
    Entry(Which, u8, u64, u32, u32),
    /// The same, with a place inside of the memory, or near its end.
    Near(u8, u32, u16),
    /// We offer places.
    Offer(u64, u8),
    /// We show what was offered.
    Post,
    /// We look how much has come.
    Arrived,
    /// We look at a part.
    Peek(u32),
    /// We take parts.
    Take(u8),
    /// We give their room back.
    Release,
    /// We put a part into the send ring.
    Put(u64, u32, bool),
    /// We take back what was put.
    TakeBack,
    /// We have it sent.
    Kick,
    /// We look what was sent.
    Completed,
    /// We look how much is left in every ring.
    Look,
}

struct Play {
    file: OwnedFd,
    memory: Memory,
    socket: Xsk,
    /// Entries of the receive ring that we have seen to be there, from the next one on.
    there: u32,
    taken: u32,
    /// Places that we have offered.
    written: u32,
}

/// Plays the steps.
///
/// # Panics
/// If what is read is not what stands there, reaches out of the memory, or is more than a ring has.
pub fn run(steps: &[Step]) {
    let file = memfd_create("rings", MemfdFlags::CLOEXEC).expect("a memory file");
    ftruncate(&file, 4 * 4096).expect("room for four rings");
    let settings = Settings {
        queue: 0,
        mode: if steps.len().is_multiple_of(2) { Mode::Generic } else { Mode::ZeroCopy },
        buffer_bytes: 4096,
        unaligned: !steps.len().is_multiple_of(3),
        scatter: true,
        entries: ENTRIES,
    };
    let memory = Memory::new(BYTES, Writers::Maker).expect("memory");
    let socket = socket(dup(&file).expect("one more name"), &memory, settings).expect("rings");
    let mut play = Play { file, memory, socket, there: 0, taken: 0, written: 0 };
    for step in steps {
        play.step(step);
    }
}

/// Where a ring begins in the file.
fn base(ring: Which) -> u64 {
    4096 * ring as u64
}

impl Play {
    fn word(&self, at: u64) -> u32 {
        let mut word = [0; 4];
        pread(&self.file, &mut word, at).expect("inside of the file");
        u32::from_le_bytes(word)
    }

    fn double(&self, at: u64) -> u64 {
        u64::from(self.word(at)) | u64::from(self.word(at + 4)) << 32
    }

    fn write(&self, at: u64, word: u32) {
        pwrite(&self.file, &word.to_le_bytes(), at).expect("inside of the file");
    }

    fn store(&self, at: u64, value: Value) {
        let word = match value {
            Value::Any(word) => word,
            Value::More(by) => self.word(at).wrapping_add_signed(by.into()),
        };
        self.write(at, word);
    }

    fn entry(&self, ring: Which, slot: u8, [place, rest]: [u64; 2]) {
        let slot = u64::from(u32::from(slot) % ENTRIES);
        let words: &[u64] = if matches!(ring, Which::Fill | Which::Completed) { &[place] } else { &[place, rest] };
        let at = base(ring) + FIRST + slot * 8 * words.len() as u64;
        for (word, place) in words.iter().zip((at..).step_by(8)) {
            pwrite(&self.file, &word.to_le_bytes(), place).expect("inside of the file");
        }
    }

    /// What the entry `ahead` of the next one says, in plain words; nothing at 0 if it is not inside of the memory.
    fn alleged(&self, ahead: u32) -> Descriptor {
        let slot = self.taken.wrapping_add(ahead) % ENTRIES;
        let at = base(Which::Received) + FIRST + u64::from(slot) * 16;
        let (place, bytes, options) = (self.double(at), self.word(at + 8), self.word(at + 12));
        let place = if self.socket.settings().unaligned { (place << 16 >> 16) + (place >> 48) } else { place };
        let more = options & 1 == 1;
        match place.checked_add(u64::from(bytes)) {
            Some(end) if end <= BYTES => Descriptor { at: place, bytes, more },
            _ => Descriptor { at: 0, bytes: 0, more },
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Index(ring, value) => {
                let kernels = if matches!(ring, Which::Fill | Which::Send) { CONSUMER } else { PRODUCER };
                self.store(base(ring) + kernels, value);
            }
            Step::OurIndex(ring, value) => {
                let ours = if matches!(ring, Which::Fill | Which::Send) { PRODUCER } else { CONSUMER };
                self.store(base(ring) + ours, value);
            }
            Step::Flags(ring, flags) => self.write(base(ring) + FLAGS, flags),
            Step::Entry(ring, slot, place, bytes, options) => {
                self.entry(ring, slot, [place, u64::from(bytes) | u64::from(options) << 32]);
            }
            Step::Near(slot, place, bytes) => {
                let place = u64::from(place) % (BYTES + 100);
                self.entry(Which::Received, slot, [place, u64::from(bytes)]);
            }
            Step::Offer(place, count) => self.offer(place, count),
            Step::Post => {
                self.socket.post();
                assert_eq!(self.word(base(Which::Fill) + PRODUCER), self.written);
            }
            Step::Arrived => self.arrived(),
            Step::Peek(ahead) => {
                let expected = (ahead < self.there).then(|| self.alleged(ahead));
                assert_eq!(self.socket.peek(ahead), expected);
            }
            Step::Take(count) => self.take(count),
            Step::Release => {
                self.socket.release();
                assert_eq!(self.word(base(Which::Received) + CONSUMER), self.taken);
            }
            Step::Put(at, bytes, more) => {
                let room = self.socket.room();
                let put = self.socket.put(Descriptor { at, bytes, more });
                assert_eq!(room.ok().map(|room| room > 0), put.ok());
            }
            Step::TakeBack => self.socket.take_back(),
            // It is no socket: the kernel says so, if it is called at all.
            Step::Kick => drop(self.socket.kick()),
            Step::Completed => self.completed(),
            Step::Look => {
                for alleged in [self.socket.offered(), self.socket.room(), self.socket.unsent()] {
                    assert!(alleged.is_err() || alleged.is_ok_and(|alleged| alleged <= ENTRIES));
                }
                let some = self.word(base(Which::Received) + PRODUCER) != self.taken;
                assert_eq!(self.socket.has_frames(), some);
            }
        }
    }

    fn offer(&mut self, place: u64, count: u8) {
        for place in (place..=u64::MAX).take(usize::from(count % 16)) {
            if !matches!(self.socket.offer(place), Ok(true)) {
                return;
            }
            let at = base(Which::Fill) + FIRST + u64::from(self.written % ENTRIES) * 8;
            assert_eq!(self.double(at), place);
            self.written = self.written.wrapping_add(1);
        }
    }

    fn arrived(&mut self) {
        let alleged = self.word(base(Which::Received) + PRODUCER).wrapping_sub(self.taken);
        match self.socket.arrived() {
            Ok(there) => {
                assert!(there == alleged && there <= ENTRIES);
                self.there = there;
            }
            Err(_) => assert!(alleged > ENTRIES),
        }
    }

    fn take(&mut self, count: u8) {
        for _ in 0..count % 16 {
            let expected = (self.there > 0).then(|| self.alleged(0));
            let part = self.socket.take();
            assert_eq!(part, expected);
            let Some(part) = part else { return };
            (self.there, self.taken) = (self.there - 1, self.taken.wrapping_add(1));
            // It can be looked at, and changed.
            self.memory.frame(part.at, part.bytes as usize).fill(7);
        }
    }

    /// What was there when it was looked at last, and what is there now: no more.
    fn completed(&mut self) {
        let all = (0..=2 * ENTRIES).find(|_| !matches!(self.socket.completed(), Ok(Some(_))));
        assert!(all.is_some(), "more has been sent than a ring holds");
    }
}
