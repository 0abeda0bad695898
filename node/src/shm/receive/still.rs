//! Senders that stand still in the middle of a payload which goes to its place by itself: nobody waits for it in a call
//! that has an end, so the deadline is looked after from time to time.

use cutthrough_engine::time::Instant;
use cutthrough_wire::layout::Line;

use super::Front;
use crate::shm::link::{CloseReason, Link};
use crate::stall::Stall;

/// Where the sender was when it was looked at, of which payload, and for how long it has been there.
#[derive(Debug)]
pub(super) struct Still {
    ticket: u64,
    staged: u64,
    stall: Stall,
}

impl Link {
    /// Whether more has come of the payload that is being read than its reader has seen.
    pub(crate) fn has_more(&self) -> bool {
        self.peer.get(Line::Staged) != self.inbox.staged
    }

    /// Whether a payload that goes to its place by itself has not come to its end.
    pub(crate) fn is_midway(&self) -> bool {
        self.inbox.goes_by_itself()
    }

    /// Ends the channel, if its sender has stood still in the middle of such a payload for the deadline; says when to
    /// look again, if there is one.
    pub(crate) fn look_after_payload(&mut self, now: Instant) -> Option<Instant> {
        let Some(&Front { ticket, .. }) = self.inbox.front.as_ref().filter(|_| self.is_midway()) else {
            self.inbox.still = None;
            return None;
        };
        let staged = self.peer.get(Line::Staged);
        // While this side has something to do itself, nobody waits for the sender.
        let waits = !self.inbox.bytes_wait(&self.peer);
        let same = |still: &Still| waits && (still.ticket, still.staged) == (ticket, staged);
        let before = self.inbox.still.take().filter(same);
        let mut stall = before.map_or_else(|| Stall::new(self.deadline, now), |still| still.stall);
        let due = stall.due(now);
        self.inbox.still = Some(Still { ticket, staged, stall });
        if due.is_none() {
            self.end(CloseReason::Stalled);
        }
        due
    }
}
