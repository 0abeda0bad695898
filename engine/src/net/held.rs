//! What is held for channels, and whether anything is held for one that has ended.

use super::channel::End;
use super::memory::Memory;
use super::{Net, NetEvent, Seat, State};
use crate::net::inbox::{Ready, ReadyPayload};

impl<M: Memory> Net<M> {
    /// Places that payloads have got and that are not the user's yet: of those on their way, and of those not taken.
    #[must_use]
    pub fn places(&self) -> usize {
        let of_seat = |seat: &Seat<M>| match &seat.state {
            State::Open(channel) => channel.inbox.places(),
            State::Free | State::Calling(_) => seat.begun.len(),
        };
        let of_event = |event: &&NetEvent<M::Place>| match event {
            NetEvent::Message(_, ready) => is_placed(ready),
            _ => false,
        };
        self.seats.iter().map(of_seat).sum::<usize>() + self.happened.iter().filter(of_event).count()
    }

    /// What is held for a channel that has ended, or counted for it; nothing may be.
    #[must_use]
    pub fn leak(&self) -> Option<&'static str> {
        let free = |index: &usize| self.seats.get(*index).is_none_or(|seat| matches!(seat.state, State::Free));
        let all_free = || (0..self.seats.len()).filter(free);
        let (mut open, mut dealt, mut closing) = (0, 0, 0);
        for seat in &self.seats {
            match &seat.state {
                State::Open(channel) => {
                    (open, dealt) = (open + 1, dealt + channel.dealt);
                    closing += usize::from(matches!(channel.end, End::Here { .. }));
                }
                State::Calling(call) => dealt += call.unasked(self.begin),
                State::Free => {}
            }
        }
        // Nobody gets a number before its end was told.
        let ends_of = |index: usize| {
            let ends = self.happened.iter().filter_map(|event| match event {
                NetEvent::Closed(of, _) | NetEvent::Failed(of, _) => Some(of),
                _ => None,
            });
            ends.chain(&self.free).filter(|of| **of == index).count()
        };
        let held = [
            ("work to be done", self.work.iter().any(free)),
            ("messages to be taken", self.ready.iter().any(free)),
            ("payloads to be asked for", self.wants.iter().any(free)),
            ("payloads that wait for a reader", self.unread.iter().any(free)),
            ("payloads that were asked for", self.turns.owners().any(|index| free(&index))),
            ("acknowledgements", self.owing.iter().any(free)),
            ("payloads that may still be read", self.through.iter().any(free)),
            ("payloads that an adapter may still read", self.in_use.iter().any(free)),
            ("a caller that was let in", all_free().any(|index| self.welcomed.iter().any(|of| of.is_for(index)))),
            ("bytes that may come unasked", dealt != self.dealt),
            ("a place among the open", open != self.open),
            ("a place among those that close", closing != self.closing),
            ("its number", all_free().any(|index| ends_of(index) != 1) || !self.free.iter().all(free)),
        ];
        held.into_iter().find(|(_, is_held)| *is_held).map(|(what, _)| what)
    }
}

/// Whether a message has its payload in a place.
pub(super) const fn is_placed<P>(ready: &Ready<P>) -> bool {
    matches!(ready.payload, ReadyPayload::Landed(..))
}
