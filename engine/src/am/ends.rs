//! How calls end that nobody answers: deadlines, cancelling, and channels that are lost.

use super::Core;
use super::calls::Ended;
use super::message::{CallId, Kind, Message};
use crate::time::Instant;

impl<K, L> Core<K, L> {
    /// Gives this deadline to all calls that were made without one ([`super::calls::UNDATED`]).
    pub fn date(&mut self, deadline: Instant) {
        self.calls.date(deadline);
    }

    /// Gives this deadline to one call, unless it was made with one.
    #[inline]
    pub fn date_one(&mut self, call: CallId, deadline: Instant) {
        self.calls.date_one(call, deadline);
    }

    /// What is to become of the answer to a call that somebody waits for.
    pub fn context_mut(&mut self, call: CallId) -> Option<&mut K> {
        self.calls.context_mut(call)
    }

    /// The next call that has ended with the channel of a row: one that was made there, or that hands over a request
    /// that came from there. Call it until there is none.
    pub fn lost(&mut self, row: u32) -> Option<Ended<K>> {
        let generation = self.peers.get(row as usize)?.generation;
        // Another channel to the same endpoint may still bring the reply.
        let elsewhere = self.peers.iter().any(|peer| peer.open && peer.generation == generation);
        let ended = self.calls.lose(row, if elsewhere { u64::MAX } else { generation });
        ended.or_else(|| self.lost_handed(row))
    }

    /// Stops waiting for a call and tells its peer. What was to become of the answer.
    pub fn cancel(&mut self, call: CallId) -> Option<K> {
        let ended = self.calls.forget(call)?;
        self.tell_cancelled(&ended);
        Some(ended.context)
    }

    /// The next call whose deadline has passed; its peer is told. Call it until there is none.
    pub fn expire(&mut self, now: Instant) -> Option<(CallId, u32, K)> {
        let ended = self.calls.expire(now)?;
        self.tell_cancelled(&ended);
        Some((ended.call, ended.row, ended.context))
    }

    pub(super) fn tell_cancelled(&mut self, ended: &Ended<K>) {
        if ended.served && self.peers.get(ended.row as usize).is_some_and(|peer| peer.open) {
            self.keep(ended.row, Message::new(Kind::Cancel, ended.call));
        }
    }
}
