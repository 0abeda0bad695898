//! What the thread of a service goes by when it decides whether to look for what comes next, to sleep, or to leave the
//! node to others.

use std::time::Duration;

use cutthrough_engine::time::Instant;
use cutthrough_node::idle::Idle;
use cutthrough_node::node::SPIN_NS;

use super::serve::nanos;

/// How long the thread sleeps while others drive the node again and again.
pub(super) const PATROL: Duration = Duration::from_millis(1);

/// How long the thread looks for what comes next before it sleeps, after something has come, or somebody relies on it:
/// as long as an endpoint does that waits.
pub(super) struct Watch {
    /// Since when nothing has come.
    since: Instant,
    /// Whether it has looked long enough: once more after others had the core, since perhaps the peer waits for that.
    pub(super) is_over: bool,
    /// Whether it sleeps at once, because there is other work for its core, or it has looked so once more.
    pub(super) rests: bool,
    pub(super) idle: Idle,
}

impl Watch {
    pub(super) const fn new(now: Instant) -> Self {
        Self { since: now, is_over: false, rests: false, idle: Idle::new() }
    }

    /// Something has come, or somebody relies on the thread from now on.
    pub(super) const fn begin(&mut self, now: Instant) {
        (self.since, self.is_over) = (now, false);
        self.rests = self.idle.rests();
    }

    /// Nothing has come.
    pub(super) const fn go_on(&mut self, now: Instant) {
        self.is_over = now.saturating_since(self.since) >= SPIN_NS;
    }
}

/// Whether the node was used again and again of late.
#[derive(Default)]
pub(super) struct Lately {
    since: Instant,
    uses: u32,
}

impl Lately {
    /// It was used so many times since this was asked last.
    pub(super) fn is_often(&mut self, uses: u32, now: Instant) -> bool {
        if now.saturating_since(self.since) > nanos(PATROL) {
            (self.since, self.uses) = (now, 0);
        }
        self.uses = self.uses.saturating_add(uses);
        self.uses > 1
    }
}
