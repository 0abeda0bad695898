//! Pages alike, one behind the other: what a ring that places payloads is made for.

use cutthrough::{Channel, Counter};

use super::node::{Node, STREAMED};

impl Node {
    /// Frames with parts of payloads that have come, if the ring places them.
    pub(super) fn loaded(&self) -> u64 {
        let count = |counter| self.endpoint.counter(counter);
        if self.cuts { count(Counter::PlacedFrames) + count(Counter::MendedFrames) } else { 0 }
    }

    /// From now on most of what it sends are pages alike, on one channel that is drawn.
    pub(super) fn streams_to(&mut self, draw: Option<u64>) {
        self.stretch = draw.and_then(|draw| {
            let open: Vec<Channel> =
                self.talks.iter().filter(|(_, talk)| !talk.bye).map(|(&channel, _)| channel).collect();
            let one = |of: usize, draw: u64| usize::try_from(draw % (of.max(1) as u64)).unwrap_or(0);
            let len = STREAMED[one(STREAMED.len(), draw >> 32)];
            open.get(one(open.len(), draw)).map(|channel| (*channel, len))
        });
    }

    /// Sends pages alike, one after the other.
    pub(super) fn stream(&mut self, channel: Channel, len: usize) {
        self.streams = true;
        let many = 1 + self.random.below(6);
        for _ in 0..many {
            self.load(channel, len, None);
        }
        self.streams = false;
    }

    /// A payload of so many bytes has come, and more like it probably will: as many runs are posted as come at once.
    pub(super) fn awaits(&mut self, channel: Channel, len: usize) {
        let Some(talk) = self.talks.get_mut(&channel) else { return };
        if !STREAMED.contains(&len) || talk.awaited == len {
            return;
        }
        // Of what is still out nobody knows how much it is.
        if self.endpoint.recall(channel) == Ok(0) {
            (talk.posted, talk.awaited) = (0, len);
            self.post(channel, len, 32);
        }
    }
}
