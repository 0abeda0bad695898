//! Payloads of an endpoint, placed where they belong by the register at the interface.
//!
//! The register is aimed at a list of frames of one channel, as they are expected to come. For each of them there is a
//! place in the fill ring, where the payload belongs ([`Register`] decides which); the kernel uses places in their
//! order, and nothing else comes to this socket. So a place never goes to the wrong frame, and there is nothing to
//! mend: a frame that is not the one that is due comes by the slots, and is copied.
//!
//! What can go wrong is that places are left over, because the next frame did not come. They cannot be taken back, but
//! as long as the register is closed no frame uses them, and the next aim writes its own places over them. So:
//!
//! 1. [`Cut::close`] closes the register. The exchange says how far what it has let through reaches.
//! 2. [`Cut::is_quiet`] once all of that has been taken in. From then on the kernel writes to no place, and the memory
//!    may be written, handed over or given back.
//! 3. [`Cut::aim`] writes the next list and its places, and opens the register.
//!
//! Whoever writes to memory that may be aimed at, or gives it away, does 1 and 2 first: see `udp::placed`, which says
//! why no page that anybody sees is ever written to.
//!
//! 2 may fail: a processor may have stopped between a frame's turn and its place. Then frames are lost, and sent again,
//! as long as it lasts; after a second the ring is given up ([`XdpRing::give_up`]). The same goes for a ring whose
//! indexes or places cannot be. Where the kernel does not let us wait for that ([`can_wait`]), payloads are copied from
//! the beginning. Nothing of this outlives the process: no program, map or link is pinned.
//!
//! More comes than is taken in: beyond the places that are offered ahead the register lets nothing through, and a
//! thousand slots later all goes to the UDP socket, which counts what it loses.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicU32, Ordering, fence};

use cutthrough_engine::register::{CLOSED, Expected, Place, Register};
use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::{HEADER_BYTES, OPENING_BYTES};
use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

use super::super::Ring as _;
use super::super::envelope::{ENVELOPE_BYTES, parse};
use super::XdpRing;
use crate::sys::xdp::bpf::SharedMemory;
use crate::sys::xdp::placing::{ANY, LOGGED, Slots, entry, entry_at, shared};
use crate::sys::xdp::socket::HEADROOM;
use crate::sys::xdp::{XdpError, Xsk};

/// How long a frame may be on its way from the register to its place before the ring is given up, in nanoseconds.
const STUCK_NS: u64 = 1_000_000_000;

/// Whether the kernel lets this process wait until none of its readers of shared data is where it was: not if it runs
/// processors without ticks (`nohz_full`), or a filter of system calls refuses `membarrier`.
pub(crate) fn can_wait() -> bool {
    membarrier_query().contains_command(MembarrierCommand::Global)
}

fn wait_for_readers() -> bool {
    #[cfg(feature = "simulated")]
    if let Some(done) = crate::simulated::kernel::finish() {
        return done;
    }
    membarrier(MembarrierCommand::Global).is_ok()
}

/// A frame that has landed. Nothing of it has been checked.
#[derive(Debug)]
pub(crate) struct Landed {
    /// Who has sent it, as it says.
    pub(crate) from: SocketAddrV4,
    /// Its header.
    pub(crate) head: [u8; HEADER_BYTES],
    /// What stood between header and payload, in the first frame of a message.
    pub(crate) opening: Option<[u8; OPENING_BYTES]>,
    /// Where its payload lies, and how long it is.
    pub(crate) at: u64,
    /// See `at`.
    pub(crate) bytes: usize,
}

/// The register, its log and the slots, and the places that the kernel has.
#[derive(Debug)]
pub(crate) struct Cut {
    shared: SharedMemory,
    slots: Slots,
    /// How many slots have been read.
    seen: u32,
    epoch: u32,
    register: Register,
    /// Waits until the kernel has done with what it had begun. Whether it could.
    waits: fn() -> bool,
}

impl Cut {
    /// Over memory that is shared with a program for these slots; the kernel's buffers have `buffer` bytes.
    pub(super) fn new(shared: SharedMemory, slots: Slots, buffer: u32) -> Self {
        let piece = buffer - u32::try_from(HEADROOM).unwrap_or(0);
        let cut = Self { shared, slots, seen: 0, epoch: 0, register: Register::new(piece), waits: wait_for_readers };
        cut.shared.double(shared::NEXT).store(CLOSED.into(), Ordering::Release);
        cut
    }

    fn word(&self, at: u64) -> &AtomicU32 {
        self.shared.word(at)
    }

    /// Whether the next frame at the register would be let through, or something that was has not been taken in.
    pub(crate) const fn is_aimed(&self) -> bool {
        self.register.is_aimed()
    }

    /// Whether the register is aimed at memory of this channel.
    pub(crate) fn watches(&self, tag: u32) -> bool {
        self.register.watches(tag)
    }

    /// Its list, and what has come of it.
    pub(crate) const fn register(&self) -> &Register {
        &self.register
    }

    /// Aims at frames of a channel, and of this life of it. The register is closed, and quiet.
    pub(super) fn aim(
        &mut self,
        xsk: &mut Xsk,
        of: (u32, u32),
        frames: impl IntoIterator<Item = Expected>,
    ) -> Result<(), XdpError> {
        let limit = self.register.aim(of, frames, |place| offer(xsk, place))?;
        xsk.post();
        if limit == 0 {
            return Ok(());
        }
        self.write_list(0);
        self.epoch = self.epoch.wrapping_add(1);
        let words = [(shared::TAG, of.0), (shared::GENERATION, of.1), (shared::LIMIT, limit), (shared::PROCESSOR, ANY)];
        for (place, word) in words {
            self.word(place).store(word, Ordering::Relaxed);
        }
        self.shared.double(shared::NEXT).store(u64::from(self.epoch) << 32, Ordering::Release);
        Ok(())
    }

    /// Lists more of the frames to come behind those that are listed.
    pub(super) fn extend(&mut self, xsk: &mut Xsk, frames: impl IntoIterator<Item = Expected>) -> Result<(), XdpError> {
        let more = self.register.extend(frames, |place| offer(xsk, place))?;
        if let Some((from, limit)) = more {
            xsk.post();
            self.write_list(from);
            self.word(shared::LIMIT).store(limit, Ordering::Release);
        }
        Ok(())
    }

    /// Writes the entries of the listed frames from this one on.
    fn write_list(&self, from: u32) {
        for (number, frame) in self.register.listed(from) {
            for (word, at) in entry(frame).into_iter().zip((entry_at(number)..).step_by(4)) {
                self.word(at).store(word, Ordering::Relaxed);
            }
        }
    }

    /// Closes the register: no frame that has not been let through lands any more.
    pub(super) fn close(&mut self) {
        if !self.register.is_open() {
            return;
        }
        let was = self.shared.double(shared::NEXT).swap(CLOSED.into(), Ordering::AcqRel);
        self.register.closed(u32::try_from(was & u64::from(u32::MAX)).unwrap_or(0));
    }

    /// Whether the register is closed, and all that it has let through has been taken in.
    pub(super) fn is_quiet(&mut self) -> bool {
        let through = self.word(shared::TAKEN).load(Ordering::Acquire);
        self.register.is_quiet(through)
    }

    /// Whether a frame that was let through could not be cut, and never lands.
    fn has_failed(&self) -> bool {
        self.word(shared::FAILED).load(Ordering::Acquire) > 0
    }

    /// The next frame that has landed; unless `all`, if no frame that came before it lies in a slot.
    pub(super) fn landed(&mut self, xsk: &mut Xsk, all: bool) -> Result<Option<Landed>, XdpError> {
        let arrived = xsk.arrived()?;
        let Some(last) = (0..arrived).find(|ahead| xsk.peek(*ahead).is_none_or(|part| !part.more)) else {
            return Ok(None);
        };
        if !all && self.is_after_aside() {
            return Ok(None);
        }
        let parts = (0..=last).map(|_| xsk.take().map(|part| (part.at, part.bytes)));
        let (at, bytes) = self.register.lands(parts).ok_or_else(astray)?;
        xsk.release();
        let (head, from, opening) = self.headers();
        self.register.tells(u32::from_le_bytes([head[40], head[41], head[42], head[43]]), bytes);
        Ok(Some(Landed { from, head, opening, at, bytes: usize::try_from(bytes).unwrap_or(usize::MAX) }))
    }

    /// Where the log of the next frame begins.
    fn log_at(&self) -> u64 {
        shared::LOG + u64::from(self.register.taken() % LOGGED) * shared::LOG_BYTES
    }

    /// Whether a frame lies in a slot that came before the next one that has landed. There is one.
    fn is_after_aside(&self) -> bool {
        let before = self.word(self.log_at() + shared::BEFORE).load(Ordering::Acquire);
        before.wrapping_sub(self.seen).cast_signed() > 0
    }

    /// What the log says of the next frame: header, sender, and opening.
    fn headers(&mut self) -> ([u8; HEADER_BYTES], SocketAddrV4, Option<[u8; OPENING_BYTES]>) {
        const OPENING: usize = ENVELOPE_BYTES + HEADER_BYTES;
        let log = self.shared.bytes(self.log_at(), OPENING + OPENING_BYTES);
        let mut head = [0; HEADER_BYTES];
        head.copy_from_slice(&log[ENVELOPE_BYTES..OPENING]);
        let opens = head[1] == cutthrough_wire::frame::Kind::Open as u8;
        let opening = if opens { log[OPENING..].first_chunk().copied() } else { None };
        let from = Ipv4Addr::new(log[26], log[27], log[28], log[29]);
        let from = SocketAddrV4::new(from, u16::from_be_bytes([log[34], log[35]]));
        (head, from, opening)
    }

    /// How many frames lie in slots.
    pub(crate) fn waiting(&self) -> usize {
        self.word(shared::GIVEN).load(Ordering::Relaxed).wrapping_sub(self.seen) as usize
    }

    /// How many frames have been taken in so far, as numbers wrap.
    pub(crate) const fn came(&self) -> u32 {
        self.register.taken().wrapping_add(self.seen)
    }

    /// Whether a frame lies in a slot: a look at shared memory.
    #[inline]
    pub(super) fn has_aside(&self) -> bool {
        self.word(shared::GIVEN).load(Ordering::Relaxed) != self.seen
    }

    /// The next frame that lies in a slot, from its Ethernet header on, if the program has done with it. It stays there
    /// until [`Cut::done_aside`].
    #[inline]
    pub(super) fn aside(&mut self) -> Option<&mut [u8]> {
        while self.has_aside() {
            let at = self.slots.at(self.seen);
            let stamp = self.shared.double(at).load(Ordering::Acquire);
            let (number, bytes) = (stamp & u64::from(u32::MAX), usize::try_from(stamp >> 32).unwrap_or(0));
            if number != u64::from(self.seen.wrapping_add(1)) {
                return None;
            }
            if bytes > 0 {
                let most = (1 << self.slots.bytes_log) - usize::try_from(shared::IN_SLOT).unwrap_or(0);
                return Some(self.shared.bytes(at + shared::IN_SLOT, bytes.min(most)));
            }
            // That one went to the socket.
            self.done_aside();
        }
        None
    }

    /// Gives the slot of the last frame back.
    #[inline]
    pub(super) fn done_aside(&mut self) {
        self.seen = self.seen.wrapping_add(1);
        self.word(shared::SEEN).store(self.seen, Ordering::Release);
    }

    /// From now on frames that the register does not await go to the UDP socket, which wakes who sleeps. False if
    /// something has come before that.
    pub(super) fn doze(&self) -> bool {
        self.word(shared::ASLEEP).store(1, Ordering::Relaxed);
        // The program takes a slot first, and looks then; whoever comes second sees the other.
        fence(Ordering::SeqCst);
        !self.has_aside()
    }

    /// From now on they come by the slots.
    #[inline]
    pub(super) fn wake(&self) {
        if self.word(shared::ASLEEP).load(Ordering::Relaxed) != 0 {
            self.word(shared::ASLEEP).store(0, Ordering::Relaxed);
        }
    }
}

/// Gives the kernel a place.
fn offer(xsk: &mut Xsk, place: Place) -> Result<(), XdpError> {
    match place {
        // The ring has more room than are ever offered ahead.
        Place::Behind(at) => xsk.offer(at - HEADROOM).map(|_| ()),
        Place::Instead(back, at) => {
            xsk.offer_instead(back, at - HEADROOM);
            Ok(())
        }
    }
}

/// The kernel has used places in another order than they were offered in.
fn astray() -> XdpError {
    XdpError::Refused { what: "a frame at a place that was not offered for it", errno: rustix::io::Errno::IO }
}

/// What an endpoint does with it.
impl XdpRing {
    /// What the register is aimed at and what has landed; nothing if payloads are copied.
    pub(crate) const fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    /// Where in the memory of the ring these bytes lie, if they are among the user's pages.
    pub(crate) fn place_of(&self, bytes: &[u8]) -> Option<u64> {
        let base = self.memory.mapping().address(0, 0).addr();
        let at = u64::try_from(bytes.as_ptr().addr().checked_sub(base)?).ok()?;
        let end = at.checked_add(bytes.len() as u64)?;
        (at >= self.plan.pages && end <= self.plan.pages_end).then_some(at)
    }

    /// Lists more of the frames to come.
    pub(crate) fn extend(&mut self, frames: impl IntoIterator<Item = Expected>) {
        let Some(cut) = &mut self.cut else { return };
        if let Err(error) = cut.extend(&mut self.xsk, frames) {
            self.broken = Some(error);
        }
    }

    /// Aims at frames of a channel, and of this life of it. The register is quiet.
    pub(crate) fn aim(&mut self, channel: (u32, u32), frames: impl IntoIterator<Item = Expected>) {
        let Some(cut) = &mut self.cut else { return };
        if let Err(error) = cut.aim(&mut self.xsk, channel, frames) {
            self.broken = Some(error);
        }
    }

    /// Closes the register. Whether all that it has let through has been taken in, so that the kernel writes nowhere.
    ///
    /// A frame that is lost, or stays on its way for a second, breaks the ring.
    pub(crate) fn is_quiet(&mut self, now: Instant) -> bool {
        let Some(cut) = &mut self.cut else { return true };
        cut.close();
        if cut.is_quiet() {
            self.waits = None;
            return true;
        }
        if cut.has_failed() || now.saturating_since(*self.waits.get_or_insert(now)) > STUCK_NS {
            let errno = rustix::io::Errno::TIMEDOUT;
            self.broken = Some(XdpError::Refused { what: "a frame on its way to its place", errno });
        }
        false
    }

    /// Gives the ring up for good. Whether the kernel writes nowhere any more.
    ///
    /// Its socket is closed a little later, for others watch it; and the kernel does not say when a program has run for
    /// the last time. But a frame goes from the program to its place in one go, within which the kernel's readers of
    /// shared data do not rest; and this call of `membarrier` waits until all of them have.
    pub(super) fn give_up(&mut self) -> bool {
        let Some(cut) = &mut self.cut else { return true };
        cut.close();
        let (waits, errno) = (cut.waits, rustix::io::Errno::IO);
        self.broken.get_or_insert(XdpError::Refused { what: "more frames for a ring that is given up", errno });
        let queue = self.xsk.settings().queue;
        let cleared = self.rings.as_ref().is_none_or(|rings| rings.clear(queue).is_ok());
        cleared && waits()
    }

    /// As if the kernel refused from now on what is waited by.
    #[cfg(test)]
    pub(crate) fn refuse_to_wait(&mut self) {
        self.cut.iter_mut().for_each(|cut| cut.waits = || false);
    }

    /// The next frame that has landed; unless `all`, if no frame that came before it lies aside.
    #[inline]
    pub(crate) fn landed(&mut self, all: bool) -> Option<Landed> {
        if self.broken.is_some() || !self.xsk.has_frames() {
            return None;
        }
        self.cut.as_mut()?.landed(&mut self.xsk, all).unwrap_or_else(|error| {
            self.broken = Some(error);
            None
        })
    }

    /// Bytes that have landed, to be copied.
    pub(crate) fn landed_bytes(&mut self, landed: &Landed) -> &[u8] {
        self.memory.frame(landed.at, landed.bytes)
    }

    /// The next frame that was put aside, if there is one: the body of a datagram, and who has sent it, as it says. It
    /// stays there until [`XdpRing::done_aside`].
    #[inline]
    pub(crate) fn aside(&mut self) -> Option<(SocketAddrV4, &mut [u8])> {
        if self.broken.is_some() {
            return None;
        }
        let Self { cut, local, strays, .. } = self;
        let cut = cut.as_mut()?;
        while let Some(frame) = cut.aside() {
            if parse(frame).is_some_and(|(_, to, _)| to == *local) {
                break;
            }
            *strays += 1;
            cut.done_aside();
        }
        cut.aside().and_then(parse).map(|(from, _, body)| (from, body))
    }

    /// Done with the frame that was put aside. `taken` says whether it was taken in.
    #[inline]
    pub(crate) fn done_aside(&mut self, taken: bool) {
        self.strays += u64::from(!taken);
        self.cut.iter_mut().for_each(Cut::done_aside);
    }

    pub(super) fn take_asides(&mut self, most: usize, each: &mut dyn FnMut(SocketAddr, &mut [u8])) -> usize {
        let mut taken = 0;
        while let Some((from, body)) = self.aside().filter(|_| taken < most) {
            each(from.into(), body);
            self.done_aside(true);
            taken += 1;
        }
        taken
    }

    /// The endpoint sleeps from now on, and is woken by its socket. False if something has come.
    pub(crate) fn doze(&self) -> bool {
        self.cut.as_ref().is_none_or(Cut::doze) && !self.has_frames()
    }

    /// The endpoint looks after its rings again.
    #[inline]
    pub(crate) fn wake(&self) {
        self.cut.iter().for_each(Cut::wake);
    }
}

#[cfg(test)]
mod tests;
