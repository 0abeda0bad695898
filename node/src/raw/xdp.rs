//! The ring of AF_XDP: the kernel's stack is left out, and frames lie in memory of our own.
//!
//! A strip of buffers takes frames in, in order, and goes back to the kernel in the same order; so the parts of a frame
//! that is longer than a buffer lie one behind the other, and it is handed up where it lies. Another strip takes what
//! is sent. That is placement by copy: whoever gets a frame takes what it wants out of it. A ring can cut payloads free
//! instead, and have them land where they belong: see `cut`.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use cutthrough_engine::time::Instant;
use cutthrough_segment::map::Writers;

use self::cut::Cut;
use super::cursor::Cursor;
use super::envelope::{self, ENVELOPE_BYTES, Envelope};
use super::{Hop, Ring, RingCounts, unpadded};
use crate::sys::xdp::bpf::{Program, Rings, SharedMemory, processors};
use crate::sys::xdp::dispatcher::{Dispatcher, QUEUES, Seat};
use crate::sys::xdp::placing::{Slots, placing};
use crate::sys::xdp::program::{LINK_BYTES, Ours, redirect};
use crate::sys::xdp::{Descriptor, Interface, Memory, Mode, PATIENCE, Settings, XdpError, Xsk};

pub(crate) mod cut;
pub mod fragments;
mod in_place;
pub mod lease;
mod pages;
mod plan;
pub mod raw;
#[cfg(feature = "simulated")]
mod simulated;
pub mod stream;

pub use cutthrough_engine::place_ring as place;
pub(crate) use in_place::{Flights, Site};
use plan::{ENTRIES, Plan};
pub(crate) use plan::{PAGES_ALIGN, pages_at};

/// Most parts of a frame: what a frame of 65,535 bytes needs, and the kernel sends.
const PARTS_MAX: u32 = 17;

/// The ring of one queue.
#[derive(Debug)]
pub(crate) struct XdpRing {
    /// The program and its maps stay as long as this lives. It goes before the socket.
    seat: Seat,
    xsk: Xsk,
    memory: Memory,
    plan: Plan,
    /// Nothing where another process has opened the ring: the program holds the map.
    rings: Option<Rings>,
    interface: Interface,
    mode: Mode,
    declined: Vec<(Mode, XdpError)>,
    local: SocketAddrV4,
    /// Which places the kernel has, and those for which it had no room when they were given back, in order: it says
    /// late that it has taken others.
    offered: Vec<bool>,
    owed: VecDeque<u32>,
    /// Places to send from that are free, and how many parts of the others the kernel still has.
    free: Vec<u32>,
    under_way: Vec<u32>,
    /// Parts of pages that the kernel still has to send.
    flights: Arc<Flights>,
    /// Room for a frame whose parts do not lie one behind the other.
    aside: Vec<u8>,
    /// Number of the last datagram that was sent in fragments.
    fragmented: u16,
    strays: u64,
    refused: u64,
    broken: Option<XdpError>,
    /// Where payloads are cut free: the register and what comes by it; since when it waits to be quiet.
    cut: Option<Cut>,
    waits: Option<Instant>,
    leaves_padding: bool,
}

/// Why no frames come to a ring whose program somebody else has taken off the interface.
const TAKEN_OFF: &str = "its XDP program was taken off the interface";

/// How payloads get from the ring to where they belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// They are copied.
    Copy,
    /// They are copied, and the datagrams of sockets too come by the ring.
    All,
    /// They are copied, by another process, to which the ring is passed.
    Lent,
    /// The register cuts them free, and they land there.
    Cut,
}

/// Which modes are tried at an interface, in this order.
const fn modes(wanted: Option<Mode>, is_virtual: bool, way: Way) -> &'static [Mode] {
    match (wanted, way) {
        (Some(Mode::ZeroCopy), _) => &[Mode::ZeroCopy],
        (Some(Mode::Native), _) => &[Mode::Native],
        (Some(Mode::Generic), _) => &[Mode::Generic],
        (None, _) if is_virtual => &[Mode::Generic],
        // Zero copy has the hardware write all frames of the queue into the ring's memory, before any program has
        // looked at them: whoever has a ring without rights could read and change what comes for others.
        (None, Way::Cut | Way::Lent) => &[Mode::Native, Mode::Generic],
        (None, Way::Copy | Way::All) => &[Mode::ZeroCopy, Mode::Native, Mode::Generic],
    }
}

impl XdpRing {
    /// Takes the datagrams of other rings for `local` that come on `queue` of an interface, in this mode, or in the
    /// best one that the interface has: zero-copy, native, generic; generic only on interfaces that are software, and
    /// on those whose driver has programs run at others below them. `pages` bytes of its memory are for payloads that
    /// are sent in place.
    ///
    /// # Errors
    /// [`XdpError`], of the last mode that was tried.
    pub(crate) fn open(
        interface: &Interface,
        local: SocketAddrV4,
        queue: u32,
        mode: Option<Mode>,
        pages: u64,
    ) -> Result<Self, XdpError> {
        Self::open_within(interface, local, (queue, mode), pages, PATIENCE)
    }

    /// As [`XdpRing::open`], but waits for so long where another one has just been.
    ///
    /// # Errors
    /// As [`XdpRing::open`].
    pub(crate) fn open_within(
        interface: &Interface,
        local: SocketAddrV4,
        at: (u32, Option<Mode>),
        pages: u64,
        patience: Duration,
    ) -> Result<Self, XdpError> {
        Self::open_for(interface, local, at, (Way::Copy, pages), None, patience)
    }

    /// As [`XdpRing::open`], but takes the datagrams that sockets have sent too, and keeps the order of neither.
    ///
    /// # Errors
    /// As [`XdpRing::open`].
    fn open_to_all(
        interface: &Interface,
        local: SocketAddrV4,
        mode: Option<Mode>,
        pages: u64,
    ) -> Result<Self, XdpError> {
        Self::open_for(interface, local, (0, mode), (Way::All, pages), None, PATIENCE)
    }

    /// As [`XdpRing::open`], but the payloads of datagrams can be cut free and land in the user's pages, where
    /// [`XdpRing::aim`] is told. Not in zero-copy mode: hardware uses places in their order, whatever comes.
    ///
    /// # Errors
    /// As [`XdpRing::open`].
    pub(crate) fn open_placing(
        interface: &Interface,
        local: SocketAddrV4,
        queue: u32,
        mode: Option<Mode>,
        pages: u64,
    ) -> Result<Self, XdpError> {
        Self::open_for(interface, local, (queue, mode), (Way::Cut, pages), None, PATIENCE)
    }

    /// As [`XdpRing::open_placing`], in memory that is there already: the user's pages are those that begin where
    /// [`pages_at`] says. Nobody else uses what lies before them.
    ///
    /// # Errors
    /// As [`XdpRing::open`], and if it is too little memory.
    pub(crate) fn open_placing_in(
        interface: &Interface,
        local: SocketAddrV4,
        at: (u32, Option<Mode>),
        memory: &Memory,
        pages: u64,
    ) -> Result<Self, XdpError> {
        Self::open_for(interface, local, at, (Way::Cut, pages), Some(memory), PATIENCE)
    }

    /// As [`XdpRing::open`], but to be passed to another process; this one does not use it.
    ///
    /// # Errors
    /// As [`XdpRing::open`].
    fn open_lent(interface: &Interface, local: SocketAddrV4, queue: u32, mode: Option<Mode>) -> Result<Self, XdpError> {
        Self::open_for(interface, local, (queue, mode), (Way::Lent, 0), None, PATIENCE)
    }

    fn open_for(
        interface: &Interface,
        local: SocketAddrV4,
        (queue, wanted): (u32, Option<Mode>),
        (way, pages): (Way, u64),
        memory: Option<&Memory>,
        patience: Duration,
    ) -> Result<Self, XdpError> {
        let modes = modes(wanted, interface.is_virtual, way);
        let mut declined = Vec::new();
        for (at, mode) in modes.iter().enumerate() {
            match Self::try_open(interface, local, (queue, *mode), (way, pages), memory, patience) {
                Ok(mut ring) => {
                    ring.declined = declined;
                    return Ok(ring);
                }
                // Rings that are at the interface already run in one mode, and so have all others.
                Err(error @ XdpError::OtherMode { there, .. }) if wanted.is_none() => {
                    declined.push((*mode, error));
                    let mut ring = Self::try_open(interface, local, (queue, there), (way, pages), memory, patience)?;
                    ring.declined = declined;
                    return Ok(ring);
                }
                Err(
                    error @ (XdpError::Unsupported { .. }
                    | XdpError::Below { .. }
                    | XdpError::Mtu { .. }
                    | XdpError::Refused { .. }),
                ) if at + 1 < modes.len() => declined.push((*mode, error)),
                Err(error) => return Err(error),
            }
        }
        unreachable!("there is a last mode");
    }

    fn try_open(
        interface: &Interface,
        local: SocketAddrV4,
        (queue, mode): (u32, Mode),
        (way, pages): (Way, u64),
        memory: Option<&Memory>,
        patience: Duration,
    ) -> Result<Self, XdpError> {
        if queue >= interface.queues.min(QUEUES) {
            let queues = interface.queues.min(QUEUES);
            return Err(XdpError::NoQueue { interface: interface.name.clone(), queue, queues });
        }
        let frame_max = interface.mtu + LINK_BYTES;
        let plan = Plan::of(frame_max, pages);
        // Header and payload in two parts need scatter lists too; without them (before Linux 6.6) they are copied.
        let settings = Settings {
            queue,
            mode,
            buffer_bytes: plan.buffer,
            unaligned: plan.scattered || way == Way::Cut,
            scatter: true,
            entries: ENTRIES,
        };
        let writers = if way == Way::Lent { Writers::Both } else { Writers::Maker };
        let memory = memory.map_or_else(|| Memory::new(plan.end, writers), |memory| memory.first(plan.end))?;
        let rings = Rings::new(interface.queues)?;
        let ours = Ours { local, frame_max, of_rings: way != Way::All };
        // The socket first: it cannot receive before the map knows it, and a program that is there alone passes all on.
        let mut xsk = match Xsk::open_within(interface, &memory, settings, patience) {
            Err(XdpError::Refused { .. } | XdpError::Unsupported { .. }) if !plan.scattered => {
                Xsk::open_within(interface, &memory, Settings { scatter: false, ..settings }, patience)?
            }
            opened => opened?,
        };
        let mut cut = None;
        let program = match way {
            Way::Copy | Way::All | Way::Lent => Program::load(&redirect(&ours, rings.number()))?,
            Way::Cut => {
                let slots = Slots::of(frame_max, processors());
                let shared = SharedMemory::new(usize::try_from(slots.shared_bytes()).unwrap_or(usize::MAX))?;
                let code = placing(&ours, queue, slots, rings.number(), shared.number());
                cut = Some(Cut::new(shared, slots, plan.buffer));
                Program::load(&code)?
            }
        };
        let dispatcher = Dispatcher::enter(interface, mode, patience)?;
        if way != Way::Cut {
            for slot in 0..ENTRIES {
                xsk.offer(plan.place_of(slot))?;
            }
            xsk.post();
        }
        rings.set(queue, xsk.as_fd())?;
        let seat = dispatcher.seat(queue, &program, xsk.as_fd())?;
        Ok(Self { rings: Some(rings), cut, ..Self::over((xsk, memory, plan), seat, interface, mode, local) })
    }

    /// Over a socket that has just been opened, with all places to receive in offered, or none ever.
    fn over(
        (xsk, memory, plan): (Xsk, Memory, Plan),
        seat: Seat,
        interface: &Interface,
        mode: Mode,
        local: SocketAddrV4,
    ) -> Self {
        let slots = plan.send_slots as usize;
        Self {
            seat,
            xsk,
            memory,
            plan,
            rings: None,
            interface: interface.clone(),
            mode,
            declined: Vec::new(),
            local,
            offered: vec![true; ENTRIES as usize],
            owed: VecDeque::new(),
            free: (0..plan.send_slots).rev().collect(),
            under_way: vec![0; slots],
            flights: Arc::new(Flights::new(plan.pages, plan.pages_end)),
            aside: Vec::new(),
            fragmented: 0,
            strays: 0,
            refused: 0,
            broken: None,
            cut: None,
            waits: None,
            leaves_padding: false,
        }
    }

    /// Where the program runs.
    pub(crate) const fn mode(&self) -> Mode {
        self.mode
    }

    /// Which better modes were tried, and why they are not used.
    pub(crate) fn declined(&self) -> &[(Mode, XdpError)] {
        &self.declined
    }

    /// The memory of the ring, and where in it the user's pages begin.
    pub(crate) fn pages(&mut self) -> (&mut Memory, u64) {
        (&mut self.memory, self.plan.pages)
    }

    fn check(&self, hop: &Hop, (body, frames): (usize, usize)) -> io::Result<()> {
        if let Some(error) = &self.broken {
            return Err(io::Error::other(error.to_string()));
        }
        let fits = body <= self.body_max() && frames <= self.plan.send_slots as usize;
        if !fits || hop.interface() != self.interface.index {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(())
    }

    /// Puts one frame into the ring. There is room for it.
    fn put(
        &mut self,
        hop: &Hop,
        slot: u32,
        cursor: &mut Cursor<'_, '_>,
        (whole, last): (usize, bool),
    ) -> Result<(), XdpError> {
        let body = unpadded(cursor.next_part(), whole, self.leaves_padding && !last);
        let bytes = ENVELOPE_BYTES + body;
        let place = self.plan.send_base + u64::from(slot) * self.plan.send_stride;
        let frame = self.memory.frame(place, bytes);
        let (envelope, rest) = frame.split_at_mut(ENVELOPE_BYTES);
        envelope.copy_from_slice(&Envelope::write(hop, body));
        cursor.copy_to(rest);
        cursor.skip(whole - body);
        let mut sent = 0;
        while sent < bytes {
            let part = (bytes - sent).min(self.plan.buffer as usize);
            let at = place + sent as u64;
            sent += part;
            self.under_way[slot as usize] += 1;
            self.xsk.put(Descriptor { at, bytes: u32::try_from(part).unwrap_or(u32::MAX), more: sent < bytes })?;
        }
        Ok(())
    }

    /// Has the kernel send what was put into the ring, the last so many frames of which are new.
    fn hand_over(&mut self, frames: usize) -> io::Result<bool> {
        self.xsk.kick().map(|()| true).map_err(|error| {
            self.refused += frames as u64;
            error.into()
        })
    }

    fn try_receive(&mut self, most: usize, each: &mut dyn FnMut(SocketAddr, &mut [u8])) -> Result<usize, XdpError> {
        let arrived = self.xsk.arrived()?;
        let (mut seen, mut frames) = (0, 0);
        while frames < most {
            // How many parts the next frame has, if all of it is there.
            let left = arrived - seen;
            let parts = match (0..left).find(|at| self.xsk.peek(*at).is_none_or(|part| !part.more)) {
                Some(last) => last + 1,
                // The kernel shows a frame with all of its parts. More parts than that are none.
                None if left > PARTS_MAX => left,
                None => break,
            };
            seen += parts;
            frames += 1;
            self.hand_up(parts, each)?;
        }
        if frames > 0 {
            self.xsk.release();
            self.xsk.post();
        }
        Ok(frames)
    }

    /// Takes one frame of so many parts out of the ring, hands it up if it is for us, and gives its buffers back.
    fn hand_up(&mut self, parts: u32, each: &mut dyn FnMut(SocketAddr, &mut [u8])) -> Result<(), XdpError> {
        let mut run: Option<(u64, usize)> = None;
        let (mut trusted, mut scattered) = (true, false);
        let mut slots = [0; PARTS_MAX as usize + 1];
        let mut taken = 0;
        self.aside.clear();
        for _ in 0..parts {
            let Some(part) = self.xsk.take() else { break };
            let (at, bytes) = (part.at, part.bytes as usize);
            let slot = self.plan.slot_of(at).filter(|slot| self.offered[*slot as usize]);
            // A buffer that the kernel does not have, or one too many: nothing of that frame is believed.
            let (Some(slot), Some(place)) = (slot, slots.get_mut(taken)) else {
                trusted = false;
                continue;
            };
            self.offered[slot as usize] = false;
            *place = slot;
            taken += 1;
            run = match run {
                None => Some((at, bytes)),
                Some((first, length)) if !scattered && first + length as u64 == at => Some((first, length + bytes)),
                Some((first, length)) => {
                    // The strip has an end: a frame that lies across it is joined aside.
                    if !scattered {
                        self.aside.extend_from_slice(self.memory.frame(first, length));
                        scattered = true;
                    }
                    self.aside.extend_from_slice(self.memory.frame(at, bytes));
                    Some((first, length))
                }
            };
        }
        if let Some((at, bytes)) = run.filter(|_| trusted) {
            let frame = if scattered { &mut self.aside[..] } else { self.memory.frame(at, bytes) };
            match envelope::parse(frame) {
                Some((from, to, body)) if to == self.local => each(from.into(), body),
                _ => self.strays += 1,
            }
        } else {
            self.strays += 1;
        }
        self.owed.extend(&slots[..taken]);
        while let Some(slot) = self.owed.front().copied() {
            if !self.xsk.offer(self.plan.place_of(slot))? {
                break;
            }
            self.offered[slot as usize] = true;
            self.owed.pop_front();
        }
        Ok(())
    }
}

impl Ring for XdpRing {
    fn body_max(&self) -> usize {
        (self.interface.mtu as usize + LINK_BYTES as usize - ENVELOPE_BYTES).min(envelope::BODY_MAX)
    }

    fn holds(&self) -> usize {
        let buffers = (self.body_max() + ENVELOPE_BYTES).div_ceil(self.plan.buffer as usize);
        ENTRIES as usize / buffers.max(1)
    }

    fn receive(&mut self, most: usize, each: &mut dyn FnMut(SocketAddr, &mut [u8])) -> usize {
        if self.broken.is_some() {
            return 0;
        }
        if self.cut.is_some() {
            return self.take_asides(most, each);
        }
        self.try_receive(most, each).unwrap_or_else(|error| {
            self.broken = Some(error);
            0
        })
    }

    fn has_frames(&self) -> bool {
        self.broken.is_none() && (self.xsk.has_frames() || self.cut.as_ref().is_some_and(Cut::has_aside))
    }

    fn placing(&mut self) -> Option<&mut XdpRing> {
        (self.cut.is_some() && self.broken.is_none()).then_some(self)
    }

    fn is_zero_copy(&self) -> bool {
        self.mode == Mode::ZeroCopy
    }

    fn stop(&self) {
        // If the kernel refuses that, they are lost with the ring, and sent again.
        let _ = self.rings.as_ref().map(|rings| rings.clear(self.xsk.settings().queue));
    }

    fn failed(&self) -> Option<io::Error> {
        let failed = super::socket_failed(self.watched()).map(io::Error::from);
        failed.or_else(|| self.seat.is_off().then(|| io::Error::other(TAKEN_OFF)))
    }

    fn broken(&self) -> Option<String> {
        self.broken.as_ref().map(ToString::to_string)
    }

    fn retire(&mut self) -> bool {
        self.give_up()
    }

    fn send(&mut self, hop: &Hop, parts: &[IoSlice<'_>], segment: usize) -> io::Result<bool> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let segment = segment.clamp(1, total.max(1));
        let frames = total.div_ceil(segment).max(1);
        self.check(hop, (segment, frames))?;
        self.reclaim()?;
        let each = (ENVELOPE_BYTES + segment).div_ceil(self.plan.buffer as usize);
        if self.free.len() < frames || (self.xsk.room()? as usize) < frames * each {
            // What the kernel has left in the ring goes first.
            self.xsk.kick()?;
            return Ok(false);
        }
        let mut cursor = Cursor::new(parts);
        for number in 0..frames {
            let Some(slot) = self.free.pop() else { break };
            self.put(hop, slot, &mut cursor, (segment.min(total - number * segment), number + 1 == frames))?;
        }
        self.hand_over(frames)
    }

    fn send_pages(&mut self, hop: &Hop, parts: &[IoSlice<'_>], segment: usize, borrowed: &[u8]) -> io::Result<bool> {
        if self.gathers() { self.send_gathered(hop, parts, segment, borrowed) } else { self.send(hop, parts, segment) }
    }

    fn site(&self) -> Option<Site> {
        self.site_of_pages()
    }

    fn leave_padding(&mut self) {
        self.leaves_padding = true;
    }

    fn leaves(&self) -> bool {
        self.xsk.leaves()
    }

    fn look_after_sent(&mut self) -> io::Result<()> {
        Ok(self.go_on_sending()?)
    }

    fn slots(&self) -> usize {
        self.plan.longest_at_once() as usize
    }

    fn room(&mut self) -> usize {
        let parts = usize::try_from(self.plan.send_stride / u64::from(self.plan.buffer)).unwrap_or(1);
        match self.reclaim().and_then(|()| self.xsk.room()) {
            Ok(room) => self.free.len().min(room as usize / parts),
            Err(_) => 0,
        }
    }

    fn watched(&self) -> BorrowedFd<'_> {
        self.xsk.as_fd()
    }

    fn counts(&mut self) -> RingCounts {
        let lost = self.xsk.losses();
        RingCounts { strays: self.strays, overflows: lost.overflows, refused: self.refused + lost.invalid }
    }
}

#[cfg(test)]
mod figures;
#[cfg(test)]
mod tests;
