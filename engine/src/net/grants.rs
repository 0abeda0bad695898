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

    /// Up to where each of the wanting is granted now, of those that are not late. What is asked for of all that are
    /// not late is no more than `budget` bytes. `due` tells what is to come of a payload, and `round_ns` the round trip
    /// to an owner.
    pub fn choose(
        &mut self,
        now: Instant,
        wanting: &[(C, Wanting)],
        budget: u32,
        due: impl Fn(C, u64) -> Option<Due>,
        round_ns: impl Fn(C) -> u64,
    ) -> Vec<(C, u64, u32)> {
        let until = |owner| now.after(round_ns(owner).saturating_mul(PATIENCE.0).saturating_add(PATIENCE.1));
        let ends = &mut self.ends;
        ends.retain(|_, end| *end > now);
        let is_far = |owner| round_ns(owner) > FAR.0;
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
                missing = missing.saturating_add(due.missing);
                far = far.saturating_add(if is_far(owner) { due.missing } else { 0 });
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
        let (mut shared, of_far) = (budget, budget - budget / FAR.1);
        if far > of_far / 2 {
            // As long as those that are far away may be asked for no worthwhile step more, the others share the rest.
            able.to_mut().retain(|(owner, _)| !is_far(*owner));
            shared -= far.min(budget);
        }
        let free = (budget.saturating_sub(missing), of_far.saturating_sub(far));
        let far = |owner| is_far(owner).then_some(of_far);
        let chosen = choose(&able, shared, free, far, self.admitted);
        for &(owner, Wanting { message, have, .. }, upto) in &chosen {
            let asked = || Asked { goal: have + upto.saturating_sub(have).div_ceil(LEAST), until: until(owner) };
            self.asked.entry((owner, message)).or_insert_with(asked);
        }
        chosen.into_iter().map(|(owner, wanting, upto)| (owner, wanting.message, upto)).collect()
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
/// share is kept for it. An owner that is far away has no more than `far` says, and all of those together get no more
/// than `free_far` now.
fn choose<C: Copy>(
    wanting: &[(C, Wanting)],
    budget: u32,
    (mut free, mut free_far): (u32, u32),
    far: impl Fn(C) -> Option<u32>,
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
        let far = far(*owner);
        let share = if is_oldest { of_oldest } else { each };
        let share = share.min(far.unwrap_or(share));
        let most = wanting.most.min(wanting.have.saturating_add(share)).saturating_sub(wanting.granted);
        let more = most.min(free).min(far.map_or(most, |_| free_far));
        free -= more;
        free_far -= far.map_or(0, |_| more);
        let upto = wanting.granted + more;
        // As far as there is memory, or by a worthwhile step.
        let worth = more > 0 && (upto == wanting.most || more >= share / 2);
        worth.then_some((*owner, *wanting, upto))
    };
    chosen.into_iter().filter_map(grant).collect()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;

    use proptest::prelude::*;

    use super::*;

    /// What is granted, as [`super::choose`] has it.
    fn choose(wanting: &[(u8, Wanting)], budget: u32, admitted: usize) -> Vec<(u8, u64, u32)> {
        of_free(wanting, budget, budget, admitted)
    }

    /// The same, when only so much of the budget is free.
    fn of_free(wanting: &[(u8, Wanting)], budget: u32, free: u32, admitted: usize) -> Vec<(u8, u64, u32)> {
        let chosen = super::choose(wanting, budget, (free, 0), |_| None, admitted).into_iter();
        chosen.map(|(owner, wanting, upto)| (owner, wanting.message, upto)).collect()
    }

    const fn wanting(message: u64, have: u32, granted: u32, payload: u32) -> (u8, Wanting) {
        (
            0,
            Wanting {
                message,
                begun: Instant::from_nanos(message),
                have,
                granted,
                most: payload,
                payload,
                sought: false,
                read: false,
            },
        )
    }

    #[test]
    fn one_alone_gets_all() {
        assert_eq!(choose(&[wanting(1, 0, 10, 1000)], 600, 2), vec![(0, 1, 600)]);
        assert_eq!(choose(&[wanting(1, 500, 600, 1000)], 600, 2), vec![(0, 1, 1000)]);
    }

    #[test]
    fn small_grants_wait_unless_they_are_the_last() {
        assert_eq!(choose(&[wanting(1, 100, 600, 5000)], 600, 2), vec![]);
        assert_eq!(choose(&[wanting(1, 300, 600, 5000)], 600, 2), vec![(0, 1, 900)]);
        assert_eq!(choose(&[wanting(1, 100, 600, 650)], 600, 2), vec![(0, 1, 650)]);
    }

    #[test]
    fn the_shortest_and_the_oldest_share() {
        let waiting = [wanting(1, 0, 0, 9000), wanting(2, 0, 0, 8000), wanting(3, 0, 0, 500)];
        assert_eq!(choose(&waiting, 2000, 2), vec![(0, 1, 500), (0, 3, 500)]);
    }

    #[test]
    fn however_many_are_admitted_the_oldest_is_one_of_several() {
        let waiting = [wanting(1, 0, 0, 9000), wanting(2, 0, 0, 8000), wanting(3, 0, 0, 5000), wanting(4, 0, 0, 7000)];
        assert_eq!(choose(&waiting, 2000, 1), vec![(0, 3, 2000)]);
        assert_eq!(choose(&waiting, 2100, 3), vec![(0, 1, 525), (0, 3, 787), (0, 4, 787)]);
        assert_eq!(choose(&waiting, 2000, 9).len(), 4);
    }

    #[test]
    fn what_is_not_free_is_not_granted_and_the_oldest_comes_first() {
        let waiting = [wanting(1, 0, 0, 9000), wanting(2, 0, 0, 400), wanting(3, 0, 0, 600)];
        assert_eq!(of_free(&waiting, 2000, 2000, 2), vec![(0, 1, 500), (0, 2, 400)]);
        assert_eq!(of_free(&waiting, 2000, 800, 2), vec![(0, 1, 500)]);
        assert_eq!(of_free(&waiting, 2000, 300, 2), vec![(0, 1, 300)]);
        // It waits for a worthwhile step, and short ones do not take it from it.
        assert_eq!(of_free(&waiting, 2000, 240, 2), vec![]);
        assert_eq!(of_free(&waiting[1..], 2000, 1000, 2), vec![(0, 2, 400), (0, 3, 500)]);
    }

    /// Of many that are equally long, and ever more of them, the first would be left out for ever else: it has the
    /// fewest bytes left, too, and whoever has waited longest beside it would take all that is free.
    #[test]
    fn the_first_of_equals_is_never_left_out() {
        let waiting: Vec<(u8, Wanting)> = (1..9).map(|message| wanting(message, 0, 0, 400)).collect();
        assert_eq!(of_free(&waiting, 2000, 100, 2), vec![]);
        assert_eq!(of_free(&waiting, 2000, 400, 2), vec![(0, 1, 400)]);
        assert_eq!(of_free(&waiting, 2000, 800, 2), vec![(0, 1, 400), (0, 2, 400)]);
    }

    proptest! {
        /// Whatever there is: nobody is granted anything while the one that has waited longest is granted nothing.
        #[test]
        fn the_oldest_of_all_goes_first(
            payloads in prop::collection::vec((1_u64..100, 0_u32..900, 1_u32..900, any::<bool>()), 1..20),
            free in 0_u32..2000,
            admitted in 2_usize..5,
        ) {
            let waiting: Vec<(u8, Wanting)> = payloads
                .iter()
                .map(|&(begun, have, more, read)| {
                    let (owner, wanting) = wanting(begun, have, have, have + more);
                    (owner, Wanting { read, ..wanting })
                })
                .collect();
            let chosen = super::choose(&waiting, 2000, (free, 0), |_| None, admitted);
            let oldest = waiting.iter().map(|(_, wanting)| wanting.begun).min();
            prop_assert!(chosen.is_empty() || chosen.iter().any(|(_, wanting, _)| Some(wanting.begun) == oldest));
        }
    }

    #[test]
    fn whose_reader_waits_comes_before_shorter_ones() {
        let mut waiting = [wanting(1, 0, 0, 900), wanting(2, 0, 0, 800), wanting(3, 0, 0, 9000)];
        waiting[2].1.read = true;
        assert_eq!(choose(&waiting, 2000, 2), vec![(0, 1, 500), (0, 3, 1500)]);
        assert_eq!(choose(&waiting, 2000, 1), vec![(0, 3, 2000)]);
    }

    #[test]
    fn of_equals_the_one_that_has_waited_longer_is_asked_for() {
        let waiting = [wanting(7, 0, 0, 9000), wanting(5, 0, 0, 9000), wanting(4, 0, 0, 9000), wanting(6, 0, 0, 9000)];
        assert_eq!(choose(&waiting, 2000, 1), vec![(0, 4, 2000)]);
        assert_eq!(choose(&waiting, 2000, 2), vec![(0, 4, 1500), (0, 5, 500)]);
    }

    #[test]
    fn what_has_no_memory_gets_nothing_and_holds_up_nobody() {
        let none = (
            0,
            Wanting {
                message: 1,
                begun: Instant::default(),
                have: 0,
                granted: 10,
                most: 10,
                payload: 100,
                sought: false,
                read: false,
            },
        );
        assert_eq!(choose(&[none], 1000, 2), vec![]);
        let hardly = (
            0,
            Wanting {
                message: 2,
                begun: Instant::default(),
                have: 0,
                granted: 10,
                most: 15,
                payload: 100,
                sought: false,
                read: false,
            },
        );
        assert_eq!(choose(&[none, hardly, hardly, wanting(3, 0, 0, 9000)], 1000, 2), vec![(0, 3, 1000)]);
    }

    /// A payload, as the receiver has it.
    #[derive(Debug, Clone, Copy)]
    struct Payload {
        owner: u8,
        bytes: u32,
        have: u32,
        granted: u32,
        /// When it wants to be asked for, in ms.
        begins: u64,
    }

    const ROUND_NS: u64 = 5_000_000;
    const BUDGET: u32 = 2000;

    /// Payloads of several owners, numbered as they lie here, and who is asked for them.
    #[derive(Debug)]
    struct World {
        turns: Turns<u8>,
        payloads: Vec<Payload>,
    }

    impl World {
        fn new(payloads: &[(u8, u32)]) -> Self {
            let payload = |(owner, bytes)| Payload { owner, bytes, have: 0, granted: 0, begins: 0 };
            Self { turns: Turns::new(), payloads: payloads.iter().copied().map(payload).collect() }
        }

        /// Looks at this time, in ms, and asks: which payloads for more.
        fn look(&mut self, ms: u64) -> Vec<u64> {
            let wants = |of: &Payload| of.begins <= ms && of.granted < of.bytes;
            let wanting = (0..).zip(&self.payloads).filter(|(_, of)| wants(of)).map(|(message, of)| {
                let Payload { owner, bytes, have, granted, .. } = *of;
                let begun = Instant::from_nanos(of.begins * 1_000_000);
                (
                    owner,
                    Wanting { message, begun, have, granted, most: bytes, payload: bytes, sought: false, read: false },
                )
            });
            let wanting: Vec<(u8, Wanting)> = wanting.collect();
            let payloads = &self.payloads;
            let due = |owner, message: u64| {
                let of = payloads.get(usize::try_from(message).ok()?).filter(|of| of.owner == owner)?;
                (of.granted > of.have).then(|| Due { came: of.have, missing: of.granted - of.have })
            };
            let granted = self.turns.choose(Instant::from_nanos(ms * 1_000_000), &wanting, BUDGET, due, |_| ROUND_NS);
            for &(owner, message, upto) in &granted {
                let of = &mut self.payloads[usize::try_from(message).unwrap()];
                assert!(of.owner == owner && upto > of.granted && upto <= of.bytes, "{upto} of {of:?}");
                of.granted = upto;
            }
            granted.into_iter().map(|(_, message, _)| message).collect()
        }

        /// So many more bytes of a payload come, if it was asked for so many.
        fn comes(&mut self, message: usize, bytes: u32) {
            let of = &mut self.payloads[message];
            of.have = of.granted.min(of.have + bytes);
        }

        /// Bytes that were asked for and have not come, of these owners.
        fn missing(&self, owners: impl Fn(u8) -> bool) -> u32 {
            self.payloads.iter().filter(|of| owners(of.owner)).map(|of| of.granted - of.have).sum()
        }
    }

    #[test]
    fn who_sends_nothing_loses_its_turn_until_it_does() {
        let mut world = World::new(&[(0, 9000), (1, 9500), (2, 9900)]);
        world.payloads[2].begins = 43;
        assert_eq!(world.look(1), vec![0, 1]);
        assert_eq!((world.payloads[0].granted, world.payloads[1].granted), (1500, 500));
        assert_eq!(world.look(2), vec![]);
        assert_eq!(world.turns.next_end(Instant::from_nanos(2_000_000)), Some(Instant::from_nanos(41_000_000)));
        // One of them sends, the other does not, and what that owes is not counted any more.
        world.comes(1, 500);
        assert_eq!(world.look(40), vec![1]);
        assert_eq!(world.look(41), vec![1]);
        assert_eq!(world.payloads[1].granted, 2500);
        world.comes(1, 1000);
        assert_eq!(world.look(43), vec![2]);
        // It sends: what it owes counts again, and it has its turn when there is room for more.
        world.comes(0, 900);
        assert_eq!(world.look(60), vec![]);
        (0..3).for_each(|message| world.comes(message, 2000));
        assert_eq!(world.look(61), vec![1, 0]);
    }

    /// A sender may send its payloads one after the other: what waits behind another one holds that up as little.
    #[test]
    fn a_payload_behind_another_one_loses_its_turn_alone() {
        let mut world = World::new(&[(0, 9000), (0, 5000), (1, 9900)]);
        assert_eq!(world.look(0), vec![1, 0]);
        // The first one goes on; the second one has not begun, and its place is another's.
        world.comes(0, 900);
        assert_eq!(world.look(30), vec![0]);
        world.comes(0, 900);
        assert_eq!(world.look(60), vec![0, 2]);
    }

    /// Bytes now and then are not enough to keep a turn.
    #[test]
    fn who_sends_a_little_of_what_it_is_asked_for_loses_its_turn() {
        let mut world = World::new(&[(0, 9000), (1, 9000), (2, 3000)]);
        world.payloads[2].begins = 5;
        let mut done = None;
        for ms in 0..1000 {
            world.look(ms);
            (0..2).for_each(|message| world.comes(message, u32::from(ms % 10 == 0)));
            world.comes(2, 1000);
            if world.payloads[2].have == 3000 {
                done = done.or(Some(ms));
            }
        }
        assert!(done.is_some_and(|ms| ms < 50), "{done:?}");
    }

    #[test]
    fn who_was_granted_nothing_is_never_late() {
        let mut turns = Turns::new();
        // All that was granted has come; there is no memory for more.
        let full = Wanting {
            message: 1,
            begun: Instant::default(),
            have: 500,
            granted: 500,
            most: 500,
            payload: 1000,
            sought: false,
            read: false,
        };
        let mut look = |ms: u64, wanting: Wanting| {
            let now = Instant::from_nanos(ms * 1_000_000);
            let granted = turns.choose(now, &[(0, wanting)], BUDGET, |_, _| None, |_| ROUND_NS);
            (granted.len(), turns.next_end(now))
        };
        for ms in 0..100 {
            assert_eq!(look(ms, full), (0, None));
        }
        assert_eq!(look(100, Wanting { most: 1000, ..full }).0, 1);
    }

    /// The round trip is what the other side makes it.
    #[test]
    fn who_is_far_away_leaves_something_for_others() {
        let far = |owner: u8| if owner == 0 { 10 * FAR.0 } else { ROUND_NS };
        let mut turns = Turns::new();
        let mut look = |wanting: &[(u8, Wanting)], missing: u32| {
            let due = |owner, message| (owner == 0 && message == 1).then_some(Due { came: 0, missing });
            turns.choose(Instant::from_nanos(1), wanting, BUDGET, due, far)
        };
        let alone = wanting(1, 0, 0, 9000);
        assert_eq!(look(&[alone], 0), vec![(0, 1, 1500)]);
        let asked = wanting(1, 0, 1500, 9000);
        let (_, other) = wanting(2, 0, 0, 9000);
        assert_eq!(look(&[asked], 1500), vec![]);
        assert_eq!(look(&[asked, wanting(3, 0, 0, 100)], 1500), vec![], "nor another one of that owner");
        assert_eq!(look(&[asked, (1, other)], 1500), vec![(1, 2, 500)]);
        // It has its part again when what it was asked for comes.
        assert_eq!(look(&[wanting(1, 900, 1500, 9000)], 600), vec![(0, 1, 2400)]);
    }

    proptest! {
        /// Whatever comes when: no more is under way than the budget, and everything comes to its end. Of owners that
        /// send nothing at all it is counted once, and is not waited for.
        #[test]
        fn what_is_asked_for_is_within_the_budget(
            payloads in prop::collection::vec((0_u8..6, 1_u32..6000, 0_u64..200), 1..40),
            silent in 0_u8..3,
            admitted in 1_usize..5,
            come in prop::collection::vec((any::<prop::sample::Index>(), 1_u32..3000), 1..200),
        ) {
            let mut world = World::new(&payloads.iter().map(|of| (of.0, of.1)).collect::<Vec<_>>());
            world.payloads.iter_mut().zip(&payloads).for_each(|(of, payload)| of.begins = payload.2);
            world.turns.admitted = admitted;
            let sends = |owner: u8| owner >= silent;
            let mut come = come.iter().cycle();
            let mut ms = 0;
            while world.payloads.iter().any(|of| sends(of.owner) && of.have < of.bytes) {
                world.look(ms);
                let ours = world.missing(sends);
                prop_assert!(ours <= BUDGET, "{} bytes at {}", ours, ms);
                // Until somebody is late, all together.
                let all = world.missing(|_| true);
                prop_assert!(ms >= 40 || all <= BUDGET, "{} bytes at {}", all, ms);
                let (at, bytes) = come.next().unwrap();
                let at = at.index(world.payloads.len());
                // What is under way comes in its time, and that of one of them at once. What came more slowly than that
                // would be late, and not be counted.
                for message in 0..world.payloads.len() {
                    if sends(world.payloads[message].owner) {
                        world.comes(message, if message == at { (*bytes).max(100) } else { 100 });
                    }
                }
                ms += 1;
                prop_assert!(ms < 20_000, "{:?}", world);
            }
            // They take nothing along.
            (0..6).for_each(|owner| world.turns.forget(owner));
            prop_assert!(world.turns.asked.is_empty());
        }
    }
}
