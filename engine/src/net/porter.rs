//! Who was let in, and how many callers are answered in a time: an answer costs work with public keys, or a call of the
//! kernel at least, a hello next to nothing.
//!
//! Tokens come at a steady rate and are kept up to a bound. While many are left, whoever asks gets one. Of those that
//! are left last the first part is for ports that have had less than others of their host, and the rest for hosts that
//! have had less than others: so neither a host nor a process keeps others out, as where [places are
//! scarce](super::Net). What somebody has had is counted until tokens have come in its place, however many ports it has
//! gone to. Who gets none says hello again.

use alloc::collections::VecDeque;
use alloc::collections::btree_map::{BTreeMap, Entry};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::time::Instant;

/// Nanoseconds in which one caller may be answered: an answer with public keys takes a fifth of that.
const EACH_NS: u64 = 500_000;
/// The same of those who are told no more than to come again, or that nobody listens: to say so takes a tenth of that.
const TOLD_NS: u64 = 25_000;
/// Answers that may be given at once.
const MOST: u64 = 256;
/// Of those, how many are for ports, and how many for hosts, that have had less than others.
const FOR_PORTS: u64 = MOST / 2;
const FOR_HOSTS: u64 = MOST / 4;
/// Bits of an address of IPv6 that name a network: one machine has all addresses of it, if it likes.
const NETWORK: u128 = !0 << 64;

/// What stands for the host that has this address.
pub(super) fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & NETWORK).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Knows whom this side has let in, and rations answers.
#[derive(Debug)]
pub(super) struct Porter {
    pub(super) ration: Ration,
    /// For those who have no cookie yet, or call in vain.
    pub(super) told: Ration,
    /// The seats of those who were let in, by address, and by tag and generation of their own.
    inside: BTreeMap<(SocketAddr, u32, u32), usize>,
}

impl Default for Porter {
    fn default() -> Self {
        let [ration, told] = [EACH_NS, TOLD_NS].map(Ration::new);
        Self { ration, told, inside: BTreeMap::new() }
    }
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
#[derive(Debug)]
pub(super) struct Ration {
    /// Nanoseconds in which one may be given.
    each: u64,
    /// Nanoseconds worth of answers that were given and are not made good yet, up to `at`.
    spent: u64,
    at: Instant,
    /// Who had those answers, the first one first; and how many each port and each host had.
    given: VecDeque<SocketAddr>,
    ports: BTreeMap<SocketAddr, u32>,
    hosts: BTreeMap<IpAddr, u32>,
}

impl Ration {
    const fn new(each: u64) -> Self {
        let at = Instant::from_nanos(0);
        Self { each, spent: 0, at, given: VecDeque::new(), ports: BTreeMap::new(), hosts: BTreeMap::new() }
    }

    /// Whether a caller from there is answered now.
    pub(super) fn takes(&mut self, now: Instant, from: SocketAddr) -> bool {
        let has = self.has(now, from);
        if has {
            self.take(from);
        }
        has
    }

    /// Whether a caller from there may be answered now.
    pub(super) fn has(&mut self, now: Instant, from: SocketAddr) -> bool {
        self.spent = self.spent.saturating_sub(now.saturating_since(self.at));
        self.at = now;
        let owed = self.spent.div_ceil(self.each);
        while self.given.len() as u64 > owed {
            self.forget_first();
        }
        let left = MOST.saturating_sub(owed);
        match left {
            0 => false,
            1..=FOR_HOSTS => self.host_has_less(from),
            _ if left <= FOR_PORTS => self.host_has_less(from) || self.port_has_less(from),
            _ => true,
        }
    }

    /// A caller from there is answered, who may be.
    pub(super) fn take(&mut self, from: SocketAddr) {
        self.spent += self.each;
        self.given.push_back(from);
        *self.ports.entry(from).or_default() += 1;
        *self.hosts.entry(host(from.ip())).or_default() += 1;
    }

    /// Whether some host has had more than this one would have then.
    fn host_has_less(&self, from: SocketAddr) -> bool {
        let own = self.hosts.get(&host(from.ip())).unwrap_or(&0);
        self.hosts.values().any(|had| *had > own + 1)
    }

    /// Whether some port of this host has had more than this one would have then.
    fn port_has_less(&self, from: SocketAddr) -> bool {
        let (own, of) = (self.ports.get(&from).unwrap_or(&0), host(from.ip()));
        self.ports.iter().any(|(port, had)| *had > own + 1 && host(port.ip()) == of)
    }

    /// An answer is made good.
    fn forget_first(&mut self) {
        let Some(first) = self.given.pop_front() else { return };
        take_one(&mut self.ports, first);
        take_one(&mut self.hosts, host(first.ip()));
    }
}

/// One less is counted for this one, which is not kept for nothing.
fn take_one<K: Ord>(counts: &mut BTreeMap<K, u32>, of: K) {
    if let Entry::Occupied(mut count) = counts.entry(of) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

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
        let mut ration = Ration::new(EACH_NS);
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
        let mut ration = Ration::new(EACH_NS);
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
        assert!(ration.given.len() as u64 <= MOST);
    }

    /// What one host has had is forgotten no faster because it is spread over ports: at one caller in each 50 us, ten
    /// times the rate, another host gets in by its first hello.
    #[test]
    fn a_host_keeps_nobody_out_however_many_ports_it_has() {
        for ports in [1, 2, 40, 60_000] {
            let mut ration = Ration::new(EACH_NS);
            for turn in 0..20_000_u16 {
                ration.takes(at(u64::from(turn) * 50_000), from(9, turn % ports));
            }
            assert!(ration.takes(at(999_960_000), from(8, 1)), "{ports} ports");
        }
    }

    /// One machine has a whole network of IPv6, and says hello from another address of it each time.
    #[test]
    fn a_network_of_one_machine_is_one_host() {
        let of = |net: u16, host: u16| SocketAddr::from(([0x2001, 0xdb8, 0, net, 0, 0, 0, host], 7));
        let mut ration = Ration::new(EACH_NS);
        flood(&mut ration, at(0), (0..10_000).map(|host| of(9, host)));
        assert!(ration.takes(at(0), of(8, 1)), "another network");
        // Addresses of IPv4 that stand for themselves in those of IPv6 are in no network together.
        let mapped = |host: u8| SocketAddr::new(Ipv4Addr::new(10, 0, 0, host).to_ipv6_mapped().into(), 7);
        let mut ration = Ration::new(EACH_NS);
        flood(&mut ration, at(0), core::iter::repeat_n(mapped(9), 10_000));
        assert!(ration.takes(at(0), mapped(8)), "another host");
    }

    #[test]
    fn many_hosts_share_what_there_is() {
        let mut ration = Ration::new(EACH_NS);
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
