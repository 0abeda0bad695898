//! Senders that stand still in the middle of a payload which goes to its place by itself: nobody waits for it in a call
//! that has an end, so the deadline is looked after from time to time.

use cutthrough_engine::time::Instant;
use cutthrough_wire::layout::Line;

use super::Front;
use crate::shm::link::{CloseReason, Link};

/// Where the sender was when it was looked at, of which payload, and since when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Still {
    ticket: u64,
    staged: u64,
    since: Instant,
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
        let since = self.inbox.still.filter(same).map_or(now, |still| still.since);
        self.inbox.still = Some(Still { ticket, staged, since });
        let deadline = u64::try_from(self.deadline.as_nanos()).unwrap_or(u64::MAX);
        if now.saturating_since(since) >= deadline {
            self.end(CloseReason::Stalled);
            return None;
        }
        Some(since.after(deadline))
    }
}
