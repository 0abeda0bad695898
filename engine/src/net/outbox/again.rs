//! What was lost, once more.

use super::super::memory::Load;
use super::{Content, Next, Out, Outbox};

impl<L: Load> Outbox<L> {
    /// Forgets of what was lost what comes first and the other side does not lack any more.
    pub(in crate::net) fn forget_again(&mut self) {
        while let Some(content) = self.again.front().copied()
            && !self.is_lacked(content)
        {
            self.again.pop_front();
        }
    }

    /// Whether the other side still lacks any of what was lost.
    fn is_lacked(&mut self, content: Content) -> bool {
        match content {
            Content::Records { first, count } => {
                let mut numbers = first.max(self.base)..first + u64::from(count);
                numbers.any(|number| matches!(self.peek(number), Some(Out::Control(..))))
            }
            // An opening that went again may have carried more than the one that has arrived.
            Content::Open { message, len } if self.has_opening(message) => {
                self.is_lacked(Content::Data { message, offset: 0, len })
            }
            Content::Open { message, .. } => self.going(message).is_some(),
            Content::Data { message, offset, len } => {
                self.going(message).is_some_and(|going| !going.unwanted && !going.there.has(offset, offset + len))
            }
            Content::Note { .. } | Content::Probe { .. } | Content::Close => false,
        }
    }

    /// Whether the other side has the opening of a message that is on its way.
    fn has_opening(&mut self, message: u64) -> bool {
        self.going(message).is_some_and(|going| going.open_there)
    }

    /// What was lost once more, if the other side still lacks it.
    pub(super) fn repeat(&mut self, content: Content, body: usize) -> Option<Next> {
        match content {
            Content::Records { first, count } => {
                let end = first + u64::from(count);
                let first = (first.max(self.base)..end).find(|number| {
                    let index = usize::try_from(number - self.base).unwrap_or(usize::MAX);
                    matches!(self.entries.get(index), Some(Out::Control(..)))
                })?;
                let count = self.records(first, end, body);
                let rest = first + u64::from(count);
                if rest < end {
                    let left = u32::try_from(end - rest).unwrap_or(0);
                    self.again.push_front(Content::Records { first: rest, count: left });
                }
                (count > 0).then_some(Next::Records { first, count })
            }
            Content::Open { message, len } if self.has_opening(message) => {
                self.repeat(Content::Data { message, offset: 0, len }, body)
            }
            Content::Open { message, len } => {
                self.going(message)?;
                let next = self.open(message, body)?;
                // On a path that has become narrower the opening carries less than it did.
                if let Next::Open { len: now, .. } = &next
                    && *now < len
                {
                    self.again.push_front(Content::Data { message, offset: *now, len: len - *now });
                }
                Some(next)
            }
            Content::Data { message, offset, len } => {
                let going = self.going(message)?;
                if going.unwanted || going.there.has(offset, offset + len) {
                    return None;
                }
                // An opening that went again on a path that has become wider may have carried a part of it.
                let had = going.there.front().saturating_sub(offset);
                let (offset, len) = (offset + had, len - had);
                let most = u32::try_from(body).unwrap_or(u32::MAX);
                if len > most {
                    self.again.push_front(Content::Data { message, offset: offset + most, len: len - most });
                }
                Some(Next::Data { message, offset, len: len.min(most) })
            }
            Content::Note { .. } | Content::Probe { .. } | Content::Close => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use cutthrough_wire::frame::Limits;

    use super::super::Cargo;
    use super::*;

    /// Found by the simulator of faults: seed 310656.
    #[test]
    fn what_an_opening_carried_more_than_the_one_that_arrived_goes_again() {
        let mut outbox = Outbox::<Vec<u8>>::new(Limits { messages: 8, unasked: 411 }, 0);
        let cargo = Cargo { load: vec![7; 672], token: None, pages: false, cookie: None };
        outbox.push(b"a word", Some(cargo));
        let Some(Next::Open { len: 411, .. }) = outbox.next_frames(1400, 1) else { panic!("as much as may go") };
        let first = Content::Open { message: 0, len: 411 };
        outbox.lost(first);
        assert!(outbox.grant(0, 672));
        let Some(Next::Open { len: 672, .. }) = outbox.next_frames(1400, 1) else { panic!("all may go now") };
        outbox.lost(Content::Open { message: 0, len: 672 });
        outbox.acked(first);
        outbox.forget_again();
        let next = outbox.next_frames(1400, 1);
        assert!(matches!(next, Some(Next::Data { message: 0, offset: 411, len: 261 })), "{next:?}");
    }
}
