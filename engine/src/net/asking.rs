//! Payloads that are asked for, on all channels together: because there is memory for them, or because their senders
//! shall not wait for who is to read them.

use alloc::vec::Vec;

use cutthrough_wire::slot::PAYLOAD_MAX;

use super::channel::Channel;
use super::grants::{Distance, Wanting};
use super::memory::Memory;
use super::{Net, State};
use crate::time::Instant;

/// One part in so many of the deadline is the longest round trip for which an owner is waited for: four of them, and
/// more than once, pass before others are given up.
const WAITS: u64 = 12;

/// Bytes of payloads that may come aside to make way, at most.
const RELIEVED_MAX: u64 = 2 * PAYLOAD_MAX;

impl<M: Memory> Net<M> {
    /// Asks for payloads of which more is wanted.
    pub fn grant(&mut self, now: Instant) {
        self.settle(now);
        if self.wants.is_empty() {
            return;
        }
        let mut wanting: Vec<(usize, Wanting)> = Vec::new();
        let (mut still, aimed) = (core::mem::take(&mut self.wants), self.aimed);
        still.retain(|&index| {
            let Some(State::Open(channel)) = self.seats.get_mut(index).map(|seat| &mut seat.state) else {
                return false;
            };
            if channel.inbox.awaits_place() && aimed != Some(index) {
                channel.inbox.ask_again(index, &mut self.memory);
                self.tally.mended_bytes += channel.inbox.take_mended();
                if channel.inbox.has_ready() && !core::mem::replace(&mut channel.queued, true) {
                    self.ready.push_back(index);
                }
            }
            let stretch = channel.distance().stretch();
            channel.inbox.stretch(stretch.into());
            wanting.extend(channel.inbox.wanting().map(|wanting| (index, wanting)));
            channel.inbox.wants_more() || channel.inbox.awaits_place()
        });
        self.wants = still;
        let channel = |index: usize| match self.seats.get(index).map(|seat| &seat.state) {
            Some(State::Open(channel)) => Some(&**channel),
            _ => None,
        };
        let due = |index, message| channel(index)?.inbox.due(message);
        // A peer that acknowledges late makes the way as long as it likes; others must not wait for it until they are
        // given up.
        let longest = (self.settings.silence_ns / 3).min(self.settings.deadline_ns / WAITS);
        let distance = |index| {
            let Distance { round_ns, least_ns } = channel(index).map_or(Distance::default(), Channel::distance);
            Distance { round_ns: round_ns.min(longest), least_ns }
        };
        let chosen = self.turns.choose(now, &wanting, self.settings.granted, due, distance);
        let chosen: Vec<_> = chosen.into_iter().map(|of| (of, distance(of.0))).collect();
        for ((index, wanting, upto), distance) in chosen {
            let message = wanting.message;
            let Some(channel) = self.channel(index) else { continue };
            // Others that were chosen beside it may have taken the room.
            let Some(upto) = channel.inbox.may_be_granted(message, upto) else { continue };
            self.turns.asks(now, index, &wanting, upto, distance);
            #[cfg(feature = "planted")]
            if self.planted == Some(super::Planted::Ungranted) && message % 4 == 3 {
                self.channel(index).into_iter().for_each(|channel| channel.inbox.granted(message, upto));
                continue;
            }
            if let Some(channel) = self.channel(index) {
                channel.grant(message, upto);
            }
            self.touch(index);
        }
    }

    /// Whether payloads wait for a place, or for more of them to be asked for: either may become possible at any time,
    /// when somebody lets go of memory.
    #[must_use]
    pub const fn is_wanting(&self) -> bool {
        !self.wants.is_empty()
    }

    /// This side waits until others have taken what it sends, and they may wait for it in the same way, in a circle:
    /// who waits lets all come aside that waits here for a reader, on all channels, beside what may come unasked, as
    /// far as it is 2 GiB together; but for payloads of which something has come in the last `still_ns` nanoseconds, or
    /// was read in fifty times as many.
    pub fn relieve(&mut self, now: Instant, still_ns: u64) {
        self.settle(now);
        if self.unread.is_empty() {
            return;
        }
        let relieved: u64 = self.open_channels().map(|(_, channel)| channel.inbox.relieved()).sum();
        let mut room = RELIEVED_MAX.saturating_sub(relieved);
        let mut unread = core::mem::take(&mut self.unread);
        unread.retain(|&index| {
            let Some(channel) = self.channel(index) else { return false };
            channel.inbox.relieve(now, still_ns, &mut room);
            let (unread, wants) = (channel.inbox.has_unread(), channel.inbox.wants_more());
            if wants && !self.wants.contains(&index) {
                self.wants.push(index);
            }
            unread
        });
        self.unread = unread;
        self.grant(now);
    }

    /// When the next payload makes way by [`Net::relieve`], if nothing comes of it before; those that might make way
    /// now do not count.
    #[must_use]
    pub fn relieves_at(&self, now: Instant, still_ns: u64) -> Option<Instant> {
        if self.unread.is_empty() {
            return None;
        }
        let all = self.open_channels().flat_map(|(_, channel)| channel.inbox.relieves_at(still_ns));
        all.filter(|due| *due > now).min()
    }

    /// Asks again for places that could not be given: memory has come back.
    pub fn memory_came_back(&mut self, now: Instant) {
        self.grant(now);
    }
}
