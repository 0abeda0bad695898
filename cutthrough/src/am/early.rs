//! Direct replies that come before their giver's word: they are set aside until the call is announced.
//!
//! Who says so early that it replies may lie. So of each channel there is one for each call that may still be announced
//! and no more: an honest peer sends no others, and one that lies takes no room from the rest. What their payloads take
//! of this side's memory is bounded as what is kept for a peer is ([`KEPT_BYTES`]): beyond that a payload is thrown
//! away, and if its message was no lie, the call fails.

use std::collections::HashMap;

use cutthrough_engine::am::KEPT_BYTES;
use cutthrough_engine::am::calls::Calls;
use cutthrough_engine::am::message::CallId;
use cutthrough_engine::receipt::Path;
use cutthrough_node::incoming::{Channel, Incoming};

/// A direct reply that was set aside.
#[derive(Debug)]
pub(super) struct Aside {
    pub(super) incoming: Incoming,
    /// Bytes of its payload that take memory of this side.
    bytes: usize,
    /// Whether its payload was thrown away.
    pub(super) lost: bool,
}

/// Those of one channel.
#[derive(Debug, Default)]
struct Heap {
    replies: HashMap<CallId, Aside>,
    bytes: usize,
}

impl Heap {
    fn take(&mut self, call: CallId) -> Option<Aside> {
        let aside = self.replies.remove(&call)?;
        self.bytes -= aside.bytes;
        Some(aside)
    }

    /// Throws away what nobody can announce any more.
    fn tidy<K>(&mut self, calls: &Calls<K>) {
        self.replies.retain(|call, _| calls.may_be_announced(*call));
        self.bytes = self.replies.values().map(|aside| aside.bytes).sum();
    }
}

/// All that were set aside.
#[derive(Debug, Default)]
pub(super) struct Early(HashMap<Channel, Heap>);

impl Early {
    /// Sets a reply aside to a call that may be announced; only the first one of its channel. Whether its payload was
    /// thrown away.
    pub(super) fn put<K>(&mut self, call: CallId, mut incoming: Incoming, calls: &Calls<K>) -> bool {
        let heap = self.0.entry(incoming.channel()).or_default();
        if heap.replies.contains_key(&call) {
            return false;
        }
        // Then some of them are of calls that have ended.
        if heap.replies.len() >= calls.waiting() {
            heap.tidy(calls);
        }
        let bytes = match incoming.receipt().path {
            // It stays where it lies: in memory of the sender's.
            Path::Reference => 0,
            _ => incoming.payload_len(),
        };
        let is_over = |heap: &Heap| bytes > 0 && heap.bytes > 0 && heap.bytes + bytes > KEPT_BYTES;
        if is_over(heap) {
            heap.tidy(calls);
        }
        let lost = is_over(heap);
        if lost {
            drop(incoming.take_payload());
        }
        let bytes = if lost { 0 } else { bytes };
        heap.bytes += bytes;
        heap.replies.insert(call, Aside { incoming, bytes, lost });
        lost
    }

    /// What was set aside of a call, by whoever: it is announced.
    pub(super) fn take(&mut self, call: CallId) -> Vec<Aside> {
        self.0.values_mut().filter_map(|heap| heap.take(call)).collect()
    }

    /// A channel has ended, and calls with it.
    pub(super) fn end<K>(&mut self, channel: Channel, calls: &Calls<K>) {
        self.0.remove(&channel);
        self.0.values_mut().for_each(|heap| heap.tidy(calls));
    }
}

#[cfg(test)]
mod tests;
