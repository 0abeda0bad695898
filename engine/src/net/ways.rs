//! Which way a channel's frames go, where more than one adapter leads to the same peer.
//!
//! No way is the best for everything: a ring shared with the kernel has the shortest way for one frame, a socket call
//! that takes a whole train the least work for many. So nothing is assumed. How long it takes until what is ahead is
//! acknowledged is measured, for each way and each size by itself, with all that had to be sent again; and what is
//! ahead next, if it is of that size, goes the way that was the quickest. A way that was not tried for a while is
//! tried again: machines and networks change.
//!
//! A channel changes its way only when nothing of it is in flight. So frames of one way never overtake those of
//! another, and a later frame that has arrived still proves an earlier one lost ([`Sent`](crate::flow::sent::Sent)).
//! Each way has a round trip and a window of its own: a ring that runs over says nothing of the socket.

#[cfg(test)]
mod tests;

use crate::flow::rtt::Rtt;
use crate::flow::window::Window;
use crate::time::Instant;

/// Most ways of a channel.
pub const WAYS: usize = 3;
/// Bytes of a batch at most, for each way.
pub type Most = [usize; WAYS];
/// Sizes that are told apart: each twice the one before, from 64 B on.
const SIZES: usize = 10;
/// Bytes that a way is judged by at most: the least of the largest size.
pub(super) const JUDGED: u64 = 64 << (SIZES - 1);
/// Bytes that fit a frame of any path. Of less, only an acknowledgement of nothing else shows what the way costs.
const FRAME: u64 = 1024;
/// Stretches of a size that a way is tried with before it is judged.
pub(super) const TRIALS: u32 = 8;
/// Stretches of any size for which a way is tried at most.
const STRETCHES: u32 = 32;
/// Nanoseconds after which a way that is not taken is tried again: when what was measured may have been the beginning
/// of the channel, or a moment at which it was held up, twice as long each time, and at most.
const STALE_NS: (u64, u64) = (4_000_000, 1_000_000_000);
/// But not before what went by other ways was under way for so many times as long as what was tried, [`IDLE_NS`] at
/// most: pauses count for neither, and a peer that stood still in a trial says nothing of the way.
const APART: u64 = 32;
/// Nanoseconds for which there is no trial for a size that is too rare for one, at most.
const IDLE_NS: u64 = 10_000_000_000;
/// Stretches in a row for which another way would be better, before a stream comes to rest for it.
const PRESSURE: u32 = 8;
/// Losses without anything that came through, after which a way is taken to lead nowhere, though signs of life that
/// went the first way are answered.
const LOSSES: u32 = 3;
/// Nanoseconds of that, at least: a peer that is off its processor for a moment answers by no way.
pub(super) const SILENT_NS: u64 = 2_000_000;
/// Nanoseconds for which a way is left alone on which nothing came through: at first, when its other end may only have
/// been off its processor for a while, twice as long each time that nothing does again before it was open for
/// [`WORKED`] times as long, and at most.
const BARRED_NS: (u64, u64) = (20_000_000, 10_000_000_000);
const WORKED: u64 = 16;
/// A way is left for one that costs less than 15 parts in 16 of it.
pub(super) const BETTER: (u64, u64) = (15, 16);

/// Why a way was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Why {
    /// There is no other.
    #[default]
    Only,
    /// It costs the least, as measured for this size.
    Cheapest,
    /// What it costs is being measured.
    Trial,
    /// Frames are in flight on it, which others must not overtake.
    InFlight,
}

/// The way of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Way {
    /// Its number, as the caller numbers ways.
    pub number: u8,
    /// Why it was taken.
    pub why: Why,
}

/// What one way costs for one size.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    /// Nanoseconds until a stretch is acknowledged, smoothed.
    ns: u64,
    /// Stretches measured since the way was last judged.
    trials: u32,
    /// When the last of them was measured.
    at: Instant,
    /// Nanoseconds for which stretches were under way until it was judged; and for which those of the size have to be,
    /// by whatever way, before it is tried again.
    took_ns: u64,
    rests_ns: u64,
    /// How often the way was tried again.
    again: u32,
    /// Stretches in a row that have shown nothing; how many trials in a row have; and until when there is no other.
    blind: u32,
    vain: u32,
    idle_until: Instant,
}

/// What was ahead and in flight when a way was chosen, until it is acknowledged.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    way: usize,
    bytes: u64,
    chosen: Instant,
    /// Bytes acknowledged then.
    acked: u64,
    /// Bytes of it that are not sent yet; once all are, how many are acknowledged when all of it is.
    rest: u64,
    until: Option<u64>,
    /// Whether the way was changed for it: then it says how long a rest lasts, not what a stream by this way costs. Or
    /// it was sent as nothing is as a rule.
    says_little: bool,
}

/// A way that is being tried for a size.
#[derive(Debug, Clone, Copy)]
struct Trial {
    way: usize,
    size: usize,
    /// Stretches of any size after which it ends at the latest.
    left: u32,
}

impl Trial {
    fn of(self) -> Way {
        Way { number: u8::try_from(self.way).unwrap_or(0), why: Why::Trial }
    }
}

/// The ways of one channel.
#[derive(Debug, Clone)]
pub(super) struct Ways {
    /// Which may be taken, a bit for each.
    usable: u8,
    now: Way,
    /// Whether that was taken because it costs the least.
    was_cheapest: bool,
    costs: [[Cost; SIZES]; WAYS],
    /// Nanoseconds for which stretches of each size were under way.
    spent: [u64; SIZES],
    stretch: Option<Stretch>,
    /// Bytes acknowledged so far.
    acked: u64,
    pressure: u32,
    /// The size that would be better off by another way, while the channel comes to rest for it.
    rests_for: Option<usize>,
    trial: Option<Trial>,
    /// Losses on this way since anything came through, and when the first of them was.
    losses: u32,
    lost_since: Instant,
    /// Ways on which nothing came through, until when, and how often in a row.
    barred: [Instant; WAYS],
    failed: [u32; WAYS],
    /// When each was left for another one last.
    left: [Instant; WAYS],
    /// The way whose round trip and window the channel has in hand, and those of the others.
    in_hand: u8,
    aside: [Option<(Rtt, Window)>; WAYS],
}

impl Default for Ways {
    /// The first way only.
    fn default() -> Self {
        Self {
            usable: 1,
            now: Way::default(),
            was_cheapest: false,
            costs: [[Cost::default(); SIZES]; WAYS],
            spent: [0; SIZES],
            stretch: None,
            acked: 0,
            pressure: 0,
            rests_for: None,
            trial: None,
            losses: 0,
            lost_since: Instant::default(),
            barred: [Instant::default(); WAYS],
            failed: [0; WAYS],
            left: [Instant::default(); WAYS],
            in_hand: 0,
            aside: [const { None }; WAYS],
        }
    }
}

/// Which of the sizes `bytes` is.
fn size_of(bytes: u64) -> usize {
    let doublings = (bytes.max(64) >> 6).ilog2() as usize;
    doublings.min(SIZES - 1)
}

impl Ways {
    /// Says which ways may be taken, a bit for each; the first if none.
    pub(super) fn set_usable(&mut self, usable: u8) {
        self.usable = if usable == 0 { 1 } else { usable & ((1 << WAYS) - 1) };
        if self.usable & (1 << self.now.number) == 0 {
            self.now = self.first();
            (self.stretch, self.trial, self.rests_for) = (None, None, None);
        }
    }

    /// The way that was taken last.
    pub(super) const fn now(&self) -> Way {
        self.now
    }

    /// The way that is there from the beginning, and that is taken when another one fails.
    pub(super) fn first(&self) -> Way {
        Way { number: u8::try_from(self.usable.trailing_zeros()).unwrap_or(0), why: Why::Only }
    }

    /// The way of the next batch, when `ahead` bytes wait to be sent: that of the stretch, or of a new one. `None` if
    /// it has to wait until nothing is in flight any more, because it goes another way than what is.
    pub(super) fn choose(&mut self, now: Instant, ahead: u64, in_flight: u64) -> Option<Way> {
        if self.usable.is_power_of_two() {
            return Some(self.now);
        }
        if in_flight > 0 && self.stretch.is_some() {
            return Some(self.now);
        }
        // What is in flight has to come through before it.
        let whole = in_flight + ahead.clamp(1, JUDGED);
        let size = self.rests_for.take_if(|_| in_flight == 0).unwrap_or_else(|| size_of(whole));
        let best = match self.trial {
            // What is begun to be tried is tried to the end, whatever other sizes would like.
            Some(trial) if self.is_open(trial.way, now) => trial.of(),
            _ => self.best(now, size),
        };
        let changes = in_flight == 0 && best.number != self.now.number;
        if changes {
            let left = usize::from(self.now.number);
            self.left[left] = now;
            if self.was_cheapest && best.why == Why::Cheapest {
                // It was better than the others, and perhaps is again soon.
                self.costs[left][size].again = 0;
            }
            let tries = Trial { way: best.number.into(), size, left: STRETCHES };
            self.trial = (best.why == Why::Trial).then_some(tries);
        }
        if in_flight == 0 || best.number == self.now.number {
            self.pressure = 0;
            (self.now, self.was_cheapest) = (best, best.why == Why::Cheapest);
        } else {
            // A stream never comes to rest by itself. If all of it would be better off elsewhere, it has to.
            self.pressure += 1;
            if self.pressure > PRESSURE {
                self.rests_for = Some(size);
                return None;
            }
            self.now.why = Why::InFlight;
        }
        let (way, acked) = (usize::from(self.now.number), self.acked);
        let (bytes, rest) = (whole.min(JUDGED), whole - in_flight);
        self.stretch = Some(Stretch { way, bytes, chosen: now, acked, rest, until: None, says_little: changes });
        Some(self.now)
    }

    /// The way that is taken, if there is no other, and the channel has what is known of it in hand.
    pub(super) fn only(&self) -> Option<Way> {
        (self.usable.is_power_of_two() && self.in_hand == self.now.number).then_some(self.now)
    }

    /// Gives a channel the round trip and the window of the way that is taken now, if it has those of another; if that
    /// way was never taken, a window for frames of `frame` bytes, and what the round trip is by the one before: both
    /// lead to the same peer, and on a long way what is waited for less would be given up before it can be there.
    /// Whether it was of another way.
    pub(super) fn hand_over(&mut self, rtt: &mut Rtt, window: &mut Window, frame: u32) -> bool {
        let changes = self.in_hand != self.now.number;
        if changes {
            let next = self.aside[usize::from(self.now.number)].take();
            let (next_rtt, next_window) = next.unwrap_or_else(|| (Rtt::expecting(rtt.smoothed()), Window::new(frame)));
            let before = (core::mem::replace(rtt, next_rtt), core::mem::replace(window, next_window));
            self.aside[usize::from(self.in_hand)] = Some(before);
            self.in_hand = self.now.number;
        }
        changes
    }

    fn is_open(&self, way: usize, now: Instant) -> bool {
        self.usable & (1 << way) != 0 && self.barred[way] <= now
    }

    fn best(&self, now: Instant, size: usize) -> Way {
        let way = |number: usize, why| Way { number: u8::try_from(number).unwrap_or(0), why };
        let here = usize::from(self.now.number);
        let cost = |way: usize| &self.costs[way][size];
        // What is begun to be tried is tried to the end, so that the way is not changed each time.
        let tried = |way: usize| cost(way).trials >= TRIALS;
        if !tried(here) && cost(here).idle_until <= now {
            return way(here, Why::Trial);
        }
        let others = (0..WAYS).filter(|other| *other != here && self.is_open(*other, now));
        let doubts = |its: &Cost| its.idle_until <= now && (its.trials < TRIALS || its.is_stale(now, self.spent[size]));
        let doubted = others.clone().filter(|other| doubts(cost(*other)));
        // Not by number: two whose trials take longer than they are believed would keep the third out for ever.
        if let Some(next) = doubted.min_by_key(|other| self.left[*other]) {
            return way(next, Why::Trial);
        }
        let less = |other: &Cost, best: &Cost| other.ns * BETTER.1 < best.ns * BETTER.0;
        let cheaper = |other, best| tried(other) && (!tried(best) || less(cost(other), cost(best)));
        way(others.fold(here, |best, other| if cheaper(other, best) { other } else { best }), Why::Cheapest)
    }

    /// So many bytes have been sent. `in_flight` are now, and `all` says whether nothing is left to be sent.
    pub(super) fn sent(&mut self, bytes: u64, in_flight: u64, all: bool) {
        let Some(stretch) = self.stretch.as_mut().filter(|stretch| stretch.until.is_none()) else { return };
        stretch.rest = stretch.rest.saturating_sub(bytes);
        stretch.until = (stretch.rest == 0 || all).then_some(self.acked + in_flight);
    }

    /// What has just been sent was not sent as it is as a rule: how long it takes says little of the way.
    pub(super) const fn says_little(&mut self) {
        if let Some(stretch) = &mut self.stretch {
            stretch.says_little = true;
        }
    }

    /// So many bytes, of so many frames, are acknowledged at once. Up to `held` nanoseconds of the time since then
    /// are not the way's, and it takes `least` at least: what both sides say of themselves may be more than there was.
    pub(super) fn acked(&mut self, now: Instant, (frames, bytes): (u32, u64), (held, least): (u64, u64)) {
        self.acked += bytes;
        let acked = self.acked;
        let Some(stretch) = self.stretch.take_if(|stretch| stretch.until.is_some_and(|until| acked >= until)) else {
            return;
        };
        let elapsed = now.saturating_since(stretch.chosen);
        let since = acked - stretch.acked;
        // By itself, and at once.
        let alone = frames == 1 || stretch.until == Some(acked) && since == bytes;
        // Of more than is judged, or acknowledged with more, it is the part of the time that so many bytes take.
        let ns = match stretch.bytes {
            ..FRAME if !alone => None,
            ..FRAME => Some(elapsed.saturating_sub(held).max(least.min(elapsed))),
            _ if stretch.says_little => None,
            bytes => Some(elapsed.saturating_mul(bytes) / since),
        };
        let (way, size) = (stretch.way, size_of(stretch.bytes));
        self.spent[size] = self.spent[size].saturating_add(elapsed);
        let (cost, spent) = (&mut self.costs[way][size], self.spent[size]);
        cost.took_ns = cost.took_ns.saturating_add(elapsed);
        match ns {
            Some(ns) => cost.learn((now, spent), ns.max(1)),
            None => cost.shows_nothing(now),
        }
        if let Some(trial) = self.trial.as_mut().filter(|trial| trial.way == way) {
            trial.left = trial.left.saturating_sub(1);
            let done = ns.is_some() && trial.size == size && self.costs[way][size].trials >= TRIALS;
            let ended = self.trial.take_if(|trial| done || trial.left == 0);
            if let Some(Trial { size, .. }) = ended {
                self.costs[way][size].ends_trial(now, done);
            }
        }
    }

    /// Nothing comes through, again and again: the first way is taken, and this one left alone for some time.
    pub(super) fn fails(&mut self, now: Instant) {
        let here = usize::from(self.now.number);
        if here != 0 && self.usable & 1 != 0 {
            let bar = |failed: u32| (BARRED_NS.0 << failed.min(16)).min(BARRED_NS.1);
            let (open, failed) = (now.saturating_since(self.barred[here]), self.failed[here]);
            self.failed[here] = if open > WORKED * bar(failed) { 0 } else { failed.saturating_add(1) };
            self.barred[here] = now.after(bar(self.failed[here]));
            self.now = self.first();
        }
        self.losses = 0;
        (self.stretch, self.trial, self.rests_for) = (None, None, None);
    }

    /// Frames of messages, which go no other way than the one that is taken, have arrived.
    pub(super) const fn comes_through(&mut self) {
        self.losses = 0;
    }

    /// Frames were lost, so many of them of messages.
    pub(super) fn lost(&mut self, now: Instant, of_messages: u32) {
        if of_messages == 0 {
            return;
        }
        if self.losses == 0 {
            self.lost_since = now;
        }
        self.losses = self.losses.saturating_add(1);
        if self.losses >= LOSSES && now.saturating_since(self.lost_since) >= SILENT_NS {
            self.fails(now);
        }
    }
}

/// Whether what was measured last at this time, and doubted so often before, is doubted again now: after the first of
/// these, twice as long each time, the second at most.
pub(super) fn is_stale((at, now): (Instant, Instant), again: u32, (first, most): (u64, u64)) -> bool {
    now.saturating_since(at) > (first << again.min(16)).min(most)
}

impl Cost {
    /// Whether nothing was measured for so long that the way is tried again, where its size was under way for `spent`.
    fn is_stale(&self, now: Instant, spent: u64) -> bool {
        is_stale((self.at, now), self.again, STALE_NS) && spent >= self.rests_ns
    }

    fn learn(&mut self, (now, spent): (Instant, u64), ns: u64) {
        if self.is_stale(now, spent) && self.trials >= TRIALS {
            // What was known is of old.
            (self.ns, self.trials, self.took_ns, self.again) = (0, 0, ns, self.again + 1);
        }
        // A machine that stood still shows nothing of the way.
        let ns = if self.ns == 0 { ns } else { ns.min(self.ns * 4) };
        let share = if self.trials >= TRIALS { 8 } else { 2 };
        // Rounded up, or what was taken for nearly nothing would be for ever.
        self.ns = if self.ns == 0 { ns } else { self.ns - self.ns / share + ns.div_ceil(share) };
        if self.trials < TRIALS {
            self.trials += 1;
            self.rests_ns = spent.saturating_add(self.took_ns.saturating_mul(APART).min(IDLE_NS));
        }
        self.blind = 0;
        self.at = now;
    }

    /// A stretch has shown nothing. Where none ever does, the way is not held on to for that.
    fn shows_nothing(&mut self, now: Instant) {
        if self.trials >= TRIALS {
            return;
        }
        self.blind += 1;
        if self.blind >= STRETCHES {
            self.blind = 0;
            self.ends_trial(now, false);
        }
    }

    /// A trial for this size has ended. One in which the size was too rare to be measured, which all others took part
    /// in, is not repeated at once.
    fn ends_trial(&mut self, now: Instant, measured: bool) {
        self.vain = if measured { 0 } else { self.vain.saturating_add(1) };
        if !measured {
            self.idle_until = now.after((STALE_NS.0 << self.vain.min(16)).min(IDLE_NS));
        }
    }
}
