//! Which frame numbers have arrived: what the receiver acknowledges, and what it refuses as a replay.
//!
//! Numbers come in order but for the gaps that losses leave, so what is kept is one number, below which all is settled,
//! and the ranges that arrived above it (RFC 9000, section 13.2.3). As long as nothing is lost there are none.
//!
//! What its sender does not wait for any more may come all the same, by a way that is longer than others. It is taken,
//! and its sender told: that is how it learns of such ways.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Ranges that are kept above the first gap. With more, the lowest is forgotten.
const RANGES_MAX: usize = 256;

/// Gaps that are kept of those that were closed though nothing had come. With more, the lowest is forgotten.
const CLOSED_MAX: usize = 256;

/// How far behind the next number what fills one of them may be. Frames say of most numbers in them the low half only,
/// so nothing that is much older may be taken.
const BEHIND_MAX: u64 = 1 << 16;

/// Numbers that came late of which the sender is told, if it is told at all. With more, the lowest is forgotten.
const LATE_MAX: usize = 128;

/// Ranges for which room is kept when none is left.
const RANGES_KEPT: usize = 8;

/// How far a number may be ahead of the largest that arrived. Far more than any window holds.
const AHEAD_MAX: u64 = 1 << 20;

/// The numbers that have arrived on a channel, and the window against replays (as that of RFC 4303, section 3.4.3).
///
/// Nothing is allocated until there is a gap.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// All numbers below have arrived, or their sender does not wait for them any more.
    below: u64,
    /// No number below this is taken any more; at least `below`.
    floor: u64,
    /// `[first, end)` of what arrived at or above `floor`, rising, with a gap before each.
    ranges: VecDeque<(u64, u64)>,
    /// What may come late, once there was a gap that was closed.
    late: Option<Box<Late>>,
}

/// Numbers below those that are settled.
#[derive(Debug, Clone, Default)]
struct Late {
    /// `[first, end)` of those that have not arrived and are taken yet, rising.
    gaps: VecDeque<(u64, u64)>,
    /// Those that have since, and whose sender was not told.
    came: Vec<u64>,
}

impl Late {
    fn close(&mut self, first: u64, end: u64) {
        if first < end {
            if self.gaps.len() == CLOSED_MAX {
                self.gaps.pop_front();
            }
            self.gaps.push_back((first, end));
        }
    }

    fn place(&self, number: u64) -> Option<usize> {
        let place = self.gaps.partition_point(|gap| gap.1 <= number);
        self.gaps.get(place).is_some_and(|gap| gap.0 <= number).then_some(place)
    }

    fn take(&mut self, number: u64) {
        let Some(place) = self.place(number) else { return };
        let (first, end) = self.gaps[place];
        match (first == number, number + 1 == end) {
            (true, true) => drop(self.gaps.remove(place)),
            (true, false) => self.gaps[place].0 = number + 1,
            (false, true) => self.gaps[place].1 = number,
            (false, false) => {
                self.gaps[place].1 = number;
                self.gaps.insert(place + 1, (number + 1, end));
            }
        }
        let place = self.came.partition_point(|came| *came < number);
        self.came.insert(place, number);
        if self.came.len() > LATE_MAX {
            self.came.remove(0);
        }
    }
}

impl Seen {
    /// Lets go of memory in which nothing lies, and of what may come late.
    pub fn settle_down(&mut self) {
        self.ranges.shrink_to_fit();
        self.late = None;
    }

    /// The numbers of a channel whose first is `number`.
    #[must_use]
    pub fn starting_at(number: u64) -> Self {
        Self { below: number, floor: number, ..Self::default() }
    }

    /// Whether `number` can be taken: it has not arrived before, is not so old that nobody knows whether it has, and is
    /// less than 2^20 ahead of what could come next.
    #[must_use]
    pub fn is_new(&self, number: u64) -> bool {
        let next = self.next();
        if number >= next {
            return number - next < AHEAD_MAX && number < u64::MAX;
        }
        if number < self.floor {
            return next - number <= BEHIND_MAX && self.late.as_ref().is_some_and(|late| late.place(number).is_some());
        }
        self.ranges.get(self.after(number).wrapping_sub(1)).is_none_or(|last| last.1 <= number)
    }

    /// Whether `count` numbers from `first` on can be taken, and all of them are greater than every one that arrived.
    #[must_use]
    pub fn are_next(&self, first: u64, count: u64) -> bool {
        let last = first.checked_add(count.saturating_sub(1));
        first >= self.next() && self.is_new(first) && last.is_some_and(|last| self.is_new(last))
    }

    /// Takes `number`. False if it is not new: see [`Seen::is_new`].
    ///
    /// Only for numbers of frames that are known to be genuine. If more than 256 ranges would have to be kept, the
    /// lowest is forgotten: no number below its end is taken any more, and none of them is acknowledged any more. The
    /// sender sends what was in those frames again, so whatever takes the contents must know them when they come twice.
    pub fn insert(&mut self, number: u64) -> bool {
        if !self.is_new(number) {
            return false;
        }
        if number < self.floor {
            self.late.iter_mut().for_each(|late| late.take(number));
            return true;
        }
        if number == self.below {
            self.below += 1;
            self.settle();
            return true;
        }
        let place = self.after(number);
        let joins_last = place > 0 && self.ranges[place - 1].1 == number;
        let joins_next = self.ranges.get(place).is_some_and(|next| next.0 == number + 1);
        match (joins_last, joins_next) {
            (true, true) => {
                self.ranges[place - 1].1 = self.ranges[place].1;
                self.ranges.remove(place);
            }
            (true, false) => self.ranges[place - 1].1 = number + 1,
            (false, true) => self.ranges[place].0 = number,
            (false, false) => {
                self.ranges.insert(place, (number, number + 1));
                self.bound();
            }
        }
        true
    }

    /// Takes `count` numbers from `first` on, as [`Seen::insert`] would one by one.
    pub fn insert_run(&mut self, first: u64, count: u64) {
        if first == self.below && self.ranges.is_empty() && count < AHEAD_MAX && first < u64::MAX - count {
            self.below += count;
            self.settle();
            return;
        }
        (first..first.saturating_add(count)).for_each(|number| {
            self.insert(number);
        });
    }

    /// Closes the gaps below `number`: the sender says that it waits for no acknowledgement of a lower one. Numbers
    /// below it are refused from now on.
    ///
    /// At most one past the largest number that arrived is believed. That costs the honest nothing: the frame which
    /// says it has a larger number.
    pub fn forget_below(&mut self, number: u64) {
        let number = number.min(self.next());
        if number <= self.below {
            return;
        }
        self.close_gaps(number);
        self.below = number;
        while self.ranges.front().is_some_and(|first| first.1 <= number) {
            self.ranges.pop_front();
        }
        self.settle();
    }

    /// The gaps below `number` are kept as closed.
    fn close_gaps(&mut self, number: u64) {
        let next = self.next();
        let late = self.late.get_or_insert_default();
        while late.gaps.front().is_some_and(|gap| next - gap.1 >= BEHIND_MAX) {
            late.gaps.pop_front();
        }
        let mut first = self.floor;
        for range in self.ranges.iter().take_while(|range| range.0 < number) {
            late.close(first, range.0);
            first = range.1;
        }
        late.close(first, number);
    }

    /// Takes out at most so many of the numbers that came after their gap was closed, and of which this has not told,
    /// newest first: for an acknowledgement, in which they are below all others.
    pub fn take_late(&mut self, most: usize) -> impl Iterator<Item = u64> {
        let newest = |late: &mut Box<Late>| late.came.split_off(late.came.len().saturating_sub(most));
        self.late.as_mut().map(newest).unwrap_or_default().into_iter().rev()
    }

    /// Whether there are such numbers.
    #[must_use]
    pub fn has_late(&self) -> bool {
        self.late.as_ref().is_some_and(|late| !late.came.is_empty())
    }

    /// All numbers below this have arrived, or their sender has said that it does not wait for them.
    #[must_use]
    pub const fn below(&self) -> u64 {
        self.below
    }

    /// How many gaps there are among the numbers that have arrived.
    #[must_use]
    pub fn gaps(&self) -> usize {
        self.ranges.len()
    }

    /// The largest number that arrived, if one has.
    #[must_use]
    pub fn largest(&self) -> Option<u64> {
        self.next().checked_sub(1)
    }

    /// What every header carries.
    #[must_use]
    pub fn ack(&self) -> Ack {
        let start = self.below.saturating_add(1);
        let within = |number: u64| number.saturating_sub(start).min(64);
        let bits = self
            .ranges
            .iter()
            .take_while(|range| range.0 <= self.below.saturating_add(64))
            .map(|&(first, end)| low_bits(within(end)) & !low_bits(within(first)))
            .fold(0, |all, bits| all | bits);
        Ack { below: self.below, bits }
    }

    /// The ranges `[first, end)` that arrived above [`Seen::below`], newest first, at most `most` of them: for an
    /// acknowledgement of more than [`Seen::ack`] can say.
    pub fn ranges(&self, most: usize) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().rev().take(most).copied()
    }

    /// One past the largest number that arrived; 0 if none has.
    fn next(&self) -> u64 {
        self.ranges.back().map_or(self.below, |last| last.1)
    }

    /// How many ranges begin at or below `number`. Almost always it is all of them.
    fn after(&self, number: u64) -> usize {
        match self.ranges.back() {
            Some(last) if last.0 > number => self.ranges.partition_point(|range| range.0 <= number),
            _ => self.ranges.len(),
        }
    }

    /// Takes the range that begins at or below `below` into it, and lets go of memory that is not needed.
    fn settle(&mut self) {
        if let Some(&(first, end)) = self.ranges.front()
            && first <= self.below
        {
            self.below = end;
            self.ranges.pop_front();
        }
        self.floor = self.floor.max(self.below);
        if self.ranges.is_empty() && self.ranges.capacity() > RANGES_KEPT {
            self.ranges = VecDeque::new();
        }
    }

    fn bound(&mut self) {
        if self.ranges.len() > RANGES_MAX
            && let Some((_, end)) = self.ranges.pop_front()
        {
            self.floor = end;
        }
    }
}

/// The `count` lowest bits, of 64 at most.
const fn low_bits(count: u64) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// What a header says of the numbers that have arrived at its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ack {
    /// All numbers below this have arrived, or are no longer waited for. This number has not.
    pub below: u64,
    /// Bit `i`: the number `below + 1 + i` has arrived.
    pub bits: u64,
}

impl Ack {
    /// The acknowledgement that a header brings, of which the wire carries only the low 32 bits of `below`.
    /// `next_number` is the number that the reader will send next.
    ///
    /// None if it speaks of a number that was never sent, or of one more than 2^31 ago.
    #[must_use]
    pub fn from_wire(below_low: u32, bits: u64, next_number: u64) -> Option<Self> {
        let near = (next_number & !u64::from(u32::MAX)) | u64::from(below_low);
        let below = if near <= next_number { near } else { near.checked_sub(1 << 32)? };
        let ack = Self { below, bits };
        (next_number - below <= 1 << 31 && ack.end() <= next_number).then_some(ack)
    }

    /// Whether `number` is one of those above `below` that have arrived.
    #[must_use]
    pub const fn has_bit(self, number: u64) -> bool {
        match number.checked_sub(self.below) {
            None | Some(0) => false,
            Some(ahead) => ahead <= 64 && self.bits >> (ahead - 1) & 1 == 1,
        }
    }

    /// One past the largest number that it acknowledges; 0 if it acknowledges none.
    #[must_use]
    pub const fn end(self) -> u64 {
        match self.bits {
            0 => self.below,
            bits => self.below.saturating_add(65 - bits.leading_zeros() as u64),
        }
    }
}
