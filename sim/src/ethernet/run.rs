//! Whole machines at work, and what was measured.

use super::connection::{Connection, Kind};
use super::cpu::Cost;
use super::frame;
use super::parts::Parts;
use super::random::Random;
use super::receiver::Control;
use super::stack::Method;
use super::world::{Event, World};
use crate::point::{Point, StageTime};
use crate::time::{Span, Time};

/// Streams that several hosts send to one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streams {
    /// The way through every sender.
    pub sender: Method,
    /// The way through the receiver, who is host 0.
    pub receiver: Method,
    pub control: Control,
    /// Bytes of a message.
    pub payload: u64,
    /// Messages of each sender.
    pub count: u64,
    pub senders: u32,
    /// Senders begin at a time up to this, and pause up to this between messages, at random.
    pub pause: Span,
    /// Whether the work of processes varies, so that senders do not keep step by accident.
    pub varies: bool,
    pub seed: u64,
}

impl Streams {
    /// One sender without a pause, whose messages are 300 of 64 KiB.
    pub(crate) fn new(sender: Method, receiver: Method) -> Self {
        let control = Control::default();
        Self {
            sender,
            receiver,
            control,
            payload: 65_536,
            count: 300,
            senders: 1,
            pause: Span::ZERO,
            varies: false,
            seed: 0,
        }
    }
}

/// What was measured.
#[derive(Debug)]
pub(crate) struct Measured {
    /// Until the first message of the first sender was read.
    pub first: Span,
    /// Until the last byte was read.
    pub last: Span,
    /// Payload that was read.
    pub bytes: u64,
    /// Frames of pages that came to host 0, and those that landed where they belong.
    pub page_frames: u64,
    pub placed: u64,
    /// Time of the receiver's processor.
    pub spent: Cost,
    pub stages: Vec<StageTime>,
    pub events: u64,
}

impl Measured {
    /// Payload over time.
    pub(crate) fn bytes_per_s(&self) -> f64 {
        if self.last == Span::ZERO { 0.0 } else { self.bytes as f64 / self.last.as_s() }
    }

    /// Payload over time, in MB/s.
    pub(crate) fn mb_per_s(&self) -> f64 {
        self.bytes_per_s() / 1e6
    }

    /// Frames of pages that needed no copy, in percent.
    pub(crate) fn success_pct(&self) -> f64 {
        if self.page_frames == 0 { 0.0 } else { self.placed as f64 * 100.0 / self.page_frames as f64 }
    }

    pub(crate) fn point(self) -> Point {
        Point {
            one_way_us: self.first.as_us(),
            bytes_per_s: self.bytes_per_s(),
            stages: self.stages,
            events: self.events,
        }
    }
}

/// Runs streams to their end.
pub(crate) fn streams(parts: &Parts, what: &Streams) -> Measured {
    let senders = what.senders as usize;
    let methods: Vec<Method> =
        std::iter::once(what.receiver).chain(std::iter::repeat_n(what.sender, senders)).collect();
    let mut world = World::new(parts, &methods, what.control);
    let kind = Kind::Stream { asks: what.control.admission };
    let mut random = Random(what.seed);
    world.varies = what.varies.then_some(Random(!what.seed));
    for from in 1..=senders {
        let mut connection = Connection::new(kind, from, 0, what.payload, what.count, parts.window);
        let at = Time::START + random.span(what.pause);
        if what.pause > Span::ZERO {
            connection.pauses = (1..what.count).map(|_| random.span(what.pause)).collect();
        }
        world.join(connection, at);
    }
    world.run();
    measured(&world)
}

/// Lets host 0 fetch `count` pages of `payload` bytes from each of several hosts: from each host one after the other,
/// from all of them at the same time.
pub(crate) fn fetches(parts: &Parts, method: Method, payload: u64, count: u64, donors: u32) -> Measured {
    let methods = vec![method; donors as usize + 1];
    let mut world = World::new(parts, &methods, Control::default());
    for from in 1..methods.len() {
        world.join(Connection::new(Kind::Fetch, from, 0, payload, count, 0), Time::START);
    }
    world.run();
    measured(&world)
}

/// A shared memory of three hosts, like TreadMarks: every host's process fetches pages from the others, one at a time,
/// in rounds that begin together, as after a barrier, and works `work` on each on average. Returns what host 0 has
/// measured.
pub(crate) fn shared_memory(parts: &Parts, method: Method, work: Span, rounds: u64, seed: u64) -> Measured {
    const HOSTS: usize = 3;
    /// Pages that a process fetches in a round.
    const PAGES: u64 = 8;
    let mut world = World::new(parts, &[method; HOSTS], Control::default());
    let mut random = Random(seed);
    for to in 0..HOSTS {
        for from in (0..HOSTS).filter(|&from| from != to) {
            let fetch = Connection::new(Kind::Fetch, from, to, frame::PAGE, 0, 0);
            world.outgoing[from].push(world.connections.len());
            world.connections.push(fetch);
        }
    }
    for _ in 0..rounds {
        for to in 0..HOSTS {
            let mut next = || (random.span(work * 2), 2 * to + usize::from(random.below(2) == 1));
            let (pause, first) = next();
            world.plans[to] = (1..PAGES).map(|_| next()).collect();
            world.heap.after(pause, Event::Begin(first));
        }
        world.run();
    }
    measured(&world)
}

/// What a world has done, seen from host 0.
pub(crate) fn measured(world: &World<'_>) -> Measured {
    let here = world.connections.iter().filter(|connection| connection.to == 0);
    let since = |time: Option<Time>| time.map_or(Span::ZERO, |time| time - Time::START);
    let first = world.connections.first().map_or(Span::ZERO, |connection| since(connection.first_done));
    let last = here.clone().map(|connection| since(connection.last_done)).max().unwrap_or_default();
    Measured {
        first,
        last,
        bytes: here.map(|connection| connection.read).sum(),
        page_frames: world.hosts[0].page_frames,
        placed: world.hosts[0].placed,
        spent: world.hosts[0].cpu.spent(),
        stages: stages(world),
        events: world.heap.taken(),
    }
}

/// The stages from host 1 to host 0.
fn stages(world: &World<'_>) -> Vec<StageTime> {
    let [receiver, sender, ..] = &world.hosts[..] else { return Vec::new() };
    [
        ("sender's processor", sender.cpu.meter()),
        ("sender's bus", sender.bus.meter),
        ("sender's link", sender.sender.meter),
        ("receiver's link", world.ports[0].meter),
        ("receiver's bus", receiver.bus.meter),
        ("receiver's processor", receiver.cpu.meter()),
    ]
    .into_iter()
    .map(|(stage, meter)| {
        let (first, last) = meter.span.unwrap_or_default();
        StageTime {
            stage: stage.to_owned(),
            first_us: first.as_us(),
            last_us: last.as_us(),
            busy_us: meter.busy.as_us(),
            pulses: meter.pulses,
        }
    })
    .collect()
}
