//! How channels end: in good order, given up, or because the other side is gone.

use alloc::vec::Vec;

use cutthrough_wire::token::Token;

use super::channel::{self, Ending};
use super::inbox::Left;
use super::memory::Memory;
use super::parted::Parted;
use super::{Net, NetEvent, State};

impl<M: Memory> Net<M> {
    /// Closes a channel once everything has arrived that was sent. What has come and was not taken is thrown away.
    pub fn close(&mut self, index: usize) {
        match self.seats.get_mut(index).map(|seat| &mut seat.state) {
            Some(State::Open(channel)) => {
                self.closing += usize::from(channel.close());
                channel.inbox.throw_away();
                // Whoever gets the number next must not be taken for this one.
                self.happened.retain(|event| match event {
                    NetEvent::Opened(of)
                    | NetEvent::Connected(of)
                    | NetEvent::Message(of, _)
                    | NetEvent::Completed(of, _) => *of != index,
                    NetEvent::Closed(..) | NetEvent::Failed(..) => true,
                });
                self.touch(index);
            }
            Some(State::Calling(_)) => self.free_seat(index, false),
            _ => {}
        }
    }

    /// Closes every channel, as [`Net::close`] does.
    pub fn close_all(&mut self) {
        (0..self.seats.len()).for_each(|index| self.close(index));
    }

    /// Gives a channel up at once, because an operation on it has stalled: what has not gone is not sent, for its
    /// memory is no longer there. The user is told of the end, and the channel's number is nobody else's before.
    pub fn abandon(&mut self, index: usize) {
        if self.channel(index).is_some() {
            self.end(index, Ending::Stalled);
        }
    }

    /// The payloads of a channel that were here whole when it ended, and had not been read. They are here until its
    /// number is given away, which may be soon after its end was told.
    pub fn take_left(&mut self, index: usize) -> Vec<Left> {
        self.seats.get_mut(index).map(|seat| core::mem::take(&mut seat.left)).unwrap_or_default()
    }

    /// The places that payloads of a channel had got by their tokens when it ended, and that will not be filled: they
    /// are the user's again. Here as long as [what is left](Net::take_left).
    pub fn take_begun(&mut self, index: usize) -> Vec<(Token, M::Place)> {
        self.seats.get_mut(index).map(|seat| core::mem::take(&mut seat.begun)).unwrap_or_default()
    }

    /// A channel is over in good order. The other side hears of it first.
    pub(super) fn over(&mut self, index: usize) {
        let Some(channel) = self.channel(index) else { return };
        let Some(ending) = channel.is_over() else { return };
        if channel.is_closed_there && channel.owes_a_note() {
            // Its last frame is acknowledged before the seat is given up.
            channel.hurry();
            if !channel.listed {
                channel.listed = true;
                self.work.push_back(index);
            }
            return;
        }
        self.end(index, ending);
    }

    /// Gives a channel up.
    pub(super) fn end(&mut self, index: usize, ending: Ending) {
        let Some(channel) = self.channel(index) else { return };
        let told = channel.confirmed && !matches!(channel.end, channel::End::Here { .. });
        while told && let Some(message) = self.channel(index).and_then(|channel| channel.inbox.take()) {
            self.happened.push_back(NetEvent::Message(index, message));
        }
        // They have arrived, and their memory is nobody's any more.
        let arrived = self.channel(index).filter(|_| told).map(|channel| core::mem::take(&mut channel.outbox.in_use));
        let cookies = arrived.into_iter().flatten().filter_map(|(_, cookie)| cookie);
        self.happened.extend(cookies.map(|cookie| NetEvent::Completed(index, cookie)));
        // A peer that has broken a rule is not believed any more.
        let believed = told && !matches!(ending, Ending::Breach(_));
        let left = self.channel(index).filter(|_| believed).map(|channel| channel.inbox.take_left());
        let begun = self.channel(index).filter(|_| told).map(|channel| channel.inbox.take_begun());
        self.free_seat(index, told);
        self.seats[index].begun = begun.unwrap_or_default();
        self.seats[index].ended = Some(ending);
        self.seats[index].left = left.unwrap_or_default();
        match ending {
            _ if told => self.happened.push_back(NetEvent::Closed(index, ending)),
            Ending::Breach(breach) => self.tally.untold[breach as usize] += 1,
            _ => {}
        }
    }

    /// Gives a seat up. If the user will be `told`, nobody gets the seat before: what the user still sends there must
    /// not go to somebody else.
    pub(super) fn free_seat(&mut self, index: usize, told: bool) {
        let Some(seat) = self.seats.get_mut(index) else { return };
        let generation = core::mem::take(&mut seat.generation);
        match core::mem::replace(&mut seat.state, State::Free) {
            State::Open(channel) => {
                self.open -= 1;
                self.closing -= usize::from(matches!(channel.end, channel::End::Here { .. }));
                self.dealt -= channel.dealt;
                self.porter.leaves(channel.peer.caller(), index);
                if channel.is_closed_there && channel.is_over().is_some() {
                    self.partings.add(Parted::new((index, generation), *channel, self.settings.silence_ns));
                }
            }
            State::Calling(call) => self.dealt -= call.unasked(self.begin),
            State::Free => {}
        }
        if !told {
            self.free.push(index);
        }
        self.work.retain(|other| *other != index);
        self.ready.retain(|other| *other != index);
        self.wants.retain(|other| *other != index);
        self.unread.retain(|other| *other != index);
        self.owing.retain(|other| *other != index);
        self.through.retain(|other| *other != index);
        self.in_use.retain(|other| *other != index);
        self.welcomed.retain(|known| !known.is_for(index));
        #[cfg(feature = "planted")]
        if self.planted == Some(super::Planted::Unforgotten) {
            return;
        }
        self.turns.forget(index);
    }
}
