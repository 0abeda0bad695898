//! When an acknowledgement goes out although nothing else does.
//!
//! Every frame acknowledges, so an acknowledgement costs nothing in company and a call of the system alone: as much as
//! a train of frames, and while it is made nobody looks at what comes. It goes alone
//!
//! * after half of what its sender has in flight, 16 KiB at least and 256 KiB at most: less in flight is less memory
//!   that leaves the caches before it is used again, and a window that is not used up; less than 16 KiB, too, where
//!   the sender says that its window holds it back, as one does that losses have made small;
//! * after a quarter of a round trip in which nothing more came, and after a whole one in any case. While a stream goes
//!   on its bytes count: who only receives, and knows how short the round trip is, would else acknowledge every train.
//!
//! Where a sender takes longer for a train than its receiver, both of these acknowledge every train, and who is behind
//! has to look at it: what is in flight then is what was not acknowledged, and between trains it is quiet. But what
//! comes clearly sooner after an acknowledgement than a round trip was not waiting for it. After a few such in a row
//! the bytes alone count, up to 256 KiB, and the times are four times as long; until one is waited for again. A sender
//! that says that its window holds it back is told by halves at once, and for a good while.
//!
//! But an application that answers what comes acknowledges it by that, and if it waits for the answer to go out, or for
//! the rest of what it answers to come in, an acknowledgement alone holds up just that. How long answers usually take
//! from the first frame on is measured, up to four round trips. Where they come, acknowledgements wait for them, and
//! half a round trip more, up to 256 KiB; unless the sender says that its window holds it back. The sender measures how
//! long acknowledgements are usually held ([`Rtt::probe_timeout`](super::rtt::Rtt::probe_timeout)), so it asks no
//! earlier than that. One that went alone shows that the answer was not waited for long enough, or does not come any
//! more; of several in a row the latter is believed.
//!
//! Losses do not wait: of them the channel tells at once.

use crate::time::Instant;

/// Bytes received after which an acknowledgement goes out alone: at first, and at most.
const BYTES: (u64, u64) = (16 << 10, 256 << 10);

/// Bounds of the time for which one waits for company, in nanoseconds.
const WAIT: (u64, u64) = (5_000, 1_000_000);

/// Round trips within which an answer counts as company.
const COMPANY: u64 = 4;

/// Acknowledgements in a row for which nobody has waited, after which the next ones have more time; how many times as
/// much they have then; and for how many of them that does not hold after a window has held its sender back.
const NEEDLESS: u32 = 3;
const PATIENCE: u64 = 4;
const NARROW: u32 = 32;

/// What is not acknowledged yet, and for how long that may wait.
#[derive(Debug, Clone, Default)]
pub struct Owed {
    /// When the first of the frames came, and bytes of all of them.
    frames: Option<(Instant, u64)>,
    /// When the last one was there, and when it may have come at the earliest.
    last: Instant,
    newest: Instant,
    /// Bytes that its sender had in flight, and whether its window holds it back.
    in_flight: u64,
    waits: bool,
    /// Bytes after which it is acknowledged.
    enough: u64,
    /// When the first frame of messages came after the application has answered, or at all.
    asked: Option<Instant>,
    /// How long answers usually take; 0 if there are none.
    company: u64,
    /// When the last acknowledgement went alone, if nothing has come or gone since.
    alone: Option<Instant>,
    /// How many of those in a row nobody has waited for.
    needless: u32,
    /// For how many more of them a window counts as narrow that has held its sender back.
    narrow: u32,
}

impl Owed {
    /// Frames of so many bytes came that want to be acknowledged; when the last of them was sent so much was in flight,
    /// and its sender waited for room in its window or did not. Nobody has looked since `looked`. `round` is a round
    /// trip; 0 if none was measured.
    pub fn came(&mut self, bytes: u64, (in_flight, waits): (u64, bool), (now, looked): (Instant, Instant), round: u64) {
        if let Some(alone) = self.alone.take() {
            // Round trips vary: one that is a little shorter than usual shows nothing.
            let sooner = now.saturating_since(alone) < round / 4 * 3;
            self.needless = if sooner { self.needless.saturating_add(1) } else { 0 };
            self.narrow = self.narrow.saturating_sub(1);
        }
        if waits {
            self.narrow = NARROW;
        }
        let (since, before) = self.frames.unwrap_or((now, 0));
        self.frames = Some((since, before.saturating_add(bytes)));
        (self.last, self.newest) = (now, looked.min(now));
        (self.in_flight, self.waits) = (in_flight, waits);
    }

    /// They were of messages, which the application may answer.
    pub fn may_be_answered(&mut self) {
        self.asked.get_or_insert(self.newest);
    }

    /// A frame of messages goes out: perhaps the answer. `round` is a round trip.
    pub fn answers(&mut self, now: Instant, round: u64) {
        let Some(asked) = self.asked.take() else { return };
        let took = now.saturating_since(asked).max(1);
        self.company = match took {
            _ if took > round.saturating_mul(COMPANY) => self.company / 2,
            _ if took > self.company => u64::midpoint(took, self.company),
            _ => (7 * self.company + took) / 8,
        };
    }

    /// A frame goes out, alone if it is for nothing else, and acknowledges everything that came. For how long that was
    /// held.
    pub fn goes(&mut self, now: Instant, alone: bool) -> u64 {
        if self.frames.take().is_some() {
            self.enough = (self.enough.max(BYTES.0) * 2).min(BYTES.1);
            if alone {
                self.company = self.company / 4 * 3;
            }
            self.alone = alone.then_some(now);
        }
        now.saturating_since(self.newest)
    }

    /// Whether there is anything to acknowledge.
    #[must_use]
    pub const fn is_some(&self) -> bool {
        self.frames.is_some()
    }

    /// When it is acknowledged although nothing else is sent. `round` is a round trip.
    #[must_use]
    pub fn at(&self, round: u64) -> Option<Instant> {
        let (since, bytes) = self.frames?;
        let answered = self.company > 0 && !self.waits;
        let patient = self.needless >= NEEDLESS && self.narrow == 0;
        let most = if answered || patient { u64::MAX } else { self.in_flight / 2 };
        // The sender waits for just this.
        let least = if self.waits { 0 } else { BYTES.0 };
        if bytes >= self.enough.min(most).max(least) {
            return Some(since);
        }
        if !answered {
            let time = |round: u64| {
                let times = if patient { PATIENCE } else { 1 };
                (round.saturating_mul(times)).clamp(WAIT.0, WAIT.1)
            };
            return Some(self.last.after(time(round / 4)).min(since.after(time(round))));
        }
        Some(since.after((self.company + round / 2).clamp(WAIT.0, WAIT.1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: u64 = 40_000;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// One that has acknowledged so much that only the rules count.
    fn settled() -> Owed {
        let mut owed = Owed::default();
        for _ in 0..8 {
            owed.came(1, (1, false), (at(0), at(0)), 0);
            owed.goes(at(0), true);
        }
        owed
    }

    /// One whose application takes 30 us to answer.
    fn answering() -> Owed {
        let mut owed = settled();
        for turn in 0..30 {
            came(&mut owed, 64, turn * 100_000);
            owed.may_be_answered();
            owed.answers(at(turn * 100_000 + 30_000), ROUND);
            owed.goes(at(turn * 100_000 + 30_000), false);
        }
        owed
    }

    /// So many bytes of a sender who has 64 KiB in flight.
    fn came(owed: &mut Owed, bytes: u64, now: u64) {
        owed.came(bytes, (64 << 10, false), (at(now), at(now)), ROUND);
    }

    #[test]
    fn nothing_is_owed_after_a_frame_went() {
        let mut owed = settled();
        assert_eq!((owed.is_some(), owed.at(ROUND)), (false, None));
        came(&mut owed, 100, 1_000);
        assert!(owed.is_some());
        assert_eq!(owed.goes(at(4_000), true), 3_000);
        assert_eq!((owed.is_some(), owed.at(ROUND)), (false, None));
    }

    #[test]
    fn a_stream_is_acknowledged_by_halves_or_by_time() {
        let mut owed = settled();
        came(&mut owed, 31 << 10, 1_000);
        assert_eq!(owed.at(ROUND), Some(at(11_000)));
        came(&mut owed, 1 << 10, 2_000);
        assert_eq!(owed.at(ROUND), Some(at(1_000)), "at once");
        owed.came(0, (1 << 30, false), (at(3_000), at(3_000)), ROUND);
        assert_eq!(owed.at(ROUND), Some(at(13_000)));
        assert_eq!((owed.at(0), owed.at(u64::MAX)), (Some(at(6_000)), Some(at(1_001_000))));
    }

    /// Who knows how short the round trip is tells no more often for that, as long as the stream goes on; and who sends
    /// little at a time hears of it after a round trip all the same.
    #[test]
    fn a_stream_that_goes_on_is_acknowledged_by_its_bytes() {
        let mut owed = settled();
        let mut told = 0;
        for train in 0..400 {
            let now = train * 9_000;
            owed.came(64_000, (512_000, false), (at(now), at(now)), ROUND);
            if owed.at(ROUND).is_some_and(|due| due < at(now + 9_000)) {
                owed.goes(at(now), true);
                told += 1;
            }
        }
        assert_eq!(told, 80, "256 KiB are five trains");
        let mut owed = settled();
        for turn in 0..5 {
            came(&mut owed, 64, 8_000 * turn);
        }
        assert_eq!(owed.at(ROUND), Some(at(40_000)));
    }

    /// Trains of 64 KiB, each `gap` after the one before, or that much after it was acknowledged. How many of the last
    /// 100 were acknowledged, and how long the last one waited for it.
    fn stream(owed: &mut Owed, gap: u64, waits: bool) -> (u32, u64) {
        let (mut now, mut unacknowledged, mut told, mut waited) = (1_000_000, 0, 0, 0);
        for train in 0..400 {
            unacknowledged += 64_000;
            owed.came(64_000, (unacknowledged, false), (at(now), at(now)), ROUND);
            let due = owed.at(ROUND).expect("something is owed").max(at(now));
            let next = at(now + gap);
            if waits || due < next {
                waited = due.saturating_since(at(now));
                owed.goes(due, true);
                unacknowledged = 0;
                told += u32::from(train >= 300);
            }
            now = if waits { due } else { at(now) }.after(gap).saturating_since(at(0));
        }
        (told, waited)
    }

    /// What is in flight is what was not acknowledged then, and between two trains it is quiet.
    #[test]
    fn a_sender_slower_than_its_receiver_is_told_by_bytes_alone() {
        for gap in [5_000, 15_000, 24_000] {
            let (told, _) = stream(&mut settled(), gap, false);
            assert_eq!(told, 20, "256 KiB are five trains, {gap} ns apart");
        }
    }

    /// It sends the next train when it hears of the last one, a round trip later.
    #[test]
    fn who_waits_for_each_acknowledgement_hears_as_soon_as_ever() {
        let mut owed = settled();
        assert_eq!(stream(&mut owed, ROUND, true), (100, 0), "half of what is in flight");
        stream(&mut owed, 15_000, false);
        let (told, waited) = stream(&mut owed, ROUND, true);
        assert_eq!((told, waited), (100, 0), "after a stream, too");
    }

    /// Nothing shows that it was not waited for, then.
    #[test]
    fn who_knows_of_no_round_trip_tells_as_soon_as_ever() {
        let mut owed = settled();
        for train in 0..100 {
            let now = at(1_000_000 + train * 15_000);
            owed.came(64_000, (64_000, false), (now, now), 0);
            assert_eq!(owed.at(1_000_000), Some(now), "half of what is in flight");
            owed.goes(now, true);
        }
    }

    /// The last train of a stream is acknowledged within a round trip.
    #[test]
    fn the_end_of_a_stream_is_told_of_within_a_round_trip() {
        let mut owed = settled();
        stream(&mut owed, 15_000, false);
        owed.goes(at(50_000_000), false);
        came(&mut owed, 64_000, 50_000_000);
        assert_eq!(owed.at(ROUND), Some(at(50_000_000 + ROUND)));
        owed.came(64_000, (64_000, true), (at(50_000_000), at(50_000_000)), ROUND);
        assert_eq!(owed.at(ROUND), Some(at(50_000_000)), "at once where the window holds its sender back");
        owed.goes(at(50_000_000), true);
        owed.came(64_000, (64_000, false), (at(50_001_000), at(50_001_000)), ROUND);
        assert_eq!(owed.at(ROUND), Some(at(50_001_000)), "and soon after that, too");
    }

    #[test]
    fn an_application_that_answers_is_waited_for() {
        let mut owed = answering();
        let now = 5_000_000;
        came(&mut owed, 36 << 10, now);
        let due = |owed: &Owed| owed.at(ROUND).expect("something is owed").saturating_since(at(now));
        assert!((48_000..=50_000).contains(&due(&owed)), "{} ns", due(&owed));
        // The rest of what is answered.
        came(&mut owed, 30 << 10, now + 20_000);
        assert!((48_000..=50_000).contains(&due(&owed)), "{} ns", due(&owed));
        came(&mut owed, 190 << 10, now + 30_000);
        assert_eq!(due(&owed), 0, "256 KiB are enough");
    }

    #[test]
    fn a_full_window_waits_for_no_answer() {
        let mut owed = answering();
        owed.came(31 << 10, (64 << 10, true), (at(1_000), at(1_000)), ROUND);
        assert_eq!(owed.at(ROUND), Some(at(11_000)));
        owed.came(1 << 10, (64 << 10, true), (at(2_000), at(2_000)), ROUND);
        assert_eq!(owed.at(ROUND), Some(at(1_000)));
    }

    /// Nothing else comes then, and who only receives does not know how short a round trip is: for a quarter of what is
    /// assumed, streams stood still after each few frames.
    #[test]
    fn a_small_window_is_acknowledged_by_halves() {
        let mut owed = settled();
        owed.came(2_999, (6_000, true), (at(1_000), at(1_000)), ROUND);
        assert_eq!(owed.at(ROUND), Some(at(11_000)));
        owed.came(1, (6_000, true), (at(2_000), at(2_000)), ROUND);
        assert_eq!(owed.at(ROUND), Some(at(1_000)), "at once");
        // One that is not full waits for more of the same.
        owed.came(1, (6_000, false), (at(3_000), at(3_000)), ROUND);
        assert_eq!(owed.at(ROUND), Some(at(13_000)));
    }

    #[test]
    fn answers_that_come_no_more_are_not_waited_for() {
        let mut owed = answering();
        let mut waits = 0;
        for turn in 0..100 {
            let now = 5_000_000 + turn * 1_000_000;
            came(&mut owed, 64, now);
            owed.may_be_answered();
            waits += u32::from(owed.at(ROUND) != Some(at(now + 10_000)));
            owed.goes(at(now + 100_000), true);
        }
        assert!((10..40).contains(&waits), "{waits}");
        // Nor one now and then, to what has come for long.
        let mut owed = answering();
        for turn in 0..400 {
            came(&mut owed, 64, 5_000_000 + turn * 3_000);
            owed.may_be_answered();
            if turn % 100 == 99 {
                owed.answers(at(5_000_000 + turn * 3_000), ROUND);
            }
            owed.goes(at(5_000_000 + turn * 3_000), turn % 100 < 99);
        }
        came(&mut owed, 64, 80_000_000);
        assert_eq!(owed.at(ROUND), Some(at(80_000_000 + ROUND)), "what goes on is waited for, no answer");
        // Nor those that take far longer than a round trip.
        let mut owed = answering();
        for turn in 0..20 {
            came(&mut owed, 64, 5_000_000 + turn * 1_000_000);
            owed.may_be_answered();
            owed.answers(at(5_500_000 + turn * 1_000_000), ROUND);
            owed.goes(at(5_500_000 + turn * 1_000_000), false);
        }
        came(&mut owed, 64, 90_000_000);
        assert_eq!(owed.at(ROUND), Some(at(90_010_000)));
    }

    #[test]
    fn who_acknowledges_too_early_learns_it() {
        let mut owed = settled();
        let mut alone = 0;
        for turn in 0..30 {
            let now = turn * 100_000;
            came(&mut owed, 64, now);
            owed.may_be_answered();
            if let Some(early) = owed.at(ROUND).filter(|at_| *at_ < at(now + 30_000)) {
                owed.goes(early, true);
                alone += 1;
            }
            owed.answers(at(now + 30_000), ROUND);
            owed.goes(at(now + 30_000), false);
        }
        assert!((1..5).contains(&alone), "{alone} of 30");
    }

    #[test]
    fn a_new_channel_is_told_early() {
        let mut owed = Owed::default();
        let mut amounts = alloc::vec::Vec::new();
        for _ in 0..6 {
            let mut bytes = 0;
            while owed.at(ROUND) != Some(at(0)) {
                owed.came(1 << 10, (1 << 20, false), (at(0), at(0)), 0);
                bytes += 1;
            }
            amounts.push(bytes);
            owed.goes(at(0), true);
        }
        assert_eq!(amounts, [16, 32, 64, 128, 256, 256]);
    }
}
