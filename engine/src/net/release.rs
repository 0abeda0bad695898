//! Payloads that have arrived are given back, when no adapter reads their memory any more.
//!
//! That the other side has a payload does not say that nobody reads it here: an adapter may have been handed it twice,
//! or the other side may say so too early. So a payload that an adapter reads where it lies
//! ([`Load::is_in_use`](super::memory::Load::is_in_use)) is kept until the adapter has let go of it, and its cookie is
//! told then. It takes no place among the messages on their way meanwhile. Where the channel ends before that, the load
//! is dropped with it: whoever has the memory gives it to nobody else until the adapter has let go.

use super::memory::{Load as _, Memory};
use super::{Net, NetEvent, State};

impl<M: Memory> Net<M> {
    /// Whether payloads have arrived that an adapter may still read.
    #[must_use]
    pub const fn has_in_use(&self) -> bool {
        !self.in_use.is_empty()
    }

    /// Gives payloads back that have arrived and that no adapter reads any more.
    pub fn release(&mut self) {
        let Self { in_use, seats, happened, .. } = self;
        in_use.retain(|&index| {
            let Some(State::Open(channel)) = seats.get_mut(index).map(|seat| &mut seat.state) else { return false };
            let free = channel.outbox.in_use.extract_if(.., |(load, _)| !load.is_in_use());
            happened.extend(free.filter_map(|(_, cookie)| Some(NetEvent::Completed(index, cookie?))));
            !channel.outbox.in_use.is_empty()
        });
    }
}
