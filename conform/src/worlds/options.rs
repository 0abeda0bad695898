//! What is drawn for a world before it begins.

use std::fmt;
use std::time::Duration;

use cutthrough::simulated::{Interrupts, Wire};

use crate::random::Random;

/// The options of a world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) hosts: usize,
    pub(crate) wire: Wire,
    pub(crate) sealed: bool,
    /// Settings of every node.
    pub(crate) window: u32,
    pub(crate) serve: usize,
    pub(crate) slots: u32,
    pub(crate) pool_bytes: u64,
    pub(crate) staging_bytes: u32,
    pub(crate) silence: Duration,
    /// The longest payload of a call.
    pub(crate) longest: u64,
    /// The longest time that a call has.
    pub(crate) within: Duration,
    /// Things that are done, and how many of them are faults, of a thousand.
    pub(crate) deeds: u64,
    pub(crate) faults: u64,
    /// How long it is at most until the next one.
    pub(crate) pause: Duration,
}

/// One of these.
fn pick<T: Copy, const N: usize>(random: &mut Random, from: [T; N]) -> T {
    #[expect(clippy::cast_possible_truncation, reason = "below a length")]
    from[random.below(N as u64) as usize]
}

impl Options {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let us = Duration::from_micros;
        let latency = us(pick(random, [5, 20, 100, 1000, 10_000]));
        let wire = Wire {
            mtu: pick(random, [1280, 1500, 9000]),
            latency,
            jitter: latency * pick(random, [0, 0, 1, 2]),
            bandwidth: pick(random, [None, Some(1_250_000_000), Some(125_000_000)]),
            loss: pick(random, [0.0, 0.001, 0.01, 0.05, 0.2]),
            duplicates: pick(random, [0.0, 0.0, 0.01, 0.1]),
            reorders: pick(random, [0.0, 0.0, 0.01, 0.1]),
            corrupts: pick(random, [0.0, 0.0, 0.001, 0.02]),
            truncates: pick(random, [0.0, 0.0, 0.001, 0.02]),
        };
        let longest: u64 = pick(random, [100, 5000, 40_000, 200_000]);
        let pool: u64 = pick(random, [64 << 10, 1 << 20, 64 << 20]);
        Self {
            hosts: pick(random, [2, 2, 3, 4, 5]),
            wire,
            sealed: random.below(3) > 0,
            window: pick(random, [1, 2, 8, 64, 64]),
            serve: pick(random, [1, 4, 1024]),
            slots: pick(random, [16, 64, 1024]),
            // What is longer than the pool waits for the peer within its endpoint, and here the peer may do the same.
            pool_bytes: longest.next_multiple_of(4096) * 8 + pool,
            staging_bytes: pick(random, [64 << 10, 1 << 20]),
            silence: Duration::from_millis(pick(random, [300, 900, 900, 3000])),
            longest,
            within: Duration::from_millis(pick(random, [20, 200, 1000, 4000])),
            deeds: 20 + random.below(120),
            faults: pick(random, [0, 20, 60, 150]),
            pause: us(pick(random, [50, 500, 5000, 50_000])),
        }
    }

    /// Less goes wrong, so that what is expected comes as a rule; and more is done.
    pub(crate) fn steady(&mut self, random: &mut Random) {
        let us = Duration::from_micros;
        self.hosts = pick(random, [2, 2, 2, 3]);
        self.wire.mtu = pick(random, [1280, 1500, 1500, 9000]);
        // As fast as one can look.
        self.wire.bandwidth = Some(125_000_000);
        self.wire.latency = us(pick(random, [5, 5, 20]));
        self.wire.jitter = self.wire.latency * pick(random, [0, 0, 0, 1]);
        self.wire.loss = pick(random, [0.0, 0.001, 0.003]);
        self.wire.duplicates = pick(random, [0.0, 0.0, 0.01]);
        self.wire.reorders = pick(random, [0.0, 0.0, 0.01]);
        self.wire.corrupts = pick(random, [0.0, 0.0, 0.001]);
        self.wire.truncates = 0.0;
        self.slots = pick(random, [64, 1024]);
        self.faults = pick(random, [0, 5, 20]);
        self.pause = us(pick(random, [50, 500]));
    }
}

/// What is drawn for a world with rings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ringed {
    pub(crate) interrupts: Interrupts,
    pub(crate) landing_bytes: u64,
    /// Whether most of what comes are pages alike, of one host for a stretch.
    pub(crate) streams: bool,
}

impl Ringed {
    pub(crate) fn draw(random: &mut Random) -> Self {
        // Up to 20 us are waited for, and after a second the ring is given up.
        let stops =
            [(0.0, 0), (0.1, 5), (0.5, 5), (0.01, 30), (0.1, 30), (0.1, 200), (0.02, 3000), (0.0005, 3_000_000)];
        let (stops, us) = pick(random, stops);
        let mut interrupts = Interrupts {
            elsewhere: pick(random, [0.0, 0.0, 0.01, 0.2]),
            stops,
            stop: Duration::from_micros(us),
            strays: pick(random, [0.0, 0.0, 0.05]),
            refuses: random.below(4) == 0,
            ..Interrupts::default()
        };
        let mut landing_bytes = pick(random, [4 << 20, 8 << 20, 32 << 20]);
        let streams = random.below(3) > 0;
        if streams {
            // Else half of what comes goes by sockets, past the rings.
            interrupts.socket = Duration::from_micros(100);
            // A ring that is given up then places nothing any more.
            interrupts.refuses &= random.below(4) == 0;
            // The ring has that of every channel.
            landing_bytes = pick(random, [1 << 20, 1 << 20, 2 << 20]);
        }
        Self { interrupts, landing_bytes, streams }
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hosts, wire, sealed, window, serve, slots, pool_bytes, staging_bytes, .. } = self;
        let Self { silence, longest, within, deeds, faults, pause, .. } = self;
        write!(
            f,
            "{hosts} hosts, {}, mtu {}, {:?} + {:?}, {:?} B/s, loss {} twice {} order {} bits {} ends {}, window \
             {window}, serve {serve}, {slots} slots, pool {pool_bytes}, staging {staging_bytes}, silence {silence:?}, \
             up to {longest} B within {within:?}, {deeds} deeds {faults} per mille faults every {pause:?}",
            if *sealed { "sealed" } else { "plain" },
            wire.mtu,
            wire.latency,
            wire.jitter,
            wire.bandwidth,
            wire.loss,
            wire.duplicates,
            wire.reorders,
            wire.corrupts,
            wire.truncates,
        )
    }
}
