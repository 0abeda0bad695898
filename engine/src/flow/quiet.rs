//! Quiet moments: when all who send to one receiver hold still together, so that each sees how long its way is.
//!
//! A window follows what delays are above the least one. Who has never seen the way empty takes what others have in its
//! queue for the way; who remembers the least for ever takes a way that has become longer for a queue. Neither can be
//! told from a single sender's delays: to hold still alone shows the queue of the others. BBR's senders (Cardwell et
//! al., ACM Queue 2016) drain a queue together by chance, because all of them then see the least at the same time.
//! Here the receiver, to whom all of them send, calls the moment.
//!
//! * A sender *asks* for one ([`Quiet::asks`]) when its delays have been above the target for a while though it holds
//!   next to nothing in the queue; and when the least delay that it remembers is old and none of late was near it.
//! * The receiver *calls* all who have sent of late ([`Calls`]): each of its frames says how often it has called.
//! * A sender that sees a new number ([`Quiet::called`]) sends one frame in a round trip, with all that stands in
//!   queues, for four of those. The first ones are for the queue to go; what later frames take is how long the way is.
//!   Frames of many senders are so far apart that none of them waits for another one.
//!
//! A moment that shows nothing new makes its senders wait twice as long before they ask again, for the same reason.
//! Nobody holds still for more than a sixth of the time, whatever others ask for.

use crate::time::Instant;

/// Numbers of moments that are told apart.
pub const NUMBERS: u8 = 4;

/// How many halves of a round trip a moment lasts, and how many of those it takes until the queue is gone.
const LASTS: u64 = 8;
const DRAINS: u64 = 3;

/// Longest round trip, in ns, that is waited for.
const ROUND_MAX: u64 = 1_000_000_000;

/// For so many times as long as a moment takes its receiver calls no other one, and its sender heeds none: those who
/// share a way all heed the same ones, as long as nobody lies about round trips.
const APART: u64 = 8;
const HEEDED: u64 = 5;

/// Ns between two moments at least that are asked for because a way seems to be longer: at first, and how often that
/// doubles.
const AGAIN: u64 = 250_000_000;
const DOUBLINGS: u32 = 7;

/// Ns between two moments at least that a receiver calls.
const CALLS: u64 = 250_000_000;

/// What who asks says of a round trip at most: 2 to the power of this, in microseconds.
const ASKS_MOST: u8 = 31;

/// A sender's part.
#[derive(Debug, Clone, Default)]
pub struct Quiet {
    /// How often the other side had called by its newest frame, and the number of that.
    heard: Option<(u8, u64)>,
    moment: Option<Moment>,
    /// When the last one was over, and how long it had taken.
    over: Instant,
    lasted: u64,
    /// Moments in a row that have shown nothing new, and nothing at all: nothing was sent.
    vain: u32,
    blind: u32,
}

#[derive(Debug, Clone)]
struct Moment {
    began: Instant,
    /// Between two frames.
    round: u64,
    /// From when on frames are sent that find no queue.
    clear: Instant,
    until: Instant,
    /// The least round trip of those.
    least: Option<u64>,
}

/// What a moment has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// The least round trip in ns, if there was any.
    pub least: Option<u64>,
    /// How long round trips took before it was quiet.
    pub before: u64,
}

impl Quiet {
    /// The other side has called so often by now, as it says in its frame of this number. True if a moment begins here:
    /// a round trip, with all that stands in queues, takes `round_ns`.
    pub fn called(&mut self, calls: u8, frame: u64, now: Instant, round_ns: u64) -> bool {
        if self.heard.is_some_and(|(_, newest)| newest > frame) {
            // Others have overtaken it.
            return false;
        }
        let before = self.heard.replace((calls, frame));
        if before.is_none_or(|(before, _)| before == calls) || self.moment.is_some() {
            return false;
        }
        if now.saturating_since(self.over) < HEEDED * self.lasted {
            return false;
        }
        let round = round_ns.clamp(2, ROUND_MAX);
        let (clear, until) = (now.after(DRAINS * (round / 2)), now.after(LASTS * (round / 2)));
        self.moment = Some(Moment { began: now, round, clear, until, least: None });
        true
    }

    /// A frame that was sent then was acknowledged after `round_ns`.
    pub fn sample(&mut self, sent: Instant, round_ns: u64) {
        if let Some(moment) = self.moment.as_mut().filter(|moment| sent >= moment.clear) {
            moment.least = Some(moment.least.map_or(round_ns, |least| least.min(round_ns)));
        }
    }

    /// The channel goes another way: what a moment has shown so far is of the one before.
    pub fn goes_another_way(&mut self) {
        self.moment.iter_mut().for_each(|moment| moment.least = None);
    }

    /// Until when it is quiet, if it is.
    #[must_use]
    pub fn until(&self) -> Option<Instant> {
        self.moment.as_ref().map(|moment| moment.until)
    }

    /// When the next frame may follow one that is sent now, if it is quiet.
    #[must_use]
    pub fn next(&self, now: Instant) -> Option<Instant> {
        self.moment.as_ref().map(|moment| now.after(moment.round).min(moment.until))
    }

    /// Ends the moment, if its time is over. What was known of the least round trip may differ from what is shown by
    /// `standing` ns before that is anything new.
    pub fn end(&mut self, now: Instant, known: u64, standing: u64) -> Option<Shown> {
        let moment = self.moment.take_if(|moment| moment.until <= now)?;
        // Whenever somebody looks.
        (self.over, self.lasted) = (moment.until, moment.until.saturating_since(moment.began));
        let new = moment.least.is_some_and(|least| least.abs_diff(known) > standing);
        self.vain = if new { 0 } else { self.vain.saturating_add(1) };
        self.blind = if moment.least.is_some() { 0 } else { self.blind.saturating_add(1) };
        Some(Shown { least: moment.least, before: moment.round })
    }

    /// Whether the other side shall call one now: because the way seems to be longer than is known, or the least that
    /// is known is old.
    #[must_use]
    fn wants(&self, now: Instant, longer: bool, old: bool) -> bool {
        let since = now.saturating_since(self.over);
        let after = |times: u32| (APART * self.lasted).max(AGAIN << times.min(DOUBLINGS));
        self.moment.is_none() && (old && since >= after(self.blind) || longer && since >= after(self.vain))
    }

    /// What this side says to have the other one call a moment, where round trips take `round_ns`; 0 if it does not
    /// ask for one: see [`Header::asks`](cutthrough_wire::frame::Header).
    #[must_use]
    pub fn asks(&self, now: Instant, (longer, old): (bool, bool), round_ns: u64) -> u8 {
        let micros = (round_ns / 1_000).max(1);
        let power = u8::try_from(micros.ilog2() + 1).map_or(ASKS_MOST, |power| power.min(ASKS_MOST));
        if self.wants(now, longer, old) { power } else { 0 }
    }
}

/// A receiver's part, for all who send to it.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    last: Option<Instant>,
    /// The longest round trip of those who were called last.
    longest: u64,
}

impl Calls {
    /// Somebody asks for a quiet moment ([`Quiet::asks`]). What is known here of round trips to there is `round_ns`.
    /// Whether it is time for one: then all who are called are to be told to [`Calls::calls`].
    pub fn asked(&mut self, now: Instant, asks: u8, round_ns: u64) -> bool {
        let round_ns = round_ns.max(1_000 << asks.min(ASKS_MOST)).max(self.longest);
        let apart = CALLS.max(APART * LASTS / 2 * round_ns.min(ROUND_MAX));
        if self.last.is_some_and(|last| now.saturating_since(last) < apart) {
            return false;
        }
        (self.last, self.longest) = (Some(now), 0);
        true
    }

    /// One of those who are called has round trips of so much, and was called so often before: how often it is now, as
    /// that is counted.
    pub fn calls(&mut self, round_ns: u64, before: u8) -> u8 {
        self.longest = self.longest.max(round_ns);
        (before + 1) % NUMBERS
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * MS)
    }

    #[test]
    fn what_is_sent_once_the_queue_is_gone_shows_the_way() {
        let mut quiet = Quiet::default();
        assert!(!quiet.called(3, 0, at(1_000), 10 * MS), "that it was called before is nothing new");
        assert!(!quiet.called(3, 0, at(1_001), 10 * MS));
        assert!(quiet.called(0, 0, at(1_002), 10 * MS));
        assert!(!quiet.called(1, 0, at(1_003), 10 * MS), "it is quiet already");
        assert_eq!((quiet.until(), quiet.next(at(1_010)), quiet.next(at(1_040))), {
            (Some(at(1_042)), Some(at(1_020)), Some(at(1_042)))
        });
        // What went before the queue was gone counts for nothing, whatever it says.
        for (sent, round) in [(1_001, 1), (1_016, 2), (1_017, 7), (1_024, 6), (1_031, 8)] {
            quiet.sample(at(sent), round * MS);
        }
        assert_eq!(quiet.end(at(1_041), MS, MS), None);
        assert_eq!(quiet.end(at(1_042), MS, MS), Some(Shown { least: Some(6 * MS), before: 10 * MS }));
        assert_eq!((quiet.end(at(1_050), MS, MS), quiet.until(), quiet.next(at(1_050))), (None, None, None));
        // A moment in which nothing was sent has shown nothing.
        assert!(quiet.called(2, 0, at(2_000), MS));
        assert_eq!(quiet.end(at(2_010), MS, MS), Some(Shown { least: None, before: MS }));
    }

    /// Whatever others ask for.
    #[test]
    fn nobody_holds_still_for_more_than_a_sixth_of_the_time() {
        let mut quiet = Quiet::default();
        quiet.called(0, 0, at(0), MS);
        let mut still = 0;
        for ms in 0..100_000 {
            quiet.called(u8::try_from(ms % 4).unwrap(), 0, at(ms), 7 * MS);
            quiet.end(at(ms), 0, 0);
            still += u64::from(quiet.until().is_some());
        }
        assert!((16_000..17_000).contains(&still), "{still} ms of 100 s");
    }

    #[test]
    fn who_asks_in_vain_asks_less_often() {
        let (longer, old) = ((true, false), (false, true));
        let (mut quiet, mut asked) = (Quiet::default(), Vec::new());
        quiet.called(0, 0, at(0), MS);
        for ms in 1..100_000 {
            if quiet.asks(at(ms), longer, MS) > 0 {
                asked.push(ms);
                assert!(quiet.called(u8::try_from(asked.len() % 4).unwrap(), 0, at(ms), MS));
                quiet.sample(at(ms + 2), MS);
            }
            quiet.end(at(ms), MS, MS / 4);
        }
        assert_eq!(asked, [250, 754, 1758, 3762, 7766, 15_770, 31_774, 63_778, 95_782]);
        // Because what is known is old, it may ask sooner; and when a moment has shown something new.
        assert!(quiet.asks(at(96_100), old, MS) > 0 && quiet.asks(at(96_100), longer, MS) == 0);
        quiet.called(3, 0, at(100_000), MS);
        quiet.sample(at(100_002), 5 * MS);
        assert_eq!(quiet.end(at(100_004), MS, MS / 4), Some(Shown { least: Some(5 * MS), before: MS }));
        // One that has shown nothing at all is no reason to ask again soon either.
        for ms in [100_300, 101_300, 103_300] {
            let number = quiet.heard.unwrap().0 + 1;
            assert!(quiet.asks(at(ms), old, MS) > 0 && quiet.called(number % 4, 0, at(ms), MS));
            assert_eq!(quiet.end(at(ms + 4), MS, MS), Some(Shown { least: None, before: MS }));
            assert_eq!(quiet.asks(at(ms + 254), old, MS), 0);
        }
        let said = |round| quiet.asks(at(200_000), longer, round);
        assert_eq!([0, 1_000, 1_999, 2_000, MS, u64::MAX].map(said), [1, 1, 1, 2, 10, ASKS_MOST]);
    }

    /// A frame from before a call, which others have overtaken, says nothing of calls.
    #[test]
    fn what_was_overtaken_calls_nobody() {
        let mut quiet = Quiet::default();
        quiet.called(0, 7, at(0), MS);
        assert!(quiet.called(1, 9, at(1_000), MS));
        quiet.end(at(1_004), MS, MS);
        assert!(!quiet.called(0, 8, at(1_100), MS) && !quiet.called(1, 10, at(1_101), MS));
        assert!(quiet.called(2, 11, at(1_102), MS));
    }

    /// Whoever looks a second later has not been quiet for a second.
    #[test]
    fn a_moment_takes_as_long_as_it_takes() {
        let mut quiet = Quiet::default();
        quiet.called(0, 0, at(0), MS);
        assert!(quiet.called(1, 1, at(1_000), MS));
        quiet.sample(at(1_002), 7 * MS);
        quiet.goes_another_way();
        assert_eq!(quiet.end(at(2_000), MS, MS), Some(Shown { least: None, before: MS }), "that was of the other way");
        assert!(quiet.called(2, 2, at(2_001), MS));
    }

    #[test]
    fn a_receiver_calls_in_good_time() {
        let mut calls = Calls::default();
        let mut called = |times: core::ops::Range<u64>, asks, round| -> Vec<_> {
            times.filter(|ms| calls.asked(at(*ms), asks, round)).collect()
        };
        assert_eq!(called(0..1_000, 10, MS), [0, 250, 500, 750]);
        // As the longer of both say that round trips are: theirs, as they say, or ours.
        assert_eq!(called(1_000..6_000, 1, 50 * MS), [2_350, 3_950, 5_550]);
        assert_eq!(called(6_000..10_000, 16, MS), [7_648, 9_746]);
        // And no sooner than those who are farther away can follow.
        assert!(calls.asked(at(20_000), 1, MS));
        assert_eq!([(MS, 0), (100 * MS, 3), (2 * MS, 2)].map(|(round, before)| calls.calls(round, before)), [1, 0, 3]);
        assert_eq!((20_001..30_000).find(|ms| calls.asked(at(*ms), 1, MS)), Some(23_200));
        for asks in [0, 31, 32, 255] {
            calls.asked(at(40_000), asks, u64::MAX);
        }
    }
}
