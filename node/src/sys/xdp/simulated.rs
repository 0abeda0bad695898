//! The kernel's end of a socket of AF_XDP that is none: its rings lie in a memory file, and the program at the
//! interface runs in the machine that tests run programs by.

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{Errno, dup, pread, pwrite, read, write};
use rustix::net::xdp::{XdpMmapOffsets, XdpRingOffset};

use super::bpf::SharedMemory;
use super::machine::{MEMORY, Machine, REDIRECT, RINGS};
use super::placing::{Slots, placing};
use super::program::{Ours, redirect};
use super::ring::{Consumer, Producer};
use super::socket::HEADROOM;
use super::{Descriptor, Memory, Settings, XdpError, Xsk};

/// Where the parts of a ring lie in its part of the file, and the bytes of that: room for a thousand entries.
const AT: [u64; 4] = [0, 64, 128, 192];
const RING_BYTES: u64 = 32 << 10;

/// Two of the verdicts, as the kernel numbers them.
const DROP: u64 = 1;
const PASS: u64 = 2;

/// What becomes of a frame.
#[derive(Debug)]
pub(crate) enum Verdict<'a> {
    /// This of it goes to the socket.
    Ring(&'a [u8]),
    /// The kernel's stack gets it.
    Stack,
    /// Nobody does: the program has taken what it wants.
    Dropped,
}

/// What runs at the interface.
#[derive(Debug)]
pub(crate) struct Loaded {
    code: Vec<u8>,
    shared: Option<SharedMemory>,
}

impl Loaded {
    /// The program of a ring from which payloads are copied.
    pub(crate) fn copying(ours: &Ours) -> Self {
        Self { code: redirect(ours, RINGS), shared: None }
    }

    /// That of a ring whose payloads land where they belong; and the memory that it shares, as the endpoint has it.
    ///
    /// # Errors
    /// [`XdpError`]: no memory.
    pub(crate) fn placing(ours: &Ours, queue: u32, slots: Slots) -> Result<(Self, SharedMemory), XdpError> {
        let bytes = usize::try_from(slots.shared_bytes()).unwrap_or(usize::MAX);
        let file = file(slots.shared_bytes()).map_err(refused)?;
        let theirs = SharedMemory::over(dup(&file).map_err(refused)?, bytes)?;
        let shared = SharedMemory::over(file, bytes)?;
        let code = placing(ours, queue, slots, RINGS, MEMORY);
        Ok((Self { code, shared: Some(shared) }, theirs))
    }

    /// Whether it is a register.
    pub(crate) const fn places(&self) -> bool {
        self.shared.is_some()
    }

    /// Runs it on a frame that has come on this queue to this processor.
    pub(crate) fn run<'a>(&mut self, frame: &'a [u8], (queue, processor): (u32, u32)) -> Verdict<'a> {
        let memory = self.shared.as_mut().map_or(&mut [][..], SharedMemory::all);
        let mut machine = Machine { linear: frame, beyond: 0, queue, processor, rings: &[queue], memory, cut: 0 };
        match machine.run(&self.code) {
            REDIRECT => Verdict::Ring(&frame[machine.cut..]),
            PASS => Verdict::Stack,
            DROP => Verdict::Dropped,
            other => panic!("verdict {other}"),
        }
    }
}

/// The kernel's ends of the rings, and the memory that they tell of.
#[derive(Debug)]
pub(crate) struct Ends {
    fill: Consumer<1>,
    completed: Producer<1>,
    received: Producer<2>,
    send: Consumer<2>,
    memory: OwnedFd,
    /// Readable while there is something in the receive ring; and whether it is.
    bell: OwnedFd,
    rung: bool,
    /// Bytes that are written to one place at most.
    piece: usize,
    unaligned: bool,
}

/// A socket over this memory, whose descriptor `bell` stands for it; and the kernel's ends of its rings.
///
/// # Errors
/// [`XdpError`]: no memory.
pub(crate) fn socket(bell: OwnedFd, memory: &Memory, settings: Settings) -> Result<(Xsk, Ends), XdpError> {
    let rings = file(4 * RING_BYTES).map_err(refused)?;
    let [fill, completed, received, send] = [0, 1, 2, 3].map(|ring| ring * RING_BYTES);
    // The kernel is called for everything that is sent.
    pwrite(&rings, &libc::XDP_RING_NEED_WAKEUP.to_ne_bytes(), send + AT[2]).map_err(refused)?;
    let (at, entries) = (offsets, settings.entries);
    let ends = Ends {
        fill: Consumer::map("fill", &rings, fill, at(), entries).map_err(refused)?,
        completed: Producer::map("completion", &rings, completed, at(), entries).map_err(refused)?,
        received: Producer::map("receive", &rings, received, at(), entries).map_err(refused)?,
        send: Consumer::map("send", &rings, send, at(), entries).map_err(refused)?,
        memory: dup(memory.file()).map_err(refused)?,
        bell: dup(&bell).map_err(refused)?,
        rung: false,
        piece: settings.buffer_bytes as usize - usize::try_from(HEADROOM).unwrap_or(0),
        unaligned: settings.unaligned,
    };
    let at = XdpMmapOffsets { rx: at(), tx: at(), fr: at(), cr: at() };
    let xsk = Xsk::map(rings, memory, settings, [fill, completed, received, send], at)?;
    Ok((xsk.called_by(bell), ends))
}

fn file(bytes: u64) -> Result<OwnedFd, Errno> {
    let file = memfd_create("cutthrough-simulated", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, bytes.next_multiple_of(4096))?;
    Ok(file)
}

const fn offsets() -> XdpRingOffset {
    XdpRingOffset { producer: AT[0], consumer: AT[1], desc: AT[3], flags: Some(AT[2]) }
}

const fn refused(errno: Errno) -> XdpError {
    XdpError::Refused { what: "a simulated ring", errno }
}

impl Ends {
    /// Takes places for so many bytes: where each part will be, and how long. Nothing, and none is taken, if there are
    /// not so many places, or there is no room to tell of them.
    pub(crate) fn take_places(&mut self, bytes: usize) -> Option<Vec<(u64, usize)>> {
        let parts = bytes.div_ceil(self.piece);
        let there = self.fill.available().ok()?.min(self.received.room().ok()?);
        if there as usize >= parts {
            let each = (0..parts).map(|part| self.piece.min(bytes - part * self.piece));
            let places: Vec<_> = each.map_while(|bytes| self.fill.take().map(|[at]| (at + HEADROOM, bytes))).collect();
            self.fill.release();
            return Some(places);
        }
        None
    }

    /// Writes to the memory.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        let written = pwrite(&self.memory, bytes, at);
        assert_eq!(written, Ok(bytes.len()), "a place outside of the memory: {at}");
    }

    /// Tells of parts of a frame that has been written, from [`Ends::show`] on.
    pub(crate) fn tell(&mut self, parts: &[(u64, usize)]) {
        for (number, (at, bytes)) in (1..).zip(parts) {
            let bytes = u32::try_from(*bytes).unwrap_or(u32::MAX);
            let mut entry = Descriptor { at: *at, bytes, more: number < parts.len() }.to_entry();
            if self.unaligned {
                entry[0] = (*at - HEADROOM) | HEADROOM << 48;
            }
            let _ = self.received.put(entry);
        }
    }

    /// Shows what was told.
    pub(crate) fn show(&mut self) {
        self.received.publish();
        if !std::mem::replace(&mut self.rung, true) {
            let _ = write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    /// What was shown may have been taken.
    pub(crate) fn hush(&mut self) {
        if self.rung && self.received.pending() == Ok(0) {
            self.rung = false;
            let _ = read(&self.bell, &mut [0; 8]);
        }
    }

    /// Takes the next frame that is to be sent: its bytes, and where its parts began. Nothing if there is none.
    pub(crate) fn sent(&mut self) -> Option<(Vec<u8>, Vec<u64>)> {
        let available = self.send.available().ok()?;
        let (mut frame, mut places) = (Vec::new(), Vec::new());
        for _ in 0..available {
            let part = Descriptor::from_entry(self.send.take()?, false);
            let begin = frame.len();
            frame.resize(begin + part.bytes as usize, 0);
            let read = pread(&self.memory, &mut frame[begin..], part.at);
            assert_eq!(read, Ok(part.bytes as usize), "a part outside of the memory: {part:?}");
            places.push(part.at);
            if !part.more {
                break;
            }
        }
        self.send.release();
        (!places.is_empty()).then_some((frame, places))
    }

    /// Says that a part was sent. Whether there was room.
    pub(crate) fn complete(&mut self, at: u64) -> bool {
        let put = self.completed.put([at]) == Ok(true);
        self.completed.publish();
        put
    }
}
