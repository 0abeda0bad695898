//! An I/O bus between host memory and an adapter: one transfer at a time in either direction, as on PCI, or one in
//! each direction, as on PCI Express.
//!
//! A transfer waits for its set-up and then moves at the rate of its direction. The host's own accesses come first:
//! while it keeps a share of the bus busy (programmed I/O, polling), a transfer gets the rest and is stretched.
//!
//! A bridge may post writes: what an adapter writes goes into the bridge's buffer as fast as the bus runs, and from
//! there into memory at the slower rate of writes. While the adapter's firmware prepares the next transfer the buffer
//! goes on draining, so short transfers lose less to their set-up than their number suggests.

use crate::time::{Rate, Span, Time};

/// Which way bytes go over a bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From host memory into the adapter: the adapter reads.
    Read,
    /// From the adapter into host memory: the adapter writes.
    Write,
}

/// What a bus is made of.
#[derive(Debug, Clone, Copy)]
pub struct BusParts {
    /// Width times clock.
    pub peak: Rate,
    /// What reads of host memory reach once they move.
    pub read: Rate,
    /// What writes to host memory reach once they move and the bridge's buffer is full.
    pub write: Rate,
    /// From the start of a read until its first byte moves: arbitration, and the first access to memory.
    pub read_setup: Span,
    /// The same of a write.
    pub write_setup: Span,
    /// Bytes that the bridge takes before memory has them.
    pub write_buffer: u64,
    /// Whether each direction has wires of its own.
    pub duplex: bool,
    /// Whether the adapter's requests run ahead: a transfer that follows another one within its set-up need not wait
    /// for it.
    pub ahead: bool,
}

/// The host's share of the bus is counted in parts of this many.
pub const WHOLE: u64 = 1 << 16;

/// A transfer: at most two linear pieces, since a write slows down once the bridge's buffer is full.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    started: Time,
    len: u64,
    /// Since when the pieces below hold, with this many bytes moved before.
    begun: Time,
    base: u64,
    /// Bytes moved in all when the first piece ends.
    turn: u64,
    fast: Rate,
    slow: Rate,
    /// Bytes in the bridge's buffer at `begun`.
    level: u64,
}

impl Transfer {
    fn turn_at(&self) -> Time {
        self.begun + self.fast.span(self.turn - self.base)
    }

    fn moved(&self, at: Time) -> u64 {
        let fast = self.base + self.fast.bytes(at - self.begun);
        if fast < self.turn || self.turn == self.len {
            return fast.min(self.len);
        }
        (self.turn + self.slow.bytes(at - self.turn_at())).min(self.len)
    }

    fn reaches(&self, bytes: u64) -> Time {
        if bytes <= self.turn {
            self.begun + self.fast.span(bytes.saturating_sub(self.base))
        } else {
            self.turn_at() + self.slow.span(bytes - self.turn)
        }
    }
}

/// A transfer that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// When it was started.
    pub started: Time,
    /// When its last byte had moved.
    pub ended: Time,
    /// Bytes moved.
    pub len: u64,
}

/// A bus and what goes over it.
#[derive(Debug, Clone)]
pub struct Bus {
    parts: BusParts,
    transfers: [Option<Transfer>; 2],
    /// What the host takes of the bus, out of [`WHOLE`].
    share: u64,
    /// Bytes in the bridge's buffer at a time when no write was under way.
    level: u64,
    level_at: Time,
    /// When the last transfer was over, by direction.
    ended: [Option<Time>; 2],
}

impl Bus {
    /// An idle bus.
    #[must_use]
    pub const fn new(parts: BusParts) -> Self {
        Self { parts, transfers: [None; 2], share: 0, level: 0, level_at: Time::START, ended: [None; 2] }
    }

    /// Whether a transfer this way can be started: no other is in its way.
    #[must_use]
    pub const fn free(&self, way: Way) -> bool {
        if self.parts.duplex {
            self.transfers[way as usize].is_none()
        } else {
            self.transfers[0].is_none() && self.transfers[1].is_none()
        }
    }

    /// Starts a transfer of `len` bytes at `at`.
    ///
    /// # Panics
    /// If the bus is not free that way: a bus never carries two transfers.
    pub fn start(&mut self, way: Way, at: Time, len: u64) {
        assert!(self.free(way), "a bus never carries two transfers");
        let setup = match way {
            Way::Read => self.parts.read_setup,
            Way::Write => self.parts.write_setup,
        };
        let follows = self.parts.ahead && self.ended[way as usize].is_some_and(|ended| at - ended <= setup);
        let (begun, rate) = (if follows { at } else { at + setup }, self.parts.peak);
        let level = self.level_at(begun);
        let whole = Transfer { started: at, len, begun, base: 0, turn: len, fast: rate, slow: rate, level };
        self.transfers[way as usize] = Some(self.paced(way, whole));
    }

    /// Bytes that the transfer under way has moved; 0 if there is none.
    #[must_use]
    pub fn moved(&self, way: Way, at: Time) -> u64 {
        self.transfers[way as usize].map_or(0, |transfer| transfer.moved(at))
    }

    /// When the transfer under way will have moved `bytes` bytes; `None` if it is not that long.
    #[must_use]
    pub fn reaches(&self, way: Way, bytes: u64) -> Option<Time> {
        self.transfers[way as usize].filter(|transfer| bytes <= transfer.len).map(|transfer| transfer.reaches(bytes))
    }

    /// When the transfer under way will be over.
    #[must_use]
    pub fn end(&self, way: Way) -> Option<Time> {
        self.transfers[way as usize].map(|transfer| transfer.reaches(transfer.len))
    }

    /// Takes the transfer off the bus if it was over before `at`.
    pub fn settle(&mut self, way: Way, at: Time) -> Option<Done> {
        let transfer = self.transfers[way as usize]?;
        let ended = transfer.reaches(transfer.len);
        if ended >= at {
            return None;
        }
        if way == Way::Write {
            (self.level, self.level_at) = (self.level_in(&transfer, ended), ended);
        }
        self.transfers[way as usize] = None;
        self.ended[way as usize] = Some(ended);
        Some(Done { started: transfer.started, ended, len: transfer.len })
    }

    /// Lets the host take `share` parts of [`WHOLE`] of the bus from `now` on; some is always left to transfers.
    pub fn set_share(&mut self, now: Time, share: u64) {
        let share = share.min(WHOLE - WHOLE / 8);
        if share == self.share {
            return;
        }
        self.share = share;
        for way in [Way::Read, Way::Write] {
            let under_way = self.transfers[way as usize].filter(|transfer| transfer.reaches(transfer.len) > now);
            if let Some(transfer) = under_way {
                let level = self.level_in(&transfer, now);
                let (begun, base) = (transfer.begun.max(now), transfer.moved(now));
                self.transfers[way as usize] = Some(self.paced(way, Transfer { begun, base, level, ..transfer }));
            }
        }
    }

    /// When all that was written before is in memory, if nothing more is written.
    #[must_use]
    pub fn drained_at(&self) -> Time {
        match self.transfers[Way::Write as usize] {
            Some(transfer) => {
                let end = transfer.reaches(transfer.len);
                end + self.parts.write.span(self.level_in(&transfer, end))
            }
            None => self.level_at + self.parts.write.span(self.level),
        }
    }

    /// `transfer` at the pace that the host leaves it from `begun` on.
    fn paced(&self, way: Way, transfer: Transfer) -> Transfer {
        let left = |rate: Rate| {
            let scaled = u128::from(rate.bytes_per_s()) * u128::from(WHOLE - self.share) / u128::from(WHOLE);
            Rate::from_bytes_per_s(u64::try_from(scaled).unwrap_or(u64::MAX)).unwrap_or(rate)
        };
        let steady = |rate| Transfer { fast: rate, slow: rate, turn: transfer.len, ..transfer };
        if way == Way::Read {
            return steady(left(self.parts.read));
        }
        if self.parts.write_buffer == 0 {
            return steady(left(self.parts.write));
        }
        let (into, out) = (left(self.parts.peak), self.parts.write);
        if into <= out {
            return steady(into);
        }
        let room = self.parts.write_buffer.saturating_sub(transfer.level);
        let faster = into.bytes_per_s() - out.bytes_per_s();
        let fast = u128::from(room) * u128::from(into.bytes_per_s()) / u128::from(faster);
        let fast = u64::try_from(fast).unwrap_or(u64::MAX);
        Transfer { fast: into, slow: out, turn: transfer.base.saturating_add(fast).min(transfer.len), ..transfer }
    }

    /// Bytes in the bridge's buffer at `at`, while `transfer` is under way.
    fn level_in(&self, transfer: &Transfer, at: Time) -> u64 {
        let came = transfer.level + (transfer.moved(at) - transfer.base);
        came.saturating_sub(self.parts.write.bytes(at - transfer.begun)).min(self.parts.write_buffer)
    }

    fn level_at(&self, at: Time) -> u64 {
        self.level.saturating_sub(self.parts.write.bytes(at - self.level_at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Bus, BusParts, WHOLE, Way};
    use crate::time::{Rate, Span, Time};

    fn mb(rate: u64) -> Rate {
        Rate::from_bytes_per_s(rate * 1_000_000).unwrap()
    }

    fn parts(write_buffer: u64, duplex: bool) -> BusParts {
        let (read_setup, write_setup) = (Span::from_ns(1000), Span::from_ns(500));
        BusParts {
            peak: mb(132),
            read: mb(128),
            write: mb(64),
            read_setup,
            write_setup,
            write_buffer,
            duplex,
            ahead: false,
        }
    }

    fn at(ns: u64) -> Time {
        Time::START + Span::from_ns(ns)
    }

    #[test]
    fn a_transfer_costs_its_setup_and_its_bytes() {
        let mut bus = Bus::new(parts(0, false));
        bus.start(Way::Read, at(100), 8192);
        assert_eq!(bus.end(Way::Read), Some(at(100 + 1000 + 64_000)));
        assert_eq!(bus.moved(Way::Read, at(1100)), 0);
        assert_eq!(bus.moved(Way::Read, at(1100 + 32_000)), 4096);
        assert_eq!(bus.settle(Way::Read, at(65_100)), None);
        assert_eq!(bus.settle(Way::Read, at(65_101)).unwrap().ended, at(65_100));
        bus.start(Way::Write, at(70_000), 8192);
        assert_eq!(bus.end(Way::Write), Some(at(70_000 + 500 + 128_000)));
    }

    #[test]
    fn one_direction_at_a_time_unless_duplex() {
        let mut bus = Bus::new(parts(0, false));
        bus.start(Way::Read, at(0), 1);
        assert!(!bus.free(Way::Write));
        let mut bus = Bus::new(parts(0, true));
        bus.start(Way::Read, at(0), 1);
        assert!(bus.free(Way::Write) && !bus.free(Way::Read));
    }

    #[test]
    fn requests_that_run_ahead_hide_the_setup() {
        let mut bus = Bus::new(BusParts { ahead: true, ..parts(0, true) });
        bus.start(Way::Read, at(0), 128);
        assert_eq!(bus.settle(Way::Read, at(2001)).unwrap().ended, at(2000));
        bus.start(Way::Read, at(2100), 128);
        assert_eq!(bus.settle(Way::Read, at(4000)).unwrap().ended, at(3100));
        bus.start(Way::Read, at(9000), 128);
        assert_eq!(bus.end(Way::Read), Some(at(11_000)));
    }

    #[test]
    fn the_host_stretches_a_transfer() {
        let mut bus = Bus::new(parts(0, false));
        bus.start(Way::Read, at(0), 8192);
        bus.set_share(at(1000 + 16_000), WHOLE / 2);
        bus.set_share(at(1000 + 32_000), 0);
        // A quarter at full rate, an eighth at half rate, the rest at full rate.
        assert_eq!(bus.moved(Way::Read, at(1000 + 32_000)), 3072);
        assert_eq!(bus.end(Way::Read), Some(at(1000 + 32_000 + 40_000)));
    }

    #[test]
    fn a_bridge_takes_the_first_bytes_of_a_write_at_once() {
        let mut bus = Bus::new(parts(256, false));
        bus.start(Way::Write, at(0), 8192);
        let plain = at(500 + 128_000);
        let end = bus.end(Way::Write).unwrap();
        let drain = mb(64).span(256);
        // The last byte has left the adapter one buffer before it is in memory.
        assert!(end + drain >= plain && end + drain <= plain + Span::from_ns(20), "{end:?}");
        let drained = bus.drained_at();
        assert!(drained >= plain && drained <= plain + Span::from_ns(40), "{drained:?}");
        bus.settle(Way::Write, end + Span::from_ps(1)).unwrap();
        // Later writes of less than the buffer go at the speed of the bus.
        bus.start(Way::Write, at(200_000), 132);
        assert_eq!(bus.end(Way::Write), Some(at(200_000 + 500 + 1000)));
    }

    proptest! {
        /// Whatever the host does meanwhile: progress never goes back, and never beats the bus or the memory.
        #[test]
        fn progress_is_steady_and_bounded(
            buffer in 0u64..600,
            lens in prop::collection::vec(1u64..9000, 1..6),
            shares in prop::collection::vec((1u64..40_000, 0u64..WHOLE), 0..12),
        ) {
            let mut bus = Bus::new(parts(buffer, false));
            let (mut now, mut moved, mut total) = (at(0), 0, 0);
            let mut shares = shares.into_iter();
            for len in lens {
                bus.start(Way::Write, now, len);
                total += len;
                while bus.moved(Way::Write, now) < len {
                    let before = bus.moved(Way::Write, now);
                    let (ns, share) = shares.next().unwrap_or((50_000, 0));
                    now += Span::from_ns(ns);
                    let progress = bus.moved(Way::Write, now);
                    prop_assert!(progress >= before);
                    prop_assert!(moved + progress <= mb(64).bytes(now - at(0)) + buffer + 1);
                    bus.set_share(now, share);
                    // Rounding must not undo what was seen.
                    prop_assert_eq!(bus.moved(Way::Write, now), progress);
                }
                let done = bus.settle(Way::Write, now + Span::from_ps(1)).unwrap();
                prop_assert!(done.ended <= now && done.len == len);
                moved += len;
                now += Span::from_ps(1);
            }
            prop_assert!(bus.drained_at() - at(0) >= mb(64).span(total));
        }
    }
}
