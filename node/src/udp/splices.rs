//! Trains that the kernel sends from where they lie, to the peer that a socket is joined to: their memory, whether the
//! kernel does so, and whether that is worth it. Where copies are cheap, naming pages to the kernel costs more.

use std::sync::{Arc, Weak};

use cutthrough_engine::contest::Contest;
use cutthrough_engine::rivals::Rival;
use rustix::io::Errno;

use crate::sys::spliced::Spliced;

/// How often in a row the kernel may refuse to send a train from where it lies before it is not asked any more.
const REFUSALS: u32 = 4;
/// A kernel that never does is never asked.
const NEVER: u32 = u32::MAX;
/// Memories at a time: of this peer's trains, and of one's before whose trains have not all arrived.
const HELD: usize = 2;

/// What became of a train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has gone.
    Went,
    /// There is no room for it now.
    Full(Errno),
    /// A part of it is held back, and must not become the beginning of something else.
    InPart,
    /// It may go in another way.
    Not,
}

#[derive(Debug)]
pub(super) struct Splices {
    /// Memory for trains to this peer.
    memory: Option<Arc<Spliced>>,
    /// Such memory that trains may still hold.
    held: Vec<Weak<Spliced>>,
    /// How often in a row the kernel has said that it does not send such trains.
    refusals: u32,
    /// What trains cost that are sent so (the first way), and such that the kernel copies.
    contest: Contest,
}

impl Default for Splices {
    fn default() -> Self {
        let refusals = if Spliced::is_possible() { 0 } else { NEVER };
        Self { memory: None, held: Vec::new(), refusals, contest: Contest::new(Spliced::TRAINS) }
    }
}

impl Splices {
    /// From now on it is another peer: what has gone to one is never overwritten with what goes to another one. And the
    /// way there may be one by which the kernel sends such trains.
    pub(super) fn begin(&mut self) {
        self.memory = None;
        self.contest.again();
        if self.refusals < NEVER {
            self.refusals = 0;
        }
    }

    /// Whether the kernel may be asked to send a train.
    pub(super) const fn is_worth_it(&self) -> bool {
        self.refusals < REFUSALS
    }

    /// Whether trains are to be laid out for that now: it costs less, or is to be tried.
    pub(super) fn pays(&self) -> bool {
        self.contest.now() == Rival::First
    }

    /// A train was sent from where it lay, or was copied by the kernel, and cost its sender so many picoseconds a byte.
    pub(super) fn took(&mut self, spliced: bool, cost: u64) {
        self.contest.took(if spliced { Rival::First } else { Rival::Second }, cost);
    }

    /// Whether that is being found out: trains do not cost now what they will.
    pub(super) const fn is_undecided(&self) -> bool {
        self.is_worth_it() && self.contest.is_open()
    }

    /// Whether there is no memory yet for trains to this peer.
    pub(super) const fn has_no_memory(&self) -> bool {
        self.memory.is_none()
    }

    /// Memory for trains; none if trains to peers before hold theirs.
    pub(super) fn memory(&mut self) -> Option<&Arc<Spliced>> {
        if self.memory.is_none() && self.is_worth_it() {
            self.held.retain(|held| held.strong_count() > 0);
            if self.held.len() >= HELD {
                return None;
            }
            // Without it all goes as it did.
            self.memory = Spliced::new().map_err(|_| self.refusals = NEVER).ok();
            self.held.extend(self.memory.as_ref().map(Arc::downgrade));
        }
        self.memory.as_ref()
    }

    /// What became of a train of `len` bytes, by what the kernel has said.
    pub(super) fn learn(&mut self, len: usize, said: Result<usize, Errno>) -> Fate {
        match said {
            Ok(sent) if sent == len => {
                self.refusals = 0;
                Fate::Went
            }
            Ok(_) => {
                self.refusals += 1;
                Fate::InPart
            }
            Err(full @ (Errno::AGAIN | Errno::NOBUFS)) => Fate::Full(full),
            Err(why) => {
                // Anything else is about the way, or about a datagram that went before.
                let refuses = [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS, Errno::IO].contains(&why);
                self.refusals += u32::from(refuses);
                Fate::Not
            }
        }
    }

    /// How many trains hold memory.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.taken())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_asked_no_more_once_it_has_refused_and_again_for_another_peer() {
        let mut splices = Splices { refusals: 0, ..Splices::default() };
        for _ in 0..10 {
            for way in [Errno::CONNREFUSED, Errno::NETUNREACH, Errno::HOSTUNREACH, Errno::NETDOWN, Errno::PERM] {
                assert_eq!(splices.learn(10, Err(way)), Fate::Not);
            }
            assert_eq!(splices.learn(10, Err(Errno::AGAIN)), Fate::Full(Errno::AGAIN));
        }
        assert!(splices.is_worth_it(), "the way was down, and a peer had gone");
        for _ in 1..REFUSALS {
            assert_eq!(splices.learn(10, Err(Errno::INVAL)), Fate::Not);
        }
        assert_eq!((splices.learn(10, Ok(10)), splices.refusals), (Fate::Went, 0));
        (0..REFUSALS).for_each(|_| assert_eq!(splices.learn(10, Ok(7)), Fate::InPart));
        assert!(!splices.is_worth_it() && splices.memory().is_none());
        splices.begin();
        assert!(splices.is_worth_it());
        splices.refusals = NEVER;
        splices.begin();
        assert!(!splices.is_worth_it(), "this kernel never does");
    }

    /// A peer that never acknowledges what it has got keeps the memory of that, and no more with every turn.
    #[test]
    fn memory_of_one_peer_before_is_held_and_no_more() {
        let mut splices = Splices { refusals: 0, ..Splices::default() };
        let berth = |splices: &mut Splices| splices.memory()?.berth();
        let held = berth(&mut splices).expect("memory");
        splices.begin();
        let other = berth(&mut splices).expect("memory beside it");
        splices.begin();
        assert!(berth(&mut splices).is_none(), "two are held");
        drop(other);
        for _ in 0..10 {
            assert!(berth(&mut splices).is_some(), "one is");
            splices.begin();
        }
        drop(held);
        assert_eq!(splices.held.iter().filter(|held| held.strong_count() > 0).count(), 0);
    }
}
