//! The sending side of a channel: messages until the other side has them.
//!
//! Every message keeps its number until all of it is acknowledged. What was lost is sent again before anything new; of
//! a payload only the bytes that the other side takes unasked, or has granted, are sent at all.

mod again;
mod next;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use cutthrough_wire::frame::{HEADER_BYTES, Limits, Opening, WANTS_NO_MORE, low};
use cutthrough_wire::slot::CONTROL_MAX;
use cutthrough_wire::token::Token;

use super::inbox::books::{enter, strike};
use super::memory::Load;
use super::spans::Spans;

/// What a frame in flight carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Control messages: the first, and how many.
    Records { first: u64, count: u32 },
    /// The opening of a message, and the first bytes of its payload.
    Open { message: u64, len: u32 },
    /// Bytes of a payload.
    Data { message: u64, offset: u32, len: u32 },
    /// Grants and limits, in the frame of this number.
    Note { number: u64 },
    /// A question whether the other side is there, or whether the path carries so long a frame.
    Probe { body: u16 },
    /// The end.
    Close,
}

impl Content {
    /// Takes the bytes of `next` in, if they are those behind these in the same payload. False if they are not.
    pub(super) fn goes_on(&mut self, next: Self) -> bool {
        let (Self::Data { message, offset, len }, Self::Data { message: other, offset: at, len: more }) = (self, next)
        else {
            return false;
        };
        let behind = *message == other && *offset + *len == at;
        *len += if behind { more } else { 0 };
        behind
    }

    /// Whether it is a part of messages.
    pub(super) const fn is_of_messages(&self) -> bool {
        matches!(self, Self::Records { .. } | Self::Open { .. } | Self::Data { .. })
    }
}

/// A message with a payload.
#[derive(Debug)]
struct Going<L> {
    control_len: u8,
    control: [u8; CONTROL_MAX],
    load: L,
    bytes: u32,
    token: Option<Token>,
    pages: bool,
    cookie: Option<u64>,
    /// Bytes that go without being asked for; chosen when the message is opened.
    unasked: u32,
    /// Up to where bytes may go.
    allowed: u32,
    /// Up to where bytes have gone at least once.
    gone: u32,
    /// Bytes of its frames' bodies; chosen when it is opened.
    body: u16,
    /// Which bytes the other side has.
    there: Spans,
    opened: bool,
    open_there: bool,
    unwanted: bool,
    /// Whether it is counted among those that are behind.
    behind: bool,
}

impl<L> Going<L> {
    const fn is_done(&self) -> bool {
        self.open_there && (self.unwanted || self.there.front() >= self.bytes)
    }
}

#[derive(Debug)]
enum Out<L> {
    Control(u8, [u8; CONTROL_MAX]),
    Loaded(Box<Going<L>>),
    Done,
}

/// A payload to be sent, and what the sender says of it.
#[derive(Debug)]
pub struct Cargo<L> {
    /// The payload; it may be empty.
    pub load: L,
    /// Where it shall land.
    pub token: Option<Token>,
    /// Whether it comes from pages.
    pub pages: bool,
    /// Named when the payload's memory may be used again.
    pub cookie: Option<u64>,
}

/// What is to be sent next.
#[derive(Debug)]
pub(super) enum Next {
    /// Control messages: the first, and how many.
    Records { first: u64, count: u32 },
    /// A message's opening, and so many bytes of its payload.
    Open { message: u64, opening: Box<Opening>, len: u32 },
    /// Bytes of a payload, for one frame or several.
    Data { message: u64, offset: u32, len: u32 },
}

/// The sending side of a channel.
#[derive(Debug)]
pub(super) struct Outbox<L> {
    /// Number of the first entry.
    base: u64,
    entries: VecDeque<Out<L>>,
    /// The first message that was never sent.
    fresh: u64,
    /// Messages of whose payload bytes may go now, by rising number.
    sending: VecDeque<u64>,
    /// Messages that were opened, and of whose payload bytes have not gone yet.
    behind: u64,
    /// What was lost.
    again: VecDeque<Content>,
    /// Limits of the other side.
    messages: u64,
    unasked: u64,
    /// The frame of the other side that has said so.
    told_by: u64,
    /// Bytes sent unasked so far.
    used: u64,
    /// Cookies of messages that are done.
    pub(super) completed: VecDeque<u64>,
    /// Payloads that have arrived, and that an adapter may still read; and their cookies.
    pub(super) in_use: Vec<(L, Option<u64>)>,
    pub(super) payload_bytes: u64,
}

impl<L: Load> Outbox<L> {
    /// Messages are numbered from `begin` on, and unasked bytes counted from there.
    pub(super) fn new(limits: Limits, begin: u64) -> Self {
        Self {
            base: begin,
            entries: VecDeque::new(),
            fresh: begin,
            sending: VecDeque::new(),
            behind: 0,
            again: VecDeque::new(),
            messages: widen(limits.messages, begin),
            unasked: widen(limits.unasked, begin),
            told_by: 0,
            used: begin,
            completed: VecDeque::new(),
            in_use: Vec::new(),
            payload_bytes: 0,
        }
    }

    /// Number of the next message.
    pub(super) fn next(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    /// How many more messages the other side takes.
    pub(super) fn room(&self) -> u64 {
        self.messages.saturating_sub(self.next())
    }

    /// Messages that the other side has not acknowledged.
    pub(super) fn waiting(&self) -> usize {
        self.entries.len()
    }

    /// Messages that all before them are acknowledged.
    pub(super) const fn acknowledged(&self) -> u64 {
        self.base
    }

    /// Takes a message in.
    #[inline]
    pub(super) fn push(&mut self, control: &[u8], cargo: Option<Cargo<L>>) -> u64 {
        let number = self.next();
        let len = control.len().min(CONTROL_MAX);
        let control_len = u8::try_from(len).unwrap_or(0);
        let Some(Cargo { load, token, pages, cookie }) = cargo else {
            self.entries.push_back(Out::Control(control_len, [0; CONTROL_MAX]));
            // Copied once, to where it stays: what was just copied cannot be copied on at once.
            if let Some(Out::Control(_, copied)) = self.entries.back_mut() {
                copied[..len].copy_from_slice(&control[..len]);
            }
            return number;
        };
        let mut copied = [0; CONTROL_MAX];
        copied[..len].copy_from_slice(&control[..len]);
        let bytes = u32::try_from(load.len()).unwrap_or(u32::MAX);
        self.payload_bytes += u64::from(bytes);
        self.entries.push_back(Out::Loaded(Box::new(Going {
            control_len,
            control: copied,
            load,
            bytes,
            token,
            pages,
            cookie,
            unasked: 0,
            allowed: 0,
            gone: 0,
            body: u16::MAX,
            there: Spans::default(),
            opened: false,
            open_there: false,
            unwanted: false,
            behind: false,
        })));
        number
    }

    fn entry(&mut self, message: u64) -> Option<&mut Out<L>> {
        let index = usize::try_from(message.checked_sub(self.base)?).ok()?;
        self.entries.get_mut(index)
    }

    fn going(&mut self, message: u64) -> Option<&mut Going<L>> {
        match self.entry(message) {
            Some(Out::Loaded(going)) => Some(going),
            _ => None,
        }
    }

    /// The payload of a message.
    pub(super) fn load(&self, message: u64) -> Option<&L> {
        let index = usize::try_from(message.checked_sub(self.base)?).ok()?;
        match self.entries.get(index) {
            Some(Out::Loaded(going)) => Some(&going.load),
            _ => None,
        }
    }

    /// Bytes of a message's payload that have not gone even once.
    pub(super) fn left(&mut self, message: u64) -> usize {
        self.going(message).map_or(0, |going| (going.bytes - going.gone) as usize)
    }

    /// Bytes of a message's payload that the other side has, and need not be kept; none before it has the opening, with
    /// which some of them may go again.
    pub(super) fn acknowledged_bytes(&mut self, message: u64) -> usize {
        self.going(message).filter(|going| going.open_there).map_or(0, |going| going.there.bytes() as usize)
    }

    /// Where those begin and end that it lacks.
    pub(super) fn lacks(&mut self, message: u64, mut each: impl FnMut(usize, usize)) {
        let Some(going) = self.going(message) else { return };
        let mut from = 0;
        while from < going.bytes {
            let (begin, end) = if going.open_there { going.there.gap_from(from) } else { (0, None) };
            let end = end.unwrap_or(going.bytes);
            if begin < end {
                each(begin as usize, end as usize);
            }
            from = end;
        }
    }

    /// Puts another payload in the place of a message's, of the same bytes: from now on it is sent from there.
    pub(super) fn replace(&mut self, message: u64, load: L) {
        if let Some(going) = self.going(message) {
            going.load = load;
        }
    }

    /// How far the other side takes messages and unasked bytes by now, as it says in its frame of this number. Frames
    /// overtake each other: of unasked bytes, which it may take back, the latest counts.
    pub(super) fn allow(&mut self, limits: Limits, number: u64) {
        self.messages = self.messages.max(widen(limits.messages, self.messages));
        if number >= self.told_by {
            (self.unasked, self.told_by) = (widen(limits.unasked, self.unasked), number);
        }
    }

    /// The other side takes a payload up to a byte. False if there never was such a message.
    pub(super) fn grant(&mut self, message_low: u32, upto: u32) -> bool {
        let message = widen(message_low, self.base);
        if message >= self.fresh {
            return false;
        }
        let Some(going) = self.going(message) else { return true };
        if upto == WANTS_NO_MORE {
            going.unwanted = true;
            self.list(message);
            self.finish(message);
            return true;
        }
        going.allowed = going.allowed.max(upto.min(going.bytes));
        self.list(message);
        true
    }

    /// A frame has arrived.
    pub(super) fn acked(&mut self, content: Content) {
        match content {
            Content::Records { first, count } => {
                for message in first..first + u64::from(count) {
                    if let Some(entry) = self.entry(message) {
                        *entry = Out::Done;
                    }
                }
                self.retire();
            }
            Content::Open { message, len } => {
                if let Some(going) = self.going(message) {
                    going.open_there = true;
                    going.there.insert(0, len);
                    self.finish(message);
                }
            }
            Content::Data { message, offset, len } => {
                if let Some(going) = self.going(message) {
                    if !going.there.insert(offset, offset + len) {
                        self.again.push_back(content);
                        return;
                    }
                    self.finish(message);
                }
            }
            Content::Note { .. } | Content::Probe { .. } | Content::Close => {}
        }
    }

    /// A frame was lost.
    pub(super) fn lost(&mut self, content: Content) {
        self.again.push_back(content);
    }

    fn finish(&mut self, message: u64) {
        let Some(entry) = self.entry(message) else { return };
        let Out::Loaded(going) = entry else { return };
        if !going.is_done() {
            return;
        }
        if let Out::Loaded(going) = core::mem::replace(entry, Out::Done) {
            let Going { load, cookie, .. } = *going;
            if load.is_in_use() {
                self.in_use.push((load, cookie));
            } else {
                self.completed.extend(cookie);
            }
        }
        self.retire();
    }

    fn retire(&mut self) {
        while matches!(self.entries.front(), Some(Out::Done)) {
            self.entries.pop_front();
            self.base += 1;
        }
        if self.entries.is_empty() && self.entries.capacity() > 64 {
            self.entries = VecDeque::new();
        }
    }

    /// Lets go of memory in which nothing lies.
    pub(super) fn settle_down(&mut self) {
        self.entries.shrink_to_fit();
        self.again.shrink_to_fit();
        self.in_use.shrink_to_fit();
        self.sending.shrink_to_fit();
        self.completed.shrink_to_fit();
    }

    fn peek(&self, message: u64) -> Option<&Out<L>> {
        let index = usize::try_from(message.checked_sub(self.base)?).ok()?;
        self.entries.get(index)
    }

    /// Messages that were never sent.
    pub(super) fn unsent(&self) -> u64 {
        self.next() - self.fresh
    }

    /// Messages of which a part was never sent.
    pub(super) fn behind(&self) -> u64 {
        self.unsent() + self.behind
    }

    /// Lists a message that has changed where it belongs now: with those that are behind, and those whose bytes may go.
    fn list(&mut self, message: u64) {
        let Some(going) = self.going(message) else { return };
        let behind = going.opened && !going.unwanted && going.gone < going.bytes;
        let was = core::mem::replace(&mut going.behind, behind);
        let sending = behind && going.gone < going.allowed;
        self.behind = self.behind + u64::from(behind) - u64::from(was);
        if sending {
            enter(&mut self.sending, message);
        } else {
            strike(&mut self.sending, message);
        }
    }
}

/// The number near `near` whose low 32 bits these are.
pub(super) const fn widen(half: u32, near: u64) -> u64 {
    let distance = half.wrapping_sub(low(near)).cast_signed();
    near.saturating_add_signed(distance as i64)
}

/// Bytes of a frame with this body.
pub(super) const fn frame_bytes(body: usize) -> usize {
    HEADER_BYTES + body
}

#[cfg(test)]
mod tests;
