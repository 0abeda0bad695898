//! What the sender is told of payloads on their way: up to where they are granted, or that nothing more is wanted.

use alloc::vec::Vec;

use cutthrough_wire::frame::WANTS_NO_MORE;

use super::super::grants::Wanting;
use super::super::memory::Place;
use super::arrival::{Arrival, Target};
use super::{Coming, Inbox};

impl<P: Place> Inbox<P> {
    /// Each payload of which more is wanted than was granted.
    pub(in crate::net) fn wanting(&self) -> impl Iterator<Item = Wanting> + '_ {
        // Bytes that lie aside or were granted to come there.
        let promised: u64 =
            self.window.iter().filter_map(Coming::loaded).chain(self.handed_over()).map(Arrival::promised).sum();
        let aside_room = u32::try_from(self.allowance.saturating_sub(promised)).unwrap_or(u32::MAX);
        let coming = self.window.iter().filter_map(Coming::loaded);
        self.handed_over().chain(coming).filter_map(move |arrival| {
            let opening = arrival.opening.as_ref()?;
            let most = match &arrival.target {
                Target::Place(_) | Target::Reader => opening.payload,
                Target::Aside(_) if !arrival.later => opening.payload.min(arrival.granted.saturating_add(aside_room)),
                Target::Aside(_) | Target::Away => arrival.granted,
            };
            let more = arrival.granted < opening.payload && !arrival.wants_no_more;
            more.then_some(Wanting {
                message: arrival.number,
                have: arrival.have.front(),
                granted: arrival.granted,
                most,
                payload: opening.payload,
            })
        })
    }

    /// Remembers a grant.
    pub(in crate::net) fn granted(&mut self, number: u64, upto: u32) {
        if let Some(arrival) = self.known(number) {
            arrival.granted = arrival.granted.max(upto);
        }
    }

    /// Grants that are not used up, and payloads of which nothing more is wanted.
    pub(in crate::net) fn outstanding(&self) -> Vec<(u64, u32)> {
        let coming = self.window.iter().filter_map(Coming::loaded);
        let told = |arrival: &Arrival<P>| {
            let opening = arrival.opening.as_ref()?;
            if arrival.wants_no_more {
                return Some((arrival.number, WANTS_NO_MORE));
            }
            let open = arrival.granted > opening.unasked && arrival.have.front() < arrival.granted;
            open.then_some((arrival.number, arrival.granted))
        };
        coming.chain(self.handed_over()).filter_map(told).collect()
    }

    /// Numbers of payloads of which nothing more is wanted.
    pub(in crate::net) fn take_unwanted(&mut self) -> Vec<u64> {
        core::mem::take(&mut self.unwanted)
    }

    /// The sender is told in frame `note` that nothing more is wanted of a payload.
    pub(in crate::net) fn tells(&mut self, message: u64, note: u64) {
        if let Some(arrival) = self.known(message) {
            arrival.told = Some(note);
        }
    }

    pub(in crate::net) fn tells_unwanted(&self) -> bool {
        !self.unwanted.is_empty()
    }
}
