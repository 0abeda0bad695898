//! Which payloads are asked for, and how much of them: few senders at a time get a large window.
//!
//! A receiver that lets everybody send gets everything at once and loses what does not fit. Here it asks: SSAM lends
//! the large window to one sender at a time (von Eicken et al., Hot Interconnects 1994), Speculative Defragmentation
//! admits one sender so that its guesses hold (HPDC 2000), and Homa grants the message with the fewest bytes left first
//! (SIGCOMM 2018). Two are admitted here: the one with the fewest bytes left, so that short ones are soon done, and the
//! one that has waited longest, so that long ones are not put off for ever. One alone would leave the way idle for a
//! round trip whenever it ends.

use alloc::vec::Vec;

/// Payloads that are asked for at a time.
pub const ADMITTED: usize = 2;

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

/// Up to where each of the wanting is granted now; those that get nothing are left out. They are in the order in which
/// they have begun to wait. `budget` is how many granted bytes may be on their way at a time, of at most `admitted`
/// payloads: those with the fewest bytes left, and the one that has waited longest, if there is more than one.
#[must_use]
pub fn choose<C: Copy>(wanting: &[(C, Wanting)], budget: u32, admitted: usize) -> Vec<(C, u64, u32)> {
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
        (more > 0 && (upto == wanting.most || more >= share / 2)).then_some((*owner, wanting.message, upto))
    };
    admitted.iter().filter_map(grant).collect()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;

    use super::*;

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
}
