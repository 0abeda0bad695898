//! One sender at a time: what makes guesses come true.
//!
//! Two streams that arrive at once interleave, and every guess fails. Speculative Defragmentation (HPDC 2000) lets the
//! receiver's driver admit one fast stream at a time, and suggests a register in the adapter that knows this stream
//! and gives it descriptors of its own. Both are here: who is admitted, and which descriptors a frame is for.

use alloc::collections::VecDeque;

/// Whose turn it is to send pages to this receiver. The others wait in the order in which they asked.
#[derive(Debug, Clone, Default)]
pub struct Admission {
    admitted: Option<u64>,
    waiting: VecDeque<u64>,
}

impl Admission {
    /// Nobody sends, nobody waits.
    #[must_use]
    pub const fn new() -> Self {
        Self { admitted: None, waiting: VecDeque::new() }
    }

    /// The stream that may send.
    #[must_use]
    pub const fn admitted(&self) -> Option<u64> {
        self.admitted
    }

    /// `stream` asks to send; returns whether it may at once. Otherwise it waits; asking again changes nothing, so
    /// memory grows with the number of streams only.
    pub fn ask(&mut self, stream: u64) -> bool {
        match self.admitted {
            None => self.admitted = Some(stream),
            Some(admitted) if admitted != stream && !self.waiting.contains(&stream) => self.waiting.push_back(stream),
            Some(_) => {}
        }
        self.admitted == Some(stream)
    }

    /// `stream` has sent what it asked for, or is gone: it is neither admitted nor waits any more. Returns the stream
    /// that is admitted in its place, which has to be told.
    pub fn done(&mut self, stream: u64) -> Option<u64> {
        self.waiting.retain(|&waiting| waiting != stream);
        if self.admitted != Some(stream) {
            return None;
        }
        self.admitted = self.waiting.pop_front();
        self.admitted
    }
}

/// Which chain of descriptors a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chain {
    /// The one whose payload descriptors point into pages.
    Guessed,
    /// The one whose descriptors point to ordinary buffers.
    Ordinary,
}

/// The matching register of an adapter with two chains of descriptors. It holds one stream; only frames of that stream
/// meet guessed descriptors, so that no other frame can spoil a guess. While it holds none, none do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Register {
    /// The stream that it holds.
    pub stream: Option<u64>,
}

impl Register {
    /// The chain for a frame of `stream`; `None` is a frame that belongs to no stream of pages.
    #[must_use]
    pub fn chain(self, stream: Option<u64>) -> Chain {
        if stream.is_some() && stream == self.stream { Chain::Guessed } else { Chain::Ordinary }
    }
}

#[cfg(test)]
mod tests {
    use super::{Admission, Chain, Register};

    #[test]
    fn streams_are_admitted_one_at_a_time_in_the_order_of_asking() {
        let mut admission = Admission::new();
        assert!(admission.ask(7) && admission.ask(7));
        assert!(!admission.ask(8) && !admission.ask(9) && !admission.ask(8));
        assert_eq!(admission.done(9), None, "it waited, and does not any more");
        assert_eq!((admission.done(7), admission.admitted()), (Some(8), Some(8)));
        assert_eq!(admission.done(7), None, "it is not admitted any more");
        assert_eq!((admission.done(8), admission.admitted()), (None, None));
    }

    #[test]
    fn a_register_knows_one_stream() {
        let register = Register { stream: Some(3) };
        assert_eq!(register.chain(Some(3)), Chain::Guessed);
        assert_eq!((register.chain(Some(4)), register.chain(None)), (Chain::Ordinary, Chain::Ordinary));
        assert_eq!(Register::default().chain(None), Chain::Ordinary);
    }
}
