//! Which bytes of a payload are there: a sorted list of spans, as a rule one.

use alloc::vec::Vec;

/// Most spans that are remembered; bytes that would need more are refused and have to come again.
pub(super) const SPANS_MAX: usize = 1024;

/// Bytes that are there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Spans {
    /// The span that begins at 0 ends here.
    front: u32,
    /// Spans beyond it: beginning and end, sorted, apart from each other.
    beyond: Vec<(u32, u32)>,
    bytes: u32,
}

impl Spans {
    /// Bytes that are there without a gap, from the beginning on.
    #[must_use]
    pub(super) const fn front(&self) -> u32 {
        self.front
    }

    /// Bytes that are there in all.
    #[must_use]
    pub(super) const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The first gap that begins at `from` or behind it: its beginning, and its end if a span lies behind it.
    #[must_use]
    pub(super) fn gap_from(&self, from: u32) -> (u32, Option<u32>) {
        if from <= self.front {
            return (self.front, self.beyond.first().map(|span| span.0));
        }
        let at = self.beyond.partition_point(|span| span.1 < from);
        match self.beyond.get(at) {
            Some(span) if span.0 <= from => (span.1, self.beyond.get(at + 1).map(|next| next.0)),
            next => (from, next.map(|next| next.0)),
        }
    }

    /// Whether all bytes from `begin` to `end` are there; of none, all are.
    #[must_use]
    pub(super) fn has(&self, begin: u32, end: u32) -> bool {
        begin >= end || end <= self.front || self.beyond.iter().any(|span| span.0 <= begin && end <= span.1)
    }

    /// Whether any of the bytes from `begin` to `end` is there.
    #[must_use]
    pub(super) fn has_some(&self, begin: u32, end: u32) -> bool {
        begin < end && (begin < self.front || self.beyond.iter().any(|span| span.0 < end && begin < span.1))
    }

    /// Remembers that the bytes from `begin` to `end` are there. False if that would take more than [`SPANS_MAX`]
    /// spans: then nothing has changed.
    pub(super) fn insert(&mut self, begin: u32, end: u32) -> bool {
        if begin >= end {
            return true;
        }
        if begin <= self.front {
            if end > self.front {
                self.bytes += end - self.front;
                self.front = end;
                self.swallow();
            }
            return true;
        }
        let first = self.beyond.partition_point(|span| span.1 < begin);
        let last = self.beyond.partition_point(|span| span.0 <= end);
        let (mut joined, mut had) = ((begin, end), 0);
        for span in &self.beyond[first..last] {
            joined = (joined.0.min(span.0), joined.1.max(span.1));
            had += span.1 - span.0;
        }
        if first == last && self.beyond.len() >= SPANS_MAX {
            return false;
        }
        self.beyond.splice(first..last, [joined]);
        self.bytes += joined.1 - joined.0 - had;
        true
    }

    /// Joins the front with the spans that it has reached.
    fn swallow(&mut self) {
        let mut reached = 0;
        for span in &self.beyond {
            if span.0 > self.front {
                break;
            }
            let covered = span.1.min(self.front) - span.0;
            self.bytes -= covered;
            self.front = self.front.max(span.1);
            reached += 1;
        }
        self.beyond.drain(..reached);
    }

    /// Each span: beginning and end.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        (self.front > 0).then_some((0, self.front)).into_iter().chain(self.beyond.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn spans_are_a_set_of_bytes(inserts in prop::collection::vec((0_u32..200, 0_u32..40), 0..60)) {
            let (mut spans, mut set) = (Spans::default(), BTreeSet::new());
            for (begin, len) in inserts {
                prop_assert!(spans.insert(begin, begin + len));
                set.extend(begin..begin + len);
                prop_assert!(spans.has(begin, begin + len));
                prop_assert_eq!(spans.bytes() as usize, set.len());
                prop_assert_eq!(spans.front(), (0..).find(|byte| !set.contains(byte)).unwrap());
                let listed: BTreeSet<u32> = spans.iter().flat_map(|(begin, end)| begin..end).collect();
                prop_assert_eq!(&listed, &set);
            }
            for from in 0..260 {
                let begin = (from..).find(|byte| !set.contains(byte)).unwrap();
                let end = set.range(begin..).next().copied();
                prop_assert_eq!(spans.gap_from(from), (begin, end));
            }
        }
    }
}
