//! Payloads that were set aside until their readers come for them.

use std::collections::BTreeMap;

/// A payload that was set aside: its ticket, the first byte that its reader has not got yet, the bytes from there.
pub type Aside = (u64, usize, Vec<u8>);

/// All of them, by ticket.
#[derive(Debug, Default)]
pub(super) struct Asides {
    payloads: BTreeMap<u64, (usize, Vec<u8>)>,
    /// The sum of their bytes: it is asked for at every message, and there may be many of them.
    bytes: u64,
}

impl Asides {
    /// Bytes that lie aside.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn put(&mut self, ticket: u64, from: usize, bytes: Vec<u8>) {
        self.bytes += bytes.len() as u64;
        let before = self.payloads.insert(ticket, (from, bytes));
        debug_assert!(before.is_none(), "a ticket names one payload");
    }

    /// Takes the payload with this ticket.
    pub(super) fn take(&mut self, ticket: u64) -> Option<(usize, Vec<u8>)> {
        let (from, bytes) = self.payloads.remove(&ticket)?;
        self.bytes -= bytes.len() as u64;
        Some((from, bytes))
    }

    /// Takes all of them.
    pub(super) fn take_all(&mut self) -> Vec<Aside> {
        self.bytes = 0;
        std::mem::take(&mut self.payloads).into_iter().map(|(ticket, (from, bytes))| (ticket, from, bytes)).collect()
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
            let (mut asides, mut oracle) = (Asides::default(), Vec::<Aside>::new());
            for (number, (back, len)) in (0_u64..).zip(steps) {
                asides.put(number, len / 2, vec![1; len]);
                oracle.push((number, len / 2, vec![1; len]));
                let ticket = number.saturating_sub(back);
                let at = oracle.iter().position(|aside| aside.0 == ticket);
                let expected = at.map(|at| oracle.remove(at)).map(|(_, from, bytes)| (from, bytes));
                prop_assert_eq!(asides.take(ticket), expected);
                prop_assert_eq!(asides.bytes(), oracle.iter().map(|aside| aside.2.len() as u64).sum::<u64>());
            }
            prop_assert_eq!((asides.take_all(), asides.bytes()), (oracle, 0));
        }
    }
}
