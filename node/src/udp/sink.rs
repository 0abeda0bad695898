//! How long short messages wait for each other: while the sink works on what was sent before.
//!
//! The rule is that of pulses: what waits when the way is free goes at once. Nobody here sees when the sink is free, so
//! it is estimated: it takes as long for a batch as the sender has taken to gather its messages and to send them. Where
//! messages come one by one nothing was gathered, and nothing waits for longer than one call takes.

use cutthrough_engine::time::Instant;

/// Sends one behind the other after which messages wait for each other. What is received meanwhile ends a wait, and
/// not the row: who is answered at once may well be about to send more.
const BURST: u32 = 4;
/// Nanoseconds after which sends are no longer one behind the other.
const BURST_NS: u64 = 50_000;
/// Nanoseconds for which messages wait at most.
const GATHER_NS: u64 = 20_000;
/// Messages for which the clock is not looked at, at most.
const UNLOOKED: u32 = 32;

/// What is known of the sink.
#[derive(Debug, Default)]
pub(super) struct Sink {
    /// Until when it is busy; the beginning of time if nothing says that it is.
    until: Instant,
    sent_at: Instant,
    burst: u32,
    /// When the first message was kept that waits, and how many were in all.
    kept: Option<(Instant, u32)>,
    /// How many of those that come next wait without another look at the clock.
    unlooked: u32,
}

impl Sink {
    /// Whether it is busy now.
    pub(super) fn is_busy(&self, now: Instant) -> bool {
        now < self.until
    }

    /// The other side has shown that it is there for more.
    pub(super) fn heard(&mut self) {
        (self.until, self.unlooked) = (Instant::default(), 0);
    }

    /// Busy until then, whatever was sent.
    #[cfg(test)]
    pub(super) const fn busy_until(&mut self, until: Instant) {
        self.until = until;
    }

    /// A batch was sent, from `before` to `after`.
    pub(super) fn sent(&mut self, before: Instant, after: Instant) {
        self.burst = if before.saturating_since(self.sent_at) < BURST_NS { self.burst + 1 } else { 0 };
        self.sent_at = after;
        let gathered = self.kept.take().map_or(0, |(since, _)| before.saturating_since(since));
        self.unlooked = 0;
        if self.burst >= BURST {
            let took = after.saturating_since(before);
            self.until = after.after((took + gathered).min(GATHER_NS));
        }
    }

    /// Whether a message that was queued waits for others, as far as that is known without the clock.
    pub(super) fn keeps(&mut self) -> Option<bool> {
        if self.until == Instant::default() {
            return Some(false);
        }
        if self.unlooked == 0 {
            return None;
        }
        self.unlooked -= 1;
        Some(true)
    }

    /// The same, by the clock.
    pub(super) fn keeps_at(&mut self, now: Instant) -> bool {
        if !self.is_busy(now) {
            return false;
        }
        let (since, kept) = self.kept.unwrap_or((now, 0));
        // As many as come in half of the time that is left, if they come as fast as before.
        let (passed, left) = (now.saturating_since(since), self.until.saturating_since(now));
        let more = (left / 2).saturating_mul(u64::from(kept)).checked_div(passed).unwrap_or(0);
        self.unlooked = u32::try_from(more).unwrap_or(UNLOOKED).min(UNLOOKED);
        self.kept = Some((since, kept + 1 + self.unlooked));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// A sink to which so many batches were sent, each as soon as the last one was, until this time.
    fn after(batches: u64, took: u64) -> (Sink, u64) {
        let (mut sink, mut now) = (Sink::default(), 1_000_000);
        for _ in 0..batches {
            sink.sent(at(now), at(now + took));
            now += took;
        }
        (sink, now)
    }

    #[test]
    fn what_comes_alone_does_not_wait() {
        let (mut sink, _) = after(3, 3000);
        assert_eq!(sink.keeps(), Some(false));
        // Nor long after a stream, or when the other side has answered.
        let (mut sink, now) = after(9, 3000);
        assert!(!sink.keeps_at(at(now + 3000)));
        sink.heard();
        assert_eq!(sink.keeps(), Some(false));
    }

    #[test]
    fn in_a_stream_it_waits_as_long_as_the_last_batch_took() {
        let (mut sink, now) = after(9, 3000);
        assert_eq!(sink.keeps(), None);
        assert!(sink.keeps_at(at(now + 2999)) && !sink.keeps_at(at(now + 3000)));
    }

    #[test]
    fn the_more_gather_the_longer_it_is_busy_up_to_a_bound() {
        let (mut sink, mut now) = after(9, 3000);
        let mut waits = Vec::new();
        for _ in 0..12 {
            let begun = now;
            while sink.keeps() == Some(true) || sink.keeps_at(at(now)) {
                now += 100;
            }
            waits.push(now - begun);
            sink.sent(at(now), at(now + 3000));
            now += 3000;
        }
        assert!(waits.is_sorted() && waits[0] >= 3000 && waits[3] > 10_000, "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= GATHER_NS + 100 * u64::from(UNLOOKED)), "{waits:?}");
    }

    #[test]
    fn a_slow_call_keeps_nothing_for_longer_than_the_bound() {
        let (mut sink, now) = after(9, 3_000_000);
        assert!(sink.keeps_at(at(now + GATHER_NS - 1)) && !sink.keeps_at(at(now + GATHER_NS)));
    }

    #[test]
    fn the_clock_is_looked_at_rarely() {
        let (mut sink, mut now) = after(9, 10_000);
        let (mut looks, mut messages) = (0, 0);
        while let Some(true) = sink.keeps().or_else(|| {
            looks += 1;
            Some(sink.keeps_at(at(now)))
        }) {
            now += 50;
            messages += 1;
        }
        assert!(messages >= 200 && looks < 20, "{looks} looks for {messages} messages");
    }
}
