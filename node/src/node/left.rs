//! What a channel leaves behind: payloads that had arrived when their sender went, and that nobody has read yet.

use std::sync::Arc;

use cutthrough_engine::count::{Count as _, Counter};
use cutthrough_segment::page::{Release, Shelf};

use crate::incoming::{Arriving, Channel};
use crate::shm::receive::{Aside, Read};
use crate::stat::Stat;

/// The payloads of channels that have ended, until they are read or dropped.
#[derive(Debug, Default)]
pub(super) struct Left {
    channels: Vec<OfChannel>,
    /// Room for what lies on a shelf.
    dropped: Vec<Release>,
}

/// The payloads of one of them.
#[derive(Debug)]
struct OfChannel {
    channel: Channel,
    /// Where it is said which of them were dropped.
    shelf: Arc<Shelf>,
    payloads: Vec<Aside>,
}

impl Left {
    /// Keeps what a channel leaves.
    pub(super) fn keep(&mut self, channel: Channel, shelf: Arc<Shelf>, payloads: Vec<Aside>) {
        if !payloads.is_empty() {
            self.channels.push(OfChannel { channel, shelf, payloads });
        }
    }

    /// Reads a payload, if it is one of these.
    pub(super) fn read(
        &mut self,
        channel: Channel,
        arriving: &mut Arriving,
        into: &mut [u8],
        stat: &Stat,
    ) -> Option<Read> {
        let place = self.channels.iter().position(|of| of.channel == channel)?;
        let payloads = &mut self.channels[place].payloads;
        let (_, from, bytes) = payloads.swap_remove(payloads.iter().position(|payload| payload.0 == arriving.ticket)?);
        if payloads.is_empty() {
            self.channels.swap_remove(place);
        }
        let valid = from + bytes.len();
        into[from..valid].copy_from_slice(&bytes);
        arriving.shelf = None;
        stat.add(Counter::Copies, 1);
        stat.add(Counter::CopiedBytes, bytes.len() as u64);
        Some(Read { valid, done: true, pulses: 0, extra_copies: 1 })
    }

    /// Forgets those that were dropped.
    pub(super) fn tidy(&mut self) {
        for of in &mut self.channels {
            if of.shelf.filled() {
                of.shelf.clear(&mut self.dropped);
                of.payloads.retain(|payload| !self.dropped.contains(&Release::Unread { ticket: payload.0 }));
                self.dropped.clear();
            }
        }
        self.channels.retain(|of| !of.payloads.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const CHANNEL: Channel = Channel { index: 3, life: 7 };

    fn left() -> (Left, Arc<Shelf>) {
        let (mut left, shelf) = (Left::default(), Arc::new(Shelf::default()));
        left.keep(CHANNEL, Arc::clone(&shelf), vec![(1, 0, vec![1; 10]), (2, 4, vec![2; 6])]);
        (left, shelf)
    }

    fn arriving(ticket: u64, shelf: &Arc<Shelf>) -> Arriving {
        Arriving { ticket, bytes: 10, valid: 0, shelf: Some(Arc::clone(shelf)) }
    }

    #[test]
    fn what_is_left_is_read_once() {
        let (mut left, shelf) = left();
        let stat = Stat::create(Config::default().channels, 0).expect("counters");
        let mut into = [9; 10];
        let later = Channel { life: 8, ..CHANNEL };
        assert_eq!(left.read(later, &mut arriving(1, &shelf), &mut into, &stat), None);
        assert_eq!(left.read(CHANNEL, &mut arriving(3, &shelf), &mut into, &stat), None);
        let mut second = arriving(2, &shelf);
        let read = left.read(CHANNEL, &mut second, &mut into, &stat).expect("the payload");
        assert!(read.done && read.valid == 10);
        assert_eq!(into, [9, 9, 9, 9, 2, 2, 2, 2, 2, 2]);
        assert_eq!(left.read(CHANNEL, &mut second, &mut into, &stat), None);
        assert!(left.read(CHANNEL, &mut arriving(1, &shelf), &mut into, &stat).is_some());
        assert!(left.channels.is_empty());
    }

    #[test]
    fn what_is_dropped_is_forgotten() {
        let (mut left, shelf) = left();
        let (first, second) = (arriving(1, &shelf), arriving(2, &shelf));
        drop(second);
        left.tidy();
        assert_eq!(left.channels[0].payloads.len(), 1);
        drop(first);
        left.tidy();
        assert!(left.channels.is_empty());
    }
}
