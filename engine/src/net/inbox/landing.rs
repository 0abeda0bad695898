//! Where the bytes of payloads land, and will probably land next.

use super::super::memory::Place;
use super::arrival::{Arrival, Target};
use super::{Coming, Inbox};
use crate::receipt::Placement;

/// Messages among which the next one to land is looked for.
const LOOKED: usize = 64;

impl<P: Place> Inbox<P> {
    /// Where the next bytes of a payload whose reader has lent memory will probably land; none if what is still to come
    /// was lost: then others come before it.
    pub(in crate::net) fn reader_gap(&self, number: u64) -> Option<(u32, u32)> {
        let arrival = self.arriving.get(self.handed(number)?)?;
        if matches!(arrival.target, Target::Reader) { arrival.ahead() } else { None }
    }

    /// The message whose bytes will probably come next, and the gap that they are for: the first one with a place that
    /// goes on behind what came of it last. What was lost before that comes again later, and new messages before it.
    pub(in crate::net) fn expected(&self) -> Option<(u64, u32, u32)> {
        self.window.iter().take(LOOKED).find_map(|coming| match coming {
            Coming::Loaded(arrival) if matches!(arrival.target, Target::Place(_)) => {
                arrival.ahead().map(|(begin, end)| (arrival.number, begin, end))
            }
            _ => None,
        })
    }

    /// The messages that go on so, first the one that has gone on last, then in their order; the gap of each, as far as
    /// its bytes may be sent by now; and whether that is all of it.
    pub(in crate::net) fn coming(&self) -> impl Iterator<Item = (u64, (u32, u32), bool)> + '_ {
        let gap = |arrival: &Arrival<P>| {
            let (begin, end) = arrival.ahead().filter(|_| matches!(arrival.target, Target::Place(_)))?;
            let sent = end.min(arrival.granted);
            Some((arrival.number, (begin, sent), sent == end))
        };
        let latest = self.latest;
        let last = latest.checked_sub(self.next).and_then(|at| self.window.get(usize::try_from(at).ok()?));
        let others = self.window.iter().take(LOOKED).filter_map(Coming::loaded);
        let others = others.filter(move |arrival| arrival.number != latest);
        last.and_then(Coming::loaded).into_iter().chain(others).filter_map(gap)
    }

    /// The end of the gap in a payload that `offset` lies in, if there is one, and memory for it; with `read`, a
    /// reader's.
    pub(in crate::net) fn gap_at(&mut self, number: u64, offset: u32, read: bool) -> Option<u32> {
        let arrival = self.known(number)?;
        let payload = arrival.opening.as_ref()?.payload;
        let memory = match &arrival.target {
            Target::Place(_) => true,
            Target::Reader => read,
            Target::Aside(_) | Target::Away => false,
        };
        let (begin, end) = arrival.have.gap_from(offset);
        (memory && begin == offset && offset < payload && offset < arrival.granted).then(|| end.unwrap_or(payload))
    }

    /// Whether any of `len` bytes of a payload from `offset` on are there already.
    pub(in crate::net) fn has_some(&mut self, number: u64, offset: u32, len: usize) -> bool {
        let end = offset.saturating_add(u32::try_from(len).unwrap_or(u32::MAX));
        self.known(number).is_some_and(|arrival| arrival.have.has_some(offset, end))
    }

    /// Whether the opening of a message has come.
    pub(in crate::net) fn is_opened(&mut self, number: u64) -> bool {
        number < self.next || self.known(number).is_some_and(|arrival| arrival.opening.is_some())
    }

    /// How payloads were placed when the first frame of this one came.
    pub(in crate::net) fn began(&self, number: u64) -> Option<Placement> {
        Some(self.known_now(number)?.choice.placement)
    }

    /// Bytes of the last two payloads, if they had as many: so the next one probably has.
    pub(in crate::net) fn alike(&self) -> Option<u32> {
        Some(self.last).filter(|(bytes, alike)| *alike && *bytes > 0).map(|(bytes, _)| bytes)
    }

    /// Takes the place of a message for a look at bytes that have landed there.
    pub(in crate::net) fn landing(&mut self, number: u64) -> Option<&mut P> {
        match &mut self.known(number)?.target {
            Target::Place(place) => Some(place),
            _ => None,
        }
    }
}
