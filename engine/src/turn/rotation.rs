//! A rotation of channels: a ring in which every one gets its turn.

/// No channel.
pub(super) const NOBODY: usize = usize::MAX;

/// The neighbours of a channel in the rotation that it is in. Meaningless while it is in none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    before: usize,
    after: usize,
}

impl Link {
    pub(super) const NONE: Self = Self { before: NOBODY, after: NOBODY };
}

/// A ring of channels, of which `front` is next. The links live in one table, with one entry for each channel, because
/// a channel is in one rotation at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rotation {
    front: usize,
    len: usize,
}

impl Rotation {
    pub(super) const EMPTY: Self = Self { front: NOBODY, len: 0 };

    /// How many channels are in.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The channel whose turn it is, which goes to the back; `None` if there are no channels.
    pub(super) fn rotate(&mut self, links: &[Link]) -> Option<usize> {
        let channel = self.front;
        self.front = links.get(channel)?.after;
        Some(channel)
    }

    /// Takes in a channel that is in no rotation, at the back.
    pub(super) fn push_back(&mut self, channel: usize, links: &mut [Link]) {
        if self.len == 0 {
            links[channel] = Link { before: channel, after: channel };
            self.front = channel;
        } else {
            let (before, after) = (links[self.front].before, self.front);
            links[channel] = Link { before, after };
            links[before].after = channel;
            links[after].before = channel;
        }
        self.len += 1;
    }

    /// Takes out a channel that is in this rotation.
    pub(super) fn remove(&mut self, channel: usize, links: &mut [Link]) {
        let Link { before, after } = links[channel];
        links[before].after = after;
        links[after].before = before;
        self.len -= 1;
        if self.len == 0 {
            self.front = NOBODY;
        } else if self.front == channel {
            self.front = after;
        }
    }
}
