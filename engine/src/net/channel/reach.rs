//! How long bodies the path carries: what the handshake has shown, until long frames are lost and short ones are not.
//!
//! A frame is lost for many reasons, and its length is one of them only if those that are shorter come through. So
//! bodies get shorter when long frames were lost again and again, none of them came through meanwhile, and then a
//! shorter one did that was sent later. They get longer when a probe of the longer length was acknowledged (compare RFC
//! 8899), never by trying with what somebody waits for. So it is found, too, if the handshake has shown less than the
//! path carries, because it was repeated on a long way before it could be answered. Common lengths are tried first, and
//! when one was too long, half way down to what comes through, again and again, until that is nearly as long.

use cutthrough_wire::frame::BODY_MIN;

use super::super::greet::SHORTER;
use super::super::outbox::frame_bytes;
use super::low32;
use crate::flow::sent::{Acked, Lost};
use crate::time::Instant;

/// How often long frames are lost, each time after the last loss was noticed, before the path is suspected.
const LOSSES: u32 = 4;
/// Nanoseconds since the first of them, at least: a machine that does not look for a while has lost nothing.
const LOSSES_NS: u64 = 10_000_000;
/// Nanoseconds for which it is believed that what has come through after a loss comes through.
const KNOWN_NS: u64 = 1_000_000_000;
/// Nanoseconds before a longer frame is tried: at first, twice as long each time, and at most.
const TRY_NS: (u64, u64) = (1_000_000_000, 30_000_000_000);

/// Bytes by which bodies may be shorter than one that was too long: no closer is tried.
const CLOSE: u16 = 64;

#[derive(Debug)]
pub(super) struct Reach {
    /// Bytes of the longest body from now on, and of the longest that may be tried.
    body: u16,
    most: u16,
    /// How often long frames were lost since one came through, since when, and bytes of the shortest.
    losses: u32,
    since: Instant,
    shortest: u32,
    /// The last of them, and the first number sent since that was noticed.
    last: u64,
    counts_from: u64,
    /// Bytes of a frame that has come through after a loss of such, and when.
    known: (u32, Instant),
    /// When a longer frame is tried, and how long after that again.
    try_at: Option<Instant>,
    wait: u64,
    /// The shortest body that was tried in vain since all were last tried.
    in_vain: u16,
    /// When bodies last got longer.
    longer_since: Option<Instant>,
}

impl Reach {
    pub(super) fn new(body: u16) -> Self {
        Self {
            body,
            most: body,
            losses: 0,
            since: Instant::default(),
            shortest: u32::MAX,
            last: 0,
            counts_from: 0,
            known: (0, Instant::default()),
            try_at: None,
            wait: TRY_NS.0,
            in_vain: u16::MAX,
            longer_since: None,
        }
    }

    /// Bytes of the longest body.
    pub(super) const fn body(&self) -> u16 {
        self.body
    }

    /// The handshake has shown less than it did before. What it did show may be tried.
    pub(super) fn narrow(&mut self, now: Instant, body: u16) {
        if body < self.body {
            *self = Self { most: self.most, ..Self::new(body) };
            self.put_off(now);
        }
    }

    /// The path is believed to carry bodies of so many bytes: they may be tried.
    pub(super) fn hope(&mut self, now: Instant, most: u16) {
        if most > self.most {
            self.most = most;
            self.put_off(now);
        }
    }

    /// A frame is lost; `next` is the number of the next one.
    pub(super) fn lost(&mut self, now: Instant, lost: Lost, next: u64) {
        if now.saturating_since(self.known.1) >= KNOWN_NS {
            self.known.0 = 0;
        }
        if lost.bytes <= bytes(BODY_MIN).max(self.known.0) || lost.bytes > bytes(self.body) {
            return;
        }
        self.shortest = self.shortest.min(lost.bytes);
        self.last = self.last.max(lost.number);
        if lost.number >= self.counts_from {
            self.since = if self.losses == 0 { now } else { self.since };
            self.losses += 1;
            self.counts_from = next;
        }
    }

    /// Frames have come through.
    pub(super) fn acked(&mut self, now: Instant, acked: &Acked) {
        let Some((newest, _)) = acked.newest.filter(|_| self.losses > 0) else { return };
        if acked.longest >= self.shortest {
            self.known = (if acked.longest < bytes(self.body) { acked.longest } else { 0 }, now);
            (self.losses, self.shortest) = (0, u32::MAX);
        } else if newest > self.last && self.losses >= LOSSES && now.saturating_since(self.since) >= LOSSES_NS {
            self.shorten(now, self.shortest);
        }
    }

    /// Whether it is to be found out if shorter frames come through.
    pub(super) const fn is_doubtful(&self) -> bool {
        self.losses > 0
    }

    /// Frames of so many bytes do not come through.
    pub(super) fn shorten(&mut self, now: Instant, too_long: u32) {
        if too_long > bytes(self.body) {
            return;
        }
        let shorter = SHORTER.into_iter().find(|body| bytes(*body) < too_long).unwrap_or(BODY_MIN);
        self.body = self.body.min(shorter);
        (self.losses, self.shortest, self.known.0) = (0, u32::MAX, 0);
        self.in_vain = u16::MAX;
        // One that gets shorter as soon as it is longer is trusted less and less.
        let soon = self.longer_since.is_some_and(|since| now.saturating_since(since) < TRY_NS.1);
        if self.try_at.is_none() {
            self.wait = if soon { self.wait } else { TRY_NS.0 };
        }
        self.put_off(now);
    }

    fn put_off(&mut self, now: Instant) {
        self.try_at = (self.body < self.most).then(|| now.after(self.wait));
        self.wait = (self.wait * 2).min(TRY_NS.1);
    }

    /// When a longer frame is to be tried.
    pub(super) const fn try_at(&self) -> Option<Instant> {
        self.try_at
    }

    /// The longer body that is to be tried now. If nothing is heard of that, it is tried again later.
    pub(super) fn tries(&mut self, now: Instant) -> Option<u16> {
        self.try_at.filter(|at| now >= *at)?;
        if self.is_close() {
            // That is long ago: the path may have become another.
            self.in_vain = u16::MAX;
        }
        self.put_off(now);
        let longer = SHORTER.into_iter().rev().find(|body| *body > self.body);
        let longer = longer.unwrap_or(self.most).min(self.most);
        Some(if longer < self.in_vain { longer } else { u16::midpoint(self.body, self.in_vain) })
    }

    /// A body so long was tried, and is lost.
    pub(super) fn tried_in_vain(&mut self, now: Instant, body: u16) {
        if body > self.body {
            self.in_vain = self.in_vain.min(body);
            self.goes_on(now);
        }
    }

    /// A body so long has come through.
    pub(super) fn carries(&mut self, now: Instant, body: u16) {
        if body > self.body {
            self.body = body.min(self.most);
            self.longer_since = Some(now);
            self.in_vain = if self.in_vain > self.body { self.in_vain } else { u16::MAX };
            self.goes_on(now);
        }
    }

    /// The next length is tried soon, or all of them after a long time, if there is hardly anything left to win.
    fn goes_on(&mut self, now: Instant) {
        let wait = if self.is_close() { TRY_NS.1 } else { TRY_NS.0 };
        self.try_at = (self.body < self.most).then(|| now.after(wait));
    }

    /// Whether what comes through is nearly as long as what does not.
    const fn is_close(&self) -> bool {
        self.in_vain.saturating_sub(self.body) <= CLOSE
    }
}

fn bytes(body: u16) -> u32 {
    low32(frame_bytes(usize::from(body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn what_is_above_what_the_handshake_has_shown_is_tried() {
        let mut narrowed = Reach::new(1408);
        narrowed.narrow(at(0), BODY_MIN);
        let mut hoped = Reach::new(BODY_MIN);
        hoped.hope(at(0), 1408);
        for mut reach in [narrowed, hoped] {
            assert_eq!((reach.body(), reach.tries(at(999))), (BODY_MIN, None));
            assert_eq!(reach.tries(at(1000)), Some(1388));
            reach.carries(at(1001), 1388);
            assert_eq!((reach.body(), reach.tries(at(2000)), reach.tries(at(2001))), (1388, None, Some(1408)));
            reach.carries(at(2002), 1408);
            assert_eq!((reach.body(), reach.try_at()), (1408, None));
        }
        // Where all has been shown nothing is tried.
        let mut reach = Reach::new(1408);
        reach.narrow(at(0), 1408);
        reach.hope(at(0), 1400);
        assert_eq!((reach.body(), reach.try_at()), (1408, None));
    }

    /// Lets probes of every length tell within this time, in ms from `from` on, whether the path carries them: how many
    /// there were.
    fn probes(reach: &mut Reach, carries: u16, from: u64, until: u64) -> u64 {
        (from..until).fold(0, |probes, ms| {
            let Some(body) = reach.tries(at(ms)) else { return probes };
            if body <= carries {
                reach.carries(at(ms), body);
            } else {
                reach.tried_in_vain(at(ms), body);
            }
            probes + 1
        })
    }

    #[test]
    fn the_longest_body_is_found_whatever_the_path_carries() {
        for most in [1408, 8909, 65_443] {
            for carries in [1136, 1137, 1200, 1328, 1388, 1407, 1500, 4000, 8850, 8909, 30_000, 65_000, 65_443] {
                let mut reach = Reach::new(BODY_MIN);
                reach.hope(at(0), most);
                let probes = probes(&mut reach, carries, 0, 60_000);
                let found = carries.min(most) - reach.body();
                assert!(found <= CLOSE, "{found} bytes less than {carries} of {most}");
                assert!(probes <= 24, "{probes} probes");
            }
        }
    }

    #[test]
    fn what_was_too_long_is_tried_again_later() {
        let mut reach = Reach::new(1408);
        reach.shorten(at(0), bytes(1408));
        reach.shorten(at(0), bytes(1388));
        probes(&mut reach, 1300, 0, 20_000);
        assert!((1237..=1300).contains(&reach.body()), "{} bytes", reach.body());
        assert_eq!(probes(&mut reach, 1408, 20_000, 30_000), 0, "all is known");
        probes(&mut reach, 1408, 30_000, 40_000);
        assert_eq!((reach.body(), reach.try_at()), (1408, None));
    }
}
