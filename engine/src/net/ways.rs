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
/// Nanoseconds after which a way that is not taken is tried again, with [`AGAIN`] stretches: at first, when what was
/// measured may have been the beginning of the channel, twice as long each time, and at most.
const STALE_NS: (u64, u64) = (125_000_000, 1_000_000_000);
pub(super) const AGAIN: u32 = 4;
/// Stretches in a row for which another way would be better, before a stream comes to rest for it.
const PRESSURE: u32 = 8;
/// Losses without anything that came through, after which a way is taken to lead nowhere, though signs of life that
/// went the first way are answered.
const LOSSES: u32 = 3;
/// Nanoseconds for which a way is left alone on which nothing came through.
const BARRED_NS: u64 = 10_000_000_000;
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
    /// How often the way was tried again.
    again: u32,
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
    /// Whether the way was changed for it: then it says how long a rest lasts, not what a stream by this way costs.
    first: bool,
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
    costs: [[Cost; SIZES]; WAYS],
    stretch: Option<Stretch>,
    /// Bytes acknowledged so far.
    acked: u64,
    pressure: u32,
    /// The size that would be better off by another way, while the channel comes to rest for it.
    rests_for: Option<usize>,
    trial: Option<Trial>,
    /// Losses on this way since anything came through.
    losses: u32,
    /// Ways on which nothing came through, until when.
    barred: [Instant; WAYS],
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
            costs: [[Cost::default(); SIZES]; WAYS],
            stretch: None,
            acked: 0,
            pressure: 0,
            rests_for: None,
            trial: None,
            losses: 0,
            barred: [Instant::default(); WAYS],
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
            self.left[usize::from(self.now.number)] = now;
            let tries = Trial { way: best.number.into(), size, left: STRETCHES };
            self.trial = (best.why == Why::Trial).then_some(tries);
        }
        if in_flight == 0 || best.number == self.now.number {
            self.pressure = 0;
            self.now = best;
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
        self.stretch = Some(Stretch { way, bytes, chosen: now, acked, rest, until: None, first: changes });
        Some(self.now)
    }

    /// The way that is taken, if there is no other, and the channel has what is known of it in hand.
    pub(super) fn only(&self) -> Option<Way> {
        (self.usable.is_power_of_two() && self.in_hand == self.now.number).then_some(self.now)
    }

    /// Gives a channel the round trip and the window of the way that is taken now, if it has those of another; a window
    /// for frames of `frame` bytes if that way was never taken.
    pub(super) fn hand_over(&mut self, rtt: &mut Rtt, window: &mut Window, frame: u32) {
        if self.in_hand != self.now.number {
            let next = self.aside[usize::from(self.now.number)].take();
            let (next_rtt, next_window) = next.unwrap_or_else(|| (Rtt::default(), Window::new(frame)));
            let before = (core::mem::replace(rtt, next_rtt), core::mem::replace(window, next_window));
            self.aside[usize::from(self.in_hand)] = Some(before);
            self.in_hand = self.now.number;
        }
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
        if !tried(here) {
            return way(here, Why::Trial);
        }
        let others = (0..WAYS).filter(|other| *other != here && self.is_open(*other, now));
        let doubted = others.clone().filter(|other| !tried(*other) || cost(*other).is_stale(now));
        // Not by number: two whose trials take longer than they are believed would keep the third out for ever.
        if let Some(next) = doubted.min_by_key(|other| self.left[*other]) {
            return way(next, Why::Trial);
        }
        let cheaper = |other: usize, best: usize| cost(other).ns * BETTER.1 < cost(best).ns * BETTER.0;
        way(others.fold(here, |best, other| if cheaper(other, best) { other } else { best }), Why::Cheapest)
    }

    /// So many bytes have been sent. `in_flight` are now, and `all` says whether nothing is left to be sent.
    pub(super) fn sent(&mut self, bytes: u64, in_flight: u64, all: bool) {
        let Some(stretch) = self.stretch.as_mut().filter(|stretch| stretch.until.is_none()) else { return };
        stretch.rest = stretch.rest.saturating_sub(bytes);
        stretch.until = (stretch.rest == 0 || all).then_some(self.acked + in_flight);
    }

    /// So many bytes, of so many frames, have been acknowledged at once; for `held` nanoseconds that did not travel.
    pub(super) fn acked(&mut self, now: Instant, (frames, bytes): (u32, u64), held: u64) {
        self.acked += bytes;
        let acked = self.acked;
        let Some(stretch) = self.stretch.take_if(|stretch| stretch.until.is_some_and(|until| acked >= until)) else {
            return;
        };
        let elapsed = now.saturating_since(stretch.chosen);
        // Of more than is judged, or acknowledged with more, it is the part of the time that so many bytes take.
        let ns = match stretch.bytes {
            ..FRAME if frames > 1 => None,
            ..FRAME => Some(elapsed.saturating_sub(held)),
            _ if stretch.first => None,
            bytes => Some(elapsed.saturating_mul(bytes) / (acked - stretch.acked)),
        };
        let (way, size) = (stretch.way, size_of(stretch.bytes));
        if let Some(ns) = ns {
            self.costs[way][size].learn(now, ns.max(1));
        }
        if let Some(trial) = self.trial.as_mut().filter(|trial| trial.way == way) {
            trial.left = trial.left.saturating_sub(1);
            let done = ns.is_some() && trial.size == size && self.costs[way][size].trials >= TRIALS;
            self.trial.take_if(|trial| done || trial.left == 0);
        }
    }

    /// Nothing comes through, again and again: the first way is taken, and this one left alone for some time.
    pub(super) fn fails(&mut self, now: Instant) {
        let here = usize::from(self.now.number);
        if here != 0 && self.usable & 1 != 0 {
            self.barred[here] = now.after(BARRED_NS);
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
        self.losses += u32::from(of_messages > 0);
        if self.losses >= LOSSES {
            self.fails(now);
        }
    }
}

/// Whether what was measured last at this time, and doubted so often before, is doubted again.
pub(super) fn is_stale(at: Instant, again: u32, now: Instant) -> bool {
    now.saturating_since(at) > (STALE_NS.0 << again.min(8)).min(STALE_NS.1)
}

impl Cost {
    /// Whether nothing was measured for so long that the way is tried again.
    fn is_stale(&self, now: Instant) -> bool {
        is_stale(self.at, self.again, now)
    }

    fn learn(&mut self, now: Instant, ns: u64) {
        if self.is_stale(now) && self.trials >= TRIALS {
            // What was known is of old. A few stretches show what is now, not as many as of a stranger.
            (self.ns, self.trials, self.again) = (0, TRIALS - AGAIN, self.again + 1);
        }
        // A machine that stood still shows nothing of the way.
        let ns = if self.ns == 0 { ns } else { ns.min(self.ns * 4) };
        let share = if self.trials >= TRIALS { 8 } else { 2 };
        self.ns = if self.ns == 0 { ns } else { self.ns - self.ns / share + ns / share };
        self.trials = (self.trials + 1).min(TRIALS);
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A world in which way `n` takes `costs[n]` ns for a byte and `starts[n]` for a batch.
    struct World {
        ways: Ways,
        now: u64,
    }

    impl World {
        fn new(usable: u8) -> Self {
            let mut ways = Ways::default();
            ways.set_usable(usable);
            Self { ways, now: 1_000_000_000 }
        }

        fn round(&mut self, bytes: u64, cost: impl Fn(u8) -> u64) -> Way {
            let at = Instant::from_nanos(self.now);
            let way = self.ways.choose(at, bytes, 0).unwrap();
            self.ways.sent(bytes, bytes, true);
            self.now += cost(way.number);
            self.ways.acked(Instant::from_nanos(self.now), (1, bytes), 0);
            way
        }
    }

    #[test]
    fn each_size_goes_the_way_that_is_cheapest_for_it() {
        let mut world = World::new(0b11);
        let cost = |bytes: u64| move |way: u8| if way == 0 { 4_000 + bytes / 8 } else { 1_500 + bytes };
        for _ in 0..100 {
            for bytes in [64, 65_000] {
                world.round(bytes, cost(bytes));
            }
        }
        for _ in 0..100 {
            assert_eq!(world.round(64, cost(64)), Way { number: 1, why: Why::Cheapest });
            assert_eq!(world.round(65_000, cost(65_000)), Way { number: 0, why: Why::Cheapest });
        }
    }

    #[test]
    fn every_way_is_tried_however_long_trials_take() {
        let mut world = World::new(0b111);
        assert!((0..60).any(|_| world.round(64, |_| 2 * STALE_NS.1).number == 2));
    }

    #[test]
    fn a_way_that_has_become_better_is_found() {
        let mut world = World::new(0b11);
        for _ in 0..50 {
            world.round(64, |way| if way == 0 { 2_000 } else { 9_000 });
        }
        assert_eq!(world.round(64, |_| 2_000).number, 0);
        world.now += 2 * STALE_NS.1;
        for _ in 0..100 {
            world.round(64, |way| if way == 0 { 2_000 } else { 500 });
        }
        assert_eq!(world.round(64, |_| 500), Way { number: 1, why: Why::Cheapest });
    }

    /// The first stretches of a channel, and the first after a change, cost more than those of a stream.
    #[test]
    fn what_the_beginning_has_cost_is_soon_forgotten() {
        let mut world = World::new(0b11);
        let begun = world.now;
        let mut by_first = 0;
        for round in 0..20_000 {
            let slow = if round < 2 * u64::from(TRIALS) { 10 } else { 1 };
            let before = world.ways.now().number;
            let way = world.ways.choose(Instant::from_nanos(world.now), 65_000, 0).unwrap();
            let changed = if way.number == before { 1 } else { 20 };
            world.ways.sent(65_000, 65_000, true);
            world.now += if way.number == 0 { 10_000 * slow * changed } else { 40_000 * changed };
            world.ways.acked(Instant::from_nanos(world.now), (1, 65_000), 0);
            by_first += u64::from(round >= 10_000 && way.number == 0);
        }
        assert!(by_first > 9_900, "{by_first} of 10,000, after {} us", (world.now - begun) / 1000);
    }

    #[test]
    fn trials_are_rare() {
        let mut world = World::new(0b111);
        let cost = |way: u8| 3_000 + 1_000 * u64::from(way);
        for _ in 0..100 {
            world.round(64, cost);
        }
        let tried = (0..1_000_000).filter(|_| world.round(64, cost).number != 0).count();
        // Three seconds of three microseconds each, two other ways, a few batches a second.
        assert!((8..60).contains(&tried), "{tried}");
    }

    #[test]
    fn frames_never_overtake_those_of_another_way() {
        let mut world = World::new(0b11);
        let at = Instant::from_nanos(world.now);
        for _ in 0..TRIALS {
            world.round(64, |_| 1_000);
        }
        // The other way is a stranger now: it is tried, but only when nothing is in flight.
        for _ in 0..PRESSURE {
            assert_eq!(world.ways.choose(at, 64, 50), Some(Way { number: 0, why: Why::InFlight }));
            world.ways.sent(64, 114, true);
            // As long as it is not acknowledged, everything goes with it.
            assert_eq!(world.ways.choose(at, 64, 114), Some(Way { number: 0, why: Why::InFlight }));
            world.ways.acked(at, (1, 114), 0);
        }
        assert_eq!(world.ways.choose(at, 64, 50), None);
        assert_eq!(world.ways.choose(at, 64, 0), Some(Way { number: 1, why: Why::Trial }));
    }

    #[test]
    fn sizes_that_take_turns_do_not_wait_for_each_other() {
        let mut world = World::new(0b11);
        let cost = |bytes: u64| move |way: u8| if way == 0 { 4_000 + bytes / 8 } else { 1_500 + bytes };
        for bytes in [64, 65_000].into_iter().cycle().take(200) {
            world.round(bytes, cost(bytes));
        }
        let at = Instant::from_nanos(world.now);
        for bytes in [64, 65_000].into_iter().cycle().take(1000) {
            assert!(world.ways.choose(at, bytes, 1).is_some());
        }
    }

    #[test]
    fn a_way_on_which_nothing_comes_through_is_left_alone() {
        let mut world = World::new(0b11);
        for _ in 0..50 {
            world.round(64, |way| if way == 0 { 9_000 } else { 1_000 });
        }
        assert_eq!(world.round(64, |_| 1_000).number, 1);
        world.ways.fails(Instant::from_nanos(world.now));
        for _ in 0..1000 {
            assert_eq!(world.round(64, |_| 9_000).number, 0);
        }
        world.now += 2 * BARRED_NS;
        assert!((0..50).any(|_| world.round(64, |_| 1_000).number == 1));
    }

    #[test]
    fn a_trial_that_measures_nothing_ends() {
        let mut world = World::new(0b11);
        for _ in 0..TRIALS {
            world.round(64, |_| 1_000);
        }
        // Whatever is acknowledged covers several frames, which shows nothing of so short a stretch.
        let mut taken = [0; 2];
        for _ in 0..STRETCHES {
            let at = Instant::from_nanos(world.now);
            taken[usize::from(world.ways.choose(at, 64, 0).unwrap().number)] += 1;
            world.ways.sent(64, 64, true);
            world.ways.acked(at, (2, 64), 0);
        }
        assert_eq!((taken, world.ways.trial.is_none()), ([0, STRETCHES], true));
    }

    #[test]
    fn a_trial_ends_with_its_way() {
        for gone in [Ways::fails as fn(&mut Ways, Instant), |ways: &mut Ways, _| ways.set_usable(0b01)] {
            let mut world = World::new(0b11);
            for _ in 0..=TRIALS {
                world.round(64, |_| 1_000);
            }
            assert_eq!((world.ways.now().number, world.ways.trial.is_some()), (1, true));
            gone(&mut world.ways, Instant::from_nanos(world.now));
            assert_eq!((world.ways.now().number, world.ways.trial.is_some()), (0, false));
        }
    }

    #[test]
    fn a_way_that_is_gone_is_not_taken() {
        let mut world = World::new(0b10);
        assert_eq!(world.round(64, |_| 1).number, 1);
        world.ways.set_usable(0b01);
        assert_eq!(world.round(64, |_| 1), Way { number: 0, why: Why::Only });
        world.ways.set_usable(0);
        assert_eq!(world.round(64, |_| 1).number, 0);
    }
}
