//! The last of a channel whose peer has gone: what lies in the staging ring is taken out of it, for the ring goes, too.

use cutthrough_engine::check::{self, Breach};
use cutthrough_wire::layout::Line;

use super::{Aside, Front, Goes};
use crate::incoming::{Incoming, zeros};
use crate::shm::link::Link;
use crate::stat::Stat;

impl Link {
    /// Sets the front aside if all of it has arrived. A message that had to wait for that is the next to be delivered.
    ///
    /// # Errors
    /// The [`Breach`] of the peer.
    #[cold]
    pub fn settle(&mut self, stat: &Stat) -> Result<Option<Incoming>, Breach> {
        if self.disbelieved() {
            return Ok(None);
        }
        self.set_whole_aside()?;
        let mut arrival = self.pump(stat)?;
        if arrival.is_none()
            && self.inbox.front.is_none()
            && let Some((control, header)) = self.inbox.held.take()
        {
            arrival = self.begin(control, header, stat)?;
        }
        self.inbox.mark();
        Ok(arrival)
    }

    /// From now on the front goes aside, if it was waiting for its reader and lies in the ring to its end. However much
    /// lies aside already: it is at most a ring full.
    fn set_whole_aside(&mut self) -> Result<(), Breach> {
        let inbox = &mut self.inbox;
        let Some(Front { base, len, moved, goes, .. }) = inbox.front.as_mut() else { return Ok(()) };
        if inbox.staged < *base + *len {
            let (staged, drained) = (self.peer.get(Line::Staged), *base + *moved);
            inbox.staged = check::staged(inbox.staged, staged, drained, inbox.staging.lap())?;
        }
        if matches!(goes, Goes::Reader) && inbox.staged >= *base + *len {
            let from = usize::try_from(*moved).unwrap_or(0);
            let rest = usize::try_from(*len - *moved).unwrap_or(0);
            if let Some(place) = zeros(rest) {
                *goes = Goes::Aside(from, place);
                inbox.tried = None;
            }
        }
        Ok(())
    }

    /// Payloads that have arrived whole, and whose readers have not come for them yet, with their tickets: none of a
    /// peer that is not believed any more.
    pub fn take_aside(&mut self) -> Vec<(u64, Aside)> {
        if self.disbelieved() { Vec::new() } else { self.inbox.aside.take_all() }
    }
}
