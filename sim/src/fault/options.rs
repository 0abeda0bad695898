//! What a seed decides before anything happens: how large the world is, and what goes wrong in it.

use std::fmt;
use std::num::NonZeroU64;

use cutthrough_engine::pulse::Policy;
use cutthrough_seal::EPOCH;
use cutthrough_wire::frame::HEADER_BYTES;

use super::With;
use super::calls::Habits;
use super::liar::Liars;
use super::random::{Random, mix};
use super::ways::Ways;

/// What the draws of ways begin with, so that they are others than those of the rest.
const WAYS: u64 = 0x77_6179_7300;
/// The same for those of active messages.
const CALLS: u64 = 0x6361_6c6c_7300;

/// The same for paths that carry less.
const WIDTHS: u64 = 0x7769_6474_6873;
/// The same for what comes aside.
const RELIEF: u64 = 0x7265_6c69_6566;
/// The same for what divides batches.
const PULSES: u64 = 0x7075_6c73_6500;
/// The same for keys.
const LOCKS: u64 = 0x6c6f_636b_7300;
/// The same for what calls are named by.
const NAMES: u64 = 0x6e61_6d65_7300;
/// The same for frames that are guessed.
const GUESSES: u64 = 0x6775_6573_7300;
/// The same for who lies.
const LIARS: u64 = 0x6c69_6172_7300;
/// Channels for each of those besides.
const LIARS_CHANNELS: usize = 12;
/// Nanoseconds for which a channel that is closed may make no progress, beside twice the silence.
const DEADLINE_NS: u64 = 10_000_000_000;

/// How long frames take, beside what the path itself takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delay {
    /// All the same.
    Even,
    /// Anything up to so many nanoseconds.
    Spread(u64),
    /// Mostly nothing, now and then up to so many nanoseconds.
    Rare(u64),
}

/// What frames are sealed with, where they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Locks {
    /// Each of two endpoints has a key pair of its own; else all share one key.
    pub(super) pairs: bool,
    /// Which endpoints would rather not have AES-GCM, a bit for each.
    pub(super) chacha: u64,
}

/// The options of one seed. Chances are in per mille: of frames, or of the faults that happen at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) nodes: usize,
    pub(super) sealed: bool,
    pub(super) locks: Locks,
    /// First numbers of frames, messages and unasked bytes.
    pub(super) begin: u64,
    pub(super) loss: u64,
    pub(super) duplicates: u64,
    pub(super) reorder: u64,
    pub(super) corrupt: u64,
    pub(super) truncate: u64,
    pub(super) way_ns: u64,
    pub(super) delay: Delay,
    /// Faults at a time, in each millisecond of virtual time.
    pub(super) faults: u64,
    /// Their kinds, by weight: see `Trouble`.
    pub(super) weights: [u64; 9],
    pub(super) calm_ns: u64,
    pub(super) queue: usize,
    pub(super) body: u16,
    pub(super) slots: u64,
    pub(super) unasked: u64,
    pub(super) granted: u32,
    pub(super) silence_ns: u64,
    pub(super) deadline_ns: u64,
    pub(super) channels: usize,
    pub(super) page: usize,
    pub(super) messages: u64,
    pub(super) longest: u64,
    /// Payload bytes that a user may keep before new places have to wait.
    pub(super) kept: usize,
    pub(super) guesses: bool,
    /// How what finds the way free is divided into batches.
    pub(super) policy: Policy,
    pub(super) calls: Habits,
    pub(super) ways: Ways,
    /// Paths that carry less from then on, by weight as other faults.
    pub(super) narrow: u64,
    /// Whether they stay as they are when nothing else goes wrong any more.
    pub(super) stays_narrow: bool,
    /// Frames of a forger who hears nothing, by weight as other faults.
    pub(super) blind: u64,
    /// Whether troubles come while users talk.
    pub(super) busy: bool,
    /// How often, in per mille of its looks, an endpoint lets payloads come aside that nobody reads.
    pub(super) relief: u64,
    /// Endpoints beyond the others, that hold the key and lie.
    pub(super) liars: Liars,
}

impl Options {
    /// The options of a seed; without something those of the same world in which nobody has it.
    pub(super) fn draw(seed: u64, with: With, random: &mut Random) -> Self {
        let nodes = match random.below(200) {
            0 => random.between(17, 64),
            1..=5 => random.between(6, 16),
            6..=50 => random.between(3, 5),
            _ => 2,
        };
        let sealed = random.chance(333);
        let begin = if !sealed && random.chance(250) { (1 << 32) - random.below(200) } else { 0 };
        let mut keys = Random::new(mix(seed ^ LOCKS));
        let locks = if sealed && with.locks { locks(nodes, &mut keys) } else { Locks::default() };
        // The next epoch begins soon after.
        let at_border = sealed && with.locks && keys.chance(250);
        let begin = if at_border { EPOCH - keys.below(200) } else { begin };
        let rate = |random: &mut Random, most: u64| if random.chance(400) { 0 } else { random.below(most + 1) };
        let way_ns = random.pick(&[2_000, 10_000, 30_000, 200_000, 2_000_000]);
        let far = way_ns * random.between(1, 8);
        let silence_ns = random.pick(&[200_000_000, 500_000_000, 1_000_000_000, 4_000_000_000]);
        let calm_ns = random.pick(&[5_000_000, 20_000_000, 100_000_000, silence_ns, silence_ns * 3]);
        let mut weights = [0; 9];
        weights.iter_mut().for_each(|weight| *weight = if random.chance(500) { random.below(10) } else { 0 });
        // About twenty at most.
        let faults = if random.chance(300) { 0 } else { random.below(20) };
        let mut ways = Ways::draw(usize::try_from(nodes).unwrap_or(2), &mut Random::new(mix(seed ^ WAYS)));
        if !with.rings {
            ways.alone();
        }
        let mut calls = Habits::draw(usize::try_from(nodes).unwrap_or(2), &mut Random::new(mix(seed ^ CALLS)));
        if !with.calls {
            calls.nobody();
        }
        if with.names {
            calls.begin(&mut Random::new(mix(seed ^ NAMES)));
        }
        let mut widths = Random::new(mix(seed ^ WIDTHS));
        let liars = if with.liars { Liars::draw(&mut Random::new(mix(seed ^ LIARS))) } else { Liars::default() };
        // Who has a key of its own lies with that of another: it would not be let in.
        let locks = Locks { pairs: locks.pairs && liars.count == 0, ..locks };
        Self {
            nodes: usize::try_from(nodes).unwrap_or(2),
            sealed,
            locks,
            begin,
            loss: rate(random, 300),
            duplicates: rate(random, 200),
            reorder: rate(random, 300),
            corrupt: rate(random, 50),
            truncate: rate(random, 20),
            way_ns,
            delay: match random.below(3) {
                0 => Delay::Even,
                1 => Delay::Spread(far),
                _ => Delay::Rare(far * 10),
            },
            faults,
            weights,
            calm_ns,
            queue: usize::try_from(random.pick(&[4, 16, 64, 256, 4096])).unwrap_or(4),
            body: u16::try_from(random.pick(&[1136, 1388, 1408, 4000, 8900])).unwrap_or(1136),
            slots: random.pick(&[1, 2, 8, 64]),
            unasked: random.pick(&[1136, 8_000, 64_000, 300_000]),
            granted: u32::try_from(random.pick(&[2_000, 16_000, 256_000])).unwrap_or(2000),
            silence_ns,
            deadline_ns: 2 * silence_ns + DEADLINE_NS,
            channels: 16 + usize::try_from(nodes).unwrap_or(2) * 2 + LIARS_CHANNELS * liars.count,
            page: usize::try_from(random.pick(&[512, 4096, 16_384, 1 << 20])).unwrap_or(512),
            messages: random.between(4, 50) * if nodes > 5 { 1 } else { 3 },
            longest: random.pick(&[500, 3_000, 3_000, 20_000, 20_000, 100_000]).max(ways.longest()),
            kept: usize::try_from(random.pick(&[10_000, 100_000, 10_000_000])).unwrap_or(10_000),
            guesses: random.chance(800),
            policy: if with.policy { policy(&mut Random::new(mix(seed ^ PULSES))) } else { Policy::StoreAndForward },
            calls,
            ways,
            narrow: if with.narrow && widths.chance(300) { widths.below(10) } else { 0 },
            stays_narrow: widths.chance(500),
            blind: if with.blind && !sealed { blind(&mut Random::new(mix(seed ^ GUESSES))) } else { 0 },
            busy: with.busy,
            relief: if with.relief { relief(&mut Random::new(mix(seed ^ RELIEF))) } else { 0 },
            liars,
        }
    }
}

/// Half of the worlds have AES-GCM alone, and most one key.
fn locks(nodes: u64, random: &mut Random) -> Locks {
    let pairs = random.chance(333) && nodes == 2;
    Locks { pairs, chacha: if random.chance(500) { random.next() } else { 0 } }
}

/// Half of the worlds divide: by what batches cost, or by a size.
fn policy(random: &mut Random) -> Policy {
    match random.below(4) {
        0 => Policy::default(),
        1 => Policy::Adaptive { minpulse: NonZeroU64::new(random.between(1, 20_000)) },
        _ => Policy::StoreAndForward,
    }
}

/// In half of the worlds nobody does.
fn relief(random: &mut Random) -> u64 {
    if random.chance(500) { 0 } else { random.pick(&[2, 20, 200]) }
}

/// In half of the worlds nobody does.
fn blind(random: &mut Random) -> u64 {
    if random.chance(500) { 0 } else { random.between(1, 10) }
}

impl Options {
    /// Whether an endpoint is one that lies.
    pub(super) const fn lies(&self, index: usize) -> bool {
        index >= self.nodes
    }

    /// Bytes of a batch at most, by a ring.
    pub(super) fn limit(&self) -> usize {
        self.ways.room * (HEADER_BYTES + usize::from(self.body))
    }

    /// How long after the last trouble the dead are known to be dead, and nobody else is taken for that.
    pub(super) const fn notice_ns(&self) -> u64 {
        self.silence_ns * 2 + 1_000_000_000
    }
}

impl fmt::Display for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pairs, chacha } = self;
        if *self == Self::default() { Ok(()) } else { write!(f, " pairs {pairs} chacha {chacha:x}") }
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "nodes {} sealed {}{} begin {} loss {} duplicates {} reorder {} corrupt {} truncate {} way_ns {} \
             delay {:?} faults {} weights {:?} calm_ns {} queue {} body {} slots {} unasked {} granted {} \
             silence_ns {} page {} messages {} longest {} kept {} guesses {} policy {} narrow {} {} \
             blind {} relief {} {}{}{}",
            self.nodes,
            self.sealed,
            self.locks,
            self.begin,
            self.loss,
            self.duplicates,
            self.reorder,
            self.corrupt,
            self.truncate,
            self.way_ns,
            self.delay,
            self.faults,
            self.weights,
            self.calm_ns,
            self.queue,
            self.body,
            self.slots,
            self.unasked,
            self.granted,
            self.silence_ns,
            self.page,
            self.messages,
            self.longest,
            self.kept,
            self.guesses,
            self.policy,
            self.narrow,
            self.stays_narrow,
            self.blind,
            self.relief,
            self.calls,
            self.ways,
            self.liars,
        )
    }
}
