//! What goes next, and how much of it there is.

use alloc::boxed::Box;

use cutthrough_wire::frame::{LIMITS_BYTES, Limits, OPENING_BYTES, Opening, RECORD_BYTES};
use cutthrough_wire::slot::CONTROL_MAX;

use super::super::batch::PADDED;
use super::super::memory::Load;
use super::{Content, Next, Out, Outbox, frame_bytes};

/// Messages that were never sent whose payloads are looked at, to know how much there is ahead.
const LOOKED_AT: u64 = 64;

impl<L: Load> Outbox<L> {
    /// Whether anything could be sent now.
    pub(in crate::net) fn has_next(&self) -> bool {
        !self.again.is_empty() || (self.fresh < self.next() && self.fresh < self.messages) || !self.sending.is_empty()
    }

    /// Bytes of the next frame, if that is a message that was never sent, with all of its payload in a body of at most
    /// `body` bytes.
    pub(in crate::net) fn next_whole(&self, body: usize) -> Option<usize> {
        if !self.again.is_empty() || !self.sending.is_empty() || self.fresh >= self.messages {
            return None;
        }
        let Some(Out::Loaded(going)) = self.peek(self.fresh) else { return None };
        let bytes = OPENING_BYTES + going.bytes as usize;
        let goes = bytes <= body && u64::from(going.bytes) <= self.unasked.saturating_sub(self.used);
        goes.then(|| frame_bytes(bytes))
    }

    /// Bytes of the body of the next frame, of at most `body` bytes, if it is a full one.
    pub(in crate::net) fn next_body(&self, body: usize) -> usize {
        let next = self.sending.front().copied().unwrap_or(self.fresh);
        if self.again.is_empty() { self.body_of(next, body) } else { body }
    }

    /// Bytes of the bodies of a message's frames, of at most `body` bytes.
    pub(in crate::net) fn body_of(&self, message: u64, body: usize) -> usize {
        match self.peek(message) {
            Some(Out::Loaded(going)) if going.opened => body.min(usize::from(going.body)),
            Some(Out::Loaded(going)) => self.like(going.bytes, body),
            _ => body,
        }
    }

    /// Bytes of the bodies of a payload's frames if the message is opened now. They are of like length where the last
    /// one would else be much shorter than others: then it could not be filled up for others to follow in its batch.
    fn like(&self, payload: u32, body: usize) -> usize {
        let bytes = OPENING_BYTES + payload as usize;
        let frames = bytes.div_ceil(body.max(1));
        let lacks = frames * body - bytes;
        let all = u64::from(payload) <= self.unasked.saturating_sub(self.used);
        if frames > 1 && all && lacks > payload as usize / PADDED { bytes.div_ceil(frames) } else { body }
    }

    /// About how many bytes could go next; of more than `enough`, some number above that.
    pub(in crate::net) fn ahead(&self, enough: u64) -> u64 {
        let unsent = self.next().min(self.messages).saturating_sub(self.fresh);
        let mut sum = unsent.saturating_sub(LOOKED_AT) * CONTROL_MAX as u64;
        for content in &self.again {
            if sum > enough {
                return sum;
            }
            sum += match content {
                Content::Open { len, .. } | Content::Data { len, .. } => u64::from(*len),
                _ => CONTROL_MAX as u64,
            };
        }
        for message in &self.sending {
            if sum > enough {
                return sum;
            }
            if let Some(Out::Loaded(going)) = self.peek(*message) {
                sum += u64::from(going.allowed.saturating_sub(going.gone));
            }
        }
        let mut unasked = self.unasked.saturating_sub(self.used);
        for message in self.fresh..self.fresh + unsent.min(LOOKED_AT) {
            if sum > enough {
                return sum;
            }
            sum += match self.peek(message) {
                Some(Out::Loaded(going)) => {
                    let first = u64::from(going.bytes).min(unasked);
                    unasked -= first;
                    OPENING_BYTES as u64 + first
                }
                Some(Out::Control(..) | Out::Done) | None => CONTROL_MAX as u64,
            };
        }
        sum
    }

    /// The next message, if it is the only thing there is to send, without a payload, and never was sent; it is taken
    /// as sent.
    pub(in crate::net) fn lone_record(&mut self) -> Option<Next> {
        let first = self.lone().filter(|first| matches!(self.peek(*first), Some(Out::Control(..))))?;
        self.fresh += 1;
        Some(Next::Records { first, count: 1 })
    }

    /// The next message, if it is the only thing there is to send, with a payload of which all may go in one frame with
    /// a body of at most `body` bytes, and never was sent; it is taken as sent.
    pub(in crate::net) fn lone_short(&mut self, body: usize) -> Option<Next> {
        let room = self.unasked.saturating_sub(self.used);
        let is_short = |going: &super::Going<L>| {
            let bytes = going.bytes as usize;
            bytes > 0 && OPENING_BYTES + bytes <= body && u64::from(going.bytes) <= room
        };
        let first =
            self.lone().filter(|first| matches!(self.peek(*first), Some(Out::Loaded(going)) if is_short(going)))?;
        self.fresh += 1;
        self.open(first, body)
    }

    /// The number of the next message, if it never was sent, may be, and is the only thing there is to send.
    fn lone(&self) -> Option<u64> {
        let first = self.fresh;
        let alone = self.again.is_empty() && self.sending.is_empty() && first + 1 == self.next();
        (alone && first < self.messages).then_some(first)
    }

    /// What goes into the next frame with a body of at most `body` bytes, or, of a payload, into up to `frames` such
    /// frames; it is taken as sent.
    pub(in crate::net) fn next_frames(&mut self, body: usize, frames: usize) -> Option<Next> {
        while let Some(content) = self.again.pop_front() {
            if let Some(next) = self.repeat(content, body) {
                return Some(next);
            }
        }
        if let Some(&message) = self.sending.front()
            && let Some(next) = self.more_data(message, body, frames)
        {
            return Some(next);
        }
        if self.fresh >= self.next() || self.fresh >= self.messages {
            return None;
        }
        let first = self.fresh;
        match self.entry(first)? {
            Out::Loaded(_) => {
                self.fresh += 1;
                self.open(first, body)
            }
            Out::Control(..) | Out::Done => {
                let count = self.records(first, self.messages.min(self.next()), body);
                self.fresh += u64::from(count);
                Some(Next::Records { first, count })
            }
        }
    }

    /// How many control messages from `first` on, and before `end`, fit into a body.
    pub(super) fn records(&self, first: u64, end: u64, body: usize) -> u32 {
        let (mut count, mut room) = (0, body - LIMITS_BYTES);
        for message in first..end {
            let Some(Out::Control(len, _)) = self.peek(message) else { break };
            let bytes = RECORD_BYTES + usize::from(*len);
            if bytes > room {
                break;
            }
            room -= bytes;
            count += 1;
        }
        count
    }

    /// The control messages of a frame.
    pub(in crate::net) fn write_records(&self, first: u64, count: u32, mut each: impl FnMut(&[u8])) {
        for message in first..first + u64::from(count) {
            if let Some(Out::Control(len, control)) = self.peek(message) {
                each(&control[..usize::from(*len)]);
            }
        }
    }

    pub(super) fn open(&mut self, message: u64, body: usize) -> Option<Next> {
        let credit = u32::try_from(self.unasked.saturating_sub(self.used)).unwrap_or(u32::MAX);
        let body = self.body_of(message, body);
        let going = self.going(message)?;
        let first = !going.opened;
        let room = u32::try_from(body.saturating_sub(OPENING_BYTES)).unwrap_or(0);
        if first {
            going.opened = true;
            going.body = u16::try_from(body).unwrap_or(u16::MAX);
            // What is not all of it ends with a full frame.
            let full = u32::from(going.body).max(1);
            let whole = credit.checked_sub(room).map_or(credit, |more| room + more / full * full);
            going.unasked = if going.bytes <= credit { going.bytes } else { whole };
            going.allowed = going.allowed.max(going.unasked);
        }
        let len = going.allowed.min(room);
        going.gone = going.gone.max(len);
        let opening = Box::new(Opening {
            payload: going.bytes,
            unasked: going.unasked,
            token: going.token,
            pages: going.pages,
            limits: Limits::default(),
            control_len: going.control_len,
            control: going.control,
        });
        self.used += if first { u64::from(going.unasked) } else { 0 };
        self.list(message);
        Some(Next::Open { message, opening, len })
    }

    fn more_data(&mut self, message: u64, body: usize, frames: usize) -> Option<Next> {
        let going = self.going(message)?;
        let offset = going.gone;
        let most = body.min(usize::from(going.body)).saturating_mul(frames);
        let len = (going.allowed - offset).min(u32::try_from(most).unwrap_or(u32::MAX));
        going.gone += len;
        self.list(message);
        Some(Next::Data { message, offset, len })
    }
}
