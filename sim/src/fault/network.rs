//! The wire between simulated endpoints: it loses, repeats, delays, changes, cuts and holds back frames.

use std::collections::BTreeMap;

use super::Summary;
use super::options::{Delay, Options};
use super::random::Random;

/// Nanoseconds that a frame takes the beginning of a path.
const FRAME_NS: u64 = 100;
/// Frames that are kept to be repeated later.
const KEPT: usize = 48;

/// A frame at its end of a path.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Path {
    free_at: u64,
    clogged: u64,
    cut: u64,
}

/// All paths.
#[derive(Debug)]
pub(super) struct Network {
    nodes: usize,
    paths: Vec<Path>,
    /// What is on its way: when it arrives, and a number that tells frames of one moment apart.
    flying: BTreeMap<(u64, u64), Frame>,
    number: u64,
    old: Vec<Frame>,
}

impl Network {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes, paths: vec![Path::default(); nodes * nodes], flying: BTreeMap::new(), number: 0, old: Vec::new() }
    }

    pub(super) fn clog(&mut self, from: usize, to: usize, until: u64) {
        self.paths[from * self.nodes + to].clogged = until;
    }

    pub(super) fn cut(&mut self, from: usize, to: usize, until: u64) {
        self.paths[from * self.nodes + to].cut = until;
    }

    /// Every path is open from now on.
    pub(super) fn heal(&mut self) {
        self.paths.fill(Path::default());
    }

    /// Lets a frame leave.
    pub(super) fn send(
        &mut self,
        now: u64,
        frame: &Frame,
        options: &Options,
        random: &mut Random,
        summary: &mut Summary,
    ) {
        summary.frames += 1;
        if random.below(16) == 0 {
            if self.old.len() < KEPT {
                self.old.push(frame.clone());
            } else {
                let at = random.index(KEPT);
                self.old[at] = frame.clone();
            }
        }
        let path = &mut self.paths[frame.from * self.nodes + frame.to];
        if now < path.cut {
            summary.injected.cut_off += 1;
            return;
        }
        if random.chance(options.loss) {
            summary.injected.lost += 1;
            return;
        }
        path.free_at = path.free_at.max(now).max(path.clogged) + FRAME_NS;
        let leaves = path.free_at;
        let copies = 1 + u64::from(random.chance(options.duplicates));
        summary.injected.repeated += copies - 1;
        for _ in 0..copies {
            let mut arrives = leaves + options.way_ns;
            arrives += match options.delay {
                Delay::Even => 0,
                // By whole batches as a rule, so that frames still come together.
                Delay::Spread(most) => super::random::mix(now) % (most + 1),
                Delay::Rare(most) if random.chance(20) => random.below(most + 1),
                Delay::Rare(_) => 0,
            };
            if random.chance(options.reorder) {
                summary.injected.reordered += 1;
                arrives += random.below(options.way_ns * 4 + 1000);
            }
            let mut frame = frame.clone();
            if random.chance(options.corrupt) {
                summary.injected.corrupted += 1;
                let at = random.index(frame.bytes.len());
                frame.bytes[at] ^= 1 << random.below(8);
            }
            if random.chance(options.truncate) {
                summary.injected.truncated += 1;
                frame.bytes.truncate(random.index(frame.bytes.len()));
            }
            self.put(arrives, frame);
        }
    }

    /// A frame that arrives then, whatever happens.
    pub(super) fn put(&mut self, arrives: u64, frame: Frame) {
        self.number += 1;
        self.flying.insert((arrives, self.number), frame);
    }

    /// A frame that has been seen before.
    pub(super) fn old(&self, random: &mut Random) -> Option<Frame> {
        (!self.old.is_empty()).then(|| self.old[random.index(self.old.len())].clone())
    }

    /// When the next frame arrives.
    pub(super) fn next(&self) -> Option<u64> {
        self.flying.first_key_value().map(|(key, _)| key.0)
    }

    /// The next frame that has arrived.
    pub(super) fn take(&mut self, now: u64) -> Option<Frame> {
        self.flying
            .first_entry()
            .filter(|entry| entry.key().0 <= now)
            .map(std::collections::btree_map::OccupiedEntry::remove)
    }
}
