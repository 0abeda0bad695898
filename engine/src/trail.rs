//! How a receiver of many short messages follows its sender, measured while it runs.
//!
//! A slot that was read stays in the receiver's cache, and when the sender comes round to it again, its store has to
//! take it away from there. On some machines that costs next to nothing; on others it holds the sender up for longer
//! than all else together, and more where the two cores share no cache. A receiver there *evicts* what it has read: the
//! slot goes to memory, from where the sender's look-ahead has it back in time.
//!
//! And a receiver that has read all there is looks at the slot which the sender is about to write: each look takes the
//! slot from under its pen. A receiver that *lingers* for a while first finds many messages at its next look, and the
//! sender is left alone meanwhile. That is the rule of pulses again: alone, a message is taken at once; where many
//! come, many are taken together.
//!
//! A stream may fall into step: the receiver is so close behind the sender that messages come one at a time, as if the
//! sender had no more, and each costs both of them the way of a line to and fro. Measured, with one and the same
//! manner: 15 nanoseconds a message with the sender ahead, 54 or 150 in step, for as long as nothing disturbs them. So
//! who only receives lingers *once* where messages take twice as long as is usual, though they come alone, and at the
//! beginning of each measurement; if it was the sender that has become slow, it does so again after one, two, four, ...
//! chunks.
//!
//! None of this is worth anything everywhere, so a [survey](crate::survey) finds out, by the time per message. To
//! linger delays messages, which the time of a stream does not show; so of what is alike the plainest stays.

use crate::survey::{Favour, Survey};
use crate::time::Instant;

/// What a receiver does with slots in a stream of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// Whether slots that were read are evicted from the cache.
    pub evict: bool,
    /// For how long a receiver that has read all there is leaves the sender alone, nanoseconds.
    pub linger: u64,
}

/// All manners, plainest first. Measured, on cores that share a cache and on cores that do not: with two microseconds
/// a stream is the quicker one, or with five; with more it is no quicker.
const MANNERS: [Manner; 4] = [
    Manner { evict: false, linger: 0 },
    Manner { evict: true, linger: 0 },
    Manner { evict: true, linger: 2_000 },
    Manner { evict: true, linger: 5_000 },
];

/// Messages between two looks at the clock.
const CHUNK: u64 = 1024;

/// Chunks from one survey to the next at last. One in which the other manners are a tenth as quick costs one part in a
/// hundred.
const REST: u32 = 8192;

/// Messages that came one right behind the other, from which on more are believed to come: a receiver that has read
/// fewer than these never lingers, so that neither a lone message nor its answer is ever late; but [`ONCE`], if it only
/// receives.
pub const STREAM: u64 = 3;

/// For how long a receiver lingers once, nanoseconds: enough for a sender to get some hundred messages ahead.
pub const ONCE: u64 = 5_000;

/// Finds the manner of a receiver.
#[derive(Debug, Clone)]
pub struct Trail {
    slots: u64,
    survey: Survey,
}

impl Trail {
    /// For a ring of so many slots. A processor that cannot evict a line leaves nothing to choose.
    #[must_use]
    pub fn new(slots: u64, can_evict: bool) -> Self {
        let ways = if can_evict { MANNERS.len() } else { 1 };
        Self { slots, survey: Survey::new(ways, CHUNK, Favour::First, REST) }
    }

    /// What to do now.
    #[must_use]
    #[inline]
    pub fn manner(&self) -> Manner {
        MANNERS[self.survey.way()]
    }

    /// So many messages have been read. Whether the time is wanted now, by [`Trail::look`].
    #[inline]
    pub const fn pass(&mut self, messages: u64) -> bool {
        let way = self.survey.way();
        self.survey.pass(messages, way)
    }

    /// The time at the end of a chunk. Whether the receiver, if it `only_receives`, shall linger once though messages
    /// come alone.
    #[cold]
    pub fn look(&mut self, now: Instant, only_receives: bool) -> bool {
        let (slots, way) = (self.slots, self.survey.way());
        // Every slot has to lie where this manner leaves it.
        self.survey.look(now, way, |_| slots);
        only_receives && (self.survey.begins() || self.survey.slow().is_power_of_two())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine on which a message takes so many picoseconds, by manner.
    struct Machine<C> {
        trail: Trail,
        ps: u64,
        cost: C,
    }

    impl<C: Fn(Manner) -> u64> Machine<C> {
        fn new(cost: C) -> Self {
            Self { trail: Trail::new(1024, true), ps: 0, cost }
        }

        /// Receives so many messages, 128 at a time; the mean picoseconds of one.
        fn receive(&mut self, messages: u64) -> u64 {
            let begun = self.ps;
            for _ in 0..messages / 128 {
                self.ps += 128 * (self.cost)(self.trail.manner());
                if self.trail.pass(128) {
                    self.trail.look(Instant::from_nanos(self.ps / 1000), true);
                }
            }
            (self.ps - begun) / messages
        }
    }

    const FOUND: u64 = 1 << 18;
    const LONG: u64 = 1 << 26;

    #[test]
    fn slots_are_evicted_where_that_is_quicker_and_only_there() {
        let mut slow_upgrades = Machine::new(|manner| if manner.evict { 20_000 } else { 50_000 });
        slow_upgrades.receive(FOUND);
        assert_eq!(slow_upgrades.trail.manner(), Manner { evict: true, linger: 0 });
        assert!(slow_upgrades.receive(LONG) <= 21_000, "trials cost little");
        let mut quick_upgrades = Machine::new(|manner| if manner.evict { 25_000 } else { 15_000 });
        quick_upgrades.receive(FOUND);
        assert_eq!(quick_upgrades.trail.manner(), MANNERS[0]);
        assert!(quick_upgrades.receive(LONG) <= 15_500, "trials cost little");
    }

    #[test]
    fn a_receiver_lingers_no_longer_than_is_worth_it() {
        let mut machine = Machine::new(|manner| match manner {
            Manner { evict: false, .. } => 150_000,
            Manner { linger: 0, .. } => 40_000,
            Manner { linger: 2_000, .. } => 17_000,
            Manner { .. } => 16_000,
        });
        machine.receive(FOUND);
        assert_eq!(machine.trail.manner(), Manner { evict: true, linger: 2_000 });
    }

    #[test]
    fn a_stream_that_becomes_the_slow_one_is_lingered_for_no_more() {
        let paced = core::cell::Cell::new(false);
        let mut machine = Machine::new(|manner| if paced.get() { 900_000 } else { 90_000 - 12 * manner.linger });
        machine.receive(FOUND);
        assert_eq!(machine.trail.manner().linger, 5_000);
        paced.set(true);
        machine.receive(LONG);
        assert_eq!(machine.trail.manner(), MANNERS[0]);
    }

    /// A machine on which sender and receiver are in step, until the receiver lingers once; how often it has.
    fn in_step(costs: impl Fn(u64) -> u64, messages: u64, only_receives: bool) -> (u64, u32) {
        let (mut trail, mut ps, mut step, mut lingered) = (Trail::new(1024, true), 0, true, 0);
        for number in 0..messages / 128 {
            ps += 128 * if step { 150_000 } else { costs(number) };
            // Now and then something disturbs them.
            step |= number % 100_000 == 99_999;
            if trail.pass(128) && trail.look(Instant::from_nanos(ps / 1000), only_receives) {
                (step, lingered) = (false, lingered + 1);
            }
        }
        (ps / messages, lingered)
    }

    #[test]
    fn who_has_fallen_into_step_lingers_once() {
        let (mean, _) = in_step(|_| 16_000, LONG, true);
        assert!(mean < 17_000, "{mean} ps");
        let (mean, lingered) = in_step(|_| 16_000, LONG, false);
        assert!(mean == 150_000 && lingered == 0, "who answers waits for no more than there is: {mean} ps, {lingered}");
    }

    #[test]
    fn a_sender_that_has_become_slow_is_not_lingered_for_again_and_again() {
        // Quick for the first half, then slow for good.
        let slow_from = LONG / 128 / 2;
        let (_, lingered) = in_step(|number| if number < slow_from { 16_000 } else { 900_000 }, LONG, true);
        assert!(lingered < 200, "{lingered} times in {LONG} messages");
    }

    #[test]
    fn a_processor_that_cannot_evict_never_wants_the_time() {
        let mut trail = Trail::new(1024, false);
        assert!(!(0..100).any(|_| trail.pass(CHUNK)));
    }
}
