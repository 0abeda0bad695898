//! What a seed decides of ways beside the socket: who has rings, how long frames take by them, what else comes there.
//!
//! Drawn apart from everything else, so that a world in which nobody has a ring is what it would be without all this.

use std::fmt;

use cutthrough_engine::net::ways::WAYS;

use super::random::Random;

/// How pages are placed by a ring whose buffers are parts of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placement {
    /// Fragments of a page.
    pub(super) parts: u32,
    /// Whether headers are cut off, and fragments come in order; otherwise the last one is expected first.
    pub(super) cut: bool,
    /// Whether only announced fragments are taken; otherwise all that come while a page is expected.
    pub(super) strict: bool,
    /// Pages that are expected at a time.
    pub(super) window: usize,
}

/// The ways of a world. Chances are in per mille.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ways {
    /// The ways of each endpoint, a bit for each; the first one is the socket, which everybody can receive by.
    pub(super) of: Vec<u8>,
    /// Nanoseconds that a frame takes by each way, in parts of what it takes by the socket: so many quarters.
    pub(super) quarters: [u64; WAYS],
    /// Frames that each queue of a ring holds, and how many queues a ring has.
    pub(super) slots: usize,
    pub(super) queues: usize,
    /// Frames that go to another queue than their neighbours.
    pub(super) spread: u64,
    /// Frames of one send at most.
    pub(super) room: usize,
    /// Foreign frames, of those that come by rings.
    pub(super) strays: u64,
    pub(super) placement: Option<Placement>,
    /// Whether a register cuts headers off instead; and into how many places the kernel writes a full frame then.
    pub(super) register: Option<u32>,
    /// Troubles of their own, by weight: see `Trouble`.
    pub(super) weights: [u64; 3],
    /// Ways that never come back, where there is another one, when everything else does.
    pub(super) stays_away: u64,
}

impl Ways {
    pub(super) fn draw(nodes: usize, random: &mut Random) -> Self {
        let rings = random.chance(650);
        let kinds = [0b001, 0b011, 0b011, 0b101, 0b111, 0b111, 0b111, 0b010, 0b100];
        let of = (0..nodes).map(|_| if rings { random.pick(&kinds) } else { 1 }).collect();
        let placement = random.chance(700).then(|| Placement {
            parts: u32::try_from(random.between(1, 4)).unwrap_or(1),
            cut: random.chance(600),
            strict: random.chance(600),
            window: random.pick(&[1, 2, 3]),
        });
        let weights = core::array::from_fn(|_| if rings && random.chance(500) { random.below(10) } else { 0 });
        Self {
            of,
            quarters: core::array::from_fn(|way| if way == 0 { 4 } else { random.pick(&[1, 2, 4, 5, 16]) }),
            slots: random.pick(&[2, 8, 32, 256, 1024]),
            queues: random.pick(&[1, 1, 2, 3]),
            spread: random.pick(&[0, 50, 500]),
            room: random.pick(&[1, 4, 32, 512]),
            strays: random.pick(&[0, 10, 100, 300]),
            placement,
            weights,
            stays_away: random.pick(&[0, 200, 600]),
            // Drawn last: without it the others are what they were.
            register: random.chance(500).then(|| random.pick(&[1, 1, 3])),
        }
    }

    /// A world in which everybody has the socket alone.
    pub(super) fn alone(&mut self) {
        self.of.fill(1);
        self.weights.fill(0);
    }

    /// How long payloads have to be, at least now and then, so that there are pages to be placed.
    pub(super) fn longest(&self) -> u64 {
        let places = self.placement.is_some() && self.of.iter().any(|ways| ways >> 2 == 1);
        if places { 20_000 } else { 0 }
    }

    /// Whether an endpoint has any ring.
    pub(super) fn has_rings(&self, index: usize) -> bool {
        self.of[index] > 1
    }
}

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.of.iter().all(|ways| *ways == 1) {
            return write!(f, "ways 1");
        }
        write!(
            f,
            "ways {:?} quarters {:?} slots {} queues {} spread {} room {} strays {} placement {:?} weights {:?} \
             stays_away {} register {:?}",
            self.of,
            self.quarters,
            self.slots,
            self.queues,
            self.spread,
            self.room,
            self.strays,
            self.placement,
            self.weights,
            self.stays_away,
            self.register,
        )
    }
}
