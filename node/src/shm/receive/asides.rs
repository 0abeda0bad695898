//! Payloads that were set aside until their readers come for them.

use std::collections::BTreeMap;

/// A payload that was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// The first byte that its reader has not got yet.
    pub from: usize,
    /// The bytes from there.
    pub bytes: Vec<u8>,
    /// Pulses in which it came out of the ring, those included that its reader has seen.
    pub pulses: u32,
}

/// All of them, by ticket.
#[derive(Debug, Default)]
pub(super) struct Asides {
    payloads: BTreeMap<u64, Aside>,
    /// The sum of their bytes: it is asked for at every message, and there may be many of them.
    bytes: u64,
}

impl Asides {
    /// Bytes that lie aside.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn put(&mut self, ticket: u64, aside: Aside) {
        self.bytes += aside.bytes.len() as u64;
        let before = self.payloads.insert(ticket, aside);
        debug_assert!(before.is_none(), "a ticket names one payload");
    }

    /// Takes the payload with this ticket.
    pub(super) fn take(&mut self, ticket: u64) -> Option<Aside> {
        let aside = self.payloads.remove(&ticket)?;
        self.bytes -= aside.bytes.len() as u64;
        Some(aside)
    }

    /// Takes all of them, with their tickets.
    pub(super) fn take_all(&mut self) -> Vec<(u64, Aside)> {
        self.bytes = 0;
        std::mem::take(&mut self.payloads).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The oracle is a list, looked through and summed up each time.
        #[test]
        fn the_sum_is_that_of_what_lies_aside(steps in prop::collection::vec((0..8_u64, 0..100_usize), 0..60)) {
            let (mut asides, mut oracle) = (Asides::default(), Vec::<(u64, Aside)>::new());
            for (number, (back, len)) in (0_u64..).zip(steps) {
                let aside = Aside { from: len / 2, bytes: vec![1; len], pulses: 1 };
                asides.put(number, aside.clone());
                oracle.push((number, aside));
                let ticket = number.saturating_sub(back);
                let at = oracle.iter().position(|(of, _)| *of == ticket);
                let expected = at.map(|at| oracle.remove(at).1);
                prop_assert_eq!(asides.take(ticket), expected);
                prop_assert_eq!(asides.bytes(), oracle.iter().map(|(_, aside)| aside.bytes.len() as u64).sum::<u64>());
            }
            prop_assert_eq!((asides.take_all(), asides.bytes()), (oracle, 0));
        }
    }
}
