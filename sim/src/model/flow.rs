//! Bytes that pass a point at a constant rate, up to a limit: a link, seen from either end.

use crate::time::{Rate, Span, Time};

/// A flow of bytes. It begins at a time with some bytes passed already, and stops at its limit until that is raised.
#[derive(Debug, Clone, Copy)]
pub struct Flow {
    begun: Time,
    base: u64,
    limit: u64,
    rate: Rate,
}

impl Flow {
    /// A flow that begins at `begun` with `base` bytes passed and stops when `limit` have (at least `base`).
    #[must_use]
    pub fn new(begun: Time, base: u64, limit: u64, rate: Rate) -> Self {
        Self { begun, base, limit: limit.max(base), rate }
    }

    /// When it began.
    #[must_use]
    pub const fn begun(&self) -> Time {
        self.begun
    }

    /// Bytes that had passed when it began.
    #[must_use]
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// Bytes that will have passed when it stops.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that have passed at `at`.
    #[must_use]
    pub fn passed(&self, at: Time) -> u64 {
        (self.base + self.rate.bytes(at - self.begun)).min(self.limit)
    }

    /// When `bytes` bytes have passed; `None` if they will not before the limit is raised.
    #[must_use]
    pub fn reaches(&self, bytes: u64) -> Option<Time> {
        (bytes <= self.limit).then(|| self.begun + self.rate.span(bytes.saturating_sub(self.base)))
    }

    /// When it stops at its limit.
    #[must_use]
    pub fn end(&self) -> Time {
        self.begun + self.rate.span(self.limit - self.base)
    }

    /// The same flow where it comes out of a link that delays it.
    #[must_use]
    pub fn later(&self, delay: Span) -> Self {
        Self { begun: self.begun + delay, ..*self }
    }

    /// Raises the limit by `more` bytes at `now`. A flow that has stopped begins again, and says so.
    pub fn extend(&mut self, now: Time, more: u64) -> bool {
        let stopped = self.end() <= now;
        if stopped {
            (self.begun, self.base) = (now, self.limit);
        }
        self.limit += more;
        stopped
    }
}

/// What comes out of a link: the flows that went in, each later by the way it took, in order.
#[derive(Debug, Clone, Default)]
pub struct Arrivals {
    flows: std::collections::VecDeque<Flow>,
}

impl Arrivals {
    /// Lets `flow` arrive, behind what is on its way already. Flows that are over at `now` are forgotten.
    pub fn push(&mut self, now: Time, flow: Flow) {
        let behind = self.flows.back().map_or(flow.begun, Flow::end);
        while self.flows.len() > 1 && self.flows.front().is_some_and(|first| first.end() <= now) {
            self.flows.pop_front();
        }
        self.flows.push_back(Flow { begun: flow.begun.max(behind), ..flow });
    }

    /// Raises the limit of the last flow, which has not stopped, by `more` bytes.
    pub fn extend(&mut self, more: u64) {
        if let Some(last) = self.flows.back_mut() {
            last.limit += more;
        }
    }

    /// Bytes that have arrived at `at`, which is not before anything that was asked or told earlier.
    #[must_use]
    pub fn arrived(&self, at: Time) -> u64 {
        let flow = self.flows.iter().rev().find(|flow| flow.begun <= at).or(self.flows.front());
        flow.map_or(0, |flow| flow.passed(at))
    }

    /// When `bytes` bytes have arrived; `None` if that is not known yet.
    #[must_use]
    pub fn reaches(&self, bytes: u64) -> Option<Time> {
        self.flows.iter().find_map(|flow| flow.reaches(bytes))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Arrivals, Flow};
    use crate::time::{Rate, Span, Time};

    fn rate() -> Rate {
        Rate::from_bytes_per_s(128_000_000).unwrap()
    }

    #[test]
    fn a_flow_takes_the_time_of_its_bytes() {
        let start = Time::START + Span::from_ns(10);
        let flow = Flow::new(start, 100, 100 + 8192, rate());
        assert_eq!(flow.end() - start, Span::from_ns(64_000));
        assert_eq!(flow.passed(start), 100);
        assert_eq!(flow.passed(start + Span::from_ns(32_000)), 100 + 4096);
        assert_eq!(flow.reaches(9000), None);
    }

    #[test]
    fn a_flow_that_is_held_up_goes_on_where_it_stopped() {
        let mut flow = Flow::new(Time::START, 0, 128, rate());
        assert!(!flow.extend(Time::START + Span::from_ns(500), 128));
        assert_eq!(flow.end(), Time::START + Span::from_ns(2000));
        assert!(flow.extend(Time::START + Span::from_ns(9000), 128));
        assert_eq!(flow.passed(Time::START + Span::from_ns(9500)), 256 + 64);
    }

    proptest! {
        /// Nothing arrives before it was sent, nothing is lost, and `reaches` is the inverse of `passed`.
        #[test]
        fn what_arrives_is_what_was_sent(pulses in prop::collection::vec((1u64..5000, 0u64..90_000), 1..20)) {
            let delay = Span::from_ns(700);
            let (mut now, mut sent) = (Time::START, 0);
            let mut arrivals = Arrivals::default();
            for (len, gap) in pulses {
                let flow = Flow::new(now, sent, sent + len, rate());
                prop_assert_eq!(flow.passed(flow.reaches(sent + len).unwrap()), sent + len);
                arrivals.push(now, Flow::new(now + delay, sent, sent + len, rate()));
                for part in 1..5 {
                    let at = now + Span::from_ps((flow.end() - now).as_ps() / 4 * part);
                    prop_assert!(arrivals.arrived(at) <= flow.passed(at));
                    prop_assert!(arrivals.arrived(at + delay) <= flow.passed(at));
                    prop_assert!(arrivals.arrived(at + delay) + 1 >= flow.passed(at));
                }
                sent += len;
                now = flow.end() + delay + Span::from_ns(gap);
                prop_assert_eq!(arrivals.arrived(now), sent);
            }
        }
    }
}
