//! Memory in which the payloads of an endpoint's channels land, so that a ring may have them land where they belong.
//!
//! It is address space that nothing has touched, until payloads land there. So channels have their landing memory in it
//! from their beginning, though it turns out later whether a ring that places payloads is worth its cost: that one is
//! opened in this memory then, and locks what it may write to. What payloads have touched goes back to the system when
//! its channel is over, but for what is locked: that goes with the endpoint, and the next channel has it until then.

use std::sync::{Arc, Weak};

use cutthrough_segment::map::{Mapping, Writers};
use cutthrough_segment::page::Ground;
use cutthrough_segment::sync::{Ordering, fence};

use crate::raw::xdp::{XdpRing, pages_at};
use crate::sys::xdp::{Interface, Memory, XdpError};

/// Bytes of landing memory that are locked, where there is more than one channel's; and parts of it at most.
const LANDING_BYTES: u64 = 16 << 20;
const LOTS: u64 = 16;

/// The memory, in parts of which each is the landing memory of one channel.
#[derive(Debug)]
pub(super) struct Lots {
    mapping: Arc<Mapping>,
    /// Where the parts begin, how long each is, and who has them.
    base: u64,
    bytes: u64,
    held: Vec<Lot>,
    /// All of it, for a ring that is opened later.
    reserve: Option<Memory>,
}

/// The landing memory of one channel.
#[derive(Debug, Default)]
struct Lot {
    /// Who has it: what lands there, and what is handed over.
    by: [Weak<Ground>; 2],
    /// Whether somebody has had it since it was given back to the system.
    touched: bool,
}

impl Lot {
    fn is_free(&self) -> bool {
        let is_free = self.by.iter().all(|ground| ground.strong_count() == 0);
        // SYNC POINT lot: whoever dropped the last handle has used the memory before. To drop it is the release.
        fence(Ordering::Acquire);
        is_free
    }
}

/// How many parts of so many bytes there are.
fn count(bytes: u64) -> u64 {
    (LANDING_BYTES / bytes).clamp(1, LOTS)
}

impl Lots {
    fn new(mapping: Arc<Mapping>, base: u64, bytes: u64, reserve: Option<Memory>) -> Self {
        let mut held = Vec::new();
        held.resize_with(usize::try_from(count(bytes)).unwrap_or(1), Default::default);
        Self { mapping, base, bytes, held, reserve }
    }

    /// Parts of `bytes` bytes, in the memory of a ring that [`Lots::ring`] opens later.
    pub(super) fn reserve(interface: &Interface, bytes: u64) -> Result<Self, XdpError> {
        let (base, all) = pages_at(interface.mtu, count(bytes) * bytes);
        // Nobody else has its file. Pages that only the maker may write could not be given back.
        let memory = Memory::new(all, Writers::Both)?;
        Ok(Self::new(Arc::clone(memory.mapping()), base, bytes, Some(memory)))
    }

    /// The pages of a ring with [`Lots::bytes_for`] that is there already.
    pub(super) fn of(ring: &mut XdpRing, bytes: u64) -> Self {
        let (memory, base) = ring.pages();
        Self::new(Arc::clone(memory.mapping()), base, bytes, None)
    }

    /// Bytes of pages that a ring has for parts of so many bytes.
    pub(super) fn bytes_for(bytes: u64) -> u64 {
        count(bytes) * bytes
    }

    /// Whether a ring can be opened later.
    pub(super) const fn has_reserve(&self) -> bool {
        self.reserve.is_some()
    }

    /// What a ring that places payloads needs, to be opened elsewhere; nothing if there can be none.
    pub(super) fn wanted(&self) -> Option<Wanted> {
        let memory = self.reserve.as_ref()?;
        memory.first(memory.bytes()).ok().map(|memory| Wanted { memory, base: self.base, pages: self.locked() })
    }

    /// Bytes that the ring may write to: not all of a part that is very long.
    fn locked(&self) -> u64 {
        (self.held.len() as u64 * self.bytes).min(LANDING_BYTES)
    }

    /// Whether these bytes lie where the ring may write.
    pub(super) fn holds(&self, bytes: &[u8]) -> bool {
        let base = self.mapping.address(0, 0).addr();
        let at = bytes.as_ptr().addr().checked_sub(base).and_then(|at| u64::try_from(at).ok());
        let end = self.base + self.locked();
        !bytes.is_empty() && at.is_some_and(|at| at >= self.base && at + bytes.len() as u64 <= end)
    }

    /// The landing memory of one channel, if there is any left: `grounds` makes of it what the channel holds, and all
    /// that lands there.
    pub(super) fn take(
        &mut self,
        grounds: impl FnOnce((Arc<Mapping>, u64)) -> [Arc<Ground>; 2],
    ) -> Option<[Arc<Ground>; 2]> {
        let free = self.held.iter().position(Lot::is_free)?;
        let made = grounds((Arc::clone(&self.mapping), self.base + free as u64 * self.bytes));
        self.held[free] = Lot { by: [Arc::downgrade(&made[0]), Arc::downgrade(&made[1])], touched: true };
        Some(made)
    }

    /// Gives parts back to the system that nobody has any more, but for what a ring has `locked`.
    pub(super) fn tidy(&mut self, locked: bool) {
        // A ring needs a page more than it has payloads land in.
        let until = if locked { self.base + self.locked() + 4096 } else { 0 };
        let Some(memory) = &mut self.reserve else { return };
        for (number, lot) in (0..).zip(&mut self.held).filter(|(_, lot)| lot.touched && lot.is_free()) {
            let (begin, end) = (self.base + number * self.bytes, self.base + (number + 1) * self.bytes);
            let from = begin.max(until);
            if from < end {
                memory.let_go(from, end - from);
            }
            lot.touched = from > begin;
        }
    }
}

/// A ring that is to place payloads.
#[derive(Debug)]
pub(super) struct Wanted {
    memory: Memory,
    base: u64,
    pages: u64,
}

impl Wanted {
    /// Opens it at an interface.
    pub(super) fn open(
        &self,
        interface: &Interface,
        local: std::net::SocketAddrV4,
        at: (u32, Option<crate::sys::xdp::Mode>),
    ) -> Result<XdpRing, XdpError> {
        if pages_at(interface.mtu, self.pages).0 != self.base {
            let errno = rustix::io::Errno::INVAL;
            return Err(XdpError::Refused { what: "landing memory made for frames of another length", errno });
        }
        XdpRing::open_placing_in(interface, local, at, &self.memory, self.pages)
    }
}

#[cfg(test)]
mod tests {
    use cutthrough_segment::page::Shelf;

    use super::*;
    use crate::sys::xdp::socket::pages_of;

    const PAGE: u32 = 4096;

    fn lots(bytes: u64) -> Lots {
        let interface = Interface::made_up();
        Lots::reserve(&interface, bytes).unwrap()
    }

    fn take(lots: &mut Lots) -> Option<[Arc<Ground>; 2]> {
        lots.take(|memory| {
            let ground = Ground::new(memory, PAGE, Arc::new(Shelf::default()));
            let handed = Ground::share(&ground, Arc::new(Shelf::default()));
            [ground, handed]
        })
    }

    /// Bytes of memory that the system has given for it.
    fn used(lots: &Lots) -> u64 {
        let stat = rustix::fs::fstat(lots.reserve.as_ref().unwrap().file()).unwrap();
        u64::try_from(stat.st_blocks).unwrap() * 512
    }

    /// Writes to the last pages of a part, and says whether a ring could have written there.
    fn touch(lots: &Lots, ground: &Arc<Ground>, pages: u32) -> bool {
        let mut pages = pages_of(Arc::clone(ground), pages);
        let mut all = pages.take(usize::try_from(lots.bytes).unwrap()).unwrap();
        let end = all.len() - 2 * PAGE as usize;
        all[end..].fill(1);
        lots.holds(&all[end..])
    }

    #[test]
    fn memory_is_the_systems_until_payloads_land_there_and_when_its_channel_is_over() {
        let mut lots = lots(4 << 20);
        let taken: Vec<_> = std::iter::from_fn(|| take(&mut lots)).collect();
        assert_eq!((taken.len(), used(&lots)), (4, 0));
        assert!(taken.iter().all(|[ground, _]| touch(&lots, ground, 1024)));
        assert_eq!(used(&lots), 4 * 2 * u64::from(PAGE));
        lots.tidy(false);
        assert_eq!(used(&lots), 4 * 2 * u64::from(PAGE));
        let mut taken = taken;
        taken.pop();
        lots.tidy(false);
        assert_eq!(used(&lots), 3 * 2 * u64::from(PAGE));
        // What is locked stays, and goes when the ring is gone.
        drop(taken);
        lots.tidy(true);
        assert_eq!(used(&lots), 3 * 2 * u64::from(PAGE));
        lots.tidy(false);
        assert_eq!(used(&lots), 0);
        assert!(take(&mut lots).is_some());
    }

    #[test]
    fn of_a_long_part_only_the_beginning_is_locked() {
        let mut lots = lots(64 << 20);
        let taken = take(&mut lots).unwrap();
        assert!(take(&mut lots).is_none());
        assert!(!touch(&lots, &taken[0], 16 << 10));
        assert_eq!(lots.wanted().map(|wanted| (wanted.pages, wanted.base)), Some((LANDING_BYTES, lots.base)));
        drop(taken);
        lots.tidy(true);
        assert_eq!(used(&lots), 0);
    }
}
