//! Rings of hosts that are not there.

use std::net::SocketAddrV4;

use cutthrough_segment::map::Writers;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, dup};

use super::cut::Cut;
use super::plan::{ENTRIES, Plan};
use super::{LINK_BYTES, Memory, Mode, Ours, Seat, Settings, Slots, XdpError, XdpRing};
use crate::simulated::Host;
use crate::sys::xdp::Interface;
use crate::sys::xdp::simulated::{Loaded, socket};

/// How many processors look at what comes.
const PROCESSORS: u32 = 2;

impl XdpRing {
    /// As [`XdpRing::open_placing`], or as [`XdpRing::open`], at a host that is not there.
    ///
    /// # Errors
    /// [`XdpError`]: no memory.
    pub(crate) fn simulated(host: &Host, local: SocketAddrV4, places: bool, pages: u64) -> Result<Self, XdpError> {
        let interface = Interface::simulated(host);
        let frame_max = interface.mtu + LINK_BYTES;
        let plan = Plan::of(frame_max, pages);
        let settings = Settings {
            queue: 0,
            mode: Mode::Generic,
            buffer_bytes: plan.buffer,
            unaligned: plan.scattered || places,
            scatter: true,
            entries: ENTRIES,
        };
        // The kernel writes to it as everybody does who has the file.
        let memory = Memory::new(plan.end, Writers::Both)?;
        let ours = Ours { local, frame_max, of_rings: true };
        let slots = Slots::of(frame_max, PROCESSORS);
        let (loaded, cut) = if places {
            let (loaded, shared) = Loaded::placing(&ours, settings.queue, slots)?;
            (loaded, Some(Cut::new(shared, slots, plan.buffer)))
        } else {
            (Loaded::copying(&ours), None)
        };
        let refused = |errno: Errno| XdpError::Refused { what: "a simulated ring", errno };
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(refused)?;
        let [link, programs] = [dup(&bell).map_err(refused)?, dup(&bell).map_err(refused)?];
        let (mut xsk, ends) = socket(bell, &memory, settings)?;
        for slot in 0..if places { 0 } else { ENTRIES } {
            xsk.offer(plan.place_of(slot))?;
        }
        xsk.post();
        let xsk = xsk.at(host.kernel(ends, loaded));
        // Of these the kernel knows nothing, and says so.
        let seat = Seat::passed([link, programs], settings.queue);
        Ok(Self { cut, ..Self::over((xsk, memory, plan), seat, &interface, settings.mode, local) })
    }
}
