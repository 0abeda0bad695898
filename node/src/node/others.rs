//! The other channels of an endpoint, while a send in one of them waits.

use super::Seat;
use crate::shm::link::CloseReason;
use crate::shm::meanwhile::Meanwhile;
use crate::stat::Stat;
use crate::udp::Udp;

/// All seats but one, or all, and the list of channels that are not armed; and the network side, unless the send is
/// its own.
#[derive(Debug)]
pub struct Others<'a> {
    before: &'a mut [Seat],
    after: &'a mut [Seat],
    awake: &'a mut Vec<usize>,
    net: Option<&'a Udp>,
}

impl<'a> Others<'a> {
    #[inline]
    pub(super) const fn new(
        (before, after): (&'a mut [Seat], &'a mut [Seat]),
        awake: &'a mut Vec<usize>,
        net: Option<&'a Udp>,
    ) -> Self {
        Self { before, after, awake, net }
    }
}

impl Meanwhile for Others<'_> {
    fn is_nobody(&self) -> bool {
        self.net.is_none() && !self.before.iter().chain(&*self.after).any(|seat| seat.link.is_some())
    }

    fn relieve(&mut self, stat: &Stat) -> bool {
        let (mut any, behind) = (self.net.is_some_and(Udp::relieve), self.before.len() + 1);
        let before = self.before.iter_mut().enumerate();
        let after = self.after.iter_mut().enumerate().map(|(index, seat)| (index + behind, seat));
        for (index, seat) in before.chain(after) {
            let Some(link) = seat.link.as_mut().filter(|link| link.can_be_relieved()) else { continue };
            // What was taken out of the way is no ring's business any more: the channel is looked at before the next
            // sleep.
            if link.disarm() {
                self.awake.push(index);
            }
            if let Err(breach) = link.relieve(stat) {
                link.end(CloseReason::Breach(breach));
            }
            any = true;
        }
        any
    }
}
