//! What has happened, as it is told.

use super::inbox::Ready;
use super::memory::Memory;
use super::{CallError, Net, NetEvent, State};

impl<M: Memory> Net<M> {
    /// What has happened next.
    #[inline]
    pub fn next_event(&mut self) -> Option<NetEvent<M::Place>> {
        if let Some(event) = self.next_happened() {
            return Some(event);
        }
        while let Some(&index) = self.ready.front() {
            let Some(State::Open(channel)) = self.seats.get_mut(index).map(|seat| &mut seat.state) else {
                self.ready.pop_front();
                continue;
            };
            let taken = channel.inbox.take();
            self.turn_to_next(index);
            if let Some(message) = taken {
                self.tally.messages_received += 1;
                return Some(NetEvent::Message(index, message));
            }
        }
        self.next_happened()
    }

    /// Shows `each` up to `most` of the messages that have arrived, where they lie: how many. Channels take turns; what
    /// has happened besides is told by [`Net::next_happened`].
    #[inline]
    pub fn messages(&mut self, most: usize, mut each: impl FnMut(&mut M, usize, &mut Ready<M::Place>)) -> usize {
        let mut told = 0;
        while told < most
            && let Some(&index) = self.ready.front()
        {
            let Some(State::Open(channel)) = self.seats.get_mut(index).map(|seat| &mut seat.state) else {
                self.ready.pop_front();
                continue;
            };
            let most = if self.ready.len() > 1 { 1 } else { most - told };
            let memory = &mut self.memory;
            told += channel.inbox.show(most, |ready| each(memory, index, ready));
            self.turn_to_next(index);
        }
        self.tally.messages_received += told as u64;
        told
    }

    /// After messages of the channel whose turn it is were taken.
    fn turn_to_next(&mut self, index: usize) {
        let Some(channel) = self.channel(index) else { return };
        if channel.inbox.has_ready() {
            // Channels take turns, message by message.
            if self.ready.len() > 1 {
                self.ready.rotate_left(1);
            }
        } else {
            channel.queued = false;
            self.ready.pop_front();
            self.touch(index);
        }
    }

    /// What has happened next but for messages.
    pub fn next_happened(&mut self) -> Option<NetEvent<M::Place>> {
        let event = self.happened.pop_front()?;
        if let NetEvent::Message(..) = &event {
            self.tally.messages_received += 1;
        }
        if let NetEvent::Closed(index, _) | NetEvent::Failed(index, _) = &event {
            self.free.push(*index);
        }
        Some(event)
    }

    /// How the call of this number has ended, if it has. Taken out of what has happened, of which the rest is told in
    /// its turn: the number of a channel whose end was not told is nobody else's.
    pub fn answer(&mut self, index: usize) -> Option<Result<(), CallError>> {
        let answers = |event: &NetEvent<M::Place>| match *event {
            NetEvent::Connected(of) => (of == index).then_some(Ok(())),
            NetEvent::Failed(of, why) => (of == index).then_some(Err(why)),
            NetEvent::Opened(_) | NetEvent::Message(..) | NetEvent::Completed(..) | NetEvent::Closed(..) => None,
        };
        let (at, answer) = (0..).zip(&self.happened).find_map(|(at, event)| Some((at, answers(event)?)))?;
        self.happened.remove(at);
        if answer.is_err() {
            self.free.push(index);
        }
        Some(answer)
    }

    /// Whether it is known how the call of this number has ended, and was not told.
    #[must_use]
    pub fn has_answer(&self, index: usize) -> bool {
        self.happened
            .iter()
            .any(|event| matches!(*event, NetEvent::Connected(of) | NetEvent::Failed(of, _) if of == index))
    }

    /// Whether [`Net::next_event`] has something to tell.
    #[must_use]
    pub fn has_event(&self) -> bool {
        self.has_happened() || self.has_message()
    }

    /// Whether there is anything among them but messages.
    #[must_use]
    pub fn has_happened(&self) -> bool {
        !self.happened.is_empty()
    }

    /// Whether there are messages among them.
    #[must_use]
    pub fn has_message(&self) -> bool {
        !self.ready.is_empty()
    }
}
