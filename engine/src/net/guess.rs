//! Where the next frames will probably land, so that a payload is received where it belongs.
//!
//! This is the guess of Speculative Defragmentation (HPDC 2000) for an adapter that takes many frames in one call and
//! scatters them: the frames of a payload come in order and uninterrupted, behind the first one of a new message or
//! where the last one ended. What is wrong is copied from where it landed to where it belongs, and counted.

use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind};

use super::channel::Channel;
use super::memory::{Memory, Place as _};
use super::outbox::frame_bytes;
use super::{Guess, Net, State};
use crate::receipt::Placement;
use crate::time::Instant;

impl<M: Memory> Net<M> {
    /// Where the next frames will probably land, and how long a full frame is there. With a reader, in its memory.
    pub fn guess(&mut self, reading: Option<(usize, u64)>) -> Option<(Guess, usize)> {
        if let Some((index, message)) = reading {
            let channel = self.channel(index)?;
            let full = full(channel);
            let (begin, end) = channel.inbox.reader_gap(message)?;
            return Some((Guess::Rest { channel: index, message, begin, end }, full));
        }
        let index = self.last_loaded?;
        let channel = self.channel(index)?;
        let full = full(channel);
        if let Some((message, begin, end)) = channel.inbox.expected() {
            return Some((Guess::Rest { channel: index, message, begin, end }, full));
        }
        self.memory.guess(index)?;
        Some((Guess::Fresh { channel: index }, full))
    }

    /// What [`Net::guess`] would say if it knew that the next frame has this header; with a reader, of its message too.
    /// A header that nobody has proved names no more than bytes that are missing.
    pub fn foresee(&mut self, head: &[u8; HEADER_BYTES], reading: Option<(usize, u64)>) -> Option<(Guess, usize)> {
        let header = Header::from_bytes(head).ok()?;
        let index = header.tag as usize;
        let known = self.seats.get(index).is_some_and(|seat| seat.generation == header.generation);
        let channel = self.channel(index).filter(|_| known)?;
        let full = full(channel);
        match header.kind {
            Kind::Open => {
                let fresh = self.memory.guess(index).map(|_| Guess::Fresh { channel: index });
                fresh.map(|guess| (guess, frame_bytes(usize::from(header.body))))
            }
            Kind::Data => {
                let (message, begin) = (channel.message(&header), header.words[1]);
                let end = channel.inbox.gap_at(message, begin, reading == Some((index, message)))?;
                // Only the last one may be shorter than others.
                let goes_on = begin.checked_add(u32::from(header.body)).is_some_and(|next| next < end);
                let full = if goes_on { frame_bytes(usize::from(header.body)) } else { full };
                Some((Guess::Rest { channel: index, message, begin, end }, full))
            }
            _ => None,
        }
    }

    /// The place that a guess speaks of, and the first byte that is meant; not for a reader's.
    pub fn guessed(&mut self, guess: Guess) -> Option<(&mut M::Place, usize)> {
        match guess {
            Guess::Fresh { channel } => self.memory.guess(channel).map(|place| (place, 0)),
            Guess::Rest { channel, message, begin, .. } => {
                let place = self.channel(channel)?.inbox.landing(message)?;
                Some((place, begin as usize))
            }
        }
    }

    /// Whether headers shall be cut off the frames that a guess speaks of, each of `slice` bytes of payload, by what is
    /// chosen now. What is chosen is for payloads to come: one that began to come by copies goes on so. The time is
    /// asked for only where there is something to choose.
    pub fn cuts(&mut self, guess: Guess, slice: u32, now: impl FnOnce() -> Instant) -> bool {
        let choice = if self.placing.is_due() { self.placing.choose(now(), slice) } else { self.placing.now() };
        let began = match guess {
            Guess::Rest { channel, message, .. } => self.channel(channel).and_then(|it| it.inbox.began(message)),
            Guess::Fresh { .. } => None,
        };
        choice.placement == Placement::HeaderCut && began.is_none_or(|placement| placement == Placement::HeaderCut)
    }

    /// How many bytes a message probably has at most whose first ones come next on the channel of a guess: as many as
    /// the last two had, or whatever fits.
    pub fn probable(&mut self, guess: Guess) -> usize {
        let (Guess::Fresh { channel } | Guess::Rest { channel, .. }) = guess;
        let alike = self.channel(channel).and_then(|channel| channel.inbox.alike());
        alike.map_or(usize::MAX, |bytes| bytes as usize)
    }

    /// The places that a guess speaks of, one for each message: the rest of a payload, if it is not for a reader, and
    /// those that come next. The first bytes that are meant are those of [`Net::guessed`], then each from its first.
    pub fn landings(&mut self, guess: Guess, reads: bool) -> impl Iterator<Item = &mut M::Place> {
        let (channel, message) = match guess {
            Guess::Fresh { channel } => (channel, None),
            Guess::Rest { channel, message, .. } => (channel, (!reads).then_some(message)),
        };
        let rest = match self.seats.get_mut(channel).map(|seat| &mut seat.state) {
            Some(State::Open(channel)) => message.and_then(|message| channel.inbox.landing(message)),
            _ => None,
        };
        rest.into_iter().chain(self.memory.guesses(channel))
    }

    /// Which life of a channel its frames name, and the number of the first message that has not come whole.
    pub fn generation(&mut self, index: usize) -> Option<(u32, u64)> {
        let awaited = self.channel(index)?.inbox.received();
        self.seats.get(index).map(|seat| (seat.generation, awaited))
    }

    /// The memory where `len` bytes of payload of this frame belong, if it is as its header says: that of the guess for
    /// the first frame of a message, and that of its message for the others. It may be shorter.
    pub fn belongs(&mut self, header: &Header, len: usize) -> Option<&mut [u8]> {
        let index = header.tag as usize;
        match header.kind {
            Kind::Open => Some(self.memory.guess(index)?.piece(0, len)),
            Kind::Data => {
                let channel = self.channel(index)?;
                let place = channel.inbox.landing(channel.message(header))?;
                Some(place.piece(header.words[1] as usize, len))
            }
            _ => None,
        }
    }

    /// Whether parts of a payload are here already that a frame with this header opens.
    pub fn has_parts(&mut self, head: &[u8]) -> bool {
        let opens = head.get(1) == Some(&(Kind::Open as u8));
        let header = head.first_chunk().filter(|_| opens).and_then(|head| Header::from_bytes(head).ok());
        let Some(header) = header else { return false };
        let Some(channel) = self.channel(header.tag as usize) else { return false };
        let message = channel.message(&header);
        channel.inbox.has_some(message, 0, usize::MAX)
    }

    /// Whether the frame that opens a payload, which has this header, has come already: then it brings nothing.
    pub fn is_opened(&mut self, header: &Header) -> bool {
        let Some(channel) = self.channel(header.tag as usize) else { return false };
        let message = channel.message(header);
        channel.inbox.is_opened(message)
    }

    /// From now on frames may land in memory of this channel at any time, or in no memory: until that is over no
    /// message that waits gets a place there, and what has come of it is not copied. Which channel it was before.
    pub const fn aim_at(&mut self, index: Option<usize>) -> Option<usize> {
        core::mem::replace(&mut self.aimed, index)
    }

    /// Whether a message of this channel waits for a place: any frame, and memory that comes back, may give it one.
    pub fn awaits_place(&mut self, index: usize) -> bool {
        self.channel(index).is_some_and(|channel| channel.inbox.awaits_place())
    }

    /// Says which channel the next payload will probably come on: a token was granted there, or memory posted.
    pub const fn expect(&mut self, index: usize) {
        self.last_loaded = Some(index);
    }
}

/// How long a full frame of the other side is: as long as the last one that can be one, or as those of this side.
fn full<M: Memory>(channel: &Channel<M>) -> usize {
    // A frame is shorter where what may be sent ends, and as short as a hostile side likes. Those of like length have
    // more than half of what they may have.
    if channel.inbox.full <= (channel.full() - HEADER_BYTES) / 2 {
        channel.full()
    } else {
        frame_bytes(channel.inbox.full)
    }
}
