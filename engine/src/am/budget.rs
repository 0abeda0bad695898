//! How long a request has lain before it was taken in, of two clocks that nobody has set.
//!
//! A request says how much time is left in which its answer counts, and its sender's clock at that moment, as a
//! **stamp** that wraps. Whoever takes requests in keeps the least difference between its own clock and the stamps of a
//! channel: that is by how much the clocks differ, and the shortest way. A request whose difference is greater by some
//! time has been under way for so much longer. That time is taken off what is left; of whom nothing is left then nobody
//! waits any more.
//!
//! To begin what nobody waits for is a waste; to refuse what somebody waits for is wrong. So what is taken off is never
//! more than
//!
//! - what the stamps say, less what they can be wrong by;
//! - the time since its receiver found last that nothing lay there, which the receiver's own clock says. What differs
//!   by far more has not waited: a clock has stood still or jumped, or the way has got longer. The least is forgotten
//!   then, and the request is as good as it says.
//!
//! Clocks go apart, so the least rises slowly. A receiver that never finds nothing would refuse for ever what comes of
//! a clock that has stood still. So if requests of a channel were refused for some seconds, none that has not waited
//! came between them, and their requesters have not given up themselves, the least of these waits is taken for none.
//! One that has waited as long, and has more time, is no proof of the contrary.

use super::Core;
use super::message::BUDGET_MAX;
use crate::time::Instant;

/// A stamp's unit, as a power of two, in nanoseconds: about a millisecond. Stamps wrap after 68.7 s.
const UNIT: u32 = 20;
/// Units by which the difference of two stamps may be too large: a clock that ticks a hundred times a second, and both
/// stamps rounded down.
const SLACK: u16 = 12;
/// The least rises by one part in so many, as a power of two: 488 parts in a million, more than clocks go apart.
const DRIFT: u32 = 11;
/// Units that the least rises at most.
const RISE_MAX: u16 = 1 << 14;
/// Units by which a request may be older than what has lain here could be: those of its way.
const ASTRAY: u64 = 64;
/// From so many units on a wait cannot be told from a least that was too large.
const FAR: u16 = 1 << 15;
/// Units of a silence in which what waits may get from below [`FAR`] to where it seems to be early.
const SILENCE: u64 = 1 << 14;
/// Nanoseconds for which all requests of a channel are refused, before that is looked into.
const VAIN_NS: u64 = 5_000_000_000;

/// How long an answer may take, as its requester says. Both of its numbers are one word, which most only pass on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget(u64);

impl Budget {
    /// So many nanoseconds, [`BUDGET_MAX`] at most, were left when a clock said this.
    #[inline(always)]
    #[must_use]
    pub const fn new(nanos: u64, stamp: u16) -> Self {
        let nanos = if nanos < BUDGET_MAX { nanos } else { BUDGET_MAX };
        Self(nanos << 16 | stamp as u64)
    }

    /// Nanoseconds that were left when this was said.
    #[inline(always)]
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0 >> 16
    }

    /// What the requester's clock said then.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "the lowest part of the word")]
    pub const fn stamp(self) -> u16 {
        self.0 as u16
    }

    /// So many nanoseconds are left now, by the clock of whoever says so.
    #[inline]
    #[must_use]
    pub const fn at(now: Instant, nanos: u64) -> Self {
        Self::new(nanos, stamp(now))
    }
}

/// The units of a clock, as a stamp.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "stamps wrap")]
const fn stamp(now: Instant) -> u16 {
    (now.as_nanos() >> UNIT) as u16
}

/// What the stamps of a channel have said.
#[derive(Debug, Clone, Default)]
pub struct Waits {
    /// Whether there were any: else there is no least.
    known: bool,
    /// The least difference between the clock here and a stamp.
    least: u16,
    /// When that was found.
    since: Instant,
    /// When a stamp was looked at last.
    seen: Instant,
    refused: Refused,
}

/// Requests of a channel that were refused since one came that had not waited.
#[derive(Debug, Clone, Default)]
struct Refused {
    count: u32,
    /// How many their requesters have given up.
    given_up: u32,
    since: Instant,
    /// The shortest wait since the first of them, in units.
    shortest: u16,
}

impl Waits {
    /// Whether a stamp is as stamps of this channel are, so that nothing has waited for long. `now` may be the time of
    /// the last tick. For any other, and for the first, ask [`Waits::left`].
    #[inline]
    pub fn is_usual(&mut self, stamp: u16, now: Instant) -> bool {
        let usual = self.known && self.above(stamp, now).wrapping_add(SLACK) <= 2 * SLACK;
        if usual {
            self.seen = now;
            self.refused.count = 0;
        }
        usual
    }

    /// What is left of a budget now: 0 if nobody waits any more. `idle` is when nothing lay here last.
    pub fn left(&mut self, budget: Budget, now: Instant, idle: Instant) -> u64 {
        let silence = now.saturating_since(self.seen) >> UNIT;
        let mut above = self.above(budget.stamp(), now);
        let longest = now.saturating_since(idle);
        let most = (longest >> UNIT) + u64::from(SLACK) + 1;
        self.seen = now;
        let blurred = longest >> UNIT >= u64::from(FAR) && silence >= SILENCE;
        if !self.known || blurred || above >= FAR || u64::from(above) > most + ASTRAY {
            self.known = true;
            self.is_least(stamp(now).wrapping_sub(budget.stamp()), now);
            return budget.nanos();
        }
        if let Ok(most) = u16::try_from(most)
            && above > most
        {
            // As much of it is the way's.
            self.is_least(self.raised(now).wrapping_add(above - most), now);
            above = most;
        }
        let left = after(budget, above, longest);
        if left > 0 || budget.nanos() == 0 {
            self.refused.passes(above);
            return left;
        }
        if self.refused.in_vain(above, now) {
            let shortest = self.refused.shortest;
            self.is_least(self.raised(now).wrapping_add(shortest), now);
            return after(budget, above - shortest, longest);
        }
        0
    }

    /// A requester of this channel has given a request up.
    pub const fn given_up(&mut self) {
        self.refused.given_up = self.refused.given_up.saturating_add(1);
    }

    const fn is_least(&mut self, difference: u16, now: Instant) {
        (self.least, self.since, self.refused.count) = (difference, now, 0);
    }

    /// The least, as far as it has risen.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "no more than the most that it rises")]
    const fn raised(&self, now: Instant) -> u16 {
        let units = now.saturating_since(self.since) >> (UNIT + DRIFT);
        self.least.wrapping_add(if units < RISE_MAX as u64 { units as u16 } else { RISE_MAX })
    }

    /// By how much the difference is above the least. What is below is above by almost all that there is.
    #[inline(always)]
    const fn above(&self, its: u16, now: Instant) -> u16 {
        stamp(now).wrapping_sub(its).wrapping_sub(self.raised(now))
    }
}

impl Refused {
    /// One that has waited for so many units is served all the same: there is time enough. So those that were refused
    /// are not refused rightly yet, nor are they done with.
    fn passes(&mut self, above: u16) {
        if above <= SLACK {
            self.count = 0;
        }
        self.shortest = self.shortest.min(above);
    }

    /// One more is to be refused, that has waited for so many units: whether it seems that all were refused wrongly.
    fn in_vain(&mut self, above: u16, now: Instant) -> bool {
        if self.count == 0 {
            *self = Self { count: 0, given_up: 0, since: now, shortest: above };
        }
        self.count = self.count.saturating_add(1);
        self.shortest = self.shortest.min(above);
        if now.saturating_since(self.since) < VAIN_NS {
            return false;
        }
        // Whoever gives up says so, behind his request, unless its refusal comes first.
        if self.given_up >= self.count - self.count / 8 {
            self.count = 0;
            return false;
        }
        true
    }
}

impl<K, L> Core<K, L> {
    /// Whether a request of this row has waited for no time that counts: [`Waits::is_usual`].
    #[inline]
    pub fn has_not_waited(&mut self, row: u32, budget: Budget, now: Instant) -> bool {
        self.peers.get_mut(row as usize).is_none_or(|peer| peer.waits.is_usual(budget.stamp(), now))
    }

    /// What is left of the budget of a request of this row that is taken in now: [`Waits::left`].
    #[must_use]
    pub fn left(&mut self, row: u32, budget: Budget, now: Instant, idle: Instant) -> u64 {
        self.peers.get_mut(row as usize).map_or(budget.nanos(), |peer| peer.waits.left(budget, now, idle))
    }
}

/// What is left of a budget when its request has waited for so many units, and for so many nanoseconds at most.
fn after(budget: Budget, above: u16, longest: u64) -> u64 {
    let waited = u64::from(above.saturating_sub(SLACK)) << UNIT;
    budget.nanos().saturating_sub(waited.min(longest))
}

#[cfg(test)]
mod tests;
