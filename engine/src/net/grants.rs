//! Which payloads are asked for, and how much of them: few senders at a time get a large window.
//!
//! A receiver that lets everybody send gets everything at once and loses what does not fit. Here it asks: SSAM lends
//! the large window to one sender at a time (von Eicken et al., Hot Interconnects 1994), Speculative Defragmentation
//! admits one sender so that its guesses hold (HPDC 2000), and Homa grants the message with the fewest bytes left first
//! (SIGCOMM 2018). Two are admitted here: the one with the fewest bytes left, so that short ones are soon done, or one
//! whose reader waits, and the one that has waited longest, so that long ones are not put off for ever. One alone would
//! leave the way idle for a round trip whenever it ends.
//!
//! What was asked for is counted until it is here, of all payloads, those too of which nothing more is to be asked for:
//! together it has to fit into the memory that lies before this side. Whoever does not send what it is asked for would
//! hold its place, and what is counted for it, for as long as it lives. So a payload of which too little comes loses
//! its turn after a while, and its whole channel if too little comes of any other too: what they still owe does not
//! count. They have their turn again as soon as enough has come.
//!
//! How long that while is depends on the round trip, which the other side can make as long as it likes. So it has a
//! bound; and all that are far away, or seem to be, are never asked for the last part of what may be asked for.
//!
//! What is under way on a long way does not come all at once: senders spread it over a round trip. So only the part of
//! it counts that comes while nobody looks (10 ms), and a long way can be filled that holds much more than the
//! memory before this side.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::time::Instant;

/// Payloads that are asked for at a time.
pub const ADMITTED: usize = 2;

/// Round trips, and nanoseconds beside them, in which something has to come of what was asked for. A busy machine stops
/// its programs for some milliseconds, and one that computes has an attendant send for it after 10.
const PATIENCE: (u64, u64) = (4, 20_000_000);

/// Nanoseconds of a round trip above which an owner is far away, and one part in so many of all that may be asked for
/// that is for others alone.
const FAR: (u64, u32) = (50_000_000, 4);

/// Nanoseconds for which what has come may lie there before anybody looks: an application computes, and its attendant
/// takes over after so long. And to how many such times a round trip may be as long, at most.
const UNSEEN: (u64, u32) = (10_000_000, 16);

/// One part in so many of what was asked for has to come in that time.
const LEAST: u32 = 2;

/// One part in so many of all that may be asked for is for the payload that has waited longest, beside others.
const OLDEST: u32 = 4;

/// A payload of which more is wanted than was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanting {
    /// Number of the message.
    pub message: u64,
    /// When its first bytes came.
    pub begun: Instant,
    /// Up to where bytes have come.
    pub have: u32,
    /// Up to where they were granted.
    pub granted: u32,
    /// Up to where they may be granted: there is memory for so much.
    pub most: u32,
    /// Bytes of the payload.
    pub payload: u32,
    /// Whether somebody reads it from where it lies: there is no more memory before that goes on.
    pub sought: bool,
    /// Whether its reader waits for it.
    pub read: bool,
}

/// What is to come of a payload that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Bytes that have come.
    pub came: u32,
    /// Bytes that it was asked for and that have not come; there are some.
    pub missing: u32,
}

/// How far away an owner is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Distance {
    /// How long a round trip takes, in nanoseconds.
    pub round_ns: u64,
    /// The least that one has taken.
    pub least_ns: u64,
}

impl Distance {
    /// Whether what is asked for stays away for so long that others have to be left something.
    const fn is_far(self) -> bool {
        self.round_ns > FAR.0
    }

    /// Until when something has to come of what is asked for now.
    fn patience(self, now: Instant) -> Instant {
        now.after(self.round_ns.saturating_mul(PATIENCE.0).saturating_add(PATIENCE.1))
    }

    /// Of so many bytes that are under way one counts: those that come while nobody looks.
    pub(super) fn stretch(self) -> u32 {
        u32::try_from(self.least_ns / UNSEEN.0).unwrap_or(UNSEEN.1).clamp(1, UNSEEN.1)
    }
}

/// Whose turn it is, from look to look, and who has not sent yet what it was asked for.
#[derive(Debug)]
pub struct Turns<C> {
    /// Payloads that are asked for at a time.
    pub admitted: usize,
    /// Payloads of which bytes were asked for that are to come.
    asked: BTreeMap<(C, u64), Asked>,
    /// Until when an owner is not late, whatever it still owes.
    ends: BTreeMap<C, Instant>,
}

/// How many bytes of a payload have to have come by when.
#[derive(Debug)]
struct Asked {
    goal: u32,
    until: Instant,
}

impl<C: Copy + Ord> Turns<C> {
    /// Nobody has been asked yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { admitted: ADMITTED, asked: BTreeMap::new(), ends: BTreeMap::new() }
    }

    /// Up to where each of the wanting is granted now, of those that are not late. What counts of all that was asked
    /// for of those that are not late is no more than `budget` bytes. `due` tells what is to come of a payload, and
    /// `distance` how far away an owner is. Whoever is asked then is to be [remembered](Turns::asks).
    pub fn choose(
        &mut self,
        now: Instant,
        wanting: &[(C, Wanting)],
        budget: u32,
        due: impl Fn(C, u64) -> Option<Due>,
        distance: impl Fn(C) -> Distance,
    ) -> Vec<(C, Wanting, u32)> {
        let until = |owner| distance(owner).patience(now);
        let ends = &mut self.ends;
        ends.retain(|_, end| *end > now);
        let is_far = |owner| distance(owner).is_far();
        let (mut missing, mut far, mut all_in_time) = (0_u32, 0_u32, true);
        self.asked.retain(|&(owner, message), asked| {
            let Some(due) = due(owner, message) else {
                // All of it has come, or is not wanted any more.
                ends.insert(owner, until(owner));
                return false;
            };
            if due.came >= asked.goal {
                *asked = Asked { goal: due.came + due.missing.div_ceil(LEAST), until: until(owner) };
            }
            if asked.until > now {
                let counts = due.missing.div_ceil(distance(owner).stretch());
                missing = missing.saturating_add(counts);
                far = far.saturating_add(if is_far(owner) { counts } else { 0 });
                let end = ends.entry(owner).or_insert(asked.until);
                *end = asked.until.max(*end);
            } else {
                all_in_time = false;
            }
            true
        });
        let mut able = Cow::Borrowed(wanting);
        if !all_in_time {
            let late = |asked: &Asked| asked.until <= now;
            able.to_mut().retain(|&(owner, Wanting { message, .. })| {
                let is_late = self.asked.get(&(owner, message)).is_some_and(late);
                let of_owner = || self.asked.range((owner, 0)..=(owner, u64::MAX)).any(|(_, asked)| late(asked));
                !is_late && (self.ends.contains_key(&owner) || !of_owner())
            });
        }
        let of_far = budget - budget / FAR.1;
        let mut free = (budget.saturating_sub(missing), of_far.saturating_sub(far));
        let part = |owner| (distance(owner).stretch(), is_far(owner).then_some(of_far));
        if far > of_far / 2 {
            // There may be no worthwhile step more for those that are far away, however small what they leave to others
            // makes the steps of these: each kind has its own turns.
            let (away, near): (Vec<_>, Vec<_>) = able.iter().partition(|(owner, _)| is_far(*owner));
            let mut chosen = choose(&near, budget - far.min(budget), &mut free, part, self.admitted);
            chosen.extend(choose(&away, budget, &mut free, part, self.admitted));
            chosen
        } else {
            choose(&able, budget, &mut free, part, self.admitted)
        }
    }

    /// A payload of an owner so far away is asked for up to there now.
    pub fn asks(&mut self, now: Instant, owner: C, wanting: &Wanting, upto: u32, distance: Distance) {
        let &Wanting { message, have, .. } = wanting;
        let goal = have + upto.saturating_sub(have).div_ceil(LEAST);
        self.asked.entry((owner, message)).or_insert(Asked { goal, until: distance.patience(now) });
    }

    /// When somebody loses its turn next, if nothing comes from there.
    #[must_use]
    pub fn next_end(&self, now: Instant) -> Option<Instant> {
        self.asked.values().map(|asked| asked.until).filter(|until| *until > now).min()
    }

    /// Whose payloads were asked for.
    pub fn owners(&self) -> impl Iterator<Item = C> + '_ {
        self.asked.keys().map(|(owner, _)| *owner).chain(self.ends.keys().copied())
    }

    /// Nothing comes from this owner any more.
    pub fn forget(&mut self, owner: C) {
        self.asked.retain(|(of, _), _| *of != owner);
        self.ends.remove(&owner);
    }
}

impl<C: Copy + Ord> Default for Turns<C> {
    fn default() -> Self {
        Self::new()
    }
}

/// Those of the wanting that are asked for more now, and up to where. At most `admitted` of them share the `budget`:
/// the one that has waited longest, which has a part of it, and those whose readers wait, or with the fewest bytes
/// left, which share the rest; one alone has all of it. Only `free` bytes of it may be granted now, to the one first
/// that has waited longest of them, which may be one of the others, too; what one of them does not take yet of its
/// share is kept for it. Of so many bytes one counts as `part` says of an owner; one that is far away has no more of
/// those that count than it says, too, and all of these together get no more than `free_far` now.
fn choose<C: Copy>(
    wanting: &[(C, Wanting)],
    budget: u32,
    (free, free_far): &mut (u32, u32),
    part: impl Fn(C) -> (u32, Option<u32>),
    admitted: usize,
) -> Vec<(C, Wanting, u32)> {
    let left = |wanting: &Wanting| wanting.payload - wanting.have.min(wanting.payload);
    // Those for which there is hardly any memory would hold a place among the admitted without using it.
    let worth = |wanting: &Wanting| {
        let more = wanting.most.saturating_sub(wanting.granted);
        more > 0 && (wanting.most == wanting.payload || wanting.sought || more >= budget / 8)
    };
    let able = || wanting.iter().filter(|(_, wanting)| worth(wanting));
    let mut chosen: Vec<(&(C, Wanting), bool)> = Vec::with_capacity(admitted);
    while chosen.len() < admitted {
        let others = able().filter(|other| !chosen.iter().any(|(one, _)| core::ptr::eq(*one, *other)));
        let oldest = !chosen.is_empty() && chosen.len() + 1 == admitted;
        let rank = |(_, wanting): &&(C, Wanting)| match oldest {
            true => (false, 0, wanting.begun),
            false => (!wanting.read, left(wanting), wanting.begun),
        };
        let Some(next) = others.min_by_key(rank) else { break };
        chosen.push((next, oldest));
    }
    let of_oldest = if chosen.iter().any(|(_, oldest)| *oldest) { budget / OLDEST } else { 0 };
    let others = chosen.iter().filter(|(_, oldest)| !*oldest).count();
    let each = (budget - of_oldest) / u32::try_from(others.max(1)).unwrap_or(u32::MAX);
    // Others may come all the time: they would leave nothing to the one that has waited longest.
    chosen.sort_by_key(|((_, wanting), _)| wanting.begun);
    let grant = |((owner, wanting), is_oldest): (&(C, Wanting), bool)| {
        let (stretch, far) = part(*owner);
        let share = if is_oldest { of_oldest } else { each };
        let share = share.min(far.unwrap_or(share));
        let ahead = share.saturating_mul(stretch);
        let most = wanting.most.min(wanting.have.saturating_add(ahead)).saturating_sub(wanting.granted);
        let free_here = far.map_or(*free, |_| *free_far.min(free));
        let more = most.min(free_here.saturating_mul(stretch));
        let counts = more.div_ceil(stretch);
        *free -= counts;
        *free_far -= far.map_or(0, |_| counts);
        let upto = wanting.granted + more;
        // As far as there is memory, or by a worthwhile step.
        let worth = more > 0 && (upto == wanting.most || more >= share / 2);
        worth.then_some((*owner, *wanting, upto))
    };
    chosen.into_iter().filter_map(grant).collect()
}

#[cfg(test)]
mod tests;
