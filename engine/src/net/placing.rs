//! Whether headers are cut off payloads that come by a ring, or the payloads are copied.
//!
//! A ring whose frames are cut at the interface has payloads land where they belong, without a copy by the receiver.
//! That is not always the cheaper way: the interface's program has to be aimed at each payload, and where the kernel
//! copies every frame anyway, a second copy finds it in the cache. So nothing is assumed, as for the
//! [`ways`](super::ways) of frames. How long it takes from the first frame until payloads are in place is measured, for
//! each byte, for both placements, and for each length of frames by itself.
//!
//! It begins with copies. The cut is tried with a few payloads, and what was cheaper is kept. The other placement is
//! tried again after a while, which doubles, and is short again when the verdict has changed; and never before many
//! payloads have come without a trial. How many stretches the first trial has, and what is better, is as for ways.

use super::ways::{BETTER, TRIALS, Why, is_stale};
use crate::receipt::Placement;
use crate::time::Instant;

/// Least bytes of a payload that is measured: those of the smallest page. Shorter ones are copied sooner than aimed at.
pub const LONG: u32 = 4 << 10;
/// Nanoseconds after which the other placement is tried again, with [`AGAIN`] payloads: at first, twice as long each
/// time, and at most.
const STALE_NS: (u64, u64) = (125_000_000, 1_000_000_000);
const AGAIN: u32 = 4;
/// Lengths of frames that are told apart: each twice the one before, from 512 bytes on.
const LENGTHS: usize = 6;
/// Payloads after which a trial ends, for each stretch that it is for, though it has not measured all of them.
const LASTS: u32 = 2;
/// Payloads between two trials, for each that the last one took.
const APART: u32 = 16;

/// Whether headers can be cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Means {
    /// No: all is copied.
    #[default]
    None,
    /// Once a ring has been opened that does it. Until then all is copied.
    Later,
    /// Yes, and what is cheaper shall be found.
    Here,
    /// Yes, and it shall always be done.
    Always,
}

/// How payloads are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Choice {
    /// [`Placement::Copy`] or [`Placement::HeaderCut`].
    pub placement: Placement,
    /// Why.
    pub why: Why,
    /// For which length of frames, and how often the choice had changed before; whether what it costs is measured.
    length: u8,
    number: u32,
    measured: bool,
}

impl Default for Choice {
    fn default() -> Self {
        Self { placement: Placement::Copy, why: Why::Only, length: 0, number: 0, measured: false }
    }
}

impl Choice {
    /// Whether [`Placing::landed`] has any use for what came by it.
    pub(super) const fn is_measured(&self) -> bool {
        self.measured
    }

    /// The same, of a payload that shows nothing, because it has waited for memory.
    pub(super) const fn unmeasured(self) -> Self {
        Self { measured: false, ..self }
    }
}

/// What one placement costs for one length of frames.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    /// Picoseconds for a byte, smoothed over so many stretches.
    ps: u64,
    over: u32,
    /// Stretches measured since it was last judged.
    trials: u32,
    /// When it was last measured, or tried in vain, and how often it was tried again.
    at: Instant,
    again: u32,
}

/// What is taken is being tried.
#[derive(Debug, Clone, Copy)]
struct Trial {
    /// Stretches to be measured.
    left: u32,
    /// Payloads that it may last, and that have come.
    most: u32,
    came: u32,
}

/// What is known of one length of frames.
#[derive(Debug, Clone, Copy, Default)]
struct Length {
    /// Whether the cut is taken, and whether it was when the last verdict was given.
    cuts: bool,
    cut: bool,
    trial: Option<Trial>,
    /// Payloads that have to come before the next trial.
    apart: u32,
    /// Of copies, and of the cut.
    costs: [Cost; 2],
}

/// Payloads that have come since the last look.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    choice: Choice,
    payloads: u32,
    /// Bytes of those that are long.
    bytes: u64,
    begun: Instant,
}

/// How the payloads of one endpoint are placed.
#[derive(Debug, Clone, Default)]
pub struct Placing {
    means: Means,
    /// The way of frames that is measured.
    way: u8,
    now: Choice,
    /// Whether payloads have come since it was chosen.
    over: bool,
    lengths: [Length; LENGTHS],
    stretch: Option<Stretch>,
    judged: Instant,
}

/// Which of the lengths `frame` bytes are.
fn length_of(frame: u32) -> usize {
    let doublings = (frame.max(512) >> 9).ilog2() as usize;
    doublings.min(LENGTHS - 1)
}

impl Placing {
    /// Of payloads whose last frame comes by this way, by these means.
    #[must_use]
    pub fn new(means: Means, way: u8) -> Self {
        let mut placing = Self { way, ..Self::default() };
        placing.set_means(means);
        placing
    }

    /// Says whether headers can be cut off from now on. What the cut has cost before is forgotten where it cannot be
    /// done any more.
    pub fn set_means(&mut self, means: Means) {
        self.means = means;
        if means != Means::Here {
            for length in &mut self.lengths {
                *length = Length { costs: [length.costs[0], Cost::default()], ..Length::default() };
            }
        }
        let placement = if means == Means::Always { Placement::HeaderCut } else { Placement::Copy };
        let why = if self.measures() { Why::Trial } else { Why::Only };
        let (length, number, measured) = (self.now.length, self.now.number.wrapping_add(1), self.measures());
        self.now = Choice { placement, why, length, number, measured };
        (self.stretch, self.over) = (None, true);
    }

    /// See [`Placing::set_means`].
    #[must_use]
    pub const fn means(&self) -> Means {
        self.means
    }

    const fn measures(&self) -> bool {
        matches!(self.means, Means::Later | Means::Here)
    }

    /// Whether it is known what copies cost, so that a ring shall be opened that cuts headers off.
    #[must_use]
    pub fn wants_ring(&self) -> bool {
        self.means == Means::Later && self.lengths.iter().any(|length| length.costs[0].is_tried())
    }

    /// How payloads are placed that come now.
    #[must_use]
    pub const fn now(&self) -> Choice {
        self.now
    }

    /// Whether payloads have come since it was chosen, so that [`Placing::choose`] may choose anew.
    #[must_use]
    pub const fn is_due(&self) -> bool {
        self.measures() && self.over
    }

    /// How the next payload is placed, in frames of `frame` bytes. It changes only after a payload has come.
    pub fn choose(&mut self, now: Instant, frame: u32) -> Choice {
        if !self.measures() || !core::mem::take(&mut self.over) {
            return self.now;
        }
        let at = length_of(frame);
        let length = &mut self.lengths[at];
        let (cuts, why) = match self.means {
            Means::Here => length.choose(now),
            _ => (false, Why::Trial),
        };
        let placement = if cuts { Placement::HeaderCut } else { Placement::Copy };
        let length = u8::try_from(at).unwrap_or(0);
        let same = (self.now.placement, self.now.length) == (placement, length);
        let number = if same { self.now.number } else { self.now.number.wrapping_add(1) };
        self.now = Choice { placement, why, length, number, measured: true };
        self.now
    }

    /// A payload of `bytes` bytes lies where it belongs. Its first frame came at `begun`, when this was the choice; its
    /// last one by `way`.
    pub fn landed(&mut self, (choice, way): (Choice, u8), bytes: u32, begun: Instant) {
        if !self.measures() || way != self.way {
            return;
        }
        self.over = true;
        let long = if bytes >= LONG { u64::from(bytes) } else { 0 };
        let before = self.stretch.take().filter(|before| before.choice.length == choice.length);
        let payloads = before.map_or(1, |before| before.payloads + 1);
        self.stretch = Some(match before.filter(|before| before.choice.number == choice.number) {
            Some(before) => Stretch { payloads, bytes: before.bytes + long, begun: before.begun.min(begun), choice },
            None => Stretch { payloads, bytes: long, begun, choice },
        });
    }

    /// Whether there is something to be judged.
    #[inline]
    #[must_use]
    pub const fn has_landed(&self) -> bool {
        self.stretch.is_some()
    }

    /// All that has landed so far was in place at `now`: learns what that has cost.
    pub fn judge(&mut self, now: Instant) {
        let Some(Stretch { choice, payloads, bytes, begun }) = self.stretch.take() else { return };
        // What came behind others has waited for them.
        let ns = now.saturating_since(begun.max(self.judged));
        self.judged = now;
        let length = &mut self.lengths[usize::from(choice.length)];
        let cuts = choice.placement == Placement::HeaderCut;
        // What began by one placement and ended by another shows nothing of either.
        let measured = bytes > 0 && choice.number == self.now.number;
        if measured {
            length.costs[usize::from(cuts)].learn(now, (ns.saturating_mul(1000) / bytes).max(1));
        }
        length.came(now, payloads, measured);
    }
}

impl Length {
    /// What is taken, and why.
    fn choose(&mut self, now: Instant) -> (bool, Why) {
        let (here, other) = (&self.costs[usize::from(self.cuts)], &self.costs[usize::from(!self.cuts)]);
        if self.trial.is_some() || !here.is_tried() {
            return (self.cuts, Why::Trial);
        }
        if self.apart == 0 && (other.is_unknown() || other.is_stale(now)) {
            let left = if other.is_tried() { AGAIN } else { TRIALS };
            self.cuts = !self.cuts;
            self.trial = Some(Trial { left, most: LASTS * left, came: 0 });
            return (self.cuts, Why::Trial);
        }
        if other.is_tried() && other.ps.saturating_mul(BETTER.1) < here.ps.saturating_mul(BETTER.0) {
            self.cuts = !self.cuts;
        }
        if self.cuts != self.cut {
            // Chance may have said that. What was the cheapest until now is tried again soon.
            self.costs[usize::from(self.cut)].again = 0;
            self.cut = self.cuts;
        }
        (self.cuts, Why::Cheapest)
    }

    /// So many payloads have come, and show what was taken costs, or not.
    fn came(&mut self, now: Instant, payloads: u32, measured: bool) {
        let Some(trial) = &mut self.trial else {
            self.apart = self.apart.saturating_sub(payloads);
            return;
        };
        trial.came += payloads;
        trial.left -= u32::from(measured);
        let (done, over) = (trial.left == 0, trial.came >= trial.most);
        if !done && !over {
            return;
        }
        self.apart = trial.came.saturating_mul(APART);
        self.trial = None;
        if !done {
            // It has measured too little. So it is as before, and tried another time.
            let cost = &mut self.costs[usize::from(self.cuts)];
            *cost = Cost { at: now, again: cost.again + 1, ..Cost::default() };
            self.cuts = !self.cuts;
        }
    }
}

impl Cost {
    const fn is_tried(&self) -> bool {
        self.trials >= TRIALS
    }

    /// Whether it was never tried, not even in vain.
    const fn is_unknown(&self) -> bool {
        self.trials == 0 && self.again == 0
    }

    /// Whether nothing was measured for so long that it is tried again.
    fn is_stale(&self, now: Instant) -> bool {
        is_stale((self.at, now), self.again, STALE_NS)
    }

    fn learn(&mut self, now: Instant, ps: u64) {
        if self.is_tried() && self.is_stale(now) {
            // What was known is of old.
            *self = Self { trials: TRIALS - AGAIN, again: self.again + 1, ..Self::default() };
        }
        // A machine that stood still shows nothing of the placement. What is much less than before says that it did.
        let ps = if self.over == 0 { ps } else { ps.min(self.ps.saturating_mul(2)) };
        self.ps = self.ps.min(ps.saturating_mul(2));
        self.over = (self.over + 1).min(TRIALS);
        let share = u64::from(self.over);
        self.ps = self.ps - self.ps / share + ps / share;
        self.trials = (self.trials + 1).min(TRIALS);
        self.at = now;
    }
}
