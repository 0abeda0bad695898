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
            Content::Open { message, .. } => self.going(message).is_some_and(|going| !going.open_there),
            Content::Data { message, offset, len } => {
                self.going(message).is_some_and(|going| !going.unwanted && !going.there.has(offset, offset + len))
            }
            Content::Note { .. } | Content::Probe { .. } | Content::Close => false,
        }
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
            Content::Open { message, len } => {
                let going = self.going(message)?;
                if going.open_there {
                    return None;
                }
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
