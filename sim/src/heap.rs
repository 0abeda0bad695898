//! The event heap: what happens next, and nothing happens out of order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::{Span, Time};

/// An event that waits for its time.
#[derive(Debug)]
struct Waiting<E> {
    at: Time,
    order: u64,
    event: E,
}

impl<E> PartialEq for Waiting<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl<E> Eq for Waiting<E> {}

impl<E> PartialOrd for Waiting<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Waiting<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Events in the order of their times; those of the same time in the order in which they were put in. One run uses one
/// heap and one thread, so the same run always takes the same course.
#[derive(Debug)]
pub struct Heap<E> {
    waiting: BinaryHeap<Reverse<Waiting<E>>>,
    now: Time,
    order: u64,
    taken: u64,
    longest: usize,
}

impl<E> Default for Heap<E> {
    fn default() -> Self {
        Self { waiting: BinaryHeap::new(), now: Time::START, order: 0, taken: 0, longest: 0 }
    }
}

impl<E> Heap<E> {
    /// An empty heap at the start of time.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The time of the event that was taken last.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Lets `event` happen `span` from now.
    pub fn after(&mut self, span: Span, event: E) {
        self.at(self.now + span, event);
    }

    /// Lets `event` happen at `at`, or now if that is in the past.
    pub fn at(&mut self, at: Time, event: E) {
        self.order += 1;
        self.waiting.push(Reverse(Waiting { at: at.max(self.now), order: self.order, event }));
        self.longest = self.longest.max(self.waiting.len());
    }

    /// Takes the next event and moves the time to it; `None` if nothing will ever happen again.
    pub fn take(&mut self) -> Option<E> {
        let Reverse(Waiting { at, event, .. }) = self.waiting.pop()?;
        self.now = at;
        self.taken += 1;
        Some(event)
    }

    /// When the next event happens.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        self.waiting.peek().map(|Reverse(waiting)| waiting.at)
    }

    /// Events taken so far.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// The most events that have waited at a time.
    #[must_use]
    pub const fn longest(&self) -> usize {
        self.longest
    }

    /// Events that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no event waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Heap;
    use crate::time::{Span, Time};

    proptest! {
        /// The oracle is a stable sort.
        #[test]
        fn events_come_by_time_then_by_order(times in prop::collection::vec(0u64..9, 0..99)) {
            let mut heap = Heap::new();
            for (number, &ps) in times.iter().enumerate() {
                heap.at(Time::from_ps(ps), (ps, number));
            }
            let mut sorted: Vec<_> = times.iter().copied().enumerate().map(|(number, ps)| (ps, number)).collect();
            sorted.sort_by_key(|&(ps, _)| ps);
            let taken: Vec<_> = std::iter::from_fn(|| heap.take()).collect();
            prop_assert_eq!(taken, sorted);
        }
    }

    #[test]
    fn nothing_happens_in_the_past() {
        let mut heap = Heap::new();
        heap.after(Span::from_ns(5), "late");
        assert_eq!(heap.take(), Some("late"));
        heap.at(Time::START, "early");
        assert_eq!(heap.take(), Some("early"));
        assert_eq!(heap.now(), Time::START + Span::from_ns(5));
        assert_eq!((heap.take(), heap.taken(), heap.longest()), (None, 2, 1));
    }
}
