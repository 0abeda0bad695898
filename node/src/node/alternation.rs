//! When the network has its turn beside channels in memory that always have something, and they beside it.

/// Polls from one look at the network to the next, beside those that tell what it has found: the others have the first
/// look in all but the last.
const POLLS: u32 = 16;

/// Who has the next poll, where both have something. A look at the network may find several events, of which each poll
/// tells one; the polls of the others begin when all were told.
#[derive(Debug, Default)]
pub(super) struct Alternation {
    /// The poll in which the network was looked at last.
    looked: u32,
    /// Polls from then on that are not the network's.
    others: u32,
}

impl Alternation {
    /// Whether the network is looked at in this poll before anything else.
    #[inline]
    pub(super) const fn is_due(&self, poll: u32) -> bool {
        poll.wrapping_sub(self.looked) >= self.others
    }

    /// The network was looked at in this poll; so many events wait to be told, one in each poll from the next one on.
    pub(super) fn looked(&mut self, poll: u32, events: usize) {
        *self = Self { looked: poll, others: u32::try_from(events).unwrap_or(u32::MAX / 2) + POLLS };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls of channels in memory between the looks at a network that always has so many events, in so many polls.
    fn between(events: usize, first: u32, polls: u32) -> Vec<u32> {
        let (mut turns, mut waiting, mut memory) = (Alternation::default(), 0, 0);
        let mut between = Vec::new();
        for poll in (0..polls).map(|number| first.wrapping_add(number)) {
            if waiting > 0 {
                waiting -= 1;
            } else if turns.is_due(poll) {
                between.push(std::mem::take(&mut memory));
                // This poll tells the first.
                waiting = events - 1;
                turns.looked(poll, waiting);
            } else {
                memory += 1;
            }
        }
        between
    }

    #[test]
    fn memory_has_its_polls_however_much_the_network_has() {
        for events in 1..200 {
            for first in [0, 7, u32::MAX - 1000] {
                let between = between(events, first, 5000);
                assert!(between.len() > 20 && between[1..].iter().all(|polls| *polls == POLLS - 1), "{between:?}");
            }
        }
    }

    #[test]
    fn a_network_that_is_opened_late_has_its_turn_at_once() {
        for polls in [0, 1, 3 << 30, u32::MAX] {
            assert!(Alternation::default().is_due(polls));
        }
    }
}
