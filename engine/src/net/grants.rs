//! Which payloads are asked for, and how much of them: few senders at a time get a large window.
//!
//! A receiver that lets everybody send gets everything at once and loses what does not fit. Here it asks: SSAM lends
//! the large window to one sender at a time (von Eicken et al., Hot Interconnects 1994), Speculative Defragmentation
//! admits one sender so that its guesses hold (HPDC 2000), and Homa grants the message with the fewest bytes left first
//! (SIGCOMM 2018). Two are admitted here: the one with the fewest bytes left, so that short ones are soon done, and the
//! one that has waited longest, so that long ones are not put off for ever. One alone would leave the way idle for a
//! round trip whenever it ends.
//!
//! Whoever sends nothing of what it is asked for would hold its place among them for as long as it lives. So a payload
//! of which nothing comes loses its turn after a while, and its whole channel if nothing comes of any other either;
//! both have it again as soon as something does.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::time::Instant;

/// Payloads that are asked for at a time.
pub const ADMITTED: usize = 2;

/// Round trips, and nanoseconds beside them, in which something has to come of what was asked for. A busy machine stops
/// its programs for some milliseconds, and one that computes has an attendant send for it after 10.
const PATIENCE: (u64, u64) = (4, 20_000_000);

/// A payload of which more is wanted than was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanting {
    /// Number of the message.
    pub message: u64,
    /// Up to where bytes have come.
    pub have: u32,
    /// Up to where they were granted.
    pub granted: u32,
    /// Up to where they may be granted: there is memory for so much.
    pub most: u32,
    /// Bytes of the payload.
    pub payload: u32,
}

/// Whose turn it is, from look to look.
#[derive(Debug)]
pub struct Turns<C> {
    /// Payloads that are asked for at a time.
    pub admitted: usize,
    /// Payloads that were asked for, and of which bytes are to come that were granted.
    asked: BTreeMap<(C, u64), Asked>,
}

/// How far a payload had come, and by when more of it has to come.
#[derive(Debug)]
struct Asked {
    have: u32,
    until: Instant,
}

impl<C: Copy + Ord> Turns<C> {
    /// Nobody has been asked yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { admitted: ADMITTED, asked: BTreeMap::new() }
    }

    /// Up to where each of the wanting is granted now, as `choose` has it, of those that have sent something of what
    /// they were asked for within their time. `round_ns` tells the round trip to an owner.
    pub fn choose(
        &mut self,
        now: Instant,
        wanting: &[(C, Wanting)],
        budget: u32,
        round_ns: impl Fn(C) -> u64,
    ) -> Vec<(C, u64, u32)> {
        let until = |owner| now.after(round_ns(owner).saturating_mul(PATIENCE.0).saturating_add(PATIENCE.1));
        let before = core::mem::take(&mut self.asked);
        let mut ends: BTreeMap<C, Instant> = BTreeMap::new();
        for &(owner, Wanting { message, have, granted, .. }) in wanting {
            let Some(asked) = before.get(&(owner, message)).filter(|_| granted > have) else { continue };
            let until = if asked.have == have { asked.until } else { until(owner) };
            let end = ends.entry(owner).or_insert(until);
            *end = until.max(*end);
            self.asked.insert((owner, message), Asked { have, until });
        }
        let mut able = Cow::Borrowed(wanting);
        if self.asked.values().any(|asked| asked.until <= now) {
            let is_late = |until: Option<&Instant>| until.is_some_and(|until| *until <= now);
            able.to_mut().retain(|(owner, wanting)| {
                let asked = self.asked.get(&(*owner, wanting.message)).map(|asked| &asked.until);
                !is_late(asked) && !is_late(ends.get(owner))
            });
        }
        let chosen = choose(&able, budget, self.admitted);
        for &(owner, wanting, upto) in &chosen {
            if upto.unwrap_or(wanting.granted) > wanting.have {
                let asked = || Asked { have: wanting.have, until: until(owner) };
                self.asked.entry((owner, wanting.message)).or_insert_with(asked);
            }
        }
        chosen.iter().filter_map(|(owner, wanting, upto)| Some((*owner, wanting.message, (*upto)?))).collect()
    }

    /// When somebody loses its turn next, if nothing comes from there.
    #[must_use]
    pub fn next_end(&self, now: Instant) -> Option<Instant> {
        self.asked.values().map(|asked| asked.until).filter(|until| *until > now).min()
    }

    /// Nobody waits for anything.
    pub fn clear(&mut self) {
        self.asked.clear();
    }
}

impl<C: Copy + Ord> Default for Turns<C> {
    fn default() -> Self {
        Self::new()
    }
}

/// Those of the wanting that are asked for now, and up to where each is granted, if that is more than before. They are
/// in the order in which they have begun to wait. `budget` is how many granted bytes may be on their way at a time, of
/// at most `admitted` payloads: those with the fewest bytes left, and the one that has waited longest, if there is more
/// than one.
fn choose<C: Copy>(wanting: &[(C, Wanting)], budget: u32, admitted: usize) -> Vec<(C, Wanting, Option<u32>)> {
    let left = |wanting: &Wanting| wanting.payload - wanting.have.min(wanting.payload);
    // Those for which there is hardly any memory would hold a place among the admitted without using it.
    let worth = |wanting: &Wanting| {
        let more = wanting.most.saturating_sub(wanting.granted);
        more > 0 && (wanting.most == wanting.payload || more >= budget / 8)
    };
    let able = || wanting.iter().filter(|(_, wanting)| worth(wanting));
    let mut chosen: Vec<&(C, Wanting)> = Vec::with_capacity(admitted);
    while chosen.len() < admitted {
        let mut others = able().filter(|other| !chosen.iter().any(|one| core::ptr::eq(*one, *other)));
        let oldest = !chosen.is_empty() && chosen.len() + 1 == admitted;
        let next = if oldest { others.next() } else { others.min_by_key(|(_, wanting)| left(wanting)) };
        let Some(next) = next else { break };
        chosen.push(next);
    }
    let admitted = chosen;
    let share = budget / u32::try_from(admitted.len().max(1)).unwrap_or(1);
    let grant = |(owner, wanting): &&(C, Wanting)| {
        let upto = wanting.most.min(wanting.have.saturating_add(share));
        let more = upto.saturating_sub(wanting.granted);
        // As far as there is memory, or by a worthwhile step.
        let worth = more > 0 && (upto == wanting.most || more >= share / 2);
        (*owner, *wanting, worth.then_some(upto))
    };
    admitted.iter().map(grant).collect()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;

    use super::*;

    /// What is granted, as [`super::choose`] has it.
    fn choose(wanting: &[(u8, Wanting)], budget: u32, admitted: usize) -> Vec<(u8, u64, u32)> {
        let chosen = super::choose(wanting, budget, admitted).into_iter();
        chosen.filter_map(|(owner, wanting, upto)| Some((owner, wanting.message, upto?))).collect()
    }

    const fn wanting(message: u64, have: u32, granted: u32, payload: u32) -> (u8, Wanting) {
        (0, Wanting { message, have, granted, most: payload, payload })
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
        assert_eq!(choose(&waiting, 2000, 2), vec![(0, 3, 500), (0, 1, 1000)]);
    }

    #[test]
    fn however_many_are_admitted_the_oldest_is_one_of_several() {
        let waiting = [wanting(1, 0, 0, 9000), wanting(2, 0, 0, 8000), wanting(3, 0, 0, 5000), wanting(4, 0, 0, 7000)];
        assert_eq!(choose(&waiting, 2000, 1), vec![(0, 3, 2000)]);
        assert_eq!(choose(&waiting, 2100, 3), vec![(0, 3, 700), (0, 4, 700), (0, 1, 700)]);
        assert_eq!(choose(&waiting, 2000, 9).len(), 4);
    }

    #[test]
    fn what_has_no_memory_gets_nothing_and_holds_up_nobody() {
        let none = (0, Wanting { message: 1, have: 0, granted: 10, most: 10, payload: 100 });
        assert_eq!(choose(&[none], 1000, 2), vec![]);
        let hardly = (0, Wanting { message: 2, have: 0, granted: 10, most: 15, payload: 100 });
        assert_eq!(choose(&[none, hardly, hardly, wanting(3, 0, 0, 9000)], 1000, 2), vec![(0, 3, 1000)]);
    }

    /// Looks at what is wanted at this time, in ms; each is another's, with a round trip of 5 ms.
    fn look(turns: &mut Turns<u8>, ms: u64, wanting: &[Wanting]) -> Vec<u64> {
        let wanting: Vec<(u8, Wanting)> = (0..).zip(wanting.iter().copied()).collect();
        let granted = turns.choose(Instant::from_nanos(ms * 1_000_000), &wanting, 2000, |_| 5_000_000);
        granted.into_iter().map(|(_, message, _)| message).collect()
    }

    #[test]
    fn who_sends_nothing_loses_its_turn_until_it_does() {
        let mut turns = Turns::new();
        let at = |have, granted| wanting(1, have, granted, 9000).1;
        let other = wanting(2, 0, 0, 9500).1;
        let third = wanting(3, 0, 0, 9900).1;
        assert_eq!(look(&mut turns, 1, &[at(0, 0), other, third]), vec![1, 2]);
        let other = Wanting { granted: 1000, ..other };
        assert_eq!(look(&mut turns, 2, &[at(0, 1000), other, third]), vec![]);
        assert_eq!(turns.next_end(Instant::from_nanos(2_000_000)), Some(Instant::from_nanos(41_000_000)));
        // One of them sends, the other does not.
        let other = Wanting { have: 100, ..other };
        assert_eq!(look(&mut turns, 40, &[at(0, 1000), other, third]), vec![]);
        assert_eq!(look(&mut turns, 41, &[at(0, 1000), other, third]), vec![3]);
        let third = Wanting { granted: 1000, ..third };
        // It sends: it has fewest bytes left again.
        assert_eq!(look(&mut turns, 60, &[at(900, 1000), Wanting { have: 200, ..other }, third]), vec![1]);
    }

    /// A sender may send its payloads one after the other: what waits behind another one holds that up as little.
    #[test]
    fn a_payload_behind_another_one_loses_its_turn_alone() {
        let mut turns = Turns::new();
        let mut look = |ms: u64, wanting: &[(u8, Wanting)]| {
            let granted = turns.choose(Instant::from_nanos(ms * 1_000_000), wanting, 2000, |_| 5_000_000);
            granted.into_iter().map(|(_, message, _)| message).collect::<Vec<_>>()
        };
        let of_other = (1, wanting(9, 0, 0, 9900).1);
        assert_eq!(look(0, &[wanting(1, 0, 0, 9000), wanting(2, 0, 0, 5000), of_other]), vec![2, 1]);
        // The first one goes on; the second one has not begun, and its place is another's.
        assert_eq!(look(30, &[wanting(1, 900, 1000, 9000), wanting(2, 0, 1000, 5000), of_other]), vec![1]);
        assert_eq!(look(60, &[wanting(1, 1800, 1900, 9000), wanting(2, 0, 1000, 5000), of_other]), vec![1, 9]);
    }

    #[test]
    fn who_was_granted_nothing_is_never_late() {
        let mut turns = Turns::new();
        // All that was granted has come; there is no memory for more.
        let full = Wanting { message: 1, have: 500, granted: 500, most: 500, payload: 1000 };
        for ms in 0..100 {
            assert_eq!(look(&mut turns, ms, &[full]), vec![]);
            assert_eq!(turns.next_end(Instant::from_nanos(ms * 1_000_000)), None);
        }
        assert_eq!(look(&mut turns, 100, &[Wanting { most: 1000, ..full }]), vec![1]);
    }
}
