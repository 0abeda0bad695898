//! A channel's part in quiet moments.

use cutthrough_wire::frame::Header;

use super::super::memory::Memory;
use super::Channel;
use crate::flow::quiet::Calls;
use crate::time::Instant;

impl<M: Memory> Channel<M> {
    /// A frame says how often the other side has called this one, and whether it asks to be called.
    pub(super) fn hear_calls(&mut self, header: &Header, now: Instant) {
        self.call_asked = self.call_asked.max(header.asks);
        if self.quiet.called(header.calls, header.number, now, self.rtt.smoothed()) {
            self.window.hush(true);
        }
    }

    /// Calls the other side, and tells it at once.
    pub(in crate::net) fn call(&mut self, calls: &mut Calls) {
        self.calls = calls.calls(self.rtt.smoothed(), self.calls);
        self.note = true;
    }

    /// Ends one whose time is over: what it has shown is how long the way is.
    pub(super) fn end_quiet(&mut self, now: Instant) {
        let Some(shown) = self.quiet.end(now, self.rtt.least(), self.rtt.standing()) else { return };
        self.window.hush(false);
        if let Some(least) = shown.least {
            self.rtt.settle(now, least);
            self.window.fit(least, shown.before);
        }
    }

    /// What is said to have the other side call one; 0 if it need not.
    pub(super) fn asks_for_quiet(&self, now: Instant) -> u8 {
        let reasons = (self.window.is_strange(), self.rtt.is_old());
        if reasons == (false, false) { 0 } else { self.quiet.asks(now, reasons, self.rtt.smoothed()) }
    }
}
