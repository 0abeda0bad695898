//! How long a round trip takes: RFC 6298 and RFC 9002, section 5, on the scale of machines in one room.

use crate::time::Instant;

/// Round trip that is assumed before the first is measured. Neighbours need some 10 us, and a busy machine answers
/// within a millisecond. The RFC's 333 ms would make the loss of a first frame take longer than most exchanges, and to
/// repeat a few first frames too early on a long way costs nothing but those: each time-out doubles.
const INITIAL: u64 = 1_000_000;

/// Least time, in ns, by which later frames must be ahead before an older one is lost: two readings of a clock.
const GRANULARITY: u64 = 1_000;

/// Bounds of the probe time-out in ns: the least there is, and the longest that earlier ones in vain make it.
const PROBE_MIN: u64 = 20_000;
const PROBE_MAX: u64 = 200_000_000;

/// Longest time, in ns, that is believed to be a round trip.
const ROUND_MAX: u64 = 60_000_000_000;

/// Longest time, in ns, for which a header can say that an acknowledgement was held.
const HELD_MAX: u64 = (u16::MAX as u64) << 8;

/// Parts of the slack that a time-out takes away, and that a sample does.
const SLACK_LOST: u64 = 4;
const SLACK_PAST: u64 = 1 << 13;

/// Half of the time, in ns, over which the least round trip is kept: a route may get longer.
const LEAST_HALF: u64 = 5_000_000_000;

/// Least queue, in ns, by which a round trip is longer than the way.
const QUEUE: u64 = 250_000;

/// The round trip to one other side. Times are in ns.
#[derive(Debug, Clone)]
pub struct Rtt {
    /// The round trip as it was seen here.
    round: Estimate,
    /// The same without the time for which acknowledgements have lain here before they were looked at.
    prompt: Estimate,
    latest: u64,
    /// How long acknowledgements are usually held.
    held: u64,
    /// How much longer a probe waits, because answers came after it for which it had not waited.
    slack: u64,
    /// Whether nobody could say how much of the last sample was the way.
    unsaid: bool,
    /// Whether it is open if the last probe was sent for nothing.
    probed: bool,
    /// Least round trip since `since`, and of the 5 s before.
    least: u64,
    least_before: u64,
    since: Instant,
    /// Whether the least would have been forgotten by now, though nothing since was near it.
    old: bool,
    sampled: bool,
}

/// A time that varies: its smoothed value and the smoothed distance from it (RFC 6298, section 2).
#[derive(Debug, Clone, Copy)]
struct Estimate {
    smoothed: u64,
    variation: u64,
}

impl Estimate {
    const fn first(sample: u64) -> Self {
        Self { smoothed: sample, variation: sample / 2 }
    }

    const fn then(self, sample: u64) -> Self {
        let variation = (3 * self.variation + self.smoothed.abs_diff(sample)) / 4;
        Self { smoothed: (7 * self.smoothed + sample) / 8, variation }
    }
}

impl Default for Rtt {
    fn default() -> Self {
        Self {
            round: Estimate::first(INITIAL),
            prompt: Estimate::first(INITIAL),
            latest: INITIAL,
            held: 0,
            slack: 0,
            unsaid: false,
            probed: false,
            least: u64::MAX,
            least_before: u64::MAX,
            since: Instant::default(),
            old: false,
            sampled: false,
        }
    }
}

impl Rtt {
    /// One that expects a round trip as long as this, until the first is measured.
    #[must_use]
    pub fn expecting(round_ns: u64) -> Self {
        let expected = Estimate::first(round_ns.clamp(INITIAL, ROUND_MAX));
        Self { round: expected, prompt: expected, latest: expected.smoothed, ..Self::default() }
    }

    /// One of a channel whose handshake took `round_ns`, until `now`, from one side to the other and back. A round trip
    /// is expected to take as long; and the least of those to come is no longer, though frames may stand in queues from
    /// the first one on.
    #[must_use]
    pub fn greeted(now: Instant, round_ns: u64) -> Self {
        Self { least: round_ns.clamp(1, ROUND_MAX), since: now, ..Self::expecting(round_ns) }
    }

    /// A frame was acknowledged `round_ns` after it left. The other side says that it had it for `held_ns` before it
    /// acknowledged. That is believed only as far as the rest is no less than the least round trip: so no claim makes
    /// the round trip shorter than it was ever seen to be. For the last `lag_ns` of it the acknowledgement may have
    /// lain here: so long has nobody looked.
    ///
    /// `held_ns` is `u64::MAX` if it was longer than the other side can say. How much of it was the way is not known
    /// then: perhaps that machine stood still, perhaps nothing was sent to it for a while. So the round trip stays what
    /// it was, unless it was believed to be longer than all of that; but a probe waits as long as such answers have
    /// taken. One alone may be late by as long as the way was blocked, of which nothing follows for the next: it makes
    /// a probe wait no longer than probes in vain do.
    pub fn sample(&mut self, now: Instant, round_ns: u64, held_ns: u64, lag_ns: u64) {
        let round = round_ns.clamp(1, ROUND_MAX);
        self.keep_least(now, round);
        let least = self.shortest().min(round);
        let beyond = held_ns == u64::MAX && self.sampled;
        let held = if beyond { HELD_MAX } else { held_ns }.min(round - least);
        let round = round - held;
        // The way is no longer than that, whatever else is in it.
        let unsaid = beyond && round >= self.round.smoothed;
        let prompt = round.saturating_sub(lag_ns).max(least);
        let before = core::mem::replace(&mut self.unsaid, unsaid);
        let prompt = if unsaid && !before { prompt.min(PROBE_MAX.max(self.prompt.smoothed)) } else { prompt };
        if !unsaid {
            self.latest = round;
        }
        self.slack = self.slack.saturating_sub(1 + self.slack / SLACK_PAST);
        if !self.sampled {
            self.sampled = true;
            (self.round, self.prompt, self.held) = (Estimate::first(round), Estimate::first(prompt), held);
            return;
        }
        self.round = if unsaid { self.round } else { self.round.then(round) };
        self.prompt = self.prompt.then(prompt);
        self.held = if held > self.held { u64::midpoint(held, self.held) } else { (7 * self.held + held) / 8 };
    }

    /// A probe is sent: as far as is known, what was in flight is lost.
    pub const fn probes(&mut self) {
        self.slack -= self.slack / SLACK_LOST;
        self.probed = true;
    }

    /// What was given up then had arrived, as an acknowledgement says that was held for so long, and that no probe has
    /// called forth. If it was not held for as long as the other side waits before it repeats an answer that is lost,
    /// nothing was: it was late. Every machine stands still for a moment now and then, for longer than the
    /// variation of round trips tells: that is a mean, and these are rare. So a probe waits half a round trip longer
    /// from now on, as long as there are more of those than of frames that were lost, and no longer than two.
    pub const fn had_arrived(&mut self, held_ns: u64) {
        if core::mem::replace(&mut self.probed, false) && held_ns < 2 * self.round.smoothed {
            self.slack += self.round.smoothed / 2;
        }
    }

    fn keep_least(&mut self, now: Instant, round: u64) {
        let age = now.saturating_since(self.since);
        if age >= LEAST_HALF {
            // What was seen of late in place of a shorter one is perhaps a queue that others keep: a quiet moment
            // tells. If there is none for as long again, it is believed.
            let (known, of_late) = (self.shortest(), self.least.min(round));
            self.old = !self.old && age < 2 * LEAST_HALF && of_late > known.saturating_add(standing(known));
            self.least_before = if self.old {
                known
            } else if age < 2 * LEAST_HALF {
                self.least
            } else {
                u64::MAX
            };
            self.least = round;
            self.since = now;
        }
        self.least = self.least.min(round);
    }

    /// Whether the least round trip that is known is old, and none of late was near it.
    #[must_use]
    pub const fn is_old(&self) -> bool {
        self.old
    }

    /// A quiet moment has shown that the least round trip is this.
    pub fn settle(&mut self, now: Instant, least_ns: u64) {
        (self.least, self.least_before) = (least_ns.clamp(1, ROUND_MAX), u64::MAX);
        (self.since, self.old) = (now, false);
    }

    /// The smoothed round trip, less the time that acknowledgements were held.
    #[must_use]
    pub const fn smoothed(&self) -> u64 {
        self.round.smoothed
    }

    /// The round trip over which frames are spread: the smoothed one, or the last one, if that was shorter. What was
    /// expected before anything was measured, or a time for which the way was blocked, must hold back nothing any more.
    #[must_use]
    pub fn spread(&self) -> u64 {
        self.round.smoothed.min(self.latest)
    }

    /// The smoothed distance of samples from [`Rtt::smoothed`].
    #[must_use]
    pub const fn variation(&self) -> u64 {
        self.round.variation
    }

    /// The least round trip of the last 5 to 10 s (15, while a quiet moment is asked for) in which there were samples,
    /// the handshake's among them, with whatever time acknowledgements were held; what is assumed, if there was no
    /// sample yet.
    #[must_use]
    pub fn least(&self) -> u64 {
        if self.sampled { self.shortest() } else { INITIAL }
    }

    /// How long it usually takes until something comes that answers what goes now, and no more than a few times the
    /// least: one round trip that was long when the channel began says little. 0 if nothing is known of it.
    #[must_use]
    pub fn usual(&self) -> u64 {
        if self.sampled { self.smoothed().min(self.shortest().saturating_mul(4)) } else { 0 }
    }

    /// The longest queue, in ns, in front of a way as long as the least round trip, that is no sign of anything.
    #[must_use]
    pub fn standing(&self) -> u64 {
        standing(self.least())
    }

    fn shortest(&self) -> u64 {
        self.least.min(self.least_before)
    }

    /// How old a frame must be to be lost when a later one is acknowledged: 9/8 of a round trip (RFC 9002, section
    /// 6.1.2).
    #[must_use]
    pub fn loss_delay(&self) -> u64 {
        let round = self.round.smoothed.max(self.latest);
        round + (round / 8).max(GRANULARITY)
    }

    /// How long after the last frame the other side must have spoken, when `backoff` such times have passed in vain.
    ///
    /// RFC 9002, section 6.2.1, but never less than two round trips: one that varies little would else leave no room
    /// for the first that does. In place of the longest time that an acknowledgement may be held stands the time that
    /// they usually are: it follows a longer one half way at once, and forgets it slowly.
    ///
    /// Round trips count without the time for which acknowledgements have lain here: else who looks rarely would wait
    /// ever longer for what was lost. For this it waits `lag_ns` longer, the time since there was last nothing left to
    /// look at: what was sent may be acknowledged by what lies here still.
    ///
    /// Where earlier probes were sent for nothing it waits longer, too ([`Rtt::had_arrived`]).
    ///
    /// Neither that nor `backoff` makes it longer than 200 ms; but what was measured does, for on a way that is longer
    /// nothing could be acknowledged else before it is given up.
    #[must_use]
    pub fn probe_timeout(&self, backoff: u32, lag_ns: u64) -> u64 {
        let Estimate { smoothed, variation } = self.prompt;
        let once = (2 * smoothed).max(smoothed + 4 * variation) + self.held;
        let all = once.saturating_mul(1_u64 << backoff.min(32)).max(PROBE_MIN);
        all.saturating_add(self.slack).saturating_add(lag_ns).min(PROBE_MAX.max(once))
    }
}

/// The longest queue, in ns, that is no sign of too much in flight, nor of another way, where a round trip takes
/// `least` without one.
pub(super) fn standing(least: u64) -> u64 {
    QUEUE.max(least / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// A round trip of `round` ns, sampled `count` times, 100 us apart, none of it held.
    fn steady(round: u64, count: u64) -> Rtt {
        let mut rtt = Rtt::default();
        (0..count).for_each(|turn| rtt.sample(at(turn * 100_000), round, 0, 0));
        rtt
    }

    #[test]
    fn a_steady_round_trip_is_learnt() {
        let rtt = steady(30_000, 50);
        assert_eq!((rtt.smoothed(), rtt.least()), (30_000, 30_000));
        assert!(rtt.variation() < 100);
        assert_eq!(rtt.loss_delay(), 33_750);
        assert_eq!(rtt.probe_timeout(0, 0), 60_000);
        assert_eq!(rtt.probe_timeout(3, 0), 480_000);
    }

    #[test]
    fn what_is_usual_is_measured_and_near_the_least() {
        assert_eq!((Rtt::default().usual(), Rtt::greeted(at(0), 20_000).usual()), (0, 0));
        assert_eq!(steady(30_000, 50).usual(), 30_000);
        let mut rtt = Rtt::greeted(at(0), 20_000);
        rtt.sample(at(1000), 900_000, 0, 0);
        assert_eq!(rtt.usual(), 80_000, "the first one was long");
    }

    #[test]
    fn the_first_sample_replaces_what_was_assumed() {
        assert_eq!((Rtt::default().smoothed(), Rtt::default().least()), (INITIAL, INITIAL));
        let rtt = steady(20_000, 1);
        assert_eq!((rtt.smoothed(), rtt.variation(), rtt.least()), (20_000, 10_000, 20_000));
    }

    #[test]
    fn an_acknowledgement_that_is_held_is_no_longer_way() {
        let mut rtt = steady(30_000, 50);
        for turn in 0..50 {
            rtt.sample(at(5_000_000 + turn * 100_000), 130_000, 100_000, 0);
        }
        assert_eq!(rtt.smoothed(), 30_000);
        let wait = rtt.probe_timeout(0, 0);
        assert!((140_000..=160_000).contains(&wait), "{wait} ns: longer than round trip and holding together");
    }

    #[test]
    fn what_lies_here_unread_makes_no_probe_late() {
        let mut rtt = steady(30_000, 50);
        let wait = rtt.probe_timeout(0, 0);
        for turn in 0..50 {
            rtt.sample(at(5_000_000 + turn * 6_000_000), 5_030_000, 0, 5_000_000);
        }
        assert_eq!(rtt.probe_timeout(0, 0), wait);
        assert_eq!(rtt.probe_timeout(0, 5_000_000), wait + 5_000_000, "it may lie here still");
        assert!(rtt.smoothed() > 5_000_000);
        // Nobody's delay makes the way shorter than it was ever seen to be.
        (0..50).for_each(|turn| rtt.sample(at(305_000_000 + turn * 100_000), 30_000, 0, 30_000));
        assert_eq!(rtt.probe_timeout(0, 0), wait);
        assert_eq!(rtt.probe_timeout(0, u64::MAX), PROBE_MAX);
    }

    #[test]
    fn more_than_could_have_been_held_is_not_believed() {
        let mut rtt = steady(30_000, 50);
        rtt.sample(at(5_000_000), 40_000, u64::MAX, 0);
        assert_eq!(rtt.smoothed(), 30_000);
        assert_eq!(rtt.least(), 30_000);
    }

    #[test]
    fn a_stop_of_the_other_side_is_no_longer_way() {
        let mut rtt = steady(30_000, 50);
        let wait = rtt.probe_timeout(0, 0);
        rtt.sample(at(700_000_000), 700_000_000, u64::MAX, 0);
        assert_eq!((rtt.smoothed(), rtt.spread(), rtt.loss_delay()), (30_000, 30_000, 33_750));
        // Where each answer is like that, the way may have become so long.
        assert!(rtt.probe_timeout(0, 0) > wait);
        (0..50).for_each(|turn| rtt.sample(at(800_000_000 + turn), 700_000_000, u64::MAX, 0));
        assert!(rtt.probe_timeout(0, 0) > 700_000_000, "{} ns", rtt.probe_timeout(0, 0));
        // Which is no longer believed once such an answer comes sooner.
        let mut rtt = steady(700_000_000, 50);
        (0..50).for_each(|turn| rtt.sample(at(800_000_000 + turn), 50_000_000, u64::MAX, 0));
        assert!(rtt.smoothed() < 51_000_000, "{} ns", rtt.smoothed());
    }

    #[test]
    fn one_answer_that_was_late_makes_no_probe_wait_so_long() {
        let mut rtt = steady(1_000_000, 50);
        rtt.sample(at(2_000_000_000), 2_000_000_000, u64::MAX, 0);
        let wait = rtt.probe_timeout(0, 0);
        assert!((100_000_000..300_000_000).contains(&wait), "{wait} ns");
        // Where it is said twice, that is how long answers take.
        rtt.sample(at(4_000_000_000), 2_000_000_000, u64::MAX, 0);
        assert!(rtt.probe_timeout(0, 0) > 1_000_000_000);
        (0..50).for_each(|turn| rtt.sample(at(4_000_000_000 + turn), 1_000_000, 0, 0));
        rtt.sample(at(6_000_000_000), 2_000_000_000, u64::MAX, 0);
        assert!(rtt.probe_timeout(0, 0) < 300_000_000);
    }

    /// What such an answer says of less than was believed is taken, whatever it was held for.
    #[test]
    fn who_is_always_busy_makes_no_way_long() {
        let mut rtt = Rtt::default();
        rtt.sample(at(0), 6_000_000, 0, 0);
        rtt.sample(at(1), 20_000, 0, 0);
        (2..52).for_each(|turn| rtt.sample(at(turn), 6_000_000, u64::MAX, 0));
        assert!(rtt.smoothed() < 64_000, "{} ns", rtt.smoothed());
    }

    #[test]
    fn frames_are_spread_over_the_last_round_trip_if_that_was_shorter() {
        assert_eq!(Rtt::expecting(300_000_000).spread(), 300_000_000);
        let mut rtt = steady(300_000_000, 50);
        rtt.sample(at(1), 20_000, 0, 0);
        assert_eq!(rtt.spread(), 20_000);
        rtt.sample(at(2), 400_000_000, 0, 0);
        assert_eq!(rtt.spread(), rtt.smoothed());
    }

    #[test]
    fn a_longer_way_is_believed_after_ten_seconds() {
        let mut rtt = steady(30_000, 50);
        let mut now = 0;
        while now < 11 * SECOND {
            now += SECOND / 10;
            rtt.sample(at(now), 70_000, 0, 0);
            if now < 5 * SECOND {
                assert_eq!(rtt.least(), 30_000);
            }
        }
        assert_eq!(rtt.least(), 70_000);
    }

    /// Rounds of 16 us, of which each two-hundredth stands still for 20 us. Of `lost` in a hundred the answer is lost,
    /// and repeated. How many probes are sent for nothing, and by how much the time-out is longer in the end.
    fn with_stops(rounds: u64, lost: u64) -> (u64, u64) {
        let mut rtt = steady(16_000, 50);
        let wait = rtt.probe_timeout(0, 0);
        let mut in_vain = 0;
        for turn in 0..rounds {
            let begun = at(5_000_000 + turn * 100_000);
            let out = rtt.probe_timeout(0, 0);
            let stands = if turn % 200 == 77 { 20_000 } else { 0 };
            let is_lost = turn * lost % 100 < lost;
            let answered = if is_lost { out + 1_000 } else { 16_000 + stands };
            if answered > out {
                in_vain += u64::from(!is_lost);
                rtt.probes();
                // The second frame that was given up says no more than the first.
                (0..2).for_each(|_| rtt.had_arrived(if is_lost { wait } else { 0 }));
            }
            rtt.sample(begun.after(answered), 16_000, 0, 0);
        }
        (in_vain, rtt.probe_timeout(0, 0).saturating_sub(wait))
    }

    #[test]
    fn stops_are_waited_for_where_less_is_lost_than_stops() {
        let (in_vain, longer) = with_stops(60_000, 0);
        assert!(in_vain < 60 && longer < 40_000, "{in_vain} of 300 in vain, {longer} ns longer");
        let (_, longer) = with_stops(60_000, 1);
        assert!(longer < 8_000, "{longer} ns longer");
        let (in_vain, longer) = with_stops(70, 3);
        assert_eq!((in_vain, longer), (0, 0), "a lost answer is no late one");
    }

    #[test]
    fn time_outs_have_bounds_whatever_is_measured() {
        let mut rtt = steady(1, 50);
        assert_eq!(rtt.probe_timeout(0, 0), PROBE_MIN);
        assert!(rtt.loss_delay() > GRANULARITY);
        rtt.sample(at(u64::MAX), u64::MAX, 0, 0);
        rtt.sample(at(0), u64::MAX, u64::MAX, 0);
        rtt.sample(at(7), 0, u64::MAX, 0);
        assert!(rtt.probe_timeout(u32::MAX, u64::MAX) <= 6 * ROUND_MAX);
        assert!(steady(u64::MAX, 3).probe_timeout(0, 0) <= 6 * ROUND_MAX);
        assert_eq!(steady(30_000, 50).probe_timeout(u32::MAX, u64::MAX), PROBE_MAX);
    }

    #[test]
    fn a_long_way_is_waited_for_and_no_longer() {
        for round in [150_000_000, 300_000_000, 600_000_000] {
            let rtt = steady(round, 50);
            assert_eq!(rtt.probe_timeout(0, 0), 2 * round, "{round}");
            assert_eq!(rtt.probe_timeout(9, 7), 2 * round, "{round}");
            assert!(steady(round, 1).probe_timeout(0, 0) >= 2 * round, "{round}");
        }
    }

    /// Who begins where others have filled a queue would else take that for the way.
    #[test]
    fn the_way_is_no_longer_than_the_handshake() {
        let mut rtt = Rtt::greeted(at(100 * SECOND), 100_000);
        assert_eq!((rtt.smoothed(), rtt.least()), (INITIAL, INITIAL));
        rtt.sample(at(100 * SECOND + 1), 4_000_000, 0, 0);
        assert_eq!((rtt.smoothed(), rtt.least()), (4_000_000, 100_000));
        // It is forgotten as all round trips are.
        for second in 101..=114 {
            rtt.sample(at(second * SECOND), 4_000_000, 0, 0);
            assert_eq!((rtt.least(), rtt.is_old()), (100_000, second >= 110), "second {second}");
        }
        rtt.sample(at(116 * SECOND), 4_000_000, 0, 0);
        assert_eq!((rtt.least(), rtt.is_old()), (4_000_000, false));
        // One that was late says nothing.
        let mut rtt = Rtt::greeted(at(1), 300_000_000);
        rtt.sample(at(2), 20_000, 0, 0);
        assert_eq!(rtt.least(), 20_000);
    }

    /// What a quiet moment shows counts, be it longer or shorter than what was known.
    #[test]
    fn what_a_quiet_moment_shows_is_the_way() {
        for shown in [20_000, 900_000, 4_000_000] {
            let mut rtt = steady(100_000, 50);
            (6..=11).for_each(|second| rtt.sample(at(second * SECOND), 5_000_000, 0, 0));
            assert!(rtt.is_old() && rtt.standing() == QUEUE);
            rtt.settle(at(12 * SECOND), shown);
            assert_eq!((rtt.least(), rtt.is_old()), (shown, false));
        }
        assert_eq!(steady(4_000_000, 50).standing(), 1_000_000);
    }

    #[test]
    fn what_is_expected_is_replaced_by_what_is_measured() {
        let mut rtt = Rtt::expecting(300_000_000);
        assert_eq!((rtt.smoothed(), rtt.least()), (300_000_000, INITIAL));
        assert!(rtt.probe_timeout(0, 0) >= 600_000_000);
        rtt.sample(at(1), 20_000, 0, 0);
        assert_eq!((rtt.smoothed(), rtt.least()), (20_000, 20_000));
        // No less than without: the handshake of neighbours says little of what frames will take.
        assert_eq!(Rtt::expecting(7).probe_timeout(0, 0), Rtt::default().probe_timeout(0, 0));
    }
}
