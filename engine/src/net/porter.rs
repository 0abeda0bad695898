//! Who was let in, and how many callers are answered in a time: an answer costs work with public keys, a hello next to
//! nothing.
//!
//! Tokens come at a steady rate and are kept up to a bound. While many are left, whoever asks gets one. Of those that
//! are left last the first part is for ports that have had less than others of their host, and the rest for hosts that
//! have had less than others: so neither a host nor a process keeps others out, as where [places are
//! scarce](super::Net). Who gets none says hello again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::time::Instant;

/// Nanoseconds in which one caller may be answered: an answer with public keys takes a fifth of that.
const EACH_NS: u64 = 500_000;
/// Answers that may be given at once.
const MOST: u64 = 256;
/// Of those, how many are for ports, and how many for hosts, that have had less than others.
const FOR_PORTS: u64 = MOST / 2;
const FOR_HOSTS: u64 = MOST / 4;
/// Ports of which it is remembered what they have had.
const PORTS: usize = 64;

#[derive(Debug)]
struct Had {
    port: SocketAddr,
    /// Nanoseconds worth of answers, up to `at`.
    spent: u64,
    at: Instant,
}

impl Had {
    /// What has not been forgotten yet: as much is forgotten in a time as may be given in it.
    fn left(&self, now: Instant) -> u64 {
        self.spent.saturating_sub(now.saturating_since(self.at))
    }
}

/// Knows whom this side has let in, and rations answers.
#[derive(Debug, Default)]
pub(super) struct Porter {
    pub(super) ration: Ration,
    /// The seats of those who were let in, by address, and by tag and generation of their own.
    inside: BTreeMap<(SocketAddr, u32, u32), usize>,
}

impl Porter {
    /// This caller gets this seat.
    pub(super) fn lets_in(&mut self, caller: (SocketAddr, u32, u32), seat: usize) {
        self.inside.insert(caller, seat);
    }

    /// Whether this caller has a seat.
    pub(super) fn has(&self, caller: (SocketAddr, u32, u32)) -> bool {
        self.inside.contains_key(&caller)
    }

    /// Whoever was let in as this one leaves the seat.
    pub(super) fn leaves(&mut self, caller: (SocketAddr, u32, u32), seat: usize) {
        if self.inside.get(&caller) == Some(&seat) {
            self.inside.remove(&caller);
        }
    }
}

/// What has been given, and to whom.
#[derive(Debug, Default)]
pub(super) struct Ration {
    /// Nanoseconds worth of answers that were given and are not made good yet, up to `at`.
    spent: u64,
    at: Instant,
    had: Vec<Had>,
}

impl Ration {
    /// Whether a caller from there is answered now.
    pub(super) fn takes(&mut self, now: Instant, from: SocketAddr) -> bool {
        self.spent = self.spent.saturating_sub(now.saturating_since(self.at));
        self.at = now;
        let left = MOST.saturating_sub(self.spent.div_ceil(EACH_NS));
        let takes = match left {
            0 => false,
            1..=FOR_HOSTS => self.host_has_less(now, from),
            _ if left <= FOR_PORTS => self.host_has_less(now, from) || self.port_has_less(now, from),
            _ => true,
        };
        if takes {
            self.spent += EACH_NS;
            self.give(now, from);
        }
        takes
    }

    fn of(&self, now: Instant, which: impl Fn(&SocketAddr) -> bool) -> u64 {
        self.had.iter().filter(|had| which(&had.port)).map(|had| had.left(now)).sum()
    }

    /// Whether some host has had more than this one would have then.
    fn host_has_less(&self, now: Instant, from: SocketAddr) -> bool {
        let own = self.of(now, |port| port.ip() == from.ip());
        let mut others = self.had.iter().filter(|had| had.port.ip() != from.ip());
        others.any(|had| self.of(now, |port| port.ip() == had.port.ip()) > own + EACH_NS)
    }

    /// Whether some port of this host has had more than this one would have then.
    fn port_has_less(&self, now: Instant, from: SocketAddr) -> bool {
        let own = self.of(now, |port| *port == from);
        self.had.iter().any(|had| had.port.ip() == from.ip() && had.left(now) > own + EACH_NS)
    }

    fn give(&mut self, now: Instant, from: SocketAddr) {
        if let Some(had) = self.had.iter_mut().find(|had| had.port == from) {
            (had.spent, had.at) = (had.left(now) + EACH_NS, now);
            return;
        }
        self.had.retain(|had| had.left(now) > 0);
        if self.had.len() >= PORTS {
            let least = (0..self.had.len()).min_by_key(|&at| self.had[at].left(now));
            self.had.swap_remove(least.unwrap_or(0));
        }
        self.had.push(Had { port: from, spent: EACH_NS, at: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(host: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], port))
    }

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// How many of a flood of callers from there are answered.
    fn flood(ration: &mut Ration, now: Instant, callers: impl Iterator<Item = SocketAddr>) -> u64 {
        callers.map(|from| u64::from(ration.takes(now, from))).sum()
    }

    #[test]
    fn a_flood_is_answered_at_the_rate_and_no_faster() {
        let mut ration = Ration::default();
        let callers = || core::iter::repeat_n(from(9, 1), 10_000);
        assert_eq!(flood(&mut ration, at(0), callers()), MOST - FOR_PORTS);
        let mut answered = 0;
        for turn in 1..=1000 {
            answered += flood(&mut ration, at(turn * 100_000), callers());
        }
        assert_eq!(answered, 1000 * 100_000 / EACH_NS);
        assert_eq!(flood(&mut ration, at(u64::MAX), callers()), MOST - FOR_PORTS, "after a rest");
    }

    #[test]
    fn another_host_and_another_port_are_answered_beside_a_flood() {
        let mut ration = Ration::default();
        for turn in 0..1000 {
            let now = at(turn * 100_000);
            flood(&mut ration, now, core::iter::repeat_n(from(9, 1), 100));
            if turn % 100 == 99 {
                assert!(ration.takes(now, from(9, 2)), "another port of its host");
                assert!(ration.takes(now, from(8, 1)), "another host");
            }
        }
        // One with very many ports leaves nothing to others of its host, but to other hosts.
        let ports = (0..60_000).map(|port| from(9, port));
        flood(&mut ration, at(100_000_000), ports);
        assert!(ration.takes(at(100_000_000), from(8, 1)));
        assert!(ration.had.len() <= PORTS);
    }

    #[test]
    fn many_hosts_share_what_there_is() {
        let mut ration = Ration::default();
        let hosts = || (0..=255).cycle().take(10_000).map(|host| from(host, 1));
        let at_once = flood(&mut ration, at(0), hosts());
        assert!((MOST - FOR_PORTS..=MOST).contains(&at_once), "{at_once}");
        let mut answered = 0;
        for turn in 1..=1000 {
            answered += flood(&mut ration, at(turn * 100_000), hosts());
        }
        let rate = 1000 * 100_000 / EACH_NS;
        assert!((rate..=rate + MOST - at_once).contains(&answered), "{answered} at a rate of {rate}");
    }
}
