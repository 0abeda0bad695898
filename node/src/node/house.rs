//! Housekeeping: what is looked after from time to time, however much else there is to do.

use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_engine::time::Instant;

use super::Node;
use crate::clock;
use crate::shm::link::CloseReason;

/// Nanoseconds between two rounds of housekeeping while polling: who has come, who has gone. Sleepers hear of it at
/// once.
const HOUSE_NS: u64 = 20_000_000;
/// The same while a channel is being opened.
const HOUSE_CALLING_NS: u64 = 500_000;
/// Nanoseconds that a peer may take to say hello.
const HELLO_NS: u64 = 1_000_000_000;

impl Node {
    pub(super) const fn house_ns(&self) -> u64 {
        if self.calls.is_empty() { HOUSE_NS } else { HOUSE_CALLING_NS }
    }

    /// Looks after who has come and gone, and shows the state of the channels.
    pub(super) fn keep_house(&mut self) {
        self.stat.add(Counter::Housekeeping, 1);
        let _ = self.hear(0);
        for index in 0..self.seats.len() {
            if let Some(link) = self.seats[index].link.as_mut() {
                if let Err(breach) = link.tidy(&self.stat) {
                    link.end(CloseReason::Breach(breach));
                }
                link.show(&self.stat);
            }
        }
        self.show_net();
        if let Some(net) = &self.net {
            net.sets_aside();
        }
        self.left.tidy();
        let now = clock::now();
        self.look_after_payloads(now);
        // Of what is set aside while somebody waits for room nobody has been told.
        if self.events.is_empty() && self.wanting.is_none() {
            self.left.age_grants(now);
        }
        self.forget_silent(now);
        self.sweep();
    }

    /// Hangs up on callers who have said nothing for long. For the others the alarm is set: whoever sleeps elsewhere
    /// than in a call of ours keeps house when it is woken, and not before.
    pub(super) fn forget_silent(&mut self, now: Instant) {
        self.hang_up(|caller| now.saturating_since(caller.since) >= HELLO_NS);
        if let Some(first) = self.callers.iter().map(|caller| caller.since).min() {
            self.alarm.set(first.after(HELLO_NS), now);
        }
    }
}
