//! A model of four stages in picoseconds: each pulse waits for the set-up of its stage, then moves byte by byte.
//!
//! Several messages share the movers, each seen through a [`Port`] of its own, as a node with several channels sees an
//! adapter. Buffers between the stages can be bounded, and progress of a pulse in flight can be hidden.

use std::ops::Range;

use cutthrough_engine::adapter::{Adapter, Capability, Pulse, Role, Stage};
use cutthrough_engine::pulse::Policy;
use cutthrough_engine::time::Instant;
use cutthrough_engine::transfer::{Step, Trace, Transfer};
use cutthrough_engine::tune::Tuner;

/// Picoseconds in a nanosecond.
const PS: u64 = 1000;

/// One mover.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mover {
    pub(crate) setup_ps: u64,
    pub(crate) byte_ps: u64,
    /// Bytes that the buffer behind it holds, for each message.
    pub(crate) capacity: u64,
    pub(crate) capability: Capability,
    /// Whether a pulse in flight can be seen, whatever the capability says.
    pub(crate) visible: bool,
}

impl Mover {
    pub(crate) const fn new(setup_ps: u64, byte_ps: u64) -> Self {
        Self { setup_ps, byte_ps, capacity: u64::MAX, capability: Capability::DRIVEN, visible: true }
    }
}

/// The platform of the table in the design: a bus, a link, a link, a bus.
pub(crate) const PLATFORM: [Mover; 4] =
    [Mover::new(1_500_000, 7600), Mover::new(0, 6250), Mover::new(0, 6250), Mover::new(1_500_000, 7600)];

/// A pulse in flight.
#[derive(Debug, Clone, Copy)]
struct Flight {
    message: usize,
    start_ps: u64,
    len: u64,
}

/// The movers and what they have done for each message.
#[derive(Debug)]
pub(crate) struct World {
    movers: [Mover; 4],
    flights: [Option<Flight>; 4],
    ended: Vec<[u64; 4]>,
}

impl World {
    pub(crate) fn new(movers: [Mover; 4], messages: usize) -> Self {
        Self { movers, flights: [None; 4], ended: vec![[0; 4]; messages] }
    }

    /// The world as the engine that drives the stages `driven` sees it for one message; the others it can only watch.
    pub(crate) fn port(&mut self, message: usize, driven: Range<usize>) -> Port<'_> {
        Port { world: self, message, driven }
    }

    /// Lets a pulse that is over at `now` be over.
    fn settle(&mut self, now: Instant, stage: usize) {
        if let Some(flight) = self.flights[stage]
            && self.progress(now, stage, &flight) == flight.len
        {
            self.ended[flight.message][stage] += flight.len;
            self.flights[stage] = None;
        }
    }

    fn progress(&self, now: Instant, stage: usize, flight: &Flight) -> u64 {
        let Mover { setup_ps, byte_ps, .. } = self.movers[stage];
        let moving_ps = (now.as_nanos() * PS).saturating_sub(flight.start_ps + setup_ps);
        (moving_ps / byte_ps).min(flight.len)
    }

    fn moved(&self, now: Instant, stage: usize, message: usize) -> u64 {
        let ended = self.ended[message][stage];
        match &self.flights[stage] {
            Some(flight) if flight.message == message && self.movers[stage].visible => {
                ended + self.progress(now, stage, flight)
            }
            _ => ended,
        }
    }
}

/// One message's view of a [`World`].
pub(crate) struct Port<'a> {
    world: &'a mut World,
    message: usize,
    driven: Range<usize>,
}

impl Adapter for Port<'_> {
    fn capability(&self, stage: Stage) -> Capability {
        let capability = self.world.movers[stage.index()].capability;
        match capability.role {
            Role::Driven if !self.driven.contains(&stage.index()) => Capability { role: Role::Observed, ..capability },
            _ => capability,
        }
    }

    fn idle(&mut self, now: Instant, stage: Stage) -> bool {
        self.world.settle(now, stage.index());
        self.world.flights[stage.index()].is_none()
    }

    fn moved(&mut self, now: Instant, stage: Stage) -> u64 {
        self.world.settle(now, stage.index());
        self.world.moved(now, stage.index(), self.message)
    }

    fn room(&mut self, now: Instant, stage: Stage) -> u64 {
        let index = stage.index();
        let mut after = (index + 1)..4;
        let Some(next) = after.find(|&next| self.world.movers[next].capability.role != Role::Absent) else {
            return u64::MAX;
        };
        let held = self.world.moved(now, index, self.message) - self.world.moved(now, next, self.message);
        self.world.movers[index].capacity - held
    }

    fn start(&mut self, now: Instant, stage: Stage, pulse: Pulse) {
        assert!(pulse.len > 0 && (1..=pulse.len).contains(&pulse.report_every));
        assert!(self.idle(now, stage) && pulse.offset == self.moved(now, stage));
        assert!(pulse.len <= self.room(now, stage));
        let flight = Flight { message: self.message, start_ps: now.as_nanos() * PS, len: pulse.len };
        self.world.flights[stage.index()] = Some(flight);
    }
}

/// Nanoseconds until a lone message of `len` bytes is through, all stages driven by one engine that polls every
/// `tick_ns` nanoseconds.
pub(crate) fn lone_message(
    movers: [Mover; 4],
    len: u64,
    policy: Policy,
    tick_ns: u64,
    tuners: &mut [Tuner; 4],
    trace: &mut impl Trace,
) -> u64 {
    let mut world = World::new(movers, 1);
    let mut transfer = Transfer::new(len, policy);
    let mut now = Instant::default();
    loop {
        match transfer.poll(now, &mut world.port(0, 0..4), tuners, trace) {
            Step::Done => return now.as_nanos(),
            Step::Moving => now = now.after(tick_ns),
            stuck => panic!("{stuck:?} at {now:?} of {transfer:?}"),
        }
    }
}
