//! Nothing goes wrong any more: everything comes, and everything is where it was.

use std::time::Duration;

use cutthrough::simulated::Interrupts;
use cutthrough::{Counter, Landing};
use cutthrough_node::fuzz::Deed;

use super::peer::{Peer, State, host};
use super::{MEMORY, PAGE, Ran, World};

impl World {
    pub(super) fn rest(mut self) -> Ran {
        for deed in [Deed::Finish, Deed::Then, Deed::Return] {
            self.network.tell(host(0), 0, deed);
        }
        self.network.interrupt(Interrupts { refuses: self.refuses, ..Interrupts::default() });
        self.held.iter().for_each(Self::check);
        self.until("what was sent", |world| {
            world.make_room();
            let all = |peer: &Peer| peer.sent.is_empty() && (peer.back.is_empty() || peer.there().is_none());
            world.held.is_empty() && world.peers.iter().all(all)
        });
        for index in 0..2 {
            if self.peers[index].is_open() {
                self.has_all(index);
            }
        }
        self.counts()
    }

    /// All pages are there again.
    fn has_all(&mut self, index: usize) {
        let Some((here, there)) = self.peers[index].here.zip(self.peers[index].there()) else { return };
        for (token, state) in std::mem::take(&mut self.peers[index].tokens) {
            let revoked = self.victim.revoke(here, token);
            assert_eq!(revoked.is_ok(), matches!(state, State::Good(_)), "{state:?}: {revoked:?}");
        }
        let pages = MEMORY / PAGE;
        self.until("pages that were lent", |world| {
            let out = world.victim.recall(here).expect("it is open");
            let landing: Vec<_> =
                (0..=pages).map_while(|_| world.victim.grant(here, Landing::Pages(PAGE)).ok()).collect();
            landing.iter().for_each(|token| drop(world.victim.revoke(here, *token)));
            let pool: Vec<_> = (0..=pages).map_while(|_| world.victim.page(here, PAGE).ok()).collect();
            let theirs = &mut world.peers[index].endpoint;
            let lent: Vec<_> = (0..=pages).map_while(|_| theirs.page(there, PAGE).ok()).collect();
            out == 0 && [landing.len(), pool.len(), lent.len()] == [pages; 3]
        });
    }

    /// What there was is counted.
    fn counts(mut self) -> Ran {
        // Counters are written down now and then.
        let placed = self.bytes;
        self.until("what is counted", |world| {
            let _ = world.victim.wait(Some(Duration::from_millis(25)));
            world.victim.counter(Counter::PlacedBytes) >= placed
        });
        let count = |counter| self.victim.counter(counter);
        Ran {
            frames: self.network.frames(),
            placed: count(Counter::PlacedFrames),
            mended: count(Counter::MendedFrames),
            messages: self.messages,
            rings_lost: count(Counter::RingsLost),
        }
    }
}
