//! How many bytes each channel may send unasked, of those that there is memory for.
//!
//! Every channel gets an even share when it is opened, and another one, as others have come and gone, when it sends.
//! The first ones have more than their share until they have used it; and who does not send keeps it. So those that
//! send share what there is among themselves, and what others keep of it is taken back, but for an even share, when
//! more was dealt than there is.

use alloc::vec::Vec;

use cutthrough_wire::frame::BODY_MIN;

use super::memory::Memory;
use super::{Net, State};
use crate::time::Instant;

/// How many times what one channel may send unasked all may together, but for a short frame of each.
const SHARES: u64 = 3;

/// So many times as much may have been taken back, at most, from channels that are open: a peer that breaks the rules
/// sends it all the same.
const WITHDRAWN: u64 = 16;

/// Nanoseconds after which a channel that brings no payload is idle, and between two looks at all of them: of a
/// thousand one takes some tenths of a millisecond.
const IDLE_NS: u64 = 1_000_000_000;
const LOOK_NS: u64 = 100_000_000;

/// When all channels were looked at, and how many of them have brought payloads of late.
#[derive(Debug, Default)]
pub(super) struct Shares {
    looked: Instant,
    active: usize,
}

impl<M: Memory> Net<M> {
    /// Unasked bytes that one of so many channels may send: an even share, if others have left so much.
    pub(super) fn allowance(&self, channels: usize, others: u64) -> u64 {
        let most = self.settings.unasked;
        let share = most / channels.max(1) as u64;
        share.min((SHARES * most).saturating_sub(others)).max(u64::from(BODY_MIN))
    }

    /// Deals a channel that sends its share anew, as others have come and gone.
    pub(super) fn deal(&mut self, index: usize, now: Instant) {
        let mut channels = self.open;
        if channels > 1 {
            if now.saturating_since(self.shares.looked) > LOOK_NS {
                self.look_at_shares(now);
            }
            let looked = self.shares.looked;
            let news = self.channel(index).is_some_and(|channel| channel.inbox.joins_active(looked));
            self.shares.active += usize::from(news);
            channels = self.shares.active.clamp(1, channels);
        }
        let all = self.dealt;
        let Some(before) = self.channel(index).map(|channel| channel.dealt) else { return };
        let allowance = self.allowance(channels, all - before);
        if let Some(channel) = self.channel(index) {
            channel.inbox.allow(allowance);
            channel.dealt = channel.inbox.unasked();
            self.dealt = all - before + channel.dealt;
        }
    }

    /// Looks which channels send, and takes back from the others what is more than an even share, if more was dealt
    /// than there is memory for.
    fn look_at_shares(&mut self, now: Instant) {
        let (most, even) = (self.settings.unasked, self.allowance(self.open, 0));
        let (mut active, mut withdrawn, mut idle) = (0, 0, Vec::new());
        for (index, seat) in self.seats.iter_mut().enumerate() {
            let State::Open(channel) = &mut seat.state else { continue };
            // It may have heard that it has less by now.
            self.dealt -= channel.dealt;
            channel.dealt = channel.inbox.unasked();
            self.dealt += channel.dealt;
            withdrawn += channel.inbox.withdrawn();
            let came = channel.inbox.came;
            if came != Instant::default() && now.saturating_since(came) < IDLE_NS {
                active += usize::from(channel.inbox.joins_active(now));
            } else if channel.dealt > 2 * even {
                idle.push(index);
            }
        }
        self.shares = Shares { looked: now, active };
        if self.dealt <= most {
            return;
        }
        for index in idle {
            let Some(channel) = self.channel(index) else { continue };
            withdrawn += channel.dealt;
            if withdrawn > WITHDRAWN * most {
                return;
            }
            if channel.inbox.withdraw(even) {
                self.touch(index);
            }
        }
    }
}
