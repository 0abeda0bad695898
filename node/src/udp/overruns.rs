//! How many datagrams a socket had no room for.

use crate::sys::datagram::Datagrams;

/// What the kernel has dropped of what came to a socket, as it was told from look to look.
#[derive(Debug)]
pub(super) struct Overruns {
    /// What the kernel said last. Nothing while it said nothing: then it also counts what was not lost.
    seen: Option<u32>,
    counted: u64,
}

impl Default for Overruns {
    /// Of a socket that has just been made.
    fn default() -> Self {
        Self { seen: Some(0), counted: 0 }
    }
}

impl Overruns {
    /// Looks at the socket: how many there were so far.
    pub(super) fn look(&mut self, socket: &Datagrams) -> u64 {
        self.told(socket.dropped())
    }

    fn told(&mut self, now: Option<u32>) -> u64 {
        if let (Some(before), Some(now)) = (self.seen, now) {
            self.counted += u64::from(now.wrapping_sub(before));
        }
        self.seen = now;
        self.counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_without_a_gap_is_counted() {
        let mut overruns = Overruns::default();
        assert_eq!([Some(3), Some(3), Some(5)].map(|now| overruns.told(now)), [3, 3, 5]);
        // While there is a filter, and in the look after it, nobody knows what was lost.
        assert_eq!([None, None, Some(900), Some(901)].map(|now| overruns.told(now)), [5, 5, 5, 6]);
    }

    #[test]
    fn the_kernels_number_begins_again() {
        let mut overruns = Overruns { seen: Some(u32::MAX - 1), counted: 7 };
        assert_eq!(overruns.told(Some(2)), 11);
    }
}
