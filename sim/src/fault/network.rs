//! The wire between simulated endpoints: it loses, repeats, delays, changes, cuts and holds back frames.

use std::collections::BTreeMap;

use cutthrough_engine::net::ways::WAYS;

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
    /// By which way it was sent.
    pub(super) way: u8,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Path {
    /// Of each way: when the next frame can leave.
    free_at: [u64; WAYS],
    clogged: u64,
    cut: u64,
    /// Bytes of the longest frame that it carries, if that is less than at first.
    carries: Option<usize>,
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
    /// Of each endpoint and each way: until when it swallows all that is sent by it.
    swallows: Vec<[u64; WAYS]>,
}

impl Network {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            nodes,
            paths: vec![Path::default(); nodes * nodes],
            flying: BTreeMap::new(),
            number: 0,
            old: Vec::new(),
            swallows: vec![[0; WAYS]; nodes],
        }
    }

    pub(super) fn clog(&mut self, from: usize, to: usize, until: u64) {
        self.paths[from * self.nodes + to].clogged = until;
    }

    pub(super) fn cut(&mut self, from: usize, to: usize, until: u64) {
        self.paths[from * self.nodes + to].cut = until;
    }

    /// Longer frames than this do not come through any more; those of any length, if `None`.
    pub(super) fn narrow(&mut self, from: usize, to: usize, carries: Option<usize>) {
        self.paths[from * self.nodes + to].carries = carries;
    }

    /// Nothing comes out that an endpoint sends by this way, until then.
    pub(super) fn swallow(&mut self, from: usize, way: usize, until: u64) {
        self.swallows[from][way] = until;
    }

    /// Every path and every way is open from now on; whether paths that carry less stay so is another matter.
    pub(super) fn heal(&mut self, stays_narrow: bool) {
        for path in &mut self.paths {
            *path = Path { carries: path.carries.filter(|_| stays_narrow), ..Path::default() };
        }
        self.swallows.fill([0; WAYS]);
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
        let way = usize::from(frame.way);
        summary.frames += 1;
        summary.frames_by_way[way] += 1;
        if !options.sealed {
            summary.wraps.sent(options.begin, &frame.bytes);
        }
        if frame.to >= self.nodes {
            // An answer to a stranger who is not there.
            return;
        }
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
        if path.carries.is_some_and(|most| frame.bytes.len() > most) {
            summary.injected.too_long += 1;
            return;
        }
        if now < self.swallows[frame.from][way] {
            summary.injected.swallowed += 1;
            return;
        }
        if random.chance(options.loss) {
            summary.injected.lost += 1;
            return;
        }
        summary.injected.clogged += u64::from(now < path.clogged);
        path.free_at[way] = path.free_at[way].max(now).max(path.clogged) + FRAME_NS;
        let leaves = path.free_at[way];
        let way_ns = options.way_ns * options.ways.quarters[way] / 4;
        let copies = 1 + u64::from(random.chance(options.duplicates));
        summary.injected.repeated += copies - 1;
        for _ in 0..copies {
            let mut arrives = leaves + way_ns;
            let delay = match options.delay {
                Delay::Even => 0,
                // By whole batches as a rule, so that frames still come together.
                Delay::Spread(most) => super::random::mix(now) % (most + 1),
                Delay::Rare(most) if random.chance(20) => random.below(most + 1),
                Delay::Rare(_) => 0,
            };
            summary.injected.delayed += u64::from(delay > 0);
            arrives += delay;
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
